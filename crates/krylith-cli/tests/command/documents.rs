//! Runs the commands in documents, and checks that they print what the documents show.
//!
//! In a `console` block each line after `$ ` is run. The lines below it must occur in its output, in order;
//! any number matches a number, and `…` matches anything. If `error:` is shown the command must fail,
//! otherwise it must succeed. In an `sh` block, lines that begin with `krylith` are run and must succeed; a
//! script with `#!` is parsed by the shell and not run. Other blocks are not run: `text` is for examples that
//! need a GPU or another machine.

use crate::common::{Folder, mtx};
use std::path::Path;
use std::process::Command;

#[test]
fn readme() {
    runs("README.md");
}

#[test]
fn a_first_solve() {
    runs("docs/first-solve.md");
}

#[test]
fn elasticity() {
    runs("docs/elasticity.md");
}

#[test]
fn stokes() {
    runs("docs/stokes.md");
}

#[test]
fn coupled() {
    runs("docs/coupled.md");
}

#[test]
fn newton() {
    runs("docs/newton.md");
}

#[test]
fn many_gpus() {
    runs("docs/many-gpus.md");
}

#[test]
fn choosing() {
    runs("docs/choosing.md");
}

#[test]
fn troubleshooting() {
    runs("docs/troubleshooting.md");
}

/// Runs the blocks of a document, in a folder with the A.mtx and b.npy that its Python code writes.
fn runs(name: &str) {
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap();
    let f = Folder::new();
    poisson(&f, 50);
    let mut count = 0;
    for (language, block) in blocks(&text) {
        match language {
            "console" => count += console(&f, name, &block),
            "sh" if block.starts_with("#!") => {
                f.write("script", &block);
                assert!(shell(&f, "sh -n script").1, "{name}: sh does not read\n{block}");
            }
            "sh" => count += script(&f, name, &block),
            _ => {}
        }
    }
    assert!(count > 0, "{name} has no commands");
}

/// Writes the matrix of Poisson's equation on n×n nodes, and a right-hand side.
fn poisson(f: &Folder, n: usize) {
    let mut entries = Vec::new();
    for i in 0..n * n {
        let mut entry = |present: bool, j: usize, v| present.then(|| entries.push((i + 1, j + 1, v)));
        entry(i >= n, i.wrapping_sub(n), -1.0);
        entry(i % n > 0, i.wrapping_sub(1), -1.0);
        entry(true, i, 4.0);
        entry(i % n < n - 1, i + 1, -1.0);
        entry(i + n < n * n, i + n, -1.0);
    }
    f.write("A.mtx", mtx(n * n, n * n, &entries));
    let b = krylith_core::io::Array::vector((0..n * n).map(|i| i as f64 / (n * n - 1) as f64).collect());
    krylith_core::io::numpy::write(f.path("b.npy"), &b).unwrap();
}

/// Returns fenced blocks with their languages.
fn blocks(text: &str) -> Vec<(&str, String)> {
    let (mut found, mut open) = (Vec::new(), None::<(&str, String)>);
    for line in text.lines() {
        match (line.strip_prefix("```"), open.as_mut()) {
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some(language), None) => open = Some((language, String::new())),
            (None, Some((_, block))) => *block += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    found
}

/// Returns the output of a command on stdout and stderr, and true if it succeeds.
fn shell(f: &Folder, command: &str) -> (String, bool) {
    let own = Path::new(env!("CARGO_BIN_EXE_krylith")).parent().unwrap().to_path_buf();
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(own).chain(std::env::split_paths(&rest))).unwrap();
    let mut sh = Command::new("sh");
    sh.args(["-c", &format!("{{ {command}\n}} 2>&1")])
        .current_dir(f.0.path())
        .env("PATH", path)
        .env("CUDA_VISIBLE_DEVICES", "") // documents show the output of a CPU
        .env_remove("COLUMNS");
    let output = sh.output().unwrap();
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.success())
}

fn console(f: &Folder, name: &str, block: &str) -> usize {
    let parts = format!("\n{block}");
    let mut count = 0;
    for part in parts.split("\n$ ").skip(1) {
        let (command, shown) = part.split_once('\n').unwrap_or((part, ""));
        let (printed, success) = shell(f, command);
        assert_eq!(success, !shown.contains("error:"), "{name}: {command}\n{printed}");
        let mut lines = printed.lines();
        for line in shown.lines().filter(|line| !matches!(line.trim(), "" | "…")) {
            let pattern = numbers(line);
            assert!(
                lines.any(|l| matches(&pattern, &numbers(l))),
                "{name}: {command}\ndoes not print, in this place,\n{line}\nbut\n{printed}"
            );
        }
        count += 1;
    }
    count
}

fn script(f: &Folder, name: &str, block: &str) -> usize {
    let block = block.replace("\\\n", " ");
    let commands: Vec<&str> = block.lines().filter(|line| line.starts_with("krylith ")).collect();
    for command in &commands {
        let (printed, success) = shell(f, command);
        assert!(success, "{name}: {command}\n{printed}");
    }
    commands.len()
}

/// Replaces each number in a line by `#`, also numbers with digits in groups.
fn numbers(line: &str) -> String {
    let mut text = String::new();
    for c in line.trim().replace("µs", "s").replace("ms", "s").chars() {
        let inside = text.ends_with('#') && (c == '.' || c.is_ascii_digit());
        if c.is_ascii_digit() && !inside {
            text.push('#');
        } else if !inside {
            text.push(c);
        }
    }
    while text.contains("# #") {
        text = text.replace("# #", "#"); // 4 096
    }
    text.replace("e-#", "e#")
}

/// Returns true if `line` matches `pattern`, where `…` stands for any text.
fn matches(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        match (parts.peek(), rest.find(part)) {
            (None, _) => return rest.ends_with(part),
            (Some(_), None) => return false,
            (Some(_), Some(at)) => rest = &rest[at + part.len()..],
        }
    }
    true
}
