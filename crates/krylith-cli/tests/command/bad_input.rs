//! Every line of the contract's "Bad input": the exit code, the words of the error, and that no file changed.

use crate::common::{self, Folder, chain, mtx};

const HEAD: &str = "%%MatrixMarket matrix coordinate real general\n";

fn small() -> String {
    mtx(4, 4, &[(1, 1, 2.0), (2, 2, 3.0), (3, 3, 4.0), (4, 4, 5.0), (1, 2, 0.5)])
}

#[test]
fn malformed_matrices_name_file_and_line() {
    let f = Folder::new();
    for (name, text, words) in [
        ("cut.mtx", format!("{HEAD}2 2 3\n1 1 1.0\n2 2 1.0\n"), ["cut.mtx:", "3"]),
        ("word.mtx", format!("{HEAD}2 2 2\n1 1 1.0\n2 two 1.0\n"), ["word.mtx:4", "two"]),
        (
            "header.mtx",
            "%%MatrixMarket matrix coordinate quaternion general\n1 1 1\n1 1 1 0\n".into(),
            ["header.mtx:1", "quaternion"],
        ),
        (
            "half.mtx",
            "%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1\n".into(),
            ["half.mtx:3", ""],
        ),
        ("size.mtx", format!("{HEAD}2 x 2\n"), ["size.mtx:2", ""]),
        ("range.mtx", format!("{HEAD}2 2 2\n1 1 1.0\n3 1 1.0\n"), ["range.mtx:4", "3"]),
        ("zero.mtx", format!("{HEAD}2 2 2\n1 1 1.0\n0 1 1.0\n"), ["zero.mtx:4", "0"]),
        ("nan.mtx", format!("{HEAD}2 2 2\n1 1 1.0\n2 2 nan\n"), ["nan.mtx", "NaN"]),
        ("inf.mtx", format!("{HEAD}2 2 2\n1 1 1.0\n2 1 -inf\n"), ["inf.mtx", "inf"]),
        ("none.mtx", String::new(), ["none.mtx", ""]),
        ("noise.bin", "this is no matrix".into(), ["noise.bin", ""]),
        ("cut.npz", "PK\u{3}\u{4}broken".into(), ["cut.npz", ""]),
    ] {
        f.write(name, text);
        f.run(&["solve", name, "--out", "x.npy"]).fails(2, &words);
        f.run(&["info", name]).fails(2, &words);
        assert!(!f.path("x.npy").exists());
    }
}

#[test]
fn a_file_that_is_missing_and_a_problem_spelt_wrong() {
    let f = Folder::new();
    f.line("solve missing.mtx").fails(2, &["missing.mtx", "No such file"]);
    f.line("solve stoke").fails(
        2,
        &[
            "stoke",
            "generated problems are stokes, laplace, elasticity, spe10, radiation, poisson-multiphase, advection, \
             taylor-hood, oseen, rt0, nedelec, biot2, biot3, twophase, blackoil, random, lookalike",
        ],
    );
    f.line("solve stoke:4x4x4").fails(
        2,
        &[
            "unknown problem `stoke`",
            "stokes, laplace, elasticity, spe10, radiation, poisson-multiphase, advection, taylor-hood, oseen, rt0, \
             nedelec, biot2, biot3, twophase, blackoil, random, lookalike",
        ],
    );
    f.line("solve stokes:4x4").fails(2, &["stokes:NXxNYxNZ"]);
    f.line("solve stokes:4x4x4,mu=1").fails(2, &["unknown key `mu`", "tau, nu"]);
    f.line("solve stokes:4x4x4,tau=-1").fails(2, &["tau=-1", "positive"]);
    f.line("problem stokes:4x4x4,mu=1 --out d").fails(2, &["unknown key `mu`"]);
    f.line("info stoke:3").fails(2, &["unknown problem"]);
    assert_eq!(f.names(), [""; 0]);
}

