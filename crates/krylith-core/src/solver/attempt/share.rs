//! Products that ranks share with whole vectors (option `share`), within a solve whose rows are distributed.
//!
//! The analysis of the system and everything around an attempt use distributed rows, as in any solve. Only
//! the method itself runs in a second space, with vectors of the whole length on every rank. Its operator is
//! [`Replicated`], which shares the rows of a product, and every rank applies the preconditioner to the whole
//! vector. So no rank needs the whole matrix, but all vectors of the method are as long as on one rank.

use super::{Attempt, Current, Rank};
use crate::comm::{Communicator, agree, largest};
use crate::interrupt;
use crate::matching::MatchingChoice;
use crate::memory::Numbers;
use crate::method::Method;
use crate::operator::{
    Collecting, Format, LinearOperator, Replicated, ShareSpec, Terms, WholeRows, whole_diagonal,
};
use crate::options::Options;
use crate::partition::replicated::Mode;
use crate::precond::{Boxed, PrecondInfo, PrecondSpec};
use crate::problem::LocalProblem;
use crate::profile::{self, SetupPart};
use crate::solver::SolverSpace;
use crate::solver::build::whole_jacobi;
use crate::solver::diagnosis::Diagnosis;
use crate::solver::refine::{self, Parts, Vectors};
use crate::solver::solution::{DeviceUsed, Event, EventKind};
use crate::space::{History, Observer, Precision, Stop};
use crate::text::seconds;
use crate::{Error, Result};
use std::sync::Arc;
use std::time::Instant;

/// Iterations of a measurement, and the number of measurements, of which the first compiles and records.
const TRIAL: usize = 24;
const ROUNDS: usize = 3;

/// How the products of a rank's attempts are shared.
pub(super) struct Sharing<S: SolverSpace> {
    comm: Arc<dyn Communicator>,
    /// The modes with whole vectors that may be used; none after a measurement that halos have won.
    choice: Choice,
    whole: Option<Whole<S>>,
    /// The name of the present mode.
    name: Arc<str>,
}

/// The option, as far as it has been decided.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Choice {
    Halo,
    /// The first attempt that can have whole vectors measures the modes.
    Measure,
    Mode(Mode),
}

/// The space, the operator and the vectors of a method with whole vectors.
struct Whole<S: SolverSpace> {
    operator: Replicated<S>,
    p: Boxed<S>,
    collecting: Collecting,
    links: Arc<S::Links>,
    on: Vectors<S>,
    /// b and x on the host.
    host: [Vec<f64>; 2],
    space: S,
}

impl<S: SolverSpace> Sharing<S> {
    /// Returns products with halos, whatever the options say.
    pub fn halo(comm: &Arc<dyn Communicator>) -> Self {
        Self { comm: comm.clone(), choice: Choice::Halo, whole: None, name: "halo".into() }
    }

    /// Checks the option, and returns the event that reports why it has no effect. Collective; every rank
    /// gets the same error.
    pub fn new(
        comm: &Arc<dyn Communicator>,
        local: &LocalProblem,
        options: &Options,
        device: &DeviceUsed,
        diagnosis: &Diagnosis,
    ) -> Result<(Self, Option<Event>)> {
        let spec = options.share.unwrap_or_default();
        let mut sharing = Self::halo(comm);
        let no_effect = |why: &str| {
            let text = format!("share={spec} has no effect: {why}");
            Some(Event::new(EventKind::Choice, None, text))
        };
        if spec == ShareSpec::Halo {
            return Ok((sharing, None));
        }
        if comm.size() == 1 {
            return Ok((sharing, no_effect("one device solves")));
        }
        let unfit = unfit(local, options, device, diagnosis);
        let fixed = options.deterministic == Some(true);
        match (unfit, spec) {
            (Some(why), ShareSpec::Auto) => return Ok((sharing, no_effect(&why))),
            (Some(why), _) => {
                return Err(Error::Unsupported(format!("share={spec}: {why}; use share=halo")));
            }
            (None, ShareSpec::Auto) if fixed => {
                return Ok((sharing, no_effect("deterministic=true excludes choices by measured times")));
            }
            (None, ShareSpec::Auto) => sharing.choice = Choice::Measure,
            (None, _) => {
                let numbers = [local.terms.rows() as f64, stored(local.terms)];
                let [rows, entries] = sums(&**comm, numbers)?;
                let mode = spec.mode(entries / rows.max(1.0), comm.size());
                sharing.choice = mode.map_or(Choice::Halo, Choice::Mode);
            }
        }
        Ok((sharing, None))
    }

