//! Every kernel that the library can launch becomes machine code for every architecture it ships for, without
//! a GPU.
//!
//! For the newer architecture kernels are compiled as shipped, if their numbers are stored in f64 and they
//! have no columns or vectors of other GPUs. Their variants differ by a type or an include. Of each kind of
//! variant, the smallest, the middle and the largest size are compiled without optimisation, which takes a
//! third of the time. So is one kernel of each kind for the older architecture: this finds errors that depend
//! on the architecture, in branches of `__CUDA_ARCH__` and in instructions that it lacks.

use krylith_core::device::cuda::{Kernel, compile_for, draft_for, specialisations};
use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::HashSet;

/// Specialisations a test: few enough that all cores are busy to the end.
const AT_ONCE: usize = 12;

/// How a kernel becomes machine code, and for what.
type Compile = (&'static str, fn(&Kernel) -> krylith_core::Result<usize>, Vec<Kernel>);

/// Whether another kernel differs from this one by a type or by what it includes.
fn is_twin(kernel: &Kernel) -> bool {
    let twin =
        |(name, value): &(String, String)| matches!(name.as_str(), "HALO" | "PEERS") || value == "float";
    kernel.defines.iter().any(twin)
}

/// A file's macros that are flags or types in all of these kernels.
fn flags(kernels: &[Kernel]) -> HashSet<(&'static str, String)> {
    let is_flag = |value: &str| matches!(value, "0" | "1" | "double" | "float");
    let all = || kernels.iter().flat_map(|k| k.defines.iter().map(|(name, value)| (k.file, name, value)));
    let numbers: HashSet<_> =
        all().filter(|(.., value)| !is_flag(value)).map(|(file, name, _)| (file, name.clone())).collect();
    all().map(|(file, name, _)| (file, name.clone())).filter(|place| !numbers.contains(place)).collect()
}

/// The file, its macros, and the values of flags: what decides which branches of the preprocessor are taken.
fn kind(kernel: &Kernel, flags: &HashSet<(&'static str, String)>) -> (&'static str, Vec<(String, String)>) {
    let is_flag = |name: &String| flags.contains(&(kernel.file, name.clone()));
    let part = |(name, value): &(String, String)| {
        (name.clone(), if is_flag(name) { value.clone() } else { String::new() })
    };
    (kernel.file, kernel.defines.iter().map(part).collect())
}

/// The first, the middle and the last kernel of each kind.
fn three_of_each(kernels: Vec<Kernel>, flags: &HashSet<(&'static str, String)>) -> Vec<Kernel> {
    let mut kinds: Vec<(_, Vec<Kernel>)> = Vec::new();
    for kernel in kernels {
        let own = kind(&kernel, flags);
        match kinds.iter_mut().find(|(kind, _)| *kind == own) {
            Some((_, all)) => all.push(kernel),
            None => kinds.push((own, vec![kernel])),
        }
    }
    let pick = |(_, all): (_, Vec<Kernel>)| {
        let last = all.len() - 1;
        let mut places = vec![0, last / 2, last];
        places.dedup();
        places.into_iter().map(move |place| all[place].clone())
    };
    let mut some: Vec<Kernel> = kinds.into_iter().flat_map(pick).collect();
    some.sort_by_key(|k| k.file);
    some
}

/// Reported as ignored, and never as passed, if NVRTC is not installed. `cargo xtask ci` installs it; if
/// `KRYLITH_NVRTC` is set, NVRTC is required. `KRYLITH_KERNELS` selects kernels whose file name or macros
/// contain a text, to compile a few while working on them.
fn main() {
    let mut kernels = specialisations::vector_kernels();
    kernels.extend(specialisations::products());
    // A file with its macros is one source, whatever function of it is asked for.
    let mut sources = HashSet::new();
    kernels.retain(|k| sources.insert((k.file, k.defines.clone())));
    if let Ok(text) = std::env::var("KRYLITH_KERNELS") {
        kernels.retain(|k| format!("{k:?}").contains(&text));
        assert!(!kernels.is_empty(), "KRYLITH_KERNELS={text} names no kernel");
    }
    kernels.sort_by_key(|k| k.file);

    let missing =
        draft_for(&kernels[0], (8, 0)).err().filter(|e| matches!(e, krylith_core::Error::Library { .. }));
    if let Some(e) = &missing {
        assert!(std::env::var_os("KRYLITH_NVRTC").is_none(), "{e}");
        eprintln!("skipped: {e}");
    }
    let (twins, shipped): (Vec<_>, Vec<_>) = kernels.iter().cloned().partition(is_twin);
    let mut kinds = HashSet::new();
    let flags = flags(&kernels);
    let one_of_each = kernels.iter().filter(|kernel| kinds.insert(kind(kernel, &flags))).cloned().collect();
    let targets: [Compile; 3] = [
        ("sm_90", |kernel| compile_for(kernel, (9, 0)), shipped),
        ("sm_90 unoptimised", |kernel| draft_for(kernel, (9, 0)), three_of_each(twins, &flags)),
        ("sm_80 unoptimised", |kernel| draft_for(kernel, (8, 0)), one_of_each),
    ];
    let mut all = Vec::new();
    for (target, compile, kernels) in targets {
        for of_a_file in kernels.chunk_by(|a, b| a.file == b.file) {
            for (i, some) in of_a_file.chunks(AT_ONCE).enumerate() {
                let (first, some) = (i * AT_ONCE + 1, some.to_vec());
                let name = format!("{} {first} to {} for {target}", some[0].file, first + some.len() - 1);
                let run = move || some.iter().try_for_each(|k| compile(k).map(drop).map_err(Failed::from));
                all.push(Trial::test(name, run).with_ignored_flag(missing.is_some()));
            }
        }
    }
    let arguments = Arguments::from_args();
    if missing.is_some() && (arguments.ignored || arguments.include_ignored) {
        all.clear(); // asked to run what cannot run here
    }
    println!("{} sources", kernels.len());
    libtest_mimic::run(&arguments, all).exit();
}