#[test]
fn duplicates_are_summed() {
    let f = Folder::new();
    f.write("a.mtx", mtx(2, 2, &[(1, 1, 1.0), (2, 2, 4.0), (1, 1, 1.0)]));
    f.line("solve a.mtx --out x.npy --rtol 1e-12").works();
    let x = common::array(f.path("x.npy"));
    assert!(common::distance(x.values(), &[0.5, 0.25]) < 1e-11, "{x:?}");
}

#[test]
fn shapes_and_blocks_that_do_not_fit() {
    let f = Folder::new();
    f.write("a.mtx", small());
    f.write("wide.mtx", mtx(2, 3, &[(1, 1, 1.0)]));
    f.write("empty.mtx", mtx(3, 3, &[]));
    f.write("nothing.mtx", mtx(0, 0, &[]));
    f.line("solve a.mtx --block 3").fails(2, &["a.mtx", "4 rows", "3"]);
    f.line("solve a.mtx --block 0").fails(2, &["--block", "1 to 8"]);
    f.line("solve a.mtx --block 9").fails(2, &["--block", "1 to 8"]);
    f.line("solve a.mtx --ordering segregated").fails(2, &["--ordering segregated needs --block"]);
    f.line("solve wide.mtx").fails(2, &["wide.mtx", "2×3", "square"]);
    f.line("solve empty.mtx").fails(2, &["empty.mtx", "empty"]);
    f.line("solve nothing.mtx").fails(2, &["nothing.mtx"]);
    f.line("solve stokes:3x3x3 --block 2").fails(2, &["4×4", "--block 2"]);
}

#[test]
fn right_hand_sides_that_do_not_fit() {
    let f = Folder::new();
    f.write("a.mtx", small());
    f.write("short.txt", "1\n2\n3\n");
    f.write("nan.txt", "1\nnan\n3\n4\n");
    f.write("word.txt", "1\n2\nthree\n4\n");
    f.write("b.txt", "1\n2\n3\n4\n");
    f.line("solve a.mtx --rhs short.txt").fails(2, &["short.txt", "expected 4 numbers"]);
    f.line("solve a.mtx --rhs nan.txt").fails(2, &["nan.txt", "NaN"]);
    f.line("solve a.mtx --rhs word.txt").fails(2, &["word.txt:3"]);
    f.line("solve a.mtx --rhs gone.npy").fails(2, &["gone.npy", "No such file"]);
    f.line("solve a.mtx --rhs random:x").fails(2, &["--rhs", "seed"]);
    f.line("solve a.mtx --x0 short.txt").fails(2, &["short.txt", "initial guess"]);
    f.line("solve a.mtx --rhs b.txt --x0 b.txt").works();
    f.line("solve stokes:3x3x3 --rhs b.txt").fails(2, &["b.txt", "(108, 2)", "216"]);
}

#[test]
fn a_zero_right_hand_side_gives_zero() {
    let f = Folder::new();
    f.write("a.mtx", small());
    f.write("b.txt", "0\n0\n0\n0\n");
    f.write("x0.txt", "1\n2\n3\n4\n");
    for store in ["f64", "f32"] {
        let ran = f.run(&[
            "solve",
            "a.mtx",
            "--rhs",
            "b.txt",
            "--x0",
            "x0.txt",
            "--out",
            "x.npy",
            "--report",
            "r.json",
            "--plot",
            "p.svg",
            "--precision",
            store,
        ]);
        assert!(ran.works().out.contains("it is zero, and so is x"), "{ran:#?}");
        assert_eq!(common::array(f.path("x.npy")).values(), [0.0; 4]);
    }
}

