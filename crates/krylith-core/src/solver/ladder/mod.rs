//! What a solve tries where options leave it open: a ladder of attempts within one solve, each stronger than the last.
//!
//! An attempt ends without an answer when its preconditioner cannot be built, its method breaks down or stagnates, or it is so
//! slow that the tolerance is far out of sight ([`Pace`](super::watch::Pace)). The next one then begins from the best x so far, if that is better than the first
//! guess. Residuals of all attempts make one curve, and each change is an event. What is named is never changed: only what
//! is left open differs from attempt to attempt. [`rules`] is the table of what is tried.

mod direct;
mod memory;
mod rules;

pub(crate) use direct::{Costs, costs};
pub use memory::Memory;
pub(crate) use memory::too_large;

use crate::matching::{MatchingChoice, gathered};
use crate::method::{MethodName, MethodSpec};
use crate::operator::Terms;
use crate::options::Options;
use crate::partition::SubdomainCut;
use crate::precond::{IlduSpec, PrecondSpec, TileFactor, TileShape};
use crate::problem::LocalProblem;
use crate::solver::SolverSpace;
use crate::solver::diagnosis::Diagnosis;
use crate::solver::solution::{Event, EventKind};
use crate::solver::watch::Patience;
use crate::space::{History, Outcome, Precision, Reason};
use crate::text::plural;
use crate::{Error, Result};
use rules::{METHODS, RULES, System};

/// Before subdomains, where [`tiles_fit`].
const TILES: &str = "block-jacobi";

/// Largest entries of rows or columns that differ by more than this are scaled.
const UNEVEN: f64 = 1e6;

/// As many weak diagonal entries are nothing to permute rows for.
pub(crate) const FEW_WEAK: usize = 0;

/// True where rows can be matched: of one matrix, which every rank can have as a whole.
pub(crate) fn can_match(local: &LocalProblem) -> bool {
    let fits = local.numbers.is_none() || local.unknowns <= gathered::MOST;
    fits && (local.terms.terms.len(), local.terms.stages()) == (1, 1)
}

/// What is known of a matrix.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    /// CG may solve it.
    pub symmetric: bool,
    /// What [`tiles_fit`] said.
    pub tiles: bool,
    /// By how much the largest entries of rows or columns differ.
    pub spread: f64,
    /// Blocks of the longest block row, where that is long.
    pub longest_row: usize,
    /// Unknowns of scalar rows whose diagonal entry is weak.
    pub weak: usize,
    /// Seconds of attempts, as far as they were estimated.
    pub costs: Costs,
}

impl Seen {
    /// With what a pass over the entries found.
    pub fn new(symmetric: bool, tiles: bool, diagnosis: &Diagnosis, costs: Costs) -> Self {
        let (spread, longest_row) = (diagnosis.spread(), diagnosis.longest_row);
        Self { symmetric, tiles, spread, longest_row, weak: diagnosis.weak_diagonal, costs }
    }
}

impl System {
    fn new(local: &LocalProblem, seen: Seen) -> Self {
        Self {
            symmetric: seen.symmetric,
            unknowns: local.unknowns,
            blocks: local.order() > 1,
            stages: local.stages.is_some(),
            has_holes: seen.weak > FEW_WEAK,
            weak: seen.weak > FEW_WEAK && can_match(local),
            longest_row: seen.longest_row,
            alone: local.comm.size() == 1 && local.numbers.is_none(),
            on_gpu: seen.costs.on_gpu,
            tiles: seen.tiles,
            costs: seen.costs,
        }
    }
}

/// What there is to say once an attempt has matched rows with columns, and what from the beginning where none does.
///
/// # Errors
/// A matching that was asked for and is not made for such a system.
pub(crate) fn matching_choice(
    local: &LocalProblem,
    options: &Options,
    diagnosis: &Diagnosis,
    ladder: &[Attempt],
) -> Result<[Option<Event>; 2]> {
    let choice = options.matching.unwrap_or_default();
    if choice == MatchingChoice::On && !can_match(local) {
        let most = gathered::MOST;
        return Err(Error::Unsupported(format!(
            "matching=on: rows are matched of one matrix, on several ranks or GPUs of at most {most} unknowns; leave it to auto, or take one rank"
        )));
    }
    let weak = diagnosis.weak_diagonal;
    let have = if weak == 1 { "has" } else { "have" };
    let rows = format!("{} {have} a zero or small diagonal entry", plural(weak, "row"));
    let event = |why: &str| Some(Event::new(EventKind::Choice, None, format!("{why}: {rows}")));
    if ladder.iter().any(|a| a.matching) {
        Ok([event("rows matched with columns for the preconditioner"), None])
    } else if weak > FEW_WEAK && choice == MatchingChoice::Auto && !can_match(local) {
        let most = gathered::MOST;
        let why = format!(
            "rows not matched with columns, which is done of one matrix, on several ranks of at most {most} unknowns"
        );
        Ok([None, event(&why)])
    } else {
        Ok([None, None])
    }
}

