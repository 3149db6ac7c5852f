//! Small matrices that several tests use.

use krylith_core::matrix::{Bsr, Csr, Dense};
use krylith_core::operator::Terms;
use std::borrow::Cow;

/// A matrix of 1×1 blocks of ones with these rows.
pub fn pattern(rows: Vec<Vec<u32>>, columns: usize) -> Bsr {
    let (mut row_ptr, mut col) = (vec![0], Vec::new());
    for mut row in rows {
        row.sort_unstable();
        row.dedup();
        col.extend(row);
        row_ptr.push(col.len());
    }
    let values = vec![1.0; col.len()];
    Bsr::new(1, row_ptr.len() - 1, columns, row_ptr, col, values).unwrap()
}

/// One square matrix of ones with these rows.
pub fn square_pattern(rows: Vec<Vec<u32>>) -> Terms<'static> {
    let n = rows.len();
    Terms::new(vec![(Dense::identity(1), Cow::Owned(pattern(rows, n)))]).unwrap()
}

/// A grid of nodes with their neighbours along the axes, and where they lie.
pub fn grid_of_points([nx, ny, nz]: [usize; 3]) -> (Terms<'static>, Vec<[f64; 3]>) {
    let (mut rows, mut points) = (Vec::new(), Vec::new());
    for i in 0..nx * ny * nz {
        let at = [i % nx, i / nx % ny, i / (nx * ny)];
        let mut row = vec![i as u32];
        for (d, (step, edge)) in [(1, nx), (nx, ny), (nx * ny, nz)].into_iter().enumerate() {
            row.extend((at[d] > 0).then(|| (i - step) as u32));
            row.extend((at[d] + 1 < edge).then_some((i + step) as u32));
        }
        rows.push(row);
        points.push(at.map(|x| x as f64));
    }
    (square_pattern(rows), points)
}

/// c A.
pub fn scaled(c: f64, a: &Bsr) -> Terms<'_> {
    Terms::new(vec![(Dense::new(1, 1, vec![c]).unwrap(), Cow::Borrowed(a))]).unwrap()
}

/// Upwind convection–diffusion on a square of m×m nodes.
pub fn convection_diffusion(m: usize) -> Csr {
    let mut entries = Vec::new();
    for i in 0..m {
        for j in 0..m {
            let row = (i * m + j) as u32;
            entries.push((row, row, 4.0 + 1.5));
            for (di, dj, v) in [(-1, 0, -1.9), (1, 0, -1.0), (0, -1, -1.6), (0, 1, -1.0)] {
                let (p, q) = (i as i64 + di, j as i64 + dj);
                if (0..m as i64).contains(&p) && (0..m as i64).contains(&q) {
                    entries.push((row, (p * m as i64 + q) as u32, v));
                }
            }
        }
    }
    Csr::from_triplets(m * m, m * m, &entries).unwrap()
}
