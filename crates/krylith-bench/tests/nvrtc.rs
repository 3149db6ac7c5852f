//! Checks that the papers' own kernels compile, without a GPU.

use krylith_bench::{
    compile_cbcg_kernels, compile_exchange_kernels, compile_gram_schmidt_kernels, compile_ildu0_kernels,
    compile_paper_kernels, compile_spmv_kernels,
};
use libtest_mimic::{Arguments, Failed, Trial};

/// Without NVRTC the tests are reported as ignored, never as passed. If `KRYLITH_NVRTC` is set, a missing
/// NVRTC is an error.
fn main() {
    let missing = compile_ildu0_kernels(1, 256, (9, 0)).err();
    if let Some(e) = &missing {
        assert!(std::env::var_os("KRYLITH_NVRTC").is_none(), "{e}");
        eprintln!("skipped: {e}");
    }
    type Test = fn() -> Result<(), Failed>;
    let tests: [(&str, Test); 4] = [
        ("the_kernels_of_cbcg", cbcg),
        ("the_kernels_of_ildu0", ildu0),
        ("the_kernels_of_okp", okp),
        ("the_kernels_of_spmv", spmv),
    ];
    let mut all =
        tests.map(|(name, test)| Trial::test(name, test).with_ignored_flag(missing.is_some())).into();
    let arguments = Arguments::from_args();
    if missing.is_some() && (arguments.ignored || arguments.include_ignored) {
        all = Vec::new(); // tests that were requested but cannot run
    }
    libtest_mimic::run(&arguments, all).exit();
}

fn cbcg() -> Result<(), Failed> {
    for tile in [[16, 32, 4], [1, 8, 8], [64, 4, 2]] {
        for threads in [32, 256] {
            let [pcg, skinny] = compile_cbcg_kernels(tile, threads, (9, 0))?;
            for kernel in ["dia_product", "tile_solve", "advance", "reduce", "step_length", "next_direction"]
            {
                assert!(pcg.contains(&format!(".entry {kernel}(")), "{kernel}, {tile:?}");
            }
            for kernel in ["sum_batches", "update", "sum_blocks", "residual"] {
                assert!(skinny.contains(&format!(".entry {kernel}(")), "{kernel}");
            }
            assert!(!skinny.contains(".local"), "the blocks' kernels keep their sums in registers");
        }
    }
    Ok(())
}

fn ildu0() -> Result<(), Failed> {
    for b in [1, 2, 3, 4, 8] {
        for threads in [64, 1024] {
            let all = compile_ildu0_kernels(b, threads, (9, 0))?.concat();
            for kernel in [
                "spin_loop_lds",
                "dag_ec_no_lds",
                "dag_ec_lds",
                "dag_ec_lds_ud",
                "dag_ec_U0",
                "dag_ec_ILDU0_fused",
                "dag_vc_ILDU0_fused",
                "assign_levels",
                "first_scalars",
                "direction",
                "invert_diagonal",
                "gather_values",
                "gather_nodes",
            ] {
                assert!(all.contains(&format!(".entry {kernel}(")), "{kernel}, b = {b}");
            }
        }
    }
    Ok(())
}

fn okp() -> Result<(), Failed> {
    let exchange = compile_exchange_kernels((9, 0))?.to_src();
    assert!(exchange.contains("parallel_buffering") && exchange.contains("gather"));
    for ptx in compile_gram_schmidt_kernels((9, 0))? {
        let text = ptx.to_src();
        for kernel in ["axpy_dot", "gram_schmidt_pass", "normalize"] {
            assert!(text.contains(&format!(".entry {kernel}(")), "{kernel}");
        }
        assert!(!text.contains(".local"), "the pass keeps its sums in registers");
    }
    for b in 1..=8 {
        for s in 1..=4 {
            let ptx = compile_paper_kernels(b, s, 256, (8, 0))?.to_src();
            assert!(ptx.contains("stage_combination"));
            assert_eq!(ptx.contains("warp_per_block_row"), b <= 5, "b={b}");
        }
    }
    Ok(())
}

fn spmv() -> Result<(), Failed> {
    for (threads, items) in [(2, 5), (4, 7), (8, 9), (16, 11), (32, 7)] {
        let ptx = compile_spmv_kernels(threads, items, (9, 0))?.to_src();
        for kernel in ["csr_vector", "merge_search", "merge_product", "merge_fix", "clear_rows", "adaptive"] {
            assert!(ptx.contains(&format!(".entry {kernel}(")), "{kernel}, {threads} threads a row");
        }
    }
    Ok(())
}
