//! Kernels over vectors: of bases, and of the steps and sweeps that methods declare.

use super::compiler::{Defines, Kernel};
use super::driver::TextKey;
use super::launch::{Address, At, Entry, File, Of, Reals, kernels};
use super::specialisations::{STORES, define, value};
use crate::method::{KERNELS, gmres};
use crate::precond::{ALL_SWEEPS, CYCLE_STEPS, INNER_STEPS};
use crate::space::step::HEADER;
use crate::space::{self, Precision, REASONS, SmallStep, StepSource, SweepSource};

kernels! {
    APPEND in "append.cu", |_| STORES.map(|precision| append::of(precision).into()).into();
    fn append(halt: At<i32>, n: i64, s: At<f64>, v: Reals, x: At<f64>);
}

kernels! {
    COMBINE in "combine.cu", |_| STORES.iter().flat_map(|&precision| combinations(precision)).collect();
    fn combine(
        halt: At<i32>, basis: Reals, stride: i64, n: i32, first: i32, end: i32, columns: At<i32>,
        coefficients: At<f64>, alpha: f64, scale: At<f64>, w: At<f64>,
    );
    fn combine_pair = "combine"(
        halt: At<i32>, basis: Reals, stride: i64, n: i32, column: i32, sums: At<f64>, z: At<f64>,
        w: At<f64>, state: Address,
    );
}

kernels! {
    PROJECT in "project.cu",
        |_| STORES.iter().flat_map(|&precision| projections(precision)).collect();
    fn project(
        halt: At<i32>, basis: Reals, stride: i64, n: i32, first: i32, end: i32, w: At<f64>, z: At<f64>, norm: i32,
        keep: i32, out: At<f64>, scratch: At<f64>, counter: At<u32>, peers: Address,
    );
}

kernels! {
    STEP in "step.cu", |_| all_steps().map(|source| step::of(source).into()).collect();
    fn step(halt: At<i32>, scalars: Address, iteration: u64);
}

/// The file of sweeps. The arguments after `peers` differ by sweep: an address for each scalar, input, update
/// and sum.
pub(in crate::device::cuda) static SWEEP: File = File {
    name: "sweep.cu",
    text: include_str!("kernels/sweep.cu"),
    entries: &[(
        &["sweep"],
        &[
            ("halt", "At<i32>"),
            ("n", "i64"),
            ("scratch", "At<f64>"),
            ("counter", "At<u32>"),
            ("peers", "Address"),
        ],
    )],
    specialisations: |_| all_sweeps().map(|source| sweep::of(source).into()).collect(),
};

/// One pass over vectors, as a method declares it.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
pub(crate) struct sweep;

impl Entry for sweep {
    const NAMES: &'static [&'static str] = &["sweep"];
    const FILE: &'static File = &SWEEP;
}

/// Threads of a parallel step.
pub(crate) const STEP_THREADS: usize = 128;

/// Returns the macros of `step.cuh` for one step: its scalars, arrays, constants, functions and body.
fn step_text(source: &StepSource) -> Defines {
    let join = |parts: Vec<String>| parts.join(" ");
    let fields = HEADER.iter().chain(source.fields).copied().collect::<Vec<_>>().join(", ");
    let mut before = "(double*)(scalars + 1)".to_string();
    let mut arrays = Vec::new();
    for (name, length) in source.arrays {
        arrays.push(format!("double* const {name} = {before};"));
        before = format!("{name} + ({length})");
    }
    let functions = source.functions.iter().map(|f| {
        let indices: String = f.indices.iter().map(|i| format!(", usize {i}")).collect();
        let arrays: String = f.arrays.iter().map(|a| format!(", double* {a}")).collect();
        let body = text(f.body);
        format!("__device__ void {}(MethodScalars& {}{indices}{arrays}) {{ {body} }}", f.name, f.scalars)
    });
    let [scalars, iteration] = source.arguments;
    let mut defines: Vec<_> = REASONS.iter().map(|(name, code)| define(name, code)).collect();
    defines.push(define("HUGE", format!("{:e}", space::HUGE)));
    defines.extend(source.constants.iter().map(|(name, value)| define(name, format!("{value:e}"))));
    defines.extend([
        define("FIELDS", fields),
        define("ARRAYS", format!("const usize {} = scalars->batch; {}", source.batch, join(arrays))),
        define("END", before),
        define("FUNCTIONS", join(functions.collect())),
        define("SCALARS", scalars),
        define("ITERATION", if iteration == "_" { "iteration" } else { iteration }),
        define("BODY", text(source.body)),
    ]);
    defines
}

