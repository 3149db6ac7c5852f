//! Names and numbers as people type them, with suggestions for names of other programs and for typing errors.
//!
//! Names are accepted in any case, and with `_` for `-`. A name that another program uses is not accepted,
//! because it may mean something else there; the error suggests Krylith's name instead.

use crate::{Error, Result};

/// Names in other programs, each group with the closest name in Krylith.
type Words = &'static [(&'static [&'static str], &'static str)];

/// Names in PETSc, SciPy, Trilinos and Ginkgo with the closest names in Krylith, by the kind of thing named.
#[doc(hidden)]
pub const ELSEWHERE: [(&str, Words); 5] = [
    (
        "method",
        &[
            (&["bcgs", "bcgsl", "ibcgs", "fbcgs", "bicg", "bicgs", "cgs", "qmr", "tfqmr", "idr"], "bicgstab"),
            (
                &["pcg", "conjugate gradient", "conjugate gradients", "fcg", "pipecg", "groppcg", "gropp"],
                "cg",
            ),
            (&["lgmres", "pgmres", "dgmres", "blockgmres", "gcrodr"], "gmres"),
            (&["symmlq", "minresqlp", "pminres"], "minres"),
            (&["flexible gmres", "gcr", "gcrotmk", "pipefgmres", "richardson"], "fgmres"),
            (&["cacg", "scg", "pcbcg", "sstep", "sstepcg"], "cbcg"),
        ],
    ),
    (
        "preconditioner",
        &[
            (
                &[
                    "ilu", "iluk", "riluk", "ilut", "ilutp", "spilu", "parilu", "icc", "ic", "ic0", "ichol",
                    "cholesky", "bjacobi",
                ],
                "ildu",
            ),
            (&["pbjacobi", "vpbjacobi", "diag", "diagonal", "point jacobi", "blockrelaxation"], "jacobi"),
            (&["asm", "gasm", "schwarz", "additive schwarz", "dd"], "ras"),
            (
                &["gamg", "hypre", "boomeramg", "ml", "muelu", "mg", "multigrid", "pyamg", "amgx", "agmg"],
                "amg",
            ),
            (&["direct", "splu", "superlu", "mumps", "umfpack", "klu", "klu2", "pardiso", "amesos2"], "lu"),
            (&["identity", "no", "off"], "none"),
            (
                &[
                    "fieldsplit",
                    "nest",
                    "blocktriangular",
                    "schur",
                    "simple",
                    "simplec",
                    "simpler",
                    "lsc",
                    "pcd",
                    "uzawa",
                    "fixedstress",
                ],
                "split",
            ),
            (&["cprw", "mgr", "two stage"], "cpr"),
            (&["patch", "pcpatch", "braess sarazin"], "vanka"),
            (&["ams", "ads", "hx", "hiptmair xu", "pmg", "p multigrid", "auxiliary"], "aux"),
        ],
    ),
    (
        "device",
        &[
            (&["gpu", "gpus", "nvidia", "hip", "sycl"], "cuda"),
            (&["host", "openmp", "omp", "threads", "serial", "reference"], "cpu"),
        ],
    ),
    (
        "precision",
        &[
            (&["double", "float64", "fp64", "real64"], "f64"),
            (&["single", "float", "float32", "fp32", "mixed", "real32"], "f32"),
        ],
    ),
    (
        "option",
        &[
            (&["tol", "tolerance", "reltol", "relative tolerance", "ksp rtol", "eps", "epsilon"], "rtol"),
            (&["abstol", "absolute tolerance", "ksp atol"], "atol"),
            (
                &[
                    "maxiter",
                    "maxit",
                    "max iteration",
                    "max iterations",
                    "maximum iterations",
                    "niter",
                    "itmax",
                    "iterations",
                    "ksp max it",
                    "max steps",
                ],
                "max_iters",
            ),
            (&["pc", "pc type", "preconditioner", "prec"], "precond"),
            (&["ksp", "ksp type", "solver", "krylov", "algorithm"], "method"),
            (&["gmres restart", "ksp gmres restart", "krylov dim", "num blocks", "inner m", "m"], "restart"),
            (&["nthreads", "num threads", "jobs", "j", "t", "omp num threads"], "threads"),
            (&["gpu", "gpus", "cuda", "cpu", "backend", "executor"], "device"),
            (&["dtype", "float", "single", "real"], "precision"),
            (&["mat type", "storage"], "format"),
            (&["timeout", "max time", "time"], "time_limit"),
            (&["reproducible", "bitwise"], "deterministic"),
            (&["scale", "scaling", "equilibration", "diagonal scale"], "equilibrate"),
            (&["ortho", "orthogonalisation", "orthogonalize"], "orthogonalization"),
        ],
    ),
];

