use super::*;
use crate::interrupt::Bounds;

/// Reproducible random numbers in (0, 1).
struct Rng(u64);

impl Rng {
    fn number(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as f64 + 0.5) / (1u64 << 31) as f64
    }

    /// A matrix with this share of entries, over `range` powers of ten, with some stored zeros.
    fn matrix(&mut self, n: usize, share: f64, range: f64) -> Csr {
        let mut entries = Vec::new();
        for (i, j) in (0..n as u32).flat_map(|i| (0..n as u32).map(move |j| (i, j))) {
            if self.number() < share {
                let sign = if self.number() < 0.5 { -1.0 } else { 1.0 };
                let magnitude = 10f64.powf(range * (self.number() - 0.5));
                entries.push((i, j, if self.number() < 0.05 { 0.0 } else { sign * magnitude }));
            }
        }
        Csr::from_triplets(n, n, &entries).unwrap()
    }
}

/// The number of matched rows, and Σ ln|a| over them, for the computed permutation.
fn product(a: &Csr, matching: &Matching) -> (usize, f64) {
    let mut found = (0, 0.0);
    for (place, &row) in matching.rows().iter().enumerate() {
        if matching.unmatched().binary_search(&row).is_err() {
            let v = a.get(row as usize, place);
            assert!(v != 0.0, "row {row} is matched with an entry that is zero");
            found = (found.0 + 1, found.1 + v.abs().ln());
        }
    }
    found
}

/// The largest number of entries on a permutation, and the largest Σ ln|a| among these, by exhaustive search.
fn by_all(a: &Csr, row: usize, taken: u32) -> (usize, f64) {
    if row == a.rows() {
        return (0, 0.0);
    }
    let mut best = (0, f64::NEG_INFINITY);
    for j in (0..a.rows()).filter(|j| taken >> j & 1 == 0) {
        let rest = by_all(a, row + 1, taken | 1 << j);
        let v = a.get(row, j);
        let with = if v == 0.0 { rest } else { (rest.0 + 1, rest.1 + v.abs().ln()) };
        if with.0 > best.0 || (with.0 == best.0 && with.1 > best.1) {
            best = with;
        }
    }
    best
}

/// The cost of an optimal assignment of a dense matrix (Kuhn 1955, in the O(n³) form of Jonker and Volgenant
/// 1987).
fn hungarian(cost: &[Vec<f64>]) -> f64 {
    let n = cost.len();
    let (mut u, mut v, mut row_of) = (vec![0.0; n + 1], vec![0.0; n + 1], vec![n; n + 1]);
    for i in 0..n {
        let (mut least, mut before, mut used) = (vec![f64::INFINITY; n], vec![n; n], vec![false; n + 1]);
        let mut j = n;
        row_of[n] = i;
        while row_of[j] != n || j == n {
            used[j] = true;
            let (row, mut step, mut next) = (row_of[j], f64::INFINITY, n);
            for k in (0..n).filter(|&k| !used[k]) {
                let reduced = cost[row][k] - u[row] - v[k];
                if reduced < least[k] {
                    (least[k], before[k]) = (reduced, j);
                }
                if least[k] < step {
                    (step, next) = (least[k], k);
                }
            }
            for k in 0..=n {
                if used[k] {
                    u[row_of[k]] += step;
                    v[k] -= step;
                } else {
                    least[k] -= step;
                }
            }
            j = next;
        }
        while j != n {
            row_of[j] = row_of[before[j]];
            j = before[j];
        }
        row_of[n] = n;
    }
    (0..n).map(|j| cost[row_of[j]][j]).sum()
}

/// Checks that the result is a permutation, that magnitudes are at most 1 and equal 1 on the matching, and
/// that the scales give the scaled matrix.
fn check(a: &Csr, name: &str) -> Matching {
    let (matching, n) = (Matching::of(a).unwrap(), a.rows());
    let mut sorted = matching.rows().to_vec();
    sorted.sort_unstable();
    assert!(sorted.iter().enumerate().all(|(i, row)| i == *row as usize), "{name}: {:?}", matching.rows());
    let scaled = matching.scaled(a).unwrap();
    let (r, c) = (matching.row_scales(), matching.column_scales());
    for (place, &row) in matching.rows().iter().enumerate() {
        let diagonal = scaled.get(place, place).abs();
        assert!((diagonal - 1.0).abs() < 1e-11, "{name}: {diagonal} at {place} of {n}");
        let (col, values) = scaled.row(place);
        for (&j, v) in col.iter().zip(values) {
            assert!(v.abs() <= 1.0 + 1e-11, "{name}: {v} in row {place}");
            let given = a.get(row as usize, j as usize);
            if given != 0.0 && given.abs().ln().abs() < 100.0 {
                let by_scales = r[row as usize] * given * c[j as usize];
                assert!((by_scales - v).abs() <= 1e-10 * v.abs(), "{name}: {by_scales} is not {v}");
            }
        }
    }
    matching
}

