//! Builds direct factors: their memory limit, and their description for reports.

use super::{Boxed, PrecondInfo, Preconditioner};
use crate::comm::{agree, gather};
use crate::halo::RowNumbers;
use crate::operator::{TermValues, Terms};
use crate::precond::direct::LEAST_ON_DEVICE;
use crate::precond::lu::on_device::{DeviceLu, DeviceLuLimits};
use crate::precond::lu::{MakeWhole, WholeFactors, WholeOnDevice, listed, pins};
use crate::precond::untouched::Untouched;
use crate::precond::{LeftNull, LuOn, LuOver, LuSpec, RanksLu, RanksLuOptions, SharedOperator, SparseLu};
use crate::problem::LocalProblem;
use crate::profile::{self, SetupPart};
use crate::solver::{SolverSpace, host};
use crate::text::{count, seconds};
use crate::{Error, Result};
use std::time::Instant;

/// Factorises the whole system, in at most half of the free host memory. `a` is the system as an operator.
/// Collective.
pub(super) fn build<S: SolverSpace>(
    space: &S,
    terms: &Terms,
    local: &LocalProblem,
    spec: LuSpec,
    a: &SharedOperator<S>,
) -> Result<(Boxed<S>, PrecondInfo)> {
    let start = Instant::now();
    let _factors = profile::begin(SetupPart::Factors);
    let free = host::memory().map(|(_, free)| free / 2);
    if local.comm.size() == 1 && spec.over != LuOver::Mumps {
        let mut why = None;
        let large = terms.rows() >= LEAST_ON_DEVICE;
        if spec.on == LuOn::Device || spec.on == LuOn::Auto && large && space.is_gpu() {
            match agree(space.comm(), space.direct_library()) {
                Ok(Some(library)) => return on_device(space, terms, local, spec, (free, start), a, library),
                Ok(None) if spec.on == LuOn::Device => {
                    return Err(Error::Unsupported("lu:on=device needs a GPU; use device=cuda".into()));
                }
                Ok(None) => {}
                // This error, unlike that of a missing library, leaves `auto` its later attempts.
                Err(e) if spec.on == LuOn::Device => {
                    return Err(Error::Unsupported(format!("lu:on=device: {e}")));
                }
                Err(e) => why = Some(e),
            }
        }
        let (p, mut info) = alone(space, terms, local, spec, free, start)?;
        info.details.extend(why.map(|e| format!("on the host, because there is no cuDSS: {e}")));
        return Ok((p, info));
    }
    let numbers = match local.numbers {
        Some(numbers) => numbers,
        None if local.comm.size() == 1 => RowNumbers::Run { first: 0, count: terms.block_rows() },
        None => {
            return Err(Error::Unsupported(
                "lu: direct factors of a part that every rank has as a whole are not supported; use jacobi"
                    .into(),
            ));
        }
    };
    let options = RanksLuOptions { over: spec.over, most: spec.most, free };
    let by_gpus = over_gpus(space, terms, spec)?;
    let make = by_gpus.as_ref().map(|(library, others)| {
        move |whole: &Terms<'static>, null: &[Vec<f64>], host| {
            on_first(space, whole, null, spec, host, (library, others))
        }
    });
    let make = make.as_ref().map(|make| make as MakeWhole);
    let p = RanksLu::with(space.comm(), terms, numbers, local.null, options, make);
    let p = p.map_err(|e| of_limit(e, spec.most))?;
    let (numbers, is_bound) = p.numbers();
    let mut info = info(&p.kind(), numbers, is_bound, &p.weak_rows(), start);
    info.details.insert(0, p.way());
    info.matrix = p.stored();
    Ok((Some(Box::new(p)), info))
}

