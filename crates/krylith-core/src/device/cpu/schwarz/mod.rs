//! Restricted additive Schwarz on the CPU.
//!
//! Exact factorisations and solves go subdomain by subdomain if there are enough of them for all threads, or
//! if levels would take longer. Otherwise they go level by level (`levels.rs`). Randomized sweeps are always
//! deterministic: threads process runs of consecutive rows, and a run reads the results of the previous sweep
//! from all other runs. Results therefore do not depend on threads. A row is summed in the same order in
//! every mode.
//!
//! Memory traffic of one exact application: factors and columns once, five passes over the rows of
//! subdomains. A Jacobi or randomized sweep reads L or U once.
//!
//! A transposed solve reads a copy of the factors in the order of rows of Sᵀ, so that each row is still
//! computed by one thread. Its levels are those of the forward solve, last one first.

mod factorize;
mod levels;
mod solve;

use super::elimination::Stored;
use super::{Cpu, elimination};
use crate::comm::{Channel, agree};
use crate::halo::Halo;
use crate::memory::{self, check_len};
use crate::operator::{TermValues, check_lengths, not_prepared};
use crate::precond::{
    FILL, FactorQuality, Factorization, IncompleteFactors, SchwarzFactors, SchwarzOptions, SchwarzPlan, Sums,
    TriangularSolve, Turned,
};
use crate::space::{Precision, Space};
use crate::threads::{Disjoint, Pool, share, zeros};
use crate::{Error, Result};
use levels::Levels;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

/// Factors in host memory, in the plan's order.
#[doc(hidden)]
pub struct CpuSchwarz {
    plan: Arc<SchwarzPlan>,
    /// The subdomain matrices, on the pattern S of the factors.
    matrix: Vec<f64>,
    /// L below the diagonal, and U.
    factors: Vec<f64>,
    /// Inverses of the diagonal blocks of U.
    inverse: Vec<f64>,
    /// Factors and inverses of the previous sweep; empty until there is one.
    before: [Vec<f64>; 2],
    /// Factors and inverses as solves read them, where those use f32.
    rounded: Option<[Vec<f32>; 2]>,
    /// The largest entry of each scalar row.
    scale: Vec<f64>,
    transposed: Option<Transposed>,
    schedule: Schedule,
    nodes: Option<RefCell<Import>>,
    blocks: Option<Import>,
    work: RefCell<Work>,
    /// New values that came from a GPU, and blocks of other ranks.
    values: [Vec<f64>; 2],
}

/// Division of the rows among threads.
struct Schedule {
    /// Runs of consecutive rows for sweeps; each is within one subdomain.
    runs: Levels,
    /// Levels of L and of U where there are too few subdomains for all threads and levels are faster;
    /// otherwise one level of all subdomains.
    exact: [Levels; 2],
}

/// Vectors over the rows of all subdomains, and imported nodes.
#[derive(Default)]
struct Work {
    ghosts: Vec<f64>,
    rhs: Vec<f64>,
    now: Vec<f64>,
    next: Vec<f64>,
}

/// The transposed factors, and the way of results to their nodes.
struct Transposed {
    pattern: Turned,
    numbers: Numbers,
    sums: Sums,
    back: Option<RefCell<Back>>,
}

/// Blocks of factors and inverses of the diagonal, all transposed, in the order of Sᵀ.
enum Numbers {
    F64([Vec<f64>; 2]),
    F32([Vec<f32>; 2]),
}

/// The way of sums to other ranks.
struct Back {
    import: Import,
    sums: Vec<f64>,
    arrived: Vec<f64>,
}

/// Imports the numbers of other ranks.
struct Import {
    halo: Arc<Halo>,
    run: usize,
    channel: Box<dyn Channel>,
}

impl Import {
    fn new(space: &Cpu, halo: &Arc<Halo>, run: usize) -> Result<Option<Self>> {
        if space.comm().size() == 1 {
            return Ok(None);
        }
        let channel = halo.channel(space.comm(), run)?;
        Ok(Some(Self { halo: halo.clone(), run, channel }))
    }

