//! `mpirun -n P krylith solve …`: the same solutions as one process, and failures that reach every rank. One
//! binary runs under every launcher on this machine.

mod common;
#[path = "../../krylith-core/tests/launchers/mod.rs"]
mod launchers;

use common::{Folder, Ran};
use launchers::Launcher;
use serde_json::Value;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    launchers::run(&[
        ("ranks_solve_as_one_process", ranks_solve_as_one_process),
        ("subdomains_are_those_of_one_process", subdomains_are_those_of_one_process),
        ("boxes_are_as_good_as_slabs", boxes_are_as_good_as_slabs),
        ("what_is_wrong_on_any_rank_ends_all_with_its_exit_code", what_is_wrong_on_any_rank_ends_all),
        ("different_inputs_are_refused", different_inputs_are_refused),
        ("a_killed_rank_ends_the_job", a_killed_rank_ends_the_job),
        ("an_interrupted_set_up_ends_the_job", an_interrupted_set_up_ends_the_job),
        ("newton_finds_the_x_of_one_process", newton_finds_the_x_of_one_process),
        ("a_library_that_is_not_the_launchers_is_refused", a_library_that_is_not_the_launchers_is_refused),
    ])
}

fn on_ranks(launcher: &Launcher, folder: &Folder, ranks: usize, line: &str) -> Ran {
    let mut command = launcher.command(ranks);
    command.arg(env!("CARGO_BIN_EXE_krylith")).args(line.split_whitespace());
    Ran::new(command.current_dir(folder.path("")).output().unwrap())
}

fn report(folder: &Folder, name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(folder.path(name)).unwrap()).unwrap()
}

fn residuals(report: &Value) -> Vec<f64> {
    report["residuals"].as_array().unwrap().iter().map(|r| r.as_f64().unwrap()).collect()
}

/// A method and a preconditioner that do not depend on the partition of the rows.
const GMRES: &str = "--method gmres --precond jacobi";

