//! Builds algebraic multigrid hierarchies, with their description for reports.

use super::{Boxed, PrecondInfo, Preconditioner, SharedOperator, Value, numbered};
use crate::comm::{self, agree};
use crate::operator::mixing::{self, MIXED};
use crate::operator::{TermValues, Terms};
use crate::partition;
use crate::precond::spec::kind_name;
use crate::precond::{
    AmgSpec, CoarsenKind, Cycle, Finest, Multilevel, MultilevelOptions, NearNull, Smoothing,
};
use crate::problem::LocalProblem;
use crate::profile::{self, SetupPart};
use crate::solver::SolverSpace;
use crate::space::{Precision, PrecondPrecision};
use crate::text::{count, plural, seconds};
use crate::{Error, Result};
use std::time::Instant;

/// From this number of unknowns on, cycles of scalar nodes are computed in f32 by default. Measured solves
/// take 0.7 to 0.9 of the time in f64 (bench/runs/2026-11-29-h200-precisions, 2026-11-29-cpu-precisions).
const IN_F32: usize = 100_000;

/// Builds a hierarchy over all ranks. With `smoothed` cycles also smooth on the finest level. Otherwise the
/// hierarchy is the coarse part of a combination. Collective.
pub(super) fn build<S: SolverSpace>(
    space: &S,
    terms: &Terms,
    local: &LocalProblem,
    (spec, smoothed): (&AmgSpec, bool),
    precision: Precision,
    a: &SharedOperator<S>,
) -> Result<(Boxed<S>, PrecondInfo)> {
    let (comm, start) = (space.comm(), Instant::now());
    let _factors = profile::begin(SetupPart::Factors);
    let order = terms.block() * terms.stages();
    let mixed = spec.coarsen.is_none() && local.near.is_none() && mixes_components(space, terms)?;
    let options = match local.near {
        None => spec.of_system(order, local.unknowns, mixed).options(order, precision),
        Some(_) => spec.of_near_null().options(order.max(2), precision),
    };
    let mut options = MultilevelOptions { smooth_finest: smoothed, ..options };
    let asked = spec.compute.or(spec.precision.map(Into::into)).or(local.precond_precision);
    if space.computes_in_f32() && spec.precision.is_none() && asked != Some(PrecondPrecision::F64) {
        // A cycle in f32 is rounded from levels in f64.
        // Blocks would move more numbers in f32 than their structure has in f64.
        let large = order == 1 && local.unknowns >= IN_F32 && precision == Precision::F64;
        if large || asked.is_some() {
            let compute = asked.unwrap_or(PrecondPrecision::F32);
            (options.precision, options.compute) = (Precision::F64, compute);
        }
    }
    if options.relax > 0 && local.near.is_none() {
        return Err(Error::invalid(format!(
            "amg: relax={} smooths near-null vectors, and the system has none; give them, or omit relax",
            options.relax
        )));
    }
    let made = (|| {
        // Share the solver's operator if precisions agree.
        let operator = (options.precision == a.borrow().precision()).then(|| a.clone());
        let subdomains = match spec.subdomains(order).filter(|_| smoothed && local.numbers.is_none()) {
            None => None,
            Some(wanted) => {
                let _cutting = profile::begin(SetupPart::Subdomains);
                let device = |rows| space.cut_graph(terms, rows);
                Some(partition::of_whole_on(terms, local.coordinates, local.grid, wanted, &device)?.0)
            }
        };
        local.near.map_or(Ok(()), |near| near.check(terms))?;
        let near = local.near.cloned();
        let numbers = local.numbers.map(partition::RowNumbers::to_owned);
        Multilevel::with(space, terms, options, Finest { operator, subdomains, near, numbers })
    })();
    let p = agree(comm, numbered(local, made))?;
    let info = info(space, &p, spec.keeps_symmetry(), local.near.map_or(0, NearNull::count), start)?;
    Ok((Some(Box::new(p)), info))
}

