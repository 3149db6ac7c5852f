//! Detects whether other programs use the cores that a team would use.

use std::sync::OnceLock;

/// Number of idle cores, if the system reports it and this process may use all cores. `own` is the number of
/// this process's threads among those that run or wait for a core.
///
/// Costs some 10 µs and allocates nothing.
pub fn free_cores(own: usize, cores: usize) -> Option<usize> {
    use std::io::Read;
    let mut text = [0; 64];
    let read = std::fs::File::open("/proc/loadavg").and_then(|mut file| file.read(&mut text)).ok()?;
    let running = running(std::str::from_utf8(&text[..read]).ok()?)?;
    Some(cores.saturating_sub(running.saturating_sub(own)))
}

/// Number of cores of the machine, if this process may use all of them; otherwise other programs may run on
/// cores that it cannot use.
pub fn whole_machine() -> Option<usize> {
    static CORES: OnceLock<Option<usize>> = OnceLock::new();
    *CORES.get_or_init(all_cores)
}

fn all_cores() -> Option<usize> {
    let allowed = std::thread::available_parallelism().ok()?.get();
    // SAFETY: asks for a number.
    #[cfg(target_os = "linux")]
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    #[cfg(not(target_os = "linux"))]
    let online = 0;
    (online == allowed as i64).then_some(allowed)
}

/// Number of threads that run or wait for a core: the number before the slash in the fourth word of
/// `/proc/loadavg`.
fn running(loadavg: &str) -> Option<usize> {
    loadavg.split_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_fourth_word_counts_threads() {
        assert_eq!(super::running("0.20 1.18 12.12 17/802 11206\n"), Some(17));
        for text in ["", "0.20 0.18 0.12", "0.20 0.18 0.12 80 11206", "0.20 0.18 0.12 x/80 11206"] {
            assert_eq!(super::running(text), None, "{text}");
        }
    }
}
