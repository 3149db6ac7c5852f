//! The fallbacks of `auto`: a list of attempts within one solve, which become stronger and more expensive.
//!
//! An attempt fails if its preconditioner cannot be built, if its method breaks down or stagnates, or if it
//! is too slow ([`Pace`](super::watch::Pace)). The next attempt then starts from the best x so far, if that
//! is better than the initial guess. The residuals of all attempts form one curve, and an event reports each
//! change. Settings that the user named never change. Attempts differ only in the settings that are left to
//! `auto`. [`rules`] is the table of attempts.

mod before;
mod direct;
mod memory;
mod rules;

pub(crate) use before::{BeforeDirect, Last, before_direct};
pub(crate) use direct::{Costs, costs};
pub use memory::Memory;
pub(crate) use memory::too_large;

use crate::fields::Coupled;
use crate::matching::{MatchingChoice, gathered};
use crate::method::{MethodName, MethodSpec};
use crate::operator::Terms;
use crate::options::Options;
use crate::partition::SubdomainCut;
use crate::precond::{IlduSpec, LuSpec, PrecondSpec, TileFactor, TileShape};
use crate::problem::LocalProblem;
use crate::solver::SolverSpace;
use crate::solver::analysis::is_strong_when_scaled;
use crate::solver::diagnosis::Diagnosis;
use crate::solver::recognise::saddle::MEANS;
use crate::solver::solution::{Event, EventKind};
use crate::solver::watch::Budget;
use crate::space::{History, Outcome, Precision, PrecondPrecision, Reason, UNSTABLE};
use crate::text::plural;
use crate::{Error, Result};
use rules::{GPU_DIRECT, GRADIENT, METHODS, RULES, System};

/// The preconditioner that replaces subdomains if [`tiles_fit`].
const TILES: &str = "block-jacobi";

/// Rows and columns are scaled if the largest entries of rows, or of columns, differ by more than this
/// factor.
const UNEVEN: f64 = 1e6;

/// Largest relative tolerance at which GMRES keeps preconditioned vectors, if the preconditioner computes in
/// f32. One that is linear only up to f32 costs GMRES a restart: with `ildu` and `amg` it took 6 and 8 % more
/// iterations than in f64 at 1e-8, 13 and 17 % at 1e-10, and 1 % at 1e-6. FGMRES took as many as in f64
/// (bench/runs/2026-11-30-cpu-f32-study).
const FLEXIBLE: f64 = 1e-7;

/// Largest number of weak diagonal entries at which rows are not matched with columns.
pub(crate) const FEW_WEAK: usize = 0;

/// Returns true if rows can be matched with columns. That needs a single matrix which each rank can hold as a
/// whole.
pub(crate) fn can_match(local: &LocalProblem) -> bool {
    let fits = local.numbers.is_none() || local.unknowns <= gathered::MOST;
    fits && (local.terms.terms.len(), local.terms.stages()) == (1, 1)
}

/// Properties of a matrix that the rules use.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    /// True if CG may solve it: symmetric and possibly definite.
    pub symmetric: bool,
    /// The result of [`tiles_fit`].
    pub tiles: bool,
    /// Ratio of the largest entries of rows, or of columns if that is larger.
    pub spread: f64,
    /// Number of blocks of the longest block row, if it is long; else 0.
    pub longest_row: usize,
    /// Number of scalar rows whose diagonal entry is [weak](weak_rows).
    pub weak: usize,
    /// Estimated seconds of the parts of attempts.
    pub costs: Costs,
}

impl Seen {
    /// Collects the properties. Some of them come from the diagnosis of the entries.
    pub fn new(symmetric: bool, tiles: bool, diagnosis: &Diagnosis, weak: usize, costs: Costs) -> Self {
        let (spread, longest_row) = (diagnosis.spread(), diagnosis.longest_row);
        Self { symmetric, tiles, spread, longest_row, weak, costs }
    }
}

