//! Factors by MUMPS, on all ranks of MPI.

use super::super::direct::{RATE, SECONDS};
use super::super::factors::{fits, within};
use super::super::listed;
use super::rows::OwnRows;
use super::spread::ToOwners;
use super::{RanksLuOptions, too_large};
use crate::comm::wire::{Reader, packed};
use crate::comm::{Communicator, Mumps, Symmetry, agree, free_released, gather};
use crate::halo::RowNumbers;
use crate::operator::{TermValues, Terms};
use crate::{Error, Result};

/// Seed of the right-hand side with which factors are tested; the one of factors on one rank.
const TEST: u64 = 1;
/// Remedy for a system without an inverse.
const SINGULAR: &str = "try incomplete factors, such as ildu:cut=whole,shift=1e-6, or give all null vectors";

/// An instance of MUMPS for the rows of this rank.
pub struct Distributed {
    rows: OwnRows,
    options: RanksLuOptions,
    symmetry: Symmetry,
    /// Unknowns of the whole system.
    unknowns: usize,
    ranks: usize,
    made: Option<Made>,
    pub stored: f64,
    /// Numbers of own unknowns, in and out of a solve.
    pub work: Vec<f64>,
}

/// The factors, and the way of a solution to the owners of its unknowns.
struct Made {
    mumps: Mumps,
    /// The place of the value of each entry that MUMPS has.
    places: Vec<usize>,
    values: Vec<f64>,
    owners: Option<ToOwners>,
    factorized: bool,
}

impl Distributed {
    /// Analyses and factorises. Collective.
    pub fn new(
        comm: &dyn Communicator,
        terms: &Terms,
        numbers: RowNumbers,
        null: &[Vec<f64>],
        options: RanksLuOptions,
    ) -> Result<Self> {
        let rows = OwnRows::new(comm, terms, numbers, null)?;
        let mut sums = [rows.own as f64, rows.matrix.values.len() as f64];
        comm.sum(&mut sums)?;
        let work = vec![0.0; rows.own];
        let mut made = Self {
            rows,
            options,
            symmetry: Symmetry::None,
            unknowns: sums[0] as usize,
            ranks: comm.size(),
            made: None,
            stored: sums[1],
            work,
        };
        let beyond = made.rows.global.iter().find(|&&u| u >= made.unknowns as u64);
        let numbered = beyond.map_or(Ok(()), |u| {
            Err(Error::Internal(format!("lu: unknown {u} of a system of {} unknowns", made.unknowns)))
        });
        agree(comm, numbered)?;
        made.symmetry = made.found(comm)?;
        made.factorize(comm)?;
        Ok(made)
    }

    /// Takes new values, and factorises them with the old analysis, unless the matrix has lost its symmetry.
    /// Collective.
    pub fn update(&mut self, comm: &dyn Communicator, values: TermValues) -> Result<()> {
        self.rows.fill(comm, values)?;
        if self.symmetry != Symmetry::None && self.found(comm)? == Symmetry::None {
            (self.symmetry, self.made) = (Symmetry::None, None);
        }
        self.factorize(comm)
    }

    fn found(&self, comm: &dyn Communicator) -> Result<Symmetry> {
        let found = self.rows.mirrored(comm)?;
        Ok(match (found.symmetric, found.positive) {
            (true, true) => Symmetry::Definite,
            (true, false) => Symmetry::Indefinite,
            _ => Symmetry::None,
        })
    }

    /// Factorises the values, by the next more general factors as long as the result does not solve a test
    /// system. Collective.
    fn factorize(&mut self, comm: &dyn Communicator) -> Result<()> {
        loop {
            if self.made.is_none() {
                let analyzed = self.analyze(comm)?;
                self.made = Some(analyzed);
            }
            let Some(made) = &mut self.made else { break };
            made.factorized = false;
            for (value, &place) in made.values.iter_mut().zip(&made.places) {
                *value = self.rows.matrix.values[place];
            }
            let mut holds = made.mumps.factorize(&mut made.values)?;
            holds &= self.symmetry != Symmetry::Definite || made.mumps.negative_pivots() == 0;
            if holds {
                made.factorized = true;
                holds = self.test(comm)?;
            }
            if holds {
                return Ok(());
            }
            self.symmetry = match self.symmetry {
                Symmetry::Definite => Symmetry::Indefinite,
                Symmetry::Indefinite => Symmetry::None,
                Symmetry::None => return Err(self.singular(comm)?),
            };
            self.made = None;
        }
        Ok(())
    }

