//! Block-diagonal matrices on a GPU.

use super::Cuda;
use super::compiler::Kernel;
use super::driver::{Buffer, Device};
use super::launch::{At, Entry, Of, Reals, kernels};
use super::launch::{Function, Set};
use super::specialisations::{STORES, define, value};
use crate::memory::{Numbers, check_len};
use crate::operator::{TermValues, Terms};
use crate::precond::{BAD_BLOCKS, BlockDiagonal, TINY_PIVOT, bad_block};
use crate::space::{Precision, Space};
use crate::{Error, Result};
use std::sync::Arc;

kernels! {
    BLOCK_DIAGONAL in "block_diagonal.cu", |set| orders(set, |order, precision| block_diagonal::of(order, precision).into());
    fn block_diagonal(halt: At<i32>, nodes: i64, transposed: i32, d: Reals, x: At<f64>, y: At<f64>);
}

kernels! {
    JACOBI in "jacobi.cu", |set| orders(set, |order, precision| jacobi(jacobi_invert, order, precision).into());
    fn jacobi_find(rows: i64, row_ptr: At<i64>, col: At<u32>, positions: At<i64>);
    fn jacobi_invert(
        nodes: i64, stages: i32, first: Term, second: Term, tiny: f64, out: Reals, worst: At<u64>,
    );
}

impl block_diagonal {
    /// Returns the kernel of the block-diagonal product.
    pub(crate) fn of(order: usize, precision: Precision) -> Of<Self> {
        Self.with(vec![define("ORDER", order), value(precision)])
    }
}

/// Returns a kernel that builds the blocks of point-block Jacobi.
pub(crate) fn jacobi<K: Entry>(entry: K, order: usize, precision: Precision) -> Of<K> {
    entry.with(vec![define("ORDER", order), value(precision)])
}

/// Orders and precisions that are compiled ahead.
fn orders(set: Set, of: fn(usize, Precision) -> Kernel) -> Vec<Kernel> {
    let stores = set.choose(STORES.to_vec(), [Precision::F64]);
    let orders = set.choose(1..=32, [1, 2, 3, 4, 5, 6, 8, 9, 12, 16]);
    stores.iter().flat_map(|&precision| orders.iter().map(move |&order| of(order, precision))).collect()
}

/// Blocks by columns, with nodes interleaved in groups (see `kernels/block_diagonal.cu`).
#[doc(hidden)]
pub struct CudaBlocks {
    order: usize,
    nodes: usize,
    values: Values,
    function: Function<block_diagonal>,
    inverter: Option<Inverter>,
}

/// Inverts the diagonal blocks of a sum of terms (`kernels/jacobi.cu`).
struct Inverter {
    /// Positions of the diagonal blocks of each term.
    positions: Vec<Arc<Buffer<i64>>>,
    /// Coefficients of both terms, one after the other.
    coefficients: Buffer<f64>,
    /// The first bad row times four, plus the kind of its fault.
    worst: Buffer<u64>,
    /// Copies of values that are not in the memory of this GPU.
    natural: [Buffer<f64>; 2],
    function: Function<jacobi_invert>,
}

/// A term as the kernel takes it: addresses, which are 0 for a missing array.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(in crate::device::cuda) struct Term {
    positions: u64,
    values: u64,
    coefficients: u64,
}

enum Values {
    F64(Buffer<f64>),
    F32(Buffer<f32>),
}

/// Number of interleaved nodes, and nodes per thread block; equal to the kernel's constants.
fn shape(order: usize) -> (usize, usize) {
    let group = if order >= 32 { 1 } else { 32usize.div_ceil(order) };
    let nodes = if order >= 8 { (256 / order / group).max(1) * group } else { (256 / order) / group * group };
    (group, nodes)
}

fn arrange(order: usize, blocks: &[f64]) -> Vec<f64> {
    let (group, _) = shape(order);
    let nodes = blocks.len() / (order * order);
    let mut out = vec![0.0; nodes.next_multiple_of(group) * order * order];
    for (i, block) in blocks.chunks_exact(order * order).enumerate() {
        for r in 0..order {
            for c in 0..order {
                out[((i / group * order + c) * group + i % group) * order + r] = block[r * order + c];
            }
        }
    }
    out
}

