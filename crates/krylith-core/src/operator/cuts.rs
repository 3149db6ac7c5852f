//! Cuts of rows for products whose vectors are replicated on every rank. A cut determines which rank computes
//! which rows, in which order, and which results are sent.
//!
//! The modes are those of Gao, Ji and Wang for several GPUs (paper 2 in docs/papers.md), and two of our own.
//! Ranks compute rows in stages. While a stage is computed, the results of the stage before are sent.
//! Computing a cut reads only a few row pointers, by binary search. If it needs the longest row, it reads all
//! row pointers once, on the host or on the device that stores the matrix.

use crate::matrix::Csr;
use crate::{Error, Result};
use rayon::prelude::*;
use std::ops::Range;
use std::str::FromStr;

/// Mode of sharing the rows of a product among ranks that all need the whole result.
///
/// # Examples
/// ```
/// use krylith_core::partition::replicated::Mode;
/// assert_eq!("lra:0.4".parse::<Mode>()?, Mode::Lra { long: 0.4 });
/// assert!("lra:1.4".parse::<Mode>().is_err()); // a share of the rows
/// assert_eq!(Mode::candidates(7.0, 1), [Mode::Alone]); // on one rank there is nothing to choose
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mode {
    /// One block of rows per rank, of equal nonzeros. Results are sent when the block is complete.
    Nz,
    /// Two blocks per rank, all of equal nonzeros. The results of the first are sent while the second is
    /// computed.
    TwoNz,
    /// This number of blocks per rank, all of equal nonzeros. The results of each are sent while the next is
    /// computed, and ranks wait only for the last. This mode is our own. One block is [`Nz`](Mode::Nz), and
    /// two are [`TwoNz`](Mode::TwoNz).
    Staged {
        /// Number of blocks of each rank, 1 to 64.
        blocks: usize,
    },
    /// Long row aware: long rows are computed last, because for the same work they give fewer numbers to
    /// send. The block of long rows has a share `long` of all rows. It is at the end of the matrix if the
    /// longest row is there, or else around the longest row.
    Lra {
        /// Share of rows in the long block, 0 to 1 (d_l in the paper).
        long: f64,
    },
    /// As [`Lra`](Mode::Lra), but while the long block is sent, every rank computes one block of short rows
    /// itself instead of receiving its results.
    LraRc {
        /// Share of rows in the long block, as for [`Lra`](Mode::Lra).
        long: f64,
        /// Share of rows that every rank computes (d_c in the paper).
        redundant: f64,
    },
    /// One block of rows per rank, of equal nonzeros. The kernel of the product stores each result in every
    /// rank's vector as soon as it is known. This mode is our own. On a CPU it is the same as
    /// [`Nz`](Mode::Nz).
    Fused,
    /// Every rank computes all rows, and nothing is sent, for problems where several devices do not pay.
    Alone,
}

impl Mode {
    /// Returns the modes that are worth a measurement, for a mean row length and a number of ranks. These are
    /// all modes, with the paper's parameters and with 4, 8 and 16 blocks. On one rank there is only
    /// [`Alone`](Mode::Alone).
    pub fn candidates(mean_row: f64, ranks: usize) -> Vec<Mode> {
        if ranks < 2 {
            return vec![Mode::Alone];
        }
        let staged = [4, 8, 16].map(|blocks| Mode::Staged { blocks });
        let mut all = vec![Mode::Nz, Mode::TwoNz];
        all.extend(Self::by_rule(mean_row, ranks));
        all.extend(staged);
        all.extend([Mode::Fused, Mode::Alone]);
        all
    }

    /// Returns LRA and LRA+RC with the paper's parameters (its Table 3, V100) for a mean row length and a
    /// number of ranks.
    pub fn by_rule(mean_row: f64, ranks: usize) -> [Mode; 2] {
        let (alone, long, redundant) = match (mean_row < 8.0, ranks > 2) {
            (true, false) => (0.50, 0.40, 0.15),
            (true, true) => (0.50, 0.35, 0.20),
            (false, false) => (0.30, 0.25, 0.05),
            (false, true) => (0.35, 0.25, 0.05),
        };
        [Mode::Lra { long: alone }, Mode::LraRc { long, redundant }]
    }