#[test]
fn diagonal_blocks_that_cannot_be_inverted() {
    let f = Folder::new();
    // Row 2 (one-based) has a zero on the diagonal, row 3 has no diagonal entry.
    let zero = [(1, 1, 2.0), (2, 2, 0.0), (1, 2, 1.0), (2, 1, 1.0), (3, 3, 1.0), (4, 4, 1.0)];
    f.write("zero.mtx", mtx(4, 4, &zero));
    f.line("solve zero.mtx --block 1 --precond jacobi")
        .fails(2, &["block row 1 has a zero diagonal block", "--precond none"]);
    let missing = [(1, 1, 2.0), (2, 1, 1.0), (1, 2, 1.0), (3, 3, 1.0), (4, 4, 1.0)];
    f.write("missing.mtx", mtx(4, 4, &missing));
    f.line("solve missing.mtx --block 1 --precond jacobi")
        .fails(2, &["block row 1 has a missing diagonal block"]);
    let singular = [(1, 1, 1.0), (1, 2, 1.0), (2, 1, 1.0), (2, 2, 1.0), (3, 3, 1.0), (4, 4, 1.0)];
    f.write("singular.mtx", mtx(4, 4, &singular));
    f.line("solve singular.mtx --block 2 --precond jacobi")
        .fails(2, &["block row 0 has a singular diagonal block"]);
    // The same holds for a pivot: eliminating row 0 leaves a zero in row 1. A shift remedies it.
    f.line("solve singular.mtx --block 1 --precond ildu0")
        .fails(2, &["zero pivot in block row 1", "shift such pivots"]);
    let line = "solve singular.mtx --block 1 --rhs random --max-iters 2 --precond ildu0:shift=1e-3";
    let ran = f.line(line);
    assert!(ran.out.contains("1 pivot shifted by 1e-3"), "{ran:#?}");
    // `auto` tries stronger preconditioners, and reports it; CG needs none of them if a solution exists.
    let words =
        "fallback after 0 iterations: ildu with cg: the factorisation meets a zero pivot in block row 1";
    let ran = f.line("solve singular.mtx --block 1");
    assert!(ran.works().out.contains(words) && ran.out.contains("point Jacobi"), "{ran:#?}");
    f.write("singular.mtx", mtx(4, 4, &[&singular[..], &[(3, 4, 0.5)]].concat()));
    let ran = f.line("solve singular.mtx --block 1 --report r.json");
    let words = "fallback after 0 iterations: ildu with bicgstab: the factorisation meets a zero pivot in block row 1";
    assert!(ran.works().out.contains(words), "{ran:#?}");
    let report = std::fs::read_to_string(f.path("r.json")).unwrap();
    assert!(report.contains("\"fallback\"") && report.contains("\"shifted\""), "{report}");
}

#[test]
fn options_refuse_what_they_do_not_know() {
    let f = Folder::new();
    f.write("a.mtx", small());
    for (line, words) in [
        ("--method symmlq", ["unknown method `symmlq`", "minres"]),
        (
            "--method minres --precond cg(jacobi)",
            ["--precond has `cg(jacobi)`, which varies between applications", "use the method fgmres"],
        ),
        ("--method bicgstab --restart 20", ["--restart applies only to method gmres", "leave it out"]),
        (
            "--method bicgstab --orthogonalization mgs",
            ["--orthogonalization applies only to method gmres", "leave it out"],
        ),
        ("--method cg:s=3", ["--s applies only to method cbcg", "leave it out"]),
        ("--method cbcg:s=17", ["s=17", "from 1 to 16"]),
        ("--method cbcg:basis=newton", ["unknown basis of cbcg `newton`", "chebyshev, monomial"]),
        (
            "--method gmres --reductions merged",
            ["--reductions applies only to method bicgstab", "leave it out"],
        ),
        ("--method bicgstab --reductions few", ["unknown reductions `few`", "merged, classical"]),
        ("--precond ilu", ["unknown preconditioner `ilu`", "auto, none, jacobi"]),
        ("--precond ilu0", ["unknown preconditioner `ilu0`", "ildu:cut=whole"]),
        ("--precond ildu0:rows=0", ["ildu0:rows=0", "from 1"]),
        ("--precond jacobi:overlap=1", ["unknown key of jacobi `overlap`", "block"]),
        ("--precond jacobi:block=3 --block 4", ["jacobi:block=3", "divide"]),
        ("--orthogonalization qr", ["unknown orthogonalization `qr`", "lowsync, cgs2, mgs"]),
        ("--ordering colour", ["unknown ordering `colour`", "interleaved, segregated"]),
        ("--precision f16", ["unknown precision `f16`", "f64, f32"]),
        ("--format coo", ["unknown format `coo`", "auto, csr, dia, dia-full"]),
        ("--device gpu", ["unknown device `gpu`", "cuda"]),
        ("--device cuda:x", ["cuda:x", "number"]),
        ("--rtol -1", ["--rtol", ""]),
        ("--rtol nan", ["--rtol", "finite"]),
        ("--atol x", ["--atol", "finite"]),
        ("--max-iters -3", ["--max-iters", ""]),
        ("--restart 0", ["--restart", "from 1"]),
        ("--threads 0", ["--threads", "from 1"]),
        ("--nosuch", ["--nosuch", ""]),
    ] {
        let line = format!("solve a.mtx --out x.npy {line}");
        f.line(&line).fails(2, &words);
    }
    f.line("info --ranks 2").fails(2, &["--ranks", "SYSTEM"]);
    f.line("info a.mtx --ranks 0").fails(2, &["--ranks", "from 1"]);
    f.line("info a.mtx --ranks two").fails(2, &["--ranks", "two"]);
    f.line("solve").fails(2, &["SYSTEM"]);
    f.line("problem stokes:3x3x3").fails(2, &["--out"]);
    assert_eq!(f.names(), ["a.mtx"]);
}