impl CudaBlocks {
    /// Returns the address of blocks in f64.
    pub(super) fn address(&self) -> Result<u64> {
        match &self.values {
            Values::F64(values) => Ok(values.pointer()),
            Values::F32(_) => Err(Error::Internal("a step with several columns needs blocks in f64".into())),
        }
    }

    fn pointer(&self) -> u64 {
        match &self.values {
            Values::F64(v) => v.pointer(),
            Values::F32(v) => v.pointer(),
        }
    }

    /// Inverts the diagonal blocks of terms with these values into the memory at `to`. Where `to` is null, it
    /// only checks that they can be inverted.
    fn invert(&mut self, device: &Arc<Device>, values: &TermValues, to: &[u64]) -> Result<()> {
        let (nodes, order) = (self.nodes, self.order);
        let Some(by) = self.inverter.as_mut().filter(|_| nodes > 0) else { return Ok(()) };
        let stages = values.stages();
        let mut coefficients = Vec::with_capacity(2 * stages * stages);
        values.iter().for_each(|(c, _)| coefficients.extend_from_slice(c.values()));
        if by.coefficients.len() < coefficients.len() {
            by.coefficients = device.zeros(coefficients.len(), "coefficients")?;
        }
        device.write(&coefficients, &mut by.coefficients, 0)?;
        let (at, positions) = (&by.coefficients, &by.positions);
        let term = |t: usize, values: u64| Term {
            positions: positions[t].pointer(),
            values,
            coefficients: at.at(t * stages * stages),
        };
        let (function, worst) = (&by.function, &mut by.worst);
        let mut run = |first: Term, second: Term| {
            for &to in to {
                device.write(&[u64::MAX], worst, 0)?;
                let (of_a_block, threads) = inverter_shape(order);
                function.on(device, nodes.div_ceil(of_a_block), threads).run(
                    nodes as i64,
                    stages as i32,
                    first,
                    second,
                    TINY_PIVOT,
                    to,
                    &*worst,
                )?;
                let mut found = [0];
                device.read(worst, 0, &mut found)?;
                if found[0] != u64::MAX {
                    return Err(bad_block((found[0] / 4) as usize, BAD_BLOCKS[(found[0] % 4) as usize]));
                }
            }
            Ok(())
        };
        let [natural, other] = &mut by.natural;
        let mut values = values.iter().map(|(_, values)| values);
        let (Some(m), l) = (values.next(), values.next()) else { return Ok(()) };
        device.reading(m, natural, |m| match l {
            None => run(term(0, m), Term::default()),
            Some(l) => device.reading(l, other, |l| run(term(0, m), term(1, l))),
        })
    }
}

/// Nodes and threads per thread block; equal to the kernel's constants.
fn inverter_shape(order: usize) -> (usize, usize) {
    let warps = if order > 20 { 2 } else { 4 };
    (32 / order.next_power_of_two() * warps, 32 * warps)
}

impl BlockDiagonal for Cuda {
    type Blocks = CudaBlocks;

    fn prepare_blocks(&self, order: usize, blocks: Numbers, precision: Precision) -> Result<CudaBlocks> {
        if !(1..=32).contains(&order) {
            return Err(Error::Unsupported(format!(
                "block Jacobi on a GPU does not support blocks of order {order}; orders 1 to 32 are supported"
            )));
        }
        let values = arrange(order, blocks.on_host(&mut Vec::new())?);
        let what = "a point-block Jacobi preconditioner";
        let values = match precision {
            Precision::F64 => Values::F64(self.device().upload(&values, what)?),
            Precision::F32 => {
                let narrow: Vec<f32> = values.iter().map(|&v| v as f32).collect();
                Values::F32(self.device().upload(&narrow, what)?)
            }
        };
        let function = self.device().function(&block_diagonal::of(order, precision))?;
        Ok(CudaBlocks { order, nodes: blocks.len() / (order * order), values, function, inverter: None })
    }