/// Returns the number of scalar rows whose diagonal entry is weak, if `auto` may choose the preconditioner
/// or match rows. Where no diagonal entry is zero, rows and columns are scaled first: entries of rows differ
/// in size if their unknowns have different units, which matters to no incomplete factorisation. They are
/// scaled by the diagonal and, if that does not suffice, to equal maxima, in the time of about ten products.
/// Collective.
///
/// # Errors
/// Out of memory; a rank that has ended or failed.
pub(crate) fn weak_rows<S: SolverSpace>(
    space: &S,
    local: &LocalProblem,
    options: &Options,
    diagnosis: &Diagnosis,
) -> Result<usize> {
    let weak = diagnosis.weak_diagonal;
    let open = *options.precond_or_auto() == PrecondSpec::Auto && !has_whole_vectors(local, options);
    let scales = weak > FEW_WEAK && diagnosis.missing_diagonal.count == 0 && open;
    if !scales {
        return Ok(weak);
    }
    if is_strong_when_scaled(local.terms, local.comm)? {
        return Ok(0);
    }
    // An entry may overflow, on all ranks alike.
    let Ok((_, scaled)) = space.equilibrate(local.terms) else { return Ok(weak) };
    let mut own = [space.analyze(&scaled)?.weak_diagonal as f64];
    local.comm.sum(&mut own)?;
    Ok(own[0] as usize)
}

/// Returns the preconditioner for a saddle point with rows of mean values: next to one for all other fields.
/// Each such row costs an iteration or two.
fn beside_means(precond: PrecondSpec, local: &LocalProblem) -> PrecondSpec {
    let names: Vec<&str> = local.fields.all().iter().map(|field| field.name()).collect();
    let others: Vec<&str> = names.iter().copied().filter(|name| *name != MEANS).collect();
    if names.len() == others.len() || local.fields.recognised().is_none() || !precond.names_fields() {
        return precond;
    }
    let text = format!("split({}: {precond}, {MEANS}: none; form=diagonal)", others.join("+"));
    text.parse().expect("the fields are named so")
}

impl System {
    fn new(local: &LocalProblem, seen: Seen) -> Self {
        let found = local.fields.recognised().map(|found| found.kind);
        Self {
            symmetric: seen.symmetric,
            unknowns: local.unknowns,
            order: local.order(),
            stages: local.stages.is_some(),
            has_weak_diagonal: seen.weak > FEW_WEAK,
            weak: seen.weak > FEW_WEAK && can_match(local),
            longest_row: seen.longest_row,
            alone: local.comm.size() == 1 && local.numbers.is_none(),
            on_gpu: seen.costs.on_gpu,
            coupled: found.filter(|kind| *kind != Coupled::CurlCurl),
            curls: found == Some(Coupled::CurlCurl),
            has_near: local.near.is_some(),
            gradient: GRADIENT.map(|names| names.iter().all(|name| local.fields.matrix(name).is_ok())),
            tiles: seen.tiles,
            costs: seen.costs,
        }
    }
}

/// Returns true if several ranks solve with whole vectors, by the option `share`. Preconditioners are then
/// limited to `jacobi` and `none`.
pub(crate) fn has_whole_vectors(local: &LocalProblem, options: &Options) -> bool {
    local.comm.size() > 1 && options.share.is_some_and(|share| share.is_whole())
}

/// Returns two optional events. The first one is reported once an attempt has matched rows with columns. The
/// second one is reported at once, if no attempt can match them.
///
/// # Errors
/// `matching=on` for a system that cannot be matched.
pub(crate) fn matching_choice(
    local: &LocalProblem,
    options: &Options,
    weak: usize,
    fallbacks: &[Attempt],
) -> Result<[Option<Event>; 2]> {
    let choice = options.matching.unwrap_or_default();
    if choice == MatchingChoice::On && !can_match(local) {
        let most = gathered::MOST;
        return Err(Error::Unsupported(format!(
            "matching=on needs a single matrix and, on several ranks or GPUs, at most {most} unknowns; use \
             matching=auto or one rank"
        )));
    }
    let have = if weak == 1 { "has" } else { "have" };
    let rows = format!("{} {have} a zero or small diagonal entry", plural(weak, "row"));
    let event = |why: &str| Some(Event::new(EventKind::Choice, None, format!("{why}: {rows}")));
    if fallbacks.iter().any(|a| a.matching) {
        Ok([event("rows are matched with columns for the preconditioner"), None])
    } else if weak > FEW_WEAK && choice == MatchingChoice::Auto && !can_match(local) {
        let most = gathered::MOST;
        let why = format!(
            "rows are not matched with columns, which needs a single matrix and, on several ranks, at most \
             {most} unknowns"
        );
        Ok([None, event(&why)])
    } else {
        Ok([None, None])
    }
}

