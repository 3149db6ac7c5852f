//! The precision in which preconditioners compute, and what reports say of it.

use crate::Result;
use crate::comm::{self, Communicator};
use crate::precond::{PrecondInfo, Value};
use crate::problem::LocalProblem;
use crate::space::{Precision, PrecondPrecision};

/// Returns the precision in which incomplete factors are to compute.
pub(super) fn computed_in(local: &LocalProblem) -> Precision {
    local.precond_precision.unwrap_or_default().of_vectors()
}

/// If factors were to compute in f32 or bf16, adds the precision in which they do: f32 if on every rank. Says
/// if some were promoted. Collective.
pub(super) fn say_computed(
    comm: &dyn Communicator,
    local: &LocalProblem,
    narrow: bool,
    info: &mut PrecondInfo,
) -> Result<()> {
    let asked = local.precond_precision.unwrap_or_default();
    if asked == PrecondPrecision::F64 {
        return Ok(());
    }
    let promoted = comm::largest(comm, f64::from(u8::from(!narrow)))? > 0.0;
    let found = if promoted { Precision::F64 } else { Precision::F32 };
    info.parameters.push(("compute".into(), Value::Text(found.to_string())));
    if promoted {
        info.details.push("computed in f64, because the range of its numbers is too large for f32".into());
    } else if asked == PrecondPrecision::Bf16 {
        info.details.push("computed in f32, because factors have no form in bf16".into());
    }
    Ok(())
}
