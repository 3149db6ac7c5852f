//! `krylith info`: the devices and libraries of the machine; the size, blocks and partitions of a system, and
//! its properties (`portrait`).

use crate::args::InfoArgs;
use crate::blocks::picture;
use crate::failure::{DONE, Result};
use crate::output;
use crate::system::{self, Operator, System};
use crate::{partitions, portrait, summary, term};
use krylith_core::comm::Mpi;
use krylith_core::device::cuda::specialisations::vector_kernels;
use krylith_core::device::cuda::{DeviceInfo, cache_state, compile_for, cudss_version, devices};
use krylith_core::matrix::Bsr;
use krylith_core::operator::{Structure, Terms};
use krylith_core::solver::host;
use krylith_core::text::{bytes, count, name, plural};

/// Runs the command.
///
/// # Errors
/// The system cannot be read, or has fewer block rows than ranks.
pub fn info(args: InfoArgs) -> Result<u8> {
    crate::interrupt::watch()?;
    let system = match &args.system {
        Some(text) => {
            let order = system::ordering(text, args.ordering)?.unwrap_or_default();
            let mut system = system::load(text, args.block, order)?;
            system.take_fields(args.fields.as_deref(), &[])?;
            Some(system)
        }
        None => None,
    };
    if let (Some(system), Some(ranks)) = (&system, args.ranks) {
        partitions::check(system, ranks)?;
    }
    let mut rows = vec![("krylith", vec![env!("CARGO_PKG_VERSION").to_string()])];
    rows.extend(found());
    if let Some(system) = &system {
        rows.extend(about(system)?);
        if let Some(ranks) = args.ranks {
            rows.push(("", vec![String::new()]));
            rows.push(("partition", partitions::table(system, ranks)?));
        }
    }
    output::print(&term::table(&rows, term::columns(), |_| term::PLAIN));
    Ok(DONE)
}

/// Returns the devices and libraries, or why they were not found. Support for a new device adds its lines
/// here.
fn found() -> Vec<(&'static str, Vec<String>)> {
    let mut cpu = vec![host::model(), format!("{}, {}", plural(host::cores(), "core"), host::simd())];
    if let Some(cache) = host::last_cache() {
        cpu.push(format!("last-level cache {}", bytes(cache)));
    }
    if let Some((total, free)) = host::memory() {
        cpu.push(format!("memory {}, {} free", bytes(total), bytes(free)));
    }
    let mpi = match Mpi::probe() {
        Ok(library) => format!("{library}: mpirun -n P krylith solve SYSTEM"),
        Err(e) => e.to_string(),
    };
    vec![("cpu", cpu), ("cuda", cuda()), ("mpi", vec![mpi])]
}

/// Returns the GPUs and the libraries that a solve on them needs, or why they were not found.
fn cuda() -> Vec<String> {
    let found = devices();
    let has_gpu = found.is_ok();
    let (mut lines, arch) = match found {
        Ok(gpus) => {
            let line = |g: &DeviceInfo| {
                format!("{}: {}, sm_{}{}, {}", g.ordinal, g.name, g.arch.0, g.arch.1, bytes(g.memory))
            };
            (gpus.iter().map(line).collect(), gpus.first().map_or((9, 0), |g| g.arch))
        }
        Err(e) => (vec![format!("no GPU: {e}")], (9, 0)),
    };
    // Compiling one small kernel shows that the compiler exists and works.
    let compiled = vector_kernels().first().map(|kernel| compile_for(kernel, arch));
    lines.push(match compiled {
        Some(Err(e)) => format!("no run-time compiler: {e}"),
        _ => "run-time compiler NVRTC works".into(),
    });
    if has_gpu {
        lines.push(match cudss_version() {
            Ok(library) => format!("direct factors by {library}"),
            Err(e) => format!("direct factors on the host: {e}"),
        });
    }
    let cache = cache_state();
    lines.push(match &cache.folder {
        Some(folder) => format!("{} cached in {}", plural(cache.files, "kernel"), name(folder)),
        None => "compiled kernels are not cached: no folder of the user is writable".into(),
    });
    lines
}

fn about(system: &System) -> Result<Vec<(&'static str, Vec<String>)>> {
    let terms = system.operator.terms();
    let mut rows = vec![("system", summary::describe(system))];
    let names: &[&str] = if system.is_kronecker() { &["M", "L"] } else { &["A"] };
    for (name, (_, a)) in names.iter().zip(terms.terms()) {
        rows.push(("", vec![String::new()]));
        rows.push((name, structure(a)));
    }
    if let Operator::Kronecker(k) = &system.operator {
        let same = if terms.shared_pattern() { "the same" } else { "different" };
        rows.push((
            "",
            vec![format!("M and L have {same} patterns; {} coefficients A, B", square(k.stages()))],
        ));
    }
    rows.push(("", vec![String::new()]));
    let (portrait, numbering) = portrait::rows(system)?;
    rows[0].1.extend(numbering);
    rows.extend(portrait);
    Ok(rows)
}

fn square(n: usize) -> String {
    format!("{n}×{n}")
}

/// Rows that are so many times as long as all others are named.
const LONG: usize = 10;
/// Largest number of such rows.
const FEW: usize = 5;

/// Returns the range of the lengths of block rows. A few rows that are much longer than the others stand
/// apart.
fn lengths(a: &Bsr) -> String {
    let mut all: Vec<usize> = a.row_ptr().windows(2).map(|w| w[1] - w[0]).collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    let (Some(&most), Some(&least)) = (all.first(), all.last()) else { return "none".into() };
    let is_long = |k: &usize| all.get(*k).is_some_and(|next| all[k - 1] >= LONG * (*next).max(1));
    let range = |from: usize, to: usize| {
        if from == to { count(from) } else { format!("{} to {}", count(from), count(to)) }
    };
    match (1..=FEW).find(is_long) {
        Some(1) => format!("one row has {}, the others {}", count(most), range(least, all[1])),
        Some(k) => format!("{k} rows have {}, the others {}", range(all[k - 1], most), range(least, all[k])),
        None => format!("{} to {} a row", count(least), count(most)),
    }
}

fn structure(a: &Bsr) -> Vec<String> {
    let (b, n) = (a.block(), a.block_rows());
    let mut lines = vec![format!(
        "{} of {} in {}: {}, {:.1} on average",
        plural(a.blocks(), "block"),
        square(b),
        plural(n, "block row"),
        lengths(a),
        a.blocks() as f64 / n as f64
    )];
    let missing = (0..n).filter(|&i| a.diagonal_block(i).is_none()).count();
    if missing > 0 && b > 1 {
        lines.push(format!("{} without a diagonal block", plural(missing, "block row")));
    }
    if b > 1 {
        let inside = Structure::find(&Terms::bsr(a));
        lines.push(format!(
            "inside the blocks: {} of {} positions hold different values, {} are always zero",
            count(inside.slots),
            b * b,
            inside.term(0).filter(Option::is_none).count()
        ));
        if !inside.is_dense() {
            lines.push(
                "(the same letter marks positions that are equal in every block; a dot marks zero)".into(),
            );
            lines.extend(picture(&inside).iter().map(|row| format!("  {row}")));
        }
    }
    lines
}