/// Returns the library of rank 0's GPU and the other GPUs that may take part, if GPUs compute the factors of
/// a distributed matrix; the same on every rank. Collective.
fn over_gpus<S: SolverSpace>(space: &S, terms: &Terms, spec: LuSpec) -> Result<Option<(String, Vec<usize>)>> {
    let comm = space.comm();
    let wanted = spec.on == LuOn::Device || spec.over == LuOver::Gpus;
    if spec.over == LuOver::Mumps || spec.on == LuOn::Host {
        let refused =
            Error::invalid("lu:over=gpus contradicts on=host and deterministic results; leave it out");
        return if spec.over == LuOver::Gpus { Err(refused) } else { Ok(None) };
    }
    let mut unknowns = [terms.rows() as f64, f64::from(u8::from(!space.is_gpu()))];
    comm.sum(&mut unknowns)?;
    if !wanted && (unknowns[0] < LEAST_ON_DEVICE as f64 || unknowns[1] > 0.0) {
        return Ok(None);
    }
    let name = if spec.over == LuOver::Gpus { "over=gpus" } else { "on=device" };
    let needs = || Error::Unsupported(format!("lu:{name} needs GPUs; use device=cuda"));
    let own = space.direct_library().and_then(|library| library.ok_or_else(needs));
    // Processes of MPI do not lend each other their GPUs.
    let together = comm.mpi().is_none();
    if !together && spec.over == LuOver::Gpus {
        return Err(Error::Unsupported(
            "lu:over=gpus needs the GPUs of one process; start it without MPI, with --device cuda:0,1".into(),
        ));
    }
    match agree(comm, own) {
        Ok(library) => {
            let numbers = gather(comm, &(space.device_number() as u64).to_le_bytes())?;
            let number = |bytes: &Vec<u8>| bytes.as_slice().try_into().map_or(0, u64::from_le_bytes);
            let mut numbers: Vec<usize> = numbers.iter().map(|bytes| number(bytes) as usize).collect();
            let first = numbers.first().copied().unwrap_or(0);
            numbers.sort_unstable();
            numbers.dedup();
            numbers.retain(|&number| together && number != first);
            Ok(Some((library, numbers)))
        }
        Err(e) if wanted => Err(Error::Unsupported(format!("lu:{name}: {e}"))),
        Err(_) => Ok(None),
    }
}

/// Factorises a matrix that this rank has as a whole on its GPU.
fn on_first<S: SolverSpace>(
    space: &S,
    terms: &Terms<'static>,
    null: &[Vec<f64>],
    spec: LuSpec,
    host: Option<u64>,
    (library, others): (&str, &[usize]),
) -> Result<Box<dyn WholeFactors>> {
    let only_device = spec.on == LuOn::Device;
    let limits = DeviceLuLimits { most: spec.most, host, only_device, spread: spec.over == LuOver::Gpus };
    let made = space
        .for_whole(terms.rows(), others)
        .and_then(|alone| WholeOnDevice::new(alone, library.into(), terms, null, limits));
    match made {
        Err(Error::Memory { .. }) if !only_device && spec.most.is_none() => {
            Ok(Box::new(SparseLu::with_null_vectors(terms, null, host)?))
        }
        made => Ok(Box::new(made?)),
    }
}

/// Factorises all subdomains of this rank, which are the diagonal blocks of one matrix: on the GPU if it has
/// a library for that, else on the host, also if the result must be the same in every run.
pub(super) fn of_subdomains<S: SolverSpace>(
    space: &S,
    matrix: &Terms<'static>,
    deterministic: bool,
) -> Result<Box<dyn WholeFactors>> {
    let comm = space.comm();
    let sharing = comm.host().ranks_on_host.len().max(1) as u64;
    let host = host::memory().map(|(_, free)| free / 2 / sharing);
    let large = matrix.rows() >= LEAST_ON_DEVICE && space.is_gpu() && !deterministic;
    match space.direct_library() {
        Ok(Some(library)) if large => {
            let spec = LuSpec::default();
            on_first(space, matrix, &[], spec, host, (&library, &[]))
        }
        _ => Ok(Box::new(SparseLu::with_null_vectors(matrix, &[], host)?)),
    }
}

