//! The C library: installed into a folder with its headers and its module for Fortran, and tested there as its users have it.

use crate::debian;
use crate::shell::{cargo, read, root, shell, target, works};
use crate::steps::Verdict;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Compilers and what tells them where a library is.
const PACKAGES: [&str; 4] = ["gcc", "g++", "gfortran", "pkg-config"];
/// What the Rust standard library and METIS want of the system; for programs that link libkrylith.a.
const PRIVATE: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";

/// `cargo xtask c [--prefix DIR] [--features LIST] [--test]`: an optimised library, installed.
pub fn run(words: &[&str]) -> ExitCode {
    let (mut prefix, mut tested) = (target().join("c"), false);
    let mut build = vec!["build", "--package", "krylith-c", "--release"];
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match *word {
            "--test" => tested = true,
            "--prefix" if rest.len() > 0 => {
                prefix = std::env::current_dir().unwrap_or_default().join(rest.next().unwrap_or(&""));
            }
            "--features" if rest.len() > 0 => build.extend(["--features", rest.next().unwrap_or(&"")]),
            _ => {
                eprintln!("cargo xtask c [--prefix DIR] [--features mpi] [--test]: `{word}` is not that");
                return ExitCode::from(2);
            }
        }
    }
    let done = install(&build, "release", &prefix).and_then(|()| match tested {
        true => test(&prefix).map(|text| println!("c: {text}")),
        false => Ok(()),
    });
    match done {
        Ok(()) => {
            println!("c: installed in {0}; PKG_CONFIG_PATH={0}/lib/pkgconfig", prefix.display());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("c: {why}");
            ExitCode::FAILURE
        }
    }
}

/// As CI has it: the library of the tests' features, programs in three languages, and ranks where there is MPI.
pub fn step(features: &[&str], missing: impl FnOnce(String) -> Verdict) -> Verdict {
    let prefix = target().join("xtask-c");
    let _ = fs::remove_dir_all(&prefix); // none, at the first time
    match debian::install(&PACKAGES, || {
        PACKAGES.into_iter().find(|tool| !works(Command::new(tool).arg("--version")))
    }) {
        Ok(()) => {
            // As the tests before, for which it was built: other packages have other features in common, and would be built again.
            let build = [&["test", "--workspace", "--no-run"], features].concat();
            install(&build, "debug/deps", &prefix).and_then(|()| test(&prefix)).into()
        }
        Err(why) => missing(why),
    }
}

/// Builds the library and puts it, its headers, and what tells compilers of them, below `prefix`.
fn install(build: &[&str], folder: &str, prefix: &Path) -> Result<(), String> {
    shell(cargo(build).arg("--quiet"))?;
    place(&target().join(folder), prefix)?;
    if folder == "release" {
        // Line numbers, which are most of the bytes; without `strip` they stay.
        let shared = format!("libkrylith.so.{}", version()?);
        works(
            Command::new("strip")
                .arg("--strip-debug")
                .args([&shared, "libkrylith.a"])
                .current_dir(prefix.join("lib")),
        );
    }
    Ok(())
}

/// Puts the library that was built in a folder, its headers, and what tells compilers of them, below `prefix`.
pub fn place(built: &Path, prefix: &Path) -> Result<(), String> {
    let version = version()?;
    let [lib, include] = ["lib", "include"].map(|name| prefix.join(name));
    let package = root().join("crates/krylith-c");
    let done = || -> std::io::Result<()> {
        for folder in [&lib.join("pkgconfig"), &lib.join("cmake/krylith"), &include] {
            fs::create_dir_all(folder)?;
        }
        let shared = format!("libkrylith.so.{version}");
        fs::copy(built.join("libkrylith_c.so"), lib.join(&shared))?;
        fs::copy(built.join("libkrylith_c.a"), lib.join("libkrylith.a"))?;
        for link in [format!("libkrylith.so.{}", compatible(&version)), "libkrylith.so".into()] {
            let _ = fs::remove_file(lib.join(&link)); // none, at the first time
            symlink(&shared, lib.join(link))?;
        }
        for file in
            ["include/krylith.h", "include/krylith.hpp", "fortran/krylith_c.f90", "fortran/krylith.f90"]
        {
            let from = package.join(file);
            fs::copy(&from, include.join(from.file_name().unwrap_or_default()))?;
        }
        fs::write(lib.join("pkgconfig/krylith.pc"), pkg_config(&version))?;
        let cmake = lib.join("cmake/krylith");
        fs::write(cmake.join("krylithConfig.cmake"), CMAKE)?;
        fs::write(cmake.join("krylithConfigVersion.cmake"), cmake_version(&version))
    };
    done().map_err(|e| format!("{}: {e}", prefix.display()))
}

