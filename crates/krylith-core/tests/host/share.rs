//! Solves whose ranks hold whole vectors (option `share`): the answers of halos in every mode, for scalar and
//! block systems, and what is refused. Ranks are threads here.

use crate::common::*;
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::{Bsr, Csr, Dense, KroneckerSum};
use krylith_core::operator::Format;
use krylith_core::partition::{Partition, RowBlocks, Rows, split};
use krylith_core::solver::{EventKind, Solution};
use krylith_core::{Options, Outcome, Problem, Result, Solver};
use std::sync::Arc;

/// All names of modes, and `auto`.
const SHARES: [&str; 11] = [
    "nz",
    "2nz",
    "nz:3",
    "lra",
    "lra:0.3",
    "lra+rc",
    "lra+rc:0.2/0.8",
    "lra+rc:0.3/0.2",
    "fused",
    "alone",
    "auto",
];

/// Runs of rows that ranks own, of unlike lengths; one rank of four has no rows.
fn runs(n: usize, block: usize, ranks: usize) -> Vec<usize> {
    let nodes = n / block;
    let at = match ranks {
        1 => vec![0, nodes],
        2 => vec![0, nodes / 3, nodes],
        3 => vec![0, nodes / 2, nodes / 2 + 1, nodes],
        _ => vec![0, nodes / 4, nodes / 4, nodes / 2, nodes],
    };
    at.into_iter().map(|node| node * block).collect()
}

/// Rows `from..to` of a matrix, all columns.
fn run(a: &Csr, from: usize, to: usize) -> Csr {
    let (first, last) = (a.row_ptr()[from], a.row_ptr()[to]);
    let row_ptr = a.row_ptr()[from..=to].iter().map(|p| p - first).collect();
    let (col, values) = (a.col()[first..last].to_vec(), a.values()[first..last].to_vec());
    Csr::new(to - from, a.columns(), row_ptr, col, values).unwrap()
}

/// A grid of `nodes` nodes in a ring, with blocks of `b` unknowns and a long row in the middle.
fn ring(nodes: usize, b: usize, skew: f64) -> Csr {
    let mut entries = Vec::new();
    let long = nodes / 2;
    for i in 0..nodes {
        let mut columns =
            vec![i, (i + 1) % nodes, (i + nodes - 1) % nodes, (i + 11) % nodes, (i + nodes - 11) % nodes];
        match i == long {
            true => columns.extend((0..nodes).step_by(3)),
            false if i % 3 == 0 => columns.push(long),
            false => {}
        }
        columns.sort_unstable();
        columns.dedup();
        for j in columns {
            for (p, q) in (0..b * b).map(|e| (e / b, e % b)) {
                let diagonal = if i == long { nodes as f64 } else { 6.0 * b as f64 + (i % 7) as f64 };
                let value = match (i == j, p == q) {
                    (true, true) => diagonal,
                    _ if j > i => -1.0 / (1 + p + q) as f64 * (1.0 + skew),
                    _ => -1.0 / (1 + p + q) as f64,
                };
                entries.push(((i * b + p) as u32, (j * b + q) as u32, value));
            }
        }
    }
    Csr::from_triplets(nodes * b, nodes * b, &entries).unwrap()
}

/// Solves on runs of rows, twice, and returns the whole x and the solution of the first rank.
fn solved(a: &Csr, block: usize, ranks: usize, options: &str, b: &[f64]) -> Result<(Vec<f64>, Solution)> {
    let options: Options = options.parse()?;
    let cuts = runs(a.rows(), block, ranks);
    let all = Team::run(ranks, |comm| {
        let (from, to) = (cuts[comm.rank()], cuts[comm.rank() + 1]);
        let problem = Problem::distributed_csr(comm, &run(a, from, to), Some(block))?;
        let mut solver = Solver::new(problem, &options)?;
        let (mut first, mut x) = (vec![0.0; to - from], vec![0.0; to - from]);
        solver.solve(&b[from..to], &mut first)?;
        let solution = solver.solve(&b[from..to], &mut x)?.clone();
        assert!(first == x || solution.share.as_deref() == Some("auto"), "a second solve has other bits");
        Ok((x, solution))
    })?;
    let histories: Vec<_> = all.iter().map(|one| one.1.history.residuals.clone()).collect();
    assert!(histories.iter().all(|history| *history == histories[0]), "ranks have other histories");
    Ok((all.iter().flat_map(|one| one.0.iter().copied()).collect(), all[0].1.clone()))
}