/// Residuals of the first cycle and true residuals agree to 1e-10, and x is the same vector in the user's
/// order.
fn ranks_solve_as_one_process() {
    let folder = Folder::new();
    folder.line("problem laplace:9x8x7 --out grid --format mtx").works();
    folder.line("problem stokes:5x5x5,scheme=radau-iia-2 --out duct").works();
    // A path with free ends, whose null space is the constant vectors.
    let n = 40;
    let entries = (1..n).flat_map(|i| [(i, i + 1, -1.0), (i + 1, i, -1.0), (i, i, 1.0), (i + 1, i + 1, 1.0)]);
    let entries: String = entries.map(|(i, j, v)| format!("{i} {j} {v}\n")).collect();
    folder.write(
        "free.mtx",
        format!("%%MatrixMarket matrix coordinate real general\n{n} {n} {}\n{entries}", 4 * (n - 1)),
    );
    let ends: Vec<String> = (0..n).map(|i| format!("{}\n", (i == 0) as i32 - (i == n - 1) as i32)).collect();
    folder.write("ends.mtx", format!("%%MatrixMarket matrix array real general\n{n} 1\n{}", ends.concat()));
    let systems = [
        "stokes:6x5x7,scheme=lobatto-iiic-3",
        "grid/A.mtx --rhs random:3 --block 2",
        "grid/system.toml --block 3 --ordering segregated --rhs random:4 --partition graph",
        "duct/system.toml --partition rows",
        "stokes:5x5x5 --precision f32 --rtol 1e-9",
        "laplace:9x8x7,block=2 --rhs random:5 --partition boxes",
        "grid/system.toml --partition boxes",
        "stokes:6x5x7,scheme=lobatto-iiic-3 --partition boxes",
        "free.mtx --rhs ends.mtx --nullspace constant --restart 50",
        "grid/system.toml --block 3 --ordering segregated --rhs random:4 --partition graph --share nz:3",
        "laplace:9x8x7,block=2 --rhs random:5 --share lra+rc",
    ];
    let launchers = launchers::all();
    for (place, system) in systems.into_iter().enumerate() {
        let alone = folder
            .line(&format!("solve {system} {GMRES} --device cpu --quiet --report one.json --out one.npy"));
        alone.works();
        let one = report(&folder, "one.json");
        // The first launcher runs all systems and numbers of ranks; the others differ only in transport.
        let first = [1, 2, 3, 8].map(|ranks| (&launchers[0], ranks)).into_iter();
        let others = launchers.iter().skip(1).filter(|_| place < 2).map(|launcher| (launcher, 3));
        for (launcher, ranks) in first.chain(others) {
            let case = format!("{system} on {ranks} ranks of {}", launcher.name);
            let line = format!("solve {system} {GMRES} --device cpu --report many.json --out many.npy");
            let ran = on_ranks(launcher, &folder, ranks, &line);
            assert_eq!(ran.code, 0, "{case}: {ran:#?}");
            assert_eq!(ran.out.matches("converged after").count(), 1, "one rank speaks: {ran:#?}");
            let many = report(&folder, "many.json");
            assert_eq!(many["run"]["ranks"], ranks, "{case}");
            let share = system.split_once("--share ").map_or("halo", |(_, share)| share);
            let share = Some(share).filter(|_| ranks > 1);
            let used = many["run"]["share"].as_str().map(|used| used.get(..share.map_or(0, str::len)));
            assert_eq!(used, share.map(Some), "{case}");
            let library = many["versions"]["mpi"].as_str().unwrap_or_default();
            assert!(library.contains(launcher.family()) && library.contains("libmpi"), "{case}: {library}");
            assert_eq!(many["system"]["rows"], one["system"]["rows"], "{case}");
            let (a, b) = (residuals(&one), residuals(&many));
            for (k, (a, b)) in a.iter().zip(&b).enumerate().take(31) {
                assert!((a - b).abs() <= 1e-10, "{case}: iteration {k}: {a:e} and {b:e}");
            }
            let last = |r: &Value| r["true_relative_residual"].as_f64().unwrap();
            assert!((last(&one) - last(&many)).abs() <= 1e-8, "{case}");
            let read = |name| krylith_core::io::numpy::read(folder.path(name)).unwrap();
            let (x, y) = (read("one.npy"), read("many.npy"));
            assert_eq!(x.shape(), y.shape(), "{case}");
            let d = x.values().iter().zip(y.values()).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt();
            let norm = x.values().iter().map(|x| x * x).sum::<f64>().sqrt();
            assert!(d <= 1e-3 * norm, "{case}: {d:e} of {norm:e}");
        }
    }
}

/// Ranks own whole subdomains, so the preconditioner is that of one process: boxes within slabs of rows,
/// boxes and graph partitions distributed over ranks, and files.
fn subdomains_are_those_of_one_process() {
    let launcher = &launchers::all()[0];
    let folder = Folder::new();
    folder.line("problem laplace:9x8x7 --out grid --format mtx").works();
    for (system, rows, ranks) in [
        ("laplace:8x8x24", 64, &[1, 2, 3][..]),
        ("laplace:9x8x7", 60, &[2, 3]),
        ("laplace:16x16x8 --partition boxes", 64, &[4]),
        ("stokes:6x5x7,scheme=radau-iia-2", 20, &[2, 3]),
        ("radiation:7x8x9,components=3", 50, &[3]),
        ("grid/A.mtx --rhs random:3", 60, &[2, 3]),
        ("grid/system.toml", 40, &[3]),
        ("random:400,block=3", 30, &[2]),
        ("stokes:6x5x7,scheme=radau-iia-2 --equilibrate", 20, &[3]),
    ] {
        let options = format!("--precond ildu0:rows={rows} --method bicgstab --rtol 1e-8 --device cpu");
        folder.line(&format!("solve {system} {options} --report one.json")).works();
        let one = report(&folder, "one.json");
        assert!(one["preconditioner"]["parameters"]["subdomains"].as_u64().unwrap() > 3, "{one:#}");
        for &ranks in ranks {
            let case = format!("{system} on {ranks} ranks");
            let ran =
                on_ranks(launcher, &folder, ranks, &format!("solve {system} {options} --report many.json"));
            assert!(!ran.works().out.contains("subdomains follow ranks"), "{case}: {ran:#?}");
            let many = report(&folder, "many.json");
            for key in ["subdomains", "levels", "dropped"] {
                let of = |r: &Value| r["preconditioner"]["parameters"][key].as_f64().unwrap();
                assert!((of(&one) - of(&many)).abs() < 1e-12, "{case}: {key}, {one:#} {many:#}");
            }
            for (k, (a, b)) in residuals(&one).iter().zip(&residuals(&many)).enumerate().take(6) {
                assert!((a - b).abs() <= 1e-10, "{case}: iteration {k}: {a:e} and {b:e}");
            }
            assert_eq!(one["iterations"], many["iterations"], "{case}");
        }
    }
    // Fewer subdomains than ranks: each rank partitions its own rows, and a note says so.
    let ran = on_ranks(launcher, &folder, 2, "solve laplace:6x6x6");
    assert!(ran.works().out.contains("subdomains follow ranks"), "{ran:#?}");
}

