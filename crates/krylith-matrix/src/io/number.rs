//! Parses numbers in text; all text formats use this module.
//!
//! It accepts the spellings of C and Fortran: `1.5`, `-2e3`, `1D0`, `1.5Q-3`, and `3.14-114` or `0.4+1`,
//! since Fortran omits the letter before an exponent of three digits.

/// The number that `text` begins with, and its length. The number must end at white space or at the end of
/// the text.
///
/// # Errors
/// The reason why it is not a valid number, with the number quoted.
#[inline]
pub(super) fn first(text: &[u8]) -> Result<(f64, usize), String> {
    if let Ok((v, length)) = fast_float2::parse_partial::<f64, _>(text)
        && v.is_finite()
        && text.get(length).is_none_or(u8::is_ascii_whitespace)
    {
        return Ok((v, length));
    }
    let word = text.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    Ok((spelt(word)?, word.len()))
}

/// Parses a word as a number.
///
/// # Errors
/// As [`first`].
pub(super) fn whole(word: &[u8]) -> Result<f64, String> {
    match fast_float2::parse::<f64, _>(word) {
        Ok(v) if v.is_finite() => Ok(v),
        _ => spelt(word),
    }
}

/// The part before the exponent, and the exponent, if there is one. A letter without digits gives an empty
/// exponent.
pub(super) fn split(word: &[u8]) -> (&[u8], Option<&[u8]>) {
    let sign = usize::from(matches!(word.first(), Some(b'+' | b'-')));
    match word[sign..].iter().position(|c| b"eEdDqQ+-".contains(c)).map(|at| sign + at) {
        None => (word, None),
        Some(at) if matches!(word[at], b'+' | b'-') => (&word[..at], Some(&word[at..])),
        Some(at) => (&word[..at], Some(&word[at + 1..])),
    }
}

/// Parses a number in Fortran's spelling, or returns the reason why it is invalid.
#[cold]
fn spelt(word: &[u8]) -> Result<f64, String> {
    let (digits, exponent) = split(word);
    let has_letter = word.get(digits.len()).is_some_and(u8::is_ascii_alphabetic);
    if let Some(power) = exponent
        && is_decimal(digits)
        // Without a point and a letter it is more likely two numbers without a separator, or a date.
        && (has_letter || digits.contains(&b'.'))
    {
        if !power
            .strip_prefix(b"+")
            .or(power.strip_prefix(b"-"))
            .unwrap_or(power)
            .iter()
            .any(u8::is_ascii_digit)
        {
            return Err(format!("{} is not a number: its exponent has no digits", quoted(word)));
        }
        if let Ok(v) = fast_float2::parse::<f64, _>([digits, b"e", power].concat()) {
            return finite(word, v);
        }
    }
    match fast_float2::parse::<f64, _>(word) {
        Ok(v) => finite(word, v),
        Err(_) => Err(format!("{} is not a number{}", quoted(word), why(word))),
    }
}

/// True for digits with at most one point, perhaps after a sign.
fn is_decimal(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"+").or(text.strip_prefix(b"-")).unwrap_or(text);
    let points = text.iter().filter(|&&c| c == b'.').count();
    text.iter().all(|&c| c.is_ascii_digit() || c == b'.') && points <= 1 && text.len() > points
}

fn finite(word: &[u8], v: f64) -> Result<f64, String> {
    match v {
        v if v.is_finite() => Ok(v),
        _ if word.iter().any(u8::is_ascii_digit) => {
            Err(format!("{} is too large for double precision; every value must be finite", quoted(word)))
        }
        v => Err(format!("{} is {v}; every value must be finite", quoted(word))),
    }
}

