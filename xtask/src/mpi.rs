//! What a build with MPI needs: looked for, and in CI installed.

use crate::shell::{in_ci, shell, works};
use std::process::Command;

/// An MPI library with headers, its launcher, and libclang, which reads the headers.
const PACKAGES: [&str; 4] = ["libopenmpi-dev", "openmpi-bin", "libclang-dev", "clang"];

/// Makes sure that all is there; the error says what is missing.
pub fn install() -> Result<(), String> {
    let Some(missing) = missing() else { return Ok(()) };
    let why = format!("{missing} is missing; on Debian and Ubuntu: apt-get install {}", PACKAGES.join(" "));
    if !in_ci() {
        return Err(why);
    }
    let get = |args: &[&str]| shell(apt_get().args(args));
    get(&["update", "-q"]).map_err(|e| format!("{why}; apt-get update: {e}"))?;
    get(&[&["install", "-q", "-y", "--no-install-recommends"], &PACKAGES[..]].concat())
        .map_err(|e| format!("{why}; apt-get install: {e}"))?;
    self::missing().map_or(Ok(()), |missing| Err(format!("{missing} is missing even after apt-get install")))
}

/// `apt-get`, through sudo where we are not root.
fn apt_get() -> Command {
    let root = std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
    let mut command = Command::new(if root { "env" } else { "sudo" });
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]);
    command
}

/// The first thing that is not here.
fn missing() -> Option<&'static str> {
    let has = |program| works(Command::new(program).arg("--version"));
    if !has("mpicc") {
        return Some("mpicc");
    }
    if !has("mpirun") {
        return Some("mpirun");
    }
    if !has_libclang() { Some("libclang") } else { None }
}

/// Where bindgen looks: `LIBCLANG_PATH`, beside `llvm-config`, and in the usual folders.
fn has_libclang() -> bool {
    if std::env::var_os("LIBCLANG_PATH").is_some() || works(Command::new("llvm-config").arg("--version")) {
        return true;
    }
    let entries = |folder: &str| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|e| e.path()).collect::<Vec<_>>()
    };
    let llvm = entries("/usr/lib").into_iter().filter(|p| p.to_string_lossy().contains("/llvm"));
    let mut folders: Vec<String> = llvm.map(|p| p.join("lib").to_string_lossy().into_owned()).collect();
    let usual = [
        "/usr/lib",
        "/usr/lib64",
        "/usr/local/lib",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
    ];
    folders.extend(usual.map(String::from));
    folders.iter().flat_map(|f| entries(f)).any(|p| {
        let name = p.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("libclang") && name.contains(".so") && !name.contains("cpp")
    })
}
