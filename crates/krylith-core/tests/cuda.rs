//! The conformance tests on a GPU; skipped, and said so, where there is none.

#![cfg(feature = "cuda")]
mod common;
mod conformance;
mod gpus;

use conformance::{BICGSTABS, bicgstab_with, solve_with};
use conformance::{
    bf16, boundary, cpr, csr, direct, fields, fields_ranks, minres, near_null, precond_precision, singular,
    solver, stages,
};
use conformance::{lender::Application, memory::Lender};
use conformance::{transposed, vanka};
use gpus::*;
use krylith_core::device::cpu::Cpu;
use krylith_core::device::cuda::{Cuda, Device, Transport, devices};
use krylith_core::method::{Bicgstab, BicgstabOptions, Gmres, GmresOptions, Orthogonalization};
use krylith_core::operator::{PointBlock, Terms};
use krylith_core::precond::{BlockJacobi, Ildu, IlduOptions};
use krylith_core::space::{Clock, Space};
use krylith_core::{Precision, Stop};
use libtest_mimic::{Arguments, Trial};
use std::sync::Arc;

/// The checks as tests; where there is no GPU each is reported as ignored, and never as passed.
///
/// `KRYLITH_REQUIRE_GPU` makes a missing GPU a failure.
fn main() {
    let device = Device::open(0);
    if let Err(e) = &device {
        assert!(std::env::var_os("KRYLITH_REQUIRE_GPU").is_none(), "a GPU is required: {e}");
        eprintln!("skipped: {e}");
    }
    let device = device.ok();
    let test = |name: &str, check: fn(&Arc<Device>), measures: bool| {
        let own = device.clone();
        let run = move || own.as_ref().map(check).ok_or_else(|| "skipped: there is no GPU".into());
        Trial::test(name, run).with_ignored_flag(measures || device.is_none())
    };
    /// A check of `conformance`, under its own name.
    macro_rules! each {
        ($($path:ident)::+) => {
            test(stringify!($($path)::+), |d| conformance::$($path)::+(&|n| Cuda::new(d, n).unwrap()), false)
        };
    }
    macro_rules! device {
        ($($path:ident)::+) => {
            test(stringify!($($path)::+), conformance::$($path)::+, false)
        };
    }
    macro_rules! several {
        ($check:path) => {
            test(stringify!($check), |_| on_gpus($check), false)
        };
    }

    macro_rules! first {
        ($module:ident::$name:ident) => {
            test(concat!(stringify!($module), "::", stringify!($name)), |_| $module::$name("cuda:0"), false)
        };
    }
    let mut all = vec![
        each!(products_match_the_dense_kronecker_sum),
        each!(products_of_awkward_patterns),
        each!(updates_equal_a_fresh_operator),
        each!(operators_keep_their_coefficients),
        each!(rounded_bases_reach_the_tolerance),
        each!(structure_changes_nothing),
        each!(csr::scalar_rows_of_every_length),
        each!(csr::residuals_of_scalar_rows),
        each!(csr::scalar_rows_are_updated),
        device!(csr::gpu::scalar_rows_are_updated_from_device_memory),
        test("csr::gpus_share_scalar_rows_by_peers", |_| gpus_share_scalar_rows(Transport::Peers), false),
        test("csr::gpus_share_scalar_rows_through_nccl", |_| gpus_share_scalar_rows(Transport::Nccl), false),
        each!(dia::products_by_diagonals),
        each!(dia::residuals_by_diagonals),
        each!(dia::diagonals_are_updated),
        each!(dia::products_by_diagonals_sum),
        device!(dia::gpu::diagonals_are_updated_from_device_memory),
        test("dia::gpus_share_diagonals_by_peer_stores", |_| gpus_share_diagonals(Transport::Peers), false),
        test("dia::gpus_share_diagonals_through_nccl", |_| gpus_share_diagonals(Transport::Nccl), false),
        each!(replicated::cuts_are_those_of_the_host),
        test("replicated::products_of_whole_vectors", |_| products_of_whole_vectors(), false),
        test("replicated::cg_of_whole_vectors", |_| cg_of_whole_vectors(), false),
        test("replicated::solves_with_whole_vectors", |_| solves_with_whole_vectors(), false),
        each!(passes::passes_find_what_the_host_finds),
        each!(passes::random_numbers_are_those_of_the_host),
        test("passes_of_ranks", |_| passes_of_ranks(), false),
        test("values_are_updated_from_device_memory", values_are_updated_from_device_memory, false),
        test("lent_memory_gives_what_slices_give", lent_memory_gives_what_slices_give, false),
        test("memory_of_another_gpu_gives_the_same", |_| memory_of_another_gpu_gives_the_same(), false),
        test("a_wait_for_a_gpu_ends", |_| a_wait_for_a_gpu_ends(), false),
        test("a_second_solve_allocates_nothing", a_second_solve_allocates_nothing, false),
        test("graphs_change_nothing", graphs_change_nothing, false),
        each!(gmres_matches_a_direct_solve),
        each!(bicgstab_matches_a_direct_solve),
        each!(bicgstab_restarts_itself),
        test("bicgstab_agrees_with_the_cpu", bicgstab_agrees_with_the_cpu, false),
        test("bicgstab_allocates_nothing_again", bicgstab_allocates_nothing_again, false),
        test("histories_agree_with_the_cpu", histories_agree_with_the_cpu, false),
        each!(method::every_method_reaches_every_outcome),
        each!(criterion::every_criterion_is_certified),
        each!(residual::residuals_are_rounded_once),
        each!(residual::numbers_far_from_one_are_solved),
        each!(residual::the_limit_of_double_precision_is_named),
        each!(residual::a_cycle_stops_when_it_is_done),
        each!(method::operators_write_to_columns),
        each!(method::cg_matches_a_direct_solve),
        each!(method::cg_follows_the_textbook),
        each!(method::cg_takes_the_sums_of_operators),
        each!(costly::methods_spare_costly_preconditioners),
        each!(method::flexible_cg_keeps_directions_conjugate),
        each!(method::fgmres_takes_preconditioners_that_vary),
        each!(method::fgmres_is_gmres_where_the_preconditioner_stays),
        each!(cbcg::blocks_match_plain_loops),
        each!(cbcg::cbcg_converges_as_cg),
        each!(cbcg::cbcg_copes_with_hard_cases),
        each!(minres::minres_minimises_over_the_krylov_space),
        each!(minres::minres_matches_a_direct_solve),
        each!(minres::minres_copes_with_singular_systems),
        first!(minres::minres_takes_diagonal_splits),
        first!(minres::minres_chooses_a_definite_preconditioner),
        device!(batch_gpu::batches_match_the_host),
        several!(direct::all),
        several!(boundary::rows_of_the_identity_do_not_stop_multigrid),
        device!(functions::functions_give_what_matrices_give),
        device!(functions::functions_replace_preconditioners),
        device!(functions::functions_that_fail_are_told),
        test("cbcg_of_ranks", |_| cbcg_of_ranks(), false),
        test("a_solver_gives_the_same_on_every_device", a_solver_gives_the_same_on_every_device, false),
        test("rows_are_matched_on_gpus", rows_are_matched_on_gpus, false),
        test("two_solvers_use_the_same_gpus_at_once", |_| two_solvers_use_the_same_gpus_at_once(), false),
        test("solvers_on_many_threads", |_| solvers_on_many_threads(), false),
        test("plans_are_those_of_the_host", plans_are_those_of_the_host, false),
        each!(arrangement::tiles_are_those_of_the_host),
        each!(arrangement::products_on_meshes),
        each!(arrangement::structure_is_that_of_the_host),
        each!(arrangement::diagonal_blocks_are_those_of_the_host),
        each!(arrangement::bad_diagonal_blocks_are_named),
        each!(ildu::factors_match_the_textbook),
        each!(ildu::factors_are_refreshed),
        each!(factors_f32::ildu_in_f32),
        each!(factors_f32::schwarz_in_f32),
        each!(factors_f32::schwarz_near_and_far),
        first!(precond_precision::solves_in_f32),
        first!(precond_precision::failures_are_repeated_in_f64),
        test("refreshed_factors_leave_memory_flat", refreshed_factors_leave_memory_flat, false),
        each!(ildu::bad_pivots_are_named),
        each!(block_tiles::tiles_match_the_textbook),
        each!(block_tiles::tiles_sum_what_they_pass),
        each!(block_tiles::tiles_are_refreshed),
        each!(block_tiles::pivots_of_tiles_are_mended),
        each!(block_tiles::other_matrices_are_refused_by_tiles),
        test("block_tiles::tiles_of_ranks", |_| tiles_of_ranks(), false),
        each!(schwarz::schwarz_is_the_sum_of_subdomain_solves),
        each!(schwarz::schwarz_factors_match_the_textbook),
        each!(schwarz::sweeps_of_solves_match_plain_loops),
        each!(schwarz::sweeps_of_factors_match_plain_loops),
        each!(schwarz::deterministic_sweeps_repeat_themselves),
        each!(schwarz::sweeps_on_trial_give_way),
        each!(schwarz::schwarz_checks_its_factors),
        test("schwarz::schwarz_of_ranks", |_| schwarz_of_ranks(), false),
        device!(schwarz_gpu::subdomains_match_plain_loops),
        device!(schwarz_gpu::bad_pivots_of_subdomains_are_named),
        each!(factors_transposed::ildu_is_transposed),
        each!(factors_transposed::transposed_ildu_is_refreshed),
        each!(factors_transposed::schwarz_is_transposed),
        each!(factors_transposed::tiles_are_transposed),
        each!(factors_transposed::stages_are_transposed),
        each!(factors_transposed::adjoints_are_solved),
        each!(multilevel::cycles_match_dense_algebra),
        each!(costly::cycles_on_large_planes),
        each!(multilevel::hierarchies_are_refreshed),
        each!(narrow::cycles_in_f32),
        each!(narrow_gpu::cycles_in_pairs_of_rows),
        each!(bf16::cycles_in_bf16),
        each!(bf16::bf16_costs_few_iterations),
        first!(bf16::solves_in_bf16),
        each!(multilevel::cycles_are_symmetric),
        each!(multilevel::iterations_do_not_grow),
        each!(multilevel::smoothers_precondition),
        each!(multilevel::systems_of_blocks),
        each!(multilevel::small_and_odd_systems),
        each!(air::air_cycles_match_dense_algebra),
        each!(air::air_solves_upwinded_flow),
        test("levels_of_ranks::ranks_share_air", |_| air_of_ranks(), false),
        test("levels_of_ranks::ranks_share_levels", |_| levels_of_ranks(), false),
        test("levels_of_ranks::ranks_share_levels_of_blocks", |_| levels_of_blocks_of_ranks(), false),
        test("levels_of_ranks::a_gpu_that_fails_ends_all", |_| a_gpu_that_fails_ends_all(), false),
        test("levels_of_ranks::gpus_gather_vectors", |_| gpus_gather_vectors(), false),
        each!(coarse::a_coarse_part_corrects_what_it_sees),
        each!(near_null::near_null_vectors_make_blocks),
        each!(near_null::near_null_levels_are_those_of_the_host),
        first!(near_null::rigid_modes_from_coordinates),
        each!(near_null::near_null_hierarchies_are_refreshed),
        each!(near_null::rigid_modes_keep_iterations),
        each!(near_null::one_vector_of_a_scalar_system),
        each!(coarse::symmetric_compositions_are_symmetric),
        each!(coarse::coarse_parts_precondition),
        each!(compose::compositions_match_dense_algebra),
        each!(compose::compositions_precondition),
        each!(compose::factors_work_on_one_stage),
        each!(compose::exact_stages_solve_with_p),
        each!(compose::stages_are_refreshed),
        each!(compose::stages_precondition),
        test("a_solve_is_bitwise_repeatable", a_solve_is_bitwise_repeatable, false),
        several!(solver::new_values_are_those_of_a_new_solver),
        several!(solver::new_values_of_a_sum_come_as_it_was_given),
        several!(solver::a_thousand_solves_of_two_solvers_at_once),
        several!(solver::systems_without_a_solution_are_named_first),
        first!(singular::a_part_that_nothing_holds_is_found_after_an_attempt),
        several!(singular::null_vectors_leave_the_least_squares_answer),
        several!(singular::unknowns_of_empty_columns_keep_their_value),
        several!(singular::converged_is_said_of_the_x_that_comes_back),
        several!(singular::any_first_guess_gives_a_finite_x),
        several!(singular::null_vectors_do_not_hide_the_limit_of_rounding),
        several!(solver::products_and_preconditioners_stand_by_themselves),
        first!(fields::splits_match_dense_algebra),
        first!(fields::schur_complements_match_dense_algebra),
        first!(fields::matrices_are_renewed),
        first!(cpr::cpr_matches_dense_algebra),
        first!(fields::aux_matches_dense_algebra),
        first!(fields::inner_solves_match_dense_algebra),
        first!(fields::saddle_points_are_solved),
        first!(vanka::local_systems_match_dense_algebra),
        test("transposed", |_| on_gpus(transposed::all), false),
        test("columns", |_| on_gpus(conformance::columns::all), false),
        first!(stages::stages_match_dense_algebra),
        first!(stages::stages_take_any_preconditioner),
        first!(stages::stages_of_stokes_are_solved),
        first!(stages::splits_of_stages_match_dense_algebra),
        test("fields_ranks::devices_split_as_one", |_| on_gpus(fields_ranks::devices_split_as_one), false),
        first!(cpr::wrong_names_are_told),
        test("no_attempt_makes_things_worse", |_| on_gpus(solver::no_attempt_makes_things_worse), false),
        several!(solver::the_limit_of_iterations_decides_nothing),
        test("values_may_break_a_structure", |_| on_gpus(solver::values_may_break_a_structure), false),
        several!(solver::auto_takes_cg_where_it_can_and_says_so),
        several!(solver::many_solves_repay_a_stronger_preconditioner),
        test("gpus_solve_as_one_by_peer_stores", |_| gpus_solve_as_one(Transport::Peers), false),
        test("gpus_solve_as_one_through_nccl", |_| gpus_solve_as_one(Transport::Nccl), false),
        test("updates_reach_all_gpus", |_| updates_reach_all_gpus(), false),
        test("runs_are_cut_on_the_gpus", |_| runs_are_cut_on_the_gpus(), false),
        test("solves_on_many_gpus_leave_memory_flat", |_| solves_on_many_gpus_leave_memory_flat(), false),
        test("a_gpu_that_fails_ends_the_others", |_| a_gpu_that_fails_ends_the_others(), false),
        // Measures; run by `cargo xtask bench` and gpu-out/run.sh.
        test(
            "cbcg_block_speed",
            |d| {
                let bandwidth = d.read_bandwidth().unwrap();
                let make = |n| Cuda::new(d, n).unwrap();
                conformance::cbcg::block_speed(&make, 256 * 128 * 512, &[4, 8, 12, 16], bandwidth);
            },
            true,
        ),
        test("sweeps_reach_the_bandwidth", conformance::sweeps::sweeps_reach_the_bandwidth, true),
        test(
            "arrangement_speed",
            |d| conformance::arrangement::arrangement_speed(&|n| Cuda::new(d, n).unwrap()),
            true,
        ),
        each!(coarsening::couplings_are_those_of_the_host),
        each!(coarsening::galerkin_products_are_those_of_the_host),
        each!(coarsening::other_patterns_are_refused),
        each!(coarsening::restrictions_are_transposes),
        each!(coarsening::l1_blocks_are_those_of_the_host),
        test("coarsening::galerkin_speed", conformance::coarsening::galerkin_speed, true),
        each!(assemble::matrices_are_those_of_the_host),
        each!(assemble::cuts_with_ghosts_are_those_of_the_host),
        each!(assemble::products_are_those_of_the_host),
        each!(assemble::blocks_are_those_of_the_host),
        each!(assemble::weights_are_those_of_the_host),
        each!(transfers::transfers_are_those_of_the_host),
        each!(transfers::aggregates_are_those_of_the_host),
        test("cut::cuts_are_those_of_the_host", conformance::cut::cuts_are_those_of_the_host, false),
        test(
            "cut::other_cuts_are_left_to_the_host",
            conformance::cut::other_cuts_are_left_to_the_host,
            false,
        ),
        test("cut::seconds_of_a_cut", conformance::cut::seconds_of_a_cut, true),
        test("block_tiles::tile_speed", conformance::block_tiles::tile_speed, true),
        test("schwarz::schwarz_speed", conformance::schwarz_gpu::schwarz_speed, true),
        test("factors_transposed::transposed_speed", transposed_speed, true),
        test(
            "transfers::transfer_speed",
            |d| conformance::transfers::transfer_speed(&|n| Cuda::new(d, n).unwrap()),
            true,
        ),
        test("csr_speed_of_scalar_rows", csr::gpu::csr_speed, true),
        test("csr_halo_speed", |_| csr::gpu::csr_halo_speed(all_gpus().len(), &share(Transport::Auto)), true),
        test("dia_speed", conformance::dia::gpu::dia_speed, true),
        // Started by bench/stress.
        test("stress::start", stress::start, true),
        test("stress::solves", stress::solves, true),
    ];
    let arguments = Arguments::from_args();
    if device.is_none() && (arguments.ignored || arguments.include_ignored) {
        all.clear(); // asked to run what cannot run here
    }
    libtest_mimic::run(&arguments, all).exit();
}

