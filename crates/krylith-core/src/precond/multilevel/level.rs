//! One level of a hierarchy: its terms, operator, smoother, and the transfer to the next level.

use super::coarsest::Inverse;
use super::parts::{cut_for, filter, operator, own_part};

use super::side::TurnedLevel;
use super::smoother::{Ends, Fused, Lane, Passes, Smoother, Smoothing};
use super::transfers::Transfers;
use super::{Coarsen, MultilevelOptions, NearNull, STALLED, Transfer};
use crate::halo::OwnRows;
use crate::operator::{LinearOperator, PointBlock, Terms, joined_key};
use crate::partition::Subdomains;
use crate::precond::compose::residual;
use crate::profile::{self, SetupPart};
use crate::space::FLAGS;
use crate::{Error, Result, sweeps};
use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

sweeps! {
    /// The vector pass of set-ups.
    pub const SWEEPS;
    /// The sums (u, A v), (v, A u), ‖A v‖² and ‖u‖².
    look_for_symmetry: () [u, v, au, av] [] -> [uav, vau, avav, uu] {
        uav += u * av; vau += v * au; avav += av * av; uu += u * u;
    }
}

/// Number of smoothing sweeps on the last level if it is too large for a direct solve.
const SMOOTHED: usize = 10;
/// Largest |uᵀAv − vᵀAu|, relative to ‖Av‖‖u‖, at which A counts as symmetric.
const ROUNDING: f64 = 1e-12;

/// A level of a hierarchy.
///
/// # Examples
/// ```
/// use krylith::{device::Cpu, matrix::Csr, operator::Terms};
/// use krylith_core::precond::{Multilevel, MultilevelOptions};
/// let n = 1000;
/// let stencil = |i: usize| [(i, i, 2.0), (i, (i + 1) % n, -0.9), (i, (i + n - 1) % n, -0.9)];
/// let entries: Vec<_> = (0..n).flat_map(stencil).map(|(i, j, v)| (i as u32, j as u32, v)).collect();
/// let a = Terms::csr(&Csr::from_triplets(n, n, &entries)?)?;
/// let p = Multilevel::new(&Cpu::new(n, 1), &a, MultilevelOptions::default())?;
/// for (number, level) in p.levels().iter().enumerate() {
///     let (nodes, entries, direct) = (level.nodes(), level.entries(), level.is_direct());
///     println!("{number}: {nodes} nodes, {entries} entries, solved directly: {direct}");
/// }
/// assert_eq!((p.levels()[0].nodes(), p.levels()[0].entries()), (n, 3 * n));
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Level<S: Coarsen> {
    pub(super) space: S,
    pub(super) terms: Terms<'static>,
    /// A; `None` if only the inverse is applied.
    pub(super) operator: Option<Rc<RefCell<PointBlock<S>>>>,
    /// True if the operator belongs to the solver, which refreshes its values.
    pub(super) shared: bool,
    /// The smoother; `None` if the inverse is applied, or if the level only restricts and interpolates.
    pub(super) smoother: Option<Smoother<S>>,
    /// Transfers to and from the next level; `None` on the last level.
    pub(super) transfer: Option<Transfers<S>>,
    pub(super) inverse: Option<Inverse<S>>,
    /// What the transposed cycle needs, once it is laid out.
    pub(super) turned: Option<TurnedLevel<S>>,
}

/// Parts of the solver's set-up that a hierarchy reuses.
pub(crate) struct Finest<S: Coarsen> {
    /// The operator of the same terms and ranks.
    pub operator: Option<Rc<RefCell<PointBlock<S>>>>,
    /// Subdomains of own nodes, for a smoother that needs them.
    pub subdomains: Option<Subdomains>,
    /// Near-null vectors of own rows.
    pub near: Option<NearNull>,
    /// Global numbers of own rows, if they are not a consecutive range on each rank.
    pub numbers: Option<OwnRows>,
}

impl<S: Coarsen> Default for Finest<S> {
    fn default() -> Self {
        Self { operator: None, subdomains: None, near: None, numbers: None }
    }
}

