//! The rules of `auto`, as one table: what the system is like, and what is then tried, from top to bottom.
//!
//! `cargo xtask bench auto` measures them again, beside each way that can be named.

use super::Attempt;
use super::direct::Costs;
use crate::method::MethodName::{self, Bicgstab, Cg, Gmres};
use crate::precond::PrecondSpec;
use crate::solver::watch::Patience;

/// What the rules look at.
#[derive(Debug, Clone, Copy)]
pub(super) struct System {
    /// CG may solve it.
    pub symmetric: bool,
    pub unknowns: usize,
    /// A node has several of them.
    pub blocks: bool,
    /// Of a Kronecker sum.
    pub stages: bool,
    /// Some diagonal entries are zero or weak.
    pub has_holes: bool,
    /// For that rows are matched with columns where factors have no pivots.
    pub weak: bool,
    /// Blocks of the longest block row, where that is long.
    pub longest_row: usize,
    /// Rows and columns are on one rank.
    pub alone: bool,
    /// On a GPU, where direct factors are made on the host and coarse levels are not.
    pub on_gpu: bool,
    /// Tiles of its grid stand for subdomains.
    pub tiles: bool,
    pub costs: Costs,
}

/// A line of the table.
pub(super) struct Rule {
    pub when: fn(&System) -> bool,
    pub precond: &'static str,
    pub method: MethodName,
    /// Of GMRES.
    pub restart: usize,
    /// How long it is waited for while another attempt may follow.
    pub patience: fn(&System) -> Patience,
}

/// As direct factors are interrupted by nothing, they have at most as many numbers as some seconds can make: with 2.5e8, which a
/// random graph of 22,500 nodes has, they take two minutes.
pub(super) const DIRECT: &str = "lu:most=40000000";

/// Where nothing else has helped, they have as many as some minutes can make.
const LAST_DIRECT: &str = "lu:most=500000000";

/// From cheap to strong. Direct factors begin where they take no longer than incomplete ones and some iterations, and follow
/// an attempt that takes longer than they would. CG needs half the work of an iteration of BiCGSTAB, which solves all ten collected matrices with ILDU(0) of
/// subdomains where GMRES(30) stagnates on two; and around direct factors, which it applies once where GMRES does twice. Fill does more than anything else behind them, and the longer the restart, the fewer the surprises.
pub(super) const RULES: [Rule; 26] = [
    rule(|s| s.symmetric && s.is_dominant(), "jacobi", Cg, 30, |_| Patience::until(NEEDED[0])),
    rule(|s| !s.symmetric && s.is_dominant(), "jacobi", Bicgstab, 30, |_| Patience::until(NEEDED[0])),
    rule(System::is_direct_first, DIRECT, Bicgstab, 30, usual),
    rule(|s| s.symmetric && s.is_quick(), "jacobi", Cg, 30, at_once),
    rule(|s| !s.symmetric && s.is_quick(), "jacobi", Bicgstab, 30, at_once),
    rule(|s| s.is_large(), "amg", Cg, 30, cycles),
    rule(System::is_cheap_first, "jacobi", Cg, 30, |s| s.until_next(Cg)),
    rule(|s| s.symmetric && !s.is_cheap_first(), "ildu", Cg, 30, |s| s.until_next(Cg)),
    rule(|s| s.symmetric && s.is_direct_second(), DIRECT, Bicgstab, 30, usual),
    rule(|s| s.symmetric && s.is_coarsened() && !s.is_large(), "amg", Cg, 30, cycles),
    rule(|s| s.symmetric && s.is_direct_late(), DIRECT, Bicgstab, 30, usual),
    rule(|s| s.symmetric, "ildu", Cg, 30, usual),
    rule(|s| s.symmetric, "jacobi", Cg, 30, usual), // incomplete factors of a definite matrix may be indefinite
    // Natural order fills the zeros of a saddle point before it divides by them; where it does not, that shows at once.
    rule(|s| s.has_holes, "ras", Gmres, 30, |_| Patience::until(UNKNOWN)),
    rule(|_| true, "ildu", Bicgstab, 30, |s| s.until_next(Bicgstab)),
    rule(|s| !s.symmetric && s.is_direct_second(), DIRECT, Bicgstab, 30, usual),
    rule(|s| !s.symmetric && s.is_quick(), "jacobi", Gmres, 30, usual), // strong convection, which BiCGSTAB does not endure
    rule(System::is_coarsened, "amg", Bicgstab, 30, cycles), // a symmetric matrix on which CG fails is indefinite
    rule(|s| !s.symmetric && s.is_direct_late(), DIRECT, Bicgstab, 30, usual),
    rule(|_| true, "ildu", Bicgstab, 30, usual),
    rule(|_| true, "ildu:cut=whole", Gmres, 100, usual),
    rule(|_| true, "ildu:fill=1,cut=whole", Gmres, 100, usual),
    rule(|_| true, "ildu:fill=2,cut=whole,shift=1e-6", Gmres, 200, usual),
    rule(|_| true, "ildu:fill=5,cut=whole,shift=1e-3", Gmres, 300, usual),
    rule(|s| s.alone && cfg!(feature = "lu"), LAST_DIRECT, Gmres, 30, usual),
    rule(|_| true, "auto", Gmres, 300, usual), // jacobi, or none where a diagonal block is singular: it can always be built
];

