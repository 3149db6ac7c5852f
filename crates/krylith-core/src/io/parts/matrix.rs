//! A matrix file: decides whether it can be read by parts, and reads a rank's scalar rows.

use std::path::{Path, PathBuf};

use super::vector::VectorFile;
use super::{ScalarRows, entries, errors::same, petsc, whole_numbers};
use crate::comm::{Communicator, gather};
use crate::io::matrix_market::{coordinates, header};
use crate::io::source::{Bytes, is_gzip, map};
use crate::io::{Array, Kind, ReadMatrix, kind, read_matrix};
use crate::matrix::Csr;
use crate::partition::contiguous;
use crate::{Error, Result};

/// The least common multiple of all block sizes that [`suited_block`](super::suited_block) tries.
const ALL_BLOCKS: usize = 840;

/// An open matrix file.
pub(super) struct MatrixFile {
    pub path: PathBuf,
    content: Content,
    /// The block size stated in the file.
    pub hint: Option<usize>,
    batch: usize,
}

enum Content {
    /// Matrix Market coordinates as plain text.
    Coordinates(Bytes),
    Petsc(Bytes),
    /// A file that cannot be read by parts, and the reason.
    Whole(Box<ReadMatrix>, String),
}

/// A rank's rows, and properties of the whole matrix.
pub(super) struct OwnMatrix {
    pub own: ScalarRows,
    /// As [`Matrix::format`](crate::io::Matrix::format).
    pub format: &'static str,
    /// Number of values that the whole file stores.
    pub stored: usize,
    /// The vector that followed the matrix.
    pub vector: Option<VectorFile>,
    /// The reason why every rank read the whole file, if it did.
    pub whole: Option<String>,
}

impl MatrixFile {
    /// Opens a file, and decides whether it is read by parts: plain Matrix Market coordinates and PETSc files
    /// are; every rank reads any other file whole. Collective.
    pub fn open(comm: &dyn Communicator, path: &Path, batch: usize) -> Result<Self> {
        let bytes = same(comm, map(path))?;
        same_file(comm, path, &bytes)?;
        let file = |content, hint| Ok(Self { path: path.into(), content, hint, batch });
        let why = match kind(path, &bytes) {
            _ if is_gzip(&bytes) => "gzip can only be unpacked from the start",
            Kind::MatrixMarket => match header(path, &bytes)? {
                header if header.is_complex() => "complex numbers",
                header if header.has_vectors() => "vectors follow its entries",
                header if header.coordinate => return file(Content::Coordinates(bytes), header.block()),
                _ => "a dense array",
            },
            Kind::Petsc => return file(Content::Petsc(bytes), crate::io::petsc::block_hint(path)),
            Kind::Npz => "an .npz archive",
            Kind::Matlab => "a MATLAB file",
            Kind::HarwellBoeing => "it is stored by columns",
            Kind::Npy | Kind::Unknown => "not a sparse matrix",
        };
        let read = same(comm, read_matrix(path))?;
        if read.complex {
            let message = "ranks do not read parts of a complex matrix; solve it in one process, or with \
                           partition=multilevel";
            return Err(Error::format(path, message));
        }
        let hint = read.block_hint;
        file(Content::Whole(Box::new(read), why.into()), hint)
    }

    /// Reads this rank's rows. Runs of rows are as equal as multiples of `block` allow; without it, multiples
    /// of every block size that may be detected. Collective.
    pub fn rows(self, comm: &dyn Communicator, block: Option<usize>) -> Result<OwnMatrix> {
        let ranks = comm.size();
        let step = match block {
            Some(b) => b.max(1),
            None => ALL_BLOCKS,
        };
        let bounds = |rows: usize| -> Vec<usize> {
            let begin = |q| if q < ranks { contiguous(rows / step, q, ranks).start * step } else { rows };
            (0..=ranks).map(begin).collect()
        };
        let by_parts = |own: ScalarRows, vector| {
            let stored = whole_numbers(comm, &[own.matrix.nonzeros()])?.iter().map(|n| n[0]).sum();
            Ok(OwnMatrix { own, format: "csr", stored, vector, whole: None })
        };
        let (read, why) = match self.content {
            Content::Coordinates(bytes) => {
                let header = header(&self.path, &bytes)?;
                let body = coordinates(&self.path, &bytes, &header)?;
                return by_parts(entries::read(comm, &body, &bounds(body.rows), self.batch)?, None);
            }
            Content::Petsc(bytes) => match petsc::read(comm, &self.path, &bytes, bounds)? {
                Some((own, vector)) => {
                    let vector = vector.map(|v| same(comm, VectorFile::behind(&self.path, v))).transpose()?;
                    return by_parts(own, vector);
                }
                None => (
                    same(comm, read_matrix(&self.path))?,
                    "a PETSc file with more than one Mat and one Vec".into(),
                ),
            },
            Content::Whole(read, why) => (*read, why),
        };
        let (format, stored) = (read.matrix.format(), read.matrix.stored());
        let vector = read.vector.map(|x| VectorFile::whole(&self.path, Array::vector(x)));
        let a = read.matrix.into_csr();
        let bounds = bounds(a.rows());
        let own = bounds[comm.rank()]..bounds[comm.rank() + 1];
        let (p, e) = (a.row_ptr()[own.start], a.row_ptr()[own.end]);
        let row_ptr = a.row_ptr()[own.start..=own.end].iter().map(|q| q - p).collect();
        let (col, values) = (a.col()[p..e].to_vec(), a.values()[p..e].to_vec());
        let matrix = Csr::new(own.len(), a.columns(), row_ptr, col, values)?;
        let own = ScalarRows { rows: a.rows(), first: own.start, matrix };
        let whole = Some(format!("{}: read whole by every rank ({why})", crate::text::name(&self.path)));
        Ok(OwnMatrix { own, format, stored, vector, whole })
    }
}

/// Returns an error for files that differ between ranks in length, or in their first or last bytes.
pub(super) fn same_file(comm: &dyn Communicator, path: &Path, bytes: &[u8]) -> Result<()> {
    const LOOKED_AT: usize = 1 << 16;
    let ends =
        bytes[..bytes.len().min(LOOKED_AT)].iter().chain(&bytes[bytes.len().saturating_sub(LOOKED_AT)..]);
    // FNV-1a.
    let hash = ends.fold(0xcbf2_9ce4_8422_2325u64, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    let mine = [(bytes.len() as u64).to_le_bytes(), hash.to_le_bytes()].concat();
    let told = gather(comm, &mine)?;
    match told.iter().position(|other| *other != told[0]) {
        None => Ok(()),
        Some(rank) => Err(Error::invalid(format!(
            "rank {rank} was given a system that differs from that of rank 0: {} is another file there; \
             give every rank the same file",
            crate::text::name(path)
        ))),
    }
}
