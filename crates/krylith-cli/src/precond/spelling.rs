//! How preconditioners are spelt on the command line and in `system.toml`: NAME[:key=value,…], `A+B` for both side by side, and
//! `A then B` for one after the other. `+` binds closer than `then`; both are read from the left.

use crate::options::{Parsed, block_size, unknown, whole};
use krylith::partition::SubdomainCut;

/// Preconditioners and their parameters.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Precond {
    /// Let the program pick.
    #[default]
    Auto,
    /// None.
    None,
    /// Inverses of the diagonal blocks, of this size; the system's own where none is given.
    Jacobi {
        /// Divides the system's block size.
        block: Option<usize>,
    },
    /// Incomplete factors of subdomains.
    Ildu0(Ildu0),
    /// Stage by stage, with the lower factor of the Butcher matrix; each stage as `ildu0` would.
    Stage(Ildu0),
    /// Both, added.
    Sum(Box<[Precond; 2]>),
    /// The second on what the first leaves over.
    Then(Box<[Precond; 2]>),
}

/// Parameters of `ildu0` and of `stage`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Ildu0 {
    /// Level of fill.
    pub fill: usize,
    /// Most block rows of a subdomain; by the order of blocks where none is given.
    pub rows: Option<usize>,
    /// How subdomains are cut.
    pub cut: SubdomainCut,
    /// What a pivot that cannot be inverted gets, relative to its row.
    pub shift: Option<f64>,
}

/// Levels of fill; more than this is a slip of the finger, and `cut=whole` with it a direct solver of the slow kind.
const MOST_FILL: usize = 1000;

impl std::str::FromStr for Precond {
    type Err = String;
    fn from_str(text: &str) -> Parsed<Self> {
        if let Some((first, second)) = text.rsplit_once(" then ") {
            return both(first, second).map(Precond::Then);
        }
        // A name begins with a letter; the + of a number such as 1e+3 is followed by a digit.
        let plus = |at: &(usize, &str)| !text[at.0 + 1..].starts_with(|c: char| c.is_ascii_digit());
        if let Some((at, _)) = text.rmatch_indices('+').find(plus) {
            return both(&text[..at], &text[at + 1..]).map(Precond::Sum);
        }
        let text = text.trim();
        let (name, parameters) = text.split_once(':').map_or((text, None), |(n, p)| (n, Some(p)));
        let parameters: Vec<(&str, &str)> = parameters
            .map(|list| {
                list.split(',')
                    .map(|p| p.split_once('=').ok_or_else(|| format!("`{p}` in `{text}` is not key=value")))
                    .collect::<Parsed<Vec<_>>>()
            })
            .transpose()?
            .unwrap_or_default();
        if let Some((i, _)) =
            parameters.iter().enumerate().find(|(i, (k, _))| parameters[..*i].iter().any(|p| p.0 == *k))
        {
            return Err(format!("`{}` is given twice in `{text}`", parameters[i].0));
        }
        match name {
            "auto" | "none" if !parameters.is_empty() => Err(format!("`{name}` takes no parameters")),
            "auto" => Ok(Precond::Auto),
            "none" => Ok(Precond::None),
            "jacobi" => {
                let mut block = None;
                for (key, value) in parameters {
                    match key {
                        "block" => {
                            block = Some(block_size(value).map_err(|e| format!("jacobi:block={value}: {e}"))?)
                        }
                        _ => return unknown("key of jacobi", key, &["block"]),
                    }
                }
                Ok(Precond::Jacobi { block })
            }
            "ildu0" => Ildu0::read(name, parameters).map(Precond::Ildu0),
            "stage" => Ildu0::read(name, parameters).map(Precond::Stage),
            "ilu0" => {
                Err("unknown preconditioner `ilu0`; ILU(0) of the whole matrix is ildu0:cut=whole".into())
            }
            _ => unknown(
                "preconditioner",
                name,
                &[
                    "auto",
                    "none",
                    "jacobi[:block=B]",
                    "ildu0[:fill=K,rows=N,cut=NAME,shift=S]",
                    "stage[:the same keys]",
                    "`A+B` and `A then B` of them",
                ],
            ),
        }
    }
}

