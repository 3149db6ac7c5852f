//! Ctrl-C. In the iterations, and in a set-up between them, the first asks the solve to stop and keeps the best x so far, and the second ends
//! the process; while files are written the first lets them be finished; before all that the first one ends it.

use crate::failure::{INTERRUPTED, Result};
use crate::{output, process};
use krylith_core::solver::Cancel;
use krylith_report::process::{end, remove_at_end, write};
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

/// Nothing is worth keeping yet.
const SETTING_UP: u8 = 0;
/// A solve runs and watches.
const SOLVING: u8 = 1;
/// It was asked to stop.
const ASKED: u8 = 2;
/// The outcome is known.
const WRITING: u8 = 3;
/// A signal came meanwhile.
const FINISHING: u8 = 4;

static STATE: AtomicU8 = AtomicU8::new(SETTING_UP);

/// Catches Ctrl-C, `kill` and a lost terminal from here on, but for what is ignored already. Temporary files go with the process.
///
/// # Errors
/// What the operating system says.
pub fn watch() -> Result<()> {
    krylith_core::io::atomic::on_temporary(remove_at_end);
    #[cfg(unix)]
    process::on_interrupt(on_signal)?;
    Ok(())
}

/// A signal handler: it may do little more than write and end the process.
#[cfg(unix)]
extern "C" fn on_signal(_: libc::c_int) {
    let went_on = STATE.fetch_update(SeqCst, SeqCst, |state| match state {
        SOLVING => Some(ASKED),
        WRITING => Some(FINISHING),
        _ => None,
    });
    let line: &[u8] = match went_on {
        Ok(SOLVING) => b"krylith: stopping; press Ctrl-C again to give up the best x so far\n",
        Ok(_) => b"krylith: files are being written; press Ctrl-C again to give up those that are not done\n",
        Err(SETTING_UP) => b"error: interrupted before the first iteration; there is nothing to keep\n",
        Err(ASKED) => b"error: interrupted again; the best x so far is given up\n",
        Err(_) => b"error: interrupted again while files were written; each of them is whole or not there\n",
    };
    let line = if output::speaks() { line } else { &[] };
    match went_on {
        Ok(_) => write(line),
        Err(_) => end(line, INTERRUPTED),
    }
}

/// From here on there is something to keep.
pub fn solving() {
    STATE.store(SOLVING, SeqCst);
}

/// From here on files are written, which a first Ctrl-C does not stop: the work was done.
pub fn writing() {
    STATE.store(WRITING, SeqCst);
}

/// True once a solve was asked to stop.
pub fn asked() -> bool {
    STATE.load(SeqCst) == ASKED
}

/// What a solver's caller does while the solver works: it passes Ctrl-C on, which nothing else looks at between iterations.
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

    /// Between iterations nothing else looks at the signal.
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
