//! The text form of preconditioners: NAME[:key=value,…], `P+Q` for a sum, `P then Q` for one after the other,
//! and `symmetric(P then Q)`, which ends with P again. `+` binds closer than `then`; both associate to the
//! left.
//!
//! A new variant of [`PrecondSpec`] needs its name in `from_str`, in the list of known names and in
//! `Display`. It needs arms in `keeps_symmetry` and `subdomains`; `multiplies`, `varies`, `planes` and
//! `in_fixed_order` end in `_` and want a look. Elsewhere it needs arms in `by_name` and `memory` of
//! `solver/build.rs` and in `solver/ahead.rs`, and words of other programs in `krylith-base/src/names.rs`.

mod amg;
mod lu;
mod ras;
mod split;
#[cfg(test)]
mod tests;

pub use amg::AmgSpec;
pub(crate) use amg::kind_name;
pub use lu::LuSpec;
pub use ras::RasSpec;
pub(crate) use ras::{factor_name, solve_name};
pub use split::{CprSpec, Decouple, InnerMethod, InnerSpec, SchurSpec, SplitForm, SplitSpec};

use super::{TileFactor, TileShape};
use crate::matrix::MAX_BLOCK;
use crate::names::{named, unknown, whole_number};
use crate::partition::{SubdomainCut, SubdomainSpec};
use crate::{Error, Result};

/// A preconditioner by name, with its parameters.
///
/// # Examples
/// ```
/// use krylith::precond::PrecondSpec;
/// let spec: PrecondSpec = "ildu:fill=1,rows=500 + jacobi".parse()?;
/// assert_eq!(spec.to_string(), "ildu:fill=1,rows=500+jacobi");
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub enum PrecondSpec {
    /// The solver chooses.
    #[default]
    Auto,
    /// No preconditioner.
    None,
    /// Inverses of the diagonal blocks of this size; by default the block size of the system.
    Jacobi {
        /// The block size, which divides the system's.
        block: Option<usize>,
    },
    /// Incomplete factors of the tiles of a structured grid.
    BlockJacobi(TileSpec),
    /// Incomplete factors of subdomains.
    Ildu(IlduSpec),
    /// Stage by stage, with the lower factor of the Butcher matrix; each stage is solved as by `ildu`.
    Stage(IlduSpec),
    /// Restricted additive Schwarz: incomplete factors of overlapping subdomains.
    Ras(RasSpec),
    /// A cycle of algebraic multigrid.
    Amg(AmgSpec),
    /// Algebraic multigrid without smoothing on the finest level: a part of combinations.
    Coarse(AmgSpec),
    /// Sparse direct factors, with pivoting.
    Lu(LuSpec),
    /// The sum of both.
    Sum(Box<[PrecondSpec; 2]>),
    /// The first, then the second on the residual of the first.
    Multiplicative(Box<[PrecondSpec; 2]>),
    /// The first, the second, and the first again: symmetric if both are.
    Symmetric(Box<[PrecondSpec; 2]>),
    /// A preconditioner for each field of a coupled system.
    Split(SplitSpec),
    /// A correction of one field, decoupled from the others: the first stage of CPR.
    Cpr(CprSpec),
    /// An inner solve with a fixed number of iterations.
    Inner(InnerSpec),
}

/// Parameters of `block-jacobi`.
///
/// # Examples
/// ```
/// use krylith::precond::PrecondSpec;
/// use krylith_core::precond::{TileFactor, TileShape, TileSpec};
/// let spec: PrecondSpec = "block-jacobi:tile=32x8x4,factor=ic0".parse()?;
/// let tiles = TileSpec { tile: TileShape::Box([32, 8, 4]), factor: Some(TileFactor::Ic0) };
/// assert_eq!(spec, PrecondSpec::BlockJacobi(tiles));
/// assert_eq!(spec.to_string(), "block-jacobi:tile=32x8x4,factor=ic0");
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TileSpec {
    /// The shape of a tile; by default that of the device.
    pub tile: TileShape,
    /// The factorisation of each tile; chosen by the symmetry of the values by default.
    pub factor: Option<TileFactor>,
}

