//! P, R and R A P between a level that ranks share and the next level. Each rank has its own rows of them.
//!
//! If coarsening ignores couplings between ranks ([`Border`]), own rows of P have only own columns. Then R r
//! and R A P need no sums over ranks.
//!
//! Otherwise let T be the coarse nodes from which own nodes and ghosts interpolate, and to which own nodes
//! restrict: own coarse nodes, then those of other ranks by global number. The columns of R of own nodes,
//! which are Pᵀ of own rows or come from local solves (`air.rs`), give a sum for each node of T. A matrix S
//! of zeros and ones adds the contributions of other ranks to own coarse nodes: b = S R r for a residual r,
//! and A_c = S (R A P). In R A P, P has own rows and the rows of ghosts.

use super::super::host::parallel::Rows;
use super::super::{
    Border, Coarsen, CoarsenKind, Coarsening, NearNull, NearNullTransfer, Nodal, OwnProlongation, STALLED,
    Transfer,
};
use super::air::mirrored;
use super::fetch::{Places, by_host};
use super::neighbourhood::Neighbourhood;
use super::runs::Runs;
use super::{local_near_null_transfer, local_transfer, unchanged};
use crate::comm::{Communicator, agree, largest};
use crate::matrix::Bsr;
use crate::matrix::storage::Storage;
use crate::operator::Terms;
use crate::partition::{Halo, RowNumbers};
use crate::{Error, Result};
use rayon::prelude::*;
use std::borrow::Cow;
use std::sync::Arc;

/// Number of ghosts above which `Border::Auto` counts a border as long. The exchange of several layers of
/// rows would then take too much time.
const LONG_BORDER: usize = 1_000;
/// Number of own nodes per ghost from which on `Border::Auto` counts the share of nodes at borders as small.
const FEW_GHOSTS: usize = 8;

/// Data for computing R A P of a level repeatedly.
pub(super) struct Share {
    /// P of own rows and of the rows of ghosts, and R with the columns of own nodes. With `nodal`, P has only
    /// own rows.
    both: Transfer,
    /// P by nodes, with the rows of ghosts, if it was built from near-null vectors.
    nodal: Option<Box<dyn Nodal>>,
    /// Sums over ranks; `None` if own rows of P have only own columns.
    pub sums: Option<Sums>,
    /// The halo of the coarse nodes of T.
    pub down: Arc<Halo>,
    ghosts: Vec<u64>,
    pub coarse: Runs,
    /// Ghosts of the coarse level, and its halo.
    next: Option<(Vec<u64>, Arc<Halo>)>,
}

/// Data to add the contributions of other ranks to own coarse nodes.
pub(super) struct Sums {
    /// The matrix S.
    pub matrix: Bsr,
    /// The halo that sends contributions for coarse nodes to their owners.
    pub up: Arc<Halo>,
}

/// P on a rank, before it has the rows of ghosts.
enum Made {
    /// Own rows, which have only own columns, and R.
    Local(Transfer),
    /// The same from near-null vectors, before it is smoothed, and the couplings.
    Nodal(NearNullTransfer, Bsr),
    /// Own rows, with own columns followed by columns of other ranks.
    Global(OwnProlongation),
}

/// R of own nodes.
enum Split {
    /// R, whose rows are own coarse nodes.
    Local(Bsr),
    /// The columns of R, or none if R is Pᵀ, and the marks of coarse points.
    Global { columns_of_r: Option<Bsr>, marks: Vec<bool> },
}

impl Sums {
    fn new(down: &Halo) -> Self {
        Self { matrix: sums(down), up: Arc::new(down.reversed(down.own)) }
    }
}

/// The level that is coarsened.
pub(super) struct Fine<'a> {
    pub terms: &'a Terms<'a>,
    pub halo: &'a Halo,
    pub depth: usize,
    /// Global numbers of own nodes.
    pub numbers: RowNumbers<'a>,
    pub near: Option<&'a NearNull>,
}

