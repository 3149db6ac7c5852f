//! `cargo xtask bench`: long studies and measurements on this machine.

use crate::shell::{cargo, run_tests, shell, target};
use crate::steps::{Steps, Verdict};
use std::process::ExitCode;

/// Suites of `krylith bench`, in the order in which they run here and on a GPU machine.
pub const SUITES: &[&str] = &["okp", "ildu0"];

/// Without suites: every ignored test in release, then every suite. With suites: those alone.
pub fn run(suites: &[&str]) -> ExitCode {
    let mut steps = Steps::new();
    if suites.is_empty() {
        steps.step("ignored tests", || {
            let args =
                ["test", "--release", "--workspace", "--no-fail-fast", "--", "--ignored", "--nocapture"];
            run_tests(&mut cargo(&args))
        });
    }
    let chosen = if suites.is_empty() { SUITES } else { suites };
    if chosen.is_empty() {
        steps.step("krylith bench", || Verdict::Skipped("there is no suite".into()));
    }
    for &suite in chosen {
        steps.step("krylith bench", || {
            let out = target().join("xtask-bench").join(suite);
            let run = ["run", "--release", "--package", "krylith-cli", "--bin", "krylith", "--"];
            shell(cargo(&run).args(["bench", suite, "--out"]).arg(&out))
                .map(|_| format!("{suite}, in {}", out.display()))
        });
    }
    steps.finish()
}
