//! `cargo xtask package`: packs the crates as they would be published, and checks the packages.

use crate::shell::{cargo, read, target};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// Crates in the order of publication: each comes after its dependencies.
pub const PUBLISHED: [&str; 9] = [
    "krylith-base",
    "krylith-matrix",
    "krylith-core",
    "krylith",
    "krylith-plot",
    "krylith-report",
    "krylith-problems",
    "krylith-model",
    "krylith-cli",
];

/// Files that every package must contain.
const FILES: [&str; 4] = ["Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Checks all packages; with `--verify` also builds each from its package, which takes minutes.
pub fn run(verify: bool) -> ExitCode {
    match check(verify) {
        Ok(text) => {
            println!("package: {text}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("package: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Packs all crates together, because they depend on each other; a warning is an error.
pub fn check(verify: bool) -> Result<String, String> {
    let folder = target().join("xtask-package");
    let mut command = cargo(&["package", "--allow-dirty"]);
    // Only builds use the usual target folder, which already has the dependencies.
    if !verify {
        command.arg("--no-verify").arg("--target-dir").arg(&folder);
    }
    command.args(PUBLISHED.iter().flat_map(|name| ["--package", name]));
    let output = command.stdout(Stdio::null()).output().map_err(|e| format!("cargo package: {e}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let warnings: Vec<&str> = said.lines().filter(|line| line.starts_with("warning")).collect();
    if !output.status.success() || !warnings.is_empty() {
        return Err(format!("cargo package: {}\n{}", output.status, said.trim_end()));
    }
    let packages = if verify { target() } else { folder }.join("package");
    let version = crate::c::version()?;
    for name in PUBLISHED {
        holds(&packages.join(format!("{name}-{version}.crate")), &format!("{name}-{version}"))?;
    }
    Ok(format!("{}{}", PUBLISHED.join(", "), if verify { ", each built from its package" } else { "" }))
}

/// Refuses a package without its licences and its README.
fn holds(package: &Path, folder: &str) -> Result<(), String> {
    let list = read(Command::new("tar").arg("-tzf").arg(package))?;
    let missing = FILES.iter().find(|file| !list.lines().any(|line| line == format!("{folder}/{file}")));
    missing.map_or(Ok(()), |file| Err(format!("{} has no {file}", package.display())))
}
