//! Checks Markdown files: lines, sentences, and the size of a document.

use super::sentences::{of, without_code};
use super::{Finding, is_record, too_long, too_wordy};

/// Languages of code blocks that contain the output of programs.
const OUTPUT: [&str; 3] = ["", "text", "console"];

/// Returns lines that are too long, except output of programs.
pub fn lines(name: &str, text: &str, limit: usize) -> Vec<Finding> {
    let is_written = is_record(name) || name.rsplit('/').next() == Some("THIRD-PARTY-LICENSES.md");
    if !name.ends_with(".md") || is_written {
        return Vec::new();
    }
    let mut fence = Fence::default();
    let is_ours = |line| fence.pass(line).is_none_or(|language| !OUTPUT.contains(&language));
    let ours: Vec<bool> = text.lines().map(is_ours).collect();
    let long = text.lines().zip(ours).enumerate().filter(|(_, (_, ours))| *ours);
    long.filter_map(|(i, (line, _))| too_long(i, line, limit)).collect()
}

/// Returns sentences of documents that have too many words.
pub fn sentences(name: &str, text: &str, limit: usize) -> Vec<Finding> {
    let is_document = name == "README.md" || name.starts_with("docs/") && name.ends_with(".md");
    let mut found = Vec::new();
    for block in blocks(text).into_iter().filter(|_| is_document) {
        for sentence in of(&plain(&block.text), &['.', '!', '?']) {
            found.extend(too_wordy(block.line + sentence.line, &sentence, limit));
        }
    }
    found
}

/// Returns a finding if the design document is too long.
pub fn size(name: &str, text: &str, limit: usize) -> Vec<Finding> {
    let is_long = name == "ARCHITECTURE.md" && text.len() > limit;
    let message = format!("{} bytes; at most {limit}", text.len());
    is_long.then_some(Finding { line: 1, message }).into_iter().collect()
}

/// Tracks the beginning and the end of fenced code.
#[derive(Default)]
struct Fence<'a> {
    /// The mark that opened it, and its language.
    open: Option<(&'static str, &'a str)>,
}

