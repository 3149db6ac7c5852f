//! Builds corrections in auxiliary spaces: the Galerkin product PᵀAP for a matrix P of the caller, and its
//! preconditioner.
//!
//! Rows of A that have only a diagonal entry come from boundary values. P has no part there, so these rows
//! are left out of it, and unknowns of the auxiliary space that lose all of their rows get a diagonal entry
//! of 1.

use super::part::{OwnField, PartMatrix, SubMatrix, inverse_of, one_matrix, one_rank, placed};
use super::{Boxed, LocalProblem, PrecondInfo, Preconditioner, Value};
use crate::fields::{Field, Fields};
use crate::matrix::{Bsr, Csr};
use crate::operator::{PointBlock, TermValues, Terms};
use crate::precond::assemble::{Weight, values_of};
use crate::precond::{AuxSpec, Correction, Prolongation};
use crate::profile::{self, SetupPart};
use crate::solver::SolverSpace;
use crate::space::Precision;
use crate::text::{plural, seconds};
use crate::{Error, Result};
use std::time::Instant;

/// Largest entry of P, relative to the largest of its row, that counts as a rounding error.
const ROUNDING: f64 = 1e-13;

/// A correction with the matrices that it was made from.
pub(super) struct Auxiliary<S: SolverSpace> {
    pub(super) correction: Correction<S>,
    a: Bsr,
    scalar: SubMatrix<S>,
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
    let scalar = SubMatrix::whole(space, a)?;
    let p = placed(space, &own_part(given, &space.alone(&scalar.csr, None)?)?)?;
    let transposed = space.transposed(&Bsr::from_csr(&p, 1)?)?;
    let transposed = Csr::from_storage(transposed.storage().clone());
    let fine = space.product(None, &scalar.csr, Weight::ONE, &p)?;
    let mut coarse = space.product(None, &transposed, Weight::ONE, &fine)?;
    space.fill_empty(&mut coarse)?;
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
        inverse_of(&on, &matrix, (&field, &Fields::default()), &[], local, &spec.precond, notes)?;
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
    let made =
        Auxiliary { correction, a: a.clone(), scalar, p, transposed, products: [fine, coarse], matrix };
    Ok((Some(Box::new(made)), described))
}

/// Returns P without the rows of unknowns that no other unknown determines, and without the rounding errors
/// of a caller who computed P.
fn own_part(p: &Csr, alone: &[bool]) -> Result<Csr> {
    let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    for (i, alone) in alone.iter().enumerate() {
        let row = p.row(i);
        let largest = row.1.iter().fold(0.0f64, |max, v| max.max(v.abs()));
        let least = if *alone { f64::INFINITY } else { ROUNDING * largest };
        for (&j, &v) in row.0.iter().zip(row.1).filter(|(_, v)| v.abs() > least) {
            col.push(j);
            values.push(v);
        }
        row_ptr.push(col.len());
    }
    Csr::new(p.rows(), p.columns(), row_ptr, col, values)
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
    fn update_values(&mut self, space: &S, _: &Terms, values: TermValues) -> Result<()> {
        self.a = space.with_values(&self.a, values_of(values.term(0))?)?;
        self.scalar.update(space, &self.a)?;
        let [fine, coarse] = &mut self.products;
        space.product_again(None, &self.scalar.csr, Weight::ONE, &self.p, fine)?;
        space.product_again(None, &self.transposed, Weight::ONE, fine, coarse)?;
        space.fill_empty(coarse)?;
        let on = &self.correction.space;
        self.matrix.update(on, coarse)?;
        let terms = self.matrix.terms();
        self.correction.inverse.update_values(on, &terms, TermValues::from(&terms))
    }
    fn take_events(&mut self) -> Vec<String> {
        self.correction.inverse.take_events()
    }
}