/// Parameters of `ildu` and of `stage`.
///
/// # Examples
/// ```
/// use krylith::precond::PrecondSpec;
/// use krylith_core::precond::IlduSpec;
/// let ildu = IlduSpec { fill: 1, ..IlduSpec::default() };
/// assert_eq!("ildu:fill=1".parse::<PrecondSpec>()?, PrecondSpec::Ildu(ildu));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct IlduSpec {
    /// Level of fill.
    pub fill: usize,
    /// Largest number of block rows of a subdomain; by default depends on the order of blocks.
    pub rows: Option<usize>,
    /// Method of cutting subdomains.
    pub cut: SubdomainCut,
    /// Shift of a pivot that cannot be inverted, relative to its row.
    pub shift: Option<f64>,
}

/// Unknowns up to which a system is a single subdomain if nothing bounds subdomains. One thread solves with
/// its factors in some 50 µs; more unknowns would be worth several threads.
const AS_ONE: usize = 1 << 12;

/// Largest number of levels of fill. A higher number is a mistake, and with `cut=whole` it would make a slow
/// direct solver.
const MOST_FILL: usize = 1000;

/// Largest number of cells of a tile in one direction; a higher number is a mistake.
const MOST_CELLS: usize = 1 << 20;

/// Largest number of parts of a combined preconditioner. More are a mistake, or an attempt to overflow the
/// stack.
const MOST_PARTS: usize = 64;

impl std::str::FromStr for PrecondSpec {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        // Names, keys and numbers are case-insensitive.
        let text = &*text.to_ascii_lowercase();
        // Each part is read, printed and applied recursively.
        let parts = 1 + text.matches(['+', '(']).count() + text.matches(" then ").count();
        if parts > MOST_PARTS {
            return Err(Error::invalid(format!(
                "the preconditioner has {parts} parts; at most {MOST_PARTS} are supported"
            )));
        }
        let outside = outside(text)?;
        if let Some((at, then)) = text.rmatch_indices(THEN).find(|(at, _)| outside[*at]) {
            return both(&text[..at], &text[at + then.len()..]).map(PrecondSpec::Multiplicative);
        }
        // A name begins with a letter; the + of a number such as 1e+3 is followed by a digit.
        let plus = |at: usize| outside[at] && !text[at + 1..].starts_with(|c: char| c.is_ascii_digit());
        if let Some((at, _)) = text.rmatch_indices('+').find(|(at, _)| plus(*at)) {
            return both(&text[..at], &text[at + 1..]).map(PrecondSpec::Sum);
        }
        let text = text.trim();
        let inside = text.strip_prefix("symmetric").and_then(|rest| rest.trim_start().strip_prefix('('));
        if let Some(inside) = inside.and_then(|rest| rest.strip_suffix(')')) {
            return symmetric(inside);
        }
        if let Some(of_fields) = split::parse(text) {
            return of_fields;
        }
        let (name, parameters) = text.split_once(':').map_or((text, None), |(n, p)| (n, Some(p)));
        let parameters: Vec<(&str, &str)> = parameters
            .map(|list| {
                list.split(',')
                    .map(|p| {
                        let flag = (p == "deterministic").then_some((p, "yes"));
                        p.split_once('=')
                            .or(flag)
                            .ok_or_else(|| Error::invalid(format!("`{p}` in `{text}` is not key=value")))
                    })
                    .collect::<Result<Vec<_>>>()
            })
            .transpose()?
            .unwrap_or_default();
        if let Some((i, _)) =
            parameters.iter().enumerate().find(|(i, (k, _))| parameters[..*i].iter().any(|p| p.0 == *k))
        {
            return Err(Error::invalid(format!("`{}` is given twice in `{text}`", parameters[i].0)));
        }
        match name {
            "auto" | "none" if !parameters.is_empty() => {
                Err(Error::invalid(format!("`{name}` takes no parameters")))
            }
            "auto" => Ok(PrecondSpec::Auto),
            "none" => Ok(PrecondSpec::None),
            "lu" => LuSpec::parse(parameters).map(PrecondSpec::Lu),
            "jacobi" => {
                let mut block = None;
                for (key, value) in parameters {
                    match key {
                        "block" => {
                            let size = whole_number(value, 1, MAX_BLOCK);
                            block =
                                Some(size.map_err(|e| Error::invalid(format!("jacobi:block={value}: {e}")))?)
                        }
                        _ => return unknown("key of jacobi", key, &["block"]),
                    }
                }
                Ok(PrecondSpec::Jacobi { block })
            }
            "block-jacobi" => TileSpec::read(parameters).map(PrecondSpec::BlockJacobi),
            // The name of earlier versions remains valid.
            "ildu" | "ildu0" => IlduSpec::read(name, parameters).map(PrecondSpec::Ildu),
            "stage" => IlduSpec::read(name, parameters).map(PrecondSpec::Stage),
            "ras" => RasSpec::read(parameters).map(PrecondSpec::Ras),
            "amg" => AmgSpec::read(name, parameters).map(PrecondSpec::Amg),
            "coarse" => AmgSpec::read(name, parameters).map(PrecondSpec::Coarse),
            "ilu0" => Err(Error::invalid(
                "unknown preconditioner `ilu0`; ILU(0) of the whole matrix is ildu:cut=whole; did you mean `ildu`?",
            )),
            _ => unknown(
                "preconditioner",
                name,
                &[
                    "auto",
                    "none",
                    "jacobi[:block=B]",
                    "block-jacobi[:tile=XxYxZ|whole|slab,factor=ic0|ilu0]",
                    "ildu[:fill=K,rows=N,cut=NAME,shift=S]",
                    "stage[:the same keys]",
                    "ras[:overlap=D,parts=N,fill=K,order=natural|rcm,factor=random|exact,eta=N,solve=auto|random|jacobi|exact,gamma=N,fdp=N,\
                     deterministic]",
                    "amg[:cycle=v|w|k,coarsen=classical|aggregation|smoothed,strength=T,truncate=N,aggressive=N,border=auto|global|local,\
                     smoother=jacobi|chebyshev|ildu,sweeps=N,degree=N,coarsest=N,levels=N,precision=f64|f32]",
                    "coarse[:the same keys]",
                    "lu[:most=N]",
                    "`P+Q`, `P then Q` and `symmetric(P then Q)` of them",
                    "split(FIELD: P, FIELD: Q[; form=diagonal|lower|upper|full or schur=…,S=NAME])",
                    "cpr(FIELD: P[; decouple=quasi-impes|row-sums|none])",
                    "cg(P[; iterations=N])",
                    "chebyshev(P[; degree=N])",
                ],
            ),
        }
    }
}

