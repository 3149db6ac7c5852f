//! Matrices and operators that approximate a Schur complement S = −D − C A⁻¹ B, for the last part of a split.

use super::part::{OwnField, PartMatrix, SubMatrix, inverse_of, one_rank};
use super::{LocalProblem, SharedOperator};
use crate::comm::{Communicator, agree};
use crate::fields::{Field, Fields};
use crate::halo::{Halo, with_ghosts};
use crate::matrix::Csr;
use crate::operator::PointBlock;
use crate::precond::assemble::{Weight, inverted};
use crate::precond::split::{Around, Lsc, Part, Pcd};
use crate::precond::{InnerMethod, InnerSpec, PrecondSpec, SchurSpec, SplitForm};
use crate::solver::SolverSpace;
use crate::space::Precision;
use crate::{Error, Result};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Degree of the Chebyshev polynomial that inverts a mass matrix.
const MASS_DEGREE: usize = 5;

/// Source of the values of a part's matrix.
pub(super) enum Source {
    /// Its own block.
    Own,
    /// −D − C W B, with W of the rows of A if `rows`.
    Schur { rows: bool, product: Csr },
    /// C W B, with W as given or the inverse diagonal of A.
    Commutator { weight: Option<Vec<f64>>, product: Csr },
    /// A matrix of the caller, which does not change.
    Given,
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

/// The matrix of the last part of a split.
pub(super) struct Approximation {
    /// The matrix, unless it is the part's own block or kept in `source`.
    pub csr: Option<Csr>,
    /// Its halo, if the matrix is the caller's and there are several ranks.
    pub halo: Option<Arc<Halo>>,
    /// The source of new values.
    pub source: Source,
    /// True if the inverse of the part has the sign opposite to that of S⁻¹.
    pub negative: bool,
}

/// Builds the matrix that approximates S for the field `own`. Collective.
pub(super) fn approximate<S: SolverSpace>(
    space: &S,
    blocks: &[Vec<Option<SubMatrix<S>>>],
    schur: &SchurSpec,
    form: SplitForm,
    own: &OwnField,
    local: &LocalProblem,
) -> Result<Approximation> {
    let [a, b, c, d] = [[0, 0], [0, 1], [1, 0], [1, 1]].map(|[f, g]| needed(blocks, f, g));
    let (a, b, c, d) = (a?, b?, c?, d?);
    let (given, comm) = (local.fields, local.comm);
    if !matches!(schur, SchurSpec::Block | SchurSpec::Matrix(_)) {
        one_rank(local, &format!("S={schur}"))?;
    }
    let signs = Signs::of(space, [a, b, c, d], comm)?;
    let square = |name: &str| own_rows(given.matrix(name)?, name, own, local);
    let made = |csr, halo, source, applied| {
        // In the diagonal form |S| takes the place of S, so that the form is definite if A is.
        let wanted = if form == SplitForm::Diagonal { 1.0 } else { signs.s };
        Ok(Approximation { csr, halo, source, negative: applied * wanted < 0.0 })
    };
    match schur {
        SchurSpec::Block => made(None, None, Source::Own, signs.of_rows(comm, &space.diagonal(d, false)?)?),
        SchurSpec::Matrix(name) => {
            let (mut matrix, halo) = square(name)?;
            let sign = signs.of_rows(comm, &space.diagonal(&matrix, false)?)?;
            let mut alone: Vec<f64> = signs.alone.iter().map(|alone| f64::from(u8::from(*alone))).collect();
            if let Some(halo) = &halo {
                alone = with_ghosts(comm, halo, own.field.block(), &alone)?;
            }
            if alone.contains(&1.0) {
                without_boundary(&mut matrix, &alone, &space.diagonal(d, false)?, signs.s * sign);
            }
            made(Some(matrix), halo, Source::Given, sign)
        }
        SchurSpec::Pcd([f, l, m]) => {
            let [(f, _), (l, _), (m, _)] = [square(f)?, square(l)?, square(m)?];
            let mut sign = 1.0;
            for matrix in [&f, &l, &m] {
                sign *= signs.of_rows(comm, &space.diagonal(matrix, false)?)?;
            }
            made(Some(l), None, Source::Given, sign)
        }
        SchurSpec::SelfP | SchurSpec::SelfPRows => {
            let rows = *schur == SchurSpec::SelfPRows;
            let w = inverted(space.diagonal(a, rows)?);
            let product = space.product(Some(d), c, Weight { diagonal: Some(&w), sign: -1.0 }, b)?;
            made(None, None, Source::Schur { rows, product }, signs.s)
        }
        SchurSpec::Lsc(_) if b.nonzeros() == 0 || c.nonzeros() == 0 => {
            Err(Error::invalid("lsc needs both couplings between its fields, and one of them is zero"))
        }
        SchurSpec::Lsc(name) => {
            let weight = name.as_deref().map(|name| weight_of(space, given.matrix(name)?, name, a.rows()));
            let weight = weight.transpose()?;
            let w = match &weight {
                Some(weight) => weight.clone(),
                None => inverted(space.diagonal(a, false)?),
            };
            let product = space.product(None, c, Weight { diagonal: Some(&w), sign: 1.0 }, b)?;
            // S⁻¹ is minus the product of the commutator's factors, whatever their signs.
            made(None, None, Source::Commutator { weight, product }, -signs.s)
        }
    }
}

/// Returns own rows of a caller's matrix on a field, with local columns, and their halo. Over ranks the
/// caller gave the whole matrix, or own rows of it with columns numbered as the field. Collective.
fn own_rows(
    given: &Csr,
    name: &str,
    own: &OwnField,
    local: &LocalProblem,
) -> Result<(Csr, Option<Arc<Halo>>)> {
    let (n, total, size) = (own.unknowns.len(), own.total, own.field.block());
    let wrong = || {
        Error::invalid(format!(
            "the matrix `{name}` is {}×{}; a Schur complement of this field needs {total}×{total}",
            given.rows(),
            given.columns()
        ))
    };
    let Some(blocks) = &own.blocks else {
        let fits = given.rows() == n && given.columns() == n;
        return if fits { Ok((given.clone(), None)) } else { Err(wrong()) };
    };
    let fits = given.columns() == total && (given.rows() == total || given.rows() == n);
    agree(local.comm, if fits { Ok(()) } else { Err(wrong()) })?;
    let row = |k: usize| match given.rows() == total {
        true => blocks[k / size] as usize * size + k % size,
        false => k,
    };
    let columns = (0..n).flat_map(|k| given.row(row(k)).0.iter().map(|&j| u64::from(j) / size as u64));
    let (halo, numbering) = Halo::build(local.comm, blocks, columns)?;
    let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    for k in 0..n {
        let (columns, numbers) = given.row(row(k));
        let place = |j: u32| {
            let block = numbering.local(u64::from(j) / size as u64).unwrap_or(u32::MAX);
            block * size as u32 + j % size as u32
        };
        let mut entries: Vec<(u32, f64)> =
            columns.iter().zip(numbers).map(|(&j, v)| (place(j), *v)).collect();
        entries.sort_unstable_by_key(|entry| entry.0);
        col.extend(entries.iter().map(|entry| entry.0));
        values.extend(entries.iter().map(|entry| entry.1));
        row_ptr.push(col.len());
    }
    let matrix = Csr::new(n, (halo.own + halo.ghosts) * size, row_ptr, col, values);
    Ok((agree(local.comm, matrix)?, Some(Arc::new(halo))))
}

/// Returns the inverse diagonal of a weight matrix on the first field.
fn weight_of<S: SolverSpace>(space: &S, matrix: &Csr, name: &str, n: usize) -> Result<Vec<f64>> {
    match matrix.rows() == n && matrix.columns() == n {
        true => Ok(inverted(space.diagonal(matrix, false)?)),
        false => Err(Error::invalid(format!(
            "the weight `{name}` of lsc is {}×{}; the first field has {n} unknowns",
            matrix.rows(),
            matrix.columns()
        ))),
    }
}

/// Returns the null vectors of the whole system that are zero outside the field `own`, in this field: those
/// of the Schur complement, such as the constant pressure of an enclosed flow.
pub(super) fn null_vectors(
    null: &[Vec<f64>],
    own: &OwnField,
    comm: &dyn Communicator,
) -> Result<Vec<Vec<f64>>> {
    let mut found = Vec::new();
    for vector in null {
        let inside: Vec<f64> = own.unknowns.iter().map(|&i| vector[i as usize]).collect();
        let square = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>();
        let mut sums = [square(vector), square(&inside)];
        comm.sum(&mut sums)?;
        if sums[0] - sums[1] <= 1e-24 * sums[0] {
            found.push(inside);
        }
    }
    Ok(found)
}

/// Builds the operators around the inverse of the last part, for approximations that have several factors.
pub(super) fn around<S: SolverSpace>(
    part: &Part<S>,
    schur: &SchurSpec,
    matrices: &[(PartMatrix<S>, Source)],
    couplings: &[Vec<Option<SharedOperator<S>>>],
    blocks: &[Vec<Option<SubMatrix<S>>>],
    local: &LocalProblem,
    precision: Precision,
    notes: &mut Vec<String>,
) -> Result<Option<Around<S>>> {
    let on = &part.space;
    match schur {
        SchurSpec::Lsc(name) => {
            let missing = || Error::Internal("a coupling of lsc is missing".into());
            let coupling = |f: usize, g: usize| couplings[f][g].clone().ok_or_else(missing);
            let (a, b, c) = (matrices[0].0.operator.clone(), coupling(0, 1)?, coupling(1, 0)?);
            let diagonal = needed(blocks, 0, 0)?;
            let first = on.beside(diagonal.rows())?;
            let w = match name {
                Some(name) => weight_of(on, local.fields.matrix(name)?, name, diagonal.rows())?,
                None => inverted(on.diagonal(diagonal, false)?),
            };
            let mut to = first.vector()?;
            first.write(&w, &mut to)?;
            let work = RefCell::new(([first.vector()?, first.vector()?], on.vector()?));
            let scalars = RefCell::new(first.scalars(1)?);
            Ok(Some(Around::Lsc(Lsc { space: first, a, b, c, w: to, work, scalars })))
        }
        SchurSpec::Pcd([f, _, m]) => {
            let f = PointBlock::csr(on, local.fields.matrix(f)?, precision)?;
            let mass = PartMatrix::new(on, local.fields.matrix(m)?, 1, precision, None)?;
            let wanted = PrecondSpec::Inner(InnerSpec {
                method: InnerMethod::Chebyshev,
                precond: Box::new(PrecondSpec::Jacobi { block: None }),
                iterations: MASS_DEGREE,
                low: None,
            });
            let field = OwnField::whole(Field::range(m, 0..on.len()));
            let (mass, _) = inverse_of(on, &mass, (&field, &Fields::default()), &[], local, &wanted, notes)?;
            let work = RefCell::new([on.vector()?, on.vector()?]);
            Ok(Some(Around::Pcd(Pcd { f: Rc::new(RefCell::new(f)), mass, work })))
        }
        _ => Ok(None),
    }
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
