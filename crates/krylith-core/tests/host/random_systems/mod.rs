//! Random systems of every kind: whatever is called converged is, by arithmetic of twice the digits.

mod combinations;
mod updates;

use crate::common::exact::{Direct, Exact, safe_norm};
use crate::common::systems::{KINDS, RandomSystem};
use krylith_core::comm::{Communicator, Team};
use krylith_core::operator::Terms;
use krylith_core::partition::{Partition, split};
use krylith_core::{History, Options, Outcome, Problem, Solver};
use std::sync::Arc;

/// The series; another number gives other systems.
const SEED: u64 = 20_261_122;

/// x and how the solve went, on one rank or on three.
fn solve(system: &RandomSystem, options: &Options, ranks: usize) -> (Vec<f64>, Outcome) {
    let (x, history) = solve_told(system, options, ranks).unwrap();
    (x, history.outcome)
}

/// The same with its history.
fn solve_told(
    system: &RandomSystem,
    options: &Options,
    ranks: usize,
) -> krylith_core::Result<(Vec<f64>, History)> {
    let RandomSystem { k, plain, b, .. } = system;
    if ranks == 1 {
        let problem = if *plain { Problem::bsr(&k.m) } else { Problem::kronecker(k) };
        let mut x = vec![0.0; b.len()];
        let mut solver = Solver::new(problem?, options)?;
        let history = solver.solve(b, &mut x)?.history.clone();
        return Ok((x, history));
    }
    let terms = if *plain { Terms::bsr(&k.m) } else { Terms::kronecker(k) };
    let run = terms.block() * terms.stages();
    let parts = split(&terms, &Partition::by_rows(terms.block_rows(), ranks).unwrap()).unwrap();
    let solved = Team::run(ranks, |comm| {
        let part = parts[comm.rank()].clone();
        let rows = part.rows.clone();
        let own: Vec<f64> = rows.iter().flat_map(|&i| &b[i as usize * run..][..run]).copied().collect();
        let mut solver = Solver::new(Problem::part(comm as Arc<dyn Communicator>, part)?, options)?;
        let mut x = vec![0.0; own.len()];
        let history = solver.solve(&own, &mut x)?.history.clone();
        Ok((rows, x, history))
    });
    let (mut x, solved) = (vec![0.0; b.len()], solved?);
    for (rows, own, _) in &solved {
        for (i, own) in rows.iter().zip(own.chunks_exact(run)) {
            x[*i as usize * run..][..run].copy_from_slice(own);
        }
    }
    assert!(solved.iter().all(|(_, _, history)| history.outcome == solved[0].2.outcome), "ranks disagree");
    Ok((x, solved[0].2.clone()))
}

/// What is wrong with an answer, judged in twice the digits.
fn faults(exact: &Exact, b: &[f64], x: &[f64], history: &History, rtol: f64) -> Option<String> {
    if !x.iter().all(|x| x.is_finite()) {
        return Some(format!("x is not finite ({})", history.outcome));
    }
    let (norm, residual) = (safe_norm(b), safe_norm(&exact.residual(b, x)));
    // Sums of products as small as that have no digits.
    let tiny = f64::MIN_POSITIVE * b.len() as f64;
    if history.outcome == Outcome::Converged && !(residual <= 1.01 * rtol * norm + tiny) {
        return Some(format!("residual {:e}, called converged", residual / norm));
    }
    if !(residual <= norm * (1.0 + 1e-8) + tiny) {
        return Some(format!("residual {:e}, worse than x = 0 ({})", residual / norm, history.outcome));
    }
    let told = history.true_relative_residual * norm;
    if !((told - residual).abs() <= 0.01 * residual + 4.0 * f64::EPSILON * exact.magnitude(x) + tiny) {
        return Some(format!("residual {:e}, told {:e} ({})", residual / norm, told / norm, history.outcome));
    }
    None
}

