//! What is asked of a suite: options of all of them, devices, parts by name, checks.

use krylith_core::{DeviceSpec, Error, Result};
use krylith_model::Machine;
use std::path::PathBuf;

/// Where a suite runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// The threads of this process.
    #[default]
    Cpu,
    /// GPUs by number, at least one; with several a suite measures how solvers scale over them.
    Cuda(Vec<usize>),
}

impl DeviceChoice {
    /// The GPUs, none of a CPU.
    pub fn gpus(&self) -> &[usize] {
        match self {
            DeviceChoice::Cpu => &[],
            DeviceChoice::Cuda(gpus) => gpus,
        }
    }

    pub(crate) fn is_gpu(&self) -> bool {
        *self != DeviceChoice::Cpu
    }

    /// `cpu`, or `cuda:i,j,…` of the first GPUs.
    pub(crate) fn text(&self, count: usize) -> String {
        match self {
            DeviceChoice::Cpu => DeviceSpec::Cpu,
            DeviceChoice::Cuda(gpus) => DeviceSpec::Cuda(gpus.iter().take(count).copied().collect()),
        }
        .to_string()
    }

    /// The same as options of a solve.
    pub(crate) fn options(&self, count: usize, threads: usize) -> String {
        let threads =
            if self.is_gpu() || threads == 0 { String::new() } else { format!(" threads={threads}") };
        format!("device={}{threads}", self.text(count))
    }
}

/// What is asked of a suite, which takes what is its own; of what is `None` or empty it has a choice of its own.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// Where. On several GPUs okp and ildu0 measure scaling alone, the others scaling too.
    pub device: DeviceChoice,
    /// Factor on the number of nodes, cells or rows; 1 is the paper's size. Default: 1 on a GPU; on a CPU 1/8 for okp, 1/256 for spmv, and
    /// 1/64 for the others.
    pub scale: Option<f64>,
    /// Threads on a CPU; 0 means all cores.
    pub threads: usize,
    /// Folder for tables, raw data and a page, or for links the machine file; nothing is written without one.
    pub out: Option<PathBuf>,
    /// More block sizes, matrices, tiles, sweeps, ways and sizes.
    pub full: bool,
    /// What is measured, by name; of okp its series on several GPUs.
    pub parts: Vec<String>,
    /// Samples of a kernel or an application of okp, ildu0 and cbcg; at least 20 for figures that are quoted. Default: 20.
    pub repetitions: Option<usize>,
    /// Samples of a whole solve. Default of okp: 20 on GPUs, 3 on a CPU; of ildu0 and cbcg: 5 and 3; of ras, whose means count: 3.
    pub solves: Option<usize>,
    /// Times that each way of answer and multilevel is taken after the first (default: 5), samples of spmv (20), independent runs of one
    /// setting of ras (100).
    pub rounds: Option<usize>,
    /// Iterations of okp (default: 300, and 60 on a CPU and for the further sizes on several GPUs) and of spmv (1000, 50 on a CPU); the
    /// most of ildu0 (5000), cbcg (50,000) and ras (3000).
    pub iterations: Option<usize>,
    /// Names of a suite's table, generated problems, and of answer and multilevel matrix files or folders of them; none stands for the
    /// suite's table.
    pub systems: Vec<String>,
    /// Ways of answer and multilevel: preconditioners, or options such as `method=cg precond=jacobi`.
    pub ways: Vec<String>,
    /// New values in a row of multilevel. Default: 100.
    pub updates: Option<usize>,
    /// Seconds that a matrix of spmv may take in a process of its own (default: 300), or iterating of multilevel (60).
    pub limit: Option<f64>,
    /// Ranks on a CPU, which are threads: of spmv (default: 2), and of cbcg those whose messages are delayed (8; on a GPU that part is
    /// left out).
    pub ranks: Option<usize>,
    /// Rows and columns of look-alikes of spmv in a random order: nothing lies near anything.
    pub permuted: bool,
    /// Folder of `NAME.mtx`, which spmv takes instead of look-alikes.
    pub matrices: Option<PathBuf>,
    /// answer on a GPU: from arrays in its memory too.
    pub from_device: bool,
    /// The program that answer starts for a first solve of a process, and spmv for each matrix; without one that is not measured, or
    /// in this process.
    pub program: Option<PathBuf>,
    /// Folder of SPE10's permeabilities.
    pub rock: Option<PathBuf>,
    /// Least bytes that the rotating sets of buffers of okp hold together. Default: 1 GB on a GPU, 250 MB on a CPU.
    pub traffic: Option<u64>,
    /// A machine file whose `[network]` and GPUs a host links takes over as estimates: they cannot be measured on one host.
    pub network: Option<Machine>,
    /// links: few samples and small sizes: does it run at all?
    pub quick: bool,
    /// How the program was called, for the record.
    pub command: String,
}

impl Asked {
    /// Checks numbers that must not be 0, and the scale.
    ///
    /// # Errors
    /// Which of them are wrong.
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

    /// One of two, by the device.
    pub(crate) fn pick<T>(&self, on_gpu: T, on_cpu: T) -> T {
        if self.device.is_gpu() { on_gpu } else { on_cpu }
    }

    /// The factor on sizes, by default `on_cpu` on a CPU and 1 on a GPU.
    pub(crate) fn scale(&self, on_cpu: f64) -> f64 {
        self.scale.unwrap_or(self.pick(1.0, on_cpu))
    }

    pub(crate) fn repetitions(&self) -> usize {
        self.repetitions.unwrap_or(20)
    }
}

/// Checks that each rank has a GPU of its own.
///
/// # Errors
/// A GPU that is named twice.
pub(crate) fn apart(gpus: &[usize]) -> Result<()> {
    match gpus.iter().enumerate().find(|(i, gpu)| gpus[..*i].contains(gpu)) {
        None => Ok(()),
        Some((i, gpu)) => {
            Err(Error::invalid(format!("GPU {gpu} is named twice (at {i}); each rank needs its own")))
        }
    }
}

/// 1, 2, 4, … and all.
pub(crate) fn counts(all: usize) -> Vec<usize> {
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |c| Some(2 * c)).take_while(|&c| c < all).collect();
    counts.push(all);
    counts
}

/// An enum of things that are measured, each with its name.
macro_rules! parts {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $part:ident = $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name {
            $($(#[$doc])* $part,)*
        }

        impl $name {
            /// All of them, with their names.
            const ALL: &[(&'static str, $name)] = &[$(($text, $name::$part),)*];

            /// Those that words of an option name; all where none does.
            fn named(option: &str, words: &[String]) -> krylith_core::Result<Vec<$name>> {
                crate::options::named(Self::ALL, option, words)
            }
        }
    };
}
pub(crate) use parts;

/// The parts that words of an option name; all where there are none.
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

/// Runs something on the platform that the options name: the CPU, the first GPU, or several of them where that is another thing.
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
