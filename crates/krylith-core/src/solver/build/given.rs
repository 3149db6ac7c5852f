//! Matrices of the caller on a field, such as the mass matrix of the pressure, and their new values.

use super::LocalProblem;
use super::ghosts::Columns;
use super::part::OwnField;
use crate::comm::{Communicator, agree};
use crate::fields::Matrices;
use crate::halo::Halo;
use crate::matrix::Csr;
use crate::{Error, Result};
use std::sync::Arc;

/// A square matrix on a field, which the caller named.
pub(super) struct Given {
    matrices: Matrices,
    name: String,
    /// What needs the matrix.
    purpose: &'static str,
    /// The matrix that was taken last.
    of: Arc<Csr>,
    /// Number of own unknowns of the field, and of all.
    own: usize,
    total: usize,
    /// Number of unknowns of a block, and the numbers of own blocks over ranks.
    block: usize,
    blocks: Option<Vec<u64>>,
}

impl Given {
    /// Takes own rows of the matrix, with local columns, and their halo. Over ranks the caller gave the whole
    /// matrix, or own rows of it with columns numbered as the field. Collective.
    ///
    /// # Errors
    /// No such matrix; a matrix of another size.
    pub fn new(
        name: &str,
        purpose: &'static str,
        own: &OwnField,
        local: &LocalProblem,
    ) -> Result<(Self, Csr, Option<Arc<Halo>>)> {
        let matrices = local.fields.matrices().clone();
        let given = Self {
            of: matrices.matrix(name)?,
            matrices,
            name: name.into(),
            purpose,
            own: own.unknowns.len(),
            total: own.total,
            block: own.field.block(),
            blocks: own.blocks.clone(),
        };
        let (rows, halo) = given.rows(local.comm)?;
        Ok((given, rows, halo))
    }

    /// Returns own rows of the matrix if the caller gave a new one. Collective.
    pub fn renewed(&mut self, comm: &dyn Communicator) -> Result<Option<Csr>> {
        let new = self.matrices.matrix(&self.name)?;
        let mut changed = [f64::from(u8::from(!Arc::ptr_eq(&new, &self.of)))];
        comm.sum(&mut changed)?;
        if changed[0] == 0.0 {
            return Ok(None);
        }
        self.of = new;
        Ok(Some(self.rows(comm)?.0))
    }

    fn rows(&self, comm: &dyn Communicator) -> Result<(Csr, Option<Arc<Halo>>)> {
        let (given, n, total, size) = (&*self.of, self.own, self.total, self.block);
        let wrong = || {
            Error::invalid(format!(
                "the matrix `{}` is {}×{}; {} needs {total}×{total}",
                self.name,
                given.rows(),
                given.columns(),
                self.purpose
            ))
        };
        let Some(blocks) = &self.blocks else {
            let fits = given.rows() == n && given.columns() == n;
            return if fits { Ok((given.clone(), None)) } else { Err(wrong()) };
        };
        let fits = given.columns() == total && (given.rows() == total || given.rows() == n);
        agree(comm, if fits { Ok(()) } else { Err(wrong()) })?;
        let row = |k: usize| match given.rows() == total {
            true => blocks[k / size] as usize * size + k % size,
            false => k,
        };
        let columns = (0..n).flat_map(|k| given.row(row(k)).0.iter().map(|&j| u64::from(j) / size as u64));
        let (halo, numbering) = Halo::build(comm, blocks, columns)?;
        let columns = Columns::new(size, halo, numbering);
        let matrix = agree(comm, columns.localized(n, |k| given.row(row(k))))?;
        Ok((matrix, Some(columns.halo)))
    }
}
