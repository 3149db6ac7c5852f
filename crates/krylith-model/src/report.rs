//! Tables, pictures and JSON of predictions, and their comparison with measurements.

mod studies;

use super::words::{columns, fold};
use super::{Iteration, Machine, Messages, Times};
use krylith_core::{Error, Result};
use krylith_plot::html::Table;
use serde_json::{Value, json};
pub use studies::{Study, pictures, study, tables};

/// One row of a prediction.
///
/// # Examples
/// ```
/// use krylith_model::{Machine, Times, report::{About, Row, table}};
/// # let about = About {
/// #     system: "stokes:53x53x54".into(),
/// #     nodes: 151_686,
/// #     partition: "rows".into(),
/// #     reasons: Vec::new(),
/// #     restart: 30,
/// #     command: String::new(),
/// # };
/// let machine = Machine::open("h200-nvlink".as_ref())?;
/// let times = Times { product: 150e-6, orthogonalization: 84e-6, ..Times::default() };
/// let row = Row { gpus: 1, hosts: 1, dense: true, times, messages: Default::default() };
/// let text = table(&about, &machine, &[row]);
/// let whole = text.lines().find(|line| line.contains("T_all")).unwrap_or_default();
/// assert!(whole.ends_with("234.0")); // µs
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Number of GPUs.
    pub gpus: usize,
    /// Number of hosts.
    pub hosts: usize,
    /// True for dense blocks, false for structured ones.
    pub dense: bool,
    /// The predicted times.
    pub times: Times,
    /// The messages of a product.
    pub messages: Messages,
}

/// The subject of a prediction.
///
/// # Examples
/// ```
/// use krylith_model::{Machine, Times, report::{About, Row, prediction}};
/// let about = About {
///     system: "stokes:53x53x54".into(),
///     nodes: 53 * 53 * 54,
///     partition: "rows".into(),
///     reasons: Vec::new(),
///     restart: 30,
///     command: "krylith model stokes:53x53x54 …".into(),
/// };
/// let times = Times { product: 150e-6, orthogonalization: 84e-6, ..Times::default() };
/// let rows = [Row { gpus: 1, hosts: 1, dense: true, times, messages: Default::default() }];
/// // The prediction as a file, for a later comparison with measurements.
/// let json = prediction(&about, &Machine::open("h200-nvlink".as_ref())?, &rows);
/// assert_eq!(json["nodes"], 151_686);
/// assert_eq!(json["rows"][0]["seconds_per_iteration"], times.all());
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct About {
    /// The text that names the system.
    pub system: String,
    /// Number of block rows.
    pub nodes: usize,
    /// The name of the partition.
    pub partition: String,
    /// Why it was chosen, in a line for each number of GPUs.
    pub reasons: Vec<String>,
    /// The restart m of GMRES(m).
    pub restart: usize,
    /// The command line of the program.
    pub command: String,
}

/// Returns the name of the blocks in tables and files.
fn blocks(dense: bool) -> &'static str {
    if dense { "dense" } else { "structured" }
}

fn micro(seconds: f64) -> String {
    format!("{:.1}", 1e6 * seconds)
}

/// Returns a line on the origin of a machine's numbers.
fn provenance(machine: &Machine) -> String {
    fold(&format!("{}: {}", machine.name, machine.origin()))
}

/// Returns the first lines of a prediction.
fn title(about: &About) -> String {
    // What `auto` took stands in the reasons.
    let partition = match about.partition.as_str() {
        "auto" => String::new(),
        name => format!(", partition={name}"),
    };
    let title = format!("{}: {} nodes{partition}", about.system, about.nodes);
    let reasons: String = about.reasons.iter().map(|reason| fold(reason)).collect();
    fold(&title) + &reasons
}

