//! Recognises the real form of a complex matrix, so that methods use complex coefficients
//! ([`method::complex`](crate::method::complex)).

use crate::Result;
use crate::comm::agree;
use crate::matrix::Bsr;
use crate::method::{Orthogonalization, Reductions};
use crate::operator::LinearOperator;
use crate::options::Options;
use crate::problem::LocalProblem;
use crate::solver::SolverSpace;
use rayon::prelude::*;

/// Largest ‖P (i w) − i P w‖/‖P w‖ at which P counts as complex-linear, in f64 and in f32. It allows for
/// rounding errors of factors.
const ROUNDING: [f64; 2] = [1e-8, 1e-4];

/// Returns true if every 2×2 part of every block is that of a complex number, and some number is not real.
/// The test of another matrix ends at its first blocks. Collective.
///
/// Options that name a variant of a method that has real coefficients alone select those. There are none on a
/// GPU, where the product by i has no kernel.
pub(super) fn is_complex<S: SolverSpace>(space: &S, local: &LocalProblem, options: &Options) -> Result<bool> {
    let terms = local.terms;
    let variant = !matches!(options.orthogonalization, None | Some(Orthogonalization::Cgs2))
        || !matches!(options.reductions, None | Some(Reductions::Merged));
    // All ranks know these alike.
    let fits = terms.block().is_multiple_of(2) && terms.stages() == 1 && local.null.is_empty() && !variant;
    if !fits || space.is_gpu() {
        return Ok(false);
    }
    let found: Vec<[bool; 2]> = terms.terms.iter().map(|(_, a)| numbers(a)).collect();
    if space.any(found.iter().any(|[complex, _]| !complex))? {
        return Ok(false);
    }
    space.any(found.iter().any(|[_, imaginary]| *imaginary))
}

/// Returns whether all blocks consist of complex numbers, and if so whether some number is not real.
fn numbers(a: &Bsr) -> [bool; 2] {
    let b = a.block();
    let imaginary = a.values().par_chunks_exact(b * b).with_min_len(1 << 12).map(|block| {
        let mut imaginary = false;
        for pair in block.chunks_exact(2 * b) {
            let (upper, lower) = pair.split_at(b);
            for (x, y) in upper.chunks_exact(2).zip(lower.chunks_exact(2)) {
                if x[0] != y[1] || x[1] != -y[0] {
                    return None;
                }
                imaginary |= x[1] != 0.0;
            }
        }
        Some(imaginary)
    });
    match imaginary.try_reduce(|| false, |a, b| Some(a | b)) {
        Some(imaginary) => [true, imaginary],
        None => [false; 2],
    }
}

/// Returns true if P (i w) = i P w up to rounding errors, which are those of f32 if P is `narrow`, for a
/// random w. Collective.
pub(super) fn is_linear<S: SolverSpace>(
    space: &S,
    p: &dyn LinearOperator<S>,
    local: &LocalProblem,
    narrow: bool,
) -> Result<bool> {
    let room = (|| Ok([space.vector()?, space.vector()?, space.vector()?]))();
    let [mut w, mut of_w, mut turned] = agree(space.comm(), room)?;
    agree(space.comm(), space.random(2, local.numbers, local.order(), &mut w))?;
    p.apply(space, &w, &mut of_w)?;
    space.turn(&of_w, &mut turned, false)?;
    let mut one = vec![0.0; space.len()];
    space.read(&turned, &mut one)?;
    space.turn(&w, &mut turned, false)?;
    p.apply(space, &turned, &mut of_w)?;
    let mut two = vec![0.0; space.len()];
    space.read(&of_w, &mut two)?;
    let mut sums = [0.0; 2];
    for (one, two) in one.iter().zip(&two) {
        sums[0] += (one - two) * (one - two);
        sums[1] += two * two;
    }
    space.comm().sum(&mut sums)?;
    let rounding = ROUNDING[usize::from(narrow)];
    Ok(sums[0] <= rounding * rounding * sums[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complex_numbers_are_told_from_others() {
        let of = |values: &[f64]| numbers(&Bsr::new(2, 1, 1, vec![0, 1], vec![0], values.to_vec()).unwrap());
        assert_eq!(of(&[1.0, -2.0, 2.0, 1.0]), [true, true]);
        assert_eq!(of(&[1.0, 0.0, -0.0, 1.0]), [true, false]);
        assert_eq!(of(&[1.0, 2.0, 2.0, 1.0]), [false, false]);
        assert_eq!(of(&[1.0, -2.0, 2.0, 1.5]), [false, false]);
        let two = Bsr::new(4, 1, 1, vec![0, 1], vec![0], {
            let mut values = vec![0.0; 16];
            (values[0], values[5]) = (3.0, 3.0); // (0, 0) is 3
            (values[2], values[3], values[6], values[7]) = (1.0, -4.0, 4.0, 1.0); // (0, 1) is 1 + 4i
            values
        });
        assert_eq!(numbers(&two.unwrap()), [true, true]);
    }
}
