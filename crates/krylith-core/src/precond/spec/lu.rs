//! The text form of direct factors: `lu`, or for example `lu:most=1000000,on=host`.

use super::whole_number;
use crate::names::unknown;
use crate::{Error, Result};
use std::fmt;

/// Parameters of `lu`.
///
/// # Examples
/// ```
/// use krylith::precond::PrecondSpec;
/// use krylith_core::precond::{LuOn, LuOver, LuSpec};
/// let spec: PrecondSpec = "lu:most=1000000,over=one".parse()?;
/// let (most, over, on) = (Some(1_000_000), LuOver::One, LuOn::Auto);
/// assert_eq!(spec, PrecondSpec::Lu(LuSpec { most, over, on }));
/// assert_eq!(spec.to_string(), "lu:most=1000000,over=one");
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LuSpec {
    /// Largest size of the factors, in numbers; the default depends on the free memory.
    pub most: Option<usize>,
    /// The ranks that compute the factors of a distributed matrix.
    pub over: LuOver,
    /// The processor that computes and applies the factors.
    pub on: LuOn,
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
    /// The GPU of rank 0 if the solve runs on GPUs and its factors hold; else all ranks by MUMPS if it can be
    /// used; else rank 0.
    #[default]
    Auto,
    /// All ranks, by MUMPS.
    Mumps,
    /// Rank 0: its GPU if the solve runs there, or its host by Krylith's own factors.
    One,
    /// All GPUs of one process, whose threads are the ranks.
    Gpus,
}

/// The processor that computes and applies direct factors.
///
/// # Examples
/// ```
/// use krylith_core::precond::LuOn;
/// assert_eq!(LuOn::default(), LuOn::Auto);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LuOn {
    /// A GPU by cuDSS if the solve runs there, cuDSS is found and its factors hold, else the host.
    #[default]
    Auto,
    /// The GPU, by cuDSS.
    Device,
    /// The host, by Krylith's own factors.
    Host,
}

/// The names of [`LuOver`] and [`LuOn`].
const OVER: [(&str, LuOver); 4] =
    [("auto", LuOver::Auto), ("mumps", LuOver::Mumps), ("one", LuOver::One), ("gpus", LuOver::Gpus)];
const ON: [(&str, LuOn); 3] = [("auto", LuOn::Auto), ("device", LuOn::Device), ("host", LuOn::Host)];

impl LuSpec {
    pub(super) fn parse<'a>(parameters: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self> {
        let mut spec = Self::default();
        for (key, value) in parameters {
            match key {
                "most" => spec.most = Some(whole_number(value, 1, usize::MAX)?),
                "over" => spec.over = named("value of lu:over", value, &OVER)?,
                "on" => spec.on = named("value of lu:on", value, &ON)?,
                _ => {
                    let hint = crate::names::did_you_mean("key", key, &["most", "over", "on"]);
                    return Err(Error::invalid(format!(
                        "unknown key of lu `{key}`; the known ones are most, over, on{hint}"
                    )));
                }
            }
        }
        Ok(spec)
    }

    /// Returns the same factors, the same in every run.
    pub(super) fn in_fixed_order(self) -> Self {
        let over = if self.over == LuOver::Auto { LuOver::One } else { self.over };
        let on = if self.on == LuOn::Auto { LuOn::Host } else { self.on };
        Self { over, on, ..self }
    }

    pub(super) fn spelt(self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("lu")?;
        let mut mark = ':';
        if let Some(most) = self.most {
            write!(f, "{mark}most={most}")?;
            mark = ',';
        }
        let over = OVER.iter().find(|(_, over)| *over == self.over && *over != LuOver::Auto);
        let on = ON.iter().find(|(_, on)| *on == self.on && *on != LuOn::Auto);
        let named = over.map(|(name, _)| ("over", name)).into_iter().chain(on.map(|(name, _)| ("on", name)));
        for (key, name) in named {
            write!(f, "{mark}{key}={name}")?;
            mark = ',';
        }
        Ok(())
    }
}

/// Returns the value of a name.
fn named<T: Copy>(what: &str, name: &str, all: &[(&str, T)]) -> Result<T> {
    match all.iter().find(|(known, _)| *known == name) {
        Some((_, value)) => Ok(*value),
        None => unknown(what, name, &all.iter().map(|(known, _)| *known).collect::<Vec<_>>()),
    }
}
