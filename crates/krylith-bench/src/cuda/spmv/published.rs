//! CSR-vector, merge-based and CSR-adaptive products.

use super::Held;
use crate::cuda::fastest;
use crate::cuda::kernels::{self, Arg, Kernel, Module, Source};
use crate::cuda::vendor::Vendor;
use cudarc::nvrtc::Ptx;
use krylith_core::Result;
use krylith_core::device::cuda::Buffer;
use std::rc::Rc;
use std::time::Instant;

/// Number of threads per block, as in `products.cu`.
const VECTOR_THREADS: usize = 256;
const MERGE_THREADS: usize = 128;
const PIECE: usize = 1024;
const GIANT: usize = 16384;

const SOURCE: Source = ("products.cu", include_str!("products.cu"));

/// Returns the PTX for a number of threads per row, a number of items per thread, and an architecture such as
/// (9, 0).
///
/// # Errors
/// Returns an error if NVRTC is missing, or with the compiler's messages.
pub fn compile(threads: usize, items: usize, arch: (i32, i32)) -> Result<Ptx> {
    kernels::compile(SOURCE, &[("WIDTH", threads), ("ITEMS", items)], arch)
}

fn load(vendor: &Rc<Vendor>, threads: usize, items: usize) -> Result<Module> {
    Module::load(vendor, SOURCE, &[("WIDTH", threads), ("ITEMS", items)])
}

/// Returns the number of threads per row by the mean row length, as in CUSP.
pub(super) fn threads_a_row(rows: usize, entries: usize) -> usize {
    let mean = entries as f64 / rows.max(1) as f64;
    [2, 4, 8, 16].into_iter().find(|&t| mean <= t as f64).unwrap_or(32)
}

pub(super) struct CsrVector {
    kernel: Kernel,
    threads: usize,
    blocks: usize,
}

impl CsrVector {
    /// Creates the product with the faster of two grids.
    pub fn new(vendor: &Rc<Vendor>, a: &Held, threads: usize, [x, y]: [u64; 2]) -> Result<Self> {
        let module = load(vendor, threads, 7)?;
        let whole = a.rows.div_ceil(VECTOR_THREADS / threads);
        let resident = whole.min(8 * vendor.device.multiprocessors());
        let grid =
            |blocks| Ok(Self { kernel: module.kernel("csr_vector", VECTOR_THREADS, 0)?, threads, blocks });
        Ok(fastest(vendor, [whole, resident], grid, |made| made.run(a, x, y))?.1)
    }

    /// Creates the product with the fastest number of threads per row.
    pub fn best(vendor: &Rc<Vendor>, a: &Held, [x, y]: [u64; 2]) -> Result<Self> {
        let new = |threads| Self::new(vendor, a, threads, [x, y]);
        Ok(fastest(vendor, [2, 4, 8, 16, 32], new, |made| made.run(a, x, y))?.1)
    }

    pub fn notes(&self) -> String {
        format!("{} threads a row, {} blocks", self.threads, self.blocks)
    }
    pub fn run(&self, a: &Held, x: u64, y: u64) -> Result<()> {
        let [ptr, col, val] = a.arrays();
        self.kernel
            .launch(self.blocks, &[ptr, col, val, Arg::Pointer(x), Arg::Pointer(y), Arg::Long(a.rows as i64)])
    }
}

pub(super) struct Merge {
    items: usize,
    blocks: usize,
    product: Kernel,
    fix: Kernel,
    search: Kernel,
    first: Buffer<i64>,
    carry: Buffer<f64>,
}

impl Merge {
    /// Creates the product with the fastest number of items.
    pub fn best(vendor: &Rc<Vendor>, a: &Held, [x, y]: [u64; 2]) -> Result<Self> {
        let new = |items| Self::new(vendor, a, items);
        Ok(fastest(vendor, [5, 7, 9, 11], new, |made| made.run(a, x, y))?.1)
    }

    fn new(vendor: &Rc<Vendor>, a: &Held, items: usize) -> Result<Self> {
        let module = load(vendor, 32, items)?;
        let blocks = (a.rows + a.entries).div_ceil(MERGE_THREADS * items);
        Ok(Self {
            items,
            blocks,
            product: module.kernel("merge_product", MERGE_THREADS, 0)?,
            fix: module.kernel("merge_fix", 256, 0)?,
            search: module.kernel("merge_search", 256, 0)?,
            first: vendor.device.zeros(blocks + 1, "shares of the path")?,
            carry: vendor.device.zeros(blocks, "sums of blocks")?,
        })
    }

