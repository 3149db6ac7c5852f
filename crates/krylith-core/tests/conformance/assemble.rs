//! Matrices that a set-up makes from others: the host's against dense algebra, and a device's against the
//! host's.

use super::Make;
use crate::common::Random;
use krylith_core::device::cpu::Cpu;
use krylith_core::matrix::{Bsr, Csr};
use krylith_core::memory::Numbers;
use krylith_core::precond::Decouple;
use krylith_core::precond::assemble::{Assemble, Cells, Numbered, Weight};

/// A random matrix: most rows short, some empty, one with every entry, zeros stored; with `b`, whole blocks.
fn matrix(rows: usize, columns: usize, b: usize, seed: u64) -> Bsr {
    let mut rng = Random(seed);
    let mut entries = Vec::new();
    for i in 0..rows / b {
        let kind = rng.below(12);
        for j in 0..columns / b {
            if kind == 0 && i != j || i != 7 && i != j && rng.below(columns / b) > 5 {
                continue;
            }
            for e in 0..b * b {
                let v = if rng.below(9) == 0 { 0.0 } else { rng.number() };
                entries.push(((i * b + e / b) as u32, (j * b + e % b) as u32, v));
            }
        }
    }
    Bsr::from_csr(&Csr::from_triplets(rows, columns, &entries).unwrap(), b).unwrap()
}

fn scaled(a: &Bsr, factor: f64) -> Vec<f64> {
    a.values().iter().map(|v| factor * v).collect()
}

/// The same pattern and the same bits.
fn same(ours: &Csr, host: &Csr, what: &str) {
    assert_eq!((ours.rows(), ours.columns()), (host.rows(), host.columns()), "{what}");
    assert_eq!(ours.row_ptr(), host.row_ptr(), "{what}: row pointers");
    assert_eq!(ours.col(), host.col(), "{what}: columns");
    let differ = ours.values().iter().zip(host.values()).position(|(a, b)| a.to_bits() != b.to_bits());
    assert_eq!(differ, None, "{what}: values");
}

/// Two sets of unknowns that together are all of them: ascending, scattered, or one of them empty.
fn sets(n: usize, kind: usize, rng: &mut Random) -> [Vec<u32>; 2] {
    let mut all: Vec<u32> = (0..n as u32).collect();
    if kind == 1 {
        (1..n).rev().for_each(|i| all.swap(i, rng.below(i + 1)));
    }
    let take = |i: &usize| if kind == 2 { false } else { i % 5 < 2 };
    let part = |wanted: bool| (0..n).filter(|i| take(i) == wanted).map(|i| all[i]).collect();
    [part(true), part(false)]
}

/// Cuts, products, blocks, diagonals and weights are those of the host, for new values too.
pub fn matrices_are_those_of_the_host<S: Assemble>(make: Make<S>) {
    let mut rng = Random(61);
    for (n, b) in [(1, 1), (31, 1), (33, 1), (600, 1), (2, 2), (62, 2), (99, 3), (320, 8)] {
        let (space, host) = (make(n), Cpu::new(n, 1));
        let a = matrix(n, n, b, 7 + n as u64);
        let new = scaled(&a, -2.0);
        for kind in 0..3 {
            let of = sets(n, kind, &mut rng);
            for (f, g) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let what = format!("{n} unknowns in blocks of {b}, sets {kind}, block ({f}, {g})");
                let (rows, columns) = (Numbered::new(&of[f], n), Numbered::new(&of[g], n));
                let (mut ours, cut) = space.cut(&a, &rows, &columns).unwrap();
                let (mut theirs, positions) = host.cut(&a, &rows, &columns).unwrap();
                same(&ours, &theirs, &what);
                let (changed, other) = (
                    space.with_values(&a, Numbers::from(&new)).unwrap(),
                    host.with_values(&a, Numbers::from(&new)).unwrap(),
                );
                space.cut_again(&changed, &cut, &mut ours).unwrap();
                host.cut_again(&other, &positions, &mut theirs).unwrap();
                same(&ours, &theirs, &format!("{what}, new values"));
            }
        }
    }
}

/// Columns of ghosts have places behind those of the set.
pub fn cuts_with_ghosts_are_those_of_the_host<S: Assemble>(make: Make<S>) {
    let (n, ghosts) = (60, 9);
    let a = matrix(n + ghosts, n + ghosts, 1, 5);
    let own: Vec<u32> = (0..n as u32).filter(|i| i % 3 != 1).collect();
    let places = (0..ghosts as u32).map(|k| (n as u32 + k, own.len() as u32 + (ghosts as u32 - 1 - k)));
    let set = Numbered::new(&own, n + ghosts).with_ghosts(places, own.len() + ghosts);
    let rows = Numbered::new(&own, n + ghosts);
    let (mut ours, cut) = make(n).cut(&a, &rows, &set).unwrap();
    let (theirs, _) = Cpu::new(n, 1).cut(&a, &rows, &set).unwrap();
    same(&ours, &theirs, "ghosts");
    make(n).cut_again(&a, &cut, &mut ours).unwrap();
    same(&ours, &theirs, "ghosts again");
}

