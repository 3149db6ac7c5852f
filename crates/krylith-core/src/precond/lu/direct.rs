//! The choice of factors by fronts: their kind, the matching of rows, and the test whether they hold.
//!
//! Small systems and matrices that fronts do not solve are left to [`Columns::factors`].

use super::factors::{Columns, Factors, LEFT_SYMMETRIC, Work, fits, within};
use super::multifrontal::{Kind, Multifrontal};
use super::plan::Plan;
use super::symmetry::Diagonal;
use crate::matching::Matching;
use crate::matrix::Csr;
use crate::{Error, Result};

/// Systems of fewer unknowns are left to the other factors.
const SMALL: usize = 1500;
/// A matrix with at least this share of entries a_ij for which there is a_ji keeps its rows in their places.
const MIRRORED: f64 = 0.5;
/// A diagonal entry below this share of its column's largest is weak.
const WEAK: f64 = 1e-3;

/// Operations of large fronts in a second, on one core.
pub(super) const RATE: f64 = 2e10;
/// Seconds per number of the factors to assemble fronts.
pub(super) const SECONDS: f64 = 10e-9;

/// Which factors are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Those of the form that suits the matrix, and others if these do not hold.
    Any,
    /// The same, but no others if symmetric factors lack [a few](super::singular::MOST) pivots.
    AnyUnlessFew,
    /// L U, because symmetric factors have failed.
    Unsymmetric,
}

/// Factors by fronts, or the factors for whose pattern there are none.
pub(super) enum Made {
    Factors(Factors),
    /// Other factors than these, and the rows that found no pivot.
    Not(Factors, Vec<usize>),
    /// None yet: factors of a symmetric matrix lack pivots in these few rows, so it may be singular. The
    /// factors are those of the matrix without these rows, if they are known.
    Few(Vec<usize>, Option<Multifrontal>),
}

/// What is left of factors that do not solve the system.
enum Refused {
    Plan(Box<Plan>),
    Fronts(Multifrontal),
}

impl Refused {
    fn plan(self) -> Box<Plan> {
        match self {
            Self::Plan(plan) => plan,
            Self::Fronts(fronts) => fronts.plan,
        }
    }
}

impl Columns {
    /// Factorises the values by fronts, with the analysis of `old` factors if they are of this form and
    /// `wanted` permits it.
    ///
    /// # Errors
    /// Out of memory, or factors that need more than `room` bytes; the limits of the caller's work are
    /// reached.
    pub fn direct(&self, old: Factors, wanted: Wanted, room: Option<u64>, work: &mut Work) -> Result<Made> {
        let old = match old {
            Factors::Fronts(old) => Some(old),
            Factors::None => None,
            Factors::Bordered { inner, .. } if matches!(*inner, Factors::Fronts(_)) => {
                return self.border_of_fronts(*inner, room, work);
            }
            other => return Ok(Made::Not(other, Vec::new())),
        };
        let n = self.order();
        if n < SMALL || self.rows.len() >= u32::MAX as usize || n >= u32::MAX as usize / 2 {
            return Ok(Made::Not(Factors::None, Vec::new()));
        }
        let symmetric = wanted != Wanted::Unsymmetric;
        if old.is_none()
            && symmetric
            && let Made::Factors(factors) = self.border_of_fronts(Factors::None, room, work)?
        {
            return Ok(Made::Factors(factors));
        }
        let (mut rows, mut signs) = (Vec::new(), Vec::new());
        let mut diagonal = if symmetric { self.symmetry() } else { None };
        if diagonal.is_none()
            && symmetric
            && let Some(found) = self.signs()
        {
            let has = |j: usize| self.column(j).any(|(i, v)| i == j && v != 0.0);
            diagonal = Some(if (0..n).all(has) { Diagonal::Signs } else { Diagonal::Zeros });
            signs = found;
        }
        let mut plan = match old {
            Some(old) if old.plan.is_symmetric() == diagonal.is_some() => Some((old.plan, old.kind)),
            _ => None,
        };
        if let Some(diagonal) = diagonal {
            let (own, kind) = match plan.take() {
                Some(plan) => plan,
                None => {
                    let pairs = if diagonal == Diagonal::Zeros { self.pairs() } else { Vec::new() };
                    (Box::new(Plan::new(self, true, None, &pairs)?), Kind::Cholesky)
                }
            };
            room_for(&own, true, room)?;
            let mut own = own;
            if diagonal == Diagonal::Positive && kind == Kind::Cholesky {
                match self.made(own, Kind::Cholesky, &[], work, &mut rows)? {
                    Ok(factors) => return Ok(Made::Factors(factors)),
                    Err(refused) => own = refused.plan(),
                }
            }
            let refused = match self.made(own, Kind::Indefinite, &signs, work, &mut rows)? {
                Ok(factors) => return Ok(Made::Factors(factors)),
                Err(refused) => refused,
            };
            let few = signs.is_empty() && (1..=super::singular::MOST).contains(&rows.len());
            if few && wanted == Wanted::AnyUnlessFew {
                let factors = match refused {
                    Refused::Fronts(fronts) => fronts.without(&rows),
                    Refused::Plan(_) => None,
                };
                return Ok(Made::Few(rows, factors));
            }
        }
        if let Some((plan, Kind::Lu)) = plan {
            room_for(&plan, false, room)?;
            if let Ok(factors) = self.made(plan, Kind::Lu, &[], work, &mut rows)? {
                return Ok(Made::Factors(factors));
            }
        }
        let matched = self.needs_matching();
        for matched in if matched { &[true][..] } else { &[false, true] } {
            let matching = if *matched { Some(self.matching()?) } else { None };
            if matching.as_ref().is_some_and(|m| !m.unmatched().is_empty()) {
                break; // structurally singular
            }
            let plan = Plan::new(self, false, matching.as_ref(), &[])?;
            room_for(&plan, false, room)?;
            if let Ok(factors) = self.made(Box::new(plan), Kind::Lu, &[], work, &mut rows)? {
                return Ok(Made::Factors(factors));
            }
        }
        Ok(Made::Not(Factors::None, rows))
    }

