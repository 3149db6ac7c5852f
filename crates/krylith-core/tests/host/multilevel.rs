//! Coarse levels on the CPU, alone and through a solver.

use crate::common::*;
use crate::conformance::multilevel::{self, diffusion};
use crate::conformance::{air, bf16, coarse, narrow, near_null, near_null_ranks, ranks_levels};
use krylith_core::device::cpu::Cpu;
use krylith_core::matrix::{Bsr, Csr};
use krylith_core::method::MethodName;
use krylith_core::precond::Value;
use krylith_core::{Options, Solver};

fn each(check: impl Fn(&dyn Fn(usize) -> Cpu)) {
    for threads in [1, 2] {
        check(&|n| eager(n, threads));
    }
}

#[test]
fn cycles_in_f32() {
    each(|space| narrow::cycles_in_f32(space));
}

#[test]
fn cycles_in_bf16() {
    each(|space| bf16::cycles_in_bf16(space));
}

#[test]
fn bf16_costs_few_iterations() {
    bf16::bf16_costs_few_iterations(&|n| Cpu::new(n, 2));
}

#[test]
fn solves_in_bf16() {
    bf16::solves_in_bf16("cpu");
}

#[test]
fn cycles_match_dense_algebra() {
    each(|space| multilevel::cycles_match_dense_algebra(space));
}

#[test]
fn hierarchies_are_refreshed() {
    each(|space| multilevel::hierarchies_are_refreshed(space));
}

#[test]
fn cycles_are_symmetric() {
    each(|space| multilevel::cycles_are_symmetric(space));
}

#[test]
fn iterations_do_not_grow() {
    multilevel::iterations_do_not_grow(&|n| Cpu::new(n, 2));
}

#[test]
fn smoothers_precondition() {
    multilevel::smoothers_precondition(&|n| Cpu::new(n, 2));
}

#[test]
fn systems_of_blocks() {
    multilevel::systems_of_blocks(&|n| Cpu::new(n, 2));
}

#[test]
fn small_and_odd_systems() {
    each(|space| multilevel::small_and_odd_systems(space));
}

#[test]
fn a_coarse_part_corrects_what_it_sees() {
    each(|space| coarse::a_coarse_part_corrects_what_it_sees(space));
}

#[test]
fn symmetric_compositions_are_symmetric() {
    each(|space| coarse::symmetric_compositions_are_symmetric(space));
}

#[test]
fn coarse_parts_precondition() {
    coarse::coarse_parts_precondition(&|n| Cpu::new(n, 2));
}

#[test]
fn near_null_vectors_make_blocks() {
    each(|space| near_null::near_null_vectors_make_blocks(space));
}

#[test]
fn near_null_levels_are_those_of_the_host() {
    each(|space| near_null::near_null_levels_are_those_of_the_host(space));
}

#[test]
fn rigid_modes_from_coordinates() {
    near_null::rigid_modes_from_coordinates("cpu");
}

#[test]
fn near_null_hierarchies_are_refreshed() {
    each(|space| near_null::near_null_hierarchies_are_refreshed(space));
}

#[test]
fn rigid_modes_keep_iterations() {
    near_null::rigid_modes_keep_iterations(&|n| Cpu::new(n, 2));
}

#[test]
fn one_vector_of_a_scalar_system() {
    near_null::one_vector_of_a_scalar_system(&|n| Cpu::new(n, 2));
}

#[test]
fn air_cycles_match_dense_algebra() {
    each(|space| air::air_cycles_match_dense_algebra(space));
}

#[test]
fn air_solves_upwinded_flow() {
    air::air_solves_upwinded_flow(&|n| Cpu::new(n, 2));
}

#[test]
fn ranks_share_air() {
    air::ranks_share_air(&[2, 3, 4], &|n| eager(n, 1), &eager_share);
}

#[test]
fn ranks_share_levels() {
    ranks_levels::ranks_share_levels(&[2, 3], &|n| eager(n, 1), &eager_share);
}

