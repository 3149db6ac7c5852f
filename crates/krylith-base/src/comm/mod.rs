//! Communication between ranks on the host: sums, set-up messages, and the exchange of ghosts before a
//! product.
//!
//! A rank computes one share of a distributed system on one device. It is a thread of a [`Team`] (one process
//! that drives several GPUs, or tests of many ranks), or an MPI process, whose MPI library is found at run
//! time. Solution methods do not depend on the kind: a `Space` sums over its communicator, and an operator
//! exchanges its halo through it.
//!
//! Every call is collective unless it says otherwise, and every wait ends: with the data, with an error that
//! names the rank that is gone or failed, or at the limit of [`time_limit`].
//!
//! Sums are added in rank order, so all ranks get the same bits. A thread that ends, by return or by panic,
//! is seen by the drop of its rank. A rank that cannot go on calls [`Communicator::fail`].
//!
//! To add a communicator, run the tests of `krylith-core/tests/ranks` on it, and write one test for each way
//! in which a rank can end.

mod launch;
mod messages;
mod mpi;
mod peers;
mod solo;
mod team;
mod wakeup;
#[doc(hidden)]
pub mod wire;

pub use launch::{check_alone, launched};
pub use mpi::Mpi;
#[doc(hidden)]
pub use mpi::mumps::{Estimates, Mumps, Symmetry, free_released};
pub use solo::Solo;
pub use team::{Team, TeamRank};

pub use crate::waiting::time_limit;
use crate::{Error, Result};
use std::ops::Range;
use std::sync::Arc;

/// The halo messages that a rank sends to and from one other rank: ranges of numbers (f64) in the buffers of
/// a
/// [`Channel`].
///
/// # Examples
/// The halo of two ranks that each send one number and receive one:
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
    /// Range of [`Channel::outgoing`] that is sent to that rank; may be empty.
    pub send: Range<usize>,
    /// Range of the received numbers that come from that rank; may be empty.
    pub receive: Range<usize>,
}

/// One rank's view of a group of ranks that exchange messages.
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
    /// The number of this rank, from 0.
    fn rank(&self) -> usize;
    /// Number of ranks.
    fn size(&self) -> usize;

    /// Sums over all ranks in rank order (on more than 64 MPI ranks, in an order that MPI chooses), so every
    /// rank gets the same bits. Allocates nothing after the first call of a length.
    ///
    /// # Errors
    /// A rank that is gone or failed, or the time limit.
    fn sum(&self, values: &mut [f64]) -> Result<()>;

    /// Starts a [`sum`](Self::sum) that [`finish_sum`](Self::finish_sum) completes with the same slice.
    /// Between the two a rank may do anything except start another. The default does the whole sum at once.
    ///
    /// # Errors
    /// As `sum`.
    fn start_sum(&self, values: &mut [f64]) -> Result<()> {
        self.sum(values)
    }
    /// Waits for the sum that was started, and writes it to `values`.
    ///
    /// # Errors
    /// As `sum`.
    fn finish_sum(&self, _values: &mut [f64]) -> Result<()> {
        Ok(())
    }

    /// Sends one message from every rank to every rank: `out[q]` goes to rank q, and entry q of the result
    /// came from rank q. For set-up, not for loops.
    ///
    /// # Errors
    /// A rank that is gone or failed, or the time limit.
    fn all_to_all(&self, out: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>>;

    /// Creates a channel for a halo's messages, which are then sent many times. `messages` are in ascending
    /// order of the other rank. If rank p lists rank q, rank q lists rank p.
    ///
    /// # Errors
    /// Messages that do not match those of another rank; out of memory; a rank that is gone or failed, or the
    /// time limit.
    fn channel(&self, messages: &[Message]) -> Result<Box<dyn Channel>>;

    /// Divides the ranks into groups, one for each color, with a communicator each. A group keeps the order
    /// of its ranks. Collective.
    ///
    /// # Errors
    /// A rank that is gone or failed, or the time limit. The default cannot divide its ranks.
    ///
    /// ```
    /// use krylith::comm::{Communicator, Team};
    /// let places = Team::run(5, |comm| {
    ///     let group = comm.split(comm.rank() % 2)?; // ranks 0, 2, 4, and ranks 1, 3
    ///     Ok((group.rank(), group.size()))
    /// })?;
    /// assert_eq!(places, [(0, 3), (0, 2), (1, 3), (1, 2), (2, 3)]);
    /// # Ok::<(), krylith::Error>(())
    /// ```
    fn split(&self, _color: usize) -> Result<Arc<dyn Communicator>> {
        Err(Error::Unsupported("this communicator cannot divide its ranks; use ranks_per_gpu=1".into()))
    }

    /// Notifies the other ranks that this one cannot go on, so that none waits for it. Not collective; call
    /// it once, with the reason. If Krylith started MPI, the whole job ends.
    fn fail(&self, reason: &str);

    /// True if [`fail`](Self::fail) returns and the process goes on.
    fn outlives_failure(&self) -> bool {
        true
    }

    /// Returns an error that names a rank that is gone or failed, if one is known now. Not collective, and
    /// cheap: code that waits for a device calls this from time to time.
    ///
    /// # Errors
    /// The rank, and what is known of its failure.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The ranks that share this rank's host, and so the GPUs there. Not collective.
    fn host(&self) -> HostShare;

    /// True if all ranks are threads of one process, so that one may use another's device pointers.
    fn shares_address_space(&self) -> bool;

    /// The ranks of MPI, for libraries that call MPI themselves; `None` if these are others.
    fn mpi(&self) -> Option<&Mpi> {
        None
    }
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
    /// Index of this rank in `ranks_on_host`.
    pub rank_on_host: usize,
    /// The ranks on this host, ascending.
    pub ranks_on_host: Vec<usize>,
}

