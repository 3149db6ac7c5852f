//! Subdomain solves of Schwarz's preconditioner on a GPU.
//!
//! `factor.rs` computes L and U on the pattern S, and `solve.rs` keeps both triangles in the order in which
//! solves read them. This file imports values and vectors, over an exchange where the overlap reaches other
//! ranks.
//!
//! Exact factors and solves are one launch each. Warps take rows by ticket, in the order of levels, and wait
//! for numbers that are not set yet. So levels need no barrier between them. The chain of levels bounds exact
//! solves, and bytes bound sweeps: `exact_is_faster` compares the two.

mod factor;
mod order;
mod solve;

use super::Cuda;
use super::compiler::Kernel;
use super::driver::{Buffer, Device};
use super::exchange::Exchange;
use super::launch::{Address, At, Entry, Function, Of, Set, kernels};
use super::specialisations::{STORES, define, vectors};
use crate::comm::{agree, largest};
use crate::halo::Halo;
use crate::memory::check_len;
use crate::operator::{TermValues, not_prepared};
use crate::precond::{
    FactorQuality, Factorization, IncompleteFactors, Pivots, SchwarzFactors, SchwarzOptions, SchwarzPlan,
    Sums, TriangularSolve,
};
use crate::space::{Precision, Space};
use crate::{Error, Result};
pub(super) use factor::SCHWARZ_FACTOR;
use factor::{Factorizer, schwarz_sweep};
use order::Orders;
pub(super) use solve::SCHWARZ_SOLVE;
use solve::{EXACT_ROWS, Kind, Solves, schwarz_exact};
use std::sync::Arc;

kernels! {
    SCHWARZ_HALO in "schwarz_halo.cu", all_halo_kernels;
    fn schwarz_send(halt: At<i32>, x: At<f64>, exchange: Address);
    fn schwarz_import(halt: At<i32>, count: i64, ghosts: At<f64>, to: At<f64>, exchange: Address);
    fn schwarz_start(
        halt: At<i32>, rows: i32, own: i32, node: At<u32>, x: At<f64>, ghosts: At<f64>, w: At<f64>,
        v: At<f64>, how: i32, kept: At<u32>, tickets: At<u32>, exchange: Address, scale: Address, shift: i32,
        again: i32,
    );
    fn schwarz_add(
        halt: At<i32>, first: i32, count: i32, rows: i32, ptr: At<u32>, number: At<u32>, z: At<f64>,
        arrived: At<f64>, to: At<f64>, exchange: Address, scale: Address,
    );
}

/// Threads per thread block of `schwarz_halo.cu`.
const THREADS: usize = 256;

/// Plan, factors and vectors of all subdomains of a rank.
#[doc(hidden)]
pub struct CudaSchwarz {
    plan: Arc<SchwarzPlan>,
    options: SchwarzOptions,
    by: Factorizer,
    solves: Solves,
    start: Function<schwarz_start>,
    nodes: Option<Import>,
    blocks: Option<Import>,
    adding: Option<Adding>,
}

/// Adds the results of a transposed solve on their nodes, over all ranks.
struct Adding {
    ptr: Buffer<u32>,
    number: Buffer<u32>,
    add: Function<schwarz_add>,
    /// The way of sums for nodes of other ranks.
    back: Option<(Import, Buffer<f64>)>,
}

/// An exchange, with the kernels that start and end it.
struct Import {
    exchange: Exchange,
    send: Function<schwarz_send>,
    import: Function<schwarz_import>,
}

/// Returns a kernel of `schwarz_halo.cu` for nodes of `run` numbers, where vectors over rows have this
/// precision.
fn halo_kernel<K: Entry>(entry: K, run: usize, compute: Precision) -> Of<K> {
    let pair = if run.is_multiple_of(2) { 2 } else { 1 };
    let defines = [define("RUN", run), define("PAIR", pair), define("THREADS", THREADS)];
    entry.with(defines.into_iter().chain(vectors(compute)).collect())
}

/// Returns the kernels that send vectors, and those that import blocks.
fn halo_kernels(b: usize, compute: Precision) -> [Kernel; 2] {
    [halo_kernel(schwarz_start, b, compute).into(), halo_kernel(schwarz_import, b * b, Precision::F64).into()]
}

