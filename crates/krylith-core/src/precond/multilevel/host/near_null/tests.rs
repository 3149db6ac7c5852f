//! Tests that compare aggregation from near-null vectors with dense algebra.

use super::*;
use crate::operator::Terms;
use crate::precond::multilevel::host::galerkin as products;

/// Returns a symmetric, diagonally dominant block matrix on a ring of `n` nodes. Each node is coupled to the
/// next two nodes on both sides.
fn ring(n: usize, b: usize) -> Bsr {
    let pair = |i: usize, j: usize, r: usize, c: usize| {
        let (low, high) = ((i * b + r).min(j * b + c), (i * b + r).max(j * b + c));
        random(3, (low * n * b + high) as u64)
    };
    let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    for i in 0..n {
        let mut near: Vec<usize> = [0, 1, 2, n - 1, n - 2].iter().map(|d| (i + d) % n).collect();
        near.sort_unstable();
        near.dedup();
        for j in near {
            col.push(j as u32);
            let entry = |e: usize| {
                let dominant = if i == j && e / b == e % b { 6.0 * b as f64 } else { 0.0 };
                dominant + pair(i, j, e / b, e % b)
            };
            values.extend((0..b * b).map(entry));
        }
        row_ptr.push(col.len());
    }
    Bsr::new(b, n, n, row_ptr, col, values).unwrap()
}

/// A dense matrix: number of rows, number of columns, and values by rows.
struct Whole(usize, usize, Vec<f64>);

impl Whole {
    fn of_blocks(p: &Blocks) -> Self {
        let [b, k] = p.shape;
        let (rows, columns) = (p.own * b, p.columns * k);
        let mut whole = vec![0.0; rows * columns];
        for i in 0..p.own {
            for e in p.row_ptr[i]..p.row_ptr[i + 1] {
                for (at, v) in p.block(e).iter().enumerate() {
                    whole[(i * b + at / k) * columns + p.col[e] as usize * k + at % k] = *v;
                }
            }
        }
        Self(rows, columns, whole)
    }

    fn of(a: &Bsr) -> Self {
        let (b, columns) = (a.block(), a.columns());
        let mut whole = vec![0.0; a.rows() * columns];
        for i in 0..a.block_rows() {
            for e in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                for (at, v) in a.block_values(e).iter().enumerate() {
                    whole[(i * b + at / b) * columns + a.col()[e] as usize * b + at % b] = *v;
                }
            }
        }
        Self(a.rows(), columns, whole)
    }

    fn turned(&self) -> Self {
        let at = |e: usize| self.2[e % self.0 * self.1 + e / self.0];
        Self(self.1, self.0, (0..self.0 * self.1).map(at).collect())
    }

    fn times(&self, other: &Self) -> Self {
        let at = |e: usize| {
            let (i, j) = (e / other.1, e % other.1);
            (0..self.1).map(|k| self.2[i * self.1 + k] * other.2[k * other.1 + j]).sum()
        };
        Self(self.0, other.1, (0..self.0 * other.1).map(at).collect())
    }

    fn difference(&self, other: &Self) -> f64 {
        assert_eq!((self.0, self.1), (other.0, other.1));
        self.2.iter().zip(&other.2).fold(0.0, |most, (x, y)| f64::max(most, (x - y).abs()))
    }
}

fn vectors(n: usize, b: usize, k: usize) -> NearNull {
    NearNull::of_numbers(k, (0..n * b * k).map(|e| random(4, e as u64)).collect())
}

/// T has orthonormal columns, and its range contains the vectors. The transfer is P and its transpose, for
/// any block size.
#[test]
fn tentative_columns_span_the_vectors() {
    for threads in [1, 3] {
        let pool = Pool::eager(threads);
        for (b, k) in [(1, 1), (1, 2), (2, 3), (3, 6), (6, 6), (4, 2), (3, 8)] {
            // There are aggregates of five nodes, and a node without an aggregate.
            let n = 31;
            let aggregates: Vec<u32> = (0..n as u32).map(|i| if i == 7 { FINE } else { i % 6 }).collect();
            let near = vectors(n, b, k);
            let (t, coarse) = tentative(&pool, &aggregates, 6, b, &near);
            let whole = Whole::of_blocks(&t);
            let identity = (0..36 * k * k).map(|e| f64::from(u8::from(e / (6 * k) == e % (6 * k)))).collect();
            // With fewer rows than columns, the last columns are 0.
            if 5 * b >= k {
                let gram = whole.turned().times(&whole);
                assert!(gram.difference(&Whole(6 * k, 6 * k, identity)) < 1e-13, "{b} {k}");
            }
            let spanned = whole.times(&Whole(6 * k, k, coarse.numbers(&pool).into_owned()));
            let at = |e: usize| if e / k / b == 7 { 0.0 } else { near.numbers(&pool)[e] };
            let wanted = Whole(n * b, k, (0..n * b * k).map(at).collect());
            assert!(spanned.difference(&wanted) < 1e-13, "{b} {k}");
            let Transfer { prolongation, restriction, .. } = t.transfer();
            assert_eq!(Whole::of(&prolongation).difference(&whole), 0.0, "{b} {k}");
            assert_eq!(Whole::of(&restriction).difference(&whole.turned()), 0.0, "{b} {k}");
        }
    }
}

