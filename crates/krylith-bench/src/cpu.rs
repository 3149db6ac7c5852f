//! CPU baselines: the unfused product (s² axpys, then s BSR products, for each matrix) and GMRES with MGS
//! around it. They use the same thread team and the same choice of SIMD as Krylith.

use crate::platform::{Effort, OnHost, Order, Orthogonalizer, Platform, Product, STEPS};
use crate::systems::Random;
use crate::textbook::{Machine, Part, Times};
use crate::triad;
use krylith_core::Result;
use krylith_core::device::cpu::{Cpu, Pool};
use krylith_core::io::{from_stage_by_stage, to_stage_by_stage};
use krylith_core::matrix::{Bsr, KroneckerSum};
use krylith_core::operator::Terms;
use krylith_core::space::Clock;
use serde_json::{Value, json};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The CPU of this machine.
pub(crate) struct CpuPlatform {
    pub pool: Arc<Pool>,
}

impl CpuPlatform {
    pub fn new(threads: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        Self { pool: Arc::new(Pool::new(if threads == 0 { cores } else { threads })) }
    }
}

impl Platform for CpuPlatform {
    type Space = Cpu;
    fn space(&self, len: usize) -> Result<Cpu> {
        Ok(Cpu::with_pool(len, self.pool.clone()))
    }
    fn keep_time(&self, space: &Cpu, _: bool) {
        space.take_phases(); // a CPU always measures phases; discard earlier ones
    }
    fn time(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
        let begin = Instant::now();
        work()?;
        Ok(begin.elapsed().as_secs_f64())
    }
    fn bandwidth(&self) -> Result<(&'static str, f64)> {
        Ok(("triad", triad::bandwidth(&self.pool)))
    }
    fn peak(&self) -> Option<f64> {
        None
    }
    fn room(&self) -> Result<u64> {
        Ok(4 << 30)
    }
    fn cache(&self) -> u64 {
        0 // no matrix is smaller, so the suite spmv never empties the caches of a CPU
    }
    fn evict(&self) -> Result<()> {
        // Larger than the last-level cache of a server socket.
        std::hint::black_box(vec![1u8; 64 << 20].iter().map(|v| u64::from(*v)).sum::<u64>());
        Ok(())
    }
    fn products(&self, k: &KroneckerSum, sets: usize, _: Effort) -> Result<Vec<Product<'_>>> {
        let mut all: Vec<_> = (0..sets).map(|_| UnfusedProduct::new(&self.pool, k)).collect();
        let run = move |set: usize, x: &[f64], y: &mut [f64]| all[set].multiply(x, y);
        let on = OnHost::new(Order::Stages(k.stages()), k.rows(), sets, run);
        Ok(vec![Product { name: "unfused (axpy + BSR SpMV)".into(), notes: String::new(), on }])
    }
    fn orthogonalizers(&self, len: usize, columns: usize) -> Result<Vec<Box<dyn Orthogonalizer + '_>>> {
        Ok(vec![Box::new(Mgs::new(&self.pool, len, columns))])
    }
    fn machines(&self, k: &KroneckerSum, rhs: &[f64], restart: usize) -> Result<Vec<Box<dyn Machine + '_>>> {
        Ok(vec![Box::new(CpuMachine::new(&self.pool, k, rhs, restart))])
    }
    fn used(&self) -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib * 1024)
    }
    fn describe(&self) -> Value {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let line = text.lines().find(|l| l.starts_with("model name"));
        let model = line.and_then(|l| l.split(": ").nth(1)).unwrap_or("unknown");
        json!({ "kind": "cpu", "name": model, "threads": self.pool.threads() })
    }
    fn structures(&self) -> bool {
        false
    }
    fn records(&self) -> bool {
        false
    }
}

/// Runs `f(range, part)` once on every thread. `bounds` splits `out` into one range per thread; `part` is
/// the slice of `out` in this range.
pub(crate) fn parts(
    pool: &Pool,
    bounds: &[usize],
    out: &mut [f64],
    f: impl Fn(Range<usize>, &mut [f64]) + Sync,
) {
    let mut slots = Vec::with_capacity(bounds.len());
    let mut rest = out;
    for pair in bounds.windows(2) {
        let (part, tail) = rest.split_at_mut(pair[1] - pair[0]);
        slots.push(Mutex::new(part));
        rest = tail;
    }
    pool.run(pool.threads(), |rank| {
        let mut part = slots[rank].lock().unwrap_or_else(|e| e.into_inner());
        f(bounds[rank]..bounds[rank + 1], &mut part);
    });
}

