//! Ranks that are threads of one process: a GPU each, or tests of many ranks on one CPU.
//!
//! Collective calls are numbered. A rank lays what it brings into its slot of the call's parity, shows the number, and
//! waits until all show it; then it reads the slots of all, in rank order. It writes a slot again two calls later, when
//! all have shown the call between and so have read. Sums that are begun and ended apart have numbers and slots of their own, so
//! any call may come between.

mod channel;
mod run;

use super::bell::Bell;
use super::{Channel, Communicator, HostShare, Message, messages, time_limit};
use crate::{Error, Result};
use channel::{Mailbox, TeamChannel};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};
use std::time::Duration;

/// Makes groups of ranks that are threads of one process.
///
/// # Examples
/// ```
/// use krylith::comm::{Communicator, Team};
/// let ranks = Team::run(3, |comm| Ok(comm.rank()))?;
/// assert_eq!(ranks, [0, 1, 2]);
/// // An error of one rank ends the others, which may wait for it.
/// let failed = Team::run(2, |comm| match comm.rank() {
///     0 => Err(krylith::Error::invalid("an element with a negative volume")),
///     _ => comm.sum(&mut [1.0]),
/// });
/// assert!(failed.unwrap_err().to_string().contains("negative volume"));
/// # Ok::<(), krylith::Error>(())
/// ```
pub enum Team {}

impl Team {
    /// The ranks 0..size, to be moved to a thread each. They wait for each other as long as [`time_limit`] says.
    ///
    /// # Errors
    /// No rank at all, or [`time_limit`]'s.
    #[allow(clippy::new_ret_no_self)] // a team is its ranks
    pub fn new(size: usize) -> Result<Vec<TeamRank>> {
        Self::with_time_limit(size, time_limit()?)
    }

    /// As [`Team::new`], with another time limit.
    ///
    /// # Errors
    /// No rank at all.
    pub fn with_time_limit(size: usize, limit: Duration) -> Result<Vec<TeamRank>> {
        if size == 0 {
            return Err(Error::invalid("a team has at least one rank"));
        }
        let shared = Arc::new(Shared {
            seats: (0..size).map(|_| Seat::default()).collect(),
            failure: OnceLock::new(),
            boxes: Mutex::new(HashMap::new()),
            limit,
        });
        let member = |rank| Arc::new(Member { shared: shared.clone(), rank });
        Ok((0..size).map(|rank| TeamRank { member: member(rank), calls: Mutex::default() }).collect())
    }
}

/// One rank of a [`Team`]. When it and its channels are dropped it has left: who waits for it gets an error.
///
/// # Examples
/// With threads of the caller's own:
/// ```
/// use krylith::comm::{Communicator, Team};
/// let threads: Vec<_> = Team::new(2)?.into_iter().map(|comm| {
///     std::thread::spawn(move || {
///         let mut sum = [1.0];
///         comm.sum(&mut sum).map(|()| sum[0])
///     })
/// }).collect();
/// for thread in threads {
///     assert_eq!(thread.join().unwrap()?, 2.0);
/// }
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct TeamRank {
    member: Arc<Member>,
    /// Held during a collective call, so that two threads of one rank cannot mix theirs.
    calls: Mutex<Calls>,
}

/// A rank's collective calls.
#[derive(Default)]
struct Calls {
    /// How many there were.
    made: u64,
    /// How many channels.
    channels: u64,
    /// Longest sum so far: what its slots have room for.
    room: usize,
    /// How many sums were begun apart, and the longest.
    begun: u64,
    room_ahead: usize,
}

/// What all ranks of a team look at.
struct Shared {
    seats: Vec<Seat>,
    /// The rank that failed first, and why.
    failure: OnceLock<(usize, String)>,
    /// Mailboxes that one end has asked for, by number of the channel, sender and receiver.
    boxes: Mutex<HashMap<(u64, usize, usize), Arc<Mailbox>>>,
    limit: Duration,
}

/// What one rank shows the others; aligned so that no two ranks write to one cache line.
#[derive(Default)]
#[repr(align(128))]
struct Seat {
    /// Number of the collective call that it has come to.
    shown: AtomicU64,
    /// It makes no more calls.
    left: AtomicBool,
    bell: Bell,
    /// What it brings to a sum, by parity of the call, with the call's number.
    numbers: [RwLock<(u64, Vec<f64>)>; 2],
    /// Number of the sum that it has begun apart, and what it brings to those, likewise.
    begun: AtomicU64,
    ahead: [RwLock<(u64, Vec<f64>)>; 2],
    /// What it brings to an all-to-all, likewise, by receiver.
    letters: [Mutex<(u64, Vec<Vec<u8>>)>; 2],
}

