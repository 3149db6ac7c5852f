//! The font: widths and outlines of text. Browsers may use another font, which is seldom wider than this one.

use std::sync::LazyLock;
use ttf_parser::{Face, GlyphId, OutlineBuilder};

static DATA: &[u8] = include_bytes!("../font/DejaVuSans-subset.ttf");
static FACE: LazyLock<Option<Face<'static>>> = LazyLock::new(|| Face::parse(DATA, 0).ok());

/// Returns the glyph of a character, or a replacement if the font has none.
fn glyph(face: &Face, c: char) -> GlyphId {
    face.glyph_index(c).unwrap_or(GlyphId(0))
}

/// Returns the width of a line of text at a font size.
pub fn width(text: &str, size: f64) -> f64 {
    let Some(face) = &*FACE else { return 0.6 * size * text.chars().count() as f64 };
    let advance = |c| face.glyph_hor_advance(glyph(face, c)).unwrap_or(0);
    let units: f64 = text.chars().map(|c| f64::from(advance(c))).sum();
    units * size / f64::from(face.units_per_em())
}

/// Returns the text, shortened by an ellipsis if it is wider than `most`.
pub fn fit(text: &str, size: f64, most: f64) -> String {
    if width(text, size) <= most {
        return text.into();
    }
    let mut short: String = text.into();
    while !short.is_empty() && width(&short, size) + width("…", size) > most {
        short.pop();
    }
    format!("{}…", short.trim_end())
}

/// Breaks the text into at most `lines` lines no wider than `most`, at spaces and after commas.
pub fn wrap(text: &str, size: f64, most: f64, lines: usize) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for word in text.split_inclusive([' ', ',']) {
        let longer = out.last().map(|line| format!("{line}{word}"));
        match (out.last_mut(), longer) {
            (Some(line), Some(longer)) if width(longer.trim_end(), size) <= most => *line = longer,
            _ => out.push(word.into()),
        }
    }
    if out.len() > lines {
        let rest = out.drain(lines.max(1) - 1..).collect::<String>();
        out.push(rest);
    }
    out.iter().map(|line| fit(line.trim(), size, most)).collect()
}

/// Sends the outlines of a line of text that begins at (x, y) to `to`.
pub(crate) fn outline(text: &str, size: f64, x: f64, y: f64, to: &mut tiny_skia::PathBuilder) {
    let Some(face) = &*FACE else { return };
    let scale = size / f64::from(face.units_per_em());
    let mut at = x;
    for c in text.chars() {
        let id = glyph(face, c);
        let mut pen = Pen { x: at as f32, y: y as f32, scale: scale as f32, to };
        face.outline_glyph(id, &mut pen); // a space has no outline
        at += scale * f64::from(face.glyph_hor_advance(id).unwrap_or(0));
    }
}

/// Flips the y axis: font outlines point up, the picture down.
struct Pen<'a> {
    x: f32,
    y: f32,
    scale: f32,
    to: &'a mut tiny_skia::PathBuilder,
}

impl Pen<'_> {
    fn at(&self, x: f32, y: f32) -> (f32, f32) {
        (self.x + self.scale * x, self.y - self.scale * y)
    }
}

impl OutlineBuilder for Pen<'_> {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.to.move_to(x, y);
    }
    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.to.line_to(x, y);
    }
    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.at(x1, y1), self.at(x, y));
        self.to.quad_to(x1, y1, x, y);
    }
    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ((x1, y1), (x2, y2), (x, y)) = (self.at(x1, y1), self.at(x2, y2), self.at(x, y));
        self.to.cubic_to(x1, y1, x2, y2, x, y);
    }
    fn close(&mut self) {
        self.to.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_measured_shortened_and_broken() {
        // DejaVu Sans: a digit is 1303 of 2048 units wide, a space 651.
        assert!((width("0", 2048.0) - 1303.0).abs() < 1e-9 && (width(" 0", 2048.0) - 1954.0).abs() < 1e-9);
        assert_eq!(fit("short", 10.0, 100.0), "short");
        let cut = fit("a rather long line", 10.0, 50.0);
        assert!(cut.ends_with('…') && width(&cut, 10.0) <= 50.0, "{cut}");
        let lines = wrap("one two three four five six", 10.0, 60.0, 2);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("one two") && lines[1].ends_with('…'), "{lines:?}");
        assert!(lines.iter().all(|line| width(line, 10.0) <= 60.0));
        assert!(wrap("", 10.0, 60.0, 2).is_empty());
        assert_eq!(wrap("stokes:4x4x4,tau=0.25", 10.0, 90.0, 2), ["stokes:4x4x4,", "tau=0.25"]);
        assert_eq!(wrap("a, b", 10.0, 90.0, 2), ["a, b"]);
    }

    #[test]
    fn letters_of_the_field_are_there() {
        let face = FACE.as_ref().unwrap();
        for c in "azAZ09‖⁻⁰⁹µγτω√Σ≤≥≈×·−–—…∞∇∂éüß°ₖᵀ¹₀ᵢ".chars()
        {
            assert!(face.glyph_index(c).is_some(), "{c}");
        }
    }
}