/// Separates the parts of a combination that are applied one after the other.
const THEN: &str = " then ";

/// Returns for each byte whether it is outside all parentheses.
fn outside(text: &str) -> Result<Vec<bool>> {
    let (mut depth, mut outside) = (0usize, Vec::with_capacity(text.len()));
    for byte in text.bytes() {
        outside.push(depth == 0);
        match byte {
            b'(' => depth += 1,
            b')' if depth == 0 => return Err(Error::invalid(format!("`{text}` has a `)` without its `(`"))),
            b')' => depth -= 1,
            _ => {}
        }
    }
    match depth {
        0 => Ok(outside),
        _ => Err(Error::invalid(format!("`{text}` has a `(` without its `)`"))),
    }
}

/// Parses the text in `symmetric(…)`. If it has more than two parts, the first surrounds the symmetric form
/// of the others.
fn symmetric(inside: &str) -> Result<PrecondSpec> {
    let outside = outside(inside)?;
    let mut thens = inside.match_indices(THEN).filter(|(at, _)| outside[*at]);
    let Some((at, _)) = thens.next() else {
        return Err(Error::invalid(format!(
            "symmetric({inside}): expected parts one after the other, such as symmetric(ildu then coarse)"
        )));
    };
    let (first, rest) = (&inside[..at], &inside[at + THEN.len()..]);
    let parts = match thens.next() {
        None => both(first, rest)?,
        Some(_) => both(first, &format!("symmetric({rest})"))?,
    };
    match parts.iter().find(|part| !part.keeps_symmetry()) {
        None => Ok(PrecondSpec::Symmetric(parts)),
        Some(part) => Err(Error::invalid(format!(
            "symmetric({}): {part} may be unsymmetric although the matrix is symmetric; use a plain `P then Q`, and a method other \
             than cg",
            inside.trim()
        ))),
    }
}

/// Parses two parts of a combination.
fn both(first: &str, second: &str) -> Result<Box<[PrecondSpec; 2]>> {
    let part = |text: &str| match text.trim() {
        "" => Err(Error::invalid("a part of a composed preconditioner is missing")),
        "auto" | "none" => {
            Err(Error::invalid(format!("`{}` cannot be a part of a composed preconditioner", text.trim())))
        }
        text => text.parse(),
    };
    Ok(Box::new([part(first)?, part(second)?]))
}

