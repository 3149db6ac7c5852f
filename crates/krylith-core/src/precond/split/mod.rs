//! Preconditioners of coupled systems that treat each field on its own.
//!
//! Let A_fg be the block of the matrix that couples field g to the equations of field f, and M_f an
//! approximate inverse of A_ff. With x and y cut into fields, [`Split`] computes
//!
//! * diagonal: y_f = M_f x_f;
//! * lower: y_f = M_f (x_f − Σ_{g<f} A_fg y_g), in the order of the fields (block Gauss–Seidel);
//! * upper: the same in the opposite order, with the sum over g > f;
//! * full: forwards as in lower, with result z and right-hand sides r_f = x_f − Σ_{g<f} A_fg z_g; then
//!   backwards y_f = M_f (r_f − Σ_{g>f} A_fg y_g), where the last field keeps z. It is symmetric if A and all
//!   M_f are.
//!
//! * simple, for two fields: forwards as in lower, then y_0 = z_0 − diag(A)⁻¹ A_01 y_1. So the first field is
//!   solved for once (Patankar and Spalding 1972; Pernice and Tocci 2001).
//!
//! For a saddle point [[A, B], [C, −D]] the last part approximates the inverse of the Schur complement S = −D
//! − C A⁻¹ B instead, and these forms are the factors of the block LDU decomposition (Murphy, Golub and
//! Wathen 2000; Benzi, Golub and Liesen 2005). [`Around`] has the approximations of S⁻¹ that are products of
//! several operators.
//!
//! Vectors of a field live in a space of their own, beside that of the system, so every method and
//! preconditioner works on a field. Entries are gathered and scattered on the device ([`Gather`]).
//!
//! Traffic of one application, with n_f numbers in field f: M_f, the blocks A_fg that the form uses, and 40
//! to 60 bytes per unknown for gathering, residuals and scattering.

mod around;

pub(crate) use around::{Around, Lsc, Pcd};

use super::spec::SplitForm;
use super::{Preconditioner, SharedOperator};
use crate::operator::{LinearOperator, PointBlockSum, applied, fresh_key, joined_key};
use crate::space::Gather;
use crate::{Result, sweeps};
use std::cell::RefCell;

sweeps! {
    /// The vector passes of splits.
    pub const SWEEPS;
    /// r = r − q.
    split_subtract: () [q] [r] -> [] { r -= q; }
    /// y = −y.
    split_negate: () [] [y] -> [] { y = -y; }
    /// y = d y.
    split_scale: () [d] [y] -> [] { y *= d; }
    /// y = 0.
    split_clear: () [] [y] -> [] { y = 0.0; }
}

/// One part of a split: a field with its space and its approximate inverse.
pub(crate) struct Part<S: PointBlockSum + Gather> {
    /// Vectors of the field.
    pub space: S,
    /// Numbers of the field's unknowns.
    pub entries: S::Entries,
    /// Approximate inverse of the part's matrix, in `space`.
    pub inverse: Box<dyn Preconditioner<S>>,
    /// The operators around the inverse, if it is one factor of several.
    pub around: Option<Around<S>>,
    /// True if the sign of the inverse is opposite to that of the matrix that it stands for.
    pub negative: bool,
    /// r, y and workspace.
    work: RefCell<[S::Vector; 3]>,
    scalars: RefCell<S::Scalars>,
}

