//! The weights that decouple one field from the other unknowns of each cell, as the rows of a matrix W: the
//! first stage of CPR.

#[cfg(feature = "cuda")]
use crate::Error;
use crate::Result;
use crate::matrix::storage::Storage;
use crate::matrix::{Bsr, Csr};
use crate::precond::{Decouple, eliminate};
use rayon::prelude::*;
use std::any::Any;
use std::sync::{Arc, OnceLock};

/// Cells below which a second thread costs more than it saves.
const FEW: usize = 1 << 11;
/// Marks an entry that the matrix does not store.
const NONE: usize = usize::MAX;
/// Largest number of fields in a cell.
pub(crate) const MOST_FIELDS: usize = u8::MAX as usize;

/// The rows of each cell that W combines.
pub struct Cells {
    /// Unknowns of a cell: first that of the field, then those of the other fields.
    pub(crate) unknowns: Vec<Vec<u32>>,
    /// The unknown of the cell that each weight belongs to, by its place in `unknowns`.
    pub(crate) order: Vec<u8>,
    pub(crate) decouple: Decouple,
    /// For each cell, positions of the entries (c, d) in the values of the matrix: row c of all unknowns,
    /// column d of the others. Empty until the host needs them.
    positions: Vec<usize>,
    /// A copy on a device.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "no device keeps one"))]
    pub(crate) copy: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl Cells {
    /// Makes cells of unknown i of each of these lists. Returns W for a system of `n` unknowns with it, whose
    /// values are zero and whose columns ascend.
    pub fn new(unknowns: Vec<Vec<u32>>, decouple: &Decouple, n: usize) -> (Self, Csr) {
        let (decouple, m, cells) = (decouple.clone(), unknowns.len(), unknowns[0].len());
        let (mut col, mut order) = (vec![0u32; m * cells], vec![0u8; m * cells]);
        let rows = col.par_chunks_mut(m).zip(order.par_chunks_mut(m)).enumerate().with_min_len(FEW);
        rows.for_each_init(Vec::new, |row: &mut Vec<(u32, u8)>, (cell, (col, order))| {
            row.clear();
            row.extend(unknowns.iter().zip(0..).map(|(of, c)| (of[cell], c)));
            row.sort_unstable();
            for ((col, order), (i, c)) in col.iter_mut().zip(order).zip(row) {
                (*col, *order) = (*i, *c);
            }
        });
        let row_ptr = (0..=cells).map(|cell| cell * m).collect();
        // Columns ascend and are in range.
        let weights = Csr::from_storage(Storage::host(cells, n, row_ptr, col, vec![0.0; m * cells]));
        (Self { unknowns, order, decouple, positions: Vec::new(), copy: OnceLock::new() }, weights)
    }

    /// Finds the entries of the matrix that the weights are made of.
    fn find(&self, a: &Bsr) -> Vec<usize> {
        let (m, cells, b) = (self.unknowns.len(), self.unknowns[0].len(), a.block());
        let find = |row: u32, column: u32| {
            let (i, j) = (row as usize / b, column / b as u32);
            let range = a.row_ptr()[i]..a.row_ptr()[i + 1];
            let at = a.col()[range.clone()].binary_search(&j).ok()?;
            Some(((range.start + at) * b + row as usize % b) * b + column as usize % b)
        };
        let of_cell = |cell: usize| {
            let pairs = (0..m).flat_map(move |c| (1..m).map(move |d| (c, d)));
            pairs.map(move |(c, d)| find(self.unknowns[c][cell], self.unknowns[d][cell]).unwrap_or(NONE))
        };
        (0..cells).into_par_iter().with_min_len(FEW).flat_map_iter(of_cell).collect()
    }

    /// Computes the weights of all cells on the host, as the values of W.
    ///
    /// # Errors
    /// A weight that is not finite.
    pub fn weigh(&mut self, a: &Bsr, to: &mut Csr) -> Result<()> {
        let m = self.unknowns.len();
        if self.positions.is_empty() && self.decouple == Decouple::QuasiImpes && m > 1 {
            self.positions = self.find(a);
        }
        let values = if self.positions.is_empty() { &[] } else { a.values() };
        let weigh = |(cell, (to, order)): (usize, (&mut [f64], &[u8]))| {
            let mut w = vec![if self.decouple == Decouple::RowSums { 1.0 } else { 0.0 }; m];
            w[0] = 1.0;
            if let Some(positions) = self.positions.get(cell * m * (m - 1)..(cell + 1) * m * (m - 1)) {
                let at = |c: usize, d: usize| match positions[c * (m - 1) + d] {
                    NONE => 0.0,
                    position => values[position],
                };
                impes(&at, &mut w);
            }
            to.iter_mut().zip(order).for_each(|(to, &c)| *to = w[c as usize]);
        };
        let cells = to.values_mut().par_chunks_mut(m).zip(self.order.par_chunks(m));
        cells.enumerate().with_min_len(FEW).for_each(weigh);
        to.check_finite()
    }

    /// Computes the weights of all cells from another matrix than that of the system, whose entry in the row
    /// and column of two own unknowns `entry` returns. Ends with the first cell whose block of the other
    /// unknowns cannot be inverted.
    ///
    /// # Errors
    /// A weight that is not finite.
    pub(crate) fn weigh_by(
        &self,
        entry: &(dyn Fn(u32, u32) -> f64 + Sync),
        to: &mut Csr,
    ) -> Result<Option<usize>> {
        let m = self.unknowns.len();
        let weigh = |(cell, (to, order)): (usize, (&mut [f64], &[u8]))| {
            let mut w = vec![0.0; m];
            w[0] = 1.0;
            let at = |c: usize, d: usize| entry(self.unknowns[c][cell], self.unknowns[d + 1][cell]);
            let inverted = impes(&at, &mut w);
            to.iter_mut().zip(order).for_each(|(to, &c)| *to = w[c as usize]);
            (!inverted).then_some(cell)
        };
        let cells = to.values_mut().par_chunks_mut(m).zip(self.order.par_chunks(m));
        let singular = cells.enumerate().with_min_len(FEW).filter_map(weigh).min();
        to.check_finite()?;
        Ok(singular)
    }

    /// The error of a weight that is not finite.
    #[cfg(feature = "cuda")]
    pub(crate) fn not_finite() -> Error {
        Error::invalid("cpr: a weight that decouples the unknowns of a cell is not finite")
    }
}

/// Computes w = (1, −D_ps D_ss⁻¹) of a cell, where `at(c, d)` is the entry in row c of all unknowns and in
/// column d of the others. Returns false for a D_ss that cannot be inverted, which leaves the row of the
/// field alone.
fn impes(at: &impl Fn(usize, usize) -> f64, w: &mut [f64]) -> bool {
    let k = w.len() - 1;
    if k == 0 {
        return true;
    }
    let (mut a, mut inverse) = (vec![0.0; k * k], vec![0.0; k * k]);
    for c in 0..k {
        let largest = (0..k).map(|d| at(c + 1, d).abs()).fold(0.0, f64::max);
        let scale = if largest > 0.0 { 1.0 / largest } else { 0.0 };
        (0..k).for_each(|d| a[c * k + d] = scale * at(c + 1, d));
        inverse[c * k + c] = scale;
    }
    let inverted = eliminate(k, &mut a, &mut inverse).is_ok();
    if inverted {
        for c in 0..k {
            w[c + 1] = -(0..k).map(|d| at(0, d) * inverse[d * k + c]).sum::<f64>();
        }
    }
    inverted
}
