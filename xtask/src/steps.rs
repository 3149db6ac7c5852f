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
    done: Vec<(&'static str, Verdict, Duration)>,
    begin: Instant,
}

impl Steps {
    pub fn new() -> Self {
        Self { done: Vec::new(), begin: Instant::now() }
    }

    /// Runs one step; a failure does not keep the next from running.
    pub fn step<V: Into<Verdict>>(&mut self, name: &'static str, work: impl FnOnce() -> V) {
        println!("\n── {name}");
        let begin = Instant::now();
        let verdict = work().into();
        let time = begin.elapsed();
        let (word, note) = words(&verdict);
        println!(
            "── {name}: {word} in {:.1} s{}{note}",
            time.as_secs_f64(),
            if note.is_empty() { "" } else { ": " }
        );
        self.done.push((name, verdict, time));
    }

    /// Prints the table; fails if a step failed.
    pub fn finish(self) -> ExitCode {
        let width = self.done.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
        println!("\n{:width$}  {:>8}  result", "step", "seconds");
        for (name, verdict, time) in &self.done {
            let (word, note) = words(verdict);
            println!("{name:width$}  {:8.1}  {word:7}  {note}", time.as_secs_f64());
        }
        let count = |which: &str| self.done.iter().filter(|(_, v, _)| words(v).0 == which).count();
        let failed = count("FAILED");
        println!(
            "{} passed, {} skipped, {failed} failed in {:.0} s",
            count("passed"),
            count("skipped"),
            self.begin.elapsed().as_secs_f64()
        );
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn words(verdict: &Verdict) -> (&'static str, &str) {
    match verdict {
        Verdict::Passed(note) => ("passed", note),
        Verdict::Skipped(note) => ("skipped", note),
        Verdict::Failed(note) => ("FAILED", note),
    }
}
