//! Newton's method: its rate, every outcome for its own reason, the linear solver kept, continuation.

use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::{Bsr, Dense};
use krylith_core::memory::Numbers;
use krylith_core::newton::{
    Forcing, Newton, NewtonEvent, NewtonObserver, NewtonOptions, NewtonOutcome, NewtonStep, NonlinearSystem,
};
use krylith_core::partition::{Part, RowBlocks, Rows, distribute};
use krylith_core::{Options, Outcome, Problem, Progress, Result};
use std::ops::ControlFlow;

/// What x is given to, and where the answer goes.
type Evaluate<'f> = Box<dyn Fn(&[f64], &mut [f64]) + 'f>;

/// A system of closures: F and the values of J.
struct System<'f> {
    pattern: Bsr,
    f: Evaluate<'f>,
    j: Evaluate<'f>,
    jacobians: usize,
}

impl NonlinearSystem for System<'_> {
    fn pattern(&self) -> &Bsr {
        &self.pattern
    }
    fn residual(&mut self, x: &[f64], f: &mut [f64]) -> Result<()> {
        (self.f)(x, f);
        Ok(())
    }
    fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> Result<()> {
        self.jacobians += 1;
        (self.j)(x, values);
        Ok(())
    }
}

/// One equation, b = 1.
fn scalar<'f>(f: impl Fn(f64) -> f64 + 'f, j: impl Fn(f64) -> f64 + 'f) -> System<'f> {
    let pattern = Bsr::new(1, 1, 1, vec![0, 1], vec![0], vec![0.0]).unwrap();
    System {
        pattern,
        f: Box::new(move |x, to| to[0] = f(x[0])),
        j: Box::new(move |x, to| to[0] = j(x[0])),
        jacobians: 0,
    }
}

/// Two components a node on a line of n: diffusion, and a reaction that couples them.
fn reaction(n: usize, strength: f64) -> System<'static> {
    let (mut row_ptr, mut col) = (vec![0], Vec::new());
    for i in 0..n {
        col.extend((i.saturating_sub(1)..(i + 2).min(n)).map(|j| j as u32));
        row_ptr.push(col.len());
    }
    let values = vec![0.0; 4 * col.len()];
    let pattern = Bsr::new(2, n, n, row_ptr, col, values).unwrap();
    let shape = pattern.clone();
    let f = move |x: &[f64], f: &mut [f64]| {
        let at = |i: usize, c: usize| if i < n { x[2 * i + c] } else { 0.0 };
        for i in 0..n {
            let (u, v) = (at(i, 0), at(i, 1));
            for c in 0..2 {
                f[2 * i + c] = 2.0 * at(i, c) - at(i.wrapping_sub(1), c) - at(i + 1, c);
            }
            f[2 * i] += strength * (u * u * v + u - 1.0);
            f[2 * i + 1] += strength * (u * u * v - 0.3 + v * v * v);
        }
    };
    let j = move |x: &[f64], values: &mut [f64]| {
        for i in 0..n {
            for p in shape.row_ptr()[i]..shape.row_ptr()[i + 1] {
                let block = &mut values[4 * p..4 * p + 4];
                if shape.col()[p] as usize != i {
                    block.copy_from_slice(&[-1.0, 0.0, 0.0, -1.0]);
                    continue;
                }
                let (u, v) = (x[2 * i], x[2 * i + 1]);
                let s = strength;
                let (uu, uv) = (2.0 + s * (2.0 * u * v + 1.0), s * u * u);
                block.copy_from_slice(&[uu, uv, 2.0 * s * u * v, 2.0 + s * (u * u + 3.0 * v * v)]);
            }
        }
    };
    System { pattern, f: Box::new(f), j: Box::new(j), jacobians: 0 }
}

fn linear() -> Options {
    "device=cpu threads=1 method=fgmres precond=ildu".parse().unwrap()
}

fn newton(options: NewtonOptions) -> Newton {
    Newton::new(options, &linear()).unwrap()
}

