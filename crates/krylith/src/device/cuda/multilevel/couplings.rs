//! Couplings of nodes and ℓ1 blocks on a GPU (`kernels/amg_couplings.cu`).

use super::super::Cuda;
use super::super::compiler::Kernel;
use super::super::driver::{Buffer, launch};
use super::super::resident::Resident;
use super::super::scan::{last, scan};
use super::super::specialisations::define;
use super::stored;
use crate::Result;
use crate::matrix::Bsr;
use crate::operator::Terms;
use std::sync::Arc;

const WHAT: &str = "couplings of nodes";

fn kernel(entry: &'static str, block: usize) -> Kernel {
    Kernel { file: "amg_couplings.cu", entry, defines: vec![define("BLOCK", block)] }
}

pub(super) fn kernels(blocks: impl IntoIterator<Item = usize>) -> Vec<Kernel> {
    let of = blocks.into_iter().flat_map(|b| [kernel("amg_norms", b), kernel("amg_l1", b)]);
    [kernel("amg_scale", 1), kernel("amg_union", 1)].into_iter().chain(of).collect()
}

/// A term as kernels take it: addresses, 0 where there is none.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Term {
    ptr: u64,
    col: u64,
    values: u64,
}

impl Term {
    fn new(a: &Resident, values: u64) -> Self {
        Self { ptr: a.row_ptr.pointer(), col: a.col.pointer(), values }
    }
}

impl Cuda {
    /// One scalar term times its coefficient.
    pub(super) fn scaled_term(&self, a: &Bsr, factor: f64) -> Result<Bsr> {
        let (device, from) = (self.device(), self.resident(a)?);
        let to = device.room::<f64>(a.stored(), WHAT)?;
        if !to.is_empty() {
            let function = device.function(&kernel("amg_scale", 1))?;
            let grid = to.len().div_ceil(256).min(32 * device.multiprocessors());
            let (count, values) = (to.len() as i64, from.values.pointer());
            // SAFETY: the parameter types are the kernel's; both have that many numbers.
            unsafe { launch!(device, &function, grid, 256, 0, count, factor, values, to.pointer())? };
        }
        Ok(a.with_storage(a.storage().with_device_values(Arc::new(from.with_values(to)))))
    }

    /// Couplings of the blocks of one or two terms.
    pub(super) fn block_couplings(&self, terms: &Terms) -> Result<Bsr> {
        let (device, n) = (self.device(), terms.block_rows());
        let residents = terms.terms.iter().map(|(_, a)| self.resident(a)).collect::<Result<Vec<_>>>()?;
        let mut norms: Vec<Buffer<f64>> = Vec::new();
        for ((_, a), resident) in terms.terms.iter().zip(&residents) {
            let to = device.room::<f64>(a.blocks(), WHAT)?;
            if a.blocks() > 0 {
                let function = device.function(&kernel("amg_norms", a.block()))?;
                let grid = a.blocks().div_ceil(256).min(32 * device.multiprocessors());
                let (entries, values) = (a.blocks() as i64, resident.values.pointer());
                // SAFETY: the parameter types are the kernel's; a norm a block.
                unsafe { launch!(device, &function, grid, 256, 0, entries, values, to.pointer())? };
            }
            norms.push(to);
        }
        let term = |t: usize| residents.get(t).map_or(Term::default(), |a| Term::new(a, norms[t].pointer()));
        let norm = |t: usize| {
            let squares = |(c, _): &(crate::matrix::Dense, _)| c.values().iter().map(|v| v * v).sum::<f64>();
            terms.terms.get(t).map_or(0.0, squares).sqrt()
        };
        let function = device.function(&kernel("amg_union", 1))?;
        let counts = device.room::<u32>(n, WHAT)?;
        let fill = |counts: u64, to: u64, col: u64, values: u64| {
            let (first, second, one, two) = (term(0), term(1), norm(0), norm(1));
            // SAFETY: the parameter types are the kernel's; there is room for what it counted itself.
            unsafe {
                launch!(
                    device,
                    &function,
                    n.div_ceil(256).max(1),
                    256,
                    0,
                    n as i64,
                    first,
                    second,
                    one,
                    two,
                    counts,
                    to,
                    col,
                    values
                )
            }
        };
        fill(counts.pointer(), 0, 0, 0)?;
        let row_ptr = scan(device, &counts)?;
        let entries = last(device, &row_ptr)? as usize;
        let (col, values) = (device.room::<u32>(entries, WHAT)?, device.room::<f64>(entries, WHAT)?);
        fill(0, row_ptr.pointer(), col.pointer(), values.pointer())?;
        // Behind the rows stand the columns of ghosts, where there are any.
        let columns = terms.terms[0].1.block_columns();
        Ok(stored(1, n, columns, Resident::new(row_ptr, col, values)))
    }

    /// A block-diagonal matrix of order b·s blocks: those of the sum, with the ℓ1 norms of their rows' other entries.
    pub(super) fn l1_diagonal(&self, terms: &Terms) -> Result<Bsr> {
        let (device, n, s) = (self.device(), terms.block_rows(), terms.stages());
        let order = terms.block() * s;
        let what = "an l1 smoother";
        let residents = terms.terms.iter().map(|(_, a)| self.resident(a)).collect::<Result<Vec<_>>>()?;
        let coefficients: Vec<f64> = terms.terms.iter().flat_map(|(c, _)| c.values()).copied().collect();
        let coefficients = device.upload(&coefficients, what)?;
        let (row_ptr, col) = (device.zeros::<i64>(n + 1, what)?, device.room::<u32>(n, what)?);
        let to = device.room::<f64>(n * order * order, what)?;
        if n > 0 {
            let term =
                |t: usize| residents.get(t).map_or(Term::default(), |a| Term::new(a, a.values.pointer()));
            let function = device.function(&kernel("amg_l1", terms.block()))?;
            let (grid, first, second) = ((n * order).div_ceil(256), term(0), term(1));
            let (nodes, stages, c) = (n as i64, s as i32, coefficients.pointer());
            let (ptr, col, to) = (row_ptr.pointer(), col.pointer(), to.pointer());
            // SAFETY: the parameter types are the kernel's; a block a node.
            unsafe {
                launch!(device, &function, grid, 256, 0, nodes, stages, first, second, c, ptr, col, to)?
            };
        }
        Ok(stored(order, n, n, Resident::new(row_ptr, col, to)))
    }
}
