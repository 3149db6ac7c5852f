//! Products by the vendor's libraries: CU-Solver's (Alg. 4 on one GPU), bsrmm, and the assembled matrix.

use super::calls::{OP, call};
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
    pub fn direction(self) -> sparse::cusparseDirection_t {
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
    let (direction, matrix) = (layout.direction(), vendor.matrix);
    let (values, row_ptr, columns, x, y) = (values as _, row_ptr as _, columns as _, x as _, y as _);
    call!(
        vendor,
        cusparseDbsrmv(direction, OP, n, m, count, &1.0, matrix, values, row_ptr, columns, b, x, &beta, y)
    )
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

    /// y = A x + β y by `cusparseDbsrmv`.
    pub fn bsrmv(&self, vendor: &Vendor, x: u64, beta: f64, y: u64) -> Result<()> {
        let (rows, columns) = self.pattern();
        let sizes = [self.rows, self.columns, self.count, self.block];
        bsrmv(vendor, sizes, self.layout, [rows, columns, self.values.pointer()], x, beta, y)
    }

    /// Y = A X + β Y for s vectors by `cusparseDbsrmm`.
    fn bsrmm(&self, vendor: &Vendor, s: usize, x: u64, beta: f64, y: u64) -> Result<()> {
        let [n, s, count, b] = [self.rows, s, self.count, self.block].map(|size| size as i32);
        let ((rows, columns), values, ld) = (self.pattern(), self.values.pointer() as _, n * b);
        let (how, matrix, rows, columns) = (self.layout.direction(), vendor.matrix, rows as _, columns as _);
        let (x, y) = (x as _, y as _);
        call!(
            vendor,
            cusparseDbsrmm(
                how, OP, OP, n, s, n, count, &1.0, matrix, values, rows, columns, b, x, ld, &beta, y, ld
            )
        )
    }
}

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
    /// One of them; where there are fewer than are wanted, some again.
    pub fn set(&self, set: usize) -> &Set {
        &self.sets[set % self.sets.len()]
    }
    fn layout(&self) -> String {
        format!("blocks by {:?}", self.sets[0].blocks[0].layout).to_lowercase()
    }
}

/// A product on several sets of buffers.
pub(super) trait OnSets {
    fn name(&self) -> String;
    fn notes(&self) -> String;
    fn sets(&self) -> &Sets;
    fn sets_mut(&mut self) -> &mut Sets;
    fn run(&self, set: &Set) -> Result<()>;
}

impl<P: OnSets> Product for P {
    fn name(&self) -> String {
        OnSets::name(self)
    }
    fn notes(&self) -> String {
        OnSets::notes(self)
    }
    fn write(&mut self, x: &[f64]) -> Result<()> {
        self.sets_mut().write(x)
    }
    fn poison(&mut self, set: usize) -> Result<()> {
        let sets = self.sets();
        sets.vendor.poison(&sets.middle)?;
        sets.vendor.poison(&sets.set(set).y)
    }
    fn run(&mut self, set: usize) -> Result<()> {
        OnSets::run(self, self.sets().set(set))
    }
    fn read(&mut self, set: usize) -> Result<Vec<f64>> {
        let sets = self.sets();
        Ok(from_stage_by_stage(&sets.vendor.read(&sets.set(set).y)?, sets.stages))
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
        self.multiply_by(self.sets.set(set), x, y)
    }

    fn multiply_by(&self, set: &Set, x: u64, y: u64) -> Result<()> {
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
                    None => set.blocks[t].bsrmv(v, x, beta, y)?,
                }
            }
        }
        Ok(())
    }
}

impl OnSets for CuSolver {
    fn name(&self) -> String {
        "CU-Solver (axpy + bsrmv)".into()
    }
    fn notes(&self) -> String {
        self.scalar
            .as_ref()
            .map_or_else(|| self.sets.layout(), |scalar| format!("SpMV {}", scalar[0].notes()))
    }
    fn sets(&self) -> &Sets {
        &self.sets
    }
    fn sets_mut(&mut self) -> &mut Sets {
        &mut self.sets
    }
    fn run(&self, set: &Set) -> Result<()> {
        self.multiply_by(set, set.x.pointer(), set.y.pointer())
    }
}

/// A and τB on the device.
pub(super) fn coefficients(vendor: &Vendor, k: &KroneckerSum) -> Result<[Buffer<f64>; 2]> {
    let scaled: Vec<f64> = k.b.values().iter().map(|v| k.tau * v).collect();
    Ok([vendor.device.upload(k.a.values(), "A")?, vendor.device.upload(&scaled, "B")?])
}

/// X̃ = X Aᵀ by one gemm and Y = M X̃ by bsrmm, then the same with L.
pub(super) struct Bsrmm {
    vendor: Rc<Vendor>,
    coefficients: [Buffer<f64>; 2],
    sets: Sets,
}

impl Bsrmm {
    pub fn new(vendor: &Rc<Vendor>, k: &KroneckerSum, layout: Layout, sets: usize) -> Result<Self> {
        let (coefficients, sets) = (coefficients(vendor, k)?, Sets::new(vendor, k, layout, sets)?);
        Ok(Self { vendor: vendor.clone(), coefficients, sets })
    }
}

impl OnSets for Bsrmm {
    fn name(&self) -> String {
        "cuSPARSE bsrmm ×2 (gemm before)".into()
    }
    fn notes(&self) -> String {
        self.sets.layout()
    }
    fn sets(&self) -> &Sets {
        &self.sets
    }
    fn sets_mut(&mut self) -> &mut Sets {
        &mut self.sets
    }
    fn run(&self, set: &Set) -> Result<()> {
        let (middle, s) = (self.sets.middle.pointer(), self.sets.stages);
        let n = self.sets.middle.len() / s;
        for t in 0..2 {
            self.vendor.combine_stages(n, s, set.x.pointer(), self.coefficients[t].pointer(), middle)?;
            set.blocks[t].bsrmm(&self.vendor, s, middle, t as f64, set.y.pointer())?;
        }
        Ok(())
    }
}
