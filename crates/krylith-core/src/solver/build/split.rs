//! Builds preconditioners for the fields of a coupled system: cuts the matrix into blocks, builds a
//! preconditioner for each field, and takes new values to all of them.

use super::{Boxed, LocalProblem, PrecondInfo, Preconditioner, SharedOperator, Value, by_name};
use crate::fields::{Field, Fields};
use crate::matrix::{Bsr, Csr};
use crate::operator::{LinearOperator, PointBlock, TermValues, Terms};
use crate::precond::split::blocks::{Blocked, Numbered, SubMatrix, host_values};
use crate::precond::split::product::{Weight, inverse_diagonal, product, update};
use crate::precond::split::{Around, Lsc, Part, Pcd, Split};
use crate::precond::{InnerMethod, InnerSpec, PrecondSpec, SchurSpec, SplitForm, SplitSpec};
use crate::profile::{self, SetupPart};
use crate::solver::SolverSpace;
use crate::space::Precision;
use crate::text::{plural, seconds};
use crate::{Error, Result};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

/// Degree of the Chebyshev polynomial that inverts a mass matrix.
const MASS_DEGREE: usize = 5;

/// Returns the fields of the parts, checked: together they have each unknown once.
pub(super) fn fields_of(local: &LocalProblem, labels: &[&str], name: &str) -> Result<Vec<Field>> {
    one_matrix(local, name)?;
    let fields = labels.iter().map(|label| local.fields.field(label)).collect::<Result<Vec<_>>>()?;
    let names: Vec<&str> = labels.iter().flat_map(|label| label.split('+')).collect();
    if let Some((_, twice)) = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
        return Err(Error::invalid(format!("{name}: the field `{twice}` is in two parts")));
    }
    let missing: Vec<&str> =
        local.fields.all().iter().map(Field::name).filter(|f| !names.contains(f)).collect();
    if !missing.is_empty() {
        return Err(Error::invalid(format!(
            "{name}: no part has the fields {}; every field needs a part",
            missing.join(", ")
        )));
    }
    Ok(fields)
}

/// Refuses systems that fields cannot cut yet.
pub(super) fn one_matrix(local: &LocalProblem, name: &str) -> Result<()> {
    if local.numbers.is_some() || local.terms.halo.is_some() {
        return Err(Error::Unsupported(format!(
            "{name} works on one device; the system is distributed over several. Use one device or one rank"
        )));
    }
    match local.terms.terms.len() == 1 && local.terms.stages() == 1 {
        true => Ok(()),
        false => Err(Error::Unsupported(format!("{name} needs one matrix; this system is a Kronecker sum"))),
    }
}

/// The matrix of a part in its own space, as blocks and as an operator.
pub(super) struct PartMatrix<S: SolverSpace> {
    pub blocked: Blocked,
    pub operator: SharedOperator<S>,
    precision: Precision,
}

impl<S: SolverSpace> PartMatrix<S> {
    /// Uploads a scalar matrix in blocks of this size.
    pub fn new(space: &S, csr: &Csr, block: usize, precision: Precision) -> Result<Self> {
        let mut blocked = Blocked::new(csr, block)?;
        // One copy on the device serves the operator and the set-up of the preconditioner.
        let placed = space.place(&Terms::bsr(&blocked.bsr))?;
        let operator = Rc::new(RefCell::new(PointBlock::new(space, &placed, precision, false)?));
        let bsr = placed.terms.into_iter().next().map(|(_, bsr)| bsr.into_owned());
        blocked.bsr = bsr.ok_or_else(|| Error::Internal("a part without a matrix".into()))?;
        Ok(Self { blocked, operator, precision })
    }

    /// Takes new values.
    pub fn update(&mut self, space: &S, csr: &Csr) -> Result<()> {
        self.blocked.update(csr)?;
        renew(space, &self.blocked.bsr, &self.operator, self.precision)
    }
}

/// Gives an operator new values. Values that break the structure found inside the blocks need a new one.
pub(super) fn renew<S: SolverSpace>(
    space: &S,
    bsr: &Bsr,
    operator: &SharedOperator<S>,
    precision: Precision,
) -> Result<()> {
    let updated = operator.borrow_mut().update_values(space, 0, bsr.values());
    if updated.is_err() {
        *operator.borrow_mut() = PointBlock::new(space, &Terms::bsr(bsr), precision, false)?;
    }
    Ok(())
}

