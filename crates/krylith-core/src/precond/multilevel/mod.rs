//! Coarse levels: a hierarchy of smaller and smaller systems, each the Galerkin product of the one before.
//!
//! Everything that coarsens looks at one scalar matrix, the couplings of the nodes ([`Coarsen::couplings`]); a node interpolates all of
//! its components and stages with the same weights, so P is n × n_c scalars and works as P ⊗ I. The coarse operator keeps the
//! block size, the stages and the coefficients of the fine one: A⊗M + τB⊗L becomes A⊗(RMP) + τB⊗(RLP).
//!
//! Where vectors are known that A maps nearly to zero, such as the rigid modes of an elastic body ([`NearNull`]), coarse nodes have an unknown for each
//! of them instead, and P has blocks.
//!
//! The steps of a set-up are functions in `host/`, for all threads; a GPU has its own of the same results. Each is a pure function of what it
//! is given: random numbers come from a hash of a node's number, and nothing depends on the order of execution.
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

/// A level that keeps more of its nodes than this is the last, on one rank and on several.
const STALLED: f64 = 0.8;

/// How nodes of a coarser level are chosen, and what the others take from them.
///
/// # Examples
/// ```
/// use krylith_core::precond::{CoarsenKind, Coarsening};
/// let smoothed = Coarsening { strength: 0.1, ..Coarsening::of(CoarsenKind::Aggregation { smoothed: true }) };
/// assert_eq!((smoothed.truncate, smoothed.aggressive), (4, 0)); // what is taken where nothing is said
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Coarsening {
    /// Which nodes, and what the others take from them.
    pub kind: CoarsenKind,
    /// θ: node i depends strongly on j where −a_ij ≥ θ max_k(−a_ik), with the sign of a_ii divided out; aggregation:
    /// where a_ij² ≥ θ² |a_ii a_jj|.
    pub strength: f64,
    /// Interpolation keeps so many weights of a row, the largest; 0: all.
    pub truncate: usize,
    /// Levels, from the finest on, that are coarsened twice as far: PMIS twice, multipass interpolation and one step of Jacobi's method (classical);
    /// aggregates of up to eight nodes instead of four (not smoothed).
    pub aggressive: usize,
    /// Of several ranks' systems, what coarsening does with couplings between ranks.
    pub border: Border,
}

/// What coarsening does with couplings between ranks. Coarse operators, residuals and solutions have all of them in each case.
///
/// # Examples
/// ```
/// use krylith_core::precond::Border;
/// let names = Border::ALL.map(Border::name);
/// assert_eq!(names, ["auto", "global", "local"]); // as in amg:border=local
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Border {
    /// [`Local`](Self::Local) on levels where borders are long but few of the nodes lie there, [`Global`](Self::Global) on others.
    #[default]
    Auto,
    /// It follows them: the coarse nodes and P are those of one rank. Rows of up to four layers of nodes around the own ones travel for that.
    Global,
    /// It leaves them out: each rank chooses nodes and interpolates among its own ones, and the couplings that it drops are added to the diagonal, so that P
    /// still reproduces constants. Nothing but rows of P of ghosts travels.
    Local,
}

impl Border {
    /// The three, for those who write them down.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Global, Self::Local];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Global => "global",
            Self::Local => "local",
        }
    }
}

/// The two families.
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
    /// Some nodes stay (PMIS, De Sterck, Yang and Heys 2006), the others interpolate from them (extended+i, De Sterck, Falgout, Nolting
    /// and Yang 2008).
    Classical,
    /// Nodes that are coupled strongly become one (pairwise matching, twice or three times; Notay 2010); with `smoothed` P gets a step of damped Jacobi (Vaněk,
    /// Mandel and Brezina 1996).
    Aggregation {
        /// Smoothed P.
        smoothed: bool,
    },
}