    fn bring(&mut self, space: &Cpu, own: &[f64], ghosts: &mut [f64]) -> Result<()> {
        let Self { halo, run, channel } = self;
        let run = *run;
        for (out, &node) in channel.outgoing().chunks_exact_mut(run).zip(&halo.send) {
            out.copy_from_slice(&own[node as usize * run..][..run]);
        }
        space.waiting(|| channel.start())?;
        ghosts.copy_from_slice(space.waiting(|| channel.finish())?);
        Ok(())
    }
}

impl Schedule {
    fn new(plan: &SchwarzPlan, rows: usize, pool: &Pool) -> Self {
        let threads = pool.threads();
        let bounds = plan.subdomains.windows(2).map(|w| w[0] as usize..w[1] as usize);
        let subdomains: Vec<Range<usize>> = bounds.filter(|rows| !rows.is_empty()).collect();
        let cut = |all: &Range<usize>| {
            let end = all.end;
            all.clone().step_by(rows).map(move |first| first..first.saturating_add(rows).min(end))
        };
        let runs = subdomains.iter().flat_map(cut).collect();
        let few = threads > 1 && subdomains.len() < 2 * threads;
        let alone = subdomains.iter().map(Range::len).max().unwrap_or(0);
        let largest = alone.max(plan.rows().div_ceil(threads));
        let levels = if few { levels::of_both(plan, pool, largest) } else { None };
        let exact = levels.unwrap_or_else(|| [(); 2].map(|()| Levels::one(subdomains.clone())));
        Self { runs: Levels::one(runs), exact }
    }
}

impl CpuSchwarz {
    /// Gathers the values of the subdomain matrices, and the largest entry of each scalar row. Collective.
    fn gather(&mut self, space: &Cpu, values: memory::Numbers) -> Result<()> {
        let CpuSchwarz { plan, matrix, scale, blocks, values: [scratch, ghosts], .. } = self;
        let (b, bb) = (plan.block, plan.block * plan.block);
        check_len(values.len(), plan.blocks.own * bb)?;
        let own = values.on_host(scratch)?;
        if let Some(blocks) = blocks {
            blocks.bring(space, own, ghosts)?;
        }
        let ghosts = &ghosts[..];
        let pieces = space.pool().pieces(16 * matrix.len());
        let (matrix, scale) = (Disjoint::new(matrix), Disjoint::new(scale));
        space.pool().run(pieces, |piece| {
            let rows = share(plan.rows(), piece, pieces);
            let entries = plan.row_ptr[rows.start] as usize..plan.row_ptr[rows.end] as usize;
            // SAFETY: pieces have rows of their own, and with them entries.
            let (matrix, scale) = unsafe {
                (
                    matrix.range(entries.start * bb..entries.end * bb),
                    scale.range(rows.start * b..rows.end * b),
                )
            };
            for (to, &source) in matrix.chunks_exact_mut(bb).zip(&plan.source[entries.clone()]) {
                let source = source as usize;
                match source.checked_sub(plan.blocks.own) {
                    _ if source == FILL as usize => to.fill(0.0),
                    None => to.copy_from_slice(&own[source * bb..][..bb]),
                    Some(ghost) => to.copy_from_slice(&ghosts[ghost * bb..][..bb]),
                }
            }
            for (i, scale) in rows.zip(scale.chunks_exact_mut(b)) {
                let row =
                    plan.row_ptr[i] as usize - entries.start..plan.row_ptr[i + 1] as usize - entries.start;
                elimination::largest(b, &matrix[row.start * bb..row.end * bb], scale);
            }
        });
        Ok(())
    }
}

impl Transposed {
    /// Lays out the transpose, without numbers and without its way to other ranks.
    fn new(plan: &SchwarzPlan, rounded: bool) -> Result<Self> {
        let (b, what) = (plan.block, "the transposed factors of ras");
        let [factors, inverse] = [plan.entries(), plan.rows()].map(|blocks| blocks * b * b);
        let numbers = match rounded {
            false => Numbers::F64([zeros(factors, what)?, zeros(inverse, what)?]),
            true => Numbers::F32([zeros(factors, what)?, zeros(inverse, what)?]),
        };
        Ok(Self { pattern: Turned::of(plan)?, numbers, sums: Sums::of(plan)?, back: None })
    }

