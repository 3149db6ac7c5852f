//! Coarse levels on a GPU, with the results of `precond/multilevel/host`. Work that the kernels do not
//! support is done by the host, to which the matrices are copied automatically.
//!
//! The bits are those of the host. Only maxima, comparisons and counts decide, sums have a fixed order, and
//! multiplications are not fused with additions.

mod aggregate;
mod apply;
mod boundary;
mod couplings;
mod fetch;
mod galerkin;
mod interpolate;
mod multipass;
mod narrow;
mod near_null;
mod rows;
mod split;
mod transpose;

use super::Cuda;
use super::compiler::Kernel;
use super::driver::{Buffer, Device};
use super::launch::{File, Set};
use super::product::CudaProduct;
use super::resident::Resident;
use crate::halo::Halo;
use crate::matrix::Bsr;
use crate::matrix::storage::Storage;
use crate::operator::{Format, PointBlock, TermValues, Terms};
use crate::precond::multilevel::ranks;
use crate::precond::multilevel::{
    NearNull, NearNullTransfer, Neighbourhood, OwnProlongation, Places, RowsOfMatrix, host,
};
use crate::precond::{
    BlockDiagonal, Coarsen, CoarsenKind, Coarsening, Fused, NarrowCycle, NarrowLevel, Passes, Transfer,
};
use crate::space::{Precision, PrecondPrecision};
use crate::threads::Pool;
use crate::{Error, Result};
pub(super) use aggregate::{AGGREGATE, SMOOTH};
pub(super) use apply::TRANSFER;
pub(super) use boundary::BOUNDARY;
use boundary::Boundary;
pub(super) use couplings::COUPLINGS;
pub(super) use fetch::FETCH;
use galerkin::MOST_BLOCK;
pub(super) use galerkin::{GALERKIN, ROWS, WIDE};
pub(super) use galerkin::{Matrix, product};
pub(super) use interpolate::INTERPOLATE;
pub(super) use multipass::MULTIPASS;
pub(super) use narrow::{
    BF16, Diagonals, NARROW, NARROW_BLOCK, narrow_again, narrowed, round_diagonals, round_rows,
};
pub(crate) use narrow::{likely as likely_in_f32, likely_in_bf16};
pub(crate) use near_null::likely as likely_near_null;
pub(super) use near_null::{BLOCK_PRODUCTS, NEAR_NULL, transposed_positions};
pub(super) use split::{PATHS, SPLIT};
use std::sync::Arc;
pub(super) use transpose::{TRANSPOSE, sorted};

/// Block sizes that are compiled ahead.
fn blocks(set: Set) -> Vec<usize> {
    set.choose(1..=MOST_BLOCK, [1, 3, 4])
}

/// Returns the kernels that a hierarchy will use for nodes with blocks of this size. With `scalar`, the
/// products are those of scalars.
pub(crate) fn likely(block: usize, scalar: bool, kind: CoarsenKind) -> Vec<Kernel> {
    let all = |file: &File| (file.specialisations)(Set::Common);
    let mut kernels = products_of(block);
    kernels.extend(couplings::kernels(block, scalar));
    kernels.extend(all(&TRANSFER));
    match kind {
        CoarsenKind::Classical => kernels.extend(classical()),
        CoarsenKind::Aggregation { smoothed: true } => {
            kernels.extend([&AGGREGATE, &SMOOTH].into_iter().flat_map(all))
        }
        CoarsenKind::Aggregation { smoothed: false } | CoarsenKind::Air { .. } => {}
    }
    kernels
}

/// Returns the kernels of classical coarsening.
pub(crate) fn classical() -> Vec<Kernel> {
    let all = |file: &File| (file.specialisations)(Set::Common);
    [&SPLIT, &PATHS, &INTERPOLATE, &MULTIPASS].into_iter().flat_map(all).collect()
}

/// Returns the kernels of products and transposes with blocks of this size.
fn products_of(block: usize) -> Vec<Kernel> {
    // Rows of a product that exceed every table are rare.
    let mut kernels = galerkin::kernels(vec![block]);
    let files = [&ROWS, &TRANSPOSE, &super::scan::SCAN].into_iter();
    kernels.extend(files.flat_map(|file| (file.specialisations)(Set::Common)));
    kernels
}

