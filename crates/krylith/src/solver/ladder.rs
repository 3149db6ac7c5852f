//! What a solve tries where options leave it open: a ladder of attempts within one solve, each stronger than the last.
//!
//! An attempt ends without an answer when its preconditioner cannot be built, its method breaks down or stagnates, or it is so
//! slow that the tolerance is far out of sight ([`Pace`](super::watch::Pace)). The next one then begins from the best x so far, if that is better than the first
//! guess. Residuals of all attempts make one curve, and each change is an event. What is named is never changed: only what
//! is left open differs from attempt to attempt.

use crate::Result;
use crate::method::{MethodName, MethodSpec};
use crate::operator::Terms;
use crate::options::Options;
use crate::partition::SubdomainCut;
use crate::precond::{IlduSpec, PrecondSpec, TileFactor, TileShape};
use crate::problem::LocalProblem;
use crate::solver::SolverSpace;
use crate::space::{History, Outcome, Store};

/// A step of the ladder.
struct Rung {
    precond: &'static str,
    method: MethodName,
    /// Of GMRES.
    restart: usize,
}

/// From cheap to strong. BiCGSTAB comes first: on the collected matrices it solves all ten with ILDU(0) of subdomains, where
/// GMRES(30) stagnates on two. Fill then does more than anything else; the longer the restart, the fewer the surprises.
/// CG stands before it where A and the preconditioner are symmetric: half the work an iteration; on a structured grid with
/// [`TILES`], which need as many iterations as subdomains and half the time of each (measured, H200).
const LADDER: [Rung; 7] = [
    Rung { precond: "ildu", method: MethodName::Cg, restart: 30 },
    Rung { precond: "ildu", method: MethodName::Bicgstab, restart: 30 },
    Rung { precond: "ildu:cut=whole", method: MethodName::Gmres, restart: 100 },
    Rung { precond: "ildu:fill=1,cut=whole", method: MethodName::Gmres, restart: 100 },
    Rung { precond: "ildu:fill=2,cut=whole,shift=1e-6", method: MethodName::Gmres, restart: 200 },
    Rung { precond: "ildu:fill=5,cut=whole,shift=1e-3", method: MethodName::Gmres, restart: 300 },
    // Auto is jacobi, or none where a diagonal block is singular: it can always be built.
    Rung { precond: "auto", method: MethodName::Gmres, restart: 300 },
];

/// Before subdomains, where [`tiles_fit`].
const TILES: &str = "block-jacobi";

/// Largest entries of rows or columns that differ by more than this are scaled.
const UNEVEN: f64 = 1e6;

/// One attempt, decided.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Attempt {
    /// Preconditioner.
    pub precond: PrecondSpec,
    /// Method, with a basis no longer than could ever be used.
    pub method: MethodSpec,
    /// Rows and columns are scaled for the preconditioner.
    pub equilibrate: bool,
}

impl Attempt {
    /// `ildu:cut=whole with gmres(100)`.
    pub fn name(&self) -> String {
        format!("{} with {}", self.precond, self.method.short())
    }

    /// Bytes that it wants beside the system itself.
    pub fn memory(&self, terms: &Terms, options: &Options) -> Memory {
        Memory::of(terms, &self.method, &self.precond, options)
    }
}

