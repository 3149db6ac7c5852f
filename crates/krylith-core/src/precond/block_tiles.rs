//! Block-Jacobi on a structured grid: the box of grid cells that a rank holds is cut into tiles, and each tile's part of the matrix gets
//! an incomplete factorisation without fill, IC(0) or ILU(0). After Ali, Onodera, Idomura, Ina and Imamura (2019), §IV-B.
//!
//! Of a 7-point matrix (5-point and 3-point ones are thin boxes) such a factorisation changes the diagonal alone, because no two
//! neighbours of a cell are neighbours of each other: M = (D̃ + L) D̃⁻¹ (D̃ + U) with the matrix's own L and U inside the tile, and
//! d̃ᵢ = aᵢᵢ − Σ aᵢⱼ aⱼᵢ / d̃ⱼ over the lower neighbours j of cell i in its tile. So four numbers a cell are all that is stored where the
//! values are symmetric, seven elsewhere.
//!
//! What couples tiles is left out, and only of the preconditioner. A tile never crosses ranks: tiles are counted from the corner of
//! a rank's own box, so they are the same on any number of ranks where every box is a multiple of the tile, and depend on the cut
//! elsewhere. Results do not depend on the number of threads.
//!
//! Ledger of one application in f64: 48 bytes a cell, 72 with both halves; sums over x and y cost nothing more.

use super::ildu::PivotKind;
use crate::operator::{Dots, LinearOperator, TermValues, Terms, fresh_key};
use crate::profile::{self, SetupPart};
use crate::space::{Precision, Space};
use crate::{Error, Result};

/// Halves of a matrix that differ by more than this, relative to their size, are not symmetric.
pub(crate) const DIFFERS: f64 = 1e-12;

/// A box of grid cells, x fastest, and the tiles that it is cut into from its first corner.
///
/// # Examples
/// ```
/// use krylith_core::precond::Tiling;
/// let tiling = Tiling { cells: [64, 64, 10], tile: [32, 8, 4] };
/// assert_eq!(tiling.counts(), [2, 8, 3]); // the last layer of tiles is two cells thick
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiling {
    /// Cells of the box in x, y and z.
    pub cells: [usize; 3],
    /// Cells of a tile in x, y and z, each at least 1; at the far sides of the box less remains.
    pub tile: [usize; 3],
}

impl Tiling {
    /// Tiles in x, y and z.
    pub fn counts(&self) -> [usize; 3] {
        std::array::from_fn(|k| self.cells[k].div_ceil(self.tile[k].max(1)))
    }

    /// Cells of the box.
    pub fn len(&self) -> usize {
        self.cells.iter().product()
    }

    /// True where the box has no cells, as that of a rank without rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What is computed in each tile.
///
/// # Examples
/// ```
/// use krylith::precond::PrecondSpec;
/// use krylith_core::precond::{TileFactor, TileSpec};
/// let spec = PrecondSpec::BlockJacobi(TileSpec { factor: Some(TileFactor::Ilu0), ..TileSpec::default() });
/// assert_eq!(spec, "block-jacobi:factor=ilu0".parse()?);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TileFactor {
    /// IC(0): symmetric values alone; one half is stored.
    Ic0,
    /// ILU(0): any values; both halves are stored.
    Ilu0,
}

impl TileFactor {
    /// Its name in options.
    pub fn name(self) -> &'static str {
        match self {
            TileFactor::Ic0 => "ic0",
            TileFactor::Ilu0 => "ilu0",
        }
    }
}

/// Which tiles a device takes.
///
/// # Examples
/// ```
/// use krylith::precond::PrecondSpec;
/// use krylith_core::precond::{TileShape, TileSpec};
/// let spec = PrecondSpec::BlockJacobi(TileSpec { tile: TileShape::Box([32, 8, 4]), factor: None });
/// assert_eq!(spec.to_string(), "block-jacobi:tile=32x8x4");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TileShape {
    /// The device's own: slabs of whole planes on a CPU, tiles of 32×8×4 cells on a GPU.
    #[default]
    Auto,
    /// One tile for the whole box of a rank.
    Whole,
    /// Slabs along z of whole planes, of about 65,536 cells and at least eight planes.
    Slab,
    /// Cells in x, y and z.
    Box([usize; 3]),
}

/// How a factorisation went; rows are own rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[doc(hidden)]
pub struct TileReport {
    /// The first row with an entry among own columns that is no neighbour's on the grid.
    pub off_stencil: Option<usize>,
    /// The first row whose entries differ from those that mirror them in its tile, where they were to be symmetric.
    pub unsymmetric: Option<usize>,
    /// The first pivot that cannot be mended.
    pub bad: Option<(usize, PivotKind)>,
    /// Pivots that were not positive enough (ILU: not large enough) and became the largest entry of their row in the tile.
    pub shifted: usize,
}

