//! Approximate ideal restriction on a level that ranks share.
//!
//! Upwinded flow couples nodes in one direction: a rank whose node j is used by another rank's node i may not
//! know i. So couplings are mirrored first, by entries of zero. Then the neighbourhood of a rank has all
//! nodes that its own nodes use or that use them, as for a symmetric pattern.
//!
//! A rank computes the rows of R of its own coarse points. Sums over ranks need the columns of its own fine
//! nodes instead. So entries of other ranks' nodes are sent to these ranks.

use super::super::host::parallel::{Rows, assemble};
use super::neighbourhood::{Neighbourhood, all_to_all};
use super::runs::Runs;
use crate::Result;
use crate::comm::Communicator;
use crate::comm::wire::{MessageBuilder, Reader};
use crate::halo::Halo;
use crate::matrix::Bsr;
use crate::threads::Pool;
use rayon::prelude::*;
use std::collections::HashMap;

/// Returns the couplings of own rows with an entry of zero for each coupling of another rank's node to an own
/// node that has none in the other direction. Also returns the halo of their columns. Collective.
///
/// # Errors
/// A rank that has ended or failed.
pub fn mirrored(pool: &Pool, comm: &dyn Communicator, halo: &Halo, a: &Bsr) -> Result<(Bsr, Halo)> {
    let (runs, n) = (Runs::new(comm, halo.own)?, halo.own);
    let (own, row) = (runs.own(), |i: usize| a.row_ptr()[i]..a.row_ptr()[i + 1]);
    // Owners learn who uses their nodes, and tell the numbers of ghosts.
    let mut users: Vec<Vec<(u32, u64)>> = vec![Vec::new(); halo.ghosts];
    for i in 0..n {
        for &j in a.col()[row(i)].iter().filter(|&&j| j as usize >= n) {
            users[j as usize - n].push((j, own.start + i as u64));
        }
    }
    let messages = halo.neighbours.iter().map(|near| {
        let nodes = &halo.send[near.send.clone()];
        let uses = users[near.receive.clone()].concat();
        let mut message = MessageBuilder::new(4 * nodes.len() + 12 * uses.len());
        message.put(nodes);
        let place = |&(j, _): &(u32, u64)| j - (n + near.receive.start) as u32;
        message.put(&uses.iter().map(place).collect::<Vec<u32>>());
        message.put(&uses.iter().map(|&(_, i)| i).collect::<Vec<u64>>());
        (near.rank, message.bytes())
    });
    let messages = all_to_all(comm, messages)?;
    let (mut ghosts, mut mirror) = (Vec::new(), vec![Vec::new(); n]);
    for near in &halo.neighbours {
        let bytes = &messages[near.rank];
        let mut from = Reader::new(bytes, near.rank);
        let nodes: Vec<u32> = from.take(near.receive.len())?;
        ghosts.extend(nodes.into_iter().map(|node| runs.begins[near.rank] + u64::from(node)));
        let uses = (bytes.len() - 4 * near.receive.len()) / 12;
        let sent = &halo.send[near.send.clone()];
        let places: Vec<u32> = from.take(uses)?;
        let names: Vec<u64> = from.take(uses)?;
        places.into_iter().zip(names).for_each(|(k, i)| mirror[sent[k as usize] as usize].push(i));
    }
    let all = runs.others(ghosts.par_iter().chain(mirror.par_iter().flatten()).copied());
    let wide = runs.halo(comm, &all)?;
    let places: Vec<u32> = (0..n as u32).chain(ghosts.iter().map(|&name| runs.place(&all, name))).collect();
    let mut rows = Rows::default();
    for (i, more) in mirror.iter().enumerate() {
        let own = a.col()[row(i)].iter().map(|&j| places[j as usize]).zip(a.values()[row(i)].iter().copied());
        let mut entries: Vec<(u32, f64)> = own.collect();
        let known = entries.len();
        for place in more.iter().map(|&name| runs.place(&all, name)) {
            if entries[..known].iter().all(|&(j, _)| j != place) {
                entries.push((place, 0.0));
            }
        }
        entries.sort_unstable_by_key(|&(j, _)| j);
        rows.push(&entries);
    }
    Ok((assemble(pool, 1, wide.own + wide.ghosts, vec![rows]), wide))
}

/// Returns the columns of R of own nodes, as rows. `r` has the rows of own coarse points; its columns are own
/// and far nodes. The new rows have `own` own coarse points as columns, followed by `ghosts` of other ranks,
/// to which those that are missing are added. Collective.
///
/// # Errors
/// A rank that has ended or failed.
pub fn columns_of_restriction(
    pool: &Pool,
    near: &Neighbourhood,
    r: &Bsr,
    own: usize,
    ghosts: &mut Vec<(u32, u32)>,
) -> Result<Bsr> {
    let comm = near.comm();
    let mut columns: Vec<Vec<(u32, f64)>> = vec![Vec::new(); near.own];
    let mut sent: Vec<(Vec<u32>, Vec<u32>, Vec<f64>)> = vec![Default::default(); comm.size()];
    for c in 0..r.block_rows() {
        for p in r.row_ptr()[c]..r.row_ptr()[c + 1] {
            let (j, z) = (r.col()[p] as usize, r.values()[p]);
            match j.checked_sub(near.own) {
                None => columns[j].push((c as u32, z)),
                Some(far) => {
                    let (owner, node) = near.far[far];
                    let (nodes, coarse, weights) = &mut sent[owner as usize];
                    nodes.push(node);
                    coarse.push(c as u32);
                    weights.push(z);
                }
            }
        }
    }
    let messages = sent.iter().enumerate().map(|(rank, (nodes, coarse, weights))| {
        let mut message = MessageBuilder::new(16 * nodes.len());
        message.put(nodes);
        message.put(coarse);
        message.put(weights);
        (rank, message.bytes())
    });
    let messages = all_to_all(comm, messages)?;
    let mut known: HashMap<(u32, u32), u32> = HashMap::new();
    ghosts.iter().enumerate().for_each(|(k, &ghost)| _ = known.insert(ghost, (own + k) as u32));
    for (rank, bytes) in messages.iter().enumerate() {
        let (mut from, entries) = (Reader::new(bytes, rank), bytes.len() / 16);
        let (nodes, coarse) = (from.take::<u32>(entries)?, from.take::<u32>(entries)?);
        let weights = from.take::<f64>(entries)?;
        for ((node, c), z) in nodes.into_iter().zip(coarse).zip(weights) {
            let place = *known.entry((rank as u32, c)).or_insert_with(|| {
                ghosts.push((rank as u32, c));
                (own + ghosts.len() - 1) as u32
            });
            columns[node as usize].push((place, z));
        }
    }
    let mut rows = Rows::default();
    for column in &mut columns {
        column.sort_unstable_by_key(|&(c, _)| c);
        rows.push(column);
    }
    Ok(assemble(pool, 1, own + ghosts.len(), vec![rows]))
}
