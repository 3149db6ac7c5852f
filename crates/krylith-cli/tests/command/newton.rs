//! `krylith newton`: results, files and errors.

use crate::common::{Folder, array};
use serde_json::Value;

fn report(f: &Folder, name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(f.path(name)).unwrap()).unwrap()
}

#[test]
fn a_cavity_is_solved_and_everything_is_written() {
    let f = Folder::new();
    let ran = f.line(
        "newton cavity:17x15,re=30 --device cpu --threads 1 --out x.npy --report r.json --plot p.svg --vtu v.vtu --picture s.svg",
    );
    let out = &ran.works().out;
    let picture = std::fs::read_to_string(f.path("s.svg")).unwrap();
    assert!(picture.contains("Speed over that of the lid, Re 30"), "{picture}");
    for words in
        ["cavity:17x15,re=30", "765 unknowns", "FGMRES(30)", "converged after", "(steps)", "(solution)"]
    {
        assert!(out.contains(words), "`{words}` is not in {out}");
    }
    assert!(ran.err.lines().filter(|l| l.starts_with("krylith: step ")).count() >= 3, "{}", ran.err);
    let x = array(f.path("x.npy"));
    assert_eq!(x.shape(), [255, 3]);
    // The lid moves and the floor does not.
    let at = |i: usize, c: usize| x.values()[3 * i + c];
    assert!((at(14 * 17 + 8, 0) - 1.0).abs() < 1e-6 && at(8, 0).abs() < 1e-6 && at(7 * 17 + 8, 0) < -0.05);
    let r = report(&f, "r.json");
    assert_eq!((&r["schema"], &r["outcome"]), (&1.into(), &"converged".into()));
    assert_eq!((&r["problem"]["unknowns"], &r["problem"]["block"]), (&765.into(), &3.into()));
    assert_eq!(r["linear"]["method"], "fgmres:restart=30,orthogonalization=lowsync");
    let steps = r["runs"][0]["steps"].as_array().unwrap();
    assert_eq!(r["steps"], steps.len());
    let number = |v: &Value| v.as_f64().unwrap();
    for pair in steps.windows(2) {
        assert_eq!(pair[0]["after"], pair[1]["before"]);
    }
    assert!(number(&r["runs"][0]["last"]) <= number(&r["runs"][0]["target"]));
    assert_eq!(number(&steps[0]["forcing"]), 0.1);
    let iterations: u64 = steps.iter().map(|s| s["iterations"].as_u64().unwrap()).sum();
    assert_eq!(r["iterations"], iterations);
    for svg in ["p.svg", "s.svg"] {
        let text = std::fs::read_to_string(f.path(svg)).unwrap();
        assert!(text.starts_with("<svg") && text.ends_with("</svg>\n") && !text.contains("NaN"), "{svg}");
    }
    let vtu = String::from_utf8_lossy(&std::fs::read(f.path("v.vtu")).unwrap()).into_owned();
    assert!(
        vtu.contains("NumberOfPoints=\"255\" NumberOfCells=\"448\"") && vtu.contains("Name=\"velocity\"")
    );
}

#[test]
fn a_parameter_is_approached_by_continuation() {
    let f = Folder::new();
    let ran = f.line(
        "newton cavity:17x17 --device cpu --continuation 10,200 --forcing 1e-6 --report r.json --quiet",
    );
    assert!(ran.works().out.is_empty() && ran.err.is_empty(), "{ran:#?}");
    let r = report(&f, "r.json");
    let values: Vec<f64> =
        r["runs"].as_array().unwrap().iter().map(|run| run["parameter"].as_f64().unwrap()).collect();
    assert_eq!((values[0], *values.last().unwrap()), (10.0, 200.0));
    assert_eq!(
        (&r["problem"]["name"], &r["newton"]["forcing"]),
        (&"cavity:17x17,re=200".into(), &"0.000001".into())
    );
    for run in r["runs"].as_array().unwrap() {
        for step in run["steps"].as_array().unwrap() {
            assert!(step["linear_residual"].as_f64().unwrap() <= 1e-6, "{step}");
        }
    }
}

#[test]
fn what_does_not_converge_is_named() {
    let f = Folder::new();
    f.line("newton cavity:9x9,re=100 --device cpu --max-steps 1")
        .fails(1, &["max-steps after 1 step", "--max-steps"]);
    f.line("newton cavity:9x9,re=100 --device cpu --precond none --max-iters 0")
        .fails(1, &["linear-solve after 0 steps", "--precond"]);
}

#[test]
fn wrong_requests_are_refused() {
    let f = Folder::new();
    f.line("newton hole:9x9").fails(2, &["unknown problem `hole`", "cavity"]);
    f.line("newton cavity:9").fails(2, &["expected cavity:NXxNY"]);
    f.line("newton cavity:9x9 --forcing 2").fails(2, &["between 0 and 1"]);
    f.line("newton cavity:9x9 --report no/r.json").fails(2, &["--report no/r.json"]);
    f.line("newton cavity:9x9 --plot a.svg --picture a.svg").fails(2, &["--picture", "same file"]);
    f.line("newton cavity:9x9 --method bicgstab --restart 5")
        .fails(2, &["--restart applies only to method gmres"]);
    f.line("newton cavity:9x9 --continuation 10,-5 --device cpu").fails(2, &["Reynolds number of -5"]);
    assert!(f.names().is_empty());
    let help = f.run(&["newton", "--help"]).works().out.clone();
    for words in ["cavity:NXxNY", "Reynolds number", "--continuation", "krylith newton cavity"] {
        assert!(help.contains(words), "{words}");
    }
}