/// Ranks with boxes of a grid, which cut tiles and subdomains of the whole grid, need about as many
/// iterations as ranks with slabs, and no rank has the whole system. `auto` takes boxes where slabs are thin.
fn boxes_are_as_good_as_slabs() {
    let launcher = &launchers::all()[0];
    let folder = Folder::new();
    folder.line("problem laplace:17x15x16 --out grid --format mtx").works();
    let iterations = |system: &str, options: &str| {
        let ran = on_ranks(launcher, &folder, 4, &format!("solve {system} {options} --report r.json"));
        ran.works();
        let report = report(&folder, "r.json");
        let events = report["events"].to_string();
        assert!(
            !(options.contains("boxes") && events.contains("whole system")),
            "{system} {options}: {events}"
        );
        assert_eq!(events.contains("travel to their boxes"), options.contains("boxes"), "{events}");
        report["iterations"].as_u64().unwrap()
    };
    for system in ["laplace:17x15x16", "grid/A.mtx", "stokes:8x7x9", "elasticity:9x7x8"] {
        let mut preconds = vec!["ildu:rows=64", "jacobi"];
        if system.starts_with("laplace") {
            preconds.push("block-jacobi:tile=8x4x4");
        }
        for precond in preconds {
            let options = format!("--precond {precond} --method bicgstab --rtol 1e-8 --device cpu");
            let slabs = iterations(system, &format!("{options} --partition rows"));
            let boxes = iterations(system, &format!("{options} --partition boxes:2x2x1"));
            assert!(boxes.abs_diff(slabs) <= 2 + slabs / 4, "{system} {precond}: {boxes} and {slabs}");
        }
    }
    let ran = on_ranks(launcher, &folder, 4, "solve laplace:20x20x4 --precond jacobi --report r.json");
    ran.works();
    let events = report(&folder, "r.json")["events"].to_string();
    assert!(events.contains("boxes of the grid: at most 0.20 ghosts per node"), "{events}");
    let refused = |system: &str, named: &str| {
        let ran = on_ranks(launcher, &folder, 3, &format!("solve {system}"));
        ran.fails(2, &[named]);
        assert_eq!(ran.err.matches(named).count(), 1, "{ran:#?}");
    };
    refused("random:300 --partition boxes", "structured grid");
    refused("grid/A.mtx --partition boxes:2x1x1", "2 boxes for 3 ranks");
    refused("laplace:2x2x2 --partition boxes", "no 3 boxes");
}

