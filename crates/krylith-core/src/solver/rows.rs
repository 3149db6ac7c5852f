//! Systems whose rows differ in scale, such as systems with penalty rows. ‖b − A x‖/‖b‖ can be small although
//! x is wrong, because a few rows dominate ‖b‖.
//!
//! A solution of such a system must also satisfy ‖D⁻¹(b − A x)‖ ≤ rtol ‖D⁻¹b‖, where D is diagonal with the
//! 1-norms of the rows. This bounds the row-wise backward error. If the condition is not met, `auto`
//! continues with rows scaled to norm 1. Scale factors are powers of two, so the scaled system is exactly
//! equivalent. It is D⁻¹A x = D⁻¹b, or D^−½ A D^−½ y = D^−½ b with x = D^−½ y for a symmetric A. A row whose
//! diagonal entry exceeds all others beyond double precision becomes xᵢ = bᵢ/aᵢᵢ ([`penalties`]). A
//! preconditioner that names fields belongs to the given rows; with one, `auto` continues with a smaller
//! tolerance instead. So it does first after a preconditioner in f32, whose errors spread over all rows, with
//! one in f64, and after direct factors. If the user named the method, the solve ends with the usual
//! criterion, and the solution has a warning.

mod norms;

pub(super) use norms::inverse_norms;

use super::diagnosis::Indices;
use super::fallbacks;
use super::functions::Given;
use super::solution::{Event, EventKind, NEXT};
use super::watch::Run;
use super::{OriginalSystem, Solver};
use crate::Result;
use crate::comm::largest;
use crate::interrupt::Limits;
use crate::matrix::{Arrays, Bsr, ZerosChoice};
use crate::memory::{Numbers, NumbersMut};
use crate::method::{LIMIT, MethodName};
use crate::operator::Terms;
use crate::options::Options;
use crate::problem::Problem;
use crate::space::{Observer, Outcome, PrecondPrecision, Progress, Stop};
use norms::{extent, scales};
use rayon::prelude::*;
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rows differ in scale if their largest entries differ by more than this factor.
pub(super) const UNEVEN: f64 = 1e6;
/// Largest number of solves of the scaled system. The result of each solve tightens the tolerance of the
/// next.
const ROUNDS: usize = 4;
/// Largest |uᵀAv − vᵀAu| / (‖Av‖‖u‖) at which the scaled operator counts as symmetric.
const ROUNDING: f64 = 1e-12;
/// Entries of b that are at least this share of its largest entry dominate ‖b‖.
const CARRY: f64 = 1e-2;

/// Row norms of the current values, and the scaled system.
#[derive(Default)]
pub(super) struct Rows {
    /// 1/‖aᵢ‖₁ for the row aᵢ of each own unknown; 1 for empty rows. No numbers if rows do not differ in
    /// scale.
    inverses: Vec<f64>,
    scaled: Option<Scaled>,
    /// Host buffers for b and x on a GPU.
    host: [Vec<f64>; 2],
}

/// What a solve continues with.
enum Scaled {
    /// The system itself.
    Same,
    /// The scaled system.
    Rows {
        solver: Box<Solver<'static>>,
        /// Scale factors of rows, and of columns if the system is symmetric.
        left: Vec<f64>,
        right: Option<Vec<f64>>,
    },
}

/// How a solve continues.
#[derive(Clone, Copy, PartialEq)]
enum Again {
    /// With the system itself and a preconditioner in f64.
    Promoted,
    /// With the system itself and the same direct factors, which need an iteration or two.
    Refined,
    /// With scaled rows, or with the system itself if its preconditioner names fields.
    Scaled,
}

/// The name of direct factors.
const DIRECT: &str = "lu";

/// ‖b − A x‖/‖b‖, and the same ratio with rows scaled to norm 1.
#[derive(Clone, Copy)]
struct Residuals {
    plain: f64,
    by_rows: f64,
}

impl Residuals {
    /// Returns the larger ratio of a residual to its tolerance.
    fn missed(self, plain: f64, by_rows: f64) -> f64 {
        (self.plain / plain).max(self.by_rows / by_rows)
    }
}

/// Reports to an observer the progress of a solve that continues an earlier solve.
struct Behind<'a> {
    observer: &'a mut (dyn Observer + Send),
    done: usize,
}

