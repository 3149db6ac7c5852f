//! Splits text into sentences, and counts their words as a reader would.

/// A sentence: the line where it begins, its first words, and the number of its words.
#[derive(Debug, PartialEq)]
pub struct Sentence {
    pub line: usize,
    pub begin: String,
    pub words: usize,
}

/// Number of words that a finding shows.
const SHOWN: usize = 5;

/// Characters that may occur between the end of a sentence and the following space.
const CLOSING: [char; 8] = [')', ']', '*', '_', '"', '”', '’', '\''];

/// Returns the sentences of a text. A sentence ends at one of `stops` that a space follows. A word has a
/// letter or a digit.
pub fn of(text: &str, stops: &[char]) -> Vec<Sentence> {
    let (mut found, mut open) = (Vec::new(), None::<Sentence>);
    for (line, words) in text.split('\n').enumerate() {
        for word in words.split_whitespace() {
            if word.contains(char::is_alphanumeric) {
                let new = || Sentence { line, begin: String::new(), words: 0 };
                let sentence = open.get_or_insert_with(new);
                if sentence.words < SHOWN {
                    sentence.begin += if sentence.words == 0 { "" } else { " " };
                    sentence.begin += word;
                }
                sentence.words += 1;
            }
            if word.trim_end_matches(CLOSING).ends_with(stops) {
                found.extend(open.take());
            }
        }
    }
    found.extend(open);
    found
}

/// Replaces each code span in backticks by one word; lines keep their numbers.
pub fn without_code(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('`') {
        let (before, code) = rest.split_at(at);
        let ticks = code.len() - code.trim_start_matches('`').len();
        let (open, inside) = code.split_at(ticks);
        let Some(end) = inside.find(open) else { break };
        out.push_str(before);
        out.push_str("code");
        out.extend(inside[..end].chars().filter(|c| *c == '\n'));
        rest = &inside[end + ticks..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(text: &str) -> Vec<(usize, usize)> {
        of(&without_code(text), &['.', '!', '?']).iter().map(|s| (s.line, s.words)).collect()
    }

    #[test]
    fn sentences_end_at_a_stop_with_a_space() {
        assert_eq!(
            counts("One two. Three\nfour! Five 1.5 six? (Seven.) **Eight.** “Nine.” Ten"),
            [(0, 2), (0, 2), (1, 3), (1, 1), (1, 1), (1, 1), (1, 1)]
        );
        assert_eq!(counts(""), []);
        assert_eq!(counts(". — ."), []);
    }

    #[test]
    fn symbols_are_no_words_and_code_is_one() {
        assert_eq!(counts("‖b − A x‖ ≤ ε — a bound"), [(0, 6)]);
        assert_eq!(counts("run `cargo test. Then -p x` now, ``a ` b``s and `x`."), [(0, 6)]);
        assert_eq!(counts("see `a\nb`, then.\nEnd."), [(0, 3), (2, 1)]);
        assert_eq!(counts("one ` alone"), [(0, 2)]);
    }
}
