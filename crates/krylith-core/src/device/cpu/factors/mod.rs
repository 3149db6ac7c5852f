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
//!
//! With `compute=f32` the vector of a subdomain is in f32, too. Memory traffic stays that of factors stored
//! in f32; there are fewer conversions, and twice as many numbers per instruction. Each subdomain has a scale
//! of its own. If the range of its numbers is too large for f32, all factors become f64.
//!
//! A transposed solve streams the same numbers from a second layout. A solve that scatters columns of the
//! first layout would need no memory, but rows in parallel lanes would then write to the same numbers.

mod factorize;
mod layout;
mod solve;

use super::Cpu;
use crate::Result;
use crate::interrupt::Lookout;
use crate::operator::{TermValues, Terms, check_lengths, not_prepared};
use crate::partition::Subdomains;
use crate::precond::range::{Exponents, powers};
use crate::precond::{FactorQuality, IlduOptions, IncompleteFactors, Pivots, Plan, Stride, SubdomainFactors};
use crate::space::{MOST_COLUMNS, Precision};
use crate::threads::Disjoint;
use arrayvec::ArrayVec;
use factorize::Scratch;
use layout::{Layout, Next, Slice};
use solve::Share;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// Factors in host memory, in order of application.
#[doc(hidden)]
pub struct CpuFactors {
    plan: Arc<Plan>,
    forward: Triangles,
    transposed: Option<Triangles>,
    /// For each subdomain the exponent around which those of D⁻¹ lie, if vectors are in f32. The stored D⁻¹
    /// is divided by this power of two.
    shifts: Option<Vec<i32>>,
    /// Runs of subdomains with factors of about equal size.
    pieces: Vec<Range<usize>>,
    /// Scratch for as many threads as can work at once, so that one is always free.
    work: Vec<Mutex<Work>>,
    /// New values that came from a GPU.
    scratch: [Vec<f64>; 2],
}

/// L, D⁻¹ and U in order of application.
struct Triangles {
    layout: Layout,
    columns: Arc<Columns>,
    values: Values,
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
    vector: Vector,
    scratch: Scratch,
    next: Next,
}

/// The vector of a subdomain, followed by space for a whole slice.
enum Vector {
    F64(Vec<f64>),
    F32(Vec<f32>),
}

/// Values to which threads store the factors of subdomains.
enum Target<'a> {
    F64(&'a Layout, Disjoint<'a, f64>),
    F32(&'a Layout, Disjoint<'a, f32>),
}

impl Target<'_> {
    /// Copies the values of subdomain `p`, and with them the numbers of missing blocks and rows.
    ///
    /// # Safety
    /// As [`store`](Self::store).
    unsafe fn copy(&self, p: usize, from: &Values) {
        // SAFETY: as in `store`.
        match (self, from) {
            (Self::F64(layout, to), Values::F64(from)) => {
                unsafe { to.range(layout.range(p)) }.copy_from_slice(&from[layout.range(p)]);
            }
            (Self::F32(layout, to), Values::F32(from)) => {
                unsafe { to.range(layout.range(p)) }.copy_from_slice(&from[layout.range(p)]);
            }
            _ => {}
        }
    }

    /// Stores the factors of subdomain `p`.
    ///
    /// # Safety
    /// No other thread may store those of this subdomain.
    unsafe fn store(&self, plan: &Plan, p: usize, from: &[f64], next: &mut Next) {
        // SAFETY: subdomains have disjoint ranges, and the caller promises the rest.
        match self {
            Self::F64(layout, to) => layout.store(plan, p, from, unsafe { to.range(layout.range(p)) }, next),
            Self::F32(layout, to) => layout.store(plan, p, from, unsafe { to.range(layout.range(p)) }, next),
        }
    }
}

impl Triangles {
    /// Allocates the factors of a plan or, with `transposed`, those of its transpose.
    fn allocate(plan: &Plan, precision: Precision, transposed: bool) -> Result<Self> {
        let layout = Layout::new(plan, precision, transposed);
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
        Ok(Self { layout, columns: Arc::new(columns), values })
    }

    /// Allocates the transpose of factors with symmetric patterns.
    fn mirror(&self) -> Result<Self> {
        let what = "transposed incomplete factors";
        let values = match &self.values {
            Values::F64(values) => Values::F64(crate::threads::zeros(values.len(), what)?),
            Values::F32(values) => Values::F32(crate::threads::zeros(values.len(), what)?),
        };
        Ok(Self { layout: self.layout.of_mirror(), columns: self.columns.clone(), values })
    }

    fn precision(&self) -> Precision {
        match self.values {
            Values::F64(_) => Precision::F64,
            Values::F32(_) => Precision::F32,
        }
    }