impl TileReport {
    /// Both together.
    pub fn with(self, other: Self) -> Self {
        fn first<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            [one, other].into_iter().flatten().min()
        }
        Self {
            off_stencil: first(self.off_stencil, other.off_stencil),
            unsymmetric: first(self.unsymmetric, other.unsymmetric),
            bad: first(self.bad, other.bad),
            shifted: self.shifted + other.shifted,
        }
    }

    /// The same as an error, where the factors cannot be used.
    fn check(&self) -> Result<()> {
        if let Some(row) = self.off_stencil {
            return Err(Error::Unsupported(format!(
                "block-jacobi takes the matrix of a 7-point stencil: row {row} couples cells that are no neighbours on the grid; \
                 ildu takes any matrix"
            )));
        }
        if let Some(row) = self.unsymmetric {
            return Err(Error::Unsupported(format!(
                "IC(0) takes symmetric values, and those of row {row} differ from what mirrors them; take \
                 block-jacobi:factor=ilu0"
            )));
        }
        let Some((row, kind)) = self.bad else { return Ok(()) };
        Err(Error::Pivot { row, kind: kind.name(), remedy: "take another preconditioner" })
    }
}

/// A device that can factorise the tiles of a box and solve with their factors.
///
/// # Examples
/// The bound of code that takes [`BlockTiles`] on any device.
/// ```
/// use krylith::{Result, operator::Terms};
/// use krylith_core::precond::{BlockTiles, BlockTilesOptions, TileFactors};
/// fn tiles<S: TileFactors>(space: &S, pressure: &Terms, cells: [usize; 3]) -> Result<BlockTiles<S>> {
///     BlockTiles::new(space, pressure, cells, BlockTilesOptions::default())
/// }
/// ```
pub trait TileFactors: Space {
    /// Factors on the device.
    type Tiles;
    /// The tile that stands for a shape in a box of these cells.
    ///
    /// # Errors
    /// A tile that this device does not take, with those that it does.
    fn tile(
        &self,
        shape: TileShape,
        cells: [usize; 3],
        factor: TileFactor,
        precision: Precision,
    ) -> Result<[usize; 3]>;
    /// Factorises every tile's part of one scalar matrix, whose own rows are the cells of the box. What the report finds fault with
    /// makes the factors unusable.
    ///
    /// # Errors
    /// As [`tile`](Self::tile); a device without room.
    fn factorize_tiles(
        &self,
        terms: &Terms,
        tiling: &Tiling,
        factor: TileFactor,
        precision: Precision,
    ) -> Result<(Self::Tiles, TileReport)>;
    /// The same for new values of that matrix.
    ///
    /// # Errors
    /// A device that fails.
    fn refactorize_tiles(
        &self,
        tiles: &mut Self::Tiles,
        terms: &Terms,
        values: &TermValues,
    ) -> Result<TileReport>;
    /// `y ← M⁻¹ x`, with sums where they are asked for.
    ///
    /// # Errors
    /// Vectors of another length; ranks that fail.
    fn solve_tiles(
        &self,
        tiles: &Self::Tiles,
        x: &Self::Vector,
        y: &mut Self::Vector,
        sums: Option<(&mut Self::Scalars, Dots)>,
    ) -> Result<()>;
    /// Bytes that one application must move.
    fn tiles_bytes(tiles: &Self::Tiles) -> u64;
}

/// How tiles are cut, computed and stored.
///
/// # Examples
/// ```
/// use krylith_core::precond::{BlockTilesOptions, TileShape};
/// let options = BlockTilesOptions { tile: TileShape::Slab, store: krylith::Precision::F32, ..BlockTilesOptions::default() };
/// assert_eq!(options.factor, None); // by the symmetry of the values
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockTilesOptions {
    /// The tile.
    pub tile: TileShape,
    /// IC(0) where the values are symmetric, ILU(0) elsewhere, unless one is named.
    pub factor: Option<TileFactor>,
    /// Precision of the stored factors.
    pub precision: Precision,
}

/// y = M⁻¹ x, tile by tile.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::{matrix::Csr, operator::{LinearOperator, Terms, Space}};
/// use krylith_core::precond::{BlockTiles, BlockTilesOptions, TileFactor};
/// // A line of four cells is one tile, and its factors are exact: −1 2 −1.
/// let mut entries: Vec<_> = (0..4).map(|i| (i, i, 2.0)).collect();
/// entries.extend((1..4).flat_map(|i| [(i, i - 1, -1.0), (i - 1, i, -1.0)]));
/// let terms = Terms::csr(&Csr::from_triplets(4, 4, &entries)?)?;
/// let space = Cpu::new(4, 1);
/// let tiles = BlockTiles::new(&space, &terms, [4, 1, 1], BlockTilesOptions::default())?;
/// assert_eq!(tiles.factor(), TileFactor::Ic0); // the values are symmetric
/// let mut y = space.vector()?;
/// tiles.apply(&space, &vec![1.0; 4], &mut y)?;
/// assert!((y[0] - 2.0).abs() < 1e-12 && (y[1] - 3.0).abs() < 1e-12); // (i + 1)(4 − i)/2
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct BlockTiles<S: TileFactors> {
    tiles: S::Tiles,
    tiling: Tiling,
    factor: TileFactor,
    shifted: usize,
    stored: usize,
    key: u64,
}

