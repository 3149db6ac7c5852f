//! Rows of a matrix that a rank sends or receives, with global numbers of columns.

use super::super::host::parallel::Rows;
use super::rows::append_ascending;
use crate::Result;
use crate::comm::wire::{MessageBuilder, Reader};
use std::ops::Range;

/// Rows whose columns are global numbers.
#[derive(Default)]
pub(crate) struct FarRows {
    pub lengths: Vec<u32>,
    pub col: Vec<u64>,
    pub values: Vec<f64>,
}

impl FarRows {
    /// Encodes the rows in `range` as a message.
    pub fn message(
        rows: &Rows,
        range: Range<usize>,
        square: usize,
        number: &(dyn Fn(u32) -> u64 + Sync),
    ) -> Vec<u8> {
        let ends = &rows.row_ptr[range.start..=range.end];
        let entries = ends[0]..ends[ends.len() - 1];
        let mut message = MessageBuilder::new(4 * range.len() + 8 * (1 + square) * entries.len());
        message.put_lengths(ends);
        message.put_each(&rows.col[entries.clone()], number);
        message.put(&rows.values[entries.start * square..entries.end * square]);
        message.bytes()
    }

    /// Appends `count` rows from a message.
    pub fn take(&mut self, from: &mut Reader, count: usize, square: usize) -> Result<()> {
        let (lengths, entries) = from.lengths(count)?;
        self.lengths.extend(lengths);
        self.col.extend(from.take::<u64>(entries)?);
        self.values.extend(from.take::<f64>(entries * square)?);
        Ok(())
    }

    /// Returns the rows with columns converted to positions, and sorted by them.
    pub fn placed(&self, square: usize, place: impl Fn(u64) -> u32 + Sync + Send) -> Rows {
        let mut rows = Rows::default();
        let column = |p: usize| place(self.col[p]);
        append_ascending(&mut rows, &self.lengths, square, column, |k| self.values[k]);
        rows
    }
}
