//! Solves with operators that a program gives as functions: on the host, and on the device of a solver.

use super::Solver;
use super::watch::Run;
use crate::device::cpu::Cpu;
use crate::interrupt::Limits;
use crate::matrix::{Bsr, FEW, check_finite};
use crate::memory::{Numbers, NumbersMut};
use crate::method::{GmresOptions, MethodName, MethodSpec};
use crate::operator::{FunctionOperator, LinearOperator, fresh_key};
use crate::options::{DeviceSpec, Options};
use crate::precond::PrecondSpec;
use crate::space::{Criterion, History, Observer, Space};
use crate::threads::ALONE;
use crate::{Error, Result};
use std::cell::RefCell;
use std::time::Instant;

/// A function that applies an operator to its first argument and writes the product to the second.
pub type Function<'f> = dyn FnMut(&[f64], &mut [f64]) -> Result<()> + 'f;

/// A function as an operator on host vectors.
struct Called<'f> {
    call: RefCell<&'f mut Function<'f>>,
    key: u64,
}

impl<'f> Called<'f> {
    fn new(call: &'f mut Function<'f>) -> Self {
        Self { call: RefCell::new(call), key: fresh_key() }
    }
}

impl LinearOperator<Cpu> for Called<'_> {
    fn apply(&self, _: &Cpu, x: &Vec<f64>, y: &mut Vec<f64>) -> Result<()> {
        (self.call.borrow_mut())(x, y)
    }
    fn key(&self) -> u64 {
        self.key
    }
    fn bytes(&self) -> u64 {
        0 // unknown
    }
    fn recordable(&self) -> bool {
        false
    }
}

/// Returns the method with which [`solve_functions`] solves systems of this size: GMRES by default.
///
/// # Errors
/// An option of another method.
///
/// ```
/// let options = "restart=50".parse::<krylith::Options>()?;
/// assert_eq!(krylith_core::solver::method_of_functions(&options, 1000)?.title(), "GMRES(50)");
/// # Ok::<(), krylith::Error>(())
/// ```
pub fn method_of_functions(options: &Options, unknowns: usize) -> Result<MethodSpec> {
    let name = match MethodSpec::meant(options)? {
        MethodName::Auto => MethodName::Gmres,
        name => name,
    };
    Ok(MethodSpec::of(name, options, GmresOptions::default().restart).at_most(unknowns))
}

