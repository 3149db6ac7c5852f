//! Builds a preconditioner on a device from its specification, with the description for reports.
//!
//! [`by_name`] is the only function that turns names into operators. Scaling, and then the projection of null
//! vectors, wrap its result.

mod auxiliary;
mod compose;
mod cpr;
mod fieldwise;
mod ghosts;
mod given;
#[cfg(feature = "lu")]
mod lu;
mod matched;
mod memory;
mod multilevel;
mod part;
mod precision;
mod schur;
mod schwarz;
mod split;
mod stages;
mod tiles;
mod vanka;

use auxiliary::Auxiliary;
use cpr::FirstStage;
use fieldwise::Fieldwise;
use precision::{computed_in, say_computed};
use split::Fielded;

use crate::comm::{self, Communicator, agree};
use crate::matrix::{Bsr, Dense};
use crate::operator::{Format, LinearOperator, PointBlock, TermValues, Terms};
use crate::options::Options;
use crate::partition::{self, Subdomains};
use crate::precond::untouched::{Known, Untouched};
use crate::precond::{
    BlockJacobi, BlockTiles, Boxed, Equilibrated, Ildu, IlduOptions, IlduSpec, Inner, InnerMethod, InnerSpec,
    LeftNull, NullSpace, Outline, PrecondInfo, PrecondSpec, Preconditioner, SharedOperator, Stage,
    StageOptions, Value,
};
use crate::problem::LocalProblem;
use crate::profile::{self, SetupPart};
use crate::solver::SolverSpace;
use crate::solver::fallbacks::Attempt;
use crate::space::Precision;
use crate::text::{count, plural, seconds};
use crate::{Error, Result};
use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

/// Builds the right preconditioner of an attempt, including scaling and the projection of null vectors if the
/// attempt needs them. Also returns the description for reports. Collective.
///
/// # Errors
/// The requested preconditioner cannot be built; out of device memory.
pub(crate) fn build<S: SolverSpace>(
    space: &S,
    local: &LocalProblem,
    attempt: &Attempt,
    precision: Precision,
    a: &SharedOperator<S>,
    known: Known,
    notes: &mut Vec<String>,
) -> Result<(Boxed<S>, PrecondInfo)> {
    let wanted = &attempt.precond;
    if wanted.names_fields() && (attempt.matching || attempt.equilibrate) {
        let option = if attempt.matching { "matching" } else { "equilibrate" };
        return Err(Error::Unsupported(format!(
            "{option}=true changes the rows that {wanted} takes by field; leave {option} out"
        )));
    }
    let (mut p, info);
    let given = local.null;
    let local = &LocalProblem { null: if given.is_empty() { known.null } else { given }, ..*local };
    if attempt.matching {
        (p, info) = matched::build(space, local, wanted, precision, a, known.matching, notes)?;
    } else if attempt.equilibrate {
        let comm = space.comm();
        let survey = profile::begin(SetupPart::SystemAnalysis);
        let (factors, terms) = space.equilibrate(local.terms)?;
        drop(survey);
        let own = match wanted.multiplies() {
            true => {
                let operator = agree(comm, PointBlock::new(space, &terms, precision, false))?;
                Some(Rc::new(RefCell::new(operator)))
            }
            false => None,
        };
        // The scaled matrix has different near-null vectors.
        if local.near.is_some() {
            notes.push(
                "near-null vectors are ignored: they do not fit the matrix with scaled rows and columns"
                    .into(),
            );
        }
        let local = &LocalProblem { near: None, ..*local };
        let inner;
        (inner, info) = by_name(space, &terms, local, wanted, precision, own.as_ref().unwrap_or(a), notes)?;
        let scaled = agree(comm, Equilibrated::with_factors(space, factors, inner))?;
        p = Some(Box::new(Scaled { scaled, operator: own }) as Box<dyn Preconditioner<S>>);
    } else {
        (p, info) = by_name(space, local.terms, local, wanted, precision, a, notes)?;
    }
    if let Some(unknowns) = known.untouched {
        p = Some(Box::new(agree(space.comm(), Untouched::new(space, unknowns, p))?));
    }
    if !given.is_empty() {
        p = Some(Box::new(agree(space.comm(), NullSpace::new(space, given, p))?));
    }
    Ok((p, info))
}

