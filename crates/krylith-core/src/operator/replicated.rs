//! Products that ranks compute together, with vectors that are replicated on every rank, or with a
//! distributed vector that is gathered first.
//!
//! [`Replicated`] is an operator on vectors of one rank: its space uses [`Solo`](crate::comm::Solo). Each
//! rank computes some rows of y and receives the others. All other operations of a method run on every rank,
//! on whole vectors, so a method runs as on one rank. The modes of sharing rows are those of Gao, Ji and Wang
//! (paper 2 in docs/papers.md) and two more. All ranks must call the operator with the same vectors in the
//! same order. Their devices must be of one kind, so that sums have the same bits. An observer that
//! interrupts a solve must do so on all ranks.
//!
//! [`Gathered`] is the baseline for comparisons: vectors are distributed, and the argument of a product is
//! gathered before the product begins.

use super::cuts::{Cuts, Mode, Run};
use super::{LinearOperator, WholeRows, check_lengths, fresh_key};
use crate::comm::{Communicator, agree, gather, largest};
use crate::matrix::Csr;
use crate::space::Space;
use crate::{Error, Result};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// A device that computes its share of the rows of a product and exchanges either the argument or the result.
///
/// # Examples
/// A bound for code that shares the rows of a matrix, with vectors replicated on every rank.
/// ```
/// use krylith::comm::{Communicator, Team};
/// use krylith::operator::LinearOperator;
/// use krylith_core::operator::{Replicated, SharedRows};
/// use krylith::{Result, device::Cpu, matrix::Csr};
/// use krylith_core::partition::replicated::Mode;
/// use std::sync::Arc;
/// fn multiply<S: SharedRows>(
///     space: &S,
///     comm: &Arc<dyn Communicator>,
///     a: &Csr,
///     x: &[f64],
/// ) -> Result<Vec<f64>> {
///     let product = Replicated::new(space, comm, a, Mode::Nz)?;
///     let (mut v, mut w, mut y) = (space.vector()?, space.vector()?, vec![0.0; x.len()]);
///     space.write(x, &mut v)?;
///     product.apply(space, &v, &mut w)?;
///     space.read(&w, &mut y)?;
///     Ok(y)
/// }
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (1, 1, 3.0)])?;
/// let all = Team::run(2, |comm| {
///     let comm: Arc<dyn Communicator> = comm;
///     multiply(&Cpu::new(2, 1), &comm, &a, &[1.0, 1.0])
/// })?;
/// assert_eq!(all, [[2.0, 3.0], [2.0, 3.0]]);
/// # Ok::<(), krylith::Error>(())
/// ```
pub trait SharedRows: Space {
    /// The links between the devices of the ranks.
    type Links;
    /// A rank's rows of a product whose result every rank receives.
    type Shared;
    /// A rank's rows of a product whose argument is gathered.
    type Gathered;

