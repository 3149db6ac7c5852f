//! r = b − A x on a GPU in twice the working precision: launches of `kernels/kron_residual.cuh`.

use super::Cuda;
use super::dia::ResidualOf;
use super::driver::Buffer;
use super::product::{CudaProduct, Group};
use crate::operator::{PointBlockSum, check_lengths};
use crate::{Error, Result};

/// Threads per thread block.
const THREADS: usize = 256;
/// Thread blocks per multiprocessor.
const RESIDENT: usize = 6;

/// Addresses of b, x and the results.
struct Vectors {
    b: u64,
    x: u64,
    r: u64,
    m: u64,
    low: u64,
}

/// Location of ghosts: number of own nodes, address of the ghosts, and address of the exchange that holds
/// them.
type Ghosts = (i32, u64, u64);

impl CudaProduct {
    /// Computes `r ← b − A x` and `m ← |b| + |A| |x|`.
    pub(super) fn residual(
        &self,
        space: &Cuda,
        b: &Buffer<f64>,
        x: &Buffer<f64>,
        r: &mut Buffer<f64>,
        m: &mut Buffer<f64>,
    ) -> Result<()> {
        let run = self.block * self.stages;
        check_lengths(self.block_rows * run, self.block_columns * run, x.len(), r.len())?;
        check_lengths(r.len(), m.len(), b.len(), m.len())?;
        let on = ResidualOf { b: b.pointer(), x: x.pointer(), r: r.pointer(), m: m.pointer() };
        if let Some(dia) = &self.dia {
            if self.exchange.is_some() {
                // The ghosts of a product stay valid until the second product after it.
                space.multiply(self, x, r)?;
            }
            return dia.residual(space, &on, self.exchange.as_ref());
        }
        if let Some(csr) = &self.csr {
            return csr.residual(space, &on, 0);
        }
        if let (Some(csr), Some(exchange)) = (&self.csr_halo, &self.exchange) {
            return csr.residual(space, &on, exchange);
        }
        if self.interleaved.is_some() {
            return Err(Error::Internal("a product of columns computes no certified residual".into()));
        }
        let ghosts = match &self.exchange {
            None => None,
            Some(e) => {
                let own = self.block_columns as i32;
                Some(match e.inside() {
                    // The launch of a product exchanges the ghosts, which stay valid until the second product
                    // after it.
                    Some(exchange) => {
                        space.multiply(self, x, r)?;
                        (own, 0, exchange)
                    }
                    None => {
                        e.start(space, x.pointer())?;
                        e.finish(space.device())?;
                        (own, e.ghosts(), 0)
                    }
                })
            }
        };
        let low = self.low.as_ref().map_or(0, |low| low.pointer());
        let on = Vectors { b: b.pointer(), x: x.pointer(), r: r.pointer(), m: m.pointer(), low };
        self.groups.iter().try_for_each(|g| g.residual(space, run, &on, ghosts))
    }
}

impl Group {
    fn residual(&self, space: &Cuda, run: usize, on: &Vectors, ghosts: Option<Ghosts>) -> Result<()> {
        let (k, t, device) = (&self.kernels, &self.tiles, space.device());
        if t.count == 0 {
            return Ok(());
        }
        let grid = t.count.min(device.multiprocessors() * RESIDENT);
        let (count, values) = (t.count as i32, self.values());
        // Without ghosts the kernel does not read the last arguments.
        let (own, at, exchange) = ghosts.unwrap_or_default();
        k.residual.on(device, grid, THREADS).run(
            space.halt(),
            count,
            &t.starts,
            &t.records,
            values,
            on.x,
            on.b,
            on.r,
            on.low,
            on.m,
            &self.parts,
            own,
            at,
            exchange,
        )?;
        let rows = t.long_rows.len() / 3;
        if rows > 0 {
            let launch = k.residual_long.on(device, (rows * run).div_ceil(THREADS), THREADS);
            launch.run(space.halt(), rows as i32, &t.long_rows, &self.parts, on.b, on.r, on.low, on.m)?;
        }
        Ok(())
    }
}
