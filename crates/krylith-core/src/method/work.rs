//! The workspace of a recurrence, and the sweeps and products that a recurrence calls by name.

use super::krylov::criterion::{Quantity, Scaled};
use super::krylov::{magnitude, subtract};
use crate::Result;
use crate::operator::{Dots, LinearOperator};
use crate::space::{BoundSweep, FLAGS, HALT, Phase, SmallStep, Space};

/// The workspace of a recurrence: a space, A, P and its scalars.
#[doc(hidden)]
pub struct Work<'a, S: Space> {
    /// The space of the vectors.
    pub space: &'a S,
    /// The scalars.
    pub scalars: &'a mut S::Scalars,
    /// True at the start of a solve and after an interruption. The vectors of the recurrence then have no
    /// valid values.
    pub first: bool,
    /// True if an application of P costs as much as many products.
    pub costly: bool,
    /// True if batches may be recorded, because A and P obey the guard.
    recorded: bool,
    a: &'a dyn LinearOperator<S>,
    p: Option<&'a dyn LinearOperator<S>>,
    quantity: Option<&'a Quantity<S>>,
}

impl<S: Space> Work<'_, S> {
    /// Returns true if there is a preconditioner.
    pub fn preconditioned(&self) -> bool {
        self.p.is_some()
    }

    /// Computes `to = A from`.
    pub fn multiply(&self, from: &S::Vector, to: &mut S::Vector) -> Result<()> {
        self.space.mark(Phase::Product);
        self.a.apply(self.space, from, to)?;
        self.space.mark(Phase::Orthogonalization);
        Ok(())
    }

    /// Computes `to = A from`, with sums in the same pass if A supports it. Returns false if the caller must
    /// compute the sums.
    pub fn multiply_with_dots(&mut self, from: &S::Vector, to: &mut S::Vector, dots: Dots) -> Result<bool> {
        self.space.mark(Phase::Product);
        let summed = self.a.apply_with_dots(self.space, from, to, self.scalars, dots)?;
        self.space.mark(Phase::Orthogonalization);
        Ok(summed)
    }

    /// Computes `to = P⁻¹ from`, with sums in the same pass if P supports it. Returns the vector with the
    /// result, which is `from` if there is no P. The flag is false if the caller must compute the sums.
    pub fn precondition_with_dots<'v>(
        &mut self,
        from: &'v S::Vector,
        to: &'v mut S::Vector,
        dots: Dots,
    ) -> Result<(&'v S::Vector, bool)> {
        let Some(p) = self.p else { return Ok((from, false)) };
        self.space.mark(Phase::Preconditioner);
        let summed = p.apply_with_dots(self.space, from, to, self.scalars, dots)?;
        self.space.mark(Phase::Orthogonalization);
        Ok((to, summed))
    }

    /// Computes `r = b − A x`.
    pub(super) fn residual(&mut self, b: &S::Vector, x: &S::Vector, r: &mut S::Vector) -> Result<()> {
        self.space.mark(Phase::Product);
        self.a.apply(self.space, x, r)?;
        self.space.mark(Phase::Other);
        self.sweep(subtract, [b], [r])
    }

    /// Computes `r = b − A x`, in twice the working precision if A supports it, and the effect of rounding. m
    /// is zero afterwards.
    pub(super) fn certified_residual(
        &mut self,
        b: &S::Vector,
        x: &S::Vector,
        r: &mut S::Vector,
        m: &mut S::Vector,
    ) -> Result<()> {
        self.space.mark(Phase::Product);
        if self.a.residual(self.space, b, x, r, m)? {
            self.space.mark(Phase::Other);
            if let Some(quantity) = self.quantity {
                quantity.observe(self.space, r, m)?;
            }
            return self.sweep(magnitude, [], [m]);
        }
        self.residual(b, x, r)
    }

    /// Computes `to = P⁻¹ from`, or returns `from` itself if there is no P.
    pub fn precondition<'v>(&self, from: &'v S::Vector, to: &'v mut S::Vector) -> Result<&'v S::Vector> {
        let Some(p) = self.p else { return Ok(from) };
        self.space.mark(Phase::Preconditioner);
        p.apply(self.space, from, to)?;
        self.space.mark(Phase::Orthogonalization);
        Ok(to)
    }

    /// Computes `to = A P⁻¹ from`. If there is a P, `hat` has P⁻¹ from afterwards.
    pub fn multiply_preconditioned(
        &self,
        from: &S::Vector,
        hat: &mut S::Vector,
        to: &mut S::Vector,
    ) -> Result<()> {
        let hat = self.precondition(from, hat)?;
        self.multiply(hat, to)
    }

    /// Makes one fused elementwise pass, with the scalars and sums of the sweep's declaration.
    pub fn sweep<K, const A: usize, const X: usize, const Y: usize, const O: usize>(
        &mut self,
        kernel: K,
        x: [&S::Vector; X],
        y: [&mut S::Vector; Y],
    ) -> Result<()>
    where
        K: BoundSweep<A, X, Y, O>,
    {
        self.space.sweep(kernel, self.scalars, K::READS, x, y, K::SUMS)
    }

    /// Does the same as [`sweep`](Self::sweep), but the sums are in their slots only after
    /// [`arrive`](Self::arrive). Until then ranks can compute products and apply preconditioners.
    pub fn sweep_ahead<K, const A: usize, const X: usize, const Y: usize, const O: usize>(
        &mut self,
        kernel: K,
        x: [&S::Vector; X],
        y: [&mut S::Vector; Y],
    ) -> Result<()>
    where
        K: BoundSweep<A, X, Y, O>,
    {
        self.space.sweep_ahead(kernel, self.scalars, K::READS, x, y, K::SUMS)
    }

    /// Waits for the sums of the last [`sweep_ahead`](Self::sweep_ahead).
    pub fn arrive(&mut self) -> Result<()> {
        self.space.arrive(self.scalars)
    }

    /// Returns true if the guard (a flag that makes later launches of a batch do nothing) is known to be set.
    /// The rest of the iteration can then be skipped.
    pub fn halted(&self) -> bool {
        self.space.halted(self.scalars)
    }

    /// As [`halted`](Self::halted), before an application of P. If P ignores the guard and is costly, this
    /// reads the guard from the device.
    pub fn halted_before_p(&self) -> Result<bool> {
        match self.recorded || !self.costly {
            true => Ok(self.halted()),
            false => is_halted(self.space, self.scalars),
        }
    }

    /// Makes one scalar step of iteration j.
    pub fn step<T: SmallStep>(&mut self, step: T, j: usize) -> Result<()> {
        self.space.step(step, self.scalars, j)
    }
}

