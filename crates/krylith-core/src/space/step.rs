//! Scalar steps: the work of a method on a few numbers between two passes over vectors.
//!
//! A step is written once, in the method's own file, in the common subset of Rust and C++.
//! [`steps!`](crate::steps) turns it into a Rust function for a CPU and into the text of a kernel for a GPU,
//! which runs it in stream order without the host. The macro also generates the struct of the scalars in Rust
//! and in C++, so nothing is maintained by hand on both sides. Only the functions of the subset are written
//! twice; their C++ versions are in `kernels/step.cuh`.
//!
//! # The common subset
//! `let`, `let mut`, `while (…)`, `if (…) {…} else {…}`, `return;`, assignments, arithmetic, comparisons,
//! `&&`, `||`, `!`, `else if`; `HUGE` and the codes of a [`Reason`](super::Reason); constants and functions
//! that the block declares; `sqrt`, `abs`, `at(f)` (a flag as an index) and `flag(i)` (an index as a flag).
//! Scalars and flags are fields of the first argument (`s.alpha`). Arrays are indexed by their names
//! (`h[k]`). The last argument is the iteration within the batch. In a step that runs `in parallel`, every
//! thread of a block executes the text: one thread executes `one!({ … })`, all threads share i = 0 … n − 1 of
//! `each!(i, n, { … })`, and both end in a barrier.
//!
//! # Example
//! ```
//! use krylith_core::space::{FLAGS, SmallStep};
//!
//! krylith_core::steps! {
//!     /// Scalars of a method.
//!     pub struct Scalars { /// (r, r) before.
//!         rr_old, /// Share of the last direction in the next.
//!         beta }
//!     /// Arrays for a batch of m iterations.
//!     arrays Arrays(m) { /// ‖r‖ after each iteration.
//!         history: m + 1 }
//!     constants [];
//!     functions {}
//!     /// Every step.
//!     pub const STEPS;
//!     /// β = (r, r)/(r, r)₋₁.
//!     ratio(s, j) { s.beta = s.rr / s.rr_old; history[j] = sqrt(s.rr); }
//! }
//!
//! let (mut values, mut flags) = (vec![0.0; Arrays::at(4).len], [0; FLAGS]);
//! flags[krylith_core::space::BATCH] = 4;
//! (values[Scalars::AT.rr], values[Scalars::AT.rr_old]) = (9.0, 4.0);
//! ratio::run(&mut values, &mut flags, 1);
//! assert_eq!((values[Scalars::AT.beta], values[Arrays::at(4).history + 1]), (2.25, 3.0));
//! ```
//!
//! # Two languages
//! rustc compiles the text as a function. `stringify!` makes it the body of `kernels/step.cu`, or of the step
//! beside the update of the vectors in `combine.cu`. Conformance tests run both with the same numbers.
//!
//! Independent work is worth sharing. In one thread the dense step of GMRES took 46 µs at column 29, more
//! than the update of 300,000 unknowns beside it (`bench/runs/2026-11-21-h200x4`).

use super::FLAGS;

/// Source of a step, for a device that compiles kernels.
#[derive(Debug, Clone, Copy)]
#[doc(hidden)]
pub struct StepSource {
    /// Name of the step.
    pub name: &'static str,
    /// The method's own scalars, which follow those of the header ([`HEADER`]).
    pub fields: &'static [&'static str],
    /// Arrays behind the scalars, each with the text of its length.
    pub arrays: &'static [(&'static str, &'static str)],
    /// Name of the number of iterations in the texts of lengths.
    pub batch: &'static str,
    /// Names of the scalars and of the iteration in the text.
    pub arguments: [&'static str; 2],
    /// Constants that the text uses.
    pub constants: &'static [(&'static str, f64)],
    /// Functions that the text calls.
    pub functions: &'static [FunctionSource],
    /// The statements, as written.
    pub body: &'static str,
    /// True if the text runs in a block of threads.
    pub parallel: bool,
}

