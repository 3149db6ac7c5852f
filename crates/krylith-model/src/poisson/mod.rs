//! Time of an iteration of P-CG and of its communication-avoiding form P-CBCG for a 7-point Poisson equation.
//! The grid is cut into boxes, one per GPU. The model follows Ali, Onodera, Idomura, Ina & Imamura
//! (ScalA 2019) and is compared with their measurements.
//!
//! * A kernel takes (f/F + b/B)/ratio per point: f and b are its operations and bytes, F and B the GPU's peak
//!   and memory bandwidth. The ratio is the share of that roofline that it reaches on one GPU.
//! * A halo is the surface of a box. The GPUs of a host share its link equally, and halos reach a fixed
//!   fraction of a GPU's share.
//! * An all-reduce goes up and down a tree over hosts. P-CG has two per iteration, P-CBCG two per s
//!   iterations.
//! * With overlap, P-CG hides the halo behind the inner part of the product and of the preceding vector
//!   update. P-CBCG hides it behind the inner part of the product alone.
//!
//! Not modelled: faces within a host, which are faster, and the minimum time of a small kernel.

mod measured;
mod study;

use super::Machine;
use super::predict::levels;
use krylith_core::{Error, Result};
pub use measured::Measured;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
pub use study::Study;

/// Parameters of the model besides a machine's memory bandwidth and network.
///
/// # Examples
/// A kernel of the paper's Table III by hand: the product with its dot product, 17 operations and 92 bytes a
/// point.
/// ```
/// use krylith_model::{Machine, poisson::Method};
/// let machine = Machine::open("summit".as_ref())?;
/// let of = machine.poisson.as_ref().expect("the paper's machine");
/// let seconds = 1e6 * (17.0 / of.peak + 92.0 / machine.read) / of.product;
/// let t = machine.poisson([100, 100, 100], Method::Cg, 12, 1)?;
/// assert!((t.product / seconds - 1.0).abs() < 1e-12);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Poisson {
    /// F: peak operations a second, f64.
    pub peak: f64,
    /// Share of the roofline that the product reaches on one GPU: roofline time over measured time.
    pub product: f64,
    /// The same share for the preconditioner.
    pub preconditioner: f64,
    /// The same share for updates of vectors.
    pub vectors: f64,
    /// The same share for Gram matrices of P-CBCG.
    pub gram: f64,
    /// The same share for sums of basis vectors of P-CBCG.
    pub combine: f64,
    /// Share of a GPU's part of the host link that halos reach.
    pub halo_share: f64,
    /// Numbers of this file that were fitted to published measurements on several GPUs.
    #[serde(default)]
    pub fitted: Vec<String>,
    /// Published measurements.
    #[serde(default)]
    pub published: Vec<Published>,
}

/// One published number.
///
/// # Examples
/// ```
/// use krylith_model::{Machine, poisson::{Part, STEPS}};
/// let machine = Machine::open("abci".as_ref())?;
/// let published = &machine.poisson.as_ref().expect("the paper's machine").published;
/// for p in published.iter().filter(|p| p.part == Part::Total && !p.fitted) {
///     let seconds = machine.poisson(p.grid, p.method, STEPS, p.gpus)?.total(p.overlap);
///     assert!((1e3 * seconds / p.value - 1.0).abs() < 0.21, "{p:?}"); // milliseconds
/// }
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The table or figure of the paper.
    pub source: String,
    /// Points in x, y, z.
    pub grid: [usize; 3],
    /// The solver.
    pub method: Method,
    /// Number of GPUs.
    pub gpus: usize,
    /// The measured quantity.
    pub part: Part,
    /// True if halos were hidden.
    #[serde(default)]
    pub overlap: bool,
    /// For a speed-up: the number of GPUs that it is relative to.
    #[serde(default)]
    pub over: Option<usize>,
    /// Milliseconds per iteration; for a speed-up or a share, the number itself.
    pub value: f64,
    /// True if a number of the machine file was fitted to this value, so that it does not test the model.
    #[serde(default)]
    pub fitted: bool,
}

