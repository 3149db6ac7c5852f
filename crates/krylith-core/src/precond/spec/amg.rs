//! The text form of algebraic multigrid, as `amg` and as `coarse`, such as
//! `amg:cycle=k,coarsen=aggregation,strength=0.1,truncate=4,aggressive=1` and
//! `amg:smoother=chebyshev,degree=2,coarsest=400,levels=25,precision=f32`.

use super::super::{Border, CoarsenKind, Coarsening, Cycle, MultilevelOptions, NearNull, Smoothing};
use super::IlduSpec;
use crate::names::{named, unknown, whole_number};
use crate::partition::SubdomainSpec;
use crate::space::{Precision, PrecondPrecision};
use crate::{Error, Result};

/// Parameters of `amg`, and of `coarse`, which does not smooth on the finest level.
///
/// # Examples
/// ```
/// use krylith::precond::PrecondSpec;
/// use krylith_core::precond::{AmgSpec, Cycle};
/// let spec: PrecondSpec = "amg:cycle=w,truncate=5".parse()?;
/// let amg = AmgSpec { cycle: Some(Cycle::W), truncate: Some(5), ..AmgSpec::default() };
/// assert_eq!(spec, PrecondSpec::Amg(amg));
/// assert_eq!(spec.to_string(), "amg:cycle=w,truncate=5");
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AmgSpec {
    /// The cycle. The default is K for unsmoothed aggregation, W for smoothed aggregation in a large system,
    /// and V otherwise.
    pub cycle: Option<Cycle>,
    /// Method of coarsening. The default is classical for nodes of one unknown, and where neighbours couple
    /// different components, as in elasticity. It is smoothed aggregation for other nodes, and with near-null
    /// vectors.
    pub coarsen: Option<CoarsenKind>,
    /// Threshold θ of strong couplings; the default depends on the method of coarsening.
    pub strength: Option<f64>,
    /// Largest number of weights in a row of P.
    pub truncate: Option<usize>,
    /// Number of levels with aggressive coarsening; the default depends on the method of coarsening.
    pub aggressive: Option<usize>,
    /// Share of the largest coupling in a row below which couplings of coarse levels are dropped; only for
    /// approximate ideal restriction.
    pub filter: Option<f64>,
    /// Number of smoothing steps that near-null vectors get before they are used.
    pub relax: usize,
    /// Treatment of couplings between ranks during coarsening.
    pub border: Border,
    /// The smoother. The default is FFC-Jacobi for approximate ideal restriction, and Chebyshev otherwise.
    pub smoother: Option<Smoothing>,
    /// Number of unknowns of the last level.
    pub coarsest: usize,
    /// Largest number of levels.
    pub levels: usize,
    /// Precision of everything that is stored; by default that of the solver.
    pub precision: Option<Precision>,
    /// Precision of the matrices and vectors of a cycle, where the device has kernels for f32 and bf16.
    pub compute: Option<PrecondPrecision>,
}

/// Default number of sweeps of a smoother.
const SWEEPS: usize = 1;
/// Largest numbers of weights, sweeps and levels. Higher numbers are a mistake.
const MOST_WEIGHTS: usize = 1000;
const MOST_SWEEPS: usize = 1000;
const MOST_LEVELS: usize = 100;
/// Number of unknowns from which on smoothed aggregation uses W-cycles. Measured with V and W on an H200, for
/// radiation with 3 components: 64³ nodes take 10 and 8 iterations, 15 and 29 ms. 192³ nodes take 13 and 9
/// iterations, 249 and 255 ms. 256³ nodes take 18 and 10 iterations, 815 and 668 ms.
const WIDE: usize = 20_000_000;

const KEYS: [&str; 15] = [
    "cycle",
    "coarsen",
    "strength",
    "truncate",
    "aggressive",
    "filter",
    "relax",
    "border",
    "smoother",
    "sweeps",
    "degree",
    "coarsest",
    "levels",
    "precision",
    "compute",
];

/// Methods of coarsening, by name.
const KINDS: [CoarsenKind; 5] = [
    CoarsenKind::Classical,
    CoarsenKind::Aggregation { smoothed: false },
    CoarsenKind::Aggregation { smoothed: true },
    CoarsenKind::Air { distance: 2 },
    CoarsenKind::Air { distance: 1 },
];

