//! Tables, JSON and the page from the measurements; tables, figures and equations are numbered as in the
//! paper that `spmv/mod.rs` names.

use super::found::{Found, IN_MODES, Point, Row, Shape, auto};
use super::ground::{CUSPARSE, OURS, VECTOR};
use super::means::{SETS, means};
use super::multi::Mode;
use super::{Plan, cg, figures, multi};
use crate::publish::{Lines, Pages, Report, meta, number, percent, rows_of};
pub(crate) use krylith_model::spmv::kind;
use krylith_plot::html::Table;
use serde_json::{Value, json};

/// The paper's arithmetic means over its CSR-vector on one V100: NZ, 2NZ, LRA and LRA+RC on two and on four.
const PAPER: [(usize, [f64; 4]); 2] = [(2, [1.40, 1.69, 1.83, 1.85]), (4, [2.12, 2.61, 2.63, 2.65])];
/// The paper's Table 4 on 2 and 4 V100: minimum, arithmetic and geometric mean, maximum.
const TABLE4: [(usize, [f64; 4]); 2] = [(2, [0.01, 0.18, 0.11, 0.57]), (4, [0.01, 0.20, 0.12, 0.87])];

pub(super) fn make(found: &[Found], plan: &Plan) -> Report {
    let timed: Vec<&Found> = found.iter().filter(|f| f.failure.is_none()).collect();
    let mut pages = Pages { tables: vec![matches(&timed)], ..Pages::default() };
    pages.failures = timed.iter().flat_map(|f| f.failures()).collect();
    let (tables, any) = (&mut pages.tables, |what: fn(&Found) -> bool| timed.iter().any(|f| what(f)));
    if any(|f| !f.single.is_empty()) {
        tables.push(single(&timed));
    }
    if any(|f| !f.multi.is_empty()) {
        tables.push(several(&timed, "over our product on one device (Figs. 11 to 14)", Found::ours));
        if any(|f| f.single(VECTOR).is_finite()) {
            let title = "over CSR-vector on one device, as the paper counts";
            tables.push(several(&timed, title, |f| f.single(VECTOR)));
        }
        tables.extend([paper(&timed), automatic(&timed), transfer(&timed), setup(&timed)]);
    }
    if any(|f| !f.sweep.is_empty()) {
        tables.extend(sweeps(&timed));
    }
    if any(|f| f.cg.len() > 1) {
        tables.push(conjugate(&timed));
    }
    let (facts, notes) = facts(found, plan);
    figures::all(&timed, &mut pages);
    let automatic = |f: &&Found| {
        let (pick, seconds, missed) = auto(f)?;
        Some(json!({ "matrix": f.name, "pick": pick, "seconds": seconds, "longer_than_the_best": missed }))
    };
    let more = json!({
        "scale": plan.scale, "permuted": plan.options.permuted, "repetitions": plan.repetitions,
        "matrices": found, "notes": notes, "automatic": timed.iter().filter_map(automatic).collect::<Value>(),
        "sweeps": timed.iter().filter_map(|f| sweep_data(f)).collect::<Value>(),
    });
    let device = timed.first().map_or(Value::Null, |f| f.device.clone());
    let heading = "sparse products on one device and several";
    pages.report(heading, facts, meta("spmv", &plan.options.command, device, more))
}

fn facts(found: &[Found], plan: &Plan) -> (Vec<String>, Vec<String>) {
    let first = found.iter().find(|f| f.failure.is_none());
    let name = first.and_then(|f| f.device["name"].as_str()).unwrap_or("no device").to_string();
    let (of, bandwidth) = first.map(|f| f.bandwidth.clone()).unwrap_or_default();
    let ranks = first.map_or(0, |f| f.ranks);
    let mut facts = vec![
        format!("{name}; {ranks} of them for the parts on several; {of} {:.0} GB/s", bandwidth / 1e9),
        format!(
            "f64, 32-bit columns; medians of {} samples. A sample is 2 ms of products, or one product with \
             cold caches if the matrix would fit in a cache; of several devices the slowest counts. Bytes of \
             a product: 12 a nonzero and 24 a row; shares relate to the measured bandwidth. Results are \
             within 1e-13 Σ|a x| of compensated sums",
            plan.repetitions
        ),
        format!("command: {}", plan.options.command),
    ];
    let mut notes: Vec<String> = found
        .iter()
        .filter_map(|f| f.failure.as_ref().map(|why| format!("{} was not measured: {why}", f.name)))
        .collect();
    for f in found {
        notes.extend(f.notes.iter().cloned());
        let rows = f.single.iter().chain(&f.multi).chain(&f.cg).filter(|r| !r.wrong);
        notes.extend(
            rows.filter_map(|r| r.failure.as_ref().map(|why| format!("{}, {}: {why}", f.name, r.name))),
        );
    }
    facts.extend(notes.iter().cloned());
    (facts, notes)
}