/// Builds the preconditioner `wanted` for `terms`, which are those of the problem or a scaled copy. `a` is
/// the same matrix as an operator. Collective.
fn by_name<S: SolverSpace>(
    space: &S,
    terms: &Terms,
    local: &LocalProblem,
    wanted: &PrecondSpec,
    precision: Precision,
    a: &SharedOperator<S>,
    notes: &mut Vec<String>,
) -> Result<(Boxed<S>, PrecondInfo)> {
    match wanted {
        PrecondSpec::None => Ok(none("")),
        PrecondSpec::Jacobi { block } => jacobi(space, terms, local, *block, precision),
        PrecondSpec::BlockJacobi(spec) => tiles::build(space, terms, local, spec, precision),
        PrecondSpec::Ildu(spec) => ildu(space, terms, local, spec, precision),
        PrecondSpec::Stage(spec) => stage(space, terms, local, spec, precision),
        PrecondSpec::Stages(spec) => stages::build(space, terms, local, spec, precision, notes),
        PrecondSpec::Ras(spec) => schwarz::build(space, terms, local, spec, precision, notes),
        PrecondSpec::Amg(spec) | PrecondSpec::Coarse(spec) => {
            let smoothed = matches!(wanted, PrecondSpec::Amg(_));
            multilevel::build(space, terms, local, (spec, smoothed), precision, a)
        }
        #[cfg(feature = "lu")]
        PrecondSpec::Lu(spec) => lu::build(space, terms, local, *spec, a),
        #[cfg(not(feature = "lu"))]
        PrecondSpec::Lu(_) => {
            Err(Error::Unsupported("lu: this build has no direct solver; build with the feature `lu`".into()))
        }
        PrecondSpec::Sum(parts) | PrecondSpec::Multiplicative(parts) | PrecondSpec::Symmetric(parts) => {
            let mut part = |wanted| -> Result<_> {
                let (p, info) = by_name(space, terms, local, wanted, precision, a, notes)?;
                Ok((
                    p.ok_or_else(|| {
                        Error::invalid("`none` cannot be one component of a composite preconditioner")
                    })?,
                    info,
                ))
            };
            let parts = [part(&parts[0])?, part(&parts[1])?];
            compose::build(space, wanted, parts, a)
        }
        PrecondSpec::Split(spec) => split::build(space, terms, local, spec, precision, notes),
        PrecondSpec::Cpr(spec) => cpr::build(space, terms, local, spec, precision, notes),
        PrecondSpec::Aux(spec) => auxiliary::build(space, terms, local, spec, precision, notes),
        PrecondSpec::Inner(spec) => inner(space, terms, local, spec, precision, a, notes),
        PrecondSpec::Vanka(spec) => vanka::build(space, terms, local, spec, precision, a),
        PrecondSpec::Auto => auto(space, terms, local, precision, notes),
    }
}

/// Builds an inner solve with a fixed number of iterations.
fn inner<S: SolverSpace>(
    space: &S,
    terms: &Terms,
    local: &LocalProblem,
    spec: &InnerSpec,
    precision: Precision,
    a: &SharedOperator<S>,
    notes: &mut Vec<String>,
) -> Result<(Boxed<S>, PrecondInfo)> {
    let (method, iterations) = (spec.method, spec.iterations);
    let (inverse, info) = by_name(space, terms, local, &spec.precond, precision, a, notes)?;
    let name = method.name();
    let inverse = inverse
        .ok_or_else(|| Error::invalid(format!("{name}(…) needs a preconditioner, such as {name}(jacobi)")))?;
    if method == InnerMethod::Cg && !info.keeps_symmetry {
        return Err(Error::invalid(format!(
            "cg({}): {} may be unsymmetric although the matrix is symmetric; inner CG needs a symmetric part, such as amg",
            spec.precond, spec.precond
        )));
    }
    let inner = agree(space.comm(), Inner::new(space, method, (iterations, spec.low), a.clone(), inverse))?;
    let (word, key) = match method {
        InnerMethod::Cg => (format!("{iterations} iterations of CG with"), "iterations"),
        InnerMethod::Chebyshev => (format!("a Chebyshev polynomial of degree {iterations} with"), "degree"),
    };
    let own = [("name".to_string(), Value::Text(info.name))].into_iter().chain(info.parameters).collect();
    let mut parameters =
        vec![(key.to_string(), Value::Count(iterations as u64)), ("precond".into(), Value::Parameters(own))];
    let mut details = info.details;
    if method == InnerMethod::Chebyshev {
        let [low, high] = inner.spectrum();
        parameters.extend([("low".into(), Value::Number(low)), ("high".into(), Value::Number(high))]);
        details.push(format!("Chebyshev polynomial of the eigenvalues from {low:.3} to {high:.3}"));
    }
    let keeps_symmetry = method == InnerMethod::Chebyshev && info.keeps_symmetry;
    let text = format!("{word} {}", info.text);
    let info = PrecondInfo { name: name.into(), parameters, text, details, keeps_symmetry, ..info };
    Ok((Some(Box::new(inner)), info))
}

