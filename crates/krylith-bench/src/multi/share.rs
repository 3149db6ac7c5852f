//! Block rows cut into contiguous slabs, each in a main-diagonal part (own columns) and an off-diagonal part (ghosts),
//! as the OKP paper and PETSc's distributed matrices have them.

use krylith::Result;
use krylith::matrix::{Bsr, KroneckerSum};
use krylith::partition::{Halo, Neighbour};
use std::ops::Range;

/// One rank's rows of A⊗M + τB⊗L.
pub(crate) struct Share {
    /// Its block rows, in global numbers.
    pub rows: Range<usize>,
    /// What it exchanges.
    pub halo: Halo,
    /// Global numbers of its ghosts, ascending.
    pub ghosts: Vec<u32>,
    /// M and L with its own columns, from 0.
    pub main: [Bsr; 2],
    /// M and L with ghost columns, from 0; every own row is there, most are empty.
    pub off: [Bsr; 2],
}

/// The slabs of `n` block rows: as even as can be.
pub(crate) fn bounds(n: usize, parts: usize) -> Vec<usize> {
    (0..=parts).map(|p| n * p / parts).collect()
}

/// All shares, each made by a thread of its own.
///
/// # Errors
/// What [`Bsr::new`] says of a part; impossible for a valid sum.
pub(crate) fn cut(k: &KroneckerSum, parts: usize) -> Result<Vec<Share>> {
    let bounds = bounds(k.m.block_rows(), parts);
    let all_ghosts = in_threads(parts, |p| Ok(ghosts(k, bounds[p]..bounds[p + 1])))?;
    in_threads(parts, |p| share(k, &bounds, &all_ghosts, p))
}

/// `f` of every number below `count`, each in a thread.
fn in_threads<T: Send>(count: usize, f: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    std::thread::scope(|scope| {
        let f = &f;
        let threads: Vec<_> = (0..count).map(|p| scope.spawn(move || f(p))).collect();
        let joined = threads.into_iter().map(|t| t.join().unwrap_or_else(|e| std::panic::resume_unwind(e)));
        joined.collect()
    })
}

/// Columns of the rows `own` that lie outside them, ascending.
fn ghosts(k: &KroneckerSum, own: Range<usize>) -> Vec<u32> {
    let mut seen = vec![false; k.m.block_columns()];
    for a in [&k.m, &k.l] {
        for &j in &a.col()[a.row_ptr()[own.start]..a.row_ptr()[own.end]] {
            seen[j as usize] = true;
        }
    }
    seen[own].fill(false);
    (0..seen.len()).filter(|&j| seen[j]).map(|j| j as u32).collect()
}

/// The part of ascending `numbers` in `range`, as positions.
fn within(numbers: &[u32], range: &Range<usize>) -> Range<usize> {
    let at = |bound: usize| numbers.partition_point(|&g| (g as usize) < bound);
    at(range.start)..at(range.end)
}

fn share(k: &KroneckerSum, bounds: &[usize], all_ghosts: &[Vec<u32>], rank: usize) -> Result<Share> {
    let rows = bounds[rank]..bounds[rank + 1];
    let ghosts = all_ghosts[rank].clone();
    let (mut neighbours, mut send) = (Vec::new(), Vec::new());
    for (other, theirs) in all_ghosts.iter().enumerate() {
        let wanted = &theirs[within(theirs, &rows)];
        let receive = within(&ghosts, &(bounds[other]..bounds[other + 1]));
        if other == rank || (wanted.is_empty() && receive.is_empty()) {
            continue;
        }
        let begin = send.len();
        send.extend(wanted.iter().map(|&g| g - rows.start as u32));
        neighbours.push(Neighbour { rank: other, send: begin..send.len(), receive });
    }
    let halo = Halo { own: rows.len(), ghosts: ghosts.len(), neighbours, send };
    let [m, l] = [&k.m, &k.l].map(|a| parts(a, &rows, &ghosts));
    let ([m_main, m_off], [l_main, l_off]) = (m?, l?);
    Ok(Share { rows, halo, ghosts, main: [m_main, l_main], off: [m_off, l_off] })
}