/// The library's version.
pub fn version() -> Result<String, String> {
    let manifest = root().join("Cargo.toml");
    let text = fs::read_to_string(&manifest).map_err(|e| format!("{}: {e}", manifest.display()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("version = "));
    line.map(|line| line.trim_matches('"').to_string()).ok_or_else(|| "Cargo.toml names no version".into())
}

/// The part of a version in which libraries that go together agree.
fn compatible(version: &str) -> String {
    let mut parts = version.split('.');
    match (parts.next(), parts.next()) {
        (Some("0"), Some(minor)) => format!("0.{minor}"),
        (major, _) => major.unwrap_or_default().into(),
    }
}

fn pkg_config(version: &str) -> String {
    format!(
        "prefix=${{pcfiledir}}/../..\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\n\
         Name: krylith\nDescription: Krylov solvers for sparse point-block systems, on CPUs and GPUs\n\
         Version: {version}\nLibs: -L${{libdir}} -lkrylith\nLibs.private: {PRIVATE}\nCflags: -I${{includedir}}\n"
    )
}

/// `find_package(krylith)` gives the target `krylith::krylith`.
const CMAKE: &str = "\
get_filename_component(_krylith_prefix \"${CMAKE_CURRENT_LIST_DIR}/../../..\" ABSOLUTE)
if(NOT TARGET krylith::krylith)
    add_library(krylith::krylith SHARED IMPORTED)
    set_target_properties(krylith::krylith PROPERTIES
        IMPORTED_LOCATION \"${_krylith_prefix}/lib/libkrylith.so\"
        INTERFACE_INCLUDE_DIRECTORIES \"${_krylith_prefix}/include\")
endif()
# For Fortran programs, which compile the module: target_sources(program PRIVATE ${krylith_FORTRAN})
set(krylith_FORTRAN \"${_krylith_prefix}/include/krylith_c.f90\" \"${_krylith_prefix}/include/krylith.f90\")
";

fn cmake_version(version: &str) -> String {
    format!(
        "set(PACKAGE_VERSION \"{version}\")\n\
         if(PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION OR NOT PACKAGE_FIND_VERSION MATCHES \"^{}([.]|$)\")\n    \
         set(PACKAGE_VERSION_COMPATIBLE FALSE)\nelse()\n    set(PACKAGE_VERSION_COMPATIBLE TRUE)\nendif()\n\
         if(PACKAGE_VERSION VERSION_EQUAL PACKAGE_FIND_VERSION)\n    set(PACKAGE_VERSION_EXACT TRUE)\nendif()\n",
        compatible(version).replace('.', "[.]")
    )
}

/// Examples, and programs that test every function, compiled as users would: by pkg-config, with warnings as errors.
pub fn test(prefix: &Path) -> Result<String, String> {
    let (programs, mpi) = (target().join("xtask-c-programs"), calls_mpi(prefix)?);
    fs::create_dir_all(&programs).map_err(|e| format!("{}: {e}", programs.display()))?;
    let package = root().join("crates/krylith-c");
    let mut sources = files(&package.join("examples"))?;
    sources.extend(files(&package.join("tests/programs"))?);
    sources.extend(of_document("docs/c.md", &programs)?);
    let mut count = 0;
    for source in sources.iter().filter(|file| file.extension().is_none_or(|e| e != "h")) {
        let name = source.file_name().unwrap_or_default().to_string_lossy().replace('.', "_");
        let of_ranks = name.starts_with("ranks");
        if of_ranks && !mpi {
            continue;
        }
        for fixed in [false, true] {
            // One program in each language by the static library is enough.
            if fixed && !name.starts_with("api") {
                continue;
            }
            let program = programs.join(format!("{name}{}", if fixed { "_static" } else { "" }));
            compile(source, &program, prefix, fixed, mpi, of_ranks)?;
            let mut run = Command::new(if of_ranks { "mpirun" } else { "env" });
            if of_ranks {
                run.args(["--oversubscribe", "-n", "3"]);
                run.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
            }
            let said = read(run.arg(&program).current_dir(&programs))?;
            println!("{name}{}:\n{}", if fixed { ", static" } else { "" }, said.trim_end());
            count += 1;
        }
    }
    Ok(format!("{count} programs in C, C++ and Fortran"))
}

/// The whole programs of a document, each in a file of its own.
fn of_document(name: &str, to: &Path) -> Result<Vec<PathBuf>, String> {
    let text = fs::read_to_string(root().join(name)).map_err(|e| format!("{name}: {e}"))?;
    let mut found = Vec::new();
    for (number, block) in text.split("\n```").enumerate() {
        let Some((language, code)) = block.split_once('\n') else { continue };
        let ending = match language {
            "c" | "cpp" => language,
            "fortran" => "f90",
            _ => continue,
        };
        if code.contains("int main(") || code.contains("end program") {
            let file = to.join(format!("document_{number}.{ending}"));
            fs::write(&file, code).map_err(|e| format!("{}: {e}", file.display()))?;
            found.push(file);
        }
    }
    if found.is_empty() { Err(format!("{name} has no programs")) } else { Ok(found) }
}

/// Source files of a folder, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    Ok(files)
}

fn compile(
    source: &Path,
    program: &Path,
    prefix: &Path,
    fixed: bool,
    mpi: bool,
    of_ranks: bool,
) -> Result<(), String> {
    let pkg_config = |what: &[&str]| {
        let mut command = Command::new("pkg-config");
        let text =
            read(command.args(what).arg("krylith").env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")))?;
        Ok::<Vec<String>, String>(text.split_whitespace().map(String::from).collect())
    };
    let (plain, parallel, flags) = match source.extension().and_then(|e| e.to_str()) {
        Some("c") => ("gcc", "mpicc", &["-std=c11", "-Wpedantic", "-Wextra"][..]),
        Some("cpp") => ("g++", "mpicxx", &["-std=c++17", "-Wpedantic", "-Wextra"][..]),
        // It takes every allocatable for one that is not set.
        _ => (
            "gfortran",
            "mpifort",
            &["-std=f2018", "-Wextra", "-Wno-uninitialized", "-Wno-maybe-uninitialized"][..],
        ),
    };
    let mut compiler = Command::new(if of_ranks { parallel } else { plain });
    compiler.args(flags).args(["-g", "-Wall", "-Werror"]).args(pkg_config(&["--cflags"])?);
    if source.extension().is_some_and(|e| e == "f90") {
        // Module files go beside the program.
        compiler.arg("-J").arg(program.parent().unwrap_or(prefix));
        compiler.args(["krylith_c.f90", "krylith.f90"].map(|module| prefix.join("include").join(module)));
    }
    compiler.arg(source).arg("-o").arg(program);
    match fixed {
        true => {
            compiler.arg(prefix.join("lib/libkrylith.a")).args(PRIVATE.split(' '));
            if mpi {
                compiler.arg("-lmpi");
            }
        }
        false => {
            compiler.args(pkg_config(&["--libs"])?);
            compiler.arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()));
        }
    }
    shell(&mut compiler).map(drop)
}

/// True where the library calls MPI.
fn calls_mpi(prefix: &Path) -> Result<bool, String> {
    let needs = read(Command::new("readelf").arg("-d").arg(prefix.join("lib/libkrylith.so")))?;
    Ok(needs.lines().any(|line| line.contains("NEEDED") && line.contains("libmpi")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_go_together() {
        assert_eq!(["0.1.0", "0.12.3", "1.4.2", "10.0.0"].map(compatible), ["0.1", "0.12", "1", "10"]);
        assert!(version().is_ok_and(|version| version.split('.').count() == 3));
    }
}
