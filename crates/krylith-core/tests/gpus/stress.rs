//! Solves systems of changing sizes and kinds one after the other and checks each solution; a watchdog
//! reports where the program is if it hangs. `bench/stress` starts these tests, which are ignored otherwise.
//!
//! `KRYLITH_STRESS=FIRST:COUNT`: numbers of the systems; a number determines everything about its system.
//! `KRYLITH_STRESS_SECONDS`: time after which no further system begins. `KRYLITH_STRESS_SILENCE`: the longest
//! time without a solve. The last printed line gives the number at the end.

use crate::common::{Random, by_rows, minus, norm, random_bsr, random_kronecker, times};
use krylith_core::device::cuda::{Buffer, Device};
use krylith_core::matrix::{Bsr, Csr, KroneckerSum};
use krylith_core::memory::{Array, Numbers, NumbersMut};
use krylith_core::{Options, Problem, Solver};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Solves of each system: with the first values, then with new ones.
const SOLVES: usize = 10;
/// Largest relative residual of an answer: the tolerance, and what the sums of this check round off.
const MOST: f64 = 2e-8;
/// What ends a program that does not go on, so that its caller can tell.
const SILENT: i32 = 86;

static SOLVED: AtomicUsize = AtomicUsize::new(0);

/// The options that systems take turns with; none means `auto`.
const OPTIONS: [&str; 10] = [
    "",
    "precond=jacobi",
    "",
    "precond=ildu",
    "precond=amg",
    "",
    "method=gmres precond=ildu:fill=1",
    "precond=ras method=gmres",
    "precond=ildu precision=f32",
    "method=bicgstab precond=jacobi",
];

/// Many systems in one process.
pub fn solves(device: &Arc<Device>) {
    let [first, count] = range("0:300");
    let seconds = number("KRYLITH_STRESS_SECONDS", 500.0);
    watch();
    let begin = Instant::now();
    let mut next = first;
    while next < first + count && begin.elapsed().as_secs_f64() < seconds {
        system(device, next);
        next += 1;
        if next % 100 == 0 {
            println!(
                "system {next}, {} solves, {:.0} s",
                SOLVED.load(Relaxed),
                begin.elapsed().as_secs_f64()
            );
        }
    }
    let (solved, seconds) = (SOLVED.load(Relaxed), begin.elapsed().as_secs_f64());
    // On a line of its own: the harness has begun one.
    println!("\n{{\"first\": {first}, \"next\": {next}, \"solves\": {solved}, \"seconds\": {seconds:.1}}}");
}

/// The work of a freshly started process: three systems, the last one of blocks of three from device memory,
/// while kernels are compiled.
pub fn start(device: &Arc<Device>) {
    let [first, _] = range("0:1");
    watch();
    let begin = Instant::now();
    for kind in [0, 1, 3] {
        solve_of_kind(device, kind, first, "");
    }
    let (solved, seconds) = (SOLVED.load(Relaxed), begin.elapsed().as_secs_f64());
    println!("\n{{\"solves\": {solved}, \"seconds\": {seconds:.2}}}");
}

fn system(device: &Arc<Device>, number: usize) {
    solve_of_kind(device, number % 6, number, OPTIONS[number / 6 % OPTIONS.len()]);
}

/// A system, and how its rows are given.
enum Given {
    Matrix(Bsr),
    /// The same from arrays in device memory, as scalar rows.
    There(Bsr),
    Stages(KroneckerSum),
}

