//! What a solve tries where options leave it open: a ladder of attempts within one solve, each stronger than the last.
//!
//! An attempt ends without an answer when its preconditioner cannot be built, its method breaks down or stagnates, or it is so
//! slow that the tolerance is far out of sight ([`Pace`](super::watch::Pace)). The next one then begins from the best x so far, if that is better than the first
//! guess. Residuals of all attempts make one curve, and each change is an event. What is named is never changed: only what
//! is left open differs from attempt to attempt.

use crate::matching::MatchingChoice;
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
use crate::space::{History, Outcome, Store};
use crate::text::plural;
use crate::{Error, Result};

/// A step of the ladder.
struct Rung {
    precond: &'static str,
    method: MethodName,
    /// Of GMRES.
    restart: usize,
}

/// From cheap to strong, but for the first, which [`MANY`] unknowns want. BiCGSTAB comes first: on the collected matrices it solves all ten with ILDU(0) of subdomains, where
/// GMRES(30) stagnates on two. Direct factors follow where they are small enough ([`direct_fits`]), then fill, which does more than anything else; the longer the
/// restart, the fewer the surprises. CG stands before it where A and the preconditioner are symmetric: half the work an iteration; on a structured grid with
/// [`TILES`], which need as many iterations as subdomains and half the time of each (measured, H200). Coarse levels and direct factors end the wait for
/// the attempt before them where that would take longer ([`sooner`]), and where they do not help either, it comes again and gets its time after all.
const LADDER: [Rung; 14] = [
    Rung { precond: "amg", method: MethodName::Cg, restart: 30 },
    Rung { precond: "ildu", method: MethodName::Cg, restart: 30 },
    Rung { precond: DIRECT, method: MethodName::Gmres, restart: EARLY },
    Rung { precond: "amg", method: MethodName::Cg, restart: 30 },
    Rung { precond: DIRECT, method: MethodName::Gmres, restart: LATE },
    Rung { precond: "ildu", method: MethodName::Bicgstab, restart: 30 },
    Rung { precond: DIRECT, method: MethodName::Gmres, restart: EARLY },
    Rung { precond: "amg", method: MethodName::Bicgstab, restart: 30 },
    Rung { precond: DIRECT, method: MethodName::Gmres, restart: LATE },
    Rung { precond: "ildu:cut=whole", method: MethodName::Gmres, restart: 100 },
    Rung { precond: "ildu:fill=1,cut=whole", method: MethodName::Gmres, restart: 100 },
    Rung { precond: "ildu:fill=2,cut=whole,shift=1e-6", method: MethodName::Gmres, restart: 200 },
    Rung { precond: "ildu:fill=5,cut=whole,shift=1e-3", method: MethodName::Gmres, restart: 300 },
    // Auto is jacobi, or none where a diagonal block is singular: it can always be built.
    Rung { precond: "auto", method: MethodName::Gmres, restart: 300 },
];

/// Restarts of GMRES around direct factors, which makes one iteration or two: they say which of the two rungs it is.
const EARLY: usize = 20;
const LATE: usize = 30;
/// As nothing interrupts them, they have at most as many numbers as some seconds can make: with 2.5e8, which a random graph of 22,500 nodes
/// has, they take two minutes.
const DIRECT: &str = "lu:most=40000000";
/// Most unknowns for direct factors as the second attempt, and for those that come after coarse levels instead.
const MOST_DIRECT: [usize; 2] = [1 << 14, 1 << 18];

/// Whether direct factors stand on this rung, behind `attempts`.
fn direct_fits(local: &LocalProblem, rung: &Rung, attempts: usize) -> bool {
    let [early, late] = MOST_DIRECT;
    let fits = match rung.restart {
        EARLY => local.unknowns <= early,
        _ => (early + 1..=late).contains(&local.unknowns),
    };
    let alone = local.comm.size() == 1 && local.numbers.is_none();
    cfg!(feature = "lu") && alone && fits && attempts > 0
}

/// Before subdomains, where [`tiles_fit`].
const TILES: &str = "block-jacobi";

