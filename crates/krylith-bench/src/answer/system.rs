//! The systems of the suite: those of its table, by name; generated problems, by their text; matrix files,
//! and folders of matrix files.

use super::graphs;
use crate::systems::over_rows;
use krylith_core::io::parts::suited_block;
use krylith_core::io::{Matrix, read_matrix};
use krylith_core::matrix::{Bsr, KroneckerSum};
use krylith_core::{Error, Problem, Result};
use krylith_problems::{Generated, SystemKind, hard};
use std::path::{Path, PathBuf};
use std::time::Instant;

pub(crate) struct System {
    pub name: String,
    pub spec: String,
    /// A point-block matrix, or a Kronecker sum.
    pub matrix: SystemKind,
    pub coordinates: Option<Vec<[f64; 3]>>,
    pub grid: Option<[usize; 3]>,
    /// Seconds to generate the system or to read the file.
    pub made: f64,
    pub from_file: bool,
}

impl System {
    fn generated(name: &str, made: Generated, seconds: f64) -> Result<Self> {
        let matrix = match made.system {
            SystemKind::Csr(a) => SystemKind::Bsr(Bsr::from_csr(&a, 1)?),
            other => other,
        };
        let Generated { coordinates, grid, spec, .. } = made;
        Ok(Self { name: name.into(), spec, matrix, coordinates, grid, made: seconds, from_file: false })
    }

    /// Wraps a matrix that the caller has made.
    pub(crate) fn of(
        name: &str,
        spec: String,
        a: Bsr,
        coordinates: Option<Vec<[f64; 3]>>,
        made: f64,
    ) -> Self {
        let matrix = SystemKind::Bsr(a);
        Self { name: name.into(), spec, matrix, coordinates, grid: None, made, from_file: false }
    }

    /// Returns the matrix, or M and L.
    pub fn matrices(&self) -> Vec<&Bsr> {
        match &self.matrix {
            SystemKind::Bsr(a) => vec![a],
            SystemKind::Kronecker(k) => vec![&k.m, &k.l],
            SystemKind::Csr(_) => Vec::new(),
        }
    }

    /// Returns the system with `matrix(0)` instead of its matrix or M, and `matrix(1)` instead of L.
    pub fn with(&self, mut matrix: impl FnMut(usize) -> Result<Bsr>) -> Result<SystemKind> {
        Ok(match &self.matrix {
            SystemKind::Kronecker(k) => SystemKind::Kronecker(KroneckerSum::new(
                k.a.clone(),
                k.b.clone(),
                k.tau,
                matrix(0)?,
                matrix(1)?,
            )?),
            _ => SystemKind::Bsr(matrix(0)?),
        })
    }

    /// Returns the number of block rows, and of unknowns per block row.
    pub fn shape(&self) -> (usize, usize) {
        let order = self.matrix.block() * self.matrix.stages();
        (self.matrix.rows() / order, order)
    }

    /// Returns the number of stored values.
    pub fn stored(&self) -> usize {
        self.matrices().iter().map(|a| a.values().len()).sum()
    }

    /// Adds the coordinates of the nodes to the problem.
    pub(crate) fn describe<'a>(&'a self, mut problem: Problem<'a>) -> Result<Problem<'a>> {
        if let Some(points) = &self.coordinates {
            problem = problem.with_coordinates(points.as_slice())?;
        }
        if let Some(grid) = self.grid {
            problem = problem.with_grid(grid)?;
        }
        Ok(problem)
    }