fn all_halo_kernels(set: Set) -> Vec<Kernel> {
    let of = |compute| blocks(set).flat_map(move |b| halo_kernels(b, compute));
    set.choose(STORES.to_vec(), [Precision::F64]).into_iter().flat_map(of).collect()
}

/// Block sizes that are compiled ahead.
fn blocks(set: Set) -> std::ops::RangeInclusive<usize> {
    if set == Set::All { 1..=8 } else { 1..=5 }
}

/// Returns the kernels for some block sizes, and for the precisions of stored factors and of vectors: one
/// kernel per file, which is compiled as a whole.
pub(crate) fn kernels(blocks: impl IntoIterator<Item = usize>, precisions: [Precision; 2]) -> Vec<Kernel> {
    let of = |b: usize| {
        let exact = Kind { block: b, precisions, near: true }.of(schwarz_exact);
        [factor::kernel(schwarz_sweep, b).into(), exact.into()]
            .into_iter()
            .chain(halo_kernels(b, precisions[1]))
    };
    blocks.into_iter().flat_map(of).collect()
}

/// Number of thread blocks for `items` items, one per thread, limited to those that are resident at once.
fn grid(device: &Device, items: usize) -> usize {
    items.div_ceil(THREADS).clamp(1, 8 * device.multiprocessors())
}

impl Import {
    /// Makes the exchange; `None` if no rank has neighbours. Collective.
    fn new(space: &Cuda, halo: &Arc<Halo>, run: usize) -> Result<Option<Self>> {
        if largest(space.comm(), halo.neighbours.len() as f64)? == 0.0 {
            return Ok(None);
        }
        let exchange = Exchange::new(space, halo, run)?;
        let device = space.device();
        let both = || {
            let send = device.function(&halo_kernel(schwarz_send, run, Precision::F64))?;
            Ok((send, device.function(&halo_kernel(schwarz_import, run, Precision::F64))?))
        };
        let (send, import) = agree(space.comm(), both())?;
        Ok(Some(Self { exchange, send, import }))
    }

    /// Starts the exchange of the own numbers at `x`. The ghosts may be read after [`Exchange::finish`].
    fn send(&self, space: &Cuda, x: u64) -> Result<()> {
        let Some(inside) = self.exchange.inside() else { return self.exchange.start(space, x) };
        let numbers = self.exchange.halo().send.len() * self.exchange.run();
        let grid = numbers.div_ceil(THREADS).clamp(1, 2 * space.device().multiprocessors());
        self.send.on(space.device(), grid, THREADS).run(space.halt(), x, inside)
    }

    /// Copies the numbers that neighbours have sent.
    fn copy(&self, space: &Cuda, to: u64) -> Result<()> {
        let (device, exchange) = (space.device(), &self.exchange);
        exchange.finish(device)?;
        let count = exchange.halo().ghosts * exchange.run();
        self.import.on(device, grid(device, count), THREADS).run(
            space.halt(),
            count as i64,
            exchange.ghosts(),
            to,
            exchange.inside().unwrap_or(0),
        )
    }
}

/// Refuses a plan that this GPU does not support.
fn check(plan: &SchwarzPlan) -> Result<()> {
    let (b, rows) = (plan.block, plan.rows());
    if !(1..=8).contains(&b) {
        return Err(Error::Unsupported(format!(
            "overlapping subdomains on a GPU do not support blocks of order {b}; orders 1 to 8 are supported"
        )));
    }
    if rows * b > i32::MAX as usize {
        return Err(Error::Unsupported(format!(
            "the subdomains of one GPU have {rows} block rows of order {b}; at most {} unknowns are supported. Use more GPUs",
            i32::MAX
        )));
    }
    Ok(())
}

impl IncompleteFactors<Cuda> for CudaSchwarz {
    type Plan = SchwarzPlan;
    type Options = SchwarzOptions;
    type How = Factorization;
    type Solve = TriangularSolve;

