//! Algebraic multigrid: memory traffic of its set-up and of a cycle, and the time of an iteration of CG with
//! it.
//!
//! * Levels are real: the hierarchy is set up on this host, and its levels have exactly the sizes that a GPU
//!   finds.
//! * A cycle takes its bytes over the bandwidth, and a launch for each of its passes: small levels cost
//!   launches only.
//! * An iteration adds a product, 12 vectors, and the kernels of CG's passes and steps (its form for
//!   applications that cost many products).
//! * The bytes of a set-up are a lower bound: on each level the matrix three times (strength, P, R A P), P
//!   and R written and read, and the coarser matrix written twice, first its pattern. Tables and sorts
//!   dominate its time, and their cost does not follow from bytes.

use super::Machine;
use super::words::fold;
use krylith_core::device::cpu::Cpu;
use krylith_core::operator::{LinearOperator, Terms, mixes_components};
use krylith_core::precond::{Cycle, Multilevel, MultilevelOptions, Smoothing};
use krylith_core::space::Space;
use krylith_core::{Error, Result};
use krylith_plot::html::Table;
use serde_json::{Value, json};
use std::time::Instant;

/// Sizes of one level.
///
/// # Examples
/// ```
/// use krylith::operator::Terms;
/// use krylith_model::multilevel;
/// # let system = krylith_problems::generate("laplace:12x12x12")?.system;
/// # let krylith_problems::SystemKind::Csr(a) = system else { panic!() };
/// let terms = Terms::csr(&a)?; // a 7-point matrix of 12³ points
/// let options = multilevel::options(&"amg:coarsest=30".parse()?, &terms)?;
/// let levels = multilevel::hierarchy(&terms, options, 1)?.levels;
/// assert_eq!((levels[0].nodes, levels[0].blocks), (1728.0, 11_232.0)); // 7 · 12³ − 6 · 12²
/// assert!(levels.windows(2).all(|pair| pair[1].nodes < pair[0].nodes));
/// assert!(levels.last().is_some_and(|coarsest| coarsest.nodes <= 30.0));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Size {
    /// Number of nodes.
    pub nodes: f64,
    /// Number of stored blocks.
    pub blocks: f64,
    /// Bytes of the level's matrices.
    pub bytes: f64,
    /// Bytes of the interpolation P from the next level.
    pub transfer: f64,
    /// Number of cycles that one application makes on this level.
    pub visits: f64,
    /// Number of kernels per visit.
    pub launches: f64,
}

/// An AMG hierarchy, by sizes.
///
/// # Examples
/// ```
/// use krylith::operator::Terms;
/// use krylith_model::{Machine, multilevel};
/// # let system = krylith_problems::generate("laplace:12x12x12")?.system;
/// # let krylith_problems::SystemKind::Csr(a) = system else { panic!() };
/// let terms = Terms::csr(&a)?;
/// let options = multilevel::options(&"amg".parse()?, &terms)?;
/// let hierarchy = multilevel::hierarchy(&terms, options, 1)?;
/// assert!(hierarchy.complexity(|level| level.nodes) < 2.0); // nodes of all levels over those of the finest
/// let machine = Machine::open("h200-nvlink".as_ref())?;
/// let [cycle, iteration] = machine.multilevel(&hierarchy); // seconds
/// assert!(cycle < iteration);
/// // Levels of 1,728 points and fewer cost their launches.
/// assert!(hierarchy.launches() * machine.launch > 0.5 * cycle);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Hierarchy {
    /// The levels, finest first.
    pub levels: Vec<Size>,
    /// Bytes of one application.
    pub cycle: f64,
    /// Bytes of one product with the system.
    pub product: f64,
    /// Unknowns of the system.
    pub unknowns: f64,
}

/// Levels that W and K cycles visit twice from each visit of the level above.
const BRANCHING: usize = 4;
/// Vectors that CG reads or writes in an iteration, and its kernels: (p, q), r, (r, z), x and p, and three
/// small steps in between.
const CG: (f64, f64) = (12.0, 7.0);

