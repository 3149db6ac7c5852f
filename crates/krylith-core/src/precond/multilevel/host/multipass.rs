//! Multipass interpolation, for nodes that aggressive coarsening leaves without a coarse point among their
//! neighbours and the neighbours of those.
//!
//! Multipass (Stüben 1999): nodes with strong coarse neighbours interpolate from them. Then nodes with strong
//! neighbours that do so interpolate through the weights of these, and so on. One step of Jacobi's method
//! over all fine points then smooths these weights, at the cost of a product. It takes CG on a Laplacian from
//! 18 iterations to 12.

use super::FINE;
use super::interpolate::{Search, columns};
use super::parallel::{Rows, Scratch, assemble, fill, map};
use super::split::{pieces_of, runs};
use crate::matrix::{Arrays, Bsr};
use crate::threads::Pool;

/// Computes multipass interpolation and a step of Jacobi's method, both truncated to the `most` largest
/// weights of a row (0: all), scaled to keep the row's sum.
///
/// Node i gets w_ik = −α/ã Σ_j a_ij w_jk over its strong neighbours j that earlier passes reached. α scales
/// these to represent all couplings of the opposite sign, and ã is a_ii plus those of its own sign. The
/// Jacobi step uses all strong neighbours, α = 1, and adds the others to ã. A node that no pass reaches has
/// an empty row. `names` of coarse nodes order equal weights.
pub fn multipass(
    pool: &Pool,
    a: &Bsr,
    strong: &[u8],
    coarse: &[u32],
    most: usize,
    names: Option<&[u64]>,
) -> Bsr {
    let (pieces, a) = (pieces_of(pool, a), Arrays::of(a));
    let scratch = Scratch::new();
    let search = || Search::new(coarse.len(), names);
    let mut passes = Passes::new(pool, &pieces, coarse);
    let fine = |&i: &u32| coarse[i as usize] == FINE;
    let mut left: Vec<Vec<u32>> = map(pool, pieces.len() - 1, |piece| {
        (pieces[piece] as u32..pieces[piece + 1] as u32).filter(fine).collect()
    });
    loop {
        // Nodes with a strong neighbour in an earlier pass.
        let cut = map(pool, left.len(), |piece| passes.reaches(a, strong, &left[piece]));
        let (nodes, rest): (Vec<_>, Vec<_>) = cut.into_iter().unzip();
        if nodes.iter().all(Vec::is_empty) {
            break;
        }
        let rows = map(pool, nodes.len(), |piece| {
            let mut out = Rows::default();
            scratch.with(search, |search| {
                for &i in &nodes[piece] {
                    out.push(search.combine(a, strong, &passes, i as usize, false, most));
                }
            });
            out
        });
        passes.push(pool, &pieces, &nodes, rows);
        left = rest;
    }
    let rows = map(pool, pieces.len() - 1, |piece| {
        let mut out = Rows::default();
        scratch.with(search, |search| {
            for i in pieces[piece]..pieces[piece + 1] {
                if coarse[i] == FINE && passes.places[i].part != NEVER {
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
        });
        out
    });
    assemble(pool, 1, columns(coarse), rows)
}

impl Search<'_> {
    /// Combines the rows of node `i`'s strong neighbours. With `lump`, couplings to other nodes are added to
    /// the diagonal; otherwise those of the opposite sign scale the row.
    fn combine(
        &mut self,
        a: Arrays,
        strong: &[u8],
        passes: &Passes,
        i: usize,
        lump: bool,
        most: usize,
    ) -> &[(u32, f64)] {
        self.sums.begin();
        let g = a.sign(i);
        let (mut diagonal, mut all, mut those) = (0.0, 0.0, 0.0);
        let row = a.row(i);
        for ((&j, &v), &strong) in a.col[row.clone()].iter().zip(&a.values[row.clone()]).zip(&strong[row]) {
            let (col, values) = if strong != 0 { passes.row(j as usize) } else { (&[][..], &[][..]) };
            if !col.is_empty() {
                all += v;
                those += v;
                self.sums.add(v, col, values);
            } else if !lump && g * v < 0.0 && j as usize != i {
                all += v;
            } else {
                diagonal += v;
            }
        }
        self.finish(-(all / those), diagonal, 0, most)
    }
}

/// The part of a node that no pass has reached.
const NEVER: u32 = u32::MAX;

/// Position of a node's row.
#[derive(Clone, Copy)]
struct Place {
    /// First entry.
    begin: usize,
    entries: u32,
    part: u32,
}

/// Rows of multipass interpolation.
struct Passes {
    places: Vec<Place>,
    /// For coarse points, and for each pass, one part per piece of nodes.
    parts: Vec<Rows>,
}

impl Passes {
    /// Starts with the coarse points, each of which interpolates from itself.
    fn new(pool: &Pool, pieces: &[usize], coarse: &[u32]) -> Self {
        let places = vec![Place { begin: 0, entries: 0, part: NEVER }; coarse.len()];
        let mut passes = Self { places, parts: Vec::new() };
        let (nodes, rows): (Vec<Vec<u32>>, Vec<Rows>) = map(pool, pieces.len() - 1, |piece| {
            let (mut nodes, mut rows) = (Vec::new(), Rows::default());
            for i in (pieces[piece]..pieces[piece + 1]).filter(|&i| coarse[i] != FINE) {
                nodes.push(i as u32);
                rows.push(&[(coarse[i], 1.0)]);
            }
            (nodes, rows)
        })
        .into_iter()
        .unzip();
        passes.push(pool, pieces, &nodes, rows);
        passes
    }

    /// Splits `nodes` into those with a strong neighbour in a pass, and the others.
    fn reaches(&self, a: Arrays, strong: &[u8], nodes: &[u32]) -> (Vec<u32>, Vec<u32>) {
        nodes.iter().partition(|&&i| {
            let row = a.row(i as usize);
            let mut row = a.col[row.clone()].iter().zip(&strong[row]);
            row.any(|(&j, &strong)| strong != 0 && self.places[j as usize].part != NEVER)
        })
    }

    /// Appends the rows of these nodes, piece by piece.
    fn push(&mut self, pool: &Pool, pieces: &[usize], nodes: &[Vec<u32>], rows: Vec<Rows>) {
        let first = self.parts.len();
        fill(pool, runs(pieces), &mut self.places, |piece, places| {
            for (&i, row) in nodes[piece].iter().zip(rows[piece].row_ptr.windows(2)) {
                let (begin, entries) = (row[0], (row[1] - row[0]) as u32);
                places[i as usize - pieces[piece]] = Place { begin, entries, part: (first + piece) as u32 };
            }
        });
        self.parts.extend(rows);
    }

    /// Returns the columns and weights of node `i`: itself for a coarse point, nothing for a node that was
    /// not reached.
    #[inline]
    fn row(&self, i: usize) -> (&[u32], &[f64]) {
        let Place { begin, entries, part } = self.places[i];
        match self.parts.get(part as usize) {
            None => (&[], &[]),
            Some(rows) => {
                let entries = begin..begin + entries as usize;
                (&rows.col[entries.clone()], &rows.values[entries])
            }
        }
    }
}