/// Returns the event that tells which coupled system the matrix shows.
pub(crate) fn recognised(local: &LocalProblem) -> Option<Event> {
    let found = local.fields.recognised()?;
    Some(Event::new(EventKind::Choice, None, format!("recognised {}", found.text)))
}

/// Returns the event that explains an unusual first attempt. `open` is true if the user named no method.
pub(crate) fn first_choice(first: &Attempt, open: bool) -> Option<Event> {
    let why = match (&first.precond, &first.method) {
        (precond, _) if precond.to_string() == rules::DIRECT => {
            "lu first: direct factors are estimated to take no longer than incomplete factors and their \
             iterations"
        }
        (PrecondSpec::Jacobi { .. }, _) if first.budget == rules::AT_ONCE => {
            "jacobi first: on a GPU, some hundred iterations take no longer than the set-up of any other \
             preconditioner"
        }
        (PrecondSpec::Jacobi { .. }, _) if first.budget == Budget::until(rules::NEEDED[0]) => {
            "jacobi first: in every row the diagonal entry exceeds the sum of all others"
        }
        (PrecondSpec::Jacobi { .. }, _) if first.budget != Budget::USUAL => {
            "jacobi first: the matrix is symmetric, and some hundred iterations take no longer than the \
             set-up of any other preconditioner"
        }
        (_, MethodSpec::Cg(_)) if open => "cg first: both the matrix and the preconditioner are symmetric",
        _ => return None,
    };
    Some(Event::new(EventKind::Choice, None, why))
}

/// A later attempt whose set-up is amortised by repeated solves of the same values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stronger {
    /// The index of this attempt in the list of attempts.
    pub next_attempt: usize,
    /// The time of its set-up and one solve, in iterations of the first attempt.
    iterations: f64,
    /// Upper bound on the time of one further solve, in iterations of the first attempt.
    each: f64,
}

impl Stronger {
    /// Returns true if two conditions hold. Past solves have taken as many iterations as the set-up and one
    /// solve of this attempt would. And on average they took more than one further solve with this attempt
    /// would.
    pub fn is_repaid(&self, [solves, iterations]: [usize; 2]) -> bool {
        let all = iterations as f64;
        solves > 0 && all >= self.iterations && all / solves as f64 >= self.each
    }
}

/// Returns the attempt whose set-up repeated solves may amortise, if `auto` chooses the preconditioner. It is
/// direct factors or algebraic multigrid, whichever is cheaper to set up.
pub(crate) fn stronger(local: &LocalProblem, seen: Seen, fallbacks: &[Attempt]) -> Option<Stronger> {
    let (system, first) = (System::new(local, seen), fallbacks.first()?);
    let known = fallbacks.iter().enumerate().skip(1).filter(|(_, a)| a.precond != first.precond);
    let all = known.filter_map(|(next_attempt, a)| {
        let [iterations, each] = system.iterations_of(&a.precond, first)?;
        Some(Stronger { next_attempt, iterations, each })
    });
    all.min_by(|a, b| a.iterations.total_cmp(&b.iterations))
}

/// One attempt: a preconditioner and a method with all settings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Attempt {
    /// Preconditioner.
    pub precond: PrecondSpec,
    /// Method. Its basis is no longer than the system has unknowns.
    pub method: MethodSpec,
    /// True if rows and columns are scaled for the preconditioner.
    pub equilibrate: bool,
    /// True if rows are matched with columns for the preconditioner, and both are scaled by the matching.
    pub matching: bool,
    /// Iteration budget before the next attempt, if there is one.
    pub budget: Budget,
}

