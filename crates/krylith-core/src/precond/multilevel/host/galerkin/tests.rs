//! Tests that compare sparse products with dense products and dense definitions.

use super::*;
use crate::space::random;

/// Returns a matrix with random entries at `keep` percent of all positions. Rows i ≡ 5 (mod 7) are empty.
fn sparse(seed: u64, block: usize, n: usize, m: usize, keep: u64) -> Bsr {
    let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    let mut at = 0;
    for i in 0..n {
        for j in 0..m {
            at += 1;
            if i % 7 != 5 && random(seed, at).abs() * 100.0 < keep as f64 {
                col.push(j as u32);
                values.extend((0..block * block).map(|k| random(seed + 1, at * 64 + k as u64)));
            }
        }
        row_ptr.push(col.len());
    }
    Bsr::new(block, n, m, row_ptr, col, values).unwrap()
}

/// Returns a matrix with the same pattern and other values.
fn other_values(a: &Bsr, seed: u64) -> Bsr {
    let mut a = a.clone();
    a.values_mut().iter_mut().enumerate().for_each(|(k, v)| *v = random(seed, k as u64));
    a
}

fn transfer(pool: &Pool, seed: u64, n: usize, m: usize) -> Transfer {
    let prolongation = sparse(seed, 1, n, m, 25);
    let restriction = transpose(pool, &prolongation).unwrap();
    Transfer { prolongation, restriction, coarse: Vec::new() }
}

/// Returns the dense matrix, with scalar rows ordered by (node, component).
fn dense(a: &Bsr) -> Vec<Vec<f64>> {
    let b = a.block();
    let mut full = vec![vec![0.0; a.columns()]; a.rows()];
    for i in 0..a.block_rows() {
        for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
            for (k, v) in a.block_values(p).iter().enumerate() {
                full[i * b + k / b][a.col()[p] as usize * b + k % b] = *v;
            }
        }
    }
    full
}

/// Returns the dense Σ Cₜ⊗Aₜ, with scalar rows ordered by (node, component, stage).
fn dense_sum(terms: &Terms) -> Vec<Vec<f64>> {
    let (s, rows) = (terms.stages(), terms.rows());
    let mut full = vec![vec![0.0; rows]; rows];
    for (c, a) in &terms.terms {
        for (i, row) in dense(a).iter().enumerate() {
            for (j, v) in row.iter().enumerate() {
                (0..s * s).for_each(|k| full[i * s + k / s][j * s + k % s] += c[(k / s, k % s)] * v);
            }
        }
    }
    full
}

fn times(a: &[Vec<f64>], b: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let columns = b.first().map_or(0, Vec::len);
    let entry = |row: &[f64], j: usize| row.iter().zip(b).map(|(v, b)| v * b[j]).sum::<f64>();
    a.iter().map(|row| (0..columns).map(|j| entry(row, j)).collect()).collect()
}

fn difference(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    assert_eq!((a.len(), a.first().map(Vec::len)), (b.len(), b.first().map(Vec::len)), "shapes");
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.fold(0.0, |m: f64, (a, b)| m.max((a - b).abs()))
}

/// Returns P ⊗ I for blocks of this order.
fn by_components(p: &Bsr, block: usize) -> Vec<Vec<f64>> {
    let mut full = vec![vec![0.0; p.columns() * block]; p.rows() * block];
    for (i, row) in dense(p).iter().enumerate() {
        for (j, v) in row.iter().enumerate() {
            (0..block).for_each(|c| full[i * block + c][j * block + c] = *v);
        }
    }
    full
}

fn coefficient(seed: u64, s: usize) -> Dense {
    Dense::new(s, s, (0..s * s).map(|k| random(seed, k as u64)).collect()).unwrap()
}

/// Returns sums of one term, of two terms of one pattern, and of two terms of different patterns.
fn sums(block: usize, n: usize) -> Vec<Terms<'static>> {
    let (m, l) = (sparse(3, block, n, n, 15), sparse(5, block, n, n, 20));
    let of = |terms: Vec<(Dense, Bsr)>| Terms {
        terms: terms.into_iter().map(|(c, a)| (c, Cow::Owned(a))).collect(),
        halo: None,
    };
    vec![
        of(vec![(coefficient(8, 1), m.clone())]),
        of(vec![(coefficient(8, 2), m.clone()), (coefficient(9, 2), other_values(&m, 4))]),
        of(vec![(coefficient(8, 2), m), (coefficient(9, 2), l)]),
    ]
}

