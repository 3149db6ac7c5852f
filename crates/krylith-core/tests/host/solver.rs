//! Whole solves on the CPU and on ranks: choices, limits, refusals.

use crate::common::Random;
use crate::conformance::boundary;
use crate::conformance::solver::{self, laplace, residual};
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::{Bsr, Csr, Dense, KroneckerSum};
use krylith_core::operator::Terms;
use krylith_core::partition::{Partition, split};
use krylith_core::solver::{Cancel, EventKind, Refresh, Solution};
use krylith_core::{Error, Options, Outcome, Problem, Progress, Solver, Stop};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// On one thread, so that two solvers do not share a core too often.
const DEVICE: &str = "cpu threads=1";

#[test]
fn solvers_on_many_threads() {
    crate::conformance::programs::solvers_on_many_threads(DEVICE);
}

#[test]
fn a_thousand_solves_of_two_solvers_at_once() {
    solver::a_thousand_solves_of_two_solvers_at_once(DEVICE);
}

#[test]
fn new_values_of_a_sum_come_as_it_was_given() {
    solver::new_values_of_a_sum_come_as_it_was_given(DEVICE);
}

#[test]
fn rows_of_the_identity_do_not_stop_multigrid() {
    boundary::rows_of_the_identity_do_not_stop_multigrid(DEVICE);
}

#[test]
fn new_values_are_those_of_a_new_solver() {
    solver::new_values_are_those_of_a_new_solver(DEVICE);
}

#[test]
fn auto_takes_cg_where_it_can_and_says_so() {
    solver::auto_takes_cg_where_it_can_and_says_so(DEVICE);
}

#[test]
fn systems_without_a_solution_are_named_first() {
    solver::systems_without_a_solution_are_named_first(DEVICE);
}

#[test]
fn no_attempt_makes_things_worse() {
    solver::no_attempt_makes_things_worse(DEVICE);
}

#[test]
fn the_limit_of_iterations_decides_nothing() {
    solver::the_limit_of_iterations_decides_nothing(DEVICE);
}

#[test]
fn values_may_break_a_structure() {
    solver::values_may_break_a_structure(DEVICE);
}

#[test]
fn products_and_preconditioners_stand_by_themselves() {
    solver::products_and_preconditioners_stand_by_themselves(DEVICE);
}

#[test]
fn arrays_of_applications_solve_as_matrices_do() {
    crate::conformance::arrays::arrays_solve_as_matrices_do(DEVICE);
    crate::conformance::arrays::arrays_are_judged_as_on_the_host(DEVICE);
    crate::conformance::arrays::rows_of_unlike_scale_are_judged(DEVICE);
}

#[test]
fn lent_memory_solves_as_slices_do() {
    let lend = |n: usize| -> Box<dyn crate::conformance::memory::Lender> { Box::new(vec![f64::NAN; n]) };
    solver::lent_memory_solves_as_slices_do(DEVICE, &lend);
}

fn options(text: &str) -> Options {
    format!("device=cpu threads=1 {text}").parse().unwrap()
}

#[test]
fn a_preconditioner_is_kept_refreshed_or_rebuilt() {
    let a = laplace(6);
    let b: Vec<f64> = (0..216).map(|i| (i as f64).sin()).collect();
    let iterations = |refresh: Option<Refresh>| {
        let mut solver = Solver::new(&a, &options("method=bicgstab precond=jacobi rtol=1e-8")).unwrap();
        let mut x = vec![0.0; 216];
        // The largest entries move to the other rows.
        let mut scaled = a.clone();
        let row_ptr = a.row_ptr().to_vec();
        for i in 0..216 {
            let factor = if i % 2 == 0 { 1e3 } else { 1.0 };
            scaled.values_mut()[row_ptr[i]..row_ptr[i + 1]].iter_mut().for_each(|v| *v *= factor);
        }
        if let Some(refresh) = refresh {
            solver.set_refresh(refresh);
        }
        solver.update_values(scaled.values()).unwrap();
        let solution = solver.solve(&b, &mut x).unwrap();
        assert!(solution.converged());
        solution.history.iterations
    };
    let (kept, default) = (iterations(Some(Refresh::Keep)), iterations(None));
    assert!(kept > default, "{kept} with the old one, {default} with the new one");
    assert_eq!(default, iterations(Some(Refresh::Refresh)));
    assert_eq!(default, iterations(Some(Refresh::Rebuild)));
}

