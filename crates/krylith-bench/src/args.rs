//! The command line of the suites: names, help texts and defaults.

use clap::parser::ValueSource;
use clap::{ArgMatches, Parser, ValueEnum};
use krylith_cli::failure::{Failure, Result};
use krylith_cli::options;
use krylith_core::DeviceSpec;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  krylith bench okp --device cuda --full --out okp               one GPU beside cuBLAS and cuSPARSE
  krylith bench okp --device cuda:0,1,2,3 --out okp4             GMRES(30) on 1, 2 and 4 GPUs
  krylith bench ildu0 --device cuda --out ildu0                  triangular solves beside cuSPARSE and the paper's kernels
  krylith bench spmv --device cuda:0,1 --out spmv                products of 24 matrices on one GPU and on both
  krylith bench spmv --device cpu --scale 0.004 --only FullChip  one of them, small, on this CPU
  krylith bench links --device cuda:0,1,2,3 --out machine.toml   what `krylith model` needs to know of these GPUs";

/// Repeat a paper's experiment on this machine, beside the vendor's library and the paper's own algorithm.
#[derive(Debug, Parser)]
#[command(name = "krylith-bench", bin_name = "krylith bench", version, after_help = EXAMPLES, max_term_width = 104)]
pub struct BenchArgs {
    /// What to measure: okp, GMRES on Kronecker systems (product, orthogonalisation, whole solves); ildu0,
    /// triangular solves on subdomains and BiCGSTAB; cbcg, P-CG and P-CBCG on structured grids (kernels at the roofline, tiles,
    /// slow networks); ras, randomized Schwarz on linear systems of Newton steps; answer, everything from arrays to x, beside what a user would write;
    /// multilevel, hierarchies of coarse levels: set-up and solve, growth with size, new values, one core, several GPUs;
    /// spmv, products of 24 large sparse matrices on one device and several, and CG around them;
    /// links, what kernels and links of this machine's GPUs take, for `krylith model`
    #[arg(value_name = "SUITE")]
    pub suite: Suite,
    /// Where: auto, cpu, cuda[:N] or cuda:N,M,… for scaling over GPUs [default: auto, the first GPU if one works]
    #[arg(long, value_name = "auto|cpu|cuda[:N,…]")]
    pub device: Option<DeviceSpec>,
    /// Factor on the number of mesh nodes or rows; 1 is the paper's size [default: 1 on a GPU; on a CPU 1/8, 1/64 for ildu0,
    /// cbcg, ras, answer and multilevel, and 1/256 for spmv]
    #[arg(long, value_name = "FACTOR")]
    pub scale: Option<f64>,
    /// Threads on a CPU [default: all cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// okp: every block size from 1 to 8 with 1 to 4 stages too; ildu0: the paper's second Laplacian too;
    /// cbcg: every tile and every s; ras: every number of sweeps of the paper's figures; multilevel: every combination of
    /// coarsening, cycle, smoother and precision, and the largest size
    #[arg(long)]
    pub full: bool,
    /// okp on several GPUs: strong (the paper's size), weak (that size on each GPU), large (8 times that size) [default:
    /// all three]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub series: Vec<String>,
    /// cbcg: what to measure, of kernels, solves, vendor, scaling (on several GPUs) and network (on a CPU); spmv: of single,
    /// multi, cg and sweep; ras: of cavity600, cavity1200, ventricle, artery, repeat and scaling (on several GPUs), and on each problem of
    /// ours, sweeps, vendor and one-core [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub parts: Vec<String>,
    /// spmv: matrices by their names in the paper's table, or generated problems NAME:SIZE [default: the table]
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub only: Vec<String>,
    /// spmv: rows and columns of look-alikes in a random order
    #[arg(long)]
    pub permuted: bool,
    /// spmv: folder of NAME.mtx, which are taken instead of look-alikes
    #[arg(long, value_name = "DIR")]
    pub matrices: Option<PathBuf>,
    /// spmv: iterations of CG [default: 1000 on a GPU, 50 on a CPU]
    #[arg(long, value_name = "N", value_parser = options::restart)]
    pub iterations: Option<usize>,
    /// spmv: ranks on a CPU, which are threads [default: 2]
    #[arg(long, value_name = "N", value_parser = options::restart)]
    pub ranks: Option<usize>,
    /// spmv: seconds that a matrix may take [default: 300]
    #[arg(long, value_name = "SECONDS", value_parser = options::restart)]
    pub limit: Option<usize>,
    /// spmv: all matrices in this process; with --out each has one of its own otherwise
    #[arg(long)]
    pub in_process: bool,
    /// okp, ildu0, cbcg: number of whole solves; the median of their times counts [default: 20 on a GPU, ildu0 and cbcg 5; 3 on a
    /// CPU]; ras: runs whose mean counts [default: 3]
    #[arg(long, value_name = "N", value_parser = options::restart)]
    pub solves: Option<usize>,
    /// answer, and the table of multilevel: what to solve: names of the table of answer, `hard` for small hard matrices, generated problems NAME:SIZE, matrix files, folders of them [default: the
    /// table]; cbcg: generated problems on a grid [default: poisson-multiphase]
    #[arg(long, value_name = "SYSTEM", num_args = 1..)]
    pub systems: Vec<String>,
    /// answer, multilevel: preconditioners, or options such as "method=cg precond=amg"; auto asks for nothing [default: none; multilevel a list]
    #[arg(long, value_name = "WAY", num_args = 1..)]
    pub ways: Vec<String>,
    /// answer, multilevel, spmv: times that each way is taken; the median counts [default: 5, spmv 20]; ras: independent runs of one setting
    /// [default: 100]
    #[arg(long, value_name = "N", value_parser = options::restart)]
    pub rounds: Option<usize>,
    /// answer: from arrays in the GPU's memory too
    #[arg(long)]
    pub from_device: bool,
    /// links: a machine file whose network and GPUs a host are taken over as estimates [default: one host is all there is]
    #[arg(long, value_name = "FILE.toml")]
    pub network: Option<PathBuf>,
    /// links: few samples, to see whether it runs
    #[arg(long)]
    pub quick: bool,
    /// Folder for tables (.txt, of answer .md), raw data (.json) and a page with plots (.html), made if it is missing; of links
    /// the machine file (.toml)
    #[arg(long, value_name = "DIR|FILE.toml")]
    pub out: Option<PathBuf>,
}

