//! Solves with Aᵀ, from the set-up for A.
//!
//! The adjoint is a rank of its own, with the operator of Aᵀ and with the transpose of the preconditioner
//! that is set up. Everything around an attempt, such as refinement and fallbacks, is as in a solve with A.
//! If the attempt fails, further attempts are set up from Aᵀ. A symmetric matrix needs no adjoint.

use super::share::Sharing;
use super::{Current, Rank, singular};
use crate::comm::agree;
use crate::matching::MatchingFound;
use crate::operator::{LinearOperator, TermValues, Terms};
use crate::precond::Preconditioner;
use crate::problem::LocalProblem;
use crate::profile::{self, SetupPart};
use crate::solver::build::operator;
use crate::solver::diagnosis::Diagnosis;
use crate::solver::refine::{Passes, Vectors};
use crate::solver::{OriginalSystem, SolverSpace};
use crate::space::History;
use crate::{Error, Result};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// A preconditioner that a rank and its adjoint use.
pub(super) type Shared<S> = Rc<RefCell<Box<dyn Preconditioner<S>>>>;

/// The adjoint of a rank.
pub(super) enum Adjoint<S: SolverSpace> {
    /// A is symmetric to the last bit.
    Same,
    /// The rank of Aᵀ.
    Other(Box<Turned<S>>),
}

/// The rank of Aᵀ.
pub(super) struct Turned<S: SolverSpace> {
    rank: Rank<S>,
    /// Terms of own rows of Aᵀ.
    terms: Terms<'static>,
    /// Null vectors of Aᵀ.
    null: Vec<Vec<f64>>,
    /// The preconditioner of the attempt whose transpose the first attempt uses.
    p: Option<Shared<S>>,
    /// Number of that attempt.
    first: usize,
}

impl<S: SolverSpace> Turned<S> {
    /// Runs `work` on the rank with its part of the transposed problem.
    pub fn run<R>(&mut self, local: &LocalProblem, work: impl FnOnce(&mut Rank<S>, &LocalProblem) -> R) -> R {
        let own = LocalProblem { terms: &self.terms, null: &self.null, stages: None, ..*local };
        work(&mut self.rank, &own)
    }

    /// Returns true after a failure that left ranks at different steps.
    pub fn is_lost(&self) -> bool {
        self.rank.lost
    }

    /// Returns the rank.
    pub fn rank(&mut self) -> &mut Rank<S> {
        &mut self.rank
    }
}

/// A preconditioner P⁻¹, or P⁻ᵀ if `turned`, whose values its owner refreshes.
struct Side<S: SolverSpace> {
    p: Shared<S>,
    turned: bool,
}

impl<S: SolverSpace> LinearOperator<S> for Side<S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        crate::operator::applied(&*self.p.borrow(), self.turned, space, x, y)
    }
    fn has_transpose(&self) -> bool {
        self.p.borrow().has_transpose()
    }
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        crate::operator::applied(&*self.p.borrow(), !self.turned, space, x, y)
    }
    fn key(&self) -> u64 {
        self.p.borrow().key() ^ if self.turned { u64::MAX } else { 0 }
    }
    fn bytes(&self) -> u64 {
        self.p.borrow().bytes()
    }
    fn recordable(&self) -> bool {
        self.p.borrow().recordable()
    }
}

impl<S: SolverSpace> Preconditioner<S> for Side<S> {
    fn update_values(&mut self, space: &S, terms: &Terms, values: TermValues) -> Result<()> {
        match self.turned {
            true => Ok(()),
            false => self.p.borrow_mut().update_values(space, terms, values),
        }
    }
    fn prepare_transpose(&mut self, space: &S, terms: &Terms) -> Result<()> {
        match self.turned {
            true => Ok(()),
            false => self.p.borrow_mut().prepare_transpose(space, terms),
        }
    }
    fn take_events(&mut self) -> Vec<String> {
        if self.turned { Vec::new() } else { self.p.borrow_mut().take_events() }
    }
}

