//! `--nullspace`: vectors that A maps to zero, checked before they are projected out of every answer.

use crate::failure::{Failure, Result};
use crate::options::Null;
use crate::residual::Given;
use crate::system::System;

/// ‖A n‖ over ‖|A| |n|‖ up to which n counts as a null vector.
const NULL: f64 = 1e-8;

/// The null vectors that were asked for, in the solver's order.
///
/// `constant` tries the constant of every field and stage, and where none is a null vector, of all fields at once:
/// projecting out a constant that A does not map to zero would make the system unsolvable.
///
/// # Errors
/// A file that does not fit; vectors that A does not map to zero.
pub fn vectors(wanted: &Null, system: &System) -> Result<Vec<Vec<f64>>> {
    let terms = system.operator.terms();
    let given = Given { terms: &terms, comm: system.comm() };
    match wanted {
        Null::File(path) => {
            let vectors = system.null_file(path)?;
            for (i, v) in vectors.iter().enumerate() {
                let share = share(given, v)?;
                if share.is_nan() || share > 100.0 * NULL {
                    return Err(Failure::usage(format!(
                        "--nullspace {}: vector {i} is no null vector of the system: ‖A n‖ is {share:.1e} of what \
                         the entries of A could make of it",
                        path.display()
                    )));
                }
            }
            Ok(vectors)
        }
        Null::Constant => {
            let order = system.order;
            let width = order.block * order.stages;
            let ones = |belongs: &dyn Fn(usize) -> bool| -> Vec<f64> {
                (0..system.own_len()).map(|i| f64::from(u8::from(belongs(i % width)))).collect()
            };
            let single = (0..width).map(|place| ones(&|p| p == place));
            let found = nulls(given, single)?;
            if !found.is_empty() {
                return Ok(found);
            }
            let together = (0..order.stages).map(|k| ones(&|p| p % order.stages == k));
            let found = nulls(given, together)?;
            if found.is_empty() {
                let message = "--nullspace constant: the system maps no constant to zero, of one field or of all; \
                     leave the option out, or give the null vectors as a file";
                return Err(Failure::usage(message));
            }
            Ok(found)
        }
    }
}

/// Those that A maps to zero.
fn nulls(given: Given, vectors: impl Iterator<Item = Vec<f64>>) -> Result<Vec<Vec<f64>>> {
    let mut found = Vec::new();
    for v in vectors {
        if share(given, &v)? <= NULL {
            found.push(v);
        }
    }
    Ok(found)
}

/// ‖A n‖ / ‖|A| |n|‖.
fn share(given: Given, n: &[f64]) -> Result<f64> {
    let zeros = vec![0.0; n.len()];
    let (product, most) = (given.norm(&given.residual(&zeros, n)?)?, given.magnitude(n)?);
    Ok(product / most.max(f64::MIN_POSITIVE))
}
