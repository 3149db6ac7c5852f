//! The levels of a cycle in f32: matrices, smoothers and transfers.

use super::super::super::Cuda;
use super::super::super::csr::{CsrPattern, NarrowCsr};
use super::super::super::dia::NarrowDia;
use super::super::super::driver::{Buffer, Device};
use super::super::super::launch::{Entry, Function};
use super::super::super::smooth::Smooth;
use super::super::apply::{amg_transfer, transfer_shape};
use super::short::round_weights;
use super::{
    MOST_BLOCK, Step, WHAT, grid, narrow_again, narrow_block, narrow_block_column, narrow_block_first,
    narrow_block_unit, narrow_range, narrowed, of_blocks,
};
use crate::Result;
use crate::matrix::Bsr;
use crate::precond::range::middle;
use crate::precond::{BlockDiagonal, Diagonal, NarrowLevel};
use crate::space::{Precision, PrecondPrecision, Space};
use std::sync::Arc;

/// Exponent of 1.
const BIAS: i32 = 1023;
/// Fewest blocks of a row for each lane.
const EACH: usize = 2;

/// One level. u and v hold x and intermediate results in turn.
pub(super) struct Level {
    pub rows: usize,
    pub smoother: Option<Smoother>,
    /// P and R; `None` on the last level.
    pub transfer: Option<[Weights; 2]>,
    pub inverse: Option<Buffer<f32>>,
    pub b: Buffer<f32>,
    pub u: Buffer<f32>,
    pub v: Buffer<f32>,
}

/// The smoother of a level, with its product.
pub(super) struct Smoother {
    product: Product,
    coefficient: Buffer<f64>,
    /// D⁻¹, by blocks.
    pub d: Buffer<f32>,
    p: Option<Buffer<f32>>,
    steps: Vec<[f64; 2]>,
    /// The numbers a and c of each step.
    pub coefficients: Buffer<f64>,
}

/// x, and the vector that takes the next result.
pub(super) type Two<'a> = (&'a Buffer<f32>, &'a Buffer<f32>);

/// The matrix of a level.
enum Product {
    Csr(NarrowCsr),
    Dia(NarrowDia),
    Blocks(Blocks, Function<narrow_block_first>),
}

/// A matrix of blocks.
struct Blocks {
    block: usize,
    rows: usize,
    lanes: usize,
    row_ptr: Arc<Buffer<i64>>,
    col: Arc<Buffer<u32>>,
    values: Buffer<f32>,
    function: Function<narrow_block>,
}

/// P or R.
pub(super) enum Weights {
    /// Weights of nodes, which apply to all of their unknowns.
    Nodes {
        rows: usize,
        order: usize,
        row_ptr: Arc<Buffer<i64>>,
        col: Arc<Buffer<u32>>,
        values: Buffer<f32>,
        function: Function<amg_transfer>,
    },
    /// Blocks that act on single unknowns, with a coefficient of 1.
    Unknowns(UnitBlocks),
    /// Weights of single unknowns, with a coefficient of 1.
    Scalars(NarrowCsr, Buffer<f64>),
}

/// A matrix of blocks with its coefficient.
pub(super) struct UnitBlocks(Blocks, Buffer<f64>);

impl Level {
    /// Returns `None` if the matrix has no product in f32.
    pub fn new(
        from: &NarrowLevel<Cuda>,
        shift: i32,
        finest: bool,
        stored: PrecondPrecision,
    ) -> Result<Option<Self>> {
        let (device, rows) = (from.space.device(), from.space.vector_len());
        let vector = || device.zeros::<f32>(rows, WHAT);
        let mut inverse = None;
        if let Some(product) = from.inverse {
            let Some(values) = product.csr.as_ref().and_then(|csr| csr.dense_values(rows)) else {
                return Ok(None);
            };
            inverse = Some(narrowed(device, values, -shift)?);
        }
        let mut smoother = None;
        if let Some((d, steps)) = from.smoother {
            let coefficient = device.upload(&[from.terms.terms[0].0[(0, 0)]], WHAT)?;
            let short = match stored {
                PrecondPrecision::Bf16 => Product::in_bf16(from, (shift, coefficient.pointer()), finest)?,
                PrecondPrecision::F64 | PrecondPrecision::F32 => None,
            };
            let (product, d) = match short {
                Some(both) => both,
                None => {
                    let Some(product) = Product::of(from, shift, finest)? else { return Ok(None) };
                    (product, diagonal(from, d, -shift)?)
                }
            };
            let numbers: Vec<f64> = steps.iter().flatten().copied().collect();
            smoother = Some(Smoother {
                product,
                coefficient,
                d,
                p: steps.iter().any(|[a, _]| *a != 0.0).then(vector).transpose()?,
                steps: steps.to_vec(),
                coefficients: device.upload(&numbers, WHAT)?,
            });
        }
        let order = from.terms.block();
        let short = order == 1 && smoother.as_ref().is_some_and(|of| of.product.is_in_bf16());
        let transfer = match from.transfer {
            Some(t) if short => Some(Weights::in_bf16(from.space, [&t.prolongation, &t.restriction])?),
            Some(t) => {
                let of = |w| Weights::new(from.space, w, order, from.nodal);
                match (of(&t.prolongation)?, of(&t.restriction)?) {
                    (Some(p), Some(r)) => Some([p, r]),
                    _ => return Ok(None),
                }
            }
            None => None,
        };
        Ok(Some(Self { rows, smoother, transfer, inverse, b: vector()?, u: vector()?, v: vector()? }))
    }

