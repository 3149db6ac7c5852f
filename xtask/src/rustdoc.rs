//! `cargo xtask rustdoc`: builds the documentation of all libraries, and checks that every public type of the
//! published ones has an example.
//!
//! The list of public types comes from the pages that rustdoc has written, because rustdoc resolves
//! re-exports and hidden items.

use crate::shell::{cargo, shell, target};
use std::path::Path;
use std::process::ExitCode;

/// Crates whose types need examples, as rustdoc names them.
const PUBLISHED: [&str; 5] = ["krylith", "krylith_core", "krylith_problems", "krylith_plot", "krylith_model"];

/// Kinds of pages that are checked.
const KINDS: [&str; 5] = ["struct.", "enum.", "trait.", "union.", "macro."];

/// Public types without an example, each with the reason.
const ALLOWED: [(&str, &str); 0] = [];

pub fn run() -> ExitCode {
    match build() {
        Ok(note) => {
            println!("{note}; {}", target().join("doc/krylith/index.html").display());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("doc: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the documentation and looks for examples.
pub fn build() -> Result<String, String> {
    // Only libraries: the command's binary and the library would both write target/doc/krylith.
    let doc = ["doc", "--workspace", "--all-features", "--lib", "--no-deps", "--quiet"];
    shell(cargo(&doc).env("RUSTDOCFLAGS", "-D warnings"))?;
    let (mut types, mut without) = (0, Vec::new());
    for name in PUBLISHED {
        let folder = target().join("doc").join(name);
        for page in pages(&read(&folder.join("all.html"))?) {
            types += 1;
            let item = format!("{name}/{page}");
            let shows = has_example(&read(&folder.join(&page))?);
            match ALLOWED.iter().find(|(allowed, _)| *allowed == item) {
                None if !shows => without.push(item),
                Some((_, why)) if shows => {
                    return Err(format!("{item} has an example; strike it off ALLOWED ({why})"));
                }
                _ => {}
            }
        }
    }
    match without.is_empty() {
        true => Ok(format!("{} of {types} public types with an example", types - ALLOWED.len())),
        false => Err(format!("public types without `# Examples` and code that runs: {}", without.join(", "))),
    }
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Returns the pages of types that a crate's list of all items names. rustdoc rewrites this list each time,
/// while pages of removed items remain.
fn pages(all: &str) -> Vec<String> {
    let links = all.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let of_types = links.filter(|link| {
        let file = link.rsplit('/').next().unwrap_or_default();
        KINDS.iter().any(|kind| file.starts_with(kind))
    });
    of_types.map(String::from).collect()
}

/// Returns true if a type's own documentation, which precedes that of its items, has a section of examples
/// with code that is run.
fn has_example(page: &str) -> bool {
    let own = page.split_once("top-doc").map_or("", |(_, rest)| rest);
    let own = own.split("</details>").next().unwrap_or_default();
    let section = own.split_once("id=\"examples\"").map_or("", |(_, rest)| rest);
    section
        .split("<div class=\"example-wrap")
        .skip(1)
        .any(|block| !block.starts_with(" ignore") && block.contains("class=\"rust"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_told_from_other_items() {
        let all = r#"<a href="comm/struct.Solo.html">x</a><a href="fn.solve.html">y</a><a href="../help.html">z</a><a href="enum.Error.html">"#;
        assert_eq!(pages(all), ["comm/struct.Solo.html", "enum.Error.html"]);
    }

    #[test]
    fn examples_are_those_of_the_type_itself_that_run() {
        let page = |own: &str, rest: &str| format!("<details class=\"toggle top-doc\">{own}</details>{rest}");
        let block = |class: &str| {
            format!(
                "<h2 id=\"examples\">Examples</h2><div class=\"example-wrap{class}\"><pre class=\"rust rust-example-rendered\">"
            )
        };
        assert!(has_example(&page(&block(""), "")));
        assert!(!has_example(&page(&block(" ignore"), "")));
        assert!(!has_example(&page("words", &block(""))));
        assert!(!has_example(&page(&block("").replace("examples", "panics"), "")));
        assert!(!has_example("no documentation"));
    }
}
