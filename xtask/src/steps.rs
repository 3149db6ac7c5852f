//! A run of named, timed steps and the table that it ends with.

use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How a step ended, with a word on what it did or why not.
pub enum Verdict {
    Passed(String),
    Skipped(String),
    Failed(String),
}

impl From<Result<String, String>> for Verdict {
    fn from(result: Result<String, String>) -> Self {
        result.map_or_else(Verdict::Failed, Verdict::Passed)
    }
}

/// Steps so far.
pub struct Steps {
    done: Vec<(&'static str, Verdict, Duration, Option<Duration>)>,
    begin: Instant,
}

impl Steps {
    pub fn new() -> Self {
        Self { done: Vec::new(), begin: Instant::now() }
    }

    /// Runs one step; a failure does not keep the next from running.
    pub fn step<V: Into<Verdict>>(&mut self, name: &'static str, work: impl FnOnce() -> V) {
        println!("\n── {name}");
        let (begin, worked) = (Instant::now(), processor_time());
        let verdict = work().into();
        let time = begin.elapsed();
        let worked = processor_time().zip(worked).map(|(now, before)| now.saturating_sub(before));
        let (word, note) = words(&verdict);
        println!(
            "── {name}: {word} in {:.1} s{}{note}",
            time.as_secs_f64(),
            if note.is_empty() { "" } else { ": " }
        );
        self.done.push((name, verdict, time, worked));
    }

    /// Prints the table; fails if a step failed.
    pub fn finish(self) -> ExitCode {
        let width = self.done.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
        println!("\n{:width$}  {:>8}  {:>8}  result", "step", "seconds", "of CPU");
        for (name, verdict, time, worked) in &self.done {
            let (word, note) = words(verdict);
            let worked = worked.map_or("–".into(), |worked| format!("{:.1}", worked.as_secs_f64()));
            println!("{name:width$}  {:8.1}  {worked:>8}  {word:7}  {note}", time.as_secs_f64());
        }
        let count = |which: &str| self.done.iter().filter(|step| words(&step.1).0 == which).count();
        let failed = count("FAILED");
        println!(
            "{} passed, {} skipped, {failed} failed in {:.0} s, {:.0} s of CPU",
            count("passed"),
            count("skipped"),
            self.begin.elapsed().as_secs_f64(),
            self.done.iter().filter_map(|step| step.3).sum::<Duration>().as_secs_f64()
        );
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// What this process and the ended ones below it took of the cores: comparable where others share the
/// machine. Linux alone says.
fn processor_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // After the program's name in brackets: state, ten numbers, then utime, stime, cutime and cstime in 1/100
    // s.
    let numbers = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(4);
    let ticks: u64 = numbers.map(|n| n.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(Duration::from_millis(10 * ticks))
}

fn words(verdict: &Verdict) -> (&'static str, &str) {
    match verdict {
        Verdict::Passed(note) => ("passed", note),
        Verdict::Skipped(note) => ("skipped", note),
        Verdict::Failed(note) => ("FAILED", note),
    }
}
