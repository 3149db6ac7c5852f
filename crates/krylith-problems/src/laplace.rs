//! The 7-point Laplacian, scalar or in blocks.

use krylith_core::Result;
use krylith_core::partition::contiguous;
use std::ops::Range;

use crate::DuctMesh;
use crate::grid::{Grid, Link, SevenPoint, check_memory};
use crate::spec::Spec;

/// The 7-point Laplacian: 6 on the diagonal, −1 for each neighbour, and zero values outside the grid. The
/// components of a node are coupled by `coupling`·(I − 11ᵀ/b), which keeps the matrix symmetric positive
/// definite.
pub(crate) struct Laplacian {
    mesh: DuctMesh,
    grid: Grid,
    own: Range<usize>,
    b: usize,
    coupling: f64,
}

impl Laplacian {
    /// Builds the rows of `rank` among `ranks`.
    pub fn new(spec: &Spec, rank: usize, ranks: usize) -> Result<Self> {
        let b = spec.whole("block", 1..=8)? as usize;
        let coupling = spec.fraction("coupling")?;
        let mesh = DuctMesh::new(spec.grid(), [1.0; 3])?;
        let own = contiguous(mesh.nodes(), rank, ranks);
        check_memory("the Laplacian", own.len(), b, 0)?;
        Ok(Self { mesh, grid: Grid::new(spec.grid())?, own, b, coupling })
    }
}

impl SevenPoint for Laplacian {
    const NAME: &'static str = "laplace";

    fn grid(&self) -> Grid {
        self.grid
    }
    fn own(&self) -> Range<usize> {
        self.own.clone()
    }
    fn block(&self) -> usize {
        self.b
    }

    fn row(&self, _i: usize, links: &[Link], blocks: &mut [f64]) {
        let b = self.b;
        for (link, block) in links.iter().zip(blocks.chunks_exact_mut(b * b)) {
            let (own, shared) =
                if link.axis.is_none() { (6.0, self.coupling / b as f64) } else { (-1.0, 0.0) };
            block.fill(-shared);
            for c in 0..b {
                block[c * (b + 1)] = own + (b - 1) as f64 * shared;
            }
        }
    }

    fn rhs(&self, _i: usize, out: &mut [f64]) {
        out.fill(1.0);
    }

    fn coordinate(&self, i: usize) -> [f64; 3] {
        self.mesh.coordinate(i)
    }
}
