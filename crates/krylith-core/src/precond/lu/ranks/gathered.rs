//! Factors of a distributed matrix on rank 0: Krylith's own on its host, or those of its device.

use super::spread::OnFirst;
use super::whole::{MakeWhole, WholeFactors};
use super::{RanksLuOptions, SparseLu, too_large};
use crate::comm::wire::{MessageBuilder, Reader, packed};
use crate::comm::{Communicator, agree, time_limit};
use crate::halo::RowNumbers;
use crate::matrix::Bsr;
use crate::operator::{TermValues, Terms};
use crate::{Error, Result};
use std::borrow::Cow;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Copies of the matrix that rank 0 has at once: messages, blocks and the assembled columns.
const COPIES: u64 = 3;
/// Longest time after which rank 0 tells waiting ranks that it works.
const BEAT: Duration = Duration::from_secs(20);

/// The factors on rank 0, and the way to it.
pub struct Gathered {
    first: Option<First>,
    exchange: OnFirst,
    /// Why other ranks have no part in it.
    why: String,
    /// Who computed the factors, if that was not the host.
    by: String,
    pub kind: String,
    pub numbers: (f64, bool),
    pub stored: f64,
    pub weak: Vec<usize>,
    /// Numbers of own unknowns, in and out of a solve.
    pub work: Vec<f64>,
    scratch: [Vec<f64>; 2],
}

/// What rank 0 has.
struct First {
    whole: Terms<'static>,
    /// For each term and rank, the place of each of its blocks in the whole matrix.
    places: Vec<Vec<Vec<usize>>>,
    lu: Option<Box<dyn WholeFactors>>,
    null: Vec<Vec<f64>>,
    room: Option<u64>,
}

impl Gathered {
    /// Gathers the matrix and factorises it. Collective.
    pub fn new(
        comm: &dyn Communicator,
        terms: &Terms,
        numbers: RowNumbers,
        null: &[Vec<f64>],
        options: RanksLuOptions,
        why: String,
        make: Option<MakeWhole>,
    ) -> Result<Self> {
        let (b, order) = (terms.block(), terms.block() * terms.stages());
        let bytes = |(_, a): &(_, Cow<Bsr>)| (a.blocks() * (4 + 8 * b * b)) as f64;
        let mut needed = [terms.terms.iter().map(bytes).sum::<f64>()];
        comm.sum(&mut needed)?;
        let needed = COPIES * needed[0] as u64;
        let room = options.free.filter(|free| comm.rank() == 0 && needed > *free);
        let fits = room.map_or(Ok(()), |free| {
            Err(too_large(
                format!("lu: the matrix of {} ranks, gathered on rank 0,", comm.size()),
                needed,
                free,
            ))
        });
        agree(comm, fits)?;
        let unknown = |i: usize| numbers.at(i / order) * order as u64 + (i % order) as u64;
        let own: Vec<u64> = (0..terms.rows()).map(unknown).collect();
        let mut exchange = OnFirst::new(comm, &own)?;
        let gathered = First::gather(comm, terms, numbers)?;
        let mut whole_null = Vec::new();
        for vector in null {
            let mut own = vector.clone();
            own.resize(terms.rows(), f64::NAN); // a wrong length is found by rank 0
            exchange.apply(&mut own, |whole| {
                whole_null.push(whole.clone());
                Ok(())
            })?;
        }
        let most = options.most.map(SparseLu::bytes_of);
        let room = most.into_iter().chain(options.free).min();
        let first = gathered.map(|(whole, places)| First { whole, places, lu: None, null: whole_null, room });
        let mut made = Self {
            first,
            exchange,
            why,
            by: String::new(),
            kind: String::new(),
            numbers: (0.0, false),
            stored: 0.0,
            weak: Vec::new(),
            work: vec![0.0; terms.rows()],
            scratch: Default::default(),
        };
        made.factorize(comm, make)?;
        Ok(made)
    }

    /// Gathers new values, and factorises them. Collective.
    pub fn update(&mut self, comm: &dyn Communicator, values: TermValues) -> Result<()> {
        let host = values.on_host(&mut self.scratch);
        let mine = host.map(|host| {
            let all = host.iter().flatten();
            let stages = values.stages();
            let coefficients = all.clone().flat_map(|(c, _)| {
                (0..stages * stages).map(move |e| c[(e / stages.max(1), e % stages.max(1))])
            });
            let coefficients: Vec<f64> = coefficients.collect();
            let counts: Vec<u64> = all.clone().map(|(_, values)| values.len() as u64).collect();
            let total: usize = counts.iter().map(|&n| n as usize).sum();
            let mut message = MessageBuilder::new(8 * (coefficients.len() + counts.len() + total));
            message.put(&coefficients);
            message.put(&counts);
            all.for_each(|(_, values)| message.put(values));
            message.bytes()
        });
        let mine = agree(comm, mine)?;
        let mut out = vec![Vec::new(); comm.size()];
        out[0] = mine;
        let received = comm.all_to_all(out)?;
        let taken = self.first.as_mut().map_or(Ok(()), |first| first.take(&received, values.len()));
        agree(comm, taken)?;
        self.factorize(comm, None)
    }