impl<S: SolverSpace> Rank<S> {
    /// Sets up the adjoint, or brings it up to date with new values. Collective; every rank gets the same
    /// error.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the preconditioner has no transpose; out of device memory.
    pub(super) fn prepare_adjoint(&mut self, local: &LocalProblem) -> Result<()> {
        if self.current.is_none() {
            self.climb(local, self.next_attempt, None)?;
        }
        let p = self.current.as_ref().and_then(|current| current.shared.as_ref());
        let stale = std::mem::take(&mut self.is_adjoint_stale);
        let current = match &self.adjoint {
            _ if stale => false,
            None => false,
            Some(Adjoint::Same) => true,
            Some(Adjoint::Other(turned)) => match (&turned.p, p) {
                (Some(one), Some(two)) => Rc::ptr_eq(one, two),
                (None, None) => self.current.as_ref().is_some_and(|current| current.p.is_none()),
                _ => false,
            },
        };
        if current {
            return Ok(());
        }
        self.is_adjoint_stale = true; // until all of the following has succeeded
        let _setup = profile::begin(SetupPart::Other);
        let space = &self.space;
        let upload = profile::begin(SetupPart::Upload);
        let placed = agree(space.comm(), space.place(local.terms))?;
        drop(upload);
        let placed = &LocalProblem { terms: &placed, ..*local };
        let terms = self.turned_operator(placed)?;
        let Some(terms) = terms else {
            self.adjoint = Some(Adjoint::Same);
            self.is_adjoint_stale = false;
            return Ok(());
        };
        let shared = self.shared();
        if let Some(p) = &shared {
            let _factors = profile::begin(SetupPart::Factors);
            let prepared = p.borrow_mut().prepare_transpose(&self.space, placed.terms);
            agree(self.space.comm(), prepared)?;
        }
        let own = &LocalProblem { terms: &terms, null: &[], stages: None, ..*local };
        let null = left_null_vectors(own, local)?;
        let old = match self.adjoint.take() {
            Some(Adjoint::Other(old))
                if old.first == self.next_attempt && old.rank.is_first(&old.p, &shared) =>
            {
                Some(old)
            }
            _ => None,
        };
        let turned = match old {
            Some(mut old) => {
                (old.terms, old.null) = (terms, null);
                old.run(local, |rank, own| rank.forget_values(own))?;
                old
            }
            None => {
                let own = &LocalProblem { null: &null, ..*own };
                let rank = self.turned_rank(own, shared.clone())?;
                Box::new(Turned { rank, terms, null, p: shared, first: self.next_attempt })
            }
        };
        self.adjoint = Some(Adjoint::Other(turned));
        self.is_adjoint_stale = false;
        Ok(())
    }

    /// Returns true if A is known to be symmetric.
    pub(super) fn is_same(&self) -> bool {
        matches!(self.adjoint, Some(Adjoint::Same))
    }

    /// Lays out the transpose of the preconditioner of a symmetric matrix. Collective.
    pub(super) fn prepare_turned(&mut self, local: &LocalProblem) -> Result<()> {
        let space = &self.space;
        let Some(p) = self.current.as_mut().and_then(|current| current.p.as_mut()) else { return Ok(()) };
        let placed = agree(space.comm(), space.place(local.terms))?;
        agree(space.comm(), p.prepare_transpose(space, &placed))
    }

    /// Returns true if this adjoint still has the attempt that uses the transpose of `p`, which is `now`.
    fn is_first(&self, p: &Option<Shared<S>>, now: &Option<Shared<S>>) -> bool {
        let same = match (p, now) {
            (Some(one), Some(two)) => Rc::ptr_eq(one, two),
            (one, two) => one.is_none() && two.is_none(),
        };
        same && self.current.as_ref().is_some_and(|current| current.is_turned)
    }

