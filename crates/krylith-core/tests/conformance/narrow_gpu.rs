//! Cycles in f32 and bf16 with the layouts of a GPU, against those of the host number by number: pairs of
//! rows by diagonals, on planes of even and odd size.

use super::multilevel::options;
use super::{Make, applied};
use crate::common::*;
use krylith_core::PrecondPrecision;
use krylith_core::device::cpu::Cpu;
use krylith_core::matrix::Csr;
use krylith_core::operator::Terms;
use krylith_core::precond::{Coarsen, CoarsenKind, Multilevel, MultilevelOptions, Smoothing};

/// Largest distance of a cycle from that of the host, which rounds f32 in another order.
const F32: f64 = 3e-6;

/// Steps to the neighbours of a cell, the sides of a box, and numbers of its cells.
type Grids<'a> = (&'a [[i64; 3]], [usize; 3], &'a [usize]);

/// A graph Laplacian with random weights. The second coupling of an edge is stronger by the last number of
/// the edge. The diagonal has `shift` beside the couplings.
fn weighted(n: usize, edges: impl Iterator<Item = (usize, usize, f64)>, shift: impl Fn(usize) -> f64) -> Csr {
    let (mut rng, mut triplets) = (Random(93), Vec::new());
    let mut diagonal: Vec<f64> = (0..n).map(shift).collect();
    for (i, j, wind) in edges {
        let v = 0.5 + rng.number().abs();
        triplets.extend([(i as u32, j as u32, -v), (j as u32, i as u32, -v - wind)]);
        diagonal[i] += v;
        diagonal[j] += v + wind;
    }
    triplets.extend(diagonal.iter().enumerate().map(|(i, d)| (i as u32, i as u32, *d)));
    Csr::from_triplets(n, n, &triplets).unwrap()
}

/// A stencil on the first `n` cells of a box: couplings to the cells that are `steps` away, with an upwinded
/// flow along x.
fn stencil([nx, ny, nz]: [usize; 3], n: usize, steps: &[[i64; 3]], wind: f64) -> Csr {
    let sides = [nx, ny, nz].map(|side| side as i64);
    let at = |i: usize| [i % nx, i / nx % ny, i / nx / ny].map(|x| x as i64);
    let edges = (0..n).flat_map(|i| steps.iter().map(move |step| (i, step))).filter_map(|(i, step)| {
        let there: Vec<i64> = at(i).iter().zip(step).map(|(x, d)| x + d).collect();
        let inside = there.iter().zip(sides).all(|(x, side)| (0..side).contains(x));
        let j = (there[0] + sides[0] * (there[1] + sides[1] * there[2])) as usize;
        (inside && j < n).then_some((i, j, if step[0] == 1 && step[1] == 0 { wind } else { 0.0 }))
    });
    weighted(n, edges, |i| if i % nx == 0 { 0.3 } else { 0.0 })
}

/// Compares a cycle with that of the host.
fn check<S: Coarsen + 'static>(make: Make<S>, what: &str, a: &Csr, smoothing: Smoothing) {
    let n = a.rows();
    let (space, host, terms) = (make(n), Cpu::new(n, 2), Terms::csr(a).unwrap());
    let x = Random(92).numbers(n);
    for compute in [PrecondPrecision::F32, PrecondPrecision::Bf16] {
        let what = format!("{what}, {smoothing:?}, {compute:?}");
        let how = MultilevelOptions { smoothing, compute, coarsest: 40, ..options(CoarsenKind::Classical) };
        let own = Multilevel::new(&space, &terms, how).unwrap();
        let twin = Multilevel::new(&host, &terms, how).unwrap();
        let [levels, with_matrix] = own.in_bf16();
        assert!(own.is_narrow() && with_matrix > 0, "{what}");
        assert_eq!(levels, if compute == PrecondPrecision::Bf16 { with_matrix } else { 0 }, "{what}");
        assert_eq!(own.in_bf16(), twin.in_bf16(), "{what}");
        let [once, again] = [&own, &own].map(|p| applied(&space, p, &x));
        let d = distance(&once, &applied(&host, &twin, &x));
        assert!(d <= F32, "{what}: {d:e}");
        assert_eq!(once, again, "{what}");
    }
}

/// By diagonals: 3 to 9 points, offsets and numbers of rows even and odd, runs of rows that end in a thread
/// block, and planes small and large, whole and cut, of even and odd size.
pub fn cycles_in_pairs_of_rows<S: Coarsen + 'static>(make: Make<S>) {
    let (x, y, z) = ([1, 0, 0], [0, 1, 0], [0, 0, 1]);
    let (up, down) = ([1, 1, 0], [-1, 1, 0]);
    let (line, five, seven) = (vec![x], vec![x, y], vec![x, y, z]);
    let nine = vec![x, down, y, up];
    let systems: [Grids; 17] = [
        (&line, [1025, 1, 1], &[101, 512, 513, 1024, 1025]),
        (&five, [33, 31, 1], &[1023, 1022]),
        (&five, [32, 17, 1], &[544, 543]),
        (&nine, [33, 31, 1], &[1023]),
        (&nine, [32, 33, 1], &[1056, 1055]),
        (&seven, [9, 7, 5], &[315]),
        (&seven, [10, 7, 5], &[350, 349]),
        (&seven, [9, 8, 7], &[504]),
        // From here on products go from plane to plane.
        (&five, [4096, 5, 1], &[20480]),
        (&five, [4098, 5, 1], &[20490, 20489, 16393]),
        (&five, [4099, 5, 1], &[20495]),
        (&nine, [4200, 5, 1], &[21000]),
        (&seven, [66, 63, 5], &[20790, 20789, 16633]),
        (&seven, [65, 64, 5], &[20800, 20797]),
        (&seven, [64, 64, 9], &[36864]),
        (&seven, [65, 65, 5], &[21125, 21124]),
        (&seven, [67, 63, 5], &[21105]),
    ];
    for (steps, sides, rows) in systems {
        for &n in rows {
            for wind in [0.0, 0.2] {
                let a = stencil(sides, n, steps, wind);
                let what = format!("{} points, {sides:?}, {n} rows, {wind}", 2 * steps.len() + 1);
                check(make, &what, &a, Smoothing::Chebyshev { degree: 3 });
                if n < 2000 {
                    check(make, &what, &a, Smoothing::Jacobi { sweeps: 1 });
                }
            }
        }
    }
}
