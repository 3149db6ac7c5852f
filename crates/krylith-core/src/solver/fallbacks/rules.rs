//! The rules of `auto` in one table: conditions on the system, and the attempts that follow from them, top to
//! bottom.
//!
//! `cargo xtask bench auto` measures the attempts and compares them with every combination that a user can
//! name.

use super::Attempt;
use super::before::BeforeDirect;
use super::direct::{Costs, WHOLE};
use crate::fields::Coupled;
use crate::method::MethodName::{self, Bicgstab, Cg, Gmres};
use crate::precond::PrecondSpec;
use crate::precond::direct::LEAST_ON_DEVICE;
use crate::solver::watch::Budget;

/// Properties of the system that the rules test.
#[derive(Debug, Clone, Copy)]
pub(super) struct System {
    /// True if CG may solve it: symmetric and possibly definite.
    pub symmetric: bool,
    pub unknowns: usize,
    /// Number of unknowns of a node.
    pub order: usize,
    /// True for a Kronecker sum.
    pub stages: bool,
    /// True if some diagonal entries are zero or weak.
    pub has_weak_diagonal: bool,
    /// True if the diagonal is weak and rows can be matched with columns first, because incomplete factors do
    /// not pivot.
    pub weak: bool,
    /// Number of blocks of the longest block row, if it is long; else 0.
    pub longest_row: usize,
    /// True if one rank has the whole system.
    pub alone: bool,
    /// True on a GPU, where direct factors are computed on the host and multigrid levels on the GPU.
    pub on_gpu: bool,
    /// The coupled system that the matrix shows, if its fields are known.
    pub coupled: Option<Coupled>,
    /// True for a curl-curl matrix of edge elements.
    pub curls: bool,
    /// True if near-null vectors are given, or rigid motions recognised.
    pub has_near: bool,
    /// True if the caller gave all matrices of this list of [`GRADIENT`].
    pub gradient: [bool; 2],
    /// True if tiles of the grid replace subdomains.
    pub tiles: bool,
    pub costs: Costs,
}

/// A row of the table.
pub(super) struct Rule {
    pub when: fn(&System) -> bool,
    pub precond: &'static str,
    pub method: MethodName,
    /// Restart length of GMRES.
    pub restart: usize,
    /// Iteration budget before the next attempt, if there is one.
    pub budget: fn(&System) -> Budget,
}

/// Direct factors with limited fill: at most 2.4 GB.
pub(super) const DIRECT: &str = "lu:most=300000000";

/// Direct factors that are estimated to take long, with a limit that keeps them to some seconds. With 2.5e8
/// entries, as for a random graph of 22,500 nodes, they take two minutes.
pub(super) const FEW_DIRECT: &str = "lu:most=40000000";

/// Direct factors on a GPU, which take seconds. Without cuDSS this attempt fails at once, and the attempt
/// with factors on the host follows.
pub(super) const GPU_DIRECT: &str = "lu:most=1000000000,on=device";

/// Direct factors as the last resort, with a limit that keeps the factorisation to some minutes.
const LAST_DIRECT: &str = "lu:most=500000000";

/// Recognised saddle points. With fluxes, the inverse diagonal of the first block approximates its inverse,
/// and the Schur complement is a Laplacian. With viscous blocks, the diagonal of that approximation is close
/// to that of a mass matrix. Least-squares commutators withstand contrasts and convection.
const FLUX: &str = "split(u: chebyshev(jacobi), p: amg; schur=upper, S=selfp)";
const VISCOUS: &str = "split(u: amg, p: jacobi; schur=upper, S=selfp)";
const COMMUTED: &str = "split(u: amg, p: amg; schur=upper, S=lsc)";
/// With convection, incomplete factors of the velocities are cheaper than multigrid, and need fewer
/// iterations. Measured on one core for a step of an Oseen flow with 31,000 unknowns: 0.4 s, and 2.9 s
/// without this rule.
const CONVECTED: &str = "split(u: ildu, p: amg; schur=upper, S=lsc)";
/// With displacements and fluxes, the approximation has both a mass matrix and a Laplacian.
const POROUS: &str =
    "split(u+w: split(u: amg, w: chebyshev(jacobi); form=diagonal), p: amg; schur=upper, S=selfp)";
