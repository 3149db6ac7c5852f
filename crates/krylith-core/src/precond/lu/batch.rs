//! Many small systems with one pattern, solved by direct factors.
//!
//! The pattern is analysed once. Each thread factorises eight systems at once ([`lanes`](super::lanes)) with
//! pivots that the pattern fixes. A system that these factors do not solve to the tolerance gets factors of
//! its own, with pivots by its values. The workspace does not depend on the number of systems.

use super::SparseLu;
use super::lanes::{LANES, Lane, Lanes, Plan};
use crate::matrix::Bsr;
use crate::operator::{TermValues, Terms};
use crate::threads::within;
use crate::{Error, Result};
use rayon::prelude::*;
use std::sync::Mutex;

/// Largest number of steps of iterative refinement.
const STEPS: usize = 3;
/// A step of refinement must leave less than this share of the residual, or it is the last.
const GAIN: f64 = 0.5;
/// Shares of the systems for each thread, so that threads end at about the same time.
const SHARES: usize = 4;

/// The pattern of a batch of systems, and the analyses of its threads.
///
/// # Examples
/// ```
/// use krylith::matrix::{Bsr, Csr};
/// use krylith_core::precond::Batch;
/// let pattern = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (0, 1, 1.0), (1, 1, 1.0)])?;
/// let mut batch = Batch::new(Bsr::from_csr(&pattern, 1)?, None)?;
/// let values = [2.0, 1.0, 4.0, 1.0, 0.0, 0.0]; // two systems; the second is singular
/// let mut x = [0.0; 4];
/// let ends = batch.solve(&values, &[4.0, 8.0, 1.0, 1.0], &mut x, 1e-10, false)?;
/// assert!(*ends[0].as_ref().unwrap() <= 1e-10 && ends[1].is_err());
/// assert_eq!(x, [1.0, 2.0, 0.0, 0.0]);
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Batch {
    pattern: Bsr,
    threads: Option<usize>,
    /// The analysis for lanes, once there was a system; `None` inside if they do not suit the pattern.
    plan: Option<Option<Plan>>,
    /// What a thread may take.
    idle: Mutex<Vec<Workspace>>,
}

/// The workspace of a thread.
#[derive(Default)]
struct Workspace {
    lanes: Lanes,
    x: Vec<Lane>,
    r: Vec<Lane>,
    scratch: Vec<Lane>,
    residual: Vec<f64>,
    /// Factors of one system, with the analysis of the pattern.
    one: Option<SparseLu>,
}

impl Batch {
    /// Takes a pattern; its values have no meaning. `threads` limits the threads of a solve.
    ///
    /// # Errors
    /// A matrix that is not square.
    pub fn new(pattern: Bsr, threads: Option<usize>) -> Result<Self> {
        match pattern.rows() == pattern.columns() {
            true => Ok(Self { pattern, threads, plan: None, idle: Mutex::default() }),
            false => Err(Error::invalid(format!(
                "a batch needs square matrices; these have {} rows and {} columns",
                pattern.rows(),
                pattern.columns()
            ))),
        }
    }

    /// Returns the number of unknowns of a system.
    pub fn unknowns(&self) -> usize {
        self.pattern.rows()
    }