impl Default for AmgSpec {
    fn default() -> Self {
        Self {
            cycle: None,
            coarsen: None,
            strength: None,
            truncate: None,
            aggressive: None,
            filter: None,
            relax: 0,
            border: Border::Auto,
            smoother: None,
            coarsest: MultilevelOptions::COARSEST,
            levels: MultilevelOptions::LEVELS,
            precision: None,
            compute: None,
        }
    }
}

impl AmgSpec {
    pub(super) fn read(name: &str, parameters: Vec<(&str, &str)>) -> Result<Self> {
        let mut amg = Self::default();
        // `sweeps` and `degree` belong to the named smoother, which may come before or after them.
        let (mut sweeps, mut degree) = (None, None);
        for (key, value) in parameters {
            let read = match key {
                "sweeps" => whole_number(value, 1, MOST_SWEEPS).map(|n| sweeps = Some(n)),
                "degree" => whole_number(value, 1, MOST_SWEEPS).map(|n| degree = Some(n)),
                _ => amg.set(name, key, value),
            };
            read.map_err(|e| Error::invalid(format!("{name}:{key}={value}: {e}")))?;
        }
        let air = amg.coarsen.is_some_and(CoarsenKind::is_air);
        let kind = amg.coarsen.map_or("classical", kind_name);
        let given = match air {
            true if amg.truncate.is_some() => Some("truncate"),
            true if amg.aggressive.is_some() => Some("aggressive"),
            false if amg.filter.is_some() => Some("filter"),
            false if matches!(amg.smoother, Some(Smoothing::Ffc { .. })) => Some("smoother=ffc"),
            _ => None,
        };
        if let Some(given) = given {
            let remedy = if air { "leave it out" } else { "it needs coarsen=air" };
            return Err(Error::invalid(format!("{name}: coarsen={kind} has no {given}; {remedy}")));
        }
        if sweeps.is_none() && degree.is_none() {
            return Ok(amg);
        }
        match (amg.smoother.insert(amg.smoothing()), sweeps, degree) {
            (_, None, None) => {}
            (Smoothing::Chebyshev { degree: own }, None, Some(given)) => *own = given,
            (
                Smoothing::Jacobi { sweeps: own }
                | Smoothing::Ildu { sweeps: own }
                | Smoothing::Ffc { sweeps: own },
                Some(given),
                None,
            ) => *own = given,
            (Smoothing::Chebyshev { .. }, Some(given), _) => {
                return Err(Error::invalid(format!(
                    "{name}:sweeps={given}: smoother=chebyshev has no sweeps; give its degree instead"
                )));
            }
            (other, _, Some(given)) => {
                return Err(Error::invalid(format!(
                    "{name}:degree={given}: smoother={} has no degree; give sweeps instead",
                    other.name()
                )));
            }
        }
        Ok(amg)
    }

    fn set(&mut self, name: &str, key: &str, value: &str) -> Result<()> {
        match key {
            "cycle" => self.cycle = Some(named("cycle", value, &Cycle::ALL, Cycle::name)?),
            "coarsen" => self.coarsen = Some(named("way to coarsen", value, &KINDS, kind_name)?),
            "strength" => self.strength = Some(share(value)?),
            "filter" => self.filter = Some(share(value)?),
            "truncate" => self.truncate = Some(whole_number(value, 0, MOST_WEIGHTS)?),
            "aggressive" => self.aggressive = Some(whole_number(value, 0, MOST_LEVELS)?),
            "relax" => self.relax = whole_number(value, 0, MOST_SWEEPS)?,
            "border" => self.border = named("border", value, &Border::ALL, Border::name)?,
            "smoother" => {
                let degree = MultilevelOptions::DEGREE;
                let all = [
                    Smoothing::Jacobi { sweeps: SWEEPS },
                    Smoothing::Chebyshev { degree },
                    Smoothing::Ildu { sweeps: SWEEPS },
                    Smoothing::Ffc { sweeps: SWEEPS },
                ];
                self.smoother = Some(named("smoother", value, &all, Smoothing::name)?);
            }
            "coarsest" => self.coarsest = whole_number(value, 1, u32::MAX as usize)?,
            "levels" => self.levels = whole_number(value, 1, MOST_LEVELS)?,
            // `store` was the name until version 0.1.
            "precision" | "store" => self.precision = Some(value.parse()?),
            "compute" => self.compute = Some(value.parse()?),
            _ => return unknown(&format!("key of {name}"), key, &KEYS),
        }
        Ok(())
    }

