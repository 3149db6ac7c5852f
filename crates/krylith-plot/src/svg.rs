//! Five pictures as SVG text, with nothing to load.

use std::fmt::Write;

const COLOURS: [&str; 12] = [
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#b07aa1", "#9c755f", "#edc948", "#1f3b5c",
    "#ff9da7", "#111111", "#bab0ac",
];

/// Text that is safe between tags and in attributes.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn open(width: f64, height: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         role=\"img\" font-family=\"sans-serif\" font-size=\"12\"><title>{}</title>\n",
        escape(title)
    )
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let words = escape(words);
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
}

fn line(out: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64), style: &str) {
    let _ = writeln!(out, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {style}/>");
}

fn legend(out: &mut String, x: f64, y: f64, names: &[String]) {
    for (i, name) in names.iter().enumerate() {
        let (y, colour) = (y + 18.0 * i as f64, COLOURS[i % COLOURS.len()]);
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>",
            y - 9.0
        );
        text(out, x + 15.0, y, "start", name);
    }
}

/// Horizontal bars of stacked parts: `bars` holds a name and one number a part.
pub fn stacked_bars(title: &str, unit: &str, parts: &[&str], bars: &[(String, Vec<f64>)]) -> String {
    let (left, width, row) = (250.0, 900.0, 34.0);
    let height = 60.0 + row * bars.len() as f64 + 20.0;
    let most = bars.iter().map(|b| b.1.iter().sum::<f64>()).fold(0.0, f64::max);
    let most = if most > 0.0 && most.is_finite() { most } else { 1.0 };
    let mut out = open(width, height, title);
    let mut x = left;
    for (i, part) in parts.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let _ = writeln!(out, "<rect x=\"{x}\" y=\"12\" width=\"10\" height=\"10\" fill=\"{colour}\"/>");
        text(&mut out, x + 15.0, 21.0, "start", part);
        x += 190.0;
    }
    for (k, (name, values)) in bars.iter().enumerate() {
        let y = 40.0 + row * k as f64;
        text(&mut out, left - 8.0, y + 16.0, "end", name);
        let mut x = left;
        for (i, value) in values.iter().enumerate() {
            let value = if value.is_finite() { *value } else { 0.0 };
            let w = (width - left - 110.0) * value / most;
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"22\" fill=\"{}\">\
                 <title>{}: {value:.2} {}</title></rect>",
                COLOURS[i % COLOURS.len()],
                escape(parts.get(i).copied().unwrap_or("")),
                escape(unit)
            );
            x += w;
        }
        let sum: f64 = values.iter().filter(|v| v.is_finite()).sum();
        text(&mut out, x + 6.0, y + 16.0, "start", &format!("{sum:.1} {unit}"));
    }
    out + "</svg>\n"
}

