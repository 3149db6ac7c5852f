//! `cargo xtask release`: the archive of a release for one architecture, a wheel, and checksums.
//!
//! ```text
//! krylith-VERSION-ARCH-linux.tar.gz   bin/ lib/ include/ share/, with licences, manual page and completions
//! krylith-VERSION-….whl               the Python package
//! SHA256SUMS
//! ```

use crate::shell::{cargo, read, root, shell, target, works};
use crate::{c, kernels, licenses, package, python};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// What is made.
struct Release {
    /// The triple, where it is not this machine's.
    cross: Option<String>,
    /// Cargo's profile, and the folder that has its name.
    profile: [&'static str; 2],
    /// Where files go.
    out: PathBuf,
    /// Only what needs no clean tree and no changelog: to see whether all is made.
    trial: bool,
}

/// `cargo xtask release [--target TRIPLE] [--out DIR] [--trial]`.
pub fn run(words: &[&str]) -> ExitCode {
    let mut release = Release {
        cross: None,
        profile: ["release", "release"],
        out: target().join("xtask-release"),
        trial: false,
    };
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match (*word, rest.len() > 0) {
            ("--trial", _) => (release.trial, release.profile) = (true, ["dev", "debug"]),
            ("--target", true) => release.cross = rest.next().map(|triple| triple.to_string()),
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
        if !self.trial {
            ready(&version)?;
        }
        licenses::check()?;
        if let Some(triple) = &self.cross {
            toolchain(triple)?;
        }
        let arch = self.arch();
        // Kernels are the GPU's machine code: the same on every architecture.
        let archive = target().join("kernels.bin");
        match kernels::pack(&archive) {
            Ok(()) => {}
            Err(why) if self.trial => {
                println!("release: kernels are not inside: {why}");
                fs::write(&archive, b"").map_err(|e| format!("{}: {e}", archive.display()))?;
            }
            Err(why) => return Err(format!("kernels: {why}")),
        }
        let name = format!("krylith-{version}-{arch}-linux");
        let folder = self.out.join(&name);
        let io = |e: std::io::Error| format!("{}: {e}", self.out.display());
        let _ = fs::remove_dir_all(&folder); // none, at the first time
        fs::create_dir_all(folder.join("bin")).map_err(io)?;

        // All at once: each set of packages has other features in common, and would build the library again.
        let mut build = cargo(&["build", "--profile", self.profile[0]]);
        build.args(["--package", "krylith-cli", "--package", "krylith-bench", "--package", "krylith-c"]);
        let mut variables = self.variables();
        variables.push(("KRYLITH_EMBED".into(), archive.display().to_string()));
        let other: Vec<&String> = self.cross.iter().collect();
        build.args(other.iter().flat_map(|triple| ["--target", triple.as_str()]));
        shell(build.envs(variables.iter().map(|(name, value)| (name, value))))?;
        let built = self.built();
        for program in ["krylith", "krylith-bench"] {
            let to = folder.join("bin").join(program);
            fs::copy(built.join(program), &to)
                .map_err(|e| format!("{}: {e}", built.join(program).display()))?;
            self.strip(&to);
        }
        c::place(&built, &folder)?;
        for file in fs::read_dir(folder.join("lib")).map_err(io)?.flatten() {
            if file.path().is_file() && !file.path().is_symlink() {
                self.strip_debug(&file.path());
            }
        }
        self.words(&folder, &version)?;
        let packed = self.out.join(format!("{name}.tar.gz"));
        self.pack(&name, &packed)?;

        let mut arguments = vec!["--profile", self.profile[0]];
        other.iter().for_each(|triple| arguments.extend(["--target", triple]));
        let wheel = python::build(&arguments, &variables)?;
        let to = self.out.join(wheel.file_name().unwrap_or_default());
        fs::copy(&wheel, &to).map_err(io)?;
        let files = vec![packed, to];
        self.sums(&files)?;
        Ok(files)
    }

    /// The first word of the triple.
    fn arch(&self) -> &str {
        self.cross.as_deref().and_then(|triple| triple.split('-').next()).unwrap_or(std::env::consts::ARCH)
    }

    /// Where cargo leaves programs.
    fn built(&self) -> PathBuf {
        self.cross.iter().fold(target(), |folder, triple| folder.join(triple)).join(self.profile[1])
    }

    /// The linker and the C compiler of another architecture.
    fn variables(&self) -> Vec<(String, String)> {
        let of = |triple: &String| {
            let (word, compiler) =
                (triple.replace('-', "_"), format!("{}-gcc", triple.replace("-unknown-", "-")));
            let linker = format!("CARGO_TARGET_{}_LINKER", word.to_uppercase());
            [(linker, compiler.clone()), (format!("CC_{word}"), compiler)]
        };
        self.cross.iter().flat_map(of).collect()
    }

    fn stripper(&self) -> String {
        self.cross.as_ref().map_or("strip".into(), |t| format!("{}-strip", t.replace("-unknown-", "-")))
    }

    /// Without the symbols, which are most of the bytes; without `strip` they stay.
    fn strip(&self, file: &Path) {
        works(Command::new(self.stripper()).arg(file));
    }

    fn strip_debug(&self, file: &Path) {
        works(Command::new(self.stripper()).arg("--strip-debug").arg(file));
    }

    /// Licences, what to read first, the manual page and completions.
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
             It needs {}. A GPU needs a driver of release 580 or later.\n",
            self.arch(),
            library_of_c()
        );
        fs::write(folder.join("INSTALL.txt"), text).map_err(io)?;
        // A program of another architecture cannot be asked here.
        if self.cross.is_some() {
            return Ok(());
        }
        for (words, place) in [
            (&["man"][..], "share/man/man1/krylith.1"),
            (&["completions", "bash"], "share/bash-completion/completions/krylith"),
            (&["completions", "zsh"], "share/zsh/site-functions/_krylith"),
            (&["completions", "fish"], "share/fish/vendor_completions.d/krylith.fish"),
        ] {
            let to = folder.join(place);
            fs::create_dir_all(to.parent().unwrap_or(folder)).map_err(io)?;
            let text = read(Command::new(folder.join("bin/krylith")).args(words))?;
            fs::write(&to, text).map_err(io)?;
        }
        Ok(())
    }

    /// One archive, the same bytes from the same files: names in order, no owners, the commit's time.
    fn pack(&self, name: &str, to: &Path) -> Result<(), String> {
        let time = read(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root()));
        let time = time.map_or("0".into(), |text| text.trim().to_string());
        let mut tar = Command::new("tar");
        tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", &format!("--mtime=@{time}")]);
        tar.arg("-czf").arg(to).arg("-C").arg(&self.out).arg(name);
        shell(tar.env("GZIP", "-n")).map(drop)
    }

    fn sums(&self, files: &[PathBuf]) -> Result<(), String> {
        let names = files.iter().filter_map(|file| file.file_name());
        let text = read(Command::new("sha256sum").args(names).current_dir(&self.out))?;
        let to = self.out.join("SHA256SUMS");
        fs::write(&to, text).map_err(|e| format!("{}: {e}", to.display()))
    }
}