/// Splits `0..n` into equal parts, one per thread.
pub(crate) fn equal(pool: &Pool, n: usize) -> Vec<usize> {
    (0..=pool.threads()).map(|rank| n * rank / pool.threads()).collect()
}

/// y += a x.
fn axpy(pool: &Pool, a: f64, x: &[f64], y: &mut [f64]) {
    let bounds = equal(pool, y.len());
    parts(pool, &bounds, y, |range, y| {
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || y.iter_mut().zip(&x[range.clone()]).for_each(|(y, x)| *y += a * x),
        );
    });
}

/// xᵀy.
fn dot(pool: &Pool, x: &[f64], y: &[f64]) -> f64 {
    let bounds = equal(pool, x.len());
    let sums: Vec<AtomicU64> = (0..pool.threads()).map(|_| AtomicU64::new(0)).collect();
    pool.run(pool.threads(), |rank| {
        let range = bounds[rank]..bounds[rank + 1];
        let (x, y) = (&x[range.clone()], &y[range]);
        let sum = pulp::Arch::new().dispatch(
            #[inline(always)]
            || {
                let mut lanes = [0.0f64; 16];
                let (xs, ys) = (x.chunks_exact(16), y.chunks_exact(16));
                let rest: f64 = xs.remainder().iter().zip(ys.remainder()).map(|(x, y)| x * y).sum();
                for (x, y) in xs.zip(ys) {
                    for l in 0..16 {
                        lanes[l] += x[l] * y[l];
                    }
                }
                lanes.iter().sum::<f64>() + rest
            },
        );
        sums[rank].store(sum.to_bits(), Ordering::Relaxed);
    });
    sums.iter().map(|s| f64::from_bits(s.load(Ordering::Relaxed))).sum()
}

fn scale(pool: &Pool, a: f64, y: &mut [f64]) {
    let bounds = equal(pool, y.len());
    parts(pool, &bounds, y, |_, y| y.iter_mut().for_each(|y| *y *= a));
}

/// One pass of modified Gram–Schmidt and normalisation of `w`.
fn mgs(pool: &Pool, v: &[Vec<f64>], w: &mut [f64], h: &mut [f64]) {
    for (v, h) in v.iter().zip(h.iter_mut()) {
        *h = dot(pool, v, w);
        axpy(pool, -*h, v, w);
    }
    let norm = dot(pool, w, w).sqrt();
    h[v.len()] = norm;
    scale(pool, 1.0 / norm, w);
}

/// A matrix and the distribution of its rows over threads.
struct Matrix {
    bsr: Bsr,
    bounds: Vec<usize>,
}

impl Matrix {
    fn new(pool: &Pool, bsr: &Bsr) -> Self {
        let (rows, ptr) = (bsr.block_rows(), bsr.row_ptr());
        let cut = |rank: usize| ptr.partition_point(|&p| p < bsr.blocks() * rank / pool.threads()).min(rows);
        let mut bounds: Vec<usize> = (0..pool.threads()).map(cut).collect();
        bounds[0] = 0;
        bounds.push(rows);
        Self { bsr: bsr.clone(), bounds: bounds.iter().map(|r| r * bsr.block()).collect() }
    }

    /// y = A x, or y += A x.
    fn multiply(&self, pool: &Pool, x: &[f64], y: &mut [f64], add: bool) {
        macro_rules! choose {
            ($($b:literal)*) => { match self.bsr.block() { $($b => rows::<$b>,)* _ => rows_any } };
        }
        let f: fn(&Bsr, Range<usize>, &[f64], &mut [f64], bool) = choose!(1 2 3 4 5 6 7 8);
        parts(pool, &self.bounds, y, |range, y| f(&self.bsr, range, x, y, add));
    }
}

fn rows<const B: usize>(a: &Bsr, range: Range<usize>, x: &[f64], y: &mut [f64], add: bool) {
    pulp::Arch::new().dispatch(
        #[inline(always)]
        || {
            for (i, y) in (range.start / B..).zip(y.chunks_exact_mut(B)) {
                let mut wide = [[0.0f64; B]; B];
                let blocks = a.row_ptr()[i]..a.row_ptr()[i + 1];
                let values = a.values()[blocks.start * B * B..blocks.end * B * B].chunks_exact(B * B);
                for (&j, v) in a.col()[blocks].iter().zip(values) {
                    let x = &x[j as usize * B..][..B];
                    for r in 0..B {
                        for c in 0..B {
                            wide[r][c] += v[r * B + c] * x[c];
                        }
                    }
                }
                for r in 0..B {
                    let sum: f64 = wide[r].iter().sum();
                    y[r] = if add { y[r] + sum } else { sum };
                }
            }
        },
    )
}

