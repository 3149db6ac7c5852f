//! The systems of the suite: the paper's seven kinds by name, generated problems by their text, and files.
//!
//! `radiation` and `radiation3` have the rows and nonzeros of the paper's `rhd` and `rhd-3T`, `spe10` those
//! of its `spe10`, and `parabolic` those of its `parabolic_fem`. `oil` is a step of a compressible flow in
//! generated rock, of about the size of the paper's `oil`.

use super::cut::Way;
use super::parabolic::parabolic;
use crate::answer::system::{self, System};
use crate::systems::{Random, scaled};
use krylith_core::matrix::{Bsr, Csr};
use krylith_core::text::count;
use krylith_core::{Error, Result};
use krylith_problems::SystemKind;
use std::path::Path;
use std::time::Instant;

/// Relative tolerance of a solve, ‖r‖ ≤ `RTOL`·‖b‖, and that for SPE10, as in the paper.
pub(super) const RTOL: f64 = 1e-8;
const RTOL_SPE10: f64 = 1e-6;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// The 7-point Laplacian with this block size.
    Laplacian(usize),
    Parabolic,
    Spe10,
    /// Radiation diffusion with one temperature or three. Three have a row each, without the zeros of the
    /// blocks.
    Radiation(usize),
    Oil,
}

/// Names, kinds and grids.
const TABLE: [(&str, Kind, [usize; 3]); 12] = [
    ("laplace128", Kind::Laplacian(1), [128, 128, 128]),
    ("laplace256", Kind::Laplacian(1), [256, 256, 256]),
    ("laplacian1", Kind::Laplacian(3), [128, 128, 128]),
    ("laplacian2", Kind::Laplacian(3), [256, 128, 128]),
    ("laplacian3", Kind::Laplacian(3), [256, 256, 128]),
    ("laplacian4", Kind::Laplacian(3), [256, 256, 256]),
    ("laplacian5", Kind::Laplacian(3), [256, 512, 256]),
    ("parabolic", Kind::Parabolic, [513, 1025, 1]),
    ("spe10", Kind::Spe10, [60, 220, 85]),
    ("radiation", Kind::Radiation(1), [128, 128, 128]),
    ("radiation3", Kind::Radiation(3), [128, 128, 128]),
    ("oil", Kind::Oil, [640, 64, 768]),
];

/// The systems without any name: grids and block sizes of TARGETS for one GPU, and the paper's second
/// Laplacian with `--full`.
const DEFAULT: [&str; 4] = ["laplace128", "laplace256", "laplacian1", "laplacian2"];

/// The word for the paper's systems except `oil`, which takes minutes.
const PAPER: &str = "paper";
const OF_PAPER: [&str; 6] = ["laplacian1", "laplacian2", "parabolic", "spe10", "radiation", "radiation3"];

/// Accumulation of a cell of `oil`, in barrels a day and psi: porosity, compressibility (1/psi) and volume
/// (barrels) over the length of the step (days).
const ACCUMULATION: f64 = 0.2 * 1e-4 * (20.0 * 10.0 * 2.0 / 5.615) / 0.1;
/// Pressure in `oil` before the step, psi.
const BEFORE: f64 = 6000.0;

/// About how many bytes the suite takes on the host for each stored block, and for each number in it.
const BYTES: [u64; 2] = [130, 88];

/// A requested system.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Wanted {
    /// A name of the table.
    Named(usize),
    /// A generated problem by its text.
    Spec(String),
    /// A file.
    Other(system::Wanted),
}

/// A system of one matrix.
pub(super) struct Made {
    pub name: String,
    pub spec: String,
    pub a: Bsr,
    pub rhs: Vec<f64>,
    pub rtol: f64,
    pub grid: Option<[usize; 3]>,
    pub laplacian: bool,
    /// Seconds to generate the system or to read the file.
    pub seconds: f64,
}

/// Returns the systems that the words name. Without words, they are [`DEFAULT`], the last of them only if
/// `full`.
///
/// # Errors
/// Returns an error for a word of another kind, and for a folder that cannot be read.
pub(super) fn wanted(words: &[String], full: bool) -> Result<Vec<Wanted>> {
    let named = |word: &str| TABLE.iter().position(|(name, ..)| *name == word).map(Wanted::Named);
    if words.is_empty() {
        return Ok(DEFAULT[..if full { 4 } else { 3 }].iter().filter_map(|name| named(name)).collect());
    }
    let mut all = Vec::new();
    for word in words {
        if let Some(one) = named(word) {
            all.push(one);
        } else if word == PAPER {
            all.extend(OF_PAPER.iter().filter_map(|name| named(name)));
        } else if Path::new(word).exists() {
            all.extend(system::wanted(std::slice::from_ref(word))?.into_iter().map(Wanted::Other));
        } else if word.contains(':') {
            all.push(Wanted::Spec(word.clone()));
        } else {
            let names: Vec<&str> = TABLE.iter().map(|(name, ..)| *name).collect();
            return Err(Error::invalid(format!(
                "{word}: no file and no system of this suite has this name; name {}, {PAPER} for the paper's \
                 without oil, a file, a folder of files, or a generated problem NAME:SIZE",
                names.join(", ")
            )));
        }
    }
    Ok(all)
}