/// Largest entries of rows or columns that differ by more than this are scaled.
const UNEVEN: f64 = 1e6;

/// Symmetric systems of so many unknowns begin with coarse levels: nodes of one unknown, and of several. From there on their set-up and
/// some 13 iterations take no longer than the iterations of subdomains (measured, H200, laplace 64³ to 256³ and radiation 32³ to 128³).
const MANY: [usize; 2] = [1 << 20, 1 << 18];
/// Systems of fewer unknowns are not coarsened.
const NOT_COARSENED: usize = 1 << 12;

/// Iterations of `method` on subdomains in whose time `next` would be set up and have solved the system. Coarse levels, as measured on an H200
/// and on one core of a CPU: 170 to 400 of CG and 80 to 300 of BiCGSTAB, with stages about 300. Direct factors: an estimate for grids in the plane and in
/// space, on one core; small systems were faster with it, and it was not measured one by one.
fn sooner(local: &LocalProblem, method: MethodName, next: &PrecondSpec) -> f64 {
    match (next, method) {
        (PrecondSpec::Lu(_), _) if local.unknowns <= MOST_DIRECT[0] => 100.0,
        (PrecondSpec::Lu(_), _) => 1000.0,
        (_, MethodName::Bicgstab) if local.stages.is_none() => 120.0,
        _ => 250.0,
    }
}

/// A block row of more blocks: the graph has hubs, and coarse levels would be dense.
const HUB: usize = 1000;

/// As many weak diagonal entries are nothing to permute rows for.
pub(crate) const FEW_WEAK: usize = 0;

/// True where rows can be matched: of one matrix, on one rank.
pub(crate) fn can_match(local: &LocalProblem) -> bool {
    local.comm.size() == 1
        && local.numbers.is_none()
        && (local.terms.terms.len(), local.terms.stages()) == (1, 1)
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
}

impl Seen {
    /// With what a pass over the entries found.
    pub fn new(symmetric: bool, tiles: bool, diagnosis: &Diagnosis) -> Self {
        let (spread, longest_row) = (diagnosis.spread(), diagnosis.longest_row);
        Self { symmetric, tiles, spread, longest_row, weak: diagnosis.weak_diagonal }
    }
}