/// Computes own rows of P, without the rows of ghosts. Collective.
fn made<S: Coarsen>(space: &S, fine: &Fine, how: &Coarsening) -> Result<Option<Made>> {
    let Fine { terms, halo, depth, numbers, near } = *fine;
    let comm = space.comm();
    let couplings = space.couplings(terms)?;
    if let Some(near) = near {
        let a = &terms.terms[0].1;
        let made = local_near_null_transfer(space, comm, a, &couplings, near, how, depth)?;
        return Ok(made.map(|made| Made::Nodal(made, couplings)));
    }
    if how.kind.is_air() {
        if how.border == Border::Local {
            return Err(Error::Unsupported(
                "amg: coarsen=air needs couplings between ranks; leave out border=local".into(),
            ));
        }
        let (couplings, halo) = mirrored(&space.host_threads(), comm, halo, &couplings)?;
        let layers = layers(how, depth);
        let (near, widened) = Neighbourhood::grow(space, comm, &halo, numbers, &couplings, layers)?;
        return Ok(space.prolongation(&widened, how, depth, Some(&near))?.map(Made::Global));
    }
    // Pairs are matched among the nodes of one rank.
    let pairs = how.kind == CoarsenKind::Aggregation { smoothed: false };
    if pairs || is_local(comm, how.border, halo)? {
        let made = local_transfer(space, comm, &couplings, terms.block_rows(), how, depth)?;
        return Ok(made.map(Made::Local));
    }
    let (near, widened) = Neighbourhood::grow(space, comm, halo, numbers, &couplings, layers(how, depth))?;
    Ok(space.prolongation(&widened, how, depth, Some(&near))?.map(Made::Global))
}

impl Share {
    /// Computes own rows of P and prepares the products R A P; `None` if the coarser level would not be much
    /// smaller. Also returns own rows of P, and the near-null vectors of the coarser level. Collective.
    pub fn new<S: Coarsen>(
        space: &S,
        fine: &Fine,
        how: Option<&Coarsening>,
    ) -> Result<Option<(Self, Bsr, Option<NearNull>)>> {
        let (comm, halo) = (space.comm(), fine.halo);
        let n = fine.terms.block_rows();
        let made = match how {
            None => Made::Local(agree(comm, unchanged(space, n))?),
            Some(how) => match made(space, fine, how)? {
                None => return Ok(None),
                Some(made) => made,
            },
        };
        let (own, far) = match &made {
            Made::Local(made) => (made.prolongation.block_columns(), &[][..]),
            Made::Nodal(made, _) => (made.nodes(), &[][..]),
            Made::Global(made) => (made.own, &made.ghosts[..]),
        };
        let (coarse, all) = (Runs::new(comm, own)?, Runs::new(comm, n)?.all());
        if how.is_some() && coarse.all() as f64 > STALLED * all as f64 {
            return Ok(None);
        }
        let far: Vec<u64> =
            far.iter().map(|&(owner, node)| coarse.begins[owner as usize] + u64::from(node)).collect();
        let (first, made) = match made {
            Made::Nodal(made, couplings) => {
                return Self::nodal(space, fine, made, &couplings, coarse).map(Some);
            }
            Made::Local(made) => (made.prolongation, Split::Local(made.restriction)),
            Made::Global(made) => {
                let places = made.prolongation.block_columns();
                let first = space.first_rows(&made.prolongation, n, places)?;
                (first, Split::Global { columns_of_r: made.columns, marks: made.coarse })
            }
        };
        let mut places = Places::ascending(coarse.own(), coarse.others(far.par_iter().copied()));
        let below = space.fetch_rows(&first, halo, &Places::new(coarse.own(), &far), &mut places)?;
        let ghosts = places.others.into_owned();
        let columns = own + ghosts.len();
        let down = Arc::new(coarse.halo(comm, &ghosts)?);
        let (p, restriction, marks, sums, next) = match made {
            Split::Local(r) => (first, r, Vec::new(), None, Some((ghosts.clone(), down.clone()))),
            Split::Global { columns_of_r, marks } => {
                let places = coarse.places(&far, &ghosts);
                let p = space.renumbered(&first, &places, columns)?;
                let restriction = match &columns_of_r {
                    None => space.transposed(&p)?,
                    Some(of) => space.transposed(&space.renumbered(of, &places, columns)?)?,
                };
                (p, restriction, marks, Some(Sums::new(&down)), None)
            }
        };
        let prolongation = space.stack(&p, &[below], n + halo.ghosts, columns)?;
        let both = Transfer { prolongation, restriction, coarse: marks };
        Ok(Some((Self { both, nodal: None, sums, down, ghosts, coarse, next }, p, None)))
    }

