//! Slow flow in the unit cube by Taylor–Hood elements: `taylor-hood` and `oseen`.
//!
//! `taylor-hood` is Stokes flow with balls that sink, as in the multi-sinker test of May, Brown and Le
//! Pourhiet (2015). For all test functions v and q,
//!
//! ```text
//! (2 μ ε(u), ε(v)) − (p, div v) − (q, div u) = (f, v),   f = (0, 0, −x − 10 [in a ball])
//! ```
//!
//! with μ = `contrast` in balls and 1 elsewhere, by the centre of a tetrahedron. u = 0 on all sides but x =
//! 1, which is free of stress. With `enclosed` it is a wall too, and the pressure has a free constant. `Mp`
//! is the mass matrix with the weight 1/μ.
//!
//! `oseen` has (ν ∇u, ∇v) + (w·∇u, v) instead of the viscous term, and f = (0, 0, −x). ν = 1/`reynolds`. The
//! wind turns about the axis x = y = 1/2. It is the curl of a bump, so it is free of divergence, and zero on
//! all sides:
//!
//! ```text
//! w = (3√3/16) curl (0, 0, b(x) b(y) b(z)),   b(s) = 16 s² (1 − s)²,   max |w| = 1
//! ```
//!
//! There is no stabilisation. The matrices of pressure convection–diffusion are Mp = (p, q), Lp = (∇p, ∇q)
//! and Fp = ν Lp + (w·∇p, q). On the open side, pressures have boundary values in Lp and Fp (Elman,
//! Silvester and Wathen 2014, section 9.2.2). Integrals with w use 14 points of degree 5.

use krylith_core::Result;
use krylith_core::matrix::Csr;

use super::assembly::{Block, Element, assemble, load};
use super::elements::{
    Table, p1_laplacian, p1_mass, p2, p2_divergence, p2_gradient, p2_gradients, p2_strain, rule,
};
use super::simplices::{ALL_SIDES, Mesh, Space, TETS, Tet, side};
use super::{Balls, interpolation, system};
use crate::Generated;
use crate::spec::Spec;
use crate::tets::{Shape, dot};

/// Velocity and pressure.
struct Spaces {
    u: Space,
    p: Space,
    /// The side that is no wall.
    open: u8,
}

impl Spaces {
    fn new(spec: &Spec) -> Result<Self> {
        let mesh = Mesh::new(spec.grid())?;
        let open = [side(0, 1), 0][spec.choice("enclosed", &["false", "true"])?];
        let u = Space::p2(mesh).vectors().fixed_on(ALL_SIDES & !open);
        Ok(Self { u, p: Space::p1(mesh), open })
    }

    /// Assembles the system of a momentum block, and the load of a force along z, per tetrahedron.
    fn stokes(&self, spec: &Spec, momentum: Block, force: &[f64]) -> Result<(Csr, Vec<f64>)> {
        let Self { u, p, .. } = self;
        let mesh = u.mesh;
        let (gradient, divergence) = (p2_gradient(mesh, |l| l), p2_divergence(mesh, |l| l));
        let rows = vec![
            vec![Some(momentum), Some(Block::new(u, p, plain(&gradient)))],
            vec![Some(Block::new(p, u, plain(&divergence))), None],
        ];
        let a = assemble(spec.problem.name, &[u, p], &rows)?;
        let unit = Table::integrate(mesh, 10, 1, |_, l, weight, row| {
            row.iter_mut().zip(p2(l)).for_each(|(to, v)| *to += weight * v);
        });
        let rhs = load(u, &|tet, i| [0.0, 0.0, force[mesh.tet_number(tet)] * unit.row(tet.kind, i)[0]]);
        Ok((a, rhs))
    }
}

/// Returns the element of a table alone.
pub(super) fn plain(table: &Table) -> Element<'_> {
    Box::new(|tet, i, out| table.add(tet.kind, i, 1.0, out))
}

/// Returns the element of a table times a number per tetrahedron.
pub(super) fn weighted<'a>(mesh: Mesh, table: &'a Table, weights: &'a [f64]) -> Element<'a> {
    Box::new(move |tet, i, out| table.add(tet.kind, i, weights[mesh.tet_number(tet)], out))
}

/// Assembles the matrix of one space.
pub(super) fn alone(what: &str, space: &Space, element: Element) -> Result<Csr> {
    assemble(what, &[space], &[vec![Some(Block::new(space, space, element))]])
}

/// Generates `taylor-hood`.
pub(super) fn taylor_hood(spec: &Spec) -> Result<Generated> {
    let (contrast, bodies) = (spec.positive("contrast")?, spec.whole("bodies", 0..=1000)?);
    let spaces = Spaces::new(spec)?;
    let (mesh, balls) = (spaces.u.mesh, Balls::new(bodies as usize, spec.whole("seed", 0..=u64::MAX)?));
    let viscosity = mesh.on_tets(&|x| if balls.contain(x) { contrast } else { 1.0 });
    let force = mesh.on_tets(&|x| -x[0] - if balls.contain(x) { 10.0 } else { 0.0 });
    let strain = p2_strain(mesh, 0.0);
    let momentum = Block::new(&spaces.u, &spaces.u, weighted(mesh, &strain, &viscosity));
    let (a, rhs) = spaces.stokes(spec, momentum, &force)?;
    let fluidity: Vec<f64> = viscosity.iter().map(|mu| 1.0 / mu).collect();
    let mass = alone("the mass matrix", &spaces.p, weighted(mesh, &p1_mass(mesh), &fluidity))?;
    let matrices = vec![("Mp", mass), ("P", interpolation(&spaces.u, &spaces.p)?)];
    system(spec, a, &[("u", &spaces.u), ("p", &spaces.p)], vec![rhs], matrices)
}

