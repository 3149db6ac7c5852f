//! Block rows cut into contiguous slabs. As in the OKP paper and PETSc's distributed matrices, each slab's
//! matrices have a main-diagonal part (own columns) and an off-diagonal part (ghosts).

use krylith_core::Result;
use krylith_core::matrix::{Bsr, KroneckerSum};
use krylith_core::operator::Terms;
use krylith_core::partition::{Part, Partition, split};
use std::borrow::Cow;
use std::sync::Arc;

/// Returns every rank's rows of A⊗M + τB⊗L: slabs as equal as possible.
///
/// # Errors
/// Returns an error for more ranks than block rows.
pub(crate) fn cut(k: &KroneckerSum, ranks: usize) -> Result<Arc<Vec<Part>>> {
    let n = k.m.block_rows();
    if ranks > n {
        return Err(krylith_core::Error::invalid(format!("{ranks} ranks for {n} block rows; use fewer")));
    }
    let bounds: Vec<usize> = (0..=ranks).map(|p| n * p / ranks).collect();
    let mut owner = vec![0; n];
    for p in 0..ranks {
        owner[bounds[p]..bounds[p + 1]].fill(p as u32);
    }
    Ok(Arc::new(split(&Terms::kronecker(k), &Partition::new(owner, ranks)?)?))
}

/// Splits a matrix into its columns below the number of rows, and those from there on, renumbered from 0;
/// both parts have all rows.
///
/// # Errors
/// Returns the errors of [`Bsr::new`]; impossible for a valid matrix.
pub(crate) fn halves(a: &Bsr) -> Result<[Bsr; 2]> {
    let (b, bb, n) = (a.block(), a.block() * a.block(), a.block_rows());
    let (mut pointers, mut columns) = ([vec![0], vec![0]], [Vec::new(), Vec::new()]);
    let mut values = [Vec::with_capacity(a.values().len()), Vec::new()];
    for i in 0..n {
        for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
            let j = a.col()[p] as usize;
            let half = usize::from(j >= n);
            columns[half].push((j - half * n) as u32);
            values[half].extend_from_slice(&a.values()[p * bb..(p + 1) * bb]);
        }
        for half in 0..2 {
            pointers[half].push(columns[half].len());
        }
    }
    let ([p0, p1], [c0, c1], [v0, v1]) = (pointers, columns, values);
    Ok([Bsr::new(b, n, n, p0, c0, v0)?, Bsr::new(b, n, a.block_columns() - n, p1, c1, v1)?])
}

/// Returns the main-diagonal and the off-diagonal parts of M and L. Nothing is copied if there are no ghosts.
///
/// # Errors
/// Returns the errors of [`halves`].
pub(crate) fn main_and_off(part: &Part) -> Result<[[Cow<'_, Bsr>; 2]; 2]> {
    let cut = |t: usize| -> Result<[Cow<'_, Bsr>; 2]> {
        let a: &Bsr = &part.terms.terms()[t].1;
        if part.halo.ghosts > 0 {
            return Ok(halves(a)?.map(Cow::Owned));
        }
        let (b, n) = (a.block(), a.block_rows());
        let nothing = Bsr::new(b, n, 0, vec![0; n + 1], Vec::new(), Vec::new())?;
        Ok([Cow::Borrowed(a), Cow::Owned(nothing)])
    };
    let ([m0, m1], [l0, l1]) = (cut(0)?, cut(1)?);
    Ok([[m0, l0], [m1, l1]])
}

/// Nodes that are contiguous here and at their owner: a host copies them to fill ghosts from the owner's
/// vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub rank: usize,
    /// First of the owner's nodes.
    pub from: usize,
    /// First of the local ghosts.
    pub to: usize,
    pub nodes: usize,
}

