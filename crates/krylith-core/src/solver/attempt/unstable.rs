//! Incomplete factors that amplify rounding errors until no digit is left. Their pivots need be neither zero
//! nor tiny: numbers of the factors may grow from row to row, up to overflow. The matrix may be regular.

use super::{Current, Rank};
use crate::Result;
use crate::comm::largest;
use crate::operator::{LinearOperator, applied};
use crate::precond::PrecondSpec;
use crate::problem::LocalProblem;
use crate::solver::SolverSpace;
use crate::solver::diagnosis::Indices;
use crate::solver::rows::inverse_norms;
use crate::space::{Outcome, Reason, UNSTABLE, random};

/// Factors are unstable if D⁻¹ A P⁻¹ D v is at least this many times as large as a random v, in the maximum
/// norm, where D has the 1-norms of the rows. Rounding errors grow as much. Good factors do not change v.
const GROWTH: f64 = 1e10;

impl<S: SolverSpace> Rank<S> {
    /// Called after an attempt. If it broke down and its incomplete factors are unstable, returns this reason
    /// in words. Collective.
    pub(super) fn unstable_factors(&mut self, local: &LocalProblem) -> Result<Option<String>> {
        let broke = match self.history.outcome {
            Outcome::Breakdown => self.history.reason == Some(Reason::Invariant.text()),
            Outcome::NotFinite => self.history.reason.is_none(),
            _ => false,
        };
        let precond = &self.fallbacks[self.next_attempt].precond;
        let is_incomplete = matches!(precond, PrecondSpec::Ildu(_) | PrecondSpec::Ras(_));
        let Some(Current { p: Some(p), is_whole: false, .. }) = &self.current else { return Ok(None) };
        if !(broke && is_incomplete) {
            return Ok(None);
        }
        let away = local.terms.terms.iter().any(|(_, a)| a.storage().is_on_device_alone());
        let (space, on) = (&self.space, &mut self.on);
        if space.any(away)? {
            return Ok(None);
        }
        let inverses = inverse_norms(local.terms);
        let seed = 13 + local.comm.rank() as u64;
        let mut v: Vec<f64> =
            inverses.iter().enumerate().map(|(i, inverse)| random(seed, i as u64) / inverse).collect();
        let mut y = vec![0.0; v.len()];
        space.write(&v, &mut on.b)?;
        applied(p, false, space, &on.b, &mut on.x)?;
        space.read(&on.x, &mut y)?;
        self.a.borrow().apply(space, &on.x, &mut on.b)?;
        space.read(&on.b, &mut v)?;
        let size = |v: f64| if v.is_finite() { v.abs() } else { f64::INFINITY };
        let products = v.iter().zip(&inverses).map(|(v, inverse)| size(v * inverse));
        let growth = largest(local.comm, products.fold(0.0, f64::max))?;
        if growth < GROWTH {
            return Ok(None);
        }
        let most = largest(local.comm, y.iter().fold(0.0, |most, y| most.max(size(*y))))?;
        let rows: Vec<usize> = (0..y.len()).filter(|&u| size(y[u]) == most).collect();
        let rows = Indices::of_own(local, &rows)?;
        let row = if rows.count == 1 { "row" } else { "rows" };
        self.history.reason = Some(UNSTABLE);
        let by = if growth.is_finite() { format!("by {growth:.0e}") } else { "until they overflow".into() };
        Ok(Some(format!(
            "{UNSTABLE}: they amplify numbers {by}, most in {row} {}; the matrix may be regular: try another \
             fill or order, shifted pivots, or lu",
            rows.named(local.terms)
        )))
    }
}
