//! Blocks of vectors against plain loops, and P-CBCG against CG.

use super::method::brief;
use super::{Make, distributed};
use crate::common::*;
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::Csr;
use krylith_core::method::{Cbcg, CbcgBasis, CbcgOptions, Cg, CgOptions};
use krylith_core::operator::{LinearOperator, PointBlock, PointBlockSum, Terms};
use krylith_core::partition::{Partition, split};
use krylith_core::precond::{BlockDiagonal, BlockJacobi, SubdomainFactors};
use krylith_core::space::{FLAGS, Space, block_sums};
use krylith_core::{History, Outcome, Precision, Stop};
use std::sync::Arc;

/// A block of random columns, and the same on the host.
fn block<S: Space>(space: &S, rng: &mut Random, s: usize) -> (Vec<S::Vector>, Vec<Vec<f64>>) {
    let host: Vec<Vec<f64>> = (0..s).map(|_| rng.numbers(space.len())).collect();
    let mut block = space.block(s).unwrap();
    block.iter_mut().zip(&host).for_each(|(to, from)| space.write(from, to).unwrap());
    (block, host)
}

/// Sums of n products of numbers below 2 by any order: the largest difference.
fn close(what: &str, got: &[f64], want: &[f64], n: usize) {
    let worst = got
        .iter()
        .zip(want)
        .map(|(g, w)| (g - w).abs())
        .fold(0.0, |a: f64, d| if d > a || d.is_nan() { d } else { a });
    let bound = 1e-15 * (n as f64 + 10.0) * 100.0;
    assert!(
        got.len() >= want.len() && worst <= bound,
        "{what}: sums differ by {worst:e}, more than {bound:e}"
    );
}

/// Products, updates with their sums, and advances of blocks, at awkward lengths and widths.
pub fn blocks_match_plain_loops<S: Space>(make: Make<S>) {
    let mut rng = Random(71);
    for n in [1, 2, 7, 31, 33, 1000, 70001] {
        let space = make(n);
        for s in (1..=16).filter(|s| n < 2000 || [3, 12, 16].contains(s)) {
            let what = format!("n={n} s={s}");
            let (x, hx) = block(&space, &mut rng, s);
            let (y, hy) = block(&space, &mut rng, s);
            let (mut q, mut hq) = block(&space, &mut rng, s);
            let (mut aq, mut haq) = block(&space, &mut rng, s);
            let (mut r, mut v) = (space.vector().unwrap(), space.vector().unwrap());
            let (mut hr, mut hv) = (rng.numbers(n), rng.numbers(n));
            space.write(&hr, &mut r).unwrap();
            space.write(&hv, &mut v).unwrap();

            // Slots before and behind must stay as they are.
            let (count, b_at) = (s * s, 1 + block_sums(s).max(s * s) + 1);
            let mut scalars = space.scalars(b_at + count + s).unwrap();
            let mut flags = [0; FLAGS];
            let b: Vec<f64> = rng.numbers(count).iter().map(|b| b / s as f64).collect();
            let a = rng.numbers(s);
            let mut all = vec![7.0; b_at];
            all.extend(b.iter().chain(&a));
            space.write_scalars(&mut scalars, 0, &all, &flags).unwrap();

            space.block_products(&x, &y, &mut scalars, 1).unwrap();
            let mut got = vec![0.0; count + 2];
            space.read_scalars(&scalars, 0, &mut got, &mut flags).unwrap();
            let want: Vec<f64> = hx.iter().flat_map(|x| hy.iter().map(|y| dot(x, y))).collect();
            close(&format!("{what}: products"), &got[1..=count], &want, n);
            assert_eq!((got[0], got[count + 1]), (7.0, 7.0), "{what}");

            space.block_update(&x, &y, &r, &mut q, &mut aq, &mut scalars, b_at, 1).unwrap();
            for (host, from) in [(&mut hq, &hx), (&mut haq, &hy)] {
                let old = host.clone();
                for j in 0..s {
                    for e in 0..n {
                        host[j][e] = from[j][e] - (0..s).map(|i| b[j * s + i] * old[i][e]).sum::<f64>();
                    }
                }
            }
            let check = |name: &str, vectors: &[S::Vector], host: &[Vec<f64>]| {
                for (j, (v, host)) in vectors.iter().zip(host).enumerate() {
                    let mut got = vec![f64::NAN; n];
                    space.read(v, &mut got).unwrap();
                    let wrong = got.iter().zip(host).filter(|(g, h)| !((*g - *h).abs() <= 1e-13)).count();
                    assert_eq!(wrong, 0, "{what}: numbers of column {j} of {name} are wrong");
                }
            };
            check("Q", &q, &hq);
            check("A Q", &aq, &haq);
            let sums = block_sums(s);
            let mut got = vec![0.0; sums + 2];
            space.read_scalars(&scalars, 0, &mut got, &mut flags).unwrap();
            let upper = |x: &[Vec<f64>], y: &[Vec<f64>]| -> Vec<f64> {
                (0..s).flat_map(|i| (i..s).map(move |j| (i, j))).map(|(i, j)| dot(&x[i], &y[j])).collect()
            };
            let mut want = upper(&hq, &haq);
            want.extend(upper(&haq, &haq));
            want.extend(hq.iter().chain(&haq).map(|v| dot(v, &hr)));
            want.push(dot(&hr, &hr));
            close(&format!("{what}: update"), &got[1..=sums], &want, n);
            assert_eq!((got[0], got[sums + 1]), (7.0, 7.0), "{what}");

            space.block_advance(&q, &aq, &mut v, &mut r, &mut scalars, b_at + count).unwrap();
            for e in 0..n {
                hv[e] += (0..s).map(|i| a[i] * hq[i][e]).sum::<f64>();
                hr[e] -= (0..s).map(|i| a[i] * haq[i][e]).sum::<f64>();
            }
            check("x and r", &[v, r], &[hv, hr]);
        }
    }
    let space = make(8);
    assert!(space.block(17).is_err());
}