fn a_solver_gives_the_same_on_every_device(_: &Arc<Device>) {
    let all: Vec<String> = (0..all_gpus().len()).map(|n| n.to_string()).collect();
    let devices = ["cpu".to_string(), "cuda:0".into(), format!("cuda:{}", all.join(","))];
    conformance::programs::the_same_program_gives_the_same(&devices);
}

fn rows_are_matched_on_gpus(_: &Arc<Device>) {
    let all: Vec<String> = (0..all_gpus().len()).map(|n| n.to_string()).collect();
    conformance::matched::rows_are_matched(&["cuda:0".into(), format!("cuda:{}", all.join(","))]);
}

fn solvers_on_many_threads() {
    conformance::programs::solvers_on_many_threads("cuda:0");
}

fn two_solvers_use_the_same_gpus_at_once() {
    let all: Vec<String> = (0..all_gpus().len()).map(|n| n.to_string()).collect();
    conformance::programs::two_solvers_at_once(&format!("cuda:{}", all.join(",")));
}

fn transposed_speed(device: &Arc<Device>) {
    conformance::factors_transposed::transposed_speed(&|n| Cuda::new(device, n).unwrap(), 128);
}

/// 100 updates of values, each with a solve: nothing is allocated or compiled after the second, and each
/// solution equals that of fresh objects.
fn refreshed_factors_leave_memory_flat(device: &Arc<Device>) {
    let mut k = conformance::distributed::grid(3, 1, 12);
    let cut = krylith_core::partition::Subdomains::boxes([12; 3], [6, 6, 4]);
    let mut rng = common::Random(51);
    let rhs = rng.numbers(k.rows());
    let space = Cuda::new(device, k.rows()).unwrap();
    let mut a = PointBlock::kronecker(&space, &k, Precision::F64).unwrap();
    let mut p = Ildu::new(&space, &Terms::kronecker(&k), &cut, IlduOptions::default()).unwrap();
    let mut bicgstab = Bicgstab::new(&space, BicgstabOptions::default()).unwrap();
    let (mut b, mut x) = (space.vector().unwrap(), space.vector().unwrap());
    space.write(&rhs, &mut b).unwrap();
    let stop = Stop { rtol: 1e-9, ..Stop::default() };
    let mut before = (0, 0, 0);
    for step in 0..100 {
        k.l.values_mut().iter_mut().for_each(|v| *v *= 1.0 + 0.02 * rng.number());
        a.update_values(&space, 1, k.l.values()).unwrap();
        p.update_values(&space, &Terms::kronecker(&k)).unwrap();
        space.write(&vec![0.0; k.rows()], &mut x).unwrap();
        let outcome = bicgstab.solve(&space, &a, Some(&p), &b, &mut x, &stop, &mut ()).unwrap().outcome;
        assert_eq!(outcome, krylith_core::Outcome::Converged, "step {step}");
        let now = (device.allocations(), device.bytes_held(), device.kernels_loaded());
        if step == 1 {
            before = now;
        }
        assert!(step < 2 || now == before, "step {step}: {before:?} became {now:?}");
        if step % 33 == 32 {
            let mut answer = vec![0.0; k.rows()];
            space.read(&x, &mut answer).unwrap();
            let a = PointBlock::kronecker(&space, &k, Precision::F64).unwrap();
            let p = Ildu::new(&space, &Terms::kronecker(&k), &cut, IlduOptions::default()).unwrap();
            let mut other = Bicgstab::new(&space, BicgstabOptions::default()).unwrap();
            space.write(&vec![0.0; k.rows()], &mut x).unwrap();
            other.solve(&space, &a, Some(&p), &b, &mut x, &stop, &mut ()).unwrap();
            let mut fresh = vec![0.0; k.rows()];
            space.read(&x, &mut fresh).unwrap();
            assert_eq!(answer, fresh, "step {step}");
            drop((a, p, other));
            before = (device.allocations(), device.bytes_held(), device.kernels_loaded());
        }
    }
}

