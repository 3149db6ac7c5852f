//! What ranks say to each other on the host: sums, set-up messages, and the halo of a product.
//!
//! A rank is one share of a distributed system with one device: a thread of a [`Team`] (one process driving several
//! GPUs, tests of many ranks), or an MPI process (feature `mpi`). Methods never see this: a [`Space`](crate::space::Space)
//! sums over its communicator, and an operator exchanges its halo through it.
//!
//! Every call is collective unless it says otherwise, and every wait ends: with the data, with an error that names the
//! rank that is gone or failed, or at the time limit.

mod solo;

pub use solo::Solo;

use crate::{Error, Result};
use std::ops::Range;

/// What one rank exchanges with another in a halo, in numbers (f64); ranges of what [`Channel`] holds.
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
pub trait Communicator: Send + Sync {
    /// This rank, from 0.
    fn rank(&self) -> usize;
    /// How many there are.
    fn size(&self) -> usize;

    /// Adds over all ranks in rank order: every rank gets the same bits. Allocates nothing after the first call of a
    /// length.
    ///
    /// # Errors
    /// A rank that is gone or failed, or the time limit.
    fn sum(&self, values: &mut [f64]) -> Result<()>;

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
    /// No room.
    fn channel(&self, messages: &[Message]) -> Result<Box<dyn Channel>>;

    /// Tells the others that this rank cannot go on, so that nobody waits for it. Not collective; call it once, with
    /// the reason. Under MPI the whole job ends.
    fn fail(&self, reason: &str);

    /// An error that names a rank that is gone or failed, if one is known now. Not collective, cheap: waits for a
    /// device call it from time to time.
    ///
    /// # Errors
    /// The rank, and what is known of its end.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// A halo's messages under way. One exchange at a time: `start`, then `finish`.
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

/// Ends a stretch of set-up: where it failed on one rank, it fails on all, with that rank's name and reason.
///
/// # Errors
/// This rank's own error, or [`Error::Rank`] for the first other rank that failed.
pub fn agree<T>(comm: &dyn Communicator, mine: Result<T>) -> Result<T> {
    if comm.size() == 1 {
        return mine;
    }
    let text = match &mine {
        Ok(_) => Vec::new(),
        Err(e) => [vec![e.exit_code()], e.to_string().into_bytes()].concat(),
    };
    let all = gather(comm, &text)?;
    let value = mine?;
    match all.iter().enumerate().find(|(_, text)| !text.is_empty()) {
        None => Ok(value),
        Some((rank, text)) => Err(Error::Rank {
            rank,
            message: String::from_utf8_lossy(&text[1..]).into_owned(),
            exit_code: text[0],
        }),
    }
}
