//! Single exchanges of ghost values on the host, from their owners and back: for residuals, scaling and
//! checks outside a solve. Products within a solve have their own exchange.

use super::Halo;
use crate::comm::{Channel, Communicator, Message};
use crate::{Error, Result};

impl Halo {
    /// This rank's numbers followed by those of its ghosts, with `run` numbers per node. For what a program
    /// evaluates between solves; products within a solve have their own exchange. Collective.
    ///
    /// # Errors
    /// A vector of the wrong length; a rank that is gone or failed.
    ///
    /// ```
    /// use krylith::{comm::{Communicator, Team}, partition::Halo};
    /// let all = Team::run(2, |comm| {
    ///     let own = [comm.rank() as u64];
    ///     let (halo, _) = Halo::build(&*comm, &own, [0, 1])?;
    ///     halo.with_ghosts(&*comm, 1, &[10.0 + comm.rank() as f64])
    /// })?;
    /// assert_eq!(all, [[10.0, 11.0], [11.0, 10.0]]);
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn with_ghosts(&self, comm: &dyn Communicator, run: usize, own: &[f64]) -> Result<Vec<f64>> {
        if own.len() != self.own * run {
            return Err(Error::invalid(format!(
                "a vector has {} numbers, but {} nodes of this rank with {run} numbers each need {}",
                own.len(),
                self.own,
                self.own * run
            )));
        }
        let packed: Vec<f64> =
            self.send.iter().flat_map(|&node| &own[node as usize * run..][..run]).copied().collect();
        let ghosts = self.exchange(comm, run, &packed)?;
        let mut all = own.to_vec();
        all.extend(ghosts);
        Ok(all)
    }

    /// Opens a channel for `run` numbers of each node: it sends those in [`send`](Self::send), and receives
    /// those of the ghosts. Collective.
    ///
    /// # Errors
    /// A rank that is gone or failed.
    #[doc(hidden)]
    pub fn channel(&self, comm: &dyn Communicator, run: usize) -> Result<Box<dyn Channel>> {
        let scaled = |r: &std::ops::Range<usize>| r.start * run..r.end * run;
        let all = self.neighbours.iter();
        let messages: Vec<Message> = all
            .map(|n| Message { rank: n.rank, send: scaled(&n.send), receive: scaled(&n.receive) })
            .collect();
        comm.channel(&messages)
    }

    /// Returns the numbers of this rank's ghosts, `run` numbers a node, from the numbers that it sends, in
    /// the order of [`send`](Self::send). Collective.
    ///
    /// # Errors
    /// A rank that is gone or failed.
    #[doc(hidden)]
    pub fn exchange(&self, comm: &dyn Communicator, run: usize, packed: &[f64]) -> Result<Vec<f64>> {
        let mut out = vec![Vec::new(); comm.size()];
        for n in &self.neighbours {
            out[n.rank] = to_bytes(&packed[n.send.start * run..n.send.end * run]);
        }
        let received = comm.all_to_all(out)?;
        let mut ghosts = vec![0.0; self.ghosts * run];
        for n in &self.neighbours {
            from_bytes(&received[n.rank], n.rank, &mut ghosts[n.receive.start * run..n.receive.end * run])?;
        }
        Ok(ghosts)
    }
}

/// Sends the numbers of every ghost, which follow this rank's own in `all`, to the ghost's owner. There
/// `join` combines them with the owner's number, rank by rank. The numbers of ghosts in `all` are unchanged.
/// Collective.
///
/// # Errors
/// A vector of the wrong length; a rank that is gone or failed.
#[doc(hidden)]
pub fn to_owners(
    comm: &dyn Communicator,
    halo: &Halo,
    run: usize,
    all: &mut [f64],
    join: impl Fn(f64, f64) -> f64,
) -> Result<()> {
    let nodes = halo.own + halo.ghosts;
    if all.len() != nodes * run {
        let message = format!(
            "a vector has {} numbers, but {nodes} own and ghost nodes with {run} numbers each need {}",
            all.len(),
            nodes * run
        );
        return Err(Error::invalid(message));
    }
    let mut out = vec![Vec::new(); comm.size()];
    for n in &halo.neighbours {
        let ghosts = &all[(halo.own + n.receive.start) * run..(halo.own + n.receive.end) * run];
        out[n.rank] = to_bytes(ghosts);
    }
    let received = comm.all_to_all(out)?;
    for n in &halo.neighbours {
        let (nodes, bytes) = (&halo.send[n.send.clone()], &received[n.rank]);
        if bytes.len() != 8 * nodes.len() * run {
            return Err(Error::invalid(format!(
                "rank {} sent {} bytes for {} nodes with {run} numbers each; expected {} bytes",
                n.rank,
                bytes.len(),
                nodes.len(),
                8 * nodes.len() * run
            )));
        }
        let places = nodes.iter().flat_map(|&node| node as usize * run..(node as usize + 1) * run);
        for (place, bytes) in places.zip(bytes.as_chunks::<8>().0) {
            all[place] = join(all[place], f64::from_le_bytes(*bytes));
        }
    }
    Ok(())
}

/// The bytes of numbers, as a message.
#[doc(hidden)]
pub fn to_bytes(numbers: &[f64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 * numbers.len());
    numbers.iter().for_each(|v| bytes.extend_from_slice(&v.to_le_bytes()));
    bytes
}

/// The numbers of a message from `rank`, whose count must be the length of `to`.
#[doc(hidden)]
pub fn from_bytes(bytes: &[u8], rank: usize, to: &mut [f64]) -> Result<()> {
    if bytes.len() != 8 * to.len() {
        return Err(Error::invalid(format!(
            "rank {rank} sent {} bytes of ghost values; expected {} bytes",
            bytes.len(),
            8 * to.len()
        )));
    }
    to.iter_mut().zip(bytes.as_chunks::<8>().0).for_each(|(to, bytes)| *to = f64::from_le_bytes(*bytes));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::{Communicator, Team};

    #[test]
    fn owners_hear_of_every_rank_that_uses_a_node() {
        // Four nodes in a ring over three ranks; rank r owns node r, rank 0 node 3 too.
        let columns = [[1, 2, 3], [0, 1, 2], [1, 2, 3]];
        let own: [&[u64]; 3] = [&[0, 3], &[1], &[2]];
        let found = Team::run(3, |comm| {
            let rank = comm.rank();
            let (halo, numbering) = Halo::build(&*comm, own[rank], columns[rank])?;
            // Rank r sends 10 r + g for node g.
            let said = |&g: &u64| [10.0 * rank as f64 + g as f64, -(rank as f64)];
            let mut all: Vec<f64> = numbering.global().iter().flat_map(said).collect();
            to_owners(&*comm, &halo, 2, &mut all, f64::max)?;
            assert!(to_owners(&*comm, &halo, 3, &mut all, f64::max).is_err());
            all.truncate(2 * halo.own);
            Ok(all)
        });
        assert_eq!(found.unwrap(), [vec![10.0, 0.0, 23.0, 0.0], vec![21.0, 0.0], vec![22.0, 0.0]]);
    }
}
