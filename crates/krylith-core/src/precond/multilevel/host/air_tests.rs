//! Tests that compare R and P with plain code for dense matrices.

use super::air::{filtered, one_point, restriction};
use super::around::Around;
use super::parallel::{Rows, assemble};
use super::split::{Size, pmis, strong};
use super::{FINE, prolongation};
use crate::matrix::Bsr;
use crate::precond::multilevel::{CoarsenKind, Coarsening, Transfer};
use crate::space::random;
use crate::threads::Pool;

/// A flow from node to node with a random graph, in which entries lead to lower numbers, and with entries of
/// size `back` in the other direction.
fn flow(n: usize, back: f64) -> Bsr {
    let mut rows = Rows::default();
    for i in 0..n {
        let couples = |low: usize, high: usize| random(7, (low * n + high) as u64) > 1.0 - 12.0 / n as f64;
        let size = |j: usize| 0.5 + 0.4 * random(8, (i * n + j) as u64);
        let row: Vec<(u32, f64)> = (0..n)
            .filter_map(|j| match j.cmp(&i) {
                std::cmp::Ordering::Less if couples(j, i) => Some((j as u32, -size(j))),
                std::cmp::Ordering::Equal => Some((j as u32, 2.0)),
                std::cmp::Ordering::Greater if back > 0.0 && couples(i, j) => {
                    Some((j as u32, back * size(j)))
                }
                _ => None,
            })
            .collect();
        rows.push(&row);
    }
    assemble(&Pool::new(1), 1, n, vec![rows])
}

fn dense(a: &Bsr) -> Vec<Vec<f64>> {
    let mut out = vec![vec![0.0; a.block_columns()]; a.block_rows()];
    for (i, row) in out.iter_mut().enumerate() {
        (a.row_ptr()[i]..a.row_ptr()[i + 1]).for_each(|e| row[a.col()[e] as usize] = a.values()[e]);
    }
    out
}

/// The strong fine points within `distance` of `i`, by rounds over all nodes.
fn near(a: &[Vec<f64>], theta: f64, coarse: &[u32], i: usize, distance: usize) -> Vec<bool> {
    let n = a.len();
    let is_strong = |k: usize, j: usize| {
        let most = (0..n).filter(|&l| l != k).fold(0.0f64, |most, l| most.max(a[k][l].abs()));
        k != j && a[k][j] != 0.0 && a[k][j].abs() >= theta * most
    };
    let mut found = vec![false; n];
    for _ in 0..distance {
        let from: Vec<usize> = (0..n).filter(|&k| k == i || found[k]).collect();
        for j in (0..n).filter(|&j| coarse[j] == FINE) {
            found[j] |= from.iter().any(|&k| is_strong(k, j));
        }
    }
    found
}

/// (R A)_iN = 0 for the neighbourhood N of each coarse point i, R has 1 at i and nothing outside N. This
/// defines R, because A_NN can be inverted.
#[test]
fn rows_of_r_eliminate_their_neighbourhood() {
    for (back, distance) in [(0.0, 1), (0.0, 2), (0.2, 1), (0.2, 2), (0.2, 3)] {
        let (theta, pool) = (0.3, Pool::new(1));
        let a = flow(90, back);
        let flags = strong(&pool, &a, theta, Size::Absolute);
        let coarse = pmis(&pool, &a, &flags, 0, Around::of(None)).unwrap();
        let r = dense(&restriction(&pool, &a, &flags, &coarse, distance, 90));
        let (a, mut wide) = (dense(&a), 0);
        for i in (0..90).filter(|&i| coarse[i] != FINE) {
            let (row, near) = (&r[coarse[i] as usize], near(&a, theta, &coarse, i, distance));
            assert_eq!(row[i], 1.0);
            for j in (0..90).filter(|&j| j != i) {
                let ra: f64 = row.iter().zip(&a).map(|(r, a)| r * a[j]).sum();
                assert!(if near[j] { ra.abs() < 1e-13 } else { row[j] == 0.0 }, "{back} {distance}: {i} {j}");
            }
            wide = wide.max(near.iter().filter(|&&is| is).count());
        }
        assert!(wide >= 2, "{back} {distance}: at most {wide} neighbours");
    }
}

