//! What is to be solved: the matrix or the sum of terms, who holds which rows of it, and what is known beside its numbers.

use crate::comm::{Communicator, Solo};
use crate::io::parts::{run_of_rows, suited_block};
use crate::matrix::{Bsr, Csr, Dense, Grouping, KroneckerSum, first_not_finite};
use crate::memory::Numbers;
use crate::operator::{OriginalSystem, Terms};
use crate::partition::{LocalSubdomains, Part, RowNumbers, Rows, distribute};
use crate::precond::{NearNull, rigid};
use crate::text::plural;
use crate::{Error, Result};
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

/// A system without its right-hand side.
///
/// Made of a matrix (`Problem::from(&a)`), of a Kronecker sum, or of the rows that one rank of a parallel program holds. It
/// borrows the matrix where it can; [`into_owned`](Self::into_owned) ends that.
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
    pub(crate) coordinates: Option<Cow<'a, [[f64; 3]]>>,
    pub(crate) grid: Option<[usize; 3]>,
    pub(crate) null: Cow<'a, [Vec<f64>]>,
    pub(crate) near: Cow<'a, [Vec<f64>]>,
    pub(crate) subdomains: Option<LocalSubdomains>,
    pub(crate) stages: Option<(Dense, Dense)>,
    /// By term, in which order new values come; a term that is not there, or `None`, has that in which it is stored.
    pub(crate) given: Vec<Option<Arc<Given>>>,
}

/// In which order new values of a term come, where it is not that in which it is stored.
pub(crate) enum Given {
    /// The entries of a scalar matrix; where they stand in the blocks is found out by the first update.
    Scalars(Csr, OnceLock<Grouping>),
    /// Where what a rank has brought stands.
    Rows(Grouping),
}

/// What one thread of a solver works on: a problem of one process, or one GPU's part of it.
#[derive(Clone, Copy)]
pub(crate) struct LocalProblem<'a> {
    /// Own rows.
    pub terms: &'a Terms<'a>,
    /// The ranks that hold the system together.
    pub comm: &'a dyn Communicator,
    /// Global number of each own block row; `None` where they are all of the system.
    pub numbers: Option<RowNumbers<'a>>,
    /// Unknowns of the whole system.
    pub unknowns: usize,
    /// Where nodes lie: those of the own rows, or of the whole system.
    pub coordinates: Option<&'a [[f64; 3]]>,
    /// Nodes in x, y and z of the whole system where they stand on a grid, numbered with x fastest.
    pub grid: Option<[usize; 3]>,
    /// Null vectors, own rows of them.
    pub null: &'a [Vec<f64>],
    /// Near-null vectors, own rows of them.
    pub near: &'a [Vec<f64>],
    /// Subdomains of the own rows, where the whole system was cut.
    pub subdomains: Option<&'a LocalSubdomains>,
    /// A and B of a Kronecker sum.
    pub stages: Option<&'a (Dense, Dense)>,
}

impl LocalProblem<'_> {
    /// The system as given, on the host.
    pub fn original(&self) -> OriginalSystem<'_> {
        OriginalSystem { terms: self.terms, comm: self.comm }
    }

    /// The order b·s of a node's block.
    pub fn order(&self) -> usize {
        self.terms.block() * self.terms.stages()
    }
}

impl<'a> Problem<'a> {
    /// A sum of terms that stands whole in this process.
    ///
    /// # Errors
    /// Terms that are not square, or one rank's part of a distributed sum.
    pub fn new(terms: Terms<'a>) -> Result<Self> {
        if terms.halo.is_some() {
            return Err(Error::invalid("one rank's part of a sum; it comes with its communicator"));
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
            near: Cow::Borrowed(&[]),
            subdomains: None,
            stages: None,
            given: Vec::new(),
        };
        problem.square()
    }

