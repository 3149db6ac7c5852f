//! Text for a terminal of 60 columns.

/// Largest number of columns in a line.
const WIDTH: usize = 60;
/// Largest number of numeric columns beside a label; more of them start another table below.
const NUMBERS: usize = 4;

/// Returns the width of a text in columns.
fn width(text: &str) -> usize {
    text.chars().count()
}

/// Breaks the text into lines of at most `WIDTH` columns, between words; continuation lines are indented by
/// two more.
pub fn fold(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let indent = width(line) - width(line.trim_start_matches(' '));
        let (mut used, mut space) = (indent, 0);
        out += &" ".repeat(indent);
        for word in line.split_whitespace() {
            // Break a long list without spaces after a comma.
            let long = width(word) > WIDTH - indent - 2;
            let pieces: Vec<&str> = if long { word.split_inclusive(',').collect() } else { vec![word] };
            for piece in pieces {
                if used > indent && used + space + width(piece) > WIDTH {
                    used = indent + 2;
                    out.push('\n');
                    out += &" ".repeat(used);
                } else {
                    out += &" ".repeat(space);
                    used += space;
                }
                out += piece;
                used += width(piece);
                space = 0;
            }
            space = 1;
        }
        out.push('\n');
    }
    out
}

/// Returns a table: labels, one per line, with a column of numbers for each head. Many heads give several
/// tables, one below the other.
pub(crate) fn columns(title: &str, head: &str, heads: &[String], rows: &[(&str, Vec<String>)]) -> String {
    let label = rows.iter().map(|(name, _)| width(name)).chain([width(head)]).max().unwrap_or(0);
    let mut out = fold(title);
    for from in (0..heads.len()).step_by(NUMBERS) {
        let to = (from + NUMBERS).min(heads.len());
        let wide = |k: usize| rows.iter().map(|(_, cells)| width(&cells[k])).chain([width(&heads[k])]).max();
        let mut line = |name: &str, cells: &[String]| {
            out += &format!("  {name:<label$}");
            for (k, cell) in cells.iter().enumerate() {
                out += &format!("  {cell:>wide$}", wide = wide(from + k).unwrap_or(0));
            }
            out.push('\n');
        };
        line(head, &heads[from..to]);
        rows.iter().for_each(|(name, cells)| line(name, &cells[from..to]));
        if to < heads.len() {
            out.push('\n');
        }
    }
    out
}

/// Returns the widest line of a text, which no line of [`columns`] should exceed.
#[cfg(test)]
pub(crate) fn widest(text: &str) -> usize {
    text.lines().map(width).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_whole_and_lines_short() {
        let text = "word ".repeat(40) + "the end\nanother line";
        let folded = fold(&text);
        assert!(widest(&folded) <= WIDTH && folded.contains("\n  word"), "{folded}");
        let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
        assert_eq!(words(&folded), words(&text));
        assert!(folded.ends_with("\nanother line\n"));
        assert_eq!(fold("a b"), "a b\n");
        let list = "key=value,".repeat(12);
        let folded = fold(&format!("of {list}: b"));
        assert!(widest(&folded) <= WIDTH && folded.ends_with("key=value,: b\n"), "{folded}");
    }

    #[test]
    fn many_columns_are_some_below_the_others() {
        let heads: Vec<String> = (0..6).map(|k| format!("{}", 1 << k)).collect();
        let cells: Vec<String> = (0..6).map(|k| format!("{k}.5")).collect();
        let text = columns("title", "GPUs", &heads, &[("product", cells)]);
        let expected = "title\n  GPUs       1    2    4    8\n  product  0.5  1.5  2.5  3.5\n\n  GPUs      16   32\n  product  4.5  5.5\n";
        assert_eq!(text, expected);
    }
}