    /// Prints the text form, without values that are defaults.
    pub(super) fn spelt(&self, name: &str, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let default = Self::default();
        let mut keys = Vec::new();
        keys.extend(self.cycle.map(|cycle| format!("cycle={}", cycle.name())));
        keys.extend(self.coarsen.map(|kind| format!("coarsen={}", kind_name(kind))));
        keys.extend(self.strength.map(|theta| format!("strength={theta}")));
        keys.extend(self.truncate.map(|most| format!("truncate={most}")));
        keys.extend(self.aggressive.map(|levels| format!("aggressive={levels}")));
        keys.extend(self.filter.map(|least| format!("filter={least}")));
        keys.extend((self.relax != default.relax).then(|| format!("relax={}", self.relax)));
        keys.extend((self.border != default.border).then(|| format!("border={}", self.border.name())));
        let smoothing = self.smoothing();
        if smoothing.name() != (Self { smoother: None, ..*self }).smoothing().name() {
            keys.push(format!("smoother={}", smoothing.name()));
        }
        match smoothing {
            Smoothing::Chebyshev { degree: MultilevelOptions::DEGREE } => {}
            Smoothing::Chebyshev { degree } => keys.push(format!("degree={degree}")),
            Smoothing::Jacobi { sweeps: SWEEPS }
            | Smoothing::Ildu { sweeps: SWEEPS }
            | Smoothing::Ffc { sweeps: SWEEPS } => {}
            Smoothing::Jacobi { sweeps } | Smoothing::Ildu { sweeps } | Smoothing::Ffc { sweeps } => {
                keys.push(format!("sweeps={sweeps}"))
            }
        }
        keys.extend((self.coarsest != default.coarsest).then(|| format!("coarsest={}", self.coarsest)));
        keys.extend((self.levels != default.levels).then(|| format!("levels={}", self.levels)));
        keys.extend(self.precision.map(|precision| format!("precision={precision}")));
        keys.extend(self.compute.map(|precision| format!("compute={precision}")));
        let colon = if keys.is_empty() { "" } else { ":" };
        write!(f, "{name}{colon}{}", keys.join(","))
    }

    /// Returns true if a cycle is a different operator at every application.
    pub fn varies(&self) -> bool {
        self.cycle() == Cycle::K
    }

    /// Returns true if the preconditioner of a symmetric matrix is symmetric.
    pub fn keeps_symmetry(&self) -> bool {
        let one_sided = matches!(self.smoothing(), Smoothing::Ffc { .. });
        !one_sided && !self.coarsen.is_some_and(CoarsenKind::is_air)
    }

    /// Returns the smoother, given or by default.
    fn smoothing(&self) -> Smoothing {
        let air = self.coarsen.is_some_and(CoarsenKind::is_air);
        let default =
            || if air { Smoothing::Ffc { sweeps: SWEEPS } } else { MultilevelOptions::default().smoothing };
        self.smoother.unwrap_or_else(default)
    }

    fn cycle(&self) -> Cycle {
        self.cycle.unwrap_or(match self.coarsen {
            Some(CoarsenKind::Aggregation { smoothed: false }) => Cycle::K,
            _ => Cycle::V,
        })
    }

    /// Returns these parameters with the defaults for near-null vectors: aggregation, for nodes of one
    /// unknown too, with a threshold of its own. With a smoothed P the default cycle is W. Aggregates are
    /// then so large that coarse levels cost little. On elastic cubes of 16³, 32³ and 48³ nodes V takes 16,
    /// 18 and 21 iterations, and W takes 13, 14 and 15.
    pub(crate) fn of_near_null(&self) -> Self {
        let smoothed = self.coarsen != Some(CoarsenKind::Aggregation { smoothed: false });
        let cycle = self.cycle.or(smoothed.then_some(Cycle::W));
        Self { cycle, strength: Some(self.strength.unwrap_or(NearNull::STRENGTH)), ..*self }
    }