/// Recognised curl-curl matrices, if the caller gave the discrete gradient and the interpolation of nodal
/// vectors in three dimensions, or in two (Hiptmair and Xu 2007).
pub(super) const GRADIENT: [&[&str]; 2] = [&["G", "Px", "Py", "Pz"], &["G", "Px", "Py"]];
const NODAL: [&str; 2] = [
    "symmetric(chebyshev(jacobi; degree=2, low=0.2) then aux(G: amg) then aux(Px: amg) then aux(Py: amg) then \
     aux(Pz: amg))",
    "symmetric(chebyshev(jacobi; degree=2, low=0.2) then aux(G: amg) then aux(Px: amg) then aux(Py: amg))",
];
/// Recognised cells of a pressure and transported unknowns.
const CELLS: &str = "cpr(p: amg) then ildu";

/// ILU(0) of the whole matrix. On one thread it takes 0.3 to 0.8 of the time of factors of subdomains: no
/// graph is cut, and iterations are 0.3 to 0.75 times as many. Measured for eight reacting, semiconductor and
/// thermoelastic systems of 20,000 to 105,000 unknowns (bench/runs/2026-11-29-cpu-bare).
const WHOLE_ILDU: &str = "ildu:cut=whole";

/// The same with the fill of level 2, which is cheap on plane meshes. Measured on one core for Cahn–Hilliard
/// steps of 98,000 unknowns in 2-D, with BiCGSTAB: 13 iterations in 0.18 s, while level 1 takes 157 in 0.64
/// s, level 0 none converges, and direct factors take 0.72 s.
const FILLED_ILDU: &str = "ildu:fill=2,cut=whole";

/// ILU(0) that takes the rows in their places. Without a fixed order of sweeps it would need FGMRES: for nine
/// species with 101,000 unknowns, 24 iterations in 0.22 s beside 14 of BiCGSTAB in 0.16 s.
const IN_PLACE: &str = "ras:deterministic";