/// A rank's membership, shared with its channels; it leaves when the last of them goes.
struct Member {
    shared: Arc<Shared>,
    rank: usize,
}

impl Drop for Member {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.fail(self.rank, "panicked");
        }
        self.shared.leave(self.rank);
    }
}

impl Shared {
    fn ring_all(&self) {
        self.seats.iter().for_each(|seat| seat.bell.ring());
    }

    fn leave(&self, rank: usize) {
        self.seats[rank].left.store(true, Ordering::SeqCst);
        self.ring_all();
    }

    /// Keeps the first failure alone.
    fn fail(&self, rank: usize, reason: &str) {
        let _ = self.failure.set((rank, reason.to_string())); // a later one follows from the first
        self.ring_all();
    }

    fn check(&self) -> Result<()> {
        match self.failure.get() {
            None => Ok(()),
            Some((rank, message)) => {
                Err(Error::Rank { rank: *rank, message: message.clone(), exit_code: 3, memory: false })
            }
        }
    }

    /// The error of waiting for a rank that makes no more calls.
    fn gone(&self, rank: usize) -> Error {
        let message = "ended while others still waited for it".into();
        self.check().err().unwrap_or(Error::Rank { rank, message, exit_code: 3, memory: false })
    }

    /// The error of having waited for a rank until the time limit.
    fn late(&self, rank: usize) -> Error {
        let message = format!(
            "no answer within {} s; it hangs, or is much slower than the others: KRYLITH_TIMEOUT sets the limit in seconds",
            self.limit.as_secs_f64()
        );
        Error::Rank { rank, message, exit_code: 3, memory: false }
    }

    /// Shows call `n` of `rank` and waits until all show it.
    fn meet(&self, rank: usize, n: u64) -> Result<()> {
        self.seats[rank].shown.store(n, Ordering::SeqCst);
        self.wait(rank, n, |seat| &seat.shown)
    }

    /// Waits until the counters of all ranks have come to `n`.
    fn wait(&self, rank: usize, n: u64, counter: fn(&Seat) -> &AtomicU64) -> Result<()> {
        let missing = || self.seats.iter().position(|seat| counter(seat).load(Ordering::SeqCst) < n);
        if missing().is_none() {
            self.ring_all();
            return Ok(());
        }
        let poll = || {
            let (mut all, mut gone) = (true, None);
            for (q, seat) in self.seats.iter().enumerate() {
                let left = seat.left.load(Ordering::SeqCst); // before the counter: it may come, then leave
                if counter(seat).load(Ordering::SeqCst) < n {
                    all = false;
                    gone = gone.or(left.then_some(q));
                }
            }
            // Once every rank has brought its part, all of it is valid, even if a rank has failed since.
            if all {
                return Some(Ok(()));
            }
            self.check().err().or_else(|| gone.map(|q| self.gone(q))).map(Err)
        };
        let met = self.seats[rank].bell.wait(self.limit, poll);
        met.unwrap_or_else(|| missing().map_or(Ok(()), |q| Err(self.late(q))))
    }
}

/// The error of ranks that are not in the same call.
fn out_of_step(rank: usize, other: usize, call: &str) -> Error {
    Error::invalid(format!(
        "rank {rank} is in {call} and rank {other} is not; all ranks make the same calls in the same order"
    ))
}

impl TeamRank {
    /// Begins a collective call: its number, and the slot's parity.
    fn begin(&self) -> Result<(MutexGuard<'_, Calls>, u64, usize)> {
        self.member.shared.check()?;
        let mut calls = self.calls.lock().unwrap_or_else(|e| e.into_inner());
        calls.made += 1;
        let n = calls.made;
        Ok((calls, n, (n % 2) as usize))
    }

    fn seat(&self) -> &Seat {
        &self.member.shared.seats[self.member.rank]
    }