    /// Smooths T over the borders of ranks, and prepares the products Pᵀ A P. Collective.
    fn nodal<S: Coarsen>(
        space: &S,
        fine: &Fine,
        made: NearNullTransfer,
        couplings: &Bsr,
        coarse: Runs,
    ) -> Result<(Self, Bsr, Option<NearNull>)> {
        let (comm, halo, a) = (space.comm(), fine.halo, &*fine.terms.terms[0].1);
        let NearNullTransfer { mut nodal, smooth, near } = made;
        let (own, size) = (coarse.count(), a.block() * near.count());
        let mut far = Vec::new();
        // All ranks damp by the smallest ω, which belongs to the largest eigenvalue.
        let rate = match smooth {
            true => agree(comm, nodal.damping(a))?,
            false => 0.0,
        };
        let rate = largest(comm, if rate > 0.0 { rate.recip() } else { 0.0 })?;
        let smooth = rate > 0.0;
        if smooth {
            let rows = agree(comm, nodal.rows_of(&halo.send))?;
            let (ghosts, below) = ghost_rows(comm, halo, &coarse, &rows, &far, size)?;
            let same: Vec<u32> = (0..own as u32).collect();
            let columns = own + ghosts.len();
            let joined = nodal.join(&same, &below, columns, columns);
            agree(comm, joined.and_then(|()| nodal.smooth(a, couplings, rate.recip())))?;
            far = ghosts;
        }
        let rows = agree(comm, nodal.rows_of(&halo.send))?;
        let (ghosts, below) = ghost_rows(comm, halo, &coarse, &rows, &far, size)?;
        let columns = own + ghosts.len();
        let used = if smooth { columns } else { own };
        let joined = nodal.join(&coarse.places(&far, &ghosts), &below, columns, used);
        let both = agree(comm, joined.and_then(|()| nodal.transfer()))?;
        let (p, down) = (both.prolongation.clone(), Arc::new(coarse.halo(comm, &ghosts)?));
        let (sums, next) = match smooth {
            true => (Some(Sums::new(&down)), None),
            false => (None, Some((ghosts.clone(), down.clone()))),
        };
        let share = Self { both, nodal: Some(nodal), sums, down, ghosts, coarse, next };
        Ok((share, p, Some(near)))
    }

    /// Returns true if P was built from near-null vectors, so that P and R act on components.
    pub fn is_nodal(&self) -> bool {
        self.nodal.is_some()
    }

    /// Returns R of own rows.
    pub fn restriction(&self) -> &Bsr {
        &self.both.restriction
    }

    /// Returns the marks of coarse points among own nodes, if R is not Pᵀ.
    pub fn marks(&self) -> &[bool] {
        &self.both.coarse
    }

