//! Repeated measurements, and means over several measured values.

use serde_json::{Value, json};

/// Seconds of each repetition, in order.
///
/// # Examples
/// ```
/// use krylith_model::Samples;
/// let solve = Samples(vec![1.7e-3, 1.6e-3, 4.1e-3]); // the last one was disturbed
/// assert_eq!(solve.median(), 1.7e-3);
/// assert_eq!(solve.text(1e3), "1.700 (1.600–4.100)"); // in ms
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Samples(pub Vec<f64>);

impl Samples {
    /// Returns the middle value, or the mean of the middle two; NaN if there are none.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => sorted[n / 2],
            n => 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]),
        }
    }
    /// Returns the shortest time.
    pub fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }
    /// Returns the longest time.
    pub fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }
    /// Returns median, extremes and samples as JSON, for a report.
    pub fn json(&self) -> Value {
        json!({ "median": self.median(), "min": self.min(), "max": self.max(), "samples": self.0 })
    }
    /// Returns a text such as `0.167 (0.165–0.171)`; `scale` converts seconds to its unit.
    pub fn text(&self, scale: f64) -> String {
        let digits = if self.median() * scale < 0.1 { 4 } else { 3 };
        let show = |x: f64| format!("{:.digits$}", x * scale);
        format!("{} ({}–{})", show(self.median()), show(self.min()), show(self.max()))
    }
}

/// Returns the arithmetic and the geometric mean of positive numbers; NaN if there are none.
pub fn means(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let all: Vec<f64> = values.filter(|v| v.is_finite() && *v > 0.0).collect();
    let n = all.len() as f64;
    (all.iter().sum::<f64>() / n, (all.iter().map(|v| v.ln()).sum::<f64>() / n).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_with_minimum_and_maximum() {
        let s = Samples(vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!((s.median(), s.min(), s.max()), (2.5, 1.0, 4.0));
        assert_eq!(Samples(vec![3.0, 1.0, 2.0]).median(), 2.0);
        assert!(Samples::default().median().is_nan());
        assert_eq!(Samples(vec![0.0015]).text(1e3), "1.500 (1.500–1.500)");
    }

    #[test]
    fn means_leave_out_what_was_not_measured() {
        let (arithmetic, geometric) = means([1.0, f64::NAN, 4.0].into_iter());
        assert!((arithmetic - 2.5).abs() < 1e-15 && (geometric - 2.0).abs() < 1e-15);
        assert!(means(std::iter::empty()).0.is_nan());
    }
}
