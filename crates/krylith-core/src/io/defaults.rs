//! Settings in `[solver]` of a `system.toml` beyond [`Options`]: the ordering of unknowns, the null space,
//! and output files.

use super::source::line_of;
use super::system::{SystemFile, is_toml};
use crate::names::meant;
use crate::{Error, Options, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

/// Defaults of `krylith solve` that are not solver [`Options`]. A program that reads a system must read and
/// apply them itself ([`Defaults::read`]).
///
/// # Examples
/// ```
/// use krylith_core::io::Defaults;
/// let folder = std::env::temp_dir().join(format!("krylith-defaults-{}", std::process::id()));
/// std::fs::create_dir_all(&folder).unwrap();
/// let path = folder.join("system.toml");
/// let text = "matrix = \"A.mtx\"\n[solver]\nrtol = 1e-8\nnullspace = \"constant\"\nout = \"x.npy\"\n";
/// std::fs::write(&path, text).unwrap();
/// let defaults = Defaults::read(&path)?;
/// assert_eq!(defaults.nullspace, Some("constant".into()));
/// assert_eq!(defaults.out, Some(folder.join("x.npy")), "beside the file");
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Defaults {
    /// Ordering of unknowns: `interleaved` or `segregated`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordering: Option<String>,
    /// Null space: `constant`, or a file of null vectors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nullspace: Option<PathBuf>,
    /// Near-null space: `rigid`, or a file of near-null vectors.
    #[serde(alias = "near-nullspace", skip_serializing_if = "Option::is_none")]
    pub near_nullspace: Option<PathBuf>,
    /// Output file for x.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out: Option<PathBuf>,
    /// Output file for the report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<PathBuf>,
    /// Output file for the plot of residuals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plot: Option<PathBuf>,
    /// Output file for the solution on its mesh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vtu: Option<PathBuf>,
    /// Number of threads: the one solver option that is needed before the system is read.
    #[serde(skip)]
    pub threads: Option<usize>,
}

/// The keys of [`Defaults`] as spelled in the file.
const KEYS: [&str; 8] =
    ["ordering", "nullspace", "near_nullspace", "near-nullspace", "out", "report", "plot", "vtu"];

impl Defaults {
    /// Reads the defaults of a `system.toml`, whose paths are relative to it; returns empty defaults for any
    /// other file.
    ///
    /// # Errors
    /// As [`read_system`](super::read_system), for the text of the file only.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if !is_toml(path) {
            return Ok(Self::default());
        }
        let SystemFile { solver, defaults, .. } = SystemFile::open(path)?;
        let Self { ordering, nullspace, near_nullspace, out, report, plot, vtu, .. } = defaults;
        let folder = path.parent().unwrap_or(Path::new(""));
        // Keywords and standard output are not files.
        let place = |name: Option<PathBuf>, word: &str| {
            name.map(|name| if name == Path::new(word) { name } else { folder.join(name) })
        };
        Ok(Self {
            ordering,
            nullspace: place(nullspace, "constant"),
            near_nullspace: place(near_nullspace, "rigid"),
            out: place(out, "-"),
            report: place(report, "-"),
            plot: place(plot, ""),
            vtu: place(vtu, ""),
            threads: solver.threads,
        })
    }

    /// Adds the defaults to the `[solver]` section of a file's table.
    pub(super) fn add_to(&self, file: &mut toml::Table) -> Result<(), toml::ser::Error> {
        let own = toml::Table::try_from(self)?;
        if !own.is_empty()
            && let Some(section) =
                file.entry("solver").or_insert_with(|| toml::Table::new().into()).as_table_mut()
        {
            section.extend(own);
        }
        Ok(())
    }
}

