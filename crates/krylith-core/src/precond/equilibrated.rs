//! Equilibration as a right preconditioner.
//!
//! Let Â = R A C, where R and C are diagonal and the largest entry of every row and column of Â is near 1
//! (Ruiz 2001). The entries of R and C are powers of two, so scaling rounds nothing. Let P̂ be a
//! preconditioner of Â. Then C P̂⁻¹ R is the right preconditioner of A. A C P̂⁻¹ R = R⁻¹ (Â P̂⁻¹) R is
//! similar to Â P̂⁻¹, so both have the same spectrum. Residuals and tolerances remain those of A x = b in the
//! unscaled 2-norm. Without P̂ the preconditioner is C R.
//!
//! Limits: a row a million times smaller than the others still contributes only a millionth to the residual.
//! The similarity R⁻¹ (·) R can make the operator far from normal. Convergence is therefore slow if the
//! entries of b do not scale with their rows, that is, if the sizes of bᵢ rᵢ differ greatly.
//!
//! In a Kronecker sum the scalar rows and columns of M and L are scaled, by the same factors in all stages:
//! (I⊗R)(A⊗M + τB⊗L)(I⊗C) = A⊗(R M C) + τB⊗(R L C). One application moves P̂ and 6 N numbers, for vectors of
//! N numbers.

use crate::comm::{Communicator, agree};
use crate::halo::to_owners;
use crate::matrix::{Arrays, Bsr};
use crate::operator::{
    ColumnMaxima, LinearOperator, Terms, applied, for_blocks_mut, fresh_key, row_maxima, with_block,
};
use crate::space::Space;
use crate::{Error, Result, sweeps};
use rayon::prelude::*;
use std::borrow::Cow;
use std::cell::RefCell;

sweeps! {
    /// The vector passes of this preconditioner.
    pub const SWEEPS;
    /// y = D x.
    scale_into: () [d, x] [y] -> [] { y = d * x; }
    /// y = D y.
    scale: () [d] [y] -> [] { y *= d; }
    /// y = C R x.
    scale_twice: () [c, r, x] [y] -> [] { y = c * (r * x); }
}

/// Scale factors, which are powers of two: one per scalar row and one per scalar column of the terms'
/// matrices.
///
/// # Examples
/// ```
/// use krylith::{comm::Solo, matrix::Csr, operator::Terms};
/// use krylith_core::precond::Scaling;
/// // Pressure in Pa beside velocity in m/s.
/// let terms = Terms::csr(&Csr::from_triplets(2, 2, &[(0, 0, 1048576.0), (1, 1, 1.0)])?)?;
/// let scaling = Scaling::find(&terms, &Solo)?;
/// let scaled = scaling.scaled(&terms)?;
/// let values = scaled.terms()[0].1.values();
/// assert_eq!(values[0], values[1]); // powers of two: nothing is rounded
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Scaling {
    /// Diagonal of R, for this rank's own rows.
    pub rows: Vec<f64>,
    /// Diagonal of C, for this rank's own columns, followed by those of its ghosts.
    pub columns: Vec<f64>,
}

impl Scaling {
    /// Number of passes of Ruiz' iteration. Each pass divides rows and columns by the square roots of their
    /// maxima.
    pub(crate) const PASSES: usize = 8;

