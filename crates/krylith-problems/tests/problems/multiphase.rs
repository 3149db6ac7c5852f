//! The pressure equation of a multiphase flow: order of convergence, exact layers, structure, and position of
//! the phases.

use crate::common::lu::Lu;
use krylith_core::matrix::Csr;
use krylith_problems::multiphase::{CLOSED, Faces, OPEN, PhaseOptions, Phases, Projection, TOP};
use krylith_problems::{SystemKind, generate};
use std::f64::consts::PI;

fn solve(a: &Csr, b: &[f64]) -> Vec<f64> {
    let mut x = b.to_vec();
    Lu::new(a).solve(&mut x);
    x
}

/// Returns the largest error for p = cos(πx) cos(2πy) cos(πz/4) in the box 1×1×2 with walls and an outlet at
/// z = 2, where p = 0, and 1/ρ = 2 + cos(πx) cos(πz/2), which varies by a factor of 3.
fn manufactured(n: usize) -> f64 {
    let h = 1.0 / n as f64;
    // Cells are twice as long along z, as in the problem.
    let projection = Projection::new([n; 3], [h, h, 2.0 * h], TOP).unwrap();
    let pressure = |[x, y, z]: [f64; 3]| (PI * x).cos() * (2.0 * PI * y).cos() * (0.25 * PI * z).cos();
    let beta = |[x, _, z]: [f64; 3]| 2.0 + (PI * x).cos() * (0.5 * PI * z).cos();
    let source = |at @ [x, y, z]: [f64; 3]| {
        let p = pressure(at);
        let laplacian = -(1.0 + 4.0 + 0.0625) * PI * PI * p;
        let by_x = -PI * (PI * x).sin() * (2.0 * PI * y).cos() * (0.25 * PI * z).cos();
        let by_z = -0.25 * PI * (PI * x).cos() * (2.0 * PI * y).cos() * (0.25 * PI * z).sin();
        let beta_by_x = -PI * (PI * x).sin() * (0.5 * PI * z).cos();
        let beta_by_z = -0.5 * PI * (PI * x).cos() * (0.5 * PI * z).sin();
        -(beta(at) * laplacian + beta_by_x * by_x + beta_by_z * by_z)
    };
    let centres: Vec<_> = (0..projection.cells()).map(|i| projection.centre(i)).collect();
    let density: Vec<f64> = centres.iter().map(|&at| 1.0 / beta(at)).collect();
    let rhs: Vec<f64> = centres.iter().map(|&at| 2.0 * h * h * h * source(at)).collect();
    let found = solve(&projection.matrix(&density).unwrap(), &rhs);
    found.iter().zip(&centres).map(|(p, &at)| (p - pressure(at)).abs()).fold(0.0, f64::max)
}

#[test]
fn pressures_converge_with_order_2() {
    let sizes = [8, 16, 24];
    let errors = sizes.map(manufactured);
    for k in 0..2 {
        let order = (errors[k] / errors[k + 1]).ln() / (sizes[k + 1] as f64 / sizes[k] as f64).ln();
        assert!((1.85..2.2).contains(&order), "order {order:.2} of {errors:?}");
    }
    assert!(errors[2] < 0.006, "{errors:?}");
}

/// Two layers with a uniform inflow from below: p is piecewise linear and the method exact for any contrast.
#[test]
fn two_layers_are_solved_exactly() {
    for (axis, heavy) in [(0, 1e3), (1, 1e6), (2, 1e-3)] {
        let (n, border, h, flux) = (9, 4, 0.5, 3.0);
        let mut cells = [1, 1, 1];
        cells[axis] = n;
        let mut open = CLOSED;
        open[axis][1] = true;
        let projection = Projection::new(cells, [h; 3], open).unwrap();
        let density: Vec<f64> = (0..n).map(|i| if i < border { heavy } else { 1.0 }).collect();
        // u* enters through the first face and is 0 elsewhere; after the projection it is uniform.
        let mut velocity = Faces::new(cells);
        velocity.across[axis][0] = flux;
        let mut rhs = vec![0.0; n];
        projection.rhs_into(&velocity, 1.0, &mut rhs).unwrap();
        let a = projection.matrix(&density).unwrap();
        let p = solve(&a, &rhs);
        for (i, p) in p.iter().enumerate() {
            let (x, middle, end) = (h * (i as f64 + 0.5), h * border as f64, h * n as f64);
            // −(1/ρ) dp/dx = flux in both layers, p = 0 at the end.
            let exact =
                if x > middle { flux * (end - x) } else { flux * (end - middle + heavy * (middle - x)) };
            assert!((p - exact).abs() <= 1e-11 * exact, "axis {axis}, cell {i}: {p} is not {exact}");
        }
        projection.correct(&density, &p, 1.0, &mut velocity).unwrap();
        assert!(velocity.across[axis].iter().all(|u| (u - flux).abs() < 1e-9 * flux), "axis {axis}");
    }
}