/// Flops a second over flops a byte, both logarithmic, under the roofs of memory and arithmetic.
pub fn roofline(title: &str, bandwidth: f64, peak: Option<f64>, points: &[(String, f64, f64)]) -> String {
    let points: Vec<_> = points.iter().filter(|p| p.1 > 0.0 && p.2 > 0.0 && p.2.is_finite()).collect();
    let (width, height) = (900.0, 430.0);
    let (left, right, top, bottom) = (70.0, 560.0, 20.0, 380.0);
    let low_x = points.iter().map(|p| p.1).fold(0.2, f64::min) / 2.0;
    let ridge = peak.map_or(4.0, |p| p / bandwidth);
    let high_x = points.iter().map(|p| p.1).fold(ridge, f64::max) * 4.0;
    let roof = |x: f64| (x * bandwidth).min(peak.unwrap_or(f64::INFINITY));
    let low_y = points.iter().map(|p| p.2).fold(roof(low_x), f64::min) / 2.0;
    let high_y = roof(high_x) * 2.0;
    let px = |x: f64| left + (right - left) * (x / low_x).ln() / (high_x / low_x).ln();
    let py = |y: f64| bottom - (bottom - top) * (y / low_y).ln() / (high_y / low_y).ln();
    let mut out = open(width, height, title);
    let (grid, ink) = ("stroke=\"#dddddd\"", "stroke=\"#333333\" stroke-width=\"2\"");
    for decade in -4..17 {
        let value = 10f64.powi(decade);
        if value >= low_x && value <= high_x {
            line(&mut out, (px(value), top), (px(value), bottom), grid);
            text(&mut out, px(value), bottom + 16.0, "middle", &format!("{value}"));
        }
        if value >= low_y && value <= high_y {
            line(&mut out, (left, py(value)), (right, py(value)), grid);
            text(&mut out, left - 6.0, py(value) + 4.0, "end", &format!("{}", value / 1e9));
        }
    }
    let ridge = if peak.is_some() { ridge } else { high_x };
    line(&mut out, (px(low_x), py(roof(low_x))), (px(ridge), py(roof(ridge))), ink);
    line(&mut out, (px(ridge), py(roof(ridge))), (px(high_x), py(roof(high_x))), ink);
    text(
        &mut out,
        0.5 * (left + right),
        height - 12.0,
        "middle",
        "flops a byte (the paper's flops, least bytes)",
    );
    text(&mut out, left, top - 6.0, "end", "GFLOPS");
    for (i, (name, x, y)) in points.iter().enumerate() {
        let _ = writeln!(
            out,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"5\" fill=\"{}\"><title>{}: {:.0} GFLOPS</title></circle>",
            px(*x),
            py(*y),
            COLOURS[i % COLOURS.len()],
            escape(name),
            y / 1e9
        );
    }
    let names: Vec<String> = points.iter().map(|p| p.0.clone()).collect();
    legend(&mut out, right + 20.0, top + 20.0, &names);
    out + "</svg>\n"
}

/// Curves over the iteration, logarithmic upwards.
pub fn curves(title: &str, curves: &[(String, &[f64])]) -> String {
    let (width, height) = (900.0, 430.0);
    let (left, right, top, bottom) = (70.0, 560.0, 20.0, 380.0);
    let good = |v: f64| v > 0.0 && v.is_finite();
    let values = || curves.iter().flat_map(|c| c.1.iter().copied()).filter(|&v| good(v));
    let low = values().fold(f64::INFINITY, f64::min);
    let high = values().fold(0.0f64, f64::max);
    let (low, high) = if low < high { (low.log10(), high.log10()) } else { (-1.0, 0.0) };
    let longest = curves.iter().map(|c| c.1.len()).max().unwrap_or(2).max(2) - 1;
    let px = |i: usize| left + (right - left) * i as f64 / longest as f64;
    let py = |v: f64| bottom - (bottom - top) * (v.log10() - low) / (high - low);
    let mut out = open(width, height, title);
    for k in 0..=4 {
        let exponent = low + (high - low) * k as f64 / 4.0;
        let y = py(10f64.powf(exponent));
        line(&mut out, (left, y), (right, y), "stroke=\"#dddddd\"");
        text(&mut out, left - 6.0, y + 4.0, "end", &format!("{:.1e}", 10f64.powf(exponent)));
        let i = longest * k / 4;
        text(&mut out, px(i), bottom + 16.0, "middle", &i.to_string());
    }
    text(&mut out, 0.5 * (left + right), height - 12.0, "middle", "iteration");
    for (i, (_, values)) in curves.iter().enumerate() {
        let points: String = values
            .iter()
            .enumerate()
            .filter(|v| good(*v.1))
            .map(|(j, v)| format!("{:.1},{:.1} ", px(j), py(*v)))
            .collect();
        // Later curves lie on earlier ones, which are wider so that all show.
        let breadth = 2 + 3 * (curves.len() - 1 - i);
        let _ = writeln!(
            out,
            "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" points=\"{}\"/>",
            COLOURS[i % COLOURS.len()],
            breadth,
            points.trim_end()
        );
    }
    let names: Vec<String> = curves.iter().map(|c| c.0.clone()).collect();
    legend(&mut out, right + 20.0, top + 20.0, &names);
    out + "</svg>\n"
}

