//! Matrices stored by diagonals, on the CPU.

use super::Cpu;
use super::pool::Disjoint;
use crate::Result;
use crate::matrix::Dia;
use crate::memory::Numbers;
use crate::operator::DiagonalFormat;

/// Offsets and values in host memory.
pub struct CpuDiagonals {
    offsets: Vec<i64>,
    values: Vec<f64>,
}

impl DiagonalFormat for Cpu {
    type Diagonals = CpuDiagonals;

    fn prepare_diagonals(&self, a: &Dia) -> Result<CpuDiagonals> {
        Ok(CpuDiagonals { offsets: a.offsets().to_vec(), values: a.values().to_vec() })
    }

    fn update_diagonals(&self, to: &mut CpuDiagonals, values: Numbers) -> Result<()> {
        values.read(&mut to.values)
    }

    fn multiply_diagonals(&self, a: &CpuDiagonals, x: &Vec<f64>, y: &mut Vec<f64>) -> Result<()> {
        let (n, y) = (x.len(), Disjoint::new(y));
        self.for_strips(a.offsets.len() + 2, |_, range| {
            // SAFETY: strips do not overlap.
            let y = unsafe { y.range(range.clone()) };
            y.fill(0.0);
            for (d, &offset) in a.offsets.iter().enumerate() {
                // The rows of this strip whose entry on the diagonal lies inside the matrix.
                let low = (range.start as i64).max(-offset);
                let high = (range.end as i64).min(n as i64 - offset);
                if low >= high {
                    continue;
                }
                let (low, high) = (low as usize, high as usize);
                let values = &a.values[d * n + low..d * n + high];
                let x = &x[(low as i64 + offset) as usize..(high as i64 + offset) as usize];
                let y = &mut y[low - range.start..high - range.start];
                for ((y, v), x) in y.iter_mut().zip(values).zip(x) {
                    *y += v * x;
                }
            }
        });
        Ok(())
    }
}
