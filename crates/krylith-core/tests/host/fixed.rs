//! Rows with a diagonal alone are solved first, and the answer is that of the system as given.

use crate::common::{self, Mat, Random, distance, norm, relative_residual, times, transpose, written_out};
use crate::conformance::criterion::quantity;
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::Csr;
use krylith_core::operator::FunctionOperator;
use krylith_core::solver::EventKind;
use krylith_core::space::{Criterion, Outcome};
use krylith_core::{Options, Problem, Solver, Stop};

/// Two components on a square of m² points with boundary rows of the identity times `unit`. A third of these
/// fix only the first component. The rest is symmetric and definite.
fn square(m: usize, unit: f64, stores_zeros: bool) -> Csr {
    let mut entries = Vec::new();
    for i in 0..m * m {
        let (x, y) = (i % m, i / m);
        let border = x % (m - 1) == 0 || y % (m - 1) == 0;
        for c in 0..2 {
            let row = (2 * i + c) as u32;
            let fixed = border && (c == 0 || i % 3 > 0);
            entries.push((row, row, if fixed { unit } else { 5.0 }));
            entries.push((row, row ^ 1, if fixed { 0.0 } else { 0.5 }));
            let near = [
                (x > 0, i.wrapping_sub(1)),
                (x + 1 < m, i + 1),
                (y > 0, i.wrapping_sub(m)),
                (y + 1 < m, i + m),
            ];
            for (_, j) in near.into_iter().filter(|(is_there, _)| *is_there) {
                if !fixed || stores_zeros {
                    entries.push((row, (2 * j + c) as u32, if fixed { 0.0 } else { -1.0 }));
                }
            }
        }
    }
    Csr::from_triplets(2 * m * m, 2 * m * m, &entries).unwrap()
}

fn exact(a: &Csr, b: &[f64]) -> Vec<f64> {
    common::solve(&written_out(a), b)
}

fn said(solver: &Solver, words: &str) -> bool {
    solver.solution().events.iter().any(|e| e.kind == EventKind::Choice && e.detail.contains(words))
}

fn options(text: &str) -> Options {
    format!("device=cpu {text}").parse().unwrap()
}

const SAID: &str = "rows have only a diagonal entry";

#[test]
fn the_rest_is_solved_as_the_symmetric_system_that_it_is() {
    let mut rng = Random(3);
    for (unit, stores_zeros, block) in [(1.0, false, 1), (1.0, true, 1), (1e-3, false, 2), (40.0, true, 2)] {
        let a = square(14, unit, stores_zeros);
        let problem = Problem::csr_in_blocks(&a, Some(block)).unwrap();
        let (b, mut x) = (rng.numbers(a.rows()), rng.numbers(a.rows()));
        let mut solver = Solver::new(&problem, &options("rtol=1e-10")).unwrap();
        let solution = solver.solve(&b, &mut x).unwrap();
        assert!(solution.converged() && solution.symmetric == Some(true));
        let left = relative_residual(&a, &b, &x);
        let told = solution.history.true_relative_residual;
        assert!(left <= 1e-10 && (left - told).abs() <= 1e-3 * told, "{left:e}, and {told:e} was said");
        assert!((solution.history.rhs_norm / norm(&b) - 1.0).abs() < 1e-14);
        assert!(distance(&x, &exact(&a, &b)) < 1e-8);
        assert!(said(&solver, SAID));
        let fixed = (0..a.rows())
            .filter(|&i| a.row(i).0.iter().zip(a.row(i).1).all(|(j, v)| *j as usize == i || *v == 0.0));
        fixed.for_each(|i| assert_eq!(x[i], b[i] / unit, "row {i}"));
    }
}

