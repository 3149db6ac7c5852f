//! Butcher tableaux of the implicit Runge–Kutta schemes that Krylith provides by name.
//!
//! The coefficients are computed, not typed in. Nodes are roots of Legendre combinations; weights and A are
//! exact integrals of Lagrange polynomials in product form. So each number is accurate to a few units in the
//! last place. Source: Hairer & Wanner, *Solving Ordinary Differential Equations II*, sections IV.5 and IV.6.

use super::Dense;
use crate::{Error, Result};

/// The names that [`Butcher::by_name`] accepts.
const KNOWN: [&str; 24] = [
    "implicit-euler",
    "gauss-1",
    "gauss-2",
    "gauss-3",
    "gauss-4",
    "gauss-5",
    "gauss-6",
    "gauss-7",
    "gauss-8",
    "radau-iia-1",
    "radau-iia-2",
    "radau-iia-3",
    "radau-iia-4",
    "radau-iia-5",
    "radau-iia-6",
    "radau-iia-7",
    "radau-iia-8",
    "lobatto-iiic-2",
    "lobatto-iiic-3",
    "lobatto-iiic-4",
    "lobatto-iiic-5",
    "lobatto-iiic-6",
    "lobatto-iiic-7",
    "lobatto-iiic-8",
];

/// Largest number of stages of a scheme by name: that of the kernels.
const MOST_STAGES: u64 = 8;

/// A Runge–Kutta scheme: stages k_i = f(t + c_i τ, y + τ Σ_j a_ij k_j), step y + τ Σ_i b_i k_i.
///
/// # Examples
/// ```
/// use krylith::matrix::Butcher;
/// let euler = Butcher::by_name("implicit-euler")?;
/// assert_eq!((euler.a[(0, 0)], &euler.b[..], euler.order), (1.0, &[1.0][..], 1));
/// let radau = Butcher::by_name("radau-iia-3")?;
/// assert_eq!((radau.stages(), radau.order), (3, 5)); // order 2s − 1
/// assert!((radau.b.iter().sum::<f64>() - 1.0).abs() < 1e-14);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Butcher {
    /// s×s coefficients.
    pub a: Dense,
    /// s weights.
    pub b: Vec<f64>,
    /// s nodes in [0, 1], ascending.
    pub c: Vec<f64>,
    /// Classical order.
    pub order: usize,
}

impl Butcher {
    /// Returns the scheme `implicit-euler`, `gauss-S` or `radau-iia-S` (S = 1..8), or `lobatto-iiic-S` (S =
    /// 2..8).
    ///
    /// # Errors
    /// Any other name; the error lists the known ones, or says that the scheme has too many stages.
    pub fn by_name(name: &str) -> Result<Self> {
        too_many_stages(name)?;
        let Some(name) = KNOWN.into_iter().find(|known| crate::names::same(known, name)) else {
            return crate::names::unknown("time-stepping scheme", name, &KNOWN);
        };
        // Known names end in the number of stages, implicit Euler aside.
        let s = name.bytes().last().filter(u8::is_ascii_digit).map_or(1, |d| (d - b'0') as usize);
        Ok(match name {
            "implicit-euler" => Self::collocation(radau_nodes(1), 1),
            _ if name.starts_with("gauss") => Self::collocation(gauss_nodes(s), 2 * s),
            _ if name.starts_with("radau") => Self::collocation(radau_nodes(s), 2 * s - 1),
            _ => Self::lobatto_iiic(s),
        })
    }

    /// All names that [`by_name`](Self::by_name) accepts.
    pub fn names() -> &'static [&'static str] {
        &KNOWN
    }

    /// Number of stages s.
    pub fn stages(&self) -> usize {
        self.c.len()
    }

    /// a_ij = ∫₀^{c_i} ℓ_j, b_j = ∫₀¹ ℓ_j.
    fn collocation(c: Vec<f64>, order: usize) -> Self {
        let s = c.len();
        let mut a = Dense::identity(s);
        for i in 0..s {
            for j in 0..s {
                a[(i, j)] = integral(&c, j, c[i]);
            }
        }
        let b = (0..s).map(|j| integral(&c, j, 1.0)).collect();
        Self { a, b, c, order }
    }

    /// a_i1 = b_1 and C(s − 1): the integrals less the part of the first column are interpolated at c_2 …
    /// c_s.
    fn lobatto_iiic(s: usize) -> Self {
        let c = lobatto_nodes(s);
        let b: Vec<f64> = (0..s).map(|j| integral(&c, j, 1.0)).collect();
        let mut a = Dense::identity(s);
        for i in 0..s {
            a[(i, 0)] = b[0];
            for j in 1..s {
                a[(i, j)] = integral(&c[1..], j - 1, c[i]) - b[0] * lagrange(&c[1..], j - 1, c[0]);
            }
        }
        Self { a, b, c, order: 2 * s - 2 }
    }
}

