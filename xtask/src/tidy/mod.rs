//! `cargo xtask tidy`: the rules of CONTRIBUTING.md that a machine can check.

mod code;
pub mod commits;
mod forgotten;
mod graph;
mod layers;
mod links;
pub mod prose;
mod sizes;
#[cfg(test)]
mod tests;

use crate::shell::{git, read, root};
use code::{code_only, words};
use graph::Graph;
use links::Targets;
use std::path::Path;
use std::process::ExitCode;

/// Longest source file.
const LINES: usize = 600;

/// Files in which `unsafe` is allowed. They are the devices, types that name device memory, calls of MPI, the
/// memory map of an input file, and allocators that count in tests. They also are an application's device
/// memory in tests, the bandwidth baseline of CPU products, vendor libraries as baselines, and the command's
/// signals. The last ones are the allocator of our processes, for which the standard library has no safe
/// interface, memory that programs in C and Python lend, and calls of XLA.
const UNSAFE: [&str; 22] = [
    "crates/krylith-base/src/comm/mpi/",
    "crates/krylith-core/src/device/cpu/",
    "crates/krylith-core/src/device/cuda/",
    "crates/krylith-core/src/device/workers.rs",
    "crates/krylith-base/src/threads/",
    "crates/krylith-matrix/src/io/source.rs",
    "crates/krylith-matrix/src/memory.rs",
    "crates/krylith-core/tests/allocations.rs",
    "crates/krylith-core/tests/conformance/lender.rs",
    "crates/krylith-core/tests/input_memory.rs",
    "crates/krylith-core/examples/cpu_bandwidth.rs",
    "crates/krylith-problems/tests/fuzz/memory.rs",
    "crates/krylith-bench/src/cuda/",
    "crates/krylith-bench/src/triad.rs",
    "crates/krylith-cli/src/process.rs",
    "crates/krylith-report/src/process.rs",
    "crates/krylith-c/src/",
    "crates/krylith-py/src/arrays.rs",
    "crates/krylith-py/src/dlpack.rs",
    "crates/krylith-py/src/ranks.rs",
    "crates/krylith-py/src/solver.rs",
    "crates/krylith-py/src/xla.rs",
];

/// Folders in which a rayon pool may be created: a solver has one, and the command has one for its other
/// work.
const POOLS: [&str; 2] = ["crates/krylith-base/src/threads/", "crates/krylith-cli/src/process.rs"];

/// Words that mark unfinished work, split so that this file passes the check.
const UNFINISHED: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

/// Hosts and settings of package registries. Files name packages; their source is the choice of the machine.
const REGISTRIES: [&str; 8] = [
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("py", "pi.org"),
    concat!("python", "hosted.org"),
    concat!("pypi.", "nvidia.com"),
    concat!("proxy.", "golang.org"),
    concat!("index", "-url"),
    concat!("replace", "-with"),
];

/// Folders that exist only on one machine.
const FOLDERS: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