/// Tolerances are those of the system as given, even where fixed values outweigh b by far.
#[test]
fn every_criterion_is_that_of_the_given_system() {
    let (a, mut rng) = (square(12, 1.0, false), Random(5));
    for size in [1.0, 1e6] {
        let mut b = rng.numbers(a.rows());
        (0..24).for_each(|u| b[u] *= size);
        for criterion in [Criterion::Residual, Criterion::Rows, Criterion::Backward] {
            for to in ["b", "r0"] {
                if criterion == Criterion::Backward && to == "r0" {
                    continue;
                }
                for method in ["auto", "gmres", "bicgstab"] {
                    let text = format!("criterion={criterion} relative_to={to} method={method} rtol=1e-8");
                    let guess = rng.numbers(a.rows());
                    let mut x = guess.clone();
                    let mut solver = Solver::new(&a, &options(&text)).unwrap();
                    let solution = solver.solve(&b, &mut x).unwrap();
                    let value = quantity(criterion, &a, &b, &x, (to == "r0").then_some(&guess[..]));
                    let told = solution.history.criterion_value;
                    assert!(solution.converged() && value <= 1.001e-8, "{text}, {size:e}: {value:e}");
                    assert!(
                        told <= 1e-8 && (told - value).abs() <= 1e-2 * value,
                        "{text}: {told:e} for {value:e}"
                    );
                }
            }
        }
    }
}

/// Where rounding hides the tolerance of the given system, the outcome says so.
#[test]
fn a_residual_that_cannot_be_reached_is_not_converged() {
    let mut a = square(12, 1.0, false);
    let ends: Vec<usize> = (0..a.rows()).map(|i| a.row(i).0.len()).collect();
    let mut values = a.values().to_vec();
    let mut at = 0;
    for len in ends {
        let row = at..at + len;
        if values[row.clone()].iter().filter(|v| **v != 0.0).count() > 1 {
            values[row].iter_mut().for_each(|v| *v *= 1e12);
        }
        at += len;
    }
    a.update_values(&values).unwrap();
    // Other rows have zeros, so ‖b‖ is that of the fixed values.
    let mut b = vec![0.0; a.rows()];
    (0..a.rows()).filter(|i| i % 2 == 0 && i / 2 % 12 == 0).for_each(|i| b[i] = 1.0);
    let mut x = vec![0.0; a.rows()];
    let mut solver = Solver::new(&a, &options("rtol=1e-8 method=cg")).unwrap();
    let solution = solver.solve(&b, &mut x).unwrap();
    assert_eq!(solution.outcome(), Outcome::RoundingLimit);
    assert!(distance(&x, &exact(&a, &b)) < 1e-8);
    let told = solution.history.true_relative_residual;
    let value = quantity(Criterion::Residual, &a, &b, &x, None);
    assert!(told > 1e-8 && (value / told - 1.0).abs() < 1e-3, "{told:e} for {value:e}");
}

