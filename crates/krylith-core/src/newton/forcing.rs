//! Forcing terms: the tolerances of the linear solves of Newton steps.

use crate::{Error, Result};
use std::fmt::{self, Display};
use std::str::FromStr;

/// The forcing term η in ‖J s + F‖ ≤ η ‖F‖.
///
/// # Examples
/// ```
/// use krylith::newton::Forcing;
/// assert_eq!("ew".parse::<Forcing>()?, Forcing::default());
/// assert_eq!("1e-4".parse::<Forcing>()?.to_string(), "0.0001");
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Forcing {
    /// Choice 2 of Eisenstat and Walker (1996): η_k = γ (‖F_k‖/‖F_{k−1}‖)². Then η_k is raised to γ η²_{k−1}
    /// if that exceeds 0.1, and to half of Newton's tolerance on ‖F‖ divided by ‖F_k‖. It is at most `most`.
    EisenstatWalker {
        /// η of the first step.
        first: f64,
        /// γ.
        gamma: f64,
        /// The largest η.
        most: f64,
    },
    /// The same η in every step.
    Constant(f64),
}

/// Smallest γ η²_{k−1} that counts as a lower bound on η_k.
const SAFEGUARD: f64 = 0.1;
/// Share of Newton's tolerance on ‖F‖ below which a linear solve need not reduce the residual.
const ENOUGH: f64 = 0.5;

impl Default for Forcing {
    /// Returns choice 2 of Eisenstat and Walker, with η = 0.1 in the first step, γ = 0.9 and η ≤ 0.9.
    fn default() -> Self {
        Forcing::EisenstatWalker { first: 0.1, gamma: 0.9, most: 0.9 }
    }
}

impl Forcing {
    /// Computes η of a step that starts with ‖F‖ = `norm`. `target` is Newton's tolerance on ‖F‖. `last` has
    /// ‖F‖ and η of the previous step.
    pub(super) fn eta(&self, norm: f64, target: f64, last: Option<(f64, f64)>) -> f64 {
        let (first, gamma, most) = match *self {
            Forcing::Constant(eta) => return eta,
            Forcing::EisenstatWalker { first, gamma, most } => (first, gamma, most),
        };
        let eta = last.map_or(first, |(norm_before, eta_before)| {
            let eta = gamma * (norm / norm_before).powi(2);
            let safe = gamma * eta_before * eta_before;
            if safe > SAFEGUARD { eta.max(safe) } else { eta }
        });
        eta.max(ENOUGH * target / norm).min(most)
    }

    /// Returns an error for an η outside (0, 1).
    pub(super) fn check(&self) -> Result<()> {
        let all = match *self {
            Forcing::Constant(eta) => [("tolerance of the linear solves", eta); 3],
            Forcing::EisenstatWalker { first, gamma, most } => [
                ("first forcing term", first),
                ("factor of the forcing term", gamma),
                ("largest forcing term", most),
            ],
        };
        match all.iter().find(|(_, value)| !(*value > 0.0 && *value < 1.0)) {
            None => Ok(()),
            Some((name, value)) => {
                Err(Error::invalid(format!("the {name} is {value}; it must be between 0 and 1")))
            }
        }
    }
}

impl FromStr for Forcing {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        if text.eq_ignore_ascii_case("ew") {
            return Ok(Self::default());
        }
        let forcing = text.parse().map(Forcing::Constant).map_err(|_| {
            Error::invalid(format!(
                "`{text}` is not a forcing term; expected ew (Eisenstat and Walker) or a number between 0 \
                 and 1"
            ))
        })?;
        forcing.check()?;
        Ok(forcing)
    }
}

impl Display for Forcing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Forcing::EisenstatWalker { .. } => f.write_str("ew"),
            Forcing::Constant(eta) => eta.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_those_of_eisenstat_and_walker() {
        let ew = Forcing::default();
        assert_eq!(ew.eta(1.0, 0.0, None), 0.1);
        // η is 0.9·0.5², or the lower bound 0.9·0.8² because that exceeds 0.1.
        assert!((ew.eta(0.5, 0.0, Some((1.0, 0.1))) - 0.225).abs() < 1e-15);
        assert!((ew.eta(0.01, 0.0, Some((1.0, 0.8))) - 0.576).abs() < 1e-15);
        assert!((ew.eta(0.01, 0.0, Some((1.0, 0.2))) - 9e-5).abs() < 1e-18);
        assert_eq!(ew.eta(2.0, 0.0, Some((1.0, 0.1))), 0.9);
        // The linear solve need not be more accurate than Newton's tolerance requires.
        assert_eq!(ew.eta(1e-3, 4e-4, Some((1.0, 0.1))), 0.2);
        assert_eq!(Forcing::Constant(1e-4).eta(0.5, 0.4, Some((1.0, 0.1))), 1e-4);
        for (text, words) in
            [("2", "between 0 and 1"), ("much", "not a forcing term"), ("NaN", "between 0 and 1")]
        {
            let error = text.parse::<Forcing>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