/// Builds the preconditioner of one part for its matrix.
pub(super) fn inverse_of<S: SolverSpace>(
    space: &S,
    matrix: &PartMatrix<S>,
    (field, inner): (&Field, &Fields),
    local: &LocalProblem,
    wanted: &PrecondSpec,
    notes: &mut Vec<String>,
) -> Result<(Box<dyn Preconditioner<S>>, PrecondInfo)> {
    let (terms, name) = (Terms::bsr(&matrix.blocked.bsr), field.name());
    let sub = LocalProblem {
        terms: &terms,
        numbers: None,
        unknowns: terms.rows(),
        coordinates: field.coordinates(),
        grid: None,
        null: &[],
        near: field.near(),
        subdomains: None,
        stages: None,
        fields: inner,
        ..*local
    };
    let made = by_name(space, &terms, &sub, wanted, matrix.precision, &matrix.operator, notes);
    let (inverse, info) = made.map_err(|e| in_field(name, e))?;
    let inverse =
        inverse.ok_or_else(|| Error::invalid(format!("the part of `{name}` has no preconditioner")))?;
    Ok((inverse, info))
}

/// Names the field in an error about its block of the matrix.
fn in_field(name: &str, e: Error) -> Error {
    match e {
        Error::Invalid(text) => Error::Invalid(format!("field `{name}`: {text}")),
        Error::Unsupported(text) => Error::Unsupported(format!("field `{name}`: {text}")),
        e => e,
    }
}

/// Source of the values of a part's matrix.
enum Source {
    /// Its own block.
    Own,
    /// −D − C W B, with W of the rows of A if `rows`.
    Schur { rows: bool, product: Csr },
    /// C W B, with W as given or the inverse diagonal of A.
    Commutator { weight: Option<Vec<f64>>, product: Csr },
    /// A matrix of the caller, which does not change.
    Given,
}

/// A split with the blocks of the matrix that it was made from.
struct Fielded<S: SolverSpace> {
    split: Split<S>,
    /// A_fg as scalar matrices, if they are used.
    blocks: Vec<Vec<Option<SubMatrix>>>,
    couplings: Vec<Vec<Option<SharedOperator<S>>>>,
    parts: Vec<(PartMatrix<S>, Source)>,
    precision: Precision,
}

/// Builds a split.
pub(super) fn build<S: SolverSpace>(
    space: &S,
    terms: &Terms,
    local: &LocalProblem,
    spec: &SplitSpec,
    precision: Precision,
    notes: &mut Vec<String>,
) -> Result<(Boxed<S>, PrecondInfo)> {
    let start = Instant::now();
    let labels: Vec<&str> = spec.parts.iter().map(|(label, _)| &label[..]).collect();
    let fields = fields_of(local, &labels, "split")?;
    let (a, count) = (&*terms.terms[0].1, fields.len());
    let analysis = profile::begin(SetupPart::Analysis);
    let sets: Vec<Numbered> =
        fields.iter().map(|field| Numbered::new(field.unknowns(), terms.rows())).collect();
    let last = count - 1;
    let blocks = (0..count).map(|f| {
        let block = |g: usize| {
            // A Schur complement needs both couplings, for its sign at least.
            let used = f == g || Split::<S>::uses(spec.form, f, g) || spec.schur.is_some();
            used.then(|| SubMatrix::new(a, &sets[f], &sets[g])).transpose()
        };
        (0..count).map(block).collect::<Result<Vec<_>>>()
    });
    let blocks = blocks.collect::<Result<Vec<_>>>()?;
    drop(analysis);
    let spaces = fields.iter().map(|field| space.beside(field.unknowns().len()));
    let spaces = spaces.collect::<Result<Vec<_>>>()?;
    let couplings = couplings(&spaces, &blocks, spec, precision)?;
    let mut infos = Vec::new();
    let (mut parts, mut matrices) = (Vec::new(), Vec::new());
    for (f, on) in spaces.into_iter().enumerate() {
        let (field, wanted, begun) = (&fields[f], &spec.parts[f].1, Instant::now());
        let schur = spec.schur.as_ref().filter(|_| f == last);
        let (csr, source) = matrix_of(&blocks, schur, f, local.fields)?;
        let own = blocks[f][f].as_ref().map(|block| &block.csr);
        let csr = csr.as_ref().or(own).ok_or_else(|| Error::Internal("a part without a matrix".into()))?;
        let csr = match &source {
            Source::Schur { product, .. } | Source::Commutator { product, .. } => product,
            _ => csr,
        };
        let matrix = PartMatrix::new(&on, csr, field.block(), precision)?;
        let inner = local.fields.within(labels[f])?;
        // Near-null vectors belong to the field's own block of the matrix.
        let plain = Field::new(field.name(), field.unknowns().to_vec()).in_blocks(field.block());
        let field = if schur.is_some() { &plain } else { field };
        let (inverse, info) = inverse_of(&on, &matrix, (field, &inner), local, wanted, notes)?;
        let mut part = Part::new(space, on, field.unknowns(), inverse)?;
        if let Some(schur) = schur {
            part.around = around(&part, schur, &matrices, &couplings, &blocks, local, precision, notes)?;
            let own = needed(&blocks, f, f)?;
            part.negative = Signs::of(&blocks)?.negative(own, schur, local.fields, spec.form)?;
        }
        infos.push((info, field.unknowns().len(), begun.elapsed().as_secs_f64()));
        parts.push(part);
        matrices.push((matrix, source));
    }
    let info = describe(spec, infos, start);
    let split = Split::new(parts, couplings.clone(), spec.form);
    let made = Fielded { split, blocks, couplings, parts: matrices, precision };
    Ok((Some(Box::new(made)), info))
}

