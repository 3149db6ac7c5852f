//! The number of ranks whose rows one rank solves.

use crate::names::whole_number;
use crate::{Error, Result};
use std::fmt::{self, Display};
use std::str::FromStr;

/// The largest number of ranks of a host that share a device. A larger number is a typing error.
const MOST: usize = 4096;

/// How many ranks of a host share a device: `auto`, or a number. Their rows gather on the first of them.
///
/// # Examples
/// ```
/// use krylith_core::options::RanksPerGpu;
/// assert_eq!("4".parse::<RanksPerGpu>()?, RanksPerGpu::Count(4));
/// assert!("0".parse::<RanksPerGpu>().is_err());
/// # Ok::<(), krylith_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RanksPerGpu {
    /// As many as needed, so that each GPU of a host has one rank that solves.
    #[default]
    Auto,
    /// At most this many.
    Count(usize),
}

impl FromStr for RanksPerGpu {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        if text.eq_ignore_ascii_case("auto") {
            return Ok(Self::Auto);
        }
        whole_number(text, 1, MOST).map(Self::Count)
    }
}

impl Display for RanksPerGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Count(count) => count.fmt(f),
        }
    }
}
