//! Algebraic multigrid: a hierarchy of smaller and smaller systems. The matrix of each is the Galerkin
//! product R A P of the one before.
//!
//! Coarsening works on one scalar matrix, the couplings of the nodes ([`Coarsen::couplings`]). A node
//! interpolates all of its components and stages with the same weights. So P is a scalar matrix of n fine by
//! n_c coarse nodes, and acts as P ⊗ I. The coarse operator has the block size, the stages and the
//! coefficients of the fine operator: A⊗M + τB⊗L becomes A⊗(RMP) + τB⊗(RLP).
//!
//! For upwinded flow R is not Pᵀ, but comes from small local solves ([`CoarsenKind::Air`], `host/air.rs`).
//!
//! If near-null vectors are given, such as the rigid modes of an elastic body ([`NearNull`]), coarse nodes
//! instead have one unknown for each vector. P then has blocks.
//!
//! The steps of a set-up are functions in `host/` that use all threads. A GPU has its own versions with the
//! same results. Each step is a pure function of its input. Random numbers come from a hash of a node's
//! number, and no result depends on the order of execution.
//!
//! To add a method of coarsening, add a [`CoarsenKind`] and its function in `host/`, and optionally a
//! function in `device/cuda/multilevel`. To add a smoother, add a variant of [`Smoothing`].
//! `precond/spec/amg.rs` has the names, `solver/build/multilevel.rs` describes hierarchies for reports, and
//! `krylith-model/src/multilevel.rs` predicts their products.

mod coarsest;
mod cycle;
mod hierarchy;
pub(crate) mod host;
mod level;
mod narrow;
mod near_null;
mod options;
mod parts;
pub(crate) mod ranks;
mod side;
mod smoother;
mod transfers;
mod wide;

pub(crate) use coarsest::{Inverse, inverse_of};
pub use cycle::{Cycle, STEPS as CYCLE_STEPS};
pub use hierarchy::Multilevel;
pub(crate) use level::Finest;
pub use level::Level;
#[doc(hidden)]
pub use narrow::{NarrowCycle, NarrowLevel};
#[cfg(feature = "cuda")]
pub(crate) use near_null::RigidModes;
pub use near_null::{NearNull, NearNullTransfer, Nodal};
pub use options::MultilevelOptions;
pub use ranks::{Neighbourhood, Places};
pub use smoother::{Diagonal, Direction, Fused, Passes, Smoothing};

use super::{BlockDiagonal, SubdomainFactors};
use crate::Result;
use crate::halo::Halo;
use crate::matrix::Bsr;
use crate::matrix::storage::Storage;
use crate::operator::{Format, PointBlock, PointBlockSum, Terms};
use crate::space::{Precision, PrecondPrecision, SweepSource};
use crate::threads::Pool;
pub use host::parallel::Rows as RowsOfMatrix;
use std::sync::Arc;

/// The vector passes of hierarchies and cycles.
pub const MULTILEVEL_SWEEPS: [&[SweepSource]; 3] = [smoother::SWEEPS, cycle::SWEEPS, level::SWEEPS];

/// If a coarser level would have more than this share of the nodes, coarsening has stalled and the level is
/// the last.
const STALLED: f64 = 0.8;

/// Settings of coarsening: the choice of coarse points, and interpolation from them.
///
/// # Examples
/// ```
/// use krylith_core::precond::{CoarsenKind, Coarsening};
/// let kind = CoarsenKind::Aggregation { smoothed: true };
/// let smoothed = Coarsening { strength: 0.1, ..Coarsening::of(kind) };
/// assert_eq!((smoothed.truncate, smoothed.aggressive), (4, 0)); // the defaults
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Coarsening {
    /// Method of choosing coarse points and interpolation weights.
    pub kind: CoarsenKind,
    /// Threshold θ of strong connections. Node i depends strongly on j if −a_ij ≥ θ max_k(−a_ik), after row i
    /// is multiplied by the sign of a_ii. For aggregation the condition is a_ij² ≥ θ² |a_ii a_jj|.
    pub strength: f64,
    /// Number of the largest weights that a row of interpolation keeps; 0 keeps all.
    pub truncate: usize,
    /// Number of levels with aggressive coarsening, from the finest level on. Classical coarsening then runs
    /// PMIS twice, and uses multipass interpolation with one step of Jacobi's method. Aggregation without
    /// smoothing then forms aggregates of up to eight nodes instead of four.
    pub aggressive: usize,
    /// Couplings of coarse levels that are smaller than this share of the largest in their row are added to
    /// the diagonal. Only for [`CoarsenKind::Air`]; otherwise 0.
    pub filter: f64,
    /// Treatment of couplings between ranks during coarsening.
    pub border: Border,
}

