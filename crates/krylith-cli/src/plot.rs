//! The convergence picture: a self-contained SVG, readable on light and dark.
//!
//! Written here and not by a plotting crate: one curve, and a style sheet that follows the viewer's colour scheme.

use krylith::Result;
use std::fmt::Write;
use std::path::Path;

/// What the picture shows.
pub struct Plot<'a> {
    /// The system.
    pub title: &'a str,
    /// Method, preconditioner and outcome.
    pub subtitle: &'a str,
    /// ‖r‖/‖b‖, from iteration 0.
    pub residuals: &'a [f64],
    /// ‖b − A x‖/‖b‖ at the end.
    pub true_residual: f64,
    /// ‖r‖/‖b‖ that ends the solve.
    pub target: f64,
    /// Iterations at which a cycle began.
    pub restarts: &'a [usize],
    /// The curve's ending is a success.
    pub converged: bool,
}

pub(crate) const WIDTH: f64 = 860.0;
pub(crate) const HEIGHT: f64 = 480.0;
pub(crate) const LEFT: f64 = 78.0;
pub(crate) const RIGHT: f64 = WIDTH - 28.0;
pub(crate) const TOP: f64 = 84.0;
pub(crate) const BOTTOM: f64 = HEIGHT - 58.0;
/// Points of a curve beyond which no eye can tell.
const POINTS: usize = 2000;
/// Restart lines beyond which they would be a grey wall.
const MARKS: usize = 60;

