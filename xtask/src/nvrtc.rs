//! NVRTC without a GPU or a toolkit: NVIDIA's wheels in a separate Python environment.

use crate::shell::{pip_install, shell, target, works};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Release 13.0 of CUDA, which drivers from 580 on support.
const WHEELS: [&str; 3] =
    ["nvidia-cuda-nvrtc==13.0.88", "nvidia-cuda-runtime==13.0.96", "nvidia-cuda-cccl==13.0.85"];
const LIBRARY: &str = "libnvrtc.so.13";
/// The compiler of embedded kernels: drivers from 525 on load its machine code, and it knows sm_100.
const EMBEDDING: [&str; 1] = ["nvidia-cuda-nvrtc-cu12==12.8.93"];
const EMBEDDING_LIBRARY: &str = "libnvrtc.so.12";

/// Locations that a test needs to compile kernels.
pub struct Nvrtc {
    library: PathBuf,
    include: PathBuf,
}

impl Nvrtc {
    /// Passes the locations of library and headers to a command.
    ///
    /// `KRYLITH_NVRTC` is the library, `KRYLITH_CUDA_INCLUDE` the folder of its headers (`cccl` lies inside
    /// it).
    pub fn tell(&self, command: &mut Command) {
        let folder = self.library.parent().unwrap_or(Path::new("."));
        let mut paths = vec![folder.to_path_buf()]; // libnvrtc opens its builtins by name
        paths.extend(std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
        command.env("KRYLITH_NVRTC", &self.library).env("KRYLITH_CUDA_INCLUDE", &self.include);
        if let Ok(joined) = std::env::join_paths(paths) {
            command.env("LD_LIBRARY_PATH", joined);
        }
    }
}

/// Returns the library that the environment names, or that of the wheels under `target/xtask-venv`, which are
/// installed if needed.
pub fn install() -> Result<Nvrtc, String> {
    let named = |name| std::env::var_os(name).map(PathBuf::from);
    if let (Some(library), Some(include)) = (named("KRYLITH_NVRTC"), named("KRYLITH_CUDA_INCLUDE")) {
        println!("as the environment says: {}", library.display());
        return Ok(Nvrtc { library, include });
    }
    let venv = target().join("xtask-venv");
    let find = || {
        let library = locate(&venv, LIBRARY)?;
        let include = library.ancestors().nth(2).unwrap_or(&venv).join("include");
        include.exists().then_some(Nvrtc { library, include }).ok_or("it has no headers".into())
    };
    installed(&venv, &WHEELS, find)
}

/// Returns the path of the compiler of embedded kernels, which is installed under `target/xtask-venv-12` if
/// needed.
pub fn install_for_embedding() -> Result<PathBuf, String> {
    let venv = target().join("xtask-venv-12");
    installed(&venv, &EMBEDDING, || locate(&venv, EMBEDDING_LIBRARY))
}

/// Returns what `find` finds in an environment, after an install of these wheels if they are not there.
fn installed<T>(venv: &Path, wheels: &[&str], find: impl Fn() -> Result<T, String>) -> Result<T, String> {
    let stamp = venv.join("wheels.txt");
    let wanted = wheels.join("\n");
    let installed = std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted);
    if let (true, Ok(found)) = (installed, find()) {
        return Ok(found);
    }
    pip(venv, wheels)?;
    let found = find()?;
    std::fs::write(&stamp, wanted).map_err(|e| format!("{}: {e}", stamp.display()))?;
    Ok(found)
}

fn pip(venv: &Path, wheels: &[&str]) -> Result<(), String> {
    if !works(Command::new("python3").arg("--version")) {
        return Err("python3 is missing".into());
    }
    let python = venv.join("bin/python3");
    // Some distributions have Python without venv; pip then installs into a plain folder instead.
    let own = works(Command::new(&python).args(["-m", "pip", "--version"]))
        || works(Command::new("python3").args(["-m", "venv", "--clear"]).arg(venv));
    let mut command = pip_install(if own { python.as_path() } else { Path::new("python3") });
    if !own {
        if !works(Command::new("python3").args(["-m", "pip", "--version"])) {
            return Err("python3 has neither venv nor pip".into());
        }
        command.args(["--upgrade", "--target"]).arg(venv.join("site"));
    }
    shell(command.args(wheels))
        .map(drop)
        .map_err(|e| format!("pip could not install {}: {e}", wheels.join(", ")))
}

/// Finds a library wherever Python keeps its packages.
fn locate(venv: &Path, library: &str) -> Result<PathBuf, String> {
    let mut folders = vec![venv.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let path = folder.join(library);
        if path.exists() {
            return Ok(path);
        }
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        folders.extend(entries.flatten().map(|e| e.path()).filter(|p| p.is_dir() && !p.is_symlink()));
    }
    Err(format!("{library} is not in {} after the install", venv.display()))
}
