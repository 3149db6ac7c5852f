//! Output of the suites: tables for a terminal and as Markdown, raw data, a page, figures, and a summary of
//! targets for programs.

use krylith_core::{Error, Result};
use krylith_plot::bars::{self, Bars};
use krylith_plot::html::{Table, page};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The report of a suite.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Facts and tables as text, for a file.
    pub tables: String,
    /// Facts about the run.
    pub facts: Vec<String>,
    /// The tables, for a terminal of some width.
    pub parts: Vec<Table>,
    /// All data, raw samples included.
    pub json: Value,
    /// A self-contained HTML page.
    pub html: String,
    /// Results that failed their check or could not run; their rows have no time.
    pub failures: Vec<String>,
    /// Paths of the written files.
    pub files: Vec<PathBuf>,
}

impl Report {
    /// Writes tables, raw data and the page as `NAME.txt`, `.json` and `.html` if a folder is given.
    pub(crate) fn write(&mut self, folder: Option<&Path>, name: &str) -> Result<()> {
        let json = serde_json::to_string_pretty(&self.json).unwrap_or_default();
        let texts = [("txt", &self.tables), ("json", &json), ("html", &self.html)];
        let texts = texts.map(|(kind, text)| (format!("{name}.{kind}"), text));
        self.files.extend(write(folder, &texts)?);
        Ok(())
    }
}

/// Writes texts into a folder, if one is given, and returns their paths.
pub(crate) fn write<T: AsRef<[u8]>>(folder: Option<&Path>, texts: &[(String, T)]) -> Result<Vec<PathBuf>> {
    let Some(folder) = folder else { return Ok(Vec::new()) };
    std::fs::create_dir_all(folder).map_err(|e| Error::io(folder, e))?;
    let one = |(name, text): &(String, T)| {
        let path = folder.join(name);
        krylith_core::io::atomic::write(&path, |file| file.write_all(text.as_ref()))?;
        Ok(path)
    };
    texts.iter().map(one).collect()
}

/// Returns the suite, command line, device, version and time of a run, with further data of the suite.
pub(crate) fn meta(suite: &str, command: &str, device: Value, more: Value) -> Value {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let mut meta = json!({
        "schema": 1, "suite": suite, "krylith": env!("CARGO_PKG_VERSION"), "command": command, "device": device,
        "seconds_since_epoch": now.map_or(0, |d| d.as_secs()),
    });
    if let (Some(meta), Value::Object(more)) = (meta.as_object_mut(), more) {
        meta.extend(more);
    }
    meta
}

pub(crate) struct Target {
    pub name: String,
    pub goal: f64,
    /// True if the measured number must be at most the goal, false if at least.
    pub at_most: bool,
    /// The measured number; NaN if nothing was measured.
    pub value: f64,
    pub how: String,
}

impl Target {
    pub fn met(&self) -> Option<bool> {
        let met = if self.at_most { self.value <= self.goal } else { self.value >= self.goal };
        self.value.is_finite().then_some(met)
    }
    pub fn json(&self) -> Value {
        json!({
            "name": self.name, "goal": self.goal, "at_most": self.at_most, "value": self.value, "met": self.met(), "how": self.how,
        })
    }
}

pub(crate) struct Figure {
    pub file: String,
    pub title: String,
    pub svg: String,
}

/// Formats a number with `digits` digits after the point, or as a dash.
pub(crate) fn number(x: f64, digits: usize) -> String {
    if x.is_finite() { format!("{x:.digits$}") } else { "–".into() }
}

/// Formats a share in percent, or as a dash.
pub(crate) fn percent(share: f64, digits: usize) -> String {
    if share.is_finite() { format!("{:.digits$} %", 100.0 * share) } else { "–".into() }
}

/// Formats sizes as `a×b×c`.
pub(crate) fn sizes([x, y, z]: [usize; 3]) -> String {
    format!("{x}×{y}×{z}")
}

/// The error of a passed check, or the reason of a failed one.
pub(crate) type Check = std::result::Result<f64, String>;

/// Returns a check's result as JSON.
pub(crate) fn outcome(check: &Check) -> Value {
    match check {
        Ok(error) => json!({ "ok": true, "error": error }),
        Err(text) => json!({ "ok": false, "message": text }),
    }
}

