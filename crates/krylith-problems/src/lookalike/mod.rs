//! Look-alikes of the 24 matrices of "Optimization of Large-Scale Sparse Matrix-Vector Multiplication on
//! Multi-GPU Systems" (Gao, Ji and Wang 2024, Table 2).
//!
//! The originals are in the SuiteSparse Matrix Collection and hold up to two billion entries. A look-alike is
//! generated on all host threads and has the original's rows, entries, and shortest, longest and mean row.
//! The positions of its entries are an assumption, stated in the file of each kind. `permuted` renumbers rows
//! and columns at random, to show how much a result depends on that assumption.
//!
//! ```
//! use krylith_problems::lookalike::{self, Shape};
//! let web = lookalike::by_name("indochina-2004").unwrap();
//! let a = web.generate(1.0 / 4096.0, 1, false)?;
//! assert_eq!(Shape::of(&a), web.scaled(1.0 / 4096.0)?);
//! # Ok::<(), krylith::Error>(())
//! ```

mod build;
mod fullchip;
mod hash;
mod kmer;
mod lengths;
mod nlpkkt;
mod problem;
mod rgg;
mod social;
mod stokes;
mod web;

use krylith_core::matrix::Csr;
use krylith_core::partition::contiguous;
use krylith_core::{Error, Result};
use rayon::prelude::*;

use crate::memory;
use build::{Arrays, Pattern, Values, build};
use hash::{Permutation, mix};

pub(crate) use problem::{generate, generate_rows};

/// A matrix of Table 2 and how to generate one like it.
///
/// # Examples
/// ```
/// use krylith_problems::lookalike::by_name;
/// let web = by_name("uk-2002").unwrap();
/// let a = web.generate(1e-4, 1, false)?; // a ten-thousandth of its rows
/// assert!(a.rows() < web.rows as usize / 1000);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Lookalike {
    /// The number of the matrix in the paper, 1 to 24.
    pub id: usize,
    /// Name in the SuiteSparse Matrix Collection, without its group.
    pub name: &'static str,
    /// Number of rows, and of columns.
    pub rows: u64,
    /// Stored entries.
    pub nonzeros: u64,
    /// Entries of the shortest row.
    pub min: u32,
    /// Entries of the longest row.
    pub max: u32,
    kind: Kind,
}

/// Origin of the matrix, which decides the generator.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Kmer,
    Web,
    /// Share of empty rows, and share of links that stay near.
    Social {
        empty: f64,
        near: f64,
    },
    Rgg,
    /// Grid points along an edge of the cube.
    Nlpkkt {
        edge: u64,
    },
    Stokes,
    FullChip,
}

const fn like(
    id: usize,
    name: &'static str,
    rows: u64,
    nonzeros: u64,
    row: [u32; 2],
    kind: Kind,
) -> Lookalike {
    Lookalike { id, name, rows, nonzeros, min: row[0], max: row[1], kind }
}

