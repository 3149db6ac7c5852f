//! The content of a picture, before it is written as SVG or PNG.

use crate::font;
use crate::theme::{Ink, dashes, style};
use std::fmt::Write;

/// Width of every chart; text of 13 units is about 9 pixels high on a page 420 pixels wide.
pub const WIDTH: f64 = 560.0;
/// Size of numbers at ticks, legends and remarks.
pub const SMALL: f64 = 13.0;
/// Size of names of axes.
pub const MIDDLE: f64 = 13.5;
/// Size of titles.
pub const LARGE: f64 = 16.0;
/// Free space at the edges.
pub const MARGIN: f64 = 14.0;

/// Position of a text relative to its x.
///
/// # Examples
/// ```
/// use krylith_plot::{scene::{Anchor, SMALL, Scene}, theme::Ink};
/// let mut scene = Scene::new("a note");
/// scene.text([100.0, 20.0], Anchor::End, SMALL, Ink::Soft, "ends at 100");
/// assert_eq!(scene.things.len(), 1);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// x is the left end of the text.
    Start,
    /// x is the middle of the text.
    Middle,
    /// x is the right end of the text.
    End,
}

/// An outline.
///
/// # Examples
/// ```
/// use krylith_plot::{scene::{Scene, Shape}, theme::Ink};
/// let mut scene = Scene::new("a node");
/// scene.shape(Shape::Circle([10.0, 10.0, 3.0]), Some(Ink::Series(0)), None, Some("node 7".into()));
/// assert!(scene.svg().contains("node 7")); // told to a pointer
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// Left, top, width and height.
    Rect([f64; 4]),
    /// Centre and radius.
    Circle([f64; 3]),
    /// Points joined by lines; true if the outline is closed.
    Line(Vec<[f64; 2]>, bool),
}

/// Ink, width and number of dashes of a line.
///
/// # Examples
/// ```
/// use krylith_plot::{scene::{Scene, Stroke}, theme::Ink};
/// let mut scene = Scene::new("what was to be reached");
/// scene.line([0.0, 50.0], [560.0, 50.0], Stroke(Ink::Good, 1.5, 2)); // dashed
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stroke(pub Ink, pub f64, pub usize);

/// An item of a picture.
///
/// # Examples
/// ```
/// use krylith_plot::{scene::{Anchor, SMALL, Scene, Thing}, theme::Ink};
/// let mut scene = Scene::new("a note");
/// scene.text([0.0, 20.0], Anchor::Start, SMALL, Ink::Text, "first");
/// let words = scene.things.iter().filter_map(|thing| match thing {
///     Thing::Text { words, .. } => Some(&words[..]),
///     _ => None,
/// });
/// assert_eq!(words.collect::<Vec<_>>(), ["first"]);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Thing {
    /// An outline, with a hint that appears under the pointer.
    Shape {
        /// The outline.
        shape: Shape,
        /// Ink of the interior.
        fill: Option<Ink>,
        /// Stroke of the outline.
        stroke: Option<Stroke>,
        /// Text shown when the pointer is over the outline.
        hint: Option<String>,
    },
    /// One line of text.
    Text {
        /// Position of the anchor, on the baseline.
        at: [f64; 2],
        /// The part of the text at that position.
        anchor: Anchor,
        /// Size of the letters.
        size: f64,
        /// Ink of the letters.
        ink: Ink,
        /// True for a background-coloured halo around the letters, to stay legible over lines.
        halo: bool,
        /// The text.
        words: String,
    },
    /// A raster of colour indices.
    Raster {
        /// Left, top, width and height.
        place: [f64; 4],
        /// Cells from left to right.
        columns: usize,
        /// Indices of [`crate::raster::colour`], from the top.
        cells: Vec<u8>,
    },
}

/// A picture.
///
/// # Examples
/// ```
/// use krylith_plot::lines::curves;
/// let residuals = [1.0, 1e-2, 1e-5, 1e-9];
/// let scene = curves("CG, Jacobi", &[("residual".into(), &residuals[..])]);
/// let svg = scene.svg(); // follows light and dark
/// assert!(svg.starts_with("<svg") && svg.contains("CG, Jacobi"));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Scene {
    /// Width in units.
    pub width: f64,
    /// Height in units.
    pub height: f64,
    /// Title, read by assistive technology.
    pub title: String,
    /// Longer description, read by assistive technology.
    pub description: String,
    /// Items in the order of drawing.
    pub things: Vec<Thing>,
}

