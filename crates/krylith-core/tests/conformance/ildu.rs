//! Incomplete factors of subdomains: what every device must make of them.

use super::{Make, applied};
use crate::common::*;
use krylith_core::matrix::{Bsr, Csr, Dense, KroneckerSum};
use krylith_core::operator::Terms;
use krylith_core::partition::Subdomains;
use krylith_core::precond::{Ildu, IlduOptions, Plan, SubdomainFactors, invert_block};
use krylith_core::{Error, Precision};
use std::collections::BTreeMap;

type Blocks = BTreeMap<(usize, usize), Vec<f64>>;

/// The blocks of order b·s that `terms` has among the rows of one subdomain, by number within it.
fn blocks(terms: &Terms, rows: &[u32]) -> Blocks {
    let (b, s) = (terms.block(), terms.stages());
    let local: BTreeMap<u32, usize> = rows.iter().enumerate().map(|(i, &r)| (r, i)).collect();
    let mut out = Blocks::new();
    for (c, a) in terms.terms() {
        for (i, &row) in rows.iter().enumerate() {
            for p in a.row_ptr()[row as usize]..a.row_ptr()[row as usize + 1] {
                let Some(&j) = local.get(&a.col()[p]) else { continue };
                let (n, block) = (b * s, a.block_values(p));
                let to = out.entry((i, j)).or_insert_with(|| vec![0.0; n * n]);
                for e in 0..n * n {
                    let (r, q) = (e / n, e % n);
                    to[e] += c[(r % s, q % s)] * block[r / s * b + q / s];
                }
            }
        }
    }
    out
}

/// Returns x after one application, by the textbook (Saad, Alg. 10.3 with blocks): ILU(0) row by row, in the
/// order of `rows`, which for grids is a wavefront order.
fn reference(terms: &Terms, rows: &[u32], x: &[f64]) -> Vec<f64> {
    let (n, order) = (rows.len(), terms.block() * terms.stages());
    let mut a = blocks(terms, rows);
    let mut inverse = vec![vec![0.0; order * order]; n];
    for i in 0..n {
        let lower: Vec<usize> = a.range((i, 0)..(i, i)).map(|(k, _)| k.1).collect();
        for k in lower {
            let mut l = vec![0.0; order * order];
            add_product(&mut l, -1.0, &a[&(i, k)], &inverse[k], order);
            l.iter_mut().for_each(|v| *v = -*v);
            let upper: Vec<usize> = a.range((k, k + 1)..(k, n)).map(|(k, _)| k.1).collect();
            for j in upper {
                let u = a[&(k, j)].clone();
                if let Some(to) = a.get_mut(&(i, j)) {
                    add_product(to, -1.0, &l, &u, order);
                }
            }
            a.insert((i, k), l);
        }
        assert!(
            invert_block(order, &mut a[&(i, i)].clone(), &mut inverse[i]),
            "the reference met a singular pivot"
        );
    }
    let mut y = x.to_vec();
    let take = |y: &mut [f64], i: usize, j: usize, a: &[f64]| {
        for r in 0..order {
            y[i * order + r] -= (0..order).map(|c| a[r * order + c] * y[j * order + c]).sum::<f64>();
        }
    };
    for i in 0..n {
        a.range((i, 0)..(i, i)).for_each(|(&(_, j), block)| take(&mut y, i, j, block));
    }
    for i in (0..n).rev() {
        a.range((i, i + 1)..(i, n)).for_each(|(&(_, j), block)| take(&mut y, i, j, block));
        let own = y[i * order..][..order].to_vec();
        for r in 0..order {
            y[i * order + r] = (0..order).map(|c| inverse[i][r * order + c] * own[c]).sum();
        }
    }
    y
}

