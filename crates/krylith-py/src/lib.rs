//! The extension module `krylith._native`, through which the Python package calls the library.
//!
//! The Python sources (`python/krylith`) convert objects of SciPy, CuPy and PyTorch. This module receives
//! NumPy arrays on the host, addresses in the memory of a GPU, and options as text.

mod arrays;
mod batch;
mod callback;
mod callbacks;
mod dlpack;
mod errors;
mod function;
mod ranks;
mod set_up;
mod solution;
mod solver;
mod system;
mod xla;

use krylith_core::Outcome;
use krylith_core::method::MethodName;
use krylith_core::names::Named;
use krylith_core::options::{Kind, TABLE};
use krylith_core::precond::PrecondSpec;
use krylith_report::process::Memory;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;

#[global_allocator]
static MEMORY: Memory = Memory;

/// Runs the `krylith` command and returns its exit code.
#[pyfunction]
fn main(py: Python<'_>, words: Vec<OsString>) -> u8 {
    py.detach(|| krylith_cli::run(words))
}

/// Returns the name among `known` that `text` probably means; `what` is the kind of name, such as `option`.
#[pyfunction]
fn meant(what: &str, text: &str, known: Vec<String>) -> Option<String> {
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    krylith_core::names::meant(what, text, &known).map(String::from)
}

/// The options: name, kind, and names of earlier versions.
#[pyfunction]
fn options() -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    let kind = |kind: Kind| match kind {
        Kind::Count => "count",
        Kind::Real => "real",
        Kind::Flag => "flag",
        Kind::Bytes => "bytes",
        Kind::Choice(_) | Kind::CountOr(_) | Kind::Text => "text",
    };
    TABLE.iter().map(|option| (option.name, kind(option.kind), option.old_names.to_vec())).collect()
}

/// The names of methods, preconditioners and outcomes, by the kind of name.
#[pyfunction]
fn names() -> HashMap<&'static str, Vec<&'static str>> {
    HashMap::from([
        ("method", MethodName::NAMES.to_vec()),
        ("precond", PrecondSpec::names().collect()),
        ("outcome", Outcome::ALL.map(Outcome::name).to_vec()),
    ])
}

/// The keys of a preconditioner and what each takes, such as `fill` and `K` for `ildu`.
#[pyfunction]
fn precond_keys(name: &str) -> Vec<(&'static str, &'static str)> {
    PrecondSpec::keys(name)
}

/// Names folders in which NVRTC may be.
#[pyfunction]
fn compiler_folders(folders: Vec<PathBuf>) {
    krylith_core::device::cuda::add_compiler_folders(folders);
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("MAX_BLOCK", krylith_core::matrix::MAX_BLOCK)?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    module.add_function(wrap_pyfunction!(meant, module)?)?;
    module.add_function(wrap_pyfunction!(compiler_folders, module)?)?;
    module.add_function(wrap_pyfunction!(options, module)?)?;
    module.add_function(wrap_pyfunction!(names, module)?)?;
    module.add_function(wrap_pyfunction!(precond_keys, module)?)?;
    module.add_function(wrap_pyfunction!(arrays::same_indices, module)?)?;
    module.add_function(wrap_pyfunction!(arrays::read_indices, module)?)?;
    module.add_function(wrap_pyfunction!(arrays::write_numbers, module)?)?;
    module.add_function(wrap_pyfunction!(xla::xla_handlers, module)?)?;
    module.add_function(wrap_pyfunction!(xla::xla_layout, module)?)?;
    module.add_function(wrap_pyfunction!(callbacks::solve_operators, module)?)?;
    module.add_function(wrap_pyfunction!(callbacks::newton, module)?)?;
    module.add_function(wrap_pyfunction!(dlpack::capsule, module)?)?;
    module.add_function(wrap_pyfunction!(dlpack::numbers_of, module)?)?;
    module.add_function(wrap_pyfunction!(dlpack::copy, module)?)?;
    module.add_function(wrap_pyfunction!(function::order, module)?)?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<batch::DeviceBatch>()?;
    module.add_class::<function::Function>()?;
    module.add_class::<system::System>()?;
    module.add_class::<solver::Solver>()?;
    module.add_class::<solution::Curve>()?;
    module.add_class::<solution::Solution>()
}
