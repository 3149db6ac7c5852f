//! Newton's method and differences, for tests of nonlinear systems.

use krylith_core::Options;
use krylith_core::matrix::Bsr;
use krylith_core::newton::NonlinearSystem;
use krylith_problems::DuctMesh;
use krylith_problems::tets::TetMesh;

/// ‖v‖₂.
pub fn norm(v: &[f64]) -> f64 {
    v.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// A number in [−1, 1) for each place and seed.
pub fn noise(n: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        })
        .collect()
}

/// ‖J d − (F(x + s d) − F(x − s d))/2s‖ over ‖J d‖.
pub fn jacobian_error(system: &mut dyn NonlinearSystem, x: &[f64], d: &[f64], s: f64) -> f64 {
    let j = jacobian(system, x);
    let product = super::apply(&j, d);
    let mut at = |s: f64| {
        let moved: Vec<f64> = x.iter().zip(d).map(|(x, d)| x + s * d).collect();
        let mut f = vec![f64::NAN; x.len()];
        system.residual(&moved, &mut f).unwrap();
        f
    };
    let (ahead, behind) = (at(s), at(-s));
    let difference: Vec<f64> =
        product.iter().zip(ahead.iter().zip(&behind)).map(|(p, (a, b))| p - (a - b) / (2.0 * s)).collect();
    norm(&difference) / norm(&product)
}

/// The Jacobian at x.
pub fn jacobian(system: &mut dyn NonlinearSystem, x: &[f64]) -> Bsr {
    let mut j = system.pattern().clone();
    let mut values = vec![f64::NAN; j.stored()];
    system.jacobian(x, &mut values).unwrap();
    j.values_mut().copy_from_slice(&values);
    j
}

/// Systems with at most this many unknowns are solved directly.
const DIRECT: usize = 4000;

/// Returns s with J s = f.
fn solve(j: &Bsr, f: &[f64]) -> Vec<f64> {
    let mut s = f.to_vec();
    if f.len() <= DIRECT {
        // Rows of prescribed unknowns, with one entry, are scaled to be the largest: elimination then uses
        // them unchanged.
        let (mut j, b) = (j.clone(), j.block());
        let row_ptr = j.row_ptr().to_vec();
        let diagonal: Vec<_> = (0..j.block_rows()).map(|i| j.diagonal_position(i).unwrap()).collect();
        let values = j.values_mut();
        for (i, c) in (0..diagonal.len()).flat_map(|i| (0..b).map(move |c| (i, c))) {
            let entries = (row_ptr[i]..row_ptr[i + 1]).flat_map(|p| (0..b).map(move |k| (p * b + c) * b + k));
            let own = (diagonal[i] * b + c) * b + c;
            if entries.into_iter().all(|at| at == own || values[at] == 0.0) {
                values[own] *= 1e9;
                s[i * b + c] *= 1e9;
            }
        }
        super::lu::Lu::new(&j.to_csr()).solve(&mut s);
        return s;
    }
    let options = Options { rtol: Some(1e-9), threads: Some(2), ..Options::default() };
    s.fill(0.0);
    let mut solver = krylith_core::Solver::new(j, &options).unwrap();
    let solution = solver.solve(f, &mut s[..]).unwrap();
    assert!(solution.converged(), "{:?}", solution.outcome());
    s
}

/// Newton's method, with steps halved until ‖F‖ falls: ‖F‖ before every step and after the last.
pub fn newton(system: &mut dyn NonlinearSystem, x: &mut [f64], rtol: f64, steps: usize) -> Vec<f64> {
    let mut f = vec![f64::NAN; x.len()];
    system.residual(x, &mut f).unwrap();
    let mut norms = vec![norm(&f)];
    for _ in 0..steps {
        let now = norms[norms.len() - 1];
        if now <= rtol * norms[0] {
            break;
        }
        let s = solve(&jacobian(system, x), &f);
        let start = x.to_vec();
        let mut lambda = 1.0;
        loop {
            x.iter_mut().zip(start.iter().zip(&s)).for_each(|(x, (start, s))| *x = start - lambda * s);
            system.residual(x, &mut f).unwrap();
            if norm(&f) < now || lambda < 1e-3 {
                break;
            }
            lambda *= 0.5;
        }
        norms.push(norm(&f));
    }
    norms
}

/// Returns the mesh of the unit cube with n nodes along an edge, and for each node true if it is on the
/// surface.
pub fn cube(n: usize) -> (TetMesh, Vec<bool>) {
    let mesh = DuctMesh::new([n; 3], [1.0; 3]).unwrap();
    let outside = (0..mesh.nodes()).map(|i| mesh.position(i).iter().any(|&k| k == 0 || k == n - 1)).collect();
    (TetMesh::new(mesh.coordinates(), mesh.tetrahedra(), Vec::new()).unwrap(), outside)
}

/// Returns ∫ f·f over a mesh of the piecewise linear error of `components` numbers per node, from the exact
/// values at points of degree 2.
pub fn l2_error<const C: usize>(
    mesh: &TetMesh,
    value: impl Fn(usize, usize) -> f64,
    exact: impl Fn([f64; 3]) -> [f64; C],
) -> f64 {
    let mut sum = 0.0;
    each_point(mesh, |t, weights, x, weight| {
        let exact = exact(x);
        for (c, exact) in exact.iter().enumerate() {
            let found: f64 = t.iter().zip(weights).map(|(&p, w)| w * value(p as usize, c)).sum();
            sum += weight * (found - exact).powi(2);
        }
    });
    sum.sqrt()
}

/// Calls `work(corners, shape functions, point, weight)` for the four points of degree 2 in each tetrahedron.
pub fn each_point(mesh: &TetMesh, mut work: impl FnMut(&[u32; 4], &[f64; 4], [f64; 3], f64)) {
    let (near, far) = (0.585_410_196_624_968_5, 0.138_196_601_125_010_5);
    for t in mesh.tetrahedra() {
        let x = t.map(|p| mesh.points()[p as usize]);
        let e = [1, 2, 3].map(|k| [0, 1, 2].map(|d| x[k][d] - x[0][d]));
        let det = e[0][0] * (e[1][1] * e[2][2] - e[1][2] * e[2][1])
            - e[0][1] * (e[1][0] * e[2][2] - e[1][2] * e[2][0])
            + e[0][2] * (e[1][0] * e[2][1] - e[1][1] * e[2][0]);
        for k in 0..4 {
            let weights = std::array::from_fn(|a| if a == k { near } else { far });
            let point = std::array::from_fn(|d| (0..4).map(|a| weights[a] * x[a][d]).sum());
            work(t, &weights, point, det / 24.0);
        }
    }
}
