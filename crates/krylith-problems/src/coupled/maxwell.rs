//! Curl-curl equation by Nédélec's edge elements: `nedelec`.
//!
//! ```text
//! (ν curl E, curl v) + β (E, v) = (J, v),   J = (½ − y, x − ½, 0)
//! ```
//!
//! with E × n = 0 on all sides. ν is 1/`contrast` in an iron box, the middle half of the cube along each
//! axis, and 1 elsewhere; β is `mass`. `G` is the discrete gradient, from vertices to edges. `Px`,
//! `Py` and `Pz` interpolate the components of linear vectors (Hiptmair and Xu 2007).

use krylith_core::Result;

use super::assembly::{from_vertices, load};
use super::elements::{Table, curls, edges, rule};
use super::flow::alone;
use super::simplices::{ALL_SIDES, Mesh, Space, TETS};
use super::system;
use crate::Generated;
use crate::spec::Spec;
use crate::tets::dot;

/// Generates `nedelec`.
pub(super) fn nedelec(spec: &Spec) -> Result<Generated> {
    let (beta, contrast) = (spec.positive("mass")?, spec.positive("contrast")?);
    let mesh = Mesh::new(spec.grid())?;
    let e = Space::edges(mesh).fixed_on(ALL_SIDES);
    let iron = |x: [f64; 3]| x.iter().all(|x| (x - 0.5).abs() < 0.25);
    let reluctivity = mesh.on_tets(&|x| if iron(x) { 1.0 / contrast } else { 1.0 });
    let stiffness = Table::form::<6, 6>(mesh, |shape, _, i, j| dot(curls(shape)[i], curls(shape)[j]));
    let mass = Table::form::<6, 6>(mesh, |shape, l, i, j| dot(edges(shape, l)[i], edges(shape, l)[j]));
    let a = alone(
        "the curl-curl system",
        &e,
        Box::new(|tet, i, out| {
            stiffness.add(tet.kind, i, reluctivity[mesh.tet_number(tet)], out);
            mass.add(tet.kind, i, beta, out);
        }),
    )?;
    // The functions at the points of the rule, times weight and volume.
    let rule = rule();
    let functions: [Vec<[[f64; 3]; 6]>; 6] = std::array::from_fn(|kind| {
        let shape = mesh.shape(kind);
        let at =
            |(weight, l): &(f64, [f64; 4])| edges(&shape, *l).map(|e| e.map(|v| v * weight * shape.volume));
        rule.iter().map(at).collect()
    });
    let rhs = load(&e, &|tet, i| {
        let corners: [[f64; 3]; 4] = std::array::from_fn(|k| mesh.point(tet.at, TETS[tet.kind][k]));
        let part = |((_, l), functions): (&(f64, [f64; 4]), &[[f64; 3]; 6])| {
            let x: [f64; 3] = std::array::from_fn(|d| (0..4).map(|k| l[k] * corners[k][d]).sum());
            dot([0.5 - x[1], x[0] - 0.5, 0.0], functions[i])
        };
        [rule.iter().zip(&functions[tet.kind]).map(part).sum(), 0.0, 0.0]
    });
    let vertices = Space::p1(mesh);
    let gradient = from_vertices(&e, &vertices, &|_, k, _, _| Some([-1.0, 1.0][k]))?;
    let nodal = |c: usize| {
        from_vertices(&e, &vertices, &|chain, _, _, _| {
            let (end, start) = (mesh.point([0; 3], chain[1]), mesh.point([0; 3], chain[0]));
            let along = end[c] - start[c];
            (along != 0.0).then_some(0.5 * along)
        })
    };
    let matrices = vec![("G", gradient), ("Px", nodal(0)?), ("Py", nodal(1)?), ("Pz", nodal(2)?)];
    let mut made = system(spec, a, &[("e", &e)], vec![rhs], matrices)?;
    // One field needs no name.
    made.fields.clear();
    Ok(made)
}
