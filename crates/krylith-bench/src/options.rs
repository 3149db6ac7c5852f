//! Options of all suites, devices, selection of parts by name, and checks.

use crate::launch::Launch;
use krylith_core::{DeviceSpec, Error, Result};
use krylith_model::Machine;
use std::path::PathBuf;

/// The device on which a suite runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// The CPU, with the threads of this process.
    #[default]
    Cpu,
    /// GPUs by number, at least one; with several, a suite measures scaling over them.
    Cuda(Vec<usize>),
}

impl DeviceChoice {
    /// Returns the GPUs; empty for a CPU.
    pub fn gpus(&self) -> &[usize] {
        match self {
            DeviceChoice::Cpu => &[],
            DeviceChoice::Cuda(gpus) => gpus,
        }
    }

    pub(crate) fn is_gpu(&self) -> bool {
        *self != DeviceChoice::Cpu
    }

    /// Returns `cpu`, or `cuda:i,j,…` for the first `count` GPUs.
    pub(crate) fn text(&self, count: usize) -> String {
        match self {
            DeviceChoice::Cpu => DeviceSpec::Cpu,
            DeviceChoice::Cuda(gpus) => DeviceSpec::Cuda(gpus.iter().take(count).copied().collect()),
        }
        .to_string()
    }

    /// Returns the same as options of a solve.
    pub(crate) fn options(&self, count: usize, threads: usize) -> String {
        let threads =
            if self.is_gpu() || threads == 0 { String::new() } else { format!(" threads={threads}") };
        format!("device={}{threads}", self.text(count))
    }
}

/// The options of a suite. Each suite uses its own options, and has a default for those that are `None` or
/// empty.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// Device. On several GPUs, okp and ildu0 measure only scaling; the other suites also measure scaling.
    pub device: DeviceChoice,
    /// Factor on the number of nodes, cells or rows; 1 is the paper's size. Default: 1 on a GPU; on a CPU 1/8
    /// for okp, 1/256 for spmv, and 1/64 for the others.
    pub scale: Option<f64>,
    /// Threads on a CPU; 0 means all cores.
    pub threads: usize,
    /// Folder for tables, raw data and a page; for links the machine file. Without it nothing is written.
    pub out: Option<PathBuf>,
    /// True to measure more block sizes, matrices, tiles, sweeps, variants and sizes.
    pub full: bool,
    /// Names of the parts to measure; for okp, of its series on several GPUs.
    pub parts: Vec<String>,
    /// Number of samples of a kernel (okp, cbcg) or an application (ildu0); use at least 20 for published
    /// figures. Default: 20.
    pub repetitions: Option<usize>,
    /// Number of samples of a whole solve. Default for okp: 20 on GPUs, 3 on a CPU; for ildu0 and cbcg: 5 and
    /// 3; for ras, which reports means: 3.
    pub solves: Option<usize>,
    /// Number of runs of each variant of answer and multilevel after the first (default: 5), of samples of
    /// spmv (20), and of independent runs of one setting of ras (100).
    pub rounds: Option<usize>,
    /// Number of iterations of okp (default: 300; 60 on a CPU and for the further sizes on several GPUs) and
    /// of spmv (1000; 50 on a CPU). For ildu0 (5000), cbcg (50,000) and ras (3000) it is the iteration limit.
    pub iterations: Option<usize>,
    /// Names in a suite's table or generated problems; for answer, multilevel and ildu0 also matrix files or
    /// folders of them. If empty, the suite's table; for ildu0 its Laplacians.
    pub systems: Vec<String>,
    /// Cuts of ildu0 into subdomains: boxes, graph (METIS) or multilevel (Krylith's). Default: boxes for
    /// Laplacians and METIS for other systems, as in the paper; Krylith's in a build without METIS.
    pub cuts: Vec<String>,
    /// Variants of answer and multilevel: preconditioners, or options such as `method=cg precond=jacobi`.
    pub ways: Vec<String>,
    /// Number of successive updates of values in multilevel. Default: 100.
    pub updates: Option<usize>,
    /// Time limit in seconds: per matrix of spmv in its own process (default: 300), or for the iterations of
    /// multilevel (60).
    pub limit: Option<f64>,
    /// Number of ranks on a CPU, which are threads: of spmv (default: 2), and of cbcg's part with delayed
    /// messages (8; omitted on a GPU).
    pub ranks: Option<usize>,
    /// True to renumber rows and columns of spmv's look-alikes at random, so that they have no locality.
    pub permuted: bool,
    /// Folder of `NAME.mtx` files, which spmv uses instead of look-alikes.
    pub matrices: Option<PathBuf>,
    /// True to start answer also from arrays in the GPU's memory.
    pub from_device: bool,
    /// The program that answer starts to measure a whole process, and that spmv starts for each matrix.
    /// Without it answer omits that measurement, and spmv runs in this process.
    pub program: Option<PathBuf>,
    /// Folder of SPE10's permeabilities.
    pub rock: Option<PathBuf>,
    /// Least total bytes of okp's rotating sets of buffers. Default: 1 GB on a GPU, 250 MB on a CPU.
    pub traffic: Option<u64>,
    /// A machine file. Its `[network]` and GPUs per host are copied by links as estimates, because one host
    /// cannot measure them. cbcg predicts on it; default: Summit, ABCI and JUPITER.
    pub network: Option<Machine>,
    /// Raw data of a run of cbcg, `cbcg.json`, whose times it uses for predictions instead of measuring.
    pub times: Option<PathBuf>,
    /// True for few samples and small sizes in links, to test that it runs.
    pub quick: bool,
    /// The command line of the program, for the report.
    pub command: String,
    /// How the ranks run. Under a launcher, `device` is that of this rank, and `threads` is its number of
    /// threads.
    pub launch: Launch,
}

