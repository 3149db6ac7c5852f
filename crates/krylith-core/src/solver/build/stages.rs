//! `stage(P)`: the stage preconditioner of [`crate::precond::Stage`] with any preconditioner P for the matrix
//! of one stage.
//!
//! Stage k has the matrix αₖ M + L with αₖ = aₖₖ / cₖ and cₖ = τ(L̂D)ₖₖ, and its solution is divided by cₖ.
//! So matrices of the caller, such as the mass matrix of the pressure, are those of L for every τ and stage.
//! If cₖ is zero, the matrix is aₖₖ M.
//!
//! Traffic of one application, for vectors of N numbers: the preconditioners of s stages, 40 N bytes, and for
//! the coupling s − 1 times a product and 24 N bytes.

mod single;

use super::part::{PartMatrix, SubMatrix};
use super::{Boxed, LocalProblem, PrecondInfo, Preconditioner, Value, by_name};
use crate::comm::agree;
use crate::matrix::{Bsr, Csr, Dense};
use crate::operator::{LinearOperator, TermValues, Terms, applied, fresh_key, joined_key};
use crate::precond::assemble::Weight;
use crate::precond::stage::{Coupling, clear, lower_factors};
use crate::precond::{PrecondSpec, residual, split_scale};
use crate::profile::{self, SetupPart};
use crate::solver::SolverSpace;
use crate::space::Precision;
use crate::text::{plural, seconds};
use crate::{Error, Result};
use std::cell::RefCell;
use std::time::Instant;

/// One stage.
struct Stage<S: SolverSpace> {
    space: S,
    /// Its numbers in a vector of all stages.
    entries: S::Entries,
    /// αₖ M + L.
    sum: Csr,
    matrix: PartMatrix<S>,
    inverse: Box<dyn Preconditioner<S>>,
    /// 1 / cₖ in every entry.
    scale: S::Vector,
    work: RefCell<[S::Vector; 2]>,
    scalars: RefCell<S::Scalars>,
}

/// The preconditioner with the matrices that it was made from.
pub(super) struct Stages<S: SolverSpace> {
    stages: Vec<Stage<S>>,
    coupling: Option<Coupling<S>>,
    /// M and L, as they are and as scalar matrices.
    terms: [(Bsr, SubMatrix<S>); 2],
    /// x minus the contributions of earlier stages.
    rest: RefCell<S::Vector>,
    scalars: RefCell<S::Scalars>,
    len: u64,
    key: u64,
}

/// The numbers αₖ and cₖ of a stage, and whether L takes part in it.
#[derive(Clone, Copy)]
struct Factors {
    alpha: f64,
    scale: f64,
    both: bool,
}

impl Factors {
    fn of(lower: &[Dense], k: usize) -> Self {
        let (a, c) = (lower[0][(k, k)], lower[1][(k, k)]);
        match c == 0.0 {
            true => Self { alpha: a, scale: 1.0, both: false },
            false => Self { alpha: a / c, scale: 1.0 / c, both: true },
        }
    }
}

