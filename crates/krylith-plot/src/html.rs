//! One self-contained page: tables and pictures, nothing to load.

use crate::svg::escape;

/// A table: headers and rows of text.
pub struct Table {
    /// What the table shows.
    pub title: String,
    /// A name for each column.
    pub header: Vec<String>,
    /// The cells, row by row.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(title: impl Into<String>, header: &[&str]) -> Self {
        Self { title: title.into(), header: header.iter().map(|h| h.to_string()).collect(), rows: Vec::new() }
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_preset(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
        table.set_header(&self.header);
        for row in &self.rows {
            table.add_row(row);
        }
        format!("{}\n{table}\n", self.title)
    }

    /// For a file of Markdown.
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
        format!(
            "<h2>{}</h2>\n<table>\n<tr>{}</tr>\n{rows}</table>\n",
            escape(&self.title),
            cells("th", &self.header)
        )
    }
}

/// The page; `pictures` are SVG with a heading each.
pub fn page(title: &str, facts: &[String], pictures: &[(String, String)], tables: &[Table]) -> String {
    let facts: String = facts.iter().map(|f| format!("<p>{}</p>\n", escape(f))).collect();
    let pictures: String =
        pictures.iter().map(|(name, svg)| format!("<h2>{}</h2>\n{svg}", escape(name))).collect();
    let tables: String = tables.iter().map(Table::html).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{0}</title>\n<style>\
         body {{ font-family: sans-serif; margin: 2em; max-width: 75em }} \
         table {{ border-collapse: collapse }} td, th {{ padding: 0.25em 0.8em; border-bottom: 1px solid #ddd; \
         text-align: right }} td:first-child, th:first-child {{ text-align: left }} \
         svg {{ max-width: 100% }}</style>\n</head>\n<body>\n<h1>{0}</h1>\n{facts}{pictures}{tables}</body>\n</html>\n",
        escape(title)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_well_formed_and_loads_nothing() {
        let mut table = Table::new("a < b", &["name", "time"]);
        table.rows.push(vec!["x & y".into(), "1 (0–2)".into()]);
        assert_eq!(table.markdown(), "## a < b\n\n| name | time |\n|---|---|\n| x & y | 1 (0–2) |\n\n");
        let picture = crate::svg::stacked_bars("p", "s", &["a"], &[("n".into(), vec![1.0])]);
        let page = page("Title", &["a & b".into()], &[("bars".into(), picture)], &[table]);
        crate::svg::assert_well_formed(&page);
        for foreign in ["<script", "<link", "src=", "href=", "@import", "url("] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }
}