fn rows_any(a: &Bsr, range: Range<usize>, x: &[f64], y: &mut [f64], add: bool) {
    let b = a.block();
    for (i, y) in (range.start / b..).zip(y.chunks_exact_mut(b)) {
        for r in 0..b {
            let mut sum = if add { y[r] } else { 0.0 };
            for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                let x = &x[a.col()[p] as usize * b..][..b];
                sum += a.block_values(p)[r * b..][..b].iter().zip(x).map(|(a, x)| a * x).sum::<f64>();
            }
            y[r] = sum;
        }
    }
}

/// The matrices and the intermediate vector of an unfused product, stage by stage.
struct UnfusedProduct<'a> {
    pool: &'a Pool,
    matrices: [Matrix; 2],
    coefficients: [Vec<f64>; 2],
    stages: usize,
    middle: Vec<f64>,
}

impl<'a> UnfusedProduct<'a> {
    fn new(pool: &'a Pool, k: &KroneckerSum) -> Self {
        let terms = Terms::kronecker(k);
        let coefficients = [0, 1].map(|t: usize| terms.terms()[t].0.values().to_vec());
        let matrices = [&k.m, &k.l].map(|m| Matrix::new(pool, m));
        Self { pool, matrices, coefficients, stages: k.stages(), middle: vec![0.0; k.rows()] }
    }

    fn multiply(&mut self, x: &[f64], y: &mut [f64]) {
        let (s, n) = (self.stages, x.len() / self.stages);
        for (t, matrix) in self.matrices.iter().enumerate() {
            for (i, middle) in self.middle.chunks_exact_mut(n).enumerate() {
                // The first axpy starts from zero, as the OKP paper does with memset.
                middle.fill(0.0);
                for (j, x) in x.chunks_exact(n).enumerate() {
                    axpy(self.pool, self.coefficients[t][i * s + j], x, middle);
                }
            }
            for (x, y) in self.middle.chunks_exact(n).zip(y.chunks_exact_mut(n)) {
                matrix.multiply(self.pool, x, y, t > 0);
            }
        }
    }
}

struct Mgs<'a> {
    pool: &'a Pool,
    v: Vec<Vec<f64>>,
    fresh: Vec<Vec<f64>>,
    w: Vec<Vec<f64>>,
    h: Vec<f64>,
}

impl<'a> Mgs<'a> {
    fn new(pool: &'a Pool, len: usize, columns: usize) -> Self {
        let mut random = Random(77);
        let mut h = vec![0.0; columns + 1];
        let mut v: Vec<Vec<f64>> = Vec::new();
        for _ in 0..columns {
            let mut w = random.numbers(len);
            mgs(pool, &v, &mut w, &mut h);
            v.push(w);
        }
        let fresh: Vec<Vec<f64>> = (0..STEPS).map(|_| random.numbers(len)).collect();
        Self { pool, v, w: fresh.clone(), fresh, h }
    }
}

impl Orthogonalizer for Mgs<'_> {
    fn name(&self) -> String {
        "MGS (dot + axpy)".into()
    }
    fn traffic(&self) -> Option<u64> {
        // Per column a dot and an axpy; then norm and scaling.
        Some(8 * (self.fresh[0].len() * (5 * self.v.len() + 3)) as u64)
    }
    fn refresh(&mut self) -> Result<()> {
        self.w.clone_from(&self.fresh);
        Ok(())
    }
    fn run(&mut self) -> Result<()> {
        for w in &mut self.w {
            mgs(self.pool, &self.v, w, &mut self.h);
        }
        Ok(())
    }
    fn defect(&mut self) -> Result<f64> {
        let w = self.w.last().expect("there are steps");
        let cross: f64 = self.v.iter().map(|v| dot(self.pool, v, w).powi(2)).sum();
        Ok((cross + (1.0 - dot(self.pool, w, w)).powi(2)).sqrt())
    }
    fn tolerance(&self) -> f64 {
        1e-11
    }
}

/// GMRES with MGS around the unfused product.
struct CpuMachine<'a> {
    product: UnfusedProduct<'a>,
    b: Vec<f64>,
    x: Vec<f64>,
    v: Vec<Vec<f64>>,
    clock: (Part, Option<Instant>),
    times: Times,
    timing: bool,
}

