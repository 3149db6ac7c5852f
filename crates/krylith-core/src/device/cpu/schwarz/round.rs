//! Factors rounded to f32, and the scale of solves in f32.
//!
//! The matrix is multiplied by a power of two, so that D and D⁻¹ are near 1: U by this power, and D⁻¹ by its
//! inverse. If the range of the numbers of a rank is too large (`precond/range.rs`), its solves are in f64.

use super::CpuSchwarz;
use crate::Result;
use crate::precond::range::{Exponents, powers};
use crate::threads::{Disjoint, Pool, share, zeros};
use std::ops::Range;
use std::sync::Mutex;

impl CpuSchwarz {
    /// Rounds new factors, where solves use f32. Their range may make the solves f64.
    pub(super) fn round(&mut self, pool: &Pool) -> Result<()> {
        if self.shift.is_some() {
            self.shift = self.exponents(pool).common();
            if self.shift.is_none() {
                return self.promote();
            }
        }
        let Self { plan, factors, inverse, rounded, shift, .. } = self;
        let Some([to, of_diagonal]) = rounded else { return Ok(()) };
        let (bb, shift) = (plan.block * plan.block, shift.unwrap_or(0));
        let pieces = pool.pieces(12 * factors.len());
        let (to, of_diagonal) = (Disjoint::new(to), Disjoint::new(of_diagonal));
        let [up, down] = [shift, -shift].map(powers);
        let round = |from: &[f64], to: &mut [f32], [f, g]: [f64; 2]| {
            from.iter().zip(to).for_each(|(v, to)| *to = (v * f * g) as f32);
        };
        pool.run(pieces, |piece| {
            for i in share(plan.rows(), piece, pieces) {
                let numbers = |blocks: Range<i64>| blocks.start as usize * bb..blocks.end as usize * bb;
                let (begin, middle, end) = (plan.row_ptr[i], plan.diagonal[i], plan.row_ptr[i + 1]);
                for (own, factor) in [(begin..middle, [1.0; 2]), (middle..end, up)] {
                    let own = numbers(own);
                    // SAFETY: pieces have rows of their own, and with them entries.
                    round(&factors[own.clone()], unsafe { to.range(own) }, factor);
                }
                let own = i * bb..(i + 1) * bb;
                // SAFETY: as above.
                round(&inverse[own.clone()], unsafe { of_diagonal.range(own) }, down);
            }
        });
        Ok(())
    }

    /// Returns the sizes of all factors.
    fn exponents(&self, pool: &Pool) -> Exponents {
        let Self { plan, factors, inverse, .. } = self;
        let (b, bb) = (plan.block, plan.block * plan.block);
        let (pieces, all) = (pool.pieces(8 * factors.len()), Mutex::new(Exponents::default()));
        pool.run(pieces, |piece| {
            let mut found = Exponents::default();
            for i in share(plan.rows(), piece, pieces) {
                let [begin, middle, end] =
                    [plan.row_ptr[i], plan.diagonal[i], plan.row_ptr[i + 1]].map(|at| at as usize * bb);
                inverse[i * bb..(i + 1) * bb].chunks_exact(b).for_each(|row| found.pivot(row));
                found.others(&factors[begin..middle]);
                found.upper(&factors[middle..end]);
            }
            let mut all = all.lock().unwrap_or_else(|e| e.into_inner());
            *all = all.with(found);
        });
        all.into_inner().unwrap_or_else(|e| e.into_inner())
    }

    /// Makes solves f64 for good.
    fn promote(&mut self) -> Result<()> {
        let (what, numbers) = ("the factors of ras", self.plan.rows() * self.plan.block);
        let vector = || zeros(numbers, what);
        self.work.get_mut().vectors = super::Vectors::F64([vector()?, vector()?, vector()?]);
        (self.rounded, self.shift) = (None, None);
        if let Some(transposed) = &mut self.transposed {
            transposed.numbers =
                super::Numbers::F64([zeros(self.factors.len(), what)?, zeros(self.inverse.len(), what)?]);
        }
        Ok(())
    }
}
