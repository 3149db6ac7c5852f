//! Means over matrices, with and without those that the paper (named in `spmv/mod.rs`) treats separately.

pub(crate) use krylith_model::means;

/// The first five of Table 2, with the shortest rows.
pub(super) const SHORT: std::ops::RangeInclusive<usize> = 1..=5;
/// FullChip and the two Twitter graphs, with rows of two and three million entries.
pub(super) const GIANT: [usize; 3] = [7, 14, 22];

/// A set of matrices by number.
pub(super) type Set = (&'static str, fn(usize) -> bool);

/// The sets of matrices for means.
pub(super) const SETS: [Set; 4] = [
    ("all", |_| true),
    ("the first five", |id| SHORT.contains(&id)),
    ("without the first five", |id| !SHORT.contains(&id)),
    ("without FullChip and the Twitter graphs", |id| !GIANT.contains(&id)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_those_of_the_paper() {
        assert_eq!((1..=24).filter(|&id| SETS[2].1(id)).count(), 19);
        assert_eq!((1..=24).filter(|&id| SETS[3].1(id)).count(), 21);
    }
}