/// Returns the kernels of products and transposes of scalar matrices.
pub(in crate::device::cuda) fn products() -> Vec<Kernel> {
    products_of(1)
}

/// Wraps a matrix whose arrays are on the device alone.
fn stored(block: usize, rows: usize, columns: usize, arrays: Resident) -> Bsr {
    let entries = arrays.col.len();
    Bsr::from_storage(block, Storage::device(rows, columns, entries, Arc::new(arrays)))
}

/// More rounds than any graph needs: each round decides at least the heaviest node, and with random weights
/// some twenty rounds decide all.
const MOST_ROUNDS: usize = 1 << 16;

/// Fails after [`MOST_ROUNDS`] rounds, in which a working GPU decides every node.
fn check_rounds(rounds: usize, what: &str) -> Result<()> {
    match rounds > MOST_ROUNDS {
        true => Err(Error::Internal(format!("{what} did not finish within {rounds} rounds on the GPU"))),
        false => Ok(()),
    }
}

/// True if the kernels support such terms.
fn fits(terms: &Terms) -> bool {
    (1..=2).contains(&terms.terms.len()) && (1..=MOST_BLOCK).contains(&terms.block())
}

/// Result of the kernels for P.
enum Made {
    /// P, and for each node the number of coarse points before it.
    There(Bsr, Buffer<i64>),
    /// No node is a coarse point, or every node is one.
    Nothing,
    /// The kernels do not support the matrix.
    ForHost,
}

impl Device {
    /// Returns the host threads: as many as the rayon pool of this device's worker has, kept while the device
    /// is open.
    fn host_threads(&self) -> Arc<Pool> {
        self.host.get_or_init(|| Arc::new(Pool::like_tasks())).clone()
    }
}

impl Cuda {
    /// Computes P of level `level`. With a boundary, `couplings` has nodes of several ranks: P then covers
    /// them all, and is exact for own nodes. Collective in that case.
    fn weights(
        &self,
        couplings: &Bsr,
        how: &Coarsening,
        level: usize,
        boundary: Option<&Boundary>,
    ) -> Result<Made> {
        // The kernels use one bit of a column number. With other ranks, each rank checks this itself before
        // they agree.
        if boundary.is_none() && couplings.block_rows() > i32::MAX as usize {
            return Ok(Made::ForHost);
        }
        let own = boundary.map_or(couplings.block_rows(), |boundary| boundary.own);
        let some = |stay: usize| -> Result<bool> {
            let Some(boundary) = boundary else { return Ok((1..own).contains(&stay)) };
            let ((stay, ()), (all, ())) =
                (boundary.sum(Ok((stay as u32, ())))?, boundary.sum(Ok((own as u32, ())))?);
            Ok((1..all).contains(&stay))
        };
        let (made, number) = match how.kind {
            CoarsenKind::Classical => {
                let aggressive = level < how.aggressive;
                let split = split::split(self, couplings, how.strength, level, aggressive, boundary)?;
                let stay = if boundary.is_some() { split.own(own)? } else { split.coarse };
                if !some(stay)? {
                    return Ok(Made::Nothing);
                }
                let made = match aggressive {
                    true => multipass::multipass(self, couplings, &split, how.truncate),
                    false => {
                        let numbers = boundary.map_or(0, |boundary| boundary.numbers.pointer());
                        interpolate::extended_i(self, couplings, &split, how.truncate, numbers).map(Some)
                    }
                };
                (made, split.number)
            }
            CoarsenKind::Aggregation { smoothed: true } => {
                let theta = host::aggregate::threshold(how.strength, level);
                let aggregates = aggregate::by_independent_set(self, couplings, theta, level, boundary)?;
                if !some(aggregates.own)? {
                    return Ok(Made::Nothing);
                }
                (aggregate::smoothed(self, couplings, &aggregates), aggregates.number)
            }
            CoarsenKind::Aggregation { smoothed: false } | CoarsenKind::Air { .. } => {
                return Ok(Made::ForHost);
            }
        };
        let made = match boundary {
            // If a row fits no table on one rank, the hosts of all ranks compute the level.
            Some(boundary) => {
                let (without, made) = boundary.sum(made.map(|made| (u32::from(made.is_none()), made)))?;
                made.filter(|_| without == 0)
            }
            None => made?,
        };
        Ok(made.map_or(Made::ForHost, |made| Made::There(made, number)))
    }

