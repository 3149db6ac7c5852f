//! Block-Jacobi on a structured grid. The box of grid cells that a rank owns is cut into tiles. Each tile's
//! part of the matrix gets an incomplete factorisation without fill, IC(0) or ILU(0). After Ali, Onodera,
//! Idomura, Ina and Imamura (2019), §IV-B.
//!
//! A 7-point matrix couples a cell to its six neighbours; 5-point and 3-point matrices are boxes one cell
//! thick. Without fill the factorisation of such a matrix changes only the diagonal, because no two
//! neighbours of a cell are neighbours of each other. So M = (D̃ + L) D̃⁻¹ (D̃ + U), where L and U are the
//! matrix's own triangles inside the tile. Here d̃ᵢ = aᵢᵢ − Σ aᵢⱼ aⱼᵢ / d̃ⱼ over the lower neighbours j of
//! cell i in its tile. Only four numbers per cell are stored if the values are symmetric, else seven.
//!
//! The preconditioner leaves out the entries that couple tiles. A tile never crosses ranks, because tiles are
//! counted from the corner of a rank's own box. If every box is a multiple of the tile, the tiles are the
//! same on any number of ranks. Otherwise they depend on the partition. Results do not depend on the number
//! of threads.
//!
//! Mᵀ has the same d̃, and the triangles change places. So a transposed application reads the same numbers.
//!
//! One application in f64 moves 48 bytes per cell, or 72 with both triangles. The sums over x and y that a
//! method requests move nothing extra.

use super::incomplete::pivots::PivotKind;
use crate::operator::{Dots, LinearOperator, TermValues, Terms};
use crate::profile::{self, SetupPart};
use crate::space::{Precision, Space};
use crate::{Error, Result};

/// Relative difference above which mirrored entries of a matrix count as unsymmetric.
pub(crate) const DIFFERS: f64 = 1e-12;

/// A box of grid cells, numbered with x fastest, and its tiles, which are counted from the first corner.
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
    /// Cells of a tile in x, y and z, each at least 1; tiles at the far sides of the box may be smaller.
    pub tile: [usize; 3],
}

impl Tiling {
    /// Returns the number of tiles in x, y and z.
    pub fn counts(&self) -> [usize; 3] {
        std::array::from_fn(|k| self.cells[k].div_ceil(self.tile[k].max(1)))
    }

    /// Returns the number of cells of the box.
    pub fn len(&self) -> usize {
        self.cells.iter().product()
    }

    /// Returns true if the box has no cells, as on a rank without rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Incomplete factorisation of each tile.
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
    /// IC(0), for symmetric values only. One triangle is stored.
    Ic0,
    /// ILU(0), for any values. Both triangles are stored.
    Ilu0,
}

impl TileFactor {
    /// Returns the name in options.
    pub fn name(self) -> &'static str {
        match self {
            TileFactor::Ic0 => "ic0",
            TileFactor::Ilu0 => "ilu0",
        }
    }
}

/// Shape of the tiles.
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
    /// The default of the device: slabs of whole planes on a CPU, tiles of 32×8×4 cells on a GPU.
    #[default]
    Auto,
    /// One tile for the whole box of a rank.
    Whole,
    /// Slabs of whole planes along z, of about 65,536 cells and at least eight planes.
    Slab,
    /// Number of cells in x, y and z.
    Box([usize; 3]),
}

/// Report of a factorisation. Rows are numbered as this rank's own rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[doc(hidden)]
pub struct TileReport {
    /// The first row that couples its cell to another cell of the box that is not a neighbour on the grid.
    pub off_stencil: Option<usize>,
    /// The first row with an entry a_ij in its tile that differs from a_ji, if the values had to be
    /// symmetric.
    pub unsymmetric: Option<usize>,
    /// The first pivot that cannot be corrected.
    pub bad: Option<(usize, PivotKind)>,
    /// Number of pivots that were not positive enough (ILU: not large enough) and were replaced by the
    /// largest entry of their row in the tile.
    pub shifted: usize,
}

impl TileReport {
    /// Returns the combination of both reports.
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

    /// Returns an error if the factors cannot be used.
    fn check(&self) -> Result<()> {
        if let Some(row) = self.off_stencil {
            return Err(Error::Unsupported(format!(
                "block-jacobi needs a 7-point stencil: row {row} couples cells that are not neighbours on the grid; \
                 use ildu, which takes any matrix"
            )));
        }
        if let Some(row) = self.unsymmetric {
            return Err(Error::Unsupported(format!(
                "IC(0) needs symmetric values, but row {row} differs from its mirrored entries; use \
                 block-jacobi:factor=ilu0"
            )));
        }
        let Some((row, kind)) = self.bad else { return Ok(()) };
        Err(Error::Pivot { row, kind: kind.name(), remedy: "use another preconditioner" })
    }
}

