//! `cargo xtask licenses`: writes THIRD-PARTY-LICENSES.md, which has the notices that the licences of
//! included work require.
//!
//! The packages are those that `cargo metadata` lists below the published programs, on x86-64 and aarch64.
//! Packages that only compile or generate code (procedural macros, build scripts) are left out. A licence
//! that is not in [`ALLOWED`] is an error.

use crate::shell::{cargo, root};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{ExitCode, Stdio};

/// The file.
pub const FILE: &str = "THIRD-PARTY-LICENSES.md";

/// Programs that archives and wheels contain.
const PROGRAMS: [&str; 4] = ["krylith-cli", "krylith-bench", "krylith-c", "krylith-py"];

/// Platforms of these programs.
const PLATFORMS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// Licences that require nothing but their text.
const ALLOWED: [&str; 11] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// Works of others that are included in packages: the work, its licence, the package, and the licence's file
/// in the package.
const INSIDE: [(&str, &str, &str, &str); 3] = [
    ("METIS", "Apache-2.0", "metis-sys", "vendor/metis/LICENSE"),
    ("GKlib", "Apache-2.0", "metis-sys", "vendor/GKlib/LICENSE.txt"),
    ("DejaVu Sans, a subset", "Bitstream-Vera", "krylith-plot", "font/LICENSE.txt"),
];

const HEAD: &str = "\
# Licences of what Krylith is made of

Krylith's programs and libraries have these works of others inside. Krylith itself is MIT or Apache-2.0, at your choice.
Written by `cargo xtask licenses`; do not edit.

- The Rust standard library: MIT or Apache-2.0, The Rust Project Developers.
- Machine code of CUDA kernels, where a build has it inside, is made of Krylith's sources by NVIDIA's compiler NVRTC, with NVIDIA's
  mathematical functions for devices, which may be passed on under the licence of the CUDA toolkit (its Attachment A).
- Libraries that are found at run time (driver, NVRTC, NCCL, MPI, cuBLAS and cuSPARSE) are not inside.

";

/// The MIT licence, for packages that offer it but do not contain its text.
const MIT: &str = "\
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the
\"Software\"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish,
distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to
the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED \"AS IS\", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR
ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH
THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.";

