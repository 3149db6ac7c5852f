//! `NAME:SIZE[,key=value…]`: the text that names a generated problem.

use krylith_core::names::{did_you_mean, same};
use krylith_core::{Error, Result};

use crate::catalogue::{Problem, find};

/// The size of a problem that is called by a name.
const NAME: &str = "NAME";

/// A problem's text, taken apart: every key of the problem with the value given or its default.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub problem: &'static Problem,
    /// One number or three, as the problem's size has; none where it is a name.
    pub size: Vec<usize>,
    /// What stands for the size where that is a name, and else nothing.
    pub label: String,
    /// In the catalogue's order; given, or the default.
    values: Vec<(&'static str, String)>,
}

impl Spec {
    /// Takes `text` apart.
    ///
    /// # Errors
    /// An unknown name or key (the known ones are listed), a key given twice or without a value, a size that does
    /// not read as the problem's.
    pub fn parse(text: &str) -> Result<Self> {
        Self::parse_in(text, find)
    }

    /// Takes `text` apart, a problem of the catalogue in which `find` looks.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_in(text: &str, find: impl FnOnce(&str) -> Result<&'static Problem>) -> Result<Self> {
        let text = text.trim();
        let mut parts = text.split(',');
        let head = parts.next().unwrap_or_default();
        let (name, size) = head.split_once(':').unwrap_or((head, ""));
        let problem = find(name)?;
        let wrong = |message: String| Error::invalid(format!("problem `{text}`: {message}"));

        let shape = problem.size;
        let label = if shape == NAME { size.trim().to_string() } else { String::new() };
        let size: Option<Vec<usize>> = match shape {
            NAME => (!label.is_empty()).then(Vec::new),
            _ => size.split(['x', 'X']).map(|n| n.trim().parse().ok()).collect(),
        };
        let size = size
            .filter(|size| shape == NAME || size.len() == shape.split('x').count())
            .ok_or_else(|| wrong(format!("expected {name}:{shape}, such as `{}`", problem.example)))?;
        if size.iter().any(|&n| n < 2) {
            return Err(wrong("sizes count nodes and must be at least 2 each way".into()));
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

    /// The text of a key's value.
    pub fn text(&self, key: &str) -> &str {
        let found = self.values.iter().find(|(known, _)| *known == key);
        found.map_or("", |(_, value)| value)
    }

    /// The three sizes of a problem on a grid.
    pub fn grid(&self) -> [usize; 3] {
        [self.size[0], self.size[1], self.size[2]]
    }

    /// A number, positive and finite.
    pub fn positive(&self, key: &str) -> Result<f64> {
        let text = self.text(key);
        text.parse()
            .ok()
            .filter(|x: &f64| x.is_finite() && *x > 0.0)
            .ok_or_else(|| self.bad(key, "a positive number"))
    }

    /// A positive number, or one over another, such as 1/256.
    pub fn ratio(&self, key: &str) -> Result<f64> {
        let text = self.text(key);
        let (over, under) = text.split_once('/').unwrap_or((text, "1"));
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|x| x.is_finite() && *x > 0.0);
        number(over)
            .zip(number(under))
            .map(|(over, under)| over / under)
            .ok_or_else(|| self.bad(key, "a positive number or a ratio such as 1/256"))
    }

    /// A number of at least 0, finite.
    pub fn nonnegative(&self, key: &str) -> Result<f64> {
        let text = self.text(key);
        text.parse()
            .ok()
            .filter(|x: &f64| x.is_finite() && *x >= 0.0)
            .ok_or_else(|| self.bad(key, "a number of at least 0"))
    }

    /// A number in [0, 1).
    pub fn fraction(&self, key: &str) -> Result<f64> {
        let text = self.text(key);
        text.parse()
            .ok()
            .filter(|x: &f64| (0.0..1.0).contains(x))
            .ok_or_else(|| self.bad(key, "a number of at least 0 and below 1"))
    }

    /// A whole number within `range`.
    pub fn whole(&self, key: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64> {
        let text = self.text(key);
        text.parse().ok().filter(|n| range.contains(n)).ok_or_else(|| {
            self.bad(key, &format!("a whole number from {} to {}", range.start(), range.end()))
        })
    }

    /// One of `known`, by its place.
    pub fn choice(&self, key: &str, known: &[&str]) -> Result<usize> {
        let text = self.text(key);
        known.iter().position(|k| same(k, text)).ok_or_else(|| self.bad(key, &known.join(" or ")))
    }

    /// Replaces a default that depends on the rest, for [`full`](Self::full).
    pub fn settle(&mut self, key: &str, value: String) {
        if let Some(entry) = self.values.iter_mut().find(|(known, _)| *known == key) {
            entry.1 = value;
        }
    }

    /// The text with every key, defaults filled in; it generates the same problem.
    pub fn full(&self) -> String {
        let size: Vec<_> = self.size.iter().map(ToString::to_string).collect();
        let keys: String = self.values.iter().map(|(key, value)| format!(",{key}={value}")).collect();
        format!("{}:{}{}{keys}", self.problem.name, size.join("x"), self.label)
    }

    /// The error for a value that does not do.
    pub fn bad(&self, key: &str, expected: &str) -> Error {
        let (name, text) = (self.problem.name, self.text(key));
        Error::invalid(format!("problem {name}: {key}={text}: expected {expected}"))
    }
}
