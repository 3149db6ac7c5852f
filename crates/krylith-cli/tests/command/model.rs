//! `krylith model`.

use crate::common::Folder;
use serde_json::{Value, json};

fn json(f: &Folder, name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(f.path(name)).unwrap()).unwrap()
}

#[test]
fn a_prediction_is_written_and_compared() {
    let f = Folder::new();
    let ran = f.run(&[
        "model",
        "stokes:6x6x9",
        "--machine",
        "h200-nvlink",
        "--method",
        "gmres",
        "--precond",
        "none",
        "--gpus",
        "1,3",
        "--partition",
        "rows",
        "--out",
        "p",
    ]);
    let out = &ran.works().out;
    assert!(out.contains("324 nodes") && out.contains("wrote p/prediction.json"), "{out}");
    let made = json(&f, "p/prediction.json");
    let rows = made["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    let seconds = |i: usize| rows[i]["seconds_per_iteration"].as_f64().unwrap();
    assert_eq!((rows[0]["T_c"].as_f64(), rows[0]["blocks"].as_str()), (Some(0.0), Some("dense")));
    assert!(rows[1]["T_c"].as_f64().unwrap() > 0.0 && rows[1]["sent_bytes"] == 2.0 * 36.0 * 64.0);

    let row = |blocks: &str, seconds: f64| json!({ "name": format!("Krylith, {blocks} blocks"), "seconds_per_iteration": seconds });
    let bench = |factor: f64| {
        json!({ "restart": 30, "experiments": [{ "runs": [
            { "gpus": 1, "nodes": [6, 6, 9], "rows": [row("dense", seconds(0)), row("structured", seconds(2))] },
            { "gpus": 3, "nodes": [6, 6, 9], "rows": [row("dense", factor * seconds(1))] },
        ]}]})
        .to_string()
    };
    f.write("good.json", bench(1.1));
    let ran = f.line("model --compare p/prediction.json good.json");
    assert!(ran.works().out.contains("-9.1 %"), "{ran:#?}");
    f.write("bad.json", bench(1.5));
    f.line("model --compare p/prediction.json bad.json").fails(1, &["33.3 % off", "15 %"]);
    f.line("model --compare p/prediction.json bad.json --within 40").works();
    f.line("model --compare good.json bad.json").fails(2, &["must be a prediction"]);
    f.line("model --compare missing.json bad.json").fails(2, &["missing.json"]);
    f.write("text.json", "hello");
    f.line("model --compare text.json bad.json").fails(2, &["text.json", "not JSON"]);
}

#[test]
fn coarse_levels_are_predicted_and_measured() {
    let f = Folder::new();
    let machine = "h200-nvlink";
    let ran = f.run(&["model", "laplace:16x16x16", "--precond", "amg", "--machine", machine, "--out", "p"]);
    let out = &ran.works().out;
    assert!(out.contains("laplace:16x16x16") && out.contains("iteration of CG"), "{out}");
    assert!(out.contains("this host:") && out.contains("wrote p/multilevel.json"), "{out}");
    let made = json(&f, "p/multilevel.json");
    let (levels, number) = (made["levels"].as_array().unwrap(), |key: &str| made[key].as_f64().unwrap());
    assert!(levels.len() >= 2 && levels[0]["nodes"] == 4096.0);
    assert!(
        number("operator_complexity") > 1.0 && number("seconds_per_iteration") > number("seconds_per_cycle")
    );
    assert!(made["host"]["seconds_per_cycle"].as_f64().unwrap() > 0.0);
    let line = format!("model laplace:8x8x8 --precond ildu --machine {machine}");
    f.line(&line).works();
    let line = format!("model laplace:8x8x8 --precond amg --gpus 1,2 --machine {machine}");
    f.line(&line).fails(2, &["one GPU", "--gpus"]);
}

#[test]
fn scaling_is_drawn_for_every_machine_that_ships() {
    let f = Folder::new();
    let machines = ["h200-nvlink", "okp-a100", "okp-v100", "jupiter"];
    let mut words = vec!["model", "--weak", "151686", "--strong", "1e9", "--to", "8192", "--out", "s"];
    words.extend(machines.iter().flat_map(|m| ["--machine", m]));
    let ran = f.run(&words);
    ran.works();
    let mut names: Vec<String> = std::fs::read_dir(f.path("s"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let kind = |k: &str| ["-efficiency.svg", "-time.svg", ".json", ".txt"].map(|end| format!("{k}{end}"));
    assert_eq!(names, [kind("strong"), kind("weak")].concat());
    let text = std::fs::read_to_string(f.path("s/weak.txt")).unwrap();
    assert!(text.contains("Slabs beside boxes") && widest(&text) <= 60, "{text}");
    for machine in json(&f, "s/weak.json")["machines"].as_array().unwrap() {
        let points = machine["points"].as_array().unwrap();
        assert_eq!(points.last().unwrap()["gpus"], 8192);
        let efficiency = points.last().unwrap()["efficiency"]["dense"].as_f64().unwrap();
        assert!(efficiency > 0.2 && efficiency < 1.0, "{}: {efficiency}", machine["machine"]["name"]);
        // Boxes win on many GPUs, and `auto` takes them.
        let (last, seconds) =
            (points.last().unwrap(), |p: &Value| p["seconds_per_iteration"].as_f64().unwrap());
        assert!(last["partition"] == "boxes" && seconds(&last["boxes"]) < seconds(&last["slabs"]), "{last}");
        assert_eq!(last["boxes"]["seconds_per_iteration"], last["dense"]["seconds_per_iteration"]);
        assert_eq!((&last["boxes"]["messages"], &points[0]["partition"]), (&json!(14.0), &json!("slabs")));
    }
    for (partition, taken) in [("boxes", "boxes"), ("rows", "slabs")] {
        f.line(&format!("model --weak 1e5 --to 8 --machine jupiter --partition {partition} --out t")).works();
        let made = json(&f, "t/weak.json");
        for point in made["machines"][0]["points"].as_array().unwrap() {
            assert_eq!(point["partition"], taken);
        }
    }
    let graph = f.line("model --weak 1e5 --to 8 --machine jupiter --partition graph");
    graph.fails(2, &["--partition graph", "rows (slabs)"]);
}

/// On a grid, the partition is that of a solve: few ghosts in slabs, else boxes.
#[test]
fn systems_are_cut_into_boxes() {
    let f = Folder::new();
    let line = "model laplace:16x16x16 --machine jupiter --method cg --precond jacobi --out p";
    let of = |options: &str| {
        let ran = f.line(&format!("{line} {options}"));
        let out = ran.works().out.clone();
        assert!(widest(&out) <= 60, "{out}");
        (out, json(&f, "p/prediction.json"))
    };
    let (out, made) = of("--gpus 1,2,64");
    assert!(out.contains("64 GPUs: partition by boxes of the grid"), "{out}");
    assert!(out.contains("2 GPUs: partition by nonzeros"), "{out}");
    // Boxes of 4³ nodes: six faces of 16 numbers, 8 bytes each.
    let rows = made["rows"].as_array().unwrap();
    assert_eq!((&rows[2]["messages"], &rows[2]["sent_bytes"]), (&json!(6.0), &json!(768.0)));
    assert_eq!((&rows[1]["messages"], &rows[1]["sent_bytes"]), (&json!(1.0), &json!(2048.0)));
    let (slabs, boxes) = (of("--gpus 16 --partition rows").1, of("--gpus 16 --partition boxes:2x2x4").1);
    let exchange = |made: &Value| made["rows"][0]["exchange"].as_f64().unwrap();
    assert!(boxes["rows"][0]["messages"] == 4.0 && slabs["rows"][0]["messages"] == 2.0, "{boxes}");
    assert!(exchange(&boxes) > 0.0 && exchange(&slabs) > 0.0);
    f.line(&format!("{line} --gpus 8 --partition boxes:2x2x4")).fails(2, &["16 boxes for 8 ranks"]);
}

#[test]
fn a_poisson_equation_is_predicted_beside_what_was_published() {
    let f = Folder::new();
    for name in ["summit", "abci"] {
        let ran = f.run(&["model", "--poisson", "1280x1280x4608", "--machine", name, "--out", "p"]);
        let out = &ran.works().out;
        assert!(widest(out) <= 60, "{out}");
        for word in ["P-CBCG", "Table V", "fitted: network.hop", "Fig. 5", "p/poisson.json"] {
            assert!(out.contains(word), "{name}: {word}: {out}");
        }
        let made = json(&f, "p/poisson.json");
        let (rows, published) = (made["rows"].as_array().unwrap(), made["published"].as_array().unwrap());
        assert!(rows.len() >= 6 && published.len() >= 20, "{name}");
        for row in rows {
            let seconds = |key: &str| row[key].as_f64().unwrap();
            assert!(seconds("seconds_per_iteration") <= seconds("seconds_without_overlap"), "{name}: {row}");
            assert!(seconds("exposed") <= seconds("halo") && seconds("all_reduce") > 0.0, "{name}: {row}");
        }
    }
    let few = ["model", "--poisson", "64x64x64", "--gpus", "1,8", "--s", "4", "--machine", "abci"];
    let ran = f.run(&few);
    let out = &ran.works().out;
    assert!(out.contains("s = 4") && out.contains("2x2x2") && !out.contains("Table V"), "{out}");

    let summit = "summit";
    let refused = |words: &[&str], named: &[&str]| {
        let words = [&["model", "--machine", summit], words].concat();
        f.run(&words).fails(2, named);
    };
    refused(&["--poisson", "64x64"], &["NXxNYxNZ"]);
    refused(&["--poisson", "64x0x64"], &["NXxNYxNZ"]);
    refused(&["--poisson", "2x2x2", "--gpus", "9"], &["9 boxes"]);
    refused(&["--poisson", "8x8x8", "--s", "0"], &["1..=64"]);
    refused(&["--poisson", "8x8x8", "--machine", "jupiter"], &["one machine"]);
    refused(&["--gpus", "4"], &["SYSTEM"]);
    f.run(&["model", "--poisson", "8x8x8", "--machine", "jupiter"]).fails(2, &["[poisson]"]);
}

#[test]
fn what_cannot_be_predicted_is_refused() {
    let f = Folder::new();
    let machine = "jupiter";
    f.line("model stokes:4x4x4").fails(2, &["--machine", "krylith bench links", "h200-nvlink", "abci"]);
    f.line("model stokes:4x4x4 --machine h100").fails(2, &["no machine `h100`", "h200-nvlink, jupiter"]);
    f.line("model stokes:4x4x4 --machine jupiter --precond lu")
        .fails(2, &["lu", "not predicted", "on the host"]);
    f.line("model stokes:4x4x4 --machine jupiter --method cg --restart 5").fails(2, &["--restart"]);
    f.line("model --machines --machine jupiter").fails(2, &["--machines"]);
    f.run(&["model", "--machine", machine]).fails(2, &["--weak", "SYSTEM"]);
    f.run(&["model", "stokes:4x4x4", "--machine", "no.toml"]).fails(2, &["no.toml"]);
    f.write("m.toml", "schema = 1\nname = 3\n");
    f.run(&["model", "stokes:4x4x4", "--machine", "m.toml"]).fails(2, &["m.toml", "line 2"]);
    f.run(&["model", "stokes:4x4x4", "--machine", machine, "--gpus", "65"])
        .fails(2, &["65 ranks", "64 block rows"]);
    f.run(&["model", "stokes:4x4x4", "--machine", machine, "--gpus", "2", "--hosts", "3"])
        .fails(2, &["3 hosts"]);
    f.run(&["model", "stokes:4x4x4", "--machine", machine, "--partition", "best"]).fails(2, &["graph"]);
    f.run(&["model", "--strong", "1e12", "--to", "4", "--machine", machine]).fails(2, &["GB", "--to"]);
    f.run(&["model", "--weak", "-3", "--machine", machine]).fails(2, &[]);
}

/// Returns the number of columns of the widest line.
fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

#[test]
fn machines_are_listed_with_where_they_are_from() {
    let f = Folder::new();
    let ran = f.line("model --machines");
    let out = &ran.works().out;
    for word in
        ["h200-nvlink\n", "jupiter\n", "summit\n", "measured, but for network", "data sheet", "Table IV"]
    {
        assert!(out.contains(word), "{word}: {out}");
    }
    assert!(widest(out) <= 90, "{out}"); // a quoted command is one word and is not wrapped
}

#[test]
fn without_a_method_it_is_what_auto_would_run() {
    let f = Folder::new();
    let line = "model laplace:24x24x24 --machine H200-NVLINK --gpus 1,2,4 --out p";
    let ran = f.line(line);
    let out = &ran.works().out;
    for word in
        ["What `auto` would run", "1. block-jacobi with cg", "products", "sums over GPUs", "times faster"]
    {
        assert!(out.contains(word), "{word}: {out}");
    }
    assert!(widest(out) <= 60, "{out}");
    let made = json(&f, "p/prediction.json");
    assert!(made["auto"] == true && made["rows"].as_array().unwrap().len() == 3, "{made}");
    let rows = made["rows"].as_array().unwrap();
    let part = |row: usize, key: &str| rows[row][key].as_f64().unwrap();
    assert!(part(0, "exchange") == 0.0 && part(0, "sums") == 0.0);
    assert!(part(2, "product") < part(0, "product") && part(2, "sums") > 0.0);
    // The same attempt, given by name.
    let named = f.line("model laplace:24x24x24 --machine h200-nvlink --method cg --precond block-jacobi --gpus 1,2,4 --out q");
    assert!(!named.works().out.contains("auto"), "{named:#?}");
    assert_eq!(json(&f, "q/prediction.json")["rows"], made["rows"]);
    // Such a prediction cannot be compared with `krylith bench okp`.
    f.write("okp.json", json!({ "restart": 30, "experiments": [] }).to_string());
    f.line("model --compare p/prediction.json okp.json").fails(2, &["--method gmres --precond none"]);
}

#[test]
fn attempts_that_are_not_predicted_are_named_with_why() {
    let f = Folder::new();
    // For few unknowns in a rod, `auto` first tries direct factors, which are applied on the host.
    let ran = f.line("model laplace:3x3x150 --machine jupiter --gpus 1");
    let out = &ran.works().out;
    assert!(out.contains("1. lu") && out.contains("not predicted") && out.contains("2. "), "{out}");
    let ran = f.line("model laplace:110x110x110 --machine jupiter --gpus 1,2");
    let out = &ran.works().out;
    assert!(out.contains("amg with cg") && out.contains("predicted only for one GPU"), "{out}");
    let ran = f.line("model stokes:6x6x6 --machine jupiter --precond ildu --method bicgstab");
    assert!(ran.works().out.contains("preconditioner, at least"), "{ran:#?}");
}
