//! Curves, distinguished by colour, dashes, markers and names beside their ends.

use crate::font;
use crate::frame::{Axis, Frame, around, legend, spread};
use crate::scene::{Anchor, MARGIN, SMALL, Scene, Shape, Stroke, WIDTH};
use crate::theme::Ink;
use crate::ticks::number;

/// Height of a chart.
pub(crate) const HEIGHT: f64 = 260.0;
/// Number of points of a curve beyond which more make no visible difference.
pub(crate) const POINTS: usize = 1000;
/// Largest width of a name beside the end of a curve.
const BESIDE: f64 = 150.0;
/// Number of markers on a curve of many points.
const MARKS: usize = 8;

/// A curve.
///
/// # Examples
/// ```
/// use krylith_plot::{frame::Axis, lines::{Line, draw}};
/// let line = Line { name: "Krylith".into(), points: vec![[1.0, 144.0], [2.0, 82.0], [4.0, 56.0]] };
/// let (x, y) = (Axis::counts("GPUs", 4), Axis::from_zero("µs an iteration", 144.0));
/// assert!(draw("Strong scaling", "", x, y, &[line]).svg().contains("GPUs"));
/// ```
pub struct Line {
    /// Name of the curve.
    pub name: String,
    /// Points of the curve; a value that cannot be shown leaves a gap.
    pub points: Vec<[f64; 2]>,
}

/// Draws curves over axes.
pub fn draw(title: &str, subtitle: &str, x: Axis, y: Axis, lines: &[Line]) -> Scene {
    let mut scene = Scene::new(title);
    let mut top = scene.head(subtitle);
    let names: Vec<String> = lines.iter().map(|l| l.name.clone()).collect();
    let widest = names.iter().map(|n| font::width(n, SMALL)).fold(0.0, f64::max);
    let beside = widest <= BESIDE && lines.len() <= 12;
    if !beside {
        top = legend(&mut scene, &names, top, 26.0, |scene, k, [x, y]| {
            scene.line([x, y], [x + 26.0, y], Stroke(Ink::Series(k), 2.0, k));
            scene.mark(k, [x + 13.0, y], None);
        });
    }
    let frame = Frame::new(x, y, top + 4.0, HEIGHT, if beside { widest + 22.0 } else { 4.0 });
    frame.draw(&mut scene);
    let shown = |p: &&[f64; 2]| frame.x.shows(p[0]) && frame.y.shows(p[1]);
    for (k, line) in lines.iter().enumerate() {
        for piece in line.points.split(|p| !shown(&p)) {
            let step = piece.len().div_ceil(POINTS).max(1);
            let last = piece.last().filter(|_| (piece.len().max(1) - 1) % step != 0);
            let path: Vec<_> = piece.iter().step_by(step).chain(last).map(|p| frame.at(*p)).collect();
            if path.len() > 1 {
                scene.shape(Shape::Line(path, false), None, Some(Stroke(Ink::Series(k), 2.0, k)), None);
            }
        }
        // Markers are staggered, so that they stay visible on coinciding curves.
        let n = line.points.len();
        let every = if n <= 3 * MARKS { 1 } else { n.div_ceil(MARKS) };
        let first = if every == 1 { 0 } else { every * (k + 1) / (lines.len() + 1) };
        for p in line.points.iter().skip(first).step_by(every).filter(shown) {
            let hint = format!("{}: {}", line.name, number(p[1], 4));
            scene.mark(k, frame.at(*p), Some(hint));
        }
    }
    if beside {
        let ends: Vec<(usize, [f64; 2])> = lines
            .iter()
            .enumerate()
            .filter_map(|(k, l)| Some((k, frame.at(*l.points.iter().rfind(shown)?))))
            .collect();
        let wanted: Vec<f64> = ends.iter().map(|e| e.1[1]).collect();
        let found = spread(&wanted, SMALL + 2.0, frame.place[1], frame.place[3]);
        for ((k, [x, y]), at) in ends.iter().zip(found) {
            let right = WIDTH - MARGIN - widest;
            let ink = Ink::Series(*k);
            if (at - y).abs() > 3.0 || right - x > 24.0 {
                scene.line([x + 6.0, *y], [right - 4.0, at], Stroke(Ink::Axis, 0.7, 0));
            }
            scene.text([right, at + 0.36 * SMALL], Anchor::Start, SMALL, ink, &lines[*k].name);
        }
    }
    scene.finish()
}

