//! The text form of preconditioners: `NAME[:key=value,…]`, `P+Q` for a sum, `P then Q` for one after the
//! other, and `symmetric(P then Q)`, which ends with P again. `+` binds more tightly than `then`. Both
//! associate to the left.
//!
//! To add a variant of [`PrecondSpec`], add its name to `from_str`, to the list in `known.rs` and to
//! `Display`. `KRYLITH_WRITE_GUIDE=1 cargo test -p krylith-cli --lib guide` then writes Python's types. Add
//! arms to `keeps_symmetry` and `subdomains`, to `by_name` and `memory` in `solver/build.rs`, and to
//! `solver/ahead.rs`. Check `multiplies`, `varies`, `planes` and `in_fixed_order`, which end in `_` so that
//! the compiler does not ask. `krylith-base/src/names.rs` has the names that other programs use.

mod amg;
mod decouple;
mod definite;
mod elsewhere;
mod known;
mod lu;
mod ras;
mod split;
#[cfg(test)]
mod tests;
mod vanka;

pub use amg::AmgSpec;
pub(crate) use amg::kind_name;
pub use decouple::Decouple;
use known::KNOWN;
pub use lu::{LuOn, LuOver, LuSpec};
pub use ras::{RasSpec, RasSub};
pub(crate) use ras::{factor_name, solve_name};
pub use split::{AuxSpec, CprSpec, InnerMethod, InnerSpec, SchurSpec, SplitForm, SplitSpec};
pub use vanka::VankaSpec;

use super::{TileFactor, TileShape};
use crate::matrix::MAX_BLOCK;
use crate::names::{named, unknown, whole_number};
use crate::partition::{SubdomainCut, SubdomainSpec};
use crate::space::PrecondPrecision;
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
        /// The block size, which must divide that of the system.
        block: Option<usize>,
    },
    /// Incomplete factors of the tiles of a structured grid.
    BlockJacobi(TileSpec),
    /// Incomplete factors of subdomains.
    Ildu(IlduSpec),
    /// The stages of a Kronecker system one after the other, coupled by the lower factor of the Butcher
    /// matrix. Each stage is solved as by `ildu`.
    Stage(IlduSpec),
    /// Restricted additive Schwarz: incomplete factors of overlapping subdomains.
    Ras(RasSpec),
    /// The stages of a Kronecker system one after the other, each by another preconditioner.
    Stages(Box<PrecondSpec>),
    /// A cycle of algebraic multigrid.
    Amg(AmgSpec),
    /// Algebraic multigrid without smoothing on the finest level, for combinations.
    Coarse(AmgSpec),
    /// Sparse direct factors, with pivoting.
    Lu(LuSpec),
    /// The sum of two preconditioners.
    Sum(Box<[PrecondSpec; 2]>),
    /// The first, then the second on the residual of the first.
    Multiplicative(Box<[PrecondSpec; 2]>),
    /// The first, the second, and the first again. The result is symmetric if both are.
    Symmetric(Box<[PrecondSpec; 2]>),
    /// A preconditioner for each field of a coupled system.
    Split(SplitSpec),
    /// A correction of one field, decoupled from the others: the first stage of CPR.
    Cpr(CprSpec),
    /// A correction in an auxiliary space.
    Aux(AuxSpec),
    /// An inner solve with a fixed number of iterations.
    Inner(InnerSpec),
    /// Local systems around the constraints of a saddle point.
    Vanka(VankaSpec),
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
    /// The shape of a tile; by default the device chooses it.
    pub tile: TileShape,
    /// The factorisation of each tile; by default the symmetry of the values decides.
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
    /// Largest number of block rows of a subdomain. The default depends on the order of blocks.
    pub rows: Option<usize>,
    /// Method of cutting subdomains.
    pub cut: SubdomainCut,
    /// Shift of a pivot that cannot be inverted, relative to the largest entry of its row.
    pub shift: Option<f64>,
}

/// Number of unknowns up to which a system is a single subdomain, if the device does not limit subdomains.
/// One thread then solves with the factors in about 50 µs. Larger systems gain from several threads.
const AS_ONE: usize = 1 << 12;

/// Largest level of fill. A higher number is a mistake, and with `cut=whole` it would make a slow direct
/// solver.
const MOST_FILL: usize = 1000;

/// Largest number of cells of a tile in one direction. A higher number is a mistake.
const MOST_CELLS: usize = 1 << 20;

/// Largest number of parts of a combined preconditioner. More are a mistake, or an attempt to overflow the
/// stack.
const MOST_PARTS: usize = 64;

