//! Repeated measurements.

use krylith::Result;
use serde_json::{Value, json};

/// Seconds of each repetition, in the order they were taken.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Samples(pub Vec<f64>);

impl Samples {
    /// The middle one, or the mean of the middle two.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => sorted[n / 2],
            n => 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]),
        }
    }
    /// The shortest.
    pub fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }
    /// The longest.
    pub fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }
    /// Everything, for a report.
    pub fn json(&self) -> Value {
        json!({ "median": self.median(), "min": self.min(), "max": self.max(), "samples": self.0 })
    }
    /// `0.167 (0.165–0.171)` in the unit that `scale` makes of seconds.
    pub fn text(&self, scale: f64) -> String {
        let digits = if self.median() * scale < 0.1 { 4 } else { 3 };
        let show = |x: f64| format!("{:.digits$}", x * scale);
        format!("{} ({}–{})", show(self.median()), show(self.min()), show(self.max()))
    }
}

/// Takes `repetitions` samples of `candidates` things in turn, after `warm` rounds that are thrown away.
///
/// Taking turns spreads drifts of clocks and neighbours over everything that is compared.
pub(crate) fn in_turn(
    candidates: usize,
    warm: usize,
    repetitions: usize,
    mut sample: impl FnMut(usize) -> Result<f64>,
) -> Result<Vec<Samples>> {
    let mut all = vec![Samples::default(); candidates];
    for round in 0..warm + repetitions {
        for (i, samples) in all.iter_mut().enumerate() {
            let seconds = sample(i)?;
            if round >= warm {
                samples.0.push(seconds);
            }
        }
    }
    Ok(all)
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
    fn candidates_take_turns_and_warm_rounds_are_dropped() {
        let mut order = Vec::new();
        let all = in_turn(2, 1, 2, |i| {
            order.push(i);
            Ok(order.len() as f64)
        });
        assert_eq!(all.unwrap(), vec![Samples(vec![3.0, 5.0]), Samples(vec![4.0, 6.0])]);
        assert_eq!(order, [0, 1, 0, 1, 0, 1]);
    }
}
