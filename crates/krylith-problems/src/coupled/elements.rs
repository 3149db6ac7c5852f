//! Finite elements on a tetrahedron, in its barycentric coordinates λ, and integrals over it.
//!
//! Vector elements are Whitney's forms. The function of the edge (i, j) is λᵢ∇λⱼ − λⱼ∇λᵢ, with integral 1
//! along the edge. That of the face (i, j, k) is 2 (λᵢ ∇λⱼ×∇λₖ + λⱼ ∇λₖ×∇λᵢ + λₖ ∇λᵢ×∇λⱼ), with flux 1
//! through the face in the direction of its normal (xⱼ − xᵢ) × (xₖ − xᵢ). Since the corners of all
//! tetrahedra are ordered alike, neighbours agree on directions.

use super::simplices::{Mesh, PARTS};
use crate::tets::{Shape, cross, dot};

/// Barycentric coordinates of a point.
pub(crate) type Point = [f64; 4];

/// Returns the 14 points of a rule of degree 5, with weights that sum to 1 (Walkington 2000).
pub(crate) fn rule() -> Vec<(f64, Point)> {
    let corner = |k: usize, a: f64| std::array::from_fn(|i| if i == k { 1.0 - 3.0 * a } else { a });
    let edge = |e: &[usize], a: f64| std::array::from_fn(|i| if e.contains(&i) { a } else { 0.5 - a });
    let near = [
        (0.112_687_925_718_015_85, 0.310_885_919_263_300_6),
        (0.073_493_043_116_361_95, 0.092_735_250_310_891_23),
    ];
    let corners = near.into_iter().flat_map(|(w, a)| (0..4).map(move |k| (w, corner(k, a))));
    let edges = PARTS[1].iter().map(|e| (0.042_546_020_777_081_466, edge(e, 0.045_503_704_125_649_65)));
    corners.chain(edges).collect()
}

/// Returns the quadratic functions: those of the corners, then those of the edges.
pub(crate) fn p2(l: Point) -> [f64; 10] {
    let edge = |e: usize| 4.0 * l[PARTS[1][e][0]] * l[PARTS[1][e][1]];
    std::array::from_fn(|k| if k < 4 { l[k] * (2.0 * l[k] - 1.0) } else { edge(k - 4) })
}

/// Returns the gradients of the quadratic functions.
pub(crate) fn p2_gradients(shape: &Shape, l: Point) -> [[f64; 3]; 10] {
    let g = &shape.gradients;
    std::array::from_fn(|k| {
        std::array::from_fn(|d| match k {
            0..4 => (4.0 * l[k] - 1.0) * g[k][d],
            _ => {
                let (i, j) = (PARTS[1][k - 4][0], PARTS[1][k - 4][1]);
                4.0 * (l[i] * g[j][d] + l[j] * g[i][d])
            }
        })
    })
}

/// Returns the functions of the edges.
pub(crate) fn edges(shape: &Shape, l: Point) -> [[f64; 3]; 6] {
    let g = &shape.gradients;
    std::array::from_fn(|e| {
        let (i, j) = (PARTS[1][e][0], PARTS[1][e][1]);
        std::array::from_fn(|d| l[i] * g[j][d] - l[j] * g[i][d])
    })
}

/// Returns the curls of the functions of the edges, which are constant.
pub(crate) fn curls(shape: &Shape) -> [[f64; 3]; 6] {
    let g = &shape.gradients;
    std::array::from_fn(|e| cross(g[PARTS[1][e][0]], g[PARTS[1][e][1]]).map(|x| 2.0 * x))
}

/// Returns the functions of the faces.
pub(crate) fn faces(shape: &Shape, l: Point) -> [[f64; 3]; 4] {
    let g = &shape.gradients;
    std::array::from_fn(|f| {
        let [i, j, k] = std::array::from_fn(|c| PARTS[2][f][c]);
        let parts = [(l[i], cross(g[j], g[k])), (l[j], cross(g[k], g[i])), (l[k], cross(g[i], g[j]))];
        std::array::from_fn(|d| 2.0 * parts.iter().map(|(l, n)| l * n[d]).sum::<f64>())
    })
}

/// Returns the divergences of the functions of the faces, which are constant.
pub(crate) fn divergences(shape: &Shape) -> [f64; 4] {
    let g = &shape.gradients;
    std::array::from_fn(|f| 6.0 * dot(g[PARTS[2][f][0]], cross(g[PARTS[2][f][1]], g[PARTS[2][f][2]])))
}

/// Element matrices of the six tetrahedra, by rows. Node i has one row of numbers: for each node j of the
/// columns, each component r of i and each component c of j, the number at (j·rows + r)·columns + c.
pub(crate) struct Table {
    width: usize,
    values: [Vec<f64>; 6],
}

impl Table {
    /// Integrates: `add(shape, λ, weight, matrix)` adds the integrand at a point, times `weight`, to all
    /// rows of the matrix.
    pub fn integrate(
        mesh: Mesh,
        rows: usize,
        width: usize,
        add: impl Fn(&Shape, Point, f64, &mut [f64]),
    ) -> Self {
        let values = std::array::from_fn(|kind| {
            let (shape, mut matrix) = (mesh.shape(kind), vec![0.0; rows * width]);
            for (weight, point) in rule() {
                add(&shape, point, weight * shape.volume, &mut matrix);
            }
            matrix
        });
        Self { width, values }
    }

    /// Integrates a bilinear form of scalar functions, given by their values or gradients at a point.
    pub fn form<const R: usize, const C: usize>(
        mesh: Mesh,
        form: impl Fn(&Shape, Point, usize, usize) -> f64,
    ) -> Self {
        Self::integrate(mesh, R, C, |shape, point, weight, matrix| {
            for (at, v) in matrix.iter_mut().enumerate() {
                *v += weight * form(shape, point, at / C, at % C);
            }
        })
    }

