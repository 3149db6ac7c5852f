//! `NAME:SIZE[,key=value…]`: the text that names a generated problem.

use krylith_core::names::{did_you_mean, same};
use krylith_core::{Error, Result};

use crate::catalogue::{Problem, find};
use crate::tets::file;

/// The sizes of problems that are selected by a name.
const NAMES: [&str; 2] = ["NAME", "N|FILE"];

/// A parsed problem text: every key of the problem with its given value or default.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub problem: &'static Problem,
    /// One number or three, according to the problem; empty if the size is a name.
    pub size: Vec<usize>,
    /// The name given as size; empty if the size is numeric.
    pub label: String,
    /// Values in the catalogue's order, given or default.
    values: Vec<(&'static str, String)>,
}

impl Spec {
    /// Parses `text`.
    ///
    /// # Errors
    /// Returns an error for an unknown name or key (the text lists the known ones), for a key given twice or
    /// without a value, and for a size of the wrong form.
    pub fn parse(text: &str) -> Result<Self> {
        Self::parse_in(text, find)
    }

    /// Parses `text` as a problem of the catalogue that `find` searches.
    ///
    /// # Errors
    /// Returns the errors of [`parse`](Self::parse).
    pub fn parse_in(text: &str, find: impl FnOnce(&str) -> Result<&'static Problem>) -> Result<Self> {
        let text = text.trim();
        let mut parts = text.split(',');
        let head = parts.next().unwrap_or_default();
        let (name, size) = head.split_once(':').unwrap_or((head, ""));
        let problem = find(name)?;
        let wrong = |message: String| Error::invalid(format!("problem `{text}`: {message}"));

        let shape = problem.size;
        let named = NAMES.contains(&shape) || (shape.ends_with("|FILE") && file::is_named(size.trim()));
        let grid = shape.trim_end_matches("|FILE");
        let label = if named { size.trim().to_string() } else { String::new() };
        let size: Option<Vec<usize>> = match named {
            true => (!label.is_empty()).then(Vec::new),
            false => size.split(['x', 'X']).map(|n| n.trim().parse().ok()).collect(),
        };
        let size = size
            .filter(|size| named || size.len() == grid.split('x').count())
            .ok_or_else(|| wrong(format!("expected {name}:{shape}, such as `{}`", problem.example)))?;
        if size.iter().any(|&n| n < 2) {
            return Err(wrong("sizes count nodes and must be at least 2 in each direction".into()));
        }

        let mut values: Vec<_> = problem.keys.iter().map(|key| (key.name, key.default.to_string())).collect();
        let mut given = vec![false; values.len()];
        for part in parts {
            let switch = |key: &str| problem.keys.iter().any(|k| same(k.name, key) && k.default == "false");
            let Some((key, value)) =
                part.split_once('=').or_else(|| switch(part.trim()).then_some((part, "true")))
            else {
                return Err(wrong(format!("`{part}` is not key=value")));
            };
            let (key, value) = (key.trim(), value.trim());
            let Some(at) = values.iter().position(|(known, _)| same(known, key)) else {
                let known: Vec<_> = problem.keys.iter().map(|key| key.name).collect();
                let (all, hint) = (known.join(", "), did_you_mean("key", key, &known));
                return Err(wrong(format!("unknown key `{key}`; {name} knows {all}{hint}")));
            };
            if std::mem::replace(&mut given[at], true) {
                return Err(wrong(format!("`{key}` is given twice")));
            }
            values[at].1 = value.to_string();
        }
        Ok(Self { problem, size, label, values })
    }

    /// Returns the text of a key's value.
    pub fn text(&self, key: &str) -> &str {
        let found = self.values.iter().find(|(known, _)| *known == key);
        found.map_or("", |(_, value)| value)
    }

    /// Returns the three sizes of a problem on a grid.
    pub fn grid(&self) -> [usize; 3] {
        [self.size[0], self.size[1], self.size[2]]
    }

    /// Returns a positive finite number.
    pub fn positive(&self, key: &str) -> Result<f64> {
        let text = self.text(key);
        text.parse()
            .ok()
            .filter(|x: &f64| x.is_finite() && *x > 0.0)
            .ok_or_else(|| self.bad(key, "a positive number"))
    }

    /// Returns a positive number, given as a number or as a ratio such as 1/256.
    pub fn ratio(&self, key: &str) -> Result<f64> {
        let text = self.text(key);
        let (over, under) = text.split_once('/').unwrap_or((text, "1"));
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|x| x.is_finite() && *x > 0.0);
        number(over)
            .zip(number(under))
            .map(|(over, under)| over / under)
            .ok_or_else(|| self.bad(key, "a positive number or a ratio such as 1/256"))
    }

    /// Returns a finite number of at least 0.
    pub fn nonnegative(&self, key: &str) -> Result<f64> {
        let text = self.text(key);
        text.parse()
            .ok()
            .filter(|x: &f64| x.is_finite() && *x >= 0.0)
            .ok_or_else(|| self.bad(key, "a number of at least 0"))
    }

    /// Returns a number in [0, 1).
    pub fn fraction(&self, key: &str) -> Result<f64> {
        let text = self.text(key);
        text.parse()
            .ok()
            .filter(|x: &f64| (0.0..1.0).contains(x))
            .ok_or_else(|| self.bad(key, "a number of at least 0 and below 1"))
    }

    /// Returns a whole number within `range`.
    pub fn whole(&self, key: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64> {
        let text = self.text(key);
        text.parse().ok().filter(|n| range.contains(n)).ok_or_else(|| {
            self.bad(key, &format!("a whole number from {} to {}", range.start(), range.end()))
        })
    }

    /// Returns the index of the value in `known`.
    pub fn choice(&self, key: &str, known: &[&str]) -> Result<usize> {
        let text = self.text(key);
        known.iter().position(|k| same(k, text)).ok_or_else(|| self.bad(key, &known.join(" or ")))
    }

    /// Sets a default that depends on other values, for [`full`](Self::full).
    pub fn settle(&mut self, key: &str, value: String) {
        if let Some(entry) = self.values.iter_mut().find(|(known, _)| *known == key) {
            entry.1 = value;
        }
    }

    /// Removes keys that do not apply, for [`full`](Self::full).
    pub fn omit(&mut self, keys: &[&str]) {
        self.values.retain(|(known, _)| !keys.contains(known));
    }

    /// Returns the text with every key, defaults filled in; it generates the same problem.
    pub fn full(&self) -> String {
        let size: Vec<_> = self.size.iter().map(ToString::to_string).collect();
        let keys: String = self.values.iter().map(|(key, value)| format!(",{key}={value}")).collect();
        format!("{}:{}{}{keys}", self.problem.name, size.join("x"), self.label)
    }

    /// Returns the error for a value that could not be parsed.
    pub fn wrong(&self, key: &str, why: &Error) -> Error {
        Error::invalid(format!("problem {}: {key}: {why}", self.problem.name))
    }

    /// Returns the error for a value out of range.
    pub fn bad(&self, key: &str, expected: &str) -> Error {
        let (name, text) = (self.problem.name, self.text(key));
        Error::invalid(format!("problem {name}: {key}={text}: expected {expected}"))
    }
}
