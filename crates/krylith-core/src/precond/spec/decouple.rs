//! The decoupling of `cpr` by name: `quasi-impes`, `impes(NAME)`, `row-sums` or `none`.

use crate::names::{same, unknown};
use crate::{Error, Result};
use std::fmt::{self, Display};

/// Decoupling of the first field from the others, by combining the rows of a cell.
///
/// # Examples
/// ```
/// use krylith_core::precond::Decouple;
/// assert_eq!("row-sums".parse::<Decouple>()?, Decouple::RowSums);
/// assert_eq!("impes(acc)".parse::<Decouple>()?, Decouple::Impes("acc".into()));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Decouple {
    /// Quasi-IMPES: the row of the field minus D_ps D_ss⁻¹ times the other rows, with D the cell's diagonal
    /// block.
    #[default]
    QuasiImpes,
    /// True IMPES (Wallis 1983): the same, with D the cell's block of a matrix that the caller named. It has
    /// the derivatives of the accumulation terms, in the rows and columns of the system.
    Impes(String),
    /// The sum of all rows of a cell.
    RowSums,
    /// The row of the field alone.
    Off,
}

/// The names, with an example of a matrix.
const NAMES: [&str; 4] = ["quasi-impes", "impes(NAME)", "row-sums", "none"];

impl std::str::FromStr for Decouple {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let call = text.split_once('(').filter(|(name, _)| same(name.trim_end(), "impes"));
        if let Some(name) = call.and_then(|(_, rest)| rest.strip_suffix(')')) {
            let name = name.trim();
            return match is_matrix_name(name) {
                true => Ok(Self::Impes(name.into())),
                false => Err(Error::invalid(format!(
                    "decouple={text}: `{name}` is not the name of a matrix, such as acc"
                ))),
            };
        }
        match text {
            text if same(text, "quasi-impes") => Ok(Self::QuasiImpes),
            text if same(text, "row-sums") => Ok(Self::RowSums),
            text if same(text, "none") => Ok(Self::Off),
            text if same(text, "impes") => Err(Error::invalid(
                "decouple=impes needs the matrix of accumulation derivatives, by name: decouple=impes(acc)",
            )),
            _ => unknown("decouple", text, &NAMES),
        }
    }
}

impl Display for Decouple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QuasiImpes => f.pad("quasi-impes"),
            Self::Impes(name) => f.pad(&format!("impes({name})")),
            Self::RowSums => f.pad("row-sums"),
            Self::Off => f.pad("none"),
        }
    }
}

/// True for text that can name a matrix in the text form of a preconditioner.
pub(super) fn is_matrix_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::precond::PrecondSpec;

    #[test]
    fn names_are_read_as_printed() {
        for text in ["row-sums", "none", "impes(acc)"] {
            let text = format!("cpr(p: amg; decouple={text}) then ildu");
            assert_eq!(text.parse::<PrecondSpec>().unwrap().to_string(), text);
        }
        let plain: PrecondSpec = "cpr( p : amg ; decouple = Quasi_IMPES )".parse().unwrap();
        assert_eq!(plain.to_string(), "cpr(p: amg)");
        let spaced: PrecondSpec = "cpr(p: amg; decouple=impes ( acc ))".parse().unwrap();
        assert_eq!(spaced.to_string(), "cpr(p: amg; decouple=impes(acc))");
    }

    #[test]
    fn wrong_names_are_refused() {
        let refused = |text: &str| text.parse::<Decouple>().unwrap_err().to_string();
        assert!(refused("impes").contains("by name: decouple=impes(acc)"));
        assert!(refused("impes()").contains("`` is not the name of a matrix"));
        assert!(refused("impes(2a)").contains("`2a` is not the name of a matrix"));
        let unknown = refused("true-impes");
        assert!(NAMES.iter().all(|name| unknown.contains(name)), "{unknown}");
    }
}
