//! From the name of a preconditioner to an operator on the device, and what there is to say of it.
//!
//! [`by_name`] is the one place where names become operators. Around what it builds stand, in this order, scaling and
//! null vectors that are projected out.

pub mod spelling;
pub mod subdomains;

use crate::auto::Attempt;
use crate::failure::{Failure, Result};
use crate::output::{count, plural, seconds};
use crate::report::Event;
use crate::run::Job;
use krylith::comm::{self, Communicator, agree};
use krylith::matrix::Bsr;
use krylith::operator::{LinearOperator, PointBlock, PointBlockSum, Terms};
use krylith::precond::{
    Additive, BlockDiagonal, BlockJacobi, Equilibrated, Ildu, IlduOptions, Multiplicative, NullSpace, Plan,
    Scaling, Stage, StageOptions, SubdomainFactors,
};
use krylith::{Error, Store};
use serde_json::{Map, Value};
use spelling::{Ildu0, Precond};
use std::borrow::Cow;
use std::rc::Rc;
use std::time::Instant;

/// What a device offers that can run every solve of the command line.
pub trait Machine: PointBlockSum + BlockDiagonal + SubdomainFactors + 'static {}
impl<S: PointBlockSum + BlockDiagonal + SubdomainFactors + 'static> Machine for S {}

/// P⁻¹ on the device; `None` is the identity.
pub type Boxed<S> = Option<Box<dyn LinearOperator<S>>>;

/// What a preconditioner is, for people and reports.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// The name on the command line.
    pub name: String,
    /// By the names of the command line.
    pub parameters: Map<String, Value>,
    /// Numbers that it stores, on all ranks.
    pub numbers: f64,
    /// Numbers of the assembled matrix that it was made of, where it keeps a pattern.
    pub matrix: f64,
    /// `point-block Jacobi 3×3`.
    pub text: String,
    /// More lines for people.
    pub details: Vec<String>,
    /// Why this one, where the program picked it.
    pub reason: String,
}

/// What stands at the right of A: null vectors projected out of the scaled preconditioner, or less. `a` is the job's
/// operator, which some preconditioners multiply with too.
///
/// # Errors
/// What was asked for and cannot be built; a device without room.
pub fn preconditioner<S: Machine>(
    space: &S,
    job: &Job,
    attempt: &Attempt,
    a: &Rc<PointBlock<S>>,
    events: &mut Vec<Event>,
) -> Result<(Boxed<S>, About)> {
    if attempt.equilibrate && space.comm().size() > 1 {
        return Err(Failure::usage(
            "--equilibrate works on one rank; leave it out, or solve on one GPU or one process",
        ));
    }
    let scaling = attempt.equilibrate.then(|| Scaling::find(job.terms));
    let scaled = scaling.as_ref().map(|s| s.scaled(job.terms)).transpose()?;
    let terms = scaled.as_ref().unwrap_or(job.terms);
    let wanted = &attempt.precond;
    let a = match &scaled {
        Some(scaled) if wanted.multiplies() => {
            &Rc::new(PointBlock::new(space, scaled, job.settings.store, false)?)
        }
        _ => a,
    };
    let (mut p, about) = by_name(space, terms, job, wanted, a, events)?;
    if let Some(scaling) = &scaling {
        p = Some(Box::new(Equilibrated::new(space, scaling, p)?));
    }
    if !job.null.is_empty() {
        p = Some(Box::new(agree(space.comm(), NullSpace::new(space, job.null, p))?));
    }
    Ok((p, about))
}

