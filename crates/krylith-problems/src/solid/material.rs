//! Muscle as a hyperelastic material: energy, stress and its exact derivative.

use krylith_core::{Error, Result};

use crate::tets::dot;

/// Directions of the material at rest, as orthogonal unit vectors: the fibre f₀ and the sheet s₀. The
/// opposite vectors are the same material.
pub type Axes = [[f64; 3]; 2];

/// Constants of the energy. Stiffnesses are in Pa; each b is dimensionless.
///
/// ```text
/// ψ = a/2b (exp b(Ī₁ − 3) − 1) + a_f/2b_f (exp b_f⟨I₄f − 1⟩² − 1) + a_s/2b_s (exp b_s⟨I₄s − 1⟩² − 1)
///   + a_fs/2b_fs (exp b_fs I₈² − 1) + κ/4 (J² − 1 − 2 ln J) + T/2 ((1 − c)(I₄f − 1) + c (I₁ − 3))
/// ```
///
/// with I₁ = tr FᵀF, Ī₁ = J^(−2/3) I₁, I₄f = |F f₀|², I₄s = |F s₀|² and I₈ = F f₀ · F s₀ for the fibre f₀ and
/// the sheet s₀; ⟨x⟩ = max(x, 0), because fibres and sheets do not resist compression. The terms with a are
/// the law of Holzapfel and Ogden (2009). The last term is the active stress F S of a tension T, with
/// S = T f₀⊗f₀ (Land et al. 2015, problem 3). A share c of T acts in all directions:
/// S = T ((1 − c) f₀⊗f₀ + c I).
///
/// # Examples
/// ```
/// use krylith_problems::solid::Material;
/// let (heart, rest) = (Material::default(), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);
/// let [x, y, z] = rest;
/// assert!(heart.energy(&rest, [x, y]).abs() < 1e-9);
/// let stretched = [[1.1, 0.0, 0.0], y, z];
/// // Fibres are stiffer than sheets, and sheets than the material across both.
/// let energies = [[x, y], [y, x], [y, z]].map(|axes| heart.energy(&stretched, axes));
/// assert!(energies.is_sorted_by(|a, b| a > b));
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
    /// Stiffness a_s of the sheets, 0 for none.
    pub a_s: f64,
    /// Exponent b_s of the sheets.
    pub b_s: f64,
    /// Stiffness a_fs against shear between fibres and sheets, 0 for none.
    pub a_fs: f64,
    /// Exponent b_fs of that shear.
    pub b_fs: f64,
    /// Penalty κ on changes of volume.
    pub kappa: f64,
    /// Active tension T along the fibres in Pa.
    pub tension: f64,
    /// Share c of the tension that acts across the fibres, 0 to 1.
    pub cross: f64,
}

impl Default for Material {
    /// Returns the constants of pig's myocardium (Holzapfel and Ogden 2009, Table 1), κ = 20 kPa and no
    /// tension. With κ = 100 kPa, over 1,000 times a, incomplete factors fail from rest.
    fn default() -> Self {
        Self {
            a: 59.0,
            b: 8.023,
            a_f: 18472.0,
            b_f: 16.026,
            a_s: 2481.0,
            b_s: 11.12,
            a_fs: 216.0,
            b_fs: 11.436,
            kappa: 2e4,
            tension: 0.0,
            cross: 0.0,
        }
    }
}

/// Contractions with a gradient g of a shape function: F g, F⁻ᵀ g, ∂Ī₁/∂F g, f₀·g and s₀·g.
#[derive(Debug, Clone, Copy)]
pub(super) struct Along {
    f: [f64; 3],
    h: [f64; 3],
    d: [f64; 3],
    fibre: f64,
    sheet: f64,
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
    /// ∂ψ/∂I₄f, ∂ψ/∂I₄s and ∂ψ/∂I₈ with their derivatives, without the tension.
    w: [f64; 2],
    s: [f64; 2],
    q: [f64; 2],
    axes: Axes,
    /// F f₀ and F s₀.
    fibre: [f64; 3],
    sheet: [f64; 3],
    kappa: f64,
    /// T (1 − c) and T c.
    active: [f64; 2],
}

/// Returns a e exp b e² and its derivative by e, or 0 where ⟨e⟩ is.
#[inline]
fn stretch(e: f64, a: f64, b: f64) -> [f64; 2] {
    if e > 0.0 { shear(e, a, b) } else { [0.0; 2] }
}