    /// Solves Aₖ xₖ = bₖ, or Aₖᵀ xₖ = bₖ, for every k. `values` has the values of all matrices in the order
    /// of the pattern, one matrix after the other; `b` and `x` have one vector after the other. Solutions are
    /// refined until ‖bₖ − Aₖ xₖ‖ ≤ rtol ‖bₖ‖, or until that no longer helps.
    ///
    /// Returns ‖bₖ − Aₖ xₖ‖/‖bₖ‖ of the returned xₖ, in the working precision. A system that cannot be
    /// factorised has an error in its place, and its x is 0.
    ///
    /// # Errors
    /// Lengths that do not agree; the system refuses to start threads.
    pub fn solve(
        &mut self,
        values: &[f64],
        b: &[f64],
        x: &mut [f64],
        rtol: f64,
        transposed: bool,
    ) -> Result<Vec<Result<f64>>> {
        let (n, stored) = (self.unknowns(), self.pattern.values().len());
        let count = b.len().checked_div(n).unwrap_or(0);
        if b.len() != x.len() || b.len() != count * n || values.len() != count * stored {
            return Err(Error::invalid(format!(
                "a batch of systems with {n} unknowns and {stored} stored numbers got {} values, {} numbers of b and \
                 {} of x",
                values.len(),
                b.len(),
                x.len()
            )));
        }
        if count == 0 {
            return Ok(Vec::new());
        }
        if self.plan.is_none() {
            // The sizes of several systems decide about pivots, because the first may be singular.
            let sizes = self.pattern.values_mut();
            sizes.fill(0.0);
            for values in values.chunks_exact(stored.max(1)).take(LANES) {
                let finite = |v: &f64| if v.is_finite() { v.abs().min(1e150) } else { 0.0 };
                sizes.iter_mut().zip(values).for_each(|(size, v)| *size += finite(v));
            }
            self.plan = Some(Plan::new(&self.pattern)?);
        }
        let this = &*self;
        within(this.threads, || {
            let shares = SHARES * rayon::current_num_threads();
            let each = count.div_ceil(shares).next_multiple_of(LANES);
            let shares = x.par_chunks_mut(each * n).enumerate().map(|(share, x)| {
                let mut on = this.take();
                let mut ends = Vec::with_capacity(each);
                for (group, x) in x.chunks_mut(LANES * n).enumerate() {
                    let first = share * each + group * LANES;
                    let width = x.len() / n;
                    let values = &values[first * stored..][..width * stored];
                    let b = &b[first * n..][..width * n];
                    let solved = this.group(&mut on, values, b, x, rtol, transposed);
                    for (k, solved) in solved.into_iter().enumerate().take(width) {
                        let values = &values[k * stored..][..stored];
                        let (b, x) = (&b[k * n..][..n], &mut x[k * n..][..n]);
                        ends.push(match solved {
                            Some(residual) => Ok(residual),
                            None => this.one(&mut on.one, first + k, values, b, x, rtol, transposed),
                        });
                    }
                }
                this.put(on);
                ends
            });
            shares.flatten_iter().collect()
        })
    }

    fn take(&self) -> Workspace {
        self.idle.lock().unwrap_or_else(|e| e.into_inner()).pop().unwrap_or_default()
    }

    fn put(&self, workspace: Workspace) {
        self.idle.lock().unwrap_or_else(|e| e.into_inner()).push(workspace);
    }

    /// Solves up to [`LANES`] systems at once. Returns the residuals of those that it solves to the
    /// tolerance.
    fn group(
        &self,
        on: &mut Workspace,
        values: &[f64],
        b: &[f64],
        x: &mut [f64],
        rtol: f64,
        transposed: bool,
    ) -> [Option<f64>; LANES] {
        let mut solved = [None; LANES];
        let Some(Some(plan)) = &self.plan else { return solved };
        let (n, stored) = (self.unknowns(), self.pattern.values().len());
        let width = b.len() / n;
        let lane = |l: usize| if l < width { l } else { 0 };
        plan.factorise(&std::array::from_fn(|l| &values[lane(l) * stored..][..stored]), &mut on.lanes);
        let norms: [f64; LANES] = std::array::from_fn(|l| norm(&b[lane(l) * n..][..n]));
        on.r.clear();
        on.r.extend((0..n).map(|i| -> Lane { std::array::from_fn(|l| b[lane(l) * n + i]) }));
        x.fill(0.0);
        let mut open: [bool; LANES] = std::array::from_fn(|l| l < width && !on.lanes.lost[l]);
        let mut before = [f64::INFINITY; LANES];
        for _ in 0..=STEPS {
            on.x.clone_from(&on.r);
            plan.solve(&on.lanes, transposed, &mut on.x, &mut on.scratch);
            for l in 0..width {
                if !open[l] {
                    continue;
                }
                let (x, b) = (&mut x[l * n..][..n], &b[l * n..][..n]);
                x.iter_mut().zip(&on.x).for_each(|(x, d)| *x += d[l]);
                on.residual.clear();
                on.residual.extend_from_slice(b);
                self.subtract(&values[l * stored..][..stored], x, &mut on.residual, transposed);
                let residual = norm(&on.residual) / norms[l];
                let done = norms[l] == 0.0 || residual <= rtol;
                if done {
                    solved[l] = Some(if norms[l] == 0.0 { 0.0 } else { residual });
                }
                open[l] = !done && residual <= GAIN * before[l];
                before[l] = residual;
                on.r.iter_mut().zip(&on.residual).for_each(|(r, own)| r[l] = *own);
            }
            if !open.contains(&true) {
                break;
            }
        }
        solved
    }

