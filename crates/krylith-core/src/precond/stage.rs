//! Stage preconditioners of Kronecker systems A⊗M + τB⊗L, which solve one stage at a time instead of all
//! stages together.
//!
//! The method follows Rana, Howle, Long, Meek and Milestone (SIAM J. Sci. Comput. 43, 2021). With the LDU
//! factors B = L̂ D Û, the preconditioner is
//!
//! P = A⊗M + τ(L̂D)⊗L,
//!
//! It is block lower triangular in the stages. For A = I the difference from the system is τ(L̂D(Û − I))⊗L,
//! so P⁻¹(A⊗M + τB⊗L) is close to the identity for the usual schemes. If every stage is solved exactly, GMRES
//! takes five iterations on the Stokes problem, on any mesh. P y = x is solved by forward substitution,
//!
//! (aᵢᵢ M + τ(L̂D)ᵢᵢ L) yᵢ = xᵢ − Σⱼ (aᵢⱼ M + τ(L̂D)ᵢⱼ L) yⱼ,    j < i,
//!
//! and each stage is solved by ILDU on subdomains, with blocks of order b. The factors take s times as much
//! memory as factors of L. ILDU of the whole system, with blocks of order b·s, takes s² times as much.
//! Without coupling (block Jacobi in the stages) the sum over j is left out.
//!
//! Requirements: at most one of A and B is not lower triangular, and this matrix has LDU factors without
//! pivoting (nonzero leading minors). In P it is replaced by its L̂D, whether it is A or B. So systems whose
//! unknowns are stage values (A = inverse of the Butcher matrix, B = I) are supported too. If both were full,
//! they would have different Û, and no lower triangular P would be close to the system.
//!
//! The transpose goes through the stages in reverse order, with transposed factors, products and
//! coefficients.
//!
//! The unknowns of stage k of s are every s-th number of a vector from k on. The factors read and write them
//! in place ([`Stride`]), without a copy.
//!
//! Traffic of one application, for vectors of N numbers: the factors of s stages. Coupling adds N numbers,
//! and s − 1 times a product and 3 N numbers.

use super::compose::residual;
use super::ildu::{Ildu, IlduOptions, Outline, Stride, SubdomainFactors};
use crate::matrix::Dense;
use crate::operator::{
    LinearOperator, PointBlock, PointBlockSum, TermValues, Terms, applied, fresh_key, joined_key,
};
use crate::partition::Subdomains;
use crate::space::Precision;
use crate::{Error, Result, sweeps};
use std::borrow::Cow;
use std::cell::RefCell;

sweeps! {
    /// The vector pass of stage preconditioners that combinations do not have.
    pub const SWEEPS;
    /// y = 0.
    clear: () [] [y] -> [] { y = 0.0; }
}

/// Options of [`Stage`].
///
/// # Examples
/// ```
/// use krylith::precond::IlduOptions;
/// use krylith_core::precond::StageOptions;
/// let ildu = IlduOptions { fill: 1, ..IlduOptions::default() };
/// let options = StageOptions { ildu, ..StageOptions::default() };
/// # let _ = options;
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StageOptions {
    /// Options of the factors of each stage. The product that couples stages is stored in the same precision.
    pub ildu: IlduOptions,
    /// True for forward substitution through the stages; false to solve each stage independently.
    pub coupled: bool,
}

impl Default for StageOptions {
    fn default() -> Self {
        Self { ildu: IlduOptions::default(), coupled: true }
    }
}

/// The preconditioner y ≈ P⁻¹x with P = A⊗M + τ(L̂D)⊗L, stage after stage.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith_core::precond::{Stage, StageOptions};
/// use krylith::matrix::{Bsr, Dense, KroneckerSum};
/// use krylith::operator::{LinearOperator, Terms, Space};
/// use krylith_core::partition::Subdomains;
/// // Two stages of one unknown. B is lower triangular, so the preconditioner solves (I + B) x = b exactly.
/// let one = Bsr::new(1, 1, 1, vec![0, 1], vec![0], vec![1.0])?;
/// let b = Dense::new(2, 2, vec![1.0, 0.0, 2.0, 3.0])?;
/// let system = KroneckerSum::new(Dense::identity(2), b, 1.0, one.clone(), one)?;
/// let space = Cpu::new(2, 1);
/// let p = Stage::new(&space, &Terms::kronecker(&system), &Subdomains::whole(1), StageOptions::default())?;
/// let mut y = space.vector()?;
/// p.apply(&space, &vec![2.0, 6.0], &mut y)?;
/// assert_eq!(y, [1.0, 1.0]); // 2 x₀ = 2, 2 x₀ + 4 x₁ = 6
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Stage<S: SubdomainFactors + PointBlockSum> {
    /// Factors of aᵢᵢ M + τ(L̂D)ᵢᵢ L for each stage, all on one plan.
    stages: Vec<Ildu<S>>,
    coupling: Option<Coupling<S>>,
    /// x minus the contributions of earlier stages.
    rest: RefCell<S::Vector>,
    scalars: RefCell<S::Scalars>,
    coupled: bool,
    len: u64,
    key: u64,
}

