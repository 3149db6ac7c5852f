//! How long lines, sentences and documents may be, and how many names the library has.

mod comments;
mod errors;
mod face;
mod markdown;
mod sentences;

use super::{Finding, text_of, tracked};
use std::process::ExitCode;

/// A rule that a file is held against.
pub(super) struct Rule {
    name: &'static str,
    /// What it limits.
    of: &'static str,
    limit: usize,
    /// Whether `cargo xtask tidy` fails by it; `cargo xtask tidy --prose` lists what breaches any rule.
    pub enforced: bool,
    /// Breaches of a limit in the file of this name and text; none in a file that the rule is not about.
    check: fn(&str, &str, usize) -> Vec<Finding>,
}

pub(super) const RULES: [Rule; 6] = [
    Rule {
        name: "page",
        of: "columns of a line in a Markdown file",
        limit: 120,
        enforced: true,
        check: markdown::lines,
    },
    Rule {
        name: "comment",
        of: "columns of a line of comment",
        limit: 110,
        enforced: true,
        check: comments::lines,
    },
    Rule {
        name: "sentence",
        of: "words of a sentence in docs/ and README.md",
        limit: 25,
        enforced: true,
        check: markdown::sentences,
    },
    Rule {
        name: "error",
        of: "words of a sentence in an error's text",
        limit: 25,
        enforced: true,
        check: errors::sentences,
    },
    Rule {
        name: "size",
        of: "bytes of ARCHITECTURE.md",
        limit: 12_000,
        enforced: true,
        check: markdown::size,
    },
    Rule {
        name: "face",
        of: "names that the library re-exports",
        limit: 120,
        enforced: true,
        check: face::names,
    },
];

impl Rule {
    pub(super) fn check(&self, name: &str, text: &str) -> Vec<Finding> {
        (self.check)(name, text, self.limit)
    }
}

/// `cargo xtask tidy --prose`: every breach of every rule, and how many there are of each.
pub fn run() -> ExitCode {
    let files = tracked();
    let mut counts = [0; RULES.len()];
    for (name, bytes) in &files {
        let Some(text) = text_of(bytes) else { continue };
        for (rule, count) in RULES.iter().zip(&mut counts) {
            for finding in rule.check(name, text) {
                println!("{name}:{}: {}: {}", finding.line, rule.name, finding.message);
                *count += 1;
            }
        }
    }
    println!("\n{:8}  {:>8}  {:>6}  {:8}  of", "rule", "breaches", "limit", "enforced");
    for (rule, count) in RULES.iter().zip(counts) {
        let enforced = if rule.enforced { "yes" } else { "no" };
        println!("{:8}  {count:8}  {:6}  {enforced:8}  {}", rule.name, rule.limit, rule.of);
    }
    if counts == [0; RULES.len()] { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether a file is part of a measurement, which stays as it was.
fn is_record(name: &str) -> bool {
    name.starts_with("bench/runs/")
}

/// A line that is too long, and can be wrapped.
fn too_long(line: usize, text: &str, limit: usize) -> Option<Finding> {
    let columns = text.chars().count();
    let marks = |c: char| c.is_whitespace() || "/!*#->".contains(c);
    let can_wrap = text.trim_start_matches(marks).trim_end().contains(char::is_whitespace);
    (columns > limit && can_wrap)
        .then(|| Finding { line: line + 1, message: format!("{columns} columns; at most {limit}") })
}

/// A sentence that is too long.
fn too_wordy(line: usize, sentence: &sentences::Sentence, limit: usize) -> Option<Finding> {
    (sentence.words > limit).then(|| Finding {
        line: line + 1,
        message: format!("{} words; at most {limit}: \"{} …\"", sentence.words, sentence.begin),
    })
}
