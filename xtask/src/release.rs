//! `cargo xtask release`: makes the archive of a release for one architecture, a wheel, and checksums.
//!
//! ```text
//! krylith-VERSION-ARCH-linux.tar.gz   bin/ lib/ include/ share/, with licences, manual page and completions
//! krylith-VERSION-….whl               the Python package
//! SHA256SUMS
//! ```

use crate::shell::{cargo, read, root, shell, target};
use crate::{c, c_programs, kernels, licenses, package, python};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Compiler and linker for any architecture and any glibc, so that no cross compiler of the system is needed.
const TOOLS: [&str; 2] = ["ziglang>=0.13,<1", "cargo-zigbuild>=0.20,<1"];
/// The oldest supported C library: that of RHEL 8; Debian 10, Ubuntu 20.04 and later systems have it or a
/// newer one.
const GLIBC: &str = "2.28";

/// A release to be made.
struct Release {
    /// The architecture, as cargo knows it.
    triple: String,
    /// Cargo's profile, and the folder that has its name.
    profile: [&'static str; 2],
    /// Folder of the results.
    out: PathBuf,
    /// True for a trial, which needs no clean tree and no changelog, and uses the dev profile.
    trial: bool,
}

/// `cargo xtask release [--target TRIPLE] [--out DIR] [--trial]`.
pub fn run(words: &[&str]) -> ExitCode {
    let mut release = Release {
        triple: own_triple(),
        profile: ["release", "release"],
        out: target().join("xtask-release"),
        trial: false,
    };
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match (*word, rest.len() > 0) {
            ("--trial", _) => (release.trial, release.profile) = (true, ["dev", "debug"]),
            ("--target", true) => release.triple = rest.next().unwrap_or(&"").to_string(),
            ("--out", true) => {
                let folder = rest.next().unwrap_or(&"");
                release.out = std::env::current_dir().unwrap_or_default().join(folder);
            }
            _ => {
                eprintln!(
                    "cargo xtask release [--target TRIPLE] [--out DIR] [--trial]: `{word}` is not that"
                );
                return ExitCode::from(2);
            }
        }
    }
    match release.make() {
        Ok(files) => {
            files.iter().for_each(|file| println!("release: {}", file.display()));
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("release: {why}");
            ExitCode::FAILURE
        }
    }
}

impl Release {
    fn make(&self) -> Result<Vec<PathBuf>, String> {
        let version = c::version()?;
        toolchain(&self.triple)?;
        licenses::check()?;
        if !self.trial {
            ready(&version)?;
        }
        // Kernels are machine code of the GPU, so they are the same on every architecture.
        let archive = target().join("kernels.bin");
        match kernels::pack(&archive) {
            Ok(()) => {}
            Err(why) if self.trial => {
                println!("release: kernels are not inside: {why}");
                fs::write(&archive, b"").map_err(|e| format!("{}: {e}", archive.display()))?;
            }
            Err(why) => return Err(format!("kernels: {why}")),
        }
        let variables = self.variables(&archive, &python::tools(&TOOLS)?);
        let name = format!("krylith-{version}-{}-linux", self.arch());
        let folder = self.out.join(&name);
        let io = |e: std::io::Error| format!("{}: {e}", self.out.display());
        let _ = fs::remove_dir_all(&folder); // missing on the first run
        fs::create_dir_all(folder.join("bin")).map_err(io)?;

        // One cargo call builds all packages: in separate calls their common features differ, and the library
        // would be built again.
        let mut build = cargo(&["zigbuild", "--profile", self.profile[0]]);
        build.args(["--target", &format!("{}.{GLIBC}", self.triple)]);
        build.args(["--package", "krylith-cli", "--package", "krylith-bench", "--package", "krylith-c"]);
        shell(build.envs(variables.iter().map(|(name, value)| (name, value))))?;
        let built = target().join(&self.triple).join(self.profile[1]);
        for program in ["krylith", "krylith-bench"] {
            fs::copy(built.join(program), folder.join("bin").join(program))
                .map_err(|e| format!("{}: {e}", built.join(program).display()))?;
        }
        c::place(&built, &folder)?;
        self.words(&folder, &version)?;
        if self.is_own() {
            let first = ["solve", "stokes:6x6x6", "--device", "cpu"];
            shell(Command::new(folder.join("bin/krylith")).args(first))?;
            c_programs::test(&folder, &[])?;
        }
        let packed = self.out.join(format!("{name}.tar.gz"));
        self.pack(&name, &packed)?;

        // The name states the oldest glibc; maturin refuses a library that needs a newer one.
        let policy = format!("manylinux_{}", GLIBC.replace('.', "_"));
        let arguments =
            ["--profile", self.profile[0], "--zig", "--target", &self.triple, "--compatibility", &policy];
        let wheel = python::build(&arguments, &variables)?;
        let to = self.out.join(wheel.file_name().unwrap_or_default());
        fs::copy(&wheel, &to).map_err(io)?;
        let files = vec![packed, to];
        self.sums(&version)?;
        Ok(files)
    }

