//! Ranks that share the rows of a product and all hold whole vectors: every mode compared with sums in twice
//! the digits, the same bits on all ranks, and CG as on one rank.

use super::Make;
use super::distributed::MakeShare;
use super::method::symmetric;
use crate::common::*;
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::Csr;
use krylith_core::method::{Cg, CgOptions};
use krylith_core::operator::{Gathered, LinearOperator, PointBlock, PointBlockSum, Replicated, SharedRows};
use krylith_core::partition::replicated::{Cuts, Mode};
use krylith_core::space::Space;
use krylith_core::{History, Outcome, Precision, Result, Stop};
use std::sync::Arc;

const MODES: [&str; 13] = [
    "nz",
    "2nz",
    "nz:3",
    "nz:8",
    "alone",
    "lra:0.3",
    "lra:0.5",
    "lra:0",
    "lra:1",
    "lra+rc:0.4/0.15",
    "lra+rc:0.25/0.05",
    "lra+rc:0.2/0.8",
    "fused",
];

fn mode(text: &str) -> Mode {
    text.parse().unwrap()
}

/// A square matrix with rows of these lengths, of distinct columns that begin anywhere.
fn rows_of(lengths: &[usize], rng: &mut Random) -> Csr {
    let n = lengths.len();
    let (mut row_ptr, mut col) = (vec![0], Vec::new());
    for &len in lengths {
        let (len, first) = (len.min(n), rng.below(n));
        let step = n.checked_div(len).unwrap_or(1);
        let mut row: Vec<u32> = (0..len).map(|k| ((first + k * step) % n) as u32).collect();
        row.sort_unstable();
        col.extend(row);
        row_ptr.push(col.len());
    }
    let values = rng.numbers(col.len());
    Csr::new(n, n, row_ptr, col, values).unwrap()
}

/// Hard cases for cuts: empty rows at either end and everywhere, one dense row anywhere, one dense column,
/// fewer rows than ranks, rows that tiles of a device share, and power laws.
fn matrices(rng: &mut Random) -> Vec<(String, Csr)> {
    let mut all = vec![
        ("5 in every row".to_string(), rows_of(&vec![5; 700], rng)),
        ("no entries".into(), rows_of(&[0; 50], rng)),
        ("empty rows first".into(), rows_of(&[vec![0; 300], vec![4; 90]].concat(), rng)),
        ("empty rows last".into(), rows_of(&[vec![4; 90], vec![0; 300]].concat(), rng)),
        ("many short, some long".into(), {
            let lengths: Vec<usize> =
                (0..3000).map(|_| if rng.below(60) == 0 { 200 } else { rng.below(3) }).collect();
            rows_of(&lengths, rng)
        }),
        ("a law of powers".into(), {
            let law = |_| (1.0 / rng.number().abs().max(1e-6)).powf(0.8).min(2500.0) as usize;
            let lengths: Vec<usize> = (0..6000).map(law).collect();
            rows_of(&lengths, rng)
        }),
    ];
    for n in [1, 2, 3, 7] {
        all.push((format!("{n} rows"), rows_of(&vec![2; n], rng)));
    }
    for at in [0, 1200, 2500, 4999] {
        let mut lengths = vec![2; 5000];
        lengths[at] = 5000;
        all.push((format!("row {at} of 5000 is dense"), rows_of(&lengths, rng)));
    }
    let n = 800;
    let column = (0..n as u32).map(|i| (i, 333, rng.number())).collect::<Vec<_>>();
    let diagonal = (0..n as u32).map(|i| (i, i, rng.number()));
    let entries: Vec<_> = column.into_iter().chain(diagonal).collect();
    all.push(("a dense column".into(), Csr::from_triplets(n, n, &entries).unwrap()));
    all
}

/// A x and |A| |x|, each sum in twice the digits.
fn reference(a: &Csr, x: &[f64]) -> Vec<(f64, f64)> {
    let row = |i: usize| {
        let (mut high, mut low, mut size) = (0.0f64, 0.0, 0.0);
        let (col, values) = a.row(i);
        for (&j, &v) in col.iter().zip(values) {
            let (x, product) = (x[j as usize], v * x[j as usize]);
            let sum = high + product;
            let part = sum - high;
            low += (high - (sum - part)) + (product - part) + v.mul_add(x, -product);
            (high, size) = (sum, size + product.abs());
        }
        (high + low, size)
    };
    (0..a.rows()).map(row).collect()
}