/// Solves A x = b from x, where A, and P⁻¹ if there is a preconditioner, are functions. They are called on
/// this thread; vector operations use the host's threads. If P varies from one application to the next,
/// choose the method `fgmres`.
///
/// Only these options are used: `method` with its settings, `rtol`, `atol`, `max_iters` and `threads`. The
/// default method is GMRES.
///
/// # Errors
/// Options that request a GPU or name a preconditioner, vectors of different lengths, and errors that the
/// functions return. Non-convergence is an [`Outcome`](crate::Outcome) of the history, not an error.
///
/// ```
/// use krylith_core::solver::solve_functions;
/// // −1 2 −1, stored nowhere; Jacobi.
/// let mut a = |x: &[f64], y: &mut [f64]| {
///     for i in 0..x.len() {
///         let left = if i > 0 { x[i - 1] } else { 0.0 };
///         y[i] = 2.0 * x[i] - left - x.get(i + 1).unwrap_or(&0.0);
///     }
///     Ok(())
/// };
/// let mut p = |x: &[f64], y: &mut [f64]| Ok(y.iter_mut().zip(x).for_each(|(y, x)| *y = x / 2.0));
/// let (b, mut x) = (vec![1.0; 50], vec![0.0; 50]);
/// let options = "method=cg rtol=1e-8".parse::<krylith::Options>()?;
/// let history = solve_functions(&mut a, Some(&mut p), &b, &mut x, &options, &mut ())?;
/// assert_eq!(history.outcome, krylith::Outcome::Converged);
/// assert!((x[0] - 25.0).abs() < 1e-5); // x_i = (i + 1)(50 − i)/2
/// # Ok::<(), krylith::Error>(())
/// ```
pub fn solve_functions<'f>(
    a: &'f mut Function<'f>,
    p: Option<&'f mut Function<'f>>,
    b: &[f64],
    x: &mut [f64],
    options: &Options,
    observer: &mut dyn Observer,
) -> Result<History> {
    let options = options.settled()?;
    if matches!(options.device, Some(DeviceSpec::Cuda(_))) {
        return Err(Error::invalid(
            "operators given as functions run only on the CPU; use device=cpu or omit the device",
        ));
    }
    refuse_precond(&options)?;
    refuse_criterion(options.stop().criterion)?;
    if b.len() != x.len() || b.is_empty() {
        return Err(Error::invalid(format!(
            "b has {} numbers and x has {}; both need the same length, at least 1",
            b.len(),
            x.len()
        )));
    }
    let check = || check_finite("b", b).and_then(|()| check_finite("x0", x));
    if b.len() <= FEW { check() } else { options.within(check)? }?;
    let (small, cores) = (size_of_val(b) < ALONE, super::host::cores());
    let threads = options.threads.unwrap_or(if small { 1 } else { cores }).min(cores);
    let space = Cpu::new(b.len(), threads);
    let mut method = method_of_functions(&options, b.len())?.build(&space)?;
    let (mut rhs, mut guess) = (space.vector()?, space.vector()?);
    space.write(b, &mut rhs)?;
    space.write(x, &mut guess)?;
    let (a, p) = (Called::new(a), p.map(Called::new));
    let stop = options.stop_of(b.len());
    let p = p.as_ref().map(|p| p as &dyn LinearOperator<Cpu>);
    let history = method.solve(&space, &a, p, &rhs, &mut guess, &stop, observer)?.clone();
    space.read(&guess, x)?;
    Ok(history)
}

/// Refuses a preconditioner by name where there is no matrix.
fn refuse_precond(options: &Options) -> Result<()> {
    if matches!(options.precond, None | Some(PrecondSpec::Auto | PrecondSpec::None)) {
        return Ok(());
    }
    let message = "needs a matrix; give the preconditioner as a function too".into();
    Err(Error::Option { key: "precond", message })
}

/// Refuses a criterion that needs the entries of A.
fn refuse_criterion(criterion: Criterion) -> Result<()> {
    if criterion == Criterion::Residual {
        return Ok(());
    }
    let message = format!(
        "is {criterion}, which needs the entries of A, and this solve has A as a function; use criterion=residual"
    );
    Err(Error::Option { key: "criterion", message })
}

/// The functions of a request.
#[derive(Clone, Copy, Default)]
pub(super) struct Given<'f> {
    /// A.
    pub a: Option<&'f FunctionOperator<'f>>,
    /// P⁻¹.
    pub p: Option<&'f FunctionOperator<'f>>,
}

impl Given<'_> {
    /// Returns true if there is a function.
    pub fn is_any(&self) -> bool {
        self.a.is_some() || self.p.is_some()
    }
}