/// From 0 in round steps to a number that is not below `most`: five to nine of them.
fn ticks(most: f64) -> Vec<f64> {
    let power = 10f64.powf(most.log10().floor() - 1.0);
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0, 20.0].map(|s| s * power);
    let step = steps.into_iter().find(|s| most / s <= 8.0).unwrap_or(most);
    let count = (most / step - 1e-9).ceil().max(1.0) as usize;
    // To nine digits, so that 0.30000000000000004 is not printed.
    let short = |v: f64| format!("{v:.9e}").parse().unwrap_or(v);
    (0..=count).map(|k| short(k as f64 * step)).collect()
}

/// Values over the number of GPUs, one line a name, upwards from 0.
pub fn over_gpus(title: &str, gpus: &[usize], lines: &[(String, Vec<f64>)]) -> String {
    over_counts(title, "GPUs", gpus, lines)
}

/// Most counts that are written below an axis.
const LABELS: usize = 16;

/// Values over evenly spaced counts, which `axis` names, one line a name, upwards from 0.
pub fn over_counts(title: &str, axis: &str, counts: &[usize], lines: &[(String, Vec<f64>)]) -> String {
    let (width, height) = (900.0, 430.0);
    let (left, right, top, bottom) = (70.0, 560.0, 20.0, 380.0);
    let values = lines.iter().flat_map(|l| l.1.iter().copied()).filter(|v| v.is_finite());
    let ticks = ticks(values.fold(1.0f64, f64::max));
    let most = ticks[ticks.len() - 1];
    // Evenly spaced: 1, 2, 4, 8.
    let px = |i: usize| left + (right - left) * (i as f64 + 0.5) / counts.len().max(1) as f64;
    let py = |v: f64| bottom - (bottom - top) * v / most;
    let mut out = open(width, height, title);
    for &value in &ticks {
        line(&mut out, (left, py(value)), (right, py(value)), "stroke=\"#dddddd\"");
        text(&mut out, left - 6.0, py(value) + 4.0, "end", &format!("{value}"));
    }
    for (i, p) in counts.iter().enumerate().step_by(counts.len().div_ceil(LABELS).max(1)) {
        text(&mut out, px(i), bottom + 16.0, "middle", &p.to_string());
    }
    text(&mut out, 0.5 * (left + right), height - 12.0, "middle", axis);
    for (k, (name, values)) in lines.iter().enumerate() {
        let colour = COLOURS[k % COLOURS.len()];
        let points: Vec<(usize, f64)> =
            values.iter().copied().enumerate().filter(|v| v.1.is_finite()).collect();
        let path: String = points.iter().map(|&(i, v)| format!("{:.1},{:.1} ", px(i), py(v))).collect();
        let path = path.trim_end();
        let _ = writeln!(
            out,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{path}\"/>"
        );
        for (i, v) in points {
            let (x, y) = (px(i), py(v));
            let _ = writeln!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"><title>{}: {v:.2}</title></circle>",
                escape(name)
            );
        }
    }
    let names: Vec<String> = lines.iter().map(|l| l.0.clone()).collect();
    legend(&mut out, right + 20.0, top + 20.0, &names);
    out + "</svg>\n"
}

