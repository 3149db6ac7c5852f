//! The terms of Aᵀ, in the form in which a device takes terms.
//!
//! (Σ Cₜ ⊗ Aₜ)ᵀ = Σ Cₜᵀ ⊗ Aₜᵀ. Over ranks, rank q sends the blocks of its rows in columns of rank p to p. So
//! p has own rows of Aᵀ, whose ghosts are rows of q. The halo of Aᵀ is not that of A unless the pattern is
//! symmetric. A product with Aᵀ is then a product like any other.
//!
//! For each block of Aᵀ the [`Map`] has the place of the block of A. New values are gathered by it, and
//! nothing is sorted again.

use super::Terms;
use crate::Result;
use crate::comm::Communicator;
use crate::comm::wire::{Reader, packed};
use crate::halo::{Halo, Neighbour};
use crate::matrix::Bsr;
#[cfg(feature = "cuda")]
use crate::matrix::Dense;
use crate::matrix::storage::Storage;
use rayon::prelude::*;
use std::any::Any;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Number of blocks that one task gathers.
const TASK: usize = 1 << 12;
/// Number of blocks below which a second thread costs more than it saves.
const FEW: usize = 1 << 14;

/// The transposed terms of a sum, and the places of their values in the values of the terms.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::{comm::Solo, matrix::Csr, operator::Terms};
/// use krylith_core::operator::TransposedTerms;
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (0, 1, 2.0), (1, 1, 3.0)])?;
/// let turned = TransposedTerms::on_host(&Solo, &Terms::csr(&a)?)?;
/// assert_eq!(turned.terms().terms()[0].1.values(), [1.0, 2.0, 3.0]);
/// assert_eq!(turned.terms().terms()[0].1.col(), [0, 0, 1]);
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct TransposedTerms {
    terms: Terms<'static>,
    /// The map of each term.
    maps: Vec<Arc<Map>>,
}

/// The places from which values of a transposed matrix come.
pub enum Map {
    /// On the host.
    Host(HostMap),
    /// In the memory of a device.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "no device keeps one"))]
    Device(Arc<dyn Any + Send + Sync>),
}

/// The places from which values of a transposed matrix come, on the host.
pub struct HostMap {
    /// For each block of the local transpose, with the rows of ghosts last, the block of A.
    places: Places,
    /// Number of blocks in own rows.
    own: usize,
    exchange: Option<Exchange>,
}

/// Positions of blocks, with 32 bits where these suffice.
enum Places {
    Short(Vec<u32>),
    Long(Vec<u64>),
}

/// Blocks that ranks exchange.
struct Exchange {
    /// Ranks, and the blocks of the local transpose that they need.
    sent: Vec<(usize, Range<usize>)>,
    /// Ranks, and the number of blocks that arrive from each.
    received: Vec<(usize, usize)>,
    /// For each block of Aᵀ its number among own blocks and, behind them, those that arrive.
    order: Vec<usize>,
}

/// The pattern of a transposed matrix.
struct Pattern {
    row_ptr: Vec<usize>,
    col: Vec<u32>,
    columns: usize,
    map: Arc<Map>,
}

/// The transpose of a pattern: its rows, and for each entry a column and a number of the caller's choice.
pub(crate) struct Turned {
    pub row_ptr: Vec<usize>,
    pub col: Vec<u32>,
    pub numbers: Vec<u64>,
}

