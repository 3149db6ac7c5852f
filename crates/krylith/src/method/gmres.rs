//! Restarted GMRES with right preconditioning (Saad and Schultz 1986; OKP paper, Alg. 1).
//!
//! Memory traffic of iteration j, vectors of N numbers: one product, one preconditioner, and
//! * `lowsync`: basis read twice, w and z read twice, q and w written: (2j + 6) N, **one** reduction;
//! * `cgs2`: basis read four times: (4j + 8) N, two reductions and a norm;
//! * `mgs`: z read and written for every column: (4j + 5) N, j + 2 reductions.
//!
//! Every cycle starts from the true residual b − A x, so that a basis stored in f32, or an estimate gone wrong,
//! costs iterations and never accuracy; "converged" is only said of the true residual.

use crate::operator::LinearOperator;
use crate::space::arnoldi::{self, INVARIANT, Layout, NOT_FINITE, Step};
use crate::space::{
    FLAGS, History, LEFT, Observer, Outcome, Phase, Progress, REASON, Space, Stop, Store, TAKEN,
};
use crate::{Result, sweeps};

sweeps! {
    /// The vector passes of this method.
    pub const SWEEPS;
    /// ‖b‖².
    norm_squared: () [b] [] -> [bb] { bb += b * b; }
    /// r = b − q, and ‖r‖².
    residual: () [b, q] [r] -> [rr] {
        r = b - q;
        rr += r * r;
    }
    /// x += u.
    correct: () [u] [x] -> [] { x += u; }
}

/// How a new basis vector is made orthogonal to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Orthogonalization {
    /// Delayed classical Gram–Schmidt with re-orthogonalisation: one reduction an iteration, stable as CGS2.
    #[default]
    Lowsync,
    /// Classical Gram–Schmidt, twice.
    Cgs2,
    /// Modified Gram–Schmidt.
    Mgs,
}

/// What [`Gmres`] is built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GmresOptions {
    /// Basis vectors before a restart, m.
    pub restart: usize,
    /// Orthogonalisation.
    pub orthogonalization: Orthogonalization,
    /// Precision in which the basis is stored.
    pub basis: Store,
}

impl Default for GmresOptions {
    fn default() -> Self {
        Self { restart: 30, orthogonalization: Orthogonalization::Lowsync, basis: Store::F64 }
    }
}

/// GMRES(m) and its workspace: m vectors of basis and five more. A second solve allocates nothing.
pub struct Gmres<S: Space> {
    options: GmresOptions,
    layout: Layout,
    scalars: S::Scalars,
    v: S::Basis,
    w: S::Vector,
    z: S::Vector,
    u: S::Vector,
    b: S::Vector,
    x: S::Vector,
    header: Vec<f64>,
    history: History,
    opening: S::Recording,
    cycle: S::Recording,
}

impl<S: Space> Gmres<S> {
    /// Allocates the workspace.
    ///
    /// # Errors
    /// A restart of 0, or a device without room.
    pub fn new(space: &S, options: GmresOptions) -> Result<Self> {
        let m = options.restart;
        if m == 0 {
            return Err(crate::Error::invalid("the restart length of GMRES must be at least 1"));
        }
        let layout = Layout::new(m);
        Ok(Self {
            options,
            layout,
            scalars: space.scalars(layout.len)?,
            v: space.basis(m, options.basis)?,
            w: space.vector()?,
            z: space.vector()?,
            u: space.vector()?,
            b: space.vector()?,
            x: space.vector()?,
            header: vec![0.0; layout.header()],
            history: History::with_room(0),
            opening: S::Recording::default(),
            cycle: S::Recording::default(),
        })
    }

    /// The basis of the last cycle, for tests of its orthogonality.
    pub fn basis(&self) -> &S::Basis {
        &self.v
    }

    /// Solves A x = b from the given x; `p` applies P⁻¹ from the right.
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

        s.sweep(norm_squared, &mut self.scalars, [], [&self.b], [], [l.gram])?;
        let mut flags = [0; FLAGS];
        s.read_scalars(&self.scalars, 0, &mut self.header, &mut flags)?;
        let norm_b = self.header[l.gram].sqrt();
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
        self.header[l.target] = target;
        self.header[l.trusted] = arnoldi::trusted(self.options.basis);
        self.header[l.rank] = arnoldi::rank(self.options.basis);
        flags = [0; FLAGS];
        flags[LEFT] = stop.max_iterations.min(i32::MAX as usize) as i32;
        s.write_scalars(&mut self.scalars, 0, &self.header, &flags)?;

