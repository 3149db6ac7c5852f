//! Ranks that are threads of one process: one for each GPU, or many on one CPU for tests.
//!
//! Collective calls are numbered. A rank writes its data into its slot for the call's parity, publishes the
//! call's number, and waits until all ranks have published it. Then it reads the slots of all ranks, in rank
//! order. It writes the same slot again two calls later; by then all ranks have published the call between
//! the two, and so have finished reading. Sums that are started and finished separately have numbers and
//! slots of their own, so any call may come in between.

mod channel;
mod run;

use super::wakeup::Wakeup;
use super::{Channel, Communicator, HostShare, Message, gather, messages, time_limit};
use crate::{Error, Result};
use channel::{Mailbox, TeamChannel};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};
use std::time::Duration;

/// Creates groups of ranks that are threads of one process.
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
    /// Creates the ranks 0..size, each for one thread. They wait for each other up to [`time_limit`].
    ///
    /// # Errors
    /// A size of 0, or an error of [`time_limit`].
    #[allow(clippy::new_ret_no_self)] // a team is its ranks
    pub fn new(size: usize) -> Result<Vec<TeamRank>> {
        Self::with_time_limit(size, time_limit()?)
    }

    /// As [`Team::new`], with another time limit.
    ///
    /// # Errors
    /// A size of 0.
    pub fn with_time_limit(size: usize, limit: Duration) -> Result<Vec<TeamRank>> {
        if size == 0 {
            return Err(Error::invalid("a team needs at least one rank"));
        }
        let shared = Arc::new(Shared {
            seats: (0..size).map(|_| Seat::default()).collect(),
            failure: OnceLock::new(),
            boxes: Mutex::new(HashMap::new()),
            groups: Mutex::new(HashMap::new()),
            limit,
        });
        let member = |rank| Arc::new(Member { shared: shared.clone(), rank });
        Ok((0..size).map(|rank| TeamRank { member: member(rank), calls: Mutex::default() }).collect())
    }
}

/// One rank of a [`Team`]. Once it and its channels are dropped, ranks that wait for it get an error.
///
/// # Examples
/// With the caller's own threads:
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
    /// Locked during a collective call, so that two threads of one rank cannot mix their calls.
    calls: Mutex<Calls>,
}

/// A rank's collective calls.
#[derive(Default)]
struct Calls {
    /// Number of calls so far.
    made: u64,
    /// Number of channels created.
    channels: u64,
    /// Number of divisions into groups.
    splits: u64,
    /// Length of the longest sum so far, for which its slots have memory.
    room: usize,
    /// Number of sums started separately, and the length of the longest.
    begun: u64,
    room_ahead: usize,
}

/// State shared by all ranks of a team.
struct Shared {
    seats: Vec<Seat>,
    /// The rank that failed first, and the reason.
    failure: OnceLock<(usize, String)>,
    /// Mailboxes that only one end has requested so far, by number of the channel, sender and receiver.
    boxes: Mutex<HashMap<(u64, usize, usize), Arc<Mailbox>>>,
    /// Ranks of groups that their threads have not taken yet, by number of the call and rank in this team.
    groups: Mutex<HashMap<(u64, usize), TeamRank>>,
    limit: Duration,
}

/// One rank's state, visible to the others; aligned so that no two ranks write to one cache line.
#[derive(Default)]
#[repr(align(128))]
struct Seat {
    /// Number of the collective call that it has reached.
    shown: AtomicU64,
    /// True if it makes no more calls.
    left: AtomicBool,
    wakeup: Wakeup,
    /// Its data for a sum with the call's number, by parity of the call.
    numbers: [RwLock<(u64, Vec<f64>)>; 2],
    /// Number of the sum that it has started separately, and its data for such sums, by parity.
    begun: AtomicU64,
    ahead: [RwLock<(u64, Vec<f64>)>; 2],
    /// Its messages for an all-to-all with the call's number, by parity and by receiver.
    messages: [Mutex<(u64, Vec<Vec<u8>>)>; 2],
}

