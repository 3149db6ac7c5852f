//! Incomplete factors on subdomains against a plain sequential reference, their errors and their effect.

mod common;

use common::{Random, dense, distance, norm, random_bsr, random_kronecker, solve};
use krylith::device::cpu::Cpu;
use krylith::matrix::{Bsr, Csr, Dense, KroneckerSum};
use krylith::method::{Gmres, GmresOptions};
use krylith::operator::{LinearOperator, PointBlock, Terms};
use krylith::partition::Subdomains;
use krylith::precond::{BlockJacobi, Ildu, IlduOptions, PivotKind, Plan, SubdomainFactors, invert_block};
use krylith::space::Space;
use krylith::{Error, Outcome, Stop, Store};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Row-major blocks by row and column.
type Blocks = BTreeMap<(usize, usize), Vec<f64>>;

/// c = a b.
fn times(m: usize, a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut c = vec![0.0; m * m];
    for r in 0..m {
        for q in 0..m {
            c[r * m + q] = (0..m).map(|k| a[r * m + k] * b[k * m + q]).sum();
        }
    }
    c
}

/// Block ILU(k) of each subdomain in ascending order of rows, from the textbook: levels of fill of all pairs, then IKJ
/// elimination on the pairs kept. L and U are those of (I + L) D (I + U), with D⁻¹ on the diagonal.
fn reference(a: &Bsr, subdomains: &Subdomains, fill: usize) -> Blocks {
    let m = a.block();
    let mut all = Blocks::new();
    for p in 0..subdomains.count() {
        let rows = subdomains.rows(p);
        let n = rows.len();
        let mut level = vec![vec![usize::MAX; n]; n];
        let mut block = vec![vec![vec![0.0; m * m]; n]; n];
        for (i, &row) in rows.iter().enumerate() {
            level[i][i] = 0;
            for e in a.row_ptr()[row as usize]..a.row_ptr()[row as usize + 1] {
                if let Ok(j) = rows.binary_search(&a.col()[e]) {
                    level[i][j] = 0;
                    block[i][j] = a.block_values(e).to_vec();
                }
            }
        }
        for i in 0..n {
            for k in 0..i {
                if level[i][k] > fill {
                    continue;
                }
                for j in k + 1..n {
                    let new = level[i][k].saturating_add(level[k][j]).saturating_add(1);
                    level[i][j] = level[i][j].min(new);
                }
            }
        }
        let mut inverse = vec![Vec::new(); n];
        for i in 0..n {
            for k in 0..i {
                if level[i][k] > fill {
                    continue;
                }
                block[i][k] = times(m, &block[i][k], &inverse[k]);
                for j in k + 1..n {
                    if level[i][j] <= fill && level[k][j] <= fill {
                        let update = times(m, &block[i][k], &block[k][j]);
                        block[i][j].iter_mut().zip(update).for_each(|(b, u)| *b -= u);
                    }
                }
            }
            inverse[i] = vec![0.0; m * m];
            assert!(invert_block(m, &mut block[i][i].clone(), &mut inverse[i]), "reference pivot");
        }
        for i in 0..n {
            for j in (0..n).filter(|&j| level[i][j] <= fill) {
                let value = match j.cmp(&i) {
                    std::cmp::Ordering::Less => block[i][j].clone(),
                    std::cmp::Ordering::Equal => inverse[i].clone(),
                    std::cmp::Ordering::Greater => times(m, &inverse[i], &block[i][j]),
                };
                all.insert((rows[i] as usize, rows[j] as usize), value);
            }
        }
    }
    all
}

/// (I + U)⁻¹ D⁻¹ (I + L)⁻¹ x, rows ascending: subdomains do not meet.
fn apply(m: usize, n: usize, factors: &Blocks, x: &[f64]) -> Vec<f64> {
    let mut y = x.to_vec();
    let multiply = |block: &[f64], x: &[f64]| -> Vec<f64> {
        (0..m).map(|r| (0..m).map(|c| block[r * m + c] * x[c]).sum()).collect()
    };
    for i in 0..n {
        for (&(_, j), block) in factors.range((i, 0)..(i, i)) {
            let update = multiply(block, &y[j * m..(j + 1) * m]);
            (0..m).for_each(|r| y[i * m + r] -= update[r]);
        }
    }
    for i in (0..n).rev() {
        let mut z = multiply(&factors[&(i, i)], &y[i * m..(i + 1) * m]);
        for (&(_, j), block) in factors.range((i, i + 1)..(i + 1, 0)) {
            let update = multiply(block, &y[j * m..(j + 1) * m]);
            (0..m).for_each(|r| z[r] -= update[r]);
        }
        y[i * m..(i + 1) * m].copy_from_slice(&z);
    }
    y
}

