//! Debian packages that steps need: checks for them, and installs them in CI.

use crate::shell::{in_ci, shell};
use std::process::Command;

/// Makes sure that nothing is `missing`; the error names what is.
pub fn install(packages: &[&str], missing: impl Fn() -> Option<&'static str>) -> Result<(), String> {
    let Some(first) = missing() else { return Ok(()) };
    let why = format!("{first} is missing; on Debian and Ubuntu: apt-get install {}", packages.join(" "));
    if !in_ci() {
        return Err(why);
    }
    let get = |args: &[&str]| shell(apt_get().args(args));
    get(&["update", "-q"]).map_err(|e| format!("{why}; apt-get update: {e}"))?;
    get(&[&["install", "-q", "-y", "--no-install-recommends"], packages].concat())
        .map_err(|e| format!("{why}; apt-get install: {e}"))?;
    missing().map_or(Ok(()), |missing| Err(format!("{missing} is missing even after apt-get install")))
}

/// Returns the command `apt-get`, run through sudo if the user is not root.
fn apt_get() -> Command {
    let root = std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
    let mut command = Command::new(if root { "env" } else { "sudo" });
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]);
    command
}
