//! Builds the first stage of CPR: the weights that decouple a field from the other unknowns of each cell, and
//! the preconditioner of the decoupled matrix.

use super::part::{Layout, OwnField, PartMatrix, SubMatrix, inverse_of, one_matrix};
use super::{Boxed, LocalProblem, PrecondInfo, Preconditioner, Value};
use crate::comm::agree;
use crate::fields::Matrices;
use crate::halo::OwnRows;
use crate::matrix::{Bsr, Csr};
use crate::operator::{PointBlock, TermValues, Terms};
use crate::precond::assemble::{Cells, MOST_FIELDS, Numbered, Weight, values_of};
use crate::precond::{Correction, CprSpec, Decouple, Prolongation};
use crate::profile::{self, SetupPart};
use crate::solver::SolverSpace;
use crate::space::Precision;
use crate::text::{plural, seconds};
use crate::{Error, Result};
use std::sync::Arc;
use std::time::Instant;

/// The stage with the matrices that it was made from.
pub(super) struct FirstStage<S: SolverSpace> {
    pub(super) correction: Correction<S>,
    a: Bsr,
    cells: Cells,
    /// The matrix of the caller that the weights are made of, and the field of its cells.
    given: Option<(Given, OwnField)>,
    weights: Csr,
    columns: SubMatrix<S>,
    product: Csr,
    matrix: PartMatrix<S>,
}

/// A matrix of the caller that the weights are made of. It is on the host, and so are its weights.
struct Given {
    matrices: Matrices,
    name: String,
    /// The matrix that was taken last.
    of: Arc<Csr>,
    /// True if the matrix has the rows of all ranks.
    whole: bool,
    /// Numbers of own block rows over ranks, and the block size.
    numbers: Option<OwnRows>,
    block: usize,
}

impl Given {
    /// Returns the matrix that the decoupling names, if it names one. Over ranks the caller gave the whole
    /// matrix, or own rows of it with columns numbered as the system.
    ///
    /// # Errors
    /// A matrix that does not exist, or of another size.
    fn of(decouple: &Decouple, local: &LocalProblem) -> Result<Option<Self>> {
        let Decouple::Impes(name) = decouple else { return Ok(None) };
        let matrices = local.fields.matrices().clone();
        let (of, own, total) = (matrices.matrix(name)?, local.terms.rows(), local.unknowns);
        let whole = of.rows() == total;
        if of.columns() != total || !(whole || of.rows() == own) {
            return Err(Error::invalid(format!(
                "cpr: the matrix `{name}` is {}×{}; impes needs the size of the system, {total}×{total}",
                of.rows(),
                of.columns()
            )));
        }
        let (numbers, block) = (local.numbers.map(|numbers| numbers.to_owned()), local.terms.block());
        Ok(Some(Self { matrices, name: name.clone(), of, whole, numbers, block }))
    }

    /// Takes the matrix anew. Returns true if the caller gave another.
    fn renew(&mut self) -> Result<bool> {
        let new = self.matrices.matrix(&self.name)?;
        let changed = !Arc::ptr_eq(&new, &self.of);
        self.of = new;
        Ok(changed)
    }

    /// Returns the number of an own unknown in the whole system.
    fn number(&self, i: u32) -> usize {
        let (i, b) = (i as usize, self.block);
        self.numbers.as_ref().map_or(i, |numbers| numbers.borrowed().at(i / b) as usize * b + i % b)
    }

    /// Computes the weights of the cells of a field.
    ///
    /// # Errors
    /// A cell whose block is absent or singular.
    fn weigh(&self, field: &OwnField, cells: &Cells, to: &mut Csr) -> Result<()> {
        let row = |i: u32| if self.whole { self.number(i) } else { i as usize };
        let entry = |i: u32, j: u32| self.of.get(row(i), self.number(j));
        let Some(cell) = cells.weigh_by(&entry, to)? else { return Ok(()) };
        let others: Vec<u32> = cells.unknowns[1..].iter().map(|of| of[cell]).collect();
        let absent = others.iter().all(|&i| others.iter().all(|&j| entry(i, j) == 0.0));
        let numbers: Vec<String> = others.iter().map(|&i| self.number(i).to_string()).collect();
        let size = field.field.block();
        let number = |blocks: &Vec<u64>| blocks[cell / size] as usize * size + cell % size;
        Err(Error::invalid(format!(
            "cpr: the matrix `{}` has {} of the unknowns {} in cell {}; give the derivatives of its \
             accumulation terms, or take decouple=quasi-impes",
            self.name,
            if absent { "no block" } else { "a singular block" },
            numbers.join(", "),
            field.blocks.as_ref().map_or(cell, number)
        )))
    }
}

