//! `nlpkkt`: the optimality system of a boundary control problem on a cube of N³ points.
//!
//! ```text
//!     y   u   λ
//!     H   0   Aᵀ    N³ states      H diagonal, A couples the 27 points around each
//!     0   R   Bᵀ    6N² controls   R diagonal, B couples 9 points on each of the six faces
//!     A   B   0     N³ multipliers
//! ```
//!
//! The matrix has 2N³ + 6N² rows and N³ + 6N² + 2(3N − 2)³ + 12(3N − 2)² entries, exactly the original's
//! numbers, in rows of 5 to 28 entries. The pattern is symmetric. Points are numbered with x fastest,
//! controls face by face.

use super::Shape;
use super::build::Pattern;

#[derive(Debug, Clone, Copy)]
pub(super) struct Nlpkkt {
    edge: usize,
}

impl Nlpkkt {
    pub fn new(edge: usize) -> Self {
        Self { edge }
    }

    /// Returns the shape (rows, entries, shortest and longest row) for `edge` = N ≥ 3 points along the cube.
    pub fn shape(edge: u64) -> Shape {
        let (points, face, near) = (edge.pow(3), edge.pow(2), 3 * edge - 2);
        let nonzeros = points + 6 * face + 2 * near.pow(3) + 12 * near.pow(2);
        Shape::new(2 * points + 6 * face, nonzeros, 5, 28)
    }

    /// Returns the kind of equation of row `i`.
    fn part(&self, i: usize) -> Part {
        let n = self.edge;
        let (points, face) = (n * n * n, n * n);
        match i {
            _ if i < points => Part::State(self.point(i)),
            _ if i < points + 6 * face => {
                let k = i - points;
                Part::Control { face: k / face, at: [k % n, k % face / n] }
            }
            _ => Part::Multiplier(self.point(i - points - 6 * face)),
        }
    }

    fn point(&self, i: usize) -> [usize; 3] {
        let n = self.edge;
        [i % n, i / n % n, i / (n * n)]
    }

    /// Returns the coordinates within 1 of `c`.
    fn near(&self, c: usize) -> std::ops::RangeInclusive<usize> {
        c.saturating_sub(1)..=(c + 1).min(self.edge - 1)
    }

    fn count(&self, c: usize) -> usize {
        self.near(c).count()
    }

    /// Returns the position of a point on a face, or `None` if it is not on it. Faces are low x, high x, low
    /// y, and so on.
    fn on_face(&self, face: usize, at: [usize; 3]) -> Option<[usize; 2]> {
        let axis = face / 2;
        let side = if face % 2 == 0 { 0 } else { self.edge - 1 };
        (at[axis] == side).then(|| match axis {
            0 => [at[1], at[2]],
            1 => [at[0], at[2]],
            _ => [at[0], at[1]],
        })
    }

    /// Appends the 27 points around `at`, counted from `first`.
    fn around(&self, at: [usize; 3], first: usize, out: &mut Vec<u32>) {
        let n = self.edge;
        for z in self.near(at[2]) {
            for y in self.near(at[1]) {
                out.extend(self.near(at[0]).map(|x| (first + x + n * (y + n * z)) as u32));
            }
        }
    }
}

enum Part {
    State([usize; 3]),
    Control { face: usize, at: [usize; 2] },
    Multiplier([usize; 3]),
}

impl Pattern for Nlpkkt {
    type Scratch = ();
    const SYMMETRIC: bool = true;

    fn length(&self, i: usize) -> usize {
        let product = |at: &[usize]| at.iter().map(|&c| self.count(c)).product::<usize>();
        match self.part(i) {
            Part::State(at) => 1 + product(&at),
            Part::Control { at, .. } => 1 + product(&at),
            Part::Multiplier(at) => {
                let faces = (0..6).filter_map(|face| self.on_face(face, at));
                product(&at) + faces.map(|at| product(&at)).sum::<usize>()
            }
        }
    }

    fn columns(&self, i: usize, (): &mut (), out: &mut Vec<u32>) {
        let n = self.edge;
        let (points, area) = (n * n * n, n * n);
        let multipliers = points + 6 * area;
        match self.part(i) {
            Part::State(at) => {
                out.push(i as u32);
                self.around(at, multipliers, out);
            }
            Part::Control { face, at: [a, b] } => {
                out.push(i as u32);
                let side = if face % 2 == 0 { 0 } else { n - 1 };
                // Strides of the face's two coordinates and of the axis across it.
                let [along, up, across] = [[n, area, 1], [1, area, n], [1, n, area]][face / 2];
                for b in self.near(b) {
                    let row = multipliers + side * across + b * up;
                    out.extend(self.near(a).map(|a| (row + a * along) as u32));
                }
            }
            Part::Multiplier(at) => {
                self.around(at, 0, out);
                for face in 0..6 {
                    let Some([a, b]) = self.on_face(face, at) else { continue };
                    for b in self.near(b) {
                        let row = points + face * area + b * n;
                        out.extend(self.near(a).map(|a| (row + a) as u32));
                    }
                }
            }
        }
    }
}
