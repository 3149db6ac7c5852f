//! Reading of systems by parts: each rank reads a part of the files, and gets its own run of block rows.
//!
//! | format | what a rank reads |
//! |---|---|
//! | Matrix Market coordinates, plain text | a range of lines; entries travel to the owners of their rows |
//! | PETSc Mat and Vec | headers, the lengths and entries of its rows |
//! | `.npy` | the numbers of its rows |
//! | | `system.toml` | the text; each file that it names is read as above |
//! | all others | the whole file, of which it keeps its rows; [`ReadRows::whole`] says so |
//!
//! Values are bit for bit those of the whole-file readers, and errors are the same on every rank. If the
//! block size is to be detected from the pattern, rows are first cut at multiples of all sizes, then blocks
//! move to their final owners. With [`Partitioner::Rows`], at most a few hundred rows per rank move.

mod blocks;
mod entries;
mod errors;
mod matrix;
mod petsc;
mod shift;
#[cfg(test)]
mod tests;
mod vector;

use std::ops::Range;
use std::path::Path;

pub use blocks::{SuitedBlock, suited_block};
pub(crate) use blocks::{run_of_rows, suited_block_on_device};
pub use vector::{own_unknowns, read_unknowns};

use super::Array;
use super::points_columns;
use super::source::{map, name_file};
use super::system::{KroneckerFile, Parts, SystemFile, check_points, coefficients, is_toml, kronecker_block};
use crate::Options;
use crate::comm::{Communicator, gather};
use crate::matrix::{Bsr, Csr, Dense, KroneckerSum, MAX_BLOCK};
use crate::partition::{Partitioner, RowBlocks, Rows, contiguous};
use crate::{Error, Result};
use errors::same;
use matrix::{MatrixFile, OwnMatrix};
use vector::VectorFile;

/// The part of a system that one rank has read from files.
///
/// # Examples
/// Each rank of a parallel program reads its own rows.
/// ```
/// use krylith::comm::{Communicator, Team};
/// use krylith_core::{io::matrix_market, io::parts::read_rows};
/// use krylith::partition::Partitioner;
/// use krylith::{Problem, Solver, matrix::Csr};
/// # let path = std::env::temp_dir().join(format!("krylith-doc-rows-{}.mtx", std::process::id()));
/// matrix_market::write(&path, &Csr::from_triplets(3, 3, &[(0, 0, 2.0), (1, 1, 4.0), (2, 2, 8.0)])?)?;
/// let x = Team::run(2, |comm| {
///     let read = read_rows(&*comm, &path, Some(1), Partitioner::Rows)?;
///     assert_eq!((read.nodes, read.rows.numbers.len()), (3, 1 + comm.rank()));
///     let problem = Problem::distributed(comm, read.rows)?;
///     let mut x = vec![0.0; problem.own_len()];
///     Solver::new(&problem, &"device=cpu".parse()?)?.solve(&vec![8.0; x.len()], &mut x)?;
///     Ok(x)
/// })?;
/// assert!((x[0][0] - 4.0).abs() < 1e-5 && (x[1][1] - 1.0).abs() < 1e-5);
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ReadRows {
    /// A run of consecutive block rows, for [`distribute`](crate::partition::distribute).
    pub rows: Rows,
    /// Block rows of the whole system.
    pub nodes: usize,
    /// The format of the system: `csr`, `bsr`, `dia` or `kronecker`.
    pub format: &'static str,
    /// Number of values that the matrix files store.
    pub stored: usize,
    /// The source of the block size.
    pub block_source: BlockSource,
    /// Own part of the right-hand side in the order of the solver: row `r`, stage k is at `r · s + k`.
    pub rhs: Option<Vec<f64>>,
    /// Coordinates of own nodes.
    pub coordinates: Option<Vec<[f64; 3]>>,
    /// Solver options of the file, used as defaults.
    pub solver: Options,
    /// Reasons why every rank read a file whole, one text per file.
    pub whole: Vec<String>,
}

/// The source of a block size.
///
/// # Examples
/// ```
/// use krylith::comm::Solo;
/// use krylith_core::{io::matrix_market, io::parts::{BlockSource, read_rows}};
/// use krylith::{matrix::Csr, partition::Partitioner};
/// # let path = std::env::temp_dir().join(format!("krylith-doc-source-{}.mtx", std::process::id()));
/// let node = [(0, 0, 4.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 4.0)]; // couples two unknowns
/// matrix_market::write(&path, &Csr::from_triplets(2, 2, &node)?)?;
/// match read_rows(&Solo, &path, None, Partitioner::Rows)?.block_source {
///     BlockSource::Detected(found) => assert_eq!((found.block, found.added), (2, 0.0)),
///     other => panic!("{other:?}"),
/// }
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BlockSource {
    /// The caller gave it.
    Given,
    /// A file states it.
    File,
    /// Detected from the entries by [`suited_block`].
    Detected(SuitedBlock),
}

/// Scalar rows `first..first + matrix.rows()` of a matrix with `rows` rows, all columns.
#[derive(Debug, Clone, PartialEq)]
struct ScalarRows {
    rows: usize,
    first: usize,
    matrix: Csr,
}

