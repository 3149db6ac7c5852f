//! BiCGSTAB with right preconditioning (van der Vorst 1992; ILDU paper, Alg. 2.1).
//!
//! Memory traffic of an iteration, vectors of N numbers: two products, two preconditioners, and
//!
//! | pass | `merged` | `classical` |
//! |---|---|---|
//! | (r̂, v), (v, v) | 2 read, **reduction** | 2 read, **reduction** |
//! | s = r − α v | 2 read, 1 written | 2 read, 1 written |
//! | (t, s), (t, t), (s, s) | with (r̂, s), (r̂, t): 3 read, **reduction** | 2 read, **reduction** |
//! | x += α p̂ + ω ŝ, r = s − ω t | with p = r + β (p − ω v): 7 read, 3 written | with (r̂, r), (r, r): 6 read, 2 written, **reduction** |
//! | p = r + β (p − ω v) | | 3 read, 1 written |
//! | all | 18 N, two reductions | 19 N, three reductions |
//!
//! Without a preconditioner p̂ is p and ŝ is s: 16 N and 18 N.
//!
//! `merged` takes (r̂, r) and (r, r) of the new r from products of r̂, s and t, so that β is known before r is (Jacques,
//! Nicolas and Vollaire 1999; Cools and Vanroose 2017, Alg. 5 before its pipeline). (r, r) is then a difference; where it
//! cancels, the true residual is looked at.
//!
//! r is a recurrence and drifts from b − A x, and three inner products may vanish ([`space::bicgstab`](crate::space::bicgstab)).
//! Wherever r claims to be small enough, or cannot go on, the true residual is computed and, if it is not small enough,
//! becomes the r, r̂ and p of a restart. "Converged" is only said of the true residual. The x of the smallest true residual is
//! kept, for a solve that ends otherwise.
//!
//! Left out: split preconditioning K₁⁻¹ A K₂⁻¹. It would change the residual that the iteration sees, and the one that
//! counts is that of the system as given.

use crate::operator::LinearOperator;
use crate::space::arnoldi::NOT_FINITE;
use crate::space::bicgstab::{GREW, LANCZOS, Layout, PIVOT, STABILIZATION, STRETCH, Step};
use crate::space::{
    FLAGS, History, LEFT, Observer, Outcome, Phase, Progress, REASON, Space, Stop, TAKEN, VERIFIED,
};
use crate::{Result, sweeps};

sweeps! {
    /// The vector passes of this method.
    pub const SWEEPS;
    /// ‖b‖².
    norm_squared: () [b] [] -> [bb] { bb += b * b; }
    /// r = r̂ = p = b − q, (r̂, r), (r, r).
    restart: () [b, q] [r, rhat, p] -> [rho, rr] {
        r = b - q;
        rhat = r;
        p = r;
        rho += r * r;
        rr += r * r;
    }
    /// The same with r̂ = r + σ v.
    restart_shifted: (shift) [b, q, v] [r, rhat, p] -> [rho, rr] {
        r = b - q;
        rhat = r + shift * v;
        p = r;
        rho += rhat * r;
        rr += r * r;
    }
    /// The best x so far.
    keep: () [x] [kept] -> [] { kept = x; }
    /// (r̂, v) and (v, v).
    pivot: () [rhat, v] [] -> [sigma, vv] {
        sigma += rhat * v;
        vv += v * v;
    }
    /// s = r − α v, in place of r.
    half: (rho, sigma) [v] [r] -> [] {
        let alpha = rho / sigma;
        r -= alpha * v;
    }
    /// (t, s), (t, t), (s, s).
    stabilizer: () [s, t] [] -> [ts, tt, ss] {
        ts += t * s;
        tt += t * t;
        ss += s * s;
    }
    /// The same, and what (r̂, r) will follow from.
    stabilizer_merged: () [rhat, s, t] [] -> [ts, tt, ss, rs, rt] {
        ts += t * s;
        tt += t * t;
        ss += s * s;
        rs += rhat * s;
        rt += rhat * t;
    }
    /// x += α p̂ + ω ŝ, r = s − ω t, (r̂, r), (r, r).
    update: (alpha, omega) [phat, shat, t, rhat] [x, r] -> [rho, rr] {
        x += alpha * phat + omega * shat;
        r -= omega * t;
        rho += rhat * r;
        rr += r * r;
    }
    /// The same where p̂ = p and ŝ = s.
    update_plain: (alpha, omega) [p, t, rhat] [x, r] -> [rho, rr] {
        x += alpha * p + omega * r;
        r -= omega * t;
        rho += rhat * r;
        rr += r * r;
    }
    /// p = r + β (p − ω v).
    direction: (beta, omega) [r, v] [p] -> [] { p = r + beta * (p - omega * v); }
    /// x += α p̂ + ω ŝ, r = s − ω t, p = r + β (p − ω v).
    advance: (alpha, omega, beta) [phat, shat, t, v] [x, r, p] -> [] {
        x += alpha * phat + omega * shat;
        r -= omega * t;
        p = r + beta * (p - omega * v);
    }
    /// The same where p̂ = p and ŝ = s.
    advance_plain: (alpha, omega, beta) [t, v] [x, r, p] -> [] {
        x += alpha * p + omega * r;
        r -= omega * t;
        p = r + beta * (p - omega * v);
    }
}

