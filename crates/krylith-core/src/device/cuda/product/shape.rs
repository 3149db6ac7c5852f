//! Mapping of the fused product to a GPU, and its kernels.

use super::super::compiler::Kernel;
use super::super::launch::{Address, At, Entry, Of, Reals, Set, kernels};
use super::super::specialisations::{STORES, define, value};
use crate::operator::Structure;
use crate::space::Precision;

kernels! {
    KRON_PRODUCT in "kron_product.cu", products;
    fn kron_product(
        halt: At<i32>, tile_count: i32, starts: At<u32>, records: At<u8>, values: Reals, x: At<f64>,
        y: At<f64>, parts: At<f64>, node_capacity: i32, record_capacity: i32, begin: i32,
        first_boundary: i32, own: i32, ghosts: At<f64>, exchange: Address, send: i32,
    );
    fn kron_long_rows(halt: At<i32>, count: i32, long_rows: At<i32>, parts: At<f64>, y: At<f64>);
    fn kron_pack(
        starts: At<u32>, records: At<u8>, row_starts: At<i64>, part_starts: At<i64>, sources: At<i32>,
        natural: At<f64>, term: i32, values: Reals, broken: At<i32>,
    );
    fn kron_residual(
        halt: At<i32>, tile_count: i32, starts: At<u32>, records: At<u8>, values: Reals, x: At<f64>,
        b: At<f64>, r: At<f64>, low: At<f64>, m: At<f64>, parts: At<f64>, own: i32, ghosts: At<f64>,
        exchange: Address,
    );
    fn kron_residual_long(
        halt: At<i32>, count: i32, long_rows: At<i32>, parts: At<f64>, b: At<f64>, r: At<f64>, low: At<f64>,
        m: At<f64>,
    );
}

/// Mapping of the fused product to threads: constants of `kernels/kron_product.cu`, tuned on an H200.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Threads per thread block.
    pub(crate) threads: usize,
    /// Groups of a block's rows whose packed values are contiguous.
    pub(crate) slices: usize,
    /// Threads that share a matrix block; with `by_rows`, lanes that share a row and component.
    pub(crate) shares: usize,
    /// Largest number of matrix blocks of a tile.
    pub(crate) tile: usize,
    /// True if lanes process rows and components instead of blocks.
    pub(crate) by_rows: bool,
    /// True if rows that share columns are put into one tile.
    pub(crate) cluster: bool,
    block: usize,
    dense: bool,
}

/// Tiles in flight, including the present one.
const DEPTH: usize = 2;

impl Shape {
    /// Returns the mapping for a block size, stages, structure and precision.
    pub(crate) fn choose(block: usize, s: usize, structure: &Structure, precision: Precision) -> Self {
        let dense = structure.is_dense();
        let many = s >= 3; // with more stages, x is the larger part of the traffic
        let (threads, slices, shares, tile, by_rows, cluster) = match (block, s) {
            _ if !dense => {
                // One thread per block; as many blocks as fit 40 KB, together with their contributions to
                // rows.
                let bytes = structure.slots * precision.bytes() + 8 * stride(block, s);
                let tile = [240, 120, 60].into_iter().find(|t| t * bytes <= 40_000).unwrap_or(30);
                // Where structure saves little, x is as small a part of the traffic as with dense blocks, and
                // clustering only costs set-up time.
                (128, 1, 1, tile, false, many || 3 * structure.slots < 2 * structure.table.len())
            }
            (4, _) if precision == Precision::F32 => (128, 1, 1, 120, false, s >= 2),
            (1, 1 | 2) => (256, 1, 1, 1020, false, true),
            (1, 3) => (128, 1, 1, 1020, true, true),
            (1, _) => (128, 1, 2, 960, true, true),
            (2, 1) => (128, 1, 1, 240, false, false),
            (2, 2 | 3) => (128, 1, 4, 240, true, true),
            (2, _) => (128, 1, 2, 360, true, true),
            (3, 3) => (256, 1, 1, 240, false, true),
            (3, 4) => (128, 1, 1, 120, false, true),
            (3, _) => (256, 1, 1, 240, false, false),
            (4, _) if many => (128, 2, 2, 60, false, true),
            (4, _) => (256, 2, 2, 120, false, false),
            (5, 1 | 2) => (128, 1, 4, 60, true, s == 2),
            (5, _) => (128, 1, 2, 60, false, many),
            (6, _) if many => (128, 2, 2, 60, false, true),
            (6, _) => (192, 3, 3, 60, false, false),
            (7, _) if many => (128, 1, 4, 30, false, true),
            (7, _) => (128, 1, 2, 60, false, false),
            _ => (128, 4, 4, 30, false, true),
        };
        Self { threads, slices, shares, tile, by_rows, cluster, block, dense }
    }

