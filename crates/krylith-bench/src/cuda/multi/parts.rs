//! A rank's matrices with the vendor's kernels: s² `cublasDaxpy`, s `cusparseDbsrmv`; in two parts as published, or
//! whole with ghosts behind x̃.

use super::super::products::{Blocks, Layout};
use super::super::quick;
use super::rank::Rank;
use crate::multi::share::main_and_off;
use krylith::device::cuda::Buffer;
use krylith::matrix::Bsr;
use krylith::partition::Part;
use krylith::{Error, Result};
use std::rc::Rc;
use std::sync::Mutex;

/// The layout that was chosen for each block size.
static LAYOUTS: Mutex<Vec<(usize, Layout)>> = Mutex::new(Vec::new());

/// A and τB, row by row.
pub(super) fn coefficients(part: &Part) -> [Vec<f64>; 2] {
    std::array::from_fn(|t| part.terms.terms[t].0.values().to_vec())
}

/// The matrices of one rank and x̃ for both.
pub(super) struct Parts {
    rank: Rc<Rank>,
    pub block: usize,
    pub stages: usize,
    pub q: usize,
    /// From one stage of x̃ to the next: room for ghosts where the matrices are whole.
    pub p: usize,
    coefficients: [Vec<f64>; 2],
    main: [Blocks; 2],
    off: Option<[Blocks; 2]>,
    middle: Buffer<f64>,
}

/// Both matrices, sharing their pattern where it is one.
pub(super) fn upload(rank: &Rank, [m, l]: [&Bsr; 2], layout: Layout) -> Result<[Blocks; 2]> {
    let same = m.same_pattern(l);
    let m = Blocks::new(&rank.vendor, m, layout, None)?;
    let l = Blocks::new(&rank.vendor, l, layout, same.then_some(&m))?;
    Ok([m, l])
}

impl Parts {
    /// Main-diagonal and off-diagonal parts.
    ///
    /// # Errors
    /// Block size 1, which `cusparseDbsrmv` does not take; no room.
    pub fn split(rank: &Rc<Rank>, part: &Part) -> Result<Self> {
        let [main, off] = main_and_off(part)?;
        let mut parts = Self::new(rank, part, [&main[0], &main[1]], part.halo.own)?;
        parts.off = Some(upload(rank, [&off[0], &off[1]], parts.main[0].layout)?);
        Ok(parts)
    }

    /// Whole matrices; x̃ has room for ghosts behind each stage.
    ///
    /// # Errors
    /// As [`split`](Self::split).
    pub fn whole(rank: &Rc<Rank>, part: &Part) -> Result<Self> {
        let terms = &part.terms.terms;
        Self::new(rank, part, [&terms[0].1, &terms[1].1], part.halo.own + part.halo.ghosts)
    }

    /// Takes the layout of blocks that `cusparseDbsrmv` is faster with here; timed once a block size in a process.
    fn new(rank: &Rc<Rank>, part: &Part, matrices: [&Bsr; 2], columns: usize) -> Result<Self> {
        let (block, stages) = (part.terms.block(), part.terms.stages());
        if block == 1 {
            return Err(Error::Unsupported("cusparseDbsrmv needs a block size of at least 2".into()));
        }
        let (q, p) = (part.halo.own * block, columns * block);
        let middle = rank.vendor.zeros(2 * stages * p)?;
        let known = || LAYOUTS.lock().unwrap_or_else(|e| e.into_inner());
        let chosen = known().iter().find(|l| l.0 == block).map(|l| l.1);
        let main = match chosen {
            Some(layout) => upload(rank, matrices, layout)?,
            None => {
                let y = rank.vendor.zeros(q)?;
                let time = |blocks: &[Blocks; 2]| {
                    let (v, x) = (&rank.vendor, middle.pointer());
                    quick(v, &mut || blocks[0].bsrmv(v, x, 0.0, y.pointer()))
                };
                let rows = upload(rank, matrices, Layout::Rows)?;
                let columns = upload(rank, matrices, Layout::Columns)?;
                let main = if time(&columns)? < time(&rows)? { columns } else { rows };
                known().push((block, main[0].layout));
                main
            }
        };
        let coefficients = coefficients(part);
        Ok(Self { rank: rank.clone(), block, stages, q, p, coefficients, main, off: None, middle })
    }

    /// Address of stage i of x̃ for matrix t.
    pub fn middle(&self, t: usize, i: usize) -> u64 {
        self.middle.at((t * self.stages + i) * self.p)
    }
    /// x̃ = X Aᵀ for matrix t.
    pub fn combine(&self, t: usize, x: u64) -> Result<()> {
        let (v, s, q) = (&self.rank.vendor, self.stages, self.q);
        v.fill(self.middle(t, 0), s * self.p, 0)?;
        for i in 0..s {
            for j in 0..s {
                v.axpy(q, self.coefficients[t][i * s + j], x + 8 * (j * q) as u64, self.middle(t, i))?;
            }
        }
        Ok(())
    }
    /// Stage i of y: the main-diagonal part, or the whole, times x̃; the second matrix adds.
    pub fn main(&self, t: usize, i: usize, y: u64) -> Result<()> {
        let y = y + 8 * (i * self.q) as u64;
        self.main[t].bsrmv(&self.rank.vendor, self.middle(t, i), t as f64, y)
    }
    /// Stage i of y += the off-diagonal part times ghosts at an address.
    pub fn off(&self, t: usize, i: usize, ghosts: u64, y: u64) -> Result<()> {
        match &self.off {
            Some(off) => off[t].bsrmv(&self.rank.vendor, ghosts, 1.0, y + 8 * (i * self.q) as u64),
            None => Ok(()),
        }
    }
}