/// Transposes a pattern with `columns` columns in at most `pieces` pieces, which `run` distributes to
/// threads. Columns of the result ascend. `number` is called with each entry's position.
pub(crate) fn turned(
    row_ptr: &[usize],
    col: &[u32],
    columns: usize,
    pieces: usize,
    run: impl Fn(usize, &(dyn Fn(usize) + Sync)),
    number: impl Fn(usize) -> u64 + Sync,
) -> Turned {
    let (n, entries) = (row_ptr.len() - 1, col.len());
    let cut = |k: usize| match k {
        0 => 0,
        k if k == pieces => n,
        k => row_ptr.partition_point(|&p| p < entries / pieces * k).min(n),
    };
    // Each piece counts its entries in every column.
    let next: Vec<Mutex<Vec<usize>>> = (0..pieces).map(|_| Mutex::default()).collect();
    let of = |k: usize| next[k].lock().unwrap_or_else(|e| e.into_inner());
    run(pieces, &|k| {
        let mut count = vec![0usize; columns];
        col[row_ptr[cut(k)]..row_ptr[cut(k + 1)]].iter().for_each(|&j| count[j as usize] += 1);
        *of(k) = count;
    });
    let mut to_ptr = Vec::with_capacity(columns + 1);
    to_ptr.push(0);
    let mut sum = 0;
    let mut all: Vec<_> = (0..pieces).map(of).collect();
    for j in 0..columns {
        for next in &mut all {
            sum += std::mem::replace(&mut next[j], sum);
        }
        to_ptr.push(sum);
    }
    drop(all);
    if pieces == 1 {
        let (mut to_col, mut numbers, mut next) = (vec![0; entries], vec![0; entries], of(0));
        for i in 0..n {
            for p in row_ptr[i]..row_ptr[i + 1] {
                let at = &mut next[col[p] as usize];
                (to_col[*at], numbers[*at]) = (i as u32, number(p));
                *at += 1;
            }
        }
        return Turned { row_ptr: to_ptr, col: to_col, numbers };
    }
    let to_col: Vec<AtomicU32> = (0..entries).map(|_| AtomicU32::new(0)).collect();
    let numbers: Vec<AtomicU64> = (0..entries).map(|_| AtomicU64::new(0)).collect();
    run(pieces, &|k| {
        let mut next = of(k);
        for i in cut(k)..cut(k + 1) {
            for p in row_ptr[i]..row_ptr[i + 1] {
                let at = &mut next[col[p] as usize];
                to_col[*at].store(i as u32, Relaxed);
                numbers[*at].store(number(p), Relaxed);
                *at += 1;
            }
        }
    });
    Turned {
        row_ptr: to_ptr,
        col: to_col.into_iter().map(AtomicU32::into_inner).collect(),
        numbers: numbers.into_iter().map(AtomicU64::into_inner).collect(),
    }
}

/// Transposes a pattern on the threads of the current pool; the numbers are positions.
pub(crate) fn turned_here(row_ptr: &[usize], col: &[u32], columns: usize) -> Turned {
    let pieces = (col.len() / FEW + 1).min(rayon::current_num_threads());
    let run = |pieces: usize, f: &(dyn Fn(usize) + Sync)| (0..pieces).into_par_iter().for_each(f);
    turned(row_ptr, col, columns, pieces, run, |p| p as u64)
}

impl Places {
    fn new(numbers: Vec<u64>, blocks: usize) -> Self {
        match u32::try_from(blocks) {
            Ok(_) => Self::Short(numbers.into_par_iter().map(|p| p as u32).collect()),
            Err(_) => Self::Long(numbers),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Short(places) => places.len(),
            Self::Long(places) => places.len(),
        }
    }

    /// Returns the transposes of the blocks of b² numbers at these places.
    fn gather(&self, b: usize, from: &[f64]) -> Vec<f64> {
        let square = b * b;
        let mut to = vec![0.0; self.len() * square];
        to.par_chunks_mut(TASK * square).enumerate().for_each(|(task, to)| {
            for (to, k) in to.chunks_exact_mut(square).zip(task * TASK..) {
                let p = match self {
                    Self::Short(places) => places[k] as usize,
                    Self::Long(places) => places[k] as usize,
                };
                let block = &from[p * square..(p + 1) * square];
                for r in 0..b {
                    (0..b).for_each(|c| to[r * b + c] = block[c * b + r]);
                }
            }
        });
        to
    }
}

impl HostMap {
    /// Returns the values of the transpose. Collective if ranks exchange blocks.
    fn values(&self, comm: &dyn Communicator, b: usize, from: &[f64]) -> Result<Vec<f64>> {
        let mut all = self.places.gather(b, from);
        let Some(Exchange { sent, received, order }) = &self.exchange else { return Ok(all) };
        let square = b * b;
        let mut out = vec![Vec::new(); comm.size()];
        for (rank, blocks) in sent {
            out[*rank] = packed(&all[blocks.start * square..blocks.end * square]);
        }
        let messages = comm.all_to_all(out)?;
        all.truncate(self.own * square);
        for &(rank, blocks) in received {
            all.extend(Reader::new(&messages[rank], rank).take::<f64>(blocks * square)?);
        }
        let mut to = vec![0.0; order.len() * square];
        to.par_chunks_mut(square).zip(order).with_min_len(TASK).for_each(|(to, &p)| {
            to.copy_from_slice(&all[p * square..(p + 1) * square]);
        });
        Ok(to)
    }
}