/// Attempts from cheap to strong. Direct factors come first if they take no longer than incomplete factors
/// and some iterations. Otherwise they follow an attempt that takes longer than they would. An iteration of
/// CG is half the work of one of BiCGSTAB. BiCGSTAB with ILDU(0) of subdomains solves all ten matrices of the
/// test collection, while GMRES(30) stagnates on two. Direct factors use BiCGSTAB too: it ends in the middle
/// of its first iteration and applies them once, while GMRES applies them twice. In later attempts more fill
/// helps most, and long restarts are the most robust.
pub(super) const RULES: [Rule; 45] = [
    rule(|s| s.curls && s.gradient[0], NODAL[0], Cg, 30, cycles),
    rule(|s| s.curls && !s.gradient[0] && s.gradient[1], NODAL[1], Cg, 30, cycles),
    rule(|s| s.symmetric && s.is_dominant(), "jacobi", Cg, 30, |_| Budget::until(NEEDED[0])),
    rule(|s| !s.symmetric && s.is_dominant(), "jacobi", Bicgstab, 30, |_| Budget::until(NEEDED[0])),
    rule(
        |s| s.is_tried_before_direct() && !s.has_weak_diagonal,
        WHOLE_ILDU,
        Bicgstab,
        30,
        System::until_direct,
    ),
    // Its factors take the rows in their places, whatever the diagonal.
    rule(|s| s.is_tried_before_direct() && s.has_weak_diagonal, IN_PLACE, Bicgstab, 30, System::until_direct),
    rule(System::is_direct_first, DIRECT, Bicgstab, 30, usual),
    rule(|s| s.coupled == Some(Coupled::Flux), FLUX, Gmres, 100, System::until_split),
    rule(|s| s.coupled == Some(Coupled::Convected) && !s.on_gpu, CONVECTED, Gmres, 100, System::until_split),
    rule(System::is_viscous, VISCOUS, Gmres, 100, System::until_split),
    rule(System::is_viscous, COMMUTED, Gmres, 100, System::until_split),
    rule(|s| s.coupled == Some(Coupled::Porous), POROUS, Gmres, 100, System::until_split),
    rule(|s| s.coupled == Some(Coupled::Cells), CELLS, Gmres, 100, System::until_split),
    rule(|s| s.coupled.is_some() && s.has_direct() && !s.is_slow(), DIRECT, Bicgstab, 30, usual),
    rule(|s| s.symmetric && s.is_quick(), "jacobi", Cg, 30, at_once),
    rule(|s| !s.symmetric && s.is_quick(), "jacobi", Bicgstab, 30, at_once),
    rule(|s| s.is_large(), "amg", Cg, 30, cycles),
    rule(System::is_large_for_bicgstab, "amg", Bicgstab, 30, |_| FEW_CYCLES),
    rule(System::is_cheap_first, "jacobi", Cg, 30, System::until_coarse),
    rule(|s| s.symmetric && !s.is_cheap_first(), "ildu", Cg, 30, |s| s.until_next(Cg)),
    rule(|s| s.symmetric && s.is_direct_second(), DIRECT, Bicgstab, 30, usual),
    rule(|s| s.symmetric && s.is_coarsened() && !s.is_large(), "amg", Cg, 30, cycles),
    rule(|s| s.symmetric && s.is_direct_on_gpu(), GPU_DIRECT, Bicgstab, 30, usual),
    rule(|s| s.symmetric && s.is_direct_late() && !s.is_slow(), DIRECT, Bicgstab, 30, usual),
    rule(|s| s.symmetric && s.is_direct_late() && s.is_slow(), FEW_DIRECT, Bicgstab, 30, usual),
    rule(|s| s.symmetric, "ildu", Cg, 30, usual),
    rule(|s| s.symmetric, "jacobi", Cg, 30, usual), // ILDU of a definite matrix may be indefinite
    // In natural order, fill replaces the zero pivots of a saddle point before elimination divides by them.
    // Otherwise the attempt fails at once.
    rule(|s| s.has_weak_diagonal, "ras", Gmres, 30, System::until_more_fill),
    rule(System::is_whole, WHOLE_ILDU, Bicgstab, 30, |s| s.until_next(Bicgstab)),
    rule(|s| !s.is_whole(), "ildu", Bicgstab, 30, |s| s.until_next(Bicgstab)),
    rule(|s| !s.symmetric && s.is_filled(), FILLED_ILDU, Bicgstab, 30, System::until_direct),
    rule(|s| !s.symmetric && s.is_direct_second(), DIRECT, Bicgstab, 30, usual),
    rule(|s| !s.symmetric && s.is_quick(), "jacobi", Gmres, 30, usual), // strong convection: BiCGSTAB fails
    rule(|s| !s.passes_by_cycles(), "amg", Bicgstab, 30, cycles), // symmetric, but CG failed: indefinite
    rule(|s| !s.symmetric && s.is_direct_on_gpu(), GPU_DIRECT, Bicgstab, 30, usual),
    rule(|s| !s.symmetric && s.is_direct_late() && !s.is_slow(), DIRECT, Bicgstab, 30, usual),
    rule(|s| !s.symmetric && s.is_direct_late() && s.is_slow(), FEW_DIRECT, Bicgstab, 30, usual),
    rule(System::is_whole, WHOLE_ILDU, Bicgstab, 30, usual),
    rule(|s| !s.is_whole(), "ildu", Bicgstab, 30, usual),
    rule(|_| true, "ildu:cut=whole", Gmres, 100, usual),
    rule(|_| true, "ildu:fill=1,cut=whole", Gmres, 100, usual),
    rule(|_| true, "ildu:fill=2,cut=whole,shift=1e-6", Gmres, 200, usual),
    rule(|_| true, "ildu:fill=5,cut=whole,shift=1e-3", Gmres, 300, usual),
    rule(|_| cfg!(feature = "lu"), LAST_DIRECT, Gmres, 30, usual),
    rule(|_| true, "auto", Gmres, 300, usual), // jacobi, or none if a block is singular
];