/// Uploads the couplings that the form or the Schur complement multiplies by.
fn couplings<S: SolverSpace>(
    spaces: &[S],
    blocks: &[Vec<Option<SubMatrix>>],
    spec: &SplitSpec,
    precision: Precision,
) -> Result<Vec<Vec<Option<SharedOperator<S>>>>> {
    let lsc = matches!(spec.schur, Some(SchurSpec::Lsc(_)));
    let operator = |f: usize, g: usize| -> Result<Option<SharedOperator<S>>> {
        let block = blocks[f][g].as_ref().filter(|block| f != g && block.csr.nonzeros() > 0);
        match block.filter(|_| lsc || Split::<S>::uses(spec.form, f, g)) {
            None => Ok(None),
            Some(block) => {
                let operator = PointBlock::csr(&spaces[f], &block.csr, precision)?;
                Ok(Some(Rc::new(RefCell::new(operator))))
            }
        }
    };
    (0..spaces.len()).map(|f| (0..spaces.len()).map(|g| operator(f, g)).collect()).collect()
}

/// Returns block (f, g), which a Schur complement needs.
fn needed(blocks: &[Vec<Option<SubMatrix>>], f: usize, g: usize) -> Result<&Csr> {
    let lost = || Error::Internal("a block of a Schur complement is missing".into());
    blocks[f][g].as_ref().map(|block| &block.csr).ok_or_else(lost)
}