/// Returns the tables of a prediction, in microseconds.
pub fn table(about: &About, machine: &Machine, rows: &[Row]) -> String {
    let mut out = title(about) + &provenance(machine);
    let method = format!("GMRES({}), no preconditioner", about.restart);
    for dense in [true, false] {
        let of: Vec<&Row> = rows.iter().filter(|row| row.dense == dense).collect();
        if of.is_empty() {
            continue;
        }
        let line = |number: &dyn Fn(&Times) -> f64| -> Vec<String> {
            of.iter().map(|row| format!("{:.1}", number(&row.times))).collect()
        };
        let sent = |text: &dyn Fn(&Messages) -> String| of.iter().map(|row| text(&row.messages)).collect();
        let heads: Vec<String> = of.iter().map(|row| row.gpus.to_string()).collect();
        let kind = if dense { "dense blocks" } else { "structured blocks (zero or equal entries skipped)" };
        out += "\n";
        out += &columns(
            &format!("{method}, {kind}: predicted µs an iteration"),
            "GPUs",
            &heads,
            &[
                ("hosts", of.iter().map(|row| row.hosts.to_string()).collect()),
                ("product (T_Kx)", line(&|t| 1e6 * t.product)),
                ("exchange, not hidden (T_c)", line(&|t| 1e6 * t.communication)),
                ("orthogonalisation (T_Gn)", line(&|t| 1e6 * t.orthogonalization)),
                ("end of a cycle, per iteration", line(&|t| 1e6 * t.other)),
                ("the whole iteration (T_all)", line(&|t| 1e6 * t.all())),
                ("MB of a product", line(&|t| t.product_bytes / 1e6)),
                ("MB of an orthogonalisation", line(&|t| t.orthogonalization_bytes / 1e6)),
                ("KB sent for a product", line(&|t| t.sent_bytes / 1e3)),
                ("messages of a GPU", sent(&|m| format!("{:.0}", m.count))),
                ("KB of a message, mean", sent(&|m| format!("{:.1}", m.each() / 1e3))),
            ],
        );
    }
    out
}

/// A prediction of one method and preconditioner on some number of GPUs.
///
/// # Examples
/// ```
/// use krylith_model::{Iteration, Machine, report::{About, Attempt, Line, attempt_json}};
/// # let about = About {
/// #     system: "stokes:53x53x54".into(),
/// #     nodes: 151_686,
/// #     partition: "rows".into(),
/// #     reasons: Vec::new(),
/// #     restart: 30,
/// #     command: String::new(),
/// # };
/// # let attempt = Attempt {
/// #     name: "CG with jacobi".into(),
/// #     before: vec![],
/// #     behind: 0,
/// #     auto: false,
/// #     least: false,
/// #     structured: false,
/// #     notes: vec![],
/// # };
/// let times = Iteration { product: 30e-6, vectors: 20e-6, sums: 3e-6, ..Iteration::default() };
/// let line = Line { gpus: 4, hosts: 1, times, messages: Default::default() };
/// let json = attempt_json(&about, &Machine::open("h200-nvlink".as_ref())?, &attempt, &[line]);
/// assert_eq!((&json["rows"][0]["gpus"], &json["rows"][0]["sums"]), (&4.into(), &3e-6.into())); // seconds
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Number of GPUs.
    pub gpus: usize,
    /// Number of hosts.
    pub hosts: usize,
    /// The predicted times.
    pub times: Iteration,
    /// The messages of a product.
    pub messages: Messages,
}

/// The attempt of a whole solve whose times are predicted.
///
/// # Examples
/// ```
/// use krylith_model::{Iteration, Machine, report::{About, Attempt, Line, attempt}};
/// # let about = About {
/// #     system: "stokes:53x53x54".into(),
/// #     nodes: 151_686,
/// #     partition: "rows".into(),
/// #     reasons: Vec::new(),
/// #     restart: 30,
/// #     command: String::new(),
/// # };
/// let made = Attempt {
///     name: "ildu with bicgstab".into(),
///     before: vec![("lu".into(), "direct factors are applied on the host".into())],
///     behind: 0,
///     auto: true,
///     least: true, // levels of incomplete factors wait for each other
///     structured: false,
///     notes: Vec::new(),
/// };
/// let line = |gpus, product| Line {
///     gpus,
///     hosts: 1,
///     times: Iteration { product, ..Iteration::default() },
///     messages: Default::default(),
/// };
/// let machine = Machine::open("h200-nvlink".as_ref())?;
/// let text = attempt(&about, &machine, &made, &[line(1, 90e-6), line(2, 50e-6)]);
/// assert!(text.contains("1. lu: not predicted") && text.contains("preconditioner, at least"));
/// assert!(text.contains("times faster") && text.contains("1.80"));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// Name of preconditioner and method.
    pub name: String,
    /// Earlier attempts of the solve that are not predicted, with the reason.
    pub before: Vec<(String, String)>,
    /// Number of attempts that may follow.
    pub behind: usize,
    /// True if `auto` chose the attempt.
    pub auto: bool,
    /// True if the preconditioner's time is a lower bound.
    pub least: bool,
    /// True if zero or equal entries of all blocks are skipped in products.
    pub structured: bool,
    /// Further notes for the reader.
    pub notes: Vec<String>,
}

