//! Table I of the P-CBCG paper: P-CG with every tile of the table, by Krylith and, on a GPU, by the paper's
//! own kernels with both storages.
//!
//! Iterations do not depend on the storage. So the paper's kernels solve only with the faster storage, and
//! the other one is timed over a few iterations.

use super::solves::{self, Row};
use super::{Case, MOST, Solve, Storage, tiles};
use crate::launch::Launch;
use crate::options::Asked;
use crate::platform::Platform;
use crate::publish::{Check, Pages, error, number, outcome, rows_of, sizes};
use krylith_core::precond::TileFactors;
use krylith_core::{Error, Result};
use serde_json::{Value, json};
use std::rc::Rc;

/// A line of the table.
pub(super) struct Published {
    pub tile: [usize; 3],
    pub iterations: usize,
    /// Seconds with x contiguous (t1), and with z contiguous (t2).
    pub seconds: [f64; 2],
}

const fn line(tile: [usize; 3], iterations: usize, seconds: [f64; 2]) -> Published {
    Published { tile, iterations, seconds }
}

/// The table; its first line is of a CPU, which has no t2.
const TABLE: [Published; 9] = [
    line([256, 128, 36], 106, [34.60, f64::NAN]),
    line([16, 32, 4], 142, [17.49, 9.45]),
    line([16, 16, 4], 145, [38.62, 7.64]),
    line([8, 8, 16], 156, [13.04, 39.44]),
    line([16, 16, 1], 161, [48.69, 7.27]),
    line([8, 8, 1], 174, [47.34, 6.87]),
    line([4, 4, 4], 185, [22.83, 22.83]),
    line([2, 4, 64], 210, [8.70, 80.67]),
    line([1, 8, 8], 263, [10.79, 69.13]),
];

/// Iterations over which a storage is timed.
const TIMED: usize = 16;

/// The paper's kernels with one storage.
pub(super) struct Stored {
    storage: Storage,
    /// Seconds of an iteration, or the reason if there is none.
    each: Check,
}

/// All measurements of one tile.
pub(super) struct Shape {
    published: &'static Published,
    /// Krylith's solve; none where the device does not support the tile.
    ours: Option<Row>,
    /// The paper's kernels with both storages, and the solve with the faster one; empty on a CPU.
    stored: Vec<Stored>,
    paper: Option<Row>,
}

