//! Matrices and operators that approximate a Schur complement S = −D − C A⁻¹ B, for the last part of a split.

mod explicit;

pub(super) use explicit::columns_of_s;

use super::ghosts::GhostRows;
use super::given::Given;
use super::part::{Layout, OwnField, PartMatrix, SubMatrix, inverse_of};
use super::{LocalProblem, SharedOperator};
use crate::comm::{Communicator, agree};
use crate::fields::{Field, Fields};
use crate::halo::Halo;
use crate::matrix::{Bsr, Csr};
use crate::precond::assemble::{Weight, inverted};
use crate::precond::split::{Around, Lsc, Part, Pcd};
use crate::precond::{InnerMethod, InnerSpec, PrecondSpec, SchurSpec, SplitForm};
use crate::solver::SolverSpace;
use crate::space::Precision;
use crate::{Error, Result};
use explicit::AllColumns;
use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

/// Degree of the Chebyshev polynomial that inverts a mass matrix.
const MASS_DEGREE: usize = 5;

/// Source of the values of a part's matrix.
pub(super) enum Source<S: SolverSpace> {
    /// Its own block.
    Own,
    /// −D − C W B, with W of the rows of A if `rows`.
    Schur { rows: bool, product: Csr, shared: Option<Shared<S>> },
    /// C W B, with the inverse diagonal of a given matrix or of A.
    Commutator { weight: Option<(Given, Vec<f64>)>, product: Csr, shared: Option<Shared<S>> },
    /// A matrix of the caller.
    Given { given: Given, boundary: Option<Boundary> },
    /// −D − C M B, where M is the preconditioner of the first part.
    Explicit { product: Csr, columns: Option<AllColumns> },
}

/// Rows of the last field that couple to no other unknown, in a matrix of the caller.
pub(super) struct Boundary {
    /// 1 for these rows and columns, and 0 for others, with ghosts.
    alone: Vec<f64>,
    /// Sign of the matrix relative to that of S.
    sign: f64,
}

impl Boundary {
    /// Gives the rows and columns that are alone in K only the diagonal entry of K.
    pub fn apply<S: SolverSpace>(&self, space: &S, matrix: &mut Csr, d: &Csr) -> Result<()> {
        without_boundary(matrix, &self.alone, &space.diagonal(d, false)?, self.sign);
        Ok(())
    }
}

/// What C W B needs over ranks.
pub(super) struct Shared<S: SolverSpace> {
    /// Rows of B.
    rows: GhostRows,
    /// The halo of the first field.
    first: Arc<Halo>,
    /// D with the columns of the product, if it takes part.
    d: Option<SubMatrix<S>>,
}

/// Returns block (f, g), which a Schur complement needs.
pub(super) fn needed<S: SolverSpace>(
    blocks: &[Vec<Option<SubMatrix<S>>>],
    f: usize,
    g: usize,
) -> Result<&Csr> {
    let lost = || Error::Internal("a block of a Schur complement is missing".into());
    blocks[f][g].as_ref().map(|block| &block.csr).ok_or_else(lost)
}

/// Returns the inverse diagonal of A, or of the sums of its rows, with ghosts over ranks. Collective.
fn weights<S: SolverSpace>(space: &S, a: &Csr, rows: bool, first: Option<&Halo>) -> Result<Vec<f64>> {
    let own = inverted(agree(space.comm(), space.diagonal(a, rows))?);
    match first {
        None => Ok(own),
        Some(halo) => halo.with_ghosts(space.comm(), 1, &own),
    }
}

impl<S: SolverSpace> Source<S> {
    /// Computes a product of the part for new values of `a` and its blocks. Also returns W of a commutator.
    /// Collective.
    pub fn renew<'s>(
        &'s mut self,
        space: &S,
        a: &Bsr,
        blocks: &'s [Vec<Option<SubMatrix<S>>>],
        f: usize,
    ) -> Result<(&'s Csr, Option<Vec<f64>>)> {
        let (rows, weight, product, shared) = match self {
            Source::Schur { rows, product, shared } => (Some(*rows), None, product, shared),
            Source::Commutator { weight, product, shared } => (None, weight.as_mut(), product, shared),
            _ => return Err(Error::Internal("a part without a product".into())),
        };
        let (first, b, c, d) =
            (needed(blocks, 0, 0)?, needed(blocks, 0, f)?, needed(blocks, f, 0)?, needed(blocks, f, f)?);
        let halo = shared.as_ref().map(|shared| &*shared.first);
        let w = match weight {
            Some((given, weight)) => {
                if let Some(new) = given.renewed(space.comm())? {
                    *weight = weights(space, &new, false, halo)?;
                }
                weight.clone()
            }
            None => weights(space, first, rows == Some(true), halo)?,
        };
        let mut own = d;
        let b = match shared {
            None => Cow::Borrowed(b),
            Some(shared) => {
                if let Some(d) = &mut shared.d {
                    d.update(space, a)?;
                    own = &d.csr;
                }
                Cow::Owned(shared.rows.again(space, b)?)
            }
        };
        match rows {
            Some(_) => {
                let weight = Weight { diagonal: Some(&w), sign: -1.0 };
                space.product_again(Some(own), c, weight, &b, product)?;
                Ok((product, None))
            }
            None => {
                let weight = Weight { diagonal: Some(&w), sign: 1.0 };
                space.product_again(None, c, weight, &b, product)?;
                Ok((product, Some(w)))
            }
        }
    }
}

