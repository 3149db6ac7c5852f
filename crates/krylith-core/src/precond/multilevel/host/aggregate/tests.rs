//! Tests of aggregates and their interpolation, on grids with a known result.

use super::*;
use crate::matrix::Csr;
use crate::space::random;

/// Runs the functions of the parent on one rank.
fn strong(pool: &Pool, a: &Bsr, theta: f64, which: Couplings) -> Vec<u8> {
    super::strong(pool, a, theta, which, Around::of(None)).unwrap()
}

fn by_independent_set(pool: &Pool, a: &Bsr, strong: &[u8], level: usize) -> Vec<u32> {
    super::by_independent_set(pool, a, strong, level, Around::of(None)).unwrap().of
}

/// Returns the matrix of a 7-point grid. `k(d, i, j)` is the coupling of nodes i and j, neighbours in
/// direction d; `shift` is added to the diagonal.
fn grid(cells: [usize; 3], k: impl Fn(usize, usize, usize) -> f64, shift: f64) -> Bsr {
    let at = |x: usize, y: usize, z: usize| x + cells[0] * (y + cells[1] * z);
    let n = cells.iter().product();
    let mut rows = vec![Vec::new(); n];
    for z in 0..cells[2] {
        for y in 0..cells[1] {
            for x in 0..cells[0] {
                let i = at(x, y, z);
                let ahead = [(x + 1, y, z), (x, y + 1, z), (x, y, z + 1)];
                for (d, (x, y, z)) in ahead.into_iter().enumerate() {
                    if x < cells[0] && y < cells[1] && z < cells[2] {
                        let j = at(x, y, z);
                        let k = k(d, i, j);
                        rows[i].push((j, -k));
                        rows[j].push((i, -k));
                    }
                }
            }
        }
    }
    let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    for (i, row) in rows.iter_mut().enumerate() {
        let sum: f64 = row.iter().map(|e| e.1).sum();
        row.push((i, shift - sum));
        row.sort_by_key(|e| e.0);
        col.extend(row.iter().map(|e| e.0 as u32));
        values.extend(row.iter().map(|e| e.1));
        row_ptr.push(col.len());
    }
    Bsr::from_csr(&Csr::new(n, n, row_ptr, col, values).unwrap(), 1).unwrap()
}

fn jumping(_: usize, i: usize, j: usize) -> f64 {
    10f64.powf(3.0 * random(1, i as u64 / 64) + 3.0 * random(1, j as u64 / 64))
}

/// Returns the nodes of each aggregate. Checks that aggregates are numbered by their first nodes and
/// connected by strong couplings.
fn members(a: &Bsr, strong: &[u8], aggregates: &[u32]) -> Vec<Vec<usize>> {
    let count = aggregates.iter().filter(|&&g| g != FINE).max().map_or(0, |&g| g as usize + 1);
    let mut members = vec![Vec::new(); count];
    for (i, &g) in aggregates.iter().enumerate().filter(|&(_, &g)| g != FINE) {
        members[g as usize].push(i);
    }
    assert!(members.iter().all(|nodes| !nodes.is_empty()), "an aggregate without nodes");
    assert!(members.windows(2).all(|w| w[0][0] < w[1][0]), "numbers do not ascend with first nodes");
    let graph = Graph { a, strong };
    for nodes in &members {
        let (mut reached, mut next) = (vec![nodes[0]], vec![nodes[0]]);
        while let Some(i) = next.pop() {
            for (j, _) in graph.neighbours(i).filter(|(j, _)| nodes.contains(j)) {
                if !reached.contains(&j) {
                    reached.push(j);
                    next.push(j);
                }
            }
        }
        assert_eq!(reached.len(), nodes.len(), "the aggregate of node {} is in pieces", nodes[0]);
    }
    members
}

#[test]
fn roots_are_two_couplings_apart_and_within_two_of_all() {
    let pool = Pool::eager(2);
    for a in [grid([9, 8, 7], |_, _, _| 1.0, 0.0), grid([40, 25, 1], jumping, 0.0)] {
        let strong = strong(&pool, &a, 0.08, Couplings::All);
        let graph = Graph { a: &a, strong: &strong };
        let state = roots(&pool, graph, &pieces_of(&pool, &a), 0, Around::of(None)).unwrap();
        for i in 0..a.block_rows() {
            let mut within: Vec<usize> = graph.neighbours(i).map(|e| e.0).collect();
            let further: Vec<usize> = within.iter().flat_map(|&j| graph.neighbours(j)).map(|e| e.0).collect();
            within.extend(further);
            let near = within.iter().filter(|&&j| j != i && state[j].load(Relaxed) == ROOT).count();
            match state[i].load(Relaxed) {
                ROOT => assert_eq!(near, 0, "root {i}"),
                NO_ROOT => assert!(near > 0 || within.is_empty(), "node {i}"),
                other => panic!("node {i} has state {other}"),
            }
        }
    }
}