    pub fn notes(&self) -> String {
        format!("{} items a thread", self.items)
    }
    pub fn run(&self, a: &Held, x: u64, y: u64) -> Result<()> {
        let [ptr, col, val] = a.arrays();
        let (first, carry) = (Arg::Pointer(self.first.pointer()), Arg::Pointer(self.carry.pointer()));
        let [rows, entries, blocks] = [a.rows, a.entries, self.blocks].map(|n| Arg::Long(n as i64));
        let (x, y) = (Arg::Pointer(x), Arg::Pointer(y));
        self.search.launch((self.blocks + 1).div_ceil(256), &[ptr, first, rows, entries, blocks])?;
        self.product.launch(self.blocks, &[ptr, col, val, x, y, first, carry, rows, entries])?;
        self.fix.launch(self.blocks.div_ceil(256), &[first, carry, y, rows, blocks])
    }
}

pub(super) struct Adaptive {
    blocks: usize,
    kernel: Kernel,
    clear: Kernel,
    pieces: Buffer<u32>,
    giants: Buffer<u32>,
    count: usize,
}

impl Adaptive {
    /// Finds blocks of rows on the host, as published; also returns the seconds.
    pub fn make(vendor: &Rc<Vendor>, row_ptr: &[usize]) -> Result<(Self, f64)> {
        let module = load(vendor, 32, 7)?;
        let (kernel, clear) = (module.kernel("adaptive", 256, 0)?, module.kernel("clear_rows", 256, 0)?);
        let begin = Instant::now();
        let (pieces, giants) = pieces(row_ptr);
        let device = &vendor.device;
        let made = Self {
            blocks: pieces.len() / 3,
            kernel,
            clear,
            pieces: device.upload(&pieces, "row blocks")?,
            count: giants.len(),
            giants: device.upload(if giants.is_empty() { &[0] } else { &giants[..] }, "giant rows")?,
        };
        device.wait()?;
        Ok((made, begin.elapsed().as_secs_f64()))
    }
}

/// Returns blocks of rows in the form of `products.cu`, and the rows that several blocks add to.
fn pieces(row_ptr: &[usize]) -> (Vec<u32>, Vec<u32>) {
    let (mut pieces, mut giants) = (Vec::new(), Vec::new());
    let rows = row_ptr.len() - 1;
    let mut first = 0;
    while first < rows {
        let length = row_ptr[first + 1] - row_ptr[first];
        if length > GIANT {
            giants.push(first as u32);
            (0..length.div_ceil(GIANT)).for_each(|k| pieces.extend([first as u32, 1, k as u32 + 1]));
            first += 1;
            continue;
        }
        let mut end = first + 1;
        while end < rows && end - first < PIECE && row_ptr[end + 1] - row_ptr[first] <= PIECE {
            end += 1;
        }
        pieces.extend([first as u32, (end - first) as u32, 0]);
        first = end;
    }
    (pieces, giants)
}

impl Adaptive {
    pub fn notes(&self) -> String {
        format!("{} row blocks", self.blocks)
    }
    pub fn run(&self, a: &Held, x: u64, y: u64) -> Result<()> {
        let [ptr, col, val] = a.arrays();
        let (x, y) = (Arg::Pointer(x), Arg::Pointer(y));
        let list = Arg::Pointer(self.giants.pointer());
        self.clear.launch(self.count.div_ceil(256), &[list, y, Arg::Long(self.count as i64)])?;
        self.kernel.launch(self.blocks, &[ptr, col, val, x, y, Arg::Pointer(self.pieces.pointer())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_blocks_hold_every_row_once_and_giants_in_pieces() {
        let lengths = [0, 3, 1020, 2, 2000, GIANT, GIANT + 1, 1, 0];
        let mut row_ptr = vec![0];
        lengths.iter().for_each(|l| row_ptr.push(row_ptr[row_ptr.len() - 1] + l));
        let (pieces, giants) = pieces(&row_ptr);
        assert_eq!(giants, [6]);
        let wanted = [[0, 3, 0], [3, 1, 0], [4, 1, 0], [5, 1, 0], [6, 1, 1], [6, 1, 2], [7, 2, 0]];
        assert_eq!(pieces, wanted.concat());
    }

    #[test]
    fn threads_a_row_are_the_paper_s() {
        let of = |mean: usize| threads_a_row(100, 100 * mean);
        assert_eq!([1, 2, 3, 9, 16, 17, 1000].map(of), [2, 2, 4, 16, 16, 32, 32]);
        assert_eq!(threads_a_row(0, 0), 2);
    }
}
