//! What every communicator must do, whatever its ranks are: run on every rank by `comm.rs` and `mpi.rs`.
//!
//! What a rank brings is computed from its number, so that every rank knows what to expect of all others.

#[allow(dead_code)] // ranks that are processes have delays of their own
pub mod delayed;
#[cfg(feature = "lu")]
pub mod direct;
#[allow(dead_code)] // processes use a part of it
pub mod leaders;
pub mod solve;

use krylith_core::comm::{Channel, Communicator, Message, agree, gather};
use krylith_core::{Error, Result};
use std::ops::Range;

/// Splitmix64 of a few numbers: the same on every rank.
fn mix(parts: &[u64]) -> u64 {
    parts.iter().fold(0x9E37_79B9_7F4A_7C15, |state, part| {
        let mut z = (state ^ part).wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    })
}

/// A number of either sign between 2⁻³² and 2³²: the order of a sum shows in its bits.
fn number(parts: &[u64]) -> f64 {
    let bits = mix(parts);
    let exponent = 1023 - 32 + (bits >> 52 & 63);
    f64::from_bits(bits & !(0x7ff << 52) | exponent << 52)
}

/// Everything below.
pub fn conform(comm: &dyn Communicator) {
    sums(comm, |values| comm.sum(values), true);
    let apart = |values: &mut [f64]| {
        comm.start_sum(values)?;
        comm.sum(&mut [1.0, 2.0])?; // other calls may come between
        comm.sum(&mut [3.0])?;
        comm.finish_sum(values)
    };
    sums(comm, apart, true);
    all_to_all(comm);
    halos(comm);
    halos_that_do_not_fit(comm);
    agreement(comm);
    groups(comm);
    let host = comm.host();
    assert_eq!(host.ranks_on_host[host.rank_on_host], comm.rank());
    assert_eq!(host.ranks_on_host, (0..comm.size()).collect::<Vec<_>>(), "the tests run on one host");
    comm.check().unwrap();
}

/// Ranks divide into groups, and wait for one of a group without a limit.
fn groups(comm: &dyn Communicator) {
    for count in [1, 2, 3] {
        let (rank, color) = (comm.rank(), comm.rank() % count);
        let group = comm.split(color).unwrap();
        let own: Vec<usize> = (0..comm.size()).filter(|q| q % count == color).collect();
        assert_eq!((group.rank(), group.size()), (rank / count, own.len()), "{count} groups");
        assert_eq!(group.host().ranks_on_host, (0..own.len()).collect::<Vec<_>>());
        let mut sum = [rank as f64, 1.0];
        group.sum(&mut sum).unwrap();
        assert_eq!(sum, [own.iter().sum::<usize>() as f64, own.len() as f64], "{count} groups");
        let all = gather(&*group, &[rank as u8]).unwrap();
        assert!(all.iter().zip(&own).all(|(bytes, q)| *bytes == [*q as u8]), "{count} groups");
        let first = |other: usize| match group.rank() {
            0 => Message { rank: other, send: 0..2, receive: 0..0 },
            _ => Message { rank: 0, send: 0..0, receive: 0..2 },
        };
        let others = if group.rank() == 0 { 1..group.size() } else { 0..1 };
        let mut channel = group.channel(&others.map(first).collect::<Vec<_>>()).unwrap();
        for round in 0..3 {
            if group.rank() == 0 && group.size() > 1 {
                channel.outgoing().copy_from_slice(&[color as f64, f64::from(round)]);
            }
            channel.start().unwrap();
            let came = channel.finish_when_ready().unwrap();
            assert!(group.rank() == 0 || *came == [color as f64, f64::from(round)]);
        }
    }
}

