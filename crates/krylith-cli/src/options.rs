//! Values of options that only the command has; the options of a solve are [`krylith_core::Options`].

use crate::failure::{Failure, Result};
use clap::builder::{OsStringValueParser, TypedValueParser};
use krylith_core::matrix::MAX_BLOCK;
use krylith_core::names::same;
use krylith_core::options::whole_number;
use krylith_core::{Error, Options};
use std::path::PathBuf;
use std::str::FromStr;

/// A parsed value, or an error that says what is wrong with the text.
pub type Parsed<T> = krylith_core::Result<T>;

/// The numbering of the user's matrix and vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ordering {
    /// Node by node, the components of a node together.
    #[default]
    Interleaved,
    /// Field by field.
    Segregated,
}

krylith_core::names! { Ordering, "ordering": Interleaved => "interleaved", Segregated => "segregated" }

/// A right-hand side.
#[derive(Debug, Clone, PartialEq)]
pub enum Rhs {
    /// Ones.
    Ones,
    /// Zeros, for which x is zero.
    Zeros,
    /// Random numbers in (−1, 1), with a seed.
    Random(u64),
    /// The file of a vector.
    File(PathBuf),
}

impl FromStr for Rhs {
    type Err = Error;
    fn from_str(text: &str) -> Parsed<Self> {
        let (word, seed) = text.split_once(':').map_or((text, None), |(n, s)| (n, Some(s)));
        match (word.to_ascii_lowercase().as_str(), seed) {
            ("ones", None) => Ok(Rhs::Ones),
            ("zeros" | "zero" | "0", None) => Ok(Rhs::Zeros),
            ("random", None) => Ok(Rhs::Random(0)),
            ("random", Some(seed)) => {
                let number = seed.parse().map(Rhs::Random);
                number.map_err(|_| {
                    Error::invalid(format!("`{seed}` is not a seed; give an integer of at least 0"))
                })
            }
            _ => Ok(Rhs::File(text.into())),
        }
    }
}

/// Null vectors of a singular consistent system.
#[derive(Debug, Clone, PartialEq)]
pub enum Null {
    /// Constant vectors of the fields that the matrix maps to zero.
    Constant,
    /// Vectors from a file, one per column.
    File(PathBuf),
}

impl FromStr for Null {
    type Err = Error;
    fn from_str(text: &str) -> Parsed<Self> {
        Ok(if same(text, "constant") { Null::Constant } else { Null::File(text.into()) })
    }
}

/// Near-null vectors for coarse levels.
#[derive(Debug, Clone, PartialEq)]
pub enum NearNull {
    /// Rigid motions of nodes whose components are displacements.
    Rigid,
    /// Vectors from a file, one per column.
    File(PathBuf),
}

impl FromStr for NearNull {
    type Err = Error;
    fn from_str(text: &str) -> Parsed<Self> {
        Ok(if same(text, "rigid") { NearNull::Rigid } else { NearNull::File(text.into()) })
    }
}

impl From<PathBuf> for NearNull {
    fn from(path: PathBuf) -> Self {
        NearNull::File(path)
    }
}

/// Parses a word of the command line that may be a file name, which need not be Unicode.
pub fn file_or_word<T>() -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = Error> + From<PathBuf> + Clone + Send + Sync + 'static,
{
    OsStringValueParser::new().try_map(|text| match text.into_string() {
        Ok(word) => word.parse(),
        Err(name) => Ok(T::from(PathBuf::from(name))),
    })
}

impl From<PathBuf> for Rhs {
    fn from(path: PathBuf) -> Self {
        Rhs::File(path)
    }
}

impl From<PathBuf> for Null {
    fn from(path: PathBuf) -> Self {
        Null::File(path)
    }
}

/// Parses a block size, from 1 to the largest that the kernels support.
pub fn block_size(text: &str) -> Parsed<usize> {
    whole_number(text, 1, MAX_BLOCK)
}

/// Parses NAME=FILE.
pub fn named_file(text: &str) -> Parsed<(String, PathBuf)> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => Ok((name.into(), file.into())),
        _ => Err(Error::invalid("expected NAME=FILE, such as Mp=mass.mtx")),
    }
}

/// Parses a number of ranks; each rank is a process with its own device.
pub fn ranks(text: &str) -> Parsed<usize> {
    whole_number(text, 1, 1_000_000)
}

/// Parses a method with its options.
pub fn method(text: &str) -> Parsed<Options> {
    Options::one("method", text)
}

/// Parses the number of iterations before a restart.
pub fn restart(text: &str) -> Parsed<usize> {
    Ok(Options::one("restart", text)?.restart.unwrap_or_default())
}

/// Parses the iteration limit.
pub fn max_iters(text: &str) -> Parsed<usize> {
    Ok(Options::one("max_iters", text)?.max_iters.unwrap_or_default())
}

/// Combines the options of the command line with those of the file's `[solver]` section; the command line has
/// priority.
///
/// # Errors
/// An option belongs to another method than the one chosen, unless a method on the command line replaces the
/// file's; `place` names the file.
pub fn settle(given: &Options, file: &Options, place: &str) -> Result<Options> {
    given.or(file).settled().map_err(|e| match e {
        Error::Option { key, message } => {
            // An error that is not about one value, such as two that do not fit, is the command line's.
            let of_file = file.has(key) && !given.has(key);
            match of_file {
                false => Failure::usage(format!("--{} {message}", key.replace('_', "-"))),
                true => Failure::usage(format!("{place}: `solver.{key}` {message}")),
            }
        }
        e => e.into(),
    })
}

/// Returns random numbers in (−1, 1) by splitmix64, the same on every machine.
pub fn random(seed: u64, n: usize) -> Vec<f64> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    (0..n).map(|_| (next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn right_hand_sides() {
        assert_eq!("random:7".parse::<Rhs>().unwrap(), Rhs::Random(7));
        assert_eq!("b.npy".parse::<Rhs>().unwrap(), Rhs::File("b.npy".into()));
        assert!("random:x".parse::<Rhs>().is_err());
        assert_eq!(
            ["ZEROS", "Ones", "zero"].map(|w| w.parse::<Rhs>().unwrap()),
            [Rhs::Zeros, Rhs::Ones, Rhs::Zeros]
        );
    }

    #[test]
    fn an_option_of_another_method_is_refused_where_it_was_given() {
        let settled = |given: &str, file: &str| {
            settle(&given.parse().unwrap(), &file.parse().unwrap(), "s.toml").map_err(|f| f.message)
        };
        let error = settled("restart=5", "method=bicgstab").unwrap_err();
        assert!(error.contains("--restart applies only to method gmres"), "{error}");
        let error = settled("", "method=bicgstab restart=7").unwrap_err();
        assert!(error.contains("s.toml: `solver.restart` applies only to method gmres"), "{error}");
        assert_eq!(settled("method=gmres", "method=bicgstab restart=7").unwrap().restart, Some(7));
        assert_eq!(settled("rtol=1e-3", "rtol=1e-9 restart=7").unwrap().rtol, Some(1e-3));
    }
}
