//! Checks that the messages of all ranks match, once when a channel is created.

use super::{Communicator, Message, agree};
use crate::{Error, Result};

/// Lengths of a rank's send buffer and receive buffer.
pub(super) struct Lengths {
    pub(super) outgoing: usize,
    pub(super) incoming: usize,
}

/// Checks on every rank that p sends to q as many numbers as q expects. Fails on all ranks or on none.
pub(super) fn check(comm: &dyn Communicator, messages: &[Message]) -> Result<Lengths> {
    let rank = comm.rank();
    let lengths = agree(comm, alone(comm.size(), rank, messages))?;
    let mut sent = vec![0u64; comm.size()];
    let mut expected = sent.clone();
    for m in messages {
        sent[m.rank] = m.send.len() as u64;
        expected[m.rank] = m.receive.len() as u64;
    }
    let told = comm.all_to_all(sent.iter().map(|n| n.to_le_bytes().to_vec()).collect())?;
    let fit = told.iter().zip(expected).enumerate().try_for_each(|(q, (bytes, expected))| {
        let sent = bytes.as_slice().try_into().map(u64::from_le_bytes).unwrap_or(u64::MAX);
        if sent == expected {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "halo: rank {q} sends {sent} numbers to rank {rank}, which expects {expected}; build the halos \
             of all ranks from the same partition"
        )))
    });
    agree(comm, fit)?;
    Ok(lengths)
}

/// Checks that need only this rank's messages: order, ranks, ranges.
fn alone(size: usize, rank: usize, messages: &[Message]) -> Result<Lengths> {
    let mut lengths = Lengths { outgoing: 0, incoming: 0 };
    for (i, m) in messages.iter().enumerate() {
        let wrong = |what: String| Err(Error::invalid(format!("halo of rank {rank}, message {i}: {what}")));
        if m.rank >= size {
            return wrong(format!("rank {} does not exist; there are {size} ranks", m.rank));
        }
        if m.rank == rank {
            return wrong("a rank must not send to itself".into());
        }
        if i > 0 && messages[i - 1].rank >= m.rank {
            return wrong(format!(
                "rank {} is listed after rank {}; list ranks in ascending order",
                m.rank,
                messages[i - 1].rank
            ));
        }
        if m.send.start > m.send.end || m.receive.start > m.receive.end {
            return wrong(format!(
                "the send range {:?} or the receive range {:?} ends before it starts",
                m.send, m.receive
            ));
        }
        // An empty range may lie anywhere.
        if !m.send.is_empty() {
            lengths.outgoing = lengths.outgoing.max(m.send.end);
        }
        if !m.receive.is_empty() {
            lengths.incoming = lengths.incoming.max(m.receive.end);
        }
    }
    let mut received: Vec<_> = messages.iter().map(|m| &m.receive).filter(|r| !r.is_empty()).collect();
    received.sort_unstable_by_key(|r| r.start);
    if let Some(pair) = received.windows(2).find(|pair| pair[1].start < pair[0].end) {
        return Err(Error::invalid(format!(
            "halo of rank {rank}: the receive ranges {:?} and {:?} overlap",
            pair[0], pair[1]
        )));
    }
    Ok(lengths)
}