/// Methods to try with a preconditioner that the user named.
pub(super) const METHODS: [(MethodName, usize); 5] =
    [(Cg, 30), (Bicgstab, 30), (Gmres, 100), (Gmres, 200), (Gmres, 300)];

const fn rule(
    when: fn(&System) -> bool,
    precond: &'static str,
    method: MethodName,
    restart: usize,
    budget: fn(&System) -> Budget,
) -> Rule {
    Rule { when, precond, method, restart, budget }
}

fn usual(_: &System) -> Budget {
    Budget::USUAL
}

fn at_once(_: &System) -> Budget {
    AT_ONCE
}

fn cycles(_: &System) -> Budget {
    Budget::CYCLES
}

/// Symmetric systems of at least this many unknowns start with algebraic multigrid. The first number is for
/// nodes of one unknown, the second for nodes of several. From this size on, its set-up and about 13
/// iterations take no longer than the iterations with subdomains. Measured on an H200 with laplace 64³ to
/// 256³ and radiation 32³ to 128³.
const LARGE: [usize; 2] = [1 << 20, 1 << 18];
/// On a GPU, systems of at most this many unknowns start with Jacobi. An iteration takes 25 to 60 µs. Other
/// preconditioners take 2 to 17 ms to set up, and three to five times as long per iteration. Measured on an
/// H200 for 17 grids of 4,000 to 524,288 unknowns: Jacobi is the fastest preconditioner on all but the
/// largest grids, and tiles are faster on some.
const QUICK: usize = 1 << 19;
/// The budget of this attempt with Jacobi. It is large because CG and BiCGSTAB converge more slowly at first
/// than later.
pub(super) const AT_ONCE: Budget = Budget::of(150, 800.0);
/// The budget of algebraic multigrid where it comes first for a matrix that is not symmetric. Measured on an
/// H100, set-up included, against ILDU(0) of subdomains with BiCGSTAB: radiation 64³ with three unknowns a
/// node 32 and 78 ms (10 and 170 iterations), reaction 64³ with three 23 and 36 ms, convection 128³ 43 and
/// 127 ms.
pub(super) const FEW_CYCLES: Budget = Budget::of(20, 100.0);
/// Largest share of couplings that convection dominates at which algebraic multigrid suits a matrix that is
/// not symmetric: above, convection is strong, and cycles make no progress. The share is 0 for those systems,
/// 0.33 for upwind convection on 30³ nodes with cell Péclet numbers 13, 6 and 3, and 1 with ten times these
/// numbers. It is 0.63 for a rotating flow with streamline diffusion.
const CONVECTIVE: f64 = 0.2;
/// Systems of fewer unknowns do not use algebraic multigrid.
const NOT_COARSENED: usize = 1 << 12;
/// A block row with more blocks than this is a hub of the graph. Hubs would make coarse levels dense. Jacobi
/// comes first for such graphs of any size. A power-law graph of 1,038,040 nodes takes 18 iterations with
/// Jacobi and with ILDU: set-up and solve take 8 ms on an H200 with Jacobi, 108 ms on an H100 with ILDU.
const HUB: usize = 1000;

