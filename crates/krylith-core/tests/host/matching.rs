//! Structural ranks against every choice of entries there is, and shapes against their definitions.

use crate::common::*;
use krylith_core::matrix::{Bsr, Csr, Dense, KroneckerSum, Shape, StructuralRank};

/// The most entries that can be picked, by trying all sets of columns: row by row, which sets can be taken.
fn by_all_choices(a: &Mat) -> usize {
    let mut sets = std::collections::BTreeSet::from([0u32]);
    for i in 0..a.nrows() {
        for set in sets.clone() {
            sets.extend(
                (0..a.ncols()).filter(|&j| a[(i, j)] != 0.0 && set >> j & 1 == 0).map(|j| set | 1 << j),
            );
        }
    }
    sets.into_iter().map(u32::count_ones).max().unwrap_or(0) as usize
}

fn check(found: &StructuralRank, a: &Mat, case: &str) {
    assert_eq!(found.rank, by_all_choices(a), "{case}");
    assert_eq!(found.unmatched_rows.len(), a.nrows() - found.rank, "{case}");
    assert_eq!(found.unmatched_columns.len(), a.ncols() - found.rank, "{case}");
    // Crowded rows prove that no matching is larger.
    let crowded = |j: usize| found.crowded_rows.iter().any(|&i| a[(i, j)] != 0.0);
    assert_eq!((0..a.ncols()).filter(|&j| crowded(j)).count(), found.crowded_columns(), "{case}");
    assert_eq!(found.crowded_rows.is_empty(), found.rank == a.nrows(), "{case}");
}

/// Entries with a probability of `share`, some of them stored zeros.
fn random(rng: &mut Random, rows: usize, columns: usize, share: f64) -> Csr {
    let mut entries = Vec::new();
    for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
        if rng.number().abs() < share {
            let value = if rng.below(5) == 0 { 0.0 } else { rng.number() };
            entries.push((i as u32, j as u32, value));
        }
    }
    Csr::from_triplets(rows, columns, &entries).unwrap()
}

#[test]
fn ranks_are_those_of_all_choices() {
    let mut rng = Random(51);
    let mut deficient = 0;
    for round in 0..6000 {
        let (rows, columns) = (1 + rng.below(9), 1 + rng.below(9));
        let columns = if round % 3 == 0 { columns } else { rows };
        let share = [0.1, 0.2, 0.3, 0.5][round % 4];
        let a = random(&mut rng, rows, columns, share);
        let matrix = Mat::from_fn(rows, columns, |i, j| a.get(i, j));
        let found = StructuralRank::of(&[(None, &Bsr::from_csr(&a, 1).unwrap())], usize::MAX).unwrap();
        check(&found, &matrix, &format!("{round}: {rows}×{columns}"));
        deficient += usize::from(found.rank < rows.min(columns));
    }
    assert!((1000..5000).contains(&deficient), "{deficient}");
}

#[test]
fn blocks_and_kronecker_sums_are_taken_entry_by_entry() {
    let mut rng = Random(52);
    for round in 0..1000 {
        let (b, s, n) = (1 + rng.below(2), 1 + rng.below(2), 1 + rng.below(2));
        let mut matrix = || Bsr::from_csr(&random(&mut rng, n * b, n * b, 0.35), b).unwrap();
        let (m, l) = (matrix(), matrix());
        let mut coefficient = || {
            let values = (0..s * s).map(|_| if rng.below(3) == 0 { 0.0 } else { rng.number() }).collect();
            Dense::new(s, s, values).unwrap()
        };
        let k = KroneckerSum::new(coefficient(), coefficient(), 0.5, m, l).unwrap();
        let found = StructuralRank::of(&[(Some(&k.a), &k.m), (Some(&k.b), &k.l)], usize::MAX).unwrap();
        check(&found, &dense(&k), &format!("{round}: b = {b}, s = {s}, n = {n}"));
    }
}

