//! Transposes on the CPU.

use crate::conformance::transposed;
use krylith_core::Solver;
use krylith_core::matrix::Csr;

#[test]
fn transposes_across_devices() {
    transposed::transposes_across_devices("cpu");
}

#[test]
fn transposes_of_blocks() {
    transposed::transposes_of_blocks("cpu");
}

#[test]
fn transposes_of_hierarchies() {
    transposed::transposes_of_hierarchies("cpu");
}

#[test]
fn transposes_of_coupled_systems() {
    transposed::transposes_of_coupled_systems("cpu");
}

#[test]
fn ranks_transpose_as_one() {
    transposed::ranks_transpose_as_one("cpu");
}

#[test]
fn transposed_systems_are_solved() {
    transposed::transposed_systems_are_solved("cpu");
}

#[test]
fn transposes_that_need_nothing_or_do_not_exist() {
    transposed::transposes_that_need_nothing_or_do_not_exist("cpu");
}

/// A column of A that is large is a row of Aᵀ that is large, so a second solve with scaled rows begins from
/// the x of the first.
#[test]
fn iterations_before_a_set_up_of_its_own_are_counted() {
    let n = 400;
    let scale = |j: u32| if j.is_multiple_of(2) { 1e8 } else { 1.0 };
    let mut entries: Vec<(u32, u32, f64)> = (0..n).map(|i| (i, i, 3.0 * scale(i))).collect();
    entries.extend((1..n).flat_map(|i| [(i - 1, i, -scale(i)), (i, i - 1, -0.5 * scale(i - 1))]));
    let a = Csr::from_triplets(n as usize, n as usize, &entries).unwrap();
    let b: Vec<f64> = (0..n).map(|i| scale(i) * (1.0 + f64::from(i % 7))).collect();
    let mut x = vec![0.0; n as usize];
    let mut solver = Solver::new(&a, &"device=cpu threads=1".parse().unwrap()).unwrap();
    let solution = solver.solve_transposed(&b, &mut x).unwrap();
    let why = "set up on its own: rows of the transposed matrix differ in scale";
    assert!(solution.converged() && solution.events.iter().any(|e| e.detail.contains(why)));
    assert!(solution.history.iterations >= 1);
    assert_eq!(solution.history.residuals.len(), solution.history.iterations + 1);
    assert_eq!(solution.history.residuals[0], 1.0); // it began from 0
    let mut r = b.clone();
    entries.iter().for_each(|&(i, j, v)| r[j as usize] -= v * x[i as usize]);
    assert!(r.iter().zip(&b).all(|(r, b)| r.abs() <= 1e-4 * b.abs()));
}
