//! Checks error texts: string literals in the arguments of calls that create an error, in Rust and Python.

use super::super::code::{Kind, pieces};
use super::sentences::{of, without_code};
use super::{Finding, too_wordy};

/// Markers: their arguments, in brackets or braces, contain error texts. A `*` stands for a name.
const RUST: [&str; 7] = ["Error::*", "Failure::*", "Err", "new_err", "ok_or", "ok_or_else", "#[error"];
const PYTHON: [&str; 1] = ["raise *"];

/// Returns sentences of errors that have too many words. In a message, a semicolon or a colon also ends a
/// sentence.
pub fn sentences(name: &str, text: &str, limit: usize) -> Vec<Finding> {
    let is_test = ["/tests/", "/tests.rs"].iter().any(|part| name.contains(part));
    let (source, markers) = match name.rsplit('.').next() {
        Some("rs") if !is_test => (rust(text), &RUST[..]),
        Some("py") if !is_test => (python(text), &PYTHON[..]),
        _ => return Vec::new(),
    };
    let mut found = Vec::new();
    for (line, message) in source.messages(markers) {
        for sentence in of(&plain(&message), &['.', '!', '?', ';', ':']) {
            found.extend(too_wordy(line, &sentence, limit));
        }
    }
    found
}

/// Code with everything else blanked, byte for byte, and its string literals: begin, end and text.
struct Source {
    code: Vec<u8>,
    literals: Vec<(usize, usize, String)>,
}

impl Source {
    /// Returns literals within the arguments of markers, each with its line.
    fn messages(&self, markers: &[&str]) -> Vec<(usize, String)> {
        let mut inside = vec![false; self.literals.len()];
        for marker in markers {
            let (word, named) = marker.strip_suffix('*').map_or((*marker, false), |word| (word, true));
            for at in 0..self.code.len() {
                let begins = at == 0 || !is_name(self.code[at - 1]) || !word.starts_with(char::is_alphabetic);
                if begins && self.code[at..].starts_with(word.as_bytes()) {
                    let end = self.end_of_arguments(at + word.len(), named);
                    for ((from, to, _), inside) in self.literals.iter().zip(&mut inside) {
                        *inside |= at <= *from && *to <= end;
                    }
                }
            }
        }
        let line = |at: usize| self.code[..at].iter().filter(|b| **b == b'\n').count();
        let inside = self.literals.iter().zip(inside).filter(|(_, inside)| *inside);
        inside.map(|((from, _, text), _)| (line(*from), text.clone())).collect()
    }

    /// Returns the position of the bracket that closes the one at `at`, after an optional name; `at` if there
    /// is none.
    fn end_of_arguments(&self, at: usize, named: bool) -> usize {
        let is_blank = |b: u8| b.is_ascii_whitespace();
        let skip = |at: usize, what: &dyn Fn(u8) -> bool| {
            at + self.code[at..].iter().take_while(|b| what(**b)).count()
        };
        let open = skip(if named { skip(at, &|b| is_name(b) || b == b'.') } else { at }, &is_blank);
        if !matches!(self.code.get(open), Some(b'(' | b'{')) {
            return at;
        }
        let mut depth = 0;
        let ends = |b: &u8| {
            depth += i32::from(b"([{".contains(b)) - i32::from(b")]}".contains(b));
            depth == 0
        };
        self.code[open..].iter().position(ends).map_or(self.code.len(), |length| open + length)
    }
}

fn is_name(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_'
}

fn blank(code: &mut Vec<u8>, text: &str) {
    code.extend(text.bytes().map(|b| if b == b'\n' { b } else { b' ' }));
}

fn rust(text: &str) -> Source {
    let mut source = Source { code: Vec::with_capacity(text.len()), literals: Vec::new() };
    for (kind, piece) in pieces(text) {
        if kind == Kind::Code {
            source.code.extend(piece.bytes());
            continue;
        }
        let from = source.code.len();
        blank(&mut source.code, piece);
        if kind == Kind::Literal && !piece.starts_with('\'') {
            let is_raw = piece.starts_with('r');
            let inner = piece.trim_start_matches(['r', '#']).trim_end_matches('#');
            let inner = inner.strip_prefix('"').unwrap_or(inner);
            let inner = inner.strip_suffix('"').unwrap_or(inner);
            let value = if is_raw { inner.into() } else { unescaped(inner) };
            source.literals.push((from, source.code.len(), value));
        }
    }
    source
}