/// New values that are on the device already; those that break a structure are refused.
fn values_are_updated_from_device_memory(device: &Arc<Device>) {
    let mut rng = common::Random(8);
    let mut k = common::random_kronecker(&mut rng, 3, 2, 300, 5, true, true);
    let space = Cuda::new(device, k.rows()).unwrap();
    let mut a = PointBlock::kronecker(&space, &k, Precision::F64).unwrap();
    let n = k.l.values().len();
    k.l.values_mut().copy_from_slice(&rng.numbers(n));
    let values = device.upload(k.l.values(), "new values").unwrap();
    a.update_values(&space, 1, &values).unwrap();
    let x = rng.numbers(k.rows());
    let y = conformance::apply(&space, &a, &x, k.rows());
    assert!(common::distance(&y, &common::by_rows(&k, &x)) <= 1e-13);
    assert!(a.update_values(&space, 2, &values).is_err());

    // Every block of M a multiple of the identity: one slot. Values that are not are refused.
    k.m.values_mut().chunks_exact_mut(9).for_each(|b| {
        let v = b[0];
        b.iter_mut().enumerate().for_each(|(e, b)| *b = if e % 4 == 0 { v } else { 0.0 });
    });
    let mut a = PointBlock::kronecker(&space, &k, Precision::F64).unwrap();
    assert_eq!(a.product().slots(), 1 + 9);
    let e = a.update_values(&space, 0, &values).unwrap_err().to_string();
    assert!(e.contains("where the first values were zero or equal"), "{e}");
    let e = a.update_values(&space, 0, k.l.values()).unwrap_err().to_string();
    assert!(e.contains("where the first values were zero or equal"), "{e}");
}

