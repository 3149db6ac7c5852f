//! The orthogonal complement of the range of A, as far as it is known: unit vectors of empty rows, and
//! vectors n with nᵀA = 0.
//!
//! The vectors n are the null vectors that were given, or the constants that were found. For a symmetric A
//! all of them satisfy nᵀA = 0, otherwise a test selects those that do. They are orthonormalised and set to
//! zero in empty rows, so that with the unit vectors they define one orthogonal projection. A solve for the
//! projected b gives a least-squares solution for b.

use super::{Floor, Indices, NAMED, global};
use crate::Result;
use crate::comm;
use crate::operator::Terms;
use crate::precond::LeftNull;
use crate::problem::LocalProblem;
use crate::solver::null_space::Constants;
use crate::solver::symmetric::random;
use crate::text::plural;
use rayon::prelude::*;
use std::ops::Range;

/// nᵀA counts as zero up to this share of the value that it could have with entries of the same magnitudes.
const ROUNDING: f64 = 64.0 * f64::EPSILON;
/// The same for vectors that factors have shown, which are less accurate.
const SHOWN: f64 = 1e-8;
/// Number of block rows of a chunk. The sums of chunks are added sequentially.
const STRIP: usize = 4096;
/// A vector that keeps less than this share of its norm after orthogonalisation is linearly dependent on
/// earlier vectors.
const DEPENDENT: f64 = 1e-10;

/// The orthogonal complement of the range of A, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::solver) struct OutOfRange {
    /// Own unknowns whose row is empty.
    pub(in crate::solver) own_empty: Vec<Range<usize>>,
    /// Number of empty rows on all ranks.
    pub(in crate::solver) empty: usize,
    /// Own rows of the orthonormal vectors.
    pub(in crate::solver) basis: Vec<Vec<f64>>,
    /// The reason to report if b has a component along these vectors.
    pub(in crate::solver) words: String,
    /// Number of known null vectors of A, including those that are not null vectors of Aᵀ.
    pub(in crate::solver) null: usize,
    /// Largest error of the basis vectors, if factors have shown them; else 0.
    pub(in crate::solver) error: f64,
}

