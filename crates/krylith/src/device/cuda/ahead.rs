//! The kernels that a solve will ask for, as far as its options and sizes tell: threads fetch them while the system is placed.
//!
//! What is missing here is fetched when it is asked for, and costs that moment; what is too much costs a thread's time.

use super::block_tiles;
use super::factors::IlduShape;
use super::modules::Wanted;
use super::schwarz;
use super::specialisations as special;
use crate::method::{KERNELS, MethodName};
use crate::operator::Terms;
use crate::options::Options;
use crate::precond::{
    COMPOSE_SWEEPS, CYCLE_STEPS, EQUILIBRATED_SWEEPS, MULTILEVEL_SWEEPS, PrecondSpec, SCHWARZ_SWEEPS,
    STAGE_SWEEPS, Smoothing, TileFactor,
};
use crate::problem::LocalProblem;
use crate::space::{Store, SweepSource};

/// What decides about [`kernels`].
pub(crate) fn key(local: &LocalProblem, options: &Options) -> String {
    let (terms, ranks) = (local.terms, local.comm.size());
    let (b, s, count) = (terms.block(), terms.stages(), terms.terms.len());
    let (method, precond, store) = (options.method, options.precond_or_auto(), options.store);
    let rows = terms.block_rows().max(1).ilog2(); // how large subdomains are
    let scaled = options.equilibrate.unwrap_or(false);
    let graph = by_graph(local);
    format!("{b} {s} {count} {method:?} {precond} {store:?} {rows} {scaled} {graph} {}", ranks > 1)
}

/// Those of the first attempt at a problem. Where kernels of several GPUs wait for each other they
/// are only compiled: to load one may wait for what runs.
pub(crate) fn kernels(local: &LocalProblem, options: &Options) -> Wanted {
    let (terms, ranks) = (local.terms, local.comm.size());
    let (b, s, store) = (terms.block(), terms.stages(), options.store.unwrap_or_default());
    let mut wanted = Wanted::default();
    let all = &mut wanted.shared;
    // One entry stands for all of its file.
    if (b, s, terms.terms.len()) == (1, 1, 1) {
        all.push(special::CsrShape::choose(store).kernel("csr_product"));
        if ranks > 1 {
            all.extend(super::csr_halo::kernels(store));
        }
        // By diagonals if there are as few as the mean row has entries; symmetric as a rule.
        let entries = terms.terms[0].1.blocks().div_ceil(terms.block_rows().max(1));
        all.extend(super::dia::likely(entries, store));
    } else {
        // The product itself depends on what is found inside the blocks.
        all.extend([special::structure(), special::tiling("tiling_cut")]);
    }
    all.extend([special::passes("entry_maxima", b, false), special::passes("survey", 1, false)]);
    let precond = options.precond_or_auto();
    let method = options.method.unwrap_or_default();
    let open = method == MethodName::Auto;
    // The test for symmetry, and GMRES.
    if open || method.is_gmres() {
        all.push(special::random());
        all.extend(special::bases(if open { Store::F64 } else { store }));
    }
    add_preconditioner(precond, terms, store, all);
    if by_graph(local)
        && !matches!(precond, PrecondSpec::None | PrecondSpec::Jacobi { .. } | PrecondSpec::BlockJacobi(_))
    {
        all.extend(super::cut::kernels());
    }
    if options.equilibrate.unwrap_or(false) {
        all.extend(sweeps(EQUILIBRATED_SWEEPS));
    }
    let [common, bicgstab, cbcg, cg, gmres] = KERNELS;
    let (steps, passes) = match method {
        MethodName::Gmres | MethodName::Fgmres => gmres,
        MethodName::Cg => cg,
        MethodName::Cbcg => cbcg,
        MethodName::Auto | MethodName::Bicgstab => bicgstab,
    };
    let first = open && precond.keeps_symmetry();
    let families = [Some(common), Some(cg).filter(|_| first), Some((steps, passes))];
    for (steps, passes) in families.into_iter().flatten() {
        all.extend(steps.iter().map(special::step));
        all.extend(sweeps(passes));
    }
    if ranks > 1 {
        wanted.private.append(&mut wanted.shared);
    }
    wanted
}

/// Subdomains of the whole are cut by its graph.
fn by_graph(local: &LocalProblem) -> bool {
    local.numbers.is_none() && local.grid.is_none() && local.coordinates.is_none()
}

fn sweeps(of: &[SweepSource]) -> impl Iterator<Item = super::Kernel> + '_ {
    of.iter().map(special::sweep)
}

