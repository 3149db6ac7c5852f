//! Sums of Kronecker products of small dense matrices and point-block matrices. All sparse products of the
//! library have this form.
//!
//! y = Σ (Cₜ ⊗ Aₜ) x has one or two terms. A⊗M + τB⊗L has two terms, a point-block matrix is one term with C
//! = 1, and a scalar CSR matrix is one term with 1×1 blocks. No Kronecker product is formed: (C ⊗ A) x = (A
//! X) Cᵀ, where X is x as a matrix with one column per stage. C is applied to the sums over a row, so no
//! intermediate vector exists. Alg. 2 of Ma, Zhao, Le and Yuan (paper 1 in docs/papers.md) writes and reads
//! two.
//!
//! Terms with the same pattern store their values side by side, so that columns are read once. A device
//! implements [`PointBlockSum`]: it uploads terms, multiplies, and accepts new values and new coefficients.

mod interleaved;
mod turned;

use super::{Dots, Format, LinearOperator, TransposedTerms, fresh_key, not_prepared};
use crate::halo::Halo;
use crate::matrix::{Bsr, Csr, Dense, KroneckerSum, StructuralRank};
use crate::memory::Numbers;
use crate::space::{Precision, Space};
use crate::{Error, Result};
pub(crate) use interleaved::Interleaved;
use std::borrow::Cow;
use std::sync::Arc;
use turned::Turned;

/// The terms of a sum, on the host: each has a coefficient (s×s) and a matrix.
///
/// # Examples
/// ```
/// use krylith::{matrix::{Bsr, Csr, Dense, KroneckerSum}, operator::Terms};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 4.0), (0, 1, 1.0), (1, 1, 4.0)])?;
/// let m = Bsr::from_csr(&a, 2)?; // one node with two unknowns
/// let one = Terms::bsr(&m);
/// assert_eq!((one.block(), one.block_rows(), one.stages()), (2, 1, 1));
/// let k = KroneckerSum::new(Dense::identity(3), Dense::identity(3), 0.1, m.clone(), m.clone())?;
/// let sum = Terms::kronecker(&k); // A⊗M and τB⊗L
/// assert_eq!((sum.terms().len(), sum.stages(), sum.rows()), (2, 3, 6));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Terms<'a> {
    /// One or two terms.
    pub(crate) terms: Vec<(Dense, Cow<'a, Bsr>)>,
    /// The halo of one rank's rows of a distributed sum. Block columns from the number of block rows on are
    /// its ghosts.
    pub(crate) halo: Option<Arc<Halo>>,
}

