//! Ghost values on the host, once: for residuals and checks outside of a solve, whose products have their own exchange.

use super::Halo;
use crate::comm::Communicator;
use crate::{Error, Result};

/// This rank's numbers with those of its ghosts behind them, `run` numbers a node. Collective.
///
/// # Errors
/// A vector of the wrong length; a rank that is gone or failed.
pub fn with_ghosts(comm: &dyn Communicator, halo: &Halo, run: usize, own: &[f64]) -> Result<Vec<f64>> {
    if own.len() != halo.own * run {
        return Err(Error::invalid(format!(
            "{} numbers for {} nodes of {run}; {} were expected",
            own.len(),
            halo.own,
            halo.own * run
        )));
    }
    let mut out = vec![Vec::new(); comm.size()];
    for n in &halo.neighbours {
        out[n.rank] = halo.send[n.send.clone()]
            .iter()
            .flat_map(|&node| &own[node as usize * run..][..run])
            .flat_map(|v| v.to_le_bytes())
            .collect();
    }
    let received = comm.all_to_all(out)?;
    let mut all = own.to_vec();
    all.resize((halo.own + halo.ghosts) * run, 0.0);
    for n in &halo.neighbours {
        let ghosts = &mut all[(halo.own + n.receive.start) * run..(halo.own + n.receive.end) * run];
        let bytes = &received[n.rank];
        if bytes.len() != 8 * ghosts.len() {
            return Err(Error::invalid(format!(
                "rank {} sent {} bytes of ghosts; {} were expected",
                n.rank,
                bytes.len(),
                8 * ghosts.len()
            )));
        }
        for (ghost, bytes) in ghosts.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *ghost = f64::from_le_bytes(*bytes);
        }
    }
    Ok(all)
}
