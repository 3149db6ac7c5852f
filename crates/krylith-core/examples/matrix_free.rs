//! GMRES without a matrix: the 7-point Laplacian of a cube is a closure that reads x and writes A x.
//!
//! `cargo run --release -p krylith --example matrix_free [POINTS]`

use krylith_core::device::cpu::Cpu;
use krylith_core::method::{Gmres, GmresOptions};
use krylith_core::operator::LinearOperator;
use krylith_core::{Outcome, Result, Stop};
use rayon::prelude::*;

/// y = A x, computed by a function of the caller's on vectors in host memory.
struct MatrixFree<F> {
    apply: F,
    /// Bytes that one application moves at least.
    bytes: u64,
}

impl<F: Fn(&[f64], &mut [f64])> LinearOperator<Cpu> for MatrixFree<F> {
    fn apply(&self, _: &Cpu, x: &Vec<f64>, y: &mut Vec<f64>) -> Result<()> {
        (self.apply)(x, y);
        Ok(())
    }
    fn key(&self) -> u64 {
        0 // nothing is recorded under it
    }
    fn bytes(&self) -> u64 {
        self.bytes
    }
    // A device must not record what calls back: it would replay its own part alone.
    fn recordable(&self) -> bool {
        false
    }
}

/// −Δ on the n³ inner points of the unit cube, zero on its boundary, times h².
fn laplacian(n: usize, x: &[f64], y: &mut [f64]) {
    let plane = n * n;
    y.par_chunks_mut(plane).enumerate().for_each(|(k, y)| {
        for (p, y) in y.iter_mut().enumerate() {
            let (i, j, at) = (p % n, p / n, k * plane + p);
            let value = |inside: bool, at: usize| if inside { x[at] } else { 0.0 };
            *y = 6.0 * x[at]
                - value(i > 0, at.wrapping_sub(1))
                - value(i + 1 < n, at + 1)
                - value(j > 0, at.wrapping_sub(n))
                - value(j + 1 < n, at + n)
                - value(k > 0, at.wrapping_sub(plane))
                - value(k + 1 < n, at + plane);
        }
    });
}

fn main() -> Result<()> {
    let n: usize = std::env::args().nth(1).map_or(32, |a| a.parse().expect("points a side"));
    let len = n * n * n;
    let space = Cpu::new(len, 0);
    let a = MatrixFree { apply: |x: &[f64], y: &mut [f64]| laplacian(n, x, y), bytes: 16 * len as u64 };

    // A solution that is known: random by index.
    let known: Vec<f64> = (0..len).map(|i| ((i * 2_654_435_761) % 1000) as f64 * 1e-3).collect();
    let (mut b, mut x) = (vec![0.0; len], vec![0.0; len]);
    a.apply(&space, &known, &mut b)?;

    let mut gmres = Gmres::new(&space, GmresOptions { restart: 60, ..GmresOptions::default() })?;
    let stop = Stop { rtol: 1e-10, ..Stop::default() };
    let history = gmres.solve(&space, &a, None, &b, &mut x, &stop, &mut ())?;
    let error = x.iter().zip(&known).fold(0.0f64, |most, (x, y)| most.max((x - y).abs()));
    println!(
        "{len} unknowns: {:?} after {} iterations, error {error:.1e}",
        history.outcome, history.iterations
    );
    assert_eq!(history.outcome, Outcome::Converged);
    assert!(error < 1e-6, "{error:e}");
    Ok(())
}