fn none<S: SolverSpace>(reason: &str) -> (Boxed<S>, PrecondInfo) {
    let (name, text) = ("none".into(), "no preconditioner".into());
    let info = PrecondInfo { name, text, reason: reason.into(), keeps_symmetry: true, ..Default::default() };
    (None, info)
}

/// Replaces local block row numbers in errors by global ones.
fn numbered<T>(local: &LocalProblem, result: Result<T>) -> Result<T> {
    let number = |row: usize| local.numbers.map_or(row, |numbers| numbers.at(row) as usize);
    result.map_err(|e| match e {
        Error::SingularBlock { row, kind, remedy } => Error::SingularBlock { row: number(row), kind, remedy },
        Error::Pivot { row, kind, remedy } => Error::Pivot { row: number(row), kind, remedy },
        e => e,
    })
}

fn jacobi<S: SolverSpace>(
    space: &S,
    terms: &Terms,
    local: &LocalProblem,
    block: Option<usize>,
    precision: Precision,
) -> Result<(Boxed<S>, PrecondInfo)> {
    let b = terms.block();
    let size = block.unwrap_or(b);
    if !b.is_multiple_of(size) {
        return Err(Error::invalid(format!(
            "jacobi:block={size}: the size must divide the system's block size {b}"
        )));
    }
    let _factors = profile::begin(SetupPart::Factors);
    let p: Result<Box<dyn Preconditioner<S>>> = if size == b {
        numbered(local, BlockJacobi::new(space, terms, precision)).map(|p| Box::new(p) as _)
    } else {
        let small = diagonal(terms, size).and_then(|terms| BlockJacobi::new(space, &terms, precision));
        numbered(local, small).map(|jacobi| Box::new(SmallJacobi { jacobi, size }) as _)
    };
    Ok((Some(agree(space.comm(), p)?), jacobi_info(space.comm(), terms, size, "")?))
}

/// Builds Jacobi of the whole vector, which every rank has, from the diagonal blocks of all ranks. Not
/// collective.
pub(super) fn whole_jacobi<S: SolverSpace>(
    space: &S,
    diagonal: &Terms,
    local: &LocalProblem,
    block: Option<usize>,
) -> Result<Boxed<S>> {
    let whole = LocalProblem { numbers: None, ..*local };
    jacobi(space, diagonal, &whole, block, Precision::F64).map(|(p, _)| p)
}

fn jacobi_info(comm: &dyn Communicator, terms: &Terms, size: usize, reason: &str) -> Result<PrecondInfo> {
    let s = terms.stages();
    let mut numbers = [(terms.rows() * size * s) as f64];
    comm.sum(&mut numbers)?;
    let text = match size {
        1 if s == 1 => "point Jacobi".into(),
        b if s == 1 => format!("point-block Jacobi {b}×{b}"),
        b => format!("point-block Jacobi {0}×{0} ({b} × {s} stages)", b * s),
    };
    Ok(PrecondInfo {
        name: "jacobi".into(),
        parameters: vec![("block".to_string(), Value::Count(size as u64))],
        numbers: numbers[0],
        text,
        reason: reason.into(),
        keeps_symmetry: true,
        ..PrecondInfo::default()
    })
}