/// The attempts at a problem, at least one, on a device that holds subdomains of at most `most_rows` block rows: where it
/// cannot hold the whole as one, subdomains as large as that take its place. `symmetric` says that CG may solve it, `tiles` what
/// [`tiles_fit`] said, `spread` by how much the largest entries of rows or columns differ. The same on every rank.
pub(crate) fn ladder(
    local: &LocalProblem,
    options: &Options,
    most_rows: usize,
    symmetric: bool,
    tiles: bool,
    spread: f64,
) -> Vec<Attempt> {
    let (order, wanted) = (local.order(), options.precond_or_auto());
    let nodes = local.unknowns / order;
    let most = local.unknowns.min(options.stop().max_iterations.max(1));
    let open = *wanted == PrecondSpec::Auto;
    let equilibrate =
        options.equilibrate.unwrap_or(false) || (open && options.equilibrate.is_none() && spread > UNEVEN);
    let as_one = |ildu: &IlduSpec| {
        local.numbers.is_none() && ildu.as_one(order, nodes, most_rows).most_rows(order) >= nodes
    };
    let mut attempts: Vec<(Attempt, PrecondSpec)> = Vec::new();
    for rung in &LADDER {
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
            attempts.push((Attempt { precond, method, equilibrate }, alike));
        }
    }
    attempts.into_iter().map(|(attempt, _)| attempt).collect()
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
        let ladder = ladder(&problem.part_of_one(), &options, usize::MAX, false, false, 1e9);
        assert!(ladder.iter().all(|a| a.equilibrate == options.precond.is_none()));
        ladder.iter().map(Attempt::name).collect()
    }

    #[test]
    fn what_is_named_stays_and_what_is_open_climbs() {
        const LARGE: usize = 20_000; // more than stands as one
        let all = names("", LARGE);
        assert_eq!(all[0], "ildu with bicgstab");
        assert_eq!(all[1], "ildu:cut=whole with gmres(100)");
        assert_eq!(all.len(), LADDER.len() - 1);
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
        assert!(all.len() == 6 && all.iter().all(|a| a.ends_with("gmres(7)")), "{all:?}");
        assert_eq!(names("method=gmres:restart=7 precond=jacobi", LARGE), ["jacobi with gmres(7)"]);
        // Of a small system the whole is a subdomain, and no basis is longer than the system.
        let all = names("method=gmres", 20);
        assert_eq!(all[0], "ildu with gmres(20)");
        assert_eq!(all[1], "ildu:fill=1,cut=whole with gmres(20)");
    }

    #[test]
    fn symmetric_systems_begin_with_cg() {
        let a = Bsr::new(1, 3, 3, vec![0, 1, 2, 3], vec![0, 1, 2], vec![1.0; 3]).unwrap();
        let problem = Problem::bsr(&a).unwrap();
        for (options, first) in [
            ("", ["ildu with cg", "ildu with bicgstab"]),
            ("precond=jacobi+ildu", ["jacobi+ildu with cg", "jacobi+ildu with bicgstab"]),
            (
                "precond=jacobi then ildu",
                ["jacobi then ildu with bicgstab", "jacobi then ildu with gmres(3)"],
            ),
            ("precond=amg", ["amg with cg", "amg with bicgstab"]),
            ("precond=amg:cycle=k", ["amg:cycle=k with cg", "amg:cycle=k with fgmres(3)"]),
            ("precond=ildu:shift=1e-3", ["ildu:shift=1e-3 with bicgstab", "ildu:shift=1e-3 with gmres(3)"]),
            ("method=gmres", ["ildu with gmres(3)", "ildu:fill=1,cut=whole with gmres(3)"]),
        ] {
            let options = options.parse::<Options>().unwrap().settled().unwrap();
            let ladder = ladder(&problem.part_of_one(), &options, usize::MAX, true, false, 1.0);
            assert_eq!([ladder[0].name(), ladder[1].name()], first);
        }
        // Directions of CG stay conjugate where cycles vary.
        let form = |options: &str| {
            let options = options.parse::<Options>().unwrap().settled().unwrap();
            ladder(&problem.part_of_one(), &options, usize::MAX, true, false, 1.0)[0].method.manner()
        };
        assert_eq!(form("precond=amg"), "textbook form");
        assert_eq!(form("precond=amg:cycle=k"), "flexible form");
        assert_eq!(form("precond=amg:cycle=k method=cg"), "flexible form");
        assert_eq!(form("precond=amg:cycle=k form=one-reduction"), "one-reduction form");
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