    /// Returns the name of the mode for reports; `None` on one rank.
    pub fn name(&self) -> Option<Arc<str>> {
        (self.comm.size() > 1).then(|| self.name.clone())
    }

    /// Builds the method of an attempt, in the space that it works in. Returns true if that has whole
    /// vectors. `own` is scratch. Collective; every rank gets the same error.
    pub fn method(
        &mut self,
        (space, own): (&S, &mut Vectors<S>),
        local: &LocalProblem,
        attempt: &Attempt,
        (a, p, info): (&dyn LinearOperator<S>, &Boxed<S>, &PrecondInfo),
        events: &mut Vec<Event>,
    ) -> Result<(Box<dyn Method<S>>, bool)> {
        let fits = by_whole_vectors(&attempt.precond) && !attempt.equilibrate && !attempt.matching;
        if fits && self.choice == Choice::Measure {
            let event = match self.measure((space, own), local, attempt, (a, p, info)) {
                Ok(event) => event,
                // A mode may need memory or links that halos do not.
                Err(e) if !e.is_fatal() && !e.is_interrupt() => {
                    (self.choice, self.whole) = (Choice::Halo, None);
                    Event::new(EventKind::Choice, None, format!("share=auto keeps halo: {e}"))
                }
                Err(e) => return Err(e),
            };
            events.push(event);
        }
        let Choice::Mode(mode) = self.choice else {
            return Ok((self.built(space, attempt)?, false));
        };
        if !fits {
            (self.whole, self.name) = (None, "halo".into());
            return Ok((self.built(space, attempt)?, false));
        }
        if self.whole.is_none() {
            let rows = WholeRows::new(&*self.comm, local.terms)?;
            self.whole = Some(Whole::new(space, &self.comm, &rows, mode)?);
        }
        self.name = mode.to_string().into();
        let comm = self.comm.clone();
        let Some(whole) = &mut self.whole else {
            return Err(Error::Internal("a mode with whole vectors without a space for them".into()));
        };
        whole.precondition(&*comm, local, &attempt.precond, info)?;
        let method = attempt.method.build(&whole.space).and_then(|m| whole.space.wait().map(|()| m));
        Ok((agree(&*comm, method)?, true))
    }

    /// Builds a method with distributed vectors.
    pub fn built(&self, space: &S, attempt: &Attempt) -> Result<Box<dyn Method<S>>> {
        let method = attempt.method.build(space).and_then(|m| space.wait().map(|()| m));
        agree(&*self.comm, method)
    }