/// The part of P strictly below the diagonal of stages.
pub(crate) struct Coupling<S: PointBlockSum> {
    pub product: PointBlock<S>,
    /// The terms that have a nonzero coefficient below the diagonal of stages.
    terms: Vec<usize>,
}

impl<S: PointBlockSum> Coupling<S> {
    /// Builds the product that couples stages, if any, for the coefficients of P.
    pub fn new(space: &S, terms: &Terms, lower: &[Dense], precision: Precision) -> Result<Option<Self>> {
        let below: Vec<Dense> = lower.iter().map(strictly_lower).collect();
        let kept: Vec<usize> = (0..below.len()).filter(|&t| !is_zero(&below[t])).collect();
        if kept.is_empty() {
            return Ok(None);
        }
        let part = |&t: &usize| (below[t].clone(), Cow::Borrowed(&*terms.terms[t].1));
        let part = Terms { terms: kept.iter().map(part).collect(), halo: terms.halo.clone() };
        Ok(Some(Self { product: PointBlock::new(space, &part, precision, false)?, terms: kept }))
    }

    /// Lays out the product with the transpose, for the terms and coefficients of P.
    ///
    /// # Errors
    /// As [`PointBlock::prepare_transpose`].
    pub fn prepare_transpose(&mut self, space: &S, terms: &Terms, lower: &[Dense]) -> Result<()> {
        let part = |&t: &usize| (strictly_lower(&lower[t]), Cow::Borrowed(&*terms.terms[t].1));
        let part = Terms { terms: self.terms.iter().map(part).collect(), halo: terms.halo.clone() };
        self.product.prepare_transpose(space, &part)
    }

    /// Takes new coefficients of P and new values.
    ///
    /// # Errors
    /// Coupling through a matrix that did not couple stages before; errors of
    /// [`PointBlock::update_values`].
    pub fn update(of: &mut Option<Self>, space: &S, lower: &[Dense], values: TermValues) -> Result<()> {
        let below: Vec<Dense> = lower.iter().map(strictly_lower).collect();
        let had: &[usize] = of.as_ref().map_or(&[], |c| &c.terms);
        if let Some(t) = (0..below.len()).find(|t| !is_zero(&below[*t]) && !had.contains(t)) {
            return Err(Error::invalid(format!(
                "term {t} couples stages now, but did not when the preconditioner was built; build a new one"
            )));
        }
        let Some(Self { product, terms: kept }) = of else { return Ok(()) };
        for (to, &from) in kept.iter().enumerate() {
            if let Some((_, values)) = values.term(from) {
                product.update_values(space, to, values)?;
            }
        }
        let coefficients: Vec<Dense> = kept.iter().map(|&t| below[t].clone()).collect();
        space.update_coefficients(product.product_mut(), &coefficients)
    }
}

impl<S: SubdomainFactors + PointBlockSum> Stage<S> {
    /// Analyses the patterns once, and factorises every stage of the sum, whose coefficients are A and τB.
    ///
    /// # Errors
    /// Coefficients that do not meet the requirements of this module; errors of [`Ildu::new`].
    pub fn new(space: &S, terms: &Terms, subdomains: &Subdomains, options: StageOptions) -> Result<Self> {
        let lower = lower_factors(&terms.into())?;
        let s = terms.stages();
        let plan = space.analyse(&stage(terms, &lower, 0)?, subdomains, options.ildu.fill)?;
        let factorize = |k| Ildu::with_plan(space, &stage(terms, &lower, k)?, plan.clone(), options.ildu);
        let stages = (0..s).map(factorize).collect::<Result<Vec<_>>>()?;
        let coupling =
            if options.coupled { Coupling::new(space, terms, &lower, options.ildu.precision)? } else { None };
        let (rest, scalars) = (RefCell::new(space.vector()?), RefCell::new(space.scalars(1)?));
        let (coupled, len, key) = (options.coupled, space.len() as u64, fresh_key());
        Ok(Self { stages, coupling, rest, scalars, coupled, len, key })
    }