/// Restarts in a row that bring no progress before a solve ends. The residual is not monotone: one is no verdict.
const IDLE: usize = 3;

/// How the inner products of an iteration are gathered into reductions over threads, GPUs and ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Reductions {
    /// Two reductions an iteration, one a product.
    #[default]
    Merged,
    /// Three, as the method is written.
    Classical,
}

/// What [`Bicgstab`] is built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BicgstabOptions {
    /// Reductions.
    pub reductions: Reductions,
}

/// BiCGSTAB and its workspace of ten vectors. A second solve allocates nothing.
pub struct Bicgstab<S: Space> {
    options: BicgstabOptions,
    layout: Layout,
    scalars: S::Scalars,
    /// r, and s between the halves of an iteration.
    r: S::Vector,
    rhat: S::Vector,
    p: S::Vector,
    v: S::Vector,
    t: S::Vector,
    phat: S::Vector,
    shat: S::Vector,
    b: S::Vector,
    x: S::Vector,
    kept: S::Vector,
    header: Vec<f64>,
    history: History,
    opening: S::Recording,
    stretch: S::Recording,
}

/// What the host knows of a solve under way.
struct Course {
    norm_b: f64,
    target: f64,
    first: f64,
    /// Smallest true residual so far.
    best: f64,
    /// Restarts in a row without progress.
    idle: usize,
    /// Iterations when the true residual was last known.
    verified: usize,
    /// The iteration that the observer heard of last.
    told: Option<usize>,
}

impl<S: Space> Bicgstab<S> {
    /// Allocates the workspace.
    ///
    /// # Errors
    /// A device without room.
    pub fn new(space: &S, options: BicgstabOptions) -> Result<Self> {
        let layout = Layout::default();
        Ok(Self {
            options,
            layout,
            scalars: space.scalars(layout.len)?,
            r: space.vector()?,
            rhat: space.vector()?,
            p: space.vector()?,
            v: space.vector()?,
            t: space.vector()?,
            phat: space.vector()?,
            shat: space.vector()?,
            b: space.vector()?,
            x: space.vector()?,
            kept: space.vector()?,
            header: vec![0.0; layout.header()],
            history: History::with_room(0),
            opening: S::Recording::default(),
            stretch: S::Recording::default(),
        })
    }

    /// Solves A x = b from the given x; `p` applies P⁻¹ from the right. An iteration takes two products.
    ///
    /// # Errors
    /// What the device says; non-convergence is an [`Outcome`].
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
        let (s, l) = (space, self.layout);
        self.history.clear();
        // Room for what the limit allows, so that a second solve does not allocate; within reason.
        self.history.residuals.reserve(stop.max_iterations.min(1 << 20) + 1);
        s.copy(b, &mut self.b)?;
        s.copy(x, &mut self.x)?;

