//! Right-hand sides of several columns, files to standard output and for ParaView, defaults of a
//! `system.toml`, and reports.

use crate::common::{Folder, array, chain, distance, mtx};
use krylith_core::io::{Array, numpy};
use serde_json::Value;

fn matrix(f: &Folder) {
    f.write("a.mtx", mtx(90, 90, &chain(30, 3, |i, c| i * 3 + c)));
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn report(f: &Folder, name: &str) -> Value {
    json(&std::fs::read(f.path(name)).unwrap())
}

/// Columns with the value i + 10 c in row i of column c.
fn columns(n: usize, k: usize) -> Vec<f64> {
    (0..n).flat_map(|i| (0..k).map(move |c| (i + 10 * c) as f64)).collect()
}

fn save(f: &Folder, name: &str, shape: &[usize], values: Vec<f64>) {
    numpy::write(f.path(name), &Array::new(shape.to_vec(), values).unwrap()).unwrap();
}

#[test]
fn a_right_hand_side_of_zeros_has_the_answer_zero() {
    let f = Folder::new();
    let ran = f.line("solve laplace:4x4x4 --rhs zeros --out x.npy --report r.json");
    assert!(ran.works().out.contains("right-hand side: zeros; it is zero, and so is x"), "{ran:?}");
    assert!(!ran.out.contains("NaN"), "{ran:?}");
    assert!(array(f.path("x.npy")).values().iter().all(|x| *x == 0.0));
    assert_eq!(report(&f, "r.json")["sources"]["rhs"], "zeros");
}

/// (N, k) numbers are k right-hand sides with one set-up. Each has the same solution as when it is solved
/// alone, and an entry in the report.
#[test]
fn each_column_is_solved() {
    let f = Folder::new();
    matrix(&f);
    save(&f, "b.npy", &[90, 3], columns(90, 3));
    let ran =
        f.line("solve a.mtx --block 3 --rhs b.npy --rtol 1e-10 --out x.npy --report r.json --plot r.svg");
    let out = &ran.works().out;
    assert!(out.contains("b.npy, 3 of them") && out.contains("3: converged after"), "{out}");
    assert!(out.contains("for 3 right-hand sides with one set-up"), "{out}");
    let x = array(f.path("x.npy"));
    assert_eq!(x.shape(), [90, 3]);
    let r = report(&f, "r.json");
    assert_eq!(r["columns"].as_array().unwrap().len(), 3);
    for c in 0..3 {
        save(&f, "one.npy", &[90], columns(90, 3).into_iter().skip(c).step_by(3).collect());
        f.line("solve a.mtx --block 3 --rhs one.npy --rtol 1e-10 --out one_x.npy --report one.json").works();
        let column: Vec<f64> = x.values().iter().skip(c).step_by(3).copied().collect();
        assert!(distance(&column, array(f.path("one_x.npy")).values()) < 1e-9, "column {c}");
        let (entry, alone) = (&r["columns"][c], report(&f, "one.json"));
        assert_eq!(entry["outcome"], "converged");
        assert_eq!(entry["rhs_norm"], alone["system"]["rhs_norm"]);
        let (n, residuals) = (entry["iterations"].as_u64().unwrap(), entry["residuals"].as_array().unwrap());
        assert_eq!(residuals.len() as u64, n + 1);
        assert!(alone.get("columns").is_none());
    }
    // Numbered field by field, with the solution as initial guess.
    f.line("solve a.mtx --block 3 --rhs b.npy --x0 x.npy --report r.json --rtol 1e-8").works();
    assert!((0..3).all(|c| report(&f, "r.json")["columns"][c]["iterations"] == 0));
    save(&f, "two.npy", &[90, 2], columns(90, 2));
    f.line("solve a.mtx --rhs b.npy --x0 two.npy").fails(2, &["--x0 two.npy", "2 initial guesses for 3"]);
    f.line("solve a.mtx --block 3 --rhs b.npy --max-iters 2 --precond none --out x.npy")
        .fails(1, &["right-hand side 1 of 3", "max-iterations"]);
    save(&f, "wrong.npy", &[3, 90], columns(3, 90));
    f.line("solve a.mtx --rhs wrong.npy").fails(2, &["wrong.npy", "[3, 90]", "(90, k)"]);
    f.write("s.toml", "matrix = 'a.mtx'\nrhs = 'b.npy'\n");
    assert!(f.line("solve s.toml").works().out.contains("the system's own, 3 of them"));
}

#[test]
fn one_row_and_one_column_are_a_vector_and_stages_stay_stages() {
    let f = Folder::new();
    matrix(&f);
    save(&f, "flat.npy", &[90], columns(90, 1));
    f.line("solve a.mtx --rhs flat.npy --out flat_x.npy").works();
    for shape in [[1, 90], [90, 1]] {
        save(&f, "b.npy", &shape, columns(90, 1));
        f.line("solve a.mtx --rhs b.npy --x0 b.npy --out x.npy").works();
        f.line("solve a.mtx --rhs b.npy --out x.npy").works();
        assert_eq!(array(f.path("x.npy")), array(f.path("flat_x.npy")), "{shape:?}");
    }
    save(&f, "s.npy", &[80, 2], columns(80, 2));
    f.line("solve random:20 --rhs s.npy --out x.npy --report r.json").works();
    assert_eq!(array(f.path("x.npy")).shape(), [80, 2]);
    assert!(report(&f, "r.json").get("columns").is_none());
}

#[test]
fn reports_and_answers_go_to_standard_output() {
    let f = Folder::new();
    let ran = f.line("solve laplace:4x4x4 --report -");
    assert_eq!(json(ran.works().out.as_bytes())["outcome"], "converged");
    assert!(ran.err.contains("outcome") && ran.err.contains("stdout (report)"), "{ran:?}");
    let ran = f.line("solve laplace:4x4x4 --report - --quiet");
    assert!(json(ran.works().out.as_bytes())["iterations"].as_u64() > Some(0) && ran.err.is_empty());
    f.line("solve laplace:4x4x4 --out x.npy").works();
    let mut command = f.command(&["solve", "laplace:4x4x4", "--out", "-", "--report", "r.json"]);
    let output = command.output().unwrap();
    assert_eq!(output.stdout, std::fs::read(f.path("x.npy")).unwrap());
    assert!(String::from_utf8_lossy(&output.stderr).contains("stdout (x, shape (64))"));
    assert_eq!(report(&f, "r.json")["outcome"], "converged");
    f.line("solve laplace:4x4x4 --out - --report -").fails(2, &["--out -", "--report -", "standard output"]);
    f.line("solve laplace:4x4x4 --plot -").fails(2, &["--plot -", "only --out and --report"]);
    let ran = f.line("newton cavity:9x9,re=10 --report -");
    assert_eq!(json(ran.works().out.as_bytes())["outcome"], "converged");
    assert_eq!(f.names(), ["r.json", "x.npy"]);
}

#[test]
fn pictures_of_other_kinds_are_refused() {
    let f = Folder::new();
    for (line, words) in [
        ("solve laplace:4x4x4 --plot r.pdf", ["--plot r.pdf", "r.svg"]),
        ("solve laplace:4x4x4 --plot r", ["--plot r:", "r.svg"]),
        ("solve laplace:4x4x4 --vtu r.vtk", ["--vtu r.vtk", "r.vtu"]),
        ("newton cavity:9x9 --picture p.jpg", ["--picture p.jpg", "p.svg"]),
        ("newton cavity:9x9 --plot p.eps", ["--plot p.eps", "p.svg"]),
    ] {
        f.line(line).fails(2, &words);
    }
    assert!(f.names().is_empty());
    f.line("solve laplace:4x4x4 --plot R.SVG").works();
}

#[test]
fn solutions_stand_on_their_mesh() {
    let f = Folder::new();
    let text = |name: &str| String::from_utf8_lossy(&std::fs::read(f.path(name)).unwrap()).into_owned();
    f.line("solve stokes:4x3x3 --vtu x.vtu").works();
    let vtu = text("x.vtu");
    assert!(vtu.contains("NumberOfPoints=\"36\" NumberOfCells=\"72\""), "{}", &vtu[..400]);
    for name in ["velocity, stage 1", "velocity, stage 2", "pressure, stage 1"] {
        assert!(vtu.contains(&format!("Name=\"{name}\"")), "{name}");
    }
    f.line("solve elasticity:3x3x3 --vtu x.vtu").works();
    assert!(text("x.vtu").contains("Name=\"displacement\" NumberOfComponents=\"3\""));
    // The user's own system, with coordinates of its nodes; values are numbered field by field.
    matrix(&f);
    save(&f, "p.npy", &[30, 2], columns(30, 2));
    f.write("s.toml", "matrix = 'a.mtx'\nblock = 3\ncoordinates = 'p.npy'\n");
    f.line("solve s.toml --vtu x.vtu --out x.npy").works();
    let bytes = std::fs::read(f.path("x.vtu")).unwrap();
    let vtu = text("x.vtu");
    assert!(vtu.contains("NumberOfPoints=\"30\" NumberOfCells=\"30\"") && vtu.contains("Name=\"x2\""));
    let data = bytes.windows(2).position(|w| w == b"\n_").unwrap() + 2 + 8;
    let first: Vec<f64> =
        bytes[data..data + 240].chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect();
    let x = array(f.path("x.npy"));
    assert_eq!(first, x.values().iter().step_by(3).copied().collect::<Vec<_>>());
    f.line("solve a.mtx --vtu y.vtu").fails(2, &["--vtu y.vtu", "coordinates", "system.toml"]);
    f.line("solve s.toml --block 1 --vtu y.vtu").fails(2, &["--vtu y.vtu", "30 points for 90 nodes"]);
    assert!(!f.path("y.vtu").exists());
}

/// `[solver]` also sets outputs, numbering and null space; the command line overrides it, and paths are
/// relative to the file.
#[test]
fn a_file_says_all_that_the_command_line_could() {
    let f = Folder::new();
    matrix(&f);
    std::fs::create_dir(f.path("d")).unwrap();
    f.write("d/fields.mtx", mtx(90, 90, &chain(30, 3, |i, c| c * 30 + i)));
    f.write(
        "d/s.toml",
        "matrix = 'fields.mtx'\nblock = 3\n[solver]\nordering = 'segregated'\nequilibrate = true\nthreads = 1\nrtol = 1e-10\n\
         out = 'x.npy'\nreport = 'r.json'\nplot = 'r.svg'\n",
    );
    f.line("solve d/s.toml").works();
    let r = report(&f, "d/r.json");
    assert_eq!((&r["system"]["ordering"], &r["run"]["threads"]), (&"segregated".into(), &1.into()));
    assert_eq!(r["preconditioner"]["parameters"]["equilibrate"], true);
    assert!(f.path("d/r.svg").exists() && f.path("d/x.npy").exists());
    f.line("solve a.mtx --block 3 --rtol 1e-10 --out y.npy").works();
    let (x, y) = (array(f.path("d/x.npy")), array(f.path("y.npy")));
    let nodes: Vec<f64> = (0..90).map(|row| x.values()[row % 3 * 30 + row / 3]).collect();
    assert!(distance(&nodes, y.values()) < 1e-8);
    assert!(f.line("info d/s.toml").works().out.contains("segregated"));
    f.line("solve d/s.toml --out z.npy --report - --quiet").works();
    assert!(f.path("z.npy").exists());
    // A pure Neumann problem; the file names its null space.
    let mut neumann: Vec<(usize, usize, f64)> = Vec::new();
    for i in 1..=20usize {
        let ends = f64::from(u8::from(i > 1) + u8::from(i < 20));
        neumann.push((i, i, ends));
        neumann.extend(
            [i.wrapping_sub(1), i + 1].into_iter().filter(|j| (1..=20).contains(j)).map(|j| (i, j, -1.0)),
        );
    }
    f.write("n.mtx", mtx(20, 20, &neumann));
    f.write("n.toml", "matrix = 'n.mtx'\n[solver]\nnullspace = 'constant'\nreport = 'n.json'\n");
    f.write("n.txt", format!("1\n{}-1\n", "0\n".repeat(18)));
    f.line("solve n.toml --rhs n.txt").works();
    assert_eq!(report(&f, "n.json")["sources"]["null_vectors"], serde_json::json!(["constant"]));
    for (text, words) in [
        ("out = 'a.mtx'", ["--out", "would replace the input"]),
        ("plot = 'r.pdf'", ["--plot", ".svg or .png"]),
        ("report = 'no/r.json'", ["--report", "no"]),
        ("outt = 'x.npy'", ["w.toml:3", "did you mean `out`?"]),
    ] {
        f.write("w.toml", format!("matrix = 'a.mtx'\n[solver]\n{text}\n"));
        f.line("solve w.toml").fails(2, &words);
    }
}

/// The report has the date, the machine, the versions and the command line.
#[test]
fn the_report_tells_where_it_comes_from() {
    let f = Folder::new();
    matrix(&f);
    f.write("b.txt", "1\n".repeat(90));
    f.run(&[
        "solve",
        "a.mtx",
        "--rhs",
        "b.txt",
        "--x0",
        "b.txt",
        "--precond",
        "ildu then jacobi",
        "--report",
        "r.json",
    ])
    .works();
    let r = report(&f, "r.json");
    assert_eq!(
        r["command"],
        "krylith solve a.mtx --rhs b.txt --x0 b.txt --precond 'ildu then jacobi' --report r.json"
    );
    let date = r["date"].as_str().unwrap();
    assert!(date.len() == 20 && date.starts_with("20") && date.ends_with('Z'), "{date}");
    assert!(!r["host"].as_str().unwrap().is_empty());
    assert_eq!(r["versions"]["krylith"], env!("CARGO_PKG_VERSION"));
    assert!(r["versions"]["rustc"].as_str().unwrap().contains('.'));
    for name in ["commit", "driver", "cuda", "nvrtc"] {
        assert!(r["versions"].as_object().unwrap().contains_key(name), "{name}");
    }
    assert_eq!((&r["sources"]["rhs"], &r["sources"]["x0"]), (&"b.txt".into(), &"b.txt".into()));
    let chosen = |r: &Value, name: &str| {
        r["automatic"].as_array().unwrap().iter().find(|c| c["option"] == name).map(|c| c["taken"].clone())
    };
    assert_eq!(chosen(&r, "block"), Some("3".into()));
    assert_eq!(chosen(&r, "device"), Some("cpu".into()));
    assert_eq!((chosen(&r, "precond"), chosen(&r, "rhs")), (None, None));
    assert!(chosen(&r, "method").is_some());
    f.line("solve a.mtx --block 3 --method gmres:restart=9 --device cpu --threads 1 --report r.json").works();
    let r = report(&f, "r.json");
    for name in ["block", "method", "restart", "device", "threads"] {
        assert_eq!(chosen(&r, name), None, "{name}");
    }
    assert!(chosen(&r, "precond").is_some() && chosen(&r, "rhs").is_some());
    f.line("newton cavity:9x9,re=10 --report n.json").works();
    let n = report(&f, "n.json");
    assert_eq!(n["command"], "krylith newton cavity:9x9,re=10 --report n.json");
    assert!(n["versions"]["rustc"].is_string() && chosen(&n, "precond").is_some());
}