/// A device that can factorise the tiles of a box and solve with their factors.
///
/// # Examples
/// A bound for code that uses [`BlockTiles`] on any device.
/// ```
/// use krylith::{Result, operator::Terms};
/// use krylith_core::precond::{BlockTiles, BlockTilesOptions, TileFactors};
/// fn tiles<S: TileFactors>(space: &S, pressure: &Terms, cells: [usize; 3]) -> Result<BlockTiles<S>> {
///     BlockTiles::new(space, pressure, cells, BlockTilesOptions::default())
/// }
/// ```
pub trait TileFactors: Space {
    /// The factors on the device, as an operator, y = M⁻¹ x.
    type Tiles: LinearOperator<Self>;
    /// Returns the number of cells in x, y and z of a tile of this shape, in a box of these cells.
    ///
    /// # Errors
    /// A tile that this device does not support; the error lists the supported tiles.
    fn tile(
        &self,
        shape: TileShape,
        cells: [usize; 3],
        factor: TileFactor,
        precision: Precision,
    ) -> Result<[usize; 3]>;
    /// Allocates the factors of one scalar matrix, whose own rows are the cells of the box, without computing
    /// values.
    ///
    /// # Errors
    /// As [`tile`](Self::tile); out of device memory.
    fn prepare_tiles(
        &self,
        terms: &Terms,
        tiling: &Tiling,
        factor: TileFactor,
        precision: Precision,
    ) -> Result<Self::Tiles>;
    /// Factorises every tile's part of the matrix with these values. If the report names a defect, the
    /// factors are unusable.
    ///
    /// # Errors
    /// Errors of the device.
    fn factorize_tiles(
        &self,
        tiles: &mut Self::Tiles,
        terms: &Terms,
        values: &TermValues,
    ) -> Result<TileReport>;
}

/// Options of [`BlockTiles`].
///
/// # Examples
/// ```
/// use krylith_core::precond::{BlockTilesOptions, TileShape};
/// let options = BlockTilesOptions {
///     tile: TileShape::Slab,
///     precision: krylith::Precision::F32,
///     ..BlockTilesOptions::default()
/// };
/// assert_eq!(options.factor, None); // by the symmetry of the values
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockTilesOptions {
    /// Shape of the tiles.
    pub tile: TileShape,
    /// The factorisation; by default IC(0) if the values are symmetric, else ILU(0).
    pub factor: Option<TileFactor>,
    /// Precision of the stored factors.
    pub precision: Precision,
}

/// The preconditioner y = M⁻¹ x, tile by tile.
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
}

impl<S: TileFactors> BlockTiles<S> {
    /// Factorises the tiles of own rows, which are a box of `cells` numbered with x fastest. Collective if
    /// ranks share the system.
    ///
    /// # Errors
    /// Terms other than one scalar matrix; rows that do not match the cells; an entry off the 7-point
    /// stencil; values that are not symmetric if IC(0) was named; a pivot that cannot be corrected; out of
    /// device memory.
    pub fn new(space: &S, terms: &Terms, cells: [usize; 3], options: BlockTilesOptions) -> Result<Self> {
        let factor = options.factor.unwrap_or(TileFactor::Ic0);
        let made = Self::factorize(space, terms, cells, factor, options);
        let unsymmetric =
            options.factor.is_none() && made.as_ref().is_ok_and(|(_, r)| r.unsymmetric.is_some());
        // All ranks must use the same factorisation.
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
                "block-jacobi takes one scalar matrix, not {} with {b}×{b} blocks and {s} stages; use ildu instead",
                crate::text::plural(terms.terms.len(), "term")
            )));
        }
        let rows = terms.block_rows();
        if cells.iter().product::<usize>() != rows {
            return Err(Error::invalid(format!(
                "{rows} rows do not match a grid of {}×{}×{} cells; block-jacobi needs one row per cell",
                cells[0], cells[1], cells[2]
            )));
        }
        let tile = space.tile(options.tile, cells, factor, options.precision)?;
        let tiling = Tiling { cells, tile };
        let mut tiles = space.prepare_tiles(terms, &tiling, factor, options.precision)?;
        let report = space.factorize_tiles(&mut tiles, terms, &TermValues::from(terms))?;
        let (shifted, stored) = (report.shifted, terms.terms[0].1.blocks());
        Ok((Self { tiles, tiling, factor, shifted, stored }, report))
    }

    /// Factorises again for new values with the same pattern: `values` if given, else those of `terms`.
    /// Nothing is analysed. After an error the factors must not be applied.
    ///
    /// # Errors
    /// Values of another shape; values that are no longer symmetric; a pivot that cannot be corrected.
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
                "the new values have another number of rows than the preconditioner was built for; build a \
                 new one",
            ));
        }
        let _factors = profile::begin_inside(SetupPart::Factors);
        let report = space.factorize_tiles(&mut self.tiles, terms, &values)?;
        self.shifted = report.shifted;
        report.check()
    }

    /// Returns the box and its tiles.
    pub fn tiling(&self) -> &Tiling {
        &self.tiling
    }

    /// Returns the factorisation that was used.
    pub fn factor(&self) -> TileFactor {
        self.factor
    }

    /// Returns the number of pivots on this rank that were corrected.
    pub fn shifted(&self) -> usize {
        self.shifted
    }
}

impl<S: TileFactors> LinearOperator<S> for BlockTiles<S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.tiles.apply(space, x, y)
    }
    fn apply_with_dots(
        &self,
        space: &S,
        x: &S::Vector,
        y: &mut S::Vector,
        scalars: &mut S::Scalars,
        dots: Dots,
    ) -> Result<bool> {
        self.tiles.apply_with_dots(space, x, y, scalars, dots)
    }
    fn has_transpose(&self) -> bool {
        self.tiles.has_transpose()
    }
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.tiles.apply_transpose(space, x, y)
    }
    fn key(&self) -> u64 {
        self.tiles.key()
    }
    fn bytes(&self) -> u64 {
        self.tiles.bytes()
    }
}
