//! What interpolates a level from a coarser one on a device: the host's, bit by bit.

use super::Make;
use super::coarsening::{assert_same, from_rows, grid, host};
use crate::common::Random;
use krylith_core::matrix::Bsr;
use krylith_core::operator::Terms;
use krylith_core::precond::{Coarsen, CoarsenKind, Coarsening};
use std::collections::BTreeMap;

type Row = BTreeMap<u32, f64>;

fn matrix(rows: Vec<Row>) -> Bsr {
    let n = rows.len();
    from_rows(n, &rows.into_iter().map(|row| row.into_iter().collect()).collect::<Vec<_>>())
}

/// Rows of 1 to `longest` random couplings near the diagonal, all negative, with their sum as diagonal; not
/// symmetric.
fn random_m_matrix(n: usize, longest: usize, seed: u64) -> Bsr {
    let mut rng = Random(seed);
    let reach = 3 * longest;
    let row = |i: usize| {
        let count = 1 + rng.below(longest);
        let mut row: Row = (0..count)
            .map(|_| (((i + rng.below(2 * reach)).saturating_sub(reach) % n) as u32, -rng.number().abs()))
            .collect();
        row.insert(i as u32, 0.0);
        let sum: f64 = row.values().sum();
        row.insert(i as u32, 0.01 - sum);
        row
    };
    matrix((0..n).map(row).collect())
}

/// Entries of both signs, some zero; diagonal entries of both signs, some missing; some rows empty or with
/// the diagonal only.
fn anything(n: usize, longest: usize, seed: u64) -> Bsr {
    let mut rng = Random(seed);
    let row = |i: usize| {
        let kind = rng.below(20);
        let count = if kind < 2 { 0 } else { rng.below(longest) };
        let mut row: Row = (0..count).map(|_| (rng.below(n) as u32, rng.number())).collect();
        row.values_mut().for_each(|v| *v = if *v > 0.9 { 0.0 } else { *v });
        match kind {
            0 | 2 => drop(row.remove(&(i as u32))),
            _ => drop(row.insert(i as u32, 3.0 * rng.number())),
        }
        row
    };
    matrix((0..n).map(row).collect())
}

/// Nine points on a grid of edge² nodes, whose couplings along y are `ratio` of those along x; `turned`
/// selects rows whose signs are reversed.
fn nine_points(edge: usize, ratio: f64, turned: fn(usize) -> bool) -> Bsr {
    let mut rows = vec![Row::new(); edge * edge];
    for (i, row) in rows.iter_mut().enumerate() {
        let (x, y) = ((i % edge) as isize, (i / edge) as isize);
        let sign = if turned(i) { -1.0 } else { 1.0 };
        for (dx, dy) in (0..9).map(|k| (k % 3 - 1, k / 3 - 1)) {
            let (x, y) = (x + dx, y + dy);
            let inside = (0..edge as isize).contains(&x) && (0..edge as isize).contains(&y);
            let value = match (dx, dy) {
                (0, 0) => 2.0 + 2.0 * ratio + 0.4,
                (_, 0) => -1.0,
                (0, _) => -ratio,
                _ => -0.1,
            };
            if inside {
                row.insert((x + y * edge as isize) as u32, sign * value);
            }
        }
    }
    matrix(rows)
}

/// A grid in which some rows depend on thousands of nodes that do not depend on them: such rows become fine
/// points, and interpolate from far more nodes than others.
fn long_rows(edge: usize, length: usize) -> Bsr {
    let a = grid(edge, 10.0);
    let n = a.rows();
    let row = |i: usize| -> Row {
        let entries = a.row_ptr()[i]..a.row_ptr()[i + 1];
        a.col()[entries.clone()].iter().copied().zip(a.values()[entries].iter().copied()).collect()
    };
    let mut rows: Vec<Row> = (0..n).map(row).collect();
    let mut rng = Random(7);
    for (i, length) in [(5, length), (n / 2, length / 10), (n - 1, length / 3)] {
        rows[i].clear();
        let at =
            (0..length).map(|k| ((k * (n / length)) as u32, -0.5 - 0.4 * rng.number())).collect::<Vec<_>>();
        rows[i].extend(at.into_iter().filter(|e| e.0 as usize != i));
        rows[i].insert(i as u32, length as f64);
        for (other, row) in rows.iter_mut().enumerate() {
            if other != i {
                row.remove(&(i as u32));
            }
        }
    }
    matrix(rows)
}

/// Names, matrices, and whether they are coarsened with every truncation, or with two of them.
fn systems() -> Vec<(&'static str, Bsr, bool)> {
    vec![
        ("no row", from_rows(0, &[]), true),
        ("one row", from_rows(1, &[vec![(0, 2.0)]]), true),
        ("an empty row", from_rows(1, &[vec![]]), true),
        ("two rows", from_rows(2, &[vec![(0, 2.0), (1, -1.0)], vec![(0, -1.0), (1, 2.0)]]), true),
        ("a diagonal", from_rows(40, &(0..40).map(|i| vec![(i, 1.0)]).collect::<Vec<_>>()), true),
        ("a grid", grid(12, 1.0), true),
        ("a grid with jumps", grid(11, 1e3), true),
        ("nine points", nine_points(45, 1.0, |_| false), true),
        ("nine points, anisotropic, with turned rows", nine_points(40, 0.01, |i| i % 7 < 2), true),
        ("a random M-matrix", random_m_matrix(3000, 8, 1), true),
        ("a random M-matrix of 20 a row", random_m_matrix(2500, 26, 2), true),
        ("a random M-matrix of 30 a row", random_m_matrix(2500, 40, 3), true),
        ("a random M-matrix of 100 a row", random_m_matrix(2000, 150, 4), false),
        ("rows of all kinds", anything(2000, 9, 5), true),
        ("longer rows of all kinds", anything(1500, 60, 6), false),
        ("rows of 3000 entries", long_rows(20, 3000), false),
    ]
}

