//! Targets of algebraic multigrid compared with measurements, and times of other libraries.

use super::measure::{Found, Row};
use super::report::{Made, OneCore, Scaled};
use super::{systems, ways};
use crate::publish::Target;

/// A library's time on a system of the table, and our target.
#[derive(Debug)]
pub(super) struct Goal {
    /// Name of the system in the table.
    pub name: &'static str,
    /// Seconds of AmgX's set-up and solve.
    pub amgx: [f64; 2],
    pub setting: &'static str,
    /// Our target: largest total time in milliseconds.
    pub most: f64,
    /// Largest number of iterations, if there is a target.
    pub iterations: Option<f64>,
}

/// The fastest of 16 settings of AmgX 2.5 on one H200 (CUDA 13, 2026-11-22), each run three times after a
/// warm-up. The upload is excluded; the tolerance is ‖b − A x‖ ≤ 1e-8 ‖b‖, with a right-hand side of ones.
/// These times are from that day, not from the run they are compared with.
pub(super) const GOALS: [Goal; 5] = [
    goal("laplace128", [0.0106, 0.0516], "PCG, aggregation of 8, block Jacobi, 62 iterations", 30.0),
    goal("laplace256", [0.177, 0.154], "PCG, classical V, Jacobi, 37 iterations", 165.0),
    Goal { iterations: Some(25.0), ..goal("spe10", [0.0545, 0.0243], "PCG, PMIS, 22 iterations", 40.0) },
    goal("radiation64", [0.014, 0.099], "FGMRES, aggregation of 8, DILU, 42 iterations", 30.0),
    goal("laplace64b4", [0.011, 0.056], "PCG, aggregation of 8, DILU, 31 iterations", 25.0),
];

const fn goal(name: &'static str, amgx: [f64; 2], setting: &'static str, most: f64) -> Goal {
    Goal { name, amgx, setting, most, iterations: None }
}

/// Other libraries' times on one core.
#[derive(Debug)]
pub(super) struct Core {
    pub name: &'static str,
    /// Total seconds and iterations with CG: AMGCL's smoothed aggregation, and hypre's BoomerAMG.
    pub amgcl: [f64; 2],
    pub hypre: [f64; 2],
    /// Seconds of Krylith's product on that core.
    pub product: f64,
    /// The target is to be faster than this, the fastest of them, in seconds.
    pub faster_than: f64,
}

/// Seconds of Krylith's product with laplace 100³ on the core of [`CORES`].
const PRODUCT: f64 = 0.0067;

/// AMGCL and hypre 2.26 on one core of one machine. Only the product with laplace 100³ was timed there. The
/// other products scale with the number of rows; all have 7 points.
pub(super) const CORES: [Core; 3] = [
    core("laplace100", [2.13, 17.0], [2.43, 15.0], PRODUCT, 2.13),
    core("laplace128", [3.99, 11.0], [5.74, 15.0], PRODUCT * 2.097152, 3.99),
    core("spe10", [9.1, 43.0], [6.8, 17.0], PRODUCT * 1.122, 6.8),
];

const fn core(name: &'static str, amgcl: [f64; 2], hypre: [f64; 2], product: f64, faster_than: f64) -> Core {
    Core { name, amgcl, hypre, product, faster_than }
}

/// Largest ratio of iterations at 256³ to those at 64³.
const GROWTH: f64 = 1.2;
/// Largest ratio of time and memory of the last updates to the first; above 1 because of noise of clock and
/// allocator.
const SLOWER: f64 = 1.1;
const LARGER: f64 = 1.02;
/// Least efficiency of two GPUs with as many rows each.
const WEAK: f64 = 0.9;

/// Returns the fastest hierarchy, or the automatic choice, in f64.
fn best(found: &Found) -> Option<&Row> {
    found.fastest(|row| !ways::is_f32(&row.text))
}

const MISSING: &str = "not measured";

fn target(name: String, goal: f64, at_most: bool, measured: Option<(f64, String)>) -> Target {
    let (value, how) = measured.unwrap_or((f64::NAN, MISSING.into()));
    Target { name, goal, at_most, value, how }
}

