//! The steps of coarse levels on a device: the host's, bit by bit.

use super::Make;
use crate::common::Random;
use krylith::device::cpu::Cpu;
use krylith::matrix::Bsr;
use krylith::operator::Terms;
use krylith::precond::Coarsen;

/// The space of the reference.
pub fn host() -> Cpu {
    Cpu::new(1, 2)
}

/// A matrix of 1×1 blocks from its rows, each with ascending columns.
pub fn from_rows(columns: usize, rows: &[Vec<(u32, f64)>]) -> Bsr {
    let mut row_ptr = vec![0];
    for row in rows {
        row_ptr.push(row_ptr[row_ptr.len() - 1] + row.len());
    }
    let (col, values) = rows.iter().flatten().copied().unzip();
    Bsr::new(1, rows.len(), columns, row_ptr, col, values).unwrap()
}

/// Seven points on a grid of edge³ nodes; couplings along an axis differ by `jumps` from cell to cell, at random.
pub fn grid(edge: usize, jumps: f64) -> Bsr {
    let mut rng = Random(3);
    let weights: Vec<f64> = (0..3 * edge.pow(3)).map(|_| jumps.powf(rng.number())).collect();
    let mut rows: Vec<Vec<(u32, f64)>> = vec![Vec::new(); edge.pow(3)];
    let steps = [1, edge, edge * edge];
    for i in 0..edge.pow(3) {
        for (d, &step) in steps.iter().enumerate() {
            if i / step % edge + 1 < edge {
                let w = weights[3 * i + d];
                rows[i].push(((i + step) as u32, -w));
                rows[i + step].push((i as u32, -w));
            }
        }
    }
    for (i, row) in rows.iter_mut().enumerate() {
        let sum: f64 = row.iter().map(|e| e.1).sum();
        row.push((i as u32, 0.1 - sum));
        row.sort_by_key(|e| e.0);
    }
    from_rows(edge.pow(3), &rows)
}

/// Panics where two matrices differ in shape, pattern or one bit of a value.
pub fn assert_same(found: &Bsr, expected: &Bsr, what: &str) {
    let shape = |a: &Bsr| (a.block(), a.block_rows(), a.block_columns(), a.blocks());
    assert_eq!(shape(found), shape(expected), "{what}: block, rows, columns, blocks");
    for i in 0..found.block_rows() {
        let row = |a: &Bsr| a.col()[a.row_ptr()[i]..a.row_ptr()[i + 1]].to_vec();
        assert!(row(found) == row(expected), "{what}: columns of row {i} differ");
    }
    let differs = |(a, b): (&f64, &f64)| a.to_bits() != b.to_bits();
    let at = found.values().iter().zip(expected.values()).position(differs);
    let pair = at.map(|at| (at, found.values()[at], expected.values()[at]));
    assert_eq!(pair, None, "{what}: first value that differs");
}

/// The matrix by which nodes are coarsened.
pub fn couplings_are_those_of_the_host<S: Coarsen>(make: Make<S>) {
    let a = grid(12, 100.0);
    let terms = Terms::bsr(&a);
    let found = make(a.rows()).couplings(&terms).unwrap();
    assert_same(&found, &host().couplings(&terms).unwrap(), "couplings of a grid");
}
