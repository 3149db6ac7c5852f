//! Galerkin products on a GPU: A P, then R (A P), where each row is computed in a hash table
//! (`kernels/amg_galerkin.cu`).
//!
//! An upper bound of the columns of a row sets the size of the table that counts them, and the count sets the
//! size of the table for the row itself. Rows with tables of the same size share a launch. If the pattern is
//! known, only values are summed.

use super::super::compiler::Kernel;
use super::super::driver::{Buffer, Device};
use super::super::launch::{At, Entry, Of, kernels};
use super::super::resident::Resident;
use super::super::scan::{last, scan};
use super::super::specialisations::define;
use super::stored;
use crate::matrix::Bsr;
use crate::operator::Terms;
use crate::precond::Transfer;
use crate::{Error, Result};
use std::borrow::Cow;
use std::sync::Arc;

kernels! {
    GALERKIN in "amg_galerkin.cu", |set| kernels(super::blocks(set));
    fn amg_rows(
        count: i64, rows: At<u32>, left: Matrix, right: Matrix, diagonal: i32, known: i32, counts: At<u32>,
        to: At<i64>, to_col: At<u32>, to_val: At<f64>, wrong: At<i32>,
    );
}

kernels! {
    WIDE in "amg_galerkin_wide.cu",
        |set| Shape::of_blocks(super::blocks(set)).map(|shape| shape.wide().into()).collect();
    fn amg_wide_rows(
        count: i64, rows: At<u32>, left: Matrix, right: Matrix, diagonal: i32, known: i32, counts: At<u32>,
        to: At<i64>, to_col: At<u32>, to_val: At<f64>, wrong: At<i32>, words: i64, maps: At<u32>,
    );
}

kernels! {
    ROWS in "amg_rows.cu", |_| vec![rows_kernel(amg_bounds).into()];
    fn amg_bounds(
        rows: i64, ptr: At<i64>, col: At<u32>, right: At<i64>, diagonal: i32, columns: i64, bounds: At<u32>,
    );
    fn amg_lengths(rows: i64, ptr: At<i64>, lengths: At<u32>);
    fn amg_bin_sizes(rows: i64, counts: At<u32>, limits: Limits, total: At<i64>, sizes: At<u64>);
    fn amg_bin_rows(
        rows: i64, counts: At<u32>, limits: Limits, sizes: At<u64>, taken: At<u64>, list: At<u32>,
    );
}

/// Largest supported block size.
pub(super) const MOST_BLOCK: usize = 8;
/// Classes of rows: one for each table size, and one for longer rows.
const BINS: usize = 8;
const WHAT: &str = "a Galerkin product";

/// Rows of the right factor are short up to this mean length.
const SHORT: usize = 8;
/// Products with at most this many columns count all rows with one table size, without computing bounds.
const FEW_COLUMNS: usize = 2048;

/// Table sizes for counting columns: the largest number of columns of a row, and the number of slots of its
/// table.
const COUNTED: &[(u32, usize)] =
    &[(32, 32), (64, 64), (128, 128), (256, 256), (512, 512), (2048, 2048), (8192, 8192)];
/// The same two numbers, for tables that sum scalars.
const SUMMED: &[(u32, usize)] = &[(24, 32), (48, 64), (96, 128), (192, 256), (384, 512), (1536, 2048)];
/// The same two numbers, for tables that sum blocks.
const BLOCKS: &[(u32, usize)] = &[(96, 128), (384, 512), (1536, 2048)];

/// Constants of the kernels of a product.
#[derive(Debug, Clone, Copy)]
struct Shape {
    fill: bool,
    block: usize,
    /// True if the left factor has the blocks.
    left: bool,
}

