//! Convergence criteria: every quantity against its definition, with residuals in twice the digits.

use crate::common::exact::Exact;
use crate::common::{Random, distance, norm};
use crate::conformance::criterion::quantity;
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::Csr;
use krylith_core::newton::{Newton, NewtonOptions};
use krylith_core::operator::FunctionOperator;
use krylith_core::solver::{Solution, solve_functions};
use krylith_core::space::{Criterion, RelativeTo};
use krylith_core::{Options, Outcome, Problem, Progress, Result, Solver, Stop};
use std::ops::ControlFlow;
use std::sync::Arc;

const CRITERIA: [Criterion; 3] = Criterion::ALL;

/// A convection-diffusion matrix, or a symmetric one, with rows scaled by 10^±`decades`/2.
fn matrix(n: usize, symmetric: bool, decades: f64) -> Csr {
    let (left, right) = if symmetric { (-1.0, -1.0) } else { (-1.6, -0.4) };
    let scale = |i: usize| 10f64.powf(decades * ((i * 7919 % n) as f64 / n as f64 - 0.5));
    let mut entries: Vec<(u32, u32, f64)> = Vec::new();
    let mut put = |i: usize, j: usize, v: f64| entries.push((i as u32, j as u32, v));
    for i in 0..n {
        let by = |j: usize| if symmetric { (scale(i) * scale(j)).sqrt() } else { scale(i) };
        put(i, i, 2.1 * by(i));
        if i > 0 {
            put(i, i - 1, left * by(i - 1));
        }
        if i + 1 < n {
            put(i, i + 1, right * by(i + 1));
        }
    }
    Csr::from_triplets(n, n, &entries).unwrap()
}

fn random(seed: u64, n: usize) -> Vec<f64> {
    Random(seed).numbers(n)
}

fn solve(a: &Csr, b: &[f64], x: &mut [f64], text: &str) -> Solution {
    let options: Options = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
    let mut solver = Solver::new(a, &options).unwrap_or_else(|e| panic!("{text}: {e}"));
    solver.solve(b, &mut *x).unwrap_or_else(|e| panic!("{text}: {e}")).clone()
}

