//! Tests that compare strength, PMIS and interpolation with plain code of the formulas for dense matrices and
//! sets.

use super::FINE;
use super::around::Around;
use super::interpolate::extended_i;
use super::multipass::multipass;
use super::split::{self, Size, strong};
use crate::matrix::Bsr;
use crate::space::{random, splitmix64};
use crate::threads::Pool;
use std::collections::{BTreeMap, BTreeSet};

type Dense = Vec<Vec<Option<f64>>>;

/// Runs PMIS on one rank.
fn pmis(pool: &Pool, a: &Bsr, strong: &[u8], level: usize) -> Vec<u32> {
    split::pmis(pool, a, strong, level, Around::of(None)).unwrap()
}

fn aggressive_pmis(pool: &Pool, a: &Bsr, strong: &[u8], level: usize) -> Vec<u32> {
    split::aggressive_pmis(pool, a, strong, level, Around::of(None)).unwrap()
}

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

/// Returns the matrix of a five-point stencil on a grid. `stencil` has centre, west, east, south and north.
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

/// Returns a matrix with entries of both signs at random positions. Some diagonal entries are negative, and
/// one entry is a stored zero. One row has only a diagonal entry, and one row is empty.
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

/// Returns a matrix of pairs of nodes and one more node. That node depends on all others unequally, so its
/// row is long.
fn hub(pairs: usize) -> Dense {
    let n = 2 * pairs + 1;
    let mut a = vec![vec![None; n]; n];
    for i in 0..n - 1 {
        (a[i][i], a[i][i ^ 1]) = (Some(2.5), Some(-1.0));
        a[n - 1][i] = Some(-1.0 - random(3, i as u64).abs());
    }
    a[n - 1][n - 1] = Some(4.0 * n as f64);
    a
}

fn cases() -> Vec<(&'static str, Dense)> {
    vec![
        ("laplace", grid(9, 8, [4.0, -1.0, -1.0, -1.0, -1.0])),
        ("anisotropic", grid(8, 7, [2.02, -1.0, -1.0, -0.01, -0.01])),
        ("convection", grid(7, 9, [6.0, -3.0, -1.0, -1.7, -0.3])),
        ("mixed", mixed(40, 1)),
        ("mixed", mixed(61, 5)),
        ("hub", hub(45)),
        ("empty", Vec::new()),
        ("one row", vec![vec![Some(3.0)]]),
        ("no diagonal", vec![vec![None, Some(-1.0)], vec![Some(-1.0), Some(1.0)]]),
    ]
}

fn value(a: &Dense, i: usize, j: usize) -> f64 {
    a[i][j].unwrap_or(0.0)
}

/// Returns the strong neighbours of each node.
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

/// Returns the coarse points of PMIS, by sets.
fn pmis_sets(s: &[BTreeSet<usize>], level: u64) -> BTreeSet<usize> {
    let some_depend = (0..s.len()).filter(|i| s.iter().any(|s| s.contains(i))).collect();
    rounds(s, level, some_depend)
}

/// Returns the coarse points of a second PMIS among those of the first, connected by paths of at most two
/// strong couplings.
fn aggressive_sets(s: &[BTreeSet<usize>], level: u64) -> BTreeSet<usize> {
    let first = pmis_sets(s, level);
    let path = |i: usize| {
        let reached = s[i].iter().flat_map(|&k| s[k].iter().copied().chain([k]));
        reached.filter(|j| *j != i && first.contains(j)).collect::<BTreeSet<_>>()
    };
    let paths: Vec<_> =
        (0..s.len()).map(|i| if first.contains(&i) { path(i) } else { BTreeSet::new() }).collect();
    rounds(&paths, level + 65536, first)
}

