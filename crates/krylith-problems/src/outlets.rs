//! Outlets of a flow whose pressure depends on the flow through them: resistances and Windkessel models.

use krylith_core::{Error, Result};

use crate::tets::{TetMesh, area, dot};

/// A Windkessel model of the vessels after an outlet: P = R Q + π and C dπ/dt = Q − π/D, with the flow Q and
/// the pressure P. C = 0 is the resistance R + D, and all zeros are an outlet without traction.
///
/// # Examples
/// ```
/// use krylith_problems::artery::Windkessel;
/// let stiff = Windkessel { resistance: 800.0, ..Windkessel::default() }; // P = 800 Q
/// assert_eq!((stiff.compliance, stiff.distal), (0.0, 0.0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Windkessel {
    /// Proximal resistance R in dyn s/cm⁵.
    pub resistance: f64,
    /// Compliance C in cm⁵/dyn.
    pub compliance: f64,
    /// Distal resistance D in dyn s/cm⁵.
    pub distal: f64,
}

impl Windkessel {
    /// Returns true if the outlet has a pressure.
    pub(crate) fn acts(&self) -> bool {
        self.resistance > 0.0 || self.distal > 0.0
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// Returns an error if a number is negative or not finite.
    pub(crate) fn check(&self) -> Result<()> {
        let Self { resistance, compliance, distal } = *self;
        let given = [("resistance", resistance), ("compliance", compliance), ("distal", distal)];
        match given.iter().find(|(_, x)| !(x.is_finite() && *x >= 0.0)) {
            None => Ok(()),
            Some((name, x)) => {
                Err(Error::invalid(format!("an outlet with {name} {x}; it must be finite and at least 0")))
            }
        }
    }

    /// Returns R' and P' of P = R' Q + P' at the end of a step, where dπ/dt is `rate`·π − `history`.
    pub(crate) fn linear(&self, rate: f64, history: f64) -> [f64; 2] {
        if self.distal == 0.0 {
            return [self.resistance, 0.0];
        }
        let weight = 1.0 / (self.compliance * rate + 1.0 / self.distal);
        [self.resistance + weight, weight * self.compliance * history]
    }
}

/// An outlet with a pressure, which is an unknown of its own.
#[derive(Debug, Clone)]
pub(crate) struct Outlet {
    /// Nodes with ∫ N n over the outlet, ascending.
    pub nodes: Vec<(u32, [f64; 3])>,
    pub centre: [f64; 3],
    /// R' and P' of P = R' Q + P'.
    pub law: [f64; 2],
}

impl Outlet {
    pub fn new(mesh: &TetMesh, faces: &[[u32; 3]]) -> Self {
        let mut nodes: Vec<(u32, [f64; 3])> =
            TetMesh::nodes_of(faces).into_iter().map(|p| (p, [0.0; 3])).collect();
        for face in faces {
            let normal = area(face.map(|p| mesh.points()[p as usize]));
            for p in face {
                if let Ok(at) = nodes.binary_search_by_key(p, |&(p, _)| p) {
                    (0..3).for_each(|d| nodes[at].1[d] += normal[d] / 3.0);
                }
            }
        }
        let mut centre = [0.0; 3];
        for (p, _) in &nodes {
            (0..3).for_each(|d| centre[d] += mesh.points()[*p as usize][d] / nodes.len() as f64);
        }
        Self { nodes, centre, law: [0.0; 2] }
    }

    /// Returns the flow out through the outlet.
    pub fn flow(&self, x: &[f64]) -> f64 {
        let through = |&(p, n): &(u32, [f64; 3])| dot([0, 1, 2].map(|c| x[4 * p as usize + c]), n);
        self.nodes.iter().map(through).sum()
    }
}

/// A flow as a function of time, from a file, for the inlet. It is linear between the given times and repeats
/// after the last.
///
/// # Examples
/// ```
/// use krylith_problems::artery::InflowCurve;
/// let curve = InflowCurve::parse("beat.txt", b"# s  cm^3/s\n0 1\n0.25 5\n1 1\n")?;
/// assert_eq!((curve.at(0.125), curve.at(0.25), curve.at(1.125)), (3.0, 5.0, 3.0));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct InflowCurve {
    /// Times in s, ascending, with flows in cm³/s.
    points: Vec<[f64; 2]>,
}

impl InflowCurve {
    /// Reads a file with a time in s and a flow in cm³/s on each line; `#` begins a comment.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, and those of [`parse`](Self::parse).
    pub fn read(path: impl AsRef<std::path::Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::parse(path, &std::fs::read(path).map_err(|source| Error::io(path, source))?)
    }

    /// Parses the bytes of a file; errors name `path`.
    ///
    /// # Errors
    /// Returns an error with the line if a line does not have two finite numbers, or if times do not ascend,
    /// and an error for fewer than two lines.
    pub fn parse(path: impl AsRef<std::path::Path>, bytes: &[u8]) -> Result<Self> {
        let path = path.as_ref();
        let text = std::str::from_utf8(bytes).map_err(|_| {
            Error::format(path, "not text; expected lines of a time in s and a flow in cm^3/s")
        })?;
        let mut points: Vec<[f64; 2]> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let wrong = |message: String| Error::parse(path, number + 1, message);
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let words = line.split([',', ';', ' ', '\t']).filter(|word| !word.is_empty());
            let numbers: Vec<f64> =
                words.map_while(|w| w.parse().ok()).filter(|x: &f64| x.is_finite()).collect();
            let [time, flow] = numbers[..] else {
                let line: String = line.chars().take(60).collect();
                return Err(wrong(format!("`{line}`: expected a time in s and a flow in cm^3/s")));
            };
            if let Some(last) = points.last().filter(|last| last[0] >= time) {
                return Err(wrong(format!("the time {time} follows {}; times must ascend", last[0])));
            }
            points.push([time, flow]);
        }
        if points.len() < 2 {
            return Err(Error::format(path, "fewer than two lines of a time in s and a flow in cm^3/s"));
        }
        Ok(Self { points })
    }

    /// Returns the flow in cm³/s at time t in s.
    pub fn at(&self, t: f64) -> f64 {
        let (first, last) = (self.points[0][0], self.points[self.points.len() - 1][0]);
        let t = if t > last || t < first { first + (t - first).rem_euclid(last - first) } else { t };
        let k = self.points.partition_point(|p| p[0] <= t).clamp(1, self.points.len() - 1);
        let ([t0, q0], [t1, q1]) = (self.points[k - 1], self.points[k]);
        q0 + (q1 - q0) * (t - t0) / (t1 - t0)
    }
}