impl Asked {
    /// Checks the scale, and the numbers that must not be 0.
    ///
    /// # Errors
    /// Returns an error that names the wrong ones.
    pub(crate) fn check(&self) -> Result<()> {
        let counts = [
            ("repetitions", self.repetitions),
            ("solves", self.solves),
            ("rounds", self.rounds),
            ("iterations", self.iterations),
            ("ranks", self.ranks),
            ("updates", self.updates),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == Some(0)) {
            return Err(Error::invalid(format!("{name} must be at least 1")));
        }
        for (name, number) in [("scale", self.scale), ("limit", self.limit)] {
            if number.is_some_and(|x| !(x.is_finite() && x > 0.0)) {
                return Err(Error::invalid(format!("the {name} must be a positive number")));
            }
        }
        Ok(())
    }

    /// Returns the options of a solve on the first `count` devices, or on the processes of a launcher.
    pub(crate) fn device_of(&self, count: usize) -> String {
        match self.launch.comm() {
            Some(_) => self.launch.device(self.threads),
            None => self.device.options(count, self.threads),
        }
    }

    /// Returns one of two values, by the device.
    pub(crate) fn pick<T>(&self, on_gpu: T, on_cpu: T) -> T {
        if self.device.is_gpu() { on_gpu } else { on_cpu }
    }

    /// Returns the factor on sizes: by default `on_cpu` on a CPU and 1 on a GPU.
    pub(crate) fn scale(&self, on_cpu: f64) -> f64 {
        self.scale.unwrap_or(self.pick(1.0, on_cpu))
    }

    pub(crate) fn repetitions(&self) -> usize {
        self.repetitions.unwrap_or(20)
    }
}

/// Checks that each rank has its own GPU.
///
/// # Errors
/// Returns an error if a GPU is named twice.
pub(crate) fn apart(gpus: &[usize]) -> Result<()> {
    match gpus.iter().enumerate().find(|(i, gpu)| gpus[..*i].contains(gpu)) {
        None => Ok(()),
        Some((i, gpu)) => {
            Err(Error::invalid(format!("GPU {gpu} is named twice (at {i}); each rank needs its own")))
        }
    }
}

