//! Point-block matrices on the device, and products with them by the vendor's libraries: CU-Solver's (Alg. 4)
//! and bsrmm.

use super::calls::{OP, call};
use super::csr::SpMv;
use super::fastest;
use super::vendor::Vendor;
use crate::platform::{Apply, Order};
use cudarc::cusparse::sys as sparse;
use cudarc::cusparse::sys::cusparseSpMVAlg_t as Algorithm;
use krylith_core::Result;
use krylith_core::device::cuda::Buffer;
use krylith_core::matrix::{Bsr, KroneckerSum};
use krylith_core::operator::Terms;
use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Mutex;

/// Storage order of the numbers of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    Rows,
    Columns,
}

impl Layout {
    pub const BOTH: [Layout; 2] = [Layout::Rows, Layout::Columns];

    pub fn direction(self) -> sparse::cusparseDirection_t {
        match self {
            Layout::Rows => sparse::cusparseDirection_t::CUSPARSE_DIRECTION_ROW,
            Layout::Columns => sparse::cusparseDirection_t::CUSPARSE_DIRECTION_COLUMN,
        }
    }

    pub fn notes(self) -> String {
        format!("blocks by {self:?}").to_lowercase()
    }
}

/// A point-block matrix on the host in the vendor's form, with 32-bit indices.
pub(super) struct HostBlocks<'a> {
    a: &'a Bsr,
    layout: Layout,
    row_ptr: Vec<i32>,
    columns: Vec<i32>,
    values: Cow<'a, [f64]>,
}

impl<'a> HostBlocks<'a> {
    pub fn new(a: &'a Bsr, layout: Layout) -> Self {
        Self {
            a,
            layout,
            row_ptr: a.row_ptr().iter().map(|&p| p as i32).collect(),
            columns: a.col().iter().map(|&c| c as i32).collect(),
            values: turned(a, layout),
        }
    }

    pub fn upload(&self, vendor: &Vendor) -> Result<Blocks> {
        let device = &vendor.device;
        let rows = device.upload(&self.row_ptr, "row pointers")?;
        let pattern = Rc::new((rows, device.upload(&self.columns, "columns")?));
        Blocks::of(vendor, self.a, self.layout, &self.values, pattern)
    }
}

/// Returns the values of a matrix in a layout of its blocks.
fn turned(a: &Bsr, layout: Layout) -> Cow<'_, [f64]> {
    let b = a.block();
    if layout == Layout::Rows || b == 1 {
        return Cow::Borrowed(a.values());
    }
    let block = |from: &[f64]| -> Vec<f64> { (0..b * b).map(|k| from[k % b * b + k / b]).collect() };
    a.values().chunks_exact(b * b).flat_map(block).collect()
}

/// A point-block matrix on the device.
pub(super) struct Blocks {
    pub rows: usize,
    pub columns: usize,
    pub block: usize,
    pub count: usize,
    pub layout: Layout,
    pub values: Buffer<f64>,
    /// Row pointers and columns.
    pub pattern: Rc<(Buffer<i32>, Buffer<i32>)>,
}

impl Blocks {
    /// Uploads M and L, which share their pattern if they have the same.
    pub fn pair(vendor: &Vendor, [m, l]: [&Bsr; 2], layout: Layout) -> Result<[Self; 2]> {
        let first = HostBlocks::new(m, layout).upload(vendor)?;
        let second = match m.same_pattern(l) {
            true => Self::of(vendor, l, layout, &turned(l, layout), first.pattern.clone())?,
            false => HostBlocks::new(l, layout).upload(vendor)?,
        };
        Ok([first, second])
    }

    fn of(
        vendor: &Vendor,
        a: &Bsr,
        layout: Layout,
        values: &[f64],
        pattern: Rc<(Buffer<i32>, Buffer<i32>)>,
    ) -> Result<Self> {
        let (rows, columns, block, count) = (a.block_rows(), a.block_columns(), a.block(), a.blocks());
        let values = vendor.device.upload(values, "values")?;
        Ok(Self { rows, columns, block, count, layout, values, pattern })
    }

    /// Returns another copy, for a set of buffers of its own.
    fn again(&self, vendor: &Vendor) -> Result<Self> {
        let device = &vendor.device;
        let copy = |from: &Buffer<i32>| -> Result<Buffer<i32>> {
            let mut to = device.zeros(from.len(), "a pattern")?;
            device.copy(from, &mut to, from.len())?;
            Ok(to)
        };
        let pattern = Rc::new((copy(&self.pattern.0)?, copy(&self.pattern.1)?));
        Ok(Self { pattern, ..self.refilled(vendor)? })
    }