    /// Returns the system as one point-block matrix, which libraries need.
    pub fn assembled(&self) -> Result<Bsr> {
        match &self.matrix {
            SystemKind::Bsr(a) => Ok(a.clone()),
            SystemKind::Kronecker(k) => Ok(k.assemble()),
            SystemKind::Csr(a) => Bsr::from_csr(a, 1),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Named {
    /// A generated problem on a grid, with its keys.
    Grid(&'static str, [usize; 3], &'static str),
    Tetrahedra([usize; 3], usize),
    PowerLaw(usize),
}

/// The systems of the table by name.
const NAMED: [(&str, Named); 8] = [
    ("laplace128", Named::Grid("laplace", [128, 128, 128], "")),
    ("laplace256", Named::Grid("laplace", [256, 256, 256], "")),
    ("spe10", Named::Grid("spe10", [60, 220, 85], "")),
    ("radiation64", Named::Grid("radiation", [64, 64, 64], ",components=3")),
    ("laplace64b4", Named::Grid("laplace", [64, 64, 64], ",block=4")),
    ("stokes53", Named::Grid("stokes", [53, 53, 54], "")),
    ("tetrahedra", Named::Tetrahedra([128, 128, 128], 4)),
    ("powerlaw", Named::PowerLaw(1 << 20)),
];

/// Poisson's equation on N² nodes, whose times torch-sla publishes for an H200: 1 M unknowns in 0.19 s by CG
/// with Jacobi and 7.3 s by cuDSS, 81 M in 75.9 s, 169 M in 224 s.
const PLANES: [(&str, usize); 3] = [("plane1000", 1000), ("plane9000", 9000), ("plane13000", 13_000)];

/// The word for the systems of [`PLANES`].
const PUBLISHED: &str = "published";

/// The word for all small hard matrices.
const HARD: &str = "hard";

/// Returns the names of the table.
pub fn names() -> Vec<&'static str> {
    NAMED.iter().map(|(name, _)| *name).collect()
}

/// A requested system: a name of the table, the text of a generated problem, or a file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Wanted {
    Named(usize),
    /// One of the systems whose times others publish.
    Plane(usize),
    /// A hard matrix, by name.
    Hard(&'static str),
    Spec(String),
    File(PathBuf),
}

/// Returns the systems that the words name; without words, the whole table.
///
/// # Errors
/// Returns an error for a word of another kind, and for a folder that cannot be read.
pub(crate) fn wanted(words: &[String]) -> Result<Vec<Wanted>> {
    if words.is_empty() {
        return Ok((0..NAMED.len()).map(Wanted::Named).collect());
    }
    let mut all = Vec::new();
    for word in words {
        if let Some(at) = NAMED.iter().position(|(name, _)| name == word) {
            all.push(Wanted::Named(at));
        } else if let Some(at) = PLANES.iter().position(|(name, _)| name == word) {
            all.push(Wanted::Plane(at));
        } else if word == PUBLISHED {
            all.extend((0..PLANES.len()).map(Wanted::Plane));
        } else if word == HARD {
            all.extend(hard::names().map(Wanted::Hard));
        } else if Path::new(word).is_dir() {
            let read = std::fs::read_dir(word).map_err(|e| Error::io(Path::new(word), e))?;
            let mut files: Vec<PathBuf> = read.filter_map(|entry| Some(entry.ok()?.path())).collect();
            files.sort();
            all.extend(files.into_iter().filter(|f| f.is_file()).map(Wanted::File));
        } else if Path::new(word).exists() {
            all.push(Wanted::File(word.into()));
        } else if word.contains(':') {
            all.push(Wanted::Spec(word.clone()));
        } else {
            return Err(Error::invalid(format!(
                "{word}: no file and no system of this suite has this name; name {}, {PUBLISHED}, {HARD} \
                 for all hard matrices, a file, or a generated problem NAME:SIZE",
                names().join(", ")
            )));
        }
    }
    Ok(all)
}

/// Generates or reads a system; grids and graphs have `scale` times their size. Returns `None` for a file
/// that cannot be read as a square matrix, such as a right-hand side. `rock` is the folder of SPE10's
/// permeabilities.
///
/// # Errors
/// Returns an error for an unknown problem, for permeabilities that cannot be read, and if memory is not
/// sufficient.
pub(crate) fn make(wanted: &Wanted, scale: f64, rock: Option<&Path>) -> Result<Option<System>> {
    let begin = Instant::now();
    let generate = |name: &str, spec: &str| {
        let made = krylith_problems::generate(spec)?;
        System::generated(name, made, begin.elapsed().as_secs_f64()).map(Some)
    };
    match wanted {
        Wanted::Spec(spec) => generate(spec, spec),
        Wanted::File(path) => file(path, begin),
        Wanted::Plane(at) => {
            let (name, side) = PLANES[*at];
            let side = ((side as f64 * scale.sqrt()) as usize).max(8);
            let a = graphs::plane(side)?;
            let spec = format!("five-point Laplacian on {side}×{side} nodes");
            Ok(Some(System::of(name, spec, a, None, begin.elapsed().as_secs_f64())))
        }
        Wanted::Hard(name) => {
            let lost = || Error::invalid(format!("{name}: there is no hard matrix of this name"));
            let (name, a) = hard::matrices().find(|(other, _)| other == name).ok_or_else(lost)?;
            let (a, made) = (Bsr::from_csr(&a, suited_block(&a).block)?, begin.elapsed().as_secs_f64());
            Ok(Some(System::of(name, format!("hard matrix {name}"), a, None, made)))
        }
        Wanted::Named(at) => {
            let (name, named) = NAMED[*at];
            match named {
                Named::Grid(problem, size, keys) => {
                    let [x, y, z] = if scale == 1.0 { size } else { crate::systems::scaled(size, scale) };
                    let rock = rock.filter(|_| problem == "spe10" && scale == 1.0);
                    let rock = rock.map_or(String::new(), |f| format!(",permeability={}", f.display()));
                    generate(name, &format!("{problem}:{x}x{y}x{z}{keys}{rock}"))
                }
                Named::Tetrahedra(size, block) => {
                    let size = crate::systems::scaled(size, scale);
                    let a = graphs::tetrahedra(size, block, 1)?;
                    let (n, seconds) = (a.block_rows(), begin.elapsed().as_secs_f64());
                    let spec = format!("{n} nodes of tetrahedra, numbered at random, blocks of {block}");
                    Ok(Some(System::of(name, spec, a, None, seconds)))
                }
                Named::PowerLaw(n) => {
                    let n = ((n as f64 * scale) as usize).max(64);
                    let a = graphs::power_law(n, 1)?;
                    let spec = format!("graph of {n} nodes, degrees by a power law");
                    Ok(Some(System::of(name, spec, a, None, begin.elapsed().as_secs_f64())))
                }
            }
        }
    }
}

/// Reads a matrix file, with the block size that suits it.
fn file(path: &Path, begin: Instant) -> Result<Option<System>> {
    let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let Ok(read) = read_matrix(path) else { return Ok(None) };
    let (rows, columns) = (read.matrix.rows(), read.matrix.columns());
    if rows != columns || rows < 2 {
        return Ok(None);
    }
    let a = match read.matrix {
        Matrix::Csr(a) => {
            let block = read.block_hint.filter(|b| rows.is_multiple_of(*b) && *b <= 8);
            Bsr::from_csr(&a, block.unwrap_or_else(|| suited_block(&a).block))?
        }
        Matrix::Bsr(a) => a,
        Matrix::Dia(_) => return Ok(None),
    };
    let (spec, made) = (path.display().to_string(), begin.elapsed().as_secs_f64());
    Ok(Some(System { from_file: true, ..System::of(&name, spec, a, None, made) }))
}

/// Returns true if A = Aᵀ to rounding, comparing every block with its transposed counterpart.
pub(crate) fn symmetric(a: &Bsr) -> bool {
    let b = a.block();
    let differs = |i: usize| -> f64 {
        let faces = |p: usize| -> bool {
            let j = a.col()[p] as usize;
            let row = &a.col()[a.row_ptr()[j]..a.row_ptr()[j + 1]];
            let Ok(place) = row.binary_search(&(i as u32)) else { return false };
            let (one, other) = (a.block_values(p), a.block_values(a.row_ptr()[j] + place));
            (0..b * b).all(|e| {
                let (x, y) = (one[e], other[e % b * b + e / b]);
                (x - y).abs() <= 1e-12 * x.abs().max(y.abs())
            })
        };
        if (a.row_ptr()[i]..a.row_ptr()[i + 1]).all(faces) { 0.0 } else { 1.0 }
    };
    over_rows(a.block_rows(), &differs) == 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::relative_residual as residual;

    #[test]
    fn every_name_makes_a_system_and_a_kronecker_sum_is_assembled_for_libraries() {
        for (at, (name, _)) in NAMED.iter().enumerate() {
            let system = make(&Wanted::Named(at), 1e-4, None).unwrap().unwrap();
            let (a, (n, order)) = (system.assembled().unwrap(), system.shape());
            assert_eq!((system.name.as_str(), a.block_rows() * a.block()), (*name, n * order));
            let expected =
                matches!(*name, "laplace128" | "laplace256" | "spe10" | "laplace64b4" | "powerlaw");
            assert!(!expected || symmetric(&a), "{name}");
        }
    }

    #[test]
    fn words_are_names_files_folders_or_problems() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("b.txt"), "1\n2\n").unwrap();
        let text = "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 3\n2 2 1\n";
        std::fs::write(folder.path().join("a.mtx"), text).unwrap();
        let words: Vec<String> =
            ["laplace128", "laplace:4x4x4,block=2", folder.path().to_str().unwrap()].map(String::from).into();
        let all = wanted(&words).unwrap();
        assert_eq!(all.len(), 4);
        let made: Vec<_> = all[1..].iter().map(|w| make(w, 1.0, None).unwrap()).collect();
        let shapes: Vec<_> = made.iter().map(|m| m.as_ref().map(|m| m.shape())).collect();
        assert_eq!(shapes, [Some((64, 2)), Some((2, 1)), None]);
        let error = wanted(&["nothing".into()]).unwrap_err().to_string();
        assert!(error.contains("laplace128, laplace256") && error.contains("nothing"), "{error}");
        assert_eq!(wanted(&[]).unwrap().len(), NAMED.len());
        let planes = wanted(&["published".into(), "plane9000".into()]).unwrap();
        assert_eq!(planes, [0, 1, 2, 1].map(Wanted::Plane));
        let plane = make(&planes[0], 1e-4, None).unwrap().unwrap();
        let a = plane.assembled().unwrap();
        assert_eq!((plane.shape(), a.values().len()), ((100, 1), 5 * 100 - 4 * 10));
        assert!(symmetric(&a) && a.block_values(0) == [4.0]);
    }

    #[test]
    fn the_reference_residual_is_that_of_the_definition() {
        let a = Bsr::new(1, 2, 2, vec![0, 2, 3], vec![0, 1, 1], vec![2.0, 1.0, 4.0]).unwrap();
        assert_eq!(residual(&a, &[3.0, 4.0], &[1.0, 1.0]), 0.0);
        assert!((residual(&a, &[3.0, 4.0], &[1.0, 2.0]) - 17f64.sqrt() / 5.0).abs() < 1e-15);
    }
}
