//! Ranks that are processes: what every communicator must do, and how a job ends when one of its ranks does.
//!
//! Started directly, this program starts itself through the launchers on this machine, once for each test;
//! started by a launcher, it is a rank. One binary serves all launchers.

mod common;
mod launchers;
mod namespaces;
mod ranks;

use krylith_core::comm::{Communicator, Message, Mpi};
use krylith_core::{Error, Result};
use launchers::Launcher;
use libtest_mimic::{Arguments, Failed, Trial};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

/// Every process of a job must be gone after this long, however it ends.
const GONE: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    if krylith_core::comm::launched() {
        let scenario = std::env::args().nth(1).unwrap_or_default();
        return rank(&scenario);
    }
    let mut args = Arguments::from_args();
    args.test_threads = Some(1); // a job has as many ranks as there are cores, and more
    let mut trials = vec![Trial::test("without_a_launcher_mpi_is_left_alone", left_alone)];
    let all = launchers::all();
    for launcher in &all {
        trials.extend(of(launcher, &all));
    }
    libtest_mimic::run(&args, trials).exit_code()
}

/// The tests of one launcher.
fn of(launcher: &Launcher, all: &[Launcher]) -> Vec<Trial> {
    type Test = fn(&Launcher) -> Result<(), Failed>;
    type Boxed = Box<dyn FnOnce(&Launcher) -> Result<(), Failed> + Send>;
    let trial = |name: String, test: Boxed| {
        let launcher = launcher.clone();
        Trial::test(format!("{}::{name}", launcher.name), move || test(&launcher))
    };
    let mut trials = Vec::new();
    // Only the library differs: the system's launcher runs all tests, the others those that depend on ABI or
    // launcher.
    let is_first = launcher.name == all[0].name;
    for &size in if is_first { &[1, 2, 3, 5, 8][..] } else { &[1, 4] } {
        let test = move |launcher: &Launcher| conforms(launcher, size);
        trials.push(trial(format!("conforms_on_{size}_ranks"), Box::new(test)));
    }
    let ends: [(&str, Test, bool); 11] = [
        ("rows_gather_on_leaders", leaders, true),
        ("a_leader_that_is_killed_ends_the_wait", leader_killed, false),
        ("errors_return_on_a_duplicate", duplicated, true),
        ("a_killed_rank_ends_the_job", killed, true),
        ("a_stopped_rank_ends_the_job_at_the_time_limit", stopped, true),
        ("a_slow_rank_is_named_at_the_time_limit", slow, false),
        ("a_rank_that_fails_ends_the_job", fails, true),
        ("a_rank_that_panics_ends_the_job", panics, false),
        ("a_rank_that_ends_without_finish_ends_the_job", leaves, false),
        ("a_rank_that_does_not_come_to_a_sum_is_named", absent, true),
        ("a_library_that_is_not_there_is_named", missing, true),
    ];
    let ends = ends.into_iter().filter(|(_, _, everywhere)| is_first || *everywhere);
    trials.extend(ends.map(|(name, test, _)| trial(name.into(), Box::new(test))));
    if let Some(options) = launcher.lets_live() {
        let test = move |launcher: &Launcher| killed_and_named(launcher, options);
        trials.push(trial("a_killed_rank_is_named_where_others_live".into(), Box::new(test)));
    }
    if let Some(library) = launchers::foreign_library(all, launcher) {
        let test = move |launcher: &Launcher| mismatched(launcher, &library);
        trials.push(trial("a_library_of_another_launcher_is_refused".into(), Box::new(test)));
    }
    #[cfg(feature = "lu")]
    trials.extend(direct(launcher, is_first));
    // Two hosts are two namespaces of this one, which Debian's launcher can reach.
    if launcher.name == "mpirun" {
        let hosts: [(&str, Test); 3] = [
            ("two_hosts_give_the_bits_of_threads", |_| namespaces::same_bits()),
            ("a_host_that_is_cut_off_is_named_by_all", |_| namespaces::cut_off()),
            ("a_host_that_dies_ends_the_job", |_| namespaces::dies()),
        ];
        let impossible = !namespaces::hosts::are_possible();
        trials.extend(
            hosts.map(|(name, test)| trial(name.into(), Box::new(test)).with_ignored_flag(impossible)),
        );
    }
    trials
}

