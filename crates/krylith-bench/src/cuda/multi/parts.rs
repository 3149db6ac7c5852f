//! A rank's main-diagonal and off-diagonal parts with the vendor's kernels: s² `cublasDaxpy`, s `cusparseDbsrmv`.

use super::super::products::{Blocks, Layout};
use super::super::quick;
use super::rank::Rank;
use crate::multi::share::main_and_off;
use krylith::device::cuda::Buffer;
use krylith::matrix::Bsr;
use krylith::partition::Part;
use krylith::{Error, Result};
use std::rc::Rc;

/// A and τB, row by row.
pub(super) fn coefficients(part: &Part) -> [Vec<f64>; 2] {
    std::array::from_fn(|t| part.terms.terms[t].0.values().to_vec())
}

/// The matrices of one rank and x̃ for both.
pub(super) struct Parts {
    rank: Rc<Rank>,
    pub block: usize,
    pub stages: usize,
    /// Numbers of a stage.
    pub q: usize,
    coefficients: [Vec<f64>; 2],
    main: [Blocks; 2],
    off: [Blocks; 2],
    middle: Buffer<f64>,
}

/// Both matrices, sharing their pattern where it is one.
pub(super) fn upload(rank: &Rank, parts: &[Bsr; 2], layout: Layout) -> Result<[Blocks; 2]> {
    let m = Blocks::new(&rank.vendor, &parts[0], layout, None)?;
    let same = parts[0].same_pattern(&parts[1]);
    let l = Blocks::new(&rank.vendor, &parts[1], layout, same.then_some(&m))?;
    Ok([m, l])
}

impl Parts {
    /// Takes the layout of blocks that `cusparseDbsrmv` is faster with here.
    ///
    /// # Errors
    /// Block size 1, which `cusparseDbsrmv` does not take; no room.
    pub fn new(rank: &Rc<Rank>, part: &Part) -> Result<Self> {
        let (block, stages) = (part.terms.block(), part.terms.stages());
        let [on_diagonal, off_diagonal] = main_and_off(part)?;
        if block == 1 {
            return Err(Error::Unsupported("cusparseDbsrmv needs a block size of at least 2".into()));
        }
        let q = part.halo.own * block;
        let middle = rank.vendor.zeros(2 * stages * q)?;
        let y = rank.vendor.zeros(q)?;
        let time = |blocks: &[Blocks; 2]| {
            quick(&rank.vendor, &mut || blocks[0].bsrmv(&rank.vendor, middle.pointer(), 0.0, y.pointer()))
        };
        let rows = upload(rank, &on_diagonal, Layout::Rows)?;
        let columns = upload(rank, &on_diagonal, Layout::Columns)?;
        let main = if time(&columns)? < time(&rows)? { columns } else { rows };
        let off = upload(rank, &off_diagonal, main[0].layout)?;
        let coefficients = coefficients(part);
        Ok(Self { rank: rank.clone(), block, stages, q, coefficients, main, off, middle })
    }

    /// Address of stage i of x̃ for matrix t.
    pub fn middle(&self, t: usize, i: usize) -> u64 {
        self.middle.at((t * self.stages + i) * self.q)
    }
    /// x̃ = X Aᵀ for matrix t.
    pub fn combine(&self, t: usize, x: u64) -> Result<()> {
        let (v, s, q) = (&self.rank.vendor, self.stages, self.q);
        v.fill(self.middle(t, 0), s * q, 0)?;
        for i in 0..s {
            for j in 0..s {
                v.axpy(q, self.coefficients[t][i * s + j], x + 8 * (j * q) as u64, self.middle(t, i))?;
            }
        }
        Ok(())
    }
    /// Stage i of y: the main-diagonal part times x̃; the second matrix adds.
    pub fn main(&self, t: usize, i: usize, y: u64) -> Result<()> {
        let y = y + 8 * (i * self.q) as u64;
        self.main[t].bsrmv(&self.rank.vendor, self.middle(t, i), t as f64, y)
    }
    /// Stage i of y += the off-diagonal part times ghosts at an address.
    pub fn off(&self, t: usize, i: usize, ghosts: u64, y: u64) -> Result<()> {
        self.off[t].bsrmv(&self.rank.vendor, ghosts, 1.0, y + 8 * (i * self.q) as u64)
    }
}