impl<S: PointBlockSum + Gather> Part<S> {
    /// Creates a part of a system whose vectors are in `whole`.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn new(whole: &S, space: S, unknowns: &[u32], inverse: Box<dyn Preconditioner<S>>) -> Result<Self> {
        let vector = || space.vector();
        let work = RefCell::new([vector()?, vector()?, vector()?]);
        let scalars = RefCell::new(space.scalars(1)?);
        let entries = whole.entries(unknowns)?;
        Ok(Self { space, entries, inverse, around: None, negative: false, work, scalars })
    }

    /// Computes y ← M r, or y ← Mᵀ r.
    fn solve(&self, turned: bool, r: &S::Vector, y: &mut S::Vector, scalars: &mut S::Scalars) -> Result<()> {
        match &self.around {
            None => applied(&*self.inverse, turned, &self.space, r, y)?,
            Some(around) => around.apply(&self.space, turned, &*self.inverse, r, y)?,
        }
        match self.negative {
            true => self.space.sweep(split_negate, scalars, [], [], [y], []),
            false => Ok(()),
        }
    }

    fn bytes(&self) -> u64 {
        let around = self.around.as_ref().map_or(0, |around| around.bytes(self.inverse.bytes()));
        self.inverse.bytes() + around + 60 * self.space.len() as u64
    }

    fn key(&self) -> u64 {
        joined_key([self.inverse.key(), self.around.as_ref().map_or(0, Around::key)])
    }

    fn recordable(&self) -> bool {
        self.inverse.recordable() && self.around.as_ref().is_none_or(Around::recordable)
    }
}

/// A preconditioner for each field, and the couplings between them.
pub(crate) struct Split<S: PointBlockSum + Gather> {
    /// The parts, in order.
    pub parts: Vec<Part<S>>,
    /// A_fg for f ≠ g; `None` if the form does not use it or if it is zero.
    couplings: Vec<Vec<Option<SharedOperator<S>>>>,
    form: SplitForm,
    /// Inverse diagonal of the first block, for the form `simple`.
    diagonal: Option<S::Vector>,
    key: u64,
}

impl<S: PointBlockSum + Gather> Split<S> {
    /// Combines parts whose unknowns together are all unknowns of the system.
    pub fn new(parts: Vec<Part<S>>, couplings: Vec<Vec<Option<SharedOperator<S>>>>, form: SplitForm) -> Self {
        Self { parts, couplings, form, diagonal: None, key: fresh_key() }
    }

