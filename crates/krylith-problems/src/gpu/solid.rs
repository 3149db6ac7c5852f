//! A hyperelastic body on a GPU.

use krylith_core::Result;
use krylith_core::device::cuda::Buffer;
use krylith_core::memory::Numbers;
use krylith_core::newton::NonlinearSystem;

use super::device::{Kernels, Mesh, SOLID, address, fits, wide};
use super::{Assembly, OnGpu};
use crate::solid::{Material, Solid};

/// Rows of a thread block of the residual.
const THREADS: usize = 128;
/// Numbers of `Body` in `kernels/solid.cu`.
const CONSTANTS: usize = 14;

struct Data {
    mesh: Mesh,
    axes: Buffer<f64>,
    held: Buffer<u8>,
    given: Buffer<f64>,
    predicted: Buffer<f64>,
    load: Buffer<f64>,
    /// The surface under pressure, of the last time step.
    from: Buffer<u64>,
    beside: Buffer<u32>,
    spots: Buffer<u8>,
    faces: Buffer<u32>,
    /// The numbers of `Body` in `kernels/solid.cu`.
    constants: Buffer<f64>,
}

struct OfSolid {
    kernels: Kernels,
    data: Data,
}

/// Copies the system to a GPU; `None` if it does not fit.
pub(crate) fn assembly(solid: &Solid, gpu: usize) -> Result<Option<Box<dyn Assembly<Solid>>>> {
    let Some(kernels) = fits(Kernels::open(gpu, SOLID, solid.pattern(), OnGpu::share(solid)))?.flatten()
    else {
        return Ok(None);
    };
    let (device, n) = (&kernels.device, solid.mesh().points().len());
    let held: Vec<u8> = solid.given().iter().map(|given| u8::from(given.is_some())).collect();
    let given: Vec<[f64; 3]> = solid.given().iter().map(|given| given.unwrap_or_default()).collect();
    let data = (|| {
        Ok(Data {
            mesh: Mesh::new(device, solid.mesh(), solid.rows())?,
            axes: device.upload(solid.axes().as_flattened().as_flattened(), "fibres")?,
            held: device.upload(&held, "boundary conditions")?,
            given: device.upload(given.as_flattened(), "boundary values")?,
            predicted: device.zeros(3 * n, "the predicted displacement")?,
            load: device.zeros(3 * n, "forces")?,
            from: device.zeros(1, "a surface")?,
            beside: device.zeros(1, "a surface")?,
            spots: device.zeros(1, "a surface")?,
            faces: device.zeros(1, "a surface")?,
            constants: device.zeros(CONSTANTS, "constants")?,
        })
    })();
    Ok(fits(data)?.map(|data| Box::new(OfSolid { kernels, data }) as Box<dyn Assembly<Solid>>))
}

impl Assembly<Solid> for OfSolid {
    fn begin(&mut self, solid: &Solid) -> Result<()> {
        let (device, step, data) = (&self.kernels.device, solid.step(), &mut self.data);
        device.write(solid.predicted(), &mut data.predicted, 0)?;
        device.write(step.load, &mut data.load, 0)?;
        let (own, pressed) = (data.mesh.nodes(), step.pressed);
        // Without pressure, the kernels read no list.
        let (from, beside) = match pressed.begin.get(..=own) {
            Some(begin) => (wide(begin), &pressed.around[..begin[own]]),
            None => (vec![0], &[][..]),
        };
        let mut spots = Vec::with_capacity(3 * beside.len());
        for (i, ends) in from.windows(2).enumerate() {
            for &corner in &beside[ends[0] as usize..ends[1] as usize] {
                spots.extend(pressed.faces[corner as usize / 3].map(|p| solid.rows().place(i, p) as u8));
            }
        }
        data.from = device.upload(&from, "a surface")?;
        data.beside = device.upload(beside, "a surface")?;
        data.spots = device.upload(&spots, "a surface")?;
        data.faces = device.upload(pressed.faces.as_flattened(), "a surface")?;
        let Material { a, b, a_f, b_f, a_s, b_s, a_fs, b_fs, kappa, tension, cross } = step.material;
        let step = [step.inertia, pressed.pressure, solid.scale()];
        let material = [a, b, a_f, b_f, a_s, b_s, a_fs, b_fs, kappa, tension, cross];
        let constants: Vec<f64> = material.into_iter().chain(step).collect();
        device.write(&constants, &mut data.constants, 0)
    }

    fn residual(&mut self, x: Numbers<'_>) -> Result<Numbers<'_>> {
        let Data { mesh, axes, held, given, predicted, load, from, beside, faces, constants, .. } =
            &self.data;
        self.kernels.residual(x, mesh.nodes(), THREADS, |x, f| {
            let mut all = mesh.for_residual(x);
            all.extend([
                address(axes),
                address(held),
                address(given),
                address(predicted),
                address(load),
                address(from),
                address(beside),
                address(faces),
                address(constants),
                f,
            ]);
            all
        })
    }

    fn jacobian(&mut self, x: Numbers<'_>) -> Result<Numbers<'_>> {
        let Data { mesh, axes, held, from, beside, spots, faces, constants, .. } = &self.data;
        self.kernels.jacobian(x, mesh.rows(9), |x, values| {
            let mut all = mesh.for_jacobian(x);
            all.extend([
                address(axes),
                address(held),
                address(from),
                address(beside),
                address(spots),
                address(faces),
                address(constants),
                values,
            ]);
            all
        })
    }
}
