//! Horizontal bars, with names to their left and numbers to their right.

use crate::font;
use crate::frame::{Axis, Frame, legend};
use crate::scene::{Anchor, MARGIN, SMALL, Scene, Stroke, WIDTH};
use crate::theme::{Ink, PARTS};
use crate::ticks::number;

/// Largest width of a name beside a bar.
const BEFORE: f64 = 180.0;
/// Height of a line of a name.
const LINE: f64 = SMALL + 3.0;
const BAR: f64 = 17.0;
/// Largest number of bars; a group with more becomes a row of markers.
const BARS: usize = 40;

/// Draws a name in at most two lines, centred at `y`, to the left of `x`.
fn name_before(scene: &mut Scene, name: &[String], x: f64, y: f64) {
    let first = y - 0.5 * LINE * (name.len() as f64 - 1.0) + 0.36 * SMALL;
    for (i, line) in name.iter().enumerate() {
        scene.text([x - 8.0, first + LINE * i as f64], Anchor::End, SMALL, Ink::Text, line);
    }
}

/// Breaks names into lines, and returns them with the width that they need.
fn names_before<'a>(names: impl Iterator<Item = &'a String>) -> (Vec<Vec<String>>, f64) {
    let all: Vec<Vec<String>> = names.map(|n| font::wrap(n, SMALL, BEFORE, 2)).collect();
    let widest = all.iter().flatten().map(|l| font::width(l, SMALL)).fold(0.0, f64::max);
    (all, MARGIN + widest + 8.0)
}

/// Bars of stacked parts.
///
/// # Examples
/// ```
/// use krylith_plot::bars::{Bars, stacked};
/// let bars = [("1 GPU".into(), vec![3.25, 1.5]), ("2 GPUs".into(), vec![1.5, 0.75])];
/// let what = Bars {
///     title: "Where an iteration spends its time",
///     subtitle: "",
///     unit: "ms",
///     parts: &["product", "sums"],
///     bars: &bars,
///     whole: None,
/// };
/// assert!(stacked(&what).svg().contains("4.75 ms")); // the sum stands behind its bar
/// ```
pub struct Bars<'a> {
    /// Title of the picture.
    pub title: &'a str,
    /// Subtitle, such as the source of the numbers; may be empty.
    pub subtitle: &'a str,
    /// Unit of the numbers.
    pub unit: &'a str,
    /// Names of the parts.
    pub parts: &'a [&'a str],
    /// The bars: a name and one number per part.
    pub bars: &'a [(String, Vec<f64>)],
    /// Value of each bar from a separate measurement: drawn as a mark, with its number. Without it the number
    /// is the sum of the parts.
    pub whole: Option<&'a [f64]>,
}

/// Draws the bars. The legend names every part; a part shows its number if it is wide enough.
pub fn stacked(what: &Bars) -> Scene {
    let Bars { title, subtitle, unit, parts, bars, whole } = *what;
    let mut scene = Scene::new(title);
    let mut top = scene.head(subtitle);
    let parts: Vec<String> = parts.iter().map(|p| p.to_string()).collect();
    if parts.len() > 1 {
        top = legend(&mut scene, &parts, top, 11.0, |scene, k, [x, y]| {
            scene.rect([x, y - 5.5, 11.0, 11.0], Ink::Part(k), None);
        });
    }
    let (names, left) = names_before(bars.iter().map(|b| &b.0));
    let clean = |v: &f64| if v.is_finite() { v.max(0.0) } else { 0.0 };
    let sum = |values: &[f64]| values.iter().map(clean).sum::<f64>();
    let wholes: Vec<f64> = bars
        .iter()
        .enumerate()
        .map(|(k, b)| whole.and_then(|w| w.get(k)).copied().filter(|w| w.is_finite()).unwrap_or(sum(&b.1)))
        .collect();
    let most = bars.iter().map(|b| sum(&b.1)).chain(wholes.iter().copied()).fold(0.0, f64::max);
    let most = if most > 0.0 { most } else { 1.0 };
    let total = |k: usize| format!("{} {unit}", text(wholes[k]));
    let room = (0..bars.len()).map(|k| font::width(&total(k), SMALL)).fold(0.0, f64::max) + 8.0;
    let width = WIDTH - MARGIN - room - left;
    let mut y = top + 4.0;
    for (k, ((_, values), name)) in bars.iter().zip(&names).enumerate() {
        let height = (LINE * name.len() as f64).max(BAR);
        let middle = y + 0.5 * height;
        name_before(&mut scene, name, left, middle);
        let mut x = left;
        for (i, value) in values.iter().enumerate() {
            let wide = width * clean(value) / most;
            let part = parts.get(i).map_or("", String::as_str);
            let hint = format!("{part}: {} {unit}", text(*value));
            if wide > 0.0 {
                // A thin gap between neighbours.
                let place = [x, middle - 0.5 * BAR, (wide - 1.0).max(0.5), BAR];
                scene.rect(place, Ink::Part(i), Some(hint));
            }
            let inside = text(*value);
            if values.len() > 1 && font::width(&inside, SMALL) + 8.0 < wide {
                let at = [x + 0.5 * wide, middle + 0.36 * SMALL];
                scene.text(at, Anchor::Middle, SMALL, Ink::OnPart(i), inside);
            }
            x += wide;
        }
        if whole.is_some() {
            let x = left + width * wholes[k] / most;
            let [above, below] = [middle - 0.5 * BAR - 3.0, middle + 0.5 * BAR + 3.0];
            scene.line([x, above], [x, below], Stroke(Ink::Text, 2.0, 0));
        }
        let x = x.max(left + width * wholes[k] / most) + 6.0;
        scene.text([x, middle + 0.36 * SMALL], Anchor::Start, SMALL, Ink::Text, total(k));
        y += height + 9.0;
    }
    scene.finish()
}

