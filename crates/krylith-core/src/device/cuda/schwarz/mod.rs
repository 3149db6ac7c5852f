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
use crate::memory::check_len;
use crate::operator::TermValues;
use crate::precond::{
    FactorQuality, Factorization, IncompleteFactors, Pivots, SchwarzFactors, SchwarzOptions, SchwarzPlan,
    TriangularSolve,
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
            let solves = Solves::new(device, plan, &by, &orders, options.precision, per)?;
            Ok((by, solves, device.function(&halo_kernel(schwarz_start, plan.block))?))
        };
        let (by, solves, start) = agree(space.comm(), local())?;
        let nodes = Import::new(space, &plan.nodes, plan.block)?;
        let blocks = Import::new(space, &plan.blocks, plan.block * plan.block)?;
        Ok(CudaSchwarz { plan: plan.clone(), options, by, solves, start, nodes, blocks })
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
        f.solves.pack(device, &f.by)?;
        let faulty = f.solves.faulty(device)?;
        space.fabric().check()?;
        f.by.quality(device, exact, faulty)
    }

    fn solve(&self, space: &Cuda, how: TriangularSolve, x: &Buffer<f64>, y: &mut Buffer<f64>) -> Result<()> {
        let (f, device, plan) = (self, space.device(), &self.plan);
        let (rows, numbers) = (plan.rows(), plan.nodes.own * plan.block);
        check_len(x.len(), numbers)?;
        check_len(y.len(), numbers)?;
        let (mut ghosts, mut inside) = (0, 0);
        if let Some(import) = &f.nodes {
            import.send(space, x.pointer())?;
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
            space.halt(),
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
            _ => f.solves.solve(space, how, f.options.deterministic, y.pointer()),
        }
    }

    fn bytes(&self, how: TriangularSolve) -> u64 {
        self.solves.bytes(how, self.options.deterministic, self.plan.block)
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