/// Treatment of couplings between ranks during coarsening. With every value, coarse operators, residuals and
/// solutions include these couplings.
///
/// # Examples
/// ```
/// use krylith_core::precond::Border;
/// let names = Border::ALL.map(Border::name);
/// assert_eq!(names, ["auto", "global", "local"]); // as in amg:border=local
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Border {
    /// [`Local`](Self::Local) on levels where borders between ranks are long but have only a small share of
    /// the nodes, else [`Global`](Self::Global).
    #[default]
    Auto,
    /// Coarsening uses these couplings, and gives the coarse points and P that a single rank would compute.
    /// Ranks exchange the rows of up to four layers of nodes around their own.
    Global,
    /// Coarsening ignores these couplings: each rank coarsens and interpolates only among its own nodes. The
    /// dropped couplings are added to the diagonal, so that P still reproduces constants. Only the rows of P
    /// that belong to ghosts are exchanged.
    Local,
}

impl Border {
    /// All three values.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Global, Self::Local];

    /// Returns the name in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Global => "global",
            Self::Local => "local",
        }
    }
}

/// The families of coarsening.
///
/// # Examples
/// ```
/// use krylith::precond::PrecondSpec;
/// use krylith_core::precond::{AmgSpec, CoarsenKind};
/// let amg = AmgSpec { coarsen: Some(CoarsenKind::Classical), ..AmgSpec::default() };
/// assert_eq!("amg:coarsen=classical".parse::<PrecondSpec>()?, PrecondSpec::Amg(amg));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoarsenKind {
    /// Classical coarsening: PMIS chooses coarse points (De Sterck, Yang and Heys 2006), and fine points
    /// interpolate from them by extended+i (De Sterck, Falgout, Nolting and Yang 2008).
    Classical,
    /// Aggregation. Unsmoothed aggregates come from pairwise matching of strongly coupled nodes, two or three
    /// times (Notay 2010). With `smoothed`, aggregates grow around root nodes, and P gets a step of damped
    /// Jacobi (Vaněk, Mandel and Brezina 1996).
    Aggregation {
        /// True for a smoothed P.
        smoothed: bool,
    },
    /// Approximate ideal restriction, for upwinded flow (Manteuffel, Münzenmaier, Ruge and Southworth 2019).
    /// R is not Pᵀ: its rows come from small local solves, and P takes the value of one coarse point. So the
    /// preconditioner is not symmetric. Nodes must have one unknown.
    Air {
        /// Number of strong couplings to the farthest fine points that a row of R contains, 1 or 2.
        distance: usize,
    },
}

impl CoarsenKind {
    /// Returns true for approximate ideal restriction, with R ≠ Pᵀ.
    pub fn is_air(self) -> bool {
        matches!(self, Self::Air { .. })
    }
}

impl Coarsening {
    /// Returns the default settings of a family.
    pub fn of(kind: CoarsenKind) -> Self {
        // One aggressive level halves the operator complexity of 7-point stencils, and adds two iterations to
        // twelve. A second aggressive level makes set-ups a tenth to a quarter shorter. With two of them,
        // SPE10 takes 22 iterations with θ = 0.4, and 27 with θ = 0.25.
        //
        // For upwinded flow on 128³ cells, GMRES takes 15 iterations with θ = 0.25, 0.3 and 0.33. The
        // operator complexity is 2.0. On 32³ cells at Péclet number 1000, the filter takes it from 3 to 2.
        let (strength, truncate, aggressive, filter) = match kind {
            CoarsenKind::Classical => (0.4, 4, 2, 0.0),
            CoarsenKind::Aggregation { .. } => (0.08, 4, 0, 0.0),
            CoarsenKind::Air { .. } => (0.3, 0, 0, 0.05),
        };
        Self { kind, strength, truncate, aggressive, filter, border: Border::Auto }
    }
}

impl Default for Coarsening {
    fn default() -> Self {
        Self::of(CoarsenKind::Classical)
    }
}

