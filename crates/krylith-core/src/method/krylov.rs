//! The driver of all Krylov methods: everything that a method does around its recurrence.
//!
//! A method is a [`Recurrence`]: it defines how one iteration changes vectors and scalars, and how it starts
//! from a residual. This driver computes ‖b‖, launches batches of iterations on the device, keeps the history
//! and the best x, and decides about the end of the solve. A batch consists of
//!
//! 1. `begin`, which halts the batch if there is nothing left to do;
//! 2. up to m iterations: a full cycle of GMRES, or for other methods as many as fit in one graph;
//! 3. `verify`. If the residual of the recurrence meets the tolerance, or the recurrence cannot continue, the
//!    true residual b − A x follows, from which the recurrence restarts.
//!
//! Only the certified residual decides about the outcome. It is computed in twice the working precision if
//! the operator supports that. Plain residuals, in working precision, restart the recurrence if rounding
//! errors do not matter. Together with the certified residual the operator computes the effect of rounding x
//! to double precision, u ‖|b| + |A||x|‖, where u is the unit roundoff. A solve that stagnates below a few
//! times this value is at the limit of double precision. Between restarts x itself does not change. Updates
//! are summed in a correction d, and x is rounded once per restart instead of once per iteration (Sleijpen
//! and van der Vorst 1996).
//!
//! A restart may apply a P that costs as much as many products. If batches are recorded, they then contain no
//! restart, because most launches of a restart would be wasted. Such a batch leaves the true residual to the
//! host, which launches the certified residual together with a restart.
//!
//! If the device works asynchronously, the host launches the next batch before it reads the results of the
//! previous one. If the earlier batch finished the solve, `begin` detects that on the device, and the later
//! batch does nothing.

mod columns;
mod convergence;
pub(super) mod criterion;
mod ending;
mod recurrence;
mod unit;

use super::work::{Given, Operators, Work};
use crate::operator::LinearOperator;
use crate::space::{
    BATCH, COMPLETED, FLAGS, History, Observer, Outcome, Phase, REASON, REMAINING, Reason, Space, Stop,
    VERIFIED,
};
use crate::{Result, steps, sweeps};
pub use columns::ColumnsMethod;
use convergence::Convergence;
use criterion::Quantity;
pub use recurrence::Recurrence;

steps! {
    /// The scalars that every method has: ‖b − A x‖ at the last restart; ‖r‖ by the recurrence; the ‖r‖ at
    /// which the solve ends; the smallest ‖b − A x‖ computed so far; the effect of rounding x; the unit of b
    /// and x (a power of two, see `krylov/unit.rs`); the square of ‖|b| + |A||x|‖; and (r, r).
    pub struct Header {}
    arrays HeaderArrays(m) {}
    constants [UNIT_ROUNDOFF];
    functions {}
    /// The steps of the driver.
    pub const STEPS;
    /// Begins a batch. Halts it if the residual is small enough or not finite, or if no iterations remain.
    begin(s, _) {
        if (s.reason >= INDEFINITE_MATRIX) { s.remaining = 0; }
        s.columns = 0;
        s.reason = NONE;
        s.completed = 0;
        s.halt = 0;
        s.limit = s.batch;
        if (s.remaining < s.limit) { s.limit = s.remaining; }
        if (s.limit <= 0 || s.norm <= s.target || !(s.norm < HUGE)) { s.halt = 1; }
    }
    /// Requests the true residual if the recurrence has ended or the iteration limit is reached.
    verify(s, _) {
        s.remaining -= s.completed;
        s.verified = 0;
        s.halt = 1;
        if (s.reason != NONE || (s.completed > 0 && s.remaining <= 0)) {
            s.verified = 1;
            s.halt = 0;
        }
    }
    /// Computes the norm of the true residual and, if the operator supports |A|, the effect of rounding on
    /// it.
    measure(s, _) {
        s.norm = sqrt(s.rr);
        s.norm_recurrence = s.norm;
        if (s.mm > 0.0 && s.mm < HUGE) { s.rounding = UNIT_ROUNDOFF * sqrt(s.mm); }
    }
    /// Prevents a restart from a residual that ends the solve, because applying the preconditioner may cost
    /// as much as many products.
    begin_nothing(s, _) { s.halt = 0; if (s.norm <= s.target || !(s.norm < HUGE)) { s.halt = 1; } }
    /// Marks x as the best so far if its residual is the smallest.
    compare(s, _) {
        s.halt = 1;
        if (s.norm < s.best) {
            s.best = s.norm;
            s.halt = 0;
        }
    }
    /// Leaves the true residual to the host. No batch starts until the host has computed it.
    leave_to_host(s, _) { s.norm = 0.0; }
    /// Ends the batch at the host's request.
    break_off(s, _) { if (s.reason == NONE) { s.reason = STOPPED; } }
}