    fn invert_diagonal(&self, terms: &Terms, precision: Precision) -> Result<Option<CudaBlocks>> {
        let (device, order, nodes) = (self.device(), terms.block() * terms.stages(), terms.block_rows());
        if !(1..=32).contains(&order) {
            return Ok(None);
        }
        let terms = &self.placed(terms)?;
        let what = "a point-block Jacobi preconditioner";
        let mut positions: Vec<Arc<Buffer<i64>>> = Vec::new();
        for (t, (_, a)) in terms.terms.iter().enumerate() {
            if t > 0 && terms.shared_pattern() {
                positions.push(positions[0].clone());
                continue;
            }
            let (found, resident) = (device.allocate::<i64>(nodes, what)?, self.resident(a)?);
            if nodes > 0 {
                let find = device.function(&jacobi(jacobi_find, order, precision))?;
                find.on(device, nodes.div_ceil(256), 256).run(
                    nodes as i64,
                    &resident.row_ptr,
                    &resident.col,
                    &found,
                )?;
            }
            positions.push(Arc::new(found));
        }
        let inverter = Inverter {
            positions,
            coefficients: device.allocate(2 * terms.stages() * terms.stages(), what)?,
            worst: device.allocate(1, what)?,
            natural: [device.allocate(0, what)?, device.allocate(0, what)?],
            function: device.function(&jacobi(jacobi_invert, order, precision))?,
        };
        let numbers = nodes.next_multiple_of(shape(order).0) * order * order;
        let values = match precision {
            Precision::F64 => Values::F64(device.zeros(numbers, what)?),
            Precision::F32 => Values::F32(device.zeros(numbers, what)?),
        };
        let function = device.function(&block_diagonal::of(order, precision))?;
        let mut blocks = CudaBlocks { order, nodes, values, function, inverter: Some(inverter) };
        let to = blocks.pointer();
        blocks.invert(device, &TermValues::from(terms), &[to])?;
        Ok(Some(blocks))
    }

    fn invert_new_diagonal(&self, blocks: &mut CudaBlocks, values: &TermValues) -> Result<bool> {
        if blocks.inverter.is_none() {
            return Ok(false);
        }
        let to = blocks.pointer();
        blocks.invert(self.device(), values, &[0, to])?;
        Ok(true)
    }

    fn update_blocks(&self, to: &mut CudaBlocks, blocks: Numbers) -> Result<()> {
        check_len(blocks.len(), to.nodes * to.order * to.order)?;
        let values = arrange(to.order, blocks.on_host(&mut Vec::new())?);
        match &mut to.values {
            Values::F64(buffer) => self.device().write(&values, buffer, 0)?,
            Values::F32(buffer) => {
                let narrow: Vec<f32> = values.iter().map(|&v| v as f32).collect();
                self.device().write(&narrow, buffer, 0)?;
            }
        }
        self.wait()
    }

    fn multiply_blocks(
        &self,
        d: &CudaBlocks,
        transposed: bool,
        x: &Buffer<f64>,
        y: &mut Buffer<f64>,
    ) -> Result<()> {
        if x.len() != d.nodes * d.order || y.len() != x.len() {
            return Err(Error::invalid(format!(
                "{} diagonal blocks of order {} cannot multiply a vector of {} numbers; expected {} numbers",
                d.nodes,
                d.order,
                x.len(),
                d.nodes * d.order
            )));
        }
        if d.nodes == 0 {
            return Ok(()); // a rank without rows
        }
        let (_, nodes) = shape(d.order);
        d.function.on(self.device(), d.nodes.div_ceil(nodes), nodes * d.order).run(
            self.halt(),
            d.nodes as i64,
            transposed as i32,
            d.pointer(),
            x,
            &*y,
        )
    }

    fn blocks_bytes(d: &CudaBlocks) -> u64 {
        let bytes = match &d.values {
            Values::F64(v) => 8 * v.len(),
            Values::F32(v) => 4 * v.len(),
        };
        (bytes + 16 * d.nodes * d.order) as u64
    }
}
