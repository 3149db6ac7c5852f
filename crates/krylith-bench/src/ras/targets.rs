//! Targets of randomized Schwarz, compared with the measurements.

use super::cases::Kind;
use super::measure::Row;
use super::report::{Found, efficiency};
use crate::publish::Target;

/// Largest ratio of a randomized variant's iterations to those of exact RAS.
const MORE: f64 = 1.15;
/// Largest difference of a run's iterations from the median.
const SPREAD: f64 = 2.0;

pub(super) fn targets(found: &[Found], repeated: Option<&Found>, scaling: &[Found]) -> Vec<Target> {
    let mut all = Vec::new();
    for one in found {
        let goal = if one.setting.name.starts_with("cavity") { 5.0 } else { 2.0 };
        let (value, how) = over_vendor(one);
        all.push(Target {
            name: format!("{}: × cuSPARSE's RAS in T_f + T_g", one.setting.name),
            goal,
            at_most: false,
            value,
            how,
        });
        let (value, how) = auto(one);
        let name = format!("{}: T_f + T_g of auto over the fastest", one.setting.name);
        all.push(Target { name, goal: 1.05, at_most: true, value, how });
    }
    let random = |found| randomized(found).map(move |row| (found, row));
    for (found, row) in repeated.into_iter().flat_map(random) {
        let runs = row.runs.len();
        let converged = row.runs.iter().filter(|run| run.converged).count();
        let mut add = |name: &str, goal, at_most, value| {
            let how = format!("{}, {runs} runs of {}", row.way.name, found.spec);
            all.push(Target { name: name.into(), goal, at_most, value, how });
        };
        add("independent runs that converge", runs as f64, false, converged as f64);
        let middle = row.median();
        let far = row.runs.iter().map(|run| (run.iterations as f64 - middle).abs()).fold(f64::NAN, f64::max);
        add("iterations away from the median", SPREAD, true, far);
        let exact = found.solves.iter().find(|row| row.way.kind == Kind::Exact);
        let most = row.iterations().max / exact.map_or(f64::NAN, |row| row.iterations().mean);
        add("most iterations over exact RAS's", MORE, true, most);
    }
    for found in scaling {
        for row in found.solves.iter().filter(|row| row.gpus == 2 && row.failure.is_none()) {
            all.push(Target {
                name: format!("{}: efficiency of T_g, 1 to 2 GPUs", found.spec),
                goal: 0.85,
                at_most: false,
                value: efficiency(found, row, Row::solve),
                how: format!("{}, {} block rows", row.way.name, found.rows),
            });
        }
    }
    all
}

fn randomized(found: &Found) -> impl Iterator<Item = &Row> {
    found.solves.iter().filter(|row| row.way.kind == Kind::Random)
}

/// Returns the rows of the same variant over all Newton steps of a problem, in order; `None` if a step
/// failed.
fn over_steps<'a>(found: &'a Found, row: &Row) -> Option<Vec<&'a Row>> {
    let of = |&(step, _): &(usize, f64)| {
        found.solves.iter().find(|other| {
            other.step == step
                && other.way == row.way
                && other.failure.is_none()
                && other.runs.iter().all(|run| run.converged)
        })
    };
    found.assembly.iter().map(of).collect()
}

fn seconds(rows: &[&Row]) -> f64 {
    rows.iter().map(|row| row.both().mean).sum()
}

/// Returns the speed-up over cuSPARSE's RAS, over all Newton steps together, of the fastest RAS whose
/// iterations stay within the limit; and a description of that RAS.
fn over_vendor(found: &Found) -> (f64, String) {
    let first = found.assembly.first().map_or(0, |a| a.0);
    let all = |kind| found.first(first, kind).and_then(|row| over_steps(found, row));
    let Some(vendor) = all(Kind::Vendor) else {
        return (f64::NAN, "cuSPARSE has no times here".into());
    };
    let near = |rows: &Vec<&Row>| {
        rows.iter().zip(&vendor).all(|(row, exact)| row.iterations().max <= MORE * exact.iterations().mean)
    };
    let ours =
        |row: &&Row| row.step == first && matches!(row.way.kind, Kind::Random | Kind::Exact | Kind::Ras);
    let mine = found.solves.iter().filter(ours);
    let best = mine
        .filter_map(|row| over_steps(found, row))
        .filter(near)
        .min_by(|a, b| seconds(a).total_cmp(&seconds(b)));
    match best {
        Some(rows) => (
            seconds(&vendor) / seconds(&rows),
            format!("{}, {} Newton steps together", rows[0].way.name, rows.len()),
        ),
        None => (f64::NAN, format!("no variant stays within {MORE} times the iterations of exact RAS")),
    }
}

/// Compares `auto` with the fastest variant.
fn auto(found: &Found) -> (f64, String) {
    let first = found.assembly.first().map_or(0, |a| a.0);
    let ours = found
        .solves
        .iter()
        .filter(|row| row.step == first && !matches!(row.way.kind, Kind::Vendor | Kind::OneCore))
        .filter_map(|row| over_steps(found, row));
    let best = ours.min_by(|a, b| seconds(a).total_cmp(&seconds(b)));
    let auto = found.solves.iter().find(|row| row.step == first && row.way.name == "auto");
    match (best, auto.and_then(|row| over_steps(found, row))) {
        (Some(best), Some(auto)) => {
            (seconds(&auto) / seconds(&best), format!("the fastest is {}", best[0].way.name))
        }
        _ => (f64::NAN, "some variants were not measured".into()),
    }
}
