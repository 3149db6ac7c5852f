//! Round ticks and the text of numbers.

/// Returns the smallest 1, 2 or 5 times a power of ten that is at least `raw`.
fn round_step(raw: f64) -> f64 {
    let power = 10f64.powf(raw.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= raw * (1.0 - 1e-9)).unwrap_or(raw)
}

/// Rounds to nine digits, so that 0.30000000000000004 is not printed.
fn short(v: f64) -> f64 {
    format!("{v:.9e}").parse().unwrap_or(v)
}

/// Returns the multiples of a round step within `low..=high`, at most `most` + 1 of them.
pub fn linear(low: f64, high: f64, most: usize) -> Vec<f64> {
    if !(low < high) || !(high - low).is_finite() {
        return vec![low];
    }
    let step = round_step((high - low) / most.max(1) as f64);
    let (from, to) = ((low / step - 1e-9).ceil() as i64, (high / step + 1e-9).floor() as i64);
    (from..=to).map(|k| short(k as f64 * step)).collect()
}

/// Returns ticks from 0 in round steps to a number that is not below `high`.
pub fn from_zero(high: f64, most: usize) -> Vec<f64> {
    let high = if high > 0.0 && high.is_finite() { high } else { 1.0 };
    let step = round_step(high / most.max(1) as f64);
    (0..=(high / step - 1e-9).ceil() as i64).map(|k| short(k as f64 * step)).collect()
}

/// Returns powers of ten within `low..=high` (both above 0), with 2 and 5 times them if there are few; at
/// most about `most`.
pub fn logarithmic(low: f64, high: f64, most: usize) -> Vec<f64> {
    let within = |v: &f64| (low * (1.0 - 1e-9)..=high * (1.0 + 1e-9)).contains(v);
    let (from, to) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let all = (from..=to).flat_map(|d| [1.0, 2.0, 5.0].map(|f| short(f * 10f64.powi(d))));
    let all: Vec<f64> = all.filter(within).collect();
    if all.len() <= most {
        return if all.len() < 2 { linear(low, high, most.min(4)) } else { all };
    }
    let every = round_step(f64::from(to - from) / most.max(1) as f64).max(1.0) as i32;
    (from..=to).filter(|d| d.rem_euclid(every) == 0).map(|d| 10f64.powi(d)).filter(within).collect()
}

const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];

/// Returns a power of ten such as `10⁻⁶`.
pub fn power(exponent: i32) -> String {
    let digits = exponent.unsigned_abs().to_string();
    let digits: String = digits.bytes().map(|d| RAISED[usize::from(d - b'0')]).collect();
    format!("10{}{digits}", if exponent < 0 { "⁻" } else { "" })
}

/// Formats a number with at most `digits` significant digits, in powers of ten if it is small or large:
/// `1.2·10⁻⁶`, `10⁻⁶`, `0.25`, `1500`.
pub fn number(v: f64, digits: usize) -> String {
    if v == 0.0 || !v.is_finite() {
        return if v == 0.0 { "0".into() } else { "–".into() };
    }
    let scientific = format!("{v:.*e}", digits.max(1) - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    let text = if (-3..6).contains(&exponent) {
        trim(&format!("{v:.*}", (digits as i32 - 1 - exponent).max(0) as usize))
    } else {
        match trim(mantissa).as_str() {
            "1" => power(exponent),
            "-1" => format!("-{}", power(exponent)),
            mantissa => format!("{mantissa}·{}", power(exponent)),
        }
    };
    text.replace('-', "−")
}

/// Returns the text of each tick: powers of ten for all or for none.
pub fn texts(ticks: &[f64]) -> Vec<String> {
    let large = |v: &&f64| **v != 0.0 && !(1e-3..1e6).contains(&v.abs());
    if ticks.iter().filter(large).count() == 0 {
        return ticks.iter().map(|v| number(*v, 9)).collect();
    }
    let all = ticks.iter().map(|v| {
        if *v == 0.0 {
            return "0".into();
        }
        let exponent = (v.abs().log10() + 1e-9).floor() as i32;
        let sign = if *v < 0.0 { "−" } else { "" };
        match short(v.abs() / 10f64.powi(exponent)) {
            1.0 => format!("{sign}{}", power(exponent)),
            factor => format!("{sign}{factor}·{}", power(exponent)),
        }
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns true for 1, 2 or 5 times a power of ten.
    fn is_round(step: f64) -> bool {
        let mantissa = short(step / 10f64.powf((step.log10() + 1e-9).floor()));
        [1.0, 2.0, 5.0].contains(&mantissa)
    }

    #[test]
    fn linear_ticks_are_round_and_within() {
        assert_eq!(linear(0.0, 100.0, 5), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(linear(-0.3, 0.71, 6), [-0.2, 0.0, 0.2, 0.4, 0.6]);
        for (low, high) in [(0.0, 7.0), (0.0, 1234.0), (-1e-9, 3e-9), (3.2, 3.9), (0.0, 1.0), (1e6, 3e6)] {
            for most in [4, 6, 8] {
                let all = linear(low, high, most);
                assert!((2..=most + 1).contains(&all.len()), "{low} {high}: {all:?}");
                assert!(is_round(short(all[1] - all[0])), "{all:?}");
                assert!(all.iter().all(|v| (low..=high).contains(v)), "{all:?}");
            }
        }
        for high in [1.0, 1.01, 1.93, 3.3, 7.9, 12.5, 88.7, 432.0, 1e6, 4e-7] {
            let all = from_zero(high, 6);
            assert!(
                (3..=7).contains(&all.len()) && all[all.len() - 1] >= high * 0.999_999,
                "{high}: {all:?}"
            );
            assert!(is_round(all[1]) && all[0] == 0.0, "{all:?}");
        }
        assert_eq!(from_zero(f64::NAN, 5).last(), Some(&1.0));
    }

    #[test]
    fn logarithmic_ticks_are_round_and_few() {
        assert_eq!(logarithmic(0.1, 10.0, 8), [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]);
        assert_eq!(logarithmic(1e-6, 1.0, 8).len(), 7);
        for (low, high) in [(1e-16, 1.0), (2e-3, 0.9), (0.24, 1.0), (1e-300, 1e300), (50.0, 60.0)] {
            let all = logarithmic(low, high, 8);
            assert!((2..=9).contains(&all.len()), "{low} {high}: {all:?}");
            assert!(all.iter().all(|v| (low * 0.999..=high * 1.001).contains(v)), "{all:?}");
        }
    }

    #[test]
    fn numbers_read_well() {
        let cases = [
            (1.0, "1"),
            (0.25, "0.25"),
            (1e-6, "10⁻⁶"),
            (1.23e-6, "1.2·10⁻⁶"),
            (-2e-12, "−2·10⁻¹²"),
            (0.0, "0"),
            (1500.0, "1500"),
            (3e9, "3·10⁹"),
            (f64::NAN, "–"),
        ];
        for (v, text) in cases {
            assert_eq!(number(v, 2), text);
        }
        assert_eq!(texts(&[1e-6, 1e-3, 1.0]), ["10⁻⁶", "10⁻³", "10⁰"]);
        assert_eq!(texts(&[0.0, 0.5, 1.0]), ["0", "0.5", "1"]);
        assert_eq!(texts(&[0.0, 2e6, 4e6]), ["0", "2·10⁶", "4·10⁶"]);
    }
}
