//! Input and output files: outputs that would replace an input, and names and contents that were once
//! rejected.

use crate::common::{self, Folder, Ran, mtx};

fn small() -> String {
    mtx(2, 2, &[(1, 1, 2.0), (2, 2, 4.0)])
}

/// A folder with a matrix, vectors, and a system.toml that names some of them.
fn folder() -> Folder {
    let f = Folder::new();
    f.write("A.mtx", small());
    f.write("b.txt", "1\n2\n");
    f.write("x0.txt", "0\n0\n");
    f.write("null.txt", "1\n1\n");
    f.write("s.toml", "matrix = 'A.mtx'\nrhs = 'b.txt'\n");
    f
}

#[test]
fn outputs_that_would_replace_an_input_are_refused() {
    let f = folder();
    std::fs::create_dir(f.path("d")).unwrap();
    let names = f.names();
    let before: Vec<_> = names.iter().filter_map(|n| std::fs::read(f.path(n)).ok()).collect();
    for option in ["--out", "--report", "--plot"] {
        for (line, target, input) in [
            ("solve A.mtx", "A.mtx", "A.mtx"),
            ("solve A.mtx", "./A.mtx", "A.mtx"),
            ("solve ./A.mtx", "d/../A.mtx", "./A.mtx"),
            ("solve s.toml", "s.toml", "s.toml"),
            ("solve s.toml", "A.mtx", "A.mtx"),
            ("solve s.toml", "d/../b.txt", "b.txt"),
            ("solve A.mtx --rhs b.txt", "b.txt", "--rhs b.txt"),
            ("solve A.mtx --x0 x0.txt", "./x0.txt", "--x0 x0.txt"),
            ("solve A.mtx --nullspace null.txt", "null.txt", "--nullspace null.txt"),
        ] {
            f.line(&format!("{line} {option} {target}")).fails(2, &[&format!("{option} {target}"), input]);
        }
    }
    assert_eq!(f.names(), names);
    let after: Vec<_> = names.iter().filter_map(|n| std::fs::read(f.path(n)).ok()).collect();
    assert!(before == after, "a refused run changed a file");
    // A generated problem has no file, even if a file has a similar name.
    f.line("solve laplace:3x3x3 --out A.mtx").works();
}

#[test]
fn outputs_that_would_replace_each_other_are_refused() {
    let f = folder();
    std::fs::create_dir(f.path("d")).unwrap();
    f.line("solve A.mtx --out x.npy --report ./x.npy").fails(2, &["--out x.npy", "--report ./x.npy"]);
    f.line("solve A.mtx --report d/r --plot d/../d/r").fails(2, &["--report d/r", "--plot d/../d/r"]);
    assert_eq!(f.names(), ["A.mtx", "b.txt", "d", "null.txt", "s.toml", "x0.txt"]);
}

#[cfg(unix)]
#[test]
fn links_are_the_files_that_they_lead_to() {
    let f = folder();
    std::os::unix::fs::symlink("A.mtx", f.path("soft")).unwrap();
    std::fs::hard_link(f.path("A.mtx"), f.path("hard")).unwrap();
    std::os::unix::fs::symlink(".", f.path("here")).unwrap();
    for target in ["soft", "hard", "here/A.mtx"] {
        f.line(&format!("solve A.mtx --out {target}")).fails(2, &[&format!("--out {target}"), "A.mtx"]);
    }
    f.line("solve A.mtx --out here/x --report x").fails(2, &["--out here/x", "--report x"]);
    // Writing to a device loses no file.
    f.line("solve A.mtx --out /dev/null --report /dev/null").works();
    assert_eq!(std::fs::read_to_string(f.path("A.mtx")).unwrap(), small());
}

#[test]
fn predictions_do_not_replace_what_they_are_made_from() {
    let f = folder();
    f.write("prediction.json", small());
    f.write("machine.toml", "");
    f.line("model prediction.json --machine machine.toml --out .")
        .fails(2, &["--out ./prediction.json", "prediction.json"]);
    assert_eq!(std::fs::read_to_string(f.path("prediction.json")).unwrap(), small());
}

#[test]
fn byte_order_marks_are_passed_over() {
    let f = Folder::new();
    f.write("A.mtx", format!("\u{feff}{}", small()));
    f.write("B", format!("\u{feff}{}", small()));
    f.write("b.txt", "\u{feff}2\n8\n");
    f.write("c.txt", "\u{feff}# a remark\n2\n8\n");
    f.write("s.toml", "\u{feff}matrix = 'A.mtx'\nrhs = 'b.txt'\n");
    for line in ["A.mtx --rhs b.txt", "A.mtx --rhs c.txt", "B --rhs b.txt", "s.toml"] {
        f.line(&format!("solve {line} --out x.npy --rtol 1e-12")).works();
        let x = common::array(f.path("x.npy"));
        assert!(common::distance(x.values(), &[1.0, 2.0]) < 1e-11, "{line}: {x:?}");
    }
    // Line numbers in errors do not change.
    f.write("bad.txt", "\u{feff}1\nx\n");
    f.line("solve A.mtx --rhs bad.txt").fails(2, &["bad.txt:2"]);
}

