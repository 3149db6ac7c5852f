//! The kernels of incomplete factors on subdomains.

use super::super::compiler::Kernel;
use super::super::launch::{Address, At, Entry, Of, Set, kernels};
use super::super::specialisations::{STORES, define, value, vectors};
use super::{IlduShape, Matrix, PLAN_THREADS};
use crate::precond::IlduOptions;
use crate::precond::range::RANGE;
use crate::space::Precision;

kernels! {
    ILDU_FACTOR in "ildu_factor.cu", factor_kernels;
    fn ildu_form(
        entries: i64, block: i32, stages: i32, first: i32, coefficients: At<f64>, sources: At<i32>,
        from: At<f64>, work: At<f64>,
    );
    fn ildu_factor(
        starts: At<i64>, depths: At<u32>, levels: At<u32>, row_starts: At<i64>, columns: At<u16>,
        diagonal: At<i64>, rows: At<u32>, shift: f64, work: At<f64>, pivots: Address,
    );
    fn ildu_range(
        starts: At<i64>, row_starts: At<i64>, diagonal: At<i64>, work: At<f64>, shifts: At<i32>,
        too_wide: At<u32>,
    );
    fn ildu_pack(
        starts: At<i64>, sums: At<i64>, row_starts: At<i64>, diagonal: At<i64>, from: At<u32>,
        chunks: Address, places: At<u8>, work: At<f64>, shifts: At<i32>, values: At<u8>,
    );
}

kernels! {
    ILDU_ORDER in "ildu_order.cu", |_| vec![ildu_order::of().into()];
    fn ildu_order(
        starts: At<i64>, counts: At<u32>, totals: At<i64>, offsets: At<u32>, at: At<u16>, suspect: At<u32>,
        words: At<u32>, place: At<u32>, parent: At<u32>, degree: At<u32>, list: At<u32>, largest: i32,
    );
}

kernels! {
    ILDU_PLAN in "ildu_plan.cu", |_| [1, 2].map(|patterns| ildu_plan(ildu_count, patterns).into()).into();
    fn ildu_boxes(
        nx: i32, ny: i32, nz: i32, sx: i32, sy: i32, sz: i32, starts: At<i64>, rows: At<u32>,
        home: At<[u32; 2]>,
    );
    fn ildu_home(starts: At<i64>, rows: At<u32>, home: At<[u32; 2]>);
    fn ildu_count(
        starts: At<i64>, rows: At<u32>, home: At<[u32; 2]>, own: u32, a: Matrix, b: Matrix, counts: At<u32>,
        totals: At<i64>, scattered: At<i32>,
    );
    fn ildu_inspect(
        starts: At<i64>, rows: At<u32>, home: At<[u32; 2]>, own: u32, a: Matrix, b: Matrix, counts: At<u32>,
        totals: At<i64>, offsets: At<u32>, at: At<u16>, from_a: At<u32>, from_b: At<u32>, words: At<u32>,
        spare: At<u32>, suspect: At<u32>, suspects: At<i32>, largest: i32,
    );
    fn ildu_finish(
        starts: At<i64>, rows: At<u32>, words: At<u32>, counts: At<u32>, totals: At<i64>, offsets: At<u32>,
        at: At<u16>, from_a: At<u32>, from_b: At<u32>, spare: At<u16>, row_at: At<u32>, slots: At<u16>,
        levels: At<u32>, depths: At<u32>, row_starts: At<i64>, columns: At<u16>, diagonal: At<i64>,
        sources_a: At<u32>, sources_b: At<u32>, largest: i32,
    );
}

kernels! {
    ILDU_SOLVE in "ildu_solve.cu", solve_kernels;
    fn ildu_solve(
        halt: At<i32>, starts: At<i64>, sums: At<i64>, rows: At<u32>, slots: At<u16>, chunks: Address,
        places: At<u8>, values: At<u8>, shifts: At<i32>, step: i32, offset: i32, x: At<f64>, y: At<f64>,
    );
}

kernels! {
    ILDU_STREAM in "ildu_stream.cu", stream_kernels;
    fn ildu_stream(
        starts: At<i64>, levels: At<u32>, depths: At<u32>, row_starts: At<i64>, diagonal: At<i64>,
        columns: At<u16>, sums: At<i64>, chunks: Address, places: At<u8>, largest: i32, transposed: i32,
    );
}

kernels! {
    ILDU_TRANSPOSE in "ildu_transpose.cu", |_| vec![ildu_transpose::of().into()];
    fn ildu_transpose(
        starts: At<i64>, row_starts: At<i64>, columns: At<u16>, rows: At<u16>, entries: At<u32>,
        to_row_starts: At<i64>, to_columns: At<u16>, to_diagonal: At<i64>, from: At<u32>,
    );
}

/// Returns a kernel of `ildu_factor.cu`. Only the packing kernel depends on the precision and on the solve.
fn ildu_set_up<K: Entry>(entry: K, order: usize, precision: Precision, warps: usize) -> Of<K> {
    let threads = define("THREADS", IlduShape::FACTOR_THREADS);
    let (warps, range) = (define("WARPS", warps), define("RANGE", RANGE));
    entry.with(vec![define("ORDER", order), value(precision), threads, warps, range])
}

