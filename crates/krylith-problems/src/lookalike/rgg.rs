//! `rgg`: random points in the unit square, joined if their distance is below r.
//!
//! The original has r = 0.55 √(ln n / n). Here r is chosen to give exactly its number of entries (the same r
//! to three digits); at a smaller scale, to keep its mean row. Points are numbered by cells of edge about r,
//! row of cells by row, so a row of the matrix touches three short runs of columns. The number of points per
//! cell follows Poisson's distribution, as for uniformly random points. The pattern is symmetric and has no
//! diagonal.
//!
//! A few edges are then changed, and the changes kept as a list, so that the shortest and longest rows have
//! the original's lengths. One point is isolated, the point with most neighbours gets more (nearest first),
//! and points with too many lose some. As many edges are added or removed elsewhere.

use rayon::prelude::*;
use std::ops::Range;

use super::Shape;
use super::build::{Pattern, offsets};
use super::hash::{below, mix};
use super::lengths::{draw, settle};
use crate::random::Random;

#[derive(Debug)]
pub(super) struct Rgg {
    /// Cells along each side of the square.
    side: usize,
    /// First point of each cell.
    begin: Vec<usize>,
    lengths: Vec<u32>,
    /// r² in units of a cell.
    reach: f64,
    lonely: usize,
    /// Pairs whose joint differs from the distance rule, in both directions and sorted.
    changed: Vec<(u32, u32)>,
    seed: u64,
}

/// The points of a cell and of its neighbour cells, in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct Near {
    /// Numbers of the cell's points, and their offset in the arrays.
    own: Range<usize>,
    first: usize,
    number: Vec<u32>,
    x: Vec<f64>,
    y: Vec<f64>,
    /// Scratch memory for a row.
    found: Vec<u32>,
}

impl Near {
    /// Returns the squared distances of all points from point `i` of the cell.
    fn apart(&self, i: usize) -> impl Iterator<Item = f64> + '_ {
        let at = self.first + i - self.own.start;
        let (x, y) = (self.x[at], self.y[at]);
        self.x.iter().zip(&self.y).map(move |(p, q)| (p - x) * (p - x) + (q - y) * (q - y))
    }

    /// Counts the neighbours of point `i` of the cell, without the point itself.
    fn count(&self, i: usize, reach: f64) -> usize {
        self.apart(i).map(|d| usize::from(d < reach)).sum::<usize>() - 1
    }
}

impl Rgg {
    pub fn new(shape: &Shape, seed: u64) -> Self {
        let n = shape.rows as usize;
        // Two random points are nearer than r with probability πr² − 8r³/3 + r⁴/2.
        let pairs = |r: f64| r * r * (std::f64::consts::PI - 8.0 / 3.0 * r + 0.5 * r * r);
        let mut r = 0.0;
        for k in 1..50 {
            let longer = r + 0.5f64.powi(k);
            r = if pairs(longer) * (n - 1) as f64 <= shape.mean { longer } else { r };
        }
        // Cells slightly larger than r leave a margin to correct r.
        let side = ((1.0 / (1.1 * r)) as usize).max(1);
        let mut lengths = draw(side * side, &poisson(n as f64 / (side * side) as f64, seed));
        settle(&mut lengths, n as u64, &|_, length, longer| longer || length > 0);
        let begin = offsets(side * side, &|cell| lengths[cell] as usize);
        let (lonely, reach) = (below(mix(seed), n), (r * side as f64).powi(2));
        let mut rgg = Self { side, begin, lengths: Vec::new(), reach, lonely, changed: Vec::new(), seed };

        rgg.settle_reach(shape.nonzeros);
        rgg.lengths = rgg.degrees();
        rgg.bound(shape.max);
        rgg.balance(shape);
        rgg
    }

    fn degrees(&self) -> Vec<u32> {
        self.over_cells(&|near| {
            near.own.clone().map(|i| near.count(i, self.reach) as u32).collect::<Vec<_>>()
        })
    }

    /// Applies `of` to each cell and concatenates the results in order.
    fn over_cells<T: Send>(&self, of: &(dyn Fn(&Near) -> Vec<T> + Sync)) -> Vec<T> {
        let rows: Vec<Vec<T>> = (0..self.side)
            .into_par_iter()
            .map(|row| {
                let (mut near, mut out) = (Near::default(), Vec::new());
                for cell in row * self.side..(row + 1) * self.side {
                    self.gather(cell, &mut near);
                    out.extend(of(&near));
                }
                out
            })
            .collect();
        rows.into_iter().flatten().collect()
    }

