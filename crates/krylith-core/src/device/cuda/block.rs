//! Blocks of a few vectors on a GPU: the launches of `kernels/block.cu`.

use super::driver::Buffer;
use super::launch::{Address, At, Entry, Of, Set, kernels};
use super::specialisations::define;
use super::{Cuda, Kernel};
use crate::space::{MOST_COLUMNS, block_sums, check_columns};
use crate::{Error, Result};

kernels! {
    BLOCK in "block.cu", all_kernels;
    fn block_products(
        halt: At<i32>, n: i32, x: Block, y: Block, out: At<f64>, scratch: At<f64>, counter: At<u32>,
        peers: Address,
    );
    fn block_update(
        halt: At<i32>, n: i32, basis: Block, products: Block, r: At<f64>, q: Block, aq: Block,
        combination: At<f64>, out: At<f64>, scratch: At<f64>, counter: At<u32>, peers: Address,
    );
    fn block_advance(halt: At<i32>, n: i32, q: Block, aq: Block, x: At<f64>, r: At<f64>, a: At<f64>);
}

/// Threads per thread block of `block_advance`.
const THREADS: usize = 256;
/// Fewest rows that a thread block processes at a time; it sets the grid of a short vector.
const ROWS: usize = 128;
/// Largest number of thread blocks of `block_products` that are resident on a multiprocessor.
const MOST_RESIDENT: usize = 3;

/// Mapping of blocks to threads: constants of `kernels/block.cu`, tuned on an H200.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockShape {
    /// Warps per thread block, for products and for updates.
    pub warps: [usize; 2],
    /// Tiles of eight rows that a warp loads at a time, for products and for updates.
    pub ahead: [usize; 2],
    /// Thread blocks of products that are resident on a multiprocessor; for updates it is one.
    pub resident: usize,
    /// True if updates load the next rows while they process the present ones.
    pub pipeline: bool,
}

impl BlockShape {
    /// Returns the mapping for a number of columns.
    pub fn choose(columns: usize) -> Self {
        match columns {
            0..=4 => Self { warps: [8, 16], ahead: [2, 2], resident: 3, pipeline: true },
            5..=8 => Self { warps: [8, 8], ahead: [2, 4], resident: 2, pipeline: false },
            _ => Self { warps: [8, 8], ahead: [1, 2], resident: 3, pipeline: false },
        }
    }
}

/// Returns a kernel of `block.cu` for blocks of `columns` vectors.
fn kernel<K: Entry>(entry: K, columns: usize) -> Of<K> {
    let shape = BlockShape::choose(columns);
    let defines = vec![
        define("COLUMNS", columns),
        define("WARPS_PRODUCTS", shape.warps[0]),
        define("WARPS_UPDATE", shape.warps[1]),
        define("AHEAD_PRODUCTS", shape.ahead[0]),
        define("AHEAD_UPDATE", shape.ahead[1]),
        define("RESIDENT_PRODUCTS", shape.resident),
        define("PIPELINE", shape.pipeline as u32),
    ];
    entry.with(defines)
}

fn all_kernels(set: Set) -> Vec<Kernel> {
    let columns = set.choose(1..=MOST_COLUMNS, [8, 12, 16]);
    columns.into_iter().map(|columns| kernel(block_products, columns).into()).collect()
}

/// Addresses of a block's columns.
type Block = [u64; MOST_COLUMNS];

impl Cuda {
    /// Number of values that the sums of all thread blocks need, for s columns.
    fn block_scratch(&self, s: usize) -> usize {
        self.device().multiprocessors() * (MOST_RESIDENT * s * s).max(block_sums(s))
    }

    /// Allocates a block of zeros and the scratch for its sums.
    pub(super) fn make_block(&self, columns: usize) -> Result<Vec<Buffer<f64>>> {
        check_columns(columns)?;
        let mut scratch = self.block_sums.borrow_mut();
        let needed = self.block_scratch(columns);
        if scratch.as_ref().is_none_or(|scratch| scratch.len() < needed) {
            *scratch = Some(self.device().zeros(needed, "reduction scratch")?);
        }
        (0..columns).map(|_| self.device().zeros(self.vector_len(), "a vector of a block")).collect()
    }

