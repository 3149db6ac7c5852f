//! Defects of pivots, and their statistics.

use crate::{Error, Result};

/// A pivot smaller than this, relative to the largest entry of its row, counts as tiny.
pub const TINY_PIVOT: f64 = 1e-14;

/// Defect of a pivot.
///
/// # Examples
/// ```
/// use krylith_core::precond::PivotKind;
/// assert_eq!(PivotKind::Zero.name(), "zero"); // as errors and events call it
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PivotKind {
    /// The pivot is zero, or a block that is exactly singular.
    Zero,
    /// The pivot is below [`TINY_PIVOT`] times the largest entry of its row in the subdomain's part of the
    /// matrix.
    Tiny,
    /// The pivot or its inverse is NaN or infinite.
    NotFinite,
}

impl PivotKind {
    /// Returns the name in messages.
    pub fn name(self) -> &'static str {
        match self {
            PivotKind::Zero => "zero",
            PivotKind::Tiny => "tiny",
            PivotKind::NotFinite => "non-finite",
        }
    }

    /// Returns the kind that kernels name by this number.
    #[cfg(feature = "cuda")]
    pub(crate) fn of_code(code: u64) -> Self {
        [PivotKind::Zero, PivotKind::Tiny, PivotKind::NotFinite, PivotKind::NotFinite][(code & 3) as usize]
    }
}

/// Statistics of the pivots of a factorisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[doc(hidden)]
pub struct Pivots {
    /// Number of pivots that could not be inverted and were not corrected.
    pub bad: usize,
    /// Own block row and defect of the bad pivot in the lowest row.
    pub first: Option<(u32, PivotKind)>,
    /// Number of pivots corrected by a shift.
    pub shifted: usize,
}

impl Pivots {
    /// Counts a bad pivot.
    pub fn found(&mut self, row: u32, kind: PivotKind) {
        self.bad += 1;
        self.first = Some(self.first.map_or((row, kind), |first| first.min((row, kind))));
    }

    /// Returns the statistics of both together. The order does not matter.
    pub fn with(self, other: Self) -> Self {
        let first = match (self.first, other.first) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Self { bad: self.bad + other.bad, first, shifted: self.shifted + other.shifted }
    }

    /// Returns the statistics of a kernel: row · 4 + kind of the bad pivot in the lowest row, or `u64::MAX`;
    /// the number of bad pivots in the lower 32 bits, and of shifted ones in the upper 32 bits.
    #[cfg(feature = "cuda")]
    pub(crate) fn of_kernel([first, counts]: [u64; 2]) -> Self {
        let first = (first != u64::MAX).then(|| ((first >> 2) as u32, PivotKind::of_code(first & 3)));
        Self { bad: counts as u32 as usize, first, shifted: (counts >> 32) as usize }
    }

    /// Returns an error with this remedy if there is a bad pivot; `number` gives the row in the message.
    pub(crate) fn check(&self, number: impl FnOnce(usize) -> usize, remedy: &'static str) -> Result<()> {
        let Some((row, kind)) = self.first else { return Ok(()) };
        Err(Error::Pivot { row: number(row as usize), kind: kind.name(), remedy })
    }
}
