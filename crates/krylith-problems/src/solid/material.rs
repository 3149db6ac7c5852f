//! A fibre-reinforced hyperelastic material: energy, stress and its exact derivative.

use crate::tets::dot;

/// Constants of the energy in Pa; b and b_f are dimensionless.
///
/// ```text
/// ψ = a/2b (exp b(Ī₁ − 3) − 1) + a_f/2b_f (exp b_f⟨I₄ − 1⟩² − 1) + κ/4 (J² − 1 − 2 ln J)
/// ```
///
/// with Ī₁ = J^(−2/3) tr FᵀF and I₄ = |F f₀|² for the fibre direction f₀; ⟨x⟩ = max(x, 0), because fibres do
/// not resist compression. It is the law of Holzapfel and Ogden (2009) without sheets and their coupling.
///
/// # Examples
/// ```
/// use krylith_problems::solid::Material;
/// let (heart, rest) = (Material::default(), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);
/// assert!(heart.energy(&rest, [1.0, 0.0, 0.0]).abs() < 1e-9);
/// let stretched = [[1.1, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
/// let (along, across) = ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]); // fibres that are stretched, and that are not
/// assert!(heart.energy(&stretched, along) > heart.energy(&stretched, across));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Material {
    /// Stiffness a of the matrix between the fibres.
    pub a: f64,
    /// Exponent b of that stiffness.
    pub b: f64,
    /// Stiffness a_f of the fibres.
    pub a_f: f64,
    /// Exponent b_f of the fibres.
    pub b_f: f64,
    /// Penalty κ on changes of volume.
    pub kappa: f64,
}

impl Default for Material {
    /// Returns a, b, a_f and b_f of pig's myocardium (Holzapfel and Ogden 2009, Table 1) and κ = 20 kPa. With
    /// κ = 100 kPa, over 1,000 times a, incomplete factors fail from rest.
    fn default() -> Self {
        Self { a: 59.0, b: 8.023, a_f: 18472.0, b_f: 16.026, kappa: 2e4 }
    }
}

/// Contractions with a gradient g of a shape function: F g, F⁻ᵀ g, ∂Ī₁/∂F g and f₀·g.
#[derive(Debug, Clone, Copy)]
pub(super) struct Along {
    f: [f64; 3],
    h: [f64; 3],
    d: [f64; 3],
    fibre: f64,
    g: [f64; 3],
}

/// The state of the material at one deformation gradient.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deformed {
    f: [[f64; 3]; 3],
    /// F⁻ᵀ.
    h: [[f64; 3]; 3],
    j: f64,
    i1: f64,
    /// J^(−2/3).
    c: f64,
    /// ∂ψ/∂Ī₁ and its derivative.
    p: [f64; 2],
    /// ∂ψ/∂I₄ and its derivative.
    w: [f64; 2],
    fibre: [f64; 3],
    /// F f₀.
    stretched: [f64; 3],
    kappa: f64,
}

impl Material {
    /// Returns ψ at the deformation gradient F, for fibres along the unit vector f₀; NaN if det F is
    /// negative.
    pub fn energy(&self, f: &[[f64; 3]; 3], fibre: [f64; 3]) -> f64 {
        let s = self.at(f, fibre);
        let e = (dot(s.stretched, s.stretched) - 1.0).max(0.0);
        self.a / (2.0 * self.b) * (self.b * (s.c * s.i1 - 3.0)).exp_m1()
            + self.a_f / (2.0 * self.b_f) * (self.b_f * e * e).exp_m1()
            + 0.25 * self.kappa * (s.j * s.j - 1.0 - 2.0 * s.j.ln())
    }

    /// Returns the first Piola–Kirchhoff stress P = ∂ψ/∂F.
    pub fn stress(&self, f: &[[f64; 3]; 3], fibre: [f64; 3]) -> [[f64; 3]; 3] {
        let s = self.at(f, fibre);
        let columns: [[f64; 3]; 3] = std::array::from_fn(|d| {
            let mut e = [0.0; 3];
            e[d] = 1.0;
            s.traction(&s.along(e))
        });
        std::array::from_fn(|i| std::array::from_fn(|d| columns[d][i]))
    }