    fn columns(&self, block: &[Buffer<f64>], s: usize) -> Result<Block> {
        let len = self.vector_len();
        if block.len() != s || s > MOST_COLUMNS || block.iter().any(|v| v.len() != len) {
            return Err(Error::invalid(format!(
                "two blocks do not match; expected the same number of vectors in both, at most \
                 {MOST_COLUMNS}, with {len} numbers each"
            )));
        }
        Ok(std::array::from_fn(|i| block.get(i).map_or(0, |v| v.pointer())))
    }

    /// Returns a grid that depends only on the length, so that sums are reproducible.
    fn block_grid(&self, resident: usize) -> usize {
        self.vector_len().div_ceil(ROWS).clamp(1, resident * self.device().multiprocessors())
    }

    fn block_room(&self, s: usize) -> Result<u64> {
        match &*self.block_sums.borrow() {
            Some(scratch) if scratch.len() >= self.block_scratch(s) => Ok(scratch.pointer()),
            _ => Err(Error::invalid(
                "a block of vectors belongs to another space; use blocks that this space has made",
            )),
        }
    }

    /// Computes all dot products of two blocks of vectors.
    pub(super) fn products_of_blocks(&self, x: &[Buffer<f64>], y: &[Buffer<f64>], out: u64) -> Result<()> {
        let s = x.len();
        let (x, y) = (self.columns(x, s)?, self.columns(y, s)?);
        let function = self.device().function(&kernel(block_products, s))?;
        let (scratch, shape) = (self.block_room(s)?, BlockShape::choose(s));
        function.on(self.device(), self.block_grid(shape.resident), 32 * shape.warps[0]).run(
            self.halt(),
            self.vector_len() as i32,
            x,
            y,
            out,
            scratch,
            self.counter_pointer(),
            self.fabric().group(),
        )?;
        self.fabric().total(out, s * s)
    }

    /// Computes Q ← S − Q B and AQ ← AS − AQ B with their sums: `from` is (S, A S), `to` is (Q, A Q), B is
    /// stored by columns.
    pub(super) fn update_by_blocks(
        &self,
        from: [&[Buffer<f64>]; 2],
        r: &Buffer<f64>,
        to: [&mut [Buffer<f64>]; 2],
        b: u64,
        out: u64,
    ) -> Result<()> {
        let s = from[0].len();
        let [basis, products] = [self.columns(from[0], s)?, self.columns(from[1], s)?];
        let [q, aq] = [self.columns(to[0], s)?, self.columns(to[1], s)?];
        let function = self.device().function(&kernel(block_update, s))?;
        let scratch = self.block_room(s)?;
        function.on(self.device(), self.block_grid(1), 32 * BlockShape::choose(s).warps[1]).run(
            self.halt(),
            self.vector_len() as i32,
            basis,
            products,
            r,
            q,
            aq,
            b,
            out,
            scratch,
            self.counter_pointer(),
            self.fabric().group(),
        )?;
        self.fabric().total(out, block_sums(s))
    }

    /// Computes x += Q a and r −= AQ a: `by` is (Q, A Q), `to` is (x, r).
    pub(super) fn advance_by_blocks(
        &self,
        by: [&[Buffer<f64>]; 2],
        to: [&mut Buffer<f64>; 2],
        a: u64,
    ) -> Result<()> {
        let s = by[0].len();
        let [q, aq] = [self.columns(by[0], s)?, self.columns(by[1], s)?];
        let function = self.device().function(&kernel(block_advance, s))?;
        function
            .on(
                self.device(),
                self.vector_len().div_ceil(2 * THREADS).clamp(1, 8 * self.device().multiprocessors()),
                THREADS,
            )
            .run(self.halt(), self.vector_len() as i32, q, aq, &*to[0], &*to[1], a)
    }
}
