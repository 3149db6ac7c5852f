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
                let run = list.is_sorted() && last - first == list.len() as u64 - 1;
                run.then_some(first..last + 1)
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