        s.sweep(norm_squared, &mut self.scalars, [], [&self.b], [], [l.rr])?;
        let (mut flags, mut square) = ([0; FLAGS], [0.0]);
        s.read_scalars(&self.scalars, l.rr, &mut square, &mut flags)?;
        let norm_b = square[0].sqrt();
        self.history.rhs_norm = norm_b;
        if norm_b == 0.0 {
            // The answer is known, whatever the guess.
            s.copy(&self.b, x)?;
            self.history.residuals.push(0.0);
            self.history.true_relative_residual = 0.0;
            self.history.outcome = Outcome::Converged;
            return Ok(&self.history);
        }
        if !norm_b.is_finite() {
            // Squares overflow from about 1e154 on; an infinite target would call anything converged.
            self.history.residuals.push(f64::NAN);
            self.history.outcome = Outcome::NotFinite;
            return Ok(&self.history);
        }
        let target = (stop.rtol * norm_b).max(stop.atol);
        self.header.fill(0.0);
        self.header[l.target] = target;
        self.header[l.best] = f64::INFINITY;
        flags = [0; FLAGS];
        flags[LEFT] = stop.max_iterations.min(i32::MAX as usize) as i32;
        flags[VERIFIED] = 1;
        s.write_scalars(&mut self.scalars, 0, &self.header, &flags)?;

        let key = a.key() ^ p.map_or(0, |p| p.key().rotate_left(32));
        let mut course =
            Course { norm_b, target, first: f64::NAN, best: f64::INFINITY, idle: 0, verified: 0, told: None };
        self.open(s, a, key)?;

