//! Null spaces and equilibration around other preconditioners, on the CPU.

use crate::common::*;
use krylith_core::comm::Solo;
use krylith_core::device::cpu::Cpu;
use krylith_core::matrix::{Bsr, Csr, Dense, KroneckerSum};
use krylith_core::method::{Gmres, GmresOptions};
use krylith_core::operator::{LinearOperator, PointBlock, Terms};
use krylith_core::precond::{BlockJacobi, Equilibrated, Factors, NullSpace, Scaling};
use krylith_core::{History, Outcome, Precision, Stop};

fn gmres(
    space: &Cpu,
    a: &PointBlock<Cpu>,
    p: Option<&dyn LinearOperator<Cpu>>,
    b: &[f64],
    max_iters: usize,
) -> (Vec<f64>, History) {
    let mut x = vec![0.0; b.len()];
    let mut gmres = Gmres::new(space, GmresOptions::default()).unwrap();
    let stop = Stop { rtol: 1e-10, atol: 0.0, max_iters, ..Stop::DEFAULT };
    let history = gmres.solve(space, a, p, &b.to_vec(), &mut x, &stop, &mut ()).unwrap().clone();
    (x, history)
}

/// Laplacian of an m^d grid with natural boundaries: constants are its null space.
fn neumann(m: usize, d: u32) -> Csr {
    let n = m.pow(d);
    let mut entries = Vec::new();
    for i in 0..n {
        for k in 0..d {
            let stride = m.pow(k);
            if i / stride % m + 1 < m {
                let (i, j) = (i as u32, (i + stride) as u32);
                entries.extend([(i, i, 1.0), (j, j, 1.0), (i, j, -1.0), (j, i, -1.0)]);
            }
        }
    }
    Csr::from_triplets(n, n, &entries).unwrap()
}

/// Velocities (Dirichlet) and a stabilised pressure on m×m nodes, 3 unknowns per node: constant pressures are
/// a null space.
fn enclosed_flow(m: usize) -> Bsr {
    let n = m * m;
    let mut entries = Vec::new();
    let mut add = |i: usize, j: usize, v: f64| entries.push((i as u32, j as u32, v));
    for i in 0..n {
        for (k, stride) in [(0, 1), (1, m)] {
            for c in 0..2 {
                add(3 * i + c, 3 * i + c, 2.0);
            }
            if i / stride % m + 1 < m {
                let j = i + stride;
                for c in 0..2 {
                    add(3 * i + c, 3 * j + c, -1.0);
                    add(3 * j + c, 3 * i + c, -1.0);
                }
                // Half of (p_j − p_i) pushes both nodes; the divergence is minus its transpose.
                for node in [i, j] {
                    for (other, sign) in [(j, 0.5), (i, -0.5)] {
                        add(3 * node + k, 3 * other + 2, sign);
                        add(3 * other + 2, 3 * node + k, -sign);
                    }
                }
                for (p, q, v) in [(i, i, 0.1), (j, j, 0.1), (i, j, -0.1), (j, i, -0.1)] {
                    add(3 * p + 2, 3 * q + 2, v);
                }
            }
        }
    }
    Bsr::from_csr(&Csr::from_triplets(3 * n, 3 * n, &entries).unwrap(), 3).unwrap()
}

#[test]
fn neumann_laplacians_converge_without_their_constants() {
    for (m, d) in [(20, 2), (8, 3)] {
        let a = neumann(m, d);
        let n = a.rows();
        let space = Cpu::new(n, 2);
        let operator = PointBlock::csr(&space, &a, Precision::F64).unwrap();
        let mut b = vec![0.0; n];
        operator.apply(&space, &Random(1).numbers(n), &mut b).unwrap();
        let constant = vec![vec![3.0; n]];
        let jacobi = BlockJacobi::new(&space, &Terms::csr(&a).unwrap(), Precision::F64).unwrap();
        let alone = NullSpace::alone(&space, &constant).unwrap();
        let both = NullSpace::new(&space, &constant, Some(jacobi)).unwrap();
        for p in [&alone as &dyn LinearOperator<Cpu>, &both] {
            let (x, history) = gmres(&space, &operator, Some(p), &b, 2000);
            assert_eq!(history.outcome, Outcome::Converged, "{m}^{d}: {history:?}");
            let mean = x.iter().sum::<f64>() / n as f64;
            assert!(mean.abs() <= 1e-13 * norm(&x), "the mean {mean:e} must vanish");
        }
        // A right-hand side outside the range cannot be reached, and is not claimed to be.
        let (_, history) = gmres(&space, &operator, Some(&both), &vec![1.0; n], 2000);
        assert_ne!(history.outcome, Outcome::Converged);
    }
}

#[test]
fn enclosed_flow_converges_without_its_constant_pressure() {
    let a = enclosed_flow(12);
    let n = a.rows();
    let space = Cpu::new(n, 2);
    let operator = PointBlock::bsr(&space, &a, Precision::F64).unwrap();
    let pressure: Vec<f64> = (0..n).map(|i| (i % 3 == 2) as usize as f64).collect();
    let (x, mut b) = (Random(2).numbers(n), vec![0.0; n]);
    operator.apply(&space, &pressure, &mut b).unwrap();
    assert!(norm(&b) < 1e-13, "constant pressures must be a null vector");
    operator.apply(&space, &x, &mut b).unwrap();
    let jacobi = BlockJacobi::new(&space, &Terms::bsr(&a), Precision::F64).unwrap();
    let p = NullSpace::new(&space, std::slice::from_ref(&pressure), Some(jacobi)).unwrap();
    let (found, history) = gmres(&space, &operator, Some(&p), &b, 3000);
    assert_eq!(history.outcome, Outcome::Converged, "{history:?}");
    assert!(dot(&found, &pressure).abs() < 1e-11);
    let error: Vec<f64> = found.iter().zip(&x).map(|(f, x)| f - x).collect();
    let along = dot(&error, &pressure) / dot(&pressure, &pressure);
    let across: Vec<f64> = error.iter().zip(&pressure).map(|(e, p)| e - along * p).collect();
    assert!(norm(&across) < 1e-6 * norm(&x), "the solution differs by more than a constant pressure");
}