impl Shape {
    fn tables(self) -> &'static [(u32, usize)] {
        match (self.fill, self.block) {
            (false, _) => COUNTED,
            (true, 1) => SUMMED,
            _ => BLOCKS,
        }
    }

    /// Returns the number of lanes per row where rows of the right factor have `mean` entries, and whether
    /// lanes share the products of several such rows. Sharing is faster where a row meets many short ones,
    /// and slower where it meets few.
    fn lanes(self, table: usize, mean: usize) -> (usize, bool) {
        let short = mean <= SHORT;
        if self.block > 1 && self.fill {
            return (32, short);
        }
        let wanted = match mean {
            0..=5 => 4,
            6..=10 => 8,
            11..=24 => 16,
            _ => 32,
        };
        ((table / 8).min(32).max(wanted), short && table >= 128)
    }

    fn defines(self) -> Vec<(String, String)> {
        let flag = |name, value: bool| define(name, value as u32);
        vec![flag("FILL", self.fill), define("BLOCK", self.block), flag("LEFT", self.left)]
    }

    fn kernel(self, table: usize, lanes: usize, expand: bool) -> Of<amg_rows> {
        let mut defines = self.defines();
        defines.extend([define("TABLE", table), define("GROUP", lanes), define("EXPAND", expand as u32)]);
        amg_rows.with(defines)
    }

    fn wide(self) -> Of<amg_wide_rows> {
        amg_wide_rows.with(self.defines())
    }

    /// Returns the rows per thread block, and its threads.
    fn rows(table: usize, lanes: usize) -> (usize, usize) {
        let warps = if table >= 2048 { 1 } else { 4 };
        (warps * 32 / lanes, 32 * warps)
    }

    fn all(self) -> Vec<Kernel> {
        let of = |&(_, table): &(u32, usize)| {
            let mut lanes = [1, SHORT, 10, 20, 30].map(|mean| self.lanes(table, mean)).to_vec();
            lanes.dedup();
            lanes.into_iter().map(move |(lanes, expand)| self.kernel(table, lanes, expand).into())
        };
        self.tables().iter().flat_map(of).collect()
    }

    /// Returns the kernel that counts and those that sum, for blocks of these sizes.
    fn of_blocks(blocks: Vec<usize>) -> impl Iterator<Item = Self> {
        let fills = blocks.into_iter().flat_map(|block| [(block, false), (block, true)]);
        let fills = fills.filter(|&(block, left)| block > 1 || !left);
        let count = Self { fill: false, block: 1, left: false };
        std::iter::once(count).chain(fills.map(|(block, left)| Self { fill: true, block, left }))
    }
}

fn rows_kernel<K: Entry>(entry: K) -> Of<K> {
    entry.with(vec![define("BINS", BINS)])
}

/// Returns the kernels of products with blocks of these sizes, except for the widest rows.
pub(super) fn kernels(blocks: Vec<usize>) -> Vec<Kernel> {
    Shape::of_blocks(blocks).flat_map(Shape::all).collect()
}

/// A matrix as kernels take it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(in crate::device::cuda) struct Matrix {
    ptr: u64,
    col: u64,
    values: u64,
}

impl Matrix {
    /// Stands for no matrix.
    pub(in crate::device::cuda) const ABSENT: Self = Self { ptr: 0, col: 0, values: 0 };
}

impl From<&Resident> for Matrix {
    fn from(a: &Resident) -> Self {
        Self { ptr: a.row_ptr.pointer(), col: a.col.pointer(), values: a.values.pointer() }
    }
}

/// Largest number of columns of the rows in each bin.
#[repr(C)]
#[derive(Clone, Copy)]
pub(in crate::device::cuda) struct Limits([u32; BINS]);

/// Rows sorted by the size of their table: the numbers of rows, one bin after another.
struct Bins {
    sizes: [usize; BINS],
    /// `None` if all rows are in one bin.
    rows: Option<Buffer<u32>>,
}

/// The product of two matrices while it is computed.
struct Product<'a> {
    device: &'a Arc<Device>,
    left: &'a Resident,
    right: &'a Resident,
    /// Number of columns of the right factor.
    columns: usize,
    block: usize,
    /// True if the left factor has the blocks, otherwise the right one has.
    blocks_left: bool,
    /// True if diagonal entries are always stored.
    diagonal: bool,
    wrong: &'a Buffer<i32>,
}

