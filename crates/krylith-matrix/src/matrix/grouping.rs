//! Maps the entries of a scalar matrix to the numbers of its blocks.

use super::{Bsr, Csr};
use crate::{Error, Result};
use rayon::prelude::*;

/// For each number in the blocks of a matrix, the position of the same entry in the scalar matrix. The map is
/// computed once. It then brings new values from the order of the scalar matrix to that of the blocks, on all
/// threads.
///
/// # Examples
/// ```
/// use krylith::{Problem, Solver, matrix::{Bsr, Csr, Grouping}};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (1, 0, 1.0), (1, 1, 4.0)])?;
/// let blocks = Bsr::from_csr(&a, 2)?;
/// let grouping = Grouping::new(&a, &blocks)?;
/// let mut solver = Solver::new(Problem::bsr(&blocks)?, &"device=cpu".parse()?)?;
/// let mut values = vec![0.0; blocks.stored()];
/// grouping.gather(&[1.0, 0.5, 2.0], &mut values)?; // a matrix half as large, in the order of `a`
/// assert_eq!(values, [1.0, 0.0, 0.5, 2.0]);
/// solver.update_values(&values)?;
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Grouping {
    entries: usize,
    /// Numbers per source, which stay together.
    unit: usize,
    /// Source of each number of the blocks, or of each unit of numbers; [`NONE`] for zeros that the blocks
    /// added.
    sources: Vec<usize>,
}

const NONE: usize = usize::MAX;
/// Length of the chunks, of numbers or block rows, that a thread takes at once.
const RUN: usize = 1 << 14;

