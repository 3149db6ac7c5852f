//! The course of a solve: the residual over iterations, or ‖F‖ over the steps of Newton's method.

use crate::font;
use crate::frame::{Axis, Frame, around};
use crate::lines::POINTS;
use crate::scene::{Anchor, MARGIN, MIDDLE, SMALL, Scene, Shape, Stroke, WIDTH};
use crate::theme::Ink;
use crate::ticks::number;

/// Height of the picture between its axes.
const HEIGHT: f64 = 280.0;
/// Number of restarts beyond which their lines would fill the picture.
const RESTARTS: usize = 150;
/// Number of true residuals beyond which only those of attempts and of the end are marked.
const MARKS: usize = 40;
/// Number of points up to which a curve's points are drawn as dots.
const DOTS: usize = 41;
/// Largest number of rows for the names of attempts or steps.
const ROWS: usize = 4;

/// The residuals of a solve.
///
/// # Examples
/// ```
/// use krylith_plot::residuals::{Residuals, draw};
/// let plot = Residuals {
///     quantity: "‖r‖/‖b‖",
///     title: "A.mtx",
///     subtitle: "GMRES(2), point Jacobi: converged after 3 iterations",
///     residuals: &[1.0, 1e-2, 1e-4, 1e-7],
///     true_residual: 1e-7,
///     target: 1e-6,
///     restarts: &[2],
///     attempts: &[],
///     converged: true,
/// };
/// let svg = draw(&plot).svg();
/// assert!(svg.contains("A.mtx") && svg.contains("iteration"));
/// ```
pub struct Residuals<'a> {
    /// Name of the system.
    pub title: &'a str,
    /// Method, preconditioner and outcome.
    pub subtitle: &'a str,
    /// The quantity that the solve compares with the tolerance: the title of the axis.
    pub quantity: &'a str,
    /// ‖r‖/‖b‖ or another quantity from iteration 0: the recurrence's estimate, and the true residual at each
    /// restart.
    pub residuals: &'a [f64],
    /// The quantity of b − A x at the end.
    pub true_residual: f64,
    /// The tolerance: the value that ends the solve.
    pub target: f64,
    /// Iterations at which the method restarted from the true residual.
    pub restarts: &'a [usize],
    /// First iteration of each attempt, with its name; empty for a single attempt.
    pub attempts: &'a [(usize, String)],
    /// True if the solve converged.
    pub converged: bool,
}

/// Sample, ink and text of an entry above the picture.
type Entry = (fn(&mut Scene, [f64; 2], Ink), Ink, String);

/// Draws a dot whose colour, and a subtitle whose words, show the outcome.
fn head(title: &str, subtitle: &str, converged: bool) -> (Scene, f64) {
    let mut scene = Scene::new(title);
    let top = scene.head("");
    let most = WIDTH - 2.0 * MARGIN - 14.0;
    let mut y = top - 10.0;
    for (i, line) in font::wrap(subtitle, SMALL, most, 3).into_iter().enumerate() {
        y += SMALL + 4.0;
        if i == 0 {
            let ink = if converged { Ink::Good } else { Ink::Bad };
            let stroke = Some(Stroke(ink, 1.5, 0));
            let fill = if converged { ink } else { Ink::Paper };
            scene.shape(Shape::Circle([MARGIN + 5.0, y - 4.6, 4.2]), Some(fill), stroke, None);
        }
        scene.text([MARGIN + 14.0, y], Anchor::Start, SMALL, Ink::Soft, line);
    }
    scene.description = subtitle.into();
    (scene, y + 8.0)
}

fn line_sample(scene: &mut Scene, [x, y]: [f64; 2], ink: Ink) {
    let dash = usize::from(ink == Ink::Good);
    scene.line([x, y], [x + 22.0, y], Stroke(ink, 2.0, dash));
}

fn ring_sample(scene: &mut Scene, [x, y]: [f64; 2], ink: Ink) {
    ring(scene, [x + 11.0, y], ink, false);
}

fn tick_sample(scene: &mut Scene, [x, y]: [f64; 2], ink: Ink) {
    scene.line([x + 11.0, y + 4.0], [x + 11.0, y - 4.0], Stroke(ink, 1.0, 0));
}

