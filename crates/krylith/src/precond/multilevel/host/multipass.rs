//! Interpolation where aggressive coarsening leaves nodes without a coarse node among their neighbours and theirs.
//!
//! Multipass (Stüben 1999): nodes with strong coarse neighbours interpolate from them; then nodes with strong neighbours that do so, through
//! the weights of these; and so on. One step of Jacobi's method over all the nodes that do not stay then makes these weights smooth, at the cost of a
//! product: it takes CG on a Laplacian from 18 iterations to 12.

use super::FINE;
use super::interpolate::{Search, columns};
use super::parallel::{Rows, Scratch, assemble, bounds, join, map};
use super::split::{pieces_of, sign};
use crate::device::cpu::Pool;
use crate::matrix::Bsr;

/// Multipass interpolation and a step of Jacobi's method, both truncated to the `most` largest weights of a row (0: all), which keep the row's sum.
///
/// Node i takes w_ik = −α/ã Σ_j a_ij w_jk over its strong neighbours j that earlier passes reached; α lets these stand for all couplings of the
/// opposite sign, ã is a_ii with those of its own sign added. Jacobi's step takes all strong neighbours, α = 1, and adds the others to ã. A node that
/// no pass reaches has an empty row. `names` of coarse nodes order equal weights.
pub fn multipass(
    pool: &Pool,
    a: &Bsr,
    strong: &[u8],
    coarse: &[u32],
    most: usize,
    names: Option<&[u64]>,
) -> Bsr {
    let (n, pieces) = (a.block_rows(), pieces_of(pool, a));
    let scratch = Scratch::new();
    let mut passes = Passes::new(coarse);
    let fine = |&i: &u32| coarse[i as usize] == FINE;
    let mut left: Vec<Vec<u32>> = map(pool, pieces.len() - 1, |piece| {
        (pieces[piece] as u32..pieces[piece + 1] as u32).filter(fine).collect()
    });
    loop {
        // Nodes with a strong neighbour in the last pass.
        let cut = map(pool, left.len(), |piece| passes.reaches(a, strong, &left[piece]));
        let (nodes, rest): (Vec<_>, Vec<_>) = cut.into_iter().unzip();
        let nodes = nodes.concat();
        if nodes.is_empty() {
            break;
        }
        let cut = bounds(nodes.len(), pool.pieces(512 * nodes.len()));
        let rows = map(pool, cut.len() - 1, |piece| {
            let mut out = Rows::default();
            let nodes = &nodes[cut[piece]..cut[piece + 1]];
            scratch.with(
                || Search::new(n, names),
                |search| {
                    for &i in nodes {
                        out.push(search.combine(a, strong, &passes, i as usize, false, most));
                    }
                },
            );
            out
        });
        passes.push(&nodes, join(pool, 1, &rows));
        left = rest;
    }
    let rows = map(pool, pieces.len() - 1, |piece| {
        let mut out = Rows::default();
        scratch.with(
            || Search::new(n, names),
            |search| {
                for i in pieces[piece]..pieces[piece + 1] {
                    if coarse[i] == FINE && passes.of[i] != NEVER {
                        let row = search.combine(a, strong, &passes, i, true, most);
                        if !row.is_empty() {
                            out.push(row);
                            continue;
                        }
                    }
                    let (col, values) = passes.row(i);
                    out.col.extend_from_slice(col);
                    out.values.extend_from_slice(values);
                    out.end_row();
                }
            },
        );
        out
    });
    assemble(pool, 1, columns(coarse), rows)
}

impl Search<'_> {
    /// What node `i` makes of its strong neighbours' rows; `lump`: couplings to others are added to the diagonal, else those of the opposite sign scale the row.
    fn combine(
        &mut self,
        a: &Bsr,
        strong: &[u8],
        passes: &Passes,
        i: usize,
        lump: bool,
        most: usize,
    ) -> &[(u32, f64)] {
        self.begin();
        let g = sign(a, i);
        let (mut diagonal, mut all, mut those) = (0.0, 0.0, 0.0);
        for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
            let (j, v) = (a.col()[p] as usize, a.values()[p]);
            let (col, values) = if strong[p] != 0 { passes.row(j) } else { (&[][..], &[][..]) };
            if !col.is_empty() {
                all += v;
                those += v;
                self.add_weights(col, values.iter().map(|w| v * w));
            } else if !lump && g * v < 0.0 && j != i {
                all += v;
            } else {
                diagonal += v;
            }
        }
        self.finish(-(all / those), diagonal, 0, most)
    }
}

/// A node that no pass has reached.
const NEVER: u32 = u32::MAX;

/// Rows of multipass interpolation, pass by pass.
struct Passes<'a> {
    coarse: &'a [u32],
    /// Which pass a node belongs to: 0 where it stays.
    of: Vec<u32>,
    /// Its place in that pass.
    place: Vec<u32>,
    rows: Vec<Rows>,
}

impl<'a> Passes<'a> {
    fn new(coarse: &'a [u32]) -> Self {
        let of = coarse.iter().map(|&number| if number == FINE { NEVER } else { 0 }).collect();
        Self { coarse, of, place: vec![0; coarse.len()], rows: Vec::new() }
    }

    /// Those of `nodes` that have a strong neighbour in the last pass, and the others.
    fn reaches(&self, a: &Bsr, strong: &[u8], nodes: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let last = self.rows.len() as u32;
        nodes.iter().partition(|&&i| {
            let mut row = a.row_ptr()[i as usize]..a.row_ptr()[i as usize + 1];
            row.any(|p| strong[p] != 0 && self.of[a.col()[p] as usize] == last)
        })
    }

    fn push(&mut self, nodes: &[u32], rows: Rows) {
        self.rows.push(rows);
        for (&i, place) in nodes.iter().zip(0..) {
            self.of[i as usize] = self.rows.len() as u32;
            self.place[i as usize] = place;
        }
    }

    /// Columns and weights of node `i`: of a node that stays itself, of one that was not reached nothing.
    fn row(&self, i: usize) -> (&[u32], &[f64]) {
        match self.of[i] {
            NEVER => (&[], &[]),
            0 => (std::slice::from_ref(&self.coarse[i]), &[1.0]),
            pass => {
                let (rows, at) = (&self.rows[pass as usize - 1], self.place[i] as usize);
                let entries = rows.row_ptr[at]..rows.row_ptr[at + 1];
                (&rows.col[entries.clone()], &rows.values[entries])
            }
        }
    }
}