impl Wanted {
    /// Returns the name and, for a system of the table, its rows and the bytes that it takes.
    pub fn text(&self, scale: f64) -> String {
        match self {
            Wanted::Named(at) => {
                let (rows, bytes) = size(*at, scale);
                let gigabytes = bytes as f64 / 1e9;
                format!(
                    "{}: {} rows, about {gigabytes:.1} GB on the host",
                    TABLE[*at].0,
                    count(rows as usize)
                )
            }
            Wanted::Spec(text) => text.clone(),
            Wanted::Other(system::Wanted::File(path)) => path.display().to_string(),
            Wanted::Other(other) => format!("{other:?}"),
        }
    }

    /// Returns the cut that the paper uses.
    pub fn way(&self) -> Way {
        match self {
            Wanted::Named(at) if matches!(TABLE[*at].1, Kind::Laplacian(_)) => Way::Boxes,
            Wanted::Spec(text) if text.starts_with("laplace:") => Way::Boxes,
            _ => Way::of_graphs(),
        }
    }

    /// Generates or reads the system; grids and meshes have `scale` times their size. `rock` is the folder of
    /// SPE10's permeabilities, for a scale of 1.
    ///
    /// # Errors
    /// Returns an error for an unknown problem, for one that is not a single matrix, for a file that cannot
    /// be read, and if memory is not sufficient.
    pub fn make(&self, scale: f64, rock: Option<&Path>) -> Result<Made> {
        let begin = Instant::now();
        let mut made = match self {
            Wanted::Named(at) => {
                check_memory(*at, scale)?;
                named(*at, scale, rock)?
            }
            Wanted::Spec(text) => generated(text, text)?,
            Wanted::Other(other) => file(&self.text(scale), other, scale)?,
        };
        made.seconds = begin.elapsed().as_secs_f64();
        Ok(made)
    }
}

/// Returns the grid of a system of the table, with `scale` times as many points.
fn grid(at: usize, scale: f64) -> [usize; 3] {
    let (_, kind, grid) = TABLE[at];
    match kind {
        _ if scale == 1.0 => grid,
        Kind::Parabolic => {
            let side = |n: usize| ((n as f64 * scale.sqrt()) as usize).max(4);
            [side(grid[0]), side(grid[1]), 1]
        }
        _ => scaled(grid, scale),
    }
}

/// Returns the scalar rows of a system of the table, and about how many bytes the suite takes for it.
fn size(at: usize, scale: f64) -> (u64, u64) {
    let nodes: u64 = grid(at, scale).into_iter().map(|n| n as u64).product();
    // Unknowns of a node, its stored blocks, and the numbers in a block.
    let (unknowns, blocks, numbers) = match TABLE[at].1 {
        Kind::Laplacian(block) => (block as u64, 7, (block * block) as u64),
        Kind::Radiation(3) => (3, 25, 1),
        _ => (1, 7, 1),
    };
    (nodes * unknowns, nodes * blocks * (BYTES[0] + BYTES[1] * numbers))
}

/// Returns an error if the host has too little memory, where that is known.
fn check_memory(at: usize, scale: f64) -> Result<()> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    match (kib.map(|kib| kib.saturating_mul(1024)), size(at, scale).1) {
        (Some(free), needed) if needed > free => Err(Error::Memory {
            what: format!("the system {}", TABLE[at].0),
            needed,
            free,
            place: "the host".into(),
            remedy: "use a smaller --scale, or name other systems",
        }),
        _ => Ok(()),
    }
}

