//! Direct factors by the library of a device, and the test whether they solve the system.
//!
//! Forms are tried from the cheapest on. Each must solve a system with a random right-hand side, since a
//! library may return wrong factors without an error. If none does, Krylith's own factors on the host replace
//! them.

use super::factors::{BACKWARD, Columns, LEFT, LEFT_SYMMETRIC};
use super::order::Pattern;
use super::{Assembly, SparseLu, fill_checked, order};
use crate::interrupt::limits;
use crate::matrix::{Bsr, Csr};
use crate::operator::{LinearOperator, PointBlockSum, TermValues, Terms, check_count, fresh_key};
use crate::precond::assemble::Numbered;
use crate::precond::direct::{DeviceFactors, DirectFactors, DirectKind, DirectRequest, Dissection, Unfit};
use crate::precond::{Preconditioner, SharedOperator};
use crate::space::{Space, random};
use crate::{Error, Result};

/// A diagonal entry is weak below this share of its row's sum of magnitudes.
const WEAK: f64 = 1e-2;
/// Largest difference of xᵀA y and yᵀA x for a symmetric matrix, relative to |x|ᵀ|A y| + |y|ᵀ|A x|.
const SYMMETRIC: f64 = 1e-12;
/// Smaller systems are ordered by the library.
const SMALL: usize = 5000;
/// Unknowns of a side of the last bisection that is recorded, at least, and the largest number of levels.
const SIDE: usize = 24;
const MOST_LEVELS: usize = 10;

/// The inverse of Σ Cₜ ⊗ Aₜ, applied by direct factors of the device, or of the host if those do not hold.
pub(crate) struct DeviceLu<S: DirectFactors + PointBlockSum> {
    source: Source<S>,
    matrix: Csr,
    /// The system as an operator, with which factors are tested.
    operator: SharedOperator<S>,
    pinned: Vec<usize>,
    /// The forms to try, from the present one on.
    kinds: Vec<DirectKind>,
    dissection: Option<Dissection>,
    factors: Option<Box<dyn DeviceFactors<S>>>,
    /// Factors on the host, and why they replace those of the device.
    host: Option<(Box<SparseLu>, Unfit)>,
    limits: DeviceLuLimits,
    key: u64,
}

/// Limits of the factors.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeviceLuLimits {
    /// Largest number of numbers in the factors.
    pub most: Option<usize>,
    /// Bytes of the host that factors there may take.
    pub host: Option<u64>,
    /// True if factors on the host must not replace those of the device.
    pub only_device: bool,
    /// True for factors on all devices of the space, also if one of them has room.
    pub spread: bool,
}

/// Where the values of the scalar matrix come from.
enum Source<S: DirectFactors> {
    /// One matrix, with scalar rows or in blocks.
    Matrix(Bsr, Option<(Numbered, S::Cut)>),
    /// A sum that the host assembles.
    Sum(Box<(Assembly, Columns)>, [Vec<f64>; 2]),
}

impl<S: DirectFactors + PointBlockSum> DeviceLu<S> {
    /// Factorises a sum of terms, with the unknowns `pinned` fixed at 0. `operator` is the same
    /// matrix.
    ///
    /// # Errors
    /// A matrix that is not square; a singular matrix; factors that are too large; out of memory.
    pub fn new(
        space: &S,
        terms: &Terms,
        pinned: Vec<usize>,
        operator: SharedOperator<S>,
        limits: DeviceLuLimits,
    ) -> Result<Self> {
        check_count(terms.terms.len())?;
        if !terms.is_square() {
            return Err(Error::invalid("lu: a direct factorisation needs a square matrix"));
        }
        let (source, matrix) = Source::new(space, terms, &pinned)?;
        let (kinds, weak) = kinds(space, &matrix, &*operator.borrow())?;
        let dissection = if weak { None } else { dissection(&source, &matrix)? };
        let (factors, host, key) = (None, None, fresh_key());
        let mut lu = Self { source, matrix, operator, pinned, kinds, dissection, factors, host, limits, key };
        lu.factorize(space, terms)?;
        Ok(lu)
    }