/// Returns the attempt as text, with its times in microseconds.
pub fn attempt(about: &About, machine: &Machine, attempt: &Attempt, lines: &[Line]) -> String {
    let mut out = title(about) + &provenance(machine);
    if attempt.auto {
        out += &fold(
            "What `auto` would run, by the rules of `krylith info` and `krylith solve`, on one such GPU:",
        );
    }
    for (k, (name, why)) in attempt.before.iter().enumerate() {
        out += &fold(&format!("  {}. {name}: not predicted, {why}", k + 1));
    }
    let behind = match attempt.behind {
        _ if !attempt.auto => String::new(),
        0 => "; there is no fallback".into(),
        more => format!("; if it fails, up to {more} more attempts follow"),
    };
    let number = if attempt.auto { format!("{}. ", attempt.before.len() + 1) } else { String::new() };
    out += &fold(&format!("  {number}{}{behind}", attempt.name));
    let line = |number: &dyn Fn(&Iteration) -> f64| -> Vec<String> {
        lines.iter().map(|l| format!("{:.1}", 1e6 * number(&l.times))).collect()
    };
    let sent = |text: &dyn Fn(&Messages) -> String| lines.iter().map(|l| text(&l.messages)).collect();
    let heads: Vec<String> = lines.iter().map(|l| l.gpus.to_string()).collect();
    let first = lines.first().map_or(f64::NAN, |l| l.times.all());
    out += "\n";
    out += &columns(
        &format!("{}: predicted µs an iteration", attempt.name),
        "GPUs",
        &heads,
        &[
            ("hosts", lines.iter().map(|l| l.hosts.to_string()).collect()),
            ("products", line(&|t| t.product)),
            ("exchanges, not hidden", line(&|t| t.exchange)),
            (
                if attempt.least { "preconditioner, at least" } else { "preconditioner" },
                line(&|t| t.preconditioner),
            ),
            ("passes over vectors", line(&|t| t.vectors)),
            ("sums over GPUs", line(&|t| t.sums)),
            ("the whole iteration", line(&Iteration::all)),
            ("messages of a product", sent(&|m| format!("{:.0}", m.count))),
            ("KB of a message, mean", sent(&|m| format!("{:.1}", m.each() / 1e3))),
            ("times faster", lines.iter().map(|l| format!("{:.2}", first / l.times.all())).collect()),
        ],
    );
    for note in &attempt.notes {
        out += &fold(note);
    }
    out
}

/// Returns the attempt as JSON, in seconds.
pub fn attempt_json(about: &About, machine: &Machine, attempt: &Attempt, lines: &[Line]) -> Value {
    let rows: Vec<Value> = lines
        .iter()
        .map(|l| {
            let t = &l.times;
            json!({
                "gpus": l.gpus, "hosts": l.hosts, "seconds_per_iteration": t.all(), "product": t.product,
                "exchange": t.exchange, "preconditioner": t.preconditioner, "vectors": t.vectors, "sums": t.sums,
                "messages": l.messages.count, "sent_bytes": l.messages.bytes,
            })
        })
        .collect();
    let before: Vec<Value> =
        attempt.before.iter().map(|(name, why)| json!({ "name": name, "not_predicted": why })).collect();
    json!({
        "schema": 1, "kind": "attempt", "krylith": env!("CARGO_PKG_VERSION"), "command": about.command,
        "machine": machine, "system": about.system, "nodes": about.nodes, "partition": about.partition, "partitions": about.reasons,
        "attempt": attempt.name, "auto": attempt.auto, "before": before, "behind": attempt.behind,
        "preconditioner_at_least": attempt.least, "structured": attempt.structured, "notes": attempt.notes,
        "rows": rows,
    })
}

