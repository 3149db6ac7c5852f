//! `cargo xtask fuzz`: feeds damaged input to readers and parsers for a long time.

use crate::shell::{cargo, shell, target};
use std::process::ExitCode;

/// Passes its words on to the test binary `fuzz` of krylith-problems, built in release. Inputs that are finds
/// go to `fuzz/` in the target folder.
pub fn run(words: &[&str]) -> ExitCode {
    let build = ["test", "--release", "--package", "krylith-problems", "--test", "fuzz", "--", "fuzz"];
    let mut command = cargo(&build);
    // With one thread, memory and time can be attributed to a run.
    command
        .args(["--out".as_ref(), target().join("fuzz").as_os_str()])
        .args(words)
        .env("RAYON_NUM_THREADS", "1");
    match shell(&mut command) {
        Ok(_) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!(
                "fuzz: {why}; an input that ended the process is `TARGET-trying` in {}",
                target().join("fuzz").display()
            );
            ExitCode::FAILURE
        }
    }
}