#[test]
fn many_solves_repay_a_stronger_preconditioner() {
    solver::many_solves_repay_a_stronger_preconditioner(DEVICE);
}

#[test]
fn ranks_solve_as_one() {
    let a = Bsr::from_csr(&laplace(7), 1).unwrap();
    let n = a.rows();
    let b: Vec<f64> = (0..n).map(|i| (0.1 * i as f64).cos()).collect();
    for text in
        ["method=gmres precond=jacobi", "precond=jacobi", "method=bicgstab precond=none precision=f32"]
    {
        let options = options(&format!("rtol=1e-9 {text}"));
        let mut one = Solver::new(&a, &options).unwrap();
        let mut x = vec![0.0; n];
        let alone = one.solve(&b, &mut x).unwrap();
        let parts = split(&Terms::bsr(&a), &Partition::by_nonzeros(&Terms::bsr(&a), 3).unwrap()).unwrap();
        let ranks = Team::run(3, |comm| {
            let part = parts[comm.rank()].clone();
            let own: Vec<f64> = part.rows.iter().map(|&i| b[i as usize]).collect();
            let rows = part.rows.clone();
            let problem = Problem::part(comm.clone() as Arc<dyn Communicator>, part)?;
            assert_eq!(problem.unknowns(), n);
            let mut solver = Solver::new(problem, &options)?;
            let mut x = vec![0.0; own.len()];
            solver.solve(&own, &mut x)?;
            x.fill(0.0);
            let solution = solver.solve(&own, &mut x)?.clone();
            Ok((rows, x, solution))
        });
        for (rows, own, solution) in ranks.unwrap() {
            assert!(solution.converged() && solution.device.ranks == 3, "{text}");
            assert_eq!(solution.history.iterations, alone.history.iterations, "{text}");
            assert_eq!(solution.method, alone.method, "{text}");
            for (i, v) in rows.iter().zip(&own) {
                assert!((v - x[*i as usize]).abs() < 1e-6, "{text}: row {i}");
            }
        }
    }
}