/// Returns true if the guard is set; reads it from the device unless the host knows it.
fn is_halted<S: Space>(s: &S, scalars: &S::Scalars) -> Result<bool> {
    if s.pipeline_depth() == 0 {
        return Ok(s.halted(scalars));
    }
    let mut flags = [0; FLAGS];
    s.read_scalars(scalars, 0, &mut [], &mut flags)?;
    Ok(flags[HALT] != 0)
}

/// A and P.
pub(super) type Given<'a, S> = (&'a dyn LinearOperator<S>, Option<&'a dyn LinearOperator<S>>);

/// A, P, and the key of recorded batches; there is no key if A or P cannot be recorded.
pub(super) struct Operators<'a, S: Space> {
    a: &'a dyn LinearOperator<S>,
    p: Option<&'a dyn LinearOperator<S>>,
    pub key: Option<u64>,
    /// The vectors of a criterion other than ‖r‖₂.
    pub quantity: Option<&'a Quantity<S>>,
    costly: bool,
}

/// An application of P is costly if it moves this many times as many bytes as a product.
const COSTLY: f64 = 4.0;

impl<'a, S: Space> Operators<'a, S> {
    /// The operators of a solve with this criterion: A and P, or those around them.
    pub fn by(
        (a, p): Given<'a, S>,
        around: &'a Option<(Scaled<'a, S>, Option<Scaled<'a, S>>)>,
        quantity: Option<&'a Quantity<S>>,
    ) -> Self {
        let on = match around {
            Some((a, p)) => Self::new(a, p.as_ref().map(|p| p as &dyn LinearOperator<S>)),
            None => Self::new(a, p),
        };
        let key = on.key.map(|key| key ^ quantity.map_or(0, |quantity| quantity.key()));
        Self { key, quantity, ..on }
    }

    fn new(a: &'a dyn LinearOperator<S>, p: Option<&'a dyn LinearOperator<S>>) -> Self {
        let recordable = a.recordable() && p.is_none_or(|p| p.recordable());
        let key = recordable.then(|| a.key() ^ p.map_or(0, |p| p.key().rotate_left(32)));
        Self { a, p, key, quantity: None, costly: false }
    }

    /// Determines whether P is costly. All ranks that work on this system get the same answer. Collective.
    pub fn weigh(&mut self, space: &S) -> Result<()> {
        if let Some(p) = self.p {
            let own = p.bytes() as f64 / (self.a.bytes() as f64).max(1.0);
            self.costly = self.mean(space, own)? > COSTLY;
        }
        Ok(())
    }

    /// Returns true if batches end with certified residuals, because the criterion needs |A||x|.
    pub fn certifies(&self) -> bool {
        self.quantity.is_some_and(|quantity| !quantity.is_exact())
    }

    /// Returns true if an application of P costs as much as many products.
    pub fn costly(&self) -> bool {
        self.costly
    }

    /// Returns true on all ranks that work on this system if `mine` is true on any of them. Collective.
    pub fn any(&self, space: &S, mine: bool) -> Result<bool> {
        let mut count = [f64::from(u8::from(mine))];
        self.a.sum(space, &mut count)?;
        Ok(count[0] > 0.0)
    }

    /// Returns the mean of a number over all ranks that work on this system. Collective.
    pub fn mean(&self, space: &S, own: f64) -> Result<f64> {
        let mut sums = [own, 1.0];
        self.a.sum(space, &mut sums)?;
        Ok(sums[0] / sums[1])
    }

    /// Returns true if the guard is known to be set. If batches are not recorded, this function reads the
    /// guard from the device. An operator that works on the host waits for the device anyway, and ignores the
    /// guard.
    pub fn halted(&self, s: &S, scalars: &S::Scalars) -> Result<bool> {
        if self.key.is_some() { Ok(s.halted(scalars)) } else { is_halted(s, scalars) }
    }

    pub fn work<'w>(&self, s: &'w S, scalars: &'w mut S::Scalars, first: bool) -> Work<'w, S>
    where
        'a: 'w,
    {
        let (costly, recorded) = (self.costly, self.key.is_some());
        Work { space: s, scalars, first, costly, recorded, a: self.a, p: self.p, quantity: self.quantity }
    }
}