    /// Adds what all ranks have laid into their slots of sum `n`, in rank order.
    fn add(
        &self,
        slot: impl Fn(&Seat) -> &RwLock<(u64, Vec<f64>)>,
        n: u64,
        values: &mut [f64],
    ) -> Result<()> {
        for (q, seat) in self.member.shared.seats.iter().enumerate() {
            let slot = slot(seat).read().unwrap_or_else(|e| e.into_inner());
            if slot.0 != n || slot.1.len() != values.len() {
                return Err(out_of_step(self.rank(), q, &format!("a sum of {} numbers", values.len())));
            }
            match q {
                0 => values.copy_from_slice(&slot.1),
                _ => values.iter_mut().zip(&slot.1).for_each(|(sum, v)| *sum += v),
            }
        }
        Ok(())
    }
}

/// Lays a rank's numbers into its slot of sum `n`.
fn lay(slots: &[RwLock<(u64, Vec<f64>)>; 2], room: &mut usize, n: u64, values: &[f64]) {
    if values.len() > *room {
        *room = values.len();
        for slot in slots {
            let mut slot = slot.write().unwrap_or_else(|e| e.into_inner());
            let more = values.len() - slot.1.len();
            slot.1.reserve(more); // both slots, so that the next call allocates nothing
        }
    }
    let mut slot = slots[(n % 2) as usize].write().unwrap_or_else(|e| e.into_inner());
    slot.0 = n;
    slot.1.clear();
    slot.1.extend_from_slice(values);
}

impl Communicator for TeamRank {
    fn rank(&self) -> usize {
        self.member.rank
    }

    fn size(&self) -> usize {
        self.member.shared.seats.len()
    }

    fn sum(&self, values: &mut [f64]) -> Result<()> {
        let (mut calls, n, parity) = self.begin()?;
        lay(&self.seat().numbers, &mut calls.room, n, values);
        self.member.shared.meet(self.rank(), n)?;
        self.add(|seat| &seat.numbers[parity], n, values)
    }

    fn start_sum(&self, values: &mut [f64]) -> Result<()> {
        self.member.shared.check()?;
        let mut calls = self.calls.lock().unwrap_or_else(|e| e.into_inner());
        let n = calls.begun + 1;
        calls.begun = n;
        lay(&self.seat().ahead, &mut calls.room_ahead, n, values);
        self.seat().begun.store(n, Ordering::SeqCst);
        self.member.shared.ring_all();
        Ok(())
    }

    fn finish_sum(&self, values: &mut [f64]) -> Result<()> {
        self.member.shared.check()?;
        let n = self.calls.lock().unwrap_or_else(|e| e.into_inner()).begun;
        self.member.shared.wait(self.rank(), n, |seat| &seat.begun)?;
        self.add(|seat| &seat.ahead[(n % 2) as usize], n, values)
    }

    fn all_to_all(&self, out: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        if out.len() != self.size() {
            return Err(Error::invalid(format!("{} messages for {} ranks", out.len(), self.size())));
        }
        let (_calls, n, parity) = self.begin()?;
        *self.seat().letters[parity].lock().unwrap_or_else(|e| e.into_inner()) = (n, out);
        self.member.shared.meet(self.rank(), n)?;
        let seats = self.member.shared.seats.iter().enumerate();
        seats
            .map(|(q, seat)| {
                let mut slot = seat.letters[parity].lock().unwrap_or_else(|e| e.into_inner());
                if slot.0 != n {
                    return Err(out_of_step(self.rank(), q, "an all-to-all"));
                }
                Ok(std::mem::take(&mut slot.1[self.member.rank]))
            })
            .collect()
    }

    fn channel(&self, messages: &[Message]) -> Result<Box<dyn Channel>> {
        let lengths = messages::check(self, messages)?;
        let mut calls = self.calls.lock().unwrap_or_else(|e| e.into_inner());
        calls.channels += 1;
        Ok(Box::new(TeamChannel::new(self.member.clone(), calls.channels, messages, &lengths)))
    }

    fn fail(&self, reason: &str) {
        self.member.shared.fail(self.member.rank, reason);
    }

    /// Knows of ranks that failed; one that ended without a word is missed by who waits for it.
    fn check(&self) -> Result<()> {
        self.member.shared.check()
    }

    fn host(&self) -> HostShare {
        HostShare { rank_on_host: self.rank(), ranks_on_host: (0..self.size()).collect() }
    }

    fn shares_address_space(&self) -> bool {
        true
    }
}
