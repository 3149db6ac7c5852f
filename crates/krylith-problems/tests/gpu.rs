//! F and J of the nonlinear problems on a GPU, beside those of the host.
//!
//! Reported as ignored, and never as passed, where there is no GPU; `KRYLITH_REQUIRE_GPU` makes a missing GPU
//! a failure.

#![cfg(feature = "cuda")]

use krylith_core::comm::Team;
use krylith_core::device::cuda::Device;
use krylith_core::memory::Numbers;
use krylith_core::newton::{Newton, NewtonOptions};
use krylith_core::{Error, Result};
use krylith_problems::nonlinear::{NonlinearProblem, by_text, by_text_on};
use krylith_problems::share::Ranks;
use libtest_mimic::{Arguments, Failed, Trial};

/// Problems to solve.
const PROBLEMS: [&str; 4] = [
    "cavity:33x21,re=100",
    "artery:3000,steps=3,numbering=random",
    "ventricle:3000,steps=3,dt=0.005,ramp=0.01",
    "ventricle:3000,steps=3,dt=0.005,ramp=0.01,tension=10,cross=0.2,numbering=rcm",
];
/// A body that remains at rest.
const FREE: &str = "ventricle:2000,steps=2,pressure=0";

fn main() {
    let gpu = Device::open(0).err();
    if let Some(e) = &gpu {
        assert!(std::env::var_os("KRYLITH_REQUIRE_GPU").is_none(), "a GPU is required: {e}");
        eprintln!("skipped: {e}");
    }
    let mut all = Vec::new();
    type Check = fn(&'static str) -> Result<()>;
    let checks: [(&str, Check); 3] = [
        ("is that of the host", one),
        ("on three ranks is that of the host", three),
        ("has the same x", solved),
    ];
    for text in PROBLEMS.into_iter().chain([FREE]) {
        for (what, check) in checks.into_iter().take(if text == FREE { 2 } else { 3 }) {
            let run = move || check(text).map_err(Failed::from);
            all.push(Trial::test(format!("{text} {what}"), run).with_ignored_flag(gpu.is_some()));
        }
    }
    let arguments = Arguments::from_args();
    if gpu.is_some() && (arguments.ignored || arguments.include_ignored) {
        all.clear(); // asked to run what cannot run here
    }
    libtest_mimic::run(&arguments, all).exit();
}

/// Requires numbers that differ by rounding at most.
fn close(what: &str, got: &[f64], wanted: &[f64]) -> Result<()> {
    close_to(1e-12, what, got, wanted)
}

/// Requires numbers that differ by at most this, relative to the largest.
fn close_to(tolerance: f64, what: &str, got: &[f64], wanted: &[f64]) -> Result<()> {
    let largest = wanted.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    let differ = |(a, b): &(&f64, &f64)| !((*a - *b).abs() <= tolerance * largest);
    match got.iter().zip(wanted).enumerate().find(|(_, pair)| differ(pair)) {
        None if got.len() == wanted.len() && largest > 0.0 => Ok(()),
        None => Err(Error::invalid(format!("{what}: {} of {} numbers", got.len(), wanted.len()))),
        Some((i, (a, b))) => {
            Err(Error::invalid(format!("{what}: number {i} is {a}, wanted {b} of {largest}")))
        }
    }
}

/// Compares F and J in every time step, at states near the initial guess. A body at rest is no such state:
/// the stiffness of its fibres depends on whether they are stretched or compressed. Near rest, J² − 1 loses
/// digits.
fn compare(host: &mut dyn NonlinearProblem, gpu: &mut dyn NonlinearProblem) -> Result<()> {
    if !gpu.solves_on(Some(0))? {
        return Err(Error::invalid("the system is not on the GPU"));
    }
    let device = Device::open(0)?;
    let mut x = host.initial();
    let (mut f, mut values) = (x.clone(), vec![0.0; host.pattern().stored()]);
    loop {
        for size in [1e-3, 1e-2] {
            let noise = |i: usize| size * ((i * 2654435761 % 1000) as f64 / 500.0 - 1.0);
            let at: Vec<f64> = x.iter().enumerate().map(|(i, x)| x + noise(i)).collect();
            host.residual(&at, &mut f)?;
            let g = gpu.residual_in_own_memory(Numbers::from(&at))?.to_vec()?;
            close("F", &g, &f)?;
            host.jacobian(&at, &mut values)?;
            let there = device.upload(&at, "x")?;
            let got = gpu.jacobian_in_own_memory(Numbers::from(&there))?;
            if got.gpu() != Some(0) {
                return Err(Error::invalid(format!("J is in {:?}", got.gpu())));
            }
            close("J", &got.to_vec()?, &values)?;
        }
        x.iter_mut().enumerate().for_each(|(i, x)| *x += 1e-4 * ((i % 7) as f64 - 3.0));
        let mut same = x.clone();
        match [host.next_step(&mut x)?, gpu.next_step(&mut same)?] {
            [true, true] => {}
            [false, false] => return Ok(()),
            _ => return Err(Error::invalid("they have other numbers of time steps")),
        }
    }
}

fn one(text: &'static str) -> Result<()> {
    compare(&mut *by_text(text)?, &mut *by_text(text)?)
}

fn three(text: &'static str) -> Result<()> {
    Team::run(3, |comm| {
        let ranks = Ranks { comm, partition: Default::default() };
        compare(&mut *by_text_on(text, &ranks)?, &mut *by_text_on(text, &ranks)?)
    })
    .map(drop)
}

/// Solves the first time step with F and J on the host and on the GPU.
fn solved(text: &'static str) -> Result<()> {
    let solve = |device: &str| -> Result<Vec<f64>> {
        let mut problem = by_text(text)?;
        let mut x = problem.initial();
        let options = NewtonOptions { rtol: 1e-10, ..NewtonOptions::default() };
        let report = Newton::new(options, &device.parse()?)?.solve(&mut *problem, &mut x)?.clone();
        match report.converged() {
            true => Ok(x),
            false => Err(Error::invalid(format!("{device}: {}", report.outcome))),
        }
    };
    close_to(1e-8, "x", &solve("device=cuda:0")?, &solve("device=cpu")?)
}
