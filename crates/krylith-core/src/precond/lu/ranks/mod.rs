//! Direct factors of a matrix whose rows are distributed over ranks, in one of three ways.
//!
//! [`mumps`]: MUMPS factorises the rows where they are, on all ranks of MPI. It is found at run time. From
//! run to run its factors agree only up to rounding, since they depend on the order in which messages arrive.
//!
//! [`gathered`]: rank 0 gathers the matrix and computes Krylith's own factors on its threads. The result is
//! the same as on one rank, bit by bit. An application gathers x on rank 0 and sends y back. If the device of
//! rank 0 has a library of direct factors, it computes them instead ([`whole`]), on several devices of the
//! process if they do not fit on one.

mod gathered;
mod mumps;
mod pins;
mod rows;
mod spread;
mod whole;

use super::SparseLu;
use crate::comm::{Communicator, agree, gather};
use crate::halo::RowNumbers;
use crate::operator::{LinearOperator, TermValues, Terms, check_count, fresh_key};
use crate::precond::LuOver;
use crate::space::Space;
use crate::{Error, Result};
use gathered::Gathered;
use mumps::Distributed;
use std::cell::RefCell;
pub(crate) use whole::{MakeWhole, WholeDescription, WholeFactors, WholeOnDevice};

/// Bounds of the factors, and the ranks that compute them.
///
/// # Examples
/// ```
/// use krylith_core::precond::{LuOver, RanksLuOptions};
/// let options = RanksLuOptions { most: Some(1_000_000), ..RanksLuOptions::default() };
/// assert_eq!(options.over, LuOver::Auto);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct RanksLuOptions {
    /// The way that the user wants.
    pub over: LuOver,
    /// Largest number of numbers in the factors.
    pub most: Option<usize>,
    /// Bytes of the host that the factors may take there.
    pub free: Option<u64>,
}

/// The inverse of a distributed matrix, applied by sparse direct factors.
///
/// # Examples
/// ```
/// use krylith::comm::{Communicator, Team};
/// use krylith::matrix::{Csr, Dense};
/// use krylith::operator::LinearOperator;
/// use krylith_core::partition::{RowBlocks, RowNumbers, Rows, distribute};
/// use krylith_core::device::cpu::{Cpu, Pool};
/// use krylith_core::precond::{RanksLu, RanksLuOptions};
/// use std::sync::Arc;
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 0, 1.0)])?;
/// let x = Team::run(2, |comm| {
///     let rank = comm.rank();
///     let numbers = vec![rank as u64]; // a row for each rank
///     let terms = vec![(Dense::identity(1), RowBlocks::of_rows(&a, &numbers))];
///     let part = distribute(&*comm, Rows { numbers: numbers.clone(), block: 1, terms })?;
///     let own = RowNumbers::List(&numbers);
///     let lu = RanksLu::new(&*comm, &part.terms, own, &[], RanksLuOptions::default())?;
///     let space = Cpu::distributed(1, Arc::new(Pool::new(1)), comm);
///     let mut x = vec![0.0];
///     lu.apply(&space, &vec![[3.0, 1.0][rank]], &mut x)?;
///     Ok(x[0])
/// })?;
/// assert_eq!(x, [1.0, 1.0]);
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct RanksLu {
    way: RefCell<Way>,
    key: u64,
    /// Numbers of one application on this rank.
    order: usize,
}

enum Way {
    Mumps(Box<Distributed>),
    Gathered(Box<Gathered>),
}

impl RanksLu {
    /// Factorises the rows of all ranks. `numbers` are the global numbers of own block rows, and `null` the
    /// own rows of null vectors, for each of which one unknown is pinned. Collective.
    ///
    /// # Errors
    /// As [`SparseLu::new`]; MUMPS was asked for and cannot be used; a rank that is gone or failed. The same
    /// on every rank.
    pub fn new(
        comm: &dyn Communicator,
        terms: &Terms,
        numbers: RowNumbers,
        null: &[Vec<f64>],
        options: RanksLuOptions,
    ) -> Result<Self> {
        Self::with(comm, terms, numbers, null, options, None)
    }

    /// As [`new`](Self::new). If there is `make`, on all ranks or none, rank 0 makes the factors by it.
    pub(crate) fn with(
        comm: &dyn Communicator,
        terms: &Terms,
        numbers: RowNumbers,
        null: &[Vec<f64>],
        options: RanksLuOptions,
        make: Option<MakeWhole>,
    ) -> Result<Self> {
        agree(comm, check_count(terms.terms.len()))?;
        let square = terms.is_square() && numbers.len() == terms.block_rows();
        let square =
            square.then_some(()).ok_or_else(|| Error::invalid("lu: direct factors need a square matrix"));
        agree(comm, square)?;
        let why = match make {
            // Said if rank 0 has factors on its host instead.
            Some(_) => Some("they do not fit on its GPU".into()),
            None => why_not(comm, options.over, terms, numbers)?,
        };
        let way = match why {
            None => Way::Mumps(Box::new(Distributed::new(comm, terms, numbers, null, options)?)),
            Some(why) if options.over == LuOver::Mumps => {
                return Err(Error::Library {
                    library: "MUMPS".into(),
                    message: format!("lu:over=mumps: {why}"),
                    remedy: "install MUMPS 5.5 to 5.8 for the MPI library of the ranks, or give its file: \
                             KRYLITH_MUMPS=PATH; lu:over=one does without MUMPS"
                        .into(),
                });
            }
            Some(why) => {
                Way::Gathered(Box::new(Gathered::new(comm, terms, numbers, null, options, why, make)?))
            }
        };
        Ok(Self { way: RefCell::new(way), key: fresh_key(), order: terms.rows() })
    }