    /// Returns the first word of the triple.
    fn arch(&self) -> &str {
        self.triple.split('-').next().unwrap_or_default()
    }

    /// Returns true if this machine can run the result.
    fn is_own(&self) -> bool {
        self.triple == own_triple()
    }

    /// Returns environment variables: locations of kernels and tools, and a profile without line numbers,
    /// which would be most of the bytes.
    fn variables(&self, kernels: &Path, tools: &Path) -> Vec<(String, String)> {
        let old = std::env::var_os("PATH").unwrap_or_default();
        let path =
            std::env::join_paths(std::iter::once(tools.to_path_buf()).chain(std::env::split_paths(&old)));
        let profile = format!("CARGO_PROFILE_{}", self.profile[0].to_uppercase());
        [
            ("KRYLITH_EMBED".into(), kernels.display().to_string()),
            ("PATH".into(), path.unwrap_or(old).to_string_lossy().into_owned()),
            (format!("{profile}_DEBUG"), "0".into()),
            (format!("{profile}_STRIP"), "symbols".into()),
        ]
        .to_vec()
    }

    /// Adds licences, INSTALL.txt, the manual page and completions.
    fn words(&self, folder: &Path, version: &str) -> Result<(), String> {
        let docs = folder.join("share/doc/krylith");
        let io = |e: std::io::Error| format!("{}: {e}", docs.display());
        fs::create_dir_all(&docs).map_err(io)?;
        for file in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE", licenses::FILE] {
            fs::copy(root().join(file), docs.join(file)).map_err(io)?;
        }
        let text = format!(
            "Krylith {version} for Linux on {}. Unpack it anywhere, or into a prefix such as ~/.local:\n\n  \
             tar -xzf krylith-{version}-{0}-linux.tar.gz --strip-components 1 -C ~/.local\n\n\
             bin/      krylith, and krylith-bench, which `krylith bench` starts\n\
             lib/      libkrylith for C, C++ and Fortran, with files for pkg-config and CMake; headers are in include/\n\
             share/    licences and changelog, the manual page, completions\n\n\
             It needs glibc {GLIBC} or later. A GPU needs a driver of release 525 or later.\n",
            self.arch(),
        );
        fs::write(folder.join("INSTALL.txt"), text).map_err(io)?;
        let own = self.is_own();
        for (words, place) in [
            (&["man"][..], "share/man/man1/krylith.1"),
            (&["completions", "bash"], "share/bash-completion/completions/krylith"),
            (&["completions", "zsh"], "share/zsh/site-functions/_krylith"),
            (&["completions", "fish"], "share/fish/vendor_completions.d/krylith.fish"),
        ] {
            let to = folder.join(place);
            fs::create_dir_all(to.parent().unwrap_or(folder)).map_err(io)?;
            // A program of another architecture cannot run here; this machine's program prints the same.
            let mut program = match own {
                true => Command::new(folder.join("bin/krylith")),
                false => cargo(&["run", "--quiet", "--package", "krylith-cli", "--"]),
            };
            fs::write(&to, read(program.args(words))?).map_err(io)?;
        }
        Ok(())
    }

    /// Packs an archive that is the same, byte for byte, for the same files: sorted names, no owners, and the
    /// commit's time.
    fn pack(&self, name: &str, to: &Path) -> Result<(), String> {
        let time = read(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root()));
        let time = time.map_or("0".into(), |text| text.trim().to_string());
        let mut tar = Command::new("tar");
        tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", &format!("--mtime=@{time}")]);
        tar.arg("-czf").arg(to).arg("-C").arg(&self.out).arg(name);
        shell(tar.env("GZIP", "-n")).map(drop)
    }

    /// Writes the checksums of every archive and wheel of this version in the folder, to which each
    /// architecture adds its own.
    fn sums(&self, version: &str) -> Result<(), String> {
        let entries = fs::read_dir(&self.out).map_err(|e| format!("{}: {e}", self.out.display()))?;
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| is_released(name, version)).collect();
        names.sort();
        let text = read(Command::new("sha256sum").args(&names).current_dir(&self.out))?;
        let to = self.out.join("SHA256SUMS");
        fs::write(&to, text).map_err(|e| format!("{}: {e}", to.display()))
    }
}