    /// Returns the same matrix with its arrays also on this device, so that cuts and rows are taken from
    /// there.
    ///
    /// # Errors
    /// Out of device memory.
    fn hold(&self, a: &Csr) -> Result<Csr> {
        Ok(a.clone())
    }
    /// Links the devices of all ranks. Collective.
    ///
    /// # Errors
    /// Devices that cannot reach each other; a rank that has ended or failed.
    fn link(&self, comm: &Arc<dyn Communicator>) -> Result<Arc<Self::Links>>;
    /// Waits for the device. Returns an error if another device did not answer.
    ///
    /// # Errors
    /// A rank that did not answer in time, or is lost.
    fn check_links(&self, _links: &Self::Links) -> Result<()> {
        self.wait()
    }
    /// Cuts the rows, on the host or on the device that stores the matrix.
    ///
    /// # Errors
    /// Invalid shares; errors of the device.
    fn cut_rows(&self, a: &Csr, mode: &Mode, ranks: usize) -> Result<Cuts> {
        Cuts::of(a, mode, ranks)
    }
    /// Prepares this rank's rows. Collective.
    ///
    /// # Errors
    /// Out of device memory; a rank that has ended or failed.
    fn share_rows(&self, links: &Arc<Self::Links>, a: &Csr, cuts: &Cuts, mode: &Mode)
    -> Result<Self::Shared>;
    /// Computes `y ← A x`. Every rank gets all of y. The caller has checked the lengths.
    ///
    /// # Errors
    /// Errors of the device; a rank that has ended or failed.
    fn multiply_shared(&self, product: &Self::Shared, x: &Self::Vector, y: &mut Self::Vector) -> Result<()>;
    /// Computes `r ← b − A x` in twice the working precision and `m ← |b| + |A| |x|`. Every rank gets all of
    /// r and m.
    ///
    /// # Errors
    /// As `multiply_shared`.
    fn residual_shared(
        &self,
        product: &Self::Shared,
        b: &Self::Vector,
        x: &Self::Vector,
        r: &mut Self::Vector,
        m: &mut Self::Vector,
    ) -> Result<()>;
    /// Prepares this rank's run of rows. `rows` lists the runs of all ranks in order. Collective.
    ///
    /// # Errors
    /// As `share_rows`.
    fn gather_for(&self, links: &Arc<Self::Links>, a: &Csr, rows: &[Run]) -> Result<Self::Gathered>;
    /// Computes this rank's rows of `y ← A x`, with a distributed x.
    ///
    /// # Errors
    /// As `multiply_shared`.
    fn multiply_gathered(
        &self,
        product: &Self::Gathered,
        x: &Self::Vector,
        y: &mut Self::Vector,
    ) -> Result<()>;
}

/// Seconds of the parts of a set-up of [`Replicated`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[doc(hidden)]
pub struct SetupTimes {
    /// Seconds to link the devices; 0 if they were linked before.
    pub join: f64,
    /// Seconds to compute the cuts, which the paper calls preprocessing.
    pub cut: f64,
    /// Seconds to copy this rank's rows to its device, and to prepare their products.
    pub place: f64,
}

/// A product whose vectors are replicated on every rank, in one of the [`Mode`]s.
///
/// # Examples
/// ```
/// use krylith::comm::{Communicator, Team};
/// use krylith::device::Cpu;
/// use krylith::matrix::Csr;
/// use krylith::operator::LinearOperator;
/// use krylith_core::operator::Replicated;
/// use krylith_core::partition::replicated::Mode;
/// use krylith::operator::Space;
/// use std::sync::Arc;
///
/// let a = Csr::new(3, 3, vec![0, 1, 2, 3], vec![0, 1, 2], vec![2.0, 3.0, 4.0])?;
/// let all = Team::run(2, |comm| {
///     let comm: Arc<dyn Communicator> = comm;
///     let space = Cpu::new(3, 1);
///     let operator = Replicated::new(&space, &comm, &a, Mode::Lra { long: 0.5 })?;
///     let (mut x, mut y) = (space.vector()?, space.vector()?);
///     space.write(&[1.0, 1.0, 1.0], &mut x)?;
///     operator.apply(&space, &x, &mut y)?;
///     Ok(y)
/// })?;
/// assert_eq!(all, [[2.0, 3.0, 4.0], [2.0, 3.0, 4.0]]);
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Replicated<S: SharedRows> {
    links: Arc<S::Links>,
    comm: Arc<dyn Communicator>,
    product: S::Shared,
    cuts: Cuts,
    mode: Mode,
    rows: usize,
    key: u64,
    times: SetupTimes,
}

impl<S: SharedRows> Replicated<S> {
    /// Shares the rows of `a` among the ranks of `comm`. Every rank has all of `a`, and a space of its own
    /// for vectors with all rows. Collective.
    ///
    /// # Errors
    /// A matrix that is not square or does not have the space's length; a space with a communicator; invalid
    /// shares; devices that cannot reach each other; out of device memory; a rank that has ended or failed.
    pub fn new(space: &S, comm: &Arc<dyn Communicator>, a: &Csr, mode: Mode) -> Result<Self> {
        let begin = Instant::now();
        agree(&**comm, check(space, a))?;
        let links = space.link(comm)?;
        Self::linked(space, comm, links, a, mode, begin.elapsed().as_secs_f64())
    }

