//! The macro `options!`, which declares options, and the codecs that read and write their values.
//!
//! The command's flags, Python's keywords and the guide are made from [`TABLE`](super::TABLE).

use crate::method::MethodName;
use crate::names::{Named, whole_number};
use crate::{Error, Result};
use serde::Serializer;
use std::fmt::Display;
use std::str::FromStr;

/// The declaration of one option.
///
/// # Examples
/// ```
/// let option = krylith_core::options::info("restart").unwrap();
/// assert_eq!((option.metavar, option.old_names), ("M", &[][..]));
/// assert!(option.help.contains("GMRES"));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct OptionInfo {
    /// Name of the field, the key in text and in a `system.toml`, and Python's keyword. The flag has `-` for
    /// `_`.
    pub name: &'static str,
    /// Names of earlier versions, accepted with a warning.
    pub old_names: &'static [&'static str],
    /// Values that it takes.
    pub kind: Kind,
    /// The values in help texts, such as `TOL`.
    pub metavar: &'static str,
    /// Where it applies, and the heading under which help lists it.
    pub group: Group,
    /// The only method that uses it. FGMRES uses those of GMRES.
    pub method: Option<MethodName>,
    /// What it does, in sentences.
    pub help: &'static str,
    /// The value where none is given, in words.
    pub default: &'static str,
}

/// The values of an option.
///
/// # Examples
/// ```
/// use krylith_core::options::{Kind, info};
/// assert!(matches!(info("rtol").unwrap().kind, Kind::Real));
/// assert!(matches!(info("reductions").unwrap().kind, Kind::Choice(&["merged", "classical"])));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A whole number.
    Count,
    /// A floating-point number.
    Real,
    /// True or false.
    Flag,
    /// A number of bytes, perhaps with a unit.
    Bytes,
    /// One of these names.
    Choice(&'static [&'static str]),
    /// A whole number, or one of these names.
    CountOr(&'static [&'static str]),
    /// Other text.
    Text,
}

/// What an option belongs to.
///
/// # Examples
/// ```
/// use krylith_core::options::{Group, info};
/// assert_eq!(info("device").unwrap().group, Group::Machine);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// The matrix before the solve.
    System,
    /// Method and preconditioner.
    Method,
    /// Limits of every linear solve.
    Limit,
    /// When a solve stops. Newton's method sets these for its linear solves.
    Stop,
    /// Where and how a solve runs.
    Machine,
}

/// Reads and writes the values of one option.
pub(super) trait Codec<T> {
    /// Its values, for help texts and types.
    fn kind(&self) -> Kind;
    /// Reads a value.
    fn read(&self, text: &str) -> Result<T>;
    /// The text that [`read`](Self::read) takes.
    fn write(&self, value: &T) -> String;
    /// Puts a value into a file or a report.
    fn serialize<S: Serializer>(&self, value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.write(value))
    }
}

/// Whole numbers between two bounds.
pub(super) struct Count(pub usize, pub usize);

impl Codec<usize> for Count {
    fn kind(&self) -> Kind {
        Kind::Count
    }
    fn read(&self, text: &str) -> Result<usize> {
        whole_number(text, self.0, self.1)
    }
    fn write(&self, value: &usize) -> String {
        value.to_string()
    }
    fn serialize<S: Serializer>(&self, value: &usize, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(*value as u64)
    }
}

/// Floating-point numbers that this function reads.
pub(super) struct Real(pub fn(&str) -> Result<f64>);

impl Codec<f64> for Real {
    fn kind(&self) -> Kind {
        Kind::Real
    }
    fn read(&self, text: &str) -> Result<f64> {
        (self.0)(text)
    }
    fn write(&self, value: &f64) -> String {
        format!("{value:e}")
    }
    fn serialize<S: Serializer>(&self, value: &f64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(*value)
    }
}

/// Reads a positive number of seconds.
pub(super) fn seconds(text: &str) -> Result<f64> {
    let number = text.parse().ok().filter(|t: &f64| *t > 0.0 && t.is_finite());
    number.ok_or_else(|| Error::invalid("expected a positive number of seconds, such as 60"))
}

/// `true` or `false`.
pub(super) struct Flag;

impl Codec<bool> for Flag {
    fn kind(&self) -> Kind {
        Kind::Flag
    }
    fn read(&self, text: &str) -> Result<bool> {
        text.to_ascii_lowercase().parse().map_err(|_| Error::invalid("expected true or false"))
    }
    fn write(&self, value: &bool) -> String {
        value.to_string()
    }
    fn serialize<S: Serializer>(&self, value: &bool, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bool(*value)
    }
}

/// Bytes, as a plain number or with a unit of 1024.
pub(super) struct Bytes;

