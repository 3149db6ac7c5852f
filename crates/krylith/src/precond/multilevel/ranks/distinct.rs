//! Which numbers a list has, each once.

use rayon::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The numbers of a list, each once.
pub struct Distinct {
    /// Ascending.
    pub list: Vec<u32>,
    /// Of each number its place in the list.
    places: Vec<AtomicU32>,
}

impl Distinct {
    /// Of numbers below `limit`.
    pub fn of(numbers: &[u32], limit: usize) -> Self {
        const ABSENT: u32 = u32::MAX;
        let places: Vec<AtomicU32> = (0..limit).into_par_iter().map(|_| AtomicU32::new(ABSENT)).collect();
        numbers.par_iter().for_each(|&j| places[j as usize].store(0, Relaxed));
        let is_there = |j: &u32| places[*j as usize].load(Relaxed) != ABSENT;
        let list: Vec<u32> = (0..limit as u32).into_par_iter().filter(is_there).collect();
        list.par_iter().enumerate().for_each(|(k, &j)| places[j as usize].store(k as u32, Relaxed));
        Self { list, places }
    }

    /// Where a number of the list stands.
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