    /// Dynamic shared memory in bytes.
    pub(crate) fn shared(
        &self,
        b: usize,
        s: usize,
        slots: usize,
        precision: Precision,
        nodes: usize,
        record: usize,
    ) -> usize {
        let value = precision.bytes();
        let round = match slots * value % 16 {
            0 => 1,
            8 => 2,
            _ => 4,
        };
        let stage = self.tile.next_multiple_of(round) * slots * value;
        let runs = (DEPTH * nodes * stride(b, s) * 8).next_multiple_of(16);
        let sums = if self.by_rows { 0 } else { self.tile * stride(b, s) * 8 };
        DEPTH * stage + runs + (2 * DEPTH - 1) * record + sums
    }

    /// Returns for each slot of the packed order the entry (term, row, column) that it holds.
    pub(crate) fn sources(&self, structure: &Structure) -> Vec<i32> {
        let (b, terms) = (self.block, structure.terms());
        let mut sources = vec![-1; structure.slots];
        let rows = b / self.slices;
        for e in (0..terms * b * b).rev() {
            let (t, r, c) = (e / (b * b), e / b % b, e % b);
            let slot = match self.dense {
                true => (((r / rows * b + c) * rows + r % rows) * terms + t) as i32,
                false => structure.table[e],
            };
            if slot >= 0 {
                sources[slot as usize] = e as i32;
            }
        }
        sources
    }
}

/// Numbers between the runs of x of two nodes in shared memory: an odd multiple of 16 bytes, against bank
/// conflicts.
fn stride(b: usize, s: usize) -> usize {
    let run = b * s;
    if run % 2 == 1 { run } else { 2 * ((run / 2) | 1) }
}

impl kron_product {
    /// Returns the fused product; with `add` it adds to y, with `halo` some columns are ghosts.
    pub(crate) fn of(
        shape: &Shape,
        b: usize,
        s: usize,
        structure: &Structure,
        precision: Precision,
        add: bool,
        halo: bool,
    ) -> Of<Self> {
        let mut defines = vec![
            define("BLOCK", b),
            define("STAGES", s),
            define("TERMS", structure.terms()),
            value(precision),
            define("THREADS", shape.threads),
            define("SLICES", shape.slices),
            define("SHARES", shape.shares),
            define("TILE", shape.tile),
            define("BY_ROWS", shape.by_rows as u32),
            define("DEPTH", DEPTH),
            define("ACCUMULATE", add as u32),
            define("SLOTS", structure.slots),
        ];
        if halo {
            defines.push(define("HALO", 1));
        }
        if !structure.is_dense() {
            let table: Vec<String> = structure.table.iter().map(|s| s.to_string()).collect();
            defines.push(define("SLOT_TABLE", table.join(",")));
        }
        Self.with(defines)
    }
}

/// Returns the fused products for all block sizes and stages, and the structures of the problems that ship
/// with Krylith; or only the common ones.
fn products(set: Set) -> Vec<Kernel> {
    let mut all = Vec::new();
    for (precision, halo) in
        set.choose(STORES.to_vec(), [Precision::F64]).into_iter().flat_map(|s| [(s, false), (s, true)])
    {
        let kernel = |b: usize, s: usize, structure: &Structure, add: bool| {
            kron_product::of(
                &Shape::choose(b, s, structure, precision),
                b,
                s,
                structure,
                precision,
                add,
                halo,
            )
            .into()
        };
        if set == Set::Common {
            for (b, s) in [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (1, 2), (3, 2), (4, 2), (4, 3)] {
                all.push(kernel(b, s, &Structure::dense(b, if s == 1 { 1 } else { 2 }), false));
            }
            all.extend((1..=4).map(|s| kernel(4, s, &Structure::stokes(4), false)));
            continue;
        }
        for (b, s) in (1..=8).flat_map(|b| (1..=4).map(move |s| (b, s))) {
            all.push(kernel(b, s, &Structure::dense(b, 2), false));
            all.extend([false, true].map(|add| kernel(b, s, &Structure::dense(b, 1), add)));
        }
        all.extend((1..=4).flat_map(|s| [3, 4].map(|b| kernel(b, s, &Structure::stokes(b), false))));
        // L alone, which couples the stages of a stage preconditioner.
        let stiffness = |b: usize| Structure::stokes(b).of(1..2);
        all.extend((2..=4).flat_map(|s| [3, 4].map(|b| kernel(b, s, &stiffness(b), false))));
    }
    all
}
