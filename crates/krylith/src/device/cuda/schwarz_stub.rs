//! Placeholder until the device part is merged.
use super::Cuda;
use crate::memory::Numbers;
use crate::precond::{
    FactorQuality, Factorization, Pivots, SchwarzFactors, SchwarzOptions, SchwarzPlan, TriangularSolve,
};
use crate::space::Space;
use crate::{Error, Result};
use std::sync::Arc;

impl SchwarzFactors for Cuda {
    type Factors = ();
    fn prepare_schwarz(&self, _: &Arc<SchwarzPlan>, _: SchwarzOptions) -> Result<()> {
        Err(Error::Unsupported("ras on a GPU".into()))
    }
    fn gather_schwarz(&self, _: &mut (), _: Numbers) -> Result<()> {
        Ok(())
    }
    fn factorize_schwarz(&self, _: &mut (), _: Factorization) -> Result<(FactorQuality, Pivots)> {
        Err(Error::Unsupported("ras on a GPU".into()))
    }
    fn apply_schwarz(
        &self,
        _: &(),
        _: TriangularSolve,
        _: &<Self as Space>::Vector,
        _: &mut <Self as Space>::Vector,
    ) -> Result<()> {
        Ok(())
    }
    fn schwarz_bytes(_: &(), _: TriangularSolve) -> u64 {
        0
    }
    fn read_schwarz(&self, _: &()) -> Result<Vec<f64>> {
        Ok(Vec::new())
    }
}
