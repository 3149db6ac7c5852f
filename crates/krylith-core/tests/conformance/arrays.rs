//! Problems from arrays on the host: a solver on a GPU gets them uploaded, and finds the same as on the host.

use super::*;
use krylith_core::matrix::{Bsr, Csr};
use krylith_core::memory::Numbers;
use krylith_core::{Options, Problem, Solver};

/// Couples `b` fields at `side`³ nodes by full blocks: the 7-point stencil in each field, plus `shift` on the
/// diagonal. With `free` ends its rows sum to the shift.
fn coupled(side: usize, b: usize, shift: f64, free: bool) -> Csr {
    let n = side * side * side;
    let mut entries = Vec::new();
    for i in 0..n {
        let at = [i % side, i / side % side, i / (side * side)];
        let mut near = vec![(i, if free { 0.0 } else { 6.0 })];
        for (axis, step) in [1, side, side * side].into_iter().enumerate() {
            near.extend((at[axis] > 0).then(|| (i - step, -1.0)));
            near.extend((at[axis] + 1 < side).then(|| (i + step, -1.0)));
        }
        if free {
            near[0].1 = (near.len() - 1) as f64;
        }
        for (j, v) in near {
            for (r, c) in (0..b).flat_map(|r| (0..b).map(move |c| (r, c))) {
                let own = if r == c { v } else { 0.01 * v } + if i == j && r == c { shift } else { 0.0 };
                entries.push(((i * b + r) as u32, (j * b + c) as u32, own));
            }
        }
    }
    Csr::from_triplets(n * b, n * b, &entries).unwrap()
}

/// Solves with ones, and returns iterations, x and the constants that the set-up found.
fn answer(problem: &Problem, options: &Options) -> (usize, Vec<f64>, String) {
    let mut solver = Solver::new(problem, options).unwrap();
    let (b, mut x) = (vec![1.0; problem.own_len()], vec![0.0; problem.own_len()]);
    let solution = solver.solve(&b, &mut x).unwrap();
    let (count, found) = (solution.history.iterations, solution.diagnosis.constants.to_string());
    assert!(solution.converged() || !found.is_empty(), "{}", solution.outcome());
    (count, x, found)
}

fn same(text: &str, one: &Problem, other: &Problem, options: &Options) {
    assert_eq!((one.block(), one.unknowns()), (other.block(), other.unknowns()), "{text}");
    let ((count, x, found), (expected, y, constants)) = (answer(one, options), answer(other, options));
    assert_eq!((found, count), (constants, expected), "{text}");
    assert!(distance(&x, &y) <= 1e-12, "{text}: {:e}", distance(&x, &y));
}

/// Row pointers and columns of an application.
fn indices<I: TryFrom<usize>, J: TryFrom<u32>>(a: &Csr) -> (Vec<I>, Vec<J>) {
    let row_ptr = a.row_ptr().iter().map(|&p| I::try_from(p).ok().unwrap()).collect();
    (row_ptr, a.col().iter().map(|&j| J::try_from(j).ok().unwrap()).collect())
}