impl Solver<'_> {
    /// Makes a solver without a matrix, whose [requests](Self::request) give A as a function, and P⁻¹ too if
    /// there is one. It solves on the CPU unless the options name a GPU. `options` has no preconditioner, and
    /// the default method is GMRES.
    ///
    /// # Errors
    /// Options that name a preconditioner; the errors of [`new`](Self::new).
    ///
    /// ```
    /// use krylith::Solver;
    /// use krylith::operator::FunctionOperator;
    /// // −1 2 −1, stored nowhere.
    /// let a = FunctionOperator::on_host(|x, y| {
    ///     let at = |i: usize| x.get(i).unwrap_or(&0.0);
    ///     Ok((0..x.len()).for_each(|i| y[i] = 2.0 * x[i] - at(i.wrapping_sub(1)) - at(i + 1)))
    /// });
    /// let mut solver = Solver::without_matrix(50, &"method=cg rtol=1e-8".parse()?)?;
    /// let (b, mut x) = (vec![1.0; 50], vec![0.0; 50]);
    /// assert!(solver.request(&b, &mut x).operator(&a).run()?.converged());
    /// assert!((x[0] - 25.0).abs() < 1e-5); // x_i = (i + 1)(50 − i)/2
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn without_matrix(unknowns: usize, options: &Options) -> Result<Solver<'static>> {
        let mut options = options.settled()?;
        refuse_precond(&options)?;
        refuse_criterion(options.stop().criterion)?;
        options.precond = Some(PrecondSpec::None);
        if matches!(options.method, None | Some(MethodName::Auto)) {
            options.method = Some(MethodName::Gmres);
        }
        if matches!(options.device, None | Some(DeviceSpec::Auto)) {
            options.device = Some(DeviceSpec::Cpu);
        }
        // The set-up of a solver is that of a matrix, so the identity stands in for it.
        let columns = (0..unknowns as u32).collect();
        let identity =
            Bsr::new(1, unknowns, unknowns, (0..=unknowns).collect(), columns, vec![1.0; unknowns])?;
        let problem = crate::Problem::bsr(&identity)?.into_owned();
        let mut solver = Solver::new(problem, &options)?;
        solver.is_without_matrix = true;
        Ok(solver)
    }

    /// Solves with functions, if there are any, or with the matrix.
    pub(super) fn run_given(
        &mut self,
        given: Given,
        transposed: bool,
        b: Numbers,
        x: NumbersMut,
        observer: &mut (dyn Observer + Send),
    ) -> Result<()> {
        if !given.is_any() {
            return self.run(transposed, b, x, observer);
        }
        self.check_whole()?;
        self.check_vectors([("b", b.len()), ("x", x.len())])?;
        self.check_functions(given)?;
        self.check_finite([("b", b), ("x0", x.as_array())])?;
        let deadline = self.time_limit.and_then(|limit| Instant::now().checked_add(limit));
        let limits = Limits { cancel: self.cancel.clone(), deadline };
        if given.a.is_some() {
            let run = Run { stop: self.stop, limits, given, column: None, promoted: false, continues: false };
            self.run_once(transposed, &run, b, x, observer)?;
        } else {
            self.without_fixed(transposed, b, x, |solver, stop, b, x| {
                let run = Run { stop, limits, given, column: None, promoted: false, continues: false };
                solver.run_once(transposed, &run, b, x, observer)
            })?;
        }
        self.check_begun(b)?;
        let solution = &mut self.solution;
        solution.setup_parts.add(std::mem::take(&mut self.setup));
        solution.setup_seconds = solution.setup_parts.total();
        solution.events.splice(0..0, self.pending.take());
        self.trace("solved with functions");
        Ok(())
    }

    /// Refuses functions that this solver cannot call.
    fn check_functions(&self, given: Given) -> Result<()> {
        self.stop.check()?;
        if given.a.is_some() {
            refuse_criterion(self.stop.criterion)?;
        }
        if given.a.is_none() {
            self.check_matrix()?;
        }
        if self.problem.comm.size() > 1 || self.workers.parts.is_some() {
            return Err(Error::invalid(
                "a function has the vectors of one device, and several share this system; solve on one device",
            ));
        }
        let on_gpu = self.solution.device.kind == "cuda";
        let all = given.a.into_iter().chain(given.p);
        for function in all.flat_map(|f| [Some(f), f.transpose()]).flatten() {
            match (function.is_on_device(), on_gpu) {
                (true, false) => {
                    return Err(Error::invalid(
                        "a function of GPU vectors cannot run on the CPU, where this solver solves; use device=cuda",
                    ));
                }
                (false, true) => {
                    return Err(Error::invalid(
                        "a function of host vectors cannot run on the GPU where this solver solves; use device=cpu, or \
                         a function of GPU vectors",
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Refuses work that needs the matrix.
    pub(super) fn check_matrix(&self) -> Result<()> {
        match self.is_without_matrix {
            false => Ok(()),
            true => Err(Error::invalid("this solver has no matrix; give A as a function of the request")),
        }
    }
}