/// True for names that differ only in case, or in `_` for `-`.
///
/// ```
/// assert!(krylith_base::names::same("Radau_IIA-2", "radau-iia-2"));
/// assert!(!krylith_base::names::same("radau-2", "radau-iia-2"));
/// ```
pub fn same(a: &str, b: &str) -> bool {
    let plain = |c: u8| if c == b'_' { b'-' } else { c.to_ascii_lowercase() };
    a.len() == b.len() && a.bytes().zip(b.bytes()).all(|(a, b)| plain(a) == plain(b))
}

/// The name in `known` that `text` probably means. `what` is the kind of thing named: `method`,
/// `preconditioner`, `option`, or any kind without a list of other programs' names.
///
/// ```
/// use krylith_base::names::meant;
/// assert_eq!(meant("preconditioner", "ILU", &["none", "ildu"]), Some("ildu"));
/// assert_eq!(meant("scheme", "raddau", &["gauss", "radau"]), Some("radau"));
/// assert_eq!(meant("scheme", "euler", &["gauss", "radau"]), None);
/// ```
pub fn meant<'k>(what: &str, text: &str, known: &[&'k str]) -> Option<&'k str> {
    let wanted = plain(text);
    let exact = || known.iter().copied().find(|name| plain(name) == wanted);
    let elsewhere = || {
        let words = ELSEWHERE.iter().find(|(of, _)| *of == what)?.1;
        let ours = words.iter().find(|(theirs, _)| theirs.iter().any(|name| plain(name) == wanted))?.1;
        known.iter().copied().find(|name| plain(name) == plain(ours))
    };
    let near = || {
        let distance = |name: &str| strsim::damerau_levenshtein(&wanted, &plain(name));
        // One typing error is allowed per three letters, and none in a name of two letters: otherwise every
        // name would be close.
        let most = wanted.chars().count() / 3;
        known.iter().copied().map(|name| (distance(name), name)).filter(|d| d.0 <= most).min().map(|d| d.1)
    };
    let prefix = || {
        let mut longer =
            known.iter().copied().filter(|name| wanted.len() > 2 && plain(name).starts_with(&wanted));
        longer.next().filter(|_| longer.next().is_none())
    };
    exact().or_else(elsewhere).or_else(near).or_else(prefix)
}

/// The letters and digits of a name, in lower case.
#[doc(hidden)]
pub fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Returns `; did you mean `rtol`?`, or nothing if no known name is close.
pub fn did_you_mean(what: &str, text: &str, known: &[&str]) -> String {
    meant(what, text, known).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

/// Parses a whole number between bounds.
///
/// # Errors
/// Any other text; the error names the bounds.
pub fn whole_number(text: &str, from: usize, to: usize) -> Result<usize> {
    let number = text.parse().ok().filter(|n| (from..=to).contains(n));
    number.ok_or_else(|| Error::invalid(format!("expected a whole number from {from} to {to}")))
}

/// Parses a tolerance: finite and not negative.
///
/// # Errors
/// Any other text.
pub fn tolerance(text: &str) -> Result<f64> {
    let number = text.parse().ok().filter(|t: &f64| t.is_finite() && *t >= 0.0);
    number.ok_or_else(|| Error::invalid("expected a number that is finite and not negative, such as 1e-6"))
}

/// Returns the names of a list whose entries may end in `[…]`, `(…)` or `=…`, or may describe forms without
/// a name.
#[doc(hidden)]
pub fn bare<'k>(known: &[&'k str]) -> impl Iterator<Item = &'k str> {
    let before = known.iter().map(|known| known.split(['[', '(', '=', '`']).next().unwrap_or(known));
    before.filter(|name| !name.is_empty())
}