impl OutOfRange {
    /// Creates the complement from empty rows and from null vectors, which were given or else found.
    /// Collective.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub fn new(
        local: &LocalProblem,
        found: &Constants,
        own_empty: Vec<Range<usize>>,
        empty: usize,
    ) -> Result<Self> {
        let given = !local.null.is_empty();
        let mut null: Vec<Vec<f64>> = if given { local.null } else { &found.vectors }.to_vec();
        let mut range = Self { own_empty, empty, null: null.len(), ..Self::default() };
        null.iter_mut().for_each(|n| range.zero_empty(n));
        let left = left_null(local, &null, ROUNDING)?;
        let of = match left.iter().filter(|left| **left).count() {
            1 => format!("null vector {}", left.iter().position(|left| *left).unwrap_or(0)),
            _ => "the null vectors".into(),
        };
        range.words = match given {
            true => format!("b has a component along {of}, outside the range of A"),
            false => {
                format!("A maps {found} to zero, and b has a component along them, outside the range of A")
            }
        };
        for (n, _) in null.into_iter().zip(left).filter(|(_, left)| *left) {
            range.append(local, n)?;
        }
        Ok(range)
    }

    /// Adds vectors that factors have shown, if no others are known. Returns false if they are not those of
    /// A, because its values are newer than the factors. Collective.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub fn add(&mut self, local: &LocalProblem, mut shown: LeftNull) -> Result<bool> {
        shown.vectors.iter_mut().for_each(|n| self.zero_empty(n));
        let left = left_null(local, &shown.vectors, SHOWN)?;
        if left.is_empty() || left.contains(&false) {
            return Ok(false);
        }
        let null = plural(shown.vectors.len(), "null vector");
        self.words = format!(
            "A has {null}, which its direct factors show, and b has a component along {}, outside the range \
             of A",
            if shown.vectors.len() == 1 { "it" } else { "them" }
        );
        (self.null, self.error) = (shown.vectors.len(), shown.error.max(ROUNDING));
        shown.vectors.into_iter().try_for_each(|n| self.append(local, n))?;
        Ok(true)
    }

    /// Returns true if factors of A have shown the vectors.
    pub fn is_shown(&self) -> bool {
        self.error > 0.0
    }

    /// Returns true if the known complement is empty, so that every b is consistent as far as is known.
    pub fn is_whole(&self) -> bool {
        self.empty == 0 && self.basis.is_empty()
    }

    /// Returns true if fewer vectors n with nᵀA = 0 are known than null vectors of A.
    pub fn is_partly_unknown(&self) -> bool {
        self.basis.len() < self.null
    }

    fn zero_empty(&self, v: &mut [f64]) {
        self.own_empty.iter().for_each(|run| v[run.clone()].fill(0.0));
    }

    /// Adds a vector to the basis, unless it is linearly dependent on earlier vectors.
    fn append(&mut self, local: &LocalProblem, mut n: Vec<f64>) -> Result<()> {
        let largest = comm::largest(local.comm, n.iter().fold(0.0, |m, v| m.max(v.abs())))?;
        if !(largest > 0.0 && largest.is_finite()) {
            return Ok(());
        }
        n.iter_mut().for_each(|v| *v /= largest);
        let norm = |n: &[f64]| -> Result<f64> {
            let mut square = [n.iter().map(|v| v * v).sum()];
            local.comm.sum(&mut square)?;
            Ok(f64::sqrt(square[0]))
        };
        let whole = norm(&n)?;
        self.take_basis_off(local, &mut n)?;
        let left = norm(&n)?;
        if left > DEPENDENT * whole {
            n.iter_mut().for_each(|v| *v /= left);
            self.basis.push(n);
        }
        Ok(())
    }

    /// Subtracts the components along the basis from v. A second pass removes the components that rounding
    /// leaves in the first pass. Collective.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub fn take_basis_off(&self, local: &LocalProblem, v: &mut [f64]) -> Result<()> {
        for n in self.basis.iter().chain(&self.basis) {
            let mut share = [n.iter().zip(&*v).map(|(n, v)| n * v).sum()];
            local.comm.sum(&mut share)?;
            v.iter_mut().zip(n).for_each(|(v, n)| *v -= share[0] * n);
        }
        Ok(())
    }

    /// Projects b onto the range of A, as far as it is known. Collective.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub fn project(&self, local: &LocalProblem, b: &mut [f64]) -> Result<()> {
        self.zero_empty(b);
        let unit = unit(local, b)?.unwrap_or(1.0);
        b.iter_mut().for_each(|b| *b /= unit);
        self.take_basis_off(local, b)?;
        b.iter_mut().for_each(|b| *b *= unit);
        Ok(())
    }

    /// Returns a lower bound on the residual for this right-hand side, relative to `norm` or else to its
    /// norm. Allocates nothing if every b is consistent. Collective.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub fn floor(&self, local: &LocalProblem, b: &[f64], norm: Option<f64>) -> Result<Option<Floor>> {
        if self.is_whole() {
            return Ok(None);
        }
        let Some(unit) = unit(local, b)? else { return Ok(None) };
        let square = |v: &f64| (v / unit) * (v / unit);
        let empty = || self.own_empty.iter().cloned().flatten();
        let mut sums = vec![b.iter().map(square).sum(), empty().map(|u| square(&b[u])).sum()];
        for n in &self.basis {
            let products = || n.iter().zip(b).map(|(n, b)| n * (b / unit));
            sums.extend([products().sum::<f64>(), products().map(f64::abs).sum()]);
        }
        local.comm.sum(&mut sums)?;
        // Subtract the possible error of the sums and of the vectors from each component.
        let error = self.error.max(ROUNDING);
        let along = |pair: &[f64]| (pair[0].abs() - error * pair[1]).max(0.0).powi(2);
        let (norm, in_empty) = (norm.map_or(sums[0].sqrt(), |norm| norm / unit), sums[1]);
        let along: f64 = sums[2..].chunks_exact(2).map(along).sum();
        let residual = (in_empty + along).sqrt();
        if !(residual > 0.0 && residual.is_finite()) {
            return Ok(None);
        }
        let relative = residual / norm;
        let mut why = Vec::new();
        if in_empty > 0.0 {
            why.push(self.empty_rows(local, b)?);
        }
        if along > 0.0 && (in_empty == 0.0 || along > 1e-24 * in_empty) {
            why.push(self.words.clone());
        }
        let why = why.join("; ");
        let remedy = if self.is_shown() {
            "; subtract that component from b, or add the conditions that A lacks"
        } else {
            ""
        };
        let reason = format!("{why}: no x brings ‖b − A x‖/‖b‖ below {relative:.1e}{remedy}");
        Ok(Some(Floor { residual: residual * unit, relative, reason }))
    }

    /// Describes the empty rows in which b is not zero.
    fn empty_rows(&self, local: &LocalProblem, b: &[f64]) -> Result<String> {
        let own: Vec<usize> = self.own_empty.iter().cloned().flatten().filter(|&u| b[u] != 0.0).collect();
        let first = own.iter().take(NAMED).map(|&u| global(local, u)).collect();
        let rows = Indices::gather(local.comm, (own.len(), first))?;
        let (row, have) = if rows.count == 1 { ("row", "has") } else { ("rows", "have") };
        Ok(format!("{row} {} {have} no nonzero entry, and b is not zero there", rows.named(local.terms)))
    }
}

