//! Products with several vectors on the CPU.
//!
//! Rows are multiplied in strips whose matrix entries fit in the caches of a core. Each strip is multiplied
//! with all vectors before the next one, so the matrix comes from memory once. The kernels are those of a
//! single vector, and so are the results, to the last bit.

use super::Cpu;
use super::product::{CpuProduct, Own, Rows};
use crate::Result;
use crate::space::MOST_COLUMNS;
use crate::threads::{Disjoint, Pool};
use arrayvec::ArrayVec;
use std::ops::Range;

/// Bytes of a matrix in one strip: half of a second-level cache of 512 KiB, shared with the vectors.
const STRIP: usize = 128 << 10;

/// Vectors that several threads write.
struct Writers<'a>(ArrayVec<Disjoint<'a, f64>, MOST_COLUMNS>);

impl<'a> Writers<'a> {
    fn new(y: &'a mut [&mut Vec<f64>]) -> Self {
        Self(y.iter_mut().map(|y| Disjoint::new(y)).collect())
    }

    /// Calls `work` with a range of each vector.
    ///
    /// # Safety
    /// No two threads may have overlapping ranges at once.
    unsafe fn each(&self, range: Range<usize>, mut work: impl FnMut(usize, &mut [f64])) {
        for (k, y) in self.0.iter().enumerate() {
            // SAFETY: the caller's promise.
            work(k, unsafe { y.range(range.clone()) });
        }
    }
}

impl Cpu {
    /// Computes y ← A x for several vectors.
    pub(super) fn multiply_together(
        &self,
        p: &CpuProduct,
        x: &[&Vec<f64>],
        y: &mut [&mut Vec<f64>],
    ) -> Result<()> {
        for (x, y) in x.chunks(MOST_COLUMNS).zip(y.chunks_mut(MOST_COLUMNS)) {
            x.iter().zip(y.iter()).try_for_each(|(x, y)| p.own.check(x, y))?;
            match &p.own {
                Own::Rows(rows) => rows.multiply_together(self.pool(), x, y),
                Own::Diagonals(diagonals) => {
                    let to = Writers::new(y);
                    // SAFETY: strips do not overlap.
                    diagonals.in_strips(self, STRIP, |rows| unsafe {
                        to.each(rows.clone(), |k, y| diagonals.multiply_strip(rows.clone(), x[k], y));
                    });
                }
            }
        }
        Ok(())
    }
}

impl Rows {
    fn multiply_together(&self, pool: &Pool, x: &[&Vec<f64>], y: &mut [&mut Vec<f64>]) {
        if self.has_long_rows() {
            return x.iter().zip(y).for_each(|(x, y)| self.multiply(pool, x, y));
        }
        let (run, bs, to) = (self.kernel(), self.run(), Writers::new(y));
        let per_row = self.bytes() as usize / self.pieces.last().map_or(1, |last| last.end.max(1));
        pool.run(self.pieces.len(), |piece| {
            let piece = self.pieces[piece].clone();
            let mut at = piece.start;
            while at < piece.end {
                // At least some rows, so that a strip costs more than its calls.
                let rows = at..(at + (STRIP / per_row.max(1)).max(16)).min(piece.end);
                // SAFETY: strips do not overlap.
                unsafe {
                    to.each(rows.start * bs..rows.end * bs, |k, y| run(self, rows.clone(), x[k], y));
                }
                at = rows.end;
            }
        });
    }
}