/// Two parts of a composition.
fn both(first: &str, second: &str) -> Parsed<Box<[Precond; 2]>> {
    let part = |text: &str| match text.trim() {
        "" => Err("a part of a composed preconditioner is missing".into()),
        "auto" | "none" => Err(format!("`{}` cannot be a part of a composed preconditioner", text.trim())),
        text => text.parse(),
    };
    Ok(Box::new([part(first)?, part(second)?]))
}

/// As it was written, without what is left to defaults.
impl std::fmt::Display for Precond {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Precond::Auto => f.write_str("auto"),
            Precond::None => f.write_str("none"),
            Precond::Jacobi { block: None } => f.write_str("jacobi"),
            Precond::Jacobi { block: Some(block) } => write!(f, "jacobi:block={block}"),
            Precond::Ildu0(ildu) => ildu.spelt("ildu0", f),
            Precond::Stage(ildu) => ildu.spelt("stage", f),
            Precond::Sum(parts) => write!(f, "{}+{}", parts[0], parts[1]),
            Precond::Then(parts) => write!(f, "{} then {}", parts[0], parts[1]),
        }
    }
}

impl Precond {
    /// True where applying it takes a product with the operator.
    pub fn multiplies(&self) -> bool {
        match self {
            Precond::Then(_) => true,
            Precond::Sum(parts) => parts.iter().any(Self::multiplies),
            _ => false,
        }
    }

    /// The subdomains that it will want first, if any: what ranks then own wholly.
    pub fn subdomains(&self) -> Option<Ildu0> {
        match self {
            Precond::Auto => Some(Ildu0::default()),
            Precond::Ildu0(ildu) => Some(*ildu),
            Precond::Stage(ildu) => Some(ildu.of_stage()),
            Precond::Sum(parts) | Precond::Then(parts) => parts.iter().find_map(Self::subdomains),
            Precond::None | Precond::Jacobi { .. } => None,
        }
    }
}

impl Ildu0 {
    fn read(name: &str, parameters: Vec<(&str, &str)>) -> Parsed<Self> {
        parameters.into_iter().try_fold(Self::default(), |ildu, (key, value)| {
            ildu.with(name, key, value).map_err(|e| format!("{name}:{key}={value}: {e}"))
        })
    }

    fn with(mut self, name: &str, key: &str, value: &str) -> Parsed<Self> {
        match key {
            "fill" => self.fill = whole(value, 0, MOST_FILL)?,
            "rows" => self.rows = Some(whole(value, 1, u32::MAX as usize)?),
            "cut" => {
                let known = SubdomainCut::ALL.into_iter().find(|way| way.name() == value);
                let names = SubdomainCut::ALL.map(SubdomainCut::name);
                self.cut = known.map_or_else(|| unknown("cut", value, &names), Ok)?;
            }
            "shift" => {
                let shift = value.parse().ok().filter(|s: &f64| *s > 0.0 && s.is_finite());
                self.shift = Some(shift.ok_or("expected a positive number, such as 1e-3")?);
            }
            _ => return unknown(&format!("key of {name}"), key, &["fill", "rows", "cut", "shift"]),
        }
        Ok(self)
    }

    /// As it was written, without what is left to defaults.
    fn spelt(&self, name: &str, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut keys = Vec::new();
        if self.fill > 0 {
            keys.push(format!("fill={}", self.fill));
        }
        keys.extend(self.rows.map(|rows| format!("rows={rows}")));
        if self.cut != SubdomainCut::Auto {
            keys.push(format!("cut={}", self.cut.name()));
        }
        keys.extend(self.shift.map(|shift| format!("shift={shift:e}")));
        let colon = if keys.is_empty() { "" } else { ":" };
        write!(f, "{name}{colon}{}", keys.join(","))
    }