/// Draws curves over the iteration, with a logarithmic vertical axis.
pub fn curves(title: &str, curves: &[(String, &[f64])]) -> Scene {
    let all = curves.iter().flat_map(|c| c.1.iter().copied());
    let [low, high] = around(all);
    let last = curves.iter().map(|c| c.1.len()).max().unwrap_or(2).max(2) - 1;
    let line = |(name, values): &(String, &[f64])| Line {
        name: name.clone(),
        points: values.iter().enumerate().map(|(i, v)| [i as f64, *v]).collect(),
    };
    let lines: Vec<Line> = curves.iter().map(line).collect();
    let (x, y) = (Axis::counts("iteration", last), Axis::logarithmic("‖r‖/‖b‖", low, high));
    draw(title, "", x, y, &lines)
}

/// Draws values from 0 upwards over evenly spaced counts, one line per name. `axis` names the counts; the
/// title says what the values are.
pub fn over_counts(title: &str, axis: &str, counts: &[usize], lines: &[(String, Vec<f64>)]) -> Scene {
    let values = lines.iter().flat_map(|l| l.1.iter().copied()).filter(|v| v.is_finite());
    let most = values.fold(0.0f64, f64::max);
    let names: Vec<String> = counts.iter().map(usize::to_string).collect();
    let line = |(name, values): &(String, Vec<f64>)| Line {
        name: name.clone(),
        points: values.iter().enumerate().map(|(i, v)| [i as f64, *v]).collect(),
    };
    let lines: Vec<Line> = lines.iter().map(line).collect();
    draw(title, "", Axis::names(axis, &names, 360.0), Axis::from_zero("", most), &lines)
}

/// Draws flops a second over flops a byte, both logarithmic, below the roofs of memory (bytes a second) and
/// arithmetic (flops a second).
pub fn roofline(title: &str, bandwidth: f64, peak: Option<f64>, points: &[(String, f64, f64)]) -> Scene {
    let points: Vec<_> = points.iter().filter(|p| p.1 > 0.0 && p.2 > 0.0 && p.2.is_finite()).collect();
    let ridge = peak.map_or(4.0, |p| p / bandwidth);
    let low_x = points.iter().map(|p| p.1).fold(0.2, f64::min) / 2.0;
    let high_x = points.iter().map(|p| p.1).fold(ridge, f64::max) * 4.0;
    let roof = |x: f64| 1e-9 * (x * bandwidth).min(peak.unwrap_or(f64::INFINITY));
    let low_y = points.iter().map(|p| 1e-9 * p.2).fold(roof(low_x), f64::min) / 2.0;
    let mut scene = Scene::new(title);
    let names: Vec<String> = points.iter().map(|p| p.0.clone()).collect();
    let top = scene.head("");
    let top = legend(&mut scene, &names, top, 8.0, |scene, k, [x, y]| scene.mark(k, [x + 4.0, y], None));
    let x = Axis::logarithmic("flops a byte (the paper's flops, least bytes)", low_x, high_x);
    let frame = Frame::new(x, Axis::logarithmic("GFLOPS", low_y, roof(high_x) * 2.0), top + 4.0, HEIGHT, 4.0);
    frame.draw(&mut scene);
    let corner = if peak.is_some() { ridge } else { high_x };
    let path = [low_x, corner, high_x].map(|x| frame.at([x, roof(x)]));
    scene.shape(Shape::Line(path.to_vec(), false), None, Some(Stroke(Ink::Text, 1.8, 0)), None);
    let words = format!("read bandwidth {} GB/s", number(1e-9 * bandwidth, 3));
    // Above the slope, at its middle.
    let middle = frame.at([(low_x * corner).sqrt(), roof((low_x * corner).sqrt())]);
    let x = (middle[0] - 8.0).max(frame.place[0] + 4.0 + font::width(&words, SMALL));
    scene.over([x, middle[1] - 8.0], Anchor::End, Ink::Soft, words);
    if let Some(peak) = peak {
        let at = frame.at([high_x, roof(high_x)]);
        let words = format!("peak {} GFLOPS", number(1e-9 * peak, 3));
        scene.over([at[0], at[1] - 7.0], Anchor::End, Ink::Soft, words);
    }
    for (k, (name, x, y)) in points.iter().enumerate() {
        let hint = format!("{name}: {:.0} GFLOPS", 1e-9 * y);
        scene.mark(k, frame.at([*x, 1e-9 * y]), Some(hint));
    }
    scene.finish()
}
