//! Ctrl-C. In the iterations the first asks the solve to stop and keeps the best x so far, and the second ends the process;
//! before and after them the first one ends it.

use crate::failure::{INTERRUPTED, Result};
use crate::{output, process};
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

/// Nothing is worth keeping yet.
const SETTING_UP: u8 = 0;
/// A solve runs and watches.
const SOLVING: u8 = 1;
/// It was asked to stop.
const ASKED: u8 = 2;
/// The outcome is known.
const WRITING: u8 = 3;

static STATE: AtomicU8 = AtomicU8::new(SETTING_UP);

/// Catches Ctrl-C, `kill` and a lost terminal from here on, but for what is ignored already.
///
/// # Errors
/// What the operating system says.
pub fn watch() -> Result<()> {
    #[cfg(unix)]
    process::on_interrupt(on_signal)?;
    Ok(())
}

/// A signal handler: it may do little more than write and end the process.
#[cfg(unix)]
extern "C" fn on_signal(_: libc::c_int) {
    let asked = STATE.compare_exchange(SOLVING, ASKED, SeqCst, SeqCst);
    let line: &[u8] = match asked {
        Ok(_) => b"krylith: stopping; press Ctrl-C again to give up the best x so far\n",
        Err(SETTING_UP) => b"error: interrupted before the first iteration; there is nothing to keep\n",
        Err(ASKED) => b"error: interrupted again; the best x so far is given up\n",
        Err(_) => b"error: interrupted while files were written; each of them is whole or not there\n",
    };
    let line = if output::speaks() { line } else { &[] };
    match asked {
        Ok(_) => process::write(line),
        Err(_) => process::end(line, INTERRUPTED),
    }
}

/// From here on there is something to keep.
pub fn solving() {
    STATE.store(SOLVING, SeqCst);
}

/// From here on Ctrl-C ends the process again: the outcome is known, and files appear whole or not at all.
pub fn solved() {
    let _ = STATE.compare_exchange(SOLVING, WRITING, SeqCst, SeqCst);
}

/// True once Ctrl-C was pressed.
pub fn asked() -> bool {
    STATE.load(SeqCst) == ASKED
}
