//! `stage(P)` for one Kronecker product C ⊗ K, such as an approximate Schur complement of a Kronecker sum:
//! y = (I ⊗ P) (C⁻¹ ⊗ I) x, with one preconditioner P of K for all stages. A plain matrix is one stage.
//!
//! Traffic of one application, for vectors of N numbers and s stages: s times P, and 60 N bytes.

use super::super::part::PartMatrix;
use super::super::{Boxed, LocalProblem, PrecondInfo, Preconditioner, by_name};
use crate::comm::agree;
use crate::matrix::{Bsr, Dense};
use crate::operator::{LinearOperator, PointBlock, TermValues, Terms, fresh_key, joined_key};
use crate::precond::assemble::values_of;
use crate::precond::multilevel::ranks::rows::identity;
use crate::precond::{PrecondSpec, invert_block};
use crate::solver::SolverSpace;
use crate::solver::build::part::SubMatrix;
use crate::space::Precision;
use crate::{Error, Result};
use std::borrow::Cow;
use std::cell::RefCell;
use std::time::Instant;

/// The preconditioner with the matrix that it was made from.
pub(super) struct OneTerm<S: SolverSpace> {
    /// Vectors of one stage.
    space: S,
    /// Numbers of each stage in a vector of all stages.
    entries: Vec<S::Entries>,
    /// K, as it is and as a scalar matrix.
    a: Bsr,
    scalar: SubMatrix<S>,
    matrix: PartMatrix<S>,
    inverse: Box<dyn Preconditioner<S>>,
    /// C⁻¹ ⊗ I.
    mix: PointBlock<S>,
    mixed: RefCell<S::Vector>,
    work: RefCell<[S::Vector; 2]>,
    key: u64,
}

/// Returns C⁻¹.
fn inverse(c: &Dense) -> Result<Dense> {
    let s = c.rows();
    let (mut a, mut to) = (c.values().to_vec(), vec![0.0; s * s]);
    match invert_block(s, &mut a, &mut to) {
        true => Dense::new(s, s, to),
        false => Err(Error::invalid(format!(
            "stage: the matrix of coefficients between the {s} stages has no inverse, so a Schur complement of all stages \
             has none; write stage(split(…)), which solves one stage after the other"
        ))),
    }
}

/// Builds the preconditioner.
pub(super) fn build<S: SolverSpace>(
    space: &S,
    terms: &Terms,
    local: &LocalProblem,
    spec: &PrecondSpec,
    precision: Precision,
    notes: &mut Vec<String>,
) -> Result<(Boxed<S>, PrecondInfo)> {
    let (start, comm, (c, a)) = (Instant::now(), space.comm(), &terms.terms[0]);
    let (s, n) = (terms.stages(), a.rows());
    let made = (|| {
        let on = if local.terms.halo.is_some() { space.among(n) } else { space.beside(n) }?;
        let one = identity(n);
        let mix = Terms { terms: vec![(inverse(c)?, Cow::Borrowed(&one))], halo: None };
        let mix = PointBlock::new(space, &mix, Precision::F64, false)?;
        let stage = |k: u32| (0..n as u32).map(|i| i * s as u32 + k).collect::<Vec<u32>>();
        let entries = (0..s as u32).map(|k| space.entries(&stage(k))).collect::<Result<Vec<_>>>()?;
        Ok((on, mix, entries, SubMatrix::whole(space, a)?))
    })();
    let (on, mix, entries, scalar) = agree(comm, made)?;
    let matrix = PartMatrix::new(&on, &scalar.csr, terms.block(), precision, terms.halo.clone())?;
    let one = matrix.terms();
    let near = local.near.filter(|near| near.rows() == n);
    let null = if local.null.iter().all(|v| v.len() == n) { local.null } else { &[] };
    let unknowns = local.unknowns / s;
    let sub = LocalProblem { terms: &one, unknowns, null, near, stages: None, ..*local };
    let (inverse, info) = by_name(&on, &one, &sub, spec, precision, &matrix.operator, notes)?;
    let inverse = inverse.ok_or_else(|| Error::invalid("stage(none): name a preconditioner"))?;
    let work = (|| Ok((RefCell::new(space.vector()?), RefCell::new([on.vector()?, on.vector()?]))))();
    let (mixed, work) = agree(comm, work)?;
    let mut described = super::describe(spec, vec![info], start);
    described.parameters[0].1 = super::Value::Count(s as u64);
    let (a, key) = ((**a).clone(), fresh_key());
    let made = OneTerm { space: on, entries, a, scalar, matrix, inverse, mix, mixed, work, key };
    Ok((Some(Box::new(made)), described))
}

impl<S: SolverSpace> LinearOperator<S> for OneTerm<S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let (mixed, [from, to]) = (&mut *self.mixed.borrow_mut(), &mut *self.work.borrow_mut());
        self.mix.apply(space, x, mixed)?;
        for entries in &self.entries {
            space.gather(entries, mixed, from)?;
            self.inverse.apply(&self.space, from, to)?;
            space.scatter(entries, to, y)?;
        }
        Ok(())
    }
    fn has_transpose(&self) -> bool {
        self.inverse.has_transpose()
    }
    /// P and C⁻¹ act on different indices, so their order does not matter.
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let (mixed, [from, to]) = (&mut *self.mixed.borrow_mut(), &mut *self.work.borrow_mut());
        self.mix.apply_transpose(space, x, mixed)?;
        for entries in &self.entries {
            space.gather(entries, mixed, from)?;
            self.inverse.apply_transpose(&self.space, from, to)?;
            space.scatter(entries, to, y)?;
        }
        Ok(())
    }
    fn key(&self) -> u64 {
        joined_key([self.key, self.mix.key(), self.inverse.key()])
    }
    fn bytes(&self) -> u64 {
        let s = self.entries.len() as u64;
        self.mix.bytes() + s * (self.inverse.bytes() + 40 * self.space.len() as u64)
    }
    fn recordable(&self) -> bool {
        self.inverse.recordable()
    }
}

impl<S: SolverSpace> Preconditioner<S> for OneTerm<S> {
    fn update_values(&mut self, space: &S, _: &Terms, values: TermValues) -> Result<()> {
        let (c, _) = values.term(0).ok_or_else(|| Error::Internal("a term without values".into()))?;
        space.update_coefficients(self.mix.product_mut(), &[inverse(c)?])?;
        self.a = space.with_values(&self.a, values_of(values.term(0))?)?;
        self.scalar.update(space, &self.a)?;
        self.matrix.update(&self.space, &self.scalar.csr)?;
        let terms = self.matrix.terms();
        self.inverse.update_values(&self.space, &terms, TermValues::from(&terms))
    }
    fn prepare_transpose(&mut self, space: &S, terms: &Terms) -> Result<()> {
        let one = identity(self.a.rows());
        let mix = Terms { terms: vec![(inverse(&terms.terms[0].0)?, Cow::Borrowed(&one))], halo: None };
        self.mix.prepare_transpose(space, &mix)?;
        self.inverse.prepare_transpose(&self.space, &self.matrix.terms())
    }
    fn take_events(&mut self) -> Vec<String> {
        self.inverse.take_events()
    }
}