/// The one source that Cargo.lock may name.
const LOCK_SOURCE: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub fn run() -> ExitCode {
    match check() {
        Ok(note) => {
            println!("tidy: {note}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("tidy: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Checks all files that git tracks or would track, and new commits. Prints findings, and returns a note on
/// what was checked.
pub fn check() -> Result<String, String> {
    let root = root();
    let contributing = std::fs::read_to_string(root.join("CONTRIBUTING.md")).unwrap_or_default();
    let files = tracked();
    let is_page = |name: &str| name.ends_with(".md");
    let listed = files.iter().map(|(name, bytes)| (name.as_str(), text_of(bytes).filter(|_| is_page(name))));
    let targets = Targets::new(listed);
    let mut findings = 0;
    for (name, bytes) in &files {
        let Some(text) = text_of(bytes) else { continue };
        let mut found = check_file(name, text, &contributing);
        if is_page(name) {
            found.extend(targets.check(name, text));
        }
        let enforced = prose::RULES.iter().filter(|rule| rule.enforced);
        found.extend(enforced.flat_map(|rule| rule.check(name, text)));
        for finding in found {
            println!("{name}:{}: {}", finding.line, finding.message);
            findings += 1;
        }
    }
    for (folder, order, left) in layers::CRATES {
        let own =
            files.iter().filter_map(|(name, bytes)| Some((name.strip_prefix(folder)?, text_of(bytes)?)));
        let graph = Graph::read(own);
        for finding in layers::check(&graph, order, left) {
            println!("{folder}: {finding}");
            findings += 1;
        }
        println!("{folder}: {}", layers::describe(&graph, left));
    }
    let texts = files.iter().filter_map(|(name, bytes)| Some((name.as_str(), text_of(bytes)?)));
    let (sizes, too_large) = sizes::check(texts.clone());
    println!("{sizes}");
    for finding in too_large {
        println!("{finding}");
        findings += 1;
    }
    for (name, line, function) in forgotten::find(texts) {
        println!("{name}:{line}: no device runs `{function}`");
        findings += 1;
    }
    let (commits, faults) = commits::check();
    for fault in faults {
        println!("{fault}");
        findings += 1;
    }
    let checked = format!("{} files, {commits}", files.len());
    if findings == 0 { Ok(checked) } else { Err(format!("{findings} findings in {checked}")) }
}

/// Returns every file that git tracks or would track, with its content.
fn tracked() -> Vec<(String, Vec<u8>)> {
    let root = root();
    let names = files_of_git().unwrap_or_else(|| files_below(&root, ""));
    // Files that are deleted but still in git's index are left out.
    names
        .into_iter()
        .filter_map(|name| std::fs::read(root.join(&name)).ok().map(|bytes| (name, bytes)))
        .collect()
}

/// Returns the text of a file; `None` if it is not text.
fn text_of(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// Returns the names of files that git tracks or would track; `None` without git or a repository.
fn files_of_git() -> Option<Vec<String>> {
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let names = read(&mut git(&list)).ok()?;
    Some(names.split('\0').filter(|n| !n.is_empty()).map(String::from).collect())
}

/// Returns every file of a source tree without git, except build results.
fn files_below(folder: &Path, prefix: &str) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if !entry.path().is_dir() {
            names.push(name);
        } else if !matches!(name.as_str(), ".git" | "target" | "gpu-out") {
            names.extend(files_below(&entry.path(), &format!("{name}/")));
        }
    }
    names.sort();
    names
}

/// A violation of a rule, at a one-based line.
#[derive(Debug, PartialEq)]
struct Finding {
    line: usize,
    message: String,
}

fn check_file(name: &str, text: &str, contributing: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |line: usize, message: String| findings.push(Finding { line: line + 1, message });
    let extension = Path::new(name).extension().and_then(|e| e.to_str()).unwrap_or_default();
    let is_source = matches!(extension, "rs" | "cu" | "cuh" | "inc" | "py");
    // Output of programs, and input that a test must read unchanged.
    let is_data = name.contains("/tests/data/") || name.starts_with("bench/runs/");

    let lines = text.lines().count();
    if is_source && lines > LINES {
        find(LINES, format!("{lines} lines; a source file has at most {LINES}"));
    }
    for (i, line) in text.split('\n').enumerate() {
        if !is_data && line.ends_with([' ', '\t', '\r']) {
            find(i, "whitespace at the end of the line".into());
        }
        if is_source || matches!(extension, "sh" | "toml") {
            for word in UNFINISHED {
                if words(line).any(|w| w == word) {
                    find(i, format!("{word}: finish it, or open an issue"));
                }
            }
        }
        for host in REGISTRIES {
            if line.contains(host) {
                find(i, format!("`{host}`: name the package, not where it comes from"));
            }
        }
        for folder in FOLDERS {
            if names_folder(line, folder) {
                find(i, format!("`{folder}` is a folder of one machine"));
            }
        }
        if name.ends_with("Cargo.lock") && line.starts_with("source = ") && !line.contains(LOCK_SOURCE) {
            find(i, format!("a source other than `{LOCK_SOURCE}`"));
        }
    }
    if extension == "rs" {
        check_rust(name, text, contributing, &mut find);
    }
    findings
}

fn check_rust(name: &str, text: &str, contributing: &str, find: &mut dyn FnMut(usize, String)) {
    let code = code_only(text);
    let code: Vec<&str> = code.lines().collect();
    let text: Vec<&str> = text.lines().collect();
    let may_be_unsafe = UNSAFE.iter().any(|place| name.starts_with(place));
    let may_have_pools = POOLS.iter().any(|place| name.starts_with(place));
    let is_library =
        layers::CRATES.iter().any(|(folder, ..)| name.starts_with(folder)) && !name.ends_with("/tests.rs");
    let mut in_tests = false;
    for (i, line) in code.iter().enumerate() {
        in_tests |= line.trim() == "#[cfg(test)]" && code.get(i + 1).is_some_and(|l| l.trim().ends_with('{'));
        for name in ["todo", "unimplemented"] {
            if calls(line, name) {
                find(i, format!("{name}!: finish it"));
            }
        }
        for name in ["dbg", "println", "print", "eprintln", "eprint"] {
            if is_library && !in_tests && calls(line, name) {
                find(i, format!("{name}! in the library; give it to an observer or an error"));
            }
        }
        let is_product = name.contains("/src/") && !name.ends_with("/tests.rs") && !in_tests;
        if is_product && !may_have_pools && words(line).any(|w| w == "ThreadPoolBuilder") {
            find(i, "a pool of rayon's: take that of the solver, or `threads::within`".into());
        }
        if !may_be_unsafe && words(line).any(|w| w == "unsafe") {
            find(i, "unsafe outside the device and FFI files".into());
        }
        if is_public_unsafe_fn(line) && !documents_safety(&text[..i]) {
            find(i, "a public unsafe fn without `# Safety` in its documentation".into());
        }
        if line.trim_start().starts_with("#[ignore") {
            if line.trim_start().starts_with("#[ignore]") {
                find(i, "an ignored test without a reason: #[ignore = \"…\"]".into());
            }
            let function = code[i..].iter().find_map(|l| l.split("fn ").nth(1)).unwrap_or_default();
            let function = words(function).next().unwrap_or_default();
            if !words(contributing).any(|w| w == function) {
                find(i, format!("CONTRIBUTING.md does not say where the ignored test `{function}` runs"));
            }
        }
    }
}

/// Returns true if a line calls the macro `name!`, not one whose longer name ends in it.
fn calls(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        line[at + name.len()..].starts_with('!') && !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

/// Returns true for `pub unsafe fn`, also with `pub(…)`, `const` and `extern`, but not for the type of a
/// function pointer.
fn is_public_unsafe_fn(line: &str) -> bool {
    let mut list = words(line);
    let declares = list.next() == Some("pub")
        && list.find(|w| !matches!(*w, "crate" | "super" | "in" | "const" | "async")) == Some("unsafe");
    declares && list.any(|w| w == "fn")
}

/// Returns true if the documentation and attributes at the end of `above` have a section on safety.
fn documents_safety(above: &[&str]) -> bool {
    let head = above.iter().rev().map(|l| l.trim());
    head.take_while(|l| l.starts_with("///") || l.starts_with("#[") || l.starts_with("//"))
        .any(|l| l.contains("# Safety"))
}

/// Returns true if `folder` occurs as the beginning of a path, not inside a longer one.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-/~}$)".contains(c))
    })
}
