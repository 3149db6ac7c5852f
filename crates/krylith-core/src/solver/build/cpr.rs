//! Builds the first stage of CPR: the weights that decouple a field from the other unknowns of each cell, and
//! the preconditioner of the decoupled matrix.

use super::part::{Layout, OwnField, PartMatrix, SubMatrix, inverse_of, one_matrix};
use super::{Boxed, LocalProblem, PrecondInfo, Preconditioner, Value};
use crate::comm::agree;
use crate::matrix::{Bsr, Csr};
use crate::operator::{PointBlock, TermValues, Terms};
use crate::precond::assemble::{Cells, MOST_FIELDS, Numbered, Weight, values_of};
use crate::precond::{Correction, CprSpec, Decouple, Prolongation};
use crate::profile::{self, SetupPart};
use crate::solver::SolverSpace;
use crate::space::Precision;
use crate::text::{plural, seconds};
use crate::{Error, Result};
use std::time::Instant;

/// The stage with the matrices that it was made from.
pub(super) struct FirstStage<S: SolverSpace> {
    pub(super) correction: Correction<S>,
    a: Bsr,
    cells: Cells,
    weights: Csr,
    columns: SubMatrix<S>,
    product: Csr,
    matrix: PartMatrix<S>,
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
    let layout = Layout::new(local, std::slice::from_ref(&field))?;
    let made = (|| {
        let unknowns = std::iter::once(&field).chain(&others).map(|own| own.unknowns.clone()).collect();
        let (mut cells, mut weights) = Cells::new(unknowns, spec.decouple, n);
        space.weigh(a, &mut cells, &mut weights)?;
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
    let inner = local.fields.within(&spec.field)?;
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
            ("decouple".to_string(), Value::Text(spec.decouple.name().into())),
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
    let stage = FirstStage { correction, a: a.clone(), cells, weights, columns, product, matrix };
    Ok((Some(Box::new(stage)), described))
}

impl<S: SolverSpace> Preconditioner<S> for FirstStage<S> {
    fn update_values(&mut self, space: &S, _: &Terms, values: TermValues) -> Result<()> {
        self.a = space.with_values(&self.a, values_of(values.term(0))?)?;
        self.columns.update(space, &self.a)?;
        space.weigh(&self.a, &mut self.cells, &mut self.weights)?;
        space.product_again(None, &self.weights, Weight::ONE, &self.columns.csr, &mut self.product)?;
        let on = &self.correction.space;
        let updated = self.correction.restriction.update_values(on, 0, self.weights.storage().numbers());
        if updated.is_err() {
            self.correction.restriction = PointBlock::csr(on, &self.weights, Precision::F64)?;
        }
        self.matrix.update(on, &self.product)?;
        let terms = self.matrix.terms();
        self.correction.inverse.update_values(on, &terms, TermValues::from(&terms))
    }
    fn take_events(&mut self) -> Vec<String> {
        self.correction.inverse.take_events()
    }
}
