//! Rows of other ranks, for products of matrices that ranks share.
//!
//! In a product C B, own rows of C use rows of B that other ranks own. [`GhostRows`] fetches them and appends
//! them to own rows of B, so that the product itself is that of one rank.

use crate::Result;
use crate::comm::wire::Reader;
use crate::comm::{Communicator, agree};
use crate::halo::{Halo, Numbering};
use crate::matrix::{Bsr, Csr};
use crate::precond::multilevel::ranks::{FarRows, all_to_all};
use crate::solver::SolverSpace;
use std::sync::Arc;

/// The columns that a rank's rows use: own ones, and then ghosts. Unknowns of a block stay together.
pub(super) struct Columns {
    /// Number of unknowns of a block.
    size: usize,
    /// The halo of blocks.
    pub halo: Arc<Halo>,
    /// Global numbers of blocks.
    numbering: Numbering,
}

impl Columns {
    /// Numbers columns in blocks of `size`.
    pub fn new(size: usize, halo: Halo, numbering: Numbering) -> Self {
        Self { size, halo: Arc::new(halo), numbering }
    }

    /// Returns the number of columns, with ghosts.
    pub fn width(&self) -> usize {
        (self.halo.own + self.halo.ghosts) * self.size
    }

    /// Returns the global number of a column.
    pub fn number(&self, column: u32) -> u64 {
        let (block, rest) = (column as usize / self.size, column as usize % self.size);
        self.numbering.global()[block] * self.size as u64 + rest as u64
    }

    /// Returns the column of a global number.
    pub fn place(&self, number: u64) -> u32 {
        let (block, rest) = (number / self.size as u64, number % self.size as u64);
        let block = self.numbering.local(block).unwrap_or(u32::MAX / self.size as u32);
        block * self.size as u32 + rest as u32
    }

    /// Returns own rows of a matrix whose columns have global numbers. `row` returns the columns and values
    /// of own row i of `n`.
    ///
    /// # Errors
    /// An internal error of Krylith.
    pub fn localized<'m>(&self, n: usize, row: impl Fn(usize) -> (&'m [u32], &'m [f64])) -> Result<Csr> {
        let local = |i: usize| {
            let (columns, values) = row(i);
            columns.iter().zip(values).map(|(&j, v)| (self.place(u64::from(j)), *v)).collect()
        };
        of_rows((0..n).map(local), n, self.width())
    }

    /// Returns the global numbers of blocks that this rank owns.
    pub fn own(&self) -> &[u64] {
        &self.numbering.global()[..self.halo.own]
    }

    /// Returns columns that include those of these numbers as well. Collective.
    ///
    /// # Errors
    /// A number without an owner; a rank that is gone.
    pub fn with(&self, comm: &dyn Communicator, numbers: impl Iterator<Item = u64>) -> Result<Self> {
        let size = self.size as u64;
        let used = self.numbering.global().iter().copied().chain(numbers.map(|j| j / size));
        let (halo, numbering) = Halo::build(comm, self.own(), used)?;
        Ok(Self::new(self.size, halo, numbering))
    }

    /// Returns the halo of single unknowns.
    pub fn scalars(&self) -> Arc<Halo> {
        if self.size == 1 { self.halo.clone() } else { Arc::new(self.halo.in_parts(self.size)) }
    }
}

/// Returns the matrix of these rows, each a list of columns and values in any order.
///
/// # Errors
/// A column beyond `width`.
pub(super) fn of_rows(rows: impl Iterator<Item = Vec<(u32, f64)>>, n: usize, width: usize) -> Result<Csr> {
    let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    for mut row in rows {
        row.sort_unstable_by_key(|entry| entry.0);
        col.extend(row.iter().map(|entry| entry.0));
        values.extend(row.iter().map(|entry| entry.1));
        row_ptr.push(col.len());
    }
    Csr::new(n, width, row_ptr, col, values)
}

/// The rows of a matrix B that own rows of another matrix use, beyond own rows of B.
pub(super) struct GhostRows {
    /// The halo of the rows, which are single unknowns.
    rows: Arc<Halo>,
    /// Columns of own rows of B.
    from: Arc<Columns>,
    /// Columns of all rows.
    pub to: Arc<Columns>,
}

impl GhostRows {
    /// Finds the columns of the rows in `rows`, and returns own rows of B followed by those rows. Collective.
    ///
    /// # Errors
    /// Out of memory; a rank that is gone.
    pub fn new<S: SolverSpace>(
        space: &S,
        rows: Arc<Halo>,
        b: &Csr,
        from: &Arc<Columns>,
    ) -> Result<(Self, Csr)> {
        let far = fetch(space, &rows, b, from)?;
        let to = Arc::new(from.with(space.comm(), far.col.iter().copied())?);
        let made = Self { rows, from: from.clone(), to };
        let all = made.appended(space, b, &far)?;
        Ok((made, all))
    }

    /// Returns own rows of B followed by those of other ranks, for new values. Collective.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn again<S: SolverSpace>(&self, space: &S, b: &Csr) -> Result<Csr> {
        self.appended(space, b, &fetch(space, &self.rows, b, &self.from)?)
    }

    fn appended<S: SolverSpace>(&self, space: &S, b: &Csr, far: &FarRows) -> Result<Csr> {
        let made = (|| {
            let (width, to) = (self.to.width(), &self.to);
            let places: Vec<u32> =
                (0..b.columns() as u32).map(|column| to.place(self.from.number(column))).collect();
            let own = space.renumbered(&Bsr::from_csr(b, 1)?, &places, width)?;
            let all = space.with_rows(&own, &far.placed(1, |number| to.place(number)), width)?;
            Ok(Csr::from_storage(all.storage().clone()))
        })();
        agree(space.comm(), made)
    }
}

/// Receives the rows of ghosts from their owners. Collective.
fn fetch<S: SolverSpace>(space: &S, rows: &Halo, b: &Csr, columns: &Columns) -> Result<FarRows> {
    let sent = Bsr::from_csr(b, 1).and_then(|b| space.rows_of(&b, &rows.send));
    let sent = agree(space.comm(), sent)?;
    let number = |j: u32| columns.number(j);
    let messages = rows.neighbours.iter();
    let messages = messages.map(|n| (n.rank, FarRows::message(&sent, n.send.clone(), 1, &number)));
    let messages = all_to_all(space.comm(), messages)?;
    let mut far = FarRows::default();
    for n in &rows.neighbours {
        far.take(&mut Reader::new(&messages[n.rank], n.rank), n.receive.len(), 1)?;
    }
    Ok(far)
}
