//! Combinations of two preconditioners: additive, or one after the other.
//!
//! * [`Additive`]: y = M₁x + M₂x, like the subdomains and the coarse level of additive Schwarz.
//! * [`Multiplicative`]: y = M₁x, then y ← y + M₂(x − A y). M₂ is applied to the residual that M₁ leaves: I −
//!   A M = (I − A M₂)(I − A M₁). This costs one product with A more than the additive form.
//! * [`Multiplicative::symmetric`] ends with another step of M₁: I − M A = (I − M₁A)(I − M₂A)(I − M₁A). This
//!   costs another application of M₁ and another product.
//!
//! M₁ and M₂ can be any linear operators. Combinations can be nested: `Additive<S, Multiplicative<…>, Box<dyn
//! …>>`. A combination communicates where its parts do. Each of its products with A adds a halo exchange.
//!
//! If A, M₁ and M₂ are symmetric, then the sum and the symmetric form are symmetric, but the form of two
//! steps is not. M₁ hardly reduces error components whose eigenvalue of M₁A is near 2. With eigenvalues above
//! 2 the symmetric form is indefinite. So the symmetric form damps M₁: it multiplies M₁ by a number that
//! brings the largest eigenvalue, found by power iterations, down to 4/3. Eigenvalues near 2 occur for
//! subdomains with jumping coefficients, and for point Jacobi.
//!
//! To set new values, update the parts ([`Additive::first_mut`] and so on). An operator that the method uses
//! too can be shared by reference, or by a `RefCell` if it changes between solves.
//!
//! Traffic of one application, for vectors of N numbers: that of M₁ and M₂, and 3 N numbers. The
//! multiplicative form adds A and 3 N. The symmetric form adds M₁, A and 7 N to that.
//!
//! A new combination is generic over its parts, allocates its workspace once, and computes its key from the
//! keys of its parts (`joined_key`). `precond/spec.rs` parses and prints its text form.

use crate::operator::{LinearOperator, fresh_key, joined_key};
use crate::space::{FLAGS, Space};
use crate::{Result, sweeps};
use std::cell::RefCell;

sweeps! {
    /// The vector passes of combinations, which algebraic multigrid uses too.
    pub const SWEEPS;
    /// y = y + w.
    add: () [w] [y] -> [] { y += w; }
    /// r = x − r, where r holds A y.
    residual: () [x] [r] -> [] { r = x - r; }
    /// y = ω y and r = x − ω r, where r holds A y.
    damp: (omega) [x] [y, r] -> [] { y *= omega; r = x - omega * r; }
    /// y = y + ω w.
    add_damped: (omega) [w] [y] -> [] { y += omega * w; }
    /// The dot products (w, z) and (w, v).
    largest: () [v, w, z] [] -> [wz, wv] { wz += w * z; wv += w * v; }
}

/// Largest eigenvalue of M₁A at which M₁ is not damped.
const LARGEST: f64 = 4.0 / 3.0;
/// Number of power iterations. They approach the eigenvalue from below, so LARGEST is well below 2.
const ITERATIONS: usize = 12;
/// The slot of ω among the scalars, then the slots of the sums.
const OMEGA: [usize; 1] = [0];
const SUMS: [usize; 2] = [1, 2];

/// The sum y = M₁x + M₂x.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::Precision;
/// use krylith::matrix::Csr;
/// use krylith::operator::{LinearOperator, Terms, Space};
/// use krylith::precond::{Additive, BlockJacobi};
/// let (space, a) = (Cpu::new(2, 1), Csr::from_triplets(2, 2, &[(0, 0, 2.0), (1, 1, 4.0)])?);
/// let jacobi = || BlockJacobi::new(&space, &Terms::csr(&a)?, Precision::F64);
/// let sum = Additive::new(&space, jacobi()?, jacobi()?)?;
/// let mut y = space.vector()?;
/// sum.apply(&space, &vec![2.0, 4.0], &mut y)?;
/// assert_eq!(y, [2.0, 2.0]); // twice D⁻¹ x
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Additive<S: Space, A = Box<dyn LinearOperator<S>>, B = Box<dyn LinearOperator<S>>> {
    first: A,
    second: B,
    work: RefCell<S::Vector>,
    scalars: RefCell<S::Scalars>,
    len: u64,
    key: u64,
}

impl<S: Space, A: LinearOperator<S>, B: LinearOperator<S>> Additive<S, A, B> {
    /// Builds M₁ + M₂, on vectors of `space`.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn new(space: &S, first: A, second: B) -> Result<Self> {
        let (work, scalars) = (RefCell::new(space.vector()?), RefCell::new(space.scalars(1)?));
        Ok(Self { first, second, work, scalars, len: space.len() as u64, key: fresh_key() })
    }

    /// Returns M₁, to refresh its values.
    pub fn first_mut(&mut self) -> &mut A {
        &mut self.first
    }

    /// Returns M₂, to refresh its values.
    pub fn second_mut(&mut self) -> &mut B {
        &mut self.second
    }
}