impl std::str::FromStr for PrecondSpec {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        // Names, keys and numbers are case-insensitive.
        let text = &*text.to_ascii_lowercase();
        // The number of parts is limited, because code reads, prints and applies them recursively.
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
        // A + in a number such as 1e+3 is followed by a digit. A name begins with a letter.
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
            // `ildu0` is the name in earlier versions and remains valid.
            "ildu" | "ildu0" => IlduSpec::read(name, parameters).map(PrecondSpec::Ildu),
            "stage" => IlduSpec::read(name, parameters).map(PrecondSpec::Stage),
            "ras" => RasSpec::read(parameters).map(PrecondSpec::Ras),
            "vanka" => VankaSpec::read(parameters).map(PrecondSpec::Vanka),
            "amg" => AmgSpec::read(name, parameters).map(PrecondSpec::Amg),
            "coarse" => AmgSpec::read(name, parameters).map(PrecondSpec::Coarse),
            "ilu0" => Err(Error::invalid(
                "unknown preconditioner `ilu0`; ILU(0) of the whole matrix is ildu:cut=whole; did you mean `ildu`?",
            )),
            _ => elsewhere::meant(name).unwrap_or_else(|| unknown("preconditioner", name, KNOWN)),
        }
    }
}

/// The separator of parts that are applied one after the other.
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

/// Parses the text inside `symmetric(…)`. If it has more than two parts, the first is applied before and
/// after the symmetric form of the others.
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
            PrecondSpec::Stages(of) => write!(f, "stage({of})"),
            PrecondSpec::Ras(ras) => ras.spelt(f),
            PrecondSpec::Amg(amg) => amg.spelt("amg", f),
            PrecondSpec::Coarse(amg) => amg.spelt("coarse", f),
            PrecondSpec::Sum(parts) => write!(f, "{}+{}", parts[0], parts[1]),
            PrecondSpec::Multiplicative(parts) => write!(f, "{} then {}", parts[0], parts[1]),
            PrecondSpec::Symmetric(parts) => write!(f, "symmetric({} then {})", parts[0], parts[1]),
            PrecondSpec::Split(split) => write!(f, "{split}"),
            PrecondSpec::Cpr(cpr) => write!(f, "{cpr}"),
            PrecondSpec::Aux(aux) => write!(f, "{aux}"),
            PrecondSpec::Inner(inner) => write!(f, "{inner}"),
            PrecondSpec::Vanka(vanka) => vanka.spelt(f),
        }
    }
}

impl PrecondSpec {
    /// Returns true if an application computes a product with the operator.
    pub fn multiplies(&self) -> bool {
        match self {
            PrecondSpec::Multiplicative(_)
            | PrecondSpec::Symmetric(_)
            | PrecondSpec::Amg(_)
            | PrecondSpec::Coarse(_)
            | PrecondSpec::Inner(_)
            | PrecondSpec::Lu(_) => true,
            PrecondSpec::Sum(parts) => parts.iter().any(Self::multiplies),
            PrecondSpec::Vanka(vanka) => vanka.has_levels(),
            _ => false,
        }
    }

    /// Returns the preconditioners that this is composed of.
    pub(crate) fn parts(&self) -> Vec<&Self> {
        match self {
            PrecondSpec::Sum(parts) | PrecondSpec::Multiplicative(parts) | PrecondSpec::Symmetric(parts) => {
                parts.iter().collect()
            }
            PrecondSpec::Split(split) => split.parts.iter().map(|(_, part)| part).collect(),
            PrecondSpec::Cpr(cpr) => vec![&*cpr.precond],
            PrecondSpec::Aux(aux) => vec![&*aux.precond],
            PrecondSpec::Inner(inner) => vec![&*inner.precond],
            PrecondSpec::Stages(of) => vec![&**of],
            _ => Vec::new(),
        }
    }

    /// Returns true if it names fields of the system, or looks for its constraints.
    pub(crate) fn names_fields(&self) -> bool {
        matches!(
            self,
            PrecondSpec::Split(_) | PrecondSpec::Cpr(_) | PrecondSpec::Aux(_) | PrecondSpec::Vanka(_)
        ) || self.parts().into_iter().any(Self::names_fields)
    }

    /// Returns the same preconditioner with every sweep in a fixed order, which is bitwise reproducible.
    pub(crate) fn in_fixed_order(self) -> Self {
        self.with_each(&|part| match part {
            PrecondSpec::Ras(ras) => PrecondSpec::Ras(RasSpec { deterministic: true, ..ras }),
            // The factors of MUMPS depend on the order in which messages arrive.
            PrecondSpec::Lu(lu) => PrecondSpec::Lu(lu.in_fixed_order()),
            other => other,
        })
    }