pub(crate) fn runs(parts: &[Part], me: usize) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for n in &parts[me].halo.neighbours {
        let theirs = &parts[n.rank].halo;
        let back = theirs.neighbours.iter().find(|m| m.rank == me).map_or(0..0, |m| m.send.clone());
        for (to, &from) in n.receive.clone().zip(&theirs.send[back]) {
            let from = from as usize;
            match runs.last_mut() {
                Some(r) if r.rank == n.rank && r.from + r.nodes == from => r.nodes += 1,
                _ => runs.push(Run { rank: n.rank, from, to, nodes: 1 }),
            }
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::super::mapping::{index_array, receive_map, send_gather, starts};
    use super::*;
    use crate::systems::{self, Random};

    /// Computes y += A X for one stage, by the definition.
    fn add(a: &Bsr, x: &[f64], y: &mut [f64]) {
        let b = a.block();
        for i in 0..a.block_rows() {
            for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                let j = a.col()[p] as usize;
                for r in 0..b {
                    for c in 0..b {
                        y[i * b + r] += a.block_values(p)[r * b + c] * x[j * b + c];
                    }
                }
            }
        }
    }

    #[test]
    fn the_parts_of_all_ranks_make_the_whole_product() {
        for (nodes, b, ranks) in [([4, 3, 7], 2, 3), ([2, 2, 2], 3, 8), ([3, 3, 3], 1, 1), ([5, 4, 3], 4, 7)]
        {
            let k = systems::random(nodes, b, 1, 5).unwrap();
            let n = k.m.block_rows();
            let x = Random(8).numbers(n * b);
            let parts = cut(&k, ranks).unwrap();
            for (t, whole) in [&k.m, &k.l].into_iter().enumerate() {
                let mut wanted = vec![0.0; n * b];
                add(whole, &x, &mut wanted);
                for (rank, part) in parts.iter().enumerate() {
                    let (first, own) = (part.rows[0] as usize, part.halo.own);
                    assert_eq!((first, own), (n * rank / ranks, n * (rank + 1) / ranks - n * rank / ranks));
                    // Fills the ghosts as the host's scatter does, from their owners' data.
                    let mut ghosts = vec![f64::NAN; part.halo.ghosts * b];
                    for r in runs(&parts, rank) {
                        let from = (parts[r.rank].rows[0] as usize + r.from) * b;
                        ghosts[r.to * b..][..r.nodes * b].copy_from_slice(&x[from..][..r.nodes * b]);
                    }
                    let [main, off] = main_and_off(part).unwrap();
                    let mut y = vec![0.0; own * b];
                    add(&main[t], &x[first * b..(first + own) * b], &mut y);
                    add(&off[t], &ghosts, &mut y);
                    for (got, want) in y.iter().zip(&wanted[first * b..]) {
                        assert!((got - want).abs() < 1e-13, "ranks={ranks} rank={rank}");
                    }
                }
            }
        }
    }

    #[test]
    fn messages_by_the_published_maps_bring_the_ghosts_of_every_stage() {
        let (b, s) = (2, 3);
        let k = systems::random([4, 3, 7], b, s, 5).unwrap();
        let n = k.m.block_rows();
        let x = Random(8).numbers(n * b * s);
        for ranks in [1, 3, 5] {
            let parts = cut(&k, ranks).unwrap();
            // The data that each rank sends, neighbour by neighbour, from its share of x stage by stage.
            let sent = |part: &Part| -> Vec<f64> {
                let (halo, first) = (&part.halo, part.rows[0] as usize);
                let q = halo.own * b;
                let own: Vec<f64> = (0..s).flat_map(|t| x[(t * n + first) * b..][..q].to_vec()).collect();
                let places = send_gather(&index_array(halo, b), &starts(halo).0, b, s, q);
                places.iter().map(|&i| own[i as usize]).collect()
            };
            let messages: Vec<Vec<f64>> = parts.iter().map(sent).collect();
            for (me, part) in parts.iter().enumerate() {
                let mut raw = Vec::new();
                for neighbour in &part.halo.neighbours {
                    let back = parts[neighbour.rank].halo.neighbours.iter().find(|m| m.rank == me).unwrap();
                    raw.extend_from_slice(
                        &messages[neighbour.rank][back.send.start * b * s..back.send.end * b * s],
                    );
                }
                let ghosts = receive_map(&starts(&part.halo).1, b, s);
                let ghosts: Vec<f64> = ghosts.iter().map(|&i| raw[i as usize]).collect();
                for (stage, ghosts) in ghosts.chunks(part.halo.ghosts.max(1) * b).enumerate() {
                    for r in runs(&parts, me) {
                        let from = (stage * n + parts[r.rank].rows[0] as usize + r.from) * b;
                        assert_eq!(
                            ghosts[r.to * b..][..r.nodes * b],
                            x[from..][..r.nodes * b],
                            "{ranks} ranks"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn slabs_have_long_runs_and_more_ranks_than_rows_are_refused() {
        let k = systems::random([3, 4, 6], 2, 1, 5).unwrap();
        let parts = cut(&k, 3).unwrap();
        // A layer of 12 nodes without the corner that the stencil does not reach.
        assert!(runs(&parts, 1).iter().all(|r| r.nodes >= 3), "{:?}", runs(&parts, 1));
        assert!(cut(&k, 73).is_err());
    }
}
