//! The text form of restricted additive Schwarz, such as
//! `ras:overlap=1,parts=8,sub=ilu,fill=1,order=rcm` and
//! `ras:factor=random,eta=5,solve=random,gamma=5,fdp=16,deterministic`.

use super::super::{SchwarzFactor, SchwarzOrder, TriangularSolve};
use super::MOST_FILL;
use crate::names::{named, unknown, whole_number};
use crate::partition::{SubdomainCut, SubdomainSpec};
use crate::{Error, Result};

/// Parameters of `ras`.
///
/// # Examples
/// ```
/// use krylith::precond::PrecondSpec;
/// use krylith_core::precond::{RasSpec, TriangularSolve};
/// let spec: PrecondSpec = "ras:overlap=2,fill=1,solve=jacobi,gamma=8".parse()?;
/// let solve = Some(TriangularSolve::Jacobi { sweeps: 8 });
/// let ras = RasSpec { overlap: 2, fill: 1, solve, ..RasSpec::default() };
/// assert_eq!(spec, PrecondSpec::Ras(ras));
/// assert_eq!(spec.to_string(), "ras:overlap=2,fill=1,solve=jacobi,gamma=8");
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RasSpec {
    /// Number of layers of overlap.
    pub overlap: usize,
    /// Number of subdomains of the whole system; by default one per rank.
    pub parts: Option<usize>,
    /// Factors of a subdomain.
    pub sub: RasSub,
    /// Level of fill of incomplete factors.
    pub fill: usize,
    /// Order of rows within a subdomain.
    pub order: SchwarzOrder,
    /// Method of computing the factors, with η.
    pub factor: SchwarzFactor,
    /// Method of the triangular solves, with γ. By default the device estimates whether substitution or
    /// randomized sweeps are faster. It uses substitution if the results of the sweeps differ too much.
    pub solve: Option<TriangularSolve>,
    /// Number of consecutive rows that one warp processes in a sweep.
    pub rows: usize,
    /// True for sweeps in a fixed order.
    pub deterministic: bool,
}

/// The factors of a subdomain.
///
/// # Examples
/// ```
/// use krylith_core::precond::RasSub;
/// assert_eq!(RasSub::default().name(), "ilu");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RasSub {
    /// Incomplete factors.
    #[default]
    Ilu,
    /// Direct factors.
    Lu,
}

impl RasSub {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Ilu, Self::Lu];

    /// Returns its name in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ilu => "ilu",
            Self::Lu => "lu",
        }
    }
}

/// Defaults of η and γ.
const SWEEPS: usize = 5;
/// Default number of rows of a warp. With 8 and five sweeps, the ventricle problem (200,000 tetrahedra, on an
/// H200) does not converge. With 16 it takes a third more iterations than with exact solves.
const ROWS: usize = 16;
/// Largest numbers of layers, sweeps and rows of a warp. Higher numbers are a mistake.
const MOST_OVERLAP: usize = 100;
const MOST_SWEEPS: usize = 100_000;
const MOST_ROWS: usize = 1 << 20;

const KEYS: [&str; 11] =
    ["overlap", "parts", "sub", "fill", "order", "factor", "eta", "solve", "gamma", "fdp", "deterministic"];

impl Default for RasSpec {
    fn default() -> Self {
        Self {
            overlap: 1,
            parts: None,
            sub: RasSub::Ilu,
            fill: 0,
            order: SchwarzOrder::Natural,
            // On an H200, exact factors are faster than five sweeps for 3-D systems. For 2-D systems they are
            // half as fast, but there triangular solves take most of the time.
            factor: SchwarzFactor::Exact,
            solve: None,
            rows: ROWS,
            deterministic: false,
        }
    }
}

