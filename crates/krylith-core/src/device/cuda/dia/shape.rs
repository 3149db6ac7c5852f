//! The kernels by diagonals and their specialisations.

use super::super::compiler::{Defines, Kernel};
use super::super::launch::{Address, At, Entry, Of, Reals, Set, kernels};
use super::super::smooth::Smooth;
use super::super::specialisations::{apart, define, result, value, vectors};
use super::detect::Ghosts;
use super::{Columns, MOST_DIAGONALS, Sums};
use crate::space::{MOST_COLUMNS, Precision};

/// Distances of diagonals from the main diagonal; only the first ones are used.
type Offsets = [i32; MOST_DIAGONALS];

kernels! {
    DIA in "dia.cu", all_kernels;
    fn dia_product | "dia_march" | "dia_product_xy" | "dia_product_xxxy" | "dia_march_xy" | "dia_march_xxxy" (
        halt: At<i32>, rows: u32, count: i32, offsets: Offsets, values: Reals, stride: i64, x: At<f64>,
        y: At<f64>, coefficient: At<f64>, items: i32, steps: i32, to: Sums, exchange: Address,
    );
    fn dia_smooth = "dia_product" | "dia_march" (
        halt: At<i32>, rows: u32, count: i32, offsets: Offsets, values: Reals, stride: i64, x: At<f64>,
        y: At<f64>, coefficient: At<f64>, items: i32, steps: i32, to: Sums, exchange: Address, of: Smooth,
    );
    fn dia_columns(
        halt: At<i32>, rows: u32, count: i32, offsets: Offsets, values: Reals, stride: i64, on: Columns,
        width: i32, coefficient: At<f64>,
    );
    fn dia_ghosts | "dia_ghosts_xy" | "dia_ghosts_xxxy" (
        halt: At<i32>, on: Ghosts, ghosts: At<f64>, x: At<f64>, y: At<f64>, coefficient: At<f64>, to: Sums,
        exchange: Address, smooths: i32, of: Smooth,
    );
    fn dia_residual(
        halt: At<i32>, rows: u32, count: i32, offsets: Offsets, values: Reals, stride: i64, x: At<f64>,
        b: At<f64>, r: At<f64>, m: At<f64>, coefficient: At<f64>, on: Ghosts, ghosts: At<f64>,
        exchange: Address,
    );
    fn dia_pack(
        rows: u32, count: i32, row_ptr: At<i64>, masks: At<u32>, natural: At<f64>, values: Reals,
        stride: i64, broken: At<i32>,
    );
    fn dia_mirror(
        rows: u32, count: i32, offsets: Offsets, row_ptr: At<i64>, masks: At<u32>, natural: At<f64>,
        values: Reals, stride: i64, broken: At<i32>,
    );
    fn dia_pack_ghosts(
        count: i32, ghost_rows: At<i32>, starts: At<i32>, row_ptr: At<i64>, natural: At<f64>,
        values: Reals, broken: At<i32>,
    );
}

kernels! {
    DIA_PAIRS in "dia_pairs.cu", |set| {
        let smooth = shapes(set).into_iter().filter(|s| s.smooths() && s.precision == Precision::F64);
        let short = set.choose([false, true], [false]);
        smooth.flat_map(|shape| short.iter().flat_map(move |&short| in_pairs(&shape, short))).collect()
    };
    fn dia_pairs | "dia_pairs_march" (
        halt: At<i32>, rows: u32, offsets: Offsets, values: Reals, stride: i64, x: At<f64>, y: At<f64>,
        coefficient: At<f64>, items: i32, steps: i32, of: Smooth,
    );
}

kernels! {
    DIA_DETECT in "dia_detect.cu", |_| vec![dia_detect(dia_offsets).into()];
    fn dia_offsets(
        rows: u32, own: u32, row_ptr: At<i64>, col: At<u32>, found: At<i32>, many: At<i32>,
        entries: At<u64>,
    );
    fn dia_masks(
        rows: u32, own: u32, row_ptr: At<i64>, col: At<u32>, offsets: Offsets, masks: At<u32>,
        ghosts: At<u64>,
    );
    fn dia_ghost_rows(
        rows: u32, own: u32, row_ptr: At<i64>, col: At<u32>, masks: At<u32>, before: At<u64>,
        ghost_rows: At<i32>, starts: At<i32>, columns: At<i32>,
    );
}

/// Mapping of products by diagonals: constants of `kernels/dia.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::device::cuda) struct DiaShape {
    /// Largest number of diagonals that are stored.
    most: usize,
    /// True if exactly that many are stored.
    exact: bool,
    symmetric: bool,
    precision: Precision,
}

impl DiaShape {
    /// Threads per thread block.
    pub const THREADS: usize = 256;
    /// Numbers of diagonals that have their own kernels: those of stencils with 3, 5, 7, 9, 15, 19 and 27
    /// points. Other numbers use the next larger kernel.
    const FULL: [usize; 9] = [1, 3, 5, 7, 9, 15, 19, 27, 32];
    /// The same for a symmetric matrix, which stores the diagonals from the main one on.
    const HALF: [usize; 8] = [1, 2, 3, 4, 5, 8, 10, 14];

