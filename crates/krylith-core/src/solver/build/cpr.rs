//! Builds the first stage of CPR: the weights that decouple a field from the other unknowns of each cell, and
//! the preconditioner of the decoupled matrix.

use super::part::{Layout, OwnField, PartMatrix, inverse_of, one_matrix};
use super::{Boxed, LocalProblem, PrecondInfo, Preconditioner, Value};
use crate::comm::agree;
use crate::matrix::{Bsr, Csr};
use crate::operator::{PointBlock, TermValues, Terms};
use crate::precond::split::blocks::{Numbered, SubMatrix, host_values};
use crate::precond::split::product::{Weight, product, update};
use crate::precond::{Correction, CprSpec, Decouple, Prolongation, eliminate};
use crate::profile::{self, SetupPart};
use crate::solver::SolverSpace;
use crate::space::Precision;
use crate::text::{plural, seconds};
use crate::{Error, Result};
use rayon::prelude::*;
use std::time::Instant;

/// Cells below which a second thread costs more than it saves.
const FEW: usize = 1 << 11;
/// Marks an entry that the matrix does not store.
const NONE: usize = usize::MAX;

/// The rows of each cell that W combines.
struct Cells {
    /// Unknowns of a cell: first that of the field, then those of the other fields.
    unknowns: Vec<Vec<u32>>,
    /// For each cell, positions of the entries (c, d) in the values of the matrix: row c of all unknowns,
    /// column d of the others.
    positions: Vec<usize>,
    decouple: Decouple,
}

impl Cells {
    /// Finds the cells: unknown i of every field that is as long as `field` belongs to cell i.
    fn new(a: &Bsr, field: &OwnField, others: &[OwnField], decouple: Decouple) -> Self {
        let unknowns: Vec<Vec<u32>> =
            std::iter::once(field).chain(others).map(|own| own.unknowns.clone()).collect();
        let (m, cells, b) = (unknowns.len(), field.unknowns.len(), a.block());
        let find = |row: u32, column: u32| {
            let (i, j) = (row as usize / b, column / b as u32);
            let range = a.row_ptr()[i]..a.row_ptr()[i + 1];
            let at = a.col()[range.clone()].binary_search(&j).ok()?;
            Some(((range.start + at) * b + row as usize % b) * b + column as usize % b)
        };
        let of_cell = |cell: usize| {
            let pairs = (0..m).flat_map(|c| (1..m).map(move |d| (c, d)));
            pairs.map(|(c, d)| find(unknowns[c][cell], unknowns[d][cell]).unwrap_or(NONE)).collect::<Vec<_>>()
        };
        let needs = decouple == Decouple::QuasiImpes && m > 1;
        let positions = match needs {
            true => (0..cells).into_par_iter().with_min_len(FEW).flat_map_iter(of_cell).collect(),
            false => Vec::new(),
        };
        Self { unknowns, positions, decouple }
    }

    /// Returns W for a system of `n` unknowns, with columns in ascending order, and the place of each weight.
    fn pattern(&self, n: usize) -> Result<(Csr, Vec<u8>)> {
        let (m, cells) = (self.unknowns.len(), self.unknowns[0].len());
        let (mut col, mut order) = (Vec::with_capacity(m * cells), Vec::with_capacity(m * cells));
        for cell in 0..cells {
            let mut row: Vec<(u32, u8)> = (0..m).map(|c| (self.unknowns[c][cell], c as u8)).collect();
            row.sort_unstable();
            col.extend(row.iter().map(|entry| entry.0));
            order.extend(row.iter().map(|entry| entry.1));
        }
        let row_ptr = (0..=cells).map(|cell| cell * m).collect();
        Ok((Csr::new(cells, n, row_ptr, col, vec![0.0; m * cells])?, order))
    }

