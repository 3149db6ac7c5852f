//! Destinations of outputs: formats by the name's ending, unusable paths found before the solve, the effect
//! of files from others, and names with terminal control characters.

use crate::common::{Folder, Ran, array, distance, mtx};
use std::process::Command;

fn folder() -> Folder {
    let f = Folder::new();
    f.write("A.mtx", mtx(2, 2, &[(1, 1, 2.0), (2, 2, 4.0)]));
    f.write("b.txt", "2\n8\n");
    f
}

/// Runs a line in a shell in which `krylith` is the command.
#[cfg(unix)]
fn shell(f: &Folder, line: &str) -> Ran {
    let script = line.replace("krylith", env!("CARGO_BIN_EXE_krylith"));
    Ran::new(Command::new("sh").args(["-c", &script]).current_dir(f.0.path()).output().unwrap())
}

#[test]
fn the_ending_says_in_which_format_x_is_written() {
    let f = folder();
    for (name, begins) in [
        ("x.npy", &b"\x93NUMPY"[..]),
        ("x.mtx", b"%%MatrixMarket matrix array real general\n"),
        ("x.txt", b"# "),
    ] {
        f.line(&format!("solve A.mtx --rhs b.txt --rtol 1e-12 --out {name}")).works();
        assert!(std::fs::read(f.path(name)).unwrap().starts_with(begins), "{name}");
        assert!(distance(array(f.path(name)).values(), &[1.0, 2.0]) < 1e-11, "{name}");
        // The output can be read as a right-hand side and as an initial guess.
        f.line(&format!("solve A.mtx --rhs {name} --x0 {name} -q")).works();
    }
    f.line("newton cavity:9x9,re=10 --out u.mtx -q").works();
    assert_eq!(array(f.path("u.mtx")).shape()[1], 3);
    let names = f.names();
    for (line, words) in [
        ("solve A.mtx --out x.mat", ["--out x.mat: x is written as .npy or .mtx or .txt", "--out x.npy"]),
        ("solve A.mtx --out x", ["--out x: x is written as", "--out x.npy"]),
        ("solve A.mtx --out x.mtx.gz", ["--out x.mtx.gz", ".npy"]),
        ("solve A.mtx --report r.npy", ["--report r.npy: a report is written as .json", "--report r.json"]),
        ("newton cavity:9x9 --out u.csv", ["--out u.csv", "--out u.npy"]),
        ("newton cavity:9x9 --report r", ["--report r:", "--report r.json"]),
    ] {
        f.line(line).fails(2, &words);
    }
    assert_eq!(f.names(), names);
}

/// Rust's runtime replaces the closed output by /dev/null; the report would be lost without an error.
#[cfg(target_os = "linux")]
#[test]
fn a_closed_standard_output_is_found() {
    let f = folder();
    for option in ["--report", "--out"] {
        let ran = shell(&f, &format!("krylith solve A.mtx {option} - >&-"));
        ran.fails(2, &[&format!("{option} -: standard output is closed")]);
        assert_eq!(ran.err.lines().count(), 1, "{ran:#?}");
    }
    shell(&f, "krylith solve A.mtx >&-").fails(2, &["standard output cannot be written: it is closed"]);
    shell(&f, "krylith newton cavity:9x9,re=10 --report - >&-").fails(2, &["standard output is closed"]);
    // No error occurs if nothing is written to standard output, or if it accepts everything.
    for line in ["krylith solve A.mtx -q >&-", "krylith solve A.mtx --report - <>/dev/null >&0"] {
        shell(&f, line).works();
    }
}

/// Outputs are checked before any computation, and every name that the file system accepts works.
#[cfg(target_os = "linux")]
#[test]
fn places_are_tried_before_the_work() {
    let f = folder();
    let endless =
        "solve laplace:90x90x90 --rtol 0 --atol 1e-300 --restart 3 --precond none --max-iters 100000000";
    for option in ["--out /proc/x.npy", "--report /proc/r.json", "--plot /proc/r.svg", "--vtu /proc/x.vtu"] {
        f.line(&format!("{endless} {option}")).fails(2, &[option, "it cannot be written"]);
    }
    f.line("newton cavity:600x600 --out /proc/x.npy").fails(2, &["--out /proc/x.npy: it cannot be written"]);
    let longest = "a".repeat(251) + ".npy";
    f.line(&format!("solve A.mtx -q --out {longest}")).works();
    assert_eq!(array(f.path(&longest)).shape(), [2]);
    f.line(&format!("{endless} --out a{longest}")).fails(2, &["--out aaa"]);
    // A failed solve removes the temporary files of its outputs.
    f.line("solve A.mtx --rhs gone.npy --out x.npy --report r.json").fails(2, &["gone.npy"]);
    assert_eq!(f.names(), ["A.mtx", &longest, "b.txt"]);
}

#[cfg(unix)]
#[test]
fn links_are_followed_to_what_is_not_there_yet() {
    let f = folder();
    std::fs::create_dir(f.path("d")).unwrap();
    std::os::unix::fs::symlink("d/x.npy", f.path("link.npy")).unwrap();
    std::os::unix::fs::symlink("d/x.npy", f.path("other.npy")).unwrap();
    f.line("solve A.mtx -q --out link.npy").works();
    assert!(f.path("link.npy").is_symlink() && array(f.path("d/x.npy")).shape() == [2]);
    std::fs::remove_file(f.path("d/x.npy")).unwrap();
    std::os::unix::fs::symlink("d/x.npy", f.path("r.json")).unwrap();
    f.line("solve A.mtx -q --out link.npy --report r.json")
        .fails(2, &["--out link.npy and --report r.json name the same file"]);
}