    /// Factorises the values in the first form that holds.
    fn factorize(&mut self, space: &S, terms: &Terms) -> Result<()> {
        let mut why = Unfit::new();
        while let Some(&kind) = self.kinds.first() {
            // If factors of an old analysis fail, a new analysis follows: a matching depends on the values.
            if let Some(mut factors) = self.factors.take()
                && self.renewed(space, &mut *factors)?.is_ok()
            {
                self.factors = Some(factors);
                return Ok(());
            }
            // The library matches rows and columns itself, and then needs an order of its own.
            let own = self.dissection.as_ref().filter(|_| kind != DirectKind::MatchedLu);
            let request =
                DirectRequest { kind, dissection: own, most: self.limits.most, spread: self.limits.spread };
            let made = match space.direct(&self.matrix, request)? {
                Ok(mut factors) => self.renewed(space, &mut *factors)?.map(|()| factors),
                Err(unfit) => Err(unfit),
            };
            match made {
                Ok(factors) => {
                    self.factors = Some(factors);
                    return Ok(());
                }
                Err(unfit) => why = unfit,
            }
            self.kinds.remove(0);
        }
        if self.limits.only_device {
            return Err(Error::invalid(format!("lu: {why}; lu:on=auto takes factors on the host instead")));
        }
        let host = SparseLu::with_pinned(terms, self.pinned.clone(), self.limits.host, None)?;
        self.host = Some((Box::new(host), why));
        Ok(())
    }

    /// Factorises the present values and tests the result.
    fn renewed(
        &self,
        space: &S,
        factors: &mut dyn DeviceFactors<S>,
    ) -> Result<std::result::Result<(), Unfit>> {
        match factors.factorize(space, &self.matrix)? {
            Ok(()) => self.holds(space, factors),
            Err(unfit) => Ok(Err(unfit)),
        }
    }

    /// Tests the factors by a random right-hand side.
    fn holds(&self, space: &S, factors: &dyn DeviceFactors<S>) -> Result<std::result::Result<(), Unfit>> {
        let (n, a) = (space.len(), self.operator.borrow());
        let mut host: Vec<f64> = (0..n).map(|i| random(1, i as u64)).collect();
        self.pinned.iter().for_each(|&u| host[u] = 0.0);
        let all = norm(&host);
        let (mut b, mut x, mut r, mut m) =
            (space.vector()?, space.vector()?, space.vector()?, space.vector()?);
        space.write(&host, &mut b)?;
        factors.solve(space, false, &b, &mut x)?;
        let is_exact = a.residual(space, &b, &x, &mut r, &mut m)?;
        if !is_exact {
            a.apply(space, &x, &mut r)?;
        }
        let mut left = vec![0.0; n];
        space.read(&r, &mut left)?;
        if !is_exact {
            left.iter_mut().zip(&host).for_each(|(r, b)| *r = b - *r);
        }
        self.pinned.iter().for_each(|&u| left[u] = 0.0);
        let share = norm(&left) / all.max(f64::MIN_POSITIVE);
        if share <= LEFT_SYMMETRIC {
            return Ok(Ok(()));
        }
        // If A is nearly singular, rounding errors of a large x leave more. So does a replaced pivot of a
        // singular A.
        if is_exact && share <= LEFT && factors.replaced_pivots() == 0 {
            space.read(&m, &mut host)?;
            let backward = left.iter().zip(&host).map(|(r, m)| r.abs() / m.max(f64::MIN_POSITIVE));
            if backward.fold(0.0, f64::max) <= BACKWARD {
                return Ok(Ok(()));
            }
        }
        Ok(Err(format!("the factors of the device left a residual of {share:.1e} in a test")))
    }

