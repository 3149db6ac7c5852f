//! Fortran's edit descriptors, as far as files of sparse matrices use them: `(16I5)`, `(1P,5D16.8)`, `(3E26.18)`.

/// Columns of one line beyond which a format is a mistake.
const LONGEST: usize = 1 << 16;

/// Where the numbers of a line stand, and how they are to be understood.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LineFormat {
    pub fields: Vec<Field>,
}

/// One number of a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Field {
    begin: usize,
    end: usize,
    /// Digits behind a point that is not written.
    decimals: i32,
    /// Power of ten by which a number without an exponent is divided.
    scale: i32,
}

impl LineFormat {
    /// Reads a format with its brackets; `None` for what is none of the above.
    pub fn parse(text: &str) -> Option<Self> {
        let inside = text.trim().strip_prefix('(')?.strip_suffix(')')?.to_ascii_uppercase();
        let mut rest = inside.as_str();
        let (mut fields, mut at, mut scale) = (Vec::new(), 0, 0);
        loop {
            rest = rest.trim_start_matches([' ', ',']);
            if rest.is_empty() {
                break;
            }
            let minus = rest.strip_prefix('-');
            rest = minus.unwrap_or(rest).trim_start_matches('+');
            let count = digits(&mut rest)?;
            let letter = rest.chars().next()?;
            rest = rest[letter.len_utf8()..].trim_start();
            match (letter, count) {
                ('P', Some(n)) => scale = if minus.is_some() { -n } else { n },
                ('X', n) => at += n.unwrap_or(1) as usize,
                ('I' | 'E' | 'D' | 'F' | 'G', repeat) => {
                    if letter == 'E' {
                        rest = rest.trim_start_matches(['S', 'N']); // ES and EN read as E does
                    }
                    let width = digits(&mut rest)?.filter(|&w| w > 0)? as usize;
                    let mut decimals = 0;
                    if let Some(after) = rest.strip_prefix('.') {
                        rest = after;
                        decimals = digits(&mut rest)??;
                    }
                    if let Some(after) = rest.strip_prefix('E') {
                        rest = after; // digits of the exponent, which reading does not need
                        digits(&mut rest)??;
                    }
                    let (decimals, scale) = if letter == 'I' { (0, 0) } else { (decimals, scale) };
                    for _ in 0..repeat.unwrap_or(1) {
                        fields.push(Field { begin: at, end: at + width, decimals, scale });
                        at += width;
                        if at > LONGEST {
                            return None;
                        }
                    }
                }
                _ => return None,
            }
            if minus.is_some() && letter != 'P' || at > LONGEST {
                return None;
            }
        }
        (!fields.is_empty()).then_some(Self { fields })
    }

    /// The texts of the first `count` numbers of a line.
    ///
    /// Some programs write numbers that are wider than the format says: where fields would cut words in two, and there are
    /// as many words as numbers, words are taken.
    pub fn split<'a>(&self, line: &'a [u8], count: usize, texts: &mut Vec<&'a [u8]>) {
        let fields = &self.fields[..count.min(self.fields.len())];
        texts.clear();
        if fields.iter().any(|f| f.cuts(line)) {
            let words = || line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
            if words().count() == fields.len() {
                texts.extend(words());
                return;
            }
        }
        texts.extend(fields.iter().map(|f| f.of(line)));
    }
}

/// A whole number.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The number at the beginning of `text`, if one stands there, which moves past it; `None` for one that is too large.
fn digits(text: &mut &str) -> Option<Option<i32>> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    *text = rest;
    if number.is_empty() {
        return Some(None);
    }
    number.parse().ok().filter(|&n: &i32| n <= LONGEST as i32).map(Some)
}

