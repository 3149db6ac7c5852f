//! Incomplete factors of subdomains on the CPU.
//!
//! A piece is a run of subdomains; all pieces have factors of about equal size. A thread computes the
//! subdomains one by one in its own scratch, and stores their factors in the order in which the application
//! reads them (`layout.rs`). The forward solve streams L, the backward solve streams D⁻¹ and U, and the
//! subdomain's vector stays in a small buffer in the cache. The number of threads only affects which thread
//! computes a piece.
//!
//! Memory traffic of one application: factors and columns once, x and y once, 4 bytes per block row for its
//! number.
//!
//! Columns have 16 bits if no subdomain has more than 65,536 rows.

mod factorize;
mod layout;
mod solve;

use super::Cpu;
use crate::Result;
use crate::interrupt::Lookout;
use crate::operator::{TermValues, Terms, check_lengths};
use crate::partition::Subdomains;
use crate::precond::{FactorQuality, IncompleteFactors, Pivots, Plan, Stride, SubdomainFactors};
use crate::space::Precision;
use crate::threads::Disjoint;
use factorize::Scratch;
use layout::{Layout, Slice};
use solve::Share;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// Factors in host memory, in order of application.
#[doc(hidden)]
pub struct CpuFactors {
    plan: Arc<Plan>,
    layout: Layout,
    columns: Columns,
    values: Values,
    /// Runs of subdomains with factors of about equal size.
    pieces: Vec<Range<usize>>,
    /// Scratch for as many threads as can work at once, so that one is always free.
    work: Vec<Mutex<Work>>,
    /// New values that came from a GPU.
    scratch: [Vec<f64>; 2],
}

/// Local columns.
enum Columns {
    U16(Vec<u16>),
    U32(Vec<u32>),
}

/// Stored factors.
enum Values {
    F64(Vec<f64>),
    F32(Vec<f32>),
}

/// Scratch of one thread.
struct Work {
    /// The vector of a subdomain, followed by space for a whole slice.
    vector: Vec<f64>,
    scratch: Scratch,
}

impl SubdomainFactors for Cpu {
    type Plan = Plan;
    type Factors = CpuFactors;

    fn analyse(&self, terms: &Terms, subdomains: &Subdomains, fill: usize) -> Result<Arc<Plan>> {
        Plan::new(terms, subdomains, fill).map(Arc::new)
    }

    fn most_rows(&self, _order: usize) -> usize {
        usize::MAX
    }
}

impl IncompleteFactors<Cpu> for CpuFactors {
    type Plan = Plan;
    type Options = Precision;
    type How = Option<f64>;
    type Solve = Stride;

    fn prepare(space: &Cpu, plan: &Arc<Plan>, precision: Precision) -> Result<Self> {
        let layout = Layout::new(plan, precision);
        let what = "incomplete factors";
        let narrow = plan.largest <= 1 << 16;
        let (columns, values) = match (narrow, precision) {
            (true, Precision::F64) => {
                let (columns, values) = layout.arrays(plan, |j| j as u16)?;
                (Columns::U16(columns), Values::F64(values))
            }
            (true, Precision::F32) => {
                let (columns, values) = layout.arrays(plan, |j| j as u16)?;
                (Columns::U16(columns), Values::F32(values))
            }
            (false, Precision::F64) => {
                let (columns, values) = layout.arrays(plan, |j| j)?;
                (Columns::U32(columns), Values::F64(values))
            }
            (false, Precision::F32) => {
                let (columns, values) = layout.arrays(plan, |j| j)?;
                (Columns::U32(columns), Values::F32(values))
            }
        };
        let bytes = layout.values * precision.bytes();
        let pieces = pieces(plan, space.pool().pieces(bytes));
        let work = (0..space.threads().min(pieces.len())).map(|_| {
            let vector = crate::threads::zeros((plan.largest + layout::LANES) * plan.order, what)?;
            Ok(Mutex::new(Work { vector, scratch: Scratch::new(plan)? }))
        });
        let work = work.collect::<Result<_>>()?;
        Ok(CpuFactors {
            plan: plan.clone(),
            layout,
            columns,
            values,
            pieces,
            work,
            scratch: Default::default(),
        })
    }