fn what_is_wrong_on_any_rank_ends_all() {
    let folder = Folder::new();
    folder.write("A.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n2 2 oops\n");
    for launcher in launchers::all() {
        on_ranks(&launcher, &folder, 2, "solve A.mtx").fails(2, &["A.mtx:4"]);
        on_ranks(&launcher, &folder, 9, "solve laplace:2x2x2").fails(2, &["9 ranks for 8 block rows"]);
        on_ranks(&launcher, &folder, 2, "solve laplace:4x4x4 --out nowhere/x.npy").fails(2, &["nowhere"]);
        on_ranks(&launcher, &folder, 3, "solve laplace:9x9x9 --max-iters 2").fails(1, &["2 iterations"]);
        on_ranks(&launcher, &folder, 3, "solve laplace:5x5x5 --nullspace constant")
            .fails(2, &["A does not map constant vectors to zero"]);
        if !std::path::Path::new("/proc/driver/nvidia/version").exists() {
            on_ranks(&launcher, &folder, 2, "solve laplace:4x4x4 --device cuda").fails(3, &["libcuda.so.1"]);
        }
    }
}

/// Ranks that were started with different systems or options stop before they solve anything.
fn different_inputs_are_refused() {
    let folder = Folder::new();
    folder.line("problem laplace:4x4x4 --out a --format mtx").works();
    folder.line("problem laplace:4x4x5 --out b --format mtx").works();
    for launcher in launchers::all() {
        for (one, other, what) in [
            ("solve laplace:4x4x4", "solve laplace:4x4x5", "a system"),
            ("solve a/A.mtx", "solve b/A.mtx", "a system"),
            ("solve laplace:4x4x4", "solve laplace:4x4x4 --rtol 1e-3", "options"),
        ] {
            let mut command = launcher.command(1);
            let krylith = env!("CARGO_BIN_EXE_krylith");
            command.arg(krylith).args(one.split_whitespace());
            command.args([":", "-n", "1", krylith]).args(other.split_whitespace());
            let ran = Ran::new(command.current_dir(folder.path("")).output().unwrap());
            ran.fails(2, &["rank 1 was given", what]);
        }
    }
}

/// A rank is killed during a solve that would take minutes: short cycles on a fine grid converge slowly.
fn a_killed_rank_ends_the_job() {
    let system = "laplace:96x96x96 --rtol 1e-12 --restart 3 --max-iters 1000000 --precond none";
    ends_the_job(system, "-KILL");
}

/// Ctrl-C ends one rank during the set-up, when there is no x to keep: the other ranks do not wait for it.
fn an_interrupted_set_up_ends_the_job() {
    ends_the_job("laplace:48x48x48 --precond ildu:fill=20,cut=whole", "-INT");
}

/// After a signal to one rank mpirun fails, and within 30 s no process of the job remains.
fn ends_the_job(system: &str, signal: &str) {
    for launcher in launchers::all() {
        ends_the_job_of(&launcher, system, signal);
    }
}

fn ends_the_job_of(launcher: &Launcher, system: &str, signal: &str) {
    let folder = Folder::new();
    let mut command = launcher.command(3);
    command.arg(env!("CARGO_BIN_EXE_krylith"));
    command.args(format!("solve {system} --device cpu --threads 1").split(' '));
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut job = command.current_dir(folder.path("")).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let ranks = loop {
        let ranks = krylith_below(job.id());
        if ranks.len() == 3 {
            break ranks;
        }
        assert!(Instant::now() < deadline, "the ranks did not start");
        std::thread::sleep(Duration::from_millis(50));
    };
    std::thread::sleep(Duration::from_secs(3)); // long enough to be in the solve
    if job.try_wait().unwrap().is_some() {
        panic!("the job must still run: {:#?}", Ran::new(job.wait_with_output().unwrap()));
    }
    assert!(Command::new("kill").args([signal, &ranks[1].to_string()]).status().unwrap().success());
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = job.try_wait().unwrap() {
            break status;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "mpirun still runs");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(!status.success());
    while ranks.iter().any(|pid| alive(*pid)) {
        assert!(begin.elapsed() < Duration::from_secs(30), "a rank still runs");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the processes of the command below `parent`; launchers start other processes in between.
fn krylith_below(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    let children: Vec<u32> = numbers.filter(|pid| stat(*pid).is_some_and(|(_, of)| of == parent)).collect();
    let is_command =
        |pid: &u32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("krylith"));
    let (mut found, others): (Vec<u32>, Vec<u32>) = children.into_iter().partition(is_command);
    found.extend(others.into_iter().flat_map(krylith_below));
    found
}

/// Returns true for a process that exists and is not a zombie.
fn alive(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != 'Z' && state != 'X')
}

