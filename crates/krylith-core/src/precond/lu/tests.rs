mod fronts;
mod subdomains;

use super::*;
use crate::device::cpu::Cpu;
use crate::matrix::{Bsr, Csr};
use crate::space::random;
use std::borrow::Cow;

fn csr(rows: usize, columns: usize, entries: &[(usize, usize, f64)]) -> crate::Result<Csr> {
    let entries: Vec<(u32, u32, f64)> = entries.iter().map(|&(i, j, v)| (i as u32, j as u32, v)).collect();
    Csr::from_triplets(rows, columns, &entries)
}

/// Returns Σ Cₜ ⊗ Aₜ as a dense matrix, row-major.
fn dense(terms: &Terms) -> Vec<f64> {
    let (b, s, n) = (terms.block(), terms.stages(), terms.rows());
    let mut out = vec![0.0; n * n];
    for (c, a) in &terms.terms {
        for i in 0..a.block_rows() {
            for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                for (e, v) in a.block_values(p).iter().enumerate() {
                    for kl in 0..s * s {
                        let row = (i * b + e / b) * s + kl / s;
                        let column = (a.col()[p] as usize * b + e % b) * s + kl % s;
                        out[row * n + column] += c[(kl / s, kl % s)] * v;
                    }
                }
            }
        }
    }
    out
}

/// Solves A x = b by elimination with partial pivoting.
pub(super) fn solve(n: usize, mut a: Vec<f64>, mut b: Vec<f64>) -> Vec<f64> {
    for k in 0..n {
        let pivot = (k..n).max_by(|&i, &j| a[i * n + k].abs().total_cmp(&a[j * n + k].abs())).unwrap();
        (0..n).for_each(|j| a.swap(k * n + j, pivot * n + j));
        b.swap(k, pivot);
        for i in k + 1..n {
            let l = a[i * n + k] / a[k * n + k];
            (k..n).for_each(|j| a[i * n + j] -= l * a[k * n + j]);
            b[i] -= l * b[k];
        }
    }
    for k in (0..n).rev() {
        let known: f64 = (k + 1..n).map(|j| a[k * n + j] * b[j]).sum();
        b[k] = (b[k] - known) / a[k * n + k];
    }
    b
}

/// Checks that the factors give the same solution as elimination.
pub(super) fn hold(lu: &SparseLu, terms: &Terms, what: &str) {
    let n = terms.rows();
    let b: Vec<f64> = (0..n).map(|i| random(9, i as u64)).collect();
    let space = Cpu::new(n, 1);
    let (mut x, mut y, mut host) = (space.vector().unwrap(), space.vector().unwrap(), vec![f64::NAN; n]);
    space.write(&b, &mut x).unwrap();
    lu.apply(&space, &x, &mut y).unwrap();
    space.read(&y, &mut host).unwrap();
    let expected = solve(n, dense(terms), b);
    let size = expected.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    for (x, y) in host.iter().zip(&expected) {
        assert!((x - y).abs() <= 1e-8 * size, "{what}: {x} instead of {y}, largest {size:e}");
    }
}

/// Checks A x = b for a random b.
pub(super) fn solves(lu: &SparseLu, a: &Csr, what: &str) {
    let b: Vec<f64> = (0..a.rows()).map(|i| random(9, i as u64)).collect();
    let mut x = vec![f64::NAN; b.len()];
    lu.apply(&Cpu::new(b.len(), 1), &b, &mut x).unwrap();
    for (i, b) in b.iter().enumerate() {
        let (columns, values) = a.row(i);
        let product: f64 = columns.iter().zip(values).map(|(j, v)| v * x[*j as usize]).sum();
        assert!((product - b).abs() < 1e-9, "{what}: row {i} is {product} instead of {b}");
    }
}

