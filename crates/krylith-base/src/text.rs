//! Numbers and names formatted for people.
//!
//! ```
//! use krylith_base::text::{bytes, count, plural, seconds};
//! assert_eq!((count(1234567), bytes(3 << 20)), ("1 234 567".into(), "3.0 MiB".into()));
//! assert_eq!((seconds(0.0123), plural(2, "row")), ("12.3 ms".into(), "2 rows".into()));
//! ```

/// A file name for display. Control characters and marks that change the direction of text are escaped, and
/// invalid Unicode is replaced.
///
/// ```
/// assert_eq!(krylith_base::text::name("a\u{1b}[31m.mtx"), "a\\u{1b}[31m.mtx");
/// assert_eq!(krylith_base::text::name("größe 1.mtx"), "größe 1.mtx");
/// ```
pub fn name(path: impl AsRef<std::path::Path>) -> String {
    shown(&path.as_ref().to_string_lossy())
}

/// Text from outside for display; line ends are escaped too, see [`name`].
pub fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_control() || is_steering(c) => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// True for marks of text direction, and for Unicode line ends.
fn is_steering(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A count with spaces between groups of three digits: `1 234 567`.
pub fn count(n: usize) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

/// A number of bytes with a unit, in powers of 1024.
pub fn bytes(n: u64) -> String {
    let (mut value, mut unit) = (n as f64, 0);
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A time with three digits and a unit.
pub fn seconds(t: f64) -> String {
    match t {
        t if t >= 99.95 => format!("{t:.0} s"),
        t if t >= 0.9995 => format!("{t:.3} s").replace(".000 s", " s"),
        t if t >= 1e-3 => format!("{:.1} ms", t * 1e3),
        t => format!("{:.0} µs", t * 1e6),
    }
}

/// A count with its noun: `1 row`, `2 rows`.
pub fn plural(n: usize, one: &str) -> String {
    format!("{} {one}{}", count(n), if n == 1 { "" } else { "s" })
}