#[test]
fn ranks_share_near_null_levels() {
    near_null_ranks::ranks_share_near_null_levels(&[2, 4], &|n| eager(n, 1), &eager_share);
}

#[test]
fn ranks_share_levels_of_blocks() {
    ranks_levels::ranks_share_levels_of_blocks(&[2, 3], &|n| eager(n, 1), &eager_share);
}

#[test]
fn a_rank_that_fails_ends_all() {
    ranks_levels::a_rank_that_fails_ends_all(&[2, 3], &eager_share);
}

#[test]
fn ranks_gather_vectors() {
    crate::conformance::gathered::ranks_gather_vectors(&[2, 3, 5], &eager_share);
}

#[test]
fn a_solver_takes_amg_by_name() {
    let a = diffusion(14, 1e4);
    let (b, mut x) = (vec![1.0; a.rows()], vec![0.0; a.rows()]);
    let mut solve = |text: &str| {
        let options: Options = format!("device=cpu rtol=1e-8 {text}").parse().unwrap();
        let mut solver = Solver::new(&a, &options).unwrap();
        x.fill(0.0);
        let solution = solver.solve(&b, &mut x).unwrap().clone();
        assert!(solution.converged(), "{text}: {:?}", solution.events);
        let d = distance(&times(&a, &x), &b);
        assert!(d <= 1.01e-8, "{text}: {d:e}");
        // New values of the same pattern: half the answer.
        let twice: Vec<f64> = a.values().iter().map(|v| 2.0 * v).collect();
        solver.update_values(&twice[..]).unwrap();
        let mut half = vec![0.0; b.len()];
        assert!(solver.solve(&b, &mut half).unwrap().converged(), "{text}");
        let doubled: Vec<f64> = half.iter().map(|v| 2.0 * v).collect();
        assert!(distance(&doubled, &x) <= 1e-5, "{text}");
        solution
    };
    let solution = solve("precond=amg");
    assert_eq!(solution.method.name(), MethodName::Cg);
    let (info, iterations) = (&solution.precond, solution.history.iterations);
    assert_eq!((&info.name[..], info.keeps_symmetry), ("amg", true));
    assert!(info.text.starts_with("algebraic multigrid: V-cycle, classical coarsening"), "{}", info.text);
    let complexity = info.parameters.iter().find(|(key, _)| key == "operator_complexity").unwrap();
    assert!(matches!(complexity.1, Value::Number(c) if c > 1.0 && c < 4.0), "{complexity:?}");
    assert!(info.details.iter().any(|line| line.starts_with("level 1: ")), "{:?}", info.details);
    assert!(iterations <= 25, "{iterations}");
    let k = solve("precond=amg:coarsen=aggregation");
    assert_eq!((k.method.name(), k.method.description()), (MethodName::Cg, "flexible form".into()));
    assert!(k.precond.details.iter().any(|line| line.contains("flexible CG")), "{:?}", k.precond.details);
    for text in [
        "precond=amg:coarsen=smoothed",
        "precond=amg:cycle=w,smoother=jacobi",
        "precond=amg:smoother=ildu",
        "precond=amg:precision=f32",
        "precond=amg precision=f32",
        "precond=amg equilibrate=true",
        "precond=ildu+amg",
        "precond=ildu then amg method=gmres",
        "precond=ildu+coarse method=cg",
        "precond=ildu then coarse method=bicgstab",
        "precond=symmetric(ildu then coarse:coarsen=smoothed) method=cg",
        "precond=symmetric(jacobi then ildu then coarse) equilibrate=true method=cg",
        "precond=ras:overlap=1 then coarse method=fgmres",
        "precond=amg method=bicgstab",
        "precond=amg:cycle=k method=fgmres",
    ] {
        let found = solve(text).history.iterations;
        assert!(found <= 60, "{text}: {found}");
    }
    // The symmetric form needs no method by name.
    let both = solve("precond=symmetric(ildu then coarse)");
    assert_eq!(both.method.name(), MethodName::Cg);
    assert_eq!((&both.precond.name[..], both.precond.keeps_symmetry), ("symmetric(ildu then coarse)", true));
    assert!(both.precond.text.contains("then coarse levels: V-cycle"), "{}", both.precond.text);
    let refused = |text: &str| {
        let options: Options = format!("device=cpu {text}").parse().unwrap();
        Solver::new(&a, &options).err().unwrap().to_string()
    };
    let said = refused("method=cg precond=jacobi + ildu then coarse");
    assert!(said.contains("use symmetric(P then Q)"), "{said}");
    // Ranks that are threads have a hierarchy each.
    let options: Options = "device=cpu threads=2 rtol=1e-8 precond=amg".parse().unwrap();
    assert!(Solver::new(&a, &options).unwrap().solve(&b, &mut x).unwrap().converged());
}

