//! System services of the command: signals, threads, and the state of standard output at the start. This is
//! the only file of the command with `unsafe`.

use crate::failure::{Failure, Result};
use crate::ranks;
use krylith_core::solver::host;
use krylith_core::text::plural;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// True if standard output was closed when the process started.
static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Runs before Rust's runtime starts, which replaces a closed standard output by /dev/null.
#[cfg(any(target_os = "linux", target_os = "macos"))]
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
#[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__mod_init_func"))]
static BEFORE_ALL: extern "C" fn() = look_at_stdout;

#[cfg(any(target_os = "linux", target_os = "macos"))]
extern "C" fn look_at_stdout() {
    // SAFETY: reads the flags of a descriptor, which need not be open.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    STDOUT_CLOSED.store(flags == -1, SeqCst);
}

/// Returns true if standard output was closed when the process started, so that text written to it is lost.
pub fn stdout_is_closed() -> bool {
    STDOUT_CLOSED.load(SeqCst)
}

/// Installs `handler` for Ctrl-C, `kill` and a lost terminal. A signal that is ignored already stays ignored,
/// as `nohup` needs.
///
/// `handler` must not allocate or lock, like any signal handler.
///
/// # Errors
/// The system reports an error.
#[cfg(unix)]
pub fn on_interrupt(handler: extern "C" fn(libc::c_int)) -> Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: both structures are plain data that the system fills or reads; the handler has the type
        // that it expects.
        let done = unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            let mut after: libc::sigaction = std::mem::zeroed();
            after.sa_sigaction = handler as *const () as libc::sighandler_t;
            after.sa_flags = libc::SA_RESTART;
            match libc::sigaction(signal, std::ptr::null(), &mut before) {
                0 if before.sa_sigaction == libc::SIG_IGN => 0,
                0 => libc::sigaction(signal, &after, std::ptr::null_mut()),
                failed => failed,
            }
        };
        if done != 0 {
            let e = std::io::Error::last_os_error();
            return Err(Failure::machine(format!("cannot catch signal {signal}: {e}")));
        }
    }
    Ok(())
}

/// Starts the threads that read, partition and generate systems: `asked` of them, or this rank's share of the
/// cores. Without this call they start on first use, and panic if they cannot.
///
/// # Errors
/// The system cannot start the threads.
pub fn start_threads(asked: Option<usize>) -> Result<()> {
    let (cores, here) = (host::cores(), ranks::comm().host().ranks_on_host.len());
    let count = asked.unwrap_or(cores / here).clamp(1, cores);
    rayon::ThreadPoolBuilder::new().num_threads(count).build_global().map_err(|e| {
        let count = plural(count, "thread");
        Failure::machine(format!(
            "the system refuses to start {count} ({e}); \
             raise the process limit (ulimit -u) or the memory limit"
        ))
    })
}
