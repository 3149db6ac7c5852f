//! Builds corrections in auxiliary spaces: the product RAP for matrices P and R of the caller, and its
//! preconditioner. Without R it is the Galerkin product PᵀAP.
//!
//! Rows of A that have only a diagonal entry come from boundary values. P has no part there, so these rows
//! are left out of it, and unknowns of the auxiliary space that lose all of their rows get a diagonal entry
//! of 1.

mod maps;

use super::ghosts::GhostRows;
use super::part::{OwnField, PartMatrix, SubMatrix, inverse_of, one_matrix, placed};
use super::{Boxed, LocalProblem, PrecondInfo, Preconditioner, Value};
use crate::comm::agree;
use crate::fields::{Field, Fields, Matrices};
use crate::halo::Halo;
use crate::matrix::{Bsr, Csr};
use crate::operator::{Format, PointBlock, TermValues, Terms};
use crate::precond::assemble::{Weight, values_of};
use crate::precond::{AuxSpec, Correction, Prolongation};
use crate::profile::{self, SetupPart};
use crate::solver::SolverSpace;
use crate::space::Precision;
use crate::text::{plural, seconds};
use crate::{Error, Result};
use maps::Maps;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

/// A correction with the matrices that it was made from.
pub(super) struct Auxiliary<S: SolverSpace> {
    pub(super) correction: Correction<S>,
    a: Bsr,
    scalar: SubMatrix<S>,
    /// P, with the rows of ghosts over ranks.
    p: Csr,
    restriction: Csr,
    /// Own rows of P, and the halos of R and P, over ranks.
    own: (Csr, [Option<Arc<Halo>>; 2]),
    /// Rows of A P that other ranks own.
    rows: Option<GhostRows>,
    /// A P and RAP.
    products: [Csr; 2],
    matrix: PartMatrix<S>,
    /// Matrices of the caller, the name of P, and P.
    given: (Matrices, String, Arc<Csr>),
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
    let (name, comm, a) = (&spec.matrix, space.comm(), &*terms.terms[0].1);
    let analysis = profile::begin(SetupPart::Analysis);
    let scalar = agree(comm, SubMatrix::whole(space, a))?;
    let maps = Maps::new(space, terms, local, spec, &scalar.csr)?;
    let fine = agree(comm, space.product(None, &scalar.csr, Weight::ONE, &maps.all))?;
    let (rows, halo, coarse) = match &maps.columns {
        None => (None, None, space.product(None, &maps.restriction, Weight::ONE, &fine)),
        Some(columns) => {
            let (rows, all) = GhostRows::new(space, columns.fine.clone(), &fine, &columns.all)?;
            let coarse = space.product(None, &maps.restriction, Weight::ONE, &all);
            let halo = rows.to.halo.clone();
            (Some(rows), Some(halo), coarse)
        }
    };
    let mut coarse = agree(comm, coarse)?;
    agree(comm, space.fill_empty(&mut coarse))?;
    drop(analysis);
    let own = maps.restriction.rows();
    let on = agree(comm, if halo.is_some() { space.among(own) } else { space.beside(own) })?;
    let matrix = PartMatrix::new(&on, &coarse, spec.block, precision, halo)?;
    let near = maps.near(local)?;
    let field = Field::range(name, 0..own).in_blocks(spec.block);
    let field = if near.is_empty() { field } else { field.with_near_null_vectors(near) };
    let (blocks, total) = (maps.columns.as_ref().map(|columns| columns.own()), maps.total);
    let field = OwnField { blocks, total, ..OwnField::whole(field) };
    let (inverse, info) =
        inverse_of(&on, &matrix, (&field, &Fields::default()), &[], local, &spec.precond, notes)?;
    let made = (|| {
        let halos = maps.columns.as_ref();
        let operator = |on: &S, matrix: &Csr, halo: Option<Arc<Halo>>| {
            let format = if halo.is_some() { Format::Csr } else { Format::Auto };
            PointBlock::with_format(on, &Terms::csr(matrix)?.with_halo(halo), Precision::F64, format)
        };
        let restriction = operator(&on, &maps.restriction, halos.map(|columns| columns.fine.clone()))?;
        let prolongation = operator(space, &maps.p, halos.map(|columns| columns.own.scalars()))?;
        Correction::new(space, on, restriction, inverse, Prolongation::Matrix(prolongation))
    })();
    let correction = agree(comm, made)?;
    let own = [
        ("name".to_string(), Value::Text(info.name)),
        ("unknowns".into(), Value::Count(total as u64)),
        ("setup_seconds".into(), Value::Number(start.elapsed().as_secs_f64())),
    ];
    let line = format!(
        "{name}: {}, {}, set up in {}",
        plural(total, "unknown"),
        info.text,
        seconds(start.elapsed().as_secs_f64())
    );
    let described = PrecondInfo {
        name: "aux".into(),
        parameters: vec![(name.clone(), Value::Parameters(own.into_iter().chain(info.parameters).collect()))],
        numbers: info.numbers + 2.0 * maps.p.nonzeros() as f64,
        matrix: info.matrix,
        text: format!("auxiliary space {name}: {}", info.text),
        details: std::iter::once(line)
            .chain(info.details.into_iter().map(|line| format!("{name}: {line}")))
            .collect(),
        keeps_symmetry: info.keeps_symmetry && spec.restriction.is_none(),
        ..PrecondInfo::default()
    };
    let halos = match &maps.columns {
        None => [None, None],
        Some(columns) => [Some(columns.fine.clone()), Some(columns.own.scalars())],
    };
    let Maps { all, restriction, p: own, .. } = maps;
    let (a, products) = (a.clone(), [fine, coarse]);
    let given = (local.fields.matrices().clone(), name.clone(), local.fields.matrix(name)?);
    let own = (own, halos);
    let made = Auxiliary { correction, a, scalar, p: all, restriction, own, rows, products, matrix, given };
    Ok((Some(Box::new(made)), described))
}

