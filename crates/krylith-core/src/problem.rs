//! The system to solve: a matrix or a sum of terms, its distribution over ranks, and additional data such as
//! coordinates.

mod blocks;
mod data;
mod kronecker;
mod transposed;

pub use blocks::FieldBlock;
pub(crate) use kronecker::same_coefficients;

use crate::comm::{Communicator, Solo};
use crate::fields::Fields;
use crate::io::parts::{run_of_rows, suited_block, suited_block_on_device};
use crate::matrix::{Bsr, Csr, Dense, Grouping, KroneckerSum};
use crate::memory::Numbers;
use crate::operator::{OriginalSystem, Terms};
use crate::partition::{LocalSubdomains, Part, RowNumbers, Rows, distribute};
use crate::precond::NearNull;
use crate::space::PrecondPrecision;
use crate::{Error, Result};
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

/// A system without its right-hand side.
///
/// Create it from a matrix ([`Problem::csr`], [`Problem::bsr`]), from a Kronecker sum, or from the rows that
/// each rank of a parallel program owns. It borrows the matrix where possible;
/// [`into_owned`](Self::into_owned) copies borrowed data.
///
/// # Examples
/// ```
/// use krylith::{Options, Problem, Solver, matrix::Csr};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
/// let problem = Problem::csr(&a)?.with_coordinates(vec![[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])?;
/// assert_eq!(problem.unknowns(), 2);
/// let mut solver = Solver::new(&problem, &"device=cpu".parse()?)?;
/// let mut x = vec![0.0; 2];
/// solver.solve(&[3.0, 3.0], &mut x)?;
/// assert!((x[0] - 1.0).abs() < 1e-5 && (x[1] - 1.0).abs() < 1e-5);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Clone)]
pub struct Problem<'a> {
    pub(crate) terms: Terms<'a>,
    pub(crate) comm: Arc<dyn Communicator>,
    pub(crate) numbers: Option<Cow<'a, [u64]>>,
    pub(crate) unknowns: usize,
    pub(crate) coordinates: Option<Arc<Vec<[f64; 3]>>>,
    pub(crate) grid: Option<[usize; 3]>,
    pub(crate) null: Cow<'a, [Vec<f64>]>,
    pub(crate) near: Option<NearNull>,
    pub(crate) subdomains: Option<LocalSubdomains>,
    pub(crate) stages: Option<(Dense, Dense)>,
    pub(crate) fields: Arc<Fields>,
    /// For each term, the order in which new values are given. `None`, or no element for a term, means the
    /// storage order.
    pub(crate) given: Vec<Option<Arc<Given>>>,
}

/// The order in which new values of a term are given, if it is not the storage order.
pub(crate) enum Given {
    /// The entries of a scalar matrix; the first update computes their positions in the blocks.
    Scalars(Csr, OnceLock<Grouping>),
    /// The positions of the blocks that a rank supplied.
    Rows(Grouping),
}

/// New values of a term in storage order.
pub(crate) enum Gathered {
    /// The caller's order is that of the storage.
    Same,
    /// On the host, in the vector that was passed.
    Host,
    /// In blocks that are on the device only.
    Blocks(Bsr),
}

/// The part of a problem that one thread of a solver works on: the problem of one process, or one GPU's part
/// of it.
#[derive(Clone, Copy)]
pub(crate) struct LocalProblem<'a> {
    /// The own rows of the terms.
    pub terms: &'a Terms<'a>,
    /// The communicator of the ranks that share the system.
    pub comm: &'a dyn Communicator,
    /// Global number of each own block row; `None` if this rank has the whole system.
    pub numbers: Option<RowNumbers<'a>>,
    /// Number of unknowns of the whole system.
    pub unknowns: usize,
    /// Coordinates of the nodes of own rows, or of the whole system.
    pub coordinates: Option<&'a [[f64; 3]]>,
    /// Numbers of nodes in x, y and z of the whole system, if it is a structured grid numbered with x
    /// fastest.
    pub grid: Option<[usize; 3]>,
    /// The own rows of the null vectors.
    pub null: &'a [Vec<f64>],
    /// The own rows of the near-null vectors.
    pub near: Option<&'a NearNull>,
    /// Subdomains of own rows, if they were cut from the whole system.
    pub subdomains: Option<&'a LocalSubdomains>,
    /// A and B of a Kronecker sum.
    pub stages: Option<&'a (Dense, Dense)>,
    /// Fields of the whole system, and matrices by name.
    pub fields: &'a Fields,
    /// The precision that was asked for preconditioners.
    pub precond_precision: Option<PrecondPrecision>,
}