fn solve_of_kind(device: &Arc<Device>, kind: usize, number: usize, options: &str) {
    let mut rng = Random(number as u64 + 1);
    let given = match kind {
        0 => {
            let side = 8 + rng.below(130);
            Given::Matrix(grid([side, side, 1], 0.0, 1, &mut rng))
        }
        1 => {
            let side = 4 + rng.below(23);
            Given::Matrix(grid([side; 3], 0.4, 1, &mut rng))
        }
        2 => {
            let (b, side) = (2 + rng.below(4), 4 + rng.below(12));
            Given::Matrix(grid([side; 3], 0.1, b, &mut rng))
        }
        3 => {
            let side = 4 + rng.below(14);
            Given::There(grid([side; 3], 0.0, 3, &mut rng))
        }
        4 => {
            let (n, same) = (50 + rng.below(2000), rng.below(2) == 0);
            Given::Stages(random_kronecker(&mut rng, 2, 2, n, 4, same, true))
        }
        _ => {
            let (b, n) = (1 + rng.below(3), 1 + rng.below(400));
            Given::Matrix(random_bsr(&mut rng, b, n, n, 3, true))
        }
    };
    // Schwarz and coarse levels are not made for everything.
    let options = match &given {
        Given::Stages(_) if options.contains("ras") || options.contains("amg") => "",
        _ => options,
    };
    let text = format!("rtol=1e-9 device=cuda:0 {options}");
    let what = format!("system {number} of kind {kind}, `{text}`");
    let parsed: Options = text.parse().unwrap_or_else(|e| panic!("{what}: {e}"));
    let fail = |e: krylith_core::Error| -> ! { panic!("{what}: {e}") };
    match given {
        Given::Matrix(mut a) => {
            let first = a.clone();
            let mut solver = Solver::new(&first, &parsed).unwrap_or_else(|e| fail(e));
            for turn in 0..SOLVES {
                if turn == SOLVES / 2 {
                    scale(a.values_mut(), &mut rng);
                    solver.update_values(a.values()).unwrap_or_else(|e| fail(e));
                }
                let rows = a.to_csr();
                check(device, &mut solver, &mut rng, &what, turn, |x| times(&rows, x));
            }
        }
        Given::There(a) => {
            let rows = a.to_csr();
            let row_ptr: Vec<i32> = rows.row_ptr().iter().map(|&p| p as i32).collect();
            let col: Vec<i32> = rows.col().iter().map(|&j| j as i32).collect();
            let there = (lend(device, &row_ptr), lend(device, &col), lend(device, rows.values()));
            let arrays = (Array::from(&there.0), Array::from(&there.1), Numbers::from(&there.2));
            let n = rows.rows();
            let matrix = Csr::from_arrays(n, n, arrays.0, arrays.1, arrays.2).unwrap_or_else(|e| fail(e));
            let problem = Problem::csr_in_blocks(&matrix, Some(3)).unwrap_or_else(|e| fail(e));
            let mut solver = Solver::new(problem, &parsed).unwrap_or_else(|e| fail(e));
            for turn in 0..SOLVES {
                check(device, &mut solver, &mut rng, &what, turn, |x| times(&rows, x));
            }
        }
        Given::Stages(mut k) => {
            let first = k.clone();
            let mut solver = Solver::new(&first, &parsed).unwrap_or_else(|e| fail(e));
            for turn in 0..SOLVES {
                if turn == SOLVES / 2 {
                    k.tau *= 0.5;
                    solver.set_tau(k.tau).unwrap_or_else(|e| fail(e));
                }
                check(device, &mut solver, &mut rng, &what, turn, |x| by_rows(&k, x));
            }
        }
    }
}

fn lend<T: Copy>(device: &Arc<Device>, host: &[T]) -> Buffer<T> {
    let buffer = device.upload(host, "arrays of an application").unwrap();
    device.wait().unwrap();
    buffer
}

/// One solve, from host memory or from the GPU's, and its residual by plain loops.
fn check(
    device: &Arc<Device>,
    solver: &mut Solver,
    rng: &mut Random,
    what: &str,
    turn: usize,
    product: impl Fn(&[f64]) -> Vec<f64>,
) {
    let n = solver.problem().unknowns();
    let b = rng.numbers(n);
    let mut x = vec![0.0; n];
    let converged = if turn % 2 == 0 {
        solver.solve(&b, &mut x).unwrap_or_else(|e| panic!("{what}, solve {turn}: {e}")).converged()
    } else {
        let (there, mut answer) = (lend(device, &b), lend(device, &x));
        let solved = solver.solve(Numbers::from(&there), NumbersMut::from(&mut answer));
        let converged = solved.unwrap_or_else(|e| panic!("{what}, solve {turn}: {e}")).converged();
        device.read(&answer, 0, &mut x).unwrap();
        converged
    };
    let r = minus(&b, &product(&x));
    let residual = norm(&r) / norm(&b);
    let outcome = solver.solution().history.outcome;
    assert!(converged && residual <= MOST, "{what}, solve {turn}: {outcome}, relative residual {residual:e}");
    SOLVED.fetch_add(1, Relaxed);
}

