//! Failures of a command: one line on stderr and an exit code, never a backtrace.

use krylith_report::words::Language;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

/// The solve converged, or the command succeeded.
pub const DONE: u8 = 0;
/// The solve did not converge; its outcome was printed.
pub const NOT_CONVERGED: u8 = 1;
/// An error that the caller can correct: usage, input or output files.
pub const USAGE: u8 = 2;
/// An error of the machine (memory, driver, library or device), or a bug in Krylith.
pub use krylith_report::process::MACHINE;
/// Ctrl-C ended the command.
pub const INTERRUPTED: u8 = 130;

/// An error message, and the exit code that belongs to it.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The exit code, [`USAGE`] or [`MACHINE`].
    pub code: u8,
    /// The text, which names the cause and the remedy.
    pub message: String,
    /// The other rank that failed, if it was not this one.
    pub rank: Option<usize>,
    /// True if all ranks know of the failure, and stop at the same point.
    pub agreed: bool,
}

/// Returns the exit code of a command whose outcome has `code`, and some of whose outputs were lost. A lost
/// output file has priority over the outcome, which was printed before; Ctrl-C has priority over both.
pub fn code_with(code: u8, lost: &[Failure]) -> u8 {
    match lost.first() {
        Some(failure) if code != INTERRUPTED => failure.code,
        _ => code,
    }
}

/// A `Result` whose error is a [`Failure`].
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Creates a failure that the caller can correct.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { code: USAGE, message: message.into(), rank: None, agreed: false }
    }

    /// Creates a failure of the machine.
    pub fn machine(message: impl Into<String>) -> Self {
        Self { code: MACHINE, message: message.into(), rank: None, agreed: false }
    }

    /// Puts the name of an option or a file in front of the message.
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
    // The default hook prints many lines; a user needs one line for a bug report.
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
