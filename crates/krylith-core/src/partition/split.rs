//! Cutting a matrix in memory into the parts of all ranks.

use super::{Part, Partition};
use crate::halo::{Halo, check_local};
use crate::matrix::Bsr;
use crate::operator::Terms;
use crate::{Error, Result};
use rayon::prelude::*;
use std::borrow::Cow;
use std::sync::Arc;

/// Cuts `terms` into the part of each rank, with the halo that [`Halo::build`] would find.
///
/// Own rows keep their global order. Terms that share a pattern still share it in every part.
///
/// # Errors
/// A matrix that is not square, or a partition with another number of block rows.
pub fn split(terms: &Terms, partition: &Partition) -> Result<Vec<Part>> {
    let cut = Cut::new(terms, partition)?;
    let parts = cut.halos()?;
    let parts: Vec<Result<Part>> = parts
        .into_par_iter()
        .zip(cut.rows.par_iter())
        .enumerate()
        .map(|(rank, ((halo, ghosts), rows))| {
            let local = |j: u32| match cut.owner(j) == rank {
                true => cut.place[j as usize],
                false => (halo.own + ghosts.partition_point(|&g| cut.order(g) < cut.order(j))) as u32,
            };
            let terms = terms
                .terms
                .iter()
                .map(|(c, a)| {
                    Ok((c.clone(), Cow::Owned(local_matrix(a, rows, halo.own + halo.ghosts, local)?)))
                })
                .collect::<Result<_>>()?;
            let halo = Arc::new(halo);
            Ok(Part {
                rows: rows.clone(),
                terms: Terms { terms, halo: Some(halo.clone()) },
                halo,
                given: Vec::new(),
            })
        })
        .collect();
    parts.into_iter().collect()
}

/// A partition applied to the pattern of a matrix, without values.
pub(super) struct Cut<'a> {
    terms: &'a Terms<'a>,
    partition: &'a Partition,
    /// Rows of each rank, ascending.
    pub(super) rows: Vec<Vec<u64>>,
    /// Position of each row among those of its owner.
    place: Vec<u32>,
}

impl<'a> Cut<'a> {
    pub(super) fn new(terms: &'a Terms<'a>, partition: &'a Partition) -> Result<Self> {
        let n = partition.owner.len();
        for (_, a) in &terms.terms {
            if a.block_rows() != n || a.block_columns() != n {
                return Err(Error::invalid(format!(
                    "a partition of {n} block rows does not fit a matrix of {}×{} blocks; the matrix must \
                     be {n}×{n}",
                    a.block_rows(),
                    a.block_columns()
                )));
            }
        }
        let rows = partition.rows();
        let mut place = vec![0u32; n];
        for rows in &rows {
            rows.iter().enumerate().for_each(|(p, &i)| place[i as usize] = p as u32);
        }
        Ok(Self { terms, partition, rows, place })
    }

    fn owner(&self, j: u32) -> usize {
        self.partition.owner[j as usize] as usize
    }

    /// Returns the sort key of ghosts: owner, then number.
    fn order(&self, j: u32) -> (u32, u32) {
        (self.partition.owner[j as usize], j)
    }

    /// Returns each rank's halo and the global numbers of its ghosts.
    pub(super) fn halos(&self) -> Result<Vec<(Halo, Vec<u32>)>> {
        let ranks = self.partition.ranks;
        let ghosts: Vec<Vec<u32>> = (0..ranks).into_par_iter().map(|rank| self.ghosts(rank)).collect();
        // Ghosts of one owner form one run, which determines what the owner sends.
        let mut to: Vec<Vec<(usize, Vec<u32>)>> = vec![Vec::new(); ranks];
        for (rank, ghosts) in ghosts.iter().enumerate() {
            check_local(rank, self.rows[rank].len() + ghosts.len())?;
            for run in ghosts.chunk_by(|&i, &j| self.owner(i) == self.owner(j)) {
                to[self.owner(run[0])].push((rank, run.iter().map(|&j| self.place[j as usize]).collect()));
            }
        }
        let halo = |(rank, ghosts): (usize, Vec<u32>)| {
            let mut receive = vec![0; ranks];
            ghosts.iter().for_each(|&j| receive[self.owner(j)] += 1);
            let mut send = vec![Vec::new(); ranks];
            to[rank].iter().for_each(|(q, nodes)| send[*q] = nodes.clone());
            (Halo::new(self.rows[rank].len(), &receive, send), ghosts)
        };
        Ok(ghosts.into_iter().enumerate().map(halo).collect())
    }

    /// Returns the columns of other ranks that the rows of `rank` use, by owner and then by number.
    fn ghosts(&self, rank: usize) -> Vec<u32> {
        let mut ghosts = Vec::new();
        for (_, a) in &self.terms.terms {
            let of_others = |rows: &[u64]| -> Vec<u32> {
                let rows =
                    rows.iter().map(|&i| &a.col()[a.row_ptr()[i as usize]..a.row_ptr()[i as usize + 1]]);
                let mut found: Vec<u32> =
                    rows.flatten().copied().filter(|&j| self.owner(j) != rank).collect();
                found.sort_unstable_by_key(|&j| self.order(j));
                found.dedup();
                found
            };
            let found: Vec<Vec<u32>> = self.rows[rank].par_chunks(ROWS).map(of_others).collect();
            ghosts.extend(found.into_iter().flatten());
            ghosts.par_sort_unstable_by_key(|&j| self.order(j));
            ghosts.dedup();
        }
        ghosts
    }
}

/// Number of rows per chunk of a thread.
const ROWS: usize = 4096;

/// Copies the block rows `rows` of `a` with local columns, on all threads.
fn local_matrix(a: &Bsr, rows: &[u64], columns: usize, local: impl Fn(u32) -> u32 + Sync) -> Result<Bsr> {
    let bb = a.block() * a.block();
    let range = |i: u64| a.row_ptr()[i as usize]..a.row_ptr()[i as usize + 1];
    let mut row_ptr = Vec::with_capacity(rows.len() + 1);
    row_ptr.push(0);
    for &i in rows {
        row_ptr.push(row_ptr[row_ptr.len() - 1] + range(i).len());
    }
    let blocks = row_ptr[rows.len()];
    let (mut col, mut values) = (vec![0; blocks], vec![0.0; blocks * bb]);
    let mut runs = Vec::with_capacity(rows.len().div_ceil(ROWS));
    let (mut rest_col, mut rest_values) = (&mut col[..], &mut values[..]);
    for (k, rows) in rows.chunks(ROWS).enumerate() {
        let count = row_ptr[k * ROWS + rows.len()] - row_ptr[k * ROWS];
        let (own_col, tail) = rest_col.split_at_mut(count);
        let (own_values, tail_values) = rest_values.split_at_mut(count * bb);
        runs.push((rows, own_col, own_values));
        (rest_col, rest_values) = (tail, tail_values);
    }
    runs.into_par_iter().for_each(|(rows, col, values)| {
        let (mut order, mut at) = (Vec::new(), 0);
        for &i in rows {
            let range = range(i);
            order.clear();
            order.extend(a.col()[range.clone()].iter().enumerate().map(|(p, &j)| (local(j), p)));
            order.sort_unstable();
            let blocks = &a.values()[range.start * bb..range.end * bb];
            for &(j, p) in &order {
                col[at] = j;
                values[at * bb..][..bb].copy_from_slice(&blocks[p * bb..][..bb]);
                at += 1;
            }
        }
    });
    Bsr::new(a.block(), rows.len(), columns, row_ptr, col, values)
}
