//! Strength, PMIS and interpolation against dense matrices and sets, written from the formulas.

use super::FINE;
use super::interpolate::extended_i;
use super::split::{pmis, strong};
use crate::device::cpu::Pool;
use crate::matrix::Bsr;
use crate::space::{random, splitmix64};
use std::collections::{BTreeMap, BTreeSet};

type Dense = Vec<Vec<Option<f64>>>;

fn sparse(a: &Dense) -> Bsr {
    let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in a {
        for (j, v) in row.iter().enumerate() {
            col.extend(v.map(|_| j as u32));
            values.extend(*v);
        }
        row_ptr.push(col.len());
    }
    Bsr::new(1, a.len(), a.len(), row_ptr, col, values).unwrap()
}

/// A five-point stencil on a grid: centre, west, east, south, north.
fn grid(nx: usize, ny: usize, stencil: [f64; 5]) -> Dense {
    let mut a = vec![vec![None; nx * ny]; nx * ny];
    for y in 0..ny {
        for x in 0..nx {
            let i = y * nx + x;
            a[i][i] = Some(stencil[0]);
            let mut set = |there: bool, j: usize, v: f64| {
                if there {
                    a[i][j] = Some(v);
                }
            };
            set(x > 0, i.wrapping_sub(1), stencil[1]);
            set(x + 1 < nx, i + 1, stencil[2]);
            set(y > 0, i.wrapping_sub(nx), stencil[3]);
            set(y + 1 < ny, i + nx, stencil[4]);
        }
    }
    a
}

/// Entries of both signs at random places, some diagonal entries negative, one stored zero, one row of its diagonal alone, one empty.
fn mixed(n: usize, seed: u64) -> Dense {
    let mut a = vec![vec![None; n]; n];
    for i in 0..n {
        for j in 0..n {
            let u = |k: u64| random(seed + k, (i * n + j) as u64);
            if i != j && u(0) < -0.6 {
                a[i][j] = Some(if u(1) < 0.5 { -1.5 - u(2) } else { 0.3 * (1.0 + u(2)) });
            }
        }
        let sum: f64 = a[i].iter().flatten().map(|v| v.abs()).sum();
        a[i][i] = Some(1.0 + sum);
        if i % 7 == 3 {
            a[i].iter_mut().flatten().for_each(|v| *v = -*v);
        }
    }
    a[n / 2] = vec![None; n];
    a[n / 2][n / 2] = Some(2.0);
    a[n / 3] = vec![None; n];
    a[1][2] = Some(0.0);
    a
}

fn cases() -> Vec<(&'static str, Dense)> {
    vec![
        ("laplace", grid(9, 8, [4.0, -1.0, -1.0, -1.0, -1.0])),
        ("anisotropic", grid(8, 7, [2.02, -1.0, -1.0, -0.01, -0.01])),
        ("convection", grid(7, 9, [6.0, -3.0, -1.0, -1.7, -0.3])),
        ("mixed", mixed(40, 1)),
        ("mixed", mixed(61, 5)),
        ("empty", Vec::new()),
        ("one row", vec![vec![Some(3.0)]]),
        ("no diagonal", vec![vec![None, Some(-1.0)], vec![Some(-1.0), Some(1.0)]]),
    ]
}

fn value(a: &Dense, i: usize, j: usize) -> f64 {
    a[i][j].unwrap_or(0.0)
}

/// Strong neighbours of each node.
fn strong_sets(a: &Dense, theta: f64) -> Vec<BTreeSet<usize>> {
    let set = |i: usize| {
        let g = if value(a, i, i) < 0.0 { -1.0 } else { 1.0 };
        let others: Vec<usize> = (0..a.len()).filter(|&k| k != i).collect();
        let m = others.iter().map(|&k| -g * value(a, i, k)).fold(f64::NEG_INFINITY, f64::max);
        let is = |&&k: &&usize| -g * value(a, i, k) > 0.0 && -g * value(a, i, k) >= theta * m;
        others.iter().filter(is).copied().collect()
    };
    (0..a.len()).map(set).collect()
}