/// Any attempt solves systems with fewer unknowns than this almost at once, so they skip the special first
/// attempts. The second number is for systems whose rows would be matched.
const SMALL: [usize; 2] = [1000, 100];
/// Largest ratio of off-diagonal sum to diagonal entry for a start with Jacobi. CG then needs about 40
/// iterations to ε = 1e-8, by √κ ln(2/ε)/2 with the condition number κ = (1 + 0.9)/(1 − 0.9). There is hardly
/// any set-up.
const DOMINANT: f64 = 0.9;
/// Largest such ratio of a diffusion matrix, which is weakly diagonally dominant up to rounding. For any
/// coefficients algebraic multigrid is faster than direct factors: it takes 0.4 to 0.9 of their time from
/// 4,096 unknowns on. Measured on one core for 17 grids of 3,375 to 160,000 unknowns in two and three
/// dimensions, with contrasts up to 10⁴.
const DIFFUSION: f64 = 1.0 + 1e-10;
/// Number of breadth-first levels from which a diffusion graph counts as long. On grids CG with Jacobi needs
/// 1 to 1.25 iterations per level, and algebraic multigrid takes the time of about 200 iterations (the same
/// measurements).
const FAR: usize = 190;
/// Largest numbers of unknowns for direct factors. Up to the first number they may be the second attempt,
/// whatever their estimated time is. Above the second number they are not tried.
const MOST_DIRECT: [usize; 2] = [1 << 14, 1 << 18];
/// Smallest and largest numbers of unknowns for direct factors on a GPU. Grids of the second size take 1.2 to
/// 2.4 s on an H200 (bench/runs/2026-11-29-h200-cudss).
const ON_GPU: [usize; 2] = [LEAST_ON_DEVICE, 1 << 20];
/// Largest estimated seconds of direct factors without a small limit on their numbers.
const LATE: f64 = 100.0;
/// Number of iterations that the first attempt is assumed to need. The second number is for matched rows and
/// includes the cost of the matching.
pub(super) const NEEDED: [f64; 2] = [60.0, 300.0];
/// Time of set-up and solve with algebraic multigrid, in iterations of CG and of BiCGSTAB. Measured on an
/// H200 and on one core of a CPU: 170 to 400 iterations of CG, 80 to 300 of BiCGSTAB, and about 300 with
/// stages.
const COARSE: [f64; 2] = [250.0, 120.0];
/// Estimated time of direct factors, in iterations of CG, up to which they come before algebraic multigrid.
/// Measured on one core: multigrid takes 75 to 150 of these iterations for elasticity of 20,000 unknowns.
const SOON: f64 = 120.0;
/// Upper bound on the cost of one further solve, as a share of set-up + solve: with direct factors, and with
/// algebraic multigrid. Measured: a tenth to a fifth on one core, and a third on an H200.
const AGAIN: [f64; 2] = [0.25, 0.5];
/// Estimated time of an iteration with incomplete factors, divided by that with Jacobi. Measured on one core:
/// 6.5 and 7 for laplace 20³ and 60³.
const JACOBI: f64 = 6.0;
/// Time of algebraic multigrid, in iterations with Jacobi: for set-up and solve, and for one further solve.
/// Measured: 190 to 500, and 50 to 120, for nine grids of 8,000 to 64,000 unknowns on one core.
const COARSE_BY_JACOBI: [f64; 2] = [350.0, 100.0];
/// Time of direct factors, in iterations, if it was not estimated. It is also the budget of an attempt on
/// trial.
const UNKNOWN: f64 = 100.0;

/// Largest number of iterations of BiCGSTAB before direct factors where convection is strong.
const CONVECTION: f64 = 500.0;

/// Iterations of a trial of incomplete factors before direct factors, and the largest share of their time
/// that it may take.
const TRIAL: (usize, f64) = (8, 0.35);

/// Largest estimated time of direct factors, as a multiple of incomplete ones, for a graph as of a plane
/// mesh, where fill of level 2 is limited. The estimates are 8 to 12 for Cahn–Hilliard steps in 2-D of 20,000
/// to 98,000 unknowns, and 42 and more for systems in 3-D from 27,000 unknowns on.
const PLANE: f64 = 30.0;

/// Time of a preconditioner of fields in iterations of CG with incomplete factors: of set-up and solve, and
/// of one iteration. Measured on one core: 100 to 210 and 1.5 to 3, for Stokes, Biot, Darcy and nearly
/// incompressible systems of 20,000 to 110,000 unknowns (bench/runs/2026-11-29-cpu-bare). The first number is
/// rather large, because direct factors do not fail.
pub(super) const SPLIT: [f64; 2] = [250.0, 2.0];