    /// Factorises again, for new values, τ, A or B under the same patterns. Nothing is analysed again, and
    /// only s² numbers are allocated temporarily. After an error the preconditioner must not be applied.
    ///
    /// Values in device memory are used as by [`Ildu::update_values`] and [`PointBlock::update_values`].
    ///
    /// # Errors
    /// As [`new`](Self::new); values of another shape, or another number of stages; coupling through a matrix
    /// that did not couple stages before; values that break the structure found inside the blocks at set-up,
    /// as in [`PointBlock::update_values`].
    pub fn update_values<'v>(&mut self, space: &S, values: impl Into<TermValues<'v>>) -> Result<()> {
        let values = values.into();
        let lower = lower_factors(&values)?;
        if values.stages() != self.stages.len() {
            return Err(Error::invalid(format!(
                "the new values have {} stages, but the preconditioner was built for {}; build a new one",
                values.stages(),
                self.stages.len()
            )));
        }
        for (k, ildu) in self.stages.iter_mut().enumerate() {
            let own = lower.iter().map(|c| Dense::new(1, 1, vec![c[(k, k)]])).collect::<Result<Vec<_>>>()?;
            ildu.update_values(space, values.with_coefficients(&own))?;
        }
        match self.coupled {
            true => Coupling::update(&mut self.coupling, space, &lower, values),
            false => Ok(()),
        }
    }

    /// Lays out the transposes of the factors and of the coupling, for these terms with the current values.
    /// Call this function again after [`update_values`](Self::update_values), which refreshes the factors
    /// alone.
    ///
    /// # Errors
    /// Out of device memory; a rank that has ended or failed.
    pub fn prepare_transpose(&mut self, space: &S, terms: &Terms) -> Result<()> {
        self.stages.iter_mut().try_for_each(|ildu| ildu.prepare_transpose(space))?;
        let Some(coupling) = &mut self.coupling else { return Ok(()) };
        coupling.prepare_transpose(space, terms, &lower_factors(&terms.into())?)
    }

    /// Returns the outline of the factors, which is the same for every stage.
    pub fn outline(&self) -> &Outline {
        self.stages[0].outline()
    }

    /// Returns the factors of stage k.
    pub fn stage(&self, k: usize) -> &Ildu<S> {
        &self.stages[k]
    }
}

impl<S: SubdomainFactors + PointBlockSum> Stage<S> {
    /// Solves one stage after the other. The transpose begins with the last.
    fn substitute(&self, space: &S, turned: bool, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let s = self.stages.len();
        let solve = |k: usize, x: &S::Vector, y: &mut S::Vector| match turned {
            false => self.stages[k].apply_at(space, Stride::stage(k, s), x, y),
            true => self.stages[k].apply_transpose_at(space, Stride::stage(k, s), x, y),
        };
        let Some(coupling) = &self.coupling else {
            return (0..s).try_for_each(|k| solve(k, x, y));
        };
        let (rest, scalars) = (&mut *self.rest.borrow_mut(), &mut *self.scalars.borrow_mut());
        // y must be finite at stages that are not solved yet. Their coefficients are zero, but 0 · NaN is
        // NaN.
        space.sweep(clear, scalars, [], [], [&mut *y], [])?;
        for step in 0..s {
            let k = if turned { s - 1 - step } else { step };
            if step == 0 {
                solve(k, x, y)?;
                continue;
            }
            applied(&coupling.product, turned, space, y, rest)?;
            space.sweep(residual, scalars, [], [x], [&mut *rest], [])?;
            solve(k, rest, y)?;
        }
        Ok(())
    }
}

impl<S: SubdomainFactors + PointBlockSum> LinearOperator<S> for Stage<S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.substitute(space, false, x, y)
    }
    fn has_transpose(&self) -> bool {
        true
    }
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.substitute(space, true, x, y)
    }
    fn key(&self) -> u64 {
        let coupling = self.coupling.as_ref().map(|c| c.product.key());
        joined_key([self.key].into_iter().chain(self.stages.iter().map(Ildu::key)).chain(coupling))
    }
    fn bytes(&self) -> u64 {
        let stages: u64 = self.stages.iter().map(Ildu::bytes).sum();
        let products = self.stages.len() as u64 - 1;
        let coupling = |c: &Coupling<S>| products * (c.product.bytes() + 24 * self.len) + 8 * self.len;
        stages + self.coupling.as_ref().map_or(0, coupling)
    }
}

/// Returns the coefficients of P for each term: A and τL̂D.
pub(crate) fn lower_factors(values: &TermValues) -> Result<Vec<Dense>> {
    if values.iter().filter(|(c, _)| !is_lower(c)).count() > 1 {
        return Err(Error::Unsupported(
            "a stage preconditioner needs a lower triangular A or B: transform the system so that one is the identity, or \
             use ildu0, which treats all stages together"
                .into(),
        ));
    }
    values.iter().map(|(c, _)| lower_factor(c)).collect()
}