    /// Computes the factors from the largest entries of rows and columns of Σ max|Cₜ| |Aₜ|, on all threads of
    /// the host. Empty rows and columns keep the factor 1. The factors do not depend on how rows are shared
    /// among ranks. Collective.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub fn find(terms: &Terms, comm: &dyn Communicator) -> Result<Self> {
        let (b, own) = (terms.block(), terms.terms[0].1.rows());
        let columns = terms.terms[0].1.columns();
        let (mut r, mut c) = (vec![1.0; own], vec![1.0; columns]);
        let (mut row_max, column_max) = (vec![0.0f64; own], ColumnMaxima::new(columns));
        let parts: Vec<_> = terms.terms.iter().map(|(c, a)| (c.largest(), Arrays::of(a))).collect();
        for _ in 0..Self::PASSES {
            row_maxima(&mut row_max, b, |i, row_max| {
                for &(weight, a) in &parts {
                    with_block!(b, raise_row, a, i, weight, [&r[..], &c[..]], row_max, &column_max);
                }
            });
            // The owner of a column receives the maxima that other ranks found in it, and sends back the
            // factor.
            let mut column_max = column_max.take();
            if let Some(halo) = &terms.halo {
                to_owners(comm, halo, b, &mut column_max, f64::max)?;
            }
            divide(&mut r, &row_max);
            divide(&mut c[..column_max.len()], &column_max);
            if let Some(halo) = &terms.halo {
                c = halo.with_ghosts(comm, b, &c[..own])?;
            }
        }
        for factors in [&mut r, &mut c] {
            factors.par_iter_mut().with_min_len(FEW).for_each(|v| *v = power_of_two(*v));
        }
        Ok(Self { rows: r, columns: c })
    }

    /// Returns the terms of Â.
    ///
    /// # Errors
    /// An entry that overflows.
    pub fn scaled(&self, terms: &Terms) -> Result<Terms<'static>> {
        let b = terms.block();
        let scaled = |a: &Bsr| {
            // This clone shares the pattern.
            let mut scaled = a.clone();
            for_blocks_mut(a, scaled.values_mut(), &|i, j, block| {
                with_block!(b, scale_block, block, &self.rows[i * b..], &self.columns[j * b..]);
            });
            scaled.check_finite().map(|()| scaled)
        };
        let halo = terms.halo.clone();
        let terms = terms.terms.iter().map(|(c, a)| Ok((c.clone(), Cow::Owned(scaled(a)?))));
        Ok(Terms { terms: terms.collect::<Result<_>>()?, halo })
    }
}

/// Raises the maxima of block row `i` and of its columns to the entries of weight·|A| in that row. Entries
/// are scaled by the current row and column factors.
#[inline(always)]
fn raise_row(
    b: usize,
    a: Arrays,
    i: usize,
    weight: f64,
    [r, c]: [&[f64]; 2],
    row_max: &mut [f64],
    column_max: &ColumnMaxima,
) {
    let row = a.row(i);
    let blocks = a.values[row.start * b * b..row.end * b * b].chunks_exact(b * b);
    for (&j, block) in a.col[row].iter().zip(blocks) {
        let j = j as usize * b;
        for ((values, max), r) in block.chunks_exact(b).zip(&mut *row_max).zip(&r[i * b..]) {
            for (column, v) in values.iter().enumerate() {
                let v = weight * v.abs() * r * c[j + column];
                *max = if v > *max { v } else { *max };
                column_max.raise(j + column, v);
            }
        }
    }
}

/// Computes R A C of a block.
#[inline(always)]
fn scale_block(b: usize, block: &mut [f64], r: &[f64], c: &[f64]) {
    for (values, r) in block.chunks_exact_mut(b).zip(r) {
        values.iter_mut().zip(c).for_each(|(v, c)| *v = r * *v * c);
    }
}

/// Number of factors below which a second thread costs more time than it saves.
const FEW: usize = 1 << 14;

/// Divides each factor by the square root of its maximum if the maximum is positive and finite.
fn divide(factors: &mut [f64], maxima: &[f64]) {
    let both = factors.par_iter_mut().zip(maxima).with_min_len(FEW);
    both.filter(|(_, max)| **max > 0.0 && max.is_finite()).for_each(|(factor, max)| *factor /= max.sqrt());
}

/// Returns the power of two that is nearest to a positive number on a logarithmic scale. Its exponent is
/// limited so that products of two factors and an entry stay finite. It is computed from the bits of the
/// number, so that every device gets the same result.
fn power_of_two(v: f64) -> f64 {
    const FRACTION: u64 = (1 << 52) - 1;
    let above = v.to_bits() & FRACTION >= std::f64::consts::SQRT_2.to_bits() & FRACTION;
    let exponent = (v.to_bits() >> 52) as i64 - 1023 + i64::from(above);
    f64::from_bits(((exponent.clamp(-500, 500) + 1023) as u64) << 52)
}

