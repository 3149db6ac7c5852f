//! Products with the inverses of patches on a GPU: the launches of `kernels/vanka.cu`.

use super::Cuda;
use super::driver::Buffer;
use super::launch::{At, Entry, Function, Of, Reals, kernels};
use super::specialisations::{STORES, value};
use crate::Result;
use crate::memory::check_len;
use crate::precond::{Inverses, PatchProduct, PatchProducts, Patches};
use crate::space::Precision;
use std::sync::Arc;

kernels! {
    VANKA in "vanka.cu", |_| STORES.map(|precision| vanka_patches::of(precision).into()).into();
    fn vanka_patches(
        halt: At<i32>, places: i64, patch: At<u32>, first: At<i64>, at: At<i64>, members: At<u32>,
        inverses: Reals, x: At<f64>, z: At<f64>,
    );
}

impl vanka_patches {
    /// Returns the kernel for a precision.
    pub(crate) fn of(precision: Precision) -> Of<Self> {
        Self.with(vec![value(precision)])
    }
}

const THREADS: usize = 256;

enum Numbers {
    F64(Buffer<f64>),
    F32(Buffer<f32>),
}

/// Inverses in GPU memory.
struct OnGpu {
    unknowns: usize,
    patch: Buffer<u32>,
    first: Buffer<i64>,
    at: Buffer<i64>,
    members: Buffer<u32>,
    inverses: Numbers,
    function: Function<vanka_patches>,
}

impl PatchProducts for Cuda {
    fn patch_product(
        &self,
        patches: &Arc<Patches>,
        inverses: Inverses,
    ) -> Result<Box<dyn PatchProduct<Self>>> {
        let (device, what) = (self.device(), "inverses of patches");
        let wide = |all: &[usize]| all.iter().map(|&v| v as i64).collect::<Vec<_>>();
        let (inverses, precision) = match inverses {
            Inverses::F64(all) => (Numbers::F64(device.upload(&all, what)?), Precision::F64),
            Inverses::F32(all) => (Numbers::F32(device.upload(&all, what)?), Precision::F32),
        };
        Ok(Box::new(OnGpu {
            unknowns: patches.unknowns(),
            patch: device.upload(&patches.patch, what)?,
            first: device.upload(&wide(&patches.first), what)?,
            at: device.upload(&wide(&patches.at), what)?,
            members: device.upload(&patches.members, what)?,
            inverses,
            function: device.function(&vanka_patches::of(precision))?,
        }))
    }
}

impl PatchProduct<Cuda> for OnGpu {
    fn multiply(&self, space: &Cuda, x: &Buffer<f64>, z: &mut Buffer<f64>) -> Result<()> {
        let places = self.members.len();
        check_len(x.len(), self.unknowns)?;
        check_len(z.len(), places)?;
        if places == 0 {
            return Ok(()); // a rank without constraints
        }
        let inverses: Reals = match &self.inverses {
            Numbers::F64(all) => all.into(),
            Numbers::F32(all) => all.into(),
        };
        self.function.on(space.device(), places.div_ceil(THREADS), THREADS).run(
            space.halt(),
            places as i64,
            &self.patch,
            &self.first,
            &self.at,
            &self.members,
            inverses,
            x,
            &*z,
        )
    }

    fn update(&mut self, space: &Cuda, inverses: Inverses) -> Result<()> {
        match (&mut self.inverses, inverses) {
            (Numbers::F64(to), Inverses::F64(from)) => space.device().write(&from, to, 0),
            (Numbers::F32(to), Inverses::F32(from)) => space.device().write(&from, to, 0),
            _ => Err(crate::Error::Internal("inverses of patches in another precision".into())),
        }
    }
}