sweeps! {
    /// The vector passes of the driver.
    pub const SWEEPS for Header;
    /// ‖v‖².
    norm_squared: () [v] [] -> [rr] { rr += v * v; }
    /// ‖b − A x‖²; NaN if an entry of x is not finite, even one that no row reads.
    norm_of_residual: () [r, x] [] -> [rr] { rr += r * r + 0.0 * x; }
    /// A sum that is 0, or NaN if an entry of v is not finite.
    finite: () [v] [] -> [rr] { rr += 0.0 * v; }
    /// ‖v‖² in another unit.
    norm_squared_in_unit: (unit) [v] [] -> [rr] { let scaled = unit * v; rr += scaled * scaled; }
    /// A vector in another unit.
    scale: (unit) [v] [to] -> [] { to = unit * v; }
    /// `scale` in place.
    rescale: (unit) [] [v] -> [] { v *= unit; }
    /// d = 0.
    clear: () [] [d] -> [] { d = 0.0; }
    /// x += d, d = 0.
    correct: () [] [x, d] -> [] { x += d; d = 0.0; }
    /// r = b − q, where r holds q.
    subtract: () [b] [r] -> [] { r = b - r; }
    /// (m, m), and m = 0.
    magnitude: () [] [m] -> [mm] { mm += m * m; m = 0.0; }
    /// Keeps the best x so far.
    keep: () [x] [x_best] -> [] { x_best = x; }
}

/// Largest number of launches in a recorded batch. A graph takes 5.2 µs per launch to build and 0.5 µs to
/// replay (measured on an H200).
const LAUNCHES: usize = 128;
/// Largest number of launches in a batch without a restart. Without restarts, short batches cost little.
const LAZY_LAUNCHES: usize = 64;
/// Largest number of iterations of a batch. Iterations after the last one that the solve needs are launched
/// in vain.
const MOST: usize = 8;
/// Factor of growth of the residual since the start that counts as divergence.
const DIVERGED: f64 = 1e4;
/// Relative decrease of the residual below which a restart made no progress.
const PROGRESS: f64 = 1e-8;
/// The unit roundoff u: half the distance from 1 to the next number.
const UNIT_ROUNDOFF: f64 = f64::EPSILON / 2.0;
/// An assumed effect of rounding on ‖r‖/‖b‖, for operators that do not support |A|.
const ROUNDING: f64 = 2.5e-14;
/// Largest residual, as a share of ‖b‖, that rounding errors can explain. If rounding errors are larger, x
/// has grown without bound, as it does if A is singular.
const DIGITS: f64 = 1e-3;
/// Multiple of the rounding effect on ‖r‖ below which the residual is at the limit of rounding. Below it a
/// restart makes progress only if it halves the residual.
pub(crate) const LIMIT: f64 = 4.0;
/// Largest number of consecutive batches without an iteration. No solve needs as many. The bound prevents an
/// endless loop.
const EMPTY: usize = 8;
/// Multiple of the rounding effect on ‖r‖ below which a plain residual may be wrong.
const NEAR: f64 = 64.0;

