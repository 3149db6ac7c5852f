//! Finds matrices of edge elements, such as curl-curl: a large share of the eigenvalues nearly vanishes,
//! because the curl of a gradient does. The gradients, their eigenvectors, are not seen in the matrix. Face
//! elements are the same with curls and their divergence.
//!
//! Other matrices have such a share too. Nearly incompressible solids have nodes of several components. A
//! diffusion whose coefficients differ much has rows that sum to zero; so have edge elements on bricks, but
//! their share is larger.

use super::nodes::{self, Nodes};
use super::{ScalarRows, ritz};
use crate::fields::{Coupled, Field, Recognised};

/// Number of rows that are looked at.
const SAMPLE: usize = 500;
/// Largest difference of mirrored entries, and largest sum of a row that counts as zero, as a share of the
/// magnitudes of the row.
const ROUNDING: f64 = 1e-9;
/// Largest sum of the magnitudes beside the diagonal of a diffusion, as a share of the diagonal entry.
const DOMINANT: f64 = 1.0 + 1e-9;
/// Largest ratio of the smallest to the largest Ritz value. After eight Lanczos steps it is at most 0.003 for
/// edge elements of order 1 and 2 on triangles and tetrahedra. It is 0.02 and more for diffusion, and above
/// 0.008 with an anisotropy of 10⁴.
const NEAR_ZERO: f64 = 0.005;
/// Smallest share of eigenvalues near zero, and the same if rows sum to zero. It is 0.09 to 0.44 for these
/// edge elements, whose rows do not, and 1/3 for edges of bricks.
const KERNEL: [f64; 2] = [0.05, 0.2];
/// Numbers of components and share of their entries that make the nodes of a solid.
const SOLID: ([usize; 2], f64) = ([3, 2], 0.8);

/// Returns no fields, and what was found.
pub(super) fn find(a: &ScalarRows, diagonal: &[f64]) -> Option<(Vec<Field>, Recognised)> {
    if a.block != 1 || diagonal.iter().any(|d| *d <= 0.0) {
        return None;
    }
    let share_of_zero_sums = sample(a, diagonal)?;
    let alone = a.alone();
    let of: Vec<bool> = alone.iter().map(|alone| !alone).collect();
    let Nodes { block, .. } = nodes::find(a, &of, &alone, &SOLID.0, SOLID.1);
    if block > 1 {
        return None;
    }
    let ritz::Extremes { smallest, share, largest } = ritz::extremes(a, &of, diagonal, 1.0);
    let least = KERNEL[usize::from(share_of_zero_sums > 0.5)];
    let fits = smallest.abs() <= NEAR_ZERO * largest && share >= least;
    let text = || {
        format!(
            "edge elements, as of a curl-curl equation: {:.0} % of the eigenvalues nearly vanish, as those of \
             gradients do. The matrix does not show the gradients. With matrices G, the discrete gradient, and Px, \
             Py, Pz, the interpolation of nodal vectors, the method of Hiptmair and Xu needs 10 to 40 iterations",
            100.0 * share
        )
    };
    fits.then(|| (Vec::new(), Recognised { kind: Coupled::CurlCurl, text: text() }))
}

/// Returns the share of rows that sum to zero, in a sample. Returns `None` if the matrix is not symmetric, or
/// if most rows are diagonally dominant, as those of a diffusion.
fn sample(a: &ScalarRows, diagonal: &[f64]) -> Option<f64> {
    let (mut rows, mut zero, mut dominant) = (0usize, 0usize, 0usize);
    for i in super::sample(a.rows, SAMPLE) {
        let (mut sum, mut all, mut others) = (0.0, 0.0, 0usize);
        for (j, v) in a.row(i) {
            (sum, all, others) = (sum + v, all + v.abs(), others + usize::from(j != i));
            let mirrored = a.entry(j, i);
            if (v - mirrored).abs() > ROUNDING * diagonal[i].max(diagonal[j]) {
                return None;
            }
        }
        if others > 0 {
            rows += 1;
            zero += usize::from(sum.abs() <= ROUNDING * all);
            dominant += usize::from(all - diagonal[i] <= DOMINANT * diagonal[i]);
        }
    }
    (2 * dominant <= rows).then(|| zero as f64 / rows.max(1) as f64)
}
