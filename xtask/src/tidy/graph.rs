//! Finds which top-level modules of a crate use each other, from the code outside tests: `use` lines, paths
//! in code and macro bodies, names that the crate's root re-exports, and macro calls.

use super::code::code_only;
use std::collections::{BTreeMap, BTreeSet};

/// Uses of one module by another: their number, and the position of the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrow {
    pub uses: usize,
    pub first: String,
}

/// The top-level modules of a crate, and the arrows between them.
#[derive(Debug, Default)]
pub struct Graph {
    pub modules: BTreeSet<String>,
    pub arrows: BTreeMap<(String, String), Arrow>,
}

/// The code of one file, and its path in the crate.
struct File {
    name: String,
    /// Module path, such as `["device", "cuda", "product"]`.
    path: Vec<String>,
    code: String,
}

impl Graph {
    /// Reads files, each named relative to the crate's `src`.
    pub fn read<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let files: Vec<File> = files.filter_map(|(name, text)| File::new(name, text)).collect();
        let modules: BTreeSet<String> = files.iter().filter_map(|file| file.path.first().cloned()).collect();
        let root = files.iter().find(|file| file.path.is_empty()).map_or("", |file| file.code.as_str());
        let mut places = passed_on(root, &modules);
        for file in &files {
            for (_, name) in after(&file.code, "macro_rules!") {
                if let Some(module) = file.path.first() {
                    places.insert(format!("{name}!"), module.clone());
                }
            }
        }
        let mut graph = Self { modules, arrows: BTreeMap::new() };
        for file in files.iter().filter(|file| !file.path.is_empty()) {
            for (line, name) in file.uses() {
                let module = graph.modules.get(&name).or_else(|| places.get(&name)).cloned();
                if let Some(module) = module.filter(|module| *module != file.path[0]) {
                    let first = format!("{}:{line}", file.name);
                    let arrow = graph.arrows.entry((file.path[0].clone(), module));
                    arrow.or_insert(Arrow { uses: 0, first }).uses += 1;
                }
            }
        }
        graph
    }

    /// Returns the sets of modules that use each other, directly or through others.
    pub fn cycles(&self) -> Vec<BTreeSet<String>> {
        let reached: BTreeMap<&String, BTreeSet<&String>> =
            self.modules.iter().map(|module| (module, self.reached_from(module))).collect();
        let mut found: Vec<BTreeSet<String>> = Vec::new();
        for module in &self.modules {
            let with = |other: &&String| reached[module].contains(other) && reached[*other].contains(module);
            let circle: BTreeSet<String> = self.modules.iter().filter(with).cloned().collect();
            if circle.len() > 1 && !found.contains(&circle) {
                found.push(circle);
            }
        }
        found
    }

    fn reached_from(&self, module: &str) -> BTreeSet<&String> {
        let (mut reached, mut open) = (BTreeSet::new(), vec![module]);
        while let Some(from) = open.pop() {
            for (_, to) in self.arrows.keys().filter(|(start, _)| start == from) {
                if reached.insert(to) {
                    open.push(to);
                }
            }
        }
        reached
    }
}

impl File {
    /// Returns `None` for test files.
    fn new(name: &str, text: &str) -> Option<Self> {
        let stem = name.strip_suffix(".rs")?;
        let mut path: Vec<String> = stem.split('/').map(String::from).collect();
        if path.iter().any(|part| matches!(part.as_str(), "tests" | "test")) {
            return None;
        }
        if path.last().is_some_and(|last| last == "mod") {
            path.pop();
        }
        if path == ["lib"] || path == ["main"] {
            path.clear();
        }
        Some(Self { name: name.into(), path, code: without_tests(&code_only(text)) })
    }

    /// Returns names in the crate's root that the file uses, and macros that it calls, each with its line.
    fn uses(&self) -> Vec<(usize, String)> {
        let line_of = |at: usize| self.code[..at].matches('\n').count() + 1;
        let mut found = Vec::new();
        let mut note = |at: usize, name: String| found.push((line_of(at), name));
        let root = "super::".repeat(self.path.len());
        for start in ["crate::", root.as_str()] {
            for (at, _) in self.code.match_indices(start).filter(|(at, _)| !is_within_path(&self.code, *at)) {
                for name in heads(&self.code[at + start.len()..]) {
                    note(at, name);
                }
            }
        }
        for (at, _) in self.code.match_indices('!') {
            let word = word_before(&self.code, at);
            if !word.is_empty() && word != "macro_rules" {
                note(at, format!("{word}!"));
            }
        }
        found
    }
}

