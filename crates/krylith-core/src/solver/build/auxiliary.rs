//! Builds corrections in auxiliary spaces: the Galerkin product PᵀAP for a matrix P of the caller, and its
//! preconditioner.
//!
//! Rows of A that have only a diagonal entry come from boundary values. P has no part there, so these rows
//! are left out of it, and unknowns of the auxiliary space that lose all of their rows get a diagonal entry
//! of 1.

use super::part::{OwnField, PartMatrix, inverse_of, one_matrix, one_rank};
use super::{Boxed, LocalProblem, PrecondInfo, Preconditioner, Value};
use crate::fields::{Field, Fields};
use crate::matrix::{Bsr, Csr};
use crate::operator::{PointBlock, TermValues, Terms};
use crate::precond::split::blocks::host_values;
use crate::precond::split::product::{Weight, product, update};
use crate::precond::{AuxSpec, Correction, Prolongation};
use crate::profile::{self, SetupPart};
use crate::solver::SolverSpace;
use crate::space::Precision;
use crate::text::{plural, seconds};
use crate::{Error, Result};
use rayon::prelude::*;
use std::time::Instant;

/// Rows below which a second thread costs more than it saves.
const FEW: usize = 1 << 11;

/// A correction with the matrices that it was made from.
pub(super) struct Auxiliary<S: SolverSpace> {
    pub(super) correction: Correction<S>,
    a: Bsr,
    p: Csr,
    transposed: Csr,
    /// A P and PᵀAP.
    products: [Csr; 2],
    matrix: PartMatrix<S>,
}

/// Builds the correction.
pub(super) fn build<S: SolverSpace>(
    space: &S,
    terms: &Terms,
    local: &LocalProblem,
    spec: &AuxSpec,
    precision: Precision,
    notes: &mut Vec<String>,
) -> Result<(Boxed<S>, PrecondInfo)> {
    let start = Instant::now();
    one_matrix(local, "aux")?;
    one_rank(local, "aux")?;
    let (name, given) = (&spec.matrix, local.fields.matrix(&spec.matrix)?);
    let (a, n) = (&*terms.terms[0].1, terms.rows());
    if given.rows() != n || given.columns() % spec.block != 0 || given.columns() == 0 {
        return Err(Error::invalid(format!(
            "aux: the matrix `{name}` is {}×{}; it needs {n} rows, and columns that form blocks of {}",
            given.rows(),
            given.columns(),
            spec.block
        )));
    }
    let analysis = profile::begin(SetupPart::Analysis);
    let csr = a.to_csr();
    let p = without_boundary(given, &csr)?;
    let transposed = p.transpose();
    let fine = product(None, &csr, Weight::ONE, &p)?;
    let mut coarse = product(None, &transposed, Weight::ONE, &fine)?;
    fill_empty(&mut coarse);
    drop(analysis);
    let on = space.beside(p.columns())?;
    let matrix = PartMatrix::new(&on, &coarse, spec.block, precision, None)?;
    let field = Field::range(name, 0..p.columns()).in_blocks(spec.block);
    let field = match local.near {
        [] => field,
        near => field.with_near_null_vectors(near.iter().map(|v| restricted(v, given)).collect()),
    };
    let field = OwnField::whole(field);
    let (inverse, info) =
        inverse_of(&on, &matrix, (&field, &Fields::default()), local, &spec.precond, notes)?;
    let restriction = PointBlock::csr(&on, &transposed, Precision::F64)?;
    let prolongation = Prolongation::Matrix(PointBlock::csr(space, &p, Precision::F64)?);
    let correction = Correction::new(space, on, restriction, inverse, prolongation)?;
    let own = [
        ("name".to_string(), Value::Text(info.name)),
        ("unknowns".into(), Value::Count(p.columns() as u64)),
        ("setup_seconds".into(), Value::Number(start.elapsed().as_secs_f64())),
    ];
    let line = format!(
        "{name}: {}, {}, set up in {}",
        plural(p.columns(), "unknown"),
        info.text,
        seconds(start.elapsed().as_secs_f64())
    );
    let described = PrecondInfo {
        name: "aux".into(),
        parameters: vec![(name.clone(), Value::Parameters(own.into_iter().chain(info.parameters).collect()))],
        numbers: info.numbers + 2.0 * p.nonzeros() as f64,
        matrix: info.matrix,
        text: format!("auxiliary space {name}: {}", info.text),
        details: std::iter::once(line)
            .chain(info.details.into_iter().map(|line| format!("{name}: {line}")))
            .collect(),
        keeps_symmetry: info.keeps_symmetry,
        ..PrecondInfo::default()
    };
    let made = Auxiliary { correction, a: a.clone(), p, transposed, products: [fine, coarse], matrix };
    Ok((Some(Box::new(made)), described))
}

