//! `rgg`: points in the unit square, joined where they are nearer than r.
//!
//! The original has r = 0.55 √(ln n / n). Here r is the distance that gives exactly its number of entries: the same to three
//! digits, and at a smaller scale the one that keeps its mean row. Points are numbered cell by cell, cells of about r row by row, so a row
//! reaches three short runs of columns. How many points a cell has follows Poisson's distribution, as it does where points are
//! thrown anywhere. The pattern is symmetric and has no diagonal.
//!
//! One point is made lonely and the one of most neighbours gets more, nearest first, or any that has too many loses some, until the shortest and
//! longest rows are the original's; elsewhere as many edges go or come. These few changes are a list.

use rayon::prelude::*;

use super::Shape;
use super::build::{Pattern, offsets};
use super::hash::{below, mix};
use super::lengths::{draw, settle};
use crate::random::Random;

#[derive(Debug)]
pub(super) struct Rgg {
    /// Cells along each side of the square.
    side: usize,
    /// The first point of each cell.
    begin: Vec<usize>,
    lengths: Vec<u32>,
    /// r² in units of a cell.
    reach: f64,
    lonely: usize,
    /// Pairs that are joined or not against the rule, both ways and sorted.
    changed: Vec<(u32, u32)>,
    seed: u64,
}

/// The points of a cell and of those around it.
#[derive(Debug, Default)]
pub(super) struct Near {
    /// Points of the cell.
    own: std::ops::Range<usize>,
    points: Vec<Point>,
}

#[derive(Debug, Clone, Copy)]
struct Point {
    number: u32,
    at: [f64; 2],
}

impl Point {
    fn apart(&self, other: &Point) -> f64 {
        let [x, y] = [self.at[0] - other.at[0], self.at[1] - other.at[1]];
        x * x + y * y
    }
}

impl Rgg {
    pub fn new(shape: &Shape, seed: u64) -> Self {
        let n = shape.rows as usize;
        // Of a pair, the distance is below r with probability πr² − 8r³/3 + r⁴/2.
        let pairs = |r: f64| r * r * (std::f64::consts::PI - 8.0 / 3.0 * r + 0.5 * r * r);
        let mut r = 0.0;
        for k in 1..50 {
            let longer = r + 0.5f64.powi(k);
            r = if pairs(longer) * (n - 1) as f64 <= shape.mean { longer } else { r };
        }
        // Room to correct r.
        let side = ((1.0 / (1.1 * r)) as usize).max(1);
        let mut lengths = draw(side * side, poisson(n as f64 / (side * side) as f64, seed));
        settle(&mut lengths, n as u64, |_, length, longer| longer || length > 0);
        let begin = offsets(side * side, |cell| lengths[cell] as usize);
        let (lonely, reach) = (below(mix(seed), n), (r * side as f64).powi(2));
        let mut rgg = Self { side, begin, lengths: Vec::new(), reach, lonely, changed: Vec::new(), seed };

        rgg.settle_reach(shape.nonzeros);
        rgg.lengths = rgg.degrees();
        rgg.bound(shape.max);
        rgg.balance(shape);
        rgg
    }

    fn degrees(&self) -> Vec<u32> {
        self.over_cells(|near| {
            near.own.clone().map(|i| self.count(near, i, self.reach) as u32).collect::<Vec<_>>()
        })
    }

