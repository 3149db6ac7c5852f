//! Properties of the host: processor, caches and memory.
//!
//! ```
//! use krylith_core::solver::host;
//! println!("{}, {} cores", host::model(), host::cores());
//! if let Some((all, free)) = host::memory() {
//!     assert!(free <= all); // bytes
//! }
//! ```

use crate::{Error, Result};
use std::fs::read_to_string;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Time for which a reading of free memory stays valid. A small solve is shorter, and would otherwise spend
/// half its time on readings.
const FRESH: Duration = Duration::from_millis(10);

/// Number of the process in which threads were started; 0 before that.
static HOME: AtomicU32 = AtomicU32::new(0);

/// Returns true if the parent of this process started threads before it forked. A solver inherited from it
/// must be neither used nor dropped.
pub fn is_forked() -> bool {
    !matches!(HOME.load(Relaxed), 0) && HOME.load(Relaxed) != std::process::id()
}

/// Records that this process starts threads. Returns an error if it was forked from a process that had
/// started threads, because a forked process does not have these threads. Interfaces for languages that fork
/// call this function before any that uses threads.
///
/// # Errors
/// A process that was forked from one that had used Krylith.
///
/// ```
/// krylith_core::solver::host::refuse_forked()?;
/// assert!(!krylith_core::solver::host::is_forked());
/// # Ok::<(), krylith::Error>(())
/// ```
pub fn refuse_forked() -> Result<()> {
    let here = std::process::id();
    match HOME.compare_exchange(0, here, Relaxed, Relaxed) {
        Ok(_) => Ok(()),
        Err(home) if home == here => Ok(()),
        Err(home) => Err(Error::Device {
            device: "the host".into(),
            call: "fork".into(),
            message: format!(
                "process {here} was forked from process {home} after Krylith had started threads there, \
                 which a fork does not copy; use Krylith only after the fork, or start processes without \
                 fork (in Python, multiprocessing.get_context(\"spawn\") or \"forkserver\")"
            ),
        }),
    }
}

/// Returns the processor's name.
pub fn model() -> String {
    static MODEL: OnceLock<String> = OnceLock::new();
    MODEL.get_or_init(read_model).clone()
}

fn read_model() -> String {
    let text = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split_once(':'));
    line.map_or_else(|| std::env::consts::ARCH.to_string(), |(_, name)| name.trim().to_string())
}

/// Returns the number of cores that this process may use, as determined on the first call.
pub fn cores() -> usize {
    crate::threads::cores()
}

/// Returns the name of the widest vector instructions, which the kernels select at run time.
pub fn simd() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if std::is_x86_feature_detected!("avx512f") {
            return "AVX-512";
        }
        if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
            return "AVX2 and FMA";
        }
        "SSE2"
    }
    #[cfg(target_arch = "aarch64")]
    {
        "NEON"
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        "none known"
    }
}

/// Returns the size of the last-level cache in bytes, if the system reports it.
pub fn last_cache() -> Option<u64> {
    (0..8)
        .filter_map(|i| read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{i}/size")).ok())
        .filter_map(|text| {
            let text = text.trim();
            let (digits, unit) =
                text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
            let scale = match unit {
                "K" => 1 << 10,
                "M" => 1 << 20,
                "G" => 1 << 30,
                _ => 1,
            };
            digits.parse::<u64>().ok()?.checked_mul(scale)
        })
        .max()
}

/// Returns the total number of bytes of memory, and the number that is available without swapping. The
/// reading is at most 10 ms old.
pub fn memory() -> Option<(u64, u64)> {
    /// Time of the reading, and its result.
    type Reading = (Instant, Option<(u64, u64)>);
    static LAST: Mutex<Option<Reading>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(|e| e.into_inner());
    match *last {
        Some((when, memory)) if when.elapsed() < FRESH => memory,
        _ => {
            let memory = read_memory();
            *last = Some((Instant::now(), memory));
            memory
        }
    }
}

fn read_memory() -> Option<(u64, u64)> {
    let text = read_to_string("/proc/meminfo").ok()?;
    let kib = |key: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(key))?;
        line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    };
    Some((kib("MemTotal:")?, kib("MemAvailable:")?))
}
