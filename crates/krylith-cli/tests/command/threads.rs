//! Solves with any number of threads, on idle cores and on cores that other programs use.
//!
//! `cargo test --release -p krylith-cli --test command any_number_of_threads -- --ignored --nocapture`

use crate::common::Folder;
use serde_json::Value;
use std::process::{Child, Command};

/// Programs that each occupy a core while this value lives.
struct Load(Vec<Child>);

impl Load {
    fn of(programs: usize) -> Self {
        let start = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        Self((0..programs).map(start).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn median(mut x: Vec<f64>) -> f64 {
    x.sort_by(f64::total_cmp);
    x[x.len() / 2]
}

/// Prints a table of median times, each measured alternately with one thread.
#[test]
#[ignore = "measures: takes minutes, and wants a machine of its own"]
fn any_number_of_threads_costs_little_more_than_one() {
    const TURNS: usize = 31;
    let cores = std::thread::available_parallelism().unwrap().get();
    let folder = Folder::new();
    let seconds = |system: &str, threads: usize| {
        folder.line(&format!("solve {system} --threads {threads} --device cpu --report r.json")).works();
        let r: Value = serde_json::from_slice(&std::fs::read(folder.path("r.json")).unwrap()).unwrap();
        let of = |key: &str| r["seconds"][key].as_f64().unwrap();
        of("total") - of("setup")
    };
    println!("{cores} cores, {TURNS} turns; solve without set-up, medians\n");
    println!("| system | load | threads | ms | slowest | of one thread's |\n|---|--:|--:|--:|--:|--:|");
    let mut worst = (0.0, String::new());
    for system in ["laplace:30x30x30", "laplace:200x100x2", "laplace:12x12x9,block=3"] {
        for load in [0, cores] {
            let _load = Load::of(load);
            let asked = [1, 2, 3, 8, 64];
            let mut times = asked.map(|_| Vec::new());
            for _ in 0..TURNS {
                times.iter_mut().zip(asked).for_each(|(times, threads)| times.push(seconds(system, threads)));
            }
            let one = median(times[0].clone());
            for (times, threads) in times.into_iter().zip(asked) {
                let slowest = times.iter().copied().fold(0.0, f64::max);
                let (time, case) = (median(times), format!("{system}, load {load}, {threads} threads"));
                println!(
                    "| {system} | {load} | {threads} | {:.2} | {:.2} | {:.2} |",
                    1e3 * time,
                    1e3 * slowest,
                    time / one
                );
                if time / one > worst.0 {
                    worst = (time / one, case);
                }
            }
        }
    }
    assert!(worst.0 <= 1.2, "{}: {:.2} of one thread's time", worst.1, worst.0);
}

/// No more threads than cores are started, and the report has their number.
#[test]
fn threads_beyond_the_cores_are_not_started() {
    let f = Folder::new();
    let cores = std::thread::available_parallelism().unwrap().get();
    let line = "solve laplace:4x4x4 --device cpu --report r.json --threads";
    let ran = f.line(&format!("{line} {}", cores + 1));
    let r: Value = serde_json::from_slice(&std::fs::read(f.path("r.json")).unwrap()).unwrap();
    assert_eq!(r["run"]["threads"], cores);
    let words = format!("{} threads were requested, and this process may use {cores} cores", cores + 1);
    assert!(ran.works().out.contains(&words), "{ran:#?}");
    let ran = f.line(&format!("{line} {cores}"));
    assert!(!ran.works().out.contains("were requested"), "{ran:#?}");
}