pub(super) fn measure<P: Platform>(
    p: &P,
    small: &Case,
    case: &Case,
    options: &Asked,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Shape>>
where
    P::Space: TileFactors,
{
    let (most, rounds) = (options.iterations.unwrap_or(MOST), options.solves.unwrap_or(1));
    let space = Rc::new(p.space(small.rows())?);
    let mut all = Vec::new();
    for published in &TABLE {
        let tile = published.tile;
        let text = format!("method=cg precond=block-jacobi:tile={}x{}x{}", tile[0], tile[1], tile[2]);
        progress(&format!("Table I: tile {}", sizes(tile)));
        let device = options.device.options(1, options.threads);
        let ours = match tiles::supports(&space, small, tile)? {
            true => Some(solves::ours(case, &text, (&device, &Launch::default()), most, rounds)),
            false => None,
        };
        let (mut stored, mut fastest) = (Vec::new(), None);
        // The paper's line of a CPU has too few tiles for a thread each.
        let solvers = if published.seconds[1].is_nan() { Vec::new() } else { p.cbcg_solvers(case, tile) };
        for (storage, solver) in solvers {
            match solver.and_then(|mut solve| Ok((timed(&mut solve)?, solve))) {
                Ok((each, solve)) => {
                    stored.push(Stored { storage, each: Ok(each) });
                    if fastest.as_ref().is_none_or(|(best, _)| each < *best) {
                        fastest = Some((each, solve));
                    }
                }
                Err(e) => stored.push(Stored { storage, each: Err(e.to_string()) }),
            }
        }
        let name = format!("the paper's kernels, tile {}", sizes(tile));
        let paper = fastest.map(|(_, mut solve)| theirs(name, case, &mut solve, most, rounds));
        all.push(Shape { published, ours, stored, paper });
    }
    Ok(all)
}

/// Returns the seconds of an iteration, after a discarded run.
fn timed(solve: &mut Solve) -> Result<f64> {
    solve(TIMED)?;
    let solved = solve(TIMED)?;
    match solved.iterations {
        0 => Err(Error::invalid("the solve ended without an iteration; measure a system with b ≠ 0")),
        iterations => Ok(solved.seconds / iterations as f64),
    }
}

fn theirs(name: String, case: &Case, solve: &mut Solve, most: usize, rounds: usize) -> Row {
    let mut row = Row::empty(&name, false);
    for _ in 0..rounds {
        match solve(most) {
            Ok(solved) => {
                row.judge(case.residual(&solved.x), solved.converged, solved.iterations);
                if row.check.is_err() {
                    break;
                }
                row.samples.0.push(solved.seconds);
            }
            Err(e) => {
                row.check = Err(format!("{name}: {e}"));
                break;
            }
        }
    }
    row
}

impl Shape {
    /// Returns the seconds of a solve with a storage, and true if they follow from a few iterations.
    fn seconds(&self, storage: Storage) -> Option<(f64, bool)> {
        let each = |s: &Stored| s.each.as_ref().ok().copied();
        let own = self.stored.iter().find(|s| s.storage == storage).and_then(each)?;
        let solve = self.paper.as_ref().filter(|row| row.check.is_ok())?;
        match self.stored.iter().filter_map(each).any(|other| other < own) {
            true => Some((own * solve.iterations as f64, true)),
            false => Some((solve.samples.median(), false)),
        }
    }
}

/// Builds the table and the JSON.
pub(super) fn report(spec: &str, shapes: &[Shape], pages: &mut Pages) -> Value {
    if shapes.is_empty() {
        return Value::Null;
    }
    let before = format!("{spec}: Table I: ");
    let solved = shapes.iter().flat_map(|s| s.ours.iter().chain(&s.paper));
    pages.fail(&before, solved.map(|row| &row.check));
    pages.fail(&before, shapes.iter().flat_map(|s| &s.stored).map(|s| &s.each));
    let count = |row: &Option<Row>| match row {
        Some(row) if row.check.is_ok() => row.iterations.to_string(),
        Some(_) => "WRONG".into(),
        None => "–".into(),
    };
    let time = |row: &Option<Row>| row.as_ref().map_or("–".into(), |row| number(row.samples.median(), 3));
    let residual = |row: &Option<Row>| row.as_ref().map_or("–".into(), |row| error(&row.check, 1));
    let stored = |storage: Storage| {
        move |s: &Shape| match s.seconds(storage) {
            Some((seconds, estimated)) => {
                format!("{}{}", if estimated { "≈ " } else { "" }, number(seconds, 3))
            }
            None => "–".into(),
        }
    };
    let each = |s: &Shape| -> String {
        let all = s.stored.iter().map(|s| s.each.as_ref().map_or("WRONG".into(), |e| number(1e3 * e, 2)));
        if s.stored.is_empty() { "–".into() } else { all.collect::<Vec<_>>().join(", ") }
    };
    let published = |s: &Shape| {
        let [t1, t2] = s.published.seconds.map(|t| number(t, 2));
        format!("{}; {t1}, {t2}", s.published.iterations)
    };
    let title = format!("{spec}: Table I, P-CG by the tile of block-Jacobi; ≈: from {TIMED} iterations");
    pages.tables.push(
        rows_of(title, shapes)
            .column("tile", |s| sizes(s.published.tile))
            .column("Krylith: iterations", |s| count(&s.ours))
            .column("s", |s| time(&s.ours))
            .column("residual", |s| residual(&s.ours))
            .column("thread per tile: iterations", |s| count(&s.paper))
            .column("xyz, s", stored(Storage::Xyz))
            .column("zyx, s", stored(Storage::Zyx))
            .column("ms an iteration: xyz, zyx", each)
            .column("paper: iterations; t1, t2 in s", published)
            .table(),
    );
    let solve = |row: &Option<Row>| {
        row.as_ref().map(|row| {
            json!({
                "iterations": row.iterations, "seconds": row.samples.json(), "check": outcome(&row.check),
            })
        })
    };
    let one = |s: &Shape| {
        let stored: Vec<Value> = s
            .stored
            .iter()
            .map(|s| {
                json!({
                    "storage": s.storage.name(), "seconds_per_iteration": s.each.as_ref().ok(),
                    "failure": s.each.as_ref().err(),
                })
            })
            .collect();
        json!({
            "tile": s.published.tile, "krylith": solve(&s.ours), "thread_per_tile": solve(&s.paper),
            "storages": stored, "paper_iterations": s.published.iterations,
            "paper_seconds": s.published.seconds,
        })
    };
    shapes.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::Samples;

    #[test]
    fn the_slower_storage_is_estimated_from_the_iterations_of_the_faster() {
        let mut paper = Row::empty("paper", false);
        (paper.iterations, paper.samples) = (100, Samples(vec![2.0]));
        let stored = [(Storage::Xyz, 0.05), (Storage::Zyx, 0.02)];
        let stored = stored.map(|(storage, each)| Stored { storage, each: Ok(each) }).into();
        let mut shape = Shape { published: &TABLE[5], ours: None, stored, paper: Some(paper) };
        assert_eq!(shape.seconds(Storage::Xyz), Some((5.0, true)));
        assert_eq!(shape.seconds(Storage::Zyx), Some((2.0, false)));
        let mut pages = Pages::default();
        report("x", std::slice::from_ref(&shape), &mut pages);
        let text = pages.tables[0].text();
        assert!(text.contains("≈ 5.000") && text.contains("174; 47.34, 6.87"), "{text}");
        assert!(pages.failures.is_empty());
        shape.stored[0].each = Err("no memory".into());
        report("x", &[shape], &mut pages);
        assert_eq!(pages.failures, ["x: Table I: no memory"]);
    }
}