impl RasSpec {
    pub(super) fn read(parameters: Vec<(&str, &str)>) -> Result<Self> {
        let mut ras = Self::default();
        let of_ilu =
            parameters.iter().find(|(key, _)| !["overlap", "parts", "sub", "deterministic"].contains(key));
        if let Some((key, value)) = of_ilu.filter(|_| parameters.contains(&("sub", "lu"))) {
            return Err(Error::invalid(format!("ras:{key}={value} is for sub=ilu; sub=lu has no such key")));
        }
        // `eta` and `gamma` belong to the named methods, which may come before or after them.
        let (mut eta, mut gamma, mut named, mut open) = (None, None, false, true);
        for (key, value) in parameters {
            named |= key == "factor";
            open &= key != "solve";
            let read = match key {
                "eta" => whole_number(value, 1, MOST_SWEEPS).map(|sweeps| eta = Some(sweeps)),
                "gamma" => whole_number(value, 1, MOST_SWEEPS).map(|sweeps| gamma = Some(sweeps)),
                _ => ras.set(key, value),
            };
            read.map_err(|e| Error::invalid(format!("ras:{key}={value}: {e}")))?;
        }
        match (&mut ras.factor, eta) {
            (SchwarzFactor::Random { sweeps }, Some(eta)) => *sweeps = eta,
            (factor, Some(sweeps)) if !named => *factor = SchwarzFactor::Random { sweeps },
            (SchwarzFactor::Exact, Some(eta)) => {
                return Err(Error::invalid(format!("ras:eta={eta}: factor=exact has no sweeps; omit eta")));
            }
            _ => {}
        }
        match (&mut ras.solve, gamma) {
            (Some(TriangularSolve::Jacobi { sweeps } | TriangularSolve::Random { sweeps }), Some(gamma)) => {
                *sweeps = gamma;
            }
            (solve @ None, Some(sweeps)) if open => *solve = Some(TriangularSolve::Random { sweeps }),
            (solve, Some(gamma)) => {
                let name = solve_name(*solve);
                return Err(Error::invalid(format!(
                    "ras:gamma={gamma}: solve={name} has no sweeps; omit gamma"
                )));
            }
            _ => {}
        }
        Ok(ras)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let sweeps = SWEEPS;
        match key {
            "overlap" => self.overlap = whole_number(value, 0, MOST_OVERLAP)?,
            "parts" => self.parts = Some(whole_number(value, 1, u32::MAX as usize - 1)?),
            "sub" => self.sub = named("subdomain solver", value, &RasSub::ALL, RasSub::name)?,
            "fill" => self.fill = whole_number(value, 0, MOST_FILL)?,
            "order" => self.order = named("order", value, &SchwarzOrder::ALL, SchwarzOrder::name)?,
            "factor" => {
                let all = [SchwarzFactor::Random { sweeps }, SchwarzFactor::Exact];
                self.factor = named("factor", value, &all, factor_name)?;
            }
            "solve" => {
                let random = Some(TriangularSolve::Random { sweeps });
                let all =
                    [None, random, Some(TriangularSolve::Jacobi { sweeps }), Some(TriangularSolve::Exact)];
                self.solve = named("solve", value, &all, solve_name)?;
            }
            "fdp" => self.rows = whole_number(value, 1, MOST_ROWS)?,
            "deterministic" => {
                self.deterministic = match value {
                    "yes" => true,
                    "no" => false,
                    _ => return Err(Error::invalid("expected yes or no")),
                }
            }
            _ => return unknown("key of ras", key, &KEYS),
        }
        Ok(())
    }

    /// Prints the text form, without values that are defaults.
    pub(super) fn spelt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let default = Self::default();
        let mut keys = Vec::new();
        let mut add = |differs: bool, text: String| {
            if differs {
                keys.push(text);
            }
        };
        add(self.overlap != default.overlap, format!("overlap={}", self.overlap));
        add(self.parts.is_some(), format!("parts={}", self.parts.unwrap_or_default()));
        add(self.sub != default.sub, format!("sub={}", self.sub.name()));
        add(self.fill != default.fill, format!("fill={}", self.fill));
        add(self.order != default.order, format!("order={}", self.order.name()));
        match self.factor {
            SchwarzFactor::Exact => {}
            SchwarzFactor::Random { sweeps: SWEEPS } => add(true, "factor=random".into()),
            SchwarzFactor::Random { sweeps } => add(true, format!("eta={sweeps}")),
        }
        match self.solve {
            Some(TriangularSolve::Random { sweeps }) if sweeps != SWEEPS => {}
            solve => add(solve.is_some(), format!("solve={}", solve_name(solve))),
        }
        if let Some(TriangularSolve::Jacobi { sweeps } | TriangularSolve::Random { sweeps }) = self.solve {
            add(sweeps != SWEEPS, format!("gamma={sweeps}"));
        }
        add(self.rows != default.rows, format!("fdp={}", self.rows));
        add(self.deterministic, "deterministic".into());
        let colon = if keys.is_empty() { "" } else { ":" };
        write!(f, "ras{colon}{}", keys.join(","))
    }

    /// Returns true if solves are, or may be, randomized sweeps without a fixed order.
    pub fn varies(&self) -> bool {
        !self.deterministic
            && self.sub == RasSub::Ilu
            && matches!(self.solve, None | Some(TriangularSolve::Random { .. }))
    }

    /// Returns the sweeps that a device compares with substitution if no method of solving is given.
    pub(crate) fn sweeps() -> TriangularSolve {
        TriangularSolve::Random { sweeps: SWEEPS }
    }

    /// Returns the subdomains into which the whole system is cut; `None` if each rank is one subdomain.
    pub fn subdomains(&self) -> Option<SubdomainSpec> {
        self.parts.map(|parts| SubdomainSpec { cut: SubdomainCut::Parts(parts), rows: usize::MAX })
    }
}