/// Matrices of scalars and of blocks, with indices of any width and with new values.
pub fn arrays_solve_as_matrices_do(device: &str) {
    let options: Options = format!("device={device} rtol=1e-10 precond=jacobi method=cg").parse().unwrap();
    let scalars = coupled(34, 1, 0.0, false);
    for (name, a, block) in [("scalars", &scalars, None), ("blocks", &coupled(17, 3, 1.0, false), Some(3))] {
        let given = Problem::csr_in_blocks(a, block).unwrap();
        let shape = [a.rows(), a.columns()];
        let (row_ptr, col) = indices::<i32, i32>(a);
        let narrow = Problem::from_csr_arrays(shape, &row_ptr, &col, a.values(), block, &options).unwrap();
        same(name, &narrow, &given, &options);
        let (row_ptr, col) = indices::<i64, i64>(a);
        // Without a block size it is found from the pattern.
        let wide = Problem::from_csr_arrays(shape, &row_ptr, &col, a.values(), None, &options).unwrap();
        same(name, &wide, &given, &options);
        let mut solver = Solver::new(&narrow, &options).unwrap();
        let (b, mut x) = (vec![1.0; a.rows()], vec![0.0; a.rows()]);
        let new: Vec<f64> = a.values().iter().map(|v| 2.0 * v).collect();
        solver.update_values(&new).unwrap();
        assert!(solver.solve(&b, &mut x).unwrap().converged());
        let (_, y, _) = answer(&given, &options);
        x.iter_mut().for_each(|x| *x *= 2.0);
        assert!(distance(&x, &y) <= 1e-8, "{name}: new values, {:e}", distance(&x, &y));
        let mut wrong = new.clone();
        wrong[7] = f64::NAN;
        assert!(solver.update_values(&wrong).is_err());
    }
    let blocks = Bsr::from_csr(&coupled(17, 3, 1.0, false), 3).unwrap();
    let (row_ptr, col): (Vec<i64>, Vec<i32>) = (
        blocks.row_ptr().iter().map(|&p| p as i64).collect(),
        blocks.col().iter().map(|&j| j as i32).collect(),
    );
    let shape = [blocks.block_rows(); 2];
    let made = Problem::from_block_arrays(3, shape, &row_ptr, &col, blocks.values(), &options).unwrap();
    same("BSR", &made, &Problem::bsr(&blocks).unwrap(), &options);
}

/// Constants of singular systems are found, stored zeros are dropped, and wrong arrays are refused as on the
/// host.
pub fn arrays_are_judged_as_on_the_host(device: &str) {
    let options: Options = format!("device={device} rtol=1e-8 precond=jacobi method=cg").parse().unwrap();
    for (a, block, constants) in [
        (coupled(34, 1, 0.0, true), None, "constants"),
        (coupled(17, 3, 0.0, true), Some(3), "constants of every field"),
        (coupled(17, 2, 0.0, false), Some(2), ""),
    ] {
        let (row_ptr, col) = indices::<i32, i32>(&a);
        let shape = [a.rows(), a.columns()];
        let made = Problem::from_csr_arrays(shape, &row_ptr, &col, a.values(), block, &options).unwrap();
        let solver = Solver::new(&made, &options).unwrap();
        assert_eq!(solver.solution().diagnosis.constants.to_string(), constants);
        let host = Solver::new(Problem::csr_in_blocks(&a, block).unwrap(), &options).unwrap();
        assert_eq!(host.solution().diagnosis.constants, solver.solution().diagnosis.constants);
    }

    // A sample of every 55th value sees no zero, but a third of the values are.
    let mut a = coupled(34, 1, 0.0, false);
    let columns = a.col().to_vec();
    let row_of: Vec<usize> = (0..a.rows()).flat_map(|i| vec![i; a.row(i).0.len()]).collect();
    let step = a.nonzeros() / 4096;
    let mut dropped = 0;
    for (p, v) in a.values_mut().iter_mut().enumerate() {
        if p % step != 0 && row_of[p].abs_diff(columns[p] as usize) > 1 {
            (*v, dropped) = (0.0, dropped + 1);
        }
    }
    assert!(dropped * 3 > a.nonzeros());
    let (row_ptr, col) = indices::<i64, i32>(&a);
    let shape = [a.rows(), a.columns()];
    let made = Problem::from_csr_arrays(shape, &row_ptr, &col, a.values(), Some(1), &options).unwrap();
    let of = |problem: &Problem| {
        let solver = Solver::new(problem, &options).unwrap();
        let events = solver.solution().events.iter().map(|e| e.detail.clone());
        events.filter(|e| e.contains("stored zeros dropped")).collect::<Vec<_>>()
    };
    assert_eq!(of(&made), of(&Problem::csr(&a).unwrap()));

    let good = coupled(34, 1, 0.0, false);
    let (row_ptr, col) = indices::<i32, i32>(&good);
    let mut other = good.values().to_vec();
    other[3] = f64::INFINITY;
    let mut swapped = col.clone();
    swapped.swap(1, 2);
    let mut beyond = col.clone();
    beyond[5] = good.rows() as i32;
    for (col, values) in [(&col, &other[..]), (&swapped, good.values()), (&beyond, good.values())] {
        let numbers = || Numbers::from(values);
        let wrong = Problem::from_csr_arrays(shape, &row_ptr, col, numbers(), Some(1), &options);
        let host = Csr::from_arrays(good.rows(), good.columns(), &row_ptr, col, numbers());
        assert_eq!(wrong.err().unwrap().to_string(), host.unwrap_err().to_string());
    }
}

