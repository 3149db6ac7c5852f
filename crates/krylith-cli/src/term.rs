//! The width and the colours of the terminal, and text that fits it.
//!
//! Text always contains colours. anstream removes them for pipes and files, and obeys `NO_COLOR`, `CLICOLOR`
//! and `CLICOLOR_FORCE`, as in the help. Without a terminal nothing is wrapped, unless `COLUMNS` gives a
//! width.

use anstyle::{AnsiColor, Style};
use std::fmt::Write;
use terminal_size::{Width, terminal_size_of};

/// Smallest width; text is not wrapped to a smaller one.
const NARROWEST: usize = 40;

/// Style of labels.
pub const LABEL: Style = Style::new().bold();
/// Style of success.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Style of failure.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// Style of hints.
pub const DIM: Style = Style::new().dimmed();
/// No style.
pub const PLAIN: Style = Style::new();

/// Returns the width of the output of results; `None` if lines may have any length.
pub fn columns() -> Option<usize> {
    let seen = if crate::output::on_stderr() {
        terminal_size_of(std::io::stderr())
    } else {
        terminal_size_of(std::io::stdout())
    };
    wide(seen.map(|(Width(w), _)| w))
}

/// Returns the width of stderr.
pub fn columns_of_errors() -> Option<usize> {
    wide(terminal_size_of(std::io::stderr()).map(|(Width(w), _)| w))
}

/// Returns the width that the terminal reports, or else that of the environment.
fn wide(seen: Option<u16>) -> Option<usize> {
    let named = || std::env::var("COLUMNS").ok()?.parse().ok().filter(|w| *w > 0);
    seen.map(usize::from).or_else(named).map(|w| w.max(NARROWEST))
}

/// Formats text in a style.
pub fn styled(style: Style, text: &str) -> String {
    if style == PLAIN || text.is_empty() { text.into() } else { format!("{style}{text}{style:#}") }
}

/// Formats a table with labels in one column and lines in the other, wrapped at `columns`; `tone` styles the
/// lines of a label.
pub fn table(rows: &[(&str, Vec<String>)], columns: Option<usize>, tone: impl Fn(&str) -> Style) -> String {
    let width = rows.iter().map(|r| r.0.chars().count()).max().unwrap_or(0) + 2;
    let mut out = String::new();
    for (label, lines) in rows {
        let lines: Vec<String> = lines.iter().map(|line| plain(line)).collect();
        let wrapped = lines.iter().flat_map(|line| match columns {
            Some(columns) => wrap(line, columns.saturating_sub(width).max(NARROWEST / 2)),
            None => vec![line.clone()],
        });
        for (i, line) in wrapped.enumerate() {
            let line = styled(tone(label), line.trim_end());
            let label = if i == 0 { *label } else { "" };
            let gap = " ".repeat(width - label.chars().count());
            let _ = writeln!(out, "{}", format!("{}{gap}{line}", styled(LABEL, label)).trim_end()); // strings never fail
        }
    }
    out
}

/// Escapes control sequences for terminals, except for line ends, tabs and our colours; names of files may
/// contain such sequences.
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (i, part) in text.split('\u{1b}').enumerate() {
        let colour = part.strip_prefix('[').and_then(|rest| rest.split_once('m')).map(|(code, _)| code);
        let is_colour = colour.is_some_and(|code| code.chars().all(|c| c.is_ascii_digit() || c == ';'));
        if i > 0 {
            out.push_str(if is_colour { "\u{1b}" } else { "\\u{1b}" });
        }
        for piece in part.split_inclusive(['\n', '\t']) {
            let end = if piece.ends_with(['\n', '\t']) { piece.len() - 1 } else { piece.len() };
            out.push_str(&krylith_core::text::shown(&piece[..end]));
            out.push_str(&piece[end..]);
        }
    }
    out
}

/// Returns the width of text without its colours.
fn seen(text: &str) -> usize {
    anstream::adapter::strip_str(text).map(|part| part.chars().count()).sum()
}

/// Units that are kept on the same line as their number.
const UNITS: [&str; 12] = ["%", "s", "ms", "µs", "ns", "B", "KiB", "MiB", "GiB", "GB/s", "MB", "GB"];

/// Splits a line into words; a number and its unit, a label such as `3:` and its value, and `τ =` and its
/// value stay together.
fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in line.split(' ') {
        let bare = word.trim_end_matches([',', ';', '.', ')', ':']);
        let glued = words.last().is_some_and(|before| {
            let number = before.trim_start_matches('(').starts_with(|c: char| c.is_ascii_digit());
            let key = before.chars().count() == 2 && before.ends_with(':') && !word.is_empty();
            number && UNITS.contains(&bare) || key || before == "τ =" || word == "=" && before == "τ"
        });
        match words.last_mut().filter(|_| glued) {
            Some(before) => *before += &format!(" {word}"),
            None => words.push(word.into()),
        }
    }
    words
}

/// Wraps a line to at most `width` columns at blanks, and a longer word at its commas. Lines after the first
/// are indented by two more columns.
pub fn wrap(line: &str, width: usize) -> Vec<String> {
    let indent = line.chars().take_while(|c| *c == ' ').count();
    let mut pieces = vec![" ".repeat(indent)];
    let mut begun = false;
    for word in words(&line[indent..]) {
        let cut = if indent + 2 + seen(&word) > width { ',' } else { '\0' };
        for (i, part) in word.split_inclusive(cut).enumerate().chain(word.is_empty().then_some((0, ""))) {
            let last = pieces.len() - 1;
            let blank = usize::from(begun && i == 0);
            if begun && seen(&pieces[last]) + blank + seen(part) > width {
                pieces.push(format!("{}{part}", " ".repeat(indent + 2)));
                begun = !part.is_empty();
            } else {
                pieces[last].push_str(&" ".repeat(blank));
                pieces[last].push_str(part);
                begun = true;
            }
        }
    }
    pieces
}

