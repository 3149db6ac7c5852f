//! Generates the guide's lists and Python's types from declarations. Tests compare them with the files, and
//! `KRYLITH_WRITE_GUIDE=1 cargo test -p krylith-cli --lib guide` writes the files again.

use krylith_core::Outcome;
use krylith_core::method::MethodName;
use krylith_core::names::Named;
use krylith_core::options::{Group, Kind, OptionInfo, TABLE};
use krylith_core::precond::PrecondSpec;
use std::path::Path;
use std::sync::Mutex;

/// An item of a list in lines of at most 120 characters.
pub fn wrapped(item: &str) -> String {
    let (mut lines, mut width) = (String::new(), 0);
    for word in item.split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > 120 {
            lines += "\n ";
            width = 1;
        }
        if width > 0 {
            lines.push(' ');
            width += 1;
        }
        lines += word;
        width += length;
    }
    lines + "\n"
}

/// Compares a file of the repository with what it should be, or writes it. A published package has no
/// repository.
fn file(name: &str, wanted: impl FnOnce(&str) -> String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if !root.join("xtask").is_dir() {
        return;
    }
    static TURN: Mutex<()> = Mutex::new(()); // tests write different sections of one file
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let path = root.join(name);
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    let new = wanted(&old);
    if old != new && std::env::var_os("KRYLITH_WRITE_GUIDE").is_some() {
        std::fs::write(path, new).unwrap();
        return;
    }
    assert!(old == new, "{name} is old: KRYLITH_WRITE_GUIDE=1 cargo test -p krylith-cli --lib guide");
}

/// The text between two marks of a document.
pub fn section(document: &str, mark: &str, text: &str) {
    file(document, |old| {
        let (begin, end) = (format!("<!-- {mark}: begin -->\n"), format!("<!-- {mark}: end -->"));
        let (before, rest) = old.split_once(&begin).expect("the document has the section");
        let (_, after) = rest.split_once(&end).expect("the section ends");
        format!("{before}{begin}\n{text}\n{end}{after}")
    });
}

/// The guide's list of options.
fn guide() -> String {
    let item = |option: &OptionInfo| {
        let flag = option.name.replace('_', "-");
        let of = match option.method {
            Some(MethodName::Gmres) => " For `gmres` and `fgmres`.".into(),
            Some(method) => format!(" For `{method}`."),
            None => String::new(),
        };
        let value = match option.kind {
            Kind::Flag => format!("[={}]", option.metavar),
            _ => format!(" {}", option.metavar),
        };
        wrapped(&format!("- **`--{flag}{value}`**: {}{of} Default: {}.", option.help, option.default))
    };
    let groups = [
        (Group::Method, "Method and preconditioner"),
        (Group::Limit, "Limits"),
        (Group::Stop, "When to stop"),
        (Group::Machine, "Machine"),
        (Group::System, "The matrix before the solve"),
    ];
    let mut text = String::new();
    for (group, title) in groups {
        text += &format!("**{title}**\n\n");
        text.extend(TABLE.iter().filter(|option| option.group == group).map(item));
        text += "\n";
    }
    text.trim_end().to_string() + "\n"
}

/// Python's types of the options.
fn keywords() -> String {
    let quoted = |names: &[&str]| names.iter().map(|n| format!("\"{n}\"")).collect::<Vec<_>>().join(", ");
    let of = |option: &OptionInfo| match option.kind {
        Kind::Count => "int".into(),
        Kind::CountOr(names) => format!("int | Literal[{}]", quoted(names)),
        Kind::Real => "float".into(),
        Kind::Flag => "bool".into(),
        Kind::Bytes => "int | str".into(),
        Kind::Text => "str".into(),
        // Its own options may follow a method's name.
        Kind::Choice(_) if option.name == "method" => "str".into(),
        Kind::Choice(names) => format!("Literal[{}]", quoted(names)),
    };
    let signature = ["method", "precond", "rtol", "atol", "max_iters", "device"];
    let mut text = String::from(
        "\"\"\"Types of the options, written from their declarations in Rust: do not edit.\n\n\
         `KRYLITH_WRITE_GUIDE=1 cargo test -p krylith-cli --lib guide` writes this file.\n\"\"\"\n\n\
         from __future__ import annotations\n\nfrom typing import Literal, TypedDict\n\n",
    );
    let outcomes = Outcome::ALL.map(Outcome::name);
    text += &literal(
        "MethodName",
        "Names of methods, which options may follow: `gmres:restart=50`.",
        MethodName::NAMES,
    );
    let preconditioners: Vec<&str> = PrecondSpec::names().collect();
    text += &literal(
        "PrecondName",
        "Names of preconditioners, which keys may follow: `ildu:fill=1`.",
        &preconditioners,
    );
    text += &literal("OutcomeName", "How a solve ends.", &outcomes);
    text.push_str(
        "\n\nclass Options(TypedDict, total=False):\n    \"\"\"Options beyond those in the signature of `solve`.\"\"\"\n\n",
    );
    for option in TABLE.iter().filter(|option| !signature.contains(&option.name)) {
        text += &format!("    {}: {}\n", option.name, of(option));
    }
    text += "    #: SciPy's name of `max_iters`.\n    maxiter: int\n";
    for (class, name) in [("IlduKeys", "ildu"), ("RasKeys", "ras"), ("AmgKeys", "amg"), ("LuKeys", "lu")] {
        text += &format!("\n\nclass {class}(TypedDict, total=False):\n    \"\"\"Keys of `{name}`.\"\"\"\n\n");
        for (key, takes) in PrecondSpec::keys(name) {
            text += &format!("    {key}: {}\n", key_type(takes));
        }
    }
    text
}

/// A Python type of the names.
fn literal(of: &str, what: &str, names: &[&str]) -> String {
    let lines: String = names.iter().map(|name| format!("    \"{name}\",\n")).collect();
    format!("#: {what}\n{of} = Literal[\n{lines}]\n")
}

/// Python's type of a key of a preconditioner, from what the library's list of names says that it takes.
fn key_type(takes: &str) -> String {
    match takes {
        "" => "bool".into(),
        "NAME" => "str".into(),
        "S" | "T" | "W" | "R" => "float".into(),
        letter if letter.len() == 1 && letter.chars().all(char::is_uppercase) => "int".into(),
        names if names.contains(char::is_uppercase) => "str".into(),
        names => format!(
            "Literal[{}]",
            names.split('|').map(|n| format!("\"{n}\"")).collect::<Vec<_>>().join(", ")
        ),
    }
}

#[test]
fn the_guide_and_python_have_every_option() {
    section("docs/guide.md", "options", &guide());
    file("crates/krylith-py/python/krylith/_keywords.py", |_| keywords());
}
