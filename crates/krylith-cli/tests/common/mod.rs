//! Runs the command in a temporary folder.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The output and the exit code of a run.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn new(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Asserts the exit code, and that stderr contains these words and no backtrace.
    #[track_caller]
    pub fn fails(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{self:#?}");
        for word in words {
            assert!(self.err.contains(word), "`{word}` is not in {self:#?}");
        }
        for never in ["panicked", "RUST_BACKTRACE", "internal error", "unwrap"] {
            assert!(!self.err.contains(never), "{self:#?}");
        }
    }

    #[track_caller]
    pub fn works(&self) -> &Self {
        assert_eq!(self.code, 0, "{self:#?}");
        self
    }
}

/// A temporary folder in which commands run.
pub struct Folder(pub tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_krylith"));
        command.args(args).current_dir(self.0.path()).env("RUST_BACKTRACE", "1");
        command
    }

    /// Runs `krylith` with these words.
    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::new(self.command(args).output().unwrap())
    }

    /// Runs `krylith` with a line of words that have no spaces.
    pub fn line(&self, line: &str) -> Ran {
        self.run(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// Returns the names of the files in the folder.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(self.0.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// Returns the text of a Matrix Market file with these one-based entries.
pub fn mtx(rows: usize, columns: usize, entries: &[(usize, usize, f64)]) -> String {
    let mut text =
        format!("%%MatrixMarket matrix coordinate real general\n{rows} {columns} {}\n", entries.len());
    entries.iter().for_each(|(i, j, v)| text += &format!("{i} {j} {v:e}\n"));
    text
}

/// Returns the entries of a well conditioned matrix: n nodes in a row, with b coupled unknowns per node.
pub fn chain(n: usize, b: usize, place: impl Fn(usize, usize) -> usize) -> Vec<(usize, usize, f64)> {
    let mut entries = Vec::new();
    for i in 0..n {
        for (j, weight) in [(i.wrapping_sub(1), -1.0), (i, 4.0), (i + 1, -1.2)] {
            if j >= n {
                continue;
            }
            for r in 0..b {
                for c in 0..b {
                    let v = if r == c { weight } else { 0.2 + 0.1 * (r as f64 - 2.0 * c as f64) / b as f64 };
                    entries.push((place(i, r) + 1, place(j, c) + 1, v));
                }
            }
        }
    }
    entries
}

pub fn array(path: impl AsRef<Path>) -> krylith_core::io::Array {
    krylith_core::io::read_vector(path).unwrap()
}

pub fn distance(x: &[f64], y: &[f64]) -> f64 {
    assert_eq!(x.len(), y.len());
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|v| v * v).sum::<f64>().sqrt();
    norm(&mut x.iter().zip(y).map(|(x, y)| x - y)) / norm(&mut y.iter().copied())
}