impl Observer for Behind<'_> {
    fn progress(&mut self, p: Progress) -> ControlFlow<()> {
        self.observer.progress(Progress { iteration: self.done + p.iteration, ..p })
    }
    fn restarted(&mut self, iteration: usize, why: &'static str) {
        self.observer.restarted(self.done + iteration, why);
    }
}

impl Solver<'_> {
    /// Checks the residual with rows scaled to norm 1, if rows differ in scale and the solve has converged.
    /// If this residual misses the tolerance, `auto` continues. Collective.
    ///
    /// # Errors
    /// A device or a rank that fails.
    pub(super) fn judge_by_rows(
        &mut self,
        stop: Stop,
        b: Numbers,
        x: &mut NumbersMut,
        deadline: Option<Instant>,
        observer: &mut (dyn Observer + Send),
    ) -> Result<()> {
        let Stop { rtol, atol, .. } = stop;
        let history = &self.solution.history;
        let (norm, plain) = (history.rhs_norm, history.true_relative_residual);
        // An absolute tolerance is in the units of b.
        let absolute = plain * norm > rtol * norm && plain * norm <= atol;
        if self.is_scaled || !stop.is_usual() || !self.solution.converged() || norm == 0.0 || absolute {
            return Ok(());
        }
        if self.is_met_on_device(b, x.as_array())? {
            return Ok(());
        }
        // `self.rows` stays `None` if anything below fails.
        let mut rows = match self.rows.take() {
            Some(rows) => rows,
            None => self.look_at_rows()?,
        };
        if rows.inverses.is_empty() {
            self.rows = Some(rows);
            return Ok(());
        }
        let [mut b_here, mut x_here] = std::mem::take(&mut rows.host);
        let b = b.on_host(&mut b_here)?;
        let now = x.as_array();
        let now = now.on_host(&mut x_here)?;
        let (inverses, original) = (&rows.inverses, self.problem.original());
        let before = self.workers.first(|| residuals(inverses, original, norm, b, now))?;
        self.solution.row_scaled_residual = Some(before.by_rows);
        let open = matches!(self.options.method, None | Some(MethodName::Auto));
        if before.by_rows > rtol && !open {
            let who = self.carriers(b)?;
            let detail = format!(
                "{who} ‖b‖, and with every row scaled to norm 1 the relative residual is {:.1e}; use \
                 criterion=rows, method=auto, which also solves the scaled system, or lower rtol",
                before.by_rows
            );
            self.solution.events.push(Event::new(EventKind::Warning, None, detail));
        } else if before.by_rows > rtol {
            let mut own = now.to_vec();
            let (mut now, mut improved) = (before, false);
            let precond = &self.solution.precond;
            let narrow = precond.is_narrow(self.options.precond_precision);
            let again = if narrow { Again::Promoted } else { Again::Refined };
            if narrow || precond.name == DIRECT {
                rows.scaled = Some(Scaled::Same);
                improved = self.go_on(&mut rows, now, (stop, again), b, &mut own, deadline, observer)?;
                rows.scaled = None;
                let (inverses, original) = (&rows.inverses, self.problem.original());
                now = self.workers.first(|| residuals(inverses, original, norm, b, &own))?;
            }
            if now.by_rows > rtol && !(improved && self.solution.converged()) {
                let scaled = (stop, Again::Scaled);
                improved |= self.go_on(&mut rows, now, scaled, b, &mut own, deadline, observer)?;
            }
            if improved {
                x.write(&own)?;
            }
        }
        rows.host = [b_here, x_here];
        self.rows = Some(rows);
        Ok(())
    }

    /// Returns true if the values are only on a device, rows differ in scale, and the residual that the
    /// device computes with rows scaled to norm 1 meets the tolerance. Then the host needs no entries.
    fn is_met_on_device(&mut self, b: Numbers, x: Numbers) -> Result<bool> {
        let (terms, rtol) = (&self.problem.terms, self.stop.rtol);
        let [(c, a)] = &terms.terms[..] else { return Ok(false) };
        let alone = self.problem.comm.size() == 1 && terms.halo.is_none() && terms.stages() == 1;
        let uneven = self.solution.diagnosis.rows.ratio() > UNEVEN;
        if !alone || !uneven || self.rows.is_some() || c[(0, 0)] != 1.0 {
            return Ok(false);
        }
        let norms = self.workers.first(|| a.storage().row_scaled_norms(a.block(), b, x))?;
        let Some([r, b, ..]) = norms.filter(|[_, b, ..]| *b > 0.0) else { return Ok(false) };
        let met = r / b <= rtol;
        if met {
            self.solution.row_scaled_residual = Some(r / b);
        }
        Ok(met)
    }

    /// Returns ‖b − A x‖ that counts as attained for this x. Collective.
    fn attainable(&mut self, b: &[f64], x: &[f64]) -> Result<f64> {
        let original = self.problem.original();
        self.workers.first(|| Ok(LIMIT * original.rounding(b, x)?))
    }

    /// Solves again from `x`. Returns true if that gave a better x. Collective.
    fn go_on(
        &mut self,
        rows: &mut Rows,
        before: Residuals,
        (given, again): (Stop, Again),
        b: &[f64],
        x: &mut [f64],
        deadline: Option<Instant>,
        observer: &mut (dyn Observer + Send),
    ) -> Result<bool> {
        let Stop { rtol, max_iters, given_norm, .. } = given;
        let norm = self.solution.history.rhs_norm;
        let plain_target = self.solution.target.max(rtol);
        let who = self.carriers(b)?;
        let mut tolerance = tolerance(before, rtol);
        let (promoted, itself) = (again == Again::Promoted, again != Again::Scaled);
        if itself {
            tolerance = tolerance.max(self.attainable(b, x)? / norm);
        }
        // Recognised fields are looked for again in the scaled system, if rounding allows no smaller
        // tolerance. Matrices of the caller belong to the given rows.
        let named = self.options.precond_or_auto().names_fields();
        let all = &self.problem.fields;
        let (recognised, given) = (all.recognised().is_some(), all.has_matrices());
        let fields = named || recognised && (given || tolerance > self.attainable(b, x)? / norm);
        if rows.scaled.is_none() {
            rows.scaled = Some(if fields { Scaled::Same } else { Scaled::of(self)? });
        }
        let Some(scaled) = &mut rows.scaled else { return Ok(false) };
        let (rhs, right) = match &*scaled {
            Scaled::Same => (Cow::Borrowed(b), None),
            Scaled::Rows { left, right, .. } => {
                (b.iter().zip(left).map(|(b, l)| b * l).collect(), right.clone())
            }
        };
        let (mut best, mut improved) = (before, false);
        if !fields && !itself {
            tolerance = rtol;
        }
        let mut y: Vec<f64> = match &right {
            Some(right) => x.iter().zip(right).map(|(x, r)| x / r).collect(),
            None => x.to_vec(),
        };
        let mut first = true;
        for _ in 0..ROUNDS {
            let done = self.solution.history.iterations;
            let max_iters = max_iters.saturating_sub(done);
            let stop = Stop { rtol: tolerance, atol: 0.0, max_iters, ..Stop::default() };
            let mut behind = Behind { observer: &mut *observer, done };
            let (from, to) = (Numbers::from(&rhs[..]), NumbersMut::from(&mut y[..]));
            let inner = match scaled {
                Scaled::Same => {
                    let before = self.solution.clone();
                    let limits = Limits { cancel: self.cancel.clone(), deadline };
                    let stop = Stop { given_norm, ..stop };
                    let given = Given::default();
                    let run = Run { stop, limits, given, column: self.column, promoted, continues: true };
                    let ran = self.run_once(false, &run, from, to, &mut behind);
                    let inner = std::mem::replace(&mut self.solution, before);
                    ran?;
                    inner
                }
                Scaled::Rows { solver, .. } => {
                    let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
                    solver.time_limit = left.map(|left| left.max(Duration::from_nanos(1)));
                    solver.stop = stop;
                    solver.run(false, from, to, &mut behind)?;
                    solver.solution.clone()
                }
            };
            if first {
                let what = match (promoted, fields || itself) {
                    (true, _) => "to a smaller tolerance in f64",
                    (_, true) => "to a smaller tolerance",
                    _ => "on scaled rows",
                };
                let name = format!("{} with {} {what}", inner.precond.name, inner.method.short());
                let first_name =
                    format!("{} with {}", self.solution.precond.name, self.solution.method.short());
                let detail = format!(
                    "{first_name}: {who} ‖b‖; the relative residual is {:.1e}, and {:.1e} with every row scaled to norm \
                     1{NEXT}{name}",
                    before.plain, before.by_rows
                );
                self.solution.events.push(Event::new(EventKind::Fallback, Some(done), detail));
                first = false;
            }
            self.solution.follow(&inner);
            let answer: Vec<f64> = match &right {
                Some(right) => y.iter().zip(right).map(|(y, r)| y * r).collect(),
                None => y.clone(),
            };
            let inverses = &rows.inverses;
            let found =
                self.workers.first(|| residuals(inverses, self.problem.original(), norm, b, &answer))?;
            // Keep an x that meets the tolerance for ‖b − A x‖.
            let keeps = found.plain <= plain_target.max(best.plain);
            if keeps && found.missed(plain_target, rtol) < best.missed(plain_target, rtol) {
                (best, improved) = (found, true);
                x.copy_from_slice(&answer);
            }
            let missed = found.missed(plain_target, rtol);
            if missed <= 1.0 || inner.outcome() != Outcome::Converged {
                break;
            }
            // The residual of x may be far below the tolerance, as at the start of a repeated solve.
            let reached = inner.history.criterion_value;
            tolerance = if reached > 0.0 { tolerance.min(reached) } else { tolerance } * 0.5 / missed;
        }
        // Rounding of x may allow no smaller residual of scaled rows than this, however the last solve ended.
        let limit = if best.by_rows > rtol {
            let (inverses, original) = (&rows.inverses, self.problem.original());
            let sizes = || original.pair_of_norms(Some(inverses), &original.sizes(b, x)?, b);
            let norms = self.workers.first(sizes)?;
            LIMIT * f64::EPSILON / 2.0 * norms[0] / norms[1].max(f64::MIN_POSITIVE)
        } else {
            0.0
        };
        let history = &mut self.solution.history;
        let met = best.plain <= plain_target && best.by_rows <= rtol.max(limit);
        if met {
            history.outcome = Outcome::Converged;
            history.reason = None;
        } else if matches!(history.outcome, Outcome::Converged | Outcome::RoundingLimit) {
            (history.outcome, history.reason) = (Outcome::Stagnated, None);
        }
        (history.true_relative_residual, history.criterion_value) = (best.plain, best.plain);
        if let Some(last) = history.residuals.last_mut() {
            *last = best.plain;
        }
        self.solution.row_scaled_residual = Some(best.by_rows);
        self.solution.events.sort_by_key(|event| event.kind);
        Ok(improved)
    }

    /// Computes the row norms of the current values. Uses the diagnosis of the set-up until values change,
    /// and always for values that are only on a GPU. Collective.
    fn look_at_rows(&mut self) -> Result<Rows> {
        let Self { problem, workers, solution, is_renewed, .. } = self;
        let (terms, comm) = (&problem.terms, &*problem.comm);
        let away = terms.terms.iter().any(|(_, a)| a.storage().is_on_device_alone());
        let is_known = largest(comm, f64::from(u8::from(away || !*is_renewed)))? > 0.0;
        if is_known && solution.diagnosis.rows.ratio() <= UNEVEN {
            return Ok(Rows::default());
        }
        workers.first(|| {
            if !is_known {
                let [least, most] = extent(terms);
                let (most, inverse) = (largest(comm, most)?, largest(comm, 1.0 / least)?);
                if !(most * inverse > UNEVEN) {
                    return Ok(Rows::default());
                }
            }
            Ok(Rows { inverses: inverse_norms(terms), ..Rows::default() })
        })
    }

    /// Describes the rows that dominate ‖b‖, as the beginning of a sentence with its verb. Collective.
    fn carriers(&self, b: &[f64]) -> Result<String> {
        let local = self.problem.part_of_one();
        let most = largest(local.comm, b.iter().fold(0.0, |m, v| m.max(v.abs())))?;
        let own: Vec<usize> = (0..b.len()).filter(|&u| b[u].abs() >= CARRY * most).collect();
        let rows = Indices::of_own(&local, &own)?;
        let (row, carry) = if rows.count == 1 { ("row", "dominates") } else { ("rows", "dominate") };
        Ok(format!("{row} {} {carry}", rows.named(local.terms)))
    }
}