/// The first of these numbers for three-field poroelasticity. Measured: 990 and 1,140 in 3-D with 30,000 and
/// 127,000 unknowns.
pub(super) const POROUS_SPLIT: f64 = 1000.0;

/// Share of the time of direct factors that CG with Jacobi may have left for a curl-curl matrix. Gradients
/// slow it down ever more: at low frequency it estimated 1,300 to 1,450 iterations left from iteration 200 to
/// iteration 1,600.
const BY_GRADIENTS: f64 = 0.4;
/// Time of an elimination order by minimum degree, in iterations of CG with incomplete factors.
const ORDERING: f64 = 40.0;
/// Time of direct factors, in iterations of CG with incomplete factors, up to which they come before
/// multigrid or another split if the last attempt was too slow: both then need 100 to 250 such iterations,
/// and often fail as well.
const STALLED: f64 = 500.0;
/// On a GPU, and where direct factors were not estimated, the attempts before them share an iteration limit:
/// this multiple of the iterations that fit in the estimated time of the factors.
const TIMES_AS_LONG: f64 = 10.0;
/// The smallest and the largest value of that limit.
const ITERATIONS_BEFORE: [usize; 2] = [300, 3000];
/// Systems with more unknowns than this have no such limit.
const BEFORE_DIRECT: usize = 1 << 18;

impl System {
    fn is_coarsened(&self) -> bool {
        self.unknowns >= NOT_COARSENED && self.longest_row <= HUB
    }

    /// Returns true for a large graph with a hub. Paths in it are short, so Jacobi often needs few
    /// iterations.
    fn has_hub(&self) -> bool {
        self.unknowns >= NOT_COARSENED && self.longest_row > HUB
    }

    /// Returns true for a diffusion on the host. Without this rule, direct factors would come first on planar
    /// and thin meshes.
    fn is_diffusion(&self) -> bool {
        self.symmetric && !self.on_gpu && self.is_coarsened() && self.costs.others <= DIFFUSION
    }

    /// Returns true if algebraic multigrid comes first: for large systems, for diffusion on long graphs, and
    /// on a GPU if subdomains would be cut.
    fn is_large(&self) -> bool {
        let most = LARGE[usize::from(self.order > 1)];
        let far = self.is_diffusion() && !self.tiles && self.costs.levels >= FAR;
        let many = self.unknowns >= most || far || self.on_gpu && !self.tiles && !self.has_weak_diagonal;
        self.symmetric && self.is_coarsened() && !self.stages && many
    }

    /// Returns true if algebraic multigrid comes first although the matrix is not symmetric: on one GPU, for
    /// systems that are too large for a start with Jacobi.
    fn is_large_for_bicgstab(&self) -> bool {
        let apart = self.symmetric || self.stages || self.tiles || self.has_weak_diagonal;
        let suits = self.is_coarsened() && !self.has_convection();
        self.on_gpu && self.alone && !apart && suits && self.unknowns > QUICK
    }

    /// Returns true if the matrix is not symmetric and algebraic multigrid makes no progress.
    fn has_convection(&self) -> bool {
        self.costs.convective > CONVECTIVE
    }

    /// Returns true if direct factors follow iterations on a CPU without multigrid in between.
    fn passes_by_cycles(&self) -> bool {
        let known = self.costs.direct.is_finite() && self.has_direct() && !self.on_gpu;
        !self.is_coarsened() || known && self.has_convection()
    }

    fn is_quick(&self) -> bool {
        let suits = self.unknowns >= SMALL[0] && (self.unknowns <= QUICK || self.has_hub());
        self.on_gpu && suits && !self.tiles && !self.has_weak_diagonal && !self.is_direct_first()
    }

