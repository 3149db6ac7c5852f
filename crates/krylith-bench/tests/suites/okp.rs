//! The suite `okp` on the CPU, at a small size.

use krylith_bench::{Asked, okp};

#[test]
fn a_small_run_on_the_cpu_writes_everything() {
    let options = Asked {
        scale: Some(0.001),
        repetitions: Some(2),
        solves: Some(1),
        iterations: Some(40),
        traffic: Some(1_000_000),
        ..Asked::default()
    };
    let (_, report, json, heard) = crate::run(okp, "okp", options);
    assert!(heard.len() > 6 && report.files.len() == 3);
    let rows = json["products"][1]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(row["check"]["ok"], true, "{row}");
        assert_eq!(row["rotating"]["samples"].as_array().unwrap().len(), 2);
        assert!(row["bandwidth_fraction"].as_f64().unwrap() > 0.0);
    }
    for row in json["gmres"].as_array().unwrap() {
        assert_eq!(row["residuals"].as_array().unwrap().len(), 41, "{row}");
        assert!(row["phases_per_solve"]["product"].as_f64().unwrap() > 0.0);
    }
    assert!(json["orthogonalization"].as_array().unwrap().len() >= 12);
    assert!(report.tables.contains("Krylith, dense blocks"));
}

#[test]
fn nonsense_is_refused() {
    crate::refused(
        okp,
        [Asked { scale: Some(-1.0), ..Asked::default() }, Asked { iterations: Some(0), ..Asked::default() }],
    );
}