    /// Returns the split with the inverse diagonal of the first block.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn with_diagonal(mut self, diagonal: &[f64]) -> Result<Self> {
        self.diagonal = Some(self.parts[0].space.vector()?);
        self.set_diagonal(diagonal)?;
        Ok(self)
    }

    /// Sets the inverse diagonal of the first block.
    ///
    /// # Errors
    /// A device that failed.
    pub fn set_diagonal(&mut self, diagonal: &[f64]) -> Result<()> {
        match &mut self.diagonal {
            Some(to) => self.parts[0].space.write(diagonal, to),
            None => Ok(()),
        }
    }

    /// Returns the form.
    pub fn form(&self) -> SplitForm {
        self.form
    }

    /// Returns the share of each part in the memory traffic of an application. Couplings have the rest.
    pub fn shares(&self) -> Vec<f64> {
        let all = self.bytes().max(1) as f64;
        let times =
            |f: usize| if self.form == SplitForm::Full && f + 1 < self.parts.len() { 2.0 } else { 1.0 };
        self.parts.iter().enumerate().map(|(f, part)| times(f) * part.bytes() as f64 / all).collect()
    }

    /// Returns true if a form multiplies by A_fg.
    pub fn uses(form: SplitForm, f: usize, g: usize) -> bool {
        match form {
            SplitForm::Diagonal => false,
            SplitForm::Lower => g < f,
            SplitForm::Upper => g > f,
            SplitForm::Full | SplitForm::Simple => g != f,
        }
    }

    /// Subtracts diag(A)⁻¹ A_01 y_1 from y_0.
    fn correct_by_diagonal(&self) -> Result<()> {
        let (Some(coupling), Some(diagonal)) = (&self.couplings[0][1], &self.diagonal) else { return Ok(()) };
        let first = &self.parts[0];
        let (space, scalars) = (&first.space, &mut *first.scalars.borrow_mut());
        let [_, y, q] = &mut *first.work.borrow_mut();
        coupling.apply(space, &self.parts[1].work.borrow()[1], q)?;
        space.sweep(split_scale, scalars, [], [diagonal], [&mut *q], [])?;
        space.sweep(split_subtract, scalars, [], [&*q], [y], [])
    }

    /// Solves for field `f` after subtracting the couplings to the fields `others`, whose solutions are
    /// known. With `turned`, the matrix is the transpose.
    fn turn(&self, turned: bool, f: usize, others: std::ops::Range<usize>) -> Result<()> {
        let part = &self.parts[f];
        let (space, scalars) = (&part.space, &mut *part.scalars.borrow_mut());
        let [r, y, q] = &mut *part.work.borrow_mut();
        for g in others {
            let of = if turned { &self.couplings[g][f] } else { &self.couplings[f][g] };
            let Some(coupling) = of else { continue };
            applied(coupling, turned, space, &self.parts[g].work.borrow()[1], q)?;
            space.sweep(split_subtract, scalars, [], [&*q], [&mut *r], [])?;
        }
        part.solve(turned, r, y, scalars)
    }

    /// Computes y ← M x or y ← Mᵀ x. The transpose of a lower form is an upper form of the transposed
    /// matrix, and the reverse.
    fn substitute(&self, space: &S, turned: bool, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let count = self.parts.len();
        for part in &self.parts {
            space.gather(&part.entries, x, &mut part.work.borrow_mut()[0])?;
        }
        let forwards = || (0..count).try_for_each(|f| self.turn(turned, f, 0..f));
        let backwards = |from: usize| (0..from).rev().try_for_each(|f| self.turn(turned, f, f + 1..count));
        match (self.form, turned) {
            (SplitForm::Diagonal, _) => (0..count).try_for_each(|f| self.turn(turned, f, 0..0))?,
            (SplitForm::Lower, false) | (SplitForm::Upper, true) => forwards()?,
            (SplitForm::Upper, false) | (SplitForm::Lower, true) => backwards(count)?,
            (SplitForm::Full, _) => {
                forwards()?;
                backwards(count - 1)?;
            }
            (SplitForm::Simple, false) => {
                forwards()?;
                self.correct_by_diagonal()?;
            }
            (SplitForm::Simple, true) => {
                self.begin_by_diagonal()?;
                backwards(count)?;
            }
        }
        for part in &self.parts {
            space.scatter(&part.entries, &part.work.borrow()[1], y)?;
        }
        Ok(())
    }

    /// Subtracts A_01ᵀ diag(A)⁻¹ x_0 from x_1, which is the transpose of `correct_by_diagonal`.
    fn begin_by_diagonal(&self) -> Result<()> {
        let (Some(coupling), Some(diagonal)) = (&self.couplings[0][1], &self.diagonal) else { return Ok(()) };
        let (first, second) = (&self.parts[0], &self.parts[1]);
        let [x, _, scaled] = &mut *first.work.borrow_mut();
        first.space.copy(x, scaled)?;
        let scalars = &mut *first.scalars.borrow_mut();
        first.space.sweep(split_scale, scalars, [], [diagonal], [&mut *scaled], [])?;
        let [r, _, q] = &mut *second.work.borrow_mut();
        coupling.apply_transpose(&second.space, scaled, q)?;
        let scalars = &mut *second.scalars.borrow_mut();
        second.space.sweep(split_subtract, scalars, [], [&*q], [r], [])
    }
}

impl<S: PointBlockSum + Gather> LinearOperator<S> for Split<S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.substitute(space, false, x, y)
    }
    fn has_transpose(&self) -> bool {
        let around = |part: &Part<S>| part.around.as_ref().is_none_or(Around::has_transpose);
        self.parts.iter().all(|part| part.inverse.has_transpose() && around(part))
    }
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.substitute(space, true, x, y)
    }
    fn key(&self) -> u64 {
        let couplings = self.couplings.iter().flatten().flatten().map(|coupling| coupling.key());
        joined_key(self.parts.iter().map(Part::key).chain(couplings).chain([self.key]))
    }
    fn bytes(&self) -> u64 {
        let couplings = self.couplings.iter().flatten().flatten().map(|coupling| coupling.bytes());
        let again = match self.form {
            SplitForm::Full => self.parts[..self.parts.len() - 1].iter().map(Part::bytes).sum(),
            _ => 0,
        };
        self.parts.iter().map(Part::bytes).chain(couplings).sum::<u64>() + again
    }
    fn recordable(&self) -> bool {
        self.parts.iter().all(Part::recordable)
            && self.couplings.iter().flatten().flatten().all(|coupling| coupling.recordable())
    }
}