/// Scale factors as vectors of a space: one for each unknown, the same for all stages of a row.
///
/// # Examples
/// ```
/// use krylith::{comm::Solo, device::Cpu, matrix::Csr, operator::Terms};
/// use krylith_core::precond::{Factors, Scaling};
/// let terms = Terms::csr(&Csr::from_triplets(2, 2, &[(0, 0, 4.0), (1, 1, 1.0)])?)?;
/// let factors = Factors::upload(&Cpu::new(2, 1), &Scaling::find(&terms, &Solo)?)?;
/// assert_eq!(factors.rows[0] * factors.columns[0] * 4.0, factors.rows[1] * factors.columns[1]);
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Factors<S: Space> {
    /// Diagonal of R.
    pub rows: S::Vector,
    /// Diagonal of C.
    pub columns: S::Vector,
}

/// The preconditioner C P̂⁻¹ R, with P̂ built for the terms of [`Scaling::scaled`], or C R.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::precond::BlockJacobi;
/// use krylith_core::precond::{Equilibrated, Scaling};
/// use krylith::{Precision, comm::Solo, matrix::Csr, operator::{LinearOperator, Terms, Space}};
/// let terms = Terms::csr(&Csr::from_triplets(2, 2, &[(0, 0, 1024.0), (1, 1, 2.0)])?)?;
/// let (space, scaling) = (Cpu::new(2, 1), Scaling::find(&terms, &Solo)?);
/// let inner = BlockJacobi::new(&space, &scaling.scaled(&terms)?, Precision::F64)?; // of the scaled system
/// let p = Equilibrated::new(&space, &scaling, Some(inner))?;
/// let mut y = space.vector()?;
/// p.apply(&space, &vec![1024.0, 2.0], &mut y)?;
/// assert_eq!(y, [1.0, 1.0]); // in the system's own units
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Equilibrated<S: Space, P: LinearOperator<S> = Box<dyn LinearOperator<S>>> {
    factors: Factors<S>,
    work: RefCell<S::Vector>,
    scalars: RefCell<S::Scalars>,
    inner: Option<P>,
    /// Length of a vector.
    len: usize,
    key: u64,
}

impl<S: Space> Factors<S> {
    /// Computes the factors of terms on the host, and the scaled terms. Collective; an error occurs on every
    /// rank.
    pub(crate) fn on_host(space: &S, terms: &Terms) -> Result<(Self, Terms<'static>)> {
        let scaling = Scaling::find(terms, space.comm())?;
        let made = scaling.scaled(terms).and_then(|terms| Ok((Self::upload(space, &scaling)?, terms)));
        agree(space.comm(), made)
    }

    /// Uploads factors that were computed on the host.
    ///
    /// # Errors
    /// Fewer columns than rows; factors that do not divide the length of a vector; out of device memory.
    pub fn upload(space: &S, scaling: &Scaling) -> Result<Self> {
        let (mut rows, mut columns, n) = (space.vector()?, space.vector()?, scaling.rows.len());
        if n == 0 && space.len() == 0 {
            return Ok(Self { rows, columns }); // a rank without rows
        }
        if n == 0 || scaling.columns.len() < n || !space.len().is_multiple_of(n) {
            return Err(Error::invalid(format!(
                "{n} row and {} column factors cannot scale vectors of {} numbers",
                scaling.columns.len(),
                space.len()
            )));
        }
        let mut host = vec![0.0; space.len()];
        for (from, to) in [(&scaling.rows, &mut rows), (&scaling.columns, &mut columns)] {
            host.chunks_exact_mut(space.len() / n).zip(from).for_each(|(h, &v)| h.fill(v));
            space.write(&host, to)?;
        }
        Ok(Self { rows, columns })
    }
}

impl<S: Space> Equilibrated<S> {
    /// Builds C R alone.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn alone(space: &S, scaling: &Scaling) -> Result<Self> {
        Self::new(space, scaling, None)
    }
}

impl<S: Space, P: LinearOperator<S>> Equilibrated<S, P> {
    /// Uploads the factors. Each factor scales all stages of its row.
    ///
    /// # Errors
    /// Fewer columns than rows; factors that do not divide the length of a vector.
    pub fn new(space: &S, scaling: &Scaling, inner: Option<P>) -> Result<Self> {
        Self::with_factors(space, Factors::upload(space, scaling)?, inner)
    }