impl<'a> CpuMachine<'a> {
    fn new(pool: &'a Pool, k: &KroneckerSum, rhs: &[f64], restart: usize) -> Self {
        let product = UnfusedProduct::new(pool, k);
        let b = to_stage_by_stage(rhs, k.stages());
        let (x, v) = (vec![0.0; b.len()], vec![vec![0.0; b.len()]; restart + 1]);
        Self { product, b, x, v, clock: (Part::Other, None), times: Times::default(), timing: false }
    }
}

impl Machine for CpuMachine<'_> {
    fn name(&self) -> String {
        "unfused product, MGS".into()
    }
    fn reset(&mut self) -> Result<()> {
        self.x.fill(0.0);
        Ok(())
    }
    fn start(&mut self) -> Result<f64> {
        self.mark(Part::Product);
        let v = &mut self.v[0];
        self.product.multiply(&self.x, v);
        self.mark(Part::Other);
        let (pool, v) = (self.product.pool, &mut self.v[0]);
        scale(pool, -1.0, v);
        axpy(pool, 1.0, &self.b, v);
        let beta = dot(pool, v, v).sqrt();
        scale(pool, 1.0 / beta, v);
        Ok(beta)
    }
    fn product(&mut self, j: usize) -> Result<()> {
        self.mark(Part::Product);
        let (x, y) = self.v.split_at_mut(j + 1);
        self.product.multiply(&x[j], &mut y[0]);
        Ok(())
    }
    fn orthogonalize(&mut self, j: usize, h: &mut [f64]) -> Result<()> {
        let (v, w) = self.v.split_at_mut(j + 1);
        mgs(self.product.pool, v, &mut w[0], h);
        Ok(())
    }
    fn correct(&mut self, y: &[f64]) -> Result<()> {
        for (y, v) in y.iter().zip(&self.v) {
            axpy(self.product.pool, *y, v, &mut self.x);
        }
        Ok(())
    }
    fn mark(&mut self, part: Part) {
        let now = Instant::now();
        if let (true, (before, Some(since))) = (self.timing, self.clock) {
            self.times.add(before, (now - since).as_secs_f64());
        }
        self.clock = (part, Some(now));
    }
    fn keep_time(&mut self, on: bool) {
        (self.timing, self.times, self.clock) = (on, Times::default(), (Part::Other, None));
    }
    fn take_times(&mut self) -> Result<Times> {
        self.mark(Part::Other);
        Ok(std::mem::take(&mut self.times))
    }
    fn solution(&mut self) -> Result<Vec<f64>> {
        Ok(from_stage_by_stage(&self.x, self.product.stages))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems;
    use krylith_core::Precision;
    use krylith_core::operator::{LinearOperator, PointBlock};
    use krylith_core::space::Space;

    #[test]
    fn the_unfused_product_is_the_library_s() {
        for (threads, b, s) in [(1, 1, 1), (2, 4, 2), (3, 3, 4), (2, 5, 3), (2, 8, 2), (5, 9, 2)] {
            let k = systems::random([5, 4, 4], b, s, 7).unwrap();
            let platform = CpuPlatform::new(threads);
            let x = Random(5).numbers(k.rows());
            let mut baseline = platform.products(&k, 2, Effort::First).unwrap().remove(0).on;
            baseline.write(&x).unwrap();
            baseline.poison(1).unwrap();
            baseline.run(1).unwrap();
            let ours = baseline.read(1).unwrap();
            systems::check("unfused", &k, Precision::F64, &x, &ours).unwrap();

            let space = platform.space(k.rows()).unwrap();
            let operator = PointBlock::kronecker(&space, &k, Precision::F64).unwrap();
            let mut y = space.vector().unwrap();
            operator.apply(&space, &x, &mut y).unwrap();
            let worst = y.iter().zip(&ours).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(worst < 1e-13, "b={b} s={s}: {worst:e}");
        }
    }

    #[test]
    fn textbook_gmres_solves() {
        let made = krylith_problems::generate("random:200,block=3,stages=2").unwrap();
        let krylith_problems::SystemKind::Kronecker(k) = made.system else { panic!("no stages") };
        let platform = CpuPlatform::new(2);
        let mut machine = platform.machines(&k, &made.rhs, 10).unwrap().remove(0);
        let residuals = crate::textbook::gmres(machine.as_mut(), 10, 45).unwrap();
        assert_eq!(residuals.len(), 46);
        assert!(residuals.windows(2).all(|w| w[1] <= w[0] * (1.0 + 1e-6) + 1e-14), "{residuals:?}");
        assert!(residuals[45] < 1e-6 * residuals[0], "{residuals:?}");
    }
}
