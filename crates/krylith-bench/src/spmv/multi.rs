//! Products on several devices: the modes of the paper that `spmv/mod.rs` names, Krylith's, and halo
//! exchanges.

use super::Plan;
use super::found::{IN_MODES, PCSR, Point, Row};
use super::ground::{Ground, Own, Piece};
use super::matrix::Case;
use super::single::{MOST, TRIAL, products};
use crate::samples::{Samples, repeated, together};
use krylith_core::comm::{Communicator, Team, agree, gather, largest};
use krylith_core::matrix::Csr;
use krylith_core::operator::{Gathered, LinearOperator, PointBlock, Replicated, SharedRows};
pub(super) use krylith_core::partition::replicated::Mode;
use krylith_core::space::Space;
use krylith_core::{Error, Precision, Result};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// The distributed product, in which every rank has its rows and receives the ghosts for them.
pub(super) const HALO: &str = "halo, contiguous";
/// The distributed product with parts of the graph.
pub(super) const GRAPH: &str = "halo, graph";

/// Returns true if partitioning the graph is useful: if rows have similar lengths, as on a mesh. Graphs of
/// the web and of k-mers have no thin cuts, and the search for them takes minutes.
fn has_thin_cuts(case: &Case) -> bool {
    case.shape.mean() >= 4.0
        && case.shape.max as f64 <= 8.0 * case.shape.mean()
        && case.a.nonzeros() < 1 << 30
}

/// A way to distribute a product.
#[derive(Debug, Clone)]
pub(super) enum Way {
    Replicated(Mode),
    /// A mode with the paper's own kernel, a baseline.
    Vector(Mode),
    Halo,
    /// Halo exchanges between parts of the graph.
    Graph,
}

impl Way {
    pub fn name(&self) -> String {
        match self {
            Way::Replicated(mode) => mode.to_string(),
            Way::Vector(mode) => format!("{IN_MODES}{mode}"),
            Way::Halo => HALO.into(),
            Way::Graph => GRAPH.into(),
        }
    }
    /// Returns each rank's rows for a product with halos, and the seconds to cut them; `None` if every rank
    /// holds whole vectors.
    pub fn parts<G: Ground>(&self, ground: &G, case: &Case) -> Result<(Vec<Piece>, f64)> {
        match self {
            Way::Replicated(_) | Way::Vector(_) => Ok((Vec::new(), 0.0)),
            Way::Halo => ground.parts(case),
            Way::Graph => ground.graph_parts(case),
        }
    }
}

/// Returns the paper's modes with the parameters of its Table 3, and Krylith's.
pub(super) fn ways<G: Ground>(case: &Case, ground: &G) -> Vec<Way> {
    // One device alone has its own part of the suite. Vectors are replicated only within a process.
    let shared = |mode: &Mode| *mode != Mode::Alone && ground.launch().comm().is_none();
    let modes = Mode::candidates(case.shape.mean(), ground.ranks()).into_iter().filter(shared);
    let mut all: Vec<Way> = modes.map(Way::Replicated).collect();
    all.push(Way::Halo);
    all.extend(has_thin_cuts(case).then_some(Way::Graph));
    all
}

/// Returns the paper's modes with its own kernel.
fn vector_ways(case: &Case, ranks: usize) -> impl Iterator<Item = Way> {
    let modes = [Mode::Nz, Mode::TwoNz].into_iter().chain(Mode::by_rule(case.shape.mean(), ranks));
    modes.map(Way::Vector)
}

/// Returns each rank's rows of distributed vectors that are gathered before a product.
pub(crate) fn rows_of(a: &Csr, ranks: usize) -> Result<Vec<Range<usize>>> {
    Gathered::<krylith_core::device::cpu::Cpu>::rows(a, ranks)
}

struct Measured {
    setup: f64,
    samples: Vec<f64>,
    check: std::result::Result<f64, String>,
}