#[test]
fn a_projection_takes_out_all_null_vectors_and_nothing_else() {
    let mut rng = Random(3);
    let n = 3000;
    let vectors: Vec<Vec<f64>> = (0..3).map(|_| rng.numbers(n)).collect();
    let space = Cpu::new(n, 2);
    let p = NullSpace::alone(&space, &vectors).unwrap();
    let (x, mut y, mut z) = (rng.numbers(n), vec![0.0; n], vec![0.0; n]);
    p.apply(&space, &x, &mut y).unwrap();
    p.apply(&space, &y, &mut z).unwrap();
    assert!(distance(&z, &y) < 1e-15);
    for v in &vectors {
        assert!(dot(v, &y).abs() < 1e-14 * norm(v) * norm(&x));
    }
    assert!(NullSpace::alone(&space, &[]).is_err());
    assert!(NullSpace::alone(&space, &[vec![0.0; n]]).is_err());
    assert!(NullSpace::alone(&space, &[vectors[0].clone(), vectors[0].clone()]).is_err());
    assert!(NullSpace::alone(&space, &[vec![1.0; n - 1]]).is_err());
    assert!(NullSpace::alone(&space, &[vec![f64::NAN; n]]).is_err());
}

/// A diagonally dominant Kronecker sum with scalar rows and columns of M and L scaled by up to 1e±8.
/// Returned with a right-hand side in the units of its rows.
fn badly_scaled(s: usize) -> (KroneckerSum, Vec<f64>) {
    let mut rng = Random(4);
    let mut k = random_kronecker(&mut rng, 3, s, 60, 4, true, true);
    let rows: Vec<f64> = (0..180).map(|_| 10f64.powf(8.0 * rng.number())).collect();
    let columns: Vec<f64> = (0..180).map(|_| 10f64.powf(8.0 * rng.number())).collect();
    let scaling = Scaling { rows, columns };
    let scaled = scaling.scaled(&Terms::kronecker(&k)).unwrap();
    let mut matrices = scaled.terms().iter().map(|t| t.1.clone().into_owned());
    (k.m, k.l) = (matrices.next().unwrap(), matrices.next().unwrap());
    let b = (0..180 * s).map(|i| rng.number() * scaling.rows[i / s]).collect();
    (k, b)
}

#[test]
fn equilibration_saves_badly_scaled_systems() {
    for s in [1, 2] {
        let (k, b) = badly_scaled(s);
        let n = k.rows();
        let space = Cpu::new(n, 2);
        let terms = Terms::kronecker(&k);
        let operator = PointBlock::new(&space, &terms, Precision::F64, false).unwrap();
        let (_, history) = gmres(&space, &operator, None, &b, 600);
        assert_ne!(history.outcome, Outcome::Converged, "this system should be hard");

        let scaling = Scaling::find(&terms, &Solo).unwrap();
        let scaled = scaling.scaled(&terms).unwrap();
        let jacobi = BlockJacobi::new(&space, &scaled, Precision::F64).unwrap();
        let alone = Equilibrated::alone(&space, &scaling).unwrap();
        let mut both = Equilibrated::new(&space, &scaling, Some(jacobi)).unwrap();
        for p in [&alone as &dyn LinearOperator<Cpu>, &both] {
            let (x, history) = gmres(&space, &operator, Some(p), &b, 600);
            assert_eq!(history.outcome, Outcome::Converged, "s={s} {history:?}");
            // The tolerance is that of the unscaled residual.
            let r = minus(&b, &multiply(&dense(&k), &x));
            assert!(norm(&r) <= 1.001e-10 * norm(&b));
        }
        both.update(&space, &Factors::upload(&space, &scaling).unwrap()).unwrap();
        both.inner_mut().unwrap().update_values(&space, &scaled).unwrap();
    }
}

#[test]
fn scalings_are_powers_of_two_that_balance() {
    let (k, _) = badly_scaled(2);
    let terms = Terms::kronecker(&k);
    let scaling = Scaling::find(&terms, &Solo).unwrap();
    for v in scaling.rows.iter().chain(&scaling.columns) {
        assert_eq!(v.log2().fract(), 0.0);
    }
    let scaled = scaling.scaled(&terms).unwrap();
    let (a, b) = (&scaled.terms()[0], &scaled.terms()[1]);
    let weight = |c: &Dense| c.values().iter().fold(0.0f64, |m, v| m.max(v.abs()));
    for i in 0..180 {
        let largest = |t: &(Dense, std::borrow::Cow<Bsr>)| {
            t.1.to_csr().row(i).1.iter().fold(0.0f64, |m, v| m.max(v.abs())) * weight(&t.0)
        };
        let largest = largest(a).max(largest(b));
        assert!((0.2..5.0).contains(&largest), "row {i}: {largest}");
    }
    // Empty rows and columns stay as they are; factors that do not fit are refused.
    let empty = Bsr::new(1, 2, 2, vec![0, 1, 1], vec![0], vec![64.0]).unwrap();
    let scaling = Scaling::find(&Terms::bsr(&empty), &Solo).unwrap();
    assert_eq!((scaling.rows[1], scaling.columns[1]), (1.0, 1.0));
    assert_eq!(scaling.rows[0] * 64.0 * scaling.columns[0], 1.0);
    assert!(Equilibrated::alone(&Cpu::new(3, 1), &scaling).is_err());
}