impl Attempt {
    /// Returns the name, such as `ildu:cut=whole with gmres(100)`.
    pub fn name(&self) -> String {
        format!("{} with {}", self.precond, self.method.short())
    }

    /// Returns true if both attempts differ at most in their budget.
    pub fn is_same(&self, other: &Self) -> bool {
        let key = |a: &Self| (a.method, a.equilibrate, a.matching);
        key(self) == key(other) && self.precond == other.precond
    }

    /// Estimates the memory that the attempt needs.
    pub fn memory(&self, terms: &Terms, options: &Options) -> Memory {
        Memory::of(terms, &self.method, &self.precond, options)
    }
}

/// Lists the attempts at a problem, at least one. The device supports subdomains of at most `most_rows` block
/// rows. If a single subdomain does not fit, subdomains of that size replace it. Every rank gets the same
/// list.
pub(crate) fn attempts(
    local: &LocalProblem,
    options: &Options,
    most_rows: usize,
    seen: Seen,
) -> Vec<Attempt> {
    let room = Limits { local, most_rows, tiles: seen.tiles };
    let asked = options.method.filter(|m| *m != MethodName::Auto);
    let cg_fits = |precond: &PrecondSpec| seen.symmetric && precond.keeps_symmetry();
    let mut tries: Vec<(PrecondSpec, MethodName, usize, Budget)> = Vec::new();
    match options.precond_or_auto() {
        // Factors and levels of an indefinite matrix are indefinite, and so may its diagonal be.
        PrecondSpec::Auto if asked == Some(MethodName::Minres) => {
            let definite = [PrecondSpec::Jacobi { block: None }, PrecondSpec::None];
            tries.extend(definite.map(|precond| (precond, MethodName::Minres, 30, Budget::USUAL)));
        }
        PrecondSpec::Auto if has_whole_vectors(local, options) => {
            for precond in [PrecondSpec::Jacobi { block: None }, PrecondSpec::None] {
                let fits = |m: MethodName| m != MethodName::Cg || cg_fits(&precond);
                let methods = METHODS.iter().filter(|(m, _)| asked.is_some() || fits(*m));
                tries.extend(
                    methods.map(|&(method, restart)| (precond.clone(), method, restart, Budget::USUAL)),
                );
            }
        }
        PrecondSpec::Auto => {
            let system = System::new(local, seen);
            // Factors of a GPU may differ from run to run.
            let fixed = options.deterministic == Some(true);
            let rules =
                RULES.iter().filter(|rule| !(fixed && rule.precond == GPU_DIRECT) && (rule.when)(&system));
            tries.extend(rules.map(|rule| {
                let named = beside_means(rule.precond.parse().expect("the table is spelt right"), local);
                let named =
                    if fixed && matches!(named, PrecondSpec::Lu(_)) { named.in_fixed_order() } else { named };
                let precond = room.fitted(named, rule.method);
                (precond, rule.method, rule.restart, (rule.budget)(&system))
            }));
        }
        named => {
            // Preconditioners of fields are strong and costly: GMRES needs the fewest of their applications.
            let fits = |method: MethodName| match method {
                MethodName::Cg => cg_fits(named),
                MethodName::Bicgstab => !named.names_fields(),
                _ => true,
            };
            let methods = METHODS.iter().filter(|(m, _)| asked.is_some() || fits(*m));
            tries.extend(methods.map(|&(method, restart)| (named.clone(), method, restart, Budget::USUAL)));
        }
    }
    let most = local.unknowns.min(options.stop().max_iters.max(1));
    let rounds = |precond: &PrecondSpec| {
        let asked = options.precond_precision.unwrap_or_default();
        let narrow = asked != PrecondPrecision::F64 && precond.rounds();
        narrow && options.stop().rtol <= FLEXIBLE
    };
    let mut attempts: Vec<Attempt> = Vec::new();
    for (precond, method, restart, budget) in tries {
        let name = asked.unwrap_or(match method {
            MethodName::Cg => MethodName::Cg,
            _ if precond.varies() => MethodName::Fgmres,
            MethodName::Gmres if rounds(&precond) => MethodName::Fgmres,
            other => other,
        });
        let method = MethodSpec::of(name, options, restart).at_most(most);
        let method = if precond.varies() && options.form.is_none() { method.flexible() } else { method };
        let (equilibrate, matching) = scales(local, options, seen, &precond, &method);
        let attempt = Attempt { precond, method, equilibrate, matching, budget };
        // Skip an attempt that repeats an earlier one with the same budget. Drop the previous attempt if it
        // differs only by a smaller budget.
        let alike = |a: &Attempt| room.are_alike(a, &attempt);
        if attempts.last().is_some_and(|last| alike(last) && last.budget != Budget::USUAL) {
            attempts.pop();
        }
        if !attempts.iter().any(|a| alike(a) && a.budget == attempt.budget) {
            attempts.push(attempt);
        }
    }
    attempts
}

