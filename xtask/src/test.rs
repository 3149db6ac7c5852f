//! `cargo xtask test`: what CI runs, in the order in which a mistake shows soonest.

use crate::shell::{cargo, in_ci, root, run_tests, shell, works};
use crate::steps::{Steps, Verdict};
use crate::{c, docs, licenses, mpi, nvrtc, package, python, rustdoc, tidy};
use std::path::Path;
use std::process::{Command, ExitCode};

/// All features, as those of what the extension module depends on.
const OF_ALL: &str = "krylith-core/faer,krylith-core/nalgebra-sparse,krylith-core/sprs";

pub fn run() -> ExitCode {
    let mut steps = Steps::new();
    steps.step("tidy", tidy::check);
    steps.step("format", || {
        component("fmt", "rustfmt", || {
            shell(&mut cargo(&["fmt", "--all", "--check"]))?;
            shell(&mut cargo(&["fmt", "--check", "--manifest-path", "xtask/book/Cargo.toml"]))
        })
    });
    steps.step("packages", || package::check(false));
    steps.step("licences", licenses::check);
    let mut launchers = Vec::new();
    steps.step("MPI", || match mpi::install() {
        Ok(folders) => {
            launchers = folders;
            Verdict::Passed("Open MPI, MPICH and the standard ABI".into())
        }
        Err(why) => missing(why),
    });
    // All that follows is compiled once: each set of features builds the library again.
    steps.step("lints", || clippy(&["--workspace", "--all-targets", "--all-features"]));
    steps.step("lints without cuda", || {
        clippy(&["--package", "krylith-core", "--no-default-features", "--all-targets"])
    });
    steps.step("documentation", rustdoc::build);
    steps.step("site", docs::build);
    steps.step("tests", || {
        let mut tests = cargo(&["test", "--workspace", "--no-fail-fast", "--all-features"]);
        run_tests(tests.env(mpi::VARIABLE, mpi::listed(&launchers)))
    });
    // With the features of the tests before, so that the wheel is made of what was built for them.
    steps.step("Python package", || {
        python::step(&["--profile", "dev", "--features", OF_ALL], &launchers, missing)
    });
    steps.step("C library", || c::step(&launchers, missing));
    steps.step("kernels through NVRTC", kernels);
    steps.step("kernels on a GPU", || match Path::new("/proc/driver/nvidia/version").exists() {
        true => Verdict::Passed("part of the tests above".into()),
        false => Verdict::Skipped(
            "no NVIDIA driver here; `cargo xtask gpu` builds for a machine that has one".into(),
        ),
    });
    steps.finish()
}

/// Compiles every kernel specialisation to machine code.
///
/// The whole workspace is named, with the features of the tests before, so that nothing is built twice.
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

/// Runs `work` if cargo has the subcommand, or rustup can add it.
fn component(subcommand: &str, name: &str, work: impl FnOnce() -> Result<String, String>) -> Verdict {
    if !works(&mut cargo(&[subcommand, "--version"])) {
        let added = shell(Command::new("rustup").args(["component", "add", name]).current_dir(root()));
        if let Err(why) = added {
            return missing(format!("cargo {subcommand} is missing and rustup could not add it: {why}"));
        }
    }
    work().into()
}

/// What could not be installed is skipped at a desk and an error in CI.
fn missing(why: String) -> Verdict {
    if in_ci() { Verdict::Failed(why) } else { Verdict::Skipped(why) }
}
