//! One rank's part of a distributed product on a CPU: y = D x + O g.
//!
//! D holds the columns of own nodes and needs nothing from other ranks. O holds the columns of ghosts, for
//! the rows that have any. Own numbers are sent, D x is computed while messages travel, and O g is added when
//! the ghosts g have arrived, so D x hides the exchange. Every number that another rank needs is packed once,
//! and received numbers are used in place.

use super::Cpu;
use super::product::{Own, Rows};
use crate::comm::Channel;
use crate::halo::Halo;
use crate::matrix::{Bsr, Dense};
use crate::operator::Terms;
use crate::space::{Precision, Space};
use crate::threads::Disjoint;
use crate::threads::share;
use crate::{Error, Result};
use std::borrow::Cow;
use std::cell::{RefCell, RefMut};
use std::sync::Arc;

/// O, its rows, and the exchange.
pub(super) struct Outer {
    /// O, on the rows that have ghosts.
    product: Rows,
    /// The rows that have ghosts.
    rows: Vec<u32>,
    halo: Arc<Halo>,
    channel: RefCell<Box<dyn Channel>>,
    /// O g.
    sums: RefCell<Vec<f64>>,
    /// Rounding errors of rows, kept between the subtractions of D x and of O g; empty before the first use.
    low: RefCell<Vec<f64>>,
    /// New values on their way to D and to O, kept after the first update.
    staging: (Vec<f64>, Vec<f64>),
}

impl Outer {
    /// Returns D and O of a rank's terms.
    pub(super) fn cut(
        space: &Cpu,
        terms: &Terms,
        halo: &Arc<Halo>,
        precision: Precision,
    ) -> Result<(Terms<'static>, Self)> {
        let (n, own) = (terms.block_rows(), halo.own);
        if let Some((_, a)) = terms.terms.iter().find(|(_, a)| a.block_columns() != own + halo.ghosts) {
            return Err(Error::invalid(format!(
                "a distributed matrix has {} block columns; expected the {own} nodes of its rank and {} ghosts",
                a.block_columns(),
                halo.ghosts
            )));
        }
        let has_ghosts =
            |a: &Bsr, i: usize| a.col()[..a.row_ptr()[i + 1]][a.row_ptr()[i]..].last() >= Some(&(own as u32));
        let rows: Vec<u32> =
            (0..n).filter(|&i| terms.terms.iter().any(|(_, a)| has_ghosts(a, i))).map(|i| i as u32).collect();
        let (mut inner, mut outer) = (Vec::new(), Vec::new());
        for (c, a) in &terms.terms {
            let (d, o) = cut(a, &rows, own, halo.ghosts)?;
            inner.push((c.clone(), Cow::Owned(d)));
            outer.push((c.clone(), Cow::Owned(o)));
        }
        let inner = Terms { terms: inner, halo: None };
        let product = Rows::new(space, &Terms { terms: outer, halo: None }, precision)?;
        let run = product.run();
        let outer = Self {
            sums: RefCell::new(vec![0.0; rows.len() * run]),
            low: RefCell::default(),
            channel: RefCell::new(halo.channel(space.comm(), run)?),
            product,
            rows,
            halo: halo.clone(),
            staging: Default::default(),
        };
        Ok((inner, outer))
    }

    /// Packs the numbers of x that neighbours need, and sends them.
    pub(super) fn start(&self, space: &Cpu, x: &[f64]) -> Result<()> {
        let (run, send) = (self.product.run(), &self.halo.send);
        let mut channel = self.channel.borrow_mut();
        {
            let out = Disjoint::new(channel.outgoing());
            let pieces = space.pool().pieces(2 * send.len() * run * size_of::<f64>());
            space.pool().run(pieces, |piece| {
                let part = share(send.len(), piece, pieces);
                // SAFETY: pieces do not overlap.
                let out = unsafe { out.range(part.start * run..part.end * run) };
                for (out, &node) in out.chunks_exact_mut(run).zip(&send[part]) {
                    out.copy_from_slice(&x[node as usize * run..][..run]);
                }
            });
        }
        space.waiting(|| channel.start())
    }

    /// Waits for the ghosts and adds O g. Returns the dot product of x and O g where x is given.
    pub(super) fn finish(&self, space: &Cpu, y: &mut [f64], x: Option<&[f64]>) -> Result<f64> {
        let (run, mut sums) = (self.product.run(), self.sums.borrow_mut());
        let mut channel = self.channel.borrow_mut();
        let ghosts = space.waiting(|| channel.finish())?;
        self.product.multiply(space.pool(), ghosts, &mut sums);
        let mut dot = 0.0;
        for (sum, &row) in sums.chunks_exact(run).zip(&self.rows) {
            let y = &mut y[row as usize * run..][..run];
            y.iter_mut().zip(sum).for_each(|(y, sum)| *y += sum);
            if let Some(x) = x {
                dot += x[row as usize * run..][..run].iter().zip(sum).map(|(x, sum)| x * sum).sum::<f64>();
            }
        }
        Ok(dot)
    }

