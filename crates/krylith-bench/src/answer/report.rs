//! Tables in Markdown and JSON from the measurements.

use super::{Found, OURS, Way};
use crate::publish::Report;
use krylith_core::text::plural;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// Parts with a column in the table; parts that a baseline lacks are a dash.
const COLUMNS: [&str; 11] = [
    "check",
    "device",
    "upload",
    "product",
    "survey",
    "preconditioner",
    "compile",
    "method",
    "other",
    "solve",
    "read back",
];

/// Formats seconds as milliseconds with three digits, or a dash.
pub(crate) fn ms(seconds: f64) -> String {
    match seconds * 1e3 {
        t if !t.is_finite() => "–".into(),
        t if t >= 100.0 => format!("{t:.0}"),
        t if t >= 10.0 => format!("{t:.1}"),
        t => format!("{t:.2}"),
    }
}

pub(super) fn make(found: &[Found], mut meta: Value) -> Report {
    let mut text = String::from("# Time to an answer\n\n");
    let mut failures = Vec::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{}; right-hand side of ones, relative residual {}; milliseconds, medians of {}.\n\n`{}`\n",
        meta["device"]["name"].as_str().unwrap_or("unknown"),
        meta["rtol"],
        plural(meta["rounds"].as_u64().unwrap_or(0) as usize, "round"),
        meta["command"].as_str().unwrap_or("")
    );
    for process in meta["process"].as_array().into_iter().flatten() {
        let _ = writeln!(
            text,
            "- a fresh process that solves 12³ unknowns on {}: {} ms",
            process["device"].as_str().unwrap_or(""),
            process["seconds"]["median"].as_f64().map_or("–".into(), ms)
        );
    }
    for system in found {
        table(system, &mut text, &mut failures);
    }
    if let Some((summary, json)) = choices(found) {
        text += &summary;
        meta["choices"] = json;
    }
    meta["systems"] = found.iter().map(json_of).collect();
    meta["failures"] = json!(failures);
    Report { tables: text, json: meta, failures, ..Report::default() }
}

fn table(system: &Found, text: &mut String, failures: &mut Vec<String>) {
    let Found { name, spec, rows, order, stored, made, .. } = system;
    let kind = if system.symmetric { "symmetric" } else { "not symmetric" };
    let how = if system.from_file { "read" } else { "generated" };
    let _ = writeln!(
        text,
        "\n## {name}\n\n{spec}: {rows} unknowns in blocks of {order}, {stored} numbers, {kind}; {how} in {} ms\n",
        ms(*made)
    );
    let _ = writeln!(text, "| way | {} | set-up | total | iterations |", COLUMNS.join(" | "));
    let _ = writeln!(text, "|---|{}", "---:|".repeat(COLUMNS.len() + 3));
    for way in &system.ways {
        if let Some(why) = &way.failure {
            failures.push(format!("{name}, {}: {why}", way.name));
            let _ = writeln!(text, "| {}: no answer, {why} |{}", way.name, " – |".repeat(COLUMNS.len() + 3));
            continue;
        }
        let parts = COLUMNS.map(|column| way.part(column).map_or("–".into(), |s| ms(s.median())));
        let last = way.taken.last();
        let means = last.map_or("", |answer| answer.means.as_str());
        let label = if means.is_empty() { way.name.clone() } else { format!("{} ({means})", way.name) };
        let _ = writeln!(
            text,
            "| {label} | {} | {} | {} | {} |",
            parts.join(" | "),
            ms(way.setups().median()),
            ms(way.totals().median()),
            last.map_or(0, |answer| answer.iterations)
        );
    }
}

