//! Algebraic multigrid: a hierarchy of smaller and smaller systems, each the Galerkin product of the one
//! before.
//!
//! All coarsening works on one scalar matrix, the couplings of the nodes ([`Coarsen::couplings`]). A node
//! interpolates all of its components and stages with the same weights, so P is n × n_c scalars and acts as P
//! ⊗ I. The coarse operator keeps the block size, the stages and the coefficients of the fine one: A⊗M + τB⊗L
//! becomes A⊗(RMP) + τB⊗(RLP).
//!
//! If near-null vectors are known, such as the rigid modes of an elastic body ([`NearNull`]), coarse nodes
//! have one unknown for each of them instead, and P has blocks.
//!
//! The steps of a set-up are functions in `host/` that use all threads; a GPU has its own versions with the
//! same results. Each step is a pure function of its input: random numbers come from a hash of a node's
//! number, and nothing depends on the order of execution.
//!
//! A new way to coarsen is a [`CoarsenKind`] with its function in `host/`, and one in
//! `device/cuda/multilevel` if a GPU is to do it. A new smoother is a variant of [`Smoothing`]. Names stand
//! in `precond/spec/amg.rs`, what reports say in `solver/build/multilevel.rs`, and predicted products in
//! `krylith-model/src/multilevel.rs`.

mod coarsest;
mod cycle;
mod hierarchy;
pub(crate) mod host;
mod near_null;
mod options;
mod parts;
pub(crate) mod ranks;
mod smoother;
mod transfers;

pub use cycle::{Cycle, STEPS as CYCLE_STEPS};
pub(crate) use hierarchy::Finest;
pub use hierarchy::{Level, Multilevel};
pub use near_null::NearNull;
pub(crate) use near_null::rigid;
pub use options::MultilevelOptions;
pub use ranks::{NearTransfer, Neighbourhood};
pub use smoother::{Direction, Fused, Smoothing};

use super::{BlockDiagonal, SubdomainFactors};
use crate::Result;
use crate::matrix::Bsr;
use crate::operator::{Format, PointBlock, PointBlockSum, Terms};
use crate::space::{Precision, SweepSource};
use crate::threads::Pool;
pub use host::parallel::Rows as RowsOfMatrix;
use std::sync::Arc;

/// The vector passes of hierarchies and cycles.
pub const MULTILEVEL_SWEEPS: [&[SweepSource]; 3] = [smoother::SWEEPS, cycle::SWEEPS, hierarchy::SWEEPS];

/// Share of nodes kept above which coarsening has stalled and the level is the last, on one rank and on
/// several.
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
    /// Threshold θ of strong connections: node i depends strongly on j if −a_ij ≥ θ max_k(−a_ik), with the
    /// sign of a_ii divided out; for aggregation, if a_ij² ≥ θ² |a_ii a_jj|.
    pub strength: f64,
    /// Number of weights kept in a row of interpolation, the largest ones; 0 keeps all.
    pub truncate: usize,
    /// Number of levels, from the finest on, with aggressive coarsening. For classical coarsening: PMIS
    /// twice, multipass interpolation and one step of Jacobi's method. For aggregation without smoothing:
    /// aggregates of up to eight nodes instead of four.
    pub aggressive: usize,
    /// Treatment of couplings between ranks by coarsening.
    pub border: Border,
}

/// Treatment of couplings between ranks by coarsening. Coarse operators, residuals and solutions include
/// these couplings in each case.
///
/// # Examples
/// ```
/// use krylith_core::precond::Border;
/// let names = Border::ALL.map(Border::name);
/// assert_eq!(names, ["auto", "global", "local"]); // as in amg:border=local
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Border {
    /// [`Local`](Self::Local) on levels with long borders that hold few of the nodes,
    /// [`Global`](Self::Global) on others.
    #[default]
    Auto,
    /// Coarsening uses them: the coarse points and P are those of one rank. This exchanges rows of up to four
    /// layers of nodes around the own ones.
    Global,
    /// Coarsening ignores them: each rank coarsens and interpolates only among its own nodes. The dropped
    /// couplings are added to the diagonal, so that P still reproduces constants. Only the rows of P that
    /// belong to ghosts are exchanged.
    Local,
}

impl Border {
    /// All three values.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Global, Self::Local];

    /// Returns its name in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Global => "global",
            Self::Local => "local",
        }
    }
}

/// The two families of coarsening.
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
    /// Aggregation: strongly coupled nodes are joined by pairwise matching, two or three times (Notay 2010).
    /// With `smoothed`, P gets a step of damped Jacobi (Vaněk, Mandel and Brezina 1996).
    Aggregation {
        /// True for a smoothed P.
        smoothed: bool,
    },
}

impl Coarsening {
    /// Returns the default settings of a family.
    pub fn of(kind: CoarsenKind) -> Self {
        // One aggressive level halves the operator complexity of 7-point stencils, for two more iterations on
        // twelve. A second one makes set-ups a tenth to a quarter shorter. With two, θ = 0.4 solves SPE10 in
        // 22 iterations, 0.25 in 27.
        let (strength, aggressive) = if kind == CoarsenKind::Classical { (0.4, 2) } else { (0.08, 0) };
        Self { kind, strength, truncate: 4, aggressive, border: Border::Auto }
    }
}

impl Default for Coarsening {
    fn default() -> Self {
        Self::of(CoarsenKind::Classical)
    }
}