    /// The same with the default of `stage`: its blocks are small, and large subdomains are worth more there.
    pub fn of_stage(&self) -> Self {
        Self { rows: Some(self.rows.unwrap_or(2048)), ..*self }
    }

    /// Most block rows of a subdomain, for blocks of order b·s: what keeps a subdomain's vector in the shared memory of
    /// a thread block, and its levels wide enough for its threads.
    pub fn most_rows(&self, order: usize) -> usize {
        self.rows.unwrap_or(match order {
            1..=4 => 2048,
            5..=8 => 256,
            _ => 128,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_or_refused_with_a_list() {
        assert_eq!("jacobi:block=1".parse(), Ok(Precond::Jacobi { block: Some(1) }));
        assert_eq!("jacobi".parse(), Ok(Precond::Jacobi { block: None }));
        assert_eq!("ildu0".parse(), Ok(Precond::Ildu0(Ildu0::default())));
        let full = Ildu0 { fill: 2, rows: Some(100), cut: SubdomainCut::TwoLevel, shift: Some(1e-3) };
        assert_eq!("ildu0:fill=2,rows=100,cut=two-level,shift=1e-3".parse(), Ok(Precond::Ildu0(full)));
        let (jacobi, ildu0) = (|| Precond::Jacobi { block: None }, || Precond::Ildu0(Ildu0::default()));
        let sum = |a, b| Precond::Sum(Box::new([a, b]));
        let then = |a, b| Precond::Then(Box::new([a, b]));
        assert_eq!("jacobi+ildu0".parse(), Ok(sum(jacobi(), ildu0())));
        assert_eq!(" jacobi then  ildu0".parse(), Ok(then(jacobi(), ildu0())));
        let nested = then(then(jacobi(), sum(ildu0(), jacobi())), ildu0());
        assert_eq!("jacobi then ildu0 + jacobi then ildu0".parse(), Ok(nested));
        let shifted = |shift| Precond::Stage(Ildu0 { shift: Some(shift), ..Ildu0::default() });
        assert_eq!("stage:shift=1e+3+jacobi".parse(), Ok(sum(shifted(1000.0), jacobi())));
        assert!("jacobi + (ildu0)".parse::<Precond>().is_err());
        for text in [
            "jacobi:block=2",
            "ildu0",
            "ildu0:fill=2,rows=100,cut=two-level,shift=1e-3",
            "auto",
            "none",
            "stage:fill=1",
            "jacobi then ildu0+stage then jacobi",
        ] {
            assert_eq!(text.parse::<Precond>().unwrap().to_string(), text);
        }
        for (text, words) in [
            ("jacobi+", "a part of a composed preconditioner is missing"),
            ("jacobi then none", "`none` cannot be a part"),
            ("auto+jacobi", "`auto` cannot be a part"),
            ("jacobi then ilu", "unknown preconditioner `ilu`"),
            ("stage:b=1", "unknown key of stage `b`"),
            ("ilu", "the known ones are auto, none, jacobi"),
            ("ilu0", "ildu0:cut=whole"),
            ("jacobi:overlap=2", "unknown key of jacobi `overlap`; the known ones are block"),
            ("jacobi:block", "not key=value"),
            ("jacobi:block=9", "from 1 to 8"),
            ("jacobi:block=1,block=2", "twice"),
            ("none:block=1", "no parameters"),
            ("ildu0:block=1", "unknown key of ildu0 `block`; the known ones are fill, rows, cut, shift"),
            ("ildu0:rows=0", "ildu0:rows=0: expected a whole number from 1"),
            ("ildu0:shift=-1", "expected a positive number"),
            ("ildu0:cut=boxes", "unknown cut `boxes`; the known ones are auto, whole, runs, geometric"),
            ("", "unknown preconditioner"),
        ] {
            let error = text.parse::<Precond>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
