//! The arrays of a compressed sparse matrix, on the host, on a GPU, or on both. Copies of a matrix share them
//! until one of the copies changes.
//!
//! Arrays given on the host are on the host. Arrays given in the memory of a GPU stay there, and the host
//! gets a copy at its first use of them.

use crate::memory::{Numbers, OnDevice, Pattern};
use crate::{Error, Result};
use rayon::prelude::*;
use std::sync::{Arc, OnceLock};

/// Number of values that one task copies.
const COPIED: usize = 1 << 18;

/// A pattern shared by several matrices.
pub type SharedPattern = Arc<OnceLock<Pattern>>;

/// Pattern and values; `rows`, `columns` and `entries` count blocks if the matrix has blocks.
#[derive(Clone)]
pub struct Storage {
    pub rows: usize,
    pub columns: usize,
    pub entries: usize,
    pattern: Arc<OnceLock<Pattern>>,
    values: Arc<OnceLock<Vec<f64>>>,
    device: Option<Arc<dyn OnDevice>>,
}

impl Storage {
    /// Creates a storage from arrays on the host, which the caller has checked.
    pub fn host(rows: usize, columns: usize, row_ptr: Vec<usize>, col: Vec<u32>, values: Vec<f64>) -> Self {
        let entries = col.len();
        let pattern = Arc::new(OnceLock::from(Pattern { row_ptr, col }));
        Self { rows, columns, entries, pattern, values: Arc::new(OnceLock::from(values)), device: None }
    }

    /// Creates a storage from arrays on a device, which the caller has checked.
    pub fn device(rows: usize, columns: usize, entries: usize, device: Arc<dyn OnDevice>) -> Self {
        Self { rows, columns, entries, pattern: Arc::default(), values: Arc::default(), device: Some(device) }
    }

    /// The same matrix with a copy of its arrays on this device.
    pub fn with_device(&self, device: Arc<dyn OnDevice>) -> Self {
        Self { device: Some(device), ..self.clone() }
    }

    /// The same pattern with other values, which are only on this device.
    pub fn with_device_values(&self, device: Arc<dyn OnDevice>) -> Self {
        Self { device: Some(device), values: Arc::default(), ..self.clone() }
    }

    /// The same pattern with `values` on a device: values from a device stay there, and values from the host
    /// are uploaded if the matrix is only on a device. Returns `None` if the values stay on the host.
    ///
    /// # Errors
    /// A number of values other than `stored`; a value that is not finite; a device without memory for them.
    pub fn with_values_of(&self, values: Numbers, stored: usize) -> Result<Option<Self>> {
        if let (Some(host), Some(device)) = (values.as_host(), self.alone())
            && host.len() == stored
        {
            return Ok(device.with_values(host)?.map(|device| self.with_device_values(device)));
        }
        let Some(lent) = values.lent() else { return Ok(None) };
        if values.len() != stored {
            return Err(Error::invalid(format!(
                "{} new values for a matrix that stores {stored}; expected one value per stored entry",
                values.len()
            )));
        }
        let device = lent.remote.reach.values(lent.remote, self.device.clone(), &|| self.pattern())?;
        Ok(Some(self.with_device_values(device)))
    }

    /// The arrays on a device, if it is of type `D`.
    pub fn on<D: OnDevice>(&self) -> Option<Arc<D>> {
        self.device.clone()?.as_any().downcast().ok()
    }

    /// Scalar rows that are only on a device, in square blocks there; `None` for arrays on the host, and for
    /// a device that does not group. The block size divides rows and columns.
    ///
    /// # Errors
    /// A device that failed, or without memory for the blocks.
    pub fn grouped(&self, block: usize) -> Result<Option<Self>> {
        let Some(device) = self.alone() else { return Ok(None) };
        let of = |(blocks, arrays)| Self::device(self.rows / block, self.columns / block, blocks, arrays);
        Ok(device.grouped(block)?.map(of))
    }

    /// The number of blocks of this order, for scalar rows that are only on a device; `None` otherwise.
    ///
    /// # Errors
    /// A device that failed.
    pub fn count_blocks(&self, block: usize) -> Result<Option<usize>> {
        self.alone().map_or(Ok(None), |device| device.count_blocks(block))
    }

    /// The number of blocks of `square` numbers that are all zero, of a matrix that is only on a device;
    /// `None` otherwise.
    ///
    /// # Errors
    /// A device that failed.
    pub fn count_zero_blocks(&self, square: usize) -> Result<Option<usize>> {
        self.alone().map_or(Ok(None), |device| device.count_zero_blocks(square))
    }