/// Returns L̂D of B = L̂ D Û, where L̂ and Û are unit triangular. A lower triangular B is returned unchanged,
/// even if it is singular.
///
/// # Errors
/// A B that is not square, or a pivot that vanishes (relative to the largest entry), so that B has no such
/// factors.
pub fn lower_factor(b: &Dense) -> Result<Dense> {
    let s = b.rows();
    if b.columns() != s {
        return Err(Error::invalid(format!(
            "a {s}×{} matrix has no LDU factors; the matrix must be square",
            b.columns()
        )));
    }
    if is_lower(b) {
        return Ok(b.clone());
    }
    let largest = b.values().iter().fold(0.0f64, |m, v| m.max(v.abs()));
    let mut u = b.clone(); // ends with D Û in the upper part and L̂D in the lower part
    for k in 0..s {
        if !(u[(k, k)].abs() > 1e-14 * largest) {
            return Err(Error::Unsupported(format!(
                "a stage preconditioner needs LDU factors of the coefficients, but pivot {k} of the {s}×{s} matrix vanishes; \
                 use ildu0, which treats all stages together"
            )));
        }
        for i in k + 1..s {
            let l = u[(i, k)] / u[(k, k)];
            (k + 1..s).for_each(|j| u[(i, j)] -= l * u[(k, j)]);
        }
    }
    let lower = (0..s * s).map(|e| if e % s <= e / s { u.values()[e] } else { 0.0 });
    Dense::new(s, s, lower.collect())
}

fn is_lower(c: &Dense) -> bool {
    (0..c.rows()).all(|i| (i + 1..c.columns()).all(|j| c[(i, j)] == 0.0))
}

fn is_zero(c: &Dense) -> bool {
    c.values().iter().all(|&v| v == 0.0)
}

fn strictly_lower(c: &Dense) -> Dense {
    let mut below = c.clone();
    (0..c.rows()).for_each(|i| (i..c.columns()).for_each(|j| below[(i, j)] = 0.0));
    below
}

/// Returns the sum for stage k alone: the same matrices, with coefficients of order 1.
fn stage<'a>(terms: &'a Terms, lower: &[Dense], k: usize) -> Result<Terms<'a>> {
    let own = |c: &Dense| Dense::new(1, 1, vec![c[(k, k)]]);
    let matrices = terms.terms.iter().map(|t| Cow::Borrowed(&*t.1));
    let terms_of = lower.iter().zip(matrices).map(|(c, a)| Ok((own(c)?, a)));
    Ok(Terms { terms: terms_of.collect::<Result<_>>()?, halo: terms.halo.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Butcher;

    /// L̂D is lower triangular, and (L̂D)⁻¹B unit upper triangular. These conditions determine L̂D.
    #[test]
    fn lower_factors_of_every_scheme() {
        for name in Butcher::names() {
            let b = Butcher::by_name(name).unwrap().a;
            let (s, ld) = (b.rows(), lower_factor(&b).unwrap());
            assert!(is_lower(&ld), "{name}");
            for column in 0..s {
                let mut x = vec![0.0; s];
                for i in 0..s {
                    let known: f64 = (0..i).map(|j| ld[(i, j)] * x[j]).sum();
                    x[i] = (b[(i, column)] - known) / ld[(i, i)];
                }
                let below = x[column + 1..].iter().fold(0.0f64, |m, v| m.max(v.abs()));
                assert!((x[column] - 1.0).abs() < 1e-13 && below < 1e-13, "{name}: {x:?}");
            }
        }
        // Radau IIA with 2 stages has B = [5/12, −1/12; 3/4, 1/4], and D has 5/12 and 1/4 + 3/4·1/5 = 2/5.
        let ld = lower_factor(&Butcher::by_name("radau-iia-2").unwrap().a).unwrap();
        for (got, want) in ld.values().iter().zip([5.0 / 12.0, 0.0, 0.75, 0.4]) {
            assert!((got - want).abs() < 1e-15, "{ld:?}");
        }
    }

    #[test]
    fn what_has_no_factors_is_refused() {
        let swap = Dense::new(2, 2, vec![0.0, 1.0, 1.0, 0.0]).unwrap();
        let message = lower_factor(&swap).unwrap_err().to_string();
        assert!(message.contains("pivot 0 of the 2×2") && message.contains("ildu0"), "{message}");
        // Schemes with an explicit first stage can be lower triangular already, such as Crank–Nicolson as a
        // Lobatto IIIA scheme.
        let explicit = Dense::new(2, 2, vec![0.0, 0.0, 0.5, 0.5]).unwrap();
        assert_eq!(lower_factor(&explicit).unwrap(), explicit);
        assert!(lower_factor(&Dense::new(1, 2, vec![1.0, 2.0]).unwrap()).is_err());
    }
}
