//! Rows of very different scale: an answer counts only if it is right in the rows that do not carry ‖b‖.

use crate::common::Random;
use crate::recognised::{Coupled, elements, options};
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::Csr;
use krylith_core::solver::{EventKind, Solution};
use krylith_core::{Problem, Solver};

/// The Laplacian of a square with f = 1, whose boundary values are imposed by a penalty on the diagonal, and
/// its x.
fn penalised(side: usize, penalty: f64, convection: f64) -> (Csr, Vec<f64>, Vec<f64>) {
    let n = side * side;
    let value = |i: usize| 1.0 + (i % side) as f64 / side as f64;
    let (mut entries, mut b, mut fixed) = (Vec::new(), vec![1.0; n], Vec::new());
    for i in 0..n {
        let (x, y) = (i % side, i / side);
        let edge = x == 0 || y == 0 || x + 1 == side || y + 1 == side;
        entries.push((i as u32, i as u32, if edge { penalty } else { 4.0 }));
        if edge {
            b[i] = penalty * value(i);
            fixed.push((i as u32, i as u32, 1.0));
        } else {
            fixed.push((i as u32, i as u32, 4.0));
        }
        for (ok, j, v) in [
            (x > 0, i.wrapping_sub(1), -1.0 - convection),
            (x + 1 < side, i + 1, -1.0 + convection),
            (y > 0, i.wrapping_sub(side), -1.0),
            (y + 1 < side, i + side, -1.0),
        ] {
            if ok {
                entries.push((i as u32, j as u32, v));
                if !edge {
                    fixed.push((i as u32, j as u32, v));
                }
            }
        }
    }
    let a = Csr::from_triplets(n, n, &entries).unwrap();
    // The limit of an infinite penalty, which differs by 1/penalty.
    let limit = Csr::from_triplets(n, n, &fixed).unwrap();
    let rhs: Vec<f64> = (0..n).map(|i| if b[i] > 10.0 { value(i) } else { 1.0 }).collect();
    let mut x = vec![0.0; n];
    let options = "device=cpu rtol=1e-13 precond=lu method=gmres".parse().unwrap();
    Solver::new(&limit, &options).unwrap().solve(&rhs, &mut x).unwrap();
    (a, b, x)
}

fn error(x: &[f64], exact: &[f64]) -> f64 {
    let worst = x.iter().zip(exact).map(|(x, e)| (x - e).abs()).fold(0.0, f64::max);
    worst / exact.iter().fold(0.0f64, |m, v| m.max(v.abs()))
}

fn warned(solution: &Solution) -> bool {
    solution.events.iter().any(|e| e.kind == EventKind::Warning && e.detail.contains("norm 1"))
}

#[test]
fn new_values_may_be_those_of_penalties() {
    for ranks in [1, 3] {
        let (first, ..) = penalised(24, 10.0, 0.0);
        let (a, b, exact) = penalised(24, 1e10, 0.0);
        let n = b.len();
        let off = Team::run(ranks, |comm| {
            let rows = comm.rank() * n / ranks..(comm.rank() + 1) * n / ranks;
            let entries = a.row_ptr()[rows.start]..a.row_ptr()[rows.end];
            let ptr = (rows.start..=rows.end).map(|i| a.row_ptr()[i] - entries.start).collect();
            let (col, values) = (a.col()[entries.clone()].to_vec(), first.values()[entries.clone()].to_vec());
            let own = Csr::new(rows.len(), n, ptr, col, values)?;
            let problem = Problem::distributed_csr(comm.clone(), &own, Some(1))?;
            let mut solver = Solver::new(&problem, &"device=cpu rtol=1e-8".parse()?)?;
            let mut x = vec![0.0; rows.len()];
            assert!(solver.solve(&b[rows.clone()], &mut x)?.row_scaled_residual.is_none(), "even rows");
            solver.update_values(&a.values()[entries])?;
            x.fill(0.0);
            let solution = solver.solve(&b[rows.clone()], &mut x)?;
            assert!(solution.converged() && solution.row_scaled_residual.unwrap() <= 1e-8);
            Ok(error(&x, &exact[rows]))
        });
        assert!(off.unwrap().iter().all(|off| *off < 1e-4), "{ranks} ranks");
    }
}

