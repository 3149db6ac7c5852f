//! Darcy flow through uneven rock by RT0–P0 elements: `rt0`.
//!
//! ```text
//! (K⁻¹ w, t) − (p, div t) − (q, div w) = −⟨1, t·n⟩ on x = 0
//! ```
//!
//! The pressure is 1 at x = 0 and 0 at x = 1, and nothing flows through the other sides. K is k diag(1, 1,
//! 1/`anisotropy`) and constant in a tetrahedron. ln k is a smooth random field, and k spans about the
//! factor `contrast`. Unknowns are fluxes through faces and pressures of tetrahedra.

use krylith_core::Result;

use super::assembly::{Block, assemble, load};
use super::elements::{Table, divergences, faces};
use super::flow::{plain, weighted};
use super::simplices::{Mesh, Space, side};
use super::system;
use crate::Generated;
use crate::noise::smooth;
use crate::spec::Spec;
use crate::tets::{area, dot};

/// Sides through which nothing flows: all but x = 0 and x = 1.
const CLOSED: u8 = side(1, 0) | side(1, 1) | side(2, 0) | side(2, 1);

/// ∫ w · D t with the diagonal D.
pub(super) fn mass(mesh: Mesh, weight: [f64; 3]) -> Table {
    Table::form::<4, 4>(mesh, |shape, l, i, j| {
        let f = faces(shape, l);
        dot(f[i], std::array::from_fn(|d| weight[d] * f[j][d]))
    })
}

/// −∫ div w q; a row for each face, or with `turned` a row for the tetrahedron.
pub(super) fn divergence(mesh: Mesh, turned: bool) -> Table {
    let (rows, width) = if turned { (1, 4) } else { (4, 1) };
    Table::integrate(mesh, rows, width, |shape, _, weight, matrix| {
        matrix.iter_mut().zip(divergences(shape)).for_each(|(to, div)| *to -= weight * div);
    })
}

/// Generates `rt0`.
pub(super) fn rt0(spec: &Spec) -> Result<Generated> {
    let (contrast, anisotropy) = (spec.positive("contrast")?, spec.positive("anisotropy")?);
    let seed = spec.whole("seed", 0..=u64::MAX)?;
    let mesh = Mesh::new(spec.grid())?;
    let (w, p) = (Space::faces(mesh).fixed_on(CLOSED), Space::p0(mesh));
    // A smooth field of variance 1 is mostly within ±2.5.
    let resistance = mesh.on_tets(&|x| contrast.powf(-smooth(seed, 61, x.map(|x| 6.0 * x)) / 5.0));
    let (mass, out, into) =
        (mass(mesh, [1.0, 1.0, anisotropy]), divergence(mesh, false), divergence(mesh, true));
    let blocks = vec![
        vec![
            Some(Block::new(&w, &w, weighted(mesh, &mass, &resistance))),
            Some(Block::new(&w, &p, plain(&out))),
        ],
        vec![Some(Block::new(&p, &w, plain(&into))), None],
    ];
    let a = assemble("the Darcy system", &[&w, &p], &blocks)?;
    // The flux of a face's function is 1 along its normal, and the outer normal at x = 0 is −x.
    let rhs = load(&w, &|tet, i| {
        let node = w.local[tet.kind][i];
        let at = std::array::from_fn(|d| tet.at[d] + super::steps(node.mask)[d]);
        let chain = w.chains[node.kind];
        let inlet = mesh.sides(at, chain) & side(0, 0) != 0;
        let normal = area(std::array::from_fn(|k| mesh.point(at, chain[k])));
        [if inlet { normal[0].signum() } else { 0.0 }, 0.0, 0.0]
    });
    system(spec, a, &[("w", &w), ("p", &p)], vec![rhs], Vec::new())
}