impl<'a> Terms<'a> {
    /// Creates Σ (Cₜ ⊗ Aₜ) from one or two terms. Each term is a coefficient (s×s) and a matrix, and all
    /// terms have the same shapes.
    ///
    /// # Errors
    /// No term, or more than two terms; coefficients or matrices of different shapes.
    ///
    /// ```
    /// use krylith::{matrix::{Bsr, Csr, Dense}, operator::Terms};
    /// use std::borrow::Cow;
    /// let a = Bsr::from_csr(&Csr::from_triplets(2, 2, &[(0, 0, 4.0), (1, 1, 4.0)])?, 1)?;
    /// let term = (Dense::identity(2), Cow::Borrowed(&a));
    /// let two = Terms::new(vec![term.clone(), term])?;
    /// assert_eq!((two.terms().len(), two.rows()), (2, 4));
    /// assert!(Terms::new(vec![]).is_err());
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn new(terms: Vec<(Dense, Cow<'a, Bsr>)>) -> Result<Self> {
        let count = terms.len();
        if !(1..=2).contains(&count) {
            return Err(Error::invalid(format!("a sum has one or two terms, not {count}")));
        }
        let shape = |(c, a): &(Dense, Cow<Bsr>)| {
            (c.rows(), c.columns(), a.block(), a.block_rows(), a.block_columns())
        };
        let (first, last) = (shape(&terms[0]), shape(&terms[count - 1]));
        if first != last || first.0 != first.1 {
            return Err(Error::invalid(format!(
                "the terms of a sum have {}×{} and {}×{} coefficients, block sizes {} and {}, and {}×{} and \
                 {}×{} blocks; expected square coefficients and equal shapes",
                first.0, first.1, last.0, last.1, first.2, last.2, first.3, first.4, last.3, last.4
            )));
        }
        Ok(Self { terms, halo: None })
    }

    /// Returns the same terms as one rank's rows of a distributed sum. Block columns from the number of block
    /// rows on are its ghosts.
    pub fn with_halo(self, halo: Option<Arc<Halo>>) -> Self {
        Self { halo, ..self }
    }

    /// Returns the coefficient (s×s) and the matrix of each term.
    pub fn terms(&self) -> &[(Dense, Cow<'a, Bsr>)] {
        &self.terms
    }

    /// Returns the halo, if these are one rank's rows of a distributed sum.
    pub fn halo(&self) -> Option<&Arc<Halo>> {
        self.halo.as_ref()
    }

    /// Creates A⊗M + τB⊗L.
    pub fn kronecker(k: &'a KroneckerSum) -> Self {
        Self {
            terms: vec![(k.a.clone(), Cow::Borrowed(&k.m)), (scaled(&k.b, k.tau), Cow::Borrowed(&k.l))],
            halo: None,
        }
    }

    /// Creates a sum of one point-block matrix.
    pub fn bsr(a: &'a Bsr) -> Self {
        Self { terms: vec![(Dense::identity(1), Cow::Borrowed(a))], halo: None }
    }

    /// Creates a sum of one scalar matrix, as 1×1 blocks.
    pub fn csr(a: &Csr) -> Result<Self> {
        Ok(Self { terms: vec![(Dense::identity(1), Cow::Owned(Bsr::from_csr(a, 1)?))], halo: None })
    }

    /// Replaces the values of term `t` on the host, from host or device memory. A borrowed matrix is copied
    /// first.
    ///
    /// # Errors
    /// No such term; a wrong length; a value that is not finite. After the last error the matrix has that
    /// value.
    pub fn update_values<'v>(&mut self, t: usize, values: impl Into<Numbers<'v>>) -> Result<()> {
        let terms = self.terms.len();
        match self.terms.get_mut(t) {
            Some((_, a)) => a.to_mut().update_values(values),
            None => Err(Error::invalid(format!(
                "there is no term {t}; the operator has {terms} terms, counted from 0"
            ))),
        }
    }

    /// Returns the structural rank of the sum; `None` if the search needs to visit more than `most` entries.
    pub fn structural_rank(&self, most: usize) -> Option<StructuralRank> {
        let parts: Vec<(Option<&Dense>, &Bsr)> = self.terms.iter().map(|(c, a)| (Some(c), &**a)).collect();
        StructuralRank::of(&parts, most)
    }

    /// Returns the block size b.
    pub fn block(&self) -> usize {
        self.terms[0].1.block()
    }
    /// Returns the number of stages s.
    pub fn stages(&self) -> usize {
        self.terms[0].0.rows()
    }
    /// Returns the number of block rows.
    pub fn block_rows(&self) -> usize {
        self.terms[0].1.block_rows()
    }
    /// Returns the number of scalar rows of the whole operator.
    pub fn rows(&self) -> usize {
        self.terms[0].1.rows() * self.stages()
    }
    /// Returns true if every own node is a row and a column, so that the whole matrix is square.
    pub fn is_square(&self) -> bool {
        let columns = self.block_rows() + self.halo.as_ref().map_or(0, |h| h.ghosts);
        self.terms.iter().all(|t| t.1.block_columns() == columns)
    }
    /// Returns true if there are two terms of the same pattern, which are stored and traversed together.
    pub fn shared_pattern(&self) -> bool {
        self.terms.len() == 2 && self.terms[0].1.same_pattern(&self.terms[1].1)
    }

    /// Returns the number of diagonals that [`Format::Auto`] stores. For a symmetric matrix these are the
    /// main diagonal and the diagonals above it. Returns `None` for matrices that are stored by rows, and for
    /// blocks and sums, which have their own formats.
    pub fn kept_diagonals(&self) -> Option<usize> {
        match &self.terms[..] {
            [(_, a)] if self.stages() == 1 => super::kept_diagonals(a),
            _ => None,
        }
    }
}

fn scaled(b: &Dense, tau: f64) -> Dense {
    let mut scaled = b.clone();
    for i in 0..b.rows() {
        (0..b.columns()).for_each(|j| scaled[(i, j)] *= tau);
    }
    scaled
}

/// A device that can store and multiply sums of point-block terms.
///
/// # Examples
/// This bound lets code multiply by matrices on any device.
/// ```
/// use krylith::device::Cpu;
/// use krylith::{Precision, matrix::Csr, operator::{LinearOperator, PointBlock}};
/// use krylith_core::operator::PointBlockSum;
/// fn multiply<S: PointBlockSum>(space: &S, a: &Csr, x: &[f64]) -> krylith::Result<Vec<f64>> {
///     let operator = PointBlock::csr(space, a, Precision::F64)?;
///     let (mut v, mut w, mut y) = (space.vector()?, space.vector()?, vec![0.0; x.len()]);
///     space.write(x, &mut v)?;
///     operator.apply(space, &v, &mut w)?;
///     space.read(&w, &mut y)?;
///     Ok(y)
/// }
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
/// assert_eq!(multiply(&Cpu::new(2, 1), &a, &[1.0, 2.0])?, [4.0, 6.0]);
/// # Ok::<(), krylith::Error>(())
/// ```
pub trait PointBlockSum: Space {
    /// Matrices and coefficients on the device.
    type Product;
    /// Returns the same terms in the memory that suits this device best, so that all parts of a set-up start
    /// from one copy.
    fn place<'a>(&self, terms: &Terms<'a>) -> Result<Terms<'a>> {
        Ok(terms.clone())
    }
    /// Transposes terms, in the memory where they are. Collective if they have a halo.
    ///
    /// # Errors
    /// Out of device memory; a rank that has ended or failed.
    fn transpose(&self, terms: &Terms) -> Result<TransposedTerms> {
        TransposedTerms::on_host(self.comm(), terms)
    }
    /// Takes the values and coefficients of the same terms after they have changed. Collective if they have a
    /// halo.
    ///
    /// # Errors
    /// As [`transpose`](Self::transpose).
    fn transpose_again(&self, terms: &Terms, to: &mut TransposedTerms) -> Result<()> {
        to.update_on_host(self.comm(), terms)
    }
    /// Uploads and arranges the terms. Finds the structure inside the blocks, unless `dense` is true.
    fn prepare(&self, terms: &Terms, precision: Precision, dense: bool) -> Result<Self::Product> {
        self.prepare_as(terms, precision, dense, Format::Auto)
    }
    /// Does the same as [`prepare`](Self::prepare) for a given format. Collective if the terms have a halo.
    fn prepare_as(
        &self,
        terms: &Terms,
        precision: Precision,
        dense: bool,
        format: Format,
    ) -> Result<Self::Product>;
    /// Returns the chosen format; `auto` for the formats of blocks.
    fn format(product: &Self::Product) -> Format;
    /// Computes `y ← Σ (Cₜ ⊗ Aₜ) x`.
    fn multiply(&self, product: &Self::Product, x: &Self::Vector, y: &mut Self::Vector) -> Result<()>;
    /// Computes the same for several vectors, reading the matrix once if the device can.
    fn multiply_columns(
        &self,
        product: &Self::Product,
        x: &[&Self::Vector],
        y: &mut [&mut Self::Vector],
    ) -> Result<()> {
        x.iter().zip(y).try_for_each(|(x, y)| self.multiply(product, x, y))
    }
    /// Returns true if [`multiply_columns`](Self::multiply_columns) costs less than one product after the
    /// other.
    fn gains_by_columns(&self, _product: &Self::Product) -> bool {
        true
    }
    /// Returns true if the device has products with alternating columns.
    fn interleaves(&self) -> bool {
        false
    }
    /// Returns the product of I ⊗ A with `width` vectors whose numbers alternate: number e of column k is at
    /// e·width + k. It shares the arrays of the terms, or of the product if there are no terms. Returns
    /// `None` if the device has no such product, or cannot make it from these.
    ///
    /// # Errors
    /// Out of device memory; a kernel that cannot be loaded.
    fn interleaved(
        &self,
        _terms: Option<&Terms>,
        _product: Option<&Self::Product>,
        _width: usize,
    ) -> Result<Option<Self::Product>> {
        Ok(None)
    }
    /// Copies the numbers of several vectors into one in which they alternate, `width` columns wide. Further
    /// columns become zero. Asynchronous on a GPU; allocates nothing.
    ///
    /// # Errors
    /// A device without [`interleaved`](Self::interleaved) products.
    fn interleave(&self, _from: &[&Self::Vector], _width: usize, _to: &mut Self::Vector) -> Result<()> {
        Err(Error::Internal("the device has no vectors of alternating columns".into()))
    }
    /// Copies such columns back to vectors.
    ///
    /// # Errors
    /// As [`interleave`](Self::interleave).
    fn separate(&self, _from: &Self::Vector, _width: usize, _to: &mut [&mut Self::Vector]) -> Result<()> {
        Err(Error::Internal("the device has no vectors of alternating columns".into()))
    }
    /// Computes the same, with sums in the same pass if the kernel of this product supports it; see
    /// [`LinearOperator::apply_with_dots`].
    fn multiply_with_dots(
        &self,
        product: &Self::Product,
        x: &Self::Vector,
        y: &mut Self::Vector,
        _scalars: &mut Self::Scalars,
        _dots: Dots,
    ) -> Result<bool> {
        self.multiply(product, x, y)?;
        Ok(false)
    }
    /// Computes `r ← b − Σ (Cₜ ⊗ Aₜ) x`, each entry in twice the working precision and then rounded, and `m ←
    /// |b| + Σ |Cₜ ⊗ Aₜ| |x|`, which measures the effect of rounding.
    fn residual(
        &self,
        product: &Self::Product,
        b: &Self::Vector,
        x: &Self::Vector,
        r: &mut Self::Vector,
        m: &mut Self::Vector,
    ) -> Result<()>;
    /// Sets new values of the matrix of term `t`, in the natural order of [`Bsr::values`]. Values in the
    /// memory of the GPU that has the product are read in place. A CPU copies them to the host.
    fn update_values(&self, product: &mut Self::Product, t: usize, values: Numbers) -> Result<()>;
    /// Sets new coefficients, of any order s; vectors then have n·b·s entries.
    fn update_coefficients(&self, product: &mut Self::Product, coefficients: &[Dense]) -> Result<()>;
    /// Returns the fewest bytes that one product can move.
    fn product_bytes(product: &Self::Product) -> u64;
    /// Returns a key that changes when the buffers or kernels of recorded work change.
    fn product_key(product: &Self::Product) -> u64;
}