#[test]
fn transposes_products_and_columns_are_those_of_the_given_matrix() {
    let (a, mut rng) = (square(13, 3.0, false), Random(7));
    let n = a.rows();
    let turned: Mat = transpose(&written_out(&a));
    let mut solver = Solver::new(&a, &options("rtol=1e-11")).unwrap();
    let (b, mut x, mut y) = (rng.numbers(n), vec![0.0; n], vec![0.0; n]);
    let solution = solver.solve_transposed(&b, &mut x).unwrap();
    let r: Vec<f64> = common::multiply(&turned, &x).iter().zip(&b).map(|(ax, b)| b - ax).collect();
    assert!(solution.converged() && norm(&r) <= 1.01e-11 * norm(&b));
    assert!((norm(&r) / norm(&b) / solution.history.true_relative_residual - 1.0).abs() < 0.1);
    assert!(distance(&x, &common::solve(&turned, &b)) < 1e-9);
    solver.multiply(&b, &mut y).unwrap();
    assert!(distance(&y, &times(&a, &b)) < 1e-13);
    solver.multiply_transposed(&b, &mut y).unwrap();
    assert!(distance(&y, &common::multiply(&turned, &b)) < 1e-13);
    assert_eq!(solver.problem().terms().terms()[0].1.values(), a.values());
    // A function of the caller is A as given.
    let product = FunctionOperator::on_host(|x, y| {
        y.copy_from_slice(&times(&a, x));
        Ok(())
    });
    let mut x = vec![0.0; n];
    let solution = solver.request(&b, &mut x).operator(&product).run().unwrap();
    assert!(solution.converged() && relative_residual(&a, &b, &x) <= 1e-11);
    let half = FunctionOperator::on_host(|x, y| {
        y.iter_mut().zip(x).for_each(|(y, x)| *y = 0.5 * x);
        Ok(())
    });
    let mut x = vec![0.0; n];
    let solution = solver.request(&b, &mut x).preconditioner(&half).run().unwrap();
    let (left, told) = (relative_residual(&a, &b, &x), solution.history.true_relative_residual);
    assert!(solution.converged() && left <= 1e-11 && (left - told).abs() <= 0.1 * left, "{left:e} {told:e}");
    // A norm that the caller gives instead of ‖b‖.
    let stop = Stop { rtol: 1e-7, reference: Some(100.0), ..Stop::default() };
    let mut x = vec![0.0; n];
    let solution = solver.request(&b, &mut x).stop(stop).run().unwrap();
    let left = relative_residual(&a, &b, &x);
    assert!(solution.converged() && left * norm(&b) <= 1e-5);
    assert!((solution.history.rhs_norm / norm(&b) - 1.0).abs() < 1e-14);
    let told = solution.history.true_relative_residual;
    assert!((left - told).abs() <= 0.1 * left, "{left:e} {told:e}");
    let own = solver.field_residuals(&b, &exact(&a, &b)).unwrap();
    assert!(own.iter().all(|r| *r < 1e-13), "{own:?}");
}

#[test]
fn new_values_may_end_what_was_fixed() {
    let mut rng = Random(11);
    for (stores_zeros, block) in [(false, 2), (true, 1), (true, 2)] {
        let mut a = square(12, 1.0, stores_zeros);
        let problem = Problem::csr_in_blocks(&a, Some(block)).unwrap().into_owned();
        let mut solver = Solver::new(problem, &options("rtol=1e-11")).unwrap();
        let mut check = |solver: &mut Solver, a: &Csr, what: &str| {
            let (b, mut x) = (rng.numbers(a.rows()), vec![0.0; a.rows()]);
            assert!(solver.solve(&b, &mut x).unwrap().converged(), "{what}");
            assert!(distance(&x, &exact(a, &b)) < 1e-8, "{what}");
        };
        check(&mut solver, &a, "first values");
        let scaled: Vec<f64> =
            a.values().iter().enumerate().map(|(k, v)| v * (1.0 + 1e-3 * (k % 7) as f64)).collect();
        a.update_values(&scaled).unwrap();
        solver.update_values(a.values()).unwrap();
        check(&mut solver, &a, "new values");
        assert!(said(&solver, SAID));
        // An entry beside the diagonal of the first row, which was fixed.
        let place = (a.row_ptr()[0]..a.row_ptr()[1]).find(|&p| a.values()[p] == 0.0).unwrap();
        let mut changed = a.values().to_vec();
        changed[place] = 0.25;
        a.update_values(&changed).unwrap();
        solver.update_values(a.values()).unwrap();
        check(&mut solver, &a, "a row that is not alone any more");
        assert!(said(&solver, "set up again") && !said(&solver, SAID));
    }
}