    /// Measures iterations of the attempt's method with halos and in each mode, and keeps the fastest. All
    /// vector operations count, because those on whole vectors take longer. Every rank decides alike, by the
    /// times of the slowest rank. Collective.
    fn measure(
        &mut self,
        (space, own): (&S, &mut Vectors<S>),
        local: &LocalProblem,
        attempt: &Attempt,
        (a, p, info): (&dyn LinearOperator<S>, &Boxed<S>, &PrecondInfo),
    ) -> Result<Event> {
        let _measuring = profile::begin(SetupPart::Product);
        let comm = &self.comm.clone();
        agree(&**comm, space.random(1, local.numbers, local.order(), &mut own.b))?;
        let mut method = self.built(space, attempt)?;
        let halo = {
            let p = p.as_ref().map(|p| p as &dyn LinearOperator<S>);
            seconds_of_iteration(&**comm, space, &mut *method, (a, p), own)?
        };
        drop(method);
        let mut times = vec![("halo".to_string(), halo)];
        let rows = WholeRows::new(&**comm, local.terms)?;
        let modes = candidates(&rows, comm.size(), space.is_gpu() && comm.shares_address_space());
        let mut whole = Whole::new(space, comm, &rows, modes[0])?;
        whole.precondition(&**comm, local, &attempt.precond, info)?;
        let mut host = vec![0.0; space.len()];
        agree(&**comm, space.read(&own.b, &mut host))?;
        whole.collecting.collect(&host, &mut whole.host[0])?;
        let built = whole.space.write(&whole.host[0], &mut whole.on.b);
        let built = built.and_then(|()| attempt.method.build(&whole.space));
        let mut method = agree(&**comm, built)?;
        for &mode in &modes {
            interrupt::check_together(&**comm)?;
            whole.take(comm, &rows, mode)?;
            let p = whole.p.as_ref().map(|p| p as &dyn LinearOperator<S>);
            let parts = (&whole.operator as &dyn LinearOperator<S>, p);
            let time = seconds_of_iteration(&**comm, &whole.space, &mut *method, parts, &mut whole.on)?;
            times.push((mode.to_string(), time));
        }
        let _ = (space.take_phases(), whole.space.take_phases()); // a solve reports its own phases
        let best = (0..times.len()).min_by(|&i, &j| times[i].1.total_cmp(&times[j].1)).unwrap_or(0);
        self.choice = match best {
            0 => Choice::Halo,
            best => {
                whole.take(comm, &rows, modes[best - 1])?;
                self.whole = Some(whole);
                Choice::Mode(modes[best - 1])
            }
        };
        let all: Vec<String> =
            times.iter().map(|(name, time)| format!("{name} {}", seconds(*time))).collect();
        let text = format!("share=auto keeps {}: an iteration takes {}", times[best].0, all.join(", "));
        Ok(Event::new(EventKind::Choice, None, text))
    }

    /// Takes new values of the matrix. Collective; every rank gets the same error.
    pub fn renew(&mut self, local: &LocalProblem) -> Result<()> {
        let Some(whole) = &mut self.whole else { return Ok(()) };
        let rows = WholeRows::new(&*self.comm, local.terms)?;
        let mode = whole.operator.mode();
        whole.operator = Replicated::of_rows(&whole.space, &self.comm, &whole.links, &rows, mode)?;
        Ok(())
    }

    /// Computes the preconditioner of the whole vector from new values. Collective; every rank gets the same
    /// error.
    pub fn renew_precond(
        &mut self,
        local: &LocalProblem,
        precond: &PrecondSpec,
        info: &PrecondInfo,
    ) -> Result<()> {
        match &mut self.whole {
            Some(whole) => whole.precondition(&*self.comm, local, precond, info),
            None => Ok(()),
        }
    }

    /// Returns the storage format of products: scalar rows for whole vectors, else that of `a`.
    pub fn format(&self, a: Format) -> Format {
        if &*self.name == "halo" { a } else { Format::Csr }
    }

    /// Returns the bytes of one product and of one application of the preconditioner, and the length of the
    /// method's vectors, if it works with whole vectors.
    pub fn sizes(&self, is_whole: bool) -> Option<(u64, usize)> {
        let whole = self.whole.as_ref().filter(|_| is_whole)?;
        let p = whole.p.as_ref().map_or(0, |p| p.bytes());
        Some((whole.operator.bytes() + p, whole.space.len()))
    }

    /// Returns the seconds of each phase since the last call, if a space with whole vectors records them.
    pub fn take_phases(&self) -> Option<crate::space::Phases> {
        self.whole.as_ref().and_then(|whole| whole.space.take_phases())
    }
}