/// Returns all targets; those that were not measured, or at another size, have no value.
pub(super) fn targets(made: &Made) -> Vec<Target> {
    let mut all = Vec::new();
    table(made, &mut all);
    for family in systems::FAMILIES.iter().filter(|family| family.promised) {
        let series = made.growth.iter().find(|series| series.first().is_some_and(|f| f.name == family.name));
        let name = format!("{}: iterations at 256³ over those at 64³", family.name);
        all.push(target(name, GROWTH, true, series.and_then(|series| growth(series))));
    }
    let (slower, larger) = made.updates.iter().filter(|u| u.failure.is_none()).fold(
        (None::<(f64, String)>, None::<(f64, String)>),
        |(slower, larger), u| {
            let how = || format!("{} × {}, {}", u.together.len(), u.way, u.name);
            let worse = |old: Option<(f64, String)>, new: f64| match old {
                Some(old) if old.0 >= new || new.is_nan() => Some(old),
                _ => Some((new, how())),
            };
            (worse(slower, u.slower()), worse(larger, u.larger()))
        },
    );
    all.push(target("updates: time of the last over the first".into(), SLOWER, true, slower));
    all.push(target("updates: memory of the last over the first".into(), LARGER, true, larger));
    for core in &CORES {
        let name = format!("{} on one core: in products of the matrix", core.name);
        let found = made.cpu.iter().find(|one| one.found.name == core.name && one.whole);
        let goal = (core.faster_than / core.product).round();
        all.push(target(name, goal, true, found.and_then(one_core)));
    }
    all.push(target("weak scaling: efficiency of two GPUs".into(), WEAK, false, weak(&made.scaling)));
    all
}

fn table(made: &Made, all: &mut Vec<Target>) {
    let whole = made.meta["scale"].as_f64() == Some(1.0) && made.gpu;
    for goal in &GOALS {
        // Generated rock is a different system.
        let same = |found: &&Found| {
            found.name == goal.name && (goal.name != "spe10" || systems::real_rock(&found.spec))
        };
        let row = made.table.iter().filter(|_| whole).find(same).and_then(best);
        let of = |value: f64, row: &Row| (value, format!("{}, {}", row.text, row.means()));
        let name = format!("{}: ms in all, f64, from device arrays", goal.name);
        all.push(target(name, goal.most, true, row.map(|row| of(1e3 * row.total(), row))));
        if let Some(most) = goal.iterations {
            let name = format!("{}: iterations", goal.name);
            all.push(target(name, most, true, row.map(|row| of(row.iterations(), row))));
        }
    }
}

/// Returns the iterations of the default hierarchy, or else of the first variant of the list.
fn growth(series: &[Found]) -> Option<(f64, String)> {
    let at = |side: usize| series.iter().find(|found| found.side == side);
    let (small, large) = (at(64)?, at(256)?);
    let way = small.row(ways::DEFAULT).or(small.rows.first())?;
    let (from, to) = (way.iterations(), large.row(&way.text).map_or(f64::NAN, Row::iterations));
    Some((to / from, format!("{}: {from} and {to} iterations", way.text)))
}

fn one_core(one: &OneCore) -> Option<(f64, String)> {
    let row = best(&one.found)?;
    let (total, product) = (row.total(), one.product);
    let how = format!("{}: {total:.2} s; a product takes {:.2} ms", row.text, 1e3 * product);
    Some((total / product, how))
}

fn weak(scaling: &[Scaled]) -> Option<(f64, String)> {
    let two = scaling.iter().find(|one| one.series == "weak" && one.gpus == 2 && one.whole)?;
    let row = two.found.row(ways::DEFAULT).or(two.found.rows.first())?;
    Some((efficiency(scaling, two, row, Row::total), format!("{}, set-up and solve", row.text)))
}