    /// Takes new values. Returns false if the arrays of the level have another length. P and R stay.
    pub fn update(&mut self, from: &NarrowLevel<Cuda>, shift: i32) -> Result<bool> {
        let device = from.space.device();
        if let (Some(own), Some(product)) = (&self.inverse, from.inverse) {
            let Some(values) = product.csr.as_ref().and_then(|csr| csr.dense_values(self.rows)) else {
                return Ok(false);
            };
            if !narrow_again(device, values, -shift, own)? {
                return Ok(false);
            }
        }
        let (Some(own), Some((d, _))) = (&mut self.smoother, from.smoother) else { return Ok(true) };
        device.write(&[from.terms.terms[0].0[(0, 0)]], &mut own.coefficient, 0)?;
        if own.product.is_in_bf16() {
            return own.product.update_in_bf16(from, (shift, own.coefficient.pointer()), &own.d);
        }
        fill_diagonal(from, d, -shift, &own.d)?;
        own.product.update(from, shift)
    }

    /// Makes the steps from number `from` on, each in the pass of its product. With `from_zero` the first
    /// pass also makes the step before it, from x = 0. With `result`, the last one writes to that address in
    /// f64, times 2 to the power of the number at the second address.
    pub fn steps<'a>(
        &'a self,
        on: &Cuda,
        of: &Smoother,
        mut at: Two<'a>,
        (from, from_zero): (usize, bool),
        result: Option<(u64, u64)>,
    ) -> Result<Two<'a>> {
        for k in from..of.steps.len() {
            let after_first = from == 1 && k == 1;
            let last = match of.steps[k][0] != 0.0 && k > 0 {
                false => 0,
                true if after_first => 1,
                true => 2,
            };
            let keeps = of.steps.get(k + 1).is_some_and(|[a, _]| *a != 0.0);
            let p = of.p.as_ref().filter(|_| keeps || last == 2).map_or(0, |p| p.pointer());
            let result = result.filter(|_| k + 1 == of.steps.len());
            let (to, exponent) = result.unwrap_or((at.1.pointer(), 0));
            let pass = Smooth {
                x: at.0.pointer(),
                b: self.b.pointer(),
                d: of.d.pointer(),
                p,
                a: of.coefficients.at(2 * k),
                c: of.coefficients.at(2 * k + 1),
                first: if from_zero && after_first { of.coefficients.at(1) } else { 0 },
                last,
                keeps: i32::from(keeps),
                exponent,
                own: 0,
            };
            of.product(on, pass, to)?;
            at = (at.1, at.0);
        }
        Ok(at)
    }

    /// True if the matrix is stored in bf16.
    pub fn is_in_bf16(&self) -> bool {
        self.smoother.as_ref().is_some_and(|of| of.product.is_in_bf16())
    }

    /// Returns the fewest bytes that one visit can move.
    pub fn bytes(&self) -> u64 {
        let n = self.rows as u64;
        let transfers = self.transfer.iter().flatten().map(Weights::bytes).sum::<u64>();
        match (&self.smoother, &self.inverse) {
            (Some(of), _) => {
                2 * of.steps.len() as u64 * (of.product.bytes() + 4 * (of.d.len() as u64 + 2 * n))
                    + transfers
                    + 8 * n
            }
            (None, inverse) => inverse.as_ref().map_or(0, |inverse| 4 * inverse.len() as u64),
        }
    }
}

