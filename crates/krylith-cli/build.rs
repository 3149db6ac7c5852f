//! Tells the command its compiler and its commit, for reports.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let compiler = std::env::var_os("RUSTC").and_then(|rustc| said(Command::new(rustc).arg("--version")));
    // Such as "rustc 1.91.0 (…)".
    let version = compiler.as_deref().and_then(|text| text.split_whitespace().nth(1)).unwrap_or_default();
    println!("cargo::rustc-env=KRYLITH_RUSTC={version}");
    println!("cargo::rustc-env=KRYLITH_COMMIT={}", commit().unwrap_or_default());
}

/// Returns the commit of an optimised build from a clone. A debug build has none, because each commit would
/// then recompile the command.
fn commit() -> Option<String> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if std::env::var("PROFILE").ok()? != "release" || !top.join("crates/krylith-cli/build.rs").exists() {
        return None;
    }
    let git = |words: &[&str]| said(Command::new("git").arg("-C").arg(&top).args(words));
    for name in ["HEAD", &git(&["symbolic-ref", "HEAD"]).unwrap_or_default(), "packed-refs"] {
        let path = git(&["rev-parse", "--git-path", name]).map(|path| top.join(path));
        if let Some(path) = path.filter(|path| path.is_file()) {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// Returns the output of a program, if it succeeds.
fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_string())
}
