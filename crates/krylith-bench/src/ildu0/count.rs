//! Bytes that one application moves, by formula.
//!
//! Every subdomain's own columns, levels and row lists count, although those of equal boxes are equal.
//! Vectors count once when read from memory and once when written, and not while they stay in shared memory.

use super::levels::Dag;
use super::system::SubdomainSystem;

/// Returns the bytes of the vectors: x read and y written.
pub(crate) fn vectors(s: &SubdomainSystem) -> u64 {
    16 * s.len() as u64
}

/// Returns the least bytes that a library reads to solve with a lower and an upper triangle in one CSR or BSR
/// array. Numbers and 4-byte columns are read once (the diagonal in U alone), and 4-byte row pointers twice.
/// A vector passes between the two solves.
pub(crate) fn triangles(s: &SubdomainSystem) -> u64 {
    let (n, bb) = (s.block_rows() as u64, (s.a.block() * s.a.block()) as u64);
    s.blocks() as u64 * (8 * bb + 4) + 2 * 4 * (n + 1) + 2 * vectors(s)
}

/// Returns the bytes of the lower triangle alone.
pub(crate) fn lower_triangle(s: &SubdomainSystem, strict: usize) -> u64 {
    let (n, bb) = (s.block_rows() as u64, (s.a.block() * s.a.block()) as u64);
    // Diagonal blocks larger than 1 contain a lower triangle, too.
    let diagonal = if s.a.block() == 1 { 0 } else { n * (8 * bb + 4) };
    strict as u64 * (8 * bb + 4) + diagonal + 4 * (n + 1) + vectors(s)
}

/// Returns the bytes of D⁻¹, one block per row.
pub(crate) fn diagonal(s: &SubdomainSystem) -> u64 {
    8 * (s.len() * s.a.block()) as u64
}

/// Returns the bytes of a triangle by edges: numbers, 4 bytes for row and column, an edge pointer per level,
/// and the subdomains' levels.
pub(crate) fn edges(s: &SubdomainSystem, dag: &Dag) -> u64 {
    8 * dag.edge_values.len() as u64 + 4 * dag.pairs.len() as u64 + level_pointers(s, dag)
}

/// Returns the bytes of a triangle by rows: numbers, 2-byte columns, 2-byte rows, an entry pointer per row, a
/// row pointer per level.
pub(crate) fn vertices(s: &SubdomainSystem, dag: &Dag) -> u64 {
    8 * dag.values.len() as u64
        + 2 * dag.columns.len() as u64
        + rows(dag)
        + 4 * dag.entry_ptr.len() as u64
        + level_pointers(s, dag)
}

/// Returns the bytes of the rows of every level, 2 bytes each.
pub(crate) fn rows(dag: &Dag) -> u64 {
    2 * dag.rows.len() as u64
}

/// Returns the bytes of a pointer per level, and two per subdomain: its levels and its rows.
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