/// The 24 matrices, in the paper's order.
#[rustfmt::skip]
pub static TABLE2: [Lookalike; 24] = [
    like(1, "kmer_U1a", 67_716_231, 138_778_562, [1, 35], Kind::Kmer),
    like(2, "kmer_A2a", 170_728_175, 360_585_172, [1, 40], Kind::Kmer),
    like(3, "kmer_V2a", 55_042_369, 117_217_600, [1, 39], Kind::Kmer),
    like(4, "kmer_P1a", 139_353_211, 297_829_984, [1, 40], Kind::Kmer),
    like(5, "kmer_V1r", 214_005_017, 465_410_904, [1, 8], Kind::Kmer),
    like(6, "webbase-2001", 118_142_155, 1_019_903_190, [0, 3_841], Kind::Web),
    like(7, "FullChip", 2_987_012, 26_621_983, [1, 2_312_481], Kind::FullChip),
    like(8, "ljournal-2008", 5_363_260, 79_023_142, [0, 2_469], Kind::Social { empty: 0.10, near: 0.3 }),
    like(9, "rgg_n_2_23_s0", 8_388_608, 127_002_786, [0, 40], Kind::Rgg),
    like(10, "rgg_n_2_24_s0", 16_777_216, 265_114_400, [0, 40], Kind::Rgg),
    like(11, "uk-2002", 18_520_486, 298_113_762, [0, 2_450], Kind::Web),
    like(12, "com-LiveJournal", 3_997_962, 69_362_378, [1, 14_815], Kind::Social { empty: 0.0, near: 0.1 }),
    like(13, "uk-2005", 39_459_925, 936_364_282, [0, 5_213], Kind::Web),
    like(14, "GAP-twitter", 61_578_415, 1_468_364_884, [0, 2_997_469], Kind::Social { empty: 0.35, near: 0.02 }),
    like(15, "indochina-2004", 7_414_866, 194_109_311, [0, 6_985], Kind::Web),
    like(16, "nlpkkt160", 8_345_600, 225_422_112, [5, 28], Kind::Nlpkkt { edge: 160 }),
    like(17, "nlpkkt200", 16_240_000, 440_225_632, [5, 28], Kind::Nlpkkt { edge: 200 }),
    like(18, "nlpkkt240", 27_993_600, 760_648_352, [5, 28], Kind::Nlpkkt { edge: 240 }),
    like(19, "it-2004", 41_291_594, 1_150_725_436, [0, 9_964], Kind::Web),
    like(20, "arabic-2005", 22_744_080, 639_999_458, [0, 9_905], Kind::Web),
    like(21, "stokes", 11_449_533, 349_321_980, [1, 720], Kind::Stokes),
    like(22, "twitter7", 41_652_230, 1_468_365_182, [0, 2_997_469], Kind::Social { empty: 0.04, near: 0.02 }),
    like(23, "GAP-web", 50_636_151, 1_930_292_948, [0, 12_869], Kind::Web),
    like(24, "sk-2005", 50_636_154, 1_949_412_601, [0, 12_870], Kind::Web),
];

/// Returns the matrix called `name`, as Table 2 spells it.
pub fn by_name(name: &str) -> Option<&'static Lookalike> {
    TABLE2.iter().find(|m| m.name == name)
}

impl Lookalike {
    /// Generates the matrix with `scale` times the paper's rows (1 for the original size); `permuted`
    /// renumbers rows and columns by one random permutation.
    ///
    /// # Errors
    /// Returns an error if the scale is not in (0, 1], if it leaves too few rows, and if memory is not
    /// sufficient.
    pub fn generate(&self, scale: f64, seed: u64, permuted: bool) -> Result<Csr> {
        let Arrays { row_ptr, col, values } = self.rows(scale, seed, permuted, 0, 1)?;
        let n = row_ptr.len() - 1;
        Csr::new(n, n, row_ptr, col, values)
    }

    /// Returns the shape that [`generate`](Self::generate) produces.
    ///
    /// Rows and entries shrink by `scale`, and the longest row is at most as long as the number of rows. For
    /// `nlpkkt` the edge of the cube shrinks by the cube root.
    ///
    /// # Errors
    /// Returns an error if the scale is not in (0, 1], or if it leaves too few rows.
    pub fn scaled(&self, scale: f64) -> Result<Shape> {
        if !(scale > 0.0 && scale <= 1.0) {
            return Err(Error::invalid(format!(
                "{}: scale {scale}: expected a number above 0 and at most 1, the size of the original",
                self.name
            )));
        }
        let few = |rows: u64, least: u64| {
            let (name, least) = (self.name, least as f64 / self.rows as f64);
            let message =
                format!("{name}: scale {scale} leaves {rows} rows; choose a scale of at least {least:.1e}");
            Err(Error::invalid(message))
        };
        if let Kind::Nlpkkt { edge } = self.kind {
            let edge = (edge as f64 * scale.cbrt()).round() as u64;
            let shape = nlpkkt::Nlpkkt::shape(edge.max(1));
            return if edge < 4 { few(shape.rows, nlpkkt::Nlpkkt::shape(4).rows) } else { Ok(shape) };
        }
        let rows = (self.rows as f64 * scale).round() as u64;
        if rows < LEAST {
            return few(rows, LEAST);
        }
        let nonzeros = (self.nonzeros as f64 * scale).round() as u64;
        // Edges without a diagonal give an even number of entries.
        let nonzeros = if matches!(self.kind, Kind::Kmer | Kind::Rgg) { nonzeros / 2 * 2 } else { nonzeros };
        Ok(Shape::new(rows, nonzeros, self.min, u64::from(self.max).min(rows) as u32))
    }