#[test]
fn exact_solves_converge_quadratically_and_forcing_terms_spare_iterations() {
    let n = 300;
    let solve = |forcing, precond: &str| {
        let options = NewtonOptions { forcing, rtol: 1e-12, ..NewtonOptions::default() };
        let linear: Options =
            format!("device=cpu threads=1 method=fgmres precond={precond}").parse().unwrap();
        let (mut newton, mut system) = (Newton::new(options, &linear).unwrap(), reaction(n, 0.7));
        let mut x = vec![0.2; 2 * n];
        let report = newton.solve(&mut system, &mut x).unwrap().clone();
        assert_eq!(report.outcome, NewtonOutcome::Converged, "{report:?}");
        let mut f = vec![0.0; 2 * n];
        system.residual(&x, &mut f).unwrap();
        let norm = f.iter().map(|f| f * f).sum::<f64>().sqrt();
        assert!(norm <= 1e-12 * report.first && (norm - report.last).abs() <= 1e-15 * report.first);
        assert_eq!(system.jacobians, report.steps.len());
        for (k, step) in report.steps.iter().enumerate() {
            assert_eq!((step.number, step.linear), (k + 1, Outcome::Converged));
            assert!(step.linear_residual <= step.forcing && step.after < step.before);
        }
        report
    };
    let exact = solve(Forcing::Constant(1e-12), "ildu");
    let last: Vec<f64> = exact.steps.iter().map(|s| s.after / exact.first).collect();
    let k = last.iter().position(|r| *r < 1e-3).unwrap();
    assert!(last[k + 1] < 100.0 * last[k].powi(2), "{last:?}");
    let (tight, loose) = (solve(Forcing::Constant(1e-12), "jacobi"), solve(Forcing::default(), "jacobi"));
    assert!(loose.iterations() < tight.iterations(), "{} and {}", loose.iterations(), tight.iterations());
    assert_eq!(loose.steps[0].forcing, 0.1);
    for pair in loose.steps.windows(2) {
        let eta = 0.9 * (pair[1].before / pair[0].before).powi(2);
        let safe = 0.9 * pair[0].forcing.powi(2);
        let wanted = if safe > 0.1 { eta.max(safe) } else { eta };
        let wanted = wanted.max(0.5 * loose.target / pair[1].before).min(0.9);
        assert!((pair[1].forcing - wanted).abs() <= 1e-12 * wanted, "{pair:?}");
    }
}

#[test]
fn a_line_search_saves_what_full_steps_lose() {
    // Newton's method alone diverges on the arctangent from 3.
    let mut newton = newton(NewtonOptions::default());
    let mut x = [3.0];
    let report = newton.solve(&mut scalar(f64::atan, |x| 1.0 / (1.0 + x * x)), &mut x).unwrap();
    assert!(report.converged() && x[0].abs() < 1e-7, "{report:?}");
    assert!(report.steps[0].damping < 1.0 && report.steps[0].trials > 1, "{report:?}");
    assert_eq!(report.steps.last().unwrap().damping, 1.0);
    // Where F is not finite beyond, shorter steps are tried: √x from 10 leads below 0 at once.
    let mut x = [10.0];
    let report = newton.solve(&mut scalar(|x| x.sqrt() - 1.0, |x| 0.5 / x.sqrt() * 0.4), &mut x).unwrap();
    assert!(report.converged() && (x[0] - 1.0).abs() < 1e-6, "{report:?}");
    assert!(report.steps[0].trials > 1);
}

/// Breaks where it is told to, and counts what it hears.
#[derive(Default)]
struct Listener {
    stop_after_steps: Option<usize>,
    stop_in_linear: Option<usize>,
    residuals: usize,
    steps: usize,
    events: Vec<String>,
    parameters: Vec<f64>,
}