/// Returns 1, 2, 4, … and `all`.
pub(crate) fn counts(all: usize) -> Vec<usize> {
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |c| Some(2 * c)).take_while(|&c| c < all).collect();
    counts.push(all);
    counts
}

/// Declares an enum of parts to measure, each with its name.
macro_rules! parts {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $part:ident = $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name {
            $($(#[$doc])* $part,)*
        }

        impl $name {
            /// All parts, with their names.
            const ALL: &[(&'static str, $name)] = &[$(($text, $name::$part),)*];

            /// Returns the parts that the words of an option name; all parts if there are no words.
            fn named(option: &str, words: &[String]) -> krylith_core::Result<Vec<$name>> {
                crate::options::named(Self::ALL, option, words)
            }
        }
    };
}
pub(crate) use parts;

/// Returns the parts that the words of an option name; all parts if there are no words.
pub(crate) fn named<T: Copy>(all: &[(&str, T)], option: &str, words: &[String]) -> Result<Vec<T>> {
    if words.is_empty() {
        return Ok(all.iter().map(|(_, part)| *part).collect());
    }
    let one = |word: &String| {
        all.iter().find(|(name, _)| name == word).map(|(_, part)| *part).ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
            Error::invalid(format!("{option} {word}: there are {}", names.join(", ")))
        })
    };
    words.iter().map(one).collect()
}

/// Runs something on the platform that the options name: the CPU, the first GPU, or several GPUs if that is a
/// case of its own.
macro_rules! on_device {
    ($options:expr, |$p:ident| $one:expr $(, |$gpus:ident| $several:expr)?) => {
        match &$options.device {
            crate::options::DeviceChoice::Cpu => {
                let $p = &crate::cpu::CpuPlatform::new($options.threads);
                $one
            }
            #[cfg(feature = "cuda")]
            crate::options::DeviceChoice::Cuda(gpus) => match gpus[..] {
                [] => Err(krylith_core::Error::invalid("no GPU is named; use cuda:0")),
                $([_, _, ..] => {
                    let $gpus = gpus;
                    $several
                })?
                [first, ..] => {
                    let $p = &crate::cuda::CudaPlatform::open(first)?;
                    $one
                }
            },
            #[cfg(not(feature = "cuda"))]
            crate::options::DeviceChoice::Cuda(_) => Err(crate::options::no_cuda()),
        }
    };
}
pub(crate) use on_device;

/// Runs something on the ground of all ranks, if a launcher started them: each rank has a share of the cores
/// or one GPU.
macro_rules! on_processes {
    ($options:expr, |$ground:ident| $work:expr) => {
        match &$options.device {
            crate::options::DeviceChoice::Cpu => {
                let $ground = &crate::spmv::Threads::processes($options);
                $work
            }
            #[cfg(feature = "cuda")]
            crate::options::DeviceChoice::Cuda(_) => {
                let $ground = &crate::cuda::ground::Gpus::processes($options)?;
                $work
            }
            #[cfg(not(feature = "cuda"))]
            crate::options::DeviceChoice::Cuda(_) => Err(crate::options::no_cuda()),
        }
    };
}
pub(crate) use on_processes;

#[cfg(not(feature = "cuda"))]
pub(crate) fn no_cuda() -> Error {
    Error::Unsupported("this build has no CUDA".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_power_of_two_is_measured_and_all_gpus() {
        assert_eq!(counts(1), [1]);
        assert_eq!(counts(2), [1, 2]);
        assert_eq!(counts(4), [1, 2, 4]);
        assert_eq!(counts(6), [1, 2, 4, 6]);
    }

    #[test]
    fn a_device_is_written_as_options() {
        let gpus = DeviceChoice::Cuda(vec![2, 0, 1]);
        assert_eq!(gpus.options(2, 4), "device=cuda:2,0");
        assert_eq!(
            (DeviceChoice::Cpu.options(1, 4), DeviceChoice::Cpu.text(1)),
            ("device=cpu threads=4".into(), "cpu".into())
        );
        assert!(apart(gpus.gpus()).is_ok() && apart(&[1, 0, 1]).is_err());
    }
}
