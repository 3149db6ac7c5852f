//! What a device finds in passes over the entries of a matrix: the same, bit for bit, as the host finds.

use super::Make;
use super::distributed::{MakeShare, partitions};
use crate::common::{Random, random_bsr, random_kronecker};
use krylith_core::comm::{Communicator, Team};
use krylith_core::device::cpu::Cpu;
use krylith_core::matrix::{Bsr, Dense, KroneckerSum};
use krylith_core::operator::Terms;
use krylith_core::partition::{RowNumbers, split};
use krylith_core::precond::Factors;
use krylith_core::solver::{Extent, SolverSpace};
use krylith_core::space::Space;
use std::borrow::Cow;
use std::sync::Arc;

/// Systems with entries far from 1, zeros among them, empty rows and columns, and diagonal entries that are
/// missing or cancel.
fn systems() -> Vec<(String, Terms<'static>)> {
    let mut rng = Random(131);
    let mut all = Vec::new();
    let owned = |k: KroneckerSum| {
        let terms = Terms::kronecker(&k);
        let terms = terms.terms().iter().map(|(c, a)| (c.clone(), Cow::Owned(a.clone().into_owned())));
        Terms::new(terms.collect()).unwrap()
    };
    let spread = |rng: &mut Random, a: &mut Bsr| {
        a.values_mut().iter_mut().for_each(|v| *v *= 10f64.powi(rng.below(40) as i32 - 20));
        a.values_mut().iter_mut().for_each(|v| *v = if rng.below(5) == 0 { 0.0 } else { *v });
    };
    for b in 1..=8 {
        for (s, same) in [(1, true), (2, false), (4, true)] {
            let mut k = random_kronecker(&mut rng, b, s, 400, 3, same, s == 2);
            spread(&mut rng, &mut k.m);
            spread(&mut rng, &mut k.l);
            all.push((format!("b={b} s={s} same={same}"), owned(k)));
        }
        let mut a = random_bsr(&mut rng, b, 3000, 3000, 6, true);
        spread(&mut rng, &mut a);
        let c = Dense::new(1, 1, vec![-3.0]).unwrap();
        all.push((format!("b={b}, one term"), Terms::new(vec![(c, Cow::Owned(a))]).unwrap()));
    }
    // Stages without a coefficient, and diagonals that cancel.
    let mut k = random_kronecker(&mut rng, 2, 3, 90, 3, true, true);
    k.l = k.m.clone();
    k.tau = 1.0;
    (k.a, k.b) = (Dense::identity(3), Dense::identity(3));
    (k.a[(1, 1)], k.b[(1, 1)], k.b[(2, 2)]) = (0.0, 0.0, -1.0);
    all.push(("stages without a coefficient".into(), owned(k)));
    // One row of all columns and one column of all rows; nothing at all.
    let n = 20_000;
    let (mut row_ptr, mut col) = (vec![0], Vec::new());
    for i in 0..n as u32 {
        match i {
            7 => col.extend(0..n as u32),
            _ => col.extend([3, i].into_iter().take(if i == 3 { 1 } else { 2 })),
        }
        col[row_ptr[i as usize]..].sort_unstable();
        row_ptr.push(col.len());
    }
    let a = Bsr::new(1, n, n, row_ptr, col.clone(), rng.numbers(col.len())).unwrap();
    let one = |a: Bsr| Terms::new(vec![(Dense::identity(1), Cow::Owned(a))]).unwrap();
    all.push(("a full row and a full column".into(), one(a)));
    all.push(("no entries".into(), one(Bsr::new(2, 50, 50, vec![0; 51], vec![], vec![]).unwrap())));
    all
}

/// Factors of rows and columns on the host.
fn numbers<S: SolverSpace>(space: &S, factors: &Factors<S>) -> [Vec<f64>; 2] {
    [&factors.rows, &factors.columns].map(|from| {
        let mut host = vec![0.0; space.len()];
        space.read(from, &mut host).unwrap();
        host
    })
}

