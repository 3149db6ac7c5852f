//! `--nullspace`: null vectors of A, which are checked before a solve projects them out of every solution.
//! `--near-nullspace`: near-null vectors for coarse levels.

use crate::failure::{Failure, Result};
use crate::options::{NearNull, Null};
use crate::system::System;
use krylith_core::Problem;
use krylith_core::text::name;

/// Returns the null vectors of `--nullspace`, in the solver's order. Collective.
///
/// # Errors
/// The file does not match the system, or A does not map the vectors to zero.
pub fn vectors(wanted: &Null, system: &System, problem: &Problem) -> Result<Vec<Vec<f64>>> {
    match wanted {
        Null::File(path) => {
            let vectors = system.null_file(path)?;
            for (i, v) in vectors.iter().enumerate() {
                let place = format!("--nullspace {}: vector {i}", name(path));
                problem.check_null_vector(v).map_err(|e| Failure::from(e).within(&place))?;
            }
            Ok(vectors)
        }
        Null::Constant => problem.constant_null_vectors().map_err(|e| {
            let failure = Failure::from(e).within("--nullspace constant");
            let message = format!("{}; omit the option, or give the null vectors in a file", failure.message);
            Failure { message, ..failure }
        }),
    }
}

/// Returns the problem with the near-null vectors of `--near-nullspace`.
///
/// # Errors
/// The file does not match the system, or rigid motions are wanted for a system without displacements or
/// coordinates.
pub fn with_near_null<'a>(wanted: &NearNull, system: &System, problem: Problem<'a>) -> Result<Problem<'a>> {
    match wanted {
        NearNull::File(path) => {
            let given = |e: krylith_core::Error| Failure::from(e).within("--near-nullspace");
            problem.with_near_null_vectors(system.null_file(path)?).map_err(given)
        }
        NearNull::Rigid => {
            problem.with_rigid_modes().map_err(|e| Failure::from(e).within("--near-nullspace rigid"))
        }
    }
}