/// Returns P without the rows of unknowns that no other unknown determines.
fn without_boundary(p: &Csr, a: &Csr) -> Result<Csr> {
    let alone = |i: usize| {
        let (col, values) = a.row(i);
        col.iter().zip(values).all(|(&j, v)| j as usize == i || *v == 0.0)
    };
    let alone: Vec<bool> = (0..a.rows()).into_par_iter().with_min_len(FEW).map(alone).collect();
    let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    for (i, alone) in alone.into_iter().enumerate() {
        if !alone {
            let row = p.row(i);
            col.extend_from_slice(row.0);
            values.extend_from_slice(row.1);
        }
        row_ptr.push(col.len());
    }
    Csr::new(p.rows(), p.columns(), row_ptr, col, values)
}

/// Puts 1 on the diagonal of rows that are zero, or that cancel to rounding.
fn fill_empty(a: &mut Csr) {
    let largest = |i: usize| a.row(i).1.iter().fold(0.0f64, |max, v| max.max(v.abs()));
    let all: Vec<f64> = (0..a.rows()).into_par_iter().with_min_len(FEW).map(largest).collect();
    let least = 1e-13 * all.iter().copied().fold(0.0, f64::max);
    let (row_ptr, col) = (a.row_ptr().to_vec(), a.col().to_vec());
    let values = a.values_mut();
    for (i, largest) in all.into_iter().enumerate() {
        if largest <= least {
            for p in row_ptr[i]..row_ptr[i + 1] {
                values[p] = if col[p] as usize == i { 1.0 } else { 0.0 };
            }
        }
    }
}

/// Returns a vector of the auxiliary space that P maps near `v`: the values of the rows of P that only copy,
/// and elsewhere averages weighted by P.
fn restricted(v: &[f64], p: &Csr) -> Vec<f64> {
    let (mut sums, mut weights) = (vec![0.0; p.columns()], vec![0.0; p.columns()]);
    let mut copied = vec![false; p.columns()];
    for (i, v) in v.iter().enumerate() {
        let (col, values) = p.row(i);
        if let ([j], [w]) = (col, values)
            && *w == 1.0
        {
            let j = *j as usize;
            (sums[j], weights[j], copied[j]) = (*v, 1.0, true);
            continue;
        }
        for (&j, w) in col.iter().zip(values).filter(|(j, _)| !copied[**j as usize]) {
            sums[j as usize] += w.abs() * v;
            weights[j as usize] += w.abs();
        }
    }
    sums.iter().zip(&weights).map(|(sum, weight)| if *weight > 0.0 { sum / weight } else { 0.0 }).collect()
}

impl<S: SolverSpace> Preconditioner<S> for Auxiliary<S> {
    fn update_values(&mut self, _: &S, _: &Terms, values: TermValues) -> Result<()> {
        let mut scratch = Vec::new();
        self.a.update_values(host_values(values.term(0), &mut scratch)?)?;
        let csr = self.a.to_csr();
        let [fine, coarse] = &mut self.products;
        update(None, &csr, Weight::ONE, &self.p, fine);
        update(None, &self.transposed, Weight::ONE, fine, coarse);
        fill_empty(coarse);
        let on = &self.correction.space;
        self.matrix.update(on, coarse)?;
        let terms = self.matrix.terms();
        self.correction.inverse.update_values(on, &terms, TermValues::from(&terms))
    }
    fn take_events(&mut self) -> Vec<String> {
        self.correction.inverse.take_events()
    }
}
