//! The same prediction from measured kernels instead of rooflines.

use super::{Iteration, Method};
use crate::Machine;
use krylith_core::{Error, Result};

/// Measured times of an iteration of one method on one GPU, in seconds per grid point.
///
/// # Examples
/// ```
/// use krylith_model::{Machine, poisson::{Measured, Method}};
/// let mut machine = Machine::open("summit".as_ref())?;
/// let kernels = Measured { product: 1e-11, preconditioner: 1e-11, vectors: 2e-11, fixed: 1e-6 };
/// let alone = machine.poisson_measured([100, 100, 100], Method::Cg, 12, 1, &kernels)?;
/// assert!((alone.total(true) - 41e-6).abs() < 1e-12); // a million points, and what each iteration costs
/// // With slower sums, 4,096 GPUs lose more by two sums an iteration than by two sums in twelve.
/// machine.network.as_mut().expect("the paper's machine").hop = 1e-4;
/// let of = |method| machine.poisson_measured([1280, 1280, 4608], method, 12, 4096, &kernels);
/// assert!(of(Method::Cg)?.all_reduce > 10.0 * of(Method::Cbcg)?.all_reduce);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Measured {
    /// The product.
    pub product: f64,
    /// The preconditioner.
    pub preconditioner: f64,
    /// Vector updates and, in P-CBCG, matrix kernels and the recurrence of the basis.
    pub vectors: f64,
    /// Seconds of an iteration that do not depend on its points.
    pub fixed: f64,
}

impl Machine {
    /// Predicts an iteration on `gpus` GPUs from kernels that were measured on one. Halos and all-reduces are
    /// those of this machine; without a section `[poisson]`, halos reach the whole bandwidth. With overlap,
    /// only the product hides a halo, as in Krylith.
    ///
    /// # Errors
    /// Returns an error for times that are negative or not finite, if the machine file has no `[network]` for
    /// several GPUs, for more GPUs than boxes fit, and for `s` = 0.
    pub fn poisson_measured(
        &self,
        grid: [usize; 3],
        method: Method,
        s: usize,
        gpus: usize,
        kernels: &Measured,
    ) -> Result<Iteration> {
        let Measured { product, preconditioner, vectors, fixed } = *kernels;
        if [product, preconditioner, vectors, fixed].iter().any(|t| !(t.is_finite() && *t >= 0.0)) {
            return Err(Error::invalid(format!(
                "the measured times {product:e}, {preconditioner:e}, {vectors:e} and {fixed:e} must be \
                 seconds, at least 0; measure the kernels and the solves again"
            )));
        }
        self.connected(grid, method, s, gpus, |points| {
            let product = points * product;
            [product, points * preconditioner, points * vectors + fixed, product]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poisson::STEPS;

    #[test]
    fn kernels_at_the_papers_rooflines_give_the_papers_prediction() {
        let machine = Machine::open("summit".as_ref()).unwrap();
        for method in [Method::Cg, Method::Cbcg] {
            let alone = machine.poisson([1280, 1280, 4608], method, STEPS, 1).unwrap();
            let each = |seconds: f64| seconds / (1280.0 * 1280.0 * 4608.0);
            let kernels = Measured {
                product: each(alone.product),
                preconditioner: each(alone.preconditioner),
                vectors: each(alone.vectors),
                fixed: 0.0,
            };
            for gpus in [2, 480, 7680] {
                let of = machine.poisson_measured([1280, 1280, 4608], method, STEPS, gpus, &kernels).unwrap();
                let paper = machine.poisson([1280, 1280, 4608], method, STEPS, gpus).unwrap();
                assert_eq!((of.boxes, of.halo, of.all_reduce), (paper.boxes, paper.halo, paper.all_reduce));
                let same =
                    |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-12, "{method:?}, {gpus}: {a} {b}");
                same(of.total(false), paper.total(false));
                // The paper's P-CG also hides a halo behind updates of vectors.
                match method {
                    Method::Cg => assert!(of.exposed >= paper.exposed),
                    Method::Cbcg => same(of.total(true), paper.total(true)),
                }
            }
        }
    }

    #[test]
    fn times_that_are_no_times_are_refused() {
        let machine = Machine::open("summit".as_ref()).unwrap();
        for product in [f64::NAN, -1.0, f64::INFINITY] {
            let kernels = Measured { product, ..Measured::default() };
            let error = machine.poisson_measured([8, 8, 8], Method::Cg, 12, 1, &kernels).unwrap_err();
            assert!(error.to_string().contains("measure"), "{error}");
        }
    }
}