/// `sum` adds over all ranks with the same bits everywhere; those of rank order if `in_order`.
pub fn sums(comm: &dyn Communicator, sum: impl Fn(&mut [f64]) -> Result<()>, in_order: bool) {
    let (rank, size) = (comm.rank() as u64, comm.size() as u64);
    for round in 0..60 {
        let length = [0, 1, 2, 65, 1000, 3][round as usize % 6];
        let brought = |q: u64, i: usize| number(&[q, i as u64, round]);
        let mut values: Vec<f64> = (0..length).map(|i| brought(rank, i)).collect();
        sum(&mut values).unwrap();
        for (i, found) in values.iter().enumerate() {
            let expected = (1..size).fold(brought(0, i), |total, q| total + brought(q, i));
            let error = (found - expected).abs();
            let magnitude: f64 = (0..size).map(|q| brought(q, i).abs()).sum();
            assert!(error <= 1e-15 * size as f64 * magnitude, "rank {rank}, {i}: {found} for {expected}");
            assert!(
                !in_order || found.to_bits() == expected.to_bits(),
                "rank {rank} of {size}, {i}: not in order"
            );
        }
        let bits: Vec<u8> = values.iter().flat_map(|v| v.to_bits().to_le_bytes()).collect();
        let all = gather(comm, &bits).unwrap();
        assert!(all.iter().all(|theirs| *theirs == bits), "round {round}: ranks have different bits");
    }
}

fn bytes(from: usize, to: usize, round: usize) -> Vec<u8> {
    let seed = mix(&[from as u64, to as u64, round as u64]);
    let length = match (from + 2 * to + round) % 4 {
        0 => 0,
        1 => 1,
        2 => 1 << 20, // longer than any eager message
        _ => seed as usize % 1000,
    };
    (0..length).map(|i| (seed >> (i % 57)) as u8 ^ i as u8).collect()
}

fn all_to_all(comm: &dyn Communicator) {
    let (rank, size) = (comm.rank(), comm.size());
    for round in 0..4 {
        let out = (0..size).map(|q| bytes(rank, q, round)).collect();
        let found = comm.all_to_all(out).unwrap();
        assert_eq!(found.len(), size);
        for (q, found) in found.iter().enumerate() {
            assert!(
                *found == bytes(q, rank, round),
                "round {round}, from {q} to {rank}: {} bytes",
                found.len()
            );
        }
    }
    let wrong = comm.all_to_all(vec![Vec::new(); size + 1]).unwrap_err();
    assert!(wrong.to_string().contains("messages for"), "{wrong}");
    let names = gather(comm, format!("rank {rank}").as_bytes()).unwrap();
    for (q, name) in names.iter().enumerate() {
        assert_eq!(name, format!("rank {q}").as_bytes());
    }
}

/// Returns how many numbers `from` sends to `to` in graph `graph`; about half of all pairs exchange, some in
/// one direction only.
fn length(graph: u64, from: usize, to: usize) -> usize {
    let pair = mix(&[graph, from.min(to) as u64, from.max(to) as u64]);
    if from == to || pair % 2 == 0 {
        return 0;
    }
    match mix(&[graph, from as u64, to as u64, 7]) % 4 {
        0 => 0,
        1 => 1,
        2 => 5000,
        _ => (pair % 100) as usize,
    }
}

/// Returns a rank's messages in a graph. Sent ranges follow one another with a gap of one; received ranges
/// are in descending order of ranks.
fn messages(graph: u64, rank: usize, size: usize) -> Vec<Message> {
    let linked = |q: usize| q != rank && mix(&[graph, rank.min(q) as u64, rank.max(q) as u64]) % 2 == 1;
    let neighbours: Vec<usize> = (0..size).filter(|&q| linked(q)).collect();
    let mut sent = 0;
    let received = |q: usize| -> Range<usize> {
        let before: usize = neighbours.iter().filter(|&&p| p > q).map(|&p| length(graph, p, rank)).sum();
        before..before + length(graph, q, rank)
    };
    let message = |&q: &usize| {
        let send = sent..sent + length(graph, rank, q);
        sent = send.end + 1;
        Message { rank: q, send, receive: received(q) }
    };
    neighbours.iter().map(message).collect()
}

struct Halo {
    graph: u64,
    rank: usize,
    messages: Vec<Message>,
    channel: Box<dyn Channel>,
}