/// Why the first attempt is what it is, where that is not the usual. `open`: no method was named.
pub(crate) fn first_choice(first: &Attempt, open: bool) -> Option<Event> {
    let why = match (&first.precond, &first.method) {
        (precond, _) if precond.to_string() == rules::DIRECT => {
            "lu first: by the levels of the graph direct factors take no longer than incomplete ones and their iterations"
        }
        (PrecondSpec::Jacobi { .. }, _) if first.patience == rules::AT_ONCE => {
            "jacobi first: some hundred iterations on a GPU take no longer than the set-up of anything else"
        }
        (PrecondSpec::Jacobi { .. }, _) if first.patience == Patience::until(rules::NEEDED[0]) => {
            "jacobi first: in every row the diagonal entry is larger than all others together"
        }
        (PrecondSpec::Jacobi { .. }, _) if first.patience != Patience::USUAL => {
            "jacobi first: the matrix is symmetric, and some hundred iterations take no longer than the set-up of anything else"
        }
        (_, MethodSpec::Cg(_)) if open => {
            "method cg first: the matrix is symmetric, and so is the preconditioner"
        }
        _ => return None,
    };
    Some(Event::new(EventKind::Choice, None, why))
}

/// An attempt behind the first whose set-up many solves of the same values repay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stronger {
    /// Where it stands.
    pub rung: usize,
    /// Iterations of the first attempt in whose time it is set up and has solved the system.
    iterations: f64,
    /// More iterations of the first attempt than a solve with it takes the time of.
    each: f64,
}

impl Stronger {
    /// True after solves that took as many iterations together, and each of them more than one with it would.
    pub fn is_repaid(&self, [solves, iterations]: [usize; 2]) -> bool {
        let all = iterations as f64;
        solves > 0 && all >= self.iterations && all / solves as f64 >= self.each
    }
}

/// What many solves repay, where the preconditioner is open: direct factors or coarse levels, whichever are set up sooner.
pub(crate) fn stronger(local: &LocalProblem, seen: Seen, ladder: &[Attempt]) -> Option<Stronger> {
    let (system, first) = (System::new(local, seen), ladder.first()?);
    let known = ladder.iter().enumerate().skip(1).filter(|(_, a)| a.precond != first.precond);
    let all = known.filter_map(|(rung, a)| {
        let [iterations, each] = system.iterations_of(&a.precond, first)?;
        Some(Stronger { rung, iterations, each })
    });
    all.min_by(|a, b| a.iterations.total_cmp(&b.iterations))
}

/// Limit on the iterations of all attempts that precede direct factors.
pub(crate) fn before_direct(local: &LocalProblem, seen: Seen) -> usize {
    System::new(local, seen).before_direct()
}

/// One attempt, decided.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Attempt {
    /// Preconditioner.
    pub precond: PrecondSpec,
    /// Method, with a basis no longer than could ever be used.
    pub method: MethodSpec,
    /// Rows and columns are scaled for the preconditioner.
    pub equilibrate: bool,
    /// Rows are matched with columns for the preconditioner, and both are scaled by that.
    pub matching: bool,
    /// How long it is waited for where others may follow.
    pub patience: Patience,
}

impl Attempt {
    /// `ildu:cut=whole with gmres(100)`.
    pub fn name(&self) -> String {
        format!("{} with {}", self.precond, self.method.short())
    }

    /// True where both are the same but for how long they are waited for.
    pub fn is_same(&self, other: &Self) -> bool {
        let key = |a: &Self| (a.method, a.equilibrate, a.matching);
        key(self) == key(other) && self.precond == other.precond
    }

    /// Bytes that it wants beside the system itself.
    pub fn memory(&self, terms: &Terms, options: &Options) -> Memory {
        Memory::of(terms, &self.method, &self.precond, options)
    }
}

