//! What the command has from its system, and needs `unsafe` or words to the system for: signals, threads, what was closed before
//! it began. The one file of the command with `unsafe`.

use crate::failure::{Failure, Result};
use crate::ranks;
use krylith_core::solver::host;
use krylith_core::text::plural;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Whether standard output was closed when the process began.
static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Looks before Rust's runtime begins, which opens /dev/null in place of what is closed.
#[cfg(any(target_os = "linux", target_os = "macos"))]
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
#[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__mod_init_func"))]
static BEFORE_ALL: extern "C" fn() = look_at_stdout;

#[cfg(any(target_os = "linux", target_os = "macos"))]
extern "C" fn look_at_stdout() {
    // SAFETY: asks for the flags of a descriptor, which need not be open.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    STDOUT_CLOSED.store(flags == -1, SeqCst);
}

/// True where standard output was closed when the process began: what is written to it is lost.
pub fn stdout_is_closed() -> bool {
    STDOUT_CLOSED.load(SeqCst)
}

/// Has `handler` called on Ctrl-C, `kill` and a lost terminal. One that is ignored already stays so: `nohup` asked for it.
///
/// `handler` must do no more than a signal handler may: neither allocate nor lock.
///
/// # Errors
/// What the system says.
#[cfg(unix)]
pub fn on_interrupt(handler: extern "C" fn(libc::c_int)) -> Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: both structures are plain data, which the system fills or reads; the handler's type is as it wants.
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

/// Starts the threads that read, cut and generate systems, which otherwise start by themselves and panic if they cannot: as many as are asked for,
/// or this rank's share of the cores.
///
/// # Errors
/// The system refuses some.
pub fn start_threads(asked: Option<usize>) -> Result<()> {
    let (cores, here) = (host::cores(), ranks::comm().host().ranks_on_host.len());
    let count = asked.unwrap_or(cores / here).clamp(1, cores);
    rayon::ThreadPoolBuilder::new().num_threads(count).build_global().map_err(|e| {
        let count = plural(count, "thread");
        Failure::machine(format!(
            "the system refuses to start {count} ({e}); raise the limit of processes (ulimit -u) or of memory"
        ))
    })
}
