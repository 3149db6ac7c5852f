//! The arguments of `krylith model`.

use crate::options;
use clap::Args;
use krylith::partition::Partitioner;
use krylith::precond::PrecondSpec;
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Examples:
  krylith bench links --device cuda:0,1,2,3 --out machine.toml    measures the machine, without any solve on several GPUs
  krylith model stokes:53x53x54 --machine machine.toml --gpus 1,2,4 --out predicted
  krylith bench okp --device cuda:0,1,2,3 --out okp
  krylith model laplace:128x128x128 --precond amg --machine machine.toml    coarse levels: bytes, time of an iteration
  krylith model --compare predicted/prediction.json okp/okp.json    exit code 1 beyond 15 %
  krylith model --spmv spmv/spmv.json --machine machine.toml --out predicted
  krylith model --weak 151686 --to 8192 --machine machine.toml --machine jupiter --out scaling
  krylith model --strong 1e9 --to 8192 --machine machine.toml --out scaling

Times are those of an iteration of GMRES(M) in f64 without a preconditioner, one reduction an iteration.";

/// `krylith model`.
#[derive(Debug, Args)]
pub struct ModelArgs {
    /// A matrix file, a system.toml or a generated problem, as for `krylith solve`; at most 4 stages
    #[arg(value_name = "SYSTEM")]
    pub system: Option<PathBuf>,
    /// What kernels and links take: written by `krylith bench links`; several for --weak and --strong
    #[arg(long, value_name = "FILE.toml")]
    pub machine: Vec<PathBuf>,
    /// Numbers of GPUs of SYSTEM, --spmv or --poisson [default: 1,2,4; of --spmv 1 to 64; of --poisson what others have measured, else those]
    #[arg(long, value_name = "P,…", value_delimiter = ',', value_parser = options::ranks, conflicts_with_all = ["weak", "strong", "compare"])]
    pub gpus: Vec<usize>,
    /// Hosts that the GPUs are spread over evenly [default: as few as the machine's GPUs a host allow]
    #[arg(long, value_name = "H", value_parser = options::ranks, requires = "system")]
    pub hosts: Option<usize>,
    /// Who owns which block rows: rows, nonzeros, geometric, multilevel or graph [default: rows]
    #[arg(long, value_name = "NAME", value_parser = options::partitioner, requires = "system")]
    pub partition: Option<Partitioner>,
    /// Unknowns of one node, 1 to 8 [default: what the file says]
    #[arg(long, value_name = "B", value_parser = options::block_size, requires = "system")]
    pub block: Option<usize>,
    /// Basis vectors that GMRES keeps before it restarts [default: 30]
    #[arg(long, value_name = "M", value_parser = options::restart, requires = "system")]
    pub restart: Option<usize>,
    /// Coarse levels instead: what a set-up and a cycle of amg or coarse (with keys as for `krylith solve`) move for SYSTEM, the time of an
    /// iteration of CG on one GPU, and that of a cycle on this host, predicted and measured
    #[arg(long, value_name = "amg[:key=value,…]", requires = "system", conflicts_with_all = ["gpus", "hosts", "partition", "restart"])]
    pub precond: Option<PrecondSpec>,
    /// Weak scaling: NODES of the Stokes duct (b = 4, s = 2) on every GPU
    #[arg(long, value_name = "NODES", conflicts_with_all = ["system", "compare"])]
    pub weak: Option<f64>,
    /// Strong scaling: UNKNOWNS of the Stokes duct shared by all GPUs
    #[arg(long, value_name = "UNKNOWNS", conflicts_with_all = ["system", "compare"])]
    pub strong: Option<f64>,
    /// P-CG and P-CBCG of a 7-point Poisson equation on a grid NXxNYxNZ cut into boxes, with and without overlap, and the error
    /// against what others have published of this machine (summit, abci: 1280x1280x4608)
    #[arg(long, value_name = "NXxNYxNZ", conflicts_with_all = ["system", "weak", "strong", "compare", "to"])]
    pub poisson: Option<String>,
    /// Products of the matrices in a file of `krylith bench spmv`, by each way to share them over GPUs whose vectors are whole, and
    /// the error against what that file has measured
    #[arg(long, value_name = "SPMV.json", conflicts_with_all = ["system", "weak", "strong", "poisson", "compare", "to"])]
    pub spmv: Option<PathBuf>,
    /// Vectors of P-CBCG's basis, 1 to 64 [default: 12]
    #[arg(long = "s", value_name = "S", value_parser = clap::value_parser!(u8).range(1..=64), requires = "poisson")]
    pub steps: Option<u8>,
    /// Largest number of GPUs of --weak and --strong [default: 8192]
    #[arg(long, value_name = "P", value_parser = options::ranks)]
    pub to: Option<usize>,
    /// Compares a stored prediction with what `krylith bench okp --device cuda:0,1,…` measured
    #[arg(long, num_args = 2, value_names = ["PREDICTION.json", "BENCH.json"], conflicts_with = "system")]
    pub compare: Option<Vec<PathBuf>>,
    /// Largest error of a good prediction, in percent [default: 15]
    #[arg(long, value_name = "PERCENT", requires = "compare")]
    pub within: Option<f64>,
    /// Folder for prediction.json, or tables, JSON and SVG of a scaling study; it is made if it is missing
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}