#[test]
fn penalties_do_not_hide_the_other_rows() {
    let cases = [(0.0, 24), (0.4, 24), (0.0, 80)].map(|case| [1e10, 1e20, 1e30].map(|size| (case, size)));
    for ((convection, side), size) in cases.into_iter().flatten() {
        for rtol in [1e-6, 1e-10] {
            let (a, b, exact) = penalised(side, size, convection);
            let options = format!("device=cpu rtol={rtol}").parse().unwrap();
            let (mut solver, mut x) = (Solver::new(&a, &options).unwrap(), vec![0.0; b.len()]);
            let solution = solver.solve(&b, &mut x).unwrap().clone();
            let what = format!("{side}², {size:e}, convection {convection}, {rtol:e}: {:?}", solution.events);
            assert!(solution.converged() && !warned(&solution), "{what}");
            assert!(solution.row_scaled_residual.unwrap() <= rtol, "{what}");
            assert!(solution.history.true_relative_residual <= rtol, "{what}");
            assert!(error(&x, &exact) < 1e4 * rtol, "{what}: off by {:e}", error(&x, &exact));
            // The same with other values, and again.
            let twice: Vec<f64> = a.values().iter().map(|v| 2.0 * v).collect();
            solver.update_values(&twice).unwrap();
            for _ in 0..2 {
                x.fill(0.0);
                assert!(solver.solve(&b, &mut x).unwrap().converged());
                let half: Vec<f64> = exact.iter().map(|v| 0.5 * v).collect();
                assert!(error(&x, &half) < 1e4 * rtol, "{what}: new values");
            }
        }
    }
}

#[test]
fn a_method_that_is_named_keeps_its_criterion_and_warns() {
    let (a, b, exact) = penalised(24, 1e10, 0.0);
    for method in ["bicgstab", "gmres", "cg"] {
        let options = format!("device=cpu rtol=1e-6 method={method} precond=jacobi").parse().unwrap();
        let (mut solver, mut x) = (Solver::new(&a, &options).unwrap(), vec![0.0; b.len()]);
        let solution = solver.solve(&b, &mut x).unwrap();
        assert!(solution.converged() && solution.history.true_relative_residual <= 1e-6);
        assert!(warned(solution), "{method}: {:?}", solution.events);
        assert!(solution.row_scaled_residual.unwrap() > 1e-3 && error(&x, &exact) > 1e-2, "{method}");
    }
    // Rows of one scale are not looked at.
    let (a, b, _) = penalised(24, 4.0, 0.0);
    let solution = krylith_core::solve(&a, &b).unwrap();
    assert!(solution.converged() && solution.row_scaled_residual.is_none());
}

#[test]
fn ranks_judge_rows_alike() {
    let (a, b, exact) = penalised(24, 1e10, 0.3);
    let n = b.len();
    let found = Team::run(3, |comm| {
        let rows = comm.rank() * n / 3..(comm.rank() + 1) * n / 3;
        let ptr: Vec<usize> =
            (rows.start..=rows.end).map(|i| a.row_ptr()[i] - a.row_ptr()[rows.start]).collect();
        let entries = a.row_ptr()[rows.start]..a.row_ptr()[rows.end];
        let own =
            Csr::new(rows.len(), n, ptr, a.col()[entries.clone()].to_vec(), a.values()[entries].to_vec())?;
        let problem = Problem::distributed_csr(comm.clone(), &own, Some(1))?;
        let mut solver = Solver::new(&problem, &"device=cpu rtol=1e-8".parse()?)?;
        let mut x = vec![0.0; rows.len()];
        assert!(solver.solve(&b[rows.clone()], &mut x)?.converged());
        Ok(x)
    });
    assert!(error(&found.unwrap().concat(), &exact) < 1e-4);
}