        // Where the device runs ahead of the host, a stretch is under way before the one before it is looked at; if
        // that was the last, `Begin` finds so too, and the stretch does nothing.
        let (mut under_way, mut interrupted) = (1, false);
        let mut outcome = loop {
            while under_way <= s.lag() && !interrupted {
                interrupted = self.stretch(s, a, p, key, &mut course, observer)?;
                under_way += 1;
            }
            self.look(s, &mut flags, &course)?;
            under_way -= 1;
            let verified = flags[VERIFIED] != 0;
            if verified && let Some(outcome) = self.judge(&flags, stop, &mut course, observer) {
                break outcome;
            }
            let iteration = self.history.iterations;
            // A restart repeats the iteration that came before it; elsewhere each is told once.
            let news = verified || course.told != Some(iteration);
            course.told = Some(iteration);
            let relative = self.history.residuals.last().copied().unwrap_or(f64::NAN);
            let asks = news && observer.progress(course.progress(iteration, relative * norm_b)).is_break();
            if interrupted || s.any(asks)? {
                break Outcome::Interrupted;
            }
            if s.lag() == 0 {
                interrupted = self.stretch(s, a, p, key, &mut course, observer)?;
                under_way += 1;
            }
        };
        while under_way > 0 {
            self.look(s, &mut flags, &course)?;
            under_way -= 1;
            if flags[VERIFIED] != 0 {
                course.verified = self.history.iterations;
            }
        }
        if course.verified != self.history.iterations {
            // Iterations after the last true residual, of a solve that was broken off.
            self.open(s, a, key)?;
            flags[VERIFIED] = 1;
            s.collect(&mut self.scalars, &mut self.header, &mut flags)?;
            let relative = self.header[l.norm] / norm_b;
            *self.history.residuals.last_mut().expect("the first residual was pushed") = relative;
        }
        let (norm, best) = (self.header[l.norm], self.header[l.best]);
        if norm <= target {
            outcome = Outcome::Converged;
        }
        self.history.outcome = outcome;
        // Residuals are not monotone: a solve that fails gives back the best x that it knows.
        let last = norm <= best || !best.is_finite();
        s.copy(if last { &self.x } else { &self.kept }, x)?;
        s.wait()?;
        self.history.true_relative_residual = if last { norm } else { best } / norm_b;
        Ok(&self.history)
    }

    /// Whether a true residual ends the solve; if not, it has become a restart.
    fn judge(
        &mut self,
        flags: &[i32; FLAGS],
        stop: &Stop,
        course: &mut Course,
        observer: &mut dyn Observer,
    ) -> Option<Outcome> {
        let (beta, reason) = (self.header[self.layout.norm], flags[REASON]);
        let iterations = self.history.iterations;
        course.verified = iterations;
        if course.first.is_nan() {
            course.first = beta;
        }
        let broke = matches!(reason, PIVOT | STABILIZATION | LANCZOS);
        let progress = beta < course.best * (1.0 - 1e-8);
        course.idle = if progress { 0 } else { course.idle + 1 };
        course.best = beta.min(course.best);
        let stuck = course.idle >= IDLE;
        match () {
            () if beta <= course.target => Some(Outcome::Converged),
            () if !beta.is_finite() || reason == NOT_FINITE => Some(Outcome::NotFinite),
            () if beta > 1e4 * course.first => Some(Outcome::Diverged),
            // Rounding sets a floor to ‖r‖; only above it is a breakdown the reason.
            () if stuck && broke && beta >= 1e-10 * course.norm_b => Some(Outcome::Breakdown),
            () if stuck => Some(Outcome::Stagnated),
            () if iterations >= stop.max_iterations => Some(Outcome::MaxIterations),
            () => {
                if reason != 0 {
                    observer.restarted(iterations, why(reason));
                }
                None
            }
        }
    }

    /// Collects what the oldest stretch under way left, and appends its residuals.
    fn look(&mut self, s: &S, flags: &mut [i32; FLAGS], course: &Course) -> Result<()> {
        s.collect(&mut self.scalars, &mut self.header, flags)?;
        let (l, history) = (&self.layout, &mut self.history);
        let (taken, relative) = (flags[TAKEN] as usize, self.header[l.norm] / course.norm_b);
        if history.residuals.is_empty() {
            history.residuals.push(relative);
            return Ok(());
        }
        // Iterations that follow a true residual, other than the first, are those of a restart.
        history.restarts +=
            (taken > 0 && course.verified == history.iterations && history.iterations > 0) as usize;
        history.residuals.extend((1..=taken).map(|j| self.header[l.history + j] / course.norm_b));
        history.iterations += taken;
        if flags[VERIFIED] != 0 {
            *history.residuals.last_mut().expect("the first residual was pushed") = relative;
        }
        // A breakdown or a NaN is found by the second reduction of an iteration that is not taken.
        let lost = matches!(flags[REASON], PIVOT | NOT_FINITE) as usize;
        history.reductions += 2 * lost
            + taken
                * match self.options.reductions {
                    Reductions::Merged => 2,
                    Reductions::Classical => 3,
                };
        Ok(())
    }

    /// The true residual, at the start and where a solve was broken off.
    fn open(&mut self, s: &S, a: &dyn LinearOperator<S>, key: u64) -> Result<()> {
        let mut opening = std::mem::take(&mut self.opening);
        let done = s.record(&mut opening, key, |s| {
            s.guard(None);
            self.restart(s, a, false)?;
            s.guard(None);
            Ok(())
        });
        self.opening = opening;
        done?;
        s.post(&mut self.scalars, self.layout.header())
    }

    /// Up to [`STRETCH`] iterations, and a restart if they end in one; true if the observer broke them off.
    fn stretch(
        &mut self,
        s: &S,
        a: &dyn LinearOperator<S>,
        p: Option<&dyn LinearOperator<S>>,
        key: u64,
        course: &mut Course,
        observer: &mut dyn Observer,
    ) -> Result<bool> {
        let (before, mut interrupted) = (self.history.iterations, false);
        let mut stretch = std::mem::take(&mut self.stretch);
        let done = s.record(&mut stretch, key, |s| {
            let watch = &mut |j: usize, r: f64| {
                course.told = Some(before + j);
                interrupted = observer.progress(course.progress(before + j, r)).is_break();
                interrupted
            };
            s.guard(None);
            s.step(Step::Begin, &mut self.scalars, &self.layout, 0)?;
            s.guard(Some(&self.scalars));
            self.iterate(s, a, p, watch)?;
            s.guard(None);
            s.mark(Phase::Other);
            s.step(Step::Verify, &mut self.scalars, &self.layout, 0)?;
            s.guard(Some(&self.scalars));
            if !s.halted(&self.scalars) {
                self.restart(s, a, true)?;
            }
            s.guard(None);
            Ok(())
        });
        self.stretch = stretch;
        done?;
        s.post(&mut self.scalars, self.layout.header())?;
        Ok(interrupted)
    }

    /// r = p = b − A x, r̂ = r or, if `shifted`, r + σ v; x is kept if it is the best so far.
    fn restart(&mut self, s: &S, a: &dyn LinearOperator<S>, shifted: bool) -> Result<()> {
        let l = &self.layout;
        let Self { scalars, r, rhat, p, v, t, b, x, kept, .. } = self;
        s.mark(Phase::Product);
        a.apply_exact(s, x, t)?;
        s.mark(Phase::Other);
        let sums = [l.rho_next, l.rr];
        match shifted {
            // v of an earlier solve is not looked at.
            false => s.sweep(restart, scalars, [], [b, t], [r, rhat, p], sums)?,
            true => s.sweep(restart_shifted, scalars, [l.shift], [b, t, v], [r, rhat, p], sums)?,
        }
        s.step(Step::Restart, scalars, l, 0)?;
        s.guard(Some(scalars));
        if !s.halted(scalars) {
            s.sweep(keep, scalars, [], [x], [kept], [])?;
        }
        Ok(())
    }

    /// The iterations of a stretch.
    fn iterate(
        &mut self,
        s: &S,
        a: &dyn LinearOperator<S>,
        m: Option<&dyn LinearOperator<S>>,
        watch: &mut dyn FnMut(usize, f64) -> bool,
    ) -> Result<()> {
        let l = &self.layout;
        let merged = self.options.reductions == Reductions::Merged;
        let Self { scalars, r, rhat, p, v, t, phat, shat, x, .. } = self;
        for j in 1..=STRETCH {
            if s.halted(scalars) {
                break;
            }
            times(s, a, m, p, phat, v)?; // v = A p̂
            s.sweep(pivot, scalars, [], [rhat, v], [], [l.sigma, l.vv])?;
            s.sweep(half, scalars, [l.rho, l.sigma], [v], [r], [])?;
            times(s, a, m, r, shat, t)?; // t = A ŝ
            if merged {
                let sums = [l.ts, l.tt, l.ss, l.rs, l.rt];
                s.sweep(stabilizer_merged, scalars, [], [rhat, r, t], [], sums)?;
                s.step(Step::Merged, scalars, l, j)?;
            } else {
                s.sweep(stabilizer, scalars, [], [r, t], [], [l.ts, l.tt, l.ss])?;
                s.step(Step::Coefficients, scalars, l, j)?;
            }
            if s.halted(scalars) {
                break; // a breakdown: x stays as it is
            }
            let (two, three) = ([l.alpha, l.omega], [l.alpha, l.omega, l.beta]);
            let sums = [l.rho_next, l.rr];
            match (merged, m) {
                (true, None) => s.sweep(advance_plain, scalars, three, [t, v], [x, r, p], [])?,
                (true, Some(_)) => s.sweep(advance, scalars, three, [phat, shat, t, v], [x, r, p], [])?,
                (false, None) => s.sweep(update_plain, scalars, two, [p, t, rhat], [x, r], sums)?,
                (false, Some(_)) => s.sweep(update, scalars, two, [phat, shat, t, rhat], [x, r], sums)?,
            }
            if merged {
                s.step(Step::End, scalars, l, j)?;
            } else {
                s.step(Step::Turn, scalars, l, j)?;
                s.sweep(direction, scalars, [l.beta, l.omega], [r, v], [p], [])?;
            }
            if s.peek(scalars, l.history + j).is_some_and(|r| watch(j, r)) {
                break;
            }
        }
        Ok(())
    }
}

