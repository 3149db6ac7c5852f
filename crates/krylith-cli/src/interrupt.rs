//! Ctrl-C. Before the first iteration it ends the process. During a solve the first one cancels the solve,
//! which keeps the best x found so far, and the second ends the process. While files are written, the first
//! one lets them be finished, and the second ends the process.

use crate::failure::{INTERRUPTED, Result};
use crate::{output, process};
use krylith_core::solver::Cancel;
use krylith_report::process::{end, remove_at_end, write};
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

/// Before the solve: there is no x to keep yet.
const SETTING_UP: u8 = 0;
/// A solve runs and checks for cancellation.
const SOLVING: u8 = 1;
/// The solve was asked to stop.
const ASKED: u8 = 2;
/// The outcome is known, and files are written.
const WRITING: u8 = 3;
/// A signal came while files were written.
const FINISHING: u8 = 4;

static STATE: AtomicU8 = AtomicU8::new(SETTING_UP);

/// Catches Ctrl-C, `kill` and a lost terminal from now on, except for signals that are ignored already.
/// Temporary files are removed when a signal ends the process.
///
/// # Errors
/// The operating system reports an error.
pub fn watch() -> Result<()> {
    krylith_core::io::atomic::on_temporary(remove_at_end);
    #[cfg(unix)]
    process::on_interrupt(on_signal)?;
    Ok(())
}

/// The signal handler, which may do little more than write and end the process.
#[cfg(unix)]
extern "C" fn on_signal(_: libc::c_int) {
    let went_on = STATE.fetch_update(SeqCst, SeqCst, |state| match state {
        SOLVING => Some(ASKED),
        WRITING => Some(FINISHING),
        _ => None,
    });
    let line: &[u8] = match went_on {
        Ok(SOLVING) => {
            b"krylith: stopping the solve; press Ctrl-C again to end at once and lose the best x\n"
        }
        Ok(_) => {
            b"krylith: files are being written; press Ctrl-C again to end at once and lose unfinished files\n"
        }
        Err(SETTING_UP) => b"error: interrupted before the first iteration; there is nothing to keep\n",
        Err(ASKED) => b"error: interrupted again; the best x is lost\n",
        Err(_) => b"error: interrupted again while files were written; each file is complete or missing\n",
    };
    let line = if output::speaks() { line } else { &[] };
    match went_on {
        Ok(_) => write(line),
        Err(_) => end(line, INTERRUPTED),
    }
}

/// Marks the start of a solve: from now on there is an x to keep.
pub fn solving() {
    STATE.store(SOLVING, SeqCst);
}

/// Marks the start of writing files, which the first Ctrl-C does not stop.
pub fn writing() {
    STATE.store(WRITING, SeqCst);
}

/// Returns true once the solve was asked to stop.
pub fn asked() -> bool {
    STATE.load(SeqCst) == ASKED
}

/// Returns a function that the solver calls while it works, and that cancels it after Ctrl-C. Nothing else
/// checks for Ctrl-C in a set-up.
pub fn passed_on_to(cancel: &Cancel) -> Box<dyn FnMut() + Send> {
    let cancel = cancel.clone();
    Box::new(move || {
        if asked() {
            cancel.cancel();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a set-up nothing else checks for the signal.
    #[test]
    fn a_solve_that_sets_up_hears_of_ctrl_c() {
        let cancel = Cancel::default();
        let mut look = passed_on_to(&cancel);
        solving();
        look();
        assert!(!cancel.is_cancelled() && !asked());
        STATE.store(ASKED, SeqCst);
        look();
        assert!(cancel.is_cancelled() && asked());
        writing();
        assert!(!asked());
    }
}