/// Builds Jacobi if every diagonal block can be inverted, else no preconditioner.
fn auto<S: SolverSpace>(
    space: &S,
    terms: &Terms,
    local: &LocalProblem,
    precision: Precision,
    notes: &mut Vec<String>,
) -> Result<(Boxed<S>, PrecondInfo)> {
    let _factors = profile::begin(SetupPart::Factors);
    let jacobi = numbered(local, BlockJacobi::new(space, terms, precision));
    let singular = match &jacobi {
        Err(Error::SingularBlock { row, kind, .. }) => Some((*row, *kind)),
        _ => None,
    };
    // If one rank cannot invert a block, all ranks go without Jacobi.
    if !space.any(singular.is_some())? {
        let jacobi = agree(space.comm(), jacobi)?;
        let reason = "auto: every diagonal block can be inverted";
        return Ok((Some(Box::new(jacobi)), jacobi_info(space.comm(), terms, terms.block(), reason)?));
    }
    if let Err(e) = jacobi
        && singular.is_none()
    {
        return Err(e);
    }
    let which = match singular {
        Some((row, kind)) => format!("block row {row} has a {kind} diagonal block"),
        None => "another rank has a diagonal block that cannot be inverted".into(),
    };
    notes.push(format!("no preconditioner, because jacobi cannot be built: {which}"));
    Ok(none("auto: a diagonal block cannot be inverted"))
}

/// Returns the subdomains of own rows, which were planned earlier or are cut now. Collective.
fn subdomains<S: SolverSpace>(
    space: &S,
    local: &LocalProblem,
    terms: &Terms,
    spec: &IlduSpec,
) -> Result<(Subdomains, String)> {
    let _cutting = profile::begin(SetupPart::Subdomains);
    let spec = spec.subdomains(terms.block() * terms.stages());
    let Some(numbers) = local.numbers else {
        let device = |rows| space.cut_graph(terms, rows);
        return partition::of_whole_on(terms, local.coordinates, local.grid, spec, &device);
    };
    match local.subdomains.filter(|planned| planned.spec == spec) {
        Some(planned) => Ok((planned.subdomains.clone(), planned.reason.clone())),
        None => partition::of_rank(local.comm, terms, numbers, local.coordinates, local.grid, spec),
    }
}

/// Builds incomplete factors of subdomains.
fn ildu<S: SolverSpace>(
    space: &S,
    terms: &Terms,
    local: &LocalProblem,
    spec: &IlduSpec,
    precision: Precision,
) -> Result<(Boxed<S>, PrecondInfo)> {
    let start = Instant::now();
    let comm = space.comm();
    let (order, whole) = (terms.block() * terms.stages(), local.numbers.is_none());
    let spec = &if whole { spec.as_one(order, terms.block_rows(), space.most_rows(order)) } else { *spec };
    let (subdomains, way) = agree(comm, subdomains(space, local, terms, spec))?;
    let compute = computed_in(local);
    let options = IlduOptions { fill: spec.fill, precision, compute, shift: spec.shift };
    let _analysis = profile::begin(SetupPart::Analysis);
    let factors = agree(comm, numbered(local, Ildu::new(space, terms, &subdomains, options)))?;
    let (plan, shifted) = (factors.outline(), factors.pivots().shifted);
    let mut info = factors_info(comm, spec, plan, 1, shifted, &way, start)?;
    say_computed(comm, local, factors.is_narrow(), &mut info)?;
    let text = format!("ILDU({}){}", spec.fill, info.text);
    let info = PrecondInfo { name: "ildu".into(), text, keeps_symmetry: spec.shift.is_none(), ..info };
    Ok((Some(Box::new(factors)), info))
}

/// Builds incomplete factors of each stage, coupled by the lower factor of the Butcher matrix.
fn stage<S: SolverSpace>(
    space: &S,
    terms: &Terms,
    local: &LocalProblem,
    spec: &IlduSpec,
    precision: Precision,
) -> Result<(Boxed<S>, PrecondInfo)> {
    let start = Instant::now();
    let (comm, s) = (space.comm(), terms.stages());
    let spec = &spec.of_stage();
    let (subdomains, way) = agree(comm, subdomains(space, local, terms, spec))?;
    let options = IlduOptions { fill: spec.fill, precision, shift: spec.shift, ..IlduOptions::default() };
    let options = StageOptions { ildu: options, coupled: true };
    let _analysis = profile::begin(SetupPart::Analysis);
    let stages = agree(comm, numbered(local, Stage::new(space, terms, &subdomains, options)))?;
    let shifted = (0..s).map(|k| stages.stage(k).pivots().shifted).sum();
    let info = factors_info(comm, spec, stages.outline(), s, shifted, &way, start)?;
    let text = format!("{}, each by ILDU({}){}", plural(s, "stage"), spec.fill, info.text);
    Ok((Some(Box::new(stages)), PrecondInfo { name: "stage".into(), text, ..info }))
}

