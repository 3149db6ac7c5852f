//! The levels of a hierarchy, which are built, refreshed and applied as one preconditioner.
//!
//! Level 0 is the system. The operator of each following level is R A P of the level before. If several ranks
//! have a system, they share the finer levels (`ranks/`). From the first small level on, every rank has all
//! rows of every level.
//!
//! Traffic of a V-cycle on each level of N unknowns: two applications of the smoother with their products,
//! one more product with A, P and R once, and 6 N numbers.

use super::coarsest::Inverse;
use super::cycle::{Coarse, Cycle, Work, cycle};
use super::parts::{cut_for, filter, operator, own_part, owned, supported};
use super::ranks::{self, Next};
use super::smoother::{Fused, LevelWorkspace, Smoother};
use super::transfers::Transfers;
use super::{Coarsen, MultilevelOptions, NearNull, STALLED, Transfer};
use crate::comm::agree;
use crate::halo::OwnRows;
use crate::interrupt;
use crate::matrix::Dense;
use crate::operator::{LinearOperator, PointBlock, TermValues, Terms, fresh_key, joined_key};
use crate::partition::Subdomains;
use crate::precond::compose::residual;
use crate::profile::{self, SetupPart};
use crate::space::{FLAGS, Precision};
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
}

/// The preconditioner y ≈ A⁻¹ x: a cycle over the levels of a hierarchy.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::matrix::Csr;
/// use krylith::operator::Terms;
/// use krylith_core::precond::{Multilevel, MultilevelOptions};
///
/// let n = 1000;
/// let stencil = |i: usize| [(i, i, 2.0), (i, (i + 1) % n, -0.9), (i, (i + n - 1) % n, -0.9)];
/// let entries: Vec<_> = (0..n).flat_map(stencil).map(|(i, j, v)| (i as u32, j as u32, v)).collect();
/// let a = Terms::csr(&Csr::from_triplets(n, n, &entries)?)?;
/// let p = Multilevel::new(&Cpu::new(n, 1), &a, MultilevelOptions::default())?;
/// assert!(p.levels().len() >= 2 && p.operator_complexity() < 3.0);
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Multilevel<S: Coarsen> {
    levels: Vec<Level<S>>,
    work: RefCell<Vec<Work<S>>>,
    symmetric: bool,
    /// Global numbers of own rows, if a hierarchy over ranks may have to be built again.
    numbers: Option<OwnRows>,
    options: MultilevelOptions,
    key: u64,
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

impl<S: Coarsen> Multilevel<S> {
    /// Coarsens until a small system is left, and prepares a cycle over all levels. Collective if the terms
    /// have a halo.
    ///
    /// # Errors
    /// A matrix that is not square; a diagonal block that cannot be inverted, with its row; out of device
    /// memory.
    pub fn new(space: &S, terms: &Terms, options: MultilevelOptions) -> Result<Self> {
        Self::with(space, terms, options, Finest::default())
    }

    /// Builds a hierarchy from near-null vectors by smoothed or plain aggregation. Each coarse node has one
    /// unknown for each vector.
    ///
    /// # Errors
    /// As [`new`](Self::new); more than one term or stage; classical coarsening; vectors of a wrong length.
    pub fn with_near_null(
        space: &S,
        terms: &Terms,
        options: MultilevelOptions,
        near: NearNull,
    ) -> Result<Self> {
        near.check(terms)?;
        Self::with(space, terms, options, Finest { near: Some(near), ..Finest::default() })
    }

    /// Builds a hierarchy that reuses the given parts.
    pub(crate) fn with(
        space: &S,
        terms: &Terms,
        options: MultilevelOptions,
        mut finest: Finest<S>,
    ) -> Result<Self> {
        if !terms.is_square() {
            return Err(Error::invalid("amg: a preconditioner needs a square matrix"));
        }
        supported(terms, &options.coarsening)?;
        let joint = terms.halo.is_some() && space.comm().size() > 1;
        let kept = finest.numbers.clone().filter(|_| options.coarsening.kind.is_air());
        let mut levels: Vec<Level<S>> = Vec::new();
        let mut next = if joint {
            let numbers = match finest.numbers.take() {
                Some(numbers) => numbers,
                None => ranks::numbers(space.comm(), terms.block_rows())?,
            };
            Self::joint(space, terms, &options, std::mem::take(&mut finest), numbers, &mut levels)?
        } else {
            Some((owned(terms), finest.near.take()))
        };
        let mut finest = Some(finest);
        while let Some((terms, near)) = next.take() {
            interrupt::check()?;
            let depth = levels.len();
            let taken = Finest { near, ..finest.take().unwrap_or_default() };
            let made = Level::new(space, terms, &options, depth, taken);
            let (level, coarse) = made.map_err(|e| on_level(depth, e))?;
            levels.push(level);
            next = coarse;
        }
        let air = options.coarsening.kind.is_air();
        let symmetric = !air && (options.cycle != Cycle::K || levels[0].is_symmetric()?);
        let work = levels.iter().enumerate().map(|(depth, level)| {
            let coarse = levels.get(depth + 1).map(|below| {
                Coarse::new(&below.space, options.cycle, depth + 1, below.inverse.is_some(), symmetric)
            });
            Ok(Work {
                room: LevelWorkspace::new(&level.space, level.smoother.as_ref())?,
                coarse: coarse.transpose()?,
            })
        });
        let work = RefCell::new(work.collect::<Result<_>>()?);
        Ok(Self { levels, work, symmetric, numbers: kept, options, key: fresh_key() })
    }

    /// Builds the levels that ranks share, and returns the first level of which every rank has all rows.
    fn joint(
        space: &S,
        terms: &Terms,
        options: &MultilevelOptions,
        mut finest: Finest<S>,
        numbers: OwnRows,
        levels: &mut Vec<Level<S>>,
    ) -> Result<Option<Coarser>> {
        let near = finest.near.take();
        let mut next = Some(Next::Shared(Terms { halo: terms.halo.clone(), ..owned(terms) }, numbers, near));
        let mut finest = Some(finest);
        loop {
            let (terms, numbers, near) = match next.take() {
                None => return Ok(None),
                Some(Next::Whole(terms, near)) => return Ok(Some((terms, near))),
                Some(Next::Shared(terms, numbers, near)) => (terms, numbers, near),
            };
            let taken = Finest { near, ..finest.take().unwrap_or_default() };
            let depth = levels.len();
            let made = ranks::level(space, terms, options, depth, taken, numbers.borrowed());
            // If a diagonal block is singular on one rank, the other ranks must not wait for it at the next
            // level.
            let made = made.map_err(|e| on_level(depth, e));
            let made = agree(space.comm(), interrupt::check().and(made));
            let (level, coarse) = made?;
            levels.push(level);
            next = coarse;
        }
    }

    /// Refreshes the hierarchy for new values and coefficients of terms with the same patterns. P is kept.
    /// Everything else is recomputed in place. If R is not Pᵀ it depends on values too, so that the hierarchy
    /// is built again.
    ///
    /// # Errors
    /// As [`new`](Self::new); values of another shape. After an error the hierarchy must not be applied.
    pub fn update_values(&mut self, terms: &Terms, values: TermValues) -> Result<()> {
        let finest = &mut self.levels[0];
        let count = finest.terms.terms.len();
        let rows = finest.terms.block_rows();
        if values.len() != count || terms.terms.len() != count || terms.block_rows() != rows {
            return Err(Error::invalid(
                "the new values do not match the terms and rows that amg was built for; build a new \
                 preconditioner",
            ));
        }
        if finest.terms.halo.is_some() {
            finest.terms = finest.space.place(&Terms { halo: terms.halo.clone(), ..owned(terms) })?;
        } else {
            for (t, (c, values)) in values.iter().enumerate() {
                let (own, a) = &mut finest.terms.terms[t];
                *own = c.clone();
                match values.gpu() {
                    Some(_) => a.to_mut().update_values(values)?,
                    None => *a = Cow::Owned((*terms.terms[t].1).clone()),
                }
            }
        }
        if self.options.coarsening.kind.is_air() {
            return self.rebuild();
        }
        for depth in 0..self.levels.len() {
            let (above, below) = self.levels.split_at_mut(depth + 1);
            let level = &mut above[depth];
            let refreshed = level.refresh(self.options.precision).map_err(|e| on_level(depth, e));
            match level.terms.halo {
                Some(_) => agree(level.space.comm(), refreshed)?,
                None => refreshed?,
            }
            if let (Some(transfer), Some(next)) = (&mut level.transfer, below.first_mut()) {
                let _factors = profile::begin_inside(SetupPart::Factors);
                if let Some(joint) = &mut transfer.joint {
                    next.terms = next.space.place(&joint.coarse(&level.space, &level.terms)?)?;
                    continue;
                }
                for (to, from) in next.terms.terms.iter_mut().zip(&level.terms.terms) {
                    to.0 = from.0.clone();
                }
                let (space, a) = (&level.space, &level.terms);
                match &transfer.nodal {
                    None => space.update_galerkin(a, &transfer.matrices, &mut next.terms)?,
                    Some(p) => {
                        p.update(&a.terms[0].1, next.terms.terms[0].1.to_mut())?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Builds the hierarchy again for the current values of the finest level.
    fn rebuild(&mut self) -> Result<()> {
        self.levels.truncate(1); // frees the old levels before there are new ones
        let Level { space, terms, operator, shared, .. } = &self.levels[0];
        let operator = operator.clone().filter(|_| *shared);
        let finest = Finest { operator, numbers: self.numbers.clone(), ..Finest::default() };
        *self = Self::with(space, terms, self.options, finest)?;
        Ok(())
    }

    /// Returns the levels, finest first.
    pub fn levels(&self) -> &[Level<S>] {
        &self.levels
    }

    /// Returns the number of stored entries of all levels, divided by that of the first level.
    pub fn operator_complexity(&self) -> f64 {
        self.complexity(Level::entries)
    }

    /// Returns the number of nodes of all levels, divided by that of the first level.
    pub fn grid_complexity(&self) -> f64 {
        self.complexity(Level::nodes)
    }

    fn complexity(&self, of: impl Fn(&Level<S>) -> usize) -> f64 {
        let all: usize = self.levels.iter().map(&of).sum();
        all as f64 / of(&self.levels[0]).max(1) as f64
    }

    /// Returns the options.
    pub fn options(&self) -> &MultilevelOptions {
        &self.options
    }

    /// Returns true if K-cycles use flexible CG; otherwise they use GCR.
    pub fn is_symmetric(&self) -> bool {
        self.symmetric
    }

    /// Returns the number of numbers that the hierarchy stores, without the system itself.
    pub fn numbers(&self) -> f64 {
        let level = |(depth, level): (usize, &Level<S>)| {
            let own = if depth > 0 || !level.shared { level.stored() as f64 } else { 0.0 };
            let transfer = level.transfer.as_ref().map_or(0, |t| 2 * t.matrices.prolongation.stored());
            let order = level.terms.block() * level.terms.stages();
            let smoother = level.smoother.as_ref().map_or(0.0, |s| s.numbers(order, level.terms.rows()));
            let inverse = level.inverse.as_ref().map_or(0, |inverse| inverse.numbers(level.terms.rows()));
            own + transfer as f64 + smoother + inverse as f64
        };
        self.levels.iter().enumerate().map(level).sum()
    }
}

/// Names the level in errors of coarser levels, because coarse row numbers mean nothing to the user.
fn on_level(depth: usize, e: Error) -> Error {
    match e {
        Error::SingularBlock { .. } | Error::Pivot { .. } if depth > 0 => {
            Error::invalid(format!("amg: level {depth}: {e}"))
        }
        e => e,
    }
}

/// The terms and near-null vectors of the next level.
type Coarser = (Terms<'static>, Option<NearNull>);

impl<S: Coarsen> Level<S> {
    /// Builds a level. Also returns the terms and near-null vectors of the next level, if there is one.
    fn new(
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
        let (shared, direct) = (finest.operator.is_some(), inverse.is_some());
        let operator = match finest.operator {
            Some(operator) => Some(operator),
            None if direct && depth > 0 => None,
            None => Some(Rc::new(RefCell::new(operator(&space, &terms, options.precision, depth)?))),
        };
        let transfer = match matrices {
            Some(matrices) => {
                let mut made = Transfers::new(&space, matrices, nodal.is_some(), &terms, options.precision)?;
                made.nodal = nodal;
                Some(made)
            }
            None => None,
        };
        drop(product);
        let _factors = profile::begin_inside(SetupPart::Factors);
        let alone = depth == 0 && !options.smooth_finest && transfer.is_some();
        let smoother = if direct || alone {
            None
        } else {
            let cut = || cut_for(&space, &terms, finest.subdomains);
            let marks = transfer.as_ref().map_or(&[][..], |t| &t.matrices.coarse);
            Some(Smoother::new(&space, &terms, options.smoothing, options.precision, marks, cut)?)
        };
        Ok((Self { space, terms, operator, shared, smoother, transfer, inverse }, coarse))
    }

    /// Refreshes operator, smoother and inverse for the current values of the terms.
    fn refresh(&mut self, precision: Precision) -> Result<()> {
        let Self { space, terms, operator, shared, smoother, inverse, .. } = self;
        if let Some(operator) = operator.as_ref().filter(|_| !*shared) {
            let _product = profile::begin_inside(SetupPart::Product);
            let mut a = operator.borrow_mut();
            let mut update = || -> Result<()> {
                for (t, (_, matrix)) in terms.terms.iter().enumerate() {
                    a.update_values(space, t, matrix.numbers())?;
                }
                let coefficients: Vec<Dense> = terms.terms.iter().map(|t| t.0.clone()).collect();
                space.update_coefficients(a.product_mut(), &coefficients)
            };
            // New values may break the pattern that was found inside the blocks. Then a new operator is
            // built, on all ranks that share the level.
            let broken = update().is_err();
            let anew = if terms.halo.is_some() { space.any(broken)? } else { broken };
            if anew {
                *a = PointBlock::new(space, terms, precision, false)?;
            }
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

    /// Computes r ← b − A x.
    pub(super) fn residual(
        &self,
        b: &S::Vector,
        x: &S::Vector,
        r: &mut S::Vector,
        scalars: &mut S::Scalars,
    ) -> Result<()> {
        let (on, a) = (&self.space, self.operator()?);
        if on.fuses(a.borrow().product()) {
            return on.fused(a.borrow().product(), x, Fused::LeftOver { b, r });
        }
        a.apply(on, x, r)?;
        on.sweep(residual, scalars, [], [b], [r], [])
    }

    /// Computes x ≈ A⁻¹ b on the last level.
    pub(super) fn solve(&self, b: &S::Vector, x: &mut S::Vector, room: &mut LevelWorkspace<S>) -> Result<()> {
        let on = &self.space;
        match (&self.inverse, &self.smoother) {
            (Some(inverse), _) => inverse.apply(on, b, x),
            (None, Some(smoother)) => {
                let a = self.operator()?;
                smoother.begin(on, a, b, x, room)?;
                (1..SMOOTHED).try_for_each(|_| smoother.improve(on, a, b, x, room))
            }
            (None, None) => {
                Err(Error::Internal("the last level has neither an inverse nor a smoother".into()))
            }
        }
    }

    /// Tests A = Aᵀ by two products with random vectors.
    fn is_symmetric(&self) -> Result<bool> {
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
    fn stored(&self) -> usize {
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
    fn bytes(&self) -> u64 {
        let (len, a) = (self.terms.rows(), self.operator.as_ref().map_or(0, |a| a.bytes()));
        let (smoothing, products) = self.smoother.as_ref().map_or((0, 0), |s| s.bytes(len));
        match (&self.inverse, &self.transfer) {
            (Some(inverse), _) => inverse.bytes(),
            (None, Some(t)) if self.smoother.is_none() => t.bytes(),
            (None, Some(t)) => smoothing + (products + 1) * a + t.bytes() + 48 * len as u64,
            (None, None) => SMOOTHED as u64 / 2 * (smoothing + (products + 1) * a),
        }
    }

    fn key(&self) -> u64 {
        let transfer = self.transfer.as_ref().map_or(0, Transfers::key);
        let smoother = self.smoother.as_ref().map_or(0, Smoother::key);
        let inverse = self.inverse.as_ref().map_or(0, Inverse::key);
        let operator = self.operator.as_ref().map_or(0, |a| a.key());
        joined_key([operator, smoother, inverse, transfer])
    }
}

impl<S: Coarsen> LinearOperator<S> for Multilevel<S> {
    fn apply(&self, _: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        cycle(&self.levels, &mut self.work.borrow_mut(), x, y)
    }
    /// A cycle cannot be recorded if the last level is solved on the host.
    fn recordable(&self) -> bool {
        self.levels.iter().all(|level| level.inverse.as_ref().is_none_or(Inverse::recordable))
    }
    fn key(&self) -> u64 {
        joined_key(std::iter::once(self.key).chain(self.levels.iter().map(Level::key)))
    }
    fn bytes(&self) -> u64 {
        let (mut visits, mut sum) = (1, 0);
        for (level, work) in self.levels.iter().zip(&*self.work.borrow()) {
            sum += visits * level.bytes();
            visits *= work.coarse.as_ref().map_or(1, Coarse::visits);
        }
        sum
    }
}
