//! `mpirun -n P krylith bench …`: suites measure all ranks together, rank 0 reports, and a suite that
//! cannot run on several processes is refused. One binary runs under every launcher on this machine.

#[path = "../../krylith-core/tests/launchers/mod.rs"]
mod launchers;

use launchers::Launcher;
use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    launchers::run(&[
        ("direct_suites_measure_all_ranks", direct_suites_measure_all_ranks),
        ("suites_of_solvers_measure_all_ranks", suites_of_solvers_measure_all_ranks),
        ("what_ranks_cannot_run_is_refused_once", what_ranks_cannot_run_is_refused_once),
    ])
}

/// Runs a suite on ranks; returns the exit code, stdout and stderr.
fn run(launcher: &Launcher, folder: &Path, ranks: usize, line: &str) -> (i32, String, String) {
    let mut command = launcher.command(ranks);
    command.arg(env!("CARGO_BIN_EXE_krylith-bench")).args(line.split_whitespace());
    let output = command.current_dir(folder).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// Runs a suite on two ranks of the first launcher, asserts that only one rank reports, and returns the data.
/// Other launchers differ only in transport, which the tests of the command cover.
fn measured(suite: &str, line: &str) -> Value {
    let (launcher, folder) = (&launchers::all()[0], tempfile::tempdir().unwrap());
    let line = format!("{suite} --device cpu --threads 1 --out made {line}");
    let (code, out, err) = run(launcher, folder.path(), 2, &line);
    assert_eq!(code, 0, "{line} of {}: {err}", launcher.name);
    assert_eq!(out.matches(&format!("wrote made/{suite}.json")).count(), 1, "one rank speaks: {out}");
    let read = std::fs::read_to_string(folder.path().join(format!("made/{suite}.json"))).unwrap();
    serde_json::from_str(&read).unwrap()
}

fn rows(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list"))
}

fn direct_suites_measure_all_ranks() {
    let json = measured("okp", "--scale 0.001 --series strong,weak --solves 1");
    assert_eq!(rows(&json["experiments"]).len(), 2);
    for experiment in rows(&json["experiments"]) {
        let run = &experiment["runs"][0];
        assert_eq!(run["gpus"], 2);
        let row = &run["rows"][0];
        assert_eq!((&row["name"], &row["check"]["ok"]), (&"Krylith, dense blocks".into(), &true.into()));
        assert!(row["seconds_per_iteration"].as_f64() > Some(0.0), "{row}");
    }
    let json = measured("ildu0", "--scale 0.0005 --solves 1");
    assert_eq!(json["device"]["processes"], 2);
    for run in rows(&json["runs"]) {
        assert!(run["gpus"] == 2 && run["true_residual"].as_f64() <= Some(1e-8), "{run}");
        assert!(run["application"]["median"].as_f64() > Some(0.0), "{run}");
    }
    let line = "--scale 0.0003 --only nlpkkt160 --parts multi,cg --rounds 2 --iterations 5";
    let text = measured("spmv", line).to_string();
    for name in ["halo, contiguous", "CG on one device", "CG, distributed vectors"] {
        assert!(text.contains(name), "{name}: {text}");
    }
    assert!(!text.contains("lra"), "vectors are replicated only within a process: {text}");
}

fn suites_of_solvers_measure_all_ranks() {
    let json = measured("cbcg", "--systems poisson-multiphase:8x8x16 --solves 1");
    assert_eq!(rows(&json["scaling"]).len(), 4);
    for row in rows(&json["scaling"]) {
        assert!(row["gpus"] == 2 && row["check"]["ok"] == true, "{row}");
        assert!(row["seconds"]["median"].as_f64() > Some(0.0), "{row}");
    }
    let json = measured("ras", "--scale 0.0004 --solves 1");
    let solves = rows(&json["scaling"][0]["rows"]);
    assert_eq!(solves.len(), 4);
    assert!(solves.iter().all(|row| row["gpus"] == 2 && row["failure"].is_null()), "{solves:?}");
    let json = measured("multilevel", "--scale 0.0001 --rounds 1 --ways amg");
    assert_eq!(rows(&json["scaling"]).len(), 2);
    for run in rows(&json["scaling"]) {
        assert!(run["gpus"] == 2 && run.to_string().contains("from host arrays"), "{run}");
    }
}

fn what_ranks_cannot_run_is_refused_once() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    for launcher in launchers::all() {
        for (line, word) in [
            ("answer --device cpu", "single process"),
            ("cbcg --device cpu --parts kernels", "--parts kernels"),
            ("okp --device cpu --scale 0", "positive"),
            ("okp --device cpu --out file", "file"),
        ] {
            let (code, _, err) = run(&launcher, folder.path(), 2, line);
            assert_ne!(code, 0, "{line}: {err}");
            let said = err.lines().filter(|said| said.starts_with("error:") && said.contains(word)).count();
            assert_eq!(said, 1, "{line} of {}: {err}", launcher.name);
        }
    }
}
