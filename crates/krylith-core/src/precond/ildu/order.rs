//! The order in which a subdomain's rows are eliminated.
//!
//! Incomplete factors depend on this order. The natural order, ascending own numbers, is kept if it is good:
//! for grids and meshes numbered along a direction, rows wait for few others and the factors are close to
//! those of a direct method. A numbering without locality costs a quarter to seven tenths more iterations
//! (shuffled 64³ Laplacian, subdomains of 512 rows and whole). One that winds through the subdomain puts
//! every row on its own level. In these cases the reverse Cuthill–McKee order is better. Colourings would
//! have even fewer levels, but far worse factors.
//!
//! # The rule
//!
//! For n rows, E entries off the diagonal, and the natural order's profile P and number of levels L, all for
//! the pattern without fill and in integers:
//!
//! 1. With fewer than 8 rows the natural order is kept.
//! 2. The order is suspect by its profile if 6 P > n². Boxes numbered along an axis have P ≤ n²/8, shuffled
//!    rows n²/4 (two neighbours each) to n²/2 (very many).
//! 3. The order is suspect by its levels if L³ > 64 n and L n > 2 d · max(n, E − 5 n). Here d is the number
//!    of rows on the longest of the shortest paths from the lowest row of the last level, found by one
//!    breadth-first search. Rows numbered along a direction have d levels in a 5-point or 7-point grid and
//!    less than 2 d in a triangular one; no breadth-first order from that row has fewer than d. Rows of many
//!    neighbours need more levels in any order, so d counts more if E/n is above 6.
//! 4. An order that is not suspect is kept, and no other is tried. For a suspect one the reverse
//!    Cuthill–McKee order is computed, and used if it has less than half the profile or less than half the
//!    levels.

use super::fill::Pattern;

/// Returns the order of elimination, or `None` for the natural one. `levels` are those of the natural order;
/// no entry is farther than `width` from the diagonal.
pub(super) fn choose(pattern: &Pattern, levels: &[u32], width: usize) -> Option<Vec<u32>> {
    let n = pattern.len();
    // Too few rows for the order to matter.
    if n < 8 {
        return None;
    }
    let count = level_count(levels);
    // Since P ≤ n · width, most patterns need no computation of their profile.
    if 6 * width <= n && (count as u128).pow(3) <= 64 * n as u128 {
        return None;
    }
    let natural = profile(pattern);
    if !suspect(pattern, levels, count, natural) {
        return None;
    }
    let order = reverse_cuthill_mckee(pattern);
    let other = pattern.permuted(&order);
    let better = 2 * profile(&other) < natural || 2 * level_count(&other.levels()) < count;
    better.then_some(order)
}

/// Returns true if another order is worth a try: points 2 and 3 of the rule.
fn suspect(pattern: &Pattern, levels: &[u32], count: usize, profile: usize) -> bool {
    let (n, l) = (pattern.len() as u128, count as u128);
    let entries = pattern.col.len() as u128 - n;
    if 6 * profile as u128 > n * n {
        return true;
    }
    l.pow(3) > 64 * n
        && l * n > 2 * depth(pattern, levels, count) as u128 * n.max(entries.saturating_sub(5 * n))
}

/// Returns the number of rows on the longest of the shortest paths from the lowest row of the last level.
fn depth(pattern: &Pattern, levels: &[u32], count: usize) -> usize {
    let start = levels.iter().position(|&l| l as usize + 1 == count).expect("the last level has rows");
    let (ptr, neighbours) = pattern.neighbours();
    let mut seen = vec![false; pattern.len()];
    let (mut front, mut next) = (vec![start as u32], Vec::new());
    seen[start] = true;
    let mut depth = 0;
    while !front.is_empty() {
        depth += 1;
        for &i in &front {
            for &j in &neighbours[ptr[i as usize]..ptr[i as usize + 1]] {
                if !std::mem::replace(&mut seen[j as usize], true) {
                    next.push(j);
                }
            }
        }
        front.clear();
        std::mem::swap(&mut front, &mut next);
    }
    depth
}

/// Returns the number of levels of a pattern.
fn level_count(levels: &[u32]) -> usize {
    levels.iter().max().map_or(0, |&l| l as usize + 1)
}

/// Returns the sum over rows of the distance between the diagonal and the first entry, in either direction.
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