/// Products with and without D and W, their diagonals, and rows that are alone or cancel.
pub fn products_are_those_of_the_host<S: Assemble>(make: Make<S>) {
    for (m, n) in [(1, 3), (40, 60), (500, 300)] {
        let (space, host) = (make(m), Cpu::new(m, 1));
        let [d, c, b] = [(m, m, 1), (m, n, 2), (n, m, 3)].map(|(r, k, seed)| matrix(r, k, 1, seed).to_csr());
        let w = Random(9).numbers(n);
        for (d_of, weight) in [
            (None, Weight { diagonal: None, sign: 1.0 }),
            (Some(&d), Weight { diagonal: None, sign: 1.0 }),
            (None, Weight { diagonal: Some(&w), sign: -1.0 }),
            (Some(&d), Weight { diagonal: Some(&w), sign: -1.0 }),
        ] {
            let what = format!("{m}×{n}, D: {}, W: {}", d_of.is_some(), weight.diagonal.is_some());
            let mut ours = space.product(d_of, &c, weight, &b).unwrap();
            let mut theirs = host.product(d_of, &c, weight, &b).unwrap();
            same(&ours, &theirs, &what);
            let twice = |a: &Csr| {
                let mut a = a.clone();
                a.values_mut().iter_mut().for_each(|v| *v *= 2.0);
                a
            };
            let (d, c, b) = (d_of.map(twice), twice(&c), twice(&b));
            space.product_again(d.as_ref(), &c, weight, &b, &mut ours).unwrap();
            host.product_again(d.as_ref(), &c, weight, &b, &mut theirs).unwrap();
            same(&ours, &theirs, &format!("{what}, new values"));
        }
        let close = |ours: Vec<f64>, theirs: Vec<f64>, what: &str| {
            let off = ours.iter().zip(&theirs).fold(0.0f64, |max, (a, b)| max.max((a - b).abs()));
            assert!(ours.len() == theirs.len() && off < 1e-12, "{what}: {off}");
        };
        for rows in [false, true] {
            close(space.diagonal(&d, rows).unwrap(), host.diagonal(&d, rows).unwrap(), "diagonal");
        }
        let [ours, theirs] = [space.schur_diagonal(&d, &c, &w, &b), host.schur_diagonal(&d, &c, &w, &b)];
        close(ours.unwrap(), theirs.unwrap(), "diagonal of D − C W B");
        for beside in [None, Some(&c)] {
            assert_eq!(space.alone(&d, beside).unwrap(), host.alone(&d, beside).unwrap(), "{m}");
        }
        // Rows that cancel to rounding.
        let mut entries: Vec<(u32, u32, f64)> = (0..m as u32).map(|i| (i, i, 1.0 + f64::from(i))).collect();
        entries.extend((0..m as u32 - 1).map(|i| (i, i + 1, 0.5)));
        let faint = |e: &mut (u32, u32, f64)| e.2 *= if e.0 % 4 == 1 { 1e-17 } else { 1.0 };
        entries.iter_mut().for_each(faint);
        let faded = Csr::from_triplets(m, m, &entries).unwrap();
        let (mut ours, mut theirs) = (faded.clone(), faded);
        space.fill_empty(&mut ours).unwrap();
        host.fill_empty(&mut theirs).unwrap();
        same(&ours, &theirs, "rows that cancel");
        assert!(m < 2 || theirs.get(1, 1) == 1.0);
    }
}

/// Scalar rows as blocks.
pub fn blocks_are_those_of_the_host<S: Assemble>(make: Make<S>) {
    for block in 1..=8 {
        for rows in [1, 33, 130] {
            let (n, what) = (rows * block, format!("{rows} rows of blocks of {block}"));
            let (space, host) = (make(n), Cpu::new(n, 1));
            let a = matrix(n, n, 1, 3 * n as u64).to_csr();
            let (mut ours, mut theirs) =
                (space.grouped(&a, block).unwrap(), host.grouped(&a, block).unwrap());
            same(&ours.bsr().to_csr(), &theirs.bsr().to_csr(), &what);
            assert_eq!(ours.bsr().blocks(), theirs.bsr().blocks(), "{what}");
            let mut new = a.clone();
            new.values_mut().iter_mut().for_each(|v| *v *= 3.0);
            space.group_again(&new, &mut ours).unwrap();
            host.group_again(&new, &mut theirs).unwrap();
            same(&ours.bsr().to_csr(), &theirs.bsr().to_csr(), &format!("{what}, new values"));
            assert!(space.grouped(&a, n + 1).is_err());
        }
    }
}

/// The weights of cells of 1 to 9 unknowns, singular cells included.
pub fn weights_are_those_of_the_host<S: Assemble>(make: Make<S>) {
    for (m, b) in [(1, 1), (2, 1), (2, 2), (3, 1), (3, 3), (8, 8), (9, 1)] {
        let cells = 70;
        let n = m * cells;
        let a = matrix(n, n, b, 11 * m as u64);
        let (space, host) = (make(n), Cpu::new(n, 1));
        for decouple in [Decouple::QuasiImpes, Decouple::RowSums, Decouple::Off] {
            // The field is the last unknown of a cell.
            let unknowns = || {
                let of = |c: usize| (0..cells).map(|cell| (cell * m + (c + m - 1) % m) as u32).collect();
                (0..m).map(of).collect::<Vec<Vec<u32>>>()
            };
            let (mut ours, mut to) = Cells::new(unknowns(), &decouple, n);
            let (mut theirs, mut wanted) = Cells::new(unknowns(), &decouple, n);
            for factor in [1.0, -0.5] {
                let values = scaled(&a, factor);
                let changed = space.with_values(&a, Numbers::from(&values)).unwrap();
                space.weigh(&changed, &mut ours, &mut to).unwrap();
                host.weigh(&host.with_values(&a, Numbers::from(&values)).unwrap(), &mut theirs, &mut wanted)
                    .unwrap();
                assert_eq!((to.row_ptr(), to.col()), (wanted.row_ptr(), wanted.col()));
                for (a, b) in to.values().iter().zip(wanted.values()) {
                    assert!((a - b).abs() <= 1e-10 * b.abs().max(1.0), "{m} in blocks of {b}, {decouple}");
                }
            }
        }
    }
}