/// Converts statements to C++: on one line, and without the markers of Rust's macros.
fn text(body: &str) -> String {
    body.replace('\n', " ").replace("one!", "one").replace("each!", "each")
}

impl project {
    /// Returns the kernel for dot products with one or two vectors.
    pub(crate) fn of(precision: Precision, vectors: usize) -> Of<Self> {
        Self.with(vec![value(precision), define("RHS", vectors)])
    }
}

impl combine {
    /// Returns the kernel that combines columns with one vector.
    pub(crate) fn of(precision: Precision) -> Of<Self> {
        Self.with(vec![value(precision), define("RHS", 1)])
    }
}

impl combine_pair {
    /// Returns the kernel for the delayed update of two vectors, with a small step beside it.
    pub(crate) fn of(precision: Precision, beside: &StepSource) -> Of<Self> {
        let mut defines = vec![value(precision), define("RHS", 2), define("SMALL_STEP", 1)];
        defines.extend(step_text(beside));
        Self.with(defines)
    }
}

impl append {
    /// Returns the kernel that normalises a vector into the basis.
    pub(crate) fn of(precision: Precision) -> Of<Self> {
        Self.with(vec![value(precision)])
    }
}

/// Returns the addresses of a step's texts as a key; `variant` distinguishes kernels made from the same step.
pub(crate) fn step_key(source: &StepSource, variant: usize) -> TextKey {
    let (functions, constants) = (source.functions.as_ptr() as usize, source.constants.as_ptr() as usize);
    let (body, fields) = (source.body.as_ptr() as usize, source.fields.as_ptr() as usize);
    [body, fields, source.arrays.as_ptr() as usize, functions, constants, variant]
}

/// Returns the addresses of a sweep's texts as a key.
pub(crate) fn sweep_key(source: &SweepSource) -> TextKey {
    let names =
        [source.scalars, source.inputs, source.updates, source.sums].map(|names| names.as_ptr() as usize);
    [source.body.as_ptr() as usize, names[0], names[1], names[2], names[3], 0]
}

impl step {
    /// Returns the kernel of a small step on its own.
    pub(crate) fn of(source: &StepSource) -> Of<Self> {
        Self.with(step_text(source))
    }
}

/// Iterates over the small steps of every method.
fn all_steps() -> impl Iterator<Item = &'static StepSource> {
    KERNELS.iter().flat_map(|(steps, _)| *steps).chain(CYCLE_STEPS).chain(INNER_STEPS)
}

/// Iterates over the sweeps of every method.
fn all_sweeps() -> impl Iterator<Item = &'static SweepSource> {
    KERNELS.iter().map(|(_, sweeps)| *sweeps).chain(ALL_SWEEPS).chain([space::plain::SWEEPS]).flatten()
}

fn combinations(precision: Precision) -> [Kernel; 2] {
    let beside = <gmres::delayed_step as SmallStep>::SOURCE;
    [combine::of(precision).into(), combine_pair::of(precision, &beside).into()]
}

fn projections(precision: Precision) -> [Kernel; 2] {
    [1, 2].map(|vectors| project::of(precision, vectors).into())
}

/// Returns the kernels of a basis, with the steps that run beside them.
pub(crate) fn bases(precision: Precision) -> Vec<Kernel> {
    [append::of(precision).into()]
        .into_iter()
        .chain(combinations(precision))
        .chain(projections(precision))
        .collect()
}

/// Returns the macros of `sweep.cu` for a sweep.
fn sweep_text(source: &SweepSource) -> Defines {
    let each = |names: &[&str], f: &dyn Fn(&str) -> String| names.iter().map(|n| f(n)).collect::<String>();
    let parameters = each(source.scalars, &|n| format!(", const double* {n}_"))
        + &each(source.inputs, &|n| format!(", const double* {n}_"))
        + &each(source.updates, &|n| format!(", double* {n}_"))
        + &each(source.sums, &|n| format!(", double* {n}_"));
    vec![
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
    ]
}

impl sweep {
    /// Returns the kernel of a sweep, with macros made from its declaration.
    pub(crate) fn of(source: &SweepSource) -> Of<Self> {
        Self.with(sweep_text(source))
    }
}