/// Describes `times` factors that share one plan. The caller sets the name, and puts its own text before this
/// text.
fn factors_info(
    comm: &dyn Communicator,
    spec: &IlduSpec,
    plan: &Outline,
    times: usize,
    shifted: usize,
    way: &str,
    start: Instant,
) -> Result<PrecondInfo> {
    let mut sums = [plan.subdomains, plan.entries, plan.dropped, plan.stored, shifted].map(|n| n as f64);
    comm.sum(&mut sums)?;
    let [subdomains, entries, dropped, stored, shifted] = sums;
    let levels = comm::largest(comm, plan.deepest as f64)? as usize;
    let largest = comm::largest(comm, plan.largest as f64)? as usize;
    let dropped = dropped / stored.max(1.0);
    let counted = |n: usize| Value::Count(n as u64);
    let mut parameters = vec![
        ("fill".to_string(), counted(spec.fill)),
        ("rows".into(), counted(spec.most_rows(plan.order))),
        ("cut".into(), Value::Text(spec.cut.name().into())),
        ("subdomains".into(), counted(subdomains as usize)),
        ("levels".into(), counted(levels)),
        ("dropped".into(), Value::Number(dropped)),
    ];
    let mut details = vec![format!(
        "{} of at most {} block rows ({way}), {}, {:.1} % of the blocks dropped, set up in {}",
        plural(subdomains as usize, "subdomain"),
        count(largest),
        plural(levels, "level"),
        100.0 * dropped,
        seconds(start.elapsed().as_secs_f64()),
    )];
    if let Some(shift) = spec.shift {
        parameters.push(("shift".into(), Value::Number(shift)));
        parameters.push(("shifted".into(), counted(shifted as usize)));
        details.push(format!(
            "{} shifted by {shift:e} times the largest entry of the row",
            plural(shifted as usize, "pivot")
        ));
    }
    let square = (plan.order * plan.order * times) as f64;
    let (numbers, matrix) = (entries * square, stored * square);
    // With a single subdomain, the text does not mention subdomains.
    let text = if subdomains > 1.0 { " of subdomains" } else { "" }.into();
    Ok(PrecondInfo { parameters, numbers, matrix, text, details, ..PrecondInfo::default() })
}

/// Extracts the diagonal blocks of order `size` of every term.
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

/// Jacobi with smaller blocks than the matrix has.
struct SmallJacobi<S: SolverSpace> {
    jacobi: BlockJacobi<S>,
    size: usize,
}

/// A preconditioner of the scaled matrix. It includes the scaled matrix as an operator if the preconditioner
/// computes products with it.
struct Scaled<S: SolverSpace> {
    scaled: Equilibrated<S, Box<dyn Preconditioner<S>>>,
    operator: Option<SharedOperator<S>>,
}

/// Implements `LinearOperator` by delegating to a field.
macro_rules! applied_as {
    ($($name:ident . $inner:ident),*) => {$(
        impl<S: SolverSpace> LinearOperator<S> for $name<S> {
            fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
                self.$inner.apply(space, x, y)
            }
            fn has_transpose(&self) -> bool {
                self.$inner.has_transpose()
            }
            fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
                self.$inner.apply_transpose(space, x, y)
            }
            fn key(&self) -> u64 {
                self.$inner.key()
            }
            fn bytes(&self) -> u64 {
                self.$inner.bytes()
            }
            fn recordable(&self) -> bool {
                self.$inner.recordable()
            }
        }
    )*};
}
applied_as!(
    SmallJacobi.jacobi,
    Scaled.scaled,
    Auxiliary.correction,
    FirstStage.correction,
    Fielded.split,
    Fieldwise.cycle
);

impl<S: SolverSpace> Preconditioner<S> for SmallJacobi<S> {
    fn update_values(&mut self, space: &S, terms: &Terms, _: TermValues) -> Result<()> {
        self.jacobi.update_values(space, &diagonal(terms, self.size)?)
    }
}

