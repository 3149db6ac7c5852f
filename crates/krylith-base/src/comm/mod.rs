//! What ranks say to each other on the host: sums, set-up messages, and the halo of a product.
//!
//! A rank is one share of a distributed system with one device: a thread of a [`Team`] (one process driving several
//! GPUs, tests of many ranks), or an MPI process, whose library is found at run time. Methods never see this: a
//! `Space` sums over its communicator, and an operator exchanges its halo through it.
//!
//! Every call is collective unless it says otherwise, and every wait ends: with the data, with an error that names the
//! rank that is gone or failed, or at the time limit of [`time_limit`].
//!
//! Sums are added in rank order, so all ranks get the same bits. A thread that ends, by return or by panic,
//! is seen by the drop of its rank. A rank that cannot go on calls [`Communicator::fail`].
//!
//! A new communicator runs the tests of `krylith-core/tests/ranks`, and needs one test for each way in which
//! a rank can end.

mod bell;
mod launch;
mod messages;
mod mpi;
mod peers;
mod solo;
mod team;
#[doc(hidden)]
pub mod wire;

pub use launch::{check_alone, launched};
pub use mpi::Mpi;
pub use solo::Solo;
pub use team::{Team, TeamRank};

pub use crate::waiting::time_limit;
use crate::{Error, Result};
use std::ops::Range;

/// What one rank exchanges with another in a halo, in numbers (f64); ranges of what [`Channel`] holds.
///
/// # Examples
/// What a halo of two ranks is made of: each sends one number and gets one.
/// ```
/// use krylith::comm::{Communicator, Message, Team};
/// let got = Team::run(2, |comm| {
///     let other = 1 - comm.rank();
///     let mut channel = comm.channel(&[Message { rank: other, send: 0..1, receive: 0..1 }])?;
///     channel.outgoing()[0] = comm.rank() as f64;
///     channel.start()?; // rows without ghosts are computed meanwhile
///     Ok(channel.finish()?[0])
/// })?;
/// assert_eq!(got, [1.0, 0.0]);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The other rank.
    pub rank: usize,
    /// Range of [`Channel::outgoing`] that goes there; may be empty.
    pub send: Range<usize>,
    /// Range of the received numbers that comes from there; may be empty.
    pub receive: Range<usize>,
}

/// One rank's end of a group of ranks.
///
/// # Examples
/// ```
/// use krylith::comm::{Communicator, Team};
/// let norms = Team::run(3, |comm| {
///     let own = [(comm.rank() + 1) as f64]; // this rank's share of x = (1, 2, 3)
///     let mut sum = [own.iter().map(|x| x * x).sum()];
///     comm.sum(&mut sum)?;
///     Ok(sum[0])
/// })?;
/// assert_eq!(norms, [14.0; 3]); // the same on every rank
/// # Ok::<(), krylith::Error>(())
/// ```
pub trait Communicator: Send + Sync {
    /// This rank, from 0.
    fn rank(&self) -> usize;
    /// How many there are.
    fn size(&self) -> usize;

    /// Adds over all ranks in rank order (on more than 64 MPI ranks, in an order that MPI chooses): every rank gets the
    /// same bits. Allocates nothing after the first call of a length.
    ///
    /// # Errors
    /// A rank that is gone or failed, or the time limit.
    fn sum(&self, values: &mut [f64]) -> Result<()>;

    /// Begins a [`sum`](Self::sum) that [`finish_sum`](Self::finish_sum) ends, with the same numbers in the same place; between the two a
    /// rank may do anything but begin another. Without a way of its own it is done at once.
    ///
    /// # Errors
    /// As `sum`.
    fn start_sum(&self, values: &mut [f64]) -> Result<()> {
        self.sum(values)
    }
    /// Waits for the sum that was begun, which then stands in `values`.
    ///
    /// # Errors
    /// As `sum`.
    fn finish_sum(&self, _values: &mut [f64]) -> Result<()> {
        Ok(())
    }

    /// One message from every rank to every rank: `out[q]` goes to rank q, entry q of the answer came from there. For
    /// set-up, not for loops.
    ///
    /// # Errors
    /// A rank that is gone or failed, or the time limit.
    fn all_to_all(&self, out: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>>;

    /// A halo's messages, set up once and sent many times. Messages come in ascending rank; where rank p lists q,
    /// q lists p.
    ///
    /// # Errors
    /// Messages that do not match those of another rank, no room; a rank that is gone or failed, or the time limit.
    fn channel(&self, messages: &[Message]) -> Result<Box<dyn Channel>>;

    /// Tells the others that this rank cannot go on, so that nobody waits for it. Not collective; call it once, with
    /// the reason. Under an MPI that was started here the whole job ends.
    fn fail(&self, reason: &str);

    /// True where [`fail`](Self::fail) returns, and the process with it goes on.
    fn outlives_failure(&self) -> bool {
        true
    }

    /// An error that names a rank that is gone or failed, if one is known now. Not collective, cheap: waits for a
    /// device call it from time to time.
    ///
    /// # Errors
    /// The rank, and what is known of its end.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Which ranks share this rank's host, and with it the GPUs there. Not collective.
    fn host(&self) -> HostShare;

    /// True if all ranks are threads of one process, so that one may use another's device pointers.
    fn shares_address_space(&self) -> bool;
}

/// The ranks on one host.
///
/// # Examples
/// ```
/// use krylith::comm::{Communicator, Team};
/// let gpus = Team::run(2, |comm| {
///     let host = comm.host();
///     Ok(host.rank_on_host % host.ranks_on_host.len()) // the GPU that this rank would take
/// })?;
/// assert_eq!(gpus, [0, 1]);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostShare {
    /// Where this rank stands in `ranks_on_host`, from 0.
    pub rank_on_host: usize,
    /// The ranks on this host, ascending.
    pub ranks_on_host: Vec<usize>,
}