/// A rank's membership, shared with its channels; the rank leaves when the last of them is dropped.
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
        self.seats.iter().for_each(|seat| seat.wakeup.wake());
    }

    fn leave(&self, rank: usize) {
        self.seats[rank].left.store(true, Ordering::SeqCst);
        self.ring_all();
    }

    /// Stores the failure, unless an earlier one is stored.
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

    /// The error of a wait for a rank that makes no more calls.
    fn gone(&self, rank: usize) -> Error {
        let message = "ended while other ranks still waited for it".into();
        self.check().err().unwrap_or(Error::Rank { rank, message, exit_code: 3, memory: false })
    }

    /// The error of a wait for a rank that reached the time limit.
    fn late(&self, rank: usize) -> Error {
        let message = format!(
            "no answer within {} s; it hangs, or is much slower than the others: KRYLITH_TIMEOUT sets the limit in seconds",
            self.limit.as_secs_f64()
        );
        Error::Rank { rank, message, exit_code: 3, memory: false }
    }

    /// Publishes call `n` of `rank` and waits until all ranks have published it.
    fn meet(&self, rank: usize, n: u64) -> Result<()> {
        self.seats[rank].shown.store(n, Ordering::SeqCst);
        self.wait(rank, n, |seat| &seat.shown)
    }

    /// Waits until the counters of all ranks have reached `n`.
    fn wait(&self, rank: usize, n: u64, counter: fn(&Seat) -> &AtomicU64) -> Result<()> {
        let missing = || self.seats.iter().position(|seat| counter(seat).load(Ordering::SeqCst) < n);
        if missing().is_none() {
            self.ring_all();
            return Ok(());
        }
        let poll = || {
            let (mut all, mut gone) = (true, None);
            for (q, seat) in self.seats.iter().enumerate() {
                let left = seat.left.load(Ordering::SeqCst); // before the counter: it may arrive, then leave
                if counter(seat).load(Ordering::SeqCst) < n {
                    all = false;
                    gone = gone.or(left.then_some(q));
                }
            }
            // Once every rank has written its data, all of it is valid, even if a rank has failed since.
            if all {
                return Some(Ok(()));
            }
            self.check().err().or_else(|| gone.map(|q| self.gone(q))).map(Err)
        };
        let met = self.seats[rank].wakeup.wait(self.limit, poll);
        met.unwrap_or_else(|| missing().map_or(Ok(()), |q| Err(self.late(q))))
    }
}

/// The error of ranks that make different calls.
fn out_of_step(rank: usize, other: usize, call: &str) -> Error {
    Error::invalid(format!(
        "rank {rank} is in {call}, but rank {other} is not; all ranks must make the same calls in the same order"
    ))
}

impl TeamRank {
    /// Starts a collective call; returns its number and the slot's parity.
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

    /// Adds the data of all ranks for sum `n`, in rank order.
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

/// Writes a rank's numbers into its slot for sum `n`.
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
            return Err(Error::invalid(format!(
                "all_to_all got {} messages for {} ranks; expected one message for each rank",
                out.len(),
                self.size()
            )));
        }
        let (_calls, n, parity) = self.begin()?;
        *self.seat().messages[parity].lock().unwrap_or_else(|e| e.into_inner()) = (n, out);
        self.member.shared.meet(self.rank(), n)?;
        let seats = self.member.shared.seats.iter().enumerate();
        seats
            .map(|(q, seat)| {
                let mut slot = seat.messages[parity].lock().unwrap_or_else(|e| e.into_inner());
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

    fn split(&self, color: usize) -> Result<Arc<dyn Communicator>> {
        let colors = gather(self, &(color as u64).to_le_bytes())?;
        let (rank, shared) = (self.rank(), &self.member.shared);
        let own = (0..self.size()).filter(|&q| colors[q] == colors[rank]).collect::<Vec<_>>();
        let mut calls = self.calls.lock().unwrap_or_else(|e| e.into_inner());
        calls.splits += 1;
        let number = calls.splits;
        drop(calls);
        let mut groups = shared.groups.lock().unwrap_or_else(|e| e.into_inner());
        // The first rank of a group that comes here makes all of its ranks.
        let found = groups.remove(&(number, rank));
        let made = match found {
            Some(made) => made,
            None => {
                let group = Team::with_time_limit(own.len(), shared.limit)?;
                groups.extend(own.into_iter().map(|q| (number, q)).zip(group));
                groups
                    .remove(&(number, rank))
                    .ok_or_else(|| Error::Internal("a group without a rank".into()))?
            }
        };
        Ok(Arc::new(made))
    }

    fn fail(&self, reason: &str) {
        self.member.shared.fail(self.member.rank, reason);
    }

    /// Reports only ranks that failed; the end of a rank without an error is noticed by waits for it.
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
