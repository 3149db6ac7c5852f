//! `krylith solve`: results, files and messages.

use crate::common::{Folder, Ran, array, chain, distance, mtx};
use serde_json::Value;

pub fn report(f: &Folder, name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(f.path(name)).unwrap()).unwrap()
}

#[test]
fn a_bare_command_prints_help_with_an_example_that_works() {
    let f = Folder::new();
    let help = f.run(&[]).works().out.clone();
    let example = help.lines().map(str::trim).find(|l| l.starts_with("krylith solve stokes")).unwrap();
    let ran = f.line(example.strip_prefix("krylith ").unwrap());
    assert!(ran.works().out.contains("converged after"), "{ran:#?}");
    assert!(std::fs::read_to_string(f.path("convergence.svg")).unwrap().starts_with("<svg"));
}

#[test]
fn every_option_says_its_default() {
    let f = Folder::new();
    let help = f.run(&["solve", "--help"]).works().out.clone();
    let mut option = String::new();
    for line in help.lines().chain(["  --end"]) {
        let start = line.trim_start();
        let start = start.strip_prefix("-q, ").or(start.strip_prefix("-v, ")).unwrap_or(start);
        if start.starts_with("--") || start.is_empty() {
            let exempt = option.is_empty() || option.contains("--help");
            assert!(exempt || option.contains("[default:") || option.contains("default:]"), "{option}");
            option.clear();
        }
        if start.is_empty() || line.contains("-h, --help") || !line.starts_with(' ') {
            option.clear();
            continue;
        }
        if !option.is_empty() || start.starts_with("--") {
            option += start;
            option += " ";
        }
    }
    for name in ["--ranks ", " ilu", "schwarz"] {
        assert!(!help.contains(name), "{name}");
    }
}