/// Returns the state and the parent of a process.
fn stat(pid: u32) -> Option<(char, u32)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = text[text.rfind(')')? + 2..].split_whitespace();
    Some((words.next()?.chars().next()?, words.next()?.parse().ok()?))
}

/// Ranks share the mesh, and rank 0 writes and prints as one process does.
fn newton_finds_the_x_of_one_process() {
    let (folder, launcher) = (Folder::new(), &launchers::all()[0]);
    let read = |name| krylith_core::io::numpy::read(folder.path(name)).unwrap();
    for (system, ranks) in [
        ("cavity:13x11 --continuation 10,40 --partition boxes", 4),
        ("ventricle:400,steps=2", 3),
        ("artery:300,re=50,steps=2", 2),
    ] {
        let options = "--newton-rtol 1e-10 --precond ildu --device cpu";
        folder
            .line(&format!("newton {system} {options} --out one.npy").replace(" --partition boxes", ""))
            .works();
        let line = format!(
            "newton {system} {options} --out many.npy --report many.json --vtu many.vtu --picture m.png"
        );
        let ran = on_ranks(launcher, &folder, ranks, &line);
        assert_eq!(ran.code, 0, "{system}: {ran:#?}");
        assert_eq!(ran.out.matches("converged after").count(), 1, "one rank speaks: {ran:#?}");
        let (x, y) = (read("one.npy"), read("many.npy"));
        assert_eq!(x.shape(), y.shape(), "{system}");
        let largest = x.values().iter().fold(0.0f64, |m, x| m.max(x.abs()));
        let far = x.values().iter().zip(y.values()).fold(0.0f64, |m, (x, y)| m.max((x - y).abs()));
        assert!(far <= 1e-6 * largest, "{system}: {far:e} of {largest:e}");
        let report = report(&folder, "many.json");
        assert_eq!(report["linear"]["ranks"], ranks, "{system}");
        assert_eq!(report["problem"]["unknowns"], x.values().len(), "{system}");
        assert!(folder.path("m.png").exists(), "{system}");
        let steps = system.contains("steps=2");
        assert!(folder.path(if steps { "many-2.vtu" } else { "many.vtu" }).exists(), "{system}");
    }
    // One rank prints an error that all ranks share.
    let ran = on_ranks(launcher, &folder, 2, "newton cavity:4x4 --partition boxes:1x1x2 --out u.npy");
    ran.fails(2, &["more boxes than nodes along an axis"]);
    assert_eq!(ran.err.matches("more boxes").count(), 1, "{ran:#?}");
    let ran = on_ranks(launcher, &folder, 2, "newton cavity:13x11,re=5000 --max-steps 1 --device cpu");
    assert_eq!(ran.code, 1, "{ran:#?}");
}

/// Ranks that find another family's library, or none, report it before they solve anything.
fn a_library_that_is_not_the_launchers_is_refused() {
    let (folder, all) = (Folder::new(), launchers::all());
    let refused = |launcher: &Launcher, library: &str, words: &[&str]| {
        let mut command = launcher.command(2);
        command.env("KRYLITH_MPI", library).arg(env!("CARGO_BIN_EXE_krylith"));
        command.args(["solve", "laplace:4x4x4", "--out", "x.npy"]).current_dir(folder.path(""));
        Ran::new(command.output().unwrap()).fails(3, words);
        assert!(!folder.path("x.npy").exists());
    };
    for launcher in &all {
        refused(
            launcher,
            "/nowhere/libmpi.so",
            &["started as one of 2 ranks", "KRYLITH_MPI=/nowhere/libmpi.so"],
        );
        if let Some(library) = launchers::foreign_library(&all, launcher) {
            refused(launcher, &library.to_string_lossy(), &["one of 2 ranks", "belongs to another launcher"]);
        }
    }
}
