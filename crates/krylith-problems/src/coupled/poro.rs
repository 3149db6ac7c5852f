//! A step of consolidation of a porous body under its own weight: `biot2` and `biot3`.
//!
//! The body stands on the floor z = 0, where u = 0, and drains through the top z = 1, where p = 0. Young's
//! modulus is 1, Biot's coefficient is 1, and the time step is part of the permeability κ. σ = 2μ ε(u) + λ
//! div u. `biot2` has displacement P2 and pressure P1,
//!
//! ```text
//! (σ(u), ε(v)) − (p, div v) = (f, v),   −(q, div u) − s (p, q) − κ (∇p, ∇q) = 0,   f = (0, 0, −1)
//! ```
//!
//! `biot3` has displacement P2, the flux of the fluid in RT0, and pressure P0, which is stable for all κ,
//!
//! ```text
//! (σ(u), ε(v)) − (p, div v) = (f, v),   κ⁻¹ (w, t) − (p, div t) = 0,
//! −(q, div u) − (q, div w) − s (p, q) = 0
//! ```
//!
//! with w·n = 0 on all sides but the top. `Sp` is the fixed-stress matrix (Kim, Tchelepi and Juanes 2011), of
//! the form (s + 1/(λ + 2μ/3)) (p, q) + κ (∇p, ∇q). In `biot3` the last term is D diag(W)⁻¹ Dᵀ with the mass
//! matrix W of the flux and its divergence D. The displacement has the rigid motions as near-null vectors.

use krylith_core::Result;
use krylith_core::matrix::Csr;

use super::assembly::{Block, assemble, load};
use super::darcy::{divergence, mass};
use super::elements::{Table, p1_laplacian, p1_mass, p2, p2_divergence, p2_gradient, p2_strain};
use super::flow::{alone, plain};
use super::simplices::{ALL_SIDES, Mesh, Space, side};
use super::{interpolation, system};
use crate::Generated;
use crate::spec::Spec;

const FLOOR: u8 = side(2, 0);
const TOP: u8 = side(2, 1);

/// What both problems share.
struct Body {
    u: Space,
    /// 2 ε(u) : ε(v) + (λ/μ) div u div v.
    elasticity: Table,
    mu: f64,
    /// s and κ.
    storage: f64,
    permeability: f64,
    /// The storage of the fixed-stress matrix.
    fixed_stress: f64,
}

impl Body {
    fn new(spec: &Spec) -> Result<Self> {
        let poisson = spec.positive("poisson")?;
        if poisson >= 0.5 {
            return Err(spec.bad("poisson", "a ratio below 0.5"));
        }
        let (storage, permeability) = (spec.nonnegative("storage")?, spec.positive("permeability")?);
        let mesh = Mesh::new(spec.grid())?;
        let (lambda, mu) = (poisson / ((1.0 + poisson) * (1.0 - 2.0 * poisson)), 0.5 / (1.0 + poisson));
        Ok(Self {
            u: Space::p2(mesh).vectors().fixed_on(FLOOR),
            elasticity: p2_strain(mesh, lambda / mu),
            mu,
            storage,
            permeability,
            fixed_stress: storage + 1.0 / (lambda + 2.0 * mu / 3.0),
        })
    }

    fn stiffness(&self) -> Block<'_> {
        let element = |tet: super::simplices::Tet, i: usize, out: &mut [f64]| {
            self.elasticity.add(tet.kind, i, self.mu, out);
        };
        Block::new(&self.u, &self.u, Box::new(element))
    }

    fn weight(&self) -> Vec<f64> {
        let unit = Table::integrate(self.u.mesh, 10, 1, |_, l, weight, row| {
            row.iter_mut().zip(p2(l)).for_each(|(to, v)| *to -= weight * v);
        });
        load(&self.u, &|tet, i| [0.0, 0.0, unit.row(tet.kind, i)[0]])
    }

    /// Puts the system together, with rigid modes.
    fn finish(&self, spec: &Spec, a: Csr, others: &[(&str, &Space)], schur: Csr) -> Result<Generated> {
        let spaces: Vec<_> = [("u", &self.u)].into_iter().chain(others.iter().copied()).collect();
        let linear = Space::p1(self.u.mesh);
        let matrices = vec![("Sp", schur), ("P", interpolation(&self.u, &linear)?)];
        let mut made = system(spec, a, &spaces, vec![self.weight()], matrices)?;
        made.fields[0] = made.fields[0].clone().with_rigid_modes()?;
        Ok(made)
    }
}

