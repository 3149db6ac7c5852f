//! Versions of a GPU's software, for reports.

use super::driver::devices;
use super::nvrtc::Nvrtc;
use cudarc::driver;

/// Versions of the software below a solve on a GPU; `None` if it is missing or its version is unknown.
///
/// # Examples
/// ```
/// use krylith_core::device::cuda::{Versions, devices};
/// // A machine with a GPU has a driver of some release, and one without has nothing of it.
/// assert_eq!(Versions::found().cuda.is_some(), devices().is_ok());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Versions {
    /// Release of the NVIDIA driver, such as `580.65.06`.
    pub driver: Option<String>,
    /// CUDA version of that driver, such as `13.0`.
    pub cuda: Option<String>,
    /// Version of the run-time compiler, such as `13.0`; `None` if kernels came with the program.
    pub nvrtc: Option<String>,
}

impl Versions {
    /// Returns the versions on this machine.
    pub fn found() -> Self {
        if devices().is_err() {
            return Self::default();
        }
        let mut version = 0;
        // SAFETY: writes one integer; the driver was found above.
        let _ = unsafe { driver::sys::cuDriverGetVersion(&mut version) };
        let text = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
        Self {
            driver: release(&text),
            cuda: (version > 0).then(|| format!("{}.{}", version / 1000, version % 1000 / 10)),
            nvrtc: compiler(),
        }
    }
}

fn compiler() -> Option<String> {
    let [major, minor] = Nvrtc::get().ok()?.version();
    Some(format!("{major}.{minor}"))
}

/// Returns the first word of the driver's text that consists of numbers separated by dots.
fn release(text: &str) -> Option<String> {
    let numbers = |word: &&str| word.contains('.') && word.split('.').all(|n| n.parse::<u32>().is_ok());
    text.lines().next()?.split_whitespace().find(numbers).map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_found_in_the_drivers_text() {
        let text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder)\nGCC 12.2";
        assert_eq!(release(text).as_deref(), Some("580.65.06"));
        assert_eq!(release(""), None);
    }

    #[test]
    fn without_a_gpu_nothing_has_a_version() {
        let found = Versions::found();
        assert_eq!(devices().is_err(), found == Versions::default(), "{found:?}");
    }
}
