//! Global numbers of the block rows that one rank owns.

use std::ops::Range;

/// Global numbers of a rank's rows: a run, or a list by local number.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(hidden)]
pub enum OwnRows {
    /// Consecutive rows.
    Run(Range<u64>),
    /// Any other rows.
    List(Vec<u64>),
}

/// Global numbers of a rank's rows, borrowed.
///
/// # Examples
/// ```
/// use krylith_base::halo::RowNumbers;
/// let (run, list) = (RowNumbers::Run { first: 100, count: 3 }, RowNumbers::List(&[7, 100, 3]));
/// assert_eq!((run.at(2), list.at(2)), (102, 3));
/// assert_eq!(run.as_run(), Some(100..103));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowNumbers<'a> {
    /// `count` consecutive rows from `first`.
    Run {
        /// Number of the first row.
        first: u64,
        /// Number of rows.
        count: usize,
    },
    /// Any rows, by local number.
    List(&'a [u64]),
}

impl OwnRows {
    pub fn borrowed(&self) -> RowNumbers<'_> {
        match self {
            OwnRows::Run(run) => RowNumbers::Run { first: run.start, count: (run.end - run.start) as usize },
            OwnRows::List(list) => RowNumbers::List(list),
        }
    }
}

impl RowNumbers<'_> {
    /// Number of rows.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            RowNumbers::Run { count, .. } => *count,
            RowNumbers::List(list) => list.len(),
        }
    }

    /// True if there are no rows.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of local row `i`.
    #[inline]
    pub fn at(&self, i: usize) -> u64 {
        match self {
            RowNumbers::Run { first, .. } => first + i as u64,
            RowNumbers::List(list) => list[i],
        }
    }

    /// The same numbers, owned.
    #[doc(hidden)]
    pub fn to_owned(self) -> OwnRows {
        match self {
            RowNumbers::Run { first, count } => OwnRows::Run(first..first + count as u64),
            RowNumbers::List(list) => OwnRows::List(list.to_vec()),
        }
    }

    /// The range of the numbers, if they ascend without gaps.
    pub fn as_run(&self) -> Option<Range<u64>> {
        match self {
            RowNumbers::Run { first, count } => Some(*first..first + *count as u64),
            RowNumbers::List(list) => {
                let (first, last) = (*list.first()?, *list.last()?);
                let ascend = list.windows(2).all(|pair| pair[0] < pair[1]);
                let run = ascend && last - first == list.len() as u64 - 1;
                last.checked_add(1).filter(|_| run).map(|end| first..end)
            }
        }
    }

    /// Copies this rank's numbers out of a global vector with `run` numbers per row.
    pub fn take(&self, run: usize, whole: &[f64], own: &mut [f64]) {
        match self {
            RowNumbers::Run { first, .. } => {
                own.copy_from_slice(&whole[*first as usize * run..][..own.len()])
            }
            RowNumbers::List(list) => {
                for (own, &i) in own.chunks_exact_mut(run).zip(*list) {
                    own.copy_from_slice(&whole[i as usize * run..][..run]);
                }
            }
        }
    }

    /// Packs this rank's numbers with those of the rows, for [`unpack`](Self::unpack) on another rank.
    #[doc(hidden)]
    pub fn pack(&self, own: &[f64]) -> Vec<u8> {
        let rows = (0..self.len()).flat_map(|i| self.at(i).to_le_bytes());
        rows.chain(own.iter().flat_map(|x| x.to_le_bytes())).collect()
    }

    /// Copies packed numbers into a global vector with `run` numbers per row.
    #[doc(hidden)]
    pub fn unpack(packed: &[u8], run: usize, whole: &mut [f64]) {
        let words = packed.as_chunks::<8>().0;
        let (rows, values) = words.split_at(words.len() / (run + 1));
        for (row, values) in rows.iter().zip(values.chunks_exact(run)) {
            let at = u64::from_le_bytes(*row) as usize * run;
            whole[at..at + run].iter_mut().zip(values).for_each(|(x, v)| *x = f64::from_le_bytes(*v));
        }
    }

    /// Copies this rank's numbers into a global vector with `run` numbers per row.
    pub fn put(&self, run: usize, own: &[f64], whole: &mut [f64]) {
        match self {
            RowNumbers::Run { first, .. } => whole[*first as usize * run..][..own.len()].copy_from_slice(own),
            RowNumbers::List(list) => {
                for (own, &i) in own.chunks_exact(run).zip(*list) {
                    whole[i as usize * run..][..run].copy_from_slice(own);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_consecutive_numbers_are_a_run() {
        let run = |list: &[u64]| RowNumbers::List(list).as_run();
        assert_eq!(run(&[5, 6, 7]), Some(5..8));
        assert_eq!(
            [run(&[]), run(&[5, 7]), run(&[6, 5]), run(&[1, 1, 3]), run(&[u64::MAX])],
            [const { None }; 5]
        );
    }

    #[test]
    fn packed_numbers_find_their_rows() {
        let mut whole = vec![0.0; 8];
        RowNumbers::unpack(&RowNumbers::List(&[3, 1]).pack(&[7.0, 8.0, 5.0, 6.0]), 2, &mut whole);
        assert_eq!(whole, [0.0, 0.0, 5.0, 6.0, 0.0, 0.0, 7.0, 8.0]);
    }

    #[test]
    fn a_run_is_the_list_of_its_numbers() {
        let list: Vec<u64> = (3..7).collect();
        let (run, same) = (RowNumbers::Run { first: 3, count: 4 }, RowNumbers::List(&list));
        let whole: Vec<f64> = (0..20).map(f64::from).collect();
        for rows in [run, same] {
            assert_eq!((rows.len(), rows.at(2), rows.as_run()), (4, 5, Some(3..7)));
            let (mut own, mut back) = (vec![0.0; 8], vec![0.0; 20]);
            rows.take(2, &whole, &mut own);
            assert_eq!(own, whole[6..14]);
            rows.put(2, &own, &mut back);
            assert_eq!((&back[6..14], back[5], back[14]), (&whole[6..14], 0.0, 0.0));
        }
        assert_eq!(RowNumbers::List(&[3, 5]).as_run(), None);
        assert_eq!(RowNumbers::List(&[4, 3]).as_run(), None);
    }
}