/// The C library that programs made here need.
fn library_of_c() -> String {
    let said = read(Command::new("ldd").arg("--version")).unwrap_or_default();
    let version = said.lines().next().and_then(|line| line.rsplit(' ').next());
    version.map_or("the C library of the machine that built it".into(), |v| format!("glibc {v} or later"))
}

/// Refuses a release of what is not committed, not named in the changelog, or cannot be packaged.
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

/// A section of this version.
fn is_named(changelog: &str, version: &str) -> bool {
    changelog.lines().any(|line| line.starts_with(&format!("## [{version}]")))
}

/// What building for another architecture needs.
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
    let arch = triple.split('-').next().unwrap_or_default();
    let compiler = format!("{}-gcc", triple.replace("-unknown-", "-"));
    if !works(Command::new(&compiler).arg("--version")) {
        let debian = arch.replace('_', "-");
        return Err(format!(
            "{compiler} is missing; on Debian and Ubuntu: apt-get install gcc-{debian}-linux-gnu"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(cross: Option<&str>) -> Release {
        Release {
            cross: cross.map(String::from),
            profile: ["release", "release"],
            out: PathBuf::new(),
            trial: false,
        }
    }

    #[test]
    fn another_architecture_has_its_folder_its_compiler_and_its_name() {
        let arm = release(Some("aarch64-unknown-linux-gnu"));
        assert_eq!(arm.arch(), "aarch64");
        assert!(arm.built().ends_with("aarch64-unknown-linux-gnu/release"));
        assert_eq!(arm.stripper(), "aarch64-linux-gnu-strip");
        let names = ["CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "CC_aarch64_unknown_linux_gnu"];
        assert_eq!(
            arm.variables(),
            names.map(|name| (name.to_string(), "aarch64-linux-gnu-gcc".to_string()))
        );
        assert!(release(None).variables().is_empty());
        assert_eq!(release(None).arch(), std::env::consts::ARCH);
        assert!(release(None).built().ends_with("release"));
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