    /// For a matrix in blocks of this order that is only on a device: true if its rows refer to an unknown
    /// whose own row has only a diagonal. `None` if the device does not look, or the host has the matrix.
    ///
    /// # Errors
    /// A device that failed, or without memory for a byte per row.
    pub fn refers_to_fixed_rows(&self, block: usize) -> Result<Option<bool>> {
        Ok(self.alone().map(|device| device.refers_to_fixed_rows(block)).transpose()?.flatten())
    }

    /// The numbers of negative, zero and positive entries on the diagonal of a matrix in blocks of this order
    /// that is only on a device. `None` if the device does not count them, or the host has the matrix.
    ///
    /// # Errors
    /// A device that failed.
    pub fn diagonal_signs(&self, block: usize) -> Result<Option<[u64; 3]>> {
        Ok(self.alone().map(|device| device.diagonal_signs(block)).transpose()?.flatten())
    }

    /// The norms of D⁻¹(b − A x), D⁻¹b, b − A x and b, where D is diagonal with the 1-norms of the rows, of a
    /// matrix that is only on a device; `None` otherwise, and if they overflow or underflow.
    ///
    /// # Errors
    /// A device that failed.
    pub fn row_scaled_norms(&self, block: usize, b: Numbers, x: Numbers) -> Result<Option<[f64; 4]>> {
        self.alone().map_or(Ok(None), |device| device.row_scaled_norms(block, b, x))
    }

    /// The pattern of the first `rows` rows of a matrix that is only on a device, or of fewer if those have
    /// more than `most` entries; `None` for other matrices. The host gets no copy of the rest.
    ///
    /// # Errors
    /// A device that failed.
    pub fn first_rows(&self, rows: usize, most: usize) -> Result<Option<Pattern>> {
        self.alone().map(|device| device.first_rows(rows, most)).transpose()
    }

    /// The device that alone has the values.
    fn alone(&self) -> Option<&dyn OnDevice> {
        self.device.as_deref().filter(|_| self.is_on_device_alone())
    }

    /// True if the values are only on a device.
    #[inline]
    pub fn is_on_device_alone(&self) -> bool {
        self.values.get().is_none()
    }

    /// True if the pattern is on the host.
    #[inline]
    pub fn has_host_pattern(&self) -> bool {
        self.pattern.get().is_some()
    }

    #[inline]
    fn pattern(&self) -> &Pattern {
        self.pattern.get_or_init(|| self.fetch(|device| device.pattern()))
    }

    /// The pattern on the host, which callers may keep without the values.
    pub fn shared_pattern(&self) -> SharedPattern {
        self.pattern();
        self.pattern.clone()
    }

    /// Fetches data that is only on the device. After a failure here the device fails in all further calls
    /// too, so this panics; the solver's threads turn the panic into an error.
    fn fetch<T>(&self, get: impl FnOnce(&dyn OnDevice) -> Result<T>) -> T {
        let lost = || Error::Internal("a matrix without arrays".into());
        let fetched = self.device.as_deref().ok_or_else(lost).and_then(get);
        fetched.unwrap_or_else(|e| panic!("{e}"))
    }

    #[inline]
    pub fn row_ptr(&self) -> &[usize] {
        &self.pattern().row_ptr
    }

    #[inline]
    pub fn col(&self) -> &[u32] {
        &self.pattern().col
    }

    #[inline]
    pub fn values(&self) -> &[f64] {
        self.values.get_or_init(|| self.fetch(|device| device.values()))
    }

