//! Ctrl-C: the first asks the solve to stop and keeps the best x so far, the second ends the process.

use crate::failure::{Failure, INTERRUPTED, Result};
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

/// Nothing is worth keeping yet: the first Ctrl-C ends the process.
const IDLE: u8 = 0;
/// A solve runs and watches.
const SOLVING: u8 = 1;
/// It was asked to stop.
const ASKED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(IDLE);

/// Catches Ctrl-C, `kill` and a lost terminal from here on.
///
/// # Errors
/// What the operating system says.
pub fn watch() -> Result<()> {
    ctrlc::set_handler(|| {
        if STATE.compare_exchange(SOLVING, ASKED, SeqCst, SeqCst).is_err() {
            std::process::exit(INTERRUPTED.into());
        }
        crate::output::note("stopping; press Ctrl-C again to give up the best x so far");
    })
    .map_err(|e| Failure::machine(format!("cannot catch Ctrl-C: {e}")))
}

/// From here on there is something to keep.
pub fn solving() {
    STATE.store(SOLVING, SeqCst);
}

/// From here on Ctrl-C ends the process again: the outcome is known, and files appear whole or not at all.
pub fn solved() {
    let _ = STATE.compare_exchange(SOLVING, IDLE, SeqCst, SeqCst);
}

/// True once Ctrl-C was pressed.
pub fn asked() -> bool {
    STATE.load(SeqCst) == ASKED
}
