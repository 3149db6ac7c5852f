//! Tables, pictures and JSON of scaling studies.

use super::{blocks, micro, provenance, values};
use crate::scaling::{DENSE, Point};
use crate::words::fold;
use crate::{Load, Machine};
use krylith_plot::html::Table;
use krylith_plot::svg;
use serde_json::{Value, json};

/// A scaling study on one machine.
///
/// # Examples
/// ```
/// use krylith_model::{Machine, report, scaling};
/// let machine = Machine::open("h200-nvlink".as_ref())?;
/// // A billion unknowns on 8, 16, 32 and 64 GPUs.
/// let points = scaling::strong(&machine, 1e9, 64, scaling::Cut::Boxes)?;
/// assert_eq!(points.iter().map(|p| p.gpus).collect::<Vec<_>>(), [8, 16, 32, 64]);
/// let json = report::study("strong", &[report::Study { machine, points }], false, "");
/// let efficiency = |k: usize| json["machines"][0]["points"][k]["efficiency"]["dense"].as_f64();
/// assert_eq!(efficiency(0), Some(1.0)); // of the first number of GPUs
/// assert!(efficiency(3) < efficiency(2) && efficiency(3) > Some(0.5));
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Study {
    /// The machine of the study.
    pub machine: Machine,
    /// Predictions for each number of GPUs.
    pub points: Vec<Point>,
}

impl Study {
    /// Returns the efficiency: T of the first point over T and, if the system is fixed, over the growth in
    /// GPUs.
    fn efficiency(&self, p: &Point, weak: bool, dense: bool) -> f64 {
        let time = |p: &Point| if dense { p.dense.all() } else { p.structured.all() };
        let Some(first) = self.points.first() else { return f64::NAN };
        let work = if weak { 1.0 } else { p.gpus as f64 / first.gpus as f64 };
        time(first) / time(p) / work
    }
}

/// Returns the tables of a study, by machine: times and efficiency, and the parts of an iteration.
pub fn tables(title: &str, studies: &[Study], weak: bool) -> String {
    let mut out = String::new();
    for study in studies {
        let percent = |e: f64| format!("{:.1} %", 100.0 * e);
        let mut whole = Table::new(
            fold(&format!("{title}: predicted µs an iteration, with dense blocks and with structured ones"))
                .trim_end(),
            &["GPUs", "hosts", "dense\nblocks", "of the\nideal", "structured\nblocks", "of the\nideal"],
        );
        let mut parts = Table::new(
            "The parts with dense blocks, µs",
            &["GPUs", "product\n(T_Kx)", "exchange\n(T_c)", "orthogonali-\nsation (T_Gn)", "end of\na cycle"],
        );
        let mut cuts = Table::new(
            fold("Slabs beside boxes, dense blocks: ghosts over own nodes, messages of a GPU, µs").trim_end(),
            &["GPUs", "slab\nhalo", "mes-\nsages", "µs", "box\nhalo", "mes-\nsages", "µs", "taken"],
        );
        // Three digits, so that the table stays narrow.
        let short = |v: f64| if v < 99.95 { format!("{v:.1}") } else { format!("{v:.0}") };
        for p in &study.points {
            let (t, s) = (&p.dense, &p.structured);
            let mut line = vec![p.gpus.to_string()];
            for (load, seconds) in [p.slabs, p.boxes].iter().zip(p.seconds) {
                let neighbours = format!("{:.0}", load.neighbours());
                line.extend([short(100.0 * load.ghosts()) + "%", neighbours, short(1e6 * seconds)]);
            }
            line.push(if p.in_boxes { "boxes" } else { "slabs" }.into());
            cuts.rows.push(line);
            whole.rows.push(vec![
                p.gpus.to_string(),
                p.hosts.to_string(),
                micro(t.all()),
                percent(study.efficiency(p, weak, true)),
                micro(s.all()),
                percent(study.efficiency(p, weak, false)),
            ]);
            let mut line = vec![p.gpus.to_string()];
            line.extend([t.product, t.communication, t.orthogonalization, t.other].map(micro));
            parts.rows.push(line);
        }
        out +=
            &format!("{}{}\n{}\n{}\n", provenance(&study.machine), whole.text(), parts.text(), cuts.text());
    }
    out
}

fn cut(load: &Load, seconds: f64) -> Value {
    json!({
        "ghosts_per_node": load.ghosts(), "messages": load.neighbours(),
        "sent_bytes": (load.near + load.far) * DENSE.node(), "seconds_per_iteration": seconds,
    })
}

/// Returns a study as JSON, in seconds and bytes.
pub fn study(title: &str, studies: &[Study], weak: bool, command: &str) -> Value {
    let machines: Vec<Value> = studies
        .iter()
        .map(|study| {
            let points: Vec<Value> = study
                .points
                .iter()
                .map(|p| {
                    json!({
                        "gpus": p.gpus, "hosts": p.hosts, "nodes_per_gpu": p.nodes,
                        "partition": if p.in_boxes { "boxes" } else { "slabs" },
                        "slabs": cut(&p.slabs, p.seconds[0]), "boxes": cut(&p.boxes, p.seconds[1]),
                        "dense": values(&p.dense), "structured": values(&p.structured),
                        "efficiency": { "dense": study.efficiency(p, weak, true),
                                        "structured": study.efficiency(p, weak, false) },
                    })
                })
                .collect();
            json!({ "machine": study.machine, "points": points })
        })
        .collect();
    json!({ "schema": 1, "kind": if weak { "weak" } else { "strong" }, "title": title, "command": command, "machines": machines })
}

/// Returns pictures of a study, by file name: efficiency, and time of an iteration.
pub fn pictures(title: &str, studies: &[Study], weak: bool) -> Vec<(String, String)> {
    let mut gpus: Vec<usize> = studies.iter().flat_map(|s| &s.points).map(|p| p.gpus).collect();
    gpus.sort_unstable();
    gpus.dedup();
    let lines = |value: &dyn Fn(&Study, &Point, bool) -> f64| -> Vec<(String, Vec<f64>)> {
        let both = studies.iter().flat_map(|s| [(s, true), (s, false)]);
        both.map(|(s, dense)| {
            let at =
                |g: usize| s.points.iter().find(|p| p.gpus == g).map_or(f64::NAN, |p| value(s, p, dense));
            (format!("{}, {}", s.machine.name, blocks(dense)), gpus.iter().map(|&g| at(g)).collect())
        })
        .collect()
    };
    let efficiency = lines(&|s, p, dense| s.efficiency(p, weak, dense));
    let time = lines(&|_, p, dense| 1e6 * if dense { p.dense.all() } else { p.structured.all() });
    let kind = if weak { "weak" } else { "strong" };
    vec![
        (
            format!("{kind}-efficiency.svg"),
            svg::over_gpus(&format!("{title}: efficiency, predicted"), &gpus, &efficiency),
        ),
        (
            format!("{kind}-time.svg"),
            svg::over_gpus(&format!("{title}: µs an iteration, predicted"), &gpus, &time),
        ),
    ]
}