fn values(t: &Times) -> Value {
    json!({
        "seconds_per_iteration": t.all(),
        "T_Kx": t.product, "T_c": t.communication, "T_Gn": t.orthogonalization, "other": t.other,
        "product_bytes": t.product_bytes, "orthogonalization_bytes": t.orthogonalization_bytes,
        "sent_bytes": t.sent_bytes,
    })
}

/// Returns a prediction as JSON, to be kept until it is measured.
pub fn prediction(about: &About, machine: &Machine, rows: &[Row]) -> Value {
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            let mut value = values(&row.times);
            value["gpus"] = json!(row.gpus);
            value["hosts"] = json!(row.hosts);
            value["blocks"] = json!(blocks(row.dense));
            value["messages"] = json!(row.messages.count);
            value
        })
        .collect();
    json!({
        "schema": 1, "kind": "prediction", "krylith": env!("CARGO_PKG_VERSION"), "command": about.command,
        "machine": machine, "system": about.system, "nodes": about.nodes, "partition": about.partition, "partitions": about.reasons,
        "restart": about.restart, "rows": rows,
    })
}

/// A prediction and its measurement.
///
/// # Examples
/// ```
/// use krylith_model::report::{Compared, comparison};
/// let one = Compared { gpus: 4, blocks: "dense".into(), predicted: 66e-6, measured: 60e-6 };
/// assert!((one.error() - 0.1).abs() < 1e-12);
/// assert!(comparison(&[one.clone()], 0.15).contains("+10.0 %"));
/// assert!(comparison(&[one], 0.05).contains("BEYOND"));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// Number of GPUs.
    pub gpus: usize,
    /// `dense` or `structured`.
    pub blocks: String,
    /// Predicted seconds per iteration.
    pub predicted: f64,
    /// Measured seconds per iteration.
    pub measured: f64,
}

impl Compared {
    /// Returns predicted over measured, minus 1.
    pub fn error(&self) -> f64 {
        self.predicted / self.measured - 1.0
    }
}

/// Finds, for each row of a prediction, the measurement of `krylith bench okp` with as many nodes and GPUs.
///
/// # Errors
/// Returns an error if a file is of another kind, or if the files have nothing in common.
pub fn compare(prediction: &Value, bench: &Value) -> Result<Vec<Compared>> {
    if prediction["kind"] != "prediction" {
        return Err(Error::invalid(
            "the first file must be a prediction by `krylith model SYSTEM --method gmres --precond none`",
        ));
    }
    let experiments = bench["experiments"].as_array().ok_or_else(|| {
        Error::invalid(
            "the second file must be written by `krylith bench okp --device cuda:0,1,…`; it \
             has no experiments",
        )
    })?;
    let nodes = prediction["nodes"].as_u64().unwrap_or(0);
    let restart = (prediction["restart"].as_u64(), bench["restart"].as_u64());
    if restart.0 != restart.1 {
        return Err(Error::invalid(format!("the GMRES restarts of the two files differ: {restart:?}")));
    }
    let mut found = Vec::new();
    for row in prediction["rows"].as_array().into_iter().flatten() {
        let (Some(gpus), Some(blocks), Some(predicted)) =
            (row["gpus"].as_u64(), row["blocks"].as_str(), row["seconds_per_iteration"].as_f64())
        else {
            continue;
        };
        let runs = experiments.iter().flat_map(|e| e["runs"].as_array().into_iter().flatten());
        let size = |run: &Value| -> Option<u64> {
            run["nodes"].as_array()?.iter().map(Value::as_u64).try_fold(1, |all, n| Some(all * n?))
        };
        let fitting = runs.filter(|run| run["gpus"].as_u64() == Some(gpus) && size(run) == Some(nodes));
        let name = format!("Krylith, {blocks} blocks");
        let mut rows = fitting.flat_map(|run| run["rows"].as_array().into_iter().flatten());
        let measured =
            rows.find(|r| r["name"] == name.as_str()).and_then(|r| r["seconds_per_iteration"].as_f64());
        if let Some(measured) = measured.filter(|m| *m > 0.0) {
            found.push(Compared { gpus: gpus as usize, blocks: blocks.into(), predicted, measured });
        }
    }
    if found.is_empty() {
        return Err(Error::invalid(format!(
            "nothing to compare: the benchmark has no run of {nodes} nodes on as many GPUs as were predicted"
        )));
    }
    Ok(found)
}