#[test]
fn transposes_are_dense_transposes_on_any_number_of_threads() {
    for (n, m) in [(0, 0), (1, 1), (4, 0), (60, 23), (13, 90)] {
        let a = sparse(7, 1, n, m, 30);
        let alone = transpose(&Pool::new(1), &a).unwrap();
        let full = dense(&a);
        let turned: Vec<Vec<f64>> = (0..m).map(|j| full.iter().map(|row| row[j]).collect()).collect();
        assert!(dense(&alone) == turned, "{n}×{m}");
        assert_eq!((alone.block_rows(), alone.block_columns(), alone.blocks()), (m, n, a.blocks()));
        for threads in [2, 3] {
            assert!(transpose(&Pool::eager(threads), &a).unwrap() == alone, "{n}×{m}, {threads} threads");
        }
    }
}

#[test]
fn coarse_terms_are_dense_triple_products_with_every_diagonal() {
    let alone = Pool::new(1);
    for (block, n, m) in [(1, 40, 12), (2, 40, 12), (3, 33, 9), (4, 20, 20), (9, 9, 4), (1, 1, 1), (2, 7, 0)]
    {
        let t = transfer(&alone, 11, n, m);
        for fine in sums(block, n) {
            let coarse = terms(&alone, &fine, &t).unwrap();
            for ((c, a), (d, product)) in fine.terms.iter().zip(&coarse.terms) {
                assert_eq!(c, d);
                let (r, p) = (by_components(&t.restriction, block), by_components(&t.prolongation, block));
                let expected = times(&times(&r, &dense(a)), &p);
                if m > 0 {
                    let off = difference(&dense(product), &expected);
                    assert!(off < 1e-13, "block {block}, {n} to {m}: off by {off:e}");
                }
                assert_eq!((product.block(), product.block_rows(), product.block_columns()), (block, m, m));
                assert!((0..m).all(|i| product.diagonal_position(i).is_some()));
            }
            if let ([(_, one), (_, two)], true) = (&coarse.terms[..], fine.shared_pattern()) {
                assert!(one.storage().shares_pattern(two.storage()), "{block}, {n} to {m}");
            }
        }
    }
}

#[test]
fn new_values_and_threads_give_the_same_bits() {
    for (block, n, m) in [(1, 5000, 900), (3, 300, 70), (5, 60, 9)] {
        let local = |seed, rows: usize, columns: usize, block| {
            // A is a band matrix, so that rows of A P enter and leave the window.
            let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
            for i in 0..rows {
                let middle = i * columns / rows;
                for j in middle.saturating_sub(2)..columns.min(middle + 3) {
                    let at = (i * columns + j) as u64;
                    if random(seed, at) < 0.3 {
                        col.push(j as u32);
                        values.extend((0..block * block).map(|k| random(seed + 1, at * 64 + k as u64)));
                    }
                }
                row_ptr.push(col.len());
            }
            Bsr::new(block, rows, columns, row_ptr, col, values).unwrap()
        };
        let alone = Pool::new(1);
        let prolongation = local(21, n, m, 1);
        let restriction = transpose(&alone, &prolongation).unwrap();
        let t = Transfer { prolongation, restriction, coarse: Vec::new() };
        let a = local(31, n, n, block);
        let (old, new) = (Terms::bsr(&a), other_values(&a, 77));
        let new = Terms::bsr(&new);
        let bits = |t: &Terms| t.terms[0].1.values().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        let expected = terms(&alone, &new, &t).unwrap();
        for threads in [1, 2, 5] {
            let pool = Pool::eager(threads);
            let mut coarse = terms(&pool, &old, &t).unwrap();
            update_terms(&pool, &new, &t, &mut coarse).unwrap();
            assert!(coarse.terms[0].1.same_pattern(&expected.terms[0].1));
            assert!(bits(&coarse) == bits(&expected), "block {block}, {threads} threads: new values");
            let made = terms(&pool, &new, &t).unwrap();
            assert!(bits(&made) == bits(&expected), "block {block}, {threads} threads");
        }
    }
}