/// Main-diagonal and off-diagonal part of some rows.
fn parts(a: &Bsr, rows: &Range<usize>, ghosts: &[u32]) -> Result<[Bsr; 2]> {
    let (b, bb, n) = (a.block(), a.block() * a.block(), rows.len());
    let all = a.row_ptr()[rows.start]..a.row_ptr()[rows.end];
    let (mut pointers, mut columns) = ([vec![0], vec![0]], [Vec::new(), Vec::new()]);
    let mut values = [Vec::with_capacity(all.len() * bb), Vec::new()];
    for i in rows.clone() {
        for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
            let j = a.col()[p] as usize;
            let (part, local) = match rows.contains(&j) {
                true => (0, j - rows.start),
                false => (1, ghosts.partition_point(|&g| (g as usize) < j)),
            };
            columns[part].push(local as u32);
            values[part].extend_from_slice(&a.values()[p * bb..(p + 1) * bb]);
        }
        for part in 0..2 {
            pointers[part].push(columns[part].len());
        }
    }
    let ([p0, p1], [c0, c1], [v0, v1]) = (pointers, columns, values);
    Ok([Bsr::new(b, n, n, p0, c0, v0)?, Bsr::new(b, n, ghosts.len(), p1, c1, v1)?])
}

/// Runs of nodes that are neighbours here and there: what a host copies to fill ghosts from their owner's vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    /// The owner.
    pub rank: usize,
    /// First of the owner's nodes.
    pub from: usize,
    /// First of our ghosts.
    pub to: usize,
    /// How many.
    pub nodes: usize,
}

/// The runs of a share, where rank p owns the nodes from `bounds[p]` on.
pub(crate) fn runs(share: &Share, bounds: &[usize]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for n in &share.halo.neighbours {
        for to in n.receive.clone() {
            let from = share.ghosts[to] as usize - bounds[n.rank];
            match runs.last_mut() {
                Some(r) if r.rank == n.rank && r.from + r.nodes == from => r.nodes += 1,
                _ => runs.push(Run { rank: n.rank, from, to, nodes: 1 }),
            }
        }
    }
    runs
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::systems::{self, Random};

    /// y += A X of one stage, by the definition.
    pub fn add(a: &Bsr, x: &[f64], y: &mut [f64]) {
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
        for (nodes, b, parts) in [([4, 3, 7], 2, 3), ([2, 2, 2], 3, 8), ([3, 3, 3], 1, 1), ([5, 4, 3], 4, 7)] {
            let k = systems::random(nodes, b, 1, 5).unwrap();
            let n = k.m.block_rows();
            let x = Random(8).numbers(n * b);
            let shares = cut(&k, parts).unwrap();
            for (t, whole) in [&k.m, &k.l].into_iter().enumerate() {
                let mut wanted = vec![0.0; n * b];
                add(whole, &x, &mut wanted);
                for (rank, s) in shares.iter().enumerate() {
                    let ghosts: Vec<f64> =
                        s.ghosts.iter().flat_map(|&g| x[g as usize * b..][..b].to_vec()).collect();
                    let mut y = vec![0.0; s.rows.len() * b];
                    add(&s.main[t], &x[s.rows.start * b..s.rows.end * b], &mut y);
                    add(&s.off[t], &ghosts, &mut y);
                    for (got, want) in y.iter().zip(&wanted[s.rows.start * b..]) {
                        assert!((got - want).abs() < 1e-13, "parts={parts} rank={rank}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_one_sends_is_what_the_other_receives() {
        let k = systems::random([3, 4, 6], 2, 1, 5).unwrap();
        for parts in [1, 2, 5, 12] {
            let shares = cut(&k, parts).unwrap();
            let bounds = bounds(72, parts);
            for (p, s) in shares.iter().enumerate() {
                let sent: usize = s.halo.neighbours.iter().map(|n| n.send.len()).sum();
                assert_eq!(sent, s.halo.send.len());
                for n in &s.halo.neighbours {
                    let other = &shares[n.rank];
                    let back = other.halo.neighbours.iter().find(|m| m.rank == p).expect("both list each other");
                    let global = |i: &u32| i + s.rows.start as u32;
                    let sends: Vec<u32> = s.halo.send[n.send.clone()].iter().map(global).collect();
                    assert_eq!(sends, other.ghosts[back.receive.clone()], "parts={parts} {p}→{}", n.rank);
                }
                let mut filled = vec![u32::MAX; s.ghosts.len()];
                for r in runs(s, &bounds) {
                    for i in 0..r.nodes {
                        filled[r.to + i] = (bounds[r.rank] + r.from + i) as u32;
                    }
                }
                assert_eq!(filled, s.ghosts);
            }
        }
    }
}
