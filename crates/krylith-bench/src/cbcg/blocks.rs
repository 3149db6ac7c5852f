//! Kernels of a step of P-CBCG on blocks of s vectors. A step has s products with the matrix. Costs are
//! stated per cell and product: the cost of a step per cell, divided by s.

use super::Case;
use super::kernels::{Held, Kernel, Role, State, read};
use crate::systems::{Random, dot};
use krylith_core::Result;
use krylith_core::space::{FLAGS, Space, block_sums};
use std::cell::RefCell;
use std::rc::Rc;

/// Vectors per block: s in the P-CBCG paper.
pub(crate) const S: usize = 12;

/// Returns the numbers of vector k of a kernel, the same in every run.
pub(crate) fn numbers(kernel: u64, k: usize, n: usize) -> Vec<f64> {
    Random(1000 * kernel + k as u64).numbers(n)
}

/// Returns V − W B for the blocks of `S` vectors that begin at `v` and `w` among all, with B by columns.
pub(crate) fn less(all: &[Vec<f64>], v: usize, w: usize, b: &[f64]) -> Vec<Vec<f64>> {
    let column = |j: usize| {
        let take = |i: usize| (0..S).map(|k| b[j * S + k] * all[w + k][i]).sum::<f64>();
        (0..all[v].len()).map(|i| all[v + j][i] - take(i)).collect()
    };
    (0..S).map(column).collect()
}

/// Returns coefficients small enough for a block that is updated repeatedly.
pub(crate) fn coefficients(count: usize) -> Vec<f64> {
    (0..count).map(|k| 0.03 * ((k * 7 % 11) as f64 - 5.0) / 5.0).collect()
}

/// Creates blocks and vectors of a kernel: from the host's numbers if its result is checked, else from random
/// numbers of the device.
fn state<T: Space>(
    space: &Rc<T>,
    kernel: u64,
    (blocks, single): (usize, usize),
    values: &[f64],
    check: bool,
) -> Result<Held<T>> {
    let (vectors, scalars) = (Vec::new(), space.scalars(values.len())?);
    let mut made = State { space: space.clone(), vectors, blocks: Vec::new(), scalars };
    for _ in 0..blocks {
        made.blocks.push(space.block(S)?);
    }
    for _ in 0..single {
        made.vectors.push(space.vector()?);
    }
    for (k, vector) in made.blocks.iter_mut().flatten().chain(&mut made.vectors).enumerate() {
        match check {
            true => space.write(&numbers(kernel, k, space.len()), vector)?,
            false => space.fill_random(1000 * kernel + k as u64, vector)?,
        }
    }
    space.write_scalars(&mut made.scalars, 0, values, &[0; FLAGS])?;
    Ok(Rc::new(RefCell::new(made)))
}

/// Returns all kernels. `check` is true if their results will be compared with the host's.
pub(super) fn all<'k, T: Space + 'k>(space: &Rc<T>, case: &Case, check: bool) -> Result<Vec<Kernel<'k>>> {
    Ok(vec![
        products(space, case.rows(), check)?,
        update(space, case.rows(), check)?,
        advance(space, case.rows(), check)?,
    ])
}

/// (AQ)ᵀS: line 11 of Alg. 2 of the P-CBCG paper. The paper's numbers are for its batched products,
/// lines 5 and 11 together.
fn products<'k, T: Space + 'k>(space: &Rc<T>, n: usize, check: bool) -> Result<Kernel<'k>> {
    let held = state(space, 51, (2, 0), &[0.0; S * S], check)?;
    let at = held.clone();
    Ok(Kernel {
        name: format!("(AQ)ᵀS, s = {S}"),
        role: Role::Matrix,
        ours: true,
        flops: (2 * S) as f64,
        bytes: 16.0,
        paper: Some([48.0, 35.0, 0.95]),
        products: S,
        runs: 1,
        run: Box::new(move || {
            let State { space, blocks, scalars, .. } = &mut *held.borrow_mut();
            space.block_products(&blocks[0], &blocks[1], scalars, 0)
        }),
        answer: Box::new(move || read(&at.borrow(), [], 0..S * S)),
        expected: Box::new(move || {
            let all: Vec<Vec<f64>> = (0..2 * S).map(|k| numbers(51, k, n)).collect();
            (0..S * S).map(|k| dot(&all[k / S], &all[S + k % S])).collect()
        }),
    })
}

