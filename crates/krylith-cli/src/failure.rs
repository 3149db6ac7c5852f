//! How a command ends when it cannot do what was asked: one line on stderr and an exit code, never a backtrace.

use krylith_report::words::Language;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

/// Converged, or done.
pub const DONE: u8 = 0;
/// The solve ended without convergence; its outcome was named.
pub const NOT_CONVERGED: u8 = 1;
/// What the caller can mend: usage, input, output files.
pub const USAGE: u8 = 2;
/// The machine's part: memory, driver, library, device; or a bug of ours.
pub use krylith_report::process::MACHINE;
/// Ctrl-C.
pub const INTERRUPTED: u8 = 130;

/// What went wrong, and the exit code that goes with it.
#[derive(Debug, Clone)]
pub struct Failure {
    /// [`USAGE`] or [`MACHINE`].
    pub code: u8,
    /// Names the thing and the remedy.
    pub message: String,
    /// The other rank that it is about.
    pub rank: Option<usize>,
    /// All ranks know of it and stop where this one does.
    pub agreed: bool,
}

/// `Result` with a [`Failure`].
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Something the caller can mend.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { code: USAGE, message: message.into(), rank: None, agreed: false }
    }

    /// Something the machine lacks.
    pub fn machine(message: impl Into<String>) -> Self {
        Self { code: MACHINE, message: message.into(), rank: None, agreed: false }
    }

    /// Puts the option or file in front of the message.
    pub fn within(self, what: &str) -> Self {
        Self { message: format!("{what}: {}", self.message), ..self }
    }
}

impl From<krylith_core::Error> for Failure {
    fn from(error: krylith_core::Error) -> Self {
        let rank = if let krylith_core::Error::Rank { rank, .. } = &error { Some(*rank) } else { None };
        let flags = Language::Flags.remedies(&error);
        Self { code: error.exit_code(), message: format!("{error}{flags}"), rank, agreed: false }
    }
}

/// Runs a command and turns failures and panics into one line and an exit code.
pub fn guard(command: impl FnOnce() -> Result<u8>) -> u8 {
    static PANIC: Mutex<String> = Mutex::new(String::new());
    // The default hook prints a backtrace's worth of text; a user needs one line to send to us.
    std::panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let said = payload.downcast_ref::<&str>().copied();
        let said = said.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let said = said.unwrap_or("no message").replace('\n', " ");
        let place = info.location().map(|l| format!(" ({}:{})", l.file(), l.line())).unwrap_or_default();
        let mut first = PANIC.lock().unwrap_or_else(|e| e.into_inner());
        if first.is_empty() {
            *first = format!("{said}{place}");
        }
    }));
    match catch_unwind(AssertUnwindSafe(command)) {
        Ok(result) => {
            if let Err(failure) = &result
                && crate::ranks::prints(failure)
            {
                crate::output::error(&failure.message);
            }
            crate::ranks::leave(&result);
            result.unwrap_or_else(|failure| failure.code)
        }
        Err(_) => {
            let said = PANIC.lock().unwrap_or_else(|e| e.into_inner()).clone();
            crate::output::error(&format!("internal error, please report: {said}"));
            MACHINE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_one_line_and_exit_code_3() {
        let hook = std::panic::take_hook();
        let code = guard(|| panic!("a test of ours"));
        std::panic::set_hook(hook);
        assert_eq!(code, MACHINE);
        assert_eq!(guard(|| Err(Failure::usage("a test of ours"))), USAGE);
        let _ = std::panic::take_hook();
    }
}