fn named(at: usize, scale: f64, rock: Option<&Path>) -> Result<Made> {
    let (name, kind, _) = TABLE[at];
    let [x, y, z] = grid(at, scale);
    let mut made = match kind {
        Kind::Laplacian(block) => {
            let made = generated("", &format!("laplace:{x}x{y}x{z},block={block}"))?;
            let rhs = Random(7).numbers(made.a.rows());
            let name = format!("laplacian {x}×{y}×{z}, b = {block}");
            return Ok(Made { name, rhs, laplacian: true, ..made });
        }
        Kind::Parabolic => {
            let (a, rhs) = parabolic([x, y])?;
            let spec = format!("a step of the heat equation on {x}×{y} nodes of linear triangles");
            Made { spec, ..Made::of(a, rhs) }
        }
        Kind::Spe10 => {
            let rock = rock.filter(|_| scale == 1.0);
            let rock = rock.map_or(String::new(), |folder| format!(",permeability={}", folder.display()));
            Made { rtol: RTOL_SPE10, ..generated("", &format!("spe10:{x}x{y}x{z}{rock}"))? }
        }
        Kind::Radiation(components) => {
            generated("", &format!("radiation:{x}x{y}x{z},components={components}"))?
        }
        Kind::Oil => {
            let mut made = generated("", &format!("spe10:{x}x{y}x{z}"))?;
            accumulate(&mut made)?;
            made
        }
    };
    made.name = name.into();
    Ok(made)
}

impl Made {
    fn of(a: Bsr, rhs: Vec<f64>) -> Self {
        let (name, spec) = (String::new(), String::new());
        Made { name, spec, a, rhs, rtol: RTOL, grid: None, laplacian: false, seconds: 0.0 }
    }
}

/// Adds the accumulation of every cell to the diagonal, and that of the pressure before the step to b.
fn accumulate(made: &mut Made) -> Result<()> {
    let lost = |row: usize| Error::invalid(format!("row {row} of the reservoir has no diagonal"));
    let diagonal = (0..made.a.rows()).map(|i| made.a.diagonal_position(i).ok_or_else(|| lost(i)));
    let diagonal = diagonal.collect::<Result<Vec<_>>>()?;
    let values = made.a.values_mut();
    diagonal.into_iter().for_each(|p| values[p] += ACCUMULATION);
    made.rhs.iter_mut().for_each(|b| *b += ACCUMULATION * BEFORE);
    made.spec = format!("{}, and a step of compressible flow", made.spec);
    Ok(())
}

/// Generates a problem by its text. Blocks that are mostly zeros become scalar rows, as in the paper.
fn generated(name: &str, text: &str) -> Result<Made> {
    let made = krylith_problems::generate(text)?;
    let a = match made.system {
        SystemKind::Csr(a) => Bsr::from_csr(&a, 1)?,
        SystemKind::Bsr(a) if made.spec.starts_with("radiation:") => without_zeros(&a)?,
        SystemKind::Bsr(a) => a,
        SystemKind::Kronecker(_) => return Err(of_one_matrix(text)),
    };
    let grid = made.grid.filter(|grid| grid.iter().product::<usize>() == a.block_rows());
    Ok(Made { name: name.into(), spec: made.spec, grid, ..Made::of(a, made.rhs) })
}

fn of_one_matrix(what: &str) -> Error {
    Error::invalid(format!("{what} is a Kronecker sum; this suite needs a system of one matrix"))
}

/// Returns the scalar rows of a matrix without stored zeros.
fn without_zeros(a: &Bsr) -> Result<Bsr> {
    let (b, n) = (a.block(), a.rows());
    let (mut row_ptr, mut columns, mut values) = (Vec::with_capacity(n + 1), Vec::new(), Vec::new());
    row_ptr.push(0);
    for row in 0..n {
        for p in a.row_ptr()[row / b]..a.row_ptr()[row / b + 1] {
            for (c, value) in a.block_values(p)[row % b * b..][..b].iter().enumerate() {
                if *value != 0.0 {
                    columns.push(a.col()[p] * b as u32 + c as u32);
                    values.push(*value);
                }
            }
        }
        row_ptr.push(columns.len());
    }
    Bsr::from_csr(&Csr::new(n, n, row_ptr, columns, values)?, 1)
}

