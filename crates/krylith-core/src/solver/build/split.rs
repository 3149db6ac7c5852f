//! Builds preconditioners for the fields of a coupled system: cuts the matrix into blocks, builds a
//! preconditioner for each field, and takes new values to all of them.

use super::given::Given;
use super::part::{Layout, OwnField, PartMatrix, SubMatrix, fields_of, in_stages, inverse_of, renew};
use super::schur::{Approximation, Saddle, Source, columns_of_s, needed, null_vectors};
use super::{Boxed, LocalProblem, PrecondInfo, Preconditioner, SharedOperator, Value};
use crate::comm::agree;
use crate::halo::Halo;
use crate::matrix::{Bsr, Csr, Dense};
use crate::operator::{Format, PointBlock, TermValues, Terms};
use crate::precond::assemble::{inverted, values_of};
use crate::precond::split::{Around, Part, Split};
use crate::precond::{PrecondSpec, SchurSpec, SplitForm, SplitSpec};
use crate::profile::{self, SetupPart};
use crate::solver::SolverSpace;
use crate::space::Precision;
use crate::text::{plural, seconds};
use crate::{Error, Result};
use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// The blocks A_fg of a matrix.
pub(super) type Blocks<S> = Vec<Vec<Option<SubMatrix<S>>>>;

/// A split with the blocks of the matrix that it was made from.
pub(super) struct Fielded<S: SolverSpace> {
    pub(super) split: Split<S>,
    /// The whole matrix of each term.
    a: Vec<Bsr>,
    /// A_fg of each term as scalar matrices, if they are used.
    blocks: Vec<Blocks<S>>,
    couplings: Vec<Vec<Option<SharedOperator<S>>>>,
    parts: Vec<(PartMatrix<S>, Source<S>)>,
    /// Halos of the fields in single unknowns, over ranks.
    halos: Vec<Option<Arc<Halo>>>,
    /// The last field, for an explicit Schur complement.
    own: Option<OwnField>,
    /// Matrices of the caller around the inverse of the last part.
    given: Vec<(Given, PartMatrix<S>)>,
    precision: Precision,
}

