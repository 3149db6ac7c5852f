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
fn every_kind_of_system_is_cut_solved_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("arrow.mtx");
    // Row 1 and column 1 are full, and the pattern is not symmetric: row 3 has a fourth entry.
    let mut text = String::from("%%MatrixMarket matrix coordinate real general\n64 64 191\n3 7 -1\n");
    (1..=64).for_each(|i| text += &format!("{i} {i} 70\n"));
    (2..=64).for_each(|i| text += &format!("1 {i} -1\n{i} 1 -1\n"));
    std::fs::write(&file, text).unwrap();
    let words = ["laplacian1", "parabolic", "spe10", "radiation", "radiation3", "oil"];
    let systems = words.into_iter().chain([file.to_str().unwrap()]).map(String::from).collect();
    let options = Asked {
        scale: Some(0.0001),
        repetitions: Some(1),
        solves: Some(1),
        systems,
        cuts: vec!["multilevel".into()],
        ..Asked::default()
    };
    let (_, report, json, heard) = crate::run(ildu0, "ildu0", options);
    let cases = json["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 7);
    assert!(heard.iter().any(|line| line.starts_with("oil: ") && line.contains("GB on the host")));
    for (case, word) in cases.iter().zip(words.into_iter().chain(["arrow.mtx"])) {
        assert!(word == "laplacian1" || case["name"].as_str().unwrap().starts_with(word), "{case}");
        let count = |key: &str| case[key].as_u64().unwrap();
        assert!(count("subdomains") >= 8 && count("dropped") > 0, "{word}");
        assert!(count("largest") * 8 <= count("block_rows") + 8, "{word}");
        let rtol = case["rtol"].as_f64().unwrap();
        assert_eq!(rtol, if word == "spe10" { 1e-6 } else { 1e-8 });
        let solves = case["bicgstab"].as_array().unwrap();
        let names: Vec<&str> = solves.iter().map(|row| row["name"].as_str().unwrap()).collect();
        for name in ["sequential ILU(0), decomposed", "Krylith ILDU(0)", "Krylith coarse then ILDU(0)"] {
            assert!(names.contains(&name), "{word}: {names:?}");
        }
        for row in solves.iter().chain(case["applications"].as_array().unwrap()) {
            assert_eq!(row["check"]["ok"], true, "{word}: {row}");
        }
        for row in solves {
            assert!(row["residuals"].as_array().unwrap().last().unwrap().as_f64().unwrap() <= rtol);
        }
    }
    assert!(report.tables.contains("Krylith's graph cut"));
}

#[test]
fn systems_are_cut_as_in_the_paper() {
    let systems = ["laplacian1", "radiation:12x12x12"].map(String::from).to_vec();
    let [repetitions, solves] = [Some(1); 2];
    let options = Asked { scale: Some(0.001), repetitions, solves, systems, ..Asked::default() };
    let (_, _, json, _) = crate::run(ildu0, "ildu0", options);
    let of_graphs = if cfg!(feature = "metis") { "METIS" } else { "Krylith's graph cut" };
    assert_eq!(
        (&json["cases"][0]["cut"], &json["cases"][1]["cut"]),
        (&"boxes of 16×16×8".into(), &of_graphs.into())
    );
}

#[test]
fn a_system_that_fails_is_named_and_the_others_are_measured() {
    // The three rows of a cell of `radiation3` are no points of a grid.
    let systems = ["radiation3", "radiation:33x17x16"].map(String::from).to_vec();
    let cuts = vec!["boxes".into()];
    let [repetitions, solves] = [Some(1); 2];
    let options = Asked { scale: Some(0.001), repetitions, solves, systems, cuts, ..Asked::default() };
    let report = ildu0(&options, &mut |_| ()).unwrap();
    let cases = report.json["cases"].as_array().unwrap();
    assert_eq!((cases.len(), &cases[0]["cut"]), (1, &"boxes of 32×16×16".into()));
    let [failure] = &report.failures[..] else { panic!("{:?}", report.failures) };
    assert!(failure.contains("radiation3") && failure.contains("--cuts multilevel"), "{failure}");
}

#[test]
fn nonsense_is_refused() {
    crate::refused(
        ildu0,
        [
            Asked { scale: Some(f64::NAN), ..Asked::default() },
            Asked { repetitions: Some(0), ..Asked::default() },
            Asked { systems: vec!["nothing".into()], ..Asked::default() },
            Asked { systems: vec!["stokes:4x4x4".into()], ..Asked::default() },
            Asked { cuts: vec!["thirds".into()], ..Asked::default() },
            Asked { device: krylith_bench::DeviceChoice::Cuda(vec![0, 1]), ..Asked::default() },
            Asked {
                device: krylith_bench::DeviceChoice::Cuda(vec![0, 1]),
                systems: vec!["paper".into()],
                ..Asked::default()
            },
        ],
    );
}
