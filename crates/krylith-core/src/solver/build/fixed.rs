//! Multigrid for systems in which rows with a diagonal alone fix boundary values, while other rows still
//! refer to these unknowns.
//!
//! Many codes impose a boundary value in this way. Coarse levels that interpolate from fixed unknowns, and
//! that add other rows to theirs, do not correct errors: GMRES stagnates. So fixed unknowns are solved first,
//! and multigrid has the block of the others, as if the code had eliminated the boundary values.

use super::{Boxed, PrecondInfo, SharedOperator, split};
use crate::comm::agree;
use crate::fields::{Field, Fields};
use crate::matrix::Csr;
use crate::precond::{AmgSpec, CoarsenKind, PrecondSpec, SplitForm, SplitSpec};
use crate::problem::LocalProblem;
use crate::solver::SolverSpace;
use crate::space::{Precision, random};
use crate::text::plural;
use crate::{Error, Result};

/// The parts of the split, by name.
const FIXED: &str = "fixed";
const OTHERS: &str = "others";

/// Builds a cycle for the unknowns that are not fixed; `None` if no other row refers to a fixed one. `a` is
/// the system as an operator. Collective.
pub(super) fn build<S: SolverSpace>(
    space: &S,
    local: &LocalProblem,
    spec: &AmgSpec,
    precision: Precision,
    a: &SharedOperator<S>,
    notes: &mut Vec<String>,
) -> Result<Option<(Boxed<S>, PrecondInfo)>> {
    let (comm, terms) = (space.comm(), local.terms);
    // Approximate ideal restriction takes such rows as they are.
    let suits = !matches!(spec.coarsen, Some(CoarsenKind::Air { .. }));
    let scalar = terms.block() * terms.stages() == 1 && terms.terms.len() == 1;
    if !suits || !scalar || !local.null.is_empty() || local.near.is_some() {
        return Ok(None);
    }
    let matrix = Csr::from_storage(terms.terms[0].1.storage().clone());
    let mut fixed = agree(comm, space.alone(&matrix, None))?;
    if !space.any(fixed.contains(&true))? {
        return Ok(None);
    }
    let diagonal = agree(comm, space.diagonal(&matrix, false))?;
    fixed.iter_mut().zip(&diagonal).for_each(|(fixed, d)| *fixed &= *d != 0.0);
    let own = fixed.iter().filter(|fixed| **fixed).count();
    let mut counts = [own as f64, fixed.len() as f64];
    comm.sum(&mut counts)?;
    if counts[0] == 0.0 || counts[0] == counts[1] || !referred(space, &fixed, a)? {
        return Ok(None);
    }
    let numbers = |wanted: bool| {
        let own = (0..fixed.len()).filter(|&i| fixed[i] == wanted);
        own.map(|i| local.numbers.map_or(i as u64, |numbers| numbers.at(i)) as u32).collect::<Vec<_>>()
    };
    let parts = vec![Field::new(FIXED, numbers(true)), Field::new(OTHERS, numbers(false))];
    let mut fields = Fields::default();
    let set = match local.numbers {
        Some(own) => fields.set_own(parts, local.unknowns, (0..fixed.len()).map(|i| own.at(i))),
        None => fields.set(parts, local.unknowns),
    };
    agree(comm, set)?;
    let amg = PrecondSpec::Amg(*spec);
    let split = SplitSpec {
        parts: vec![(FIXED.into(), PrecondSpec::Jacobi { block: None }), (OTHERS.into(), amg)],
        form: SplitForm::Lower,
        schur: None,
    };
    let inner = LocalProblem { fields: &fields, ..*local };
    let (p, mut info) = split::build(space, terms, &inner, &split, precision, notes)?;
    let rows = plural(counts[0] as usize, "row");
    info.text = format!("algebraic multigrid after {rows} with a diagonal alone");
    notes.push(format!(
        "amg solves {rows} with a diagonal alone first, because other rows refer to their unknowns"
    ));
    Ok(Some((p, info)))
}

/// Returns true if a row that is not fixed refers to a fixed unknown. Collective.
fn referred<S: SolverSpace>(space: &S, fixed: &[bool], a: &SharedOperator<S>) -> Result<bool> {
    use crate::operator::LinearOperator;
    let made = (|| Ok::<_, Error>((space.vector()?, space.vector()?)))();
    let (mut x, mut y) = agree(space.comm(), made)?;
    let mut host: Vec<f64> = (0..fixed.len()).map(|i| random(7, i as u64)).collect();
    host.iter_mut().zip(fixed).filter(|(_, fixed)| !**fixed).for_each(|(x, _)| *x = 0.0);
    space.write(&host, &mut x)?;
    a.borrow().apply(space, &x, &mut y)?;
    space.read(&y, &mut host)?;
    space.any(host.iter().zip(fixed).any(|(y, fixed)| !fixed && *y != 0.0))
}
