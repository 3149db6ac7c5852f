//! Builds a wheel of the Python package, installs it into an empty environment, and tests it there.

use crate::mpi;
use crate::shell::{pip_install, read, root, shell, target, works};
use crate::steps::Verdict;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Tools that build a wheel and check the types of the package.
const TOOLS: [&str; 3] = ["maturin>=1.9,<2", "mypy>=1.15,<3", "twine>=6,<7"];

/// `cargo xtask python`: builds an optimised wheel in `target/wheels`, and tests it.
pub fn run() -> ExitCode {
    let launchers = mpi::install().unwrap_or_default(); // ranks are tested if MPI is available
    match test(&["--release"], &launchers) {
        Ok(text) => {
            println!("python: {text}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("python: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the folder of programs of an environment with these tools and the packages `more`.
pub fn tools(more: &[&str]) -> Result<PathBuf, String> {
    let tools = target().join("xtask-python");
    environment(&tools, false)?;
    pip(&tools, &[&TOOLS, more].concat().into_iter().map(String::from).collect::<Vec<_>>())?;
    Ok(tools.join("bin"))
}

/// Builds a wheel with these arguments and environment variables.
pub fn build(arguments: &[&str], variables: &[(String, String)]) -> Result<PathBuf, String> {
    let tools = tools(&[])?;
    let wheels = target().join("wheels");
    let _ = std::fs::remove_dir_all(&wheels); // missing on the first run
    let mut maturin = Command::new(tools.join("maturin"));
    maturin.args(["build", "--quiet", "--out"]).arg(&wheels).args(arguments);
    maturin.envs(variables.iter().map(|(name, value)| (name, value)));
    shell(maturin.current_dir(root().join("crates/krylith-py")))?;
    wheel(&wheels)
}

/// Builds a wheel with these arguments, and tests it in an environment that has nothing of the build. Tests
/// with ranks run under the launchers in these folders, too.
pub fn test(arguments: &[&str], launchers: &[PathBuf]) -> Result<String, String> {
    // The wheel is for this machine only, so nothing is copied into it.
    let wheel = build(&[&["--auditwheel", "skip"], arguments].concat(), &[])?;
    let (tools, package) = (target().join("xtask-python"), root().join("crates/krylith-py"));
    // A package index refuses a wheel whose description or metadata it cannot read.
    let index = ["-m", "twine", "check", "--strict"];
    shell(Command::new(tools.join("bin/python3")).args(index).arg(&wheel))?;
    let empty = target().join("xtask-wheel");
    environment(&empty, true)?;
    pip(&empty, &[format!("{}[test]", wheel.display())])?;
    let python = empty.join("bin/python3");
    let types =
        ["-m", "mypy", "--strict", "--ignore-missing-imports", "--package", "krylith", "--python-executable"];
    shell(Command::new(tools.join("bin/python3")).args(types).arg(&python).current_dir(&tools))?;
    let said = read(
        Command::new(&python)
            .args([
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "--import-mode=append",
                "--pyargs",
                "tests",
                "krylith",
            ])
            .env(mpi::VARIABLE, mpi::listed(launchers))
            .current_dir(&package),
    )?;
    print!("{said}");
    let size = std::fs::metadata(&wheel).map_or(0, |m| m.len());
    let last = said.lines().rev().find(|line| line.contains("passed")).unwrap_or("no test").trim();
    Ok(format!("wheel of {:.1} MiB; {last}", size as f64 / f64::from(1 << 20)))
}

/// As [`test`], if Python and the tools are available.
pub fn step(build: &[&str], launchers: &[PathBuf], missing: impl FnOnce(String) -> Verdict) -> Verdict {
    if !works(Command::new("python3").args(["-m", "venv", "--help"])) {
        return missing("python3 with venv is missing".into());
    }
    match tools(&[]) {
        Ok(_) => test(build, launchers).into(),
        Err(why) => missing(why),
    }
}

fn environment(folder: &Path, anew: bool) -> Result<(), String> {
    if !anew && works(Command::new(folder.join("bin/python3")).args(["-m", "pip", "--version"])) {
        return Ok(());
    }
    shell(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder)).map(drop)
}

fn pip(environment: &Path, packages: &[String]) -> Result<(), String> {
    shell(pip_install(environment.join("bin/python3")).args(packages))
        .map(drop)
        .map_err(|e| format!("pip could not install {}: {e}", packages.join(", ")))
}

/// Returns the wheel that was built last.
pub fn last_wheel() -> Result<PathBuf, String> {
    wheel(&target().join("wheels"))
}

fn wheel(folder: &Path) -> Result<PathBuf, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let found = entries.flatten().map(|e| e.path()).find(|p| p.extension().is_some_and(|e| e == "whl"));
    found.ok_or_else(|| format!("maturin left no wheel in {}", folder.display()))
}
