//! Checks links in Markdown files: the file and the heading must exist.

use super::Finding;
use std::collections::{HashMap, HashSet};

/// Files and folders of the repository, and the anchors of its Markdown files.
pub struct Targets<'a> {
    paths: HashSet<&'a str>,
    anchors: HashMap<&'a str, HashSet<String>>,
}

impl<'a> Targets<'a> {
    /// Creates the targets from `files`: every name below the root, with the text of Markdown files.
    pub fn new(files: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> Self {
        let mut targets = Self { paths: HashSet::from([""]), anchors: HashMap::new() };
        for (name, text) in files {
            targets.paths.insert(name);
            targets.paths.extend(name.match_indices('/').map(|(at, _)| &name[..at]));
            if let Some(text) = text {
                targets.anchors.insert(name, anchors(text));
            }
        }
        targets
    }

    /// Returns the links of the Markdown file `name` that lead nowhere.
    pub fn check(&self, name: &str, text: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (line, link) in links(text) {
            if let Some(message) = self.breach(name, &link) {
                findings.push(Finding { line: line + 1, message });
            }
        }
        findings
    }

    fn breach(&self, name: &str, link: &str) -> Option<String> {
        if link.contains("://") || link.starts_with("mailto:") {
            return None; // a link to another site, which is not checked
        }
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let Some(path) = (if path.is_empty() { Some(name.into()) } else { resolve(name, path) }) else {
            return Some(format!("the link `{link}` leaves the repository"));
        };
        if !self.paths.contains(path.as_str()) {
            return Some(format!("the link `{link}` leads to `{path}`, which is not there"));
        }
        let known = self.anchors.get(path.as_str());
        let missing = !anchor.is_empty() && known.is_some_and(|known| !known.contains(anchor));
        missing.then(|| format!("`{path}` has no heading `#{anchor}`"))
    }
}

/// Resolves `path`, relative to the file `from`, to a path from the root; `None` if it leads above the root.
fn resolve(from: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Iterates over the lines outside fenced code, with code in backticks blanked.
fn prose(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut fence: Option<&str> = None;
    text.lines().enumerate().filter_map(move |(i, line)| {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => {
                fence = Some(mark);
                None
            }
            (Some(open), mark) => {
                if mark == Some(open) {
                    fence = None;
                }
                None
            }
            (None, None) => Some((i, without_code(line))),
        }
    })
}

fn without_code(line: &str) -> String {
    let mut code = false;
    let blank = |c: char| {
        if c == '`' {
            code = !code;
        }
        if code || c == '`' { ' ' } else { c }
    };
    line.chars().map(blank).collect()
}

/// Returns the targets of `[text](target)` and of `href`, `src` and `srcset`, with their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (i, line) in prose(text) {
        for (mark, end) in [("](", ')'), ("href=\"", '"'), ("src=\"", '"'), ("srcset=\"", '"')] {
            for (at, _) in line.match_indices(mark) {
                let rest = &line[at + mark.len()..];
                let target = rest.split(end).next().unwrap_or_default();
                let target = target.split_whitespace().next().unwrap_or_default(); // a title may follow
                if !target.is_empty() {
                    found.push((i, target.trim_matches(['<', '>']).to_string()));
                }
            }
        }
    }
    found
}

/// Returns the anchors that GitHub and mdBook give to headings, and those of `id="…"`.
fn anchors(text: &str) -> HashSet<String> {
    let mut names = HashSet::new();
    let mut seen: HashMap<String, usize> = HashMap::new();
    let numbers: HashMap<usize, &str> = text.lines().enumerate().collect();
    for (i, line) in prose(text) {
        for (at, _) in line.match_indices("id=\"") {
            names.extend(line[at + 4..].split('"').next().map(String::from));
        }
        let level = line.chars().take_while(|&c| c == '#').count();
        if !(1..=6).contains(&level) || !line[level..].starts_with(' ') {
            continue;
        }
        let name = slug(numbers[&i].trim_start_matches('#').trim()); // including the text in backticks
        let count = seen.entry(name.clone()).or_default();
        names.insert(if *count == 0 { name } else { format!("{name}-{count}") });
        *count += 1;
    }
    names
}

fn slug(heading: &str) -> String {
    let mut words = String::new();
    let mut rest = heading;
    while let Some(at) = rest.find("](") {
        words += &rest[..at]; // of a link, only its text
        rest = rest[at..].split_once(')').map_or("", |(_, after)| after);
    }
    words += rest;
    let kept = words.chars().filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUIDE: &str = "# Guide\n\n## `ras`, and *what* to do\n\n```sh\n# no heading\n```\n\n## Twice\n## Twice\n<a id=\"own\"></a>\n";

    fn breaches(name: &str, text: &str) -> Vec<String> {
        let files =
            [("README.md", Some(text)), ("docs/guide.md", Some(GUIDE)), ("docs/pictures/flow.png", None)];
        Targets::new(files)
            .check(name, text)
            .into_iter()
            .map(|f| format!("{}: {}", f.line, f.message))
            .collect()
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let text = "# Top\n[a](docs/guide.md) [b](docs/guide.md#ras-and-what-to-do) [c](#top)\n\
                    [d](docs) ![e](docs/pictures/flow.png \"a title\") [f](https://host.example/x)\n\
                    [g](docs/guide.md#twice-1) [h](docs/guide.md#own) <img src=\"docs/pictures/flow.png\">\n\
                    `[i](nowhere.md)`\n```text\n[j](nowhere.md)\n```\n";
        assert_eq!(breaches("README.md", text), [""; 0]);
        assert_eq!(
            breaches("docs/other.md", "[a](guide.md) [b](../README.md) [c](pictures/flow.png)"),
            [""; 0]
        );
    }

    #[test]
    fn links_that_lead_nowhere_are_named_with_their_line() {
        let text =
            "\n[a](docs/gone.md)\n[b](docs/guide.md#no-heading)\n<img src=\"flow.png\">\n[c](../x.md)\n";
        let expected = [
            "2: the link `docs/gone.md` leads to `docs/gone.md`, which is not there",
            "3: `docs/guide.md` has no heading `#no-heading`",
            "4: the link `flow.png` leads to `flow.png`, which is not there",
            "5: the link `../x.md` leaves the repository",
        ];
        assert_eq!(breaches("README.md", text), expected);
        assert_eq!(breaches("docs/other.md", "[a](docs/guide.md)").len(), 1);
    }
}