/// The messages of a halo. One exchange at a time: `start`, then `finish`.
///
/// # Examples
/// [`Communicator::channel`] creates it once for each halo, and every product uses it:
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
    /// The numbers to send, which the caller fills before `start`.
    fn outgoing(&mut self) -> &mut [f64];
    /// Sends the numbers in `outgoing`; returns at once.
    ///
    /// # Errors
    /// A rank that is gone or failed.
    fn start(&mut self) -> Result<()>;
    /// Waits until every message has arrived; the result is valid until the next `start`.
    ///
    /// # Errors
    /// A rank that is gone or failed, or the time limit.
    fn finish(&mut self) -> Result<&[f64]>;
    /// As [`finish`](Self::finish), without the time limit: for messages of ranks that are known to compute,
    /// and whose own waits end.
    ///
    /// # Errors
    /// A rank that is gone or failed, or that is suspended for longer than the time limit.
    fn finish_when_ready(&mut self) -> Result<&[f64]> {
        self.finish()
    }
}

/// Gathers the bytes of every rank, ordered by rank.
///
/// # Errors
/// As [`Communicator::all_to_all`].
pub fn gather(comm: &dyn Communicator, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
    comm.all_to_all(vec![mine.to_vec(); comm.size()])
}

/// Returns the largest of the numbers `own` of all ranks, at least 0; ignores NaN.
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

/// Ends a part of a set-up: if it failed on one rank, it fails on all, with that rank's number and reason.
///
/// # Errors
/// This rank's own error, or [`Error::Rank`] for the first other rank that failed.
pub fn agree<T>(comm: &dyn Communicator, mine: Result<T>) -> Result<T> {
    if comm.size() == 1 {
        return mine;
    }
    let others = failure_of_others(comm, mine.as_ref().err());
    // A rank's own error says more than that of another rank, so it is returned, unless only the other is
    // fatal. An error of this exchange takes precedence over both.
    match (others, mine) {
        (Err(lost), _) => Err(lost),
        (Ok(Some(other)), Err(own)) if other.is_fatal() && !own.is_fatal() => Err(other),
        (Ok(_), Err(own)) => Err(own),
        (Ok(Some(other)), Ok(_)) => Err(other),
        (Ok(None), Ok(value)) => Ok(value),
    }
}

/// The first fatal failure of a rank, else the first of any, after each rank has sent its `own`.
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