/// The matrix of the last part of a split.
pub(super) struct Approximation<S: SolverSpace> {
    /// The matrix, unless it is the part's own block or kept in `source`.
    pub csr: Option<Csr>,
    /// Its halo, if it is not that of the part's own block.
    pub halo: Option<Arc<Halo>>,
    /// The source of new values.
    pub source: Source<S>,
    /// True if the inverse of the part has the sign opposite to that of S⁻¹.
    pub negative: bool,
}

impl<S: SolverSpace> Approximation<S> {
    /// Returns the matrix; `None` if it is the part's own block.
    pub fn matrix(&self) -> Option<&Csr> {
        match &self.source {
            Source::Schur { product, .. }
            | Source::Commutator { product, .. }
            | Source::Explicit { product, .. } => Some(product),
            Source::Own | Source::Given { .. } => self.csr.as_ref(),
        }
    }
}

/// The operators around the inverse of a part, and the matrices of the caller that they come from.
type Surrounded<S> = (Around<S>, Vec<(Given, PartMatrix<S>)>);

/// The blocks of a system [[A, B], [C, −D]] on two fields.
pub(super) struct Saddle<'a, S: SolverSpace> {
    pub space: &'a S,
    /// The last term of the system, and its blocks.
    pub matrix: &'a Bsr,
    pub blocks: &'a [Vec<Option<SubMatrix<S>>>],
    pub layout: &'a Layout,
    pub fields: &'a [OwnField],
    pub local: &'a LocalProblem<'a>,
    pub precision: Precision,
}