    /// Finds a reach that gives `entries` entries: a value between the distances of two pairs.
    fn settle_reach(&mut self, entries: u64) {
        let total = |rgg: &Self| -> u64 {
            let rows = (0..rgg.side).into_par_iter().map(|row| {
                let mut near = Near::default();
                let cells = row * rgg.side..(row + 1) * rgg.side;
                cells
                    .map(|cell| {
                        rgg.gather(cell, &mut near);
                        near.own.clone().map(|i| near.count(i, rgg.reach) as u64).sum::<u64>()
                    })
                    .sum::<u64>()
            });
            rows.sum()
        };
        let mut count = total(self);
        for _ in 0..8 {
            if count == entries {
                return;
            }
            // Entries grow in proportion to r²; the step is a little longer, so that it brackets the wanted
            // distance.
            let off = (entries as f64 - count as f64) / count as f64;
            let (low, high) = match off > 0.0 {
                true => (self.reach, (self.reach * (1.0 + 2.0 * off + 1e-6)).min(1.0)),
                false => (self.reach * (1.0 + 2.0 * off - 1e-6), self.reach),
            };
            let mut between = self.over_cells(&|near| {
                let mut found = Vec::new();
                for i in near.own.clone() {
                    let after = near.apart(i).zip(&near.number).filter(|(_, j)| **j as usize > i);
                    found.extend(after.map(|(d, _)| d).filter(|d| (low..high).contains(d)));
                }
                found
            });
            between.par_sort_unstable_by(f64::total_cmp);
            // Entries below `low`: `count`, or, if `low` was lowered, `count` less the entries in between.
            let before = if off > 0.0 { count } else { count - 2 * (between.len() as u64).min(count / 2) };
            let missing = (entries.saturating_sub(before) / 2) as usize;
            self.reach = between.get(missing).copied().unwrap_or(high);
            if off < 0.0 && before > entries {
                self.reach = low;
            }
            count = total(self);
        }
    }

    /// Shortens rows with more than `max` entries to `max`; if there are none, lengthens the longest row to
    /// `max`.
    fn bound(&mut self, max: u32) {
        let long: Vec<usize> =
            (0..self.lengths.len()).into_par_iter().filter(|&i| self.lengths[i] > max).collect();
        for &i in &long {
            let joined = self.row(i);
            for &j in &joined {
                // Removing the edge shortens row j as well, so a row of two entries is left alone.
                if self.lengths[i] > max && self.lengths[j as usize] > 2 {
                    self.change(i, j as usize, false);
                }
            }
        }
        let longest = |lengths: &[u32]| lengths.par_iter().copied().max().unwrap_or(0);
        let most = longest(&self.lengths);
        if most >= max {
            return;
        }
        let Some(i) = self.lengths.par_iter().position_first(|&l| l == most) else { return };
        let (near, joined) = (self.near(i), self.row(i));
        let mut free: Vec<(f64, u32)> = near.apart(i).zip(near.number.iter().copied()).collect();
        free.retain(|(_, j)| !joined.contains(j));
        free.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        for (_, j) in free {
            let j = j as usize;
            if self.lengths[i] < max && self.lengths[j] + 1 < max && j != i && j != self.lonely {
                self.change(i, j, true);
            }
        }
    }

    /// Removes or adds edges at rows not changed so far, until the number of entries is right.
    fn balance(&mut self, shape: &Shape) {
        let n = self.lengths.len();
        let mut entries: u64 = self.lengths.par_iter().map(|&l| u64::from(l)).sum();
        for attempt in 0..100_000 {
            if entries.abs_diff(shape.nonzeros) < 2 {
                break;
            }
            let more = entries < shape.nonzeros;
            let i = below(mix(self.seed ^ mix(attempt)), n);
            let fit = |j: usize| {
                let length = self.lengths[j];
                let untouched = j != self.lonely && !self.is_changed(j);
                untouched && if more { length + 1 < shape.max } else { length > 2 && length < shape.max }
            };
            if !fit(i) {
                continue;
            }
            let (near, joined) = (self.near(i), self.row(i));
            let mut others = near.number.iter().copied();
            let found = others.find(|j| *j as usize != i && joined.contains(j) != more && fit(*j as usize));
            if let Some(j) = found {
                self.change(i, j as usize, more);
                entries = if more { entries + 2 } else { entries - 2 };
            }
        }
    }

    fn is_changed(&self, i: usize) -> bool {
        let at = self.changed.partition_point(|&(p, _)| (p as usize) < i);
        self.changed.get(at).is_some_and(|&(p, _)| p as usize == i)
    }

    fn change(&mut self, i: usize, j: usize, join: bool) {
        for (i, j) in [(i, j), (j, i)] {
            let at = self.changed.partition_point(|&pair| pair < (i as u32, j as u32));
            self.changed.insert(at, (i as u32, j as u32));
            self.lengths[i] = if join { self.lengths[i] + 1 } else { self.lengths[i] - 1 };
        }
    }

