//! Every kernel that the library can launch, enumerable: CI compiles each without a GPU.

use super::compiler::Kernel;
use crate::method::GMRES_SWEEPS;
use crate::space::arnoldi::{self, Step};
use crate::space::{self, Store, SweepSource};

fn define(name: &str, value: impl ToString) -> (String, String) {
    (name.into(), value.to_string())
}

pub(super) fn value(store: Store) -> (String, String) {
    define("VALUE", if store == Store::F64 { "double" } else { "float" })
}

/// The constants that the small dense steps share with Rust.
fn step_constants() -> Vec<(String, String)> {
    vec![
        define("HALT", space::HALT),
        define("COLUMNS", space::COLUMNS),
        define("REASON", space::REASON),
        define("LIMIT", space::LIMIT),
        define("TAKEN", space::TAKEN),
        define("ESTIMATE", arnoldi::ESTIMATE),
        define("INVARIANT", arnoldi::INVARIANT),
        define("NOT_FINITE", arnoldi::NOT_FINITE),
        define("BREAKDOWN", format!("{:e}", arnoldi::BREAKDOWN)),
        define("HUGE", format!("{:e}", arnoldi::HUGE)),
    ]
}

/// Dot products with one or two vectors.
pub(super) fn project(store: Store, vectors: usize) -> Kernel {
    Kernel { file: "project.cu", entry: "project", defines: vec![value(store), define("RHS", vectors)] }
}

/// Combination of columns with one vector, or the delayed update of two with the Hessenberg step beside it.
pub(super) fn combine(store: Store, vectors: usize) -> Kernel {
    let mut defines = vec![value(store), define("RHS", vectors)];
    if vectors == 2 {
        defines.push(define("SMALL_STEP", 1));
        defines.extend(step_constants());
    }
    Kernel { file: "combine.cu", entry: "combine", defines }
}

/// Normalisation into the basis.
pub(super) fn append(store: Store) -> Kernel {
    Kernel { file: "append.cu", entry: "append", defines: vec![value(store)] }
}

/// A small dense step on its own.
pub(super) fn step(step: Step) -> Kernel {
    let name = match step {
        Step::Start => "STEP_START",
        Step::Classical => "STEP_CLASSICAL",
        Step::Delayed => "STEP_DELAYED",
        Step::Solve => "STEP_SOLVE",
    };
    let mut defines = step_constants();
    defines.push(define(name, 1));
    Kernel { file: "step.cu", entry: "step", defines }
}

/// A sweep, its macros made from its declaration.
pub(super) fn sweep(source: &SweepSource) -> Kernel {
    let each = |names: &[&str], f: &dyn Fn(&str) -> String| names.iter().map(|n| f(n)).collect::<String>();
    let parameters = each(source.scalars, &|n| format!(", const double* {n}_"))
        + &each(source.inputs, &|n| format!(", const double* {n}_"))
        + &each(source.updates, &|n| format!(", double* {n}_"))
        + &each(source.sums, &|n| format!(", double* {n}_"));
    let defines = vec![
        define("PARAMETERS", parameters),
        define("SCALARS", each(source.scalars, &|n| format!("const double {n} = *{n}_; "))),
        define("BEGIN", each(source.sums, &|n| format!("double {n} = 0; "))),
        define(
            "INPUTS",
            each(source.inputs, &|n| format!("const double {n} = {n}_[i]; "))
                + &each(source.updates, &|n| format!("double {n} = {n}_[i]; ")),
        ),
        define("BODY", source.body.replace('\n', " ")),
        define("STORES", each(source.updates, &|n| format!("{n}_[i] = {n}; "))),
        define("SUMS", source.sums.len()),
        define("SUM_VALUES", source.sums.join(", ")),
        define("SUM_PLACES", source.sums.iter().map(|n| format!("{n}_")).collect::<Vec<_>>().join(", ")),
    ];
    Kernel { file: "sweep.cu", entry: "sweep", defines }
}

/// Block-diagonal product.
pub(super) fn block_diagonal(order: usize, store: Store) -> Kernel {
    let defines = vec![define("ORDER", order), value(store)];
    Kernel { file: "block_diagonal.cu", entry: "block_diagonal", defines }
}

/// The bandwidth measurement.
pub(super) fn read() -> Kernel {
    Kernel { file: "read.cu", entry: "read", defines: Vec::new() }
}

/// Every kernel but the products, which [`products`] lists.
pub fn vector_kernels() -> Vec<Kernel> {
    let mut all = vec![read()];
    for store in [Store::F64, Store::F32] {
        all.push(append(store));
        for vectors in [1, 2] {
            all.push(project(store, vectors));
            all.push(combine(store, vectors));
        }
        all.extend((1..=32).map(|order| block_diagonal(order, store)));
    }
    all.extend(Step::ALL.map(step));
    all.extend(GMRES_SWEEPS.iter().map(sweep));
    all
}

/// The plain product.
pub(super) fn block_rows(b: usize, s: usize, store: Store) -> Kernel {
    let defines = vec![define("BLOCK", b), define("STAGES", s), value(store)];
    Kernel { file: "block_rows.cu", entry: "block_rows", defines }
}