fn ring(scene: &mut Scene, [x, y]: [f64; 2], ink: Ink, full: bool) {
    let fill = if full { ink } else { Ink::Paper };
    scene.shape(Shape::Circle([x, y, 3.8]), Some(fill), Some(Stroke(ink, 1.6, 0)), None);
}

fn entries(scene: &mut Scene, all: &[Entry], top: f64) -> f64 {
    let names: Vec<String> = all.iter().map(|e| e.2.clone()).collect();
    crate::frame::legend(scene, &names, top, 22.0, |scene, k, at| all[k].0(scene, at, all[k].1))
}

/// Names of stretches above the picture, each at its beginning; names that would touch go to different rows.
struct Stretches {
    /// Beginning of the stretch, its name, and its row counted from below.
    placed: Vec<(f64, String, usize)>,
    rows: usize,
}

impl Stretches {
    fn new(stretches: &[(f64, String)], px: impl Fn(f64) -> f64) -> Self {
        let mut ends = [f64::INFINITY; ROWS];
        let mut placed: Vec<(f64, String, usize)> = Vec::new();
        let mut rows = 0;
        // From right to left: the line from a name down to the picture must pass left of the names below it.
        for (from, name) in stretches.iter().rev() {
            let x = px(*from);
            let name = font::fit(name, SMALL, WIDTH - 2.0 * MARGIN);
            let left = (x + 4.0).min(WIDTH - MARGIN - font::width(&name, SMALL));
            let right = left + font::width(&name, SMALL);
            match (0..ROWS).find(|row| right + 8.0 < ends[*row]) {
                Some(row) => {
                    // The line of this name passes through the rows below.
                    ends[..=row].fill(x.min(left));
                    rows = rows.max(row + 1);
                    placed.push((x, name, row));
                }
                None => placed.push((x, String::new(), 0)),
            }
        }
        placed.reverse();
        Self { placed, rows }
    }

    fn height(&self) -> f64 {
        (SMALL + 4.0) * self.rows as f64
    }

    /// Draws bands behind the picture at `place`, and the names.
    fn draw(&self, scene: &mut Scene, [_, top, right, bottom]: [f64; 4]) {
        for (k, (x, name, row)) in self.placed.iter().enumerate() {
            let end = self.placed.get(k + 1).map_or(right, |next| next.0);
            if k % 2 == 1 && end > *x {
                scene.rect([*x, top, end - x, bottom - top], Ink::Band, None);
            }
            let up = top - (SMALL + 4.0) * *row as f64;
            let begins = if name.is_empty() { top } else { up - SMALL };
            scene.line([*x, begins], [*x, bottom], Stroke(Ink::Axis, 0.8, 0));
        }
        for (x, name, row) in self.placed.iter().filter(|p| !p.1.is_empty()) {
            let x = (x + 4.0).min(WIDTH - MARGIN - font::width(name, SMALL));
            let y = top - (SMALL + 4.0) * *row as f64 - 3.5;
            scene.over([x, y], Anchor::Start, Ink::Text, name);
        }
    }
}