/// Returns a matrix with some blocks per row at random positions, and one at the position given by a
/// permutation. Most diagonal entries are zero. `shift` rotates the permutation.
pub(super) fn random_blocks(seed: u64, block: usize, nodes: usize, shift: usize) -> Bsr {
    let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    for i in 0..nodes {
        let at = |k: usize| ((random(seed, (i * 8 + k) as u64) + 1.0) / 2.0 * nodes as f64) as usize;
        let mut row: Vec<usize> = (0..2).map(at).filter(|&j| j != i).chain([(i + shift) % nodes]).collect();
        row.sort_unstable();
        row.dedup();
        for j in row {
            let begin = values.len();
            values.extend((0..block * block).map(|e| 0.3 * random(seed + 1, (begin + e) as u64)));
            if j == (i + shift) % nodes {
                (0..block).for_each(|r| values[begin + r * block + (r + 1) % block] += 2.0);
            }
            col.push(j as u32);
        }
        row_ptr.push(col.len());
    }
    Bsr::new(block, nodes, nodes, row_ptr, col, values).unwrap()
}

#[test]
fn blocks_of_any_order_without_diagonals_are_solved_and_follow_new_values() {
    for block in 1..=5 {
        for (nodes, shift) in [(1, 0), (2, 1), (33, 1), (33, 7), (60, 0)] {
            let mut a = random_blocks(block as u64, block, nodes, shift);
            let what = format!("{nodes} blocks of order {block}, turned by {shift}");
            let mut lu = SparseLu::new(&Terms::bsr(&a), None).unwrap();
            hold(&lu, &Terms::bsr(&a), &what);
            a.values_mut().iter_mut().enumerate().for_each(|(e, v)| *v *= 1.0 + 0.2 * random(5, e as u64));
            lu.update_values(TermValues::matrix(a.values())).unwrap();
            hold(&lu, &Terms::bsr(&a), &what);
        }
    }
}

#[test]
fn stages_of_terms_with_other_patterns_are_summed() {
    for (block, stages) in [(1, 2), (2, 3), (3, 1)] {
        let (m, l) = (random_blocks(3, block, 21, 0), random_blocks(4, block, 21, 2));
        let number = |e: usize| random(6, e as u64) + if e % (stages + 1) == 0 { 3.0 } else { 0.0 };
        let tau_b = Dense::new(stages, stages, (0..stages * stages).map(number).collect()).unwrap();
        let terms = [(Dense::identity(stages), &m), (tau_b, &l)].map(|(c, a)| (c, Cow::Borrowed(a)));
        let terms = Terms { terms: terms.into(), halo: None };
        hold(&SparseLu::new(&terms, None).unwrap(), &terms, &format!("{stages} stages of {block}"));
    }
}

/// Returns the 5-point Laplacian, with `shift` subtracted from its diagonal.
fn laplace(side: usize, shift: f64) -> Csr {
    let mut entries = Vec::new();
    for i in 0..side * side {
        entries.push((i, i, 4.0 - shift));
        let right = (i % side + 1 < side).then_some(i + 1);
        for j in right.into_iter().chain((i + side < side * side).then_some(i + side)) {
            entries.extend([(i, j, -1.0), (j, i, -1.0)]);
        }
    }
    csr(side * side, side * side, &entries).unwrap()
}

#[test]
fn definite_systems_take_cholesky_until_they_no_longer_are() {
    let a = laplace(18, 0.0);
    let mut lu = SparseLu::new(&Terms::csr(&a).unwrap(), None).unwrap();
    assert_eq!(lu.kind(), "Cholesky");
    hold(&lu, &Terms::csr(&a).unwrap(), "laplace");
    // Positive diagonals, and eigenvalues of both signs.
    for shift in [1.1, 0.5] {
        let indefinite = laplace(18, shift);
        lu.update_values(TermValues::matrix(indefinite.values())).unwrap();
        assert_eq!(lu.kind(), "LBLᵀ");
        hold(&lu, &Terms::csr(&indefinite).unwrap(), "shifted");
    }
}

