//! The order in which a subdomain's rows are eliminated.
//!
//! Incomplete factors depend on this order. The natural order (rows by ascending number) is kept if it is
//! good. It is good for grids and meshes numbered along a direction: there are few levels, and the factors
//! are accurate. A numbering without locality costs more iterations. A shuffled 64³ Laplacian takes a quarter
//! more in subdomains of 512 rows, and seven tenths more as one subdomain. A numbering that winds through the
//! subdomain puts every row on its own level. In these cases the reverse Cuthill–McKee order is better.
//! Colourings would have even fewer levels, but far worse factors.
//!
//! # The rule
//!
//! Let n be the number of rows, E the number of entries off the diagonal, P the profile of the natural order
//! and L its number of levels. All belong to the pattern without fill, and the rule uses integer arithmetic:
//!
//! 1. With fewer than 8 rows the natural order is kept.
//! 2. The order is suspect by its profile if 6 P > n². Boxes numbered along an axis have P ≤ n²/8, shuffled
//!    rows n²/4 (two neighbours each) to n²/2 (very many).
//! 3. The order is suspect by its levels if L³ > 64 n and L n > 2 d · max(n, E − 5 n). Here d is the depth of
//!    a breadth-first search from the lowest row of the last level, in rows. Rows numbered along a direction
//!    have d levels in a 5-point or 7-point grid, and fewer than 2 d in a triangular grid. No breadth-first
//!    order from that row has fewer than d levels. Rows with many neighbours need more levels in any order,
//!    so the bound grows if E/n is above 6.
//! 4. An order that is not suspect is kept, and no other order is tried. If it is suspect, the reverse
//!    Cuthill–McKee order is computed. It is used if it halves the profile or the number of levels.

use super::fill::Pattern;
use crate::partition::{self, Groups};

/// Largest number of groups of rows with the same columns, as a share of the rows, with which a search of
/// groups is faster than one of rows.
const ALIKE: f64 = 0.7;

/// Returns the order of elimination and the pattern in this order, or `None` for the natural order. `levels`
/// belong to the natural order, and no entry is farther than `width` from the diagonal.
pub(in crate::precond) fn choose(
    pattern: &Pattern,
    levels: &[u32],
    width: usize,
) -> Option<(Vec<u32>, Pattern)> {
    let n = pattern.len();
    // There are too few rows for the order to matter.
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
    better.then_some((order, other))
}

/// Returns true if the natural order is suspect: points 2 and 3 of the rule.
fn suspect(pattern: &Pattern, levels: &[u32], count: usize, profile: usize) -> bool {
    let (n, l) = (pattern.len() as u128, count as u128);
    let entries = pattern.col.len() as u128 - n;
    if 6 * profile as u128 > n * n {
        return true;
    }
    let enough = (l * n).div_ceil(2 * n.max(entries.saturating_sub(5 * n)));
    l.pow(3) > 64 * n && depth(pattern, levels, count, enough as usize) < enough as usize
}

/// Returns d: the depth of a breadth-first search from the lowest row of the last level, or `enough` if it is
/// at least that.
fn depth(pattern: &Pattern, levels: &[u32], count: usize, enough: usize) -> usize {
    let start = levels.iter().position(|&l| l as usize + 1 == count).expect("the last level has rows");
    // The rows of a symmetric pattern have all neighbours.
    let columns = (!pattern.is_symmetric()).then(|| pattern.transposed());
    let of_column = |j: usize| columns.as_ref().map_or(&[][..], |(ptr, rows)| &rows[ptr[j]..ptr[j + 1]]);
    let mut seen = vec![false; pattern.len()];
    let (mut front, mut next) = (vec![start as u32], Vec::new());
    seen[start] = true;
    let mut depth = 0;
    while !front.is_empty() && depth < enough {
        depth += 1;
        for &i in &front {
            for &j in pattern.row(i as usize).iter().chain(of_column(i as usize)) {
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

/// Returns the reverse Cuthill–McKee order of a pattern. Rows with the same columns take part as one.
pub(in crate::precond) fn reverse_cuthill_mckee(pattern: &Pattern) -> Vec<u32> {
    if !pattern.is_symmetric() {
        let (ptr, mut neighbours) = pattern.neighbours();
        return partition::reverse_cuthill_mckee(&ptr, &mut neighbours);
    }
    let groups = Groups::of_rows(&pattern.row_ptr, &pattern.col);
    if groups.count() as f64 <= ALIKE * pattern.len() as f64 {
        return groups.reverse_cuthill_mckee(&pattern.row_ptr, &pattern.col);
    }
    let (ptr, mut others) = pattern.others();
    partition::reverse_cuthill_mckee(&ptr, &mut others)
}

/// Writes the rows, or other items, to `order`, sorted by level and in their old order within each level.
/// Writes the beginning of each level to `begin`.
pub(crate) fn by_level(levels: &[u32], order: &mut Vec<u32>, begin: &mut Vec<u32>) {
    let count = level_count(levels);
    begin.clear();
    begin.resize(count + 1, 0);
    // Slot l + 1 holds the position of the next row of level l, so that it ends up as the end of level l.
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

    /// Returns the pattern of a grid whose points are coupled to the neighbours at `offsets`. Point i has the
    /// number `name(i)`.
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

    /// A search that stops early says whether the depth is large enough, also for patterns that are not
    /// symmetric.
    #[test]
    fn depths_are_bounded() {
        let shifted =
            |offsets: &'static [[isize; 3]]| grid([9, 7, 5], offsets, |x| x[0] + 9 * (x[1] + 7 * x[2]));
        for pattern in [shifted(&FACES), shifted(&[[-1, 0, 0], [0, -1, 0], [0, 0, -1]])] {
            let levels = pattern.levels();
            let count = level_count(&levels);
            let whole = depth(&pattern, &levels, count, usize::MAX);
            assert_eq!(whole, 8 + 6 + 4 + 1);
            let bounded = |enough| depth(&pattern, &levels, count, enough);
            assert_eq!([0, 1, 7, whole + 1].map(bounded), [0, 1, 7, whole]);
        }
        assert!(shifted(&FACES).is_symmetric() && !shifted(&[[-1, 0, 0]]).is_symmetric());
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
