//! Runs of rows that threads may compute at once, level by level.
//!
//! A run is a piece of consecutive rows, each of which depends on the one before, such as a line of a grid.
//! One thread computes it in order, from memory that it reads in order. Single rows of a level lie far apart:
//! every number that they read is in a cache line of its own.

use super::super::Wide;
use crate::precond::SchwarzPlan;
use crate::precond::incomplete::levels::RunLevels;
use crate::threads::{Pool, share};
use std::ops::Range;

/// Time to start and end a level, in rows that a thread computes in that time.
const START: usize = 200;

/// Runs of rows of L or of U, level after level. A row depends on rows of earlier levels, and on rows of its
/// own run that come before; for U, these have higher numbers.
pub(super) struct Levels {
    /// Beginning of each level in `runs`.
    ptr: Vec<usize>,
    runs: Vec<Range<usize>>,
    /// Number of rows of each level.
    rows: Vec<usize>,
}

/// Returns the levels of L and of U; `None` if one thread for each subdomain is faster. `largest` is the
/// number of rows that this thread would have.
pub(super) fn of_both(plan: &SchwarzPlan, pool: &Pool, largest: usize) -> Option<[Levels; 2]> {
    let both = [false, true].map(|upper| Levels::of(plan, upper));
    // A pool for tests cuts even the smallest regions.
    let start = if pool.pieces(0) > 1 { 0 } else { START };
    let cost: usize = both.iter().map(|levels| levels.cost(pool.threads(), start)).sum();
    (cost < 2 * largest).then_some(both)
}

impl Levels {
    /// Returns a single level of these runs.
    pub fn one(runs: Vec<Range<usize>>) -> Self {
        Self { ptr: vec![0, runs.len()], rows: vec![runs.iter().map(Range::len).sum()], runs }
    }

    fn of(plan: &SchwarzPlan, upper: bool) -> Self {
        let n = plan.rows();
        // Columns ascend, so the row before is the first of U or the last of L.
        let goes_on = |k: usize| {
            let columns = &plan.column[plan.triangle(upper, k)];
            match upper {
                true => columns.first().is_some_and(|&j| n - j as usize == k),
                false => columns.last().is_some_and(|&j| j as usize + 1 == k),
            }
        };
        let end = |begin: usize| (begin + 1..n).find(|&k| !goes_on(k)).unwrap_or(n);
        let RunLevels { first, order, begin } = RunLevels::new(plan, upper, end);
        let run = |&run: &u32| {
            let [begin, end] = [0, 1].map(|k| first[run as usize + k] as usize);
            if upper { n - end..n - begin } else { begin..end }
        };
        let runs: Vec<Range<usize>> = order.iter().map(run).collect();
        let ptr: Vec<usize> = begin.iter().map(|&begin| begin as usize).chain([runs.len()]).collect();
        let rows = ptr.windows(2).map(|at| runs[at[0]..at[1]].iter().map(Range::len).sum()).collect();
        Self { ptr, runs, rows }
    }

    /// Estimates the time on so many threads, in rows that a thread computes in that time.
    fn cost(&self, threads: usize, start: usize) -> usize {
        let levels = self.ptr.windows(2).zip(&self.rows);
        let one = |(at, rows): (&[usize], &usize)| {
            let longest = self.runs[at[0]..at[1]].iter().map(Range::len).max().unwrap_or(0);
            start + longest.max(rows.div_ceil(threads))
        };
        levels.map(one).sum()
    }

