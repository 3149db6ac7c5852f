//! The cavity on a GPU.

use krylith_core::Result;
use krylith_core::device::cuda::{Argument, Buffer};
use krylith_core::memory::Numbers;
use krylith_core::newton::NonlinearSystem;

use super::device::{CAVITY, Kernels, Launch, address, count, fits, wide};
use super::{Assembly, OnGpu};
use crate::cavity::Cavity;

/// Rows of a thread block.
const THREADS: usize = 256;

struct Data {
    nodes: [usize; 2],
    own: usize,
    numbers: Buffer<u32>,
    row_ptr: Buffer<u64>,
    col: Buffer<u32>,
    places: Buffer<u8>,
    re: f64,
}

struct OfCavity {
    kernels: Kernels,
    data: Data,
}

impl Data {
    /// Returns the arguments of both kernels, which differ in the last.
    fn arguments(&self, x: Argument, out: Argument) -> Vec<Argument> {
        vec![
            count(self.own),
            count(self.nodes[0]),
            count(self.nodes[1]),
            address(&self.numbers),
            address(&self.row_ptr),
            address(&self.col),
            address(&self.places),
            x,
            Argument::Real(self.re),
            out,
        ]
    }
}

/// Copies the system to a GPU; `None` if it does not fit.
pub(crate) fn assembly(cavity: &Cavity, gpu: usize) -> Result<Option<Box<dyn Assembly<Cavity>>>> {
    let Some(kernels) = fits(Kernels::open(gpu, CAVITY, cavity.pattern(), OnGpu::share(cavity)))?.flatten()
    else {
        return Ok(None);
    };
    let (device, pattern, what) = (&kernels.device, cavity.pattern(), "a grid");
    let own = pattern.block_rows();
    let numbers: Vec<u32> = (0..own).map(|k| cavity.node(k) as u32).collect();
    let data = (|| {
        Ok(Data {
            nodes: cavity.nodes(),
            own,
            numbers: device.upload(&numbers, what)?,
            row_ptr: device.upload(&wide(pattern.row_ptr()), what)?,
            col: device.upload(pattern.col(), what)?,
            places: device.upload(cavity.places().as_flattened(), what)?,
            re: cavity.reynolds(),
        })
    })();
    Ok(fits(data)?.map(|data| Box::new(OfCavity { kernels, data }) as Box<dyn Assembly<Cavity>>))
}

impl Assembly<Cavity> for OfCavity {
    fn begin(&mut self, cavity: &Cavity) -> Result<()> {
        self.data.re = cavity.reynolds();
        Ok(())
    }

    fn residual(&mut self, x: Numbers<'_>) -> Result<Numbers<'_>> {
        let data = &self.data;
        self.kernels.residual(x, data.own, THREADS, |x, f| data.arguments(x, f))
    }

    fn jacobian(&mut self, x: Numbers<'_>) -> Result<Numbers<'_>> {
        let data = &self.data;
        let launch = Launch { blocks: data.own.div_ceil(THREADS), threads: THREADS, shared: 0 };
        self.kernels.jacobian(x, launch, |x, values| data.arguments(x, values))
    }
}
