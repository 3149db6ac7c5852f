//! Recognises the stiffness of an elastic body whose nodes have coordinates: away from supports, rigid
//! motions cause no force. Then they are near-null vectors for `amg`. On uniform meshes they cause no force
//! in Laplacians of components either, but there no component couples to another.

use crate::Result;
use crate::matrix::Arrays;
use crate::precond::NearNull;
use crate::problem::Problem;

/// Smaller systems are solved at once by any attempt.
const LEAST: usize = 1000;
/// Number of block rows of a rank that are tested.
const SAMPLE: usize = 4096;
/// Share of the tested rows on which rigid motions have no force. Others are next to supports.
const SHARE: f64 = 0.5;
/// Largest force of a motion relative to the sum of its parts. Coordinates may come from a file in f32.
const ROUNDING: f64 = 1e-5;

/// The remark for reports.
pub(super) const NOTE: &str =
    "the rows are those of an elastic body, so its rigid motions are near-null vectors of amg";

/// Returns the rigid motions as near-null vectors if the problem is an elastic body without such vectors.
/// Collective.
///
/// # Errors
/// A rank that has ended or failed.
pub(super) fn rigid_motions(problem: &Problem) -> Result<Option<NearNull>> {
    let ([(_, a)], comm) = (&problem.terms.terms[..], &*problem.comm) else { return Ok(None) };
    let known = problem.near.is_none() && problem.coordinates.is_some() && problem.stages() == 1;
    let small = problem.unknowns < LEAST || !matches!(problem.block(), 2 | 3);
    let modes = match known && !small && !a.storage().is_on_device_alone() {
        true => problem.rigid().ok(),
        false => None,
    };
    // Every rank must have the coordinates of its nodes.
    let mut lacking = [f64::from(u8::from(modes.is_none()))];
    comm.sum(&mut lacking)?;
    let Some(modes) = modes.filter(|_| lacking[0] == 0.0) else { return Ok(None) };
    let (b, rows, arrays) = (a.block(), a.block_rows(), Arrays::of(a));
    let vectors = modes.vectors();
    let mixes = |i: usize| {
        let mut entries =
            arrays.row(i).flat_map(|p| (0..b * b).map(move |e| (e, arrays.values[p * b * b + e])));
        entries.any(|(e, v)| e / b != e % b && v != 0.0)
    };
    let free = |i: usize| {
        vectors.iter().all(|v| {
            (0..b).all(|r| {
                let parts = arrays.row(i).flat_map(|p| {
                    let j = arrays.col[p] as usize;
                    (0..b).map(move |c| arrays.values[p * b * b + r * b + c] * v[j * b + c])
                });
                let [sum, size] = parts.fold([0.0, 0.0], |[sum, size], v| [sum + v, size + f64::abs(v)]);
                sum.abs() <= ROUNDING * size
            })
        })
    };
    let mut counts = [0.0; 2];
    for i in super::sample(rows, SAMPLE) {
        // The coordinates of ghosts are unknown, and a row alone says nothing.
        let inside = arrays.row(i).all(|p| (arrays.col[p] as usize) < rows);
        if inside && arrays.row(i).len() > 1 {
            counts = [counts[0] + f64::from(u8::from(mixes(i) && free(i))), counts[1] + 1.0];
        }
    }
    comm.sum(&mut counts)?;
    Ok((counts[1] > 0.0 && counts[0] >= SHARE * counts[1]).then_some(modes))
}
