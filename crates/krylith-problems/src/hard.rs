//! Small matrices that are hard to solve, each for a different reason. They test and measure the `auto`
//! selection.
//!
//! ```
//! use krylith::{Options, Solver};
//! let (name, kkt) = krylith_problems::hard::matrices().find(|(name, _)| *name == "kkt").unwrap();
//! let mut x = vec![0.0; kkt.rows()];
//! let mut solver = Solver::new(&kkt, &"device=cpu rtol=1e-8".parse::<Options>()?)?;
//! assert!(solver.solve(&vec![1.0; kkt.rows()], &mut x)?.converged(), "{name}");
//! # Ok::<(), krylith::Error>(())
//! ```

use crate::random::Random;
use krylith_core::matrix::Csr;

/// Rows under construction: (column, value) in any order; equal columns are added up.
type Rows = Vec<Vec<(usize, f64)>>;

/// Returns the matrices with their names.
pub fn matrices() -> impl Iterator<Item = (&'static str, Csr)> {
    ALL.into_iter().map(|(name, make)| (name, assembled(make())))
}

/// Returns the names in the order of [`matrices`].
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().map(|(name, _)| name)
}

/// A name and the function that builds the rows.
type Named = (&'static str, fn() -> Rows);

const ALL: [Named; 16] = [
    ("convection", || grid(100, &upwind_free(50.0))),
    ("convection-large", || grid(300, &upwind_free(5.0))),
    ("helmholtz30", || helmholtz(30.0, 80)),
    ("helmholtz60", || helmholtz(60.0, 150)),
    ("stokes", || staggered_stokes(40)),
    ("stokes-large", || staggered_stokes(120)),
    ("scaled", || scaled(grid(80, &LAPLACE), 1e12)),
    ("permuted", || permuted(grid(150, &LAPLACE))),
    ("permuted-noise", || permuted(with_noise(grid(100, &LAPLACE)))),
    ("arrow", || arrow(3000)),
    ("biharmonic", || grid(100, &BIHARMONIC)),
    ("contrast", || contrast(120, 1e8)),
    ("skew", || grid(60, &[(1, 0, 1.0), (-1, 0, -1.0), (0, 1, 2.0), (0, -1, -2.0)])),
    ("kkt", || kkt(50, 600)),
    ("kkt-large", || kkt(150, 5000)),
    ("random-signs", || random_signs(2000)),
];

type Stencil = (i64, i64, f64);

const LAPLACE: [Stencil; 5] = [(0, 0, 4.0), (1, 0, -1.0), (-1, 0, -1.0), (0, 1, -1.0), (0, -1, -1.0)];
const BIHARMONIC: [Stencil; 13] = [
    (0, 0, 20.0),
    (1, 0, -8.0),
    (-1, 0, -8.0),
    (0, 1, -8.0),
    (0, -1, -8.0),
    (2, 0, 1.0),
    (-2, 0, 1.0),
    (0, 2, 1.0),
    (0, -2, 1.0),
    (1, 1, 2.0),
    (1, -1, 2.0),
    (-1, 1, 2.0),
    (-1, -1, 2.0),
];
const SEED: u64 = 2026;

fn assembled(rows: Rows) -> Csr {
    let n = rows.len();
    let entries: Vec<(u32, u32, f64)> =
        (0u32..).zip(rows).flat_map(|(i, row)| row.into_iter().map(move |(j, v)| (i, j as u32, v))).collect();
    Csr::from_triplets(n, n, &entries).expect("columns are rows")
}

/// Applies a stencil on m × m nodes.
fn grid(m: usize, stencil: &[Stencil]) -> Rows {
    let node = |k: usize| {
        let at = |d: i64, x: usize| x.checked_add_signed(d as isize).filter(|&x| x < m);
        let entry = |&(dx, dy, v): &Stencil| Some((at(dy, k / m)? * m + at(dx, k % m)?, v));
        stencil.iter().filter_map(entry).collect()
    };
    (0..m * m).map(node).collect()
}

/// Central differences of −Δu + v·∇u with cell Péclet number `p`; above 1 the diagonal is far from dominant.
fn upwind_free(p: f64) -> [Stencil; 5] {
    [(0, 0, 4.0), (1, 0, -1.0 + p), (-1, 0, -1.0 - p), (0, 1, -1.0 + p), (0, -1, -1.0 - p)]
}

/// −Δu − k² u on the unit square: indefinite.
fn helmholtz(k: f64, m: usize) -> Rows {
    let h = 1.0 / (m + 1) as f64;
    let mut stencil = LAPLACE;
    stencil[0].2 -= (k * h).powi(2);
    grid(m, &stencil)
}

/// Stokes equations on a staggered grid, three unknowns per cell, with a zero diagonal in every pressure row
/// but the first.
fn staggered_stokes(m: usize) -> Rows {
    let mut rows: Rows = vec![Vec::new(); 3 * m * m];
    let at = |x: usize, y: usize, c: usize| (y * m + x) * 3 + c;
    for (y, x) in (0..m * m).map(|k| (k / m, k % m)) {
        for c in 0..2 {
            for &(dx, dy, v) in &LAPLACE {
                let place = |d: i64, x: usize| x.checked_add_signed(d as isize).filter(|&x| x < m);
                if let (Some(x2), Some(y2)) = (place(dx, x), place(dy, y)) {
                    rows[at(x, y, c)].push((at(x2, y2, c), v));
                }
            }
            let (x2, y2) = (x + 1 - c, y + c);
            if x2 < m && y2 < m {
                for (pressure, v) in [(at(x, y, 2), -1.0), (at(x2, y2, 2), 1.0)] {
                    rows[at(x, y, c)].push((pressure, v));
                    rows[pressure].push((at(x, y, c), v));
                }
            }
        }
    }
    rows[2].push((2, 1.0));
    rows
}

fn scaled(mut rows: Rows, factor: f64) -> Rows {
    rows.iter_mut().flatten().for_each(|entry| entry.1 *= factor);
    rows
}

/// Rows in random order.
fn permuted(mut rows: Rows) -> Rows {
    let mut random = Random::new(SEED, 1, rows.len() as u64);
    for i in (1..rows.len()).rev() {
        rows.swap(i, (random.next() % (i as u64 + 1)) as usize);
    }
    rows
}

/// Adds three small entries to each row.
fn with_noise(mut rows: Rows) -> Rows {
    let n = rows.len() as u64;
    let mut random = Random::new(SEED, 2, n);
    for row in &mut rows {
        (0..3).for_each(|_| row.push(((random.next() % n) as usize, 1e-3 * (2.0 * random.unit() - 1.0))));
    }
    rows
}

/// An arrow matrix: full first row and column with a zero where they cross, so factors in this order are
/// full.
fn arrow(n: usize) -> Rows {
    let mut rows: Rows = (0..n).map(|i| vec![(0, 1.0), (i, 4.0 + (i % 3) as f64)]).collect();
    rows[0] = (1..n).map(|j| (j, 1.0)).collect();
    rows
}

/// −∇·(κ∇u) with κ = 1 in a random tenth of the cells and `jump` in the others. The others are connected,
/// otherwise no x in double precision would reach a residual of 1e-8.
fn contrast(m: usize, jump: f64) -> Rows {
    let kappa: Vec<f64> =
        (0..m * m).map(|k| if Random::new(SEED, 3, k as u64).unit() < 0.1 { 1.0 } else { jump }).collect();
    let mut rows = grid(m, &LAPLACE);
    for (i, row) in rows.iter_mut().enumerate() {
        let mean = |j: usize| 2.0 / (1.0 / kappa[i] + 1.0 / kappa[j]);
        row.iter_mut().filter(|entry| entry.0 != i).for_each(|entry| entry.1 = -mean(entry.0));
        // Cells at the boundary are coupled to zero values outside.
        let sum: f64 = row.iter().filter(|entry| entry.0 != i).map(|entry| -entry.1).sum();
        let edges = 5 - row.len();
        row.iter_mut().filter(|entry| entry.0 == i).for_each(|entry| entry.1 = sum + kappa[i] * edges as f64);
    }
    rows
}

/// The saddle-point matrix (K Bᵀ; B 0): a Laplacian on m × m nodes with `constraints` of four nodes each.
fn kkt(m: usize, constraints: usize) -> Rows {
    let n = m * m;
    let mut rows = grid(m, &LAPLACE);
    let mut random = Random::new(SEED, 4, n as u64);
    for k in 0..constraints {
        let mut row = Vec::new();
        while row.len() < 4 {
            let (j, v) = ((random.next() % n as u64) as usize, 0.5 + random.unit());
            if row.iter().all(|&(other, _)| other != j) {
                row.push((j, v));
                rows[j].push((n + k, v));
            }
        }
        rows.push(row);
    }
    rows
}

/// Rows of five entries from 1e-6 to 1e4 with random signs and positions. The largest lie on a random
/// permutation; the diagonal is empty.
fn random_signs(n: usize) -> Rows {
    let mut places: Vec<usize> = (0..n).collect();
    let mut random = Random::new(SEED, 5, n as u64);
    for i in (1..n).rev() {
        places.swap(i, (random.next() % (i as u64 + 1)) as usize);
    }
    let signed = |random: &mut Random, from: f64, to: f64| {
        let v = 10f64.powf(from + (to - from) * random.unit());
        if random.next() % 2 == 0 { v } else { -v }
    };
    let row = |largest: usize| {
        let mut row = vec![(largest, signed(&mut random, -1.0, 4.0))];
        for _ in 0..4 {
            let j = (random.next() % n as u64) as usize;
            if j != largest {
                row.push((j, signed(&mut random, -6.0, 1.0)));
            }
        }
        row
    };
    places.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_are_what_their_names_say() {
        for (name, a) in matrices() {
            assert_eq!(a.rows(), a.columns(), "{name}");
            let at = |i: usize, j: usize| {
                let (col, values) = a.row(i);
                col.iter().position(|&k| k as usize == j).map_or(0.0, |p| values[p])
            };
            let zeros = (0..a.rows()).filter(|&i| at(i, i) == 0.0).count();
            let symmetric = (0..a.rows())
                .all(|i| a.row(i).0.iter().zip(a.row(i).1).all(|(&j, &v)| at(j as usize, i) == v));
            let (kind, zero) = match name {
                "stokes" => (true, 1599),
                "stokes-large" => (true, 14399),
                "kkt" => (true, 600),
                "kkt-large" => (true, 5000),
                "arrow" => (true, 1),
                "skew" => (false, 3600),
                "permuted" | "permuted-noise" | "random-signs" => (false, zeros),
                "convection" | "convection-large" => (false, 0),
                _ => (true, 0),
            };
            assert_eq!((symmetric, zeros), (kind, zero), "{name}");
        }
    }
}