/// With long paths and all couplings strong, R is ideal for a flow in one direction: R A has no couplings to
/// fine points, and R A P is R A in the columns of coarse points.
#[test]
fn r_is_ideal_at_a_long_distance() {
    let pool = Pool::new(1);
    let a = flow(120, 0.0);
    let flags = strong(&pool, &a, 0.0, Size::Absolute);
    let coarse = pmis(&pool, &a, &flags, 0, Around::of(None)).unwrap();
    let at = |distance: usize| {
        let r = dense(&restriction(&pool, &a, &flags, &coarse, distance, 120));
        let a = dense(&a);
        let fine = (0..120).filter(|&j| coarse[j] == FINE);
        let worst = |j: usize| {
            r.iter()
                .map(|row| row.iter().zip(&a).map(|(r, a)| r * a[j]).sum::<f64>().abs())
                .fold(0.0, f64::max)
        };
        fine.map(worst).fold(0.0, f64::max)
    };
    assert!(at(1) > 1e-3 && at(120) < 1e-13, "{:e} and {:e}", at(1), at(120));
}

#[test]
fn p_takes_the_largest_coupling() {
    let pool = Pool::new(1);
    let a = flow(90, 0.2);
    let flags = strong(&pool, &a, 0.3, Size::Absolute);
    let coarse = pmis(&pool, &a, &flags, 0, Around::of(None)).unwrap();
    let p = dense(&one_point(&pool, &a, &coarse, |i| i as u64));
    let a = dense(&a);
    for i in 0..90 {
        let best = (0..90).filter(|&j| coarse[j] != FINE && a[i][j] != 0.0 && j != i);
        let best = best.reduce(|k, j| if a[i][j].abs() > a[i][k].abs() { j } else { k });
        let stays = if coarse[i] != FINE { Some(i) } else { best };
        let row = |c: usize| f64::from(u8::from(stays.is_some_and(|j| coarse[j] as usize == c)));
        assert!(p[i].iter().enumerate().all(|(c, &w)| w == row(c)), "row {i}");
    }
    // Equal couplings: the lower name.
    let rows = [&[(0, 1.0)][..], &[(1, 1.0)], &[(0, -1.0), (1, -1.0), (2, 2.0)]];
    let mut three = Rows::default();
    rows.iter().for_each(|row| three.push(row));
    let three = assemble(&pool, 1, 3, vec![three]);
    for (names, taken) in [([0u64, 1, 2], 0), ([5, 1, 2], 1)] {
        let p = one_point(&pool, &three, &[0, 1, FINE], |i| names[i]);
        assert_eq!(p.col()[p.row_ptr()[2]..], [taken]);
    }
}

#[test]
fn filters_keep_row_sums_and_large_entries() {
    let pool = Pool::new(1);
    let a = flow(90, 0.2);
    let kept = filtered(&pool, &a, 0.25);
    assert!(kept.blocks() < a.blocks() && kept.blocks() > 90);
    assert_eq!(filtered(&pool, &a, 0.0).values(), a.values());
    let (a, kept) = (dense(&a), dense(&kept));
    for i in 0..90 {
        let most = (0..90).filter(|&j| j != i).fold(0.0f64, |most, j| most.max(a[i][j].abs()));
        for j in (0..90).filter(|&j| j != i) {
            assert_eq!(kept[i][j], if a[i][j].abs() < 0.25 * most { 0.0 } else { a[i][j] });
        }
        let sums = [&a, &kept].map(|a| a[i].iter().sum::<f64>());
        assert!((sums[0] - sums[1]).abs() < 1e-14);
    }
}

#[test]
fn levels_do_not_depend_on_threads() {
    let a = flow(3000, 0.2);
    let how = Coarsening::of(CoarsenKind::Air { distance: 2 });
    let of = |threads: usize| {
        let pool = Pool::eager(threads);
        let made = prolongation(&pool, &a, &how, 0, None).unwrap().unwrap();
        let restriction = super::galerkin::transpose(&pool, &made.columns.unwrap()).unwrap();
        let t = Transfer { prolongation: made.prolongation, restriction, coarse: made.coarse };
        let coarse = super::galerkin::galerkin(&pool, &a, &t).unwrap();
        let next = filtered(&pool, &coarse, 0.05);
        [t.prolongation, t.restriction, coarse, next]
    };
    let (one, several) = (of(1), of(3));
    for (one, several) in one.iter().zip(&several) {
        assert_eq!((one.row_ptr(), one.col()), (several.row_ptr(), several.col()));
        let bits = |a: &Bsr| a.values().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(one), bits(several));
    }
}