#[test]
fn every_coupled_node_is_in_one_connected_aggregate() {
    for (a, sizes) in [
        (grid([20, 20, 20], |_, _, _| 1.0, 0.0), 6.0..14.0),
        (grid([100, 60, 1], |_, _, _| 1.0, 0.1), 5.0..9.0),
        (grid([16, 16, 16], jumping, 0.0), 2.0..14.0),
    ] {
        let pool = Pool::new(1);
        let strong = strong(&pool, &a, 0.08, Couplings::All);
        let graph = Graph { a: &a, strong: &strong };
        let aggregates = by_independent_set(&pool, &a, &strong, 0);
        for i in 0..a.block_rows() {
            let coupled = graph.neighbours(i).next().is_some();
            assert_eq!(aggregates[i] != FINE, coupled, "node {i}");
        }
        let members = members(&a, &strong, &aggregates);
        let mean = members.iter().map(Vec::len).sum::<usize>() as f64 / members.len() as f64;
        assert!(sizes.contains(&mean), "{mean} nodes an aggregate");
        for threads in [2, 5] {
            assert!(by_independent_set(&Pool::eager(threads), &a, &strong, 0) == aggregates);
        }
        assert!(by_independent_set(&pool, &a, &strong, 1) != aggregates, "each level has its own hash");
    }
}

#[test]
fn matched_aggregates_are_connected_and_of_two_to_the_passes_at_most() {
    for (a, sizes) in [
        (grid([20, 20, 20], |_, _, _| 1.0, 0.0), [1.7, 3.2, 5.5]),
        (grid([16, 16, 16], jumping, 0.0), [1.5, 2.2, 2.8]),
    ] {
        let pool = Pool::new(1);
        let strong = strong(&pool, &a, 0.0, Couplings::Attracting);
        for (passes, least) in (1..).zip(sizes) {
            let aggregates = by_matching(&pool, &a, 0.02, passes, 0).unwrap();
            let members = members(&a, &strong, &aggregates);
            let most = members.iter().map(Vec::len).max().unwrap();
            assert!(most <= 1 << passes, "{most} nodes in {passes} passes");
            let nodes: usize = members.iter().map(Vec::len).sum();
            let mean = nodes as f64 / members.len() as f64;
            assert!(mean > least, "{mean} nodes an aggregate in {passes} passes");
            for threads in [2, 5] {
                assert!(by_matching(&Pool::eager(threads), &a, 0.02, passes, 0).unwrap() == aggregates);
            }
        }
    }
}

/// Couplings are 1 along x and 1e-3 along y and z.
#[test]
fn anisotropic_couplings_aggregate_along_the_strong_direction() {
    let cells = [64, 12, 5];
    let a = grid(cells, |d, _, _| if d == 0 { 1.0 } else { 1e-3 }, 0.0);
    let pool = Pool::eager(2);
    let strong = strong(&pool, &a, 0.08, Couplings::All);
    let around = by_independent_set(&pool, &a, &strong, 0);
    let matched = by_matching(&pool, &a, 0.08, 3, 0).unwrap();
    for aggregates in [around, matched] {
        for nodes in members(&a, &strong, &aggregates) {
            assert!(nodes.iter().all(|i| i / cells[0] == nodes[0] / cells[0]), "{nodes:?}");
        }
    }
}

#[test]
fn nodes_without_strong_couplings_have_empty_rows() {
    // Node 0 has no couplings, and node 1 has weak couplings.
    let a = grid([30, 4, 1], |_, i, j| if i.min(j) == 0 { 0.0 } else { 1.0 }, 0.0);
    let n = a.block_rows();
    let mut a = a;
    let at = a.diagonal_position(1).unwrap();
    a.values_mut()[at] = 1e9;
    let pool = Pool::eager(2);
    let strong = strong(&pool, &a, 0.08, Couplings::All);
    let around = by_independent_set(&pool, &a, &strong, 0);
    let matched = by_matching(&pool, &a, 0.08, 2, 0).unwrap();
    for (aggregates, p) in [
        (&around, smoothed(&pool, &a, &strong, &around)),
        (&around, constant(&pool, &around)),
        (&matched, constant(&pool, &matched)),
    ] {
        for i in 0..n {
            let length = p.row_ptr()[i + 1] - p.row_ptr()[i];
            assert_eq!((aggregates[i] == FINE, length == 0), (i < 2, i < 2), "row {i}");
        }
        let count = aggregates.iter().filter(|&&g| g != FINE).max().unwrap() + 1;
        assert_eq!((p.block_rows(), p.block_columns()), (n, count as usize));
    }
}

