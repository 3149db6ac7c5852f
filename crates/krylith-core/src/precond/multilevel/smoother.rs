//! Smoothers, which reduce errors that the coarser level cannot represent.
//!
//! * ℓ1-Jacobi and Chebyshev are polynomials in D⁻¹A. D has the diagonal blocks of A, and adds to each
//!   diagonal entry the ℓ1 norm of its row outside the block. So the spectrum of D⁻¹A lies in (0, 1] for
//!   every symmetric positive definite A (Baker, Falgout, Kolev and Yang 2011), and no eigenvalue has to be
//!   estimated.
//! * ILDU(0) of subdomains costs little more than a product and is as effective as several sweeps.
//!
//! These are symmetric if A is, and are the same before and after the coarse correction. So a cycle is
//! symmetric too.
//!
//! * FFC-Jacobi relaxes fine points twice and then coarse points, after the coarse correction alone. It goes
//!   with approximate ideal restriction, whose coarse system leaves errors at fine points (Manteuffel,
//!   Münzenmaier, Ruge and Southworth 2019). A step is a product with A and a pass with 1/a_ii, in which the
//!   other points have zeros.
//!
//! Traffic of k steps of a polynomial, for vectors of N numbers and scalar nodes: from x = 0, k − 1 products
//! with A and 3 N + 7 N (k − 1) numbers. From a given x, k products and 7 N for each step, or 5 N if k = 1.
//! Blocks add 4 N and their own numbers per step. If a device fuses a step with its product
//! ([`Coarsen::fused`]), the step moves only 3 N beside the product, or 5 N if it reads or writes a
//! direction.

mod steps;

use super::Coarsen;
use super::side::Side;
use crate::operator::{LinearOperator, Terms};
use crate::partition::Subdomains;
use crate::precond::{BlockJacobi, Ildu, IlduOptions};
use crate::space::{FLAGS, MOST_COLUMNS, Precision, Space};
use crate::{Error, Result, sweeps};
use arrayvec::ArrayVec;
use std::rc::Rc;
use steps::{all_steps, first_steps, solve, step};

sweeps! {
    /// The vector passes of smoothers.
    pub const SWEEPS;
    /// The first step from x = 0: x = c D⁻¹ b.
    smooth_first: (c) [d, b] [x] -> [] { x = c * d * b; }
    /// The second step, whose previous direction is x: p = a x + c D⁻¹ (b − q), x += p, where q holds A x.
    smooth_second: (a, c) [d, b, q] [p, x] -> [] { p = a * x + c * d * (b - q); x += p; }
    /// A further step: p = a p + c D⁻¹ (b − q), x += p.
    smooth_next: (a, c) [d, b, q] [p, x] -> [] { p = a * p + c * d * (b - q); x += p; }
    /// The first step from a given x: p = c D⁻¹ (b − q), x += p.
    smooth_start: (c) [d, b, q] [p, x] -> [] { p = c * d * (b - q); x += p; }
    /// A step without a previous or next direction: x += c D⁻¹ (b − q).
    smooth_alone: (c) [d, b, q] [x] -> [] { x += c * d * (b - q); }
    /// The last step: x += a p + c D⁻¹ (b − q).
    smooth_last: (a, c) [d, b, q, p] [x] -> [] { x += a * p + c * d * (b - q); }
    /// x = c x.
    smooth_scale: (c) [] [x] -> [] { x *= c; }
    /// The steps with blocks, where z holds D⁻¹ (b − A x). The second step from x = 0: p = a x + c z, x += p.
    smooth_blocks_second: (a, c) [z] [p, x] -> [] { p = a * x + c * z; x += p; }
    /// A further step: p = a p + c z, x += p.
    smooth_blocks_next: (a, c) [z] [p, x] -> [] { p = a * p + c * z; x += p; }
    /// The first step from a given x: p = c z, x += p.
    smooth_blocks_start: (c) [z] [p, x] -> [] { p = c * z; x += p; }
    /// A step without a previous or next direction: x += c z.
    smooth_blocks_alone: (c) [z] [x] -> [] { x += c * z; }
    /// x = 1.
    smooth_ones: () [] [x] -> [] { x = 1.0; }
}