    /// Takes new factors.
    fn store(&mut self, pool: &Pool, b: usize, factors: &[f64], inverse: &[f64]) {
        let from = &self.pattern.from;
        match &mut self.numbers {
            Numbers::F64([to, of_diagonal]) => {
                turn(pool, b, factors, to, |e| from[e] as usize);
                turn(pool, b, inverse, of_diagonal, |i| i);
            }
            Numbers::F32([to, of_diagonal]) => {
                turn(pool, b, factors, to, |e| from[e] as usize);
                turn(pool, b, inverse, of_diagonal, |i| i);
            }
        }
    }
}

/// Stores the transposes of blocks; `place` returns the block from which one comes.
fn turn<T: Stored>(pool: &Pool, b: usize, from: &[f64], to: &mut [T], place: impl Fn(usize) -> usize + Sync) {
    let (bb, pieces) = (b * b, pool.pieces(8 * from.len()));
    let (count, to) = (to.len() / bb, Disjoint::new(to));
    pool.run(pieces, |piece| {
        let own = share(count, piece, pieces);
        // SAFETY: pieces do not overlap.
        let blocks = unsafe { to.range(own.start * bb..own.end * bb) };
        for (block, k) in blocks.chunks_exact_mut(bb).zip(own) {
            let from = &from[place(k) * bb..][..bb];
            for r in 0..b {
                (0..b).for_each(|c| block[r * b + c] = T::narrow(from[c * b + r]));
            }
        }
    });
}

impl CpuSchwarz {
    /// Computes `y ← M⁻ᵀ x`.
    fn transposed_solve(&self, space: &Cpu, how: TriangularSolve, x: &[f64], y: &mut [f64]) -> Result<()> {
        let (plan, b) = (&self.plan, self.plan.block);
        let transposed = self.transposed.as_ref().ok_or_else(not_prepared)?;
        let n = plan.nodes.own * b;
        check_lengths(n, n, x.len(), y.len())?;
        let Work { rhs, now, next, .. } = &mut *self.work.borrow_mut();
        let (pool, pieces) = (space.pool(), space.pool().pieces(16 * rhs.len()));
        let to = Disjoint::new(rhs);
        pool.run(pieces, |piece| {
            let rows = share(plan.rows(), piece, pieces);
            // SAFETY: pieces do not overlap.
            let to = unsafe { to.range(rows.start * b..rows.end * b) };
            for (to, row) in to.chunks_exact_mut(b).zip(rows) {
                match plan.keeps(row) {
                    true => to.copy_from_slice(&x[plan.node[row] as usize * b..][..b]),
                    false => to.fill(0.0),
                }
            }
        });
        solve::solve(pool, self, how, Some(transposed), rhs, now, next);
        let z = &now[..];
        let add = |nodes: Range<usize>, arrived: &[f64], to: &mut [f64]| {
            let (count, pieces, first) = (nodes.len(), pool.pieces(16 * to.len()), nodes.start);
            let (Sums { ptr, number }, to) = (&transposed.sums, Disjoint::new(to));
            pool.run(pieces, |piece| {
                let own = share(count, piece, pieces);
                // SAFETY: pieces do not overlap.
                let to = unsafe { to.range(own.start * b..own.end * b) };
                to.fill(0.0);
                for (to, node) in to.chunks_exact_mut(b).zip(own.start + first..) {
                    for &k in &number[ptr[node] as usize..ptr[node + 1] as usize] {
                        let from = match (k as usize).checked_sub(plan.rows()) {
                            None => &z[k as usize * b..][..b],
                            Some(k) => &arrived[k * b..][..b],
                        };
                        to.iter_mut().zip(from).for_each(|(to, v)| *to += v);
                    }
                }
            });
        };
        let Some(back) = &transposed.back else {
            add(0..plan.nodes.own, &[], y);
            return Ok(());
        };
        let Back { import, sums, arrived } = &mut *back.borrow_mut();
        add(plan.nodes.own..plan.nodes.own + plan.nodes.ghosts, &[], sums);
        import.bring(space, sums, arrived)?;
        add(0..plan.nodes.own, arrived, y);
        Ok(())
    }
}