fn plans_are_those_of_the_host(device: &Arc<Device>) {
    let make = |n| Cuda::new(device, n).unwrap();
    conformance::ildu::plans_are_those_of_the_host(&make, |plan| plan.to_host().unwrap());
}

/// An application's memory, in the order of its own stream, of the default stream, and without one.
fn lent_memory_gives_what_slices_give(device: &Arc<Device>) {
    let ordinal = device.info().ordinal;
    for (default_stream, named) in [(false, true), (true, true), (false, false)] {
        lent_by(&Application::new(ordinal, default_stream), named, device);
    }
    conformance::lender::wrong_addresses_are_refused(ordinal);
    conformance::lender::matrices_come_from_a_gpu(ordinal);
    // And where vectors are on the host.
    let application = Application::new(ordinal, false);
    let lend = |n: usize| -> Box<dyn Lender> { Box::new(application.lender(n, true)) };
    for device in ["cpu threads=2", "cuda:0"] {
        solver::lent_memory_solves_as_slices_do(device, &lend);
    }
    conformance::memory::lent_values_equal_slices(&|n| Cpu::new(n, 2), &lend);
    conformance::memory::lent_vectors_equal_slices(&|n| Cpu::new(n, 2), &lend);
}

/// The memory of one GPU, the vectors of another.
fn memory_of_another_gpu_gives_the_same() {
    if devices().map_or(0, |all| all.len()) < 2 {
        eprintln!("skipped: there is one GPU");
        return;
    }
    lent_by(&Application::new(1, false), true, &Device::open(0).unwrap());
    lent_by(&Application::new(0, true), true, &Device::open(1).unwrap());
}