fn galerkin(pool: &Pool, a: &Bsr, p: &Blocks) -> Bsr {
    let mut coarse = product(pool, a, p);
    fill_diagonals(&mut coarse);
    coarse
}

/// P = (I − ω D⁻¹A) T and Pᵀ A P hold entry by entry, and are the same on any number of threads.
#[test]
fn smoothed_columns_and_products_match_dense_algebra() {
    for (b, k) in [(1, 1), (2, 3), (3, 6), (6, 6)] {
        let (n, one) = (24, Pool::eager(1));
        let (a, near) = (ring(n, b), vectors(n, b, k));
        let aggregates: Vec<u32> = (0..n as u32).map(|i| i / 4).collect();
        let (t, _) = tentative(&one, &aggregates, 6, b, &near);
        let inverse = inverse_diagonal(&one, &a);
        let omega = damping(&one, &a, &inverse);
        let p = smoothed(&one, &a, &t, omega);
        let whole = Whole::of(&a);
        let mut scaled = vec![0.0; n * b * n * b];
        for (i, block) in inverse.chunks_exact(b * b).enumerate() {
            let rows = Whole(b, n * b, whole.2[i * b * n * b..][..b * n * b].to_vec());
            let product = Whole(b, b, block.to_vec()).times(&rows);
            scaled[i * b * n * b..][..b * n * b].copy_from_slice(&product.2);
        }
        // Compute the largest eigenvalue of D⁻¹A by many more power iterations than `damping` takes.
        let step = Whole(n * b, n * b, scaled);
        let mut v = Whole(n * b, 1, (0..n * b).map(|i| random(5, i as u64)).collect());
        let mut largest = 0.0;
        for _ in 0..2000 {
            v = step.times(&v);
            largest = v.2.iter().fold(0.0f64, |most, x| most.max(x.abs()));
            v.2.iter_mut().for_each(|x| *x /= largest);
        }
        assert!((1.0..1.2).contains(&(omega * largest / OMEGA)), "{b} {k}: {omega} for {largest}");
        let dense = Whole::of_blocks(&t);
        let smoothing = step.times(&dense);
        let at = |e: usize| dense.2[e] - omega * smoothing.2[e];
        let wanted = Whole(dense.0, dense.1, (0..dense.2.len()).map(at).collect());
        let found = Whole::of_blocks(&p);
        assert!(found.difference(&wanted) < 1e-13, "{b} {k}");
        let coarse = galerkin(&one, &a, &p);
        let wanted = found.turned().times(&whole.times(&found));
        assert!(Whole::of(&coarse).difference(&wanted) < 1e-12 * 6.0 * b as f64, "{b} {k}");
        let three = Pool::eager(3);
        let again = galerkin(&three, &a, &smoothed(&three, &a, &t, omega));
        assert_eq!((again.values(), again.col()), (coarse.values(), coarse.col()), "{b} {k}");
    }
}

/// With the constant as its only vector, a scalar matrix has the same coarse level as without vectors, except
/// for scaling.
#[test]
fn constants_give_plain_aggregation() {
    let (pool, a) = (Arc::new(Pool::eager(1)), ring(40, 1));
    let near = NearNull::of_numbers(1, vec![1.0; 40]);
    let couplings = products::couplings(&pool, &Terms::bsr(&a)).unwrap();
    let how = Coarsening::of(CoarsenKind::Aggregation { smoothed: false });
    let made = transfer(&pool, &a, &couplings, &near, &how, 0, 40).unwrap().unwrap();
    let (p, coarse) = (made.nodal.transfer().unwrap().prolongation, made.near);
    let fewer = p.block_columns() - 1;
    assert!(transfer(&pool, &a, &couplings, &near, &how, 0, fewer).unwrap().is_none());
    let plain = super::super::prolongation(&pool, &couplings, &how, 0, None).unwrap().unwrap().prolongation;
    assert_eq!((p.row_ptr(), p.col()), (plain.row_ptr(), plain.col()));
    // Columns of P have norm 1 here, instead of entries 1.
    for (p, j) in p.values().iter().zip(p.col()) {
        assert!((p * coarse.numbers(&pool)[*j as usize] - 1.0).abs() < 1e-14);
    }
    let refused = transfer(&pool, &a, &couplings, &near, &Coarsening::default(), 0, 40);
    assert!(
        refused.err().unwrap().to_string().contains("coarsen=classical does not accept near-null vectors")
    );
}

/// With six modes on aggregates of one node with three components, three unknowns remain. The others are
/// uncoupled, and their diagonal entries are filled.
#[test]
fn modes_that_depend_on_others_are_left_out() {
    let (pool, a) = (Pool::eager(1), ring(12, 3));
    let aggregates: Vec<u32> = (0..12).collect();
    let (t, _) = tentative(&pool, &aggregates, 12, 3, &vectors(12, 3, 6));
    let coarse = galerkin(&pool, &a, &t);
    for i in 0..12 {
        for e in coarse.row_ptr()[i]..coarse.row_ptr()[i + 1] {
            let own = coarse.col()[e] as usize == i;
            for (at, v) in coarse.block_values(e).iter().enumerate() {
                let (r, c) = (at / 6, at % 6);
                if r >= 3 || c >= 3 {
                    assert_eq!(*v > 0.0, own && r == c, "{i}: {r}, {c}");
                }
            }
        }
    }
}