    /// Checks the shares and the number of blocks.
    ///
    /// # Errors
    /// A share below 0 or above 1; two shares above 1 together; no block, or more than 64.
    pub fn check(&self) -> Result<()> {
        let (long, redundant) = match *self {
            Mode::Lra { long } => (long, 0.0),
            Mode::LraRc { long, redundant } => (long, redundant),
            Mode::Staged { blocks } if !(1..=64).contains(&blocks) => {
                return Err(Error::invalid(format!("mode {self}: expected 1 to 64 blocks per rank")));
            }
            _ => return Ok(()),
        };
        if long >= 0.0 && redundant >= 0.0 && long + redundant <= 1.0 {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "mode {self}: the shares of long and redundant rows must not be negative, nor exceed 1 together"
        )))
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Mode::Nz => f.write_str("nz"),
            Mode::TwoNz => f.write_str("2nz"),
            Mode::Staged { blocks } => write!(f, "nz:{blocks}"),
            Mode::Lra { long } => write!(f, "lra:{long}"),
            Mode::LraRc { long, redundant } => write!(f, "lra+rc:{long}/{redundant}"),
            Mode::Fused => f.write_str("fused"),
            Mode::Alone => f.write_str("alone"),
        }
    }
}

impl FromStr for Mode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let unknown = || {
            Error::invalid(format!(
                "mode {text}: expected nz, 2nz, nz:BLOCKS, lra:LONG, lra+rc:LONG/REDUNDANT (shares of the rows, such as lra+rc:0.4/0.15), fused or alone"
            ))
        };
        let share = |text: &str| text.parse::<f64>().map_err(|_| unknown());
        let mode = match text.split_once(':') {
            None if text == "nz" => Mode::Nz,
            None if text == "2nz" => Mode::TwoNz,
            None if text == "fused" => Mode::Fused,
            None if text == "alone" => Mode::Alone,
            Some(("nz", blocks)) => Mode::Staged { blocks: blocks.parse().map_err(|_| unknown())? },
            Some(("lra", long)) => Mode::Lra { long: share(long)? },
            Some(("lra+rc", shares)) => {
                let (long, redundant) = shares.split_once('/').ok_or_else(unknown)?;
                Mode::LraRc { long: share(long)?, redundant: share(redundant)? }
            }
            _ => return Err(unknown()),
        };
        mode.check()?;
        Ok(mode)
    }
}

/// A range of rows that one rank computes at once.
///
/// # Examples
/// ```
/// use krylith::matrix::Csr;
/// use krylith_core::partition::replicated::{Cuts, Mode, Run};
/// let a = Csr::new(2, 2, vec![0, 1, 2], vec![0, 1], vec![1.0; 2])?;
/// let cuts = Cuts::of(&a, &Mode::Nz, 2)?;
/// assert_eq!(cuts.of_rank(1).next(), Some(&Run { rows: 1..2, entries: 1..2 }));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The rows, at least one.
    pub rows: Range<usize>,
    /// The entries of these rows.
    pub entries: Range<usize>,
}

/// Rows that are computed before the next stage begins.
///
/// # Examples
/// ```
/// use krylith::matrix::Csr;
/// use krylith_core::partition::replicated::{Cuts, Mode};
/// let identity = Csr::new(4, 4, vec![0, 1, 2, 3, 4], vec![0, 1, 2, 3], vec![1.0; 4])?;
/// let stages = Cuts::of(&identity, &Mode::TwoNz, 2)?.stages;
/// assert_eq!(stages.len(), 2); // the first travels while the second is computed
/// assert!(stages.iter().all(|stage| !stage.redundant && stage.runs.len() == 2));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// The runs of each rank: none, one, or two if the long block lies between them.
    pub runs: Vec<Vec<Run>>,
    /// True if every rank computes all rows of the stage, and nothing is sent.
    pub redundant: bool,
}

/// The stages of a product, which together compute every row of the result for every rank.
///
/// # Examples
/// ```
/// use krylith::matrix::Csr;
/// use krylith_core::partition::replicated::{Cuts, Mode};
/// let identity = Csr::new(4, 4, vec![0, 1, 2, 3, 4], vec![0, 1, 2, 3], vec![1.0; 4])?;
/// let cuts = Cuts::of(&identity, &Mode::Nz, 2)?;
/// assert_eq!((cuts.sent(0), cuts.sent(1)), (2, 2)); // numbers that each sends for a product
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cuts {
    /// The stages, in the order in which they are computed.
    pub stages: Vec<Stage>,
}

