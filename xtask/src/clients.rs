//! Tests of Krylith inside other programs. `.ci/run` runs those of PETSc and SUNDIALS; `cargo xtask clients`
//! also runs the clients' own tests, of pinned versions.

mod codes;

use crate::debian;
use crate::python;
use crate::shell::{cargo, pip_install, read, root, shell, target, works};
use crate::steps::Verdict;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Debian's Python, for which Debian has petsc4py and dolfinx.
const PYTHON: &str = "/usr/bin/python3";
/// Debian's packages, and the modules that they contain; none for headers. The last two serve
/// `cargo xtask clients` alone.
const PACKAGES: [(&str, &str); 10] = [
    ("libpetsc-real-dev", HEADERS),
    ("libsundials-dev", SUNDIALS),
    ("libsuitesparse-dev", KLU),
    ("make", MAKE),
    ("python3-petsc4py-real", "petsc4py"),
    ("python3-mpi4py", "mpi4py"),
    ("python3-scipy", "scipy"),
    ("python3-pytest", "pytest"),
    ("python3-dolfinx-real", "dolfinx"),
    ("dolfinx-doc", ""),
];
/// Stand for headers and for a program in the place of a module.
const HEADERS: &str = "petsc.h";
const SUNDIALS: &str = "/usr/include/cvode/cvode.h";
const KLU: &str = "/usr/include/suitesparse/klu.h";
const MAKE: &str = "make";
/// Where Debian's `dolfinx-doc` has its demos.
const DEMOS: &str = "/usr/share/dolfinx/demo-python";
/// Clients from PyPI. SfePy has no wheel for every Python, PyTorch takes gigabytes, and JAX-FEM needs
/// petsc4py: tests that need them are skipped where they are missing.
const CLIENTS: [&str; 9] = [
    "scikit-fem==12.0.2",
    "fipy==4.0.3",
    "nutils==9.2",
    "pymatsolver==0.4.0",
    "devsim==2.11.2",
    "kratosmultiphysics==10.4.4",
    "kratosconvectiondiffusionapplication==10.4.4",
    "kratosstructuralmechanicsapplication==10.4.4",
    "pytest>=8",
];
/// The sources of petsc4py, with its tests: the version that Debian has.
const PETSC4PY: &str = "petsc4py==3.18.5";

/// Tests the types for petsc4py with the wheel of an earlier step, and those in C and the solver for SUNDIALS
/// with its C library, if Debian's PETSc and SUNDIALS are available.
pub fn step(missing: impl FnOnce(String) -> Verdict) -> Verdict {
    let library = target().join("xtask-c");
    match install(8) {
        Ok(()) => sundials(&library)
            .and_then(|said| Ok(format!("{}; {}; {said}", petsc()?, petsc_in_c(&library)?)))
            .into(),
        Err(why) => missing(why),
    }
}

/// `cargo xtask clients`.
pub fn run() -> ExitCode {
    match all() {
        Ok(text) => {
            println!("clients: {text}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("clients: {why}");
            ExitCode::FAILURE
        }
    }
}

fn all() -> Result<String, String> {
    install(PACKAGES.len())?;
    if python::last_wheel().is_err() {
        python::build(&["--auditwheel", "skip", "--release"], &[])?;
    }
    let said = petsc()?;
    let c = target().join("c");
    shell(cargo(&["xtask", "c"]).arg("--prefix").arg(&c))?;
    let in_c = format!("{}; {}", petsc_in_c(&c)?, sundials(&c)?);
    let (script, package) = (root().join("bench/python"), package()?);
    let sources = target().join("xtask-petsc4py");
    let download =
        ["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", PETSC4PY, "--dest"];
    shell(Command::new(python::tools(&[])?.join("python3")).args(download).arg(&sources))?;
    let run = |name: &str, argument: &Path| {
        let mut command = Command::new(PYTHON);
        shell(command.arg(script.join(name)).arg(argument).env("PYTHONPATH", &package))
    };
    print!("{}", run("petsc4py_tests.py", &sources)?);
    print!("{}", run("dolfinx_demos.py", Path::new(DEMOS))?);
    let clients = target().join("xtask-clients");
    if !works(Command::new(clients.join("bin/python3")).arg("--version")) {
        shell(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&clients))?;
    }
    shell(pip_install(clients.join("bin/python3")).args(CLIENTS).arg(python::last_wheel()?))?;
    let files = ["", "_more", "_fem", "_scipy"].map(|name| format!("tests/test_contrib{name}.py"));
    let mut command = Command::new(clients.join("bin/python3"));
    command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=append"]).args(files);
    let codes = last_line(&read(command.current_dir(root().join("crates/krylith-py")))?);
    let others = codes::run(&clients.join("bin/python3"))?;
    Ok(format!("petsc4py: {said}; {in_c}; codes in Python: {codes}; MFEM and NGSolve in Python: {others}"))
}

