//! Builds patches around constraints: which rows are constraints, and the limit of their memory.

use super::fieldwise::{self, LevelField};
use super::part::OwnField;
use super::{Boxed, PrecondInfo, SharedOperator, Value};
use crate::comm::agree;
use crate::fields::Field;
use crate::operator::{TermValues, Terms};
use crate::precond::{Patches, Rows, Vanka, VankaKind, VankaOptions, VankaSpec};
use crate::problem::LocalProblem;
use crate::profile::{self, SetupPart};
use crate::solver::{SolverSpace, host};
use crate::space::Precision;
use crate::text::{bytes, count, plural, seconds};
use crate::{Error, Result};
use std::sync::Arc;
use std::time::Instant;

/// Finds the patches and inverts their local systems. Collective.
pub(super) fn build<S: SolverSpace>(
    space: &S,
    terms: &Terms,
    local: &LocalProblem,
    spec: &VankaSpec,
    precision: Precision,
    a: &SharedOperator<S>,
) -> Result<(Boxed<S>, PrecondInfo)> {
    let (comm, start) = (space.comm(), Instant::now());
    if terms.terms.len() * terms.stages() != 1 {
        return Err(Error::Unsupported(
            "vanka needs one matrix; this system is a Kronecker sum. Write stage(vanka), which treats one stage after the other".into(),
        ));
    }
    let analysis = profile::begin(SetupPart::Analysis);
    let (values, mut scratch) = (TermValues::from(terms), Default::default());
    let host = agree(comm, values.on_host(&mut scratch))?;
    let values = host[0].map_or(&[][..], |(_, values)| values);
    let rows = Rows { a: &terms.terms[0].1, values };
    let (constraints, why) = constraints(local, spec, rows)?;
    let fields =
        if spec.has_levels() { level_fields(local, &constraints, rows.a.rows())? } else { Vec::new() };
    let patches = agree(comm, Patches::new(rows, constraints))?;
    drop(analysis);
    let _factors = profile::begin(SetupPart::Factors);
    let precision = spec.precision.unwrap_or(precision);
    let options = VankaOptions { kind: spec.kind, damping: spec.damping(), precision };
    agree(comm, fits(&patches, options))?;
    let (largest, alone) = (patches.largest(), patches.alone());
    let width = Vanka::<S>::width(&patches, spec.kind);
    let between =
        agree(comm, if local.terms.halo.is_some() { space.among(width) } else { space.beside(width) })?;
    let made = Vanka::new(space, between, terms, Arc::new(patches), options);
    let p = agree(comm, super::numbered(local, made))?;
    let mut sums = [p.patches().count(), p.stored(), terms.terms[0].1.stored(), alone].map(|n| n as f64);
    comm.sum(&mut sums)?;
    let [patches, numbers, matrix, alone] = sums;
    let largest = crate::comm::largest(comm, largest as f64)? as usize;
    let mut info = PrecondInfo {
        name: "vanka".into(),
        parameters: vec![
            ("kind".to_string(), Value::Text(spec.kind.name().into())),
            ("patches".into(), Value::Count(patches as u64)),
            ("largest".into(), Value::Count(largest as u64)),
            ("damping".into(), Value::Number(spec.damping())),
        ],
        numbers,
        matrix,
        text: format!("{} local systems around constraints", spec.kind.name()),
        details: vec![format!(
            "{} of at most {} around {why}, {} in none, {} of {precision}, set up in {}",
            plural(patches as usize, "local system"),
            plural(largest, "unknown"),
            plural(alone as usize, "unknown"),
            bytes(numbers as u64 * precision.bytes() as u64),
            seconds(start.elapsed().as_secs_f64()),
        )],
        ..PrecondInfo::default()
    };
    if let Some(most) = spec.levels.filter(|_| spec.has_levels()) {
        let sweeps = spec.sweeps.unwrap_or(SWEEPS);
        let (made, sizes) = fieldwise::build(space, terms, a, fields, (options, sweeps, most), p)?;
        info.parameters.extend([
            ("levels".to_string(), Value::Count(sizes.unknowns.len() as u64)),
            ("sweeps".into(), Value::Count(sweeps as u64)),
        ]);
        info.numbers = sizes.numbers as f64;
        info.text = format!("V-cycle of all fields, smoothed by {}", info.text);
        let unknowns: Vec<String> = sizes.unknowns.into_iter().map(count).collect();
        info.details.push(format!("levels of {} unknowns", unknowns.join(", ")));
        return Ok((Some(Box::new(made)), info));
    }
    Ok((Some(Box::new(p)), info))
}

/// Default number of smoothing steps before and after a coarse correction. One step needs 1.6 to 3 times the
/// iterations of two.
const SWEEPS: usize = 2;