/// Returns the tolerance at which an x with these residuals would meet `rtol` with rows scaled to norm 1.
fn tolerance(before: Residuals, rtol: f64) -> f64 {
    0.5 * before.plain * rtol / before.by_rows
}

/// Computes both residuals of x; `norm` is ‖b‖ of the system as given. Collective.
fn residuals(inverses: &[f64], system: OriginalSystem, norm: f64, b: &[f64], x: &[f64]) -> Result<Residuals> {
    let r = system.residual(b, x)?;
    let share = |[r, b]: [f64; 2]| if b > 0.0 { r / b } else { r };
    Ok(Residuals {
        plain: share([system.norm(&r)?, norm]),
        by_rows: share(system.pair_of_norms(Some(inverses), &r, b)?),
    })
}

/// Scales the rows of the terms, and their columns if `right` is given. Collective.
fn scaled(problem: &Problem, left: &[f64], right: Option<&[f64]>) -> Result<Terms<'static>> {
    let terms = &problem.terms;
    let b = terms.block();
    let right = match (&terms.halo, right) {
        (Some(halo), Some(right)) => Some(Cow::Owned(halo.with_ghosts(&*problem.comm, b, right)?)),
        (_, right) => right.map(Cow::Borrowed),
    };
    let of = |a: &Bsr| {
        let mut out = a.clone();
        let (row_ptr, col) = (a.row_ptr(), a.col());
        let values = out.values_mut();
        for i in 0..row_ptr.len() - 1 {
            for p in row_ptr[i]..row_ptr[i + 1] {
                for (e, v) in values[p * b * b..(p + 1) * b * b].iter_mut().enumerate() {
                    *v *= left[i * b + e / b];
                    if let Some(right) = &right {
                        *v *= right[col[p] as usize * b + e % b];
                    }
                }
            }
        }
        out
    };
    let all = terms.terms.iter().map(|(c, a)| (c.clone(), Cow::Owned(of(a)))).collect();
    Ok(Terms { terms: all, halo: terms.halo.clone() })
}