impl Field {
    /// The characters of this field; a line may end before it.
    fn of<'a>(&self, line: &'a [u8]) -> &'a [u8] {
        line.get(self.begin..self.end.min(line.len())).unwrap_or_default().trim_ascii()
    }

    /// True where the field ends between two characters that are no blanks.
    fn cuts(&self, line: &[u8]) -> bool {
        line.get(self.end - 1..=self.end).is_some_and(|pair| !pair.iter().any(u8::is_ascii_whitespace))
    }

    /// A number as Fortran reads it: `D` and `Q` are exponents too, or a sign alone (`1.5-105`).
    pub fn real(&self, text: &[u8]) -> Option<f64> {
        // As it is in nearly all files.
        if text.contains(&b'.')
            && self.scale == 0
            && let Ok(v) = fast_float2::parse::<f64, _>(text)
        {
            return Some(v);
        }
        let mut plain = Vec::with_capacity(text.len() + 1);
        let (mut point, mut exponent) = (false, false);
        for &c in text {
            match c {
                b' ' if plain.last() == Some(&b'e') => {} // for the sign of an exponent
                b'D' | b'd' | b'Q' | b'q' | b'E' | b'e' => {
                    plain.push(b'e');
                    exponent = true;
                }
                b'+' | b'-' if !plain.is_empty() && !exponent => {
                    plain.extend([b'e', c]);
                    exponent = true;
                }
                b'+' if plain.is_empty() => {}
                _ => {
                    point |= c == b'.';
                    plain.push(c);
                }
            }
        }
        let v = fast_float2::parse::<f64, _>(&plain).ok()?;
        let shift = if point { 0 } else { self.decimals } + if exponent { 0 } else { self.scale };
        Some(if shift == 0 { v } else { v / 10f64.powi(shift) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reals(format: &str, line: &str) -> Vec<Option<f64>> {
        let (format, mut texts) = (LineFormat::parse(format).unwrap(), Vec::new());
        format.split(line.as_bytes(), format.fields.len(), &mut texts);
        format.fields.iter().zip(texts).map(|(f, text)| f.real(text)).collect()
    }

    #[test]
    fn formats_of_the_collections() {
        for (text, count, width) in [
            ("(16I5)", 16, 5),
            ("(10I8)", 10, 8),
            ("(3E26.18)", 3, 26),
            ("(1P,5D16.8)", 5, 16),
            ("(1P5D16.8)", 5, 16),
            (" (4D20.12) ", 4, 20),
            ("(1P,3E25.16E3)", 3, 25),
            ("(10F7.1)", 10, 7),
            ("(5ES16.8)", 5, 16),
            ("(i14)", 1, 14),
            ("(4g20.12)", 4, 20),
        ] {
            let format = LineFormat::parse(text).unwrap();
            assert_eq!(format.fields.len(), count, "{text}");
            for (i, field) in format.fields.iter().enumerate() {
                assert_eq!((field.begin, field.end), (i * width, (i + 1) * width), "{text}");
            }
        }
        let spaced = LineFormat::parse("(2(I5))");
        assert_eq!(spaced, None);
        for text in
            ["", "()", "16I5", "(*)", "(16A5)", "(0I5)", "(I0)", "(-2I5)", "(99999999I5)", "(5E16.)", "(P)"]
        {
            assert_eq!(LineFormat::parse(text), None, "{text}");
        }
        assert_eq!(LineFormat::parse("(2X,I3,X,I3)").unwrap().fields[1].begin, 6);
    }

    #[test]
    fn numbers_as_fortran_writes_them() {
        // They touch, and exponents come in four spellings.
        let line = "1.50D+00-2.5E+01+3.5Q-02 4.5-105";
        assert_eq!(reals("(4E8.2)", line), [Some(1.5), Some(-25.0), Some(0.035), Some(4.5e-105)]);
        assert_eq!(reals("(3F6.1)", "  1.5   -.5     7"), [Some(1.5), Some(-0.5), Some(0.7)]);
        assert_eq!(reals("(1P,2E8.1)", " 25.0    2.5E+00"), [Some(2.5), Some(2.5)]);
        assert_eq!(reals("(2E8.1)", "1.0E 05"), [Some(1e5), None]);
        assert_eq!(reals("(2E8.1)", " 1.5 2.5 3.5"), [None, Some(3.5)]);
        // Wider than the format, as SciPy writes three digits of an exponent.
        assert_eq!(reals("(2E9.2)", " 1.50E-139 -2.50E-05"), [Some(1.5e-139), Some(-2.5e-5)]);
        assert_eq!(reals("(1E4.1)", "1.23456"), [Some(1.23456)]);
        // What touches the last number, as a label in the last columns may, is no part of it.
        assert_eq!(reals("(2F4.1)", " 1.5 2.5LABEL 1"), [Some(1.5), Some(2.5)]);
        assert_eq!(reals("(1E8.1)", "abc"), [None]);
        let format = LineFormat::parse("(3I4)").unwrap();
        let mut texts = Vec::new();
        format.split(b"1234 +56  -7", 3, &mut texts);
        let found: Vec<_> = texts.into_iter().map(integer).collect();
        assert_eq!(found, [Some(1234), Some(56), Some(-7)]);
    }
}
