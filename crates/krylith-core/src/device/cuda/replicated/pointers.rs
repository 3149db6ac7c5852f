//! Row pointers that stay in the memory of a GPU while rows are cut into runs.

use super::super::driver::{Buffer, Device};
use super::super::launch::Entry;
use super::super::resident::Resident;
use super::{POINTERS, SEARCHES, WHAT, longest_row, row_pointers, search_rows};
use crate::Result;
use crate::operator::cuts::{RowPointers, Search};
use std::sync::Arc;

/// Row pointers in the memory of a GPU; a call makes one or two launches and one copy back.
pub(super) struct OnDevice {
    device: Arc<Device>,
    on: Arc<Resident>,
    answers: Buffer<i64>,
}

impl OnDevice {
    pub fn new(device: &Arc<Device>, on: Arc<Resident>) -> Result<Self> {
        Ok(Self { device: device.clone(), on, answers: device.zeros(2 * SEARCHES, WHAT)? })
    }

    fn read(&self, count: usize) -> Result<Vec<u64>> {
        let mut answers = vec![0i64; count];
        self.device.read(&self.answers, 0, &mut answers)?;
        Ok(answers.into_iter().map(|n| n as u64).collect())
    }
}

impl RowPointers for OnDevice {
    fn rows(&self) -> usize {
        self.on.row_ptr.len() - 1
    }

    fn entries(&self) -> u64 {
        self.on.col.len() as u64
    }

    fn longest(&self) -> Result<usize> {
        let (device, rows) = (&self.device, self.rows());
        if rows == 0 {
            return Ok(0);
        }
        let key = device.zeros::<u64>(1, WHAT)?;
        let function = device.function(&longest_row.plain())?;
        let grid = rows.div_ceil(1024).clamp(1, 8 * device.multiprocessors());
        function.on(device, grid, 256).run(rows as i64, &self.on.row_ptr, &key)?;
        let mut found = [0];
        device.read(&key, 0, &mut found)?;
        Ok((u32::MAX - found[0] as u32) as usize)
    }

    fn at(&self, rows: &[usize]) -> Result<Vec<u64>> {
        let function = self.device.function(&row_pointers.plain())?;
        let mut all = Vec::with_capacity(rows.len());
        for rows in rows.chunks(POINTERS) {
            let (mut asked, count) = ([0i64; POINTERS], rows.len());
            asked.iter_mut().zip(rows).for_each(|(to, &row)| *to = row as i64);
            function.on(&self.device, 1, POINTERS).run(
                asked,
                count as i32,
                &self.on.row_ptr,
                &self.answers,
            )?;
            all.extend(self.read(count)?);
        }
        Ok(all)
    }

    fn search(&self, searches: &[Search]) -> Result<Vec<(usize, u64)>> {
        let function = self.device.function(&search_rows.plain())?;
        let mut all = Vec::with_capacity(searches.len());
        for some in searches.chunks(SEARCHES) {
            let mut asked = [[0i64; 6]; SEARCHES];
            for (to, s) in asked.iter_mut().zip(some) {
                let (fold, wanted) = (&s.fold, s.wanted as i64);
                let (start, skipped) = (fold.start as i64, fold.skipped as i64);
                *to = [start, skipped, fold.entries as i64, s.low as i64, s.high as i64, wanted];
            }
            let count = some.len() as i32;
            function.on(&self.device, 1, SEARCHES).run(asked, count, &self.on.row_ptr, &self.answers)?;
            let found = self.read(2 * some.len())?;
            all.extend(found.chunks_exact(2).map(|pair| (pair[0] as usize, pair[1])));
        }
        Ok(all)
    }
}