/// Returns true if this place is within a longer path or word, such as `a::crate::` or `super::super::`.
fn is_within_path(code: &str, at: usize) -> bool {
    let before = code[..at].chars().next_back();
    before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':')
}

/// Returns the first names after `crate::`: one, or those of a group in braces.
fn heads(rest: &str) -> Vec<String> {
    let Some(group) = rest.strip_prefix('{') else {
        return Some(first_word(rest)).filter(|name| !name.is_empty()).into_iter().collect();
    };
    let (mut names, mut depth, mut fresh) = (Vec::new(), 0usize, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            c if depth == 0 && fresh && (c.is_alphanumeric() || c == '_') => {
                names.push(first_word(&group[at..]));
                fresh = false;
            }
            _ => {}
        }
    }
    names
}

/// Returns names that the root re-exports by `pub use`, each with its module.
fn passed_on(root: &str, modules: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut places = BTreeMap::new();
    for statement in root.split(';') {
        let Some((_, path)) = statement.split_once("use ") else { continue };
        let path = path.trim().trim_start_matches("crate::");
        let module = first_word(path);
        if modules.contains(&module) {
            for name in super::code::words(&path[module.len()..]) {
                places.insert(name.to_string(), module.clone());
            }
        }
    }
    places
}

/// Returns the word after each occurrence of a mark, with its position.
fn after<'a>(code: &'a str, mark: &'a str) -> impl Iterator<Item = (usize, String)> + 'a {
    code.match_indices(mark).map(move |(at, _)| (at, first_word(code[at + mark.len()..].trim_start())))
}

fn first_word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

fn word_before(code: &str, at: usize) -> String {
    let word: Vec<char> = code[..at].chars().rev().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    word.into_iter().rev().collect()
}

/// Blanks the item after each `#[cfg(test)]`: a block, or everything up to the semicolon.
fn without_tests(code: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(code.len()), code);
    while let Some(at) = rest.find("#[cfg(test)]") {
        out.push_str(&rest[..at]);
        let item = &rest[at..];
        let (mut depth, mut end) = (0usize, item.len());
        for (i, c) in item.char_indices().skip("#[cfg(test)]".len()) {
            match c {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if (c == '}' || c == ';') && depth == 0 {
                end = i + 1;
                break;
            }
        }
        out.extend(item[..end].chars().filter(|c| *c == '\n'));
        rest = &item[end..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_name_a_module_counts() {
        let files = [
            ("lib.rs", "pub mod a; mod b; mod c; mod d; pub use b::{Thing, Other as Else}; use d::helper;"),
            (
                "a.rs",
                "use crate::{Thing, c::{x, y}}; fn f() { crate::d::g(); } // crate::b\n#[cfg(test)]\nmod tests { use crate::b::z; }",
            ),
            ("b/mod.rs", "mod inner;"),
            ("b/inner.rs", "use super::super::a::f; use super::own; fn g() { say!(1); }"),
            ("c.rs", "macro_rules! say { () => { $crate::d::g() } } fn h() -> &'static str { \"crate::a\" }"),
            ("d.rs", "use crate::Else;"),
            ("d/tests.rs", "use crate::a;"),
        ];
        let graph = Graph::read(files.into_iter());
        let arrows: Vec<(String, usize)> =
            graph.arrows.iter().map(|((from, to), arrow)| (format!("{from}{to}"), arrow.uses)).collect();
        let expected = [("ab", 1), ("ac", 1), ("ad", 1), ("ba", 1), ("bc", 1), ("cd", 1), ("db", 1)];
        assert_eq!(arrows, expected.map(|(arrow, uses)| (arrow.to_string(), uses)));
        assert_eq!(graph.arrows[&("b".into(), "c".into())].first, "b/inner.rs:1");
        assert_eq!(graph.cycles(), [["a", "b", "c", "d"].map(String::from).into_iter().collect()]);
    }

    #[test]
    fn tests_are_blanked_line_for_line() {
        let code = "a\n#[cfg(test)]\nmod tests {\n fn x() {}\n}\nb\n#[cfg(test)]\nmod more;\nc";
        assert_eq!(without_tests(code), "a\n\n\n\n\nb\n\n\nc");
    }
}
