//! Means over matrices, with and without those that the paper sets apart.

/// The first five of Table 2: shorter rows than any other.
pub(super) const SHORT: std::ops::RangeInclusive<usize> = 1..=5;
/// FullChip and the two Twitter graphs: rows of two and three million.
pub(super) const GIANT: [usize; 3] = [7, 14, 22];

/// A set of matrices by number.
pub(super) type Set = (&'static str, fn(usize) -> bool);

/// The sets that means are given of.
pub(super) const SETS: [Set; 4] = [
    ("all", |_| true),
    ("the first five", |id| SHORT.contains(&id)),
    ("without the first five", |id| !SHORT.contains(&id)),
    ("without FullChip and the Twitter graphs", |id| !GIANT.contains(&id)),
];

/// Arithmetic and geometric mean of what is a positive number; NaN of nothing.
pub(crate) fn means(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let all: Vec<f64> = values.filter(|v| v.is_finite() && *v > 0.0).collect();
    let n = all.len() as f64;
    (all.iter().sum::<f64>() / n, (all.iter().map(|v| v.ln()).sum::<f64>() / n).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_leave_out_what_was_not_measured() {
        let (arithmetic, geometric) = means([1.0, f64::NAN, 4.0].into_iter());
        assert!((arithmetic - 2.5).abs() < 1e-15 && (geometric - 2.0).abs() < 1e-15);
        assert!(means(std::iter::empty()).0.is_nan());
        assert_eq!((1..=24).filter(|&id| SETS[2].1(id)).count(), 19);
        assert_eq!((1..=24).filter(|&id| SETS[3].1(id)).count(), 21);
    }
}
