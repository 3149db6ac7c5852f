//! Block-diagonal matrices on a GPU.

use super::Cuda;
use super::driver::{Buffer, launch};
use super::specialisations;
use crate::memory::{Numbers, check_len};
use crate::precond::BlockDiagonal;
use crate::space::{Space, Store};
use crate::{Error, Result};
use cudarc::driver::CudaFunction;

/// Blocks by columns, nodes in groups side by side (see `kernels/block_diagonal.cu`).
pub struct CudaBlocks {
    order: usize,
    nodes: usize,
    values: Values,
    function: CudaFunction,
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
        Ok(CudaBlocks { order, nodes: blocks.len() / (order * order), values, function })
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
        let values = match &d.values {
            Values::F64(v) => v.pointer(),
            Values::F32(v) => v.pointer(),
        };
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