#[test]
fn what_the_machine_lacks_is_exit_code_3() {
    let f = Folder::new();
    if krylith_core::device::cuda::devices().is_err() {
        f.line("solve laplace:4x4x4 --device cuda").fails(3, &["NVIDIA driver", "install"]);
        f.line("solve laplace:4x4x4").works();
    }
    f.line("solve laplace:60x60x60 --restart 1000000 --max-iters 1000000")
        .fails(3, &["iB, but only", "free", "--restart"]);
}

#[test]
fn files_of_a_system_are_checked() {
    let f = Folder::new();
    f.write("a.mtx", small());
    f.write("M.mtx", mtx(4, 4, &chain(2, 2, |i, c| 2 * i + c)));
    f.write("T.mtx", mtx(3, 3, &chain(3, 1, |i, _| i)));
    for (text, words) in [
        ("matrix = 'a.mtx'\nfoo = 1\n", ["s.toml:2", "foo"]),
        ("matrix = 'a.mtx'\n[solver]\nmethod = 'lsqr'\n", ["s.toml:3", "unknown method `lsqr`"]),
        (
            "matrix = 'a.mtx'\n[solver]\nmethod = 'bicgstab'\nrestart = 9\n",
            ["s.toml: `solver.restart`", "applies only to method gmres"],
        ),
        ("matrix = 'a.mtx'\n[solver]\nprecond = 'jacobi:k=1'\n", ["s.toml:3", "unknown key"]),
        ("matrix = 'a.mtx'\n[solver]\nrtol = -1.0\n", ["s.toml", "rtol"]),
        ("matrix = 'a.mtx'\nblock = 3\n", ["s.toml", "3"]),
        ("matrix = 'gone.mtx'\n", ["gone.mtx", "No such file"]),
        ("matrix = 'a.mtx'\nrhs = 'T.mtx'\n", ["T.mtx", "4"]),
        ("[kronecker]\nM='M.mtx'\nL='M.mtx'\nblock=2\ntau=1\nscheme='gauss-9'\n", ["s.toml", "gauss"]),
        ("[kronecker]\nM='M.mtx'\nL='M.mtx'\nblock=3\ntau=1\nscheme='gauss-1'\n", ["M.mtx", "3"]),
        ("matrix = \n", ["s.toml:1", ""]),
    ] {
        f.write("s.toml", text);
        f.line("solve s.toml").fails(2, &words);
    }
}

