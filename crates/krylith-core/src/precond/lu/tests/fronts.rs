//! Factors by fronts beside dense elimination.

use super::super::coarsening::Hierarchy;
use super::super::direct::Wanted;
use super::super::dissect;
use super::super::factors::{Columns, Factors, Work};
use super::super::graph::Graph;
use super::super::multifrontal::{Kind, Multifrontal};
use super::super::plan::Plan;
use super::super::separator::{BALANCE, Side};
use super::super::*;
use super::{solve, solves};
use crate::matching::Matching;
use crate::matrix::Csr;
use crate::space::random;

/// Returns a matrix by columns of triplets, which are summed.
fn columns(n: usize, entries: &[(usize, usize, f64)]) -> Columns {
    let mut sorted: Vec<_> = entries.iter().map(|&(i, j, v)| (j, i, v)).collect();
    sorted.sort_by_key(|e| (e.0, e.1));
    sorted.dedup_by(|next, kept| {
        let same = (next.0, next.1) == (kept.0, kept.1);
        kept.2 += if same { next.2 } else { 0.0 };
        same
    });
    let mut a = Columns { col_ptr: vec![0; n + 1], rows: Vec::new(), values: Vec::new() };
    for (j, i, v) in sorted {
        a.col_ptr[j + 1] += 1;
        a.rows.push(i);
        a.values.push(v);
    }
    (0..n).for_each(|j| a.col_ptr[j + 1] += a.col_ptr[j]);
    a
}

/// Returns the grid of `edge`³ nodes as a Laplacian.
fn grid(edge: usize) -> Vec<(usize, usize, f64)> {
    let mut entries = Vec::new();
    for i in 0..edge.pow(3) {
        entries.push((i, i, 6.0));
        let at = [i % edge, i / edge % edge, i / (edge * edge)];
        for (d, stride) in [1, edge, edge * edge].into_iter().enumerate() {
            if at[d] + 1 < edge {
                entries.extend([(i, i + stride, -1.0), (i + stride, i, -1.0)]);
            }
        }
    }
    entries
}

fn fronts(a: &Columns, kind: Kind, matched: bool) -> std::result::Result<Multifrontal, Box<Plan>> {
    let matching = matched.then(|| {
        let entries: Vec<(u32, u32, f64)> = (0..a.order())
            .flat_map(|j| a.column(j).map(move |(i, v)| (i as u32, j as u32, v)).collect::<Vec<_>>())
            .collect();
        Matching::of(&Csr::from_triplets(a.order(), a.order(), &entries).unwrap()).unwrap()
    });
    let mut plan = Plan::new(a, kind != Kind::Lu, matching.as_ref(), &[]).unwrap();
    plan.scale(kind, &a.values);
    Multifrontal::new(Box::new(plan), kind, &a.values).unwrap()
}

/// Checks solves with A and Aᵀ beside dense elimination.
fn check(a: &Columns, fronts: Multifrontal, what: &str) {
    let n = a.order();
    assert!(fronts.given_rows().is_empty(), "{what}");
    let factors = Factors::Fronts(fronts);
    let b: Vec<f64> = (0..n).map(|i| random(9, i as u64)).collect();
    for transposed in [false, true] {
        let mut dense = vec![0.0; n * n];
        for j in 0..n {
            for (i, v) in a.column(j) {
                dense[if transposed { j * n + i } else { i * n + j }] += v;
            }
        }
        let expected = solve(n, dense, b.clone());
        let mut work = Work::default();
        work.x = b.clone();
        factors.solve(transposed, &mut work).unwrap();
        let size = expected.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        for (x, y) in work.x.iter().zip(&expected) {
            assert!(
                (x - y).abs() <= 1e-8 * size,
                "{what}, {transposed}: {x} instead of {y}, largest {size:e}"
            );
        }
    }
}

#[test]
fn definite_systems() {
    for edge in [1usize, 2, 5, 8] {
        let a = columns(edge.pow(3), &grid(edge));
        check(&a, fronts(&a, Kind::Cholesky, false).ok().unwrap(), &format!("{edge}³"));
        check(&a, fronts(&a, Kind::Indefinite, false).ok().unwrap(), &format!("{edge}³ indefinite"));
        check(&a, fronts(&a, Kind::Lu, false).ok().unwrap(), &format!("{edge}³ unsymmetric"));
    }
    let mut entries = grid(6);
    entries.iter_mut().filter(|e| e.0 == e.1).for_each(|e| e.2 -= 4.0);
    let a = columns(216, &entries);
    assert!(fronts(&a, Kind::Cholesky, false).is_err(), "an indefinite matrix has no L Lᵀ");
}