/// Reads this rank's block rows of a square system: a `.toml` file, or a matrix file of any format
/// [`read_matrix`](super::read_matrix) knows. Collective.
///
/// `block` takes precedence over the block size in files; without both, the block size is detected from the
/// pattern. `cut` is [`Partitioner::Rows`] or [`Partitioner::Nonzeros`]: runs of consecutive rows, which may
/// be empty if there are more ranks than rows.
///
/// # Errors
/// The same on every rank: those of [`read_system`](super::read_system), with the same text; a matrix that is
/// empty or not square; a number of rows that the block size does not divide; ranks that see different files;
/// another `cut`.
pub fn read_rows(
    comm: &dyn Communicator,
    path: impl AsRef<Path>,
    block: Option<usize>,
    cut: Partitioner,
) -> Result<ReadRows> {
    read_in_batches(comm, path.as_ref(), block, cut, entries::BATCH_BYTES)
}

fn read_in_batches(
    comm: &dyn Communicator,
    path: &Path,
    block: Option<usize>,
    cut: Partitioner,
    batch: usize,
) -> Result<ReadRows> {
    if !matches!(cut, Partitioner::Rows | Partitioner::Nonzeros) {
        let message =
            format!("a partition by {} needs the whole system; use one by rows or by nonzeros", cut.name());
        return Err(Error::Unsupported(message));
    }
    // Checked first, so that all ranks take the same steps afterwards.
    matrix::same_file(comm, path, &same(comm, map(path))?)?;
    let is_toml = is_toml(path);
    let file = if is_toml { same(comm, SystemFile::open(path))? } else { SystemFile::default() };
    let folder = if is_toml { path.parent().unwrap_or(Path::new("")) } else { Path::new("") };
    let blocks = match if is_toml { file.parts(path)? } else { Parts::Matrix(path) } {
        Parts::Matrix(name) => one_matrix(comm, path, &folder.join(name), block, file.block, batch)?,
        Parts::Kronecker(parts) => two_matrices(comm, path, folder, parts, block, batch)?,
    };
    let Blocks { mut terms, first, block, nodes, hint, .. } = blocks;

    let (rank, ranks) = (comm.rank(), comm.size());
    let bounds = match cut {
        Partitioner::Nonzeros => {
            let rows = terms[0].1.row_ptr.len() - 1;
            let length = |i| terms.iter().map(|(_, a)| (a.row_ptr[i + 1] - a.row_ptr[i]) as u64).sum();
            // As in `partition`, an empty row has a weight too.
            shift::by_nonzeros(comm, first, (0..rows).map(|i| 1u64.max(length(i))), nodes)?
        }
        _ => {
            let begin = |q| if q < ranks { contiguous(nodes, q, ranks).start } else { nodes };
            (0..=ranks).map(begin).collect()
        }
    };
    for (_, rows) in &mut terms {
        *rows = shift::shift(comm, first, std::mem::take(rows), block, &bounds)?;
    }
    let own = bounds[rank]..bounds[rank + 1];

    let stages = terms[0].0.rows();
    let rhs = match &file.rhs {
        Some(name) => {
            let (name, own) = (folder.join(name), own.start * block..own.end * block);
            Some(read_unknowns(comm, name, "the right-hand side", nodes * block, stages, own)?)
        }
        None => {
            let own = own.start * block..own.end * block;
            let read = |file: &VectorFile| file.unknowns("the right-hand side", nodes * block, stages, own);
            let rhs = blocks.vector.as_ref().map(read).transpose().map_err(|e| name_file(path, e));
            same(comm, rhs)?
        }
    };
    let coordinates = match &file.coordinates {
        None => None,
        Some(name) => same(comm, points(&folder.join(name), nodes * block, hint, nodes, own.clone()))?,
    };
    Ok(ReadRows {
        rows: Rows { numbers: own.map(|i| i as u64).collect(), block, terms },
        nodes,
        format: blocks.format,
        stored: blocks.stored,
        block_source: blocks.source,
        rhs,
        coordinates,
        solver: file.solver,
        whole: blocks.whole,
    })
}

/// A run of block rows before the final distribution.
struct Blocks {
    terms: Vec<(Dense, RowBlocks)>,
    /// Number of the first block row.
    first: usize,
    block: usize,
    nodes: usize,
    format: &'static str,
    stored: usize,
    source: BlockSource,
    /// The block size stated in the files.
    hint: Option<usize>,
    vector: Option<VectorFile>,
    whole: Vec<String>,
}

