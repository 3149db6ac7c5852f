//! The suite `cbcg` on the CPU, at a small size.

use krylith_bench::{Asked, DeviceChoice, cbcg};

#[test]
fn a_small_run_on_the_cpu_writes_everything() {
    let options = Asked {
        scale: Some(0.0002),
        repetitions: Some(2),
        solves: Some(1),
        ranks: Some(2),
        ..Asked::default()
    };
    let (_, report, json, _) = crate::run(cbcg, "cbcg", options);
    let system = &json["systems"][0];
    let kernels = system["kernels"].as_array().unwrap();
    assert!(kernels.len() >= 3, "{} kernels", kernels.len());
    for kernel in kernels {
        assert_eq!(kernel["check"]["ok"], true, "{kernel}");
        assert_eq!(kernel["seconds"]["samples"].as_array().unwrap().len(), 2);
        assert!(kernel["share"].as_f64().unwrap() > 0.0);
    }
    let solves = system["solves"].as_array().unwrap();
    for solve in solves {
        assert!(solve["check"]["error"].as_f64().unwrap() <= 1.0001e-8, "{}", solve["name"]);
        assert_eq!(solve["seconds"]["samples"].as_array().unwrap().len(), 1);
    }
    // P-CBCG needs fewer sums per iteration, which is its purpose.
    let sums = |name: &str| {
        let solve = solves.iter().find(|s| s["name"].as_str().unwrap().starts_with(name)).unwrap();
        solve["reductions"].as_f64().unwrap() / solve["iterations"].as_f64().unwrap()
    };
    assert!(sums("cg, ") > 1.9 && sums("cg:form=pipelined") < 1.1 && sums("cbcg:s=12") < 0.5);
    // Table I: a CPU has every tile of the table, and none of the kernels for GPUs.
    let tiles = system["tiles"].as_array().unwrap();
    assert_eq!(tiles.len(), 9);
    for tile in tiles {
        assert_eq!(tile["krylith"]["check"]["ok"], true, "{tile}");
        assert!(tile["thread_per_tile"].is_null() && tile["paper_iterations"].as_u64().unwrap() > 100);
    }
    // Table V: the parts of an iteration add up.
    let cost = |method: &str, part: &str| {
        let costs = system["costs"].as_array().unwrap();
        let line = costs.iter().find(|c| c["method"] == method && c["part"] == part).unwrap();
        line["krylith_ms"].as_f64().unwrap()
    };
    let parts = ["preconditioner", "SpMV", "AXPY"].map(|part| cost("P-CG", part));
    let sum: f64 = parts.iter().sum();
    assert!(parts.iter().all(|&ms| ms > 0.0) && (sum / cost("P-CG", "kernels") - 1.0).abs() < 1e-12);
    let network = json["network"]["methods"].as_array().unwrap();
    assert!(network.iter().all(|m| m["check"]["ok"] == true && m["seconds"].as_array().unwrap().len() == 6));
    assert!(report.tables.contains("share of roofline") && report.tables.contains("500 µs"));
}

#[test]
fn nonsense_is_refused() {
    crate::refused(
        cbcg,
        [
            Asked { scale: Some(f64::NAN), ..Asked::default() },
            Asked { repetitions: Some(0), ..Asked::default() },
            Asked { device: DeviceChoice::Cuda(vec![]), ..Asked::default() },
            Asked { systems: vec!["random:100".into()], ..Asked::default() },
        ],
    );
}