/// Draws the residuals of a solve.
pub fn draw(plot: &Residuals) -> Scene {
    let n = plot.residuals.len();
    let last = n.max(2) - 1;
    let visible = |v: f64| v.is_finite() && v > 0.0;
    let all = plot.residuals.iter().copied().chain([plot.target, plot.true_residual]);
    let [low, high] = around(all);
    let (mut scene, top) = head(plot.title, plot.subtitle, plot.converged);

    let begun = |i: usize| plot.attempts.iter().any(|a| a.0 == i);
    let mut known: Vec<usize> =
        plot.restarts.iter().copied().chain(plot.attempts.iter().map(|a| a.0)).collect();
    known.push(0);
    known.sort_unstable();
    known.dedup();
    known.retain(|i| i + 1 < n);
    let marked: Vec<usize> = match known.len() <= MARKS {
        true => known,
        false => known.into_iter().filter(|i| begun(*i) || *i == 0).collect(),
    };
    let mut legend: Vec<Entry> = vec![(line_sample, Ink::Series(0), "estimate".into())];
    if visible(plot.true_residual) {
        let words = format!("true residual, {} at the end", number(plot.true_residual, 2));
        legend.push((ring_sample, Ink::Series(1), words));
    }
    if visible(plot.target) {
        legend.push((line_sample, Ink::Good, format!("target {}", number(plot.target, 2))));
    }
    let restarts = plot.restarts.len();
    if restarts > 0 {
        let hidden = if restarts > RESTARTS { ", too many to draw" } else { "" };
        legend.push((tick_sample, Ink::Text, format!("restart{hidden}")));
    }
    let top = entries(&mut scene, &legend, top);

    let (x, y) = (Axis::counts("iteration", last), Axis::logarithmic(plot.quantity, low, high));
    let mut frame = Frame::new(x, y, top, HEIGHT, 6.0);
    let several = if plot.attempts.len() > 1 { plot.attempts } else { &[] };
    let begin: Vec<(f64, String)> = several.iter().map(|(i, name)| (*i as f64, name.clone())).collect();
    let stretches = Stretches::new(&begin, |i| frame.px(i));
    frame.widen(stretches.height());
    stretches.draw(&mut scene, frame.place);
    frame.draw(&mut scene);
    let [left, _, right, bottom] = frame.place;
    if visible(plot.target) {
        let y = frame.py(plot.target);
        scene.line([left, y], [right, y], Stroke(Ink::Good, 1.6, 1));
    }
    if restarts <= RESTARTS {
        for i in plot.restarts {
            let x = frame.px(*i as f64);
            scene.line([x, bottom], [x, bottom - 6.0], Stroke(Ink::Text, 1.0, 0));
        }
    }
    curve(&mut scene, &frame, plot.residuals);
    for i in marked.into_iter().filter(|i| visible(plot.residuals[*i])) {
        ring(&mut scene, frame.at([i as f64, plot.residuals[i]]), Ink::Series(1), false);
    }
    if n > 0 && visible(plot.true_residual) {
        ring(&mut scene, frame.at([(n - 1) as f64, plot.true_residual]), Ink::Series(1), true);
    }
    scene.finish()
}

/// Draws the line of a history; a long one by the ends and extremes of each piece.
fn curve(scene: &mut Scene, frame: &Frame, values: &[f64]) {
    let points: Vec<[f64; 2]> = values.iter().enumerate().map(|(i, v)| [i as f64, *v]).collect();
    for piece in points.split(|p| !frame.y.shows(p[1])) {
        let step = piece.len().div_ceil(POINTS).max(1);
        let path: Vec<[f64; 2]> = piece
            .chunks(step)
            .flat_map(|chunk| {
                let by = |a: &&[f64; 2], b: &&[f64; 2]| a[1].total_cmp(&b[1]);
                let ends = [chunk.iter().min_by(by), chunk.iter().max_by(by), chunk.last()];
                let mut ends: Vec<[f64; 2]> = ends.into_iter().flatten().copied().collect();
                ends.sort_by(|a, b| a[0].total_cmp(&b[0]));
                ends.dedup();
                ends
            })
            .map(|p| frame.at(p))
            .collect();
        if path.len() > 1 {
            scene.shape(Shape::Line(path, false), None, Some(Stroke(Ink::Series(0), 2.0, 0)), None);
        }
    }
    if values.len() <= DOTS {
        for p in points.iter().filter(|p| frame.y.shows(p[1])) {
            let [x, y] = frame.at(*p);
            let hint = Some(format!("{}: {}", p[0], number(p[1], 3)));
            scene.shape(Shape::Circle([x, y, 2.4]), Some(Ink::Series(0)), None, hint);
        }
    }
}

/// Newton's method in one time step, or at one value of the parameter.
///
/// # Examples
/// ```
/// use krylith_plot::residuals::{NewtonRun, newton};
/// let norms = vec![1.0, 1e-1, 1e-3, 1e-7];
/// let run = NewtonRun { name: "Re = 100".into(), norms, iterations: vec![7, 9, 14], target: 1e-6 };
/// assert!(newton("cavity:65x65", "3 steps", &[run], true).svg().contains("cavity:65x65"));
/// ```
pub struct NewtonRun {
    /// The problem solved, such as a value of the parameter, if there are several.
    pub name: String,
    /// ‖F‖ before the first step and after each.
    pub norms: Vec<f64>,
    /// Iterations of the linear solve of each step.
    pub iterations: Vec<usize>,
    /// The tolerance: ‖F‖ that ends the method.
    pub target: f64,
}

