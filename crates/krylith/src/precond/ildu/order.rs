//! The order in which a subdomain's rows are eliminated.

use super::fill::Pattern;

/// The order of elimination, or `None` for the natural one: ascending own numbers.
pub(super) fn choose(_pattern: &Pattern) -> Option<Vec<u32>> {
    None
}

/// Rows sorted by level, in their order within one, and where each level begins.
pub(super) fn by_level(levels: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let count = levels.iter().max().map_or(0, |&l| l as usize + 1);
    let mut begin = vec![0u32; count + 1];
    levels.iter().for_each(|&l| begin[l as usize + 1] += 1);
    (0..count).for_each(|l| begin[l + 1] += begin[l]);
    let mut next = begin.clone();
    let mut order = vec![0u32; levels.len()];
    for (i, &l) in levels.iter().enumerate() {
        order[next[l as usize] as usize] = i as u32;
        next[l as usize] += 1;
    }
    begin.truncate(count);
    (order, begin)
}