/// Rows of unlike scale are judged where the matrix is, by residuals with every row scaled to norm 1.
pub fn rows_of_unlike_scale_are_judged(device: &str) {
    let options: Options = format!("device={device} rtol=1e-9").parse().unwrap();
    for (mut a, block) in [(coupled(34, 1, 1.0, false), 1), (coupled(17, 3, 1.0, false), 3)] {
        let rows: Vec<usize> = (0..a.rows()).flat_map(|i| vec![i; a.row(i).0.len()]).collect();
        let scale = |i: usize| 10f64.powi((i / block % 9) as i32);
        a.values_mut().iter_mut().zip(&rows).for_each(|(v, &i)| *v *= scale(i));
        let (row_ptr, col) = indices::<i32, i32>(&a);
        let shape = [a.rows(), a.columns()];
        let made =
            Problem::from_csr_arrays(shape, &row_ptr, &col, a.values(), Some(block), &options).unwrap();
        let times = |x: &[f64]| -> Vec<f64> {
            let row = |i: usize| a.row(i).0.iter().zip(a.row(i).1).map(|(&j, v)| v * x[j as usize]).sum();
            (0..a.rows()).map(row).collect()
        };
        let exact: Vec<f64> = (0..a.rows()).map(|i| 1.0 + (i % 7) as f64).collect();
        let (b, mut x) = (times(&exact), vec![0.0; a.rows()]);
        let mut solver = Solver::new(&made, &options).unwrap();
        let solution = solver.solve(&b, &mut x).unwrap();
        assert!(solution.converged(), "{block}: {}", solution.outcome());
        let inverse = |i: usize| 1.0 / a.row(i).1.iter().map(|v| v.abs()).sum::<f64>();
        let scaled = |v: &[f64]| norm(&v.iter().enumerate().map(|(i, v)| v * inverse(i)).collect::<Vec<_>>());
        let expected = scaled(&minus(&b, &times(&x))) / scaled(&b);
        let found = solution.row_scaled_residual.unwrap();
        assert!(found <= 1e-9 && (found - expected).abs() <= 1e-12, "{block}: {found:e}, {expected:e}");
    }
}

/// On a GPU, multigrid comes first for large systems that are not symmetric, unless convection is strong.
pub fn strong_convection_is_left_to_ildu(device: &str) {
    let side = 84usize;
    let n = side.pow(3);
    for (wind, first) in [(0.5, "amg"), (100.0, "ildu")] {
        let mut entries = Vec::new();
        for i in 0..n {
            let at = [i % side, i / side % side, i / (side * side)];
            entries.push((i as u32, i as u32, 6.0 + 3.0 * wind));
            for (axis, step) in [1, side, side * side].into_iter().enumerate() {
                entries.extend((at[axis] > 0).then(|| (i as u32, (i - step) as u32, -1.0 - wind)));
                entries.extend((at[axis] + 1 < side).then(|| (i as u32, (i + step) as u32, -1.0)));
            }
        }
        let a = Csr::from_triplets(n, n, &entries).unwrap();
        let options: Options = format!("device={device} rtol=1e-6").parse().unwrap();
        let mut solver = Solver::new(&a, &options).unwrap();
        let (b, mut x) = (vec![1.0; n], vec![0.0; n]);
        let solution = solver.solve(&b, &mut x).unwrap();
        assert!(solution.converged(), "{wind}: {}", solution.outcome());
        assert!(solution.precond.name.starts_with(first), "{wind}: {}", solution.precond.name);
        let fallback = solution.events.iter().any(|e| e.detail.contains("next "));
        assert!(!fallback, "{wind}: {:?}", solution.events);
    }
}