/// A Krylov method and its workspace. A second solve of the same shape allocates and compiles nothing.
///
/// # Examples
/// [`Cg`](super::Cg), [`Gmres`](super::Gmres) and the other methods are this type with different recurrences.
/// ```
/// use krylith::device::Cpu;
/// use krylith::Outcome;
/// use krylith::Stop;
/// use krylith::Precision;
/// use krylith::matrix::Csr;
/// use krylith::method::{Gmres, GmresOptions};
/// use krylith::operator::PointBlock;
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 4.0)])?;
/// let space = Cpu::new(2, 1);
/// let operator = PointBlock::csr(&space, &a, Precision::F64)?;
/// let mut gmres = Gmres::new(&space, GmresOptions::default())?;
/// let mut x = vec![0.0; 2];
/// let history = gmres.solve(&space, &operator, None, &vec![4.0, 4.0], &mut x, &Stop::default(), &mut ())?;
/// assert_eq!(history.outcome, Outcome::Converged);
/// assert!((x[0] - 1.5).abs() < 1e-5 && (x[1] - 1.0).abs() < 1e-5);
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Krylov<S: Space, R: Recurrence<S>> {
    recurrence: R,
    scalars: S::Scalars,
    b: S::Vector,
    x: S::Vector,
    /// The sum of the updates of x since the last restart. At a restart it is scratch for magnitudes.
    correction: S::Vector,
    x_best: S::Vector,
    /// The vectors of a criterion other than ‖r‖₂, once a solve has had one.
    quantity: Option<Quantity<S>>,
    opening: S::Recording,
    batch: S::Recording,
    /// Number of iterations of a batch, and the key of the operators for which it was chosen.
    length: (usize, Option<u64>),
    /// True if batches leave true residuals to the host.
    lazy: bool,
    /// The values that the host reads after a batch: scalars, followed by residuals.
    host: Vec<f64>,
    history: History,
}

/// The batches of a solve.
struct Now {
    /// Flags of the last batch that was read.
    flags: [i32; FLAGS],
    /// Number of batches in flight.
    under_way: usize,
    /// True if the observer ended a batch.
    interrupted: bool,
}

impl<S: Space, R: Recurrence<S>> Krylov<S, R> {
    /// Allocates the workspace.
    ///
    /// # Errors
    /// Invalid options; out of device memory.
    pub fn new(space: &S, options: R::Options) -> Result<Self> {
        let recurrence = R::new(space, options)?;
        let most = recurrence.cycle().unwrap_or(MOST);
        Ok(Self {
            recurrence,
            scalars: space.scalars(R::scalars(most))?,
            b: space.vector()?,
            x: space.vector()?,
            correction: space.vector()?,
            x_best: space.vector()?,
            quantity: None,
            opening: S::Recording::default(),
            batch: S::Recording::default(),
            length: (most, None),
            lazy: false,
            host: vec![0.0; R::SCALARS + most + 1],
            history: History::with_capacity(0),
        })
    }

    /// Returns the recurrence and its vectors.
    pub fn recurrence(&self) -> &R {
        &self.recurrence
    }

    /// Solves A x = b, starting from the given x. `p` applies P⁻¹.
    ///
    /// # Errors
    /// Errors of the device; a criterion that needs |A|, which `a` does not have. Non-convergence is an
    /// [`Outcome`], not an error.
    pub fn solve(
        &mut self,
        space: &S,
        a: &dyn LinearOperator<S>,
        p: Option<&dyn LinearOperator<S>>,
        b: &S::Vector,
        x: &mut S::Vector,
        stop: &Stop,
        observer: &mut dyn Observer,
    ) -> Result<&History> {
        let quantity = self.take_quantity(space, a, stop)?;
        let done = self.solve_by(space, (a, p), quantity.as_ref(), b, x, stop, observer);
        self.quantity = quantity.or(self.quantity.take());
        done?;
        Ok(&self.history)
    }

    /// Solves A x = b with the vectors of its criterion.
    fn solve_by(
        &mut self,
        s: &S,
        (a, p): Given<'_, S>,
        quantity: Option<&Quantity<S>>,
        b: &S::Vector,
        x: &mut S::Vector,
        stop: &Stop,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let Some((mut convergence, unit)) = self.begin(s, quantity, b, x, stop)? else { return Ok(()) };
        let around = quantity.and_then(|quantity| quantity.around(a, p));
        let mut on = Operators::by((a, p), &around, quantity);
        on.weigh(s)?;
        let on = &on;
        self.lazy = on.costly()
            && on.key.is_some()
            && s.pipeline_depth() > 0
            && self.recurrence.restarts_by_preconditioning();
        self.choose_length(s, on)?;
        self.recurrence.prepare(&mut on.work(s, &mut self.scalars, true), on.key)?;
        self.write_header(s, &convergence)?;
        self.open(s, on)?;

        let mut now = Now { flags: [0; FLAGS], under_way: 1, interrupted: false };
        let outcome = loop {
            // The host writes the next target before the next batch, if the criterion needs that.
            let ahead = if convergence.aims { 0 } else { s.pipeline_depth() };
            while now.under_way <= ahead && !now.interrupted {
                now.interrupted = self.batch(s, on, &mut convergence, observer)?;
                now.under_way += 1;
            }
            if let Some(outcome) = self.examine(s, on, x, &mut now, &mut convergence, observer)? {
                break outcome;
            }
            if ahead == 0 {
                now.interrupted = self.batch(s, on, &mut convergence, observer)?;
                now.under_way += 1;
            }
        };
        self.conclude(s, on, x, unit, outcome, &mut now, &mut convergence)
    }