/// Every mode on every number of ranks: error ≤ 1e-13 Σ |aᵢⱼ xⱼ|, reproducible and the same bits on all
/// ranks, also for consecutive products without synchronisation, and residuals.
pub fn products_of_whole_vectors<S: SharedRows>(sizes: &[usize], make: MakeShare<S>) {
    let mut rng = Random(211);
    for (what, a) in &matrices(&mut rng) {
        let n = a.rows();
        let (x, other, rhs) = (rng.numbers(n), rng.numbers(n), rng.numbers(n));
        let expected = [reference(a, &x), reference(a, &other)];
        // The matrix in the memory of the first rank's device too: its rows are taken from there.
        let hold = |comm: Arc<dyn Communicator>| make(&comm, n)?.hold(a);
        let held = &Team::run(1, |comm| hold(comm)).unwrap().remove(0);
        for &ranks in sizes {
            let work = |comm: Arc<dyn Communicator>| {
                let space = make(&comm, n)?;
                let mut vectors = Vec::new();
                for host in [&x, &other, &rhs] {
                    let mut vector = space.vector()?;
                    space.write(host, &mut vector)?;
                    vectors.push(vector);
                }
                let mut outputs = [space.vector()?, space.vector()?];
                let mut answers = Vec::new();
                let first = Replicated::new(&space, &comm, a, mode("nz"))?;
                for mode in MODES {
                    let mode: Mode = mode.parse()?;
                    for a in [a, held] {
                        let operator = first.recut(&space, a, mode)?;
                        assert!(*operator.cuts() == Cuts::of(a, &mode, ranks)?, "{what}, {mode}: other cuts");
                        for output in &mut outputs {
                            space.write(&vec![f64::NAN; n], output)?;
                        }
                        for _ in 0..3 {
                            operator.apply(&space, &vectors[0], &mut outputs[0])?;
                            operator.apply(&space, &vectors[1], &mut outputs[1])?;
                        }
                        let mut host = [vec![0.0; n], vec![0.0; n], vec![0.0; n], vec![0.0; n]];
                        space.read(&outputs[0], &mut host[0])?;
                        space.read(&outputs[1], &mut host[1])?;
                        let [r, m] = &mut outputs;
                        space.write(&vec![f64::NAN; n], r)?;
                        space.write(&vec![f64::NAN; n], m)?;
                        assert!(operator.residual(&space, &vectors[2], &vectors[0], r, m)?, "{what}, {mode}");
                        space.read(r, &mut host[2])?;
                        space.read(m, &mut host[3])?;
                        answers.push((mode, host));
                    }
                }
                Ok(answers)
            };
            let all = Team::run(ranks, |comm| work(comm)).unwrap();
            for (rank, answers) in all.iter().enumerate() {
                assert!(answers == &all[0], "{what}: rank {rank} of {ranks} has other bits");
            }
            for (mode, [y, z, r, m]) in &all[0] {
                for i in 0..n {
                    let what = format!("{what}, {mode} on {ranks} ranks, row {i}");
                    for (y, expected) in [(y, &expected[0]), (z, &expected[1])] {
                        let ((sum, size), y) = (expected[i], y[i]);
                        assert!((y - sum).abs() <= 1e-13 * size, "{what}: {y:e}, not {sum:e}");
                    }
                    let (sum, size) = (rhs[i] - expected[0][i].0, rhs[i].abs() + expected[0][i].1);
                    assert!((r[i] - sum).abs() <= 4e-16 * size, "{what}: residual {:e}, not {sum:e}", r[i]);
                    assert!(
                        (m[i] - size).abs() <= 1e-13 * size,
                        "{what}: magnitude {:e}, not {size:e}",
                        m[i]
                    );
                }
            }
        }
    }
}