/// Builds the rows from densities, face by face: the resistances of two half cells in series.
#[test]
fn the_matrix_is_what_the_formulas_say() {
    let (cells, spacing) = ([3, 4, 2], [1.0, 0.5, 2.0]);
    let density: Vec<f64> = (0..24).map(|i| 1.0 + (i * 7 % 11) as f64 * 100.0).collect();
    for open in [CLOSED, TOP, OPEN, [[false, true], [true, false], [true, false]]] {
        let projection = Projection::new(cells, spacing, open).unwrap();
        let a = projection.matrix(&density).unwrap();
        let number = |[x, y, z]: [usize; 3]| (z * 4 + y) * 3 + x;
        let mut expected = vec![vec![0.0; 24]; 24];
        for i in 0..24 {
            let at = [i % 3, i / 3 % 4, i / 12];
            for d in 0..3 {
                let area: f64 = (0..3).filter(|&e| e != d).map(|e| spacing[e]).product();
                let half = 0.5 * spacing[d] * density[i];
                if at[d] + 1 < cells[d] {
                    let mut above = at;
                    above[d] += 1;
                    let j = number(above);
                    let t = area / (half + 0.5 * spacing[d] * density[j]);
                    expected[i][i] += t;
                    expected[j][j] += t;
                    expected[i][j] -= t;
                    expected[j][i] -= t;
                } else if open[d][1] {
                    expected[i][i] += area / half;
                }
                if at[d] == 0 && open[d][0] {
                    expected[i][i] += area / half;
                }
            }
        }
        for (i, row) in expected.iter().enumerate() {
            for (j, &v) in row.iter().enumerate() {
                assert!((a.get(i, j) - v).abs() <= 1e-13 * v.abs(), "{open:?}: ({i}, {j}) is not {v}");
            }
        }
        let mut values = vec![0.0; a.nonzeros()];
        projection.values_into(&density, &mut values).unwrap();
        assert!(a.values() == values, "{open:?}");
    }
}

#[test]
fn matrices_are_symmetric_and_rows_sum_to_what_leaves_the_box() {
    for outlet in ["none", "top", "open"] {
        let generated = generate(&format!("poisson-multiphase:7x6x9,gap=1,outlet={outlet}")).unwrap();
        let SystemKind::Csr(a) = &generated.system else { panic!("one unknown a cell") };
        assert_eq!(a, &a.transpose(), "{outlet}");
        for i in 0..a.rows() {
            let (col, values) = a.row(i);
            for (&j, &v) in col.iter().zip(values) {
                assert!(if i == j as usize { v > 0.0 } else { v < 0.0 }, "{outlet}: ({i}, {j}) is {v}");
            }
            let at = [i % 7, i / 7 % 6, i / 42];
            let side = at[0] == 0 || at[0] == 6 || at[1] == 0 || at[1] == 5;
            let leaves = match outlet {
                "none" => false,
                "top" => at[2] == 8,
                _ => side || at[2] == 8,
            };
            let (sum, diagonal) = (values.iter().sum::<f64>(), a.get(i, i));
            assert!(
                if leaves { sum > 1e-3 * diagonal } else { sum.abs() < 1e-13 * diagonal },
                "{outlet}: row {i} sums to {sum:e}"
            );
        }
        let total: f64 = generated.rhs.iter().sum();
        let size = generated.rhs.iter().map(|v| v.abs()).sum::<f64>();
        // With walls all around, the right-hand side sums to zero, so a solution exists.
        assert_eq!(total.abs() < 1e-12 * size, outlet == "none", "{outlet}: {total:e} of {size:e}");
        assert_eq!(generated.coordinates.as_ref().unwrap()[1], [1.5, 0.5, 1.0]);
        assert_eq!(generated.grid, Some([7, 6, 9]));
    }
}

