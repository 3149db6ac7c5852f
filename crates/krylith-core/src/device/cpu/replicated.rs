//! Ranks on a CPU that share the rows of a product, where each rank needs the whole result or the whole
//! argument. Numbers are sent through the communicator while the next rows are computed.

use super::{Cpu, CpuProduct};
use crate::Result;
use crate::comm::{Channel, Communicator, Message, agree};
use crate::matrix::Csr;
use crate::operator::cuts::{Cuts, Mode, Run};
use crate::operator::{Format, PointBlockSum, SharedRows, Terms, check_lengths};
use crate::space::Precision;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

/// A rank's rows of a product, stage after stage.
#[doc(hidden)]
pub struct CpuShared {
    rows: usize,
    stages: Vec<Stage>,
}

struct Stage {
    pieces: Vec<Piece>,
    /// None for products that every rank computes itself.
    exchange: Option<Exchange>,
}

/// A run of rows.
struct Piece {
    rows: Range<usize>,
    product: CpuProduct,
    /// Results of these rows: y, or r and m.
    out: RefCell<[Vec<f64>; 2]>,
}

/// Messages of own numbers to all other ranks, and of their numbers to this one.
struct Exchange {
    channel: RefCell<Box<dyn Channel>>,
    /// Own rows, in the order in which they are sent.
    own: Vec<Range<usize>>,
    /// Rows of the others, in the order in which they arrive.
    arriving: Vec<Range<usize>>,
}

impl Exchange {
    /// Makes the exchange for the rows of each rank. Collective.
    fn new(comm: &dyn Communicator, runs: &[Vec<Run>]) -> Result<Self> {
        let rows = |runs: &[Run]| runs.iter().map(|run| run.rows.clone()).collect::<Vec<_>>();
        let own = rows(&runs[comm.rank()]);
        let send = 0..own.iter().map(Range::len).sum();
        let (mut arriving, mut messages, mut at) = (Vec::new(), Vec::new(), 0);
        for (rank, runs) in runs.iter().enumerate().filter(|(rank, _)| *rank != comm.rank()) {
            let theirs = rows(runs);
            let begin = at;
            at += theirs.iter().map(Range::len).sum::<usize>();
            messages.push(Message { rank, send: send.clone(), receive: begin..at });
            arriving.extend(theirs);
        }
        Ok(Self { channel: RefCell::new(comm.channel(&messages)?), own, arriving })
    }

    /// Sends own rows of y.
    fn start(&self, space: &Cpu, y: &[f64]) -> Result<()> {
        let mut channel = self.channel.borrow_mut();
        let mut out = channel.outgoing();
        for rows in &self.own {
            let (here, rest) = out.split_at_mut(rows.len());
            here.copy_from_slice(&y[rows.clone()]);
            out = rest;
        }
        space.waiting(|| channel.start())
    }

    /// Waits for the rows of the others.
    fn finish(&self, space: &Cpu, y: &mut [f64]) -> Result<()> {
        let mut channel = self.channel.borrow_mut();
        let mut from = space.waiting(|| channel.finish())?;
        for rows in &self.arriving {
            let (here, rest) = from.split_at(rows.len());
            y[rows.clone()].copy_from_slice(here);
            from = rest;
        }
        Ok(())
    }
}

/// A rank's rows of a product, and the exchange that gathers its argument.
#[doc(hidden)]
pub struct CpuGathered {
    rows: Range<usize>,
    product: Option<CpuProduct>,
    /// None on a single rank.
    exchange: Option<Exchange>,
    whole: RefCell<Vec<f64>>,
}

impl Cpu {
    /// Makes the product of a run of rows of a matrix with all of its columns.
    fn rows_of(&self, a: &Csr, run: &Run) -> Result<CpuProduct> {
        let first = run.entries.start;
        let row_ptr = a.row_ptr()[run.rows.start..=run.rows.end].iter().map(|p| p - first).collect();
        let (col, values) = (a.col()[run.entries.clone()].to_vec(), a.values()[run.entries.clone()].to_vec());
        let rows = Csr::new(run.rows.len(), a.columns(), row_ptr, col, values)?;
        self.prepare_as(&Terms::csr(&rows)?, Precision::F64, false, Format::Csr)
    }
}

impl SharedRows for Cpu {
    type Links = Arc<dyn Communicator>;
    type Shared = CpuShared;
    type Gathered = CpuGathered;