/// Returns the table of a comparison; errors up to the share `within` count as good.
pub fn comparison(compared: &[Compared], within: f64) -> String {
    let mut table = Table::new("µs an iteration", &["blocks", "GPUs", "predicted", "measured", "error", ""]);
    for c in compared {
        table.rows.push(vec![
            c.blocks.clone(),
            c.gpus.to_string(),
            micro(c.predicted),
            micro(c.measured),
            format!("{:+.1} %", 100.0 * c.error()),
            if c.error().abs() <= within { "within" } else { "BEYOND" }.into(),
        ]);
    }
    format!("{}a prediction is good if its error is within {:.0} %\n", table.text(), 100.0 * within)
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::round;
    use super::super::scaling;
    use super::*;
    use krylith_plot::svg;

    fn about() -> About {
        About {
            system: "stokes:2x3x4".into(),
            nodes: 24,
            partition: "rows".into(),
            reasons: vec!["  2 GPUs: partition by rows".into()],
            restart: 30,
            command: "c".into(),
        }
    }

    #[test]
    fn a_prediction_is_compared_with_the_run_of_its_size() {
        let times = |product| Times { product, ..Times::default() };
        let messages = Messages { count: 2.0, bytes: 4e3 };
        let row = |gpus, dense, product| Row { gpus, hosts: 1, dense, times: times(product), messages };
        let rows = [row(1, true, 1.1e-4), row(2, true, 0.5e-4), row(2, false, 0.4e-4), row(4, true, 1.0)];
        let prediction = prediction(&about(), &round(), &rows);
        let run = |gpus, nodes: [usize; 3], dense: f64, structured: f64| {
            json!({ "gpus": gpus, "nodes": nodes, "rows": [
                { "name": "CU-Solver", "seconds_per_iteration": 9.0 },
                { "name": "Krylith, dense blocks", "seconds_per_iteration": dense },
                { "name": "Krylith, structured blocks", "seconds_per_iteration": structured },
            ]})
        };
        let bench = json!({ "restart": 30, "experiments": [
            { "runs": [run(1, [9, 9, 9], 7.0, 7.0)] },
            { "runs": [run(1, [2, 3, 4], 1e-4, 1e-4), run(2, [4, 3, 2], 0.5e-4, 0.5e-4)] },
        ]});
        let found = compare(&prediction, &bench).unwrap();
        let errors: Vec<f64> = found.iter().map(|c| (1e3 * c.error()).round()).collect();
        assert_eq!(errors, [100.0, 0.0, -200.0]);
        let text = comparison(&found, 0.15);
        assert!(text.contains("BEYOND") && text.contains("+10.0 %") && text.contains("-20.0 %"), "{text}");
        assert!(compare(&bench, &bench).is_err() && compare(&prediction, &prediction).is_err());
        let other = json!({ "restart": 20, "experiments": [] });
        assert!(compare(&prediction, &other).unwrap_err().to_string().contains("restart"));
        let none = json!({ "restart": 30, "experiments": [] });
        assert!(compare(&prediction, &none).unwrap_err().to_string().contains("24 nodes"));
    }

    #[test]
    fn tables_and_pictures_hold_every_machine() {
        let machine = round();
        let studies = [Study {
            points: scaling::weak(&machine, 1e5, 64, scaling::Cut::Auto).unwrap(),
            machine: machine.clone(),
        }];
        let text = tables("weak", &studies, true);
        assert!(text.contains("100.0 %") && text.contains("measured, but for everything"), "{text}");
        assert!(crate::words::widest(&text) <= 60, "{text}");
        for (_, svg) in pictures("weak <&>", &studies, true) {
            svg::assert_well_formed(&svg);
        }
        let json = study("weak", &studies, true, "c");
        assert_eq!(json["machines"][0]["points"][6]["gpus"], 64);
        assert_eq!(json["machines"][0]["points"][0]["efficiency"]["dense"], 1.0);
        let messages = Messages { count: 2.0, bytes: 4e3 };
        let row = Row { gpus: 2, hosts: 1, dense: true, times: studies[0].points[0].dense, messages };
        let text = table(&about(), &machine, &[row]);
        assert!(text.contains("stokes:2x3x4") && text.contains("KB of a message, mean"), "{text}");
    }
}