    /// What `of` makes of each cell, one after the other.
    fn over_cells<T: Send>(&self, of: impl Fn(&Near) -> Vec<T> + Sync) -> Vec<T> {
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

    /// Finds the reach with `entries` entries: between the distances of two pairs.
    fn settle_reach(&mut self, entries: u64) {
        let total = |rgg: &Self| -> u64 {
            let rows = (0..rgg.side).into_par_iter().map(|row| {
                let mut near = Near::default();
                let cells = row * rgg.side..(row + 1) * rgg.side;
                cells
                    .map(|cell| {
                        rgg.gather(cell, &mut near);
                        near.own.clone().map(|i| rgg.count(&near, i, rgg.reach) as u64).sum::<u64>()
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
            // Entries grow in proportion to r²; a little more, so that the right distance lies within.
            let off = (entries as f64 - count as f64) / count as f64;
            let (low, high) = match off > 0.0 {
                true => (self.reach, (self.reach * (1.0 + 2.0 * off + 1e-6)).min(1.0)),
                false => (self.reach * (1.0 + 2.0 * off - 1e-6), self.reach),
            };
            let mut between = self.over_cells(|near| {
                let mut found = Vec::new();
                let joinable = |p: &Point| p.number as usize != self.lonely;
                for own in self.own(near).iter().filter(|p| joinable(p)) {
                    let after = near.points.iter().filter(|p| p.number > own.number && joinable(p));
                    found.extend(after.map(|p| p.apart(own)).filter(|d| (low..high).contains(d)));
                }
                found
            });
            between.par_sort_unstable_by(f64::total_cmp);
            // Below `low` lie `count` entries, or, where that is above, those less what lies between.
            let before = if off > 0.0 { count } else { count - 2 * (between.len() as u64).min(count / 2) };
            let missing = (entries.saturating_sub(before) / 2) as usize;
            self.reach = between.get(missing).copied().unwrap_or(high);
            if off < 0.0 && before > entries {
                self.reach = low;
            }
            count = total(self);
        }
    }

    /// Brings the rows that are too long to `max` entries, and, if there were none, the longest.
    fn bound(&mut self, max: u32) {
        let long: Vec<usize> =
            (0..self.lengths.len()).into_par_iter().filter(|&i| self.lengths[i] > max).collect();
        for &i in &long {
            let joined = self.row(i);
            for &j in &joined {
                // Those that are long as well lose theirs too.
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
        let Some(own) = near.points.iter().find(|p| p.number as usize == i).copied() else { return };
        let mut free: Vec<Point> =
            near.points.iter().filter(|p| !joined.contains(&p.number)).copied().collect();
        free.sort_by(|a, b| a.apart(&own).total_cmp(&b.apart(&own)).then(a.number.cmp(&b.number)));
        for point in free {
            let j = point.number as usize;
            if self.lengths[i] < max && self.lengths[j] + 1 < max && j != i && j != self.lonely {
                self.change(i, j, true);
            }
        }
    }

    /// Takes edges away or adds some where nothing was changed yet, until the number of entries is right.
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
            let mut others = near.points.iter().map(|p| p.number);
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

    /// The points of `cell` and of the eight around it, in the order of their numbers.
    fn gather(&self, cell: usize, near: &mut Near) {
        let side = self.side;
        let around = |c: usize| c.saturating_sub(1)..(c + 2).min(side);
        near.own = self.begin[cell]..self.begin[cell + 1];
        near.points.clear();
        for y in around(cell / side) {
            for x in around(cell % side) {
                let cell = y * side + x;
                near.points.extend((self.begin[cell]..self.begin[cell + 1]).map(|i| {
                    let word = mix((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.seed);
                    let unit = |bits: u64| (bits & 0xffff_ffff) as f64 / (1u64 << 32) as f64;
                    Point { number: i as u32, at: [x as f64 + unit(word), y as f64 + unit(word >> 32)] }
                }));
            }
        }
    }

    /// The cell's own among the points near it.
    fn own<'a>(&self, near: &'a Near) -> &'a [Point] {
        let first = near.points.partition_point(|p| (p.number as usize) < near.own.start);
        &near.points[first..first + near.own.len()]
    }

    /// Neighbours of point `i` within `reach`, before changes.
    fn count(&self, near: &Near, i: usize, reach: f64) -> usize {
        let own = self.own(near)[i - near.own.start];
        if i == self.lonely {
            return 0;
        }
        near.points.iter().filter(|p| p.apart(&own) < reach && p.number as usize != self.lonely).count() - 1
    }
}

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
        let own = self.own(near)[i - near.own.start];
        if i != self.lonely {
            let joined = near.points.iter().filter(|p| p.apart(&own) < self.reach && p.number != own.number);
            out.extend(joined.map(|p| p.number).filter(|&j| j as usize != self.lonely));
        }
        let first = self.changed.partition_point(|&(p, _)| p < own.number);
        for &(p, j) in &self.changed[first..] {
            if p != own.number {
                break;
            }
            match out.binary_search(&j) {
                Ok(at) => drop(out.remove(at)),
                Err(at) => out.insert(at, j),
            }
        }
    }
}

/// Poisson's distribution of mean `mean`, by place.
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
