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
    // The prediction begins at the measured iteration, and reads the same times from the written file.
    let crossover = &json["crossover"];
    let networks = crossover["networks"].as_array().unwrap();
    assert_eq!(networks.len(), 3);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cbcg.json");
    std::fs::write(&file, json.to_string()).unwrap();
    let options = Asked { times: Some(file), network: Some(machine("summit")), ..Asked::default() };
    let (_, report, again, _) = crate::run(cbcg, "cbcg", options);
    assert_eq!(again["systems"].as_array().map(Vec::len), Some(0));
    let summit = &again["crossover"]["networks"][0];
    assert_eq!((&summit["rows"], &summit["by_hop"]), (&networks[0]["rows"], &networks[0]["by_hop"]));
    assert!(report.html.contains("above 1 P-CBCG is faster"));
}

#[test]
fn the_memory_of_the_large_grid_needs_no_measurement() {
    let options = Asked { parts: vec!["memory".into()], ..Asked::default() };
    let report = cbcg(&options, &mut |line| panic!("{line}")).unwrap();
    let json = &report.json;
    let solvers = json["memory"]["solvers"].as_array().unwrap();
    let gpus = |k: usize| solvers[k]["least_gpus"][2]["gpus"].as_u64().unwrap();
    // P-CBCG has 48 vectors more, so it needs more GPUs than P-CG, which needs more than one.
    assert!(solvers.len() == 3 && gpus(1) > gpus(0) && gpus(0) > 1, "{json}");
    assert!(json["systems"].as_array().unwrap().is_empty() && report.tables.contains("bytes a cell"));
}

fn machine(name: &str) -> krylith_model::Machine {
    krylith_model::Machine::open(name.as_ref()).unwrap()
}

#[test]
fn a_prediction_without_times_is_refused_before_anything_is_measured() {
    let parts = |part: &str| vec![part.to_string()];
    let refusal = |options: Asked| cbcg(&options, &mut |line| panic!("{line}")).unwrap_err().to_string();
    let error = refusal(Asked { parts: parts("crossover"), ..Asked::default() });
    assert!(error.contains("--times"), "{error}");
    let error =
        refusal(Asked { parts: parts("kernels"), network: Some(machine("abci")), ..Asked::default() });
    assert!(error.contains("--parts crossover"), "{error}");
    let error = refusal(Asked { times: Some("no/such/file.json".into()), ..Asked::default() });
    assert!(error.contains("no/such/file.json"), "{error}");
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
