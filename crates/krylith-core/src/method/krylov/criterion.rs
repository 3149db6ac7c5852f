//! Criteria other than ‖r‖₂ ([`Criterion`]), by sweeps and by the products of every operator.
//!
//! The row norms dᵢ = ‖aᵢ‖₁ are |A| times a vector of ones, so they come from the product that also measures
//! rounding. Methods that do not need a symmetric A then solve D⁻¹A x = D⁻¹b with the preconditioner P⁻¹D.
//! D⁻¹A P⁻¹D is similar to A P⁻¹, and the 2-norm of the recurrence is that of the criterion `rows`. Methods
//! for symmetric A solve the given system.
//!
//! A recurrence computes only a 2-norm. So each certified residual gives the ratio of the criterion's
//! quantity to this norm, and the norm at which the solve may end. Only a certified value ends it. If that
//! value misses the tolerance, the recurrence restarts from the residual, with a smaller norm as its target.
//!
//! The maximum of `backward` comes from sums, which every device and every rank has. The mean of all entries
//! above a bound is a new bound, until no entry lies above.

use super::ending::Known;
use super::{Header, Krylov, Recurrence, UNIT_ROUNDOFF, clear};
use crate::comm::{agree, largest};
use crate::operator::LinearOperator;
use crate::space::{Criterion, FLAGS, Space, Stop};
use crate::{Error, Result, sweeps};
use std::cell::RefCell;

sweeps! {
    /// The vector passes of criteria.
    pub const SWEEPS;
    /// v = 1.
    ones: () [] [v] -> [] { v = 1.0; }
    /// The sum of row norms, where an empty row has norm 1.
    sum_of_row_norms: () [] [d] -> [sum] { if (d == 0.0) { d = 1.0; } sum += d; }
    /// Row norms in another unit.
    scale_row_norms: (unit) [] [d] -> [] { d *= unit; }
    /// D⁻¹v.
    divide_by_rows: () [v, d] [to] -> [] { to = v / d; }
    /// D v.
    multiply_by_rows: () [v, d] [to] -> [] { to = v * d; }
    /// D⁻¹r, D⁻¹m and (r, r).
    divide_residual_by_rows: () [d] [r, m] -> [rr] {
        rr += r * r;
        let scaled_r = r / d;
        let scaled_m = m / d;
        r = scaled_r;
        m = scaled_m;
    }
    /// ‖D⁻¹r‖² and ‖D⁻¹m‖².
    row_scaled_squares: () [r, m, d] [] -> [rr, mm] {
        let scaled_r = r / d;
        let scaled_m = m / d;
        rr += scaled_r * scaled_r;
        mm += scaled_m * scaled_m;
    }
    /// |r|/m, with 0/0 = 0.
    quotients: () [r, m] [q] -> [] {
        q = r / m;
        if (r == 0.0) { q = 0.0; }
        if (q < 0.0) { q = 0.0 - q; }
    }
    /// Number and sum of the entries above a bound; NaN if an entry is not finite.
    entries_above: (bound) [q] [] -> [count, sum] {
        if (q > bound) { count += 1.0; sum += q; }
        sum += 0.0 * q;
    }
}

/// Slots of the scalars: two sums, (r, r) before the rows are scaled, and a scalar that a sweep reads.
const SUMS: [usize; 2] = [0, 1];
const PLAIN: usize = 2;
const READ: usize = 3;
const SLOTS: usize = 4;
/// Largest number of passes over the quotients. Each pass leaves the entries above a mean, and few have been
/// seen to need more than twenty passes.
const PASSES: usize = 200;
/// Share of the estimated norm that is the first target of a recurrence, because estimates drift.
const FIRST_MARGIN: f64 = 0.5;

/// The vectors of a criterion, and the vectors of the system whose rows are scaled.
pub(in crate::method) struct Quantity<S: Space> {
    criterion: Criterion,
    /// 1-norms of the rows, times `unit`.
    d: RefCell<S::Vector>,
    /// A power of two.
    unit: f64,
    /// b in its own rows, and scratch, if the method solves the system with scaled rows.
    scaled: Option<[RefCell<S::Vector>; 2]>,
    quotients: Option<RefCell<S::Vector>>,
    scalars: RefCell<S::Scalars>,
}