/// Generates `biot2`.
pub(super) fn biot2(spec: &Spec) -> Result<Generated> {
    let body = Body::new(spec)?;
    let (u, mesh) = (&body.u, body.u.mesh);
    let p = Space::p1(mesh).fixed_on(TOP);
    let (gradient, divergence) = (p2_gradient(mesh, |l| l), p2_divergence(mesh, |l| l));
    let (mass, laplacian) = (p1_mass(mesh), p1_laplacian(mesh));
    let flow = |storage: f64, sign: f64| -> super::assembly::Element {
        let (mass, laplacian, kappa) = (&mass, &laplacian, body.permeability);
        Box::new(move |tet, i, out| {
            mass.add(tet.kind, i, sign * storage, out);
            laplacian.add(tet.kind, i, sign * kappa, out);
        })
    };
    let blocks = vec![
        vec![Some(body.stiffness()), Some(Block::new(u, &p, plain(&gradient)))],
        vec![Some(Block::new(&p, u, plain(&divergence))), Some(Block::new(&p, &p, flow(body.storage, -1.0)))],
    ];
    let a = assemble("the porous body", &[u, &p], &blocks)?;
    let schur = alone("Sp", &p, flow(body.fixed_stress, 1.0))?;
    body.finish(spec, a, &[("p", &p)], schur)
}

/// Generates `biot3`.
pub(super) fn biot3(spec: &Spec) -> Result<Generated> {
    let body = Body::new(spec)?;
    let (u, mesh) = (&body.u, body.u.mesh);
    let (w, p) = (Space::faces(mesh).fixed_on(ALL_SIDES & !TOP), Space::p0(mesh));
    let (gradient, squeeze) = (p2_gradient(mesh, |_| [1.0]), p2_divergence(mesh, |_| [1.0]));
    let (flux, out, into) =
        (mass(mesh, [1.0 / body.permeability; 3]), divergence(mesh, false), divergence(mesh, true));
    let volume = Table::form::<1, 1>(mesh, |_, _, _, _| -body.storage);
    let blocks = vec![
        vec![Some(body.stiffness()), None, Some(Block::new(u, &p, plain(&gradient)))],
        vec![None, Some(Block::new(&w, &w, plain(&flux))), Some(Block::new(&w, &p, plain(&out)))],
        vec![
            Some(Block::new(&p, u, plain(&squeeze))),
            Some(Block::new(&p, &w, plain(&into))),
            Some(Block::new(&p, &p, plain(&volume))),
        ],
    ];
    let a = assemble("the porous body", &[u, &w, &p], &blocks)?;
    let schur = fixed_stress(&a, u.len()..u.len() + w.len(), body.fixed_stress, mesh)?;
    body.finish(spec, a, &[("w", &w), ("p", &p)], schur)
}

/// Returns (p, q) times `storage` + D diag(W)⁻¹ Dᵀ for the flux unknowns `w` of `a`: two tetrahedra couple
/// through their common face.
fn fixed_stress(a: &Csr, w: std::ops::Range<usize>, storage: f64, mesh: Mesh) -> Result<Csr> {
    let n = mesh.tets();
    let row = |i: usize| {
        let mut entries = vec![(i as u32, storage * mesh.shape(mesh.tet(i).kind).volume)];
        let (faces, into) = a.row(w.end + i);
        for (&f, &d) in faces.iter().zip(into).filter(|(f, _)| w.contains(&(**f as usize))) {
            let f = f as usize;
            let (tets, out) = a.row(f);
            for (&t, &e) in tets.iter().zip(out).filter(|(t, _)| **t as usize >= w.end) {
                let (to, v) = (t - w.end as u32, d * e / a.get(f, f));
                match entries.iter_mut().find(|entry| entry.0 == to) {
                    Some(entry) => entry.1 += v,
                    None => entries.push((to, v)),
                }
            }
        }
        entries.sort_unstable_by_key(|entry| entry.0);
        entries
    };
    let rows = krylith_base::threads::collect(0..n, 1024, &row);
    let mut row_ptr = vec![0];
    row_ptr.extend(rows.iter().scan(0, |sum, row| {
        *sum += row.len();
        Some(*sum)
    }));
    let (col, values) = rows.into_iter().flatten().unzip();
    Csr::new(n, n, row_ptr, col, values)
}
