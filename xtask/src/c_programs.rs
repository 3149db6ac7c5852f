//! Tests an installed C library by programs in C, C++ and Fortran. They are compiled as users would, with
//! pkg-config, and with warnings as errors. Programs with ranks run under each installed MPI, all with the
//! same library.

use crate::c::PRIVATE;
use crate::shell::{read, root, shell, target, works};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compilers of the three languages, and the command that starts a program.
struct Tools {
    name: String,
    c: PathBuf,
    cpp: PathBuf,
    /// `None` if the MPI library has no Fortran module; the tests then use their own, which is written in C.
    fortran: Option<PathBuf>,
    run: Vec<String>,
}

impl Tools {
    /// Returns the tools for programs without ranks.
    fn plain() -> Self {
        let [c, cpp, fortran] = ["gcc", "g++", "gfortran"].map(PathBuf::from);
        Self { name: String::new(), c, cpp, fortran: Some(fortran), run: Vec::new() }
    }

    /// Returns the tools of every installed MPI: that of the system and those in `folders`, also with the
    /// standard ABI where the library offers it.
    fn of_ranks(folders: &[PathBuf]) -> Vec<Self> {
        let mut found = Vec::new();
        if works(Command::new("mpicc").arg("--version")) {
            let [c, cpp, fortran] = ["mpicc", "mpicxx", "mpifort"].map(PathBuf::from);
            let run = starts(Path::new("mpirun"));
            found.push(Self { name: "mpirun".into(), c, cpp, fortran: Some(fortran), run });
        }
        for folder in folders {
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            for abi in ["", "_abi"] {
                let [c, cpp] = ["mpicc", "mpicxx"].map(|program| folder.join(format!("bin/{program}{abi}")));
                if c.exists() {
                    let run = starts(&folder.join("bin/mpirun"));
                    found.push(Self { name: format!("{name}{abi}"), c, cpp, fortran: None, run });
                }
            }
        }
        found
    }
}

/// Returns the command that starts a program on three ranks, also in a container.
fn starts(launcher: &Path) -> Vec<String> {
    let version = read(Command::new(launcher).arg("--version")).unwrap_or_default();
    let mut words = vec![launcher.display().to_string()];
    if version.contains("Open MPI") {
        words.extend(["--oversubscribe", "--allow-run-as-root", "--bind-to", "none"].map(String::from));
    }
    words.extend(["-n", "3"].map(String::from));
    words
}

/// Compiles and runs the examples, the tests and the programs of docs/c.md.
pub fn test(prefix: &Path, launchers: &[PathBuf]) -> Result<String, String> {
    let programs = target().join("xtask-c-programs");
    fs::create_dir_all(&programs).map_err(|e| format!("{}: {e}", programs.display()))?;
    let package = root().join("crates/krylith-c");
    let mut sources = files(&package.join("examples"))?;
    sources.extend(files(&package.join("tests/programs"))?);
    sources.extend(of_document("docs/c.md", &programs)?);
    sources.retain(|file| file.extension().is_none_or(|e| e != "h"));
    let is_of_ranks = |file: &&PathBuf| name_of(file).starts_with("ranks");
    let (ranks, plain): (Vec<&PathBuf>, Vec<&PathBuf>) = sources.iter().partition(is_of_ranks);
    let mut count = 0;
    for source in plain {
        // Only one program per language is also linked to the static library.
        let ways: &[bool] = if name_of(source).starts_with("api") { &[false, true] } else { &[false] };
        for fixed in ways {
            Program { source, prefix, programs: &programs, fixed: *fixed, tools: &Tools::plain() }.test()?;
            count += 1;
        }
    }
    let tools = Tools::of_ranks(launchers);
    for (tools, source) in tools.iter().flat_map(|tools| ranks.iter().map(move |source| (tools, source))) {
        // With the static library, too, MPI is found at run time.
        let fixed = name_of(source).ends_with("_c");
        for fixed in if fixed { &[false, true][..] } else { &[false] } {
            Program { source, prefix, programs: &programs, fixed: *fixed, tools }.test()?;
            count += 1;
        }
    }
    let names: Vec<&str> = tools.iter().map(|tools| tools.name.as_str()).collect();
    let of_ranks =
        if names.is_empty() { "no MPI here".into() } else { format!("ranks by {}", names.join(", ")) };
    Ok(format!("{count} programs in C, C++ and Fortran; {of_ranks}"))
}

/// Extracts the complete programs of a document, each into a file.
fn of_document(name: &str, to: &Path) -> Result<Vec<PathBuf>, String> {
    let text = fs::read_to_string(root().join(name)).map_err(|e| format!("{name}: {e}"))?;
    let mut found = Vec::new();
    for (number, block) in text.split("\n```").enumerate() {
        let Some((language, code)) = block.split_once('\n') else { continue };
        let ending = match language {
            "c" | "cpp" => language,
            "fortran" => "f90",
            _ => continue,
        };
        if code.contains("int main(") || code.contains("end program") {
            let file = to.join(format!("document_{number}.{ending}"));
            fs::write(&file, code).map_err(|e| format!("{}: {e}", file.display()))?;
            found.push(file);
        }
    }
    if found.is_empty() { Err(format!("{name} has no programs")) } else { Ok(found) }
}