/// P, of n fine by n_c coarse nodes, and R, which is Pᵀ except for [`CoarsenKind::Air`]. Both are matrices of
/// 1×1 blocks.
///
/// # Examples
/// ```
/// use krylith::{device::Cpu, matrix::Csr, operator::Terms};
/// use krylith_core::precond::{Multilevel, MultilevelOptions};
/// let n = 1000;
/// let stencil = |i: usize| [(i, i, 2.0), (i, (i + 1) % n, -0.9), (i, (i + n - 1) % n, -0.9)];
/// let entries: Vec<_> = (0..n).flat_map(stencil).map(|(i, j, v)| (i as u32, j as u32, v)).collect();
/// let a = Terms::csr(&Csr::from_triplets(n, n, &entries)?)?;
/// let amg = Multilevel::new(&Cpu::new(n, 1), &a, MultilevelOptions::default())?;
/// let p = &amg.levels()[0].transfer().expect("it is not the last").prolongation;
/// assert_eq!((p.block_rows(), p.block_columns()), (n, amg.levels()[1].nodes()));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Transfer {
    /// Weights of interpolation.
    pub prolongation: Bsr,
    /// Weights of restriction, of n_c coarse by n fine nodes.
    pub restriction: Bsr,
    /// If R is not Pᵀ, true for each node that is a coarse point; otherwise empty.
    pub coarse: Vec<bool>,
}

/// P of own nodes. Other ranks may have coarse nodes from which own nodes interpolate.
#[doc(hidden)]
pub struct OwnProlongation {
    /// P, with the rows of own nodes first. Columns are own coarse nodes, followed by coarse nodes of other
    /// ranks.
    pub prolongation: Bsr,
    /// Number of own coarse nodes.
    pub own: usize,
    /// Owner of each coarse node of another rank, and its number on that rank.
    pub ghosts: Vec<(u32, u32)>,
    /// If R is not Pᵀ, the columns of R of own nodes, each as a row. These have the same columns as P.
    pub columns: Option<Bsr>,
    /// If R is not Pᵀ, true for each own node that is a coarse point; otherwise empty.
    pub coarse: Vec<bool>,
}

impl OwnProlongation {
    /// Returns P with R = Pᵀ.
    pub(crate) fn new(prolongation: Bsr, own: usize, ghosts: Vec<(u32, u32)>) -> Self {
        Self { prolongation, own, ghosts, columns: None, coarse: Vec::new() }
    }
}

