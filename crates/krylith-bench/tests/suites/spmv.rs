//! The suite `spmv` on the CPU, at a small size.

use krylith_bench::{Asked, DeviceChoice, spmv};

#[test]
fn a_small_run_on_the_cpu_writes_everything_and_a_second_one_keeps_it() {
    let options = Asked {
        systems: vec!["laplace:12x10x8".into()],
        rounds: Some(2),
        iterations: Some(5),
        ..Asked::default()
    };
    let (folder, report, json, mut heard) = crate::run(spmv, "spmv", options.clone());
    assert_eq!(json["notes"], serde_json::json!([]));
    let matrix = &json["matrices"][0];
    assert_eq!((matrix["shape"]["rows"].as_u64(), matrix["shape"]["max"].as_u64()), (Some(960), Some(7)));
    // `single` has Krylith and the plain loop. `multi` has NZ, 2NZ, NZ in 4, 8 and 16 blocks, LRA, LRA+RC,
    // fused, and halos by rows and by the graph.
    for (part, rows) in [("single", 2), ("multi", 10)] {
        let timed: Vec<_> =
            matrix[part].as_array().unwrap().iter().filter(|r| r["failure"].is_null()).collect();
        assert_eq!(timed.len(), rows, "{part}");
        for row in timed {
            assert_eq!(row["samples"].as_array().unwrap().len(), 2, "{}", row["name"]);
            assert!(row["error"].as_f64().unwrap() <= 1e-13, "{}", row["name"]);
        }
    }
    assert_eq!(matrix["sweep"].as_array().unwrap().len(), 63);
    let cg = matrix["cg"].as_array().unwrap();
    assert!(cg.len() >= 5 && cg.iter().all(|r| r["failure"].is_null()), "{cg:?}");
    for title in ["One device", "2 devices", "Fig. 6", "Table 3", "Table 4", "Figs. 15 to 17"] {
        assert!(report.tables.contains(title), "{title}");
    }

    let options = Asked { out: Some(folder.path().join("made")), threads: 2, ..options };
    let again = spmv(&options, &mut |text| heard.push(text.to_string())).unwrap();
    assert!(heard.last().unwrap().contains("kept"), "{heard:?}");
    assert_eq!(again.json["matrices"], json["matrices"]);
}

#[test]
fn nonsense_is_refused() {
    crate::refused(
        spmv,
        [
            Asked { scale: Some(f64::NAN), ..Asked::default() },
            Asked { scale: Some(2.0), ..Asked::default() },
            Asked { rounds: Some(0), ..Asked::default() },
            Asked { ranks: Some(0), ..Asked::default() },
            Asked { device: DeviceChoice::Cuda(vec![]), ..Asked::default() },
            Asked { device: DeviceChoice::Cuda(vec![0, 0]), ..Asked::default() },
            Asked { systems: vec!["no such matrix".into()], ..Asked::default() },
        ],
    );
}

#[test]
fn a_matrix_that_cannot_be_made_is_a_note() {
    let options = Asked {
        systems: vec!["okp:3x3x3".into(), "laplace:4x4x4".into()],
        parts: vec!["single".into()],
        rounds: Some(1),
        threads: 1,
        ..Asked::default()
    };
    let report = spmv(&options, &mut |_| ()).unwrap();
    assert_eq!(report.failures, Vec::<String>::new());
    assert!(report.tables.contains("okp:3x3x3 was not measured"), "{}", report.tables);
    assert!(report.json["matrices"][1]["failure"].is_null());
}
