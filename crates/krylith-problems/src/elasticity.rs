//! An elastic bar, clamped at one end and bent by its weight: trilinear bricks, three displacements per node.
//!
//! −div σ(u) = f with σ = λ (div u) I + μ (∇u + ∇uᵀ), f = (0, 0, −1), u = 0 at x = 0 and no traction
//! elsewhere. Rows of clamped nodes hold only a diagonal, of the size of the other diagonals, and their
//! columns are zero elsewhere: the matrix is symmetric positive definite.

use krylith_core::partition::contiguous;
use krylith_core::{Error, Result};
use std::ops::Range;

use crate::bricks::{Bricks, CORNERS, POINTS, at_gauss_points, common, position};
use crate::spec::Spec;
use crate::{DuctMesh, memory};

/// Displacements per node.
const B: usize = 3;

/// The bar and one rank's rows.
pub(crate) struct Bar {
    mesh: DuctMesh,
    nodes: [usize; 3],
    own: Range<usize>,
    /// Stiffness matrix of a brick: entry (corner a, component r, corner b, component c).
    stiffness: Vec<f64>,
    /// A corner's share of the weight of a brick.
    weight: f64,
    /// Diagonal entry of a clamped node.
    clamped: f64,
}

impl Bar {
    /// Builds the rows of `rank` among `ranks`.
    ///
    /// # Errors
    /// Returns an error for fewer than two nodes in a direction, for values out of range, and if memory is
    /// not sufficient.
    pub fn new(spec: &Spec, rank: usize, ranks: usize) -> Result<Self> {
        let nodes = spec.grid();
        if nodes.iter().any(|&n| n < 2) {
            return Err(Error::invalid("elasticity: expected at least two nodes in each direction"));
        }
        let (length, young, poisson) =
            (spec.positive("length")?, spec.positive("young")?, spec.positive("poisson")?);
        if poisson >= 0.5 {
            return Err(Error::invalid(format!("elasticity: poisson={poisson}: expected a ratio below 0.5")));
        }
        let mesh = DuctMesh::new(nodes, [length, 1.0, 1.0])?;
        let own = contiguous(mesh.nodes(), rank, ranks);
        memory::check("the elastic bar", (own.len() * POINTS) as u64 * (B * B * 8 + 8) as u64)?;
        let h = [length, 1.0, 1.0].iter().zip(nodes).map(|(l, n)| l / (n - 1) as f64).collect::<Vec<_>>();
        let lame =
            [young * poisson / ((1.0 + poisson) * (1.0 - 2.0 * poisson)), young / (2.0 + 2.0 * poisson)];
        let stiffness = stiffness([h[0], h[1], h[2]], lame);
        let order = B * CORNERS;
        let clamped =
            CORNERS as f64 * (0..order).map(|e| stiffness[e * (order + 1)]).sum::<f64>() / order as f64;
        let weight = -h.iter().product::<f64>() / CORNERS as f64;
        Ok(Self { mesh, nodes, own, stiffness, weight, clamped })
    }

    /// Sums over all bricks that contain both nodes, in ascending order of the bricks.
    fn block(&self, from: [usize; 3], to: [usize; 3]) -> [f64; B * B] {
        let mut block = [0.0; B * B];
        common(from, to, self.nodes, |_, a, b| {
            for (e, v) in block.iter_mut().enumerate() {
                *v += self.stiffness[(a * B + e / B) * B * CORNERS + b * B + e % B];
            }
        });
        block
    }
}

impl Bricks for Bar {
    const B: usize = B;

    fn nodes(&self) -> [usize; 3] {
        self.nodes
    }
    fn own(&self) -> Range<usize> {
        self.own.clone()
    }
    fn row(&self, i: usize, mut f: impl FnMut(usize, &[f64])) {
        let at = position(i, self.nodes);
        if at[0] == 0 {
            let mut block = [0.0; B * B];
            (0..B).for_each(|c| block[c * (B + 1)] = self.clamped);
            return f(i, &block);
        }
        let [nx, ny, _] = self.nodes;
        let range = |axis: usize| at[axis].saturating_sub(1)..=(at[axis] + 1).min(self.nodes[axis] - 1);
        for z in range(2) {
            for y in range(1) {
                for x in range(0).filter(|&x| x > 0) {
                    f((z * ny + y) * nx + x, &self.block(at, [x, y, z]));
                }
            }
        }
    }
    /// The load is the number of bricks times a corner's share of the weight, downwards.
    fn load(&self, i: usize, to: &mut Vec<f64>) {
        let at = position(i, self.nodes);
        let sides =
            |axis: usize| 2 - usize::from(at[axis] == 0) - usize::from(at[axis] + 1 == self.nodes[axis]);
        let bricks = sides(0) * sides(1) * sides(2);
        to.extend(if at[0] == 0 { [0.0; B] } else { [0.0, 0.0, bricks as f64 * self.weight] });
    }
    fn coordinate(&self, i: usize) -> [f64; 3] {
        self.mesh.coordinate(i)
    }
}

