//! The precision in which preconditioners compute, and what reports say of it.

use crate::Result;
use crate::comm::{self, Communicator};
use crate::precond::{PrecondInfo, Value};
use crate::problem::LocalProblem;
use crate::space::Precision;

/// Returns the precision in which incomplete factors are to compute.
pub(super) fn computed_in(local: &LocalProblem) -> Precision {
    local.precond_precision.unwrap_or_default()
}

/// If factors were to compute in f32, adds the precision in which they do: f32 if on every rank. Says if some
/// were promoted. Collective.
pub(super) fn say_computed(
    comm: &dyn Communicator,
    asked: Precision,
    narrow: bool,
    info: &mut PrecondInfo,
) -> Result<()> {
    if asked == Precision::F64 {
        return Ok(());
    }
    let promoted = comm::largest(comm, f64::from(u8::from(!narrow)))? > 0.0;
    let found = if promoted { Precision::F64 } else { asked };
    info.parameters.push(("compute".into(), Value::Text(found.to_string())));
    if promoted {
        info.details.push("computed in f64, because the range of its numbers is too large for f32".into());
    }
    Ok(())
}
