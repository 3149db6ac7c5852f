//! Values on a raster, in colours from dark to light (viridis), with a colour scale.

use crate::font;
use crate::scene::{Anchor, MARGIN, MIDDLE, SMALL, Scene, Shape, Stroke, Thing, WIDTH};
use crate::theme::Ink;
use crate::ticks;
use base64::Engine;

/// Viridis from the smallest value to the largest, interpolated linearly.
const COLOURS: [[u8; 3]; 9] = [
    [68, 1, 84],
    [71, 44, 122],
    [59, 81, 139],
    [44, 113, 142],
    [33, 144, 141],
    [39, 173, 129],
    [92, 200, 99],
    [170, 220, 50],
    [253, 231, 37],
];
/// Number of colour levels; the next index is transparent.
const LEVELS: usize = 255;

/// Returns the colour of a cell; `None` if the cell is empty.
pub fn colour(level: u8) -> Option<[u8; 3]> {
    if usize::from(level) >= LEVELS {
        return None;
    }
    let place = f64::from(level) / (LEVELS - 1) as f64 * (COLOURS.len() - 1) as f64;
    let i = (place as usize).min(COLOURS.len() - 2);
    let share = place - i as f64;
    Some(std::array::from_fn(|c| {
        let (a, b) = (f64::from(COLOURS[i][c]), f64::from(COLOURS[i + 1][c]));
        (a + share * (b - a)).round() as u8
    }))
}

/// Returns an indexed PNG of cells from the top, for a data URL.
pub(crate) fn base64_png(columns: usize, cells: &[u8]) -> String {
    let mut out = Vec::new();
    let rows = cells.len() / columns.max(1);
    let mut encoder = png::Encoder::new(&mut out, columns as u32, rows as u32);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    let palette: Vec<u8> = (0..=255).flat_map(|level| colour(level).unwrap_or_default()).collect();
    encoder.set_palette(palette);
    let mut opaque = vec![255; LEVELS];
    opaque.push(0);
    encoder.set_trns(opaque);
    // Writing to memory fails only for an image without cells, which shows nothing.
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(cells));
    if written.is_err() {
        out.clear();
    }
    base64::engine::general_purpose::STANDARD.encode(out)
}