/// Builds a split.
pub(super) fn build<S: SolverSpace>(
    space: &S,
    terms: &Terms,
    local: &LocalProblem,
    spec: &SplitSpec,
    precision: Precision,
    notes: &mut Vec<String>,
) -> Result<(Boxed<S>, PrecondInfo)> {
    let start = Instant::now();
    let labels: Vec<&str> = spec.parts.iter().map(|(label, _)| &label[..]).collect();
    let mut fields = fields_of(local, &labels, "split")?;
    let (count, ranks, stages) = (fields.len(), local.terms.halo.is_some(), terms.stages());
    let analysis = profile::begin(SetupPart::Analysis);
    let layout = Layout::new(local, &fields)?;
    let last = count - 1;
    let cut = |a: &Bsr| -> Result<Blocks<S>> {
        let block = |f: usize, g: usize| {
            // A Schur complement needs both couplings, for its sign at least.
            let used = f == g || Split::<S>::uses(spec.form, f, g) || spec.schur.is_some();
            used.then(|| SubMatrix::new(space, a, &layout.sets[f], &layout.sets[g])).transpose()
        };
        (0..count).map(|f| (0..count).map(|g| block(f, g)).collect()).collect()
    };
    let a: Vec<Bsr> = terms.terms.iter().map(|(_, a)| (**a).clone()).collect();
    let coefficients: Vec<Dense> = terms.terms.iter().map(|(c, _)| c.clone()).collect();
    let blocks = agree(space.comm(), a.iter().map(cut).collect::<Result<Vec<_>>>())?;
    drop(analysis);
    let beside = |own: &OwnField| match ranks {
        true => space.among(own.unknowns.len() * stages),
        false => space.beside(own.unknowns.len() * stages),
    };
    let spaces = agree(space.comm(), fields.iter().map(beside).collect::<Result<Vec<_>>>())?;
    let halos: Vec<_> = (0..count).map(|f| layout.scalar_halo(f)).collect();
    let couplings = couplings(space, &spaces, &blocks, &coefficients, &halos, spec, precision)?;
    // A Schur complement is that of the last term, with its coefficient.
    let (matrix, of, all) = (&a[a.len() - 1], &blocks[a.len() - 1], &fields[..]);
    let saddle = Saddle { space, matrix, blocks: of, layout: &layout, fields: all, local, precision };
    let mut infos = Vec::new();
    let (mut parts, mut matrices) = (Vec::<Part<S>>::new(), Vec::<(PartMatrix<S>, Source<S>)>::new());
    let mut given = Vec::new();
    for (f, on) in spaces.into_iter().enumerate() {
        let (own, wanted, begun) = (&fields[f], &spec.parts[f].1, Instant::now());
        let schur = spec.schur.as_ref().filter(|_| f == last);
        let of = schur.map(|schur| saddle.approximate(schur, spec.form, &on, &parts[0], &couplings));
        let of = of.transpose()?;
        let halo = of.as_ref().and_then(|of| of.halo.clone()).or_else(|| layout.halo(f));
        let (block, approximate) = (own.field.block(), of.as_ref().and_then(Approximation::matrix));
        let sum = match approximate {
            Some(csr) => vec![(coefficients[a.len() - 1].clone(), csr)],
            None => own_terms(&blocks, &coefficients, f)?,
        };
        let matrix = PartMatrix::sum(&on, &sum, block, precision, halo)?;
        let unknowns = in_stages(&own.unknowns, stages);
        let inner = own.inner(local, labels[f])?;
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
            Some(_) => null_vectors(local.null, &unknowns, local.comm)?,
            None => Vec::new(),
        };
        let (inverse, info) = inverse_of(&on, &matrix, (described, &inner), &null, local, wanted, notes)?;
        let mut part = agree(space.comm(), Part::new(space, on, &unknowns, inverse))?;
        if let (Some(schur), Some(of)) = (schur, &of) {
            if let Some((around, of)) = saddle.around(&part, schur, &matrices[0].0, &couplings, notes)? {
                (part.around, given) = (Some(around), of);
            }
            part.negative = of.negative;
        }
        infos.push((info, own.total, begun.elapsed().as_secs_f64()));
        parts.push(part);
        matrices.push((matrix, of.map_or(Source::Own, |of| of.source)));
    }
    let split = Split::new(parts, couplings.clone(), spec.form);
    let split = match spec.form {
        SplitForm::Simple => split.with_diagonal(&diagonal_of(space, &blocks)?)?,
        _ => split,
    };
    let info = describe(spec, infos, &split.shares(), start);
    let own = fields.pop().filter(|_| spec.schur == Some(SchurSpec::Explicit));
    let parts = matrices;
    let made = Fielded { split, a, blocks, couplings, parts, halos, own, given, precision };
    Ok((Some(Box::new(made)), info))
}

/// Returns the inverse diagonal of the first block, for the form `simple`. Collective.
fn diagonal_of<S: SolverSpace>(space: &S, blocks: &[Blocks<S>]) -> Result<Vec<f64>> {
    if blocks.len() > 1 {
        return Err(Error::Unsupported(
            "schur=simple needs one matrix; this system is a Kronecker sum. Take schur=full".into(),
        ));
    }
    Ok(inverted(agree(space.comm(), space.diagonal(needed(&blocks[0], 0, 0)?, false))?))
}

/// Returns the terms of the block (f, f).
fn own_terms<'b, S: SolverSpace>(
    blocks: &'b [Blocks<S>],
    coefficients: &[Dense],
    f: usize,
) -> Result<Vec<(Dense, &'b Csr)>> {
    blocks.iter().zip(coefficients).map(|(of, c)| Ok((c.clone(), needed(of, f, f)?))).collect()
}

