//! Blocks of a matrix between two sets of unknowns.

use crate::matrix::storage::Storage;
use crate::matrix::{Arrays, Bsr, Csr};
use rayon::prelude::*;
use std::any::Any;
use std::sync::{Arc, OnceLock};

/// Rows below which a second thread costs more than it saves.
const FEW: usize = 1 << 11;
/// Marks an unknown that is not in a set.
const NONE: u32 = u32::MAX;

/// A set of unknowns: the number of each, and the place of every unknown of the system in the set.
pub struct Numbered {
    pub(crate) numbers: Vec<u32>,
    /// Number of unknowns of the system, with ghosts.
    pub(crate) all: usize,
    /// Columns and places of ghosts.
    pub(crate) ghosts: Vec<(u32, u32)>,
    /// Number of places, with those of ghosts.
    pub(crate) width: usize,
    /// True if the numbers ascend, so that rows of blocks stay in order.
    pub(crate) ascends: bool,
    /// Place of each unknown of the system, or [`NONE`].
    places: OnceLock<Vec<u32>>,
    /// A copy on a device.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "no device keeps one"))]
    pub(crate) copy: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl Numbered {
    /// Numbers the unknowns `numbers` of a system of `all`.
    pub fn new(numbers: &[u32], all: usize) -> Self {
        let ascends = numbers.windows(2).all(|pair| pair[0] < pair[1]);
        let (places, copy) = (OnceLock::new(), OnceLock::new());
        let width = numbers.len();
        Self { numbers: numbers.to_vec(), all, ghosts: Vec::new(), width, ascends, places, copy }
    }

    /// Adds the places of ghosts, as columns of the system and places in the set, which then has `width`
    /// places.
    pub fn with_ghosts(self, ghosts: impl Iterator<Item = (u32, u32)>, width: usize) -> Self {
        Self { ghosts: ghosts.collect(), width, ascends: false, ..self }
    }

    /// Returns the place of each unknown of the system, or [`NONE`].
    fn places(&self) -> &[u32] {
        self.places.get_or_init(|| {
            let mut places = vec![NONE; self.all];
            self.numbers.iter().zip(0..).for_each(|(&i, place)| places[i as usize] = place);
            self.ghosts.iter().for_each(|&(column, place)| places[column as usize] = place);
            places
        })
    }
}

/// Cuts a slice into pieces of these lengths, and then into empty ones.
fn cut<'s, T>(slice: &'s mut [T], lengths: &'s [usize]) -> impl Iterator<Item = &'s mut [T]> {
    let (mut rest, mut lengths) = (slice, lengths.iter());
    std::iter::from_fn(move || {
        let length = lengths.next().copied().unwrap_or(0);
        let (own, others) = std::mem::take(&mut rest).split_at_mut(length);
        rest = others;
        Some(own)
    })
}

/// Positions of the values of a block in the whole matrix.
pub struct Positions {
    short: Vec<u32>,
    /// Positions that 32 bits cannot count; then `short` is empty.
    long: Vec<usize>,
}

impl Positions {
    /// Returns the entries of `a` in these rows and columns. Zeros that blocks of `a` store remain.
    pub fn cut(a: &Bsr, rows: &Numbered, columns: &Numbered) -> (Csr, Self) {
        let (b, arrays) = (a.block(), Arrays::of(a));
        let places = columns.places();
        // Visits the entries of a row: place of the column, and position of the value.
        let visit = |row: u32, found: &mut dyn FnMut(u32, usize)| {
            let (i, r) = (row as usize / b, row as usize % b);
            for p in arrays.row(i) {
                let j = arrays.col[p] as usize * b;
                for c in 0..b {
                    match places[j + c] {
                        NONE => {}
                        place => found(place, (p * b + r) * b + c),
                    }
                }
            }
        };
        let count = |&row: &u32| {
            let mut count = 0usize;
            visit(row, &mut |_, _| count += 1);
            count
        };
        let counts: Vec<usize> = rows.numbers.par_iter().with_min_len(FEW).map(count).collect();
        let mut row_ptr = vec![0; rows.numbers.len() + 1];
        counts.iter().enumerate().for_each(|(i, count)| row_ptr[i + 1] = row_ptr[i] + count);
        let all = row_ptr[rows.numbers.len()];
        let (mut col, mut values) = (vec![0u32; all], vec![0.0; all]);
        // Positions need 64 bits only in very large matrices.
        let wide = u32::try_from(a.stored()).is_err();
        let mut positions = vec![0u32; if wide { 0 } else { all }];
        let mut long = vec![0usize; if wide { all } else { 0 }];
        let lengths: Vec<usize> = (0..rows.numbers.len())
            .step_by(FEW)
            .map(|first| row_ptr[rows.numbers.len().min(first + FEW)] - row_ptr[first])
            .collect();
        let pieces = rows
            .numbers
            .chunks(FEW)
            .zip(cut(&mut col, &lengths))
            .zip(cut(&mut values, &lengths))
            .zip(cut(&mut positions, if wide { &[] } else { &lengths }))
            .zip(cut(&mut long, if wide { &lengths } else { &[] }));
        let pieces: Vec<_> = pieces.collect();
        pieces.into_par_iter().for_each_init(Vec::new, |row_of: &mut Vec<(u32, usize)>, piece| {
            let ((((rows, col), values), positions), long) = piece;
            let mut at = 0;
            for &row in rows {
                row_of.clear();
                visit(row, &mut |place, position| row_of.push((place, position)));
                if !columns.ascends {
                    row_of.sort_unstable();
                }
                for &(place, position) in &*row_of {
                    (col[at], values[at]) = (place, arrays.values[position]);
                    match wide {
                        true => long[at] = position,
                        false => positions[at] = position as u32,
                    }
                    at += 1;
                }
            }
        });
        // Columns ascend and are in range, and values are those of a checked matrix.
        let csr = Csr::from_storage(Storage::host(rows.numbers.len(), columns.width, row_ptr, col, values));
        (csr, Self { short: positions, long })
    }

