//! Coupled systems over ranks: each rank recognises the block of its own rows and columns, and the ranks
//! compare what they found.

use super::Found;
use super::saddle::MEANS;
use crate::Result;
use crate::comm::Communicator;
use crate::fields::{Coupled, Field, Recognised};

/// Every name of a field that is recognised.
const NAMES: [&str; 7] = ["u", "w", "p", MEANS, "s1", "s2", "s3"];
/// Numbers that describe what a rank found: the kind, and for each name the number of unknowns of a node and
/// the first unknown.
const SIZE: usize = 1 + 2 * NAMES.len();

/// Every kind of system, for its number.
const KINDS: [Coupled; 6] =
    [Coupled::Flux, Coupled::Viscous, Coupled::Convected, Coupled::Porous, Coupled::Cells, Coupled::CurlCurl];

/// Returns this rank's fields with global numbers if all ranks found the same kind of system. `number` maps
/// a local to a global number. Collective.
///
/// # Errors
/// A rank that has ended or failed.
pub(super) fn agreed(
    comm: &dyn Communicator,
    found: Option<Found>,
    number: impl Fn(usize) -> usize,
) -> Result<Option<Found>> {
    let (rank, size) = (comm.rank(), comm.size());
    let found = found.map(|(fields, found)| {
        let fields: Vec<Field> = fields.into_iter().map(|field| field.renumbered(&number)).collect();
        (fields, found)
    });
    let mut all = vec![0.0; size * SIZE];
    if let Some(found) = &found {
        all[rank * SIZE..][..SIZE].copy_from_slice(&described(found));
    }
    comm.sum(&mut all)?;
    let ranks = || all.chunks_exact(SIZE);
    let Some((mut fields, Recognised { kind, text })) = found else { return Ok(None) };
    let mut agree = ranks().all(|other| other[0] == all[rank * SIZE]);
    for (k, name) in NAMES.iter().enumerate() {
        let mut having = ranks().map(|other| [other[1 + 2 * k], other[2 + 2 * k]]).filter(|[b, _]| *b > 0.0);
        let Some([block, first]) = having.next() else { continue };
        agree &= having.all(|[other, _]| other == block);
        if !fields.iter().any(|field| field.name() == *name) {
            // A field has to name an unknown, which may be another rank's. Nodes of several are not known.
            agree &= block == 1.0;
            fields.push(Field::new(name, [first as u32]));
        }
    }
    let text = format!("{text} (counted on rank {rank} of {size})");
    Ok(agree.then_some((fields, Recognised { kind, text })))
}

/// Returns the numbers that describe what was found, for comparison with other ranks.
fn described((fields, found): &Found) -> [f64; SIZE] {
    let mut numbers = [0.0; SIZE];
    numbers[0] =
        KINDS.iter().zip(1..).find(|(kind, _)| **kind == found.kind).map_or(0.0, |(_, k)| f64::from(k));
    for field in fields {
        if let Some(k) = NAMES.iter().position(|name| *name == field.name()) {
            let first = field.unknowns().first().copied().unwrap_or(0);
            numbers[1 + 2 * k..][..2].copy_from_slice(&[field.block() as f64, f64::from(first)]);
        }
    }
    numbers
}
