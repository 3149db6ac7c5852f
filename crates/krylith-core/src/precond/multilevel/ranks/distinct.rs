//! The distinct numbers of a list.

use crate::threads::{collect, each};
use rayon::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Smallest number of items for a thread.
const FEW: usize = 4096;

/// The distinct numbers of a list, with their positions.
pub struct Distinct {
    /// The numbers, ascending.
    pub list: Vec<u32>,
    /// The position of each number in the list.
    places: Vec<AtomicU32>,
}

impl Distinct {
    /// Collects the distinct numbers, all below `limit`.
    pub fn of(numbers: &[u32], limit: usize) -> Self {
        const ABSENT: u32 = u32::MAX;
        let places = collect(0..limit, FEW, &|_| AtomicU32::new(ABSENT));
        each(numbers.len(), FEW, &|k| places[numbers[k] as usize].store(0, Relaxed));
        let is_there = |j: &u32| places[*j as usize].load(Relaxed) != ABSENT;
        let list: Vec<u32> = (0..limit as u32).into_par_iter().filter(is_there).collect();
        each(list.len(), FEW, &|k| places[list[k] as usize].store(k as u32, Relaxed));
        Self { list, places }
    }

    /// Returns the position of a number in the list.
    pub fn place(&self, number: u32) -> u32 {
        self.places[number as usize].load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::Distinct;

    #[test]
    fn each_number_once_ascending() {
        let numbers: Vec<u32> = (0..20_000).map(|k| k * k % 7_919).collect();
        let got = Distinct::of(&numbers, 8_000);
        let mut expected = numbers.clone();
        expected.sort_unstable();
        expected.dedup();
        assert_eq!(got.list, expected);
        assert!(numbers.iter().all(|&j| got.list[got.place(j) as usize] == j));
        assert!(Distinct::of(&[], 3).list.is_empty());
    }
}
