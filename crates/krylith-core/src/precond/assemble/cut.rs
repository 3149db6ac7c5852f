//! Blocks of a matrix between two sets of unknowns.

use crate::matrix::storage::Storage;
use crate::matrix::{Arrays, Bsr, Csr, Grouping};
use crate::memory::Numbers;
use crate::{Error, Result};
use rayon::prelude::*;

/// Rows below which a second thread costs more than it saves.
const FEW: usize = 1 << 11;
/// Marks an unknown that is not in a set.
const NONE: u32 = u32::MAX;

/// A set of unknowns: the number of each, and the place of every unknown of the system in the set.
pub(crate) struct Numbered {
    numbers: Vec<u32>,
    /// Place of each unknown of the system, or [`NONE`].
    places: Vec<u32>,
    /// Number of places, with those of ghosts.
    width: usize,
    /// True if the numbers ascend, so that rows of blocks stay in order.
    ascends: bool,
}

impl Numbered {
    /// Numbers the unknowns `numbers` of a system of `n`.
    pub fn new(numbers: &[u32], n: usize) -> Self {
        let mut places = vec![NONE; n];
        numbers.iter().zip(0..).for_each(|(&i, place)| places[i as usize] = place);
        let ascends = numbers.windows(2).all(|pair| pair[0] < pair[1]);
        Self { numbers: numbers.to_vec(), places, width: numbers.len(), ascends }
    }

    /// Adds the places of ghosts, as columns of the system and places in the set, which then has `width`
    /// places.
    pub fn with_ghosts(mut self, ghosts: impl Iterator<Item = (u32, u32)>, width: usize) -> Self {
        ghosts.for_each(|(column, place)| self.places[column as usize] = place);
        Self { width, ascends: false, ..self }
    }

    /// Returns the number of unknowns in the set.
    pub fn len(&self) -> usize {
        self.numbers.len()
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

/// A block of a matrix as a scalar matrix, with the position of each of its values in the whole matrix.
pub(crate) struct SubMatrix {
    pub csr: Csr,
    positions: Vec<u32>,
    /// Positions that 32 bits cannot count; then `positions` is empty.
    long: Vec<usize>,
}

impl SubMatrix {
    /// Returns the entries of `a` in these rows and columns. Zeros that blocks of `a` store remain.
    ///
    /// # Errors
    /// An internal error of Krylith.
    pub fn new(a: &Bsr, rows: &Numbered, columns: &Numbered) -> Result<Self> {
        let (b, arrays) = (a.block(), Arrays::of(a));
        // Visits the entries of a row: place of the column, and position of the value.
        let visit = |row: u32, found: &mut dyn FnMut(u32, usize)| {
            let (i, r) = (row as usize / b, row as usize % b);
            for p in arrays.row(i) {
                let j = arrays.col[p] as usize * b;
                for c in 0..b {
                    match columns.places[j + c] {
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
        let mut row_ptr = vec![0; rows.len() + 1];
        counts.iter().enumerate().for_each(|(i, count)| row_ptr[i + 1] = row_ptr[i] + count);
        let all = row_ptr[rows.len()];
        let (mut col, mut values) = (vec![0u32; all], vec![0.0; all]);
        // Positions need 64 bits only in very large matrices.
        let wide = u32::try_from(a.stored()).is_err();
        let mut positions = vec![0u32; if wide { 0 } else { all }];
        let mut long = vec![0usize; if wide { all } else { 0 }];
        let lengths: Vec<usize> = (0..rows.len())
            .step_by(FEW)
            .map(|first| row_ptr[rows.len().min(first + FEW)] - row_ptr[first])
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
        let csr = Csr::from_storage(Storage::host(rows.len(), columns.width, row_ptr, col, values));
        Ok(Self { csr, positions, long })
    }

    /// Takes new values from those of the whole matrix.
    pub fn update(&mut self, values: &[f64]) {
        let to = self.csr.values_mut().par_iter_mut().with_min_len(FEW);
        match self.long.is_empty() {
            true => to.zip(&self.positions).for_each(|(to, &p)| *to = values[p as usize]),
            false => to.zip(&self.long).for_each(|(to, &p)| *to = values[p]),
        }
    }
}

/// A scalar matrix in point blocks, whose values can be renewed.
pub(crate) struct Blocked {
    pub bsr: Bsr,
    /// The map of values to blocks, once it is needed; 1×1 blocks keep the order of values.
    grouping: Option<Grouping>,
}

impl Blocked {
    /// Groups the entries of `csr` into blocks.
    ///
    /// # Errors
    /// A size that does not divide the rows.
    pub fn new(csr: &Csr, block: usize) -> Result<Self> {
        Ok(Self { bsr: Bsr::from_csr(csr, block)?, grouping: None })
    }

    /// Takes new values of the scalar matrix.
    ///
    /// # Errors
    /// A value that is not finite.
    pub fn update(&mut self, csr: &Csr) -> Result<()> {
        if self.bsr.block() == 1 {
            self.bsr.values_mut().copy_from_slice(csr.values());
            return self.bsr.check_finite();
        }
        let grouping = match self.grouping.take() {
            Some(grouping) => grouping,
            None => Grouping::new(csr, &self.bsr)?,
        };
        self.grouping.insert(grouping).gather(csr.values(), self.bsr.values_mut())?;
        self.bsr.check_finite()
    }
}

/// Returns the values of a system of one term on the host.
///
/// # Errors
/// Values that the device cannot return.
pub(crate) fn host_values<'v>(
    values: Option<(&'v crate::matrix::Dense, Numbers<'v>)>,
    scratch: &'v mut Vec<f64>,
) -> Result<&'v [f64]> {
    match values {
        Some((_, values)) => values.on_host(scratch),
        None => Err(Error::Internal("a split without values".into())),
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
                    let mut part = SubMatrix::new(a, &of, &on).unwrap();
                    let same = |part: &SubMatrix, factor: f64| {
                        for (r, &i) in rows.iter().enumerate() {
                            for (c, &j) in columns.iter().enumerate() {
                                let wanted = factor * csr.get(i as usize, j as usize);
                                assert_eq!(part.csr.get(r, c), wanted, "({i}, {j})");
                            }
                        }
                    };
                    same(&part, 1.0);
                    part.update(&a.values().iter().map(|v| 2.0 * v).collect::<Vec<_>>());
                    same(&part, 2.0);
                }
            }
        }
    }

    #[test]
    fn blocks_of_two_are_renewed() {
        let (csr, _) = matrix();
        let mut blocked = Blocked::new(&csr, 2).unwrap();
        let mut twice = csr.clone();
        twice.values_mut().iter_mut().for_each(|v| *v *= 2.0);
        blocked.update(&twice).unwrap();
        assert_eq!(blocked.bsr.to_csr().get(5, 4), 108.0);
        twice.values_mut()[0] = f64::NAN;
        assert!(blocked.update(&twice).is_err());
    }
}
