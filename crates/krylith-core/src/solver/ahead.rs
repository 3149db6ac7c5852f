//! Predicts which kernels a solve needs from its options and sizes, so that threads load them while the
//! system is uploaded.
//!
//! A kernel that is not predicted is loaded on first use, which delays the solve. A superfluous kernel costs
//! a thread's time.

use crate::device::cuda::assemble;
use crate::device::cuda::block_tiles;
use crate::device::cuda::csr::{CsrShape, csr_lanes};
use crate::device::cuda::diagonal::{block_diagonal, jacobi, jacobi_invert};
use crate::device::cuda::factors::{
    IlduShape, ildu_count, ildu_factor, ildu_form, ildu_pack, ildu_plan, ildu_solve, ildu_stream,
};
use crate::device::cuda::launch::Entry;
use crate::device::cuda::modules::Wanted;
use crate::device::cuda::passes::{entry_maxima, passes, random_numbers};
use crate::device::cuda::scan::scan_columns;
use crate::device::cuda::schwarz;
use crate::device::cuda::structure::structure;
use crate::device::cuda::tiling::tiling_cut;
use crate::device::cuda::vanka::vanka_patches;
use crate::device::cuda::vectors::{bases, step, sweep};
use crate::method::{KERNELS, MethodName, MethodSpec};
use crate::operator::{Terms, mixing};
use crate::options::Options;
use crate::precond::{
    COMPOSE_SWEEPS, CYCLE_STEPS, EQUILIBRATED_SWEEPS, INNER_STEPS, INNER_SWEEPS, IlduOptions,
    MULTILEVEL_SWEEPS, NearNull, PrecondSpec, RasSub, SCHWARZ_SWEEPS, SPLIT_SWEEPS, STAGE_SWEEPS, Smoothing,
    TileFactor, VANKA_SWEEPS, VankaKind,
};
use crate::problem::LocalProblem;
use crate::solver::fallbacks::{Attempt, Costs, Seen, attempts};
use crate::space::{Precision, PrecondPrecision, StepSource, SweepSource};
use std::collections::HashSet;

/// Lists the possible first attempts of a solve by its options and sizes, on a GPU whose subdomains have at
/// most `most_rows` block rows. Only the device finds out later whether the matrix is symmetric and fits the
/// grid.
pub(crate) fn first_attempts(local: &LocalProblem, options: &Options, most_rows: usize) -> Vec<Attempt> {
    let seen = |symmetric, tiles| Seen {
        symmetric,
        tiles,
        costs: Costs { on_gpu: true, ..Costs::default() },
        ..Seen::default()
    };
    let mut all: Vec<Attempt> = Vec::new();
    for (symmetric, tiles) in [(true, local.grid.is_some()), (true, false), (false, false)] {
        let first = attempts(local, options, most_rows, seen(symmetric, tiles)).swap_remove(0);
        if !all.iter().any(|known| known.is_same(&first)) {
            all.push(first);
        }
    }
    all
}

/// Returns a key of all properties on which the result of [`kernels`] depends.
pub(crate) fn key(local: &LocalProblem, options: &Options, first: &[Attempt]) -> String {
    let (terms, ranks) = (local.terms, local.comm.size());
    let (b, s, count) = (terms.block(), terms.stages(), terms.terms.len());
    let precision = (options.precision, options.precond_precision);
    let first: Vec<String> = first.iter().map(|a| format!("{} {}", a.name(), a.equilibrate)).collect();
    let rows = terms.block_rows().max(1).ilog2(); // determines the size of subdomains
    let (graph, near) = (by_graph(local), local.near.map_or(0, NearNull::count));
    format!("{b} {s} {count} {precision:?} {rows} {graph} {near} {} {}", ranks > 1, first.join(" "))
}

