//! Installs the C library into a folder, with its headers and its Fortran module, and tests the installed
//! library as users would.

use crate::shell::{cargo, root, shell, target, works};
use crate::steps::Verdict;
use crate::{c_programs, debian, mpi};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Compilers, and the program that tells them the location of a library.
const PACKAGES: [&str; 4] = ["gcc", "g++", "gfortran", "pkg-config"];
/// System libraries that the Rust standard library and METIS need, for programs that link libkrylith.a.
pub const PRIVATE: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";

/// `cargo xtask c [--prefix DIR] [--test]`: builds an optimised library and installs it.
pub fn run(words: &[&str]) -> ExitCode {
    let (mut prefix, mut tested) = (target().join("c"), false);
    let build = ["build", "--package", "krylith-c", "--release"];
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match *word {
            "--test" => tested = true,
            "--prefix" if rest.len() > 0 => {
                prefix = std::env::current_dir().unwrap_or_default().join(rest.next().unwrap_or(&""));
            }
            _ => {
                eprintln!("cargo xtask c [--prefix DIR] [--test]: `{word}` is not that");
                return ExitCode::from(2);
            }
        }
    }
    let done = install(&build, "release", &prefix).and_then(|()| match tested {
        // Programs with ranks are tested only if an MPI library is available.
        true => {
            c_programs::test(&prefix, &mpi::install().unwrap_or_default()).map(|text| println!("c: {text}"))
        }
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

/// The step of CI: installs the library built with the features of the tests, and runs programs in three
/// languages, some of them on ranks.
pub fn step(launchers: &[PathBuf], missing: impl FnOnce(String) -> Verdict) -> Verdict {
    let prefix = target().join("xtask-c");
    let _ = fs::remove_dir_all(&prefix); // missing on the first run
    match debian::install(&PACKAGES, || {
        PACKAGES.into_iter().find(|tool| !works(Command::new(tool).arg("--version")))
    }) {
        Ok(()) => {
            // Use the command and the features of the earlier tests, so that the library is not built again.
            let build = ["test", "--workspace", "--no-run", "--all-features"];
            install(&build, "debug/deps", &prefix).and_then(|()| c_programs::test(&prefix, launchers)).into()
        }
        Err(why) => missing(why),
    }
}

/// Builds the library, and installs it with its headers and the files for pkg-config and CMake below
/// `prefix`.
fn install(build: &[&str], folder: &str, prefix: &Path) -> Result<(), String> {
    shell(cargo(build).arg("--quiet"))?;
    place(&target().join(folder), prefix)?;
    if folder == "release" {
        // Remove line numbers, which are most of the bytes.
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

/// Copies the library from the folder in which it was built to `prefix`, with its headers and the files for
/// pkg-config and CMake.
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
            let _ = fs::remove_file(lib.join(&link)); // missing on the first run
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

/// Returns the part of a version that is the same for all compatible versions.
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

/// Defines the target `krylith::krylith` for `find_package(krylith)`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_go_together() {
        assert_eq!(["0.1.0", "0.12.3", "1.4.2", "10.0.0"].map(compatible), ["0.1", "0.12", "1", "10"]);
        assert!(version().is_ok_and(|version| version.split('.').count() == 3));
    }
}
