//! Two preconditioners as one: side by side, or one after the other.
//!
//! * [`Additive`]: y = M₁x + M₂x. Each sees all of x, as subdomains and a coarse level of additive Schwarz do.
//! * [`Multiplicative`]: y = M₁x, then y ← y + M₂(x − A y). The second works on what the first left over:
//!   I − A M = (I − A M₂)(I − A M₁), so errors are reduced in turn. It costs a product more.
//!
//! M₁ and M₂ are any linear operators, compositions too, so they nest: `Additive<S, Multiplicative<…>, Box<dyn …>>`. A
//! composition communicates where its parts do and, multiplicative, in its one product with A: one exchange of halos.
//! Neither is symmetric by itself; methods that need symmetry want a symmetric M₁ and M₂ side by side.
//!
//! New values are given to the parts ([`Additive::first_mut`] and so on). An operator that the method uses too can be
//! shared by reference, or behind a `RefCell` where it changes between solves.
//!
//! Ledger of one application, N numbers: M₁, M₂ and 3 N; multiplicative, A and 3 N more.

use crate::operator::{LinearOperator, fresh_key, joined_key};
use crate::space::Space;
use crate::{Result, sweeps};
use std::cell::RefCell;

sweeps! {
    /// The vector passes of compositions; coarse levels take them too.
    pub const SWEEPS;
    /// y = y + w.
    add: () [w] [y] -> [] { y += w; }
    /// r = x − r, with A y in r before.
    left_over: () [x] [r] -> [] { r = x - r; }
}

/// y = M₁x + M₂x.
pub struct Additive<S: Space, A = Box<dyn LinearOperator<S>>, B = Box<dyn LinearOperator<S>>> {
    first: A,
    second: B,
    work: RefCell<S::Vector>,
    scalars: RefCell<S::Scalars>,
    len: u64,
    key: u64,
}

impl<S: Space, A: LinearOperator<S>, B: LinearOperator<S>> Additive<S, A, B> {
    /// M₁ + M₂, on vectors of `space`.
    ///
    /// # Errors
    /// A device without room for a vector.
    pub fn new(space: &S, first: A, second: B) -> Result<Self> {
        let (work, scalars) = (RefCell::new(space.vector()?), RefCell::new(space.scalars(1)?));
        Ok(Self { first, second, work, scalars, len: space.len() as u64, key: fresh_key() })
    }

    /// M₁, to be given new values.
    pub fn first_mut(&mut self) -> &mut A {
        &mut self.first
    }

    /// M₂, to be given new values.
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

/// y = M₁x, then y ← y + M₂(x − A y).
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
    len: u64,
    key: u64,
}

impl<S: Space, A: LinearOperator<S>, B: LinearOperator<S>, O: LinearOperator<S>> Multiplicative<S, A, B, O> {
    /// M₁, then M₂ on what M₁ leaves of x under `operator`, A.
    ///
    /// # Errors
    /// A device without room for two vectors.
    pub fn new(space: &S, first: A, second: B, operator: O) -> Result<Self> {
        let vector = || Ok::<_, crate::Error>(RefCell::new(space.vector()?));
        let (rest, correction, scalars) = (vector()?, vector()?, RefCell::new(space.scalars(1)?));
        let (len, key) = (space.len() as u64, fresh_key());
        Ok(Self { first, second, operator, rest, correction, scalars, len, key })
    }

    /// M₁, to be given new values.
    pub fn first_mut(&mut self) -> &mut A {
        &mut self.first
    }

    /// M₂, to be given new values.
    pub fn second_mut(&mut self) -> &mut B {
        &mut self.second
    }

    /// A, to be given new values.
    pub fn operator_mut(&mut self) -> &mut O {
        &mut self.operator
    }
}

impl<S: Space, A: LinearOperator<S>, B: LinearOperator<S>, O: LinearOperator<S>> LinearOperator<S>
    for Multiplicative<S, A, B, O>
{
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let (rest, correction) = (&mut *self.rest.borrow_mut(), &mut *self.correction.borrow_mut());
        let scalars = &mut *self.scalars.borrow_mut();
        self.first.apply(space, x, y)?;
        self.operator.apply(space, y, rest)?;
        space.sweep(left_over, scalars, [], [x], [&mut *rest], [])?;
        self.second.apply(space, rest, correction)?;
        space.sweep(add, scalars, [], [correction], [y], [])
    }
    fn key(&self) -> u64 {
        joined_key([self.key, self.first.key(), self.second.key(), self.operator.key()])
    }
    fn bytes(&self) -> u64 {
        self.first.bytes() + self.second.bytes() + self.operator.bytes() + 48 * self.len
    }
    fn recordable(&self) -> bool {
        self.first.recordable() && self.second.recordable() && self.operator.recordable()
    }
}
