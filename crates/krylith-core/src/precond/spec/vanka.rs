//! The text form of patches around constraints, such as `vanka:kind=full,field=p,precision=f32`.

use super::super::VankaKind;
use crate::names::{named, unknown, whole_number};
use crate::space::Precision;
use crate::{Error, Result};
use std::fmt;

/// Parameters of `vanka`.
///
/// # Examples
/// ```
/// use krylith::precond::PrecondSpec;
/// use krylith_core::precond::{VankaKind, VankaSpec};
/// let spec: PrecondSpec = "vanka:kind=full,field=p".parse()?;
/// let vanka = VankaSpec { kind: VankaKind::Full, field: Some("p".into()), ..VankaSpec::default() };
/// assert_eq!(spec, PrecondSpec::Vanka(vanka));
/// assert_eq!(spec.to_string(), "vanka:kind=full,field=p");
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VankaSpec {
    /// The local systems.
    pub kind: VankaKind,
    /// The field whose rows are the constraints; by default the diagonal decides.
    pub field: Option<String>,
    /// ω, by which the result is multiplied; the default depends on the kind.
    pub damping: Option<f64>,
    /// Storage of the local inverses; by default that of the solve.
    pub precision: Option<Precision>,
    /// Largest number of levels of a V-cycle that local systems smooth; by default there is one.
    pub levels: Option<usize>,
    /// Smoothing steps before a coarse correction, and after it.
    pub sweeps: Option<usize>,
}

const KEYS: [&str; 6] = ["kind", "field", "damping", "precision", "levels", "sweeps"];

/// Largest numbers of levels and sweeps. Higher numbers are a mistake.
const MOST: usize = 1000;

impl VankaSpec {
    pub(super) fn read(parameters: Vec<(&str, &str)>) -> Result<Self> {
        let mut vanka = Self::default();
        for (key, value) in parameters {
            vanka.set(key, value).map_err(|e| Error::invalid(format!("vanka:{key}={value}: {e}")))?;
        }
        match vanka.sweeps {
            Some(sweeps) if !vanka.has_levels() => Err(Error::invalid(format!(
                "vanka:sweeps={sweeps}: only levels have sweeps; give levels too, such as levels=20, or omit sweeps"
            ))),
            _ => Ok(vanka),
        }
    }

    /// Returns true if there are coarse levels.
    pub(crate) fn has_levels(&self) -> bool {
        self.levels.is_some_and(|levels| levels > 1)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "kind" => self.kind = named("kind", value, &VankaKind::ALL, VankaKind::name)?,
            "field" if value.is_empty() => return Err(Error::invalid("expected the name of a field")),
            "field" => self.field = Some(value.into()),
            "damping" => {
                let damping = value.parse().ok().filter(|w: &f64| *w > 0.0 && w.is_finite());
                let expected = || Error::invalid("expected a positive number, such as 0.7");
                self.damping = Some(damping.ok_or_else(expected)?);
            }
            "precision" => self.precision = Some(value.parse()?),
            "levels" => self.levels = Some(whole_number(value, 1, MOST)?),
            "sweeps" => self.sweeps = Some(whole_number(value, 1, MOST)?),
            _ => return unknown("key of vanka", key, &KEYS),
        }
        Ok(())
    }

    /// Returns ω. Of 0.4, 0.6, 0.8 and 1 the defaults need the fewest iterations of GMRES where patches
    /// smooth before and after an exact coarse correction (P2–P1 Stokes, 8³ cells). Alone, patches need the
    /// same iterations with every ω.
    pub(crate) fn damping(&self) -> f64 {
        self.damping.unwrap_or(match self.kind {
            VankaKind::Diagonal => 0.6,
            VankaKind::Full => 0.8,
        })
    }

    /// Prints the text form, without values that are defaults.
    pub(super) fn spelt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut keys = Vec::new();
        if self.kind != VankaKind::default() {
            keys.push(format!("kind={}", self.kind.name()));
        }
        keys.extend(self.field.iter().map(|field| format!("field={field}")));
        keys.extend(self.damping.map(|damping| format!("damping={damping}")));
        keys.extend(self.precision.map(|precision| format!("precision={precision}")));
        keys.extend(self.levels.map(|levels| format!("levels={levels}")));
        keys.extend(self.sweeps.map(|sweeps| format!("sweeps={sweeps}")));
        let colon = if keys.is_empty() { "" } else { ":" };
        write!(f, "vanka{colon}{}", keys.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::super::PrecondSpec;

    #[test]
    fn vanka_is_read_and_written() {
        for text in [
            "vanka",
            "vanka:kind=full,field=p,damping=0.7,precision=f32,levels=9,sweeps=1",
            "vanka then vanka:field=q",
        ] {
            assert_eq!(text.parse::<PrecondSpec>().unwrap().to_string(), text);
        }
        assert_eq!("vanka:kind=diagonal".parse::<PrecondSpec>().unwrap().to_string(), "vanka");
        for (text, words) in [
            ("vanka:kind=dense", "unknown kind `dense`; the known ones are diagonal, full"),
            ("vanka:damping=0", "vanka:damping=0: expected a positive number"),
            ("vanka:levels=0", "vanka:levels=0: expected a whole number from 1"),
            ("vanka:sweeps=2", "vanka:sweeps=2: only levels have sweeps; give levels too"),
            ("vanka:field=", "expected the name of a field"),
            ("vanka:precision=f16", "vanka:precision=f16"),
            ("vanka:omega=1", "unknown key of vanka `omega`; the known ones are kind, field, damping"),
        ] {
            let error = text.parse::<PrecondSpec>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