impl Smoother {
    /// True if a pass can make the first two steps from zero.
    pub fn starts_in_product(&self) -> bool {
        self.steps.len() > 1 && matches!(self.product, Product::Dia(_))
    }

    /// Returns the kernel of the first step from zero with blocks.
    pub fn first_of_blocks(&self) -> Option<&Function<narrow_block_first>> {
        match &self.product {
            Product::Blocks(_, first) => Some(first),
            _ => None,
        }
    }

    /// True if the last step of the finest level can write in f64.
    pub fn writes_f64(&self) -> bool {
        !matches!(self.product, Product::Blocks(..))
    }

    /// Computes a residual or a smoother step, and writes it to `to`, which must not be x.
    pub fn product(&self, on: &Cuda, of: Smooth, to: u64) -> Result<()> {
        let coefficient = self.coefficient.pointer();
        match &self.product {
            Product::Csr(csr) => csr.smooth(on, coefficient, of, to),
            Product::Dia(dia) => dia.smooth(on, coefficient, Smooth { own: self.d.pointer(), ..of }, to),
            Product::Blocks(blocks, _) => blocks.run(on, &self.coefficient, of.into(), to),
        }
    }
}

impl Product {
    fn of(from: &NarrowLevel<Cuda>, shift: i32, finest: bool) -> Result<Option<Self>> {
        let (space, a) = (from.space, &from.terms.terms[0].1);
        if a.block() > 1 {
            let Some(blocks) = Blocks::new(space, a, shift)? else { return Ok(None) };
            let first = space.device().function(&of_blocks(narrow_block_first, a.block()))?;
            return Ok(Some(Self::Blocks(blocks, first)));
        }
        let Some(operator) = from.operator else { return Ok(None) };
        let (device, operator) = (space.device(), operator.borrow());
        match (&operator.product().dia, &operator.product().csr) {
            (Some(dia), _) => Ok(NarrowDia::of(device, dia, shift)?.map(Self::Dia)),
            (None, Some(csr)) => Ok(NarrowCsr::of(device, csr, shift, finest)?.map(Self::Csr)),
            (None, None) => Ok(None),
        }
    }

    /// Makes a product in bf16, with D⁻¹ of its smoother. Returns `None` if bf16 does not suit it, or for
    /// blocks.
    fn in_bf16(
        from: &NarrowLevel<Cuda>,
        times: (i32, u64),
        finest: bool,
    ) -> Result<Option<(Self, Buffer<f32>)>> {
        let Some(operator) = from.operator.filter(|_| from.terms.block() == 1) else { return Ok(None) };
        let (device, operator) = (from.space.device(), operator.borrow());
        match (&operator.product().dia, &operator.product().csr) {
            (Some(dia), _) => Ok(NarrowDia::in_bf16(device, dia, times)?.map(|(dia, d)| (Self::Dia(dia), d))),
            (None, Some(csr)) => {
                Ok(NarrowCsr::in_bf16(device, csr, times, finest)?.map(|(csr, d)| (Self::Csr(csr), d)))
            }
            (None, None) => Ok(None),
        }
    }

    fn is_in_bf16(&self) -> bool {
        match self {
            Self::Csr(csr) => csr.is_in_bf16(),
            Self::Dia(dia) => dia.is_in_bf16(),
            Self::Blocks(..) => false,
        }
    }

    /// Rounds new values to bf16, and writes D⁻¹. Returns false if the matrix is stored in another way, or if
    /// bf16 does not suit it.
    fn update_in_bf16(&self, from: &NarrowLevel<Cuda>, times: (i32, u64), d: &Buffer<f32>) -> Result<bool> {
        let Some(operator) = from.operator else { return Ok(false) };
        let (device, operator) = (from.space.device(), operator.borrow());
        match (self, &operator.product().dia, &operator.product().csr) {
            (Self::Dia(own), Some(dia), _) => own.round(device, dia, times, d),
            (Self::Csr(own), None, Some(csr)) => own.round(device, csr, times, d),
            _ => Ok(false),
        }
    }