    /// Returns the numbers of row `i` of a kind of tetrahedron.
    #[inline]
    pub fn row(&self, kind: usize, i: usize) -> &[f64] {
        &self.values[kind][i * self.width..][..self.width]
    }

    /// Adds `factor` times row `i` to `out`.
    #[inline]
    pub fn add(&self, kind: usize, i: usize, factor: f64, out: &mut [f64]) {
        out.iter_mut().zip(self.row(kind, i)).for_each(|(to, v)| *to += factor * v);
    }
}

/// ∫ λᵢ λⱼ.
pub(crate) fn p1_mass(mesh: Mesh) -> Table {
    Table::form::<4, 4>(mesh, |_, l, i, j| l[i] * l[j])
}

/// ∫ ∇λᵢ · ∇λⱼ.
pub(crate) fn p1_laplacian(mesh: Mesh) -> Table {
    Table::form::<4, 4>(mesh, |shape, _, i, j| dot(shape.gradients[i], shape.gradients[j]))
}

/// ∫ 2 ε(u) : ε(v) + `bulk` div u div v on quadratic vectors.
pub(crate) fn p2_strain(mesh: Mesh, bulk: f64) -> Table {
    Table::integrate(mesh, 10, 90, |shape, point, weight, matrix| {
        let g = p2_gradients(shape, point);
        for (at, v) in matrix.iter_mut().enumerate() {
            let (i, j, r, c) = (at / 90, at % 90 / 9, at % 9 / 3, at % 3);
            let all = if r == c { dot(g[i], g[j]) } else { 0.0 };
            *v += weight * (all + g[i][c] * g[j][r] + bulk * g[i][r] * g[j][c]);
        }
    })
}

/// −∫ q div v for quadratic vectors v and functions q that are given by their values; rows are v.
pub(crate) fn p2_gradient<const Q: usize>(mesh: Mesh, q: impl Fn(Point) -> [f64; Q]) -> Table {
    Table::integrate(mesh, 10, Q * 3, |shape, point, weight, matrix| {
        let (g, q) = (p2_gradients(shape, point), q(point));
        for (at, v) in matrix.iter_mut().enumerate() {
            *v -= weight * g[at / (3 * Q)][at % 3] * q[at % (3 * Q) / 3];
        }
    })
}

/// The same with rows q.
pub(crate) fn p2_divergence<const Q: usize>(mesh: Mesh, q: impl Fn(Point) -> [f64; Q]) -> Table {
    Table::integrate(mesh, Q, 30, |shape, point, weight, matrix| {
        let (g, q) = (p2_gradients(shape, point), q(point));
        for (at, v) in matrix.iter_mut().enumerate() {
            *v -= weight * q[at / 30] * g[at % 30 / 3][at % 3];
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coupled::simplices::TETS;

    fn factorial(n: u32) -> f64 {
        (1..=n).map(f64::from).product()
    }

    /// ∫ λ^a over a tetrahedron of volume V is 6 V a! / (|a| + 3)!.
    #[test]
    fn the_rule_has_degree_five() {
        for code in 0..6u32.pow(4) {
            let a: [u32; 4] = std::array::from_fn(|k| code / 6u32.pow(k as u32) % 6);
            let degree: u32 = a.iter().sum();
            if degree > 5 {
                continue;
            }
            let value = |l: Point| (0..4).map(|k| l[k].powi(a[k] as i32)).product::<f64>();
            let sum: f64 = rule().iter().map(|(w, l)| w * value(*l)).sum();
            let exact = 6.0 * a.iter().map(|&a| factorial(a)).product::<f64>() / factorial(degree + 3);
            assert!((sum - exact).abs() < 1e-15, "{a:?}: {sum} for {exact}");
        }
    }

    #[test]
    fn functions_have_unit_values_on_their_own_nodes() {
        let mesh = Mesh::new([2, 3, 4]).unwrap();
        for kind in 0..6 {
            let shape = mesh.shape(kind);
            let corner: [[f64; 3]; 4] = std::array::from_fn(|k| mesh.point([0; 3], TETS[kind][k]));
            let minus = |a: [f64; 3], b: [f64; 3]| std::array::from_fn(|d| a[d] - b[d]);
            let mean = |part: &[usize]| {
                std::array::from_fn(|k| if part.contains(&k) { 1.0 / part.len() as f64 } else { 0.0 })
            };
            for (k, part) in PARTS[0].iter().chain(PARTS[1]).enumerate() {
                let values = p2(mean(part));
                assert!((0..10).all(|j| (values[j] - f64::from(u8::from(j == k))).abs() < 1e-15));
            }
            for (k, e) in PARTS[1].iter().enumerate() {
                let (along, at) = (minus(corner[e[1]], corner[e[0]]), edges(&shape, mean(e)));
                assert!((0..6).all(|j| (dot(at[j], along) - f64::from(u8::from(j == k))).abs() < 1e-13));
            }
            for (k, f) in PARTS[2].iter().enumerate() {
                let normal = cross(minus(corner[f[1]], corner[f[0]]), minus(corner[f[2]], corner[f[0]]));
                let at = faces(&shape, mean(f));
                let flux = |j: usize| 0.5 * dot(at[j], normal);
                assert!((0..4).all(|j| (flux(j) - f64::from(u8::from(j == k))).abs() < 1e-13));
                assert!((divergences(&shape)[k].abs() * shape.volume - 1.0).abs() < 1e-13);
            }
        }
    }
}
