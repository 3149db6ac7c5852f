//! Repeated measurements.

use krylith_core::Result;
use krylith_core::comm::{Communicator, largest};
use krylith_core::space::Space;
pub use krylith_model::Samples;
use std::time::Instant;

/// Takes samples in turn ([`in_turn`]) of some of many candidates, given by index.
pub(crate) fn in_turn_of(
    which: &[usize],
    warm: usize,
    repetitions: usize,
    mut sample: impl FnMut(usize) -> Result<f64>,
) -> Result<Vec<(usize, Samples)>> {
    let all = in_turn(which.len(), warm, repetitions, |i| sample(which[i]))?;
    Ok(which.iter().copied().zip(all).collect())
}

/// Takes `repetitions` samples of `candidates` things in turn, after `warm` discarded rounds.
///
/// Taking turns spreads clock drifts and disturbances evenly over everything that is compared.
pub(crate) fn in_turn(
    candidates: usize,
    warm: usize,
    repetitions: usize,
    mut sample: impl FnMut(usize) -> Result<f64>,
) -> Result<Vec<Samples>> {
    let mut all = vec![Samples::default(); candidates];
    for round in 0..warm + repetitions {
        for (i, samples) in all.iter_mut().enumerate() {
            let seconds = sample(i)?;
            if round >= warm {
                samples.0.push(seconds);
            }
        }
    }
    Ok(all)
}

/// Takes samples of one thing, after `warm` discarded ones.
pub(crate) fn repeated(
    warm: usize,
    repetitions: usize,
    mut sample: impl FnMut() -> Result<f64>,
) -> Result<Samples> {
    Ok(in_turn(1, warm, repetitions, |_| sample())?.swap_remove(0))
}

/// Returns the seconds of work that all ranks begin together with idle devices: those of the slowest rank.
pub(crate) fn together<S: Space>(
    space: &S,
    comm: &dyn Communicator,
    work: impl FnOnce() -> Result<()>,
) -> Result<f64> {
    space.wait()?;
    comm.sum(&mut [0.0])?;
    let begin = Instant::now();
    work()?;
    space.wait()?;
    largest(comm, begin.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_take_turns_and_warm_rounds_are_dropped() {
        let mut order = Vec::new();
        let all = in_turn(2, 1, 2, |i| {
            order.push(i);
            Ok(order.len() as f64)
        });
        assert_eq!(all.unwrap(), vec![Samples(vec![3.0, 5.0]), Samples(vec![4.0, 6.0])]);
        assert_eq!(order, [0, 1, 0, 1, 0, 1]);
    }
}