    /// Builds the preconditioner with factors that are on the device already.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn with_factors(space: &S, factors: Factors<S>, inner: Option<P>) -> Result<Self> {
        let (work, scalars) = (RefCell::new(space.vector()?), RefCell::new(space.scalars(1)?));
        Ok(Self { factors, work, scalars, inner, len: space.len(), key: fresh_key() })
    }

    /// Replaces the factors for new values. The inner preconditioner is refreshed through
    /// [`inner_mut`](Self::inner_mut).
    ///
    /// # Errors
    /// Errors of the device.
    pub fn update(&mut self, space: &S, factors: &Factors<S>) -> Result<()> {
        space.copy(&factors.rows, &mut self.factors.rows)?;
        space.copy(&factors.columns, &mut self.factors.columns)
    }

    /// Returns the inner preconditioner.
    pub fn inner(&self) -> Option<&P> {
        self.inner.as_ref()
    }

    /// Multiplies a vector by R. A vector n̂ with n̂ᵀÂ = 0 becomes n = R n̂ with nᵀA = 0.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn scale_by_rows(&self, space: &S, n: &mut [f64]) -> Result<()> {
        let mut rows = vec![0.0; self.len];
        space.read(&self.factors.rows, &mut rows)?;
        n.iter_mut().zip(&rows).for_each(|(n, r)| *n *= r);
        Ok(())
    }

    /// Returns the inner preconditioner, to refresh its values.
    pub fn inner_mut(&mut self) -> Option<&mut P> {
        self.inner.as_mut()
    }
}

impl<S: Space, P: LinearOperator<S>> Equilibrated<S, P> {
    /// Computes y = L P⁻¹ F x, or y = L P⁻ᵀ F x if `turned` is true, for the scales `[F, L]`.
    fn between(
        &self,
        space: &S,
        [first, last]: [&S::Vector; 2],
        turned: bool,
        x: &S::Vector,
        y: &mut S::Vector,
    ) -> Result<()> {
        let scalars = &mut *self.scalars.borrow_mut();
        let Some(p) = &self.inner else {
            return space.sweep(scale_twice, scalars, [], [last, first, x], [y], []);
        };
        let work = &mut *self.work.borrow_mut();
        space.sweep(scale_into, scalars, [], [first, x], [&mut *work], [])?;
        applied(p, turned, space, work, y)?;
        space.sweep(scale, scalars, [], [last], [y], [])
    }
}

impl<S: Space, P: LinearOperator<S>> LinearOperator<S> for Equilibrated<S, P> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let Factors { rows, columns } = &self.factors;
        self.between(space, [rows, columns], false, x, y)
    }
    fn has_transpose(&self) -> bool {
        self.inner.as_ref().is_none_or(|p| p.has_transpose())
    }
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let Factors { rows, columns } = &self.factors;
        self.between(space, [columns, rows], true, x, y)
    }
    fn key(&self) -> u64 {
        self.key ^ self.inner.as_ref().map_or(0, |p| p.key().rotate_left(24))
    }
    fn bytes(&self) -> u64 {
        // R, x, C and y; the intermediate vector is written and read.
        let vectors = if self.inner.is_some() { 6 } else { 4 };
        8 * vectors * self.len as u64 + self.inner.as_ref().map_or(0, |p| p.bytes())
    }
    fn recordable(&self) -> bool {
        self.inner.as_ref().is_none_or(|p| p.recordable())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_power_of_two() {
        for e in -480..=480 {
            let power = 2f64.powi(e);
            for factor in [1.0, 0.708, 1.414] {
                assert_eq!(power_of_two(factor * power), power, "{factor} times 2^{e}");
            }
            assert_eq!(power_of_two(1.415 * power), 2.0 * power, "2^{e}");
        }
        assert_eq!(
            [1e300, 1e-300, f64::MIN_POSITIVE].map(power_of_two),
            [2f64.powi(500), 2f64.powi(-500), 2f64.powi(-500)]
        );
    }
}
