//! Products with the inverses of patches on the CPU: each thread takes patches of its own.

use super::{Cpu, Wide};
use crate::Result;
use crate::memory::check_len;
use crate::precond::{Inverses, PatchProduct, PatchProducts, Patches};
use crate::threads::{Disjoint, share};
use std::sync::Arc;

/// Inverses in host memory.
struct OnCpu {
    patches: Arc<Patches>,
    inverses: Inverses,
}

impl PatchProducts for Cpu {
    fn patch_product(
        &self,
        patches: &Arc<Patches>,
        inverses: Inverses,
    ) -> Result<Box<dyn PatchProduct<Self>>> {
        Ok(Box::new(OnCpu { patches: patches.clone(), inverses }))
    }
}

impl PatchProduct<Cpu> for OnCpu {
    fn multiply(&self, space: &Cpu, x: &Vec<f64>, z: &mut Vec<f64>) -> Result<()> {
        let Self { patches, inverses } = self;
        check_len(x.len(), patches.unknowns())?;
        check_len(z.len(), patches.len())?;
        let (z, pool) = (Disjoint::new(z), space.pool());
        let pieces = pool.pieces(4 * patches.dense_numbers());
        pool.run(pieces, |piece| {
            let range = share(patches.count(), piece, pieces);
            pulp::Arch::new().dispatch(Wide(
                #[inline(always)]
                || {
                    // SAFETY: pieces do not overlap.
                    let z = unsafe { z.range(patches.first[range.start]..patches.first[range.end]) };
                    patches.multiply(inverses, range.clone(), x, z);
                },
            ));
        });
        Ok(())
    }
    fn update(&mut self, _: &Cpu, inverses: Inverses) -> Result<()> {
        self.inverses = inverses;
        Ok(())
    }
}