    /// Returns the mapping for a number of stored diagonals.
    pub fn choose(stored: usize, symmetric: bool, precision: Precision) -> Self {
        let all: &[usize] = if symmetric { &Self::HALF } else { &Self::FULL };
        // More than 27 diagonals, half of them stored, means at most 16.
        let most = all.iter().copied().find(|&most| most >= stored).unwrap_or(16);
        Self { most, exact: most == stored, symmetric, precision }
    }

    /// True if the loop is unrolled over exactly the stored diagonals.
    pub fn exact(&self) -> bool {
        self.exact
    }

    /// Thread blocks per multiprocessor, as far as the registers suffice: all loads of a row should be in
    /// flight at once.
    fn resident(&self) -> usize {
        match (self.symmetric, self.most) {
            _ if self.ahead() => 4,
            (true, ..=5) | (false, ..=9) => 5,
            (false, ..=15) => 4,
            _ => 3,
        }
    }

    /// True if a step of a march prefetches the numbers of the next one: for seven and nine points in f64,
    /// where the registers suffice.
    pub fn ahead(&self) -> bool {
        self.symmetric && matches!(self.most, 4 | 5) && self.precision == Precision::F64
    }

    /// True if smoother passes are fused with the product: for stencils of up to nine points. For larger
    /// ones the product dominates the time.
    pub fn smooths(&self) -> bool {
        self.exact && self.most <= if self.symmetric { 5 } else { 9 }
    }

    /// Returns every mapping once.
    fn all() -> Vec<Self> {
        let of = |symmetric: bool, precision: Precision| {
            (1..=if symmetric { 16 } else { 32 })
                .map(move |stored| Self::choose(stored, symmetric, precision))
        };
        let mut all: Vec<Self> = [Precision::F64, Precision::F32]
            .into_iter()
            .flat_map(|precision| of(false, precision).chain(of(true, precision)))
            .collect();
        all.dedup();
        all
    }
}

/// Returns the constants of `dia.cu`.
fn defines(shape: &DiaShape, resident: usize) -> Defines {
    vec![
        value(shape.precision),
        define("COUNT", shape.most),
        define("EXACT", shape.exact as u32),
        define("SYMMETRIC", shape.symmetric as u32),
        define("AHEAD", shape.ahead() as u32),
        define("THREADS", DiaShape::THREADS),
        define("CTAS", resident),
    ]
}

/// Returns a kernel of `dia.cu`.
pub(in crate::device::cuda) fn dia<K: Entry>(shape: &DiaShape, entry: K) -> Of<K> {
    entry.with(defines(shape, shape.resident()))
}

/// Returns one of the functions of `dia.cu` that share their arguments.
pub(in crate::device::cuda) fn dia_named<K: Entry>(shape: &DiaShape, entry: K, name: &'static str) -> Of<K> {
    entry.named(name, defines(shape, shape.resident()))
}

/// Returns a kernel of `dia.cu` that turns each number into a residual or a smoother step, which takes more
/// registers. With `from_zero` it makes the first two steps.
pub(in crate::device::cuda) fn dia_that_smooths(
    shape: &DiaShape,
    name: &'static str,
    from_zero: bool,
) -> Of<dia_smooth> {
    let mut defines = defines(shape, shape.resident() - 1);
    defines.push(define("SMOOTH", 1 + from_zero as u32));
    dia_smooth.named(name, defines)
}

/// Variants of the kernels for a matrix and vectors in f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::device::cuda) enum Narrow {
    /// A residual or a step.
    Any,
    /// The first two steps from zero.
    FromZero,
    /// A step whose result is in f64.
    ToF64,
}

/// The same for a matrix in f32, or in bf16 if `short`, and vectors in f32. Their numbers take half of the
/// registers.
pub(in crate::device::cuda) fn dia_that_smooths_f32(
    shape: &DiaShape,
    name: &'static str,
    variant: Narrow,
    short: bool,
) -> Of<dia_smooth> {
    let mut defines = narrow_defines(shape, variant, short, 5);
    defines.extend([
        define("EXACT", shape.exact as u32),
        define("AHEAD", u32::from(shape.symmetric && shape.most <= 5)),
    ]);
    dia_smooth.named(name, defines)
}

/// The same with two rows per thread, for a shape that [smooths](DiaShape::smooths).
pub(in crate::device::cuda) fn dia_in_pairs(
    shape: &DiaShape,
    name: &'static str,
    variant: Narrow,
    short: bool,
) -> Of<dia_pairs> {
    dia_pairs.named(name, narrow_defines(shape, variant, short, PAIRS_RESIDENT))
}

/// Thread blocks per multiprocessor with two rows per thread, as far as the registers suffice.
const PAIRS_RESIDENT: usize = 4;