/// The tests of direct factors. Those that need MUMPS are ignored where the ranks of this launcher have none.
#[cfg(feature = "lu")]
fn direct(launcher: &Launcher, is_first: bool) -> Vec<Trial> {
    let found = job(launcher, 1, "mumps", &[], "60").is_ok_and(|end| end.text().contains("MUMPS is here"));
    let sizes: &[usize] = if is_first { &[1, 2, 4, 8] } else { &[4] };
    let mut trials = Vec::new();
    type Test = Box<dyn FnOnce(&Launcher) -> Result<(), Failed> + Send>;
    let mut add = |name: String, possible: bool, test: Test| {
        let (name, launcher) = (format!("{}::{name}", launcher.name), launcher.clone());
        trials.push(Trial::test(name, move || test(&launcher)).with_ignored_flag(!possible));
    };
    for &size in sizes {
        for (over, possible) in [("mumps", found), ("auto", found), ("one", true)] {
            let test = move |launcher: &Launcher| {
                let end = job(launcher, size, &format!("direct-{over}"), &[], "60")?;
                end.must(end.output.status.success(), "expected success")?;
                end.must(end.text().matches("solved").count() == size, "expected a word of every rank")
            };
            add(format!("direct_factors_over_{over}_on_{size}_ranks"), possible, Box::new(test));
        }
    }
    add("a_mumps_that_is_not_there_is_named".into(), true, Box::new(mumps_missing));
    let sequential = sequential_mumps();
    let possible = sequential.is_some();
    let test = move |launcher: &Launcher| mumps_refused(launcher, &sequential.unwrap_or_default());
    add("a_sequential_mumps_is_refused".into(), possible, Box::new(test));
    trials
}

/// A sequential build of MUMPS, if one is installed.
#[cfg(feature = "lu")]
fn sequential_mumps() -> Option<String> {
    let names = ["libdmumps_seq-5.5.so", "libdmumps_seq-5.6.so", "libdmumps_seq-5.7.so", "libdmumps_seq.so"];
    let cache = Command::new("sh").args(["-c", "PATH=$PATH:/sbin:/usr/sbin ldconfig -p"]).output().ok()?;
    let cache = String::from_utf8_lossy(&cache.stdout).into_owned();
    names.into_iter().find(|name| cache.contains(&format!("{name} "))).map(String::from)
}

#[cfg(feature = "lu")]
fn mumps_missing(launcher: &Launcher) -> Result<(), Failed> {
    for (library, reason) in
        [("/nowhere/libdmumps.so", "cannot open"), ("libm.so.6", "the library does not define dmumps_c")]
    {
        mumps_refused_for(launcher, library, reason)?;
    }
    Ok(())
}

#[cfg(feature = "lu")]
fn mumps_refused(launcher: &Launcher, library: &str) -> Result<(), Failed> {
    mumps_refused_for(launcher, library, "is the sequential build of MUMPS")
}

/// `over=mumps` is an error with the reason, and `over=auto` solves without MUMPS and says why.
#[cfg(feature = "lu")]
fn mumps_refused_for(launcher: &Launcher, library: &str, reason: &str) -> Result<(), Failed> {
    for (scenario, succeeds) in [("direct-mumps", false), ("direct-without", true)] {
        let mut command = launcher.command(2);
        command.env("KRYLITH_MUMPS", library);
        let end = run(command, scenario, "20", &mut |_| Ok(()))?;
        end.must(end.output.status.success() == succeeds && end.took < GONE, "expected another end")?;
        let named = end.text().contains(&format!("KRYLITH_MUMPS={library}: ")) && end.text().contains(reason);
        end.must(named, "expected the library and the reason")?;
        end.must(succeeds || end.text().contains("lu:over=one does without"), "expected a remedy")?;
    }
    Ok(())
}

fn left_alone() -> Result<(), Failed> {
    let loaded = || std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.contains("/libmpi"));
    match Mpi::init() {
        Ok(None) if !loaded() && Mpi::library().is_none() => Ok(()),
        _ => Err("MPI was started or loaded".into()),
    }
}

/// How a job ended.
struct End {
    output: Output,
    took: Duration,
    /// The errors of its ranks. What they print is not always passed on when a job is aborted.
    errors: String,
}

impl End {
    fn text(&self) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (status, errors) = (self.output.status, &self.errors);
        format!("{status}\n{}{}\n{errors}", text(&self.output.stdout), text(&self.output.stderr))
    }
    fn must(&self, what: bool, name: &str) -> Result<(), Failed> {
        if what { Ok(()) } else { Err(format!("{name}, after {:?}: {}", self.took, self.text()).into()) }
    }
}

/// Runs `scenario` and waits for its end and for that of all its processes.
fn job(
    launcher: &Launcher,
    size: usize,
    scenario: &str,
    options: &[&str],
    limit: &str,
) -> Result<End, Failed> {
    let mut command = launcher.command(size);
    command.args(options);
    run(command, scenario, limit, &mut |_| Ok(()))
}