#[test]
fn smoothed_rows_are_the_dense_ones_and_sum_to_one_where_those_of_a_sum_to_zero() {
    for (k, shift, theta) in [
        ((|_, _, _| 1.0) as fn(usize, usize, usize) -> f64, 0.0, 0.08),
        (jumping, 0.0, 0.2),
        (jumping, 0.5, 0.08),
    ] {
        let a = grid([9, 8, 3], k, shift);
        let n = a.block_rows();
        let pool = Pool::new(1);
        let strong = strong(&pool, &a, theta, Couplings::All);
        let aggregates = by_independent_set(&pool, &a, &strong, 0);
        let p = smoothed(&pool, &a, &strong, &aggregates);
        assert!(smoothed(&Pool::eager(3), &a, &strong, &aggregates) == p);
        for i in 0..n {
            // Row i of A_F, whose diagonal includes the weak entries; then row i of (I − ω L⁻¹ A_F) T. L is
            // diagonal, with the ℓ1 norms of the rows of A_F.
            let mut filtered = vec![0.0; n];
            for q in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                let j = a.col()[q] as usize;
                filtered[if j == i || strong[q] == 0 { i } else { j }] += a.values()[q];
            }
            let norm: f64 = filtered.iter().map(|v| v.abs()).sum();
            let mut expected = vec![0.0; p.block_columns()];
            for j in (0..n).filter(|&j| aggregates[j] != FINE) {
                let step = if filtered[i] > 0.0 { OMEGA / norm * filtered[j] } else { 0.0 };
                expected[aggregates[j] as usize] += if j == i { 1.0 } else { 0.0 } - step;
            }
            let row = p.row_ptr()[i]..p.row_ptr()[i + 1];
            let sum: f64 = p.values()[row.clone()].iter().sum();
            for q in row {
                expected[p.col()[q] as usize] -= p.values()[q];
            }
            let off = expected.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
            assert!(off < 1e-13, "row {i} is off by {off:e}");
            let all_in = (0..n).all(|j| filtered[j] == 0.0 || aggregates[j] != FINE);
            if shift == 0.0 && aggregates[i] != FINE && all_in {
                assert!((sum - 1.0).abs() < 1e-9, "row {i} sums to {sum}");
            }
        }
    }
}

#[test]
fn small_and_one_way_graphs() {
    let pool = Pool::eager(2);
    for n in [0usize, 1, 2] {
        let a = grid([n, 1, 1], |_, _, _| 1.0, 1.0);
        let strong = strong(&pool, &a, 0.08, Couplings::All);
        let expected = if n == 2 { vec![0, 0] } else { vec![FINE; n] };
        assert_eq!(by_independent_set(&pool, &a, &strong, 0), expected);
        assert_eq!(by_matching(&pool, &a, 0.08, 2, 0).unwrap(), expected);
    }
    // Each node depends on the one before, as with upwind differences.
    let n = 200;
    let rows: Vec<usize> = (0..=n).map(|i: usize| (2 * i).saturating_sub(1)).collect();
    let col = (0..n as u32).flat_map(|i| [i.wrapping_sub(1), i]).skip(1).collect();
    let values = (0..n).flat_map(|_| [-1.0, 1.0]).skip(1).collect();
    let a = Bsr::new(1, n, n, rows, col, values).unwrap();
    let strong = strong(&pool, &a, 0.08, Couplings::All);
    let aggregates = by_independent_set(&pool, &a, &strong, 0);
    assert!(aggregates.iter().all(|&g| g != FINE));
    for g in 0..=*aggregates.iter().max().unwrap() {
        let nodes: Vec<usize> = (0..n).filter(|&i| aggregates[i] == g).collect();
        assert!(nodes.windows(2).all(|w| w[1] == w[0] + 1), "{nodes:?}");
    }
}