    fn prepare(space: &Cuda, plan: &Arc<SchwarzPlan>, options: SchwarzOptions) -> Result<Self> {
        let (device, per) = (space.device(), options.rows.clamp(1, plan.rows().max(1)));
        let local = || {
            check(plan)?;
            let orders = Orders::new(plan, EXACT_ROWS);
            let by = Factorizer::new(device, plan, &orders.rows, per, options.deterministic)?;
            let solves = Solves::new(device, plan, &by, &orders, [options.stored(), options.compute], per)?;
            Ok((by, solves, device.function(&halo_kernel(schwarz_start, plan.block, options.compute))?))
        };
        let (by, solves, start) = agree(space.comm(), local())?;
        let nodes = Import::new(space, &plan.nodes, plan.block)?;
        let blocks = Import::new(space, &plan.blocks, plan.block * plan.block)?;
        Ok(CudaSchwarz { plan: plan.clone(), options, by, solves, start, nodes, blocks, adding: None })
    }

    fn factorize(&mut self, space: &Cuda, values: &TermValues, how: Factorization) -> Result<FactorQuality> {
        let (_, values) = values.term(0).ok_or_else(|| Error::invalid("ras: no values"))?;
        let (f, device, exact) = (self, space.device(), how == Factorization::Exact);
        let b = f.plan.block;
        let own = f.plan.blocks.own * b * b;
        f.by.a.with_part(0, own, |part| device.copy_from(values, part))?;
        if let Some(import) = &f.blocks {
            import.send(space, f.by.a.pointer())?;
            import.copy(space, f.by.a.at(own))?;
        }
        if f.plan.rows() == 0 {
            return Ok(Pivots::default().into());
        }
        match how {
            Factorization::Exact => f.by.eliminate(space)?,
            Factorization::Random { sweeps, warm } => f.by.sweep(space, b, sweeps, warm)?,
        }
        f.by.measure(space, b, !exact)?;
        if !f.solves.pack(device, &f.by)? {
            f.promote(device)?;
            f.solves.pack(device, &f.by)?;
        }
        let faulty = f.solves.faulty(device)?;
        space.fabric().check()?;
        f.by.quality(device, exact, faulty)
    }

    fn is_narrow(&self) -> bool {
        self.solves.is_narrow()
    }

    fn prepare_transpose(&mut self, space: &Cuda) -> Result<()> {
        if self.adding.is_some() {
            return Ok(());
        }
        let (device, plan, solves) = (space.device(), &self.plan, &mut self.solves);
        let compute = solves.computed();
        let mut local = || {
            let (sums, what) = (Sums::of(plan)?, "a transpose of ras");
            solves.prepare_transpose(device)?;
            let (ptr, number) = (device.upload(&sums.ptr, what)?, device.upload(&sums.number, what)?);
            let own = device.zeros::<f64>(plan.nodes.ghosts * plan.block, what)?;
            Ok((ptr, number, own, device.function(&halo_kernel(schwarz_add, plan.block, compute))?))
        };
        let (ptr, number, own, add) = agree(space.comm(), local())?;
        let back = Import::new(space, &Arc::new(plan.nodes.reversed(0)), plan.block)?;
        self.adding = Some(Adding { ptr, number, add, back: back.map(|import| (import, own)) });
        Ok(())
    }

    fn solve(
        &self,
        space: &Cuda,
        how: TriangularSolve,
        transposed: bool,
        x: &Buffer<f64>,
        y: &mut Buffer<f64>,
    ) -> Result<()> {
        let (f, device, plan) = (self, space.device(), &self.plan);
        let (rows, numbers) = (plan.rows(), plan.nodes.own * plan.block);
        check_len(x.len(), numbers)?;
        check_len(y.len(), numbers)?;
        if transposed {
            return f.solve_transposed(space, how, x, y.pointer());
        }
        let (mut ghosts, mut inside) = (0, 0);
        if let Some(import) = &f.nodes {
            import.send(space, x.pointer())?;
            import.exchange.finish(device)?;
            (ghosts, inside) = (import.exchange.ghosts(), import.exchange.inside().unwrap_or(0));
        } else if rows == 0 {
            return Ok(());
        }
        f.start(space, how, x, [ghosts, inside], None)?;
        match rows {
            0 => Ok(()),
            _ => f.solves.solve(space, how, f.options.deterministic, y.pointer()),
        }
    }

    fn bytes(&self, how: TriangularSolve) -> u64 {
        self.solves.bytes(how, self.options.deterministic, self.plan.block)
    }
}