    fn link(&self, comm: &Arc<dyn Communicator>) -> Result<Arc<Self::Links>> {
        Ok(Arc::new(comm.clone()))
    }

    fn share_rows(&self, comm: &Arc<Self::Links>, a: &Csr, cuts: &Cuts, _: &Mode) -> Result<CpuShared> {
        let (rank, ranks) = (comm.rank(), comm.size());
        let mut stages = Vec::new();
        for stage in &cuts.stages {
            let piece = |run: &Run| -> Result<Piece> {
                let out = RefCell::new([vec![0.0; run.rows.len()], Vec::new()]);
                Ok(Piece { rows: run.rows.clone(), product: self.rows_of(a, run)?, out })
            };
            let pieces = agree(&***comm, stage.runs[rank].iter().map(piece).collect::<Result<_>>())?;
            let travels = ranks > 1 && !stage.redundant;
            let exchange = travels.then(|| Exchange::new(&***comm, &stage.runs)).transpose()?;
            stages.push(Stage { pieces, exchange });
        }
        Ok(CpuShared { rows: a.rows(), stages })
    }

    fn multiply_shared(&self, p: &CpuShared, x: &Vec<f64>, y: &mut Vec<f64>) -> Result<()> {
        check_lengths(p.rows, p.rows, x.len(), y.len())?;
        for stage in &p.stages {
            for piece in &stage.pieces {
                let mut out = piece.out.borrow_mut();
                self.multiply(&piece.product, x, &mut out[0])?;
                y[piece.rows.clone()].copy_from_slice(&out[0]);
            }
            stage.exchange.iter().try_for_each(|exchange| exchange.start(self, y))?;
        }
        p.exchanges().try_for_each(|exchange| exchange.finish(self, y))
    }

    fn residual_shared(
        &self,
        p: &CpuShared,
        b: &Vec<f64>,
        x: &Vec<f64>,
        r: &mut Vec<f64>,
        m: &mut Vec<f64>,
    ) -> Result<()> {
        check_lengths(p.rows, p.rows, x.len(), r.len())?;
        check_lengths(p.rows, p.rows, b.len(), m.len())?;
        for piece in p.stages.iter().flat_map(|stage| &stage.pieces) {
            let [own_r, own_m] = &mut *piece.out.borrow_mut();
            own_m.resize(own_r.len(), 0.0);
            piece.product.residual(self, &b[piece.rows.clone()], x, own_r, own_m)?;
            r[piece.rows.clone()].copy_from_slice(own_r);
            m[piece.rows.clone()].copy_from_slice(own_m);
        }
        for numbers in [r, m] {
            p.exchanges().try_for_each(|exchange| exchange.start(self, numbers))?;
            p.exchanges().try_for_each(|exchange| exchange.finish(self, numbers))?;
        }
        Ok(())
    }

    fn gather_for(&self, comm: &Arc<Self::Links>, a: &Csr, rows: &[Run]) -> Result<CpuGathered> {
        let own = &rows[comm.rank()];
        let product = (!own.rows.is_empty()).then(|| self.rows_of(a, own)).transpose();
        let product = agree(&***comm, product)?;
        let runs: Vec<Vec<Run>> = rows.iter().map(|run| vec![run.clone()]).collect();
        let exchange = (comm.size() > 1).then(|| Exchange::new(&***comm, &runs)).transpose()?;
        let whole = RefCell::new(vec![0.0; a.columns()]);
        Ok(CpuGathered { rows: own.rows.clone(), product, exchange, whole })
    }

    fn multiply_gathered(&self, p: &CpuGathered, x: &Vec<f64>, y: &mut Vec<f64>) -> Result<()> {
        check_lengths(p.rows.len(), p.rows.len(), x.len(), y.len())?;
        let mut whole = p.whole.borrow_mut();
        whole[p.rows.clone()].copy_from_slice(x);
        if let Some(exchange) = &p.exchange {
            exchange.start(self, &whole)?;
            exchange.finish(self, &mut whole)?;
        }
        p.product.iter().try_for_each(|product| self.multiply(product, &whole, y))
    }
}

impl CpuShared {
    fn exchanges(&self) -> impl Iterator<Item = &Exchange> {
        self.stages.iter().filter_map(|stage| stage.exchange.as_ref())
    }
}