/// Number of steps of a sweep over fine points, fine points and coarse points.
const FFC: usize = 3;

/// Kind of smoother, and number of sweeps.
///
/// # Examples
/// ```
/// use krylith::precond::PrecondSpec;
/// use krylith_core::precond::{AmgSpec, Smoothing};
/// let amg = AmgSpec { smoother: Some(Smoothing::Jacobi { sweeps: 2 }), ..AmgSpec::default() };
/// assert_eq!("amg:smoother=jacobi,sweeps=2".parse::<PrecondSpec>()?, PrecondSpec::Amg(amg));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Smoothing {
    /// ℓ1-Jacobi sweeps: x ← x + D⁻¹ (b − A x).
    Jacobi {
        /// Number of sweeps before, and after, the coarse correction.
        sweeps: usize,
    },
    /// The Chebyshev polynomial of the upper part of the spectrum of D⁻¹A.
    Chebyshev {
        /// Degree of the polynomial: number of steps before, and after, the coarse correction.
        degree: usize,
    },
    /// Incomplete factors of subdomains.
    Ildu {
        /// Number of sweeps before, and after, the coarse correction.
        sweeps: usize,
    },
    /// Relaxation after the coarse correction alone: two Jacobi steps of the fine points, then one of the
    /// coarse points, with the diagonal of A. For [`CoarsenKind::Air`](super::CoarsenKind::Air).
    Ffc {
        /// Number of sweeps of these three steps.
        sweeps: usize,
    },
}

impl Smoothing {
    /// Chebyshev polynomials reduce errors at eigenvalues of D⁻¹A from this number to 1. Smaller eigenvalues
    /// are left to the coarser level.
    pub const LEFT: f64 = 0.1;

    /// Returns the name in options.
    pub fn name(self) -> &'static str {
        match self {
            Smoothing::Jacobi { .. } => "jacobi",
            Smoothing::Chebyshev { .. } => "chebyshev",
            Smoothing::Ildu { .. } => "ildu",
            Smoothing::Ffc { .. } => "ffc",
        }
    }
}

/// Returns the coefficients `[a, c]` of each step k of a polynomial smoother, whose direction is p ← aₖ p +
/// cₖ D⁻¹ r (Saad 2003, Alg. 12.1).
pub(super) fn coefficients(how: Smoothing) -> Vec<[f64; 2]> {
    match how {
        Smoothing::Jacobi { sweeps } | Smoothing::Ildu { sweeps } => vec![[0.0, 1.0]; sweeps],
        Smoothing::Ffc { sweeps } => vec![[0.0, 1.0]; FFC * sweeps],
        Smoothing::Chebyshev { degree } => {
            let (middle, half) = ((1.0 + Smoothing::LEFT) / 2.0, (1.0 - Smoothing::LEFT) / 2.0);
            let sigma = middle / half;
            let (mut rho, mut steps) = (1.0 / sigma, vec![[0.0, 1.0 / middle]]);
            for _ in 1..degree {
                let next = 1.0 / (2.0 * sigma - rho);
                steps.push([next * rho, 2.0 * next / half]);
                rho = next;
            }
            steps
        }
    }
}