#[test]
fn the_default_has_every_phase_and_the_contrast_that_was_asked_for() {
    let cells = [48, 32, 64];
    for (options, least) in [
        (PhaseOptions::default(), [0.15, 0.2, 0.1]),
        (PhaseOptions { columns: 0, ..PhaseOptions::default() }, [0.2, 0.4, 0.0]),
        (PhaseOptions { gap: 2.0, width: 0.0, contrast: 1e6, ..PhaseOptions::default() }, [0.15, 0.2, 0.05]),
    ] {
        let phases = Phases::new(cells, [1.0, 1.0, 2.0], options);
        let projection = Projection::new(cells, [1.0, 1.0, 2.0], OPEN).unwrap();
        let (mut sums, mut low, mut high) = ([0.0; 3], f64::INFINITY, 0.0f64);
        for i in 0..projection.cells() {
            let shares = phases.fractions(projection.position(i));
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-14, "cell {i}: {shares:?}");
            assert!(shares.iter().all(|s| (0.0..=1.0).contains(s)), "cell {i}: {shares:?}");
            (0..3).for_each(|k| sums[k] += shares[k] / projection.cells() as f64);
            let density = phases.density(shares);
            (low, high) = (low.min(density), high.max(density));
        }
        assert!((0..3).all(|k| sums[k] >= least[k]), "{options:?}: {sums:?}");
        let most = if options.columns > 0 { 8.0 } else { 1.0 } * options.contrast;
        assert!(low == 1.0 && (high - most).abs() < 1e-9 * most, "{options:?}: {low} to {high}");
    }
}

#[test]
fn a_projected_velocity_has_no_divergence() {
    let (cells, spacing) = ([6, 5, 7], [1.0, 1.0, 2.0]);
    let phases = Phases::new(cells, spacing, PhaseOptions::default());
    for open in [TOP, OPEN] {
        let projection = Projection::new(cells, spacing, open).unwrap();
        let density: Vec<f64> = (0..projection.cells())
            .map(|i| phases.density(phases.fractions(projection.position(i))))
            .collect();
        let mut velocity = Faces::new(cells);
        for axis in 0..3 {
            for (k, u) in velocity.across[axis].iter_mut().enumerate() {
                *u = ((k * 37 + axis * 11) % 19) as f64 - 9.0;
            }
        }
        let mut rhs = vec![0.0; projection.cells()];
        projection.rhs_into(&velocity, 0.1, &mut rhs).unwrap();
        let p = solve(&projection.matrix(&density).unwrap(), &rhs);
        projection.correct(&density, &p, 0.1, &mut velocity).unwrap();
        let worst =
            (0..projection.cells()).map(|i| projection.divergence(&velocity, i).abs()).fold(0.0, f64::max);
        assert!(worst < 1e-8, "{open:?}: {worst:e}");
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let projection = Projection::new([3, 4, 5], [1.0; 3], TOP).unwrap();
    let fails = |result: krylith_core::Result<()>, named: &str| {
        let message = result.unwrap_err().to_string();
        assert!(message.contains(named), "{message}");
    };
    fails(Projection::new([3, 0, 5], [1.0; 3], TOP).map(|_| ()), "at least one cell");
    fails(Projection::new([3, 4, 5], [1.0, -1.0, 1.0], TOP).map(|_| ()), "along y is -1");
    fails(projection.matrix(&[1.0; 59]).map(|_| ()), "density: 59 numbers for 60 cells");
    let mut density = vec![1.0; 60];
    density[7] = 0.0;
    fails(projection.matrix(&density).map(|_| ()), "cell 7 is 0");
    fails(projection.values_into(&[1.0; 60], &mut [0.0; 3]), "3 values");
    fails(projection.rhs_into(&Faces::new([3, 5, 4]), 1.0, &mut [0.0; 60]), "3x5x4 cells do not fit");
    let mut velocity = Faces::new([3, 4, 5]);
    fails(projection.correct(&[1.0; 60], &[0.0; 61], 1.0, &mut velocity), "pressure: 61 numbers");
}