    /// The values on the device if they are there, else on the host.
    #[inline]
    pub fn numbers(&self) -> Numbers<'_> {
        match &self.device {
            Some(device) => device.numbers(),
            None => Numbers::from(self.values()),
        }
    }

    /// The values on the host, for changes. Values on a device no longer belong to this matrix afterwards.
    pub fn values_mut(&mut self) -> &mut [f64] {
        self.values();
        self.leave_device();
        if Arc::get_mut(&mut self.values).is_none() {
            let own = self.values().to_vec();
            self.values = Arc::new(OnceLock::from(own));
        }
        let values = Arc::get_mut(&mut self.values).and_then(OnceLock::get_mut);
        values.map_or(&mut [], |values| &mut values[..])
    }

    /// Replaces the values by `values`, of which there must be `stored`. Those in device memory stay there.
    /// Those of the host are copied with all threads if they are many, and the old values are not read:
    /// memory that other matrices share is left to them. Returns true if the values are on a device, which
    /// has checked them.
    ///
    /// # Errors
    /// A wrong length; a device that failed.
    pub fn replace_values(&mut self, values: Numbers, stored: usize) -> Result<bool> {
        if let Some(changed) = self.with_values_of(values, stored)? {
            *self = changed;
            return Ok(true);
        }
        let Some(from) = values.as_host().filter(|from| from.len() == stored) else {
            return values.read(self.values_mut()).map(|()| false);
        };
        self.leave_device();
        if Arc::get_mut(&mut self.values).and_then(OnceLock::get_mut).is_none_or(|own| own.len() != stored) {
            self.values = Arc::new(OnceLock::from(vec![0.0; stored])); // pages that the copy touches first
        }
        let to = Arc::get_mut(&mut self.values).and_then(OnceLock::get_mut).map_or(&mut [][..], |own| own);
        match stored > COPIED {
            true => {
                let parts = to.par_chunks_mut(COPIED).zip(from.par_chunks(COPIED));
                parts.for_each(|(to, from)| to.copy_from_slice(from));
            }
            false => to.copy_from_slice(from),
        }
        Ok(false)
    }

    /// Gives up the copy on a device, and keeps the pattern, which is still needed.
    fn leave_device(&mut self) {
        if let Some(device) = self.device.take() {
            self.pattern.get_or_init(|| device.pattern().unwrap_or_else(|e| panic!("{e}")));
        }
    }

    /// True if both are known to share one pattern, without comparing entries.
    pub fn shares_pattern(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pattern, &other.pattern)
    }

    /// True if both have the same shape and pattern.
    pub fn same_pattern(&self, other: &Self) -> bool {
        let shape = |s: &Self| (s.rows, s.columns, s.entries);
        if shape(self) != shape(other) || self.shares_pattern(other) {
            return shape(self) == shape(other);
        }
        // Patterns that are not on the host are compared on the device.
        let away = self.pattern.get().is_none() || other.pattern.get().is_none();
        let there = self.device.as_ref().zip(other.device.as_ref()).filter(|_| away);
        there
            .and_then(|(one, two)| one.same_pattern(two))
            .unwrap_or_else(|| same(self.row_ptr(), other.row_ptr()) && same(self.col(), other.col()))
    }

    /// True if both, which have the same pattern, have equal values.
    pub fn same_values(&self, other: &Self) -> bool {
        let away = self.is_on_device_alone() || other.is_on_device_alone();
        let there = self.device.as_ref().zip(other.device.as_ref()).filter(|_| away);
        there.and_then(|(one, two)| one.same_values(two)).unwrap_or_else(|| {
            let (one, two) = (self.values(), other.values());
            let pieces = one.par_chunks(COPIED).zip(two.par_chunks(COPIED));
            one.len() == two.len() && pieces.into_par_iter().all(|(one, two)| one == two)
        })
    }

    /// The same pattern, shared, with other values on the host.
    pub fn with_host_values(&self, values: Vec<f64>) -> Self {
        Self { values: Arc::new(OnceLock::from(values)), device: None, ..self.clone() }
    }

    /// The same values with the pattern arrays of `other`, which must be equal.
    pub fn sharing_pattern(&self, other: &Self) -> Self {
        Self { pattern: other.pattern.clone(), ..self.clone() }
    }
}

/// True for equal slices; compares on all threads.
fn same<T: PartialEq + Sync>(a: &[T], b: &[T]) -> bool {
    use rayon::prelude::*;
    const CHUNK: usize = 1 << 18;
    a.len() == b.len() && a.par_chunks(CHUNK).zip(b.par_chunks(CHUNK)).all(|(a, b)| a == b)
}

impl PartialEq for Storage {
    fn eq(&self, other: &Self) -> bool {
        self.same_pattern(other) && self.values() == other.values()
    }
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = if self.is_on_device_alone() { " on a device" } else { "" };
        write!(f, "{}×{} with {} stored{place}", self.rows, self.columns, self.entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_until_one_changes() {
        let a = Storage::host(2, 2, vec![0, 1, 2], vec![0, 1], vec![1.0, 2.0]);
        let mut b = a.clone();
        assert!(b.shares_pattern(&a) && std::ptr::eq(a.values().as_ptr(), b.values().as_ptr()));
        b.values_mut()[1] = 3.0;
        assert_eq!((a.values(), b.values()), (&[1.0, 2.0][..], &[1.0, 3.0][..]));
        let before = b.values().as_ptr();
        b.values_mut()[0] = 0.5;
        assert!(std::ptr::eq(before, b.values().as_ptr()), "nobody shares them: nothing is copied");
        assert!(a != b && a.same_pattern(&b));
        let other = Storage::host(2, 2, vec![0, 1, 2], vec![0, 1], vec![5.0, 6.0]);
        assert!(!other.shares_pattern(&a) && other.same_pattern(&a));
        assert!(other.sharing_pattern(&a).shares_pattern(&a));
    }
}