#[test]
fn a_row_of_numbers_is_a_vector() {
    let f = folder();
    let row = krylith_core::io::Array::new(vec![1, 2], vec![2.0, 8.0]).unwrap();
    krylith_core::io::numpy::write(f.path("row.npy"), &row).unwrap();
    f.write("row.txt", "2 8\n");
    f.write("row.mtx", "%%MatrixMarket matrix array real general\n1 2\n2\n8\n");
    for name in ["row.npy", "row.txt", "row.mtx"] {
        f.line(&format!("solve A.mtx --rhs {name} --x0 {name} --out x.npy --rtol 1e-12")).works();
        let x = common::array(f.path("x.npy"));
        assert!(common::distance(x.values(), &[1.0, 2.0]) < 1e-11, "{name}: {x:?}");
    }
    let three = krylith_core::io::Array::new(vec![1, 3], vec![0.0; 3]).unwrap();
    krylith_core::io::numpy::write(f.path("three.npy"), &three).unwrap();
    f.line("solve A.mtx --rhs three.npy").fails(2, &["three.npy", "[1, 3]", "expected 2 numbers"]);
}

/// Writes c.npy with two complex zeros.
fn complex_zeros(f: &Folder) {
    let zeros = krylith_core::io::Array::complex(vec![2], vec![0.0; 4]).unwrap();
    krylith_core::io::numpy::write(f.path("c.npy"), &zeros).unwrap();
}

#[test]
fn complex_numbers_where_they_cannot_be_are_named_with_what_can_be_done() {
    let f = folder();
    complex_zeros(&f);
    f.line("solve A.mtx --rhs c.npy").fails(2, &["c.npy", "complex", "matrix is real", "two columns"]);
    let entries = "%%MatrixMarket matrix coordinate complex";
    f.write("C.mtx", format!("{entries} general\n2 2 2\n1 1 1 0.5\n2 2 1 -0.5\n"));
    f.write("bad.mtx", format!("{entries} general\n2 2 2\n1 1 1 0.5\n2 2 1\n"));
    f.write("H.mtx", format!("{entries} hermitian\n2 2 2\n1 1 1 0\n2 2 1 1e-3\n"));
    f.write("three.txt", "1\n2\n3\n");
    f.line("solve bad.mtx").fails(2, &["bad.mtx:4", "the imaginary part is missing"]);
    f.line("solve H.mtx").fails(2, &["H.mtx:4", "the diagonal of a hermitian matrix must be real"]);
    f.line("solve C.mtx --rhs three.txt").fails(2, &["three.txt", "2 complex numbers"]);
    f.line("solve C.mtx --block 3").fails(2, &["2 rows", "blocks of 3"]);
    f.line("solve C.mtx --block 5").fails(2, &["--block 5", "1 to 4"]);
    f.line("solve C.mtx --fields u=0:1,p=1:2").fails(2, &["--fields", "complex"]);
    f.line("solve C.mtx --block 1 --ordering segregated").fails(2, &["omit --ordering"]);
    f.write(
        "K.toml",
        "[kronecker]\nM = 'C.mtx'\nL = 'A.mtx'\nblock = 1\ntau = 1.0\nscheme = 'radau-iia-2'\n",
    );
    f.line("solve K.toml").fails(2, &["C.mtx", "real M and L"]);
}

