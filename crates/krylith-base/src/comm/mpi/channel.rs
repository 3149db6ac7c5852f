//! Halos between processes: persistent requests on two buffers.

use super::requests::Requests;
use super::world::{World, count};
use crate::comm::messages::Lengths;
use crate::comm::{Channel, Message};
use crate::{Error, Result};
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// One rank's channel.
pub(super) struct MpiChannel {
    world: Arc<World>,
    /// Dropped by hand: MPI may still use these if the channel is dropped between `start` and `finish`.
    outgoing: ManuallyDrop<Vec<f64>>,
    incoming: ManuallyDrop<Vec<f64>>,
    requests: ManuallyDrop<Requests>,
    /// The other rank of each request.
    ranks: Vec<usize>,
    /// True between `start` and `finish`.
    active: bool,
}

impl MpiChannel {
    pub(super) fn new(world: Arc<World>, messages: &[Message], lengths: &Lengths) -> Result<Self> {
        let tag = world.next_tag()?;
        let (table, double) = (&world.library().table, world.library().constants.double);
        let room = |n: usize| {
            let mut numbers = Vec::new();
            crate::alloc::reserve(&mut numbers, n).map_err(|_| Error::Memory {
                what: "the send and receive buffer of a halo".into(),
                needed: 8 * n as u64,
                free: 0,
                place: "the host".into(),
                remedy: "use more hosts, or fewer ranks on each",
            })?;
            numbers.resize(n, 0.0);
            Ok::<_, Error>(numbers)
        };
        let mut channel = Self {
            world,
            outgoing: ManuallyDrop::new(room(lengths.outgoing)?),
            incoming: ManuallyDrop::new(room(lengths.incoming)?),
            requests: ManuallyDrop::new(Requests::new(table)),
            ranks: Vec::new(),
            active: false,
        };
        let (from, to) = (channel.outgoing.as_ptr(), channel.incoming.as_mut_ptr());
        for m in messages.iter().filter(|m| !m.receive.is_empty()) {
            let n = count(m.receive.len())?;
            // SAFETY: the range lies within `incoming`, which is not moved or freed while a request is
            // active.
            let request = channel.world.start("MPI_Recv_init", |comm, request| unsafe {
                let to = to.add(m.receive.start).cast::<c_void>();
                table.MPI_Recv_init(to, n, double, m.rank as c_int, tag, comm, request)
            })?;
            channel.requests.push(request);
            channel.ranks.push(m.rank);
        }
        for m in messages.iter().filter(|m| !m.send.is_empty()) {
            let n = count(m.send.len())?;
            // SAFETY: as above, within `outgoing`.
            let request = channel.world.start("MPI_Send_init", |comm, request| unsafe {
                let from = from.add(m.send.start).cast::<c_void>();
                table.MPI_Send_init(from, n, double, m.rank as c_int, tag, comm, request)
            })?;
            channel.requests.push(request);
            channel.ranks.push(m.rank);
        }
        Ok(channel)
    }
}

impl Channel for MpiChannel {
    fn outgoing(&mut self) -> &mut [f64] {
        &mut self.outgoing
    }

    fn start(&mut self) -> Result<()> {
        let (n, requests) = (count(self.requests.len())?, self.requests.at(0));
        if self.active {
            return Err(Error::invalid("a halo exchange was started again before it was finished"));
        }
        if n > 0 {
            self.active = true;
            // SAFETY: n inactive requests.
            self.world.call("MPI_Startall", |mpi| unsafe { mpi.MPI_Startall(n, requests) })?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<&[f64]> {
        if self.active {
            self.world.wait("halo", &mut self.requests, &self.ranks)?;
            self.active = false;
        }
        Ok(&self.incoming)
    }

    fn finish_when_ready(&mut self) -> Result<&[f64]> {
        if self.active {
            self.world.wait_when_ready("a rank that solves for others", &mut self.requests, &self.ranks)?;
            self.active = false;
        }
        Ok(&self.incoming)
    }
}

impl Drop for MpiChannel {
    fn drop(&mut self) {
        if self.active {
            return; // MPI may still use the buffers
        }
        for i in 0..self.requests.len() {
            let request = self.requests.at(i);
            // SAFETY: an inactive request; after the end of MPI the call is not made.
            let _ = self.world.call("MPI_Request_free", |mpi| unsafe { mpi.MPI_Request_free(request) });
        }
        // SAFETY: not used again, here or by MPI.
        unsafe {
            ManuallyDrop::drop(&mut self.outgoing);
            ManuallyDrop::drop(&mut self.incoming);
            ManuallyDrop::drop(&mut self.requests);
        }
    }
}
