//! A self-contained HTML page of tables and pictures that loads nothing.

use crate::scene::escape;

/// A table: headers and rows of text.
///
/// # Examples
/// ```
/// use krylith_plot::html::Table;
/// let mut table = Table::new("Iterations", &["method", "count"]);
/// table.rows.push(vec!["cg".into(), "12".into()]);
/// assert!(table.markdown().contains("| cg | 12 |"));
/// ```
#[derive(Debug, Clone)]
pub struct Table {
    /// The title of the table.
    pub title: String,
    /// A name for each column.
    pub header: Vec<String>,
    /// The cells, row by row.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table without rows.
    pub fn new(title: impl Into<String>, header: &[&str]) -> Self {
        Self { title: title.into(), header: header.iter().map(|h| h.to_string()).collect(), rows: Vec::new() }
    }

    /// Returns the table as text of any width, for a terminal or a file.
    pub fn text(&self) -> String {
        format!("{}\n{}\n", self.title, self.set(0..self.header.len()))
    }

    /// Returns the table as text in lines of at most `width` columns, if possible. Columns that do not fit
    /// follow below, each time with the first column, whose names are wrapped.
    pub fn fitted(&self, width: usize) -> String {
        let wide = |k: usize| {
            let cells = self.rows.iter().chain([&self.header]).filter_map(|row| row.get(k));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0) + 3
        };
        let first = wide(0).min((width / 3).max(12));
        let mut text = String::new();
        let mut from = 1;
        loop {
            let (mut to, mut used) = (from, first);
            while to < self.header.len() && (to == from || used + wide(to) <= width) {
                used += wide(to);
                to += 1;
            }
            let mut table = self.set([0].into_iter().chain(from..to));
            table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic);
            table.set_width(u16::try_from(width).unwrap_or(u16::MAX));
            text += &format!("{table}\n");
            if to >= self.header.len() {
                return text;
            }
            from = to;
        }
    }

    /// Returns a table with some of the columns.
    fn set(&self, columns: impl Iterator<Item = usize> + Clone) -> comfy_table::Table {
        let of = |row: &[String]| -> Vec<String> {
            columns.clone().map(|k| row.get(k).cloned().unwrap_or_default()).collect()
        };
        let mut table = comfy_table::Table::new();
        table.load_preset(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
        table.set_header(of(&self.header));
        for row in &self.rows {
            table.add_row(of(row));
        }
        table
    }

    /// Returns the table as Markdown.
    pub fn markdown(&self) -> String {
        let line = |row: &[String]| -> String {
            let cells: String = row.iter().map(|cell| format!(" {} |", cell.replace('|', "\\|"))).collect();
            format!("|{cells}\n")
        };
        let rule = "---|".repeat(self.header.len());
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("## {}\n\n{}|{rule}\n{rows}\n", self.title, line(&self.header))
    }

    fn html(&self) -> String {
        let cells = |tag: &str, row: &[String]| -> String {
            row.iter().map(|c| format!("<{tag}>{}</{tag}>", escape(c))).collect()
        };
        let rows: String = self.rows.iter().map(|r| format!("<tr>{}</tr>\n", cells("td", r))).collect();
        let first = self.rows.iter().chain([&self.header]).filter_map(|row| row.first());
        let first = first.map(|cell| cell.chars().count()).max().unwrap_or(0);
        format!(
            "<section><h2>{}</h2>\n<div class=\"wide\" style=\"--first:{first}ch\"><table>\n<tr>{}</tr>\n{rows}</table></div></section>\n",
            escape(&self.title),
            cells("th", &self.header)
        )
    }
}

/// Style for light and dark, for any width. Pictures are side by side if they fit, and scroll if their text
/// would become too small. A wide table scrolls beside its first column, which is as wide as its longest
/// name, within limits.
const STYLE: &str = "\
:root{color-scheme:light dark;--paper:#fff;--text:#1d2733;--soft:#55616f;--grid:#e3e7ec}
@media screen and (prefers-color-scheme:dark){:root{--paper:#12171e;--text:#e8edf3;--soft:#a3afbd;--grid:#2a333e}}
body{font:15px/1.45 system-ui,-apple-system,'Segoe UI','DejaVu Sans',Helvetica,Arial,sans-serif;color:var(--text);\
background:var(--paper);margin:0 auto;padding:1rem clamp(.75rem,3vw,2.5rem);max-width:75rem}
h1{font-size:1.5rem;line-height:1.25}h2{font-size:1.1rem;margin:2rem 0 .5rem}p{color:var(--soft);margin:.4rem 0}h1,h2,p{overflow-wrap:anywhere}
.pictures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,30rem),1fr));gap:1.5rem;margin:1.5rem 0;align-items:start}
figure{margin:0;overflow-x:auto}figure svg{width:100%;min-width:30rem}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}
td,th{padding:.3rem .7rem;border-bottom:1px solid var(--grid);text-align:right;vertical-align:bottom}
td{white-space:nowrap}th{color:var(--soft);font-weight:600}
td:first-child,th:first-child{text-align:left;padding-left:0;position:sticky;left:0;background:var(--paper);white-space:normal;\
min-width:min(var(--first),22rem,38vw);max-width:22rem}
@media print{section,figure{break-inside:avoid}}
@page{margin:15mm}";

/// Returns the page; `pictures` are SVG, each with a name for assistive technology (the picture shows it
/// itself).
pub fn page(title: &str, facts: &[String], pictures: &[(String, String)], tables: &[Table]) -> String {
    let facts: String = facts.iter().map(|f| format!("<p>{}</p>\n", escape(f))).collect();
    let pictures: String = pictures
        .iter()
        .map(|(name, svg)| format!("<figure aria-label=\"{}\">\n{svg}</figure>\n", escape(name)))
        .collect();
    let tables: String = tables.iter().map(Table::html).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>{0}</title>\n<style>{STYLE}</style>\n\
         </head>\n<body>\n<h1>{0}</h1>\n{facts}<div class=\"pictures\">\n{pictures}</div>\n{tables}</body>\n</html>\n",
        escape(title)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_fits_a_terminal() {
        let header = ["way", "iterations", "µs an iteration", "set-up, s", "solve, s", "residual"];
        let mut table = Table::new("Solves", &header);
        let name = "algebraic multigrid: V-cycle, smoothed aggregation, Chebyshev(2)";
        table
            .rows
            .push([name, "12", "180.0 (179.1–190.3)", "0.0016", "0.0040", "8.2e-9"].map(String::from).into());
        for width in [40, 60, 120, 400] {
            let text = table.fitted(width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            for word in header.iter().copied().chain(["180.0", "(179.1–190.3)", "aggregation,", "8.2e-9"]) {
                assert!(word.split(' ').all(|part| text.contains(part)), "{word} in {width}:\n{text}");
            }
        }
        assert_eq!(table.fitted(400).matches("way").count(), 1);
    }

    #[test]
    fn a_page_is_well_formed_and_loads_nothing() {
        let mut table = Table::new("a < b", &["name", "time"]);
        table.rows.push(vec!["x & y".into(), "1 (0–2)".into()]);
        assert_eq!(table.markdown(), "## a < b\n\n| name | time |\n|---|---|\n| x & y | 1 (0–2) |\n\n");
        let picture = crate::svg::stacked_bars("p", "s", &["a"], &[("n".into(), vec![1.0])]);
        let page = page("Title", &["a & b".into()], &[("bars".into(), picture)], &[table]);
        crate::check::assert_well_formed(&page);
        for foreign in ["<script", "<link", "src=", "href=\"http", "@import", "url("] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }
}
