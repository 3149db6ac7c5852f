//! Solves every matrix of a folder by `krylith solve MATRIX --rtol 1e-8 --rhs ones`, and prints a table.
//!
//! `KRYLITH_MATRICES=FOLDER cargo test -p krylith-cli --test command matrices -- --ignored --nocapture`

use crate::common::Folder;
use serde_json::Value;
use std::path::Path;

#[test]
#[ignore = "needs a folder of matrices, named by KRYLITH_MATRICES"]
fn a_bare_solve_solves_them_all() {
    let folder =
        std::env::var("KRYLITH_MATRICES").expect("KRYLITH_MATRICES names a folder of .mtx or .mtx.gz files");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| is_matrix(path))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no matrix in {folder}");
    let work = Folder::new();
    let mut failed = Vec::new();
    println!(
        "| matrix | rows | nonzeros | block | outcome | iterations | true residual | method | preconditioner | fill | fallbacks | seconds |"
    );
    println!("|---|--:|--:|--:|---|--:|--:|---|---|--:|--:|--:|");
    for path in &files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let ran = work.run(&[
            "solve",
            path.to_str().unwrap(),
            "--rtol",
            "1e-8",
            "--rhs",
            "ones",
            "--report",
            "r.json",
        ]);
        if ran.code > 1 {
            println!("| {name} | | | | {} | | | | | | | |", ran.err.trim());
            failed.push(name);
            continue;
        }
        let r: Value = serde_json::from_slice(&std::fs::read(work.path("r.json")).unwrap()).unwrap();
        let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), String::from);
        let fallbacks = r["events"].as_array().unwrap().iter().filter(|e| e["event"] == "fallback").count();
        let number = |v: &Value| v.as_f64().unwrap_or(f64::NAN);
        let p = &r["preconditioner"];
        println!(
            "| {name} | {} | {} | {} | {} | {} | {:.1e} | {} | {} {} | {:.2} | {fallbacks} | {:.3} |",
            r["system"]["rows"],
            r["system"]["nonzeros"],
            r["system"]["block"],
            text(&r["outcome"]),
            r["iterations"],
            number(&r["true_relative_residual"]),
            text(&r["method"]),
            text(&p["name"]),
            if p["parameters"]["equilibrate"] == true { "scaled" } else { "" },
            number(&p["fill"]),
            number(&r["seconds"]["total"]),
        );
        if r["outcome"] != "converged" {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "not solved: {failed:?}");
}

/// Returns true for files with a square matrix; right-hand sides and null spaces are next to them as NAME.b
/// and NAME.rbm.
fn is_matrix(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let Some(stem) = name.strip_suffix(".mtx").or_else(|| name.strip_suffix(".mtx.gz")) else { return false };
    !stem.ends_with(".b") && !stem.ends_with(".rbm")
}