/// Operation on A x that a device fuses with the product A x.
#[doc(hidden)]
pub enum Fused<'a, S: Coarsen> {
    /// The residual r = b − A x.
    LeftOver {
        /// Right-hand side.
        b: &'a S::Vector,
        /// The result r.
        r: &'a mut S::Vector,
    },
    /// The sum y ← y + A x.
    Added {
        /// The vector to which the product is added.
        y: &'a mut S::Vector,
    },
    /// The first step from x = 0 without a product, c D⁻¹ b. Only products with several columns make it.
    First {
        /// The blocks D.
        d: &'a S::Blocks,
        /// Right-hand side.
        b: &'a S::Vector,
        /// The scalars that hold c, and its slot; `None` if c is 1.
        c: Option<(&'a S::Scalars, usize)>,
        /// The result.
        to: &'a mut S::Vector,
    },
    /// A step of a smoother: p = a·(last direction) + c D⁻¹ (b − A x), to = x + p.
    Step {
        /// D⁻¹.
        d: Diagonal<'a, S>,
        /// Right-hand side.
        b: &'a S::Vector,
        /// The vector p, if the last direction is in it or if the new direction is written to it.
        p: Option<&'a mut S::Vector>,
        /// True if the new direction is written to p.
        keeps: bool,
        /// The last direction.
        last: Direction,
        /// The scalars that hold a and c.
        scalars: &'a S::Scalars,
        /// The slots of a and c.
        at: [usize; 2],
        /// The slot of the first step's c if this pass also makes the first step from x = 0. Then x is c D⁻¹
        /// b and is not stored. Otherwise `None`.
        first: Option<usize>,
        /// The new x, in another vector.
        to: &'a mut S::Vector,
    },
}

/// D⁻¹ of a level: one vector for scalar nodes, else blocks.
#[doc(hidden)]
pub enum Diagonal<'a, S: Coarsen> {
    /// The numbers of D⁻¹.
    Scalar(&'a S::Vector),
    /// The blocks of D⁻¹. A pass takes these only if its product has several columns.
    Blocks(&'a S::Blocks),
}

impl<S: Coarsen> Clone for Diagonal<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Coarsen> Copy for Diagonal<'_, S> {}

/// Passes of one kind, each with its x.
#[doc(hidden)]
pub type Passes<'a, S> = ArrayVec<(&'a <S as Space>::Vector, Fused<'a, S>), MOST_COLUMNS>;

/// The vector that holds the last direction of a polynomial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub enum Direction {
    /// There is no last direction.
    None,
    /// The last direction is x, after the first step from x = 0.
    X,
    /// The last direction is p.
    P,
}

/// A level's smoother.
pub(super) enum Smoother<S: Coarsen> {
    Polynomial {
        /// Shared with the smoother of several columns.
        blocks: Rc<S::Blocks>,
        scalar: Option<S::Vector>,
        steps: Vec<[f64; 2]>,
    },
    Factors {
        factors: Ildu<S>,
        sweeps: usize,
    },
    /// D⁻¹ of fine points with zeros for coarse points, and the reverse.
    Ffc {
        fine: S::Vector,
        coarse: S::Vector,
        steps: Vec<[f64; 2]>,
    },
}

/// Workspace of a level, with the coefficients of its smoother.
pub(super) struct LevelWorkspace<S: Coarsen> {
    pub q: S::Vector,
    pub r: S::Vector,
    p: Option<S::Vector>,
    pub scalars: S::Scalars,
}

impl<S: Coarsen> LevelWorkspace<S> {
    /// Allocates the workspace of a level and its smoother.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn new(on: &S, smoother: Option<&Smoother<S>>) -> Result<Self> {
        let steps = match smoother {
            Some(Smoother::Polynomial { steps, .. } | Smoother::Ffc { steps, .. }) => &steps[..],
            _ => &[],
        };
        let numbers: Vec<f64> = steps.iter().flatten().copied().collect();
        let mut scalars = on.scalars(numbers.len().max(1))?;
        on.write_scalars(&mut scalars, 0, &numbers, &[0; FLAGS])?;
        let p = steps.iter().any(|[a, _]| *a != 0.0).then(|| on.vector()).transpose()?;
        Ok(Self { q: on.vector()?, r: on.vector()?, p, scalars })
    }
}