/// The suites.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[allow(missing_docs)] // a comment would become a second help text
pub enum Suite {
    Okp,
    Ildu0,
    Answer,
    Cbcg,
    Multilevel,
    Ras,
    Spmv,
    Links,
}

impl Suite {
    /// The options that it takes beside --device and --out.
    fn takes(self) -> &'static str {
        match self {
            Suite::Okp => "scale threads full solves series",
            Suite::Ildu0 => "scale threads full solves",
            Suite::Answer => "scale threads rounds systems ways from-device",
            Suite::Cbcg => "scale threads full solves parts systems",
            Suite::Multilevel => "scale threads full rounds parts systems ways",
            Suite::Ras => "scale threads full solves rounds parts",
            Suite::Spmv => {
                "scale threads rounds parts only permuted matrices iterations ranks limit in-process"
            }
            Suite::Links => "quick network",
        }
    }

    /// True of an option of this suite, by its name.
    fn has(self, option: &str) -> bool {
        matches!(option, "suite" | "device" | "out") || self.takes().split(' ').any(|own| own == option)
    }

    /// Refuses options that were given and are for other suites.
    ///
    /// # Errors
    /// Such an option, with the suites that it is for.
    pub fn check(self, given: &ArgMatches) -> Result<()> {
        for id in given.ids().filter(|id| given.value_source(id.as_str()) == Some(ValueSource::CommandLine)) {
            let option = id.as_str().replace('_', "-");
            // Groups that clap makes of its own are nobody's.
            let takers = Suite::value_variants().iter().filter(|suite| suite.has(&option));
            let takers: Vec<_> = takers.filter_map(|suite| suite.to_possible_value()).collect();
            if !self.has(&option) && !takers.is_empty() {
                let names: Vec<&str> = takers.iter().map(|suite| suite.get_name()).collect();
                return Err(Failure::usage(format!(
                    "--{option} is for `krylith bench {}`",
                    names.join("`, `")
                )));
            }
        }
        Ok(())
    }
}