    /// Returns the same pattern with a copy of the values, which a factorisation overwrites.
    pub fn refilled(&self, vendor: &Vendor) -> Result<Self> {
        let mut values = vendor.zeros(self.values.len())?;
        vendor.device.copy(&self.values, &mut values, self.values.len())?;
        Ok(Self { values, pattern: self.pattern.clone(), ..*self })
    }

    /// Returns the addresses of row pointers, columns and values.
    pub fn addresses(&self) -> [u64; 3] {
        [self.pattern.0.pointer(), self.pattern.1.pointer(), self.values.pointer()]
    }

    /// Computes y = A x + β y by `cusparseDbsrmv`.
    pub fn bsrmv(&self, vendor: &Vendor, x: u64, beta: f64, y: u64) -> Result<()> {
        let [n, m, count, b] = [self.rows, self.columns, self.count, self.block].map(|size| size as i32);
        let (how, matrix, [rows, columns, values]) =
            (self.layout.direction(), vendor.matrix, self.addresses());
        let (values, rows, columns, x, y) = (values as _, rows as _, columns as _, x as _, y as _);
        call!(
            vendor,
            cusparseDbsrmv(how, OP, n, m, count, &1.0, matrix, values, rows, columns, b, x, &beta, y)
        )
    }

    /// Computes Y = A X + β Y for s vectors by `cusparseDbsrmm`.
    fn bsrmm(&self, vendor: &Vendor, s: usize, x: u64, beta: f64, y: u64) -> Result<()> {
        let [n, s, count, b] = [self.rows, s, self.count, self.block].map(|size| size as i32);
        let (how, matrix, [rows, columns, values]) =
            (self.layout.direction(), vendor.matrix, self.addresses());
        let (values, rows, columns, x, y, ld) = (values as _, rows as _, columns as _, x as _, y as _, n * b);
        call!(
            vendor,
            cusparseDbsrmm(
                how, OP, OP, n, s, n, count, &1.0, matrix, values, rows, columns, b, x, ld, &beta, y, ld
            )
        )
    }
}

/// Returns the layout with the faster `cusparseDbsrmv`, timed once per block size and number of blocks in a
/// process.
pub(super) fn faster_layout(vendor: &Rc<Vendor>, a: &Bsr) -> Result<Layout> {
    static KNOWN: Mutex<Vec<((usize, usize), Layout)>> = Mutex::new(Vec::new());
    let known = || KNOWN.lock().unwrap_or_else(|e| e.into_inner());
    let key = (a.block(), a.blocks());
    if key.0 == 1 {
        return Ok(Layout::Rows);
    }
    if let Some(layout) = known().iter().find(|l| l.0 == key).map(|l| l.1) {
        return Ok(layout);
    }
    let (x, y) = (vendor.zeros(a.columns())?, vendor.zeros(a.rows())?);
    let new = |layout| HostBlocks::new(a, layout).upload(vendor);
    let run = |blocks: &Blocks| blocks.bsrmv(vendor, x.pointer(), 0.0, y.pointer());
    let layout = fastest(vendor, Layout::BOTH, new, run)?.1.layout;
    known().push((key, layout));
    Ok(layout)
}

/// A matrix with the vendor's product: bsrmv, or SpMV for scalar matrices, which bsrmv does not support.
pub(super) struct Matrix {
    // Declared before the arrays, so that descriptors are dropped first.
    spmv: Option<SpMv>,
    pub blocks: Rc<Blocks>,
    vendor: Rc<Vendor>,
}

impl Matrix {
    /// Creates the product with the faster layout or algorithm.
    pub fn best(vendor: &Rc<Vendor>, a: &Bsr) -> Result<Self> {
        Self::of(vendor, HostBlocks::new(a, faster_layout(vendor, a)?).upload(vendor)?)
    }

    /// Creates the product of given blocks; scalar matrices use the faster algorithm.
    fn of(vendor: &Rc<Vendor>, blocks: Blocks) -> Result<Self> {
        let algorithm = match blocks.block {
            1 => Some(SpMv::faster(vendor, &blocks)?),
            _ => None,
        };
        Self::with(vendor, Rc::new(blocks), algorithm)
    }

    /// Creates the product with a given algorithm for scalar matrices.
    pub fn with(vendor: &Rc<Vendor>, blocks: Rc<Blocks>, algorithm: Option<Algorithm>) -> Result<Self> {
        let [rows, columns, values] = blocks.addresses();
        // No vector is read before a product, so any address is valid.
        let arrays = [rows, columns, values, values];
        let new = |algorithm| SpMv::new(vendor, blocks.rows, blocks.count, arrays, algorithm, true);
        Ok(Self { spmv: algorithm.map(new).transpose()?, blocks, vendor: vendor.clone() })
    }

    /// Computes y = A x + β y.
    pub fn multiply(&self, x: u64, beta: f64, y: u64) -> Result<()> {
        match &self.spmv {
            Some(spmv) => spmv.run(x, beta, y),
            None => self.blocks.bsrmv(&self.vendor, x, beta, y),
        }
    }

