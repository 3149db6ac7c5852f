//! Products by the vendor's libraries: CU-Solver's (Alg. 4 on one GPU), bsrmm, and the assembled matrix.

use super::csr::SpMv;
use super::vendor::Vendor;
use crate::platform::Product;
use cudarc::cusparse::sys as sparse;
use krylith::Result;
use krylith::device::cuda::Buffer;
use krylith::io::{from_stage_by_stage, to_stage_by_stage};
use krylith::matrix::{Bsr, KroneckerSum};
use std::rc::Rc;

/// How the numbers of a block are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    Rows,
    Columns,
}

impl Layout {
    fn direction(self) -> sparse::cusparseDirection_t {
        match self {
            Layout::Rows => sparse::cusparseDirection_t::CUSPARSE_DIRECTION_ROW,
            Layout::Columns => sparse::cusparseDirection_t::CUSPARSE_DIRECTION_COLUMN,
        }
    }
}

/// y = A x + β y by `cusparseDbsrmv`, of block rows, block columns, blocks and their size, and of the addresses of row pointers,
/// columns and values.
pub(super) fn bsrmv(
    vendor: &Vendor,
    sizes: [usize; 4],
    layout: Layout,
    [row_ptr, columns, values]: [u64; 3],
    x: u64,
    beta: f64,
    y: u64,
) -> Result<()> {
    let [n, m, count, b] = sizes.map(|size| size as i32);
    // SAFETY: the caller's buffers hold what the sizes say.
    let done = unsafe {
        sparse::cusparseDbsrmv(
            vendor.handle(),
            layout.direction(),
            sparse::cusparseOperation_t::CUSPARSE_OPERATION_NON_TRANSPOSE,
            n,
            m,
            count,
            &1.0,
            vendor.matrix,
            values as _,
            row_ptr as _,
            columns as _,
            b,
            x as _,
            &beta,
            y as _,
        )
    };
    vendor.sparse("cusparseDbsrmv", done)
}

/// A point-block matrix on the device, 32-bit indices as the vendor wants them.
pub(super) struct Blocks {
    pub rows: usize,
    columns: usize,
    pub block: usize,
    pub count: usize,
    pub layout: Layout,
    pub values: Buffer<f64>,
    pattern: Rc<(Buffer<i32>, Buffer<i32>)>,
}

impl Blocks {
    /// `pattern` may be that of a matrix with the same one.
    pub fn new(vendor: &Vendor, a: &Bsr, layout: Layout, pattern: Option<&Blocks>) -> Result<Self> {
        let device = &vendor.device;
        let pattern = match pattern {
            Some(other) => other.pattern.clone(),
            None => {
                let rows: Vec<i32> = a.row_ptr().iter().map(|&p| p as i32).collect();
                let columns: Vec<i32> = a.col().iter().map(|&c| c as i32).collect();
                Rc::new((device.upload(&rows, "row pointers")?, device.upload(&columns, "columns")?))
            }
        };
        let b = a.block();
        let values = match layout {
            Layout::Rows => device.upload(a.values(), "values")?,
            Layout::Columns => {
                let mut turned = vec![0.0; a.values().len()];
                for (to, from) in turned.chunks_exact_mut(b * b).zip(a.values().chunks_exact(b * b)) {
                    for r in 0..b {
                        for c in 0..b {
                            to[c * b + r] = from[r * b + c];
                        }
                    }
                }
                device.upload(&turned, "values")?
            }
        };
        let (rows, columns) = (a.block_rows(), a.block_columns());
        Ok(Self { rows, columns, block: b, count: a.blocks(), layout, values, pattern })
    }

    /// Another copy, for a set of buffers of its own.
    fn again(&self, vendor: &Vendor) -> Result<Self> {
        let device = &vendor.device;
        let copy = |from: &Buffer<i32>| -> Result<Buffer<i32>> {
            let mut to = device.zeros(from.len(), "a pattern")?;
            device.copy(from, &mut to, from.len())?;
            Ok(to)
        };
        let mut values = vendor.zeros(self.values.len())?;
        device.copy(&self.values, &mut values, self.values.len())?;
        let pattern = Rc::new((copy(&self.pattern.0)?, copy(&self.pattern.1)?));
        Ok(Self { values, pattern, ..*self })
    }

    /// Addresses of row pointers and columns.
    pub fn pattern(&self) -> (u64, u64) {
        (self.pattern.0.pointer(), self.pattern.1.pointer())
    }

