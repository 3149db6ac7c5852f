//! 1-norms of rows, and scale factors from them.

use crate::matrix::{Bsr, Dense};
use crate::operator::Terms;
use rayon::prelude::*;
use std::borrow::Cow;

/// Number of entries up to which one thread checks the rows, without allocating.
const FEW: usize = 1 << 16;

/// Returns the smallest ‖aᵢ‖₁ of own nonempty rows (infinite if there is none) and the largest.
pub(super) fn extent(terms: &Terms) -> [f64; 2] {
    let (b, s) = (terms.block(), terms.stages());
    let weight = |c: &Dense, k: usize| (0..s).map(|l| c[(k, l)].abs()).sum::<f64>();
    let row = |i: usize| {
        let mut found = [f64::INFINITY, 0.0];
        for (r, k) in (0..b).flat_map(|r| (0..s).map(move |k| (r, k))) {
            let term = |(c, a): &(Dense, Cow<Bsr>)| {
                let blocks = a.row_ptr()[i]..a.row_ptr()[i + 1];
                let sum = |p: usize| a.block_values(p)[r * b..][..b].iter().map(|v| v.abs()).sum::<f64>();
                weight(c, k) * blocks.map(sum).sum::<f64>()
            };
            let norm: f64 = terms.terms.iter().map(term).sum();
            if norm > 0.0 {
                found = both(found, [norm, norm]);
            }
        }
        found
    };
    let none = [f64::INFINITY, 0.0];
    let entries: usize = terms.terms.iter().map(|(_, a)| a.stored()).sum();
    match entries <= FEW {
        true => (0..terms.block_rows()).map(row).fold(none, both),
        false => (0..terms.block_rows()).into_par_iter().with_min_len(512).map(row).reduce(|| none, both),
    }
}

/// Combines two results: the smaller first and the larger second number.
fn both(a: [f64; 2], b: [f64; 2]) -> [f64; 2] {
    [a[0].min(b[0]), a[1].max(b[1])]
}

/// Returns 1/‖aᵢ‖₁ for each own row aᵢ, and 1 for empty rows.
pub(in crate::solver) fn inverse_norms(terms: &Terms) -> Vec<f64> {
    let mut norms = norms(terms);
    norms.iter_mut().for_each(|n| *n = if *n > 0.0 { 1.0 / *n } else { 1.0 });
    norms
}

/// Returns ‖aᵢ‖₁ for each own row aᵢ of Σ Cₜ ⊗ Aₜ.
fn norms(terms: &Terms) -> Vec<f64> {
    let (b, s) = (terms.block(), terms.stages());
    let mut norms = vec![0.0; terms.rows()];
    for (c, a) in &terms.terms {
        let weights: Vec<f64> = (0..s).map(|k| (0..s).map(|l| c[(k, l)].abs()).sum()).collect();
        norms.par_chunks_mut(b * s).with_min_len(512).enumerate().for_each(|(i, norms)| {
            for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                for (row, norms) in a.block_values(p).chunks_exact(b).zip(norms.chunks_exact_mut(s)) {
                    let sum: f64 = row.iter().map(|v| v.abs()).sum();
                    norms.iter_mut().zip(&weights).for_each(|(n, w)| *n += w * sum);
                }
            }
        });
    }
    norms
}

/// Returns a power of two near ‖aᵢ‖^−power for each own row aᵢ, the same for all stages.
pub(super) fn scales(terms: &Terms, power: f64) -> Vec<f64> {
    let of = |norms: &[f64]| {
        let norm = norms.iter().copied().fold(0.0, f64::max);
        if norm > 0.0 && norm.is_finite() { (-(norm.log2() * power).round()).exp2() } else { 1.0 }
    };
    norms(terms).chunks_exact(terms.stages()).map(of).collect()
}