/// Measures every way, one after the other: each holds the matrix once.
pub(super) fn measure<G: Ground>(
    ground: &G,
    case: &Case,
    plan: &Plan,
    progress: &mut dyn FnMut(&str),
) -> Vec<Row> {
    let mut rows = Vec::new();
    let held = match held(ground, case) {
        Ok(held) => held,
        Err(e) => return vec![Row::failed(HALO, e)],
    };
    let processes = ground.launch().comm().is_some();
    let baselines = (ground.vector_modes() && !processes).then(|| vector_ways(case, ground.ranks()));
    for way in ways(case, ground).into_iter().chain(baselines.into_iter().flatten()) {
        progress(&format!("{}: {} on {} ranks", case.name, way.name(), ground.ranks()));
        rows.push(row(ground, case, &held, &way, plan));
    }
    drop(held);
    if processes {
        return rows;
    }
    let nz = Mode::Nz.to_string();
    if let Some(row) = rows.iter_mut().find(|r| r.name == nz && r.failure.is_none()) {
        row.kernel = kernels(ground, case).ok();
    }
    progress(&format!("{}: {PCSR}", case.name));
    rows.extend(pcsr(ground, case, plan));
    rows
}

/// Returns the matrix with arrays on the first device: rows are cut and distributed from there. Processes cut
/// their rows on the host.
pub(super) fn held<G: Ground>(ground: &G, case: &Case) -> Result<Csr> {
    if ground.launch().comm().is_some() {
        return Ok(case.a.clone());
    }
    ground.alone(0, case.rows())?.hold(&case.a)
}

fn row<G: Ground>(ground: &G, case: &Case, held: &Csr, way: &Way, plan: &Plan) -> Row {
    let name = way.name();
    let cut = match way.parts(ground, case) {
        Ok(made) => made,
        Err(e) => return Row::failed(&name, e),
    };
    let samples = TRIAL + plan.repetitions;
    let done = on_ranks(ground, (case, held), way, &cut.0, |space, comm, operator, own, setup| {
        timed(space, comm, operator, (case, own), setup, samples)
    });
    // Every rank has the maximum over all ranks.
    let measured = match done {
        Ok(measured) => measured,
        Err(e) => return Row::failed(&name, e),
    };
    let mut row = Row { name, ranks: ground.ranks(), ..Row::default() };
    row.setup = cut.1 + measured.setup;
    match measured.check {
        Ok(error) => {
            let (trial, rest) = measured.samples.split_at(TRIAL);
            (row.error, row.trial, row.samples) = (error, Samples(trial.to_vec()).median(), rest.to_vec());
        }
        Err(why) => (row.failure, row.wrong) = (Some(why), true),
    }
    row
}

/// Runs a function on every rank, with its space, its operator, its rows and the seconds to create the
/// operator. Returns the result of one rank.
pub(super) fn on_ranks<G: Ground, T: Send>(
    ground: &G,
    (case, held): (&Case, &Csr),
    way: &Way,
    parts: &[Piece],
    work: impl Fn(&G::Space, &dyn Communicator, &dyn LinearOperator<G::Space>, &Own, f64) -> Result<T> + Sync,
) -> Result<T> {
    ground.launch().run(ground.ranks(), |comm| {
        let rank = comm.rank();
        if let Way::Replicated(mode) = way {
            let space = ground.alone(rank, case.rows())?;
            let operator = Replicated::new(&space, &comm, held, *mode)?;
            // Joining the GPUs and placing the rows are costs of any distributed product; the mode adds only
            // the cuts (Table 4).
            let setup = operator.times().cut;
            return work(&space, &*comm, &operator, &Own::Run(0..case.rows()), setup);
        }
        if let Way::Vector(mode) = way {
            let space = ground.alone(rank, case.rows())?;
            let (operator, setup) = ground.vector(&space, &comm, (case, held), *mode)?;
            return work(&space, &*comm, &*operator, &Own::Run(0..case.rows()), setup);
        }
        let part = &parts[rank];
        let space = agree(&*comm, ground.joined(&comm, part.rows.len()))?;
        // The first one compiles kernels, which is a cost per machine.
        drop(agree(&*comm, PointBlock::new(&space, &part.terms, Precision::F64, false))?);
        meet(&space, &*comm)?;
        let begin = Instant::now();
        let made = PointBlock::new(&space, &part.terms, Precision::F64, false);
        let made = made.and_then(|operator| space.wait().map(|()| operator));
        let setup = begin.elapsed().as_secs_f64();
        work(&space, &*comm, &agree(&*comm, made)?, &part.rows, setup)
    })
}

