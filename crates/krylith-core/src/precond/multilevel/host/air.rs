//! Approximate ideal restriction for upwinded flow, with R ≠ Pᵀ (Manteuffel, Ruge and Southworth 2018;
//! Manteuffel, Münzenmaier, Ruge and Southworth 2019).
//!
//! With F-points f and C-points c, the ideal R = [−A_cf A_ff⁻¹, I] eliminates the F-points: R A has no
//! couplings to them. The coarse system is then exact for errors at C-points, and F-relaxation does the rest.
//! Here each row of R satisfies this equation on a neighbourhood of its C-point alone. Upwinded flow carries
//! errors in one direction, so that few neighbours suffice.
//!
//! P can be poor. Each F-point takes the value of one C-point.

use super::FINE;
use super::interpolate::columns;
use super::parallel::{Rows, Scratch, assemble, each, fill, map};
use super::split::{pieces_of, runs};
use super::sums::Sums;
use crate::matrix::{Arrays, Bsr};
use crate::threads::Pool;

/// Computes R: for each coarse point i the weights z of the strong fine points N within `distance` of i, and
/// 1 in its own column. z A_NN = −A_iN, so that row i of R A vanishes in the columns of N (equation 9 of
/// Manteuffel, Münzenmaier, Ruge and Southworth 2019).
///
/// Rows are those of the coarse points among the first `own` nodes.
pub fn restriction(pool: &Pool, a: &Bsr, strong: &[u8], coarse: &[u32], distance: usize, own: usize) -> Bsr {
    let (n, pieces, arrays) = (a.block_rows(), pieces_of(pool, a), Arrays::of(a));
    let mut flags = strong.to_vec();
    let entries: Vec<usize> = pieces.iter().map(|&i| arrays.row_ptr[i]).collect();
    fill(pool, runs(&entries), &mut flags, |piece, flags| {
        let col = &arrays.col[entries[piece]..];
        flags.iter_mut().zip(col).for_each(|(flag, &j)| *flag &= u8::from(coarse[j as usize] == FINE));
    });
    let scratch = Scratch::new();
    let parts = map(pool, pieces.len() - 1, |piece| {
        scratch.with(
            || Local::new(n),
            |local| {
                let mut out = Rows::default();
                let nodes = pieces[piece]..pieces[piece + 1].min(own);
                for i in nodes.filter(|&i| coarse[i] != FINE) {
                    local.weights(arrays, &flags, i, distance);
                    out.push(&local.row);
                }
                out
            },
        )
    });
    assemble(pool, 1, n, parts)
}

/// Computes P: a fine point has weight 1 at the coarse point among its neighbours to which its coupling is
/// largest. Of equal ones it takes that with the lower `name`. A row without coarse neighbours is empty.
pub fn one_point(pool: &Pool, a: &Bsr, coarse: &[u32], name: impl Fn(usize) -> u64 + Sync) -> Bsr {
    let (pieces, arrays) = (pieces_of(pool, a), Arrays::of(a));
    let parts = map(pool, pieces.len() - 1, |piece| {
        let mut out = Rows::default();
        for i in pieces[piece]..pieces[piece + 1] {
            if coarse[i] != FINE {
                out.push(&[(coarse[i], 1.0)]);
                continue;
            }
            let (col, values) = (&arrays.col[arrays.row(i)], &arrays.values[arrays.row(i)]);
            let stays = col.iter().zip(values).filter(|&(&j, &v)| coarse[j as usize] != FINE && v != 0.0);
            let first = stays.max_by(|(i, v), (j, w)| {
                v.abs().total_cmp(&w.abs()).then_with(|| name(**j as usize).cmp(&name(**i as usize)))
            });
            first.into_iter().for_each(|(&j, _)| out.push_entry(coarse[j as usize], 1.0));
            out.end_row();
        }
        out
    });
    assemble(pool, 1, columns(coarse), parts)
}

