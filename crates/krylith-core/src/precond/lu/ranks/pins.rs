//! Pinned unknowns of a distributed matrix, as [`pins`](super::super::pins) chooses them on one rank.

use super::super::pins::{DEPENDENT, LARGE, sizes};
use crate::comm::wire::{Reader, packed};
use crate::comm::{Communicator, agree, gather};
use crate::operator::Terms;
use crate::{Error, Result};

/// Returns the global number of one unknown for each null vector, ascending. `null` has the own rows of each,
/// and `own` the global numbers of own unknowns. Collective.
///
/// # Errors
/// Vectors of a wrong length, or linearly dependent ones.
pub fn pins(comm: &dyn Communicator, terms: &Terms, null: &[Vec<f64>], own: &[u64]) -> Result<Vec<u64>> {
    if null.is_empty() {
        return Ok(Vec::new());
    }
    let n = own.len();
    let wrong = null.iter().position(|v| v.len() != n || !v.iter().all(|v| v.is_finite()));
    let checked = wrong.map_or(Ok(()), |i| {
        Err(Error::invalid(format!("lu: null vector {i} must have {n} finite numbers on this rank")))
    });
    agree(comm, checked)?;
    let sizes = sizes(terms);
    let mut left: Vec<Vec<f64>> = null.to_vec();
    let all = largest(comm, &left)?;
    for (v, all) in left.iter_mut().zip(all) {
        v.iter_mut().for_each(|v| *v /= all);
    }
    let mut pins = Vec::new();
    while !left.is_empty() {
        let most = largest(comm, &left)?;
        let at = (0..left.len()).max_by(|&i, &j| most[i].total_cmp(&most[j])).unwrap_or(0);
        let most = most[at];
        if !(most > DEPENDENT) {
            return Err(Error::invalid("lu: a null vector is zero or linearly dependent on the others"));
        }
        let pivot = left.swap_remove(at);
        let large = (0..n).filter(|&u| pivot[u].abs() >= LARGE * most);
        let best = large.max_by(|&u, &v| sizes[u].total_cmp(&sizes[v]).then(own[u].cmp(&own[v])));
        // Size, number, and the entries of all vectors at this rank's candidate.
        let mut mine = best.map_or(Vec::new(), |u| vec![sizes[u], own[u] as f64, pivot[u]]);
        mine.extend(best.iter().flat_map(|&u| left.iter().map(move |v| v[u])));
        let received = gather(comm, &packed(&mine))?;
        let mut candidates = Vec::new();
        for (q, bytes) in received.iter().enumerate().filter(|(_, bytes)| !bytes.is_empty()) {
            candidates.push(Reader::new(bytes, q).take::<f64>(3 + left.len())?);
        }
        let best = candidates.iter().max_by(|a, b| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])));
        let Some(best) = best else { break };
        for (v, at) in left.iter_mut().zip(&best[3..]) {
            let share = at / best[2];
            v.iter_mut().zip(&pivot).for_each(|(v, p)| *v -= share * p);
        }
        pins.push(best[1] as u64);
    }
    pins.sort_unstable();
    Ok(pins)
}

/// Returns the largest |entry| of each vector, over all ranks.
fn largest(comm: &dyn Communicator, vectors: &[Vec<f64>]) -> Result<Vec<f64>> {
    let own: Vec<f64> = vectors.iter().map(|v| v.iter().fold(0.0f64, |m, v| m.max(v.abs()))).collect();
    let mut all = own.clone();
    for (q, bytes) in gather(comm, &packed(&own))?.iter().enumerate() {
        let theirs = Reader::new(bytes, q).take::<f64>(own.len())?;
        all.iter_mut().zip(theirs).for_each(|(all, v)| *all = all.max(v));
    }
    Ok(all)
}
