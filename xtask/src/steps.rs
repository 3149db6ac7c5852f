//! Runs named steps, measures their times, and prints a table at the end.

use crate::shell::in_ci;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Result of a step, with a note on what it did, or on why it did not.
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

/// A finished step.
struct Done {
    name: &'static str,
    verdict: Verdict,
    time: Duration,
    /// Processor time on all cores together.
    worked: Option<Duration>,
    /// Budget of processor time, in seconds.
    budget: Option<u32>,
}

/// The steps run so far.
pub struct Steps {
    done: Vec<Done>,
    begin: Instant,
}

impl Steps {
    pub fn new() -> Self {
        Self { done: Vec::new(), begin: Instant::now() }
    }

    /// Runs one step; the next steps run even if it fails.
    pub fn step<V: Into<Verdict>>(
        &mut self,
        name: &'static str,
        budget: Option<u32>,
        work: impl FnOnce() -> V,
    ) {
        println!("\n── {name}");
        let (begin, worked) = (Instant::now(), processor_time());
        let verdict = work().into();
        let time = begin.elapsed();
        let worked = processor_time().zip(worked).map(|(now, before)| now.saturating_sub(before));
        let verdict = match worked.zip(budget) {
            Some((worked, budget)) => within(verdict, worked, budget, in_ci()),
            None => verdict,
        };
        let (word, note) = words(&verdict);
        println!(
            "── {name}: {word} in {:.1} s{}{note}",
            time.as_secs_f64(),
            if note.is_empty() { "" } else { ": " }
        );
        self.done.push(Done { name, verdict, time, worked, budget });
    }

    /// Prints the table; fails if a step failed.
    pub fn finish(self) -> ExitCode {
        let width = self.done.iter().map(|step| step.name.chars().count()).max().unwrap_or(0);
        println!("\n{:width$}  {:>8}  {:>8}  {:>8}  result", "step", "seconds", "of CPU", "budget");
        for Done { name, verdict, time, worked, budget } in &self.done {
            let (word, note) = words(verdict);
            let worked = worked.map_or("–".into(), |worked| format!("{:.1}", worked.as_secs_f64()));
            let budget = budget.map_or("–".into(), |budget| budget.to_string());
            println!("{name:width$}  {:8.1}  {worked:>8}  {budget:>8}  {word:7}  {note}", time.as_secs_f64());
        }
        let count = |which: &str| self.done.iter().filter(|step| words(&step.verdict).0 == which).count();
        let failed = count("FAILED");
        println!(
            "{} passed, {} skipped, {failed} failed in {:.0} s, {:.0} s of CPU",
            count("passed"),
            count("skipped"),
            self.begin.elapsed().as_secs_f64(),
            self.done.iter().filter_map(|step| step.worked).sum::<Duration>().as_secs_f64()
        );
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Compares the processor time of a step with its budget. If it is exceeded by more than a fifth, the step
/// fails in CI, on whose machine budgets are measured; elsewhere a note says so.
fn within(verdict: Verdict, worked: Duration, budget: u32, is_ci: bool) -> Verdict {
    if worked <= Duration::from_secs(budget.into()).mul_f64(1.2) {
        return verdict;
    }
    let with = |note: String| {
        let before = if note.is_empty() { "" } else { "; " };
        format!("{note}{before}{:.0} s of CPU, and its budget is {budget} s", worked.as_secs_f64())
    };
    match verdict {
        Verdict::Passed(note) if is_ci => {
            Verdict::Failed(with(note) + ": make it cheaper, or raise the budget in xtask/src/test.rs")
        }
        Verdict::Passed(note) => Verdict::Passed(with(note)),
        other => other,
    }
}

/// Returns the processor time of this process and its finished child processes. It is comparable between runs
/// that share the machine with others. `None` on systems other than Linux.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_beyond_its_budget_fails_in_ci_alone() {
        let judged = |seconds: u64, is_ci: bool| {
            let verdict = within(Verdict::Passed("3 files".into()), Duration::from_secs(seconds), 10, is_ci);
            let (word, note) = words(&verdict);
            format!("{word}: {note}")
        };
        assert_eq!([false, true].map(|is_ci| judged(12, is_ci)), ["passed: 3 files"; 2]);
        assert_eq!(judged(13, false), "passed: 3 files; 13 s of CPU, and its budget is 10 s");
        assert!(judged(13, true).starts_with("FAILED: 3 files; 13 s of CPU, and its budget is 10 s: make"));
        let failed = within(Verdict::Failed("x".into()), Duration::from_secs(13), 10, true);
        assert_eq!(words(&failed), ("FAILED", "x"));
    }
}
