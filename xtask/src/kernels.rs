//! `cargo xtask kernels`: the archive of compiled kernels that a release embeds.

use crate::nvrtc;
use crate::shell::{cargo, shell};
use std::path::Path;
use std::process::ExitCode;

/// Compiles the kernels with NVRTC; no GPU is needed.
pub fn run(file: &str) -> ExitCode {
    match pack(Path::new(file)) {
        Ok(()) => {
            println!("build with KRYLITH_EMBED={} to put them into the library", absolute(Path::new(file)));
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("cargo xtask kernels: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the archive to `file`.
pub fn pack(file: &Path) -> Result<(), String> {
    let library = nvrtc::install_for_embedding()?;
    let example = ["run", "--package", "krylith-core", "--example", "embed_kernels", "--"];
    let mut command = cargo(&example);
    command.arg(absolute(file));
    command.env("KRYLITH_NVRTC", library);
    shell(&mut command).map(|_| ())
}

/// Returns an absolute path, because cargo runs in another folder than the user's.
fn absolute(file: &Path) -> String {
    std::path::absolute(file).unwrap_or_else(|_| file.into()).display().to_string()
}