    /// Returns these parameters with the default coarsening and cycle for a system of this size, with nodes
    /// of `order` unknowns. `mixed` is true if neighbours couple different components. With V-cycles of
    /// smoothed aggregation, iterations grow with the number of levels. With W-cycles they hardly do. For
    /// large systems this saves more than the additional visits of W cost.
    pub fn of_system(&self, order: usize, unknowns: usize, mixed: bool) -> Self {
        let coarsen = self.coarsen.or(mixed.then_some(CoarsenKind::Classical));
        let of = Self { coarsen, ..*self };
        let smoothed = of.kind(order) == CoarsenKind::Aggregation { smoothed: true };
        Self { cycle: self.cycle.or((smoothed && unknowns >= WIDE).then_some(Cycle::W)), ..of }
    }

    fn kind(&self, order: usize) -> CoarsenKind {
        self.coarsen.unwrap_or(match order {
            1 => CoarsenKind::Classical,
            _ => CoarsenKind::Aggregation { smoothed: true },
        })
    }

    /// Returns the subdomains for a smoother that needs them, for blocks of order b·s.
    pub fn subdomains(&self, order: usize) -> Option<SubdomainSpec> {
        matches!(self.smoothing(), Smoothing::Ildu { .. }).then(|| IlduSpec::default().subdomains(order))
    }

    /// Returns the options for nodes of `order` unknowns, and for a solver that stores numbers in
    /// `precision`.
    pub fn options(&self, order: usize, precision: Precision) -> MultilevelOptions {
        let kind = self.kind(order);
        let default = Coarsening::of(kind);
        let coarsening = Coarsening {
            kind,
            strength: self.strength.unwrap_or(default.strength),
            truncate: self.truncate.unwrap_or(default.truncate),
            aggressive: self.aggressive.unwrap_or(default.aggressive),
            filter: self.filter.unwrap_or(default.filter),
            border: self.border,
        };
        MultilevelOptions {
            gather: MultilevelOptions::GATHER,
            cycle: self.cycle(),
            coarsening,
            smoothing: self.smoothing(),
            smooth_finest: true,
            relax: self.relax,
            coarsest: self.coarsest,
            levels: self.levels,
            precision: self.precision.unwrap_or(precision),
            compute: self.compute.unwrap_or_default(),
        }
    }
}

/// Reads a number from 0 to 1.
fn share(value: &str) -> Result<f64> {
    let number = value.parse().ok().filter(|t: &f64| (0.0..=1.0).contains(t));
    number.ok_or_else(|| Error::invalid("expected a number from 0 to 1"))
}

/// Returns the name of a method of coarsening.
pub(crate) fn kind_name(kind: CoarsenKind) -> &'static str {
    match kind {
        CoarsenKind::Classical => "classical",
        CoarsenKind::Aggregation { smoothed: false } => "aggregation",
        CoarsenKind::Aggregation { smoothed: true } => "smoothed",
        CoarsenKind::Air { distance: 1 } => "air1",
        CoarsenKind::Air { .. } => "air",
    }
}

#[cfg(test)]
mod tests {
    use super::super::PrecondSpec;
    use super::*;

