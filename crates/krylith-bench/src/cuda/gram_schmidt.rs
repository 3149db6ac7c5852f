//! Gram–Schmidt by simple kernels whose coefficients stay on the device: the strongest baselines that a user
//! of vendor libraries would write.

use super::kernels::{self, Arg, Kernel, Module, Source};
use super::vendor::Vendor;
use cudarc::nvrtc::Ptx;
use krylith_core::device::cuda::Buffer;
use krylith_core::{Error, Result};
use std::rc::Rc;

/// Threads per block, as in `gram_schmidt.cu`.
const DOT_THREADS: usize = 512;
const PASS_THREADS: usize = 256;
/// Blocks per multiprocessor of `axpy_dot`.
const DOT_RESIDENT: usize = 2;
/// Columns that a pass can hold, and its blocks per multiprocessor, which its registers limit.
const WIDTHS: [(usize, usize); 4] = [(4, 5), (8, 4), (16, 2), (32, 1)];

const SOURCE: Source = ("gram_schmidt.cu", include_str!("gram_schmidt.cu"));

/// Returns the PTX of the kernels for each number of columns, for an architecture such as (9, 0).
///
/// # Errors
/// Returns an error if NVRTC is missing, or with the compiler's messages.
pub fn compile_for(arch: (i32, i32)) -> Result<Vec<Ptx>> {
    WIDTHS.iter().map(|width| kernels::compile(SOURCE, &macros(*width), arch)).collect()
}

fn macros((columns, resident): (usize, usize)) -> [(&'static str, usize); 2] {
    [("COLUMNS", columns), ("RESIDENT", resident)]
}

/// One kernel of modified Gram–Schmidt: the column that is subtracted from w, and the column of the next dot
/// product. Without the latter the kernel computes w·w.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AxpyDot {
    last: Option<usize>,
    next: Option<usize>,
}

/// Returns the kernels of modified Gram–Schmidt against a number of columns; kernel k makes sum k.
fn mgs(columns: usize) -> impl Iterator<Item = AxpyDot> {
    (0..=columns).map(move |k| AxpyDot { last: k.checked_sub(1), next: (k < columns).then_some(k) })
}

/// A pass over all columns: it subtracts V times the coefficients of sum `from`, if there are any, and then
/// computes Vᵀw, or w·w.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pass {
    from: Option<usize>,
    project: bool,
    to: usize,
}

/// Returns the passes of twice classical Gram–Schmidt, by the indices of their sums.
fn cgs2(columns: usize) -> [Pass; 3] {
    [
        Pass { from: None, project: true, to: 0 },
        Pass { from: Some(0), project: true, to: columns },
        Pass { from: Some(columns), project: false, to: 2 * columns },
    ]
}

/// The kernels on one device. The sums are at a device address that each call gives; `reduce` adds those of
/// other ranks, by address and count.
pub(super) struct GramSchmidt {
    dot: Kernel,
    passes: Vec<(usize, usize, Kernel)>,
    scale: Kernel,
    partial: Buffer<f64>,
    arrived: Buffer<u32>,
    processors: usize,
}

impl GramSchmidt {
    /// Loads the kernels.
    ///
    /// # Errors
    /// Returns an error if NVRTC is missing, or if the device refuses the kernels.
    pub fn new(vendor: &Rc<Vendor>) -> Result<Self> {
        let load = |width| Module::load(vendor, SOURCE, &macros(width));
        let pass = |(columns, resident)| -> Result<_> {
            let kernel = load((columns, resident))?.kernel("gram_schmidt_pass", PASS_THREADS, 0)?;
            Ok((columns, resident, kernel))
        };
        let (module, processors) = (load(WIDTHS[0])?, vendor.device.multiprocessors());
        let most = WIDTHS.iter().map(|(columns, resident)| columns * resident).max().unwrap_or(1);
        Ok(Self {
            dot: module.kernel("axpy_dot", DOT_THREADS, 0)?,
            passes: WIDTHS.into_iter().map(pass).collect::<Result<_>>()?,
            scale: module.kernel("normalize", 256, 0)?,
            partial: vendor.zeros(processors * most.max(DOT_RESIDENT))?,
            arrived: vendor.device.zeros(1, "a counter of blocks")?,
            processors,
        })
    }

    /// Makes w orthonormal to `columns` columns by modified Gram–Schmidt with one kernel per column. Sum k is
    /// coefficient k, and the last is w·w.
    pub fn mgs(
        &self,
        (n, columns): (usize, usize),
        (v, w, sums): (u64, u64, u64),
        reduce: impl Fn(u64, usize) -> Result<()>,
    ) -> Result<()> {
        let [partial, arrived] = self.scratch();
        let blocks = n.div_ceil(DOT_THREADS).clamp(1, DOT_RESIDENT * self.processors);
        let column = |k: Option<usize>| Arg::Pointer(k.map_or(0, |k| v + 8 * (k * n) as u64));
        for (k, AxpyDot { last, next }) in mgs(columns).enumerate() {
            let sum = |k: usize| sums + 8 * k as u64;
            let h = Arg::Pointer(sum(last.unwrap_or(0)));
            let (last, next, out) = (column(last), column(next), Arg::Pointer(sum(k)));
            let args = [Arg::Long(n as i64), last, h, next, Arg::Pointer(w), partial, arrived, out];
            self.dot.launch(blocks, &args)?;
            reduce(sum(k), 1)?;
        }
        self.normalize(n, sums + 8 * columns as u64, w)
    }