/// Returns the matrix without couplings that are smaller than a share `least` of the largest in their row.
/// They are added to the diagonal entry, which must be stored, so that row sums stay.
///
/// Couplings of coarse operators spread over many nodes, and most of them are small. They would make R and
/// the next coarse operators dense.
pub fn filtered(pool: &Pool, a: &Bsr, least: f64) -> Bsr {
    let (pieces, arrays) = (pieces_of(pool, a), Arrays::of(a));
    let parts = map(pool, pieces.len() - 1, |piece| {
        let mut out = Rows::default();
        for i in pieces[piece]..pieces[piece + 1] {
            let (col, values) = (&arrays.col[arrays.row(i)], &arrays.values[arrays.row(i)]);
            let others = col.iter().zip(values).filter(|&(&j, _)| j as usize != i);
            let limit = least * others.fold(0.0f64, |most, (_, v)| most.max(v.abs()));
            let (mut lost, mut diagonal) = (0.0, None);
            for (&j, &v) in col.iter().zip(values) {
                if j as usize == i {
                    diagonal = Some(out.values.len());
                } else if v.abs() < limit {
                    lost += v;
                    continue;
                }
                out.push_entry(j, v);
            }
            diagonal.into_iter().for_each(|at| out.values[at] += lost);
            out.end_row();
        }
        out
    });
    assemble(pool, 1, a.block_columns(), parts)
}

/// Marks coarse points.
pub fn marks(pool: &Pool, coarse: &[u32]) -> Vec<bool> {
    each(pool, coarse.len(), 5 * coarse.len(), |i| coarse[i] != FINE)
}

/// Reusable memory of a thread: the local system of a coarse point.
struct Local {
    neighbours: Sums,
    /// A_NNᵀ, row-major, followed in each row by a number of the right-hand side.
    system: Vec<f64>,
    /// The weights.
    row: Vec<(u32, f64)>,
}

impl Local {
    fn new(n: usize) -> Self {
        Self { neighbours: Sums::new(n), system: Vec::new(), row: Vec::new() }
    }

    /// Computes row `i` of R. `flags` is 1 for entries of strong fine points.
    fn weights(&mut self, a: Arrays, flags: &[u8], i: usize, distance: usize) {
        let Self { neighbours, system, row } = self;
        neighbours.begin();
        neighbours.name(&a.col[a.row(i)], &flags[a.row(i)], 1);
        let mut before = 0;
        for _ in 1..distance {
            let end = neighbours.len;
            for k in before..end {
                let at = a.row(neighbours.nodes[k] as usize);
                neighbours.name(&a.col[at.clone()], &flags[at], 1);
            }
            before = end;
        }
        let (m, wide) = (neighbours.len, neighbours.len + 1);
        system.clear();
        system.resize(m * wide, 0.0);
        for p in 0..m {
            let at = a.row(neighbours.nodes[p] as usize);
            for (&j, &v) in a.col[at.clone()].iter().zip(&a.values[at]) {
                let q = neighbours.place(j);
                if q < m {
                    system[q * wide + p] = v;
                }
            }
        }
        for (&j, &v) in a.col[a.row(i)].iter().zip(&a.values[a.row(i)]) {
            let q = neighbours.place(j);
            if q < m {
                system[q * wide + m] = -v;
            }
        }
        solve(system, m);
        row.clear();
        row.push((i as u32, 1.0));
        let weights = system.iter().skip(m).step_by(wide);
        row.extend(neighbours.nodes[..m].iter().copied().zip(weights.copied()).filter(|&(_, z)| z != 0.0));
        if row.iter().any(|&(_, z)| !z.is_finite()) {
            row.truncate(1);
        }
        row.sort_unstable_by_key(|&(j, _)| j);
    }
}

/// Solves a dense system of `m` unknowns in place by elimination with row exchanges. Each row of `system`
/// ends with its right-hand side, which the solution replaces. Unknowns whose pivot vanishes are 0.
fn solve(system: &mut [f64], m: usize) {
    let wide = m + 1;
    for k in 0..m {
        let size = |i: usize| system[i * wide + k].abs();
        let pivot = (k + 1..m).fold(k, |best, i| if size(i) > size(best) { i } else { best });
        if size(pivot) == 0.0 {
            continue;
        }
        if pivot != k {
            (k..wide).for_each(|j| system.swap(k * wide + j, pivot * wide + j));
        }
        let (above, below) = system.split_at_mut((k + 1) * wide);
        let top = &above[k * wide..];
        for row in below.chunks_exact_mut(wide) {
            if row[k] != 0.0 {
                let factor = row[k] / top[k];
                row[k + 1..].iter_mut().zip(&top[k + 1..]).for_each(|(v, top)| *v -= factor * top);
            }
        }
    }
    for k in (0..m).rev() {
        let (above, below) = system.split_at_mut((k + 1) * wide);
        let row = &mut above[k * wide..];
        let known = row[k + 1..m].iter().zip(below.iter().skip(m).step_by(wide));
        let rest = known.fold(row[m], |rest, (v, x)| rest - v * x);
        row[m] = if row[k] == 0.0 { 0.0 } else { rest / row[k] };
    }
}
