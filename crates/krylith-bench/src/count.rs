//! Flops and bytes of the Kronecker product, by formula, so that no implementation counts for itself.

use krylith::Store;
use krylith::matrix::KroneckerSum;
use krylith::operator::{Structure, Terms};

/// What one product y = (A⊗M + τB⊗L)x costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// The paper's count, whatever a kernel does: 4qs² + 4s·nnz·b² + 3qs, with q rows and nnz blocks of M.
    pub flops: u64,
    /// Bytes that must move: stored numbers, an index array for each pattern, x read and y written once.
    pub bytes: u64,
}

/// Flops of a product by the OKP paper's count (its Fig. 14): X Aᵀ and X Bᵀ, the blocks, the sums.
pub fn flops(rows: u64, stages: u64, blocks: u64, block: u64) -> u64 {
    4 * rows * stages * stages + 4 * stages * blocks * block * block + 3 * rows * stages
}

/// Counts for a Kronecker sum; `structured` stores only the distinct nonzero numbers of a block.
pub fn product(k: &KroneckerSum, store: Store, structured: bool) -> Cost {
    let terms = Terms::kronecker(k);
    let (b, s) = (k.block() as u64, k.stages() as u64);
    let (rows, block_rows) = (k.m.rows() as u64, k.m.block_rows() as u64);
    let structure = if structured { Structure::find(&terms) } else { Structure::dense(k.block(), 2) };
    let mut bytes = 0;
    for (t, (_, matrix)) in terms.terms.iter().enumerate() {
        let slots = (structure.first[t + 1] - structure.first[t]) as u64;
        bytes += matrix.blocks() as u64 * slots * store.bytes() as u64;
        // 4 bytes a column and a row pointer; M and L of one pattern need them once.
        if t == 0 || !terms.shared_pattern() {
            bytes += 4 * (matrix.blocks() as u64 + block_rows);
        }
    }
    let columns = k.m.columns() as u64;
    bytes += 8 * s * (rows + columns);
    let blocks = (k.m.blocks() + k.l.blocks()) as u64;
    // The paper's M and L share a pattern; 4s·nnz·b² is 2 flops an entry and stage, in both.
    Cost { flops: flops(rows, s, blocks.div_ceil(2), b), bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flops_are_the_paper_s() {
        // Table 1: N = 604,360, s = 2, b = 4; 293,200,460 flops. That is 14.47 blocks a row.
        let blocks = (293_200_460u64 - 4 * 604_360 * 4 - 3 * 604_360 * 2) / (4 * 2 * 16);
        assert!((blocks as f64 / 151_090.0 - 14.47).abs() < 0.01);
        assert!(293_200_460 - flops(604_360, 2, blocks, 4) < 128);
    }

    #[test]
    fn bytes_of_the_paper_s_size_are_594_mb() {
        let k = crate::systems::random([53, 53, 54], 4, 2, 1).unwrap();
        let cost = product(&k, Store::F64, false);
        assert_eq!(cost.bytes / 1_000_000, 594);
        let half = product(&k, Store::F32, false);
        assert_eq!(cost.bytes - half.bytes, 2 * 16 * 4 * k.m.blocks() as u64);
        assert_eq!(product(&k, Store::F64, true), cost);
    }

    #[test]
    fn structure_saves_what_it_finds() {
        let case = crate::systems::stokes([4, 4, 4]).unwrap();
        let (dense, structured) =
            (product(&case.kronecker, Store::F64, false), product(&case.kronecker, Store::F64, true));
        assert!(structured.bytes < dense.bytes && structured.flops == dense.flops);
        // `krylith model` counts the same.
        let terms = Terms::kronecker(&case.kronecker);
        let blocks = (case.kronecker.m.blocks() + case.kronecker.l.blocks()) as f64;
        for (cost, is_dense) in [(dense, true), (structured, false)] {
            let shape = krylith_model::Shape::of(&terms, is_dense);
            assert_eq!(shape.product_bytes(64.0, blocks), cost.bytes as f64);
        }
    }
}
