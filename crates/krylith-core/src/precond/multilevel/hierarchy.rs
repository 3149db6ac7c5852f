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
use super::level::{Coarser, Finest, Level};
use super::narrow::{self, NarrowCycle};
use super::parts::{operator, owned, supported};
use super::ranks::{self, Next};
use super::side::Side;
use super::smoother::{Lane, LevelWorkspace, Smoother, Smoothing};
use super::wide::Wide;
use super::{Coarsen, MultilevelOptions, NearNull};
use crate::comm::agree;
use crate::halo::OwnRows;
use crate::interrupt;
use crate::operator::{LinearOperator, TermValues, Terms, fresh_key, joined_key, no_transpose};
use crate::profile::{self, SetupPart};
use crate::space::MOST_COLUMNS;
use crate::{Error, Result};
use arrayvec::ArrayVec;
use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

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
    /// The levels for several systems, once they are needed.
    wide: RefCell<Option<Wide<S>>>,
    /// The cycle in f32, if the options ask for one and the device has one.
    narrow: Option<Box<dyn NarrowCycle<S>>>,
    symmetric: bool,
    /// Global numbers of own rows, if a hierarchy over ranks may have to be built again.
    numbers: Option<OwnRows>,
    options: MultilevelOptions,
    key: u64,
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
        if let Some(near) = finest.near.take_if(|_| options.relax > 0) {
            let on = if joint { space.among(terms.rows())? } else { space.beside(terms.rows())? };
            finest.near = Some(relaxed(&on, terms, &options, &finest, &near)?);
        }
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
                rooms: vec![LevelWorkspace::new(&level.space, level.smoother.as_ref())?],
                coarse: coarse.transpose()?,
            })
        });
        let work = RefCell::new(work.collect::<Result<_>>()?);
        let wide = RefCell::default();
        let (narrow, _) = narrow::cycle(&levels, &options, None)?;
        Ok(Self { levels, work, wide, narrow, symmetric, numbers: kept, options, key: fresh_key() })
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
        self.wide = RefCell::default(); // it shares arrays
        let narrow = self.narrow.take();
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
        let turned = self.levels[0].turned.is_some();
        if self.options.coarsening.kind.is_air() {
            self.rebuild()?;
            return if turned { self.turn() } else { Ok(()) };
        }
        for depth in 0..self.levels.len() {
            let (above, below) = self.levels.split_at_mut(depth + 1);
            let level = &mut above[depth];
            let refreshed = level.refresh().map_err(|e| on_level(depth, e));
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
        let (narrow, same) = narrow::cycle(&self.levels, &self.options, narrow)?;
        self.narrow = narrow;
        if !same {
            self.key = fresh_key();
        }
        if turned { self.turn() } else { Ok(()) }
    }

    /// Lays out what the transposed cycle needs, if that has not been done. Later updates keep it up to date.
    /// Collective if the terms have a halo.
    ///
    /// # Errors
    /// A K-cycle, which is not linear; approximate ideal restriction over ranks; out of device memory.
    pub fn prepare_transpose(&mut self) -> Result<()> {
        if self.options.cycle == Cycle::K {
            return Err(no_transpose("amg with cycle=k"));
        }
        if !self.has_transpose() {
            return Err(no_transpose("amg:coarsen=air over several ranks"));
        }
        if self.levels[0].turned.is_some() { Ok(()) } else { self.turn() }
    }

    /// Lays out the transposed side of each level, or brings it up to date.
    fn turn(&mut self) -> Result<()> {
        for (depth, level) in self.levels.iter_mut().enumerate() {
            let turned = level.turn(&self.options, depth);
            match level.terms.halo {
                Some(_) => agree(level.space.comm(), turned)?,
                None => turned?,
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

    /// Returns true if cycles of one vector are in f32, with or without matrices in bf16.
    pub fn is_narrow(&self) -> bool {
        self.narrow.is_some()
    }

    /// Returns the number of levels whose matrix in a cycle is stored in bf16, and of those with a matrix.
    pub fn in_bf16(&self) -> [usize; 2] {
        self.narrow.as_ref().map_or([0; 2], |narrow| narrow.in_bf16())
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
pub(super) fn on_level(depth: usize, e: Error) -> Error {
    match e {
        Error::SingularBlock { .. } | Error::Pivot { .. } if depth > 0 => {
            Error::invalid(format!("amg: level {depth}: {e}"))
        }
        e => e,
    }
}

/// Returns the near-null vectors v after some smoothing steps on A v = 0. Collective.
fn relaxed<S: Coarsen>(
    on: &S,
    terms: &Terms,
    options: &MultilevelOptions,
    finest: &Finest<S>,
    near: &NearNull,
) -> Result<NearNull> {
    let terms = on.place(&Terms { halo: terms.halo.clone(), ..owned(terms) })?;
    let a = match &finest.operator {
        Some(a) => a.clone(),
        None => Rc::new(RefCell::new(operator(on, &terms, options.precision, 0)?)),
    };
    let how = Smoothing::Chebyshev { degree: MultilevelOptions::DEGREE };
    let none = || Err(Error::Internal("Chebyshev smoothing has no subdomains".into()));
    let smoother = Smoother::new(on, &terms, how, options.precision, &[], none)?;
    let mut room = LevelWorkspace::new(on, Some(&smoother))?;
    let (zero, mut x) = (on.vector()?, on.vector()?);
    let mut vectors = near.vectors();
    for v in &mut vectors {
        on.write(v, &mut x)?;
        for _ in 0..options.relax {
            let lane = Lane { b: &zero, x: &mut x, room: &mut room };
            smoother.improve(on, &Side::forward(&a), &mut [lane])?;
        }
        on.read(&x, v)?;
    }
    NearNull::new(&vectors)
}

impl<S: Coarsen> LinearOperator<S> for Multilevel<S> {
    fn apply(&self, on: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        if let Some(narrow) = &self.narrow {
            return narrow.apply(on, x, y);
        }
        cycle(&self.levels, &mut self.work.borrow_mut(), false, &mut [(x, y)])
    }
    fn prepare_columns(&self, _: &S, count: usize) -> Result<()> {
        if Wide::supports(&self.levels, &self.options) {
            let wide = &mut *self.wide.borrow_mut();
            if wide.as_ref().is_none_or(|wide| !wide.suits(count)) {
                *wide = None; // frees its memory first
                *wide = Wide::new(&self.levels, &self.options, count)?;
            }
            if wide.is_some() {
                return Ok(());
            }
        }
        let mut work = self.work.borrow_mut();
        for (depth, level) in self.levels.iter().enumerate() {
            let Work { rooms, coarse } = &mut work[depth];
            while rooms.len() < count {
                rooms.push(LevelWorkspace::new(&level.space, level.smoother.as_ref())?);
            }
            if let (Some(coarse), Some(below)) = (coarse, self.levels.get(depth + 1)) {
                coarse.widen(&below.space, count)?;
            }
        }
        Ok(())
    }
    /// The workspace of each level, b and x of each coarser one, and for alternating columns the vectors
    /// around the cycle and the product.
    fn bytes_of_column(&self) -> u64 {
        let vectors = if self.options.cycle == Cycle::V { 5 } else { 7 };
        let rows = |level: &Level<S>| (level.terms.rows() * size_of::<f64>()) as u64;
        self.levels.iter().map(|level| vectors * rows(level)).sum::<u64>() + 4 * rows(&self.levels[0])
    }
    fn gains_by_columns(&self, _: &S) -> bool {
        Wide::supports(&self.levels, &self.options)
    }
    fn apply_columns(&self, on: &S, x: &[&S::Vector], y: &mut [&mut S::Vector]) -> Result<()> {
        if let Some(wide) = &mut *self.wide.borrow_mut()
            && x.len() <= wide.width()
        {
            return wide.apply(on, x, y);
        }
        let mut work = self.work.borrow_mut();
        let at_once = work[0].rooms.len().min(MOST_COLUMNS);
        x.chunks(at_once).zip(y.chunks_mut(at_once)).try_for_each(|(x, y)| {
            let mut pairs: ArrayVec<_, MOST_COLUMNS> = x.iter().zip(y).map(|(x, y)| (*x, &mut **y)).collect();
            cycle(&self.levels, &mut work, false, &mut pairs)
        })
    }
    fn has_transpose(&self) -> bool {
        let air = self.options.coarsening.kind.is_air();
        let shared = || self.levels.iter().any(|level| level.terms.halo.is_some());
        self.options.cycle != Cycle::K && !(air && shared())
    }
    fn apply_transpose(&self, _: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        cycle(&self.levels, &mut self.work.borrow_mut(), true, &mut [(x, y)])
    }
    /// A cycle cannot be recorded if the last level is solved on the host.
    fn recordable(&self) -> bool {
        self.levels.iter().all(|level| level.inverse.as_ref().is_none_or(Inverse::recordable))
    }
    fn key(&self) -> u64 {
        let wide = self.wide.borrow().as_ref().map_or(0, Wide::key);
        joined_key([self.key, wide].into_iter().chain(self.levels.iter().map(Level::key)))
    }
    fn bytes(&self) -> u64 {
        if let Some(narrow) = &self.narrow {
            return narrow.bytes();
        }
        let (mut visits, mut sum) = (1, 0);
        for (level, work) in self.levels.iter().zip(&*self.work.borrow()) {
            sum += visits * level.bytes();
            visits *= work.coarse.as_ref().map_or(1, Coarse::visits);
        }
        sum
    }
}