/// −∇·(k ∇u) on a grid, u = 0 outside: k is 1 in the liquid and `contrast` in bubbles of gas, as 1/ρ of a
/// multiphase flow.
pub fn bubbles([nx, ny, nz]: [usize; 3], contrast: f64) -> Csr {
    let n = nx * ny * nz;
    let k = |x: usize, y: usize, z: usize| {
        let far = |cx: f64, cy: f64, cz: f64, radius: f64| {
            let (dx, dy, dz) =
                (x as f64 / nx as f64 - cx, y as f64 / ny as f64 - cy, z as f64 / nz as f64 - cz);
            dx * dx + dy * dy + dz * dz > radius * radius
        };
        if far(0.3, 0.4, 0.3, 0.2) && far(0.7, 0.6, 0.7, 0.25) && far(0.6, 0.2, 0.5, 0.12) {
            1.0
        } else {
            contrast
        }
    };
    let mut entries = Vec::new();
    for z in 0..nz {
        for y in 0..ny {
            for x in 0..nx {
                let (i, own) = (x + nx * (y + ny * z), k(x, y, z));
                let mut sum = 0.0;
                let mut face = |there: bool, j: usize, other: f64, coefficient: f64| {
                    let k = if there { 2.0 * own * other / (own + other) } else { own } * coefficient;
                    sum += k;
                    if there {
                        entries.push((i as u32, j as u32, -k));
                    }
                };
                let at = |there: bool, x: usize, y: usize, z: usize| if there { k(x, y, z) } else { 0.0 };
                face(x > 0, i.wrapping_sub(1), at(x > 0, x.wrapping_sub(1), y, z), 1.0);
                face(x + 1 < nx, i + 1, at(x + 1 < nx, x + 1, y, z), 1.0);
                face(y > 0, i.wrapping_sub(nx), at(y > 0, x, y.wrapping_sub(1), z), 1.0);
                face(y + 1 < ny, i + nx, at(y + 1 < ny, x, y + 1, z), 1.0);
                face(z > 0, i.wrapping_sub(nx * ny), at(z > 0, x, y, z.wrapping_sub(1)), 0.25);
                face(z + 1 < nz, i + nx * ny, at(z + 1 < nz, x, y, z + 1), 0.25);
                entries.push((i as u32, i as u32, sum));
            }
        }
    }
    Csr::from_triplets(n, n, &entries).unwrap()
}

/// One solve from zero.
fn solve<S: Space>(
    space: &S,
    method: &mut dyn krylith_core::method::Method<S>,
    a: &dyn LinearOperator<S>,
    p: Option<&dyn LinearOperator<S>>,
    rhs: &[f64],
    rtol: f64,
) -> (History, Vec<f64>) {
    let (mut b, mut x) = (space.vector().unwrap(), space.vector().unwrap());
    space.write(rhs, &mut b).unwrap();
    let stop = Stop { rtol, max_iters: 20_000, atol: 0.0, ..Stop::DEFAULT };
    let history = method.solve(space, a, p, &b, &mut x, &stop, &mut ()).unwrap().clone();
    let mut answer = vec![0.0; rhs.len()];
    space.read(&x, &mut answer).unwrap();
    (history, answer)
}