/// The attempts at a problem, at least one, on a device that holds subdomains of at most `most_rows` block rows: where it
/// cannot hold the whole as one, subdomains as large as that take its place. The same on every rank.
pub(crate) fn ladder(local: &LocalProblem, options: &Options, most_rows: usize, seen: Seen) -> Vec<Attempt> {
    let room = Room { local, most_rows, tiles: seen.tiles };
    let asked = options.method.filter(|m| *m != MethodName::Auto);
    let cg_fits = |precond: &PrecondSpec| seen.symmetric && precond.keeps_symmetry();
    let mut tries: Vec<(PrecondSpec, MethodName, usize, Patience)> = Vec::new();
    match options.precond_or_auto() {
        PrecondSpec::Auto => {
            let system = System::new(local, seen);
            let rules = RULES.iter().filter(|rule| (rule.when)(&system));
            tries.extend(rules.map(|rule| {
                let precond =
                    room.fitted(rule.precond.parse().expect("the table is spelt right"), rule.method);
                (precond, rule.method, rule.restart, (rule.patience)(&system))
            }));
        }
        named => {
            let methods =
                METHODS.iter().filter(|(m, _)| *m != MethodName::Cg || asked.is_some() || cg_fits(named));
            tries.extend(methods.map(|&(method, restart)| (named.clone(), method, restart, Patience::USUAL)));
        }
    }
    let most = local.unknowns.min(options.stop().max_iters.max(1));
    let mut attempts: Vec<Attempt> = Vec::new();
    for (precond, method, restart, patience) in tries {
        let name = asked.unwrap_or(match method {
            MethodName::Cg => MethodName::Cg,
            _ if precond.varies() => MethodName::Fgmres,
            other => other,
        });
        let method = MethodSpec::of(name, options, restart).at_most(most);
        let method = if precond.varies() && options.form.is_none() { method.flexible() } else { method };
        let (equilibrate, matching) = scales(local, options, seen, &precond, &method);
        let attempt = Attempt { precond, method, equilibrate, matching, patience };
        // What stands above with the same patience, or directly above with less, need not come again.
        let alike = |a: &Attempt| room.are_alike(a, &attempt);
        if attempts.last().is_some_and(|last| alike(last) && last.patience != Patience::USUAL) {
            attempts.pop();
        }
        if !attempts.iter().any(|a| alike(a) && a.patience == attempt.patience) {
            attempts.push(attempt);
        }
    }
    attempts
}

/// Whether an attempt's preconditioner is that of the equilibrated system, and of one whose rows are matched with columns.
fn scales(
    local: &LocalProblem,
    options: &Options,
    seen: Seen,
    precond: &PrecondSpec,
    method: &MethodSpec,
) -> (bool, bool) {
    let open = *options.precond_or_auto() == PrecondSpec::Auto;
    let choice = options.matching.unwrap_or_default();
    let matching = can_match(local)
        && match choice {
            MatchingChoice::On => true,
            MatchingChoice::Auto => open && seen.weak > FEW_WEAK,
            MatchingChoice::Off => false,
        };
    // CG and its tiles want what is symmetric.
    let matching = matching && !method.is_cg();
    let uneven = open && options.equilibrate.is_none() && seen.spread > UNEVEN;
    let equilibrate = options.equilibrate.unwrap_or(false);
    match precond {
        // Interpolation takes constants for smooth, which smooth vectors of a system in other scales are not.
        PrecondSpec::Amg(_) if open => {
            let matching = matching && choice == MatchingChoice::On;
            (equilibrate && !matching, matching)
        }
        // Direct factors have pivots, and Schwarz stands for the order as it is.
        PrecondSpec::Lu(_) | PrecondSpec::Ras(_) if open => (equilibrate || uneven, false),
        _ => ((equilibrate || uneven) && !matching, matching),
    }
}

/// What of a preconditioner fits the device and the grid.
struct Room<'a> {
    local: &'a LocalProblem<'a>,
    /// Most block rows of a subdomain.
    most_rows: usize,
    tiles: bool,
}