impl<'a> Fence<'a> {
    /// Returns the language of the fenced code to which a line belongs; fences are part of the code.
    fn pass(&mut self, line: &'a str) -> Option<&'a str> {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        let before = self.open;
        match (before, mark) {
            (None, Some(mark)) => self.open = Some((mark, start.trim_start_matches(['`', '~']).trim())),
            (Some((open, _)), Some(mark)) if open == mark => self.open = None,
            _ => {}
        }
        before.or(self.open).map(|(_, language)| language)
    }
}

/// A paragraph, a heading, a list item or a table cell, and the line where it begins.
#[derive(Debug, PartialEq)]
struct Block {
    line: usize,
    text: String,
}

fn blocks(text: &str) -> Vec<Block> {
    let (mut blocks, mut open) = (Vec::new(), None::<Block>);
    let mut fence = Fence::default();
    for (line, full) in text.lines().enumerate() {
        let content = full.trim_start_matches([' ', '>']).trim_end();
        let item = after_mark(content);
        let is_table = content.starts_with('|');
        let is_code = fence.pass(full).is_some();
        let is_nothing = content.is_empty() || content.starts_with("<!--") || is_definition(content);
        let is_heading = content.starts_with('#');
        if is_code || is_nothing || is_table || is_heading || item.is_some() {
            blocks.extend(open.take());
        }
        if is_code || is_nothing {
            continue;
        }
        if is_table {
            let cells = content.replace("\\|", "/");
            blocks.extend(cells.split('|').map(|cell| Block { line, text: cell.trim().into() }));
        } else if is_heading {
            blocks.push(Block { line, text: content.trim_start_matches('#').trim().into() });
        } else if let Some(block) = &mut open {
            block.text = format!("{}\n{content}", block.text);
        } else {
            open = Some(Block { line, text: item.unwrap_or(content).into() });
        }
    }
    blocks.extend(open);
    blocks.retain(|block| !block.text.is_empty());
    blocks
}

/// Returns the text after the marker of a list item: `- `, `* `, `+ ` or `1. `.
fn after_mark(content: &str) -> Option<&str> {
    let (mark, rest) = content.split_once(' ')?;
    let number = mark.strip_suffix('.').or(mark.strip_suffix(')')).unwrap_or_default();
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    (is_number || matches!(mark, "-" | "*" | "+")).then_some(rest)
}

/// Returns true for a definition of a link: `[name]: address`.
fn is_definition(content: &str) -> bool {
    content.starts_with('[') && content.split_once("]: ").is_some_and(|(_, to)| !to.contains(' '))
}

/// Returns the text as a reader sees it: a code span is one word, links have no targets, and HTML tags are
/// removed.
fn plain(text: &str) -> String {
    let text = without(&without_code(text), "](", ')', |_| "]");
    // An address in angle brackets counts as a word; a tag does not.
    without(&text, "<", '>', |inside| {
        let is_mark = inside.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
        if inside.contains("://") && !inside.contains(char::is_whitespace) {
            "address"
        } else if is_mark {
            ""
        } else {
            "<"
        }
    })
}

/// Replaces the text from `open` to `close`; lines keep their numbers. An `open` without `close` remains.
fn without(text: &str, open: &str, close: char, put: impl Fn(&str) -> &'static str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, inside)) = rest.split_once(open) {
        out.push_str(before);
        let (inside, after) = inside.split_once(close).unwrap_or((" ", inside));
        let by = put(inside);
        out.push_str(by);
        if by == open {
            rest = &rest[before.len() + open.len()..];
        } else {
            out.extend(inside.chars().filter(|c| *c == '\n'));
            rest = after;
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(check: fn(&str, &str, usize) -> Vec<Finding>, name: &str, text: &str) -> Vec<usize> {
        check(name, text, 10).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn lines_are_long_by_their_characters() {
        let pages = |text: &str| found(lines, "a/b.md", text);
        assert_eq!(pages("é é é é éé\nab cd ef ghi\n"), [2]);
        assert_eq!(pages("| a | b | c |\n"), [1]);
        assert_eq!(pages("https://long.example\n- [text](link.md#here)\n"), [0; 0]);
        assert_eq!(pages("```sh\nab cd ef ghi\n```\n"), [2]);
        assert_eq!(pages("```console\n$ ab cd ef ghi\n```\nab cd ef ghi\n"), [4]);
        assert_eq!(pages("  ```text\n  ab cd ef ghi\n  ~~~\n  ab cd ef ghi\n  ```\n"), [0; 0]);
        for name in ["a.rs", "THIRD-PARTY-LICENSES.md", "a/THIRD-PARTY-LICENSES.md", "bench/runs/a/README.md"]
        {
            assert_eq!(found(lines, name, "ab cd ef ghi\n"), [0; 0], "{name}");
        }
    }

    #[test]
    fn sentences_are_those_of_a_paragraph_an_item_or_a_cell() {
        let documents = |text: &str| found(sentences, "docs/a.md", text);
        let (ten, eleven) = ("a b c d e f g h i j", "a b c d e f g h i j k");
        assert_eq!(documents(&format!("{ten}. {ten}.\n\n{eleven}.\n")), [3]);
        assert_eq!(documents("x. a b c\nd e f g\nh i j k\n"), [1]);
        assert_eq!(documents(&format!("# {ten}\n- {ten}\n- {ten}\n  k\n12. {ten}\n")), [3]);
        assert_eq!(documents(&format!("| {ten} | {ten} |\n|---|---|\n| a\\|b | {eleven} |\n")), [3]);
        assert_eq!(documents(&format!("```\n{eleven}\n```\n> {eleven}\n<!-- {eleven} -->\n[a]: b\n")), [4]);
        assert_eq!(documents("a b c d e f g h [i j](to/x.md) = ≤ ‖.\n"), [0; 0]);
        assert_eq!(documents("`a b` b c d e f g h i `j k\nl`\n"), [0; 0]);
        assert_eq!(
            documents("<p><img src=\"x\"\nalt=\"a b c\"> a b c d e f g h < i <https://j.example>\n"),
            [0; 0]
        );
        assert_eq!(documents("a <b\n\n<i>a b c</i> d e f g h [i j\nk](x\n) l\n"), [3]);
        assert_eq!(found(sentences, "README.md", eleven), [1]);
        assert_eq!(found(sentences, "CHANGELOG.md", eleven), [0; 0]);
    }

    #[test]
    fn the_document_of_the_design_is_short() {
        assert_eq!(found(size, "ARCHITECTURE.md", "12345678901"), [1]);
        assert_eq!(found(size, "ARCHITECTURE.md", "1234567890"), [0; 0]);
        assert_eq!(found(size, "README.md", "12345678901"), [0; 0]);
    }
}