/// Returns a e exp b e² and its derivative by e.
#[inline]
fn shear(e: f64, a: f64, b: f64) -> [f64; 2] {
    let grown = a * (b * e * e).exp();
    [e * grown, (1.0 + 2.0 * b * e * e) * grown]
}

impl Material {
    /// Checks the constants.
    ///
    /// # Errors
    /// Returns an error if a number is not finite, not positive, or of those that may be 0 negative, and if
    /// the share of the tension is above 1.
    pub(crate) fn check(&self) -> Result<()> {
        let Self { a, b, a_f, b_f, a_s, b_s, a_fs, b_fs, kappa, tension, cross } = *self;
        let positive = [a, b, a_f, b_f, b_s, b_fs, kappa];
        if let Some(x) = positive.iter().find(|x| !(**x > 0.0 && x.is_finite())) {
            return Err(Error::invalid(format!(
                "a constant of the material is {x}; it must be positive and finite"
            )));
        }
        let least =
            [("a_s", a_s), ("a_fs", a_fs), ("the tension", tension), ("the share of the tension", cross)];
        match least.iter().find(|(_, x)| !(*x >= 0.0 && x.is_finite())) {
            Some((name, x)) => Err(Error::invalid(format!(
                "{name} of the material is {x}; it must be finite and at least 0"
            ))),
            None if cross > 1.0 => Err(Error::invalid(format!(
                "the share of the tension across the fibres is {cross}; it must be at most 1"
            ))),
            None => Ok(()),
        }
    }

    /// Returns ψ at the deformation gradient F; NaN if det F is negative.
    pub fn energy(&self, f: &[[f64; 3]; 3], axes: Axes) -> f64 {
        let s = self.at(f, axes);
        let [fibre, sheet] = [s.fibre, s.sheet].map(|x| dot(x, x) - 1.0);
        let grown = |e: f64, a: f64, b: f64| a / (2.0 * b) * (b * e * e).exp_m1();
        self.a / (2.0 * self.b) * (self.b * (s.c * s.i1 - 3.0)).exp_m1()
            + grown(fibre.max(0.0), self.a_f, self.b_f)
            + grown(sheet.max(0.0), self.a_s, self.b_s)
            + grown(dot(s.fibre, s.sheet), self.a_fs, self.b_fs)
            + 0.25 * self.kappa * (s.j * s.j - 1.0 - 2.0 * s.j.ln())
            + 0.5 * (s.active[0] * fibre + s.active[1] * (s.i1 - 3.0))
    }

    /// Returns the first Piola–Kirchhoff stress P = ∂ψ/∂F.
    pub fn stress(&self, f: &[[f64; 3]; 3], axes: Axes) -> [[f64; 3]; 3] {
        let s = self.at(f, axes);
        let columns: [[f64; 3]; 3] = UNITS.map(|e| s.traction(&s.along(e)));
        std::array::from_fn(|i| std::array::from_fn(|d| columns[d][i]))
    }

    /// Returns ∂P/∂F: row 3 i + d has the derivatives of P_id by the nine numbers of F, row by row.
    pub fn tangent(&self, f: &[[f64; 3]; 3], axes: Axes) -> [[f64; 9]; 9] {
        let s = self.at(f, axes);
        let along = UNITS.map(|e| s.along(e));
        let blocks: [[[f64; 9]; 3]; 3] = along.map(|a| along.map(|b| s.stiffness(&a, &b)));
        std::array::from_fn(|p| std::array::from_fn(|q| blocks[p % 3][q % 3][3 * (p / 3) + q / 3]))
    }