/// P, n × n_c scalars, and R = Pᵀ; both as matrices of 1×1 blocks.
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
    /// Its transpose.
    pub restriction: Bsr,
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
    /// Returns a space of vectors with `len` numbers on this device and its queue, for this rank alone.
    ///
    /// # Errors
    /// Out of device memory.
    fn beside(&self, len: usize) -> Result<Self>;
    /// Returns the threads of the host, for steps that this device leaves to them. It is the same pool at
    /// every call, because starting one takes longer than many a step.
    fn host_threads(&self) -> Arc<Pool>;
    /// Returns the scalar matrix that coarsening works on. For one scalar term it is that matrix times its
    /// coefficient. Otherwise it has the union of the patterns, with every diagonal entry stored, a_ij = −Σ_t
    /// ‖C_t‖_F ‖A_t,ij‖_F and a_ii = −Σ_{j≠i} a_ij.
    fn couplings(&self, terms: &Terms) -> Result<Bsr> {
        host::galerkin::couplings(&self.host_threads(), terms)
    }
    /// Returns P and R between level `level` (0 is the finest) and a coarser one; `None` if that would have
    /// as many nodes, or none.
    fn transfer(&self, couplings: &Bsr, how: &Coarsening, level: usize) -> Result<Option<Transfer>> {
        host::transfer(&self.host_threads(), couplings, how, level)
    }
    /// Returns a space of vectors with this rank's share of `len` numbers on this device and its queue, for
    /// the same ranks.
    ///
    /// # Errors
    /// Out of device memory.
    fn among(&self, len: usize) -> Result<Self>;
    /// Returns P for own nodes of a level that all ranks share. `couplings` has the rows of own nodes and of
    /// `near` ones; rows that are not known are empty. Returns `None` on all ranks if the coarser level would
    /// have as many nodes, or none. Collective.
    ///
    /// # Errors
    /// Out of device memory; a rank that has ended or failed.
    fn transfer_near(
        &self,
        couplings: &Bsr,
        how: &Coarsening,
        level: usize,
        near: &Neighbourhood,
    ) -> Result<Option<NearTransfer>> {
        ranks::transfer_by_ranks(self, couplings, how, level, near)
    }
    /// Returns the couplings among the first `own` nodes. Couplings to other nodes are added to the diagonal
    /// entry if it is stored.
    fn own_couplings(&self, couplings: &Bsr, own: usize) -> Result<Bsr> {
        Ok(ranks::rows::own_couplings(couplings, own))
    }
    /// Returns the transpose of a matrix of 1×1 blocks.
    fn transposed(&self, a: &Bsr) -> Result<Bsr> {
        host::galerkin::transpose(&self.host_threads(), a)
    }
    /// Returns these rows, on the host.
    fn rows_of(&self, a: &Bsr, nodes: &[u32]) -> Result<RowsOfMatrix> {
        Ok(ranks::rows::rows_of(a, nodes))
    }
    /// Returns the matrix with rows from the host appended below, and with this many columns.
    fn with_rows(&self, a: &Bsr, below: &RowsOfMatrix, columns: usize) -> Result<Bsr> {
        Ok(ranks::rows::with_rows(a, below, columns))
    }
    /// Returns the first `rows` rows with only their columns below `columns`.
    fn first_rows(&self, a: &Bsr, rows: usize, columns: usize) -> Result<Bsr> {
        Ok(ranks::rows::first_rows(a, rows, columns))
    }
    /// Returns the matrix with column j renumbered to `numbers[j]` of `columns`, ascending in each row.
    fn renumbered(&self, a: &Bsr, numbers: &[u32], columns: usize) -> Result<Bsr> {
        Ok(ranks::rows::renumbered(a, numbers, columns))
    }
    /// Returns S A for a matrix S of zeros and ones: sums of rows of A, each with the diagonal stored.
    fn sums_of_rows(&self, s: &Bsr, a: &Bsr) -> Result<Bsr> {
        Ok(ranks::rows::sums_of_rows(s, a))
    }
    /// Returns R Aₜ P for every term, with the same coefficients and with the diagonal stored in every row.
    fn galerkin(&self, terms: &Terms, transfer: &Transfer) -> Result<Terms<'static>> {
        host::galerkin::terms(&self.host_threads(), terms, transfer)
    }
    /// Computes new values for new values of `terms`, in the matrices that [`galerkin`](Self::galerkin)
    /// returned for others of the same patterns.
    fn update_galerkin(&self, terms: &Terms, transfer: &Transfer, coarse: &mut Terms<'static>) -> Result<()> {
        host::galerkin::update_terms(&self.host_threads(), terms, transfer, coarse)
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
    /// Builds the operator of a matrix of scalar rows that only cycles multiply by: of a coarser level, or
    /// the inverse on the last.
    fn level_operator(&self, terms: &Terms, precision: Precision) -> Result<PointBlock<Self>> {
        PointBlock::with_format(self, terms, precision, Format::Csr)
    }
    /// Returns true if this device computes residuals and smoother steps in the pass of this product.
    fn fuses(&self, _product: &Self::Product) -> bool {
        false
    }
    /// Returns true if it also computes the first two steps from zero in one pass.
    fn fuses_from_zero(&self, _product: &Self::Product) -> bool {
        false
    }
    /// Computes A x and applies `pass` to it. Asynchronous on a GPU; allocates nothing.
    ///
    /// # Errors
    /// A device or a product that cannot; see [`fuses`](Self::fuses).
    fn fused(&self, _product: &Self::Product, _x: &Self::Vector, _pass: Fused<Self>) -> Result<()> {
        Err(crate::Error::Internal("the product cannot fuse a smoother step".into()))
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
    /// Computes the inverses for new values, in place.
    ///
    /// # Errors
    /// As for [`l1_blocks`](Self::l1_blocks).
    fn update_l1_blocks(&self, terms: &Terms, blocks: &mut Self::Blocks) -> Result<()> {
        let new = host::galerkin::inverse_l1_blocks(&self.host_threads(), terms)?;
        self.update_blocks(blocks, (&new[..]).into())
    }
}