/// A solver of the paper.
///
/// # Examples
/// ```
/// use krylith_model::{Machine, poisson::Method};
/// let machine = Machine::open("summit".as_ref())?;
/// let of = |method| machine.poisson([1280, 1280, 4608], method, 12, 7680);
/// let (cg, cbcg) = (of(Method::Cg)?, of(Method::Cbcg)?);
/// assert!(cbcg.all_reduce < cg.all_reduce); // two in twelve iterations, and two in each
/// assert!(cbcg.vectors > cg.vectors); // which is paid for in memory traffic
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// P-CG: conjugate gradients with block-Jacobi.
    Cg,
    /// P-CBCG: its communication-avoiding form with a Chebyshev basis.
    Cbcg,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Method::Cg => "P-CG",
            Method::Cbcg => "P-CBCG",
        }
    }
}

/// A part of an iteration, or a quantity derived from parts.
///
/// # Examples
/// In a machine file:
/// ```
/// use krylith_model::poisson::{Method, Part, Published};
/// let published: Published = toml::from_str(
///     r#"
///     source = "Table V"
///     grid = [1280, 1280, 4608]
///     method = "cg"
///     gpus = 1024
///     part = "all-reduce"
///     value = 0.14
///     "#,
/// )?;
/// assert_eq!((published.method, published.part), (Method::Cg, Part::AllReduce));
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The product, with its dot product in P-CG.
    Product,
    /// The preconditioner.
    Preconditioner,
    /// Vector updates and, in P-CBCG, matrix kernels.
    Vectors,
    /// The exchange of halos that is not hidden.
    Halo,
    /// All-reduces.
    AllReduce,
    /// The whole iteration.
    Total,
    /// All-reduces as a share of the iteration.
    AllReduceShare,
    /// Speed-up over `over` GPUs.
    SpeedUp,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Product => "product",
            Part::Preconditioner => "preconditioner",
            Part::Vectors => "vectors",
            Part::Halo => "halo",
            Part::AllReduce => "all-reduce",
            Part::Total => "iteration",
            Part::AllReduceShare => "share of all-reduces",
            Part::SpeedUp => "speed-up",
        }
    }
}

/// Operations and bytes of a kernel per grid point and iteration.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Work {
    f: f64,
    b: f64,
}

// Table III of the paper, for P-CBCG with s = 12. P-CG's kernels are derived from it: the product and the
// preconditioner do the same plus a dot product each (2 operations, no bytes). The preconditioner also
// updates r (reads w, writes r); x and p are updated in one pass (reads x, p and z, writes x and p). That is
// 276 bytes against P-CBCG's 338; the paper says "∼1.25×".
const PRODUCT: Work = Work { f: 15.0, b: 92.0 };
const PRECONDITIONER: Work = Work { f: 20.0, b: 128.0 };
const BASIS_VECTORS: Work = Work { f: 3.0, b: 24.0 };
const GRAM: Work = Work { f: 48.0, b: 35.0 };
const COMBINE: Work = Work { f: 54.0, b: 59.0 };
const CG_PRODUCT: Work = Work { f: 17.0, b: 92.0 };
const CG_PRECONDITIONER: Work = Work { f: 24.0, b: 144.0 };
const CG_VECTORS: Work = Work { f: 4.0, b: 40.0 };

/// The s of Table III.
pub const STEPS: usize = 12;

/// Predicted seconds of an iteration, by parts.
///
/// # Examples
/// ```
/// use krylith_model::{Machine, poisson::Method};
/// let machine = Machine::open("summit".as_ref())?;
/// let t = machine.poisson([1280, 1280, 4608], Method::Cg, 12, 1024)?;
/// assert_eq!(t.boxes, [8, 8, 16]); // those with the least surface
/// assert!(t.total(true) < t.total(false)); // with overlap, and without
/// // They differ by the hidden part of the halo.
/// assert!((t.total(false) - t.total(true) - (t.halo - t.exposed)).abs() < 1e-15);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Iteration {
    /// Number of boxes along x, y, z.
    pub boxes: [usize; 3],
    /// Seconds of the product.
    pub product: f64,
    /// Seconds of the preconditioner.
    pub preconditioner: f64,
    /// Seconds of vector updates and matrix kernels.
    pub vectors: f64,
    /// Seconds of a halo exchange that nothing hides.
    pub halo: f64,
    /// Seconds of it that remain with overlap.
    pub exposed: f64,
    /// Seconds of all-reduces.
    pub all_reduce: f64,
}

impl Iteration {
    /// Returns the seconds of the whole iteration, with or without overlap.
    pub fn total(&self, overlap: bool) -> f64 {
        let halo = if overlap { self.exposed } else { self.halo };
        self.product + self.preconditioner + self.vectors + halo + self.all_reduce
    }