/// Lines 13 and 14 of Alg. 2, Q ← S − Q B and AQ ← AS − AQ B, in one kernel with the sums of lines 5 and 6.
fn update<'k, T: Space + 'k>(space: &Rc<T>, n: usize, check: bool) -> Result<Kernel<'k>> {
    let (b, sums) = (coefficients(S * S), block_sums(S));
    let values = [b.clone(), vec![0.0; sums]].concat();
    let held = state(space, 52, (4, 1), &values, check)?;
    let at = held.clone();
    let s = S as f64;
    Ok(Kernel {
        name: format!("S − Q B, AS − AQ B and their sums, s = {S}"),
        role: Role::Matrix,
        ours: true,
        flops: (4.0 * s * s + 2.0 * sums as f64) / s,
        bytes: 8.0 * (6.0 * s + 1.0) / s,
        paper: Some([54.0, 59.0, 0.81]),
        products: S,
        runs: 1,
        run: Box::new(move || {
            let State { space, blocks, vectors: single, scalars } = &mut *held.borrow_mut();
            let [basis, products, q, aq] = &mut blocks[..] else { return Ok(()) };
            space.block_update(basis, products, &single[0], q, aq, scalars, 0, S * S)
        }),
        answer: Box::new(move || {
            let state = at.borrow();
            read(&state, state.blocks[2].iter().chain(&state.blocks[3]), S * S..S * S + sums)
        }),
        expected: Box::new(move || {
            let all: Vec<Vec<f64>> = (0..4 * S + 1).map(|k| numbers(52, k, n)).collect();
            let (q, aq, r) = (less(&all, 0, 2 * S, &b), less(&all, S, 3 * S, &b), &all[4 * S]);
            let upper = |x: &[Vec<f64>], y: &[Vec<f64>]| -> Vec<f64> {
                (0..S).flat_map(|i| (i..S).map(move |j| (i, j))).map(|(i, j)| dot(&x[i], &y[j])).collect()
            };
            let mut sums = [upper(&q, &aq), upper(&aq, &aq)].concat();
            sums.extend(q.iter().chain(&aq).map(|v| dot(v, r)));
            sums.push(dot(r, r));
            q.into_iter().chain(aq).flatten().chain(sums).collect()
        }),
    })
}

/// x += Q a, r −= AQ a: lines 8 and 9 of Alg. 2.
fn advance<'k, T: Space + 'k>(space: &Rc<T>, n: usize, check: bool) -> Result<Kernel<'k>> {
    let a = coefficients(S);
    let held = state(space, 53, (2, 2), &a, check)?;
    let at = held.clone();
    Ok(Kernel {
        name: format!("x + Q a, r − AQ a, s = {S}"),
        role: Role::Matrix,
        ours: true,
        flops: 4.0,
        bytes: 8.0 * (2 * S + 4) as f64 / S as f64,
        paper: None,
        products: S,
        runs: 1,
        run: Box::new(move || {
            let State { space, blocks, vectors: single, scalars } = &mut *held.borrow_mut();
            let [x, r] = &mut single[..] else { return Ok(()) };
            space.block_advance(&blocks[0], &blocks[1], x, r, scalars, 0)
        }),
        answer: Box::new(move || {
            let state = at.borrow();
            read(&state, &state.vectors, [])
        }),
        expected: Box::new(move || {
            let all: Vec<Vec<f64>> = (0..2 * S + 2).map(|k| numbers(53, k, n)).collect();
            let sum = |from: usize, i: usize| (0..S).map(|k| a[k] * all[from + k][i]).sum::<f64>();
            let x = (0..n).map(|i| all[2 * S][i] + sum(0, i));
            x.chain((0..n).map(|i| all[2 * S + 1][i] - sum(S, i))).collect()
        }),
    })
}
