//! Checks the public face of the library: a file that only re-exports names.

use super::super::code::code_only;
use super::Finding;

/// Path of the file.
const FILE: &str = "crates/krylith/src/lib.rs";

/// Reports items that are not re-exports by name, and a number of names above the limit.
pub fn names(name: &str, text: &str, limit: usize) -> Vec<Finding> {
    if name != FILE {
        return Vec::new();
    }
    let mut face = Face::new(text);
    face.items();
    if face.names > limit {
        face.find(1, format!("{} names are re-exported; at most {limit}", face.names));
    }
    face.findings
}

/// State of the parser of the file.
struct Face {
    /// Words and single characters, each with its line.
    tokens: Vec<(String, usize)>,
    at: usize,
    names: usize,
    findings: Vec<Finding>,
}

impl Face {
    fn new(text: &str) -> Self {
        let (mut tokens, mut line, mut is_open) = (Vec::<(String, usize)>::new(), 1, false);
        for c in code_only(text).chars() {
            let is_word = c.is_alphanumeric() || c == '_';
            match tokens.last_mut().filter(|_| is_word && is_open) {
                Some((word, _)) => word.push(c),
                None if !c.is_whitespace() => tokens.push((c.into(), line)),
                None => {}
            }
            is_open = is_word;
            line += usize::from(c == '\n');
        }
        Self { tokens, at: 0, names: 0, findings: Vec::new() }
    }

    fn find(&mut self, line: usize, message: String) {
        self.findings.push(Finding { line, message });
    }

    fn peek(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", |(token, _)| token)
    }

    /// Skips the token if it is the next one; returns true if it was.
    fn take(&mut self, token: &str) -> bool {
        let is_there = self.peek(0) == token;
        self.at += usize::from(is_there);
        is_there
    }

    /// Parses items up to the end, or past the brace that closes a module.
    fn items(&mut self) {
        while self.at < self.tokens.len() && !self.take("}") {
            let begin = self.at;
            while self.peek(0) == "#" {
                self.skip_past(&["]"]);
            }
            let is_exported = self.tokens[begin..self.at].iter().any(|(token, _)| token == "macro_export");
            let is_public = self.take("pub") && self.peek(0) != "(" || is_exported;
            let line = self.tokens.get(self.at).map_or(1, |(_, line)| *line);
            match (self.peek(0), self.peek(2)) {
                ("use", _) if is_public => {
                    self.at += 1;
                    self.tree();
                    self.take(";");
                }
                ("mod", "{") if is_public => {
                    self.at += 3;
                    self.items();
                }
                (kind, _) => {
                    if is_public {
                        let message =
                            format!("a public `{kind} {}`; only re-exports by name stand here", self.peek(1));
                        self.find(line, message);
                    }
                    self.skip_past(&[";", "}"]);
                }
            }
        }
    }

    /// Parses one path of a `use`, and counts the names in which it ends.
    fn tree(&mut self) {
        loop {
            if self.take("{") {
                while self.at < self.tokens.len() && !self.take("}") {
                    self.tree();
                    self.take(",");
                }
                return;
            }
            let line = self.tokens.get(self.at).map_or(1, |(_, line)| *line);
            if self.take("*") {
                return self
                    .find(line, "a glob re-exports what nobody has counted; name what is meant".into());
            }
            while self.take(":") {}
            if self.peek(0) == "{" || self.peek(0) == "*" {
                continue;
            }
            self.at += 1;
            if self.peek(0) != ":" {
                break;
            }
        }
        self.names += 1;
        if self.take("as") {
            self.at += 1;
        }
    }

    /// Skips past the first of these tokens that is outside brackets, or that closes the first bracket
    /// opened.
    fn skip_past(&mut self, ends: &[&str]) {
        let mut depth = 0;
        while self.at < self.tokens.len() {
            let token = self.peek(0);
            depth +=
                i32::from(["(", "[", "{"].contains(&token)) - i32::from([")", "]", "}"].contains(&token));
            let ends = depth <= 0 && ends.contains(&token);
            self.at += 1;
            if ends {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (usize, Vec<String>) {
        let mut face = Face::new(text);
        face.items();
        (face.names, face.findings.into_iter().map(|f| format!("{}: {}", f.line, f.message)).collect())
    }

    #[test]
    fn names_are_those_that_paths_end_in() {
        let text = "//! pub fn x() {}\n#![doc = \"a\"]\nuse a::Private;\npub(crate) use a::{Hidden};\n\
            pub use ::core_crate::One;\npub use a::{Two, b::{Three as Drei, self}, c::d::Four,};\n\
            #[cfg(feature = \"x\")]\npub mod m {\n    //! Words.\n    pub use a::Five;\n    pub mod n { pub use a::{}; pub use b; }\n}\n\
            #[cfg(test)]\nmod tests { use super::*; pub fn f() { g({ 1 }) } }\nmod own;\nconst A: [u8; 2] = [1, 2];\n\
            macro_rules! own { () => { pub fn } }\npub use z::Seven;\n";
        assert_eq!(read(text), (8, Vec::new()));
        assert_eq!(names(FILE, text, 8), []);
        assert_eq!(names(FILE, text, 7)[0].message, "8 names are re-exported; at most 7");
        assert_eq!(names("crates/other/src/lib.rs", "pub fn f() {}", 7), []);
    }

    #[test]
    fn all_else_that_is_public_is_refused() {
        let text = "pub use a::*;\npub use b::{c::*, D};\npub mod own;\npub fn f() { g() }\npub struct S(u8);\n\
            pub mod m {\n    pub enum E { A }\n}\n#[macro_export]\nmacro_rules! say { () => {} }\npub use z::Z;\n";
        let (names, found) = read(text);
        assert_eq!((names, found.len()), (2, 7), "{found:?}");
        let words = [
            "1: a glob",
            "2: a glob",
            "3: a public `mod own`",
            "4: a public `fn f`",
            "5: a public `struct S`",
        ];
        for (found, word) in
            found.iter().zip(words.into_iter().chain(["7: a public `enum E`", "10: a public"]))
        {
            assert!(found.starts_with(word), "{found}");
        }
    }
}
