//! The suite `ras` on the CPU, at a small size.

use krylith_bench::{Asked, DeviceChoice, ras};

#[test]
fn a_small_run_on_the_cpu_writes_everything() {
    let options = Asked {
        // 16² nodes
        scale: Some(0.00071),
        solves: Some(1),
        rounds: Some(3),
        parts: ["cavity600", "repeat", "one-core", "vendor", "ours", "sweeps"].map(String::from).into(),
        ..Asked::default()
    };
    let (folder, _, json, heard) = crate::run(ras, "ras", options);
    assert!(heard.iter().any(|line| line.contains("Newton step 2")));
    let read = |name: &str| std::fs::read_to_string(folder.path().join("made").join(name)).unwrap();
    let problem = &json["problems"][0];
    assert_eq!(
        (problem["spec"].as_str(), problem["block_rows"].as_u64()),
        (Some("cavity:16x16,re=1"), Some(256))
    );
    let steps = problem["steps"].as_array().unwrap();
    assert!(steps.len() >= 2, "{} Newton steps", steps.len());
    for step in steps {
        let solves = step["solves"].as_array().unwrap();
        let iterations = |kind: &str| -> Vec<f64> {
            let rows = solves.iter().filter(|row| row["kind"] == kind);
            rows.map(|row| row["iterations"]["mean"].as_f64().unwrap()).collect()
        };
        let (exact, random) = (iterations("exact"), iterations("random"));
        assert_eq!((exact.len(), random.len(), iterations("jacobi").len()), (1, 9, 9));
        assert_eq!(iterations("two-level").len(), 2);
        // The run on one core takes the iterations of exact RAS.
        assert_eq!(iterations("one-core"), exact);
        let best = random.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(best <= 1.15 * exact[0] + 2.0, "{best} iterations where exact RAS takes {}", exact[0]);
        for row in solves.iter().filter(|row| row["kind"] != "one-core") {
            let run = &row["runs"][0];
            assert!(run["residual"].as_f64().unwrap() <= 1.01e-3, "{}: {run}", row["name"]);
            assert!(run["solve"].as_f64().unwrap() > 0.0);
        }
    }
    let repeated = json["repeated"]["rows"].as_array().unwrap();
    let random = repeated.iter().find(|row| row["kind"] == "random").unwrap();
    assert_eq!(random["runs"].as_array().unwrap().len(), 3);
    // Targets are in a file for programs, and in the tables for users.
    let targets: serde_json::Value = serde_json::from_str(&read("ras-targets.json")).unwrap();
    let target = |name: &str| {
        let all = targets.as_array().unwrap();
        all.iter().find(|t| t["name"].as_str().unwrap().contains(name)).unwrap().clone()
    };
    assert_eq!(target("runs that converge")["met"], true);
    assert_eq!(target("over exact RAS")["goal"], 1.15);
    // On a CPU there is no vendor's library, so this target is not measured.
    assert!(target("cuSPARSE")["met"].is_null());
    for figure in ["ras-cavity600-1-tg.svg", "ras-cavity600-1-ig.svg", "ras-repeat-gamma5-ig.svg"] {
        assert!(read(figure).contains("<polyline"), "{figure}");
    }
    let markdown = read("ras.md");
    assert!(
        markdown.contains("PB-R-RAS, η 8, γ 10, f_dp 8") && markdown.contains("](ras-repeat-gamma5-tg.svg)")
    );
}

#[test]
fn nonsense_is_refused() {
    crate::refused(
        ras,
        [
            Asked { scale: Some(f64::NAN), ..Asked::default() },
            Asked { rounds: Some(0), ..Asked::default() },
            Asked { solves: Some(0), ..Asked::default() },
            Asked { device: DeviceChoice::Cuda(vec![]), ..Asked::default() },
        ],
    );
    let options = Asked { parts: vec!["cavity".into()], ..Asked::default() };
    let error = ras(&options, &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("cavity600") && error.contains("scaling"), "{error}");
}