/// The terms and near-null vectors of the next level.
pub(super) type Coarser = (Terms<'static>, Option<NearNull>);

impl<S: Coarsen> Level<S> {
    /// Builds a level. Also returns the terms and near-null vectors of the next level, if there is one.
    pub(super) fn new(
        beside: &S,
        terms: Terms<'static>,
        options: &MultilevelOptions,
        depth: usize,
        finest: Finest<S>,
    ) -> Result<(Self, Option<Coarser>)> {
        let space = beside.beside(terms.rows())?;
        // On a GPU all steps start from one copy of the terms in its memory.
        let terms = space.place(&terms)?;
        let analysis = profile::begin_inside(SetupPart::Analysis);
        let (mut matrices, mut nodal, mut near) = (None, None, None);
        if terms.rows() > options.coarsest && depth + 1 < options.levels {
            let couplings = space.couplings(&terms)?;
            let enough = (STALLED * terms.block_rows() as f64) as usize;
            if let Some(fine) = &finest.near {
                let (a, how) = (&terms.terms[0].1, &options.coarsening);
                if let Some(made) = space.near_null_transfer(a, &couplings, fine, how, depth, enough)? {
                    let made = made.smoothed(a, &couplings)?;
                    matrices = Some(made.nodal.transfer()?);
                    (nodal, near) = (Some(made.nodal), Some(made.near));
                }
            } else {
                matrices = space.transfer(&couplings, &options.coarsening, depth)?;
                matrices = matrices.filter(|t| t.prolongation.block_columns() <= enough);
            }
        }
        drop(analysis);
        let factors = profile::begin_inside(SetupPart::Factors);
        let mut coarse = None;
        if let Some(p) = &nodal {
            let (c, a) = &terms.terms[0];
            let product = Cow::Owned(p.galerkin(a)?);
            coarse = Some((Terms { terms: vec![(c.clone(), product)], halo: None }, near));
        } else if let Some(matrices) = &matrices {
            let mut next = space.galerkin(&terms, matrices)?;
            filter(&space, &mut next, &options.coarsening);
            coarse = Some((next, None));
        }
        let last = matrices.is_none();
        // If the finest level cannot be coarsened, sparse direct factors must not silently replace the
        // hierarchy.
        let inverse = if last { Inverse::new(&space, &terms, options.precision, depth > 0)? } else { None };
        drop(factors);
        let product = profile::begin_inside(SetupPart::Product);
        let transfer = match matrices {
            Some(matrices) => {
                let mut made = Transfers::new(&space, matrices, nodal.is_some(), &terms, options.precision)?;
                made.nodal = nodal;
                Some(made)
            }
            None => None,
        };
        drop(product);
        Ok((Self::of(space, terms, options, depth, finest, transfer, inverse)?, coarse))
    }

    /// Builds the operator and the smoother of a level.
    pub(super) fn of(
        space: S,
        terms: Terms<'static>,
        options: &MultilevelOptions,
        depth: usize,
        finest: Finest<S>,
        transfer: Option<Transfers<S>>,
        inverse: Option<Inverse<S>>,
    ) -> Result<Self> {
        let product = profile::begin_inside(SetupPart::Product);
        let (shared, direct) = (finest.operator.is_some(), inverse.is_some());
        let operator = match finest.operator {
            Some(operator) => Some(operator),
            None if direct && depth > 0 => None,
            None => Some(Rc::new(RefCell::new(operator(&space, &terms, options.precision, depth)?))),
        };
        drop(product);
        let _factors = profile::begin_inside(SetupPart::Factors);
        let alone = depth == 0 && !options.smooth_finest && transfer.is_some();
        let smoother = if direct || alone {
            None
        } else {
            // Subdomains consist of own nodes only, so they are cut from the part that couples own nodes.
            let cuts = terms.halo.is_some() && matches!(options.smoothing, Smoothing::Ildu { .. });
            let own = cuts.then(|| own_part(&terms)).transpose()?;
            let of = own.as_ref().unwrap_or(&terms);
            let cut = || cut_for(&space, of, finest.subdomains);
            let marks = transfer.as_ref().map_or(&[][..], |t| &t.matrices.coarse);
            Some(Smoother::new(&space, of, options.smoothing, options.precision, marks, cut)?)
        };
        Ok(Self { space, terms, operator, shared, smoother, transfer, inverse, turned: None })
    }

    /// Refreshes operator, smoother and inverse for the current values of the terms.
    pub(super) fn refresh(&mut self) -> Result<()> {
        let Self { space, terms, operator, shared, smoother, inverse, .. } = self;
        if let Some(operator) = operator.as_ref().filter(|_| !*shared) {
            let _product = profile::begin_inside(SetupPart::Product);
            operator.borrow_mut().renew(space, terms)?;
        }
        let _factors = profile::begin_inside(SetupPart::Factors);
        let of_own = terms.halo.is_some() && matches!(smoother, Some(Smoother::Factors { .. }));
        let own = of_own.then(|| own_part(terms)).transpose()?;
        let of = own.as_ref().unwrap_or(terms);
        smoother.as_mut().map_or(Ok(()), |smoother| smoother.update_values(space, of))?;
        inverse.as_mut().map_or(Ok(()), |inverse| inverse.update_values(space, terms))
    }

    /// Returns A; an error on a level where only the inverse is applied.
    pub(super) fn operator(&self) -> Result<&RefCell<PointBlock<S>>> {
        let lost = || Error::Internal("the last level has no operator, only its inverse".into());
        self.operator.as_deref().ok_or_else(lost)
    }

    /// Computes y ← A x.
    pub(super) fn multiply(&self, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.operator()?.apply(&self.space, x, y)
    }

    /// Computes q ← b − A x in the workspace of each lane, or with Aᵀ.
    pub(super) fn residual(&self, turned: bool, lanes: &mut [Lane<S>]) -> Result<()> {
        let (on, a) = (&self.space, self.side(turned)?);
        if on.fuses(a.product()) {
            let mut passes = Passes::<S>::new();
            for Lane { b, x, room } in lanes {
                passes.push((&**x, Fused::LeftOver { b: *b, r: &mut room.q }));
            }
            return on.fused_together(a.product(), passes);
        }
        a.multiply(on, lanes, |lane| (&*lane.x, &mut lane.room.q))?;
        lanes.iter_mut().try_for_each(|Lane { b, room, .. }| {
            on.sweep(residual, &mut room.scalars, [], [b], [&mut room.q], [])
        })
    }

    /// Computes x ≈ A⁻¹ b on the last level, or x ≈ A⁻ᵀ b.
    pub(super) fn solve(&self, turned: bool, lanes: &mut [Lane<S>]) -> Result<()> {
        let on = &self.space;
        match (&self.inverse, &self.smoother) {
            (Some(inverse), _) => {
                let (b, mut x): Ends<S::Vector> = lanes.iter_mut().map(|l| (l.b, &mut *l.x)).unzip();
                inverse.apply(on, turned, &b, &mut x)
            }
            (None, Some(smoother)) => {
                let a = &self.side(turned)?;
                smoother.begin(on, a, lanes)?;
                (1..SMOOTHED).try_for_each(|_| smoother.improve(on, a, lanes))?;
                smoother.end(on, a, lanes)
            }
            (None, None) => {
                Err(Error::Internal("the last level has neither an inverse nor a smoother".into()))
            }
        }
    }

    /// Tests A = Aᵀ by two products with random vectors.
    pub(super) fn is_symmetric(&self) -> Result<bool> {
        let on = &self.space;
        let vector = || on.vector();
        let (mut u, mut v, mut au, mut av) = (vector()?, vector()?, vector()?, vector()?);
        let (mut scalars, mut sums, mut flags) = (on.scalars(4)?, [0.0; 4], [0; FLAGS]);
        on.fill_random(1, &mut u)?;
        on.fill_random(2, &mut v)?;
        self.multiply(&u, &mut au)?;
        self.multiply(&v, &mut av)?;
        on.sweep(look_for_symmetry, &mut scalars, [], [&u, &v, &au, &av], [], [0, 1, 2, 3])?;
        on.read_scalars(&scalars, 0, &mut sums, &mut flags)?;
        let [uav, vau, avav, uu] = sums;
        Ok((uav - vau).abs() <= ROUNDING * (avav * uu).sqrt())
    }

    /// Returns the matrices and coefficients of the level.
    pub fn terms(&self) -> &Terms<'static> {
        &self.terms
    }

    /// Returns P and R between this level and the next; `None` on the last level. Built from near-null
    /// vectors, P and R act on single components and are stored in square blocks. Otherwise they have one
    /// scalar per pair of nodes, which applies to all components.
    pub fn transfer(&self) -> Option<&Transfer> {
        self.transfer.as_ref().map(|t| &t.matrices)
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> usize {
        self.terms.block_rows()
    }

    /// Returns the number of stored blocks; two terms of one pattern count once.
    pub fn entries(&self) -> usize {
        let terms = if self.terms.shared_pattern() { &self.terms.terms[..1] } else { &self.terms.terms[..] };
        terms.iter().map(|t| t.1.blocks()).sum()
    }

    /// Returns the number of stored numbers.
    pub(super) fn stored(&self) -> usize {
        self.terms.terms.iter().map(|t| t.1.stored()).sum()
    }

    /// Returns the number of linearly dependent equations that the inverse of the last level leaves out.
    pub fn dropped(&self) -> usize {
        self.inverse.as_ref().map_or(0, Inverse::dropped)
    }

    /// Returns true if the level is solved by its inverse or by direct factors.
    pub fn is_direct(&self) -> bool {
        self.inverse.is_some()
    }

    /// Returns the fewest bytes that one visit can move.
    pub(super) fn bytes(&self) -> u64 {
        let (len, a) = (self.terms.rows(), self.operator.as_ref().map_or(0, |a| a.bytes()));
        let (smoothing, products) = self.smoother.as_ref().map_or((0, 0), |s| s.bytes(len));
        match (&self.inverse, &self.transfer) {
            (Some(inverse), _) => inverse.bytes(),
            (None, Some(t)) if self.smoother.is_none() => t.bytes(),
            (None, Some(t)) => smoothing + (products + 1) * a + t.bytes() + 48 * len as u64,
            (None, None) => SMOOTHED as u64 / 2 * (smoothing + (products + 1) * a),
        }
    }

    pub(super) fn key(&self) -> u64 {
        let transfer = self.transfer.as_ref().map_or(0, Transfers::key);
        let smoother = self.smoother.as_ref().map_or(0, Smoother::key);
        let inverse = self.inverse.as_ref().map_or(0, Inverse::key);
        let operator = self.operator.as_ref().map_or(0, |a| a.key());
        joined_key([operator, smoother, inverse, transfer, self.turned_key()])
    }
}
