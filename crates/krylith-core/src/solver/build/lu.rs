//! Builds direct factors: their memory limit, and their description for reports.

use super::{Boxed, PrecondInfo, Preconditioner};
use crate::comm::agree;
use crate::operator::{TermValues, Terms};
use crate::precond::lu::listed;
use crate::precond::{LuSpec, SparseLu};
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
    let made = match local.comm.size() {
        1 => {
            let named = spec.most.map(SparseLu::bytes_of);
            let free = host::memory().map(|(_, free)| free / 2);
            let made = SparseLu::with_null_vectors(terms, local.null, named.into_iter().chain(free).min());
            made.map_err(|e| match (e, spec.most) {
                // If the user set the limit, report that limit and not a lack of memory.
                (Error::Memory { what, needed, free, remedy, .. }, Some(most)) if named == Some(free) => {
                    let place = format!("the share of host memory that most={most} allows");
                    Error::Memory { what, needed, free, place, remedy }
                }
                (e, _) => e,
            })
        }
        ranks => Err(Error::Unsupported(format!(
            "lu: the system is distributed over {ranks} ranks, and direct factors need it on one; use one \
             rank, or ras or amg"
        ))),
    };
    let p = agree(space.comm(), made)?;
    let kind = p.kind();
    let most = if p.is_bound() { "at most " } else { "" };
    let set_up = seconds(start.elapsed().as_secs_f64());
    let mut details =
        vec![format!("{most}{} numbers in the factors, set up in {set_up}", count(p.numbers()))];
    let weak = p.weak_rows();
    if !weak.is_empty() {
        details.push(format!("no pivot above rounding errors in {}", listed(&weak)));
    }
    let info = PrecondInfo {
        name: "lu".into(),
        numbers: p.numbers() as f64,
        matrix: p.stored() as f64,
        text: format!("sparse direct factors ({kind})"),
        details,
        keeps_symmetry: true,
        ..PrecondInfo::default()
    };
    Ok((Some(Box::new(p)), info))
}

impl<S: SolverSpace> Preconditioner<S> for SparseLu {
    fn update_values(&mut self, _: &S, _: &Terms, values: TermValues) -> Result<()> {
        SparseLu::update_values(self, values)
    }
}
