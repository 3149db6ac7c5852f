//! Look-alikes compared with the paper's table, and with the properties that each kind documents.

use krylith_core::matrix::Csr;
use krylith_problems::lookalike::{Lookalike, Shape, TABLE2, by_name};
use krylith_problems::{SystemKind, generate};
use std::collections::HashMap;

fn matrix(name: &str) -> &'static Lookalike {
    by_name(name).unwrap()
}

/// Mean entries per row as Table 2 prints them, as whole numbers.
const MEANS: [u64; 24] =
    [2, 2, 2, 2, 2, 9, 9, 15, 15, 16, 16, 17, 24, 24, 26, 28, 28, 28, 28, 28, 31, 35, 38, 38];

#[test]
fn the_table_is_the_papers() {
    for (m, mean) in TABLE2.iter().zip(MEANS) {
        let shape = m.scaled(1.0).unwrap();
        assert_eq!((shape.rows, shape.nonzeros), (m.rows, m.nonzeros), "{}", m.name);
        assert_eq!((shape.min, shape.max), (m.min, m.max), "{}", m.name);
        // The paper rounds some down and some to the nearest.
        assert!((shape.mean - mean as f64).abs() < 1.0, "{}: {} for {mean}", m.name, shape.mean);
        assert_eq!(TABLE2[m.id - 1].name, m.name);
    }
    assert!(by_name("kmer").is_none());
}

#[test]
fn every_matrix_matches_its_shape() {
    for m in &TABLE2 {
        for scale in [1.0 / 4096.0, 1.0 / 2500.0] {
            let a = m.generate(scale, 1, false).unwrap();
            let (got, want) = (Shape::of(&a), m.scaled(scale).unwrap());
            assert_eq!(got, want, "{} at {scale}", m.name);
            if !m.name.starts_with("nlpkkt") {
                assert_eq!(got.rows, (m.rows as f64 * scale).round() as u64, "{}", m.name);
                let mean = m.nonzeros as f64 / m.rows as f64;
                assert!((got.mean / mean - 1.0).abs() < 0.02, "{}: mean {}", m.name, got.mean);
            }
            assert_eq!(got.min, m.min, "{}", m.name);
            assert_eq!(u64::from(got.max), u64::from(m.max).min(got.rows), "{}", m.name);
            check(m.name, &a);
        }
    }
}

/// Checks columns and values of every row, independent of the constructor's checks.
fn check(name: &str, a: &Csr) {
    let mut negative = 0;
    for i in 0..a.rows() {
        let (col, values) = a.row(i);
        assert!(col.windows(2).all(|w| w[0] < w[1]), "{name}: row {i}");
        assert!(col.iter().all(|&j| (j as usize) < a.rows()), "{name}: row {i}");
        for (&j, v) in col.iter().zip(values) {
            // S is at most 1 and at least 1/8, w at least 2^-14.
            let least = if i == j as usize { 0.5 / 64.0 } else { 0.5 / 64.0 / 16384.0 };
            assert!(v.abs() > least && v.abs() <= 1.5, "{name}: ({i}, {j})");
            assert!(i != j as usize || *v > 0.0, "{name}: ({i}, {i})");
            negative += usize::from(*v < 0.0);
        }
    }
    let diagonal = (0..a.rows()).filter(|&i| a.get(i, i) != 0.0).count();
    let share = negative as f64 / (a.nonzeros() - diagonal) as f64;
    assert!((0.4..0.6).contains(&share), "{name}: {share} of the entries beside the diagonal are negative");
}

#[test]
fn symmetric_ones_are_symmetric() {
    for name in [
        "kmer_U1a",
        "kmer_A2a",
        "kmer_V2a",
        "kmer_P1a",
        "kmer_V1r",
        "rgg_n_2_23_s0",
        "rgg_n_2_24_s0",
        "nlpkkt160",
    ] {
        for permuted in [false, true] {
            let a = matrix(name).generate(1.0 / 3000.0, 3, permuted).unwrap();
            assert!(a == a.transpose(), "{name}, permuted: {permuted}");
        }
    }
}

#[test]
fn the_others_are_definite_where_rows_are_not_empty() {
    // xᵀ A x > 0 for random x, because entries of D are at least 0.5 and all others are far smaller.
    for name in ["webbase-2001", "GAP-twitter", "com-LiveJournal", "FullChip", "stokes"] {
        let a = matrix(name).generate(1.0 / 2000.0, 1, false).unwrap();
        for i in 0..a.rows() {
            let (col, _) = a.row(i);
            assert!(col.is_empty() || a.get(i, i) > 0.0 || col.len() == 1, "{name}: row {i} has no diagonal");
        }
        for seed in 1..20u64 {
            let mut state = seed;
            let x: Vec<f64> = (0..a.rows())
                .map(|_| {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
                })
                .collect();
            let sum: f64 = (0..a.rows())
                .map(|i| {
                    a.row(i).0.iter().zip(a.row(i).1).map(|(&j, v)| x[i] * v * x[j as usize]).sum::<f64>()
                })
                .sum();
            assert!(sum > 0.0, "{name}");
        }
    }
}