/// Formats the error of a check with `digits` digits.
pub(crate) fn error(check: &Check, digits: usize) -> String {
    check.as_ref().map_or("–".into(), |error| format!("{error:.digits$e}"))
}

/// Returns a name with its settings.
pub(crate) fn label(name: &str, notes: &str) -> String {
    if notes.is_empty() { name.into() } else { format!("{name} [{notes}]") }
}

/// A table under construction: one row per item, with one cell per column.
pub(crate) struct Lines<'a, R> {
    title: String,
    rows: Vec<&'a R>,
    columns: Vec<(String, Cell<'a, R>)>,
    broken: Option<Broken<'a, R>>,
}

type Cell<'a, R> = Box<dyn Fn(&R) -> String + 'a>;
/// Condition for broken rows, number of cells that they keep, and their last cell.
type Broken<'a, R> = (Box<dyn Fn(&R) -> bool + 'a>, usize, &'static str);

pub(crate) fn rows_of<'a, R>(
    title: impl Into<String>,
    rows: impl IntoIterator<Item = &'a R>,
) -> Lines<'a, R> {
    let rows = rows.into_iter().collect();
    Lines { title: title.into(), rows, columns: Vec::new(), broken: None }
}

impl<'a, R> Lines<'a, R> {
    pub fn column(mut self, heading: impl Into<String>, cell: impl Fn(&R) -> String + 'a) -> Self {
        self.columns.push((heading.into(), Box::new(cell)));
        self
    }

    /// Sets the form of broken rows: the first `kept` cells, dashes, and `last`.
    pub fn broken(mut self, broken: impl Fn(&R) -> bool + 'a, kept: usize, last: &'static str) -> Self {
        self.broken = Some((Box::new(broken), kept, last));
        self
    }

    /// Sets the form of rows that failed their check: the first `kept` cells, and no times.
    pub fn checked(self, check: impl Fn(&R) -> &Check + 'a, kept: usize) -> Self {
        self.broken(move |row| check(row).is_err(), kept, "WRONG")
    }

    pub fn table(self) -> Table {
        let (header, cells): (Vec<String>, Vec<Cell<R>>) = self.columns.into_iter().unzip();
        let line = |row: &R| -> Vec<String> {
            let cells = cells.iter().map(|cell| cell(row));
            match &self.broken {
                Some((broken, kept, last)) if broken(row) => {
                    let mut line: Vec<String> = cells.take(*kept).collect();
                    line.resize(header.len() - 1, "–".into());
                    line.push((*last).into());
                    line
                }
                _ => cells.collect(),
            }
        };
        let rows = self.rows.iter().map(|row| line(row)).collect();
        Table { title: self.title, header, rows }
    }
}

/// The parts of a page under construction.
#[derive(Default)]
pub(crate) struct Pages {
    pub tables: Vec<Table>,
    pub figures: Vec<Figure>,
    pub failures: Vec<String>,
}

