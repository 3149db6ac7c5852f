//! Messages between GPUs during set-ups. A rank packs its words into memory that other GPUs can read, and
//! they copy their parts. Between GPUs that cannot reach each other, NCCL sends them.

use super::driver::{Buffer, Device};
use super::fabric::{Fabric, Links, Peers};
use super::nccl::Nccl;
use super::peers::Shared;
use crate::comm::{Communicator, agree};
use crate::{Error, Result};
use std::cell::Cell;
use std::sync::Arc;

/// Least number of words for which memory is shared.
const LEAST: usize = 1 << 20;
const WHAT: &str = "messages between GPUs";

/// Messages of the same lengths that GPUs exchange again and again. For each exchange a rank packs words at
/// [`room`](Self::room), waits for its GPU, and makes a collective call on the host. Then it calls
/// [`receive`](Self::receive).
///
/// Exchanges alternate between two halves. A rank packs into a half again after the call that follows the
/// next exchange. By then all GPUs have copied from that half, because their ranks waited before the call.
pub(super) struct Mail {
    /// Where the words of each rank arrive, and the end of the last.
    pub begins: Vec<usize>,
    way: Way,
}

enum Way {
    Peers {
        own: u64,
        /// For each rank: the address of the words for this rank in its first half, and the bytes of a half.
        theirs: Vec<(u64, u64)>,
        half: u64,
        parity: Cell<u64>,
    },
    Nccl {
        nccl: Arc<Nccl>,
        packed: Buffer<u64>,
        begins: Vec<usize>,
    },
}

/// Returns the beginning of each of these parts, and the end of the last.
fn begins_of(parts: impl IntoIterator<Item = usize>) -> Vec<usize> {
    let mut begins = vec![0];
    parts.into_iter().for_each(|part| begins.push(begins[begins.len() - 1] + part));
    begins
}

/// Makes the memory for messages hold this many words on every rank. Collective.
fn reserve(peers: &Peers, comm: &dyn Communicator, device: &Arc<Device>, words: usize) -> Result<()> {
    let mut parcels = peers.parcels.lock().unwrap_or_else(|e| e.into_inner());
    if parcels.as_ref().is_some_and(|room| room.own().len() >= words) {
        return Ok(());
    }
    *parcels = None;
    let own = device.peer_zeros::<u64>(words.next_power_of_two().max(LEAST), WHAT);
    *parcels = Some(Shared::new(comm, agree(comm, own)?)?);
    Ok(())
}

impl Fabric {
    /// Sends `words[q]` words of 64 bits to each rank q. `fill` writes them, rank by rank, from an address
    /// on. Returns the words that arrive, and where those of each rank begin, with the end of the last.
    /// Collective.
    ///
    /// # Errors
    /// The error of `fill` on any rank; out of device memory; a rank that has ended or failed.
    pub(super) fn deliver(
        &self,
        words: &[usize],
        fill: impl FnOnce(u64) -> Result<()>,
    ) -> Result<(Buffer<u64>, Vec<usize>)> {
        let (comm, device) = (&**self.comm(), self.device());
        let mail = self.mail(words, 1)?;
        let filled = fill(mail.room()).and_then(|()| device.wait());
        let arrived = filled.and_then(|()| device.allocate::<u64>(mail.begins[comm.size()], WHAT));
        let arrived = agree(comm, arrived)?;
        mail.receive(device, &arrived)?;
        Ok((arrived, mail.begins))
    }

    /// Prepares messages of `words[q]` words to each rank q: one exchange, or several with two `halves`.
    /// Messages that are prepared later use the same memory, so only the last ones can be sent. Collective.
    ///
    /// # Errors
    /// Out of device memory; a rank that has ended or failed.
    pub(super) fn mail(&self, words: &[usize], halves: usize) -> Result<Mail> {
        let (comm, device) = (&**self.comm(), self.device());
        let own_begins = begins_of(words.iter().copied());
        let all = own_begins[words.len()];
        let told = words.iter().zip(&own_begins).map(|(&count, &begin)| {
            [all, begin, count].iter().flat_map(|&number| (number as u64).to_le_bytes()).collect()
        });
        // Copies from messages before must have ended everywhere.
        agree(comm, device.wait())?;
        let read = |message: &Vec<u8>| {
            let number = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes) as usize;
            let numbers: Vec<usize> = message.as_chunks().0.iter().map(number).collect();
            <[usize; 3]>::try_from(numbers)
                .map_err(|_| Error::Internal("a rank sent no length of its message".into()))
        };
        let told: Vec<[usize; 3]> =
            comm.all_to_all(told.collect())?.iter().map(read).collect::<Result<_>>()?;
        let begins = begins_of(told.iter().map(|[.., count]| *count));
        let way = match &self.links {
            Links::Alone => return Err(Error::Internal("a single rank has nobody to send to".into())),
            Links::Nccl(nccl) => {
                let packed = agree(comm, device.allocate(all, WHAT))?;
                Way::Nccl { nccl: nccl.clone(), packed, begins: own_begins }
            }
            Links::Peers(peers) => {
                let most = told.iter().map(|[all, ..]| *all).max().unwrap_or_default();
                reserve(peers, comm, device, halves * most)?;
                let parcels = peers.parcels.lock().unwrap_or_else(|e| e.into_inner());
                let room = parcels.as_ref();
                let at = |rank: usize| room.map_or(0, |room| room.of(rank));
                let theirs = told.iter().enumerate();
                let theirs = theirs.map(|(q, [all, begin, _])| (at(q) + 8 * *begin as u64, 8 * *all as u64));
                let (own, half) = (at(comm.rank()), 8 * all as u64);
                Way::Peers { own, theirs: theirs.collect(), half, parity: Cell::new(0) }
            }
        };
        Ok(Mail { begins, way })
    }
}

impl Mail {
    /// Address at which the words of the next exchange are packed, rank by rank.
    pub fn room(&self) -> u64 {
        match &self.way {
            Way::Peers { own, half, parity, .. } => own + parity.get() * half,
            Way::Nccl { packed, .. } => packed.pointer(),
        }
    }

    /// Copies the words that arrive, in stream order.
    pub fn receive(&self, device: &Device, to: &Buffer<u64>) -> Result<()> {
        let all = || self.begins.windows(2).enumerate().map(|(q, w)| (q, w[0], w[1] - w[0]));
        match &self.way {
            Way::Peers { theirs, parity, .. } => {
                for (q, begin, count) in all() {
                    let (at, half) = theirs[q];
                    device.copy_part(at + parity.get() * half, to.at(begin), 8 * count)?;
                }
                parity.set(1 - parity.get());
                Ok(())
            }
            Way::Nccl { nccl, packed, begins } => {
                let send = begins.windows(2).enumerate().map(|(q, w)| (q, packed.at(w[0]), w[1] - w[0]));
                let receive = all().map(|(q, begin, count)| (q, to.at(begin), count));
                nccl.exchange(device.stream().cu_stream(), send, receive)
            }
        }
    }
}