fn lent_by(application: &Application, named: bool, device: &Arc<Device>) {
    let lend = |n: usize| -> Box<dyn Lender> { Box::new(application.lender(n, named)) };
    let space = |n: usize| Cuda::new(device, n).unwrap();
    conformance::memory::lent_values_equal_slices(&space, &lend);
    conformance::memory::lent_values_are_checked(&space, &lend);
    conformance::memory::lent_vectors_equal_slices(&space, &lend);
}

/// A second solve, with new values and a new τ, allocates nothing and loads no kernel; memory stays flat.
fn a_second_solve_allocates_nothing(device: &Arc<Device>) {
    let mut rng = common::Random(5);
    let k = common::random_kronecker(&mut rng, 4, 2, 2000, 7, true, true);
    let space = Cuda::new(device, k.rows()).unwrap();
    let terms = Terms::kronecker(&k);
    let mut a = PointBlock::kronecker(&space, &k, Precision::F64).unwrap();
    let mut p = BlockJacobi::new(&space, &terms, Precision::F64).unwrap();
    let (mut b, mut x) = (space.vector().unwrap(), space.vector().unwrap());
    space.write(&rng.numbers(k.rows()), &mut b).unwrap();
    let mut gmres = Gmres::new(&space, GmresOptions { restart: 10, ..GmresOptions::default() }).unwrap();
    let stop = Stop { rtol: 1e-10, ..Stop::default() };
    let mut round = |tau: f64| {
        a.update_values(&space, 0, k.m.values()).unwrap();
        a.set_tau(&space, &k.a, tau).unwrap();
        p.update_values(&space, &terms).unwrap();
        device.clear(&mut x).unwrap();
        let history = gmres.solve(&space, &a, Some(&p), &b, &mut x, &stop, &mut ()).unwrap();
        assert_eq!(history.outcome, krylith_core::Outcome::Converged);
        (device.allocations(), device.bytes_held(), device.kernels_loaded())
    };
    round(0.125); // loads kernels
    let first = round(0.125); // captures graphs
    for i in 0..1000 {
        assert_eq!(round(0.1 + 1e-4 * i as f64), first, "solve {i}");
    }
}

