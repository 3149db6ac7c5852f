//! Couplings of nodes and ℓ1 blocks on a GPU (`kernels/amg_couplings.cu`).

use super::super::Cuda;
use super::super::compiler::Kernel;
use super::super::driver::Buffer;
use super::super::launch::{At, Entry, Of, kernels};
use super::super::resident::Resident;
use super::super::scan::{last, scan};
use super::super::specialisations::define;
use super::stored;
use crate::Result;
use crate::matrix::Bsr;
use crate::operator::Terms;
use std::sync::Arc;

kernels! {
    COUPLINGS in "amg_couplings.cu", |set| super::blocks(set).into_iter().map(|b| kernel(amg_l1, b).into()).collect();
    fn amg_norms(entries: i64, val: At<f64>, norms: At<f64>);
    fn amg_scale(count: i64, factor: f64, from: At<f64>, to: At<f64>);
    fn amg_union(
        rows: i64, first: Term, second: Term, norm: f64, other: f64, counts: At<u32>, to: At<i64>,
        to_col: At<u32>, to_val: At<f64>,
    );
    fn amg_l1(
        nodes: i64, stages: i32, first: Term, second: Term, coefficients: At<f64>, ptr: At<i64>,
        col: At<u32>, to: At<f64>,
    );
}

const WHAT: &str = "couplings of nodes";

fn kernel<K: Entry>(entry: K, block: usize) -> Of<K> {
    entry.with(vec![define("BLOCK", block)])
}

/// Returns the kernels for blocks of this size; with `scalar` for one matrix of scalars.
pub(super) fn kernels(block: usize, scalar: bool) -> Vec<Kernel> {
    let own = kernel(amg_l1, block).into();
    if scalar { vec![own] } else { vec![own, kernel(amg_union, 1).into()] }
}

/// A term as kernels take it: addresses, 0 for a missing array.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(in crate::device::cuda) struct Term {
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
    /// Returns one scalar term times its coefficient.
    pub(super) fn scaled_term(&self, a: &Bsr, factor: f64) -> Result<Bsr> {
        let (device, from) = (self.device(), self.resident(a)?);
        let to = device.allocate::<f64>(a.stored(), WHAT)?;
        if !to.is_empty() {
            let function = device.function(&kernel(amg_scale, 1))?;
            let grid = to.len().div_ceil(256).min(32 * device.multiprocessors());
            let count = to.len() as i64;
            function.on(device, grid, 256).run(count, factor, &from.values, &to)?;
        }
        Ok(a.with_storage(a.storage().with_device_values(Arc::new(from.with_values(to)))))
    }

    /// Returns the couplings of the blocks of one or two terms.
    pub(super) fn block_couplings(&self, terms: &Terms) -> Result<Bsr> {
        let (device, n) = (self.device(), terms.block_rows());
        let residents = terms.terms.iter().map(|(_, a)| self.resident(a)).collect::<Result<Vec<_>>>()?;
        let mut norms: Vec<Buffer<f64>> = Vec::new();
        for ((_, a), resident) in terms.terms.iter().zip(&residents) {
            let to = device.allocate::<f64>(a.blocks(), WHAT)?;
            if a.blocks() > 0 {
                let function = device.function(&kernel(amg_norms, a.block()))?;
                let grid = a.blocks().div_ceil(256).min(32 * device.multiprocessors());
                let entries = a.blocks() as i64;
                function.on(device, grid, 256).run(entries, &resident.values, &to)?;
            }
            norms.push(to);
        }
        let term = |t: usize| residents.get(t).map_or(Term::default(), |a| Term::new(a, norms[t].pointer()));
        let norm = |t: usize| {
            let squares = |(c, _): &(crate::matrix::Dense, _)| c.values().iter().map(|v| v * v).sum::<f64>();
            terms.terms.get(t).map_or(0.0, squares).sqrt()
        };
        let function = device.function(&kernel(amg_union, 1))?;
        let counts = device.allocate::<u32>(n, WHAT)?;
        let fill = |counts: u64, to: u64, col: u64, values: u64| {
            let (first, second, one, two) = (term(0), term(1), norm(0), norm(1));
            function
                .on(device, n.div_ceil(256).max(1), 256)
                .run(n as i64, first, second, one, two, counts, to, col, values)
        };
        fill(counts.pointer(), 0, 0, 0)?;
        let row_ptr = scan(device, &counts)?;
        let entries = last(device, &row_ptr)? as usize;
        let (col, values) = (device.allocate::<u32>(entries, WHAT)?, device.allocate::<f64>(entries, WHAT)?);
        fill(0, row_ptr.pointer(), col.pointer(), values.pointer())?;
        // The columns of ghosts, where there are any, follow the rows.
        let columns = terms.terms[0].1.block_columns();
        Ok(stored(1, n, columns, Resident::new(row_ptr, col, values)))
    }

    /// Returns a block-diagonal matrix with blocks of order b·s: those of the sum, plus the ℓ1 norms of the
    /// other entries of their rows.
    pub(super) fn l1_diagonal(&self, terms: &Terms) -> Result<Bsr> {
        let (device, n, s) = (self.device(), terms.block_rows(), terms.stages());
        let order = terms.block() * s;
        let what = "an l1 smoother";
        let residents = terms.terms.iter().map(|(_, a)| self.resident(a)).collect::<Result<Vec<_>>>()?;
        let coefficients: Vec<f64> = terms.terms.iter().flat_map(|(c, _)| c.values()).copied().collect();
        let coefficients = device.upload(&coefficients, what)?;
        let (row_ptr, col) = (device.zeros::<i64>(n + 1, what)?, device.allocate::<u32>(n, what)?);
        let to = device.allocate::<f64>(n * order * order, what)?;
        if n > 0 {
            let term =
                |t: usize| residents.get(t).map_or(Term::default(), |a| Term::new(a, a.values.pointer()));
            let function = device.function(&kernel(amg_l1, terms.block()))?;
            let (grid, first, second) = ((n * order).div_ceil(256), term(0), term(1));
            let (nodes, stages) = (n as i64, s as i32);
            function.on(device, grid, 256).run(
                nodes,
                stages,
                first,
                second,
                &coefficients,
                &row_ptr,
                &col,
                &to,
            )?;
        }
        Ok(stored(order, n, n, Resident::new(row_ptr, col, to)))
    }
}
