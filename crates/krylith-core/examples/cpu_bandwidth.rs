//! Share of the memory bandwidth that products and basis operations reach on the CPU.
//!
//! `cargo run --release --example cpu_bandwidth [GB] [threads] [product|basis|all] [repetitions] [first b]`:
//! measures the triad (streaming stores, 24 bytes per element) over arrays of GB in all. It then measures
//! products with rows of a 15-point tetrahedral stencil with a minimum traffic of about GB, and the basis
//! operations of GMRES. Each figure is the best of several repetitions, with the triad repeated for
//! comparison; on a busy machine run it again.

use krylith_core::Precision;
use krylith_core::device::cpu::Cpu;
use krylith_core::matrix::{Bsr, Dense};
use krylith_core::method::gmres::{Arrays, delayed_step};
use krylith_core::operator::{LinearOperator, PointBlock, Terms};
use krylith_core::space::{BATCH, FLAGS, LIMIT, Schedule, Space};
use std::borrow::Cow;
use std::time::Instant;

const OFFSETS: [[i64; 3]; 15] = [
    [0, 0, 0],
    [1, 0, 0],
    [-1, 0, 0],
    [0, 1, 0],
    [0, -1, 0],
    [0, 0, 1],
    [0, 0, -1],
    [1, 1, 0],
    [-1, -1, 0],
    [1, 0, 1],
    [-1, 0, -1],
    [0, 1, 1],
    [0, -1, -1],
    [1, 1, 1],
    [-1, -1, -1],
];

/// Seconds of the fastest of `n` runs of each, in turn.
fn best_of_both(n: usize, mut one: impl FnMut(), mut other: impl FnMut()) -> (f64, f64) {
    let both = (0..n).map(|_| (best(0, &mut one), best(0, &mut other)));
    both.fold((f64::INFINITY, f64::INFINITY), |a, b| (a.0.min(b.0), a.1.min(b.1)))
}

/// Seconds of the fastest of `n` runs, after one that does not count; of one run where `n` is 0.
fn best(n: usize, mut run: impl FnMut()) -> f64 {
    let time = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    };
    if n == 0 {
        return time(&mut run);
    }
    run();
    (0..n).map(|_| time(&mut run)).fold(f64::INFINITY, f64::min)
}

/// a = b + 3c with stores that bypass the caches where there are such.
fn triad(a: &mut [f64], b: &[f64], c: &[f64]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        let head = a.as_ptr().align_offset(16).min(a.len());
        (0..head).for_each(|i| a[i] = b[i] + 3.0 * c[i]);
        let pairs = (a.len() - head) / 2;
        for p in 0..pairs {
            let i = head + 2 * p;
            // SAFETY: i + 1 is in bounds of all three slices, and a[i] is aligned to 16 bytes.
            unsafe {
                let (b, c) = (_mm_loadu_pd(b.as_ptr().add(i)), _mm_loadu_pd(c.as_ptr().add(i)));
                _mm_stream_pd(a.as_mut_ptr().add(i), _mm_add_pd(b, _mm_mul_pd(_mm_set1_pd(3.0), c)));
            }
        }
        (head + 2 * pairs..a.len()).for_each(|i| a[i] = b[i] + 3.0 * c[i]);
        // SAFETY: no operands.
        unsafe { _mm_sfence() };
    }
    #[cfg(not(target_arch = "x86_64"))]
    a.iter_mut().zip(b.iter().zip(c)).for_each(|(a, (b, c))| *a = b + 3.0 * c);
}

struct Triad([Vec<f64>; 3], usize);

impl Triad {
    fn new(bytes: f64, threads: usize) -> Self {
        let n = (bytes / 24.0) as usize;
        Self([vec![0.0; n], vec![1.0; n], vec![2.0; n]], threads)
    }
    /// Bytes a second.
    fn measure(&mut self, repetitions: usize) -> f64 {
        self.bytes() / best(repetitions, || self.run())
    }
    fn bytes(&self) -> f64 {
        24.0 * self.0[0].len() as f64
    }
    fn run(&mut self) {
        let [a, b, c] = &mut self.0;
        let n = a.len();
        let part = n.div_ceil(self.1);
        std::thread::scope(|s| {
            for (a, (b, c)) in a.chunks_mut(part).zip(b.chunks(part).zip(c.chunks(part))) {
                s.spawn(move || triad(a, b, c));
            }
        });
    }
}

