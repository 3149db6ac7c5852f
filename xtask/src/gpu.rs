//! `cargo xtask gpu`: builds binaries for a GPU machine without Rust, and the script that runs them.
//!
//! The build needs nothing of CUDA: the driver, NVRTC and NCCL are found at run time, on the GPU machine.

use crate::bench::SUITES;
use crate::shell::{cargo, read, root, shell, target};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const SCRIPT: &str = include_str!("run.sh");

/// Integration tests that need a GPU: package and test.
const TESTS: [(&str, &str); 2] = [("krylith-core", "cuda"), ("krylith-problems", "gpu")];

/// Largest total size in bytes.
const LIMIT: u64 = 64 << 20;

pub fn run() -> ExitCode {
    match build(&root().join("gpu-out")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("cargo xtask gpu: {why}");
            ExitCode::FAILURE
        }
    }
}

fn build(out: &Path) -> Result<(), String> {
    let io = |e: std::io::Error| format!("{}: {e}", out.display());
    if out.exists() {
        fs::remove_dir_all(out).map_err(io)?;
    }
    fs::create_dir_all(out.join("tests")).map_err(io)?;

    // As in a release, kernels of the common sizes are embedded, if NVRTC is available.
    let archive = target().join("kernels.bin");
    let embedded = crate::kernels::pack(&archive);
    if let Err(why) = &embedded {
        println!("kernels are not embedded: {why}");
    }
    // The suites are in the same folder as the command, where `krylith bench` finds them.
    let build = ["build", "--release", "--package", "krylith-cli", "--package", "krylith-bench", "--bins"];
    for made in executables(&build, embedded.is_ok().then_some(&archive))? {
        place(&made, &out.join(made.file_name().unwrap_or_default()))?;
    }
    for (package, test) in TESTS {
        let file = Path::new("crates").join(package).join("tests").join(test).with_extension("rs");
        if !root().join(&file).exists() {
            println!("skipped: {} does not exist", file.display());
            continue;
        }
        let build = ["test", "--no-run", "--package", package, "--test", test];
        for made in executables(&build, None)? {
            place(&made, &out.join("tests").join(format!("{package}-{test}")))?;
        }
    }
    fs::write(out.join("suites.txt"), SUITES.iter().map(|s| format!("{s}\n")).collect::<String>())
        .map_err(io)?;
    fs::write(out.join("build.txt"), versions()).map_err(io)?;
    fs::write(out.join("run.sh"), SCRIPT).map_err(io)?;
    fs::set_permissions(out.join("run.sh"), fs::Permissions::from_mode(0o755)).map_err(io)?;

    // Compressed together they shrink to a third, and one file is easy to copy.
    let packed = ["krylith", "krylith-bench", "tests"];
    shell(Command::new("tar").arg("-C").arg(out).arg("-cJf").arg(out.join("binaries.tar.xz")).args(packed))?;
    for made in packed {
        let path = out.join(made);
        if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }.map_err(io)?;
    }

    let total = size(out).map_err(io)?;
    println!(
        "{}: {:.1} MiB; run gpu-out/run.sh on the GPU machine",
        out.display(),
        total as f64 / (1 << 20) as f64
    );
    if total > LIMIT {
        return Err(format!("{total} bytes; at most {LIMIT} are allowed"));
    }
    Ok(())
}

/// Runs cargo, and returns the executables that it reports.
fn executables(args: &[&str], embed: Option<&PathBuf>) -> Result<Vec<PathBuf>, String> {
    println!("$ cargo {}", args.join(" "));
    let mut command = cargo(args);
    command.arg("--message-format=json-render-diagnostics");
    if let Some(archive) = embed {
        command.env("KRYLITH_EMBED", archive);
    }
    let messages = read(&mut command)?;
    let made: Vec<_> = messages.lines().filter_map(executable).collect();
    if made.is_empty() { Err(format!("cargo {} made no executable", args.join(" "))) } else { Ok(made) }
}

/// Returns the executable in one of cargo's messages.
fn executable(message: &str) -> Option<PathBuf> {
    let (_, rest) = message.split_once(r#""executable":""#)?;
    let mut path = String::new();
    let mut rest = rest.chars();
    loop {
        match rest.next()? {
            '"' => return Some(path.into()),
            '\\' => path.push(rest.next()?),
            c => path.push(c),
        }
    }
}

/// Copies a file without its symbols, which are most of the bytes.
fn place(from: &Path, to: &Path) -> Result<(), String> {
    fs::copy(from, to).map_err(|e| format!("{}: {e}", from.display()))?;
    shell(Command::new("strip").arg(to)).map(drop)
}

/// Returns the commit and the versions of tools of the build.
fn versions() -> String {
    let line = |program: &str, args: &[&str]| {
        let said = read(Command::new(program).args(args).current_dir(root()));
        said.map_or_else(|_| format!("{program}: unknown"), |s| s.trim().to_string())
    };
    let commit = line("git", &["rev-parse", "HEAD"]);
    let dirty = if line("git", &["status", "--porcelain"]).is_empty() { "" } else { " with changes" };
    format!(
        "commit {commit}{dirty}\n{}\n{}\n",
        line("rustc", &["--version"]),
        line("ldd", &["--version"]).lines().next().unwrap_or_default()
    )
}

fn size(folder: &Path) -> std::io::Result<u64> {
    fs::read_dir(folder)?.try_fold(0, |sum, entry| {
        let (path, meta) = entry.and_then(|e| Ok((e.path(), e.metadata()?)))?;
        Ok(sum + if meta.is_dir() { size(&path)? } else { meta.len() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_read_from_messages() {
        let message = r#"{"reason":"compiler-artifact","executable":"a\\b/cuda-1f","fresh":true}"#;
        assert_eq!(executable(message), Some(r"a\b/cuda-1f".into()));
        assert_eq!(executable(r#"{"reason":"compiler-artifact","executable":null}"#), None);
    }
}