/// P-CBCG takes as many products as CG, 5 % and s more at most, with two reductions a step.
pub fn cbcg_converges_as_cg<S: PointBlockSum + BlockDiagonal>(make: Make<S>) {
    let mut wrong = Vec::new();
    for (name, matrix, plain) in
        [("laplace", bubbles([14, 13, 11], 1.0), true), ("bubbles", bubbles([14, 13, 11], 1000.0), false)]
    {
        let n = matrix.rows();
        let space = make(n);
        let rhs = Random(72).numbers(n);
        let a = PointBlock::csr(&space, &matrix, Precision::F64).unwrap();
        let jacobi = BlockJacobi::new(&space, &Terms::csr(&matrix).unwrap(), Precision::F64).unwrap();
        let jacobi = Some(&jacobi as &dyn LinearOperator<S>);
        for p in if plain { vec![None, jacobi] } else { vec![jacobi] } {
            let mut cg = Cg::new(&space, CgOptions::default()).unwrap();
            let (expected, x) = solve(&space, &mut cg, &a, p, &rhs, 1e-8);
            for s in [1, 2, 3, 4, 6, 8, 12, 16] {
                let options = CbcgOptions { steps: s, basis: CbcgBasis::Chebyshev };
                let mut cbcg = Cbcg::new(&space, options).unwrap();
                let (history, y) = solve(&space, &mut cbcg, &a, p, &rhs, 1e-8);
                let dropped = cbcg.recurrence().dropped();
                let what = format!(
                    "{name} s={s} preconditioned={}: {}, CG {}; λ {}, {dropped} left out",
                    p.is_some(),
                    brief(&history),
                    expected.iterations,
                    cbcg.recurrence().lambda()
                );
                let most = expected.iterations + expected.iterations.div_ceil(20) + s;
                let again = solve(&space, &mut cbcg, &a, p, &rhs, 1e-8);
                let right = history.outcome == Outcome::Converged
                    && distance(&x, &y) <= 1e-5
                    && history.iterations <= most
                    && history.reductions == 2 * history.iterations.div_ceil(s)
                    && dropped == 0
                    && again == (history, y);
                if !right {
                    wrong.push(what);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Powers span few directions: the others are dropped, this is reported, and the solve continues with the
/// rest. A hard contrast ends within the tolerance, although the recurrence's residual drifts from the true
/// one. A negative definite matrix is solved too.
pub fn cbcg_copes_with_hard_cases<S: PointBlockSum + BlockDiagonal>(make: Make<S>) {
    let matrix = bubbles([14, 13, 11], 1.0);
    let (n, rhs) = (matrix.rows(), Random(73).numbers(matrix.rows()));
    let space = make(n);
    let a = PointBlock::csr(&space, &matrix, Precision::F64).unwrap();
    for (steps, some) in [(3, false), (16, true)] {
        let mut cbcg = Cbcg::new(&space, CbcgOptions { steps, basis: CbcgBasis::Monomial }).unwrap();
        let (history, _) = solve(&space, &mut cbcg, &a, None, &rhs, 1e-8);
        assert_eq!(history.outcome, Outcome::Converged, "s={steps}: {}", brief(&history));
        let dropped = cbcg.recurrence().dropped();
        assert_eq!(dropped > 0, some, "s={steps}: {dropped} left out, {}", brief(&history));
        assert_eq!(krylith_core::method::Method::remark(&cbcg).is_some(), some, "s={steps}");
    }

    let negative: Vec<f64> = matrix.values().iter().map(|v| -v).collect();
    let negative = Csr::new(n, n, matrix.row_ptr().to_vec(), matrix.col().to_vec(), negative).unwrap();
    let a = PointBlock::csr(&space, &negative, Precision::F64).unwrap();
    let jacobi = BlockJacobi::new(&space, &Terms::csr(&negative).unwrap(), Precision::F64).unwrap();
    for p in [None, Some(&jacobi as &dyn LinearOperator<S>)] {
        let mut cbcg = Cbcg::new(&space, CbcgOptions::default()).unwrap();
        let (history, _) = solve(&space, &mut cbcg, &a, p, &rhs, 1e-8);
        assert_eq!(history.outcome, Outcome::Converged, "negative: {}", brief(&history));
        assert!(history.iterations <= 84, "negative: {}", brief(&history));
    }

    let hard = bubbles([14, 13, 11], 1e6);
    let a = PointBlock::csr(&space, &hard, Precision::F64).unwrap();
    let jacobi = BlockJacobi::new(&space, &Terms::csr(&hard).unwrap(), Precision::F64).unwrap();
    for steps in [4, 8, 12, 16] {
        let mut cbcg = Cbcg::new(&space, CbcgOptions { steps, ..CbcgOptions::default() }).unwrap();
        let (history, _) = solve(&space, &mut cbcg, &a, Some(&jacobi), &rhs, 1e-8);
        let what = format!("contrast 1e6, s={steps}: {}", brief(&history));
        assert_eq!(history.outcome, Outcome::Converged, "{what}");
        assert!(history.true_relative_residual <= 1e-8 && history.iterations <= 400, "{what}");
    }
}

/// One to some ranks give the same to rounding, whoever owns which rows; a rank may own none.
pub fn cbcg_of_ranks<S: PointBlockSum + BlockDiagonal + SubdomainFactors>(
    sizes: &[usize],
    make: distributed::MakeShare<S>,
) {
    for (steps, jacobi) in [(1, true), (8, false), (12, true)] {
        let matrix = bubbles([9, 8, 7], if jacobi { 100.0 } else { 1.0 });
        let (n, rhs) = (matrix.rows(), Random(74).numbers(matrix.rows()));
        let terms = Terms::csr(&matrix).unwrap();
        let options = CbcgOptions { steps, ..CbcgOptions::default() };
        let method = distributed::Chosen::Cbcg(options);
        let setup = distributed::Setup { method, jacobi, ..distributed::Setup::default() };
        let solve = |ranks: usize, partition: &Partition| {
            let parts = split(&terms, partition).unwrap();
            let work = |comm: Arc<dyn Communicator>| {
                distributed::solve_part(&comm, make, &parts[comm.rank()], &rhs, setup)
            };
            Team::run(ranks, |comm| work(comm)).unwrap()
        };
        let (x, reference) = solve(1, &Partition::new(vec![0; n], 1).unwrap()).remove(0);
        assert_eq!(reference.outcome, Outcome::Converged, "{}", brief(&reference));
        for &ranks in sizes {
            for (shape, partition) in distributed::partitions(n, ranks) {
                let case = format!("s={steps}, {ranks} ranks, {shape}");
                for (own, history) in solve(ranks, &partition) {
                    distributed::compare(&case, method, &reference, &history);
                    assert_eq!(history.reductions, 2 * history.iterations.div_ceil(steps), "{case}");
                    assert!(distance(&own, &x) < 1e-7, "{case}: {:e}", distance(&own, &x));
                }
            }
        }
    }
}

/// What each block operation takes at 16.8 M unknowns, and its share of a bandwidth in bytes per second.
pub fn block_speed<S: Space>(make: Make<S>, n: usize, widths: &[usize], bandwidth: f64) {
    let space = make(n);
    for &s in widths {
        let [x, y] = [(); 2].map(|()| space.block(s).unwrap());
        let [mut q, mut aq] = [(); 2].map(|()| space.block(s).unwrap());
        let [mut v, mut r] = [(); 2].map(|()| space.vector().unwrap());
        let sums = block_sums(s);
        let mut scalars = space.scalars(sums + s * s).unwrap();
        let mut time = |name: &str, vectors: usize, work: &mut dyn FnMut(&mut S::Scalars)| {
            let mut best = f64::INFINITY;
            for _ in 0..10 {
                space.wait().unwrap();
                let start = std::time::Instant::now();
                (0..5).for_each(|_| work(&mut scalars));
                space.wait().unwrap();
                best = best.min(start.elapsed().as_secs_f64() / 5.0);
            }
            let bytes = 8.0 * (vectors * n) as f64;
            println!(
                "s={s:2} {name:14} {:8.3} ms {:7.1} MB {:6.0} GB/s {:.3} of {:.0}",
                best * 1e3,
                bytes / 1e6,
                bytes / best / 1e9,
                bytes / best / bandwidth,
                bandwidth / 1e9
            );
        };
        time("block_products", 2 * s, &mut |scalars| space.block_products(&x, &y, scalars, 0).unwrap());
        time("block_update", 6 * s + 1, &mut |scalars| {
            space.block_update(&x, &y, &r, &mut q, &mut aq, scalars, sums, 0).unwrap()
        });
        time("block_advance", 2 * s + 4, &mut |scalars| {
            space.block_advance(&q, &aq, &mut v, &mut r, scalars, sums).unwrap()
        });
    }
}
