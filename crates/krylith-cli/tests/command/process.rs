//! Signals, and systems that refuse memory or threads.
#![cfg(target_os = "linux")]

use crate::common::{Folder, Ran, array, mtx};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Returns a shell that changes a setting and then becomes `krylith` with these words.
fn shell(f: &Folder, before: &str, line: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{before}; exec {} {line}", env!("CARGO_BIN_EXE_krylith"))]);
    command.current_dir(f.0.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn send(signal: &str, to: &Child) {
    let kill = format!("kill -{signal} {}", to.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

/// Returns the signals that a process catches or ignores.
fn mask(of: &Child, which: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", of.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with(which)).unwrap();
    u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
}

const HUP: u64 = 1;
const INT: u64 = 1 << 1;
const TERM: u64 = 1 << 14;

/// `nohup`, and `&` in scripts, start programs with ignored signals.
#[test]
fn ignored_signals_stay_ignored() {
    let f = Folder::new();
    let line = "solve laplace:60x60x60 --device cpu --rtol 0 --atol 1e-300 --restart 3 --precond none --max-iters 100000000";
    let mut child = shell(&f, "trap '' HUP INT", line).spawn().unwrap();
    let mut text = String::new();
    let read = BufReader::new(child.stderr.take().unwrap()).read_line(&mut text).unwrap();
    assert!(read > 0 && text.contains("iteration"), "it ended before: {text}");
    let masks = (mask(&child, "SigIgn") & (HUP | INT), mask(&child, "SigCgt") & (HUP | INT | TERM));
    send("HUP", &child);
    send("INT", &child);
    std::thread::sleep(Duration::from_secs(1)); // an interrupted solve ends within milliseconds
    let ended = child.try_wait().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((masks, ended), ((HUP | INT, TERM), None));
}

/// Before the first iteration there is no x to save, so the command ends at once.
#[test]
fn ctrl_c_ends_a_long_set_up() {
    let f = Folder::new();
    let line = "solve laplace:40x40x40 --device cpu --precond ildu:fill=20,cut=whole --out x.npy";
    let mut child = shell(&f, ":", line).spawn().unwrap();
    let begin = Instant::now();
    while mask(&child, "SigCgt") & INT == 0 {
        assert!(begin.elapsed() < Duration::from_secs(30), "it does not watch");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(500)); // long enough to be in the set-up
    assert!(child.try_wait().unwrap().is_none(), "the set-up was not long");
    let asked = Instant::now();
    send("INT", &child);
    let ran = Ran::new(child.wait_with_output().unwrap());
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}: {ran:#?}", asked.elapsed());
    assert_eq!(ran.code, 130, "{ran:#?}");
    assert_eq!(ran.err, "error: interrupted before the first iteration; there is nothing to keep\n");
    assert!(f.names().is_empty(), "{:?}", f.names());
}

/// The outcome is known, but a pipe that nobody reads blocks the report. By then x is written; the first
/// signal lets the command finish, and the second leaves no temporary file.
#[test]
fn signals_while_files_are_written() {
    for signals in [1, 2] {
        let f = Folder::new();
        assert!(Command::new("mkfifo").arg(f.path("pipe")).status().unwrap().success());
        let line = "solve laplace:4x4x4 --device cpu -q --out x.npy --report pipe --plot r.svg";
        let mut child = shell(&f, ":", line).spawn().unwrap();
        let begin = Instant::now();
        while !f.path("x.npy").exists() {
            assert!(begin.elapsed() < Duration::from_secs(30) && child.try_wait().unwrap().is_none(), "no x");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(f.names().iter().any(|name| name.ends_with(".part")), "{:?}", f.names());
        let mut err = BufReader::new(child.stderr.take().unwrap());
        for _ in 0..signals {
            send("TERM", &child);
            let mut line = String::new();
            err.read_line(&mut line).unwrap();
            assert!(line.contains("written"), "{line}");
        }
        if signals == 1 {
            let report: serde_json::Value =
                serde_json::from_slice(&std::fs::read(f.path("pipe")).unwrap()).unwrap();
            assert_eq!(report["outcome"], "converged");
        }
        let code = child.wait().unwrap().code();
        let files: &[&str] = if signals == 1 { &["pipe", "r.svg", "x.npy"] } else { &["pipe", "x.npy"] };
        assert_eq!(
            (code, &f.names()[..]),
            (Some([0, 130][signals - 1]), &files.iter().map(|s| s.to_string()).collect::<Vec<_>>()[..])
        );
        assert_eq!(array(f.path("x.npy")).shape(), [64]);
    }
}

/// The error is the same for an array that the library checks and for any other allocation.
#[test]
fn no_memory_is_one_line() {
    let f = Folder::new();
    let line = "solve laplace:64x64x64 --device cpu --threads 1 --precond none --method gmres --restart 60";
    let mut failed = 0;
    for megabytes in [110, 130, 150, 180, 220] {
        let ran = shell(&f, &format!("ulimit -v {}", 1000 * megabytes), line).output().unwrap();
        let ran = Ran::new(ran);
        if ran.code != 0 {
            ran.fails(3, &["error: "]);
            assert_eq!(ran.err.lines().count(), 1, "{megabytes} MB: {ran:#?}");
            failed += 1;
        }
    }
    assert!(failed >= 3, "{failed} limits were too small");
}

/// The system refuses memory for the stacks of threads.
#[test]
fn refused_threads_are_one_line() {
    let f = Folder::new();
    f.write("a.mtx", mtx(1, 1, &[(1, 1, 2.0)]));
    for line in
        ["solve a.mtx --device cpu", "solve laplace:4x4x4 --device cpu", "problem laplace:4x4x4 --out p"]
    {
        let mut command = f.command(&line.split(' ').collect::<Vec<_>>());
        let ran = Ran::new(command.env("RUST_MIN_STACK", (1u64 << 50).to_string()).output().unwrap());
        ran.fails(3, &["the system refuses to start", "threads", "ulimit -u"]);
        assert_eq!(ran.err.lines().count(), 1, "{ran:#?}");
    }
}

/// A solve that would take minutes, stopped by SIGINT.
#[test]
fn ctrl_c_keeps_the_best_x() {
    let f = Folder::new();
    let mut child = f
        .command(&[
            "solve",
            "laplace:90x90x90",
            "--rtol",
            "0",
            "--atol",
            "1e-300",
            "--restart",
            "3",
            "--precond",
            "none",
            "--max-iters",
            "100000000",
            "--out",
            "x.npy",
            "--report",
            "r.json",
            "--rhs",
            "random",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let kill = |id: u32| {
        let done =
            std::process::Command::new("sh").args(["-c", &format!("kill -INT {id}")]).status().unwrap();
        assert!(done.success());
    };
    // The first line of progress appears only after many iterations.
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    let read = err.read_line(&mut line).unwrap();
    assert!(read > 0 && line.contains("iteration"), "it ended before: {line}");
    kill(child.id());
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130), "{line}");
    assert_eq!(array(f.path("x.npy")).shape(), [729_000]);
    let r: serde_json::Value = serde_json::from_slice(&std::fs::read(f.path("r.json")).unwrap()).unwrap();
    assert_eq!(r["outcome"], "interrupted");
    assert!(r["true_relative_residual"].as_f64().unwrap() < 1.0);
}