/// A sum of point-block terms, as an operator.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::{Precision, matrix::Csr, operator::{LinearOperator, PointBlock, Space}};
/// let space = Cpu::new(2, 1);
/// let matrix = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
/// let mut a = PointBlock::csr(&space, &matrix, Precision::F64)?;
/// let (x, mut y) = (vec![1.0, 2.0], space.vector()?);
/// a.apply(&space, &x, &mut y)?;
/// assert_eq!(y, [4.0, 6.0]);
/// a.update_values(&space, 0, &[4.0, 2.0, 6.0])?; // nothing is analysed or allocated anew
/// a.apply(&space, &x, &mut y)?;
/// assert_eq!(y, [8.0, 12.0]);
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct PointBlock<S: PointBlockSum> {
    product: S::Product,
    key: u64,
    b: Option<Dense>,
    /// A and τB as the device last received them. They are kept so that a new τ allocates nothing.
    coefficients: Vec<Dense>,
    precision: Precision,
    transpose: Option<Turned<S>>,
    /// The product for several vectors, if a preconditioner has brought one.
    interleaved: Option<Interleaved<S>>,
}

impl<S: PointBlockSum> PointBlock<S> {
    /// Builds A⊗M + τB⊗L on the device of `space`.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn kronecker(space: &S, k: &KroneckerSum, precision: Precision) -> Result<Self> {
        let mut operator = Self::new(space, &Terms::kronecker(k), precision, false)?;
        operator.b = Some(k.b.clone());
        Ok(operator)
    }

    /// Builds A⊗M + τB⊗L from two terms whose coefficients are already A and τB, such as one rank's part.
    /// Keeps B for [`set_tau`](Self::set_tau).
    ///
    /// # Errors
    /// Not exactly two terms; a B of another order; out of device memory.
    pub fn stages(space: &S, terms: &Terms, b: &Dense, precision: Precision) -> Result<Self> {
        if terms.terms.len() != 2 || b.rows() != terms.stages() || b.columns() != terms.stages() {
            return Err(Error::invalid(format!(
                "{} terms with {} stages do not match a {}×{} matrix B; expected two terms, and one row and \
                 column of B per stage",
                terms.terms.len(),
                terms.stages(),
                b.rows(),
                b.columns()
            )));
        }
        let mut operator = Self::new(space, terms, precision, false)?;
        operator.b = Some(b.clone());
        Ok(operator)
    }

    /// Builds a point-block matrix on the device of `space`.
    pub fn bsr(space: &S, a: &Bsr, precision: Precision) -> Result<Self> {
        Self::new(space, &Terms::bsr(a), precision, false)
    }

    /// Builds a scalar matrix on the device of `space`.
    pub fn csr(space: &S, a: &Csr, precision: Precision) -> Result<Self> {
        Self::new(space, &Terms::csr(a)?, precision, false)
    }

    /// Builds any sum of terms. If `dense` is true, structure inside the blocks is not used.
    pub fn new(space: &S, terms: &Terms, precision: Precision, dense: bool) -> Result<Self> {
        Self::of(terms, space.prepare(terms, precision, dense)?, precision)
    }

    /// Builds any sum of terms, with a matrix of scalar rows stored in a given format. Collective if the
    /// terms have a halo.
    ///
    /// # Errors
    /// A format by diagonals for a matrix with more than 32 diagonals or too few entries on them, or for
    /// terms other than one scalar matrix; out of device memory.
    pub fn with_format(space: &S, terms: &Terms, precision: Precision, format: Format) -> Result<Self> {
        Self::of(terms, space.prepare_as(terms, precision, false, format)?, precision)
    }

    /// Wraps the product that a device prepared for the terms.
    pub(crate) fn of(terms: &Terms, product: S::Product, precision: Precision) -> Result<Self> {
        Ok(Self {
            product,
            key: fresh_key(),
            b: None,
            coefficients: terms.terms.iter().map(|t| t.0.clone()).collect(),
            precision,
            transpose: None,
            interleaved: None,
        })
    }

    /// Sets new values of M (term 0) or L (term 1) with the same pattern. Nothing is analysed again.
    ///
    /// Values on the host are checked before anything changes. Values on the GPU that has the product are
    /// packed and checked there in one pass. After an error the product has some of these values, and must
    /// get new ones.
    ///
    /// # Errors
    /// A wrong length; a value that is not finite; a value that breaks the structure found at set-up, where
    /// an entry was zero, or equal to another, in every block.
    pub fn update_values<'v>(
        &mut self,
        space: &S,
        term: usize,
        values: impl Into<Numbers<'v>>,
    ) -> Result<()> {
        let terms = self.coefficients.len();
        if term >= terms {
            return Err(Error::invalid(format!(
                "there is no term {term}; the operator has {terms} terms, counted from 0"
            )));
        }
        self.forget_copies();
        space.update_values(&mut self.product, term, values.into())
    }

    /// Sets a new τ of a Kronecker operator. Only s² numbers change.
    pub fn set_tau(&mut self, space: &S, a: &Dense, tau: f64) -> Result<()> {
        let b = self.b.take().ok_or_else(|| {
            Error::invalid("set_tau needs an operator built by PointBlock::kronecker or PointBlock::stages")
        })?;
        let done = self.set_coefficients(space, a, &b, tau);
        self.b = Some(b);
        done
    }

    /// Sets new A, B and τ, for any number of stages. M and L do not change.
    pub fn set_stages(&mut self, space: &S, a: &Dense, b: &Dense, tau: f64) -> Result<()> {
        if self.b.is_none() {
            return Err(Error::invalid(
                "set_stages needs an operator built by PointBlock::kronecker or PointBlock::stages",
            ));
        }
        self.set_coefficients(space, a, b, tau)?;
        self.b = Some(b.clone());
        Ok(())
    }

    fn set_coefficients(&mut self, space: &S, a: &Dense, b: &Dense, tau: f64) -> Result<()> {
        if a.rows() != b.rows() || a.rows() != a.columns() || b.rows() != b.columns() {
            return Err(Error::invalid("A and B must be square matrices of the same order"));
        }
        if !b.values().iter().all(|v| (tau * v).is_finite()) {
            return Err(Error::invalid(format!("tau is {tau}; tau times B must be finite")));
        }
        for (to, from, factor) in [(0, a, 1.0), (1, b, tau)] {
            let to = &mut self.coefficients[to];
            if to.rows() != from.rows() {
                *to = from.clone();
            }
            for k in 0..from.rows() {
                (0..from.rows()).for_each(|q| to[(k, q)] = factor * from[(k, q)]);
            }
        }
        self.forget_copies();
        space.update_coefficients(&mut self.product, &self.coefficients)
    }

    /// Returns the storage format of the product; `auto` for the formats of blocks.
    pub fn format(&self) -> Format {
        S::format(&self.product)
    }

    /// Returns the precision of the stored values.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Returns the product as the device stores it.
    pub fn product(&self) -> &S::Product {
        &self.product
    }

    /// Returns the product as the device stores it, for updates that are specific to that device.
    pub fn product_mut(&mut self) -> &mut S::Product {
        self.forget_copies();
        &mut self.product
    }
}