impl<S: Space> Quantity<S> {
    /// Allocates the vectors of this criterion that there are not yet.
    fn allocated(kept: Option<Self>, s: &S, criterion: Criterion, scales: bool) -> Result<Self> {
        let mut quantity = match kept {
            Some(quantity) => quantity,
            None => Self::new(s)?,
        };
        quantity.criterion = criterion;
        if quantity.scaled.is_none() && scales {
            quantity.scaled = Some([RefCell::new(s.vector()?), RefCell::new(s.vector()?)]);
        }
        if quantity.quotients.is_none() && criterion == Criterion::Backward {
            quantity.quotients = Some(RefCell::new(s.vector()?));
        }
        Ok(quantity)
    }

    fn new(s: &S) -> Result<Self> {
        Ok(Self {
            criterion: Criterion::Rows,
            d: RefCell::new(s.vector()?),
            unit: 1.0,
            scaled: None,
            quotients: None,
            scalars: RefCell::new(s.scalars(SLOTS)?),
        })
    }

    /// Returns true if the method solves the system with scaled rows.
    pub fn scales(&self) -> bool {
        self.scaled.is_some()
    }

    /// Returns true if the norm of the recurrence is that of the criterion.
    pub fn is_exact(&self) -> bool {
        self.criterion == Criterion::Rows && self.scales()
    }

    /// Returns a number that keeps recorded work apart from that of other criteria.
    pub fn key(&self) -> u64 {
        0x9e37_79b9_7f4a_7c15 ^ self.criterion as u64
    }

    /// Returns the share of the estimated norm that is the first target.
    pub fn margin(&self) -> f64 {
        if self.is_exact() { 1.0 } else { FIRST_MARGIN }
    }

    /// Returns how many units of the solve's norm a unit of the criterion's norm is. `unit` is that of b.
    pub fn units(&self, unit: f64) -> f64 {
        match self.criterion {
            Criterion::Residual => unit,
            Criterion::Rows => unit / self.unit,
            Criterion::Backward => 1.0,
        }
    }

    /// Prepares b for the method, and returns the criterion's norm of b.
    pub fn begin(&self, s: &S, b: &mut S::Vector) -> Result<f64> {
        s.guard(None);
        let (d, scalars) = (self.d.borrow(), &mut *self.scalars.borrow_mut());
        if let Some([kept, _]) = &self.scaled {
            s.copy(b, &mut kept.borrow_mut())?;
            s.sweep(divide_by_rows, scalars, [], [&*kept.borrow(), &*d], [&mut *b], [])?;
        }
        match (self.criterion, self.scales()) {
            (Criterion::Backward, _) => return Ok(1.0),
            (_, true) => s.sweep(super::norm_squared, scalars, [], [&*b], [], [SUMS[0]])?,
            (_, false) => s.sweep(row_scaled_squares, scalars, [], [&*b, &*b, &*d], [], SUMS)?,
        }
        let (mut square, mut flags) = ([0.0], [0; FLAGS]);
        s.read_scalars(scalars, SUMS[0], &mut square, &mut flags)?;
        match square[0] > 0.0 && square[0].is_finite() {
            true => Ok(square[0].sqrt()),
            false => Err(Error::Option {
                key: "criterion",
                message: "is rows, but ‖D⁻¹b‖ is beyond the range of f64; scale the rows of the system"
                    .into(),
            }),
        }
    }

    /// Launches what the criterion needs of a certified residual and of m = |b| + |A||x|.
    pub fn observe(&self, s: &S, r: &S::Vector, m: &S::Vector) -> Result<()> {
        let scalars = &mut *self.scalars.borrow_mut();
        match &self.quotients {
            Some(q) if self.criterion == Criterion::Backward => {
                s.sweep(quotients, scalars, [], [r, m], [&mut *q.borrow_mut()], [])
            }
            _ if self.scales() => Ok(()),
            _ => s.sweep(row_scaled_squares, scalars, [], [r, m, &*self.d.borrow()], [], SUMS),
        }
    }