/// Writes the file; with `check_only` only checks whether it is up to date.
pub fn run(check_only: bool) -> ExitCode {
    let done = if check_only { check() } else { write() };
    match done {
        Ok(text) => {
            println!("licenses: {text}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("licenses: {why}");
            ExitCode::FAILURE
        }
    }
}

fn write() -> Result<String, String> {
    let (text, count) = made()?;
    std::fs::write(root().join(FILE), text).map_err(|e| format!("{FILE}: {e}"))?;
    Ok(format!("{FILE} written, {count} packages"))
}

/// Checks that the file is up to date.
pub fn check() -> Result<String, String> {
    let (text, count) = made()?;
    match std::fs::read_to_string(root().join(FILE)) {
        Ok(found) if found == text => Ok(format!("{count} packages")),
        _ => Err(format!("{FILE} is out of date: `cargo xtask licenses` writes it")),
    }
}

/// A package that the programs include.
struct Package {
    name: String,
    version: String,
    license: String,
    repository: String,
    authors: String,
    folder: String,
    ours: bool,
}

/// Returns the text of the file, and the number of packages that it covers.
fn made() -> Result<(String, usize), String> {
    let mut packages = BTreeMap::new();
    for platform in PLATFORMS {
        for package in inside(platform)? {
            packages.insert((package.name.clone(), package.version.clone()), package);
        }
    }
    let packages: Vec<Package> = packages.into_values().collect();
    let mut wrong = Vec::new();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut list = String::from("| work | licence | from |\n|---|---|---|\n");
    let others = packages.iter().filter(|p| !p.ours);
    for p in others.clone() {
        let name = format!("{} {}", p.name, p.version);
        if !allowed(&p.license) {
            wrong.push(format!("{name}: {}", p.license));
        }
        list += &format!("| {name} | {} | {} |\n", p.license, p.repository);
        let mut found = read(Path::new(&p.folder))?;
        if found.is_empty() {
            found.push(format!("Copyright (c) {}\n\n{MIT}", p.authors));
        }
        for text in found {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    if !wrong.is_empty() {
        return Err(format!(
            "licences that xtask/src/licenses.rs does not allow; see what they ask for: {}",
            wrong.join("; ")
        ));
    }
    for (work, license, package, file) in INSIDE {
        let of = packages.iter().find(|p| p.name == package);
        let of = of.ok_or_else(|| format!("{work} was part of {package}, which is not there any more"))?;
        list += &format!("| {work} | {license} | package {package} |\n");
        let path = Path::new(&of.folder).join(file);
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        texts.entry(tidy(&text)).or_default().push(work.into());
    }
    let mut out = HEAD.to_string() + &list;
    // Texts are ordered by the first package that has them, so that a new package moves no other text.
    let mut texts: Vec<(String, Vec<String>)> = texts.into_iter().collect();
    texts.sort_by(|a, b| a.1.cmp(&b.1).then(a.0.cmp(&b.0)));
    for (text, names) in texts {
        out += &format!("\n## {}\n\n", names.join(", "));
        out +=
            &text.lines().map(|line| format!("    {line}").trim_end().to_string() + "\n").collect::<String>();
    }
    Ok((out, others.count()))
}

/// Returns the packages that the programs include on one platform.
fn inside(platform: &str) -> Result<Vec<Package>, String> {
    let mut command =
        cargo(&["metadata", "--format-version", "1", "--locked", "--filter-platform", platform]);
    let output = command.stderr(Stdio::inherit()).output().map_err(|e| format!("cargo metadata: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", output.status));
    }
    let all: Value = serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    let list = |v: &Value| v.as_array().cloned().unwrap_or_default();
    let text = |v: &Value| v.as_str().unwrap_or_default().to_string();
    let packages: BTreeMap<String, Value> =
        list(&all["packages"]).into_iter().map(|p| (text(&p["id"]), p)).collect();
    let nodes: BTreeMap<String, Value> =
        list(&all["resolve"]["nodes"]).into_iter().map(|n| (text(&n["id"]), n)).collect();
    let is_program = |p: &Value| PROGRAMS.contains(&p["name"].as_str().unwrap_or_default());
    let mut next: Vec<String> =
        packages.iter().filter(|(_, p)| is_program(p)).map(|(id, _)| id.clone()).collect();
    if next.len() != PROGRAMS.len() {
        return Err(format!("not all of {} are packages of this workspace", PROGRAMS.join(", ")));
    }
    let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
    while let Some(id) = next.pop() {
        let Some(p) = packages.get(&id).filter(|_| seen.insert(id.clone())) else { continue };
        // A procedural macro runs in the compiler, and so do its dependencies.
        if list(&p["targets"]).iter().any(|t| list(&t["kind"]).iter().any(|kind| kind == "proc-macro")) {
            continue;
        }
        let is_normal = |d: &Value| list(&d["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        let below = nodes.get(&id).map(|node| list(&node["deps"])).unwrap_or_default();
        next.extend(below.iter().filter(|d| is_normal(d)).map(|d| text(&d["pkg"])));
        let authors: Vec<String> = list(&p["authors"]).iter().map(text).collect();
        let (name, manifest) = (text(&p["name"]), text(&p["manifest_path"]));
        found.push(Package {
            version: text(&p["version"]),
            license: text(&p["license"]),
            repository: text(&p["repository"]),
            authors: if authors.is_empty() { format!("the authors of {name}") } else { authors.join(", ") },
            folder: Path::new(&manifest).parent().unwrap_or(Path::new("")).display().to_string(),
            ours: p["source"].is_null(),
            name,
        });
    }
    Ok(found)
}

/// Reads the licence texts of a package. If it offers MIT among others, the MIT text is enough.
fn read(folder: &Path) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.path().is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| {
            let upper = name.to_uppercase();
            ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"]
                .iter()
                .any(|begin| upper.starts_with(begin))
        })
        .collect();
    names.sort();
    let has_mit = names.iter().any(|name| name.to_uppercase().starts_with("LICENSE-MIT"));
    let rest = ["APACHE", "ZLIB", "0BSD", "BSD", "UNLICENSE", "COPYING", "COPYRIGHT"];
    let is_other = |name: &String| {
        let upper = name.to_uppercase();
        upper != "LICENSE-MIT" && !upper.starts_with("NOTICE") && rest.iter().any(|word| upper.contains(word))
    };
    if has_mit {
        names.retain(|name| !is_other(name));
    }
    names
        .iter()
        .map(|name| {
            let path = folder.join(name);
            let bytes = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            Ok(tidy(&String::from_utf8_lossy(&bytes)))
        })
        .collect()
}

/// Removes differences that occur between copies of one text: blanks at line ends, and empty lines around it.
fn tidy(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim_matches('\n').to_string()
}

/// Returns true if allowed licences satisfy an SPDX expression.
fn allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    either(&words, &mut at) && at == words.len()
}

/// Parses A OR B OR …, and returns true if one of them is allowed.
fn either(words: &[&str], at: &mut usize) -> bool {
    let mut all = both(words, at);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        all |= both(words, at);
    }
    all
}

/// Parses A AND B AND …, and returns true if all of them are allowed.
fn both(words: &[&str], at: &mut usize) -> bool {
    let mut all = single(words, at);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        all &= single(words, at);
    }
    all
}

fn single(words: &[&str], at: &mut usize) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let inner = either(words, at);
        let closed = words.get(*at) == Some(&")");
        *at += 1;
        return inner && closed;
    }
    let mut name = word.to_string();
    if words.get(*at) == Some(&"WITH") {
        name += &format!(" WITH {}", words.get(*at + 1).unwrap_or(&""));
        *at += 2;
    }
    ALLOWED.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_met_by_what_is_allowed() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "Unlicense OR MIT",
            "(MIT OR GPL-3.0-only) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
        ] {
            assert!(allowed(good), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0-only",
            "MIT AND MPL-2.0",
            "GPL-2.0-only WITH LLVM-exception",
            "(MIT",
            "MIT )",
            "MIT MIT",
        ] {
            assert!(!allowed(bad), "{bad}");
        }
    }

    #[test]
    fn of_a_choice_the_short_text_is_taken_and_notices_stay() {
        let folder = std::env::temp_dir().join(format!("xtask-licences-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["LICENSE-MIT", "LICENSE-APACHE", "NOTICE", "COPYING", "README.md"] {
            std::fs::write(folder.join(name), format!("{name} \r\n\n")).unwrap();
        }
        assert_eq!(read(&folder).unwrap(), ["LICENSE-MIT", "NOTICE"]);
        std::fs::remove_file(folder.join("LICENSE-MIT")).unwrap();
        assert_eq!(read(&folder).unwrap(), ["COPYING", "LICENSE-APACHE", "NOTICE"]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