/// All subdomains of the reference, eliminated in the plan's order of rows, in the order of the whole vector.
pub fn whole(terms: &Terms, plan: &Plan, x: &[f64]) -> Vec<f64> {
    let order = terms.block() * terms.stages();
    let mut y = vec![0.0; x.len()];
    for p in 0..plan.count() {
        let rows = &plan.rows[plan.ptr[p]..plan.ptr[p + 1]];
        let own: Vec<f64> = rows.iter().flat_map(|&i| &x[i as usize * order..][..order]).copied().collect();
        for (&i, values) in rows.iter().zip(reference(terms, rows, &own).chunks_exact(order)) {
            y[i as usize * order..][..order].copy_from_slice(values);
        }
    }
    y
}

/// A 7-point grid with random blocks, dominant on the diagonal.
pub fn grid(rng: &mut Random, [nx, ny, nz]: [usize; 3], b: usize) -> Bsr {
    let n = nx * ny * nz;
    let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    for i in 0..n {
        let (x, y, z) = (i % nx, i / nx % ny, i / (nx * ny));
        let mut near = vec![i];
        near.extend([(x > 0, 1), (y > 0, nx), (z > 0, nx * ny)].into_iter().filter(|n| n.0).map(|n| i - n.1));
        let after = [(x + 1 < nx, 1), (y + 1 < ny, nx), (z + 1 < nz, nx * ny)];
        near.extend(after.into_iter().filter(|n| n.0).map(|n| i + n.1));
        near.sort_unstable();
        for j in near {
            col.push(j as u32);
            for e in 0..b * b {
                let dominant = if i == j && e / b == e % b { 8.0 * b as f64 } else { 0.0 };
                values.push(dominant + rng.number());
            }
        }
        row_ptr.push(col.len());
    }
    Bsr::new(b, n, n, row_ptr, col, values).unwrap()
}

pub fn runs(n: usize, rows: usize) -> Subdomains {
    let labels: Vec<u32> = (0..n).map(|i| (i / rows) as u32).collect();
    Subdomains::from_labels(&labels, n.div_ceil(rows)).unwrap()
}

/// Consecutive and scattered subdomains, ragged and whole ones, all orders of blocks, both precisions.
pub fn factors_match_the_textbook<S: SubdomainFactors>(make: Make<S>) {
    let mut rng = Random(41);
    let mut check = |what: &str, terms: &Terms, subdomains: &Subdomains| {
        let n = terms.rows();
        let x = rng.numbers(n);
        for (precision, tolerance) in [(Precision::F64, 1e-12), (Precision::F32, 1e-5)] {
            let space = make(n);
            let options = IlduOptions { precision, ..IlduOptions::default() };
            let p = Ildu::new(&space, terms, subdomains, options).unwrap();
            let plan = Plan::new(terms, subdomains, 0).unwrap();
            let d = distance(&applied(&space, &p, &x), &whole(terms, &plan, &x));
            assert!(d <= tolerance, "{what}, {precision:?}: {d:e}");
        }
    };
    let mut rng = Random(42);
    for b in 1..=8 {
        let a = grid(&mut rng, [9, 7, 6], b);
        check(&format!("boxes, b={b}"), &Terms::bsr(&a), &Subdomains::boxes([9, 7, 6], [4, 4, 4]));
        check(&format!("whole, b={b}"), &Terms::bsr(&a), &Subdomains::whole(9 * 7 * 6));
        let a = random_bsr(&mut rng, b, 151, 151, 9, true);
        check(&format!("runs of random rows, b={b}"), &Terms::bsr(&a), &runs(151, 40));
        let labels: Vec<u32> = (0..151).map(|_| rng.below(5) as u32).collect();
        let scattered = Subdomains::from_labels(&labels, 5).unwrap();
        check(&format!("scattered, b={b}"), &Terms::bsr(&a), &scattered);
    }
    // Rows longer than a chunk, and a row that meets every other.
    for b in [1, 4, 8] {
        let n = 220;
        let mut entries = random_bsr(&mut rng, b, n, n, 3, true);
        let mut dense: Vec<(usize, Vec<u32>)> = Vec::new();
        for i in 0..n {
            let own = &entries.col()[entries.row_ptr()[i]..entries.row_ptr()[i + 1]];
            let columns = match i {
                0 | 100 | 219 => (0..n as u32).collect(),
                _ => own
                    .iter()
                    .copied()
                    .chain([0, 100, 219])
                    .collect::<std::collections::BTreeSet<_>>()
                    .into_iter()
                    .collect(),
            };
            dense.push((i, columns));
        }
        let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
        for (i, columns) in dense {
            for j in columns {
                col.push(j);
                for e in 0..b * b {
                    let dominant = if i == j as usize && e / b == e % b { 300.0 * b as f64 } else { 0.0 };
                    values.push(dominant + rng.number());
                }
            }
            row_ptr.push(col.len());
        }
        entries = Bsr::new(b, n, n, row_ptr, col, values).unwrap();
        check(&format!("hub rows, b={b}"), &Terms::bsr(&entries), &Subdomains::whole(n));
    }
    // Kronecker sums, one pattern or two: blocks of order b·s.
    for (b, s) in [(4, 2), (4, 3), (4, 4), (3, 2), (2, 1), (8, 4)] {
        for same in [true, false] {
            let k = random_kronecker(&mut rng, b, s, 90, 4, same, true);
            check(&format!("b={b}, s={s}, same={same}"), &Terms::kronecker(&k), &runs(90, 33));
        }
    }
}