/// Refuses a known family with more stages than a Kronecker sum may have.
fn too_many_stages(name: &str) -> Result<()> {
    let Some((family, stages)) = name.rsplit_once(['-', '_']) else { return Ok(()) };
    let known = ["gauss", "radau-iia", "lobatto-iiic"].iter().any(|known| crate::names::same(known, family));
    match stages.parse::<u64>() {
        Ok(s) if known && s > MOST_STAGES => Err(Error::invalid(format!(
            "time-stepping scheme `{name}` has {s} stages; schemes by name have at most {MOST_STAGES}"
        ))),
        _ => Ok(()),
    }
}

/// ℓ_j(t) over the nodes `c`.
fn lagrange(c: &[f64], j: usize, t: f64) -> f64 {
    (0..c.len()).filter(|&k| k != j).map(|k| (t - c[k]) / (c[j] - c[k])).product()
}

/// ∫₀^end ℓ_j over the nodes `c`: exact by the four-point Gauss rule, since the degree is at most 7.
fn integral(c: &[f64], j: usize, end: f64) -> f64 {
    let at = |sign: f64| 0.5 * (3.0 / 7.0 + sign * 2.0 / 7.0 * 1.2f64.sqrt()).sqrt();
    let (inner, outer, w) = (at(-1.0), at(1.0), 30f64.sqrt() / 72.0);
    let rule =
        [(0.5 - outer, 0.25 - w), (0.5 - inner, 0.25 + w), (0.5 + inner, 0.25 + w), (0.5 + outer, 0.25 - w)];
    end * rule.iter().map(|&(t, w)| w * lagrange(c, j, t * end)).sum::<f64>()
}

/// Shifted Legendre polynomial of degree `n` and its derivative at `t` in [0, 1].
fn legendre(n: usize, t: f64) -> (f64, f64) {
    let x = 2.0 * t - 1.0;
    let (mut p, mut q, mut dp, mut dq) = (1.0, 0.0, 0.0, 0.0); // degree k and k − 1, with d/dx
    for k in 0..n {
        let k = k as f64;
        let next = ((2.0 * k + 1.0) * x * p - k * q) / (k + 1.0);
        let dnext = ((2.0 * k + 1.0) * (p + x * dp) - k * dq) / (k + 1.0);
        (q, p, dq, dp) = (p, next, dp, dnext);
    }
    (p, 2.0 * dp)
}

/// Roots in (0, 1) of `f`, which returns value and derivative: bracketed on a grid, then refined by Newton
/// steps inside the bracket.
fn roots(f: impl Fn(f64) -> (f64, f64)) -> Vec<f64> {
    const CELLS: usize = 999; // an odd number: the root at 1/2 is not a grid point
    let grid = |k: usize| k as f64 / CELLS as f64;
    let mut found = Vec::new();
    for k in 1..CELLS - 1 {
        let (lo, hi) = (grid(k), grid(k + 1));
        if f(lo).0 * f(hi).0 >= 0.0 {
            continue;
        }
        let mut t = 0.5 * (lo + hi);
        for _ in 0..20 {
            let (value, slope) = f(t);
            t = (t - value / slope).clamp(lo, hi);
        }
        found.push(t);
    }
    found
}

/// Roots of P_s.
fn gauss_nodes(s: usize) -> Vec<f64> {
    roots(|t| legendre(s, t))
}

/// Roots of P_s − P_{s−1}; the last is 1.
fn radau_nodes(s: usize) -> Vec<f64> {
    let mut c = roots(|t| {
        let ((p, dp), (q, dq)) = (legendre(s, t), legendre(s - 1, t));
        (p - q, dp - dq)
    });
    c.push(1.0);
    c
}

