//! In which order warps take rows where each waits for others: by levels, so that those that can be computed at once are taken at once.

use super::super::driver::Device;
use crate::precond::SchwarzPlan;

/// Levels ahead of the one that is computed whose warps wait already.
const AHEAD: usize = 8;

/// Items by level.
pub(super) struct Order {
    pub items: Vec<u32>,
    /// How many items a level has in the mean.
    pub width: usize,
}

/// What waits for others: rows of a factorisation, and runs of rows of solves.
pub(super) struct Orders {
    pub rows: Order,
    pub lower: Order,
    pub upper: Order,
}

impl Orders {
    /// Each of them on a thread; runs of `per` rows.
    pub fn new(plan: &SchwarzPlan, per: usize) -> Self {
        let none = || Order { items: Vec::new(), width: 0 };
        let (mut first, mut second) = (none(), none());
        let upper = std::thread::scope(|scope| {
            scope.spawn(|| first = rows(plan));
            scope.spawn(|| second = lower_runs(plan, per));
            upper_runs(plan, per)
        });
        Self { rows: first, lower: second, upper }
    }
}

impl Order {
    /// Shared memory that a block of `warps` threads' warps, one an item, asks for so that no more of them run than a few
    /// levels have: all that wait look at the same cache, and those that others wait for come late.
    pub fn shared(&self, device: &Device, warps: usize, needed: usize) -> usize {
        let (room, wanted) = (device.shared_memory(), AHEAD * self.width);
        match wanted.div_ceil(warps * device.multiprocessors()) {
            blocks @ 0..=8 => needed.max(room / blocks.max(1) - 2048),
            _ => needed,
        }
    }
}

/// Items `0..items` by level, within a level ascending; `level` is given those of lower items.
fn by_level(items: usize, level: impl Fn(usize, &[u32]) -> u32) -> Order {
    let mut levels = vec![0u32; items];
    let mut counts = vec![0u32; 2];
    for i in 0..items {
        let own = level(i, &levels[..i]);
        levels[i] = own;
        if counts.len() < own as usize + 2 {
            counts.resize(own as usize + 2, 0);
        }
        counts[own as usize + 1] += 1;
    }
    (1..counts.len()).for_each(|l| counts[l] += counts[l - 1]);
    let mut order = vec![0; items];
    for (i, &own) in levels.iter().enumerate() {
        let at = &mut counts[own as usize];
        order[*at as usize] = i as u32;
        *at += 1;
    }
    let depth = levels.iter().max().map_or(1, |&l| l as usize + 1);
    Order { items: order, width: items.div_ceil(depth) }
}

/// Rows by the levels of L.
fn rows(plan: &SchwarzPlan) -> Order {
    by_level(plan.rows(), |i, levels| {
        let lower = &plan.column[plan.row_ptr[i] as usize..plan.diagonal[i] as usize];
        lower.iter().map(|&j| levels[j as usize] + 1).max().unwrap_or(0)
    })
}

/// Runs of `per` rows by the levels of L.
fn lower_runs(plan: &SchwarzPlan, per: usize) -> Order {
    let rows = plan.rows();
    by_level(rows.div_ceil(per), |run, levels| {
        let first = run * per;
        let of_row = |i: usize| &plan.column[plan.row_ptr[i] as usize..plan.diagonal[i] as usize];
        let below = (first..rows.min(first + per)).flat_map(of_row).filter(|&&j| (j as usize) < first);
        below.map(|&j| levels[j as usize / per] + 1).max().unwrap_or(0)
    })
}

/// Runs of `per` rows by the levels of U, rows numbered from the end.
fn upper_runs(plan: &SchwarzPlan, per: usize) -> Order {
    let rows = plan.rows();
    by_level(rows.div_ceil(per), |run, levels| {
        let first = run * per;
        let of_row = |i: usize| {
            let row = rows - 1 - i;
            &plan.column[plan.diagonal[row] as usize + 1..plan.row_ptr[row + 1] as usize]
        };
        let all = (first..rows.min(first + per)).flat_map(of_row).map(|&j| rows - 1 - j as usize);
        all.filter(|&j| j < first).map(|j| levels[j / per] + 1).max().unwrap_or(0)
    })
}

/// First row of each run of at most `most` consecutive rows of one subdomain, and the number of rows.
pub(super) fn runs(plan: &SchwarzPlan, most: usize) -> Vec<u32> {
    let of_subdomain = |pair: &[u32]| (pair[0]..pair[1]).step_by(most);
    plan.subdomains.windows(2).flat_map(of_subdomain).chain([plan.rows() as u32]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two subdomains: a chain of three rows, and two rows that do not depend on each other.
    fn plan() -> SchwarzPlan {
        SchwarzPlan {
            block: 1,
            subdomains: vec![0, 3, 5],
            node: vec![0, 1, 2, 3, 4],
            row_ptr: vec![0, 2, 5, 7, 8, 9],
            column: vec![0, 1, 0, 1, 2, 1, 2, 3, 4],
            diagonal: vec![0, 3, 6, 7, 8],
            ..SchwarzPlan::default()
        }
    }

    #[test]
    fn rows_come_by_levels() {
        let plan = plan();
        assert_eq!(rows(&plan).items, [0, 3, 4, 1, 2]);
        assert_eq!(lower_runs(&plan, 1).items, [0, 3, 4, 1, 2]);
        assert_eq!(lower_runs(&plan, 2).items, [0, 2, 1]);
        // From the end: 4 and 3 are free, 2 is, 1 needs 2, and 0 needs 1.
        assert_eq!(upper_runs(&plan, 1).items, [0, 1, 2, 3, 4]);
        assert_eq!((rows(&plan).width, lower_runs(&plan, 2).width), (2, 2));
        assert_eq!(runs(&plan, 2), [0, 2, 3, 5]);
        assert_eq!(runs(&SchwarzPlan::default(), 2), [0]);
    }
}
