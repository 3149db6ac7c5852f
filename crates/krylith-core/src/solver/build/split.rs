//! Builds preconditioners for the fields of a coupled system: cuts the matrix into blocks, builds a
//! preconditioner for each field, and takes new values to all of them.

use super::part::{Layout, OwnField, PartMatrix, SubMatrix, fields_of, inverse_of, renew};
use super::schur::{Source, approximate, around, needed, null_vectors};
use super::{Boxed, LocalProblem, PrecondInfo, Preconditioner, SharedOperator, Value};
use crate::Result;
use crate::comm::agree;
use crate::matrix::Bsr;
use crate::operator::{PointBlock, TermValues, Terms};
use crate::precond::assemble::{Weight, inverted, values_of};
use crate::precond::split::{Around, Part, Split, Whole};
use crate::precond::{PrecondSpec, SchurSpec, SplitSpec};
use crate::profile::{self, SetupPart};
use crate::solver::SolverSpace;
use crate::space::Precision;
use crate::text::{plural, seconds};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

/// A split with the blocks of the matrix that it was made from.
pub(super) struct Fielded<S: SolverSpace> {
    pub(super) split: Split<S>,
    /// The whole matrix.
    a: Bsr,
    /// A_fg as scalar matrices, if they are used.
    blocks: Vec<Vec<Option<SubMatrix<S>>>>,
    couplings: Vec<Vec<Option<SharedOperator<S>>>>,
    parts: Vec<(PartMatrix<S>, Source)>,
    precision: Precision,
}

/// Builds a split.
pub(super) fn build<S: SolverSpace>(
    space: &S,
    terms: &Terms,
    local: &LocalProblem,
    spec: &SplitSpec,
    precision: Precision,
    a: &SharedOperator<S>,
    notes: &mut Vec<String>,
) -> Result<(Boxed<S>, PrecondInfo)> {
    let start = Instant::now();
    let labels: Vec<&str> = spec.parts.iter().map(|(label, _)| &label[..]).collect();
    let fields = fields_of(local, &labels, "split")?;
    let (rows, count, ranks) = (&*terms.terms[0].1, fields.len(), local.terms.halo.is_some());
    let analysis = profile::begin(SetupPart::Analysis);
    let layout = Layout::new(local, &fields)?;
    let last = count - 1;
    let blocks = (0..count).map(|f| {
        let block = |g: usize| {
            // A Schur complement needs both couplings, for its sign at least. Over ranks the operator of the
            // whole system multiplies by all couplings.
            let used = f == g || (!ranks && Split::<S>::uses(spec.form, f, g)) || spec.schur.is_some();
            used.then(|| SubMatrix::new(space, rows, &layout.sets[f], &layout.sets[g])).transpose()
        };
        (0..count).map(block).collect::<Result<Vec<_>>>()
    });
    let blocks = agree(space.comm(), blocks.collect::<Result<Vec<_>>>())?;
    drop(analysis);
    let beside = |own: &OwnField| match ranks {
        true => space.among(own.unknowns.len()),
        false => space.beside(own.unknowns.len()),
    };
    let spaces = agree(space.comm(), fields.iter().map(beside).collect::<Result<Vec<_>>>())?;
    let couplings =
        if ranks { vec![vec![None; count]; count] } else { couplings(&spaces, &blocks, spec, precision)? };
    let mut infos = Vec::new();
    let (mut parts, mut matrices) = (Vec::new(), Vec::new());
    for (f, on) in spaces.into_iter().enumerate() {
        let (own, wanted, begun) = (&fields[f], &spec.parts[f].1, Instant::now());
        let schur = spec.schur.as_ref().filter(|_| f == last);
        let of = schur.map(|schur| approximate(space, &blocks, schur, spec.form, own, local)).transpose()?;
        let csr = match of.as_ref().map(|of| (&of.csr, &of.source)) {
            Some((_, Source::Schur { product, .. } | Source::Commutator { product, .. })) => product,
            Some((Some(csr), _)) => csr,
            _ => needed(&blocks, f, f)?,
        };
        let halo = of.as_ref().and_then(|of| of.halo.clone()).or_else(|| layout.halos[f].clone());
        let matrix = PartMatrix::new(&on, csr, own.field.block(), precision, halo)?;
        let inner = local.fields.within(labels[f])?;
        // Near-null vectors belong to the field's own block of the matrix.
        let plain;
        let described = match schur {
            Some(_) => {
                let field = own.field.clone().with_near_null_vectors(Vec::new());
                plain = OwnField { field, ..own.clone() };
                &plain
            }
            None => own,
        };
        let null = match schur {
            Some(_) => null_vectors(local.null, own, local.comm)?,
            None => Vec::new(),
        };
        let (inverse, info) = inverse_of(&on, &matrix, (described, &inner), &null, local, wanted, notes)?;
        let mut part = agree(space.comm(), Part::new(space, on, &own.unknowns, inverse))?;
        if let (Some(schur), Some(of)) = (schur, &of) {
            part.around = around(&part, schur, &matrices, &couplings, &blocks, local, precision, notes)?;
            part.negative = of.negative;
        }
        infos.push((info, own.total, begun.elapsed().as_secs_f64()));
        parts.push(part);
        matrices.push((matrix, of.map_or(Source::Own, |of| of.source)));
    }
    let info = describe(spec, infos, start);
    let whole = if ranks { Some(agree(space.comm(), Whole::new(space, a.clone()))?) } else { None };
    let split = Split::new(parts, couplings.clone(), whole, spec.form);
    let made = Fielded { split, a: rows.clone(), blocks, couplings, parts: matrices, precision };
    Ok((Some(Box::new(made)), info))
}