/// P and its transpose, of each system by each truncation: those of the host.
pub fn transfers_are_those_of_the_host<S: Coarsen>(make: Make<S>) {
    let mut rows_cut = 0;
    for (name, a, all) in systems() {
        let truncations: &[usize] = if all { &[4, 0, 1, 2, 8, 9, 40] } else { &[4, 0] };
        let (space, host) = (make(a.rows()), host());
        for (k, &truncate) in truncations.iter().enumerate() {
            let level = k % 3;
            for (strength, aggressive) in [(0.25, 0), (0.25, 3), ([0.0, 0.5, 0.9][k % 3], k % 2 * 3)] {
                let how = Coarsening { strength, truncate, aggressive, ..Coarsening::default() };
                let what = format!(
                    "{name}, strength {strength}, truncated to {truncate}, level {level}, {aggressive} aggressive"
                );
                let expected = host.transfer(&a, &how, level).unwrap();
                let found = space.transfer(&a, &how, level).unwrap();
                assert_eq!(found.is_some(), expected.is_some(), "{what}: there is a coarser level");
                let (Some(found), Some(expected)) = (found, expected) else { continue };
                assert_same(&found.prolongation, &expected.prolongation, &format!("{what}: P"));
                assert_same(&found.restriction, &expected.restriction, &format!("{what}: R"));
                let p = &found.prolongation;
                let longest = p.row_ptr().windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
                assert!(truncate == 0 || longest <= truncate, "{what}: {longest} weights in a row");
                rows_cut += (longest == truncate) as usize;
            }
        }
    }
    assert!(rows_cut > 20, "truncation was reached {rows_cut} times");
}

/// The same by aggregates around independent sets.
pub fn aggregates_are_those_of_the_host<S: Coarsen>(make: Make<S>) {
    let mut coarsened = 0;
    for (name, a, _) in systems() {
        let (space, host) = (make(a.rows()), host());
        for (level, strength) in [(0, 0.08), (1, 0.5), (2, 0.0), (0, 0.25)] {
            let kind = CoarsenKind::Aggregation { smoothed: true };
            let how = Coarsening { strength, ..Coarsening::of(kind) };
            let what = format!("{name}, strength {strength}, level {level}");
            let expected = host.transfer(&a, &how, level).unwrap();
            let found = space.transfer(&a, &how, level).unwrap();
            assert_eq!(found.is_some(), expected.is_some(), "{what}: there is a coarser level");
            let (Some(found), Some(expected)) = (found, expected) else { continue };
            assert_same(&found.prolongation, &expected.prolongation, &format!("{what}: P"));
            assert_same(&found.restriction, &expected.restriction, &format!("{what}: R"));
            coarsened += 1;
        }
    }
    assert!(coarsened >= 40, "{coarsened} systems became coarser");
}

/// Milliseconds of a transfer on each level of a hierarchy.
pub fn transfer_speed<S: Coarsen>(make: Make<S>) {
    let smoothed = CoarsenKind::Aggregation { smoothed: true };
    for (name, a, kind, aggressive) in [
        ("7 points 128^3", grid(128, 1.0), CoarsenKind::Classical, 0),
        ("7 points 128^3", grid(128, 1.0), CoarsenKind::Classical, 1),
        ("7 points 96^3, jumps of 1e3", grid(96, 1e3), CoarsenKind::Classical, 0),
        ("7 points 96^3, jumps of 1e3", grid(96, 1e3), CoarsenKind::Classical, 1),
        ("7 points 64^3", grid(64, 1.0), smoothed, 0),
    ] {
        let space = make(a.rows());
        let mut terms = Terms::bsr(&a);
        for level in 0..3 {
            let how = Coarsening { aggressive, ..Coarsening::of(kind) };
            terms = space.place(&terms).unwrap();
            let couplings = space.couplings(&terms).unwrap();
            let mut best = f64::INFINITY;
            for _ in 0..3 {
                let start = std::time::Instant::now();
                let made = space.transfer(&couplings, &how, level).unwrap();
                best = best.min(start.elapsed().as_secs_f64());
                drop(made);
            }
            let Some(transfer) = space.transfer(&couplings, &how, level).unwrap() else { break };
            let (n, entries) = (couplings.block_rows(), couplings.blocks());
            let (coarse, weights) = (transfer.prolongation.block_columns(), transfer.prolongation.blocks());
            println!(
                "{name}, {kind:?}, {aggressive} aggressive, level {level}: {n} rows, {entries} entries, {coarse} stay, {weights} weights: {:.3} ms",
                1e3 * best
            );
            terms = space.galerkin(&terms, &transfer).unwrap();
        }
    }
}