    /// Copies new values. Returns false if the matrix is stored in another way.
    fn update(&self, from: &NarrowLevel<Cuda>, shift: i32) -> Result<bool> {
        let (space, a) = (from.space, &from.terms.terms[0].1);
        if let Self::Blocks(blocks, _) = self {
            return narrow_again(space.device(), &space.resident(a)?.values, shift, &blocks.values);
        }
        let Some(operator) = from.operator else { return Ok(false) };
        let (device, operator) = (space.device(), operator.borrow());
        match (self, &operator.product().dia, &operator.product().csr) {
            (Self::Dia(own), Some(dia), _) => own.update(device, dia, shift),
            (Self::Csr(own), None, Some(csr)) => own.update(device, csr, shift),
            _ => Ok(false),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Csr(csr) => csr.bytes(),
            Self::Dia(dia) => dia.bytes(),
            Self::Blocks(blocks, _) => blocks.bytes(),
        }
    }
}

impl Blocks {
    /// Copies the values of a matrix, multiplied by 2^shift. Returns `None` for blocks without a kernel.
    fn new(space: &Cuda, a: &Bsr, shift: i32) -> Result<Option<Self>> {
        let (device, block) = (space.device(), a.block());
        if !(2..=MOST_BLOCK).contains(&block) {
            return Ok(None);
        }
        let at = space.resident(a)?;
        let mean = a.blocks() / a.block_rows().max(1);
        Ok(Some(Self {
            block,
            rows: a.block_rows(),
            lanes: (mean / EACH).clamp(1, (32 / block).min(16)),
            row_ptr: at.row_ptr.clone(),
            col: at.col.clone(),
            values: narrowed(device, &at.values, shift)?,
            function: device.function(&of_blocks(narrow_block, block))?,
        }))
    }

    fn run(&self, on: &Cuda, coefficient: &Buffer<f64>, of: Step, to: u64) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let of_a_warp = 32 / (self.lanes * self.block);
        let grid = self.rows.div_ceil(8 * of_a_warp).min(64 * on.device().multiprocessors());
        let (rows, lanes) = (self.rows as i64, self.lanes as i32);
        let launch = self.function.on(on.device(), grid, 256);
        launch.run(on.halt(), rows, lanes, &self.row_ptr, &self.col, &self.values, coefficient, of, to)
    }

    fn bytes(&self) -> u64 {
        (4 * (self.values.len() + self.col.len()) + 8 * self.rows + 8 * self.rows * self.block) as u64
    }
}

impl Weights {
    /// Returns `None` for blocks without a kernel.
    fn new(space: &Cuda, w: &Bsr, order: usize, nodal: bool) -> Result<Option<Self>> {
        let device = space.device();
        if nodal && w.block() > 1 {
            let one = device.upload(&[1.0], WHAT)?;
            return Ok(Blocks::new(space, w, 0)?.map(|blocks| Self::Unknowns(UnitBlocks(blocks, one))));
        }
        let at = space.resident(w)?;
        if nodal || order == 1 {
            let pattern = CsrPattern { row_ptr: at.row_ptr.clone(), col: at.col.clone() };
            let one = device.upload(&[1.0], WHAT)?;
            return Ok(Some(Self::Scalars(NarrowCsr::of_weights(device, pattern, &at.values)?, one)));
        }
        Ok(Some(Self::Nodes {
            rows: w.block_rows(),
            order,
            row_ptr: at.row_ptr.clone(),
            col: at.col.clone(),
            values: narrowed(device, &at.values, 0)?,
            function: device.function(&amg_transfer::of(Precision::F32))?,
        }))
    }

    /// Makes P and R of scalar nodes in bf16.
    fn in_bf16(space: &Cuda, both: [&Bsr; 2]) -> Result<[Self; 2]> {
        let device = space.device();
        let arrays = |w: &Bsr| -> Result<_> {
            let at = space.resident(w)?;
            Ok((CsrPattern { row_ptr: at.row_ptr.clone(), col: at.col.clone() }, at.values.clone()))
        };
        let [(of_p, p), (of_r, r)] = [arrays(both[0])?, arrays(both[1])?];
        let [to_p, to_r] = round_weights(device, [(&of_p, &p), (&of_r, &r)])?;
        let of = |pattern, values| -> Result<_> {
            let csr = NarrowCsr::of_short_weights(device, pattern, values)?;
            Ok(Self::Scalars(csr, device.upload(&[1.0], WHAT)?))
        };
        Ok([of(of_p, to_p)?, of(of_r, to_r)?])
    }