impl SchwarzFactors for Cpu {
    type Factors = CpuSchwarz;
}

impl IncompleteFactors<Cpu> for CpuSchwarz {
    type Plan = SchwarzPlan;
    type Options = SchwarzOptions;
    type How = Factorization;
    type Solve = TriangularSolve;

    fn prepare(space: &Cpu, plan: &Arc<SchwarzPlan>, options: SchwarzOptions) -> Result<Self> {
        let (b, what) = (plan.block, "the factors of ras");
        let (numbers, squares, rows) = (plan.entries() * b * b, plan.rows() * b * b, plan.rows() * b);
        let work = Work {
            ghosts: zeros(plan.nodes.ghosts * b, what)?,
            rhs: zeros(rows, what)?,
            now: zeros(rows, what)?,
            next: zeros(rows, what)?,
        };
        let rounded = match options.precision {
            Precision::F64 => None,
            Precision::F32 => Some([zeros(numbers, what)?, zeros(squares, what)?]),
        };
        Ok(CpuSchwarz {
            matrix: zeros(numbers, what)?,
            factors: zeros(numbers, what)?,
            inverse: zeros(squares, what)?,
            before: Default::default(),
            rounded,
            transposed: None,
            scale: zeros(rows, what)?,
            schedule: Schedule::new(plan, options.rows.max(1), space.pool()),
            nodes: Import::new(space, &plan.nodes, b)?.map(RefCell::new),
            blocks: Import::new(space, &plan.blocks, b * b)?,
            work: RefCell::new(work),
            values: [Vec::new(), zeros(plan.blocks.ghosts * b * b, what)?],
            plan: plan.clone(),
        })
    }

    fn factorize(&mut self, space: &Cpu, values: &TermValues, how: Factorization) -> Result<FactorQuality> {
        let (_, values) = values.term(0).ok_or_else(|| Error::invalid("ras: no values"))?;
        self.gather(space, values)?;
        let found = factorize::factorize(space.pool(), self, how)?;
        if let Some([factors, inverse]) = &mut self.rounded {
            factors.iter_mut().zip(&self.factors).for_each(|(to, &v)| *to = v as f32);
            inverse.iter_mut().zip(&self.inverse).for_each(|(to, &v)| *to = v as f32);
        }
        let Self { plan, factors, inverse, transposed, .. } = self;
        if let Some(transposed) = transposed {
            transposed.store(space.pool(), plan.block, factors, inverse);
        }
        Ok(found)
    }

    fn prepare_transpose(&mut self, space: &Cpu) -> Result<()> {
        if self.transposed.is_some() {
            return Ok(());
        }
        let (plan, b) = (&self.plan, self.plan.block);
        let mut transposed = agree(space.comm(), Transposed::new(plan, self.rounded.is_some()))?;
        if let Some(import) = Import::new(space, &Arc::new(plan.nodes.reversed(0)), b)? {
            let (sums, arrived) = (vec![0.0; plan.nodes.ghosts * b], vec![0.0; plan.nodes.send.len() * b]);
            transposed.back = Some(RefCell::new(Back { import, sums, arrived }));
        }
        transposed.store(space.pool(), b, &self.factors, &self.inverse);
        self.transposed = Some(transposed);
        Ok(())
    }

