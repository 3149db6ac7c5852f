//! The kernels that a solve will ask for, as far as its options and sizes tell: threads fetch them while the system is placed.
//!
//! What is missing here is fetched when it is asked for, and costs that moment; what is too much costs a thread's time.

use super::factors::IlduShape;
use super::modules::Wanted;
use super::specialisations::{self as special, Shape};
use crate::method::{KERNELS, MethodName};
use crate::operator::{Structure, Terms};
use crate::options::Options;
use crate::precond::{COMPOSE_SWEEPS, EQUILIBRATED_SWEEPS, PrecondSpec, STAGE_SWEEPS};
use crate::space::{Store, SweepSource};

/// Those of the first attempt at a problem of such terms on so many ranks. Where kernels of several GPUs wait for each other they
/// are only compiled: to load one may wait for what runs.
pub(crate) fn kernels(terms: &Terms, options: &Options, ranks: usize) -> Wanted {
    let (b, s, store) = (terms.block(), terms.stages(), options.store.unwrap_or_default());
    let mut wanted = Wanted::default();
    // Structure inside larger blocks is not known yet.
    if b == 1 && terms.terms.len() == 1 {
        let structure = Structure::dense(b, 1);
        let shape = Shape::choose(b, s, &structure, store);
        let halo = terms.halo.is_some();
        wanted.private.push(special::kron_product(&shape, b, s, &structure, store, false, halo));
    }
    let all = &mut wanted.shared;
    let precond = options.precond_or_auto();
    let method = options.method.unwrap_or_default();
    let open = method == MethodName::Auto;
    // The test for symmetry, and GMRES.
    if open || method == MethodName::Gmres {
        all.extend(special::bases(if open { Store::F64 } else { store }));
    }
    add_preconditioner(precond, terms, store, all);
    if options.equilibrate.unwrap_or(false) {
        all.extend(sweeps(EQUILIBRATED_SWEEPS));
    }
    let [common, bicgstab, cg, gmres] = KERNELS;
    let (steps, passes) = match method {
        MethodName::Gmres => gmres,
        MethodName::Cg => cg,
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

fn sweeps(of: &[SweepSource]) -> impl Iterator<Item = super::Kernel> + '_ {
    of.iter().map(special::sweep)
}

fn add_preconditioner(precond: &PrecondSpec, terms: &Terms, store: Store, all: &mut Vec<super::Kernel>) {
    let (b, s) = (terms.block(), terms.stages());
    let mut factors = |order: usize, rows: usize| {
        if !(1..=32).contains(&order) {
            return;
        }
        let shape = IlduShape::choose(order, 8 * rows.min(terms.block_rows()) * order);
        all.extend([special::ildu_form(order), special::ildu_factor(order)]);
        all.extend([
            special::ildu_pack(order, store, &shape),
            special::ildu_solve(order, store, &shape, true),
        ]);
    };
    match precond {
        PrecondSpec::None => {}
        PrecondSpec::Jacobi { block } => {
            let order = block.unwrap_or(b) * s;
            if order <= 32 {
                all.push(special::block_diagonal(order, store));
            }
        }
        // The first rung of the ladder.
        PrecondSpec::Auto => {
            let ildu = crate::precond::IlduSpec::default();
            factors(b * s, ildu.most_rows(b * s));
        }
        PrecondSpec::Ildu(ildu) => factors(b * s, ildu.most_rows(b * s)),
        PrecondSpec::Stage(ildu) => {
            factors(b, ildu.most_rows(b));
            all.extend(sweeps(STAGE_SWEEPS));
        }
        PrecondSpec::Sum(parts) | PrecondSpec::Multiplicative(parts) => {
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
    use crate::matrix::Bsr;

    /// Every kernel is one of those that CI compiles, so that nothing is fetched that cannot be.
    #[test]
    fn what_is_fetched_ahead_is_compiled_in_ci() {
        let known: std::collections::HashSet<_> =
            special::vector_kernels().into_iter().chain(special::products()).collect();
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
            ] {
                let wanted = kernels(&Terms::bsr(&a), &text.parse().unwrap(), 1);
                let all: Vec<_> = wanted.shared.iter().chain(&wanted.private).collect();
                assert!(all.len() >= 3, "{b} {text}");
                let of_two = kernels(&Terms::bsr(&a), &text.parse().unwrap(), 2);
                assert_eq!((of_two.shared.len(), of_two.private.len()), (0, all.len()), "{b} {text}");
                for kernel in all {
                    assert!(known.contains(kernel), "{b} {text}: {} {}", kernel.file, kernel.entry);
                }
            }
        }
    }
}