#[test]
fn the_report_has_the_contract_s_fields() {
    let f = Folder::new();
    f.line("solve random:60,block=3,stages=2 --precond jacobi --restart 5 --report r.json --deterministic --rhs random:7 --threads 1")
        .works();
    let r = report(&f, "r.json");
    assert_eq!(r["schema"], 2);
    assert_eq!(r["krylith"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        (&r["system"]["rows"], &r["system"]["block"], &r["system"]["stages"]),
        (&360.into(), &3.into(), &2.into())
    );
    assert_eq!(r["system"]["format"], "kronecker");
    assert!(r["system"]["nonzeros"].as_u64().unwrap() > 0);
    assert_eq!(
        (&r["run"]["device"], &r["run"]["ranks"], &r["run"]["threads"]),
        (&"cpu".into(), &1.into(), &1.into())
    );
    assert_eq!(
        (&r["run"]["deterministic"], &r["run"]["seed"], &r["run"]["store"]),
        (&true.into(), &7.into(), &"f64".into())
    );
    assert!(r["run"]["devices"].as_array().is_some_and(|d| d.len() == 1));
    assert_eq!((&r["method"], &r["outcome"]), (&"gmres".into(), &"converged".into()));
    assert_eq!(
        (&r["preconditioner"]["name"], &r["preconditioner"]["parameters"]["block"]),
        (&"jacobi".into(), &3.into())
    );
    assert!(r["preconditioner"]["fill"].as_f64().unwrap() > 0.0);
    let (iterations, residuals) = (r["iterations"].as_u64().unwrap(), r["residuals"].as_array().unwrap());
    assert_eq!(residuals.len() as u64, iterations + 1);
    let truth = r["true_relative_residual"].as_f64().unwrap();
    assert!(truth <= 1e-6 && residuals.last().unwrap().as_f64().unwrap() <= 1e-6);
    let fields: f64 =
        r["field_residuals"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap().powi(2)).sum();
    assert!((fields.sqrt() / truth - 1.0).abs() < 1e-3, "{fields} {truth}");
    let parts = r["seconds"]["setup_parts"].as_object().unwrap();
    let sum: f64 = parts.values().map(|seconds| seconds.as_f64().unwrap()).sum();
    let setup = r["seconds"]["setup"].as_f64().unwrap();
    assert!((sum - setup).abs() <= 1e-9 * setup, "{sum} of {setup}");
    for name in ["device", "survey", "product", "factors", "method"] {
        assert!(parts[name].as_f64().unwrap() > 0.0, "{name}");
    }
    for key in [
        "load",
        "setup",
        "total",
        "transfer",
        "product",
        "communication",
        "orthogonalization",
        "preconditioner",
    ] {
        assert!(r["seconds"][key].as_f64().unwrap() >= 0.0, "{key}");
    }
    assert!(r["bytes_per_iteration"].as_u64().unwrap() > 0);
    assert!(r["bandwidth_fraction"].is_null(), "the solve took less time than measuring the bandwidth");
    let restarts: Vec<&Value> =
        r["events"].as_array().unwrap().iter().filter(|e| e["event"] == "restart").collect();
    if iterations > 5 {
        assert_eq!(restarts[0]["iteration"], 5);
    }
}

#[test]
fn x_has_one_column_a_stage() {
    let f = Folder::new();
    f.line("solve random:40,block=3,stages=2 --out x.npy --rtol 1e-10").works();
    assert_eq!(array(f.path("x.npy")).shape(), [120, 2]);
    f.line("solve random:40,block=3,stages=1 --out x.npy").works();
    assert_eq!(array(f.path("x.npy")).shape(), [120, 1]);
    f.line("solve laplace:4x4x4 --out x.npy").works();
    assert_eq!(array(f.path("x.npy")).shape(), [64]);
}

#[test]
fn field_by_field_and_node_by_node_agree() {
    let f = Folder::new();
    let (n, b) = (30, 3);
    f.write("nodes.mtx", mtx(n * b, n * b, &chain(n, b, |i, c| i * b + c)));
    f.write("fields.mtx", mtx(n * b, n * b, &chain(n, b, |i, c| c * n + i)));
    let text = |place: &dyn Fn(usize) -> usize| -> String {
        (0..n * b).map(|row| format!("{}\n", (place(row) as f64 * 0.7).sin())).collect()
    };
    f.write("b_nodes.txt", text(&|row| row));
    f.write("b_fields.txt", text(&|row| row % n * b + row / n));
    f.line("solve nodes.mtx --block 3 --rhs b_nodes.txt --out xn.npy --rtol 1e-11 --report n.json").works();
    let ran = f.line(
        "solve fields.mtx --block 3 --ordering segregated --rhs b_fields.txt --out xf.npy --rtol 1e-11 --report f.json",
    );
    assert!(ran.works().out.contains("by field  0: "), "{ran:#?}");
    let (nodes, fields) = (array(f.path("xn.npy")), array(f.path("xf.npy")));
    let back: Vec<f64> = (0..n * b).map(|row| fields.values()[row % b * n + row / b]).collect();
    assert_eq!(nodes.values(), &back[..], "the same solve, renumbered");
    assert_eq!(report(&f, "n.json")["iterations"], report(&f, "f.json")["iterations"]);
    assert_eq!(report(&f, "f.json")["system"]["ordering"], "segregated");
}

#[test]
fn files_of_a_problem_give_the_same_answer() {
    let f = Folder::new();
    for (spec, format) in [
        ("stokes:4x4x4,tau=0.1", "petsc"),
        ("random:30,pattern=different", "mtx"),
        ("laplace:5x4x3,block=2", "petsc"),
        ("laplace:5x4x3", "mtx"),
        ("spe10:4x5x6,injector=5000", "mtx"),
        ("radiation:4x3x5,components=3", "petsc"),
        ("poisson-multiphase:4x3x5,contrast=1e4", "mtx"),
    ] {
        f.run(&["problem", spec, "--out", "d", "--format", format]).works();
        f.run(&["solve", spec, "--out", "a.npy"]).works();
        f.run(&["solve", "d/system.toml", "--out", "b.npy"]).works();
        assert_eq!(
            std::fs::read(f.path("a.npy")).unwrap(),
            std::fs::read(f.path("b.npy")).unwrap(),
            "{spec}"
        );
    }
    assert!(f.path("d/mesh.vtu").exists());
    // Coupled systems carry their fields and matrices.
    for (spec, precond) in [
        ("taylor-hood:2x2x2,contrast=9", "split(u: amg, p: jacobi; schur=upper, S=Mp)"),
        ("nedelec:3x3x3", "symmetric(chebyshev(jacobi) then aux(G: amg) then aux(Px: amg))"),
        ("twophase:3x3x3", "cpr(p: amg) then ildu"),
        ("blackoil:3x3x3", "cpr(p: amg; decouple=impes(acc)) then ildu"),
    ] {
        f.run(&["problem", spec, "--out", "d"]).works();
        f.run(&["solve", spec, "--precond", precond, "--out", "a.npy"]).works();
        f.run(&["solve", "d/system.toml", "--precond", precond, "--out", "b.npy"]).works();
        let [a, b] = ["a.npy", "b.npy"].map(|name| std::fs::read(f.path(name)).unwrap());
        assert_eq!(a, b, "{spec}");
    }
    let help = f.line("problem --help").works().out.clone();
    for problem in krylith_problems::catalogue() {
        assert!(help.contains(problem.name) && problem.keys.iter().all(|k| help.contains(k.name)), "{help}");
    }
}

#[test]
fn solver_defaults_of_a_file_are_used_and_overruled() {
    let f = Folder::new();
    f.write("a.mtx", mtx(90, 90, &chain(30, 3, |i, c| i * 3 + c)));
    f.write("s.toml", "matrix = 'a.mtx'\nblock = 3\n[solver]\nprecond = 'none'\nrestart = 7\nrtol = 1e-9\n");
    f.line("solve s.toml --report r.json").works();
    let r = report(&f, "r.json");
    assert_eq!((&r["preconditioner"]["name"], &r["parameters"]["restart"]), (&"none".into(), &7.into()));
    assert!(r["true_relative_residual"].as_f64().unwrap() <= 1e-9);
    f.line("solve s.toml --precond jacobi:block=1 --report r.json").works();
    assert_eq!(report(&f, "r.json")["preconditioner"]["parameters"]["block"], 1);
}

#[test]
fn block_sizes_are_detected() {
    let f = Folder::new();
    f.write("a.mtx", mtx(90, 90, &chain(30, 3, |i, c| i * 3 + c)));
    let ran = f.line("solve a.mtx");
    assert!(
        ran.works().out.contains("blocks 3×3 (the largest size up to 8 that adds at most 20 % zeros: 0 %"),
        "{ran:#?}"
    );
    let ran = f.line("info a.mtx");
    assert!(ran.works().out.contains("88 blocks of 3×3 in 30 block rows: 2 to 3 a row"), "{ran:#?}");
    let ran = f.line("info stokes:4x4x4");
    assert!(
        ran.works().out.contains("8 of 16 positions hold different values, 6 are always zero"),
        "{ran:#?}"
    );
}

#[test]
fn every_choice_of_method_and_storage_solves() {
    let f = Folder::new();
    f.line("solve random:50 --out x.npy --rtol 1e-12").works();
    let x = array(f.path("x.npy"));
    for options in [
        "--orthogonalization cgs2",
        "--orthogonalization mgs --precond none",
        "--precision f32",
        "--precision f32 --precond jacobi:block=2 --restart 4",
        "--precond jacobi:block=1 --threads 1 --deterministic",
        "--x0 x.npy --method gmres --device cpu",
        "--method bicgstab",
        "--method bicgstab --precond none --threads 1",
        "--method bicgstab --reductions classical --precond jacobi:block=1",
        "--method bicgstab --precision f32",
        "--x0 x.npy --method bicgstab --device cpu",
        "--precond ildu0",
        "--method bicgstab --precond ildu0:rows=20,fill=1",
        "--precision f32 --precond ildu0:cut=whole",
        "--precond jacobi+ildu0:rows=20",
        "--precond=jacobi:block=1+jacobi --equilibrate",
    ] {
        let ran = f.line(&format!("solve random:50 --out y.npy --rtol 1e-11 {options}"));
        ran.works();
        assert!(distance(array(f.path("y.npy")).values(), x.values()) < 1e-9, "{options}: {ran:#?}");
    }
}

/// P-CBCG given as text; the report has its parameters and the cost of a poor basis.
#[test]
fn cbcg_is_reported() {
    let f = Folder::new();
    f.line("solve laplace:13x13x13 --method cbcg:s=8 --precond jacobi --report r.json").works();
    let r = report(&f, "r.json");
    assert_eq!((r["method"].as_str(), r["parameters"]["s"].as_u64()), (Some("cbcg"), Some(8)));
    assert_eq!(r["parameters"]["basis"].as_str(), Some("chebyshev"));
    f.line("solve laplace:13x13x13 --method cbcg:s=16,basis=monomial --precond none --report r.json").works();
    let report = std::fs::read_to_string(f.path("r.json")).unwrap();
    assert!(report.contains("directions that were linearly dependent"), "{report}");
}

/// 2,197 rows are few more than a subdomain has where its size is limited.
#[test]
fn small_systems_are_not_cut_on_a_cpu() {
    let f = Folder::new();
    let subdomains = |options: &str| {
        f.line(&format!("solve laplace:13x13x13 --device cpu --report r.json{options}")).works();
        report(&f, "r.json")["preconditioner"]["parameters"]["subdomains"].as_u64().unwrap()
    };
    assert_eq!((subdomains(""), subdomains(" --precond ildu:fill=1")), (1, 1));
    assert!(subdomains(" --precond ildu:rows=2048") > 1);
}

#[test]
fn ildu0_is_reported() {
    let f = Folder::new();
    let line = "solve laplace:12x12x12 --precond ildu0:rows=216 --method bicgstab --report r.json";
    let ran = f.line(line);
    let words =
        ["ILDU(0) of subdomains", "8 subdomains of at most 216 block rows (boxes of 6×6×6 nodes), 16 levels"];
    assert!(words.iter().all(|w| ran.works().out.contains(w)), "{ran:#?}");
    let r = report(&f, "r.json");
    let p = &r["preconditioner"];
    assert_eq!((&p["name"], &p["parameters"]["subdomains"]), (&"ildu".into(), &8.into()));
    // Each of the three planes that separate boxes cuts 144 couplings, stored twice.
    let (dropped, stored) = (3.0 * 144.0 * 2.0, 7.0 * 1728.0 - 6.0 * 144.0);
    let share = p["parameters"]["dropped"].as_f64().unwrap();
    assert!((share - dropped / stored).abs() < 1e-12, "{share}");
    assert!((p["fill"].as_f64().unwrap() - (1.0 - share)).abs() < 1e-12, "{p}");
}

/// A matrix with a zero diagonal has no factors without a shift. All attempts are reported, and count as one
/// solve.
#[test]
fn what_is_left_open_climbs_and_is_one_solve() {
    let f = Folder::new();
    let n = 60;
    let entries: Vec<_> = (0..n).map(|i| ((i + 1) % n + 1, i + 1, 1.0)).collect();
    f.write("cycle.mtx", mtx(n, n, &entries));
    let ran = f.line("solve cycle.mtx --block 1 --rhs random --precond none --report r.json");
    assert!(ran.works().out.contains("none with bicgstab: "), "{ran:#?}");
    let r = report(&f, "r.json");
    let of = |r: &Value| -> Vec<Value> {
        r["events"].as_array().unwrap().iter().filter(|e| e["event"] == "fallback").cloned().collect()
    };
    let (fallbacks, iterations) = (of(&r), r["iterations"].as_u64().unwrap());
    // BiCGSTAB does not converge here; GMRES does once its basis is as long as the cycle in the matrix.
    assert_eq!(
        (fallbacks.len(), &r["method"], &r["parameters"]["restart"]),
        (1, &"gmres".into(), &60.into())
    );
    assert_eq!(fallbacks[0]["iteration"].as_u64().unwrap() + 60, iterations, "{r:#}");
    assert_eq!(r["residuals"].as_array().unwrap().len() as u64, iterations + 1);
    assert!(r["true_relative_residual"].as_f64().unwrap() <= 1e-6);
    // If method and preconditioner are given, there is a single attempt.
    f.line("solve cycle.mtx --block 1 --rhs random --precond none --restart 10 --report r.json")
        .fails(1, &["stagnated"]);
    assert!(of(&report(&f, "r.json")).is_empty());
    f.line("solve cycle.mtx --block 1 --rhs random --precond ildu0").fails(2, &["zero pivot in block row 0"]);
    // Only the preconditioner is chosen automatically: factors cannot be built without pivoting.
    f.line("solve cycle.mtx --block 1 --rhs random --method gmres --matching off --report r.json").works();
    let fallbacks = of(&report(&f, "r.json"));
    assert!(
        !fallbacks.is_empty() && fallbacks[0]["detail"].as_str().unwrap().contains("zero pivot"),
        "{fallbacks:#?}"
    );
    // Rows in their places are factors already; in the order as it is there is a zero pivot.
    f.line("solve cycle.mtx --block 1 --rhs random --method gmres --report r.json").works();
    let r = report(&f, "r.json");
    let told = of(&r);
    assert!(told.len() == 1 && told[0]["detail"].as_str().unwrap().starts_with("ras with "), "{told:#?}");
    assert_eq!(r["iterations"], 1, "{r:#}");
}

#[test]
fn stages_and_compositions_are_reported() {
    let f = Folder::new();
    let solve = |precond: &str, more: &[&str]| {
        let line = "solve stokes:6x6x6,scheme=radau-iia-2 --report r.json --precond";
        let ran = f.run(&line.split(' ').chain([precond]).chain(more.iter().copied()).collect::<Vec<_>>());
        (ran.works().out.clone(), report(&f, "r.json"))
    };
    let (out, r) = solve("stage:fill=1", &[]);
    assert!(out.contains("2 stages, each by ILDU(1)\n"), "{out}");
    let p = &r["preconditioner"];
    assert_eq!((&p["name"], &p["parameters"]["rows"]), (&"stage".into(), &2048.into()));
    for more in [&[][..], &["--equilibrate"]] {
        let (out, r) = solve("jacobi then ildu0:rows=36", more);
        assert!(out.contains("(4 × 2 stages), then ILDU(0) of subdomains"), "{out}");
        let p = &r["preconditioner"];
        assert_eq!(p["name"], "jacobi then ildu");
        let parts = &p["parameters"];
        assert_eq!((&parts["first"]["name"], &parts["second"]["rows"]), (&"jacobi".into(), &36.into()));
        let (_, alone) = solve("ildu0:rows=36", more);
        assert!(r["iterations"].as_u64() < alone["iterations"].as_u64(), "{more:?}");
    }
    let f = Folder::new();
    f.line("solve random:50,stages=2 --precond stage")
        .fails(2, &["needs a lower triangular A or B", "ildu0"]);
}

#[test]
fn bicgstab_is_reported() {
    let f = Folder::new();
    let ran =
        f.line("solve random:60,block=3,stages=2 --method bicgstab --precond jacobi --rtol 1e-9 --report r.json --plot p.svg");
    assert!(ran.works().out.contains("BiCGSTAB, merged reductions"), "{ran:#?}");
    let r = report(&f, "r.json");
    assert_eq!((&r["method"], &r["outcome"]), (&"bicgstab".into(), &"converged".into()));
    assert_eq!(r["parameters"]["reductions"], "merged");
    assert!(r["parameters"].get("restart").is_none() && r["parameters"].get("orthogonalization").is_none());
    let (iterations, residuals) = (r["iterations"].as_u64().unwrap(), r["residuals"].as_array().unwrap());
    assert_eq!(residuals.len() as u64, iterations + 1);
    // The report names the first iteration that satisfies the tolerance.
    let first = residuals.iter().position(|v| v.as_f64().unwrap() <= 1e-9).unwrap();
    assert_eq!(first as u64, iterations);
    assert!(r["true_relative_residual"].as_f64().unwrap() <= 1e-9);
    let picture = std::fs::read_to_string(f.path("p.svg")).unwrap();
    assert!(picture.contains("BiCGSTAB, point-block Jacobi"), "{picture}");
    assert!(picture.contains("‖r‖/‖b‖") && picture.contains("prefers-color-scheme:dark"), "{picture}");

    // An iteration moves two products, two preconditioners and 18 vectors, or 16 vectors without a
    // preconditioner. GMRES with one basis vector moves one product, one preconditioner and six vectors.
    let bytes = |options: &str| {
        f.line(&format!("solve laplace:12x12x12 --report r.json {options}")).works();
        report(&f, "r.json")["bytes_per_iteration"].as_u64().unwrap() as i64
    };
    let [one, two] =
        ["none", "jacobi"].map(|p| bytes(&format!("--precond {p} --restart 1 --max-iters 100000")));
    let n = 8 * 12 * 12 * 12;
    assert_eq!(bytes("--method bicgstab --precond none"), 2 * (one - 6 * n) + 16 * n);
    assert_eq!(bytes("--method bicgstab --precond jacobi"), 2 * (two - 6 * n) + 18 * n);
    assert_eq!(
        bytes("--method bicgstab --reductions classical --precond jacobi"),
        2 * (two - 6 * n) + 19 * n
    );
}

#[test]
fn bicgstab_says_when_and_why_it_restarts() {
    let f = Folder::new();
    // (r, A r) = 0 for b = ones.
    let entries: Vec<_> = (1..=8).map(|i| (i, i, if i % 2 == 0 { 1.0 } else { -1.0 })).collect();
    f.write("d.mtx", mtx(8, 8, &entries));
    let ran = f.line("solve d.mtx --block 1 --precond none --method bicgstab --report r.json");
    assert!(ran.works().out.contains("restart after 0 iterations: pivot breakdown"), "{ran:#?}");
    let r = report(&f, "r.json");
    let restart = r["events"].as_array().unwrap().iter().find(|e| e["event"] == "restart").unwrap();
    assert!(restart["iteration"] == 0 && restart["detail"].as_str().unwrap().contains("pivot"), "{r:#}");
    f.write("skew.mtx", mtx(2, 2, &[(1, 2, 1.0), (2, 1, -1.0)]));
    f.line("solve skew.mtx --block 1 --precond none --method bicgstab")
        .fails(1, &["breakdown", "--method gmres"]);
}

#[test]
fn the_format_of_a_product_is_chosen_and_told() {
    let f = Folder::new();
    for (given, taken, words) in [
        ("", "dia", "products with half of the diagonals by symmetry"),
        (" --format dia-full", "dia-full", "products with all diagonals"),
        (" --format csr", "csr", ""),
    ] {
        let ran = f.line(&format!("solve laplace:9x8x7 --device cpu --report r.json{given}"));
        assert!(ran.works().out.contains(words), "{ran:#?}");
        assert_eq!(report(&f, "r.json")["run"]["format"], taken, "{given}");
    }
    f.line("solve random:50 --format dia").fails(2, &["format=dia", "format=auto"]);
}

#[test]
fn stored_in_f32_the_given_system_is_solved() {
    let f = Folder::new();
    f.line("solve random:50 --precision f32 --rtol 1e-12 --method bicgstab --report r.json").works();
    let r = report(&f, "r.json");
    let restarts = r["events"].as_array().unwrap().iter().filter(|e| e["event"] == "restart").count();
    assert!(r["true_relative_residual"].as_f64().unwrap() <= 1e-12 && restarts > 0, "{r:#}");
    assert_eq!(r["residuals"].as_array().unwrap().len() as u64, r["iterations"].as_u64().unwrap() + 1);
}

#[test]
fn stored_in_f32_gmres_solves_the_given_system() {
    let f = Folder::new();
    f.line("solve random:50 --precision f32 --rtol 1e-12 --report r.json").works();
    let r = report(&f, "r.json");
    assert!(r["true_relative_residual"].as_f64().unwrap() <= 1e-12);
    assert!(r["events"].as_array().unwrap().iter().any(|e| e["event"] == "refinement"), "{r:#}");
    assert_eq!(r["residuals"].as_array().unwrap().len() as u64, r["iterations"].as_u64().unwrap() + 1);
}

#[test]
fn other_outcomes_are_named_and_x_is_written() {
    let f = Folder::new();
    let ran = f.line("solve stokes:5x5x5 --max-iters 3 --out x.npy --report r.json --plot p.svg");
    ran.fails(1, &["max-iterations", "3 iterations"]);
    assert!(ran.out.contains("not converged (max-iterations) after 3 iterations"), "{ran:#?}");
    assert_eq!(array(f.path("x.npy")).shape(), [500, 2]);
    assert_eq!(report(&f, "r.json")["outcome"], "max-iterations");
    f.line("solve stokes:5x5x5 --rtol 1e-30")
        .fails(1, &["rounding-limit", "as good as that of a direct solve"]);
    // Singular and inconsistent.
    f.write("s.mtx", mtx(2, 2, &[(1, 1, 1.0), (2, 1, 1.0)]));
    f.write("b.txt", "1\n2\n");
    f.line("solve s.mtx --block 1 --rhs b.txt").fails(1, &["s.mtx: ", "relative residual 3.16e-1"]);
    // A matrix whose products overflow.
    f.write("big.mtx", mtx(2, 2, &[(1, 1, 1e300), (2, 2, 1e300), (1, 2, 1e300)]));
    f.line("solve big.mtx --block 1 --precond none --x0 b.txt --report r.json").fails(1, &[""]);
    let _ = report(&f, "r.json");
}

#[test]
fn equilibration_helps_where_units_differ() {
    let f = Folder::new();
    let scaled: Vec<_> = chain(30, 3, |i, c| i * 3 + c)
        .into_iter()
        .map(|(i, j, v)| (i, j, v * 10f64.powi(3 * (j % 3) as i32)))
        .collect();
    f.write("a.mtx", mtx(90, 90, &scaled));
    f.line("solve a.mtx --block 3 --precond none --equilibrate --out x.npy --report r.json --rtol 1e-10")
        .works();
    let with = report(&f, "r.json")["iterations"].as_u64().unwrap();
    assert_eq!(report(&f, "r.json")["preconditioner"]["parameters"]["equilibrate"], true);
    f.line("solve a.mtx --block 3 --precond none --report r.json --rtol 1e-10 --restart 100");
    let without = report(&f, "r.json")["iterations"].as_u64().unwrap();
    assert!(with < without, "{with} with, {without} without");
    f.line("solve a.mtx --block 3 --equilibrate --out y.npy --rtol 1e-10").works();
    assert!(distance(array(f.path("y.npy")).values(), array(f.path("x.npy")).values()) < 1e-7);
}

#[test]
fn right_hand_sides_far_from_one_are_solved() {
    let f = Folder::new();
    f.write("a.mtx", mtx(2, 2, &[(1, 1, 2.0), (2, 2, 3.0), (1, 2, 1.0)]));
    for size in [1e-300, 1e-200, 1e200, 1e300] {
        f.write("b.txt", format!("{:e}\n{:e}\n", size, 3.0 * size));
        for store in ["f64", "f32"] {
            f.run(&[
                "solve",
                "a.mtx",
                "--rhs",
                "b.txt",
                "--out",
                "x.npy",
                "--rtol",
                "1e-12",
                "--precision",
                store,
                "--report",
                "r.json",
            ])
            .works();
            let x: Vec<f64> = array(f.path("x.npy")).values().iter().map(|v| v / size).collect();
            assert!(x[0].abs() < 1e-11 && (x[1] - 1.0).abs() < 1e-11, "{size:e}: {x:?}");
            let norm = report(&f, "r.json")["system"]["rhs_norm"].as_f64().unwrap() / size;
            assert!((norm - 10f64.sqrt()).abs() < 1e-12, "{norm}");
        }
    }
}

#[test]
fn quiet_prints_errors_alone() {
    let f = Folder::new();
    let ran = f.line("solve laplace:6x6x6 --quiet --out x.npy");
    assert_eq!((ran.works().out.as_str(), ran.err.as_str()), ("", ""));
    let ran = f.line("solve laplace:6x6x6 --quiet --max-iters 1");
    ran.fails(1, &["max-iterations"]);
    assert_eq!((ran.out.as_str(), ran.err.lines().count()), ("", 1));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let f = Folder::new();
    let script = format!("{} solve laplace:4x4x4 | true", env!("CARGO_BIN_EXE_krylith"));
    let output =
        std::process::Command::new("sh").args(["-c", &script]).current_dir(f.0.path()).output().unwrap();
    Ran::new(output).works();
}

/// Rows of unlike scale, and each criterion in the report, on the plot and on the terminal.
#[test]
fn a_criterion_is_that_of_the_report_the_plot_and_the_text() {
    let f = Folder::new();
    let mut matrix = String::from("%%MatrixMarket matrix coordinate real general\n20 20 39\n");
    let (mut rhs, scale) = (String::from("%%MatrixMarket matrix array real general\n20 1\n"), [1e9, 1e-3]);
    for i in 0..20 {
        let s = scale[i % 2];
        matrix += &format!("{} {} {:e}\n", i + 1, i + 1, 3.0 * s);
        if i > 0 {
            matrix += &format!("{} {} {:e}\n", i + 1, i, -s);
        }
        rhs += &format!("{:e}\n", s);
    }
    f.write("a.mtx", &matrix);
    f.write("b.mtx", &rhs);
    let solve =
        "solve a.mtx --rhs b.mtx --method gmres --precond none --rtol 1e-9 --report r.json --plot p.svg";
    for (criterion, words, axis) in [
        ("rows", "row-scaled relative residual", "‖D⁻¹r‖/‖D⁻¹b‖"),
        ("backward", "component-wise backward error", "max |rᵢ|/(|A||x|+|b|)ᵢ"),
        ("residual", "‖b − A x‖/‖b‖", "‖r‖/‖b‖"),
    ] {
        let ran = f.line(&format!("{solve} --criterion {criterion}"));
        ran.works();
        let r = report(&f, "r.json");
        assert_eq!((&r["criterion"], &r["relative_to"]), (&criterion.into(), &"b".into()));
        let value = r["criterion_value"].as_f64().unwrap();
        assert!(value <= 1e-9 && r["outcome"] == "converged", "{criterion} {value:e}");
        let last = r["residuals"].as_array().unwrap().last().unwrap().as_f64().unwrap();
        assert!((last - value).abs() <= 1e-9 * value + 1e-18, "{criterion} {last:e} {value:e}");
        assert!(ran.out.contains(words), "{criterion}: {}", ran.out);
        assert!(std::fs::read_to_string(f.path("p.svg")).unwrap().contains(axis), "{criterion}");
    }
    f.line(&format!("{solve} --relative-to r0")).works();
    assert_eq!(report(&f, "r.json")["relative_to"], "r0");
    let refused = f.line(&format!("{solve} --criterion backward --relative-to r0"));
    refused.fails(2, &["relative_to", "criterion=backward"]);
    f.line(&format!("{solve} --criterion backward --atol 1e-3")).fails(2, &["atol", "criterion=backward"]);
    f.line(&format!("{solve} --criterion row")).fails(2, &["rows"]);
}