/// Methods around a preconditioner that was named.
pub(super) const METHODS: [(MethodName, usize); 5] =
    [(Cg, 30), (Bicgstab, 30), (Gmres, 100), (Gmres, 200), (Gmres, 300)];

const fn rule(
    when: fn(&System) -> bool,
    precond: &'static str,
    method: MethodName,
    restart: usize,
    patience: fn(&System) -> Patience,
) -> Rule {
    Rule { when, precond, method, restart, patience }
}

fn usual(_: &System) -> Patience {
    Patience::USUAL
}

fn at_once(_: &System) -> Patience {
    AT_ONCE
}

fn cycles(_: &System) -> Patience {
    Patience::CYCLES
}

/// Symmetric systems of so many unknowns begin with coarse levels: nodes of one unknown, and of several. From there on their set-up and
/// some 13 iterations take no longer than the iterations of subdomains (measured, H200, laplace 64³ to 256³ and radiation 32³ to 128³).
const LARGE: [usize; 2] = [1 << 20, 1 << 18];
/// On a GPU systems of at most so many unknowns begin with Jacobi: 25 to 60 µs an iteration, where others take 2 to 17 ms to set up and three to
/// five times as long an iteration. Measured on an H200 over 17 grids of 4,000 to 524,288 unknowns: it is the fastest way that is named on all but the largest,
/// and tiles of a grid are faster on some.
const QUICK: usize = 1 << 19;
/// How long it is then waited for: the pace of CG, and of BiCGSTAB, is slower at first than later.
pub(super) const AT_ONCE: Patience = Patience::of(150, 800.0);
/// Systems of fewer unknowns are not coarsened.
const NOT_COARSENED: usize = 1 << 12;
/// A block row of more blocks: the graph has hubs, and coarse levels would be dense.
const HUB: usize = 1000;

/// Fewer unknowns are solved at once whatever is tried, and begin as large ones do; where rows would be matched, fewer still.
const SMALL: [usize; 2] = [1000, 100];
/// The other entries of every row are no more than so much of its diagonal one: CG with Jacobi then needs some 40 iterations to 1e-8, by
/// √κ ln(2/ε)/2 with κ = (1 + 0.9)/(1 − 0.9), and nothing is set up.
const DOMINANT: f64 = 0.9;
/// Up to so much the matrix is a diffusion's, weakly dominant up to rounding: coarse levels solve it whatever its coefficients, in less time than direct factors
/// take. Measured on one core over 17 grids of 3,375 to 160,000 unknowns in two and three dimensions, of contrasts up to 10⁴: 0.4 to 0.9 of their time from
/// 4,096 unknowns on.
const DIFFUSION: f64 = 1.0 + 1e-10;
/// A diffusion's graph of so many breadth-first levels is far across: CG with Jacobi needs 1 to 1.25 times as many iterations on grids, and coarse levels take
/// the time of some 200 (the same measurements).
const FAR: usize = 190;
/// Most unknowns for direct factors as the second attempt whatever their estimate, and for those that come at all.
const MOST_DIRECT: [usize; 2] = [1 << 14, 1 << 18];
/// Iterations that the first attempt is taken to need, and those where rows are matched with columns, which costs as much as many.
pub(super) const NEEDED: [f64; 2] = [60.0, 300.0];
/// Iterations in whose time coarse levels are set up and have solved the system, as measured on an H200 and on one core of a CPU:
/// 170 to 400 of CG, 80 to 300 of BiCGSTAB, with stages about 300.
const COARSE: [f64; 2] = [250.0, 120.0];
/// Of set-up and solve together, what one more solve surely takes no more than, with direct factors and with coarse levels: measured, a tenth to a fifth on
/// one core, and a third on an H200.
const AGAIN: [f64; 2] = [0.25, 0.5];
/// An iteration with Jacobi takes so many times less than what is estimated for incomplete factors: 6.5 and 7 on one core, laplace 20³ and 60³.
const JACOBI: f64 = 6.0;
/// Such iterations in whose time coarse levels are set up and have solved the system, and solve it once more: 190 to 500, and 50 to 120, over nine grids of
/// 8,000 to 64,000 unknowns on one core.
const COARSE_BY_JACOBI: [f64; 2] = [350.0, 100.0];
/// Those of direct factors, where these were not estimated, and of an attempt on trial.
const UNKNOWN: f64 = 100.0;

/// The attempts that precede direct factors share a limit on their iterations: this multiple of the number that fits into the estimated time of the factors.
const TIMES_AS_LONG: f64 = 10.0;
/// The smallest and the largest such limit.
const ITERATIONS_BEFORE: [usize; 2] = [300, 3000];
/// Systems with more unknowns than this have no such limit.
const BEFORE_DIRECT: usize = 1 << 18;