/// The fastest of the modes multiplies right, and is the one of which all ranks heard the shortest time.
pub fn the_fastest_of_the_modes<S: SharedRows>(sizes: &[usize], make: MakeShare<S>) {
    let mut rng = Random(223);
    let (what, a) = &matrices(&mut rng)[0];
    let (n, x) = (a.rows(), rng.numbers(a.rows()));
    let expected = reference(a, &x);
    for &ranks in sizes {
        let modes = Mode::candidates(a.nonzeros() as f64 / n as f64, ranks);
        let work = |comm: Arc<dyn Communicator>| {
            let space = make(&comm, n)?;
            let (operator, seconds) = Replicated::fastest(&space, &comm, a, &modes, 2)?;
            let (mut input, mut output) = (space.vector()?, space.vector()?);
            space.write(&x, &mut input)?;
            operator.apply(&space, &input, &mut output)?;
            let mut y = vec![0.0; n];
            space.read(&output, &mut y)?;
            Ok((operator.mode(), seconds, y))
        };
        let all = Team::run(ranks, |comm| work(comm)).unwrap();
        let (mode, seconds, y) = &all[0];
        assert!(all.iter().all(|one| one == &all[0]), "{what}: ranks differ on {mode}");
        assert_eq!(seconds.len(), modes.len());
        let shortest = seconds.iter().copied().fold(f64::INFINITY, f64::min);
        let chosen = modes.iter().position(|m| m == mode).expect("one of the modes");
        assert_eq!(seconds[chosen], shortest, "{what}: {mode} of {modes:?} with {seconds:?}");
        for (i, (y, (sum, size))) in y.iter().zip(&expected).enumerate() {
            assert!(
                (y - sum).abs() <= 1e-13 * size,
                "{what}, {mode} on {ranks} ranks, row {i}: {y:e}, not {sum:e}"
            );
        }
    }
}

/// What a device finds in its memory is what the host finds in its own.
pub fn cuts_are_those_of_the_host<S: SharedRows>(make: Make<S>) {
    for (what, a) in &matrices(&mut Random(212)) {
        let space = make(a.rows());
        let held = space.hold(a).unwrap();
        for mode in MODES.map(mode) {
            for ranks in 1..=16 {
                let found = space.cut_rows(&held, &mode, ranks).unwrap();
                assert!(found == Cuts::of(a, &mode, ranks).unwrap(), "{what}, {mode}, {ranks} ranks");
            }
        }
    }
}

fn solve<S: Space>(
    space: &S,
    a: &dyn LinearOperator<S>,
    rhs: &[f64],
    max_iters: usize,
) -> Result<(History, Vec<f64>)> {
    let (mut b, mut x) = (space.vector()?, space.vector()?);
    space.write(rhs, &mut b)?;
    let mut cg = Cg::new(space, CgOptions::default())?;
    let stop = Stop { rtol: 1e-10, atol: 0.0, max_iters, ..Stop::DEFAULT };
    // Twice: the first solve of a device that records does not replay, the second does.
    cg.solve(space, a, None, &b, &mut x, &stop, &mut ())?;
    space.write(&vec![0.0; rhs.len()], &mut x)?;
    let history = cg.solve(space, a, None, &b, &mut x, &stop, &mut ())?.clone();
    let mut host = vec![0.0; rhs.len()];
    space.read(&x, &mut host)?;
    Ok((history, host))
}

/// CG on whole vectors, the operator alone being shared, and CG whose direction is gathered: as on one rank.
pub fn cg_of_whole_vectors<S: SharedRows + PointBlockSum>(
    sizes: &[usize],
    whole: MakeShare<S>,
    share: MakeShare<S>,
) {
    let n = 700;
    let blocks = symmetric(&mut Random(213), 1, n, 1.0);
    let (row_ptr, col) = (blocks.row_ptr().to_vec(), blocks.col().to_vec());
    let plain = Csr::new(n, n, row_ptr, col, blocks.values().to_vec()).unwrap();
    // A long row in the middle: ranks then have different numbers of runs, and yet must take the same steps.
    let middle = (n / 2) as u32;
    let arrow = (0..n as u32)
        .filter(|i| *i != middle)
        .flat_map(|i| [(i, middle, 1e-2), (middle, i, 1e-2), (i, i, 1.0 + f64::from(i % 60))]);
    let arrow: Vec<_> = arrow.chain([(middle, middle, 4.0)]).collect();
    let arrow = Csr::from_triplets(n, n, &arrow).unwrap();
    let cut = |comm: Arc<dyn Communicator>| whole(&comm, n)?.cut_rows(&arrow, &mode("lra+rc:0.25/0.05"), 2);
    let cuts = Team::run(1, |comm| cut(comm)).unwrap().remove(0);
    assert_ne!(cuts.of_rank(0).count(), cuts.of_rank(1).count(), "{cuts:?}");
    for (a, most) in [(&plain, 13), (&plain, 10_000), (&arrow, 10_000)] {
        cg_as_on_one_rank(sizes, whole, share, a, most);
    }
}