    /// Calls `work` for every row with its run, level after level, with the runs of one level on all threads.
    /// A row counts as `bytes` bytes. With `upper`, a run begins with its last row. With `reversed`, the last
    /// level comes first: where the triangle is transposed, rows depend on those that depended on them.
    #[inline(always)]
    pub fn each_row(
        &self,
        pool: &Pool,
        bytes: usize,
        upper: bool,
        reversed: bool,
        work: impl Fn(usize, &Range<usize>) + Sync,
    ) {
        for k in 0..self.rows.len() {
            let level = if reversed { self.rows.len() - 1 - k } else { k };
            let (at, rows) = (&self.ptr[level..], self.rows[level]);
            let runs = &self.runs[at[0]..at[1]];
            let pieces = pool.pieces(rows * bytes).min(runs.len());
            pool.run(pieces, |piece| {
                pulp::Arch::new().dispatch(Wide(
                    #[inline(always)]
                    || {
                        for run in &runs[share(runs.len(), piece, pieces)] {
                            match upper {
                                true => run.clone().rev().for_each(|i| work(i, run)),
                                false => run.clone().for_each(|i| work(i, run)),
                            }
                        }
                    },
                ));
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::Solo;
    use crate::matrix::Csr;
    use crate::operator::Terms;
    use crate::partition::Subdomains;
    use crate::precond::SchwarzPattern;
    use crate::space::splitmix64;
    use std::sync::Mutex;

    /// A symmetric pattern as one subdomain.
    fn plan(n: usize, pairs: impl Iterator<Item = (usize, usize)>) -> SchwarzPlan {
        let mut entries: Vec<(u32, u32, f64)> = (0..n as u32).map(|i| (i, i, 4.0)).collect();
        for (i, j) in pairs.filter(|(i, j)| i != j) {
            entries.extend([(i as u32, j as u32, -1.0), (j as u32, i as u32, -1.0)]);
        }
        let terms = Terms::csr(&Csr::from_triplets(n, n, &entries).unwrap()).unwrap();
        let whole = Subdomains::from_labels(&vec![0; n], 1).unwrap();
        SchwarzPlan::new(&Solo, &terms, None, &whole, SchwarzPattern::default()).unwrap()
    }

    fn grid(side: usize) -> SchwarzPlan {
        let right = (0..side * side).filter(move |i| i % side + 1 < side).map(|i| (i, i + 1));
        plan(side * side, right.chain((0..side * (side - 1)).map(move |i| (i, i + side))))
    }

    /// Every row is computed once, after all rows on which it depends: those of earlier levels, and those
    /// before it in its run.
    #[test]
    fn rows_come_after_those_on_which_they_depend() {
        let random = (0..900u64).map(|k| [2 * k, 2 * k + 1].map(|k| (splitmix64(7, k) % 300) as usize));
        for plan in [grid(17), plan(300, random.map(|[i, j]| (i, j))), plan(5, std::iter::empty())] {
            for (upper, reversed) in [(false, false), (true, false), (false, true), (true, true)] {
                // A transposed triangle has the levels of the other one.
                let (levels, done) = (Levels::of(&plan, upper != reversed), Mutex::new(Vec::new()));
                levels.each_row(&Pool::new(1), 1, upper, reversed, |i, _| done.lock().unwrap().push(i));
                let done = done.into_inner().unwrap();
                let mut place = vec![usize::MAX; plan.rows()];
                done.iter().enumerate().for_each(|(at, &i)| place[i] = at);
                assert_eq!(done.len(), plan.rows());
                let run_of = |i: usize| levels.runs.iter().position(|run| run.contains(&i)).unwrap();
                let level_of = |run: usize| levels.ptr.partition_point(|&begin| begin <= run);
                for i in 0..plan.rows() {
                    for &j in &plan.column[plan.row_ptr[i] as usize..plan.row_ptr[i + 1] as usize] {
                        let j = j as usize;
                        if (j > i) == upper && j != i {
                            let (here, there) = (run_of(i), run_of(j));
                            assert!(place[j] < place[i], "row {i} before row {j}");
                            let [first, last] = [there, here].map(level_of);
                            let ordered = if reversed { last < first } else { first < last };
                            assert!(here == there || ordered, "{i} beside {j}");
                        }
                    }
                }
            }
        }
    }

    /// The runs of a grid are its lines. Levels cost less than one thread where several threads share lines.
    #[test]
    fn lines_of_a_grid_are_runs() {
        let levels = Levels::of(&grid(40), false);
        assert_eq!((levels.runs.len(), levels.ptr.len()), (40, 41));
        let side = 60;
        let cube = (0..side * side * side).flat_map(|i| {
            let at = [i % side, i / side % side, i / side / side];
            let steps = [1, side, side * side];
            (0..3).filter(move |&c| at[c] + 1 < side).map(move |c| (i, i + steps[c]))
        });
        let (plan, n) = (plan(side * side * side, cube), side * side * side);
        assert!(of_both(&plan, &Pool::new(8), n).is_some());
        assert!(of_both(&grid(40), &Pool::new(8), 1600).is_none(), "a line after the other is no gain");
    }
}