/// Prints the text form, without values that are defaults.
impl std::fmt::Display for PrecondSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PrecondSpec::Auto => f.write_str("auto"),
            PrecondSpec::None => f.write_str("none"),
            PrecondSpec::Lu(lu) => lu.spelt(f),
            PrecondSpec::Jacobi { block: None } => f.write_str("jacobi"),
            PrecondSpec::Jacobi { block: Some(block) } => write!(f, "jacobi:block={block}"),
            PrecondSpec::BlockJacobi(tiles) => tiles.spelt(f),
            PrecondSpec::Ildu(ildu) => ildu.spelt("ildu", f),
            PrecondSpec::Stage(ildu) => ildu.spelt("stage", f),
            PrecondSpec::Ras(ras) => ras.spelt(f),
            PrecondSpec::Amg(amg) => amg.spelt("amg", f),
            PrecondSpec::Coarse(amg) => amg.spelt("coarse", f),
            PrecondSpec::Sum(parts) => write!(f, "{}+{}", parts[0], parts[1]),
            PrecondSpec::Multiplicative(parts) => write!(f, "{} then {}", parts[0], parts[1]),
            PrecondSpec::Symmetric(parts) => write!(f, "symmetric({} then {})", parts[0], parts[1]),
            PrecondSpec::Split(split) => write!(f, "{split}"),
            PrecondSpec::Cpr(cpr) => write!(f, "{cpr}"),
            PrecondSpec::Inner(inner) => write!(f, "{inner}"),
        }
    }
}

impl PrecondSpec {
    /// Returns true if an application makes a product with the operator.
    pub fn multiplies(&self) -> bool {
        match self {
            PrecondSpec::Multiplicative(_)
            | PrecondSpec::Symmetric(_)
            | PrecondSpec::Amg(_)
            | PrecondSpec::Coarse(_)
            | PrecondSpec::Inner(_)
            | PrecondSpec::Lu(_) => true,
            PrecondSpec::Sum(parts) => parts.iter().any(Self::multiplies),
            _ => false,
        }
    }

    /// Returns true if it names fields of the system.
    pub(crate) fn names_fields(&self) -> bool {
        match self {
            PrecondSpec::Split(_) | PrecondSpec::Cpr(_) => true,
            PrecondSpec::Inner(inner) => inner.precond.names_fields(),
            PrecondSpec::Sum(parts) | PrecondSpec::Multiplicative(parts) | PrecondSpec::Symmetric(parts) => {
                parts.iter().any(Self::names_fields)
            }
            _ => false,
        }
    }

    /// Returns the same with every sweep in a fixed order, so that it is bitwise reproducible.
    pub(crate) fn in_fixed_order(self) -> Self {
        let both = |parts: Box<[Self; 2]>| Box::new((*parts).map(Self::in_fixed_order));
        match self {
            PrecondSpec::Ras(ras) => PrecondSpec::Ras(RasSpec { deterministic: true, ..ras }),
            PrecondSpec::Sum(parts) => PrecondSpec::Sum(both(parts)),
            PrecondSpec::Multiplicative(parts) => PrecondSpec::Multiplicative(both(parts)),
            PrecondSpec::Symmetric(parts) => PrecondSpec::Symmetric(both(parts)),
            PrecondSpec::Split(mut split) => {
                let parts = split.parts.into_iter();
                split.parts = parts.map(|(label, part)| (label, part.in_fixed_order())).collect();
                PrecondSpec::Split(split)
            }
            PrecondSpec::Cpr(cpr) => {
                PrecondSpec::Cpr(CprSpec { precond: Box::new(cpr.precond.in_fixed_order()), ..cpr })
            }
            PrecondSpec::Inner(inner) => {
                PrecondSpec::Inner(InnerSpec { precond: Box::new(inner.precond.in_fixed_order()), ..inner })
            }
            other => other,
        }
    }

    /// Returns a plain `P then Q` that it is or contains, which methods for symmetric systems cannot use.
    pub(crate) fn one_way(&self) -> Option<&Self> {
        match self {
            PrecondSpec::Multiplicative(_) => Some(self),
            PrecondSpec::Sum(parts) => parts.iter().find_map(Self::one_way),
            _ => None,
        }
    }

