//! One rank's rows of a distributed matrix, assembled as scalar entries.

use super::super::factors::{BACKWARD, Columns, LEFT, LEFT_SYMMETRIC};
use super::super::symmetry::EQUAL;
use super::super::{Assembly, fill_checked};
use super::pins::pins;
use crate::comm::wire::{MessageBuilder, Reader};
use crate::comm::{Communicator, agree};
use crate::halo::{Halo, RowNumbers};
use crate::operator::{TermValues, Terms};
use crate::{Error, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// Own rows, by columns: those of own unknowns, then those of ghosts.
pub struct OwnRows {
    assembly: Assembly,
    pub matrix: Columns,
    halo: Option<Arc<Halo>>,
    /// Unknowns of a node.
    order: usize,
    /// Global numbers of own unknowns and ghosts.
    pub global: Vec<u64>,
    /// Number of own unknowns.
    pub own: usize,
    /// Local numbers of pinned unknowns.
    pinned: Vec<usize>,
    /// The ghost of each global number.
    ghosts: HashMap<u64, usize>,
    scratch: [Vec<f64>; 2],
}

/// The symmetry of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mirrored {
    pub symmetric: bool,
    /// True if no diagonal entry is zero or negative.
    pub positive: bool,
}

impl OwnRows {
    /// Assembles the pattern. Collective.
    pub fn new(
        comm: &dyn Communicator,
        terms: &Terms,
        numbers: RowNumbers,
        null: &[Vec<f64>],
    ) -> Result<Self> {
        let order = terms.block() * terms.stages();
        // Numbers are exact as f64.
        let nodes: Vec<f64> = (0..numbers.len()).map(|i| numbers.at(i) as f64).collect();
        let nodes = match &terms.halo {
            Some(halo) => halo.with_ghosts(comm, 1, &nodes)?,
            None => nodes,
        };
        let first = nodes.iter().map(|&node| node as u64 * order as u64);
        let global: Vec<u64> = first.flat_map(|first| first..first + order as u64).collect();
        let own = terms.rows();
        let pins = pins(comm, terms, null, &global[..own])?;
        let pinned = (0..global.len()).filter(|&u| pins.binary_search(&global[u]).is_ok());
        let pinned: Vec<usize> = pinned.collect();
        let own_pins: Vec<usize> = pinned.iter().copied().filter(|&u| u < own).collect();
        let (assembly, matrix) = Assembly::new(terms, &own_pins);
        let ghosts = global.iter().enumerate().skip(own).map(|(at, &number)| (number, at)).collect();
        let (halo, scratch) = (terms.halo.clone(), Default::default());
        let mut rows = Self { assembly, matrix, halo, order, global, own, pinned, ghosts, scratch };
        rows.fill(comm, TermValues::from(terms))?;
        Ok(rows)
    }

    /// Assembles new values. Collective.
    pub fn fill(&mut self, comm: &dyn Communicator, values: TermValues) -> Result<()> {
        let filled = fill_checked(&self.assembly, values, &mut self.scratch, &mut self.matrix.values);
        agree(comm, filled)?;
        self.matrix.pin(&self.pinned);
        Ok(())
    }

    /// Sets a vector of own unknowns to 0 at pinned ones.
    pub fn omit_pinned(&self, own: &mut [f64]) {
        let n = own.len();
        self.pinned.iter().filter(|&&u| u < n).for_each(|&u| own[u] = 0.0);
    }

