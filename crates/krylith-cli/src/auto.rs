//! What a solve tries where the user leaves it open: a ladder of attempts within one run, each stronger than the last.
//!
//! An attempt ends without an answer when its preconditioner cannot be built, its method breaks down or stagnates, or its
//! share of the iterations is spent. The next one then begins from the best x so far, if that is better than the first
//! guess. Residuals of all attempts make one curve, and each change is an event. What the user named is never changed:
//! only what is left open differs from attempt to attempt.

use crate::options::{Method, Precond};
use crate::precond;
use crate::precond::spelling::Ildu0;
use crate::run::{self, Job};
use krylith::operator::Terms;
use krylith::partition::SubdomainCut;
use krylith::{History, Observer, Outcome, Progress};
use std::ops::ControlFlow;

/// A step of the ladder, in the words of the command line.
struct Rung {
    precond: &'static str,
    method: Method,
    /// Of GMRES.
    restart: usize,
    /// Of the iterations allowed; the last attempt has what is left.
    share: f64,
}

/// From cheap to strong. BiCGSTAB comes first: on the collected matrices it solves all ten with ILDU(0) of subdomains, where
/// GMRES(30) stagnates on two. Fill then does more than anything else; the longer the restart, the fewer the surprises.
const LADDER: [Rung; 6] = [
    Rung { precond: "ildu0", method: Method::Bicgstab, restart: 30, share: 0.2 },
    Rung { precond: "ildu0:cut=whole", method: Method::Gmres, restart: 100, share: 0.1 },
    Rung { precond: "ildu0:fill=1,cut=whole", method: Method::Gmres, restart: 100, share: 0.1 },
    Rung { precond: "ildu0:fill=2,cut=whole,shift=1e-6", method: Method::Gmres, restart: 200, share: 0.1 },
    Rung { precond: "ildu0:fill=5,cut=whole,shift=1e-3", method: Method::Gmres, restart: 300, share: 0.2 },
    // Auto is jacobi, or none where a diagonal block is singular: it can always be built.
    Rung { precond: "auto", method: Method::Gmres, restart: 300, share: 1.0 },
];

/// Iterations that an attempt has at least, while there are any.
const FEW: usize = 500;

/// Largest entries of rows or columns that differ by more than this are scaled.
const UNEVEN: f64 = 1e6;

/// Smaller residuals are out of reach whatever is tried.
const ROUNDING: f64 = 1e-13;

/// One attempt, decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// Preconditioner.
    pub precond: Precond,
    /// GMRES or BiCGSTAB.
    pub method: Method,
    /// Basis vectors of GMRES; not more than could ever be used.
    pub restart: usize,
    /// Rows and columns are scaled for the preconditioner.
    pub equilibrate: bool,
    /// Most iterations, as long as it is not the last attempt.
    pub iterations: usize,
}

impl Attempt {
    /// `ildu0:cut=whole with gmres(100)`.
    pub fn name(&self) -> String {
        match self.method {
            Method::Bicgstab => format!("{} with bicgstab", self.precond),
            _ => format!("{} with gmres({})", self.precond, self.restart),
        }
    }
}

/// The attempts of a job, at least one, on a device that holds subdomains of at most `most_rows` block rows: where it cannot hold
/// the whole as one, subdomains as large as that take its place. The same on every rank.
pub fn ladder(job: &Job, most_rows: usize) -> Vec<Attempt> {
    let settings = job.settings;
    let nodes = job.unknowns / (job.terms.block() * job.terms.stages());
    let order = job.terms.block() * job.terms.stages();
    let most = job.unknowns.min(settings.max_iters.max(1));
    let equilibrate = job.equilibrate
        || (settings.precond == Precond::Auto && job.comm.size() == 1 && spread(job.terms) > UNEVEN);
    let mut attempts: Vec<(Attempt, Precond)> = Vec::new();
    for rung in &LADDER {
        let precond = match &settings.precond {
            Precond::Auto => match rung.precond.parse().expect("the ladder is spelt right") {
                Precond::Ildu0(ildu) if ildu.cut == SubdomainCut::Whole && nodes > most_rows => {
                    Precond::Ildu0(Ildu0 { cut: SubdomainCut::Auto, rows: Some(most_rows), ..ildu })
                }
                other => other,
            },
            named => named.clone(),
        };
        let method = if settings.method == Method::Auto { rung.method } else { settings.method };
        let restart = match (method, settings.restart) {
            (Method::Bicgstab, _) => 30,
            (_, Some(given)) => given,
            _ => rung.restart,
        };
        let restart = restart.min(most);
        let iterations = ((rung.share * settings.max_iters as f64) as usize).max(FEW);
        // A whole that is no larger than a subdomain is the same twice.
        let alike = match &precond {
            Precond::Ildu0(ildu) if nodes <= ildu.most_rows(order) => {
                Precond::Ildu0(Ildu0 { cut: SubdomainCut::Whole, ..*ildu })
            }
            other => other.clone(),
        };
        let known = attempts.iter().any(|(a, p)| *p == alike && a.method == method && a.restart == restart);
        if !known {
            attempts.push((Attempt { precond, method, restart, equilibrate, iterations }, alike));
        }
    }
    attempts.into_iter().map(|(attempt, _)| attempt).collect()
}

/// True if an attempt that is not the first would not fit the memory that there was before the first.
///
/// Fill is only known when it has been found, and finding it takes the memory: the guess is on the large side.
pub fn too_large(job: &Job, attempt: &Attempt) -> bool {
    let store = job.settings.store;
    let fill = match &attempt.precond {
        Precond::Ildu0(ildu) => 1 + ildu.fill as u64,
        _ => 1,
    };
    let all = run::memory(job.terms, attempt.method, attempt.restart, store, &attempt.precond).total();
    let factors = precond::memory(job.terms, &attempt.precond, store);
    job.room.is_some_and(|room| all + (fill - 1) * factors > room)
}