/// A function that several steps share.
#[derive(Debug, Clone, Copy)]
#[doc(hidden)]
pub struct FunctionSource {
    /// Name of the function.
    pub name: &'static str,
    /// Name of the scalars in the text.
    pub scalars: &'static str,
    /// Integer arguments.
    pub indices: &'static [&'static str],
    /// Array arguments.
    pub arrays: &'static [&'static str],
    /// The statements, as written.
    pub body: &'static str,
}

/// One step on a method's [`Scalars`](super::Schedule::Scalars).
///
/// # Examples
/// [`steps!`](crate::steps) generates the implementations; [`KERNELS`](crate::method::KERNELS) lists those of
/// every method.
/// ```
/// let (steps, _sweeps) = krylith_core::method::KERNELS[0]; // what every method does around its recurrence
/// let names: Vec<_> = steps.iter().map(|step| step.name).collect();
/// assert!(names.contains(&"begin"));
/// ```
pub trait SmallStep: Copy + Send + Sync {
    /// The same text, for devices that compile kernels.
    const SOURCE: StepSource;
    /// Runs the step on host numbers; `j` is the iteration within the batch.
    fn run(values: &mut [f64], flags: &mut [i32; FLAGS], j: usize);
}

/// The scalars that every method has, before its own.
pub const HEADER: [&str; 8] = ["norm", "norm_recurrence", "target", "best", "rounding", "unit", "mm", "rr"];

/// Functions of the common subset; `kernels/step.cuh` has the C++ versions.
#[doc(hidden)]
pub mod subset {
    pub use super::super::reason::*;
    pub use crate::{step_each as each, step_one as one};

    /// √x.
    pub fn sqrt(x: f64) -> f64 {
        x.sqrt()
    }
    /// |x|.
    pub fn abs(x: f64) -> f64 {
        x.abs()
    }
    /// A flag as an index.
    pub fn at(flag: i32) -> usize {
        flag as usize
    }
    /// An index as a flag.
    pub fn flag(index: usize) -> i32 {
        index as i32
    }
}

/// Work of one thread of a parallel step.
#[doc(hidden)]
#[macro_export]
macro_rules! step_one {
    ($work:block) => {
        $work
    };
}

/// Work that the threads of a parallel step share.
#[doc(hidden)]
#[macro_export]
macro_rules! step_each {
    ($i:ident, $n:expr, $work:block) => {
        for $i in 0..$n $work
    };
}

