//! Matrix-free solves on the host, with operators that a program gives as functions.

use crate::device::cpu::Cpu;
use crate::matrix::{FEW, check_finite};
use crate::method::{GmresOptions, MethodName, MethodSpec};
use crate::operator::{LinearOperator, fresh_key};
use crate::options::{DeviceSpec, Options};
use crate::precond::PrecondSpec;
use crate::space::{History, Observer, Space};
use crate::threads::ALONE;
use crate::{Error, Result};
use std::cell::RefCell;

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
/// use krylith::solver::solve_functions;
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
    if !matches!(options.precond, None | Some(PrecondSpec::Auto | PrecondSpec::None)) {
        let message = "needs a matrix; give the preconditioner as a function too".into();
        return Err(Error::Option { key: "precond", message });
    }
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