impl<S: SolverSpace> Preconditioner<S> for Auxiliary<S> {
    fn update_values(&mut self, space: &S, _: &Terms, values: TermValues) -> Result<()> {
        let (matrices, name, given) = &self.given;
        if !Arc::ptr_eq(given, &matrices.matrix(name)?) {
            return Err(Error::Unsupported(format!(
                "aux: the matrix `{name}` cannot change in an update; make a new solver"
            )));
        }
        self.a = space.with_values(&self.a, values_of(values.term(0))?)?;
        self.scalar.update(space, &self.a)?;
        let [fine, coarse] = &mut self.products;
        space.product_again(None, &self.scalar.csr, Weight::ONE, &self.p, fine)?;
        let all = match &self.rows {
            None => Cow::Borrowed(&*fine),
            Some(rows) => Cow::Owned(rows.again(space, fine)?),
        };
        space.product_again(None, &self.restriction, Weight::ONE, &all, coarse)?;
        space.fill_empty(coarse)?;
        let on = &self.correction.space;
        self.matrix.update(on, coarse)?;
        let terms = self.matrix.terms();
        self.correction.inverse.update_values(on, &terms, TermValues::from(&terms))
    }
    fn prepare_transpose(&mut self, space: &S, _: &Terms) -> Result<()> {
        let (p, [fine, coarse]) = &self.own;
        let Correction { space: on, restriction, prolongation, inverse, .. } = &mut self.correction;
        restriction.prepare_transpose(space, &Terms::csr(&self.restriction)?.with_halo(fine.clone()))?;
        if let Prolongation::Matrix(matrix) = prolongation {
            matrix.prepare_transpose(on, &Terms::csr(p)?.with_halo(coarse.clone()))?;
        }
        inverse.prepare_transpose(on, &self.matrix.terms())
    }
    fn take_events(&mut self) -> Vec<String> {
        self.correction.inverse.take_events()
    }
}
