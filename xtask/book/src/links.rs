//! Checks the links of the built pages: the page and the anchor must exist, and no page may load anything
//! from another site.

use mdbook_driver::errors::{Error, Result};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Checks every page below `site`, and returns their number.
pub fn check(site: &Path) -> Result<usize> {
    let (mut pages, mut files) = (HashMap::new(), HashSet::new());
    read(site, "", &mut pages, &mut files)?;
    let anchors: HashMap<&String, HashSet<&str>> =
        pages.iter().map(|(name, text)| (name, values(text, " id=\"").collect())).collect();
    let mut findings = Vec::new();
    for (name, text) in &pages {
        // The server returns 404.html for unknown addresses, and other pages include toc.html.
        if matches!(name.as_str(), "404.html" | "toc.html") {
            continue;
        }
        for (mark, fetches) in [(" href=\"", false), (" src=\"", true), (" srcset=\"", true)] {
            for link in values(text, mark) {
                if link.contains("://") || link.starts_with("mailto:") || link.starts_with("data:") {
                    if fetches {
                        findings.push(format!("{name}: fetches {link}"));
                    }
                    continue;
                }
                let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
                let path =
                    if path.is_empty() { name.clone() } else { path.trim_start_matches("./").to_string() };
                if !files.contains(&path) {
                    findings.push(format!("{name}: {link} leads nowhere"));
                } else if !anchor.is_empty() && anchors.get(&path).is_some_and(|a| !a.contains(anchor)) {
                    findings.push(format!("{name}: {path} has no #{anchor}"));
                }
            }
        }
        for line in text.lines().filter(|l| l.contains("<link ") || l.contains("<script ")) {
            if line.contains("\"http") && !line.contains("rel=\"canonical\"") {
                findings.push(format!("{name}: fetches {}", line.trim()));
            }
        }
    }
    match findings.is_empty() {
        true => Ok(pages.len()),
        false => Err(Error::msg(findings.join("\n"))),
    }
}

fn read(
    folder: &Path,
    prefix: &str,
    pages: &mut HashMap<String, String>,
    files: &mut HashSet<String>,
) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            read(&entry.path(), &format!("{name}/"), pages, files)?;
            continue;
        }
        if name.ends_with(".html") {
            pages.insert(name.clone(), std::fs::read_to_string(entry.path())?);
        }
        files.insert(name);
    }
    Ok(())
}

/// Returns the texts between each `mark` and the next quotation mark.
fn values<'a>(text: &'a str, mark: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(mark).skip(1).filter_map(|rest| rest.split('"').next())
}