    /// Returns the quantity at the last certified residual, whose norm and rounding in the recurrence's norm
    /// are given.
    pub fn read(&self, s: &S, norm: f64, rounding: f64) -> Result<Known> {
        let (mut sums, mut flags) = ([0.0; SLOTS], [0; FLAGS]);
        s.guard(None);
        s.read_scalars(&self.scalars.borrow(), 0, &mut sums, &mut flags)?;
        let plain = if self.scales() { sums[PLAIN].sqrt() } else { norm };
        let (value, rounding) = match self.criterion {
            Criterion::Backward => (self.largest_quotient(s)?, UNIT_ROUNDOFF),
            _ if self.scales() => (norm, rounding),
            _ => (sums[SUMS[0]].sqrt(), UNIT_ROUNDOFF * sums[SUMS[1]].sqrt()),
        };
        // The norm is NaN if an entry of x is not finite, even one that no row reads.
        let value = if norm.is_finite() { value } else { norm };
        Ok(Known { norm: value, rounding, plain })
    }

    /// Returns the largest quotient over all ranks, or NaN.
    fn largest_quotient(&self, s: &S) -> Result<f64> {
        let Some(q) = &self.quotients else { return Ok(f64::NAN) };
        let (q, scalars) = (&*q.borrow(), &mut *self.scalars.borrow_mut());
        let mut bound = 0.0;
        for _ in 0..PASSES {
            s.write_scalars(scalars, READ, &[bound], &[0; FLAGS])?;
            s.sweep(entries_above, scalars, [READ], [q], [], SUMS)?;
            let (mut sums, mut flags) = ([0.0; 2], [0; FLAGS]);
            s.read_scalars(scalars, SUMS[0], &mut sums, &mut flags)?;
            let [count, sum] = sums;
            match () {
                () if !sum.is_finite() => return Ok(f64::NAN),
                () if count == 0.0 => return Ok(bound),
                // A mean may round to the old bound.
                () => bound = f64::max(sum / count, bound.next_up()),
            }
        }
        let mut host = vec![0.0; s.len()];
        s.read(q, &mut host)?;
        largest(s.comm(), host.into_iter().fold(0.0, f64::max))
    }

    /// Returns the operators of the system with scaled rows, if the method solves that.
    pub fn around<'a>(
        &'a self,
        a: &'a dyn LinearOperator<S>,
        p: Option<&'a dyn LinearOperator<S>>,
    ) -> Option<(Scaled<'a, S>, Option<Scaled<'a, S>>)> {
        let [b, scratch] = self.scaled.as_ref()?;
        let of = |inner, divides| Scaled { inner, quantity: self, b, scratch, divides };
        Some((of(a, true), p.map(|p| of(p, false))))
    }
}

/// D⁻¹A, or P⁻¹D.
pub(in crate::method) struct Scaled<'a, S: Space> {
    inner: &'a dyn LinearOperator<S>,
    quantity: &'a Quantity<S>,
    b: &'a RefCell<S::Vector>,
    scratch: &'a RefCell<S::Vector>,
    /// True for D⁻¹A.
    divides: bool,
}

impl<S: Space> LinearOperator<S> for Scaled<'_, S> {
    fn apply(&self, s: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let (d, scratch) = (&*self.quantity.d.borrow(), &mut *self.scratch.borrow_mut());
        let scalars = &mut *self.quantity.scalars.borrow_mut();
        match self.divides {
            true => {
                self.inner.apply(s, x, scratch)?;
                s.sweep(divide_by_rows, scalars, [], [scratch, d], [y], [])
            }
            false => {
                s.sweep(multiply_by_rows, scalars, [], [x, d], [&mut *scratch], [])?;
                self.inner.apply(s, scratch, y)
            }
        }
    }
    fn residual(
        &self,
        s: &S,
        _: &S::Vector,
        x: &S::Vector,
        r: &mut S::Vector,
        m: &mut S::Vector,
    ) -> Result<bool> {
        // D⁻¹b is rounded, so the residual comes from b.
        if !self.inner.residual(s, &self.b.borrow(), x, r, m)? {
            return Ok(false);
        }
        let scalars = &mut *self.quantity.scalars.borrow_mut();
        s.sweep(divide_residual_by_rows, scalars, [], [&*self.quantity.d.borrow()], [r, m], [PLAIN])?;
        Ok(true)
    }
    fn key(&self) -> u64 {
        self.inner.key()
    }
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }
    fn recordable(&self) -> bool {
        self.inner.recordable()
    }
    fn sum(&self, s: &S, numbers: &mut [f64]) -> Result<()> {
        self.inner.sum(s, numbers)
    }
}