#[test]
fn ranks_solve_what_one_process_solves() {
    let (a, n) = (square(12, 2.0, true), 288);
    let b = Random(13).numbers(n);
    let (alone, turned) = (exact(&a, &b), common::solve(&transpose(&written_out(&a)), &b));
    for (ranks, block) in [(2, 1), (3, 2), (4, 1)] {
        let parts = Team::run(ranks, |comm| {
            let nodes = n / block;
            let first = comm.rank() * nodes / ranks * block;
            let rows = first..(comm.rank() + 1) * nodes / ranks * block;
            let ptr: Vec<usize> =
                (rows.start..=rows.end).map(|i| a.row_ptr()[i] - a.row_ptr()[rows.start]).collect();
            let entries = a.row_ptr()[rows.start]..a.row_ptr()[rows.end];
            let (col, values) = (a.col()[entries.clone()].to_vec(), a.values()[entries].to_vec());
            let own = Csr::new(rows.len(), n, ptr, col, values)?;
            let problem = Problem::distributed_csr(comm.clone(), &own, Some(block))?;
            let mut solver = Solver::new(&problem, &options("rtol=1e-11"))?;
            let (mut x, mut y) = (vec![0.0; rows.len()], vec![0.0; rows.len()]);
            assert!(solver.solve(&b[rows.clone()], &mut x)?.converged() && said(&solver, SAID));
            assert_eq!(solver.solution().symmetric, Some(true));
            assert!(solver.solve_transposed(&b[rows.clone()], &mut y)?.converged());
            let mut product = vec![0.0; rows.len()];
            solver.multiply(&x, &mut product)?;
            assert!(distance(&product, &b[rows.clone()]) < 1e-9);
            solver.update_values(own.values())?;
            assert!(solver.solve(&b[rows.clone()], &mut x)?.converged());
            Ok((rows, x, y))
        });
        for (rows, x, y) in parts.unwrap() {
            assert!(distance(&x, &alone[rows.clone()]) < 1e-8, "{ranks} ranks");
            assert!(distance(&y, &turned[rows]) < 1e-8, "{ranks} ranks, transposed");
        }
    }
}

/// Rows of the identity to which no other row refers, as after an elimination, change nothing.
#[test]
fn an_elimination_of_the_code_stays_as_it_is() {
    let a = square(12, 1.0, false);
    let fixed = |i: usize| a.row(i).0.iter().zip(a.row(i).1).all(|(j, v)| *j as usize == i || *v == 0.0);
    let entries: Vec<(u32, u32, f64)> = (0..a.rows())
        .flat_map(|i| a.row(i).0.iter().zip(a.row(i).1).map(move |(j, v)| (i as u32, *j, *v)))
        .filter(|(i, j, _)| i == j || !fixed(*j as usize))
        .collect();
    let a = Csr::from_triplets(a.rows(), a.rows(), &entries).unwrap();
    let mut solver = Solver::new(&a, &options("rtol=1e-10")).unwrap();
    let (b, mut x) = (Random(17).numbers(a.rows()), vec![0.0; a.rows()]);
    assert!(solver.solve(&b, &mut x).unwrap().converged() && !said(&solver, "diagonal entry"));
    assert!(distance(&x, &exact(&a, &b)) < 1e-8);
}

/// Columns that are solved together, with fixed values of unlike size.
#[test]
fn columns_meet_their_own_tolerances() {
    let (a, mut rng) = (square(40, 1.0, false), Random(19));
    let (n, text) = (a.rows(), "rtol=1e-9 method=cg precond=amg threads=1");
    for (criterion, transposed) in [("residual", false), ("residual", true), ("backward", false)] {
        let mut all = rng.numbers(5 * n);
        for (k, b) in all.chunks_exact_mut(n).enumerate() {
            (0..80).for_each(|u| b[u] *= 10f64.powi(3 * k as i32 - 3));
        }
        let mut solver = Solver::new(&a, &options(&format!("{text} criterion={criterion}"))).unwrap();
        let mut found = vec![0.0; 5 * n];
        let solutions = solver.request(&all, &mut found).transposed(transposed).columns().unwrap();
        for (k, (b, x)) in all.chunks_exact(n).zip(found.chunks_exact(n)).enumerate() {
            let mut product = vec![0.0; n];
            match transposed {
                false => solver.multiply(x, &mut product).unwrap(),
                true => solver.multiply_transposed(x, &mut product).unwrap(),
            }
            let r: Vec<f64> = product.iter().zip(b).map(|(ax, b)| b - ax).collect();
            let (left, history) = (norm(&r) / norm(b), &solutions[k].history);
            let what = format!("{criterion}, {transposed}, column {k}: {left:e} {history:?}");
            assert!(solutions[k].converged() && history.criterion_value <= 1e-9, "{what}");
            assert!((history.rhs_norm / norm(b) - 1.0).abs() < 1e-14, "{what}");
            let told = history.true_relative_residual;
            assert!((left - told).abs() <= 1e-15 + 0.1 * told, "{what}");
            let mut alone = vec![0.0; n];
            solver.request(b, &mut alone).transposed(transposed).run().unwrap();
            assert!(distance(x, &alone) <= 1e-6 * norm(&alone), "{what}");
        }
    }
}

