//! Singular systems on the CPU and on ranks.

use crate::common::{Random, norm};
use crate::conformance::singular;
use krylith_core::matrix::Csr;
use krylith_core::solver::EventKind;
use krylith_core::{Outcome, Solver};

const DEVICE: &str = "cpu threads=1";

#[test]
fn null_vectors_leave_the_least_squares_answer() {
    singular::null_vectors_leave_the_least_squares_answer(DEVICE);
}

#[test]
fn unknowns_of_empty_columns_keep_their_value() {
    singular::unknowns_of_empty_columns_keep_their_value(DEVICE);
}

#[test]
fn converged_is_said_of_the_x_that_comes_back() {
    singular::converged_is_said_of_the_x_that_comes_back(DEVICE);
}

#[test]
fn any_first_guess_gives_a_finite_x() {
    singular::any_first_guess_gives_a_finite_x(DEVICE);
}

#[test]
fn null_vectors_do_not_hide_the_limit_of_rounding() {
    singular::null_vectors_do_not_hide_the_limit_of_rounding(DEVICE);
}

#[test]
fn a_part_that_nothing_holds_is_found_after_an_attempt() {
    singular::a_part_that_nothing_holds_is_found_after_an_attempt(DEVICE);
}

/// Grids of springs that nothing holds, each of `side`² nodes, with multipliers that do not hold them either.
/// Unknown i of a spring counts in units of [`unit`], so that 1/unit on each grid is a null vector.
#[cfg(feature = "lu")]
fn free(side: usize, grids: usize) -> Csr {
    let (nodes, mut rng) = (side * side * grids, Random(5));
    let unit = |i: u32| if (i as usize) < nodes { unit(i as usize) } else { 1.0 };
    let mut entries: Vec<(u32, u32, f64)> = Vec::new();
    for i in 0..nodes {
        let (x, y) = (i % side, i / side % side);
        let next = [(x + 1 < side).then_some(i + 1), (y + 1 < side).then_some(i + side)];
        for j in next.into_iter().flatten() {
            let k = 1.0 + 0.5 * rng.number();
            let (i, j) = (i as u32, j as u32);
            entries.extend([(i, i, k), (j, j, k), (i, j, -k), (j, i, -k)]);
        }
        let p = (nodes + i) as u32;
        entries.push((p, p, -2.0));
        if x + 1 < side {
            let (i, j) = (i as u32, i as u32 + 1);
            entries.extend([(p, i, 1.0), (i, p, 1.0), (p, j, -1.0), (j, p, -1.0)]);
        }
    }
    entries.iter_mut().for_each(|(i, j, v)| *v *= unit(*i) * unit(*j));
    Csr::from_triplets(2 * nodes, 2 * nodes, &entries).unwrap()
}

#[cfg(feature = "lu")]
fn unit(i: usize) -> f64 {
    1.5 + (i as f64 * 0.7).sin()
}

/// If b has a part along null vectors that direct factors show, the solve ends with the least-squares answer
/// and says how large that part is. The next solve knows it before the first iteration.
#[cfg(feature = "lu")]
#[test]
fn null_vectors_that_factors_show_make_b_inconsistent() {
    let side = 30;
    for (grids, options) in [(1, ""), (2, ""), (2, "precond=lu"), (2, "precond=lu equilibrate=true")] {
        let (a, case) = (free(side, grids), format!("{grids} grids, {options}"));
        let n = a.rows();
        let mut solver = Solver::new(&a, &format!("device=cpu {options}").parse().unwrap()).unwrap();
        let b: Vec<f64> = Random(3).numbers(n).iter().map(|v| 0.5 + v).collect();
        let along = (0..grids).map(|g| {
            let own = g * side * side..(g + 1) * side * side;
            let (sum, size) =
                own.fold((0.0, 0.0), |(sum, size), i| (sum + b[i] / unit(i), size + unit(i).powi(-2)));
            sum * sum / size
        });
        let share = along.sum::<f64>().sqrt() / norm(&b);
        for round in 0..2 {
            let mut x = vec![0.0; n];
            let solution = solver.solve(&b, &mut x).unwrap();
            assert_eq!(solution.outcome(), Outcome::Inconsistent, "{case}: {:?}", solution.events);
            let most = [60, 3][round];
            assert!(solution.history.iterations <= most, "{case}: {}", solution.history.iterations);
            let r = solution.history.true_relative_residual;
            assert!((r - share).abs() <= 1e-6 * share, "{case}: {r:e}, share {share:e}");
            let event = solution.events.iter().find(|e| e.kind == EventKind::Inconsistent).unwrap();
            let words = [
                format!("A has {grids} null vector"),
                format!("below {share:.1e}"),
                "subtract that component from b".to_string(),
            ];
            assert!(words.iter().all(|w| event.detail.contains(w)), "{case}: {}", event.detail);
        }
        // A b in the range of A.
        let y = Random(4).numbers(n);
        let row = |i: usize| a.row(i).0.iter().zip(a.row(i).1).map(|(j, v)| v * y[*j as usize]).sum();
        let b: Vec<f64> = (0..n).map(row).collect();
        let solution = solver.solve(&b, &mut vec![0.0; n]).unwrap();
        assert_eq!(solution.outcome(), Outcome::Converged, "{case}: {:?}", solution.events);
    }
}

/// Convection and diffusion without boundary values, in columns of unlike scale: the null vector is not
/// constant, and the matrix is not symmetric.
#[cfg(feature = "lu")]
fn unheld(side: usize) -> Csr {
    let mut entries: Vec<(u32, u32, f64)> = Vec::new();
    let scale: Vec<f64> = Random(8).numbers(side * side).iter().map(|v| 1.5 + v).collect();
    for i in 0..side * side {
        let (x, y) = (i % side, i / side);
        let couplings = [
            (x > 0).then(|| (i - 1, 3.0)),
            (x + 1 < side).then(|| (i + 1, 1.0)),
            (y > 0).then(|| (i - side, 2.0)),
            (y + 1 < side).then(|| (i + side, 1.0)),
        ];
        for (j, k) in couplings.into_iter().flatten() {
            entries.extend([(i as u32, i as u32, k * scale[i]), (i as u32, j as u32, -k * scale[j])]);
        }
    }
    Csr::from_triplets(side * side, side * side, &entries).unwrap()
}

/// `auto` factorises a singular matrix once.
#[cfg(feature = "lu")]
#[test]
fn singular_factors_are_not_computed_again() {
    let a = unheld(50);
    let n = a.rows();
    let mut solver = Solver::new(&a, &"device=cpu max_iters=3000".parse().unwrap()).unwrap();
    let b = Random(3).numbers(n);
    let solution = solver.solve(&b, &mut vec![0.0; n]).unwrap();
    let of_lu = |detail: &str| detail.starts_with("lu") && detail.contains("the matrix is singular");
    let count = solution.events.iter().filter(|e| of_lu(&e.detail)).count();
    assert_eq!(count, 1, "{}: {:#?}", solution.outcome(), solution.events);
}