impl<S: SolverSpace> Saddle<'_, S> {
    /// Takes own rows of a caller's matrix on the last field.
    fn square(&self, name: &str) -> Result<(Given, Csr, Option<Arc<Halo>>)> {
        Given::new(name, "a Schur complement of this field", &self.fields[1], self.local)
    }

    /// Takes the inverse diagonal of a caller's matrix on the first field, with ghosts over ranks.
    fn weight(&self, name: &str) -> Result<(Given, Vec<f64>)> {
        let (given, matrix, _) = Given::new(name, "the weight of lsc", &self.fields[0], self.local)?;
        let w = weights(self.space, &matrix, false, self.layout.scalar_halo(0).as_deref())?;
        Ok((given, w))
    }

    /// Prepares products C W B over ranks, and returns B with the rows of ghosts. Collective.
    fn shared(&self, with_d: bool) -> Result<(Option<Shared<S>>, Cow<'_, Csr>)> {
        let b = needed(self.blocks, 0, 1)?;
        let (Some(first), Some(columns)) = (self.layout.scalar_halo(0), &self.layout.columns[1]) else {
            return Ok((None, Cow::Borrowed(b)));
        };
        let (rows, b) = GhostRows::new(self.space, first.clone(), b, columns)?;
        let d = with_d.then(|| {
            let columns = self.layout.set_in(1, &self.fields[1], &rows.to);
            SubMatrix::new(self.space, self.matrix, &self.layout.sets[1], &columns)
        });
        let d = agree(self.space.comm(), d.transpose())?;
        Ok((Some(Shared { rows, first, d }), Cow::Owned(b)))
    }

    /// Builds the matrix that approximates S. Collective.
    pub fn approximate(
        &self,
        schur: &SchurSpec,
        form: SplitForm,
        on: &S,
        first: &Part<S>,
        couplings: &[Vec<Option<SharedOperator<S>>>],
    ) -> Result<Approximation<S>> {
        let Self { space, blocks, local, .. } = *self;
        let [a, b, c, d] = [[0, 0], [0, 1], [1, 0], [1, 1]].map(|[f, g]| needed(blocks, f, g));
        let (a, b, c, d) = (a?, b?, c?, d?);
        let (comm, own) = (local.comm, &self.fields[1]);
        if local.terms.terms.len() > 1 && !matches!(schur, SchurSpec::Block | SchurSpec::Matrix(_)) {
            return Err(Error::Unsupported(format!(
                "S={schur} needs one matrix; this system is a Kronecker sum. Give S as a matrix that suits L, or write stage(split(…; S={schur}))"
            )));
        }
        let signs = Signs::of(space, [a, b, c, d], comm)?;
        let made = |csr, halo, source, applied: f64| {
            // In the diagonal form |S| takes the place of S, so that the form is definite if A is.
            let wanted = if form == SplitForm::Diagonal { 1.0 } else { signs.s };
            Ok(Approximation { csr, halo, source, negative: applied * wanted < 0.0 })
        };
        let halo_of = |shared: &Option<Shared<S>>| shared.as_ref().map(|shared| shared.rows.to.halo.clone());
        match schur {
            SchurSpec::Block => {
                made(None, None, Source::Own, signs.of_rows(comm, &space.diagonal(d, false)?)?)
            }
            SchurSpec::Matrix(name) => {
                let (given, mut matrix, halo) = self.square(name)?;
                let sign = signs.of_rows(comm, &space.diagonal(&matrix, false)?)?;
                let mut alone: Vec<f64> =
                    signs.alone.iter().map(|alone| f64::from(u8::from(*alone))).collect();
                if let Some(halo) = &halo {
                    alone = halo.with_ghosts(comm, own.field.block(), &alone)?;
                }
                let boundary = alone.contains(&1.0).then_some(Boundary { alone, sign: signs.s * sign });
                if let Some(boundary) = &boundary {
                    boundary.apply(space, &mut matrix, d)?;
                }
                made(Some(matrix), halo, Source::Given { given, boundary }, sign)
            }
            SchurSpec::Pcd([f, l, m]) => {
                let (f, (given, l, halo), m) = (self.square(f)?.1, self.square(l)?, self.square(m)?.1);
                let mut sign = 1.0;
                for matrix in [&f, &l, &m] {
                    sign *= signs.of_rows(comm, &space.diagonal(matrix, false)?)?;
                }
                made(Some(l), halo, Source::Given { given, boundary: None }, sign)
            }
            SchurSpec::Explicit => {
                let columns = AllColumns::new(self.layout.columns[1].as_ref(), own, comm)?;
                let product = explicit::columns_of_s(on, first, couplings, d, columns.as_ref(), own)?;
                let halo = columns.as_ref().map(|columns| columns.to.halo.clone());
                made(None, halo, Source::Explicit { product, columns }, signs.s)
            }
            SchurSpec::SelfP | SchurSpec::SelfPRows => {
                let rows = *schur == SchurSpec::SelfPRows;
                let (shared, b) = self.shared(true)?;
                let w = weights(space, a, rows, shared.as_ref().map(|shared| &*shared.first))?;
                let d = shared.as_ref().and_then(|shared| shared.d.as_ref()).map_or(d, |d| &d.csr);
                let product = space.product(Some(d), c, Weight { diagonal: Some(&w), sign: -1.0 }, &b);
                let product = agree(space.comm(), product)?;
                made(None, halo_of(&shared), Source::Schur { rows, product, shared }, signs.s)
            }
            SchurSpec::Lsc(name) => {
                let mut counts = [b.nonzeros() as f64, c.nonzeros() as f64];
                comm.sum(&mut counts)?;
                if counts.contains(&0.0) {
                    return Err(Error::invalid(
                        "lsc needs both couplings between its fields, and one of them is zero",
                    ));
                }
                let weight = name.as_deref().map(|name| self.weight(name)).transpose()?;
                let (shared, b) = self.shared(false)?;
                let w = match &weight {
                    Some((_, weight)) => weight.clone(),
                    None => weights(space, a, false, shared.as_ref().map(|shared| &*shared.first))?,
                };
                let product = space.product(None, c, Weight { diagonal: Some(&w), sign: 1.0 }, &b);
                let product = agree(space.comm(), product)?;
                // S⁻¹ is minus the product of the commutator's factors, whatever their signs.
                made(None, halo_of(&shared), Source::Commutator { weight, product, shared }, -signs.s)
            }
        }
    }

    /// Builds the operators around the inverse of the last part, for approximations that have several
    /// factors. Also returns the matrices of the caller that they come from. Collective.
    pub fn around(
        &self,
        part: &Part<S>,
        schur: &SchurSpec,
        first: &PartMatrix<S>,
        couplings: &[Vec<Option<SharedOperator<S>>>],
        notes: &mut Vec<String>,
    ) -> Result<Option<Surrounded<S>>> {
        let (on, comm) = (&part.space, self.space.comm());
        match schur {
            SchurSpec::Lsc(name) => {
                let missing = || Error::Internal("a coupling of lsc is missing".into());
                let coupling = |f: usize, g: usize| couplings[f][g].clone().ok_or_else(missing);
                let (a, b, c) = (first.operator.clone(), coupling(0, 1)?, coupling(1, 0)?);
                let diagonal = needed(self.blocks, 0, 0)?;
                let mut w = match name {
                    Some(name) => self.weight(name)?.1,
                    None => weights(on, diagonal, false, None)?,
                };
                w.truncate(diagonal.rows());
                let made = (|| {
                    let ranks = self.local.terms.halo.is_some();
                    let first = if ranks { on.among(w.len())? } else { on.beside(w.len())? };
                    let mut to = first.vector()?;
                    first.write(&w, &mut to)?;
                    let work = RefCell::new(([first.vector()?, first.vector()?], on.vector()?));
                    let scalars = RefCell::new(first.scalars(1)?);
                    Ok(Around::Lsc(Lsc { space: first, a, b, c, w: to, work, scalars }))
                })();
                Ok(Some((agree(comm, made)?, Vec::new())))
            }
            SchurSpec::Pcd([f, _, m]) => {
                let own = &self.fields[1];
                let field = Field::range(m, 0..on.len()).in_blocks(own.field.block());
                let field = OwnField { field, ..own.clone() };
                let matrix = |name: &str| -> Result<(Given, PartMatrix<S>)> {
                    let (given, csr, halo) = self.square(name)?;
                    Ok((given, PartMatrix::new(on, &csr, own.field.block(), self.precision, halo)?))
                };
                let (f, mass) = (matrix(f)?, matrix(m)?);
                let wanted = PrecondSpec::Inner(InnerSpec {
                    method: InnerMethod::Chebyshev,
                    precond: Box::new(PrecondSpec::Jacobi { block: None }),
                    iterations: MASS_DEGREE,
                    low: None,
                });
                let fields = Fields::default();
                let (inverse, _) =
                    inverse_of(on, &mass.1, (&field, &fields), &[], self.local, &wanted, notes)?;
                let work = agree(comm, (|| Ok(RefCell::new([on.vector()?, on.vector()?])))())?;
                let pcd = Pcd { f: f.1.operator.clone(), mass: inverse, work };
                Ok(Some((Around::Pcd(pcd), vec![f, mass])))
            }
            _ => Ok(None),
        }
    }
}