    /// Returns space for the rounding errors of `len` numbers.
    pub(super) fn low(&self, len: usize) -> RefMut<'_, Vec<f64>> {
        let mut low = self.low.borrow_mut();
        low.resize(len, 0.0);
        low
    }

    /// Waits for the ghosts and subtracts O g from r, whose rounding error is `low`.
    pub(super) fn subtract(&self, space: &Cpu, r: &mut [f64], m: &mut [f64], low: &[f64]) -> Result<()> {
        let mut channel = self.channel.borrow_mut();
        let ghosts = space.waiting(|| channel.finish())?;
        let run = self.product.run();
        for (i, &row) in self.rows.iter().enumerate() {
            let at = row as usize * run..(row as usize + 1) * run;
            self.product.subtract_row(i, ghosts, &mut r[at.clone()], &mut m[at.clone()], &low[at]);
        }
        Ok(())
    }

    /// Sets new values of term `t` of the rank's part, in D (`inner`) and in O.
    pub(super) fn update_values(&mut self, inner: &mut Own, t: usize, values: &[f64]) -> Result<()> {
        let ((d, bb), o) = (inner.row_ptr(t), self.product.row_ptr(t));
        let expected = (d[d.len() - 1] + o[o.len() - 1]) * bb;
        if values.len() != expected {
            return Err(Error::invalid(format!(
                "{} values were given for the {} local numbers of term {t}",
                values.len(),
                expected
            )));
        }
        let (own, ghost) = &mut self.staging;
        own.clear();
        ghost.clear();
        let (mut at, mut next) = (0, 0);
        for i in 0..d.len() - 1 {
            let width = (d[i + 1] - d[i]) * bb;
            own.extend_from_slice(&values[at..at + width]);
            at += width;
            if self.rows.get(next) == Some(&(i as u32)) {
                let width = (o[next + 1] - o[next]) * bb;
                ghost.extend_from_slice(&values[at..at + width]);
                (at, next) = (at + width, next + 1);
            }
        }
        // O comes first: if it refuses the values, D is unchanged. Both refuse values that are not finite.
        self.product.update_values(t, ghost)?;
        inner.update_values(t, own)
    }

    /// Sets new coefficients; another number of stages changes the length of the messages.
    pub(super) fn update_coefficients(&mut self, space: &Cpu, coefficients: &[Dense]) -> Result<()> {
        let before = self.product.run();
        self.product.update_coefficients(coefficients)?;
        let run = self.product.run();
        if run != before {
            self.channel = RefCell::new(self.halo.channel(space.comm(), run)?);
            self.sums.get_mut().resize(self.rows.len() * run, 0.0);
        }
        Ok(())
    }

    /// Bytes moved in addition to those of D: O, the rows that it adds to, and the packed numbers.
    pub(super) fn bytes(&self) -> u64 {
        let run = self.product.run();
        let moved = 8 * run * (2 * self.rows.len() + 2 * self.halo.send.len()) + 4 * self.halo.send.len();
        self.product.bytes() + moved as u64
    }
}

/// Returns D and O of a rank's rows; O has only the `rows`, and its columns count ghosts from 0.
fn cut(a: &Bsr, rows: &[u32], own: usize, ghosts: usize) -> Result<(Bsr, Bsr)> {
    let (n, b) = (a.block_rows(), a.block());
    let part = |rows: &mut dyn Iterator<Item = usize>, ghost: bool| {
        let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
        for i in rows {
            let row = &a.col()[a.row_ptr()[i]..a.row_ptr()[i + 1]];
            let split = row.partition_point(|&j| (j as usize) < own);
            let range = if ghost { split..row.len() } else { 0..split };
            col.extend(row[range.clone()].iter().map(|&j| if ghost { j - own as u32 } else { j }));
            let first = a.row_ptr()[i];
            values.extend_from_slice(&a.values()[(first + range.start) * b * b..(first + range.end) * b * b]);
            row_ptr.push(col.len());
        }
        let count = row_ptr.len() - 1;
        Bsr::new(b, count, if ghost { ghosts } else { own }, row_ptr, col, values)
    };
    Ok((part(&mut (0..n), false)?, part(&mut rows.iter().map(|&i| i as usize), true)?))
}