impl Hierarchy {
    /// Collects the sizes of `p`; a product with its system moves `product` bytes.
    pub fn of(p: &Multilevel<Cpu>, product: u64) -> Self {
        let (options, all) = (p.options(), p.levels());
        let steps = match options.smoothing {
            Smoothing::Chebyshev { degree } => degree,
            Smoothing::Jacobi { sweeps } | Smoothing::Ildu { sweeps } => sweeps,
            // Three steps after the coarse correction, and none before it.
            Smoothing::Ffc { sweeps } => (3 * sweeps).div_ceil(2),
        };
        let mut visits = 1.0;
        let levels = all.iter().enumerate().map(|(depth, level)| {
            let twice = options.cycle != Cycle::V && (1..=BRANCHING).contains(&depth) && !level.is_direct();
            visits *= if twice { 2.0 } else { 1.0 };
            // A product and a pass for each smoothing step before and after, minus the first product, then R
            // and P; the last level uses its inverse.
            let smoothed = depth > 0 || options.smooth_finest;
            let launches = match (level.is_direct(), smoothed) {
                (true, _) => 1.0,
                (false, true) => 4.0 * steps as f64 - 1.0 + 2.0 + 2.0,
                (false, false) => 2.0,
            };
            let terms = level.terms();
            let bytes = terms.terms().iter().map(|(_, a)| 8 * a.stored() + 4 * a.blocks()).sum::<usize>();
            let transfer = level.transfer().map_or(0, |t| 12 * t.prolongation.stored());
            Size {
                nodes: level.nodes() as f64,
                blocks: level.entries() as f64,
                bytes: bytes as f64,
                transfer: transfer as f64,
                visits,
                launches,
            }
        });
        let levels = levels.collect();
        let unknowns = all[0].terms().rows() as f64;
        Self { levels, cycle: p.bytes() as f64, product: product as f64, unknowns }
    }

    /// Returns the least number of bytes that a set-up moves.
    pub fn set_up(&self) -> f64 {
        let of = |pair: &[Size]| 3.0 * pair[0].bytes + 4.0 * pair[0].transfer + 2.0 * pair[1].bytes;
        self.levels.windows(2).map(of).sum()
    }

    /// Returns the number of kernels of an application.
    pub fn launches(&self) -> f64 {
        self.levels.iter().map(|level| level.visits * level.launches).sum()
    }

    /// Returns the blocks, or nodes, of all levels over those of the first.
    pub fn complexity(&self, of: impl Fn(&Size) -> f64) -> f64 {
        self.levels.iter().map(&of).sum::<f64>() / of(&self.levels[0]).max(1.0)
    }

    /// Returns the bytes and kernels of an iteration of CG.
    fn iteration(&self) -> (f64, f64) {
        let bytes = self.cycle + self.product + CG.0 * 8.0 * self.unknowns;
        (bytes, self.launches() + 1.0 + CG.1)
    }
}

impl Machine {
    /// Returns the seconds of a cycle and of an iteration of CG around it, on one GPU.
    pub fn multilevel(&self, h: &Hierarchy) -> [f64; 2] {
        let time = |(bytes, launches): (f64, f64)| bytes / self.read + launches * self.launch;
        [time((h.cycle, h.launches())), time(h.iteration())]
    }
}

/// Times measured on this host.
///
/// # Examples
/// ```
/// use krylith::operator::Terms;
/// use krylith_model::{Machine, multilevel};
/// # let system = krylith_problems::generate("laplace:12x12x12")?.system;
/// # let krylith_problems::SystemKind::Csr(a) = system else { panic!() };
/// let terms = Terms::csr(&a)?;
/// let options = multilevel::options(&"amg".parse()?, &terms)?;
/// let (hierarchy, here) = multilevel::measure(&terms, options, 1)?; // one thread
/// let predicted = hierarchy.cycle / here.rate; // bytes over bytes a second
/// let told = multilevel::text("laplace", &Machine::open("jupiter".as_ref())?, &hierarchy, &here);
/// assert!(told.contains(&format!("{:.3} ms a cycle from", 1e3 * predicted)));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Here {
    /// Seconds of the set-up, operators and smoothers included.
    pub set_up: f64,
    /// Seconds of a cycle: a median.
    pub cycle: f64,
    /// Bytes a second of products with the system, which predict the cycle.
    pub rate: f64,
}

/// Number of measurements; the result is their median.
const TIMES: usize = 9;

