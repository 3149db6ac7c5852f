//! Finds, shows and runs commands, and reads their output.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The repository's root.
pub fn root() -> PathBuf {
    let own = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    own.as_deref().and_then(Path::parent).map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Returns cargo's target folder.
pub fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Returns true in CI, where a missing tool is an error instead of a reason to skip a step.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|v| !matches!(v.as_str(), "" | "0" | "false"))
}

/// Returns `cargo` at the root, without the variables that describe xtask itself: crates that read them would
/// be rebuilt.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(args);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") || text == "CARGO" {
            command.env_remove(&name);
        }
    }
    command
}

/// Returns `git` at the root. A checkout may belong to another user than the one who tests it, as in a
/// container.
pub fn git(args: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.args(["-c", "safe.directory=*"]).args(args).current_dir(root());
    command
}

/// Formats a command as a user would type it.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut words = vec![program.file_name().unwrap_or(program.as_os_str()).to_string_lossy()];
    words.extend(command.get_args().map(|a| a.to_string_lossy()));
    words.join(" ")
}

/// Runs a command whose output goes to the terminal; the error describes how it ended.
pub fn shell(command: &mut Command) -> Result<String, String> {
    println!("$ {}", shown(command));
    let status = command.status().map_err(|e| format!("{}: {e}", shown(command)))?;
    if status.success() { Ok(String::new()) } else { Err(format!("{status}")) }
}

/// Runs a command and returns its standard output; standard error goes to the terminal.
pub fn read(command: &mut Command) -> Result<String, String> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|e| format!("{}: {e}", shown(command)))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    print!("{said}"); // the output may contain the cause of the failure
    Err(format!("{}: {}", shown(command), output.status))
}

/// Returns true if the command exists and succeeds; prints nothing.
pub fn works(command: &mut Command) -> bool {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .stdin(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

/// Returns a quiet `pip install` of this Python.
pub fn pip_install(python: impl AsRef<Path>) -> Command {
    let mut command = Command::new(python.as_ref());
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "2"]);
    command
}

/// Runs tests, passes on their output line by line, and sums the counts in their closing lines.
pub fn run_tests(command: &mut Command) -> Result<String, String> {
    println!("$ {}", shown(command));
    let fail = |command: &Command, e: std::io::Error| format!("{}: {e}", shown(command));
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|e| fail(command, e))?;
    let mut counts = Counts::default();
    let mut lines = BufReader::new(child.stdout.take().expect("standard output is piped"));
    let (mut line, mut out) = (Vec::new(), std::io::stdout());
    while lines.read_until(b'\n', &mut line).map_err(|e| fail(command, e))? > 0 {
        out.write_all(&line).and_then(|()| out.flush()).map_err(|e| fail(command, e))?;
        counts.add(&String::from_utf8_lossy(&line));
        line.clear();
    }
    let status = child.wait().map_err(|e| fail(command, e))?;
    if status.success() { Ok(counts.text()) } else { Err(format!("{}; {status}", counts.text())) }
}

/// Sums of the counts in libtest's closing lines.
#[derive(Default)]
struct Counts {
    passed: usize,
    failed: usize,
    ignored: usize,
}

impl Counts {
    fn add(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else { return };
        for part in result.split([';', '.']) {
            let Some((number, what)) = part.trim().split_once(' ') else { continue };
            let Ok(number) = number.parse::<usize>() else { continue };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }

    fn text(&self) -> String {
        let failed = if self.failed > 0 { format!(", {} failed", self.failed) } else { String::new() };
        format!("{} tests passed{failed}, {} ignored", self.passed, self.ignored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_summed() {
        let mut counts = Counts::default();
        counts.add("test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.30s\n");
        counts.add("test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s\n");
        counts.add("test something ... ok\n");
        assert_eq!(counts.text(), "13 tests passed, 2 failed, 3 ignored");
    }
}