/// Source files of a folder, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    Ok(files)
}

/// Returns the name of a program, such as `api_c` for `api.c`.
fn name_of(source: &Path) -> String {
    source.file_name().unwrap_or_default().to_string_lossy().replace('.', "_")
}

/// One program, linked to the shared or to the static library.
struct Program<'a> {
    source: &'a Path,
    prefix: &'a Path,
    programs: &'a Path,
    fixed: bool,
    tools: &'a Tools,
}

impl Program<'_> {
    /// Compiles and runs the program.
    fn test(&self) -> Result<(), String> {
        let mut name = name_of(self.source);
        for more in [if self.fixed { "static" } else { "" }, &self.tools.name] {
            if !more.is_empty() {
                name = format!("{name}_{more}");
            }
        }
        let program = self.programs.join(&name);
        self.compile(&program)?;
        let mut words =
            self.tools.run.iter().map(String::as_str).chain([program.to_str().unwrap_or_default()]);
        let mut run = Command::new(words.next().unwrap_or_default());
        let said = read(run.args(words).current_dir(self.programs))?;
        println!("{name}:\n{}", said.trim_end());
        Ok(())
    }

    fn compile(&self, program: &Path) -> Result<(), String> {
        let warnings = ["-g", "-Wall", "-Werror"];
        let (compiler, flags) = match self.source.extension().and_then(|e| e.to_str()) {
            Some("c") => (&self.tools.c, &["-std=c11", "-Wpedantic", "-Wextra"][..]),
            Some("cpp") => (&self.tools.cpp, &["-std=c++17", "-Wpedantic", "-Wextra"][..]),
            _ => return self.compile_fortran(program),
        };
        let mut command = Command::new(compiler);
        command.args(flags).args(warnings).args(self.pkg_config("--cflags")?);
        command.arg(self.source).arg("-o").arg(program).args(self.libraries()?);
        shell(&mut command).map(drop)
    }

    /// Compiles a Fortran program. Module files go into a separate folder for each program, because those of
    /// different MPI libraries have equal names.
    fn compile_fortran(&self, program: &Path) -> Result<(), String> {
        let modules = program.with_extension("modules");
        fs::create_dir_all(&modules).map_err(|e| format!("{}: {e}", modules.display()))?;
        // The compiler warns that allocatable variables are not set, although they are.
        let flags = [
            "-std=f2018",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-uninitialized",
            "-Wno-maybe-uninitialized",
        ];
        let include = self.prefix.join("include");
        let own = ["krylith_c.f90", "krylith.f90"].map(|module| include.join(module));
        if let Some(compiler) = &self.tools.fortran {
            let mut command = Command::new(compiler);
            command.args(flags).arg("-J").arg(&modules).args(own).arg(self.source);
            return shell(command.arg("-o").arg(program).args(self.libraries()?)).map(drop);
        }
        let stand_in = root().join("crates/krylith-c/tests/mpi_f08");
        let own_c = modules.join("mpi_f08_c.o");
        let mut c = Command::new(&self.tools.c);
        shell(c.arg("-c").arg(stand_in.join("mpi_f08.c")).arg("-o").arg(&own_c))?;
        let sources =
            [stand_in.join("mpi_f08.f90")].into_iter().chain(own).chain([self.source.to_path_buf()]);
        let mut linked = vec![own_c];
        for source in sources {
            let object = modules.join(name_of(&source)).with_extension("o");
            let mut command = Command::new("gfortran");
            command.args(flags).arg("-J").arg(&modules).arg("-c").arg(&source).arg("-o").arg(&object);
            shell(&mut command)?;
            linked.push(object);
        }
        let mut link = Command::new(&self.tools.c);
        link.args(linked).arg("-o").arg(program).args(self.libraries()?).args(["-lgfortran", "-lm"]);
        shell(&mut link).map(drop)
    }

    /// Returns the arguments that link the library, and that let the program find it and MPI at run time.
    fn libraries(&self) -> Result<Vec<String>, String> {
        let mut words = match self.fixed {
            true => vec![self.prefix.join("lib/libkrylith.a").display().to_string()],
            false => self.pkg_config("--libs")?,
        };
        if self.fixed {
            words.extend(PRIVATE.split(' ').map(String::from));
        } else {
            words.push(format!("-Wl,-rpath,{}", self.prefix.join("lib").display()));
        }
        if let Some(folder) =
            self.tools.c.parent().and_then(Path::parent).filter(|_| self.tools.c.is_absolute())
        {
            words.push(format!("-Wl,-rpath,{}", folder.join("lib").display()));
        }
        Ok(words)
    }

    fn pkg_config(&self, what: &str) -> Result<Vec<String>, String> {
        let path = self.prefix.join("lib/pkgconfig");
        let text = read(Command::new("pkg-config").args([what, "krylith"]).env("PKG_CONFIG_PATH", path))?;
        Ok(text.split_whitespace().map(String::from).collect())
    }
}