/// Returns true if neighbouring nodes couple different components. Collective.
fn mixes_components<S: SolverSpace>(space: &S, terms: &Terms) -> Result<bool> {
    let Some(a) = mixing::single(terms) else { return Ok(false) };
    let step = mixing::step(terms.block_rows());
    let counted = match a.storage().is_on_device_alone() {
        true => space.mixed_couplings(terms, step, MIXED).map(Option::unwrap_or_default),
        false => Ok(mixing::count(a, step)),
    };
    let mut counts = agree(space.comm(), counted)?.map(|n| n as f64);
    space.comm().sum(&mut counts)?;
    Ok(mixing::is_mixed(counts))
}

fn info<S: SolverSpace>(
    space: &S,
    p: &Multilevel<S>,
    keeps_symmetry: bool,
    near: usize,
    start: Instant,
) -> Result<PrecondInfo> {
    let (comm, options) = (space.comm(), p.options());
    let levels = p.levels();
    // Count a level that every rank stores as a whole only once.
    let shared = levels[0].terms().halo.is_some();
    let counts = |k: usize| !shared || levels[k].terms().halo.is_some() || comm.rank() == 0;
    let of =
        |f: &dyn Fn(usize) -> usize| (0..levels.len()).filter(|&k| counts(k)).map(f).sum::<usize>() as f64;
    let square = (levels[0].terms().block().pow(2) * levels[0].terms().stages().pow(2)) as f64;
    let last = &levels[levels.len() - 1];
    let mut sums = [
        of(&|k| levels[k].nodes()),
        levels[0].nodes() as f64,
        of(&|k| levels[k].entries()),
        levels[0].entries() as f64,
        p.numbers(),
        last.dropped() as f64,
    ];
    comm.sum(&mut sums)?;
    let [nodes, own_nodes, entries, own_entries, numbers, dropped] = sums;
    let (grids, operators) = (nodes / own_nodes.max(1.0), entries / own_entries.max(1.0));
    let most = comm::largest(comm, levels.len() as f64)? as usize;
    let kind = options.coarsening.kind;
    let text = |text: &str| Value::Text(text.into());
    let counted = |n: usize| Value::Count(n as u64);
    let times = match options.smoothing {
        Smoothing::Chebyshev { degree } => ("degree".to_string(), counted(degree)),
        Smoothing::Jacobi { sweeps } | Smoothing::Ildu { sweeps } | Smoothing::Ffc { sweeps } => {
            ("sweeps".into(), counted(sweeps))
        }
    };
    let parameters = vec![
        ("cycle".to_string(), text(options.cycle.name())),
        ("coarsen".into(), text(kind_name(kind))),
        ("strength".into(), Value::Number(options.coarsening.strength)),
        ("truncate".into(), counted(options.coarsening.truncate)),
        ("aggressive".into(), counted(options.coarsening.aggressive)),
        ("smoother".into(), text(options.smoothing.name())),
        times,
        ("coarsest".into(), counted(options.coarsest)),
        ("near_null".into(), counted(near)),
        ("relax".into(), counted(options.relax)),
        ("levels".into(), counted(most)),
        ("store".into(), text(&options.precision.to_string())),
        ("compute".into(), text(computed_in(p).name())),
        ("operator_complexity".into(), Value::Number(operators)),
        ("grid_complexity".into(), Value::Number(grids)),
    ];
    let ranks = comm.size();
    let whole = levels.iter().filter(|level| level.terms().halo.is_none()).count();
    let own = match ranks {
        1 => String::new(),
        _ => format!(" over {ranks} ranks, {whole} of them stored whole on every rank"),
    };
    let mut details = vec![format!(
        "{}{own}, operator complexity {operators:.2}, grid complexity {grids:.2}, set up in {}",
        plural(most, "level"),
        seconds(start.elapsed().as_secs_f64()),
    )];
    details.extend(table(p, comm.rank(), ranks));
    details.extend(in_bf16(p));
    if dropped > 0.0 {
        details.push(format!(
            "the coarsest level is singular: {} left out of its inverse",
            plural(dropped as usize, "equation")
        ));
    }
    if near > 0 {
        details
            .push(format!("{}: each adds an unknown to every coarse node", plural(near, "near-null vector")));
    }
    if p.options().cycle == Cycle::K {
        let steps = if p.is_symmetric() { "flexible CG" } else { "GCR" };
        details.push(format!("a K-cycle: two steps of {steps} on every coarse level"));
    }
    let coarsened = match kind {
        CoarsenKind::Classical => "classical coarsening",
        CoarsenKind::Aggregation { smoothed: false } => "aggregation",
        CoarsenKind::Aggregation { smoothed: true } => "smoothed aggregation",
        CoarsenKind::Air { .. } => "approximate ideal restriction",
    };
    let smoothed = match options.smoothing {
        Smoothing::Chebyshev { degree } => format!("Chebyshev({degree})"),
        Smoothing::Jacobi { sweeps } => format!("l1-Jacobi({sweeps})"),
        Smoothing::Ildu { sweeps } => format!("ILDU(0)({sweeps})"),
        Smoothing::Ffc { sweeps } => format!("FFC-Jacobi({sweeps})"),
    };
    let cycle = options.cycle.name().to_uppercase();
    let (name, what) = match options.smooth_finest {
        true => ("amg", "algebraic multigrid"),
        false => ("coarse", "coarse levels"),
    };
    Ok(PrecondInfo {
        name: name.into(),
        parameters,
        numbers,
        matrix: own_entries * square,
        text: format!("{what}: {cycle}-cycle, {coarsened}, {smoothed}"),
        details,
        keeps_symmetry,
        ..PrecondInfo::default()
    })
}

