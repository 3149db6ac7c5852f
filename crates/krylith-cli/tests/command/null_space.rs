//! Null vectors of singular systems, and near-null vectors for coarse levels.

use crate::common::{Folder, array, mtx};
use crate::solve::report;

/// The matrix of a path of n nodes with b fields; only the last field has a constant null space.
fn neumann(n: usize, b: usize) -> Vec<(usize, usize, f64)> {
    let mut entries = Vec::new();
    for i in 0..n {
        for c in 0..b {
            let mass = if c + 1 < b { 1.0 } else { 0.0 };
            let neighbours: Vec<usize> = [i.wrapping_sub(1), i + 1].into_iter().filter(|&j| j < n).collect();
            entries.push((i * b + c + 1, i * b + c + 1, neighbours.len() as f64 + mass));
            entries.extend(neighbours.iter().map(|j| (i * b + c + 1, j * b + c + 1, -1.0)));
        }
    }
    entries
}

#[test]
fn a_singular_consistent_system_converges_with_its_null_space() {
    let f = Folder::new();
    f.write("a.mtx", mtx(80, 80, &neumann(40, 2)));
    // The right-hand side of the last field sums to zero, as consistency requires.
    let b: String = (0..80)
        .map(|i| {
            format!(
                "{}\n",
                if i % 2 == 1 && i % 4 == 1 {
                    1.0
                } else if i % 2 == 1 {
                    -1.0
                } else {
                    2.0
                }
            )
        })
        .collect();
    f.write("b.txt", b);
    let null: String = (0..80).map(|i| format!("{}\n", i % 2)).collect();
    f.write("n.txt", null);
    for options in
        ["--nullspace constant", "--nullspace n.txt", "--nullspace constant --equilibrate --precond none"]
    {
        let ran = f.line(&format!(
            "solve a.mtx --block 2 --rhs b.txt --out x.npy --report r.json --rtol 1e-9 {options}"
        ));
        assert!(ran.works().out.contains("1 null vector projected out"), "{ran:#?}");
        let x = array(f.path("x.npy"));
        let mean: f64 = x.values().iter().skip(1).step_by(2).sum();
        assert!(mean.abs() < 1e-8, "{options}: {mean}");
        assert_eq!(report(&f, "r.json")["preconditioner"]["parameters"]["nullspace"], 1);
    }
    f.line("solve laplace:4x4x4 --nullspace constant").fails(2, &["A does not map constant vectors to zero"]);
    f.line("solve a.mtx --block 2 --nullspace b.txt").fails(2, &["b.txt", "not a null vector"]);
    // The same with the numbering field by field.
    let (n, b) = (40, 2);
    let fields: Vec<_> = neumann(n, b)
        .into_iter()
        .map(|(i, j, v)| ((i - 1) % b * n + (i - 1) / b + 1, (j - 1) % b * n + (j - 1) / b + 1, v))
        .collect();
    f.write("f.mtx", mtx(80, 80, &fields));
    f.write("nf.txt", (0..80).map(|i| format!("{}\n", i / 40)).collect::<String>());
    f.write(
        "bf.txt",
        (0..80).map(|i| format!("{}\n", if i < 40 { 2 } else { 1 - 2 * (i % 2) })).collect::<String>(),
    );
    f.line("solve f.mtx --block 2 --ordering segregated --rhs bf.txt --nullspace nf.txt").works();
}

#[test]
fn near_null_vectors_make_coarse_levels_of_elasticity() {
    let f = Folder::new();
    let iterations = |line: &str| {
        f.line(&format!("solve elasticity:11x9x9 --device cpu --rtol 1e-8 --report r.json {line}")).works();
        report(&f, "r.json")["iterations"].as_u64().unwrap()
    };
    let unasked = iterations("--precond amg");
    let with = iterations("--precond amg --near-nullspace rigid");
    assert_eq!(unasked, with, "rigid modes are used unasked");
    assert_eq!(report(&f, "r.json")["preconditioner"]["parameters"]["near_null"], 6);
    // Only translations, from a file.
    let row = |i: usize| (0..3).map(|c| if i % 3 == c { "1 " } else { "0 " }).collect::<String>() + "\n";
    f.write("t.txt", (0..11 * 9 * 9 * 3).map(row).collect::<String>());
    let translations = iterations("--precond amg --near-nullspace t.txt");
    assert!(with < translations, "{with} with rigid modes, {translations} with translations");
    f.line("solve laplace:4x4x4 --near-nullspace rigid").fails(2, &["--near-nullspace rigid", "2 or 3"]);
    f.write("short.txt", "1\n2\n");
    f.line("solve laplace:4x4x4 --near-nullspace short.txt").fails(2, &["short.txt"]);
    f.line("solve laplace:4x4x4 --method cg --precond jacobi_then_coarse")
        .fails(2, &["unknown preconditioner"]);
    let cg = ["solve", "laplace:4x4x4", "--device", "cpu", "--method", "cg", "--precond"];
    let of = |precond: &str| f.run(&[&cg[..], &[precond]].concat());
    of("jacobi then coarse").fails(2, &["symmetric(P then Q)"]);
    of("symmetric(jacobi then coarse)").works();
}
