//! The command line of the suites: names, help texts and defaults.

use clap::parser::ValueSource;
use clap::{ArgMatches, Parser, ValueEnum};
use krylith_cli::failure::{Failure, Result};
use krylith_cli::options;
use krylith_core::DeviceSpec;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  krylith bench okp --device cuda --full --out okp               one GPU compared with cuBLAS and cuSPARSE
  krylith bench okp --device cuda:0,1,2,3 --out okp4             GMRES(30) on 1, 2 and 4 GPUs
  krylith bench ildu0 --device cuda --out ildu0                  triangular solves, compared with cuSPARSE
  krylith bench ildu0 --device cuda --systems paper A.mtx        the same for the paper's systems and a file
  krylith bench cbcg --times cbcg/cbcg.json --out crossover      P-CG and P-CBCG on many GPUs, predicted
  krylith bench spmv --device cuda:0,1 --out spmv                products of 24 matrices on one GPU and on both
  krylith bench spmv --device cpu --scale 0.004 --only FullChip  one of these matrices, small, on this CPU
  krylith bench links --device cuda:0,1,2,3 --out machine.toml   the machine file of these GPUs for `krylith model`";

/// Repeat a paper's experiments on this machine, compared with the vendor's libraries and the paper's own
/// algorithm.
#[derive(Debug, Parser)]
#[command(name = "krylith-bench", bin_name = "krylith bench", version, after_help = EXAMPLES, max_term_width = 104)]
pub struct BenchArgs {
    /// What to measure: okp, GMRES on Kronecker systems (product, orthogonalisation, whole solves); ildu0,
    /// triangular solves on subdomains and BiCGSTAB; cbcg, P-CG and P-CBCG on structured grids (kernels at
    /// the roofline, tiles, slow networks); ras, randomized Schwarz on linear systems of Newton steps;
    /// answer, the whole time from arrays to x, compared with what a user would write; multilevel, algebraic
    /// multigrid: set-up and solve, growth with size, new values, one core, several GPUs; spmv, products of
    /// 24 large sparse matrices on one device and on several, and CG with them; links, times of this
    /// machine's GPUs and links, for `krylith model`
    #[arg(value_name = "SUITE")]
    pub suite: Suite,
    /// Device: auto, cpu, cuda[:N], or cuda:N,M,… to measure scaling over GPUs; under mpirun each rank takes
    /// one of the GPUs [default: auto, the first GPU if one works]
    #[arg(long, value_name = "auto|cpu|cuda[:N,…]")]
    pub device: Option<DeviceSpec>,
    /// Factor on the number of mesh nodes or rows; 1 is the paper's size [default: 1 on a GPU; on a CPU 1/8,
    /// 1/64 for ildu0, cbcg, ras, answer and multilevel, and 1/256 for spmv]
    #[arg(long, value_name = "FACTOR")]
    pub scale: Option<f64>,
    /// Number of CPU threads [default: all cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// okp: also every block size from 1 to 8 with 1 to 4 stages; ildu0: also the paper's second Laplacian;
    /// cbcg: every tile and every s; ras: every number of sweeps in the paper's figures; multilevel: every
    /// combination of coarsening, cycle, smoother and precision, and the largest size
    #[arg(long)]
    pub full: bool,
    /// okp on several GPUs: strong (the paper's size), weak (that size on each GPU), large (8 times that
    /// size) [default: all three]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub series: Vec<String>,
    /// Parts to measure. cbcg: kernels, tiles, solves, vendor, scaling (on several GPUs), network (on a CPU),
    /// crossover (a prediction from kernels and solves, or from --times) and memory (of the paper's large
    /// grid); spmv: single, multi, cg and sweep; ras: cavity600, cavity1200, ventricle, artery, repeat and
    /// scaling (on several GPUs), and for each problem ours, sweeps, vendor and one-core [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub parts: Vec<String>,
    /// spmv: matrices by their names in the paper's table, or generated problems NAME:SIZE [default: the
    /// table]
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub only: Vec<String>,
    /// spmv: renumber rows and columns of look-alikes at random
    #[arg(long)]
    pub permuted: bool,
    /// spmv: folder of NAME.mtx files, used instead of look-alikes
    #[arg(long, value_name = "DIR")]
    pub matrices: Option<PathBuf>,
    /// spmv: number of CG iterations [default: 1000 on a GPU, 50 on a CPU]
    #[arg(long, value_name = "N", value_parser = options::restart)]
    pub iterations: Option<usize>,
    /// spmv: number of ranks on a CPU; they are threads [default: 2]
    #[arg(long, value_name = "N", value_parser = options::restart)]
    pub ranks: Option<usize>,
    /// spmv: time limit per matrix in seconds [default: 300]
    #[arg(long, value_name = "SECONDS", value_parser = options::restart)]
    pub limit: Option<usize>,
    /// spmv: measure all matrices in this process; with --out each otherwise has its own
    #[arg(long)]
    pub in_process: bool,
    /// okp, ildu0, cbcg: number of whole solves; the report gives the median [default: 20 on a GPU, 5 for
    /// ildu0 and cbcg; 3 on a CPU]; ras: number of runs; the report gives the mean [default: 3]
    #[arg(long, value_name = "N", value_parser = options::restart)]
    pub solves: Option<usize>,
    /// answer, and the table of multilevel: systems to solve: names in the table of answer, `published` for
    /// systems whose times others publish, `hard` for small hard matrices, generated problems NAME:SIZE,
    /// matrix files, or folders of them [default: the table];
    /// cbcg: generated problems on a grid [default: poisson-multiphase];
    /// ildu0: laplace128, laplace256, laplacian1 to laplacian5, parabolic, spe10, radiation, radiation3, oil,
    /// `paper` for the paper's without oil, generated problems, matrix files or folders [default: Laplacians]
    #[arg(long, value_name = "SYSTEM", num_args = 1..)]
    pub systems: Vec<String>,
    /// ildu0: cuts into subdomains: boxes, graph (METIS), multilevel (Krylith's) [default: boxes for
    /// Laplacians, and graph for others, or multilevel in a build without METIS]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub cuts: Vec<String>,
    /// answer, multilevel: preconditioners, or options such as "method=cg precond=amg"; auto leaves the
    /// choice to Krylith [default: none; for multilevel a list]
    #[arg(long, value_name = "WAY", num_args = 1..)]
    pub ways: Vec<String>,
    /// answer, multilevel, spmv: number of runs of each variant; the report gives the median [default: 5,
    /// spmv 20]; ras: independent runs of one setting [default: 100]
    #[arg(long, value_name = "N", value_parser = options::restart)]
    pub rounds: Option<usize>,
    /// answer: also start from arrays in the GPU's memory
    #[arg(long)]
    pub from_device: bool,
    /// links: a machine file whose network and GPUs per host are copied as estimates [default: one host
    /// without a network]; cbcg: a machine file or a name, such as summit, on whose network the part
    /// crossover predicts [default: summit, abci and jupiter]
    #[arg(long, value_name = "FILE.toml")]
    pub network: Option<PathBuf>,
    /// cbcg: cbcg.json of an earlier run with kernels and solves, whose times the part crossover uses;
    /// without --parts nothing is measured
    #[arg(long, value_name = "FILE.json")]
    pub times: Option<PathBuf>,
    /// links: take few samples, to test that everything runs
    #[arg(long)]
    pub quick: bool,
    /// Folder for tables (.txt; for answer .md), raw data (.json) and a page with plots (.html), created if
    /// it does not exist; for links the machine file (.toml)
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
    /// Returns the suite's options besides --device and --out.
    fn takes(self) -> &'static str {
        match self {
            Suite::Okp => "scale threads full solves series",
            Suite::Ildu0 => "scale threads full solves systems cuts",
            Suite::Answer => "scale threads rounds systems ways from-device",
            Suite::Cbcg => "scale threads full solves parts systems network times",
            Suite::Multilevel => "scale threads full rounds parts systems ways",
            Suite::Ras => "scale threads full solves rounds parts",
            Suite::Spmv => {
                "scale threads rounds parts only permuted matrices iterations ranks limit in-process"
            }
            Suite::Links => "quick network",
        }
    }

    /// Returns true if this suite has the option of that name.
    fn has(self, option: &str) -> bool {
        matches!(option, "suite" | "device" | "out") || self.takes().split(' ').any(|own| own == option)
    }

    /// Checks that ranks that are processes can run this suite.
    ///
    /// # Errors
    /// Returns an error that names the suites that they can run.
    pub fn check_processes(self) -> Result<()> {
        match self {
            Suite::Answer | Suite::Links => Err(Failure::usage(
                "this suite measures a single process; the suites for ranks under mpirun are okp, ildu0, \
                 cbcg, multilevel, ras and spmv",
            )),
            _ => Ok(()),
        }
    }

    /// Checks that no option of another suite was given.
    ///
    /// # Errors
    /// Returns an error if there is one, with the suites that have the option.
    pub fn check(self, given: &ArgMatches) -> Result<()> {
        for id in given.ids().filter(|id| given.value_source(id.as_str()) == Some(ValueSource::CommandLine)) {
            let option = id.as_str().replace('_', "-");
            // Ids of clap's own argument groups belong to no suite and are ignored.
            let takers = Suite::value_variants().iter().filter(|suite| suite.has(&option));
            let takers: Vec<_> = takers.filter_map(|suite| suite.to_possible_value()).collect();
            if !self.has(&option) && !takers.is_empty() {
                let names: Vec<&str> = takers.iter().map(|suite| suite.get_name()).collect();
                return Err(Failure::usage(format!(
                    "--{option} applies only to `krylith bench {}`",
                    names.join("`, `")
                )));
            }
        }
        Ok(())
    }
}