impl Product<'_> {
    fn rows(&self) -> usize {
        self.left.row_ptr.len() - 1
    }

    /// Sorts rows into bins by `counts`; also reads the number at `total`.
    fn bins(&self, counts: &Buffer<u32>, tables: &[(u32, usize)], total: u64) -> Result<(Bins, usize)> {
        let (device, rows) = (self.device, self.rows());
        let mut limits = Limits([u32::MAX; BINS]);
        tables.iter().zip(&mut limits.0).for_each(|((most, _), to)| *to = *most);
        let sizes = device.zeros::<u64>(BINS + 1, WHAT)?;
        let function = device.function(&rows_kernel(amg_bin_sizes))?;
        let grid = rows.div_ceil(256).clamp(1, 8 * device.multiprocessors());
        let n = rows as i64;
        function.on(device, grid, 256).run(n, counts, limits, total, &sizes)?;
        let mut found = [0; BINS + 1];
        device.read(&sizes, 0, &mut found)?;
        let mut bins = Bins { sizes: std::array::from_fn(|b| found[b] as usize), rows: None };
        if rows > 0 && !bins.sizes.contains(&rows) {
            let (taken, list) = (device.zeros::<u64>(BINS, WHAT)?, device.allocate::<u32>(rows, WHAT)?);
            let function = device.function(&rows_kernel(amg_bin_rows))?;
            function.on(device, rows.div_ceil(256), 256).run(n, counts, limits, &sizes, &taken, &list)?;
            bins.rows = Some(list);
        }
        Ok((bins, found[BINS] as usize))
    }

    /// Counts the columns of each row, or writes the rows to `to`; with `known`, `to` already has the
    /// columns.
    fn launch(
        &self,
        shape: Shape,
        bins: &Bins,
        counts: u64,
        to: Option<&Resident>,
        known: bool,
    ) -> Result<()> {
        let device = self.device;
        let (left, right) = (Matrix::from(self.left), Matrix::from(self.right));
        let Matrix { ptr, col, values } = to.map_or(Matrix::ABSENT, Matrix::from);
        let mean = self.right.col.len() / (self.right.row_ptr.len() - 1).max(1);
        let (diagonal, known) = (self.diagonal as i32, known as i32);
        let mut begin = 0;
        for (bin, &count) in bins.sizes.iter().enumerate() {
            let rows = bins.rows.as_ref().map_or(0, |rows| rows.at(begin));
            begin += count;
            if count == 0 {
                continue;
            }
            let n = count as i64;
            if let Some(&(_, table)) = shape.tables().get(bin) {
                let (lanes, expand) = shape.lanes(table, mean);
                let (of_a_block, threads) = Shape::rows(table, lanes);
                let function = device.function(&shape.kernel(table, lanes, expand))?;
                let grid = count.div_ceil(of_a_block);
                function
                    .on(device, grid, threads)
                    .run(n, rows, left, right, diagonal, known, counts, ptr, col, values, self.wrong)?;
                continue;
            }
            let words = self.columns.div_ceil(32);
            let grid = count.min(2 * device.multiprocessors());
            let maps = device.zeros::<u32>(grid * words, WHAT)?;
            let function = device.function(&shape.wide())?;
            function.on(device, grid, 256).run(
                n,
                rows,
                left,
                right,
                diagonal,
                known,
                counts,
                ptr,
                col,
                values,
                self.wrong,
                words as i64,
                &maps,
            )?;
        }
        Ok(())
    }

    fn shape(&self, fill: bool) -> Shape {
        match fill {
            true => Shape { fill, block: self.block, left: self.block > 1 && self.blocks_left },
            false => Shape { fill, block: 1, left: false },
        }
    }

    /// Computes an upper bound of the columns of each row.
    fn bound(&self, counts: &Buffer<u32>) -> Result<()> {
        let (device, rows) = (self.device, self.rows());
        if rows == 0 {
            return Ok(());
        }
        let function = device.function(&rows_kernel(amg_bounds))?;
        let diagonal = self.diagonal as i32;
        let (n, columns) = (rows as i64, self.columns as i64);
        let grid = (4 * rows).div_ceil(256);
        function.on(device, grid, 256).run(
            n,
            &self.left.row_ptr,
            &self.left.col,
            &self.right.row_ptr,
            diagonal,
            columns,
            counts,
        )
    }

    /// Computes pattern and values.
    fn make(&self) -> Result<Resident> {
        let (device, rows) = (self.device, self.rows());
        let counts = device.allocate::<u32>(rows, WHAT)?;
        let shape = self.shape(false);
        let bins = if self.columns <= FEW_COLUMNS {
            let all = |(most, _): &(u32, usize)| *most as usize == FEW_COLUMNS;
            let bin = shape.tables().iter().position(all).unwrap_or(BINS - 1);
            Bins { sizes: std::array::from_fn(|b| if b == bin { rows } else { 0 }), rows: None }
        } else {
            self.bound(&counts)?;
            self.bins(&counts, shape.tables(), 0)?.0
        };
        self.launch(shape, &bins, counts.pointer(), None, false)?;
        let row_ptr = scan(device, &counts)?;
        let shape = self.shape(true);
        let (bins, entries) = self.bins(&counts, shape.tables(), row_ptr.at(rows))?;
        let col = device.allocate::<u32>(entries, WHAT)?;
        let values = device.allocate::<f64>(entries * self.block * self.block, WHAT)?;
        let product = Resident::new(row_ptr, col, values);
        self.launch(shape, &bins, 0, Some(&product), false)?;
        Ok(product)
    }

    /// Computes values on the pattern of `known`.
    fn values(&self, known: &Resident) -> Result<Resident> {
        let (device, rows) = (self.device, self.rows());
        let counts = device.allocate::<u32>(rows, WHAT)?;
        if rows > 0 {
            let function = device.function(&rows_kernel(amg_lengths))?;
            let n = rows as i64;
            function.on(device, rows.div_ceil(256), 256).run(n, &known.row_ptr, &counts)?;
        }
        let shape = self.shape(true);
        let (bins, _) = self.bins(&counts, shape.tables(), 0)?;
        let square = self.block * self.block;
        let product = known.with_values(device.allocate::<f64>(known.col.len() * square, WHAT)?);
        self.launch(shape, &bins, 0, Some(&product), true)?;
        Ok(product)
    }
}