/// Draws ‖F‖ after every step, and below it bars of the linear iterations of each step.
pub fn newton(title: &str, subtitle: &str, runs: &[NewtonRun], converged: bool) -> Scene {
    let all = runs.iter().flat_map(|r| r.norms.iter().copied().chain([r.target]));
    let [low, high] = around(all);
    let (mut scene, top) = head(title, subtitle, converged);
    let mut legend: Vec<Entry> = vec![(line_sample, Ink::Series(0), "‖F(x)‖ after each step".into())];
    let targets: Vec<f64> = runs.iter().map(|r| r.target).filter(|t| t.is_finite() && *t > 0.0).collect();
    if let Some(target) = targets.first() {
        let one = targets.iter().all(|t| t == target);
        let words = if one { format!("target {}", number(*target, 2)) } else { "target".into() };
        legend.push((line_sample, Ink::Good, words));
    }
    let top = entries(&mut scene, &legend, top);
    let iterations: Vec<usize> = runs.iter().flat_map(|r| r.iterations.iter().copied()).collect();
    let steps = iterations.len().max(1);
    let starts: Vec<usize> = runs
        .iter()
        .scan(0, |from, run| {
            let at = *from;
            *from += run.iterations.len();
            Some(at)
        })
        .collect();

    let x = || Axis::counts("", steps);
    let mut frame = Frame::new(x(), Axis::logarithmic("‖F(x)‖", low, high), top, 0.7 * HEIGHT, 6.0);
    let most = iterations.iter().copied().max().unwrap_or(0).max(1);
    let mut below =
        Frame::new(x(), Axis::counts_from_zero("linear iterations", 1.2 * most as f64), 0.0, 90.0, 6.0);
    below.x.name = "Newton step".into();
    // Both frames begin at the same horizontal position.
    let left = frame.place[0].max(below.place[0]);
    (frame.place[0], below.place[0]) = (left, left);
    let several = runs.len() > 1;
    let begin: Vec<(f64, String)> =
        runs.iter().zip(&starts).filter(|_| several).map(|(r, at)| (*at as f64, r.name.clone())).collect();
    let stretches = Stretches::new(&begin, |i| frame.px(i));
    frame.widen(stretches.height());
    stretches.draw(&mut scene, frame.place);
    frame.draw(&mut scene);
    for (run, from) in runs.iter().zip(&starts) {
        let at = |k: usize, v: f64| frame.at([(from + k) as f64, v]);
        if run.target.is_finite() && run.target > 0.0 {
            let end = at(run.norms.len().max(1) - 1, run.target);
            scene.line(at(0, run.target), end, Stroke(Ink::Good, 1.6, 1));
        }
        let shown: Vec<(usize, f64)> =
            run.norms.iter().copied().enumerate().filter(|p| frame.y.shows(p.1)).collect();
        let path: Vec<[f64; 2]> = shown.iter().map(|(k, v)| at(*k, *v)).collect();
        if path.len() > 1 {
            scene.shape(Shape::Line(path, false), None, Some(Stroke(Ink::Series(0), 2.0, 0)), None);
        }
        for (k, v) in shown.iter().filter(|_| steps <= 4 * DOTS) {
            let [x, y] = at(*k, *v);
            let hint = Some(format!("step {k}: {}", number(*v, 3)));
            scene.shape(Shape::Circle([x, y, 3.0]), Some(Ink::Series(0)), None, hint);
        }
    }
    below.lower(frame.place[3] + 2.0 * MIDDLE);
    below.draw(&mut scene);
    let wide = (below.px(1.0) - below.px(0.0)) * 0.7;
    let numbers = iterations.iter().all(|n| font::width(&n.to_string(), SMALL) < wide / 0.75);
    for (i, n) in iterations.iter().enumerate() {
        let [x, y] = below.at([i as f64 + 0.5, *n as f64]);
        let hint = Some(format!("step {}: {n} iterations", i + 1));
        scene.rect([x - 0.5 * wide, y, wide, below.place[3] - y], Ink::Part(0), hint);
        if numbers {
            scene.over([x, y - 4.0], Anchor::Middle, Ink::Text, n.to_string());
        }
    }
    scene.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{assert_legible, assert_well_formed};

    fn plot(residuals: &[f64], attempts: &[(usize, String)]) -> Scene {
        draw(&Residuals {
            quantity: "‖r‖/‖b‖",
            title: "A<b>.mtx & more",
            subtitle: "GMRES(30), point-block Jacobi — converged after some iterations and a long story that needs two lines",
            residuals,
            true_residual: residuals.last().copied().unwrap_or(f64::NAN),
            target: 1e-6,
            restarts: &[1],
            attempts,
            converged: true,
        })
    }

    #[test]
    fn any_history_gives_a_legible_picture() {
        let long: Vec<f64> = (0..100_000).map(|i| 0.9999f64.powi(i)).collect();
        let names = [
            "multilevel with cg",
            "ildu:cut=whole with gmres(100)",
            "ras:fill=3,solve=exact with gmres(100)",
        ];
        let attempts = |at: [usize; 3]| at.into_iter().zip(names.map(String::from)).collect::<Vec<_>>();
        let none: &[(usize, String)] = &[];
        for attempts in
            [none, &attempts([0, 1, 2]), &attempts([0, 50_000, 99_990]), &attempts([0, 10, 40_000])]
        {
            for residuals in
                [&[][..], &[0.0], &[1.0], &[1.0, f64::NAN, 1e-7], &[f64::INFINITY], &[1e300, 1e-300], &long]
            {
                let scene = plot(residuals, attempts);
                let svg = scene.svg();
                assert!(svg.contains("A&lt;b&gt;.mtx &amp; more") && svg.ends_with("</svg>\n"));
                assert_well_formed(&svg);
                assert_legible(&scene);
                assert!(svg.len() < 80_000, "{} bytes for {} points", svg.len(), residuals.len());
                let shown = names.iter().filter(|name| svg.contains(*name)).count();
                assert_eq!(shown, attempts.len(), "{attempts:?}");
            }
        }
    }

    #[test]
    fn what_is_true_is_marked_and_what_was_tried_is_named() {
        let residuals: Vec<f64> = (0..=10).map(|i| 10f64.powi(-i)).collect();
        let attempts = [(0, "jacobi with cg".to_string()), (4, "ildu with gmres(30)".to_string())];
        let scene = plot(&residuals, &attempts);
        let rings = |fill: Ink| {
            let ring = |t: &&crate::scene::Thing| matches!(t, crate::scene::Thing::Shape { shape: Shape::Circle([_, _, 3.8]), fill: Some(f), .. } if *f == fill);
            scene.things.iter().filter(ring).count()
        };
        // Besides those of the legend: the start, the restart and the second attempt; the end is filled.
        assert_eq!((rings(Ink::Paper), rings(Ink::Series(1))), (4, 1));
        let svg = scene.svg();
        for words in [
            "true residual, 10⁻¹⁰ at the end",
            ">estimate<",
            "target 10⁻⁶",
            ">restart<",
            "iteration",
            "‖r‖/‖b‖",
        ] {
            assert!(svg.contains(words), "{words}");
        }
    }

    #[test]
    fn steps_of_newton_are_drawn() {
        let run = |name: &str, n: usize| NewtonRun {
            name: name.into(),
            norms: (0..=n).map(|k| 10f64.powi(-2 * k as i32)).collect(),
            iterations: (0..n).map(|k| 7 * k + 3).collect(),
            target: 1e-8,
        };
        let ones = NewtonRun { iterations: vec![1; 5], ..run("", 5) };
        for runs in [
            vec![],
            vec![run("", 5)],
            vec![ones],
            vec![run("", 0)],
            (0..12).map(|k| run(&format!("re {k}00"), 40)).collect(),
        ] {
            let scene = newton("cavity:64x64", "GMRES(100) — converged", &runs, true);
            assert_well_formed(&scene.svg());
            assert_legible(&scene);
        }
        let svg = newton("a", "b", &[run("re 100", 5), run("re 400", 3)], false).svg();
        assert!(
            ["re 100", "re 400", ">31<", "linear iterations", "Newton step"].iter().all(|w| svg.contains(w))
        );
    }
}
