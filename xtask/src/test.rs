//! `cargo xtask test`: what CI runs, in the order in which a mistake shows soonest.

use crate::shell::{cargo, in_ci, root, run_tests, shell, works};
use crate::steps::{Steps, Verdict};
use crate::{mpi, nvrtc, tidy};
use std::cell::OnceCell;
use std::path::Path;
use std::process::{Command, ExitCode};

pub fn run() -> ExitCode {
    let mut steps = Steps::new();
    steps.step("tidy", || tidy::check().map(|files| format!("{files} files")));
    steps.step("format", || component("fmt", "rustfmt", || shell(&mut cargo(&["fmt", "--all", "--check"]))));
    steps.step("lints", || clippy(&["--workspace", "--all-targets"]));
    steps.step("lints without cuda", || {
        clippy(&["--package", "krylith", "--no-default-features", "--all-targets"])
    });
    steps.step("documentation", || {
        // Libraries alone: the command's binary and the library would both write target/doc/krylith.
        let doc = ["doc", "--workspace", "--lib", "--no-deps", "--quiet"];
        shell(cargo(&doc).env("RUSTDOCFLAGS", "-D warnings"))
    });
    steps.step("tests", || run_tests(&mut cargo(&["test", "--workspace", "--no-fail-fast"])));
    let mpi = OnceCell::new(); // installed in the time of the first step that needs it
    let mpi = || mpi.get_or_init(mpi::install);
    steps.step("lints with mpi", || match mpi() {
        Ok(()) => clippy(&[
            "--package",
            "krylith",
            "--package",
            "krylith-cli",
            "--features",
            "krylith-cli/mpi",
            "--all-targets",
        ]),
        Err(why) => missing(why.clone()),
    });
    steps.step("tests with mpi", || match mpi() {
        // The whole workspace, for the reason that `kernels` gives.
        Ok(()) => {
            let tests = ["test", "--workspace", "--features", "krylith-cli/mpi", "--test", "mpi"];
            run_tests(&mut cargo(&tests)).into()
        }
        Err(why) => missing(why.clone()),
    });
    steps.step("kernels through NVRTC", kernels);
    steps.step("kernels on a GPU", || {
        if !has_test("cuda") {
            Verdict::Skipped("crates/krylith/tests/cuda.rs does not exist".into())
        } else if Path::new("/proc/driver/nvidia/version").exists() {
            Verdict::Passed("part of the tests above".into())
        } else {
            Verdict::Skipped(
                "no NVIDIA driver here; `cargo xtask gpu` builds for a machine that has one".into(),
            )
        }
    });
    steps.finish()
}

/// Compiles every kernel specialisation to machine code.
///
/// The whole workspace is named, and not the one crate, so that features stay as the tests before had them and
/// nothing is built twice.
fn kernels() -> Verdict {
    if !has_test("nvrtc") {
        return Verdict::Skipped("crates/krylith/tests/nvrtc.rs does not exist".into());
    }
    match nvrtc::install() {
        Ok(library) => {
            let mut command = cargo(&["test", "--workspace", "--test", "nvrtc"]);
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

/// True if crate krylith has the integration test `name`.
fn has_test(name: &str) -> bool {
    let tests = root().join("crates/krylith/tests");
    tests.join(name).with_extension("rs").exists() || tests.join(name).join("main.rs").exists()
}
