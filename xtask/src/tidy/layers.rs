//! The order of modules: each may use only modules before it. Exceptions are counted here, and their number
//! may only decrease.

use super::graph::Graph;
use std::collections::BTreeMap;

/// An allowed exception: a module, the later module that it uses, and the number of uses.
type Left = (&'static str, &'static str, usize);

/// The source folder of a crate, its modules from the bottom to the top, and the exceptions.
pub const CRATES: [(&str, &[&str], &[Left]); 4] = [
    (
        "crates/krylith-base/src/",
        &[
            "text",
            "error",
            "alloc",
            "names",
            "twofold",
            "profile",
            "threads",
            "waiting",
            "comm",
            "interrupt",
            "halo",
        ],
        &[],
    ),
    ("crates/krylith-matrix/src/", &["memory", "matrix", "io"], &[]),
    (
        "crates/krylith-core/src/",
        &[
            "space",
            "operator",
            "partition",
            "matching",
            "method",
            "precond",
            "device",
            "options",
            "fields",
            "io",
            "problem",
            "solver",
            "newton",
        ],
        &[],
    ),
    ("crates/krylith-report/src/", &["process", "callers", "words", "plot"], &[]),
];

/// Finds modules without a place in the order, uses beyond the exceptions, and exceptions that no longer
/// occur in the code.
pub fn check(graph: &Graph, order: &[&str], left: &[(&str, &str, usize)]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut find = |message: String| findings.push(message);
    let place = |module: &str| order.iter().position(|name| *name == module);
    for module in graph.modules.iter().filter(|module| place(module).is_none()) {
        find(format!("module `{module}` stands in no layer: xtask/src/tidy/layers.rs"));
    }
    let mut allowed: BTreeMap<(&str, &str), usize> =
        left.iter().map(|(from, to, uses)| ((*from, *to), *uses)).collect();
    for ((from, to), arrow) in &graph.arrows {
        let (Some(a), Some(b)) = (place(from), place(to)) else { continue };
        if b < a {
            continue;
        }
        let allowed = allowed.remove(&(from.as_str(), to.as_str())).unwrap_or(0);
        if arrow.uses > allowed {
            find(format!(
                "`{from}` uses `{to}`, which stands above it, {} times ({allowed} are left over): {}",
                arrow.uses, arrow.first
            ));
        }
        if arrow.uses < allowed {
            find(format!("`{from}` uses `{to}` {} times: write that down in layers.rs", arrow.uses));
        }
    }
    for (from, to) in allowed.keys() {
        find(format!("`{from}` no longer uses `{to}`: take the line out of layers.rs"));
    }
    findings
}

/// Returns the line that `cargo xtask tidy` prints about the graph.
pub fn describe(graph: &Graph, left: &[Left]) -> String {
    let cycles = graph.cycles();
    let largest = cycles.iter().map(|cycle| cycle.len()).max().unwrap_or(0);
    let up: usize = left.iter().map(|(_, _, uses)| uses).sum();
    let members: Vec<&str> = cycles.iter().flatten().map(String::as_str).collect();
    format!(
        "{} modules, {} arrows, {} up ({up} uses), {} in cycles, {largest} in the largest{}{}",
        graph.modules.len(),
        graph.arrows.len(),
        left.len(),
        members.len(),
        if members.is_empty() { "" } else { ": " },
        members.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(left: &[(&str, &str, usize)]) -> Vec<String> {
        let files = [
            ("low.rs", "use crate::high::{f}; fn g() { crate::high::f() }"),
            ("high.rs", "use crate::low;"),
            ("lost.rs", ""),
        ];
        check(&Graph::read(files.into_iter()), &["low", "high"], left)
    }

    #[test]
    fn an_arrow_up_may_only_become_less() {
        let none = |message: &String| !message.contains("stands in no layer");
        let said = |left: &[(&str, &str, usize)]| said(left).into_iter().filter(none).collect::<Vec<_>>();
        assert!(said(&[("low", "high", 2)]).is_empty());
        assert!(said(&[]).iter().any(|m| m.contains("2 times (0 are left over): low.rs:1")));
        assert!(said(&[("low", "high", 1)])[0].contains("2 times (1 are left over)"));
        assert!(said(&[("low", "high", 3)])[0].contains("write that down"));
        assert!(said(&[("low", "high", 2), ("high", "low", 1)])[0].contains("take the line out"));
    }

    #[test]
    fn a_module_has_a_place() {
        assert!(said(&[("low", "high", 2)])[0].contains("`lost` stands in no layer"));
    }
}
