//! Restricted additive Schwarz through a solver, and what its plans are.

use crate::common::*;
use crate::conformance::schwarz;
use krylith_core::comm::{Communicator, Solo, Team};
use krylith_core::device::cpu::{Cpu, Pool};
use krylith_core::matrix::{Bsr, Csr, Dense, KroneckerSum};
use krylith_core::operator::Terms;
use krylith_core::partition::{Partition, Subdomains, assign, split};
use krylith_core::precond::{PrecondSpec, SchwarzPattern, SchwarzPlan, Value};
use krylith_core::solver::EventKind;
use krylith_core::{Options, Outcome, Problem, Solver};
use std::sync::Arc;

#[test]
fn schwarz_of_ranks_is_that_of_one() {
    let share = |comm: &Arc<dyn Communicator>, n: usize| {
        Ok(Cpu::distributed(n, Arc::new(Pool::eager(2)), comm.clone()))
    };
    schwarz::schwarz_of_ranks(&[1, 2, 3, 4], &|n| eager(n, 2), &share);
}

/// Convection and diffusion on a square, in b×b blocks that couple components weakly.
fn convection(side: usize, b: usize) -> Bsr {
    let n = side * side;
    let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    for i in 0..n {
        let (x, y) = (i % side, i / side);
        let mut add = |there: bool, j: usize, v: f64| {
            if there {
                col.push(j as u32);
                values.extend((0..b * b).map(|e| match (i == j, e / b == e % b) {
                    (_, true) => v,
                    (true, false) => 0.1,
                    _ => 0.0,
                }));
            }
        };
        add(y > 0, i.wrapping_sub(side), -1.3);
        add(x > 0, i.wrapping_sub(1), -1.4);
        add(true, i, 4.05);
        add(x + 1 < side, i + 1, -0.6);
        add(y + 1 < side, i + side, -0.7);
        row_ptr.push(col.len());
    }
    Bsr::new(b, n, n, row_ptr, col, values).unwrap()
}

fn iterations(a: &Bsr, options: &str) -> usize {
    let options: Options = format!("device=cpu rtol=1e-8 {options}").parse().unwrap();
    let problem = Problem::bsr(a).unwrap();
    let mut solver = Solver::new(&problem, &options).unwrap();
    let n = a.rows();
    let exact: Vec<f64> = (0..n).map(|i| (i as f64 * 0.37).sin()).collect();
    let csr = a.to_csr();
    let row = |i: usize| csr.row(i).0.iter().zip(csr.row(i).1).map(|(&j, v)| v * exact[j as usize]).sum();
    let b: Vec<f64> = (0..n).map(row).collect();
    let mut x = vec![0.0; n];
    let solution = solver.solve(&b, &mut x).unwrap();
    assert_eq!(solution.outcome(), Outcome::Converged, "{options}");
    let d = distance(&x, &exact);
    assert!(d <= 1e-5, "{options}: {d:e}");
    solution.history.iterations
}

#[test]
fn methods_converge_faster_with_overlap_and_fill() {
    let a = convection(48, 3);
    for method in ["gmres", "bicgstab"] {
        let with = |precond: &str| iterations(&a, &format!("method={method} precond={precond}"));
        let jacobi = with("jacobi");
        let (plain, overlapping) =
            (with("ras:parts=4,overlap=0"), with("ras:parts=4,overlap=2,fill=1,solve=random"));
        assert!(overlapping < plain && plain < jacobi, "{method}: {overlapping}, {plain}, {jacobi}");
        // Five sweeps of either kind are nearly exact: they need about as many iterations as exact factors
        // and solves.
        let exact = with("ras:parts=4,overlap=2,fill=1,factor=exact,solve=exact");
        assert!(overlapping as f64 <= 1.15 * exact as f64 + 1.0, "{method}: {overlapping} for {exact}");
        let jacobi = with("ras:parts=4,overlap=2,fill=1,solve=jacobi,gamma=10,order=rcm,deterministic");
        assert!(jacobi as f64 <= 1.3 * exact as f64 + 1.0, "{method}: {jacobi} for {exact}");
    }
}

#[test]
fn reports_say_what_ras_is() {
    let a = convection(20, 2);
    let options: Options =
        "device=cpu precond=ras:parts=5,overlap=1,fill=1,eta=5,solve=random".parse().unwrap();
    let problem = Problem::bsr(&a).unwrap();
    let mut solver = Solver::new(&problem, &options).unwrap();
    let (b, mut x) = (vec![1.0; 800], vec![0.0; 800]);
    let solution = solver.solve(&b, &mut x).unwrap();
    let info = &solution.precond;
    assert_eq!(
        (&info.name[..], &info.text[..]),
        ("ras", "restricted additive Schwarz with overlap 1, ILU(1)")
    );
    for (key, value) in [("subdomains", 5), ("overlap", 1), ("eta", 5), ("gamma", 5), ("fdp", 16)] {
        assert!(info.parameters.contains(&(key.into(), Value::Count(value))), "{key}: {:?}", info.parameters);
    }
    assert!(solution.events.iter().all(|e| e.kind != EventKind::Fallback), "{:?}", solution.events);
    // New values for which one sweep from the old factors is far off: exact factors replace them, and the
    // solution reports it.
    let options: Options = "device=cpu precond=ras:eta=1,fdp=1 method=gmres".parse().unwrap();
    let mut solver = Solver::new(&problem, &options).unwrap();
    solver.solve(&b, &mut x).unwrap();
    let other: Vec<f64> = a.values().iter().enumerate().map(|(k, v)| v * (1.0 + (k % 7) as f64)).collect();
    solver.update_values(&other[..]).unwrap();
    let events = &solver.solve(&b, &mut x).unwrap().events;
    let told = |e: &krylith_core::solver::Event| {
        e.kind == EventKind::Fallback && e.detail.contains("uses exact factors")
    };
    assert!(events.iter().any(told), "{events:?}");
}