#[test]
fn a_solver_takes_air_by_name() {
    let a = air::upwind(14, 0.02);
    let (b, mut x) = (vec![1.0; a.rows()], vec![0.0; a.rows()]);
    // The same pattern with the wind in the other direction.
    let turned: Vec<f64> = (0..a.rows())
        .flat_map(|i| a.row(i).0.iter().map(move |&j| (i, j as usize)))
        .map(|(i, j)| a.row(j).1[a.row(j).0.iter().position(|&k| k as usize == i).unwrap()])
        .collect();
    let against = Csr::new(a.rows(), a.rows(), a.row_ptr().to_vec(), a.col().to_vec(), turned).unwrap();
    for text in
        ["", ",cycle=k", "1,smoother=ildu", ",precision=f32", " precision=f32", " threads=2", " method=gmres"]
    {
        let options = format!("device=cpu rtol=1e-8 precond=amg:coarsen=air{text}").parse().unwrap();
        let mut solver = Solver::new(&a, &options).unwrap();
        for a in [&a, &against, &a] {
            solver.update_values(a.values()).unwrap();
            x.fill(0.0);
            let solution = solver.solve(&b, &mut x).unwrap().clone();
            assert!(solution.converged(), "{text}: {:?}", solution.events);
            assert!(solution.history.iterations <= 15, "{text}: {}", solution.history.iterations);
            assert!(distance(&times(a, &x), &b) <= 1.01e-8, "{text}");
            assert!(!solution.precond.keeps_symmetry && solution.method.name() != MethodName::Cg, "{text}");
            let said = &solution.precond.text;
            assert!(said.contains("approximate ideal restriction"), "{said}");
        }
    }
    // CG needs a symmetric preconditioner, whatever the matrix is.
    let symmetric = diffusion(14, 1.0);
    let options: Options = "device=cpu precond=amg:coarsen=air".parse().unwrap();
    let mut solver = Solver::new(&symmetric, &options).unwrap();
    let solution = solver.solve(&b, &mut x).unwrap();
    assert!(
        solution.converged() && solution.method.name() == MethodName::Bicgstab,
        "{}",
        solution.method.name()
    );
    let blocks = Bsr::from_csr(&a, 2).unwrap();
    let said = Solver::new(&blocks, &options).err().unwrap().to_string();
    assert!(said.contains("coarsen=air needs nodes of one unknown"), "{said}");
    // A zero on the diagonal is named, and later values are good again.
    let mut solver = Solver::new(&a, &options).unwrap();
    let mut broken = a.values().to_vec();
    broken[a.row(0).0.iter().position(|&j| j == 0).unwrap()] = 0.0;
    let failed = solver.update_values(&broken[..]).and_then(|()| solver.solve(&b, &mut x).map(|_| ()));
    assert!(failed.is_err());
    solver.update_values(a.values()).unwrap();
    assert!(solver.solve(&b, &mut x).unwrap().converged());
}
