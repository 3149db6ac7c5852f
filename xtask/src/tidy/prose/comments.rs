//! Checks lines of comments.

use super::super::code::{Kind, pieces};
use super::{Finding, is_record, too_long};

/// Returns comment lines that are too long. Comments after code on the same line are left to the formatter.
pub fn lines(name: &str, text: &str, limit: usize) -> Vec<Finding> {
    if is_record(name) {
        return Vec::new();
    }
    let is_comment: Vec<usize> = match name.rsplit('.').next() {
        Some("rs" | "cu" | "cuh" | "h") => of_c(text),
        Some("py") => {
            let is_comment = |(_, line): &(usize, &str)| line.trim_start().starts_with('#');
            text.lines().enumerate().filter(is_comment).map(|(i, _)| i).collect()
        }
        _ => Vec::new(),
    };
    let all: Vec<&str> = text.lines().collect();
    is_comment.into_iter().filter_map(|i| too_long(i, all.get(i)?, limit)).collect()
}

/// Returns lines whose first character that is not blank belongs to a comment, in Rust and C.
fn of_c(text: &str) -> Vec<usize> {
    let (mut found, mut line, mut is_blank) = (Vec::new(), 0, true);
    for (kind, piece) in pieces(text) {
        if kind == Kind::Comment && is_blank {
            found.push(line);
        }
        for (i, part) in piece.split('\n').enumerate() {
            if i > 0 {
                (line, is_blank) = (line + 1, true);
                if kind == Kind::Comment {
                    found.push(line);
                }
            }
            is_blank &= kind == Kind::Code && part.trim().is_empty();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_comments_are_told_from_code_and_strings() {
        let found = |name: &str, text: &str| -> Vec<usize> {
            lines(name, text, 10).into_iter().map(|finding| finding.line).collect()
        };
        assert_eq!(found("a.rs", "// ab cd ef\n/// ab cd é\n//! ab cd\nlet abcde = f; // ab cd\n"), [1, 2]);
        assert_eq!(
            found("a.cu", "/* ab cd\n * ab cd ef gh\n ab cd ef gh */ f\nx = a\n * b * cde * f;\n"),
            [2, 3]
        );
        assert_eq!(found("a.rs", "let a = \"\n// ab cd ef gh\n\";\n    // https://long.example\n"), [0; 0]);
        assert_eq!(found("a.py", "# ab cd ef gh\nabc = def(ghi)  # x\n"), [1]);
        assert_eq!(found("bench/runs/a/b.rs", "// ab cd ef gh\n"), [0; 0]);
        assert_eq!(found("a.toml", "# ab cd ef gh\n"), [0; 0]);
    }
}
