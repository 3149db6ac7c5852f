//! Rows of a matrix on a GPU that are sent to other ranks or come from them. Only these rows pass through the
//! host.

use super::super::Cuda;
use super::super::launch::Entry;
use super::super::resident::Resident;
use super::super::scan;
use super::boundary::{
    boundary_lengths, boundary_own_lengths, boundary_own_rows, boundary_renumber, boundary_rows,
};
use super::split::grid;
use super::stored;
use crate::matrix::Bsr;
use crate::precond::multilevel::RowsOfMatrix as Rows;
use crate::{Error, Result};

const WHAT: &str = "rows of a matrix";

impl Cuda {
    /// Returns these rows of a matrix, in the order given.
    pub(super) fn packed_rows(&self, a: &Bsr, nodes: &[u32]) -> Result<Rows> {
        self.packed(&*self.resident(a)?, a.block() * a.block(), nodes)
    }

    /// Returns these rows of a matrix whose entries have `size` numbers each, in the order given.
    pub(super) fn packed(&self, on: &Resident, size: usize, nodes: &[u32]) -> Result<Rows> {
        let (device, count, rows) = (self.device(), nodes.len(), on.row_ptr.len() - 1);
        if let Some(node) = nodes.iter().find(|&&node| node as usize >= rows) {
            return Err(Error::Internal(format!(
                "block row {node} was requested of a matrix with {rows} block rows"
            )));
        }
        let nodes = device.upload(nodes, WHAT)?;
        let lengths = device.allocate::<u32>(count, WHAT)?;
        let (measure, pack) =
            (device.function(&boundary_lengths.plain())?, device.function(&boundary_rows.plain())?);
        let n = count as i64;
        measure.on(device, grid(device, count), 256).run(n, &nodes, &on.row_ptr, &lengths)?;
        let places = scan::scan(device, &lengths)?;
        let mut begins = vec![0i64; count + 1];
        device.read(&places, 0, &mut begins)?;
        let entries = begins[count] as usize;
        let (col, values) =
            (device.allocate::<u32>(entries, WHAT)?, device.allocate::<f64>(entries * size, WHAT)?);
        pack.on(device, grid(device, 32 * count), 256).run(
            n,
            &nodes,
            size as i64,
            &on.row_ptr,
            &on.col,
            &on.values,
            &places,
            &col,
            &values,
        )?;
        let mut rows = Rows {
            row_ptr: begins.into_iter().map(|begin| begin as usize).collect(),
            col: vec![0; entries],
            values: vec![0.0; entries * size],
        };
        device.read(&col, 0, &mut rows.col)?;
        device.read(&values, 0, &mut rows.values)?;
        Ok(rows)
    }

    /// Returns the matrix with rows of the host below it, and `columns` columns.
    pub(super) fn stacked(&self, a: &Bsr, below: &Rows, columns: usize) -> Result<Bsr> {
        let made = self.appended(&*self.resident(a)?, a.block() * a.block(), below)?;
        Ok(stored(a.block(), made.row_ptr.len() - 1, columns, made))
    }

    /// Returns a matrix whose entries have `size` numbers each, with rows of the host below it.
    pub(super) fn appended(&self, on: &Resident, size: usize, below: &Rows) -> Result<Resident> {
        let (device, rows, entries) = (self.device(), on.row_ptr.len() - 1, on.col.len());
        let more = below.row_ptr.len() - 1;
        let mut row_ptr = device.allocate::<i64>(rows + more + 1, WHAT)?;
        let mut col = device.allocate::<u32>(entries + below.col.len(), WHAT)?;
        let mut values = device.allocate::<f64>(size * entries + below.values.len(), WHAT)?;
        let ends: Vec<i64> = below.row_ptr[1..].iter().map(|end| (entries + end) as i64).collect();
        device.copy(&on.row_ptr, &mut row_ptr, rows + 1)?;
        device.write(&ends, &mut row_ptr, rows + 1)?;
        device.copy(&on.col, &mut col, entries)?;
        device.write(&below.col, &mut col, entries)?;
        device.copy(&on.values, &mut values, size * entries)?;
        device.write(&below.values, &mut values, size * entries)?;
        Ok(Resident::new(row_ptr, col, values))
    }