/// The preconditioner of this name for `terms`, which are the job's or a scaled copy of them, and `a` as an operator.
/// Collective.
///
/// # Errors
/// One that cannot be built for this matrix, with the row; a device without room.
pub fn by_name<S: Machine>(
    space: &S,
    terms: &Terms,
    job: &Job,
    wanted: &Precond,
    a: &Rc<PointBlock<S>>,
    events: &mut Vec<Event>,
) -> Result<(Boxed<S>, About)> {
    match wanted {
        Precond::None => Ok(none("")),
        Precond::Jacobi { block } => jacobi(space, terms, job, *block),
        Precond::Ildu0(ildu) => ildu0(space, terms, job, ildu),
        Precond::Stage(ildu) => stage(space, terms, job, ildu),
        Precond::Sum(parts) | Precond::Then(parts) => {
            let mut part = |wanted| -> Result<_> {
                let (p, about) = by_name(space, terms, job, wanted, a, events)?;
                Ok((p.ok_or_else(|| Failure::usage("a part of the preconditioner is none"))?, about))
            };
            let ((first, one), (second, two)) = (part(&parts[0])?, part(&parts[1])?);
            let then = matches!(wanted, Precond::Then(_));
            let p: krylith::Result<Box<dyn LinearOperator<S>>> = if then {
                Multiplicative::new(space, first, second, a.clone()).map(|p| Box::new(p) as _)
            } else {
                Additive::new(space, first, second).map(|p| Box::new(p) as _)
            };
            Ok((Some(agree(space.comm(), p)?), one.with(two, then)))
        }
        Precond::Auto => auto(space, terms, job, events),
    }
}

impl About {
    /// Both parts of a composition.
    fn with(self, other: Self, then: bool) -> Self {
        let named = |name: &str, mut parameters: Map<String, Value>| {
            parameters.insert("name".into(), name.into());
            Value::from(parameters)
        };
        let parameters = Map::from_iter([
            ("first".to_string(), named(&self.name, self.parameters)),
            ("second".into(), named(&other.name, other.parameters)),
        ]);
        let (name, text) = if then { (" then ", ", then ") } else { ("+", " + ") };
        Self {
            name: self.name + name + &other.name,
            parameters,
            numbers: self.numbers + other.numbers,
            matrix: self.matrix + other.matrix,
            text: self.text + text + &other.text,
            details: [self.details, other.details].concat(),
            reason: String::new(),
        }
    }
}

fn none<S: Machine>(reason: &str) -> (Boxed<S>, About) {
    let (name, text) = ("none".into(), "no preconditioner".into());
    (None, About { name, text, reason: reason.into(), ..About::default() })
}

/// A block row of one rank under its number in the whole system.
fn named<T>(job: &Job, result: krylith::Result<T>) -> krylith::Result<T> {
    let number = |row: usize| job.numbers.map_or(row, |numbers| numbers[row] as usize);
    result.map_err(|e| match e {
        Error::SingularBlock { row, kind, remedy } => Error::SingularBlock { row: number(row), kind, remedy },
        Error::Pivot { row, kind, remedy } => Error::Pivot { row: number(row), kind, remedy },
        e => e,
    })
}

fn jacobi<S: Machine>(
    space: &S,
    terms: &Terms,
    job: &Job,
    block: Option<usize>,
) -> Result<(Boxed<S>, About)> {
    let b = terms.block();
    let size = block.unwrap_or(b);
    if !b.is_multiple_of(size) {
        return Err(Failure::usage(format!(
            "--precond jacobi:block={size}: the size must divide the system's block size {b}"
        )));
    }
    let diagonal = if size == b { None } else { Some(diagonal(terms, size)?) };
    let jacobi = BlockJacobi::new(space, diagonal.as_ref().unwrap_or(terms), job.settings.store);
    let jacobi = agree(space.comm(), named(job, jacobi))?;
    Ok((Some(Box::new(jacobi)), about_jacobi(space.comm(), terms, size, "")?))
}

fn about_jacobi(comm: &dyn Communicator, terms: &Terms, size: usize, reason: &str) -> Result<About> {
    let s = terms.stages();
    let mut numbers = [(terms.rows() * size * s) as f64];
    comm.sum(&mut numbers)?;
    let text = match size {
        1 if s == 1 => "point Jacobi".into(),
        b if s == 1 => format!("point-block Jacobi {b}×{b}"),
        b => format!("point-block Jacobi {0}×{0} ({b} × {s} stages)", b * s),
    };
    Ok(About {
        name: "jacobi".into(),
        parameters: Map::from_iter([("block".to_string(), size.into())]),
        numbers: numbers[0],
        matrix: 0.0,
        text,
        details: Vec::new(),
        reason: reason.into(),
    })
}