/// What there is to say of the matching that is made, or is not.
///
/// # Errors
/// A matching that was asked for and is not made for such a system.
pub(crate) fn matching_choice(
    local: &LocalProblem,
    options: &Options,
    diagnosis: &Diagnosis,
    ladder: &[Attempt],
) -> Result<Option<Event>> {
    let choice = options.matching.unwrap_or_default();
    if choice == MatchingChoice::On && !can_match(local) {
        let why = "matching=on: rows are matched on one rank or GPU, of one matrix; leave it to auto, or take one rank";
        return Err(Error::Unsupported(why.into()));
    }
    let weak = diagnosis.weak_diagonal;
    let have = if weak == 1 { "has" } else { "have" };
    let rows = format!("{} {have} a zero or small diagonal entry", plural(weak, "row"));
    let why = if ladder.iter().any(|a| a.matching) {
        format!("rows matched with columns for the preconditioner: {rows}")
    } else if weak > FEW_WEAK && choice == MatchingChoice::Auto && !can_match(local) {
        format!("rows not matched with columns, which is done on one rank or GPU alone: {rows}")
    } else {
        return Ok(None);
    };
    Ok(Some(Event::new(EventKind::Choice, None, why)))
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
    let Seen { symmetric, tiles, spread, longest_row, weak } = seen;
    let (order, wanted) = (local.order(), options.precond_or_auto());
    let nodes = local.unknowns / order;
    let most = local.unknowns.min(options.stop().max_iterations.max(1));
    let open = *wanted == PrecondSpec::Auto;
    let equilibrate =
        options.equilibrate.unwrap_or(false) || (open && options.equilibrate.is_none() && spread > UNEVEN);
    let matching = can_match(local)
        && match options.matching.unwrap_or_default() {
            MatchingChoice::On => true,
            MatchingChoice::Auto => open && weak > FEW_WEAK,
            MatchingChoice::Off => false,
        };
    let as_one = |ildu: &IlduSpec| {
        local.numbers.is_none() && ildu.as_one(order, nodes, most_rows).most_rows(order) >= nodes
    };
    let coarsened = local.unknowns >= NOT_COARSENED && longest_row <= HUB;
    let many =
        symmetric && coarsened && local.stages.is_none() && local.unknowns >= MANY[usize::from(order > 1)];
    let mut attempts: Vec<(Attempt, PrecondSpec)> = Vec::new();
    for rung in LADDER.iter().skip(usize::from(!many)) {
        if open && rung.precond == "amg" && !(coarsened && (symmetric == (rung.method == MethodName::Cg))) {
            continue;
        }
        if rung.precond == DIRECT && !(open && direct_fits(local, rung, attempts.len())) {
            continue;
        }
        let precond = match wanted {
            PrecondSpec::Auto => match rung.precond.parse().expect("the ladder is spelt right") {
                PrecondSpec::Ildu(ildu) if ildu.cut == SubdomainCut::Whole && nodes > most_rows => {
                    PrecondSpec::Ildu(IlduSpec { cut: SubdomainCut::Auto, rows: Some(most_rows), ..ildu })
                }
                PrecondSpec::Ildu(ildu)
                    if tiles
                        && rung.method == MethodName::Cg
                        && nodes > ildu.most_rows(order)
                        && !as_one(&ildu) =>
                {
                    TILES.parse().expect("the ladder is spelt right")
                }
                other => other,
            },
            named => named.clone(),
        };
        let asked = options.method.filter(|m| *m != MethodName::Auto);
        if rung.method == MethodName::Cg && asked.is_none() && !(symmetric && precond.keeps_symmetry()) {
            continue;
        }
        let name = asked.unwrap_or(match rung.method {
            MethodName::Cg => MethodName::Cg,
            _ if precond.varies() => MethodName::Fgmres,
            other => other,
        });
        let method = MethodSpec::of(name, options, rung.restart).at_most(most);
        let method = if precond.varies() && options.form.is_none() { method.flexible() } else { method };
        // Where one subdomain holds the whole system, cutting it and not cutting it are the same.
        let alike = match &precond {
            PrecondSpec::Ildu(ildu) if nodes <= ildu.most_rows(order) || as_one(ildu) => {
                PrecondSpec::Ildu(IlduSpec { cut: SubdomainCut::Whole, ..*ildu })
            }
            other => other.clone(),
        };
        if !attempts.iter().any(|(a, p)| *p == alike && a.method == method) {
            // CG and its tiles want what is symmetric.
            let matching = matching
                && !matches!(method, MethodSpec::Cg(_) | MethodSpec::Cbcg(_))
                && !(open && matches!(precond, PrecondSpec::Lu(_))); // it has pivots
            let (equilibrate, patience) = (equilibrate && !matching, Patience::USUAL);
            attempts.push((Attempt { precond, method, equilibrate, matching, patience }, alike));
        }
    }
    let attempts = attempts.into_iter().map(|(attempt, _)| attempt).collect();
    let asked = options.matching == Some(MatchingChoice::On);
    if open { with_patience(local, attempts, options.equilibrate.unwrap_or(false), asked) } else { attempts }
}