    #[inline]
    pub(super) fn at(&self, f: &[[f64; 3]; 3], axes: Axes) -> Deformed {
        let cofactors: [[f64; 3]; 3] = std::array::from_fn(|i| {
            let (r, s) = (f[(i + 1) % 3], f[(i + 2) % 3]);
            [r[1] * s[2] - r[2] * s[1], r[2] * s[0] - r[0] * s[2], r[0] * s[1] - r[1] * s[0]]
        });
        let j = dot(f[0], cofactors[0]);
        let h = cofactors.map(|row| row.map(|x| x / j));
        let i1: f64 = f.as_flattened().iter().map(|x| x * x).sum();
        let c = j.powf(-2.0 / 3.0); // NaN if the element is inverted
        let p = 0.5 * self.a * (self.b * (c * i1 - 3.0)).exp();
        let [fibre, sheet] = axes.map(|axis| f.map(|row| dot(row, axis)));
        Deformed {
            f: *f,
            h,
            j,
            i1,
            c,
            p: [p, self.b * p],
            w: stretch(dot(fibre, fibre) - 1.0, self.a_f, self.b_f),
            s: stretch(dot(sheet, sheet) - 1.0, self.a_s, self.b_s),
            q: shear(dot(fibre, sheet), self.a_fs, self.b_fs),
            axes,
            fibre,
            sheet,
            kappa: self.kappa,
            active: [self.tension * (1.0 - self.cross), self.tension * self.cross],
        }
    }
}

/// The unit vectors.
const UNITS: [[f64; 3]; 3] = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];

impl Deformed {
    #[inline]
    pub fn along(&self, g: [f64; 3]) -> Along {
        let (f, h) = (self.f.map(|row| dot(row, g)), self.h.map(|row| dot(row, g)));
        let d = std::array::from_fn(|i| 2.0 * self.c * (f[i] - self.i1 / 3.0 * h[i]));
        Along { f, h, d, fibre: dot(self.axes[0], g), sheet: dot(self.axes[1], g), g }
    }

    /// Returns P g.
    #[inline]
    pub fn traction(&self, a: &Along) -> [f64; 3] {
        let volume = 0.5 * self.kappa * (self.j * self.j - 1.0);
        let along = (2.0 * self.w[0] + self.active[0]) * a.fibre + self.q[0] * a.sheet;
        let across = 2.0 * self.s[0] * a.sheet + self.q[0] * a.fibre;
        std::array::from_fn(|i| {
            self.p[0] * a.d[i]
                + along * self.fibre[i]
                + across * self.sheet[i]
                + self.active[1] * a.f[i]
                + volume * a.h[i]
        })
    }