/// Returns a power of two near the largest magnitude, so that squares neither overflow nor underflow; `None`
/// if all are zero or one is not finite.
fn unit(local: &LocalProblem, b: &[f64]) -> Result<Option<f64>> {
    let largest = comm::largest(local.comm, b.iter().fold(0.0, |m, v| m.max(v.abs())))?;
    let known = largest > 0.0 && largest.is_finite();
    Ok(known.then(|| largest.log2().floor().clamp(-1000.0, 1000.0).exp2()))
}

/// Tests which of these null vectors n of A satisfy nᵀA = 0, as all of them do if A is symmetric. The test
/// uses a random u: nᵀ(A u) is zero up to this rounding if nᵀA = 0, and otherwise nonzero with probability
/// one. Collective.
fn left_null(local: &LocalProblem, null: &[Vec<f64>], rounding: f64) -> Result<Vec<bool>> {
    let terms = local.terms;
    if null.is_empty() {
        return Ok(Vec::new());
    }
    let order = local.order();
    let mut u: Vec<f64> = (0..terms.rows()).map(|i| random(0, global(local, i))).collect();
    if let Some(halo) = &terms.halo {
        u = halo.with_ghosts(local.comm, order, &u)?;
    }
    // Chunks do not depend on the number of threads, so neither does the result.
    let rows = terms.block_rows();
    let strip = |first: usize| {
        let mut sums = vec![[0.0; 2]; null.len()];
        let (mut product, mut magnitude) = (vec![0.0; order], vec![0.0; order]);
        for i in first..rows.min(first + STRIP) {
            multiply_row(terms, i, &u, &mut product, &mut magnitude);
            for (n, [sum, squares]) in null.iter().zip(&mut sums) {
                for ((n, p), m) in n[i * order..].iter().zip(&product).zip(&magnitude) {
                    *sum += n * p;
                    // Rounding errors of rows are independent, so their squares add up.
                    *squares += (n * m) * (n * m);
                }
            }
        }
        sums
    };
    let strips: Vec<_> = (0..rows.div_ceil(STRIP)).into_par_iter().map(|k| strip(k * STRIP)).collect();
    let mut sums = vec![0.0; 2 * null.len()];
    for strip in &strips {
        sums.iter_mut().zip(strip.as_flattened()).for_each(|(sum, v)| *sum += v);
    }
    local.comm.sum(&mut sums)?;
    let is_zero = |pair: &[f64]| pair[1].is_finite() && pair[0].abs() <= rounding * pair[1].sqrt();
    Ok(sums.chunks_exact(2).map(is_zero).collect())
}

/// Computes block row `i` of Σ (Cₜ ⊗ Aₜ) u and of Σ |Cₜ ⊗ Aₜ| |u|.
fn multiply_row(terms: &Terms, i: usize, u: &[f64], product: &mut [f64], magnitude: &mut [f64]) {
    let (b, s) = (terms.block(), terms.stages());
    product.fill(0.0);
    magnitude.fill(0.0);
    for (c, a) in &terms.terms {
        for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
            let u = &u[a.col()[p] as usize * b * s..][..b * s];
            for (e, v) in a.block_values(p).iter().enumerate() {
                for (k, l) in (0..s).flat_map(|k| (0..s).map(move |l| (k, l))) {
                    let term = c[(k, l)] * v * u[e % b * s + l];
                    product[e / b * s + k] += term;
                    magnitude[e / b * s + k] += term.abs();
                }
            }
        }
    }
}
