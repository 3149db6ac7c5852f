//! Inputs that readers accept or reject, tested through the command: spellings of other programs, vectors of
//! the wrong size, endless input.

use crate::common::{Folder, Ran, array, distance, mtx};
use krylith_core::io::petsc::{self, Item};
use krylith_core::matrix::Csr;
use std::io::Write;

const HEAD: &str = "%%MatrixMarket matrix coordinate real general\n";

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(plain).unwrap();
    gz.finish().unwrap()
}

/// Solves diag(4, 1) x = (4, 1), with the 4 written as Fortran and other programs do.
#[test]
fn numbers_of_fortran_are_read_everywhere() {
    let f = Folder::new();
    f.write("A.mtx", mtx(2, 2, &[(1, 1, 4.0), (2, 2, 1.0)]));
    f.write("b.txt", "4\n1\n");
    for four in ["4D0", "4d+00", "0.4D+1", "0.4+1", "40.0-001", "4Q0"] {
        f.write("F.mtx", format!("{HEAD}2 2 2\n1 1 {four}\n2 2 1\n"));
        f.write("d.mtx", format!("%%MatrixMarket matrix array real general\n2 1\n{four}\n1\n"));
        f.write("c.txt", format!("{four}\n1\n"));
        for line in ["F.mtx --rhs b.txt", "A.mtx --rhs c.txt", "A.mtx --rhs d.mtx"] {
            f.line(&format!("solve {line} --rtol 1e-12 --out x.npy -q")).works();
            assert!(distance(array(f.path("x.npy")).values(), &[1.0, 1.0]) < 1e-11, "{line}: {four}");
        }
    }
    for (word, why) in [
        ("1D", "its exponent has no digits"),
        ("1,5", "decimal point"),
        ("***", "asterisks"),
        ("1e999", "too large"),
    ] {
        f.write("F.mtx", format!("{HEAD}2 2 2\n1 1 {word}\n2 2 1\n"));
        f.line("solve F.mtx").fails(2, &["F.mtx:3", &format!("`{word}`"), why]);
    }
    f.write("c.txt", "1\n1D\n");
    f.line("solve A.mtx --rhs c.txt")
        .fails(2, &["c.txt:2: `1D` is not a number: its exponent has no digits"]);
}

/// An AmgX file with a right-hand side after the matrix.
#[test]
fn files_of_amgx_and_unsigned_integers_are_solved() {
    let f = Folder::new();
    let amgx = "%%MatrixMarket matrix coordinate real general\n%%AMGX 1 1 rhs\n3 3 3\n1 1 2\n2 2 3\n3 3 4\n2\n6\n12\n";
    f.write("A.mtx", amgx);
    f.write("s.toml", "matrix = 'A.mtx'\n");
    for name in ["A.mtx", "s.toml"] {
        let ran = f.line(&format!("solve {name} --rtol 1e-12 --out x.npy"));
        assert!(ran.works().out.contains("right-hand side: the system's own"), "{ran:?}");
        assert!(distance(array(f.path("x.npy")).values(), &[1.0, 2.0, 3.0]) < 1e-11);
    }
    f.write("D.mtx", amgx.replace("rhs", "diagonal"));
    f.line("solve D.mtx").fails(2, &["D.mtx:2", "an AmgX file with a separate diagonal"]);
    f.write("C.mtx", amgx.replace("\n12\n", "\n"));
    f.line("solve C.mtx").fails(2, &["C.mtx:9", "2 of 3 numbers of the right-hand side"]);
    f.write("U.mtx", "%%MatrixMarket matrix coordinate unsigned-integer general\n2 2 2\n1 1 4\n2 2 2\n");
    f.line("solve U.mtx -q").works();
}