    #[inline]
    pub(super) fn at(&self, f: &[[f64; 3]; 3], fibre: [f64; 3]) -> Deformed {
        let cofactors: [[f64; 3]; 3] = std::array::from_fn(|i| {
            let (r, s) = (f[(i + 1) % 3], f[(i + 2) % 3]);
            [r[1] * s[2] - r[2] * s[1], r[2] * s[0] - r[0] * s[2], r[0] * s[1] - r[1] * s[0]]
        });
        let j = dot(f[0], cofactors[0]);
        let h = cofactors.map(|row| row.map(|x| x / j));
        let i1: f64 = f.as_flattened().iter().map(|x| x * x).sum();
        let c = j.powf(-2.0 / 3.0); // NaN if the element is inverted
        let p = 0.5 * self.a * (self.b * (c * i1 - 3.0)).exp();
        let stretched = f.map(|row| dot(row, fibre));
        let e = dot(stretched, stretched) - 1.0;
        let w = if e > 0.0 {
            let grown = self.a_f * (self.b_f * e * e).exp();
            [e * grown, (1.0 + 2.0 * self.b_f * e * e) * grown]
        } else {
            [0.0; 2]
        };
        Deformed { f: *f, h, j, i1, c, p: [p, self.b * p], w, fibre, stretched, kappa: self.kappa }
    }
}

impl Deformed {
    #[inline]
    pub fn along(&self, g: [f64; 3]) -> Along {
        let (f, h) = (self.f.map(|row| dot(row, g)), self.h.map(|row| dot(row, g)));
        let d = std::array::from_fn(|i| 2.0 * self.c * (f[i] - self.i1 / 3.0 * h[i]));
        Along { f, h, d, fibre: dot(self.fibre, g), g }
    }

    /// Returns P g.
    #[inline]
    pub fn traction(&self, a: &Along) -> [f64; 3] {
        let volume = 0.5 * self.kappa * (self.j * self.j - 1.0);
        std::array::from_fn(|i| {
            self.p[0] * a.d[i] + 2.0 * self.w[0] * a.fibre * self.stretched[i] + volume * a.h[i]
        })
    }

    /// Returns ∂(P g_a)ᵢ/∂(F_kL) (g_b)_L: 3×3 numbers, row by row.
    #[inline]
    pub fn stiffness(&self, a: &Along, b: &Along) -> [f64; 9] {
        let (j2, isochoric) = (self.j * self.j, 2.0 * self.c * self.p[0]);
        let volume = 0.5 * self.kappa * (j2 - 1.0);
        let diagonal = isochoric * dot(a.g, b.g) + 2.0 * self.w[0] * a.fibre * b.fibre;
        let fibres = 4.0 * self.w[1] * a.fibre * b.fibre;
        let turned = isochoric * self.i1 / 3.0 - volume;
        std::array::from_fn(|ik| {
            let (i, k) = (ik / 3, ik % 3);
            let same = if i == k { diagonal } else { 0.0 };
            let spread = (a.f[i] - self.i1 / 3.0 * a.h[i]) * b.h[k] + a.h[i] * b.f[k];
            same + self.p[1] * a.d[i] * b.d[k] - isochoric * 2.0 / 3.0 * spread
                + turned * b.h[i] * a.h[k]
                + fibres * self.stretched[i] * self.stretched[k]
                + self.kappa * j2 * a.h[i] * b.h[k]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: [[f64; 3]; 3] = [[1.1, 0.05, -0.03], [0.08, 0.97, 0.1], [-0.02, 0.04, 1.06]];
    const FIBRE: [f64; 3] = [0.6, 0.0, 0.8];

    #[test]
    fn stress_is_the_derivative_of_the_energy() {
        let material = Material::default();
        for fibre in [FIBRE, [0.0, 1.0, 0.0]] {
            let stress = material.stress(&F, fibre);
            let size = stress.as_flattened().iter().fold(0.0f64, |m, x| m.max(x.abs()));
            for k in 0..9 {
                let step = 1e-5;
                let at = |s: f64| {
                    let mut f = F;
                    f[k / 3][k % 3] += s;
                    material.energy(&f, fibre)
                };
                let slope = (at(step) - at(-step)) / (2.0 * step);
                assert!((slope - stress[k / 3][k % 3]).abs() < 1e-6 * size, "P_{k}: {slope} by differences");
            }
        }
    }

    #[test]
    fn a_rotation_makes_no_stress() {
        let (c, s) = (0.6, 0.8);
        let f = [[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]];
        let material = Material::default();
        let largest = material.stress(&f, FIBRE).as_flattened().iter().fold(0.0f64, |m, x| m.max(x.abs()));
        assert!(largest < 1e-9 * material.kappa, "{largest} Pa");
        assert!(material.energy(&f, FIBRE).abs() < 1e-9 * material.kappa);
    }

    #[test]
    fn an_inverted_state_is_not_a_number() {
        let f = [[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        assert!(Material::default().stress(&f, FIBRE)[0][0].is_nan());
    }
}