    /// Computes the weights of all cells from the values of the matrix.
    fn weights(&self, values: &[f64], order: &[u8], to: &mut [f64]) {
        let m = self.unknowns.len();
        let weigh = |(cell, (to, order)): (usize, (&mut [f64], &[u8]))| {
            let mut w = vec![if self.decouple == Decouple::RowSums { 1.0 } else { 0.0 }; m];
            w[0] = 1.0;
            if let Some(positions) = self.positions.get(cell * m * (m - 1)..(cell + 1) * m * (m - 1)) {
                impes(values, positions, &mut w);
            }
            to.iter_mut().zip(order).for_each(|(to, &c)| *to = w[c as usize]);
        };
        to.par_chunks_mut(m).zip(order.par_chunks(m)).enumerate().with_min_len(FEW).for_each(weigh);
    }
}

/// Computes w = (1, −D_ps D_ss⁻¹) of a cell. A D_ss that cannot be inverted leaves the row of the field
/// alone.
fn impes(values: &[f64], positions: &[usize], w: &mut [f64]) {
    let k = w.len() - 1;
    if k == 0 {
        return;
    }
    let at = |c: usize, d: usize| match positions[c * k + d] {
        NONE => 0.0,
        position => values[position],
    };
    let (mut a, mut inverse) = (vec![0.0; k * k], vec![0.0; k * k]);
    for c in 0..k {
        let largest = (0..k).map(|d| at(c + 1, d).abs()).fold(0.0, f64::max);
        let scale = if largest > 0.0 { 1.0 / largest } else { 0.0 };
        (0..k).for_each(|d| a[c * k + d] = scale * at(c + 1, d));
        inverse[c * k + c] = scale;
    }
    if eliminate(k, &mut a, &mut inverse).is_ok() {
        for c in 0..k {
            w[c + 1] = -(0..k).map(|d| at(0, d) * inverse[d * k + c]).sum::<f64>();
        }
    }
}

/// The stage with the matrices that it was made from.
pub(super) struct FirstStage<S: SolverSpace> {
    pub(super) correction: Correction<S>,
    cells: Cells,
    order: Vec<u8>,
    weights: Csr,
    columns: SubMatrix,
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
    if others.len() >= usize::from(u8::MAX) {
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
        let cells = Cells::new(a, &field, &others, spec.decouple);
        let (mut weights, order) = cells.pattern(n)?;
        cells.weights(a.values(), &order, weights.values_mut());
        weights.check_finite()?;
        let all = Numbered::new(&(0..n as u32).collect::<Vec<_>>(), n);
        let columns = SubMatrix::new(a, &all, &layout.sets[0])?;
        let product = product(None, &weights, Weight::ONE, &columns.csr)?;
        Ok((cells, weights, order, columns, product))
    })();
    let (cells, weights, order, columns, product) = agree(space.comm(), made)?;
    drop(analysis);
    let length = field.unknowns.len();
    let on = agree(space.comm(), if ranks { space.among(length) } else { space.beside(length) })?;
    let halo = layout.halos[0].clone();
    let matrix = PartMatrix::new(&on, &product, field.field.block(), precision, halo)?;
    let inner = local.fields.within(&spec.field)?;
    let (inverse, info) = inverse_of(&on, &matrix, (&field, &inner), local, &spec.precond, notes)?;
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
    let stage = FirstStage { correction, cells, order, weights, columns, product, matrix };
    Ok((Some(Box::new(stage)), described))
}

impl<S: SolverSpace> Preconditioner<S> for FirstStage<S> {
    fn update_values(&mut self, _: &S, _: &Terms, values: TermValues) -> Result<()> {
        let mut scratch = Vec::new();
        let values = host_values(values.term(0), &mut scratch)?;
        self.columns.update(values);
        self.cells.weights(values, &self.order, self.weights.values_mut());
        self.weights.check_finite()?;
        update(None, &self.weights, Weight::ONE, &self.columns.csr, &mut self.product);
        let on = &self.correction.space;
        let updated = self.correction.restriction.update_values(on, 0, self.weights.values());
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
