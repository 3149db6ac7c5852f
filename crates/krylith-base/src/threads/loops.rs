//! Loops on the threads of the caller's pool, with closures called through a pointer. Each loop is compiled
//! once per result type, while rayon's are compiled again for each closure. For generic functions and simple
//! loops.

use rayon::prelude::*;
use std::ops::Range;

/// Calls `work` for each number below `count`; a thread takes at least `least` numbers at once.
pub fn each(count: usize, least: usize, work: &(dyn Fn(usize) + Sync)) {
    (0..count).into_par_iter().with_min_len(least).for_each(work);
}

/// Calls `work` with each of the tasks.
pub fn each_task<T: Send>(tasks: Vec<T>, work: &(dyn Fn(T) + Sync)) {
    tasks.into_par_iter().for_each(work);
}

/// Calls `work(k, chunk k)` for the chunks of `size` numbers; a thread takes at least `least` chunks at once.
pub fn each_chunk<T: Send>(
    numbers: &mut [T],
    size: usize,
    least: usize,
    work: &(dyn Fn(usize, &mut [T]) + Sync),
) {
    numbers.par_chunks_mut(size).enumerate().with_min_len(least).for_each(|(k, chunk)| work(k, chunk));
}

/// Collects the results of `of` for each number; a thread takes at least `least` numbers at once.
pub fn collect<T: Send>(numbers: Range<usize>, least: usize, of: &(dyn Fn(usize) -> T + Sync)) -> Vec<T> {
    numbers.into_par_iter().with_min_len(least).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[test]
    fn loops_take_each_number_once() {
        for count in [0, 1, 7, 1000] {
            let seen = collect(0..count, 16, &|_| AtomicUsize::new(0));
            let note = |i: usize| assert!(seen[i].fetch_add(1, Relaxed) < 2);
            each(count, 16, &note);
            each_task((0..count).collect(), &note);
            let mut numbers: Vec<usize> = seen.into_iter().map(AtomicUsize::into_inner).collect();
            each_chunk(&mut numbers, 3, 2, &|k, chunk| {
                assert!(!chunk.is_empty() && chunk.len() <= 3);
                chunk.iter_mut().for_each(|number| *number += k);
            });
            assert_eq!(numbers, (0..count).map(|i| 2 + i / 3).collect::<Vec<_>>());
        }
    }
}