/// Parses a `system.toml`, whose section `[solver]` has keys of [`Options`] and of [`Defaults`].
pub(super) fn parse(path: &Path, text: &str) -> Result<SystemFile> {
    let wrong = |e: toml::de::Error| {
        let line = e.span().map_or(1, |span| line_of(text.as_bytes(), span.start));
        Error::parse(path, line, with_hint(e.message()))
    };
    let mut file = DeTable::parse(text).map_err(wrong)?;
    let mut own = DeTable::new();
    let section = file.get_mut().get_mut("solver");
    if let Some(section) = section {
        let span = section.span();
        if let DeValue::Table(section) = section.get_mut() {
            for key in KEYS {
                own.extend(section.remove_entry(key));
            }
        }
        let defaults = Defaults::deserialize(Deserializer::from(Spanned::new(span, own))).map_err(wrong)?;
        let file = SystemFile::deserialize(Deserializer::from(file)).map_err(wrong)?;
        return Ok(SystemFile { defaults, ..file });
    }
    SystemFile::deserialize(Deserializer::from(file)).map_err(wrong)
}

/// Extends an error about an unknown key with the key that was probably meant.
fn with_hint(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let Some(key) = message.strip_prefix("unknown field `").and_then(|_| quoted.next()) else {
        return message.into();
    };
    let mut known: Vec<&str> = quoted.collect();
    let mut all = message.to_string();
    if known.contains(&"method") {
        let more: Vec<String> =
            KEYS.iter().filter(|key| !key.contains('-')).map(|key| format!("`{key}`")).collect();
        all = format!("{message}, {}", more.join(", "));
        known.extend(KEYS);
    }
    match meant("option", key, &known) {
        Some(name) => format!("{all}; did you mean `{name}`?"),
        // A solver option outside its section.
        None if known.contains(&"matrix") && is_option(key) => {
            format!("{all}; `{key}` belongs in the section [solver]")
        }
        None => all,
    }
}

fn is_option(key: &str) -> bool {
    KEYS.contains(&key)
        || toml::from_str::<Options>(&format!("{key} = '?'"))
            .is_err_and(|e| !e.message().contains("unknown field"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_stand_beside_options() {
        let text = "matrix = 'A.mtx'\n[solver]\nrtol = 1e-3\nordering = 'segregated'\nnullspace = \
                    'constant'\nout = 'x.npy'\nreport = '-'\n";
        let file = SystemFile::parse("d/system.toml", text).unwrap();
        assert_eq!((file.solver.rtol, file.defaults.ordering.as_deref()), (Some(1e-3), Some("segregated")));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("system.toml");
        super::super::system::write(&path, &file).unwrap();
        assert_eq!(SystemFile::open(&path).unwrap(), file);
        let read = Defaults::read(&path).unwrap();
        assert_eq!(read.out, Some(dir.path().join("x.npy")));
        assert_eq!((read.nullspace, read.report), (Some("constant".into()), Some("-".into())));
        assert_eq!(Defaults::read(dir.path().join("A.mtx")).unwrap(), Defaults::default());
    }

    #[test]
    fn a_key_that_is_none_is_refused_with_its_line_and_the_one_that_was_meant() {
        for (text, words) in [
            (
                "matrix = 'A.mtx'\n[solver]\ntol = 1\n",
                &[":3:", "unknown field `tol`", "did you mean `rtol`?"][..],
            ),
            (
                "matrix = 'A.mtx'\n[solver]\nordring = 1\n",
                &[":3:", "`near_nullspace`", "did you mean `ordering`?"],
            ),
            ("matrx = 'A.mtx'\n", &[":1:", "did you mean `matrix`?"]),
            ("matrix = 'A.mtx'\nrtol = 1\n", &[":2:", "`rtol` belongs in the section [solver]"]),
            ("matrix = 'A.mtx'\n[solver]\nout = 1\n", &[":3:", "integer"]),
            ("matrix = 'A.mtx'\nsolver = 3\n", &[":2:"]),
        ] {
            let error = SystemFile::parse("s.toml", text).unwrap_err().to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{text}{error}");
        }
    }
}