    /// Returns the algorithm of a scalar matrix.
    pub fn algorithm(&self) -> Option<Algorithm> {
        self.spmv.as_ref().map(|spmv| spmv.algorithm)
    }

    pub fn notes(&self) -> String {
        match self.algorithm() {
            Some(Algorithm::CUSPARSE_SPMV_CSR_ALG2) => "CSR_ALG2".into(),
            Some(_) => "CSR_ALG1".into(),
            None => self.blocks.layout.notes(),
        }
    }
}

/// A map between addresses, with its own vectors in its own order.
pub(super) struct OnDevice<'a> {
    vendor: Rc<Vendor>,
    order: Order<'a>,
    sets: Vec<[Rc<Buffer<f64>>; 2]>,
    /// The intermediate vector of a product.
    middle: Option<Rc<Buffer<f64>>>,
    run: Box<dyn Fn(usize, u64, u64) -> Result<()> + 'a>,
}

impl<'a> OnDevice<'a> {
    /// Creates the map; `run` gets the number of a set and the addresses of x and y, with `n` numbers each.
    pub fn new(
        vendor: &Rc<Vendor>,
        (order, n, sets): (Order<'a>, usize, usize),
        middle: Option<Rc<Buffer<f64>>>,
        run: impl Fn(usize, u64, u64) -> Result<()> + 'a,
    ) -> Result<Box<Self>> {
        let set = |_| Ok([Rc::new(vendor.zeros(n)?), Rc::new(vendor.zeros(n)?)]);
        let sets = (0..sets).map(set).collect::<Result<_>>()?;
        Ok(Box::new(Self { vendor: vendor.clone(), order, sets, middle, run: Box::new(run) }))
    }

    /// Creates the map on shared vectors, in the order of the given matrix.
    pub fn shared(
        vendor: &Rc<Vendor>,
        vectors: [Rc<Buffer<f64>>; 2],
        run: impl Fn(u64, u64) -> Result<()> + 'a,
    ) -> Box<Self> {
        let run = Box::new(move |_: usize, x, y| run(x, y));
        Box::new(Self { vendor: vendor.clone(), order: Order::Given, sets: vec![vectors], middle: None, run })
    }

    /// Returns the vectors of a set; if there are fewer sets than requested, they repeat.
    fn set(&self, set: usize) -> &[Rc<Buffer<f64>>; 2] {
        &self.sets[set % self.sets.len()]
    }
}

impl Apply for OnDevice<'_> {
    fn write(&mut self, x: &[f64]) -> Result<()> {
        let sorted = self.order.sort(x);
        self.sets.iter().try_for_each(|set| self.vendor.write(&sorted, set[0].pointer()))
    }
    fn poison(&mut self, set: usize) -> Result<()> {
        self.middle.iter().try_for_each(|middle| self.vendor.poison(middle))?;
        self.vendor.poison(&self.set(set)[1])
    }
    fn run(&mut self, set: usize) -> Result<()> {
        let [x, y] = self.set(set);
        (self.run)(set, x.pointer(), y.pointer())
    }
    fn read(&mut self, set: usize) -> Result<Vec<f64>> {
        Ok(self.order.unsort(&self.vendor.read(&self.set(set)[1])?))
    }
}

/// CU-Solver's product, with vectors stored stage by stage: memset and s² `cublasDaxpy` (x̃ = X Aᵀ), then s
/// products, for M and then for L.
pub(super) struct CuSolver {
    vendor: Rc<Vendor>,
    pub block: usize,
    pub stages: usize,
    /// Numbers per stage of y.
    pub q: usize,
    /// Stride between stages of x̃: it includes ghosts if the matrices have columns for them.
    pub p: usize,
    /// A and τB, row by row.
    coefficients: [Vec<f64>; 2],
    /// M and L; with several sets of buffers in rotation, copies of them.
    sets: Vec<[Matrix; 2]>,
    /// x̃; one for both matrices if they are combined before either is multiplied.
    middle: Rc<Buffer<f64>>,
    both: bool,
}

impl CuSolver {
    pub fn new(vendor: &Rc<Vendor>, k: &KroneckerSum, sets: usize) -> Result<Self> {
        let sets = if k.block() == 1 { 1 } else { sets };
        Self::of(vendor, &Terms::kronecker(k), [&k.m, &k.l], sets, false)
    }