/// A residual history under graphs is that of single launches, and of kept time.
fn graphs_change_nothing(device: &Arc<Device>) {
    let mut rng = common::Random(6);
    let k = common::random_kronecker(&mut rng, 4, 2, 700, 6, true, true);
    let rhs = rng.numbers(k.rows());
    let space = Cuda::new(device, k.rows()).unwrap();
    let a = PointBlock::kronecker(&space, &k, Precision::F64).unwrap();
    let (mut b, mut x) = (space.vector().unwrap(), space.vector().unwrap());
    space.write(&rhs, &mut b).unwrap();
    let mut gmres = Gmres::new(&space, GmresOptions { restart: 5, ..GmresOptions::default() }).unwrap();
    let stop = Stop { rtol: 1e-11, ..Stop::default() };
    let mut solve = || {
        device.clear(&mut x).unwrap();
        gmres.solve(&space, &a, None, &b, &mut x, &stop, &mut ()).unwrap().residuals.clone()
    };
    let launches = solve();
    assert_eq!(launches, solve());
    assert_eq!(launches, solve());
    space.keep_time(true);
    assert_eq!(launches, solve());
    let phases = space.take_phases().unwrap();
    assert!(phases.product > 0.0 && phases.orthogonalization > 0.0, "{phases:?}");
}

