//! The rows of a group of ranks, and all else that a problem has of them, as one problem of the leader.

use super::message::{Parts, Writer};
use crate::comm::Communicator;
use crate::fields::Field;
use crate::halo::RowNumbers;
use crate::partition::{RowBlocks, Rows};
use crate::precond::NearNull;
use crate::{Error, Problem, Result};
use std::sync::Arc;

/// What one rank brings beside its rows.
struct Brought {
    points: Option<Vec<f64>>,
    null: Vec<Vec<f64>>,
    near: Option<Near>,
    fields: Vec<Field>,
}

/// Near-null vectors: rigid modes of the points, or numbers of each vector.
struct Near {
    is_rigid: bool,
    vectors: Vec<Vec<f64>>,
}

/// Returns this rank's rows and all that belongs to them, for the leader. Collective.
pub(super) fn message(problem: &Problem) -> Result<Vec<u8>> {
    let rows = problem.global_rows()?;
    let numbers = problem.numbers.as_deref().unwrap_or_default();
    let mut out = Writer::default();
    out.numbers(numbers);
    for a in rows {
        let lengths: Vec<u64> = a.row_ptr.windows(2).map(|w| (w[1] - w[0]) as u64).collect();
        out.numbers(&lengths);
        out.numbers(&a.col);
        out.numbers(&a.values);
    }
    out.option(own_points(problem, numbers), |out, points| out.numbers(points.as_flattened()));
    out.list(&problem.null, |out, v| out.numbers(v));
    out.option(problem.near.as_ref(), |out, near| match near.as_rigid() {
        Some(modes) => {
            out.flag(true);
            out.list(&[modes.points.as_flattened()], |out, v| out.numbers(v));
        }
        None => {
            out.flag(false);
            out.list(&near.vectors(), |out, v| out.numbers(v));
        }
    });
    out.list(&own_fields(problem, numbers), |out, field| {
        out.text(field.name());
        out.word(field.block() as u64);
        out.numbers(field.unknowns());
        out.list(field.near_numbers(), |out, v| out.numbers(v));
        out.option(field.coordinates(), |out, points| out.numbers(points.as_flattened()));
    });
    Ok(out.0)
}

/// Returns the points of own nodes.
fn own_points(problem: &Problem, numbers: &[u64]) -> Option<Vec<[f64; 3]>> {
    let points = problem.coordinates.as_ref()?;
    match points.len() == numbers.len() {
        true => Some(points.to_vec()),
        false => Some(numbers.iter().map(|&i| points[i as usize]).collect()),
    }
}

/// Returns the fields with own unknowns alone.
fn own_fields(problem: &Problem, numbers: &[u64]) -> Vec<Field> {
    let b = problem.block() as u64;
    let run = RowNumbers::List(numbers).as_run();
    let mut sorted = if run.is_some() { Vec::new() } else { numbers.to_vec() };
    sorted.sort_unstable();
    let is_own = |node: u64| match &run {
        Some(run) => run.contains(&node),
        None => sorted.binary_search(&node).is_ok(),
    };
    let own = problem.fields.given().mapped(|i| is_own(u64::from(i) / b).then_some(i));
    own.all().to_vec()
}

/// Makes the problem of a leader from the messages of the ranks of its group. Collective over the leaders.
pub(super) fn problem(
    own: &Problem,
    leaders: Arc<dyn Communicator>,
    messages: &[(usize, Vec<u8>)],
) -> Result<Problem<'static>> {
    let terms = own.terms.terms.iter();
    let empty = || RowBlocks { row_ptr: vec![0], ..RowBlocks::default() };
    let terms = terms.map(|(c, _)| (c.clone(), empty())).collect();
    let mut rows = Rows { numbers: Vec::new(), block: own.block(), terms };
    let brought = messages.iter().map(|(rank, bytes)| read(bytes, *rank, &mut rows));
    let brought: Vec<Brought> = crate::comm::agree(&*leaders, brought.collect::<Result<_>>())?;
    let is_whole = leaders.size() == 1 && rows.numbers.iter().zip(0..).all(|(number, i)| *number == i);
    let mut problem = Problem::distributed(leaders, rows)?;
    if is_whole {
        // One rank has all rows in their order: more methods and preconditioners take such a system.
        (problem.numbers, problem.terms.halo) = (None, None);
    }
    problem.stages = own.stages.clone();
    problem.grid = own.grid;
    let points: Option<Vec<Vec<f64>>> = brought.iter().map(|one| one.points.clone()).collect();
    if let Some(points) = points {
        problem.coordinates = Some(Arc::new(points.concat().as_chunks().0.to_vec()));
    }
    let joined = |all: &[&Vec<Vec<f64>>]| -> Vec<Vec<f64>> {
        let count = all.iter().map(|vectors| vectors.len()).max().unwrap_or(0);
        let of = |j: usize| all.iter().flat_map(|v| v.get(j).into_iter().flatten().copied()).collect();
        (0..count).map(of).collect()
    };
    let null: Vec<_> = brought.iter().map(|one| &one.null).collect();
    problem = problem.with_null_vectors(joined(&null))?;
    let near: Option<Vec<&Near>> = brought.iter().map(|one| one.near.as_ref()).collect();
    if let Some(near) = near {
        let vectors = joined(&near.iter().map(|near| &near.vectors).collect::<Vec<_>>());
        problem.near = match near.iter().all(|near| near.is_rigid) {
            true => NearNull::rigid(own.block(), vectors.concat().as_chunks().0.to_vec()),
            false => Some(NearNull::new(&vectors)?),
        };
    }
    problem.fields = Arc::new(own.fields.joined(brought.into_iter().map(|one| one.fields).collect()));
    Ok(problem)
}

/// Appends the rows of a message, and returns what else it has.
fn read(bytes: &[u8], rank: usize, rows: &mut Rows) -> Result<Brought> {
    let mut parts = Parts::new(bytes, rank);
    rows.numbers.extend(parts.numbers::<u64>()?);
    for (_, a) in &mut rows.terms {
        let mut end = a.col.len();
        for length in parts.numbers::<u64>()? {
            end += length as usize;
            a.row_ptr.push(end);
        }
        a.col.extend(parts.numbers::<u64>()?);
        a.values.extend(parts.numbers::<f64>()?);
    }
    let points = parts.option(Parts::numbers)?;
    let null = parts.list(Parts::numbers)?;
    let near =
        parts.option(|parts| Ok(Near { is_rigid: parts.flag()?, vectors: parts.list(Parts::numbers)? }))?;
    let fields = parts.list(|parts| {
        let (name, block) = (parts.text()?, parts.count()?);
        let field = Field::new(&name, parts.numbers::<u32>()?).in_blocks(block);
        let field = field.with_near_null_vectors(parts.list(Parts::numbers)?);
        Ok(match parts.option(Parts::numbers::<f64>)? {
            Some(points) => field.with_coordinates(points.as_chunks().0.to_vec()),
            None => field,
        })
    })?;
    if let Some(a) = rows.terms.iter().find(|(_, a)| a.row_ptr.len() != rows.numbers.len() + 1) {
        let (found, expected) = (a.1.row_ptr.len() - 1, rows.numbers.len());
        return Err(Error::Internal(format!("rank {rank} brings {found} rows for {expected} numbers")));
    }
    Ok(Brought { points, null, near, fields })
}
