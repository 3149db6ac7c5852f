//! Permeabilities of the reservoir: read from the real data, or generated with a similar structure and range.
//!
//! **Read**: a folder with `spe10_kx_mD.f64le` and `spe10_kz_mD.f64le`, little-endian f64 of 60×220×85 cells
//! with x fastest, then y, then depth. A smaller grid uses the cells of lowest number in x and y, and the
//! layers from `layer` downwards.
//!
//! **Generated**: log₁₀ K_x is a sum of smooth random fields, with the statistics of the real data. The upper
//! 35 of 85 parts of the depth resemble the Tarbert formation (near shore): smooth along x and y, with mean
//! 1.4 and deviation 1. The rest resembles Upper Ness (fluvial): winding channels along y of mean 2.4 in
//! shale of mean −0.8, with sharp boundaries. K_x is kept within the real range, 6.65·10⁻⁴ to 2·10⁴ mD. K_z
//! is 0.3 K_x in highly permeable rock and 10⁻⁴ K_x elsewhere: the two ratios of the real data.

use krylith_core::{Error, Result};
use rayon::prelude::*;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use crate::grid::Grid;
use crate::noise::smooth;

/// Cells of the real data.
const REAL: [usize; 3] = [60, 220, 85];

/// Range of K_x in the real data, mD.
const RANGE: [f64; 2] = [6.65e-4, 2e4];

/// K_x and K_z, in mD, of consecutive cells.
pub(super) struct Permeability {
    first: usize,
    x: Vec<f64>,
    z: Vec<f64>,
}

impl Permeability {
    /// Returns K of cell `i` along x, y or z.
    pub fn along(&self, i: usize, axis: usize) -> f64 {
        if axis == 2 { self.z[i - self.first] } else { self.x[i - self.first] }
    }

    /// Generates the cells `window`.
    pub fn generate(grid: Grid, window: Range<usize>, seed: u64) -> Self {
        let first = window.start;
        let (x, z) = window
            .into_par_iter()
            .with_min_len(1024)
            .map(|i| {
                let at = grid.position(i);
                // In integers: the top has 35 of 85 parts, as in the real data.
                if at[2] * 85 < grid.sizes()[2] * 35 { tarbert(seed, at) } else { upper_ness(seed, at) }
            })
            .unzip();
        Self { first, x, z }
    }

    /// Reads the cells `window` of the real data, from `layer` downwards.
    ///
    /// # Errors
    /// Returns an error if the grid is larger than the data, or if a file is missing, has the wrong length,
    /// or has a value that is not positive and finite.
    pub fn read(folder: &Path, grid: Grid, window: Range<usize>, layer: usize) -> Result<Self> {
        let [nx, ny, nz] = grid.sizes();
        if nx > REAL[0] || ny > REAL[1] || layer + nz > REAL[2] {
            return Err(Error::invalid(format!(
                "problem spe10: {nx}x{ny}x{nz} cells from layer {layer} are not in the data, which have 60x220x85; \
                 without permeability= any size is generated"
            )));
        }
        let read = |name: &str| read(&folder.join(name), grid, &window, layer);
        Ok(Self { first: window.start, x: read("spe10_kx_mD.f64le")?, z: read("spe10_kz_mD.f64le")? })
    }
}

/// Reads the cells `window` from one file; memory for one layer of the file is needed besides.
fn read(path: &Path, grid: Grid, window: &Range<usize>, layer: usize) -> Result<Vec<f64>> {
    let io = |source| Error::Io { path: path.into(), source };
    let malformed = |message| Error::Format { path: path.into(), message };
    let mut file = File::open(path).map_err(io)?;
    let (length, expected) = (file.metadata().map_err(io)?.len(), REAL.iter().product::<usize>() as u64 * 8);
    if length != expected {
        return Err(malformed(format!(
            "has {length} bytes; 60x220x85 little-endian f64 are {expected} bytes"
        )));
    }
    let mut plane = vec![0u8; REAL[0] * REAL[1] * 8];
    let mut values = Vec::with_capacity(window.len());
    let mut held = None;
    for i in window.clone() {
        let [x, y, z] = grid.position(i);
        if held != Some(z) {
            file.seek(SeekFrom::Start(((layer + z) * plane.len()) as u64)).map_err(io)?;
            file.read_exact(&mut plane).map_err(io)?;
            held = Some(z);
        }
        let at = (y * REAL[0] + x) * 8;
        let k = f64::from_le_bytes(std::array::from_fn(|byte| plane[at + byte]));
        if !(k.is_finite() && k > 0.0) {
            let z = layer + z;
            return Err(malformed(format!(
                "cell ({x}, {y}, {z}) is {k}; permeabilities must be positive and finite"
            )));
        }
        values.push(k);
    }
    Ok(values)
}

/// Evaluates a random field with correlation lengths `lengths`, in cells.
fn field(seed: u64, stream: u64, at: [usize; 3], lengths: [f64; 3]) -> f64 {
    smooth(seed, stream, std::array::from_fn(|d| at[d] as f64 / lengths[d]))
}

/// Returns K_x and K_z in smooth layers.
fn tarbert(seed: u64, at: [usize; 3]) -> (f64, f64) {
    let level = 1.4
        + 0.6 * field(seed, 11, at, [24.0, 24.0, 5.0])
        + 0.7 * field(seed, 12, at, [16.0, 16.0, 1.0])
        + 0.35 * field(seed, 13, at, [2.0, 2.0, 1.0]);
    rock(level, 1.75)
}

/// Returns K_x and K_z of channels in shale.
fn upper_ness(seed: u64, at: [usize; 3]) -> (f64, f64) {
    // A channel is the neighbourhood of the zeros of a field; as the field is elongated in y, they wind along
    // y.
    let channel = field(seed, 14, at, [8.0, 40.0, 4.0]).abs() < 0.55;
    let grains = field(seed, 15, at, [3.0, 6.0, 1.5]);
    let level = if channel { 2.4 + 0.7 * grains } else { -0.8 + 0.65 * grains };
    rock(level, 2.2)
}

/// Returns K_x = 10^level, kept within the real range, and K_z; rock is clean if the level is above `clean`.
fn rock(level: f64, clean: f64) -> (f64, f64) {
    let x = 10f64.powf(level).clamp(RANGE[0], RANGE[1]);
    (x, if level > clean { 0.3 * x } else { 1e-4 * x })
}