/// Lists the kernels that the candidates in `first` need for a problem. On several GPUs kernels are only
/// compiled ahead. Loading a kernel may wait for running kernels, and these wait for each other.
pub(crate) fn kernels(local: &LocalProblem, options: &Options, first: &[Attempt]) -> Wanted {
    let (terms, ranks) = (local.terms, local.comm.size());
    let (b, s, precision) = (terms.block(), terms.stages(), options.precision.unwrap_or_default());
    let mut wanted = Wanted::default();
    let all = &mut wanted.shared;
    // One kernel of a file loads the whole file.
    if (b, s, terms.terms.len()) == (1, 1, 1) {
        all.extend(CsrShape::choose(precision).both());
        if ranks > 1 {
            all.extend(crate::device::cuda::csr_halo::kernels(precision));
        }
        // Guess the kernels of the format by diagonals: as many diagonals as the mean row has entries,
        // usually symmetric.
        let entries = terms.terms[0].1.blocks().div_ceil(terms.block_rows().max(1));
        all.extend(crate::device::cuda::dia::likely(entries, precision));
    } else {
        // The kernel of the product itself depends on the pattern that is found inside the blocks.
        all.extend([structure.plain().into(), tiling_cut.plain().into()]);
    }
    all.extend([b, 1].map(|block| passes(entry_maxima, block, false).into()));
    // The test for symmetry.
    if options.method.is_none_or(|method| method == MethodName::Auto) {
        all.push(random_numbers.plain().into());
    }
    if first.iter().any(|attempt| attempt.equilibrate) {
        all.extend(sweeps(EQUILIBRATED_SWEEPS));
    }
    let [common, bicgstab, cbcg, cg, gmres, minres, ..] = KERNELS; // complex ones run on the CPU
    add_family(common, all);
    for attempt in first {
        add_preconditioner(&attempt.precond, terms, Precisions::of(options), all);
        if let (Some(near), PrecondSpec::Amg(_) | PrecondSpec::Coarse(_)) = (local.near, &attempt.precond) {
            all.extend(crate::device::cuda::multilevel::likely_near_null(b, near.count()));
        }
        let cuts = !matches!(
            attempt.precond,
            PrecondSpec::None | PrecondSpec::Jacobi { .. } | PrecondSpec::BlockJacobi(_) | PrecondSpec::Lu(_)
        );
        if cuts && by_graph(local) {
            all.extend(crate::device::cuda::cut::kernels());
        }
        add_family(
            match attempt.method {
                MethodSpec::Gmres(_) => gmres,
                MethodSpec::Cg(_) => cg,
                MethodSpec::Cbcg(_) => cbcg,
                MethodSpec::Bicgstab(_) => bicgstab,
                MethodSpec::Minres => minres,
            },
            all,
        );
        if matches!(attempt.method, MethodSpec::Gmres(_)) {
            all.extend(bases(precision));
        }
    }
    let mut known = HashSet::new();
    all.retain(|kernel| known.insert(kernel.clone()));
    if ranks > 1 {
        wanted.private.append(&mut wanted.shared);
    }
    wanted
}

/// Adds the steps and passes of a method.
fn add_family((steps, passes): (&[StepSource], &[SweepSource]), all: &mut Vec<crate::device::cuda::Kernel>) {
    all.extend(steps.iter().map(|source| step::of(source).into()));
    all.extend(sweeps(passes));
}

/// Returns true if subdomains are cut by the graph of the whole system.
fn by_graph(local: &LocalProblem) -> bool {
    local.numbers.is_none() && local.grid.is_none() && local.coordinates.is_none()
}

fn sweeps(of: &[SweepSource]) -> impl Iterator<Item = crate::device::cuda::Kernel> + '_ {
    of.iter().map(|source| sweep::of(source).into())
}

/// Precisions of a preconditioner.
#[derive(Debug, Clone, Copy)]
struct Precisions {
    /// That of stored numbers.
    stored: Precision,
    /// That of cycles, and of solves with factors.
    compute: Precision,
    /// True if cycles store their matrices in bf16.
    short: bool,
}

impl Precisions {
    fn of(options: &Options) -> Self {
        let asked = options.precond_precision.map(PrecondPrecision::of_vectors);
        Self {
            stored: asked.or(options.precision).unwrap_or_default(),
            compute: asked.unwrap_or_default(),
            short: options.precond_precision == Some(PrecondPrecision::Bf16),
        }
    }
}

