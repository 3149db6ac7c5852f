//! Fortran's edit descriptors, as far as sparse matrix files use them: `(16I5)`, `(1P,5D16.8)`,
//! `(3(1P,E24.16))`, `(1X,8(I9))`.
//!
//! The parser accepts I, E, D, F and G with widths, X, T, TL and TR, the scale factor P, BN and BZ, signs S,
//! SP and SS, groups in brackets, and `/`. After its end, a format continues at its last group, as in
//! Fortran: with `(1X,8(I9))` only the first line is indented.

use super::super::number;
use std::borrow::Cow;

/// Largest number of columns of a line, and of descriptors, that a format may have; a format with more is
/// rejected.
const LONGEST: usize = 1 << 16;
/// Deepest nesting of brackets; Fortran programs use one or two levels.
const DEEPEST: usize = 8;

/// Positions of the numbers in lines, and how to interpret them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LineFormat {
    /// The fields of the first lines, which occur once.
    first: Vec<Vec<Field>>,
    /// The fields of the lines after them, repeated.
    rest: Vec<Vec<Field>>,
    /// True if `/` makes lines without numbers, which are skipped.
    pub skips_blank_lines: bool,
    /// True if blanks after digits count as zeros.
    zeros: bool,
}

/// One number of a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Field {
    begin: usize,
    end: usize,
    /// Digits after a decimal point that is not written.
    decimals: i32,
    /// Power of ten by which a number without an exponent is divided.
    scale: i32,
}

/// One step of an expanded format.
enum Step {
    Number {
        width: usize,
        decimals: i32,
        scale: i32,
    },
    /// Moves this many columns to the right, or to the left if negative.
    Skip(isize),
    /// Moves to this column, from 0.
    Column(usize),
    Line,
}

/// Parses a format.
struct Parser<'a> {
    rest: &'a str,
    steps: Vec<Step>,
    scale: i32,
    zeros: bool,
    /// Index among the steps of the last group of the outermost level.
    group: usize,
    /// Steps left of [`LONGEST`].
    left: usize,
}

impl Parser<'_> {
    /// Parses a list of descriptors, up to its closing bracket or the end; `None` if it is malformed.
    fn list(&mut self, depth: usize) -> Option<()> {
        loop {
            self.rest = self.rest.trim_start_matches([' ', ',']);
            if self.rest.is_empty() || self.rest.starts_with(')') {
                return Some(());
            }
            self.left = self.left.checked_sub(1)?;
            let minus = self.rest.strip_prefix('-');
            self.rest = minus.unwrap_or(self.rest).trim_start_matches('+');
            let count = digits(&mut self.rest)?;
            let letter = self.take()?;
            if minus.is_some() && letter != 'P' {
                return None;
            }
            match (letter, count) {
                ('P', Some(n)) => self.scale = if minus.is_some() { -n } else { n },
                ('(', repeat) if depth < DEEPEST => self.group(repeat.unwrap_or(1), depth)?,
                ('/', repeat) => (0..repeat.unwrap_or(1)).try_for_each(|_| self.step(Step::Line))?,
                ('X', n) => self.step(Step::Skip(n.unwrap_or(1) as isize))?,
                ('T', None) => {
                    let sign = match self.rest.chars().next() {
                        Some('L') => -1,
                        Some('R') => 1,
                        _ => 0,
                    };
                    if sign != 0 {
                        self.take();
                    }
                    let n = digits(&mut self.rest)?.filter(|&n| n > 0)?;
                    self.step(if sign == 0 {
                        Step::Column(n as usize - 1)
                    } else {
                        Step::Skip((sign * n) as isize)
                    })?;
                }
                ('B', None) => match self.take()? {
                    'N' => self.zeros = false,
                    'Z' => self.zeros = true,
                    _ => return None,
                },
                // Signs and `:` only affect output.
                ('S', None) => self.rest = self.rest.trim_start_matches(['P', 'S']),
                (':', None) => {}
                ('I' | 'E' | 'D' | 'F' | 'G', repeat) => self.numbers(letter, repeat.unwrap_or(1))?,
                _ => return None,
            }
        }
    }

    fn group(&mut self, repeat: i32, depth: usize) -> Option<()> {
        if depth == 0 {
            self.group = self.steps.len();
        }
        let inside = self.rest;
        for _ in 0..repeat {
            self.rest = inside;
            self.list(depth + 1)?;
        }
        self.rest = self.rest.strip_prefix(')')?;
        (repeat > 0).then_some(())
    }

    fn numbers(&mut self, letter: char, repeat: i32) -> Option<()> {
        if letter == 'E' {
            self.rest = self.rest.trim_start_matches(['S', 'N']); // ES and EN read as E does
        }
        let width = digits(&mut self.rest)?.filter(|&w| w > 0)? as usize;
        let mut decimals = 0;
        if let Some(after) = self.rest.strip_prefix('.') {
            self.rest = after;
            decimals = digits(&mut self.rest)??;
        }
        if let Some(after) = self.rest.strip_prefix('E') {
            self.rest = after; // digits of the exponent, which reading does not need
            digits(&mut self.rest)??;
        }
        let (decimals, scale) = if letter == 'I' { (0, 0) } else { (decimals, self.scale) };
        (0..repeat).try_for_each(|_| self.step(Step::Number { width, decimals, scale }))
    }

    fn step(&mut self, step: Step) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        self.steps.push(step);
        Some(())
    }

    /// The next character that is not a blank.
    fn take(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        let next = self.rest.chars().next()?;
        self.rest = self.rest[next.len_utf8()..].trim_start();
        Some(next)
    }
}