/// Largest width of help texts, for clap and for the text after the options.
const HELP: usize = 104;

/// Wraps the text after the options of a command to the terminal.
pub fn fit_help(command: clap::Command) -> clap::Command {
    let Some(columns) = columns() else { return command };
    match command.get_after_help().map(ToString::to_string) {
        Some(text) => command.after_help(help(&text, columns.min(HELP))),
        None => command,
    }
}

/// Wraps examples and notes to at most `columns`. If an example and its explanation do not fit side by side,
/// the explanation goes below it.
pub fn help(text: &str, columns: usize) -> String {
    let is_narrow = text.lines().any(|line| line.chars().count() > columns);
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        match lines.last_mut() {
            // Text that continues below its heading, such as exit codes.
            Some(before) if indent >= 8 && is_narrow => {
                *before += &format!(" {}", line.trim());
            }
            _ => lines.push(line.into()),
        }
    }
    let mut out = Vec::new();
    for line in lines {
        let split = line.trim_start().split_once("  ").filter(|_| line.chars().count() > columns);
        match split {
            Some((example, what)) => {
                out.extend(wrap(&format!("  {example}"), columns));
                out.extend(wrap(&format!("      {}", what.trim()), columns));
            }
            // Sentences continue at the margin.
            None if !line.starts_with(' ') => {
                out.extend(wrap(&line, columns).iter().map(|piece| piece.trim_start().to_string()));
            }
            None => out.extend(wrap(&line, columns)),
        }
    }
    out.join("\n")
}

/// Wraps each line of a text, if a width is given.
pub fn fit(text: &str, columns: Option<usize>) -> String {
    let Some(columns) = columns else { return text.into() };
    text.lines().flat_map(|line| wrap(line, columns)).map(|line| line.trim_end().to_string() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_at_blanks_and_nothing_is_lost() {
        let line = "  three iterations in a row, and averylongwordthatfitsnowhere at the end";
        for width in [12, 20, 30, 100] {
            let pieces = wrap(line, width);
            let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
            assert_eq!(words(&pieces.join(" ")), words(line), "{width}");
            assert!(pieces[1..].iter().all(|piece| piece.starts_with("    ")), "{pieces:?}");
            assert!(
                pieces.iter().all(|p| p.chars().count() <= width || !p.trim().contains(' ')),
                "{pieces:?}"
            );
        }
        assert_eq!(wrap(line, 100), [line]);
        let long = "stokes:8x8x8,tau=0.125,nu=0.01,length=1";
        assert_eq!(wrap(long, 24), ["stokes:8x8x8,tau=0.125,", "  nu=0.01,length=1"]);
        assert_eq!(wrap("", 10), [""]);
        assert_eq!(
            wrap("set up in 12.3 ms, and 20 % of it twice", 16),
            ["set up in", "  12.3 ms, and", "  20 % of it", "  twice"]
        );
        assert_eq!(wrap("by field  2: 8.6e-8  3: 8.3e-7", 24), ["by field  2: 8.6e-8 ", "  3: 8.3e-7"]);
    }

    #[test]
    fn examples_stand_above_what_they_are_for_where_there_is_no_room() {
        let text = "Examples:\n  krylith solve A.mtx      all defaults\n\nExit codes: 0 converged ·\n            1 not converged";
        assert_eq!(help(text, 80), text);
        let narrow = "Examples:\n  krylith solve A.mtx\n      all defaults\n\nExit codes: 0 converged · 1\nnot converged";
        assert_eq!(help(text, 30), narrow);
    }

    #[test]
    fn what_steers_a_terminal_is_escaped() {
        assert_eq!(plain("a\u{1b}]0;pwned\u{7}b\nc\u{9b}2J"), "a\\u{1b}]0;pwned\\u{7}b\nc\\u{9b}2J");
        assert_eq!(
            plain("\u{1b}[1;31merror:\u{1b}[0m x\u{1b}[2J\u{1b}"),
            "\u{1b}[1;31merror:\u{1b}[0m x\\u{1b}[2J\\u{1b}"
        );
        assert_eq!(plain("‖b − A x‖ = 1 µs"), "‖b − A x‖ = 1 µs");
    }

    #[test]
    fn tables_fit_and_are_plain_without_a_style() {
        let rows = [("one", vec!["a b c".into(), "d".into()]), ("longer", vec!["e".into()])];
        let plain = |_: &str| PLAIN;
        let text = anstream::adapter::strip_str(&table(&rows, None, plain)).to_string();
        assert_eq!(text, "one     a b c\n        d\nlonger  e\n");
        assert!(table(&rows, None, |label| if label == "one" { GOOD } else { PLAIN }).contains("\u{1b}[32m"));
        let long = [("label", vec!["word ".repeat(40)])];
        let text = anstream::adapter::strip_str(&table(&long, Some(60), plain)).to_string();
        assert!(text.lines().count() > 3 && text.lines().all(|line| line.chars().count() <= 60), "{text}");
    }
}
