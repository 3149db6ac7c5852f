//! `cargo xtask bench`: long studies and measurements on this machine.

use crate::shell::{cargo, run_tests, shell, target};
use crate::steps::{Steps, Verdict};
use std::process::ExitCode;

/// Suites of `krylith bench`, in the order in which they run here and on a GPU machine.
pub const SUITES: &[&str] = &["okp", "ildu0", "cbcg", "ras", "answer", "multilevel"];

/// Measures the choice of `auto` and every alternative to it, to check the rules in
/// `solver/fallbacks/rules.rs`. The systems are the hard ones, and one of each kind that a core solves in a
/// second.
const AUTO: (&str, &[&str]) = (
    "auto",
    &[
        "answer",
        "--systems",
        "hard",
        "laplace:64x64x64",
        "laplace:200x200x2",
        "laplace:24x24x24,block=4",
        "stokes:12x12x12",
        "elasticity:16x16x16",
        "radiation:16x16x16",
        "poisson-multiphase:32x32x64",
        "--ways",
        "lu:most=40000000",
        "ildu",
        "ildu:cut=whole",
        "amg",
        "jacobi",
        "ras",
        "--rounds",
        "2",
    ],
);

/// Ignored tests that need data, and the variable with the name of the data's folder. If it is not set, the
/// test is skipped.
const NEED_DATA: [(&str, &str); 3] = [
    ("the_larger_beam_has_its_known_answer", "KRYLITH_DATA"),
    ("the_real_rock_gives_the_known_matrix", "KRYLITH_SPE10"),
    ("a_bare_solve_solves_them_all", "KRYLITH_MATRICES"),
];

/// Runs the given suites; without any, all ignored tests in release and then every suite.
pub fn run(suites: &[&str]) -> ExitCode {
    let mut steps = Steps::new();
    if suites.is_empty() {
        steps.step("ignored tests", None, || {
            let args =
                ["test", "--release", "--workspace", "--no-fail-fast", "--", "--ignored", "--nocapture"];
            let mut command = cargo(&args);
            let without = NEED_DATA.iter().filter(|(_, name)| std::env::var_os(name).is_none());
            let without: Vec<_> = without.collect();
            command.args(without.iter().flat_map(|(test, _)| ["--skip", test]));
            let skipped: String = without.iter().map(|(_, name)| format!(", {name} is not set")).collect();
            run_tests(&mut command).map(|counts| counts + &skipped)
        });
    }
    let chosen = if suites.is_empty() { SUITES } else { suites };
    if chosen.is_empty() {
        steps.step("krylith bench", None, || Verdict::Skipped("there is no suite".into()));
    }
    for &suite in chosen {
        steps.step("krylith bench", None, || {
            let out = target().join("xtask-bench").join(suite);
            let (auto, words) = AUTO;
            let words = if suite == auto { words } else { &[suite][..] };
            let run = ["run", "--release", "--package", "krylith-bench", "--bin", "krylith-bench", "--"];
            shell(cargo(&run).args(words).arg("--out").arg(&out))
                .map(|_| format!("{suite}, in {}", out.display()))
        });
    }
    steps.finish()
}