    /// Computes own rows of R A P for every term. Collective.
    pub fn galerkin<S: Coarsen>(&mut self, space: &S, terms: &Terms) -> Result<Terms<'static>> {
        let comm = space.comm();
        let bare = Terms { terms: terms.terms.clone(), halo: None };
        let products = match (&self.nodal, &bare.terms[..]) {
            (Some(nodal), [(c, a)]) => {
                // A diagonal is filled when it has the contributions of all ranks.
                let made = if self.sums.is_some() { nodal.product(a)? } else { nodal.galerkin(a)? };
                Terms { terms: vec![(c.clone(), Cow::Owned(made))], halo: None }
            }
            _ => space.galerkin(&bare, &self.both)?,
        };
        let Some(sums) = &self.sums else {
            return Ok(Terms { halo: Some(self.down.clone()), ..products });
        };
        let (own, coarse) = (self.down.own as u32, &self.coarse);
        let columns = Places::new(coarse.own(), &self.ghosts);
        let known = self.next.as_ref().map_or(&self.ghosts, |(ghosts, _)| ghosts);
        let mut places = Places::ascending(coarse.own(), known.clone());
        let mut received = Vec::new();
        for (_, a) in &products.terms {
            let rows = space.fetch_rows(a, &sums.up, &columns, &mut places)?;
            received.push((rows, places.others.to_vec()));
        }
        if self.next.is_none() {
            let ghosts = places.others.into_owned();
            let halo = Arc::new(coarse.halo(comm, &ghosts)?);
            self.next = Some((ghosts, halo));
        }
        let Some((ghosts, halo)) = &self.next else { return Ok(products) };
        let columns = halo.own + halo.ghosts;
        let in_order = |a: &Bsr, numbers: &[u64]| -> Result<Bsr> {
            let place = |&number: &u64| coarse.place(ghosts, number);
            space.renumbered(a, &(0..own).chain(numbers.iter().map(place)).collect::<Vec<u32>>(), columns)
        };
        let mut terms = Vec::new();
        for ((c, a), (mut far, numbers)) in products.terms.iter().zip(received) {
            // A further term may have added ghosts.
            if numbers.len() < ghosts.len() {
                far = in_order(&far, &numbers)?;
            }
            let a = in_order(a, &self.ghosts)?;
            let rows = a.block_rows() + far.block_rows();
            let stacked = space.stack(&a, &[far], rows, columns)?;
            let mut sum = space.sums_of_rows(&sums.matrix, &stacked)?;
            self.nodal.as_ref().map_or(Ok(()), |nodal| nodal.fill_diagonal(&mut sum))?;
            terms.push((c.clone(), Cow::Owned(sum)));
        }
        Ok(Terms { terms, halo: Some(halo.clone()) })
    }

    /// Returns the whole coarse level, on every rank. Collective.
    pub fn whole<S: Coarsen>(&self, space: &S, own: &Terms) -> Result<Terms<'static>> {
        let Some((ghosts, _)) = &self.next else { return Ok(own_terms(own)) };
        let (coarse, n, (gather, halo)) = (&self.coarse, self.coarse.all(), self.gathering(space)?);
        let columns = Places::new(coarse.own(), ghosts);
        let others: Vec<u64> = (0..n as u64).filter(|number| !coarse.own().contains(number)).collect();
        let mut places = Places::ascending(coarse.own(), others);
        let ghosts = ghosts.iter().map(|&number| coarse.place(&places.others, number));
        let own_places: Vec<u32> = (0..coarse.count() as u32).chain(ghosts).collect();
        let mut terms = Vec::new();
        for (c, a) in &own.terms {
            let below = space.fetch_rows(a, &halo, &columns, &mut places)?;
            let all = space.stack(&space.renumbered(a, &own_places, n)?, &[below], n, n)?;
            // The rows of all ranks, one rank after the other.
            let numbers: Vec<u32> = (0..n as u32).map(|place| places.number(place) as u32).collect();
            let sorted = space.sums_of_rows(&gather, &space.renumbered(&all, &numbers, n)?)?;
            terms.push((c.clone(), Cow::Owned(sorted)));
        }
        Ok(Terms { terms, halo: None })
    }

    /// Returns the global numbers of the coarse nodes that are columns of P.
    pub fn numbers(&self) -> Vec<u32> {
        (0..(self.down.own + self.ghosts.len()) as u32)
            .map(|place| self.coarse.number(&self.ghosts, place) as u32)
            .collect()
    }

    /// Returns the matrix of zeros and ones that gathers the coarse level on every rank, and its halo.
    /// Collective.
    pub fn gathering<S: Coarsen>(&self, space: &S) -> Result<(Bsr, Halo)> {
        let (n, own) = (self.coarse.all(), self.coarse.own());
        let others: Vec<u64> = (0..n as u64).filter(|number| !own.contains(number)).collect();
        let halo = self.coarse.halo(space.comm(), &others)?;
        let col = (0..n as u64).map(|number| self.coarse.place(&others, number)).collect();
        Ok((ones(n, n, (0..=n).collect(), col), halo))
    }
}