    /// Clears the history, and takes b and x in the unit of the solve. Returns `None` if the solve ends
    /// before it starts.
    fn begin(
        &mut self,
        s: &S,
        quantity: Option<&Quantity<S>>,
        b: &S::Vector,
        x: &mut S::Vector,
        stop: &Stop,
    ) -> Result<Option<(Convergence, f64)>> {
        self.history.clear();
        (self.history.criterion, self.history.relative_to) = (stop.criterion, stop.relative_to);
        // Reserve space for the iteration limit, up to a bound, so that a second solve does not allocate.
        self.history.residuals.reserve(stop.max_iters.min(1 << 20) + 1);
        let (norm_b, unit) = self.norm_of_b(s, b)?;
        self.history.rhs_norm = norm_b / unit;
        if norm_b == 0.0 {
            // x = 0 solves the system, whatever the initial guess.
            s.copy(b, x)?;
            self.history.residuals.push(0.0);
            (self.history.true_relative_residual, self.history.criterion_value) = (0.0, 0.0);
            self.history.outcome = Outcome::Converged;
            return Ok(None);
        }
        if !norm_b.is_finite() {
            self.make_finite(s, x)?;
            self.history.residuals.push(f64::NAN);
            self.history.outcome = Outcome::NotFinite;
            return Ok(None);
        }
        self.take(s, b, x, unit)?;
        let norms = [norm_b, quantity.map_or(Ok(norm_b), |quantity| quantity.begin(s, &mut self.b))?];
        let mut convergence = Convergence::new(norms, unit, stop);
        if let Some(quantity) = quantity {
            convergence.set_quantity(quantity.units(unit), quantity.margin(), quantity.is_exact(), stop);
        }
        Ok(Some((convergence, unit)))
    }

    /// Reads the results of the oldest batch in flight. Returns the outcome if they end the solve.
    fn examine(
        &mut self,
        s: &S,
        on: &Operators<S>,
        x: &mut S::Vector,
        now: &mut Now,
        convergence: &mut Convergence,
        observer: &mut dyn Observer,
    ) -> Result<Option<Outcome>> {
        let Now { flags, under_way, interrupted } = now;
        self.collect_history(s, flags, convergence)?;
        *under_way -= 1;
        let verified = flags[VERIFIED] != 0;
        if convergence.first.is_nan() {
            self.begin_from(s, on, x, (flags, under_way), convergence, observer)?;
        } else if verified && on.certifies() && !self.is_left() {
            self.read_certified(s, on, flags, convergence)?;
        }
        if verified {
            let left = self.is_left();
            if left {
                self.drain(s, flags, under_way, convergence)?;
                self.certify(s, on, flags, convergence)?;
            }
            let mut ended = self.check_convergence(flags, convergence, observer);
            let hopeless = matches!(ended, Some(Outcome::NotFinite | Outcome::Diverged));
            if !hopeless && (ended.is_some() || self.is_near(convergence)) {
                // The outcome needs the certified residual, and so does a restart near the rounding level.
                if !left && !on.certifies() {
                    self.drain(s, flags, under_way, convergence)?;
                    self.certify(s, on, flags, convergence)?;
                }
                convergence.certified = true;
                ended = self.judge(flags, convergence, ended);
            }
            if ended.is_some() {
                return Ok(ended);
            }
        }
        convergence.empty = if verified || flags[COMPLETED] > 0 { 0 } else { convergence.empty + 1 };
        if convergence.empty > EMPTY {
            return Ok(Some(Outcome::Stagnated));
        }
        if !verified && convergence.is_waiting(self.history.iterations) && self.is_at_limit(convergence) {
            return Ok(Some(Outcome::RoundingLimit));
        }
        let vectors = (*under_way == 0).then_some([&self.x, &self.correction]);
        let asks = convergence.tell(&self.history, verified, observer)
            | convergence.show(s, self.history.iterations, vectors, observer)?;
        Ok((*interrupted || on.any(s, asks)?).then_some(Outcome::Interrupted))
    }