/// Reads a file; its right-hand side is random.
fn file(name: &str, wanted: &system::Wanted, scale: f64) -> Result<Made> {
    let unread =
        || Error::invalid(format!("{name} cannot be read as a square matrix in a format of Krylith"));
    let System { name, spec, matrix, .. } = system::make(wanted, scale, None)?.ok_or_else(unread)?;
    match matrix {
        SystemKind::Bsr(a) => {
            let rhs = Random(7).numbers(a.rows());
            Ok(Made { name, spec, ..Made::of(a, rhs) })
        }
        SystemKind::Csr(a) => {
            let rhs = Random(7).numbers(a.rows());
            Ok(Made { name, spec, ..Made::of(Bsr::from_csr(&a, 1)?, rhs) })
        }
        SystemKind::Kronecker(_) => Err(of_one_matrix(&name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(name: &str) -> usize {
        TABLE.iter().position(|(other, ..)| *other == name).unwrap()
    }

    #[test]
    fn full_sizes_are_those_of_the_paper() {
        // Rows and nonzeros in the paper's Table 5.4.
        let (spe10, radiation) = (size(at("spe10"), 1.0).0, size(at("radiation"), 1.0).0);
        assert_eq!((spe10, radiation, size(at("radiation3"), 1.0).0), (1_122_000, 128u64.pow(3), 3 << 21));
        assert_eq!((size(at("parabolic"), 1.0).0, size(at("oil"), 1.0).0), (525_825, 31_457_280));
        // 7 n − 2 (xy + yz + zx) nonzeros of 7 points, and 3 × (7 n − 2 …) + 4 n of three temperatures.
        let points = |[x, y, z]: [usize; 3]| 7 * x * y * z - 2 * (x * y + y * z + z * x);
        assert_eq!((points([60, 220, 85]), points([128; 3])), (7_780_000, 14_581_760));
        assert_eq!(3 * points([128; 3]) + 4 * 128usize.pow(3), 52_133_888);
    }

    #[test]
    fn every_name_makes_a_small_system() {
        for (k, (name, kind, _)) in TABLE.iter().enumerate() {
            let made = Wanted::Named(k).make(1e-3, None).unwrap();
            assert_eq!(made.a.rows() as u64, size(k, 1e-3).0, "{name}");
            assert_eq!(made.rhs.len(), made.a.rows(), "{name}");
            assert!(made.rhs.iter().any(|b| *b != 0.0), "{name}");
            assert_eq!(made.grid.is_some(), !matches!(kind, Kind::Parabolic | Kind::Radiation(3)), "{name}");
            assert_eq!(made.rtol, if *name == "spe10" { 1e-6 } else { 1e-8 });
            let [x, y, z] = grid(k, 1e-3);
            let points = 7 * x * y * z - 2 * (x * y + y * z + z * x);
            if *kind == Kind::Radiation(3) {
                assert_eq!((made.a.block(), made.a.blocks()), (1, 3 * points + 4 * x * y * z));
            } else if *kind != Kind::Parabolic {
                assert_eq!(made.a.blocks(), points, "{name}");
            }
        }
    }

    #[test]
    fn a_step_of_the_reservoir_keeps_its_mass() {
        let (oil, still) = (Wanted::Named(at("oil")), generated("", "spe10:64x6x77").unwrap());
        let made = oil.make(1e-3, None).unwrap();
        assert_eq!(made.a.rows(), still.a.rows());
        // Row sums are those of the wells and the accumulation: 0.2 · 1e-4 · 400 ft³, in barrels a psi, in
        // 0.1 days.
        let sum = |a: &Bsr, i: usize| a.values()[a.row_ptr()[i]..a.row_ptr()[i + 1]].iter().sum::<f64>();
        let size = still.a.values().iter().fold(0.0f64, |most, v| most.max(v.abs()));
        for i in [0, 100, made.a.rows() - 1] {
            let added = sum(&made.a, i) - sum(&still.a, i);
            assert!((added - 2e-4 * 400.0 / 5.615).abs() < 1e-14 * size + 1e-12, "row {i}: {added:e}");
            assert!(
                (made.rhs[i] - still.rhs[i] - 6000.0 * added).abs() < 1e-6 * made.rhs[i].abs() + 1e-9 * size
            );
        }
    }

    #[test]
    fn words_are_names_files_or_problems() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.mtx");
        std::fs::write(&path, "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 3\n2 2 1\n")
            .unwrap();
        let words = ["spe10", "radiation:4x4x4", path.to_str().unwrap(), "paper"].map(String::from);
        let all = wanted(&words, false).unwrap();
        assert_eq!(all.len(), 3 + OF_PAPER.len());
        assert_eq!(all[0], Wanted::Named(at("spe10")));
        let (spec, file) = (all[1].make(1.0, None).unwrap(), all[2].make(1.0, None).unwrap());
        assert_eq!((spec.a.rows(), spec.grid, file.a.rows()), (64, Some([4, 4, 4]), 2));
        assert_eq!((wanted(&[], false).unwrap().len(), wanted(&[], true).unwrap().len()), (3, 4));
        let error = wanted(&["nothing".into()], false).unwrap_err().to_string();
        assert!(error.contains("parabolic, spe10") && error.contains("nothing"), "{error}");
        let error = Wanted::Spec("stokes:4x4x4".into()).make(1.0, None).err().unwrap().to_string();
        assert!(error.contains("one matrix"), "{error}");
    }
}