/// Jacobi where every diagonal block can be inverted, else nothing.
fn auto<S: Machine>(
    space: &S,
    terms: &Terms,
    job: &Job,
    events: &mut Vec<Event>,
) -> Result<(Boxed<S>, About)> {
    let jacobi = named(job, BlockJacobi::new(space, terms, job.settings.store));
    let singular = match &jacobi {
        Err(Error::SingularBlock { row, kind, .. }) => Some((*row, *kind)),
        _ => None,
    };
    // A block that one rank cannot invert changes the preconditioner of all.
    if !space.any(singular.is_some())? {
        let jacobi = agree(space.comm(), jacobi)?;
        let reason = "auto: every diagonal block can be inverted";
        return Ok((Some(Box::new(jacobi)), about_jacobi(space.comm(), terms, terms.block(), reason)?));
    }
    if let Err(e) = jacobi
        && singular.is_none()
    {
        return Err(e.into());
    }
    let which = match singular {
        Some((row, kind)) => format!("block row {row} has a {kind} diagonal block"),
        None => "another rank has a diagonal block that cannot be inverted".into(),
    };
    let detail = format!("no preconditioner instead of jacobi: {which}");
    events.push(Event::new("fallback", None, detail));
    Ok(none("auto: a diagonal block cannot be inverted"))
}

/// Incomplete factors of subdomains.
fn ildu0<S: Machine>(space: &S, terms: &Terms, job: &Job, ildu: &Ildu0) -> Result<(Boxed<S>, About)> {
    let start = Instant::now();
    let comm = space.comm();
    let (subdomains, way) = agree(comm, subdomains::own(job, terms, ildu))?;
    let options = IlduOptions { fill: ildu.fill, store: job.settings.store, shift: ildu.shift };
    let factors = agree(comm, named(job, Ildu::new(space, terms, &subdomains, options)))?;
    let (plan, shifted) = (factors.plan(), factors.pivots().shifted);
    let about = about_factors(comm, ildu, plan, 1, shifted, &way, start)?;
    let about = About { name: "ildu0".into(), text: format!("ILDU({}){}", ildu.fill, about.text), ..about };
    Ok((Some(Box::new(factors)), about))
}

/// Incomplete factors of every stage alone, coupled by the lower factor of the Butcher matrix.
fn stage<S: Machine>(space: &S, terms: &Terms, job: &Job, ildu: &Ildu0) -> Result<(Boxed<S>, About)> {
    let start = Instant::now();
    let (comm, s) = (space.comm(), terms.stages());
    let ildu = &ildu.of_stage();
    let (subdomains, way) = agree(comm, subdomains::own(job, terms, ildu))?;
    let options = IlduOptions { fill: ildu.fill, store: job.settings.store, shift: ildu.shift };
    let options = StageOptions { ildu: options, coupled: true };
    let stages = agree(comm, named(job, Stage::new(space, terms, &subdomains, options)))?;
    let shifted = (0..s).map(|k| stages.stage(k).pivots().shifted).sum();
    let about = about_factors(comm, ildu, stages.plan(), s, shifted, &way, start)?;
    let text = format!("{}, each by ILDU({}){}", plural(s, "stage"), ildu.fill, about.text);
    let about = About { name: "stage".into(), text, ..about };
    Ok((Some(Box::new(stages)), about))
}