/// Returns the matrix of part `f`, unless it is its own block, and the source of its values.
fn matrix_of(
    blocks: &[Vec<Option<SubMatrix>>],
    schur: Option<&SchurSpec>,
    f: usize,
    given: &Fields,
) -> Result<(Option<Csr>, Source)> {
    let Some(schur) = schur else { return Ok((None, Source::Own)) };
    let [a, b, c, d] = [[0, 0], [0, f], [f, 0], [f, f]].map(|[f, g]| needed(blocks, f, g));
    let (a, b, c, d) = (a?, b?, c?, d?);
    let square = |name: &str| -> Result<Csr> {
        let (matrix, n) = (given.matrix(name)?, d.rows());
        match matrix.rows() == n && matrix.columns() == n {
            true => Ok(matrix.clone()),
            false => Err(Error::invalid(format!(
                "the matrix `{name}` is {}×{}; a Schur complement of this field needs {n}×{n}",
                matrix.rows(),
                matrix.columns()
            ))),
        }
    };
    match schur {
        SchurSpec::Block => Ok((None, Source::Own)),
        SchurSpec::Matrix(name) => {
            let (matrix, signs) = (square(name)?, Signs::of(blocks)?);
            let sign = signs.s * signs.given(&matrix);
            Ok((Some(without_boundary(&matrix, &signs.alone, d, sign)), Source::Given))
        }
        SchurSpec::Pcd([f, l, m]) => {
            square(f)?;
            square(m)?;
            Ok((Some(square(l)?), Source::Given))
        }
        SchurSpec::SelfP | SchurSpec::SelfPRows => {
            let rows = *schur == SchurSpec::SelfPRows;
            let w = inverse_diagonal(a, rows);
            let product = product(Some(d), c, Weight { diagonal: Some(&w), sign: -1.0 }, b)?;
            Ok((None, Source::Schur { rows, product }))
        }
        SchurSpec::Lsc(_) if b.nonzeros() == 0 || c.nonzeros() == 0 => {
            Err(Error::invalid("lsc needs both couplings between its fields, and one of them is zero"))
        }
        SchurSpec::Lsc(name) => {
            let weight =
                name.as_deref().map(|name| weight_of(given.matrix(name)?, name, a.rows())).transpose()?;
            let w = weight.clone().unwrap_or_else(|| inverse_diagonal(a, false));
            let product = product(None, c, Weight { diagonal: Some(&w), sign: 1.0 }, b)?;
            Ok((None, Source::Commutator { weight, product }))
        }
    }
}

/// Returns the inverse diagonal of a weight matrix on the first field.
fn weight_of(matrix: &Csr, name: &str, n: usize) -> Result<Vec<f64>> {
    match matrix.rows() == n && matrix.columns() == n {
        true => Ok(inverse_diagonal(matrix, false)),
        false => Err(Error::invalid(format!(
            "the weight `{name}` of lsc is {}×{}; the first field has {n} unknowns",
            matrix.rows(),
            matrix.columns()
        ))),
    }
}

/// Builds the operators around the inverse of the last part, for approximations that have several factors.
fn around<S: SolverSpace>(
    part: &Part<S>,
    schur: &SchurSpec,
    matrices: &[(PartMatrix<S>, Source)],
    couplings: &[Vec<Option<SharedOperator<S>>>],
    blocks: &[Vec<Option<SubMatrix>>],
    local: &LocalProblem,
    precision: Precision,
    notes: &mut Vec<String>,
) -> Result<Option<Around<S>>> {
    let on = &part.space;
    match schur {
        SchurSpec::Lsc(name) => {
            let missing = || Error::Internal("a coupling of lsc is missing".into());
            let coupling = |f: usize, g: usize| couplings[f][g].clone().ok_or_else(missing);
            let (a, b, c) = (matrices[0].0.operator.clone(), coupling(0, 1)?, coupling(1, 0)?);
            let diagonal = needed(blocks, 0, 0)?;
            let first = on.beside(diagonal.rows())?;
            let w = match name {
                Some(name) => weight_of(local.fields.matrix(name)?, name, diagonal.rows())?,
                None => inverse_diagonal(diagonal, false),
            };
            let mut to = first.vector()?;
            first.write(&w, &mut to)?;
            let work = RefCell::new(([first.vector()?, first.vector()?], on.vector()?));
            let scalars = RefCell::new(first.scalars(1)?);
            Ok(Some(Around::Lsc(Lsc { space: first, a, b, c, w: to, work, scalars })))
        }
        SchurSpec::Pcd([f, _, m]) => {
            let f = PointBlock::csr(on, local.fields.matrix(f)?, precision)?;
            let mass = PartMatrix::new(on, local.fields.matrix(m)?, 1, precision)?;
            let wanted = PrecondSpec::Inner(InnerSpec {
                method: InnerMethod::Chebyshev,
                precond: Box::new(PrecondSpec::Jacobi { block: None }),
                iterations: MASS_DEGREE,
                low: None,
            });
            let field = Field::range(m, 0..on.len());
            let (mass, _) = inverse_of(on, &mass, (&field, &Fields::default()), local, &wanted, notes)?;
            let work = RefCell::new([on.vector()?, on.vector()?]);
            Ok(Some(Around::Pcd(Pcd { f: Rc::new(RefCell::new(f)), mass, work })))
        }
        _ => Ok(None),
    }
}