/// The error for an unknown name. It lists the known ones, which may end in `[…]`, `(…)` or `=…`, and
/// suggests the one that was probably meant.
#[doc(hidden)]
pub fn unknown<T>(what: &str, name: &str, known: &[&str]) -> Result<T> {
    let bare: Vec<&str> = bare(known).collect();
    let hint = did_you_mean(what.strip_prefix("key of ").map_or(what, |_| "key"), name, &bare);
    // With a suggestion, the names alone are enough.
    let all = if hint.is_empty() { known.join(", ") } else { bare.join(", ") };
    Err(Error::invalid(format!("unknown {what} `{name}`; the known ones are {all}{hint}")))
}

/// A type whose values have names in options and reports.
///
/// # Examples
/// ```
/// use krylith_base::names::Named;
/// #[derive(Debug, Clone, Copy, PartialEq)]
/// enum Colour {
///     Red,
///     Black,
/// }
/// krylith_base::names! { Colour, "colour": Red => "red", Black => "black" }
/// assert_eq!("RED".parse::<Colour>()?, Colour::Red);
/// assert_eq!(Colour::NAMES, ["red", "black"]);
/// assert_eq!(Colour::Black.to_string(), "black");
/// # Ok::<(), krylith_base::Error>(())
/// ```
pub trait Named {
    /// All names, the default first where there is one.
    const NAMES: &'static [&'static str];
}

/// Declares the names of an enum's variants once, and derives `ALL`, `name`, parsing, printing and
/// [`Named`](crate::names::Named) from them.
///
/// # Examples
/// ```
/// #[derive(Debug, Clone, Copy, PartialEq)]
/// enum Side {
///     Left,
///     Right,
/// }
/// krylith_base::names! { Side, "side": Left => "left", Right => "right" }
/// let error = "lift".parse::<Side>().unwrap_err().to_string();
/// assert!(error.contains("did you mean `left`?"), "{error}");
/// assert_eq!(Side::ALL, [Side::Left, Side::Right]);
/// ```
#[macro_export]
macro_rules! names {
    ($type:ident, $what:literal: $($variant:ident => $name:literal),* $(,)?) => {
        impl $crate::names::Named for $type {
            const NAMES: &'static [&'static str] = &[$($name),*];
        }

        impl $type {
            /// All of them.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// Its name in options and reports.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }

        impl ::std::str::FromStr for $type {
            type Err = $crate::Error;
            fn from_str(text: &str) -> $crate::Result<Self> {
                $crate::names::named($what, text, &Self::ALL, Self::name)
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

/// Returns the item of `all` that has this name.
#[doc(hidden)]
pub fn named<T: Copy>(what: &str, text: &str, all: &[T], name: impl Fn(T) -> &'static str) -> Result<T> {
    let names: Vec<&str> = all.iter().map(|one| name(*one)).collect();
    names
        .iter()
        .position(|known| same(known, text))
        .map_or_else(|| unknown(what, text, &names), |i| Ok(all[i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_other_programs_lead_to_ours() {
        let methods = ["auto", "gmres", "fgmres", "bicgstab", "cg", "cbcg", "minres"];
        for (text, ours) in [
            ("BCGS", Some("bicgstab")),
            ("BiCG-Stab", Some("bicgstab")),
            ("pcg", Some("cg")),
            ("MINRES-QLP", Some("minres")),
            ("gmers", Some("gmres")),
            ("fgmress", Some("fgmres")),
            ("bicgst", Some("bicgstab")),
            ("newton", None),
            ("x", None),
        ] {
            assert_eq!(meant("method", text, &methods), ours, "{text}");
        }
        let options = ["rtol", "atol", "max_iters", "precond", "restart"];
        for (text, ours) in [
            ("tol", Some("rtol")),
            ("max-it", Some("max_iters")),
            ("maxiter", Some("max_iters")),
            ("max_iter", Some("max_iters")),
            ("ksp_rtol", Some("rtol")),
            ("pc_type", Some("precond")),
            ("restrat", Some("restart")),
            ("device", None), // not among the known ones here
        ] {
            assert_eq!(meant("option", text, &options), ours, "{text}");
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_one_that_was_meant() {
        let refused = |what: &str, name: &str| {
            unknown::<()>(what, name, &["ildu[:fill=K]", "amg[:cycle=v]"]).unwrap_err().to_string()
        };
        let error = refused("preconditioner", "ILU");
        assert!(error.ends_with("the known ones are ildu, amg; did you mean `ildu`?"), "{error}");
        assert!(!refused("preconditioner", "xyz").contains("did you mean"));
        assert!(refused("key of ildu", "cycl").ends_with("[:cycle=v]"));
    }
}
