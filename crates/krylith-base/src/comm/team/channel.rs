//! Halos between threads: a mailbox of two slots for each pair of ranks and direction.

use super::super::messages::Lengths;
use super::super::{Channel, Message};
use super::{Member, Shared};
use crate::Result;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Numbers that one rank sends to another.
pub(super) struct Mailbox {
    /// Number of exchanges sent.
    sent: AtomicU64,
    /// Number of exchanges received; the sender stays at most two ahead.
    taken: AtomicU64,
    /// Indexed by the parity of the exchange.
    slots: [Mutex<Vec<f64>>; 2],
}

/// One end of a mailbox: the other rank, and the mailbox's range of `outgoing` or `incoming`.
struct End {
    rank: usize,
    range: Range<usize>,
    mailbox: Arc<Mailbox>,
}

/// One rank's channel.
pub(super) struct TeamChannel {
    member: Arc<Member>,
    outgoing: Vec<f64>,
    incoming: Vec<f64>,
    sends: Vec<End>,
    receives: Vec<End>,
    exchanges: u64,
}

impl TeamChannel {
    /// Creates the `number`-th channel of its team; every rank creates its channels in the same order.
    pub(super) fn new(member: Arc<Member>, number: u64, messages: &[Message], lengths: &Lengths) -> Self {
        let mut boxes = member.shared.boxes.lock().unwrap_or_else(|e| e.into_inner());
        // The rank that comes first creates the mailbox, the second finds it.
        let mut mailbox = |from, to, length: usize| match boxes.remove(&(number, from, to)) {
            Some(found) => found,
            None => {
                let slot = || Mutex::new(vec![0.0; length]);
                let slots = [slot(), slot()];
                let new = Arc::new(Mailbox { sent: AtomicU64::new(0), taken: AtomicU64::new(0), slots });
                boxes.insert((number, from, to), new.clone());
                new
            }
        };
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for m in messages {
            if !m.send.is_empty() {
                let mailbox = mailbox(member.rank, m.rank, m.send.len());
                sends.push(End { rank: m.rank, range: m.send.clone(), mailbox });
            }
            if !m.receive.is_empty() {
                let mailbox = mailbox(m.rank, member.rank, m.receive.len());
                receives.push(End { rank: m.rank, range: m.receive.clone(), mailbox });
            }
        }
        drop(boxes);
        let (outgoing, incoming) = (vec![0.0; lengths.outgoing], vec![0.0; lengths.incoming]);
        Self { member, outgoing, incoming, sends, receives, exchanges: 0 }
    }
}

impl Shared {
    /// Waits until `counter`, which rank `other` increments, has reached `target`.
    fn reach(
        &self,
        rank: usize,
        other: usize,
        counter: &AtomicU64,
        target: u64,
        limit: Duration,
    ) -> Result<()> {
        let poll = || {
            // Read `left` first: the other rank may increment the counter and then leave.
            let left = self.seats[other].left.load(Ordering::SeqCst);
            if counter.load(Ordering::Acquire) >= target {
                return Some(Ok(()));
            }
            if let Err(failure) = self.check() {
                return Some(Err(failure));
            }
            left.then(|| Err(self.gone(other)))
        };
        self.seats[rank].wakeup.wait(limit, poll).unwrap_or_else(|| Err(self.late(other)))
    }
}

impl Channel for TeamChannel {
    fn outgoing(&mut self) -> &mut [f64] {
        &mut self.outgoing
    }

    fn start(&mut self) -> Result<()> {
        let (shared, rank) = (&self.member.shared, self.member.rank);
        shared.check()?;
        self.exchanges += 1;
        let n = self.exchanges;
        for end in &self.sends {
            // Exchange n − 2 used the same slot, so the receiver must have taken it first. A receiver that
            // also sends to this rank took it before it sent exchange n − 1. So only a rank that receives
            // nothing back can wait here, and only if it is ahead of its receiver.
            shared.reach(rank, end.rank, &end.mailbox.taken, n.saturating_sub(2), shared.limit)?;
            let mut slot = end.mailbox.slots[(n % 2) as usize].lock().unwrap_or_else(|e| e.into_inner());
            slot.copy_from_slice(&self.outgoing[end.range.clone()]);
            drop(slot);
            end.mailbox.sent.store(n, Ordering::Release);
            shared.seats[end.rank].wakeup.wake();
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<&[f64]> {
        let limit = self.member.shared.limit;
        self.finish_within(limit)
    }

    fn finish_when_ready(&mut self) -> Result<&[f64]> {
        self.finish_within(Duration::MAX)
    }
}

impl TeamChannel {
    fn finish_within(&mut self, limit: Duration) -> Result<&[f64]> {
        let (shared, rank) = (&self.member.shared, self.member.rank);
        shared.check()?;
        let n = self.exchanges;
        for end in &self.receives {
            shared.reach(rank, end.rank, &end.mailbox.sent, n, limit)?;
            let slot = end.mailbox.slots[(n % 2) as usize].lock().unwrap_or_else(|e| e.into_inner());
            self.incoming[end.range.clone()].copy_from_slice(&slot);
            drop(slot);
            end.mailbox.taken.store(n, Ordering::Release);
            shared.seats[end.rank].wakeup.wake();
        }
        Ok(&self.incoming)
    }
}
