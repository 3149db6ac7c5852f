//! The device that options name.

use crate::names::unknown;
use crate::{Error, Result};
use std::fmt::{self, Display};
use std::str::FromStr;

/// Where a solve runs: `auto`, `cpu`, `cuda`, or `cuda:0,1` for GPUs by number.
///
/// # Examples
/// ```
/// use krylith::DeviceSpec;
/// assert_eq!("cuda:0,1".parse::<DeviceSpec>()?, DeviceSpec::Cuda(vec![0, 1]));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DeviceSpec {
    /// The first GPU if one can be used, else the CPU.
    #[default]
    Auto,
    /// Host threads.
    Cpu,
    /// GPUs by number; none named means the first.
    Cuda(Vec<usize>),
}

impl FromStr for DeviceSpec {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let (name, list) = text.split_once(':').map_or((text, None), |(n, l)| (n, Some(l)));
        match (name.to_ascii_lowercase().as_str(), list) {
            ("auto", None) => Ok(DeviceSpec::Auto),
            ("cpu", None) => Ok(DeviceSpec::Cpu),
            ("cuda", None) => Ok(DeviceSpec::Cuda(Vec::new())),
            ("cuda", Some(list)) => {
                let numbers: std::result::Result<Vec<usize>, _> = list.split(',').map(str::parse).collect();
                let numbers = numbers.map_err(|_| {
                    Error::invalid(format!("`{text}`: GPUs are given by number, such as cuda:0 or cuda:0,1"))
                })?;
                match numbers.iter().enumerate().find(|(i, n)| numbers[..*i].contains(n)) {
                    Some((_, n)) => Err(Error::invalid(format!("`{text}` names GPU {n} twice"))),
                    None => Ok(DeviceSpec::Cuda(numbers)),
                }
            }
            ("auto" | "cpu", Some(_)) => Err(Error::invalid(format!("`{text}`: only cuda takes numbers"))),
            _ => unknown("device", name, &["auto", "cpu", "cuda[:0,1,…]"]),
        }
    }
}

impl Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceSpec::Auto => f.write_str("auto"),
            DeviceSpec::Cpu => f.write_str("cpu"),
            DeviceSpec::Cuda(list) if list.is_empty() => f.write_str("cuda"),
            DeviceSpec::Cuda(list) => {
                let list: Vec<String> = list.iter().map(usize::to_string).collect();
                write!(f, "cuda:{}", list.join(","))
            }
        }
    }
}
