//! Converts numbers and rows to the bytes of messages and back; long arrays are converted on all threads.

use crate::{Error, Result};
use rayon::prelude::*;
use std::marker::PhantomData;

/// Fewest numbers that a thread converts at once.
const FEW: usize = 1 << 13;

/// A number that ranks exchange.
pub trait Wire: Copy + Send + Sync {
    /// Size in bytes.
    const SIZE: usize;
    /// Writes it to `SIZE` bytes.
    fn put(self, to: &mut [u8]);
    /// Reads it from `SIZE` bytes.
    fn take(from: &[u8]) -> Self;
}

macro_rules! wire {
    ($($type:ty),*) => {$(
        impl Wire for $type {
            const SIZE: usize = size_of::<$type>();
            fn put(self, to: &mut [u8]) {
                to.copy_from_slice(&self.to_le_bytes());
            }
            fn take(from: &[u8]) -> Self {
                from.try_into().map_or(Self::default(), Self::from_le_bytes)
            }
        }
    )*};
}
wire!(u8, u32, u64, f64);

/// The bytes of an array of numbers.
pub fn packed<T: Wire>(numbers: &[T]) -> Vec<u8> {
    let mut message = MessageBuilder::new(numbers.len() * T::SIZE);
    message.put(numbers);
    message.bytes()
}

/// A message of several arrays, one after the other.
pub struct MessageBuilder {
    bytes: Vec<u8>,
    written: usize,
}

impl MessageBuilder {
    /// Creates a message with capacity for this many bytes.
    pub fn new(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes], written: 0 }
    }

    /// Appends an array. Numbers that exceed the capacity are left out; the reader finds them missing.
    pub fn put<T: Wire>(&mut self, numbers: &[T]) {
        self.put_by(numbers.len(), &|i| numbers[i]);
    }

    /// Appends an array with `number(i)` for each `i` in `of`.
    pub fn put_each<T: Wire>(&mut self, of: &[u32], number: &(dyn Fn(u32) -> T + Sync)) {
        self.put_by(of.len(), &|i| number(of[i]));
    }

    /// Appends the row lengths of these row pointers as `u32`.
    pub fn put_lengths(&mut self, row_ptr: &[usize]) {
        self.put_by(row_ptr.len().saturating_sub(1), &|i| (row_ptr[i + 1] - row_ptr[i]) as u32);
    }

    fn put_by<T: Wire>(&mut self, count: usize, number: &(dyn Fn(usize) -> T + Sync)) {
        let end = self.bytes.len().min(self.written + count * T::SIZE);
        let to = self.bytes[self.written..end].par_chunks_exact_mut(T::SIZE).with_min_len(FEW);
        to.enumerate().for_each(|(i, to)| number(i).put(to));
        self.written = end;
    }

    /// The message.
    pub fn bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// An array of numbers in a message.
pub struct Array<'a, T> {
    bytes: &'a [u8],
    of: PhantomData<T>,
}

impl<T: Wire> Array<'_, T> {
    /// Number `i` of the array.
    pub fn at(&self, i: usize) -> T {
        T::take(&self.bytes[i * T::SIZE..(i + 1) * T::SIZE])
    }
}

/// Reads arrays from a message, one after the other.
pub struct Reader<'a> {
    rest: &'a [u8],
    rank: usize,
}

impl<'a> Reader<'a> {
    /// Creates a reader of the message from rank `rank`.
    pub fn new(rest: &'a [u8], rank: usize) -> Self {
        Self { rest, rank }
    }

    /// Reads the next `count` numbers.
    ///
    /// # Errors
    /// The message has fewer numbers left.
    pub fn take<T: Wire>(&mut self, count: usize) -> Result<Vec<T>> {
        let own = self.stretch(count * T::SIZE)?;
        Ok(own.par_chunks_exact(T::SIZE).with_min_len(FEW).map(T::take).collect())
    }

    /// Reads the lengths of the next `rows` rows; returns them and their sum, the number of entries.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn lengths(&mut self, rows: usize) -> Result<(Vec<u32>, usize)> {
        let lengths: Vec<u32> = self.take(rows)?;
        let entries = lengths.iter().map(|&length| length as usize).sum();
        Ok((lengths, entries))
    }

    /// As `take`, but the numbers are read in place.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn array<T: Wire>(&mut self, count: usize) -> Result<Array<'a, T>> {
        Ok(Array { bytes: self.stretch(count * T::SIZE)?, of: PhantomData })
    }

    fn stretch(&mut self, bytes: usize) -> Result<&'a [u8]> {
        if self.rest.len() < bytes {
            return Err(Error::invalid(format!(
                "a message from rank {} has {} bytes left, but {bytes} more were expected; start the same \
                 version of Krylith on every rank",
                self.rank,
                self.rest.len()
            )));
        }
        let (own, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        Ok(own)
    }

    /// Reads all remaining numbers.
    pub fn all<T: Wire>(&mut self) -> Result<Vec<T>> {
        self.take(self.rest.len() / T::SIZE)
    }
}