    /// Does the same as [`new`](Self::new) for another matrix with the same number of rows, or for another
    /// mode. The devices stay linked. Collective.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn recut(&self, space: &S, a: &Csr, mode: Mode) -> Result<Self> {
        agree(&*self.comm, check(space, a))?;
        Self::linked(space, &self.comm, self.links.clone(), a, mode, 0.0)
    }

    /// Measures some modes, each by `products` products after a first one, and returns the fastest. The paper
    /// proposes this for the first iterations of a solve. Also returns the seconds of a product in each mode
    /// on the slowest rank, which are the same on all ranks. [`Mode::candidates`] lists the modes that are
    /// worth a measurement, including a single device. Collective.
    ///
    /// ```
    /// use krylith::comm::{Communicator, Team};
    /// use krylith::device::Cpu;
    /// use krylith::matrix::Csr;
    /// use krylith_core::operator::Replicated;
    /// use krylith_core::partition::replicated::Mode;
    /// use std::sync::Arc;
    ///
    /// let a = Csr::new(3, 3, vec![0, 1, 2, 3], vec![0, 1, 2], vec![2.0, 3.0, 4.0])?;
    /// Team::run(2, |comm| {
    ///     let comm: Arc<dyn Communicator> = comm;
    ///     let modes = Mode::candidates(1.0, 2);
    ///     let (operator, seconds) = Replicated::fastest(&Cpu::new(3, 1), &comm, &a, &modes, 3)?;
    ///     assert!(modes.contains(&operator.mode()) && seconds.len() == modes.len());
    ///     Ok(())
    /// })?;
    /// # Ok::<(), krylith::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new); no mode.
    pub fn fastest(
        space: &S,
        comm: &Arc<dyn Communicator>,
        a: &Csr,
        modes: &[Mode],
        products: usize,
    ) -> Result<(Self, Vec<f64>)> {
        let Some(&first) = modes.first() else {
            return Err(Error::invalid(
                "the list of modes is empty; Mode::candidates returns the modes worth a trial",
            ));
        };
        let mut operator = Self::new(space, comm, a, first)?;
        let (x, mut y) = (space.vector()?, space.vector()?);
        let mut seconds = Vec::with_capacity(modes.len());
        for (k, &mode) in modes.iter().enumerate() {
            if k > 0 {
                operator = operator.recut(space, a, mode)?;
            }
            operator.apply(space, &x, &mut y)?;
            space.wait()?;
            comm.sum(&mut [0.0])?;
            let begin = Instant::now();
            for _ in 0..products.max(1) {
                operator.apply(space, &x, &mut y)?;
            }
            space.wait()?;
            seconds.push(largest(&**comm, begin.elapsed().as_secs_f64())? / products.max(1) as f64);
        }
        let best = (0..modes.len()).min_by(|&i, &j| seconds[i].total_cmp(&seconds[j])).unwrap_or(0);
        if modes[best] != operator.mode {
            operator = operator.recut(space, a, modes[best])?;
        }
        Ok((operator, seconds))
    }

    /// Shares the rows of a matrix of which every rank has some rows. `links` are those of the ranks'
    /// devices. Collective; every rank gets the same error.
    pub(crate) fn of_rows(
        space: &S,
        comm: &Arc<dyn Communicator>,
        links: &Arc<S::Links>,
        rows: &WholeRows,
        mode: Mode,
    ) -> Result<Self> {
        let begin = Instant::now();
        let cuts = rows.cut(&mode, comm.size())?;
        let cut = begin.elapsed().as_secs_f64();
        let (own, local) = rows.place(&**comm, &cuts)?;
        let product = space.share_rows(links, &own, &local, &mode)?;
        agree(&**comm, space.wait())?;
        let times = SetupTimes { join: 0.0, cut, place: begin.elapsed().as_secs_f64() - cut };
        let (links, comm, rows) = (links.clone(), comm.clone(), rows.rows());
        Ok(Self { links, comm, product, cuts, mode, rows, key: fresh_key(), times })
    }

    fn linked(
        space: &S,
        comm: &Arc<dyn Communicator>,
        links: Arc<S::Links>,
        a: &Csr,
        mode: Mode,
        join: f64,
    ) -> Result<Self> {
        let begin = Instant::now();
        let cuts = everybodys(&**comm, || space.cut_rows(a, &mode, comm.size()))?;
        let cut = begin.elapsed().as_secs_f64();
        let product = space.share_rows(&links, a, &cuts, &mode)?;
        space.wait()?;
        let times = SetupTimes { join, cut, place: begin.elapsed().as_secs_f64() - cut };
        let (comm, rows) = (comm.clone(), a.rows());
        Ok(Self { links, comm, product, cuts, mode, rows, key: fresh_key(), times })
    }

    /// Returns the cuts: the rows that each rank computes.
    pub fn cuts(&self) -> &Cuts {
        &self.cuts
    }

    /// Returns the mode of sharing rows.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the seconds of the set-up on this rank.
    pub fn times(&self) -> SetupTimes {
        self.times
    }
}

