//! `--nullspace`: vectors that A maps to zero, checked before they are projected out of every answer.

use crate::failure::{Failure, Result};
use crate::options::Null;
use crate::residual::{magnitude, norm, residual};
use crate::system::System;
use krylith::operator::Terms;

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
    match wanted {
        Null::File(path) => {
            let vectors = system.null_file(path)?;
            for (i, v) in vectors.iter().enumerate() {
                let share = share(&terms, v);
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
                (0..system.len()).map(|i| f64::from(u8::from(belongs(i % width)))).collect()
            };
            let single = (0..width).map(|place| ones(&|p| p == place));
            let found: Vec<Vec<f64>> = single.filter(|v| share(&terms, v) <= NULL).collect();
            if !found.is_empty() {
                return Ok(found);
            }
            let together = (0..order.stages).map(|k| ones(&|p| p % order.stages == k));
            let found: Vec<Vec<f64>> = together.filter(|v| share(&terms, v) <= NULL).collect();
            if found.is_empty() {
                let message = "--nullspace constant: the system maps no constant to zero, of one field or of all; \
                     leave the option out, or give the null vectors as a file";
                return Err(Failure::usage(message));
            }
            Ok(found)
        }
    }
}

/// ‖A n‖ / ‖|A| |n|‖.
fn share(terms: &Terms, n: &[f64]) -> f64 {
    let zeros = vec![0.0; n.len()];
    norm(&residual(terms, &zeros, n)) / magnitude(terms, n).max(f64::MIN_POSITIVE)
}
