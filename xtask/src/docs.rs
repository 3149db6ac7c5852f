//! Builds the site of docs/ with mdBook, used as a library.

use crate::shell::{cargo, git, read, root, target, works};
use crate::steps::Verdict;
use crate::tidy::commits::BASE;
use std::process::ExitCode;

/// Sources of the site, and of the program that builds it.
const INPUTS: [&str; 4] = ["docs", "README.md", "xtask/book", "xtask/src/docs.rs"];

/// `cargo xtask docs`: builds target/docs/index.html.
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

/// Builds the site if its sources changed since the last commit for which CI built it.
pub fn step() -> Verdict {
    match base().filter(|base| !changed_since(base)) {
        Some(base) => Verdict::Skipped(format!("{} are as in {base}", INPUTS.join(", "))),
        None => build().into(),
    }
}

/// Returns the newest commit that CI has seen before this one: the merge base with origin/main, else the last
/// tag before it, else the commit from which the rules apply. `None` if git knows none of them.
fn base() -> Option<String> {
    let said = |args: &[&str]| {
        let output = git(args).output().ok().filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok().map(|text| text.trim().to_string())
    };
    let head = said(&["rev-parse", "HEAD"])?;
    let parting = said(&["merge-base", "origin/main", "HEAD"]).filter(|commit| *commit != head);
    let tag = || said(&["describe", "--tags", "--abbrev=0", "HEAD^"]);
    let first = || said(&["rev-parse", "--quiet", "--verify", &format!("{BASE}^{{commit}}")]);
    parting.or_else(tag).or_else(first)
}

/// Returns true if the sources of the site differ from those of a commit, or if there are new ones.
fn changed_since(base: &str) -> bool {
    let with_inputs = |args: &[&str]| git(&[args, &["--"], &INPUTS].concat());
    let is_new = |names: Result<String, String>| names.is_ok_and(|names| !names.is_empty());
    !works(&mut with_inputs(&["diff", "--quiet", base]))
        || is_new(read(&mut with_inputs(&["ls-files", "--others", "--exclude-standard"])))
}

/// Builds the site; fails on a chapter that is missing, and on a link that leads nowhere.
pub fn build() -> Result<String, String> {
    let manifest = root().join("xtask/book/Cargo.toml");
    let mut command = cargo(&["run", "--quiet", "--locked", "--manifest-path"]);
    command.arg(manifest).arg("--target-dir").arg(target().join("xtask-book"));
    command.arg("--").arg(root().join("docs")).arg(target().join("docs")).arg(repository()?);
    read(&mut command).map(|pages| pages.trim().into())
}

/// Returns the address to which links to files outside the site lead.
fn repository() -> Result<String, String> {
    let manifest =
        std::fs::read_to_string(root().join("Cargo.toml")).map_err(|e| format!("Cargo.toml: {e}"))?;
    let line = manifest.lines().find_map(|line| line.strip_prefix("repository = "));
    line.map(|line| line.trim_matches('"').into()).ok_or_else(|| "Cargo.toml names no repository".into())
}