/// Returns true for an archive or a wheel of this version.
fn is_released(name: &str, version: &str) -> bool {
    name.starts_with(&format!("krylith-{version}-")) && (name.ends_with(".tar.gz") || name.ends_with(".whl"))
}

/// Returns the triple of this machine.
fn own_triple() -> String {
    let said = read(Command::new("rustc").arg("-vV")).unwrap_or_default();
    said.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default().into()
}

/// Checks that everything is committed, named in the changelog, and can be packaged.
fn ready(version: &str) -> Result<(), String> {
    let status = read(Command::new("git").args(["status", "--porcelain"]).current_dir(root()))?;
    if !status.is_empty() {
        return Err("there are changes that are not committed; `--trial` makes files without them".into());
    }
    let changelog =
        fs::read_to_string(root().join("CHANGELOG.md")).map_err(|e| format!("CHANGELOG.md: {e}"))?;
    if !is_named(&changelog, version) {
        return Err(format!("CHANGELOG.md has no section [{version}]; see RELEASING.md"));
    }
    package::check(true).map(drop)
}

/// Returns true if the changelog has a section for this version.
fn is_named(changelog: &str, version: &str) -> bool {
    changelog.lines().any(|line| line.starts_with(&format!("## [{version}]")))
}

/// Checks that builds for this architecture are possible.
fn toolchain(triple: &str) -> Result<(), String> {
    if !triple.ends_with("-unknown-linux-gnu") {
        return Err(format!(
            "{triple}: archives are made for Linux with glibc, such as aarch64-unknown-linux-gnu"
        ));
    }
    let folder = read(Command::new("rustc").args(["--print", "target-libdir", "--target", triple]));
    if !folder.is_ok_and(|folder| Path::new(folder.trim()).is_dir()) {
        return Err(format!("the standard library for {triple} is missing: rustup target add {triple}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_architecture_has_its_name_and_is_not_run_here() {
        let release = |triple: &str| Release {
            triple: triple.into(),
            profile: ["release", "release"],
            out: PathBuf::new(),
            trial: false,
        };
        let arm = release("aarch64-unknown-linux-gnu");
        assert_eq!(arm.arch(), "aarch64");
        assert_eq!(arm.is_own(), std::env::consts::ARCH == "aarch64");
        let own = release(&own_triple());
        assert!(own.is_own() && own.arch() == std::env::consts::ARCH, "{}", own.triple);
        let variables = arm.variables(Path::new("/k.bin"), Path::new("/tools"));
        let value = |name: &str| variables.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
        assert_eq!(value("KRYLITH_EMBED"), Some("/k.bin"));
        assert!(value("PATH").is_some_and(|path| path.starts_with("/tools:")));
        assert_eq!(value("CARGO_PROFILE_RELEASE_STRIP"), Some("symbols"));
    }

    #[test]
    fn sums_are_of_archives_and_wheels_of_the_version() {
        for name in
            ["krylith-0.1.0-aarch64-linux.tar.gz", "krylith-0.1.0-cp310-abi3-manylinux_2_28_x86_64.whl"]
        {
            assert!(is_released(name, "0.1.0") && !is_released(name, "0.2.0"));
        }
        assert!(!is_released("krylith-0.1.0-x86_64-linux", "0.1.0") && !is_released("SHA256SUMS", "0.1.0"));
    }

    #[test]
    fn what_is_missing_is_named_with_what_brings_it() {
        let error = toolchain("aarch64-apple-darwin").unwrap_err();
        assert!(error.contains("Linux with glibc"), "{error}");
        let error = toolchain("sparc-unknown-linux-gnu").unwrap_err();
        assert!(error.contains("rustup target add sparc-unknown-linux-gnu"), "{error}");
    }

    #[test]
    fn a_version_has_to_stand_in_the_changelog() {
        let text = "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-12-01\n";
        assert!(is_named(text, "0.1.0") && !is_named(text, "0.2.0") && !is_named(text, "0.1"));
    }
}