    /// Returns true if it is symmetric for a symmetric matrix, as far as is known before it is built.
    pub fn keeps_symmetry(&self) -> bool {
        match self {
            PrecondSpec::Auto
            | PrecondSpec::None
            | PrecondSpec::Jacobi { .. }
            | PrecondSpec::BlockJacobi(_)
            | PrecondSpec::Amg(_)
            | PrecondSpec::Coarse(_)
            | PrecondSpec::Lu(_) => true,
            // With shifted pivots the factors need not be definite if the matrix is.
            PrecondSpec::Ildu(ildu) => ildu.shift.is_none(),
            PrecondSpec::Sum(parts) | PrecondSpec::Symmetric(parts) => parts.iter().all(Self::keeps_symmetry),
            // A Schur complement makes the preconditioner of a symmetric matrix indefinite.
            PrecondSpec::Split(split) => {
                matches!(split.form, SplitForm::Diagonal | SplitForm::Full)
                    && split.schur.is_none()
                    && split.parts.iter().all(|(_, part)| part.keeps_symmetry())
            }
            PrecondSpec::Inner(inner) => {
                inner.method == InnerMethod::Chebyshev && inner.precond.keeps_symmetry()
            }
            PrecondSpec::Multiplicative(_)
            | PrecondSpec::Stage(_)
            | PrecondSpec::Ras(_)
            | PrecondSpec::Cpr(_) => false,
        }
    }

    /// Returns true if it may be another operator at every application, as with randomized sweeps on a GPU.
    /// Flexible methods allow that.
    pub fn varies(&self) -> bool {
        match self {
            PrecondSpec::Ras(ras) => ras.varies(),
            PrecondSpec::Amg(amg) | PrecondSpec::Coarse(amg) => amg.varies(),
            PrecondSpec::Sum(parts) | PrecondSpec::Multiplicative(parts) | PrecondSpec::Symmetric(parts) => {
                parts.iter().any(Self::varies)
            }
            PrecondSpec::Split(split) => split.parts.iter().any(|(_, part)| part.varies()),
            PrecondSpec::Cpr(cpr) => cpr.precond.varies(),
            PrecondSpec::Inner(inner) => inner.method == InnerMethod::Cg || inner.precond.varies(),
            _ => false,
        }
    }

    /// Returns how many planes of a grid a tile has, if ranks must have whole planes.
    pub fn planes(&self) -> Option<usize> {
        match self {
            PrecondSpec::BlockJacobi(TileSpec { tile: TileShape::Box([_, _, z]), .. }) => Some(*z),
            // A multiple of the planes of a GPU's tile, and the fewest planes of a CPU's.
            PrecondSpec::BlockJacobi(_) => Some(8),
            PrecondSpec::Sum(parts) | PrecondSpec::Multiplicative(parts) | PrecondSpec::Symmetric(parts) => {
                parts.iter().find_map(|part| part.planes())
            }
            _ => None,
        }
    }

    /// Returns the subdomains that it needs first, if any, for blocks of order b·s. Ranks then own whole
    /// subdomains.
    pub fn subdomains(&self, order: usize) -> Option<SubdomainSpec> {
        match self {
            PrecondSpec::Auto => Some(IlduSpec::default().subdomains(order)),
            PrecondSpec::Ildu(ildu) => Some(ildu.subdomains(order)),
            PrecondSpec::Stage(ildu) => Some(ildu.of_stage().subdomains(order)),
            PrecondSpec::Ras(ras) => ras.subdomains(),
            PrecondSpec::Amg(amg) => amg.subdomains(order),
            PrecondSpec::Sum(parts) | PrecondSpec::Multiplicative(parts) | PrecondSpec::Symmetric(parts) => {
                parts.iter().find_map(|part| part.subdomains(order))
            }
            PrecondSpec::None
            | PrecondSpec::Jacobi { .. }
            | PrecondSpec::BlockJacobi(_)
            | PrecondSpec::Coarse(_)
            | PrecondSpec::Split(_)
            | PrecondSpec::Cpr(_)
            | PrecondSpec::Lu(_) => None,
            PrecondSpec::Inner(inner) => inner.precond.subdomains(order),
        }
    }
}

impl TileSpec {
    fn read(parameters: Vec<(&str, &str)>) -> Result<Self> {
        parameters.into_iter().try_fold(Self::default(), |tiles, (key, value)| {
            tiles.with(key, value).map_err(|e| Error::invalid(format!("block-jacobi:{key}={value}: {e}")))
        })
    }