impl<S: Space, A: LinearOperator<S>, B: LinearOperator<S>> LinearOperator<S> for Additive<S, A, B> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let work = &mut *self.work.borrow_mut();
        self.first.apply(space, x, y)?;
        self.second.apply(space, x, work)?;
        space.sweep(add, &mut self.scalars.borrow_mut(), [], [work], [y], [])
    }
    fn has_transpose(&self) -> bool {
        self.first.has_transpose() && self.second.has_transpose()
    }
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let work = &mut *self.work.borrow_mut();
        self.first.apply_transpose(space, x, y)?;
        self.second.apply_transpose(space, x, work)?;
        space.sweep(add, &mut self.scalars.borrow_mut(), [], [work], [y], [])
    }
    fn key(&self) -> u64 {
        joined_key([self.key, self.first.key(), self.second.key()])
    }
    fn bytes(&self) -> u64 {
        self.first.bytes() + self.second.bytes() + 24 * self.len
    }
    fn recordable(&self) -> bool {
        self.first.recordable() && self.second.recordable()
    }
}

/// The product form y = M₁x, then y ← y + M₂(x − A y); the symmetric form adds y ← y + M₁(x − A y).
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::operator::{LinearOperator, PointBlock, Terms};
/// use krylith::precond::{BlockJacobi, Multiplicative};
/// use krylith::{Precision, matrix::Csr, operator::Space};
/// let space = Cpu::new(2, 1);
/// let csr = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 2.0), (1, 1, 2.0)])?;
/// let jacobi = || BlockJacobi::new(&space, &Terms::csr(&csr)?, Precision::F64);
/// let a = PointBlock::csr(&space, &csr, Precision::F64)?;
/// let twice = Multiplicative::new(&space, jacobi()?, jacobi()?, a)?;
/// let mut y = space.vector()?;
/// twice.apply(&space, &vec![4.0, 2.0], &mut y)?;
/// assert_eq!(y, [1.0, 1.0]); // two sweeps of Jacobi solve a triangular system of two
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Multiplicative<
    S: Space,
    A = Box<dyn LinearOperator<S>>,
    B = Box<dyn LinearOperator<S>>,
    O = Box<dyn LinearOperator<S>>,
> {
    first: A,
    second: B,
    operator: O,
    rest: RefCell<S::Vector>,
    correction: RefCell<S::Vector>,
    scalars: RefCell<S::Scalars>,
    /// The damping ω of M₁ in the symmetric form; `None` in the form of two steps.
    back: Option<f64>,
    len: u64,
    key: u64,
}

impl<S: Space, A: LinearOperator<S>, B: LinearOperator<S>, O: LinearOperator<S>> Multiplicative<S, A, B, O> {
    /// Builds M₁ followed by M₂, which is applied to the residual of M₁ under `operator`, A.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn new(space: &S, first: A, second: B, operator: O) -> Result<Self> {
        let vector = || Ok::<_, crate::Error>(RefCell::new(space.vector()?));
        let (rest, correction, scalars) = (vector()?, vector()?, RefCell::new(space.scalars(3)?));
        let (len, key) = (space.len() as u64, fresh_key());
        Ok(Self { first, second, operator, rest, correction, scalars, back: None, len, key })
    }

    /// Builds the symmetric form: M₁, then M₂, then M₁ again, each applied to the residual of the steps
    /// before. It is symmetric if A, M₁ and M₂ are. Damps M₁ if M₁A has an eigenvalue above 4/3. Collective.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// ```
    /// use krylith::device::Cpu;
    /// use krylith::matrix::Csr;
    /// use krylith::operator::{LinearOperator, PointBlock, Terms};
    /// use krylith::precond::{BlockJacobi, Multiplicative};
    /// use krylith::{Precision, operator::Space};
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 0.5), (1, 0, 0.5), (1, 1, 4.0)])?;
    /// let a = Terms::csr(&a)?;
    /// let space = Cpu::new(2, 1);
    /// let operator = PointBlock::new(&space, &a, Precision::F64, false)?;
    /// let jacobi = || BlockJacobi::new(&space, &a, Precision::F64);
    /// let m = Multiplicative::symmetric(&space, jacobi()?, jacobi()?, &operator)?;
    /// assert_eq!(m.damping(), Some(1.0));
    /// let (mut x, mut y, mut column) = (space.vector()?, space.vector()?, [0.0; 2]);
    /// space.write(&[1.0, 0.0], &mut x)?;
    /// m.apply(&space, &x, &mut y)?;
    /// space.read(&y, &mut column)?;
    /// // Three steps of Jacobi's method from 0.
    /// assert_eq!(column, [0.515625, -0.0625]);
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn symmetric(space: &S, first: A, second: B, operator: O) -> Result<Self> {
        let mut form = Self::undamped(space, first, second, operator)?;
        form.update_damping(space)?;
        Ok(form)
    }

    /// Builds the symmetric form, whose damping is still to be computed. Not collective.
    pub(crate) fn undamped(space: &S, first: A, second: B, operator: O) -> Result<Self> {
        Ok(Self { back: Some(1.0), ..Self::new(space, first, second, operator)? })
    }

    /// Computes the damping of M₁ for the current values of M₁ and A; does nothing unless the form is
    /// symmetric. Collective.
    ///
    /// # Errors
    /// Out of device memory; a rank that has ended or failed.
    pub fn update_damping(&mut self, space: &S) -> Result<()> {
        let Some(omega) = &mut self.back else { return Ok(()) };
        let (w, z) = (&mut *self.rest.borrow_mut(), &mut *self.correction.borrow_mut());
        let (mut v, scalars) = (space.vector()?, &mut *self.scalars.borrow_mut());
        space.fill_random(1, z)?;
        for _ in 0..ITERATIONS {
            space.copy(z, &mut v)?;
            self.operator.apply(space, &v, w)?;
            self.first.apply(space, w, z)?;
        }
        // The Rayleigh quotient of M₁A in the inner product of A.
        space.sweep(largest, scalars, [], [&v, &*w, &*z], [], SUMS)?;
        let (mut sums, mut flags) = ([0.0; 3], [0; FLAGS]);
        space.read_scalars(scalars, 0, &mut sums, &mut flags)?;
        let found = sums[SUMS[0]] / sums[SUMS[1]];
        *omega = if found > LARGEST && found.is_finite() { LARGEST / found } else { 1.0 };
        space.write_scalars(scalars, OMEGA[0], &[*omega], &[0; FLAGS])
    }

    /// Returns the damping of M₁ in the symmetric form.
    pub fn damping(&self) -> Option<f64> {
        self.back
    }

    /// Returns M₁, to refresh its values.
    pub fn first_mut(&mut self) -> &mut A {
        &mut self.first
    }

    /// Returns M₂, to refresh its values.
    pub fn second_mut(&mut self) -> &mut B {
        &mut self.second
    }

    /// Returns A, to refresh its values.
    pub fn operator_mut(&mut self) -> &mut O {
        &mut self.operator
    }
}