impl LocalProblem<'_> {
    /// Returns the system as given, on the host.
    pub fn original(&self) -> OriginalSystem<'_> {
        OriginalSystem { terms: self.terms, comm: self.comm }
    }

    /// Returns the order b·s of a node's block.
    pub fn order(&self) -> usize {
        self.terms.block() * self.terms.stages()
    }
}

impl<'a> Problem<'a> {
    /// Creates a problem from a sum of terms, all of whose rows this process has.
    ///
    /// # Errors
    /// Terms that are not square, or one rank's part of a distributed sum.
    pub fn new(terms: Terms<'a>) -> Result<Self> {
        if terms.halo.is_some() {
            return Err(Error::invalid(
                "these terms are one rank's part; use a constructor that takes a communicator",
            ));
        }
        let unknowns = terms.rows();
        let problem = Self {
            terms,
            comm: Arc::new(Solo),
            numbers: None,
            unknowns,
            coordinates: None,
            grid: None,
            null: Cow::Borrowed(&[]),
            near: None,
            subdomains: None,
            stages: None,
            fields: Arc::default(),
            given: Vec::new(),
        };
        problem.square()
    }

    /// Creates a problem from a scalar matrix, with 1×1 blocks.
    ///
    /// # Errors
    /// A matrix that is not square.
    pub fn csr(a: &Csr) -> Result<Problem<'static>> {
        Problem::new(Terms::csr(a)?)
    }

    /// Creates a problem from a scalar matrix in which the unknowns of each node are contiguous, grouped into
    /// square blocks. Without `block`, the block size is [detected from the pattern](suited_block). New
    /// values of a [`Solver`](crate::Solver) are then given in the order of the scalar matrix.
    ///
    /// # Errors
    /// A matrix that is not square, or whose order is not a multiple of the block size.
    ///
    /// ```
    /// use krylith::{Problem, Solver, matrix::Csr};
    /// let a = Csr::from_triplets(4, 4, &[(0, 0, 4.0), (1, 0, 1.0), (1, 1, 4.0), (2, 2, 4.0), (3, 3, 4.0)])?;
    /// let problem = Problem::csr_in_blocks(&a, Some(2))?;
    /// assert_eq!(problem.block(), 2);
    /// let mut solver = Solver::new(&problem, &"device=cpu".parse()?)?;
    /// solver.update_values(&[8.0, 0.0, 8.0, 8.0, 8.0])?; // the five entries of `a`
    /// let mut x = [0.0; 4];
    /// solver.solve(&[8.0; 4], &mut x)?;
    /// assert!(x.iter().all(|x| (x - 1.0).abs() < 1e-5));
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn csr_in_blocks(a: &Csr, block: Option<usize>) -> Result<Problem<'static>> {
        let block = match block {
            Some(block) => block,
            None if a.rows() != a.columns() || a.rows() == 0 => 1,
            None if a.storage().is_on_device_alone() => suited_block_on_device(a)?,
            None => suited_block(a).block,
        };
        if block == 1 {
            return Problem::csr(a);
        }
        let blocks = Bsr::from_csr(a, block)?;
        let given = Given::Scalars(a.clone(), OnceLock::new());
        Ok(Problem { given: vec![Some(Arc::new(given))], ..Problem::bsr(&blocks)?.into_owned() })
    }

    /// Returns the position of each new value among the stored values of a term. New values are in the order
    /// of the matrix that the caller gave. Returns `None` if both orders are the same. They can differ for
    /// scalar matrices in blocks, and for rows that ranks supplied.
    ///
    /// # Errors
    /// An internal error of Krylith.
    pub fn grouping(&self, term: usize) -> Result<Option<&Grouping>> {
        match self.given.get(term).and_then(Option::as_deref) {
            None => Ok(None),
            Some(Given::Rows(grouping)) => Ok(Some(grouping)),
            Some(Given::Scalars(matrix, known)) => match known.get() {
                Some(grouping) => Ok(Some(grouping)),
                None => {
                    let grouping = Grouping::new(matrix, &self.terms.terms[term].1)?;
                    Ok(Some(known.get_or_init(|| grouping)))
                }
            },
        }
    }

    /// Brings values of a term from the caller's order into storage order: into `to`, or in new blocks on the
    /// device that alone has the scalar matrix.
    ///
    /// # Errors
    /// A value on a device that is not finite; a device that failed.
    pub(crate) fn gather(&self, term: usize, values: Numbers, to: &mut Vec<f64>) -> Result<Gathered> {
        if let (Some(Given::Scalars(scalar, _)), Some((_, stored))) =
            (self.given.get(term).and_then(Option::as_deref), self.terms.terms.get(term))
            && scalar.storage().is_on_device_alone()
            && let Some(new) = scalar.storage().with_values_of(values, scalar.nonzeros())?
            && let Some(blocks) = new.grouped(stored.block())?
        {
            return Ok(Gathered::Blocks(Bsr::from_storage(stored.block(), blocks)));
        }
        let (Some(grouping), Some((_, stored))) = (self.grouping(term)?, self.terms.terms.get(term)) else {
            return Ok(Gathered::Same);
        };
        let mut scratch = Vec::new();
        to.resize(stored.stored(), 0.0);
        grouping.gather(values.on_host(&mut scratch)?, to)?;
        Ok(Gathered::Host)
    }

    /// Returns the number of values of a term, in the order in which new values are given.
    pub(crate) fn entries(&self, term: usize) -> Result<usize> {
        let stored = self.terms.terms.get(term).map_or(0, |(_, matrix)| matrix.stored());
        Ok(self.grouping(term)?.map_or(stored, Grouping::entries))
    }

    /// Replaces the values of the only matrix. They have the order of the matrix that the caller gave.
    ///
    /// # Errors
    /// A problem of several terms; another number of values; a value that is not finite.
    pub(crate) fn fill(&mut self, values: Numbers) -> Result<()> {
        if self.terms.terms.len() != 1 {
            return Err(Error::invalid("a sum of terms cannot be the Jacobian; give one matrix"));
        }
        let expected = self.entries(0)?;
        if values.len() != expected {
            let message = format!("got {} values of the Jacobian; expected {expected}", values.len());
            return Err(Error::invalid(message));
        }
        let mut ordered = Vec::new();
        match self.gather(0, values, &mut ordered)? {
            Gathered::Same => self.terms.update_values(0, values),
            Gathered::Host => self.terms.update_values(0, &ordered[..]),
            Gathered::Blocks(blocks) => {
                self.terms.terms[0].1 = Cow::Owned(blocks);
                Ok(())
            }
        }
    }

    /// Creates a problem from a matrix in point blocks.
    ///
    /// # Errors
    /// A matrix that is not square.
    pub fn bsr(a: &'a Bsr) -> Result<Self> {
        Self::new(Terms::bsr(a))
    }

    /// Creates the problem A⊗M + τB⊗L.
    ///
    /// # Errors
    /// M and L that are not square.
    pub fn kronecker(k: &'a KroneckerSum) -> Result<Self> {
        Ok(Self { stages: Some((k.a.clone(), k.b.clone())), ..Self::new(Terms::kronecker(k))? })
    }

    /// Creates a distributed problem from the rows that each rank of a parallel program owns. Collective.
    ///
    /// Vectors of the solver then contain this rank's rows, in the order in which the caller gave them. The
    /// ranks are those of `comm`, such as `krylith::comm::Mpi` in an MPI program.
    ///
    /// # Errors
    /// As [`distribute`].
    pub fn distributed(comm: Arc<dyn Communicator>, rows: Rows) -> Result<Problem<'static>> {
        let part = distribute(&*comm, rows)?;
        Problem::part(comm, part)
    }

    /// Creates a distributed problem as [`distributed`](Self::distributed) does, from contiguous runs of rows
    /// of a scalar matrix, in the order of ranks. Columns are global. The rows are grouped into square
    /// blocks; without `block`, the block size is detected from the pattern. Collective.
    ///
    /// # Errors
    /// The total number of rows differs from the number of columns; the number of rows of some rank is not a
    /// multiple of the block size; as [`distribute`]. Every rank gets the same error.
    ///
    /// ```
    /// use krylith::{Problem, Solver, comm::Solo, matrix::Csr};
    /// use std::sync::Arc;
    /// let own = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 4.0)])?; // all rows
    /// let problem = Problem::distributed_csr(Arc::new(Solo), &own, None)?;
    /// let mut x = [0.0; 2];
    /// Solver::new(&problem, &"device=cpu".parse()?)?.solve(&[3.0, 4.0], &mut x)?;
    /// assert!(x.iter().all(|x| (x - 1.0).abs() < 1e-5));
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn distributed_csr(
        comm: Arc<dyn Communicator>,
        own: &Csr,
        block: Option<usize>,
    ) -> Result<Problem<'static>> {
        let (rows, grouping) = run_of_rows(&*comm, own, block)?;
        let mut part = distribute(&*comm, rows)?;
        if let Some(grouping) = grouping {
            let ordered = grouping.then(part.given.first().and_then(Option::as_ref));
            part.given = vec![Some(ordered)];
        }
        Problem::part(comm, part)
    }

    /// Creates a problem from this rank's part of a distributed system. Collective.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub fn part(comm: Arc<dyn Communicator>, part: Part) -> Result<Problem<'static>> {
        let Part { rows, terms, given, .. } = part;
        let given = given.into_iter().map(|term| term.map(|order| Arc::new(Given::Rows(order)))).collect();
        Ok(Problem { given, ..Problem::local(comm, Cow::Owned(rows), terms)? })
    }

    /// Creates a problem from own rows, with their global numbers and with their halo in `terms`. Collective.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub fn local(
        comm: Arc<dyn Communicator>,
        numbers: impl Into<Cow<'a, [u64]>>,
        terms: Terms<'a>,
    ) -> Result<Self> {
        let numbers = numbers.into();
        if numbers.len() != terms.block_rows() {
            return Err(Error::invalid(format!(
                "{} row numbers for {} block rows; each block row needs one number",
                numbers.len(),
                terms.block_rows()
            )));
        }
        let mut unknowns = [terms.rows() as f64];
        comm.sum(&mut unknowns)?;
        Self {
            terms,
            comm,
            numbers: Some(numbers),
            unknowns: unknowns[0] as usize,
            coordinates: None,
            grid: None,
            null: Cow::Borrowed(&[]),
            near: None,
            subdomains: None,
            stages: None,
            fields: Arc::default(),
            given: Vec::new(),
        }
        .square()
    }

    fn square(self) -> Result<Self> {
        let a = &self.terms.terms[0].1;
        if self.terms.is_square() && a.rows() > 0 || self.numbers.is_some() {
            return Ok(self);
        }
        Err(Error::invalid(format!(
            "the matrix is {}×{}; a solve needs a square one with at least one row",
            a.rows(),
            a.columns()
        )))
    }

    /// Adds subdomains of these rows that were cut from the whole system.
    pub fn with_subdomains(self, subdomains: Option<LocalSubdomains>) -> Self {
        Self { subdomains, ..self }
    }

    /// Copies borrowed data, so that the problem borrows nothing.
    pub fn into_owned(self) -> Problem<'static> {
        let terms = self.terms.terms.into_iter().map(|(c, a)| (c, Cow::Owned(a.into_owned())));
        Problem {
            terms: Terms { terms: terms.collect(), halo: self.terms.halo },
            comm: self.comm,
            numbers: self.numbers.map(|n| Cow::Owned(n.into_owned())),
            unknowns: self.unknowns,
            coordinates: self.coordinates,
            grid: self.grid,
            null: Cow::Owned(self.null.into_owned()),
            near: self.near,
            subdomains: self.subdomains,
            stages: self.stages,
            fields: self.fields,
            given: self.given,
        }
    }

    /// Returns the number of unknowns of the whole system.
    pub fn unknowns(&self) -> usize {
        self.unknowns
    }

    /// Returns the number of unknowns that this process owns.
    pub fn own_len(&self) -> usize {
        self.terms.rows()
    }

    /// Returns the number of components b of a node.
    pub fn block(&self) -> usize {
        self.terms.block()
    }

    /// Returns the number of stages s.
    pub fn stages(&self) -> usize {
        self.terms.stages()
    }

    /// Returns the communicator of the ranks that share the system.
    pub fn comm(&self) -> &Arc<dyn Communicator> {
        &self.comm
    }

    /// Returns the terms of the operator, on the host.
    pub fn terms(&self) -> &Terms<'a> {
        &self.terms
    }

    /// Returns the system as given, for residuals on the host.
    pub fn original(&self) -> OriginalSystem<'_> {
        OriginalSystem { terms: &self.terms, comm: &*self.comm }
    }

    pub(crate) fn part_of_one(&self) -> LocalProblem<'_> {
        LocalProblem {
            terms: &self.terms,
            comm: &*self.comm,
            numbers: self.numbers.as_deref().map(RowNumbers::List),
            unknowns: self.unknowns,
            coordinates: self.coordinates.as_ref().map(|points| &points[..]),
            grid: self.grid,
            null: &self.null,
            near: self.near.as_ref(),
            subdomains: self.subdomains.as_ref(),
            stages: self.stages.as_ref(),
            fields: &self.fields,
            precond_precision: None,
        }
    }
}