/// Solves systems by number and compares them with residuals in twice the digits and a direct solve; a share
/// of each kind must converge.
fn judge_series(seed: u64, count: usize) {
    let rtol = 1e-8;
    let options: Options = format!("device=cpu threads=1 rtol={rtol}").parse().unwrap();
    let (mut converged, mut floors) = ([0; KINDS.len()], 0);
    let (mut on_ranks, mut direct_too, mut wrong) = (0, 0, Vec::new());
    for number in 0..count {
        let system = RandomSystem::new(seed, number);
        let nodes = system.k.m.block_rows();
        let ranks = if number % 16 == 15 && nodes >= 3 { 3 } else { 1 };
        on_ranks += usize::from(ranks == 3);
        let name = |what: &str| {
            let (b, s) = (system.k.block(), system.k.stages());
            format!("{number} ({}, {nodes} block rows, b = {b}, s = {s}, {ranks} ranks): {what}", system.kind)
        };
        let (x, history) = match solve_told(&system, &options, ranks) {
            Ok(solved) => solved,
            // Every system is solved, or its answer says why not.
            Err(e) => {
                wrong.push(name(&e.to_string()));
                continue;
            }
        };
        let (exact, outcome) = (system.exact(), history.outcome);
        if let Some(fault) = faults(&exact, &system.b, &x, &history, rtol) {
            wrong.push(name(&fault));
            continue;
        }
        let (norm, residual) = (safe_norm(&system.b), safe_norm(&exact.residual(&system.b, &x)));
        // What is known to be out of reach beforehand is not reached.
        let problem = if system.plain { Problem::bsr(&system.k.m) } else { Problem::kronecker(&system.k) };
        let problem = problem.unwrap();
        if let Some(floor) = problem.diagnosis().unwrap().floor(&problem, &system.b).unwrap() {
            floors += 1;
            let reached = residual < floor.residual * (1.0 - 1e-9) - f64::EPSILON * norm;
            if reached || (floor.relative > rtol && outcome == Outcome::Converged) {
                wrong.push(name(&format!("{outcome}, residual {residual:e} below the floor {floor:?}")));
            }
        }
        if outcome != Outcome::Converged {
            continue;
        }
        converged[number % KINDS.len()] += 1;
        let direct = Direct::new(&exact.dense());
        let condition = direct.condition();
        // Beyond that a direct solve has no correct digit either, nor has one with entries below the smallest
        // normal number.
        if (1.0..1e14).contains(&condition) {
            let y = direct.solve(&exact, &system.b);
            let distance: Vec<f64> = x.iter().zip(&y).map(|(x, y)| x - y).collect();
            let off = safe_norm(&distance) / safe_norm(&y);
            if !(off <= 1.01 * rtol * condition) {
                wrong.push(name(&format!("x is off by {off:e}, condition {condition:e}")));
            }
            direct_too += 1;
        }
    }
    let all: usize = converged.iter().sum();
    println!("seed {seed}: {count} systems, {on_ranks} of them on 3 ranks; {all} converged, by kind:");
    KINDS.iter().zip(converged).for_each(|(kind, n)| println!("  {kind}: {n} of {}", count / KINDS.len()));
    println!("{floors} with a floor of the residual that was known beforehand");
    println!("{direct_too} compared with a direct solve; {} wrong", wrong.len());
    assert!(
        wrong.is_empty(),
        "seed {seed}: {} wrong, the first {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(9)]
    );
    assert!(floors > count / 100, "{floors}");
    assert!(
        4 * all >= 3 * count && converged[0] == count.div_ceil(KINDS.len()),
        "{all} converged: {converged:?}"
    );
}

#[test]
fn random_systems_and_none_is_wrong() {
    judge_series(SEED, 660);
}

/// `KRYLITH_SYSTEMS` of them, 10,000 where it is not set.
#[test]
#[ignore = "10,000 systems: minutes"]
fn ten_thousand_random_systems_and_none_is_wrong() {
    judge_series(SEED + 2, count_from("KRYLITH_SYSTEMS", 10_000));
}

/// The number that a variable of the environment gives.
fn count_from(name: &str, default: usize) -> usize {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

#[test]
fn tolerances_below_double_precision_are_named() {
    let options = |rtol: f64| format!("device=cpu threads=1 rtol={rtol}").parse::<Options>().unwrap();
    let (mut tried, mut wrong) = (0, Vec::new());
    for number in 0.. {
        if tried == 200 {
            break;
        }
        let system = RandomSystem::new(SEED + 1, number);
        let ranks = if number % 16 == 15 && system.k.m.block_rows() >= 3 { 3 } else { 1 };
        if solve(&system, &options(1e-8), ranks).1 != Outcome::Converged {
            continue;
        }
        tried += 1;
        let (x, history) = solve_told(&system, &options(1e-18), ranks).unwrap();
        let exact = system.exact();
        let norm = safe_norm(&system.b);
        let residual = safe_norm(&exact.residual(&system.b, &x)) / norm;
        // A direct solve's backward error: as good as any x of double precision can be, within a small
        // factor.
        let limit = 4.0 * history.rounding;
        let problem = if system.plain { Problem::bsr(&system.k.m) } else { Problem::kronecker(&system.k) };
        let problem = problem.unwrap();
        let floor = problem.diagnosis().unwrap().floor(&problem, &system.b).unwrap();
        let named = match history.outcome {
            Outcome::Inconsistent => floor.is_some_and(|floor| residual <= 1.01 * (floor.relative + limit)),
            Outcome::RoundingLimit => residual <= 1.01 * limit,
            Outcome::Converged => residual <= 1.01e-18,
            _ => false,
        };
        if !named {
            let (kind, outcome) = (system.kind, history.outcome);
            wrong.push(format!(
                "{number} ({kind}, {ranks} ranks): {outcome}, residual {residual:e}, limit {limit:e}"
            ));
        }
    }
    println!("seed {}: {tried} systems, {} not named", SEED + 1, wrong.len());
    assert!(wrong.is_empty(), "{} of {tried}, the first {:#?}", wrong.len(), &wrong[..wrong.len().min(12)]);
}