impl<S: Space, R: Recurrence<S>> Krylov<S, R> {
    /// Returns the vectors of a criterion other than ‖r‖₂, with the row norms of this operator. The caller
    /// gives them back at the end of the solve.
    ///
    /// # Errors
    /// An operator without |A|; out of device memory.
    pub(super) fn take_quantity(
        &mut self,
        s: &S,
        a: &dyn LinearOperator<S>,
        stop: &Stop,
    ) -> Result<Option<Quantity<S>>> {
        stop.check()?;
        let criterion = stop.criterion;
        if criterion == Criterion::Residual {
            return Ok(None);
        }
        let made = Quantity::allocated(self.quantity.take(), s, criterion, !R::SYMMETRIC);
        let mut quantity = agree(s.comm(), made)?;
        let Self { recurrence, correction, x_best, .. } = self;
        let (d, scalars) = (quantity.d.get_mut(), quantity.scalars.get_mut());
        s.guard(None);
        s.sweep(clear, scalars, [], [], [&mut *correction], [])?;
        s.sweep(clear, scalars, [], [], [&mut *d], [])?;
        s.sweep(ones, scalars, [], [], [&mut *x_best], [])?;
        if !a.residual(s, correction, x_best, recurrence.residual(), d)? {
            let message = format!(
                "is {criterion}, which needs |A|, and this operator has none; use criterion=residual"
            );
            return Err(Error::Option { key: "criterion", message });
        }
        s.sweep(sum_of_row_norms, scalars, [], [], [&mut *d], [SUMS[0]])?;
        // Rows of one scale become rows of norm 1, so that squares neither overflow nor underflow.
        let (mut sums, mut flags) = ([0.0], [0; FLAGS]);
        s.read_scalars(scalars, SUMS[0], &mut sums, &mut flags)?;
        let mut all = [s.len() as f64];
        s.comm().sum(&mut all)?;
        let mean = sums[0] / all[0];
        let exponent = if mean > 0.0 && mean.is_finite() { -mean.log2().round() } else { 0.0 };
        quantity.unit = exponent.clamp(-1000.0, 1000.0).exp2();
        s.write_scalars(scalars, READ, &[quantity.unit], &[0; FLAGS])?;
        s.sweep(scale_row_norms, scalars, [READ], [], [d], [])?;
        Ok(Some(quantity))
    }

    /// Reads the quantity of the criterion after a certified residual.
    pub(super) fn read_quantity(
        &mut self,
        s: &S,
        quantity: Option<&Quantity<S>>,
        c: &mut super::Convergence,
    ) -> Result<()> {
        let Some(quantity) = quantity else { return Ok(()) };
        let norm = self.host[Header::AT.norm];
        let known = quantity.read(s, norm, self.host[Header::AT.rounding])?;
        c.plain = Some(known.plain);
        if quantity.is_exact() {
            return Ok(());
        }
        c.reading = Some(known);
        let ratio = known.norm / norm;
        if ratio > 0.0 && ratio.is_finite() {
            c.ratio = ratio;
        }
        Ok(())
    }

    /// Writes the norm at which the recurrence may end, and restarts it if the old target prevented that. No
    /// batch may be in flight, and the flags are those that the host read last.
    pub(super) fn aim(
        &mut self,
        s: &S,
        on: &super::Operators<S>,
        flags: &[i32; FLAGS],
        c: &mut super::Convergence,
    ) -> Result<()> {
        if !c.aims {
            return Ok(());
        }
        let (norm, old) = (self.host[Header::AT.norm], self.host[Header::AT.target]);
        let value = self.known(c).norm;
        if value <= c.target || !norm.is_finite() {
            return Ok(());
        }
        let missed = norm <= old;
        if missed && c.reading.is_some() {
            c.margin *= 0.5;
        }
        let target = c.margin * c.target / c.ratio;
        self.host[Header::AT.target] = target;
        s.write_scalars(&mut self.scalars, Header::AT.target, &[target], flags)?;
        if missed {
            s.guard(None);
            self.recurrence.restart(&mut on.work(s, &mut self.scalars, true))?;
        }
        Ok(())
    }
}