/// Roots of P_s − P_{s−2}, which are 0, those of P'_{s−1}, and 1.
fn lobatto_nodes(s: usize) -> Vec<f64> {
    let mut c = vec![0.0];
    c.extend(roots(|t| {
        let ((p, dp), (q, dq)) = (legendre(s, t), legendre(s - 2, t));
        (p - q, dp - dq)
    }));
    c.push(1.0);
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(what: &str, got: f64, want: f64) {
        assert!((got - want).abs() <= 1e-14, "{what}: {got:.17} is not {want:.17}");
    }

    fn check(name: &str, a: &[f64], b: &[f64], c: &[f64]) {
        let t = Butcher::by_name(name).unwrap();
        assert_eq!((t.a.rows(), t.a.columns(), t.b.len(), t.c.len()), (c.len(), c.len(), c.len(), c.len()));
        let pairs = t.a.values().iter().zip(a).chain(t.b.iter().zip(b)).chain(t.c.iter().zip(c));
        for (p, (&got, &want)) in pairs.enumerate() {
            close(&format!("{name}, number {p}"), got, want);
        }
    }

    /// Hairer & Wanner II, section IV.5, where they are tabulated.
    #[test]
    fn published_tableaux() {
        let (r3, r6, r15, r5) = (3f64.sqrt(), 6f64.sqrt(), 15f64.sqrt(), 5f64.sqrt());
        check("implicit-euler", &[1.0], &[1.0], &[1.0]);
        check("radau-iia-1", &[1.0], &[1.0], &[1.0]);
        check("gauss-1", &[0.5], &[1.0], &[0.5]);
        check(
            "gauss-2",
            &[0.25, 0.25 - r3 / 6.0, 0.25 + r3 / 6.0, 0.25],
            &[0.5, 0.5],
            &[0.5 - r3 / 6.0, 0.5 + r3 / 6.0],
        );
        #[rustfmt::skip]
        check(
            "gauss-3",
            &[
                5.0 / 36.0, 2.0 / 9.0 - r15 / 15.0, 5.0 / 36.0 - r15 / 30.0,
                5.0 / 36.0 + r15 / 24.0, 2.0 / 9.0, 5.0 / 36.0 - r15 / 24.0,
                5.0 / 36.0 + r15 / 30.0, 2.0 / 9.0 + r15 / 15.0, 5.0 / 36.0,
            ],
            &[5.0 / 18.0, 4.0 / 9.0, 5.0 / 18.0],
            &[0.5 - r15 / 10.0, 0.5, 0.5 + r15 / 10.0],
        );
        let v = 30f64.sqrt();
        // Gauss–Legendre nodes and weights of four points.
        let (outer, inner) =
            ((3.0 / 7.0 + 2.0 / 7.0 * 1.2f64.sqrt()).sqrt(), (3.0 / 7.0 - 2.0 / 7.0 * 1.2f64.sqrt()).sqrt());
        let t = Butcher::by_name("gauss-4").unwrap();
        for (p, x) in [-outer, -inner, inner, outer].into_iter().enumerate() {
            close("gauss-4 node", t.c[p], 0.5 + 0.5 * x);
        }
        for (p, x) in [18.0 - v, 18.0 + v, 18.0 + v, 18.0 - v].into_iter().enumerate() {
            close("gauss-4 weight", t.b[p], x / 72.0);
        }
        check("radau-iia-2", &[5.0 / 12.0, -1.0 / 12.0, 0.75, 0.25], &[0.75, 0.25], &[1.0 / 3.0, 1.0]);
        #[rustfmt::skip]
        check(
            "radau-iia-3",
            &[
                (88.0 - 7.0 * r6) / 360.0, (296.0 - 169.0 * r6) / 1800.0, (-2.0 + 3.0 * r6) / 225.0,
                (296.0 + 169.0 * r6) / 1800.0, (88.0 + 7.0 * r6) / 360.0, (-2.0 - 3.0 * r6) / 225.0,
                (16.0 - r6) / 36.0, (16.0 + r6) / 36.0, 1.0 / 9.0,
            ],
            &[(16.0 - r6) / 36.0, (16.0 + r6) / 36.0, 1.0 / 9.0],
            &[(4.0 - r6) / 10.0, (4.0 + r6) / 10.0, 1.0],
        );
        // Radau nodes of four points to 15 digits (Abramowitz & Stegun 25.4.31, reflected).
        let t = Butcher::by_name("radau-iia-4").unwrap();
        let c = [0.088_587_959_512_703_9, 0.409_466_864_440_734_7, 0.787_659_461_760_847_1, 1.0];
        for (p, &x) in c.iter().enumerate() {
            close("radau-iia-4 node", t.c[p], x);
        }
        check("lobatto-iiic-2", &[0.5, -0.5, 0.5, 0.5], &[0.5, 0.5], &[0.0, 1.0]);
        #[rustfmt::skip]
        check(
            "lobatto-iiic-3",
            &[
                1.0 / 6.0, -1.0 / 3.0, 1.0 / 6.0,
                1.0 / 6.0, 5.0 / 12.0, -1.0 / 12.0,
                1.0 / 6.0, 2.0 / 3.0, 1.0 / 6.0,
            ],
            &[1.0 / 6.0, 2.0 / 3.0, 1.0 / 6.0],
            &[0.0, 0.5, 1.0],
        );
        #[rustfmt::skip]
        check(
            "lobatto-iiic-4",
            &[
                1.0 / 12.0, -r5 / 12.0, r5 / 12.0, -1.0 / 12.0,
                1.0 / 12.0, 0.25, (10.0 - 7.0 * r5) / 60.0, r5 / 60.0,
                1.0 / 12.0, (10.0 + 7.0 * r5) / 60.0, 0.25, -r5 / 60.0,
                1.0 / 12.0, 5.0 / 12.0, 5.0 / 12.0, 1.0 / 12.0,
            ],
            &[1.0 / 12.0, 5.0 / 12.0, 5.0 / 12.0, 1.0 / 12.0],
            &[0.0, 0.5 - r5 / 10.0, 0.5 + r5 / 10.0, 1.0],
        );
    }

    /// B(p): Σ b_i c_i^{k−1} = 1/k; C(q): Σ_j a_ij c_j^{k−1} = c_i^k / k; and stiff accuracy of all but
    /// Gauss.
    #[test]
    fn order_conditions() {
        for &name in Butcher::names() {
            let t = Butcher::by_name(name).unwrap();
            let s = t.stages();
            let q = if name.starts_with("lobatto") { s - 1 } else { s };
            for k in 1..=t.order {
                let sum = (0..s).map(|i| t.b[i] * t.c[i].powi(k as i32 - 1)).sum();
                close(&format!("{name} B({k})"), sum, 1.0 / k as f64);
            }
            for k in 1..=q {
                for i in 0..s {
                    let sum = (0..s).map(|j| t.a[(i, j)] * t.c[j].powi(k as i32 - 1)).sum();
                    close(&format!("{name} C({k}), stage {i}"), sum, t.c[i].powi(k as i32) / k as f64);
                }
            }
            if !name.starts_with("gauss") {
                for j in 0..s {
                    close(&format!("{name} is stiffly accurate"), t.a[(s - 1, j)], t.b[j]);
                }
            }
        }
    }

    /// Stability function of y' = λy at z = λτ: R(z) = 1 + z bᵀ(I − zA)⁻¹1, close to exp(z), by Gaussian
    /// elimination.
    #[test]
    fn many_stages_are_accurate() {
        for &name in Butcher::names() {
            let t = Butcher::by_name(name).unwrap();
            let (s, z) = (t.stages(), -0.5);
            let mut m: Vec<Vec<f64>> = (0..s)
                .map(|i| {
                    let row = (0..s).map(|j| f64::from(u8::from(i == j)) - z * t.a[(i, j)]);
                    row.chain([1.0]).collect()
                })
                .collect();
            for p in 0..s {
                for i in (0..s).filter(|&i| i != p) {
                    let factor = m[i][p] / m[p][p];
                    for j in p..=s {
                        let pivot = m[p][j];
                        m[i][j] -= factor * pivot;
                    }
                }
            }
            let r = 1.0 + z * (0..s).map(|i| t.b[i] * m[i][s] / m[i][i]).sum::<f64>();
            // The error constant of a scheme of order p is below 1/(p + 1)!.
            let bound = (1..=t.order + 1).fold(1.0, |bound, k| bound * 0.5 / k as f64) + 1e-14;
            assert!((r - z.exp()).abs() < bound, "{name}: {r} for {}", z.exp());
        }
    }

    #[test]
    fn names_are_taken_in_any_case() {
        assert_eq!(Butcher::by_name("Gauss-2").unwrap(), Butcher::by_name("gauss-2").unwrap());
        assert_eq!(Butcher::by_name("RADAU_IIA-3").unwrap(), Butcher::by_name("radau-iia-3").unwrap());
    }

    #[test]
    fn unknown_names_list_the_known() {
        for name in ["", "gauss-0", "gauss-", "lobatto-iiic-1", "other-9", "gauss2", "é"] {
            let message = Butcher::by_name(name).unwrap_err().to_string();
            assert!(message.contains("lobatto-iiic-8") && message.contains("implicit-euler"), "{message}");
        }
        for name in ["gauss-9", "Radau_IIA-22", "lobatto-iiic-100"] {
            let message = Butcher::by_name(name).unwrap_err().to_string();
            assert!(message.contains(name) && message.contains("stages; schemes by name have at most 8"));
        }
    }
}