    /// Returns ∂(P g_a)ᵢ/∂(F_kL) (g_b)_L: 3×3 numbers, row by row.
    #[inline]
    pub fn stiffness(&self, a: &Along, b: &Along) -> [f64; 9] {
        let (j2, isochoric) = (self.j * self.j, 2.0 * self.c * self.p[0]);
        let volume = 0.5 * self.kappa * (j2 - 1.0);
        let diagonal = (isochoric + self.active[1]) * dot(a.g, b.g)
            + (2.0 * self.w[0] + self.active[0]) * a.fibre * b.fibre
            + 2.0 * self.s[0] * a.sheet * b.sheet
            + self.q[0] * (a.fibre * b.sheet + a.sheet * b.fibre);
        let fibres = 4.0 * self.w[1] * a.fibre * b.fibre;
        let sheets = 4.0 * self.s[1] * a.sheet * b.sheet;
        let turned = isochoric * self.i1 / 3.0 - volume;
        // ∂I₈/∂F of a and of b.
        let coupled = |a: &Along, i: usize| a.fibre * self.sheet[i] + a.sheet * self.fibre[i];
        std::array::from_fn(|ik| {
            let (i, k) = (ik / 3, ik % 3);
            let same = if i == k { diagonal } else { 0.0 };
            let spread = (a.f[i] - self.i1 / 3.0 * a.h[i]) * b.h[k] + a.h[i] * b.f[k];
            same + self.p[1] * a.d[i] * b.d[k] - isochoric * 2.0 / 3.0 * spread
                + turned * b.h[i] * a.h[k]
                + fibres * self.fibre[i] * self.fibre[k]
                + sheets * self.sheet[i] * self.sheet[k]
                + self.q[1] * coupled(a, i) * coupled(b, k)
                + self.kappa * j2 * a.h[i] * b.h[k]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: [[f64; 3]; 3] = [[1.1, 0.05, -0.03], [0.08, 0.97, 0.1], [-0.02, 0.04, 1.06]];
    const AXES: Axes = [[0.6, 0.0, 0.8], [-0.8, 0.0, 0.6]];

    /// Every term acts: fibres and sheets that are stretched and sheared, and tension.
    fn materials() -> [(&'static str, Material, Axes); 4] {
        let (heart, y) = (Material::default(), [0.0, 1.0, 0.0]);
        let active = Material { tension: 3e4, cross: 0.3, ..heart };
        [
            ("fibres stretched", heart, AXES),
            ("fibres compressed", heart, [y, AXES[0]]),
            ("sheets compressed", heart, [AXES[0], y]),
            ("tension", active, AXES),
        ]
    }

    fn largest(numbers: &[f64]) -> f64 {
        numbers.iter().fold(0.0f64, |m, x| m.max(x.abs()))
    }

    /// Returns the derivative of `of` by number k of F.
    fn slope(k: usize, of: impl Fn(&[[f64; 3]; 3]) -> f64) -> f64 {
        let step = 1e-5;
        let at = |s: f64| {
            let mut f = F;
            f[k / 3][k % 3] += s;
            of(&f)
        };
        (at(step) - at(-step)) / (2.0 * step)
    }

    #[test]
    fn stress_is_the_derivative_of_the_energy() {
        for (case, material, axes) in materials() {
            let stress = material.stress(&F, axes);
            let size = largest(stress.as_flattened());
            for k in 0..9 {
                let slope = slope(k, |f| material.energy(f, axes));
                assert!(
                    (slope - stress[k / 3][k % 3]).abs() < 1e-6 * size,
                    "{case}: P_{k}: {slope} by differences"
                );
            }
        }
    }

    #[test]
    fn the_tangent_is_the_symmetric_derivative_of_the_stress() {
        for (case, material, axes) in materials() {
            let tangent = material.tangent(&F, axes);
            let size = largest(tangent.as_flattened());
            for p in 0..9 {
                for q in 0..9 {
                    let slope = slope(q, |f| material.stress(f, axes)[p / 3][p % 3]);
                    let own = tangent[p][q];
                    assert!(
                        (slope - own).abs() < 1e-6 * size,
                        "{case}: {p}, {q}: {slope} by differences for {own}"
                    );
                    assert!((own - tangent[q][p]).abs() < 1e-13 * size, "{case}: {p}, {q} is not symmetric");
                }
            }
        }
    }

    /// The terms of Holzapfel and Ogden at a state where each invariant is known.
    #[test]
    fn sheets_add_their_energy() {
        let f = [[1.2, 0.3, 0.0], [0.0, 1.1, 0.0], [0.0, 0.0, 0.9]];
        let axes = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]];
        let heart = Material::default();
        let without = Material { a_s: 0.0, a_fs: 0.0, ..heart };
        let (sheet, shear) = (0.3f64 * 0.3 + 1.1 * 1.1 - 1.0, 1.2f64 * 0.3);
        let expected = 2481.0 / (2.0 * 11.12) * ((11.12 * sheet * sheet).exp() - 1.0)
            + 216.0 / (2.0 * 11.436) * ((11.436 * shear * shear).exp() - 1.0);
        let added = heart.energy(&f, axes) - without.energy(&f, axes);
        assert!((added - expected).abs() < 1e-10 * expected, "{added} for {expected}");
    }

    /// P = F S, with S = T f₀⊗f₀ or T I.
    #[test]
    fn tension_is_the_active_stress() {
        let (passive, fibre) = (Material::default(), AXES[0]);
        for cross in [0.0, 0.25, 1.0] {
            let active = Material { tension: 5e3, cross, ..passive };
            let (with, without) = (active.stress(&F, AXES), passive.stress(&F, AXES));
            for i in 0..3 {
                for d in 0..3 {
                    let along = dot(F[i], fibre) * fibre[d];
                    let expected = 5e3 * ((1.0 - cross) * along + cross * F[i][d]);
                    assert!((with[i][d] - without[i][d] - expected).abs() < 1e-9 * 5e3, "{cross}: {i}, {d}");
                }
            }
        }
    }

    #[test]
    fn a_rotation_makes_no_stress() {
        let (c, s) = (0.6, 0.8);
        let f = [[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]];
        let material = Material::default();
        let largest = largest(material.stress(&f, AXES).as_flattened());
        assert!(largest < 1e-9 * material.kappa, "{largest} Pa");
        assert!(material.energy(&f, AXES).abs() < 1e-9 * material.kappa);
    }

    #[test]
    fn an_inverted_state_is_not_a_number() {
        let f = [[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        assert!(Material::default().stress(&f, AXES)[0][0].is_nan());
    }
}
