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
//! With `compute=f32` the vectors of solves are in f32. Each rank scales its numbers by powers of two.
//!
//! A transposed solve reads a copy of the factors in the order of rows of Sᵀ, so that each row is still
//! computed by one thread. Its levels are those of the forward solve, last one first.

mod factorize;
mod levels;
mod round;
mod solve;

use super::elimination::Stored;
use super::{Cpu, elimination, narrow};
use crate::comm::{Channel, agree};
use crate::halo::Halo;
use crate::memory::{self, check_len};
use crate::operator::{TermValues, check_lengths, not_prepared};
use crate::precond::range::{exponent_or_zero, powers};
use crate::precond::{
    FILL, FactorQuality, Factorization, IncompleteFactors, SchwarzFactors, SchwarzOptions, SchwarzPlan, Sums,
    TriangularSolve, Turned,
};
use crate::space::{Precision, Space};
use crate::threads::{Disjoint, Pool, share, zeros};
use crate::{Error, Result};
use levels::Levels;
use solve::Solves;
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
    /// Columns as distances of 16 bits ([`SchwarzPlan::is_near`]); empty if they need more.
    near: Vec<u16>,
    /// The exponent of the power of two by which the matrix is multiplied, if vectors are in f32.
    shift: Option<i32>,
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

/// Imported nodes, and the vectors of a solve.
struct Work {
    ghosts: Vec<f64>,
    vectors: Vectors,
}

/// Vectors over the rows of all subdomains.
enum Vectors {
    F64(solve::Vectors<f64>),
    F32(solve::Vectors<f32>),
}

/// The transposed factors, and the way of results to their nodes.
struct Transposed {
    pattern: Turned,
    near: Vec<u16>,
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
        let pattern = Turned::of(plan)?;
        let near = solve::distances(plan.is_near(), pattern.rows())?;
        Ok(Self { pattern, near, numbers, sums: Sums::of(plan)?, back: None })
    }

    /// Takes new factors, of which those in f32 are rounded.
    fn store(&mut self, pool: &Pool, b: usize, new: [&[f64]; 2], rounded: &Option<[Vec<f32>; 2]>) {
        let from = &self.pattern.from;
        match (&mut self.numbers, rounded) {
            (Numbers::F32([to, of_diagonal]), Some([factors, inverse])) => {
                turn(pool, b, factors, to, |e| from[e] as usize);
                turn(pool, b, inverse, of_diagonal, |i| i);
            }
            (Numbers::F64([to, of_diagonal]), _) => {
                turn(pool, b, new[0], to, |e| from[e] as usize);
                turn(pool, b, new[1], of_diagonal, |i| i);
            }
            (Numbers::F32(_), None) => unreachable!("a transpose in f32 of factors in f64"),
        }
    }
}

/// Stores the transposes of blocks; `place` returns the block from which one comes.
fn turn<T: Stored>(pool: &Pool, b: usize, from: &[T], to: &mut [T], place: impl Fn(usize) -> usize + Sync) {
    let (bb, pieces) = (b * b, pool.pieces(8 * from.len()));
    let (count, to) = (to.len() / bb, Disjoint::new(to));
    pool.run(pieces, |piece| {
        let own = share(count, piece, pieces);
        // SAFETY: pieces do not overlap.
        let blocks = unsafe { to.range(own.start * bb..own.end * bb) };
        for (block, k) in blocks.chunks_exact_mut(bb).zip(own) {
            let from = &from[place(k) * bb..][..bb];
            for r in 0..b {
                (0..b).for_each(|c| block[r * b + c] = from[c * b + r]);
            }
        }
    });
}

impl CpuSchwarz {
    /// Solves for the numbers that `source` returns for each row, or zeros. Returns the results of all rows,
    /// and their scale. `x` has all numbers.
    fn solve_rows<'w, 'x, R: Solves>(
        &self,
        pool: &Pool,
        how: TriangularSolve,
        transposed: Option<&Transposed>,
        x: [&[f64]; 2],
        source: impl Fn(usize) -> Option<&'x [f64]> + Sync,
        vectors: &'w mut solve::Vectors<R>,
    ) -> (&'w [R], [f64; 2]) {
        let (plan, b) = (&self.plan, self.plan.block);
        let [scale, back] = match self.shift.filter(|_| R::SCALED) {
            None => [[1.0; 2]; 2],
            Some(shift) => {
                let [own, ghosts] = x.map(|x| narrow::largest(pool, x));
                let e = exponent_or_zero(if ghosts > own { ghosts } else { own });
                [powers(-e), powers(e + shift)]
            }
        };
        let to = &mut vectors[0];
        let (pieces, to) = (pool.pieces(16 * to.len()), Disjoint::new(to));
        pool.run(pieces, |piece| {
            let rows = share(plan.rows(), piece, pieces);
            // SAFETY: pieces do not overlap.
            let to = unsafe { to.range(rows.start * b..rows.end * b) };
            for (to, row) in to.chunks_exact_mut(b).zip(rows) {
                match source(row) {
                    None => to.fill(R::default()),
                    Some(from) => {
                        for (to, &v) in to.iter_mut().zip(from) {
                            *to = R::of(v, scale);
                        }
                    }
                }
            }
        });
        R::solve(pool, self, how, transposed, vectors);
        (&vectors[1], back)
    }