impl Scene {
    /// Creates an empty picture that is [`WIDTH`] wide.
    pub fn new(title: &str) -> Self {
        Self {
            width: WIDTH,
            height: 0.0,
            title: title.into(),
            description: String::new(),
            things: Vec::new(),
        }
    }

    /// Draws the title and lines of a subtitle; returns the y at which the rest may begin.
    pub fn head(&mut self, subtitle: &str) -> f64 {
        let (most, mut y) = (self.width - 2.0 * MARGIN, MARGIN);
        for line in font::wrap(&self.title.clone(), LARGE, most, 4) {
            y += LARGE + 3.0;
            self.text([MARGIN, y - 3.0], Anchor::Start, LARGE, Ink::Text, line);
        }
        for line in font::wrap(subtitle, SMALL, most, 3) {
            y += SMALL + 4.0;
            self.text([MARGIN, y], Anchor::Start, SMALL, Ink::Soft, line);
        }
        self.description = subtitle.into();
        y + 10.0
    }

    /// Adds one line of text.
    pub fn text(&mut self, at: [f64; 2], anchor: Anchor, size: f64, ink: Ink, words: impl Into<String>) {
        self.things.push(Thing::Text { at, anchor, size, ink, halo: false, words: words.into() });
    }

    /// Adds one line of text with a background-coloured halo, for text over lines.
    pub fn over(&mut self, at: [f64; 2], anchor: Anchor, ink: Ink, words: impl Into<String>) {
        self.things.push(Thing::Text { at, anchor, size: SMALL, ink, halo: true, words: words.into() });
    }

    /// Adds a straight line.
    pub fn line(&mut self, from: [f64; 2], to: [f64; 2], stroke: Stroke) {
        self.shape(Shape::Line(vec![from, to], false), None, Some(stroke), None);
    }

    /// Adds a filled rectangle.
    pub fn rect(&mut self, place: [f64; 4], fill: Ink, hint: Option<String>) {
        self.shape(Shape::Rect(place), Some(fill), None, hint);
    }

    /// Adds an outline.
    pub fn shape(&mut self, shape: Shape, fill: Option<Ink>, stroke: Option<Stroke>, hint: Option<String>) {
        self.things.push(Thing::Shape { shape, fill, stroke, hint });
    }

    /// Adds the marker of series `k`. There are four forms, filled and hollow; beyond eight series, when
    /// colours repeat, the forms differ.
    pub fn mark(&mut self, k: usize, [x, y]: [f64; 2], hint: Option<String>) {
        let r = 3.6;
        let polygon = |points: &[[f64; 2]]| {
            Shape::Line(points.iter().map(|p| [x + r * p[0], y + r * p[1]]).collect(), true)
        };
        let shape = match (k + k / 8) % 4 {
            0 => Shape::Circle([x, y, r]),
            1 => Shape::Rect([x - 0.9 * r, y - 0.9 * r, 1.8 * r, 1.8 * r]),
            2 => polygon(&[[0.0, -1.25], [1.15, 0.85], [-1.15, 0.85]]),
            _ => polygon(&[[0.0, -1.35], [1.2, 0.0], [0.0, 1.35], [-1.2, 0.0]]),
        };
        let ink = Ink::Series(k);
        let fill = if k % 8 < 4 { ink } else { Ink::Paper };
        self.shape(shape, Some(fill), Some(Stroke(ink, 1.5, 0)), hint);
    }

    /// Sets the height of the picture to that of its content.
    pub fn finish(mut self) -> Self {
        let lowest = |thing: &Thing| match thing {
            Thing::Text { .. } => Self::extent(thing).map_or(0.0, |e| e[3]),
            Thing::Raster { place: [_, y, _, h], .. } => y + h,
            Thing::Shape { shape: Shape::Rect([_, y, _, h]), .. } => y + h,
            Thing::Shape { shape: Shape::Circle([_, y, r]), .. } => y + r,
            Thing::Shape { shape: Shape::Line(points, _), .. } => {
                points.iter().map(|p| p[1]).fold(0.0, f64::max)
            }
        };
        self.height = (self.things.iter().map(lowest).fold(0.0, f64::max) + MARGIN).ceil();
        self
    }

    /// Returns the bounding box of a text: left, top, right and bottom.
    pub fn extent(thing: &Thing) -> Option<[f64; 4]> {
        let Thing::Text { at: [x, y], anchor, size, words, .. } = thing else { return None };
        let width = font::width(words, *size);
        let left = match anchor {
            Anchor::Start => *x,
            Anchor::Middle => x - 0.5 * width,
            Anchor::End => x - width,
        };
        Some([left, y - 0.76 * size, left + width, y + 0.22 * size])
    }