    /// Restarts the recurrence from the certified residual, which replaces the last residual of the history.
    fn certify(
        &mut self,
        s: &S,
        on: &Operators<S>,
        flags: &mut [i32; FLAGS],
        convergence: &mut Convergence,
    ) -> Result<()> {
        let reason = flags[REASON];
        self.reopen(s, on, flags, convergence)?;
        flags[REASON] = reason;
        (convergence.verified, convergence.certified) = (self.history.iterations, true);
        self.replace_last(self.known(convergence).norm / convergence.reference);
        Ok(())
    }

    /// Returns true if the last batch left the true residual to the host.
    fn is_left(&self) -> bool {
        self.lazy && self.host[Header::AT.norm] == 0.0
    }

    /// Chooses the number of iterations of a batch so that its graph is cheap to instantiate. The number is
    /// the same on every rank.
    fn choose_length(&mut self, s: &S, on: &Operators<S>) -> Result<()> {
        if self.recurrence.cycle().is_some() || on.key.is_none() || self.length.1 == on.key {
            return Ok(());
        }
        let Self { recurrence, scalars, correction, lazy, .. } = self;
        let launches = s.launches(|s| recurrence.iterate(&mut on.work(s, scalars, false), correction, 0))?;
        // All ranks have devices of one kind, so all of them record or none does.
        let length = match launches {
            None => MOST,
            Some(own) => {
                let most = if *lazy { LAZY_LAUNCHES } else { LAUNCHES };
                most / (on.mean(s, own as f64)? as usize).max(1)
            }
        };
        let length = length.clamp(1, MOST).next_multiple_of(R::PERIOD);
        self.length = (length, on.key);
        self.host.resize(R::SCALARS + self.length.0 + 1, 0.0);
        Ok(())
    }

    fn write_header(&mut self, s: &S, convergence: &Convergence) -> Result<()> {
        self.host.fill(0.0);
        self.host[Header::AT.rounding] = ROUNDING * convergence.norm_b;
        self.host[Header::AT.target] = if convergence.aims { 0.0 } else { convergence.target };
        self.host[Header::AT.best] = f64::INFINITY;
        self.recurrence.write_scalars(&mut self.host);
        let mut flags = [0; FLAGS];
        flags[REMAINING] = convergence.max_iters.min(i32::MAX as usize) as i32;
        (flags[VERIFIED], flags[BATCH]) = (1, self.length.0 as i32);
        s.write_scalars(&mut self.scalars, 0, &self.host, &flags)
    }

    /// Launches the certified residual and a restart from it: at the start, before the outcome is decided,
    /// near the limits of rounding, and after an interruption.
    fn open(&mut self, s: &S, on: &Operators<S>) -> Result<()> {
        let mut opening = std::mem::take(&mut self.opening);
        let done = s.record(&mut opening, on.key, |s| {
            s.guard(None);
            self.residual(s, on, true, true)?;
            s.guard(None);
            Ok(())
        });
        self.opening = opening;
        done?;
        s.enqueue_readback(&mut self.scalars, self.host.len())
    }

    /// Does the same as [`open`](Self::open) and waits for the result. No batch may be in flight.
    fn reopen(
        &mut self,
        s: &S,
        on: &Operators<S>,
        flags: &mut [i32; FLAGS],
        convergence: &mut Convergence,
    ) -> Result<()> {
        self.open(s, on)?;
        s.take_readback(&mut self.scalars, &mut self.host, flags)?;
        self.read_quantity(s, on.quantity, convergence)?;
        self.aim(s, on, flags, convergence)
    }

