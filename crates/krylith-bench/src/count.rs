//! Flops and bytes of the Kronecker product, counted by formula independently of any implementation.

use krylith_core::Precision;
use krylith_core::matrix::KroneckerSum;
use krylith_core::operator::Terms;
use krylith_model::Shape;

/// The cost of one product y = (A⊗M + τB⊗L)x.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Flops by the paper's count, whatever a kernel does: 4qs² + 4s·nnz·b² + 3qs, with q rows and nnz blocks
    /// of M.
    pub flops: u64,
    /// Bytes that must move: stored numbers, an index array per pattern, x read and y written once.
    pub bytes: u64,
}

/// Returns the flops of a product by the OKP paper's count (its Fig. 14). With x as a matrix X of q rows and
/// s columns, it counts 4qs² for X Aᵀ and X Bᵀ, 4s·nnz·b² for the products with the blocks of M and L, and
/// 3qs for the sums.
pub fn flops(rows: u64, stages: u64, blocks: u64, block: u64) -> u64 {
    4 * rows * stages * stages + 4 * stages * blocks * block * block + 3 * rows * stages
}

/// Counts the cost for a Kronecker sum; `structured` stores only the distinct nonzero numbers of a block.
pub fn product(k: &KroneckerSum, precision: Precision, structured: bool) -> Cost {
    let (s, blocks) = (k.stages() as u64, (k.m.blocks() + k.l.blocks()) as u64);
    let shape = Shape::of(&Terms::kronecker(k), !structured);
    let bytes = shape.product_bytes(k.m.block_rows() as f64, blocks as f64);
    // The model counts 8 bytes per number; subtract what narrower storage saves.
    let narrower = (8 - precision.bytes() as u64) * shape.slots as u64 * blocks / 2;
    // The paper's M and L share a pattern; 4s·nnz·b² is 2 flops per entry and stage, for both.
    let flops = flops(k.m.rows() as u64, s, blocks.div_ceil(2), k.block() as u64);
    Cost { flops, bytes: bytes as u64 - narrower }
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
        let cost = product(&k, Precision::F64, false);
        assert_eq!(cost.bytes / 1_000_000, 594);
        let half = product(&k, Precision::F32, false);
        assert_eq!(cost.bytes - half.bytes, 2 * 16 * 4 * k.m.blocks() as u64);
        assert_eq!(product(&k, Precision::F64, true), cost);
    }

    #[test]
    fn structure_saves_what_it_finds() {
        let case = crate::systems::stokes([4, 4, 4]).unwrap();
        let (dense, structured) =
            (product(&case.kronecker, Precision::F64, false), product(&case.kronecker, Precision::F64, true));
        assert!(structured.bytes < dense.bytes && structured.flops == dense.flops);
    }
}
