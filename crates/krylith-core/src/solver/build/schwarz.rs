//! Builds restricted additive Schwarz: its subdomains, and their description for reports.

use super::{Boxed, PrecondInfo, Preconditioner, Value};
use crate::comm::{self, Communicator, agree};
use crate::operator::{TermValues, Terms};
use crate::partition::{self, Subdomains};
#[cfg(feature = "lu")]
use crate::precond::lu::subdomains::SubdomainLu;
use crate::precond::spec::{factor_name, solve_name};
use crate::precond::{
    Factorization, RasSpec, RasSub, Schwarz, SchwarzFactor, SchwarzOptions, SchwarzPattern, SchwarzPlan,
    SchwarzSettings, TriangularSolve,
};
use crate::problem::LocalProblem;
use crate::profile::{self, SetupPart};
use crate::solver::SolverSpace;
use crate::space::Precision;
use crate::text::{count, plural, seconds};
use crate::{Error, Result};
use std::time::Instant;

/// Factorises the subdomains of `terms` with their overlap. Collective.
pub(super) fn build<S: SolverSpace>(
    space: &S,
    terms: &Terms,
    local: &LocalProblem,
    spec: &RasSpec,
    precision: Precision,
    notes: &mut Vec<String>,
) -> Result<(Boxed<S>, PrecondInfo)> {
    let (comm, start) = (space.comm(), Instant::now());
    let (subdomains, way) = agree(comm, subdomains(local, terms, spec))?;
    let analysis = profile::begin(SetupPart::Analysis);
    let pattern = SchwarzPattern { overlap: spec.overlap, fill: spec.fill, order: spec.order };
    let plan = SchwarzPlan::new(comm, terms, local.numbers, &subdomains, pattern)?;
    if spec.sub == RasSub::Lu {
        drop(analysis);
        return direct(space, terms, spec, plan, &way, start);
    }
    let (compute, deterministic) = (super::computed_in(local), spec.deterministic);
    let options = SchwarzOptions { precision, compute, rows: spec.rows, deterministic };
    let solve = spec.solve.unwrap_or(TriangularSolve::Exact);
    let settings = SchwarzSettings { factor: spec.factor, solve, options };
    let mut p = Schwarz::new(space, plan.into(), settings)?;
    let sweeps = RasSpec::sweeps();
    if spec.solve.is_none() && space.any(!S::exact_is_faster(p.factors(), sweeps))? {
        agree(comm, p.try_sweeps(space, sweeps))?;
    }
    drop(analysis);
    agree(comm, p.update_values(space, terms.terms[0].1.numbers()))?;
    notes.extend(p.take_events());
    let mut info = info(space, spec, &p, &way, start)?;
    super::say_computed(comm, local, p.is_narrow(), &mut info)?;
    Ok((Some(Box::new(p)), info))
}

/// Factorises the subdomains of a plan by direct factors. Collective.
#[cfg(feature = "lu")]
fn direct<S: SolverSpace>(
    space: &S,
    terms: &Terms,
    spec: &RasSpec,
    plan: SchwarzPlan,
    way: &str,
    start: Instant,
) -> Result<(Boxed<S>, PrecondInfo)> {
    let _factors = profile::begin(SetupPart::Factors);
    let comm = space.comm();
    let values = TermValues::matrix(terms.terms[0].1.numbers());
    let make = |matrix: &Terms<'static>| super::lu::of_subdomains(space, matrix, spec.deterministic);
    let p = SubdomainLu::new(comm, plan, values, make)?;
    let found = p.describe();
    let sizes = Sizes::of(comm, p.plan())?;
    let mut numbers = [p.numbers() as f64];
    comm.sum(&mut numbers)?;
    let mut details = vec![sizes.describe(way, start)];
    let by = found.by.map_or(String::new(), |library| format!(" by {library}"));
    let first = format!("{} factors of the subdomains of rank 0{by}", found.kind);
    details.push([vec![first], found.remarks].concat().join(", "));
    let mut parameters = sizes.parameters(spec);
    parameters.push(("sub".to_string(), Value::Text(spec.sub.name().into())));
    let (overlap, text) = (spec.overlap, "restricted additive Schwarz");
    let info = PrecondInfo {
        name: "ras".into(),
        parameters,
        numbers: numbers[0],
        matrix: sizes.stored,
        text: format!("{text} with overlap {overlap}, direct factors"),
        details,
        keeps_symmetry: spec.overlap == 0,
        ..PrecondInfo::default()
    };
    Ok((Some(Box::new(p)), info))
}

#[cfg(not(feature = "lu"))]
fn direct<S: SolverSpace>(
    _: &S,
    _: &Terms,
    _: &RasSpec,
    _: SchwarzPlan,
    _: &str,
    _: Instant,
) -> Result<(Boxed<S>, PrecondInfo)> {
    Err(Error::Unsupported("ras:sub=lu: this build has no direct factors (feature lu)".into()))
}

/// Sizes of all subdomains together.
struct Sizes {
    largest: usize,
    subdomains: f64,
    rows: f64,
    entries: f64,
    /// Numbers of the matrix.
    stored: f64,
    own: f64,
    square: f64,
}