/// Reads a system of one matrix. `system` is the file that the user named, `path` that of the matrix.
fn one_matrix(
    comm: &dyn Communicator,
    system: &Path,
    path: &Path,
    given: Option<usize>,
    said: Option<usize>,
    batch: usize,
) -> Result<Blocks> {
    let file = MatrixFile::open(comm, path, batch)?;
    let hint = said.or(file.hint);
    // Blocks larger than the kernels support are regrouped.
    let wanted = given.or(hint.filter(|b| (1..=MAX_BLOCK).contains(b)));
    let OwnMatrix { own, format, stored, vector, whole } = file.rows(comm, wanted)?;
    let rows = own.rows;
    check_square(system, rows, own.matrix.columns(), stored)?;
    let (block, source) = match (given, wanted) {
        (Some(b), _) => (b, BlockSource::Given),
        (None, Some(b)) => (b, BlockSource::File),
        (None, None) => {
            let found = blocks::suited(comm, &own.matrix, own.first, rows, rows)?;
            (found.block, BlockSource::Detected(found))
        }
    };
    if block == 0 || rows % block != 0 {
        let message =
            format!("{rows} rows cannot be cut into blocks of {block}: the block size must divide them");
        return Err(Error::format(system, message));
    }
    let (first, whole) = (own.first / block, whole.into_iter().collect());
    let terms = vec![(Dense::identity(1), blocks::blocks(own, block))];
    Ok(Blocks { terms, first, block, nodes: rows / block, format, stored, source, hint, vector, whole })
}

fn two_matrices(
    comm: &dyn Communicator,
    system: &Path,
    folder: &Path,
    parts: &KroneckerFile,
    given: Option<usize>,
    batch: usize,
) -> Result<Blocks> {
    let (a, b) = coefficients(system, parts)?;
    let (m_path, l_path) = (folder.join(&parts.m), folder.join(&parts.l));
    let m = MatrixFile::open(comm, &m_path, batch)?;
    let l = MatrixFile::open(comm, &l_path, batch)?;
    let block = kronecker_block(system, parts, [m.hint, l.hint])?;
    let (m, l) = (m.rows(comm, Some(block))?, l.rows(comm, Some(block))?);
    let shape = |read: &OwnMatrix| (read.own.rows, read.own.matrix.columns());
    let shapes = [shape(&m), shape(&l)];
    for (path, (rows, columns)) in [(&m_path, shapes[0]), (&l_path, shapes[1])] {
        Bsr::check_divides(rows, columns, block).map_err(|e| name_file(path, e))?;
    }
    KroneckerSum::check(&a, &b, parts.tau, [block; 2], shapes).map_err(|e| name_file(system, e))?;
    let (rows, columns) = shapes[0];
    let stored = m.stored + l.stored;
    check_square(system, rows, columns, stored)?;
    if let Some(asked) = given.filter(|&asked| asked != block) {
        let message =
            format!("M and L have {block}×{block} blocks; a block size of {asked} does not fit them");
        return Err(Error::format(system, message));
    }
    // Multiply B by τ, as in `Terms::kronecker`.
    let scaled = b.values().iter().map(|v| parts.tau * v).collect();
    let b = Dense::new(b.rows(), b.columns(), scaled).map_err(|e| name_file(system, e))?;
    Ok(Blocks {
        first: m.own.first / block,
        block,
        nodes: rows / block,
        format: "kronecker",
        stored,
        source: BlockSource::File,
        hint: Some(block),
        vector: None,
        whole: m.whole.into_iter().chain(l.whole).collect(),
        terms: vec![(a, blocks::blocks(m.own, block)), (b, blocks::blocks(l.own, block))],
    })
}

fn check_square(system: &Path, rows: usize, columns: usize, stored: usize) -> Result<()> {
    let refuse = |message: String| Err(Error::format(system, message));
    if rows != columns {
        return refuse(format!("the matrix is {rows}×{columns}; a solve needs a square one"));
    }
    if stored == 0 {
        return refuse(format!(
            "the matrix is empty ({rows} rows, {stored} entries); a solve needs at least one entry"
        ));
    }
    Ok(())
}

/// Reads the coordinates of own nodes; `None` if the file has points for another number of nodes than the
/// detected block size gives.
fn points(
    path: &Path,
    rows: usize,
    hint: Option<usize>,
    nodes: usize,
    own: Range<usize>,
) -> Result<Option<Vec<[f64; 3]>>> {
    let file = VectorFile::open(path, rows)?;
    let columns = points_columns(&file.shape).map_err(|e| name_file(path, e))?;
    let n = file.rows_columns().0;
    check_points(path, n, rows, hint)?;
    if n != nodes {
        return Ok(None);
    }
    let values = file.rows(own.clone())?;
    Ok(Some(Array::new(vec![own.len(), columns], values)?.into_points()?))
}

/// Gathers the numbers of all ranks, equally many from each. Collective.
fn whole_numbers(comm: &dyn Communicator, mine: &[usize]) -> Result<Vec<Vec<usize>>> {
    let bytes: Vec<u8> = mine.iter().flat_map(|&n| (n as u64).to_le_bytes()).collect();
    let told = gather(comm, &bytes)?;
    let numbers =
        |bytes: Vec<u8>| bytes.as_chunks().0.iter().map(|n| u64::from_le_bytes(*n) as usize).collect();
    Ok(told.into_iter().map(numbers).collect())
}

/// Converts an error about a rank's rows, which start at `first`, to global row numbers.
fn from_row(first: usize, error: Error) -> Error {
    match error {
        Error::NotFinite { what, row, column, value } => {
            Error::NotFinite { what, row: row + first, column, value }
        }
        other => other,
    }
}