/// Extents, empty rows and columns, missing diagonals; scale factors and scaled values.
pub fn passes_find_what_the_host_finds<S: SolverSpace>(make: Make<S>) {
    for (what, terms) in systems() {
        let (space, host) = (make(terms.rows()), Cpu::new(terms.rows(), 1));
        let placed = space.place(&terms).unwrap();
        assert!(space.analyze(&placed).unwrap() == host.analyze(&terms).unwrap(), "{what}: another survey");
        let (scaling, scaled) = space.equilibrate(&placed).unwrap();
        let (expected, by) = host.equilibrate(&terms).unwrap();
        assert!(numbers(&space, &scaling) == numbers(&host, &expected), "{what}: other factors");
        for ((c, a), (expected_c, expected)) in scaled.terms().iter().zip(by.terms()) {
            assert!(c == expected_c && a.same_pattern(expected), "{what}: another pattern");
            assert!(a.values() == expected.values(), "{what}: other scaled values");
        }
    }
}

/// What the host finds is what plain loops over all entries find.
pub fn the_host_finds_what_is_there() {
    for (what, terms) in systems() {
        let (b, s, n) = (terms.block(), terms.stages(), terms.block_rows());
        let rows = n * b;
        let weight = |c: &Dense| c.values().iter().fold(0.0, |most: f64, v| most.max(v.abs()));
        // (row, column, number) of each term.
        let entries = |a: &Bsr| -> Vec<(usize, usize, f64)> {
            let blocks = (0..n).flat_map(|i| (a.row_ptr()[i]..a.row_ptr()[i + 1]).map(move |p| (i, p)));
            let of_block = |(i, p): (usize, usize)| {
                let number =
                    move |e: usize| (i * b + e / b, a.col()[p] as usize * b + e % b, a.block_values(p)[e]);
                (0..b * b).map(number)
            };
            blocks.flat_map(of_block).collect()
        };
        let all: Vec<_> = terms.terms().iter().map(|(c, a)| (c, weight(c), entries(a))).collect();
        let extent = |of: &mut dyn Iterator<Item = f64>| {
            of.filter(|v| *v > 0.0).fold(Extent::default(), |e, v| Extent {
                smallest: e.smallest.min(v),
                largest: e.largest.max(v),
            })
        };
        let maxima = |of: fn(&(usize, usize, f64)) -> usize, scale: &dyn Fn(&(usize, usize, f64)) -> f64| {
            let mut most = vec![0.0f64; rows];
            for (_, weight, entries) in &all {
                entries.iter().for_each(|e| most[of(e)] = most[of(e)].max(weight * e.2.abs() * scale(e)));
            }
            most
        };
        let (row, column) = (|e: &(usize, usize, f64)| e.0, |e: &(usize, usize, f64)| e.1);
        let survey = Cpu::new(terms.rows(), 1).analyze(&terms).unwrap();
        let mut sizes = all.iter().flat_map(|(_, weight, e)| e.iter().map(move |e| weight * e.2.abs()));
        assert_eq!(survey.entries, extent(&mut sizes), "{what}");
        assert_eq!(survey.rows, extent(&mut maxima(row, &|_| 1.0).into_iter()), "{what}");
        assert_eq!(survey.columns, extent(&mut maxima(column, &|_| 1.0).into_iter()), "{what}");
        // Numbers of the Kronecker sum, stage by stage.
        let mut has = [vec![false; rows * s], vec![false; rows * s]];
        let mut diagonal = vec![0.0; rows * s];
        for (c, _, entries) in &all {
            for (&(i, j, v), k) in entries.iter().flat_map(|e| (0..s * s).map(move |k| (e, k))) {
                let (k, l) = (k / s, k % s);
                if v != 0.0 && c[(k, l)] != 0.0 {
                    (has[0][i * s + k], has[1][j * s + l]) = (true, true);
                }
                diagonal[i * s + k] += if i == j && k == l { c[(k, k)] * v } else { 0.0 };
            }
        }
        for (has, found) in has.iter().zip([&survey.empty_rows, &survey.empty_columns]) {
            let found: Vec<usize> = found.iter().flat_map(|run| run.clone()).collect();
            assert!(
                found.into_iter().eq((0..rows * s).filter(|i| !has[*i])),
                "{what}: empty rows or columns"
            );
        }
        let missing: Vec<usize> = (0..rows * s).filter(|i| diagonal[*i] == 0.0).collect();
        assert_eq!(survey.missing_diagonal, missing.len(), "{what}");
        assert_eq!(survey.first_missing, missing[..missing.len().min(5)], "{what}");
        let most = maxima(row, &|_| 1.0);
        let weak = (0..rows).filter(|&i| diagonal[i] == 0.0 || diagonal[i].abs() < 1e-3 * most[i]).count();
        assert_eq!(survey.weak_diagonal, if s * b * all.len() == 1 { weak } else { 0 }, "{what}");

        let mut factors = [vec![1.0f64; rows], vec![1.0f64; rows]];
        for _ in 0..8 {
            let scale = |e: &(usize, usize, f64)| factors[0][e.0] * factors[1][e.1];
            let most = [maxima(row, &scale), maxima(column, &scale)];
            for (factors, most) in factors.iter_mut().zip(most) {
                let both = factors.iter_mut().zip(most).filter(|(_, most)| *most > 0.0);
                both.for_each(|(factor, most)| *factor /= most.sqrt());
            }
        }
        let factors = factors.map(|f| -> Vec<f64> { f.iter().map(|f| f.log2().round().exp2()).collect() });
        let (_, scaled) = Cpu::new(terms.rows(), 1).equilibrate(&terms).unwrap();
        for ((_, _, entries), (_, a)) in all.iter().zip(scaled.terms()) {
            let expected = entries.iter().map(|&(i, j, v)| factors[0][i] * v * factors[1][j]);
            assert!(expected.eq(a.values().iter().copied()), "{what}: other scaled values");
        }
    }
}