impl Cuts {
    /// Cuts a matrix for `ranks` ranks on the host.
    ///
    /// ```
    /// use krylith::matrix::Csr;
    /// use krylith_core::partition::replicated::{Cuts, Mode};
    /// let identity = Csr::new(4, 4, vec![0, 1, 2, 3, 4], vec![0, 1, 2, 3], vec![1.0; 4])?;
    /// let cuts = Cuts::of(&identity, &Mode::Nz, 2)?;
    /// assert_eq!(cuts.stages[0].runs[1][0].rows, 2..4);
    /// # Ok::<(), krylith::Error>(())
    /// ```
    ///
    /// # Errors
    /// Invalid shares; no ranks.
    pub fn of(a: &Csr, mode: &Mode, ranks: usize) -> Result<Self> {
        Self::find(&OnHost(a.row_ptr()), mode, ranks)
    }

    /// Cuts a matrix whose row pointers are on the host or on a device.
    pub(crate) fn find(on: &impl RowPointers, mode: &Mode, ranks: usize) -> Result<Self> {
        mode.check()?;
        if ranks == 0 {
            return Err(Error::invalid("rows cannot be shared among 0 ranks; give at least 1 rank"));
        }
        let fold = Fold::none(on.rows(), on.entries());
        let whole = Block { from: (0, 0), to: (on.rows(), on.entries()), fold, redundant: false };
        let blocks = match *mode {
            Mode::Nz | Mode::Fused => vec![whole],
            Mode::Alone => vec![Block { redundant: true, ..whole }],
            Mode::TwoNz => staged(on, whole, 2)?,
            Mode::Staged { blocks } => staged(on, whole, blocks)?,
            Mode::Lra { long } => long_row_aware(on, long, 0.0)?,
            Mode::LraRc { long, redundant } => long_row_aware(on, long, redundant)?,
        };
        let ends = divide(on, &blocks, ranks)?;
        let stages = blocks.iter().zip(ends).map(|(block, ends)| {
            let runs = match block.redundant {
                true => vec![block.fold.runs(block.from, block.to); ranks],
                false => ends.windows(2).map(|w| block.fold.runs(w[0], w[1])).collect(),
            };
            Stage { runs, redundant: block.redundant }
        });
        Ok(Self { stages: stages.collect() })
    }

    /// Returns the runs of one rank, stage after stage.
    pub fn of_rank(&self, rank: usize) -> impl Iterator<Item = &Run> {
        self.stages.iter().flat_map(move |stage| &stage.runs[rank])
    }

    /// Returns the number of numbers that a rank sends to each other rank.
    pub fn sent(&self, rank: usize) -> usize {
        let stages = self.stages.iter().filter(|stage| !stage.redundant);
        stages.flat_map(|stage| &stage.runs[rank]).map(|run| run.rows.len()).sum()
    }

    /// Encodes the cuts as a message.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut numbers = vec![self.stages.len()];
        for stage in &self.stages {
            numbers.extend([stage.redundant as usize, stage.runs.len()]);
            for runs in &stage.runs {
                numbers.push(runs.len());
                for Run { rows, entries } in runs {
                    numbers.extend([rows.start, rows.end, entries.start, entries.end]);
                }
            }
        }
        numbers.into_iter().flat_map(|n| (n as u64).to_le_bytes()).collect()
    }

    /// Decodes the result of [`to_bytes`](Self::to_bytes).
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut numbers = bytes.as_chunks::<8>().0.iter().map(|n| u64::from_le_bytes(*n) as usize);
        let mut next = || numbers.next();
        let mut stages = Vec::new();
        for _ in 0..next()? {
            let (redundant, ranks) = (next()? != 0, next()?);
            let mut runs = Vec::new();
            for _ in 0..ranks {
                let mut own = Vec::new();
                for _ in 0..next()? {
                    own.push(Run { rows: next()?..next()?, entries: next()?..next()? });
                }
                runs.push(own);
            }
            stages.push(Stage { runs, redundant });
        }
        Some(Self { stages })
    }
}