/// Runs the tests of `krylith.petsc` under Debian's Python.
fn petsc() -> Result<String, String> {
    let mut command = Command::new(PYTHON);
    command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=append"]);
    command.args([
        "tests/test_petsc.py",
        "tests/test_petsc_memory.py",
        "tests/test_petsc_options.py",
        "tests/test_petsc_ranks.py",
        "tests/test_petsc_builds.py",
    ]);
    let said = read(command.env("PYTHONPATH", package()?).current_dir(root().join("crates/krylith-py")))?;
    print!("{said}");
    Ok(last_line(&said))
}

/// Builds the PC and KSP types in C against Debian's PETSc and the C library in a folder, and tests them on
/// one process and on two ranks.
fn petsc_in_c(library: &Path) -> Result<String, String> {
    let variable = |name: &str, value: &Path| format!("{name}={}", value.display());
    let mut make = Command::new("make");
    make.args(["--silent", "-C", "clients/petsc", "test", "CFLAGS=-Werror"]).current_dir(root());
    make.arg(variable("KRYLITH_DIR", library)).arg(variable("BUILD", &target().join("xtask-petsc-c")));
    make.arg("RUN=mpirun --oversubscribe --allow-run-as-root --bind-to none -n 2");
    // Another PETSc may be that of the caller's own work.
    let said = read(make.env_remove("PETSC_DIR").env_remove("PETSC_ARCH").env("OMP_NUM_THREADS", "1"))?;
    print!("{said}");
    let passed = said.lines().filter(|line| line.contains("all tests passed")).count();
    if passed == 2 {
        Ok("in C: 1 process and 2 ranks".into())
    } else {
        Err(format!("{passed} of 2 tests in C"))
    }
}

/// Builds the solver for SUNDIALS against Debian's libraries and the C library in a folder, and tests it.
fn sundials(library: &Path) -> Result<String, String> {
    let mut make = Command::new("make");
    make.args(["--silent", "-C", "clients/sundials", "test", "CFLAGS=-Werror"]).current_dir(root());
    make.arg(format!("KRYLITH_DIR={}", library.display()));
    let said = read(make.arg(format!("BUILD={}", target().join("xtask-sundials").display())))?;
    print!("{said}");
    match said.contains("all tests passed") {
        true => Ok("SUNDIALS: passed".into()),
        false => Err("the tests of SUNDIALS did not end".into()),
    }
}

fn last_line(said: &str) -> String {
    said.lines().rev().find(|line| line.contains("passed")).unwrap_or("no test").trim().into()
}

/// Returns a folder with the package of the last wheel, and with nothing that it depends on.
fn package() -> Result<PathBuf, String> {
    let folder = target().join("xtask-petsc");
    let _ = std::fs::remove_dir_all(&folder); // missing on the first run
    let mut pip = pip_install(python::tools(&[])?.join("python3"));
    shell(pip.args(["--no-deps", "--target"]).arg(&folder).arg(python::last_wheel()?))?;
    Ok(folder)
}

/// Installs the first `count` packages, in CI; elsewhere the error says what is missing.
fn install(count: usize) -> Result<(), String> {
    let packages: Vec<&str> = PACKAGES[..count].iter().map(|(package, _)| *package).collect();
    debian::install(&packages, || {
        PACKAGES[..count].iter().find(|(_, module)| lacks(module)).map(|found| found.0)
    })
}

fn lacks(module: &str) -> bool {
    match module {
        "" => !Path::new(DEMOS).exists(),
        SUNDIALS | KLU => !Path::new(module).exists(),
        HEADERS => !works(Command::new("pkg-config").args(["--exists", "petsc"])),
        MAKE => !works(Command::new("make").arg("--version")),
        _ => !works(Command::new(PYTHON).args(["-c", &format!("import {module}")])),
    }
}