    fn row(&self, i: usize) -> Vec<u32> {
        let mut out = Vec::new();
        self.columns(i, &mut Near::default(), &mut out);
        out
    }

    fn near(&self, i: usize) -> Near {
        let mut near = Near::default();
        self.gather(self.cell(i), &mut near);
        near
    }

    fn cell(&self, i: usize) -> usize {
        self.begin.partition_point(|&first| first <= i) - 1
    }

    /// Gathers the points of `cell` and of the eight around it. The isolated point is moved far away.
    fn gather(&self, cell: usize, near: &mut Near) {
        let side = self.side;
        let around = |c: usize| c.saturating_sub(1)..(c + 2).min(side);
        near.own = self.begin[cell]..self.begin[cell + 1];
        near.number.clear();
        near.x.clear();
        near.y.clear();
        for y in around(cell / side) {
            for x in around(cell % side) {
                let next = y * side + x;
                if next == cell {
                    near.first = near.number.len();
                }
                for i in self.begin[next]..self.begin[next + 1] {
                    let word = mix((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.seed);
                    let unit = |bits: u64| (bits & 0xffff_ffff) as f64 / (1u64 << 32) as f64;
                    near.number.push(i as u32);
                    near.x.push(if i == self.lonely { FAR } else { x as f64 + unit(word) });
                    near.y.push(y as f64 + unit(word >> 32));
                }
            }
        }
        near.found.resize(near.number.len(), 0);
    }
}

/// In units of a cell; farther than any cell.
const FAR: f64 = 1e9;

impl Pattern for Rgg {
    type Scratch = Near;
    const SYMMETRIC: bool = true;

    fn length(&self, i: usize) -> usize {
        self.lengths[i] as usize
    }

    fn columns(&self, i: usize, near: &mut Near, out: &mut Vec<u32>) {
        if !near.own.contains(&i) {
            self.gather(self.cell(i), near);
        }
        // Branch-free, because the branch would be unpredictable.
        let (mut found, mut count) = (std::mem::take(&mut near.found), 0);
        for (d, &j) in near.apart(i).zip(&near.number) {
            found[count] = j;
            count += usize::from(d < self.reach && j as usize != i);
        }
        out.extend_from_slice(&found[..count]);
        near.found = found;
        let first = self.changed.partition_point(|&(p, _)| (p as usize) < i);
        for &(p, j) in &self.changed[first..] {
            if p as usize != i {
                break;
            }
            match out.binary_search(&j) {
                Ok(at) => drop(out.remove(at)),
                Err(at) => out.insert(at, j),
            }
        }
    }
}

/// Poisson's distribution with mean `mean`, by index.
fn poisson(mean: f64, seed: u64) -> impl Fn(usize) -> u32 + Send + Sync {
    let (mut below, mut term, mut k) = (Vec::new(), (-mean).exp(), 0.0);
    let mut sum = term;
    while term > 1e-18 || k < mean {
        below.push(sum);
        k += 1.0;
        term *= mean / k;
        sum += term;
    }
    move |cell| {
        let u = Random::new(seed, 3, cell as u64).unit();
        below.partition_point(|&sum| sum <= u) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_within_reach_are_joined_but_for_a_few_changes() {
        for (rows, entries, max) in [(2048, 31_006, 40), (1000, 9000, 30), (1500, 36_000, 34)] {
            let rgg = Rgg::new(&Shape::new(rows, entries, 0, max), 11);
            let n = rows as usize;
            let points: Vec<[f64; 2]> = (0..n)
                .map(|i| {
                    let near = rgg.near(i);
                    let at = near.first + i - near.own.start;
                    assert_eq!(near.number[at] as usize, i);
                    [near.x[at], near.y[at]]
                })
                .collect();
            let changed = |i: usize, j: usize| rgg.changed.contains(&(i as u32, j as u32));
            for i in 0..n {
                let expected: Vec<u32> = (0..n)
                    .filter(|&j| {
                        let apart =
                            (points[i][0] - points[j][0]).powi(2) + (points[i][1] - points[j][1]).powi(2);
                        i != j && (apart < rgg.reach) != changed(i, j)
                    })
                    .map(|j| j as u32)
                    .collect();
                assert!(rgg.row(i) == expected, "{rows} rows: row {i}");
                assert_eq!(rgg.length(i), expected.len());
            }
            assert_eq!(rgg.lengths.iter().map(|&l| u64::from(l)).sum::<u64>(), entries, "{rows} rows");
            assert_eq!(rgg.lengths.iter().max(), Some(&max), "{rows} rows");
            assert_eq!(rgg.length(rgg.lonely), 0);
            assert!(rgg.changed.len() < 400, "{rows} rows: {} changes", rgg.changed.len());
        }
    }
}