/// New values give what a fresh object gives, to the bit, time after time.
pub fn factors_are_refreshed<S: SubdomainFactors>(make: Make<S>) {
    let mut rng = Random(43);
    let mut k = random_kronecker(&mut rng, 3, 2, 300, 4, true, true);
    let cut = runs(300, 64);
    let space = make(k.rows());
    let mut kept = Ildu::new(&space, &Terms::kronecker(&k), &cut, IlduOptions::default()).unwrap();
    for round in 0..20 {
        k.m.values_mut().iter_mut().for_each(|v| *v *= 1.0 + 0.1 * rng.number());
        k.tau *= 0.9;
        kept.update_values(&space, &Terms::kronecker(&k)).unwrap();
        let fresh = Ildu::new(&space, &Terms::kronecker(&k), &cut, IlduOptions::default()).unwrap();
        let x = rng.numbers(k.rows());
        assert_eq!(applied(&space, &kept, &x), applied(&space, &fresh, &x), "round {round}");
    }
}

/// A pivot that vanishes, is tiny or not finite is named by its row, and mended where that was asked for.
pub fn bad_pivots_are_named<S: SubdomainFactors>(make: Make<S>) {
    let mut rng = Random(44);
    for b in [1, 3] {
        let good = grid(&mut rng, [8, 8, 2], b);
        for (value, word) in [(0.0, "zero"), (1e-30, "tiny")] {
            let mut a = good.clone();
            // Row 77 keeps its diagonal block alone, so that no elimination reaches its pivot.
            for i in [77usize] {
                for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                    let own = a.col()[p] as usize == i;
                    for e in 0..b * b {
                        let keep = if own { if e / b == e % b { value } else { 0.0 } } else { 1.0 };
                        a.values_mut()[p * b * b + e] = keep;
                    }
                }
            }
            // Row 77 is the first row of the second subdomain, which cuts its columns above and left of it.
            let labels: Vec<u32> = (0..128).map(|i| u32::from(i >= 77)).collect();
            let cut = Subdomains::from_labels(&labels, 2).unwrap();
            let space = make(128 * b);
            match Ildu::new(&space, &Terms::bsr(&a), &cut, IlduOptions::default()) {
                Err(Error::Pivot { row, kind, .. }) => {
                    assert_eq!(row, 77);
                    assert!(kind.contains(word), "{kind}");
                }
                Err(e) => panic!("{e}"),
                Ok(_) => panic!("a {word} pivot was not seen"),
            }
            let options = IlduOptions { shift: Some(1.0), ..IlduOptions::default() };
            let p = Ildu::new(&space, &Terms::bsr(&a), &cut, options).unwrap();
            assert!(p.pivots().shifted >= 1, "{:?}", p.pivots());
            let x = rng.numbers(128 * b);
            assert!(applied(&space, &p, &x).iter().all(|v| v.is_finite()));
        }
    }
}