/// Runs rounds of PMIS until none of `undecided` is left.
fn rounds(s: &[BTreeSet<usize>], level: u64, mut undecided: BTreeSet<usize>) -> BTreeSet<usize> {
    let count = |i: usize| s.iter().filter(|s| s.contains(&i)).count() as u64;
    let hash = |i: usize| splitmix64(0x616d67 + level, i as u64) >> 24;
    let key: Vec<_> = (0..s.len()).map(|i| (count(i) << 40 | hash(i), i)).collect();
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

/// Returns row `i` of extended+i interpolation: weights by node.
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

/// Returns for every node its row of multipass interpolation after one step of Jacobi's method: weights by
/// node. Every row must have some weights.
fn multipass_rows(
    a: &Dense,
    s: &[BTreeSet<usize>],
    coarse: &BTreeSet<usize>,
    most: usize,
) -> Vec<BTreeMap<usize, f64>> {
    let n = a.len();
    let mut rows: Vec<BTreeMap<usize, f64>> = vec![BTreeMap::new(); n];
    coarse.iter().for_each(|&i| rows[i] = BTreeMap::from([(i, 1.0)]));
    let sum = |i: usize, all: &dyn Fn(usize) -> bool| {
        (0..n).filter(|&j| all(j)).map(|j| value(a, i, j)).sum::<f64>()
    };
    let row = |rows: &[BTreeMap<usize, f64>], i: usize, from: &BTreeSet<usize>, scale: f64| {
        let mut row = BTreeMap::new();
        for &j in from {
            rows[j].iter().for_each(|(&k, w)| *row.entry(k).or_insert(0.0) += scale * value(a, i, j) * w);
        }
        row.retain(|_, w| *w != 0.0);
        truncated(&row, most)
    };
    let mut done = coarse.clone();
    loop {
        let new: Vec<usize> = (0..n).filter(|i| !done.contains(i) && !s[*i].is_disjoint(&done)).collect();
        for &i in &new {
            let g = if value(a, i, i) < 0.0 { -1.0 } else { 1.0 };
            let opposite = |j: usize| j != i && g * value(a, i, j) < 0.0;
            let from = &s[i] & &done;
            let scale = -sum(i, &opposite) / sum(i, &|j| from.contains(&j)) / sum(i, &|j| !opposite(j));
            rows[i] = row(&rows, i, &from, scale);
        }
        if new.is_empty() {
            break;
        }
        done.extend(new);
    }
    let relaxed = |i: usize| {
        let from = &s[i] & &done;
        match coarse.contains(&i) || from.is_empty() {
            true => rows[i].clone(),
            false => row(&rows, i, &from, -1.0 / sum(i, &|j| !from.contains(&j))),
        }
    };
    (0..n).map(relaxed).collect()
}

/// Returns the truncated row: its largest weights, scaled to keep the row's sum.
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
                let found = strong(&Pool::eager(threads), &sparse, theta, Size::Negative);
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
                let found = pmis(&pool, &sparse, &strong(&pool, &sparse, theta, Size::Negative), level);
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
    let found = pmis(&pool, &sparse, &strong(&pool, &sparse, 0.25, Size::Negative), 1);
    for (i, set) in sets.iter().enumerate() {
        let coarse = set.iter().filter(|&&j| found[j] != FINE).count();
        assert_eq!(coarse == 0, found[i] != FINE, "node {i} has {coarse} neighbours that stay");
    }
}

/// Compares `found` with the expected rows, and returns the number of weights.
fn assert_rows(what: &str, found: &Bsr, coarse: &BTreeSet<usize>, wanted: &[BTreeMap<usize, f64>]) -> usize {
    let order: Vec<usize> = coarse.iter().copied().collect();
    assert_eq!((found.block_rows(), found.block_columns()), (wanted.len(), order.len()), "{what}");
    for (i, wanted) in wanted.iter().enumerate() {
        let entries = found.row_ptr()[i]..found.row_ptr()[i + 1];
        let nodes: Vec<usize> = found.col()[entries.clone()].iter().map(|&j| order[j as usize]).collect();
        assert_eq!(nodes, wanted.keys().copied().collect::<Vec<_>>(), "{what}, row {i}");
        let size = wanted.values().map(|w| w.abs()).fold(0.0, f64::max);
        for (w, wanted) in found.values()[entries].iter().zip(wanted.values()) {
            assert!((w - wanted).abs() <= 1e-12 * size, "{what}, row {i}: {w}, not {wanted}");
        }
    }
    found.blocks()
}

