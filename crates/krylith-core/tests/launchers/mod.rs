//! The launchers of MPI on this machine, each with the library for its ranks: tests of ranks run under all of
//! them.
//!
//! `mpirun` as the shell finds it, and those of the installations whose folders `KRYLITH_TEST_MPI` lists, as
//! PATH lists folders. A library with the standard ABI in such an installation counts as one more.

use libtest_mimic::{Arguments, Trial};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// One launcher and one library.
#[derive(Clone)]
pub struct Launcher {
    /// `mpirun`, `openmpi`, `mpich`, `mpich_abi`.
    pub name: String,
    pub program: PathBuf,
    /// What `KRYLITH_MPI` has to name; the others are found beside the launcher or by the system.
    pub library: Option<PathBuf>,
    /// Open MPI's major version.
    open_mpi: Option<u32>,
}

/// All that work here.
pub fn all() -> Vec<Launcher> {
    let mut found: Vec<Launcher> = Launcher::new("mpirun", "mpirun".into()).into_iter().collect();
    let folders = std::env::var_os("KRYLITH_TEST_MPI").unwrap_or_default();
    for folder in std::env::split_paths(&folders).filter(|folder| !folder.as_os_str().is_empty()) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let program = folder.join("bin/mpirun");
        let launcher = Launcher::new(&name, program.clone());
        found.push(launcher.clone().unwrap_or_else(|| panic!("{} does not start", program.display())));
        let library = folder.join("lib/libmpi_abi.so.1");
        if let Some(launcher) = launcher.filter(|_| library.exists()) {
            found.push(Launcher { name: format!("{name}_abi"), library: Some(library), ..launcher });
        }
    }
    found
}

/// Runs tests that start jobs, one after the other. They are ignored without a launcher.
#[allow(dead_code)] // by some tests
pub fn run(tests: &[(&str, fn())]) -> ExitCode {
    run_where(true, tests)
}

/// Does the same, and ignores the tests where they are impossible.
#[allow(dead_code)] // by some tests
pub fn run_where(possible: bool, tests: &[(&str, fn())]) -> ExitCode {
    let mut args = Arguments::from_args();
    args.test_threads = Some(1); // the ranks of one job already outnumber the cores
    let none = !possible || all().is_empty();
    let trial = |&(name, test): &(&str, fn())| {
        let run = move || {
            test();
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(none)
    };
    libtest_mimic::run(&args, tests.iter().map(trial).collect()).exit_code()
}

impl Launcher {
    fn new(name: &str, program: PathBuf) -> Option<Self> {
        let output = Command::new(&program).arg("--version").output().ok().filter(|o| o.status.success())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version =
            text.split_once("(Open MPI) ").and_then(|(_, rest)| rest.split('.').next()?.parse().ok());
        Some(Self { name: name.into(), program, library: None, open_mpi: version })
    }

    pub fn is_open_mpi(&self) -> bool {
        self.open_mpi.is_some()
    }

    /// A word of its library's name.
    #[allow(dead_code)] // by some tests
    pub fn family(&self) -> &'static str {
        if self.is_open_mpi() { "Open MPI" } else { "MPICH" }
    }

    /// Returns the command that starts `ranks` ranks of the program added to it, on one host and possibly
    /// with more ranks than cores.
    pub fn command(&self, ranks: usize) -> Command {
        let mut command = Command::new(&self.program);
        command.args(self.options());
        command.args(["-n", &ranks.to_string()]);
        self.tell(&mut command);
        command
    }

    /// What makes a launcher work in a container: no network, and no reading of another process's memory.
    pub fn options(&self) -> Vec<&'static str> {
        let mut options = Vec::new();
        if self.is_open_mpi() {
            options.extend(["--oversubscribe", "--allow-run-as-root", "--bind-to", "none"]);
        }
        if self.open_mpi == Some(4) {
            options.extend(["--mca", "plm", "isolated", "--mca", "btl", "self,vader"]);
            options.extend(["--mca", "btl_vader_single_copy_mechanism", "none"]);
        }
        options
    }

    /// Options that let a job continue when a rank dies. The launchers of Open MPI 5 and MPICH support this
    /// too, but often hang or die of it.
    #[allow(dead_code)] // by some tests
    pub fn lets_live(&self) -> Option<&'static [&'static str]> {
        (self.open_mpi == Some(4)).then_some(&["--mca", "orte_enable_recovery", "1"][..])
    }

    /// The file of its library, where that lies beside it.
    fn library_file(&self) -> Option<PathBuf> {
        let beside = self.program.parent().and_then(Path::parent)?;
        let name = if self.is_open_mpi() { "libmpi.so.40" } else { "libmpi.so.12" };
        self.library.clone().or_else(|| Some(beside.join("lib").join(name)).filter(|path| path.exists()))
    }

    /// Names the library where it has to be named.
    pub fn tell(&self, command: &mut Command) {
        match &self.library {
            Some(library) => command.env("KRYLITH_MPI", library),
            None => command.env_remove("KRYLITH_MPI"),
        };
    }
}

/// A library of another family's launcher, which the ranks of this one must refuse.
#[allow(dead_code)] // by some tests
pub fn foreign_library(all: &[Launcher], launcher: &Launcher) -> Option<PathBuf> {
    let others = all.iter().filter(|other| other.is_open_mpi() != launcher.is_open_mpi());
    others.filter_map(Launcher::library_file).next()
}