/// Sets up the hierarchy on this host, without measuring.
///
/// # Errors
/// Returns the errors of [`measure`].
pub fn hierarchy(terms: &Terms, options: MultilevelOptions, threads: usize) -> Result<Hierarchy> {
    let space = Cpu::new(terms.rows(), threads);
    let p = Multilevel::new(&space, terms, options)?;
    let a = krylith_core::operator::PointBlock::new(&space, terms, options.precision, false)?;
    Ok(Hierarchy::of(&p, a.bytes()))
}

/// Sets up the hierarchy on this host and measures a cycle and a product.
///
/// # Errors
/// Returns an error if the system has no hierarchy, or if memory is not sufficient.
pub fn measure(terms: &Terms, options: MultilevelOptions, threads: usize) -> Result<(Hierarchy, Here)> {
    let space = Cpu::new(terms.rows(), threads);
    let begin = Instant::now();
    let p = Multilevel::new(&space, terms, options)?;
    let set_up = begin.elapsed().as_secs_f64();
    let a = krylith_core::operator::PointBlock::new(&space, terms, options.precision, false)?;
    let (mut x, mut y) = (space.vector()?, space.vector()?);
    space.fill_random(1, &mut x)?;
    let mut timed = |operator: &dyn LinearOperator<Cpu>| -> Result<f64> {
        operator.apply(&space, &x, &mut y)?;
        let mut seconds = Vec::new();
        for _ in 0..TIMES {
            let begin = Instant::now();
            operator.apply(&space, &x, &mut y)?;
            seconds.push(begin.elapsed().as_secs_f64());
        }
        seconds.sort_by(f64::total_cmp);
        Ok(seconds[TIMES / 2].max(f64::MIN_POSITIVE))
    };
    let (cycle, product) = (timed(&p)?, timed(&a)?);
    let rate = a.bytes() as f64 / product;
    Ok((Hierarchy::of(&p, a.bytes()), Here { set_up, cycle, rate }))
}

/// Returns the prediction as text.
pub fn text(title: &str, machine: &Machine, h: &Hierarchy, here: &Here) -> String {
    let header = ["level", "nodes", "blocks", "MB", "P, MB", "visits", "launches"];
    let mut table = Table::new(format!("{title}: levels"), &header);
    for (depth, level) in h.levels.iter().enumerate() {
        let mega = |bytes: f64| format!("{:.2}", bytes / 1e6);
        table.rows.push(vec![
            depth.to_string(),
            format!("{:.0}", level.nodes),
            format!("{:.0}", level.blocks),
            mega(level.bytes),
            mega(level.transfer),
            format!("{:.0}", level.visits),
            format!("{:.0}", level.launches),
        ]);
    }
    let [cycle, iteration] = machine.multilevel(h);
    let predicted = h.cycle / here.rate;
    let text = format!(
        "operator complexity {:.2}, grid complexity {:.2}; a set-up moves {:.1} MB at least, a cycle {:.1} MB in {:.0} launches\n\
         one GPU of {}: {:.1} µs a cycle, {:.1} µs an iteration of CG\n\
         this host: {:.3} ms a cycle from the {:.1} GB/s of its products, {:.3} ms measured ({:+.0} %); set-up {:.3} s\n",
        h.complexity(|level| level.blocks),
        h.complexity(|level| level.nodes),
        h.set_up() / 1e6,
        h.cycle / 1e6,
        h.launches(),
        machine.name,
        1e6 * cycle,
        1e6 * iteration,
        1e3 * predicted,
        here.rate / 1e9,
        1e3 * here.cycle,
        100.0 * (predicted / here.cycle - 1.0),
        here.set_up,
    );
    table.text() + &fold(&text)
}

/// Returns the prediction as JSON.
pub fn json(title: &str, machine: &Machine, h: &Hierarchy, here: &Here) -> Value {
    let [cycle, iteration] = machine.multilevel(h);
    let level = |l: &Size| {
        json!({ "nodes": l.nodes, "blocks": l.blocks, "bytes": l.bytes, "transfer_bytes": l.transfer, "visits": l.visits,
                "launches": l.launches })
    };
    json!({
        "schema": 1,
        "system": title,
        "machine": machine.name,
        "levels": h.levels.iter().map(level).collect::<Vec<_>>(),
        "operator_complexity": h.complexity(|l| l.blocks),
        "grid_complexity": h.complexity(|l| l.nodes),
        "set_up_bytes": h.set_up(),
        "cycle_bytes": h.cycle,
        "cycle_launches": h.launches(),
        "seconds_per_cycle": cycle,
        "seconds_per_iteration": iteration,
        "host": {
            "set_up_seconds": here.set_up,
            "seconds_per_cycle": here.cycle,
            "predicted_seconds_per_cycle": h.cycle / here.rate,
            "bytes_per_second": here.rate,
        },
    })
}