#[test]
fn symmetry_up_to_rounding_is_symmetry() {
    let a = laplace(18, 0.0);
    let with = |size: f64| {
        let rows = |i: usize| a.row(i).0.iter().zip(a.row(i).1).map(move |(j, v)| (i, *j as usize, *v));
        let mut entries: Vec<_> = (0..a.rows()).flat_map(rows).collect();
        // These are rounding errors of assembly: entries (i, j) without (j, i), before, between and after
        // other entries of a row, and a difference in the last digit of an existing entry.
        entries.extend([(3, 200, size), (40, 7, -size), (300, 5, size), (11, 12, size)]);
        let a = csr(a.rows(), a.rows(), &entries).unwrap();
        let terms = Terms::csr(&a).unwrap();
        let lu = SparseLu::new(&terms, None).unwrap();
        hold(&lu, &terms, "nearly symmetric");
        lu.kind()
    };
    assert_eq!(with(1e-16), "Cholesky");
    assert_eq!(with(1e-10), "LU");
}

/// The system is large enough for dense blocks within the factors.
#[test]
fn wide_factors_hold_too() {
    let n = 150;
    let entries: Vec<(usize, usize, f64)> =
        (0..n * n).map(|e| (e / n, e % n, random(8, e as u64))).filter(|e| (e.0 + 3 * e.1) % 4 > 0).collect();
    let a = csr(n, n, &entries).unwrap();
    let terms = Terms::csr(&a).unwrap();
    hold(&SparseLu::new(&terms, None).unwrap(), &terms, "wide");
}

#[test]
fn saddle_points_are_solved() {
    let (n, m) = (40, 15);
    let mut entries: Vec<(usize, usize, f64)> = (0..n).map(|i| (i, i, 2.0 + (i % 3) as f64)).collect();
    for k in 0..m {
        for (i, v) in [(2 * k, 1.0), (2 * k + 5, -1.0 - k as f64 / 9.0)] {
            entries.extend([(n + k, i, v), (i, n + k, v)]);
        }
    }
    let a = csr(n + m, n + m, &entries).unwrap();
    let terms = Terms::csr(&a).unwrap();
    let lu = SparseLu::new(&terms, None).unwrap();
    assert_eq!(lu.kind(), "LU"); // pivots of zero
    hold(&lu, &terms, "saddle point");
}

#[test]
fn singular_systems_are_refused_and_new_values_mend_them() {
    let of = |entries: &[(usize, usize, f64)]| csr(3, 3, entries).unwrap();
    let refused = |a: &Csr| SparseLu::new(&Terms::csr(a).unwrap(), None).err().unwrap().to_string();
    let empty = refused(&of(&[(0, 0, 1.0), (0, 1, 2.0), (2, 2, 1.0)]));
    assert!(empty.contains("row 1 has no nonzero entry"), "{empty}");
    let column = refused(&of(&[(0, 0, 1.0), (1, 0, 2.0), (2, 2, 1.0)]));
    assert!(column.contains("column 1 has no nonzero entry"), "{column}");
    let twice = of(&[(0, 0, 1.0), (0, 1, 2.0), (1, 0, 2.0), (1, 1, 4.0), (2, 2, 1.0)]);
    assert!(refused(&twice).contains("singular (order 3"));
    // Without boundary values, constants are a null vector.
    let mut free = laplace(12, 0.0);
    let (ptr, col) = (free.row_ptr().to_vec(), free.col().to_vec());
    for i in 0..144 {
        let row = ptr[i]..ptr[i + 1];
        let at = row.clone().find(|&p| col[p] as usize == i).unwrap();
        free.values_mut()[at] = (row.len() - 1) as f64;
    }
    assert!(refused(&free).contains("singular"));
    let mut mended = laplace(12, 0.0);
    let mut lu = SparseLu::new(&Terms::csr(&mended).unwrap(), None).unwrap();
    assert!(lu.update_values(TermValues::matrix(free.values())).is_err());
    let space = Cpu::new(144, 1);
    let (x, mut y) = (space.vector().unwrap(), space.vector().unwrap());
    assert!(lu.apply(&space, &x, &mut y).unwrap_err().to_string().contains("could not be factorised"));
    mended.values_mut().iter_mut().for_each(|v| *v *= 2.0);
    lu.update_values(TermValues::matrix(mended.values())).unwrap();
    hold(&lu, &Terms::csr(&mended).unwrap(), "mended");
}

