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
use super::specialisations::define;
use crate::comm::{agree, largest};
use crate::halo::Halo;
use crate::memory::{Numbers, check_len};
use crate::precond::{
    FactorQuality, Factorization, Pivots, SchwarzFactors, SchwarzOptions, SchwarzPlan, TriangularSolve,
};
use crate::space::{Precision, Space};
use crate::{Error, Result};
pub(super) use factor::SCHWARZ_FACTOR;
use factor::{Factorizer, schwarz_sweep};
use order::Orders;
pub(super) use solve::SCHWARZ_SOLVE;
use solve::{EXACT_ROWS, Solves, schwarz_exact};
use std::sync::Arc;

kernels! {
    SCHWARZ_HALO in "schwarz_halo.cu", |set| blocks(set).flat_map(halo_kernels).collect();
    fn schwarz_send(halt: At<i32>, x: At<f64>, exchange: Address);
    fn schwarz_import(halt: At<i32>, count: i64, ghosts: At<f64>, to: At<f64>, exchange: Address);
    fn schwarz_start(
        halt: At<i32>, rows: i32, own: i32, node: At<u32>, x: At<f64>, ghosts: At<f64>, w: At<f64>,
        v: At<f64>, how: i32, tickets: At<u32>, exchange: Address,
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
}

/// An exchange, with the kernels that start and end it.
struct Import {
    exchange: Exchange,
    send: Function<schwarz_send>,
    import: Function<schwarz_import>,
}

/// Returns a kernel of `schwarz_halo.cu` for nodes of `run` numbers.
fn halo_kernel<K: Entry>(entry: K, run: usize) -> Of<K> {
    let pair = if run.is_multiple_of(2) { 2 } else { 1 };
    let defines = vec![define("RUN", run), define("PAIR", pair), define("THREADS", THREADS)];
    entry.with(defines)
}

/// Returns the kernels that send vectors, and those that import blocks.
fn halo_kernels(b: usize) -> [Kernel; 2] {
    [halo_kernel(schwarz_start, b).into(), halo_kernel(schwarz_import, b * b).into()]
}

/// Block sizes that are compiled ahead.
fn blocks(set: Set) -> std::ops::RangeInclusive<usize> {
    if set == Set::All { 1..=8 } else { 1..=5 }
}

/// Returns the kernels for some block sizes and one precision: one kernel per file, which is compiled as a
/// whole.
pub(crate) fn kernels(blocks: impl IntoIterator<Item = usize>, precision: Precision) -> Vec<Kernel> {
    let of = |b: usize| {
        let factors =
            [factor::kernel(schwarz_sweep, b).into(), solve::kernel(schwarz_exact, b, precision).into()];
        factors.into_iter().chain(halo_kernels(b))
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
            let send = device.function(&halo_kernel(schwarz_send, run))?;
            Ok((send, device.function(&halo_kernel(schwarz_import, run))?))
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

impl SchwarzFactors for Cuda {
    type Factors = CudaSchwarz;

    fn prepare_schwarz(&self, plan: &Arc<SchwarzPlan>, options: SchwarzOptions) -> Result<CudaSchwarz> {
        let (device, per) = (self.device(), options.rows.clamp(1, plan.rows().max(1)));
        let local = || {
            check(plan)?;
            let orders = Orders::new(plan, EXACT_ROWS);
            let by = Factorizer::new(device, plan, &orders.rows, per, options.deterministic)?;
            let solves = Solves::new(device, plan, &by, &orders, options.precision, per)?;
            Ok((by, solves, device.function(&halo_kernel(schwarz_start, plan.block))?))
        };
        let (by, solves, start) = agree(self.comm(), local())?;
        let nodes = Import::new(self, &plan.nodes, plan.block)?;
        let blocks = Import::new(self, &plan.blocks, plan.block * plan.block)?;
        Ok(CudaSchwarz { plan: plan.clone(), options, by, solves, start, nodes, blocks })
    }

    fn gather_schwarz(&self, f: &mut CudaSchwarz, values: Numbers) -> Result<()> {
        let own = f.plan.blocks.own * f.plan.block * f.plan.block;
        f.by.a.with_part(0, own, |part| self.device().copy_from(values, part))?;
        let Some(import) = &f.blocks else { return Ok(()) };
        import.send(self, f.by.a.pointer())?;
        import.copy(self, f.by.a.at(own))
    }

    fn factorize_schwarz(&self, f: &mut CudaSchwarz, how: Factorization) -> Result<(FactorQuality, Pivots)> {
        let (device, b, exact) = (self.device(), f.plan.block, how == Factorization::Exact);
        if f.plan.rows() == 0 {
            return Ok((FactorQuality { defect2: [0.0; 2], finite: true }, Pivots::default()));
        }
        match how {
            Factorization::Exact => f.by.eliminate(self)?,
            Factorization::Random { sweeps, warm } => f.by.sweep(self, b, sweeps, warm)?,
        }
        f.by.measure(self, b, !exact)?;
        f.solves.pack(device, &f.by)?;
        let faulty = f.solves.faulty(device)?;
        self.fabric().check()?;
        f.by.quality(device, exact, faulty)
    }

    fn apply_schwarz(
        &self,
        f: &CudaSchwarz,
        how: TriangularSolve,
        x: &Buffer<f64>,
        y: &mut Buffer<f64>,
    ) -> Result<()> {
        let (device, plan) = (self.device(), &f.plan);
        let (rows, numbers) = (plan.rows(), plan.nodes.own * plan.block);
        check_len(x.len(), numbers)?;
        check_len(y.len(), numbers)?;
        let (mut ghosts, mut inside) = (0, 0);
        if let Some(import) = &f.nodes {
            import.send(self, x.pointer())?;
            import.exchange.finish(device)?;
            (ghosts, inside) = (import.exchange.ghosts(), import.exchange.inside().unwrap_or(0));
        } else if rows == 0 {
            return Ok(());
        }
        let set = match how {
            TriangularSolve::Exact => 2,
            TriangularSolve::Random { .. } if !f.options.deterministic => 1,
            _ => 0,
        };
        let [w, v] = f.solves.begin();
        f.start.on(device, grid(device, rows * plan.block), THREADS).run(
            self.halt(),
            rows as i32,
            plan.nodes.own as i32,
            &f.by.node,
            x,
            ghosts,
            w,
            v,
            set,
            &f.solves.tickets,
            inside,
        )?;
        match rows {
            0 => Ok(()),
            _ => f.solves.solve(self, how, f.options.deterministic, y.pointer()),
        }
    }

    fn schwarz_bytes(f: &CudaSchwarz, how: TriangularSolve) -> u64 {
        f.solves.bytes(how, f.options.deterministic, f.plan.block)
    }

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