    /// Computes y ← W x, or y ← y + W x.
    pub fn apply(&self, on: &Cuda, x: &Buffer<f32>, y: &Buffer<f32>, add: bool) -> Result<()> {
        match self {
            Self::Unknowns(UnitBlocks(blocks, one)) => {
                let b = if add { y.pointer() } else { 0 };
                blocks.run(on, one, Step { x: x.pointer(), b, keeps: 1, ..Step::default() }, y.pointer())
            }
            Self::Scalars(csr, one) => {
                let b = if add { y.pointer() } else { 0 };
                let of = Smooth { x: x.pointer(), b, keeps: 1, ..Smooth::default() };
                csr.smooth(on, one.pointer(), of, y.pointer())
            }
            Self::Nodes { rows: 0, .. } => Ok(()),
            Self::Nodes { rows, order, row_ptr, col, values, function } => {
                let (shift, grid) = transfer_shape(on.device(), *rows, values.len(), *order);
                let (halt, add) = (on.halt(), i32::from(add));
                let launch = function.on(on.device(), grid, 256);
                let (n, order) = (*rows as i64, *order as i32);
                launch.run(halt, n, order, shift, row_ptr, col, values, x.pointer(), y.pointer(), add)
            }
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Unknowns(UnitBlocks(blocks, _)) => blocks.bytes(),
            Self::Scalars(csr, _) => csr.bytes(),
            Self::Nodes { rows, order, values, .. } => {
                (8 * values.len() + 8 * rows + 4 * rows * order) as u64
            }
        }
    }
}

/// Returns D⁻¹ times 2^shift by blocks.
fn diagonal(from: &NarrowLevel<Cuda>, d: Diagonal<Cuda>, shift: i32) -> Result<Buffer<f32>> {
    let to = from.space.device().zeros::<f32>(from.space.vector_len() * from.terms.block(), WHAT)?;
    fill_diagonal(from, d, shift, &to)?;
    Ok(to)
}

/// Writes D⁻¹ times 2^shift by blocks.
fn fill_diagonal(from: &NarrowLevel<Cuda>, d: Diagonal<Cuda>, shift: i32, to: &Buffer<f32>) -> Result<()> {
    let (space, block) = (from.space, from.terms.block());
    let device = space.device();
    let blocks = match d {
        Diagonal::Scalar(d) => return narrow_again(device, d, shift, to).map(drop),
        Diagonal::Blocks(blocks) => blocks,
    };
    let n = space.vector_len();
    let pack = device.function(&of_blocks(narrow_block_column, block))?;
    for column in 0..block {
        let y = column_of(space, blocks, block, column)?;
        pack.on(device, grid(device, n), 256).run(n as i64, &y, column as i32, shift, to)?;
    }
    Ok(())
}

/// Returns a column of each diagonal block.
fn column_of(
    space: &Cuda,
    blocks: &<Cuda as BlockDiagonal>::Blocks,
    block: usize,
    column: usize,
) -> Result<Buffer<f64>> {
    let (device, n) = (space.device(), space.vector_len());
    let (x, mut y) = (space.vector()?, space.vector()?);
    let unit = device.function(&of_blocks(narrow_block_unit, block))?;
    unit.on(device, grid(device, n), 256).run(n as i64, column as i32, &x)?;
    space.multiply_blocks(blocks, false, &x, &mut y)?;
    Ok(y)
}

/// Returns the exponent around which those of D⁻¹ lie on all levels; `None` if they differ too much.
pub(super) fn common_exponent(device: &Arc<Device>, levels: &[NarrowLevel<Cuda>]) -> Result<Option<i32>> {
    let (mut low, mut high) = (i32::MAX, i32::MIN);
    let function = device.function(&narrow_range.plain())?;
    let mut look = |d: &Buffer<f64>, first: usize, stride: usize| -> Result<()> {
        let range = device.upload(&[0xffff_u32, 0], WHAT)?;
        let n = d.len() / stride;
        function.on(device, grid(device, n), 256).run(n as i64, stride as i32, d.at(first), &range)?;
        let mut found = [0; 2];
        device.read(&range, 0, &mut found)?;
        if found[0] <= found[1] {
            (low, high) = (low.min(found[0] as i32 - BIAS), high.max(found[1] as i32 - BIAS));
        }
        Ok(())
    };
    for level in levels {
        match level.smoother {
            Some((Diagonal::Scalar(d), _)) => look(d, 0, 1)?,
            Some((Diagonal::Blocks(blocks), _)) => {
                let block = level.terms.block();
                for column in 0..block {
                    look(&column_of(level.space, blocks, block, column)?, column, block)?;
                }
            }
            None => {}
        }
    }
    if low > high {
        return Ok(Some(0)); // the only level is solved directly
    }
    Ok(middle(low, high).filter(|_| high <= BIAS))
}
