//! Builds direct factors: their memory limit, and their description for reports.

use super::{Boxed, PrecondInfo, Preconditioner};
use crate::comm::agree;
use crate::halo::RowNumbers;
use crate::operator::{TermValues, Terms};
use crate::precond::lu::listed;
use crate::precond::{LuOver, LuSpec, RanksLu, RanksLuOptions, SparseLu};
use crate::problem::LocalProblem;
use crate::profile::{self, SetupPart};
use crate::solver::{SolverSpace, host};
use crate::text::{count, seconds};
use crate::{Error, Result};
use std::time::Instant;

/// Factorises the whole system, in at most half of the free host memory. Collective.
pub(super) fn build<S: SolverSpace>(
    space: &S,
    terms: &Terms,
    local: &LocalProblem,
    spec: LuSpec,
) -> Result<(Boxed<S>, PrecondInfo)> {
    let start = Instant::now();
    let _factors = profile::begin(SetupPart::Factors);
    let free = host::memory().map(|(_, free)| free / 2);
    if local.comm.size() == 1 && spec.over != LuOver::Mumps {
        return alone(space, terms, local, spec, free, start);
    }
    let numbers = match local.numbers {
        Some(numbers) => numbers,
        None if local.comm.size() == 1 => RowNumbers::Run { first: 0, count: terms.block_rows() },
        None => {
            return Err(Error::Unsupported(
                "lu: direct factors of a part that every rank has as a whole are not supported; use jacobi"
                    .into(),
            ));
        }
    };
    let options = RanksLuOptions { over: spec.over, most: spec.most, free };
    let p = RanksLu::new(space.comm(), terms, numbers, local.null, options);
    let p = p.map_err(|e| of_limit(e, spec.most))?;
    let (numbers, is_bound) = p.numbers();
    let mut info = info(&p.kind(), numbers, is_bound, &p.weak_rows(), start);
    info.details.insert(0, p.way());
    info.matrix = p.stored();
    Ok((Some(Box::new(p)), info))
}

/// Factorises a system that is entirely on one rank.
fn alone<S: SolverSpace>(
    space: &S,
    terms: &Terms,
    local: &LocalProblem,
    spec: LuSpec,
    free: Option<u64>,
    start: Instant,
) -> Result<(Boxed<S>, PrecondInfo)> {
    let named = spec.most.map(SparseLu::bytes_of);
    let made = SparseLu::with_null_vectors(terms, local.null, named.into_iter().chain(free).min());
    let p = agree(space.comm(), made.map_err(|e| of_limit(e, spec.most)))?;
    let mut info = info(p.kind(), p.numbers() as f64, p.is_bound(), &p.weak_rows(), start);
    info.matrix = p.stored() as f64;
    Ok((Some(Box::new(p)), info))
}

/// Describes factors of a kind with so many numbers, or at most so many, and the rows without a pivot.
fn info(kind: &str, numbers: f64, is_bound: bool, weak_rows: &[usize], start: Instant) -> PrecondInfo {
    let most = if is_bound { "at most " } else { "" };
    let set_up = seconds(start.elapsed().as_secs_f64());
    let mut details =
        vec![format!("{most}{} numbers in the factors, set up in {set_up}", count(numbers as usize))];
    details.extend(weak(weak_rows));
    PrecondInfo {
        name: "lu".into(),
        numbers,
        text: format!("sparse direct factors ({kind})"),
        details,
        keeps_symmetry: true,
        ..PrecondInfo::default()
    }
}

/// If the user set the limit of a memory error, names that limit and not a lack of memory.
fn of_limit(e: Error, most: Option<usize>) -> Error {
    match (e, most) {
        (Error::Memory { what, needed, free, remedy, .. }, Some(most))
            if free == SparseLu::bytes_of(most) =>
        {
            let place = format!("the share of host memory that most={most} allows");
            Error::Memory { what, needed, free, place, remedy }
        }
        (e, _) => e,
    }
}

/// Lists rows without a pivot.
fn weak(rows: &[usize]) -> Option<String> {
    (!rows.is_empty()).then(|| format!("no pivot above rounding errors in {}", listed(rows)))
}

impl<S: SolverSpace> Preconditioner<S> for RanksLu {
    fn update_values(&mut self, space: &S, _: &Terms, values: TermValues) -> Result<()> {
        RanksLu::update_values(self, space.comm(), values)
    }
}

impl<S: SolverSpace> Preconditioner<S> for SparseLu {
    fn update_values(&mut self, _: &S, _: &Terms, values: TermValues) -> Result<()> {
        SparseLu::update_values(self, values)
    }
}