impl NewtonObserver for Listener {
    fn residual(&mut self, steps: usize, norm: f64, target: f64) -> ControlFlow<()> {
        assert!(norm.is_nan() || target <= norm || steps > 0);
        self.residuals += 1;
        if self.stop_after_steps == Some(steps) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
    fn linear(&mut self, step: usize, _: Progress) -> ControlFlow<()> {
        if self.stop_in_linear == Some(step) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
    fn stepped(&mut self, step: &NewtonStep) {
        self.steps = step.number;
    }
    fn event(&mut self, event: &NewtonEvent) {
        self.events.push(event.detail.clone());
    }
    fn parameter(&mut self, value: f64) {
        self.parameters.push(value);
    }
}

#[test]
fn every_outcome_has_its_reason() {
    let mut newton = newton(NewtonOptions { max_steps: 2, rtol: 1e-12, ..NewtonOptions::default() });
    let n = 40;
    let report = newton.solve(&mut reaction(n, 0.7), &mut vec![0.2; 2 * n]).unwrap();
    assert_eq!((report.outcome, report.steps.len()), (NewtonOutcome::MaxSteps, 2));
    let mut x = [0.0];
    // x² + 1 has no zero: from a minimum of |F| no step leads down.
    let report = newton.solve(&mut scalar(|x| x * x + 1.0, |_| 1.0), &mut x).unwrap();
    assert_eq!((report.outcome, report.steps.len(), x[0]), (NewtonOutcome::LineSearch, 0, 0.0));
    let report = newton.solve(&mut scalar(|x| x.sqrt(), |_| 1.0), &mut [-1.0]).unwrap();
    assert_eq!(report.outcome, NewtonOutcome::NotFinite);
    let report = newton.solve(&mut scalar(|x| x, |_| 1.0), &mut [0.0]).unwrap();
    assert_eq!((report.outcome, report.steps.len()), (NewtonOutcome::Converged, 0));
    for listener in [
        Listener { stop_after_steps: Some(1), ..Listener::default() },
        Listener { stop_in_linear: Some(2), ..Listener::default() },
    ] {
        let mut listener = listener;
        let report =
            newton.solve_observed(&mut reaction(n, 0.7), &mut vec![0.2; 2 * n], &mut listener).unwrap();
        assert_eq!((report.outcome, report.steps.len()), (NewtonOutcome::Interrupted, 1));
        assert_eq!((listener.steps, listener.residuals), (1, 2));
    }
    let cancel = newton.cancel_token();
    cancel.cancel();
    let report = newton.solve(&mut reaction(n, 0.7), &mut vec![0.2; 2 * n]).unwrap();
    assert_eq!((report.outcome, report.steps.len()), (NewtonOutcome::Interrupted, 0));
}

#[test]
fn a_linear_solve_that_falls_short_is_used_and_told() {
    let n = 200;
    // Three iterations are not enough for the forcing term, and better than nothing.
    let linear: Options = "device=cpu threads=1 method=fgmres precond=jacobi max_iters=3".parse().unwrap();
    let options = NewtonOptions { forcing: Forcing::Constant(1e-6), rtol: 1e-3, ..NewtonOptions::default() };
    let mut newton = Newton::new(options, &linear).unwrap();
    let mut listener = Listener::default();
    let report = newton.solve_observed(&mut reaction(n, 2.0), &mut vec![0.2; 2 * n], &mut listener).unwrap();
    assert_eq!(report.outcome, NewtonOutcome::Converged, "{:?} {}", report.outcome, report.last);
    assert_eq!(report.steps[0].linear, Outcome::MaxIterations);
    assert!(listener.events.iter().any(|e| e.contains("max-iterations") && e.contains("best direction")));
    // No iteration at all: the direction is zero, and the linear solve is to blame.
    let linear: Options = "device=cpu threads=1 precond=jacobi max_iters=0".parse().unwrap();
    let mut newton = Newton::new(options, &linear).unwrap();
    let report = newton.solve(&mut reaction(n, 2.0), &mut vec![0.2; 2 * n]).unwrap();
    assert_eq!(report.outcome, NewtonOutcome::LinearSolve);
}

#[test]
fn wrong_requests_are_refused() {
    for options in [
        NewtonOptions { rtol: f64::NAN, ..NewtonOptions::default() },
        NewtonOptions { atol: -1.0, ..NewtonOptions::default() },
        NewtonOptions { forcing: Forcing::Constant(1.0), ..NewtonOptions::default() },
    ] {
        assert!(Newton::new(options, &linear()).is_err(), "{options:?}");
    }
    let error =
        newton(NewtonOptions::default()).solve(&mut scalar(|x| x, |_| 1.0), &mut [0.0; 2]).unwrap_err();
    assert!(error.to_string().contains("x has 2 numbers; the system has 1"), "{error}");
}

#[test]
fn the_linear_solver_stays_while_the_pattern_does() {
    let mut newton = newton(NewtonOptions::default());
    assert!(newton.linear().is_none());
    for n in [40, 40, 25] {
        let mut x = vec![0.2; 2 * n];
        assert!(newton.solve(&mut reaction(n, 0.7), &mut x).unwrap().converged());
        let mut again = vec![0.2; 2 * n];
        assert!(
            Newton::new(NewtonOptions::default(), &linear())
                .unwrap()
                .solve(&mut reaction(n, 0.7), &mut again)
                .unwrap()
                .converged()
        );
        assert_eq!(x, again, "n={n}: a solver that was used before gives other bits");
    }
}

#[test]
fn continuation_puts_values_between_where_newton_fails() {
    // The solution is x = p. F is NaN unless x is within a factor of three of p, so Newton's method fails
    // from farther away.
    struct Near(f64, Bsr, f64);
    impl NonlinearSystem for Near {
        fn pattern(&self) -> &Bsr {
            &self.1
        }
        fn residual(&mut self, x: &[f64], f: &mut [f64]) -> Result<()> {
            // Solvable only from within a factor of three.
            let far = x[0] / self.0 > 3.0 || self.0 / x[0] > 3.0;
            f[0] = if far { f64::NAN } else { x[0] * x[0] - self.0 * self.0 };
            Ok(())
        }
        fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> Result<()> {
            values[0] = 2.0 * x[0];
            self.2 += 1.0;
            Ok(())
        }
    }
    let pattern = Bsr::new(1, 1, 1, vec![0, 1], vec![0], vec![0.0]).unwrap();
    let (mut system, mut newton) = (Near(1.0, pattern, 0.0), newton(NewtonOptions::default()));
    let (mut x, mut listener) = ([1.1], Listener::default());
    let set = &mut |system: &mut Near, p: f64| {
        system.0 = p;
        Ok(())
    };
    let done = newton.continuation(&mut system, &[1.0, 16.0], &mut x, set, &mut listener).unwrap();
    assert_eq!((done.outcome, done.reached), (NewtonOutcome::Converged, Some(16.0)));
    assert!((x[0] - 16.0).abs() < 1e-6);
    // 16 fails, then their mean 4 does, then 2 is reached; 4 and, over 8, 16 follow.
    let tried: Vec<f64> = listener.parameters.iter().map(|p| p.round()).collect();
    assert_eq!(tried, [1.0, 16.0, 4.0, 2.0, 4.0, 16.0, 8.0, 16.0]);
    // Out of reach: x stays that of the last value that was solved.
    let done = newton.continuation(&mut system, &[16.0, f64::INFINITY], &mut x, set, &mut ()).unwrap();
    assert!(done.outcome != NewtonOutcome::Converged && done.reached == Some(16.0));
    assert!((x[0] - 16.0).abs() < 1e-6);
}

/// x³ + x minus the x of the next rank = 1, with one unknown on each rank. `fails` is the rank whose F fails
/// at the second evaluation.
struct Ring<'a> {
    comm: std::sync::Arc<dyn Communicator>,
    part: &'a Part,
    fails: Option<usize>,
    evaluations: usize,
}

impl NonlinearSystem for Ring<'_> {
    fn pattern(&self) -> &Bsr {
        &self.part.terms.terms()[0].1
    }
    fn problem(&self) -> Result<Problem<'_>> {
        Problem::part(self.comm.clone(), self.part.clone())
    }
    fn residual(&mut self, x: &[f64], f: &mut [f64]) -> Result<()> {
        let all = self.part.halo.with_ghosts(&*self.comm, 1, x)?;
        self.evaluations += 1;
        if self.fails == Some(self.comm.rank()) && self.evaluations == 2 {
            return Err(krylith_core::Error::invalid("the material has no state"));
        }
        f[0] = all[0].powi(3) + all[0] - all[1] - 1.0;
        Ok(())
    }
    fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> Result<()> {
        // The caller's order: the column of the other rank comes first.
        values.copy_from_slice(&[-1.0, 3.0 * x[0] * x[0] + 1.0]);
        Ok(())
    }
}