#[test]
fn parts_do_not_depend_on_ranks() {
    let a = convection(24, 1);
    let terms = Terms::bsr(&a);
    for (text, points) in [("ras:parts=6", false), ("ras:parts=6", true)] {
        let spec = text.parse::<PrecondSpec>().unwrap().subdomains(1);
        let points: Option<Vec<[f64; 3]>> =
            points.then(|| (0..576).map(|i| [(i % 24) as f64, (i / 24) as f64, 0.0]).collect());
        let of = |ranks: usize| {
            let all = assign(&terms, points.as_deref(), None, ranks, Default::default(), spec).unwrap();
            let (_, subdomains, _) = all.subdomains.as_ref().unwrap();
            // Every rank has whole ones.
            for rows in all.partition.rows() {
                let own = all.local(&rows).unwrap().unwrap().subdomains;
                assert_eq!(own.block_rows(), rows.len());
            }
            subdomains.clone()
        };
        let one = of(1);
        assert_eq!(one.count(), 6);
        assert!(one.largest() <= 110, "{}", one.largest());
        assert!((2..=6).all(|ranks| of(ranks) == one));
    }
}

#[test]
fn solvers_of_ranks_solve_as_one() {
    let a = convection(30, 2);
    let one = iterations(&a, "method=bicgstab precond=ras:parts=6,overlap=1,fill=1,deterministic");
    let terms = Terms::bsr(&a);
    let options: Options =
        "device=cpu threads=1 rtol=1e-8 method=bicgstab precond=ras:parts=6,overlap=1,fill=1,deterministic"
            .parse()
            .unwrap();
    let n = a.rows();
    let exact: Vec<f64> = (0..n).map(|i| (i as f64 * 0.37).sin()).collect();
    let csr = a.to_csr();
    let row = |i: usize| csr.row(i).0.iter().zip(csr.row(i).1).map(|(&j, v)| v * exact[j as usize]).sum();
    let rhs: Vec<f64> = (0..n).map(row).collect();
    for ranks in [2, 3] {
        let all = assign(&terms, None, None, ranks, Default::default(), options.subdomains(2)).unwrap();
        let parts = split(&terms, &all.partition).unwrap();
        let counts = Team::run(ranks, |comm| {
            let part = parts[comm.rank()].clone();
            let own = |whole: &[f64]| -> Vec<f64> {
                part.rows.iter().flat_map(|&i| &whole[i as usize * 2..][..2]).copied().collect()
            };
            let (b, expected) = (own(&rhs), own(&exact));
            let subdomains = all.local(&part.rows)?;
            let problem = Problem::part(comm, part)?.with_subdomains(subdomains);
            let mut solver = Solver::new(&problem, &options)?;
            let mut x = vec![0.0; b.len()];
            let solution = solver.solve(&b, &mut x)?;
            assert_eq!(solution.outcome(), Outcome::Converged);
            assert!(distance(&x, &expected) <= 1e-5);
            Ok(solution.history.iterations)
        });
        assert!(
            counts.as_ref().unwrap().iter().all(|&count| count.abs_diff(one) <= 1),
            "{one} for {counts:?}"
        );
    }
}

#[test]
fn other_systems_are_refused() {
    let a = convection(5, 1);
    let two = KroneckerSum::new(Dense::identity(2), Dense::identity(2), 0.1, a.clone(), a.clone()).unwrap();
    let plan = |terms: &Terms, subdomains: &Subdomains| {
        let made = SchwarzPlan::new(&Solo, terms, None, subdomains, SchwarzPattern::default());
        made.unwrap_err().to_string()
    };
    let error = plan(&Terms::kronecker(&two), &Subdomains::whole(25));
    assert!(error.contains("2 terms and 2 stages") && error.contains("stage(ras)"), "{error}");
    let error = plan(&Terms::bsr(&a), &Subdomains::whole(24));
    assert!(error.contains("the subdomains have 24 block rows, but the matrix has 25"), "{error}");
    let rectangle = Csr::from_triplets(2, 3, &[(0, 0, 1.0), (1, 2, 1.0)]).unwrap();
    let error = plan(&Terms::csr(&rectangle).unwrap(), &Subdomains::whole(2));
    assert!(error.contains("square"), "{error}");
    let options: Options = "device=cpu precond=ras:parts=26".parse().unwrap();
    let error = Solver::new(&Problem::bsr(&a).unwrap(), &options).err().unwrap().to_string();
    assert!(error.contains("25 block rows cannot be cut into 26 parts"), "{error}");
}

/// A rank whose factors meet a zero pivot, and one whose do not, end alike.
#[test]
fn a_rank_without_factors_takes_the_others_along() {
    let (side, mut a) = (8, convection(8, 1));
    let row = a.row_ptr()[3]..a.row_ptr()[4];
    a.values_mut()[row].fill(0.0);
    let terms = Terms::bsr(&a);
    let owner = (0..side * side).map(|i| (2 * i / (side * side)) as u32).collect();
    let parts = split(&terms, &Partition::new(owner, 2).unwrap()).unwrap();
    let options: Options = "device=cpu precond=ras method=gmres".parse().unwrap();
    let said = Team::run(2, |comm| {
        let part = parts[comm.rank()].clone();
        let problem = Problem::part(comm as Arc<dyn Communicator>, part)?;
        Ok(Solver::new(problem, &options).err().map(|e| e.to_string()))
    });
    let said: Vec<String> = said.unwrap().into_iter().flatten().collect();
    assert_eq!(said.len(), 2);
    assert!(said.iter().all(|e| e.contains("zero pivot in block row 3")), "{said:?}");
}