    /// Launches up to m iterations, and a restart if they end in one. Returns true if the observer
    /// interrupted them.
    fn batch(
        &mut self,
        s: &S,
        on: &Operators<S>,
        convergence: &mut Convergence,
        observer: &mut dyn Observer,
    ) -> Result<bool> {
        let (before, mut interrupted) = (self.history.iterations, false);
        let mut batch = std::mem::take(&mut self.batch);
        let done = s.record(&mut batch, on.key, |s| {
            let Self { recurrence, scalars, x, correction, length, .. } = &mut *self;
            s.guard(None);
            s.step(begin, scalars, 0)?;
            s.guard(Some(scalars));
            for j in 0..length.0 {
                if on.halted(s, scalars)? {
                    break; // launch nothing more
                }
                recurrence.iterate(&mut on.work(s, scalars, false), correction, j)?;
                let peeked = if s.halted(scalars) { None } else { s.peek(scalars, R::SCALARS + j + 1) };
                if let Some(r) = peeked {
                    convergence.told = Some(before + j + 1);
                    let vectors = recurrence.cycle().is_none().then_some([&*x, &*correction]);
                    interrupted = observer.progress(convergence.progress(before + j + 1, r)).is_break()
                        | convergence.show(s, before + j + 1, vectors, observer)?;
                    if interrupted {
                        s.step(break_off, scalars, j)?;
                        break;
                    }
                }
            }
            s.guard(None);
            s.mark(Phase::Other);
            s.step(verify, scalars, 0)?;
            s.guard(Some(scalars));
            if !on.halted(s, scalars)? {
                recurrence.finish(&mut on.work(s, scalars, false), correction)?;
                match self.lazy {
                    true => s.step(leave_to_host, &mut self.scalars, 0)?,
                    false => self.residual(s, on, false, on.certifies())?,
                }
            }
            s.guard(None);
            Ok(())
        });
        self.batch = batch;
        done?;
        s.enqueue_readback(&mut self.scalars, self.host.len())?;
        Ok(interrupted)
    }

    /// Restarts the recurrence from b − A x, and keeps x if it is the best so far.
    fn residual(&mut self, s: &S, on: &Operators<S>, first: bool, certified: bool) -> Result<()> {
        let Self { recurrence, scalars, b, x, correction, x_best, .. } = self;
        let work = &mut on.work(s, scalars, first);
        work.sweep(correct, [], [x, correction])?;
        match certified {
            true => work.certified_residual(b, x, recurrence.residual(), correction)?,
            false => work.residual(b, x, recurrence.residual())?,
        }
        work.sweep(norm_of_residual, [recurrence.residual(), x], [])?;
        work.step(measure, 0)?;
        work.step(begin_nothing, 0)?;
        s.guard(Some(scalars));
        if !on.halted(s, scalars)? {
            recurrence.restart(&mut on.work(s, scalars, first))?;
        }
        s.guard(None);
        s.step(compare, scalars, 0)?;
        s.guard(Some(scalars));
        s.sweep(keep, scalars, [], [x], [x_best], [])
    }

    /// Reads the results of the oldest batch in flight, and appends its residuals to the history.
    fn collect_history(&mut self, s: &S, flags: &mut [i32; FLAGS], convergence: &Convergence) -> Result<()> {
        s.take_readback(&mut self.scalars, &mut self.host, flags)?;
        let (history, host) = (&mut self.history, &self.host);
        let relative = |norm: f64| convergence.ratio * norm / convergence.reference;
        let (completed, reason) = (flags[COMPLETED] as usize, Reason::from_code(flags[REASON]));
        if history.residuals.is_empty() {
            history.residuals.push(relative(host[Header::AT.norm]));
            return Ok(());
        }
        // Iterations that follow a true residual, except the first one, belong to a restart.
        let restarted = completed > 0 && history.iterations > 0 && convergence.verified == history.iterations;
        history.restarts += usize::from(restarted);
        history.residuals.extend((1..=completed).map(|j| relative(host[R::SCALARS + j])));
        history.iterations += completed;
        if flags[VERIFIED] != 0 {
            // If a batch ends with the true residual, this replaces the residual of the recurrence.
            *history.residuals.last_mut().expect("the first was pushed") = relative(host[Header::AT.norm]);
        }
        history.reductions += self.recurrence.reductions(completed, reason);
        Ok(())
    }
}
