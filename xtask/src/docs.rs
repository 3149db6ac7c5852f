//! The site of docs/, made by mdBook as a library.

use crate::shell::{cargo, read, root, target};
use std::process::ExitCode;

/// `cargo xtask docs`: target/docs/index.html.
pub fn run() -> ExitCode {
    match build() {
        Ok(pages) => {
            println!("docs: {pages} in {}", target().join("docs").display());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("docs: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the site; fails on a chapter that is missing, and on a link that leads nowhere.
pub fn build() -> Result<String, String> {
    let manifest = root().join("xtask/book/Cargo.toml");
    let mut command = cargo(&["run", "--quiet", "--locked", "--manifest-path"]);
    command.arg(manifest).arg("--target-dir").arg(target().join("xtask-book"));
    command.arg("--").arg(root().join("docs")).arg(target().join("docs")).arg(repository()?);
    read(&mut command).map(|pages| pages.trim().into())
}

/// Where links to files that are no pages lead.
fn repository() -> Result<String, String> {
    let manifest =
        std::fs::read_to_string(root().join("Cargo.toml")).map_err(|e| format!("Cargo.toml: {e}"))?;
    let line = manifest.lines().find_map(|line| line.strip_prefix("repository = "));
    line.map(|line| line.trim_matches('"').into()).ok_or_else(|| "Cargo.toml names no repository".into())
}