/// Returns the null vectors of the whole system that are zero outside a field's `unknowns`, in this field:
/// those of the Schur complement, such as the constant pressure of an enclosed flow.
pub(super) fn null_vectors(
    null: &[Vec<f64>],
    unknowns: &[u32],
    comm: &dyn Communicator,
) -> Result<Vec<Vec<f64>>> {
    let mut found = Vec::new();
    for vector in null {
        let inside: Vec<f64> = unknowns.iter().map(|&i| vector[i as usize]).collect();
        let square = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>();
        let mut sums = [square(vector), square(&inside)];
        comm.sum(&mut sums)?;
        if sums[0] - sums[1] <= 1e-24 * sums[0] {
            found.push(inside);
        }
    }
    Ok(found)
}

/// Gives the rows and columns of a caller's matrix that are alone in K only the diagonal entry of K, times
/// `sign`. `alone` is 1 for them and 0 for others, with ghosts.
fn without_boundary(matrix: &mut Csr, alone: &[f64], d: &[f64], sign: f64) {
    let (row_ptr, col) = (matrix.row_ptr().to_vec(), matrix.col().to_vec());
    let values = matrix.values_mut();
    for i in 0..row_ptr.len() - 1 {
        for p in row_ptr[i]..row_ptr[i + 1] {
            let j = col[p] as usize;
            if alone[i] + alone[j] > 0.0 {
                values[p] = if i == j { sign * d[i] } else { 0.0 };
            }
        }
    }
}

/// Signs of a Schur complement and of what approximates it.
struct Signs {
    /// Rows of the last field that couple to no other unknown.
    alone: Vec<bool>,
    /// Sign of the diagonal of −D − C diag(A)⁻¹ B.
    s: f64,
}

impl Signs {
    /// Finds the signs from own couplings of all ranks. Collective.
    fn of<S: SolverSpace>(space: &S, [a, b, c, d]: [&Csr; 4], comm: &dyn Communicator) -> Result<Self> {
        let w = inverted(space.diagonal(a, false)?);
        let signs = Self { alone: space.alone(d, Some(c))?, s: 1.0 };
        Ok(Self { s: signs.of_rows(comm, &space.schur_diagonal(d, c, &w, b)?)?, ..signs })
    }

    /// Returns the sign of most numbers, one for each own row, over all ranks and without rows that are
    /// alone.
    fn of_rows(&self, comm: &dyn Communicator, numbers: &[f64]) -> Result<f64> {
        let numbers = self.alone.iter().zip(numbers).filter(|(alone, v)| !**alone && **v != 0.0);
        let mut sum = [numbers.map(|(_, v)| v.signum()).sum::<f64>()];
        comm.sum(&mut sum)?;
        Ok(if sum[0] < 0.0 { -1.0 } else { 1.0 })
    }
}