impl System {
    fn is_coarsened(&self) -> bool {
        self.unknowns >= NOT_COARSENED && self.longest_row <= HUB
    }

    /// On the host, where direct factors would come first on plane and thin meshes.
    fn is_diffusion(&self) -> bool {
        self.symmetric && !self.on_gpu && self.is_coarsened() && self.costs.others <= DIFFUSION
    }

    /// Coarse levels come first: of large systems, of diffusion far across, and on a GPU wherever subdomains would be cut.
    fn is_large(&self) -> bool {
        let most = LARGE[usize::from(self.blocks)];
        let far = self.is_diffusion() && !self.tiles && self.costs.levels >= FAR;
        let many = self.unknowns >= most || far || self.on_gpu && !self.tiles && !self.has_holes;
        self.symmetric && self.is_coarsened() && !self.stages && many
    }

    fn is_quick(&self) -> bool {
        let few = self.unknowns >= SMALL[0] && self.unknowns <= QUICK;
        self.on_gpu && few && !self.tiles && !self.has_holes && !self.is_direct_first()
    }

    /// On a CPU symmetric systems begin with Jacobi where coarse levels follow: incomplete factors take as long as a hundred of its iterations to
    /// make, and were the fastest way on none of 8 grids of 8,000 to 512,000 unknowns with two right-hand sides each (one core).
    fn is_cheap_first(&self) -> bool {
        let known = self.tiles || self.is_large() || self.is_direct_first();
        let apart = self.on_gpu || self.stages || self.has_holes || known;
        self.symmetric && self.is_coarsened() && !apart
    }

    fn is_dominant(&self) -> bool {
        self.unknowns >= SMALL[0] && self.costs.others <= DOMINANT
    }

    fn has_direct(&self) -> bool {
        cfg!(feature = "lu") && self.alone && self.unknowns <= MOST_DIRECT[1]
    }

    fn is_direct_first(&self) -> bool {
        let Costs { direct, incomplete, .. } = self.costs;
        let needed =
            NEEDED[usize::from(self.weak)] * self.iteration(if self.symmetric { Cg } else { Bicgstab });
        let soon = direct <= incomplete + needed && !self.is_diffusion();
        self.has_direct() && self.unknowns >= SMALL[usize::from(self.weak)] && soon
    }

    fn is_direct_second(&self) -> bool {
        let few = self.unknowns <= MOST_DIRECT[0] && !(self.on_gpu && self.is_coarsened());
        let soon = few || self.direct_iterations(Cg) <= COARSE[0];
        self.has_direct() && !self.is_direct_first() && !self.is_diffusion() && soon
    }

    fn is_direct_late(&self) -> bool {
        self.has_direct() && !self.is_direct_first() && !self.is_direct_second()
    }

    /// Iterations of the first attempt in whose time this preconditioner is set up and has solved the system, and in whose time it surely solves
    /// it once more; `None` where that is not known.
    pub(super) fn iterations_of(&self, precond: &PrecondSpec, first: &Attempt) -> Option<[f64; 2]> {
        let method = if first.method.is_cg() { Cg } else { Bicgstab };
        let by_jacobi = !self.on_gpu && matches!(first.precond, PrecondSpec::Jacobi { .. });
        let [all, again] = match precond {
            PrecondSpec::Lu(_) if !self.on_gpu && self.has_direct() => {
                let all = if by_jacobi { JACOBI } else { 1.0 } * self.direct_iterations(method);
                [all, AGAIN[0] * all]
            }
            PrecondSpec::Amg(_) if by_jacobi && method == Cg => COARSE_BY_JACOBI,
            PrecondSpec::Amg(_) => {
                let all = COARSE[usize::from(method != Cg && !self.stages)];
                [all, AGAIN[1] * all]
            }
            _ => return None,
        };
        all.is_finite().then_some([all, again])
    }

    /// Limit on the iterations of all attempts that precede direct factors.
    pub(super) fn before_direct(&self) -> usize {
        if self.unknowns > BEFORE_DIRECT {
            return usize::MAX;
        }
        let [least, most] = ITERATIONS_BEFORE;
        let all = TIMES_AS_LONG * self.direct_iterations(Bicgstab);
        if all.is_finite() { (all as usize).clamp(least, most) } else { most }
    }

    /// Seconds of an iteration with incomplete factors.
    fn iteration(&self, method: MethodName) -> f64 {
        if method == Bicgstab { 2.0 * self.costs.iteration } else { self.costs.iteration }
    }

    /// Iterations that take as long as direct factors.
    fn direct_iterations(&self, method: MethodName) -> f64 {
        self.costs.direct / self.iteration(method)
    }

    /// How long incomplete factors are waited for: as long as what follows them would take.
    fn until_next(&self, method: MethodName) -> Patience {
        if self.is_direct_second() {
            let known = Some(self.direct_iterations(method)).filter(|i| i.is_finite());
            return Patience::until(known.unwrap_or(UNKNOWN));
        }
        if self.is_coarsened() && !self.is_large() {
            return Patience::until(COARSE[usize::from(method == Bicgstab && !self.stages)]);
        }
        Patience::USUAL
    }
}