/// Attempts that are waited for no longer than coarse levels or direct factors behind them would take, and come again after these. With coarse levels rows and
/// columns keep their scales where nobody has `asked` for another: interpolation takes constants for smooth, which a scaled system's smooth vectors are not.
fn with_patience(local: &LocalProblem, attempts: Vec<Attempt>, asked: bool, matching: bool) -> Vec<Attempt> {
    let mut all: Vec<Attempt> = Vec::with_capacity(attempts.len() + 2);
    for mut attempt in attempts {
        let coarse = matches!(attempt.precond, PrecondSpec::Amg(_));
        if coarse {
            attempt.patience = Patience::CYCLES;
            attempt.matching &= matching;
            attempt.equilibrate = asked && !attempt.matching;
        }
        let mut again = None;
        if coarse || matches!(attempt.precond, PrecondSpec::Lu(_)) {
            again = all
                .last_mut()
                .filter(|before| !matches!(before.precond, PrecondSpec::Amg(_) | PrecondSpec::Lu(_)))
                .map(|before| {
                    let usual = before.clone();
                    before.patience = Patience::until(sooner(local, before.method.name(), &attempt.precond));
                    usual
                });
        }
        all.push(attempt);
        all.extend(again);
    }
    all
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
        let [_, _, planes] = space.tile(TileShape::Auto, [nx, ny, nz], TileFactor::Ic0, Store::F64).ok()?;
        let (layer, height) = (nx * ny * planes, run.len() / (nx * ny));
        let whole = run.start % layer == 0 && (run.end % layer == 0 || run.end == n);
        // Seven a cell, less what the sides in x and y lack.
        let few = a.blocks() + 2 * height * (nx + ny) <= 7 * run.len();
        Some(whole && few)
    };
    Ok(!space.any(!fits().unwrap_or(false))?)
}

/// True if an attempt that is not the first would not fit `room` bytes, which were there before the first.
///
/// Fill is only known when it has been found, and finding it takes the memory: the guess is on the large side.
pub(crate) fn too_large(terms: &Terms, attempt: &Attempt, options: &Options, room: Option<u64>) -> bool {
    let fill = match &attempt.precond {
        PrecondSpec::Ildu(ildu) => 1 + ildu.fill as u64,
        _ => 1,
    };
    let memory = attempt.memory(terms, options);
    room.is_some_and(|room| memory.total() + (fill - 1) * memory.preconditioner > room)
}

/// Bytes that a solve wants on its device, by purpose: for refusals before hours of waiting.
///
/// ```
/// use krylith::{Options, matrix::Csr, operator::Terms, solver::Memory};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
/// let memory = Memory::of(&Terms::csr(&a)?, &"gmres:restart=30".parse()?, &"jacobi".parse()?, &Options::new());
/// assert_eq!((memory.basis, memory.preconditioner), (2 * 30 * 8, 2 * 16));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Values and pattern.
    pub matrix: u64,
    /// Inverted diagonal blocks, or factors.
    pub preconditioner: u64,
    /// GMRES's basis.
    pub basis: u64,
    /// Everything else that is as long as x, and the small dense side of GMRES.
    pub vectors: u64,
}

impl Memory {
    /// What a method and a preconditioner want for these terms, as far as it can be told before they are built.
    pub fn of(terms: &Terms, method: &MethodSpec, precond: &PrecondSpec, options: &Options) -> Self {
        let store = options.store.unwrap_or_default();
        let (n, width) = (terms.rows() as u64, store.bytes() as u64);
        let shared = terms.shared_pattern();
        let matrix = terms.terms.iter().enumerate().map(|(t, (_, a))| {
            let pattern = if t > 0 && shared { 0 } else { 4 * a.blocks() + 8 * (a.block_rows() + 1) };
            width * a.stored() as u64 + pattern as u64
        });
        let (basis, vectors) = method.memory(n);
        Self { matrix: matrix.sum(), preconditioner: precond.memory(terms, store), basis, vectors }
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.matrix + self.preconditioner + self.basis + self.vectors
    }
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
mod tests {
    use super::*;
    use crate::Problem;
    use crate::matrix::Bsr;

    fn names(options: &str, n: usize) -> Vec<String> {
        let diagonal = vec![1.0; n];
        let a = Bsr::new(1, n, n, (0..=n).collect(), (0..n as u32).collect(), diagonal).unwrap();
        let options = options.parse::<Options>().unwrap().settled().unwrap();
        let problem = Problem::bsr(&a).unwrap();
        let ladder =
            ladder(&problem.part_of_one(), &options, usize::MAX, Seen { spread: 1e9, ..Seen::default() });
        let scaled = |a: &Attempt| options.precond.is_none() && !matches!(a.precond, PrecondSpec::Amg(_));
        assert!(ladder.iter().all(|a| a.equilibrate == scaled(a)));
        ladder.iter().map(Attempt::name).collect()
    }

