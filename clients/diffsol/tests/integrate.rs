//! BDF and ESDIRK steps of a stiff reaction with diffusion, with Krylith and with diffsol's own solvers.

use diffsol::{Bdf, FaerSparseLU, FaerSparseMat, OdeBuilder, OdeSolverMethod, Vector};
use krylith_diffsol::Krylith;

type Sparse = FaerSparseMat<f64>;

/// Points on a side of the square.
const M: usize = 12;
const ALPHA: f64 = 0.02;

/// Calls f with the place of each point and those of its neighbours.
fn each_point(mut f: impl FnMut(usize, &[usize])) {
    for (i, j) in (0..M).flat_map(|i| (0..M).map(move |j| (i, j))) {
        let near: Vec<usize> = [(i > 0, -(M as isize)), (j > 0, -1), (j + 1 < M, 1), (i + 1 < M, M as isize)]
            .iter()
            .filter(|(inside, _)| *inside)
            .map(|(_, step)| (i * M + j).wrapping_add_signed(*step))
            .collect();
        f(i * M + j, &near);
    }
}

/// The Brusselator on a square with reflecting walls: u' = 1 + u²v − 4.4u + α Δu, v' = 3.4u − u²v + α Δv.
fn brusselator(y: &[f64], f: &mut [f64]) {
    let c = ALPHA * (M * M) as f64;
    each_point(|p, near| {
        let (u, v) = (y[2 * p], y[2 * p + 1]);
        let spread = |k: usize| near.iter().map(|q| c * (y[2 * q + k] - y[2 * p + k])).sum::<f64>();
        f[2 * p] = 1.0 + u * u * v - 4.4 * u + spread(0);
        f[2 * p + 1] = 3.4 * u - u * u * v + spread(1);
    });
}

/// The product of its Jacobian with w.
fn product(y: &[f64], w: &[f64], f: &mut [f64]) {
    let c = ALPHA * (M * M) as f64;
    each_point(|p, near| {
        let (u, v) = (y[2 * p], y[2 * p + 1]);
        let spread = |k: usize| near.iter().map(|q| c * (w[2 * q + k] - w[2 * p + k])).sum::<f64>();
        let reaction = 2.0 * u * v * w[2 * p] + u * u * w[2 * p + 1];
        f[2 * p] = reaction - 4.4 * w[2 * p] + spread(0);
        f[2 * p + 1] = 3.4 * w[2 * p] - reaction + spread(1);
    });
}

macro_rules! problem {
    ($M:ty, $rtol:expr) => {
        OdeBuilder::<$M>::new()
            .rtol($rtol)
            .atol([0.01 * $rtol])
            .use_coloring(true)
            .rhs_implicit(|y, _, _, f| brusselator(y, f), |y, _, _, w, f| product(y, w, f))
            .init(
                |_, _, y| {
                    for (k, y) in y.iter_mut().enumerate() {
                        let (i, j) = ((k / 2 / M) as f64 + 0.5, (k / 2 % M) as f64 + 0.5);
                        let x = if k % 2 == 0 { j } else { i } / M as f64;
                        *y = if k % 2 == 0 { 22.0 } else { 27.0 } * x * (1.0 - x).powf(1.5);
                    }
                },
                2 * M * M,
            )
            .build()
            .unwrap()
    };
}

const TIMES: [f64; 4] = [0.3, 1.2, 2.7, 4.8];

/// Integrates, and returns y at the times and the number of steps.
fn run<'a, E, S>(mut solver: S) -> (Vec<Vec<f64>>, usize)
where
    E: diffsol::OdeEquationsImplicit<T = f64> + 'a,
    S: OdeSolverMethod<'a, E>,
{
    let (mut found, mut steps) = (Vec::new(), 0);
    for t in TIMES {
        while solver.state().t < t {
            solver.step().unwrap();
            steps += 1;
        }
        found.push(solver.interpolate(t).unwrap().clone_as_vec());
    }
    (found, steps)
}

/// The largest difference in units of the tolerance.
fn difference(x: &[Vec<f64>], y: &[Vec<f64>], rtol: f64) -> f64 {
    let pairs = x.iter().flatten().zip(y.iter().flatten());
    pairs.map(|(x, y)| (x - y).abs() / (rtol * y.abs() + 0.01 * rtol)).fold(0.0, f64::max)
}

#[test]
fn bdf_has_the_trajectory_of_sparse_lu() {
    let rtol = 1e-5;
    let problem = problem!(Sparse, rtol);
    let precise = problem!(Sparse, 1e-8);
    let (exact, _) = run(precise.bdf::<FaerSparseLU<f64>>().unwrap());
    let (own, of_own) = run(problem.bdf::<FaerSparseLU<f64>>().unwrap());
    let (ours, steps) = run(problem.bdf::<Krylith<Sparse>>().unwrap());
    assert_eq!(steps, of_own);
    assert!(difference(&ours, &own, rtol) < 1e-3, "{}", difference(&ours, &own, rtol));
    // Solves of the tolerance of a Newton step make errors of the integrator's size.
    let state = problem.bdf_state::<Krylith<Sparse>>().unwrap();
    let linear = Krylith::new("method=gmres precond=ildu rtol=1e-6".parse().unwrap());
    let (loose, _) = run(Bdf::<_, _>::new(&problem, state, linear).unwrap());
    let [of_own, of_loose] = [&own, &loose].map(|y| difference(y, &exact, rtol));
    assert!(of_loose < 2.0 * of_own, "{of_loose} and {of_own} of the tolerance");
}

#[test]
fn esdirk_has_the_trajectory_of_sparse_lu() {
    let problem = problem!(Sparse, 1e-5);
    let (own, of_own) = run(problem.esdirk34::<FaerSparseLU<f64>>().unwrap());
    let (ours, steps) = run(problem.esdirk34::<Krylith<Sparse>>().unwrap());
    assert_eq!(steps, of_own);
    assert!(difference(&ours, &own, 1e-5) < 1e-3, "{}", difference(&ours, &own, 1e-5));
}