/// Patterns, order and levels that a device finds are those of [`Plan::new`].
pub fn plans_are_those_of_the_host<S: SubdomainFactors>(make: Make<S>, read: impl Fn(&S::Plan) -> Plan) {
    let mut rng = Random(43);
    let check = |what: &str, terms: &Terms, subdomains: &Subdomains| {
        let space = make(terms.rows());
        let own = read(&*space.analyse(terms, subdomains, 0).unwrap());
        let host = Plan::new(terms, subdomains, 0).unwrap();
        assert!(own.ptr == host.ptr, "{what}: subdomains");
        assert!(own.level_ptr == host.level_ptr && own.levels == host.levels, "{what}: levels");
        assert!(own.rows == host.rows, "{what}: positions");
        assert!(own.row_ptr == host.row_ptr && own.columns == host.columns, "{what}: columns");
        assert!(own.diagonal == host.diagonal, "{what}: diagonals");
        assert!(own.sources == host.sources, "{what}: sources");
        let counts = |p: &Plan| (p.order, p.block_rows, p.dropped, p.stored, p.blocks.clone());
        assert_eq!(counts(&own), counts(&host), "{what}");
    };
    for (grid_size, size) in [
        ([9, 7, 6], [4, 4, 4]),
        ([16, 16, 16], [16, 8, 8]),
        ([33, 1, 1], [8, 1, 1]),
        ([40, 30, 1], [40, 30, 1]),
    ] {
        let a = grid(&mut rng, grid_size, 1);
        check(&format!("boxes of {grid_size:?}"), &Terms::bsr(&a), &Subdomains::boxes(grid_size, size));
    }
    for n in [1, 31, 33, 700] {
        let a = random_bsr(&mut rng, 2, n, n, 7, false);
        check(&format!("runs of {n} random rows"), &Terms::bsr(&a), &runs(n, 40));
        check(&format!("{n} random rows, whole"), &Terms::bsr(&a), &Subdomains::whole(n));
        let labels: Vec<u32> = (0..n as u32).map(|i| i * 7 % 5).collect();
        let scattered = Subdomains::from_labels(&labels, 5).unwrap();
        check(&format!("{n} scattered rows"), &Terms::bsr(&a), &scattered);
        // The union of two patterns, and two matrices of one.
        let b = random_bsr(&mut rng, 2, n, n, 4, true);
        for other in [&b, &a] {
            let system =
                KroneckerSum::new(Dense::identity(2), Dense::identity(2), 0.5, a.clone(), other.clone())
                    .unwrap();
            check(&format!("{n} rows of two terms"), &Terms::kronecker(&system), &scattered);
        }
    }
    // A level for every row, one level for all rows, a row coupled to every other, and rows without entries.
    let n = 1000u32;
    let path: Vec<_> = (0..n).flat_map(|i| [(i, i, 2.0), (i, (i + 1).min(n - 1), 1.0)]).collect();
    let diagonal: Vec<_> = (0..n).map(|i| (i, i, 2.0)).collect();
    let arrow: Vec<_> = (0..n).flat_map(|i| [(i, i, 2.0), (n - 1, i, 1.0), (i, n - 1, 1.0)]).collect();
    let gaps: Vec<_> = (0..n).step_by(3).map(|i| (i, n - 1 - i, 1.0)).collect();
    for (name, triplets) in [("path", path), ("diagonal", diagonal), ("arrow", arrow), ("gaps", gaps)] {
        let a = Bsr::from_csr(&Csr::from_triplets(n as usize, n as usize, &triplets).unwrap(), 1).unwrap();
        check(name, &Terms::bsr(&a), &Subdomains::whole(n as usize));
        check(&format!("runs of the {name}"), &Terms::bsr(&a), &runs(n as usize, 300));
    }
}