/// Returns αI, of one entry per row.
fn multiple_of_identity(alpha: f64, n: usize) -> Result<Csr> {
    Csr::new(n, n, (0..=n).collect(), (0..n as u32).collect(), vec![alpha; n])
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
    let start = Instant::now();
    if terms.terms.len() == 1 {
        return single::build(space, terms, local, spec, precision, notes);
    }
    let [(_, m), (_, l)] = &terms.terms[..] else {
        return Err(Error::Internal(format!("a sum of {}", plural(terms.terms.len(), "term"))));
    };
    let (s, b, n) = (terms.stages(), terms.block(), m.rows());
    let lower = lower_factors(&TermValues::from(terms))?;
    let analysis = profile::begin(SetupPart::Analysis);
    let made = (|| {
        let whole = |a: &Bsr| -> Result<_> { Ok((a.clone(), SubMatrix::whole(space, a)?)) };
        Ok([whole(m)?, whole(l)?])
    })();
    let whole = agree(space.comm(), made)?;
    drop(analysis);
    let (mut stages, mut infos) = (Vec::with_capacity(s), Vec::new());
    for k in 0..s {
        let made = (|| {
            let (identity, l) = factors_of(space, &whole, Factors::of(&lower, k))?;
            let sum = space.product(Some(&l), &identity, Weight::ONE, &whole[0].1.csr)?;
            let on = if local.terms.halo.is_some() { space.among(n) } else { space.beside(n) }?;
            let numbers: Vec<u32> = (0..n as u32).map(|i| i * s as u32 + k as u32).collect();
            Ok((sum, on, space.entries(&numbers)?))
        })();
        let (sum, on, entries) = agree(space.comm(), made)?;
        let matrix = PartMatrix::new(&on, &sum, b, precision, terms.halo.clone())?;
        let one = matrix.terms();
        let sub = LocalProblem {
            terms: &one,
            unknowns: local.unknowns / s,
            null: &[],
            near: local.near.filter(|near| near.rows() == n),
            stages: None,
            ..*local
        };
        let (inverse, info) = by_name(&on, &one, &sub, spec, precision, &matrix.operator, notes)?;
        let inverse = inverse.ok_or_else(|| Error::invalid("stage(none): name a preconditioner"))?;
        infos.push(info);
        let made = (|| {
            let mut scale = on.vector()?;
            on.write(&vec![Factors::of(&lower, k).scale; n], &mut scale)?;
            let work = RefCell::new([on.vector()?, on.vector()?]);
            let scalars = RefCell::new(on.scalars(1)?);
            Ok((scale, work, scalars))
        })();
        let (scale, work, scalars) = agree(space.comm(), made)?;
        stages.push(Stage { space: on, entries, sum, matrix, inverse, scale, work, scalars });
    }
    let coupling = agree(space.comm(), Coupling::new(space, terms, &lower, precision))?;
    let made = (|| Ok((RefCell::new(space.vector()?), RefCell::new(space.scalars(1)?))))();
    let (rest, scalars) = agree(space.comm(), made)?;
    let info = describe(spec, infos, start);
    let (len, key) = (space.len() as u64, fresh_key());
    let made = Stages { stages, coupling, terms: whole, rest, scalars, len, key };
    Ok((Some(Box::new(made)), info))
}

/// Returns αI and L, or zeros in place of L if it takes no part: the factors of αI M + L.
fn factors_of<S: SolverSpace>(
    space: &S,
    [(_, m), (whole, l)]: &[(Bsr, SubMatrix<S>); 2],
    of: Factors,
) -> Result<(Csr, Csr)> {
    let identity = multiple_of_identity(of.alpha, m.csr.rows())?;
    if of.both {
        return Ok((identity, l.csr.clone()));
    }
    let zeros = vec![0.0; whole.stored()];
    let empty = SubMatrix::whole(space, &space.with_values(whole, (&zeros).into())?)?;
    Ok((identity, empty.csr))
}

/// Describes all stages by the first.
fn describe(spec: &PrecondSpec, infos: Vec<PrecondInfo>, start: Instant) -> PrecondInfo {
    let s = infos.len();
    let (numbers, matrix) = infos.iter().fold((0.0, 0.0), |(n, m), info| (n + info.numbers, m + info.matrix));
    let Some(first) = infos.into_iter().next() else { return PrecondInfo::default() };
    let took = seconds(start.elapsed().as_secs_f64());
    PrecondInfo {
        name: "stage".into(),
        parameters: vec![
            ("stages".to_string(), Value::Count(s as u64)),
            ("name".into(), Value::Text(first.name)),
            ("of_a_stage".into(), Value::Parameters(first.parameters)),
        ],
        numbers,
        matrix,
        text: format!("{}, each by {}", plural(s, "stage"), first.text),
        details: std::iter::once(format!("{} by {spec}, set up in {took}", plural(s, "stage")))
            .chain(first.details.into_iter().map(|line| format!("stage 1: {line}")))
            .collect(),
        keeps_symmetry: false,
        ..PrecondInfo::default()
    }
}