impl TransposedTerms {
    /// Wraps transposed matrices and the maps of their values.
    #[cfg(feature = "cuda")]
    pub(crate) fn new(terms: &Terms, matrices: Vec<(Bsr, Arc<Map>)>) -> Self {
        let (matrices, maps): (Vec<_>, _) = matrices.into_iter().unzip();
        let turned = terms.terms.iter().zip(matrices);
        let turned = turned.map(|((c, _), a)| (c.transposed(), Cow::Owned(a))).collect();
        Self { terms: Terms { terms: turned, halo: None }, maps }
    }

    /// Transposes terms on the host. Collective if they have a halo.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub fn on_host(comm: &dyn Communicator, terms: &Terms) -> Result<Self> {
        let shared = terms.shared_pattern();
        let distinct = if shared { &terms.terms[..1] } else { &terms.terms[..] };
        let mut locals = Vec::new();
        for (_, a) in distinct {
            let Turned { row_ptr, col, numbers } = turned_here(a.row_ptr(), a.col(), a.block_columns());
            locals.push((row_ptr, col, Places::new(numbers, a.blocks())));
        }
        let (patterns, halo) = match &terms.halo {
            None => {
                let columns = terms.block_rows();
                let alone = locals.into_iter().map(|(row_ptr, col, places)| {
                    let own = places.len();
                    let map = Arc::new(Map::Host(HostMap { places, own, exchange: None }));
                    Pattern { row_ptr, col, columns, map }
                });
                (alone.collect(), None)
            }
            Some(halo) => {
                let (patterns, halo) = exchanged(comm, halo, terms.block_rows(), locals)?;
                (patterns, Some(Arc::new(halo)))
            }
        };
        let (mut storages, mut maps) = (Vec::<Storage>::new(), Vec::new());
        for Pattern { row_ptr, col, columns, map } in patterns {
            storages.push(Storage::host(row_ptr.len() - 1, columns, row_ptr, col, Vec::new()));
            maps.push(map);
        }
        let mut turned = Vec::new();
        for (t, (c, a)) in terms.terms.iter().enumerate() {
            if t == maps.len() {
                storages.push(storages[0].clone());
                maps.push(maps[0].clone());
            }
            turned.push((c.transposed(), Cow::Owned(Bsr::from_storage(a.block(), storages[t].clone()))));
        }
        let mut made = Self { terms: Terms { terms: turned, halo }, maps };
        made.update_on_host(comm, terms)?;
        Ok(made)
    }

    /// Takes new values and coefficients of the same terms, on the host. Collective if they have a halo.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub fn update_on_host(&mut self, comm: &dyn Communicator, terms: &Terms) -> Result<()> {
        for (((c, a), map), (to_c, to)) in terms.terms.iter().zip(&self.maps).zip(&mut self.terms.terms) {
            let Map::Host(map) = &**map else {
                return Err(crate::Error::Internal("a transpose on a device is updated on the host".into()));
            };
            let values = map.values(comm, a.block(), a.values())?;
            *to = Cow::Owned(to.with_storage(to.storage().with_host_values(values)));
            *to_c = c.transposed();
        }
        Ok(())
    }

    /// Replaces the values of term t by those that a device gathered, and its coefficient.
    #[cfg(feature = "cuda")]
    pub(crate) fn set(&mut self, t: usize, coefficient: &Dense, matrix: Bsr) {
        self.terms.terms[t] = (coefficient.transposed(), Cow::Owned(matrix));
    }

    /// Returns the map of term t.
    #[cfg(feature = "cuda")]
    pub(crate) fn map(&self, t: usize) -> &Arc<Map> {
        &self.maps[t]
    }

    /// Returns true if own rows of Aᵀ are those of A.
    pub(crate) fn equal(&self, terms: &Terms) -> bool {
        let mut pairs = self.terms.terms.iter().zip(&terms.terms);
        self.terms.halo == terms.halo
            && pairs.all(|(one, two)| {
                let (a, b) = (&one.1, &two.1);
                one.0 == two.0 && a.same_pattern(b) && a.storage().same_values(b.storage())
            })
    }

    /// Returns the terms of Aᵀ.
    pub fn terms(&self) -> &Terms<'static> {
        &self.terms
    }
}