    #[test]
    fn what_is_named_stays_and_what_is_open_climbs() {
        const LARGE: usize = 20_000; // more than stands as one
        let all = names("", LARGE);
        assert_eq!(all[..3], ["ildu with bicgstab", "amg with bicgstab", "ildu with bicgstab"]);
        // Direct factors come after coarse levels here, and what they would be faster than once more behind them.
        let direct = usize::from(cfg!(feature = "lu"));
        assert_eq!(all[3 + 2 * direct], "ildu:cut=whole with gmres(100)");
        assert_eq!(all.len(), 8 + 2 * direct);
        assert_eq!(all.iter().filter(|name| **name == format!("{DIRECT} with gmres(30)")).count(), direct);
        let all = names("precond=jacobi", LARGE);
        let methods = ["bicgstab", "gmres(100)", "gmres(200)", "gmres(300)"];
        assert_eq!(all, methods.map(|m| format!("jacobi with {m}")));
        // Sweeps in no fixed order are another preconditioner every time.
        let restarts = [30, 100, 200, 300].map(|m| format!("ras with fgmres({m})"));
        assert_eq!(names("precond=ras", LARGE), restarts);
        assert_eq!(names("precond=ras:solve=exact", LARGE)[0], "ras:solve=exact with bicgstab");
        assert_eq!(names("precond=ras:deterministic", LARGE)[0], "ras:deterministic with bicgstab");
        assert_eq!(names("precond=ras deterministic=true", LARGE)[0], "ras:deterministic with bicgstab");
        assert_eq!(names("precond=ras method=bicgstab", LARGE), ["ras with bicgstab"]);
        let all = names("method=gmres:restart=7", LARGE);
        assert!(all.len() == 8 + 2 * direct && all.iter().all(|a| a.ends_with("gmres(7)")), "{all:?}");
        assert_eq!(names("method=gmres:restart=7 precond=jacobi", LARGE), ["jacobi with gmres(7)"]);
        // Of a small system the whole is a subdomain, and no basis is longer than the system.
        let all = names("method=gmres", 20);
        assert_eq!(all[0], "ildu with gmres(20)");
        let direct = all.iter().position(|name| *name == format!("{DIRECT} with gmres(20)"));
        assert_eq!(direct, cfg!(feature = "lu").then_some(1));
        assert!(all[1..4].contains(&"ildu:fill=1,cut=whole with gmres(20)".to_string()), "{all:?}");
    }

    #[test]
    fn symmetric_systems_begin_with_cg() {
        let a = Bsr::new(1, 3, 3, vec![0, 1, 2, 3], vec![0, 1, 2], vec![1.0; 3]).unwrap();
        let problem = Problem::bsr(&a).unwrap();
        let direct =
            if cfg!(feature = "lu") { "lu:most=40000000 with gmres(3)" } else { "ildu with bicgstab" };
        for (options, first) in [
            ("", ["ildu with cg", direct]),
            ("precond=jacobi+ildu", ["jacobi+ildu with cg", "jacobi+ildu with bicgstab"]),
            (
                "precond=jacobi then ildu",
                ["jacobi then ildu with bicgstab", "jacobi then ildu with gmres(3)"],
            ),
            ("precond=amg", ["amg with cg", "amg with bicgstab"]),
            ("precond=amg:cycle=k", ["amg:cycle=k with cg", "amg:cycle=k with fgmres(3)"]),
            ("precond=ildu:shift=1e-3", ["ildu:shift=1e-3 with bicgstab", "ildu:shift=1e-3 with gmres(3)"]),
        ] {
            let options = options.parse::<Options>().unwrap().settled().unwrap();
            let ladder = ladder(
                &problem.part_of_one(),
                &options,
                usize::MAX,
                Seen { symmetric: true, ..Seen::default() },
            );
            assert_eq!([ladder[0].name(), ladder[1].name()], first);
        }
        // Directions of CG stay conjugate where cycles vary.
        let form = |options: &str| {
            let options = options.parse::<Options>().unwrap().settled().unwrap();
            ladder(&problem.part_of_one(), &options, usize::MAX, Seen { symmetric: true, ..Seen::default() })
                [0]
            .method
            .manner()
        };
        assert_eq!(form("precond=amg"), "textbook form");
        assert_eq!(form("precond=amg:cycle=k"), "flexible form");
        assert_eq!(form("precond=amg:cycle=k method=cg"), "flexible form");
        assert_eq!(form("precond=amg:cycle=k form=one-reduction"), "one-reduction form");
    }