/// Exchanges rows of P that were built from near-null vectors. `rows` has those of the halo's `send`; their
/// columns are own coarse nodes, followed by those with the numbers `far`. An entry has `size` numbers.
/// Returns the numbers of the coarse nodes of other ranks that are columns of P, and the rows of ghosts.
/// Collective.
fn ghost_rows(
    comm: &dyn Communicator,
    halo: &Halo,
    coarse: &Runs,
    rows: &Rows,
    far: &[u64],
    size: usize,
) -> Result<(Vec<u64>, Rows)> {
    let mut places = Places::ascending(coarse.own(), far);
    let columns = Places::new(coarse.own(), far);
    let below = by_host(comm, rows, size, halo, &columns, &mut places)?;
    Ok((places.others.into_owned(), below))
}

/// Returns true if coarsening ignores couplings between ranks. Collective.
fn is_local(comm: &dyn Communicator, border: Border, halo: &Halo) -> Result<bool> {
    // With 252³ nodes in slabs on each of two GPUs, 0.4 % of the nodes are ghosts. If coarsening ignores
    // couplings there, a solve takes 19 iterations instead of 16, and 85 ms instead of 75. But the hierarchy
    // takes 118 ms instead of 226 (bench/runs/2026-11-27-h200x2-borders).
    let long = halo.ghosts > LONG_BORDER;
    let mut wide = [f64::from(u8::from(long)), f64::from(u8::from(halo.ghosts * FEW_GHOSTS > halo.own))];
    comm.sum(&mut wide)?;
    Ok(match border {
        Border::Auto => wide[0] > 0.0 && wide[1] == 0.0,
        border => border == Border::Local,
    })
}

/// Returns the number of layers of other ranks' rows that a rank needs to compute the P of a single rank for
/// its own rows.
///
/// Multipass interpolation reaches every node in at most four passes. A fine point depends on a coarse point
/// of the first selection. From there at most two couplings lead to a final coarse point. A node on which no
/// other depends is one coupling further away. So a row of the Jacobi step uses rows of four layers.
fn layers(how: &Coarsening, depth: usize) -> usize {
    match how.kind {
        CoarsenKind::Classical if depth < how.aggressive => 4,
        CoarsenKind::Classical => 1,
        CoarsenKind::Aggregation { .. } => 2,
        CoarsenKind::Air { distance } => distance,
    }
}

/// Returns a matrix of ones.
fn ones(rows: usize, columns: usize, row_ptr: Vec<usize>, col: Vec<u32>) -> Bsr {
    let values = vec![1.0; col.len()];
    Bsr::from_storage(1, Storage::host(rows, columns, row_ptr, col, values))
}

/// Returns owned terms without a halo.
fn own_terms(terms: &Terms) -> Terms<'static> {
    let own = terms.terms.iter().map(|(c, a)| (c.clone(), Cow::Owned((**a).clone())));
    Terms { terms: own.collect(), halo: None }
}

/// Returns S, which adds the values that arrive by the reverse halo to own nodes.
fn sums(halo: &Halo) -> Bsr {
    let (own, nodes) = (halo.own, halo.own + halo.ghosts);
    let mut row_ptr = vec![0; own + 1];
    halo.send.iter().for_each(|&node| row_ptr[node as usize + 1] += 1);
    for i in 0..own {
        row_ptr[i + 1] += row_ptr[i] + 1;
    }
    let mut col = vec![0; own + halo.send.len()];
    let mut next: Vec<usize> = row_ptr[..own].to_vec();
    for (node, next) in next.iter_mut().enumerate() {
        col[*next] = node as u32;
        *next += 1;
    }
    for (k, &node) in halo.send.iter().enumerate() {
        let next = &mut next[node as usize];
        col[*next] = (nodes + k) as u32;
        *next += 1;
    }
    ones(own, nodes + halo.send.len(), row_ptr, col)
}
