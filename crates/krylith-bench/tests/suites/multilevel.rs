//! The suite `multilevel` on the CPU, at a small size.

use krylith_bench::{Asked, DeviceChoice, multilevel};
use serde_json::Value;

fn small() -> Asked {
    Asked {
        ways: ["ildu", "jacobi", "method=cg precond=jacobi", "nothing:like=this"].map(String::from).into(),
        scale: Some(1e-4),
        rounds: Some(2),
        updates: Some(12),
        limit: Some(4.0),
        ..Asked::default()
    }
}

/// Returns every system of a part, also those within series.
fn systems(json: &Value) -> Vec<&Value> {
    let list = |value: &'_ Value| value.as_array().is_some();
    json.as_array().unwrap().iter().flat_map(|one| if list(one) { systems(one) } else { vec![one] }).collect()
}

/// Checks that the variant has two samples whose mean is the median, iterations, and a recomputed residual.
fn check(way: &Value) {
    let taken = &way["from_host"];
    assert!(way["from_device"].is_null(), "{way}");
    assert!(taken["iterations"].as_u64().unwrap() > 0, "{way}");
    assert!(taken["relative_residual"].as_f64().unwrap() <= 1e-7, "{way}");
    let samples: Vec<f64> =
        taken["total"]["samples"].as_array().unwrap().iter().map(|s| s.as_f64().unwrap()).collect();
    assert_eq!(samples.len(), 2);
    let (median, mean) = (taken["total"]["median"].as_f64().unwrap(), 0.5 * (samples[0] + samples[1]));
    assert!((median - mean).abs() <= 1e-12 * mean, "{way}");
    let setup = taken["setup"]["median"].as_f64().unwrap();
    let solve = taken["seconds"]["solve"]["median"].as_f64().unwrap();
    assert!(setup > 0.0 && solve > 0.0 && setup + solve <= median * (1.0 + 1e-9), "{way}");
    // This preconditioner has no levels.
    assert!(way["levels"].is_null() && way["operator_complexity"].is_null(), "{way}");
    assert!(way["numbers"].as_f64().unwrap() > 0.0, "{way}");
}

#[test]
fn a_small_run_on_the_cpu_has_every_part() {
    let (folder, report, json, _) = crate::run(multilevel, "multilevel", small());
    let read = |name: &str| std::fs::read_to_string(folder.path().join("made").join(name)).unwrap();
    assert_eq!((systems(&json["table"]).len(), systems(&json["cpu"]).len()), (5, 3));
    assert_eq!(json["growth"].as_array().unwrap().len(), 9);
    for part in ["table", "growth", "cpu"] {
        for system in systems(&json[part]) {
            let ways = system["ways"].as_array().unwrap();
            assert!(!ways.is_empty());
            for way in ways {
                match way["way"].as_str().unwrap() {
                    "nothing:like=this" => {
                        assert!(way["refused"].as_str().unwrap().contains("nothing"), "{way}");
                        assert!(way["from_host"].is_null());
                    }
                    // CG need not converge on a matrix that is not symmetric.
                    "method=cg precond=jacobi" if system["symmetric"] == false => {}
                    _ if way["from_host"]["failure"].is_string() => {
                        assert!(matches!(system["name"].as_str(), Some("stokes" | "elasticity")), "{system}");
                    }
                    _ => check(way),
                }
            }
            let answered =
                ways.iter().filter(|way| way["from_host"]["failure"].is_null() && way["refused"].is_null());
            assert!(answered.count() >= 1 || part == "growth", "{system}");
        }
    }
    for one in json["cpu"].as_array().unwrap() {
        assert!(one["product_seconds"].as_f64().unwrap() > 0.0);
        assert!(one["another_machine"]["hypre_seconds"].as_f64().unwrap() > 2.0);
    }
    let updates = json["updates"].as_array().unwrap();
    let good: Vec<&Value> = updates.iter().filter(|u| u["failure"].is_null()).collect();
    assert_eq!((updates.len(), good.len()), (4, 3));
    for one in good {
        for list in ["update_seconds", "update_and_solve_seconds", "iterations"] {
            assert_eq!(one[list].as_array().unwrap().len(), 12, "{list}");
        }
        assert!(one["iterations"].as_array().unwrap().iter().all(|n| n.as_u64().unwrap() > 0));
        assert!(one["relative_residual"].as_f64().unwrap() <= 1e-7 && one["slower"].as_f64().unwrap() > 0.0);
    }
    // At this size only the targets of updates are measured.
    let targets: Vec<Value> = serde_json::from_str(&read("multilevel-targets.json")).unwrap();
    assert_eq!(targets.len(), 6 + 3 + 2 + 3 + 1);
    for target in &targets {
        let measured = target["name"].as_str().unwrap().starts_with("updates");
        assert_eq!(target["met"].is_boolean(), measured, "{target}");
        assert!(measured || target["how"] == "not measured", "{target}");
    }
    assert!(report.tables.contains("not measured") && report.tables.contains("no answer, "));
    let markdown = read("multilevel.md");
    for name in ["multilevel-laplace128-parts.svg", "multilevel-contrast-iterations.svg"] {
        assert!(markdown.contains(name) && read(name).contains("<svg"), "{name}");
    }
}

#[test]
fn nonsense_is_refused() {
    crate::refused(
        multilevel,
        [
            Asked { rounds: Some(0), ..small() },
            Asked { updates: Some(0), ..small() },
            Asked { scale: Some(f64::NAN), ..small() },
            Asked { limit: Some(0.0), ..small() },
            Asked { systems: vec!["nothing".into()], ..small() },
            Asked { parts: vec!["none".into()], ..small() },
            Asked { device: DeviceChoice::Cuda(vec![]), ..small() },
        ],
    );
}
