//! Limits on the length of lines, sentences and documents, and on the number of names of the library.

mod comments;
mod errors;
mod face;
mod markdown;
mod sentences;

use super::{Finding, text_of, tracked};
use std::process::ExitCode;

/// A rule for files.
pub(super) struct Rule {
    name: &'static str,
    /// The quantity that it limits.
    of: &'static str,
    limit: usize,
    /// True if a violation makes `cargo xtask tidy` fail; `cargo xtask tidy --prose` lists violations of all
    /// rules.
    pub enforced: bool,
    /// Returns the violations in a file with this name and text; none if the rule does not apply to the file.
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

/// `cargo xtask tidy --prose`: lists all violations of all rules, and their number for each rule.
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

/// Returns true if a file is part of a recorded measurement, which must not change.
fn is_record(name: &str) -> bool {
    name.starts_with("bench/runs/")
}

/// Returns a finding for a line that is too long and can be wrapped.
fn too_long(line: usize, text: &str, limit: usize) -> Option<Finding> {
    let columns = text.chars().count();
    let marks = |c: char| c.is_whitespace() || "/!*#->".contains(c);
    let can_wrap = text.trim_start_matches(marks).trim_end().contains(char::is_whitespace);
    (columns > limit && can_wrap)
        .then(|| Finding { line: line + 1, message: format!("{columns} columns; at most {limit}") })
}

/// Returns a finding for a sentence that is too long.
fn too_wordy(line: usize, sentence: &sentences::Sentence, limit: usize) -> Option<Finding> {
    (sentence.words > limit).then(|| Finding {
        line: line + 1,
        message: format!("{} words; at most {limit}: \"{} …\"", sentence.words, sentence.begin),
    })
}
