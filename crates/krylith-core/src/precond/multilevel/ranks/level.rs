//! A level that several ranks share, and the transfer of vectors to and from the next level.

use super::super::level::{Finest, Level};
use super::super::parts::filter;
use super::super::smoother::Fused;
use super::super::transfers::{Transfers, widened};
use super::super::{Coarsen, MultilevelOptions, NearNull, Transfer};
use super::runs::Runs;
use super::share::{Fine, Share, Sums};
use crate::Result;
use crate::halo::{Halo, OwnRows, RowNumbers};
use crate::matrix::Bsr;
use crate::operator::{Format, LinearOperator, PointBlock, Terms, joined_key};
use crate::profile::{self, SetupPart};
use crate::space::Precision;
use std::cell::RefCell;
use std::sync::Arc;

/// The part of a transfer that ranks share.
pub(in super::super) struct Joint<S: Coarsen> {
    share: Share,
    /// The transfer of vectors between both levels, if it needs other ranks.
    route: Option<Route<S>>,
}

/// The transfer of vectors between a shared level and the next level, if it needs other ranks.
pub(in super::super) struct Route<S: Coarsen> {
    /// R of own rows. `sums` has its results, for own coarse nodes and for coarse nodes of other ranks.
    lower: PointBlock<S>,
    sums: RefCell<S::Vector>,
    /// The operator that adds contributions of other ranks to own coarse nodes, if there are any.
    add: Option<PointBlock<S>>,
    /// A vector of own coarse nodes, and the operator that gathers all coarse nodes, if each rank continues
    /// with the whole coarse level.
    gather: Option<(RefCell<S::Vector>, PointBlock<S>)>,
    /// P of own rows.
    raise: PointBlock<S>,
}

/// The level that follows a shared level.
pub(in super::super) enum Next {
    /// A level that ranks share as well, with the global numbers of own nodes.
    Shared(Terms<'static>, OwnRows, Option<NearNull>),
    /// The whole level, on every rank.
    Whole(Terms<'static>, Option<NearNull>),
}

/// Builds the product with w ⊗ I, where I has this order.
fn product<S: Coarsen>(
    space: &S,
    p: &Bsr,
    order: usize,
    halo: Option<Arc<Halo>>,
    precision: Precision,
) -> Result<PointBlock<S>> {
    let terms = Terms { halo, ..widened(p, order)? };
    match terms.block() * terms.stages() {
        1 => PointBlock::with_format(space, &terms, precision, Format::Csr),
        _ => PointBlock::new(space, &terms, precision, false),
    }
}

impl<S: Coarsen> Joint<S> {
    /// Builds the joint part for P of own rows. `orders` has the unknowns of a fine and of a coarse node.
    /// Collective.
    fn new(
        space: &S,
        share: Share,
        p: &Bsr,
        orders: [usize; 2],
        precision: Precision,
        whole: bool,
    ) -> Result<Self> {
        let routed = whole || share.sums.is_some();
        let route = routed.then(|| Route::new(space, &share, p, orders, precision, whole)).transpose()?;
        Ok(Self { share, route })
    }

    /// Computes the terms of the next level for new values of this level. Collective.
    pub fn coarse(&mut self, space: &S, terms: &Terms) -> Result<Terms<'static>> {
        let coarse = self.share.galerkin(space, terms)?;
        let whole = self.route.as_ref().is_some_and(|route| route.gather.is_some());
        if whole { self.share.whole(space, &coarse) } else { Ok(coarse) }
    }

    /// Returns true if P and R act on components.
    pub fn is_nodal(&self) -> bool {
        self.share.is_nodal()
    }

    /// Returns the route; `None` if P and R of own rows suffice.
    pub fn route(&self) -> Option<&Route<S>> {
        self.route.as_ref()
    }
}

impl<S: Coarsen> Route<S> {
    fn new(
        space: &S,
        share: &Share,
        p: &Bsr,
        [order, coarse]: [usize; 2],
        precision: Precision,
        whole: bool,
    ) -> Result<Self> {
        let r = share.restriction();
        // The identity by which P and R are widened, and the columns of P for a coarse node.
        let (wide, columns) = if share.is_nodal() { (1, coarse / p.block()) } else { (order, 1) };
        let lower = product(space, r, wide, None, precision)?;
        let sums = space.beside(r.block_rows() * r.block() * wide)?.vector()?;
        let add = |sums: &Sums| product(space, &sums.matrix, coarse, Some(sums.up.clone()), Precision::F64);
        let add = share.sums.as_ref().map(add).transpose()?;
        let (gather, raise) = match whole {
            false => {
                let down = Arc::new(share.down.in_parts(columns));
                (None, product(space, p, wide, Some(down), precision)?)
            }
            true => {
                let (w, halo) = share.gathering(space)?;
                let w = product(space, &w, coarse, Some(Arc::new(halo)), Precision::F64)?;
                let own = space.beside(share.down.own * coarse)?.vector()?;
                let of_node = |node: u32| (0..columns as u32).map(move |c| node * columns as u32 + c);
                let numbers: Vec<u32> = share.numbers().into_iter().flat_map(of_node).collect();
                let p = space.renumbered(p, &numbers, share.coarse.all() * columns)?;
                (Some((RefCell::new(own), w)), product(space, &p, wide, None, precision)?)
            }
        };
        space.prepare_fused(raise.product())?;
        Ok(Self { lower, sums: RefCell::new(sums), add, gather, raise })
    }