/// Values on equal cells, with title, unit and axes.
///
/// # Examples
/// ```
/// use krylith_plot::raster::{Raster, draw};
/// let picture = Raster {
///     title: "temperature",
///     subtitle: "a plate of 3×2 cells",
///     unit: "K",
///     columns: 3,
///     rows: 2,
///     values: &[300.0, 310.0, 320.0, 300.0, f64::NAN, 320.0], // a hole in the upper row
///     axes: None,
/// };
/// assert!(draw(&picture).svg().contains("temperature"));
/// ```
pub struct Raster<'a> {
    /// Title of the picture.
    pub title: &'a str,
    /// Subtitle of the picture.
    pub subtitle: &'a str,
    /// Unit of the values; may be empty.
    pub unit: &'a str,
    /// Cells from left to right.
    pub columns: usize,
    /// Cells from bottom to top.
    pub rows: usize,
    /// Values row by row from the bottom; NaN for empty cells.
    pub values: &'a [f64],
    /// Names and ends of the horizontal and the vertical axis; `None` draws no axes.
    pub axes: Option<[(&'a str, [f64; 2]); 2]>,
}

/// Largest height of a raster.
const TALL: f64 = 430.0;
/// Width of the colour scale.
const SCALE: f64 = 14.0;

/// Draws the raster.
pub fn draw(picture: &Raster) -> Scene {
    let (columns, rows) = (picture.columns.max(1), picture.rows.max(1));
    let finite = picture.values.iter().copied().filter(|v| v.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    let (low, high) = if low > high { (0.0, 1.0) } else { (low, high) };
    let low = if low > 0.0 && low < 0.05 * high { 0.0 } else { low };
    let level = |v: f64| {
        let share = if high > low { (v - low) / (high - low) } else { 0.5 };
        if v.is_finite() { (share * (LEVELS - 1) as f64).round() as u8 } else { LEVELS as u8 }
    };
    let value = |k: usize| picture.values.get(k).copied().unwrap_or(f64::NAN);
    // The rows of an image begin at the top.
    let cells: Vec<u8> =
        (0..rows).rev().flat_map(|j| (0..columns).map(move |i| level(value(j * columns + i)))).collect();

    let mut scene = Scene::new(picture.title);
    // The unit is above the colour scale.
    let top = scene.head(picture.subtitle) + MIDDLE + 8.0;
    // Ticks of the colour scale: always the ends, and round numbers in between.
    let marks = ticks::linear(low, high, 5);
    let texts = ticks::texts(&marks);
    let room = texts
        .iter()
        .map(|t| font::width(t, SMALL))
        .fold(30.0, f64::max)
        .max(font::width(picture.unit, MIDDLE) - SCALE);
    let right = WIDTH - MARGIN - room - 10.0 - SCALE - 14.0;
    let mut left = MARGIN;
    let axes = picture.axes.map(|axes| {
        axes.map(|(name, [from, to])| {
            let marks = ticks::linear(from, to, 5);
            let texts = ticks::texts(&marks);
            (name, [from, to], marks, texts)
        })
    });
    if let Some([_, (.., texts)]) = &axes {
        left += texts.iter().map(|t| font::width(t, SMALL)).fold(0.0, f64::max) + 9.0;
    }
    let extent = match &axes {
        Some([x, y]) => (y.1[1] - y.1[0]).abs() / (x.1[1] - x.1[0]).abs(),
        None => rows as f64 / columns as f64,
    };
    let extent = if extent.is_finite() && extent > 0.0 { extent } else { 1.0 };
    let width = (right - left).min(TALL / extent);
    let height = (width * extent).max(24.0);
    let bar = height.max(96.0);
    let place = [left, top, width, height];
    scene.things.push(Thing::Raster { place, columns, cells });
    if let Some([(name, ends, marks, texts), up]) = &axes {
        let px = |v: f64| left + width * (v - ends[0]) / (ends[1] - ends[0]);
        let py = |v: f64| top + height * (up.1[1] - v) / (up.1[1] - up.1[0]);
        let tick = Stroke(Ink::Axis, 1.0, 0);
        for (v, text) in marks.iter().zip(texts) {
            scene.line([px(*v), top + height], [px(*v), top + height + 4.0], tick);
            scene.text([px(*v), top + height + 6.0 + SMALL], Anchor::Middle, SMALL, Ink::Soft, text);
        }
        for (v, text) in up.2.iter().zip(&up.3) {
            scene.line([left - 4.0, py(*v)], [left, py(*v)], tick);
            scene.text([left - 7.0, py(*v) + 0.36 * SMALL], Anchor::End, SMALL, Ink::Soft, text);
        }
        scene.text([MARGIN, top - 10.0], Anchor::Start, MIDDLE, Ink::Text, up.0);
        let y = top + height + SMALL + MIDDLE + 12.0;
        scene.text([left + 0.5 * width, y], Anchor::Middle, MIDDLE, Ink::Text, *name);
    }
    let frame = Some(Stroke(Ink::Axis, 1.0, 0));
    scene.shape(Shape::Rect(place), None, frame, None);
    let at = left + width + 14.0;
    let levels: Vec<u8> = (0..LEVELS as u8).rev().collect();
    scene.things.push(Thing::Raster { place: [at, top, SCALE, bar], columns: 1, cells: levels });
    scene.shape(Shape::Rect([at, top, SCALE, bar]), None, frame, None);
    for (v, text) in marks.iter().zip(&texts) {
        let y = if high > low { top + bar * (high - v) / (high - low) } else { top + 0.5 * bar };
        scene.line([at + SCALE, y], [at + SCALE + 4.0, y], Stroke(Ink::Axis, 1.0, 0));
        scene.text([at + SCALE + 8.0, y + 0.36 * SMALL], Anchor::Start, SMALL, Ink::Soft, text);
    }
    scene.text([at, top - 10.0], Anchor::Start, MIDDLE, Ink::Text, picture.unit);
    scene.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{assert_legible, assert_well_formed};

    #[test]
    fn any_values_give_a_picture() {
        let up = Some([("x", [0.0, 1.5]), ("y", [0.0, 1.0])]);
        for values in [vec![0.0; 6], vec![f64::NAN; 6], vec![1.0, 2.0, f64::NAN, 4.0, f64::INFINITY, -1e300]]
        {
            for axes in [None, up] {
                let title = "a < b";
                let scene = draw(&Raster {
                    title,
                    subtitle: "of",
                    unit: "m/s",
                    columns: 3,
                    rows: 2,
                    values: &values,
                    axes,
                });
                let svg = scene.svg();
                assert!(svg.contains("a &lt; b"));
                assert_well_formed(&svg);
                assert_legible(&scene);
                assert!(scene.png().unwrap().starts_with(b"\x89PNG"));
            }
        }
        assert_eq!((colour(0), colour(254), colour(255)), (Some(COLOURS[0]), Some(COLOURS[8]), None));
    }

    #[test]
    fn the_first_row_is_the_lowest() {
        let values = [0.0, 0.0, 1.0, 1.0];
        let picture =
            Raster { title: "", subtitle: "", unit: "", columns: 2, rows: 2, values: &values, axes: None };
        let scene = draw(&picture);
        let cells = scene.things.iter().find_map(|t| match t {
            Thing::Raster { columns: 2, cells, .. } => Some(cells.clone()),
            _ => None,
        });
        assert_eq!(cells, Some(vec![254, 254, 0, 0]));
    }
}