    /// Returns rows and columns, counted from 1, and the place of the value of each entry; of a symmetric
    /// matrix those of one triangle.
    pub fn triplets(&self, symmetric: bool) -> (Vec<i32>, Vec<i32>, Vec<usize>) {
        let (mut rows, mut columns, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for j in 0..self.matrix.order() {
            for p in self.matrix.col_ptr[j]..self.matrix.col_ptr[j + 1] {
                let (row, column) = (self.global[self.matrix.rows[p]], self.global[j]);
                if !symmetric || row >= column {
                    rows.push(row as i32 + 1);
                    columns.push(column as i32 + 1);
                    places.push(p);
                }
            }
        }
        (rows, columns, places)
    }

    /// Computes the largest |entry| of each own row.
    fn sizes(&self) -> Vec<f64> {
        let mut sizes = vec![0.0f64; self.own];
        for (&i, v) in self.matrix.rows.iter().zip(&self.matrix.values) {
            sizes[i] = sizes[i].max(v.abs());
        }
        sizes
    }

    /// Returns own entry i, j, or 0. The rows of a column ascend.
    fn entry(&self, i: usize, j: usize) -> f64 {
        let from = self.matrix.col_ptr[j];
        let rows = &self.matrix.rows[from..self.matrix.col_ptr[j + 1]];
        rows.binary_search(&i).map_or(0.0, |at| self.matrix.values[from + at])
    }

    /// Compares the matrix with its transpose, as on one rank: entries may differ by rounding errors relative
    /// to the largest of their rows. Collective.
    pub fn mirrored(&self, comm: &dyn Communicator) -> Result<Mirrored> {
        let sizes = self.sizes();
        let mut symmetric = true;
        let mut positive = true;
        for j in 0..self.own {
            positive &= self.entry(j, j) > 0.0;
            for (i, v) in self.matrix.column(j) {
                symmetric &= (v - self.entry(j, i)).abs() <= EQUAL * sizes[i].min(sizes[j]);
            }
            if !symmetric {
                break;
            }
        }
        if let Some(halo) = &self.halo {
            symmetric &= self.mirrored_by_others(comm, halo, &sizes)?;
        }
        let mut against = [f64::from(u8::from(!symmetric)), f64::from(u8::from(!positive))];
        comm.sum(&mut against)?;
        Ok(Mirrored { symmetric: against[0] == 0.0, positive: against[1] == 0.0 })
    }

    /// Compares the entries of ghosts with those that the owners of their rows have. Collective.
    fn mirrored_by_others(&self, comm: &dyn Communicator, halo: &Halo, sizes: &[f64]) -> Result<bool> {
        let mut out = vec![Vec::new(); comm.size()];
        for n in &halo.neighbours {
            let (mut places, mut rows) = (Vec::new(), Vec::new());
            let (mut values, mut row_sizes) = (Vec::new(), Vec::new());
            for (place, j) in (n.receive.start * self.order..n.receive.end * self.order).enumerate() {
                for (i, v) in self.matrix.column(self.own + j) {
                    places.push(place as u64);
                    rows.push(self.global[i]);
                    values.push(v);
                    row_sizes.push(sizes[i]);
                }
            }
            let mut message = MessageBuilder::new(8 + 32 * rows.len());
            message.put(&[rows.len() as u64]);
            message.put(&places);
            message.put(&rows);
            message.put(&values);
            message.put(&row_sizes);
            out[n.rank] = message.bytes();
        }
        let received = comm.all_to_all(out)?;
        let mut symmetric = true;
        for n in &halo.neighbours {
            let mut from = Reader::new(&received[n.rank], n.rank);
            let count = from.take::<u64>(1)?[0] as usize;
            let (places, rows) = (from.take::<u64>(count)?, from.take::<u64>(count)?);
            let (values, row_sizes) = (from.take::<f64>(count)?, from.take::<f64>(count)?);
            let sent = &halo.send[n.send.clone()];
            for e in 0..count {
                let place = places[e] as usize;
                let row = sent.get(place / self.order).map(|&node| node as usize * self.order);
                let row = row.ok_or_else(|| Error::Internal("lu: a place beyond the halo".into()))?;
                let row = row + place % self.order;
                let other = self.ghosts.get(&rows[e]).map_or(0.0, |&j| self.entry(row, j));
                symmetric &= (values[e] - other).abs() <= EQUAL * sizes[row].min(row_sizes[e]);
            }
        }
        Ok(symmetric)
    }

    /// Tests factors by a solve with a random right-hand side, as on one rank. `tight` asks for a residual of
    /// good factors; others may still precondition. Collective.
    pub fn holds(&self, comm: &dyn Communicator, tight: bool, b: &[f64], x: &[f64]) -> Result<bool> {
        let x = match &self.halo {
            Some(halo) => halo.with_ghosts(comm, self.order, x)?,
            None => x.to_vec(),
        };
        let (mut r, mut sums) = (b.to_vec(), vec![0.0; b.len()]);
        for (j, x) in x.iter().enumerate() {
            for (i, v) in self.matrix.column(j) {
                r[i] -= v * x;
                sums[i] += (v * x).abs();
            }
        }
        let square = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>();
        let rows = r.iter().zip(sums.iter().zip(b)).filter(|(r, _)| **r != 0.0);
        let backward = rows.fold(0.0, |most: f64, (r, (sum, b))| most.max(r.abs() / (sum + b.abs())));
        let mut norms = [square(&r), square(b)];
        comm.sum(&mut norms)?;
        let (r, b) = (norms[0].sqrt(), norms[1].sqrt());
        let backward = crate::comm::largest(comm, backward)?;
        let left = if tight { LEFT_SYMMETRIC } else { LEFT };
        Ok(r <= left * b || r <= LEFT * b && backward <= BACKWARD)
    }
}
