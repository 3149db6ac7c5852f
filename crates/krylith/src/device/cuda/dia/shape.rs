//! Which kernels by diagonals there are.

use super::super::compiler::Kernel;
use super::super::specialisations::{define, value};
use crate::space::Store;

/// How products by diagonals are mapped: constants of `kernels/dia.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::device::cuda) struct DiaShape {
    /// Most diagonals that are stored.
    most: usize,
    /// There are as many.
    exact: bool,
    symmetric: bool,
    store: Store,
}

impl DiaShape {
    /// Threads a block of threads.
    pub const THREADS: usize = 256;
    /// Numbers of diagonals that have kernels of their own: those of stencils of 3, 5, 7, 9, 15, 19 and 27 points; others take the next.
    const FULL: [usize; 9] = [1, 3, 5, 7, 9, 15, 19, 27, 32];
    /// Of a symmetric matrix those from the main one on.
    const HALF: [usize; 8] = [1, 2, 3, 4, 5, 8, 10, 14];

    /// The mapping for as many stored diagonals.
    pub fn choose(stored: usize, symmetric: bool, store: Store) -> Self {
        let all: &[usize] = if symmetric { &Self::HALF } else { &Self::FULL };
        // More than 27 diagonals, half of them stored, are at most 16.
        let most = all.iter().copied().find(|&most| most >= stored).unwrap_or(16);
        Self { most, exact: most == stored, symmetric, store }
    }

    /// Unrolled over as many diagonals as there are.
    pub fn exact(&self) -> bool {
        self.exact
    }

    /// Blocks of threads a multiprocessor, as far as registers go: every load of a row should be under way at once.
    fn resident(&self) -> usize {
        match (self.symmetric, self.most) {
            _ if self.ahead() => 4,
            (true, ..=5) | (false, ..=9) => 5,
            (false, ..=15) => 4,
            _ => 3,
        }
    }

    /// A step of a march asks for the numbers of the next: of seven and nine points in f64, for which the registers are there.
    pub fn ahead(&self) -> bool {
        self.symmetric && matches!(self.most, 4 | 5) && self.store == Store::F64
    }

    /// True where passes of smoothers are fused with the product: of stencils of up to nine points. Of larger ones the product is most of the time.
    pub fn smooths(&self) -> bool {
        self.exact && self.most <= if self.symmetric { 5 } else { 9 }
    }

    /// Every one, once.
    fn all() -> Vec<Self> {
        let of = |symmetric: bool, store: Store| {
            (1..=if symmetric { 16 } else { 32 }).map(move |stored| Self::choose(stored, symmetric, store))
        };
        let mut all: Vec<Self> = [Store::F64, Store::F32]
            .into_iter()
            .flat_map(|store| of(false, store).chain(of(true, store)))
            .collect();
        all.dedup();
        all
    }
}

/// A kernel of `dia.cu`.
pub(in crate::device::cuda) fn dia(shape: &DiaShape, entry: &'static str) -> Kernel {
    let defines = vec![
        value(shape.store),
        define("COUNT", shape.most),
        define("EXACT", shape.exact as u32),
        define("SYMMETRIC", shape.symmetric as u32),
        define("AHEAD", shape.ahead() as u32),
        define("THREADS", DiaShape::THREADS),
        define("CTAS", shape.resident()),
    ];
    Kernel { file: "dia.cu", entry, defines }
}

/// A kernel of `dia.cu` that makes a residual, or a step of a smoother, of each number; it has more of them in registers. `from_zero`: the first two steps.
pub(in crate::device::cuda) fn dia_that_smooths(
    shape: &DiaShape,
    entry: &'static str,
    from_zero: bool,
) -> Kernel {
    let mut kernel = dia(shape, entry);
    kernel.defines.retain(|(name, _)| name != "CTAS");
    kernel.defines.extend([define("CTAS", shape.resident() - 1), define("SMOOTH", 1 + from_zero as u32)]);
    kernel
}

/// A kernel of `dia_detect.cu`.
pub(in crate::device::cuda) fn dia_detect(entry: &'static str) -> Kernel {
    Kernel { file: "dia_detect.cu", entry, defines: vec![define("THREADS", DiaShape::THREADS)] }
}

/// Every one that a product can ask for: one entry stands for all of its file.
pub(in crate::device::cuda) fn kernels() -> Vec<Kernel> {
    let mut all = DiaShape::all();
    let plain: Vec<_> = all.iter().map(|shape| dia(shape, "dia_product")).collect();
    // `all` has shapes that are not exact, too.
    all.retain(DiaShape::smooths);
    let smoothing = all.iter().flat_map(both_that_smooth);
    plain.into_iter().chain(smoothing).chain([dia_detect("dia_offsets")]).collect()
}

/// Those of seven-point grids.
pub(in crate::device::cuda) fn common() -> Vec<Kernel> {
    let seven = [DiaShape::choose(7, false, Store::F64), DiaShape::choose(4, true, Store::F64)];
    let of = |shape| std::iter::once(dia(shape, "dia_product")).chain(both_that_smooth(shape));
    seven.iter().flat_map(of).chain([dia_detect("dia_offsets")]).collect()
}

/// With a step from zero and without.
fn both_that_smooth(shape: &DiaShape) -> [Kernel; 2] {
    [false, true].map(|from_zero| dia_that_smooths(shape, "dia_product", from_zero))
}

/// The smoothing kernels of a matrix of so many entries in a full row, if it is stored by diagonals and there are any.
pub(crate) fn likely_to_smooth(entries: usize, store: Store) -> Vec<Kernel> {
    let shape = DiaShape::choose(entries.clamp(1, 32) / 2 + 1, true, store);
    if entries <= 32 && shape.smooths() { both_that_smooth(&shape).into() } else { Vec::new() }
}

/// Those for a matrix of so many entries in a full row, if it is stored by diagonals.
pub(crate) fn likely(entries: usize, store: Store) -> Vec<Kernel> {
    if !(1..=32).contains(&entries) {
        return Vec::new();
    }
    let shape = DiaShape::choose(entries / 2 + 1, true, store);
    vec![dia_detect("dia_offsets"), dia(&shape, "dia_product")]
}
