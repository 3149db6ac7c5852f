//! Two axes with names, round ticks and a grid, and labels of curves.

use crate::font;
use crate::scene::{Anchor, MARGIN, MIDDLE, SMALL, Scene, Stroke, WIDTH};
use crate::theme::Ink;
use crate::ticks;

/// An axis: maps values to positions, and has ticks.
///
/// # Examples
/// ```
/// use krylith_plot::frame::Axis;
/// let residual = Axis::logarithmic("‖r‖/‖b‖", 1e-9, 1.0);
/// assert!(residual.shows(1e-3) && !residual.shows(0.0)); // zero has no logarithm
/// ```
pub struct Axis {
    /// Name of the quantity, with its unit.
    pub name: String,
    ends: [f64; 2],
    logarithmic: bool,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    fn of(name: &str, ends: [f64; 2], logarithmic: bool, ticks: Vec<f64>) -> Self {
        let texts = ticks::texts(&ticks);
        Self { name: name.into(), ends, logarithmic, ticks: ticks.into_iter().zip(texts).collect() }
    }

    /// An axis of whole numbers from 0 to `last`.
    pub fn counts(name: &str, last: usize) -> Self {
        let last = last.max(1) as f64;
        let ticks = ticks::linear(0.0, last, 6).into_iter().filter(|v| v.fract() == 0.0).collect();
        Self::of(name, [0.0, last], false, ticks)
    }

    /// An axis from 0 to a round number that is not below `high`.
    pub fn from_zero(name: &str, high: f64) -> Self {
        let ticks = ticks::from_zero(high, 6);
        Self::of(name, [0.0, ticks[ticks.len() - 1]], false, ticks)
    }

    /// An axis of whole numbers from 0 to a round number that is not below `high`.
    pub fn counts_from_zero(name: &str, high: f64) -> Self {
        let mut axis = Self::from_zero(name, high);
        axis.ticks.retain(|tick| tick.0.fract() == 0.0);
        axis
    }

    /// An axis from `low` to `high`, both above 0, by powers of ten.
    pub fn logarithmic(name: &str, low: f64, high: f64) -> Self {
        let good = low > 0.0 && high > low && high.is_finite();
        let [low, high] = if good { [low, high] } else { [0.1, 1.0] };
        Self::of(name, [low, high], true, ticks::logarithmic(low, high, 8))
    }

    /// An axis of evenly spaced names at 0, 1, 2, …; names are omitted if they need more than `room`.
    pub fn names(name: &str, names: &[String], room: f64) -> Self {
        let widest = names.iter().map(|n| font::width(n, SMALL)).fold(1.0, f64::max) + 12.0;
        let every = (names.len() as f64 * widest / room).ceil().max(1.0) as usize;
        let ticks = names.iter().enumerate().step_by(every).map(|(i, n)| (i as f64, n.clone())).collect();
        let last = names.len().max(1) as f64 - 0.5;
        Self { name: name.into(), ends: [-0.5, last], logarithmic: false, ticks }
    }

    /// Returns the position of a value from 0 to 1, clamped so that nothing leaves the picture.
    fn share(&self, v: f64) -> f64 {
        let [low, high] = self.ends;
        let share = if self.logarithmic {
            (v.ln() - low.ln()) / (high.ln() - low.ln())
        } else {
            (v - low) / (high - low)
        };
        if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }
    }

    /// Returns true if the axis can show the value.
    pub fn shows(&self, v: f64) -> bool {
        v.is_finite() && (!self.logarithmic || v > 0.0)
    }
}