fn add_preconditioner(
    precond: &PrecondSpec,
    terms: &Terms,
    precisions: Precisions,
    all: &mut Vec<crate::device::cuda::Kernel>,
) {
    let (b, s) = (terms.block(), terms.stages());
    let Precisions { stored: precision, compute, short } = precisions;
    let factors = |all: &mut Vec<crate::device::cuda::Kernel>, order: usize, rows: usize, compute| {
        if !(1..=32).contains(&order) {
            return;
        }
        let options = IlduOptions { precision, compute, ..IlduOptions::default() };
        let (precision, number) = (options.stored(), compute.bytes());
        let shape = IlduShape::choose(order, number * rows.min(terms.block_rows()) * order);
        // Two terms usually share a pattern. Comparing the patterns would take longer than loading another
        // kernel.
        all.extend([ildu_plan(ildu_count, 1).into(), scan_columns::of(3).into()]);
        all.extend([false, true].map(|write| ildu_stream::of(order, precision, &shape, write).into()));
        all.extend([ildu_form::of(order).into(), ildu_factor::of(order).into()]);
        all.extend([
            ildu_pack::of(order, precision, &shape).into(),
            ildu_solve::of(order, &options, &shape, true).into(),
        ]);
    };
    match precond {
        // `auto` is resolved in an attempt, and direct factors are on the host.
        PrecondSpec::None | PrecondSpec::Lu(_) | PrecondSpec::Auto => {}
        PrecondSpec::Ras(ras) if ras.sub == RasSub::Ilu && (1..=8).contains(&b) => {
            all.extend(schwarz::kernels([b], [precision, compute]));
            all.extend(sweeps(SCHWARZ_SWEEPS));
        }
        PrecondSpec::Ras(_) => {}
        PrecondSpec::Amg(amg) | PrecondSpec::Coarse(amg) if (1..=8).contains(&b) => {
            let (order, scalar) = (b * s, (b, s, terms.terms.len()) == (1, 1, 1));
            // A cycle in f32 is rounded from levels in f64.
            let precision = if compute == Precision::F32 { Precision::F64 } else { precision };
            let options = amg.options(order, precision);
            all.extend(crate::device::cuda::multilevel::likely(b, scalar, options.coarsening.kind));
            if amg.coarsen.is_none() && mixing::single(terms).is_some() {
                // The set-up finds whether neighbours couple different components.
                all.extend(crate::device::cuda::multilevel::classical());
            }
            if order == 1 {
                // Coarse levels use CSR products, and the last level is solved by a dense inverse.
                all.extend(CsrShape::choose(options.precision).both());
                all.push(csr_lanes::of(options.precision, Precision::F64).into());
                let entries = terms.terms[0].1.blocks().div_ceil(terms.block_rows().max(1));
                all.extend(crate::device::cuda::dia::likely_to_smooth(entries, precision));
            }
            if s == 1 && terms.terms.len() == 1 {
                let entries = terms.terms[0].1.blocks().div_ceil(terms.block_rows().max(1));
                all.extend(crate::device::cuda::multilevel::likely_in_f32(b, entries));
                if short && b == 1 {
                    all.extend(crate::device::cuda::multilevel::likely_in_bf16(entries));
                }
            }
            if order <= 32 {
                all.push(jacobi(jacobi_invert, order, options.precision).into());
                all.push(block_diagonal::of(order, options.precision).into());
            }
            if let Smoothing::Ildu { .. } = options.smoothing {
                factors(all, order, crate::precond::IlduSpec::default().most_rows(order), Precision::F64);
            }
            all.extend(MULTILEVEL_SWEEPS.into_iter().chain([COMPOSE_SWEEPS]).flat_map(sweeps));
            all.extend(CYCLE_STEPS.iter().map(|source| step::of(source).into()).filter(|_| amg.varies()));
        }
        PrecondSpec::Amg(amg) | PrecondSpec::Coarse(amg) => {
            all.extend(MULTILEVEL_SWEEPS.into_iter().chain([COMPOSE_SWEEPS]).flat_map(sweeps));
            all.extend(CYCLE_STEPS.iter().map(|source| step::of(source).into()).filter(|_| amg.varies()));
        }
        PrecondSpec::Jacobi { block } => {
            let order = block.unwrap_or(b) * s;
            if order <= 32 {
                all.push(jacobi(jacobi_invert, order, precision).into());
                all.push(block_diagonal::of(order, precision).into());
            }
        }
        // Predict the kind of factors that most matrices need.
        PrecondSpec::BlockJacobi(tiles) => {
            let factor = tiles.factor.unwrap_or(TileFactor::Ic0);
            all.extend([
                block_tiles::tile_factor::of(factor, precision).into(),
                block_tiles::tile_solve::of([32, 8, 4], factor, precision, 0, false).into(),
            ]);
        }
        PrecondSpec::Ildu(ildu) => factors(all, b * s, ildu.most_rows(b * s), compute),
        PrecondSpec::Stage(ildu) => {
            factors(all, b, ildu.most_rows(b), Precision::F64);
            all.extend(sweeps(STAGE_SWEEPS));
        }
        PrecondSpec::Sum(parts) | PrecondSpec::Multiplicative(parts) | PrecondSpec::Symmetric(parts) => {
            for part in &**parts {
                add_preconditioner(part, terms, precisions, all);
            }
            all.extend(sweeps(COMPOSE_SWEEPS));
        }
        PrecondSpec::Split(split) => {
            split.parts.iter().for_each(|(_, part)| add_preconditioner(part, terms, precisions, all));
            all.extend(sweeps(SPLIT_SWEEPS));
            all.extend(assemble::likely());
        }
        PrecondSpec::Cpr(cpr) => {
            add_preconditioner(&cpr.precond, terms, precisions, all);
            all.extend(sweeps(SPLIT_SWEEPS));
            all.extend(assemble::likely());
        }
        PrecondSpec::Stages(of) => {
            add_preconditioner(of, terms, precisions, all);
            all.extend(sweeps(STAGE_SWEEPS).chain(sweeps(SPLIT_SWEEPS)));
            all.extend(assemble::likely());
        }
        PrecondSpec::Aux(aux) => {
            add_preconditioner(&aux.precond, terms, precisions, all);
            all.extend(assemble::likely());
        }
        PrecondSpec::Vanka(vanka) => {
            let precision = vanka.precision.unwrap_or(precision);
            all.extend(sweeps(VANKA_SWEEPS));
            all.extend(CsrShape::choose(precision).both());
            if vanka.kind == VankaKind::Full {
                all.push(vanka_patches::of(precision).into());
            }
        }
        PrecondSpec::Inner(inner) => {
            add_preconditioner(&inner.precond, terms, precisions, all);
            all.extend(sweeps(INNER_SWEEPS));
            all.extend(INNER_STEPS.iter().map(|source| step::of(source).into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Problem;
    use crate::device::cuda::Kernel;
    use crate::matrix::Bsr;

    fn diagonal(b: usize, n: usize) -> Problem<'static> {
        let (row_ptr, col) = ((0..=n).collect(), (0..n as u32).collect());
        let a = Bsr::new(b, n, n, row_ptr, col, vec![1.0; n * b * b]).unwrap();
        Problem::bsr(&a).unwrap().into_owned()
    }

    fn wanted(problem: &Problem, text: &str) -> (Vec<Attempt>, HashSet<Kernel>) {
        let (local, options) = (problem.part_of_one(), text.parse().unwrap());
        let first = first_attempts(&local, &options, 10_000);
        let Wanted { shared, private } = kernels(&local, &options, &first);
        (first, shared.into_iter().chain(private).collect())
    }

    /// CI compiles every kernel that is predicted, so that none is missing when it is loaded.
    #[test]
    fn what_is_fetched_ahead_is_compiled_in_ci() {
        let known: HashSet<_> = crate::device::cuda::specialisations::vector_kernels()
            .into_iter()
            .map(|kernel| (kernel.file, kernel.defines))
            .collect();
        for b in [1, 3, 4] {
            for text in [
                "",
                "method=gmres precond=jacobi precision=f32",
                "method=cg precond=ildu:fill=1",
                "method=bicgstab precond=ildu+jacobi",
                "precond=none",
                "precond=block-jacobi",
                "precond=ras",
                "precond=ras precond_precision=f32",
                "precond=ildu precond_precision=f32",
                "precond=jacobi precond_precision=f32",
                "precond=amg precond_precision=f32",
                "precond=amg precond_precision=bf16",
                "precond=amg",
                "precond=amg:coarsen=smoothed,smoother=ildu,precision=f32",
                "precond=split(u: amg, p: jacobi; S=selfp)",
                "precond=cpr(p: amg) then ildu",
                "precond=aux(P: amg)",
                "precond=vanka:kind=full,precision=f32",
            ] {
                for n in [5, 3000] {
                    let (_, all) = wanted(&diagonal(b, n), text);
                    assert!(all.len() >= 3, "{b} {n} {text}");
                    for kernel in all {
                        let source = (kernel.file, kernel.defines.clone());
                        assert!(known.contains(&source), "{b} {n} {text}: {} {}", kernel.file, kernel.entry);
                    }
                }
            }
        }
    }

    /// Factors that compute in f32 have kernels of their own, which are fetched in place of those in f64.
    #[test]
    fn what_computes_in_f32_is_fetched_in_f32() {
        for (name, file) in [("ildu", "ildu_solve.cu"), ("ras", "schwarz_solve.cu")] {
            for b in [1, 3, 5] {
                let computed = |text: &str| -> Vec<bool> {
                    let (_, all) = wanted(&diagonal(b, 3000), &format!("precond={name} {text}"));
                    let in_f32 = |kernel: &Kernel| kernel.defines.contains(&("REAL".into(), "float".into()));
                    all.iter().filter(|kernel| kernel.file == file).map(in_f32).collect()
                };
                assert_eq!(computed("precond_precision=f32"), [true], "{name} {b}");
                assert_eq!(computed("precond_precision=f64"), [false], "{name} {b}");
                assert_eq!(computed("precision=f32"), [false], "{name} {b}");
            }
        }
    }

    /// A solve with default options loads the kernels of its first attempt as if the options had named it. It
    /// loads kernels of incomplete factors only if it uses them.
    #[test]
    fn a_bare_solve_fetches_what_its_first_attempt_needs() {
        for (b, n) in [(1, 5), (1, 3000), (3, 3000), (1, 600_000), (1, 1 << 20), (3, 1 << 18)] {
            let problem = diagonal(b, n);
            let (first, all) = wanted(&problem, "");
            assert!((1..=2).contains(&first.len()), "{b} {n}");
            for attempt in &first {
                let named = format!("precond={} method={}", attempt.precond, attempt.method.name());
                let (one, needed) = wanted(&problem, &named);
                assert_eq!((&one[0].precond, one.len()), (&attempt.precond, 1), "{b} {n} {named}");
                let missing: Vec<_> = needed.difference(&all).map(|k| (k.file, k.entry)).collect();
                assert!(missing.is_empty(), "{b} {n} {named}: {missing:?}");
            }
            let factors = first.iter().any(|a| matches!(a.precond, PrecondSpec::Ildu(_)));
            assert_eq!(all.iter().any(|k| k.file == "ildu_factor.cu"), factors, "{b} {n}");
            // On a GPU, systems of medium size start with Jacobi, and larger ones with multigrid.
            assert_eq!(factors, n * b < 1000, "{b} {n}");
            let levels = first.iter().any(|a| matches!(a.precond, PrecondSpec::Amg(_)));
            assert_eq!(levels, n * b > 1 << 19, "{b} {n}");
        }
    }
}