    /// Factorises new values under the same patterns; orderings and analysis are reused. After an error there
    /// are no factors until new values can be factorised. Collective.
    ///
    /// # Errors
    /// As [`new`](Self::new); values of another shape.
    pub fn update_values<'v>(
        &mut self,
        comm: &dyn Communicator,
        values: impl Into<TermValues<'v>>,
    ) -> Result<()> {
        match self.way.get_mut() {
            Way::Mumps(factors) => factors.update(comm, values.into()),
            Way::Gathered(factors) => factors.update(comm, values.into()),
        }
    }

    /// Describes who computed the factors, and why: `MUMPS 5.5.1 on 4 ranks`.
    pub fn way(&self) -> String {
        match &*self.way.borrow() {
            Way::Mumps(factors) => factors.describe(),
            Way::Gathered(factors) => factors.describe(),
        }
    }

    /// Returns the kind of the factors, such as `LU`.
    pub fn kind(&self) -> String {
        match &*self.way.borrow() {
            Way::Mumps(factors) => factors.kind().into(),
            Way::Gathered(factors) => factors.kind.clone(),
        }
    }

    /// Returns the number of numbers in the factors on all ranks, and whether it is only a bound.
    pub fn numbers(&self) -> (f64, bool) {
        match &*self.way.borrow() {
            Way::Mumps(factors) => (factors.numbers(), false),
            Way::Gathered(factors) => factors.numbers,
        }
    }

    /// Returns the number of numbers in the assembled matrix of all ranks.
    pub fn stored(&self) -> f64 {
        match &*self.way.borrow() {
            Way::Mumps(factors) => factors.stored,
            Way::Gathered(factors) => factors.stored,
        }
    }

    /// Returns the rows that found no pivot above rounding errors, and were given one.
    pub fn weak_rows(&self) -> Vec<usize> {
        match &*self.way.borrow() {
            Way::Mumps(_) => Vec::new(),
            Way::Gathered(factors) => factors.weak.clone(),
        }
    }

    fn solve<S: Space>(&self, space: &S, transposed: bool, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let way = &mut *self.way.borrow_mut();
        let work = match way {
            Way::Mumps(factors) => &mut factors.work,
            Way::Gathered(factors) => &mut factors.work,
        };
        let mut own = std::mem::take(work);
        let solved = space.read(x, &mut own).and_then(|()| match way {
            Way::Mumps(factors) => factors.solve(transposed, &mut own),
            Way::Gathered(factors) => factors.solve(transposed, &mut own),
        });
        let written = solved.and_then(|()| space.write(&own, y));
        match way {
            Way::Mumps(factors) => factors.work = own,
            Way::Gathered(factors) => factors.work = own,
        }
        written
    }
}

impl<S: Space> LinearOperator<S> for RanksLu {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.solve(space, false, x, y)
    }
    fn has_transpose(&self) -> bool {
        true
    }
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.solve(space, true, x, y)
    }
    fn key(&self) -> u64 {
        self.key
    }
    fn bytes(&self) -> u64 {
        16 * self.order as u64
    }
    /// The solve runs on the host.
    fn recordable(&self) -> bool {
        false
    }
}

/// Returns the reason why MUMPS does not factorise these rows, the same on every rank; `None` if it does.
/// Collective.
fn why_not(
    comm: &dyn Communicator,
    over: LuOver,
    terms: &Terms,
    numbers: RowNumbers,
) -> Result<Option<String>> {
    let order = (terms.block() * terms.stages()) as f64;
    let mut unknowns = [numbers.len() as f64 * order];
    comm.sum(&mut unknowns)?;
    let own = match (over, comm.mpi()) {
        (LuOver::One, _) => Some("as lu:over=one asks".into()),
        _ if unknowns[0] == 0.0 => Some("the system has no unknowns".into()),
        _ if unknowns[0] > f64::from(i32::MAX) => {
            Some(format!("MUMPS has 32-bit numbers, and there are {} unknowns", unknowns[0]))
        }
        (_, None) if comm.size() == 1 => Some("there are no ranks of MPI".into()),
        (_, None) => Some("the ranks are threads of one process".into()),
        (_, Some(mpi)) => crate::comm::Mumps::probe(mpi).err(),
    };
    let all = gather(comm, own.unwrap_or_default().as_bytes())?;
    let first = all.iter().find(|text| !text.is_empty());
    Ok(first.map(|text| String::from_utf8_lossy(text).into_owned()))
}

/// Returns the memory error of factors that do not fit in the share of a host's memory that they may use.
fn too_large(what: String, needed: u64, free: u64) -> Error {
    Error::Memory {
        what,
        needed,
        free,
        place: "the half of host memory that factors may use".into(),
        remedy: "use more hosts, or incomplete factors, such as ildu or ras, or algebraic multigrid (amg)",
    }
}