/// Waits until all ranks have arrived with idle devices.
pub(super) fn meet<S: Space>(space: &S, comm: &dyn Communicator) -> Result<()> {
    space.wait()?;
    comm.sum(&mut [0.0])
}

fn timed<S: Space>(
    space: &S,
    comm: &dyn Communicator,
    operator: &dyn LinearOperator<S>,
    (case, own): (&Case, &Own),
    setup: f64,
    samples: usize,
) -> Result<Measured> {
    let (mut x, mut y) = (space.vector()?, space.vector()?);
    space.write(&own.of(&case.x), &mut x)?;
    operator.apply(space, &x, &mut y)?;
    let check = common(comm, case.check(own, &crate::platform::read(space, &y)?))?;
    let setup = largest(comm, setup)?;
    let mut take = |inner: usize| seconds_of(space, comm, operator, &x, &mut y, inner);
    // Waiting for a device takes as long as a short product, so its share is smaller in a longer sample.
    let inner = products(take(2)? / 3.0).min(MOST);
    let samples = (0..samples).map(|_| take(inner)).collect::<Result<_>>()?;
    Ok(Measured { setup, samples, check })
}

/// Returns the largest error of all ranks, or the reason of one that failed. Collective.
fn common(
    comm: &dyn Communicator,
    own: std::result::Result<f64, String>,
) -> Result<std::result::Result<f64, String>> {
    let error = largest(comm, own.as_ref().copied().unwrap_or(0.0))?;
    let why = gather(comm, own.err().unwrap_or_default().as_bytes())?;
    let why = why.iter().find(|text| !text.is_empty()).map(|text| String::from_utf8_lossy(text).into_owned());
    Ok(why.map_or(Ok(error), Err))
}

/// Returns the seconds of one of `inner` consecutive products on the slowest rank.
pub(super) fn seconds_of<S: Space>(
    space: &S,
    comm: &dyn Communicator,
    operator: &dyn LinearOperator<S>,
    x: &S::Vector,
    y: &mut S::Vector,
    inner: usize,
) -> Result<f64> {
    let products = || (0..inner).try_for_each(|_| operator.apply(space, x, y));
    Ok(together(space, comm, products)? / inner as f64)
}

/// Returns the seconds of the longest of the ranks' kernels, with equal nonzeros per rank and without
/// exchange.
fn kernels<G: Ground>(ground: &G, case: &Case) -> Result<f64> {
    let ranks = ground.ranks();
    let (ends, runs) = (case.a.row_ptr(), rows_of(&case.a, ranks)?);
    let all = Team::run(ranks, |comm| {
        let rows = runs[comm.rank()].clone();
        let (from, to) = (ends[rows.start], ends[rows.end]);
        let own = Csr::new(
            rows.len(),
            case.a.columns(),
            ends[rows.start..=rows.end].iter().map(|e| e - from).collect(),
            case.a.col()[from..to].to_vec(),
            case.a.values()[from..to].to_vec(),
        )?;
        let space = ground.alone(comm.rank(), rows.len())?;
        let operator = PointBlock::csr(&space, &own, Precision::F64)?;
        let whole = ground.alone(comm.rank(), case.rows())?;
        let (mut x, mut y) = (whole.vector()?, space.vector()?);
        whole.write(&case.x, &mut x)?;
        whole.wait()?;
        let mut take = || {
            meet(&space, &*comm)?;
            let begin = Instant::now();
            (0..4).try_for_each(|_| operator.apply(&space, &x, &mut y))?;
            space.wait()?;
            Ok(begin.elapsed().as_secs_f64() / 4.0)
        };
        Ok(repeated(3, 5, &mut take)?.median())
    })?;
    Ok(all.into_iter().fold(0.0, f64::max))
}