    /// Solves system k.
    fn one(
        &self,
        factors: &mut Option<SparseLu>,
        k: usize,
        values: &[f64],
        b: &[f64],
        x: &mut [f64],
        rtol: f64,
        transposed: bool,
    ) -> Result<f64> {
        x.fill(0.0);
        let named = |e: Error| if e.is_memory() { e } else { Error::invalid(format!("system {k}: {e}")) };
        if let Some(at) = values.iter().chain(b).position(|v| !v.is_finite()) {
            let what = if at < values.len() { "a matrix entry" } else { "an entry of b" };
            return Err(Error::invalid(format!("system {k}: {what} is not finite")));
        }
        match factors {
            Some(factors) => factors.update_values(TermValues::matrix(values)).map_err(named)?,
            None => {
                let mut a = self.pattern.clone();
                a.values_mut().copy_from_slice(values);
                *factors = Some(SparseLu::new(&Terms::bsr(&a), None).map_err(named)?);
            }
        }
        let Some(factors) = factors else { return Err(Error::Internal("a batch without factors".into())) };
        let norm = norm(b);
        if norm == 0.0 {
            return Ok(0.0);
        }
        let mut r = b.to_vec();
        let mut best = f64::INFINITY;
        let mut before = vec![0.0; x.len()];
        for _ in 0..=STEPS {
            factors.solve_here(transposed, &mut r)?;
            before.copy_from_slice(x);
            x.iter_mut().zip(&r).for_each(|(x, d)| *x += d);
            r.copy_from_slice(b);
            self.subtract(values, x, &mut r, transposed);
            let residual = self::norm(&r) / norm;
            if !(residual < best) {
                x.copy_from_slice(&before);
                break;
            }
            let enough = residual <= rtol || residual > GAIN * best;
            best = residual;
            if enough {
                break;
            }
        }
        match best.is_finite() {
            true => Ok(best),
            false => Err(Error::invalid(format!("system {k}: numbers overflow; scale its rows"))),
        }
    }

    /// Computes r −= A x, or r −= Aᵀ x.
    fn subtract(&self, values: &[f64], x: &[f64], r: &mut [f64], transposed: bool) {
        let (a, b) = (&self.pattern, self.pattern.block());
        for i in 0..a.block_rows() {
            for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                let j = a.col()[p] as usize;
                for (e, v) in values[p * b * b..][..b * b].iter().enumerate() {
                    let (row, column) = (i * b + e / b, j * b + e % b);
                    let (row, column) = if transposed { (column, row) } else { (row, column) };
                    r[row] -= v * x[column];
                }
            }
        }
    }
}