impl<S: SolverSpace> Whole<S> {
    /// Makes the space, its vectors and the operator. Collective; every rank gets the same error.
    fn new(space: &S, comm: &Arc<dyn Communicator>, rows: &WholeRows, mode: Mode) -> Result<Self> {
        let n = rows.rows();
        let made = space.beside(n).and_then(|whole| {
            let on = Vectors { b: whole.vector()?, x: whole.vector()? };
            Ok((whole, on))
        });
        let (whole, on) = agree(&**comm, made)?;
        // The distributed space has linked the devices already.
        let links = space.link(comm)?;
        let operator = Replicated::of_rows(&whole, comm, &links, rows, mode)?;
        let (collecting, host) = (Collecting::new(&**comm, rows)?, [vec![0.0; n], vec![0.0; n]]);
        Ok(Self { operator, p: None, collecting, links, on, host, space: whole })
    }

    /// Changes the mode. Collective; every rank gets the same error.
    fn take(&mut self, comm: &Arc<dyn Communicator>, rows: &WholeRows, mode: Mode) -> Result<()> {
        if self.operator.mode() != mode {
            self.operator = Replicated::of_rows(&self.space, comm, &self.links, rows, mode)?;
        }
        Ok(())
    }

    /// Builds the preconditioner of the whole vector, like the one of own rows that `info` describes.
    /// Collective; every rank gets the same error.
    fn precondition(
        &mut self,
        comm: &dyn Communicator,
        local: &LocalProblem,
        precond: &PrecondSpec,
        info: &PrecondInfo,
    ) -> Result<()> {
        self.p = None;
        if info.name == "jacobi" {
            let diagonal = whole_diagonal(comm, local.terms)?;
            let block = if let PrecondSpec::Jacobi { block } = precond { *block } else { None };
            let p = whole_jacobi(&self.space, &Terms::bsr(&diagonal), local, block);
            self.p = agree(comm, p)?;
        }
        Ok(())
    }

    /// Runs one solve from `x`, which does not change. Own entries of the solution are in
    /// [`own_x`](Self::own_x) afterwards.
    fn solve<'m>(
        &mut self,
        method: &'m mut dyn Method<S>,
        stop: Stop,
        (rhs, x): (Numbers, Numbers),
        observer: &mut dyn Observer,
    ) -> Result<&'m History> {
        let (mut scratch, [b, guess]) = (Vec::new(), &mut self.host);
        self.collecting.collect(rhs.on_host(&mut scratch)?, b)?;
        let mut scratch = Vec::new();
        self.collecting.collect(x.on_host(&mut scratch)?, guess)?;
        let p = self.p.as_ref().map(|p| p as &dyn LinearOperator<S>);
        let parts = Parts { space: &self.space, a: &self.operator, p, stop };
        let (b, x) = (Numbers::from(&*b), Numbers::from(&*guess));
        let history = refine::once(&parts, method, b, x, &mut self.on, observer)?;
        self.space.read(&self.on.x, guess)?;
        self.space.check_links(&self.links)?;
        Ok(history)
    }

    /// Returns own entries of the last solution.
    fn own_x(&self) -> &[f64] {
        &self.host[1][self.collecting.own()]
    }
}

impl<S: SolverSpace> Rank<S> {
    /// Runs one attempt with whole vectors from `x`. Its history is in `self.history`, and own entries of the
    /// solution are in `self.on.x`. Returns false if the attempt has distributed vectors.
    pub(super) fn attempt_on_whole_vectors(
        &mut self,
        stop: Stop,
        (rhs, x): (Numbers, Numbers),
        observer: &mut dyn Observer,
    ) -> Result<bool> {
        let Some(Current { method, is_whole: true, .. }) = &mut self.current else { return Ok(false) };
        let Some(whole) = &mut self.sharing.whole else { return Ok(false) };
        let history = whole.solve(&mut **method, stop, (rhs, x), observer)?;
        crate::solver::solution::copy_history(&mut self.history, history);
        self.space.write(whole.own_x(), &mut self.on.x)?;
        Ok(true)
    }
}