/// An elastic square with Poisson's ratio 0.3 on m² points, held on one side by rows of the identity.
fn elastic(m: usize) -> (Csr, Vec<[f64; 3]>) {
    let (nu, mut entries) = (0.3, Vec::new());
    let d = [[1.0, nu, 0.0], [nu, 1.0, 0.0], [0.0, 0.0, (1.0 - nu) / 2.0]];
    let corners = [(0usize, 0usize), (1, 0), (1, 1), (0, 1)];
    // The strains of a bilinear element at a point, and its stiffness by four points.
    let strains = |x: f64, y: f64| {
        let mut b = [[0.0; 8]; 3];
        for (k, (cx, cy)) in corners.iter().enumerate() {
            let (sx, sy) = (2.0 * *cx as f64 - 1.0, 2.0 * *cy as f64 - 1.0);
            let (dx, dy) = (sx * (1.0 + sy * y) / 2.0, sy * (1.0 + sx * x) / 2.0);
            (b[0][2 * k], b[1][2 * k + 1], b[2][2 * k], b[2][2 * k + 1]) = (dx, dy, dy, dx);
        }
        b
    };
    let g = 1.0 / f64::sqrt(3.0);
    for e in 0..(m - 1) * (m - 1) {
        let (ex, ey) = (e % (m - 1), e / (m - 1));
        let node = |k: usize| ex + corners[k].0 + (ey + corners[k].1) * m;
        for (x, y) in [(-g, -g), (g, -g), (g, g), (-g, g)] {
            let b = strains(x, y);
            for (i, j) in (0..64).map(|e| (e / 8, e % 8)) {
                let v: f64 = (0..9).map(|e| b[e / 3][i] * d[e / 3][e % 3] * b[e % 3][j]).sum();
                let row = (2 * node(i / 2) + i % 2) as u32;
                if node(i / 2) % m > 0 {
                    entries.push((row, (2 * node(j / 2) + j % 2) as u32, 0.25 * v));
                }
            }
        }
    }
    let held = (0..m).flat_map(|y| [2 * y * m, 2 * y * m + 1]);
    entries.extend(held.map(|row| (row as u32, row as u32, 1.0)));
    let points = (0..m * m).map(|i| [(i % m) as f64, (i / m) as f64, 0.0]).collect();
    (Csr::from_triplets(2 * m * m, 2 * m * m, &entries).unwrap(), points)
}

