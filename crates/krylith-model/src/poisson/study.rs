//! Tables and JSON of a prediction, and its errors against published measurements.

use super::{Iteration, Method, Part, Published, STEPS};
use crate::Machine;
use crate::words::fold;
use krylith_core::Result;
use krylith_plot::html::Table;
use serde_json::{Value, json};

/// A published number and the model's value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Beside {
    /// The published number.
    pub published: Published,
    /// The model's value, in the same unit.
    pub model: f64,
}

impl Beside {
    /// Returns model over published, minus 1.
    pub(super) fn error(&self) -> f64 {
        self.model / self.published.value - 1.0
    }
}

/// Returns the published numbers for this grid on this machine, with the model's values.
///
/// # Errors
/// Returns the errors of [`Machine::poisson`].
pub(super) fn beside(machine: &Machine, grid: [usize; 3]) -> Result<Vec<Beside>> {
    let published = machine.poisson.iter().flat_map(|p| &p.published).filter(|p| p.grid == grid);
    published
        .map(|p| {
            let at = |gpus| machine.poisson(grid, p.method, STEPS, gpus);
            let here = at(p.gpus)?.part(p.part, p.overlap);
            let model = match (p.part, p.over) {
                (Part::SpeedUp, Some(over)) => at(over)?.total(p.overlap) / here,
                (Part::AllReduceShare, _) => here,
                _ => 1e3 * here,
            };
            Ok(Beside { published: p.clone(), model })
        })
        .collect()
}

/// A prediction of both solvers, compared with published numbers for this grid on this machine.
///
/// # Examples
/// ```
/// use krylith_model::{Machine, poisson::{STEPS, Study}};
/// let machine = Machine::open("summit".as_ref())?;
/// let study = Study::new(&machine, [1280, 1280, 4608], STEPS, &[1920, 3840])?;
/// let (_, gpus, first) = &study.rows[0];
/// assert_eq!(*gpus, 1920);
/// let json = study.json(&machine, "krylith model …");
/// assert_eq!(json["rows"][0]["seconds_per_iteration"], first.total(true));
/// assert!(json["published"].as_array().is_some_and(|all| all.len() >= 20)); // with the errors of the model
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Study {
    /// Points in x, y, z.
    pub grid: [usize; 3],
    /// Number of vectors of P-CBCG's basis.
    pub s: usize,
    /// Predictions by method, then GPUs.
    pub rows: Vec<(Method, usize, Iteration)>,
    /// Published measurements with the model's values.
    beside: Vec<Beside>,
}

impl Study {
    /// Predicts both solvers on these numbers of GPUs.
    ///
    /// # Errors
    /// Returns the errors of [`Machine::poisson`].
    pub fn new(machine: &Machine, grid: [usize; 3], s: usize, gpus: &[usize]) -> Result<Self> {
        let mut rows = Vec::new();
        for method in [Method::Cg, Method::Cbcg] {
            for &p in gpus {
                rows.push((method, p, machine.poisson(grid, method, s, p)?));
            }
        }
        Ok(Self { grid, s, rows, beside: beside(machine, grid)? })
    }

    /// Returns the tables in milliseconds, with a list of the fitted numbers.
    pub fn text(&self, machine: &Machine) -> String {
        let [nx, ny, nz] = self.grid;
        let title = format!(
            "P-CG and P-CBCG (s = {}), {nx}x{ny}x{nz}, {}: predicted ms an iteration",
            self.s, machine.name
        );
        let head = ["method", "GPUs", "boxes", "without\noverlap", "with\noverlap", "times\nfaster"];
        let mut whole = Table::new(fold(&title).trim_end(), &head);
        let head = ["method,\nGPUs", "product", "precon-\nditioner", "vectors", "halo", "sums"];
        let mut parts = Table::new("The parts, ms", &head);
        let mut first = (Method::Cg, f64::NAN);
        for (k, (method, gpus, t)) in self.rows.iter().enumerate() {
            if k == 0 || first.0 != *method {
                first = (*method, t.total(true));
            }
            let [x, y, z] = t.boxes;
            let milli = |v: f64| format!("{:.3}", 1e3 * v);
            let [name, count] = [method.name().to_string(), gpus.to_string()];
            whole.rows.push(vec![
                name.clone(),
                count.clone(),
                format!("{x}x{y}x{z}"),
                milli(t.total(false)),
                milli(t.total(true)),
                format!("{:.2}", first.1 / t.total(true)),
            ]);
            let mut line = vec![format!("{name} {count}")];
            line.extend([t.product, t.preconditioner, t.vectors, t.halo, t.all_reduce].map(milli));
            parts.rows.push(line);
        }
        let mut out = format!("{}\n{}", whole.text(), parts.text());
        if self.beside.is_empty() {
            return out;
        }
        let fitted = machine.poisson.iter().flat_map(|p| &p.fitted);
        let fitted: Vec<&str> = fitted.map(String::as_str).collect();
        let mut table = Table::new(
            fold("Published measurements beside the model: ms an iteration, shares and speed-ups; * was fitted")
                .trim_end(),
            &["source", "of", "paper", "model", "error"],
        );
        for b in &self.beside {
            let p = &b.published;
            let part = p.over.map_or(p.part.name().to_string(), |over| format!("speed-up over {over}"));
            let overlap = if p.overlap { "\nwith overlap" } else { "" };
            table.rows.push(vec![
                p.source.clone(),
                format!("{} on {}\n{part}{overlap}", p.method.name(), p.gpus),
                p.value.to_string(),
                format!("{:.3}", b.model),
                format!("{:+.1} %{}", 100.0 * b.error(), if p.fitted { " *" } else { "" }),
            ]);
        }
        let predicted = || self.beside.iter().filter(|b| !b.published.fitted);
        let worst = predicted().map(|b| b.error().abs()).fold(0.0, f64::max);
        let totals = || predicted().filter(|b| b.published.part == Part::Total);
        let mean = totals().map(|b| b.error().abs()).sum::<f64>() / totals().count().max(1) as f64;
        out += &table.text();
        out += &fold(&format!(
            "fitted: {}; everything else follows from one GPU's kernels and data sheets\nwhole iterations are {:.1} % off on \
             average, the worst of all predicted numbers {:.1} %\n",
            fitted.join("; "),
            100.0 * mean,
            100.0 * worst
        ));
        out
    }

    /// Returns the study as JSON, in seconds; `command` is the command line of the program.
    pub fn json(&self, machine: &Machine, command: &str) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|(method, gpus, t)| {
                json!({
                    "method": method, "gpus": gpus, "boxes": t.boxes, "product": t.product,
                    "preconditioner": t.preconditioner, "vectors": t.vectors, "halo": t.halo,
                    "exposed": t.exposed, "all_reduce": t.all_reduce,
                    "seconds_without_overlap": t.total(false), "seconds_per_iteration": t.total(true),
                })
            })
            .collect();
        let beside: Vec<Value> = self
            .beside
            .iter()
            .map(|b| json!({ "published": b.published, "model": b.model, "error": b.error() }))
            .collect();
        json!({
            "schema": 1, "kind": "poisson", "krylith": env!("CARGO_PKG_VERSION"), "command": command,
            "machine": machine, "grid": self.grid, "s": self.s, "rows": rows, "published": beside,
        })
    }
}