impl Grouping {
    /// Computes the map from a scalar matrix to the blocks made of it.
    ///
    /// # Errors
    /// Another shape, or an entry outside the stored blocks, with its position.
    pub fn new(a: &Csr, blocks: &Bsr) -> Result<Self> {
        if (a.rows(), a.columns()) != (blocks.rows(), blocks.columns()) {
            return Err(Error::invalid(format!(
                "the scalar matrix is {}×{} and the block matrix is {}×{}; both need the same shape",
                a.rows(),
                a.columns(),
                blocks.rows(),
                blocks.columns()
            )));
        }
        let (b, n, row_ptr) = (blocks.block(), blocks.block_rows(), blocks.row_ptr());
        let mut sources = vec![NONE; blocks.stored()];
        let (mut rest, mut pieces) = (&mut sources[..], Vec::with_capacity(n.div_ceil(RUN)));
        for first in (0..n).step_by(RUN) {
            let rows = first..n.min(first + RUN);
            let (own, others) = rest.split_at_mut((row_ptr[rows.end] - row_ptr[first]) * b * b);
            pieces.push((rows, own));
            rest = others;
        }
        let place = |(rows, own): (std::ops::Range<usize>, &mut [usize])| {
            let first = row_ptr[rows.start];
            for i in rows.start * b..rows.end * b {
                let (mut p, end) = (row_ptr[i / b], row_ptr[i / b + 1]);
                for e in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                    let j = a.col()[e] as usize;
                    // Columns ascend in `a` and in `blocks`.
                    while p < end && (blocks.col()[p] as usize) < j / b {
                        p += 1;
                    }
                    if p == end || blocks.col()[p] as usize != j / b {
                        return Some((i, j));
                    }
                    own[((p - first) * b + i % b) * b + j % b] = e;
                }
            }
            None
        };
        match pieces.into_par_iter().find_map_first(place) {
            Some((i, j)) => Err(Error::invalid(format!("entry ({i}, {j}) lies in no stored block"))),
            None => Ok(Self { entries: a.nonzeros(), unit: 1, sources }),
        }
    }

    /// The map of a reordering of blocks with `unit` numbers each, from the old position of each block;
    /// `None` if the order is unchanged.
    #[doc(hidden)]
    pub fn of_order(unit: usize, sources: Vec<usize>) -> Option<Self> {
        let same = sources.iter().enumerate().all(|(i, &from)| i == from);
        (!same).then(|| Self { entries: sources.len() * unit, unit, sources })
    }

    /// This map followed by the reordering `next` of its result.
    #[doc(hidden)]
    pub fn then(self, next: Option<&Grouping>) -> Self {
        let Some(next) = next else { return self };
        let moved = next.sources.iter().flat_map(|&from| from * next.unit..(from + 1) * next.unit);
        Self { sources: moved.map(|number| self.sources[number]).collect(), ..self }
    }

    /// Number of entries of the scalar matrix.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Computes the numbers of the blocks, zeros included, from the entries of the scalar matrix.
    ///
    /// # Errors
    /// A wrong length of `entries` or `numbers`.
    pub fn gather(&self, entries: &[f64], numbers: &mut [f64]) -> Result<()> {
        if entries.len() != self.entries || numbers.len() != self.sources.len() * self.unit {
            return Err(Error::invalid(format!(
                "{} new values for a matrix that stores {}; expected one value per stored entry",
                entries.len(),
                self.entries
            )));
        }
        let unit = self.unit;
        numbers.par_chunks_mut(RUN * unit).zip(self.sources.par_chunks(RUN)).for_each(|(to, sources)| {
            if unit == 1 {
                for (to, &e) in to.iter_mut().zip(sources) {
                    *to = if e == NONE { 0.0 } else { entries[e] };
                }
                return;
            }
            for (to, &e) in to.chunks_exact_mut(unit).zip(sources) {
                to.copy_from_slice(&entries[e * unit..(e + 1) * unit]);
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_follow_one_another() {
        // Four entries in two blocks of 1×2, which then change places.
        let a = Csr::from_triplets(2, 4, &[(0, 0, 1.0), (0, 3, 2.0), (1, 1, 3.0), (1, 2, 4.0)]).unwrap();
        let blocks = Bsr::from_csr(&a, 2).unwrap();
        let first = Grouping::new(&a, &blocks).unwrap();
        let second = Grouping::of_order(4, vec![1, 0]).unwrap();
        let mut numbers = [0.0; 8];
        second.gather(blocks.values(), &mut numbers).unwrap();
        let moved = numbers;
        assert_eq!((&moved[..4], &moved[4..]), (&blocks.values()[4..], &blocks.values()[..4]));
        first.then(Some(&second)).gather(a.values(), &mut numbers).unwrap();
        assert_eq!(numbers, moved);
        assert!(Grouping::of_order(3, vec![0, 1, 2]).is_none());
    }

    #[test]
    fn blocks_of_new_values_are_those_that_were_gathered() {
        for (n, b) in [(1, 1), (2, 3), (70, 2), (33, 8), (20_000, 2)] {
            let order = n * b;
            let entries: Vec<(u32, u32, f64)> = (0..order)
                .flat_map(|i| {
                    [i, (7 * i + 3) % order, (i * i) % order].map(|j| (i as u32, j as u32, (i + j) as f64))
                })
                .collect();
            let mut a = Csr::from_triplets(order, order, &entries).unwrap();
            let blocks = Bsr::from_csr(&a, b).unwrap();
            let grouping = Grouping::new(&a, &blocks).unwrap();
            a.values_mut().iter_mut().enumerate().for_each(|(e, v)| *v = e as f64 + 0.5);
            let mut numbers = vec![f64::NAN; blocks.stored()];
            grouping.gather(a.values(), &mut numbers).unwrap();
            assert_eq!(numbers, Bsr::from_csr(&a, b).unwrap().values(), "{n} nodes of {b}");
            assert!(grouping.gather(&numbers[1..], &mut []).is_err());
        }
    }

    #[test]
    fn an_entry_without_a_block_is_named() {
        let a = Csr::from_triplets(4, 4, &[(0, 0, 1.0), (2, 2, 1.0)]).unwrap();
        let wider = Csr::from_triplets(4, 4, &[(0, 0, 1.0), (2, 2, 1.0), (3, 1, 1.0)]).unwrap();
        let error = Grouping::new(&wider, &Bsr::from_csr(&a, 2).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "entry (3, 1) lies in no stored block");
        assert!(
            Grouping::new(&Csr::from_triplets(2, 2, &[]).unwrap(), &Bsr::from_csr(&a, 2).unwrap()).is_err()
        );
    }
}