    /// Lays out the operator of Aᵀ, and returns its terms; `None` if they are those of A on every rank.
    fn turned_operator(&mut self, placed: &LocalProblem) -> Result<Option<Terms<'static>>> {
        let (space, options) = (&self.space, &self.options);
        let _product = profile::begin(SetupPart::Product);
        let mut a = self.a.borrow_mut();
        let prepared = a.prepare_transpose_by(space, placed.terms, |terms| {
            let own = &LocalProblem { terms, stages: None, ..*placed };
            operator(space, own, options.precision.unwrap_or_default(), options)
        });
        agree(space.comm(), prepared)?;
        let lost = || Error::Internal("a transpose was lost".into());
        let (turned, _) = a.transposed().ok_or_else(lost)?;
        let (same, terms) = (turned.equal(placed.terms), turned.terms().clone());
        if space.any(!same)? {
            return Ok(Some(terms));
        }
        a.drop_transpose();
        Ok(None)
    }

    /// Makes the preconditioner of the current attempt one that the adjoint can share.
    fn shared(&mut self) -> Option<Shared<S>> {
        let current = self.current.as_mut()?;
        if current.shared.is_none() {
            let p: Shared<S> = Rc::new(RefCell::new(current.p.take()?));
            current.p = Some(Box::new(Side { p: p.clone(), turned: false }));
            current.shared = Some(p);
        }
        current.shared.clone()
    }

    /// Builds the rank of Aᵀ.
    fn turned_rank(&mut self, own: &LocalProblem, p: Option<Shared<S>>) -> Result<Self> {
        let lost = || Error::Internal("an adjoint without an attempt".into());
        let (space, comm) = (&self.space, &self.comm);
        let made = (|| {
            let len = space.len();
            let on = if own.terms.halo.is_some() { space.among(len) } else { space.beside(len) }?;
            let vectors = Vectors { b: on.vector()?, x: on.vector()? };
            Ok((on, vectors))
        })();
        let (on, vectors) = agree(space.comm(), made)?;
        let a = self.a.borrow().transposed().map(|(_, a)| a.clone()).ok_or_else(lost)?;
        let attempt = &self.fallbacks[self.next_attempt];
        let sharing = Sharing::halo(comm);
        let method = sharing.built(&on, attempt)?;
        let info = self.current.as_ref().ok_or_else(lost)?.info.clone();
        let shared = p.map(|p| Box::new(Side { p, turned: true }) as Box<dyn Preconditioner<S>>);
        let current = Current { p: shared, info, method, is_whole: false, shared: None, is_turned: true };
        let survey = on.analyze(own.terms)?;
        let diagnosis = Diagnosis::of_analysis(own, survey, singular::depth(&on, own)?)?;
        let mut solution = self.solution.clone();
        solution.diagnosis = Arc::new(diagnosis);
        (solution.null_vectors, solution.share) = (own.null.len(), None);
        Ok(Self {
            current: Some(current),
            a,
            on: vectors,
            passes: self.passes.as_ref().map(|_| Passes::new(on.len())),
            sharing,
            space: on,
            comm: comm.clone(),
            options: self.options.clone(),
            room: self.room,
            fallbacks: self.fallbacks.clone(),
            impossible: self.impossible.clone(),
            too_large: (0, None),
            ended: Vec::with_capacity(self.fallbacks.len()),
            diagnosis: solution.diagnosis.clone(),
            crowded: None,
            found_deeper: None,
            before_direct: self.before_direct,
            stronger: None,
            spent: [0; 2],
            next_attempt: self.next_attempt,
            promoted: self.promoted,
            restarts: Vec::with_capacity(256),
            history: History::with_capacity(0),
            choices: self.choices.clone(),
            matching: self.matching.clone(),
            matched: MatchingFound::default(),
            pending: Vec::new(),
            solution,
            lost: false,
            together: None,
            column: None,
            adjoint: None,
            is_adjoint_stale: false,
            functions: Default::default(),
        })
    }

    /// Drops what this adjoint knows of the old values. Collective.
    fn forget_values(&mut self, own: &LocalProblem) -> Result<()> {
        let survey = self.space.analyze(own.terms)?;
        let depth = singular::depth(&self.space, own)?;
        self.diagnosis = Arc::new(Diagnosis::of_analysis(own, survey, depth)?);
        self.solution.diagnosis = self.diagnosis.clone();
        (self.crowded, self.found_deeper) = (None, None);
        self.impossible.clear();
        self.matched.forget();
        self.spent = [0; 2];
        Ok(())
    }
}

/// Returns the given null vectors of A that are null vectors of Aᵀ too. Collective.
fn left_null_vectors(turned: &LocalProblem, local: &LocalProblem) -> Result<Vec<Vec<f64>>> {
    let mut left = Vec::new();
    for n in local.null {
        if turned.original().null_share(n)? <= OriginalSystem::NULL {
            left.push(n.clone());
        }
    }
    Ok(left)
}