    fn part(&self, part: Part, overlap: bool) -> f64 {
        match part {
            Part::Product => self.product,
            Part::Preconditioner => self.preconditioner,
            Part::Vectors => self.vectors,
            Part::Halo => self.halo,
            Part::AllReduce => self.all_reduce,
            Part::AllReduceShare => self.all_reduce / self.total(overlap),
            Part::Total | Part::SpeedUp => self.total(overlap),
        }
    }
}

/// Returns the boxes with the least surface among all ways to cut a grid in `count`, and the number of
/// surface points of one box that have a neighbour. No side is cut into more boxes than it has points.
fn boxes(grid: [usize; 3], count: usize) -> Option<([usize; 3], f64)> {
    let divisors = |n: usize| (1..=n).filter(move |d| n.is_multiple_of(*d));
    let mut best: Option<([usize; 3], f64)> = None;
    for x in divisors(count).filter(|&x| x <= grid[0]) {
        for y in divisors(count / x).filter(|&y| y <= grid[1]) {
            let cuts = [x, y, count / x / y];
            if cuts[2] > grid[2] {
                continue;
            }
            let side = |d: usize| grid[d] as f64 / cuts[d] as f64;
            let face = |d: usize| side((d + 1) % 3) * side((d + 2) % 3);
            let surface = (0..3).map(|d| face(d) * (cuts[d] - 1).min(2) as f64).sum();
            if best.is_none_or(|(_, least)| surface < least) {
                best = Some((cuts, surface));
            }
        }
    }
    best
}

impl Poisson {
    /// Returns an error for numbers that allow no prediction.
    pub(super) fn check(&self) -> Result<()> {
        let positive = [
            ("peak", self.peak),
            ("product", self.product),
            ("preconditioner", self.preconditioner),
            ("vectors", self.vectors),
            ("gram", self.gram),
            ("combine", self.combine),
            ("halo_share", self.halo_share),
        ];
        for (name, v) in positive {
            if !(v.is_finite() && v > 0.0) {
                return Err(Error::invalid(format!("`poisson.{name}` is {v}; it must be a positive number")));
            }
        }
        for p in &self.published {
            let sized = p.gpus > 0 && !p.grid.contains(&0) && p.value.is_finite() && p.value > 0.0;
            if !sized || (p.part == Part::SpeedUp) != p.over.is_some_and(|over| over > 0) {
                return Err(Error::invalid(format!(
                    "[[poisson.published]] {}, {} GPUs: `grid`, `gpus` and `value` must be positive, and \
                     only a speed-up may have `over`",
                    p.source, p.gpus
                )));
            }
        }
        Ok(())
    }

    /// Returns the section of a machine file.
    pub(super) fn text(&self) -> String {
        let numbers = [
            ("product", self.product),
            ("preconditioner", self.preconditioner),
            ("vectors", self.vectors),
            ("gram", self.gram),
            ("combine", self.combine),
            ("halo_share", self.halo_share),
        ];
        let mut out = format!("\n[poisson]\npeak = {:.4e}\n", self.peak);
        numbers.iter().for_each(|(name, v)| out += &format!("{name} = {v}\n"));
        out += &format!("fitted = {:?}\n", self.fitted);
        for p in &self.published {
            let name = |v: Value| v.to_string();
            out += &format!(
                "\n[[poisson.published]]\nsource = {:?}\ngrid = {:?}\nmethod = {}\ngpus = {}\npart = {}\noverlap = {}\nvalue = \
                 {}\nfitted = {}\n",
                p.source,
                p.grid,
                name(json!(p.method)),
                p.gpus,
                name(json!(p.part)),
                p.overlap,
                p.value,
                p.fitted
            );
            if let Some(over) = p.over {
                out += &format!("over = {over}\n");
            }
        }
        out
    }
}