/// Returns true for rows of the last field that couple to no other unknown, as boundary values do.
fn alone(c: &Csr, d: &Csr) -> Vec<bool> {
    let empty = |a: &Csr, i: usize| {
        let (col, values) = a.row(i);
        col.iter().zip(values).all(|(&j, v)| *v == 0.0 || (std::ptr::eq(a, d) && j as usize == i))
    };
    (0..d.rows()).map(|i| empty(c, i) && empty(d, i)).collect()
}

/// Returns the sign of most of some numbers, those of rows that are not alone.
fn majority(alone: &[bool], of: impl Fn(usize) -> f64) -> f64 {
    let numbers = (0..alone.len()).filter(|&i| !alone[i]).map(of).filter(|v| *v != 0.0);
    let sum: i64 = numbers.map(|v| if v > 0.0 { 1 } else { -1 }).sum();
    if sum < 0 { -1.0 } else { 1.0 }
}

/// Returns a copy of a caller's matrix on the last field in which the rows and columns that are alone in K
/// have only the diagonal entry of K, times `sign`.
fn without_boundary(matrix: &Csr, alone: &[bool], d: &Csr, sign: f64) -> Csr {
    let mut matrix = matrix.clone();
    if !alone.contains(&true) {
        return matrix;
    }
    let (row_ptr, col) = (matrix.row_ptr().to_vec(), matrix.col().to_vec());
    let values = matrix.values_mut();
    for i in 0..alone.len() {
        for p in row_ptr[i]..row_ptr[i + 1] {
            let j = col[p] as usize;
            if alone[i] || alone[j] {
                values[p] = if i == j { sign * d.get(i, i) } else { 0.0 };
            }
        }
    }
    matrix
}

/// Signs of a Schur complement and of what approximates it.
struct Signs {
    /// Rows of the last field that couple to no other unknown.
    alone: Vec<bool>,
    /// Sign of the diagonal of −D − C diag(A)⁻¹ B.
    s: f64,
}

impl Signs {
    fn of(blocks: &[Vec<Option<SubMatrix>>]) -> Result<Self> {
        let [a, b, c, d] = [[0, 0], [0, 1], [1, 0], [1, 1]].map(|[f, g]| needed(blocks, f, g));
        let (a, b, c, d) = (a?, b?, c?, d?);
        let w = inverse_diagonal(a, false);
        let s = |i: usize| {
            let (col, values) = c.row(i);
            let through = |(&k, c): (&u32, &f64)| c * w[k as usize] * b.get(k as usize, i);
            d.get(i, i) - col.iter().zip(values).map(through).sum::<f64>()
        };
        let alone = alone(c, d);
        Ok(Self { s: majority(&alone, s), alone })
    }

    /// Sign of the diagonal of a caller's matrix.
    fn given(&self, matrix: &Csr) -> f64 {
        majority(&self.alone, |i| matrix.get(i, i))
    }

    /// Returns true if the inverse of the last part has the sign opposite to that of S⁻¹. In the diagonal
    /// form |S| takes the place of S, so that the form is definite if A is.
    fn negative(&self, d: &Csr, schur: &SchurSpec, given: &Fields, form: SplitForm) -> Result<bool> {
        let signs = |names: &[&String]| -> Result<f64> {
            names.iter().try_fold(1.0, |sign, name| Ok(sign * self.given(given.matrix(name)?)))
        };
        // Sign of what the part applies, before it is negated.
        let applied = match schur {
            SchurSpec::SelfP | SchurSpec::SelfPRows => self.s,
            SchurSpec::Block => self.given(d),
            SchurSpec::Matrix(name) => signs(&[name])?,
            SchurSpec::Pcd([f, l, m]) => signs(&[f, l, m])?,
            // S⁻¹ is minus the product of the commutator's factors, whatever their signs.
            SchurSpec::Lsc(_) => return Ok(form != SplitForm::Diagonal),
        };
        Ok(if form == SplitForm::Diagonal { applied < 0.0 } else { applied * self.s < 0.0 })
    }
}

