//! Every kernel that the library can launch compiles for every architecture it ships for, without a GPU.

#![cfg(feature = "cuda")]

use krylith::device::cuda::{compile_for, specialisations};

/// Skipped, and said so, where NVRTC is not installed; `cargo xtask test` installs it.
#[test]
fn every_specialisation_compiles() {
    let mut kernels = specialisations::vector_kernels();
    kernels.extend(specialisations::products());
    let probe = compile_for(&kernels[0], (9, 0));
    if std::env::var_os("KRYLITH_NVRTC").is_none() && probe.is_err() {
        eprintln!("skipped: {}", probe.unwrap_err());
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