fn cg_as_on_one_rank<S: SharedRows + PointBlockSum>(
    sizes: &[usize],
    whole: MakeShare<S>,
    share: MakeShare<S>,
    a: &Csr,
    max_iters: usize,
) {
    let n = a.rows();
    let rhs = Random(214).numbers(n);
    let alone = |comm: Arc<dyn Communicator>| {
        let space = whole(&comm, n)?;
        solve(&space, &PointBlock::csr(&space, a, Precision::F64)?, &rhs, max_iters)
    };
    let (reference, x) = Team::run(1, |comm| alone(comm)).unwrap().remove(0);
    let expected = if max_iters == 13 { Outcome::MaxIterations } else { Outcome::Converged };
    assert_eq!(reference.outcome, expected);
    let same = |what: &str, history: &History, found: &[f64], x: &[f64]| {
        assert_eq!(history.outcome, reference.outcome, "{what}");
        let by = history.iterations.abs_diff(reference.iterations);
        assert!(by <= 1, "{what}: {} and {} iterations", history.iterations, reference.iterations);
        let first = history.residuals.iter().zip(&reference.residuals).take(20);
        let away = first.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(away <= 1e-10, "{what}: residuals differ by {away:e}");
        let away = found.iter().zip(x).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(away <= 1e-8, "{what}: x differs by {away:e}");
    };
    for &ranks in sizes {
        for mode in ["nz", "2nz", "lra:0.3", "lra+rc:0.25/0.05", "fused"].map(mode) {
            let work = |comm: Arc<dyn Communicator>| {
                let space = whole(&comm, n)?;
                solve(&space, &Replicated::new(&space, &comm, a, mode)?, &rhs, max_iters)
            };
            let all = Team::run(ranks, |comm| work(comm)).unwrap();
            for (rank, (history, found)) in all.iter().enumerate() {
                let what = format!("{mode}, rank {rank} of {ranks}");
                same(&what, history, found, &x);
                assert!(found == &all[0].1 && history.residuals == all[0].0.residuals, "{what}: other bits");
            }
        }
        let work = |comm: Arc<dyn Communicator>| {
            let own = Gathered::<S>::rows(a, ranks)?[comm.rank()].clone();
            let space = share(&comm, own.len())?;
            let operator = Gathered::new(&space, &comm, a)?;
            solve(&space, &operator, &rhs[own.clone()], max_iters).map(|solved| (own, solved))
        };
        for (own, (history, found)) in Team::run(ranks, |comm| work(comm)).unwrap() {
            same(&format!("gathered, rows {own:?} on {ranks} ranks"), &history, &found, &x[own.clone()]);
        }
    }
}

/// What cannot be shared is refused on all ranks, by name.
pub fn other_systems_are_refused<S: SharedRows>(ranks: usize, make: MakeShare<S>) {
    let refused = |rows: usize, columns: usize, len: usize| {
        let a = Csr::from_triplets(rows, columns, &[(0, 0, 1.0)]).unwrap();
        let work = |comm: Arc<dyn Communicator>| {
            let space = make(&comm, len)?;
            Ok(Replicated::new(&space, &comm, &a, Mode::Nz).map(drop).unwrap_err().to_string())
        };
        Team::run(ranks, |comm| work(comm)).unwrap()
    };
    for e in refused(3, 4, 3) {
        assert!(e.contains("3×4") && e.contains("square"), "{e}");
    }
    for e in refused(5, 5, 4) {
        assert!(e.contains("5 rows") && e.contains("space has 4"), "{e}");
    }
}

/// A rank that stops taking part ends the products of the others, with its name.
pub fn a_rank_that_fails_ends_the_others<S: SharedRows>(ranks: usize, make: MakeShare<S>) {
    let a = &rows_of(&[3; 400], &mut Random(215));
    for mode in ["lra+rc:0.3/0.1", "fused"].map(mode) {
        let work = |comm: Arc<dyn Communicator>| {
            let space = make(&comm, 400)?;
            let operator = Replicated::new(&space, &comm, a, mode)?;
            let (x, mut y) = (space.vector()?, space.vector()?);
            for step in 0..100 {
                if comm.rank() == 1 && step == 50 {
                    return Err(krylith_core::Error::invalid("a fault of its own"));
                }
                operator.apply(&space, &x, &mut y)?;
            }
            space.wait()
        };
        let begin = std::time::Instant::now();
        let e = Team::run(ranks, |comm| work(comm)).unwrap_err().to_string();
        assert!(e.contains("a fault of its own"), "{mode}: {e}");
        assert!(begin.elapsed().as_secs() < 30, "{mode}: {:?}", begin.elapsed());
    }
}