#[test]
fn long_paths_need_no_stack_and_work_is_bounded() {
    // Row i has columns i and i + 1, the last row only column 0. The diagonal leaves the last row unmatched,
    // and the only path to the free column passes through all rows.
    let n = 200_000u32;
    let mut entries: Vec<_> = (0..n - 1).flat_map(|i| [(i, i, 1.0), (i, i + 1, 1.0)]).collect();
    entries.push((n - 1, 0, 1.0));
    let path = Csr::from_triplets(n as usize, n as usize, &entries).unwrap();
    let path = Bsr::from_csr(&path, 1).unwrap();
    let found = StructuralRank::of(&[(None, &path)], 10 * path.blocks()).unwrap();
    assert_eq!(found.rank, n as usize);
    assert_eq!(StructuralRank::of(&[(None, &path)], path.blocks() / 2), None);
    // Without the last row's entry no path ends.
    entries.pop();
    let short = Bsr::from_csr(&Csr::from_triplets(n as usize, n as usize, &entries).unwrap(), 1).unwrap();
    let found = StructuralRank::of(&[(None, &short)], usize::MAX).unwrap();
    assert_eq!((found.rank, found.crowded_rows), (n as usize - 1, vec![n as usize - 1]));
    assert_eq!(found.unmatched_columns, [n as usize - 1]);
}

#[test]
fn shapes_are_those_of_the_dense_matrix() {
    let mut rng = Random(53);
    for round in 0..500 {
        let (b, n) = (1 + rng.below(3), 1 + rng.below(6));
        let mut a = random(&mut rng, n * b, n * b, 0.4);
        if round % 3 > 0 {
            // The same pattern on both sides, and in every other case the same values.
            let other = a.transpose();
            let mut triplets = Vec::new();
            for (m, factor) in [(&a, 1.0), (&other, if round % 3 == 1 { 1.0 } else { 0.5 })] {
                let row = |i: usize| {
                    m.row(i).0.iter().zip(m.row(i).1).map(move |(&j, &v)| (i as u32, j, factor * v))
                };
                triplets.extend((0..n * b).flat_map(row));
            }
            a = Csr::from_triplets(n * b, n * b, &triplets).unwrap();
        }
        let shape = Shape::of(&Bsr::from_csr(&a, b).unwrap());
        let all = || (0..n * b).flat_map(|i| (0..n * b).map(move |j| (i, j)));
        let there = || all().filter(|&(i, j)| a.get(i, j) != 0.0);
        assert_eq!(shape.entries, there().count(), "{round}");
        assert_eq!(shape.alone, there().filter(|&(i, j)| a.get(j, i) == 0.0).count(), "{round}");
        assert_eq!(shape.bandwidth, there().map(|(i, j)| i.abs_diff(j)).max().unwrap_or(0), "{round}");
        let mismatch = there().filter(|&(i, j)| a.get(j, i) != 0.0).map(|(i, j)| {
            let (v, w) = (a.get(i, j), a.get(j, i));
            (v - w).abs() / v.abs().max(w.abs())
        });
        assert!((shape.mismatch - mismatch.fold(0.0, f64::max)).abs() < 1e-15, "{round}");
        let largest = |i: usize| (0..n * b).map(|j| a.get(i, j).abs()).fold(0.0, f64::max);
        let asymmetry = there().map(|(i, j)| (a.get(i, j) - a.get(j, i)).abs() / largest(i));
        assert!((shape.asymmetry - asymmetry.fold(0.0, f64::max)).abs() < 1e-15, "{round}");
        let magnitudes = there().map(|(i, j)| (a.get(i, j).abs() - a.get(j, i).abs()).abs() / largest(i));
        assert!((shape.unlike_magnitudes - magnitudes.fold(0.0, f64::max)).abs() < 1e-15, "{round}");
        let of_sign = |sign: f64| (0..n * b).filter(|&i| sign * a.get(i, i) > 0.0).count();
        assert_eq!(shape.signs, [of_sign(-1.0), of_sign(1.0)], "{round}");
        let weak = |i: &usize| a.get(*i, *i) != 0.0 && a.get(*i, *i).abs() < 1e-3 * largest(*i);
        assert_eq!(shape.weak_rows, (0..n * b).filter(weak).count(), "{round}");
        assert_eq!(shape.is_symmetric(), all().all(|(i, j)| a.get(i, j) == a.get(j, i)), "{round}");
        assert!(round % 3 != 1 || shape.is_symmetric(), "{round}");
        let dominant = (0..n * b).filter(|&i| {
            let others: f64 = (0..n * b).filter(|&j| j != i).map(|j| a.get(i, j).abs()).sum();
            a.get(i, i) != 0.0 && a.get(i, i).abs() >= others
        });
        assert_eq!(shape.dominant_rows, dominant.count(), "{round}");
    }
}