impl Course {
    fn progress(&self, iteration: usize, residual: f64) -> Progress {
        Progress { iteration, relative_residual: residual / self.norm_b, target: self.target / self.norm_b }
    }
}

/// `to = A P⁻¹ from`; P⁻¹ from, if there is a P, stays in `hat`.
fn times<S: Space>(
    s: &S,
    a: &dyn LinearOperator<S>,
    p: Option<&dyn LinearOperator<S>>,
    from: &S::Vector,
    hat: &mut S::Vector,
    to: &mut S::Vector,
) -> Result<()> {
    match p {
        None => {
            s.mark(Phase::Product);
            a.apply(s, from, to)?;
        }
        Some(p) => {
            s.mark(Phase::Preconditioner);
            p.apply(s, from, hat)?;
            s.mark(Phase::Product);
            a.apply(s, hat, to)?;
        }
    }
    s.mark(Phase::Orthogonalization);
    Ok(())
}

/// A restart's cause, in words.
fn why(reason: i32) -> &'static str {
    match reason {
        PIVOT => "pivot breakdown: (r̂, A p) vanishes",
        STABILIZATION => "stabilisation breakdown: ω vanishes",
        LANCZOS => "Lanczos breakdown: (r̂, r) vanishes",
        GREW => "the residual grew until its recurrence had no digit left",
        _ => "the residual by recurrence was smaller than the true one",
    }
}