    /// Returns the matrix with column j renumbered to `numbers[j]` of `columns`. Rows of scalars are sorted
    /// again; for blocks the numbers must ascend.
    pub(super) fn with_columns(&self, a: &Bsr, numbers: &[u32], columns: usize) -> Result<Bsr> {
        let made = self.renamed(&*self.resident(a)?, a.block() == 1, numbers)?;
        Ok(stored(a.block(), a.block_rows(), columns, made))
    }

    /// Returns a matrix with column j renumbered to `numbers[j]`. Rows of scalars can be sorted again.
    pub(super) fn renamed(&self, on: &Resident, sort: bool, numbers: &[u32]) -> Result<Resident> {
        let (device, rows) = (self.device(), on.row_ptr.len() - 1);
        let numbers = device.upload(numbers, WHAT)?;
        let col = device.allocate::<u32>(on.col.len(), WHAT)?;
        let rename = device.function(&boundary_renumber.plain())?;
        let values = device.allocate::<f64>(if sort { on.values.len() } else { 0 }, WHAT)?;
        let n = rows as i64;
        rename.on(device, grid(device, 8 * rows), 256).run(
            n,
            i32::from(sort),
            &on.row_ptr,
            &on.col,
            &on.values,
            &numbers,
            &col,
            &values,
        )?;
        Ok(if sort { on.with_pattern(col, values) } else { on.with_columns(col) })
    }

    /// Returns the couplings among the first `own` nodes; their couplings to other nodes are added to the
    /// diagonal.
    pub(super) fn own_rows(&self, a: &Bsr, own: usize) -> Result<Bsr> {
        let (device, on) = (self.device(), self.resident(a)?);
        let lengths = device.allocate::<u32>(own, WHAT)?;
        let measure = device.function(&boundary_own_lengths.plain())?;
        let pack = device.function(&boundary_own_rows.plain())?;
        let n = own as i64;
        let blocks = grid(device, 8 * own);
        measure.on(device, blocks, 256).run(n, &on.row_ptr, &on.col, &lengths)?;
        let places = scan::scan(device, &lengths)?;
        let mut end = [0i64];
        device.read(&places, own, &mut end)?;
        let entries = end[0] as usize;
        let (col, values) = (device.allocate::<u32>(entries, WHAT)?, device.allocate::<f64>(entries, WHAT)?);
        pack.on(device, blocks, 256).run(n, &on.row_ptr, &on.col, &on.values, &places, &col, &values)?;
        Ok(stored(1, own, own, Resident::new(places, col, values)))
    }

    /// Returns the first rows of a matrix, whose columns are all below `columns`.
    pub(super) fn beginning(&self, a: &Bsr, rows: usize, columns: usize) -> Result<Bsr> {
        let made = self.begun(&*self.resident(a)?, a.block() * a.block(), rows)?;
        Ok(stored(a.block(), rows, columns, made))
    }

    /// Returns the first rows of a matrix whose entries have `size` numbers each.
    pub(super) fn begun(&self, on: &Resident, size: usize, rows: usize) -> Result<Resident> {
        if rows + 1 == on.row_ptr.len() {
            return Ok(on.clone());
        }
        let (device, entries) = (self.device(), on.pointer(rows)?);
        let mut row_ptr = device.allocate::<i64>(rows + 1, WHAT)?;
        let mut col = device.allocate::<u32>(entries, WHAT)?;
        let mut values = device.allocate::<f64>(size * entries, WHAT)?;
        device.copy(&on.row_ptr, &mut row_ptr, rows + 1)?;
        device.copy(&on.col, &mut col, entries)?;
        device.copy(&on.values, &mut values, size * entries)?;
        Ok(Resident::new(row_ptr, col, values))
    }
}