#[test]
fn indefinite_systems_take_pivots_of_both_orders() {
    for seed in 0..6 {
        // Random values and zeros on the diagonal, couplings of a grid.
        let mut entries = grid(7);
        let value = |e: &(usize, usize, f64)| random(seed, (e.0.min(e.1) * 1000 + e.0.max(e.1)) as u64);
        entries.iter_mut().for_each(|e| e.2 = if e.0 == e.1 && e.0 % 3 > 0 { 0.0 } else { value(e) });
        let a = columns(343, &entries);
        let fronts = fronts(&a, Kind::Indefinite, false).ok().unwrap();
        assert!(fronts.nodes.iter().any(|n| !n.off.is_empty()), "no pivot of order 2");
        check(&a, fronts, &format!("seed {seed}"));
    }
    // A saddle point: constraints on pairs of neighbours, without diagonals.
    let mut entries = grid(6);
    for k in 0..60 {
        for (i, v) in [(3 * k, 1.0), (3 * k + 1, -1.0 - k as f64 / 9.0), (3 * k + 20, 0.5)] {
            entries.extend([(216 + k, i, v), (i, 216 + k, v)]);
        }
    }
    let a = columns(276, &entries);
    check(&a, fronts(&a, Kind::Indefinite, false).ok().unwrap(), "saddle point");
    check(&a, fronts(&a, Kind::Lu, false).ok().unwrap(), "saddle point as L U");
}

#[test]
fn unsymmetric_patterns_without_diagonals() {
    for (seed, n) in [(1, 60), (2, 200), (3, 350), (4, 351)] {
        let at = |k: u64| ((random(seed, k) + 1.0) / 2.0 * n as f64) as usize % n;
        let mut entries: Vec<(usize, usize, f64)> = (0..n).map(|i| (i, (i + 7) % n, 2.0)).collect();
        entries.extend((0..2 * n as u64).map(|k| (at(2 * k), at(2 * k + 1), random(seed + 9, k))));
        let a = columns(n, &entries);
        check(&a, fronts(&a, Kind::Lu, false).ok().unwrap(), &format!("{n}, in place"));
        check(&a, fronts(&a, Kind::Lu, true).ok().unwrap(), &format!("{n}, matched"));
    }
}

#[test]
fn weak_pivots_are_delayed() {
    // Diagonals far below the threshold in most columns, so that whole fronts wait for their parents.
    for kind in [Kind::Lu, Kind::Indefinite] {
        let mut entries = grid(8);
        entries.iter_mut().filter(|e| e.0 == e.1).for_each(|e| e.2 = 1e-9);
        entries.iter_mut().filter(|e| e.0 == e.1 && e.0 % 5 == 0).for_each(|e| e.2 = 7.0);
        let a = columns(512, &entries);
        let fronts = fronts(&a, kind, false).ok().unwrap();
        assert!(fronts.nodes.iter().any(|n| n.lists.is_some()));
        check(&a, fronts, &format!("{kind:?}"));
    }
}

/// Large couplings to a multiplier leave the diagonal of the other unknowns at 1, unless an entry of the
/// multiplier would get lost beside them.
#[test]
fn scales_keep_strong_diagonals() {
    for (own, kept) in [(0.0, true), (-1e-18, true), (-1e-5, false), (-1e7, true)] {
        let couplings = [(0, 2, 1e3), (2, 0, 1e3), (1, 2, 2e3), (2, 1, 2e3), (0, 1, -1.0), (1, 0, -1.0)];
        let a = columns(3, &[&couplings[..], &[(0, 0, 2.0), (1, 1, 3.0), (2, 2, own)]].concat());
        let mut plan = Plan::new(&a, true, None, &[]).unwrap();
        plan.scale(Kind::Indefinite, &a.values);
        let scale = |i: usize| plan.row_scale[plan.row_place[i] as usize];
        assert_eq!((0.5..=2.0).contains(&(3.0 * scale(1) * scale(1))), kept, "{own}");
        assert!((0.5..=2.0).contains(&(2e3 * scale(1) * scale(2))) || own == -1e7, "{own}");
    }
}