/// The first five iterations as on the CPU, to 1e-10 of the first residual; the same answer.
fn bicgstab_agrees_with_the_cpu(device: &Arc<Device>) {
    let mut rng = common::Random(9);
    for (b, s, n) in [(4, 2, 3000), (3, 3, 1000), (8, 1, 500), (1, 1, 4001)] {
        let k = common::random_kronecker(&mut rng, b, s, n, 7, true, true);
        let rhs = rng.numbers(k.rows());
        for options in BICGSTABS {
            for jacobi in [false, true] {
                let stop = Stop { rtol: 1e-10, ..Stop::default() };
                let (x, cpu) = bicgstab_with(&|n| Cpu::new(n, 2), &k, &rhs, options, stop, jacobi);
                let (y, gpu) =
                    bicgstab_with(&|n| Cuda::new(device, n).unwrap(), &k, &rhs, options, stop, jacobi);
                let case = format!("b={b} s={s} {options:?} jacobi={jacobi}");
                for (i, (c, g)) in cpu.residuals.iter().zip(&gpu.residuals).take(6).enumerate() {
                    assert!((c - g).abs() <= 1e-10, "{case} iteration {i}: {c:e} {g:e}");
                }
                assert_eq!(cpu.outcome, gpu.outcome, "{case}");
                assert!(cpu.iterations.abs_diff(gpu.iterations) <= 1 + cpu.iterations / 10, "{case}");
                assert!(common::distance(&x, &y) < 1e-8, "{case}");
            }
        }
    }
}