    /// Returns true if a symmetric system starts with Jacobi on a CPU, before algebraic multigrid. An
    /// incomplete factorisation takes as long as a hundred iterations with Jacobi. It was not the fastest
    /// choice on any of 8 grids of 8,000 to 512,000 unknowns, with two right-hand sides each, on one core.
    fn is_cheap_first(&self) -> bool {
        let known = self.tiles || self.is_large() || self.is_direct_first();
        let apart = self.on_gpu || self.stages || self.has_weak_diagonal || known;
        self.symmetric && (self.is_coarsened() || self.has_hub()) && !apart
    }

    fn is_viscous(&self) -> bool {
        matches!(self.coupled, Some(Coupled::Viscous | Coupled::Convected))
    }

    fn is_dominant(&self) -> bool {
        self.unknowns >= SMALL[0] && self.costs.others <= DOMINANT
    }

    fn has_direct(&self) -> bool {
        cfg!(feature = "lu") && self.alone && self.unknowns <= MOST_DIRECT[1]
    }

    /// Returns true if direct factors may run on a GPU. Fewer unknowns take those of the host.
    fn is_direct_on_gpu(&self) -> bool {
        let fits = (ON_GPU[0]..=ON_GPU[1]).contains(&self.unknowns);
        cfg!(feature = "lu") && self.on_gpu && self.alone && fits && !self.is_direct_second()
    }

    fn is_direct_first(&self) -> bool {
        let Costs { direct, incomplete, .. } = self.costs;
        let limit = match self.coupled {
            Some(Coupled::Porous) => POROUS_SPLIT * self.iteration(Cg),
            Some(_) => SPLIT[0] * self.iteration(Cg),
            None => {
                let method = if self.symmetric { Cg } else { Bicgstab };
                incomplete + NEEDED[usize::from(self.weak)] * self.iteration(method)
            }
        };
        let soon = direct <= limit && !self.is_diffusion();
        self.has_direct() && self.unknowns >= SMALL[usize::from(self.weak)] && soon
    }

    /// Returns true if incomplete factors and a few iterations of BiCGSTAB cost little beside direct factors
    /// that would come first. If reactions dominate, few iterations suffice.
    fn is_tried_before_direct(&self) -> bool {
        let Costs { direct, incomplete, .. } = self.costs;
        let suits = self.coupled.is_none() && !self.symmetric && !self.stages && !self.on_gpu;
        let trial = incomplete + TRIAL.0 as f64 * self.iteration(Bicgstab);
        suits && self.is_direct_first() && trial <= TRIAL.1 * direct
    }

    /// Returns the budget of this attempt: half of the time of direct factors.
    fn until_direct(&self) -> Budget {
        Budget::of(TRIAL.0, (0.5 * self.direct_iterations(Bicgstab)).max(TRIAL.0 as f64))
    }

    fn is_direct_second(&self) -> bool {
        let few = self.unknowns <= MOST_DIRECT[0] && !(self.on_gpu && self.is_coarsened());
        // Algebraic multigrid of the matrix itself does not see the gradients.
        let soon = few || self.curls || self.direct_iterations(Cg) <= SOON;
        self.has_direct() && !self.is_direct_first() && !self.is_diffusion() && soon
    }

    fn is_direct_late(&self) -> bool {
        self.has_direct() && !self.is_direct_first() && !self.is_direct_second()
    }

    /// Returns true if direct factors are estimated to take long, or were not estimated.
    fn is_slow(&self) -> bool {
        !(self.costs.direct <= LATE)
    }

    /// Returns true if incomplete factors are those of the whole matrix. Smaller systems are one subdomain.
    fn is_whole(&self) -> bool {
        let fits = (NOT_COARSENED..=WHOLE).contains(&self.unknowns);
        !self.on_gpu && !self.stages && !self.has_weak_diagonal && fits
    }

    /// Returns true if incomplete factors with more fill may succeed where ILU(0) has failed, in little of
    /// the time of direct factors: on plane meshes.
    fn is_filled(&self) -> bool {
        let is_plane = self.costs.direct <= PLANE * self.costs.incomplete;
        self.is_whole() && self.is_direct_late() && is_plane
    }

