//! Stored measurements of a matrix: plain numbers, as in `raw/NAME.json`.

use crate::samples::Samples;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Rows, nonzeros and row lengths.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Shape {
    pub rows: u64,
    pub nonzeros: u64,
    pub min: u64,
    pub max: u64,
}

impl Shape {
    pub fn of(row_ptr: &[usize]) -> Self {
        let lengths = || row_ptr.windows(2).map(|w| (w[1] - w[0]) as u64);
        Self {
            rows: row_ptr.len().saturating_sub(1) as u64,
            nonzeros: row_ptr.last().copied().unwrap_or(0) as u64,
            min: lengths().min().unwrap_or(0),
            max: lengths().max().unwrap_or(0),
        }
    }
    pub fn mean(&self) -> f64 {
        self.nonzeros as f64 / self.rows.max(1) as f64
    }
    /// Returns the least bytes of a product: values and columns, a 64-bit pointer and a number of y per row,
    /// x once.
    pub fn bytes(&self) -> u64 {
        12 * self.nonzeros + 16 * self.rows + 8 * self.rows
    }
}

/// Returns the entries before each 256th of the rows as a share of all, and the position of the longest row
/// as a share of the rows.
pub(super) fn profile(row_ptr: &[usize]) -> (Vec<f64>, f64) {
    let rows = row_ptr.len() - 1;
    let all = row_ptr[rows].max(1) as f64;
    let before = (0..=256).map(|k| row_ptr[rows * k / 256] as f64 / all).collect();
    let longest = (0..rows).max_by_key(|&i| row_ptr[i + 1] - row_ptr[i]).unwrap_or(0);
    (before, longest as f64 / rows.max(1) as f64)
}

/// A variant of a product, or of a number of iterations.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Row {
    pub name: String,
    /// Settings chosen by measurement.
    pub notes: String,
    /// Number of devices.
    pub ranks: usize,
    /// Seconds of the set-up on the slowest rank, without compiling kernels.
    pub setup: f64,
    /// Seconds of a product, or of all iterations, on the slowest rank.
    pub samples: Vec<f64>,
    /// Median of a short preliminary trial, by which `auto` chooses.
    pub trial: f64,
    /// Seconds of the longest kernel alone, if measured separately.
    pub kernel: Option<f64>,
    /// Largest error as a share of Σ|a x|.
    pub error: f64,
    /// The reason if there is no time.
    pub failure: Option<String>,
    /// True if the result is wrong, which is worse than no time.
    pub wrong: bool,
}

impl Row {
    pub fn failed(name: &str, why: impl ToString) -> Self {
        Self { name: name.into(), failure: Some(why.to_string()), ..Self::default() }
    }
    /// Returns the median seconds; NaN without samples.
    pub fn seconds(&self) -> f64 {
        Samples(self.samples.clone()).median()
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Point {
    pub long: f64,
    pub redundant: f64,
    pub seconds: f64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Found {
    /// Build and options of the measurement.
    pub key: String,
    /// Number in Table 2; 0 for other matrices.
    pub id: usize,
    pub name: String,
    /// Origin of the matrix.
    pub source: String,
    pub shape: Shape,
    /// The shape in Table 2.
    pub table: Option<Shape>,
    /// Entries before each 256th of the rows, as a share of all, for `krylith model`.
    pub profile: Vec<f64>,
    /// Position of the longest row, as a share of the rows.
    pub longest: f64,
    /// Seconds to generate or read the matrix.
    pub made: f64,
    pub device: Value,
    /// Kind of the bandwidth, and bytes a second.
    pub bandwidth: (String, f64),
    /// Number of devices in the measurements on several.
    pub ranks: usize,
    pub single: Vec<Row>,
    pub multi: Vec<Row>,
    pub sweep: Vec<Point>,
    pub cg: Vec<Row>,
    pub iterations: usize,
    /// Missing measurements, with the reason.
    pub notes: Vec<String>,
    /// The reason if nothing was measured.
    pub failure: Option<String>,
}

impl Found {
    /// Returns the median seconds of a variant on one device.
    pub fn single(&self, name: &str) -> f64 {
        self.single.iter().find(|r| r.name == name).map_or(f64::NAN, Row::seconds)
    }
    /// Returns Krylith's product on one device, the baseline of speed-ups.
    pub fn ours(&self) -> f64 {
        self.single(super::ground::OURS)
    }
    /// Returns the fastest row whose name starts with `prefix`.
    pub fn fastest(&self, prefix: &str) -> Option<&Row> {
        let timed = self.single.iter().filter(|r| r.name.starts_with(prefix) && !r.samples.is_empty());
        timed.min_by(|a, b| a.seconds().total_cmp(&b.seconds()))
    }
    pub fn multi(&self, name: &str) -> Option<&Row> {
        self.multi.iter().find(|r| r.name == name && !r.samples.is_empty())
    }
    /// Returns the results that fail their check.
    pub fn failures(&self) -> impl Iterator<Item = String> + '_ {
        let rows = self.single.iter().chain(&self.multi).chain(&self.cg).filter(|r| r.wrong);
        rows.map(|r| format!("{}, {}: {}", self.name, r.name, r.failure.as_deref().unwrap_or("wrong")))
    }
}

/// Returns the choice of a short trial over all variants, one device among them: name, seconds, and time over
/// the best.
pub(super) fn auto(found: &Found) -> Option<(String, f64, f64)> {
    let one = found.single.iter().find(|r| r.name == super::ground::OURS);
    let all = || {
        let ours = found.multi.iter().filter(|r| r.name != PCSR && !r.name.starts_with(IN_MODES));
        one.into_iter().chain(ours).filter(|r| !r.samples.is_empty())
    };
    let pick = all().min_by(|a, b| a.trial.total_cmp(&b.trial))?;
    let best = all().map(Row::seconds).fold(f64::INFINITY, f64::min);
    Some((pick.name.clone(), pick.seconds(), pick.seconds() / best - 1.0))
}

/// MSREP's product, a baseline that `auto` does not choose.
pub(super) const PCSR: &str = "pCSR (MSREP)";
/// Prefix of the modes with the paper's own kernel, baselines that `auto` does not choose.
pub(super) const IN_MODES: &str = "CSR-vector in ";

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, trial: f64, seconds: f64) -> Row {
        Row { name: name.into(), trial, samples: vec![seconds], ..Row::default() }
    }

    #[test]
    fn auto_takes_the_winner_of_the_trial_and_knows_what_it_missed() {
        let found = Found {
            single: vec![row(super::super::ground::OURS, 2.0, 2.0), row("other", 0.1, 0.1)],
            multi: vec![
                row("nz", 1.0, 1.1),
                row("fused", 1.2, 1.0),
                row(PCSR, 0.5, 0.5),
                row("CSR-vector in 2nz", 0.4, 0.4),
            ],
            ..Found::default()
        };
        let (name, seconds, missed) = auto(&found).unwrap();
        assert_eq!((name.as_str(), seconds), ("nz", 1.1));
        assert!((missed - 0.1).abs() < 1e-12);
        assert!(auto(&Found::default()).is_none());
    }

    #[test]
    fn a_shape_is_that_of_the_row_pointers() {
        let shape = Shape::of(&[0, 2, 2, 7]);
        assert_eq!(shape, Shape { rows: 3, nonzeros: 7, min: 0, max: 5 });
        assert_eq!(shape.bytes(), 7 * 12 + 3 * 24);
        assert_eq!(Shape::of(&[0]), Shape::default());
    }
}