/// Cuts a block into stages of equal nonzeros.
fn staged(on: &impl RowPointers, whole: Block, stages: usize) -> Result<Vec<Block>> {
    let ends = divide(on, &[whole], stages)?;
    Ok(ends[0].windows(2).map(|w| Block { from: w[0], to: w[1], ..whole }).collect())
}

/// The rows without the long block, numbered without a gap ("folded" rows). Folded row v is row v of the
/// matrix if v < `start`, and row v + `skipped` otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fold {
    pub start: usize,
    pub skipped: usize,
    /// Number of entries before the skipped rows. `entries` is their own number of entries.
    pub before: u64,
    pub entries: u64,
}

impl Fold {
    /// Returns a numbering that skips no rows.
    fn none(rows: usize, entries: u64) -> Self {
        Self { start: rows, skipped: 0, before: entries, entries: 0 }
    }

    /// Returns the number of entries before folded row v, from the row pointers of the matrix.
    fn before(&self, v: usize, pointer: impl Fn(usize) -> u64) -> u64 {
        if v <= self.start { pointer(v) } else { pointer(v + self.skipped) - self.entries }
    }

    /// Returns the rows of the matrix between two folded rows, each of which is given with the number of
    /// entries before it.
    fn runs(&self, (from, before_from): (usize, u64), (to, before_to): (usize, u64)) -> Vec<Run> {
        let (skipped, entries) = (self.skipped, self.entries as usize);
        let (middle, before) = (self.start.clamp(from, to), self.before.clamp(before_from, before_to));
        let front = Run { rows: from..middle, entries: before_from as usize..before as usize };
        let back = Run {
            rows: middle + skipped..to + skipped,
            entries: before as usize + entries..before_to as usize + entries,
        };
        [front, back].into_iter().filter(|run| !run.rows.is_empty()).collect()
    }
}

/// The rows of a stage before they are shared among ranks: a range of folded rows. Each end has the number of
/// entries before it.
#[derive(Debug, Clone, Copy)]
struct Block {
    from: End,
    to: End,
    fold: Fold,
    redundant: bool,
}

/// A folded row, and the number of entries before it.
type End = (usize, u64);

/// A search for the folded row in `low..=high` for which the number of entries before it is closest to
/// `wanted`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Search {
    pub fold: Fold,
    pub low: usize,
    pub high: usize,
    pub wanted: u64,
}

impl Search {
    /// Returns the row and the number of entries before it.
    pub(crate) fn answer(&self, pointer: impl Fn(usize) -> u64) -> End {
        let before = |v| self.fold.before(v, &pointer);
        let (mut low, mut high) = (self.low, self.high);
        while low < high {
            let middle = low + (high - low) / 2;
            if before(middle) < self.wanted { low = middle + 1 } else { high = middle }
        }
        let here = before(low);
        if low > self.low && self.wanted - before(low - 1) < here.abs_diff(self.wanted) {
            return (low - 1, before(low - 1));
        }
        (low, here)
    }
}

/// Row pointers on the host or on a device. Each call may be a round trip to the device.
pub(crate) trait RowPointers {
    fn rows(&self) -> usize;
    fn entries(&self) -> u64;
    /// Returns the first of the longest rows; 0 if there are no rows.
    fn longest(&self) -> Result<usize>;
    /// Returns the number of entries before each of some rows.
    fn at(&self, rows: &[usize]) -> Result<Vec<u64>>;
    /// Returns the result of each search.
    fn search(&self, all: &[Search]) -> Result<Vec<(usize, u64)>>;
}

/// Row pointers on the host.
pub(crate) struct OnHost<'a>(pub &'a [usize]);