#[test]
fn rows_without_pivots_are_named() {
    let mut entries = grid(5);
    // Row 30 becomes twice row 31, and so does column 30.
    entries.retain(|e| e.0 != 30 && e.1 != 30);
    let twice: Vec<_> = entries.iter().filter(|e| e.0 == 31).map(|e| (30, e.1, 2.0 * e.2)).collect();
    entries.extend(twice.iter().flat_map(|e| [*e, (e.1, e.0, e.2)]));
    entries.push((30, 30, 4.0 * 6.0));
    let a = columns(125, &entries);
    for kind in [Kind::Lu, Kind::Indefinite] {
        let rows = fronts(&a, kind, false).ok().unwrap().given_rows();
        assert_eq!(rows.len(), 1, "{kind:?}");
    }
    // The error names a row too.
    let mut entries = grid(12);
    entries.retain(|e| e.0 != 30 && e.1 != 30);
    entries.extend([(30, 30, 1.0), (30, 700, 1.0), (700, 30, 1.0)]);
    entries.retain(|e| e.0 != 700 || e.1 == 30);
    entries.retain(|e| e.1 != 700 || e.0 == 30);
    entries.push((700, 700, 1.0));
    let entries: Vec<(u32, u32, f64)> = entries.iter().map(|&(i, j, v)| (i as u32, j as u32, v)).collect();
    let singular = Csr::from_triplets(1728, 1728, &entries).unwrap();
    let error = SparseLu::new(&Terms::csr(&singular).unwrap(), None).err().unwrap().to_string();
    assert!(error.contains("singular (order 1728"), "{error}");
    assert!(error.contains("no pivot was found in row 30") || error.contains("in row 700"), "{error}");
}

#[test]
fn threads_do_not_matter() {
    let mut skew = grid(15);
    skew.iter_mut().filter(|e| e.0 < e.1).for_each(|e| e.2 *= 1.7);
    let mut signs = grid(15);
    signs.iter_mut().filter(|e| e.0 == e.1).for_each(|e| e.2 = if e.0 % 2 == 0 { 3.0 } else { -0.001 });
    for (kind, entries) in [(Kind::Cholesky, grid(15)), (Kind::Lu, skew), (Kind::Indefinite, signs)] {
        let a = columns(3375, &entries);
        let on = |threads: usize| {
            let pool = crate::threads::TaskPool::new(threads).unwrap();
            pool.install(|| {
                let factors = Factors::Fronts(fronts(&a, kind, false).ok().unwrap());
                let mut work = Work::default();
                work.x = (0..3375).map(|i| random(3, i)).collect();
                factors.solve(false, &mut work).unwrap();
                (factors.numbers(), work.x.iter().map(|v| v.to_bits()).collect::<Vec<u64>>())
            })
        };
        let one = on(1);
        for threads in [2, 3] {
            assert!(on(threads) == one, "{kind:?}: {threads} threads");
        }
    }
}

/// A system of the size that takes fronts, in all its ways of use.
#[test]
fn larger_systems_take_fronts_and_follow_new_values() {
    let csr = |entries: &[(usize, usize, f64)]| {
        let entries: Vec<(u32, u32, f64)> =
            entries.iter().map(|&(i, j, v)| (i as u32, j as u32, v)).collect();
        Csr::from_triplets(1728, 1728, &entries).unwrap()
    };
    let mut skew = grid(12);
    skew.iter_mut().filter(|e| e.0 < e.1).for_each(|e| e.2 *= 1.7);
    let mut zeros = grid(12);
    zeros.iter_mut().filter(|e| e.0 == e.1 && e.0 % 4 == 0).for_each(|e| e.2 = 0.0);
    for (entries, kind) in [(grid(12), "Cholesky"), (skew, "LU"), (zeros, "LBLᵀ")] {
        let mut a = csr(&entries);
        let mut lu = SparseLu::new(&Terms::csr(&a).unwrap(), None).unwrap();
        assert!(lu.kind() == kind && !lu.is_bound() && lu.weak_rows().is_empty(), "{}", lu.kind());
        assert!(matches!(lu.factors, Factors::Fronts(_)));
        solves(&lu, &a, kind);
        a.values_mut().iter_mut().for_each(|v| *v *= 1.5);
        lu.update_values(TermValues::matrix(a.values())).unwrap();
        solves(&lu, &a, "new values");
        let small = SparseLu::new(&Terms::csr(&a).unwrap(), Some(1000)).err().unwrap();
        assert!(matches!(small, Error::Memory { free: 1000, needed: 1001.., .. }), "{small}");
    }
    let cancel = crate::interrupt::Cancel::default();
    cancel.cancel();
    let limits = crate::interrupt::Limits { cancel, deadline: None };
    let _entered = limits.enter();
    let error = SparseLu::new(&Terms::csr(&csr(&grid(12))).unwrap(), None).err().unwrap();
    assert!(error.is_interrupt(), "{error}");
}