#[test]
fn rows_over_many_orders_are_all_solved() {
    let n = 300;
    for seed in 0..20u64 {
        let mut rng = Random(seed);
        let mut entries = Vec::new();
        for i in 0..n {
            let scale = 10f64.powf(9.0 * rng.number());
            entries.push((i as u32, i as u32, 4.0 * scale));
            for _ in 0..3 {
                let j = rng.below(n);
                if j != i {
                    entries.push((i as u32, j as u32, scale * rng.number()));
                }
            }
        }
        let a = Csr::from_triplets(n, n, &entries).unwrap();
        let exact: Vec<f64> = (0..n).map(|_| rng.number()).collect();
        let mut b = vec![0.0; n];
        for i in 0..n {
            b[i] = (a.row_ptr()[i]..a.row_ptr()[i + 1])
                .map(|p| a.values()[p] * exact[a.col()[p] as usize])
                .sum();
        }
        let solution = krylith_core::solve(&a, &b).unwrap();
        assert!(solution.converged(), "{seed}: {}", solution.outcome());
        assert!(error(&solution.x, &exact) < 1e-4, "{seed}: off by {:e}", error(&solution.x, &exact));
    }
}

/// Slow flow whose velocities at an edge are imposed by a penalty, with values other than zero. Its fields
/// are recognised, and those of the system with scaled rows again.
#[test]
fn penalties_of_a_saddle_point_do_not_hide_the_other_rows() {
    let Coupled { a, pressures } = elements(16, 1e-3, true);
    let n = a.rows();
    let is_edge = &|i: usize| i < pressures[0] as usize && a.row(i).0.len() == 1;
    let value = |i: usize| 1.0 + (i as f64 * 0.3).sin();
    let rhs: Vec<f64> = (0..n).map(|i| if is_edge(i) { value(i) } else { (i as f64 * 0.7).cos() }).collect();
    let mut exact = vec![0.0; n];
    let direct = "device=cpu rtol=1e-13 precond=lu method=gmres".parse().unwrap();
    for size in [1e15, 1e30] {
        // The elements leave the columns of the edge out; a strong coupling puts one of them back.
        let row = |i: usize| a.row(i).0.iter().zip(a.row(i).1).map(move |(j, v)| (i as u32, *j, *v));
        let coupled: Vec<(u32, u32, f64)> = (0..n)
            .flat_map(row)
            .map(|(i, j, v)| if i == j && is_edge(i as usize) { (i, j, size) } else { (i, j, v) })
            .chain((0..n as u32 - 2).filter(|&i| is_edge(i as usize)).flat_map(|i| {
                [(i, i + 2, -0.3), (i + 2, i, -0.3)].into_iter().filter(move |_| !is_edge(i as usize + 2))
            }))
            .collect();
        let a = Csr::from_triplets(n, n, &coupled).unwrap();
        let limit: Vec<_> = coupled
            .iter()
            .filter(|(i, j, _)| i == j || !is_edge(*i as usize))
            .map(|&(i, j, v)| (i, j, if i == j && is_edge(i as usize) { 1.0 } else { v }))
            .collect();
        let limit = Csr::from_triplets(n, n, &limit).unwrap();
        Solver::new(&limit, &direct).unwrap().solve(&rhs, &mut exact).unwrap();
        let b: Vec<f64> =
            rhs.iter().enumerate().map(|(i, v)| if is_edge(i) { size * v } else { *v }).collect();
        let (mut solver, mut x) = (Solver::new(&a, &options("")).unwrap(), vec![0.0; n]);
        assert_eq!(solver.problem().fields().len(), 2);
        let solution = solver.solve(&b, &mut x).unwrap().clone();
        assert!(solution.converged(), "{size:e}: {:?}", solution.events);
        assert!(solution.row_scaled_residual.is_some_and(|r| r <= 1e-8), "{size:e}: {:?}", solution.events);
        assert!(error(&x, &exact) < 1e-4, "{size:e}: off by {:e}", error(&x, &exact));
    }
}