    /// Returns the same preconditioner with cycles in f64, whatever the keys of `amg` say.
    pub(crate) fn in_f64(self) -> Self {
        let wide = |amg: AmgSpec| AmgSpec { compute: Some(PrecondPrecision::F64), ..amg };
        self.with_each(&|part| match part {
            PrecondSpec::Amg(amg) => PrecondSpec::Amg(wide(amg)),
            PrecondSpec::Coarse(amg) => PrecondSpec::Coarse(wide(amg)),
            other => other,
        })
    }

    /// Changes every part that has no parts of its own.
    fn with_each(self, change: &dyn Fn(Self) -> Self) -> Self {
        let one = |part: Box<Self>| Box::new(part.with_each(change));
        let both = |parts: Box<[Self; 2]>| Box::new((*parts).map(|part| part.with_each(change)));
        match self {
            PrecondSpec::Sum(parts) => PrecondSpec::Sum(both(parts)),
            PrecondSpec::Multiplicative(parts) => PrecondSpec::Multiplicative(both(parts)),
            PrecondSpec::Symmetric(parts) => PrecondSpec::Symmetric(both(parts)),
            PrecondSpec::Split(mut split) => {
                let parts = split.parts.into_iter();
                split.parts = parts.map(|(label, part)| (label, part.with_each(change))).collect();
                PrecondSpec::Split(split)
            }
            PrecondSpec::Cpr(cpr) => PrecondSpec::Cpr(CprSpec { precond: one(cpr.precond), ..cpr }),
            PrecondSpec::Stages(of) => PrecondSpec::Stages(one(of)),
            PrecondSpec::Aux(aux) => PrecondSpec::Aux(AuxSpec { precond: one(aux.precond), ..aux }),
            PrecondSpec::Inner(inner) => {
                PrecondSpec::Inner(InnerSpec { precond: one(inner.precond), ..inner })
            }
            leaf => change(leaf),
        }
    }

    /// Returns the number of planes of a tile, if each rank must have a multiple of that number of whole
    /// planes of the grid.
    pub fn planes(&self) -> Option<usize> {
        match self {
            PrecondSpec::BlockJacobi(TileSpec { tile: TileShape::Box([_, _, z]), .. }) => Some(*z),
            // This is a multiple of the planes of a tile on a GPU, and the smallest number of planes of a
            // tile on a CPU.
            PrecondSpec::BlockJacobi(_) => Some(8),
            PrecondSpec::Sum(parts) | PrecondSpec::Multiplicative(parts) | PrecondSpec::Symmetric(parts) => {
                parts.iter().find_map(|part| part.planes())
            }
            _ => None,
        }
    }

    /// Returns the subdomains that the preconditioner needs, if any, for blocks of order b·s. Each rank then
    /// owns whole subdomains.
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
            | PrecondSpec::Aux(_)
            | PrecondSpec::Vanka(_)
            | PrecondSpec::Lu(_) => None,
            PrecondSpec::Inner(inner) => inner.precond.subdomains(order),
            PrecondSpec::Stages(of) => of.subdomains(order),
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

    /// Returns these parameters with the default of `stage` for `rows`. Blocks of one stage are small, so
    /// large subdomains gain more.
    pub fn of_stage(&self) -> Self {
        Self { rows: Some(self.rows.unwrap_or(2048)), ..*self }
    }

    /// Returns the subdomains for blocks of order b·s.
    pub fn subdomains(&self, order: usize) -> SubdomainSpec {
        SubdomainSpec { cut: self.cut, rows: self.most_rows(order) }
    }

    /// Returns these parameters for the system of one rank, which has `nodes` block rows. `most` is the
    /// largest number of block rows in a subdomain that the device supports. Without such a limit, as on a
    /// CPU, a small system is one subdomain unless `rows` is given. A cut would cost more in iterations than
    /// it saves by threads: orsreg_1, with 2,205 rows, takes 34 iterations as one subdomain and 138 as two.
    pub(crate) fn as_one(&self, order: usize, nodes: usize, most: usize) -> Self {
        let small = most == usize::MAX && nodes * order <= AS_ONE;
        Self { rows: self.rows.or_else(|| small.then_some(nodes.max(self.most_rows(order)))), ..*self }
    }

    /// Returns the largest number of block rows of a subdomain, for blocks of order b·s. With the default,
    /// the vector of a subdomain fits into the shared memory of a thread block, and levels are wide enough
    /// for its threads.
    pub fn most_rows(&self, order: usize) -> usize {
        self.rows.unwrap_or(match order {
            1..=4 => 2048,
            5..=8 => 256,
            _ => 128,
        })
    }
}
