//! What the options of all suites have: devices, parts by name, checks, defaults.

use krylith::{Error, Result};
use std::str::FromStr;

/// Where a suite runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The threads of this process.
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

    /// The factor on the size of the papers' problems, where none is asked for.
    pub(crate) fn scale(&self, asked: Option<f64>) -> f64 {
        asked.unwrap_or(if self.is_gpu() { 1.0 } else { 1.0 / 64.0 })
    }

    /// `cpu`, or `cuda:i,j,…` of the first GPUs.
    pub(crate) fn text(&self, count: usize) -> String {
        match self {
            DeviceChoice::Cpu => "cpu".into(),
            DeviceChoice::Cuda(gpus) => {
                let list: Vec<String> = gpus.iter().take(count).map(usize::to_string).collect();
                format!("cuda:{}", list.join(","))
            }
        }
    }

    /// The same as options of a solve.
    pub(crate) fn options(&self, count: usize, threads: usize) -> String {
        let threads =
            if self.is_gpu() || threads == 0 { String::new() } else { format!(" threads={threads}") };
        format!("device={}{threads}", self.text(count))
    }
}

impl FromStr for DeviceChoice {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let numbers = |list: &str| list.split(',').map(|n| n.parse().ok()).collect::<Option<Vec<usize>>>();
        let known = match text {
            "cpu" => Some(DeviceChoice::Cpu),
            "cuda" => Some(DeviceChoice::Cuda(vec![0])),
            other => other.strip_prefix("cuda:").and_then(numbers).map(DeviceChoice::Cuda),
        };
        known.ok_or_else(|| {
            Error::invalid(format!(
                "unknown device `{text}`; use cpu, cuda, cuda:NUMBER or cuda:NUMBER,NUMBER,…"
            ))
        })
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

/// Checks numbers that must not be 0, and the scale.
///
/// # Errors
/// Which of them are wrong.
pub(crate) fn check(names: &str, counts: &[usize], scale: Option<f64>) -> Result<()> {
    if counts.contains(&0) {
        return Err(Error::invalid(format!("{names} must be at least 1")));
    }
    if scale.is_some_and(|s| !(s.is_finite() && s > 0.0)) {
        return Err(Error::invalid("the scale must be a positive number"));
    }
    Ok(())
}

/// A struct of options, each with its default.
macro_rules! options {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $type:ty = $default:expr,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone)]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
            /// How the program was called, for the record.
            pub command: String,
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* command: crate::command_line() }
            }
        }
    };
}
pub(crate) use options;

/// An enum of things that are measured, each with its name.
macro_rules! parts {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $part:ident = $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$doc])* $part,)*
        }

        impl $name {
            /// All of them, with their names.
            pub const ALL: &[($name, &'static str)] = &[$(($name::$part, $text),)*];

            /// All of them.
            pub fn all() -> Vec<$name> {
                Self::ALL.iter().map(|(part, _)| *part).collect()
            }
        }

        impl std::str::FromStr for $name {
            type Err = krylith::Error;
            fn from_str(text: &str) -> krylith::Result<Self> {
                crate::options::part_named(Self::ALL, text)
            }
        }
    };
}
pub(crate) use parts;

/// The part of a suite of that name.
pub(crate) fn part_named<T: Copy>(all: &[(T, &'static str)], text: &str) -> Result<T> {
    all.iter().find(|(_, name)| *name == text).map(|(part, _)| *part).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(_, name)| *name).collect();
        Error::invalid(format!("unknown part `{text}`; the known ones are {}", names.join(", ")))
    })
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
                [] => Err(krylith::Error::invalid("no GPU is named; use cuda:0")),
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