#[test]
fn limits_and_watchers_stop_a_solve() {
    let a = laplace(12);
    let (b, mut x) = (vec![1.0; 1728], vec![0.0; 1728]);
    let mut solver = Solver::new(&a, &options("precond=none method=gmres:restart=5")).unwrap();
    let why = |solution: &Solution| {
        let event = solution.events.iter().find(|e| e.kind == EventKind::Interrupted);
        (solution.outcome(), event.map(|e| e.detail.to_string()).unwrap_or_default())
    };
    let unreachable = Stop { rtol: 0.0, atol: 1e-300, max_iters: 1_000_000, ..Stop::DEFAULT };
    solver.set_stop(unreachable);
    solver.set_time_limit(Some(Duration::from_micros(300)));
    let stopped = why(solver.solve(&b, &mut x).unwrap());
    assert_eq!(stopped, (Outcome::Interrupted, "the time limit was reached".into()));
    solver.set_time_limit(None);
    let mut count = 0;
    let mut watch = |_: Progress| {
        count += 1;
        if count == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let stopped = why(solver.request(&b, &mut x).observer(&mut watch).run().unwrap());
    assert_eq!(stopped.0, Outcome::Interrupted);
    let cancel = solver.cancel_token();
    // The first iteration waits until the other thread has cancelled.
    x.fill(0.0);
    let ((tell, told), (go, wait)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
    let mut watch = move |_: Progress| {
        let _ = (tell.send(()), wait.recv());
        ControlFlow::Continue(())
    };
    std::thread::scope(|scope| {
        let (solver, b, x) = (&mut solver, &b, &mut x);
        let stopped = scope.spawn(move || why(solver.request(b, x).observer(&mut watch).run().unwrap()));
        told.recv().unwrap();
        cancel.cancel();
        drop(go);
        assert_eq!(stopped.join().unwrap().0, Outcome::Interrupted);
    });
    cancel.reset();
    // On a fast machine x is the answer by now.
    x.fill(0.0);
    solver.set_stop(Stop { max_iters: 2, ..Stop::default() });
    assert_eq!(solver.solve(&b, &mut x).unwrap().outcome(), Outcome::MaxIterations);
    solver.set_stop(Stop::default());
    assert!(solver.solve(&b, &mut x).unwrap().converged());
}

#[test]
fn a_set_up_that_is_interrupted_is_made_by_the_next_solve() {
    let a = laplace(6);
    let (b, mut x) = (vec![1.0; 216], vec![0.0; 216]);
    let cancel = Cancel::default();
    let mut solver =
        Solver::new_cancellable(&a, &options("method=gmres precond=jacobi"), &cancel, None).unwrap();
    cancel.cancel();
    assert_eq!(solver.solve(&b, &mut x).unwrap().outcome(), Outcome::Interrupted);
    solver.set_refresh(Refresh::Rebuild);
    let doubled: Vec<f64> = a.values().iter().map(|v| 2.0 * v).collect();
    assert!(solver.update_values(&doubled).unwrap_err().is_interrupt());
    let e = solver.solve(&b, &mut x).err().unwrap();
    assert!(e.is_interrupt() && e.to_string().contains("cancelled"), "{e}");
    cancel.reset();
    assert!(solver.solve(&b, &mut x).unwrap().converged());
    let mut r = vec![0.0; 216];
    solver.multiply(&x, &mut r).unwrap();
    assert!(r.iter().all(|r| (r - 1.0).abs() < 1e-4));
    cancel.cancel();
    assert!(Solver::new_cancellable(&a, &options(""), &cancel, None).err().unwrap().is_interrupt());
}

#[test]
fn numbers_that_are_not_finite_are_named_on_every_rank() {
    let a = laplace(4);
    let (good, mut bad) = (vec![1.0; 64], vec![1.0; 64]);
    bad[5] = f64::NAN;
    let mut solver = Solver::new(&a, &options("")).unwrap();
    let text = |e: Error| e.to_string();
    let mut x = vec![0.0; 64];
    assert_eq!(
        text(solver.solve(&bad, &mut x).err().unwrap()),
        "b: entry 5 is NaN; every value must be finite"
    );
    assert_eq!(x, [0.0; 64]);
    let mut start = bad.clone();
    assert!(text(solver.solve(&good, &mut start).err().unwrap()).starts_with("x0: entry 5 is NaN"));
    let columns = [good.clone(), bad.clone()].concat();
    let e = solver.request(&columns, &mut vec![0.0; 128]).columns().err().unwrap();
    assert!(text(e).starts_with("column 1: b: entry 5 is NaN"));
    // Large ones are numbers, though the sum of their squares is none.
    assert!(solver.solve(&vec![1e200; 64], &mut x).unwrap().converged());
    x.fill(0.0);
    assert!(solver.solve(&good, &mut x).unwrap().converged());
    let partition = Partition::new((0..64).map(|i| u32::from(i >= 32)).collect(), 2).unwrap();
    let parts = split(&Terms::csr(&a).unwrap(), &partition).unwrap();
    Team::run(2, |comm| {
        let part = &parts[comm.rank()];
        let problem = Problem::local(comm.clone(), part.rows.clone(), part.terms.clone())?;
        let mut solver = Solver::new(&problem, &options("")).unwrap();
        let (mut own, mut x) = (vec![1.0; 32], vec![0.0; 32]);
        own[5] = if comm.rank() == 1 { f64::INFINITY } else { 1.0 };
        let e = text(solver.solve(&own, &mut x).err().unwrap());
        assert!(e.contains("b: entry 5 is inf"), "{e}");
        own[5] = 1.0;
        assert!(solver.solve(&own, &mut x)?.converged());
        Ok(())
    })
    .unwrap();
}

#[test]
fn what_does_not_fit_is_refused() {
    let a = laplace(3);
    let text = |e: Error| e.to_string();
    let refused = |given: &str| text(Solver::new(&a, &options(given)).err().unwrap());
    assert!(
        refused("method=gmres memory_limit=1000")
            .contains("1000 B are free on the host within the memory limit")
    );
    assert!(refused("precond=jacobi:block=2").contains("must divide"));
    assert!(refused("method=cg:form=flexible restart=3").contains("`restart` applies only to method gmres"));
    let wide = Csr::from_triplets(1, 2, &[(0, 0, 1.0)]).unwrap();
    assert!(text(krylith_core::solve(&wide, &[1.0]).err().unwrap()).contains("1×2"));
    let mut solver = Solver::new(&a, &options("")).unwrap();
    let mut x = vec![0.0; 27];
    assert!(text(solver.solve(&[1.0], &mut x).err().unwrap()).contains("b has 1 numbers; the system has 27"));
    assert!(text(solver.solve(&[1.0; 27], &mut x[1..]).err().unwrap()).contains("x has 26"));
    assert!(text(solver.update_values(&[1.0]).unwrap_err()).contains("1 new values"));
    assert!(text(solver.set_tau(1.0).unwrap_err()).contains("Kronecker"));
    let mut values = a.values().to_vec();
    values[3] = f64::NAN;
    assert!(text(solver.update_values(&values).unwrap_err()).contains("new value 3 is NaN"));
    // Factors that new values make impossible, asked for by name; then values that are good again.
    let mut solver = Solver::new(&a, &options("method=gmres precond=jacobi")).unwrap();
    assert!(
        text(solver.update_values(&vec![0.0; values.len()]).unwrap_err()).contains("zero diagonal block")
    );
    assert!(solver.solve(&[1.0; 27], &mut x).is_err());
    solver.update_values(a.values()).unwrap();
    assert!(solver.solve(&[1.0; 27], &mut x).unwrap().converged());
}

#[test]
fn a_kronecker_sum_whose_structure_breaks_gets_another_operator() {
    // Every block of M is a multiple of the identity at first.
    let n = 20;
    let block = |m: [f64; 4]| {
        let values = (0..n).flat_map(|i| m.map(|v| v * (1.0 + i as f64))).collect();
        Bsr::new(2, n, n, (0..=n).collect(), (0..n as u32).collect(), values).unwrap()
    };
    let (one, two) = (block([4.0, 0.0, 0.0, 4.0]), block([4.0, 1.0, 0.5, 3.0]));
    let k = KroneckerSum::new(Dense::identity(2), Dense::identity(2), 0.1, one.clone(), one).unwrap();
    let mut solver = Solver::new(&k, &options("rtol=1e-10 precond=jacobi")).unwrap();
    solver.update_term(0, two.values()).unwrap();
    let (b, mut x) = (vec![1.0; k.rows()], vec![0.0; k.rows()]);
    assert!(solver.solve(&b, &mut x).unwrap().converged());
    assert!(residual(solver.problem(), &b, &x) <= 1e-10);
}

/// 1-D convection, and rows with sizes over sixteen orders of magnitude: matrices that f32 rounds. Refinement
/// with the given system follows as long as it helps, no x is worse than the initial guess, and the rounding
/// limit refers to the given system.
#[test]
fn storage_in_f32_reaches_what_the_given_system_allows() {
    let n = 500;
    let e = 1e-6;
    let mut entries = Vec::new();
    for i in 0..n {
        entries.push((i as u32, i as u32, 2.0 + e));
        if i > 0 {
            entries.push((i as u32, i as u32 - 1, -1.0));
        }
        if i + 1 < n {
            entries.push((i as u32, i as u32 + 1, -1.0 + e));
        }
    }
    let a = Csr::from_triplets(n, n, &entries).unwrap();
    let b: Vec<f64> = (0..n).map(|i| ((i * 7919) % 11) as f64 - 5.0).collect();
    for rtol in ["1e-6", "1e-10", "1e-14", "1e-16"] {
        for what in ["", "method=gmres", "method=bicgstab", "method=gmres precond=lu"] {
            let options = format!("device=cpu precision=f32 rtol={rtol} {what}").parse().unwrap();
            let (mut solver, mut x) = (Solver::new(&a, &options).unwrap(), vec![0.0; n]);
            let history = &solver.solve(&b, &mut x).unwrap().history;
            let limit = 4.0 * history.rounding;
            let close = history.true_relative_residual <= limit.max(1e-6);
            assert!(close, "{what} {rtol}: {} at {:e}", history.outcome, history.true_relative_residual);
            if history.outcome == krylith_core::Outcome::RoundingLimit {
                assert!(history.true_relative_residual <= limit, "{what} {rtol}: {limit:e}");
            }
        }
    }
    let mut worse = 0;
    for seed in 0..60 {
        let random = |i: usize| krylith_random(seed, i);
        let n = 40;
        let mut entries = Vec::new();
        for i in 0..n {
            let scale = 10f64.powf(8.0 * random(i));
            entries.push((i as u32, i as u32, 4.0 * scale));
            for k in 0..4 {
                let j = ((random(1000 + 4 * i + k) + 1.0) / 2.0 * n as f64) as u32;
                if j != i as u32 {
                    entries.push((i as u32, j, scale * random(5000 + 4 * i + k)));
                }
            }
        }
        let a = Csr::from_triplets(n, n, &entries).unwrap();
        let b: Vec<f64> = (1..=n).map(|i| i as f64).collect();
        let options = "device=cpu precision=f32 rtol=1e-9 method=bicgstab precond=lu".parse().unwrap();
        let Ok(mut solver) = Solver::new(&a, &options) else { continue };
        let mut x = vec![0.0; n];
        let history = &solver.solve(&b, &mut x).unwrap().history;
        let (residual, limit) = (history.true_relative_residual, 4.0 * history.rounding);
        worse += usize::from(residual > 1.0);
        let said = history.outcome != krylith_core::Outcome::RoundingLimit || residual <= limit;
        assert!(said, "{seed}: {residual:e} is called the limit of rounding, {limit:e}");
    }
    assert_eq!(worse, 0, "worse than x = 0");
}

fn krylith_random(seed: u64, i: usize) -> f64 {
    crate::common::Random(seed.wrapping_mul(1 << 32).wrapping_add(i as u64)).number()
}

/// A reason for restarts is one event, with how often the method restarted.
#[test]
fn restarts_for_one_reason_are_one_event() {
    let a = laplace(12);
    let b = vec![1.0; a.rows()];
    let options = "device=cpu precond=none method=gmres:restart=5 rtol=1e-8".parse().unwrap();
    let mut solver = Solver::new(&a, &options).unwrap();
    let solution = solver.solve(&b, &mut vec![0.0; a.rows()]).unwrap();
    let restarts = solution.history.restarts;
    assert!(solution.converged() && restarts > 10, "{:?}", solution.history);
    let events: Vec<_> = solution.events.iter().filter(|e| e.kind == EventKind::Restart).collect();
    let full: Vec<_> = events.iter().filter(|e| e.detail == "the basis was full").collect();
    assert_eq!((full.len(), full[0].iteration), (1, Some(5)), "{events:?}");
    assert_eq!(full[0].words(), format!("the basis was full ({} times)", full[0].times));
    assert_eq!(events.iter().map(|e| e.times).sum::<usize>(), restarts, "{events:?}");
    let at: Vec<usize> = solution.restarts().collect();
    assert_eq!((at.len(), at[0], at[1]), (restarts, 5, 10));
}

/// Factors of a Helmholtz equation grow until no digit is left, although A is regular. They are named, and no
/// longer basis is tried with them.
#[test]
fn unstable_factors_are_told_from_a_singular_matrix() {
    let side = 40;
    let helmholtz = |shift: f64| {
        let mut entries: Vec<(u32, u32, f64)> = Vec::new();
        for i in 0..side * side {
            let (x, y) = (i % side, i / side);
            entries.push((i as u32, i as u32, 4.0 - shift));
            for (is_inside, j) in [(x + 1 < side, i + 1), (y + 1 < side, i + side)] {
                if is_inside {
                    entries.extend([(i as u32, j as u32, -1.0), (j as u32, i as u32, -1.0)]);
                }
            }
        }
        Csr::from_triplets(side * side, side * side, &entries).unwrap()
    };
    for (precond, shift, attempts) in [("ras", 3.3, 1), ("ras:fill=1", 3.9, 2), ("ildu", 3.3, 1)] {
        let a = helmholtz(shift);
        let b = Random(1).numbers(a.rows());
        let options = format!("device=cpu precond={precond} method=gmres max_iters=3000").parse().unwrap();
        let mut solver = Solver::new(&a, &options).unwrap();
        let solution = solver.solve(&b, &mut vec![0.0; a.rows()]).unwrap();
        let case = format!("{precond}: {:?} {:#?}", solution.outcome(), solution.events);
        assert_eq!(solution.outcome(), Outcome::Breakdown, "{case}");
        assert_eq!(solution.history.reason, Some(krylith_core::space::UNSTABLE), "{case}");
        let told: Vec<_> = solution.events.iter().filter(|e| e.kind == EventKind::Fallback).collect();
        assert_eq!(told.len(), attempts, "{case}");
        for words in ["unstable", "most in row ", "may be regular", "or lu", "no attempt is left"] {
            assert!(told[attempts - 1].detail.contains(words), "{words}: {case}");
        }
    }
    // The matrix is regular: direct factors solve the same system.
    let a = helmholtz(3.3);
    let mut solver = Solver::new(&a, &"device=cpu precond=lu".parse().unwrap()).unwrap();
    assert!(solver.solve(&vec![1.0; a.rows()], &mut vec![0.0; a.rows()]).unwrap().converged());
}
