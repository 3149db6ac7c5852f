//! Tables, JSON and the page.

use super::found::{Found, Point, Row, auto};
use super::ground::{CUSPARSE, OURS, VECTOR};
use super::means::{SETS, means};
use super::{SpmvOptions, cg, figures, multi};
use crate::okp::OkpReport;
pub(crate) use krylith_model::spmv::kind;
use krylith_plot::html::{Table, page};
use serde_json::{Value, json};

/// Arithmetic means of the paper over its CSR-vector on one V100: NZ, 2NZ, LRA and LRA+RC on two and on four.
const PAPER: [(usize, [f64; 4]); 2] = [(2, [1.40, 1.69, 1.83, 1.85]), (4, [2.12, 2.61, 2.63, 2.65])];
/// The paper's Table 4 on 2 and 4 V100: minimum, arithmetic and geometric mean, maximum.
const TABLE4: [(usize, [f64; 4]); 2] = [(2, [0.01, 0.18, 0.11, 0.57]), (4, [0.01, 0.20, 0.12, 0.87])];

/// A number, or a dash.
pub(super) fn number(x: f64, digits: usize) -> String {
    if x.is_finite() { format!("{x:.digits$}") } else { "–".into() }
}

pub(super) fn make(found: &[Found], options: &SpmvOptions) -> OkpReport {
    let timed: Vec<&Found> = found.iter().filter(|f| f.failure.is_none()).collect();
    let failures: Vec<String> = timed.iter().flat_map(|f| f.failures()).collect();
    let mut tables = vec![matches(&timed)];
    if timed.iter().any(|f| !f.single.is_empty()) {
        tables.push(single(&timed));
    }
    if timed.iter().any(|f| !f.multi.is_empty()) {
        tables.push(several(&timed, "over our product on one device (Figs. 11 to 14)", Found::ours));
        if timed.iter().any(|f| f.single(VECTOR).is_finite()) {
            tables.push(several(&timed, "over CSR-vector on one device, as the paper counts", |f| {
                f.single(VECTOR)
            }));
        }
        tables.push(paper(&timed));
        tables.push(automatic(&timed));
        tables.push(transfer(&timed));
        tables.push(setup(&timed));
    }
    if timed.iter().any(|f| !f.sweep.is_empty()) {
        tables.extend(sweeps(&timed));
    }
    if timed.iter().any(|f| f.cg.len() > 1) {
        tables.push(conjugate(&timed));
    }
    let (facts, notes) = facts(found, options, &failures);
    let pictures = figures::all(&timed);
    let text: String = facts
        .iter()
        .map(|f| format!("{f}\n"))
        .chain(tables.iter().map(|t| format!("\n{}", t.text())))
        .collect();
    let html = page("Krylith: sparse products on one device and several", &facts, &pictures, &tables);
    let json = json!({
        "schema": 1, "suite": "spmv", "krylith": env!("CARGO_PKG_VERSION"), "command": options.command,
        "device": timed.first().map_or(Value::Null, |f| f.device.clone()), "scale": options.scale(),
        "permuted": options.permuted, "repetitions": options.repetitions,
        "matrices": found, "notes": notes, "failures": failures,
        "automatic": timed.iter().filter_map(|f| auto(f).map(|(pick, seconds, missed)| json!({
            "matrix": f.name, "pick": pick, "seconds": seconds, "longer_than_the_best": missed,
        }))).collect::<Vec<_>>(),
        "seconds_since_epoch": std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs()),
    });
    OkpReport { tables: text, json, html, failures, files: Vec::new() }
}

fn facts(found: &[Found], options: &SpmvOptions, failures: &[String]) -> (Vec<String>, Vec<String>) {
    let first = found.iter().find(|f| f.failure.is_none());
    let name = first.and_then(|f| f.device["name"].as_str()).unwrap_or("no device").to_string();
    let (of, bandwidth) = first.map(|f| f.bandwidth.clone()).unwrap_or_default();
    let ranks = first.map_or(0, |f| f.ranks);
    let mut facts = vec![
        format!("{name}; {ranks} of them for the parts on several; {of} {:.0} GB/s", bandwidth / 1e9),
        format!(
            "f64, 32-bit columns; medians of {} samples, each of products for 2 ms or of one with cold caches where the matrix would \
             stay in one; of several devices the slowest counts. Bytes of a product: 12 a nonzero and 24 a row; shares are of the \
             measured bandwidth. Results are within 1e-13 Σ|a x| of compensated sums",
            options.repetitions
        ),
        format!("command: {}", options.command),
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
    facts.extend(failures.iter().map(|f| format!("FAILED, not timed: {f}")));
    (facts, notes)
}

/// Rows of means of columns of numbers, over the sets that have any matrix.
fn mean_rows(out: &mut Table, found: &[&Found], before: usize, columns: &[Vec<f64>]) {
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
                let (arithmetic, geo) = chosen(column);
                number(if geometric { geo } else { arithmetic }, 2)
            }));
            line.resize(out.header.len(), String::new());
            out.rows.push(line);
        }
    }
}