impl Codec<u64> for Bytes {
    fn kind(&self) -> Kind {
        Kind::Bytes
    }
    fn read(&self, text: &str) -> Result<u64> {
        let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(at);
        let shift = match unit {
            "" | "B" => 0,
            "K" | "KiB" => 10,
            "M" | "MiB" => 20,
            "G" | "GiB" => 30,
            "T" | "TiB" => 40,
            _ => 64,
        };
        let scaled = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(1u64.checked_shl(shift)?));
        scaled.ok_or_else(|| Error::invalid("expected a number of bytes, such as 8000000000 or 8GiB"))
    }
    fn write(&self, value: &u64) -> String {
        value.to_string()
    }
    fn serialize<S: Serializer>(&self, value: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(*value)
    }
}

/// A type with names.
pub(super) struct Choice;

impl<T: Named + FromStr<Err = Error> + Display> Codec<T> for Choice {
    fn kind(&self) -> Kind {
        Kind::Choice(T::NAMES)
    }
    fn read(&self, text: &str) -> Result<T> {
        text.parse()
    }
    fn write(&self, value: &T) -> String {
        value.to_string()
    }
}

/// A type whose values are whole numbers and these names.
pub(super) struct CountOr(pub &'static [&'static str]);

impl<T: FromStr<Err = Error> + Display> Codec<T> for CountOr {
    fn kind(&self) -> Kind {
        Kind::CountOr(self.0)
    }
    fn read(&self, text: &str) -> Result<T> {
        text.parse()
    }
    fn write(&self, value: &T) -> String {
        value.to_string()
    }
}

/// A type that is text.
pub(super) struct Text;

impl<T: FromStr<Err = Error> + Display> Codec<T> for Text {
    fn kind(&self) -> Kind {
        Kind::Text
    }
    fn read(&self, text: &str) -> Result<T> {
        text.parse()
    }
    fn write(&self, value: &T) -> String {
        value.to_string()
    }
}

/// Declares the options: a field each, and everything that treats all of them alike.
macro_rules! options {
    ($(#[$about:meta])* pub struct $Options:ident;
     $($name:ident $(was $old:literal)*: $type:ty = $codec:expr, $metavar:literal, $group:ident
        $(of $method:ident)?, default $default:literal, $help:literal;)*) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct $Options {
            $(
                #[doc = $help]
                #[doc = ""]
                #[doc = concat!("The default is ", $default, ".")]
                pub $name: Option<$type>,
            )*
            /// Old names that were used, with the new ones. A solve warns of them.
            #[doc(hidden)]
            pub renamed: Vec<(&'static str, &'static str)>,
        }

        /// All options, in the order in which help lists them.
        pub static TABLE: std::sync::LazyLock<[OptionInfo; [$(stringify!($name)),*].len()]> = std::sync::LazyLock::new(|| [$(
            OptionInfo {
                name: stringify!($name),
                old_names: &[$($old),*],
                kind: Codec::<$type>::kind(&$codec),
                metavar: $metavar,
                group: Group::$group,
                method: [$(MethodName::$method,)?].first().copied(),
                help: $help,
                default: $default,
            },
        )*]);

        impl $Options {
            /// Sets an option by its present name.
            fn put(&mut self, name: &str, value: &str) -> Result<()> {
                match name {
                    $(stringify!($name) => self.$name = Some(Codec::<$type>::read(&$codec, value)?),)*
                    _ => return unknown("option", name, &[$(stringify!($name)),*]),
                }
                Ok(())
            }

            /// Returns the options that are set, by name, with their values as text.
            fn given(&self) -> Vec<(&'static str, String)> {
                let mut given = Vec::new();
                $(
                    if let Some(value) = &self.$name {
                        given.push((stringify!($name), Codec::<$type>::write(&$codec, value)));
                    }
                )*
                given
            }

            /// Returns these options. An option that is not set here comes from `other`, if `takes` accepts
            /// the method that uses it.
            fn merged(&self, other: &Self, takes: impl Fn(Option<MethodName>) -> bool) -> Self {
                let mut renamed = self.renamed.clone();
                renamed.extend_from_slice(&other.renamed);
                Self {
                    $(
                        $name: self.$name.clone().or_else(|| {
                            other.$name.clone().filter(|_| takes([$(MethodName::$method,)?].first().copied()))
                        }),
                    )*
                    renamed,
                }
            }
        }

        impl serde::Serialize for $Options {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                /// A value and its codec.
                struct Value<'a, T, C>(&'a T, C);
                impl<T, C: Codec<T>> serde::Serialize for Value<'_, T, C> {
                    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                        self.1.serialize(self.0, to)
                    }
                }
                let mut map = to.serialize_map(None)?;
                $(
                    if let Some(value) = &self.$name {
                        serde::ser::SerializeMap::serialize_entry(&mut map, stringify!($name), &Value(value, $codec))?;
                    }
                )*
                serde::ser::SerializeMap::end(map)
            }
        }
    };
}

pub(super) use options;
