//! The 7-point Laplacian, by scalars or by blocks.

use krylith::matrix::{Bsr, Csr};
use krylith::{Error, Result};

use crate::spec::Spec;
use crate::{DuctMesh, Generated, SystemKind, memory};

/// 6 on the diagonal, −1 to each neighbour, values of 0 outside the grid; components of a node are coupled by
/// `coupling`·(I − 11ᵀ/b), which keeps the matrix symmetric positive definite.
pub(crate) fn generate(spec: &Spec) -> Result<Generated> {
    let b = spec.whole("block", 1..=8)? as usize;
    let coupling = spec.fraction("coupling")?;
    let nodes = [spec.size[0], spec.size[1], spec.size[2]];
    let mesh = DuctMesh::new(nodes, [1.0; 3])?;
    let n = mesh.nodes();
    if n > u32::MAX as usize / b {
        return Err(Error::invalid(format!(
            "laplace: {n} nodes of {b} components do not fit 32-bit columns"
        )));
    }
    memory::check("the Laplacian", (n * 7) as u64 * (b * b * 8 + 4) as u64)?;

    let [nx, ny, nz] = nodes;
    let bb = b * b;
    let mut row_ptr = Vec::with_capacity(n + 1);
    let mut col = Vec::with_capacity(7 * n);
    let mut values = Vec::with_capacity(7 * n * bb);
    row_ptr.push(0);
    for i in 0..n {
        let [x, y, z] = mesh.position(i);
        let neighbours = [
            (z > 0, i.wrapping_sub(nx * ny)),
            (y > 0, i.wrapping_sub(nx)),
            (x > 0, i.wrapping_sub(1)),
            (true, i),
            (x + 1 < nx, i + 1),
            (y + 1 < ny, i + nx),
            (z + 1 < nz, i + nx * ny),
        ];
        for (inside, j) in neighbours {
            if !inside {
                continue;
            }
            col.push(j as u32);
            for r in 0..b {
                for c in 0..b {
                    let own = if j == i { 6.0 } else { -1.0 };
                    let shared = if j == i { coupling / b as f64 } else { 0.0 };
                    values.push(if r == c { own + (b - 1) as f64 * shared } else { -shared });
                }
            }
        }
        row_ptr.push(col.len());
    }
    let system = if b == 1 {
        SystemKind::Csr(Csr::new(n, n, row_ptr, col, values)?)
    } else {
        SystemKind::Bsr(Bsr::new(b, n, n, row_ptr, col, values)?)
    };
    Ok(Generated {
        system,
        rhs: vec![1.0; n * b],
        coordinates: Some(mesh.coordinates()),
        mesh: None,
        spec: spec.full(),
    })
}