/// Returns the cuts that rank 0 computes and broadcasts to all ranks.
fn everybodys(comm: &dyn Communicator, find: impl FnOnce() -> Result<Cuts>) -> Result<Cuts> {
    if comm.size() == 1 {
        return find();
    }
    let mine = agree(comm, if comm.rank() == 0 { find().map(Some) } else { Ok(None) })?;
    let all = gather(comm, &mine.map_or(Vec::new(), |cuts| cuts.to_bytes()))?;
    let cuts = all.first().and_then(|bytes| Cuts::from_bytes(bytes));
    cuts.ok_or_else(|| Error::Internal("the row cuts of rank 0 cannot be decoded".into()))
}

fn check<S: Space>(space: &S, a: &Csr) -> Result<()> {
    if space.comm().size() != 1 {
        return Err(Error::invalid(
            "replicated vectors need a space without a communicator; only the operator communicates",
        ));
    }
    check_square(a)?;
    match a.rows() == space.len() {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "the matrix has {} rows, but the space has {}; every rank needs all rows",
            a.rows(),
            space.len()
        ))),
    }
}

fn check_square(a: &Csr) -> Result<()> {
    match a.rows() == a.columns() {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "the matrix is {}×{}; only a square matrix can be shared among ranks",
            a.rows(),
            a.columns()
        ))),
    }
}

/// Returns the bytes that the products of these runs must move.
fn bytes_of<'a>(runs: impl Iterator<Item = &'a Run>, columns: usize) -> u64 {
    let (rows, entries) =
        runs.fold((0, 0), |(rows, entries), run| (rows + run.rows.len(), entries + run.entries.len()));
    (12 * entries + 16 * rows + 8 * columns) as u64
}

impl<S: SharedRows> LinearOperator<S> for Replicated<S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        check_lengths(self.rows, self.rows, space.len(), space.len())?;
        space.multiply_shared(&self.product, x, y)
    }
    fn residual(
        &self,
        space: &S,
        b: &S::Vector,
        x: &S::Vector,
        r: &mut S::Vector,
        m: &mut S::Vector,
    ) -> Result<bool> {
        check_lengths(self.rows, self.rows, space.len(), space.len())?;
        space.residual_shared(&self.product, b, x, r, m)?;
        Ok(true)
    }
    fn key(&self) -> u64 {
        self.key
    }
    fn bytes(&self) -> u64 {
        let rank = self.comm.rank();
        bytes_of(self.cuts.of_rank(rank), self.rows)
            + 8 * (self.cuts.sent(rank) * (self.comm.size() - 1)) as u64
    }
    /// The space belongs to one rank, but all ranks must make the same decisions, because their products
    /// exchange results.
    fn sum(&self, _: &S, numbers: &mut [f64]) -> Result<()> {
        self.comm.sum(numbers)
    }
}