/// The same over ranks, each of which finds its share.
pub fn passes_of_ranks<S: SolverSpace>(sizes: &[usize], make: MakeShare<S>) {
    for (what, terms) in systems().iter().step_by(5) {
        let run = terms.block() * terms.stages();
        for &ranks in sizes {
            for (shape, partition) in partitions(terms.block_rows(), ranks) {
                let parts = split(terms, &partition).unwrap();
                let work = |comm: Arc<dyn Communicator>| {
                    let part = &parts[comm.rank()];
                    let space = make(&comm, part.rows.len() * run)?;
                    let host = Cpu::distributed(
                        part.rows.len() * run,
                        Arc::new(krylith_core::device::cpu::Pool::new(1)),
                        comm.clone(),
                    );
                    let placed = space.place(&part.terms)?;
                    let what = format!("{what}, {ranks} ranks, {shape}");
                    assert!(space.analyze(&placed)? == host.analyze(&part.terms)?, "{what}: another survey");
                    let ((scaling, _), (expected, _)) =
                        (space.equilibrate(&placed)?, host.equilibrate(&part.terms)?);
                    assert!(numbers(&space, &scaling) == numbers(&host, &expected), "{what}: other factors");
                    Ok(())
                };
                Team::run(ranks, |comm| work(comm)).unwrap();
            }
        }
    }
}

/// Random numbers depend on the seed and the place in the whole alone.
pub fn random_numbers_are_those_of_the_host<S: SolverSpace>(make: Make<S>) {
    for (n, order) in [(1, 1), (33, 1), (10_000, 4), (999, 3)] {
        let (space, host) = (make(n * order), Cpu::new(n * order, 1));
        let numbers: Vec<u64> = (0..n as u64).map(|i| (1 << 40) - 7 * i).collect();
        let run = RowNumbers::Run { first: 1 << 33, count: n };
        for numbers in [None, Some(RowNumbers::List(&numbers)), Some(run)] {
            for seed in [0, 1] {
                let (mut x, mut y) = (space.vector().unwrap(), host.vector().unwrap());
                space.random(seed, numbers, order, &mut x).unwrap();
                host.random(seed, numbers, order, &mut y).unwrap();
                let [mut here, mut there] = [vec![0.0; n * order], vec![0.0; n * order]];
                space.read(&x, &mut here).unwrap();
                host.read(&y, &mut there).unwrap();
                assert!(here == there, "{n} nodes of {order}, seed {seed}: other numbers");
                assert!(here.iter().all(|v| v.abs() <= 1.0) && (n < 3 || here[0] != here[1]));
            }
        }
    }
}
