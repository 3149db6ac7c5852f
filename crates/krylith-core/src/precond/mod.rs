//! Preconditioners: linear operators that approximate the inverse of a matrix and can be refreshed with new
//! values.
//!
//! A [`Solver`](crate::Solver) chooses its preconditioner by name ([`PrecondSpec`], as in
//! `precond=ildu:fill=1`). These types can also be used without a solver:
//!
//! | type | name | description |
//! |---|---|---|
//! | [`BlockJacobi`] | `jacobi` | inverses of the diagonal blocks |
//! | [`BlockTiles`] | `block-jacobi` | incomplete factors of the tiles of a grid |
//! | [`Ildu`] | `ildu` | incomplete factors of subdomains |
//! | [`Schwarz`] | `ras` | incomplete factors of overlapping subdomains |
//! | [`Multilevel`] | `amg` | algebraic multigrid |
//! | [`Stage`] | `stage` | the stages of a Kronecker system, one after the other |
//! | [`Vanka`] | `vanka` | local systems around the constraints of a saddle point |
//! | `SparseLu`, `RanksLu` | `lu` | direct factors, on one rank and on several (feature `lu`) |
//! | `Split` | `split(…)` | a preconditioner for each field of a coupled system |
//! | `Correction` | `cpr(…)`, `aux(…)` | a correction of one field, or in an auxiliary space |
//! | `Inner` | `cg(…)`, `chebyshev(…)` | a fixed number of iterations of a method |
//! | [`Additive`], [`Multiplicative`] | `P+Q`, `P then Q` | a combination of two preconditioners |
//! | [`Equilibrated`], [`NullSpace`] | | wrappers: scaled rows and columns; null vectors projected out |

#[doc(hidden)] // for the tests of devices
pub mod assemble;
pub(crate) mod bf16;
mod block_tiles;
mod compose;
mod correction;
pub(crate) mod direct;
mod equilibrated;
mod ildu;
pub(crate) mod incomplete;
mod inner;
mod invert;
mod jacobi;
#[cfg(feature = "lu")]
pub(crate) mod lu;
pub(crate) mod multilevel;
mod null_space;
mod preconditioner;
pub(crate) mod range;
mod schwarz;
pub(crate) mod spec;
pub(crate) mod split;
pub(crate) mod stage;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
pub(crate) mod untouched;
mod vanka;

use crate::space::SweepSource;

pub(crate) use block_tiles::DIFFERS;
pub use block_tiles::{
    BlockTiles, BlockTilesOptions, TileFactor, TileFactors, TileReport, TileShape, Tiling,
};
pub(crate) use compose::residual;
pub use compose::{Additive, Multiplicative, SWEEPS as COMPOSE_SWEEPS};
pub(crate) use correction::{Correction, Prolongation};
pub use equilibrated::{Equilibrated, Factors, SWEEPS as EQUILIBRATED_SWEEPS, Scaling};
pub(crate) use ildu::MAX_ORDER;
pub use ildu::{Ildu, IlduOptions, Outline, Plan, Stride, SubdomainFactors};
pub use incomplete::pivots::{PivotKind, Pivots, TINY_PIVOT};
pub use incomplete::{FactorQuality, IncompleteFactors};
pub(crate) use inner::Inner;
pub use inner::{STEPS as INNER_STEPS, SWEEPS as INNER_SWEEPS};
pub(crate) use invert::eliminate;
#[cfg(feature = "cuda")]
pub(crate) use jacobi::{BAD_BLOCKS, bad_block};
pub use jacobi::{BlockDiagonal, BlockJacobi, invert_block};
#[cfg(feature = "lu")]
pub use lu::{Batch, RanksLu, RanksLuOptions, SparseLu};
pub use multilevel::{
    Border, CYCLE_STEPS, Coarsen, CoarsenKind, Coarsening, Cycle, Diagonal, Direction, Fused, Level,
    MULTILEVEL_SWEEPS, Multilevel, MultilevelOptions, NarrowCycle, NarrowLevel, NearNull, Passes, Smoothing,
    Transfer,
};
pub(crate) use multilevel::{Finest, Inverse as CoarsestInverse};
pub use null_space::NullSpace;
pub(crate) use preconditioner::{Boxed, SharedOperator};
pub use preconditioner::{LeftNull, PrecondInfo, Preconditioner, Value};
pub use schwarz::{
    FILL, Factorization, MOST_DEFECT, MOST_DISTANCE, SWEEPS as SCHWARZ_SWEEPS, Schwarz, SchwarzFactor,
    SchwarzFactors, SchwarzOptions, SchwarzOrder, SchwarzPattern, SchwarzPlan, SchwarzSettings,
    TriangularSolve,
};
pub(crate) use schwarz::{Rows as SchwarzRows, Sums, Turned};
pub use spec::{
    AmgSpec, AuxSpec, CprSpec, Decouple, IlduSpec, InnerMethod, InnerSpec, LuOn, LuOver, LuSpec, PrecondSpec,
    RasSpec, RasSub, SchurSpec, SplitForm, SplitSpec, TileSpec, VankaSpec,
};
pub use split::SWEEPS as SPLIT_SWEEPS;
pub(crate) use split::split_scale;
pub use stage::{SWEEPS as STAGE_SWEEPS, Stage, StageOptions, lower_factor};
pub(crate) use untouched::Known;
pub use vanka::{
    Inverses, PatchProduct, PatchProducts, Patches, SWEEPS as VANKA_SWEEPS, Vanka, VankaKind, VankaOptions,
};
pub(crate) use vanka::{Rows, VankaCycle, VankaLevel};

/// The vector passes of every preconditioner: the kernels that a device compiles.
pub const ALL_SWEEPS: [&[SweepSource]; 11] = {
    let [smoothers, cycles, set_ups] = MULTILEVEL_SWEEPS;
    let [equilibrated, compose, stage, schwarz] =
        [EQUILIBRATED_SWEEPS, COMPOSE_SWEEPS, STAGE_SWEEPS, SCHWARZ_SWEEPS];
    let [inner, split, vanka] = [INNER_SWEEPS, SPLIT_SWEEPS, VANKA_SWEEPS];
    [
        equilibrated,
        compose,
        stage,
        schwarz,
        untouched::SWEEPS,
        smoothers,
        cycles,
        set_ups,
        inner,
        split,
        vanka,
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks_below(folder: &std::path::Path) -> usize {
        let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let of = |path: std::path::PathBuf| match path.is_dir() {
            true => blocks_below(&path),
            false => std::fs::read_to_string(path).unwrap().matches("\nsweeps! {").count(),
        };
        all.map(of).sum()
    }

    /// If a list were missing here, no test would compile its kernels, and releases would lack them.
    #[test]
    fn every_block_of_sweeps_is_listed() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/precond");
        assert_eq!(ALL_SWEEPS.len(), blocks_below(&folder));
    }
}