    fn direction(&self) -> sparse::cusparseDirection_t {
        self.layout.direction()
    }

    /// y = A x + β y by `cusparseDbsrmv`.
    pub fn bsrmv(&self, vendor: &Vendor, x: u64, beta: f64, y: u64) -> Result<()> {
        let (rows, columns) = self.pattern();
        let sizes = [self.rows, self.columns, self.count, self.block];
        bsrmv(vendor, sizes, self.layout, [rows, columns, self.values.pointer()], x, beta, y)
    }

    /// Y = A X + β Y for s vectors by `cusparseDbsrmm`.
    fn bsrmm(&self, vendor: &Vendor, s: usize, x: u64, beta: f64, y: u64) -> Result<()> {
        let (n, count, b) = (self.rows as i32, self.count as i32, self.block as i32);
        let (rows, columns) = self.pattern();
        let op = sparse::cusparseOperation_t::CUSPARSE_OPERATION_NON_TRANSPOSE;
        // SAFETY: buffers hold what the sizes say.
        let done = unsafe {
            sparse::cusparseDbsrmm(
                vendor.handle(),
                self.direction(),
                op,
                op,
                n,
                s as i32,
                n,
                count,
                &1.0,
                vendor.matrix,
                self.values.pointer() as _,
                rows as _,
                columns as _,
                b,
                x as _,
                n * b,
                &beta,
                y as _,
                n * b,
            )
        };
        vendor.sparse("cusparseDbsrmm", done)
    }
}

/// One set of buffers.
pub(super) struct Set {
    pub blocks: [Blocks; 2],
    pub x: Buffer<f64>,
    pub y: Buffer<f64>,
}

/// Several sets of buffers, vectors stage after stage, and the one intermediate vector X̃.
pub(super) struct Sets {
    vendor: Rc<Vendor>,
    stages: usize,
    pub sets: Vec<Set>,
    pub middle: Buffer<f64>,
}

impl Sets {
    pub fn new(vendor: &Rc<Vendor>, k: &KroneckerSum, layout: Layout, sets: usize) -> Result<Self> {
        let m = Blocks::new(vendor, &k.m, layout, None)?;
        let l = Blocks::new(vendor, &k.l, layout, k.m.same_pattern(&k.l).then_some(&m))?;
        let n = k.rows();
        let mut all = vec![Set { blocks: [m, l], x: vendor.zeros(n)?, y: vendor.zeros(n)? }];
        while all.len() < sets {
            let [m, l] = &all[0].blocks;
            let blocks = [m.again(vendor)?, l.again(vendor)?];
            all.push(Set { blocks, x: vendor.zeros(n)?, y: vendor.zeros(n)? });
        }
        Ok(Self { vendor: vendor.clone(), stages: k.stages(), sets: all, middle: vendor.zeros(n)? })
    }
    pub fn write(&mut self, x: &[f64]) -> Result<()> {
        let staged = to_stage_by_stage(x, self.stages);
        for set in &mut self.sets {
            self.vendor.device.write(&staged, &mut set.x, 0)?;
        }
        self.vendor.device.wait()
    }
    pub fn poison(&mut self, set: usize) -> Result<()> {
        self.vendor.fill(self.middle.pointer(), self.middle.len(), 0xFF)?;
        let y = &self.sets[set].y;
        self.vendor.fill(y.pointer(), y.len(), 0xFF)
    }
    pub fn read(&self, set: usize) -> Result<Vec<f64>> {
        let y = &self.sets[set].y;
        let mut host = vec![0.0; y.len()];
        self.vendor.device.read(y, 0, &mut host)?;
        Ok(from_stage_by_stage(&host, self.stages))
    }
}

/// CU-Solver's product: memset and s² `cublasDaxpy`, then s `cusparseDbsrmv`, for M and then for L.
pub(super) struct CuSolver {
    vendor: Rc<Vendor>,
    coefficients: [Vec<f64>; 2],
    stages: usize,
    sets: Sets,
    /// Block size 1, which bsrmv does not take, goes through the CSR product.
    scalar: Option<[SpMv; 2]>,
}