    /// Returns the transpose of a matrix of scalars.
    fn transpose_of(&self, a: &Bsr) -> Result<Bsr> {
        let turned = transpose::transpose(self.device(), &*self.resident(a)?, a.block_columns())?;
        Ok(stored(1, a.block_columns(), a.block_rows(), turned))
    }
}

impl Coarsen for Cuda {
    fn beside(&self, len: usize) -> Result<Self> {
        Self::new(self.device(), len)
    }
    fn among(&self, len: usize) -> Result<Self> {
        Self::distributed(self.fabric(), len)
    }
    fn host_threads(&self) -> Arc<Pool> {
        self.device().host_threads()
    }
    fn prolongation(
        &self,
        couplings: &Bsr,
        how: &Coarsening,
        level: usize,
        near: Option<&Neighbourhood>,
    ) -> Result<Option<OwnProlongation>> {
        let boundary = near.map(|near| Boundary::new(self, near)).transpose()?;
        match self.weights(couplings, how, level, boundary.as_ref())? {
            Made::Nothing => Ok(None),
            Made::ForHost => {
                let made = host::prolongation(&self.host_threads(), couplings, how, level, near)?;
                let uploaded = |mut made: OwnProlongation| -> Result<OwnProlongation> {
                    let p = &made.prolongation;
                    made.prolongation = p.with_storage(p.storage().with_device(self.resident(p)?));
                    Ok(made)
                };
                made.map(uploaded).transpose()
            }
            Made::There(p, number) => {
                let (own, ghosts) = match &boundary {
                    None => (p.block_columns(), Vec::new()),
                    Some(boundary) => boundary.coarse(&number)?,
                };
                Ok(Some(OwnProlongation::new(p, own, ghosts)))
            }
        }
    }
    fn own_couplings(&self, couplings: &Bsr, own: usize) -> Result<Bsr> {
        self.own_rows(couplings, own)
    }
    fn transposed(&self, a: &Bsr) -> Result<Bsr> {
        self.transpose_of(a)
    }
    fn rows_of(&self, a: &Bsr, nodes: &[u32]) -> Result<RowsOfMatrix> {
        self.packed_rows(a, nodes)
    }
    fn with_rows(&self, a: &Bsr, below: &RowsOfMatrix, columns: usize) -> Result<Bsr> {
        self.stacked(a, below, columns)
    }
    fn fetch_rows(&self, a: &Bsr, halo: &Halo, columns: &Places, places: &mut Places) -> Result<Bsr> {
        self.fetched(a, halo, columns, places)
    }
    fn stack(&self, a: &Bsr, below: &[Bsr], rows: usize, columns: usize) -> Result<Bsr> {
        self.stacked_rows(a, below, rows, columns)
    }
    fn first_rows(&self, a: &Bsr, rows: usize, columns: usize) -> Result<Bsr> {
        self.beginning(a, rows, columns)
    }
    fn renumbered(&self, a: &Bsr, numbers: &[u32], columns: usize) -> Result<Bsr> {
        self.with_columns(a, numbers, columns)
    }
    fn sums_of_rows(&self, s: &Bsr, a: &Bsr) -> Result<Bsr> {
        match (1..=MOST_BLOCK).contains(&a.block()) {
            true => self.product_of(s, a),
            false => Ok(ranks::rows::sums_of_rows(s, a)),
        }
    }
    fn couplings(&self, terms: &Terms) -> Result<Bsr> {
        match (&terms.terms[..], terms.block(), terms.stages()) {
            ([(c, a)], 1, 1) if c[(0, 0)] == 1.0 => Ok(Bsr::clone(a)),
            ([(c, a)], 1, 1) => self.scaled_term(a, c[(0, 0)]),
            _ if fits(terms) => self.block_couplings(terms),
            _ => host::galerkin::couplings(&self.host_threads(), terms),
        }
    }
    fn galerkin(&self, terms: &Terms, transfer: &Transfer) -> Result<Terms<'static>> {
        match fits(terms) {
            true => self.galerkin_terms(terms, transfer),
            false => host::galerkin::terms(&self.host_threads(), terms, transfer),
        }
    }
    fn update_galerkin(&self, terms: &Terms, transfer: &Transfer, coarse: &mut Terms<'static>) -> Result<()> {
        let alike = terms.terms.len() == coarse.terms.len()
            && terms.block() == coarse.block()
            && coarse.block_rows() == transfer.restriction.block_rows();
        match fits(terms) && alike {
            true => self.galerkin_values(terms, transfer, coarse),
            false => host::galerkin::update_terms(&self.host_threads(), terms, transfer, coarse),
        }
    }
    fn near_null_transfer(
        &self,
        a: &Bsr,
        couplings: &Bsr,
        near: &NearNull,
        how: &Coarsening,
        level: usize,
        most: usize,
    ) -> Result<Option<NearNullTransfer>> {
        self.transfer_of_near_null(a, couplings, near, how, level, most)
    }
    fn interpolates(&self, _order: usize) -> bool {
        true
    }
    fn level_operator(&self, terms: &Terms, precision: Precision) -> Result<PointBlock<Self>> {
        match terms.halo {
            None => PointBlock::of(terms, CudaProduct::of_level(self, terms, precision)?, precision),
            Some(_) => PointBlock::with_format(self, terms, precision, Format::Csr),
        }
    }
    fn computes_in_f32(&self) -> bool {
        true
    }
    fn narrow_cycle(
        &self,
        levels: &[NarrowLevel<Self>],
        stored: PrecondPrecision,
    ) -> Result<Option<Box<dyn NarrowCycle<Self>>>> {
        Ok(narrow::Narrow::new(self, levels, stored)?.map(|made| Box::new(made) as _))
    }
    fn fuses(&self, product: &CudaProduct) -> bool {
        product.smooths()
    }
    fn fuses_from_zero(&self, product: &CudaProduct) -> bool {
        product.smooths_from_zero()
    }
    fn prepare_fused(&self, product: &CudaProduct) -> Result<()> {
        product.prepare_to_smooth(self.device())
    }
    fn fused(&self, product: &CudaProduct, x: &Buffer<f64>, pass: Fused<Self>) -> Result<()> {
        self.smooth(product, x, pass)
    }
    fn fused_together(&self, product: &CudaProduct, passes: Passes<'_, Self>) -> Result<()> {
        self.smooth_together(product, passes)
    }
    fn interpolate(
        &self,
        p: &Bsr,
        order: usize,
        x: &Buffer<f64>,
        y: &mut Buffer<f64>,
        add: bool,
    ) -> Result<()> {
        self.transfer_vector(p, order, x, y, add)
    }
    fn l1_blocks(&self, terms: &Terms, precision: Precision) -> Result<Self::Blocks> {
        if fits(terms)
            && let Some(blocks) = self.invert_diagonal(&Terms::bsr(&self.l1_diagonal(terms)?), precision)?
        {
            return Ok(blocks);
        }
        let blocks = host::galerkin::inverse_l1_blocks(&self.host_threads(), terms)?;
        self.prepare_blocks(terms.block() * terms.stages(), (&blocks[..]).into(), precision)
    }
    fn update_l1_blocks(&self, terms: &Terms, blocks: &mut Self::Blocks) -> Result<()> {
        if fits(terms) {
            let diagonal = self.l1_diagonal(terms)?;
            if self.invert_new_diagonal(blocks, &TermValues::from(&Terms::bsr(&diagonal)))? {
                return Ok(());
            }
        }
        let new = host::galerkin::inverse_l1_blocks(&self.host_threads(), terms)?;
        self.update_blocks(blocks, (&new[..]).into())
    }
}
