//! A solution in colours: a raster as an indexed PNG without compression, within an SVG that has the title and the scale.

use crate::plot::{escape, number, shorten};
use krylith_problems::nonlinear::Picture;
use std::fmt::Write;
use std::path::Path;

/// Colours from the smallest value to the largest: viridis, with straight lines between.
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
/// Levels of colour; the index behind them is transparent.
const LEVELS: usize = 255;
/// The longer side of the raster, in the units of the SVG.
const SIDE: f64 = 560.0;
const MARGIN: f64 = 24.0;
const HEAD: f64 = 64.0;
const SCALE: f64 = 110.0;

/// Writes the picture; it appears whole or not at all.
///
/// # Errors
/// What the file system says.
pub fn write(picture: &Picture, spec: &str, path: &Path) -> krylith::Result<()> {
    let svg = draw(picture, spec);
    krylith::io::atomic::write(path, |out| out.write_all(svg.as_bytes()))
}

fn draw(picture: &Picture, spec: &str) -> String {
    let (columns, rows) = (picture.columns, picture.rows);
    let finite = picture.values.iter().copied().filter(|v| v.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    let (low, high) = if low > high { (0.0, 1.0) } else { (low, high) };
    let index = |v: f64| {
        let share = if high > low { (v - low) / (high - low) } else { 0.5 };
        if v.is_finite() { (share * (LEVELS - 1) as f64).round() as u8 } else { LEVELS as u8 }
    };
    // An image begins at the top.
    let pixels: Vec<u8> = (0..rows)
        .rev()
        .flat_map(|j| picture.values[j * columns..(j + 1) * columns].iter().map(|v| index(*v)))
        .collect();
    let scale = SIDE / columns.max(rows) as f64;
    let (width, height) = (columns as f64 * scale, rows as f64 * scale);
    let (whole, tall) = (MARGIN + width + SCALE, HEAD + height + MARGIN);

    let mut s = String::new();
    macro_rules! put { ($($t:tt)*) => {{ let _ = writeln!(s, $($t)*); }}; }
    put!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole:.0} {tall:.0}" width="{whole:.0}" height="{tall:.0}" role="img">"#
    );
    put!(
        "<title>{}: {}</title>\n<style>{}</style>",
        escape(spec),
        escape(&picture.title),
        crate::plot::STYLE
    );
    put!(r#"<rect class="paper" width="{whole:.0}" height="{tall:.0}" rx="6"/>"#);
    put!(r#"<text class="ink title" x="{MARGIN}" y="30">{}</text>"#, escape(&shorten(&picture.title, 60)));
    put!(r#"<text class="soft" x="{MARGIN}" y="50">{}</text>"#, escape(&shorten(spec, 80)));
    put!(
        r#"<image x="{MARGIN}" y="{HEAD}" width="{width:.1}" height="{height:.1}" preserveAspectRatio="none" image-rendering="pixelated" href="data:image/png;base64,{}"/>"#,
        base64(&png(columns, rows, &pixels))
    );
    let (left, bar) = (MARGIN + width + 16.0, [16.0, height]);
    let colours: Vec<u8> = (0..LEVELS as u8).rev().collect();
    put!(
        r#"<image x="{left:.1}" y="{HEAD}" width="{:.1}" height="{:.1}" preserveAspectRatio="none" href="data:image/png;base64,{}"/>"#,
        bar[0],
        bar[1],
        base64(&png(1, LEVELS, &colours))
    );
    for (value, at) in
        [(high, HEAD + 10.0), (0.5 * (low + high), HEAD + height / 2.0 + 4.0), (low, HEAD + height)]
    {
        put!(r#"<text class="soft" x="{:.1}" y="{at:.1}">{}</text>"#, left + 22.0, number(value));
    }
    put!("</svg>");
    s
}

/// Colour `level` of [`LEVELS`].
fn colour(level: usize) -> [u8; 3] {
    let place = level as f64 / (LEVELS - 1) as f64 * (COLOURS.len() - 1) as f64;
    let i = (place as usize).min(COLOURS.len() - 2);
    let share = place - i as f64;
    std::array::from_fn(|c| {
        let (a, b) = (f64::from(COLOURS[i][c]), f64::from(COLOURS[i + 1][c]));
        (a + share * (b - a)).round() as u8
    })
}

/// An indexed PNG of these pixels, from the top.
fn png(columns: usize, rows: usize, pixels: &[u8]) -> Vec<u8> {
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = (columns as u32).to_be_bytes().to_vec();
    header.extend((rows as u32).to_be_bytes());
    header.extend([8, 3, 0, 0, 0]); // 8 bits, a palette, no interlacing
    chunk(&mut out, b"IHDR", &header);
    let palette: Vec<u8> = (0..LEVELS).flat_map(colour).chain([0; 3]).collect();
    chunk(&mut out, b"PLTE", &palette);
    let mut opaque = vec![255; LEVELS];
    opaque.push(0);
    chunk(&mut out, b"tRNS", &opaque);
    // Each line behind its filter, none; in stored blocks of a zlib stream.
    let lines: Vec<u8> =
        pixels.chunks(columns).flat_map(|line| std::iter::once(0).chain(line.iter().copied())).collect();
    let mut stream = vec![0x78, 0x01];
    let blocks = lines.chunks(0xffff);
    let last = blocks.len();
    for (k, block) in blocks.enumerate() {
        stream.push(u8::from(k + 1 == last));
        stream.extend((block.len() as u16).to_le_bytes());
        stream.extend((!(block.len() as u16)).to_le_bytes());
        stream.extend(block);
    }
    stream.extend(adler(&lines).to_be_bytes());
    chunk(&mut out, b"IDAT", &stream);
    chunk(&mut out, b"IEND", &[]);
    out
}

fn chunk(out: &mut Vec<u8>, name: &[u8; 4], data: &[u8]) {
    out.extend((data.len() as u32).to_be_bytes());
    let from = out.len();
    out.extend(name);
    out.extend(data);
    let sum = crc(&out[from..]);
    out.extend(sum.to_be_bytes());
}

/// CRC-32 of PNG and gzip.
fn crc(data: &[u8]) -> u32 {
    let step = |mut crc: u32, byte: &u8| {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
        crc
    };
    !data.iter().fold(!0, step)
}

/// Adler-32 of zlib.
fn adler(data: &[u8]) -> u32 {
    let (a, b) = data.iter().fold((1u32, 0u32), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65521;
        (a, (b + a) % 65521)
    });
    b << 16 | a
}

fn base64(data: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(data.len().div_ceil(3) * 4);
    for three in data.chunks(3) {
        let bits =
            three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for k in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * k) & 63) as usize];
            out.push(if k <= three.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_digits_are_the_standards() {
        assert_eq!(crc(b"123456789"), 0xcbf4_3926);
        assert_eq!(adler(b"Wikipedia"), 0x11e6_0398);
        for (data, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(data.as_bytes()), text);
        }
    }

    #[test]
    fn any_values_give_a_picture() {
        for values in [vec![0.0; 6], vec![f64::NAN; 6], vec![1.0, 2.0, f64::NAN, 4.0, f64::INFINITY, -1e300]]
        {
            let picture = Picture { title: "a < b".into(), columns: 3, rows: 2, values };
            let svg = draw(&picture, "cavity:3x2");
            assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n") && !svg.contains("NaN"));
        }
        let image = png(300, 300, &vec![7; 90_000]);
        assert!(image.starts_with(b"\x89PNG") && image.ends_with(&crc(b"IEND").to_be_bytes()));
        assert_eq!((colour(0), colour(LEVELS - 1)), (COLOURS[0], COLOURS[8]));
    }
}