/// Returns the AMG options of a preconditioner for a system.
///
/// # Errors
/// Returns an error if the preconditioner is not `amg` or `coarse`.
pub fn options(precond: &krylith_core::precond::PrecondSpec, terms: &Terms) -> Result<MultilevelOptions> {
    let order = terms.block() * terms.stages();
    let of = |amg: &krylith_core::precond::AmgSpec| {
        let amg = amg.of_system(order, terms.rows(), mixes_components(terms));
        amg.options(order, krylith_core::Precision::F64)
    };
    match precond {
        krylith_core::precond::PrecondSpec::Amg(amg) => Ok(of(amg)),
        krylith_core::precond::PrecondSpec::Coarse(amg) => {
            Ok(MultilevelOptions { smooth_finest: false, ..of(amg) })
        }
        other => Err(Error::invalid(format!(
            "--precond {other}: only amg and coarse have coarse levels to predict"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::round;
    use super::*;

    fn hierarchy(text: &str) -> Hierarchy {
        let made = krylith_problems::generate("laplace:12x12x12").unwrap();
        let krylith_problems::SystemKind::Csr(a) = made.system else { panic!("scalars") };
        let terms = Terms::csr(&a).unwrap();
        let options = options(&text.parse().unwrap(), &terms).unwrap();
        let (h, here) = measure(&terms, options, 1).unwrap();
        assert!(here.set_up > 0.0 && here.cycle > 0.0 && here.rate > 0.0);
        let told = self::text("t", &round(), &h, &here);
        assert!(told.contains("one GPU of round") && told.contains("measured"), "{told}");
        assert_eq!(json("t", &round(), &h, &here)["levels"].as_array().unwrap().len(), h.levels.len());
        h
    }

    #[test]
    fn bytes_and_launches_are_those_of_sums_by_hand() {
        let v = hierarchy("amg:coarsest=30");
        let sizes = &v.levels;
        assert!(
            sizes.len() >= 3 && sizes[0].nodes == 1728.0 && sizes[0].blocks == 7.0 * 1728.0 - 6.0 * 144.0
        );
        assert_eq!(sizes[0].bytes, 12.0 * sizes[0].blocks);
        // Chebyshev(2): three passes and three products around the first, the residual, R and P.
        assert!(sizes[..sizes.len() - 1].iter().all(|l| (l.visits, l.launches) == (1.0, 11.0)));
        assert_eq!(v.launches(), 11.0 * (sizes.len() - 1) as f64 + 1.0);
        // Four products with A and one for the residual are most of a level's cost.
        assert!(v.cycle > 4.0 * sizes[0].bytes && v.cycle < 20.0 * sizes[0].bytes);
        let by_hand: f64 =
            sizes.windows(2).map(|l| 3.0 * l[0].bytes + 4.0 * l[0].transfer + 2.0 * l[1].bytes).sum();
        assert_eq!(v.set_up(), by_hand);
        let [cycle, iteration] = round().multilevel(&v);
        assert_eq!(cycle, v.cycle / 1e12 + v.launches() * 1e-6);
        let more = (v.product + 12.0 * 8.0 * 1728.0) / 1e12 + 8e-6;
        assert!((iteration - cycle - more).abs() < 1e-12 * iteration);
        let w = hierarchy("amg:coarsest=30,cycle=w");
        assert!(w.levels[1].visits == 2.0 && w.cycle > v.cycle && w.launches() > v.launches());
        let coarse = hierarchy("coarse:coarsest=30");
        assert!(coarse.levels[0].launches == 2.0 && coarse.cycle < v.cycle);
    }

    #[test]
    fn other_preconditioners_are_refused() {
        let a = krylith_core::matrix::Csr::from_triplets(1, 1, &[(0, 0, 1.0)]).unwrap();
        let error = options(&"ildu".parse().unwrap(), &Terms::csr(&a).unwrap()).unwrap_err().to_string();
        assert!(error.contains("--precond ildu: only amg and coarse"), "{error}");
    }
}