    fn factorize(&mut self, space: &Cpu, new: &TermValues, shift: Option<f64>) -> Result<FactorQuality> {
        let CpuFactors { plan, layout, values, pieces, work, scratch, .. } = self;
        let terms = &new.on_host(scratch)?;
        let (pool, found) = (space.pool(), Mutex::new(Pivots::default()));
        let lookout = Lookout::here();
        let run = |store: &(dyn Fn(usize, &[f64]) + Sync)| {
            pool.run(pieces.len(), |piece| {
                let mut pivots = Pivots::default();
                let scratch = &mut free(work, piece).scratch;
                for p in pieces[piece].clone() {
                    pivots = pivots.with(factorize::subdomain(plan, terms, p, shift, scratch, &lookout));
                    store(p, &scratch.values);
                }
                let mut all = found.lock().unwrap_or_else(|e| e.into_inner());
                *all = all.with(pivots);
            });
        };
        // SAFETY: subdomains have disjoint ranges, and each is given to one thread.
        match values {
            Values::F64(values) => {
                let values = Disjoint::new(values);
                run(&|p, from| layout.store(plan, p, from, unsafe { values.range(layout.range(p)) }));
            }
            Values::F32(values) => {
                let values = Disjoint::new(values);
                run(&|p, from| layout.store(plan, p, from, unsafe { values.range(layout.range(p)) }));
            }
        }
        lookout.finish()?;
        Ok(found.into_inner().unwrap_or_else(|e| e.into_inner()).into())
    }

    fn solve(&self, space: &Cpu, at: Stride, x: &Vec<f64>, y: &mut Vec<f64>) -> Result<()> {
        let f = self;
        let n = f.plan.block_rows * f.plan.order * at.step;
        check_lengths(n, n, x.len(), y.len())?;
        let (pool, y) = (space.pool(), Disjoint::new(y));
        pool.run(f.pieces.len(), |piece| {
            let vector = &mut free(&f.work, piece).vector;
            Share { f, subdomains: f.pieces[piece].clone(), at, x, y: &y }.solve(vector);
        });
        Ok(())
    }

    fn bytes(&self, _: Stride) -> u64 {
        let f = self;
        let values = match &f.values {
            Values::F64(v) => size_of_val(&v[..]),
            Values::F32(v) => size_of_val(&v[..]),
        };
        let columns = match &f.columns {
            Columns::U16(c) => size_of_val(&c[..]),
            Columns::U32(c) => size_of_val(&c[..]),
        };
        let slices = f.layout.slices.len() * size_of::<Slice>();
        let vectors = f.plan.block_rows * (4 + 16 * f.plan.order);
        (values + columns + slices + vectors) as u64
    }
}

#[cfg(any(test, feature = "testing"))]
impl crate::precond::testing::ReadFactors for Cpu {
    fn read_factors(&self, f: &CpuFactors) -> Result<Vec<f64>> {
        let mut out = vec![0.0; f.plan.entries() * f.plan.order * f.plan.order];
        for p in 0..f.plan.count() {
            match &f.values {
                Values::F64(v) => f.layout.load(&f.plan, p, &v[f.layout.range(p)], &mut out),
                Values::F32(v) => f.layout.load(&f.plan, p, &v[f.layout.range(p)], &mut out),
            }
        }
        Ok(out)
    }
}

/// Returns scratch that no other thread is using.
fn free(work: &[Mutex<Work>], first: usize) -> MutexGuard<'_, Work> {
    let mut slots = (first..).map(|slot| work[slot % work.len()].try_lock());
    let taken = slots.find_map(|slot| match slot {
        Ok(free) => Some(free),
        Err(TryLockError::Poisoned(free)) => Some(free.into_inner()), // every user overwrites it first
        Err(TryLockError::WouldBlock) => None,
    });
    taken.expect("an endless search")
}

/// Returns runs of subdomains with factors of about equal size; none is empty.
fn pieces(plan: &Plan, most: usize) -> Vec<Range<usize>> {
    let before: Vec<u64> = plan.ptr.iter().map(|&i| plan.row_ptr[i] as u64).collect();
    let total = plan.entries() as u64;
    let pieces = most.min(plan.count()).max(1);
    let bounds = crate::partition::runs(plan.count(), pieces, |part| {
        crate::partition::nearest(&before, total, part, pieces)
    });
    bounds.windows(2).map(|w| w[0]..w[1]).filter(|piece| !piece.is_empty()).collect()
}