        let key = a.key() ^ p.map_or(0, |p| p.key().rotate_left(32));
        let mut opening = std::mem::take(&mut self.opening);
        let done = s.record(&mut opening, key, |s| self.start(s, a));
        self.opening = opening;
        done?;
        s.post(&mut self.scalars, l.header())?;

        // Where the device runs ahead of the host, a cycle is under way before the one before it is looked at; if
        // that was the last, `Begin` finds so too, and the cycle does nothing.
        let (mut under_way, mut interrupted) = (1, false);
        let mut first = f64::NAN;
        let (mut best, mut idle) = (f64::INFINITY, 0);
        let mut outcome = loop {
            while under_way <= s.lag() && !interrupted {
                interrupted = self.cycle(s, a, p, key, norm_b, target, observer)?;
                under_way += 1;
            }
            s.collect(&mut self.scalars, &mut self.header, &mut flags)?;
            under_way -= 1;
            let beta = self.header[l.norm];
            self.note_cycle(&flags, norm_b);
            let iterations = self.history.iterations;
            let reason = flags[REASON];
            if iterations == 0 {
                first = beta;
            }
            if beta <= target {
                break Outcome::Converged;
            }
            if !beta.is_finite() || reason == NOT_FINITE {
                break Outcome::NotFinite;
            }
            if beta > 1e4 * first {
                break Outcome::Diverged;
            }
            let progress = beta < best * (1.0 - 1e-8);
            if reason == INVARIANT && !progress {
                // Rounding sets a floor to ‖r‖; above it, an invariant space means a singular matrix.
                break if beta < 1e-10 * norm_b { Outcome::Stagnated } else { Outcome::Breakdown };
            }
            // Twice in a row: the first cycle after an optimistic estimate may stand still.
            idle = if progress { 0 } else { idle + 1 };
            if idle >= 2 {
                break Outcome::Stagnated;
            }
            if iterations >= stop.max_iterations {
                break Outcome::MaxIterations;
            }
            best = beta.min(best);
            let progress =
                Progress { iteration: iterations, relative_residual: beta / norm_b, target: target / norm_b };
            if interrupted || s.any(observer.progress(progress).is_break())? {
                break Outcome::Interrupted;
            }
            if s.lag() == 0 {
                interrupted = self.cycle(s, a, p, key, norm_b, target, observer)?;
                under_way += 1;
            }
        };
        while under_way > 0 {
            s.collect(&mut self.scalars, &mut self.header, &mut flags)?;
            under_way -= 1;
            self.note_cycle(&flags, norm_b);
            if self.header[l.norm] <= target {
                outcome = Outcome::Converged;
            }
        }
        self.history.outcome = outcome;
        s.copy(&self.x, x)?;
        s.wait()?;
        self.history.true_relative_residual = self.header[l.norm] / norm_b;
        Ok(&self.history)
    }

    /// One cycle, from the residual in w to the next; true if the observer broke it off.
    fn cycle(
        &mut self,
        s: &S,
        a: &dyn LinearOperator<S>,
        p: Option<&dyn LinearOperator<S>>,
        key: u64,
        norm_b: f64,
        target: f64,
        observer: &mut dyn Observer,
    ) -> Result<bool> {
        let (before, mut interrupted) = (self.history.iterations, false);
        let mut cycle = std::mem::take(&mut self.cycle);
        let done = s.record(&mut cycle, key, |s| {
            let watch = &mut |j: usize, r: f64| {
                let progress = Progress {
                    iteration: before + j,
                    relative_residual: r / norm_b,
                    target: target / norm_b,
                };
                interrupted = observer.progress(progress).is_break();
                interrupted
            };
            self.iterate(s, a, p, watch)?;
            self.finish(s, p)?;
            self.start(s, a)
        });
        self.cycle = cycle;
        done?;
        s.post(&mut self.scalars, self.layout.header())?;
        Ok(interrupted)
    }

    /// w = b − A x, β = ‖w‖.
    fn start(&mut self, s: &S, a: &dyn LinearOperator<S>) -> Result<()> {
        s.guard(None);
        s.mark(Phase::Product);
        a.apply_exact(s, &self.x, &mut self.z)?;
        s.mark(Phase::Other);
        s.sweep(residual, &mut self.scalars, [], [&self.b, &self.z], [&mut self.w], [self.layout.gram])?;
        s.step(Step::Start, &mut self.scalars, &self.layout, 0)
    }

    /// Up to m iterations: V spans the Krylov space of A P⁻¹ from w.
    fn iterate(
        &mut self,
        s: &S,
        a: &dyn LinearOperator<S>,
        p: Option<&dyn LinearOperator<S>>,
        watch: &mut dyn FnMut(usize, f64) -> bool,
    ) -> Result<()> {
        let l = &self.layout;
        let Self { scalars, v, w, z, u, .. } = self;
        s.guard(None);
        s.step(Step::Begin, scalars, l, 0)?;
        s.guard(Some(scalars));
        if s.halted(scalars) {
            return Ok(()); // nothing to do, and known here
        }
        if self.options.orthogonalization != Orthogonalization::Lowsync {
            s.append(v, 0, w, scalars, l.norm)?; // v₀ = r/β
        }
        for j in 0..self.options.restart {
            match p {
                None => {
                    s.mark(Phase::Product);
                    a.apply(s, w, z)?;
                }
                Some(p) => {
                    s.mark(Phase::Preconditioner);
                    p.apply(s, w, u)?;
                    s.mark(Phase::Product);
                    a.apply(s, u, z)?;
                }
            }
            s.mark(Phase::Orthogonalization);
            match self.options.orthogonalization {
                Orthogonalization::Lowsync => {
                    s.project_delayed(v, j, w, z, scalars, l)?;
                    s.update_delayed(v, j, w, z, scalars, l)?;
                }
                Orthogonalization::Cgs2 => {
                    s.project(v, 0..j + 1, z, scalars, l.dots)?;
                    s.subtract(v, 0..j + 1, z, scalars, l.dots, None)?;
                    s.project(v, 0..j + 1, z, scalars, l.dots + l.ld)?;
                    s.subtract(v, 0..j + 1, z, scalars, l.dots + l.ld, Some(l.gram))?;
                    s.step(Step::Classical, scalars, l, j)?;
                }
                Orthogonalization::Mgs => {
                    for k in 0..=j {
                        s.project(v, k..k + 1, z, scalars, l.dots + k)?;
                        s.subtract(v, k..k + 1, z, scalars, l.dots + k, (k == j).then_some(l.gram))?;
                    }
                    s.step(Step::Classical, scalars, l, j)?;
                }
            }
            if self.options.orthogonalization != Orthogonalization::Lowsync && j + 1 < self.options.restart {
                s.copy(z, w)?;
                s.append(v, j + 1, w, scalars, l.norm)?;
            }
            if s.halted(scalars) || s.peek(scalars, l.history + j + 1).is_some_and(|r| watch(j + 1, r)) {
                break;
            }
        }
        Ok(())
    }

    /// x += P⁻¹ V y with the y that minimises the residual.
    fn finish(&mut self, s: &S, p: Option<&dyn LinearOperator<S>>) -> Result<()> {
        let l = &self.layout;
        s.guard(None);
        s.mark(Phase::Other);
        s.step(Step::Solve, &mut self.scalars, l, 0)?;
        s.expand(&self.v, &mut self.z, &mut self.scalars, l.y)?;
        let update = match p {
            None => &self.z,
            Some(p) => {
                s.mark(Phase::Preconditioner);
                p.apply(s, &self.z, &mut self.u)?;
                s.mark(Phase::Other);
                &self.u
            }
        };
        s.sweep(correct, &mut self.scalars, [], [update], [&mut self.x], [])
    }

    /// Appends a cycle's residuals; where a cycle ends the true one replaces the estimate.
    fn note_cycle(&mut self, flags: &[i32; FLAGS], norm_b: f64) {
        let (l, history) = (&self.layout, &mut self.history);
        let (taken, relative) = (flags[TAKEN] as usize, self.header[l.norm] / norm_b);
        history.restarts += (taken > 0 && history.iterations > 0) as usize;
        if history.residuals.is_empty() {
            history.residuals.push(relative);
            return;
        }
        for j in 1..=taken {
            history.residuals.push(self.header[l.history + j] / norm_b);
        }
        *history.residuals.last_mut().expect("the first residual was pushed") = relative;
        history.iterations += taken;
        // The step that finds a NaN, or a delayed one that finds the space invariant, reduces and takes no iteration.
        let (reason, delayed) = (flags[REASON], self.options.orthogonalization == Orthogonalization::Lowsync);
        let steps = taken + (reason == NOT_FINITE || (delayed && reason == INVARIANT)) as usize;
        history.reductions += match self.options.orthogonalization {
            Orthogonalization::Lowsync => steps,
            Orthogonalization::Cgs2 => 3 * steps,
            Orthogonalization::Mgs => steps * (steps + 3) / 2,
        };
    }
}
