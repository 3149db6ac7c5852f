//! Tests of Krylith inside MFEM, NGSolve, diffsol and OpenFOAM. Those of OpenFOAM need its headers and
//! tutorials.

use crate::c;
use crate::shell::{cargo, pip_install, read, root, shell, target, works};
use std::env::var_os;
use std::path::Path;
use std::process::Command;

/// PyMFEM's wheel contains MFEM's library and its headers.
const PACKAGES: [&str; 2] = ["mfem==4.10.0.1", "ngsolve==6.2.2608"];
const TESTS: [&str; 2] = ["tests/test_contrib_mfem.py", "tests/test_contrib_ngsolve.py"];

/// Runs the tests with the Python of a virtual environment that has Krylith and pytest.
pub fn run(python: &Path) -> Result<String, String> {
    shell(pip_install(python).args(PACKAGES))?;
    let mut command = Command::new(python);
    command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=append"]).args(TESTS);
    let said = read(command.current_dir(root().join("crates/krylith-py")))?;
    print!("{said}");
    shell(&mut cargo(&["build", "--quiet", "--release", "--package", "krylith-c"]))?;
    let prefix = target().join("xtask-clients-c");
    c::place(&target().join("release"), &prefix)?;
    mfem(python, &prefix)?;
    diffsol()?;
    let said = super::last_line(&said);
    Ok(format!("{said}; MFEM: passed; diffsol: passed; OpenFOAM: {}", openfoam(&prefix)?))
}

/// Compiles the program of tests with the headers of PyMFEM's wheel, and runs it.
fn mfem(python: &Path, prefix: &Path) -> Result<(), String> {
    let find = "import importlib.util as u; print(u.find_spec('mfem').submodule_search_locations[0])";
    let folder = read(Command::new(python).args(["-c", find]))?;
    let (mfem, lib) = (Path::new(folder.trim()).join("external/ser"), prefix.join("lib"));
    let program = target().join("xtask-clients-mfem");
    let mut command = Command::new("c++");
    command.args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "test.cpp", "-isystem"]);
    command.arg(mfem.join("include")).arg("-I").arg(prefix.join("include"));
    for folder in [&lib, &mfem.join("lib")] {
        command.arg("-L").arg(folder).arg(format!("-Wl,-rpath,{}", folder.display()));
    }
    command.args(["-lkrylith", "-lmfem", "-o"]).arg(&program);
    shell(command.current_dir(root().join("clients/mfem")))?;
    shell(&mut Command::new(program)).map(drop)
}

/// Tests the crate for diffsol, which is no member of the workspace.
fn diffsol() -> Result<(), String> {
    let mut command = cargo(&["test", "--quiet", "--no-default-features", "--target-dir"]);
    shell(command.arg(target().join("xtask-diffsol")).current_dir(root().join("clients/diffsol"))).map(drop)
}

/// Builds the library for OpenFOAM, and runs the tutorials, if `FOAM_INCLUDE`, `FOAM_LIB` and
/// `FOAM_TUTORIALS` say where its headers, libraries and tutorials are.
fn openfoam(prefix: &Path) -> Result<&'static str, String> {
    let wanted = ["FOAM_INCLUDE", "FOAM_LIB", "FOAM_TUTORIALS"];
    if !works(Command::new("icoFoam").arg("-help")) || wanted.iter().any(|name| var_os(name).is_none()) {
        return Ok("skipped, as its programs, FOAM_INCLUDE, FOAM_LIB or FOAM_TUTORIALS are missing");
    }
    let (folder, lib) = (root().join("clients/openfoam"), prefix.join("lib"));
    let mut make = Command::new("make");
    shell(make.current_dir(&folder).env("PKG_CONFIG_PATH", lib.join("pkgconfig")))?;
    let mut paths = vec![lib, folder.clone()];
    paths.extend(std::env::split_paths(&var_os("LD_LIBRARY_PATH").unwrap_or_default()));
    let paths = std::env::join_paths(paths).map_err(|e| e.to_string())?;
    let mut test = Command::new("python3");
    shell(test.arg("test.py").current_dir(&folder).env("LD_LIBRARY_PATH", paths))?;
    Ok("passed")
}