impl Coarsening {
    /// What is taken where nothing more is said.
    pub fn of(kind: CoarsenKind) -> Self {
        // One aggressive level halves the operator complexity of 7-point stencils, for two iterations more in twelve; a second one makes set-ups
        // a tenth to a quarter shorter. With two, 0.4 takes SPE10 in 22 iterations, 0.25 in 27.
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
    /// Weights with which nodes interpolate.
    pub prolongation: Bsr,
    /// Its transpose.
    pub restriction: Bsr,
}

/// A device that makes coarse levels. What is not said to be collective is this rank's alone.
///
/// # Examples
/// The bound of code that takes [`Multilevel`] on any device.
/// ```
/// use krylith::{Result, operator::Terms};
/// use krylith_core::precond::{Coarsen, Cycle, Multilevel, MultilevelOptions};
/// fn w_cycle<S: Coarsen>(space: &S, terms: &Terms) -> Result<Multilevel<S>> {
///     Multilevel::new(space, terms, MultilevelOptions { cycle: Cycle::W, ..MultilevelOptions::default() })
/// }
/// ```
pub trait Coarsen: PointBlockSum + BlockDiagonal + SubdomainFactors + Sized {
    /// Vectors of `len` numbers on this device and its queue, of this rank alone.
    ///
    /// # Errors
    /// A device without room.
    fn beside(&self, len: usize) -> Result<Self>;
    /// The threads of the host, for steps that this device leaves to them: the same team at every call, because to start one
    /// takes longer than many a step.
    fn host_threads(&self) -> Arc<Pool>;
    /// The scalar matrix by which nodes are coarsened. Of one scalar term that matrix itself, times its coefficient; else on the union of the
    /// patterns, with every diagonal entry stored, a_ij = −Σ_t ‖C_t‖_F ‖A_t,ij‖_F and a_ii = −Σ_{j≠i} a_ij.
    fn couplings(&self, terms: &Terms) -> Result<Bsr> {
        host::galerkin::couplings(&self.host_threads(), terms)
    }
    /// What interpolates level `level` (0 is the finest) from a coarser one; `None` where that would have as many nodes, or none.
    fn transfer(&self, couplings: &Bsr, how: &Coarsening, level: usize) -> Result<Option<Transfer>> {
        host::transfer(&self.host_threads(), couplings, how, level)
    }
    /// Vectors of this rank's share of `len` numbers on this device and its queue, of the same ranks.
    ///
    /// # Errors
    /// A device without room.
    fn among(&self, len: usize) -> Result<Self>;
    /// What interpolates own nodes of a level of all ranks; `couplings` are those of own nodes and of `near` ones, whose rows are empty where they are not known.
    /// `None`, on all ranks, where the coarser level would have as many nodes, or none. Collective.
    ///
    /// # Errors
    /// A device without room; a rank that is gone or failed.
    fn transfer_near(
        &self,
        couplings: &Bsr,
        how: &Coarsening,
        level: usize,
        near: &Neighbourhood,
    ) -> Result<Option<NearTransfer>> {
        ranks::transfer_by_ranks(self, couplings, how, level, near)
    }
    /// What couples the first `own` nodes among each other; what couples them to others is added to the diagonal where one is stored.
    fn own_couplings(&self, couplings: &Bsr, own: usize) -> Result<Bsr> {
        Ok(ranks::rows::own_couplings(couplings, own))
    }
    /// The transpose of a matrix of 1×1 blocks.
    fn transposed(&self, a: &Bsr) -> Result<Bsr> {
        host::galerkin::transpose(&self.host_threads(), a)
    }
    /// These rows, on the host.
    fn rows_of(&self, a: &Bsr, nodes: &[u32]) -> Result<RowsOfMatrix> {
        Ok(ranks::rows::rows_of(a, nodes))
    }
    /// The matrix with rows of the host below it, and so many columns.
    fn with_rows(&self, a: &Bsr, below: &RowsOfMatrix, columns: usize) -> Result<Bsr> {
        Ok(ranks::rows::with_rows(a, below, columns))
    }
    /// The first rows, whose columns below `columns` alone are kept.
    fn first_rows(&self, a: &Bsr, rows: usize, columns: usize) -> Result<Bsr> {
        Ok(ranks::rows::first_rows(a, rows, columns))
    }
    /// The matrix with column j as column `numbers[j]` of `columns`, ascending in each row.
    fn renumbered(&self, a: &Bsr, numbers: &[u32], columns: usize) -> Result<Bsr> {
        Ok(ranks::rows::renumbered(a, numbers, columns))
    }
    /// S A for a matrix S of zeros and ones: sums of rows of A, each with the diagonal stored.
    fn sums_of_rows(&self, s: &Bsr, a: &Bsr) -> Result<Bsr> {
        Ok(ranks::rows::sums_of_rows(s, a))
    }
    /// R Aₜ P of every term under the same coefficients, with the diagonal stored in every row.
    fn galerkin(&self, terms: &Terms, transfer: &Transfer) -> Result<Terms<'static>> {
        host::galerkin::terms(&self.host_threads(), terms, transfer)
    }
    /// The same for new values of `terms`, into what [`galerkin`](Self::galerkin) made of others of the same patterns.
    fn galerkin_again(&self, terms: &Terms, transfer: &Transfer, coarse: &mut Terms<'static>) -> Result<()> {
        host::galerkin::terms_again(&self.host_threads(), terms, transfer, coarse)
    }
    /// Whether this device applies P ⊗ I by a kernel of its own for nodes of `order` unknowns.
    fn interpolates(&self, _order: usize) -> bool {
        false
    }
    /// y ← (P ⊗ I) x, or y ← y + (P ⊗ I) x, for nodes of `order` unknowns. Asynchronous on a GPU; allocates nothing.
    ///
    /// # Errors
    /// A device that does not; see [`interpolates`](Self::interpolates).
    fn interpolate(
        &self,
        _p: &Bsr,
        _order: usize,
        _x: &Self::Vector,
        _y: &mut Self::Vector,
        _add: bool,
    ) -> Result<()> {
        Err(crate::Error::Internal("a device without a kernel for P".into()))
    }
    /// A matrix of scalar rows that only cycles multiply with: of a coarser level, or the inverse of the last.
    fn level_operator(&self, terms: &Terms, precision: Precision) -> Result<PointBlock<Self>> {
        PointBlock::with_format(self, terms, precision, Format::Csr)
    }
    /// Whether this device makes residuals and steps of smoothers in the pass of this product.
    fn fuses(&self, _product: &Self::Product) -> bool {
        false
    }
    /// Whether it makes the first two steps from zero in one pass, too.
    fn fuses_from_zero(&self, _product: &Self::Product) -> bool {
        false
    }
    /// What `pass` makes of A x. Asynchronous on a GPU; allocates nothing.
    ///
    /// # Errors
    /// A device or a product that does not; see [`fuses`](Self::fuses).
    fn fused(&self, _product: &Self::Product, _x: &Self::Vector, _pass: Fused<Self>) -> Result<()> {
        Err(crate::Error::Internal("a product that makes no smoother's step".into()))
    }
    /// Inverses of the diagonal blocks of Σ Cₜ⊗Aₜ, of order b·s, each scalar row's ℓ1 norm off that block added to its diagonal entry with that entry's
    /// sign (ℓ1-Jacobi; Baker, Falgout, Kolev and Yang 2011).
    ///
    /// # Errors
    /// A diagonal block that cannot be inverted all the same, with its row.
    fn l1_blocks(&self, terms: &Terms, precision: Precision) -> Result<Self::Blocks> {
        let blocks = host::galerkin::inverse_l1_blocks(&self.host_threads(), terms)?;
        self.prepare_blocks(terms.block() * terms.stages(), (&blocks[..]).into(), precision)
    }
    /// The same for new values, in the same place.
    ///
    /// # Errors
    /// As there.
    fn l1_blocks_again(&self, terms: &Terms, blocks: &mut Self::Blocks) -> Result<()> {
        let new = host::galerkin::inverse_l1_blocks(&self.host_threads(), terms)?;
        self.update_blocks(blocks, (&new[..]).into())
    }
}
