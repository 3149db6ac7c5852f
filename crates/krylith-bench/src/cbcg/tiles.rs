//! The preconditioner: incomplete factors on tiles of the grid, with the P-CBCG paper's shapes as far as the
//! device supports them.

use super::Case;
use super::kernels::{AT, Kernel, Role, state};
use crate::ildu0::reference::Factors;
use crate::ildu0::system::{SubdomainSystem, boxes};
use crate::systems::{Random, dot};
use krylith_core::matrix::Bsr;
use krylith_core::method::cg;
use krylith_core::operator::{Dots, LinearOperator, Terms};
use krylith_core::precond::{BlockTiles, BlockTilesOptions, TileFactors, TileShape};
use krylith_core::{Error, Result};
use std::rc::Rc;

/// Returns a kernel per tile, the device's own tile first; tiles that a device does not support are omitted.
pub(super) fn all<'k, S: TileFactors + 'k>(
    space: &Rc<S>,
    case: &'k Case,
    shapes: &[[usize; 3]],
) -> Result<Vec<Kernel<'k>>> {
    let mut all = vec![one(space, case, TileShape::Auto)?];
    for &shape in shapes {
        match one(space, case, TileShape::Box(shape)) {
            Ok(kernel) => all.push(kernel),
            Err(Error::Unsupported(_) | Error::Invalid { .. }) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(all)
}

/// Returns true if the device supports tiles of a shape.
pub(super) fn supports<S: TileFactors>(space: &Rc<S>, case: &Case, tile: [usize; 3]) -> Result<bool> {
    let options = BlockTilesOptions { tile: TileShape::Box(tile), ..BlockTilesOptions::default() };
    match BlockTiles::new(space.as_ref(), &Terms::csr(&case.a)?, case.grid, options) {
        Ok(_) => Ok(true),
        Err(Error::Unsupported(_) | Error::Invalid { .. }) => Ok(false),
        Err(e) => Err(e),
    }
}

/// z = M⁻¹ r with (r, r) and (r, z): lines 7 and 8.
fn one<'k, S: TileFactors + 'k>(space: &Rc<S>, case: &'k Case, shape: TileShape) -> Result<Kernel<'k>> {
    let n = case.rows();
    let terms = Terms::csr(&case.a)?;
    let options = BlockTilesOptions { tile: shape, ..BlockTilesOptions::default() };
    let tiles = BlockTiles::new(space.as_ref(), &terms, case.grid, options)?;
    drop(terms);
    let x = Random(47).numbers(n);
    let held = state(space, &[x.clone(), vec![f64::NAN; n]])?;
    let (bytes, tile) = (tiles.bytes() as f64 / n as f64, tiles.tiling().tile);
    Ok(Kernel::of(
        format!("tiles {} with their dots", crate::publish::sizes(tile)),
        // Three couplings to lower and three to higher neighbours, D⁻¹, and two sums.
        (6.0 + 6.0 + 1.0 + 4.0, bytes, Some([20.0, 128.0, 0.84])),
        held,
        move |space: &S, [x, y], scalars| match tiles.apply_with_dots(
            space,
            x,
            y,
            scalars,
            Dots::XxXy(AT.rr),
        )? {
            true => Ok(()),
            false => space.sweep(cg::dots, scalars, [], [&*x, &*y], [], [AT.rr, AT.rho_next]),
        },
        (&[1], &[AT.rr, AT.rho_next]),
        move || {
            // If the reference fails, it must not agree with anything.
            let mut z = reference(case, tile, &x).unwrap_or_default();
            let sums = [dot(&x, &x), dot(&x, &z)];
            z.extend(sums);
            z
        },
    )
    .role(Role::Preconditioner))
}

/// Returns M⁻¹ x for the incomplete factors of tiles, by the general reference of the suite ildu0.
pub(crate) fn reference(case: &Case, tile: [usize; 3], x: &[f64]) -> Result<Vec<f64>> {
    let a = Bsr::from_csr(&case.a, 1)?;
    let (labels, count) = boxes(case.grid, tile);
    let system = SubdomainSystem::decompose(&a, &labels, count)?;
    let factors = Factors::new(&system)?;
    let lower = factors.scale(&system, &factors.lower(&system, &system.sort(x)));
    Ok(system.unsort(&factors.upper(&system, &lower)))
}
