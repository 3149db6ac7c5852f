//! The picture as PNG, in the light colours.

use crate::scene::{Anchor, Scene, Shape, Stroke, Thing};
use crate::theme::{Ink, dashes};
use crate::{font, raster};
use tiny_skia::{FillRule, LineCap, LineJoin, Paint, Path, PathBuilder, Pixmap, Rect, StrokeDash, Transform};

/// Pixels per unit: 1120 for the width of a chart, about 190 per inch in print.
pub const SCALE: f64 = 2.0;
const HALO: f32 = 4.0;

impl Scene {
    /// Returns the picture as a PNG file; `None` if it has no size or does not fit the memory.
    pub fn png(&self) -> Option<Vec<u8>> {
        let side = |length: f64| (SCALE * length).ceil() as u32;
        let mut map = Pixmap::new(side(self.width), side(self.height))?;
        let [r, g, b] = Ink::Paper.light();
        map.fill(tiny_skia::Color::from_rgba8(r, g, b, 255));
        for thing in &self.things {
            draw(&mut map, thing);
        }
        encoded(&map).ok()
    }
}

/// Encodes the pixels as a file that names the program.
fn encoded(map: &Pixmap) -> Result<Vec<u8>, png::EncodingError> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, map.width(), map.height());
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.add_text_chunk("Software".into(), "Krylith".into())?;
    let plain = map.pixels().iter().map(|pixel| pixel.demultiply());
    let bytes: Vec<u8> = plain.flat_map(|c| [c.red(), c.green(), c.blue(), c.alpha()]).collect();
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&bytes)?;
    writer.finish()?;
    Ok(file)
}

fn paint(ink: Ink) -> Paint<'static> {
    let mut paint = Paint::default();
    let [r, g, b] = ink.light();
    paint.set_color_rgba8(r, g, b, 255);
    paint
}

fn scaled() -> Transform {
    Transform::from_scale(SCALE as f32, SCALE as f32)
}

fn stroke(map: &mut Pixmap, path: &Path, ink: Ink, width: f32, dash: usize) {
    let dash = dashes(dash).iter().map(|d| *d as f32).collect::<Vec<f32>>();
    let stroke = tiny_skia::Stroke {
        width,
        line_cap: LineCap::Butt,
        line_join: LineJoin::Round,
        dash: StrokeDash::new(dash, 0.0),
        ..Default::default()
    };
    map.stroke_path(path, &paint(ink), &stroke, scaled(), None);
}

fn draw(map: &mut Pixmap, thing: &Thing) {
    match thing {
        Thing::Shape { shape, fill, stroke: line, .. } => {
            let Some(path) = path(shape) else { return };
            if let Some(ink) = fill {
                map.fill_path(&path, &paint(*ink), FillRule::Winding, scaled(), None);
            }
            if let Some(Stroke(ink, width, dash)) = line {
                stroke(map, &path, *ink, *width as f32, *dash);
            }
        }
        Thing::Text { at: [x, y], anchor, size, ink, halo, words } => {
            let left = match anchor {
                Anchor::Start => *x,
                Anchor::Middle => x - 0.5 * font::width(words, *size),
                Anchor::End => x - font::width(words, *size),
            };
            let mut outline = PathBuilder::new();
            font::outline(words, *size, left, *y, &mut outline);
            let Some(path) = outline.finish() else { return };
            if *halo {
                stroke(map, &path, Ink::Paper, HALO, 0);
            }
            map.fill_path(&path, &paint(*ink), FillRule::Winding, scaled(), None);
        }
        Thing::Raster { place: [x, y, w, h], columns, cells } => {
            let [x, y, w, h] = [x, y, w, h].map(|v| SCALE * v);
            let rows = cells.len() / columns.max(&1);
            let (bottom, right) = ((y + h).round() as usize, (x + w).round() as usize);
            let across = map.width() as usize;
            let down = map.height() as usize;
            for row in y.round() as usize..bottom.min(down) {
                let j = (((row as f64 + 0.5 - y) / h * rows as f64) as usize).min(rows.saturating_sub(1));
                for column in x.round() as usize..right.min(across) {
                    let i = (((column as f64 + 0.5 - x) / w * *columns as f64) as usize).min(columns - 1);
                    if let Some([r, g, b]) = cells.get(j * columns + i).copied().and_then(raster::colour) {
                        let pixel = tiny_skia::ColorU8::from_rgba(r, g, b, 255).premultiply();
                        map.pixels_mut()[row * across + column] = pixel;
                    }
                }
            }
        }
    }
}

fn path(shape: &Shape) -> Option<Path> {
    match shape {
        Shape::Rect([x, y, w, h]) => {
            let [x, y, w, h] = [x, y, w, h].map(|v| *v as f32);
            Some(PathBuilder::from_rect(Rect::from_xywh(x, y, w, h)?))
        }
        Shape::Circle([x, y, r]) => PathBuilder::from_circle(*x as f32, *y as f32, *r as f32),
        Shape::Line(points, closed) => {
            let mut line = PathBuilder::new();
            for (k, [x, y]) in points.iter().enumerate() {
                match k {
                    0 => line.move_to(*x as f32, *y as f32),
                    _ => line.line_to(*x as f32, *y as f32),
                }
            }
            if *closed {
                line.close();
            }
            line.finish()
        }
    }
}