    /// A scalar matrix, taken as 1×1 blocks.
    ///
    /// # Errors
    /// A matrix that is not square.
    pub fn csr(a: &Csr) -> Result<Problem<'static>> {
        Problem::new(Terms::csr(a)?)
    }

    /// A scalar matrix, whose unknowns at a node follow one another, in square blocks: of the order given, or without one of the order
    /// that [suits its pattern](suited_block), which for a matrix that is on a GPU alone is 1. New values of a [`Solver`](crate::Solver) then come in the order
    /// of the scalar matrix.
    ///
    /// # Errors
    /// A matrix that is not square, or of another order than a multiple of the block's.
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
        let open = a.rows() == a.columns() && a.rows() > 0 && !a.storage().is_on_device_alone();
        let block = block.unwrap_or_else(|| if open { suited_block(a).block } else { 1 });
        if block == 1 {
            return Problem::csr(a);
        }
        let blocks = Bsr::from_csr(a, block)?;
        let given = Given::Scalars(a.clone(), OnceLock::new());
        Ok(Problem { given: vec![Some(Arc::new(given))], ..Problem::bsr(&blocks)?.into_owned() })
    }

    /// Where new values of a term, in the order in which the matrix was given, stand among those that are stored: for scalar matrices in
    /// blocks, and rows of ranks. `None` where both orders are the same.
    ///
    /// # Errors
    /// A fault of Krylith's own.
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

    /// Values of a term as they are stored from those in the order in which it was given, into `to`; false where both are the same.
    pub(crate) fn gather(&self, term: usize, values: Numbers, to: &mut Vec<f64>) -> Result<bool> {
        let (Some(grouping), Some((_, stored))) = (self.grouping(term)?, self.terms.terms.get(term)) else {
            return Ok(false);
        };
        let mut scratch = Vec::new();
        to.resize(stored.stored(), 0.0);
        grouping.gather(values.on_host(&mut scratch)?, to)?;
        Ok(true)
    }

    /// A point-block matrix.
    ///
    /// # Errors
    /// A matrix that is not square.
    pub fn bsr(a: &'a Bsr) -> Result<Self> {
        Self::new(Terms::bsr(a))
    }

    /// A⊗M + τB⊗L.
    ///
    /// # Errors
    /// M and L that are not square.
    pub fn kronecker(k: &'a KroneckerSum) -> Result<Self> {
        Ok(Self { stages: Some((k.a.clone(), k.b.clone())), ..Self::new(Terms::kronecker(k))? })
    }

    /// A⊗M + τB⊗L of two problems of one matrix each, with the same blocks. New values of either come in the order in which its own problem
    /// was made: of a scalar matrix [in blocks](Self::csr_in_blocks) in the order of the scalar matrix.
    ///
    /// # Errors
    /// As [`KroneckerSum::new`]; problems of several terms, or of rows that ranks hold.
    ///
    /// ```
    /// use krylith::{Problem, Solver, matrix::{Csr, Dense}};
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 4.0), (1, 0, 1.0), (1, 1, 4.0)])?;
    /// let of = |a| Problem::csr_in_blocks(a, Some(2));
    /// let sum = Problem::kronecker_of(Dense::identity(1), Dense::identity(1), 0.5, &of(&a)?, &of(&a)?)?;
    /// let mut solver = Solver::new(&sum, &"device=cpu".parse()?)?;
    /// solver.update_term(0, &[2.0, 1.0, 2.0])?; // the three entries of M
    /// let mut x = [0.0; 2];
    /// solver.solve(&[4.0, 5.5], &mut x)?; // 2 + 0.5·4, and 1 + 0.5·1 below
    /// assert!(x.iter().all(|x| (x - 1.0).abs() < 1e-5));
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn kronecker_of(a: Dense, b: Dense, tau: f64, m: &Problem, l: &Problem) -> Result<Problem<'static>> {
        let term = |of: &Problem, name| match &of.terms.terms[..] {
            [_] if of.numbers.is_some() => {
                Err(Error::invalid(format!("{name} is held by ranks; a Kronecker sum is solved by one")))
            }
            [(_, matrix)] if of.stages() == 1 => Ok(matrix.clone().into_owned()),
            _ => Err(Error::invalid(format!("{name} of a Kronecker sum is a problem of one matrix"))),
        };
        let sum = KroneckerSum::new(a, b, tau, term(m, "M")?, term(l, "L")?)?;
        let given = [m, l].map(|of| of.given.first().cloned().flatten()).to_vec();
        Ok(Problem { given, ..Problem::kronecker(&sum)?.into_owned() })
    }

    /// The rows that this rank of a parallel program holds, of a system whose rows all ranks bring. Collective.
    ///
    /// Vectors of the solver are then this rank's rows in the order given. The ranks are those of `comm`, such as
    /// `krylith::comm::Mpi` in a program of the caller's.
    ///
    /// # Errors
    /// As [`distribute`].
    pub fn distributed(comm: Arc<dyn Communicator>, rows: Rows) -> Result<Problem<'static>> {
        let part = distribute(&*comm, rows)?;
        Problem::part(comm, part)
    }

    /// As [`distributed`](Self::distributed), where ranks hold runs of rows of a scalar matrix, one after the other: columns are global. The rows are
    /// put into square blocks of the order given, or without one of the order that suits the pattern. Collective.
    ///
    /// # Errors
    /// On every rank alike: rows that are not as many together as there are columns, or on some rank no multiple of the block's; as
    /// [`distribute`].
    ///
    /// ```
    /// use krylith::{Problem, Solver, comm::Solo, matrix::Csr};
    /// use std::sync::Arc;
    /// let own = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 4.0)])?; // all there are
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

    /// One rank's part of a system that is distributed already. Collective.
    ///
    /// # Errors
    /// A rank that is gone or failed.
    pub fn part(comm: Arc<dyn Communicator>, part: Part) -> Result<Problem<'static>> {
        let Part { rows, terms, given, .. } = part;
        let given = given.into_iter().map(|term| term.map(|order| Arc::new(Given::Rows(order)))).collect();
        Ok(Problem { given, ..Problem::local(comm, Cow::Owned(rows), terms)? })
    }

    /// Own rows by their global numbers, with the halo that goes with them in `terms`. Collective.
    ///
    /// # Errors
    /// A rank that is gone or failed.
    pub fn local(
        comm: Arc<dyn Communicator>,
        numbers: impl Into<Cow<'a, [u64]>>,
        terms: Terms<'a>,
    ) -> Result<Self> {
        let numbers = numbers.into();
        if numbers.len() != terms.block_rows() {
            return Err(Error::invalid(format!(
                "{} numbers for {} block rows; each row has one",
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
            near: Cow::Borrowed(&[]),
            subdomains: None,
            stages: None,
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

    /// The same with one point for each node: of the whole system, or of this rank's rows. Subdomains are then boxes in
    /// space.
    ///
    /// # Errors
    /// Another number of points; one that is not finite.
    pub fn with_coordinates(self, points: impl Into<Cow<'a, [[f64; 3]]>>) -> Result<Self> {
        let points = points.into();
        let (own, all) = (self.terms.block_rows(), self.unknowns / (self.block() * self.stages()));
        if points.len() != own && points.len() != all {
            return Err(Error::invalid(format!("{} points for {own} nodes; each has one", points.len())));
        }
        if let Some(e) = first_not_finite(points.as_flattened()) {
            let i = e / 3;
            let [x, y, z] = points[i];
            return Err(Error::invalid(format!(
                "coordinates: point {i} is ({x}, {y}, {z}); every number must be finite"
            )));
        }
        Ok(Self { coordinates: Some(points), ..self })
    }

    /// The same with nodes of the whole system that stand on a grid of this many in x, y and z, numbered with x fastest.
    ///
    /// # Errors
    /// A grid of another number of nodes.
    pub fn with_grid(self, grid: [usize; 3]) -> Result<Self> {
        let order = self.block() * self.stages();
        let nodes = self.unknowns / order;
        let [x, y, z] = grid;
        match x.checked_mul(y).and_then(|plane| plane.checked_mul(z)) {
            Some(count) if count == nodes => Ok(Self { grid: Some(grid), ..self }),
            _ => Err(Error::invalid(format!(
                "a grid of {x}×{y}×{z} nodes; the system has {nodes} nodes with {} each",
                plural(order, "unknown")
            ))),
        }
    }

    /// The same with vectors that the operator maps to zero, of a singular consistent system: no answer has a component
    /// in them beyond its first guess. Each is as long as x; the caller answers for what they are.
    ///
    /// # Errors
    /// A vector of another length.
    pub fn with_null_vectors(self, vectors: impl Into<Cow<'a, [Vec<f64>]>>) -> Result<Self> {
        let (null, n) = (vectors.into(), self.own_len());
        match null.iter().position(|v| v.len() != n) {
            Some(i) => Err(Error::invalid(format!("null vector {i} has {} numbers, not {n}", null[i].len()))),
            None => Ok(Self { null, ..self }),
        }
    }

    /// The same with vectors that the operator maps nearly to zero, such as the [rigid modes](Self::rigid_modes) of an elastic body: coarse levels
    /// (`amg`, `coarse`) then have an unknown for each at every node. Each is as long as x; one to eight of them.
    ///
    /// # Errors
    /// A vector of another length, of zeros alone, or with a number that is not finite; too many.
    ///
    /// ```
    /// use krylith::{Problem, Solver, matrix::Bsr};
    /// let a = Bsr::new(2, 2, 2, vec![0, 1, 2], vec![0, 1], vec![4., 1., 1., 4., 4., 1., 1., 4.])?;
    /// let problem = Problem::bsr(&a)?.with_coordinates(vec![[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])?;
    /// let modes = problem.rigid_modes()?;
    /// assert_eq!(modes[2], [0.0, -0.5, 0.0, 0.5]); // the rotation, at x = 0 and x = 1
    /// let problem = problem.with_near_null_vectors(modes)?;
    /// let mut solver = Solver::new(&problem, &"precond=amg device=cpu".parse()?)?;
    /// assert!(solver.solve(&[1.0; 4], &mut [0.0; 4])?.converged());
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn with_near_null_vectors(self, vectors: impl Into<Cow<'a, [Vec<f64>]>>) -> Result<Self> {
        let (near, n) = (vectors.into(), self.own_len());
        if !near.is_empty() {
            NearNull::new(&near)?;
        }
        match near.iter().position(|v| v.len() != n) {
            Some(i) => {
                Err(Error::invalid(format!("near-null vector {i} has {} numbers, not {n}", near[i].len())))
            }
            // One rank's part of a vector may be zero.
            None => match near.iter().position(|v| self.numbers.is_none() && v.iter().all(|v| *v == 0.0)) {
                Some(i) => Err(Error::invalid(format!("near-null vector {i} is zero; leave it out"))),
                None => Ok(Self { near, ..self }),
            },
        }
    }

    /// The rigid motions of an elastic body whose nodes' components are displacements: two translations and a rotation of nodes with two components,
    /// three of each of nodes with three.
    ///
    /// # Errors
    /// No coordinates; nodes with other components; several stages.
    pub fn rigid_modes(&self) -> Result<Vec<Vec<f64>>> {
        let Some(points) = self.coordinates.as_deref() else {
            return Err(Error::invalid("rigid modes need the coordinates of nodes, and none are known"));
        };
        let own: Vec<[f64; 3]> = match self.numbers.as_deref() {
            Some(numbers) if points.len() != self.terms.block_rows() => {
                numbers.iter().map(|&i| points[i as usize]).collect()
            }
            _ => points.to_vec(),
        };
        let modes = if self.stages() == 1 { rigid(self.block(), &own) } else { None };
        modes.ok_or_else(|| {
            Error::invalid(format!(
                "rigid modes are those of nodes with 2 or 3 displacements; these have {} components in {} stages",
                self.block(),
                self.stages()
            ))
        })
    }

    /// The same with subdomains of these rows that were cut in the whole system.
    pub fn with_subdomains(self, subdomains: Option<LocalSubdomains>) -> Self {
        Self { subdomains, ..self }
    }

    /// The same that knows A and B of its terms A⊗M and τB⊗L, so that τ can be changed.
    ///
    /// # Errors
    /// Not two terms, or coefficients of another order.
    pub fn with_stages(self, a: Dense, b: Dense) -> Result<Self> {
        let s = self.stages();
        if self.terms.terms.len() != 2 || [&a, &b].iter().any(|c| c.rows() != s || c.columns() != s) {
            return Err(Error::invalid(format!(
                "A and B of {} terms with {s} stages",
                self.terms.terms.len()
            )));
        }
        Ok(Self { stages: Some((a, b)), ..self })
    }

    /// The same, borrowing nothing.
    pub fn into_owned(self) -> Problem<'static> {
        let terms = self.terms.terms.into_iter().map(|(c, a)| (c, Cow::Owned(a.into_owned())));
        Problem {
            terms: Terms { terms: terms.collect(), halo: self.terms.halo },
            comm: self.comm,
            numbers: self.numbers.map(|n| Cow::Owned(n.into_owned())),
            unknowns: self.unknowns,
            coordinates: self.coordinates.map(|c| Cow::Owned(c.into_owned())),
            grid: self.grid,
            null: Cow::Owned(self.null.into_owned()),
            near: Cow::Owned(self.near.into_owned()),
            subdomains: self.subdomains,
            stages: self.stages,
            given: self.given,
        }
    }

    /// Unknowns of the whole system.
    pub fn unknowns(&self) -> usize {
        self.unknowns
    }

    /// Unknowns that this process holds.
    pub fn own_len(&self) -> usize {
        self.terms.rows()
    }

    /// Components b of a node.
    pub fn block(&self) -> usize {
        self.terms.block()
    }

    /// Stages s.
    pub fn stages(&self) -> usize {
        self.terms.stages()
    }

    /// The ranks that hold the system together.
    pub fn comm(&self) -> &Arc<dyn Communicator> {
        &self.comm
    }

    /// The operator's terms, on the host.
    pub fn terms(&self) -> &Terms<'a> {
        &self.terms
    }

    /// The system as given, for residuals on the host.
    pub fn original(&self) -> OriginalSystem<'_> {
        OriginalSystem { terms: &self.terms, comm: &*self.comm }
    }

    pub(crate) fn part_of_one(&self) -> LocalProblem<'_> {
        LocalProblem {
            terms: &self.terms,
            comm: &*self.comm,
            numbers: self.numbers.as_deref().map(RowNumbers::List),
            unknowns: self.unknowns,
            coordinates: self.coordinates.as_deref(),
            grid: self.grid,
            null: &self.null,
            near: &self.near,
            subdomains: self.subdomains.as_ref(),
            stages: self.stages.as_ref(),
        }
    }
}

impl<'a, 'p: 'a> From<&'p Problem<'a>> for Problem<'a> {
    /// The same system, borrowed.
    fn from(problem: &'p Problem<'a>) -> Self {
        let terms = problem.terms.terms.iter().map(|(c, a)| (c.clone(), Cow::Borrowed(&**a)));
        Problem {
            terms: Terms { terms: terms.collect(), halo: problem.terms.halo.clone() },
            comm: problem.comm.clone(),
            numbers: problem.numbers.as_deref().map(Cow::Borrowed),
            unknowns: problem.unknowns,
            coordinates: problem.coordinates.as_deref().map(Cow::Borrowed),
            grid: problem.grid,
            null: Cow::Borrowed(&problem.null),
            near: Cow::Borrowed(&problem.near),
            subdomains: problem.subdomains.clone(),
            stages: problem.stages.clone(),
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
