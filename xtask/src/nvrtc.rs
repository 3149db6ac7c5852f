//! NVRTC without a GPU or a toolkit: NVIDIA's wheels in a separate Python environment.

use crate::shell::{pip_install, shell, target, works};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Release 13.0 of CUDA, which drivers from 580 on support.
const WHEELS: [&str; 3] =
    ["nvidia-cuda-nvrtc==13.0.88", "nvidia-cuda-runtime==13.0.96", "nvidia-cuda-cccl==13.0.85"];
const LIBRARY: &str = "libnvrtc.so.13";

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
    let stamp = venv.join("wheels.txt");
    let wanted = WHEELS.join("\n");
    let installed = std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted);
    if let (true, Ok(found)) = (installed, locate(&venv)) {
        return Ok(found);
    }
    pip(&venv)?;
    let found = locate(&venv)?;
    std::fs::write(&stamp, wanted).map_err(|e| format!("{}: {e}", stamp.display()))?;
    Ok(found)
}

fn pip(venv: &Path) -> Result<(), String> {
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
    shell(command.args(WHEELS))
        .map(drop)
        .map_err(|e| format!("pip could not install {}: {e}", WHEELS.join(", ")))
}

/// Finds `nvidia/cu13/lib/libnvrtc.so.13` wherever Python keeps its packages.
fn locate(venv: &Path) -> Result<Nvrtc, String> {
    let mut folders = vec![venv.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let cuda = folder.join("nvidia/cu13");
        let (library, include) = (cuda.join("lib").join(LIBRARY), cuda.join("include"));
        if library.exists() && include.exists() {
            return Ok(Nvrtc { library, include });
        }
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        folders.extend(entries.flatten().map(|e| e.path()).filter(|p| p.is_dir() && !p.is_symlink()));
    }
    Err(format!("{LIBRARY} is not in {} after the install", venv.display()))
}