impl Room<'_> {
    fn nodes(&self) -> usize {
        self.local.unknowns / self.local.order()
    }

    /// True where one subdomain holds the whole system.
    fn is_whole(&self, ildu: &IlduSpec) -> bool {
        let (order, nodes) = (self.local.order(), self.nodes());
        let as_one = || {
            let most = ildu.as_one(order, nodes, self.most_rows).most_rows(order);
            self.local.numbers.is_none() && most >= nodes
        };
        nodes <= ildu.most_rows(order) || as_one()
    }

    /// Subdomains as large as the device holds in place of a whole that it cannot hold; tiles where CG has a grid for them, which need
    /// as many iterations as subdomains and half the time of each (measured, H200).
    fn fitted(&self, precond: PrecondSpec, method: MethodName) -> PrecondSpec {
        match precond {
            PrecondSpec::Ildu(ildu) if ildu.cut == SubdomainCut::Whole && self.nodes() > self.most_rows => {
                PrecondSpec::Ildu(IlduSpec { cut: SubdomainCut::Auto, rows: Some(self.most_rows), ..ildu })
            }
            PrecondSpec::Ildu(ildu) if self.tiles && method == MethodName::Cg && !self.is_whole(&ildu) => {
                TILES.parse().expect("the table is spelt right")
            }
            other => other,
        }
    }

    /// True where both attempts are one: where one subdomain holds the whole system, it does not matter how it would be cut.
    fn are_alike(&self, a: &Attempt, b: &Attempt) -> bool {
        let uncut = |precond: &PrecondSpec| match precond {
            PrecondSpec::Ildu(ildu) if self.is_whole(ildu) => {
                PrecondSpec::Ildu(IlduSpec { cut: SubdomainCut::Whole, ..*ildu })
            }
            other => other.clone(),
        };
        a.method == b.method && uncut(&a.precond) == uncut(&b.precond)
    }
}

/// True where the matrix can be that of a 7-point stencil on the grid, and its tiles are the same on any number of ranks: own rows
/// are whole tiles. Collective.
///
/// # Errors
/// A rank that is gone or failed.
pub(crate) fn tiles_fit<S: SolverSpace>(space: &S, local: &LocalProblem) -> Result<bool> {
    let fits = || {
        let ([nx, ny, nz], n) = (local.grid?, local.unknowns);
        // A grid of the caller's may be that of another system.
        let cells = nx.checked_mul(ny)?.checked_mul(nz)?;
        if local.order() != 1 || cells != n || n == 0 {
            return None;
        }
        let [(_, a)] = &local.terms.terms[..] else { return None };
        let run = match local.numbers {
            None => 0..n,
            Some(numbers) => numbers.as_run().map(|run| run.start as usize..run.end as usize)?,
        };
        let [_, _, planes] =
            space.tile(TileShape::Auto, [nx, ny, nz], TileFactor::Ic0, Precision::F64).ok()?;
        let (layer, height) = (nx * ny * planes, run.len() / (nx * ny));
        let whole = run.start % layer == 0 && (run.end % layer == 0 || run.end == n);
        // Seven a cell, less what the sides in x and y lack.
        let few = a.blocks() + 2 * height * (nx + ny) <= 7 * run.len();
        Some(whole && few)
    };
    Ok(!space.any(!fits().unwrap_or(false))?)
}

/// Attempts that would end as attempt `k` did: itself, and all with CG where it found the matrix indefinite and others remain.
pub(crate) fn that_end_so(ladder: &[Attempt], k: usize, history: &History) -> impl Iterator<Item = usize> {
    let indefinite = history.reason == Some(Reason::IndefiniteMatrix.text());
    let all = indefinite && !ladder.iter().all(|a| a.method.is_cg());
    (0..ladder.len()).filter(move |&i| i == k || (all && ladder[i].method.is_cg()))
}

/// True if another attempt may do better than one that ended so.
pub(crate) fn worth_another(history: &History) -> bool {
    match history.outcome {
        Outcome::Converged | Outcome::Interrupted | Outcome::RoundingLimit => false,
        // An x that double precision does not hold is nobody's fault.
        Outcome::NotFinite => history.reason.is_none(),
        _ => true,
    }
}

/// Attempts of more fill than attempt `k`, which take longer to set up than it does.
pub(crate) fn deeper(ladder: &[Attempt], k: usize) -> Vec<usize> {
    let fill = |attempt: &Attempt| match attempt.precond {
        PrecondSpec::Ildu(IlduSpec { fill, cut: SubdomainCut::Whole, .. }) => Some(fill),
        _ => None,
    };
    let Some(own) = fill(&ladder[k]) else { return Vec::new() };
    (0..ladder.len()).filter(|&k| fill(&ladder[k]).is_some_and(|fill| fill > own)).collect()
}

/// Puts the history of a later attempt behind that of the earlier ones.
pub(crate) fn join(all: &mut History, next: &History) {
    // Where the next one begins: the true residual of the x that it was given.
    if let (Some(last), Some(first)) = (all.residuals.last_mut(), next.residuals.first()) {
        *last = *first;
    }
    all.residuals.extend_from_slice(next.residuals.get(1..).unwrap_or_default());
    (all.outcome, all.rounding) = (next.outcome, next.rounding);
    all.iterations += next.iterations;
    all.restarts += next.restarts;
    all.reductions += next.reductions;
    all.reason = next.reason;
}

#[cfg(test)]
mod tests;