    fn with(mut self, key: &str, value: &str) -> Result<Self> {
        match key {
            "tile" => {
                self.tile = match value {
                    "auto" => TileShape::Auto,
                    "whole" => TileShape::Whole,
                    "slab" => TileShape::Slab,
                    sizes => {
                        let cells = |n| whole_number(n, 1, MOST_CELLS).ok();
                        let sizes: Option<Vec<usize>> = sizes.split('x').map(cells).collect();
                        let sizes = sizes.and_then(|sizes| sizes.try_into().ok());
                        TileShape::Box(sizes.ok_or_else(|| {
                            Error::invalid("expected whole, slab, or cells in x, y and z, such as 32x8x4")
                        })?)
                    }
                }
            }
            "factor" => {
                let all = [TileFactor::Ic0, TileFactor::Ilu0];
                self.factor = Some(named("factor", value, &all, TileFactor::name)?);
            }
            _ => return unknown("key of block-jacobi", key, &["tile", "factor"]),
        }
        Ok(self)
    }

    /// Prints the text form, without values that are defaults.
    fn spelt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tile = match self.tile {
            TileShape::Auto => None,
            TileShape::Whole => Some("tile=whole".to_string()),
            TileShape::Slab => Some("tile=slab".into()),
            TileShape::Box([x, y, z]) => Some(format!("tile={x}x{y}x{z}")),
        };
        let factor = self.factor.map(|factor| format!("factor={}", factor.name()));
        let keys: Vec<String> = tile.into_iter().chain(factor).collect();
        let colon = if keys.is_empty() { "" } else { ":" };
        write!(f, "block-jacobi{colon}{}", keys.join(","))
    }
}

impl IlduSpec {
    fn read(name: &str, parameters: Vec<(&str, &str)>) -> Result<Self> {
        parameters.into_iter().try_fold(Self::default(), |ildu, (key, value)| {
            ildu.with(name, key, value).map_err(|e| Error::invalid(format!("{name}:{key}={value}: {e}")))
        })
    }

    fn with(mut self, name: &str, key: &str, value: &str) -> Result<Self> {
        match key {
            "fill" => self.fill = whole_number(value, 0, MOST_FILL)?,
            "rows" => self.rows = Some(whole_number(value, 1, u32::MAX as usize)?),
            "cut" => {
                self.cut = named("cut", value, &SubdomainCut::ALL, SubdomainCut::name)?;
            }
            "shift" => {
                let shift = value.parse().ok().filter(|s: &f64| *s > 0.0 && s.is_finite());
                self.shift =
                    Some(shift.ok_or_else(|| Error::invalid("expected a positive number, such as 1e-3"))?);
            }
            _ => return unknown(&format!("key of {name}"), key, &["fill", "rows", "cut", "shift"]),
        }
        Ok(self)
    }

    /// Prints the text form, without values that are defaults.
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

    /// Returns the same with the default of `stage`: its blocks are small, so large subdomains pay more.
    pub fn of_stage(&self) -> Self {
        Self { rows: Some(self.rows.unwrap_or(2048)), ..*self }
    }

    /// Returns the subdomains that it needs, for blocks of order b·s.
    pub fn subdomains(&self, order: usize) -> SubdomainSpec {
        SubdomainSpec { cut: self.cut, rows: self.most_rows(order) }
    }

    /// Returns the subdomains for one rank's whole system of `nodes` block rows, on a device that supports
    /// subdomains of at most `most` block rows. Without such a bound, as on a CPU, a small system is one
    /// subdomain unless `rows` is given. A cut would cost more iterations than its threads save: orsreg_1,
    /// 2,205 rows, takes 34 as one and 138 as two.
    pub(crate) fn as_one(&self, order: usize, nodes: usize, most: usize) -> Self {
        let small = most == usize::MAX && nodes * order <= AS_ONE;
        Self { rows: self.rows.or_else(|| small.then_some(nodes.max(self.most_rows(order)))), ..*self }
    }

    /// Returns the most block rows of a subdomain, for blocks of order b·s. With the default a subdomain's
    /// vector fits into the shared memory of a thread block, and its levels are wide enough for the threads.
    pub fn most_rows(&self, order: usize) -> usize {
        self.rows.unwrap_or(match order {
            1..=4 => 2048,
            5..=8 => 256,
            _ => 128,
        })
    }
}