impl<'a, 'p: 'a> From<&'p Problem<'a>> for Problem<'a> {
    /// Borrows the system.
    fn from(problem: &'p Problem<'a>) -> Self {
        let terms = problem.terms.terms.iter().map(|(c, a)| (c.clone(), Cow::Borrowed(&**a)));
        Problem {
            terms: Terms { terms: terms.collect(), halo: problem.terms.halo.clone() },
            comm: problem.comm.clone(),
            numbers: problem.numbers.as_deref().map(Cow::Borrowed),
            unknowns: problem.unknowns,
            coordinates: problem.coordinates.clone(),
            grid: problem.grid,
            null: Cow::Borrowed(&problem.null),
            near: problem.near.clone(),
            subdomains: problem.subdomains.clone(),
            stages: problem.stages.clone(),
            fields: problem.fields.clone(),
            given: problem.given.clone(),
        }
    }
}

impl TryFrom<&Csr> for Problem<'static> {
    type Error = Error;
    fn try_from(a: &Csr) -> Result<Self> {
        Problem::csr(a)
    }
}

impl<'a> TryFrom<&'a Bsr> for Problem<'a> {
    type Error = Error;
    fn try_from(a: &'a Bsr) -> Result<Self> {
        Problem::bsr(a)
    }
}

impl<'a> TryFrom<&'a KroneckerSum> for Problem<'a> {
    type Error = Error;
    fn try_from(k: &'a KroneckerSum) -> Result<Self> {
        Problem::kronecker(k)
    }
}