/// Values over named things, one colour a series, upwards from 0; names stand upright below.
pub fn over_names(title: &str, names: &[String], series: &[(String, Vec<f64>)]) -> String {
    let (width, height) = (1100.0, 470.0);
    let (left, right, top, bottom) = (50.0, 850.0, 20.0, 330.0);
    let values = series.iter().flat_map(|s| s.1.iter().copied()).filter(|v| v.is_finite());
    let ticks = ticks(values.fold(1.0f64, f64::max));
    let most = ticks[ticks.len() - 1];
    let step = (right - left) / names.len().max(1) as f64;
    let py = |v: f64| bottom - (bottom - top) * v / most;
    let mut out = open(width, height, title);
    for &value in &ticks {
        line(&mut out, (left, py(value)), (right, py(value)), "stroke=\"#dddddd\"");
        text(&mut out, left - 6.0, py(value) + 4.0, "end", &format!("{value}"));
    }
    let bar = 0.8 * step / series.len().max(1) as f64;
    for (i, name) in names.iter().enumerate() {
        let x = left + step * (i as f64 + 0.5);
        let y = bottom + 10.0;
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"end\" transform=\"rotate(-60 {x:.1} {y:.1})\">{}</text>",
            escape(name)
        );
        for (k, (series, values)) in series.iter().enumerate() {
            let Some(value) = values.get(i).copied().filter(|v| v.is_finite() && *v >= 0.0) else { continue };
            let x = left + step * (i as f64 + 0.1) + bar * k as f64;
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{bar:.1}\" height=\"{:.1}\" fill=\"{}\"><title>{}, {}: {value:.2}</title></rect>",
                py(value),
                bottom - py(value),
                COLOURS[k % COLOURS.len()],
                escape(name),
                escape(series)
            );
        }
    }
    let names: Vec<String> = series.iter().map(|s| s.0.clone()).collect();
    legend(&mut out, right + 20.0, top + 20.0, &names);
    out + "</svg>\n"
}

/// Every tag is closed in order, and text has no stray `<`; enough to catch a broken picture.
pub fn assert_well_formed(text: &str) {
    let (mut stack, mut rest) = (Vec::new(), text);
    while let Some(begin) = rest.find('<') {
        let end = rest[begin..].find('>').expect("a tag ends") + begin;
        let tag = &rest[begin + 1..end];
        assert!(!tag.contains('<'), "a stray < before {tag}");
        assert!(tag.matches('"').count() % 2 == 0, "quotes in <{tag}>");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or("").to_string();
        if tag.starts_with('/') {
            assert_eq!(stack.pop().as_deref(), Some(name.as_str()));
        } else if !tag.ends_with('/') && !tag.starts_with('!') && name != "meta" {
            stack.push(name);
        }
        rest = &rest[end + 1..];
    }
    assert!(stack.is_empty(), "open: {stack:?}");
    assert!(!text.contains("NaN") && !text.contains("inf\""), "a coordinate is no number");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_top() {
        assert_eq!(ticks(1.0), [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
        assert_eq!(ticks(1.93), [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0]);
        assert_eq!(ticks(88.7), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        for most in [1.01, 3.3, 7.9, 12.5, 432.0, 1e6] {
            let all = ticks(most);
            assert!((4..=9).contains(&all.len()) && all[all.len() - 1] >= most, "{most}: {all:?}");
        }
    }

    #[test]
    fn pictures_are_well_formed() {
        let bars = [
            ("a < b & \"c\"".to_string(), vec![1.0, 2.0, 3.0]),
            ("nothing".to_string(), vec![0.0, f64::NAN, 1.0]),
        ];
        assert_well_formed(&stacked_bars("phases", "µs", &["T_Kx", "T_Gn", "other"], &bars));
        assert_well_formed(&stacked_bars("none", "µs", &[], &[]));
        let points = [("ours".to_string(), 0.5, 1e12), ("untimed".to_string(), 0.5, f64::NAN)];
        for peak in [None, Some(3.4e13)] {
            assert_well_formed(&roofline("roof", 4.4e12, peak, &points));
            assert_well_formed(&roofline("empty", 1e10, peak, &[]));
        }
        let curve = [1.0, 0.5, 0.0, f64::NAN, 1e-3];
        assert_well_formed(&curves("residuals", &[("x".into(), &curve[..]), ("flat".into(), &[][..])]));
        assert_well_formed(&curves("none", &[]));
        let lines = [("a & b".to_string(), vec![1.0, f64::NAN, 3.5]), ("none".to_string(), vec![])];
        assert_well_formed(&over_gpus("speed-up", &[1, 2, 4], &lines));
        assert_well_formed(&over_gpus("none", &[], &[]));
        assert_well_formed(&over_names("bars", &["a < b".to_string(), "c".to_string()], &lines));
        assert_well_formed(&over_names("none", &[], &[]));
    }
}