/// Applies an operator or its transpose.
type Apply<'a, S, V> = &'a dyn Fn(&dyn LinearOperator<S>, &V, &mut V) -> Result<()>;

impl<S: Space, A: LinearOperator<S>, B: LinearOperator<S>, O: LinearOperator<S>> Multiplicative<S, A, B, O> {
    /// Makes the steps of both parts, in this order.
    fn steps(
        &self,
        space: &S,
        [first, second]: [&dyn LinearOperator<S>; 2],
        apply: Apply<'_, S, S::Vector>,
        x: &S::Vector,
        y: &mut S::Vector,
    ) -> Result<()> {
        let (rest, correction) = (&mut *self.rest.borrow_mut(), &mut *self.correction.borrow_mut());
        let scalars = &mut *self.scalars.borrow_mut();
        apply(first, x, y)?;
        apply(&self.operator, y, rest)?;
        match self.back {
            None => space.sweep(residual, scalars, [], [x], [&mut *rest], [])?,
            Some(_) => space.sweep(damp, scalars, OMEGA, [x], [&mut *y, &mut *rest], [])?,
        }
        apply(second, rest, correction)?;
        space.sweep(add, scalars, [], [&*correction], [&mut *y], [])?;
        if self.back.is_some() {
            apply(&self.operator, y, rest)?;
            space.sweep(residual, scalars, [], [x], [&mut *rest], [])?;
            apply(first, rest, correction)?;
            space.sweep(add_damped, scalars, OMEGA, [&*correction], [y], [])?;
        }
        Ok(())
    }
}

impl<S: Space, A: LinearOperator<S>, B: LinearOperator<S>, O: LinearOperator<S>> LinearOperator<S>
    for Multiplicative<S, A, B, O>
{
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let apply = |m: &dyn LinearOperator<S>, x: &S::Vector, y: &mut S::Vector| m.apply(space, x, y);
        self.steps(space, [&self.first, &self.second], &apply, x, y)
    }
    fn has_transpose(&self) -> bool {
        self.first.has_transpose() && self.second.has_transpose() && self.operator.has_transpose()
    }
    /// The same steps with transposes. M₂ comes first in the form of two steps.
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let apply =
            |m: &dyn LinearOperator<S>, x: &S::Vector, y: &mut S::Vector| m.apply_transpose(space, x, y);
        match self.back {
            None => self.steps(space, [&self.second, &self.first], &apply, x, y),
            Some(_) => self.steps(space, [&self.first, &self.second], &apply, x, y),
        }
    }
    fn key(&self) -> u64 {
        joined_key([self.key, self.first.key(), self.second.key(), self.operator.key()])
    }
    fn bytes(&self) -> u64 {
        let (first, step) = (self.first.bytes(), self.operator.bytes() + 48 * self.len);
        let back = if self.back.is_some() { first + step + 8 * self.len } else { 0 };
        first + self.second.bytes() + step + back
    }
    fn recordable(&self) -> bool {
        self.first.recordable() && self.second.recordable() && self.operator.recordable()
    }
}