#[test]
fn interpolation_is_what_the_formulas_say() {
    let mut compared = 0; // a count, so that no case is skipped silently
    for (name, a) in cases() {
        for (theta, most) in [(0.25, 0), (0.25, 4), (0.5, 3), (0.25, 1)] {
            let (sets, sparse) = (strong_sets(&a, theta), sparse(&a));
            let found = [1, 4].map(|threads| {
                let pool = Pool::eager(threads);
                let strong = strong(&pool, &sparse, theta, Size::Negative);
                let (once, twice) =
                    (pmis(&pool, &sparse, &strong, 0), aggressive_pmis(&pool, &sparse, &strong, 0));
                let extended = extended_i(&pool, &sparse, &strong, &once, most, None);
                [extended, multipass(&pool, &sparse, &strong, &twice, most, None)]
            });
            assert!(found[0] == found[1], "{name}: as on one thread");
            let what = format!("{name}, θ = {theta}, most {most}");
            let all = if most == 0 { a.len() } else { most };
            let coarse = pmis_sets(&sets, 0);
            let row = |i: usize| match coarse.contains(&i) {
                true => BTreeMap::from([(i, 1.0)]),
                false => truncated(&extended_i_row(&a, &sets, &coarse, i), all),
            };
            let wanted: Vec<_> = (0..a.len()).map(row).collect();
            compared += assert_rows(&format!("extended+i, {what}"), &found[0][0], &coarse, &wanted);
            let coarse = aggressive_sets(&sets, 0);
            let wanted = multipass_rows(&a, &sets, &coarse, all);
            compared += assert_rows(&format!("multipass, {what}"), &found[0][1], &coarse, &wanted);
        }
    }
    assert!(compared > 4000, "{compared} weights");
}

#[test]
fn aggressive_pmis_is_what_rounds_over_sets_find_and_leaves_no_node_alone() {
    for (name, a) in cases() {
        let (sets, sparse) = (strong_sets(&a, 0.25), sparse(&a));
        for (threads, level) in [(1, 0), (4, 2)] {
            let pool = Pool::eager(threads);
            let strong = strong(&pool, &sparse, 0.25, Size::Negative);
            let found = aggressive_pmis(&pool, &sparse, &strong, level);
            let stay: BTreeSet<usize> = (0..a.len()).filter(|&i| found[i] != FINE).collect();
            assert_eq!(stay, aggressive_sets(&sets, level as u64), "{name}, level {level}");
            if name == "laplace" {
                assert!(stay.len() < pmis_sets(&sets, level as u64).len() / 2, "{} nodes stay", stay.len());
                let p = multipass(&pool, &sparse, &strong, &found, 0, None);
                assert!(p.row_ptr().windows(2).all(|w| w[0] < w[1]), "every node interpolates");
            }
        }
    }
}

#[test]
fn rows_that_sum_to_zero_interpolate_constants() {
    let mut a = grid(30, 20, [4.0, -1.3, -0.7, -1.5, -0.5]);
    for (i, row) in a.iter_mut().enumerate() {
        row[i] = Some(0.0);
        row[i] = Some(-row.iter().flatten().sum::<f64>());
    }
    let (a, pool) = (sparse(&a), Pool::eager(2));
    let strong = strong(&pool, &a, 0.25, Size::Negative);
    for most in [0, 2] {
        let extended = extended_i(&pool, &a, &strong, &pmis(&pool, &a, &strong, 0), most, None);
        let multipass = multipass(&pool, &a, &strong, &aggressive_pmis(&pool, &a, &strong, 0), most, None);
        for p in [extended, multipass] {
            for i in 0..a.block_rows() {
                let sum: f64 = p.values()[p.row_ptr()[i]..p.row_ptr()[i + 1]].iter().sum();
                assert!((sum - 1.0).abs() < 1e-14, "row {i} sums to {sum}");
            }
        }
    }
}
