//! The kernels of the nonlinear problems are compiled, without a GPU.
//!
//! Reported as ignored, and never as passed, if NVRTC is not installed; if `KRYLITH_NVRTC` is set, NVRTC is
//! required.

#![cfg(feature = "cuda")]

use krylith_core::Error;
use krylith_core::device::cuda::{Program, compile_for, draft_for};
use libtest_mimic::{Arguments, Trial};

fn main() {
    let kernels = krylith_problems::gpu::kernels();
    let missing = draft_for(&kernels[0][0], (8, 0)).err().filter(|e| matches!(e, Error::Library { .. }));
    if let Some(e) = &missing {
        assert!(std::env::var_os("KRYLITH_NVRTC").is_none(), "{e}");
        eprintln!("skipped: {e}");
    }
    let mut all = Vec::new();
    for kernels in kernels {
        let first = kernels[0].clone();
        assert!(kernels.iter().all(Program::is_declared), "{} has other functions", first.file);
        let name = format!("kernels of {}", first.file);
        // A file is compiled as a whole.
        let compile = move || {
            draft_for(&first, (8, 0))?;
            compile_for(&first, (9, 0))?;
            Ok(())
        };
        all.push(Trial::test(name, compile).with_ignored_flag(missing.is_some()));
    }
    let arguments = Arguments::from_args();
    if missing.is_some() && (arguments.ignored || arguments.include_ignored) {
        all.clear(); // asked to run what cannot run here
    }
    libtest_mimic::run(&arguments, all).exit();
}
