//! The text form of direct factors: `lu`, or for example `lu:most=1000000,over=one`.

use super::whole_number;
use crate::names::unknown;
use crate::{Error, Result};
use std::fmt;

/// Parameters of `lu`.
///
/// # Examples
/// ```
/// use krylith::precond::PrecondSpec;
/// use krylith_core::precond::{LuOver, LuSpec};
/// let spec: PrecondSpec = "lu:most=1000000,over=one".parse()?;
/// assert_eq!(spec, PrecondSpec::Lu(LuSpec { most: Some(1_000_000), over: LuOver::One }));
/// assert_eq!(spec.to_string(), "lu:most=1000000,over=one");
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LuSpec {
    /// Largest size of the factors, in numbers; the default depends on the free memory.
    pub most: Option<usize>,
    /// The ranks that compute the factors of a distributed matrix.
    pub over: LuOver,
}

/// The ranks that compute the factors of a distributed matrix.
///
/// # Examples
/// ```
/// use krylith_core::precond::LuOver;
/// assert_eq!(LuOver::default(), LuOver::Auto);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LuOver {
    /// All ranks by MUMPS if it can be used, else one.
    #[default]
    Auto,
    /// All ranks, by MUMPS.
    Mumps,
    /// Rank 0, by Krylith's own factors.
    One,
}

/// The names of [`LuOver`].
const OVER: [(&str, LuOver); 3] = [("auto", LuOver::Auto), ("mumps", LuOver::Mumps), ("one", LuOver::One)];

impl LuSpec {
    pub(super) fn parse<'a>(parameters: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self> {
        let mut spec = Self::default();
        for (key, value) in parameters {
            match key {
                "most" => spec.most = Some(whole_number(value, 1, usize::MAX)?),
                "over" => {
                    spec.over = match OVER.iter().find(|(name, _)| *name == value) {
                        Some((_, over)) => *over,
                        None => return unknown("value of lu:over", value, &OVER.map(|(name, _)| name)),
                    }
                }
                _ => {
                    let hint = crate::names::did_you_mean("key", key, &["most", "over"]);
                    return Err(Error::invalid(format!(
                        "unknown key of lu `{key}`; the known ones are most, over{hint}"
                    )));
                }
            }
        }
        Ok(spec)
    }

    /// Returns the same factors, the same in every run.
    pub(super) fn in_fixed_order(self) -> Self {
        Self { over: if self.over == LuOver::Auto { LuOver::One } else { self.over }, ..self }
    }

    pub(super) fn spelt(self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("lu")?;
        let mut mark = ':';
        if let Some(most) = self.most {
            write!(f, "{mark}most={most}")?;
            mark = ',';
        }
        match OVER.iter().find(|(_, over)| *over == self.over) {
            Some((name, over)) if *over != LuOver::Auto => write!(f, "{mark}over={name}"),
            _ => Ok(()),
        }
    }
}