/// Brings own rows of the transpose together, and returns their patterns with their halo. `locals` are the
/// transposes of own rows. Collective.
fn exchanged(
    comm: &dyn Communicator,
    halo: &Halo,
    rows: usize,
    locals: Vec<(Vec<usize>, Vec<u32>, Places)>,
) -> Result<(Vec<Pattern>, Halo)> {
    let own = halo.own;
    let rows_of = |ghosts: &Range<usize>| own + ghosts.start..own + ghosts.end;
    // The halo of Aᵀ sends own rows with an entry in a ghost column, in ascending order.
    let (mut send, mut place) = (Vec::new(), vec![0u32; rows]);
    let (mut out, mut neighbours) = (vec![Vec::new(); comm.size()], Vec::new());
    for n in &halo.neighbours {
        let ghosts = rows_of(&n.receive);
        let entries = |(row_ptr, _, _): &(Vec<usize>, _, _)| row_ptr[ghosts.start]..row_ptr[ghosts.end];
        let mut needed: Vec<u32> = locals.iter().flat_map(|l| &l.1[entries(l)]).copied().collect();
        needed.sort_unstable();
        needed.dedup();
        needed.iter().zip(0..).for_each(|(&i, k)| place[i as usize] = k);
        let message = &mut out[n.rank];
        message.extend(packed(&[needed.len() as u64]));
        for local in &locals {
            let lengths: Vec<u32> =
                local.0[ghosts.start..=ghosts.end].windows(2).map(|w| (w[1] - w[0]) as u32).collect();
            let columns: Vec<u32> = local.1[entries(local)].iter().map(|&i| place[i as usize]).collect();
            message.extend(packed(&lengths));
            message.extend(packed(&columns));
        }
        let first = send.len();
        send.extend(needed);
        neighbours.push(Neighbour { rank: n.rank, send: first..send.len(), receive: 0..0 });
    }
    let messages = comm.all_to_all(out)?;
    let (mut ghosts, mut arrived) = (0, vec![Vec::new(); locals.len()]);
    for (n, to) in halo.neighbours.iter().zip(&mut neighbours) {
        let mut reader = Reader::new(&messages[n.rank], n.rank);
        let count = reader.take::<u64>(1)?[0] as usize;
        for arrived in &mut arrived {
            let lengths = reader.take::<u32>(n.send.len())?;
            let columns = reader.take::<u32>(lengths.iter().map(|&l| l as usize).sum())?;
            arrived.push((lengths, columns));
        }
        to.receive = ghosts..ghosts + count;
        ghosts += count;
    }
    let mut patterns = Vec::new();
    for ((row_ptr, col, places), arrived) in locals.into_iter().zip(arrived) {
        let here = row_ptr[own];
        // Blocks that arrive follow own blocks. Each row begins with its own blocks.
        let mut of_row: Vec<Vec<(usize, u32)>> = vec![Vec::new(); own];
        let mut number = here;
        for ((n, to), (lengths, columns)) in halo.neighbours.iter().zip(&neighbours).zip(&arrived) {
            let mut columns = columns.iter();
            for (&row, &length) in halo.send[n.send.clone()].iter().zip(lengths) {
                for &column in columns.by_ref().take(length as usize) {
                    of_row[row as usize].push((number, (rows + to.receive.start) as u32 + column));
                    number += 1;
                }
            }
        }
        let (mut to_ptr, mut to_col, mut order) = (vec![0], Vec::new(), Vec::new());
        for (j, more) in of_row.iter().enumerate() {
            to_col.extend_from_slice(&col[row_ptr[j]..row_ptr[j + 1]]);
            order.extend(row_ptr[j]..row_ptr[j + 1]);
            more.iter().for_each(|&(number, column)| (order.push(number), to_col.push(column)).0);
            to_ptr.push(to_col.len());
        }
        let sent = halo.neighbours.iter().map(|n| {
            let ghosts = rows_of(&n.receive);
            (n.rank, row_ptr[ghosts.start]..row_ptr[ghosts.end])
        });
        let received = halo.neighbours.iter().zip(&arrived).map(|(n, (_, columns))| (n.rank, columns.len()));
        let exchange = Exchange { sent: sent.collect(), received: received.collect(), order };
        let map = Arc::new(Map::Host(HostMap { places, own: here, exchange: Some(exchange) }));
        patterns.push(Pattern { row_ptr: to_ptr, col: to_col, columns: rows + ghosts, map });
    }
    Ok((patterns, Halo { own: rows, ghosts, neighbours, send }))
}