impl Machine {
    /// Predicts an iteration on `gpus` GPUs; P-CBCG's basis has `s` vectors.
    ///
    /// # Errors
    /// Returns an error if the machine file has no `[poisson]`, or no `[network]` for several hosts, for more
    /// GPUs than boxes fit, and for `s` = 0.
    pub fn poisson(&self, grid: [usize; 3], method: Method, s: usize, gpus: usize) -> Result<Iteration> {
        let of = self.poisson.as_ref().ok_or_else(|| {
            Error::invalid(format!(
                "machine `{}` has no section [poisson]; use `summit` or `abci`",
                self.name
            ))
        })?;
        self.connected(grid, method, s, gpus, |points| {
            let time = |work: Work, ratio: f64| points * (work.f / of.peak + work.b / self.read) / ratio;
            match method {
                Method::Cg => {
                    let (product, vectors) = (time(CG_PRODUCT, of.product), time(CG_VECTORS, of.vectors));
                    [product, time(CG_PRECONDITIONER, of.preconditioner), vectors, product + vectors]
                }
                // Relative to Table III (s = 12), matrix kernels do work in proportion to s and move the same
                // bytes.
                Method::Cbcg => {
                    let scaled = |work: Work| Work { f: work.f * s as f64 / STEPS as f64, ..work };
                    let product = time(PRODUCT, of.product);
                    let vectors = time(BASIS_VECTORS, of.vectors)
                        + time(scaled(GRAM), of.gram)
                        + time(scaled(COMBINE), of.combine);
                    [product, time(PRECONDITIONER, of.preconditioner), vectors, product]
                }
            }
        })
    }