/// The lines with numbers that the steps make; `None` if one is too long.
fn lines(steps: &[Step]) -> Option<Vec<Vec<Field>>> {
    let (mut lines, mut fields, mut at) = (Vec::new(), Vec::new(), 0usize);
    for step in steps {
        match *step {
            Step::Number { width, decimals, scale } => {
                fields.push(Field { begin: at, end: at + width, decimals, scale });
                at += width;
            }
            Step::Skip(columns) => at = at.saturating_add_signed(columns),
            Step::Column(column) => at = column,
            Step::Line => {
                lines.push(std::mem::take(&mut fields));
                at = 0;
            }
        }
        if at > LONGEST {
            return None;
        }
    }
    lines.push(fields);
    lines.retain(|fields| !fields.is_empty());
    Some(lines)
}

impl LineFormat {
    /// Parses a format with its brackets; `None` if it is malformed or not supported.
    pub fn parse(text: &str) -> Option<Self> {
        let inside = text.trim().strip_prefix('(')?.strip_suffix(')')?.to_ascii_uppercase();
        let read = |scale| {
            let mut parser =
                Parser { rest: &inside, steps: Vec::new(), scale, zeros: false, group: 0, left: LONGEST };
            parser.list(0)?;
            parser.rest.is_empty().then_some(parser)
        };
        let once = read(0)?;
        // A scale factor remains in force when a format starts again.
        let again = read(once.scale)?;
        let (first, rest) = (lines(&once.steps)?, lines(&again.steps[again.group..])?);
        let skips_blank_lines = once.steps.iter().any(|step| matches!(step, Step::Line));
        (!first.is_empty() && !rest.is_empty()).then_some(Self {
            first,
            rest,
            skips_blank_lines,
            zeros: once.zeros,
        })
    }

    /// The fields of line `number`, from 0, counting only lines with numbers.
    pub fn line(&self, number: usize) -> &[Field] {
        match self.first.get(number) {
            Some(fields) => fields,
            None => &self.rest[(number - self.first.len()) % self.rest.len()],
        }
    }

    /// The line with blanks interpreted as the format says.
    pub fn filled<'a>(&self, line: &'a [u8], fields: &[Field]) -> Cow<'a, [u8]> {
        if !self.zeros {
            return Cow::Borrowed(line);
        }
        let mut line = line.to_vec();
        for field in fields {
            let end = field.end.min(line.len());
            let text = line.get_mut(field.begin..end).unwrap_or_default();
            let digits = text.iter().position(|c| *c != b' ').unwrap_or(text.len());
            text[digits..].iter_mut().filter(|c| **c == b' ').for_each(|c| *c = b'0');
        }
        Cow::Owned(line)
    }
}

/// The texts of the numbers of a line.
///
/// Some programs write numbers that are wider than the format says. If fields would cut words in two and
/// there are as many words as numbers, the words are used.
pub(super) fn split<'a>(fields: &[Field], line: &'a [u8]) -> Vec<&'a [u8]> {
    if fields.iter().any(|f| f.cuts(line)) {
        let words = || line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
        if words().count() == fields.len() {
            return words().collect();
        }
    }
    fields.iter().map(|f| f.of(line)).collect()
}

