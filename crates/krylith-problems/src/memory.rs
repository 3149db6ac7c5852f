//! A request for more memory than the host has is refused before it is made.

use krylith_core::{Error, Result};

/// Refuses `needed` bytes for `what` where the host is known to have less available.
pub(crate) fn check(what: &str, needed: u64) -> Result<()> {
    match available() {
        Some(free) if needed > free => Err(Error::Memory {
            what: what.into(),
            needed,
            free,
            place: "the host".into(),
            remedy: "choose a smaller size",
        }),
        _ => Ok(()),
    }
}

/// Bytes that Linux says can be had without swapping; nothing is known elsewhere.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib.saturating_mul(1024))
}