/// Adds rows with means of columns, for each set that has any matrix.
fn mean_rows(out: &mut Table, found: &[&Found], before: usize, columns: &[(String, Vec<f64>)]) {
    for (set, inside) in SETS {
        if !found.iter().any(|f| f.id > 0 && inside(f.id)) {
            continue;
        }
        let chosen = |column: &[f64]| {
            let pairs = found.iter().zip(column.to_vec());
            means(pairs.filter(|(f, _)| inside(f.id)).map(|(_, v)| v).collect::<Vec<_>>().into_iter())
        };
        for (name, geometric) in [("arithmetic", false), ("geometric", true)] {
            let mut line = vec![format!("{name} mean, {set}")];
            line.resize(before, String::new());
            line.extend(columns.iter().map(|column| {
                let (arithmetic, geo) = chosen(&column.1);
                number(if geometric { geo } else { arithmetic }, 2)
            }));
            line.resize(out.header.len(), String::new());
            out.rows.push(line);
        }
    }
}

/// Builds the comparison of look-alikes with their originals.
fn matches(found: &[&Found]) -> Table {
    let ratio = |f: &Found, of: fn(&Shape) -> u64| {
        number(f.table.map_or(f64::NAN, |t| of(&f.shape) as f64 / of(&t) as f64), 5)
    };
    let theirs = |f: &Found, of: fn(&Shape) -> u64| f.table.map_or("–".into(), |t| of(&t).to_string());
    rows_of("Matrices, and Table 2 beside them", found.iter().copied())
        .column("matrix", |f| f.name.clone())
        .column("source", |f| f.source.clone())
        .column("rows", |f| f.shape.rows.to_string())
        .column("× Table 2", |f| ratio(f, |s| s.rows))
        .column("nonzeros", |f| f.shape.nonzeros.to_string())
        .column("× Table 2", |f| ratio(f, |s| s.nonzeros))
        .column("mean", |f| number(f.shape.mean(), 2))
        .column("Table 2", |f| number(f.table.map_or(f64::NAN, |t| t.mean()), 2))
        .column("min", |f| f.shape.min.to_string())
        .column("Table 2", |f| theirs(f, |s| s.min))
        .column("max", |f| f.shape.max.to_string())
        .column("Table 2", |f| theirs(f, |s| s.max))
        .column("made, s", |f| number(f.made, 1))
        .table()
}