/// Uploads the couplings that the form or the Schur complement multiplies by. Collective.
fn couplings<S: SolverSpace>(
    space: &S,
    spaces: &[S],
    blocks: &[Blocks<S>],
    coefficients: &[Dense],
    halos: &[Option<Arc<Halo>>],
    spec: &SplitSpec,
    precision: Precision,
) -> Result<Vec<Vec<Option<SharedOperator<S>>>>> {
    let both = matches!(spec.schur, Some(SchurSpec::Lsc(_) | SchurSpec::Explicit));
    let count = spaces.len();
    // A coupling is present if any rank has entries of it.
    let sum = |f: usize, g: usize| {
        let entries = |of: &Blocks<S>| of[f][g].as_ref().map_or(0, |block| block.csr.nonzeros());
        blocks.iter().map(entries).sum::<usize>() as f64
    };
    let mut entries: Vec<f64> = (0..count * count).map(|k| sum(k / count, k % count)).collect();
    space.comm().sum(&mut entries)?;
    let operator = |f: usize, g: usize| -> Result<Option<SharedOperator<S>>> {
        let used = f != g && entries[f * count + g] > 0.0 && (both || Split::<S>::uses(spec.form, f, g));
        let format = if halos[g].is_some() { Format::Csr } else { Format::Auto };
        let Some(terms) = coupling(blocks, coefficients, (f, g), &halos[g])?.filter(|_| used) else {
            return Ok(None);
        };
        let operator = match terms.terms.len() * terms.stages() {
            1 => PointBlock::with_format(&spaces[f], &terms, precision, format),
            _ => PointBlock::new(&spaces[f], &terms, precision, false),
        };
        Ok(Some(Rc::new(RefCell::new(operator?))))
    };
    let all: Result<Vec<Vec<_>>> = (0..count).map(|f| (0..count).map(|g| operator(f, g)).collect()).collect();
    agree(space.comm(), all)
}

/// Returns the terms of block (f, g), if it was cut.
fn coupling<S: SolverSpace>(
    blocks: &[Blocks<S>],
    coefficients: &[Dense],
    (f, g): (usize, usize),
    halo: &Option<Arc<Halo>>,
) -> Result<Option<Terms<'static>>> {
    let mut terms = Vec::new();
    for (of, c) in blocks.iter().zip(coefficients) {
        let Some(block) = &of[f][g] else { return Ok(None) };
        terms.push((c.clone(), Cow::Owned(Bsr::from_csr(&block.csr, 1)?)));
    }
    Ok(Some(Terms { terms, halo: halo.clone() }))
}

