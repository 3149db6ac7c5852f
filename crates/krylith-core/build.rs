//! Puts the archive of compiled kernels that `KRYLITH_EMBED` names into the library, or an empty one.
//!
//! `cargo xtask kernels` makes the archive; machines without NVRTC then need none for the common sizes.

use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-env-changed=KRYLITH_EMBED");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("kernels.bin");
    match std::env::var_os("KRYLITH_EMBED") {
        None => std::fs::write(&out, b"").expect("the build folder can be written"),
        Some(path) => {
            println!("cargo::rerun-if-changed={}", PathBuf::from(&path).display());
            if let Err(e) = std::fs::copy(&path, &out) {
                panic!("KRYLITH_EMBED={}: {e}", PathBuf::from(&path).display());
            }
        }
    }
}