fn narrow_defines(shape: &DiaShape, variant: Narrow, short: bool, resident: usize) -> Defines {
    let mut defines = if short { apart(2).to_vec() } else { vec![value(Precision::F32)] };
    defines.extend([
        define("COUNT", shape.most),
        define("SYMMETRIC", shape.symmetric as u32),
        define("THREADS", DiaShape::THREADS),
        define("CTAS", resident),
        define("SMOOTH", 1 + u32::from(variant == Narrow::FromZero)),
    ]);
    defines.extend(vectors(Precision::F32).into_iter().chain(result(variant == Narrow::ToF64)));
    defines
}

/// Returns the kernel of several vectors: of products, or of residuals and smoother steps, where `smooths` is
/// 1, or 2 for steps from zero.
pub(in crate::device::cuda) fn dia_of_columns(shape: &DiaShape, smooths: usize) -> Of<dia_columns> {
    let mut defines = defines(shape, 1);
    defines.extend([define("COLUMNS", 1), define("MOST_COLUMNS", MOST_COLUMNS)]);
    if smooths > 0 {
        defines.push(define("SMOOTH", smooths));
    }
    dia_columns.with(defines)
}

/// Returns a kernel of `dia_detect.cu`.
pub(in crate::device::cuda) fn dia_detect<K: Entry>(entry: K) -> Of<K> {
    entry.with(vec![define("THREADS", DiaShape::THREADS)])
}

/// Returns every kernel that a product can use, or those of seven-point grids. Of each compiled file it lists
/// one kernel, because a file is compiled as a whole.
fn all_kernels(set: Set) -> Vec<Kernel> {
    let shapes = shapes(set);
    let plain = shapes.iter().map(|shape| dia(shape, dia_product).into());
    // `all` also contains mappings that are not exact.
    let smooth = shapes.iter().filter(|shape| shape.smooths());
    let narrow = smooth.clone().filter(|shape| shape.precision == Precision::F64);
    let short = set.choose(narrow.clone().flat_map(|shape| narrowed(shape, true)), []);
    let narrow = narrow.flat_map(|shape| narrowed(shape, false)).chain(short);
    let columns = shapes.iter().flat_map(|shape| {
        let most = if shape.smooths() { 2 } else { 0 };
        (0..=most).map(|smooths| dia_of_columns(shape, smooths).into())
    });
    plain.chain(smooth.clone().flat_map(both_that_smooth)).chain(narrow).chain(columns).collect()
}

fn shapes(set: Set) -> Vec<DiaShape> {
    let seven = [DiaShape::choose(7, false, Precision::F64), DiaShape::choose(4, true, Precision::F64)];
    set.choose(DiaShape::all(), seven)
}

/// Returns the kernels with and without a step from zero.
fn both_that_smooth(shape: &DiaShape) -> [Kernel; 2] {
    [false, true].map(|from_zero| dia_that_smooths(shape, "dia_product", from_zero).into())
}

/// Returns the kernels in f32 of a matrix with this many entries in a full row, if it is stored by diagonals.
pub(crate) fn likely_in_f32(entries: usize) -> Vec<Kernel> {
    likely_narrowed(entries, false)
}

/// The same with the matrix in bf16.
pub(crate) fn likely_in_bf16(entries: usize) -> Vec<Kernel> {
    likely_narrowed(entries, true)
}

fn likely_narrowed(entries: usize, short: bool) -> Vec<Kernel> {
    let shape = DiaShape::choose(entries.clamp(1, 32) / 2 + 1, true, Precision::F64);
    match entries <= 32 && shape.smooths() {
        true => in_pairs(&shape, short).into(),
        false => Vec::new(),
    }
}

/// Returns one kernel of each variant with the matrix in f32, or in bf16 if `short`.
fn narrowed(shape: &DiaShape, short: bool) -> [Kernel; 3] {
    let all = [Narrow::Any, Narrow::FromZero, Narrow::ToF64];
    all.map(|variant| dia_that_smooths_f32(shape, "dia_product", variant, short).into())
}

/// The same with two rows per thread.
fn in_pairs(shape: &DiaShape, short: bool) -> [Kernel; 3] {
    let all = [Narrow::Any, Narrow::FromZero, Narrow::ToF64];
    all.map(|variant| dia_in_pairs(shape, "dia_pairs", variant, short).into())
}

/// Returns the smoothing kernels of a matrix with this many entries in a full row, if it is stored by
/// diagonals and such kernels exist.
pub(crate) fn likely_to_smooth(entries: usize, precision: Precision) -> Vec<Kernel> {
    let shape = DiaShape::choose(entries.clamp(1, 32) / 2 + 1, true, precision);
    if entries <= 32 && shape.smooths() { both_that_smooth(&shape).into() } else { Vec::new() }
}

/// Returns the kernels of a matrix with this many entries in a full row, if it is stored by diagonals.
pub(crate) fn likely(entries: usize, precision: Precision) -> Vec<Kernel> {
    if !(1..=32).contains(&entries) {
        return Vec::new();
    }
    let shape = DiaShape::choose(entries / 2 + 1, true, precision);
    vec![dia_detect(dia_offsets).into(), dia(&shape, dia_product).into()]
}
