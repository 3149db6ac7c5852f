//! Rust source with comments and strings removed, line by line.

/// The kind of a run of characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Code,
    Comment,
    /// A string or character literal, with its quotes.
    Literal,
}

/// Splits the text into runs of one kind each, in order; joined, they are the text again.
pub fn pieces(text: &str) -> Vec<(Kind, &str)> {
    let c: Vec<char> = text.chars().collect();
    let (mut pieces, mut rest) = (Vec::new(), text);
    let mut take = |kind: Kind, chars: &[char]| {
        let (piece, after) = rest.split_at(chars.iter().map(|c| c.len_utf8()).sum());
        rest = after;
        if !piece.is_empty() {
            pieces.push((kind, piece));
        }
    };
    let (mut i, mut begin) = (0, 0);
    while i < c.len() {
        let before = |k: usize| i >= k && is_word(c[i - k]);
        let after_prefix = before(1) && c[i - 1] == 'b' && !before(2); // br"…"
        let end = skip(&c, i, before(1) && !after_prefix);
        if end == i {
            i += 1;
            continue;
        }
        take(Kind::Code, &c[begin..i]);
        take(if c[i] == '/' { Kind::Comment } else { Kind::Literal }, &c[i..end]);
        (i, begin) = (end, end);
    }
    take(Kind::Code, &c[begin..]);
    pieces
}

/// Blanks comments, strings and characters; lines keep their numbers.
pub fn code_only(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (kind, piece) in pieces(text) {
        if kind == Kind::Code {
            out.push_str(piece);
        } else {
            out.push(' ');
            out.extend(piece.chars().filter(|c| *c == '\n'));
        }
    }
    out
}

/// Returns the end of the comment, string or character that begins at `i`; `i` if none begins there.
fn skip(c: &[char], i: usize, within_word: bool) -> usize {
    let at = |k: usize| c.get(k).copied().unwrap_or('\0');
    let until = |mut k: usize, end: &dyn Fn(usize) -> bool| {
        while k < c.len() && !end(k) {
            k += 1;
        }
        k
    };
    match (c[i], at(i + 1)) {
        ('/', '/') => until(i, &|k| c[k] == '\n'),
        ('/', '*') => {
            let (mut depth, mut k) = (1, i + 2);
            while k < c.len() && depth > 0 {
                match (c[k], at(k + 1)) {
                    ('/', '*') => (depth, k) = (depth + 1, k + 2),
                    ('*', '/') => (depth, k) = (depth - 1, k + 2),
                    _ => k += 1,
                }
            }
            k
        }
        ('"', _) => {
            let mut k = i + 1;
            while k < c.len() && c[k] != '"' {
                k += if c[k] == '\\' { 2 } else { 1 };
            }
            (k + 1).min(c.len())
        }
        ('r', '"' | '#') if !within_word => {
            let hashes = until(i + 1, &|k| c[k] != '#') - i - 1;
            if at(i + 1 + hashes) != '"' {
                return i; // a raw identifier
            }
            let closes = |k: usize| c[k] == '"' && (1..=hashes).all(|h| at(k + h) == '#');
            (until(i + 2 + hashes, &closes) + 1 + hashes).min(c.len())
        }
        ('\'', '\\') => (until(i + 3, &|k| c[k] == '\'') + 1).min(c.len()),
        ('\'', _) if at(i + 2) == '\'' => i + 3,
        _ => i,
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Iterates over runs of letters, digits and underscores.
pub fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !is_word(c)).filter(|w| !w.is_empty())
}