    /// Returns the kind of the factors.
    pub fn kind(&self) -> &'static str {
        match &self.host {
            Some((host, _)) => host.kind(),
            None => self.kinds.first().map_or("none", |kind| kind.name()),
        }
    }

    /// Returns the number of numbers in the factors.
    pub fn numbers(&self) -> usize {
        match &self.host {
            Some((host, _)) => host.numbers(),
            None => self.factors.as_ref().map_or(0, |factors| factors.numbers()),
        }
    }

    /// Returns the number of numbers of the scalar matrix.
    pub fn stored(&self) -> usize {
        self.matrix.nonzeros()
    }

    /// Returns remarks for a report.
    pub fn remarks(&self) -> Vec<String> {
        match (&self.host, &self.factors) {
            (Some((_, why)), _) => vec![format!("on the host, because {why}")],
            (None, Some(factors)) => factors.remarks(),
            (None, None) => Vec::new(),
        }
    }

    fn made(&self) -> Result<&dyn DeviceFactors<S>> {
        self.factors
            .as_deref()
            .ok_or_else(|| Error::invalid("lu: there are no factors; set new values before the next solve"))
    }
}

impl<S: DirectFactors + PointBlockSum> LinearOperator<S> for DeviceLu<S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        match &self.host {
            Some((host, _)) => host.apply(space, x, y),
            None => self.made()?.solve(space, false, x, y),
        }
    }
    fn prepare_columns(&self, space: &S, count: usize) -> Result<()> {
        match &self.host {
            Some(_) => Ok(()),
            None => self.made()?.prepare_columns(space, count),
        }
    }
    fn bytes_of_column(&self) -> u64 {
        16 * self.matrix.rows() as u64
    }
    fn gains_by_columns(&self, _: &S) -> bool {
        self.host.is_none()
    }
    fn apply_columns(&self, space: &S, x: &[&S::Vector], y: &mut [&mut S::Vector]) -> Result<()> {
        match &self.host {
            Some((host, _)) => x.iter().zip(y).try_for_each(|(x, y)| host.apply(space, x, y)),
            None => self.made()?.solve_columns(space, x, y),
        }
    }
    fn has_transpose(&self) -> bool {
        true
    }
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        match &self.host {
            Some((host, _)) => host.apply_transpose(space, x, y),
            None => self.made()?.solve(space, true, x, y),
        }
    }
    fn key(&self) -> u64 {
        self.key
    }
    fn bytes(&self) -> u64 {
        let symmetric = matches!(self.kinds.first(), Some(DirectKind::Cholesky | DirectKind::Symmetric));
        let reads = if symmetric { 2 } else { 1 };
        8 * (reads * self.numbers() + 4 * self.matrix.rows()) as u64
    }
    /// The library launches kernels of its own.
    fn recordable(&self) -> bool {
        false
    }
}

impl<S: DirectFactors + PointBlockSum> Preconditioner<S> for DeviceLu<S> {
    /// Factorises new values, which the operator has too. The analysis is reused unless its factors no longer
    /// hold.
    fn update_values(&mut self, space: &S, terms: &Terms, values: TermValues) -> Result<()> {
        if let Some((host, _)) = &mut self.host {
            return host.update_values(values);
        }
        self.source.update(space, values, &self.pinned, &mut self.matrix)?;
        self.factorize(space, terms)
    }
}

impl<S: DirectFactors> Source<S> {
    fn new(space: &S, terms: &Terms, pinned: &[usize]) -> Result<(Self, Csr)> {
        if let [(c, a)] = &terms.terms[..]
            && terms.stages() == 1
            && c[(0, 0)] == 1.0
            && pinned.is_empty()
        {
            let a = Bsr::clone(a);
            if a.block() == 1 {
                let matrix = Csr::from_storage(a.storage().clone());
                return Ok((Self::Matrix(a, None), matrix));
            }
            let all: Vec<u32> = (0..a.rows() as u32).collect();
            let all = Numbered::new(&all, a.rows());
            let (matrix, cut) = space.cut(&a, &all, &all)?;
            return Ok((Self::Matrix(a, Some((all, cut))), matrix));
        }
        let (assembly, mut columns) = Assembly::new(terms, pinned);
        let mut scratch = Default::default();
        fill_checked(&assembly, TermValues::from(terms), &mut scratch, &mut columns.values)?;
        columns.pin(pinned);
        let n = columns.order();
        let (ptr, col, values) = columns.by_rows();
        let matrix = Csr::new(n, n, ptr, col, values)?;
        Ok((Self::Sum(Box::new((assembly, columns)), scratch), matrix))
    }

