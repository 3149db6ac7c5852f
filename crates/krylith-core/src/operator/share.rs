//! The option `share`: how the ranks of a solve share its products.

use super::cuts::Mode;
use crate::Error;
use std::fmt::{self, Display};
use std::str::FromStr;

/// How the ranks of a solve share its products: with halos, or with vectors that every rank holds whole.
///
/// # Examples
/// ```
/// use krylith_core::operator::ShareSpec;
/// use krylith_core::partition::replicated::Mode;
/// assert_eq!("lra:0.4".parse::<ShareSpec>()?, ShareSpec::Whole(Mode::Lra { long: 0.4 }));
/// // Without a share of the rows, LRA takes the paper's for the mean row length and the number of ranks.
/// assert_eq!(ShareSpec::Lra.mode(7.0, 2), Some(Mode::Lra { long: 0.5 }));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum ShareSpec {
    /// Vectors are distributed, and each rank receives the ghosts that its rows need.
    #[default]
    Halo,
    /// The fastest of halos and the modes with whole vectors, by measurement at set-up.
    Auto,
    /// [`Mode::Lra`] with the paper's parameter.
    Lra,
    /// [`Mode::LraRc`] with the paper's parameters.
    LraRc,
    /// Whole vectors on every rank, with products in this mode.
    Whole(Mode),
}

impl ShareSpec {
    /// Returns true if the option names a mode with whole vectors.
    pub fn is_whole(self) -> bool {
        self.mode(1.0, 2).is_some()
    }

    /// Returns the mode with whole vectors that the option names, for a mean row length and a number of
    /// ranks.
    pub fn mode(self, mean_row: f64, ranks: usize) -> Option<Mode> {
        let [lra, lra_rc] = Mode::by_rule(mean_row, ranks);
        match self {
            ShareSpec::Halo | ShareSpec::Auto => None,
            ShareSpec::Lra => Some(lra),
            ShareSpec::LraRc => Some(lra_rc),
            ShareSpec::Whole(mode) => Some(mode),
        }
    }
}

impl Display for ShareSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShareSpec::Halo => f.write_str("halo"),
            ShareSpec::Auto => f.write_str("auto"),
            ShareSpec::Lra => f.write_str("lra"),
            ShareSpec::LraRc => f.write_str("lra+rc"),
            ShareSpec::Whole(mode) => mode.fmt(f),
        }
    }
}

impl FromStr for ShareSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        const WORDS: &str = "expected halo, auto, nz, 2nz, nz:BLOCKS, lra, lra:LONG, lra+rc, \
                             lra+rc:LONG/REDUNDANT, fused or alone";
        Ok(match text {
            "halo" => ShareSpec::Halo,
            "auto" => ShareSpec::Auto,
            "lra" => ShareSpec::Lra,
            "lra+rc" => ShareSpec::LraRc,
            // A number out of range has its own message.
            mode => ShareSpec::Whole(mode.parse().map_err(|e: Error| match e.to_string() {
                text if text.contains("expected nz") => Error::invalid(format!("share `{mode}`: {WORDS}")),
                _ => e,
            })?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_survives_the_way_through_text() {
        for text in [
            "halo",
            "auto",
            "nz",
            "2nz",
            "nz:8",
            "lra",
            "lra:0.4",
            "lra+rc",
            "lra+rc:0.4/0.15",
            "fused",
            "alone",
        ] {
            let share: ShareSpec = text.parse().unwrap();
            assert_eq!(share.to_string(), text);
            assert_eq!(share.is_whole(), !["halo", "auto"].contains(&text), "{text}");
        }
        for (text, words) in [
            ("halos", "share `halos`: expected halo, auto, nz"),
            ("nz:x", "share `nz:x`: expected halo"),
            ("nz:65", "1 to 64 blocks"),
            ("lra:1.5", "exceed 1 together"),
        ] {
            let error = text.parse::<ShareSpec>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