/// A device that builds coarse levels. Functions that are not marked collective concern this rank alone.
///
/// # Examples
/// A bound for code that uses [`Multilevel`] on any device.
/// ```
/// use krylith::{Result, operator::Terms};
/// use krylith_core::precond::{Coarsen, Cycle, Multilevel, MultilevelOptions};
/// fn w_cycle<S: Coarsen>(space: &S, terms: &Terms) -> Result<Multilevel<S>> {
///     Multilevel::new(space, terms, MultilevelOptions { cycle: Cycle::W, ..MultilevelOptions::default() })
/// }
/// ```
pub trait Coarsen: PointBlockSum + BlockDiagonal + SubdomainFactors + Sized {
    /// Returns a space on this device and its queue, for vectors of `len` numbers of this rank alone.
    ///
    /// # Errors
    /// Out of device memory.
    fn beside(&self, len: usize) -> Result<Self>;
    /// Returns the host's pool of threads, for steps that this device leaves to the host. Every call returns
    /// the same pool, because starting a pool takes longer than some of the steps.
    fn host_threads(&self) -> Arc<Pool>;
    /// Returns the scalar matrix that coarsening works on. For one scalar term it is that matrix times its
    /// coefficient. Otherwise it has the union of the patterns, with every diagonal entry stored, a_ij = −Σ_t
    /// ‖C_t‖_F ‖A_t,ij‖_F and a_ii = −Σ_{j≠i} a_ij.
    fn couplings(&self, terms: &Terms) -> Result<Bsr> {
        host::galerkin::couplings(&self.host_threads(), terms)
    }
    /// Returns P between level `level` (0 is the finest) and a coarser level; `None` if the coarser level
    /// would have as many nodes, or none. On a level that ranks share, `couplings` has the rows of own nodes
    /// and of the nodes in `near`, P those of own nodes, and rows that are not known are empty. Collective
    /// then.
    ///
    /// # Errors
    /// Out of device memory; a rank that has ended or failed.
    fn prolongation(
        &self,
        couplings: &Bsr,
        how: &Coarsening,
        level: usize,
        near: Option<&Neighbourhood>,
    ) -> Result<Option<OwnProlongation>> {
        host::prolongation(&self.host_threads(), couplings, how, level, near)
    }
    /// Returns P and R of one rank, or `None` like [`prolongation`](Self::prolongation).
    fn transfer(&self, couplings: &Bsr, how: &Coarsening, level: usize) -> Result<Option<Transfer>> {
        let Some(made) = self.prolongation(couplings, how, level, None)? else { return Ok(None) };
        let OwnProlongation { prolongation, columns, coarse, .. } = made;
        let restriction = self.transposed(columns.as_ref().unwrap_or(&prolongation))?;
        Ok(Some(Transfer { prolongation, restriction, coarse }))
    }
    /// Returns a space on this device and its queue that the same ranks share. Vectors have `len` numbers on
    /// this rank.
    ///
    /// # Errors
    /// Out of device memory.
    fn among(&self, len: usize) -> Result<Self>;
    /// Returns the couplings among the first `own` nodes. Couplings to other nodes are added to the diagonal
    /// entry if it is stored.
    fn own_couplings(&self, couplings: &Bsr, own: usize) -> Result<Bsr> {
        Ok(ranks::rows::own_couplings(couplings, own))
    }
    /// Returns the transpose of a matrix of 1×1 blocks.
    fn transposed(&self, a: &Bsr) -> Result<Bsr> {
        host::galerkin::transpose(&self.host_threads(), a)
    }
    /// Copies the rows of these nodes to the host.
    fn rows_of(&self, a: &Bsr, nodes: &[u32]) -> Result<RowsOfMatrix> {
        Ok(ranks::rows::rows_of(a, nodes))
    }
    /// Returns the matrix with rows from the host appended below, and with this many columns.
    fn with_rows(&self, a: &Bsr, below: &RowsOfMatrix, columns: usize) -> Result<Bsr> {
        Ok(ranks::rows::with_rows(a, below, columns))
    }
    /// Sends rows of a matrix to other ranks, and returns those that arrive, with their places as columns. A
    /// rank sends the rows of the halo's `send`. `columns` has the numbers of the columns. Nodes that are not
    /// known yet are added to `places`. Collective.
    ///
    /// # Errors
    /// Out of device memory; a rank that has ended or failed.
    fn fetch_rows(&self, a: &Bsr, halo: &Halo, columns: &Places, places: &mut Places) -> Result<Bsr> {
        let (sent, square) = (ranks::rows::rows_of(a, &halo.send), a.block() * a.block());
        let made = ranks::fetch::by_host(self.comm(), &sent, square, halo, columns, places)?;
        let rows = made.row_ptr.len() - 1;
        let storage = Storage::host(rows, places.count(), made.row_ptr, made.col, made.values);
        Ok(Bsr::from_storage(a.block(), storage))
    }
    /// Returns the matrix with rows of others appended below, followed by empty rows up to `rows`.
    fn stack(&self, a: &Bsr, below: &[Bsr], rows: usize, columns: usize) -> Result<Bsr> {
        Ok(ranks::rows::stack(a, below, rows, columns))
    }
    /// Returns the first `rows` rows as a matrix with `columns` columns, which must include all of their
    /// entries.
    fn first_rows(&self, a: &Bsr, rows: usize, columns: usize) -> Result<Bsr> {
        Ok(ranks::rows::first_rows(a, rows, columns))
    }
    /// Returns the matrix with column j renumbered to `numbers[j]` of `columns`, ascending in each row.
    fn renumbered(&self, a: &Bsr, numbers: &[u32], columns: usize) -> Result<Bsr> {
        Ok(ranks::rows::renumbered(a, numbers, columns))
    }
    /// Returns S A for a matrix S of zeros and ones: sums of rows of A, with every diagonal entry stored.
    fn sums_of_rows(&self, s: &Bsr, a: &Bsr) -> Result<Bsr> {
        Ok(ranks::rows::sums_of_rows(s, a))
    }
    /// Returns R Aₜ P for every term, with the same coefficients and with the diagonal stored in every row.
    fn galerkin(&self, terms: &Terms, transfer: &Transfer) -> Result<Terms<'static>> {
        host::galerkin::terms(&self.host_threads(), terms, transfer)
    }
    /// Recomputes R Aₜ P for new values of `terms`, in the matrices that [`galerkin`](Self::galerkin)
    /// returned for the same patterns.
    fn update_galerkin(&self, terms: &Terms, transfer: &Transfer, coarse: &mut Terms<'static>) -> Result<()> {
        host::galerkin::update_terms(&self.host_threads(), terms, transfer, coarse)
    }
    /// Returns the tentative P from near-null vectors of the level, and the vectors of the coarser level.
    /// `couplings` are those among the rows of `a`; `level` is 0 for the finest level. Returns `None` if the
    /// coarser level would have more than `most` nodes, none, or as many as this level.
    ///
    /// # Errors
    /// Classical coarsening, which does not use vectors; out of device memory.
    fn near_null_transfer(
        &self,
        a: &Bsr,
        couplings: &Bsr,
        near: &NearNull,
        how: &Coarsening,
        level: usize,
        most: usize,
    ) -> Result<Option<NearNullTransfer>> {
        host::near_null::transfer(&self.host_threads(), a, couplings, near, how, level, most)
    }
    /// Returns true if this device has its own kernel that applies P ⊗ I for nodes of `order` unknowns.
    fn interpolates(&self, _order: usize) -> bool {
        false
    }
    /// Computes y ← (P ⊗ I) x, or y ← y + (P ⊗ I) x, for nodes of `order` unknowns. Asynchronous on a GPU;
    /// allocates nothing.
    ///
    /// # Errors
    /// A device without such a kernel; see [`interpolates`](Self::interpolates).
    fn interpolate(
        &self,
        _p: &Bsr,
        _order: usize,
        _x: &Self::Vector,
        _y: &mut Self::Vector,
        _add: bool,
    ) -> Result<()> {
        Err(crate::Error::Internal("the device has no kernel for P".into()))
    }
    /// Builds an operator that only cycles use, from a matrix of scalar rows: that of a coarser level, or the
    /// dense inverse on the last level.
    fn level_operator(&self, terms: &Terms, precision: Precision) -> Result<PointBlock<Self>> {
        PointBlock::with_format(self, terms, precision, Format::Csr)
    }
    /// Returns true if this device has cycles in f32.
    fn computes_in_f32(&self) -> bool {
        false
    }
    /// Makes a cycle in f32 from the parts of all levels. Returns `None` if this device has none for them.
    /// With bf16, matrices and transfers are stored in it where it suits them.
    ///
    /// # Errors
    /// Out of device memory.
    fn narrow_cycle(
        &self,
        _levels: &[NarrowLevel<Self>],
        _stored: PrecondPrecision,
    ) -> Result<Option<Box<dyn NarrowCycle<Self>>>> {
        Ok(None)
    }
    /// Returns true if this device computes residuals and smoother steps in the same pass as this product.
    fn fuses(&self, _product: &Self::Product) -> bool {
        false
    }
    /// Returns true if this device also computes the first two smoother steps from x = 0 in one pass.
    fn fuses_from_zero(&self, _product: &Self::Product) -> bool {
        false
    }
    /// Loads what [`fused`](Self::fused) needs for this product. Without it, the first pass does so.
    ///
    /// # Errors
    /// A kernel that cannot be loaded.
    fn prepare_fused(&self, _product: &Self::Product) -> Result<()> {
        Ok(())
    }
    /// Computes A x and applies `pass` to it. Asynchronous on a GPU; allocates nothing.
    ///
    /// # Errors
    /// A device or a product that does not support it; see [`fuses`](Self::fuses).
    fn fused(&self, _product: &Self::Product, _x: &Self::Vector, _pass: Fused<Self>) -> Result<()> {
        Err(crate::Error::Internal("the product cannot fuse a smoother step".into()))
    }
    /// Makes such passes with several x, all of one kind, reading the matrix once if the device can.
    ///
    /// # Errors
    /// As [`fused`](Self::fused).
    fn fused_together(&self, product: &Self::Product, passes: Passes<'_, Self>) -> Result<()> {
        passes.into_iter().try_for_each(|(x, pass)| self.fused(product, x, pass))
    }
    /// Returns the inverses of the diagonal blocks of Σ Cₜ⊗Aₜ, of order b·s. Each scalar row's ℓ1 norm
    /// outside that block is first added to its diagonal entry, with the sign of that entry (ℓ1-Jacobi;
    /// Baker, Falgout, Kolev and Yang 2011).
    ///
    /// # Errors
    /// A diagonal block that still cannot be inverted, with its row.
    fn l1_blocks(&self, terms: &Terms, precision: Precision) -> Result<Self::Blocks> {
        let blocks = host::galerkin::inverse_l1_blocks(&self.host_threads(), terms)?;
        self.prepare_blocks(terms.block() * terms.stages(), (&blocks[..]).into(), precision)
    }
    /// Recomputes the inverses for new values, in place.
    ///
    /// # Errors
    /// As [`l1_blocks`](Self::l1_blocks).
    fn update_l1_blocks(&self, terms: &Terms, blocks: &mut Self::Blocks) -> Result<()> {
        let new = host::galerkin::inverse_l1_blocks(&self.host_threads(), terms)?;
        self.update_blocks(blocks, (&new[..]).into())
    }
}