    /// Factorises on rank 0, while the others wait. Collective.
    fn factorize(&mut self, comm: &dyn Communicator, make: Option<MakeWhole>) -> Result<()> {
        let first = &mut self.first;
        let made = while_others_wait(comm, || {
            let Some(first) = first else { return Ok(()) };
            match &mut first.lu {
                Some(lu) => lu.update(&first.whole),
                none => {
                    *none = Some(match make {
                        Some(make) => make(&first.whole, &first.null, first.room)?,
                        None => Box::new(SparseLu::with_null_vectors(&first.whole, &first.null, first.room)?),
                    });
                    Ok(())
                }
            }
        })?;
        agree(comm, made)?;
        let lu = self.first.as_ref().and_then(|first| first.lu.as_ref());
        let mut words = vec![0.0; 3];
        let (mut kind, mut by, mut weak) = (Vec::new(), Vec::new(), Vec::new());
        if let Some(lu) = lu {
            let found = lu.describe();
            words = vec![lu.numbers() as f64, f64::from(u8::from(found.is_bound)), found.stored as f64];
            let first = found.by.map(|library| format!("{library} on rank 0"));
            by = first.into_iter().chain(found.remarks).collect::<Vec<_>>().join(", ").into_bytes();
            kind = found.kind.into_bytes();
            weak = packed(&found.weak.iter().map(|&row| row as u64).collect::<Vec<_>>());
        }
        comm.sum(&mut words)?;
        (self.numbers, self.stored) = ((words[0], words[1] > 0.0), words[2]);
        (self.kind, self.by) = (of_first(comm, &kind)?, of_first(comm, &by)?);
        let rows = crate::comm::gather(comm, &weak)?;
        let rows = rows.first().map_or(Ok(Vec::new()), |bytes| Reader::new(bytes, 0).all::<u64>())?;
        self.weak = rows.into_iter().map(|row| row as usize).collect();
        Ok(())
    }

    /// Solves on rank 0. Collective.
    pub fn solve(&mut self, transposed: bool, own: &mut [f64]) -> Result<()> {
        let first = &mut self.first;
        self.exchange.apply(own, |x| match first.as_mut().and_then(|first| first.lu.as_mut()) {
            Some(lu) => lu.solve(transposed, x),
            None => Err(Error::invalid("lu: there are no factors; give values that can be factorised")),
        })
    }

    pub fn describe(&self) -> String {
        match self.by.as_str() {
            "" => format!("own factors on rank 0: {}", self.why),
            by => by.into(),
        }
    }
}

/// Returns a text of rank 0. Collective.
fn of_first(comm: &dyn Communicator, text: &[u8]) -> Result<String> {
    let texts = crate::comm::gather(comm, text)?;
    Ok(texts.first().map_or(String::new(), |text| String::from_utf8_lossy(text).into_owned()))
}

impl First {
    /// Gathers the blocks of all ranks on rank 0, and assembles the terms there. Collective.
    #[allow(clippy::type_complexity)] // used once
    fn gather(
        comm: &dyn Communicator,
        terms: &Terms,
        numbers: RowNumbers,
    ) -> Result<Option<(Terms<'static>, Vec<Vec<Vec<usize>>>)>> {
        // Numbers are exact as f64.
        let nodes: Vec<f64> = (0..numbers.len()).map(|i| numbers.at(i) as f64).collect();
        let nodes = match &terms.halo {
            Some(halo) => halo.with_ghosts(comm, 1, &nodes)?,
            None => nodes,
        };
        let n = numbers.len();
        let blocks: usize = terms.terms.iter().map(|(_, a)| a.blocks()).sum();
        let square = terms.block() * terms.block();
        let count = terms.terms.len();
        let mut message = MessageBuilder::new(8 + 8 * n + count * 4 * n + blocks * (4 + 8 * square));
        message.put(&[n as u64]);
        message.put(&nodes[..n].iter().map(|&node| node as u64).collect::<Vec<_>>());
        for (_, a) in &terms.terms {
            message.put_lengths(a.row_ptr());
            message.put_each(a.col(), &|j| nodes[j as usize] as u32);
            message.put(a.values());
        }
        let mut out = vec![Vec::new(); comm.size()];
        out[0] = message.bytes();
        let received = comm.all_to_all(out)?;
        let whole = (comm.rank() == 0).then(|| assembled(&received, terms)).transpose();
        agree(comm, whole)
    }