/// Returns the fields of the finest level: those of the system, or the constraints and the others.
fn level_fields(local: &LocalProblem, constraints: &[u32], n: usize) -> Result<Vec<LevelField>> {
    if local.terms.halo.is_some() {
        return Err(Error::Unsupported(
            "vanka:levels=N needs the whole system on one rank or GPU; leave levels out, or use split".into(),
        ));
    }
    let is_constraint = |i: u32| constraints.binary_search(&i).is_ok();
    let fields = local.fields.all();
    if fields.is_empty() {
        let others = (0..n as u32).filter(|i| !is_constraint(*i)).collect();
        let field = |unknowns, is_constraint| LevelField { unknowns, block: 1, is_constraint };
        return Ok(vec![field(others, false), field(constraints.to_vec(), true)]);
    }
    let of = |field: &Field| {
        let unknowns = field.unknowns().to_vec();
        let is_constraint = unknowns.first().is_some_and(|&i| is_constraint(i));
        LevelField { unknowns, block: field.block(), is_constraint }
    };
    Ok(fields.iter().map(of).collect())
}

/// Returns the constraints among own rows, in ascending order, and their description. Collective.
fn constraints(local: &LocalProblem, spec: &VankaSpec, rows: Rows) -> Result<(Vec<u32>, String)> {
    let fields = local.fields.all();
    let (mut found, why) = if let Some(label) = &spec.field {
        (
            agree(local.comm, local.fields.field(label)).and_then(|_| OwnField::find(local, label))?.unknowns,
            label.clone(),
        )
    } else if fields.is_empty() {
        let all = 0..rows.a.rows();
        (
            all.filter(|&i| rows.diagonal(i) == 0.0).map(|i| i as u32).collect(),
            "rows with a zero diagonal".into(),
        )
    } else {
        // The numbers of positive and of negative diagonal entries of each field, on all ranks.
        let mut own = Vec::new();
        for field in fields {
            own.push(OwnField::find(local, field.name())?.unknowns);
        }
        let signs = |unknowns: &Vec<u32>| {
            let diagonals = || unknowns.iter().map(|&i| rows.diagonal(i as usize));
            [diagonals().filter(|d| *d > 0.0).count() as f64, diagonals().filter(|d| *d < 0.0).count() as f64]
        };
        let mut counts: Vec<f64> = own.iter().flat_map(signs).collect();
        local.comm.sum(&mut counts)?;
        let chosen = with_other_signs(&counts);
        let name = |k: &usize| fields[*k].name();
        let why = chosen.iter().map(name).collect::<Vec<_>>().join("+");
        (chosen.into_iter().flat_map(|k| std::mem::take(&mut own[k])).collect(), why)
    };
    found.sort_unstable();
    let mut total = [found.len() as f64];
    local.comm.sum(&mut total)?;
    match total[0] as usize {
        0 => Err(Error::invalid(
            "vanka: there are no constraints, because no diagonal entry or field's diagonal is zero; name the field of the constraints, \
             such as vanka:field=p, or use another preconditioner",
        )),
        _ => Ok((found, why)),
    }
}

/// Returns the fields that are constraints, by the numbers of positive and of negative diagonal entries of
/// each field: those with only zeros; if there are none, those whose entries have the sign that no entry of
/// the first field has.
fn with_other_signs(counts: &[f64]) -> Vec<usize> {
    let counts: Vec<&[f64]> = counts.chunks_exact(2).collect();
    let all = |of: &dyn Fn(&[f64]) -> bool| (0..counts.len()).filter(|&k| of(counts[k])).collect::<Vec<_>>();
    let zero = all(&|c| c[0] + c[1] == 0.0);
    match counts[0] {
        _ if !zero.is_empty() => zero,
        [_, 0.0] => all(&|c| c[0] == 0.0),
        [0.0, _] => all(&|c| c[1] == 0.0),
        _ => Vec::new(),
    }
}

/// Refuses dense inverses that need more than half of the free memory of the host, which computes them.
pub(super) fn fits(patches: &Patches, options: VankaOptions) -> Result<()> {
    let needed = (patches.dense_numbers() * options.precision.bytes()) as u64;
    let free = host::memory().map(|(_, free)| free / 2);
    match free.filter(|free| options.kind == VankaKind::Full && needed > *free) {
        None => Ok(()),
        Some(free) => Err(Error::Memory {
            what: format!(
                "the inverses of {} of at most {} unknowns",
                plural(patches.count(), "local system"),
                patches.largest()
            ),
            needed,
            free,
            place: "half of the host's memory".into(),
            remedy: "use vanka:kind=diagonal, or precision=f32",
        }),
    }
}