/// Returns the efficiency: seconds on one GPU over those on several, for a constant number of rows per GPU;
/// for a constant total, divided by the number of GPUs.
pub(super) fn efficiency(scaling: &[Scaled], at: &Scaled, row: &Row, seconds: fn(&Row) -> f64) -> f64 {
    let one = scaling.iter().find(|other| other.series == at.series && other.gpus == 1);
    let one = one.and_then(|one| one.found.row(&row.text)).map_or(f64::NAN, seconds);
    let work = if at.series == "weak" { 1.0 } else { at.gpus as f64 };
    one / (work * seconds(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{Answer, Way};
    use serde_json::json;

    /// Creates a system with variants that take these seconds and iterations from device arrays.
    fn found(name: &str, spec: &str, side: usize, ways: &[(&str, f64, usize)]) -> Found {
        let row = |&(text, total, iterations): &(&str, f64, usize)| {
            let parts = vec![("solve", 0.5 * total)];
            let answer = Answer { parts, total, iterations, converged: true, ..Answer::default() };
            let way =
                Way { name: text.into(), failure: None, taken: vec![answer], residual: 1e-9, named: false };
            Row { text: text.into(), refused: None, resident: Some(way), host: None }
        };
        let rows = ways.iter().map(row).collect();
        let (name, spec) = (name.into(), spec.into());
        Found { name, spec, unknowns: 1, order: 1, stored: 1, symmetric: true, side, rows }
    }

    fn of<'a>(all: &'a [Target], name: &str) -> &'a Target {
        all.iter().find(|target| target.name.starts_with(name)).unwrap()
    }

    #[test]
    fn promises_are_kept_broken_or_not_measured() {
        // An f32 hierarchy does not meet a target of f64.
        let ways = [("amg", 0.040, 12), ("amg:smoother=ildu", 0.035, 9), ("amg:precision=f32", 0.010, 12)];
        let scaled = |series, gpus, total| Scaled {
            series,
            gpus,
            found: found("laplace", "", 0, &[("amg", total, 10)]),
            whole: true,
        };
        let made = Made {
            meta: json!({ "scale": 1.0 }),
            gpu: true,
            table: vec![
                found("laplace128", "", 0, &ways),
                found("laplace256", "", 0, &[("amg", 0.165, 9)]),
                found("spe10", "spe10:60x220x85,permeability=generated", 0, &ways),
            ],
            growth: vec![
                vec![
                    found("laplace", "", 64, &[("amg", 1.0, 10)]),
                    found("laplace", "", 256, &[("amg", 1.0, 12)]),
                ],
                vec![found("contrast", "", 64, &[("amg", 1.0, 10)])],
            ],
            cpu: vec![OneCore { found: found("laplace100", "", 0, &ways), product: 1e-4, whole: true }],
            scaling: vec![scaled("weak", 1, 0.95), scaled("weak", 2, 1.0), scaled("strong", 2, 1.0)],
            ..Made::default()
        };
        let all = targets(&made);
        let got = |name: &str| (of(&all, name).value, of(&all, name).met());
        assert_eq!(got("laplace128: ms"), (35.0, Some(false)));
        assert!(of(&all, "laplace128: ms").how.starts_with("amg:smoother=ildu"));
        assert_eq!(got("laplace256: ms"), (165.0, Some(true)));
        assert_eq!(got("laplace: iterations"), (1.2, Some(true)));
        assert_eq!(got("weak scaling"), (0.95, Some(true)));
        let products = got("laplace100 on one core");
        assert!((products.0 - 350.0).abs() < 1e-9 && products.1 == Some(false), "{products:?}");
        // Generated rock, a series that ends early, and a missing measurement.
        for name in ["spe10: ms", "contrast: iterations", "radiation64: ms", "updates: time"] {
            assert_eq!((of(&all, name).met(), of(&all, name).how.as_str()), (None, MISSING), "{name}");
        }
        // Smaller systems prove nothing.
        let small = targets(&Made { meta: json!({ "scale": 0.5 }), ..made });
        assert_eq!(of(&small, "laplace256: ms").met(), None);
    }
}
