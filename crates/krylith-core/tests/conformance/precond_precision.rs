//! Whole solves with `precond_precision=f32`: the same answers as in f64, and reports that say how.

use super::factors_f32::{graded, scaled};
use super::ildu::grid;
use crate::common::*;
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::Bsr;
use krylith_core::operator::Terms;
use krylith_core::partition::{Partition, split};
use krylith_core::precond::{PrecondInfo, Value};
use krylith_core::{Options, Outcome, Problem, Solver};
use std::sync::Arc;

/// x, iterations, outcome and preconditioner.
type Answer = (Vec<f64>, usize, Outcome, Arc<PrecondInfo>);

fn solved(a: &Bsr, b: &[f64], options: &Options, ranks: usize) -> Answer {
    let take = |solver: &mut Solver, b: &[f64]| -> krylith_core::Result<Answer> {
        let mut x = vec![0.0; b.len()];
        let solution = solver.solve(b, &mut x)?;
        let history = &solution.history;
        Ok((x, history.iterations, history.outcome, solution.precond.clone()))
    };
    if ranks == 1 {
        let problem = Problem::bsr(a).unwrap();
        return take(&mut Solver::new(&problem, options).unwrap(), b).unwrap();
    }
    let (terms, run) = (Terms::bsr(a), a.block());
    let parts = split(&terms, &Partition::by_rows(terms.block_rows(), ranks).unwrap()).unwrap();
    let all = Team::run(ranks, |comm| {
        let part = parts[comm.rank()].clone();
        let rows = part.rows.clone();
        let own: Vec<f64> = rows.iter().flat_map(|&i| &b[i as usize * run..][..run]).copied().collect();
        let mut solver = Solver::new(Problem::part(comm as Arc<dyn Communicator>, part)?, options)?;
        Ok((rows, take(&mut solver, &own)?))
    });
    let (mut x, all) = (vec![0.0; b.len()], all.unwrap());
    for (rows, (own, ..)) in &all {
        for (i, own) in rows.iter().zip(own.chunks_exact(run)) {
            x[*i as usize * run..][..run].copy_from_slice(own);
        }
    }
    let (_, iterations, outcome, info) = &all[0].1;
    assert!(all.iter().all(|(_, one)| one.1 == *iterations && one.3.parameters == info.parameters));
    (x, *iterations, *outcome, info.clone())
}

/// Blocks of several orders, subdomains of odd sizes, and ranks: f32 finds the x of f64 in about as many
/// iterations, at any scale. Graded rows are promoted, and the report says so.
pub fn solves_in_f32(device: &str) {
    let mut rng = Random(96);
    let ranks = if device == "cpu" { vec![1, 2, 3] } else { vec![1] };
    for b in [1, 2, 3, 5] {
        let plain = grid(&mut rng, [9, 7, 6], b);
        let exact = rng.numbers(plain.rows());
        let up = |i: usize| 10f64.powi((i * 7 % 61) as i32 - 30);
        let promoted = graded(&plain, up, |_| 1.0);
        for precond in
            ["ildu", "ildu:rows=33", "ildu:fill=1,rows=7", "ras:overlap=2", "ras:solve=jacobi,gamma=6"]
        {
            for &ranks in &ranks {
                let of = |a: &Bsr, precision: &str, rtol: f64| {
                    let text = format!(
                        "device={device} method=gmres precond={precond} precond_precision={precision} rtol={rtol}"
                    );
                    solved(a, &times_blocks(a, &exact), &text.parse().unwrap(), ranks)
                };
                for factor in [1.0, 1e140, 1e-140] {
                    let what = format!("{precond}, b={b}, {ranks} ranks, {factor:e}");
                    let a = scaled(&plain, factor);
                    // The x of one cycle has the digits of f32. Below that, GMRES restarts.
                    let (_, many, outcome, info) = of(&a, "f32", 1e-6);
                    let (_, most, ..) = of(&a, "f64", 1e-6);
                    assert_eq!(outcome, Outcome::Converged, "{what}");
                    assert!(many <= most + most.div_ceil(10), "{what}: {many} and {most}");
                    let [(x, many, outcome, _), (y, most, ..)] = ["f32", "f64"].map(|p| of(&a, p, 1e-10));
                    assert_eq!(outcome, Outcome::Converged, "{what}");
                    let (d, e) = (distance(&x, &exact), distance(&x, &y));
                    assert!(d <= 1e-8 && e <= 1e-8, "{what}: {d:e}, {e:e}");
                    assert!(many <= 2 * most, "{what}: {many} and {most}");
                    let told = ("compute".to_string(), Value::Text("f32".into()));
                    assert!(info.parameters.contains(&told), "{what}: {:?}", info.parameters);
                }
                // Randomized sweeps of a GPU differ from run to run unless they are deterministic.
                let fixed = if device == "cpu" { "" } else { " deterministic=true" };
                let what = format!("{precond}, b={b}, {ranks} ranks, graded");
                let [(x, many, outcome, info), (y, most, same, _)] =
                    ["f32", "f64"].map(|p| of(&promoted, &format!("{p}{fixed}"), 1e-8));
                assert_eq!((many, outcome), (most, same), "{what}");
                assert!(x == y, "{what}");
                let told = ("compute".to_string(), Value::Text("f64".into()));
                assert!(info.parameters.contains(&told), "{what}: {:?}", info.parameters);
                assert!(info.details.iter().any(|line| line.contains("too large for f32")), "{what}");
            }
        }
    }
}