    /// Factorises with a plan, and columns with these signs if there are any; returns what is left of
    /// factors that do not solve the system. Rows without a pivot are listed.
    fn made(
        &self,
        mut plan: Box<Plan>,
        kind: Kind,
        signs: &[f64],
        work: &mut Work,
        rows: &mut Vec<usize>,
    ) -> Result<std::result::Result<Factors, Refused>> {
        plan.scale(kind, &self.values);
        plan.sign(signs);
        match Multifrontal::new(plan, kind, &self.values)? {
            Err(plan) => Ok(Err(Refused::Plan(plan))),
            Ok(fronts) => match self.solving(Factors::Fronts(fronts), LEFT_SYMMETRIC, work)? {
                Ok(factors) => Ok(Ok(factors)),
                Err(Factors::Fronts(fronts)) => {
                    *rows = match kind {
                        Kind::Indefinite => fronts.doubtful_rows(&self.values),
                        _ => fronts.given_rows(),
                    };
                    Ok(Err(Refused::Fronts(fronts)))
                }
                Err(_) => Err(Error::Internal("lu: factors of another form".into())),
            },
        }
    }

    fn border_of_fronts(&self, old: Factors, room: Option<u64>, work: &mut Work) -> Result<Made> {
        let made = self.bordered(old, room, work, |inner, old, room, work| {
            match inner.direct(old, Wanted::Any, room, work)? {
                Made::Factors(factors) => Ok(factors),
                Made::Not(..) | Made::Few(..) => Err(self.singular()),
            }
        })?;
        Ok(made.map_or(Made::Not(Factors::None, Vec::new()), Made::Factors))
    }

    /// Returns true if the diagonal has weak entries and the pattern is far from symmetric.
    fn needs_matching(&self) -> bool {
        let n = self.order();
        let mut weak = 0;
        let mut mirrored = 0;
        for j in 0..n {
            let largest = self.column(j).fold(0.0f64, |m, (_, v)| m.max(v.abs()));
            let own = self.column(j).find(|(i, _)| *i == j).map_or(0.0, |(_, v)| v.abs());
            weak += usize::from(!(own >= WEAK * largest) || own == 0.0);
            let has = |i: usize| self.rows[self.col_ptr[i]..self.col_ptr[i + 1]].binary_search(&j).is_ok();
            mirrored += self.column(j).filter(|(i, _)| has(*i)).count();
        }
        weak > 0 && (mirrored as f64) < MIRRORED * self.rows.len() as f64
    }

    /// Returns the matching of largest product, with scales.
    fn matching(&self) -> Result<Matching> {
        // The columns are the rows of Aᵀ.
        let n = self.order();
        let (ptr, by_rows, values) = self.by_rows();
        let a = Csr::new(n, n, ptr, by_rows, values)?;
        Matching::of(&a)
    }

    /// Returns the matrix by rows.
    pub(super) fn by_rows(&self) -> (Vec<usize>, Vec<u32>, Vec<f64>) {
        let n = self.order();
        let mut ptr = vec![0usize; n + 1];
        self.rows.iter().for_each(|&i| ptr[i + 1] += 1);
        (0..n).for_each(|i| ptr[i + 1] += ptr[i]);
        let mut next = ptr.clone();
        let (mut columns, mut values) = (vec![0u32; self.rows.len()], vec![0.0; self.rows.len()]);
        for j in 0..n {
            for (i, v) in self.column(j) {
                (columns[next[i]], values[next[i]]) = (j as u32, v);
                next[i] += 1;
            }
        }
        (ptr, columns, values)
    }

    /// Returns for unknowns with a zero on the diagonal a partner with a large coupling, each unknown at most
    /// once.
    fn pairs(&self) -> Vec<[u32; 2]> {
        let n = self.order();
        let diagonal = |j: usize| self.column(j).find(|(i, _)| *i == j).map_or(0.0, |(_, v)| v.abs());
        let own: Vec<f64> = (0..n).map(diagonal).collect();
        let mut free: Vec<bool> = vec![true; n];
        let mut pairs = Vec::new();
        for j in (0..n).filter(|&j| own[j] == 0.0) {
            if !free[j] {
                continue;
            }
            // Relative to the partner's own size, so that a stiff unknown does not win by its scale.
            let worth = |i: usize, v: f64| v * v / own[i].max(f64::MIN_POSITIVE);
            let best = self
                .column(j)
                .filter(|&(i, v)| i != j && v != 0.0 && free[i] && own[i] > 0.0)
                .max_by(|a, b| worth(a.0, a.1).total_cmp(&worth(b.0, b.1)));
            if let Some((i, _)) = best {
                (free[i], free[j]) = (false, false);
                pairs.push([i as u32, j as u32]);
            }
        }
        pairs
    }
}

/// Checks the predicted memory and time of factors.
fn room_for(plan: &Plan, symmetric: bool, room: Option<u64>) -> Result<()> {
    let what =
        if symmetric { "L of a sparse symmetric factorisation" } else { "L and U of a sparse factorisation" };
    let cost = plan.tree.cost(symmetric);
    fits(what, cost.entries as usize, room)?;
    let operations = cost.operations * if symmetric { 1.0 } else { 2.0 };
    within(operations / RATE + cost.entries * SECONDS, cost.entries as usize)
}
