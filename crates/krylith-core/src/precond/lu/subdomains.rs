//! Restricted additive Schwarz with direct factors of the subdomains ([`crate::precond::schwarz`]); without
//! overlap this is block Jacobi.
//!
//! The subdomain matrices of a rank are the diagonal blocks of one matrix, which has one set of factors: on
//! the host, or on the device if it has a library of direct factors. Vectors pass through the host.

use super::WholeFactors;
use crate::comm::{Channel, Communicator, agree};
use crate::matrix::Bsr;
use crate::operator::{LinearOperator, TermValues, Terms, fresh_key};
use crate::precond::Preconditioner;
use crate::precond::schwarz::{FILL, SchwarzPlan};
use crate::space::Space;
use crate::{Error, Result};
use std::borrow::Cow;
use std::cell::RefCell;

/// Numbers of one application.
#[derive(Default)]
struct Work {
    /// Those of own nodes, then those of imported ones.
    nodes: Vec<f64>,
    /// Those of all rows of the subdomains.
    rows: Vec<f64>,
    channel: Option<Box<dyn Channel>>,
}

/// y = Σ_k (R_k⁰)ᵀ (A_k)⁻¹ R_k^δ x with direct factors of each A_k.
pub(crate) struct SubdomainLu {
    plan: SchwarzPlan,
    matrix: Terms<'static>,
    factors: RefCell<Box<dyn WholeFactors>>,
    work: RefCell<Work>,
    /// True if no rank imports a node.
    local: bool,
    key: u64,
}

