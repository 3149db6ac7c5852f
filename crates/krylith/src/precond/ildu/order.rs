//! The order in which a subdomain's rows are eliminated.
//!
//! Incomplete factors depend on it. The natural order, ascending own numbers, is kept where it is as good as any: grids
//! and meshes numbered along a direction, where rows wait for few others and the factors are near those of a direct
//! method. A numbering without neighbourhood costs a quarter to two thirds more iterations (shuffled 64³ Laplacian,
//! subdomains of 512 rows and whole), and one that winds through the subdomain makes a level of every row. Both are
//! measured against the reverse Cuthill–McKee order, which is taken where it has less than half the profile or less
//! than half the levels. Colourings would have fewer levels still, and far worse factors.

use super::fill::Pattern;

/// The order of elimination, or `None` for the natural one.
pub(super) fn choose(pattern: &Pattern) -> Option<Vec<u32>> {
    // Too few rows for a difference.
    if pattern.len() < 8 {
        return None;
    }
    let order = reverse_cuthill_mckee(pattern);
    let other = pattern.permuted(&order);
    let better = 2 * profile(&other) < profile(pattern) || 2 * level_count(&other) < level_count(pattern);
    better.then_some(order)
}

/// Levels of a pattern.
fn level_count(pattern: &Pattern) -> u32 {
    pattern.levels().into_iter().max().map_or(0, |l| l + 1)
}

/// Σ over rows of the distance between the diagonal and the first entry, either way.
fn profile(pattern: &Pattern) -> usize {
    let n = pattern.len();
    let mut first: Vec<usize> = (0..n).collect();
    for i in 0..n {
        for &j in pattern.row(i) {
            let (low, high) = (i.min(j as usize), i.max(j as usize));
            first[high] = first[high].min(low);
        }
    }
    first.iter().enumerate().map(|(i, first)| i - first).sum()
}

/// Breadth-first from a node far from others, neighbours by degree, component by component, and all that reversed
/// (George and Liu 1981).
fn reverse_cuthill_mckee(pattern: &Pattern) -> Vec<u32> {
    let n = pattern.len();
    // Neighbours either way; one that is coupled both ways stands twice, which the search does not mind.
    let mut ptr = vec![0usize; n + 1];
    let edges =
        || (0..n).flat_map(|i| pattern.row(i).iter().map(move |&j| (i, j as usize))).filter(|(i, j)| i != j);
    for (i, j) in edges() {
        ptr[i + 1] += 1;
        ptr[j + 1] += 1;
    }
    (0..n).for_each(|i| ptr[i + 1] += ptr[i]);
    let (mut next, mut neighbours) = (ptr.clone(), vec![0u32; ptr[n]]);
    for (i, j) in edges() {
        neighbours[next[i]] = j as u32;
        neighbours[next[j]] = i as u32;
        next[i] += 1;
        next[j] += 1;
    }
    let degree = |i: u32| ptr[i as usize + 1] - ptr[i as usize];
    for i in 0..n {
        neighbours[ptr[i]..ptr[i + 1]].sort_unstable_by_key(|&j| (degree(j), j));
    }
    const DONE: u8 = 3;
    let mut seen = vec![0u8; n];
    let mut order: Vec<u32> = Vec::with_capacity(n);
    for root in 0..n as u32 {
        if seen[root as usize] == DONE {
            continue;
        }
        let (begin, mut start) = (order.len(), root);
        // The last node of a search is far from its start; from there once more, and then for good.
        for mark in 1..=DONE {
            order.truncate(begin);
            order.push(start);
            seen[start as usize] = mark;
            let mut at = begin;
            while at < order.len() {
                let i = order[at] as usize;
                at += 1;
                for &j in &neighbours[ptr[i]..ptr[i + 1]] {
                    if seen[j as usize] != mark {
                        seen[j as usize] = mark;
                        order.push(j);
                    }
                }
            }
            start = order[order.len() - 1];
        }
    }
    order.reverse();
    order
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
