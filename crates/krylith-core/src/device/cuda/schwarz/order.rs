//! Order of rows for warps that wait for each other: by levels, so that rows that can be computed together
//! are taken together.

use super::super::driver::Device;
use crate::precond::SchwarzPlan;
use crate::precond::incomplete::levels::RunLevels;

/// Number of levels ahead of the present one whose warps may already wait.
const AHEAD: usize = 8;

/// Items by level.
#[derive(Clone)]
pub(super) struct Order {
    pub items: Vec<u32>,
    /// Rows per item.
    pub per: usize,
    pub depth: usize,
}

/// Orders of work with dependencies: rows of a factorisation, and runs of rows of solves.
pub(super) struct Orders {
    pub rows: Order,
    pub lower: Order,
    pub upper: Order,
}

impl Orders {
    /// Computes the orders, each on a thread of its own. Solves take runs of `per` rows, or single rows where
    /// runs have more levels: a run starts only when the inputs of all its rows are ready, which costs most
    /// of the parallelism where runs do not line up.
    pub fn new(plan: &SchwarzPlan, per: usize) -> Self {
        let (rows, lower, upper, upper_rows) = std::thread::scope(|scope| {
            let rows = scope.spawn(|| Order::new(plan, false, 1));
            let lower = scope.spawn(|| Order::new(plan, false, per));
            let upper = scope.spawn(|| Order::new(plan, true, per));
            let upper_rows = Order::new(plan, true, 1);
            let join = |thread: std::thread::ScopedJoinHandle<'_, Order>| {
                thread.join().expect("orders do not panic")
            };
            (join(rows), join(lower), join(upper), upper_rows)
        });
        let lower = if lower.depth <= rows.depth { lower } else { rows.clone() };
        let upper = if upper.depth <= upper_rows.depth { upper } else { upper_rows };
        Self { rows, lower, upper }
    }
}

impl Order {
    /// Sorts runs of `per` rows by the levels of L or, with rows numbered from the end, of U.
    fn new(plan: &SchwarzPlan, upper: bool, per: usize) -> Self {
        let levels = RunLevels::new(plan, upper, |row| row + per);
        Self { depth: levels.begin.len().max(1), items: levels.order, per }
    }

    /// Returns the shared memory per thread block of `warps` warps, one per item, that limits the running
    /// warps to those of a few levels. More waiting warps would poll the same cache and delay the warps that
    /// others wait for.
    pub fn shared(&self, device: &Device, warps: usize, needed: usize) -> usize {
        let (room, wanted) = (device.shared_memory(), AHEAD * self.items.len().div_ceil(self.depth));
        match wanted.div_ceil(warps * device.multiprocessors()) {
            blocks @ 0..=8 => needed.max(room / blocks.max(1) - 2048),
            _ => needed,
        }
    }
}

/// Returns the first row of each run of at most `most` consecutive rows of one subdomain, and the number of
/// rows.
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
        assert_eq!(Order::new(&plan, false, 1).items, [0, 3, 4, 1, 2]);
        assert_eq!(Order::new(&plan, false, 2).items, [0, 2, 1]);
        // From the end: 4 and 3 depend on nothing, neither does 2, 1 needs 2, and 0 needs 1.
        assert_eq!(Order::new(&plan, true, 1).items, [0, 1, 2, 3, 4]);
        assert_eq!((Order::new(&plan, false, 1).depth, Order::new(&plan, false, 2).depth), (3, 2));
        assert_eq!(runs(&plan, 2), [0, 2, 3, 5]);
        assert_eq!(runs(&SchwarzPlan::default(), 2), [0]);
    }

    /// Lines of `length` rows, each coupled to the row before and to the line before.
    fn lines(length: u32, lines: u32) -> SchwarzPlan {
        let mut plan = SchwarzPlan {
            block: 1,
            subdomains: vec![0, length * lines],
            row_ptr: vec![0],
            ..SchwarzPlan::default()
        };
        for i in 0..length * lines {
            let lower = [(i >= length).then(|| i - length), (i % length > 0).then(|| i - 1)];
            plan.column.extend(lower.into_iter().flatten());
            plan.diagonal.push(plan.column.len() as i64);
            plan.column.push(i);
            let upper = [
                (i % length + 1 < length).then_some(i + 1),
                (i + length < length * lines).then_some(i + length),
            ];
            plan.column.extend(upper.into_iter().flatten());
            plan.row_ptr.push(plan.column.len() as i64);
            plan.node.push(i);
        }
        plan
    }

    #[test]
    fn runs_are_taken_where_they_have_no_more_levels_than_rows() {
        let even = Orders::new(&lines(8, 16), 4);
        assert_eq!(
            (even.lower.per, even.upper.per, even.rows.depth, even.lower.depth),
            (4, 4, 8 + 15, 2 + 15)
        );
        let odd = Orders::new(&lines(9, 16), 4);
        assert_eq!((odd.lower.per, odd.upper.per, odd.lower.depth, odd.upper.depth), (1, 1, 9 + 15, 9 + 15));
    }
}