#[test]
fn whole_vectors_solve_as_halos_do() {
    let systems = [
        ("symmetric", ring(150, 1, 0.0), 1, &["cg", "gmres"][..]),
        ("not symmetric", ring(150, 1, 0.4), 1, &["gmres:restart=10", "bicgstab"]),
        ("symmetric blocks", ring(60, 3, 0.0), 3, &["cg"]),
        ("blocks", ring(60, 3, 0.4), 3, &["gmres", "bicgstab"]),
    ];
    for (what, a, block, methods) in &systems {
        let b = Random(301).numbers(a.rows());
        for method in *methods {
            for precond in ["jacobi", "none"] {
                let common = format!("device=cpu threads=1 rtol=1e-11 method={method} precond={precond}");
                for ranks in 1..=4 {
                    let (expected, halo) = solved(a, *block, ranks, &common, &b).unwrap();
                    assert_eq!(halo.share.as_deref(), (ranks > 1).then_some("halo"));
                    for share in SHARES {
                        let what = format!("{what}: {method}, {precond}, share={share} on {ranks} ranks");
                        let options = format!("{common} share={share}");
                        let (x, solution) = solved(a, *block, ranks, &options, &b).unwrap();
                        assert_eq!(solution.outcome(), Outcome::Converged, "{what}");
                        let away = distance(&x, &expected);
                        assert!(away <= 1e-9, "{what}: x differs by {away:e}");
                        let [more, fewer] = [solution.history.iterations, halo.history.iterations];
                        assert!(more.abs_diff(fewer) <= 2, "{what}: {more} and {fewer} iterations");
                        assert!(relative_residual(a, &b, &x) <= 1.01e-11, "{what}");
                        match (ranks, share) {
                            (1, _) => assert_eq!(solution.share, None, "{what}"),
                            (_, "nz") => {
                                assert_eq!(solution.share.as_deref(), Some("nz"), "{what}");
                                assert_eq!(solution.format, Format::Csr, "{what}");
                            }
                            (_, "auto") => {
                                let said = |e: &krylith_core::solver::Event| {
                                    e.kind == EventKind::Choice && e.detail.contains("share=auto keeps")
                                };
                                assert!(solution.events.iter().any(said), "{what}: {:?}", solution.events);
                            }
                            (_, "lra" | "lra+rc") => {
                                assert!(solution.share.unwrap().starts_with(&format!("{share}:")), "{what}");
                            }
                            _ => assert_eq!(solution.share.as_deref(), Some(share), "{what}"),
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn rows_in_any_order_have_whole_vectors() {
    let a = ring(90, 1, 0.3);
    let (n, b) = (a.rows(), Random(302).numbers(a.rows()));
    let terms = krylith_core::operator::Terms::csr(&a).unwrap();
    let owner = (0..n).map(|i| (i * 7 % 3) as u32).collect();
    let parts = split(&terms, &Partition::new(owner, 3).unwrap()).unwrap();
    for share in ["halo", "lra+rc", "nz:2"] {
        let text = format!("device=cpu threads=1 rtol=1e-11 method=gmres precond=jacobi share={share}");
        let options: Options = text.parse().unwrap();
        let all = Team::run(3, |comm| {
            let numbers: Vec<u64> = parts[comm.rank()].rows.iter().rev().copied().collect();
            let mut rows = RowBlocks { row_ptr: vec![0], ..RowBlocks::default() };
            for &i in &numbers {
                let (col, values) = a.row(i as usize);
                rows.col.extend(col.iter().map(|&j| u64::from(j)));
                rows.values.extend(values);
                rows.row_ptr.push(rows.col.len());
            }
            let own: Vec<f64> = numbers.iter().map(|&i| b[i as usize]).collect();
            let terms = vec![(Dense::identity(1), rows)];
            let problem = Problem::distributed(comm, Rows { numbers: numbers.clone(), block: 1, terms })?;
            let mut x = vec![0.0; own.len()];
            assert!(Solver::new(problem, &options)?.solve(&own, &mut x)?.converged());
            Ok((numbers, x))
        });
        let mut whole = vec![0.0; n];
        for (numbers, x) in all.unwrap() {
            numbers.iter().zip(x).for_each(|(&i, x)| whole[i as usize] = x);
        }
        let left = relative_residual(&a, &b, &whole);
        assert!(left <= 1.01e-11, "{share}: {left:e}");
    }
}

#[test]
fn new_values_reach_whole_vectors() {
    let a = ring(80, 2, 0.2);
    let mut new = a.clone();
    new.values_mut().iter_mut().enumerate().for_each(|(e, v)| *v *= 1.0 + 0.03 * (e % 5) as f64);
    let b = Random(303).numbers(a.rows());
    let options = "device=cpu threads=1 rtol=1e-11 method=bicgstab precond=jacobi share=lra+rc";
    let (options, cuts): (Options, _) = (options.parse().unwrap(), runs(a.rows(), 2, 3));
    let parts = Team::run(3, |comm| {
        let (from, to) = (cuts[comm.rank()], cuts[comm.rank() + 1]);
        let problem = Problem::distributed_csr(comm, &run(&a, from, to), Some(2))?;
        let mut solver = Solver::new(problem, &options)?;
        let mut x = vec![0.0; to - from];
        assert!(solver.solve(&b[from..to], &mut x)?.converged());
        solver.update_values(run(&new, from, to).values())?;
        assert!(solver.solve(&b[from..to], &mut x)?.converged());
        Ok(x)
    });
    let left = relative_residual(&new, &b, &parts.unwrap().concat());
    assert!(left <= 1.01e-11, "{left:e}");
}

/// Returns the error of every rank if a problem is set up with these options.
fn refused(
    make: impl Fn(Arc<dyn Communicator>) -> Result<Problem<'static>> + Sync,
    options: &str,
) -> Vec<String> {
    let options: Options = options.parse().unwrap();
    let all = Team::run(2, |comm| {
        let made = make(comm).and_then(|problem| Solver::new(problem, &options));
        Ok(made.err().map(|e| e.to_string()).unwrap_or_default())
    });
    all.unwrap()
}

#[test]
fn systems_that_need_distributed_vectors_are_refused_with_the_remedy() {
    let a = ring(40, 1, 0.0);
    let cuts = runs(40, 1, 2);
    let plain = |comm: Arc<dyn Communicator>| {
        let own = run(&a, cuts[comm.rank()], cuts[comm.rank() + 1]);
        Problem::distributed_csr(comm, &own, Some(1))
    };
    for (options, words) in [
        ("share=nz precond=ildu", "only jacobi and none support, and not ildu"),
        ("share=lra precond=jacobi then jacobi", "and not jacobi then jacobi"),
        ("share=2nz precision=f32", "precision=f64"),
        ("share=nz:4 equilibrate=true", "equilibrate=true"),
        ("share=fused matching=on", "matching=on"),
    ] {
        for error in refused(plain, &format!("device=cpu threads=1 {options}")) {
            assert!(error.contains(words) && error.contains("use share=halo"), "{options}: {error:?}");
        }
    }
    let constant = |comm: Arc<dyn Communicator>| {
        let own = cuts[comm.rank() + 1] - cuts[comm.rank()];
        plain(comm)?.with_null_vectors(vec![vec![1.0; own]])
    };
    for error in refused(constant, "device=cpu threads=1 share=nz") {
        assert!(error.contains("null vectors") && error.contains("use share=halo"), "{error:?}");
    }
}

#[test]
fn a_choice_without_effect_is_reported() {
    let a = ring(60, 1, 0.0);
    let b = Random(304).numbers(60);
    for (ranks, options, words) in [
        (1, "share=nz", "share=nz has no effect: one device solves"),
        (2, "share=auto precond=ildu", "share=auto has no effect: every rank applies the preconditioner"),
        (2, "share=auto deterministic=true", "deterministic=true excludes choices by measured times"),
    ] {
        let options = format!("device=cpu threads=1 rtol=1e-10 {options}");
        let (x, solution) = solved(&a, 1, ranks, &options, &b).unwrap();
        assert!(relative_residual(&a, &b, &x) <= 1.01e-10);
        let said = solution.events.iter().any(|e| e.detail.contains(words));
        assert!(said, "{options}: {:?}", solution.events);
    }
    let one = |v: f64| Bsr::new(1, 1, 1, vec![0, 1], vec![0], vec![v]).unwrap();
    let sum = KroneckerSum::new(Dense::identity(2), Dense::identity(2), 0.5, one(2.0), one(4.0)).unwrap();
    let mut x = [0.0; 2];
    let mut solver = Solver::new(&sum, &"share=nz device=cpu".parse().unwrap()).unwrap();
    assert!(solver.solve(&[8.0, 4.0], &mut x).unwrap().converged());
}

#[test]
fn without_a_named_preconditioner_whole_vectors_take_jacobi_or_none() {
    // The diagonal of the second system has a zero, so Jacobi cannot be built.
    let a = ring(60, 1, 0.4);
    let mut entries: Vec<(u32, u32, f64)> = (0..60u32)
        .flat_map(|i| {
            let (col, values) = a.row(i as usize);
            col.iter().zip(values).map(move |(&j, &v)| (i, j, v)).collect::<Vec<_>>()
        })
        .collect();
    let b = Random(305).numbers(60);
    for expected in ["jacobi", "none"] {
        let a = Csr::from_triplets(60, 60, &entries).unwrap();
        let options = "device=cpu threads=1 rtol=1e-9 share=nz method=gmres:restart=60";
        let (x, solution) = solved(&a, 1, 2, options, &b).unwrap();
        assert_eq!(solution.precond.name, expected);
        assert!(relative_residual(&a, &b, &x) <= 1.01e-9);
        entries.retain(|&(i, j, _)| (i, j) != (7, 7));
    }
}