impl CudaSchwarz {
    /// Makes solves f64 for good, without values.
    fn promote(&mut self, device: &Arc<Device>) -> Result<()> {
        let (plan, wide) = (&self.plan, Precision::F64);
        let (orders, per) = (Orders::new(plan, EXACT_ROWS), self.options.rows.clamp(1, plan.rows().max(1)));
        self.solves = Solves::new(device, plan, &self.by, &orders, [wide; 2], per)?;
        self.start = device.function(&halo_kernel(schwarz_start, plan.block, wide))?;
        if let Some(adding) = &mut self.adding {
            self.solves.prepare_transpose(device)?;
            adding.add = device.function(&halo_kernel(schwarz_add, plan.block, wide))?;
        }
        Ok(())
    }

    /// Gives every row its right-hand side. Without `kept` this is its node's number, which may be a ghost;
    /// else it is zero in rows without a mark.
    fn start(
        &self,
        space: &Cuda,
        how: TriangularSolve,
        x: &Buffer<f64>,
        [ghosts, inside]: [u64; 2],
        kept: Option<&Buffer<u32>>,
    ) -> Result<()> {
        let (device, plan, rows) = (space.device(), &self.plan, self.plan.rows());
        let set = match how {
            TriangularSolve::Exact => 2,
            TriangularSolve::Random { .. } if !self.options.deterministic => 1,
            _ => 0,
        };
        let [w, v] = self.solves.begin();
        let (scale, shift) = self.solves.scale();
        // The second launch changes the scale of vectors in f32 if it is wrong.
        for again in 0..=i32::from(self.is_narrow()) {
            self.start.on(device, grid(device, rows * plan.block), THREADS).run(
                space.halt(),
                rows as i32,
                plan.nodes.own as i32,
                &self.by.node,
                x,
                ghosts,
                w,
                v,
                set,
                kept,
                &self.solves.tickets,
                inside,
                scale,
                shift,
                again,
            )?;
        }
        Ok(())
    }

    /// Computes `y ← M⁻ᵀ x`.
    fn solve_transposed(&self, space: &Cuda, how: TriangularSolve, x: &Buffer<f64>, y: u64) -> Result<()> {
        let (device, plan, rows) = (space.device(), &self.plan, self.plan.rows());
        let Adding { ptr, number, add, back } = self.adding.as_ref().ok_or_else(not_prepared)?;
        let mut results = 0;
        if rows > 0 {
            self.start(space, how, x, [0; 2], Some(&self.solves.target))?;
            results = self.solves.solve_transposed(space, how, self.options.deterministic)?;
        }
        let add = |first: usize, count: usize, [arrived, inside]: [u64; 2], to: u64| {
            add.on(device, grid(device, count * plan.block), THREADS).run(
                space.halt(),
                first as i32,
                count as i32,
                rows as i32,
                ptr,
                number,
                results,
                arrived,
                to,
                inside,
                self.solves.scale().0,
            )
        };
        let own = plan.nodes.own;
        let Some((import, sums)) = back else {
            return if own > 0 { add(0, own, [0; 2], y) } else { Ok(()) };
        };
        add(own, plan.nodes.ghosts, [0; 2], sums.pointer())?;
        import.send(space, sums.pointer())?;
        let exchange = &import.exchange;
        exchange.finish(device)?;
        add(0, own, [exchange.ghosts(), exchange.inside().unwrap_or(0)], y)
    }
}

impl SchwarzFactors for Cuda {
    type Factors = CudaSchwarz;

    fn exact_is_faster(f: &CudaSchwarz, sweeps: TriangularSolve) -> bool {
        match sweeps {
            TriangularSolve::Exact => true,
            TriangularSolve::Jacobi { sweeps } | TriangularSolve::Random { sweeps } => {
                f.solves.exact_is_faster(sweeps)
            }
        }
    }
}

#[cfg(any(test, feature = "testing"))]
impl crate::precond::testing::ReadSchwarz for Cuda {
    fn read_schwarz(&self, f: &CudaSchwarz) -> Result<Vec<f64>> {
        let mut factors = vec![0.0; f.by.factors.len()];
        self.device().read(&f.by.factors, 0, &mut factors)?;
        Ok(factors)
    }
}
