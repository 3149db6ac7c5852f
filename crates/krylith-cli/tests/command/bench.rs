//! `krylith bench`, which starts another program.
#![cfg(unix)]

use crate::common::{Folder, Ran};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Copies the command into an otherwise empty folder.
fn alone() -> Folder {
    let f = Folder::new();
    let program = env!("CARGO_BIN_EXE_krylith");
    if std::fs::hard_link(program, f.path("krylith")).is_err() {
        std::fs::copy(program, f.path("krylith")).unwrap(); // hard links fail across file systems
    }
    f
}

/// Writes a program that prints its arguments and ends with exit code 7.
fn suites(f: &Folder, name: &str) {
    let program = f.write(name, "#!/bin/sh\necho \"$0: $*\"\nexit 7\n");
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn run(f: &Folder, path: &str, words: &[&str]) -> Ran {
    Ran::new(Command::new(f.path("krylith")).args(words).env("PATH", path).output().unwrap())
}

#[test]
fn without_the_suites_it_says_how_to_have_them() {
    let f = alone();
    for words in [&["bench", "okp", "--device", "cpu"][..], &["bench"], &["bench", "--help"]] {
        run(&f, "", words)
            .fails(2, &["krylith-bench", "cargo install --path crates/krylith-bench", "cargo build"]);
    }
}

#[test]
fn words_and_exit_code_are_the_program_s_own() {
    let f = alone();
    std::fs::create_dir(f.path("bin")).unwrap();
    suites(&f, "bin/krylith-bench");
    let bin = f.path("bin");
    let ran = run(&f, bin.to_str().unwrap(), &["bench", "okp", "--out", "a b", "--help", "-V"]);
    assert_eq!(ran.code, 7, "{ran:#?}");
    assert!(ran.out.ends_with("bin/krylith-bench: okp --out a b --help -V\n"), "{ran:#?}");
    // The program beside the command has priority, because both were built together.
    suites(&f, "krylith-bench");
    let ran = run(&f, bin.to_str().unwrap(), &["bench"]);
    assert!(ran.code == 7 && !ran.out.contains("bin/krylith-bench"), "{ran:#?}");
}

#[test]
fn a_program_that_cannot_be_started_is_named() {
    let f = alone();
    f.write("krylith-bench", "no program");
    run(&f, "", &["bench", "okp"]).fails(3, &["krylith-bench", "denied"]);
}