    /// Takes new values of all ranks.
    fn take(&mut self, received: &[Vec<u8>], count: usize) -> Result<()> {
        let square = self.whole.block() * self.whole.block();
        let (terms, s) = (self.whole.terms.len(), self.whole.stages());
        let differs = || {
            Error::invalid(
                "the new values do not match the terms, stages and entries that the preconditioner was built \
                 for; build a new one",
            )
        };
        if count != terms {
            return Err(differs());
        }
        for (q, bytes) in received.iter().enumerate() {
            let mut from = Reader::new(bytes, q);
            let coefficients = from.take::<f64>(terms * s * s)?;
            let lengths = from.take::<u64>(terms)?;
            for (t, places) in self.places.iter().enumerate() {
                if lengths[t] as usize != places[q].len() * square {
                    return Err(differs());
                }
                let values = from.take::<f64>(lengths[t] as usize)?;
                let (c, a) = &mut self.whole.terms[t];
                (0..s * s).for_each(|e| c[(e / s, e % s)] = coefficients[t * s * s + e]);
                let to = a.to_mut().values_mut();
                for (block, &place) in values.chunks_exact(square).zip(&places[q]) {
                    to[place * square..][..square].copy_from_slice(block);
                }
            }
        }
        Ok(())
    }
}

/// Assembles the whole matrix, with columns in ascending order in each row.
#[allow(clippy::type_complexity)] // used once
fn assembled(received: &[Vec<u8>], like: &Terms) -> Result<(Terms<'static>, Vec<Vec<Vec<usize>>>)> {
    let (b, square) = (like.block(), like.block() * like.block());
    let mut readers: Vec<Reader> =
        received.iter().enumerate().map(|(q, bytes)| Reader::new(bytes, q)).collect();
    let mut rows: Vec<Vec<u64>> = Vec::with_capacity(received.len());
    for from in &mut readers {
        let n = from.take::<u64>(1)?[0] as usize;
        rows.push(from.take(n)?);
    }
    let n: usize = rows.iter().map(Vec::len).sum();
    let wrong = || Error::invalid("lu: the rows of the ranks do not form one matrix");
    if rows.iter().flatten().any(|&row| row as usize >= n) {
        return Err(wrong());
    }
    let (mut terms, mut all_places) = (Vec::new(), Vec::new());
    for (c, _) in &like.terms {
        let mut row_ptr = vec![0; n + 1];
        let mut parts = Vec::with_capacity(rows.len());
        for (from, rows) in readers.iter_mut().zip(&rows) {
            let (lengths, blocks) = from.lengths(rows.len())?;
            for (&row, &length) in rows.iter().zip(&lengths) {
                row_ptr[row as usize + 1] = length as usize;
            }
            parts.push((lengths, from.take::<u32>(blocks)?, from.take::<f64>(blocks * square)?));
        }
        (0..n).for_each(|i| row_ptr[i + 1] += row_ptr[i]);
        let mut col = vec![0u32; row_ptr[n]];
        let mut values = vec![0.0; row_ptr[n] * square];
        let mut places = Vec::with_capacity(rows.len());
        for ((lengths, own_col, own_values), rows) in parts.iter().zip(&rows) {
            let mut own_places = vec![0; own_col.len()];
            let mut at = 0;
            for (&row, &length) in rows.iter().zip(lengths) {
                let length = length as usize;
                let mut order: Vec<usize> = (at..at + length).collect();
                order.sort_unstable_by_key(|&p| own_col[p]);
                let begin = row_ptr[row as usize];
                if begin + length > row_ptr[row as usize + 1] {
                    return Err(wrong());
                }
                for (to, &p) in (begin..).zip(&order) {
                    col[to] = own_col[p];
                    values[to * square..][..square].copy_from_slice(&own_values[p * square..][..square]);
                    own_places[p] = to;
                }
                at += length;
            }
            places.push(own_places);
        }
        terms.push((c.clone(), Cow::Owned(Bsr::new(b, n, n, row_ptr, col, values)?)));
        all_places.push(places);
    }
    Ok((Terms::new(terms)?, all_places))
}

/// Runs work that only rank 0 has. The others would give up waiting at their time limit, so meanwhile rank 0
/// tells them that it is at work. Collective.
fn while_others_wait<T>(comm: &dyn Communicator, work: impl FnOnce() -> T) -> Result<T> {
    let beat = BEAT.min(time_limit()? / 4);
    if comm.size() == 1 {
        return Ok(work());
    }
    let wait = |over: Option<&mpsc::Receiver<()>>| -> Result<()> {
        loop {
            let is_over = over.is_none_or(|over| match over.recv_timeout(beat) {
                Err(RecvTimeoutError::Timeout) => false,
                Ok(()) | Err(RecvTimeoutError::Disconnected) => true,
            });
            let mut done = [f64::from(u8::from(comm.rank() == 0 && is_over))];
            comm.sum(&mut done)?;
            if done[0] > 0.0 {
                return Ok(());
            }
        }
    };
    if comm.rank() > 0 {
        let done = work();
        wait(None)?;
        return Ok(done);
    }
    std::thread::scope(|scope| {
        let (end, over) = mpsc::channel();
        let waiting = std::thread::Builder::new().name("lu".into());
        let waiting = waiting.spawn_scoped(scope, move || wait(Some(&over)));
        let done = work();
        drop(end);
        match waiting {
            Ok(thread) => {
                let waited = thread.join().map_err(|panic| Error::of_panic(&*panic))?;
                waited.map(|()| done)
            }
            // Without a thread there is one sum, at the end.
            Err(_) => comm.sum(&mut [1.0]).map(|()| done),
        }
    })
}
