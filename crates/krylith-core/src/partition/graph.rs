//! k-way partitions of the matrix's graph by METIS.

use super::Partition;
use super::adjacency::Adjacency;
use super::partitioner::weights;
use crate::interrupt;
use crate::operator::Terms;
use crate::{Error, Result};
use metis::option::Seed;
use metis::{Graph, Idx};
use std::sync::Mutex;

/// A fixed seed, for reproducible parts.
const SEED: Idx = 1;

/// METIS uses the global random number generator of the C library, so concurrent calls would disturb each
/// other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Returns the part of each node by METIS's k-way partition of a graph; parts may be empty.
///
/// # Errors
/// A graph with more than 2³¹ − 1 edges, both ways counted, or weights that sum to more.
pub(super) fn k_way(graph: Adjacency, weights: &[u64], parts: usize) -> Result<Vec<u32>> {
    let n = weights.len();
    let edges = graph.col.len();
    let total = weights.iter().sum::<u64>().max(edges as u64).max(n as u64 + 1).max(parts as u64);
    if total > Idx::MAX as u64 {
        return Err(Error::invalid(format!(
            "a graph partition of {n} block rows with {edges} edges exceeds the 32-bit numbers of METIS; \
             use multilevel, geometric or nonzeros"
        )));
    }
    let weights: Vec<Idx> = weights.iter().map(|&w| w as Idx).collect();
    let row_ptr: Vec<Idx> = graph.row_ptr.iter().map(|&p| p as Idx).collect();
    let col: Vec<Idx> = graph.col.into_iter().map(|j| j as Idx).collect();
    interrupt::apart("METIS", move || {
        let mut owner = vec![0; n];
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
        Graph::new(1, parts as Idx, &row_ptr, &col)
            .map_err(|e| refused(&e))?
            .set_vwgt(&weights)
            .set_option(Seed(SEED))
            .part_kway(&mut owner)
            .map_err(failed)?;
        Ok(owner.into_iter().map(|r| r as u32).collect())
    })?
}

fn refused(why: &dyn std::fmt::Display) -> Error {
    Error::invalid(format!("METIS: {why}; use another partition"))
}

/// Out of memory is a failure of the machine; other errors of METIS are about the graph.
fn failed(why: metis::Error) -> Error {
    match why {
        metis::Error::Memory => Error::Device {
            device: "the host".into(),
            call: "METIS".into(),
            message: "out of memory; use another partition, or a machine with more memory".into(),
        },
        other => refused(&other),
    }
}

impl Partition {
    /// Computes a multilevel k-way partition (Karypis and Kumar, 1998) of the graph of A + Aᵀ over all terms,
    /// with few cut edges. Rows are weighted by their stored blocks. The result is reproducible. METIS uses
    /// one thread.
    ///
    /// # Errors
    /// No ranks; a graph with more than 2³¹ − 1 edges, both ways counted, or weights that sum to more.
    pub fn graph(terms: &Terms, ranks: usize) -> Result<Self> {
        let n = terms.block_rows();
        if ranks <= 1 || n <= ranks {
            return Self::by_rows(n, ranks); // nothing to choose
        }
        let owner = k_way(Adjacency::of(terms), &weights(terms), ranks)?;
        let mut partition = Self::new(owner, ranks)?;
        partition.fill_empty_ranks();
        Ok(partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_memory_is_the_machines_part() {
        assert_eq!(failed(metis::Error::Memory).exit_code(), 3);
        assert!(failed(metis::Error::Memory).to_string().contains("METIS: out of memory"));
        assert_eq!(failed(metis::Error::Input).exit_code(), 2);
    }
}