/// Returns the stiffness of a brick with edges `h`: ∫ λ ∂_r φ_a ∂_c φ_b + μ (δ_rc ∇φ_a·∇φ_b + ∂_c φ_a ∂_r
/// φ_b), by 2³ Gauss points, which are exact here.
fn stiffness(h: [f64; 3], [lambda, mu]: [f64; 2]) -> Vec<f64> {
    let order = B * CORNERS;
    let mut matrix = vec![0.0; order * order];
    at_gauss_points(h, |weight, function| {
        let gradients: [[f64; 3]; CORNERS] = std::array::from_fn(|corner| function(corner).1);
        for (e, v) in matrix.iter_mut().enumerate() {
            let (row, column) = (e / order, e % order);
            let (ga, gb, r, c) = (gradients[row / B], gradients[column / B], row % B, column % B);
            let all: f64 = ga.iter().zip(gb).map(|(a, b)| a * b).sum();
            *v +=
                weight * (lambda * ga[r] * gb[c] + mu * (f64::from(u8::from(r == c)) * all + ga[c] * gb[r]));
        }
    });
    let symmetric = |e: usize| 0.5 * (matrix[e] + matrix[e % order * order + e / order]);
    (0..order * order).map(symmetric).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SystemKind, generate};
    use krylith_core::matrix::Bsr;

    fn bar(text: &str) -> (Bsr, Vec<f64>, Vec<[f64; 3]>) {
        let made = generate(text).unwrap();
        let SystemKind::Bsr(a) = made.system else { panic!("{text} has no blocks") };
        (a, made.rhs, made.coordinates.unwrap())
    }

    /// Rows of nodes without a clamped neighbour annihilate all rigid motions, and the matrix is symmetric.
    #[test]
    fn rigid_motions_cost_nothing() {
        let (a, _, points) = bar("elasticity:6x4x5,length=2,poisson=0.25,young=3");
        let largest = a.values().iter().fold(0.0f64, |most, v| most.max(v.abs()));
        for mode in 0..6 {
            let u = |p: [f64; 3], c: usize| match mode {
                0..3 => f64::from(u8::from(c == mode)),
                _ => {
                    let (x, y) = (mode % 3, (mode + 1) % 3);
                    if c == x {
                        -p[y]
                    } else if c == y {
                        p[x]
                    } else {
                        0.0
                    }
                }
            };
            for i in (0..a.block_rows()).filter(|i| i % 6 >= 2) {
                let mut sum = [0.0; B];
                for e in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                    let p = points[a.col()[e] as usize];
                    for (at, v) in a.block_values(e).iter().enumerate() {
                        sum[at / B] += v * u(p, at % B);
                    }
                }
                assert!(sum.iter().all(|v| v.abs() < 1e-13 * largest), "mode {mode}, node {i}: {sum:?}");
            }
        }
        for i in 0..a.block_rows() {
            for e in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                let j = a.col()[e] as usize;
                let back = (a.row_ptr()[j]..a.row_ptr()[j + 1]).find(|&q| a.col()[q] as usize == i).unwrap();
                let turned = |at: usize| a.block_values(back)[at % B * B + at / B];
                assert!((0..B * B).all(|at| a.block_values(e)[at] == turned(at)), "{i}, {j}");
            }
        }
    }

    /// With a Poisson ratio near zero, a load along the axis stretches the bar by F L / (E A). The total
    /// weight of a bar is its volume.
    #[test]
    fn a_stretched_bar_has_the_length_of_theory() {
        let (a, rhs, points) = bar("elasticity:9x3x3,length=2,poisson=1e-9,young=5");
        let weight: f64 = rhs.iter().sum();
        // All of the weight is in the right-hand side, except half of the first layer's, which the clamped
        // nodes carry.
        assert!((weight + 2.0 - 0.125).abs() < 1e-12, "{weight}");
        // A force of 1 on the end face (area 1) gives the displacement x/E along the axis. The matrix maps
        // this displacement to each node's share of the force on the end face, and to 0 on other free nodes.
        let u = |i: usize, c: usize| if c == 0 { points[i][0] / 5.0 } else { 0.0 };
        for i in (0..a.block_rows()).filter(|&i| points[i][0] > 0.0) {
            let mut sum = [0.0; B];
            for e in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                for (at, v) in a.block_values(e).iter().enumerate() {
                    sum[at / B] += v * u(a.col()[e] as usize, at % B);
                }
            }
            let edge = |v: f64| if v == 0.0 || v == 1.0 { 0.25 } else { 0.5 };
            let wanted = if points[i][0] == 2.0 { edge(points[i][1]) * edge(points[i][2]) } else { 0.0 };
            assert!(
                (sum[0] - wanted).abs() < 1e-8 && sum[1].abs() + sum[2].abs() < 1e-8,
                "node {i}: {sum:?}"
            );
        }
    }
}
