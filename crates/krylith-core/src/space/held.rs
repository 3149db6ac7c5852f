//! Vectors that a driver on the host, such as Newton's method, combines where they are.

use crate::Result;
use crate::memory::{Numbers, NumbersMut};
use rayon::prelude::*;

/// Number of numbers that one thread sums sequentially, so that sums do not depend on the number of threads.
const CHUNK: usize = 4096;

/// Vectors of equal length, on the host or in the memory of a device.
pub trait HeldVectors: Send + Sync {
    /// Returns the length of the vectors.
    fn len(&self) -> usize;
    /// True if the vectors have no numbers.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns vector `v`.
    fn numbers(&self, v: usize) -> Numbers<'_>;
    /// Returns vector `from` to read and another vector, `to`, to write.
    fn pair(&mut self, from: usize, to: usize) -> (Numbers<'_>, NumbersMut<'_>);
    /// Copies a caller's numbers to vector `to`.
    ///
    /// # Errors
    /// A wrong length; a device that failed.
    fn write_from(&mut self, from: Numbers, to: usize) -> Result<()>;
    /// Copies vector `from` to a caller's numbers.
    ///
    /// # Errors
    /// A wrong length; a device that failed.
    fn read_into(&self, from: usize, to: NumbersMut) -> Result<()>;
    /// Sets vector `v` to zeros.
    ///
    /// # Errors
    /// A device that failed.
    fn clear(&mut self, v: usize) -> Result<()>;
    /// Returns ‖v‖₂². The result does not depend on the number of threads.
    ///
    /// # Errors
    /// A device that failed.
    fn squares(&self, v: usize) -> Result<f64>;
    /// Sets vector `to` to x + factor · y, for two other vectors x and y.
    ///
    /// # Errors
    /// A device that failed.
    fn combine(&mut self, to: usize, x: usize, factor: f64, y: usize) -> Result<()>;
}

/// Returns item `from` and another one, `to`, for changing.
pub(crate) fn two<T>(all: &mut [T], from: usize, to: usize) -> (&T, &mut T) {
    let (first, second) = all.split_at_mut(from.max(to));
    if from < to { (&first[from], &mut second[0]) } else { (&second[0], &mut first[to]) }
}

/// Vectors on the host. Their operations run on rayon's current threads.
pub struct HostVectors(Vec<Vec<f64>>);

impl HostVectors {
    /// Creates `count` vectors of `len` zeros.
    pub fn new(count: usize, len: usize) -> Self {
        Self(vec![vec![0.0; len]; count])
    }
}

impl HeldVectors for HostVectors {
    fn len(&self) -> usize {
        self.0.first().map_or(0, Vec::len)
    }
    fn numbers(&self, v: usize) -> Numbers<'_> {
        Numbers::from(&self.0[v])
    }
    fn pair(&mut self, from: usize, to: usize) -> (Numbers<'_>, NumbersMut<'_>) {
        let (from, to) = two(&mut self.0, from, to);
        (Numbers::from(from), NumbersMut::from(to))
    }
    fn write_from(&mut self, from: Numbers, to: usize) -> Result<()> {
        from.read(&mut self.0[to])
    }
    fn read_into(&self, from: usize, mut to: NumbersMut) -> Result<()> {
        to.write(&self.0[from])
    }
    fn clear(&mut self, v: usize) -> Result<()> {
        self.0[v].par_chunks_mut(CHUNK).for_each(|part| part.fill(0.0));
        Ok(())
    }
    fn squares(&self, v: usize) -> Result<f64> {
        let parts = self.0[v].par_chunks(CHUNK);
        let sums: Vec<f64> = parts.map(|part| part.iter().map(|v| v * v).sum::<f64>()).collect();
        Ok(sums.iter().sum())
    }
    fn combine(&mut self, to: usize, x: usize, factor: f64, y: usize) -> Result<()> {
        let mut out = std::mem::take(&mut self.0[to]);
        let given = self.0[x].par_iter().zip(&self.0[y]);
        out.par_iter_mut().with_min_len(CHUNK).zip(given).for_each(|(out, (x, y))| *out = x + factor * y);
        self.0[to] = out;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_the_host_are_combined() {
        let mut held = HostVectors::new(3, 5000);
        let x: Vec<f64> = (0..5000).map(f64::from).collect();
        held.write_from(Numbers::from(&x), 2).unwrap();
        held.write_from(Numbers::from(&vec![2.0; 5000]), 0).unwrap();
        held.combine(1, 2, -0.5, 0).unwrap();
        let mut y = vec![0.0; 5000];
        held.read_into(1, NumbersMut::from(&mut y)).unwrap();
        assert!(y.iter().zip(&x).all(|(y, x)| *y == x - 1.0));
        assert_eq!(held.squares(0).unwrap(), 4.0 * 5000.0);
        let (from, mut to) = held.pair(2, 0);
        to.write(from.as_host().unwrap()).unwrap();
        assert_eq!(held.numbers(0).to_vec().unwrap(), x);
        held.clear(0).unwrap();
        assert_eq!(held.squares(0).unwrap(), 0.0);
        assert!(held.write_from(Numbers::from(&[1.0]), 0).is_err());
    }
}