    /// Computes b_c ← R r.
    pub fn restrict(&self, on: &S, r: &S::Vector, coarse: &mut S::Vector) -> Result<()> {
        let add = |sums: &mut S::Vector, own: &mut S::Vector| match &self.add {
            None => self.lower.apply(on, r, own),
            Some(add) => {
                self.lower.apply(on, r, sums)?;
                add.apply(on, sums, own)
            }
        };
        let mut sums = self.sums.borrow_mut();
        let Some((own, gather)) = &self.gather else { return add(&mut sums, coarse) };
        let mut own = own.borrow_mut();
        add(&mut sums, &mut own)?;
        gather.apply(on, &own, coarse)
    }

    /// Computes x ← P x_c.
    pub fn prolong(&self, on: &S, coarse: &S::Vector, x: &mut S::Vector) -> Result<()> {
        self.raise.apply(on, coarse, x)
    }

    /// Computes x ← x + P x_c, if the device does so in one pass; otherwise returns false.
    pub fn correct(&self, on: &S, coarse: &S::Vector, x: &mut S::Vector) -> Result<bool> {
        let product = self.raise.product();
        if !on.fuses(product) {
            return Ok(false);
        }
        on.fused(product, coarse, Fused::Added { y: x })?;
        Ok(true)
    }

    fn products(&self) -> impl Iterator<Item = &PointBlock<S>> {
        let gather = self.gather.as_ref().map(|(_, gather)| gather);
        [&self.lower, &self.raise].into_iter().chain(&self.add).chain(gather)
    }

    /// Returns the fewest bytes that one restriction and one interpolation can move.
    pub fn bytes(&self) -> u64 {
        self.products().map(|product| product.bytes()).sum()
    }

    /// Returns a key that changes when the buffers change.
    pub fn key(&self) -> u64 {
        joined_key(self.products().map(|product| product.key()))
    }
}

/// Builds a level that ranks share, and the system of the next level. Collective.
pub(in super::super) fn level<S: Coarsen>(
    beside: &S,
    terms: Terms<'static>,
    options: &MultilevelOptions,
    depth: usize,
    finest: Finest<S>,
    numbers: RowNumbers,
) -> Result<(Level<S>, Option<Next>)> {
    let space = beside.among(terms.rows())?;
    let halo = terms.halo.clone().unwrap_or_default();
    let terms = space.place(&terms)?;
    let order = terms.block() * terms.stages();
    let analysis = profile::begin_inside(SetupPart::Analysis);
    let all = Runs::new(space.comm(), terms.block_rows())?.all() * order;
    // A system that is small enough for a direct solve is gathered without coarsening.
    let how = (all > options.coarsest).then_some(&options.coarsening);
    let fine = Fine { terms: &terms, halo: &halo, depth, numbers, near: finest.near.as_ref() };
    let made = match depth + 1 < options.levels {
        true => Share::new(&space, &fine, how)?,
        false => None,
    };
    drop(analysis);
    let (mut next, mut transfer) = (None, None);
    if let Some((mut share, p, near)) = made {
        let factors = profile::begin_inside(SetupPart::Factors);
        let mut coarse = share.galerkin(&space, &terms)?;
        filter(&space, &mut coarse, &options.coarsening);
        let orders = [order, coarse.block() * coarse.stages()];
        let whole = share.coarse.all() * orders[1] <= options.gather;
        next = Some(match whole {
            true => {
                let near = near.map(|near| near.gathered(space.comm(), &space.host_threads())).transpose()?;
                Next::Whole(share.whole(&space, &coarse)?, near)
            }
            false => Next::Shared(coarse, OwnRows::Run(share.coarse.own()), near),
        });
        drop(factors);
        let _product = profile::begin_inside(SetupPart::Product);
        let matrices = Transfer {
            prolongation: p.clone(),
            restriction: share.restriction().clone(),
            coarse: share.marks().to_vec(),
        };
        let joint = Joint::new(&space, share, &p, orders, options.precision, whole)?;
        transfer = Some(Transfers::joint(&space, matrices, &terms, options.precision, joint)?);
    }
    let level = Level::of(space, terms, options, depth, finest, transfer, None)?;
    level.space.prepare_fused(level.operator()?.borrow().product())?;
    Ok((level, next))
}
