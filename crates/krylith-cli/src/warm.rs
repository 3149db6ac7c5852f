//! `krylith warm`: compiles the kernels of common sizes into the kernel cache.

use crate::args::WarmArgs;
use crate::failure::{DONE, Result};
use crate::output;
use krylith_core::device::cuda::{self, cache_state, devices};
use krylith_core::text::{name, plural, seconds};
use std::io::IsTerminal;
use std::time::Instant;

/// Runs the command.
///
/// # Errors
/// No GPU and no `--arch`; no run-time compiler; no folder for the cache.
pub fn warm(args: &WarmArgs) -> Result<u8> {
    crate::interrupt::watch()?;
    let mut archs = match args.arch {
        Some(arch) => vec![arch],
        None => devices()?.iter().map(|gpu| gpu.arch).collect(),
    };
    archs.sort_unstable();
    archs.dedup();
    for arch in archs {
        let (begin, terminal) = (Instant::now(), std::io::stderr().is_terminal());
        let bar = indicatif::ProgressBar::hidden();
        if terminal && output::speaks() {
            bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
        }
        let tell = |there: usize, all: usize| {
            bar.set_length(all as u64);
            bar.set_position(there as u64);
        };
        let warmed = cuda::warm(arch, args.precond_precision, &tell);
        bar.finish_and_clear();
        let warmed = warmed?;
        let folder = cache_state().folder.map_or(String::new(), |folder| format!(" in {}", name(&folder)));
        let (major, minor) = arch;
        output::print(&format!(
            "sm_{major}{minor}: {}, of which {} compiled{folder}, {}\n",
            plural(warmed.kernels, "kernel"),
            warmed.compiled,
            seconds(begin.elapsed().as_secs_f64())
        ));
    }
    Ok(DONE)
}