#[test]
fn kmers_are_chains_without_locality() {
    for name in ["kmer_U1a", "kmer_V1r"] {
        let a = matrix(name).generate(1.0 / 2048.0, 1, false).unwrap();
        let n = a.rows();
        let two = (0..n).filter(|&i| a.row(i).0.len() == 2).count() as f64 / n as f64;
        assert!((0.5..0.95).contains(&two), "{name}: {two} of the rows have two entries");
        let near = |i: usize| a.row(i).0.iter().filter(|&&j| (j as usize).abs_diff(i) < n / 100).count();
        let share = (0..n).map(near).sum::<usize>() as f64 / a.nonzeros() as f64;
        assert!((0.015..0.025).contains(&share), "{name}: {share} of the entries lie within a hundredth");
        assert!((0..n).all(|i| !a.row(i).0.contains(&(i as u32))), "{name}: no vertex joins itself");
    }
}

#[test]
fn nlpkkt_is_counted_in_closed_form() {
    for (name, edge) in [("nlpkkt160", 160u64), ("nlpkkt200", 200), ("nlpkkt240", 240)] {
        let m = matrix(name);
        assert_eq!(m.rows, 2 * edge.pow(3) + 6 * edge.pow(2));
        assert_eq!(
            m.nonzeros,
            edge.pow(3) + 6 * edge.pow(2) + 2 * (3 * edge - 2).pow(3) + 12 * (3 * edge - 2).pow(2)
        );
    }
    // N = 20: each entry from the definition, by coordinates.
    let a = matrix("nlpkkt160").generate(1.0 / 512.0, 1, false).unwrap();
    let n = 20i64;
    let (points, controls) = (n.pow(3), 6 * n.pow(2));
    assert_eq!(a.rows() as i64, 2 * points + controls);
    let grid = |i: i64| [i % n, i / n % n, i / (n * n)];
    let near = |a: &[i64], b: &[i64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1);
    // Axis, side and the two coordinates along the face.
    let control = |k: i64| {
        let (face, at) = (k / (n * n), k % (n * n));
        (face as usize / 2, if face % 2 == 0 { 0 } else { n - 1 }, [at % n, at / n])
    };
    let stored = |i: i64, j: i64| -> bool {
        let (i, j) = (i.min(j), i.max(j));
        let multiplier = j - points - controls;
        match (i < points, i < points + controls, multiplier >= 0) {
            (_, true, false) => i == j,
            (true, _, true) => near(&grid(i), &grid(multiplier)),
            (false, true, true) => {
                let (axis, side, at) = control(i - points);
                let mut rest = grid(multiplier).to_vec();
                rest.remove(axis) == side && near(&rest, &at)
            }
            _ => false,
        }
    };
    for i in (0..a.rows() as i64).step_by(37).chain(0..2).chain(points..points + controls) {
        let expected: Vec<u32> = (0..a.rows() as i64).filter(|&j| stored(i, j)).map(|j| j as u32).collect();
        assert!(a.row(i as usize).0 == expected, "row {i}");
    }
}

#[test]
fn random_geometric_graphs_have_the_originals_radius() {
    // The mean is πr²n with r = 0.55 √(ln n / n), minus the loss at the boundary.
    for name in ["rgg_n_2_23_s0", "rgg_n_2_24_s0"] {
        let m = matrix(name);
        let n = m.rows as f64;
        let r = 0.55 * (n.ln() / n).sqrt();
        let mean = n * r * r * (std::f64::consts::PI - 8.0 / 3.0 * r);
        assert!((mean / m.scaled(1.0).unwrap().mean - 1.0).abs() < 1e-3, "{name}: {mean}");
    }
    // Neighbours are in three runs of cells.
    let a = matrix("rgg_n_2_23_s0").generate(1.0 / 256.0, 1, false).unwrap();
    let runs = |i: usize| a.row(i).0.windows(2).filter(|w| w[1] - w[0] > 200).count();
    assert!((0..a.rows()).all(|i| runs(i) <= 2));
}

#[test]
fn the_same_on_one_thread_and_three() {
    for name in ["kmer_V1r", "uk-2002", "twitter7", "rgg_n_2_23_s0", "nlpkkt160", "stokes", "FullChip"] {
        for permuted in [false, true] {
            let on = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| matrix(name).generate(1.0 / 1024.0, 7, permuted).unwrap())
            };
            assert!(on(1) == on(3), "{name}, permuted: {permuted}");
        }
    }
}