/// Returns the ends of a logarithmic axis around values: powers of ten, or 1, 2 or 5 times them if they span
/// less than two decades.
pub fn around(values: impl Iterator<Item = f64>) -> [f64; 2] {
    let seen = values.filter(|v| v.is_finite() && *v > 0.0);
    let (low, high) = seen.fold((f64::INFINITY, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
    if low > high {
        return [0.1, 1.0];
    }
    let (low, high) = (0.93 * low, high * (1.0 - 1e-9));
    if high / low > 100.0 {
        return [10f64.powf(low.log10().floor()), 10f64.powf(high.log10().ceil()).min(f64::MAX)];
    }
    let power = |v: f64| 10f64.powf(v.log10().floor());
    let below = [5.0, 2.0, 1.0].map(|m| m * power(low)).into_iter().find(|v| *v <= low);
    let above = [1.0, 2.0, 5.0, 10.0].map(|m| m * power(high)).into_iter().find(|v| *v >= high);
    [below.unwrap_or(low), above.unwrap_or(high)]
}

/// Position of two axes in a picture.
///
/// # Examples
/// ```
/// use krylith_plot::{frame::{Axis, Frame}, scene::Scene};
/// let frame = Frame::new(Axis::from_zero("x, m", 2.0), Axis::from_zero("T, K", 20.0), 0.0, 200.0, 0.0);
/// let mut scene = Scene::new("a profile");
/// frame.draw(&mut scene);
/// let ([left, top, right, bottom], middle) = (frame.place, frame.at([1.0, 10.0]));
/// let centre = [0.5 * (left + right), 0.5 * (top + bottom)];
/// assert!((middle[0] - centre[0]).abs() < 1e-9 && (middle[1] - centre[1]).abs() < 1e-9);
/// ```
pub struct Frame {
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Left, top, right and bottom of the enclosed area.
    pub place: [f64; 4],
    /// Free space above the area.
    room: f64,
}

impl Frame {
    /// Creates axes below `top`, `height` high, with `right` free for names of curves. The name of the
    /// vertical axis is above the area.
    pub fn new(x: Axis, y: Axis, top: f64, height: f64, right: f64) -> Self {
        let widest = y.ticks.iter().map(|t| font::width(&t.1, SMALL)).fold(0.0, f64::max);
        let top = top + MIDDLE + 9.0;
        let place = [MARGIN + widest + 8.0, top, WIDTH - MARGIN - right, top + height];
        Self { x, y, place, room: 0.0 }
    }

    /// Moves the area down, and leaves space between it and the name of the vertical axis.
    pub fn widen(&mut self, height: f64) {
        self.lower(height);
        self.room = height;
    }

    /// Moves the area down.
    pub fn lower(&mut self, by: f64) {
        self.place[1] += by;
        self.place[3] += by;
    }

    /// Returns the horizontal position of an x.
    pub fn px(&self, x: f64) -> f64 {
        self.place[0] + (self.place[2] - self.place[0]) * self.x.share(x)
    }

    /// Returns the vertical position of a y.
    pub fn py(&self, y: f64) -> f64 {
        self.place[3] - (self.place[3] - self.place[1]) * self.y.share(y)
    }

    /// Returns the position of a point.
    pub fn at(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        [self.px(x), self.py(y)]
    }

    /// Draws grid, ticks and names.
    pub fn draw(&self, scene: &mut Scene) {
        let [left, top, right, _] = self.place;
        let grid = Stroke(Ink::Grid, 1.0, 0);
        let mut free = f64::INFINITY;
        for (v, text) in &self.y.ticks {
            let y = self.py(*v);
            scene.line([left, y], [right, y], grid);
            if y + 0.5 * SMALL < free {
                scene.text([left - 7.0, y + 0.36 * SMALL], Anchor::End, SMALL, Ink::Soft, text);
                free = y - 0.5 * SMALL;
            }
        }
        self.ticks_below(scene);
        scene.text([MARGIN, top - 12.0 - self.room], Anchor::Start, MIDDLE, Ink::Text, &self.y.name);
    }

    /// Draws only the horizontal axis, with vertical grid lines at its ticks.
    pub fn upright(&self, scene: &mut Scene) {
        for (v, _) in &self.x.ticks {
            let x = self.px(*v);
            scene.line([x, self.place[1]], [x, self.place[3]], Stroke(Ink::Grid, 1.0, 0));
        }
        self.ticks_below(scene);
    }

    fn ticks_below(&self, scene: &mut Scene) {
        let [left, _, right, bottom] = self.place;
        let axis = Stroke(Ink::Axis, 1.0, 0);
        // Numbers at the ends stay inside the picture, and none touches the next.
        let mut free = f64::NEG_INFINITY;
        for (v, text) in &self.x.ticks {
            let (x, half) = (self.px(*v), 0.5 * font::width(text, SMALL));
            scene.line([x, bottom], [x, bottom + 4.0], axis);
            let x = x.min(WIDTH - 3.0 - half);
            if x - half > free {
                scene.text([x, bottom + 6.0 + SMALL], Anchor::Middle, SMALL, Ink::Soft, text);
                free = x + half + 5.0;
            }
        }
        scene.line([left, bottom], [right, bottom], axis);
        let middle = [0.5 * (left + right), bottom + SMALL + MIDDLE + 11.0];
        scene.text(middle, Anchor::Middle, MIDDLE, Ink::Text, &self.x.name);
    }
}

/// Spreads wanted heights to distances of at least `gap` within `low..=high`, in the order given.
pub fn spread(wanted: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let mut found = wanted.to_vec();
    let mut least = low;
    for &k in &order {
        found[k] = found[k].max(least);
        least = found[k] + gap;
    }
    let mut most = high;
    for &k in order.iter().rev() {
        found[k] = found[k].min(most);
        most = found[k] - gap;
    }
    found
}

/// Draws a legend from `top` on, in as many lines as needed. `sample` draws the sample of an entry, which is
/// `wide` wide. Returns the lower end.
pub fn legend(
    scene: &mut Scene,
    names: &[String],
    top: f64,
    wide: f64,
    sample: impl Fn(&mut Scene, usize, [f64; 2]),
) -> f64 {
    let (mut x, mut y) = (MARGIN, top + SMALL);
    for (k, name) in names.iter().enumerate() {
        let name = font::fit(name, SMALL, WIDTH - 2.0 * MARGIN - wide - 6.0);
        let width = wide + 6.0 + font::width(&name, SMALL);
        if x > MARGIN && x + width > WIDTH - MARGIN {
            (x, y) = (MARGIN, y + SMALL + 6.0);
        }
        sample(scene, k, [x, y - 0.36 * SMALL]);
        scene.text([x + wide + 6.0, y], Anchor::Start, SMALL, Ink::Text, name);
        x += width + 18.0;
    }
    y + 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spread_in_their_order() {
        let found = spread(&[10.0, 11.0, 12.0, 100.0], 15.0, 0.0, 100.0);
        assert_eq!(found, [10.0, 25.0, 40.0, 100.0]);
        let found = spread(&[99.0, 100.0, 98.0], 15.0, 0.0, 100.0);
        assert_eq!(found, [85.0, 100.0, 70.0]);
    }

    #[test]
    fn logarithmic_axes_end_at_round_numbers() {
        assert_eq!(around([3e-7, 1.0].into_iter()), [1e-7, 1.0]);
        assert_eq!(around([0.24, 0.9].into_iter()), [0.2, 1.0]);
        assert_eq!(around([].into_iter()), [0.1, 1.0]);
        assert_eq!(around([1e-5, 0.9].into_iter()), [1e-6, 1.0]);
    }
}
