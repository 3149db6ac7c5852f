//! Structure inside the blocks, found on the GPU (`kernels/structure.cu`).

use super::Cuda;
use super::launch::{At, Entry, kernels};
use crate::Result;
use crate::operator::{Structure, Terms};

kernels! {
    STRUCTURE in "structure.cu", |_| vec![structure.plain().into()];
    fn structure(entries: i32, blocks: i64, values: At<f64>, found: At<u64>);
}

/// Largest number of entries of a block that the kernel supports.
const MOST: usize = 64;
/// Numbers that a thread block reads together; the kernel has the same constant.
const ROOM: usize = 2048;

impl Cuda {
    /// Returns the structure that all blocks of each term share, as [`Structure::find`] finds it on the host.
    ///
    /// Values in the memory of this GPU are read there once. For blocks larger than 8×8 the host does the
    /// work.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn structure(&self, terms: &Terms) -> Result<Structure> {
        let (device, entries) = (self.device(), terms.block() * terms.block());
        if entries > MOST {
            return Ok(Structure::find(terms));
        }
        let each = entries + 1;
        let found = device.zeros::<u64>(each * terms.terms.len(), "structure inside the blocks")?;
        let function = device.function(&structure.plain())?;
        let mut empty = Vec::new();
        for (t, (_, a)) in terms.terms.iter().enumerate() {
            empty.push(a.blocks() == 0);
            if a.blocks() == 0 {
                continue;
            }
            let resident = self.resident(a)?;
            let grid = a.blocks().div_ceil(ROOM / entries).min(8 * device.multiprocessors());
            function.on(device, grid, 256).run(
                entries as i32,
                a.blocks() as i64,
                &resident.values,
                found.at(each * t),
            )?;
        }
        let mut bits = vec![0u64; found.len()];
        device.read(&found, 0, &mut bits)?;
        let classes = bits.chunks_exact(each).zip(empty).map(|(bits, empty)| {
            let class = |e: usize| {
                let like = (0..e).find(|&k| bits[e] >> k & 1 == 0).unwrap_or(e);
                (bits[entries] >> e & 1 == 1).then_some(like)
            };
            if empty { (0..entries).map(Some).collect() } else { (0..entries).map(class).collect() }
        });
        Ok(Structure::of_classes(terms.block(), classes))
    }
}
