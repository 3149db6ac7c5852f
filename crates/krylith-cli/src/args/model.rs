//! The arguments of `krylith model`.

use crate::options;
use clap::Args;
use krylith_core::Options;
use krylith_core::partition::PartitionSpec;
use krylith_core::precond::PrecondSpec;
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Examples:
  krylith model --machines
  krylith model stokes:53x53x54 --machine h200-nvlink --gpus 1,2,4
  krylith model A.mtx --machine h200-nvlink --method cg --precond jacobi
  krylith model laplace:128x128x128 --machine h200-nvlink --precond amg
  krylith model laplace:96x96x96 --machine jupiter --gpus 64,512 --partition boxes --precond jacobi
  krylith model --weak 151686 --to 8192 --machine h200-nvlink --machine jupiter --out scaling
  krylith model --strong 1e9 --machine jupiter --out scaling

Predict, measure and compare; the exit code is 1 if a prediction is more than 15 % off:
  krylith bench links --device cuda:0,1,2,3 --out machine.toml
  krylith model stokes:53x53x54 --machine machine.toml --method gmres --precond none --out predicted
  krylith bench okp --device cuda:0,1,2,3 --out okp
  krylith model --compare predicted/prediction.json okp/okp.json
  krylith model --spmv spmv/spmv.json --machine machine.toml --out predicted

Times are those of an iteration in f64. --weak and --strong predict GMRES(30) without a preconditioner.";

/// `krylith model`.
#[derive(Debug, Args)]
pub struct ModelArgs {
    /// A matrix file, a system.toml or a generated problem, as for `krylith solve`; at most 4 stages
    #[arg(value_name = "SYSTEM")]
    pub system: Option<PathBuf>,
    /// Machine: a known name (--machines lists them), or a file that `krylith bench links` wrote. --weak and
    /// --strong accept several
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub machine: Vec<PathBuf>,
    /// List the known machines, and the sources of their numbers
    #[arg(long, exclusive = true)]
    pub machines: bool,
    /// Numbers of GPUs for SYSTEM, --spmv or --poisson [default: 1,2,4; for --spmv 1 to 64; for --poisson
    /// those of published measurements, if any]
    #[arg(long, value_name = "P,…", value_delimiter = ',', value_parser = options::ranks, conflicts_with_all = ["weak", "strong", "compare"])]
    pub gpus: Vec<usize>,
    /// Number of hosts, among which the GPUs are distributed evenly [default: as few as possible]
    #[arg(long, value_name = "H", value_parser = options::ranks, requires = "system")]
    pub hosts: Option<usize>,
    /// Partition of the block rows, as for `krylith solve`: `boxes` or `boxes:PxQxR`, `rows`, `nonzeros`,
    /// `geometric`, `multilevel` or `graph`. For --weak and --strong: `boxes`, or `rows` for slabs [default:
    /// auto, by the rule of `krylith solve`]
    #[arg(long, value_name = "auto|NAME", conflicts_with_all = ["poisson", "spmv", "compare"])]
    pub partition: Option<PartitionSpec>,
    /// Block size, 1 to 8 [default: that of the file]
    #[arg(long, value_name = "B", value_parser = options::block_size, requires = "system")]
    pub block: Option<usize>,
    /// Method, as for `krylith solve` [default: auto, the method of the first attempt on such a GPU]
    #[arg(long, value_name = "auto|NAME[:key=value,…]", value_parser = options::method, requires = "system")]
    pub method: Option<Options>,
    /// Number of basis vectors before GMRES restarts [default: 30]
    #[arg(long, value_name = "M", value_parser = options::restart, requires = "system")]
    pub restart: Option<usize>,
    /// Preconditioner, as for `krylith solve`. `--method gmres --precond none` predicts `krylith bench okp`,
    /// with dense blocks and with structured blocks. For amg and coarse without --method, the command prints
    /// the levels, the bytes that set-up and cycle move, and the predicted and the measured time of a cycle
    /// on this host [default: auto]
    #[arg(long, value_name = "auto|NAME[:key=value,…]", requires = "system")]
    pub precond: Option<PrecondSpec>,
    /// Weak scaling: NODES of the Stokes duct (b = 4, s = 2) on every GPU
    #[arg(long, value_name = "NODES", conflicts_with_all = ["system", "compare"])]
    pub weak: Option<f64>,
    /// Strong scaling: UNKNOWNS of the Stokes duct shared by all GPUs
    #[arg(long, value_name = "UNKNOWNS", conflicts_with_all = ["system", "compare"])]
    pub strong: Option<f64>,
    /// Predict preconditioned CG and CBCG (P-CG, P-CBCG) for a 7-point Poisson equation on a grid NXxNYxNZ
    /// that is partitioned into boxes. One prediction overlaps messages with computation, the other does not.
    /// If times of the machine are published, the error is printed (summit, abci: 1280x1280x4608)
    #[arg(long, value_name = "NXxNYxNZ", conflicts_with_all = ["system", "weak", "strong", "compare", "to"])]
    pub poisson: Option<String>,
    /// Predict products with the matrices in a file of `krylith bench spmv`, for each way to distribute a
    /// matrix over GPUs that store whole vectors. Also print the error against the measurements in the file
    #[arg(long, value_name = "SPMV.json", conflicts_with_all = ["system", "weak", "strong", "poisson", "compare", "to"])]
    pub spmv: Option<PathBuf>,
    /// Number s of products in a step of P-CBCG, 1 to 64 [default: 12]
    #[arg(long = "s", value_name = "S", value_parser = clap::value_parser!(u8).range(1..=64), requires = "poisson")]
    pub steps: Option<u8>,
    /// Largest number of GPUs of --weak and --strong [default: 8192]
    #[arg(long, value_name = "P", value_parser = options::ranks)]
    pub to: Option<usize>,
    /// Compare a stored prediction with a measurement of `krylith bench okp --device cuda:0,1,…`
    #[arg(long, num_args = 2, value_names = ["PREDICTION.json", "BENCH.json"], conflicts_with = "system")]
    pub compare: Option<Vec<PathBuf>>,
    /// Largest accepted error of a prediction, in percent [default: 15]
    #[arg(long, value_name = "PERCENT", requires = "compare")]
    pub within: Option<f64>,
    /// Folder for prediction.json, or for tables, JSON and SVG of a scaling study; it is created if it is
    /// missing
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}
