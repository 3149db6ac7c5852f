//! Block-diagonal matrices on the CPU.

use super::{Cpu, Wide};
use crate::memory::{Numbers, check_len};
use crate::precond::BlockDiagonal;
use crate::space::Precision;
use crate::threads::{Disjoint, share};
use crate::{Error, Result};

/// Row-major blocks in host memory.
#[doc(hidden)]
pub struct CpuBlocks {
    order: usize,
    values: Values,
    /// Blocks that came from a GPU.
    scratch: Vec<f64>,
}

enum Values {
    F64(Vec<f64>),
    F32(Vec<f32>),
}

impl BlockDiagonal for Cpu {
    type Blocks = CpuBlocks;

    fn prepare_blocks(&self, order: usize, blocks: Numbers, precision: Precision) -> Result<CpuBlocks> {
        let values = match precision {
            Precision::F64 => Values::F64(vec![0.0; blocks.len()]),
            Precision::F32 => Values::F32(vec![0.0; blocks.len()]),
        };
        let mut to = CpuBlocks { order, values, scratch: Vec::new() };
        self.update_blocks(&mut to, blocks)?;
        Ok(to)
    }
    fn update_blocks(&self, to: &mut CpuBlocks, blocks: Numbers) -> Result<()> {
        match &mut to.values {
            Values::F64(v) => blocks.read(v),
            Values::F32(v) => {
                check_len(blocks.len(), v.len())?;
                let blocks = blocks.on_host(&mut to.scratch)?;
                v.iter_mut().zip(blocks).for_each(|(v, &x)| *v = x as f32);
                Ok(())
            }
        }
    }
    fn multiply_blocks(&self, d: &CpuBlocks, transposed: bool, x: &Vec<f64>, y: &mut Vec<f64>) -> Result<()> {
        let (m, values) = (d.order, &d.values);
        let count = match values {
            Values::F64(v) => v.len(),
            Values::F32(v) => v.len(),
        };
        let n = count / (m * m);
        if x.len() != n * m || y.len() != n * m {
            return Err(Error::invalid(format!(
                "{n} diagonal blocks of order {m} cannot multiply a vector of {} numbers; expected {} \
                 numbers",
                x.len(),
                n * m
            )));
        }
        let (y, pool) = (Disjoint::new(y), self.pool());
        let pieces = pool.pieces(Self::blocks_bytes(d) as usize);
        pool.run(pieces, |piece| {
            let range = share(n, piece, pieces);
            let x = &x[range.start * m..range.end * m];
            let at = range.start * m * m..range.end * m * m;
            pulp::Arch::new().dispatch(Wide(
                #[inline(always)]
                || {
                    // SAFETY: pieces do not overlap.
                    let y = unsafe { y.range(range.start * m..range.end * m) };
                    match values {
                        Values::F64(v) => multiply(m, transposed, &v[at.clone()], x, y, |v| v),
                        Values::F32(v) => multiply(m, transposed, &v[at.clone()], x, y, |v| v as f64),
                    }
                },
            ));
        });
        Ok(())
    }
    fn blocks_bytes(d: &CpuBlocks) -> u64 {
        let m = d.order as u64;
        match &d.values {
            Values::F64(v) => 8 * v.len() as u64 + 16 * v.len() as u64 / m,
            Values::F32(v) => 4 * v.len() as u64 + 16 * v.len() as u64 / m,
        }
    }
}

/// Multiplies blocks, or their transposes; for common orders the loops have a constant length.
#[inline(always)]
fn multiply<T: Copy>(
    m: usize,
    transposed: bool,
    blocks: &[T],
    x: &[f64],
    y: &mut [f64],
    widen: impl Fn(T) -> f64 + Copy,
) {
    match (m, transposed) {
        (1, _) => blocks.iter().zip(x).zip(y).for_each(|((&d, x), y)| *y = widen(d) * x),
        (2, false) => multiply_rows(2, blocks, x, y, widen),
        (3, false) => multiply_rows(3, blocks, x, y, widen),
        (4, false) => multiply_rows(4, blocks, x, y, widen),
        (_, false) => multiply_rows(m, blocks, x, y, widen),
        (2, true) => multiply_columns(2, blocks, x, y, widen),
        (3, true) => multiply_columns(3, blocks, x, y, widen),
        (4, true) => multiply_columns(4, blocks, x, y, widen),
        (_, true) => multiply_columns(m, blocks, x, y, widen),
    }
}

#[inline(always)]
fn multiply_rows<T: Copy>(m: usize, blocks: &[T], x: &[f64], y: &mut [f64], widen: impl Fn(T) -> f64) {
    for ((d, x), y) in blocks.chunks_exact(m * m).zip(x.chunks_exact(m)).zip(y.chunks_exact_mut(m)) {
        for (row, y) in d.chunks_exact(m).zip(y) {
            let mut sum = 0.0;
            for c in 0..m {
                sum += widen(row[c]) * x[c];
            }
            *y = sum;
        }
    }
}

#[inline(always)]
fn multiply_columns<T: Copy>(m: usize, blocks: &[T], x: &[f64], y: &mut [f64], widen: impl Fn(T) -> f64) {
    for ((d, x), y) in blocks.chunks_exact(m * m).zip(x.chunks_exact(m)).zip(y.chunks_exact_mut(m)) {
        y.fill(0.0);
        for (row, x) in d.chunks_exact(m).zip(x) {
            for c in 0..m {
                y[c] += widen(row[c]) * x;
            }
        }
    }
}