/// Five numbers, or three, for four unknowns, in every format.
#[test]
fn right_hand_sides_of_the_wrong_length_are_named() {
    let f = Folder::new();
    let a = Csr::from_triplets(4, 4, &[0, 1, 2, 3].map(|i| (i, i, 2.0))).unwrap();
    f.write("A.mtx", mtx(4, 4, &[1, 2, 3, 4].map(|i| (i, i, 2.0))));
    for n in [3, 5] {
        let x = vec![1.0; n];
        let vector = krylith_core::io::Array::vector(x.clone());
        for name in ["b.npy", "b.mtx", "b.txt"] {
            krylith_core::io::write_vector(f.path(name), &vector).unwrap();
        }
        petsc::write(f.path("b.petsc"), &[Item::Vector(&x)]).unwrap();
        f.write("b.txt.gz", gzip(&std::fs::read(f.path("b.txt")).unwrap()));
        f.write("c.mtx", format!("{HEAD}{n} 1 1\n1 1 2\n"));
        for name in ["b.npy", "b.mtx", "b.txt", "b.petsc", "b.txt.gz", "c.mtx"] {
            for option in ["--rhs", "--x0"] {
                f.line(&format!("solve A.mtx {option} {name}"))
                    .fails(2, &[name, &format!("[{n}]"), "expected 4 numbers"]);
            }
            f.write("s.toml", format!("matrix = 'A.mtx'\nrhs = '{name}'\n"));
            f.line("solve s.toml").fails(2, &[name, "expected 4 numbers"]);
        }
        petsc::write(f.path("A.petsc"), &[Item::Matrix(&a), Item::Vector(&x)]).unwrap();
        f.line("solve A.petsc").fails(2, &["A.petsc", "the right-hand side", "expected 4 numbers"]);
    }
}

/// A device, a pipe and a compressed file that never end, or only after very many bytes.
#[cfg(target_os = "linux")]
#[test]
fn input_without_end_is_refused() {
    let f = Folder::new();
    f.write("A.mtx", mtx(20, 20, &(1..=20).map(|i| (i, i, 2.0)).collect::<Vec<_>>()));
    f.write("m.toml", "matrix = '/dev/zero'\n");
    f.write("r.toml", "matrix = 'A.mtx'\nrhs = '/dev/zero'\n");
    std::os::unix::fs::symlink("/dev/zero", f.path("z.toml")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", f.path("A.mtx.info")).unwrap();
    let limited = |line: &str| {
        let script = format!("ulimit -v 4000000; {line}").replace("krylith", env!("CARGO_BIN_EXE_krylith"));
        let output = std::process::Command::new("sh").args(["-c", &script]).current_dir(f.0.path()).output();
        Ran::new(output.unwrap())
    };
    for line in
        ["/dev/zero", "A.mtx --rhs /dev/zero", "A.mtx --x0 /dev/urandom", "m.toml", "r.toml", "z.toml"]
    {
        limited(&format!("krylith solve {line}"))
            .fails(2, &["a device, which may never end; give a file or a pipe"]);
    }
    let endless = format!("{HEAD}20 20 58\n1 1 1\n");
    f.write("head", &endless);
    for line in
        ["(cat head; yes '') | krylith solve /dev/stdin", "yes 1 | krylith solve A.mtx --rhs /dev/stdin"]
    {
        limited(line).fails(2, &["/dev/stdin: the file has more than", "can need"]);
    }
    limited("cat /dev/zero | krylith solve A.mtx --rhs /dev/stdin")
        .fails(2, &["/dev/stdin: the format of this vector"]);
    let bomb = gzip(&[endless.as_bytes(), &vec![b'\n'; 300 << 20]].concat());
    f.write("bomb.mtx.gz", bomb);
    limited("krylith solve bomb.mtx.gz")
        .fails(2, &["bomb.mtx.gz: the file has more than 16.0 MiB", "20×20 matrix with 58 entries"]);
    f.write("bomb.txt.gz", gzip(&b"1\n".repeat(100 << 20)));
    limited("krylith solve A.mtx --rhs bomb.txt.gz")
        .fails(2, &["bomb.txt.gz: the file has more than", "20 numbers"]);
    // What ends is read from pipes too.
    for line in [
        "cat A.mtx | krylith solve -q /dev/stdin",
        "gzip -c A.mtx | krylith solve -q /dev/stdin",
        "yes 1 | head -n 20 | krylith solve A.mtx -q --rhs /dev/stdin",
    ] {
        limited(line).works();
    }
}

/// A `Duration` holds at most 1.8e19 seconds.
#[test]
fn a_time_limit_may_be_as_large_as_numbers_are() {
    let f = Folder::new();
    f.write("A.mtx", mtx(1, 1, &[(1, 1, 2.0)]));
    for limit in ["1.9e19", "1e20", "1e308"] {
        f.write("s.toml", format!("matrix = 'A.mtx'\n[solver]\ntime_limit = {limit}\n"));
        f.line("solve s.toml -q").works();
    }
}