impl CuSolver {
    pub fn new(vendor: &Rc<Vendor>, k: &KroneckerSum, layout: Layout, sets: usize) -> Result<Self> {
        let scaled = k.b.values().iter().map(|v| k.tau * v).collect();
        let sets = Sets::new(vendor, k, layout, if k.block() == 1 { 1 } else { sets })?;
        let scalar = match k.block() {
            1 => {
                let new = |t: usize| SpMv::best(vendor, &sets.sets[0].blocks[t]);
                Some([new(0)?, new(1)?])
            }
            _ => None,
        };
        let coefficients = [k.a.values().to_vec(), scaled];
        Ok(Self { vendor: vendor.clone(), coefficients, stages: k.stages(), sets, scalar })
    }

    /// y = (A⊗M + τB⊗L)x with vectors at device addresses.
    pub fn multiply(&self, set: usize, x: u64, y: u64) -> Result<()> {
        let (v, s) = (&self.vendor, self.stages);
        let n = self.sets.middle.len() / s;
        let at = |base: u64, stage: usize| base + 8 * (stage * n) as u64;
        let middle = self.sets.middle.pointer();
        for t in 0..2 {
            v.fill(middle, n * s, 0)?;
            for i in 0..s {
                for j in 0..s {
                    v.axpy(n, self.coefficients[t][i * s + j], at(x, j), at(middle, i))?;
                }
            }
            for i in 0..s {
                let (x, y, beta) = (at(middle, i), at(y, i), t as f64);
                match &self.scalar {
                    Some(scalar) => scalar[t].run(x, beta, y)?,
                    None => self.sets.sets[set].blocks[t].bsrmv(v, x, beta, y)?,
                }
            }
        }
        Ok(())
    }

    fn set(&self, set: usize) -> usize {
        set % self.sets.sets.len()
    }
}

impl Product for CuSolver {
    fn name(&self) -> String {
        "CU-Solver (axpy + bsrmv)".into()
    }
    fn notes(&self) -> String {
        match &self.scalar {
            Some(scalar) => format!("SpMV {}", scalar[0].notes()),
            None => format!("blocks by {:?}", self.sets.sets[0].blocks[0].layout).to_lowercase(),
        }
    }
    fn write(&mut self, x: &[f64]) -> Result<()> {
        self.sets.write(x)
    }
    fn poison(&mut self, set: usize) -> Result<()> {
        self.sets.poison(self.set(set))
    }
    fn run(&mut self, set: usize) -> Result<()> {
        let one = &self.sets.sets[self.set(set)];
        self.multiply(self.set(set), one.x.pointer(), one.y.pointer())
    }
    fn read(&mut self, set: usize) -> Result<Vec<f64>> {
        self.sets.read(self.set(set))
    }
}

/// X̃ = X Aᵀ by one gemm and Y = M X̃ by bsrmm, then the same with L.
pub(super) struct Bsrmm {
    vendor: Rc<Vendor>,
    coefficients: [Buffer<f64>; 2],
    stages: usize,
    sets: Sets,
}

impl Bsrmm {
    pub fn new(vendor: &Rc<Vendor>, k: &KroneckerSum, layout: Layout, sets: usize) -> Result<Self> {
        let scaled: Vec<f64> = k.b.values().iter().map(|v| k.tau * v).collect();
        let device = &vendor.device;
        let coefficients = [device.upload(k.a.values(), "A")?, device.upload(&scaled, "B")?];
        let sets = Sets::new(vendor, k, layout, sets)?;
        Ok(Self { vendor: vendor.clone(), coefficients, stages: k.stages(), sets })
    }
}

impl Product for Bsrmm {
    fn name(&self) -> String {
        "cuSPARSE bsrmm ×2 (gemm before)".into()
    }
    fn notes(&self) -> String {
        format!("blocks by {:?}", self.sets.sets[0].blocks[0].layout).to_lowercase()
    }
    fn write(&mut self, x: &[f64]) -> Result<()> {
        self.sets.write(x)
    }
    fn poison(&mut self, set: usize) -> Result<()> {
        self.sets.poison(set)
    }
    fn run(&mut self, set: usize) -> Result<()> {
        let (one, middle) = (&self.sets.sets[set], self.sets.middle.pointer());
        let n = self.sets.middle.len() / self.stages;
        for t in 0..2 {
            let c = self.coefficients[t].pointer();
            self.vendor.combine_stages(n, self.stages, one.x.pointer(), c, middle)?;
            one.blocks[t].bsrmm(&self.vendor, self.stages, middle, t as f64, one.y.pointer())?;
        }
        Ok(())
    }
    fn read(&mut self, set: usize) -> Result<Vec<f64>> {
        self.sets.read(set)
    }
}
