//! The CPU's bandwidth limit: a = b + 3c with stores that bypass the caches, 24 bytes per element.

use krylith_core::device::cpu::Pool;
use std::sync::Mutex;
use std::time::Instant;

/// Returns the bytes a second of the best of ten passes over three arrays, together at least ten times the
/// last-level cache.
pub(crate) fn bandwidth(pool: &Pool) -> f64 {
    let elements = (10 * last_level_cache() / 24).clamp(1 << 22, 1 << 26);
    let threads = pool.threads();
    let mut parts: Vec<_> = (0..threads)
        .map(|_| Mutex::new((vec![0.0f64; elements / threads], Vec::<f64>::new(), Vec::<f64>::new())))
        .collect();
    // Each thread first touches its own pages.
    pool.run(pool.threads(), |rank| {
        let mut part = parts[rank].lock().unwrap_or_else(|e| e.into_inner());
        let n = part.0.len();
        (part.1, part.2) = (vec![1.0; n], vec![2.0; n]);
        part.0.fill(0.0);
    });
    let bytes = 24 * (elements / threads) * threads;
    let mut best = f64::INFINITY;
    for _ in 0..10 {
        let begin = Instant::now();
        pool.run(pool.threads(), |rank| {
            let (a, b, c) = &mut *parts[rank].lock().unwrap_or_else(|e| e.into_inner());
            triad(a, b, c);
        });
        best = best.min(begin.elapsed().as_secs_f64());
    }
    let part = parts[0].get_mut().unwrap_or_else(|e| e.into_inner());
    assert!(part.0.iter().all(|&a| a == 7.0), "the triad is wrong");
    bytes as f64 / best
}

#[cfg(target_arch = "x86_64")]
fn triad(a: &mut [f64], b: &[f64], c: &[f64]) {
    use std::arch::x86_64::{_mm_add_pd, _mm_loadu_pd, _mm_mul_pd};
    use std::arch::x86_64::{_mm_set1_pd, _mm_sfence, _mm_stream_pd};
    let n = a.len().min(b.len()).min(c.len());
    // A streaming store needs 16-byte alignment.
    let mut i = a.as_ptr().align_offset(16).min(n);
    for k in 0..i {
        a[k] = b[k] + 3.0 * c[k];
    }
    while i + 2 <= n {
        // SAFETY: SSE2 is part of x86-64; i + 1 < n bounds all three slices; `a[i]` is aligned by the steps
        // above.
        unsafe {
            let three = _mm_set1_pd(3.0);
            let (b, c) = (_mm_loadu_pd(b.as_ptr().add(i)), _mm_loadu_pd(c.as_ptr().add(i)));
            _mm_stream_pd(a.as_mut_ptr().add(i), _mm_add_pd(b, _mm_mul_pd(three, c)));
        }
        i += 2;
    }
    for k in i..n {
        a[k] = b[k] + 3.0 * c[k];
    }
    // SAFETY: SSE is part of x86-64; orders the streaming stores before later accesses.
    unsafe { _mm_sfence() }
}

#[cfg(not(target_arch = "x86_64"))]
fn triad(a: &mut [f64], b: &[f64], c: &[f64]) {
    for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
        *a = b + 3.0 * c;
    }
}

/// Returns the bytes of the largest cache that the system reports, or 32 MB.
fn last_level_cache() -> usize {
    let size = |i: usize| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{i}/size");
        let text = std::fs::read_to_string(path).ok()?;
        let number: usize = text.trim().trim_end_matches(['K', 'M']).parse().ok()?;
        Some(if text.contains('M') { number << 20 } else { number << 10 })
    };
    (0..5).filter_map(size).max().unwrap_or(32 << 20)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_triad_is_right_at_any_length_and_alignment() {
        for n in 0..20 {
            for offset in 0..3 {
                let (b, c) = (vec![1.0; 24], (0..24).map(f64::from).collect::<Vec<_>>());
                let mut a = [-1.0; 24];
                super::triad(&mut a[offset..offset + n], &b[offset..], &c[offset..]);
                for i in 0..24 {
                    let inside = i >= offset && i < offset + n;
                    assert_eq!(a[i], if inside { 1.0 + 3.0 * i as f64 } else { -1.0 });
                }
            }
        }
    }
}