impl<S: SolverSpace> Stages<S> {
    /// Solves one stage after the other. The transpose begins with the last.
    fn substitute(&self, space: &S, turned: bool, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let (rest, scalars) = (&mut *self.rest.borrow_mut(), &mut *self.scalars.borrow_mut());
        if self.coupling.is_some() {
            // The product of the coupling reads stages that are not solved yet, with coefficients of zero.
            space.sweep(clear, scalars, [], [], [&mut *y], [])?;
        }
        for k in 0..self.stages.len() {
            let stage = &self.stages[if turned { self.stages.len() - 1 - k } else { k }];
            let [from, to] = &mut *stage.work.borrow_mut();
            match self.coupling.as_ref().filter(|_| k > 0) {
                None => space.gather(&stage.entries, x, from)?,
                Some(coupling) => {
                    applied(&coupling.product, turned, space, y, rest)?;
                    space.sweep(residual, scalars, [], [x], [&mut *rest], [])?;
                    space.gather(&stage.entries, rest, from)?;
                }
            }
            applied(&*stage.inverse, turned, &stage.space, from, to)?;
            let own = &mut *stage.scalars.borrow_mut();
            stage.space.sweep(split_scale, own, [], [&stage.scale], [&mut *to], [])?;
            space.scatter(&stage.entries, to, y)?;
        }
        Ok(())
    }
}

impl<S: SolverSpace> LinearOperator<S> for Stages<S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.substitute(space, false, x, y)
    }
    fn has_transpose(&self) -> bool {
        self.stages.iter().all(|stage| stage.inverse.has_transpose())
    }
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.substitute(space, true, x, y)
    }
    fn key(&self) -> u64 {
        let coupling = self.coupling.as_ref().map(|coupling| coupling.product.key());
        let stages = self.stages.iter().map(|stage| stage.inverse.key());
        joined_key([self.key].into_iter().chain(stages).chain(coupling))
    }
    fn bytes(&self) -> u64 {
        let stages: u64 = self.stages.iter().map(|stage| stage.inverse.bytes()).sum();
        let products = self.stages.len() as u64 - 1;
        let coupling = |c: &Coupling<S>| products * (c.product.bytes() + 24 * self.len);
        stages + 40 * self.len + self.coupling.as_ref().map_or(0, coupling)
    }
    fn recordable(&self) -> bool {
        let coupling = self.coupling.as_ref().is_none_or(|coupling| coupling.product.recordable());
        coupling && self.stages.iter().all(|stage| stage.inverse.recordable())
    }
}

impl<S: SolverSpace> Preconditioner<S> for Stages<S> {
    fn update_values(&mut self, space: &S, _: &Terms, values: TermValues) -> Result<()> {
        let lower = lower_factors(&values)?;
        if values.stages() != self.stages.len() || values.len() != 2 {
            return Err(Error::invalid(format!(
                "the new values have {} and {}; the preconditioner was built for {} and 2 matrices; build a new one",
                plural(values.stages(), "stage"),
                plural(values.len(), "matrix"),
                plural(self.stages.len(), "stage")
            )));
        }
        for ((a, scalar), (_, new)) in self.terms.iter_mut().zip(values.iter()) {
            *a = space.with_values(a, new)?;
            scalar.update(space, a)?;
        }
        for (k, stage) in self.stages.iter_mut().enumerate() {
            let of = Factors::of(&lower, k);
            let (identity, l) = factors_of(space, &self.terms, of)?;
            let m = &self.terms[0].1.csr;
            space.product_again(Some(&l), &identity, Weight::ONE, m, &mut stage.sum)?;
            stage.matrix.update(&stage.space, &stage.sum)?;
            stage.space.write(&vec![of.scale; stage.space.len()], &mut stage.scale)?;
            let terms = stage.matrix.terms();
            stage.inverse.update_values(&stage.space, &terms, TermValues::from(&terms))?;
        }
        Coupling::update(&mut self.coupling, space, &lower, values)
    }
    fn prepare_transpose(&mut self, space: &S, terms: &Terms) -> Result<()> {
        for stage in &mut self.stages {
            stage.inverse.prepare_transpose(&stage.space, &stage.matrix.terms())?;
        }
        let lower = lower_factors(&TermValues::from(terms))?;
        self.coupling.as_mut().map_or(Ok(()), |coupling| coupling.prepare_transpose(space, terms, &lower))
    }
    fn take_events(&mut self) -> Vec<String> {
        self.stages.iter_mut().flat_map(|stage| stage.inverse.take_events()).collect()
    }
}