/// How well a look-alike matches.
fn matches(found: &[&Found]) -> Table {
    let header = [
        "matrix",
        "source",
        "rows",
        "× Table 2",
        "nonzeros",
        "× Table 2",
        "mean",
        "Table 2",
        "min",
        "Table 2",
        "max",
        "Table 2",
        "made, s",
    ];
    let mut out = Table::new("Matrices, and Table 2 beside them", &header);
    for f in found {
        let (s, t) = (f.shape, f.table);
        let of =
            |ours: u64, theirs: Option<u64>| number(theirs.map_or(f64::NAN, |t| ours as f64 / t as f64), 5);
        let text = |v: Option<u64>| v.map_or("–".into(), |v| v.to_string());
        out.rows.push(vec![
            f.name.clone(),
            f.source.clone(),
            s.rows.to_string(),
            of(s.rows, t.map(|t| t.rows)),
            s.nonzeros.to_string(),
            of(s.nonzeros, t.map(|t| t.nonzeros)),
            number(s.mean(), 2),
            number(t.map_or(f64::NAN, |t| t.mean()), 2),
            s.min.to_string(),
            text(t.map(|t| t.min)),
            s.max.to_string(),
            text(t.map(|t| t.max)),
            number(f.made, 1),
        ]);
    }
    out
}

/// Names of the ways on one device, in the order in which they come first.
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
    let others: Vec<String> =
        names(found, |f| &f.single).into_iter().filter(|n| n != OURS && !n.starts_with(CUSPARSE)).collect();
    let vendor = found.iter().any(|f| f.fastest(CUSPARSE).is_some());
    let mut header = vec![
        "matrix".to_string(),
        "µs (min–max)".into(),
        "GB/s".into(),
        "share of bandwidth".into(),
        "set-up, products".into(),
        "error / Σ|a x|".into(),
    ];
    if vendor {
        header.extend(["cuSPARSE's best".into(), "its µs".into(), "× cuSPARSE's best".into()]);
    }
    header.extend(others.iter().map(|n| format!("× {n}")));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut out = Table::new("One device: ours, and how many times faster than others it is", &header);
    let mut columns = vec![Vec::new(); others.len() + usize::from(vendor)];
    let mut shares = Vec::new();
    for f in found {
        let ours = f.ours();
        let row = f.single.iter().find(|r| r.name == OURS);
        let text = row.map_or("–".into(), |r| match &r.failure {
            Some(_) if r.wrong => "WRONG".into(),
            Some(_) => "–".into(),
            None => crate::Samples(r.samples.clone()).text(1e6),
        });
        let speed = f.shape.bytes() as f64 / ours;
        let share = 100.0 * speed / f.bandwidth.1;
        shares.push(share);
        let mut line = vec![
            f.name.clone(),
            text,
            number(speed / 1e9, 0),
            format!("{} %", number(share, 1)),
            number(row.map_or(f64::NAN, |r| r.setup / ours), 2),
            row.map_or("–".into(), |r| format!("{:.0e}", r.error)),
        ];
        let mut at = 0;
        if vendor {
            let best = f.fastest(CUSPARSE);
            let seconds = best.map_or(f64::NAN, Row::seconds);
            line.push(best.map_or("–".into(), |r| r.name.trim_start_matches(CUSPARSE).trim().into()));
            line.push(number(1e6 * seconds, 1));
            line.push(number(seconds / ours, 2));
            columns[0].push(seconds / ours);
            at = 1;
        }
        for (i, name) in others.iter().enumerate() {
            let ratio = f.single(name) / ours;
            columns[at + i].push(ratio);
            line.push(number(ratio, 2));
        }
        out.rows.push(line);
    }
    mean_rows(&mut out, found, if vendor { 8 } else { 6 }, &columns);
    let below = columns.first().map_or(0, |c| c.iter().filter(|v| **v < 1.0).count());
    out.title += &format!(
        "; share of bandwidth {} % on average; {below} slower than the first of the others",
        number(means(shares.into_iter()).0, 1)
    );
    out
}