    /// Creates the product of a rank's matrices; `terms` has the coefficients.
    pub fn of(
        vendor: &Rc<Vendor>,
        terms: &Terms,
        matrices: [&Bsr; 2],
        sets: usize,
        both: bool,
    ) -> Result<Self> {
        let (block, stages) = (matrices[0].block(), terms.stages());
        let (q, p) = (matrices[0].rows(), matrices[0].columns());
        let mut all = vec![Blocks::pair(vendor, matrices, faster_layout(vendor, matrices[0])?)?];
        while all.len() < sets {
            all.push([all[0][0].again(vendor)?, all[0][1].again(vendor)?]);
        }
        let set = |[m, l]: [Blocks; 2]| Ok([Matrix::of(vendor, m)?, Matrix::of(vendor, l)?]);
        Ok(Self {
            coefficients: coefficients(terms),
            sets: all.into_iter().map(set).collect::<Result<_>>()?,
            middle: Rc::new(vendor.zeros(if both { 2 } else { 1 } * stages * p)?),
            vendor: vendor.clone(),
            block,
            stages,
            q,
            p,
            both,
        })
    }

    /// Returns the address of stage i of x̃ for matrix t.
    pub fn middle(&self, t: usize, i: usize) -> u64 {
        self.middle.at((if self.both { t * self.stages } else { 0 } + i) * self.p)
    }
    /// Computes x̃ = X Aᵀ for matrix t.
    pub fn combine(&self, t: usize, x: u64) -> Result<()> {
        let (v, s, q) = (&self.vendor, self.stages, self.q);
        v.fill(self.middle(t, 0), s * self.p, 0)?;
        for i in 0..s {
            for j in 0..s {
                v.axpy(q, self.coefficients[t][i * s + j], x + 8 * (j * q) as u64, self.middle(t, i))?;
            }
        }
        Ok(())
    }
    /// Computes stage i of y: matrix t times x̃; the second matrix adds.
    pub fn product(&self, set: usize, t: usize, i: usize, y: u64) -> Result<()> {
        let matrices = &self.sets[set % self.sets.len()];
        matrices[t].multiply(self.middle(t, i), t as f64, y + 8 * (i * self.q) as u64)
    }
    /// Computes y = (A⊗M + τB⊗L)x with vectors at device addresses.
    pub fn multiply(&self, set: usize, x: u64, y: u64) -> Result<()> {
        for t in 0..2 {
            self.combine(t, x)?;
            (0..self.stages).try_for_each(|i| self.product(set, t, i, y))?;
        }
        Ok(())
    }

    pub fn layout(&self) -> Layout {
        self.sets[0][0].blocks.layout
    }
    pub fn notes(&self) -> String {
        let matrix = &self.sets[0][0];
        format!("{}{}", if self.block == 1 { "SpMV " } else { "" }, matrix.notes())
    }
    /// Returns x̃, to be poisoned.
    pub fn through(&self) -> Option<Rc<Buffer<f64>>> {
        Some(self.middle.clone())
    }
}

/// Returns A and τB, row by row.
pub(super) fn coefficients(terms: &Terms) -> [Vec<f64>; 2] {
    std::array::from_fn(|t| terms.terms()[t].0.values().to_vec())
}

/// Uploads A and τB.
pub(super) fn uploaded(vendor: &Vendor, terms: &Terms) -> Result<[Buffer<f64>; 2]> {
    let [a, b] = coefficients(terms);
    Ok([vendor.device.upload(&a, "A")?, vendor.device.upload(&b, "B")?])
}

/// Rotating sets of matrices with the coefficients on the device, and the intermediate vector X̃.
pub(super) struct Pairs {
    pub vendor: Rc<Vendor>,
    pub stages: usize,
    pub coefficients: [Buffer<f64>; 2],
    pub sets: Vec<[Blocks; 2]>,
    pub middle: Rc<Buffer<f64>>,
}

impl Pairs {
    pub fn new(vendor: &Rc<Vendor>, k: &KroneckerSum, layout: Layout, sets: usize) -> Result<Self> {
        let mut all = vec![Blocks::pair(vendor, [&k.m, &k.l], layout)?];
        while all.len() < sets {
            all.push([all[0][0].again(vendor)?, all[0][1].again(vendor)?]);
        }
        Ok(Self {
            stages: k.stages(),
            coefficients: uploaded(vendor, &Terms::kronecker(k))?,
            sets: all,
            middle: Rc::new(vendor.zeros(k.rows())?),
            vendor: vendor.clone(),
        })
    }

    /// Computes X̃ = X Aᵀ by one gemm and Y = M X̃ by bsrmm, then the same with L.
    pub fn bsrmm(&self, set: usize, x: u64, y: u64) -> Result<()> {
        let (middle, s) = (self.middle.pointer(), self.stages);
        for t in 0..2 {
            let coefficients = self.coefficients[t].pointer();
            self.vendor.combine_stages(self.middle.len() / s, s, x, coefficients, middle)?;
            self.sets[set][t].bsrmm(&self.vendor, s, middle, t as f64, y)?;
        }
        Ok(())
    }
}