/// Factorises a system that is entirely on one rank, on its device.
fn on_device<S: SolverSpace>(
    space: &S,
    terms: &Terms,
    local: &LocalProblem,
    spec: LuSpec,
    (free, start): (Option<u64>, Instant),
    a: &SharedOperator<S>,
    library: String,
) -> Result<(Boxed<S>, PrecondInfo)> {
    let limits =
        DeviceLuLimits { most: spec.most, host: free, only_device: spec.on == LuOn::Device, spread: false };
    let made = pins(terms, local.null)
        .and_then(|pinned| Ok((DeviceLu::new(space, terms, pinned.clone(), a.clone(), limits)?, pinned)));
    let (factors, pinned) = agree(space.comm(), made)?;
    let mut info = info(factors.kind(), factors.numbers() as f64, false, &[], start);
    info.matrix = factors.stored() as f64;
    info.details.insert(0, library);
    info.details.extend(factors.remarks());
    let mut p: Box<dyn Preconditioner<S>> = Box::new(factors);
    if !pinned.is_empty() {
        let pinned: Vec<_> = pinned.into_iter().map(|u| u..u + 1).collect();
        p = Box::new(agree(space.comm(), Untouched::new(space, &pinned, Some(p)))?);
    }
    Ok((Some(p), info))
}

/// Factorises a system that is entirely on one rank, on the host.
fn alone<S: SolverSpace>(
    space: &S,
    terms: &Terms,
    local: &LocalProblem,
    spec: LuSpec,
    free: Option<u64>,
    start: Instant,
) -> Result<(Boxed<S>, PrecondInfo)> {
    let named = spec.most.map(SparseLu::bytes_of);
    let made = SparseLu::with_or_without(terms, local.null, named.into_iter().chain(free).min());
    let p = agree(space.comm(), made.map_err(|e| of_limit(e, spec.most)))?;
    let mut info = info(p.kind(), p.numbers() as f64, p.is_bound(), &p.weak_rows(), start);
    info.matrix = p.stored() as f64;
    let singular = p.singular_rows();
    info.details.extend((!singular.is_empty()).then(|| {
        format!(
            "the matrix is singular: x is 0 in {}, one for each null vector; to choose another solution, give the \
             null vectors",
            listed(singular)
        )
    }));
    Ok((Some(Box::new(p)), info))
}

/// Describes factors of a kind with so many numbers, or at most so many, and the rows without a pivot.
fn info(kind: &str, numbers: f64, is_bound: bool, weak_rows: &[usize], start: Instant) -> PrecondInfo {
    let most = if is_bound { "at most " } else { "" };
    let set_up = seconds(start.elapsed().as_secs_f64());
    let mut details =
        vec![format!("{most}{} numbers in the factors, set up in {set_up}", count(numbers as usize))];
    details.extend(weak(weak_rows));
    PrecondInfo {
        name: "lu".into(),
        numbers,
        text: format!("sparse direct factors ({kind})"),
        details,
        keeps_symmetry: true,
        ..PrecondInfo::default()
    }
}

/// If the user set the limit of a memory error, names that limit and not a lack of memory.
fn of_limit(e: Error, most: Option<usize>) -> Error {
    match (e, most) {
        (Error::Memory { what, needed, free, remedy, .. }, Some(most))
            if free == SparseLu::bytes_of(most) =>
        {
            let place = format!("the share of host memory that most={most} allows");
            Error::Memory { what, needed, free, place, remedy }
        }
        (e, _) => e,
    }
}

/// Lists rows without a pivot.
fn weak(rows: &[usize]) -> Option<String> {
    (!rows.is_empty()).then(|| format!("no pivot above rounding errors in {}", listed(rows)))
}

impl<S: SolverSpace> Preconditioner<S> for RanksLu {
    fn update_values(&mut self, space: &S, _: &Terms, values: TermValues) -> Result<()> {
        RanksLu::update_values(self, space.comm(), values)
    }
}

impl<S: SolverSpace> Preconditioner<S> for SparseLu {
    fn update_values(&mut self, _: &S, _: &Terms, values: TermValues) -> Result<()> {
        SparseLu::update_values(self, values)
    }
    fn left_null_vectors(&self, _: &S) -> Result<LeftNull> {
        Ok(self.shown().clone())
    }
}
