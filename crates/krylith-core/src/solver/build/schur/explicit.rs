//! The Schur complement −D − C M B with the preconditioner M of the first part, column by column: for few
//! unknowns, such as Lagrange multipliers, wells and integral constraints. With it, the form `full` is the
//! formula of Sherman, Morrison and Woodbury for M.

use crate::comm::{Communicator, agree};
use crate::matrix::Csr;
use crate::operator::LinearOperator;
use crate::precond::SharedOperator;
use crate::precond::split::Part;
use crate::solver::SolverSpace;
use crate::solver::build::ghosts::Columns;
use crate::solver::build::part::OwnField;
use crate::{Error, Result};
use std::sync::Arc;

/// Largest number of unknowns of the last field. Each needs one application of the first part.
const MOST: usize = 512;

/// The columns of the Schur complement over ranks: all of them, on every rank.
pub(in super::super) struct AllColumns {
    /// Columns of D.
    from: Arc<Columns>,
    pub(super) to: Columns,
}

impl AllColumns {
    /// Numbers the columns; `None` on one rank. Collective.
    ///
    /// # Errors
    /// Too many unknowns.
    pub fn new(of: Option<&Arc<Columns>>, own: &OwnField, comm: &dyn Communicator) -> Result<Option<Self>> {
        if own.total > MOST {
            return Err(Error::invalid(format!(
                "S=explicit applies the first part once for each of the {} unknowns of `{}`; at most {MOST} are supported. \
                 Take S=selfp, lsc or a matrix",
                own.total,
                own.field.name()
            )));
        }
        let all =
            |from: &Arc<Columns>| Ok(Self { from: from.clone(), to: from.with(comm, 0..own.total as u64)? });
        of.map(all).transpose()
    }
}

/// Returns own rows of the Schur complement. Collective.
pub(in super::super) fn columns_of_s<S: SolverSpace>(
    on: &S,
    first: &Part<S>,
    couplings: &[Vec<Option<SharedOperator<S>>>],
    d: &Csr,
    columns: Option<&AllColumns>,
    own: &OwnField,
) -> Result<Csr> {
    let (n, total) = (own.unknowns.len(), own.total);
    let place = |j: usize| columns.map_or(j, |columns| columns.to.place(j as u64) as usize);
    let mut dense = vec![0.0; n * total];
    let of_d = |j: u32| columns.map_or(j, |columns| columns.to.place(columns.from.number(j))) as usize;
    for i in 0..n {
        let (col, values) = d.row(i);
        col.iter().zip(values).for_each(|(&j, v)| dense[i * total + of_d(j)] = *v);
    }
    if let (Some(b), Some(c)) = (&couplings[0][1], &couplings[1][0]) {
        let made = (|| Ok(([first.space.vector()?, first.space.vector()?], [on.vector()?, on.vector()?])))();
        let ([mut u, mut v], [mut p, mut q]) = agree(on.comm(), made)?;
        let (mut unit, mut column) = (vec![0.0; n], vec![0.0; n]);
        for j in 0..total {
            let at = place(j);
            if at < n {
                unit[at] = 1.0;
            }
            on.write(&unit, &mut p)?;
            b.apply(&first.space, &p, &mut u)?;
            first.inverse.apply(&first.space, &u, &mut v)?;
            c.apply(on, &v, &mut q)?;
            on.read(&q, &mut column)?;
            column.iter().enumerate().for_each(|(i, v)| dense[i * total + at] -= v);
            if at < n {
                unit[at] = 0.0;
            }
        }
    }
    let row_ptr = (0..=n).map(|i| i * total).collect();
    let col = (0..n).flat_map(|_| 0..total as u32).collect();
    agree(on.comm(), Csr::new(n, total, row_ptr, col, dense))
}