fn several(found: &[&Found], title: &str, base: fn(&Found) -> f64) -> Table {
    let ways = names(found, |f| &f.multi);
    let ranks = found.iter().map(|f| f.ranks).max().unwrap_or(0);
    let mut header = vec!["matrix"];
    header.extend(ways.iter().map(String::as_str));
    header.push("auto");
    let mut out = Table::new(format!("{ranks} devices: speed-up {title}"), &header);
    let mut columns = vec![Vec::new(); ways.len() + 1];
    for f in found {
        let mut line = vec![f.name.clone()];
        for (i, way) in ways.iter().enumerate() {
            let speed = base(f) / seconds(&f.multi, way);
            columns[i].push(speed);
            line.push(number(speed, 2));
        }
        let speed = base(f) / auto(f).map_or(f64::NAN, |a| a.1);
        columns[ways.len()].push(speed);
        line.push(number(speed, 2));
        out.rows.push(line);
    }
    mean_rows(&mut out, found, 1, &columns);
    out
}

/// Median seconds of a way, whatever its parameters.
pub(super) fn seconds(rows: &[Row], way: &str) -> f64 {
    rows.iter().find(|r| kind(&r.name) == way).map_or(f64::NAN, Row::seconds)
}

/// The paper's means beside ours.
fn paper(found: &[&Found]) -> Table {
    let header = ["", "nz", "2nz", "lra", "lra+rc"];
    let mut out = Table::new("Arithmetic means beside the paper's (Fig. 14)", &header);
    for (gpus, means) in PAPER {
        let mut line = vec![format!("the paper, {gpus} V100, over CSR-vector")];
        line.extend(means.iter().map(|m| number(*m, 2)));
        out.rows.push(line);
    }
    let ranks = found.iter().map(|f| f.ranks).max().unwrap_or(0);
    type Base = (&'static str, fn(&Found) -> f64);
    let bases: [Base; 2] = [("our product on one", Found::ours), ("CSR-vector on one", |f| f.single(VECTOR))];
    for (name, base) in bases {
        let mut line = vec![format!("here, {ranks} devices, over {name}")];
        for way in &header[1..] {
            line.push(number(means(found.iter().map(|f| base(f) / seconds(&f.multi, way))).0, 2));
        }
        out.rows.push(line);
    }
    out
}

fn automatic(found: &[&Found]) -> Table {
    let header = ["matrix", "picked", "µs", "× ours on one", "longer than the best"];
    let mut out = Table::new("", &header);
    let mut near = 0;
    for f in found {
        let Some((pick, seconds, missed)) = auto(f) else { continue };
        near += usize::from(missed <= 0.05);
        out.rows.push(vec![
            f.name.clone(),
            pick,
            number(1e6 * seconds, 1),
            number(f.ours() / seconds, 2),
            format!("{} %", number(100.0 * missed, 1)),
        ]);
    }
    out.title = format!(
        "The pick of a short trial of every way: within 5 % of the best for {near} of {}",
        out.rows.len()
    );
    out
}

/// Share of transfers in the product by nonzeros: what is left of its time without the kernels.
pub(super) fn transfer_share(f: &Found) -> f64 {
    let Some(row) = f.multi.iter().find(|r| r.name == "nz" && !r.samples.is_empty()) else { return f64::NAN };
    row.kernel.map_or(f64::NAN, |kernel| (1.0 - kernel / row.seconds()).max(0.0))
}

fn transfer(found: &[&Found]) -> Table {
    let header = ["matrix", "product, µs", "longest kernel, µs", "transfer", "kernels × P-th of one device"];
    let mut out = Table::new("Kernels and transfers of nz (Fig. 6)", &header);
    for f in found {
        let Some(row) = f.multi("nz") else { continue };
        let kernel = row.kernel.unwrap_or(f64::NAN);
        out.rows.push(vec![
            f.name.clone(),
            number(1e6 * row.seconds(), 1),
            number(1e6 * kernel, 1),
            format!("{} %", number(100.0 * transfer_share(f), 0)),
            number(kernel * f.ranks as f64 / f.ours(), 2),
        ]);
    }
    out
}

/// Table 4: what cuts cost, in products on one device.
fn setup(found: &[&Found]) -> Table {
    let ways = names(found, |f| &f.multi);
    let header = [
        "",
        "minimum",
        "arithmetic mean",
        "geometric mean",
        "maximum",
        "products until it pays, geometric mean",
        "pays on",
    ];
    let mut out = Table::new("Set-up in products on one device (Table 4)", &header);
    for way in &ways {
        let ratio = |f: &&Found| {
            let row = f.multi.iter().find(|r| kind(&r.name) == *way && !r.samples.is_empty());
            row.map_or(f64::NAN, |r| r.setup / f.ours())
        };
        let all: Vec<f64> = found.iter().map(ratio).filter(|v| v.is_finite()).collect();
        let (arithmetic, geometric) = means(all.iter().copied());
        let least = all.iter().copied().fold(f64::INFINITY, f64::min);
        let most = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut line = vec![way.clone()];
        line.extend([least, arithmetic, geometric, most].map(|v| number(v, 2)));
        // Set-up over what each product gains; where it gains nothing it never pays.
        let gains = found.iter().filter_map(|f| {
            let row = f.multi.iter().find(|r| kind(&r.name) == *way && !r.samples.is_empty())?;
            let gain = f.ours() - row.seconds();
            (gain > 0.0).then(|| row.setup / gain)
        });
        let gains: Vec<f64> = gains.collect();
        line.push(number(means(gains.iter().copied()).1, 1));
        line.push(format!("{} of {}", gains.len(), all.len()));
        out.rows.push(line);
    }
    for (gpus, values) in TABLE4 {
        let mut line = vec![format!("the paper, {gpus} V100")];
        line.extend(values.map(|v| number(v, 2)));
        line.resize(header.len(), String::new());
        out.rows.push(line);
    }
    out
}

/// Average speed-up over one device by d_l and d_c, of a set of matrices.
pub(super) fn swept(found: &[&Found], inside: fn(usize) -> bool, long: f64, redundant: f64) -> f64 {
    let at = |p: &&Point| (p.long - long).abs() < 1e-9 && (p.redundant - redundant).abs() < 1e-9;
    let speed = |f: &&Found| f.sweep.iter().find(at).map_or(f64::NAN, |p| f.ours() / p.seconds);
    means(found.iter().filter(|f| inside(f.id)).map(speed)).0
}

/// d_l and d_c of the sweep.
pub(super) fn axes(found: &[&Found]) -> (Vec<f64>, Vec<f64>) {
    let points = || found.iter().flat_map(|f| &f.sweep);
    let sorted = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all.dedup_by(|a, b| (*a - *b).abs() < 1e-9);
        all
    };
    (sorted(points().map(|p| p.long).collect()), sorted(points().map(|p| p.redundant).collect()))
}