impl<S: TileFactors> BlockTiles<S> {
    /// Factorises the tiles of own rows that are a box of `cells`, numbered with x fastest. Collective where ranks share the system.
    ///
    /// # Errors
    /// No single scalar matrix; rows that are not those cells; an entry off the 7-point stencil; values that are not symmetric where IC(0)
    /// was named; a pivot that cannot be mended; a device without room.
    pub fn new(space: &S, terms: &Terms, cells: [usize; 3], options: BlockTilesOptions) -> Result<Self> {
        let factor = options.factor.unwrap_or(TileFactor::Ic0);
        let made = Self::factorize(space, terms, cells, factor, options);
        let unsymmetric =
            options.factor.is_none() && made.as_ref().is_ok_and(|(_, r)| r.unsymmetric.is_some());
        // All ranks store the same halves.
        let (tiles, report) = match space.any(unsymmetric)? {
            false => made?,
            true => Self::factorize(space, terms, cells, TileFactor::Ilu0, options)?,
        };
        report.check()?;
        Ok(tiles)
    }

    fn factorize(
        space: &S,
        terms: &Terms,
        cells: [usize; 3],
        factor: TileFactor,
        options: BlockTilesOptions,
    ) -> Result<(Self, TileReport)> {
        let (b, s) = (terms.block(), terms.stages());
        if (b, s, terms.terms.len()) != (1, 1, 1) {
            return Err(Error::Unsupported(format!(
                "block-jacobi takes one matrix of single numbers, not {} with {b}×{b} blocks and {s} stages; ildu takes any",
                crate::text::plural(terms.terms.len(), "term")
            )));
        }
        let rows = terms.block_rows();
        if cells.iter().product::<usize>() != rows {
            return Err(Error::invalid(format!(
                "{rows} rows on a grid of {}×{}×{} cells; block-jacobi needs a row for each",
                cells[0], cells[1], cells[2]
            )));
        }
        let tile = space.tile(options.tile, cells, factor, options.precision)?;
        let tiling = Tiling { cells, tile };
        let (tiles, report) = space.factorize_tiles(terms, &tiling, factor, options.precision)?;
        let (shifted, stored) = (report.shifted, terms.terms[0].1.blocks());
        Ok((Self { tiles, tiling, factor, shifted, stored, key: fresh_key() }, report))
    }

    /// Factorises again, for new values under the same pattern: those of `terms`, or `values` in their place. Nothing is analysed. After
    /// an error the factors must not be applied.
    ///
    /// # Errors
    /// Another shape; values that are not symmetric any more; a pivot that cannot be mended.
    pub fn update_values<'v>(
        &mut self,
        space: &S,
        terms: &Terms,
        values: impl Into<TermValues<'v>>,
    ) -> Result<()> {
        let values = values.into();
        values.check(1, [self.stored].into_iter())?;
        if terms.block_rows() != self.tiling.len() {
            return Err(Error::invalid(
                "the new values have another shape than the preconditioner was built for",
            ));
        }
        let _factors = profile::begin_inside(SetupPart::Factors);
        let report = space.refactorize_tiles(&mut self.tiles, terms, &values)?;
        self.shifted = report.shifted;
        report.check()
    }

    /// The box and its tiles.
    pub fn tiling(&self) -> &Tiling {
        &self.tiling
    }

    /// What was computed in each tile.
    pub fn factor(&self) -> TileFactor {
        self.factor
    }

    /// Pivots of this rank that were mended.
    pub fn shifted(&self) -> usize {
        self.shifted
    }
}

impl<S: TileFactors> LinearOperator<S> for BlockTiles<S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        space.solve_tiles(&self.tiles, x, y, None)
    }
    fn apply_with_dots(
        &self,
        space: &S,
        x: &S::Vector,
        y: &mut S::Vector,
        scalars: &mut S::Scalars,
        dots: Dots,
    ) -> Result<bool> {
        space.solve_tiles(&self.tiles, x, y, Some((scalars, dots))).map(|()| true)
    }
    fn key(&self) -> u64 {
        self.key
    }
    fn bytes(&self) -> u64 {
        S::tiles_bytes(&self.tiles)
    }
}