    /// Returns the cost of this preconditioner in iterations of the first attempt; `None` if it is not known.
    /// The first number is for set-up and one solve, the second is an upper bound for one further solve.
    pub(super) fn iterations_of(&self, precond: &PrecondSpec, first: &Attempt) -> Option<[f64; 2]> {
        let method = if first.method.is_cg() { Cg } else { Bicgstab };
        if self.coupled.is_some() && first.precond.names_fields() {
            // Multigrid for all unknowns together does not repay itself.
            let is_direct = matches!(precond, PrecondSpec::Lu(_)) && self.has_direct();
            let all = self.direct_iterations(Cg) / SPLIT[1];
            return (is_direct && all.is_finite()).then_some([all, AGAIN[0] * all]);
        }
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

    /// Returns the limit on all attempts that precede direct factors.
    pub(super) fn before_direct(&self) -> BeforeDirect {
        if self.unknowns > BEFORE_DIRECT {
            return BeforeDirect::by_iterations(usize::MAX);
        }
        let Costs { direct, iteration, levels, .. } = self.costs;
        if !self.on_gpu && self.has_direct() && direct.is_finite() {
            let closer = if self.costs.is_close { f64::INFINITY } else { ORDERING * iteration };
            // Multigrid suits diffusion and elasticity, whatever Jacobi does.
            let suits = self.is_diffusion() || (2..=3).contains(&self.order) || self.has_near;
            let levels = if suits { usize::MAX } else { levels };
            let limit = BeforeDirect::by_time(direct, [closer, STALLED * iteration], levels, self.symmetric);
            return if self.curls { limit.permitting(BY_GRADIENTS) } else { limit };
        }
        let [least, most] = ITERATIONS_BEFORE;
        let all = TIMES_AS_LONG * self.direct_iterations(Bicgstab);
        BeforeDirect::by_iterations(if all.is_finite() { (all as usize).clamp(least, most) } else { most })
    }

    /// Returns the estimated seconds of an iteration with incomplete factors.
    fn iteration(&self, method: MethodName) -> f64 {
        if method == Bicgstab { 2.0 * self.costs.iteration } else { self.costs.iteration }
    }

    /// Returns the budget of a preconditioner of fields, which is the estimated time of direct factors.
    fn until_split(&self) -> Budget {
        let direct = if self.has_direct() { self.direct_iterations(Cg) / SPLIT[1] } else { f64::INFINITY };
        Budget::of(40, direct.clamp(100.0, 400.0)).early()
    }

    /// Returns the budget of overlapping subdomains. On a GPU, later attempts take seconds. With 332,000
    /// unknowns of a reservoir an H200 takes 0.14 s for 432 iterations, and 1.1 s for direct factors.
    fn until_more_fill(&self) -> Budget {
        if self.on_gpu { AT_ONCE } else { Budget::until(UNKNOWN) }
    }

    /// Returns the number of iterations that take as long as direct factors.
    fn direct_iterations(&self, method: MethodName) -> f64 {
        self.costs.direct / self.iteration(method)
    }

    /// Returns the budget of Jacobi on a CPU, which is the estimated time of the next attempt.
    fn until_coarse(&self) -> Budget {
        if self.has_hub() { Budget::until(UNKNOWN) } else { self.until_next(Cg) }
    }

    /// Returns the budget of incomplete factors, which is the estimated time of the next attempt.
    fn until_next(&self, method: MethodName) -> Budget {
        if self.is_direct_second() {
            let known = Some(self.direct_iterations(method)).filter(|i| i.is_finite());
            return Budget::until(known.unwrap_or(UNKNOWN));
        }
        if self.is_coarsened() && self.passes_by_cycles() {
            let direct = self.direct_iterations(method).clamp(UNKNOWN, CONVECTION);
            return Budget::until(direct);
        }
        if self.is_coarsened() && !self.is_large() {
            return Budget::until(COARSE[usize::from(method == Bicgstab && !self.stages)]);
        }
        Budget::USUAL
    }
}