/// What there is to say of `times` factors on one plan; the name is the caller's, and the text has what follows its own.
fn about_factors(
    comm: &dyn Communicator,
    ildu: &Ildu0,
    plan: &Plan,
    times: usize,
    shifted: usize,
    way: &str,
    start: Instant,
) -> Result<About> {
    let deepest = plan.level_ptr.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
    let mut sums = [plan.count(), plan.entries(), plan.dropped, plan.stored, shifted].map(|n| n as f64);
    comm.sum(&mut sums)?;
    let [subdomains, entries, dropped, stored, shifted] = sums;
    let levels = comm::largest(comm, deepest as f64)? as usize;
    let largest = comm::largest(comm, plan.largest() as f64)? as usize;
    let dropped = dropped / stored.max(1.0);
    let mut parameters = Map::from_iter([
        ("fill".to_string(), Value::from(ildu.fill)),
        ("rows".into(), ildu.most_rows(plan.order).into()),
        ("cut".into(), ildu.cut.name().into()),
        ("subdomains".into(), (subdomains as usize).into()),
        ("levels".into(), levels.into()),
        ("dropped".into(), dropped.into()),
    ]);
    let mut details = vec![format!(
        "{} of at most {} block rows ({way}), {}, {:.1} % of the blocks dropped, set up in {}",
        plural(subdomains as usize, "subdomain"),
        count(largest),
        plural(levels, "level"),
        100.0 * dropped,
        seconds(start.elapsed().as_secs_f64()),
    )];
    if let Some(shift) = ildu.shift {
        parameters.insert("shift".into(), shift.into());
        parameters.insert("shifted".into(), (shifted as usize).into());
        details.push(format!("{} shifted by {shift:e} of their row", plural(shifted as usize, "pivot")));
    }
    let square = (plan.order * plan.order * times) as f64;
    let (numbers, matrix) = (entries * square, stored * square);
    // Whole factors are no subdomains.
    let text = if subdomains > 1.0 { " of subdomains" } else { "" }.into();
    Ok(About { parameters, numbers, matrix, text, details, ..About::default() })
}

/// The diagonal of every term, cut into smaller blocks.
fn diagonal(terms: &Terms, size: usize) -> Result<Terms<'static>> {
    let (b, n) = (terms.block(), terms.block_rows());
    let parts = b / size;
    let mut small = Vec::new();
    for (c, a) in &terms.terms {
        let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
        for i in 0..n {
            let block = a.diagonal_block(i);
            for part in 0..parts {
                if let Some(block) = block {
                    col.push((i * parts + part) as u32);
                    for r in part * size..(part + 1) * size {
                        values.extend_from_slice(&block[r * b + part * size..][..size]);
                    }
                }
                row_ptr.push(col.len());
            }
        }
        small.push((c.clone(), Cow::Owned(Bsr::new(size, n * parts, n * parts, row_ptr, col, values)?)));
    }
    Ok(Terms { terms: small, halo: None })
}

/// Bytes that a preconditioner will want on the device, as far as they can be told before it is built.
pub fn memory(terms: &Terms, wanted: &Precond, store: Store) -> u64 {
    let order = (terms.block() * terms.stages()) as u64;
    let (n, width) = (terms.rows() as u64, store.bytes() as u64);
    match wanted {
        Precond::None => 0,
        // The blocks are kept twice: in f64 to be refreshed, and as stored on the device.
        Precond::Auto | Precond::Jacobi { .. } => n * order * (8 + width),
        Precond::Ildu0(ildu) => factors(terms, ildu.fill, order, width),
        // Every stage has its factors, with blocks of M's order; the product that couples them is stored like L.
        Precond::Stage(ildu) => {
            let (b, stages) = (terms.block(), terms.stages() as u64);
            let coupling: u64 = terms.terms.iter().map(|t| t.1.values().len() as u64 * width).sum();
            stages * factors(terms, ildu.fill, b as u64, width) + coupling + 8 * n
        }
        Precond::Sum(parts) => parts.iter().map(|part| memory(terms, part, store)).sum::<u64>() + 8 * n,
        Precond::Then(parts) => parts.iter().map(|part| memory(terms, part, store)).sum::<u64>() + 16 * n,
    }
}

/// Bytes of factors of every block that the terms store.
fn factors(terms: &Terms, fill: usize, order: u64, width: u64) -> u64 {
    let all = if terms.shared_pattern() { &terms.terms[..1] } else { &terms.terms[..] };
    let blocks: u64 = all.iter().map(|t| t.1.blocks() as u64).sum();
    // A guess: each level of fill brings as many blocks as the matrix has. A working copy in f64 with its pattern, and
    // the stream that is read in an application.
    blocks * (1 + fill as u64) * (order * order * (8 + width) + 4 + 2)
}