/// What a device holds, by block row and column.
fn read(space: &Cpu, ildu: &Ildu<Cpu>) -> Blocks {
    let (plan, values) = (ildu.plan(), space.read_factors(ildu.factors()).unwrap());
    let mm = plan.order * plan.order;
    let mut all = Blocks::new();
    for p in 0..plan.count() {
        for i in plan.ptr[p]..plan.ptr[p + 1] {
            for e in plan.row_ptr[i]..plan.row_ptr[i + 1] {
                let j = plan.rows[plan.ptr[p] + plan.columns[e] as usize];
                all.insert((plan.rows[i] as usize, j as usize), values[e * mm..(e + 1) * mm].to_vec());
            }
        }
    }
    all
}

fn check_factors(got: &Blocks, expected: &Blocks, what: &str) {
    assert!(got.keys().eq(expected.keys()), "{what}: another pattern");
    let scale = expected.values().flatten().fold(0.0f64, |m, v| m.max(v.abs()));
    for (at, block) in expected {
        let error = block.iter().zip(&got[at]).fold(0.0f64, |m, (a, b)| m.max((a - b).abs()));
        assert!(error <= 1e-12 * scale, "{what}: block {at:?} is off by {error} of {scale}");
    }
}

/// Labels at random, some never used.
fn random_subdomains(rng: &mut Random, n: usize, count: usize) -> Subdomains {
    let labels: Vec<u32> = (0..n).map(|_| rng.below(count) as u32).collect();
    Subdomains::from_labels(&labels, count + 2).unwrap()
}

fn options(fill: usize) -> IlduOptions {
    IlduOptions { fill, ..IlduOptions::default() }
}

fn check(terms: &Terms, assembled: &Bsr, subdomains: &Subdomains, fill: usize, rng: &mut Random, what: &str) {
    let space = Cpu::new(terms.rows(), 2);
    let ildu = Ildu::new(&space, terms, subdomains, options(fill)).unwrap();
    let expected = reference(assembled, subdomains, fill);
    check_factors(&read(&space, &ildu), &expected, what);
    let x = rng.numbers(terms.rows());
    let mut y = vec![f64::NAN; terms.rows()];
    ildu.apply(&space, &x, &mut y).unwrap();
    let z = apply(assembled.block(), assembled.block_rows(), &expected, &x);
    assert!(distance(&y, &z) < 1e-12, "{what}: application off by {}", distance(&y, &z));
}

#[test]
fn factors_and_application_match_a_sequential_reference() {
    let mut rng = Random(1);
    for order in [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32] {
        for (n, count) in [(1, 1), (2, 1), (33, 1), (57, 3), (64, 9)] {
            for fill in [0, 1, 3] {
                let a = random_bsr(&mut rng, order, n, n, 3, true);
                let subdomains = random_subdomains(&mut rng, n, count);
                let what = format!("order {order}, {n} rows, {count} subdomains, ILU({fill})");
                check(&Terms::bsr(&a), &a, &subdomains, fill, &mut rng, &what);
            }
        }
    }
}

#[test]
fn sums_of_terms_match_the_assembled_matrix() {
    let mut rng = Random(2);
    for (b, s) in [(1, 1), (1, 2), (2, 2), (4, 2), (3, 3), (4, 3), (4, 4)] {
        for same in [true, false] {
            for fill in [0, 1] {
                let k = random_kronecker(&mut rng, b, s, 40, 3, same, true);
                let subdomains = random_subdomains(&mut rng, 40, 4);
                let what = format!("b={b} s={s} same={same} ILU({fill})");
                check(&Terms::kronecker(&k), &k.assemble(), &subdomains, fill, &mut rng, &what);
            }
        }
    }
}
