//! `cargo xtask test` and `cargo xtask ci`: one list of steps, ordered so that mistakes show early.

use crate::shell::{cargo, in_ci, root, run_tests, shell, works};
use crate::steps::{Steps, Verdict};
use crate::{c, clients, docs, licenses, mpi, nvrtc, package, python, rustdoc, tidy};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// All features, spelled for the dependencies of the extension module: with one feature less, the wheel would
/// build the library again.
const OF_ALL: &str = "krylith-core/faer,krylith-core/nalgebra-sparse,krylith-core/sprs,krylith-core/testing,\
     krylith-core/baselines,krylith-cli/metis";

/// The place where a step runs.
#[derive(Clone, Copy, PartialEq)]
pub enum Who {
    /// In `cargo xtask test`, which any user can run without administrator rights, and in CI. It takes about
    /// 14 minutes on two cores; the limit is 15.
    Desk,
    /// Only in CI, by `cargo xtask ci`: the step needs an administrator to install something, or takes long.
    Ci,
}
use Who::{Ci, Desk};

/// A step, and its budget in seconds of processor time on the two-core machine of CI, starting without any
/// build.
///
/// Other machines take other times, so only CI fails if a budget is exceeded by more than a fifth. The table
/// at the end of `.ci/run` shows the numbers to enter here.
struct Step {
    who: Who,
    name: &'static str,
    budget: u32,
    work: fn(&mut Run) -> Verdict,
}

/// State that steps share.
struct Run {
    who: Who,
    /// Folders of MPI libraries besides that of the system.
    launchers: Vec<PathBuf>,
}

/// Everything is built once. MPI comes before the tests, because their ranks run under it.
const STEPS: [Step; 15] = [
    step(Desk, "tidy", 15, |_| tidy::check().into()),
    step(Desk, "format", 10, |_| format()),
    step(Ci, "packages", 20, |_| package::check(false).into()),
    step(Ci, "licences", 10, |_| licenses::check().into()),
    step(Desk, "MPI", 60, launchers),
    // All features of the workspace at once: each other set of features would build the library again.
    step(Desk, "lints", 350, |_| clippy(&["--workspace", "--all-targets", "--all-features"])),
    step(Ci, "lints without cuda", 60, |_| {
        clippy(&["--package", "krylith-core", "--no-default-features", "--lib"])
    }),
    step(Desk, "documentation", 125, |_| rustdoc::build().into()),
    step(Ci, "site", 95, |_| docs::step()),
    step(Desk, "tests", 2200, |run| {
        let mut tests = cargo(&["test", "--workspace", "--no-fail-fast", "--all-features"]);
        run_tests(tests.env(mpi::VARIABLE, mpi::listed(&run.launchers))).into()
    }),
    // With the features of the earlier tests, so that the wheel reuses their build.
    step(Desk, "Python package", 400, |run| {
        python::step(&["--profile", "dev", "--features", OF_ALL], &run.launchers, missing)
    }),
    step(Ci, "C library", 110, |run| c::step(&run.launchers, missing)),
    // With the wheel and the C library of the steps before.
    step(Ci, "PETSc and SUNDIALS", 165, |_| clients::step(missing)),
    step(Ci, "kernels through NVRTC", 450, |_| kernels()),
    step(Desk, "kernels on a GPU", 5, |_| match Path::new("/proc/driver/nvidia/version").exists() {
        true => Verdict::Passed("part of the tests above".into()),
        false => Verdict::Skipped(
            "no NVIDIA driver here; `cargo xtask gpu` builds for a machine that has one".into(),
        ),
    }),
];

const fn step(who: Who, name: &'static str, budget: u32, work: fn(&mut Run) -> Verdict) -> Step {
    Step { who, name, budget, work }
}

/// Runs the steps for `who`; CI also runs those of a desk.
pub fn run(who: Who) -> ExitCode {
    let mut steps = Steps::new();
    let mut run = Run { who, launchers: Vec::new() };
    for step in STEPS.iter().filter(|step| who == Ci || step.who == Desk) {
        steps.step(step.name, Some(step.budget), || (step.work)(&mut run));
    }
    steps.finish()
}

fn format() -> Verdict {
    component("fmt", "rustfmt", || {
        shell(&mut cargo(&["fmt", "--all", "--check"]))?;
        shell(&mut cargo(&["fmt", "--check", "--manifest-path", "xtask/book/Cargo.toml"]))
    })
}

/// Installs MPI for the ranks of later steps: outside CI only what is present, in CI all tested libraries.
fn launchers(run: &mut Run) -> Verdict {
    let of_system;
    (of_system, run.launchers) = mpi::installed();
    if run.who == Ci {
        return match mpi::install() {
            Ok(folders) => {
                run.launchers = folders;
                Verdict::Passed("Open MPI, MPICH and the standard ABI".into())
            }
            Err(why) => missing(why),
        };
    }
    let system = of_system.then(|| "mpirun of the system".into());
    let folders = run.launchers.iter().map(|folder| folder.display().to_string());
    let all: Vec<String> = system.into_iter().chain(folders).collect();
    match all.is_empty() {
        true => Verdict::Skipped("no mpirun here: tests start no processes as ranks".into()),
        false => Verdict::Passed(all.join(", ")),
    }
}

/// Compiles every kernel specialisation to machine code.
///
/// Builds the whole workspace with the features of the earlier tests, so that nothing is built twice.
fn kernels() -> Verdict {
    match nvrtc::install() {
        Ok(library) => {
            let mut command = cargo(&["test", "--workspace", "--all-features", "--test", "nvrtc"]);
            library.tell(&mut command);
            run_tests(&mut command).into()
        }
        Err(why) => missing(why),
    }
}

fn clippy(what: &[&str]) -> Verdict {
    component("clippy", "clippy", || shell(cargo(&["clippy"]).args(what).args(["--", "-D", "warnings"])))
}

/// Runs `work` if cargo has the subcommand, or if rustup can add it.
fn component(subcommand: &str, name: &str, work: impl FnOnce() -> Result<String, String>) -> Verdict {
    if !works(&mut cargo(&[subcommand, "--version"])) {
        let added = shell(Command::new("rustup").args(["component", "add", name]).current_dir(root()));
        if let Err(why) = added {
            return missing(format!("cargo {subcommand} is missing and rustup could not add it: {why}"));
        }
    }
    work().into()
}

/// Reports something that could not be installed: a skipped step at a desk, an error in CI.
fn missing(why: String) -> Verdict {
    if in_ci() { Verdict::Failed(why) } else { Verdict::Skipped(why) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_step_has_a_name_and_a_budget() {
        let names: HashSet<&str> = STEPS.iter().map(|step| step.name).collect();
        assert_eq!(names.len(), STEPS.len());
        for step in &STEPS {
            assert!(step.budget > 0, "{}: no budget", step.name);
        }
    }
}