/// Returns the product of two matrices of scalars, of which the right one has `columns` columns. It stores
/// the diagonal if `diagonal`. With a known pattern only values are computed.
pub(in crate::device::cuda) fn product(
    device: &Arc<Device>,
    [left, right]: [&Resident; 2],
    columns: usize,
    diagonal: bool,
    known: Option<&Resident>,
) -> Result<Resident> {
    let wrong = device.zeros(1, WHAT)?;
    let (block, blocks_left) = (1, false);
    let product = Product { device, left, right, columns, block, blocks_left, diagonal, wrong: &wrong };
    let Some(known) = known else { return product.make() };
    let values = product.values(known)?;
    match last(device, &wrong)? {
        0 => Ok(values),
        _ => Err(Error::Internal("the pattern of a product does not have all of its entries".into())),
    }
}

/// R A P of one matrix after another.
struct Triple<'a> {
    device: &'a Arc<Device>,
    restriction: Arc<Resident>,
    prolongation: Arc<Resident>,
    /// Rows of R and columns of P, which differ between ranks.
    rows: usize,
    columns: usize,
    wrong: Buffer<i32>,
}

impl Triple<'_> {
    /// Returns A P and R A P, on known patterns where those are given.
    fn multiply(&self, a: &Resident, block: usize, known: [Option<&Resident>; 2]) -> Result<[Resident; 2]> {
        let (device, columns, wrong) = (self.device, self.columns, &self.wrong);
        let make = |product: Product, known: Option<&Resident>| match known {
            Some(known) => product.values(known),
            None => product.make(),
        };
        let first = Product {
            device,
            left: a,
            right: &self.prolongation,
            columns,
            block,
            blocks_left: true,
            diagonal: false,
            wrong,
        };
        let ap = make(first, known[0])?;
        let second = Product {
            device,
            left: &self.restriction,
            right: &ap,
            columns,
            block,
            blocks_left: false,
            diagonal: true,
            wrong,
        };
        let rap = make(second, known[1])?;
        Ok([ap, rap])
    }
}