/// Returns two flags: true if the preconditioner is built for the equilibrated system, and true if it is
/// built for the matched system.
fn scales(
    local: &LocalProblem,
    options: &Options,
    seen: Seen,
    precond: &PrecondSpec,
    method: &MethodSpec,
) -> (bool, bool) {
    if has_whole_vectors(local, options) {
        return (false, false);
    }
    let open = *options.precond_or_auto() == PrecondSpec::Auto;
    let choice = options.matching.unwrap_or_default();
    let matching = can_match(local)
        && match choice {
            MatchingChoice::On => true,
            MatchingChoice::Auto => open && seen.weak > FEW_WEAK,
            MatchingChoice::Off => false,
        };
    // A matching makes the preconditioner unsymmetric.
    let matching = matching && !method.name().needs_symmetry();
    let uneven = open && options.equilibrate.is_none() && seen.spread > UNEVEN;
    let equilibrate = options.equilibrate.unwrap_or(false);
    match precond {
        // Preconditioners of fields take rows as they are.
        _ if open && precond.names_fields() => (false, false),
        // AMG interpolation assumes that constants are smooth, which scaling destroys.
        PrecondSpec::Amg(_) if open => {
            let matching = matching && choice == MatchingChoice::On;
            (equilibrate && !matching, matching)
        }
        // Direct factors pivot, and Schwarz is tried because of the natural order of its rows.
        PrecondSpec::Lu(_) | PrecondSpec::Ras(_) if open => (equilibrate || uneven, false),
        _ => ((equilibrate || uneven) && !matching, matching),
    }
}

/// Limits of the device and the grid on preconditioners.
struct Limits<'a> {
    local: &'a LocalProblem<'a>,
    /// Largest number of block rows of a subdomain.
    most_rows: usize,
    tiles: bool,
}

impl Limits<'_> {
    fn nodes(&self) -> usize {
        self.local.unknowns / self.local.order()
    }

    /// Returns true if one subdomain has the whole system.
    fn is_whole(&self, ildu: &IlduSpec) -> bool {
        let (order, nodes) = (self.local.order(), self.nodes());
        let as_one = || {
            let most = ildu.as_one(order, nodes, self.most_rows).most_rows(order);
            self.local.numbers.is_none() && most >= nodes
        };
        nodes <= ildu.most_rows(order) || as_one()
    }

    /// Adapts a preconditioner to the device. If the whole system does not fit in one subdomain, the largest
    /// subdomains that fit replace it. For CG on a grid, tiles replace subdomains: they need as many
    /// iterations, each in half the time (measured on an H200).
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

    /// Returns true if both attempts are equivalent. The method of cutting subdomains does not matter if one
    /// subdomain has the whole system.
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

