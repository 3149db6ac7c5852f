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

/// A symmetric definite system of b unknowns a cell of a grid, scaled from both sides by random factors from
/// 10^−decades to 10^decades.
fn scaled_on_both_sides(seed: u64, sides: [usize; 3], b: usize, [decades, dominant]: [f64; 2]) -> Bsr {
    let mut a = grid(&mut Random(seed), sides, b);
    let n = a.rows() as u64;
    let number = |key: u64| Random((seed << 40) ^ key).number();
    let factor = |i: u64| 10f64.powf(decades * number((1 << 39) + i));
    let (row_ptr, col) = (a.row_ptr().to_vec(), a.col().to_vec());
    for i in 0..row_ptr.len() - 1 {
        for p in row_ptr[i]..row_ptr[i + 1] {
            for e in 0..b * b {
                let (r, c) = ((i * b + e / b) as u64, (col[p] as usize * b + e % b) as u64);
                let diagonal = if r == c { dominant * b as f64 } else { 0.0 };
                let value = number(r.min(c) * n + r.max(c)) + diagonal;
                a.values_mut()[p * b * b + e] = value * factor(r) * factor(c);
            }
        }
    }
    a
}

/// Largest component of D⁻¹(b − A x) over that of D⁻¹b, where D has the 1-norms of the rows.
fn residual_by_rows(a: &Bsr, b: &[f64], x: &[f64]) -> f64 {
    let a = a.to_csr();
    let (mut r, mut whole) = (0f64, 0f64);
    for (i, b) in b.iter().enumerate() {
        let row = a.row_ptr()[i]..a.row_ptr()[i + 1];
        let norm: f64 = a.values()[row.clone()].iter().map(|v| v.abs()).sum();
        let product: f64 = row.map(|p| a.values()[p] * x[a.col()[p] as usize]).sum();
        (r, whole) = (r.max((b - product).abs() / norm), whole.max(b.abs() / norm));
    }
    r / whole
}

/// Errors of f32 spread over the rows of a graded system, and some rows miss the tolerance that they meet in
/// f64. Jacobi at a scale beyond f32 is 0 or infinite. Such attempts are repeated in f64.
pub fn failures_are_repeated_in_f64(device: &str) {
    for (seed, nodes) in [(3, 40), (43, 90), (93, 40), (133, 90)] {
        let a = scaled_on_both_sides(seed, [nodes, 1, 1], 3, [12.0, 5.0]);
        let y = (0..a.rows() as u64).map(|i| Random((seed << 40) ^ ((3 << 38) + i)).number());
        let b = times_blocks(&a, &y.collect::<Vec<_>>());
        let problem = Problem::bsr(&a).unwrap();
        for (precision, repeats) in [("f64", false), ("f32", true)] {
            let text = format!("device={device} precond_precision={precision} rtol=1e-8");
            let mut solver = Solver::new(&problem, &text.parse().unwrap()).unwrap();
            let mut x = vec![0.0; b.len()];
            let solution = solver.solve(&b, &mut x).unwrap();
            let what = format!("seed {seed} in {precision}: {:?}", solution.events);
            assert_eq!(solution.outcome(), Outcome::Converged, "{what}");
            assert_eq!(
                solution.events.iter().any(|event| event.detail.ends_with(" in f64")),
                repeats,
                "{what}"
            );
            let by_rows = residual_by_rows(&a, &b, &x);
            assert!(by_rows <= 1e-7, "{by_rows:e}, {what}");
            // The next solve begins in f64.
            let solution = solver.solve(&b, &mut [0.0].repeat(b.len())).unwrap();
            let again = solution.events.iter().any(|event| event.detail.contains("in f64"));
            assert!(solution.converged() && !again, "{:?}", solution.events);
        }
    }
    let mut rng = Random(97);
    let ranks = if device == "cpu" { vec![1, 3] } else { vec![1] };
    for (b, method) in [(1, "gmres"), (3, "bicgstab")] {
        let plain = grid(&mut rng, [7, 5, 4], b);
        let exact = rng.numbers(plain.rows());
        for &ranks in &ranks {
            for factor in [1e200, 1e-200] {
                let a = scaled(&plain, factor);
                let [one, two] = ["f64", "f32"].map(|precision| {
                    let text = format!("device={device} method={method} precond=jacobi precond_precision={precision} rtol=1e-9");
                    solved(&a, &times_blocks(&a, &exact), &text.parse().unwrap(), ranks)
                });
                let what = format!("b={b}, {ranks} ranks, {factor:e}");
                assert_eq!((one.2, two.2), (Outcome::Converged, Outcome::Converged), "{what}");
                assert!(
                    distance(&two.0, &exact) <= 1e-7 && two.1 <= one.1 + 5,
                    "{what}: {} {}",
                    one.1,
                    two.1
                );
            }
        }
    }
}
