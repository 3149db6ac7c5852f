//! Options of Newton's method, as fields and as text.

use super::Forcing;
use crate::names::{tolerance, unknown, whole_number};
use crate::solver::Refresh;
use crate::{Error, Result};
use std::str::FromStr;

/// Stopping criteria of Newton's method, and the accuracy of its linear solves.
///
/// # Examples
/// ```
/// use krylith::newton::{Forcing, NewtonOptions};
/// let forcing = Forcing::Constant(1e-4);
/// let options = NewtonOptions { rtol: 1e-10, max_steps: 20, forcing, ..NewtonOptions::default() };
/// assert_eq!(options.atol, 0.0);
/// let newton = krylith::newton::Newton::new(options, &"precond=ildu:fill=1".parse()?)?; // for linear solves
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NewtonOptions {
    /// Relative tolerance: converged if ‖F(x)‖ ≤ rtol ‖F(x₀)‖.
    pub rtol: f64,
    /// Absolute tolerance: converged if ‖F(x)‖ ≤ atol.
    pub atol: f64,
    /// Maximum number of steps.
    pub max_steps: usize,
    /// The tolerance of each linear solve.
    pub forcing: Forcing,
    /// Treatment of the preconditioner when the Jacobian changes.
    pub refresh: Refresh,
}

impl Default for NewtonOptions {
    fn default() -> Self {
        Self { rtol: 1e-8, atol: 0.0, max_steps: 50, forcing: Forcing::default(), refresh: Refresh::Refresh }
    }
}

impl NewtonOptions {
    /// Returns an error for invalid numbers.
    pub(super) fn check(&self) -> Result<()> {
        for (name, value) in [("rtol", self.rtol), ("atol", self.atol)] {
            if !(value >= 0.0 && value.is_finite()) {
                return Err(Error::invalid(format!("Newton's {name} is {value}; it must be at least 0")));
            }
        }
        self.forcing.check()
    }
}

impl FromStr for NewtonOptions {
    type Err = Error;
    /// Parses words such as `rtol=1e-10 atol=0 max_steps=20 forcing=ew refresh=keep`. An option that is not
    /// given has its default.
    fn from_str(text: &str) -> Result<Self> {
        let mut options = Self::default();
        for word in text.split_whitespace() {
            let Some((key, value)) = word.split_once('=') else {
                return Err(Error::invalid(format!("`{word}` is not key=value")));
            };
            options.set(key, value).map_err(|e| Error::invalid(format!("{word}: {e}")))?;
        }
        options.check()?;
        Ok(options)
    }
}

impl NewtonOptions {
    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "rtol" => self.rtol = tolerance(value)?,
            "atol" => self.atol = tolerance(value)?,
            "max_steps" => self.max_steps = whole_number(value, 0, 1_000_000_000)?,
            "forcing" => self.forcing = value.parse()?,
            "refresh" => self.refresh = value.parse()?,
            _ => return unknown("key of Newton", key, &["rtol", "atol", "max_steps", "forcing", "refresh"]),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_sets_options_and_wrong_text_names_the_word() {
        let options: NewtonOptions = "rtol=1e-10 max_steps=7 forcing=1e-3 refresh=keep".parse().unwrap();
        assert_eq!((options.rtol, options.atol, options.max_steps), (1e-10, 0.0, 7));
        assert_eq!((options.forcing, options.refresh), (Forcing::Constant(1e-3), Refresh::Keep));
        assert_eq!("".parse::<NewtonOptions>().unwrap(), NewtonOptions::default());
        for (text, words) in [
            ("rtol", "`rtol` is not key=value"),
            ("rtol=-1", "rtol=-1: expected a number"),
            ("max_iters=3", "unknown key of Newton `max_iters`"),
            ("forcing=2", "between 0 and 1"),
        ] {
            let error = text.parse::<NewtonOptions>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