/// Coordinates suffice: nobody has to ask for the rigid motions of an elastic body.
#[test]
fn rigid_motions_of_an_elastic_body_are_recognised() {
    let (a, points) = elastic(40);
    let n = a.rows();
    let (b, mut rng) = ((0..n).map(|u| f64::from(u8::from(u % 80 == 79))).collect::<Vec<_>>(), Random(23));
    let solve = |a: &Csr, points: Option<&Vec<[f64; 3]>>| {
        let mut problem = Problem::csr_in_blocks(a, Some(2)).unwrap();
        if let Some(points) = points {
            problem = problem.with_coordinates(points.clone()).unwrap();
        }
        let mut solver = Solver::new(&problem, &options("rtol=1e-9 method=cg precond=amg")).unwrap();
        let mut x = vec![0.0; n];
        let solution = solver.solve(&b, &mut x).unwrap();
        assert!(solution.converged() && relative_residual(a, &b, &x) <= 1e-9);
        (solution.history.iterations, said(&solver, "rigid motions"))
    };
    let (with, without) = (solve(&a, Some(&points)), solve(&a, None));
    assert!(with.1 && !without.1 && 3 * with.0 <= 2 * without.0, "{with:?} and {without:?}");
    // With other points these are no motions of the body.
    let other: Vec<[f64; 3]> = points.iter().map(|p| [p[0] + 0.3 * rng.number(), p[1], 0.0]).collect();
    assert!(!solve(&a, Some(&other)).1);
    // Neither have components that do not couple.
    let diffusion = |i: usize| {
        let (x, y) = (i % 40, i / 40);
        let border = x % 39 == 0 || y % 39 == 0;
        let near = if border { vec![] } else { vec![i - 1, i + 1, i - 40, i + 40] };
        let own = if border { 1.0 } else { 4.0 };
        let entries = std::iter::once((i, own)).chain(near.into_iter().map(|j| (j, -1.0)));
        let both = |(j, v): (usize, f64)| [0, 1].map(|c| ((2 * i + c) as u32, (2 * j + c) as u32, v));
        entries.flat_map(both).collect::<Vec<_>>()
    };
    let diffusions = Csr::from_triplets(n, n, &(0..1600).flat_map(diffusion).collect::<Vec<_>>()).unwrap();
    assert!(!solve(&diffusions, Some(&points)).1);
    // A row that is fixed no more: the whole system has the rigid motions, too.
    let mut stored = a.clone();
    let beside = (a.row_ptr()[0], a.row_ptr()[1]);
    assert_eq!(beside, (0, 1), "the first row is fixed");
    let entries: Vec<(u32, u32, f64)> = (0..n)
        .flat_map(|i| a.row(i).0.iter().zip(a.row(i).1).map(move |(j, v)| (i as u32, *j, *v)))
        .chain([(0, 2, 0.0)])
        .collect();
    stored.clone_from(&Csr::from_triplets(n, n, &entries).unwrap());
    let problem = Problem::csr_in_blocks(&stored, Some(2)).unwrap().with_coordinates(points).unwrap();
    let mut solver = Solver::new(problem, &options("rtol=1e-9 method=gmres precond=amg")).unwrap();
    let mut values = stored.values().to_vec();
    values[1] = 0.5;
    solver.update_values(&values).unwrap();
    let mut x = vec![0.0; n];
    let solution = solver.solve(&b, &mut x).unwrap();
    assert!(solution.converged() && solution.history.iterations <= 2 * with.0, "{:?}", solution.history);
}