pub(crate) const STYLE: &str = "\
:root{color-scheme:light dark}
.paper{fill:#ffffff}.ink{fill:#1d2733}.soft{fill:#5b6776}
text{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',Helvetica,Arial,sans-serif;font-size:13px}
.title{font-size:17px;font-weight:600}
.halo{paint-order:stroke;stroke:#ffffff;stroke-width:5px;stroke-linejoin:round}
.grid{stroke:#e3e7ec;stroke-width:1}.minor{stroke:#f1f3f6;stroke-width:1}.axis{stroke:#8a95a3;stroke-width:1;fill:none}
.curve{fill:none;stroke:#1f6fd1;stroke-width:2;stroke-linejoin:round}
.dot{fill:#1f6fd1}.target{stroke:#1c8a4a;stroke-width:1.5;stroke-dasharray:7 5}.goal{fill:#167a40}
.restart{stroke:#c77d11;stroke-width:1;stroke-dasharray:2 4}.turn{fill:#a8680b}
.good{fill:#1c8a4a}.bad{fill:#cc3a2f}
@media (prefers-color-scheme:dark){
.paper{fill:#12171e}.ink{fill:#e8edf3}.soft{fill:#9aa7b6}
.grid{stroke:#2a333e}.minor{stroke:#1c232c}.axis{stroke:#6b7786}
.curve{stroke:#68aefc}.dot{fill:#68aefc}.target{stroke:#4cc27f}.goal{fill:#5fd091}
.restart{stroke:#e0a341}.turn{fill:#e6b15c}.halo{stroke:#12171e}.good{fill:#4cc27f}.bad{fill:#ff7b6e}
}";

/// Writes the picture; it appears whole or not at all.
///
/// # Errors
/// What the file system says.
pub fn write(path: &Path, plot: &Plot) -> Result<()> {
    let svg = draw(plot);
    krylith::io::atomic::write(path, |out| out.write_all(svg.as_bytes()))
}

/// The scales: iterations to x, decades to y.
struct Axes {
    last: f64,
    low: i32,
    high: i32,
}

impl Axes {
    fn new(plot: &Plot) -> Self {
        let seen = plot.residuals.iter().chain([&plot.target, &plot.true_residual]);
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for r in seen.filter(|r| r.is_finite() && **r > 0.0) {
            (low, high) = (low.min(r.log10()), high.max(r.log10()));
        }
        if low > high {
            (low, high) = (-1.0, 0.0); // nothing to show but the frame
        }
        let (low, mut high) = ((low - 0.05).floor() as i32, (high - 0.02).ceil() as i32);
        high = high.max(low + 1);
        Self { last: (plot.residuals.len().max(2) - 1) as f64, low, high }
    }

    fn x(&self, iteration: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * iteration / self.last
    }

    fn y(&self, r: f64) -> f64 {
        let share = (self.high as f64 - r.log10()) / (self.high - self.low) as f64;
        TOP + (BOTTOM - TOP) * share.clamp(0.0, 1.0)
    }
}

/// A step of 1, 2 or 5 times a power of ten that gives about `ticks` of them; at least 1.
pub(crate) fn step(range: f64, ticks: f64) -> f64 {
    let raw = range / ticks;
    let scale = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * scale).find(|s| *s >= raw).unwrap_or(raw);
    step.max(1.0)
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

pub(crate) fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.into();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// The picture as text.
pub fn draw(plot: &Plot) -> String {
    let (axes, mut s) = (Axes::new(plot), String::new());
    // Writing to a String cannot fail.
    macro_rules! put { ($($t:tt)*) => {{ let _ = writeln!(s, $($t)*); }}; }
    put!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">"#
    );
    put!(
        "<title>{}</title>\n<desc>{}</desc>\n<style>{STYLE}</style>",
        escape(plot.title),
        escape(plot.subtitle)
    );
    put!(r#"<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="6"/>"#);
    put!(r#"<text class="ink title" x="{LEFT}" y="34">{}</text>"#, escape(&shorten(plot.title, 76)));
    put!(
        r#"<circle class="{}" cx="{}" cy="53" r="4.5"/><text class="soft" x="{}" y="57.5">{}</text>"#,
        if plot.converged { "good" } else { "bad" },
        LEFT + 5.0,
        LEFT + 17.0,
        escape(&shorten(plot.subtitle, 120))
    );
    grid(&axes, &mut s);

    let shown = if plot.restarts.len() <= MARKS { plot.restarts } else { &[] };
    for &i in shown {
        let x = axes.x(i as f64);
        put!(r#"<line class="restart" x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{BOTTOM}"/>"#);
    }
    if plot.target.is_finite() && plot.target > 0.0 {
        let y = axes.y(plot.target);
        put!(r#"<line class="target" x1="{LEFT}" y1="{y:.1}" x2="{RIGHT}" y2="{y:.1}"/>"#);
        put!(
            r#"<text class="goal halo" x="{}" y="{:.1}">target {}</text>"#,
            LEFT + 8.0,
            // Below the line, unless that is off the picture.
            if y + 20.0 < BOTTOM { y + 17.0 } else { y - 7.0 },
            number(plot.target)
        );
    }
    if !plot.restarts.is_empty() {
        let n = plot.restarts.len();
        let more = if shown.is_empty() { " (not drawn)" } else { "" };
        let plural = if n == 1 { "" } else { "s" };
        put!(
            r#"<text class="turn halo" x="{}" y="{}" text-anchor="end">{n} restart{plural}{more}</text>"#,
            RIGHT - 8.0,
            TOP + 18.0
        );
    }
    curve(plot, &axes, &mut s);
    put!(r#"<rect class="axis" x="{LEFT}" y="{TOP}" width="{}" height="{}"/>"#, RIGHT - LEFT, BOTTOM - TOP);
    put!("</svg>");
    s
}

fn grid(axes: &Axes, s: &mut String) {
    macro_rules! put { ($($t:tt)*) => {{ let _ = writeln!(s, $($t)*); }}; }
    let decades = axes.high - axes.low;
    let every = (decades as f64 / 8.0).ceil().max(1.0) as i32;
    for d in axes.low..=axes.high {
        if decades <= 4 && d < axes.high {
            for m in 2..=9 {
                let y = axes.y(m as f64 * 10f64.powi(d));
                put!(r#"<line class="minor" x1="{LEFT}" y1="{y:.1}" x2="{RIGHT}" y2="{y:.1}"/>"#);
            }
        }
        if (axes.high - d) % every == 0 {
            let y = axes.y(10f64.powi(d));
            put!(r#"<line class="grid" x1="{LEFT}" y1="{y:.1}" x2="{RIGHT}" y2="{y:.1}"/>"#);
            put!(
                r#"<text class="soft" x="{}" y="{:.1}" text-anchor="end">10<tspan dy="-6" font-size="10">{d}</tspan></text>"#,
                LEFT - 10.0,
                y + 5.0
            );
        }
    }
    let step = step(axes.last, 8.0);
    let mut i = 0.0;
    while i <= axes.last {
        let x = axes.x(i);
        put!(r#"<line class="grid" x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{BOTTOM}"/>"#);
        put!(r#"<text class="soft" x="{x:.1}" y="{}" text-anchor="middle">{i}</text>"#, BOTTOM + 20.0);
        i += step;
    }
    let (middle, down) = ((LEFT + RIGHT) / 2.0, (TOP + BOTTOM) / 2.0);
    put!(r#"<text class="ink" x="{middle}" y="{}" text-anchor="middle">iteration</text>"#, HEIGHT - 14.0);
    put!(
        r#"<text class="ink" transform="translate(22 {down}) rotate(-90)" text-anchor="middle">relative residual ‖r‖ / ‖b‖</text>"#
    );
}

fn curve(plot: &Plot, axes: &Axes, s: &mut String) {
    macro_rules! put { ($($t:tt)*) => {{ let _ = writeln!(s, $($t)*); }}; }
    let n = plot.residuals.len();
    let mut path = String::new();
    let mut pen_down = false;
    let visible = |r: f64| r.is_finite() && r > 0.0;
    // Every k-th point of a long history, and always the last.
    let stride = n.div_ceil(POINTS).max(1);
    for i in (0..n).step_by(stride).chain((n > 0 && !(n - 1).is_multiple_of(stride)).then(|| n - 1)) {
        let r = plot.residuals[i];
        if !visible(r) {
            pen_down = false;
            continue;
        }
        let letter = if pen_down { 'L' } else { 'M' };
        let _ = write!(path, "{letter}{:.1} {:.1}", axes.x(i as f64), axes.y(r));
        pen_down = true;
    }
    put!(r#"<path class="curve" d="{path}"/>"#);
    if n <= 41 {
        for (i, &r) in plot.residuals.iter().enumerate().filter(|(_, r)| visible(**r)) {
            put!(r#"<circle class="dot" cx="{:.1}" cy="{:.1}" r="3"/>"#, axes.x(i as f64), axes.y(r));
        }
    }
    if n > 0 && visible(plot.true_residual) {
        let (x, y) = (axes.x((n - 1) as f64), axes.y(plot.true_residual));
        let class = if plot.converged { "good" } else { "bad" };
        let jumps = n > 1 && plot.residuals[n - 2] < plot.true_residual;
        put!(r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="5"/>"#);
        put!(
            r#"<text class="ink halo" x="{:.1}" y="{:.1}" text-anchor="end">true residual {}</text>"#,
            x - 8.0,
            // A falling curve leaves the place below its end free, one that jumps up the place above.
            if y + 24.0 < BOTTOM && !jumps { y + 19.0 } else { y - 12.0 },
            number(plot.true_residual)
        );
    }
}

/// 1.2·10⁻⁶ as `1.2e-6`; whole powers without the 1.0.
pub(crate) fn number(x: f64) -> String {
    let text = format!("{x:.1e}");
    text.replace(".0e", "e")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(residuals: &[f64]) -> String {
        draw(&Plot {
            title: "A<b>.mtx & more",
            subtitle: "GMRES(30)",
            residuals,
            true_residual: residuals.last().copied().unwrap_or(f64::NAN),
            target: 1e-6,
            restarts: &[1],
            converged: true,
        })
    }

    #[test]
    fn any_history_gives_a_picture() {
        let long: Vec<f64> = (0..100_000).map(|i| 0.9999f64.powi(i)).collect();
        for residuals in
            [&[][..], &[0.0], &[1.0], &[1.0, f64::NAN, 1e-7], &[f64::INFINITY], &[1e300, 1e-300], &long]
        {
            let svg = plot(residuals);
            assert!(svg.contains("A&lt;b&gt;.mtx &amp; more") && svg.ends_with("</svg>\n"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            assert!(svg.len() < 80_000, "{} bytes for {} points", svg.len(), residuals.len());
        }
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!((step(100.0, 8.0), step(7.0, 8.0), step(1234.0, 8.0)), (20.0, 1.0, 200.0));
    }
}