/// PMIS by sets: nodes that stay.
fn pmis_sets(s: &[BTreeSet<usize>], level: u64) -> BTreeSet<usize> {
    let n = s.len();
    let count = |i: usize| s.iter().filter(|s| s.contains(&i)).count() as u64;
    let key: Vec<_> =
        (0..n).map(|i| (count(i) << 40 | splitmix64(0x616d67 + level, i as u64) >> 24, i)).collect();
    let mut undecided: BTreeSet<usize> = (0..n).filter(|&i| count(i) > 0).collect();
    let mut coarse = BTreeSet::new();
    while !undecided.is_empty() {
        let wins = |&i: &usize| {
            let near = |&&j: &&usize| s[i].contains(&j) || s[j].contains(&i);
            undecided.iter().filter(near).all(|&j| key[i] > key[j])
        };
        let new: Vec<usize> = undecided.iter().copied().filter(wins).collect();
        coarse.extend(new);
        undecided.retain(|i| !coarse.contains(i) && s[*i].is_disjoint(&coarse));
    }
    coarse
}

/// Row `i` of extended+i, by node.
fn extended_i_row(
    a: &Dense,
    s: &[BTreeSet<usize>],
    coarse: &BTreeSet<usize>,
    i: usize,
) -> BTreeMap<usize, f64> {
    let n = a.len();
    let c = |k: usize| s[k].intersection(coarse).copied().collect::<BTreeSet<_>>();
    let f: BTreeSet<usize> = s[i].difference(coarse).copied().collect();
    let hat = f.iter().fold(c(i), |hat, &k| &hat | &c(k));
    let bar = |k: usize, l: usize| {
        let negative = value(a, k, k) < 0.0;
        let v = value(a, k, l);
        if (negative && v > 0.0) || (!negative && v < 0.0) { v } else { 0.0 }
    };
    let b = |k: usize| (0..n).filter(|l| hat.contains(l) || *l == i).map(|l| bar(k, l)).sum::<f64>();
    let mut diagonal = value(a, i, i);
    diagonal += (0..n)
        .filter(|l| *l != i && !s[i].contains(l) && !hat.contains(l))
        .map(|l| value(a, i, l))
        .sum::<f64>();
    for &k in &f {
        diagonal += if b(k) == 0.0 { value(a, i, k) } else { value(a, i, k) * bar(k, i) / b(k) };
    }
    let weight = |j: usize| {
        let through = f.iter().filter(|&&k| b(k) != 0.0).map(|&k| value(a, i, k) * bar(k, j) / b(k));
        -(value(a, i, j) + through.sum::<f64>()) / diagonal
    };
    let row: BTreeMap<usize, f64> = hat.iter().map(|&j| (j, weight(j))).filter(|&(_, w)| w != 0.0).collect();
    if row.values().all(|w| w.is_finite()) { row } else { BTreeMap::new() }
}

/// What is left of a row: its largest weights, as large together as all were.
fn truncated(row: &BTreeMap<usize, f64>, most: usize) -> BTreeMap<usize, f64> {
    if row.len() <= most {
        return row.clone();
    }
    let mut by_size: Vec<(usize, f64)> = row.iter().map(|(&j, &w)| (j, w)).collect();
    by_size.sort_by(|a, b| (b.1.abs() as f32).total_cmp(&(a.1.abs() as f32)));
    by_size.truncate(most);
    let (all, kept) = (row.values().sum::<f64>(), by_size.iter().map(|e| e.1).sum::<f64>());
    by_size.iter().map(|&(j, w)| (j, w * all / kept)).collect()
}

#[test]
fn strength_is_what_the_definition_says() {
    for (name, a) in cases() {
        for theta in [0.0, 0.25, 0.5, 1.0] {
            let (sets, sparse) = (strong_sets(&a, theta), sparse(&a));
            for threads in [1, 4] {
                let found = strong(&Pool::eager(threads), &sparse, theta);
                for i in 0..a.len() {
                    let row = sparse.row_ptr()[i]..sparse.row_ptr()[i + 1];
                    let set: BTreeSet<usize> =
                        row.filter(|&p| found[p] == 1).map(|p| sparse.col()[p] as usize).collect();
                    assert_eq!(set, sets[i], "{name}, θ = {theta}, row {i}");
                }
            }
        }
    }
}