/// Splits Python source into code and strings, in one or three quotes. Adjacent strings are joined, as Python
/// does.
fn python(text: &str) -> Source {
    let mut source = Source { code: Vec::with_capacity(text.len()), literals: Vec::new() };
    let mut rest = text;
    while let Some(at) = rest.find(['#', '"', '\'']) {
        let (before, here) = rest.split_at(at);
        source.code.extend(before.bytes());
        if here.starts_with('#') {
            let (comment, after) = here.split_at(here.find('\n').unwrap_or(here.len()));
            blank(&mut source.code, comment);
            rest = after;
            continue;
        }
        let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| here.starts_with(quote));
        let quote = quote.unwrap_or("\"");
        let inside = &here[quote.len()..];
        let mut escaped = false;
        let closes = |(at, c): (usize, char)| {
            let closes = !escaped && inside[at..].starts_with(quote);
            escaped = !escaped && c == '\\';
            closes.then_some(at)
        };
        let length = inside.char_indices().find_map(closes).unwrap_or(inside.len());
        let value = unescaped(&inside[..length]);
        let (literal, after) = here.split_at((length + 2 * quote.len()).min(here.len()));
        let from = source.code.len();
        let is_between = |b: &u8| b.is_ascii_whitespace() || b"fFrRbBuU".contains(b);
        let before =
            source.literals.last_mut().filter(|(_, end, _)| source.code[*end..].iter().all(is_between));
        blank(&mut source.code, literal);
        let end = source.code.len();
        match before {
            Some(before) => (before.1, before.2) = (end, before.2.clone() + &value),
            None => source.literals.push((from, end, value)),
        }
        rest = after;
    }
    source.code.extend(rest.bytes());
    source
}

/// Returns the text of a literal. Continued lines are joined, and other escapes are replaced as far as word
/// counts need.
fn unescaped(literal: &str) -> String {
    let (mut out, mut chars) = (String::with_capacity(literal.len()), literal.chars().peekable());
    while let Some(c) = chars.next() {
        match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', Some('\n')) => while chars.next_if(|c| c.is_whitespace()).is_some() {},
            ('\\', Some('n' | 't' | 'r')) => out.push(' '),
            ('\\', Some(other)) => out.push(other),
            _ => out.push(c),
        }
    }
    out
}

/// Returns a message in which each interpolated value and each code span is one word.
fn plain(message: &str) -> String {
    let (mut out, mut depth) = (String::with_capacity(message.len()), 0usize);
    let doubled = message.replace("{{", "(").replace("}}", ")");
    for c in doubled.chars() {
        match c {
            '{' => {
                depth += 1;
                out.push_str(if depth == 1 { "x" } else { "" });
            }
            '}' => depth = depth.saturating_sub(1),
            c if depth == 0 => out.push(c),
            _ => {}
        }
    }
    without_code(&out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines of findings, with a limit of four words per sentence.
    fn found(name: &str, text: &str) -> Vec<usize> {
        sentences(name, text, 4).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn messages_of_rust_are_found_wherever_they_stand() {
        let rust = |text: &str| found("crates/a/src/b.rs", text);
        assert_eq!(rust("Error::invalid(\"a b c d e\")"), [1]);
        assert_eq!(rust("Err(Error::Invalid(\n    format!(\"a b {c} d {:?} e\", f(\")\"))))"), [2]);
        assert_eq!(rust("Error::Option { key: \"a\", message: format!(\"a b c d e\") }"), [1]);
        assert_eq!(rust("Failure::usage(format!(\n\"a b \\\n   c d \\\n   e\"))"), [2]);
        assert_eq!(rust("x.ok_or_else(|| \"a b c d e\".into())?; y(\"a b c d e\");"), [1]);
        assert_eq!(rust("#[error(\"a b c d {e}\")]\nPyErr::new_err(r#\"a b c \"d\" e\"#)"), [1, 2]);
        assert_eq!(rust("Error::Invalid(a) => b(\"a b c d e\"), Error::None => c(\"a b c d e\")"), [0; 0]);
        assert_eq!(rust("// Error::invalid(\"a b c d e\")\nMyErr(\"a b c d e\")"), [0; 0]);
        assert_eq!(found("crates/a/tests/b.rs", "Error::invalid(\"a b c d e\")"), [0; 0]);
        assert_eq!(found("a.md", "Error::invalid(\"a b c d e\")"), [0; 0]);
    }

    #[test]
    fn short_sentences_pass() {
        let rust = |text: &str| found("crates/a/src/b.rs", &format!("Error::invalid(format!(\"{text}\"))"));
        assert_eq!(rust("a b c d; e: f g h. i j k l"), [0; 0]);
        assert_eq!(rust("a {b:?} `c d e` {}×{}"), [0; 0]);
        assert_eq!(rust("a = b — {{c}} d"), [0; 0]);
        assert_eq!(rust("a \\\"b c\\\" d:e"), [0; 0]);
        assert_eq!(rust("a {} {} {} {}"), [1]);
    }

    #[test]
    fn messages_of_python_are_found() {
        let python = |text: &str| found("python/a.py", text);
        assert_eq!(python("raise InvalidInput(f\"a b {', '.join(c)} d e\")"), [1]);
        assert_eq!(python("raise errors.Bad(\n    'a b '\n    f'c d e', 1)\nf('a b c d e')"), [2]);
        assert_eq!(
            python("x = '\\'' # raise X('a b c d e')\nraise\n\"\"\"raise X('a b c d e')\"\"\"\n"),
            [0; 0]
        );
        assert_eq!(python("raise X('a b c d', 'e f g h')"), [0; 0]);
    }
}