/// Unknowns whose rows and columns store only zeros, with and without a diagonal entry.
#[test]
fn unknowns_without_entries_are_zero() {
    let (side, n) = (20usize, 400usize);
    let is_empty = |i: usize| i % 57 == 3;
    for (with_diagonal, turned) in [(true, false), (false, false), (false, true)] {
        let mut entries = Vec::new();
        for i in 0..n {
            let around = [(i % side > 0, i.wrapping_sub(1)), (i % side + 1 < side, i + 1)];
            let around =
                around.into_iter().chain([(i >= side, i.wrapping_sub(side)), (i + side < n, i + side)]);
            for j in around.filter(|(inside, _)| *inside).map(|(_, j)| j) {
                let v = if is_empty(i) || is_empty(j) { 0.0 } else { -1.0 };
                let v = if turned && j > i { 0.5 * v } else { v };
                entries.push((i as u32, j as u32, v));
            }
            if !is_empty(i) || with_diagonal {
                entries.push((i as u32, i as u32, if is_empty(i) { 0.0 } else { 4.5 }));
            }
        }
        let a = Csr::from_triplets(n, n, &entries).unwrap();
        let wanted: Vec<f64> = (0..n).map(|i| if is_empty(i) { 0.0 } else { 1.0 + (i % 7) as f64 }).collect();
        let mut b = vec![0.0; n];
        entries.iter().for_each(|(i, j, v)| b[*i as usize] += v * wanted[*j as usize]);
        for precond in ["auto", "jacobi", "amg", "ildu:cut=whole", "lu"] {
            let options = format!("device=cpu rtol=1e-10 precond={precond}").parse().unwrap();
            let mut solver = Solver::new(&a, &options).unwrap_or_else(|e| panic!("{precond}: {e}"));
            let mut x = vec![9.0; n];
            let solution = solver.solve(&b, &mut x).unwrap();
            assert!(solution.converged(), "{precond}: {:?}", solution.events);
            assert!(x.iter().zip(&wanted).all(|(x, w)| (x - w).abs() < 1e-7), "{precond}");
            // No x reaches another right-hand side of these rows.
            let mut other = b.clone();
            other[3] = 5.0;
            let solution = solver.solve(&other, &mut x).unwrap();
            assert_eq!(solution.outcome(), Outcome::Inconsistent, "{precond}");
            let norm = other.iter().map(|b| b * b).sum::<f64>().sqrt();
            assert!((solution.history.true_relative_residual - 5.0 / norm).abs() < 1e-6, "{precond}");
            assert!(x.iter().zip(&wanted).all(|(x, w)| (x - w).abs() < 1e-6), "{precond}");
            let mut product = vec![f64::NAN; n];
            solver.multiply(&wanted, &mut product).unwrap();
            assert!(product.iter().zip(&b).all(|(p, b)| (p - b).abs() < 1e-12), "{precond}");
            if !turned {
                solver.solve_transposed(&b, &mut x).unwrap();
                assert!(x.iter().zip(&wanted).all(|(x, w)| (x - w).abs() < 1e-7), "{precond}, transposed");
            }
        }
        // The rows get entries.
        let mut solver = Solver::new(&a, &"device=cpu rtol=1e-10".parse().unwrap()).unwrap();
        let full: Vec<f64> = (0..n)
            .flat_map(|i| a.row(i).0.iter().map(move |&j| if j as usize == i { 4.5 } else { -1.0 }))
            .collect();
        if with_diagonal {
            solver.update_values(&full).unwrap();
            let (mut x, ones) = (vec![0.0; n], vec![1.0; n]);
            let mut b = vec![0.0; n];
            solver.multiply(&ones, &mut b).unwrap();
            assert!(solver.solve(&b, &mut x).unwrap().converged());
            assert!(x.iter().all(|x| (x - 1.0).abs() < 1e-7));
        }
    }
}

/// Constants of all unknowns, also of those without entries, are a null vector of the given system.
#[test]
fn a_null_vector_may_include_unknowns_without_entries() {
    let n = 400usize;
    let is_empty = |i: usize| i % 57 == 3;
    let mut entries: Vec<(u32, u32, f64)> = Vec::new();
    let others: Vec<usize> = (0..n).filter(|&i| !is_empty(i)).collect();
    for pair in others.windows(2) {
        let (i, j) = (pair[0] as u32, pair[1] as u32);
        entries.extend([(i, i, 1.0), (j, j, 1.0), (i, j, -1.0), (j, i, -1.0)]);
    }
    entries.extend((0..n).filter(|&i| is_empty(i)).map(|i| (i as u32, i as u32 - 1, 0.0)));
    let a = Csr::from_triplets(n, n, &entries).unwrap();
    let b: Vec<f64> =
        (0..n).map(|i| f64::from(u8::from(i == others[0])) - f64::from(u8::from(i == others[9]))).collect();
    for precond in ["auto", "jacobi", "amg", "lu"] {
        let problem = Problem::csr(&a).unwrap().with_null_vectors(vec![vec![1.0; n]]).unwrap();
        let options: Options = format!("device=cpu rtol=1e-10 precond={precond}").parse().unwrap();
        let (mut solver, mut x) = (Solver::new(problem, &options).unwrap(), vec![0.0; n]);
        let solution = solver.solve(&b, &mut x).unwrap();
        assert!(solution.converged(), "{precond}: {:?}", solution.events);
        let mut product = vec![0.0; n];
        solver.multiply(&x, &mut product).unwrap();
        assert!(product.iter().zip(&b).all(|(p, b)| (p - b).abs() < 1e-8), "{precond}");
    }
}
