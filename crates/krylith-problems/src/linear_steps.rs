//! Time steps of M u' + L u = f with a constant f: right-hand sides and updates, in place.

use krylith_base::threads::each_chunk;
use krylith_core::matrix::{Bsr, Butcher};
use krylith_core::{Error, Result};

use crate::steps::{advance, check_length};

/// Right-hand sides and updates of the steps u_{n+1} = u_n + τ Σ b_k k_k, where k solves (I⊗M + τB⊗L) k =
/// 1⊗(f − L u_n). A state has a number per row of M; `rhs` and `k` have s, with the stages of a row together.
///
/// # Examples
/// ```
/// use krylith::{Solver, matrix::{Bsr, Butcher, Dense, KroneckerSum}};
/// use krylith_problems::LinearSteps;
/// // u' + 2u = 4 from 0, which tends to 2: u = 2 − 2 exp(−2t).
/// let one = |v: f64| Bsr::new(1, 1, 1, vec![0, 1], vec![0], vec![v]);
/// let (radau, tau) = (Butcher::by_name("radau-iia-3")?, 0.25);
/// let system = KroneckerSum::new(Dense::identity(3), radau.a.clone(), tau, one(1.0)?, one(2.0)?)?;
/// let mut solver = Solver::new(&system, &"rtol=1e-12 device=cpu".parse()?)?;
/// let steps = LinearSteps::new(&system.l, vec![4.0], &radau, tau)?;
/// let (mut u, mut k, mut rhs) = (vec![0.0], vec![0.0; 3], vec![0.0; 3]);
/// for _ in 0..4 {
///     steps.rhs_into(&u, &mut rhs)?;
///     assert!(solver.solve(&rhs, &mut k)?.converged());
///     steps.advance(&k, &mut u)?;
/// }
/// assert!((u[0] - 2.0 * (1.0 - (-2.0f64).exp())).abs() < 1e-5);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct LinearSteps<'a> {
    l: &'a Bsr,
    f: Vec<f64>,
    butcher: Butcher,
    tau: f64,
}

impl<'a> LinearSteps<'a> {
    /// Creates steps of length `tau` by `butcher`.
    ///
    /// # Errors
    /// Returns an error if `tau` is not positive and finite, or if f does not have a finite number per row.
    pub fn new(l: &'a Bsr, f: Vec<f64>, butcher: &Butcher, tau: f64) -> Result<Self> {
        if !(tau.is_finite() && tau > 0.0) {
            return Err(Error::invalid(format!("tau is {tau}; it must be positive and finite")));
        }
        check_length("f", f.len(), l.rows())?;
        if let Some(row) = f.iter().position(|v| !v.is_finite()) {
            return Err(Error::NotFinite { what: "f".into(), row, column: 0, value: f[row] });
        }
        Ok(Self { l, f, butcher: butcher.clone(), tau })
    }

    /// Writes the right-hand side of the step from the state `u`. It allocates nothing, and does not depend
    /// on the number of threads.
    ///
    /// # Errors
    /// Returns an error if `u` or `rhs` has the wrong length.
    pub fn rhs_into(&self, u: &[f64], rhs: &mut [f64]) -> Result<()> {
        let (s, b, l) = (self.butcher.stages(), self.l.block(), self.l);
        check_length("the state", u.len(), l.rows())?;
        check_length("the right-hand side", rhs.len(), l.rows() * s)?;
        each_chunk(rhs, b * s, 256, &|i, out| {
            for (r, out) in out.chunks_exact_mut(s).enumerate() {
                let mut sum = self.f[i * b + r];
                for p in l.row_ptr()[i]..l.row_ptr()[i + 1] {
                    let j = l.col()[p] as usize * b;
                    let row = &l.values()[(p * b + r) * b..][..b];
                    sum -= row.iter().zip(&u[j..j + b]).map(|(a, u)| a * u).sum::<f64>();
                }
                out.fill(sum);
            }
        });
        Ok(())
    }

    /// Computes u_{n+1} = u_n + τ Σ b_k k_k in place.
    ///
    /// # Errors
    /// Returns an error if `k` or `u` has the wrong length.
    pub fn advance(&self, k: &[f64], u: &mut [f64]) -> Result<()> {
        check_length("the state", u.len(), self.l.rows())?;
        advance(&self.butcher, self.tau, k, u)
    }
}
