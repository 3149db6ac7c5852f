//! Moves numbers between the ranks that have them and the owners of their unknowns.

use crate::comm::wire::{Reader, packed};
use crate::comm::{Channel, Communicator, Message, agree, gather};
use crate::halo::Halo;
use crate::{Error, Result};

/// Sends numbers of any unknowns to the ranks that own these unknowns.
pub struct ToOwners {
    /// The unknowns for which it was built.
    of: Vec<i32>,
    /// For each number, its local unknown, or behind these the place of its message.
    to: Vec<u32>,
    /// The own unknown of each number that arrives.
    arrives: Vec<u32>,
    channel: Box<dyn Channel>,
    own: usize,
}

impl ToOwners {
    /// Builds it for the unknowns `of`, numbered from 1, of which each is on exactly one rank. `own` are the
    /// global numbers of own unknowns. Collective.
    pub fn new(comm: &dyn Communicator, own: &[u64], of: &[i32]) -> Result<Self> {
        let number = |&place: &i32| place as u64 - 1;
        let (halo, numbering) = Halo::build(comm, own, of.iter().map(number))?;
        let local = of.iter().map(|place| {
            let lost = || Error::Internal(format!("lu: unknown {place} of the solution has no owner"));
            numbering.local(number(place)).ok_or_else(lost)
        });
        let to = agree(comm, local.collect::<Result<Vec<u32>>>())?;
        // What is a ghost here is sent, and its owner receives it.
        let message = |n: &crate::halo::Neighbour| Message {
            rank: n.rank,
            send: n.receive.clone(),
            receive: n.send.clone(),
        };
        let messages: Vec<Message> = halo.neighbours.iter().map(message).collect();
        let channel = comm.channel(&messages)?;
        Ok(Self { of: of.to_vec(), to, arrives: halo.send, channel, own: own.len() })
    }

    /// Returns true if it was built for these unknowns.
    pub fn suits(&self, of: &[i32]) -> bool {
        self.of == of
    }

    /// Writes the numbers of own unknowns to `x`. Collective.
    pub fn send(&mut self, numbers: &[f64], x: &mut [f64]) -> Result<()> {
        let outgoing = self.channel.outgoing();
        for (&to, &number) in self.to.iter().zip(numbers) {
            match (to as usize).checked_sub(self.own) {
                None => x[to as usize] = number,
                Some(place) => outgoing[place] = number,
            }
        }
        self.channel.start()?;
        let incoming = self.channel.finish()?;
        self.arrives.iter().zip(incoming).for_each(|(&to, &number)| x[to as usize] = number);
        Ok(())
    }
}

/// Gathers a distributed vector on rank 0, and sends it back.
pub struct OnFirst {
    rank: usize,
    own: usize,
    gather: Box<dyn Channel>,
    scatter: Box<dyn Channel>,
    /// On rank 0, the global number of each number in the order of ranks; its own come first.
    numbers: Vec<u64>,
    whole: Vec<f64>,
}

impl OnFirst {
    /// `own` are the global numbers of own unknowns. Collective.
    pub fn new(comm: &dyn Communicator, own: &[u64]) -> Result<Self> {
        let rank = comm.rank();
        let lengths = gather(comm, &(own.len() as u64).to_le_bytes())?;
        let length = |bytes: &Vec<u8>| {
            let bytes = bytes.as_slice().try_into();
            bytes.map(u64::from_le_bytes).map_err(|_| Error::Internal("lu: a length of 8 bytes".into()))
        };
        let lengths = agree(comm, lengths.iter().map(length).collect::<Result<Vec<u64>>>())?;
        let mut out = vec![Vec::new(); comm.size()];
        out[0] = packed(own);
        let received = comm.all_to_all(out)?;
        let (mut numbers, mut there, mut back) = (Vec::new(), Vec::new(), Vec::new());
        if rank == 0 {
            let mut at = 0;
            for (q, (bytes, &length)) in received.iter().zip(&lengths).enumerate() {
                numbers.extend(Reader::new(bytes, q).take::<u64>(length as usize)?);
                if q > 0 {
                    let range = at..at + length as usize;
                    there.push(Message { rank: q, send: 0..0, receive: range.clone() });
                    back.push(Message { rank: q, send: range.clone(), receive: 0..0 });
                    at = range.end;
                }
            }
        } else {
            there.push(Message { rank: 0, send: 0..own.len(), receive: 0..0 });
            back.push(Message { rank: 0, send: 0..0, receive: 0..own.len() });
        }
        let (gather, scatter) = (comm.channel(&there)?, comm.channel(&back)?);
        let whole = vec![0.0; numbers.len()];
        Ok(Self { rank, own: own.len(), gather, scatter, numbers, whole })
    }

    /// Applies `solve` to the whole vector on rank 0. Its error is that of rank 0; other ranks then find NaN.
    /// Collective.
    pub fn apply(&mut self, own: &mut [f64], solve: impl FnOnce(&mut Vec<f64>) -> Result<()>) -> Result<()> {
        if self.rank > 0 {
            self.gather.outgoing()[..own.len()].copy_from_slice(own);
        }
        self.gather.start()?;
        let arrived = self.gather.finish()?;
        let mut solved = Ok(());
        if self.rank == 0 {
            let all = own.iter().chain(arrived);
            self.numbers.iter().zip(all).for_each(|(&to, &number)| self.whole[to as usize] = number);
            solved = solve(&mut self.whole);
            if solved.is_err() {
                self.whole.fill(f64::NAN);
            }
            let (first, others) = self.numbers.split_at(self.own);
            own.iter_mut().zip(first).for_each(|(own, &from)| *own = self.whole[from as usize]);
            let outgoing = self.scatter.outgoing();
            outgoing.iter_mut().zip(others).for_each(|(out, &from)| *out = self.whole[from as usize]);
        }
        self.scatter.start()?;
        let back = self.scatter.finish()?;
        if self.rank > 0 {
            own.copy_from_slice(&back[..own.len()]);
        }
        solved
    }
}