#[test]
fn permuted_is_one_permutation_of_rows_and_columns() {
    for name in
        ["kmer_U1a", "indochina-2004", "ljournal-2008", "rgg_n_2_23_s0", "nlpkkt160", "stokes", "FullChip"]
    {
        let scale = 1.0 / 3000.0;
        let a = matrix(name).generate(scale, 5, false).unwrap();
        let b = matrix(name).generate(scale, 5, true).unwrap();
        let lengths = |a: &Csr| {
            let mut lengths: Vec<usize> = a.row_ptr().windows(2).map(|w| w[1] - w[0]).collect();
            lengths.sort_unstable();
            lengths
        };
        assert!(lengths(&a) == lengths(&b), "{name}");
        // Random values distinguish entries, so each row can be found again as the row with the same values.
        let key = |a: &Csr, i: usize| {
            let mut bits: Vec<u64> = a.row(i).1.iter().map(|v| v.to_bits()).collect();
            bits.sort_unstable();
            bits
        };
        let rows: HashMap<_, _> = (0..b.rows()).map(|i| (key(&b, i), i as u32)).collect();
        let mut new: Vec<u32> = vec![u32::MAX; a.rows()];
        let mut taken = vec![false; a.rows()];
        for i in 0..a.rows() {
            let bits = key(&a, i);
            if !bits.is_empty() {
                new[i] = *rows.get(&bits).unwrap_or_else(|| panic!("{name}: row {i} is lost"));
                taken[new[i] as usize] = true;
            }
        }
        // Columns of empty rows are found through the entries of other rows.
        let column = |a: &Csr, i: usize| a.col()[a.row_ptr()[i]..a.row_ptr()[i + 1]].to_vec();
        for i in (0..a.rows()).filter(|&i| a.row(i).0.len() > 1) {
            let at = new[i] as usize;
            for (&j, v) in a.row(i).0.iter().zip(a.row(i).1) {
                let p = b.row(at).1.iter().position(|w| w == v).unwrap();
                let moved = column(&b, at)[p];
                if new[j as usize] == u32::MAX {
                    (new[j as usize], taken[moved as usize]) = (moved, true);
                }
                assert_eq!(new[j as usize], moved, "{name}: column {j} of row {i}");
            }
        }
        // Numbers of which neither row nor column has an entry may be in any order.
        let mut free = (0..a.rows() as u32).filter(|&i| !taken[i as usize]);
        for at in new.iter_mut().filter(|at| **at == u32::MAX) {
            *at = free.next().unwrap();
        }
        assert!(a.permute(&new).unwrap() == b, "{name}");
        let fixed = new.iter().enumerate().filter(|&(i, &at)| i == at as usize).count();
        assert!(fixed < 40, "{name}: {fixed} rows stay");
    }
}

#[test]
fn a_look_alike_is_a_problem() {
    let made = generate("lookalike:uk-2002,scale=1/4096,permuted").unwrap();
    assert_eq!(made.spec, "lookalike:uk-2002,scale=1/4096,permuted=true,seed=1");
    let SystemKind::Csr(a) = &made.system else { panic!("scalar rows") };
    assert!(*a == matrix("uk-2002").generate(1.0 / 4096.0, 1, true).unwrap());
    for i in 0..a.rows() {
        let sum: f64 = a.row(i).1.iter().sum();
        assert!((made.rhs[i] - sum).abs() <= 1e-15, "row {i}");
    }
    let other = generate("lookalike:uk-2002,scale=0.000244140625,seed=2").unwrap();
    let SystemKind::Csr(b) = &other.system else { panic!("scalar rows") };
    assert!(a.col() != b.col() && a.rows() == b.rows());
}

/// Runs textbook conjugate gradients for a fixed number of iterations. Returns the largest magnitude in x and
/// r, and the last |r|².
fn iterate(a: &Csr, iterations: usize) -> (f64, f64) {
    let n = a.rows();
    let product = |x: &[f64]| -> Vec<f64> {
        (0..n).map(|i| a.row(i).0.iter().zip(a.row(i).1).map(|(&j, v)| v * x[j as usize]).sum()).collect()
    };
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    let (mut x, mut r) = (vec![0.0; n], product(&vec![1.0; n]));
    let (mut p, mut rr, mut largest) = (r.clone(), dot(&r, &r), 0.0f64);
    for _ in 0..iterations {
        let q = product(&p);
        let alpha = rr / dot(&p, &q);
        for i in 0..n {
            x[i] += alpha * p[i];
            r[i] -= alpha * q[i];
            // This comparison keeps a NaN, which `max` would drop.
            largest = if x[i].abs() + r[i].abs() <= largest { largest } else { x[i].abs() + r[i].abs() };
        }
        let before = std::mem::replace(&mut rr, dot(&r, &r));
        let beta = rr / before;
        p.iter_mut().zip(&r).for_each(|(p, r)| *p = r + beta * *p);
    }
    (largest, rr)
}

#[test]
fn numbers_stay_bounded_when_conjugate_gradients_go_on() {
    for name in ["kmer_V1r", "uk-2002", "FullChip", "ljournal-2008", "rgg_n_2_23_s0", "nlpkkt160", "stokes"] {
        let (largest, rr) = iterate(&matrix(name).generate(1.0 / 4096.0, 1, false).unwrap(), 300);
        assert!(rr.is_finite() && rr > 0.0 && largest < 1e6, "{name}: {largest}, {rr}");
    }
}