impl super::super::Cuda {
    fn triple(&self, transfer: &Transfer) -> Result<Triple<'_>> {
        Ok(Triple {
            device: self.device(),
            restriction: self.resident(&transfer.restriction)?,
            prolongation: self.resident(&transfer.prolongation)?,
            rows: transfer.restriction.block_rows(),
            columns: transfer.prolongation.block_columns(),
            wrong: self.device().zeros(1, WHAT)?,
        })
    }

    /// Returns S A with the diagonal stored, for a matrix S of scalars.
    pub(super) fn product_of(&self, s: &Bsr, a: &Bsr) -> Result<Bsr> {
        let (device, left, right) = (self.device(), self.resident(s)?, self.resident(a)?);
        let (columns, block, wrong) = (a.block_columns(), a.block(), device.zeros(1, WHAT)?);
        let product = Product {
            device,
            left: &left,
            right: &right,
            columns,
            block,
            blocks_left: false,
            diagonal: true,
            wrong: &wrong,
        };
        Ok(stored(block, s.block_rows(), columns, product.make()?))
    }

    /// Returns R A P of each term; terms of one pattern give matrices of one pattern.
    pub(super) fn galerkin_terms(&self, terms: &Terms, transfer: &Transfer) -> Result<Terms<'static>> {
        let (triple, shared) = (self.triple(transfer)?, terms.shared_pattern());
        let mut first: Option<([Resident; 2], Bsr)> = None;
        let mut coarse = Vec::with_capacity(terms.terms.len());
        for (c, a) in &terms.terms {
            let known = first.as_ref().filter(|_| shared);
            let patterns = known.map_or([None; 2], |([ap, rap], _)| [Some(ap), Some(rap)]);
            let [ap, rap] = triple.multiply(&*self.resident(a)?, a.block(), patterns)?;
            let kept = rap.clone();
            let mut product = stored(a.block(), triple.rows, triple.columns, rap);
            if let Some((_, first)) = known {
                product = product.with_storage(product.storage().sharing_pattern(first.storage()));
            }
            if first.is_none() {
                first = Some(([ap, kept], product.clone()));
            }
            coarse.push((c.clone(), Cow::Owned(product)));
        }
        Ok(Terms { terms: coarse, halo: None })
    }

    /// Computes new values for the result of [`galerkin_terms`](Self::galerkin_terms).
    pub(super) fn galerkin_values(
        &self,
        terms: &Terms,
        transfer: &Transfer,
        coarse: &mut Terms<'static>,
    ) -> Result<()> {
        let (triple, shared) = (self.triple(transfer)?, terms.shared_pattern());
        let mut first: Option<Resident> = None;
        for ((new, a), (c, product)) in terms.terms.iter().zip(&mut coarse.terms) {
            let known = self.resident(product)?;
            let patterns = [first.as_ref().filter(|_| shared), Some(&*known)];
            let [ap, rap] = triple.multiply(&*self.resident(a)?, a.block(), patterns)?;
            first.get_or_insert(ap);
            c.clone_from(new);
            let storage = product.storage().with_device_values(Arc::new(rap));
            *product = Cow::Owned(product.with_storage(storage));
        }
        let mut wrong = [0];
        self.device().read(&triple.wrong, 0, &mut wrong)?;
        if wrong[0] != 0 {
            return Err(Error::invalid(format!(
                "amg: the pattern of a coarse level with {} rows does not match R A P; set up again after \
                 the pattern of A changes",
                triple.rows
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::launch::Set;
    use super::*;

    #[test]
    fn every_kernel_that_a_product_launches_is_listed() {
        let files = [&GALERKIN, &WIDE].into_iter();
        let listed: Vec<Kernel> = files.flat_map(|file| (file.specialisations)(Set::All)).collect();
        for block in 1..=MOST_BLOCK {
            for (fill, left) in [(false, false), (true, false), (true, block > 1)] {
                let shape = Shape { fill, block: if fill { block } else { 1 }, left };
                assert!(listed.contains(&shape.wide()), "{shape:?}: long rows");
                for &(most, table) in shape.tables() {
                    assert!(most as usize <= table, "{shape:?}: {most} columns in {table} slots");
                    for mean in 0..100 {
                        let (lanes, expand) = shape.lanes(table, mean);
                        let kernel = shape.kernel(table, lanes, expand);
                        assert!(listed.contains(&kernel), "{shape:?}, table {table}, mean {mean}");
                    }
                }
            }
        }
    }
}
