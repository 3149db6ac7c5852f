//! Factors of the whole matrix on rank 0: on its host, or on its device.

use super::super::on_device::{DeviceLu, DeviceLuLimits};
use super::super::pins::pins;
use super::SparseLu;
use crate::operator::{PointBlock, PointBlockSum, TermValues, Terms};
use crate::precond::direct::DirectFactors;
use crate::precond::{Preconditioner, SharedOperator};
use crate::space::Precision;
use crate::{Error, Result};
use std::cell::RefCell;
use std::rc::Rc;

/// Factors of a whole system, for vectors on the host.
pub trait WholeFactors {
    /// Factorises new values of the same terms.
    fn update(&mut self, terms: &Terms) -> Result<()>;
    /// Replaces x by A⁻¹ x or A⁻ᵀ x, with 0 at pinned unknowns.
    fn solve(&mut self, transposed: bool, x: &mut Vec<f64>) -> Result<()>;
    fn describe(&self) -> WholeDescription;
    /// The number of numbers in the factors, or a bound of it.
    fn numbers(&self) -> usize;
}

/// What a report says about such factors.
pub struct WholeDescription {
    /// The library that was to compute them, if that was not the host, and its remarks.
    pub by: Option<String>,
    pub remarks: Vec<String>,
    pub kind: String,
    /// True if the number of numbers is a bound.
    pub is_bound: bool,
    /// The number of numbers of the assembled matrix.
    pub stored: usize,
    pub weak: Vec<usize>,
}

impl WholeFactors for SparseLu {
    fn update(&mut self, terms: &Terms) -> Result<()> {
        self.update_values(TermValues::from(terms))
    }
    fn solve(&mut self, transposed: bool, x: &mut Vec<f64>) -> Result<()> {
        self.solve_here(transposed, x)
    }
    fn describe(&self) -> WholeDescription {
        WholeDescription {
            by: None,
            remarks: Vec::new(),
            kind: self.kind().into(),
            is_bound: self.is_bound(),
            stored: self.stored(),
            weak: self.weak_rows().to_vec(),
        }
    }
    fn numbers(&self) -> usize {
        self.numbers()
    }
}

/// Makes factors on the device of rank 0. Its arguments are the terms, the null vectors, and the bytes of the
/// host that may be used if the device fails.
pub(crate) type MakeWhole<'m> =
    &'m dyn Fn(&Terms<'static>, &[Vec<f64>], Option<u64>) -> Result<Box<dyn WholeFactors>>;

/// Factors on a device, in a space of this rank alone.
pub(crate) struct WholeOnDevice<S: DirectFactors + PointBlockSum> {
    space: S,
    library: String,
    operator: SharedOperator<S>,
    lu: DeviceLu<S>,
    pinned: Vec<usize>,
    vectors: [S::Vector; 2],
    coefficients: Vec<Vec<f64>>,
}

impl<S: DirectFactors + PointBlockSum> WholeOnDevice<S> {
    /// Factorises terms that are whole on this rank, by a library of the device.
    ///
    /// # Errors
    /// As [`DeviceLu::new`]; null vectors of a wrong length or that are linearly dependent.
    pub fn new(
        space: S,
        library: String,
        terms: &Terms<'static>,
        null: &[Vec<f64>],
        limits: DeviceLuLimits,
    ) -> Result<Self> {
        let pinned = pins(terms, null)?;
        let placed = space.place(terms)?;
        let operator = Rc::new(RefCell::new(PointBlock::new(&space, &placed, Precision::F64, false)?));
        let lu = DeviceLu::new(&space, &placed, pinned.clone(), operator.clone(), limits)?;
        let (vectors, coefficients) = ([space.vector()?, space.vector()?], coefficients(terms));
        Ok(Self { space, library, operator, lu, pinned, vectors, coefficients })
    }
}

fn coefficients(terms: &Terms) -> Vec<Vec<f64>> {
    terms.terms.iter().map(|(c, _)| c.values().to_vec()).collect()
}

impl<S: DirectFactors + PointBlockSum> WholeFactors for WholeOnDevice<S> {
    fn update(&mut self, terms: &Terms) -> Result<()> {
        let new = coefficients(terms);
        if new == self.coefficients {
            let mut operator = self.operator.borrow_mut();
            for (t, (_, a)) in terms.terms.iter().enumerate() {
                operator.update_values(&self.space, t, a.values())?;
            }
        } else {
            *self.operator.borrow_mut() = PointBlock::new(&self.space, terms, Precision::F64, false)?;
            self.coefficients = new;
        }
        self.lu.update_values(&self.space, terms, TermValues::from(terms))
    }

    fn solve(&mut self, transposed: bool, x: &mut Vec<f64>) -> Result<()> {
        use crate::operator::LinearOperator;
        if x.len() != self.space.len() {
            return Err(Error::Internal("lu: a vector of another length than the system".into()));
        }
        let [from, to] = &mut self.vectors;
        self.pinned.iter().for_each(|&u| x[u] = 0.0);
        self.space.write(x, from)?;
        match transposed {
            false => self.lu.apply(&self.space, from, to)?,
            true => self.lu.apply_transpose(&self.space, from, to)?,
        }
        self.space.read(to, x)?;
        self.pinned.iter().for_each(|&u| x[u] = 0.0);
        Ok(())
    }

    fn describe(&self) -> WholeDescription {
        WholeDescription {
            by: Some(self.library.clone()),
            remarks: self.lu.remarks(),
            kind: self.lu.kind().into(),
            is_bound: false,
            stored: self.lu.stored(),
            weak: Vec::new(),
        }
    }

    fn numbers(&self) -> usize {
        self.lu.numbers()
    }
}