#[test]
fn another_pattern_is_refused() {
    let pool = Pool::new(1);
    let t = transfer(&pool, 11, 30, 9);
    let (a, b) = (sparse(3, 1, 30, 30, 5), sparse(4, 1, 30, 30, 60));
    let mut coarse = terms(&pool, &Terms::bsr(&a), &t).unwrap();
    let error = update_terms(&pool, &Terms::bsr(&b), &t, &mut coarse).unwrap_err();
    assert!(error.to_string().contains("set up again"), "{error}");
}

#[test]
fn couplings_of_a_scalar_term_are_itself_and_of_others_sums_of_norms() {
    for block in 1..=4 {
        for terms in sums(block, 30) {
            let alone = couplings(&Pool::new(1), &terms).unwrap();
            assert!(couplings(&Pool::eager(3), &terms).unwrap() == alone);
            let (found, n) = (dense(&alone), terms.block_rows());
            assert_eq!((alone.block(), alone.block_columns()), (1, n));
            if block == 1 && terms.stages() == 1 {
                assert!(alone.same_pattern(&terms.terms[0].1));
                assert!(difference(&found, &dense_sum(&terms)) < 1e-15);
                continue;
            }
            let size = |i: usize, j: usize| {
                let norm = |(c, a): &Term| {
                    let row = a.row_ptr()[i]..a.row_ptr()[i + 1];
                    let at = row.clone().find(|&p| a.col()[p] as usize == j);
                    at.map_or(0.0, |p| frobenius(c.values()) * frobenius(a.block_values(p)))
                };
                terms.terms.iter().map(norm).sum::<f64>()
            };
            for (i, row) in found.iter().enumerate() {
                let off: f64 = (0..n).filter(|&j| j != i).map(|j| size(i, j)).sum();
                assert!(
                    alone.diagonal_position(i).is_some() && (row[i] - off).abs() <= 1e-14 * off,
                    "row {i}"
                );
                for j in (0..n).filter(|&j| j != i) {
                    assert!((row[j] + size(i, j)).abs() <= 1e-14, "({i}, {j})");
                }
            }
        }
    }
}

#[test]
fn l1_blocks_are_the_dense_ones() {
    for block in 1..=4 {
        for mut terms in sums(block, 30) {
            let order = block * terms.stages();
            let full = dense_sum(&terms);
            if full.iter().any(|row| row.iter().all(|&v| v == 0.0)) {
                let error = inverse_l1_blocks(&Pool::eager(2), &terms).unwrap_err();
                assert!(error.to_string().contains("block row 5 has a missing"), "{error}");
            }
            // Rows without entries get a diagonal entry, some positive and some negative.
            for (_, a) in &mut terms.terms {
                let n = a.block_rows();
                let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
                for i in 0..n {
                    let row = a.row_ptr()[i]..a.row_ptr()[i + 1];
                    col.extend_from_slice(&a.col()[row.clone()]);
                    row.for_each(|p| values.extend_from_slice(a.block_values(p)));
                    if i % 7 == 5 {
                        col.push(i as u32);
                        values.extend((0..block * block).map(|k| random(i as u64, k as u64)));
                    }
                    row_ptr.push(col.len());
                }
                *a = Cow::Owned(Bsr::new(block, n, n, row_ptr, col, values).unwrap());
            }
            let full = dense_sum(&terms);
            let alone = inverse_l1_blocks(&Pool::new(1), &terms).unwrap();
            assert!(inverse_l1_blocks(&Pool::eager(3), &terms).unwrap() == alone);
            for (i, inverse) in alone.chunks_exact(order * order).enumerate() {
                let own = i * order..(i + 1) * order;
                let mut d: Vec<Vec<f64>> = own.clone().map(|r| full[r][own.clone()].to_vec()).collect();
                for (k, row) in d.iter_mut().enumerate() {
                    let all: f64 = full[own.start + k].iter().map(|v| v.abs()).sum();
                    let norm = all - row.iter().map(|v| v.abs()).sum::<f64>();
                    row[k] += norm.copysign(if row[k] < 0.0 { -1.0 } else { 1.0 });
                }
                let inverse: Vec<Vec<f64>> = inverse.chunks_exact(order).map(<[f64]>::to_vec).collect();
                let mut identity = times(&d, &inverse);
                (0..order).for_each(|k| identity[k][k] -= 1.0);
                let off = identity.iter().flatten().fold(0.0, |m: f64, v| m.max(v.abs()));
                assert!(off < 1e-12, "block {block}, {} stages, node {i}: off by {off:e}", terms.stages());
            }
        }
    }
}