fn names<'a>(found: &[&'a Found], rows: fn(&'a Found) -> &'a [Row]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for row in found.iter().flat_map(|f| rows(f)) {
        let name = kind(&row.name);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn single(found: &[&Found]) -> Table {
    fn ours(f: &Found) -> Option<&Row> {
        f.single.iter().find(|r| r.name == OURS)
    }
    let time = |f: &Found| match ours(f) {
        Some(r) if r.failure.is_none() => crate::Samples(r.samples.clone()).text(1e6),
        Some(r) if r.wrong => "WRONG".into(),
        _ => "–".into(),
    };
    let speed = |f: &Found| f.shape.bytes() as f64 / f.ours();
    let share = move |f: &Found| speed(f) / f.bandwidth.1;
    let best = |f: &Found| f.fastest(CUSPARSE).map_or(f64::NAN, Row::seconds);
    let best_name = |f: &Found| {
        f.fastest(CUSPARSE).map_or("–".into(), |r| r.name.trim_start_matches(CUSPARSE).trim().into())
    };
    let mut before = rows_of("", found.iter().copied())
        .column("matrix", |f| f.name.clone())
        .column("µs (min–max)", time)
        .column("GB/s", move |f| number(speed(f) / 1e9, 0))
        .column("share of bandwidth", move |f| percent(share(f), 1))
        .column("set-up, products", |f| number(ours(f).map_or(f64::NAN, |r| r.setup / f.ours()), 2))
        .column("error / Σ|a x|", |f| ours(f).map_or("–".into(), |r| format!("{:.0e}", r.error)));
    let mut columns: Vec<(String, Vec<f64>)> = Vec::new();
    if found.iter().any(|f| f.fastest(CUSPARSE).is_some()) {
        before = before.column("cuSPARSE's best", best_name);
        before = before.column("its µs", move |f| number(1e6 * best(f), 1));
        columns.push(("× cuSPARSE's best".into(), found.iter().map(|f| best(f) / f.ours()).collect()));
    }
    for name in names(found, |f| &f.single).into_iter().filter(|n| n != OURS && !n.starts_with(CUSPARSE)) {
        columns.push((format!("× {name}"), found.iter().map(|f| f.single(&name) / f.ours()).collect()));
    }
    let below = columns.first().map_or(0, |c| c.1.iter().filter(|v| **v < 1.0).count());
    let title = format!(
        "One device: ours, and how many times faster than others it is; share of bandwidth {} on average; {below} slower than the \
         first of the others",
        percent(means(found.iter().map(|f| share(f))).0, 1)
    );
    ratios(title, before, found, &columns)
}

/// Adds ratios to the first cells of each matrix, and their means below.
fn ratios(title: String, before: Lines<Found>, found: &[&Found], columns: &[(String, Vec<f64>)]) -> Table {
    let mut out = before.table();
    out.title = title;
    let first = out.header.len();
    for (name, values) in columns {
        out.header.push(name.clone());
        out.rows.iter_mut().zip(values).for_each(|(row, value)| row.push(number(*value, 2)));
    }
    mean_rows(&mut out, found, first, columns);
    out
}

fn several(found: &[&Found], title: &str, base: fn(&Found) -> f64) -> Table {
    let before = rows_of("", found.iter().copied()).column("matrix", |f| f.name.clone());
    ratios(format!("{} devices: speed-up {title}", ranks(found)), before, found, &speedups(found, base))
}

/// Named columns with a number per matrix.
pub(super) type Columns = Vec<(String, Vec<f64>)>;

/// Returns every variant on several devices, and the automatic choice among them.
pub(super) fn speedups(found: &[&Found], base: fn(&Found) -> f64) -> Columns {
    let column = |way: String| {
        let speeds = found.iter().map(|f| base(f) / seconds(&f.multi, &way)).collect();
        (way, speeds)
    };
    let mut columns: Columns = names(found, |f| &f.multi).into_iter().map(column).collect();
    let picked = |f: &&Found| base(f) / auto(f).map_or(f64::NAN, |a| a.1);
    columns.push(("auto".into(), found.iter().map(picked).collect()));
    columns
}

/// Returns the number of devices in the measurements on several.
fn ranks(found: &[&Found]) -> usize {
    found.iter().map(|f| f.ranks).max().unwrap_or(0)
}

/// Returns the median seconds of a variant, whatever its parameters.
pub(super) fn seconds(rows: &[Row], way: &str) -> f64 {
    rows.iter().find(|r| kind(&r.name) == way).map_or(f64::NAN, Row::seconds)
}

/// Builds the comparison of the paper's means with the measured ones.
fn paper(found: &[&Found]) -> Table {
    let header = ["", "nz", "2nz", "lra", "lra+rc"];
    let mut out = Table::new("Arithmetic means beside the paper's (Fig. 14)", &header);
    for (gpus, means) in PAPER {
        let mut line = vec![format!("the paper, {gpus} V100, over CSR-vector")];
        line.extend(means.iter().map(|m| number(*m, 2)));
        out.rows.push(line);
    }
    let ranks = ranks(found);
    type Base = (&'static str, fn(&Found) -> f64);
    let vector: Base = ("CSR-vector on one", |f| f.single(VECTOR));
    let lines = [("here", "", ("our product on one", Found::ours as _)), ("here", "", vector)];
    let theirs = found.iter().any(|f| f.multi.iter().any(|r| r.name.starts_with(IN_MODES)));
    let theirs = theirs.then_some(("CSR-vector here", IN_MODES, vector));
    for (of, prefix, (name, base)) in lines.into_iter().chain(theirs) {
        let mut line = vec![format!("{of}, {ranks} devices, over {name}")];
        for way in &header[1..] {
            let way = format!("{prefix}{way}");
            line.push(number(means(found.iter().map(|f| base(f) / seconds(&f.multi, &way))).0, 2));
        }
        out.rows.push(line);
    }
    out
}

fn automatic(found: &[&Found]) -> Table {
    let picks: Vec<_> = found.iter().filter_map(|f| Some((f, auto(f)?))).collect();
    let near = picks.iter().filter(|(_, (_, _, missed))| *missed <= 0.05).count();
    let of = picks.len();
    let title = format!("The pick of a short trial of every way: within 5 % of the best for {near} of {of}");
    rows_of(title, &picks)
        .column("matrix", |(f, _)| f.name.clone())
        .column("picked", |(_, (pick, ..))| pick.clone())
        .column("µs", |(_, (_, seconds, _))| number(1e6 * seconds, 1))
        .column("× ours on one", |(f, (_, seconds, _))| number(f.ours() / seconds, 2))
        .column("longer than the best", |(.., (.., missed))| percent(*missed, 1))
        .table()
}

/// Returns the share of transfers in the product by nonzeros: its time without the kernels.
pub(super) fn transfer_share(f: &Found) -> f64 {
    let Some(row) = f.multi.iter().find(|r| r.name == "nz" && !r.samples.is_empty()) else { return f64::NAN };
    row.kernel.map_or(f64::NAN, |kernel| (1.0 - kernel / row.seconds()).max(0.0))
}

fn transfer(found: &[&Found]) -> Table {
    let rows: Vec<_> = found.iter().filter_map(|f| Some((f, f.multi("nz")?))).collect();
    let kernel = |row: &Row| row.kernel.unwrap_or(f64::NAN);
    rows_of("Kernels and transfers of nz (Fig. 6)", &rows)
        .column("matrix", |(f, _)| f.name.clone())
        .column("product, µs", |(_, row)| number(1e6 * row.seconds(), 1))
        .column("longest kernel, µs", |(_, row)| number(1e6 * kernel(row), 1))
        .column("transfer", |(f, _)| percent(transfer_share(f), 0))
        .column("kernels × P-th of one device", |(f, row)| {
            number(kernel(row) * f.ranks as f64 / f.ours(), 2)
        })
        .table()
}

/// Table 4: cost of the cuts, in products on one device.
fn setup(found: &[&Found]) -> Table {
    let ways = names(found, |f| &f.multi);
    let row = |f: &'_ Found, way: &str| -> Option<(f64, f64)> {
        let row = f.multi.iter().find(|r| kind(&r.name) == way && !r.samples.is_empty())?;
        Some((row.setup, row.seconds()))
    };
    let costs = |way: &str| -> Vec<f64> {
        let ratio = |f: &&Found| Some(row(f, way)?.0 / f.ours());
        found.iter().filter_map(ratio).filter(|v| v.is_finite()).collect()
    };
    // Set-up over the gain of each product; without a gain it never pays off.
    let gains = |way: &str| -> Vec<f64> {
        let gain = |f: &&Found| row(f, way).map(|(setup, seconds)| (setup, f.ours() - seconds));
        found
            .iter()
            .filter_map(gain)
            .filter(|(_, gain)| *gain > 0.0)
            .map(|(setup, gain)| setup / gain)
            .collect()
    };
    let mean = |all: Vec<f64>| means(all.into_iter());
    let mut out = rows_of("Set-up in products on one device (Table 4)", &ways)
        .column("", |way| way.clone())
        .column("minimum", |way| number(costs(way).into_iter().fold(f64::INFINITY, f64::min), 2))
        .column("arithmetic mean", |way| number(mean(costs(way)).0, 2))
        .column("geometric mean", |way| number(mean(costs(way)).1, 2))
        .column("maximum", |way| number(costs(way).into_iter().fold(f64::NEG_INFINITY, f64::max), 2))
        .column("products until it pays, geometric mean", |way| number(mean(gains(way)).1, 1))
        .column("pays on", |way| format!("{} of {}", gains(way).len(), costs(way).len()))
        .table();
    for (gpus, values) in TABLE4 {
        let mut line = vec![format!("the paper, {gpus} V100")];
        line.extend(values.map(|v| number(v, 2)));
        line.resize(out.header.len(), String::new());
        out.rows.push(line);
    }
    out
}

/// Returns the average speed-up over one device by d_l and d_c, for a set of matrices.
pub(super) fn swept(found: &[&Found], inside: fn(usize) -> bool, long: f64, redundant: f64) -> f64 {
    let at = |p: &&Point| (p.long - long).abs() < 1e-9 && (p.redundant - redundant).abs() < 1e-9;
    let speed = |f: &&Found| f.sweep.iter().find(at).map_or(f64::NAN, |p| f.ours() / p.seconds);
    means(found.iter().filter(|f| inside(f.id)).map(speed)).0
}

/// Returns d_l and d_c of the sweep.
pub(super) fn axes(found: &[&Found]) -> (Vec<f64>, Vec<f64>) {
    let points = || found.iter().flat_map(|f| &f.sweep);
    let sorted = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all.dedup_by(|a, b| (*a - *b).abs() < 1e-9);
        all
    };
    (sorted(points().map(|p| p.long).collect()), sorted(points().map(|p| p.redundant).collect()))
}

/// Builds Figs. 7 to 9 as a table for each of the two sets, the sweep's best parameters beside Table 3, and
/// Eq. 1.
fn sweeps(found: &[&Found]) -> Vec<Table> {
    let (longs, redundants) = axes(found);
    let mut all = Vec::new();
    let mut best = Table::new(
        "Parameters by the sweep (Table 3), and what the rule loses (PLUB, Eq. 1, averaged)",
        &[
            "matrices",
            "lra: d_l",
            "speed-up",
            "lra+rc: d_l / d_c",
            "speed-up",
            "PLUB of lra",
            "PLUB of lra+rc",
        ],
    );
    for (set, inside) in [SETS[1], SETS[2], SETS[0]] {
        let mut header = vec!["d_l".to_string()];
        header.extend(redundants.iter().map(|c| format!("d_c {c:.2}")));
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let mut table = Table::new(format!("Average speed-up by d_l and d_c, {set} (Figs. 7 to 9)"), &header);
        let mut top = [(f64::NAN, 0.0, 0.0); 2];
        for &long in &longs {
            let mut line = vec![format!("{long:.2}")];
            for &redundant in &redundants {
                let speed = swept(found, inside, long, redundant);
                let which = usize::from(redundant > 0.0);
                if !(top[which].0 >= speed) && speed.is_finite() {
                    top[which] = (speed, long, redundant);
                }
                line.push(number(speed, 2));
            }
            table.rows.push(line);
        }
        let lost = |redundant: bool| {
            means(found.iter().filter(|f| inside(f.id)).map(|f| 1.0 + plub(f, redundant))).0 - 1.0
        };
        best.rows.push(vec![
            set.into(),
            format!("{:.2}", top[0].1),
            number(top[0].0, 2),
            format!("{:.2} / {:.2}", top[1].1, top[1].2),
            number(top[1].0, 2),
            percent(lost(false), 1),
            percent(lost(true), 1),
        ]);
        all.push(table);
    }
    all.extend([best, sweep_by_matrix(found)]);
    all
}

/// The sweep of one matrix for lra, or for lra+rc: the point of the rule of Table 3, and the fastest point.
struct Swept {
    rule: Point,
    best: Point,
}

impl Swept {
    /// Returns the result of a sweep, unless a point is missing. Without redundant rows lra+rc is lra, so its
    /// best is over all points.
    fn of(f: &Found, redundant: bool) -> Option<Self> {
        let [lra, lra_rc] = Mode::by_rule(f.shape.mean(), f.ranks);
        let (long, share) = match if redundant { lra_rc } else { lra } {
            Mode::Lra { long } => (long, 0.0),
            Mode::LraRc { long, redundant } => (long, redundant),
            _ => return None,
        };
        let points = || f.sweep.iter().filter(|p| redundant || p.redundant == 0.0);
        let is_rule = |p: &&Point| (p.long - long).abs() < 1e-9 && (p.redundant - share).abs() < 1e-9;
        let best = points().filter(|p| p.seconds > 0.0).min_by(|a, b| a.seconds.total_cmp(&b.seconds))?;
        Some(Self { rule: points().find(is_rule)?.clone(), best: best.clone() })
    }

    /// Returns the relative loss of the rule (PLUB).
    fn loss(&self) -> f64 {
        self.rule.seconds / self.best.seconds - 1.0
    }
}

/// Returns the relative loss of the rule's parameters against the sweep's best, for lra or lra+rc.
fn plub(f: &Found, redundant: bool) -> f64 {
    Swept::of(f, redundant).map_or(f64::NAN, |swept| swept.loss())
}

/// Builds the table of the sweep of each matrix: the rule's parameters and the best ones, with their times.
fn sweep_by_matrix(found: &[&Found]) -> Table {
    fn cell(f: &Found, redundant: bool, of: fn(&Swept) -> String) -> String {
        Swept::of(f, redundant).map_or("–".into(), |swept| of(&swept))
    }
    fn at(p: &Point) -> String {
        let redundant = if p.redundant > 0.0 { format!(" / {:.2}", p.redundant) } else { String::new() };
        format!("{:.2}{redundant}", p.long)
    }
    fn time(p: &Point) -> String {
        number(1e6 * p.seconds, 2)
    }
    let title =
        "The sweep of each matrix: the rule of Table 3, the best parameters, and the loss of the rule";
    let mut lines = rows_of(title, found.iter().copied())
        .column("matrix", |f| f.name.clone())
        .column("mean row", |f| number(f.shape.mean(), 2));
    for (way, redundant) in [("lra", false), ("lra+rc", true)] {
        lines = lines
            .column(format!("{way}: rule"), move |f| cell(f, redundant, |s| at(&s.rule)))
            .column("µs", move |f| cell(f, redundant, |s| time(&s.rule)))
            .column(format!("{way}: best"), move |f| cell(f, redundant, |s| at(&s.best)))
            .column("µs", move |f| cell(f, redundant, |s| time(&s.best)))
            .column("loss", move |f| cell(f, redundant, |s| percent(s.loss(), 1)));
    }
    lines.table()
}

/// Returns the rule's point, the best point and the loss of a matrix, for `lra` and for `lra+rc`.
fn sweep_data(f: &Found) -> Option<Value> {
    let way = |redundant: bool| {
        let swept = Swept::of(f, redundant)?;
        Some(json!({ "rule": swept.rule, "best": swept.best, "loss": swept.loss() }))
    };
    Some(json!({ "matrix": f.name, "ranks": f.ranks, "lra": way(false)?, "lra+rc": way(true)? }))
}

/// Returns CG on several devices over CG on one.
pub(super) fn conjugate_speedups(found: &[&Found]) -> Columns {
    let column = |way: String| {
        let speeds = found.iter().map(|f| seconds(&f.cg, cg::ONE) / seconds(&f.cg, &way)).collect();
        (way, speeds)
    };
    names(found, |f| &f.cg).into_iter().filter(|n| n != cg::ONE).map(column).collect()
}

fn conjugate(found: &[&Found]) -> Table {
    let (ranks, iterations) = (ranks(found), found.first().map_or(0, |f| f.iterations));
    let title =
        format!("{iterations} iterations of CG on {ranks} devices: speed-up over one (Figs. 15 to 17)");
    let before = rows_of("", found.iter().copied())
        .column("matrix", |f| f.name.clone())
        .column("one device, ms", |f| number(1e3 * seconds(&f.cg, cg::ONE), 1));
    ratios(title, before, found, &conjugate_speedups(found))
}

/// Returns the variants on several devices that appear in figures.
pub(super) fn ways(found: &[&Found]) -> Vec<String> {
    let mut all = names(found, |f| &f.multi);
    for halo in [multi::HALO, multi::GRAPH] {
        all.retain(|n| n != halo || found.iter().any(|f| f.multi(halo).is_some()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_compares_the_rule_with_the_best() {
        let point = |long, redundant, seconds| Point { long, redundant, seconds };
        let shape = Shape { rows: 10, nonzeros: 50, min: 5, max: 5 };
        // For 5 entries per row and two devices the rule is 0.50, and 0.40 with 0.15.
        let sweep =
            vec![point(0.3, 0.0, 2.0), point(0.5, 0.0, 2.5), point(0.4, 0.15, 1.5), point(0.4, 0.2, 1.0)];
        let found = Found { shape, sweep, ranks: 2, ..Found::default() };
        let (lra, rc) = (Swept::of(&found, false).unwrap(), Swept::of(&found, true).unwrap());
        assert_eq!((lra.rule.long, lra.best.long, lra.loss()), (0.5, 0.3, 0.25));
        assert_eq!((rc.rule.redundant, rc.best.redundant, rc.loss()), (0.15, 0.2, 0.5));
        let table = sweep_by_matrix(&[&found]);
        assert_eq!(table.rows[0][2..7], ["0.50", "2500000.00", "0.30", "2000000.00", "25.0 %"]);
        assert!(Swept::of(&Found { shape, ranks: 2, ..Found::default() }, true).is_none());
    }
}