/// One of several systems with the matrix of a level: b, x, and the workspace of its smoother.
pub(super) struct Lane<'a, S: Coarsen> {
    pub b: &'a S::Vector,
    pub x: &'a mut S::Vector,
    pub room: &'a mut LevelWorkspace<S>,
}

/// A vector to read and another one to write, of each lane.
pub(super) type Ends<'a, V> = (ArrayVec<&'a V, MOST_COLUMNS>, ArrayVec<&'a mut V, MOST_COLUMNS>);

/// Returns the slots of the coefficients of step k.
fn slots(k: usize) -> [usize; 2] {
    [2 * k, 2 * k + 1]
}

impl<S: Coarsen> Smoother<S> {
    /// Builds the smoother of a level; `cut` returns the subdomains of factors. `coarse` marks coarse points.
    /// Without marks all nodes count as fine points.
    ///
    /// # Errors
    /// A diagonal block or a pivot that cannot be inverted, with its row; out of device memory.
    pub fn new(
        on: &S,
        terms: &Terms,
        how: Smoothing,
        precision: Precision,
        coarse: &[bool],
        cut: impl FnOnce() -> Result<Subdomains>,
    ) -> Result<Self> {
        if let Smoothing::Ffc { .. } = how {
            let [fine, coarse] = inverse_diagonals(on, terms, precision, coarse)?;
            return Ok(Smoother::Ffc { fine, coarse, steps: coefficients(how) });
        }
        if let Smoothing::Ildu { sweeps } = how {
            let options = IlduOptions { precision, ..IlduOptions::default() };
            let factors = Ildu::new(on, terms, &cut()?, options)?;
            return Ok(Smoother::Factors { factors, sweeps });
        }
        let blocks = on.l1_blocks(terms, precision)?;
        let mut scalar = (terms.block() * terms.stages() == 1).then(|| on.vector()).transpose()?;
        if let Some(d) = &mut scalar {
            diagonal(on, &blocks, d)?;
        }
        Ok(Smoother::Polynomial { blocks: Rc::new(blocks), scalar, steps: coefficients(how) })
    }