/// A complex tridiagonal matrix in each symmetry, with a known solution, in each format of vectors.
#[test]
fn complex_systems_are_solved() {
    const N: usize = 40;
    let f = folder();
    let x: Vec<[f64; 2]> = (0..N).map(|i| [(i as f64).sin(), (2.0 + i as f64).cos()]).collect();
    let diagonal = |i: usize| [4.0, if i % 2 == 0 { 1.5 } else { -0.5 }];
    for symmetry in ["general", "symmetric", "hermitian"] {
        let main = |i: usize| if symmetry == "hermitian" { [4.0, 0.0] } else { diagonal(i) };
        let lower = [-1.0, 0.75];
        let upper = match symmetry {
            "general" => [-0.5, 0.25],
            "symmetric" => lower,
            _ => [lower[0], -lower[1]],
        };
        let (mut lines, mut b) = (Vec::new(), vec![0.0; 2 * N]);
        let mut put = |i: usize, j: usize, [re, im]: [f64; 2]| {
            b[2 * i] += re * x[j][0] - im * x[j][1];
            b[2 * i + 1] += re * x[j][1] + im * x[j][0];
            if symmetry == "general" || i >= j {
                lines.push(format!("{} {} {re} {im}", i + 1, j + 1));
            }
        };
        for i in 0..N {
            put(i, i, main(i));
            if i > 0 {
                put(i, i - 1, lower);
                put(i - 1, i, upper);
            }
        }
        let head = format!("%%MatrixMarket matrix coordinate complex {symmetry}\n{N} {N} {}\n", lines.len());
        f.write("C.mtx", head + &lines.join("\n") + "\n");
        let b = krylith_core::io::Array::complex(vec![N], b).unwrap();
        krylith_core::io::write_vector(f.path("b.npy"), &b).unwrap();
        krylith_core::io::write_vector(f.path("b.mtx"), &b).unwrap();
        for (rhs, out, options) in
            [("b.npy", "x.npy", ""), ("b.mtx", "x.mtx", "--block 2"), ("b.npy", "x.npy", "--method gmres")]
        {
            let ran = f.line(&format!("solve C.mtx --rhs {rhs} --out {out} --rtol 1e-12 {options}"));
            assert!(ran.works().out.contains("40 complex unknowns"), "{ran:?}");
            let found = common::array(f.path(out));
            assert!(found.is_complex() && found.shape() == [N]);
            let wrong = found.values().iter().zip(x.as_flattened()).map(|(a, b)| (a - b).abs());
            assert!(wrong.fold(0.0, f64::max) < 1e-10, "{symmetry} {options}");
        }
        f.write("C.toml", "matrix = 'C.mtx'\nrhs = 'b.npy'\nblock = 2\n");
        f.line("solve C.toml --out again.npy --rtol 1e-12 --x0 x.npy").works();
        assert!(common::array(f.path("again.npy")).is_complex());
        // A real right-hand side has imaginary parts of zero, and columns are several.
        let reals: Vec<f64> = (0..2 * N).map(|k| if k % 2 == 0 { 1.0 } else { (k / 2) as f64 }).collect();
        let two = krylith_core::io::Array::new(vec![N, 2], reals.clone()).unwrap();
        krylith_core::io::numpy::write(f.path("two.npy"), &two).unwrap();
        krylith_core::io::numpy::write(f.path("wide.npy"), &two.into_complex()).unwrap();
        f.line("solve C.mtx --rhs two.npy --out two_x.npy --rtol 1e-12").works();
        f.line("solve C.mtx --rhs wide.npy --out wide_x.npy --rtol 1e-12").works();
        assert_eq!(common::array(f.path("two_x.npy")).shape(), [N, 2]);
        assert_eq!(common::array(f.path("two_x.npy")), common::array(f.path("wide_x.npy")));
    }
    let out = f.line("info C.mtx").works().out.clone();
    assert!(out.contains("40 complex unknowns, 118 stored entries in 118 blocks"), "{out}");
    assert!(out.contains("the entry a + ib is the block [[a, −b], [b, a]]"), "{out}");
    let text = f.line("solve C.mtx --rhs b.npy --out x.txt").works().out.clone();
    assert!(text.contains("x.txt"), "{text}");
    let written = std::fs::read_to_string(f.path("x.txt")).unwrap();
    assert!(written.lines().nth(1).is_some_and(|line| line.ends_with('j')), "{written}");
}

#[cfg(target_os = "linux")]
#[test]
fn names_need_not_be_unicode() {
    use std::os::unix::ffi::OsStrExt;
    let f = Folder::new();
    let name = |text: &[u8]| std::ffi::OsStr::from_bytes(text).to_os_string();
    let write = |name: &std::ffi::OsStr, text: &str| std::fs::write(f.0.path().join(name), text).unwrap();
    let (a, b, x, r) = (name(b"A\xff.mtx"), name(b"b\xe4.txt"), name(b"x\xfe.npy"), name(b"r\xfe.json"));
    write(&a, &small());
    write(&b, "2\n8\n");
    let run = |words: &[&std::ffi::OsStr]| Ran::new(f.command(&[]).args(words).output().unwrap());
    let [solve, info, rhs, out, report, nullspace] =
        ["solve", "info", "--rhs", "--out", "--report", "--nullspace"].map(std::ffi::OsStr::new);
    let ran = run(&[solve, &a, rhs, &b, out, &x, report, &r]);
    assert!(ran.works().out.contains("A\u{fffd}.mtx"), "{ran:#?}");
    let found = common::array(f.0.path().join(&x));
    assert!(common::distance(found.values(), &[1.0, 2.0]) < 1e-5, "{found:?}");
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(f.0.path().join(&r)).unwrap()).unwrap();
    assert_eq!(json["system"]["name"], "A\u{fffd}.mtx");
    run(&[info, &a]).works();
    let gone = name(b"gone\xff.mtx");
    run(&[solve, &gone]).fails(2, &["gone\u{fffd}.mtx", "No such file"]);
    run(&[solve, &a, nullspace, &gone]).fails(2, &["gone\u{fffd}.mtx", "No such file"]);
    run(&[solve, &a, out, &a]).fails(2, &["--out A\u{fffd}.mtx"]);
}