/// The likely reason why a word is not a number, as the end of that message.
fn why(word: &[u8]) -> String {
    if word.is_empty() {
        return String::new();
    }
    if word.iter().all(|&c| c == b'*') {
        return ": Fortran writes asterisks for a number that is wider than its format; use a wider format"
            .into();
    }
    let comma = word.iter().position(|&c| c == b',');
    if comma.is_some_and(|at| whole(&[&word[..at], b".", &word[at + 1..]].concat()).is_ok()) {
        return ": use a decimal point instead of a comma".into();
    }
    match fast_float2::parse_partial::<f64, _>(word) {
        Ok((_, length)) if (1..word.len()).contains(&length) => {
            format!(": {} follows {}", quoted(&word[length..]), quoted(&word[..length]))
        }
        _ => String::new(),
    }
}

/// A word quoted for a message, shortened.
pub(super) fn quoted(word: &[u8]) -> String {
    const SHOWN: usize = 40;
    let shown = &word[..word.len().min(SHOWN)];
    let dots = if shown.len() < word.len() { "…" } else { "" };
    format!("`{}{dots}`", String::from_utf8_lossy(shown).escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The right values are those of the same numbers in C's spelling.
    #[test]
    fn spellings_of_c_and_of_fortran() {
        for (text, value) in [
            ("1", 1.0),
            ("+1.5", 1.5),
            ("-2e3", -2e3),
            (".5", 0.5),
            ("5.", 5.0),
            ("1D0", 1.0),
            ("1d0", 1.0),
            ("-1.5d+02", -1.5e2),
            ("1.5Q-3", 1.5e-3),
            ("4.5q3", 4.5e3),
            ("0.4+1", 4.0),
            ("40.0-001", 4.0),
            ("3.14-114", 3.14e-114),
            ("-.25+100", -0.25e100),
            ("+1.-300", 1e-300),
            // Rounded once, and not again for the power of ten.
            ("7.2057594037927933D+16", 72_057_594_037_927_936.0),
            ("1.7976931348623157D+308", f64::MAX),
            ("4.9406564584124654-324", 5e-324),
            ("1D-400", 0.0),
        ] {
            assert_eq!(whole(text.as_bytes()), Ok(value), "{text}");
            for after in ["", " 7", "\t", "\r\n1"] {
                let found = first(format!("{text}{after}").as_bytes());
                assert_eq!(found, Ok((value, text.len())), "{text}");
            }
        }
    }

    #[test]
    fn what_is_no_number_says_why() {
        for (text, words) in [
            ("", "`` is not a number"),
            ("abc", "`abc` is not a number"),
            ("1.0x", "`1.0x` is not a number: `x` follows `1.0`"),
            ("1.2.3", "`.3` follows `1.2`"),
            ("1D", "`1D` is not a number: its exponent has no digits"),
            ("1e+", "its exponent has no digits"),
            ("1.5D+", "its exponent has no digits"),
            ("1.5-", "its exponent has no digits"),
            ("1.5D1.5", "`1.5D1.5` is not a number"),
            ("1.5-2-3", "`1.5-2-3` is not a number"),
            ("1-2", "`1-2` is not a number: `-2` follows `1`"),
            ("2024-01-05", "is not a number"),
            ("--1", "`--1` is not a number"),
            ("d5", "`d5` is not a number"),
            (".d5", "`.d5` is not a number"),
            ("1,5", "use a decimal point instead of a comma"),
            ("1,5D3", "use a decimal point instead of a comma"),
            ("*****", "asterisks"),
            ("nan", "`nan` is NaN; every value must be finite"),
            ("-inf", "`-inf` is -inf; every value must be finite"),
            ("1e999", "`1e999` is too large for double precision"),
            ("1D+999", "`1D+999` is too large for double precision"),
            ("1.0+999", "`1.0+999` is too large"),
            ("0x10", "`x10` follows `0`"),
            ("\x1b[31m", "`\\u{1b}[31m` is not a number"),
        ] {
            for found in [whole(text.as_bytes()), first(text.as_bytes()).map(|found| found.0)] {
                let message = found.unwrap_err();
                assert!(message.contains(words), "{text}: {message}");
            }
        }
        let long = whole("x".repeat(100).as_bytes()).unwrap_err();
        assert!(long.len() < 80 && long.contains('…'), "{long}");
    }
}