/// Runs MSREP's product, if there are GPUs.
fn pcsr<G: Ground>(ground: &G, case: &Case, plan: &Plan) -> Option<Row> {
    let (setup, samples, y) = match ground.pcsr(case, plan.repetitions) {
        Ok(done) => done,
        Err(Error::Unsupported(_)) => return None,
        Err(e) => return Some(Row::failed(PCSR, e)),
    };
    let mut row = Row { name: PCSR.into(), ranks: ground.ranks(), setup, ..Row::default() };
    match case.check(&Own::Run(0..y.len()), &y) {
        Ok(error) => {
            (row.error, row.trial, row.samples) = (error, Samples(samples.clone()).median(), samples)
        }
        Err(why) => (row.failure, row.wrong) = (Some(why), true),
    }
    Some(row)
}

/// Runs the paper's sweep: shares d_l of rows in the long block from 0.2 to 0.6, and shares d_c of redundant
/// rows from 0 to 0.3, in steps of 0.05.
pub(super) fn sweep<G: Ground>(
    ground: &G,
    case: &Case,
    notes: &mut Vec<String>,
    progress: &mut dyn FnMut(&str),
) -> Vec<Point> {
    progress(&format!("{}: d_l and d_c", case.name));
    let points = grid();
    let done = held(ground, case).and_then(|held| {
        Team::run(ground.ranks(), |comm| {
            let comm: Arc<dyn Communicator> = comm;
            let space = ground.alone(comm.rank(), case.rows())?;
            let modes: Vec<Mode> = points.iter().map(|&(long, redundant)| mode(long, redundant)).collect();
            swept(&space, &comm, (case, &held), &modes)
        })
    });
    match done {
        Ok(all) => points
            .iter()
            .zip(&all[0])
            .map(|(&(long, redundant), &seconds)| Point { long, redundant, seconds })
            .collect(),
        Err(e) => {
            notes.push(format!("{}: no sweep: {e}", case.name));
            Vec::new()
        }
    }
}

/// Returns the median seconds of a product by each mode, on the slowest rank.
fn swept<S: SharedRows>(
    space: &S,
    comm: &Arc<dyn Communicator>,
    (case, a): (&Case, &Csr),
    modes: &[Mode],
) -> Result<Vec<f64>> {
    let Some(&first) = modes.first() else { return Ok(Vec::new()) };
    let checked = Mode::by_rule(case.shape.mean(), comm.size());
    let mut operator = Replicated::new(space, comm, a, first)?;
    let (mut x, mut y) = (space.vector()?, space.vector()?);
    space.write(&case.x, &mut x)?;
    let mut all = Vec::new();
    for &mode in modes {
        operator = operator.recut(space, a, mode)?;
        let mut take = |inner: usize| seconds_of(space, &**comm, &operator, &x, &mut y, inner);
        take(1)?;
        let inner = products(take(2)? / 2.0);
        let samples = (0..5).map(|_| take(inner)).collect::<Result<_>>()?;
        all.push(Samples(samples).median());
        if checked.contains(&mode) {
            let right = case.check(&Own::Run(0..case.rows()), &crate::platform::read(space, &y)?);
            let right = right.map_err(|why| Error::Internal(format!("a product by {mode} is wrong: {why}")));
            agree(&**comm, right)?;
        }
    }
    Ok(all)
}

fn mode(long: f64, redundant: f64) -> Mode {
    if redundant == 0.0 { Mode::Lra { long } } else { Mode::LraRc { long, redundant } }
}

fn grid() -> Vec<(f64, f64)> {
    let step = |i: usize| f64::from(5 * i as u32) / 100.0;
    (4..=12).flat_map(|l| (0..=6).map(move |c| (step(l), step(c)))).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_sweep_is_the_paper_s() {
        let grid = super::grid();
        assert_eq!((grid.len(), grid[0], grid[62]), (63, (0.2, 0.0), (0.6, 0.3)));
        assert!(grid.contains(&(0.35, 0.05)));
    }
}