/// Returns the reverse Cuthill–McKee order: breadth-first from a node far from others, neighbours by degree,
/// component by component, and then reversed (George and Liu 1981).
pub(in crate::precond) fn reverse_cuthill_mckee(pattern: &Pattern) -> Vec<u32> {
    let n = pattern.len();
    let (ptr, mut neighbours) = pattern.neighbours();
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
        // The last node of a search is far from its start: the second search starts there, and so does the
        // third, whose order is kept.
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

/// Sorts rows by level, keeping their order within each, and returns where each level begins.
pub(super) fn by_level(levels: &[u32], order: &mut Vec<u32>, begin: &mut Vec<u32>) {
    let count = level_count(levels);
    begin.clear();
    begin.resize(count + 1, 0);
    // The position of a level's next row is stored one slot further on; it ends up as the level's end.
    levels.iter().filter(|&&l| (l as usize) + 1 < count).for_each(|&l| begin[l as usize + 2] += 1);
    (2..=count).for_each(|l| begin[l] += begin[l - 1]);
    order.resize(levels.len(), 0);
    for (i, &l) in levels.iter().enumerate() {
        let next = &mut begin[l as usize + 1];
        order[*next as usize] = i as u32;
        *next += 1;
    }
    begin.truncate(count);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the pattern of a grid's couplings to neighbours by `offsets`, where point i has the number
    /// `name(i)`.
    fn grid(n: [usize; 3], offsets: &[[isize; 3]], name: impl Fn([usize; 3]) -> usize) -> Pattern {
        let at = |i: usize| [i % n[0], i / n[0] % n[1], i / (n[0] * n[1])];
        let total = n.iter().product();
        let mut rows = vec![Vec::new(); total];
        for i in 0..total {
            let x = at(i);
            let row = &mut rows[name(x)];
            row.push(name(x) as u32);
            for offset in offsets {
                let y: Option<Vec<usize>> =
                    (0..3).map(|d| x[d].checked_add_signed(offset[d]).filter(|&y| y < n[d])).collect();
                row.extend(y.map(|y| name([y[0], y[1], y[2]]) as u32));
            }
            row.sort_unstable();
        }
        let mut row_ptr = vec![0];
        rows.iter().for_each(|row| row_ptr.push(row_ptr[row_ptr.len() - 1] + row.len()));
        let col = rows.concat();
        Pattern { row_ptr, from: (0..col.len() as u32).collect(), col }
    }

    fn is_suspect(pattern: &Pattern) -> bool {
        let levels = pattern.levels();
        suspect(pattern, &levels, level_count(&levels), profile(pattern))
    }

    const FACES: [[isize; 3]; 6] = [[-1, 0, 0], [0, -1, 0], [0, 0, -1], [1, 0, 0], [0, 1, 0], [0, 0, 1]];

    #[test]
    fn boxes_keep_their_order_unseen() {
        let all: Vec<[isize; 3]> = (0..27).map(|o| [o % 3 - 1, o / 3 % 3 - 1, o / 9 - 1]).collect();
        let tetrahedra: Vec<_> = all.iter().copied().filter(|o| o.iter().all(|&x| x >= 0)).collect();
        let tetrahedra: Vec<_> = tetrahedra.iter().flat_map(|&o| [o, o.map(|x| -x)]).collect();
        let off =
            |offsets: &[[isize; 3]]| -> Vec<_> { offsets.iter().copied().filter(|&o| o != [0; 3]).collect() };
        for n in [[16, 16, 8], [8, 8, 8], [43, 43, 1], [20, 10, 10]] {
            for offsets in [&FACES[..], &off(&all), &off(&tetrahedra)] {
                let natural = grid(n, offsets, |x| x[0] + n[0] * (x[1] + n[1] * x[2]));
                assert!(!is_suspect(&natural), "{n:?}, {} neighbours", offsets.len());
            }
        }
    }

    #[test]
    fn shuffled_and_winding_orders_give_way() {
        let n = [16, 16, 8];
        let shuffled = |x: [usize; 3]| (x[0] + 16 * (x[1] + 16 * x[2])) * 769 % 2048;
        let winding = |x: [usize; 3]| {
            let y = if x[2] % 2 == 1 { 15 - x[1] } else { x[1] };
            let x0 = if (x[1] + x[2]) % 2 == 1 { 15 - x[0] } else { x[0] };
            x0 + 16 * (y + 16 * x[2])
        };
        for (label, pattern) in
            [("shuffled", grid(n, &FACES, shuffled)), ("winding", grid(n, &FACES, winding))]
        {
            assert!(is_suspect(&pattern), "{label}");
            assert!(choose(&pattern, &pattern.levels(), pattern.len()).is_some(), "{label}");
        }
    }
}
