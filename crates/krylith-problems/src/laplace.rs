//! The 7-point Laplacian, by scalars or by blocks.

use krylith::matrix::{Bsr, Csr, Dense};
use krylith::partition::{RowBlocks, Rows, run};
use krylith::{Error, Result};
use std::ops::Range;

use crate::spec::Spec;
use crate::{DuctMesh, Generated, GeneratedRows, SystemKind, memory};

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
    let (row_ptr, col, values) = blocks(&mesh, 0..n, b, coupling, |j| j as u32);
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

/// One rank's rows of the same.
pub(crate) fn generate_rows(spec: &Spec, rank: usize, ranks: usize) -> Result<GeneratedRows> {
    let b = spec.whole("block", 1..=8)? as usize;
    let coupling = spec.fraction("coupling")?;
    let mesh = DuctMesh::new([spec.size[0], spec.size[1], spec.size[2]], [1.0; 3])?;
    let own = run(mesh.nodes(), rank, ranks);
    memory::check("a rank's part of the Laplacian", (own.len() * 7) as u64 * (b * b * 8 + 8) as u64)?;
    let (row_ptr, col, values) = blocks(&mesh, own.clone(), b, coupling, |j| j as u64);
    Ok(GeneratedRows {
        rhs: vec![1.0; own.len() * b],
        nodes: mesh.nodes(),
        coordinates: Some(own.clone().map(|i| mesh.coordinate(i)).collect()),
        rows: Rows {
            numbers: own.map(|i| i as u64).collect(),
            block: b,
            terms: vec![(Dense::identity(1), RowBlocks { row_ptr, col, values })],
        },
        spec: spec.full(),
    })
}

/// Row pointers, columns and values of the rows `own`.
fn blocks<C>(
    mesh: &DuctMesh,
    own: Range<usize>,
    b: usize,
    coupling: f64,
    column: impl Fn(usize) -> C,
) -> (Vec<usize>, Vec<C>, Vec<f64>) {
    let [nx, ny, nz] = mesh.sizes();
    let mut row_ptr = Vec::with_capacity(own.len() + 1);
    let mut col = Vec::with_capacity(7 * own.len());
    let mut values = Vec::with_capacity(7 * own.len() * b * b);
    row_ptr.push(0);
    for i in own {
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
            col.push(column(j));
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
    (row_ptr, col, values)
}
