//! Scalar CSR products by `cusparseSpMV`: the assembled Kronecker sum, and point-block matrices of block size 1.

use super::calls::{Numbers, OP, TYPE, call, scalar, workspace};
use super::fastest;
use super::products::Blocks;
use super::vendor::Vendor;
use crate::platform::Product;
use cudarc::cusparse::sys as sparse;
use cudarc::cusparse::sys::cusparseSpMVAlg_t as Algorithm;
use krylith::device::cuda::Buffer;
use krylith::matrix::KroneckerSum;
use krylith::{Error, Result};
use std::rc::Rc;

/// A CSR matrix, an algorithm and its analysed buffer. The arrays belong to the caller and must outlive it.
pub(crate) struct SpMv {
    numbers: Numbers,
    pub algorithm: Algorithm,
    buffer: Buffer<u8>,
    vendor: Rc<Vendor>,
}

impl SpMv {
    /// With or without `cusparseSpMV_preprocess`.
    pub fn new(
        vendor: &Rc<Vendor>,
        rows: usize,
        nonzeros: usize,
        arrays: [u64; 4],
        algorithm: Algorithm,
        preprocess: bool,
    ) -> Result<Self> {
        let numbers = Numbers::new(vendor, rows, nonzeros, arrays)?;
        let (one, zero, mut bytes) = (1.0, 0.0, 0usize);
        let (matrix, x, y) = numbers.operands();
        let (alpha, beta) = (scalar(&one), scalar(&zero));
        call!(vendor, cusparseSpMV_bufferSize(OP, alpha, matrix, x, beta, y, TYPE, algorithm, &mut bytes))?;
        let buffer = workspace(vendor, bytes)?;
        if preprocess {
            let at = buffer.pointer() as _;
            call!(vendor, cusparseSpMV_preprocess(OP, alpha, matrix, x, beta, y, TYPE, algorithm, at))?;
        }
        Ok(Self { vendor: vendor.clone(), numbers, algorithm, buffer })
    }

    /// A block-size-1 matrix with the faster algorithm.
    pub fn best(vendor: &Rc<Vendor>, a: &Blocks) -> Result<Self> {
        let (x, y) = (vendor.zeros(a.rows)?, vendor.zeros(a.rows)?);
        let (row_ptr, col) = a.pattern();
        let arrays = [row_ptr, col, a.values.pointer(), x.pointer()];
        faster(vendor, a.rows, a.count, arrays, &x, &y)
    }

    /// y = A x + β y; the caller's vectors hold a number a row.
    pub fn run(&self, x: u64, beta: f64, y: u64) -> Result<()> {
        let ((matrix, x, y), one, buffer) = (self.numbers.at(x, y), 1.0, self.buffer.pointer() as _);
        let (alpha, beta) = (scalar(&one), scalar(&beta));
        call!(self.vendor, cusparseSpMV(OP, alpha, matrix, x, beta, y, TYPE, self.algorithm, buffer))
    }

    pub fn notes(&self) -> &'static str {
        if self.algorithm == Algorithm::CUSPARSE_SPMV_CSR_ALG2 { "CSR_ALG2" } else { "CSR_ALG1" }
    }
}

/// Both algorithms timed, the faster one kept.
fn faster(
    vendor: &Rc<Vendor>,
    rows: usize,
    nonzeros: usize,
    arrays: [u64; 4],
    x: &Buffer<f64>,
    y: &Buffer<f64>,
) -> Result<SpMv> {
    let both = [Algorithm::CUSPARSE_SPMV_CSR_ALG1, Algorithm::CUSPARSE_SPMV_CSR_ALG2];
    let new = |algorithm| SpMv::new(vendor, rows, nonzeros, arrays, algorithm, true);
    Ok(fastest(vendor, both, new, |spmv| spmv.run(x.pointer(), 0.0, y.pointer()))?.1)
}

/// The Kronecker sum assembled to one CSR matrix; a single set, for it is s² times larger.
pub(super) struct Assembled {
    // Before the arrays, so that descriptors go first.
    spmv: SpMv,
    x: Buffer<f64>,
    y: Buffer<f64>,
    _arrays: (Buffer<i32>, Buffer<i32>, Buffer<f64>),
}

impl Assembled {
    /// # Errors
    /// More nonzeros than 32-bit offsets can count, or different patterns.
    pub fn new(vendor: &Rc<Vendor>, k: &KroneckerSum) -> Result<Self> {
        let (b, s, n) = (k.block(), k.stages(), k.m.block_rows());
        let (bs, nonzeros) = (b * s, k.m.values().len() * s * s);
        if nonzeros > i32::MAX as usize || !k.m.same_pattern(&k.l) {
            return Err(Error::Unsupported(format!("an assembled matrix of {nonzeros} nonzeros")));
        }
        let (mut row_ptr, mut col) = (Vec::with_capacity(n * bs + 1), Vec::with_capacity(nonzeros));
        let mut values = Vec::with_capacity(nonzeros);
        row_ptr.push(0i32);
        for i in 0..n {
            for (r, q) in (0..b).flat_map(|r| (0..s).map(move |q| (r, q))) {
                for p in k.m.row_ptr()[i]..k.m.row_ptr()[i + 1] {
                    let j = k.m.col()[p] as usize;
                    for c in 0..b {
                        let at = (p * b + r) * b + c;
                        let (m, l) = (k.m.values()[at], k.tau * k.l.values()[at]);
                        for t in 0..s {
                            col.push(((j * b + c) * s + t) as i32);
                            values.push(k.a[(q, t)] * m + k.b[(q, t)] * l);
                        }
                    }
                }
                row_ptr.push(col.len() as i32);
            }
        }
        let device = &vendor.device;
        let arrays = (
            device.upload(&row_ptr, "row pointers")?,
            device.upload(&col, "columns")?,
            device.upload(&values, "values")?,
        );
        let (x, y) = (vendor.zeros(n * bs)?, vendor.zeros(n * bs)?);
        let pointers = [arrays.0.pointer(), arrays.1.pointer(), arrays.2.pointer(), x.pointer()];
        let spmv = faster(vendor, n * bs, nonzeros, pointers, &x, &y)?;
        Ok(Self { spmv, x, y, _arrays: arrays })
    }
}

impl Product for Assembled {
    fn name(&self) -> String {
        "assembled CSR (cusparseSpMV)".into()
    }
    fn notes(&self) -> String {
        self.spmv.notes().into()
    }
    fn write(&mut self, x: &[f64]) -> Result<()> {
        self.spmv.vendor.write(x, &mut self.x)
    }
    fn poison(&mut self, _: usize) -> Result<()> {
        self.spmv.vendor.poison(&self.y)
    }
    fn run(&mut self, _: usize) -> Result<()> {
        self.spmv.run(self.x.pointer(), 0.0, self.y.pointer())
    }
    fn read(&mut self, _: usize) -> Result<Vec<f64>> {
        self.spmv.vendor.read(&self.y)
    }
}