/// Returns the name of a method of computing factors.
pub(crate) fn factor_name(factor: SchwarzFactor) -> &'static str {
    match factor {
        SchwarzFactor::Exact => "exact",
        SchwarzFactor::Random { .. } => "random",
    }
}

/// Returns the name of a method of solving.
pub(crate) fn solve_name(solve: Option<TriangularSolve>) -> &'static str {
    match solve {
        None => "auto",
        Some(TriangularSolve::Exact) => "exact",
        Some(TriangularSolve::Jacobi { .. }) => "jacobi",
        Some(TriangularSolve::Random { .. }) => "random",
    }
}

#[cfg(test)]
mod tests {
    use super::super::PrecondSpec;

    #[test]
    fn ras_is_read_and_written() {
        for text in [
            "ras",
            "ras:overlap=0,parts=8,fill=2,order=rcm,eta=8,gamma=10,fdp=32,deterministic",
            "ras:factor=random,solve=exact",
            "ras:solve=jacobi,gamma=8+jacobi",
            "ras:overlap=0,parts=8,sub=lu",
        ] {
            assert_eq!(text.parse::<PrecondSpec>().unwrap().to_string(), text);
        }
        let long = "ras:overlap=1,parts=8,sub=ilu,fill=1,order=natural,factor=random,eta=5,solve=random,gamma=5,fdp=16";
        assert_eq!(
            long.parse::<PrecondSpec>().unwrap().to_string(),
            "ras:parts=8,fill=1,factor=random,solve=random"
        );
        assert_eq!("ras:solve=auto".parse::<PrecondSpec>().unwrap().to_string(), "ras");
        assert_eq!("ras:factor=exact".parse::<PrecondSpec>().unwrap().to_string(), "ras");
        let fixed = "jacobi+ras:gamma=3".parse::<PrecondSpec>().unwrap().in_fixed_order();
        assert_eq!(fixed.to_string(), "jacobi+ras:gamma=3,deterministic");
        assert_eq!("ras:deterministic=no".parse::<PrecondSpec>().unwrap().to_string(), "ras");
        for (text, words) in [
            ("ras:overlap=-1", "ras:overlap=-1: expected a whole number from 0 to 100"),
            ("ras:parts=0", "ras:parts=0: expected a whole number from 1"),
            ("ras:sub=lu,fill=1", "ras:fill=1 is for sub=ilu"),
            ("ras:sub=qr", "unknown subdomain solver `qr`; the known ones are ilu, lu"),
            ("ras:order=level", "unknown order `level`; the known ones are natural, rcm"),
            ("ras:factor=fast", "unknown factor `fast`; the known ones are random, exact"),
            ("ras:solve=fast", "unknown solve `fast`; the known ones are auto, random, jacobi, exact"),
            ("ras:eta=0", "ras:eta=0: expected a whole number from 1"),
            ("ras:factor=exact,eta=3", "ras:eta=3: factor=exact has no sweeps"),
            ("ras:gamma=3,solve=exact", "ras:gamma=3: solve=exact has no sweeps"),
            ("ras:gamma=3,solve=auto", "ras:gamma=3: solve=auto has no sweeps"),
            ("ras:deterministic=1", "expected yes or no"),
            ("ras:rows=3", "unknown key of ras `rows`; the known ones are overlap, parts, sub"),
            ("ras:overlap", "`overlap` in `ras:overlap` is not key=value"),
        ] {
            let error = text.parse::<PrecondSpec>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