/// Returns the wind of `oseen` at a point.
fn wind([x, y, z]: [f64; 3]) -> [f64; 3] {
    let bump = |s: f64| 16.0 * (s * (1.0 - s)).powi(2);
    let slope = |s: f64| 32.0 * s * (1.0 - s) * (1.0 - 2.0 * s);
    let scale = 3.0 * 3f64.sqrt() / 16.0 * bump(z);
    [scale * bump(x) * slope(y), -scale * slope(x) * bump(y), 0.0]
}

/// Generates `oseen`.
pub(super) fn oseen(spec: &Spec) -> Result<Generated> {
    let nu = 1.0 / spec.positive("reynolds")?;
    let spaces = Spaces::new(spec)?;
    let (mesh, p) = (spaces.u.mesh, &spaces.p);
    let shapes: [Shape; 6] = std::array::from_fn(|kind| mesh.shape(kind));
    let rule = rule();
    // The wind at the points of a tetrahedron, times weight and volume.
    let at_points = |tet: Tet| {
        let corners: [[f64; 3]; 4] = std::array::from_fn(|k| mesh.point(tet.at, TETS[tet.kind][k]));
        let volume = shapes[tet.kind].volume;
        rule.iter().map(move |(weight, l)| {
            let x = std::array::from_fn(|d| (0..4).map(|k| l[k] * corners[k][d]).sum());
            (*l, wind(x).map(|w| w * weight * volume))
        })
    };
    let gradients =
        shapes.map(|shape| rule.iter().map(|(_, l)| p2_gradients(&shape, *l)).collect::<Vec<_>>());
    let values: Vec<[f64; 10]> = rule.iter().map(|(_, l)| p2(*l)).collect();
    let viscous = Table::form::<10, 10>(mesh, |shape, l, i, j| {
        let g = p2_gradients(shape, l);
        nu * dot(g[i], g[j])
    });
    let momentum = Block::new(
        &spaces.u,
        &spaces.u,
        Box::new(|tet, i, out| {
            let mut row: [f64; 10] = std::array::from_fn(|j| viscous.row(tet.kind, i)[j]);
            for (k, (_, w)) in at_points(tet).enumerate() {
                let value = values[k][i];
                row.iter_mut().zip(&gradients[tet.kind][k]).for_each(|(to, g)| *to += value * dot(w, *g));
            }
            for (block, v) in out.chunks_exact_mut(9).zip(row) {
                (0..3).for_each(|c| block[4 * c] += v);
            }
        }),
    );
    let force = mesh.on_tets(&|x| -x[0]);
    let (a, rhs) = spaces.stokes(spec, momentum.by_component(), &force)?;

    let (laplacian, held) = (p1_laplacian(mesh), p.clone().fixed_on(spaces.open));
    let convection: Element = Box::new(|tet, i, out| {
        laplacian.add(tet.kind, i, nu, out);
        for (l, w) in at_points(tet) {
            let gradients = &shapes[tet.kind].gradients;
            out.iter_mut().zip(gradients).for_each(|(to, g)| *to += l[i] * dot(w, *g));
        }
    });
    let matrices = vec![
        ("Fp", alone("Fp", &held.clone().with_diagonal(nu), convection)?),
        ("Lp", alone("Lp", &held, plain(&laplacian))?),
        ("Mp", alone("Mp", p, plain(&p1_mass(mesh)))?),
        ("P", interpolation(&spaces.u, p)?),
    ];
    system(spec, a, &[("u", &spaces.u), ("p", p)], vec![rhs], matrices)
}

#[cfg(test)]
mod tests {
    use super::wind;

    #[test]
    fn the_wind_has_speed_one_and_no_divergence() {
        let speed = |x: [f64; 3]| wind(x).iter().map(|w| w * w).sum::<f64>().sqrt();
        let fastest = [0.5, 0.5 - 0.5 / 3f64.sqrt(), 0.5];
        assert!((speed(fastest) - 1.0).abs() < 1e-14);
        for code in 0..1000 {
            let x = [code % 10, code / 10 % 10, code / 100].map(|k| f64::from(k) / 9.0);
            assert!(speed(x) <= 1.0);
            let moved = |d: usize, h: f64| std::array::from_fn(|k| x[k] + if k == d { h } else { 0.0 });
            let slope = |d: usize| (wind(moved(d, 1e-5))[d] - wind(moved(d, -1e-5))[d]) / 2e-5;
            assert!((0..3).map(slope).sum::<f64>().abs() < 1e-7);
            if x.iter().any(|x| *x == 0.0 || *x == 1.0) {
                assert!(speed(x) < 1e-15);
            }
        }
    }
}