    /// Adds halos and all-reduces to the kernels of a box. For a number of points, `kernels` returns the
    /// seconds of product, preconditioner and vectors, and of what can hide a halo.
    fn connected(
        &self,
        grid: [usize; 3],
        method: Method,
        s: usize,
        gpus: usize,
        kernels: impl Fn(f64) -> [f64; 4],
    ) -> Result<Iteration> {
        let [nx, ny, nz] = grid;
        if gpus == 0 || s == 0 {
            return Err(Error::invalid("the numbers of GPUs and of basis vectors must be at least 1"));
        }
        let (boxes, surface) = boxes(grid, gpus).ok_or_else(|| {
            Error::invalid(format!("{nx}x{ny}x{nz} points cannot be cut into {gpus} boxes; take fewer GPUs"))
        })?;
        let points = grid.iter().map(|&n| n as f64).product::<f64>() / gpus as f64;
        let [product, preconditioner, vectors, behind] = kernels(points);
        let hosts = gpus.div_ceil(self.gpus_per_host);
        let (mut halo, mut all_reduce) = (0.0, 0.0);
        if gpus > 1 {
            let network = self.network.as_ref().ok_or_else(|| {
                Error::invalid(format!(
                    "machine `{}` has no section [network], which the prediction of several GPUs needs; add \
                     it, or predict 1 GPU",
                    self.name
                ))
            })?;
            let share = self.poisson.as_ref().map_or(1.0, |of| of.halo_share);
            halo = network.latency + 8.0 * surface / (network.bandwidth * share);
            let sum = |numbers: usize| {
                2.0 * levels(hosts) * (network.hop + 8.0 * numbers as f64 / network.bandwidth)
            };
            all_reduce = match method {
                Method::Cg => 2.0 * sum(1),
                Method::Cbcg => (sum(s * (s + 1) / 2 + s + 1) + sum(s * s)) / s as f64,
            };
        }
        let inner = 1.0 - (surface / points).min(1.0);
        let exposed = (halo - inner * behind).max(0.0);
        Ok(Iteration { boxes, product, preconditioner, vectors, halo, exposed, all_reduce })
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::round;
    use super::study::beside;
    use super::*;

    fn machine() -> Machine {
        let mut machine = round();
        machine.poisson = Some(Poisson {
            peak: 1e13,
            product: 0.5,
            preconditioner: 0.5,
            vectors: 0.5,
            gram: 0.5,
            combine: 0.5,
            halo_share: 0.25,
            fitted: vec!["nothing".into()],
            published: Vec::new(),
        });
        machine
    }

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-12 * b.abs(), "{a:e} {b:e}");
    }

    #[test]
    fn boxes_have_the_least_surface() {
        assert_eq!(boxes([64, 64, 64], 1), Some(([1, 1, 1], 0.0)));
        assert_eq!(boxes([64, 64, 64], 8), Some(([2, 2, 2], 3.0 * 1024.0)));
        assert_eq!(boxes([10, 10, 1000], 4), Some(([1, 1, 4], 200.0)));
        assert_eq!(boxes([1280, 1280, 4608], 1024).map(|(cuts, _)| cuts), Some([8, 8, 16]));
        assert_eq!(boxes([2, 2, 2], 16), None);
        assert_eq!(boxes([4, 4, 4], 7), None);
    }

    #[test]
    fn times_are_those_of_sums_by_hand() {
        let machine = machine();
        let points = 1e6;
        let t = machine.poisson([100, 100, 100], Method::Cg, 12, 1).unwrap();
        close(t.product, 2.0 * points * (17.0 / 1e13 + 92.0 / 1e12));
        close(t.vectors, 2.0 * points * (4.0 / 1e13 + 40.0 / 1e12));
        assert_eq!((t.halo, t.exposed, t.all_reduce), (0.0, 0.0, 0.0));
        // 8 boxes on 2 hosts: three faces of 50² points at a quarter of 10 GB/s; one level of hosts, up and
        // down.
        let t = machine.poisson([100, 100, 100], Method::Cg, 12, 8).unwrap();
        close(t.halo, 5e-6 + 8.0 * 7500.0 / 2.5e9);
        close(t.all_reduce, 4.0 * (4e-6 + 8.0 / 1e10));
        let inner = 1.0 - 7500.0 / 125_000.0;
        close(t.exposed, (t.halo - inner * (t.product + t.vectors)).max(0.0));
        let c = machine.poisson([100, 100, 100], Method::Cbcg, 12, 8).unwrap();
        close(c.all_reduce, (4.0 * 4e-6 + 2.0 * 8.0 * (91.0 + 144.0) / 1e10) / 12.0);
        close(c.exposed, (c.halo - inner * c.product).max(0.0));
        assert!(c.exposed > 0.0 && c.total(true) < c.total(false));
        // A longer basis needs fewer sums and more operations.
        let longer = machine.poisson([100, 100, 100], Method::Cbcg, 16, 8).unwrap();
        assert!(longer.all_reduce < c.all_reduce && longer.vectors > c.vectors);
    }

    #[test]
    fn what_is_missing_is_named() {
        let fails = |machine: &Machine, gpus, word: &str| {
            let text = machine.poisson([9, 9, 9], Method::Cg, 12, gpus).unwrap_err().to_string();
            assert!(text.contains(word), "{text}");
        };
        fails(&round(), 1, "[poisson]");
        fails(&machine(), 11, "11 boxes");
        fails(&machine(), 0, "must be at least 1");
        let mut alone = machine();
        alone.network = None;
        fails(&alone, 3, "[network]");
        let text = machine().text();
        for (from, to, word) in [
            ("halo_share = 0.25", "halo_share = 0", "poisson.halo_share"),
            ("gram = 0.5", "gram = nan", "poisson.gram"),
            ("fitted = [\"nothing\"]", "fited = 1", "fited"),
        ] {
            assert!(text.contains(from), "{from}");
            let error = Machine::parse(&text.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    fn shipped(name: &str) -> Machine {
        Machine::open(name.as_ref()).unwrap()
    }

    #[test]
    fn files_are_written_and_read_again() {
        for machine in [machine(), shipped("summit"), shipped("abci")] {
            assert_eq!(Machine::parse(&machine.text()).unwrap(), machine);
        }
    }

    /// The bounds are the errors of a model with two fitted constants per machine: a third for parts, a fifth
    /// for iterations.
    #[test]
    fn published_figures_are_met_within_bounds() {
        let grid = [1280, 1280, 4608];
        for name in ["summit", "abci"] {
            let machine = shipped(name);
            let beside = beside(&machine, grid).unwrap();
            assert!(beside.len() >= 20, "{name}: {}", beside.len());
            assert!(beside.iter().filter(|b| b.published.fitted).count() <= 2, "{name}");
            for b in &beside {
                let p = &b.published;
                let bound = match (p.part, p.fitted) {
                    (_, true) => 0.02,
                    (Part::Total | Part::SpeedUp, _) => 0.21,
                    (Part::AllReduce | Part::AllReduceShare, _) if p.method == Method::Cbcg => 0.75,
                    _ => 0.35,
                };
                assert!(b.error().abs() <= bound, "{name}: {p:?}: {:.3}, {:+.3}", b.model, b.error());
            }
        }
    }

    /// The paper's conclusion: P-CG is faster up to 3,840 GPUs, and on 7,680 both take about the same time.
    #[test]
    fn communication_avoiding_pays_where_the_paper_says() {
        let machine = shipped("summit");
        let time =
            |method, gpus| machine.poisson([1280, 1280, 4608], method, STEPS, gpus).unwrap().total(true);
        for gpus in [480, 960, 1920, 3840] {
            assert!(time(Method::Cg, gpus) < time(Method::Cbcg, gpus), "{gpus}");
        }
        let ratio = time(Method::Cg, 7680) / time(Method::Cbcg, 7680);
        assert!((0.9..1.1).contains(&ratio), "{ratio}");
    }
}