    fn update(&mut self, space: &S, values: TermValues, pinned: &[usize], matrix: &mut Csr) -> Result<()> {
        match self {
            Self::Matrix(a, cut) => {
                let Some((_, new)) = values.term(0).filter(|_| values.len() == 1) else {
                    return Err(Error::Internal("lu: new values of another number of terms".into()));
                };
                *a = space.with_values(a, new)?;
                match cut {
                    Some((_, cut)) => space.cut_again(a, cut, matrix)?,
                    None => *matrix = Csr::from_storage(a.storage().clone()),
                }
            }
            Self::Sum(sum, scratch) => {
                let (assembly, columns) = &mut **sum;
                fill_checked(assembly, values, scratch, &mut columns.values)?;
                columns.pin(pinned);
                let (_, _, values) = columns.by_rows();
                matrix.values_mut().copy_from_slice(&values);
            }
        }
        Ok(())
    }
}

/// Returns the forms to try, and whether the diagonal has weak entries.
fn kinds<S: DirectFactors>(
    space: &S,
    matrix: &Csr,
    a: &dyn LinearOperator<S>,
) -> Result<(Vec<DirectKind>, bool)> {
    let (diagonal, sums) = (space.diagonal(matrix, false)?, space.diagonal(matrix, true)?);
    let weak = diagonal.iter().zip(&sums).any(|(d, sum)| !(d.abs() >= WEAK * sum.abs()) || *d == 0.0);
    let mut kinds = vec![DirectKind::Lu, DirectKind::MatchedLu];
    if is_symmetric(space, a)? {
        kinds.insert(0, DirectKind::Symmetric);
        if diagonal.iter().all(|d| *d > 0.0) {
            kinds.insert(0, DirectKind::Cholesky);
        }
    }
    Ok((kinds, weak))
}

/// Compares xᵀA y with yᵀA x for two random vectors.
fn is_symmetric<S: Space>(space: &S, a: &dyn LinearOperator<S>) -> Result<bool> {
    let n = space.len();
    let host = [2, 3].map(|seed| (0..n).map(|i| random(seed, i as u64)).collect::<Vec<_>>());
    let (mut x, mut y) = (space.vector()?, space.vector()?);
    let mut product = |v: &[f64]| -> Result<Vec<f64>> {
        let mut host = vec![0.0; n];
        space.write(v, &mut x)?;
        a.apply(space, &x, &mut y)?;
        space.read(&y, &mut host)?;
        Ok(host)
    };
    let images = [product(&host[0])?, product(&host[1])?];
    let (mut difference, mut size) = (0.0, 0.0);
    for i in 0..n {
        let (first, second) = (host[1][i] * images[0][i], host[0][i] * images[1][i]);
        difference += first - second;
        size += first.abs() + second.abs();
    }
    Ok(difference.abs() <= SYMMETRIC * size)
}

/// Orders the unknowns, on all threads; `None` for a small matrix.
fn dissection<S: DirectFactors>(source: &Source<S>, matrix: &Csr) -> Result<Option<Dissection>> {
    let n = matrix.rows();
    if n < SMALL {
        return Ok(None);
    }
    // The unknowns of a node are neighbours of the same nodes.
    let (block, row_ptr, col) = match source {
        Source::Matrix(a, _) => (a.block(), a.row_ptr(), a.col()),
        Source::Sum(..) => (1, matrix.row_ptr(), matrix.col()),
    };
    let pattern = Pattern::of_rows(row_ptr, col);
    let levels = ((n / SIDE).max(2).ilog2() as usize + 1).min(MOST_LEVELS);
    order::dissection(&pattern, block, levels, limits().as_ref()).map(Some)
}

fn norm(v: &[f64]) -> f64 {
    v.iter().map(|v| v * v).sum::<f64>().sqrt()
}
