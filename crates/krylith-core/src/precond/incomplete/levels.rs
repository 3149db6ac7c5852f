//! Levels of runs of consecutive rows in L or in U. Rows of one level do not depend on each other.

use super::order::by_level;
use crate::precond::SchwarzPlan;

/// Runs of rows by level. A row depends on rows of earlier levels, and on rows of its own run that come
/// before. For U, rows are numbered from the end.
#[derive(Clone)]
pub(crate) struct RunLevels {
    /// First row of each run, and the number of rows.
    pub first: Vec<u32>,
    /// Runs, level after level, ascending in each.
    pub order: Vec<u32>,
    /// Beginning of each level in `order`.
    pub begin: Vec<u32>,
}

impl RunLevels {
    /// Computes the levels of L or, with `upper`, of U. `end(k)` is the end of the run that begins with row
    /// k. The level of a run is one more than the highest level of the runs on which its rows depend.
    pub fn new(plan: &SchwarzPlan, upper: bool, end: impl Fn(usize) -> usize) -> Self {
        let n = plan.rows();
        let (mut first, mut levels) = (vec![0], Vec::new());
        let mut of_row = vec![0u32; n];
        let mut begin = 0;
        while begin < n {
            let end = end(begin).clamp(begin + 1, n);
            let mut own = 0;
            for k in begin..end {
                for &j in &plan.column[plan.triangle(upper, k)] {
                    let other = if upper { n - 1 - j as usize } else { j as usize };
                    if other < begin {
                        own = own.max(of_row[other] + 1);
                    }
                }
            }
            of_row[begin..end].fill(own);
            first.push(end as u32);
            levels.push(own);
            begin = end;
        }
        let (mut order, mut begin) = (Vec::new(), Vec::new());
        by_level(&levels, &mut order, &mut begin);
        Self { first, order, begin }
    }
}