impl<S: SolverSpace> Preconditioner<S> for Scaled<S> {
    fn update_values(&mut self, space: &S, terms: &Terms, _: TermValues) -> Result<()> {
        let (factors, terms) = space.equilibrate(terms)?;
        if let Some(a) = &self.operator {
            let mut a = a.borrow_mut();
            for (t, (_, matrix)) in terms.terms.iter().enumerate() {
                a.update_values(space, t, matrix.numbers())?;
            }
            let coefficients: Vec<Dense> = terms.terms.iter().map(|t| t.0.clone()).collect();
            space.update_coefficients(a.product_mut(), &coefficients)?;
        }
        self.scaled.update(space, &factors)?;
        let values = TermValues::from(&terms);
        self.scaled.inner_mut().map_or(Ok(()), |p| p.update_values(space, &terms, values))
    }
    fn prepare_transpose(&mut self, space: &S, terms: &Terms) -> Result<()> {
        let (_, terms) = space.equilibrate(terms)?;
        if let Some(a) = &self.operator {
            a.borrow_mut().prepare_transpose(space, &terms)?;
        }
        self.scaled.inner_mut().map_or(Ok(()), |p| p.prepare_transpose(space, &terms))
    }
    fn take_events(&mut self) -> Vec<String> {
        self.scaled.inner_mut().map_or_else(Vec::new, |p| p.take_events())
    }
    fn left_null_vectors(&self, space: &S) -> Result<LeftNull> {
        let Some(p) = self.scaled.inner() else { return Ok(LeftNull::default()) };
        let mut found = p.left_null_vectors(space)?;
        found.vectors.iter_mut().try_for_each(|n| self.scaled.scale_by_rows(space, n))?;
        Ok(found)
    }
}

impl<S: SolverSpace> Preconditioner<S> for BlockJacobi<S> {
    fn update_values(&mut self, space: &S, _: &Terms, values: TermValues) -> Result<()> {
        BlockJacobi::update_values(self, space, values)
    }
}

impl<S: SolverSpace> Preconditioner<S> for BlockTiles<S> {
    fn update_values(&mut self, space: &S, terms: &Terms, values: TermValues) -> Result<()> {
        BlockTiles::update_values(self, space, terms, values)
    }
}

impl<S: SolverSpace> Preconditioner<S> for Ildu<S> {
    fn update_values(&mut self, space: &S, _: &Terms, values: TermValues) -> Result<()> {
        Ildu::update_values(self, space, values)
    }
    fn prepare_transpose(&mut self, space: &S, _: &Terms) -> Result<()> {
        Ildu::prepare_transpose(self, space)
    }
}

impl<S: SolverSpace> Preconditioner<S> for Stage<S> {
    fn update_values(&mut self, space: &S, _: &Terms, values: TermValues) -> Result<()> {
        Stage::update_values(self, space, values)
    }
    fn prepare_transpose(&mut self, space: &S, terms: &Terms) -> Result<()> {
        Stage::prepare_transpose(self, space, terms)
    }
}

impl<S: SolverSpace> Preconditioner<S> for NullSpace<S, Box<dyn Preconditioner<S>>> {
    fn update_values(&mut self, space: &S, terms: &Terms, values: TermValues) -> Result<()> {
        self.inner_mut().map_or(Ok(()), |p| p.update_values(space, terms, values))
    }
    fn prepare_transpose(&mut self, space: &S, terms: &Terms) -> Result<()> {
        self.inner_mut().map_or(Ok(()), |p| p.prepare_transpose(space, terms))
    }
    fn take_events(&mut self) -> Vec<String> {
        self.inner_mut().map_or_else(Vec::new, |p| p.take_events())
    }
}

/// Builds the operator on the device. For a Kronecker sum it includes the data that an update of τ needs.
pub(super) fn operator<S: SolverSpace>(
    space: &S,
    local: &LocalProblem,
    precision: Precision,
    options: &Options,
) -> Result<PointBlock<S>> {
    let _product = profile::begin(SetupPart::Product);
    let terms: &Terms = local.terms;
    let format = options.format.unwrap_or_default();
    match local.stages {
        Some((_, b)) if format == Format::Auto => PointBlock::stages(space, terms, b, precision),
        _ => PointBlock::with_format(space, terms, precision, format),
    }
}
