//! Variants, written as the options of a user.

/// The automatic choice, without options.
pub(super) const AUTO: &str = "auto";
/// The hierarchy with default options.
pub(super) const DEFAULT: &str = "amg";

/// Returns the options of a variant: none for `auto`, the text itself if it has options, else a
/// preconditioner.
pub(crate) fn options(way: &str) -> String {
    match way {
        AUTO => String::new(),
        _ if way.split_whitespace().any(is_option) => way.to_string(),
        _ => format!("precond={way}"),
    }
}

/// Returns true for `precond=…` and the like; the keys of a preconditioner follow a colon.
fn is_option(word: &str) -> bool {
    word.split_once('=').is_some_and(|(key, _)| !key.contains(':'))
}

/// Returns true if the hierarchy is stored in f32: a row of its own, which counts for no target of f64.
pub(super) fn is_f32(way: &str) -> bool {
    way.contains("precision=f32")
}

fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(|text| text.to_string()).collect()
}

/// Returns the variants on single systems.
pub(super) fn table(full: bool) -> Vec<String> {
    let mut all = texts(&[
        AUTO,
        DEFAULT,
        "amg:coarsen=classical",
        "amg:coarsen=classical,aggressive=0",
        "amg:coarsen=aggregation,cycle=k",
        "amg:coarsen=smoothed",
        "amg:smoother=jacobi",
        "amg:smoother=chebyshev",
        "amg:smoother=ildu",
        "amg:precision=f32",
        "ildu",
    ]);
    if full {
        for coarsen in ["classical", "classical,aggressive=0", "aggregation", "smoothed"] {
            for cycle in ["v", "w", "k"] {
                for smoother in ["jacobi", "chebyshev", "ildu"] {
                    for precision in ["", ",precision=f32"] {
                        all.push(format!(
                            "amg:coarsen={coarsen},cycle={cycle},smoother={smoother}{precision}"
                        ));
                    }
                }
            }
        }
    }
    all
}

/// Returns the variants on growing systems.
pub(super) fn growth() -> Vec<String> {
    texts(&[DEFAULT, "amg:coarsen=aggregation,cycle=k", "amg:coarsen=smoothed", "ildu"])
}

/// Returns the variants under new values.
pub(super) fn updates() -> Vec<String> {
    texts(&[DEFAULT, "amg:coarsen=smoothed"])
}

/// Returns the variants on one core.
pub(super) fn one_core() -> Vec<String> {
    texts(&[AUTO, DEFAULT, "amg:coarsen=smoothed", "amg:smoother=jacobi"])
}

/// Returns the variants on several GPUs.
pub(super) fn scaling() -> Vec<String> {
    texts(&[AUTO, DEFAULT])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_options_or_a_preconditioner() {
        assert_eq!(options("auto"), "");
        assert_eq!(options("amg:cycle=k,precision=f32"), "precond=amg:cycle=k,precision=f32");
        assert_eq!(options("method=cg precond=ildu"), "method=cg precond=ildu");
        assert_eq!(options("ildu then amg:cycle=v"), "precond=ildu then amg:cycle=v");
        for way in ["ildu", "jacobi", "ildu + jacobi", "method=cg precond=jacobi"] {
            assert!(options(way).parse::<krylith_core::Options>().is_ok(), "{way}");
        }
        assert!(is_f32("amg:precision=f32") && !is_f32("amg"));
    }

    #[test]
    fn no_way_is_listed_twice() {
        for all in [table(false), table(true), growth(), updates(), one_core(), scaling()] {
            for (i, way) in all.iter().enumerate() {
                assert!(!all[..i].contains(way), "{way}");
            }
        }
        assert_eq!(table(true).len(), table(false).len() + 72);
    }
}