/// A product of distributed vectors whose argument is gathered on every rank before the product begins, as in
/// CG(comp) of the paper.
///
/// # Examples
/// ```
/// use krylith::comm::{Communicator, Team};
/// use krylith::{device::Cpu, matrix::Csr, operator::{LinearOperator, Space}};
/// use krylith_core::operator::Gathered;
/// use std::sync::Arc;
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 3.0)])?;
/// let y = Team::run(2, |comm| {
///     let comm: Arc<dyn Communicator> = comm;
///     let own = Gathered::<Cpu>::rows(&a, 2)?[comm.rank()].clone();
///     let space = Cpu::new(own.len(), 1);
///     let product = Gathered::new(&space, &comm, &a)?;
///     let (x, mut y) = (vec![1.0; own.len()], space.vector()?);
///     product.apply(&space, &x, &mut y)?;
///     Ok(y)
/// })?;
/// assert_eq!(y.concat(), [3.0, 4.0]);
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Gathered<S: SharedRows> {
    product: S::Gathered,
    own: Run,
    columns: usize,
    key: u64,
    _links: Arc<S::Links>,
}

impl<S: SharedRows> Gathered<S> {
    /// Returns the rows of each rank, of about equal nonzeros. The vectors of a rank's space must have this
    /// length. Not collective.
    ///
    /// # Errors
    /// Errors of copying the row pointers to the host.
    pub fn rows(a: &Csr, ranks: usize) -> Result<Vec<Range<usize>>> {
        Ok(runs(a, ranks)?.into_iter().map(|run| run.rows).collect())
    }

    /// Shares the rows of `a`, all of which every rank has, as [`rows`](Self::rows) returns them. Collective.
    ///
    /// # Errors
    /// A matrix that is not square; a space whose length is not the number of this rank's rows; devices that
    /// cannot reach each other; out of device memory; a rank that has ended or failed.
    pub fn new(space: &S, comm: &Arc<dyn Communicator>, a: &Csr) -> Result<Self> {
        let (ranks, rank) = (comm.size(), comm.rank());
        let mine = check_square(a).and_then(|()| runs(a, ranks)).and_then(|runs| {
            let own = runs[rank].rows.len();
            match own == space.len() {
                true => Ok(runs),
                false => Err(Error::invalid(format!(
                    "rank {rank} has {own} rows, but its space has length {}; Gathered::rows returns the required rows",
                    space.len()
                ))),
            }
        });
        let runs = agree(&**comm, mine)?;
        let links = space.link(comm)?;
        let product = space.gather_for(&links, a, &runs)?;
        space.wait()?;
        Ok(Self { product, own: runs[rank].clone(), columns: a.columns(), key: fresh_key(), _links: links })
    }
}

/// Returns one run for each rank, which may be empty.
fn runs(a: &Csr, ranks: usize) -> Result<Vec<Run>> {
    let cuts = Cuts::of(a, &Mode::Nz, ranks)?;
    let mut end = (0, 0);
    let run = |runs: &Vec<Run>| {
        let run = runs.first().cloned().unwrap_or(Run { rows: end.0..end.0, entries: end.1..end.1 });
        end = (run.rows.end, run.entries.end);
        run
    };
    Ok(cuts.stages[0].runs.iter().map(run).collect())
}

impl<S: SharedRows> LinearOperator<S> for Gathered<S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let own = self.own.rows.len();
        check_lengths(own, own, space.len(), space.len())?;
        space.multiply_gathered(&self.product, x, y)
    }
    fn key(&self) -> u64 {
        self.key
    }
    fn bytes(&self) -> u64 {
        bytes_of(std::iter::once(&self.own), self.columns)
    }
}