    /// Returns the picture as SVG, which loads nothing and follows the reader's light or dark setting.
    pub fn svg(&self) -> String {
        let mut s = String::new();
        let (w, h) = (short(self.width), short(self.height));
        // Writing to a String cannot fail.
        let _ = writeln!(
            s,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{}\" style=\"max-width:100%;height:auto\" \
             role=\"img\" font-family=\"system-ui,-apple-system,'Segoe UI','DejaVu Sans',Helvetica,Arial,sans-serif\">\n\
             <title>{}</title><desc>{}</desc>\n{}\n<rect width=\"{w}\" height=\"{h}\" fill=\"{}\" class=\"f-paper\"/>",
            short(1.5 * self.width),
            escape(&self.title),
            escape(&self.description),
            style(),
            Ink::Paper.hex(),
        );
        for thing in &self.things {
            write_thing(&mut s, thing);
        }
        s + "</svg>\n"
    }
}

fn write_thing(s: &mut String, thing: &Thing) {
    let _ = match thing {
        Thing::Shape { shape, fill, stroke, hint } => {
            let (mut paint, mut classes) = (String::new(), Vec::new());
            match fill {
                Some(ink) => {
                    let _ = write!(paint, " fill=\"{}\"", ink.hex());
                    classes.push(format!("f-{}", ink.name()));
                }
                None => paint += " fill=\"none\"",
            }
            if let Some(Stroke(ink, width, dash)) = stroke {
                let _ = write!(paint, " stroke=\"{}\" stroke-width=\"{}\"", ink.hex(), short(*width));
                classes.push(format!("k-{}", ink.name()));
                let dashes = dashes(*dash).iter().map(|d| short(*d)).collect::<Vec<_>>().join(" ");
                if !dashes.is_empty() {
                    let _ = write!(paint, " stroke-dasharray=\"{dashes}\"");
                }
                if matches!(shape, Shape::Line(points, _) if points.len() > 2) {
                    paint += " stroke-linejoin=\"round\"";
                }
            }
            let (tag, place) = match shape {
                Shape::Rect([x, y, w, h]) => (
                    "rect",
                    format!(
                        "x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"",
                        short(*x),
                        short(*y),
                        short(*w),
                        short(*h)
                    ),
                ),
                Shape::Circle([x, y, r]) => {
                    ("circle", format!("cx=\"{}\" cy=\"{}\" r=\"{}\"", short(*x), short(*y), short(*r)))
                }
                Shape::Line(points, closed) => {
                    let points: Vec<String> =
                        points.iter().map(|[x, y]| format!("{},{}", short(*x), short(*y))).collect();
                    (if *closed { "polygon" } else { "polyline" }, format!("points=\"{}\"", points.join(" ")))
                }
            };
            let class = classes.join(" ");
            match hint {
                None => writeln!(s, "<{tag} {place}{paint} class=\"{class}\"/>"),
                Some(hint) => {
                    writeln!(
                        s,
                        "<{tag} {place}{paint} class=\"{class}\"><title>{}</title></{tag}>",
                        escape(hint)
                    )
                }
            }
        }
        Thing::Text { at: [x, y], anchor, size, ink, halo, words } => {
            let anchor = match anchor {
                Anchor::Start => "",
                Anchor::Middle => " text-anchor=\"middle\"",
                Anchor::End => " text-anchor=\"end\"",
            };
            let (halo, class) = match halo {
                true => (
                    format!(
                        " stroke=\"{}\" stroke-width=\"4\" stroke-linejoin=\"round\" paint-order=\"stroke\"",
                        Ink::Paper.hex()
                    ),
                    " k-paper",
                ),
                false => (String::new(), ""),
            };
            writeln!(
                s,
                "<text x=\"{}\" y=\"{}\"{anchor} font-size=\"{}\" fill=\"{}\"{halo} class=\"f-{}{class}\">{}</text>",
                short(*x),
                short(*y),
                short(*size),
                ink.hex(),
                ink.name(),
                escape(words)
            )
        }
        Thing::Raster { place: [x, y, w, h], columns, cells } => writeln!(
            s,
            "<image x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" preserveAspectRatio=\"none\" image-rendering=\"pixelated\" \
             href=\"data:image/png;base64,{}\"/>",
            short(*x),
            short(*y),
            short(*w),
            short(*h),
            crate::raster::base64_png(*columns, cells)
        ),
    };
}

/// Formats a coordinate with two digits after the point.
fn short(v: f64) -> String {
    let text = format!("{:.2}", if v.is_finite() { v } else { 0.0 });
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// Escapes text for use between tags and in attributes.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