#[test]
fn no_rows_are_solved_and_too_little_room_is_refused() {
    let empty = csr(0, 0, &[]).unwrap();
    hold(&SparseLu::new(&Terms::csr(&empty).unwrap(), None).unwrap(), &Terms::csr(&empty).unwrap(), "none");
    for shift in [0.0, 5.0] {
        let a = laplace(10, shift);
        let error = SparseLu::new(&Terms::csr(&a).unwrap(), Some(1000)).err().unwrap();
        assert!(matches!(error, Error::Memory { free: 1000, needed: 1001.., .. }), "{error}");
        assert!(SparseLu::new(&Terms::csr(&a).unwrap(), Some(1 << 20)).is_ok());
    }
}

/// The bound of the fill is never below the actual fill. The matrix has a dense row and a dense column, where
/// they cause the most fill.
#[test]
fn fill_is_bounded() {
    let n = 30;
    let entries: Vec<(usize, usize, f64)> =
        (0..n).flat_map(|i| [(i, i, 0.1), (0, i, 1.0 + i as f64), (i, 0, 2.0)]).collect();
    let a = csr(n, n, &entries).unwrap();
    let lu = SparseLu::new(&Terms::csr(&a).unwrap(), None).unwrap();
    assert!(
        lu.kind() == "LU" && lu.numbers() >= a.values().len() && lu.numbers() <= n * (n + 1),
        "{}",
        lu.numbers()
    );
    hold(&lu, &Terms::csr(&a).unwrap(), "arrow");
}

/// Returns A x.
fn product(terms: &Terms, x: &[f64]) -> Vec<f64> {
    dense(terms).chunks_exact(x.len()).map(|row| row.iter().zip(x).map(|(a, x)| a * x).sum()).collect()
}

/// Checks that A y = x for random x in the range of A, and that y is zero at one unknown for each null
/// vector.
fn hold_singular(terms: &Terms, null: &[Vec<f64>], kind: &str) {
    let n = terms.rows();
    assert!(null.iter().all(|v| product(terms, v).iter().all(|p| p.abs() < 1e-12)), "{kind}: no null vector");
    let lu = SparseLu::with_null_vectors(terms, null, None).unwrap();
    assert_eq!(lu.kind(), kind);
    let b = product(terms, &(0..n).map(|i| random(9, i as u64)).collect::<Vec<_>>());
    let (space, mut y) = (Cpu::new(n, 1), vec![f64::NAN; n]);
    lu.apply(&space, &b, &mut y).unwrap();
    let off = product(terms, &y).iter().zip(&b).map(|(p, b)| (p - b).abs()).fold(0.0, f64::max);
    assert!(off < 1e-9, "{kind}: off by {off:e}");
    assert_eq!(y.iter().filter(|y| **y == 0.0).count(), null.len(), "{kind}");
}

/// Returns the Laplacian of a path of `n` nodes with free ends, numbered from `first` on.
fn free(first: usize, n: usize, below: f64) -> Vec<(usize, usize, f64)> {
    let spring = |i| [(i, i, 1.0), (i, i + 1, -1.0), (i + 1, i, -below), (i + 1, i + 1, below)];
    (first..first + n - 1).flat_map(spring).collect()
}