    fn target(&mut self) -> Target<'_> {
        match &mut self.values {
            Values::F64(values) => Target::F64(&self.layout, Disjoint::new(values)),
            Values::F32(values) => Target::F32(&self.layout, Disjoint::new(values)),
        }
    }

    /// Reads the factors of subdomain `p`, as row-major blocks in the plan's order.
    fn load(&self, plan: &Plan, p: usize, to: &mut [f64]) {
        let range = self.layout.range(p);
        match &self.values {
            Values::F64(values) => self.layout.load(plan, p, &values[range], to),
            Values::F32(values) => self.layout.load(plan, p, &values[range], to),
        }
    }
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
    type Options = IlduOptions;
    type How = Option<f64>;
    type Solve = Stride;

    fn prepare(space: &Cpu, plan: &Arc<Plan>, options: IlduOptions) -> Result<Self> {
        let (what, precision, narrow) = ("incomplete factors", options.stored(), options.is_narrow());
        let forward = Triangles::allocate(plan, precision, false)?;
        let bytes = forward.layout.values * precision.bytes();
        let pieces = pieces(plan, space.pool().pieces(bytes));
        let work = (0..space.threads().min(pieces.len())).map(|_| {
            let numbers = (plan.largest + layout::LANES) * plan.order;
            let vector = match narrow {
                true => Vector::F32(crate::threads::zeros(numbers, what)?),
                false => Vector::F64(crate::threads::zeros(numbers, what)?),
            };
            Ok(Mutex::new(Work { vector, scratch: Scratch::new(plan)?, next: Next::new() }))
        });
        let work = work.collect::<Result<_>>()?;
        let (plan, scratch) = (plan.clone(), Default::default());
        let shifts = narrow.then(|| vec![0; plan.count()]);
        Ok(CpuFactors { plan, forward, transposed: None, shifts, pieces, work, scratch })
    }

    fn factorize(&mut self, space: &Cpu, new: &TermValues, shift: Option<f64>) -> Result<FactorQuality> {
        let CpuFactors { plan, forward, transposed, shifts, pieces, work, scratch } = self;
        let terms = &new.on_host(scratch)?;
        let (pool, found) = (space.pool(), Mutex::new(Pivots::default()));
        let (lookout, too_wide) = (Lookout::here(), AtomicBool::new(false));
        let targets = [Some(forward.target()), transposed.as_mut().map(Triangles::target)];
        let shifts = shifts.as_deref_mut().map(Disjoint::new);
        pool.run(pieces.len(), |piece| {
            let mut pivots = Pivots::default();
            let Work { scratch, next, .. } = &mut *free(work, piece);
            for p in pieces[piece].clone() {
                pivots = pivots.with(factorize::subdomain(plan, terms, p, shift, scratch, &lookout));
                if let Some(shifts) = &shifts {
                    let shift = center(plan, p, &mut scratch.values);
                    too_wide.fetch_or(shift.is_none(), Relaxed);
                    // SAFETY: each subdomain is given to one thread.
                    unsafe { shifts.range(p..p + 1)[0] = shift.unwrap_or(0) };
                }
                // SAFETY: each subdomain is given to one thread.
                targets.iter().flatten().for_each(|to| unsafe { to.store(plan, p, &scratch.values, next) });
            }
            let mut all = found.lock().unwrap_or_else(|e| e.into_inner());
            *all = all.with(pivots);
        });
        lookout.finish()?;
        if too_wide.into_inner() {
            self.promote(space)?;
            return self.factorize(space, new, shift);
        }
        Ok(found.into_inner().unwrap_or_else(|e| e.into_inner()).into())
    }

    fn is_narrow(&self) -> bool {
        self.shifts.is_some()
    }

    fn prepare_transpose(&mut self, space: &Cpu) -> Result<()> {
        if self.transposed.is_some() {
            return Ok(());
        }
        let CpuFactors { plan, forward, pieces, work, .. } = self;
        let symmetric = AtomicBool::new(true);
        space.pool().run(pieces.len(), |piece| {
            let next = &mut free(work, piece).next;
            if !pieces[piece].clone().all(|p| layout::is_symmetric(plan, p, next)) {
                symmetric.store(false, Relaxed);
            }
        });
        let symmetric = symmetric.into_inner();
        let mut turned = match symmetric {
            true => forward.mirror()?,
            false => Triangles::allocate(plan, forward.precision(), true)?,
        };
        let to = turned.target();
        space.pool().run(pieces.len(), |piece| {
            let Work { scratch, next, .. } = &mut *free(work, piece);
            for p in pieces[piece].clone() {
                forward.load(plan, p, &mut scratch.values);
                // SAFETY: each subdomain is given to one thread.
                unsafe {
                    if symmetric {
                        to.copy(p, &forward.values);
                    }
                    to.store(plan, p, &scratch.values, next);
                }
            }
        });
        self.transposed = Some(turned);
        Ok(())
    }

    fn solve(&self, space: &Cpu, at: Stride, transposed: bool, x: &Vec<f64>, y: &mut Vec<f64>) -> Result<()> {
        let f = self;
        let of = if transposed { f.transposed.as_ref().ok_or_else(not_prepared)? } else { &f.forward };
        let (n, shifts) = (f.plan.block_rows * f.plan.order * at.step, f.shifts.as_deref().unwrap_or(&[]));
        check_lengths(n, n, x.len(), y.len())?;
        let (pool, y) = (space.pool(), Disjoint::new(y));
        pool.run(f.pieces.len(), |piece| {
            let vector = &mut free(&f.work, piece).vector;
            Share { plan: &f.plan, of, subdomains: f.pieces[piece].clone(), shifts, at, x, y: &y }
                .solve(vector);
        });
        Ok(())
    }

    /// Solves in one subdomain for all vectors, while its factors are in the caches, and then in the next.
    fn solve_columns(
        &self,
        space: &Cpu,
        at: Stride,
        transposed: bool,
        x: &[&Vec<f64>],
        y: &mut [&mut Vec<f64>],
    ) -> Result<()> {
        let f = self;
        let of = if transposed { f.transposed.as_ref().ok_or_else(not_prepared)? } else { &f.forward };
        let (n, shifts) = (f.plan.block_rows * f.plan.order * at.step, f.shifts.as_deref().unwrap_or(&[]));
        x.iter().zip(y.iter()).try_for_each(|(x, y)| check_lengths(n, n, x.len(), y.len()))?;
        for (x, y) in x.chunks(MOST_COLUMNS).zip(y.chunks_mut(MOST_COLUMNS)) {
            let y: ArrayVec<Disjoint<f64>, MOST_COLUMNS> = y.iter_mut().map(|y| Disjoint::new(y)).collect();
            space.pool().run(f.pieces.len(), |piece| {
                let vector = &mut free(&f.work, piece).vector;
                for p in f.pieces[piece].clone() {
                    for (x, y) in x.iter().zip(&y) {
                        Share { plan: &f.plan, of, subdomains: p..p + 1, shifts, at, x, y }.solve(vector);
                    }
                }
            });
        }
        Ok(())
    }

    fn bytes(&self, _: Stride) -> u64 {
        let f = self;
        let values = match &f.forward.values {
            Values::F64(v) => size_of_val(&v[..]),
            Values::F32(v) => size_of_val(&v[..]),
        };
        let columns = match &*f.forward.columns {
            Columns::U16(c) => size_of_val(&c[..]),
            Columns::U32(c) => size_of_val(&c[..]),
        };
        let slices = f.forward.layout.slices.len() * size_of::<Slice>();
        let vectors = f.plan.block_rows * (4 + 16 * f.plan.order);
        (values + columns + slices + vectors) as u64
    }
}