    #[test]
    fn amg_is_read_and_written() {
        for text in [
            "amg",
            "amg:cycle=k,coarsen=aggregation,strength=0.5,truncate=6,aggressive=2,border=local,smoother=jacobi,sweeps=2",
            "amg:degree=4,coarsest=100,levels=3,precision=f32",
            "amg:compute=bf16",
            "amg:smoother=ildu+jacobi",
            "ildu then amg:coarsen=smoothed",
            "amg:coarsen=air",
            "amg:coarsen=air1,strength=0.2,filter=0.001,sweeps=2",
            "coarse:coarsen=air,smoother=ildu",
            "coarse",
            "ildu+coarse:coarsen=aggregation,aggressive=1",
        ] {
            assert_eq!(text.parse::<PrecondSpec>().unwrap().to_string(), text);
        }
        let long = "amg:coarsen=air,smoother=ffc,sweeps=1";
        assert_eq!(long.parse::<PrecondSpec>().unwrap().to_string(), "amg:coarsen=air");
        let long = "amg:degree=2,smoother=chebyshev,coarsest=400";
        assert_eq!(long.parse::<PrecondSpec>().unwrap().to_string(), "amg");
        for (text, words) in [
            ("amg:cycle=x", "amg:cycle=x: unknown cycle `x`; the known ones are v, w, k"),
            ("amg:coarsen=best", "the known ones are classical, aggregation, smoothed, air, air1"),
            ("amg:strength=2", "amg:strength=2: expected a number from 0 to 1"),
            ("amg:strength=nan", "expected a number from 0 to 1"),
            ("amg:truncate=-1", "amg:truncate=-1: expected a whole number from 0"),
            ("amg:smoother=sor", "unknown smoother `sor`; the known ones are jacobi, chebyshev, ildu, ffc"),
            ("amg:filter=0.1", "amg: coarsen=classical has no filter; it needs coarsen=air"),
            (
                "amg:coarsen=smoothed,smoother=ffc",
                "coarsen=smoothed has no smoother=ffc; it needs coarsen=air",
            ),
            ("amg:coarsen=air,truncate=4", "amg: coarsen=air has no truncate; leave it out"),
            ("amg:coarsen=air,degree=4", "amg:degree=4: smoother=ffc has no degree"),
            ("amg:sweeps=2", "amg:sweeps=2: smoother=chebyshev has no sweeps"),
            ("amg:degree=2,smoother=ildu", "amg:degree=2: smoother=ildu has no degree"),
            ("amg:degree=0", "amg:degree=0: expected a whole number from 1"),
            ("amg:coarsest=0", "expected a whole number from 1"),
            ("amg:precision=f16", "amg:precision=f16"),
            ("amg:precision=bf16", "unknown precision `bf16`; the known ones are f64, f32"),
            ("coarse:theta=1", "unknown key of coarse `theta`"),
            ("coarse:sweeps=2", "coarse:sweeps=2: smoother=chebyshev has no sweeps"),
            ("amg:theta=1", "unknown key of amg `theta`; the known ones are cycle, coarsen, strength"),
        ] {
            let error = text.parse::<PrecondSpec>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_left_open_depends_on_the_nodes() {
        let of = |text: &str, order| match text.parse().unwrap() {
            PrecondSpec::Amg(amg) => amg.options(order, Precision::F64),
            other => panic!("{other}"),
        };
        assert_eq!(of("amg", 1), MultilevelOptions::default());
        assert_eq!(of("amg", 3).coarsening.kind, CoarsenKind::Aggregation { smoothed: true });
        assert_eq!((of("amg", 3).cycle, of("amg:coarsen=aggregation", 3).cycle), (Cycle::V, Cycle::K));
        let of_large = |text: &str, order, mixed| match text.parse().unwrap() {
            PrecondSpec::Amg(amg) => amg.of_system(order, WIDE, mixed).options(order, Precision::F64),
            other => panic!("{other}"),
        };
        let large = |text: &str, order| of_large(text, order, false).cycle;
        let kind = |text: &str| of_large(text, 3, true).coarsening.kind;
        assert_eq!(kind("amg"), CoarsenKind::Classical);
        assert_eq!(kind("amg:coarsen=smoothed"), CoarsenKind::Aggregation { smoothed: true });
        assert_eq!(of_large("amg", 3, true).cycle, Cycle::V);
        assert_eq!(
            (large("amg", 3), large("amg", 1), large("amg:cycle=v", 3)),
            (Cycle::W, Cycle::V, Cycle::V)
        );
        assert_eq!(
            (large("amg:coarsen=smoothed", 1), large("amg:coarsen=aggregation", 3)),
            (Cycle::W, Cycle::K)
        );
        let air = of("amg:coarsen=air", 1);
        assert_eq!((air.smoothing, air.cycle), (Smoothing::Ffc { sweeps: 1 }, Cycle::V));
        assert!(air.coarsening.filter > 0.0 && of("amg", 1).coarsening.filter == 0.0);
        let keeps = |text: &str| text.parse::<PrecondSpec>().unwrap().keeps_symmetry();
        assert!(keeps("amg") && !keeps("amg:coarsen=air") && !keeps("coarse:coarsen=air1,smoother=ildu"));
        assert_eq!(of("amg:coarsen=aggregation,cycle=v,strength=0.3", 1).coarsening.strength, 0.3);
        let varies = |text: &str| text.parse::<PrecondSpec>().unwrap().varies();
        assert!(
            varies("jacobi+amg:cycle=k")
                && varies("symmetric(ildu then coarse:cycle=k)")
                && varies("amg:coarsen=aggregation")
                && !varies("amg:cycle=w")
        );
    }
}