    /// Refreshes the smoother for new values of the terms.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn update_values(&mut self, on: &S, terms: &Terms) -> Result<()> {
        match self {
            Smoother::Factors { factors, .. } => factors.update_values(on, terms),
            Smoother::Polynomial { blocks, scalar, .. } => {
                let lent = || Error::Internal("the blocks of a smoother are still used for columns".into());
                on.update_l1_blocks(terms, Rc::get_mut(blocks).ok_or_else(lent)?)?;
                scalar.as_mut().map_or(Ok(()), |d| diagonal(on, blocks, d))
            }
            // Other values change R too, so the hierarchy is built again.
            Smoother::Ffc { .. } => Err(Error::Internal("relaxation of F-points has no update".into())),
        }
    }

    /// Lays out what the transposed steps need.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn prepare_transpose(&mut self, on: &S) -> Result<()> {
        match self {
            Self::Factors { factors, .. } => factors.prepare_transpose(on),
            _ => Ok(()),
        }
    }

    /// Returns true if the smoother has steps for several systems.
    pub fn is_polynomial(&self) -> bool {
        matches!(self, Self::Polynomial { .. })
    }

    /// Returns the smoother for vectors with alternating columns; `None` if it is no polynomial.
    pub fn widened(&self) -> Option<Self> {
        let Self::Polynomial { blocks, steps, .. } = self else { return None };
        Some(Self::Polynomial { blocks: blocks.clone(), scalar: None, steps: steps.clone() })
    }

    /// Returns true if the cycle smooths before the coarse correction, and true if it smooths after it.
    pub fn sides(&self, turned: bool) -> [bool; 2] {
        match self {
            Self::Ffc { .. } => [turned, !turned],
            _ => [true; 2],
        }
    }

    /// Computes x ← M b, on the last level in any case.
    pub fn begin(&self, on: &S, a: &Side<S>, lanes: &mut [Lane<S>]) -> Result<()> {
        match self {
            Smoother::Factors { factors, sweeps } => {
                a.factors(on, factors, lanes, |lane| (lane.b, &mut *lane.x))?;
                (1..*sweeps).try_for_each(|_| solve(on, factors, a, lanes))
            }
            Smoother::Ffc { fine, .. } if !a.turned => {
                let [_, c] = slots(0);
                for lane in &mut *lanes {
                    let Lane { b, x, room } = lane;
                    on.sweep(smooth_first, &mut room.scalars, [c], [fine, b], [&mut **x], [])?;
                }
                self.improve(on, a, lanes)
            }
            Smoother::Ffc { fine, coarse, steps } => {
                first_steps(on, &|k| Diagonal::Scalar([coarse, fine, fine][k % FFC]), steps, a, lanes)
            }
            Smoother::Polynomial { scalar: Some(d), steps, .. } => {
                first_steps(on, &|_| Diagonal::Scalar(d), steps, a, lanes)
            }
            Smoother::Polynomial { blocks, scalar: None, steps } if on.fuses(a.product()) => {
                first_steps(on, &|_| Diagonal::Blocks(&**blocks), steps, a, lanes)
            }
            Smoother::Polynomial { blocks, scalar: None, steps } => {
                let [_, c] = slots(0);
                for Lane { b, x, room } in &mut *lanes {
                    on.multiply_blocks(blocks, a.turned, b, x)?;
                    if steps[0][1] != 1.0 {
                        on.sweep(smooth_scale, &mut room.scalars, [c], [], [&mut **x], [])?;
                    }
                }
                let d = Diagonal::Blocks(&**blocks);
                (1..steps.len()).try_for_each(|k| step(on, d, steps, (k, true), a, lanes))
            }
        }
    }

    /// Computes x ← x + M (b − A x).
    pub fn improve(&self, on: &S, a: &Side<S>, lanes: &mut [Lane<S>]) -> Result<()> {
        match self {
            Smoother::Factors { factors, sweeps } => {
                (0..*sweeps).try_for_each(|_| solve(on, factors, a, lanes))
            }
            Smoother::Ffc { fine, coarse, steps } => {
                // The transpose makes the steps in reverse order.
                let order = if a.turned { [coarse, fine, fine] } else { [fine, fine, coarse] };
                all_steps(on, &|k| Diagonal::Scalar(order[k % FFC]), steps, a, lanes)
            }
            Smoother::Polynomial { scalar: Some(d), steps, .. } => {
                all_steps(on, &|_| Diagonal::Scalar(d), steps, a, lanes)
            }
            Smoother::Polynomial { blocks, scalar: None, steps } => {
                all_steps(on, &|_| Diagonal::Blocks(&**blocks), steps, a, lanes)
            }
        }
    }

    /// Computes x ← x + D⁻¹ (b − A x) for fine points, with which the last level begins; the transpose ends
    /// with it.
    pub fn end(&self, on: &S, a: &Side<S>, lanes: &mut [Lane<S>]) -> Result<()> {
        match self {
            Smoother::Ffc { fine, steps, .. } if a.turned => {
                step(on, Diagonal::Scalar(fine), steps, (0, false), a, lanes)
            }
            _ => Ok(()),
        }
    }

    /// Returns the bytes that both applications around a coarse correction move without their products with
    /// A, and the number of these products.
    pub fn bytes(&self, len: usize) -> (u64, u64) {
        let n = 8 * len as u64;
        match self {
            Smoother::Factors { factors, sweeps } => {
                let times = 2 * *sweeps as u64;
                (times * factors.bytes() + (times - 1) * 6 * n, times - 1)
            }
            Smoother::Polynomial { blocks, scalar, steps } => {
                let times = 2 * steps.len() as u64;
                let each = if scalar.is_some() { 6 * n } else { S::blocks_bytes(blocks) + 8 * n };
                (times * each, times - 1)
            }
            Smoother::Ffc { steps, .. } => (steps.len() as u64 * 5 * n, steps.len() as u64 - 1),
        }
    }

    /// Returns the number of numbers that the smoother stores.
    pub fn numbers(&self, order: usize, len: usize) -> f64 {
        match self {
            Smoother::Factors { factors, .. } => {
                let outline = factors.outline();
                outline.entries as f64 * (outline.order * outline.order) as f64
            }
            Smoother::Polynomial { .. } => (order * len) as f64,
            Smoother::Ffc { .. } => 2.0 * len as f64,
        }
    }

    /// Returns a key that changes when the smoother's buffers change.
    pub fn key(&self) -> u64 {
        match self {
            Smoother::Factors { factors, .. } => factors.key(),
            Smoother::Polynomial { .. } | Smoother::Ffc { .. } => 0, // new values keep the same buffers
        }
    }
}

