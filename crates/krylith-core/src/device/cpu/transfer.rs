//! Copies between a CPU's vectors and a caller's memory.

use super::Cpu;
use crate::Result;
use crate::memory::{Numbers, NumbersMut, check_len};
use crate::space::{Gather, Transfer};
use crate::threads::{Disjoint, share};

impl Transfer for Cpu {
    fn write_from(&self, from: Numbers, to: &mut Vec<f64>) -> Result<()> {
        from.read(to)
    }

    fn read_into(&self, from: &Vec<f64>, mut to: NumbersMut) -> Result<()> {
        to.write(from)
    }
}

impl Gather for Cpu {
    type Entries = Vec<u32>;

    fn entries(&self, numbers: &[u32]) -> Result<Vec<u32>> {
        match numbers.iter().find(|&&i| i as usize >= self.len) {
            None => Ok(numbers.to_vec()),
            Some(i) => Err(crate::Error::Internal(format!("entry {i} of a vector of {} numbers", self.len))),
        }
    }

    fn gather(&self, entries: &Vec<u32>, x: &Vec<f64>, to: &mut Vec<f64>) -> Result<()> {
        check_len(x.len(), self.len)?;
        check_len(to.len(), entries.len())?;
        let (pieces, to) = (self.pool.pieces(20 * entries.len()), Disjoint::new(to));
        self.pool.run(pieces, |piece| {
            let run = share(entries.len(), piece, pieces);
            // SAFETY: pieces do not overlap.
            let to = unsafe { to.range(run.clone()) };
            to.iter_mut().zip(&entries[run]).for_each(|(to, &i)| *to = x[i as usize]);
        });
        Ok(())
    }

    fn scatter(&self, entries: &Vec<u32>, x: &Vec<f64>, to: &mut Vec<f64>) -> Result<()> {
        check_len(to.len(), self.len)?;
        check_len(x.len(), entries.len())?;
        let (pieces, to) = (self.pool.pieces(20 * entries.len()), Disjoint::new(to));
        self.pool.run(pieces, |piece| {
            for k in share(entries.len(), piece, pieces) {
                let i = entries[k] as usize;
                // SAFETY: no number occurs twice.
                unsafe { to.range(i..i + 1)[0] = x[k] };
            }
        });
        Ok(())
    }
}