fn norm(v: &[f64]) -> f64 {
    v.iter().map(|v| v * v).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::random;

    /// A pattern on n nodes with off-diagonal blocks, and values of several systems.
    fn systems(n: usize, block: usize, count: usize) -> (Bsr, Vec<f64>) {
        let (mut ptr, mut col) = (vec![0], Vec::new());
        for i in 0..n {
            let mut row = vec![i as u32];
            row.extend([(i + 1) % n, (i * 7 + 3) % n, (i + n - 1) % n].map(|j| j as u32));
            row.sort_unstable();
            row.dedup();
            col.extend(row);
            ptr.push(col.len());
        }
        let stored = col.len() * block * block;
        let pattern = Bsr::new(block, n, n, ptr, col, vec![0.0; stored]).unwrap();
        let mut values: Vec<f64> = (0..count * stored).map(|k| random(11, k as u64)).collect();
        for values in values.chunks_exact_mut(stored) {
            for i in 0..n {
                let p = pattern.diagonal_position(i).unwrap();
                (0..block).for_each(|c| values[p * block * block + c * (block + 1)] += 5.0 * block as f64);
            }
        }
        (pattern, values)
    }

    /// Gaussian elimination with partial pivoting of a dense matrix by rows.
    fn eliminate(mut a: Vec<Vec<f64>>, b: &[f64]) -> Vec<f64> {
        let n = b.len();
        (0..n).for_each(|i| a[i].push(b[i]));
        for k in 0..n {
            let pivot = (k..n).max_by(|&i, &j| a[i][k].abs().total_cmp(&a[j][k].abs())).unwrap();
            a.swap(k, pivot);
            let (above, below) = a.split_at_mut(k + 1);
            for row in below {
                let factor = row[k] / above[k][k];
                (k..=n).for_each(|j| row[j] -= factor * above[k][j]);
            }
        }
        let mut x = vec![0.0; n];
        for i in (0..n).rev() {
            let sum: f64 = (i + 1..n).map(|j| a[i][j] * x[j]).sum();
            x[i] = (a[i][n] - sum) / a[i][i];
        }
        x
    }

    #[test]
    fn answers_are_those_of_elimination() {
        for (n, block, count) in [(1, 1, 3), (30, 1, 41), (12, 3, 9)] {
            let (pattern, values) = systems(n, block, count);
            let (rows, stored) = (n * block, pattern.values().len());
            let b: Vec<f64> = (0..count * rows).map(|k| random(5, k as u64)).collect();
            for transposed in [false, true] {
                let mut by_threads = Vec::new();
                for threads in [1, 3] {
                    let mut batch = Batch::new(pattern.clone(), Some(threads)).unwrap();
                    let mut x = vec![0.0; b.len()];
                    // The second solve has analyses from the first.
                    for _ in 0..2 {
                        let ends = batch.solve(&values, &b, &mut x, 1e-12, transposed).unwrap();
                        assert!(ends.iter().all(|end| *end.as_ref().unwrap() <= 1e-12));
                    }
                    by_threads.push(x);
                }
                assert_eq!(by_threads[0], by_threads[1]);
                for k in 0..count {
                    let mut dense = vec![vec![0.0; rows]; rows];
                    for i in 0..n {
                        for p in pattern.row_ptr()[i]..pattern.row_ptr()[i + 1] {
                            let j = pattern.col()[p] as usize;
                            for e in 0..block * block {
                                let v = values[k * stored + p * block * block + e];
                                let (r, c) = (i * block + e / block, j * block + e % block);
                                if transposed { dense[c][r] = v } else { dense[r][c] = v }
                            }
                        }
                    }
                    let x = eliminate(dense, &b[k * rows..][..rows]);
                    let found = &by_threads[0][k * rows..][..rows];
                    let far = x.iter().zip(found).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
                    assert!(far < 1e-11, "{n} {block} {k}: {far:e}");
                }
            }
        }
    }

    #[test]
    fn a_bad_system_leaves_the_others_alone() {
        let (pattern, mut values) = systems(20, 1, 8);
        let stored = pattern.values().len();
        values[2 * stored..3 * stored].fill(0.0);
        values[5 * stored] = f64::NAN;
        let mut b = vec![1.0; 8 * 20];
        b[7 * 20..].fill(0.0);
        let mut x = vec![f64::NAN; b.len()];
        let mut batch = Batch::new(pattern, Some(1)).unwrap();
        let ends = batch.solve(&values, &b, &mut x, 1e-12, false).unwrap();
        let bad: Vec<usize> = (0..8).filter(|&k| ends[k].is_err()).collect();
        assert_eq!(bad, [2, 5]);
        assert!(ends[2].as_ref().unwrap_err().to_string().starts_with("system 2: "));
        assert!(ends[5].as_ref().unwrap_err().to_string().contains("a matrix entry is not finite"));
        assert!(x.iter().all(|x| x.is_finite()));
        assert!(x[2 * 20..3 * 20].iter().chain(&x[7 * 20..]).all(|x| *x == 0.0));
        let error = batch.solve(&values[1..], &b, &mut x, 1e-12, false).unwrap_err().to_string();
        assert!(error.contains("20 unknowns"), "{error}");
        assert_eq!(batch.solve(&[], &[], &mut [], 1e-12, false).unwrap().len(), 0);
    }
}