/// A halo's messages under way. One exchange at a time: `start`, then `finish`.
///
/// # Examples
/// Made by [`Communicator::channel`], once for each halo, and used in every product.
/// ```
/// use krylith::comm::{Channel, Communicator, Message, Team};
/// fn exchange(channel: &mut dyn Channel, edge: f64) -> krylith::Result<f64> {
///     channel.outgoing()[0] = edge;
///     channel.start()?;
///     Ok(channel.finish()?[0])
/// }
/// let ghosts = Team::run(2, |comm| {
///     let mut channel = comm.channel(&[Message { rank: 1 - comm.rank(), send: 0..1, receive: 0..1 }])?;
///     exchange(&mut *channel, [20.0, 80.0][comm.rank()])
/// })?;
/// assert_eq!(ghosts, [80.0, 20.0]);
/// # Ok::<(), krylith::Error>(())
/// ```
pub trait Channel: Send {
    /// Where the numbers to be sent are packed, before `start`.
    fn outgoing(&mut self) -> &mut [f64];
    /// Sends what `outgoing` holds; returns at once.
    ///
    /// # Errors
    /// A rank that is gone or failed.
    fn start(&mut self) -> Result<()>;
    /// Waits until every message is here; the answer holds until the next `start`.
    ///
    /// # Errors
    /// A rank that is gone or failed, or the time limit.
    fn finish(&mut self) -> Result<&[f64]>;
}

/// Every rank's bytes, by rank.
///
/// # Errors
/// As [`Communicator::all_to_all`].
pub fn gather(comm: &dyn Communicator, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
    comm.all_to_all(vec![mine.to_vec(); comm.size()])
}

/// The largest of what the ranks bring, and not less than 0; a NaN counts as nothing.
///
/// # Errors
/// As [`Communicator::all_to_all`].
pub fn largest(comm: &dyn Communicator, own: f64) -> Result<f64> {
    if comm.size() == 1 {
        return Ok(own.max(0.0));
    }
    let all = gather(comm, &own.to_le_bytes())?;
    let numbers = all.iter().filter_map(|bytes| bytes.as_slice().try_into().ok()).map(f64::from_le_bytes);
    Ok(numbers.fold(0.0, f64::max))
}

/// Ends a stretch of set-up: where it failed on one rank, it fails on all, with that rank's name and reason.
///
/// # Errors
/// This rank's own error, or [`Error::Rank`] for the first other rank that failed.
pub fn agree<T>(comm: &dyn Communicator, mine: Result<T>) -> Result<T> {
    if comm.size() == 1 {
        return mine;
    }
    let others = failure_of_others(comm, mine.as_ref().err());
    // An error of this rank says more than that of another, unless only that one ends the work; one of the exchange itself comes first.
    match (others, mine) {
        (Err(lost), _) => Err(lost),
        (Ok(Some(other)), Err(own)) if other.is_fatal() && !own.is_fatal() => Err(other),
        (Ok(_), Err(own)) => Err(own),
        (Ok(Some(other)), Ok(_)) => Err(other),
        (Ok(None), Ok(value)) => Ok(value),
    }
}

/// The first failure of a rank that ends the work, else the first of any, after each has said `own`.
fn failure_of_others(comm: &dyn Communicator, own: Option<&Error>) -> Result<Option<Error>> {
    let code = |e: &Error| vec![e.exit_code(), u8::from(e.is_memory())];
    let text = own.map_or(Vec::new(), |e| [code(e), e.to_string().into_bytes()].concat());
    let all = gather(comm, &text)?;
    let failures =
        all.iter().enumerate().filter(|(_, text)| text.len() >= 2).map(|(rank, text)| Error::Rank {
            rank,
            message: String::from_utf8_lossy(&text[2..]).into_owned(),
            exit_code: text[0],
            memory: text[1] != 0,
        });
    let mut first = None;
    for failure in failures {
        if failure.is_fatal() {
            return Ok(Some(failure));
        }
        first = first.or(Some(failure));
    }
    Ok(first)
}
