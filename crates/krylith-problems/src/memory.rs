//! Refuses in advance work that needs more memory than the host has.

use krylith_core::{Error, Result};

/// Returns an error if `what` needs more bytes than the host has available, where that is known.
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

/// Returns the bytes that Linux can provide without swapping; `None` on other systems.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib.saturating_mul(1024))
}