/// Returns true if the matrix may be a 7-point stencil on the grid and own rows are whole tiles. Tiles then
/// do not depend on the number of ranks. Collective.
///
/// # Errors
/// A rank that has ended or failed.
pub(crate) fn tiles_fit<S: SolverSpace>(space: &S, local: &LocalProblem) -> Result<bool> {
    let fits = || {
        let ([nx, ny, nz], n) = (local.grid?, local.unknowns);
        // The grid that the caller gave may not fit this system, so products are checked for overflow.
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
        // A cell has seven blocks, except that some are missing at the boundaries in x and y.
        let few = a.blocks() + 2 * height * (nx + ny) <= 7 * run.len();
        Some(whole && few)
    };
    Ok(!space.any(!fits().unwrap_or(false))?)
}

/// Describes how an attempt ended: too slow, with so many iterations to go, or because its factors are
/// unstable, or by itself.
pub(crate) fn ending(history: &History, too_slow: Option<f64>, unstable: Option<String>) -> String {
    let at = format!("at relative residual {:.2e}", history.criterion_value);
    match (too_slow, unstable) {
        (Some(left), _) if left.is_finite() => {
            format!("too slow {at}, with about {left:.0} iterations to go")
        }
        (Some(_), _) => format!("no progress {at}"),
        (None, Some(why)) => format!("{} {at}: {why}", history.outcome),
        (None, None) => format!("{} {at}", history.outcome),
    }
}

/// Lists the attempts that would end as attempt `k` did. These are that attempt, all attempts with CG if it
/// found the matrix indefinite and attempts with other methods remain, and all with the same factors if they
/// are unstable.
pub(crate) fn that_end_so(fallbacks: &[Attempt], k: usize, history: &History) -> impl Iterator<Item = usize> {
    let indefinite = history.reason == Some(Reason::IndefiniteMatrix.text());
    let all = indefinite && !fallbacks.iter().all(|a| a.method.is_cg());
    let unstable = history.reason == Some(UNSTABLE);
    let key = |a: &Attempt| (a.equilibrate, a.matching);
    let has_factors = move |a: &Attempt| key(a) == key(&fallbacks[k]) && a.precond == fallbacks[k].precond;
    (0..fallbacks.len()).filter(move |&i| {
        let a = &fallbacks[i];
        i == k || (all && a.method.is_cg()) || (unstable && has_factors(a))
    })
}

/// Returns true if another attempt may do better.
pub(crate) fn worth_another(history: &History) -> bool {
    match history.outcome {
        Outcome::Converged | Outcome::Interrupted | Outcome::RoundingLimit => false,
        // x overflows f64; another attempt cannot help.
        Outcome::NotFinite => history.reason.is_none_or(|reason| reason == UNSTABLE),
        _ => true,
    }
}

/// Lists the attempts with more fill than attempt `k`, which take longer to set up.
pub(crate) fn deeper(fallbacks: &[Attempt], k: usize) -> Vec<usize> {
    let fill = |attempt: &Attempt| match attempt.precond {
        PrecondSpec::Ildu(IlduSpec { fill, cut: SubdomainCut::Whole, .. }) => Some(fill),
        _ => None,
    };
    let Some(own) = fill(&fallbacks[k]) else { return Vec::new() };
    (0..fallbacks.len()).filter(|&k| fill(&fallbacks[k]).is_some_and(|fill| fill > own)).collect()
}

/// Lists the other attempts with the direct factors of attempt `k`, whatever their limit. If these factors
/// are singular, so are those.
pub(crate) fn with_same_factors(fallbacks: &[Attempt], k: usize) -> Vec<usize> {
    let factors = |a: &Attempt| match a.precond {
        PrecondSpec::Lu(spec) => Some((LuSpec { most: None, ..spec }, a.equilibrate, a.matching)),
        _ => None,
    };
    let Some(own) = factors(&fallbacks[k]) else { return Vec::new() };
    (0..fallbacks.len()).filter(|&other| other != k && factors(&fallbacks[other]) == Some(own)).collect()
}

/// Appends the history of a later attempt to that of the earlier ones.
pub(crate) fn join(all: &mut History, next: &History) {
    // The first residual of the next attempt is the true residual of its initial guess, which replaces the
    // last residual.
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