/// A grid of nodes with `b` unknowns each, coupled to their neighbours; `wind` makes it unsymmetric.
/// Diagonally dominant.
fn grid([nx, ny, nz]: [usize; 3], wind: f64, b: usize, rng: &mut Random) -> Bsr {
    let n = nx * ny * nz;
    let (mut row_ptr, mut col, mut values) = (vec![0], Vec::<u32>::new(), Vec::new());
    for i in 0..n {
        let (x, y, z) = (i % nx, i / nx % ny, i / nx / ny);
        let mut row = vec![(i, 0.0)];
        let mut couple = |here: bool, j: usize, v: f64| {
            if here {
                row.push((j, v));
            }
        };
        couple(x > 0, i.wrapping_sub(1), -1.0 - wind);
        couple(x + 1 < nx, i + 1, -1.0 + wind);
        couple(y > 0, i.wrapping_sub(nx), -1.0 - wind);
        couple(y + 1 < ny, i + nx, -1.0 + wind);
        couple(z > 0, i.wrapping_sub(nx * ny), -1.0);
        couple(z + 1 < nz, i + nx * ny, -1.0);
        row.sort_unstable_by_key(|&(j, _)| j);
        let sum: f64 = row.iter().map(|(_, v)| v.abs()).sum();
        for (j, v) in row {
            col.push(j as u32);
            for e in 0..b * b {
                let (r, c) = (e / b, e % b);
                values.push(match (i == j, r == c) {
                    (true, true) => sum + 0.05,
                    (true, false) => 0.02 / (1 + r.abs_diff(c)) as f64,
                    (false, true) => v,
                    (false, false) => 0.0,
                });
            }
        }
        row_ptr.push(col.len());
    }
    let _ = rng.next();
    Bsr::new(b, n, n, row_ptr, col, values).unwrap()
}

/// All values by the same factor, which keeps what holds of the matrix.
fn scale(values: &mut [f64], rng: &mut Random) {
    let factor = 1.5 + 0.4 * rng.number();
    values.iter_mut().for_each(|v| *v *= factor);
}

/// Ends the process where no solve ends for too long, and says where each of its threads is.
fn watch() {
    let silence = Duration::from_secs_f64(number("KRYLITH_STRESS_SILENCE", 60.0));
    let look = move || {
        let (mut before, mut since) = (SOLVED.load(Relaxed), Instant::now());
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let now = SOLVED.load(Relaxed);
            if now != before {
                (before, since) = (now, Instant::now());
            } else if since.elapsed() > silence {
                eprintln!("no solve for {:.0} s, after {now}; waits:", since.elapsed().as_secs_f64());
                krylith_core::waiting::report().iter().for_each(|line| eprintln!("    {line}"));
                threads();
                std::process::exit(SILENT);
            }
        }
    };
    std::thread::Builder::new().name("watch".into()).spawn(look).unwrap();
}

/// What the system tells of each thread.
fn threads() {
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let state = read("status").lines().find(|l| l.starts_with("State:")).unwrap_or("").to_string();
        eprintln!(
            "    {} {}: {state}, in {}, call {}",
            task.file_name().to_string_lossy(),
            read("comm").trim(),
            read("wchan").trim(),
            read("syscall").trim()
        );
        read("stack").lines().for_each(|line| eprintln!("        {line}"));
    }
}

fn range(usual: &str) -> [usize; 2] {
    let text = std::env::var("KRYLITH_STRESS").unwrap_or(usual.into());
    let numbers = text.split_once(':').and_then(|(a, b)| Some([a.parse().ok()?, b.parse().ok()?]));
    numbers.unwrap_or_else(|| panic!("KRYLITH_STRESS={text}: expected FIRST:COUNT, such as {usual}"))
}

fn number(name: &str, usual: f64) -> f64 {
    let Ok(text) = std::env::var(name) else { return usual };
    text.parse().unwrap_or_else(|_| panic!("{name}={text}: expected a number"))
}