/// Describes a split for reports.
fn describe(
    spec: &SplitSpec,
    infos: Vec<(PrecondInfo, usize, f64)>,
    shares: &[f64],
    start: Instant,
) -> PrecondInfo {
    let text = |text: &str| Value::Text(text.into());
    let mut all = PrecondInfo { name: "split".into(), ..PrecondInfo::default() };
    all.parameters.push(("form".into(), text(&spec.form.to_string())));
    all.parameters.extend(spec.schur.as_ref().map(|schur| ("schur".to_string(), text(&schur.to_string()))));
    let whole = start.elapsed().as_secs_f64();
    let mut words = Vec::new();
    for (((label, _), (info, unknowns, time)), share) in spec.parts.iter().zip(infos).zip(shares) {
        all.numbers += info.numbers;
        all.matrix += info.matrix;
        words.push(format!("{label} by {}", info.text));
        let own = [
            ("name".to_string(), text(&info.name)),
            ("unknowns".into(), Value::Count(unknowns as u64)),
            ("setup_seconds".into(), Value::Number(time)),
            ("share_of_traffic".into(), Value::Number(*share)),
        ];
        all.parameters
            .push((label.clone(), Value::Parameters(own.into_iter().chain(info.parameters).collect())));
        all.details.push(format!(
            "{label}: {}, {}; {:.0} % of the memory traffic of an application, set up in {} ({:.0} % of the split)",
            plural(unknowns, "unknown"),
            info.text,
            100.0 * share,
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
        let mut coefficients = Vec::new();
        for (t, (a, blocks)) in self.a.iter_mut().zip(&mut self.blocks).enumerate() {
            let (c, _) = values.term(t).ok_or_else(|| Error::Internal("a term without values".into()))?;
            coefficients.push(c.clone());
            *a = space.with_values(a, values_of(values.term(t))?)?;
            blocks.iter_mut().flatten().flatten().try_for_each(|block| block.update(space, a))?;
        }
        let (blocks, last) = (&self.blocks, self.a.len() - 1);
        for (f, row) in self.couplings.iter().enumerate() {
            for (g, operator) in row.iter().enumerate() {
                let Some(operator) = operator else { continue };
                if let Some(terms) = coupling(blocks, &coefficients, (f, g), &self.halos[g])? {
                    renew(&self.split.parts[f].space, &terms, operator, self.precision)?;
                }
            }
        }
        for (f, (matrix, source)) in self.parts.iter_mut().enumerate() {
            let (before, rest) = self.split.parts.split_at_mut(f);
            let part = &mut rest[0];
            let (on, one) = (&part.space, &coefficients[last..]);
            match source {
                Source::Given { given, boundary } => match given.renewed(space.comm())? {
                    Some(mut csr) => {
                        if let Some(boundary) = boundary {
                            boundary.apply(space, &mut csr, needed(&blocks[last], f, f)?)?;
                        }
                        matrix.update_terms(on, &[&csr], one)?;
                    }
                    None if last == 0 => continue,
                    None => matrix.update_terms(on, &[], one)?,
                },
                Source::Own => {
                    let own = own_terms(blocks, &coefficients, f)?;
                    let own: Vec<&Csr> = own.into_iter().map(|(_, csr)| csr).collect();
                    matrix.update_terms(on, &own, &coefficients)?;
                }
                Source::Explicit { product, columns } => {
                    let Some(own) = &self.own else { continue };
                    let d = needed(&blocks[last], f, f)?;
                    *product = columns_of_s(on, &before[0], &self.couplings, d, columns.as_ref(), own)?;
                    matrix.update_terms(on, &[product], one)?;
                }
                Source::Schur { .. } | Source::Commutator { .. } => {
                    let (csr, w) = source.renew(space, &self.a[last], &blocks[last], f)?;
                    if let (Some(Around::Lsc(lsc)), Some(w)) = (&mut part.around, w) {
                        lsc.space.write(&w[..lsc.space.len()], &mut lsc.w)?;
                    }
                    matrix.update_terms(on, &[csr], one)?;
                }
            }
            let terms = matrix.terms();
            part.inverse.update_values(on, &terms, TermValues::from(&terms))?;
        }
        if self.split.form() == SplitForm::Simple {
            let diagonal = diagonal_of(space, &self.blocks)?;
            self.split.set_diagonal(&diagonal)?;
        }
        let Some(Part { space: on, around: Some(Around::Pcd(pcd)), .. }) = self.split.parts.last_mut() else {
            return Ok(());
        };
        for (k, (given, matrix)) in self.given.iter_mut().enumerate() {
            if let Some(csr) = given.renewed(on.comm())? {
                matrix.update(on, &csr)?;
                let terms = matrix.terms();
                // The first is F, and the second the mass matrix, which has an inverse.
                if k == 1 {
                    pcd.mass.update_values(on, &terms, TermValues::from(&terms))?;
                }
            }
        }
        Ok(())
    }
    fn prepare_transpose(&mut self, _: &S, terms: &Terms) -> Result<()> {
        let coefficients: Vec<Dense> = terms.terms.iter().map(|(c, _)| c.clone()).collect();
        for (f, row) in self.couplings.iter().enumerate() {
            for (g, operator) in row.iter().enumerate() {
                let Some(operator) = operator else { continue };
                if let Some(terms) = coupling(&self.blocks, &coefficients, (f, g), &self.halos[g])? {
                    operator.borrow_mut().prepare_transpose(&self.split.parts[g].space, &terms)?;
                }
            }
        }
        for (part, (matrix, _)) in self.split.parts.iter_mut().zip(&self.parts) {
            part.inverse.prepare_transpose(&part.space, &matrix.terms())?;
        }
        let Some(last) = self.split.parts.last_mut() else { return Ok(()) };
        match &mut last.around {
            None => Ok(()),
            Some(Around::Lsc(lsc)) => {
                let (matrix, _) = &self.parts[0];
                lsc.a.borrow_mut().prepare_transpose(&lsc.space, &matrix.terms())
            }
            Some(Around::Pcd(pcd)) => {
                let [(_, f), (_, mass)] = &self.given[..] else {
                    return Err(Error::Internal("pcd without its matrices".into()));
                };
                pcd.f.borrow_mut().prepare_transpose(&last.space, &f.terms())?;
                pcd.mass.prepare_transpose(&last.space, &mass.terms())
            }
        }
    }
    fn take_events(&mut self) -> Vec<String> {
        self.split.parts.iter_mut().flat_map(|part| part.inverse.take_events()).collect()
    }
}
