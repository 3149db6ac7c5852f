//! Bytes that one application moves, by formula.
//!
//! Every subdomain's own columns, levels and row lists count, although those of equal boxes are equal; vectors count
//! once in and once out of memory, and not where they stay in shared memory.

use super::levels::Dag;
use super::system::SubdomainSystem;

/// Vectors: x read and y written.
pub(crate) fn vectors(s: &SubdomainSystem) -> u64 {
    16 * s.len() as u64
}

/// What a library must read to solve with a lower and an upper triangle in one CSR or BSR array: numbers and 4-byte
/// columns once (the diagonal in U alone), 4-byte row pointers twice, and a vector between the two solves.
pub(crate) fn triangles(s: &SubdomainSystem) -> u64 {
    let (n, bb) = (s.block_rows() as u64, (s.a.block() * s.a.block()) as u64);
    s.blocks() as u64 * (8 * bb + 4) + 2 * 4 * (n + 1) + 2 * vectors(s)
}

/// The lower one of them alone.
pub(crate) fn lower_triangle(s: &SubdomainSystem, strict: usize) -> u64 {
    let (n, bb) = (s.block_rows() as u64, (s.a.block() * s.a.block()) as u64);
    // Blocks of the diagonal hold a lower triangle too where they are larger than 1.
    let diagonal = if s.a.block() == 1 { 0 } else { n * (8 * bb + 4) };
    strict as u64 * (8 * bb + 4) + diagonal + 4 * (n + 1) + vectors(s)
}

/// D⁻¹, a block a row.
pub(crate) fn diagonal(s: &SubdomainSystem) -> u64 {
    8 * (s.len() * s.a.block()) as u64
}

/// A triangle edge by edge: numbers, 4 bytes for row and column, an edge pointer a level; subdomains' levels.
pub(crate) fn edges(s: &SubdomainSystem, dag: &Dag) -> u64 {
    8 * dag.edge_values.len() as u64 + 4 * dag.pairs.len() as u64 + level_pointers(s, dag)
}

/// A triangle row by row: numbers, 2-byte columns, 2-byte rows, an entry pointer a row, a row pointer a level.
pub(crate) fn vertices(s: &SubdomainSystem, dag: &Dag) -> u64 {
    8 * dag.values.len() as u64
        + 2 * dag.columns.len() as u64
        + rows(dag)
        + 4 * dag.entry_ptr.len() as u64
        + level_pointers(s, dag)
}

/// The rows of every level, 2 bytes each.
pub(crate) fn rows(dag: &Dag) -> u64 {
    2 * dag.rows.len() as u64
}

/// A pointer a level, and two a subdomain: its levels and its rows.
pub(crate) fn level_pointers(s: &SubdomainSystem, dag: &Dag) -> u64 {
    4 * dag.row_ptr.len() as u64 + 8 * (s.count() as u64 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ildu0::levels::{Dag, Triangle};
    use crate::ildu0::{laplacian, system::boxes};

    #[test]
    fn bytes_of_a_small_case_are_those_counted_by_hand() {
        // 2×2×2 boxes of a 4×2×2 grid: two subdomains of 8 rows, 12 edges and 4 levels each.
        let a = laplacian([4, 2, 2], 1).unwrap();
        let (labels, count) = boxes([4, 2, 2], [2, 2, 2]);
        let s = SubdomainSystem::decompose(&a, &labels, count).unwrap();
        let dag = Dag::new(&s, Triangle::Lower, s.a.values()).unwrap();
        assert_eq!((dag.pairs.len(), dag.row_ptr.len()), (24, 9));
        assert_eq!(level_pointers(&s, &dag), 4 * 9 + 8 * 3);
        assert_eq!(edges(&s, &dag), 8 * 24 + 4 * 24 + 60);
        assert_eq!(vertices(&s, &dag), 8 * 24 + 2 * 24 + 2 * 16 + 4 * 17 + 60);
        assert_eq!((vectors(&s), diagonal(&s)), (256, 128));
        assert_eq!(triangles(&s), 64 * 12 + 8 * 17 + 512);
        assert_eq!(lower_triangle(&s, 24), 24 * 12 + 4 * 17 + 256);
    }
}