/// A `[solver]` section from someone else.
#[cfg(unix)]
#[test]
fn a_file_names_outputs_below_its_folder_and_replaces_only_ours() {
    let f = folder();
    for folder in ["victim", "d", "d/e"] {
        std::fs::create_dir(f.path(folder)).unwrap();
    }
    f.write("victim/notes.txt", "my notes");
    f.write("d/A.mtx", mtx(1, 1, &[(1, 1, 2.0)]));
    f.write("d/notes.json", "{}");
    std::os::unix::fs::symlink("../victim", f.path("d/away")).unwrap();
    std::os::unix::fs::symlink("../victim/x.npy", f.path("d/gone.npy")).unwrap();
    std::os::unix::fs::symlink("e", f.path("d/near")).unwrap();
    let absolute = f.path("victim/x.npy").display().to_string();
    let toml = |line: &str| f.write("d/s.toml", format!("matrix = 'A.mtx'\n[solver]\n{line}\n"));
    let before = || {
        (
            f.names(),
            std::fs::read_dir(f.path("victim")).unwrap().count(),
            std::fs::read(f.path("d/notes.json")).unwrap(),
        )
    };
    let untouched = before();
    for (key, place, words) in [
        ("out", &*absolute, "outside the folder of the file"),
        ("out", "../victim/x.npy", "outside the folder of the file"),
        ("out", "e/../../victim/x.npy", "outside the folder of the file"),
        ("out", "away/x.npy", "outside the folder of the file"),
        ("out", "gone.npy", "outside the folder of the file"),
        ("vtu", "../x.vtu", "outside the folder of the file"),
        ("plot", "../r.svg", "outside the folder of the file"),
        ("report", "../victim/notes.txt", "outside the folder of the file"),
        ("report", "notes.json", "was not written by Krylith"),
    ] {
        toml(&format!("{key} = '{place}'"));
        f.line("solve d/s.toml -q")
            .fails(2, &["s.toml", &format!("`solver.{key}`"), words, &format!("--{key}")]);
        assert_eq!(before(), untouched, "{place}");
    }
    // From within its folder, and twice: the second run replaces only files that Krylith wrote.
    toml("out = 'e/x.npy'\nreport = './r.json'\nplot = 'near/r.png'");
    for _ in 0..2 {
        f.line("solve d/s.toml -q").works();
        Ran::new(f.command(&["solve", "s.toml", "-q"]).current_dir(f.path("d")).output().unwrap()).works();
    }
    for (key, name) in [("out", "x.mtx"), ("out", "x.txt"), ("plot", "r.svg")] {
        toml(&format!("{key} = '{name}'"));
        f.line("solve d/s.toml -q").works();
        f.line("solve d/s.toml -q").works();
        f.write(&format!("d/{name}"), "of somebody else");
        f.line("solve d/s.toml -q").fails(2, &["was not written by Krylith"]);
    }
    // An option on the command line overrides the file.
    toml("out = '../victim/x.npy'\nreport = 'notes.json'");
    f.line("solve d/s.toml -q --out victim/x.npy --report d/notes.json").works();
    assert_eq!(array(f.path("victim/x.npy")).shape(), [1]);
    toml("report = '-'");
    assert!(f.line("solve d/s.toml -q").works().out.contains("\"outcome\""));
}

/// A file name that contains a control sequence for the title of the terminal's window.
#[cfg(unix)]
#[test]
fn names_do_not_steer_the_terminal() {
    let f = folder();
    let name = "a\u{1b}]0;pwned\u{7}\u{9b}2J.mtx";
    let shown = "a\\u{1b}]0;pwned\\u{7}\\u{9b}2J.mtx";
    f.write(name, "%%MatrixMarket nonsense\n");
    f.write("good\u{1b}[2J.mtx", mtx(1, 1, &[(1, 1, 2.0)]));
    let steers = |ran: &Ran| ran.err.chars().chain(ran.out.chars()).any(|c| c.is_control() && c != '\n');
    for (words, code) in [
        (&["solve", name][..], 2),
        (&["solve", "A.mtx", name], 2),
        (&["solve", "A.mtx", "--rhs", name], 2),
        (&["solve", "A.mtx", "--report", name], 2),
        (&["solve", "A.mtx", "--nullspace", name], 2),
        (&["info", name], 2),
        (&["spy", name], 2),
        (&["problem", name, "--out", "d"], 2),
        (&["model", name, "--machine", name], 2),
    ] {
        let ran = f.run(words);
        ran.fails(code, &[shown]);
        assert!(!steers(&ran), "{ran:?}");
    }
    let ran = f.run(&["solve", "good\u{1b}[2J.mtx", "-vv", "--out", "x\u{1b}[2J.npy"]);
    assert!(!steers(ran.works()) && ran.out.contains("x\\u{1b}[2J.npy"), "{ran:?}");
}