impl<S: PointBlockSum> LinearOperator<S> for PointBlock<S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        space.multiply(&self.product, x, y)
    }
    fn apply_columns(&self, space: &S, x: &[&S::Vector], y: &mut [&mut S::Vector]) -> Result<()> {
        match &self.interleaved {
            Some(interleaved) if x.len() <= interleaved.width() => interleaved.apply(space, x, y),
            _ => space.multiply_columns(&self.product, x, y),
        }
    }
    fn apply_with_dots(
        &self,
        space: &S,
        x: &S::Vector,
        y: &mut S::Vector,
        scalars: &mut S::Scalars,
        dots: Dots,
    ) -> Result<bool> {
        space.multiply_with_dots(&self.product, x, y, scalars, dots)
    }
    fn residual(
        &self,
        space: &S,
        b: &S::Vector,
        x: &S::Vector,
        r: &mut S::Vector,
        m: &mut S::Vector,
    ) -> Result<bool> {
        space.residual(&self.product, b, x, r, m)?;
        Ok(true)
    }
    fn has_transpose(&self) -> bool {
        true
    }
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        match &self.transpose {
            Some(turned) if !turned.stale => turned.operator.borrow().apply(space, x, y),
            _ => Err(not_prepared()),
        }
    }
    fn key(&self) -> u64 {
        let turned = self.transpose.as_ref().map_or(0, |turned| turned.operator.key());
        let interleaved = self.interleaved.as_ref().map_or(0, |interleaved| interleaved.key());
        self.key
            ^ S::product_key(&self.product).rotate_left(16)
            ^ turned.rotate_left(32)
            ^ interleaved.rotate_left(48)
    }
    fn bytes(&self) -> u64 {
        S::product_bytes(&self.product)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_takes_new_values() {
        let a = Csr::from_triplets(2, 2, &[(0, 0, 4.0), (0, 1, 1.0), (1, 1, 2.0)]).unwrap();
        let (mut terms, twice) = (Terms::csr(&a).unwrap(), [8.0, 2.0, 4.0]);
        terms.update_values(0, &twice).unwrap();
        assert_eq!(terms.terms[0].1.values(), twice);
        assert!(terms.update_values(1, &twice).unwrap_err().to_string().contains("no term 1"));
    }
}