    /// Takes new values of the block from those of the whole matrix.
    pub fn take(&self, values: &[f64], to: &mut Csr) {
        let to = to.values_mut().par_iter_mut().with_min_len(FEW);
        match self.long.is_empty() {
            true => to.zip(&self.short).for_each(|(to, &p)| *to = values[p as usize]),
            false => to.zip(&self.long).for_each(|(to, &p)| *to = values[p]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entry (i, j) of a 6×6 matrix is 10 i + j, in 2×2 blocks of which some are missing.
    fn matrix() -> (Csr, Bsr) {
        let entry = |i: u32, j: u32| (i, j, f64::from(10 * i + j));
        let blocks = [(0, 0), (0, 2), (1, 1), (2, 0), (2, 2)];
        let entries =
            blocks.into_iter().flat_map(|(i, j)| (0..4).map(move |e| (2 * i + e / 2, 2 * j + e % 2)));
        let entries: Vec<_> = entries.map(|(i, j)| entry(i, j)).collect();
        let csr = Csr::from_triplets(6, 6, &entries).unwrap();
        let bsr = Bsr::from_csr(&csr, 2).unwrap();
        (csr, bsr)
    }

    #[test]
    fn blocks_have_the_entries_of_their_rows_and_columns() {
        let (csr, bsr) = matrix();
        let sets: [&[u32]; 3] = [&[0, 2, 4], &[5, 1, 3], &[4, 5]];
        for rows in sets {
            for columns in sets {
                let (of, on) = (Numbered::new(rows, 6), Numbered::new(columns, 6));
                for a in [&Bsr::from_csr(&csr, 1).unwrap(), &bsr] {
                    let (mut part, positions) = Positions::cut(a, &of, &on);
                    let same = |part: &Csr, factor: f64| {
                        for (r, &i) in rows.iter().enumerate() {
                            for (c, &j) in columns.iter().enumerate() {
                                let wanted = factor * csr.get(i as usize, j as usize);
                                assert_eq!(part.get(r, c), wanted, "({i}, {j})");
                            }
                        }
                    };
                    same(&part, 1.0);
                    positions.take(&a.values().iter().map(|v| 2.0 * v).collect::<Vec<_>>(), &mut part);
                    same(&part, 2.0);
                }
            }
        }
    }
}