/// Returns the reason why a system cannot be solved with whole vectors, if there is one.
fn unfit(
    local: &LocalProblem,
    options: &Options,
    device: &DeviceUsed,
    diagnosis: &Diagnosis,
) -> Option<String> {
    let precond = options.precond_or_auto();
    if local.stages.is_some() || local.terms.terms().len() > 1 || local.terms.stages() > 1 {
        return Some(
            "whole vectors need a single matrix, and the system is a sum of Kronecker products".into(),
        );
    }
    if !local.null.is_empty() {
        return Some("null vectors are projected only from distributed vectors".into());
    }
    if diagnosis.untouched().is_some() {
        return Some(
            "the matrix has empty columns, whose unknowns only distributed vectors leave out".into(),
        );
    }
    if options.precision.unwrap_or_default() != Precision::F64 {
        return Some("whole vectors need precision=f64".into());
    }
    if options.equilibrate == Some(true) {
        return Some("equilibrate=true changes the rows, which whole vectors do not support".into());
    }
    if options.matching == Some(MatchingChoice::On) {
        return Some("matching=on changes the rows, which whole vectors do not support".into());
    }
    if *precond != PrecondSpec::Auto && !by_whole_vectors(precond) {
        return Some(format!(
            "every rank applies the preconditioner to whole vectors, which only jacobi and none support, and \
             not {precond}"
        ));
    }
    let other = device.names.iter().find(|name| **name != device.names[0]);
    other.map(|other| {
        format!("whole vectors need devices of one kind, and there are {} and {other}", device.names[0])
    })
}

/// Returns true if every rank can apply this preconditioner to the whole vector at little cost.
fn by_whole_vectors(precond: &PrecondSpec) -> bool {
    matches!(precond, PrecondSpec::None | PrecondSpec::Jacobi { .. } | PrecondSpec::Auto)
}

/// Returns the modes that are worth a measurement.
fn candidates(rows: &WholeRows, ranks: usize, stores: bool) -> Vec<Mode> {
    let mut all = Mode::candidates(rows.mean_row(), ranks);
    // On the host `fused` is `nz`, and GPUs of several processes do not have it. If one rank alone were the
    // fastest, more devices would not pay.
    all.retain(|mode| *mode != Mode::Alone && (stores || *mode != Mode::Fused));
    all
}

/// Returns the number of entries of scalar rows.
fn stored(terms: &Terms) -> f64 {
    terms.terms().iter().map(|(_, a)| a.stored() as f64).sum()
}

fn sums(comm: &dyn Communicator, mut numbers: [f64; 2]) -> Result<[f64; 2]> {
    comm.sum(&mut numbers)?;
    Ok(numbers)
}

/// Returns the seconds of an iteration on the slowest rank, from x = 0. Collective.
fn seconds_of_iteration<S: SolverSpace>(
    comm: &dyn Communicator,
    space: &S,
    method: &mut dyn Method<S>,
    (a, p): (&dyn LinearOperator<S>, Option<&dyn LinearOperator<S>>),
    on: &mut Vectors<S>,
) -> Result<f64> {
    let stop = Stop { rtol: 0.0, atol: 0.0, max_iters: TRIAL, ..Stop::default() };
    let zero = agree(comm, space.vector())?;
    let mut best = f64::INFINITY;
    for round in 0..ROUNDS {
        space.copy(&zero, &mut on.x)?;
        space.wait()?;
        comm.sum(&mut [0.0])?;
        let begin = Instant::now();
        let iterations = method.solve(space, a, p, &on.b, &mut on.x, &stop, &mut ())?.iterations;
        space.wait()?;
        let taken = largest(comm, begin.elapsed().as_secs_f64())?;
        if round > 0 {
            best = best.min(taken / iterations.max(1) as f64);
        }
    }
    Ok(best)
}