/// Writes inverses of order 1 to a vector, by which vector passes multiply.
fn diagonal<S: Coarsen>(on: &S, blocks: &S::Blocks, to: &mut S::Vector) -> Result<()> {
    let (mut ones, mut scalars) = (on.vector()?, on.scalars(1)?);
    on.sweep(smooth_ones, &mut scalars, [], [], [&mut ones], [])?;
    on.multiply_blocks(blocks, false, &ones, to)
}

/// Returns 1/a_ii of fine points with zeros for coarse points, and the reverse.
///
/// # Errors
/// A diagonal entry that cannot be inverted, with its row; out of device memory.
fn inverse_diagonals<S: Coarsen>(
    on: &S,
    terms: &Terms,
    precision: Precision,
    coarse: &[bool],
) -> Result<[S::Vector; 2]> {
    let inverse = BlockJacobi::new(on, terms, precision)?;
    let (mut marks, mut both) = (on.vector()?, [on.vector()?, on.vector()?]);
    for (wanted, to) in [false, true].into_iter().zip(&mut both) {
        let one = |i: usize| f64::from(u8::from(coarse.get(i).copied().unwrap_or_default() == wanted));
        on.write(&(0..on.len()).map(one).collect::<Vec<f64>>(), &mut marks)?;
        inverse.apply(on, &marks, to)?;
    }
    Ok(both)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEFT: f64 = Smoothing::LEFT;

    /// The steps give x = p(D⁻¹A) D⁻¹ b. Then 1 − λ p(λ) must be the Chebyshev polynomial of [LEFT, 1],
    /// scaled to 1 at λ = 0.
    #[test]
    fn steps_are_those_of_chebyshev() {
        let residual_of = |degree: usize, lambda: f64| {
            let (mut x, mut p) = (0.0, 0.0);
            for [a, c] in coefficients(Smoothing::Chebyshev { degree }) {
                p = a * p + c * (1.0 - lambda * x);
                x += p;
            }
            1.0 - lambda * x
        };
        for degree in 1..=6 {
            let chebyshev = |t: f64| match t.abs() <= 1.0 {
                true => (degree as f64 * t.acos()).cos(),
                false => t.signum().powi(degree as i32) * (degree as f64 * t.abs().acosh()).cosh(),
            };
            let map = |lambda: f64| (1.0 + LEFT - 2.0 * lambda) / (1.0 - LEFT);
            for lambda in [0.0, 0.01, LEFT, 0.3, 0.55, 0.9, 1.0] {
                let want = chebyshev(map(lambda)) / chebyshev(map(0.0));
                let got = residual_of(degree, lambda);
                assert!((got - want).abs() < 1e-12, "degree {degree}, {lambda}: {got} for {want}");
            }
        }
        assert_eq!(coefficients(Smoothing::Jacobi { sweeps: 3 }), [[0.0, 1.0]; 3]);
    }
}