/// Solves after the second allocate nothing and load no kernel.
fn bicgstab_allocates_nothing_again(device: &Arc<Device>) {
    let mut rng = common::Random(10);
    let k = common::random_kronecker(&mut rng, 4, 2, 2000, 7, true, true);
    let space = Cuda::new(device, k.rows()).unwrap();
    let mut a = PointBlock::kronecker(&space, &k, Precision::F64).unwrap();
    let p = BlockJacobi::new(&space, &Terms::kronecker(&k), Precision::F64).unwrap();
    let (mut b, mut x) = (space.vector().unwrap(), space.vector().unwrap());
    space.write(&rng.numbers(k.rows()), &mut b).unwrap();
    for options in BICGSTABS {
        let mut method = Bicgstab::new(&space, options).unwrap();
        let mut round = |tau: f64| {
            a.set_tau(&space, &k.a, tau).unwrap();
            device.clear(&mut x).unwrap();
            let stop = Stop { rtol: 1e-10, ..Stop::default() };
            let history = method.solve(&space, &a, Some(&p), &b, &mut x, &stop, &mut ()).unwrap();
            assert_eq!(history.outcome, krylith_core::Outcome::Converged);
            (device.allocations(), device.bytes_held(), device.kernels_loaded())
        };
        round(0.125); // loads kernels
        let first = round(0.125); // captures graphs
        for i in 0..200 {
            assert_eq!(round(0.1 + 1e-4 * i as f64), first, "solve {i} {options:?}");
        }
    }
}

fn histories_agree_with_the_cpu(device: &Arc<Device>) {
    let mut rng = common::Random(7);
    for (b, s, n) in [(4, 2, 3000), (3, 3, 1000), (8, 1, 500), (1, 1, 4001)] {
        let k = common::random_kronecker(&mut rng, b, s, n, 7, true, true);
        let rhs = rng.numbers(k.rows());
        for orthogonalization in [Orthogonalization::Lowsync, Orthogonalization::Cgs2, Orthogonalization::Mgs]
        {
            let options = GmresOptions { orthogonalization, ..GmresOptions::default() };
            let stop = Stop { rtol: 1e-13, max_iters: 30, ..Stop::default() };
            let cpu = solve_with(&|n| Cpu::new(n, 2), &k, &rhs, options, stop, false).1;
            let gpu = solve_with(&|n| Cuda::new(device, n).unwrap(), &k, &rhs, options, stop, false).1;
            assert_eq!(cpu.iterations, gpu.iterations, "b={b} s={s} {orthogonalization:?}");
            for (i, (c, g)) in cpu.residuals.iter().zip(&gpu.residuals).enumerate() {
                assert!((c - g).abs() <= 1e-8, "b={b} s={s} {orthogonalization:?} {i}: {c:e} {g:e}");
            }
        }
    }
}

fn a_solve_is_bitwise_repeatable(device: &Arc<Device>) {
    let first = conformance::history(&|n| Cuda::new(device, n).unwrap());
    for _ in 0..3 {
        assert_eq!(first, conformance::history(&|n| Cuda::new(device, n).unwrap()));
    }
}