/// Returns the own rows with other entries than the diagonal, which exceeds their sum beyond rounding.
/// Codes impose boundary values by such penalties, often of 10³⁰. Then the row means xᵢ = bᵢ/aᵢᵢ, and
/// stays out of the scaling of a symmetric system, which would make yᵢ much larger than other unknowns.
fn penalties(terms: &Terms) -> Vec<usize> {
    let [(_, a)] = &terms.terms[..] else { return Vec::new() };
    if terms.stages() > 1 {
        return Vec::new();
    }
    let (b, arrays) = (a.block(), Arrays::of(a));
    let is_penalty = |u: &usize| {
        let (mut diagonal, mut others) = (0.0, 0.0);
        for p in arrays.row(u / b) {
            let first = arrays.col[p] as usize * b;
            for (c, v) in arrays.values[p * b * b + u % b * b..][..b].iter().enumerate() {
                *(if first + c == *u { &mut diagonal } else { &mut others }) += v.abs();
            }
        }
        others > 0.0 && others < f64::EPSILON / 2.0 * diagonal
    };
    (0..a.block_rows() * b).into_par_iter().with_min_len(512).filter(is_penalty).collect()
}

/// Sets the entries beside the diagonals of these rows to zero.
fn keep_diagonals(terms: &mut Terms, rows: &[usize]) {
    for (_, a) in &mut terms.terms {
        let (b, a) = (a.block(), a.to_mut());
        let places: Vec<usize> = {
            let arrays = Arrays::of(a);
            let of = |&u: &usize| {
                let entries = arrays.row(u / b).flat_map(move |p| (0..b).map(move |c| (p, c)));
                let beside = entries.filter(move |&(p, c)| arrays.col[p] as usize * b + c != u);
                beside.map(move |(p, c)| p * b * b + u % b * b + c)
            };
            rows.iter().flat_map(of).collect()
        };
        let values = a.values_mut();
        places.into_iter().for_each(|place| values[place] = 0.0);
    }
}

