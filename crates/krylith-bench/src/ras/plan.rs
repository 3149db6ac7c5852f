//! The subdomain matrices for the vendor's library: the same as in Krylith's own preconditioner.

use krylith_core::Result;
use krylith_core::comm::Solo;
use krylith_core::matrix::Bsr;
use krylith_core::operator::Terms;
use krylith_core::partition::{SubdomainCut, Subdomains};
use krylith_core::precond::{SchwarzPattern, SchwarzPlan};

/// Overlap and fill of the subdomain matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub parts: usize,
    pub overlap: usize,
    pub fill: usize,
}

/// Returns all subdomain matrices as one block-diagonal matrix, with the pattern of their factors.
///
/// # Errors
/// Returns an error if partition or analysis refuses the matrix.
pub(crate) fn plan(a: &Bsr, coordinates: Option<&[[f64; 3]]>, shape: Shape) -> Result<SchwarzPlan> {
    let (terms, way) = (Terms::bsr(a), SubdomainCut::Parts(shape.parts));
    let parts = Subdomains::cut(&terms, coordinates, way, a.block_rows().max(1))?.0;
    let pattern = SchwarzPattern { overlap: shape.overlap, fill: shape.fill, ..SchwarzPattern::default() };
    SchwarzPlan::new(&Solo, &terms, None, &parts, pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_one_result_in_as_many_parts_as_asked() {
        let a = crate::ildu0::laplacian([9, 8, 2], 2).unwrap();
        let made = plan(&a, None, Shape { parts: 4, overlap: 1, fill: 1 }).unwrap();
        assert_eq!(made.subdomains.len(), 5);
        assert!(made.rows() > 144);
        for (node, &row) in made.result.iter().enumerate() {
            assert_eq!(made.node[row as usize] as usize, node);
        }
    }
}
