//! The text form of direct factors: `lu`, or for example `lu:most=1000000`.

use super::whole_number;
use crate::{Error, Result};
use std::fmt;

/// Parameters of `lu`.
///
/// # Examples
/// ```
/// use krylith::precond::PrecondSpec;
/// use krylith_core::precond::LuSpec;
/// let spec: PrecondSpec = "lu:most=1000000".parse()?;
/// assert_eq!(spec, PrecondSpec::Lu(LuSpec { most: Some(1_000_000) }));
/// assert_eq!(spec.to_string(), "lu:most=1000000");
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LuSpec {
    /// Largest size of the factors, in numbers; the default depends on the free memory.
    pub most: Option<usize>,
}

impl LuSpec {
    pub(super) fn parse<'a>(parameters: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self> {
        let mut spec = Self::default();
        for (key, value) in parameters {
            match key {
                "most" => spec.most = Some(whole_number(value, 1, usize::MAX)?),
                _ => {
                    let hint = crate::names::did_you_mean("key", key, &["most"]);
                    return Err(Error::invalid(format!(
                        "unknown key of lu `{key}`; the known one is most{hint}"
                    )));
                }
            }
        }
        Ok(spec)
    }

    pub(super) fn spelt(self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.most {
            None => f.write_str("lu"),
            Some(most) => write!(f, "lu:most={most}"),
        }
    }
}