/// Returns true if uᵀAv = vᵀAu for random u and v. Collective.
fn is_symmetric(system: OriginalSystem, n: usize) -> Result<bool> {
    let random = |seed: u64| -> Vec<f64> {
        let seed = seed + 2 * system.comm.rank() as u64;
        (0..n).map(|i| crate::space::random(seed, i as u64)).collect()
    };
    let (u, v, zero) = (random(11), random(12), vec![0.0; n]);
    let (au, av) = (system.residual(&zero, &u)?, system.residual(&zero, &v)?);
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    let mut sums = [dot(&u, &av), dot(&v, &au), dot(&av, &av), dot(&u, &u)];
    system.comm.sum(&mut sums)?;
    Ok((sums[0] - sums[1]).abs() <= ROUNDING * (sums[2] * sums[3]).sqrt())
}

impl Scaled {
    /// Sets up a solver for the system with rows scaled to norm 1. Collective.
    fn of(solver: &mut Solver) -> Result<Self> {
        let Solver { problem, workers, .. } = solver;
        let (n, s) = (problem.own_len(), problem.stages());
        let scale = || -> Result<_> {
            let half = scales(&problem.terms, 0.5);
            let terms = scaled(problem, &half, Some(&half))?;
            let original = OriginalSystem { terms: &terms, comm: &*problem.comm };
            let symmetric = is_symmetric(original, n)?;
            let penalties = penalties(&problem.terms);
            let mut any = [f64::from(u8::from(!penalties.is_empty()))];
            problem.comm.sum(&mut any)?;
            if symmetric && any[0] == 0.0 {
                return Ok((terms, half.clone(), Some(half)));
            }
            drop(terms);
            let whole = scales(&problem.terms, 1.0);
            let (mut left, mut right) =
                if symmetric { (half.clone(), Some(half)) } else { (whole.clone(), None) };
            for &i in &penalties {
                left[i] = whole[i];
                right.iter_mut().for_each(|right| right[i] = 1.0);
            }
            let mut terms = scaled(problem, &left, right.as_deref())?;
            keep_diagonals(&mut terms, &penalties);
            Ok((terms, left, right))
        };
        let (terms, left, right) = workers.first(scale)?;
        let by_stage = |scales: Vec<f64>| -> Vec<f64> {
            scales.into_iter().flat_map(|v| std::iter::repeat_n(v, s)).collect()
        };
        let (left, right) = (by_stage(left), right.map(by_stage));
        let mut less = problem.clone().into_owned();
        less.terms = terms;
        less.given = Vec::new();
        less.fields = Arc::new(less.fields.given());
        if let Some(right) = &right {
            let divide = |v: &mut Vec<f64>| v.iter_mut().zip(right).for_each(|(v, r)| *v /= r);
            less.null.to_mut().iter_mut().for_each(divide);
            less.near = less.near.map(|near| near.divided(right));
        }
        let given = &*solver.options;
        // Errors of f32 may be why the solve continues.
        let precond_precision = given.precond_precision.map(|_| PrecondPrecision::F64);
        let zeros = Some(ZerosChoice::Keep);
        let options = Options { zeros, time_limit: None, precond_precision, ..given.clone() };
        let mut solver = Solver::new_cancellable(less, &options, &solver.cancel, None)?;
        solver.is_scaled = true;
        Ok(Self::Rows { solver: Box::new(solver), left, right })
    }
}

impl super::Solution {
    /// Appends the result of a solve that continued this one.
    fn follow(&mut self, inner: &Self) {
        fallbacks::join(&mut self.history, &inner.history);
        (self.method, self.precond) = (inner.method, inner.precond.clone());
        (self.equilibrated, self.matched) = (inner.equilibrated, inner.matched);
        self.setup_parts.add(inner.setup_parts);
        self.setup_seconds += inner.setup_seconds;
        self.solve_seconds += inner.solve_seconds;
        let done = self.history.iterations - inner.history.iterations;
        self.restarted.extend(inner.restarted.iter().map(|at| done + at));
        for event in inner.events.iter().filter(|e| e.kind > EventKind::Choice) {
            let iteration = event.iteration.map(|at| done + at);
            self.insert(self.events.len(), Event { iteration, ..event.clone() });
        }
    }
}
