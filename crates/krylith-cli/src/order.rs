//! The user's numbering of unknowns, and conversions to and from the solver's.

use crate::options::Ordering;
use krylith_core::io::Matrix;
use krylith_core::matrix::{Bsr, Csr};

/// The user's numbering of unknowns. The solver numbers them by node, then by component, then by stage.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    /// Number b of components of a node.
    pub block: usize,
    /// Number n of nodes.
    pub nodes: usize,
    /// Number s of stages.
    pub stages: usize,
    /// The user's numbering.
    pub user: Ordering,
}

impl Order {
    /// Returns the number of unknowns of a stage, N = n·b.
    pub fn rows(&self) -> usize {
        self.nodes * self.block
    }

    /// Returns the position of the user's row (of a stage) in the solver's order.
    pub fn place(&self, row: usize) -> usize {
        match self.user {
            Ordering::Interleaved => row,
            Ordering::Segregated => row % self.nodes * self.block + row / self.nodes,
        }
    }

    /// Converts a vector from the user's order, (row, stage), to the solver's order.
    pub fn into_solver(self, user: Vec<f64>) -> Vec<f64> {
        if self.user == Ordering::Interleaved {
            return user;
        }
        let (s, mut out) = (self.stages, vec![0.0; user.len()]);
        for (row, values) in user.chunks_exact(s).enumerate() {
            out[self.place(row) * s..][..s].copy_from_slice(values);
        }
        out
    }

    /// Converts a vector from the solver's order to the user's order.
    pub fn into_user(self, solver: Vec<f64>) -> Vec<f64> {
        if self.user == Ordering::Interleaved {
            return solver;
        }
        let (s, mut out) = (self.stages, vec![0.0; solver.len()]);
        for (row, values) in out.chunks_exact_mut(s).enumerate() {
            values.copy_from_slice(&solver[self.place(row) * s..][..s]);
        }
        out
    }

    /// Converts a matrix of the user to blocks in the solver's order.
    pub fn blocks(&self, matrix: Matrix) -> krylith_core::Result<Bsr> {
        if self.user == Ordering::Interleaved {
            return matrix.into_bsr(self.block);
        }
        let a = without_zeros(&matrix.into_csr())?;
        let new: Vec<u32> = (0..a.rows()).map(|row| self.place(row) as u32).collect();
        Bsr::from_csr(&a.permute(&new)?, self.block)
    }
}

/// Removes stored zeros. Blocks formed in the user's numbering store zeros that must not become entries in
/// the solver's.
fn without_zeros(a: &Csr) -> krylith_core::Result<Csr> {
    let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    for i in 0..a.rows() {
        let (c, v) = a.row(i);
        for (&c, &v) in c.iter().zip(v).filter(|(_, v)| **v != 0.0) {
            col.push(c);
            values.push(v);
        }
        row_ptr.push(col.len());
    }
    Csr::new(a.rows(), a.columns(), row_ptr, col, values)
}
