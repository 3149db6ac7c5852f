//! Time to solution: everything from arrays in memory to x, by part. The same run measures what a user would
//! write with the vendor's libraries, for comparison.
//!
//! Each variant runs `rounds` times in turn with the others, after one discarded run (which compiles kernels
//! and loads libraries); reports give medians. Arrays are copied and converted before the clock starts. Every
//! x is checked by b − A x on the host; a variant without a solution has a row without times. The suite
//! starts a fresh process to measure the time of a whole process.

mod graphs;
pub(crate) mod ours;
pub(crate) mod report;
pub(crate) mod system;

pub(crate) use ours::Answer;
pub use system::names as answer_systems;

use crate::options::{self, Asked};
use crate::platform::Platform;
use crate::publish::{self, Report, meta};
use crate::samples::Samples;
use krylith_core::matrix::Bsr;
use krylith_core::{Error, Options, Result};
use serde_json::{Value, json};
use std::time::Instant;
use system::System;

/// The tolerance on ‖b − A x‖/‖b‖.
pub(crate) const RTOL: f64 = 1e-8;

/// A variant that solves a system, with all its times.
pub(crate) struct Way {
    pub name: String,
    /// The reason if there are no times.
    pub failure: Option<String>,
    pub taken: Vec<Answer>,
    pub residual: f64,
    /// True for Krylith with named options.
    pub named: bool,
}

/// A system and the variants that solve it.
pub(crate) struct Found {
    pub name: String,
    pub spec: String,
    pub rows: usize,
    pub order: usize,
    pub stored: usize,
    pub symmetric: bool,
    pub made: f64,
    pub from_file: bool,
    pub ways: Vec<Way>,
}

/// Runs a variant once.
pub(crate) type Take<'a> = Box<dyn FnMut() -> Result<Answer> + 'a>;
/// A variant with its name.
pub(crate) type Named<'a> = (String, Take<'a>);

/// The variant that leaves all choices to Krylith.
const OURS: &str = "Krylith";
/// A variant with named options is stopped after this multiple of the automatic variant's time, but not
/// before [`SHORTEST`].
const SLOWER: f64 = 3.0;
/// Least time limit of such a variant in seconds. If the automatic variant has no solution, the limit is
/// [`LONGEST`].
const SHORTEST: f64 = 0.2;
const LONGEST: f64 = 20.0;

/// Iteration limit of a baseline.
const MOST: usize = 10_000;

/// Runs the suite; `progress` receives a line before each part.
///
/// # Errors
/// Returns an error if a device is missing, a word names no system, or an output file cannot be written. A
/// variant without a solution is no error: it is listed under `failures`.
pub fn answer(options: &Asked, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    options.check()?;
    options::on_device!(options, |p| run(p, options, progress))
}

fn run<P: Platform>(p: &P, options: &Asked, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let (scale, rounds) = (options.scale(1.0 / 64.0), options.rounds.unwrap_or(5));
    let wanted = system::wanted(&options.systems)?;
    let more = json!({ "scale": scale, "rounds": rounds, "rtol": RTOL });
    let mut meta = meta("answer", &options.command, p.describe(), more);
    meta["process"] = processes(options, rounds, progress);
    let (mut found, mut made) = (Vec::new(), Report::default());
    for wanted in &wanted {
        let Some(system) = system::make(wanted, scale, options.rock.as_deref())? else { continue };
        progress(&format!("{}: {}", system.name, system.spec));
        found.push(one(p, &system, options, rounds, progress)?);
        // The next part may take long: keep the results so far in case it is interrupted.
        made = report::make(&found, meta.clone());
        let json = serde_json::to_string_pretty(&made.json).unwrap_or_default();
        let texts = [("answer.md".into(), made.tables.as_str()), ("answer.json".into(), &json)];
        made.files = publish::write(options.out.as_deref(), &texts)?;
    }
    Ok(made)
}

/// Returns the seconds of whole processes that solve a small system, on the host and on the device.
fn processes(options: &Asked, rounds: usize, progress: &mut dyn FnMut(&str)) -> Value {
    let Some(program) = &options.program else { return Value::Null };
    let mut devices = vec!["cpu".to_string()];
    devices.extend(options.device.is_gpu().then(|| options.device.text(1)));
    let measure = |device: &String| {
        progress(&format!("a fresh process that solves a small system on {device}"));
        let once = || -> Option<f64> {
            let begin = Instant::now();
            let mut command = std::process::Command::new(program);
            let done = command.args(["solve", "laplace:12x12x12", "--quiet", "--device", device]).output();
            done.ok().filter(|d| d.status.success()).map(|_| begin.elapsed().as_secs_f64())
        };
        let all: Option<Vec<f64>> = (0..=rounds.max(5)).map(|_| once()).collect();
        // The first process reads the program from disk, so it is discarded.
        json!({ "device": device, "seconds": all.map(|all| Samples(all[1..].to_vec()).json()) })
    };
    devices.iter().map(measure).collect()
}

