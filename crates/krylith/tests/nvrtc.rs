//! Every kernel that the library can launch compiles for every architecture it ships for, without a GPU.

#![cfg(feature = "cuda")]

use krylith::device::cuda::{compile_for, specialisations};

/// Skipped, and said so, where NVRTC is not installed; `cargo xtask test` installs it. `KRYLITH_KERNELS` names a text that
/// the file or the macros of a kernel must have, to compile a few while working on them.
#[test]
fn every_specialisation_compiles() {
    let mut kernels = specialisations::vector_kernels();
    kernels.extend(specialisations::products());
    if let Ok(text) = std::env::var("KRYLITH_KERNELS") {
        kernels.retain(|k| format!("{k:?}").contains(&text));
        assert!(!kernels.is_empty(), "KRYLITH_KERNELS={text} names no kernel");
    }
    if std::env::var_os("KRYLITH_NVRTC").is_none()
        && let Err(e) = compile_for(&kernels[0], (9, 0))
    {
        eprintln!("skipped: {e}");
        return;
    }
    for arch in [(8, 0), (9, 0)] {
        for kernel in &kernels {
            if let Err(e) = compile_for(kernel, arch) {
                panic!("sm_{}{}: {e}", arch.0, arch.1);
            }
        }
    }
    println!("{} specialisations compiled for sm_80 and sm_90", kernels.len());
}
