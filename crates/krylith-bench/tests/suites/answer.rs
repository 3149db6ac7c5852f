//! The suite `answer` on the CPU, at a small size.

use krylith_bench::{Asked, answer, answer_systems};

#[test]
fn a_small_run_on_the_cpu_has_every_part_of_every_system() {
    let folder = tempfile::tempdir().unwrap();
    let matrix = folder.path().join("a.mtx");
    std::fs::write(&matrix, "%%MatrixMarket matrix coordinate real general\n2 2 3\n1 1 3\n2 2 1\n1 2 1\n")
        .unwrap();
    let mut systems: Vec<String> = answer_systems().into_iter().map(String::from).collect();
    systems.push(matrix.display().to_string());
    let options = Asked { systems, rounds: Some(2), scale: Some(0.0005), ..Asked::default() };
    let (_, report, json, heard) = crate::run(answer, "answer", options);
    assert_eq!(heard.len(), 2 * 9);
    let all = json["systems"].as_array().unwrap();
    assert_eq!(all.len(), 9);
    for system in all {
        let way = &system["ways"][0];
        let median = |value: &serde_json::Value| value["median"].as_f64().unwrap();
        let names = "check,device,upload,product,survey,preconditioner,compile,method,other,solve,read back";
        let names: Vec<&str> = names.split(',').collect();
        let sums: Vec<f64> = (0..2)
            .map(|round| names.iter().map(|n| way["seconds"][n]["samples"][round].as_f64().unwrap()).sum())
            .collect();
        for (sum, total) in sums.iter().zip(way["total"]["samples"].as_array().unwrap()) {
            assert!((sum - total.as_f64().unwrap()).abs() < 1e-9, "{system}");
        }
        assert!(median(&way["setup"]) > 0.0 && median(&way["setup"]) < median(&way["total"]));
        assert!(median(&way["seconds"]["preconditioner"]) > 0.0, "{system}");
        assert!(way["relative_residual"].as_f64().unwrap() < 1e-7);
        assert_eq!(system["made_by"], if system["name"] == "a.mtx" { "reading" } else { "generating" });
    }
    assert!(report.tables.contains("## powerlaw") && report.tables.contains("| Krylith ("));
}

#[test]
fn nonsense_is_refused() {
    crate::refused(
        answer,
        [
            Asked { rounds: Some(0), ..Asked::default() },
            Asked { scale: Some(-1.0), ..Asked::default() },
            Asked { systems: vec!["nothing".into()], ..Asked::default() },
            Asked { device: krylith_bench::DeviceChoice::Cuda(vec![0, 1]), ..Asked::default() },
        ],
    );
}