#[test]
fn every_criterion_with_every_method() -> Result<()> {
    let n = 90;
    for symmetric in [true, false] {
        let methods: &[&str] = match symmetric {
            true => &[
                "cg",
                "cg:form=one-reduction",
                "cg:form=flexible",
                "cg:form=pipelined",
                "cbcg:s=3",
                "minres",
                "bicgstab",
                "gmres:restart=20",
                "fgmres:restart=20",
                "auto",
            ],
            false => &[
                "bicgstab",
                "bicgstab:reductions=classical",
                "gmres:restart=20",
                "fgmres:restart=20",
                "auto",
            ],
        };
        let a = matrix(n, symmetric, 1.0);
        let b = random(3, n);
        for method in methods {
            for precond in ["none", "jacobi", "ildu", "auto"] {
                for criterion in CRITERIA {
                    for to in ["b", "r0"] {
                        if criterion == Criterion::Backward && to == "r0" {
                            continue;
                        }
                        let text = format!(
                            "method={method} precond={precond} criterion={criterion} relative_to={to} rtol=1e-8 device=cpu threads=1"
                        );
                        let guess = random(5, n);
                        let mut x = guess.clone();
                        let solution = solve(&a, &b, &mut x, &text);
                        let history = &solution.history;
                        assert!(solution.converged(), "{text}: {} {history:?}", history.outcome);
                        let relative_to = (to == "r0").then_some(&guess[..]);
                        let value = quantity(criterion, &a, &b, &x, relative_to);
                        assert!(value <= 1e-8 * (1.0 + 1e-12), "{text}: {value:e}");
                        let close = |one: f64, two: f64| (one - two).abs() <= 1e-10 * one.abs() + 1e-18;
                        assert!(close(history.criterion_value, value), "{text}: {value:e} {history:?}");
                        let plain = quantity(Criterion::Residual, &a, &b, &x, None);
                        assert!(
                            close(history.true_relative_residual, plain),
                            "{text}: {plain:e} {history:?}"
                        );
                        let last = history.residuals[history.iterations];
                        assert!(close(last, value), "{text}: {last:e} {value:e}");
                        assert_eq!(history.residuals.len(), history.iterations + 1, "{text}");
                        let first = quantity(criterion, &a, &b, &guess, relative_to);
                        assert!(
                            (history.residuals[0] / first - 1.0).abs() < 1e-10,
                            "{text}: {first:e} {history:?}"
                        );
                        assert_eq!(history.criterion, criterion, "{text}");
                        assert_eq!(solution.target, 1e-8, "{text}");
                        let r0 = if to == "r0" { RelativeTo::R0 } else { RelativeTo::B };
                        assert_eq!(history.relative_to, r0, "{text}");
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn rows_of_unlike_scale_are_solved_where_the_residual_is_blind() -> Result<()> {
    let n = 60;
    let a = matrix(n, false, 24.0);
    let ones = vec![1.0; n];
    let b: Vec<f64> = Exact::of(&a).residual(&vec![0.0; n], &ones).iter().map(|v| -v).collect();
    for method in ["gmres:restart=60", "fgmres:restart=60", "bicgstab", "auto"] {
        for precond in ["none", "jacobi", "ildu", "auto"] {
            for criterion in [Criterion::Rows, Criterion::Backward] {
                let text =
                    format!("method={method} precond={precond} criterion={criterion} rtol=1e-9 device=cpu");
                let mut x = vec![0.0; n];
                let solution = solve(&a, &b, &mut x, &text);
                let value = quantity(criterion, &a, &b, &x, None);
                assert!(
                    solution.converged() && value <= 1.001e-9,
                    "{text}: {value:e} {:?}",
                    solution.history
                );
                assert!(distance(&x, &ones) <= 1e-4 * norm(&ones), "{text}: {:e}", distance(&x, &ones));
                assert_eq!(solution.history.criterion, criterion, "{text}");
            }
        }
        // With the norm of the residual alone, x is wrong, and the solution proposes the criterion.
        let text = format!("method={method} precond=none rtol=1e-9 device=cpu");
        let mut x = vec![0.0; n];
        let solution = solve(&a, &b, &mut x, &text);
        if method != "auto" && solution.converged() {
            assert!(distance(&x, &ones) > 0.1, "{text}");
            assert!(
                solution.events.iter().any(|e| e.detail.contains("criterion=rows")),
                "{:?}",
                solution.events
            );
        }
    }
    Ok(())
}

#[test]
fn symmetric_methods_meet_the_criteria_with_rows_of_unlike_scale() -> Result<()> {
    let n = 60;
    let a = matrix(n, true, 12.0);
    let ones = vec![1.0; n];
    let b: Vec<f64> = Exact::of(&a).residual(&vec![0.0; n], &ones).iter().map(|v| -v).collect();
    for method in ["cg", "cg:form=one-reduction", "minres", "auto"] {
        for precond in ["jacobi", "auto"] {
            for criterion in [Criterion::Rows, Criterion::Backward] {
                let text =
                    format!("method={method} precond={precond} criterion={criterion} rtol=1e-7 device=cpu");
                let mut x = vec![0.0; n];
                let solution = solve(&a, &b, &mut x, &text);
                let value = quantity(criterion, &a, &b, &x, None);
                let history = &solution.history;
                assert!(
                    (history.criterion_value / value - 1.0).abs() < 1e-6,
                    "{text}: {value:e} {history:?}"
                );
                assert_eq!(solution.converged(), value <= 1e-7, "{text}: {value:e} {history:?}");
                assert!(solution.converged(), "{text}: {value:e} {history:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_good_guess_saves_no_digits_relative_to_its_residual() -> Result<()> {
    let n = 80;
    let (a, b) = (matrix(n, false, 0.0), random(1, n));
    for criterion in [Criterion::Residual, Criterion::Rows] {
        for precision in ["f64", "f32"] {
            let with = |text: &str| {
                format!("criterion={criterion} precision={precision} device=cpu precond=jacobi {text}")
            };
            let mut near = vec![0.0; n];
            solve(&a, &b, &mut near, &with("rtol=1e-5"));
            let mut x = near.clone();
            let at_once = solve(&a, &b, &mut x, &with("rtol=1e-4"));
            assert_eq!((at_once.history.iterations, &x), (0, &near), "{criterion}: the guess is good enough");
            let to_b = solve(&a, &b, &mut near.clone(), &with("rtol=1e-6")).history.iterations;
            let mut x = near.clone();
            let further = solve(&a, &b, &mut x, &with("rtol=1e-6 relative_to=r0"));
            assert!(
                further.converged() && further.history.iterations > to_b,
                "{criterion} {to_b} {further:?}"
            );
            let value = quantity(criterion, &a, &b, &x, Some(&near));
            assert!(value <= 1.001e-6, "{criterion} {value:e}");
            assert!(quantity(criterion, &a, &b, &x, None) < 1e-10);
            // From zeros both are the same.
            let (mut one, mut two) = (vec![0.0; n], vec![0.0; n]);
            solve(&a, &b, &mut one, &with("rtol=1e-6"));
            solve(&a, &b, &mut two, &with("rtol=1e-6 relative_to=r0"));
            assert!(distance(&one, &two) < 1e-12, "{criterion}: from zeros");
        }
    }
    Ok(())
}

#[test]
fn zeros_and_good_guesses_need_no_iteration() -> Result<()> {
    let n = 31;
    let a = matrix(n, true, 2.0);
    for method in ["cg", "minres", "gmres", "bicgstab", "auto"] {
        for criterion in CRITERIA {
            let text = format!("method={method} criterion={criterion} device=cpu");
            let mut x = random(2, n);
            let solution = solve(&a, &vec![0.0; n], &mut x, &text);
            assert!(solution.converged() && x == vec![0.0; n], "{text}");
            assert_eq!((solution.history.iterations, solution.history.criterion_value), (0, 0.0), "{text}");
            let b = random(4, n);
            let mut x = vec![0.0; n];
            solve(&a, &b, &mut x, &format!("{text} rtol=1e-9"));
            let (before, solution) = (x.clone(), solve(&a, &b, &mut x, &text));
            assert!(solution.converged() && x == before, "{text}");
            assert_eq!(solution.history.iterations, 0, "{text}");
        }
    }
    Ok(())
}

#[test]
fn empty_rows_have_norm_one() -> Result<()> {
    let a = Csr::from_triplets(3, 3, &[(0, 0, 2.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 3.0)])?;
    for criterion in CRITERIA {
        let text = format!("criterion={criterion} device=cpu precond=none method=gmres rtol=1e-8");
        let mut x = vec![0.0; 3];
        let solution = solve(&a, &[3.0, 4.0, 0.0], &mut x, &text);
        assert!(solution.converged(), "{text} {:?}", solution.history);
        assert!((x[0] - 1.0).abs() < 1e-7 && (x[1] - 1.0).abs() < 1e-7, "{text} {x:?}");
        let mut x = vec![0.0; 3];
        let solution = solve(&a, &[3.0, 4.0, 1.0], &mut x, &text);
        assert_eq!(solution.outcome(), Outcome::Inconsistent, "{text} {:?}", solution.history);
    }
    Ok(())
}

#[test]
fn combinations_without_a_meaning_are_refused() {
    let a = matrix(5, false, 0.0);
    for (text, words) in [
        ("criterion=backward relative_to=r0", ["relative_to", "leave relative_to out"]),
        ("criterion=backward atol=1e-3", ["atol", "leave atol out"]),
        ("criterion=rwos", ["criterion", "rows"]),
        ("relative_to=x0", ["relative_to", "r0"]),
    ] {
        let options = text.parse::<Options>().and_then(|options| Solver::new(&a, &options).map(|_| ()));
        let message = options.unwrap_err().to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{text}: {message}");
    }
    let mut solver = Solver::new(&a, &"device=cpu".parse().unwrap()).unwrap();
    let stop = Stop { criterion: Criterion::Backward, relative_to: RelativeTo::R0, ..Stop::DEFAULT };
    let (b, mut x) = ([1.0; 5], [0.0; 5]);
    let message = solver.request(&b, &mut x).stop(stop).run().unwrap_err().to_string();
    assert!(message.contains("relative_to"), "{message}");
    // The solver is whole, and another criterion is that of one solve only.
    let stop = Stop { criterion: Criterion::Backward, ..Stop::DEFAULT };
    let one = solver.request(&b, &mut x).stop(stop).run().unwrap().history.criterion;
    let next = solver.solve(&b, &mut x).unwrap().history.criterion;
    assert_eq!((one, next), (Criterion::Backward, Criterion::Residual));
    let function = FunctionOperator::on_host(|x, y| {
        y.copy_from_slice(x);
        Ok(())
    });
    for criterion in [Criterion::Rows, Criterion::Backward] {
        let stop = Stop { criterion, ..Stop::DEFAULT };
        let message =
            solver.request(&b, &mut x).stop(stop).operator(&function).run().unwrap_err().to_string();
        assert!(message.contains("criterion") && message.contains("criterion=residual"), "{message}");
        let options: Options = format!("criterion={criterion}").parse().unwrap();
        let message = Solver::without_matrix(5, &options).map(|_| ()).unwrap_err().to_string();
        assert!(message.contains("criterion=residual"), "{message}");
        let mut identity = |x: &[f64], y: &mut [f64]| {
            y.copy_from_slice(x);
            Ok(())
        };
        let message =
            solve_functions(&mut identity, None, &b, &mut x, &options, &mut ()).unwrap_err().to_string();
        assert!(message.contains("criterion=residual"), "{message}");
        let message = Newton::new(NewtonOptions::default(), &options).map(|_| ()).unwrap_err().to_string();
        assert!(message.contains("leave criterion out"), "{message}");
    }
    // A function as the preconditioner needs nothing of A.
    let stop = Stop { criterion: Criterion::Rows, ..Stop::DEFAULT };
    x = [0.0; 5];
    let solution = solver.request(&b, &mut x).stop(stop).preconditioner(&function).run().unwrap().clone();
    assert!(solution.converged() && quantity(Criterion::Rows, &a, &b, &x, None) <= 1.001e-6);
    let message = Newton::new(NewtonOptions::default(), &"relative_to=r0".parse().unwrap()).map(|_| ());
    assert!(message.unwrap_err().to_string().contains("leave relative_to out"));
    let stop = Stop { relative_to: RelativeTo::R0, ..Stop::DEFAULT };
    x = [0.5; 5];
    let solution = solver.request(&b, &mut x).stop(stop).operator(&function).run().unwrap();
    assert!(solution.converged() && solution.history.residuals[0] == 1.0);
}

#[test]
fn columns_transposes_and_ranks_have_every_criterion() -> Result<()> {
    let n = 60;
    for (symmetric, method) in [(false, "gmres"), (false, "bicgstab"), (true, "cg"), (true, "minres")] {
        let a = matrix(n, symmetric, 6.0);
        let turned = a.transpose();
        for criterion in CRITERIA {
            for to in ["b", "r0"] {
                if criterion == Criterion::Backward && to == "r0" {
                    continue;
                }
                let text = format!(
                    "method={method} precond=ildu criterion={criterion} relative_to={to} rtol=1e-7 device=cpu"
                );
                let mut solver = Solver::new(&a, &text.parse()?)?;
                let (b, guess) = (random(8, 3 * n), random(9, 3 * n));
                let relative_to = |k: usize| (to == "r0").then(|| &guess[k * n..][..n]);
                let mut x = guess.clone();
                let solutions = solver.request(&b, &mut x).columns()?;
                for (k, solution) in solutions.iter().enumerate() {
                    let range = k * n..(k + 1) * n;
                    let value = quantity(criterion, &a, &b[range.clone()], &x[range], relative_to(k));
                    assert!(
                        solution.converged() && value <= 1.001e-7,
                        "{text} {k}: {value:e} {:?}",
                        solution.history
                    );
                    let found = solution.history.criterion_value;
                    assert!((found / value - 1.0).abs() < 1e-6, "{text} {k}: {value:e} {found:e}");
                }
                let mut x = guess[..n].to_vec();
                let solution = solver.solve_transposed(&b[..n], &mut x)?;
                let value = quantity(criterion, &turned, &b[..n], &x, relative_to(0));
                assert!(
                    solution.converged() && value <= 1.001e-7,
                    "{text}: {value:e} {:?}",
                    solution.history
                );
                for ranks in [1, 2, 4] {
                    let own = |rank: usize| rank * n / ranks..(rank + 1) * n / ranks;
                    let parts = Team::run(ranks, |comm| {
                        let rows = own(comm.rank());
                        let entries = a.row_ptr()[rows.start]..a.row_ptr()[rows.end];
                        let ptr = (rows.start..=rows.end).map(|i| a.row_ptr()[i] - entries.start).collect();
                        let (col, values) = (a.col()[entries.clone()].to_vec(), a.values()[entries].to_vec());
                        let rows_of_rank = Csr::new(rows.len(), n, ptr, col, values)?;
                        let comm: Arc<dyn Communicator> = comm;
                        let problem = Problem::distributed_csr(comm, &rows_of_rank, Some(1))?;
                        let mut x = guess[rows.clone()].to_vec();
                        let text = format!("{text} threads=1");
                        let solution = Solver::new(problem, &text.parse()?)?.solve(&b[rows], &mut x)?.clone();
                        Ok((x, solution.history.criterion_value, solution.converged()))
                    })?;
                    let x: Vec<f64> = parts.iter().flat_map(|part| part.0.clone()).collect();
                    let value = quantity(criterion, &a, &b[..n], &x, relative_to(0));
                    for part in &parts {
                        assert!(part.2 && value <= 1.001e-7, "{text} {ranks}: {value:e}");
                        assert!(
                            (part.1 / value - 1.0).abs() < 1e-6,
                            "{text} {ranks}: {value:e} {:e}",
                            part.1
                        );
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn random_systems_that_converge_meet_the_criterion() -> Result<()> {
    let mut rng = Random(77);
    let (mut converged, mut of) = (0, 0);
    let rounds = std::env::var("KRYLITH_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    for round in 0..rounds {
        let n = 1 + rng.below(40);
        let decades = [0.0, 3.0, 12.0, 24.0][rng.below(4)];
        let scale: Vec<f64> = (0..n).map(|_| 10f64.powf(decades * rng.number() / 2.0)).collect();
        let mut entries: Vec<(u32, u32, f64)> = Vec::new();
        for (i, scale) in scale.iter().enumerate() {
            for _ in 0..rng.below(5) {
                entries.push((i as u32, rng.below(n) as u32, scale * rng.number()));
            }
            if rng.below(12) > 0 {
                entries.push((i as u32, i as u32, scale * 3.0));
            }
        }
        let a = Csr::from_triplets(n, n, &entries)?;
        let exact = rng.numbers(n);
        let b: Vec<f64> = match rng.below(3) {
            0 => rng.numbers(n),
            _ => Exact::of(&a).residual(&vec![0.0; n], &exact).iter().map(|v| -v).collect(),
        };
        let criterion = CRITERIA[rng.below(3)];
        let to = if criterion != Criterion::Backward && rng.below(2) == 0 { "r0" } else { "b" };
        let method = ["auto", "gmres", "bicgstab", "cg", "minres", "fgmres", "cbcg:s=2"][rng.below(7)];
        let precond = ["auto", "none", "jacobi", "ildu"][rng.below(4)];
        let precision = ["f64", "f32"][rng.below(2)];
        let rtol = [1e-2, 1e-6, 1e-10, 1e-15][rng.below(4)];
        let text = format!(
            "criterion={criterion} relative_to={to} method={method} precond={precond} precision={precision} rtol={rtol:e} \
             device=cpu threads=1 max_iters=300"
        );
        let Ok(mut solver) = Solver::new(&a, &text.parse()?) else { continue };
        let guess = if rng.below(2) == 0 { vec![0.0; n] } else { rng.numbers(n) };
        let mut x = guess.clone();
        let solution = solver.solve(&b, &mut x)?;
        let value = quantity(criterion, &a, &b, &x, (to == "r0").then_some(&guess));
        of += 1;
        if solution.converged() && b.iter().any(|b| *b != 0.0) {
            converged += 1;
            assert!(
                value <= rtol * (1.0 + 1e-6) + 1e-19,
                "{round} {n} {text}: {value:e} {:?}",
                solution.history
            );
        }
        let told = solution.history.criterion_value;
        let agrees = (told - value).abs() <= 1e-6 * value + 1e-19 || value.is_nan() || precision == "f32";
        assert!(
            agrees || b.iter().all(|b| *b == 0.0),
            "{round} {n} {text}: {value:e} {told:e} {:?}",
            solution.history
        );
    }
    assert!(converged > of / 3, "{converged} of {of}");
    Ok(())
}

#[test]
fn the_rounding_limit_is_that_of_the_criterion() {
    let n = 60;
    for (symmetric, method) in [(false, "gmres"), (false, "bicgstab"), (true, "cg"), (true, "minres")] {
        let (a, b) = (matrix(n, symmetric, 3.0), random(6, n));
        for criterion in CRITERIA {
            let text = format!("method={method} precond=ildu criterion={criterion} rtol=1e-19 device=cpu");
            let mut x = vec![0.0; n];
            let solution = solve(&a, &b, &mut x, &text);
            let history = &solution.history;
            let value = quantity(criterion, &a, &b, &x, None);
            assert_eq!(history.outcome, Outcome::RoundingLimit, "{text}: {value:e} {history:?}");
            assert!(
                value <= 4.0 * history.rounding && history.rounding < 1e-12,
                "{text}: {value:e} {history:?}"
            );
        }
    }
}

#[test]
fn observers_see_values_of_the_criterion() -> Result<()> {
    let n = 60;
    let (a, b) = (matrix(n, false, 6.0), random(6, n));
    for criterion in CRITERIA {
        let text =
            format!("method=gmres:restart=10 precond=jacobi criterion={criterion} rtol=1e-7 device=cpu");
        let mut solver = Solver::new(&a, &text.parse()?)?;
        let (mut seen, mut x) = (Vec::new(), vec![0.0; n]);
        let mut observer = |p: Progress| {
            assert!((p.target / 1e-7 - 1.0).abs() < 1e-14);
            seen.push((p.iteration, p.relative_residual));
            ControlFlow::Continue(())
        };
        let solution = solver.request(&b, &mut x).observer(&mut observer).run()?.clone();
        let first = quantity(criterion, &a, &b, &vec![0.0; n], None);
        assert!((seen[0].1 / first - 1.0).abs() < 1e-12 && seen[0].0 == 0, "{criterion} {seen:?}");
        let last = seen[seen.len() - 1];
        assert_eq!(last, (solution.history.iterations, solution.history.residuals[last.0]), "{criterion}");
        assert!((last.1 / solution.history.criterion_value - 1.0).abs() < 1e-9, "{criterion}");
    }
    Ok(())
}

#[test]
fn complex_blocks_and_shared_products_have_every_criterion() -> Result<()> {
    let n = 40;
    let (a, b) = (matrix(n, false, 4.0), random(6, 2 * n));
    let mut entries: Vec<(u32, u32, f64)> = Vec::new();
    for i in 0..n {
        let (col, values) = a.row(i);
        for (&j, &re) in col.iter().zip(values) {
            let (i, im) = (i as u32, if i == j as usize { 0.7 * re } else { 0.1 * re });
            entries.extend([(2 * i, 2 * j, re), (2 * i + 1, 2 * j + 1, re)]);
            entries.extend([(2 * i, 2 * j + 1, -im), (2 * i + 1, 2 * j, im)]);
        }
    }
    let a = Csr::from_triplets(2 * n, 2 * n, &entries)?;
    for criterion in CRITERIA {
        for method in ["gmres:restart=20", "bicgstab", "auto"] {
            for precond in ["jacobi", "ildu"] {
                let text =
                    format!("method={method} precond={precond} criterion={criterion} rtol=1e-8 device=cpu");
                let problem = Problem::csr_in_blocks(&a, Some(2))?;
                let mut x = vec![0.0; 2 * n];
                let solution = Solver::new(problem, &text.parse()?)?.solve(&b, &mut x)?.clone();
                let value = quantity(criterion, &a, &b, &x, None);
                assert!(
                    solution.converged() && value <= 1.001e-8,
                    "{text}: {value:e} {:?}",
                    solution.history
                );
            }
        }
        let parts = Team::run(2, |comm| {
            let rows = comm.rank() * n..(comm.rank() + 1) * n;
            let entries = a.row_ptr()[rows.start]..a.row_ptr()[rows.end];
            let ptr = (rows.start..=rows.end).map(|i| a.row_ptr()[i] - entries.start).collect();
            let (col, values) = (a.col()[entries.clone()].to_vec(), a.values()[entries].to_vec());
            let comm: Arc<dyn Communicator> = comm;
            let problem = Problem::distributed_csr(comm, &Csr::new(n, 2 * n, ptr, col, values)?, Some(1))?;
            let text = format!(
                "method=gmres precond=jacobi share=nz criterion={criterion} rtol=1e-8 device=cpu threads=1"
            );
            let mut x = vec![0.0; n];
            let solution = Solver::new(problem, &text.parse()?)?.solve(&b[rows], &mut x)?.clone();
            Ok((x, solution.converged(), solution.share.map(|share| share.to_string())))
        })?;
        let x: Vec<f64> = parts.iter().flat_map(|part| part.0.clone()).collect();
        let value = quantity(criterion, &a, &b, &x, None);
        assert!(parts.iter().all(|part| part.1) && value <= 1.001e-8, "{criterion} {value:e}");
        assert!(parts[0].2.as_deref() == Some("nz"), "{:?}", parts[0].2);
    }
    Ok(())
}
