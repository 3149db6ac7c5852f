//! `threads` bounds the threads of a whole solve: every loop runs on the threads of its solver, which end
//! with it. This binary has one test, because it counts the tasks of the process, and because it occupies
//! rayon's global pool, so that a loop that needs it fails.

#![cfg(target_os = "linux")]

use krylith_core::comm::{Communicator, Team};
use krylith_core::io::read_matrix;
use krylith_core::matrix::{Bsr, Csr, Dense, KroneckerSum};
use krylith_core::newton::{Newton, NewtonOptions, NonlinearSystem};
use krylith_core::solver::{Plan, solve_functions};
use krylith_core::{Options, Problem, Result, Solver};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Tasks of this process, its own thread among them.
fn tasks() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Waits until there are no more than so many tasks: one that has ended is listed for a moment more.
fn settle(most: usize, what: &str) {
    let begin = Instant::now();
    while tasks() > most {
        assert!(begin.elapsed() < Duration::from_secs(10), "{what}: {} tasks, {most} at most", tasks());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The most tasks while `work` runs, less those before and the one that counts.
fn most_of(work: impl FnOnce()) -> usize {
    let before = tasks();
    let (most, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(SeqCst) {
                most.fetch_max(tasks(), SeqCst);
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.store(true, SeqCst);
        worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    most.into_inner().saturating_sub(before + 1)
}

/// Largest number of tasks of a solver: `threads` for its loops, `threads − 1` for parallel regions, and one
/// for a call that cannot be interrupted, such as direct factors.
fn of_solver(threads: usize) -> usize {
    threads + (threads - 1) + 1
}

/// Tasks that stay: threads that stand by for small systems.
const STANDBY: usize = 8;

/// −1 6 −1 on n³ nodes, with an asymmetric part and stored zeros where they are asked for.
fn laplace(n: usize, skew: f64, zeros: bool) -> Csr {
    let at = |i: usize, j: usize, k: usize| (i * n + j) * n + k;
    let mut entries = Vec::new();
    for (i, j, k) in (0..n).flat_map(|i| (0..n).flat_map(move |j| (0..n).map(move |k| (i, j, k)))) {
        let row = at(i, j, k) as u32;
        let mut near = |other: Option<usize>, v: f64| {
            if let Some(other) = other {
                entries.push((row, other as u32, v));
            }
        };
        near(Some(at(i, j, k)), 6.01);
        near((i > 0).then(|| at(i.saturating_sub(1), j, k)), -1.0 - skew);
        near((i + 1 < n).then(|| at(i + 1, j, k)), -1.0 + skew);
        near((j > 0).then(|| at(i, j.saturating_sub(1), k)), -1.0);
        near((j + 1 < n).then(|| at(i, j + 1, k)), -1.0);
        near((k > 0).then(|| at(i, j, k.saturating_sub(1))), -1.0);
        near((k + 1 < n).then(|| at(i, j, k + 1)), -1.0);
        if zeros && i + 1 < n && j + 1 < n {
            near(Some(at(i + 1, j + 1, k)), 0.0);
        }
    }
    Csr::from_triplets(n * n * n, n * n * n, &entries).unwrap()
}

/// Point blocks of order b: A ⊗ (I + coupling).
fn blocks(a: &Csr, b: usize) -> Bsr {
    let block = |v: f64| (0..b * b).map(move |e| if e / b == e % b { v } else { 0.01 * v });
    let values = a.values().iter().flat_map(|&v| block(v)).collect();
    Bsr::new(b, a.rows(), a.columns(), a.row_ptr().to_vec(), a.col().to_vec(), values).unwrap()
}

/// A with large numbers on the diagonal of some nodes, as they hold a given value.
fn penalty(a: &Csr) -> Csr {
    let mut values = a.values().to_vec();
    for i in (0..a.rows()).step_by(100) {
        let mut row = a.row_ptr()[i]..a.row_ptr()[i + 1];
        values[row.find(|&p| a.col()[p] as usize == i).unwrap()] = 1e12;
    }
    Csr::new(a.rows(), a.columns(), a.row_ptr().to_vec(), a.col().to_vec(), values).unwrap()
}

/// Two stages of a heat equation in blocks of two.
fn kronecker(a: &Csr) -> KroneckerSum {
    let l = blocks(a, 2);
    let mut m = l.clone();
    let diagonal: Vec<bool> = {
        let rows =
            (0..l.block_rows()).flat_map(|i| (l.row_ptr()[i]..l.row_ptr()[i + 1]).map(move |p| (i, p)));
        rows.map(|(i, p)| l.col()[p] as usize == i).collect()
    };
    m.values_mut().chunks_mut(4).zip(diagonal).for_each(|(block, own)| {
        block.copy_from_slice(if own { &[1.0, 0.0, 0.0, 1.0] } else { &[0.0; 4] });
    });
    let stages = Dense::new(2, 2, vec![0.4, 0.0, 0.3, 0.4]).unwrap();
    KroneckerSum::new(Dense::identity(2), stages, 0.1, m, l).unwrap()
}

/// Half of the rows each.
fn ranks(a: &Csr, threads: usize, words: &str) {
    let converged = Team::run(2, |comm| {
        let half = a.rows() / 2;
        let own = if comm.rank() == 0 { 0..half } else { half..a.rows() };
        let (from, to) = (a.row_ptr()[own.start], a.row_ptr()[own.end]);
        let row_ptr = a.row_ptr()[own.start..=own.end].iter().map(|p| p - from).collect();
        let (col, values) = (a.col()[from..to].to_vec(), a.values()[from..to].to_vec());
        let problem = bounded(threads, || {
            let own = Csr::new(own.len(), a.columns(), row_ptr, col, values.clone())?;
            Problem::distributed_csr(comm, &own, None)
        })?;
        let mut solver = Solver::new(problem, &options(threads, words))?;
        let (b, mut x) = (vec![1.0; own.len()], vec![0.0; own.len()]);
        solver.solve(&b, &mut x)?;
        solver.update_values(&values)?;
        Ok(solver.solve(&b, &mut x)?.converged())
    });
    assert_eq!(converged.unwrap(), [true, true], "{words}");
}

/// x³ + A x = b, node by node.
struct Cubic(Bsr);

impl NonlinearSystem for Cubic {
    fn pattern(&self) -> &Bsr {
        &self.0
    }
    fn residual(&mut self, x: &[f64], f: &mut [f64]) -> Result<()> {
        for (i, f) in f.iter_mut().enumerate() {
            let row = self.0.row_ptr()[i]..self.0.row_ptr()[i + 1];
            let ax: f64 = row.map(|p| self.0.values()[p] * x[self.0.col()[p] as usize]).sum();
            *f = ax + x[i].powi(3) - 1.0;
        }
        Ok(())
    }
    fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> Result<()> {
        values.copy_from_slice(self.0.values());
        for (i, x) in x.iter().enumerate() {
            let mut row = self.0.row_ptr()[i]..self.0.row_ptr()[i + 1];
            let diagonal = row.find(|&p| self.0.col()[p] as usize == i).unwrap();
            values[diagonal] += 3.0 * x * x;
        }
        Ok(())
    }
}

fn options(threads: usize, words: &str) -> Options {
    format!("threads={threads} device=cpu {words}").parse().unwrap()
}

/// Something done where its loops are bounded: what a program does around a solve.
fn bounded<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> R {
    options(threads, "").within(work).unwrap()
}

/// A set-up, two solves, and new values between them, which may stand where zeros were dropped.
fn solves(problem: Problem, threads: usize, words: &str, again: &[f64]) {
    let mut solver = Solver::new(problem, &options(threads, words)).unwrap();
    let n = solver.problem().own_len();
    let (b, mut x) = (vec![1.0; n], vec![0.0; n]);
    assert!(solver.solve(&b, &mut x).unwrap().converged(), "{words}");
    solver.field_residuals(&b, &x).unwrap();
    if !again.is_empty() {
        solver.update_values(again).unwrap();
        x.fill(0.0);
        assert!(solver.solve(&b, &mut x).unwrap().converged(), "{words}, again");
    }
}

/// A b that few rows carry, so that rows are scaled and a second solver is made.
fn solves_by_rows(a: &Csr, threads: usize) {
    let mut solver = bounded(threads, || Solver::new(a, &options(threads, ""))).unwrap();
    let row = |i: usize| a.values()[a.row_ptr()[i]..a.row_ptr()[i + 1]].iter().sum();
    let (b, mut x): (Vec<f64>, _) = ((0..a.rows()).map(row).collect(), vec![0.0; a.rows()]);
    let solution = solver.solve(&b, &mut x).unwrap();
    assert!(solution.row_scaled_residual.is_some(), "{solution:?}");
    assert!(solution.events.iter().any(|e| e.detail.contains("scaled rows")), "{:?}", solution.events);
}

/// A product that is a function.
fn function(threads: usize) {
    let mut product = |x: &[f64], y: &mut [f64]| {
        y.iter_mut().zip(x).enumerate().for_each(|(i, (y, x))| *y = (1.0 + (i % 7) as f64) * x);
        Ok(())
    };
    let (b, mut x) = (vec![1.0; 200_000], vec![0.0; 200_000]);
    solve_functions(&mut product, None, &b, &mut x, &options(threads, ""), &mut ()).unwrap();
}

#[test]
fn no_phase_has_more_tasks_than_threads_allow() {
    let forbid = |_| Err(std::io::Error::other("a loop outside of all pools"));
    assert!(rayon::ThreadPoolBuilder::new().spawn_handler(forbid).build_global().is_err());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mtx");
    // Vectors of `large` are looked at on all threads.
    let make = || {
        let large = laplace(42, 0.0, false);
        krylith_core::io::matrix_market::write(&path, &large).unwrap();
        (large, laplace(16, 0.0, false), laplace(14, 0.3, true), laplace(4, 0.0, false))
    };
    let (large, a, skew, small) = bounded(2, make);
    let (three, one, rows) =
        bounded(2, || (blocks(&laplace(12, 0.0, false), 3), blocks(&large, 1), penalty(&a)));
    let new: Vec<f64> = a.values().iter().map(|v| 2.0 * v).collect();
    let full: Vec<f64> = skew.values().iter().map(|v| if *v == 0.0 { 0.01 } else { *v }).collect();
    let (stages, start) = (bounded(2, || kronecker(&laplace(10, 0.0, false))), tasks());
    for threads in [1, 2, 3] {
        let within = |what: &str, most: usize, work: &dyn Fn()| {
            let found = most_of(work);
            assert!(found <= most, "{what}: {found} tasks for {threads} threads, {most} at most");
            settle(start + STANDBY, what);
        };
        let team = of_solver(threads);
        within("a file", threads, &|| {
            let read = bounded(threads, || read_matrix(&path)).unwrap();
            assert_eq!(read.matrix.into_csr().nonzeros(), large.nonzeros());
        });
        for words in [
            "precond=ildu method=cg",
            "precond=ildu:fill=1,cut=multilevel method=bicgstab",
            "precond=ildu:cut=graph method=cg",
            "precond=amg method=cg",
            "precond=amg:coarsen=aggregation method=gmres",
            "precond=ras:parts=2 method=gmres",
            "precond=jacobi method=cg precision=f32",
            "",
        ] {
            let problem = || bounded(threads, || Problem::csr(&a)).unwrap();
            within(words, team, &|| solves(problem(), threads, words, &new));
        }
        within("a large system", team, &|| {
            let problem = bounded(threads, || Problem::csr(&large)).unwrap();
            solves(problem, threads, "precond=jacobi method=cg", large.values());
        });
        within("zeros", team, &|| {
            let problem = bounded(threads, || Problem::csr_in_blocks(&skew, Some(1))).unwrap();
            solves(problem, threads, "zeros=drop", &full);
        });
        // The solver of scaled rows has threads of its own, which work while those of the first sleep.
        within("scaled rows", 2 * team, &|| solves_by_rows(&rows, threads));
        let problem = || bounded(threads, || Problem::bsr(&three)).unwrap();
        within("blocks", team, &|| solves(problem(), threads, "", three.values()));
        within("factors", team, &|| solves(problem(), threads, "precond=lu", three.values()));
        within("a plan", team, &|| {
            let found = bounded(threads, || problem().diagnosis()).unwrap();
            assert!(!Plan::of(&problem(), &found, &options(threads, "")).unwrap().attempts.is_empty());
        });
        for words in ["precond=stage", "precond=ildu then coarse", ""] {
            let problem = || bounded(threads, || Problem::try_from(&stages)).unwrap();
            within("stages", team, &|| solves(problem(), threads, words, &[]));
        }
        within("a function", team, &|| function(threads));
        within("newton", team, &|| {
            let mut newton = Newton::new(NewtonOptions::default(), &options(threads, "")).unwrap();
            let mut x = vec![0.0; large.rows()];
            assert!(newton.solve(&mut Cubic(one.clone()), &mut x).unwrap().converged());
        });
        for words in ["precond=ildu", "precond=amg", "precond=ras", ""] {
            within("ranks", 2 + 2 * team, &|| ranks(&a, threads, words));
        }
        within("a small system", team, &|| {
            let problem = bounded(threads, || Problem::csr(&small)).unwrap();
            solves(problem, threads, "", &[]);
        });
    }
    // Two hundred solvers leave nothing but what stands by.
    for threads in [1, 2] {
        let before = tasks();
        for _ in 0..100 {
            let problem = bounded(threads, || Problem::bsr(&three)).unwrap();
            drop(Solver::new(problem, &options(threads, "precond=jacobi")).unwrap());
        }
        settle(before, "solvers that are gone");
    }
}