    /// Computes `y ← M⁻¹ x` from x and the ghosts.
    fn forward<R: Solves>(
        &self,
        pool: &Pool,
        how: TriangularSolve,
        [x, ghosts]: [&[f64]; 2],
        vectors: &mut solve::Vectors<R>,
        y: &mut [f64],
    ) {
        let (plan, b) = (&self.plan, self.plan.block);
        let n = plan.nodes.own * b;
        let source = |row: usize| {
            let node = plan.node[row] as usize * b;
            Some(if node < n { &x[node..][..b] } else { &ghosts[node - n..][..b] })
        };
        let (z, back) = self.solve_rows(pool, how, None, [x, ghosts], source, vectors);
        let (pieces, to) = (pool.pieces(16 * n), Disjoint::new(y));
        pool.run(pieces, |piece| {
            let nodes = share(plan.nodes.own, piece, pieces);
            // SAFETY: pieces do not overlap.
            let to = unsafe { to.range(nodes.start * b..nodes.end * b) };
            for (to, &row) in to.chunks_exact_mut(b).zip(&plan.result[nodes]) {
                for (to, v) in to.iter_mut().zip(&z[row as usize * b..][..b]) {
                    *to = v.back(back);
                }
            }
        });
    }

    /// Computes `y ← M⁻ᵀ x`.
    fn backward<R: Solves>(
        &self,
        space: &Cpu,
        how: TriangularSolve,
        x: &[f64],
        vectors: &mut solve::Vectors<R>,
        y: &mut [f64],
    ) -> Result<()> {
        let (plan, b, pool) = (&self.plan, self.plan.block, space.pool());
        let transposed = self.transposed.as_ref().ok_or_else(not_prepared)?;
        let source = |row: usize| plan.keeps(row).then(|| &x[plan.node[row] as usize * b..][..b]);
        let (z, scale) = self.solve_rows(pool, how, Some(transposed), [x, &[]], source, vectors);
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
                        match (k as usize).checked_sub(plan.rows()) {
                            None => {
                                let from = &z[k as usize * b..][..b];
                                to.iter_mut().zip(from).for_each(|(to, v)| *to += v.back(scale));
                            }
                            Some(k) => {
                                let from = &arrived[k * b..][..b];
                                to.iter_mut().zip(from).for_each(|(to, v)| *to += v);
                            }
                        }
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
        let vectors = match options.is_narrow() {
            false => Vectors::F64([zeros(rows, what)?, zeros(rows, what)?, zeros(rows, what)?]),
            true => Vectors::F32([zeros(rows, what)?, zeros(rows, what)?, zeros(rows, what)?]),
        };
        let work = Work { ghosts: zeros(plan.nodes.ghosts * b, what)?, vectors };
        let rounded = match options.stored() {
            Precision::F64 => None,
            Precision::F32 => Some([zeros(numbers, what)?, zeros(squares, what)?]),
        };
        Ok(CpuSchwarz {
            matrix: zeros(numbers, what)?,
            factors: zeros(numbers, what)?,
            inverse: zeros(squares, what)?,
            before: Default::default(),
            rounded,
            near: solve::distances(plan.is_near(), plan.pattern())?,
            shift: options.is_narrow().then_some(0),
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
        self.round(space.pool())?;
        let Self { plan, factors, inverse, rounded, transposed, .. } = self;
        if let Some(transposed) = transposed {
            transposed.store(space.pool(), plan.block, [factors, inverse], rounded);
        }
        Ok(found)
    }

    fn is_narrow(&self) -> bool {
        self.shift.is_some()
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
        transposed.store(space.pool(), b, [&self.factors, &self.inverse], &self.rounded);
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
        let (f, n) = (self, self.plan.nodes.own * self.plan.block);
        check_lengths(n, n, x.len(), y.len())?;
        let Work { ghosts, vectors } = &mut *f.work.borrow_mut();
        if transposed {
            return match vectors {
                Vectors::F64(vectors) => f.backward(space, how, x, vectors, y),
                Vectors::F32(vectors) => f.backward(space, how, x, vectors, y),
            };
        }
        if let Some(nodes) = &f.nodes {
            nodes.borrow_mut().bring(space, x, ghosts)?;
        }
        match vectors {
            Vectors::F64(vectors) => f.forward(space.pool(), how, [x, ghosts], vectors, y),
            Vectors::F32(vectors) => f.forward(space.pool(), how, [x, ghosts], vectors, y),
        }
        Ok(())
    }

    fn bytes(&self, how: TriangularSolve) -> u64 {
        let f = self;
        let (plan, b) = (&f.plan, f.plan.block as u64);
        let number = if f.rounded.is_some() { 4 } else { 8 };
        let of_vector = if f.shift.is_some() { 4 } else { 8 };
        let (entries, rows) = (plan.entries() as u64, plan.rows() as u64);
        let column = if f.near.is_empty() { 4 } else { 2 };
        let once =
            entries * (b * b * number + column) + rows * (b * b * number + 16) + 5 * of_vector * rows * b;
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
struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    _slice: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: ranges are handed out only through unsafe functions, whose callers keep readers and writers apart.
unsafe impl<T: Send + Sync> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), _slice: std::marker::PhantomData }
    }

    /// # Safety
    /// No thread may write to the range while the result lives.
    #[inline(always)]
    unsafe fn read(&self, range: Range<usize>) -> &[T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: in bounds by the check above, not written by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start.add(range.start), range.len()) }
    }

    /// # Safety
    /// No other thread may read or write the range while the result lives.
    #[allow(clippy::mut_from_ref)]
    #[inline(always)]
    unsafe fn write(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: in bounds by the check above, unaliased by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}