    fn solve(
        &self,
        space: &Cpu,
        how: TriangularSolve,
        transposed: bool,
        x: &Vec<f64>,
        y: &mut Vec<f64>,
    ) -> Result<()> {
        if transposed {
            return self.transposed_solve(space, how, x, y);
        }
        let f = self;
        let (plan, b) = (&f.plan, f.plan.block);
        let n = plan.nodes.own * b;
        check_lengths(n, n, x.len(), y.len())?;
        let Work { ghosts, rhs, now, next } = &mut *f.work.borrow_mut();
        if let Some(nodes) = &f.nodes {
            nodes.borrow_mut().bring(space, x, ghosts)?;
        }
        let ghosts = &ghosts[..];
        let pieces = space.pool().pieces(16 * rhs.len());
        let to = Disjoint::new(rhs);
        space.pool().run(pieces, |piece| {
            let rows = share(plan.rows(), piece, pieces);
            // SAFETY: pieces do not overlap.
            let to = unsafe { to.range(rows.start * b..rows.end * b) };
            for (to, &node) in to.chunks_exact_mut(b).zip(&plan.node[rows]) {
                let node = node as usize * b;
                to.copy_from_slice(if node < n { &x[node..][..b] } else { &ghosts[node - n..][..b] });
            }
        });
        solve::solve(space.pool(), f, how, None, rhs, now, next);
        let (z, to) = (&now[..], Disjoint::new(y));
        let pieces = space.pool().pieces(16 * n);
        space.pool().run(pieces, |piece| {
            let nodes = share(plan.nodes.own, piece, pieces);
            // SAFETY: pieces do not overlap.
            let to = unsafe { to.range(nodes.start * b..nodes.end * b) };
            for (to, &row) in to.chunks_exact_mut(b).zip(&plan.result[nodes]) {
                to.copy_from_slice(&z[row as usize * b..][..b]);
            }
        });
        Ok(())
    }

    fn bytes(&self, how: TriangularSolve) -> u64 {
        let f = self;
        let (plan, b) = (&f.plan, f.plan.block as u64);
        let number = if f.rounded.is_some() { 4 } else { 8 };
        let (entries, rows) = (plan.entries() as u64, plan.rows() as u64);
        let once = entries * (b * b * number + 4) + rows * (b * b * number + 16) + 5 * 8 * rows * b;
        let times = match how {
            TriangularSolve::Exact => 1,
            TriangularSolve::Jacobi { sweeps } | TriangularSolve::Random { sweeps } => sweeps as u64,
        };
        times * once + 16 * b * plan.nodes.own as u64
    }
}

#[cfg(any(test, feature = "testing"))]
impl crate::precond::testing::ReadSchwarz for Cpu {
    fn read_schwarz(&self, f: &CpuSchwarz) -> Result<Vec<f64>> {
        Ok(f.factors.clone())
    }
}

/// Calls a function with the order of blocks as a constant.
macro_rules! by_order {
    ($order:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match $order {
            1 => $function::<1>($($argument),*),
            2 => $function::<2>($($argument),*),
            3 => $function::<3>($($argument),*),
            4 => $function::<4>($($argument),*),
            5 => $function::<5>($($argument),*),
            6 => $function::<6>($($argument),*),
            7 => $function::<7>($($argument),*),
            8 => $function::<8>($($argument),*),
            order => unreachable!("blocks of order {order}"),
        }
    };
}
use by_order;

/// Numbers of rows that threads write, each row by one thread, while others read finished rows.
struct Shared<'a> {
    start: *mut f64,
    len: usize,
    _slice: std::marker::PhantomData<&'a mut [f64]>,
}

// SAFETY: ranges are handed out only through unsafe functions, whose callers keep readers and writers apart.
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    fn new(slice: &'a mut [f64]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), _slice: std::marker::PhantomData }
    }

    /// # Safety
    /// No thread may write to the range while the result lives.
    #[inline(always)]
    unsafe fn read(&self, range: Range<usize>) -> &[f64] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: in bounds by the check above, not written by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start.add(range.start), range.len()) }
    }

    /// # Safety
    /// No other thread may read or write the range while the result lives.
    #[allow(clippy::mut_from_ref)]
    #[inline(always)]
    unsafe fn write(&self, range: Range<usize>) -> &mut [f64] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: in bounds by the check above, unaliased by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}