fn add_preconditioner(precond: &PrecondSpec, terms: &Terms, store: Store, all: &mut Vec<super::Kernel>) {
    let (b, s) = (terms.block(), terms.stages());
    let factors = |all: &mut Vec<super::Kernel>, order: usize, rows: usize| {
        if !(1..=32).contains(&order) {
            return;
        }
        let shape = IlduShape::choose(order, 8 * rows.min(terms.block_rows()) * order);
        // Two terms have one pattern as a rule; to compare them takes longer than to load another kernel.
        all.extend([special::ildu_plan("ildu_count", 1), special::scan_columns(3)]);
        all.extend([false, true].map(|write| special::ildu_stream(order, store, &shape, write)));
        all.extend([special::ildu_form(order), special::ildu_factor(order)]);
        all.extend([
            special::ildu_pack(order, store, &shape),
            special::ildu_solve(order, store, &shape, true),
        ]);
    };
    match precond {
        // Those of ras are compiled when it is built.
        PrecondSpec::None | PrecondSpec::Lu(_) => {}
        PrecondSpec::Ras(_) if (1..=8).contains(&b) => {
            all.extend(schwarz::kernels([b], store));
            all.extend(sweeps(SCHWARZ_SWEEPS));
        }
        PrecondSpec::Ras(_) => {}
        PrecondSpec::Amg(amg) | PrecondSpec::Coarse(amg) if (1..=8).contains(&b) => {
            let (order, scalar) = (b * s, (b, s, terms.terms.len()) == (1, 1, 1));
            let options = amg.options(order, store);
            all.extend(super::multilevel::likely(b, scalar, options.coarsening.kind));
            if order == 1 {
                // Coarse levels are multiplied by rows, and the last by its inverse.
                let shape = special::CsrShape::choose(options.store);
                all.extend([shape.kernel("csr_product"), shape.kernel_that_smooths("csr_product")]);
                all.push(special::csr_lanes(options.store));
                let entries = terms.terms[0].1.blocks().div_ceil(terms.block_rows().max(1));
                all.extend(super::dia::likely_to_smooth(entries, store));
            }
            if order <= 32 {
                all.push(special::jacobi("jacobi_invert", order, options.store));
                all.push(special::block_diagonal(order, options.store));
            }
            if let Smoothing::Ildu { .. } = options.smoothing {
                factors(all, order, crate::precond::IlduSpec::default().most_rows(order));
            }
            all.extend(MULTILEVEL_SWEEPS.into_iter().chain([COMPOSE_SWEEPS]).flat_map(sweeps));
            all.extend(CYCLE_STEPS.iter().map(special::step).filter(|_| amg.varies()));
        }
        PrecondSpec::Amg(amg) | PrecondSpec::Coarse(amg) => {
            all.extend(MULTILEVEL_SWEEPS.into_iter().chain([COMPOSE_SWEEPS]).flat_map(sweeps));
            all.extend(CYCLE_STEPS.iter().map(special::step).filter(|_| amg.varies()));
        }
        PrecondSpec::Jacobi { block } => {
            let order = block.unwrap_or(b) * s;
            if order <= 32 {
                all.push(special::jacobi("jacobi_invert", order, store));
                all.push(special::block_diagonal(order, store));
            }
        }
        // The kind that most values take.
        PrecondSpec::BlockJacobi(tiles) => {
            let factor = tiles.factor.unwrap_or(TileFactor::Ic0);
            all.extend([
                block_tiles::tile_factor(factor, store),
                block_tiles::tile_solve([32, 8, 4], factor, store, 0),
            ]);
        }
        // The first rung of the ladder.
        PrecondSpec::Auto => {
            let ildu = crate::precond::IlduSpec::default();
            factors(all, b * s, ildu.most_rows(b * s));
        }
        PrecondSpec::Ildu(ildu) => factors(all, b * s, ildu.most_rows(b * s)),
        PrecondSpec::Stage(ildu) => {
            factors(all, b, ildu.most_rows(b));
            all.extend(sweeps(STAGE_SWEEPS));
        }
        PrecondSpec::Sum(parts) | PrecondSpec::Multiplicative(parts) | PrecondSpec::Symmetric(parts) => {
            for part in &**parts {
                add_preconditioner(part, terms, store, all);
            }
            all.extend(sweeps(COMPOSE_SWEEPS));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Problem;
    use crate::matrix::Bsr;

    /// Every kernel is one of those that CI compiles, so that nothing is fetched that cannot be.
    #[test]
    fn what_is_fetched_ahead_is_compiled_in_ci() {
        let known: std::collections::HashSet<_> =
            special::vector_kernels().into_iter().map(|kernel| (kernel.file, kernel.defines)).collect();
        for b in [1, 3, 4] {
            let n = 5;
            let (row_ptr, col) = ((0..=n).collect(), (0..n as u32).collect());
            let a = Bsr::new(b, n, n, row_ptr, col, vec![1.0; n * b * b]).unwrap();
            for text in [
                "",
                "method=gmres precond=jacobi store=f32",
                "method=cg precond=ildu:fill=1",
                "method=bicgstab precond=ildu+jacobi",
                "precond=none",
                "precond=block-jacobi",
                "precond=ras",
                "precond=amg",
                "precond=amg:coarsen=smoothed,smoother=ildu,store=f32",
            ] {
                let problem = Problem::bsr(&a).unwrap();
                let wanted = kernels(&problem.part_of_one(), &text.parse().unwrap());
                let all: Vec<_> = wanted.shared.iter().chain(&wanted.private).collect();
                assert!(all.len() >= 3, "{b} {text}");
                for kernel in all {
                    let source = (kernel.file, kernel.defines.clone());
                    assert!(known.contains(&source), "{b} {text}: {} {}", kernel.file, kernel.entry);
                }
            }
        }
    }
}