    /// Builds the rows of `rank` among `ranks`, bit for bit those of the whole matrix.
    fn rows<C: From<u32> + Clone + Default + Send>(
        &self,
        scale: f64,
        seed: u64,
        permuted: bool,
        rank: usize,
        ranks: usize,
    ) -> Result<Arrays<C>> {
        let shape = self.scaled(scale)?;
        let n = shape.rows as usize;
        // Columns and values; row pointers and lengths come on top.
        let entry = 8 + std::mem::size_of::<C>() as u64;
        memory::check(self.name, shape.nonzeros / ranks as u64 * entry + shape.rows * 12)?;
        let seed = mix(seed ^ mix(self.id as u64));
        let order = permuted.then(|| Permutation::new(n, mix(!seed)));
        let make = Make { seed, order, own: contiguous(n, rank, ranks) };
        Ok(match self.kind {
            Kind::Kmer => make.rows(&kmer::Kmer::new(&shape, seed), shape.max),
            Kind::Web => make.rows(&web::Web::new(&shape, seed), POPULAR),
            Kind::Social { empty, near } => {
                make.rows(&social::Social::new(&shape, empty, near, seed), POPULAR)
            }
            Kind::Rgg => make.rows(&rgg::Rgg::new(&shape, seed), shape.max),
            Kind::Nlpkkt { edge } => {
                let edge = (edge as f64 * scale.cbrt()).round() as usize;
                make.rows(&nlpkkt::Nlpkkt::new(edge), shape.max)
            }
            Kind::Stokes => make.rows(&stokes::Stokes::new(&shape, seed), shape.max),
            Kind::FullChip => make.rows(&fullchip::FullChip::new(&shape, seed), POPULAR),
        })
    }
}

/// Smallest number of rows that every kind supports.
const LEAST: u64 = 720;

/// A bound above the length of any column, for kinds whose columns are not bounded as rows are.
const POPULAR: u32 = 1 << 24;

/// Parameters common to all kinds.
struct Make {
    seed: u64,
    order: Option<Permutation>,
    own: std::ops::Range<usize>,
}

impl Make {
    fn rows<P: Pattern, C: From<u32> + Clone + Default + Send>(self, pattern: &P, longest: u32) -> Arrays<C> {
        let values = Values::new(mix(self.seed ^ 1), longest, P::SYMMETRIC);
        build(pattern, &values, self.order.as_ref(), self.own)
    }
}

/// The shape of a matrix, as in Table 2.
///
/// # Examples
/// ```
/// use krylith::matrix::Csr;
/// use krylith_problems::lookalike::Shape;
/// let shape = Shape::of(&Csr::from_triplets(2, 2, &[(0, 0, 1.0), (1, 0, 1.0), (1, 1, 1.0)])?);
/// assert_eq!((shape.rows, shape.nonzeros, shape.mean, shape.min, shape.max), (2, 3, 1.5, 1, 2));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Number of rows.
    pub rows: u64,
    /// Stored entries.
    pub nonzeros: u64,
    /// Mean number of entries per row.
    pub mean: f64,
    /// Entries of the shortest row.
    pub min: u32,
    /// Entries of the longest row.
    pub max: u32,
}

impl Shape {
    /// Returns the shape of a matrix.
    pub fn of(a: &Csr) -> Self {
        let ends = a.row_ptr();
        let (min, max) = (ends.par_windows(2).with_min_len(1 << 14))
            .map(|w| (w[1] - w[0]) as u32)
            .fold(|| (u32::MAX, 0), |(low, high), len| (len.min(low), len.max(high)))
            .reduce(|| (u32::MAX, 0), |a, b| (a.0.min(b.0), a.1.max(b.1)));
        Self::new(a.rows() as u64, a.nonzeros() as u64, min.min(max), max)
    }

    fn new(rows: u64, nonzeros: u64, min: u32, max: u32) -> Self {
        Self { rows, nonzeros, mean: nonzeros as f64 / rows.max(1) as f64, min, max }
    }
}