#[test]
fn null_vectors_that_are_named_leave_an_inverse() {
    let one = csr(20, 20, &free(0, 20, 1.0)).unwrap();
    hold_singular(&Terms::csr(&one).unwrap(), &[vec![1.0; 20]], "Cholesky");
    // Two bodies, null vectors far from orthogonal.
    let two = csr(30, 30, &[free(0, 12, 1.0), free(12, 18, 1.0)].concat()).unwrap();
    let oblique = |share: f64| (0..30).map(|i| if i < 12 { 1.0 } else { share }).collect::<Vec<f64>>();
    hold_singular(&Terms::csr(&two).unwrap(), &[oblique(1.0), oblique(0.9)], "Cholesky");
    // Aᵀ has another null vector.
    let uneven = csr(20, 20, &free(0, 20, 1.5)).unwrap();
    hold_singular(&Terms::csr(&uneven).unwrap(), &[vec![1.0; 20]], "LU");
    // Pressures of an enclosed flow, which have no diagonal entry.
    let mut entries = free(0, 6, 1.0);
    (0..6).for_each(|i| entries.push((i, i, 2.0)));
    (0..6)
        .for_each(|i| entries.extend([(i, 6 + i, 1.0), (6 + i, i, 1.0), (i, 7 + i, -1.0), (7 + i, i, -1.0)]));
    let flow = csr(13, 13, &entries).unwrap();
    let pressure = (0..13).map(|i| f64::from(u8::from(i >= 6))).collect();
    hold_singular(&Terms::csr(&flow).unwrap(), &[pressure], "LU");
    // Several unknowns a node, and several stages.
    let blocks = Bsr::from_csr(&one, 2).unwrap();
    hold_singular(&Terms::bsr(&blocks), &[vec![1.0; 20]], "Cholesky");
    let stages = [(Dense::identity(2), Cow::Borrowed(&blocks))];
    let stage = |k: usize| (0..40).map(|i| f64::from(u8::from(i % 2 == k))).collect::<Vec<f64>>();
    hold_singular(&Terms { terms: stages.into(), halo: None }, &[stage(0), stage(1)], "Cholesky");
    // Linearly dependent vectors, and vectors that are not null vectors of the matrix.
    let terms = Terms::csr(&two).unwrap();
    let refused =
        |null: &[Vec<f64>]| SparseLu::with_null_vectors(&terms, null, None).err().unwrap().to_string();
    assert!(refused(&[oblique(1.0), oblique(1.0)]).contains("linearly dependent on the others"));
    assert!(refused(&[vec![1.0; 3]]).contains("null vector 0"));
    assert!(refused(&[oblique(1.0)]).contains("singular"));
}

/// A grid of m² nodes has about 31 n log₂ n / 4 entries in its factor by dissection (George 1973), and no
/// order has fewer than 3 n. Rows may be in any order and twice, and mirrored entries may be missing.
#[test]
fn the_cost_of_a_pattern_is_that_of_its_symmetric_part() {
    let path = |m: usize, i: usize| [i.checked_sub(1), Some(i), (i + 1 < m).then_some(i + 1)];
    let (m, n) = (24, 576.0f64);
    let cost = |whole: bool| {
        let (mut ptr, mut col) = (vec![0], Vec::new());
        for k in 0..m * m {
            let (x, y) = (k % m, k / m);
            col.extend(path(m, x).into_iter().flatten().map(|x| (x + m * y) as u32));
            // In y, entries of the lower triangle only: the graph is that of A + Aᵀ.
            let rows = path(m, y).into_iter().flatten().filter(|&i| i < y || whole);
            col.extend(rows.map(|y| (x + m * y) as u32));
            ptr.push(col.len());
        }
        super::cost_by_degree(&ptr, &col, 1.0).unwrap()
    };
    let found = cost(false);
    assert_eq!(found, cost(true));
    assert!((3.0 * n..7.75 * n * n.log2()).contains(&found.entries), "{found:?}");
    assert!(found.operations > found.entries * found.entries / n, "{found:?}");
    assert_eq!(super::cost_by_degree(&[0, 1, 2], &[0, 1], 0.5), None, "each row differs");
}