/// Declares the scalars of a method and its scalar steps; [`space::step`](crate::space::step) states the
/// rules.
///
/// # Examples
/// The [module](crate::space::step) has an example that runs.
/// ```
/// krylith_core::steps! {
///     /// Scalars of steepest descent, beside those that every method has.
///     struct Scalars { /// (r, A r).
///         rq, /// (r, r)/(r, A r).
///         alpha }
///     /// Residuals of a batch of m iterations.
///     arrays Arrays(m) { /// ‖r‖.
///         history: m + 1 }
///     constants [];
///     functions {}
///     /// Every step.
///     const STEPS;
///     /// α, or the end of the batch where the matrix is not definite.
///     find_alpha(s, _) {
///         if (s.rq <= 0.0) { s.reason = INDEFINITE_MATRIX; s.halt = 1; return; }
///         s.alpha = s.rr / s.rq;
///     }
/// }
/// assert_eq!(STEPS[0].name, "find_alpha"); // a GPU compiles the same text
/// ```
#[macro_export]
macro_rules! steps {
    // The offsets of arrays, one behind the other.
    (@arrays $vis:vis $scalars:ident $arrays:ident $m:ident
     { $($(#[$doc:meta])* $array:ident: $length:expr),* $(,)? } $(#[$adoc:meta])*) => {
        $(#[$adoc])*
        #[doc(hidden)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs)]
        $vis struct $arrays { $($(#[$doc])* pub $array: usize,)* /// Total length, scalars included.
            pub len: usize }
        impl $arrays {
            /// Returns the slots at which arrays begin, in a batch of this many iterations.
            #[allow(unused_variables)]
            pub fn at($m: usize) -> Self {
                let next = $scalars::<usize, usize>::LEN;
                $(let ($array, next) = (next, next + ($length));)*
                Self { $($array,)* len: next }
            }
        }
    };
    // Arrays as slices, in a step.
    (@bind $rest:ident { $($(#[$doc:meta])* $array:ident: $length:expr),* $(,)? }) => {
        $(let ($array, $rest) = $rest.split_at_mut($length);)*
        let _ = $rest;
    };
    (@sources { $($(#[$doc:meta])* $array:ident: $length:expr),* $(,)? }) => {
        &[$((stringify!($array), stringify!($length))),*]
    };
    (
        $(#[$doc:meta])* $vis:vis struct $scalars:ident { $($(#[$fdoc:meta])* $field:ident),* $(,)? }
        $(#[$adoc:meta])* arrays $arrays:ident($m:ident) $lengths:tt
        constants [$($constant:ident),* $(,)?];
        functions { $(fn $function:ident($fs:ident $(, $index:ident)*; $($farray:ident),*) { $($fbody:tt)* })* }
        $(#[$ldoc:meta])* $lvis:vis const $list:ident;
        $($(#[$sdoc:meta])* $name:ident($s:ident, $j:tt) $(in $parallel:ident)? { $($body:tt)* })*
    ) => {
        $(#[$doc])*
        ///
        /// With `usize` in place of numbers: the slots of the scalars.
        #[doc(hidden)] // internal to a method, as all that this macro generates
        #[derive(Debug, Clone, Copy, PartialEq)]
        #[allow(missing_docs)]
        $vis struct $scalars<T = f64, I = i32> {
            pub halt: I, pub columns: I, pub reason: I, pub limit: I,
            pub completed: I, pub remaining: I, pub verified: I, pub batch: I,
            pub norm: T, pub norm_recurrence: T, pub target: T, pub best: T, pub rounding: T, pub unit: T,
            pub mm: T, pub rr: T,
            $($(#[$fdoc])* pub $field: T,)*
        }
        #[allow(dead_code)]
        impl $scalars<usize, usize> {
            /// Number of scalars, without arrays.
            pub const LEN: usize =
                $crate::space::step::HEADER.len() + <[&str]>::len(&[$(stringify!($field)),*]);
            /// The slot of each scalar.
            pub const AT: Self = {
                #[allow(non_camel_case_types, dead_code)]
                enum Slot { norm, norm_recurrence, target, best, rounding, unit, mm, rr, $($field),* }
                Self {
                    halt: $crate::space::HALT, columns: $crate::space::COLUMNS, reason: $crate::space::REASON,
                    limit: $crate::space::LIMIT, completed: $crate::space::COMPLETED,
                    remaining: $crate::space::REMAINING, verified: $crate::space::VERIFIED,
                    batch: $crate::space::BATCH,
                    norm: Slot::norm as usize, norm_recurrence: Slot::norm_recurrence as usize,
                    target: Slot::target as usize, best: Slot::best as usize, rounding: Slot::rounding as usize,
                    unit: Slot::unit as usize, mm: Slot::mm as usize, rr: Slot::rr as usize,
                    $($field: Slot::$field as usize,)*
                }
            };
        }
        impl $scalars {
            #[allow(dead_code)]
            fn load(values: &[f64], flags: &[i32; $crate::space::FLAGS]) -> Self {
                const AT: $scalars<usize, usize> = $scalars::AT;
                Self {
                    halt: flags[AT.halt], columns: flags[AT.columns], reason: flags[AT.reason],
                    limit: flags[AT.limit], completed: flags[AT.completed], remaining: flags[AT.remaining],
                    verified: flags[AT.verified], batch: flags[AT.batch],
                    norm: values[AT.norm], norm_recurrence: values[AT.norm_recurrence],
                    target: values[AT.target], best: values[AT.best], rounding: values[AT.rounding],
                    unit: values[AT.unit], mm: values[AT.mm], rr: values[AT.rr],
                    $($field: values[AT.$field],)*
                }
            }
            #[allow(dead_code)]
            fn store(self, values: &mut [f64], flags: &mut [i32; $crate::space::FLAGS]) {
                const AT: $scalars<usize, usize> = $scalars::AT;
                *flags = [self.halt, self.columns, self.reason, self.limit, self.completed, self.remaining,
                    self.verified, self.batch];
                (values[AT.norm], values[AT.norm_recurrence]) = (self.norm, self.norm_recurrence);
                (values[AT.target], values[AT.best], values[AT.rounding]) = (self.target, self.best, self.rounding);
                (values[AT.unit], values[AT.mm], values[AT.rr]) = (self.unit, self.mm, self.rr);
                $(values[AT.$field] = self.$field;)*
            }
        }
        $crate::steps!(@arrays $vis $scalars $arrays $m $lengths $(#[$adoc])*);
        $(
            #[allow(unused_parens, unused_imports)]
            fn $function($fs: &mut $scalars $(, $index: usize)* $(, $farray: &mut [f64])*) {
                use $crate::space::step::subset::*;
                $($fbody)*
            }
        )*
        $(
            $(#[$sdoc])*
            #[doc(hidden)]
            #[derive(Clone, Copy)]
            #[allow(non_camel_case_types)]
            $lvis struct $name;
            impl $crate::space::SmallStep for $name {
                const SOURCE: $crate::space::StepSource = $crate::space::StepSource {
                    name: stringify!($name),
                    fields: $scalars::<usize, usize>::FIELDS,
                    arrays: $scalars::<usize, usize>::ARRAYS,
                    batch: stringify!($m),
                    arguments: [stringify!($s), stringify!($j)],
                    constants: $scalars::<usize, usize>::CONSTANTS,
                    functions: $scalars::<usize, usize>::FUNCTIONS,
                    body: stringify!($($body)*),
                    parallel: !<[&str]>::is_empty(&[$(stringify!($parallel)),*]),
                };
                #[allow(unused_parens, unused_imports, unused_variables, clippy::needless_return,
                    clippy::redundant_closure_call)]
                fn run(values: &mut [f64], flags: &mut [i32; $crate::space::FLAGS], $j: usize) {
                    use $crate::space::step::subset::*;
                    let mut scalars = $scalars::load(values, flags);
                    let $m = flags[$crate::space::BATCH] as usize;
                    {
                        let rest = &mut values[$scalars::<usize, usize>::LEN..];
                        $crate::steps!(@bind rest $lengths);
                        let $s = &mut scalars;
                        (|| { $($body)* })();
                    }
                    scalars.store(values, flags);
                }
            }
        )*
        impl $scalars<usize, usize> {
            const FIELDS: &'static [&'static str] = &[$(stringify!($field)),*];
            const ARRAYS: &'static [(&'static str, &'static str)] = $crate::steps!(@sources $lengths);
            const CONSTANTS: &'static [(&'static str, f64)] = &[$((stringify!($constant), $constant as f64)),*];
            const FUNCTIONS: &'static [$crate::space::FunctionSource] = &[$($crate::space::FunctionSource {
                name: stringify!($function),
                scalars: stringify!($fs),
                indices: &[$(stringify!($index)),*],
                arrays: &[$(stringify!($farray)),*],
                body: stringify!($($fbody)*),
            }),*];
        }
        $(#[$ldoc])*
        $lvis const $list: &[$crate::space::StepSource] = &[$(<$name as $crate::space::SmallStep>::SOURCE),*];
    };
}
