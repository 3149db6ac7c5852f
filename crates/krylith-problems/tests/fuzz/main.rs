//! Feeds damaged input to readers and parsers, which must return a value or an error.
//!
//! `cargo xtask fuzz` runs this for a long time; as a test it makes 2,000 runs of each target. A find is a
//! panic, a run longer than [`LONGEST`], more than [`MOST_BYTES`] of memory at once, or a wrong result.
//! Inputs are mutations of samples ([`mutate`]). An input that gives a new kind of result becomes a sample,
//! too; this replaces the coverage data of a compiler. The seed determines everything.

mod memory;
mod mutate;
mod samples;
mod targets;

use libtest_mimic::{Arguments, Failed, Trial};
use mutate::{Random, mutate};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use targets::{Target, targets};

/// A run that takes more processor time than this is a find.
const LONGEST: Duration = Duration::from_secs(2);
/// A run that takes more processor time than this ends the process.
const HANGS: Duration = Duration::from_secs(60);
/// A run that holds more bytes than this at once is a find.
const MOST_BYTES: usize = 512 << 20;
/// Largest number of samples kept for a target.
const MOST_SAMPLES: usize = 300;
/// Number of finds after which a target is stopped.
const MOST_FINDS: usize = 10;
/// Number of runs of a target in a test.
const TEST_RUNS: u64 = 2000;

/// Message of the last panic.
static PANIC: Mutex<String> = Mutex::new(String::new());

fn main() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(|l| format!("{}:{}", l.file(), l.line())).unwrap_or_default();
        let said = info.payload_as_str().unwrap_or("no message");
        *PANIC.lock().unwrap_or_else(|e| e.into_inner()) = format!("panic at {place}: {said}");
    }));
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|w| w == "fuzz") {
        std::process::exit(match long(&words[1..]) {
            Ok(0) => 0,
            Ok(_) => 1,
            Err(message) => {
                eprintln!("error: {message}");
                2
            }
        });
    }
    let limits = |target: &Target| Limits {
        runs: TEST_RUNS,
        seconds: None,
        seed: 1,
        folder: std::env::temp_dir().join(format!("krylith-fuzz-{}-{}", std::process::id(), target.name)),
    };
    let trial = |target: Target| {
        Trial::test(target.name, move || {
            let limits = limits(&target);
            let done = run(&target, &limits).map_err(Failed::from)?;
            if done.finds.is_empty() {
                let _ = std::fs::remove_dir_all(&limits.folder); // a temporary folder's loss is no failure
                return Ok(());
            }
            Err(Failed::from(done.finds.join("\n")))
        })
    };
    // Tests run one after the other, because memory is counted for the whole process.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let mut trials: Vec<Trial> = targets().into_iter().map(trial).collect();
    trials.push(Trial::test("what is planted is found", planted));
    libtest_mimic::run(&arguments, trials).exit();
}

/// Checks that faults of each kind, planted in a target, are found.
fn planted() -> Result<(), Failed> {
    let target = Target {
        name: "planted",
        samples: || vec![b"0000".to_vec()],
        words: &[b"panic", b"memory", b"wrong"],
        wrap: |input, _| input.to_vec(),
        intact: <[u8]>::to_vec,
        run: |bytes| match String::from_utf8_lossy(bytes) {
            text if text.contains("panic") => panic!("as planted"),
            text if text.contains("memory") => {
                drop(std::hint::black_box(vec![0u8; MOST_BYTES + 1]));
                Ok(())
            }
            text if text.contains("wrong") => Err(targets::Answer::Wrong("a contradiction".into())),
            _ => Ok(()),
        },
    };
    let folder = std::env::temp_dir().join(format!("krylith-fuzz-{}-planted", std::process::id()));
    let done = run(&target, &Limits { runs: TEST_RUNS, seconds: None, seed: 1, folder: folder.clone() })?;
    let mut said: Vec<_> =
        done.finds.iter().filter_map(|find| find.split_once(": ")).map(|find| find.1).collect();
    said.sort_unstable();
    let kept = std::fs::read_dir(&folder).map_err(|e| e.to_string())?.count();
    let _ = std::fs::remove_dir_all(&folder); // as above
    let words = ["512 MB held", "a contradiction", "as planted"];
    let found = said.len() == words.len() && words.iter().zip(&said).all(|(word, find)| find.contains(word));
    if found && kept == words.len() {
        Ok(())
    } else {
        Err(Failed::from(format!("{kept} inputs kept of {said:?}")))
    }
}