/// Builds the stage.
pub(super) fn build<S: SolverSpace>(
    space: &S,
    terms: &Terms,
    local: &LocalProblem,
    spec: &CprSpec,
    precision: Precision,
    notes: &mut Vec<String>,
) -> Result<(Boxed<S>, PrecondInfo)> {
    let start = Instant::now();
    one_matrix(local, "cpr")?;
    let field = OwnField::find(local, &spec.field)?;
    let (a, n, ranks) = (&*terms.terms[0].1, terms.rows(), local.terms.halo.is_some());
    let analysis = profile::begin(SetupPart::Analysis);
    let names: Vec<&str> = spec.field.split('+').collect();
    let mut others = Vec::new();
    for other in local.fields.all().iter().filter(|other| !names.contains(&other.name())) {
        others.push(OwnField::find(local, other.name())?);
    }
    others.retain(|other| other.total == field.total && spec.decouple != Decouple::Off);
    if others.len() >= MOST_FIELDS {
        return Err(Error::invalid(format!(
            "cpr: {} fields in a cell; at most 254 are supported",
            others.len()
        )));
    }
    let apart = others.iter().find(|other| other.unknowns.len() != field.unknowns.len());
    let together = apart.map_or(Ok(()), |other| {
        Err(Error::invalid(format!(
            "cpr: rank {} has {} unknowns of `{}` and {} of `{}`; give all unknowns of a cell to one rank",
            local.comm.rank(),
            field.unknowns.len(),
            spec.field,
            other.unknowns.len(),
            other.field.name()
        )))
    });
    agree(local.comm, together)?;
    let given = agree(local.comm, Given::of(&spec.decouple, local))?;
    let layout = Layout::new(local, std::slice::from_ref(&field))?;
    let made = (|| {
        let unknowns = std::iter::once(&field).chain(&others).map(|own| own.unknowns.clone()).collect();
        let (mut cells, mut weights) = Cells::new(unknowns, &spec.decouple, n);
        match &given {
            Some(given) => given.weigh(&field, &cells, &mut weights)?,
            None => space.weigh(a, &mut cells, &mut weights)?,
        }
        let all = Numbered::new(&(0..n as u32).collect::<Vec<_>>(), n);
        let columns = SubMatrix::new(space, a, &all, &layout.sets[0])?;
        let product = space.product(None, &weights, Weight::ONE, &columns.csr)?;
        Ok((cells, weights, columns, product))
    })();
    let (cells, weights, columns, product) = agree(space.comm(), made)?;
    drop(analysis);
    let length = field.unknowns.len();
    let on = agree(space.comm(), if ranks { space.among(length) } else { space.beside(length) })?;
    let halo = layout.halo(0);
    let matrix = PartMatrix::new(&on, &product, field.field.block(), precision, halo)?;
    let inner = field.inner(local, &spec.field)?;
    let (inverse, info) = inverse_of(&on, &matrix, (&field, &inner), &[], local, &spec.precond, notes)?;
    let made = (|| {
        let operator = PointBlock::csr(&on, &weights, Precision::F64)?;
        let entries = Prolongation::Entries(space.entries(&field.unknowns)?);
        Correction::new(space, on, operator, inverse, entries)
    })();
    let correction = agree(space.comm(), made)?;
    let others: Vec<&str> = others.iter().map(|other| other.field.name()).collect();
    let details = format!(
        "{}: {} decoupled from {} by {}, set up in {}",
        spec.field,
        plural(field.total, "unknown"),
        if others.is_empty() { "no field".into() } else { others.join(", ") },
        spec.decouple,
        seconds(start.elapsed().as_secs_f64())
    );
    let own =
        [("name".to_string(), Value::Text(info.name)), ("unknowns".into(), Value::Count(field.total as u64))];
    let described = PrecondInfo {
        name: "cpr".into(),
        parameters: vec![
            ("decouple".to_string(), Value::Text(spec.decouple.to_string())),
            (spec.field.clone(), Value::Parameters(own.into_iter().chain(info.parameters).collect())),
        ],
        numbers: info.numbers + weights.nonzeros() as f64,
        matrix: info.matrix,
        text: format!("correction of {} by {}", spec.field, info.text),
        details: std::iter::once(details)
            .chain(info.details.into_iter().map(|line| format!("{}: {line}", spec.field)))
            .collect(),
        ..PrecondInfo::default()
    };
    let (a, given) = (a.clone(), given.map(|given| (given, field)));
    let stage = FirstStage { correction, a, cells, given, weights, columns, product, matrix };
    Ok((Some(Box::new(stage)), described))
}

impl<S: SolverSpace> Preconditioner<S> for FirstStage<S> {
    fn update_values(&mut self, space: &S, _: &Terms, values: TermValues) -> Result<()> {
        self.a = space.with_values(&self.a, values_of(values.term(0))?)?;
        self.columns.update(space, &self.a)?;
        let changed = match &mut self.given {
            None => {
                space.weigh(&self.a, &mut self.cells, &mut self.weights)?;
                true
            }
            Some((given, field)) => {
                let changed = given.renew()?;
                if changed {
                    given.weigh(field, &self.cells, &mut self.weights)?;
                }
                changed
            }
        };
        space.product_again(None, &self.weights, Weight::ONE, &self.columns.csr, &mut self.product)?;
        let on = &self.correction.space;
        let restriction = &mut self.correction.restriction;
        if changed && restriction.update_values(on, 0, self.weights.storage().numbers()).is_err() {
            *restriction = PointBlock::csr(on, &self.weights, Precision::F64)?;
        }
        self.matrix.update(on, &self.product)?;
        let terms = self.matrix.terms();
        self.correction.inverse.update_values(on, &terms, TermValues::from(&terms))
    }
    fn prepare_transpose(&mut self, space: &S, _: &Terms) -> Result<()> {
        let Correction { space: on, restriction, inverse, .. } = &mut self.correction;
        restriction.prepare_transpose(space, &Terms::csr(&self.weights)?)?;
        inverse.prepare_transpose(on, &self.matrix.terms())
    }
    fn take_events(&mut self) -> Vec<String> {
        self.correction.inverse.take_events()
    }
}
