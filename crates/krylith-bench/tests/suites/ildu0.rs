//! The suite `ildu0` on the CPU, at a small size.

use krylith_bench::{Asked, ildu0};

#[test]
fn a_small_run_on_the_cpu_writes_everything() {
    let options = Asked { scale: Some(0.0005), repetitions: Some(2), solves: Some(1), ..Asked::default() };
    let (_, report, json, heard) = crate::run(ildu0, "ildu0", options);
    assert!(heard.len() > 6);
    let cases = json["cases"].as_array().unwrap();
    assert_eq!(cases.iter().map(|c| c["block"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 1, 3]);
    for case in cases {
        let rows = case["applications"].as_array().unwrap();
        assert!(rows.len() >= 2);
        for row in rows {
            assert_eq!(row["check"]["ok"], true, "{row}");
            assert_eq!(row["alone"]["samples"].as_array().unwrap().len(), 2);
            assert!(row["bandwidth_fraction"].as_f64().unwrap() > 0.0);
        }
        for row in case["bicgstab"].as_array().unwrap() {
            assert_eq!(row["check"]["ok"], true, "{row}");
            assert!(row["residuals"].as_array().unwrap().last().unwrap().as_f64().unwrap() <= 1e-8);
        }
    }
    // The larger grid has several subdomains, so entries are dropped and iterations increase.
    let large = &cases[1];
    assert!(large["subdomains"].as_u64().unwrap() > 1 && large["dropped"].as_u64().unwrap() > 0);
    let solves = large["bicgstab"].as_array().unwrap();
    assert!(solves[0]["iterations"][0].as_u64() < solves[1]["iterations"][0].as_u64());
    assert!(report.tables.contains("sequential ILU(0), whole matrix"));
}

#[test]
fn nonsense_is_refused() {
    crate::refused(
        ildu0,
        [
            Asked { scale: Some(f64::NAN), ..Asked::default() },
            Asked { repetitions: Some(0), ..Asked::default() },
            Asked { device: krylith_bench::DeviceChoice::Cuda(vec![0, 1]), ..Asked::default() },
        ],
    );
}