/// Uploads the couplings that the form or the Schur complement multiplies by.
fn couplings<S: SolverSpace>(
    spaces: &[S],
    blocks: &[Vec<Option<SubMatrix<S>>>],
    spec: &SplitSpec,
    precision: Precision,
) -> Result<Vec<Vec<Option<SharedOperator<S>>>>> {
    let lsc = matches!(spec.schur, Some(SchurSpec::Lsc(_)));
    let operator = |f: usize, g: usize| -> Result<Option<SharedOperator<S>>> {
        let block = blocks[f][g].as_ref().filter(|block| f != g && block.csr.nonzeros() > 0);
        match block.filter(|_| lsc || Split::<S>::uses(spec.form, f, g)) {
            None => Ok(None),
            Some(block) => {
                let operator = PointBlock::csr(&spaces[f], &block.csr, precision)?;
                Ok(Some(Rc::new(RefCell::new(operator))))
            }
        }
    };
    (0..spaces.len()).map(|f| (0..spaces.len()).map(|g| operator(f, g)).collect()).collect()
}

/// Describes a split for reports.
fn describe(spec: &SplitSpec, infos: Vec<(PrecondInfo, usize, f64)>, start: Instant) -> PrecondInfo {
    let text = |text: &str| Value::Text(text.into());
    let mut all = PrecondInfo { name: "split".into(), ..PrecondInfo::default() };
    all.parameters.push(("form".into(), text(&spec.form.to_string())));
    all.parameters.extend(spec.schur.as_ref().map(|schur| ("schur".to_string(), text(&schur.to_string()))));
    let whole = start.elapsed().as_secs_f64();
    let mut words = Vec::new();
    for ((label, _), (info, unknowns, time)) in spec.parts.iter().zip(infos) {
        all.numbers += info.numbers;
        all.matrix += info.matrix;
        words.push(format!("{label} by {}", info.text));
        let own = [
            ("name".to_string(), text(&info.name)),
            ("unknowns".into(), Value::Count(unknowns as u64)),
            ("setup_seconds".into(), Value::Number(time)),
        ];
        all.parameters
            .push((label.clone(), Value::Parameters(own.into_iter().chain(info.parameters).collect())));
        all.details.push(format!(
            "{label}: {}, {}, set up in {}, {:.0} % of the split",
            plural(unknowns, "unknown"),
            info.text,
            seconds(time),
            100.0 * time / whole.max(f64::MIN_POSITIVE)
        ));
        all.details.extend(info.details.into_iter().map(|line| format!("{label}: {line}")));
    }
    let schur = spec.schur.as_ref().map_or(String::new(), |schur| format!(", Schur complement {schur}"));
    all.text = format!("{} split: {}{schur}", spec.form, words.join(", "));
    all.keeps_symmetry = PrecondSpec::Split(spec.clone()).keeps_symmetry();
    all
}

impl<S: SolverSpace> Preconditioner<S> for Fielded<S> {
    fn update_values(&mut self, space: &S, _: &Terms, values: TermValues) -> Result<()> {
        self.a = space.with_values(&self.a, values_of(values.term(0))?)?;
        let all = self.blocks.iter_mut().flatten().flatten();
        all.into_iter().try_for_each(|block| block.update(space, &self.a))?;
        let (blocks, last) = (&self.blocks, self.parts.len() - 1);
        for (f, row) in self.couplings.iter().enumerate() {
            for (g, coupling) in row.iter().enumerate() {
                if let (Some(coupling), Some(block)) = (coupling, &blocks[f][g]) {
                    let bsr = Bsr::from_csr(&block.csr, 1)?;
                    renew(&self.split.parts[f].space, &Terms::bsr(&bsr), coupling, self.precision)?;
                }
            }
        }
        for (f, ((matrix, source), part)) in self.parts.iter_mut().zip(&mut self.split.parts).enumerate() {
            let csr = match source {
                Source::Given => continue,
                Source::Own => needed(blocks, f, f)?,
                Source::Schur { rows, product } => {
                    let w = inverted(space.diagonal(needed(blocks, 0, 0)?, *rows)?);
                    let weight = Weight { diagonal: Some(&w), sign: -1.0 };
                    let (b, c) = (needed(blocks, 0, last)?, needed(blocks, last, 0)?);
                    space.product_again(Some(needed(blocks, last, last)?), c, weight, b, product)?;
                    &*product
                }
                Source::Commutator { weight, product } => {
                    let own = inverted(space.diagonal(needed(blocks, 0, 0)?, false)?);
                    let w = weight.as_deref().unwrap_or(&own);
                    let (b, c) = (needed(blocks, 0, last)?, needed(blocks, last, 0)?);
                    let weight = Weight { diagonal: Some(w), sign: 1.0 };
                    space.product_again(None, c, weight, b, product)?;
                    if let Some(Around::Lsc(lsc)) = &mut part.around {
                        lsc.space.write(w, &mut lsc.w)?;
                    }
                    &*product
                }
            };
            matrix.update(&part.space, csr)?;
            let terms = matrix.terms();
            part.inverse.update_values(&part.space, &terms, TermValues::from(&terms))?;
        }
        Ok(())
    }
    fn take_events(&mut self) -> Vec<String> {
        self.split.parts.iter_mut().flat_map(|part| part.inverse.take_events()).collect()
    }
}