/// Compares the automatic choice with the best named variant, system by system.
fn choices(found: &[Found]) -> Option<(String, Value)> {
    let mut text = String::from("\n## The pick beside the best that was named\n\n");
    text += "| system | picked | ms | best named | ms | ratio |\n|---|---|---:|---|---:|---:|\n";
    let (mut ratios, mut rows) = (Vec::new(), Vec::new());
    for system in found {
        if !system.ways.iter().any(|way| way.named) {
            return None;
        }
        let Some(pick) = system.ways.iter().find(|way| way.name == OURS) else { continue };
        let total = |way: &Way| if way.failure.is_none() { way.totals().median() } else { f64::INFINITY };
        let named = system.ways.iter().filter(|way| way.named);
        let best = named.min_by(|x, y| total(x).total_cmp(&total(y)))?;
        let ratio = total(pick) / total(best);
        let means = pick.taken.last().map_or("no answer", |answer| answer.means.as_str());
        let name = if total(best).is_finite() { best.name.as_str() } else { "none" };
        let shown = if ratio.is_finite() { format!("{ratio:.2}") } else { "–".into() };
        let (took, least) = (ms(total(pick)), ms(total(best)));
        let _ = writeln!(text, "| {} | {means} | {took} | {name} | {least} | {shown} |", system.name);
        rows.push(json!({
            "system": system.name, "picked": means, "best": name, "ratio": ratio.is_finite().then_some(ratio),
        }));
        if !ratio.is_nan() {
            ratios.push(ratio);
        }
    }
    ratios.sort_by(f64::total_cmp);
    let (median, worst) = (*ratios.get(ratios.len() / 2)?, *ratios.last()?);
    let _ = writeln!(text, "\nMedian {median:.2}, worst {worst:.2}, of {} systems.", ratios.len());
    let finite = |x: f64| x.is_finite().then_some(x);
    Some((text, json!({ "median": finite(median), "worst": finite(worst), "systems": rows })))
}

/// Returns all data of a variant.
pub(crate) fn way_json(way: &Way) -> Value {
    let parts: Map<String, Value> =
        COLUMNS.iter().filter_map(|column| Some((column.to_string(), way.part(column)?.json()))).collect();
    let last = way.taken.last();
    json!({
        "name": way.name, "failure": way.failure, "means": last.map(|answer| &answer.means),
        "iterations": last.map(|answer| answer.iterations), "seconds": parts,
        "setup": last.map(|_| way.setups().json()), "total": last.map(|_| way.totals().json()),
        "relative_residual": way.residual.is_finite().then_some(way.residual),
    })
}

fn json_of(system: &Found) -> Value {
    json!({
        "name": system.name, "system": system.spec, "unknowns": system.rows, "block": system.order,
        "numbers": system.stored, "symmetric": system.symmetric,
        "made_by": if system.from_file { "reading" } else { "generating" }, "made_in": system.made,
        "ways": system.ways.iter().map(way_json).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Answer;

    fn found() -> Found {
        let taken = |solve: f64| Answer {
            parts: vec![("upload", 0.002), ("solve", solve), ("read back", 0.001)],
            total: solve + 0.003,
            iterations: 7,
            converged: true,
            x: Vec::new(),
            means: "CG".into(),
            ..Answer::default()
        };
        let ways = vec![
            Way::failed("vendor libraries", "no diagonal".into()),
            Way {
                name: OURS.into(),
                failure: None,
                taken: vec![taken(0.010), taken(0.030), taken(0.020)],
                residual: 1e-9,
                named: false,
            },
            Way {
                name: "theirs".into(),
                failure: Some("10 iterations".into()),
                taken: Vec::new(),
                residual: 1.0,
                named: true,
            },
        ];
        let (name, spec) = ("system".into(), "spec".into());
        Found { name, spec, rows: 5, order: 1, stored: 9, symmetric: true, made: 0.5, from_file: false, ways }
    }

    #[test]
    fn medians_stand_in_the_table_and_what_failed_has_no_time() {
        let made = make(&[found()], json!({ "device": { "name": "cpu" }, "rtol": 1e-8, "rounds": 3 }));
        let row = "| Krylith (CG) | – | – | 2.00 | – | – | – | – | – | – | 20.0 | 1.00 | 2.00 | 23.0 | 7 |";
        assert!(made.tables.contains(row), "{}", made.tables);
        assert_eq!(made.failures, ["system, vendor libraries: no diagonal", "system, theirs: 10 iterations"]);
        assert!(made.tables.contains("| system | CG | 23.0 | none | – | 0.00 |"), "{}", made.tables);
        let ways = &made.json["systems"][0]["ways"];
        assert_eq!(ways[1]["total"]["samples"].as_array().unwrap().len(), 3);
        assert!(ways[1]["seconds"]["product"].is_null() && ways[2]["total"].is_null());
        assert_eq!(made.json["systems"][0]["made_by"], "generating");
    }
}
