//! The arguments of `krylith spy`.

use crate::options::{self, Ordering};
use clap::{Args, ValueHint};
use krylith_core::partition::PartitionSpec;
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Examples:
  krylith spy A.mtx
  krylith spy A.mtx --ranks 4 --partition multilevel    rows of four ranks, and entries between them
  krylith spy stokes:16x16x16 --out pattern.svg";

/// `krylith spy`.
#[derive(Debug, Args)]
pub struct SpyArgs {
    /// A matrix file, a system.toml or a generated problem, as for `krylith solve`
    #[arg(value_name = "SYSTEM", value_hint = ValueHint::FilePath)]
    pub system: PathBuf,
    /// Block size, 1 to 8; a dot of the picture is a block [default: as for `krylith solve`]
    #[arg(long, value_name = "B", value_parser = options::block_size)]
    pub block: Option<usize>,
    /// Numbering of the matrix: interleaved, or segregated, which needs a block size [default: interleaved]
    #[arg(long, value_name = "interleaved|segregated")]
    pub ordering: Option<Ordering>,
    /// Draw the rows of P ranks, sorted by rank, each rank in its own colour; entries that couple two ranks
    /// have another colour [default: none]
    #[arg(long, value_name = "P", value_parser = options::ranks)]
    pub ranks: Option<usize>,
    /// Partition of the rows among ranks: rows, nonzeros, geometric, multilevel or graph, as for `krylith
    /// solve` [default: auto]
    #[arg(long, value_name = "auto|NAME", requires = "ranks")]
    pub partition: Option<PartitionSpec>,
    /// Write an image, SVG or PNG by the extension of the name, instead of dots on the terminal [default:
    /// none]
    #[arg(long, value_name = "spy.svg|spy.png", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
}