/// The largest over the smallest of the rows' largest entries, or of the columns' if that is more; empty ones left out.
fn spread(terms: &Terms) -> f64 {
    let (_, a) = &terms.terms[0];
    let mut rows = vec![0.0f64; a.rows()];
    let mut columns = vec![0.0f64; a.columns()];
    for (c, a) in &terms.terms {
        let (b, weight) = (a.block(), c.values().iter().fold(0.0, |m: f64, v| m.max(v.abs())));
        for i in 0..a.block_rows() {
            for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                for (e, v) in a.block_values(p).iter().enumerate() {
                    let (i, j) = (i * b + e / b, a.col()[p] as usize * b + e % b);
                    let v = weight * v.abs();
                    rows[i] = rows[i].max(v);
                    columns[j] = columns[j].max(v);
                }
            }
        }
    }
    let ratio = |v: &[f64]| {
        let some = || v.iter().copied().filter(|v| *v > 0.0);
        some().fold(0.0, f64::max) / some().fold(f64::INFINITY, f64::min)
    };
    ratio(&rows).max(ratio(&columns))
}

/// True if another attempt may do better than one that ended so.
pub fn worth_another(history: &History) -> bool {
    match history.outcome {
        Outcome::Converged | Outcome::Interrupted => false,
        Outcome::Stagnated => history.true_relative_residual > ROUNDING,
        _ => true,
    }
}

/// Puts the history of a later attempt behind that of the earlier ones.
pub fn join(all: &mut History, next: History) {
    // Where the next one begins: the true residual of the x that it was given.
    if let (Some(last), Some(first)) = (all.residuals.last_mut(), next.residuals.first()) {
        *last = *first;
    }
    all.residuals.extend_from_slice(next.residuals.get(1..).unwrap_or_default());
    all.outcome = next.outcome;
    all.iterations += next.iterations;
    all.restarts += next.restarts;
    all.reductions += next.reductions;
}

/// Tells an observer of a later attempt as part of the whole.
pub struct Later<'a> {
    /// Who watches the whole.
    pub observer: &'a mut dyn Observer,
    /// Iterations of the attempts before.
    pub done: usize,
}

impl Observer for Later<'_> {
    fn progress(&mut self, p: Progress) -> ControlFlow<()> {
        // The iteration that ended the attempt before has been told.
        if self.done > 0 && p.iteration == 0 {
            return ControlFlow::Continue(());
        }
        self.observer.progress(Progress { iteration: self.done + p.iteration, ..p })
    }
    fn restarted(&mut self, iteration: usize, why: &'static str) {
        self.observer.restarted(self.done + iteration, why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Given;
    use krylith::comm::Solo;
    use krylith::io::SolverDefaults;
    use krylith::matrix::Bsr;
    use std::sync::Arc;

    fn names(given: Given, n: usize) -> Vec<String> {
        let diagonal = (0..n).map(|i| if i == 0 { 1e-9 } else { 1.0 }).collect();
        let a = Bsr::new(1, n, n, (0..=n).collect(), (0..n as u32).collect(), diagonal).unwrap();
        let settings = given.settle(&SolverDefaults::default(), "").unwrap();
        let terms = Terms::bsr(&a);
        let job = Job {
            terms: &terms,
            rhs: &[],
            x0: &[],
            null: &[],
            equilibrate: false,
            settings: &settings,
            unknowns: n,
            numbers: None,
            comm: Arc::new(Solo),
            coordinates: None,
            grid: None,
            cut: Default::default(),
            subdomains: None,
            room: None,
        };
        let ladder = ladder(&job, usize::MAX);
        assert!(ladder.iter().all(|a| a.equilibrate == (settings.precond == Precond::Auto)));
        ladder.iter().map(Attempt::name).collect()
    }

    #[test]
    fn what_is_named_stays_and_what_is_open_climbs() {
        let all = names(Given::default(), 5000);
        assert_eq!(all[0], "ildu0 with bicgstab");
        assert_eq!(all[1], "ildu0:cut=whole with gmres(100)");
        assert_eq!(all.len(), LADDER.len());
        let jacobi = Precond::Jacobi { block: None };
        let all = names(Given { precond: Some(jacobi.clone()), ..Given::default() }, 5000);
        let methods = ["bicgstab", "gmres(100)", "gmres(200)", "gmres(300)"];
        assert_eq!(all, methods.map(|m| format!("jacobi with {m}")));
        let gmres = Given { method: Some(Method::Gmres), restart: Some(7), ..Given::default() };
        let all = names(gmres.clone(), 5000);
        assert!(all.len() == 6 && all.iter().all(|a| a.ends_with("gmres(7)")), "{all:?}");
        assert_eq!(names(Given { precond: Some(jacobi), ..gmres }, 5000), ["jacobi with gmres(7)"]);
        // Of a small system the whole is a subdomain, and no basis is longer than the system.
        let all = names(Given { method: Some(Method::Gmres), ..Given::default() }, 20);
        assert_eq!(all[0], "ildu0 with gmres(20)");
        assert_eq!(all[1], "ildu0:fill=1,cut=whole with gmres(20)");
    }

    #[test]
    fn histories_are_one_curve() {
        let history = |residuals: Vec<f64>| History {
            iterations: residuals.len() - 1,
            residuals,
            restarts: 1,
            ..History::with_room(0)
        };
        let mut all = history(vec![1.0, 0.5, 0.7]);
        join(&mut all, history(vec![0.6, 0.1]));
        assert_eq!((all.residuals, all.iterations, all.restarts), (vec![1.0, 0.5, 0.6, 0.1], 3, 2));
    }
}