impl CpuFactors {
    /// Replaces all factors by factors in f64, without their values.
    fn promote(&mut self, space: &Cpu) -> Result<()> {
        let transposed = self.transposed.take().is_some();
        *self = Self::prepare(space, &self.plan.clone(), IlduOptions::default())?;
        if transposed { self.prepare_transpose(space) } else { Ok(()) }
    }
}

/// Brings the factors of subdomain `p`, in the plan's order, to the range of f32: divides D⁻¹ by a power of
/// two, and returns its exponent; `None` if their range is too large.
fn center(plan: &Plan, p: usize, values: &mut [f64]) -> Option<i32> {
    let (square, mut found) = (plan.order * plan.order, Exponents::default());
    let first = plan.row_ptr[plan.ptr[p]];
    for i in plan.ptr[p]..plan.ptr[p + 1] {
        let [begin, middle, end] =
            [plan.row_ptr[i], plan.diagonal[i], plan.row_ptr[i + 1]].map(|e| (e - first) * square);
        values[middle..middle + square].chunks_exact(plan.order).for_each(|row| found.pivot(row));
        found.others(&values[begin..middle]);
        found.others(&values[middle + square..end]);
    }
    let shift = found.common()?;
    scale(plan, p, -shift, values);
    Some(shift)
}

/// Multiplies D⁻¹ of subdomain `p` by 2^shift.
fn scale(plan: &Plan, p: usize, shift: i32, values: &mut [f64]) {
    if shift == 0 {
        return;
    }
    let (square, first, [f, g]) = (plan.order * plan.order, plan.row_ptr[plan.ptr[p]], powers(shift));
    for i in plan.ptr[p]..plan.ptr[p + 1] {
        let block = &mut values[(plan.diagonal[i] - first) * square..][..square];
        block.iter_mut().for_each(|v| *v = *v * f * g);
    }
}

#[cfg(any(test, feature = "testing"))]
impl crate::precond::testing::ReadFactors for Cpu {
    fn read_factors(&self, f: &CpuFactors) -> Result<Vec<f64>> {
        let square = f.plan.order * f.plan.order;
        let mut out = vec![0.0; f.plan.entries() * square];
        for p in 0..f.plan.count() {
            let values = &mut out[f.plan.row_ptr[f.plan.ptr[p]] * square..];
            f.forward.load(&f.plan, p, values);
            scale(&f.plan, p, f.shifts.as_ref().map_or(0, |shifts| shifts[p]), values);
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
