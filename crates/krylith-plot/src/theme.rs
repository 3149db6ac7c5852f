//! Colours for light and dark screens, and dashes that distinguish curves without colour.

/// A role of colour.
///
/// # Examples
/// ```
/// use krylith_plot::{scene::{Scene, Shape}, theme::Ink};
/// let mut scene = Scene::new("good and bad");
/// for (k, ink) in [Ink::Good, Ink::Bad].into_iter().enumerate() {
///     scene.shape(Shape::Rect([20.0 * k as f64, 0.0, 10.0, 10.0]), Some(ink), None, None);
/// }
/// assert_eq!(scene.things.len(), 2); // colours follow the reader's light or dark screen
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    /// The background.
    Paper,
    /// Titles and numbers.
    Text,
    /// Secondary text.
    Soft,
    /// Lines of a grid.
    Grid,
    /// Axes and frames.
    Axis,
    /// A success, and the target.
    Good,
    /// A failure.
    Bad,
    /// Band behind every second attempt.
    Band,
    /// Curves and markers, by number.
    Series(usize),
    /// Parts of a bar, by number: neighbours differ in lightness too.
    Part(usize),
    /// Text on a part.
    OnPart(usize),
}

/// Name in a style sheet, colour on light paper, colour on dark paper.
type Entry = (&'static str, u32, u32);

const PLAIN: [Entry; 8] = [
    ("paper", 0xffffff, 0x12171e),
    ("text", 0x1d2733, 0xe8edf3),
    ("soft", 0x55616f, 0xa3afbd),
    ("grid", 0xe3e7ec, 0x2a333e),
    ("axis", 0x7b8694, 0x778394),
    ("good", 0x167a40, 0x4cc27f),
    ("bad", 0xc2352a, 0xff7b6e),
    ("band", 0xf3f6f9, 0x1a212a),
];
/// Based on Okabe and Ito, darkened or lightened to a contrast of at least 3:1 with the background.
const SERIES: [Entry; 8] = [
    ("s0", 0x0067b0, 0x62b2f5),
    ("s1", 0xcf5200, 0xff9652),
    ("s2", 0x008060, 0x37c99b),
    ("s3", 0xa8458c, 0xe58fc9),
    ("s4", 0x8a6d00, 0xe0c04a),
    ("s5", 0x4f46a5, 0xaaa3f5),
    ("s6", 0x3a4754, 0xc8d1da),
    ("s7", 0x9b1c31, 0xf58a9a),
];
pub(crate) const PARTS: [Entry; 6] = [
    ("p0", 0x1f5a96, 0x3f82c9),
    ("p1", 0xf3ac4c, 0xf0b565),
    ("p2", 0x2a7f62, 0x2f8f70),
    ("p3", 0xc3d3e2, 0xb9cbdc),
    ("p4", 0x87396a, 0xa95488),
    ("p5", 0xd8d38a, 0xcfc97c),
];
const ON_PARTS: [Entry; 2] = [("o0", 0xffffff, 0xffffff), ("o1", 0x1d2733, 0x12171e)];

impl Ink {
    fn entry(self) -> Entry {
        match self {
            Ink::Paper => PLAIN[0],
            Ink::Text => PLAIN[1],
            Ink::Soft => PLAIN[2],
            Ink::Grid => PLAIN[3],
            Ink::Axis => PLAIN[4],
            Ink::Good => PLAIN[5],
            Ink::Bad => PLAIN[6],
            Ink::Band => PLAIN[7],
            Ink::Series(k) => SERIES[k % SERIES.len()],
            Ink::Part(k) => PARTS[k % PARTS.len()],
            Ink::OnPart(k) => ON_PARTS[k % ON_PARTS.len()],
        }
    }

    pub(crate) fn name(self) -> &'static str {
        self.entry().0
    }

    /// Returns red, green and blue for a light background.
    pub(crate) fn light(self) -> [u8; 3] {
        let [_, r, g, b] = self.entry().1.to_be_bytes();
        [r, g, b]
    }

    pub(crate) fn hex(self) -> String {
        format!("#{:06x}", self.entry().1)
    }
}

/// Returns the style with the dark colours, for screens only, so that prints are light. Attributes have the
/// light colours.
pub(crate) fn style() -> String {
    let mut rules = String::new();
    for (name, _, dark) in PLAIN.iter().chain(&SERIES).chain(&PARTS).chain(&ON_PARTS) {
        rules += &format!(".f-{name}{{fill:#{dark:06x}}}.k-{name}{{stroke:#{dark:06x}}}");
    }
    format!("<style>@media screen and (prefers-color-scheme:dark){{{rules}}}</style>")
}

/// Returns the dashes of curve `k`: strokes and gaps.
pub(crate) fn dashes(k: usize) -> &'static [f64] {
    [&[][..], &[7.0, 3.5], &[1.8, 3.0], &[9.0, 3.0, 2.0, 3.0], &[14.0, 4.0], &[4.5, 2.5]][k % 6]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance (WCAG 2).
    fn luminance(colour: u32) -> f64 {
        let [_, rgb @ ..] = colour.to_be_bytes();
        let linear = rgb.map(|c| match f64::from(c) / 255.0 {
            c if c <= 0.04045 => c / 12.92,
            c => ((c + 0.055) / 1.055).powf(2.4),
        });
        0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    }

    fn contrast(a: u32, b: u32) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn what_is_drawn_stands_out_from_its_paper() {
        let (_, light, dark) = PLAIN[0];
        for (name, on_light, on_dark) in SERIES.iter().chain(&PLAIN[4..7]) {
            let found = [contrast(*on_light, light), contrast(*on_dark, dark)];
            assert!(found.iter().all(|c| *c >= 3.0), "{name}: {found:?}");
        }
        for (name, on_light, on_dark) in &PLAIN[1..3] {
            let found = [contrast(*on_light, light), contrast(*on_dark, dark)];
            assert!(found.iter().all(|c| *c >= 4.5), "{name}: {found:?}");
        }
        for (k, part) in PARTS.iter().enumerate() {
            let on = ON_PARTS[k % 2];
            let found = [contrast(on.1, part.1), contrast(on.2, part.2)];
            assert!(found.iter().all(|c| *c >= 3.5), "{}: {found:?}", part.0);
            let next = PARTS[(k + 1) % PARTS.len()];
            let found = [contrast(next.1, part.1), contrast(next.2, part.2)];
            assert!(found.iter().all(|c| *c >= 1.8), "{} and {}: {found:?}", part.0, next.0);
        }
    }
}
