//! A flow on a GPU.

use krylith_core::Result;
use krylith_core::device::cuda::{Argument, Buffer};
use krylith_core::memory::Numbers;
use krylith_core::newton::NonlinearSystem;

use super::device::{FLOW, Kernels, Mesh, address, fits};
use super::{Assembly, OnGpu};
use crate::flow::{Flow, Fluid};

/// Rows of a thread block of the residual.
const THREADS: usize = 128;

struct Data {
    mesh: Mesh,
    fixed: Buffer<u8>,
    given: Buffer<f64>,
    history: Buffer<f64>,
    weights: Buffer<f64>,
    /// c₀, σ, ρ and μ.
    constants: [f64; 4],
}

struct OfFlow {
    kernels: Kernels,
    data: Data,
}

/// Copies the system to a GPU; `None` if it does not fit.
pub(crate) fn assembly(flow: &Flow, gpu: usize) -> Result<Option<Box<dyn Assembly<Flow>>>> {
    let Some(kernels) = fits(Kernels::open(gpu, FLOW, flow.pattern(), OnGpu::share(flow)))?.flatten() else {
        return Ok(None);
    };
    let device = &kernels.device;
    let bits = |fixed: &[bool; 4]| (0..4).map(|c| u8::from(fixed[c]) << c).sum();
    let fixed: Vec<u8> = flow.fixed().iter().map(bits).collect();
    let data = (|| {
        Ok(Data {
            mesh: Mesh::new(device, flow.mesh(), flow.rows())?,
            fixed: device.upload(&fixed, "boundary conditions")?,
            given: device.zeros(4 * fixed.len(), "boundary values")?,
            history: device.zeros(3 * fixed.len(), "the last time step")?,
            weights: device.zeros(2 * flow.mesh().tetrahedra().len(), "stabilisation")?,
            constants: [0.0; 4],
        })
    })();
    Ok(fits(data)?.map(|data| Box::new(OfFlow { kernels, data }) as Box<dyn Assembly<Flow>>))
}

impl Assembly<Flow> for OfFlow {
    fn begin(&mut self, flow: &Flow) -> Result<()> {
        let (device, step, data) = (&self.kernels.device, flow.step(), &mut self.data);
        device.write(step.given, &mut data.given, 0)?;
        device.write(step.history.as_flattened(), &mut data.history, 0)?;
        device.write(step.weights.as_flattened(), &mut data.weights, 0)?;
        let Fluid { density, viscosity } = flow.fluid();
        data.constants = [step.rate, step.scale, density, viscosity];
        Ok(())
    }

    fn residual(&mut self, x: Numbers<'_>) -> Result<Numbers<'_>> {
        let Data { mesh, fixed, given, history, weights, constants } = &self.data;
        self.kernels.residual(x, mesh.nodes(), THREADS, |x, f| {
            let mut all = mesh.for_residual(x);
            all.extend([address(fixed), address(given), address(history), address(weights)]);
            all.extend(constants.map(Argument::Real));
            all.push(f);
            all
        })
    }

    fn jacobian(&mut self, x: Numbers<'_>) -> Result<Numbers<'_>> {
        let Data { mesh, fixed, history, weights, constants, .. } = &self.data;
        self.kernels.jacobian(x, mesh.rows(16), |x, values| {
            let mut all = mesh.for_jacobian(x);
            all.extend([address(fixed), address(history), address(weights)]);
            all.extend(constants.map(Argument::Real));
            all.push(values);
            all
        })
    }
}
