//! Tasks for the development of Krylith. `cargo xtask` without arguments lists them.

mod bench;
mod c;
mod c_programs;
mod clients;
mod debian;
mod docs;
mod fuzz;
mod gpu;
mod kernels;
mod licenses;
mod mpi;
mod nvrtc;
mod package;
mod python;
mod release;
mod rustdoc;
mod shell;
mod steps;
mod test;
mod tidy;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask test             before a commit, without administrator's rights: tidy, format, lints, documentation, tests, Python
cargo xtask ci               what CI runs: the same, and MPI, C, Fortran, NVRTC, packages, licences, the site; with CI=true
                             it installs what it needs, and a step that exceeds its budget fails
cargo xtask tidy [--prose]   the rules of CONTRIBUTING.md that a machine can check; --prose: lines, sentences and documents
                             that are too long, and the library's names, by rules that tidy enforces and those it does not yet
cargo xtask rustdoc          the documentation of all libraries; fails where a public type has no example
cargo xtask python           the Python package: an optimised wheel in target/wheels, tested from an empty environment
cargo xtask clients          Krylith inside PETSc, FEniCSx, MFEM, OpenFOAM and others: its tests there, and the clients' own
cargo xtask c [--prefix DIR] [--test]
                             the C library with its headers, pkg-config and CMake files; in target/c if nowhere else
cargo xtask docs             the site: docs/ as HTML in target/docs, every link checked
cargo xtask gpu              gpu-out/: binaries and run.sh for a GPU machine without Rust
cargo xtask kernels FILE     compiled kernels of the common sizes; KRYLITH_EMBED=FILE puts them into a build
cargo xtask package [--verify]
                             crates as they would be published, packed and looked through; built from their packages too
cargo xtask licenses [--check]
                             THIRD-PARTY-LICENSES.md, of everything that programs have inside
cargo xtask release [--target TRIPLE] [--out DIR] [--trial]
                             archive, wheel and checksums of a release; --trial: unoptimised, of whatever is there
cargo xtask fuzz [TARGET…] [--runs N] [--seconds S] [--seed X]
                             damaged input to every reader and parser, a million runs of each; what is found is kept
cargo xtask bench [SUITE…]   ignored tests in release, then the suites of `krylith bench` (all, or those named);
                             auto: what `auto` picks beside every way that can be named";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [] | ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        ["test"] => test::run(test::Who::Desk),
        ["ci"] => test::run(test::Who::Ci),
        ["tidy"] => tidy::run(),
        ["tidy", "--prose"] => tidy::prose::run(),
        ["rustdoc"] => rustdoc::run(),
        ["python"] => python::run(),
        ["clients"] => clients::run(),
        ["c", ref words @ ..] => c::run(words),
        ["docs"] => docs::run(),
        ["gpu"] => gpu::run(),
        ["kernels", file] => kernels::run(file),
        ["package"] => package::run(false),
        ["package", "--verify"] => package::run(true),
        ["licenses"] => licenses::run(false),
        ["licenses", "--check"] => licenses::run(true),
        ["release", ref words @ ..] => release::run(words),
        ["fuzz", ref words @ ..] => fuzz::run(words),
        ["bench", ref suites @ ..] => bench::run(suites),
        _ => {
            eprintln!("cargo xtask {}: not known\n\n{HELP}", args.join(" "));
            ExitCode::from(2)
        }
    }
}