impl Halo {
    fn new(comm: &dyn Communicator, graph: u64) -> Self {
        let messages = messages(graph, comm.rank(), comm.size());
        let channel = comm.channel(&messages).unwrap();
        Self { graph, rank: comm.rank(), messages, channel }
    }
    fn start(&mut self, round: u64) {
        for m in &self.messages {
            for (i, at) in m.send.clone().enumerate() {
                self.channel.outgoing()[at] =
                    number(&[self.graph, self.rank as u64, m.rank as u64, round, i as u64]);
            }
        }
        self.channel.start().unwrap();
    }
    fn finish(&mut self, round: u64) {
        let found = self.channel.finish().unwrap();
        for m in &self.messages {
            for (i, at) in m.receive.clone().enumerate() {
                let expected = number(&[self.graph, m.rank as u64, self.rank as u64, round, i as u64]);
                let (graph, rank) = (self.graph, self.rank);
                assert_eq!(
                    found[at], expected,
                    "graph {graph}, round {round}, {} to {rank}, number {i}",
                    m.rank
                );
            }
        }
    }
}

fn halos(comm: &dyn Communicator) {
    for graph in 0..6 {
        let mut halo = Halo::new(comm, graph);
        let mut other = Halo::new(comm, graph + 100);
        for round in 0..100 {
            halo.start(round);
            if round % 10 == 0 {
                // Two halos and a sum under way at once.
                other.start(round);
                comm.sum(&mut [1.0]).unwrap();
                other.finish(round);
            }
            halo.finish(round);
        }
    }
    // Channels dropped in another order than made.
    let (first, mut second) = (Halo::new(comm, 1), Halo::new(comm, 2));
    drop(first);
    second.start(0);
    second.finish(0);
}

fn halos_that_do_not_fit(comm: &dyn Communicator) {
    let (rank, size) = (comm.rank(), comm.size());
    let m = |rank, send, receive| Message { rank, send, receive };
    // Every rank is told, also those whose own messages are right.
    let refuse = |messages: Vec<Message>, says: &str| {
        let e = comm.channel(&messages).map(drop).unwrap_err();
        assert!(e.to_string().contains(says), "expected {says}: {e}");
    };
    refuse(if rank == size - 1 { vec![m(rank, 0..1, 0..1)] } else { vec![] }, "to itself");
    refuse(if rank == 0 { vec![m(size, 0..1, 0..1)] } else { vec![] }, "does not exist");
    if size < 3 {
        return;
    }
    let twisted = vec![m(2, 0..1, 0..1), m(1, 0..1, 1..2)];
    refuse(if rank == 0 { twisted } else { vec![] }, "ascending");
    let overlapping = vec![m(1, 0..1, 0..2), m(2, 0..1, 1..3)];
    refuse(if rank == 0 { overlapping } else { vec![] }, "overlap");
    let unequal = match rank {
        0 => vec![m(1, 0..3, 0..1)],
        1 => vec![m(0, 0..1, 0..4)],
        _ => vec![],
    };
    refuse(unequal, "sends 3 numbers to rank 1, which expects 4");
    refuse(if rank == 0 { vec![m(1, 0..3, 0..0)] } else { vec![] }, "sends 3 numbers to rank 1");
}

fn agreement(comm: &dyn Communicator) {
    let (rank, size) = (comm.rank(), comm.size());
    assert_eq!(agree(comm, Ok(rank)).unwrap(), rank);
    for bad in 0..size {
        let mine = if rank == bad {
            Err(Error::Memory {
                what: "a basis".into(),
                needed: 8,
                free: 4,
                place: "the host".into(),
                remedy: "use less",
            })
        } else {
            Ok(())
        };
        match agree(comm, mine).unwrap_err() {
            Error::Memory { .. } if rank == bad => {}
            Error::Rank { rank: named, message, exit_code: 3, .. } if rank != bad => {
                assert_eq!(named, bad);
                assert!(message.contains("a basis needs 8 B, but only"), "{message}");
            }
            other => panic!("rank {rank}, {bad} failing: {other:?}"),
        }
    }
}