/// Describes a split for reports.
fn describe(spec: &SplitSpec, infos: Vec<(PrecondInfo, usize, f64)>, start: Instant) -> PrecondInfo {
    let text = |text: &str| Value::Text(text.into());
    let mut all = PrecondInfo { name: "split".into(), ..PrecondInfo::default() };
    all.parameters.push(("form".into(), text(&spec.form.to_string())));
    all.parameters.extend(spec.schur.as_ref().map(|schur| ("schur".to_string(), text(&schur.to_string()))));
    let whole = start.elapsed().as_secs_f64();
    let mut words = Vec::new();
    for ((label, _), (info, unknowns, time)) in spec.parts.iter().zip(infos) {
        all.numbers += info.numbers;
        all.matrix += info.matrix;
        words.push(format!("{label} by {}", info.text));
        let own = [
            ("name".to_string(), text(&info.name)),
            ("unknowns".into(), Value::Count(unknowns as u64)),
            ("setup_seconds".into(), Value::Number(time)),
        ];
        all.parameters
            .push((label.clone(), Value::Parameters(own.into_iter().chain(info.parameters).collect())));
        all.details.push(format!(
            "{label}: {}, {}, set up in {}, {:.0} % of the split",
            plural(unknowns, "unknown"),
            info.text,
            seconds(time),
            100.0 * time / whole.max(f64::MIN_POSITIVE)
        ));
        all.details.extend(info.details.into_iter().map(|line| format!("{label}: {line}")));
    }
    let schur = spec.schur.as_ref().map_or(String::new(), |schur| format!(", Schur complement {schur}"));
    all.text = format!("{} split: {}{schur}", spec.form, words.join(", "));
    all.keeps_symmetry = PrecondSpec::Split(spec.clone()).keeps_symmetry();
    all
}

impl<S: SolverSpace> LinearOperator<S> for Fielded<S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.split.apply(space, x, y)
    }
    fn key(&self) -> u64 {
        self.split.key()
    }
    fn bytes(&self) -> u64 {
        self.split.bytes()
    }
    fn recordable(&self) -> bool {
        self.split.recordable()
    }
}

impl<S: SolverSpace> Preconditioner<S> for Fielded<S> {
    fn update_values(&mut self, _: &S, _: &Terms, values: TermValues) -> Result<()> {
        let mut scratch = Vec::new();
        let values = host_values(values.term(0), &mut scratch)?;
        self.blocks.iter_mut().flatten().flatten().for_each(|block| block.update(values));
        let (blocks, last) = (&self.blocks, self.parts.len() - 1);
        for (f, row) in self.couplings.iter().enumerate() {
            for (g, coupling) in row.iter().enumerate() {
                if let (Some(coupling), Some(block)) = (coupling, &blocks[f][g]) {
                    let bsr = Bsr::from_csr(&block.csr, 1)?;
                    renew(&self.split.parts[f].space, &bsr, coupling, self.precision)?;
                }
            }
        }
        for (f, ((matrix, source), part)) in self.parts.iter_mut().zip(&mut self.split.parts).enumerate() {
            let csr = match source {
                Source::Given => continue,
                Source::Own => needed(blocks, f, f)?,
                Source::Schur { rows, product } => {
                    let w = inverse_diagonal(needed(blocks, 0, 0)?, *rows);
                    let weight = Weight { diagonal: Some(&w), sign: -1.0 };
                    let (b, c) = (needed(blocks, 0, last)?, needed(blocks, last, 0)?);
                    update(Some(needed(blocks, last, last)?), c, weight, b, product);
                    &*product
                }
                Source::Commutator { weight, product } => {
                    let own = inverse_diagonal(needed(blocks, 0, 0)?, false);
                    let w = weight.as_deref().unwrap_or(&own);
                    let (b, c) = (needed(blocks, 0, last)?, needed(blocks, last, 0)?);
                    update(None, c, Weight { diagonal: Some(w), sign: 1.0 }, b, product);
                    if let Some(Around::Lsc(lsc)) = &mut part.around {
                        lsc.space.write(w, &mut lsc.w)?;
                    }
                    &*product
                }
            };
            matrix.update(&part.space, csr)?;
            let terms = Terms::bsr(&matrix.blocked.bsr);
            part.inverse.update_values(&part.space, &terms, TermValues::from(&terms))?;
        }
        Ok(())
    }
    fn take_events(&mut self) -> Vec<String> {
        self.split.parts.iter_mut().flat_map(|part| part.inverse.take_events()).collect()
    }
}