/// Adds `scenario` to a command that starts ranks, and waits for its end and for that of all its processes;
/// meanwhile it calls `meanwhile` repeatedly with the folder of their notes.
fn run(
    mut command: Command,
    scenario: &str,
    limit: &str,
    meanwhile: &mut dyn FnMut(&Path) -> Result<(), Failed>,
) -> Result<End, Failed> {
    let folder = tempfile::tempdir()?;
    command.arg(std::env::current_exe()?).arg(scenario);
    command.env("KRYLITH_TIMEOUT", limit).env("KRYLITH_TEST_FOLDER", folder.path());
    let begin = Instant::now();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let pid = child.id();
    // Far beyond all limits: a test that hangs must end too.
    while child.try_wait()?.is_none() {
        if begin.elapsed() > Duration::from_secs(120) {
            child.kill()?;
            return Err(format!("{scenario}: mpirun {pid} did not end in 120 s").into());
        }
        meanwhile(folder.path())?;
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut end = End { output: child.wait_with_output()?, took: begin.elapsed(), errors: String::new() };
    for entry in std::fs::read_dir(folder.path())? {
        let entry = entry?;
        let pid = entry.file_name().to_string_lossy().into_owned();
        while is_rank(&pid) {
            if begin.elapsed() > GONE {
                return Err(format!("process {pid} is left: {}", end.text()).into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        end.errors += &std::fs::read_to_string(entry.path())?;
    }
    Ok(end)
}

/// True if the process lives and is this program.
fn is_rank(pid: &str) -> bool {
    let own = std::env::current_exe().unwrap();
    std::fs::read_link(Path::new("/proc").join(pid).join("exe")).is_ok_and(|exe| exe == own)
}

fn conforms(launcher: &Launcher, size: usize) -> Result<(), Failed> {
    let end = job(launcher, size, "conform", &[], "60")?;
    end.must(end.output.status.success(), "expected success")?;
    end.must(end.text().matches("conforms").count() == size, "expected a word of every rank")
}

fn leaders(launcher: &Launcher) -> Result<(), Failed> {
    // The leader of the last call takes longer than the time limit.
    let end = job(launcher, 5, "leaders", &[], "3")?;
    end.must(end.output.status.success(), "expected success")?;
    end.must(end.text().matches("gathered").count() == 5, "expected a word of every rank")
}

fn leader_killed(launcher: &Launcher) -> Result<(), Failed> {
    let end = job(launcher, 4, "leader_killed", launcher.lets_live().unwrap_or_default(), "60")?;
    end.must(!end.text().contains("gathered") && end.took < GONE, "expected an end")
}

fn killed(launcher: &Launcher) -> Result<(), Failed> {
    for size in [2, 5] {
        let end = job(launcher, size, "killed", &[], "60")?;
        end.must(!end.output.status.success() && end.took < GONE, "expected an end")?;
    }
    Ok(())
}

fn killed_and_named(launcher: &Launcher, options: &[&str]) -> Result<(), Failed> {
    // Then mpirun says nothing about the end, and nobody else ends the others.
    let end = job(launcher, 3, "killed", options, "60")?;
    end.must(end.took < GONE, "expected an end")?;
    end.must(end.text().contains("rank 1: its process"), "expected the rank's name")
}

fn stopped(launcher: &Launcher) -> Result<(), Failed> {
    let end = job(launcher, 3, "stopped", &[], "3")?;
    end.must(!end.output.status.success() && end.took < GONE, "expected an end")?;
    end.must(end.took >= Duration::from_secs(3), "expected no end before the limit")?;
    end.must(end.text().contains("rank 1: its process"), "expected the rank's name")?;
    end.must(end.text().contains("is suspended"), "expected the cause")
}

fn slow(launcher: &Launcher) -> Result<(), Failed> {
    let end = job(launcher, 3, "slow", &[], "1")?;
    end.must(!end.output.status.success() && end.took < GONE, "expected an end")?;
    end.must(end.text().contains("rank 1: halo: no answer within 1 s"), "expected the rank's name")
}

fn absent(launcher: &Launcher) -> Result<(), Failed> {
    let end = job(launcher, 3, "absent", &[], "1")?;
    end.must(!end.output.status.success() && end.took < GONE, "expected an end")?;
    end.must(end.text().contains("rank 1: MPI_Iallgather: no answer within 1 s"), "expected the rank's name")
}

fn fails(launcher: &Launcher) -> Result<(), Failed> {
    let end = job(launcher, 5, "fails", &[], "60")?;
    end.must(end.output.status.code() == Some(3) && end.took < GONE, "expected exit code 3")?;
    let printed = String::from_utf8_lossy(&end.output.stderr).into_owned();
    end.must(printed.contains("a rank that fails"), "expected what it printed")
}

fn panics(launcher: &Launcher) -> Result<(), Failed> {
    let end = job(launcher, 3, "panics", &[], "60")?;
    end.must(!end.output.status.success() && end.took < GONE, "expected an end")
}

fn leaves(launcher: &Launcher) -> Result<(), Failed> {
    let end = job(launcher, 3, "leaves", &[], "60")?;
    end.must(!end.output.status.success() && end.took < GONE, "expected an end")?;
    end.must(end.output.status.signal().is_none(), "expected an exit code")
}

/// Ranks of one family's launcher with another library must fail: they must not run as single ranks that each
/// solve the whole system.
fn mismatched(launcher: &Launcher, library: &Path) -> Result<(), Failed> {
    let mut command = launcher.command(3);
    command.env("KRYLITH_MPI", library);
    let end = run(command, "conform", "20", &mut |_| Ok(()))?;
    end.must(!end.output.status.success() && end.took < GONE, "expected an end")?;
    let words = ["started as one of 3 ranks by", "belongs to another launcher", "KRYLITH_MPI=PATH"];
    end.must(words.iter().all(|words| end.text().contains(words)), "expected the reason")?;
    end.must(end.text().contains(&*library.to_string_lossy()), "expected the library's name")?;
    end.must(!end.text().contains("conforms"), "expected no work")
}

fn missing(launcher: &Launcher) -> Result<(), Failed> {
    for (library, reason) in
        [("/nowhere/libmpi.so", "cannot open"), ("libm.so.6", "no function MPI_Get_library_version")]
    {
        let mut command = launcher.command(2);
        command.env("KRYLITH_MPI", library);
        let end = run(command, "conform", "20", &mut |_| Ok(()))?;
        end.must(!end.output.status.success() && end.took < GONE, "expected an end")?;
        let named = end.text().contains(&format!("KRYLITH_MPI={library}: ")) && end.text().contains(reason);
        end.must(named && end.text().contains("one of 2 ranks"), "expected the library and the reason")?;
    }
    Ok(())
}

/// Duplicates are what solves in a host's MPI program work on.
fn duplicated(launcher: &Launcher) -> Result<(), Failed> {
    let end = job(launcher, 3, "duplicate", &[], "60")?;
    end.must(end.output.status.success() && end.took < GONE, "expected success")?;
    end.must(end.text().matches("goes on").count() == 3, "expected a word of every rank")
}

/// What one rank does.
fn rank(scenario: &str) -> ExitCode {
    note("");
    let mpi = match Mpi::init() {
        Ok(Some(mpi)) => mpi,
        Ok(None) => unreachable!("mpirun started this"),
        Err(e) => {
            note(&format!("{e}\n"));
            eprintln!("{e}");
            return ExitCode::from(e.exit_code());
        }
    };
    match play(&mpi, scenario).and_then(|()| mpi.finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            note(&format!("on rank {}: {e}\n", mpi.rank()));
            eprintln!("{e}");
            mpi.fail(&e.to_string());
            ExitCode::from(e.exit_code())
        }
    }
}

/// Leaves this process's number and its error for the test that started the job.
fn note(error: &str) {
    if let Some(folder) = std::env::var_os("KRYLITH_TEST_FOLDER") {
        let name = std::process::id().to_string();
        std::fs::write(Path::new(&folder).join(name), error).expect("a folder for notes");
    }
}

fn play(mpi: &Mpi, scenario: &str) -> Result<()> {
    let chosen = mpi.rank() == 1 % mpi.size();
    let signal = |name: &str| {
        let pid = std::process::id();
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status();
        assert!(sent.is_ok_and(|s| s.success()), "kill -{name}");
    };
    mpi.sum(&mut [1.0])?;
    match (scenario, chosen) {
        ("conform", _) => {
            assert!(!mpi.shares_address_space());
            ranks::conform(mpi);
            ranks::sums(mpi, |values| mpi.reduce(values), false);
            assert!(Mpi::init().is_err(), "a second start");
            mpi.finish()?;
            assert!(mpi.sum(&mut [1.0]).is_err(), "a sum after the end");
            println!("conforms");
            Ok(())
        }
        ("leaders", _) => {
            let comm: std::sync::Arc<dyn Communicator> = mpi.duplicate()?;
            for k in [2, 3, 8] {
                ranks::leaders::every_call(&comm, k)?;
            }
            ranks::leaders::slow(&comm, 8, &|| std::thread::sleep(Duration::from_secs(5)))?;
            println!("gathered");
            Ok(())
        }
        ("leader_killed", _) => {
            let comm: std::sync::Arc<dyn Communicator> = mpi.duplicate()?;
            ranks::leaders::slow(&comm, 2, &|| signal("KILL"))?;
            println!("gathered");
            Ok(())
        }
        ("duplicate", _) => {
            let (one, other) = (mpi.duplicate()?, mpi.duplicate()?);
            ranks::conform(&*one);
            mpi.sum(&mut [1.0])?; // no rank is still looking whether others have failed
            assert!(one.outlives_failure() && !mpi.outlives_failure());
            if chosen {
                one.fail("a test of ours");
            }
            let error = one.sum(&mut [1.0]).unwrap_err().to_string();
            assert!(error.starts_with("rank 1: "), "{error}");
            let mut ones = [1.0];
            other.sum(&mut ones)?;
            assert_eq!(ones, [mpi.size() as f64]);
            println!("goes on");
            Ok(())
        }
        ("killed", true) => {
            signal("KILL");
            Ok(())
        }
        ("stopped", true) => {
            signal("STOP");
            Ok(())
        }
        ("slow", true) => {
            mpi.channel(&ring(mpi))?;
            std::thread::sleep(Duration::from_secs(60));
            Ok(())
        }
        ("slow", false) => {
            let mut halo = mpi.channel(&ring(mpi))?;
            halo.start()?;
            halo.finish().map(drop)
        }
        ("absent", true) => {
            std::thread::sleep(Duration::from_secs(60));
            Ok(())
        }
        ("solve", _) => {
            let comm: std::sync::Arc<dyn Communicator> = mpi.duplicate()?;
            println!("{}", ranks::solve::answer(&comm)?);
            Ok(())
        }
        #[cfg(feature = "lu")]
        ("mumps", _) => {
            match krylith_core::comm::Mumps::probe(mpi) {
                Ok(library) => println!("MUMPS is here: {library}"),
                Err(why) => println!("no MUMPS: {why}"),
            }
            Ok(())
        }
        #[cfg(feature = "lu")]
        ("direct-mumps" | "direct-auto", _) => {
            let comm: std::sync::Arc<dyn Communicator> = mpi.duplicate()?;
            let over = &scenario["direct-".len()..];
            let alone = over == "auto" && mpi.size() == 1;
            ranks::direct::solves(&comm, over, if alone { "" } else { "MUMPS 5." })?;
            println!("solved");
            Ok(())
        }
        #[cfg(feature = "lu")]
        ("direct-one", _) => {
            let comm: std::sync::Arc<dyn Communicator> = mpi.duplicate()?;
            let way = if mpi.size() == 1 { "" } else { "own factors on rank 0: as lu:over=one asks" };
            ranks::direct::solves(&comm, "one", way)?;
            println!("solved");
            Ok(())
        }
        #[cfg(feature = "lu")]
        ("direct-without", _) => {
            let comm: std::sync::Arc<dyn Communicator> = mpi.duplicate()?;
            ranks::direct::solves(&comm, "auto", "own factors on rank 0: KRYLITH_MUMPS=")?;
            println!("solved, because {}", krylith_core::comm::Mumps::probe(mpi).unwrap_err());
            Ok(())
        }
        ("sums", _) => {
            note("begins\n");
            loop {
                mpi.sum(&mut [1.0])?;
            }
        }
        ("halos", _) => {
            let mut halo = mpi.channel(&ring(mpi))?;
            note("begins\n");
            loop {
                halo.start()?;
                halo.finish()?;
            }
        }
        ("fails", true) => Err(Error::invalid("a rank that fails")),
        ("panics", true) => panic!("a rank in panic"),
        ("leaves", true) => std::process::exit(0),
        _ => mpi.sum(&mut [1.0]),
    }
}

/// Every rank sends one number to the next and to the one before.
fn ring(mpi: &Mpi) -> Vec<Message> {
    let (rank, size) = (mpi.rank(), mpi.size());
    let mut others = vec![(rank + 1) % size, (rank + size - 1) % size];
    others.sort_unstable();
    others.dedup();
    let message = |(i, &rank): (usize, &usize)| Message { rank, send: i..i + 1, receive: i..i + 1 };
    others.iter().enumerate().map(message).collect()
}