    #[test]
    fn coarse_levels_come_first_for_many_unknowns_and_second_for_some() {
        let with = |n: usize, block: usize, seen: Seen| {
            let nodes = n / block;
            let values = vec![1.0; n * block];
            let a = Bsr::new(block, nodes, nodes, (0..=nodes).collect(), (0..nodes as u32).collect(), values);
            let (a, options) = (a.unwrap(), Options::new().settled().unwrap());
            let problem = Problem::bsr(&a).unwrap();
            ladder(&problem.part_of_one(), &options, 1 << 10, seen)
        };
        let ladder = |n, block, symmetric| with(n, block, Seen { symmetric, spread: 1e9, ..Seen::default() });
        let names = |attempts: &[Attempt]| attempts.iter().map(Attempt::name).collect::<Vec<_>>();
        let many = ladder(1 << 20, 1, true);
        assert_eq!(names(&many)[..3], ["amg with cg", "ildu with cg", "ildu with bicgstab"]);
        assert_eq!(many[0].patience, Patience::CYCLES);
        assert_eq!(many[1].patience, Patience::USUAL);
        // Constants are smooth in the system's own scales alone.
        assert!(!many[0].equilibrate && many[1].equilibrate);
        let hub = Seen { symmetric: true, longest_row: 2000, ..Seen::default() };
        assert_eq!(names(&with(1 << 20, 1, hub))[..2], ["ildu with cg", "ildu with bicgstab"]);
        assert_eq!(names(&ladder(1 << 18, 4, true))[0], "amg with cg");
        let some = ladder(1 << 19, 1, true);
        assert_eq!(names(&some)[..4], ["ildu with cg", "amg with cg", "ildu with cg", "ildu with bicgstab"]);
        let patience = [Patience::until(250.0), Patience::CYCLES, Patience::USUAL, Patience::USUAL];
        assert!(some.iter().zip(patience).all(|(attempt, patience)| attempt.patience == patience));
        let nonsymmetric = ladder(1 << 20, 2, false);
        assert_eq!(names(&nonsymmetric)[..2], ["ildu with bicgstab", "amg with bicgstab"]);
        assert_eq!(nonsymmetric[0].patience, Patience::until(120.0));
        assert!(names(&ladder(1 << 11, 1, true)).iter().all(|name| !name.starts_with("amg")));
    }

    #[test]
    fn tiles_want_the_stencil_of_the_grid_that_is_there() {
        let (n, fits) = (12, |grid: [usize; 3], a: &Bsr| {
            let problem = Problem::bsr(a).unwrap().with_grid(grid);
            tiles_fit(&crate::device::cpu::Cpu::new(12, 1), &problem.part_of_one()).unwrap()
        });
        let diagonal = Bsr::new(1, n, n, (0..=n).collect(), (0..n as u32).collect(), vec![1.0; n]).unwrap();
        assert!(fits([3, 2, 2], &diagonal) && fits([12, 1, 1], &diagonal));
        for grid in [[0, 3, 4], [3, 3, 3], [0; 3], [usize::MAX, 2, 2]] {
            assert!(!fits(grid, &diagonal), "{grid:?}");
        }
        let col = (0..n).flat_map(|_| 0..n as u32).collect();
        let full = Bsr::new(1, n, n, (0..=n).map(|i| i * n).collect(), col, vec![1.0; n * n]).unwrap();
        assert!(!fits([3, 2, 2], &full));
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
        join(&mut all, &history(vec![0.6, 0.1]));
        assert_eq!((all.residuals, all.iterations, all.restarts), (vec![1.0, 0.5, 0.6, 0.1], 3, 2));
    }
}