#[test]
fn pmis_is_what_rounds_over_sets_find() {
    for (name, a) in cases() {
        for (theta, level) in [(0.25, 0), (0.5, 0), (0.25, 3)] {
            let (sets, sparse) = (strong_sets(&a, theta), sparse(&a));
            let wanted = pmis_sets(&sets, level as u64);
            for threads in [1, 4] {
                let pool = Pool::eager(threads);
                let found = pmis(&pool, &sparse, &strong(&pool, &sparse, theta), level);
                let stay: Vec<usize> = (0..a.len()).filter(|&i| found[i] != FINE).collect();
                assert_eq!(stay, wanted.iter().copied().collect::<Vec<_>>(), "{name}, level {level}");
                assert!(
                    stay.iter().zip(0..).all(|(&i, number)| found[i] == number),
                    "{name}: numbers ascend"
                );
            }
        }
    }
}

#[test]
fn nodes_that_stay_are_independent_and_the_others_depend_on_them() {
    let a = grid(60, 50, [4.0, -1.0, -1.0, -1.0, -1.0]);
    let (sparse, sets, pool) = (sparse(&a), strong_sets(&a, 0.25), Pool::eager(3));
    let found = pmis(&pool, &sparse, &strong(&pool, &sparse, 0.25), 1);
    for (i, set) in sets.iter().enumerate() {
        let coarse = set.iter().filter(|&&j| found[j] != FINE).count();
        assert_eq!(coarse == 0, found[i] != FINE, "node {i} has {coarse} neighbours that stay");
    }
}

#[test]
fn extended_i_is_what_the_formula_says() {
    let mut compared = 0; // so that no case drops out unseen
    for (name, a) in cases() {
        for (theta, most) in [(0.25, 0), (0.25, 4), (0.5, 3), (0.25, 1)] {
            let (sets, sparse) = (strong_sets(&a, theta), sparse(&a));
            let coarse = pmis_sets(&sets, 0);
            let order: Vec<usize> = coarse.iter().copied().collect();
            let [p, on_four] = [1, 4].map(|threads| {
                let pool = Pool::eager(threads);
                let strong = strong(&pool, &sparse, theta);
                let numbers = pmis(&pool, &sparse, &strong, 0);
                extended_i(&pool, &sparse, &strong, &numbers, most).unwrap()
            });
            assert_eq!((p.block_rows(), p.block_columns()), (a.len(), order.len()), "{name}");
            for i in 0..a.len() {
                let wanted = match coarse.contains(&i) {
                    true => BTreeMap::from([(i, 1.0)]),
                    false => truncated(
                        &extended_i_row(&a, &sets, &coarse, i),
                        if most == 0 { a.len() } else { most },
                    ),
                };
                let entries = p.row_ptr()[i]..p.row_ptr()[i + 1];
                let nodes: Vec<usize> = p.col()[entries.clone()].iter().map(|&j| order[j as usize]).collect();
                let size = wanted.values().map(|w| w.abs()).fold(0.0, f64::max);
                assert_eq!(nodes, wanted.keys().copied().collect::<Vec<_>>(), "{name}, most {most}, row {i}");
                for (w, wanted) in p.values()[entries].iter().zip(wanted.values()) {
                    assert!(
                        (w - wanted).abs() <= 1e-12 * size,
                        "{name}, most {most}, row {i}: {w}, not {wanted}"
                    );
                    compared += 1;
                }
            }
            assert!(p == on_four, "{name}: as on one thread");
        }
    }
    assert!(compared > 2500, "{compared} weights");
}

#[test]
fn rows_that_sum_to_zero_interpolate_constants() {
    let mut a = grid(30, 20, [4.0, -1.3, -0.7, -1.5, -0.5]);
    for (i, row) in a.iter_mut().enumerate() {
        row[i] = Some(0.0);
        row[i] = Some(-row.iter().flatten().sum::<f64>());
    }
    let (a, pool) = (sparse(&a), Pool::eager(2));
    for most in [0, 2] {
        let strong = strong(&pool, &a, 0.25);
        let numbers = pmis(&pool, &a, &strong, 0);
        let p = extended_i(&pool, &a, &strong, &numbers, most).unwrap();
        for i in 0..a.block_rows() {
            let sum: f64 = p.values()[p.row_ptr()[i]..p.row_ptr()[i + 1]].iter().sum();
            assert!((sum - 1.0).abs() < 1e-14, "row {i} sums to {sum}");
        }
    }
}
