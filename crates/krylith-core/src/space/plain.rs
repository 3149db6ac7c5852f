//! Default implementations of a space's operations, by reads, writes and sweeps alone.
//!
//! An operation with several sums takes a sweep for each here, and over ranks a reduction for each; a device
//! makes a single reduction of them.

use super::{MOST_COLUMNS, Space, block_sums, check_columns, random};
use crate::{Error, Result, sweeps};

sweeps! {
    /// Passes over pairs of vectors.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))] // devices with kernels compile them
    pub(crate) const SWEEPS;
    /// (x, y).
    dot: () [x, y] [] -> [sum] { sum += x * y; }
    /// (x, x).
    square: () [x] [] -> [sum] { sum += x * x; }
    /// (w, w), (w, z), (z, z).
    dots_of_pair: () [w, z] [] -> [ww, wz, zz] { ww += w * w; wz += w * z; zz += z * z; }
    /// y = x.
    put: () [x] [y] -> [] { y = x; }
    /// y += c x.
    add_multiple: (c) [x] [y] -> [] { y += c * x; }
    /// y −= c x.
    take_multiple: (c) [x] [y] -> [] { y -= c * x; }
}

/// See [`Space::fill_random`].
pub(super) fn fill_random<S: Space>(space: &S, seed: u64, to: &mut S::Vector) -> Result<()> {
    let numbers: Vec<f64> = (0..space.len() as u64).map(|i| random(seed, i)).collect();
    space.write(&numbers, to)
}

/// See [`Space::copy`].
pub(super) fn copy<S: Space>(space: &S, from: &S::Vector, to: &mut S::Vector) -> Result<()> {
    let mut numbers = vec![0.0; space.len()];
    space.read(from, &mut numbers)?;
    space.write(&numbers, to)
}

/// See [`Space::turn`].
pub(super) fn turn<S: Space>(space: &S, from: &S::Vector, to: &mut S::Vector, back: bool) -> Result<()> {
    check_pairs(space.len())?;
    let mut numbers = vec![0.0; space.len()];
    space.read(from, &mut numbers)?;
    for pair in numbers.chunks_exact_mut(2) {
        let [x, y] = [pair[0], pair[1]];
        pair.copy_from_slice(&if back { [y, -x] } else { [-y, x] });
    }
    space.write(&numbers, to)
}

/// Refuses a vector that does not consist of pairs.
pub(crate) fn check_pairs(len: usize) -> Result<()> {
    match len.is_multiple_of(2) {
        true => Ok(()),
        false => Err(Error::invalid(format!("complex numbers are pairs, but a vector has {len} numbers"))),
    }
}

/// See [`Space::block`].
pub(super) fn block<S: Space>(space: &S, columns: usize) -> Result<Vec<S::Vector>> {
    check_columns(columns)?;
    (0..columns).map(|_| space.vector()).collect()
}

/// See [`Space::project_pair`].
pub(super) fn project_pair<S: Space>(
    space: &S,
    v: &S::Basis,
    j: usize,
    [w, z]: [&S::Vector; 2],
    scalars: &mut S::Scalars,
    to: usize,
) -> Result<()> {
    space.project(v, 0..j, w, scalars, to)?;
    space.project(v, 0..j, z, scalars, to + j)?;
    space.sweep(dots_of_pair, scalars, [], [w, z], [], [to + 2 * j, to + 2 * j + 1, to + 2 * j + 2])
}

/// See [`Space::block_products`].
pub(super) fn block_products<S: Space>(
    space: &S,
    x: &[S::Vector],
    y: &[S::Vector],
    scalars: &mut S::Scalars,
    to: usize,
) -> Result<()> {
    let s = same_width([x, y])?;
    for (i, x) in x.iter().enumerate() {
        for (j, y) in y.iter().enumerate() {
            space.sweep(dot, scalars, [], [x, y], [], [to + i * s + j])?;
        }
    }
    Ok(())
}

/// See [`Space::block_update`]; allocates a block for the new vectors.
pub(super) fn block_update<S: Space>(
    space: &S,
    [basis, products]: [&[S::Vector]; 2],
    r: &S::Vector,
    [q, aq]: [&mut [S::Vector]; 2],
    scalars: &mut S::Scalars,
    b: usize,
    to: usize,
) -> Result<()> {
    let s = same_width([basis, products, q, aq])?;
    let mut new = block(space, s)?;
    for (from, into) in [(basis, &mut *q), (products, &mut *aq)] {
        for (j, (new, from)) in new.iter_mut().zip(from).enumerate() {
            space.sweep(put, scalars, [], [from], [new], [])?;
            for (i, old) in into.iter().enumerate() {
                space.sweep(take_multiple, scalars, [b + j * s + i], [old], [new], [])?;
            }
        }
        for (new, into) in new.iter().zip(into) {
            space.sweep(put, scalars, [], [new], [into], [])?;
        }
    }
    let mut slot = to..to + block_sums(s);
    let mut sum = |scalars: &mut S::Scalars, x: &S::Vector, y: &S::Vector| {
        let slot = slot.next().ok_or_else(|| Error::Internal("a block has more sums than slots".into()))?;
        space.sweep(dot, scalars, [], [x, y], [], [slot])
    };
    for left in [&*q, &*aq] {
        for (i, x) in left.iter().enumerate() {
            aq[i..].iter().try_for_each(|y| sum(scalars, x, y))?;
        }
    }
    for x in q.iter().chain(&*aq) {
        sum(scalars, x, r)?;
    }
    space.sweep(square, scalars, [], [r], [], [to + block_sums(s) - 1])
}

/// See [`Space::block_advance`].
pub(super) fn block_advance<S: Space>(
    space: &S,
    [q, aq]: [&[S::Vector]; 2],
    [x, r]: [&mut S::Vector; 2],
    scalars: &mut S::Scalars,
    a: usize,
) -> Result<()> {
    for i in 0..same_width([q, aq])? {
        space.sweep(add_multiple, scalars, [a + i], [&q[i]], [&mut *x], [])?;
        space.sweep(take_multiple, scalars, [a + i], [&aq[i]], [&mut *r], [])?;
    }
    Ok(())
}

/// Returns the number of vectors of each block.
fn same_width<V, const N: usize>(blocks: [&[V]; N]) -> Result<usize> {
    let s = blocks[0].len();
    match s <= MOST_COLUMNS && blocks.iter().all(|block| block.len() == s) {
        true => Ok(s),
        false => Err(Error::invalid(format!(
            "blocks must have the same number of vectors, at most {MOST_COLUMNS}"
        ))),
    }
}