impl Sizes {
    /// Counts over all ranks. Collective.
    fn of(comm: &dyn Communicator, plan: &SchwarzPlan) -> Result<Self> {
        let largest = plan.subdomains.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
        let largest = comm::largest(comm, f64::from(largest))? as usize;
        let mut sums =
            [plan.count(), plan.rows(), plan.entries(), plan.blocks.own, plan.nodes.own].map(|n| n as f64);
        comm.sum(&mut sums)?;
        let [subdomains, rows, entries, stored, own] = sums;
        let square = (plan.block * plan.block) as f64;
        Ok(Self { largest, subdomains, rows, entries, stored: stored * square, own, square })
    }

    fn describe(&self, way: &str, start: Instant) -> String {
        format!(
            "{} of at most {} block rows with their overlap ({way}), {:.1} % of all rows added, set up in {}",
            plural(self.subdomains as usize, "subdomain"),
            count(self.largest),
            100.0 * (self.rows - self.own) / self.own.max(1.0),
            seconds(start.elapsed().as_secs_f64()),
        )
    }

    fn parameters(&self, spec: &RasSpec) -> Vec<(String, Value)> {
        vec![
            ("overlap".to_string(), Value::Count(spec.overlap as u64)),
            ("subdomains".into(), Value::Count(self.subdomains as u64)),
        ]
    }
}

/// Returns the subdomains of own rows: those cut from the whole system, or one with all rows of this rank.
/// Also returns their description.
fn subdomains(local: &LocalProblem, terms: &Terms, spec: &RasSpec) -> Result<(Subdomains, String)> {
    let _cutting = profile::begin(SetupPart::Subdomains);
    let (Some(wanted), Some(parts)) = (spec.subdomains(), spec.parts) else {
        return Ok((Subdomains::whole(terms.block_rows()), "one per rank".into()));
    };
    if local.numbers.is_none() {
        return partition::of_whole(terms, local.coordinates, local.grid, wanted);
    }
    match local.subdomains.filter(|planned| planned.spec == wanted) {
        Some(planned) => Ok((planned.subdomains.clone(), planned.reason.clone())),
        None => Err(Error::invalid(format!(
            "ras:parts={parts}: parts are cut from a system given as a whole, with at least one part per \
             rank ({} ranks here). Leave out `parts` to use one subdomain per rank",
            local.comm.size()
        ))),
    }
}

fn info<S: SolverSpace>(
    space: &S,
    spec: &RasSpec,
    p: &Schwarz<S>,
    way: &str,
    start: Instant,
) -> Result<PrecondInfo> {
    let sizes = Sizes::of(space.comm(), p.plan())?;
    let counted = |n: usize| Value::Count(n as u64);
    let mut parameters = sizes.parameters(spec);
    parameters.extend([
        ("fill".to_string(), counted(spec.fill)),
        ("order".into(), Value::Text(spec.order.name().into())),
        ("factor".into(), Value::Text(factor_name(spec.factor).into())),
    ]);
    let mut ways = match spec.factor {
        SchwarzFactor::Exact => "exact factors".to_string(),
        SchwarzFactor::Random { sweeps } => {
            parameters.push(("eta".into(), counted(sweeps)));
            match p.factorization() {
                Some(Factorization::Random { .. }) => format!("factors by {sweeps} randomized sweeps"),
                _ => format!("exact factors first, then by {sweeps} randomized sweeps"),
            }
        }
    };
    let name = solve_name(Some(p.solve()));
    parameters.push(("solve".into(), Value::Text(name.into())));
    ways += &match p.solve() {
        TriangularSolve::Exact => ", exact solves".to_string(),
        TriangularSolve::Jacobi { sweeps } | TriangularSolve::Random { sweeps } => {
            parameters.push(("gamma".into(), counted(sweeps)));
            let kind = if name == "jacobi" { "Jacobi" } else { "randomized" };
            format!(", solves by {sweeps} {kind} sweeps")
        }
    };
    parameters.extend([
        ("fdp".to_string(), counted(spec.rows)),
        ("deterministic".into(), Value::Text(if spec.deterministic { "yes" } else { "no" }.into())),
        ("rows".into(), counted(sizes.rows as usize)),
        ("defect".into(), Value::Number(p.defect())),
    ]);
    let distance = p
        .distance()
        .map_or(String::new(), |d| format!(", randomized sweeps differ from exact solves by {d:.1e}"));
    parameters.extend(p.distance().map(|distance| ("distance".to_string(), Value::Number(distance))));
    let details = vec![sizes.describe(way, start), format!("{ways}; defect {:.1e}", p.defect()) + &distance];
    Ok(PrecondInfo {
        name: "ras".into(),
        parameters,
        numbers: sizes.entries * sizes.square,
        matrix: sizes.stored,
        text: format!("restricted additive Schwarz with overlap {}, ILU({})", spec.overlap, spec.fill),
        details,
        ..PrecondInfo::default()
    })
}

impl<S: SolverSpace> Preconditioner<S> for Schwarz<S> {
    fn update_values(&mut self, space: &S, _: &Terms, values: TermValues) -> Result<()> {
        let (_, values) = values.term(0).ok_or_else(|| Error::invalid("ras: no values"))?;
        Schwarz::update_values(self, space, values)
    }
    fn prepare_transpose(&mut self, space: &S, _: &Terms) -> Result<()> {
        Schwarz::prepare_transpose(self, space)
    }
    fn take_events(&mut self) -> Vec<String> {
        Schwarz::take_events(self)
    }
}