/// A whole number.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Parses the number at the beginning of `text`, if there is one, and moves past it; `None` if it is too
/// large.
fn digits(text: &mut &str) -> Option<Option<i32>> {
    let trimmed = text.trim_start();
    let end = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (number, rest) = trimmed.split_at(end);
    *text = rest.trim_start();
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

    /// True if the field ends between two characters of which neither is blank.
    fn cuts(&self, line: &[u8]) -> bool {
        line.get(self.end - 1..=self.end).is_some_and(|pair| !pair.iter().any(u8::is_ascii_whitespace))
    }

    /// Converts a number as this format defines it: an unwritten decimal point is where the format says, and
    /// a scale factor divides a number without an exponent.
    ///
    /// # Errors
    /// The reason why the text is not a number, with the text quoted.
    pub fn real(&self, text: &[u8]) -> Result<f64, String> {
        // The usual case.
        if self.scale == 0 && text.contains(&b'.') && !text.contains(&b' ') {
            return number::whole(text);
        }
        let mut word = Vec::with_capacity(text.len());
        for &c in text {
            // A blank may stand for the sign of an exponent.
            if c != b' ' || !word.last().is_some_and(|before| b"eEdDqQ+-".contains(before)) {
                word.push(c);
            }
        }
        let (digits, exponent) = number::split(&word);
        let shift = if digits.contains(&b'.') { 0 } else { self.decimals };
        let shift = i64::from(shift + if exponent.is_some() { 0 } else { self.scale });
        let power = match exponent {
            None => Some(0),
            Some(power) => integer(power).filter(|power| power.unsigned_abs() < 1 << 40),
        };
        // Assembled as one number again, so that it is rounded once.
        let spelt = power.map(|power| [digits, format!("e{}", power - shift).as_bytes()].concat());
        match spelt.map(|spelt| number::whole(&spelt)) {
            Some(Ok(v)) if !digits.is_empty() => Ok(v),
            _ => number::whole(&word).and(Err(format!("{} is not a number", number::quoted(text)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reals(format: &str, line: &str) -> Vec<Option<f64>> {
        let format = LineFormat::parse(format).unwrap();
        let fields = format.line(0);
        let line = format.filled(line.as_bytes(), fields);
        fields.iter().zip(split(fields, &line)).map(|(f, text)| f.real(text).ok()).collect()
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
            for line in 0..3 {
                let fields = format.line(line);
                assert_eq!(fields.len(), count, "{text}");
                for (i, field) in fields.iter().enumerate() {
                    assert_eq!((field.begin, field.end), (i * width, (i + 1) * width), "{text}");
                }
            }
        }
        let deep = format!("{}I5{}", "(".repeat(100_000), ")".repeat(100_000));
        let endless = "(65536(65536(65536(1P))),I5)";
        for text in [
            "",
            "()",
            "16I5",
            "(*)",
            "(16A5)",
            "(0I5)",
            "(I0)",
            "(-2I5)",
            "(99999999I5)",
            "(5E16.)",
            "(P)",
            "(3(I5)",
            "(3I5))",
            "(3())",
            "(0(I5))",
            "(B,I5)",
            "(T0,I5)",
            "(I5,2())",
            "(65536(65536I5))",
            "(1X)",
            "(/)",
            &deep,
            endless,
        ] {
            assert_eq!(LineFormat::parse(text), None, "{}", &text[..text.len().min(40)]);
        }
    }

    /// The offsets of the fields of the first lines.
    fn begins(text: &str) -> [Vec<usize>; 3] {
        let format = LineFormat::parse(text).unwrap_or_else(|| panic!("{text}"));
        [0, 1, 2].map(|line| format.line(line).iter().map(|f| f.begin).collect())
    }

    #[test]
    fn groups_go_on_at_the_last_one() {
        let same =
            |text: &str, fields: &[usize]| assert_eq!(begins(text), [fields, fields, fields], "{text}");
        same("(2X,I3,X,I3)", &[2, 6]);
        same("(8(I9))", &[0, 9, 18, 27, 36, 45, 54, 63]);
        same("(2(2I4))", &[0, 4, 8, 12]);
        same("(3(1P,E24.16))", &[0, 24, 48]);
        same("(3 E24.16)", &[0, 24, 48]);
        same("( 3 ( 1 P , E 24 . 16 ) )", &[0, 24, 48]);
        same("(BZ,2I4)", &[0, 4]);
        same("(BN,SP,2I4,:)", &[0, 4]);
        same("(T5,I4,TR2,I4,TL4,I2)", &[4, 10, 10]);
        same("(2I4,/)", &[0, 4]);
        same("(2(I3,1X))", &[0, 4]);
        same("(2(2(I1,1X),1X))", &[0, 2, 5, 7]);
        // Only the first line is indented, or has what precedes the last group.
        assert_eq!(begins("(1X,2(I9))"), [vec![1, 10], vec![0, 9], vec![0, 9]]);
        assert_eq!(begins("(I5,2(I2),3(I3))"), [vec![0, 5, 7, 9, 12, 15], vec![0, 3, 6], vec![0, 3, 6]]);
        assert_eq!(begins("(I2/2I3)"), [vec![0], vec![0, 3], vec![0]]);
        assert_eq!(begins("(I2,/,2(I3))"), [vec![0], vec![0, 3], vec![0, 3]]);
        assert!(LineFormat::parse("(2I4,/)").unwrap().skips_blank_lines);
    }

    #[test]
    fn scale_factors_last_and_blanks_may_be_zeros() {
        // The factor holds for the second line's first number too.
        let format = LineFormat::parse("(F6.1,2P,F6.1)").unwrap();
        let scales = |line: usize| format.line(line).iter().map(|f| f.scale).collect::<Vec<_>>();
        assert_eq!((scales(0), scales(1)), (vec![0, 2], vec![2, 2]));
        assert_eq!(reals("(3(1P,E8.1))", " 25.0    2.5E+00   100"), [Some(2.5), Some(2.5), Some(1.0)]);
        assert_eq!(reals("(BZ,F5.0,E8.1)", " 12   1.5E 1 "), [Some(1200.0), Some(1.5e10)]);
        assert_eq!(reals("(F5.0,E8.1)", " 12   1.5E 1 "), [Some(12.0), Some(15.0)]);
        assert_eq!(reals("(2F3.0)", "1 23 4"), [None, None]);
    }

    #[test]
    fn numbers_as_fortran_writes_them() {
        // The numbers touch, and their exponents have four spellings.
        let line = "1.50D+00-2.5E+01+3.5Q-02 4.5-105";
        assert_eq!(reals("(4E8.2)", line), [Some(1.5), Some(-25.0), Some(0.035), Some(4.5e-105)]);
        assert_eq!(reals("(3F6.1)", "  1.5   -.5     7"), [Some(1.5), Some(-0.5), Some(0.7)]);
        assert_eq!(reals("(1P,2E8.1)", " 25.0    2.5E+00"), [Some(2.5), Some(2.5)]);
        assert_eq!(reals("(2E8.1)", "1.0E 05"), [Some(1e5), None]);
        assert_eq!(reals("(2E8.1)", " 1.5 2.5 3.5"), [None, Some(3.5)]);
        // Wider than the format, as SciPy writes three digits of an exponent.
        assert_eq!(reals("(2E9.2)", " 1.50E-139 -2.50E-05"), [Some(1.5e-139), Some(-2.5e-5)]);
        assert_eq!(reals("(1E4.1)", "1.23456"), [Some(1.23456)]);
        // Text that touches the last number, such as a label in the last columns, is not part of it.
        assert_eq!(reals("(2F4.1)", " 1.5 2.5LABEL 1"), [Some(1.5), Some(2.5)]);
        assert_eq!(reals("(1E8.1)", "abc"), [None]);
        // Rounded once, so the result is the double nearest to the decimal number.
        assert_eq!(reals("(1F8.3)", "  123457"), [Some(123.457)]);
        assert_eq!(reals("(1P,2F9.2)", "   1.2345    12345"), [Some(0.12345), Some(12.345)]);
        assert_eq!(reals("(2E8.2)", "  15-105    1.5-"), [Some(15e-107), None]);
        let format = LineFormat::parse("(3I4)").unwrap();
        let texts = split(format.line(0), b"1234 +56  -7");
        let found: Vec<_> = texts.into_iter().map(integer).collect();
        assert_eq!(found, [Some(1234), Some(56), Some(-7)]);
    }
}