    /// Creates an instance and analyses the pattern, and checks what the factors will need. Collective.
    fn analyze(&self, comm: &dyn Communicator) -> Result<Made> {
        let mpi = comm.mpi().ok_or_else(|| Error::Internal("lu: MUMPS without MPI".into()))?;
        let own: Vec<i32> = self.rows.global[..self.rows.own].iter().map(|&u| u as i32 + 1).collect();
        free_released(comm)?;
        let mut mumps = Mumps::new(mpi, self.symmetry, self.unknowns, own, rayon::current_num_threads())?;
        let symmetric = self.symmetry != Symmetry::None;
        let (rows, columns, places) = self.rows.triplets(symmetric);
        let cost = mumps.analyze(rows, columns)?;
        let what = if symmetric { "L of a symmetric factorisation" } else { "L and U" };
        agree(comm, fits(what, cost.numbers as usize, self.options.most.map(super::SparseLu::bytes_of)))?;
        let ranks = comm.size() as f64;
        let seconds = (cost.operations / RATE + cost.numbers * SECONDS) / ranks;
        agree(comm, within(seconds, cost.numbers as usize))?;
        // The ranks of a host share its memory.
        let all = gather(comm, &cost.bytes.to_le_bytes())?;
        let bytes = |bytes: &Vec<u8>| bytes.as_slice().try_into().map_or(0, u64::from_le_bytes);
        let needed: u64 = comm.host().ranks_on_host.iter().filter_map(|&q| all.get(q)).map(bytes).sum();
        let short = self.options.free.filter(|free| needed > *free);
        let fits = short.map_or(Ok(()), |free| {
            Err(too_large(format!("lu: MUMPS, {what} on the ranks of this host"), needed, free))
        });
        agree(comm, fits)?;
        let values = vec![0.0; places.len()];
        Ok(Made { mumps, places, values, owners: None, factorized: false })
    }

    /// Solves a test system. Collective.
    fn test(&mut self, comm: &dyn Communicator) -> Result<bool> {
        let random = |&u: &u64| crate::space::random(TEST, u);
        let mut b: Vec<f64> = self.rows.global[..self.rows.own].iter().map(random).collect();
        let mut x = b.clone();
        self.rows.omit_pinned(&mut b);
        if let Some(made) = &mut self.made {
            made.right_hand_side(&self.rows, &x);
            made.mumps.solve(false)?;
            let places = made.mumps.places();
            // The distribution of the solution follows from the pivots. Each new one needs a channel.
            let differs = made.owners.as_ref().is_none_or(|owners| !owners.suits(places));
            let mut differ = [f64::from(u8::from(differs))];
            comm.sum(&mut differ)?;
            if differ[0] > 0.0 {
                made.owners = Some(ToOwners::new(comm, &self.rows.global[..self.rows.own], places)?);
            }
            made.solution(&mut x)?;
        }
        self.rows.holds(comm, self.symmetry != Symmetry::None, &b, &x)
    }

    /// Returns the error of a singular matrix, with the rows that have no pivot. Collective.
    fn singular(&mut self, comm: &dyn Communicator) -> Result<Error> {
        let (n, mut rows) = (self.unknowns, Vec::new());
        if let Some(made) = &mut self.made {
            made.factorized = false;
            rows = made.mumps.rows_without_pivot(&mut made.values)?;
        }
        let rows = gather(comm, &packed(&rows))?;
        let mut all: Vec<u64> = Vec::new();
        for (q, bytes) in rows.iter().enumerate() {
            all.extend(Reader::new(bytes, q).all::<u64>()?);
        }
        all.sort_unstable();
        let all: Vec<usize> = all.into_iter().map(|row| row as usize).collect();
        let which = if all.is_empty() { String::new() } else { format!("; no pivot in {}", listed(&all)) };
        Ok(Error::invalid(format!(
            "lu: the matrix is singular (order {n}, to working precision{which}); {SINGULAR}"
        )))
    }

    /// Solves with the factors. Collective.
    pub fn solve(&mut self, transposed: bool, own: &mut [f64]) -> Result<()> {
        let Some(made) = self.made.as_mut().filter(|made| made.factorized) else {
            return Err(Error::invalid("lu: there are no factors; give values that can be factorised"));
        };
        made.right_hand_side(&self.rows, own);
        made.mumps.solve(transposed)?;
        made.solution(own)
    }

    pub fn describe(&self) -> String {
        let version = self.made.as_ref().map_or("", |made| made.mumps.version());
        let megabytes = self.made.as_ref().map_or(0, |made| made.mumps.megabytes());
        format!("MUMPS {version} on {}, {megabytes} MB", crate::text::plural(self.ranks, "rank"))
    }

    pub fn kind(&self) -> &'static str {
        match self.symmetry {
            Symmetry::None => "LU",
            Symmetry::Definite => "LDLᵀ without pivoting",
            Symmetry::Indefinite => "LDLᵀ",
        }
    }

    pub fn numbers(&self) -> f64 {
        self.made.as_ref().map_or(0.0, |made| made.mumps.numbers())
    }
}

impl Made {
    fn right_hand_side(&mut self, rows: &OwnRows, own: &[f64]) {
        let b = self.mumps.right_hand_side();
        b.copy_from_slice(&own[..b.len()]);
        rows.omit_pinned(b);
    }

    /// Sends the solution to the owners of its unknowns. Collective.
    fn solution(&mut self, x: &mut [f64]) -> Result<()> {
        match &mut self.owners {
            Some(owners) => owners.send(self.mumps.solution(), x),
            None => Err(Error::Internal("lu: a solution without a way to its owners".into())),
        }
    }
}