#[test]
fn signs_of_columns_make_matrices_symmetric() {
    // The real form of a complex symmetric matrix, with neighbouring unknowns or in halves, and a saddle
    // point with a constraint of the other sign.
    let shift = |i: usize| 0.3 + 0.1 * (i % 7) as f64;
    for (stride, half) in [(2, 1), (1, 1000)] {
        let mut entries = Vec::new();
        for (i, j, v) in grid(10) {
            let v = v - if i == j { 1.9 } else { 0.0 };
            entries.extend([(stride * i, stride * j, v), (stride * i + half, stride * j + half, v)]);
        }
        let parts = (0..1000).map(|i| (stride * i, stride * i + half, shift(i)));
        entries.extend(parts.flat_map(|(i, j, v)| [(i, j, -v), (j, i, v)]));
        by_signs(2000, &entries, true, "real form");
    }
    let mut entries = grid(11);
    for k in 0..300 {
        for (i, v) in [(4 * k, 1.0), (4 * k + 1, -1.0 - k as f64 / 99.0), (4 * k + 30, 0.5)] {
            entries.extend([(1331 + k, i, -v), (i, 1331 + k, v)]);
        }
    }
    by_signs(1631, &entries, true, "saddle point");
    // One more entry of a wrong sign on a cycle, and no signs do.
    entries.extend([(5, 7, 0.1), (7, 5, -0.1)]);
    by_signs(1631, &entries, false, "no signs");
}

fn by_signs(n: usize, entries: &[(usize, usize, f64)], symmetric: bool, what: &str) {
    assert_eq!(columns(n, entries).symmetry(), None, "{what}");
    let entries: Vec<(u32, u32, f64)> = entries.iter().map(|&(i, j, v)| (i as u32, j as u32, v)).collect();
    let a = Csr::from_triplets(n, n, &entries).unwrap();
    let mut lu = SparseLu::new(&Terms::csr(&a).unwrap(), None).unwrap();
    assert_eq!(lu.kind(), if symmetric { "LBLᵀ" } else { "LU" }, "{what}");
    assert!(matches!(lu.factors, Factors::Fronts(_)), "{what}");
    solves(&lu, &a, what);
    lu.update_values(TermValues::matrix(a.values())).unwrap();
    solves(&lu, &a, what);
    let b: Vec<f64> = (0..n).map(|i| random(8, i as u64)).collect();
    let (mut x, mut product) = (vec![0.0; n], vec![0.0; n]);
    lu.apply_transpose(&crate::device::cpu::Cpu::new(n, 1), &b, &mut x).unwrap();
    entries.iter().for_each(|&(i, j, v)| product[j as usize] += v * x[i as usize]);
    assert!(product.iter().zip(&b).all(|(p, b)| (p - b).abs() < 1e-9), "{what}, transposed");
}

#[test]
fn nearly_singular_systems_take_fronts() {
    // No values around the grid but a small shift: solutions are 10¹² times as large as right-hand sides.
    let mut entries = grid(12);
    entries.retain(|e| e.0 != e.1);
    let couplings = entries.clone();
    entries.extend(couplings.iter().map(|e| (e.0, e.0, -e.2)));
    entries.extend((0..1728).map(|i| (i, i, 1e-12)));
    let a = columns(1728, &entries);
    let Made::Factors(factors) = a.direct(Factors::None, Wanted::Any, None, &mut Work::default()).unwrap()
    else {
        panic!("no factors by fronts");
    };
    assert_eq!(factors.kind(), "Cholesky");
    let b: Vec<f64> = (0..1728).map(|i| 1.0 + random(5, i)).collect();
    let (mut work, mut r) = (Work::default(), b.clone());
    work.x = b;
    factors.solve(false, &mut work).unwrap();
    let largest = work.x.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    assert!(largest > 1e11, "{largest:e}");
    for j in 0..1728 {
        a.column(j).for_each(|(i, v)| r[i] -= v * work.x[j]);
    }
    assert!(r.iter().all(|r| r.abs() <= 1e-14 * 12.0 * largest));
}

