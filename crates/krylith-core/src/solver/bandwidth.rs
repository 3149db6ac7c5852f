//! Measures the memory read bandwidth of this machine, the reference for `bandwidth_fraction` in reports.
//!
//! The solver's threads repeatedly read a buffer of a few times the size of the last-level cache, for at most
//! about a third of a second. The fastest pass counts. A buffer of ten times the cache would be more precise,
//! but would take seconds if caches are large.

use crate::threads::Pool;
use std::hint::black_box;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Time for the read passes, without the time to fill the buffer.
const BUDGET: Duration = Duration::from_millis(200);
/// Smallest and largest size of the buffer, in bytes.
const SIZES: (u64, u64) = (32 << 20, 256 << 20);

/// Measures the read bandwidth of a pool of CPU threads, in bytes per second; `None` if there is not enough
/// memory for the buffer.
pub fn of_cpu(pool: &Pool) -> Option<f64> {
    let bytes = super::host::last_cache().unwrap_or(SIZES.0 / 4).saturating_mul(4).clamp(SIZES.0, SIZES.1);
    if super::host::memory().is_some_and(|(_, free)| free < 4 * bytes) {
        return None;
    }
    let (threads, each) = (pool.threads(), bytes as usize / 8 / pool.threads());
    // Each thread fills the part that it reads, so that the pages are on its NUMA node.
    let parts: Vec<Mutex<Vec<f64>>> = (0..threads).map(|_| Mutex::default()).collect();
    pool.run(threads, |rank| {
        if let Ok(mut part) = parts[rank].lock() {
            *part = vec![1.0; each];
        }
    });
    let start = Instant::now();
    let mut best = f64::INFINITY;
    while start.elapsed() < BUDGET {
        let pass = Instant::now();
        pool.run(threads, |rank| {
            if let Ok(part) = parts[rank].lock() {
                black_box(sum(&part));
            }
        });
        best = best.min(pass.elapsed().as_secs_f64());
    }
    (best.is_finite() && best > 0.0).then(|| (8 * each * threads) as f64 / best)
}

/// Sums in many lanes, so that loads and not additions limit the speed.
fn sum(x: &[f64]) -> f64 {
    let mut lanes = [0.0; 32];
    for chunk in x.chunks_exact(32) {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += x;
        }
    }
    lanes.iter().sum()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_plausible_number() {
        let Some(rate) = super::of_cpu(&crate::threads::Pool::new(1)) else { return };
        assert!((1e8..1e13).contains(&rate), "{rate:e}");
    }
}