#[test]
fn output_files_are_checked_first_and_appear_whole_or_not_at_all() {
    let f = Folder::new();
    f.write("a.mtx", small());
    for option in ["--out", "--report", "--plot"] {
        f.run(&["solve", "a.mtx", option, "no/such/x"]).fails(2, &[option, "no/such", "folder"]);
        f.run(&["solve", "a.mtx", option, "."]).fails(2, &[option]);
        f.run(&["solve", "a.mtx", option, "a.mtx/x"]).fails(2, &[option, "folder"]);
    }
    f.line("solve a.mtx --out same --report same")
        .fails(2, &["--out same and --report same name the same file"]);
    assert_eq!(f.names(), ["a.mtx"]);
    f.run(&["problem", "laplace:3x3x3", "--out", "a.mtx"]).fails(2, &["a.mtx"]);
}

/// A full disk: a small file system if the test may mount one, else the device /dev/full.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_the_old_file() {
    let f = Folder::new();
    f.write("a.mtx", small());
    for option in ["--out", "--report"] {
        f.run(&["solve", "a.mtx", option, "/dev/full"]).fails(2, &["/dev/full", "space"]);
    }
    // A limit on the file size stops the writing of x in the middle, as a full disk does.
    f.write("x.npy", "old");
    let script = format!(
        "trap '' XFSZ; ulimit -f 1; exec {} solve laplace:12x12x12 --out x.npy --quiet",
        env!("CARGO_BIN_EXE_krylith")
    );
    let output =
        std::process::Command::new("sh").args(["-c", &script]).current_dir(f.0.path()).output().unwrap();
    common::Ran::new(output).fails(2, &["x.npy"]);
    assert_eq!(std::fs::read(f.path("x.npy")).unwrap(), b"old");
    assert_eq!(f.names(), ["a.mtx", "x.npy"]);
}

/// Coefficients of a Kronecker sum that are finite although their product is not.
#[test]
fn coefficients_that_overflow_are_named() {
    let f = Folder::new();
    f.line("problem stokes:3x3x3 --out p").works();
    let text = std::fs::read_to_string(f.path("p/system.toml")).unwrap();
    let change = |line: &str| match line.split(' ').next() {
        Some("tau") => "tau = 1e300".to_string(),
        Some("B") => "B = [[0.25, 0.0], [1e10, 0.25]]".to_string(),
        _ => line.to_string(),
    };
    f.write("p/system.toml", text.lines().map(|line| change(line) + "\n").collect::<String>());
    f.line("solve p/system.toml --device cpu")
        .fails(2, &["system.toml", "tau is 1e300", "B(1, 0) is 1e10", "overflows"]);
}

#[test]
fn systems_that_cannot_be_solved_as_asked_say_why() {
    let f = Folder::new();
    // A pure Neumann problem with b = 1.
    let spring = |i| [(i, i, 1.0), (i, i + 1, -1.0), (i + 1, i, -1.0), (i + 1, i + 1, 1.0)];
    f.write("free.mtx", mtx(8, 8, &(1..8).flat_map(spring).collect::<Vec<_>>()));
    let words = ["A maps constants to zero, and b has a component along them", "--nullspace constant"];
    f.line("solve free.mtx --device cpu").fails(1, &["inconsistent", words[0], words[1]]);
    let info = f.line("info free.mtx");
    let words = "singular: A maps constants to zero (--nullspace constant projects them out)";
    assert!(info.works().out.contains(words), "{info:#?}");
    // CG and MINRES on a matrix that is not symmetric.
    let n = 200;
    let uneven = (1..n).flat_map(|i| [(i, i, 2.0), (i, i + 1, -1.5), (i + 1, i, -0.5)]).chain([(n, n, 2.0)]);
    f.write("uneven.mtx", mtx(n, n, &uneven.collect::<Vec<_>>()));
    for (method, precond) in
        [("cg", "none"), ("cg", "jacobi"), ("cbcg", "none"), ("minres", "none"), ("minres", "jacobi")]
    {
        let words = format!(
            "the matrix is not symmetric, but {method} needs a symmetric one: try --method bicgstab or --method gmres"
        );
        f.line(&format!(
            "solve uneven.mtx --device cpu --method {method} --precond {precond} --max-iters 100"
        ))
        .fails(1, &[&words]);
    }
}