impl ildu_form {
    /// Returns the kernel that copies the values of a matrix to the entries of a plan.
    pub(crate) fn of(order: usize) -> Of<Self> {
        ildu_set_up(Self, order, Precision::F64, 1)
    }
}

impl ildu_factor {
    /// Returns the kernel for incomplete factorisation of subdomains.
    pub(crate) fn of(order: usize) -> Of<Self> {
        ildu_set_up(Self, order, Precision::F64, 1)
    }
}

impl ildu_range {
    /// Returns the kernel that finds the scales of solves in f32.
    pub(super) fn of(order: usize) -> Of<Self> {
        ildu_set_up(Self, order, Precision::F64, 1)
    }
}

impl ildu_pack {
    /// Returns the kernel that copies factors to the order of their use.
    pub(crate) fn of(order: usize, precision: Precision, shape: &IlduShape) -> Of<Self> {
        ildu_set_up(Self, order, precision, shape.warps)
    }
}

impl ildu_solve {
    /// Returns the kernel that solves with the factors of subdomains, stored and computed in the precisions
    /// of `options`; `gathered` where their rows are not consecutive.
    pub(crate) fn of(order: usize, options: &IlduOptions, shape: &IlduShape, gathered: bool) -> Of<Self> {
        let defines = [
            define("ORDER", order),
            value(options.stored()),
            define("WARPS", shape.warps),
            define("STAGE", shape.stage),
            define("DEPTH", shape.depth),
            define("GATHERED", gathered as u32),
        ];
        Self.with(defines.into_iter().chain(vectors(options.compute)).collect())
    }
}

impl ildu_stream {
    /// Returns the kernel that counts the blocks of the factors in the stream or, with `write`, writes their
    /// positions.
    pub(crate) fn of(order: usize, precision: Precision, shape: &IlduShape, write: bool) -> Of<Self> {
        Self.with(vec![
            define("ORDER", order),
            value(precision),
            define("WARPS", shape.warps),
            define("STAGE", shape.stage),
            define("THREADS", IlduShape::LAYOUT_THREADS),
            define("WRITE", write as u32),
        ])
    }
}

/// Returns a kernel for the analysis of subdomains, of one pattern or the union of two.
pub(crate) fn ildu_plan<K: Entry>(entry: K, patterns: usize) -> Of<K> {
    entry.with(vec![define("PATTERNS", patterns), define("THREADS", PLAN_THREADS)])
}

impl ildu_order {
    /// Returns the kernel for another order of elimination, for subdomains whose natural order is suspect.
    pub(crate) fn of() -> Of<Self> {
        Self.with(vec![define("THREADS", PLAN_THREADS)])
    }
}

impl ildu_transpose {
    /// Returns the kernel for the pattern of transposed factors.
    pub(crate) fn of() -> Of<Self> {
        Self.with(vec![define("THREADS", PLAN_THREADS)])
    }
}

/// Block orders whose factors are compiled ahead: all of one stage, and b·s of Kronecker systems.
fn orders(set: Set) -> Vec<usize> {
    set.choose([1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32], [1, 2, 3, 4, 5, 6, 8, 12, 16])
}

/// Returns every combination of order, precision and mapping.
fn shapes(set: Set) -> Vec<(usize, Precision, IlduShape)> {
    let of = |precision| {
        let shapes =
            move |order| IlduShape::all(order).into_iter().map(move |shape| (order, precision, shape));
        orders(set).into_iter().flat_map(shapes)
    };
    set.choose(STORES.to_vec(), [Precision::F64]).into_iter().flat_map(of).collect()
}

fn factor_kernels(set: Set) -> Vec<Kernel> {
    let plain = orders(set).into_iter().map(|order| ildu_factor::of(order).into());
    let pack = shapes(set)
        .into_iter()
        .map(|(order, precision, shape)| ildu_pack::of(order, precision, &shape).into());
    plain.chain(pack).collect()
}

fn stream_kernels(set: Set) -> Vec<Kernel> {
    let both = |(order, precision, shape): (usize, Precision, IlduShape)| {
        [false, true].map(|write| ildu_stream::of(order, precision, &shape, write).into())
    };
    shapes(set).into_iter().flat_map(both).collect()
}

fn solve_kernels(set: Set) -> Vec<Kernel> {
    let of = |(order, precision, shape): (usize, Precision, IlduShape)| {
        let gathered = set.choose([false, true], [true]);
        let computes = if precision == Precision::F32 { STORES.to_vec() } else { vec![precision] };
        let each = move |gathered| {
            let one = move |compute| {
                let options = IlduOptions { precision, compute, ..IlduOptions::default() };
                ildu_solve::of(order, &options, &shape, gathered).into()
            };
            computes.clone().into_iter().map(one)
        };
        gathered.into_iter().flat_map(each)
    };
    shapes(set).into_iter().flat_map(of).collect()
}