impl SubdomainLu {
    /// Factorises the subdomains of a plan without fill by `make`, which gets all A_k of this rank as one
    /// matrix. Collective.
    ///
    /// # Errors
    /// A singular subdomain; factors that are too large; a rank that has ended or failed.
    pub fn new(
        comm: &dyn Communicator,
        plan: SchwarzPlan,
        values: TermValues,
        make: impl FnOnce(&Terms<'static>) -> Result<Box<dyn WholeFactors>>,
    ) -> Result<Self> {
        let mut imported = [plan.nodes.ghosts as f64];
        comm.sum(&mut imported)?;
        let local = imported[0] == 0.0;
        let (b, rows) = (plan.block, plan.rows());
        let row_ptr = plan.row_ptr.iter().map(|&p| p as usize).collect();
        let mut blocks = vec![0.0; plan.column.len() * b * b];
        let filled = fill(comm, &plan, local, values, &mut blocks);
        agree(comm, filled)?;
        let made = Bsr::new(b, rows, rows, row_ptr, plan.column.clone(), blocks)
            .and_then(|a| Terms::new(vec![(crate::matrix::Dense::identity(1), Cow::Owned(a))]))
            .and_then(|matrix| Ok((make(&matrix)?, matrix)));
        let (factors, matrix) = agree(comm, made)?;
        let channel = match local {
            true => None,
            false => Some(plan.nodes.channel(comm, b)?),
        };
        let work = Work { nodes: vec![0.0; plan.global.len() * b], rows: vec![0.0; rows * b], channel };
        let (factors, work) = (RefCell::new(factors), RefCell::new(work));
        Ok(Self { plan, matrix, factors, work, local, key: fresh_key() })
    }

    /// Returns the plan.
    pub fn plan(&self) -> &SchwarzPlan {
        &self.plan
    }

    /// Returns the number of numbers in the factors.
    pub fn numbers(&self) -> usize {
        self.factors.borrow().numbers()
    }

    /// Describes the factors.
    pub fn describe(&self) -> super::WholeDescription {
        self.factors.borrow().describe()
    }

    fn solve<S: Space>(&self, space: &S, transposed: bool, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let (plan, b) = (&self.plan, self.plan.block);
        let Work { nodes, rows, channel } = &mut *self.work.borrow_mut();
        let own = plan.result.len() * b;
        space.read(x, &mut nodes[..own])?;
        if transposed {
            self.check_transpose()?;
            rows.fill(0.0);
            for (x, &row) in nodes.chunks_exact(b).zip(&plan.result) {
                rows[row as usize * b..][..b].copy_from_slice(x);
            }
        } else {
            if let Some(channel) = channel {
                let out = channel.outgoing().chunks_exact_mut(b).zip(&plan.nodes.send);
                out.for_each(|(out, &node)| out.copy_from_slice(&nodes[node as usize * b..][..b]));
                channel.start()?;
                nodes[own..].copy_from_slice(&channel.finish()?[..plan.nodes.ghosts * b]);
            }
            for (row, &node) in rows.chunks_exact_mut(b).zip(&plan.node) {
                row.copy_from_slice(&nodes[node as usize * b..][..b]);
            }
        }
        self.factors.borrow_mut().solve(transposed, rows)?;
        if transposed {
            nodes.fill(0.0);
            for (row, &node) in rows.chunks_exact(b).zip(&plan.node) {
                nodes[node as usize * b..][..b].iter_mut().zip(row).for_each(|(y, v)| *y += v);
            }
        } else {
            for (y, &row) in nodes.chunks_exact_mut(b).zip(&plan.result) {
                y.copy_from_slice(&rows[row as usize * b..][..b]);
            }
        }
        space.write(&nodes[..own], y)
    }

    fn check_transpose(&self) -> Result<()> {
        if self.local {
            return Ok(());
        }
        Err(Error::Unsupported(
            "ras:sub=lu has no transpose if subdomains overlap across ranks; use overlap=0, or sub=ilu"
                .into(),
        ))
    }
}

/// Writes the values of the subdomain matrices. Collective unless `local`.
fn fill(
    comm: &dyn Communicator,
    plan: &SchwarzPlan,
    local: bool,
    values: TermValues,
    to: &mut [f64],
) -> Result<()> {
    let (mut scratch, square) = (<[Vec<f64>; 2]>::default(), plan.block * plan.block);
    let host = values.on_host(&mut scratch);
    let own = host.and_then(|host| match host.iter().flatten().next() {
        Some((_, own)) if own.len() == plan.blocks.own * square => Ok(*own),
        _ => Err(Error::invalid(format!(
            "ras: the plan needs {} values of one matrix; build a new preconditioner",
            plan.blocks.own * square
        ))),
    });
    let own = agree(comm, own)?;
    let all: Cow<[f64]> = match local {
        true => Cow::Borrowed(own),
        false => Cow::Owned(plan.blocks.with_ghosts(comm, square, own)?),
    };
    for (to, &source) in to.chunks_exact_mut(square).zip(&plan.source) {
        match source {
            FILL => to.fill(0.0),
            source => to.copy_from_slice(&all[source as usize * square..][..square]),
        }
    }
    Ok(())
}

impl<S: Space> LinearOperator<S> for SubdomainLu {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.solve(space, false, x, y)
    }
    fn has_transpose(&self) -> bool {
        self.local
    }
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.solve(space, true, x, y)
    }
    fn key(&self) -> u64 {
        self.key
    }
    fn bytes(&self) -> u64 {
        8 * self.numbers() as u64
    }
    /// The solve passes through the host.
    fn recordable(&self) -> bool {
        false
    }
}

impl<S: Space> Preconditioner<S> for SubdomainLu {
    /// Factorises new values with the old analysis. Collective.
    fn update_values(&mut self, space: &S, _: &Terms, values: TermValues) -> Result<()> {
        let comm = space.comm();
        let mut first = self.matrix.terms.iter_mut();
        let Some((_, a)) = first.next() else { return Err(Error::Internal("ras: no matrix".into())) };
        let filled = fill(comm, &self.plan, self.local, values, a.to_mut().values_mut());
        agree(comm, filled)?;
        agree(comm, self.factors.get_mut().update(&self.matrix))
    }
}