/// Formats as tables do: one digit after the point, and more below 10.
fn text(v: f64) -> String {
    match v.abs() {
        size if size >= 9.995 => format!("{v:.1}"),
        size if size >= 0.995 => format!("{v:.2}"),
        size if size >= 1e-3 => format!("{v:.*}", (2.0 - size.log10().floor()) as usize),
        _ => number(v, 3),
    }
}

/// Draws values of named things from 0 upwards, with several series side by side. Few values become bars with
/// numbers if each series has its own colour; otherwise each value is a marker.
pub fn over_names(title: &str, names: &[String], series: &[(String, Vec<f64>)]) -> Scene {
    let mut scene = Scene::new(title);
    let mut top = scene.head("");
    let bars = names.len() * series.len() <= BARS && series.len() <= PARTS.len();
    let shown = |v: &f64| v.is_finite() && *v >= 0.0;
    let series_names: Vec<String> = series.iter().map(|s| s.0.clone()).collect();
    if series.len() > 1 {
        top = legend(&mut scene, &series_names, top, 11.0, |scene, k, [x, y]| match bars {
            true => scene.rect([x, y - 5.5, 11.0, 11.0], Ink::Part(k), None),
            false => scene.mark(k, [x + 5.5, y], None),
        });
    }
    let (lines, left) = names_before(names.iter());
    let most = series.iter().flat_map(|s| s.1.iter().copied()).filter(shown).fold(0.0, f64::max);
    let axis = Axis::from_zero("", most);
    let thick = if series.len() > 1 { 15.0 } else { BAR };
    // With few names, markers are offset vertically.
    let step = if names.len() * series.len() <= BARS { 5.0 } else { 0.0 };
    let inner =
        if bars { thick * series.len() as f64 } else { 12.0 + step * (series.len().max(1) - 1) as f64 };
    let height = |name: &[String]| (LINE * name.len() as f64).max(inner) + if bars { 10.0 } else { 7.0 };
    let whole: f64 = lines.iter().map(|n| height(n)).sum();
    // Space for the number to the right of the longest bar.
    let numbers = series.iter().flat_map(|s| &s.1).filter(|v| bars && shown(v));
    let room = numbers.map(|v| font::width(&text(*v), SMALL)).fold(16.0, f64::max) + 6.0;
    let mut frame = Frame::new(axis, Axis::names("", &[], 1.0), top - 12.0, whole, room);
    frame.place[0] = left;
    frame.upright(&mut scene);
    let mut y = frame.place[1];
    for (i, name) in lines.iter().enumerate() {
        let middle = y + 0.5 * height(name);
        name_before(&mut scene, name, left, middle);
        if !bars {
            scene.line([left, middle], [frame.place[2], middle], Stroke(Ink::Grid, 1.0, 0));
        }
        for (k, (series, values)) in series.iter().enumerate() {
            let Some(value) = values.get(i).copied().filter(shown) else { continue };
            let hint = format!("{}, {series}: {}", names[i], text(value));
            let x = frame.px(value);
            if bars {
                let at = middle - 0.5 * inner + thick * k as f64;
                scene.rect([left, at, x - left, thick - 1.0], Ink::Part(k), Some(hint));
                let place = [x + 5.0, at + 0.5 * thick + 0.34 * SMALL];
                scene.over(place, Anchor::Start, Ink::Text, text(value));
            } else {
                let at = middle - 0.5 * (inner - 12.0) + step * k as f64;
                scene.mark(k, [x, at], Some(hint));
            }
        }
        y += height(name);
    }
    scene.finish()
}
