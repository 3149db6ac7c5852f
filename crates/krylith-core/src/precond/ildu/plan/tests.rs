//! Tests that compare plans with their specification, entry by entry.

use super::*;
use crate::matrix::{Bsr, Dense};
use std::collections::{BTreeMap, BTreeSet};

/// Pseudo-random numbers below a bound.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }
}

/// Returns a matrix of 1×1 blocks with about `width` entries a row near the diagonal. Few rows have a
/// diagonal entry.
fn matrix(rng: &mut Random, n: usize, width: usize) -> Bsr {
    let (mut row_ptr, mut col) = (vec![0], Vec::new());
    for i in 0..n {
        let near = |rng: &mut Random| (i + rng.below(4 * width)).saturating_sub(2 * width).min(n - 1) as u32;
        let row: BTreeSet<u32> = (0..width).map(|_| near(rng)).collect();
        col.extend(row);
        row_ptr.push(col.len());
    }
    let values = (0..col.len()).map(|e| e as f64).collect();
    Bsr::new(1, n, n, row_ptr, col, values).unwrap()
}

/// Returns the number of the block at each position of a matrix.
fn places(a: &Bsr) -> BTreeMap<(u32, u32), u32> {
    let rows =
        (0..a.block_rows()).flat_map(|i| (a.row_ptr()[i]..a.row_ptr()[i + 1]).map(move |e| (i as u32, e)));
    rows.map(|(i, e)| ((i, a.col()[e]), e as u32)).collect()
}

fn check(plan: &Plan, terms: &Terms, subdomains: &Subdomains, fill: usize) {
    let matrices: Vec<BTreeMap<(u32, u32), u32>> = terms.terms.iter().map(|(_, a)| places(a)).collect();
    let union: BTreeSet<(u32, u32)> = matrices.iter().flat_map(|m| m.keys().copied()).collect();
    let mut inside = 0;
    assert_eq!((plan.count(), plan.row_ptr[0]), (subdomains.count(), 0));
    for p in 0..plan.count() {
        let (first, end) = (plan.ptr[p], plan.ptr[p + 1]);
        let rows = &plan.rows[first..end];
        let mut sorted = rows.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, subdomains.rows(p), "rows of subdomain {p}");
        let levels = &plan.levels[plan.level_ptr[p]..plan.level_ptr[p + 1]];
        assert!(levels[0] == 0 && levels.windows(2).all(|w| w[0] < w[1]), "levels of subdomain {p}");
        let level = |k: usize| levels.partition_point(|&begin| begin as usize <= k) - 1;
        // The level of a row is one more than the highest level of earlier rows that it is coupled to, in
        // either direction.
        let mut lowest = vec![0; rows.len()];
        let mut found = BTreeSet::new();
        for k in 0..rows.len() {
            let entries = plan.row_ptr[first + k]..plan.row_ptr[first + k + 1];
            let columns = &plan.columns[entries.clone()];
            assert!(columns.windows(2).all(|w| w[0] < w[1]), "columns of row {}", rows[k]);
            assert_eq!(plan.columns[plan.diagonal[first + k]] as usize, k, "diagonal of row {}", rows[k]);
            for e in entries {
                let j = plan.columns[e] as usize;
                let at = (rows[k], rows[j]);
                for (sources, matrix) in plan.sources.iter().zip(&matrices) {
                    assert_eq!(sources[e], matrix.get(&at).copied().unwrap_or(u32::MAX), "source of {at:?}");
                }
                assert!(fill > 0 || k == j || union.contains(&at), "{at:?} is an entry");
                found.insert(at);
                if j != k {
                    assert_ne!(level(j), level(k), "{at:?} is inside a level");
                    let (low, high) = (k.min(j), k.max(j));
                    lowest[high] = lowest[high].max(level(low) + 1);
                }
            }
        }
        (0..rows.len()).for_each(|k| assert_eq!(level(k), lowest[k], "level of row {}", rows[k]));
        let within =
            |at: &&(u32, u32)| sorted.binary_search(&at.0).is_ok() && sorted.binary_search(&at.1).is_ok();
        inside += union
            .iter()
            .filter(within)
            .inspect(|at| assert!(found.contains(at), "{at:?} is missing"))
            .count();
    }
    assert_eq!(plan.row_ptr[plan.block_rows], plan.entries());
    assert_eq!((plan.stored, plan.dropped), (union.len(), union.len() - inside));
}

#[test]
fn plans_hold_what_matrices_have() {
    let mut rng = Random(3);
    for (n, parts, width) in [(1, 1, 1), (60, 4, 2), (300, 7, 4), (300, 300, 3), (500, 1, 3)] {
        let labels: Vec<u32> = (0..n).map(|_| rng.below(parts) as u32).collect();
        let subdomains = Subdomains::from_labels(&labels, parts).unwrap();
        let (a, other) = (matrix(&mut rng, n, width), matrix(&mut rng, n, width));
        let term = |a: &Bsr| (Dense::identity(1), std::borrow::Cow::Owned(a.clone()));
        for matrices in [vec![&a], vec![&a, &a], vec![&a, &other]] {
            let terms = Terms { terms: matrices.into_iter().map(term).collect(), halo: None };
            for fill in [0, 1] {
                let plan = Plan::new(&terms, &subdomains, fill).unwrap();
                check(&plan, &terms, &subdomains, fill);
                let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
                assert!(one.install(|| Plan::new(&terms, &subdomains, fill).unwrap()) == plan);
            }
        }
    }
}

#[test]
fn tasks_are_all_subdomains_in_order() {
    for sizes in [vec![1], vec![TASK + 5, 1, TASK, TASK - 1, 2], vec![100; 1000], vec![2 * TASK; 3]] {
        let n: usize = sizes.iter().sum();
        let labels: Vec<u32> =
            sizes.iter().enumerate().flat_map(|(p, &size)| std::iter::repeat_n(p as u32, size)).collect();
        let tasks = tasks(&Subdomains::from_labels(&labels, sizes.len()).unwrap());
        let all: Vec<usize> = tasks.iter().cloned().flatten().collect();
        assert!(all.iter().copied().eq(0..sizes.len()), "{n} rows in {tasks:?}");
        for task in tasks {
            assert!(task.len() == 1 || sizes[task].iter().sum::<usize>() <= TASK);
        }
    }
}