#[test]
fn separators_separate_and_orders_are_permutations() {
    let graph = |rows: Vec<Vec<u32>>| {
        let mut graph = Graph { ptr: vec![0], size: vec![1; rows.len()], ..Default::default() };
        for row in rows {
            graph.adj.extend(row);
            graph.ptr.push(graph.adj.len() as u32);
        }
        graph
    };
    let neighbours = |n: usize, entries: &[(usize, usize, f64)]| {
        let mut rows = vec![Vec::new(); n];
        entries.iter().filter(|e| e.0 != e.1).for_each(|e| rows[e.0].push(e.1 as u32));
        rows
    };
    let star: Vec<Vec<u32>> =
        (0..3000u32).map(|i| if i == 0 { (1..3000).collect() } else { vec![0] }).collect();
    let path: Vec<Vec<u32>> = (0..3000u32)
        .map(|i| [i.wrapping_sub(1), i + 1].into_iter().filter(|&j| j < 3000).collect())
        .collect();
    let cases = [
        ("grid", graph(neighbours(8000, &grid(20))), 520),
        ("star", graph(star), 1),
        ("path", graph(path), 2),
        ("no edges", graph(vec![Vec::new(); 3000]), 0),
    ];
    for (what, graph, most) in cases {
        let n = graph.len();
        let side = Hierarchy::new(graph.clone()).bisect();
        for v in 0..n as u32 {
            for &u in graph.neighbours(v) {
                let both = [side[v as usize], side[u as usize]];
                assert!(both != [Side::First, Side::Second], "{what}: {v} and {u} are not separated");
            }
        }
        let count = |s: Side| side.iter().filter(|t| **t == s).count();
        assert!(count(Side::Separator) <= most, "{what}: a separator of {}", count(Side::Separator));
        let larger = count(Side::First).max(count(Side::Second));
        let most = (BALANCE * n as f64) as usize;
        assert!(what == "star" || larger <= most, "{what}: {larger} of {n} on one side");
        let mut order = dissect::order(graph, None).unwrap();
        order.sort_unstable();
        assert!(order.into_iter().eq(0..n as u32), "{what}");
    }
}

/// The parts of a dissection follow one another in the order, and no two sides of a separator are neighbours.
#[test]
fn parts_of_a_dissection_are_separated() {
    let n = 20usize * 20 * 20;
    let mut graph = Graph { ptr: vec![0], size: vec![2; n], ..Default::default() };
    let mut rows = vec![Vec::new(); n];
    grid(20).iter().filter(|e| e.0 != e.1).for_each(|e| rows[e.0].push(e.1 as u32));
    for row in rows {
        graph.adj.extend(row);
        graph.ptr.push(graph.adj.len() as u32);
    }
    for levels in [1, 2, 5, 12] {
        let (order, parts) = dissect::order_with_parts(graph.clone(), levels, None).unwrap();
        assert_eq!(parts.len(), (1 << levels) - 1);
        assert_eq!(parts.iter().sum::<u32>() as usize, 2 * n, "{levels}");
        let mut seen = order.clone();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..n as u32), "{levels}");
        let (mut part_of, mut next) = (vec![0; n], 0);
        for (part, &size) in parts.iter().enumerate() {
            order[next..][..size as usize / 2].iter().for_each(|&v| part_of[v as usize] = part);
            next += size as usize / 2;
        }
        assert_eq!(next, n);
        for v in 0..n as u32 {
            for &u in graph.neighbours(v) {
                let (a, b) = (part_of[v as usize], part_of[u as usize]);
                assert!(above(levels, a, b) || above(levels, b, a), "{levels}: parts {a} and {b}");
            }
        }
    }
}

/// Returns true if part `a` is part `b` or a separator above it.
fn above(levels: usize, a: usize, b: usize) -> bool {
    let total = (1usize << levels) - 1;
    // Position in a heap: the root is 1, and 2k and 2k + 1 are the sides of k.
    let heap = |part: usize| {
        let depth = (0..levels).find(|depth| part + (2 << depth) > total).unwrap();
        (1 << depth) + part - (total + 1 - (2 << depth))
    };
    let (a, mut b) = (heap(a), heap(b));
    while b > a {
        b /= 2;
    }
    a == b
}