/// Limits of a fuzzing run, its seed, and the folder for inputs that are finds.
struct Limits {
    runs: u64,
    seconds: Option<f64>,
    seed: u64,
    folder: PathBuf,
}

/// Counts of a fuzzing run, and its finds.
struct Done {
    runs: u64,
    accepted: u64,
    answers: usize,
    samples: usize,
    finds: Vec<String>,
}

/// Runs `fuzz [TARGET…] [--runs N] [--seconds S] [--seed X] [--out DIR]`, and returns the number of finds.
fn long(words: &[String]) -> Result<usize, String> {
    let mut limits = Limits { runs: 1_000_000, seconds: None, seed: 1, folder: "fuzz".into() };
    let mut names = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number = |text: &String| text.parse().map_err(|_| format!("{word} {text}: a number is needed"));
        match &**word {
            "--runs" => limits.runs = number(value()?)?,
            "--seed" => limits.seed = number(value()?)?,
            "--seconds" => {
                let text = value()?;
                limits.seconds =
                    Some(text.parse().map_err(|_| format!("--seconds {text}: a number is needed"))?);
            }
            "--out" => limits.folder = value()?.into(),
            name => names.push(name),
        }
    }
    let mut chosen = targets();
    if let Some(name) = names.iter().find(|name| !chosen.iter().any(|t| t.name == **name)) {
        let known: Vec<_> = chosen.iter().map(|t| t.name).collect();
        return Err(format!("no target `{name}`; there are {}", known.join(", ")));
    }
    chosen.retain(|t| names.is_empty() || names.contains(&t.name));
    let mut finds = 0;
    for target in chosen {
        let begin = Instant::now();
        let done = run(&target, &limits)?;
        println!(
            "{:9} {:>9} runs in {:7.1} s: {:>8} accepted, {:>4} kinds of answers, {:>4} samples, {} finds",
            target.name,
            done.runs,
            begin.elapsed().as_secs_f64(),
            done.accepted,
            done.answers,
            done.samples,
            done.finds.len()
        );
        done.finds.iter().for_each(|find| println!("  {find}"));
        finds += done.finds.len();
    }
    Ok(finds)
}

/// Runs one target; each find comes with the path of its input.
fn run(target: &Target, limits: &Limits) -> Result<Done, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", limits.folder.display());
    std::fs::create_dir_all(&limits.folder).map_err(failed)?;
    // The present input is kept in a file, because a stack overflow or an abort leaves no other trace.
    let trying = limits.folder.join(format!("{}-trying", target.name));
    let current = std::fs::File::create(&trying).map_err(failed)?;
    let guard = Watchdog::start(trying.clone());

    let mut random = Random::new(limits.seed);
    let mut samples = (target.samples)();
    let given = samples.len();
    let mut done = Done { runs: 0, accepted: 0, answers: 0, samples: 0, finds: Vec::new() };
    let (mut answers, mut kinds) = (HashSet::new(), HashSet::new());
    let begin = Instant::now();
    let in_time = || limits.seconds.is_none_or(|s| begin.elapsed().as_secs_f64() < s);
    while done.runs < limits.runs && in_time() && done.finds.len() < MOST_FINDS {
        let input = mutate(&samples, given, target.words, &mut random);
        let bytes = (target.wrap)(&input, &mut random);
        current.write_all_at(&bytes, 0).and_then(|()| current.set_len(bytes.len() as u64)).map_err(failed)?;
        guard.begin();
        let (answer, find) = attempt(target, &bytes);
        guard.end();
        done.runs += 1;
        done.accepted += u64::from(answer.is_none() && find.is_none());
        if let Some(find) = find {
            // Each kind of find is reported once; finds that differ only in numbers or quoted input are one
            // kind.
            if kinds.insert(shape(&find)) {
                let path = limits.folder.join(format!("{}-{:016x}", target.name, hash(&bytes)));
                std::fs::write(&path, &bytes).map_err(failed)?;
                done.finds.push(format!("{}: {find}", path.display()));
            }
        } else if answers.insert(hash(shape(&answer.unwrap_or_default()))) && samples.len() < MOST_SAMPLES {
            samples.push(input);
        }
        done.answers = answers.len();
    }
    done.samples = samples.len();
    // Undamaged samples must be accepted; otherwise the other runs test little.
    for sample in &samples[..given] {
        if let Err(targets::Answer::Error(why) | targets::Answer::Wrong(why)) =
            (target.run)(&(target.intact)(sample))
        {
            done.finds.push(format!("a sample is refused: {why}"));
        }
    }
    drop(guard);
    std::fs::remove_file(&trying).map_err(failed)?;
    Ok(done)
}