fn ring(
    fails: Option<usize>,
    stops: Option<usize>,
) -> Vec<std::result::Result<(NewtonOutcome, f64), String>> {
    struct Stops(bool);
    impl NewtonObserver for Stops {
        fn residual(&mut self, steps: usize, _: f64, _: f64) -> ControlFlow<()> {
            if self.0 && steps == 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    Team::run(3, |comm| {
        let (rank, size) = (comm.rank(), comm.size());
        let own = rank as u64;
        let col = vec![(own + 1) % size as u64, own];
        let blocks = RowBlocks { row_ptr: vec![0, 2], col, values: vec![0.0; 2] };
        let rows = Rows { numbers: vec![own], block: 1, terms: vec![(Dense::identity(1), blocks)] };
        let part = distribute(&*comm, rows)?;
        let mut ring = Ring { comm, part: &part, fails, evaluations: 0 };
        let mut newton = newton(NewtonOptions { rtol: 1e-12, ..NewtonOptions::default() });
        let (mut x, mut stops) = ([2.0 + rank as f64], Stops(stops == Some(rank)));
        let done = newton.solve_observed(&mut ring, &mut x, &mut stops);
        let found = done.map(|report| (report.outcome, x[0])).map_err(|e| e.to_string());
        if found.as_ref().is_ok_and(|(outcome, _)| *outcome == NewtonOutcome::Converged) {
            // A second solve keeps the linear solver on every rank.
            let mut again = [0.5];
            assert!(newton.solve(&mut ring, &mut again)?.converged());
            assert!((again[0] - 1.0).abs() < 1e-9);
        }
        Ok(found)
    })
    .unwrap()
}

#[test]
fn ranks_share_a_system_its_errors_and_its_end() {
    for found in ring(None, None) {
        let (outcome, x) = found.unwrap();
        assert_eq!(outcome, NewtonOutcome::Converged);
        assert!((x - 1.0).abs() < 1e-9, "{x}");
    }
    for found in ring(Some(1), None) {
        let error = found.unwrap_err();
        assert!(error.contains("the material has no state"), "{error}");
    }
    for found in ring(None, Some(2)) {
        assert_eq!(found.unwrap().0, NewtonOutcome::Interrupted);
    }
}

/// x³ = 8 on the nodes of a ring. Rows also store two zeros, which the solver drops. The values are in the
/// memory of the system.
struct Owner {
    pattern: Bsr,
    f: Vec<f64>,
    values: Vec<f64>,
    evaluations: usize,
}

impl NonlinearSystem for Owner {
    fn pattern(&self) -> &Bsr {
        &self.pattern
    }
    fn residual(&mut self, _: &[f64], _: &mut [f64]) -> Result<()> {
        unreachable!("F is in the memory of the system")
    }
    fn jacobian(&mut self, _: &[f64], _: &mut [f64]) -> Result<()> {
        unreachable!("the values are in the memory of the system")
    }
    fn solves_on(&mut self, gpu: Option<usize>) -> Result<bool> {
        assert_eq!(gpu, None);
        Ok(true)
    }
    fn residual_in_own_memory(&mut self, x: Numbers<'_>) -> Result<Numbers<'_>> {
        self.f = x.to_vec()?.iter().map(|x| x.powi(3) - 8.0).collect();
        Ok(Numbers::from(&self.f))
    }
    fn jacobian_in_own_memory(&mut self, x: Numbers<'_>) -> Result<Numbers<'_>> {
        self.evaluations += 1;
        for (i, x) in x.to_vec()?.iter().enumerate() {
            let p = self.pattern.diagonal_position(i).unwrap();
            self.values[p] = 3.0 * x * x;
        }
        Ok(Numbers::from(&self.values[..]))
    }
}

#[test]
fn values_may_be_in_the_memory_of_the_system() {
    let n = 300;
    let mut col: Vec<u32> = (0..n).flat_map(|i| [i, (i + 1) % n, (i + 2) % n]).collect();
    col.chunks_mut(3).for_each(|row| row.sort_unstable());
    let n = n as usize;
    let row_ptr = (0..=n).map(|i| 3 * i).collect();
    let pattern = Bsr::new(1, n, n, row_ptr, col, vec![0.0; 3 * n]).unwrap();
    let mut owner = Owner { pattern, f: Vec::new(), values: vec![0.0; 3 * n], evaluations: 0 };
    let mut newton = newton(NewtonOptions { rtol: 1e-12, ..NewtonOptions::default() });
    let mut x = vec![1.5; n];
    let report = newton.solve(&mut owner, &mut x).unwrap().clone();
    assert!(report.converged() && x.iter().all(|x| (x - 2.0).abs() < 1e-9));
    assert_eq!(owner.evaluations, report.steps.len());
    let dropped = report.events.iter().filter(|e| e.detail.contains("stored zeros dropped")).count();
    assert_eq!(dropped, 1, "the solver stays although it dropped zeros: {:?}", report.events);
}