/// Figs. 7 to 9 as a table for each of the two sets, what the sweep says beside Table 3, and Eq. 1.
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
            format!("{} %", number(100.0 * lost(false), 1)),
            format!("{} %", number(100.0 * lost(true), 1)),
        ]);
        all.push(table);
    }
    all.push(best);
    all
}

/// How much longer the rule's parameters take than the sweep's best, of lra or of lra+rc.
fn plub(f: &Found, redundant: bool) -> f64 {
    let way = if redundant { "lra+rc" } else { "lra" };
    let ours = seconds(&f.multi, way);
    let points = f.sweep.iter().filter(|p| redundant || p.redundant == 0.0).map(|p| p.seconds);
    let best = points.fold(f64::INFINITY, f64::min);
    // The rule's own point is one of those it is compared with.
    ours / best.min(ours) - 1.0
}

fn conjugate(found: &[&Found]) -> Table {
    let ways: Vec<String> = names(found, |f| &f.cg).into_iter().filter(|n| n != cg::ONE).collect();
    let ranks = found.iter().map(|f| f.ranks).max().unwrap_or(0);
    let iterations = found.first().map_or(0, |f| f.iterations);
    let mut header = vec!["matrix", "one device, ms"];
    header.extend(ways.iter().map(String::as_str));
    let title =
        format!("{iterations} iterations of CG on {ranks} devices: speed-up over one (Figs. 15 to 17)");
    let mut out = Table::new(title, &header);
    let mut columns = vec![Vec::new(); ways.len()];
    for f in found {
        let one = seconds(&f.cg, cg::ONE);
        let mut line = vec![f.name.clone(), number(1e3 * one, 1)];
        for (i, way) in ways.iter().enumerate() {
            let speed = one / seconds(&f.cg, way);
            columns[i].push(speed);
            line.push(number(speed, 2));
        }
        out.rows.push(line);
    }
    mean_rows(&mut out, found, 2, &columns);
    out
}

/// Ways on several devices whose figures are drawn.
pub(super) fn ways(found: &[&Found]) -> Vec<String> {
    let mut all = names(found, |f| &f.multi);
    for halo in [multi::HALO, multi::GRAPH] {
        all.retain(|n| n != halo || found.iter().any(|f| f.multi(halo).is_some()));
    }
    all
}