/// Runs with standard output redirected to `target` by a shell.
#[cfg(target_os = "linux")]
fn redirected(f: &Folder, line: &str, target: &str) -> Ran {
    let script = format!("{} {line} {target}", env!("CARGO_BIN_EXE_krylith"));
    let output = std::process::Command::new("sh").args(["-c", &script]).current_dir(f.0.path()).output();
    Ran::new(output.unwrap())
}

#[cfg(target_os = "linux")]
#[test]
fn a_standard_output_that_is_full_is_an_error() {
    let f = folder();
    for line in ["solve A.mtx", "info A.mtx", "problem laplace:3x3x3 --out d", "--help", "solve --help", ""] {
        redirected(&f, line, "> /dev/full").fails(2, &["standard output", "space"]);
    }
    // A reader that closes the pipe early is not an error.
    let ran = redirected(&f, "problem --help", "| head -n 1");
    assert_eq!((ran.code, &*ran.err), (0, ""));
    let ran = redirected(&f, "solve A.mtx --quiet", "> /dev/full");
    assert_eq!((ran.code, &*ran.err), (0, ""));
}

/// 2×2, lower triangle [4; 1 3], with the right-hand side of x = (1, 2).
const HARWELL_BOEING: &str = concat!(
    "A symmetric matrix of order two                                         TWO     \n",
    "             4             1             1             1             1\n",
    "RSA                        2             2             3             0\n",
    "(16I5)          (16I5)          (1P,5D16.8)         (1P,5D16.8)         \n",
    "F                          1             0\n",
    "    1    3    4\n",
    "    1    2    2\n",
    "  4.00000000D+00  1.00000000D+00  3.00000000D+00\n",
    "  6.00000000D+00  7.00000000D+00\n",
);

#[test]
fn harwell_boeing_files_are_solved() {
    let f = Folder::new();
    f.write("A.rsa", HARWELL_BOEING);
    f.write("s.toml", "matrix = 'A.rsa'\n");
    for name in ["A.rsa", "s.toml"] {
        f.line(&format!("solve {name} --out x.npy --rtol 1e-12")).works();
        let x = common::array(f.path("x.npy"));
        assert!(common::distance(x.values(), &[1.0, 2.0]) < 1e-11, "{name}: {x:?}");
    }
    f.line("info A.rsa").works();
    f.write("E.rse", HARWELL_BOEING.replace("RSA", "RSE"));
    f.line("solve E.rse").fails(2, &["E.rse:3", "RSE", "unassembled"]);
}

#[test]
fn matlab_files_are_solved() {
    let f = Folder::new();
    let words = |list: &[u32]| -> Vec<u8> { list.iter().flat_map(|n| n.to_le_bytes()).collect() };
    let mut mat = b"MATLAB 5.0 MAT-file".to_vec();
    mat.resize(124, b' ');
    mat.extend(b"\x00\x01IM");
    // diag(2, 4): tag; flags; sizes; the name A; row indices, column pointers, values.
    mat.extend(words(&[14, 120, 6, 8, 5, 2, 5, 8, 2, 2, 1 << 16 | 1, u32::from(b'A'), 5, 8, 0, 1]));
    mat.extend(words(&[5, 12, 0, 1, 2, 0, 9, 16]));
    mat.extend([2.0f64, 4.0].iter().flat_map(|v| v.to_le_bytes()));
    let length = (mat.len() - 136) as u32;
    mat[132..136].copy_from_slice(&length.to_le_bytes());
    f.write("A.mat", &mat);
    f.write("b.txt", "2\n8\n");
    f.line("solve A.mat --rhs b.txt --out x.npy --rtol 1e-12").works();
    let x = common::array(f.path("x.npy"));
    assert!(common::distance(x.values(), &[1.0, 2.0]) < 1e-11, "{x:?}");
    f.write("cut.mat", &mat[..200]);
    f.line("solve cut.mat").fails(2, &["cut.mat: at byte 128", "cut short"]);
}