#[test]
fn no_permutation_has_a_larger_product() {
    let mut rng = Rng(1);
    let mut singular = 0;
    for case in 0..600 {
        let n = 1 + case % 7;
        let (share, range) = ([0.3, 0.5, 0.8, 1.0][case % 4], [1.0, 8.0, 300.0][case % 3]);
        let a = rng.matrix(n, share, range);
        let matching = check(&a, &format!("case {case}"));
        let (found, best) = (product(&a, &matching), by_all(&a, 0, 0));
        assert_eq!(found.0, best.0, "case {case}");
        assert_eq!(matching.unmatched().len(), n - best.0, "case {case}");
        // For a singular matrix as many rows as possible are matched; which of them depends on the order.
        if best.0 == n {
            assert!(
                (found.1 - best.1).abs() < 1e-9 * (1.0 + best.1.abs()),
                "case {case}: {found:?} {best:?}"
            );
        } else {
            singular += 1;
        }
    }
    assert!(singular > 50 && singular < 500, "{singular}");
}

#[test]
fn the_hungarian_method_finds_no_more() {
    let mut rng = Rng(2);
    for (n, share, range) in [(31, 0.2, 6.0), (100, 0.06, 12.0), (100, 1.0, 3.0), (150, 0.05, 500.0)] {
        let mut a = rng.matrix(n, share, range);
        // A cyclic shift makes it structurally regular.
        let entries = (0..n).flat_map(|i| {
            let (col, values) = a.row(i);
            let given = col.iter().zip(values).map(move |(j, v)| (i as u32, *j, *v));
            given.chain([(i as u32, ((i + 7) % n) as u32, 1e-6)]).collect::<Vec<_>>()
        });
        a = Csr::from_triplets(n, n, &entries.collect::<Vec<_>>()).unwrap();
        let cost = |i, j| if a.get(i, j) == 0.0 { 1e7 } else { -a.get(i, j).abs().ln() };
        let dense: Vec<Vec<f64>> = (0..n).map(|i| (0..n).map(|j| cost(i, j)).collect()).collect();
        let matching = check(&a, &format!("{n} rows"));
        let (matched, logs) = product(&a, &matching);
        let best = -hungarian(&dense);
        assert_eq!(matched, n);
        assert!((logs - best).abs() < 1e-8 * (1.0 + best.abs()), "{n} rows: {logs} and {best}");
    }
}

#[test]
fn a_right_diagonal_stays_and_a_permuted_one_is_found() {
    let n = 1000;
    let rows: Vec<u32> = (0..n).map(|i| (i * 387 + 5) % n).collect();
    let mut entries: Vec<(u32, u32, f64)> = Vec::new();
    for i in 0..n {
        entries.extend([(i, i, 4.0), (i, (i + 1) % n, -1.0), (i, (i + 31) % n, 2.0)]);
    }
    let a = Csr::from_triplets(n as usize, n as usize, &entries).unwrap();
    let same: Vec<u32> = (0..n).collect();
    assert_eq!(check(&a, "diagonal").rows(), same);
    entries.iter_mut().for_each(|e| e.0 = rows[e.0 as usize]);
    let a = Csr::from_triplets(n as usize, n as usize, &entries).unwrap();
    assert_eq!(check(&a, "permuted").rows(), rows);
}

#[test]
fn rows_that_match_nothing_are_named() {
    // Rows 0 and 2 have only column 1, row 3 is empty, row 1 stores a zero.
    let entries = [(0, 1, 2.0), (1, 0, 5.0), (1, 2, 0.0), (2, 1, 1.0)];
    let a = Csr::from_triplets(4, 4, &entries).unwrap();
    let matching = check(&a, "singular");
    assert_eq!(matching.unmatched(), [2, 3]);
    assert_eq!(matching.rows(), [1, 0, 2, 3]);
    assert_eq!(check(&Csr::from_triplets(0, 0, &[]).unwrap(), "nothing").rows(), [0u32; 0]);
    assert_eq!(check(&Csr::from_triplets(3, 3, &[]).unwrap(), "empty").unmatched(), [0, 1, 2]);
    let wide = Csr::from_triplets(1, 2, &[(0, 0, 1.0)]).unwrap();
    assert!(Matching::of(&wide).unwrap_err().to_string().contains("square"));
}

#[test]
fn magnitudes_far_from_one() {
    let entries =
        [(0, 0, 1e-300), (0, 1, 1e300), (1, 0, 1e300), (1, 1, 1e-300), (1, 2, -1e300), (2, 2, 5e-324)];
    let a = Csr::from_triplets(3, 3, &entries).unwrap();
    let matching = check(&a, "1e±300");
    assert_eq!(matching.rows(), [1, 0, 2]);
}

#[test]
fn one_matching_serves_all_attempts_and_takes_no_longer_than_it_may() {
    let mut rng = Rng(5);
    let (a, b) = (rng.matrix(60, 0.1, 3.0), rng.matrix(60, 0.1, 3.0));
    let found = MatchingFound::default();
    let first = found.or_find(&a).unwrap();
    assert!(Arc::ptr_eq(&first, &found.or_find(&b).unwrap()), "found once");
    found.forget();
    assert_eq!(found.or_find(&b).unwrap().rows(), Matching::of(&b).unwrap().rows());
    found.forget();
    let bounds = Bounds { operations: Some(10), seconds: None }.enter();
    let slow = |found: &MatchingFound| found.or_find(&a).unwrap_err().to_string();
    assert!(
        slow(&found).contains("matching rows with columns takes more than 1e1 operations"),
        "{}",
        slow(&found)
    );
    drop(bounds);
    assert!(slow(&found).contains("more than 1e1"), "known to take too long");
}
