//! Products on one device.

use super::Plan;
use super::found::Row;
use super::ground::{One, Own};
use super::matrix::Case;
use crate::platform::Apply;
use crate::samples::{Samples, in_turn};
use krylith_core::Result;

/// Least seconds of a sample if caches need not be emptied, so that clocks and launches do not matter.
pub(super) const LEAST: f64 = 2e-3;
/// Largest number of products in a sample.
pub(super) const MOST: usize = 50;
/// Samples of the trial by which `auto` chooses.
pub(super) const TRIAL: usize = 3;

/// Checks every variant, then times them in turn.
pub(super) fn measure<O: One>(
    one: &O,
    case: &Case,
    plan: &Plan,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Row>> {
    let cold = case.shape.bytes() < one.cache();
    let (mut rows, mut ready) = (Vec::new(), Vec::new());
    for given in one.candidates(case)? {
        let mut row = Row { name: given.name, ranks: 1, setup: given.setup, ..Row::default() };
        progress(&format!("{}: {}", case.name, row.name));
        let made = given.product.and_then(|(mut product, notes)| {
            row.notes = notes;
            let inner = check(one, case, &mut *product, &mut row, cold)?;
            Ok((product, inner))
        });
        let made = match made {
            Ok(made) => Some(made),
            Err(e) => {
                row.failure = Some(e.to_string());
                None
            }
        };
        ready.push(made.filter(|_| row.failure.is_none()));
        rows.push(row);
    }
    let samples = in_turn(rows.len(), 0, TRIAL + plan.repetitions, |i| {
        let Some((product, inner)) = &mut ready[i] else { return Ok(f64::NAN) };
        let inner = *inner;
        if cold {
            one.evict()?;
        }
        let done = one.time(&mut || (0..inner).try_for_each(|_| product.run(0)));
        Ok(done.map(|seconds| seconds / inner as f64).unwrap_or_else(|e| {
            rows[i].failure = Some(e.to_string());
            f64::NAN
        }))
    })?;
    for (row, samples) in rows.iter_mut().zip(samples).filter(|(row, _)| row.failure.is_none()) {
        let (trial, rest) = samples.0.split_at(TRIAL);
        row.trial = Samples(trial.to_vec()).median();
        row.samples = rest.to_vec();
    }
    Ok(rows)
}

/// Checks the first product, and returns the number of products per sample.
fn check<O: One>(one: &O, case: &Case, product: &mut dyn Apply, row: &mut Row, cold: bool) -> Result<usize> {
    product.write(&case.x)?;
    product.poison(0)?;
    product.run(0)?;
    let y = product.read(0)?;
    match case.check(&Own::Run(0..y.len()), &y) {
        Ok(error) => row.error = error,
        Err(why) => (row.failure, row.wrong) = (Some(why), true),
    }
    drop(y);
    if cold || row.failure.is_some() {
        return Ok(1);
    }
    product.run(0)?;
    let seconds = one.time(&mut || product.run(0))?;
    Ok(products(seconds))
}

/// Returns the number of products per sample if one takes `seconds`.
pub(super) fn products(seconds: f64) -> usize {
    ((LEAST / seconds.max(1e-9)).ceil() as usize).clamp(1, MOST)
}
