//! ‖F‖ after every step, and bars of the linear iterations that each took: a self-contained SVG like that of `krylith solve`.

use super::Finished;
use crate::plot::{BOTTOM, HEIGHT, LEFT, RIGHT, STYLE, TOP, WIDTH, escape, number, shorten, step};
use krylith::newton::NewtonOutcome;
use std::fmt::Write;
use std::path::Path;

/// Share of the picture's height that the longest bar takes.
const BARS: f64 = 0.35;
/// Steps beyond which bars have no numbers.
const NUMBERS: usize = 30;
/// Steps beyond which points are not drawn one by one.
const POINTS: usize = 200;

/// Writes the picture; it appears whole or not at all.
///
/// # Errors
/// What the file system says.
pub fn write(done: &Finished, path: &Path) -> krylith::Result<()> {
    let svg = draw(done);
    krylith::io::atomic::write(path, |out| out.write_all(svg.as_bytes()))
}

/// ‖F‖ by steps of one run after the other, each with its first.
struct Curve {
    from: usize,
    norms: Vec<f64>,
    target: f64,
}

fn draw(done: &Finished) -> String {
    let mut curves = Vec::new();
    let mut iterations = Vec::new();
    for run in &done.runs {
        let from = iterations.len();
        let norms =
            std::iter::once(run.report.first).chain(run.report.steps.iter().map(|s| s.after)).collect();
        curves.push(Curve { from, norms, target: run.report.target });
        iterations.extend(run.report.steps.iter().map(|s| s.iterations));
    }
    let seen = |v: f64| v.is_finite() && v > 0.0;
    let all = curves.iter().flat_map(|c| c.norms.iter().copied().chain([c.target])).filter(|v| seen(*v));
    let (low, high) =
        all.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v.log10()), h.max(v.log10())));
    let (low, high) =
        if low > high { (-1, 0) } else { ((low - 0.05).floor() as i32, (high + 0.02).ceil() as i32) };
    let high = high.max(low + 1);
    let last = iterations.len().max(1) as f64;
    let x = |at: f64| LEFT + (RIGHT - LEFT) * at / last;
    let y = |v: f64| {
        TOP + (BOTTOM - TOP) * ((f64::from(high) - v.log10()) / f64::from(high - low)).clamp(0.0, 1.0)
    };

    let mut s = String::new();
    // Writing to a String cannot fail.
    macro_rules! put { ($($t:tt)*) => {{ let _ = writeln!(s, $($t)*); }}; }
    put!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">"#
    );
    let subtitle = match &done.linear {
        Some(linear) => {
            format!("{}, {} — {}", linear.method.title(), linear.precond.text, super::ending(done))
        }
        None => super::ending(done),
    };
    put!("<title>{}</title>\n<desc>{}</desc>\n<style>{STYLE}", escape(&done.spec), escape(&subtitle));
    put!(".bar{{fill:#1f6fd1;opacity:.22}}</style>");
    put!(r#"<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="6"/>"#);
    put!(r#"<text class="ink title" x="{LEFT}" y="34">{}</text>"#, escape(&shorten(&done.spec, 76)));
    let class = if done.outcome == NewtonOutcome::Converged { "good" } else { "bad" };
    put!(
        r#"<circle class="{class}" cx="{}" cy="53" r="4.5"/><text class="soft" x="{}" y="57.5">{}</text>"#,
        LEFT + 5.0,
        LEFT + 17.0,
        escape(&shorten(&subtitle, 120))
    );
    let every = (f64::from(high - low) / 8.0).ceil().max(1.0) as usize;
    for decade in (low..=high).rev().step_by(every) {
        let at = y(10f64.powi(decade));
        put!(r#"<line class="grid" x1="{LEFT}" y1="{at:.1}" x2="{RIGHT}" y2="{at:.1}"/>"#);
        put!(
            r#"<text class="soft" x="{}" y="{:.1}" text-anchor="end">10<tspan dy="-6" font-size="10">{decade}</tspan></text>"#,
            LEFT - 10.0,
            at + 5.0
        );
    }
    let tick = step(last, 8.0);
    let mut at = 0.0;
    while at <= last {
        put!(r#"<text class="soft" x="{:.1}" y="{}" text-anchor="middle">{at}</text>"#, x(at), BOTTOM + 20.0);
        at += tick;
    }
    let most = iterations.iter().copied().max().unwrap_or(1).max(1) as f64;
    let width = (RIGHT - LEFT) / last;
    for (i, &n) in iterations.iter().enumerate() {
        let height = BARS * (BOTTOM - TOP) * n as f64 / most;
        put!(
            r#"<rect class="bar" x="{:.2}" y="{:.1}" width="{:.2}" height="{height:.1}"/>"#,
            x(i as f64) + 0.15 * width,
            BOTTOM - height,
            0.7 * width
        );
        if iterations.len() <= NUMBERS {
            let middle = x(i as f64 + 0.5);
            put!(
                r#"<text class="soft halo" x="{middle:.1}" y="{:.1}" text-anchor="middle">{n}</text>"#,
                BOTTOM - height - 4.0
            );
        }
    }
    for curve in &curves {
        let (left, right) = (x(curve.from as f64), x((curve.from + curve.norms.len() - 1) as f64));
        if seen(curve.target) {
            let at = y(curve.target);
            put!(r#"<line class="target" x1="{left:.1}" y1="{at:.1}" x2="{right:.1}" y2="{at:.1}"/>"#);
        }
        let mut path = String::new();
        for (k, &v) in curve.norms.iter().enumerate().filter(|(_, v)| seen(**v)) {
            let letter = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{:.1} {:.1}", x((curve.from + k) as f64), y(v));
        }
        put!(r#"<path class="curve" d="{path}"/>"#);
        if iterations.len() <= POINTS {
            for (k, &v) in curve.norms.iter().enumerate().filter(|(_, v)| seen(**v)) {
                put!(
                    r#"<circle class="dot" cx="{:.1}" cy="{:.1}" r="3"/>"#,
                    x((curve.from + k) as f64),
                    y(v)
                );
            }
        }
    }
    if let Some(curve) = curves.last().filter(|c| seen(c.target)) {
        let at = y(curve.target);
        put!(
            r#"<text class="goal halo" x="{}" y="{:.1}">target {}</text>"#,
            LEFT + 8.0,
            if at + 20.0 < BOTTOM { at + 17.0 } else { at - 7.0 },
            number(curve.target)
        );
    }
    let (middle, down) = ((LEFT + RIGHT) / 2.0, (TOP + BOTTOM) / 2.0);
    put!(
        r#"<text class="ink" x="{middle}" y="{}" text-anchor="middle">Newton step; bars: linear iterations</text>"#,
        HEIGHT - 14.0
    );
    put!(
        r#"<text class="ink" transform="translate(22 {down}) rotate(-90)" text-anchor="middle">residual ‖F(x)‖</text>"#
    );
    put!(r#"<rect class="axis" x="{LEFT}" y="{TOP}" width="{}" height="{}"/>"#, RIGHT - LEFT, BOTTOM - TOP);
    put!("</svg>");
    s
}