    /// Makes w orthonormal to `columns` columns by twice classical Gram–Schmidt in three passes over V. The
    /// first 2·`columns` sums are the coefficients of both times, and the last is w·w.
    ///
    /// # Errors
    /// Returns an error if no kernel holds as many columns.
    pub fn cgs2(
        &self,
        (n, columns): (usize, usize),
        (v, w, sums): (u64, u64, u64),
        reduce: impl Fn(u64, usize) -> Result<()>,
    ) -> Result<()> {
        let Some((_, resident, kernel)) = self.passes.iter().find(|(width, ..)| columns <= *width) else {
            return Err(Error::Unsupported(format!(
                "the baseline's Gram–Schmidt kernel holds {} columns, not {columns}; use a shorter restart",
                WIDTHS[WIDTHS.len() - 1].0
            )));
        };
        let [partial, arrived] = self.scratch();
        let blocks = n.div_ceil(PASS_THREADS).clamp(1, resident * self.processors);
        let sum = |at: usize| sums + 8 * at as u64;
        for Pass { from, project, to } in cgs2(columns) {
            let args = [
                Arg::Long(n as i64),
                Arg::Int(columns as i32),
                Arg::Pointer(v),
                Arg::Pointer(from.map_or(0, sum)),
                Arg::Int(project.into()),
                Arg::Pointer(w),
                partial,
                arrived,
                Arg::Pointer(sum(to)),
            ];
            kernel.launch(blocks, &args)?;
            reduce(sum(to), if project { columns } else { 1 })?;
        }
        self.normalize(n, sum(2 * columns), w)
    }

    /// Divides w by the root of the number at `square`.
    pub fn normalize(&self, n: usize, square: u64, w: u64) -> Result<()> {
        self.scale.launch_for(n, &[Arg::Long(n as i64), Arg::Pointer(square), Arg::Pointer(w)])
    }

    fn scratch(&self) -> [Arg; 2] {
        [self.partial.pointer(), self.arrived.pointer()].map(Arg::Pointer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::Random;

    fn dot(x: &[f64], y: &[f64]) -> f64 {
        x.iter().zip(y).map(|(x, y)| x * y).sum()
    }

    fn subtract(c: f64, v: &[f64], w: &mut [f64]) {
        w.iter_mut().zip(v).for_each(|(w, v)| *w -= c * v);
    }

    /// An orthonormal basis by the textbook, twice, and a further vector.
    fn basis(n: usize, columns: usize) -> (Vec<Vec<f64>>, Vec<f64>) {
        let (mut random, mut v) = (Random(5), Vec::<Vec<f64>>::new());
        for _ in 0..columns {
            let mut w = random.numbers(n);
            for _ in 0..2 {
                v.iter().for_each(|v| subtract(dot(v, &w), v, &mut w));
            }
            let norm = dot(&w, &w).sqrt();
            w.iter_mut().for_each(|w| *w /= norm);
            v.push(w);
        }
        (v, random.numbers(n))
    }

    /// The passes, on the host, give the textbook's coefficients and vector.
    #[test]
    fn the_passes_are_the_textbook_s_gram_schmidt() {
        for (n, columns) in [(1, 0), (2, 1), (31, 2), (33, 5), (100, 30)] {
            let (v, start) = basis(n, columns);
            let mut textbook = start.clone();
            let mut h = Vec::new();
            for v in &v {
                h.push(dot(v, &textbook));
                subtract(h[h.len() - 1], v, &mut textbook);
            }
            h.push(dot(&textbook, &textbook));

            let (mut w, mut sums) = (start.clone(), vec![f64::NAN; columns + 1]);
            for (k, AxpyDot { last, next }) in mgs(columns).enumerate() {
                if let Some(last) = last {
                    subtract(sums[last], &v[last], &mut w);
                }
                sums[k] = next.map_or_else(|| dot(&w, &w), |next| dot(&v[next], &w));
            }
            assert_eq!((&w, &sums), (&textbook, &h), "MGS, n = {n}, {columns} columns");

            let (mut w, mut sums) = (start, vec![f64::NAN; 2 * columns + 1]);
            for Pass { from, project, to } in cgs2(columns) {
                if let Some(from) = from {
                    (0..columns).for_each(|k| subtract(sums[from + k], &v[k], &mut w));
                }
                match project {
                    true => (0..columns).for_each(|k| sums[to + k] = dot(&v[k], &w)),
                    false => sums[to] = dot(&w, &w),
                }
            }
            let worst = w.iter().zip(&textbook).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            let total = |k: usize| sums[k] + sums[columns + k];
            let wrong = (0..columns).map(|k| (total(k) - h[k]).abs()).fold(worst, f64::max);
            assert!(wrong < 1e-13, "CGS2, n = {n}, {columns} columns: {wrong:e}");
            assert!((sums[2 * columns] - h[columns]).abs() < 1e-13, "n = {n}, {columns} columns");
        }
    }
}