/// `n` block rows of the stencil on a grid of 100×100 columns, filled with numbers or with Stokes' structure.
fn stencil(b: usize, n: usize) -> Bsr {
    let (nx, ny) = (100i64, 100i64);
    let (mut row_ptr, mut col) = (vec![0], Vec::new());
    for i in 0..n as i64 {
        let begin = col.len();
        for [dx, dy, dz] in OFFSETS {
            let (x, y) = (i % nx + dx, i / nx % ny + dy);
            let j = i + dx + nx * (dy + ny * dz);
            if (0..nx).contains(&x) && (0..ny).contains(&y) && (0..n as i64).contains(&j) {
                col.push(j as u32);
            }
        }
        col[begin..].sort_unstable();
        row_ptr.push(col.len());
    }
    let mut values = vec![0.0; col.len() * b * b];
    for (p, block) in values.chunks_exact_mut(b * b).enumerate() {
        let number = |k: usize| ((p * 37 + k * 11) % 1000) as f64 * 1e-3 + 0.1;
        block.iter_mut().enumerate().for_each(|(k, v)| *v = number(k));
    }
    Bsr::new(b, n, n, row_ptr, col, values).unwrap()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let bytes: f64 = arguments.first().map_or(2.0, |a| a.parse::<f64>().unwrap()) * 1e9;
    let threads: usize = arguments.get(1).map_or(2, |a| a.parse().unwrap());
    let what = arguments.get(2).map_or("all", |a| a.as_str());
    let repetitions = arguments.get(3).map_or(10, |a| a.parse().unwrap());
    let first = arguments.get(4).map_or(1, |a| a.parse().unwrap());
    let mut triad = Triad::new(bytes.min(3e9), threads);
    let ceiling = triad.measure(repetitions);
    println!("triad: {:.2} GB/s on {threads} threads, {:.2} GB", ceiling / 1e9, bytes.min(3e9) / 1e9);

    let mut product = |name: &str, terms: &Terms, dense: bool| {
        let n = terms.rows();
        let space = Cpu::new(n, threads);
        let a = PointBlock::new(&space, terms, Precision::F64, dense).unwrap();
        let (x, mut y) = (vec![1.0; n], vec![0.0; n]);
        let (seconds, beside) =
            best_of_both(repetitions, || a.apply(&space, &x, &mut y).unwrap(), || triad.run());
        let ceiling = triad.bytes() / beside;
        let rate = LinearOperator::<Cpu>::bytes(&a) as f64 / seconds;
        println!(
            "{name}: {:7.2} ms  {:6.2} GB/s  {:3.0} % of {:5.2}",
            seconds * 1e3,
            rate / 1e9,
            100.0 * rate / ceiling,
            ceiling / 1e9
        );
    };
    if what == "all" || what == "product" {
        for b in first..=8 {
            let n = (bytes / (15 * b * b * 8 + 60 + 24 * b) as f64) as usize;
            let a = stencil(b, n);
            product(&format!("bsr b={b}      "), &Terms::bsr(&a), true);
        }
        for b in first..=8 {
            for s in 1..=4 {
                let n = (bytes / (30 * b * b * 8 + 60 + 24 * b * s) as f64) as usize;
                let (m, l) = (stencil(b, n), stencil(b, n));
                let mut c = Dense::identity(s);
                (0..s * s).for_each(|k| c[(k / s, k % s)] += 0.1 * k as f64);
                let terms = Terms::new(vec![(c.clone(), Cow::Owned(m)), (c, Cow::Owned(l))]).unwrap();
                product(&format!("kron b={b} s={s} "), &terms, true);
            }
        }
    }
    if what == "all" || what == "basis" {
        let m = 30;
        let n = (bytes / 8.0 / (m + 4) as f64) as usize;
        for precision in [Precision::F64, Precision::F32] {
            let (space, layout) = (Cpu::new(n, threads), Arrays::at(m));
            let mut v = space.basis(m, precision).unwrap();
            let mut scalars = space.scalars(layout.len).unwrap();
            let (mut w, z) = (vec![1.0; n], vec![0.5; n]);
            for j in [1, 8, 15, 29] {
                let width = precision.bytes();
                let seconds = best(repetitions, || {
                    space.project_pair(&v, j, &w, &z, &mut scalars, layout.dots).unwrap();
                });
                let rate = (n * (j * width + 16)) as f64 / seconds;
                println!(
                    "project {precision:?} j={j:2}: {:7.2} ms  {:3.0} %",
                    seconds * 1e3,
                    100.0 * rate / ceiling
                );
                let seconds = best(repetitions, || {
                    // Numbers that keep the step going: an orthogonal w of norm 1.
                    let mut sums = vec![0.0; layout.len];
                    (sums[layout.dots + 2 * j], sums[layout.dots + 2 * j + 2]) = (1.0, 2.0);
                    let mut flags = [0; FLAGS];
                    (flags[LIMIT], flags[BATCH]) = (100, m as i32);
                    space.write_scalars(&mut scalars, 0, &sums, &flags).unwrap();
                    let dots = layout.dots;
                    space.update_pair(&mut v, j, &mut w, &z, &mut scalars, dots, delayed_step).unwrap();
                });
                let rate = (n * (j * width + width + 24)) as f64 / seconds;
                println!(
                    "update  {precision:?} j={j:2}: {:7.2} ms  {:3.0} %",
                    seconds * 1e3,
                    100.0 * rate / ceiling
                );
            }
        }
    }
}