impl Pages {
    /// Lists failed checks, with `before` as a prefix.
    pub fn fail<'c>(&mut self, before: &str, checks: impl IntoIterator<Item = &'c Check>) {
        let failed = checks.into_iter().filter_map(|check| check.as_ref().err());
        self.failures.extend(failed.map(|message| format!("{before}{message}")));
    }

    /// Adds a table; rows whose check failed count as failures.
    pub fn show<R>(&mut self, before: &str, lines: Lines<R>, check: impl Fn(&R) -> &Check) {
        self.fail(before, lines.rows.iter().map(|row| check(row)));
        self.tables.push(lines.table());
    }

    /// Adds bars of an iteration's parts in µs, each with the total of a run without clocks.
    pub fn parts(&mut self, title: String, runs: &str, parts: &[&str], rows: Vec<(String, Vec<f64>, f64)>) {
        let subtitle = &format!("parts from {runs} with clocks; mark and number: the run without clocks")[..];
        let (bars, whole): (Vec<_>, Vec<f64>) =
            rows.into_iter().map(|(name, parts, whole)| ((name, parts), whole)).unzip();
        self.picture(title, |title| {
            let (unit, bars) = ("µs", &bars[..]);
            bars::stacked(&Bars { title, subtitle, unit, parts, bars, whole: Some(&whole) }).svg()
        });
    }

    /// Adds a picture without a file of its own.
    pub fn picture(&mut self, title: impl Into<String>, draw: impl FnOnce(&str) -> String) {
        let title = title.into();
        self.figures.push(Figure { file: String::new(), svg: draw(&title), title });
    }

    /// Returns the report, with failures among its facts.
    pub fn report(self, heading: &str, facts: Vec<String>, mut json: Value) -> Report {
        let facts = self.with_failures(facts);
        let Self { tables, figures, failures } = self;
        json["failures"] = json!(failures);
        let pictures: Vec<_> = figures.into_iter().map(|figure| (figure.title, figure.svg)).collect();
        let html = page(&format!("Krylith: {heading}"), &facts, &pictures, &tables);
        Report {
            tables: text(&facts, &tables),
            facts,
            parts: tables,
            json,
            html,
            failures,
            files: Vec::new(),
        }
    }

    fn with_failures(&self, facts: Vec<String>) -> Vec<String> {
        let failed = self.failures.iter().map(|f| format!("FAILED, not timed: {f}"));
        facts.into_iter().chain(failed).collect()
    }

    /// Returns the report of a suite with targets, which are part of the data. If a folder is given, it
    /// writes `NAME.txt`, `.md`, `.json`, `.html`, `NAME-targets.json` and the pictures.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn publish(
        self,
        (title, name): (&str, &str),
        facts: Vec<String>,
        json: Value,
        folder: Option<&Path>,
    ) -> Result<Report> {
        let paragraphs = self.with_failures(facts.clone()).into_iter().map(|fact| format!("{fact}\n\n"));
        let mut markdown = format!("# {title}\n\n{}", paragraphs.collect::<String>());
        markdown.extend(self.tables.iter().map(Table::markdown));
        markdown.extend(self.figures.iter().map(|figure| format!("![{}]({})\n", figure.title, figure.file)));
        let mut files = vec![(format!("{name}.md"), markdown)];
        let targets = serde_json::to_string_pretty(&json["targets"]).unwrap_or_default();
        files.push((format!("{name}-targets.json"), targets));
        files.extend(self.figures.iter().map(|figure| (figure.file.clone(), figure.svg.clone())));
        let heading = format!("{}{}", title[..1].to_lowercase(), &title[1..]);
        let mut report = self.report(&heading, facts, json);
        report.write(folder, name)?;
        report.files.extend(write(folder, &files)?);
        Ok(report)
    }
}

/// Returns the first facts of a report: the device with its bandwidth, `more`, and the command line.
pub(crate) fn facts(meta: &Value, first: &str, more: Vec<String>) -> Vec<String> {
    let name = meta["device"]["name"].as_str().unwrap_or("unknown");
    let command = meta["command"].as_str().unwrap_or("");
    let mut all = vec![format!("{name}{first}")];
    all.extend(more);
    all.extend(machine(meta));
    all.push(format!("command: {command}"));
    all
}

/// Returns the name of what a series counts: GPUs, or ranks that share a CPU.
pub(crate) fn ranks_of(meta: &Value) -> &'static str {
    if meta["device"]["kind"] == "cpu" { "ranks" } else { "GPUs" }
}

/// Returns further facts about the device: `kind cpu, threads 2`.
pub(crate) fn machine(meta: &Value) -> Option<String> {
    let known = meta["device"].as_object()?.iter().filter(|(key, value)| *key != "name" && !value.is_null());
    let known = known.map(|(key, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), String::from);
        format!("{} {value}", key.replace('_', " "))
    });
    Some(known.collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty())
}

fn text(facts: &[String], tables: &[Table]) -> String {
    let facts = facts.iter().map(|fact| format!("{fact}\n"));
    facts.chain(tables.iter().map(|table| format!("\n{}", table.text()))).collect()
}

/// Returns the table of targets and whether they are met.
pub(crate) fn summary(goals: &[Target]) -> Table {
    let met = |goal: &Target| match goal.met() {
        Some(true) => "yes".into(),
        Some(false) => "NO".into(),
        None => "not measured".into(),
    };
    rows_of("Targets", goals)
        .column("target", |goal| goal.name.clone())
        .column("goal", |goal| format!("{} {}", if goal.at_most { "≤" } else { "≥" }, goal.goal))
        .column("measured", |goal| number(goal.value, 3))
        .column("met", met)
        .column("how", |goal| goal.how.clone())
        .table()
}
