//! Block-diagonal matrices on a GPU.

use super::Cuda;
use super::driver::{Buffer, Device, launch};
use super::specialisations;
use crate::memory::{Numbers, check_len};
use crate::operator::{TermValues, Terms};
use crate::precond::{BAD_BLOCKS, BlockDiagonal, TINY_PIVOT, bad_block};
use crate::space::{Space, Store};
use crate::{Error, Result};
use cudarc::driver::CudaFunction;
use std::sync::Arc;

/// Blocks by columns, nodes in groups side by side (see `kernels/block_diagonal.cu`).
#[doc(hidden)]
pub struct CudaBlocks {
    order: usize,
    nodes: usize,
    values: Values,
    function: CudaFunction,
    inverter: Option<Inverter>,
}

/// What inverts the diagonal blocks of a sum of terms (`kernels/jacobi.cu`).
struct Inverter {
    /// Where the diagonal blocks of each term stand.
    positions: Vec<Arc<Buffer<i64>>>,
    /// Coefficients of both terms, one after the other.
    coefficients: Buffer<f64>,
    /// The first bad row, four times, and what is wrong with it.
    worst: Buffer<u64>,
    /// Values that are not in the memory of this GPU.
    natural: [Buffer<f64>; 2],
    function: CudaFunction,
}

/// A term as the kernel takes it: addresses, 0 where there is none.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Term {
    positions: u64,
    values: u64,
    coefficients: u64,
}

enum Values {
    F64(Buffer<f64>),
    F32(Buffer<f32>),
}

/// Nodes side by side, and nodes a block of threads; the twins of the kernel's constants.
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
    fn pointer(&self) -> u64 {
        match &self.values {
            Values::F64(v) => v.pointer(),
            Values::F32(v) => v.pointer(),
        }
    }

    /// Inverts the diagonal blocks of terms with these values into the memory at `to`, or only looks whether they can be
    /// inverted where that is null.
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
                // SAFETY: the parameter types are the kernel's; positions name blocks of the values, whose number was checked.
                unsafe {
                    launch!(
                        device,
                        function,
                        nodes.div_ceil(of_a_block),
                        threads,
                        0,
                        nodes as i64,
                        stages as i32,
                        first,
                        second,
                        TINY_PIVOT,
                        to,
                        worst.pointer()
                    )?;
                }
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

/// Nodes and threads of a block of threads; the twins of the kernel's constants.
fn inverter_shape(order: usize) -> (usize, usize) {
    let warps = if order > 20 { 2 } else { 4 };
    (32 / order.next_power_of_two() * warps, 32 * warps)
}

impl BlockDiagonal for Cuda {
    type Blocks = CudaBlocks;

    fn prepare_blocks(&self, order: usize, blocks: Numbers, store: Store) -> Result<CudaBlocks> {
        if !(1..=32).contains(&order) {
            return Err(Error::Unsupported(format!("diagonal blocks of order {order}; a GPU takes 1 to 32")));
        }
        let values = arrange(order, blocks.on_host(&mut Vec::new())?);
        let what = "a point-block Jacobi preconditioner";
        let values = match store {
            Store::F64 => Values::F64(self.device().upload(&values, what)?),
            Store::F32 => {
                let narrow: Vec<f32> = values.iter().map(|&v| v as f32).collect();
                Values::F32(self.device().upload(&narrow, what)?)
            }
        };
        let function = self.device().function(&specialisations::block_diagonal(order, store))?;
        Ok(CudaBlocks { order, nodes: blocks.len() / (order * order), values, function, inverter: None })
    }

    fn invert_diagonal(&self, terms: &Terms, store: Store) -> Result<Option<CudaBlocks>> {
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
            let (found, resident) = (device.room::<i64>(nodes, what)?, self.resident(a)?);
            if nodes > 0 {
                let find = device.function(&specialisations::jacobi("jacobi_find", order, store))?;
                let (row_ptr, col) = (resident.row_ptr.pointer(), resident.col.pointer());
                // SAFETY: the parameter types are the kernel's; the pattern has that many rows.
                unsafe {
                    let at = found.pointer();
                    launch!(device, &find, nodes.div_ceil(256), 256, 0, nodes as i64, row_ptr, col, at)?;
                }
            }
            positions.push(Arc::new(found));
        }
        let inverter = Inverter {
            positions,
            coefficients: device.room(2 * terms.stages() * terms.stages(), what)?,
            worst: device.room(1, what)?,
            natural: [device.room(0, what)?, device.room(0, what)?],
            function: device.function(&specialisations::jacobi("jacobi_invert", order, store))?,
        };
        let numbers = nodes.next_multiple_of(shape(order).0) * order * order;
        let values = match store {
            Store::F64 => Values::F64(device.zeros(numbers, what)?),
            Store::F32 => Values::F32(device.zeros(numbers, what)?),
        };
        let function = device.function(&specialisations::block_diagonal(order, store))?;
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

    fn multiply_blocks(&self, d: &CudaBlocks, x: &Buffer<f64>, y: &mut Buffer<f64>) -> Result<()> {
        if x.len() != d.nodes * d.order || y.len() != x.len() {
            return Err(Error::invalid(format!(
                "{} blocks of order {} cannot multiply {} numbers",
                d.nodes,
                d.order,
                x.len()
            )));
        }
        if d.nodes == 0 {
            return Ok(()); // a rank without rows
        }
        let (_, nodes) = shape(d.order);
        let values = d.pointer();
        // SAFETY: the parameter types are the kernel's; lengths were checked.
        unsafe {
            launch!(
                self.device(),
                &d.function,
                d.nodes.div_ceil(nodes),
                nodes * d.order,
                0,
                self.halt(),
                d.nodes as i64,
                values,
                x.pointer(),
                y.pointer()
            )
        }
    }

    fn blocks_bytes(d: &CudaBlocks) -> u64 {
        let bytes = match &d.values {
            Values::F64(v) => 8 * v.len(),
            Values::F32(v) => 4 * v.len(),
        };
        (bytes + 16 * d.nodes * d.order) as u64
    }
}