/// Returns the precision in which cycles compute: bf16 if the matrix of a level is stored in it.
fn computed_in<S: SolverSpace>(p: &Multilevel<S>) -> PrecondPrecision {
    match (p.is_narrow(), p.in_bf16()[0]) {
        (false, _) => PrecondPrecision::F64,
        (true, 0) => PrecondPrecision::F32,
        (true, _) => PrecondPrecision::Bf16,
    }
}

/// Says which levels of a cycle that was to be in bf16 are not, and why.
fn in_bf16<S: SolverSpace>(p: &Multilevel<S>) -> Option<String> {
    let ([short, all], options) = (p.in_bf16(), p.options());
    let blocks = p.levels()[0].terms().block() > 1;
    match (options.compute, p.is_narrow()) {
        (PrecondPrecision::Bf16, false) => Some(
            "computed in f64: cycles in bf16 are V-cycles with polynomial smoothers, for one matrix of scalar \
             nodes on one rank, and for numbers of a range that f32 has"
                .into(),
        ),
        (PrecondPrecision::Bf16, true) if blocks => {
            Some("computed in f32, because matrices of blocks have no form in bf16".into())
        }
        (PrecondPrecision::Bf16, true) if short < all => Some(format!(
            "{} of {} in f32, because rounding to bf16 would change the diagonals too much",
            all - short,
            plural(all, "level")
        )),
        _ => None,
    }
}

/// Lists nodes and entries of each level on this rank.
fn table<S: SolverSpace>(p: &Multilevel<S>, rank: usize, ranks: usize) -> Vec<String> {
    let rows = p.levels().iter().enumerate().map(|(k, level)| {
        let each = level.entries() as f64 / level.nodes().max(1) as f64;
        let solved = if level.is_direct() { ", solved directly" } else { "" };
        let of = if ranks > 1 { format!(" of rank {rank}") } else { String::new() };
        format!(
            "level {k}{of}: {}, {} stored, {each:.1} a row{solved}",
            plural(level.nodes(), "node"),
            count(level.entries())
        )
    });
    rows.collect()
}

impl<S: SolverSpace> Preconditioner<S> for Multilevel<S> {
    fn update_values(&mut self, _: &S, terms: &Terms, values: TermValues) -> Result<()> {
        Multilevel::update_values(self, terms, values)
    }
    fn prepare_transpose(&mut self, _: &S, _: &Terms) -> Result<()> {
        Multilevel::prepare_transpose(self)
    }
}