impl RowPointers for OnHost<'_> {
    fn rows(&self) -> usize {
        self.0.len() - 1
    }

    fn entries(&self) -> u64 {
        self.0[self.rows()] as u64
    }

    fn longest(&self) -> Result<usize> {
        const CHUNK: usize = 1 << 16;
        let longest = |chunk: usize| {
            let first = chunk * CHUNK;
            let rows = self.0[first..(first + CHUNK + 1).min(self.0.len())].windows(2).enumerate();
            rows.map(|(i, w)| (w[1] - w[0], std::cmp::Reverse(first + i))).max()
        };
        let found = (0..self.rows().div_ceil(CHUNK)).into_par_iter().filter_map(longest).max();
        Ok(found.map_or(0, |(_, row)| row.0))
    }

    fn at(&self, rows: &[usize]) -> Result<Vec<u64>> {
        Ok(rows.iter().map(|&row| self.0[row] as u64).collect())
    }

    fn search(&self, all: &[Search]) -> Result<Vec<(usize, u64)>> {
        Ok(all.iter().map(|search| search.answer(|row| self.0[row] as u64)).collect())
    }
}

/// Cuts each block into parts of equal entries, or of equal rows if there are no entries, and returns `parts`
/// + 1 ends for each. All ends are searched for at once. Redundant blocks are not cut.
fn divide(on: &impl RowPointers, blocks: &[Block], parts: usize) -> Result<Vec<Vec<End>>> {
    let cut = |block: &&Block| !block.redundant && block.from.1 < block.to.1;
    let between =
        |from: u64, to: u64, part: usize| from + ((to - from) as u128 * part as u128 / parts as u128) as u64;
    let searches: Vec<Search> = blocks
        .iter()
        .filter(cut)
        .flat_map(|block| {
            let Block { from, to, fold, .. } = *block;
            (1..parts).map(move |part| Search {
                fold,
                low: from.0,
                high: to.0,
                wanted: between(from.1, to.1, part),
            })
        })
        .collect();
    let mut found = if searches.is_empty() { Vec::new() } else { on.search(&searches)? }.into_iter();
    let ends = blocks.iter().map(|block| {
        let by_search = cut(&block);
        let inner = (1..parts).filter(|_| !block.redundant).map(|part| match by_search {
            true => found.next().unwrap_or(block.to),
            false => (between(block.from.0 as u64, block.to.0 as u64, part) as usize, block.from.1),
        });
        std::iter::once(block.from).chain(inner.collect::<Vec<_>>()).chain([block.to]).collect()
    });
    Ok(ends.collect())
}

/// Returns the blocks of LRA and LRA+RC: short rows, long rows, and rows that every rank computes.
fn long_row_aware(on: &impl RowPointers, long: f64, redundant: f64) -> Result<Vec<Block>> {
    let rows = on.rows();
    let share = |share: f64| ((share * rows as f64).floor() as usize).min(rows);
    let long = share(long);
    let redundant = share(redundant).min(rows - long);
    let longest = on.longest()?;
    let start = if longest < long || long == 0 {
        0
    } else if longest >= rows - long {
        rows - long
    } else {
        (longest - long / 2).min(rows - long)
    };
    let short = rows - long;
    // The needed row pointers are those at the ends of the long block and of both candidates for redundant
    // rows.
    let row = |v: usize| if v < start { v } else { v + long };
    let candidates = [redundant, short - redundant];
    let asked = [start, start + long, row(candidates[0]), row(candidates[1])];
    let pointers = on.at(&asked)?;
    let fold = Fold { start, skipped: long, before: pointers[0], entries: pointers[1] - pointers[0] };
    // The folded row `start` is the row after the long block. The number of entries before it excludes that
    // block.
    let before = |k: usize| pointers[2 + k] - if candidates[k] < start { 0 } else { fold.entries };
    let (first, second) = ((candidates[0], before(0)), (candidates[1], before(1)));
    let (none, all) = ((0, 0), (short, on.entries() - fold.entries));
    let block = |from: End, to: End, redundant| Block { from, to, fold, redundant };
    let whole = Fold::none(rows, on.entries());
    let (from, to) = ((start, pointers[0]), (start + long, pointers[1]));
    let long = Block { from, to, fold: whole, redundant: false };
    Ok(match redundant {
        0 => vec![block(none, all, false), long],
        // The candidates are the first and the last of the short rows. Choose those with fewer entries.
        _ if first.1 <= all.1 - second.1 => vec![block(first, all, false), long, block(none, first, true)],
        _ => vec![block(none, second, false), long, block(second, all, true)],
    })
}

#[cfg(test)]
mod tests;
