//! Numbers and rows as bytes of messages.

use crate::{Error, Result};

/// A number that travels between ranks.
pub trait Wire: Copy {
    /// Bytes.
    const SIZE: usize;
    /// Appends its bytes.
    fn put(self, to: &mut Vec<u8>);
    /// The number of these bytes, which are as many.
    fn take(from: &[u8]) -> Self;
}

macro_rules! wire {
    ($($type:ty),*) => {$(
        impl Wire for $type {
            const SIZE: usize = size_of::<$type>();
            fn put(self, to: &mut Vec<u8>) {
                to.extend(self.to_le_bytes());
            }
            fn take(from: &[u8]) -> Self {
                from.try_into().map_or(Self::default(), Self::from_le_bytes)
            }
        }
    )*};
}
wire!(u8, u32, u64, f64);

/// The bytes of numbers.
pub fn packed<T: Wire>(numbers: impl IntoIterator<Item = T>) -> Vec<u8> {
    let mut to = Vec::new();
    numbers.into_iter().for_each(|number| number.put(&mut to));
    to
}

/// Numbers from bytes, one stretch after the other.
pub struct Reader<'a> {
    rest: &'a [u8],
    rank: usize,
}

impl<'a> Reader<'a> {
    /// What rank `rank` has sent.
    pub fn new(rest: &'a [u8], rank: usize) -> Self {
        Self { rest, rank }
    }

    /// The next `count` numbers.
    ///
    /// # Errors
    /// Fewer are left.
    pub fn take<T: Wire>(&mut self, count: usize) -> Result<Vec<T>> {
        let bytes = count * T::SIZE;
        if self.rest.len() < bytes {
            return Err(Error::invalid(format!(
                "rank {} sent {} bytes of a coarse level where {bytes} were expected",
                self.rank,
                self.rest.len()
            )));
        }
        let (own, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        Ok(own.chunks_exact(T::SIZE).map(T::take).collect())
    }

    /// All that is left.
    pub fn all<T: Wire>(&mut self) -> Result<Vec<T>> {
        self.take(self.rest.len() / T::SIZE)
    }
}
