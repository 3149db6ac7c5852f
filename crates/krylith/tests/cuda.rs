//! The conformance tests on a GPU; skipped, and said so, where there is none.

#![cfg(feature = "cuda")]

mod common;
mod conformance;

use conformance::solve_with;
use krylith::Stop;
use krylith::device::cpu::Cpu;
use krylith::device::cuda::{Cuda, Device};
use krylith::method::{GmresOptions, Orthogonalization};
use std::sync::{Arc, OnceLock};

/// The first GPU, or a line that says why the test is skipped. `KRYLITH_REQUIRE_GPU` makes its absence a failure.
fn gpu() -> Option<Arc<Device>> {
    static DEVICE: OnceLock<Option<Arc<Device>>> = OnceLock::new();
    let device = DEVICE.get_or_init(|| match Device::open(0) {
        Ok(device) => Some(device),
        Err(e) => {
            assert!(std::env::var_os("KRYLITH_REQUIRE_GPU").is_none(), "a GPU is required: {e}");
            eprintln!("skipped: {e}");
            None
        }
    });
    device.clone()
}

#[test]
fn products_match_the_dense_kronecker_sum() {
    let Some(device) = gpu() else { return };
    conformance::products_match_the_dense_kronecker_sum(&|n| Cuda::new(&device, n).unwrap());
}

#[test]
fn gmres_matches_a_direct_solve() {
    let Some(device) = gpu() else { return };
    conformance::gmres_matches_a_direct_solve(&|n| Cuda::new(&device, n).unwrap());
}

#[test]
fn histories_agree_with_the_cpu() {
    let Some(device) = gpu() else { return };
    let mut rng = common::Random(7);
    for (b, s, n) in [(4, 2, 3000), (3, 3, 1000), (8, 1, 500), (1, 1, 4001)] {
        let k = common::random_kronecker(&mut rng, b, s, n, 7, true, true);
        let rhs = rng.numbers(k.rows());
        for orthogonalization in [Orthogonalization::Lowsync, Orthogonalization::Cgs2, Orthogonalization::Mgs]
        {
            let options = GmresOptions { orthogonalization, ..GmresOptions::default() };
            let stop = Stop { rtol: 1e-13, max_iterations: 30, ..Stop::default() };
            let cpu = solve_with(&|n| Cpu::new(n, 2), &k, &rhs, options, stop, false).1;
            let gpu = solve_with(&|n| Cuda::new(&device, n).unwrap(), &k, &rhs, options, stop, false).1;
            assert_eq!(cpu.iterations, gpu.iterations, "b={b} s={s} {orthogonalization:?}");
            for (i, (c, g)) in cpu.residuals.iter().zip(&gpu.residuals).enumerate() {
                assert!(
                    (c - g).abs() <= 1e-8,
                    "b={b} s={s} {orthogonalization:?} iteration {i}: {c:e} {g:e}"
                );
            }
        }
    }
}

#[test]
fn a_solve_is_bitwise_repeatable() {
    let Some(device) = gpu() else { return };
    let first = conformance::history(&|n| Cuda::new(&device, n).unwrap());
    for _ in 0..3 {
        assert_eq!(first, conformance::history(&|n| Cuda::new(&device, n).unwrap()));
    }
}