/// Measures every variant on one system.
fn one<P: Platform>(
    p: &P,
    system: &System,
    options: &Asked,
    rounds: usize,
    progress: &mut dyn FnMut(&str),
) -> Result<Found> {
    let a = system.assembled()?;
    let (block_rows, order) = system.shape();
    let rhs = &vec![1.0; block_rows * order][..];
    let symmetric = system::symmetric(&a);
    let asked = |count| -> Result<Options> {
        format!("{} rtol={RTOL:e}", options.device.options(count, options.threads)).parse()
    };
    let several = options.device.gpus().len();
    let (asked, all) = (asked(1)?, asked(several)?);
    let mut ways: Vec<Named> = vec![(OURS.into(), Box::new(|| ours::from_host(system, &asked, rhs)))];
    let mut found = Found {
        name: system.name.clone(),
        spec: system.spec.clone(),
        rows: rhs.len(),
        order,
        stored: system.stored(),
        symmetric,
        made: system.made,
        from_file: system.from_file,
        ways: Vec::new(),
    };
    let resident = |name: String, asked| {
        let take = p.resident(system, asked, rhs).filter(|_| options.from_device);
        take.map(|take| (name, take))
    };
    ways.extend(resident("Krylith, from device arrays".into(), &asked));
    if several > 1 {
        let name = format!("Krylith on {several} GPUs");
        ways.push((name.clone(), Box::new(|| ours::from_host(system, &all, rhs))));
        ways.extend(resident(format!("{name}, from arrays on the first"), &all));
    }
    match p.answers(&a, symmetric, rhs, MOST) {
        Ok(all) => ways.extend(all),
        Err(e) => found.ways.push(Way::failed("vendor libraries", e.to_string())),
    }
    let repeats = Repeats { rounds, budget: f64::INFINITY };
    for (name, mut take) in ways {
        progress(&format!("{}: {name}", system.name));
        let way = Way::taken(name, &mut take, &a, rhs, &repeats);
        found.ways.push(way);
    }
    // Stop variants that take much longer than the automatic one.
    let limit = found.ways[0].totals().median();
    let limit = if limit.is_finite() { (SLOWER * limit).max(SHORTEST) } else { LONGEST };
    for name in &options.ways {
        progress(&format!("{}: {name}", system.name));
        let words = crate::multilevel::ways::options(name);
        let named: Options = words.parse().map_err(|e| Error::invalid(format!("{name}: {e}")))?;
        let named = named.or(&asked).time_limit(limit);
        let mut take: Take = Box::new(|| ours::from_host(system, &named, rhs));
        let mut way = Way::taken(format!("`{name}`"), &mut take, &a, rhs, &repeats);
        way.named = true;
        found.ways.push(way);
    }
    Ok(found)
}

/// Number of repetitions of a variant.
pub(crate) struct Repeats {
    /// Largest number of counted runs.
    pub rounds: usize,
    /// Seconds after which no further run begins, if one has been counted.
    pub budget: f64,
}

impl Way {
    /// Runs a variant once without counting, then `rounds` times; every x is checked.
    pub fn taken(name: String, take: &mut Take, a: &Bsr, rhs: &[f64], repeats: &Repeats) -> Self {
        let mut way = Way { name, failure: None, taken: Vec::new(), residual: f64::NAN, named: false };
        let begin = Instant::now();
        for round in 0..=repeats.rounds {
            if round > 1 && begin.elapsed().as_secs_f64() > repeats.budget {
                break;
            }
            let answer = match take() {
                Ok(answer) => answer,
                Err(e) => {
                    way.failure = Some(e.to_string());
                    break;
                }
            };
            way.residual = crate::systems::relative_residual(a, rhs, &answer.x);
            // The tolerance applies to the method; recurrences of baselines may miss it slightly.
            if !(answer.converged && way.residual <= 10.0 * RTOL) {
                let Answer { iterations, total, .. } = answer;
                let residual = way.residual;
                way.failure = Some(format!(
                    "{iterations} iterations in {total:.2} s, relative residual {residual:.1e}"
                ));
                break;
            }
            if round > 0 {
                way.taken.push(Answer { x: Vec::new(), ..answer });
            }
        }
        if way.failure.is_some() {
            way.taken.clear();
        }
        way
    }

    /// Returns the seconds from arrays to x.
    pub fn totals(&self) -> Samples {
        Samples(self.taken.iter().map(|answer| answer.total).collect())
    }

    /// Returns the seconds before the first iteration.
    pub fn setups(&self) -> Samples {
        Samples(self.taken.iter().map(Answer::setup).collect())
    }

    /// Returns the seconds of a part; `None` if the variant has no such part.
    pub fn part(&self, name: &str) -> Option<Samples> {
        let of = |answer: &Answer| answer.parts.iter().find(|p| p.0 == name).map(|p| p.1);
        self.taken.iter().map(of).collect::<Option<Vec<f64>>>().filter(|all| !all.is_empty()).map(Samples)
    }

    /// Creates the entry of a variant that cannot run.
    pub fn failed(name: &str, why: String) -> Self {
        Self { name: name.into(), failure: Some(why), taken: Vec::new(), residual: f64::NAN, named: false }
    }
}
