//! Builds restricted additive Schwarz: its subdomains, and their description for reports.

use super::{Boxed, PrecondInfo, Preconditioner, Value};
use crate::comm::{self, agree};
use crate::operator::{TermValues, Terms};
use crate::partition::{self, Subdomains};
use crate::precond::spec::{factor_name, solve_name};
use crate::precond::{
    Factorization, RasSpec, Schwarz, SchwarzFactor, SchwarzOptions, SchwarzPattern, SchwarzPlan,
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
    let options = SchwarzOptions { precision, rows: spec.rows, deterministic: spec.deterministic };
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
    let info = info(space, spec, &p, &way, start)?;
    Ok((Some(Box::new(p)), info))
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
    let (comm, plan) = (space.comm(), p.plan());
    let largest = plan.subdomains.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
    let largest = comm::largest(comm, f64::from(largest))? as usize;
    let mut sums =
        [plan.count(), plan.rows(), plan.entries(), plan.blocks.own, plan.nodes.own].map(|n| n as f64);
    comm.sum(&mut sums)?;
    let [subdomains, rows, entries, stored, own] = sums;
    let counted = |n: usize| Value::Count(n as u64);
    let mut parameters = vec![
        ("overlap".to_string(), counted(spec.overlap)),
        ("subdomains".into(), counted(subdomains as usize)),
        ("fill".into(), counted(spec.fill)),
        ("order".into(), Value::Text(spec.order.name().into())),
        ("factor".into(), Value::Text(factor_name(spec.factor).into())),
    ];
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
        ("rows".into(), counted(rows as usize)),
        ("defect".into(), Value::Number(p.defect())),
    ]);
    let distance = p
        .distance()
        .map_or(String::new(), |d| format!(", randomized sweeps differ from exact solves by {d:.1e}"));
    parameters.extend(p.distance().map(|distance| ("distance".to_string(), Value::Number(distance))));
    let details = vec![
        format!(
            "{} of at most {} block rows with their overlap ({way}), {:.1} % of all rows added, set up in {}",
            plural(subdomains as usize, "subdomain"),
            count(largest),
            100.0 * (rows - own) / own.max(1.0),
            seconds(start.elapsed().as_secs_f64()),
        ),
        format!("{ways}; defect {:.1e}", p.defect()) + &distance,
    ];
    let square = (plan.block * plan.block) as f64;
    Ok(PrecondInfo {
        name: "ras".into(),
        parameters,
        numbers: entries * square,
        matrix: stored * square,
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
