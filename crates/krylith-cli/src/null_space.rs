//! `--nullspace`: vectors that A maps to zero, checked before they are projected out of every answer; `--near-nullspace`: those of coarse levels.

use crate::failure::{Failure, Result};
use crate::options::{NearNull, Null};
use crate::system::System;
use krylith_core::Problem;
use krylith_core::text::name;

/// The null vectors that were asked for, in the solver's order. Collective.
///
/// # Errors
/// A file that does not fit; vectors that A does not map to zero.
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
            let message =
                format!("{}; leave the option out, or give the null vectors as a file", failure.message);
            Failure { message, ..failure }
        }),
    }
}

/// The near-null vectors that were asked for, in the solver's order.
///
/// # Errors
/// A file that does not fit; rigid motions of what has no displacements or coordinates.
pub fn near_vectors(wanted: &NearNull, system: &System, problem: &Problem) -> Result<Vec<Vec<f64>>> {
    match wanted {
        NearNull::File(path) => system.null_file(path),
        NearNull::Rigid => {
            problem.rigid_modes().map_err(|e| Failure::from(e).within("--near-nullspace rigid"))
        }
    }
}
