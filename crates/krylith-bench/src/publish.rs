//! What suites with targets and figures hand out: tables for a terminal and as Markdown, raw data, a page, a picture for each
//! figure, and the summary of targets for programs.

use crate::okp::OkpReport;
use krylith::{Error, Result};
use krylith_plot::html::{Table, page};
use serde_json::{Value, json};
use std::path::Path;

/// One promise.
pub(crate) struct Target {
    pub name: String,
    pub goal: f64,
    /// The measured number must be at most the goal, rather than at least.
    pub at_most: bool,
    /// NaN where nothing was measured.
    pub value: f64,
    pub how: String,
}

impl Target {
    pub fn met(&self) -> Option<bool> {
        let met = if self.at_most { self.value <= self.goal } else { self.value >= self.goal };
        self.value.is_finite().then_some(met)
    }
    pub fn goal_text(&self) -> String {
        format!("{} {}", if self.at_most { "≤" } else { "≥" }, self.goal)
    }
    pub fn json(&self) -> Value {
        json!({
            "name": self.name, "goal": self.goal, "at_most": self.at_most, "value": self.value, "met": self.met(), "how": self.how,
        })
    }
}

/// A picture, with the name of its file.
pub(crate) struct Figure {
    pub file: String,
    pub title: String,
    pub svg: String,
}

/// A number with so many digits after the point, or a dash.
pub(crate) fn number(x: f64, digits: usize) -> String {
    if x.is_finite() { format!("{x:.digits$}") } else { "–".into() }
}

/// What was promised, and whether it is kept.
pub(crate) fn summary(goals: &[Target]) -> Table {
    let mut out = Table::new("Targets", &["target", "goal", "measured", "met", "how"]);
    for goal in goals {
        let met = match goal.met() {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "not measured",
        };
        out.rows.push(vec![
            goal.name.clone(),
            goal.goal_text(),
            number(goal.value, 3),
            met.into(),
            goal.how.clone(),
        ]);
    }
    out
}

/// Everything that a suite has found, ready to be written.
pub(crate) struct Published {
    pub title: &'static str,
    pub facts: Vec<String>,
    pub tables: Vec<Table>,
    pub figures: Vec<Figure>,
    /// Raw data; its `targets` are a file of their own too.
    pub json: Value,
    pub failures: Vec<String>,
}

impl Published {
    /// The report; with a folder `NAME.txt`, `.md`, `.json`, `.html`, `NAME-targets.json` and the pictures too.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(self, name: &str, folder: Option<&Path>) -> Result<OkpReport> {
        let Self { title, mut facts, tables, figures, json, failures } = self;
        facts.extend(failures.iter().map(|f| format!("FAILED: {f}")));
        let mut text: String = facts.iter().map(|fact| format!("{fact}\n")).collect();
        let paragraphs: String = facts.iter().map(|fact| format!("{fact}\n\n")).collect();
        let mut markdown = format!("# {title}\n\n{paragraphs}");
        for table in &tables {
            text += &format!("\n{}", table.text());
            markdown += &table.markdown();
        }
        for figure in &figures {
            markdown += &format!("![{}]({})\n", figure.title, figure.file);
        }
        let pictures: Vec<(String, String)> =
            figures.iter().map(|figure| (figure.title.clone(), figure.svg.clone())).collect();
        let heading: String =
            title.chars().take(1).flat_map(char::to_lowercase).chain(title.chars().skip(1)).collect();
        let html = page(&format!("Krylith: {heading}"), &facts, &pictures, &tables);
        let mut report = OkpReport { tables: text, json, html, failures, files: Vec::new() };
        report.write(folder, name)?;
        let Some(folder) = folder else { return Ok(report) };
        let targets = serde_json::to_string_pretty(&report.json["targets"]).unwrap_or_default();
        let mut files = vec![(format!("{name}.md"), markdown), (format!("{name}-targets.json"), targets)];
        files.extend(figures.into_iter().map(|figure| (figure.file, figure.svg)));
        for (name, text) in files {
            let path = folder.join(name);
            krylith::io::atomic::write(&path, |file| file.write_all(text.as_bytes()))
                .map_err(|e| Error::invalid(format!("{}: {e}", path.display())))?;
            report.files.push(path);
        }
        Ok(report)
    }
}