/// Runs a target once. Returns the error message of the target, if any, and the description of a find, if
/// any.
fn attempt(target: &Target, bytes: &[u8]) -> (Option<String>, Option<String>) {
    let once = || catch_unwind(AssertUnwindSafe(|| (target.run)(bytes)));
    memory::reset();
    let begin = Instant::now();
    let result = once();
    let (mut time, most) = (begin.elapsed(), memory::most());
    if time > LONGEST {
        // Other processes may have used the cores: run again, and measure this process's processor time.
        let before = processor_time();
        let _ = once();
        time = processor_time().saturating_sub(before);
    }
    let (answer, wrong) = match result {
        Err(_) => (None, Some(PANIC.lock().unwrap_or_else(|e| e.into_inner()).clone())),
        Ok(Err(targets::Answer::Wrong(why))) => (None, Some(why)),
        Ok(Err(targets::Answer::Error(message))) => (Some(message), None),
        Ok(Ok(())) => (None, None),
    };
    let slow = (time > LONGEST).then(|| format!("a run of {:.1} s", time.as_secs_f64()));
    let large = (most > MOST_BYTES).then(|| format!("{} MB held at once", most >> 20));
    (answer, wrong.or(slow).or(large))
}

/// Reduces a message to its letters outside quotes, so that messages of one kind are equal.
fn shape(message: &str) -> String {
    let before = message.split('`').next().unwrap_or_default();
    let after = message.rsplit_once('`').map_or("", |(_, after)| after);
    before.chars().chain(after.chars()).filter(|c| c.is_alphabetic()).take(100).collect()
}

/// Returns the processor time of this process so far; on systems other than Linux, the time since the first
/// call.
fn processor_time() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let ticks = || {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        // After the program's name in brackets: state, ten numbers, then utime and stime in 1/100 s.
        let numbers = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(2);
        numbers.map(|n| n.parse::<u64>().ok()).sum::<Option<u64>>()
    };
    match ticks() {
        Some(ticks) => Duration::from_millis(10 * ticks),
        None => START.get_or_init(Instant::now).elapsed(),
    }
}

fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Ends the process if a run hangs.
struct Watchdog {
    /// Number of the current run; 0 between runs, `u64::MAX` when all are over.
    current: Arc<AtomicU64>,
    runs: AtomicU64,
}

impl Watchdog {
    fn start(trying: PathBuf) -> Self {
        let current = Arc::new(AtomicU64::new(0));
        let watched = current.clone();
        std::thread::spawn(move || watch(&watched, &trying));
        Self { current, runs: AtomicU64::new(0) }
    }

    fn begin(&self) {
        self.current.store(1 + self.runs.fetch_add(1, Relaxed), Relaxed);
    }

    fn end(&self) {
        self.current.store(0, Relaxed);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.current.store(u64::MAX, Relaxed);
    }
}

fn watch(current: &AtomicU64, trying: &Path) {
    let (mut seen, mut since) = (0, Duration::ZERO);
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let now = current.load(Relaxed);
        if now == u64::MAX {
            return;
        }
        if now == 0 || now != seen {
            (seen, since) = (now, processor_time());
        } else if processor_time().saturating_sub(since) > HANGS {
            println!("  {}: a run of more than {} s", trying.display(), HANGS.as_secs());
            std::process::exit(1);
        }
    }
}
