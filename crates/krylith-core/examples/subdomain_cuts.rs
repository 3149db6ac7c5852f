//! What each way to cut subdomains costs: seconds to cut, to analyse and to factorise, and iterations.
//!
//! `cargo run --release --example subdomain_cuts [edge] [rows] [block] [fill] [only]`: GMRES(30) with ILDU(0)
//! to 1e-8 for the 7-point Laplacian on edge³ points, numbered naturally and shuffled, cut into subdomains of
//! `rows` block rows. `GB/s` is the traffic of an application by its ledger over the fastest of 20 times; a
//! sum over an array on as many threads is given for comparison.

use krylith_core::device::cpu::Cpu;
use krylith_core::matrix::Bsr;
use krylith_core::method::{Gmres, GmresOptions};
use krylith_core::operator::{LinearOperator, PointBlock, Terms};
use krylith_core::partition::{SubdomainCut, Subdomains};
use krylith_core::precond::{BlockJacobi, Ildu, IlduOptions, Plan};
use krylith_core::space::Space;
use krylith_core::{Precision, Stop};
use std::sync::Arc;
use std::time::Instant;

/// The Laplacian with rows and columns renamed, and where its points lie; components are coupled a little.
fn laplacian(edge: usize, b: usize, name: &[u32]) -> (Bsr, Vec<[f64; 3]>) {
    let n = edge * edge * edge;
    let mut point = vec![0u32; n];
    name.iter().enumerate().for_each(|(k, &i)| point[i as usize] = k as u32);
    let (mut row_ptr, mut col, mut values, mut places) = (vec![0], Vec::new(), Vec::new(), Vec::new());
    for i in 0..n {
        let k = point[i] as usize;
        let at = [k % edge, k / edge % edge, k / (edge * edge)];
        let mut row = vec![(i as u32, 6.0)];
        for (d, step) in [1, edge, edge * edge].into_iter().enumerate() {
            if at[d] > 0 {
                row.push((name[k - step], -1.0));
            }
            if at[d] + 1 < edge {
                row.push((name[k + step], -1.0));
            }
        }
        row.sort_by_key(|r| r.0);
        for (j, v) in row {
            col.push(j);
            values.extend((0..b * b).map(|e| if e / b == e % b { v } else { 0.01 * v }));
        }
        row_ptr.push(col.len());
        places.push(at.map(|x| x as f64));
    }
    (Bsr::new(b, n, n, row_ptr, col, values).expect("a Laplacian"), places)
}

fn seconds<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let done = work();
    (start.elapsed().as_secs_f64(), done)
}

/// Bytes a second that a sum over an array of 400 MB reads.
fn read_bandwidth(threads: usize) -> f64 {
    let numbers = vec![1.0f64; 50_000_000];
    let sum = |part: &[f64]| {
        part.chunks_exact(16).fold([0.0; 16], |mut s, c| {
            (0..16).for_each(|k| s[k] += c[k]);
            s
        })[0]
    };
    let pass = || {
        std::thread::scope(|scope| {
            for part in numbers.chunks(numbers.len().div_ceil(threads)) {
                scope.spawn(move || std::hint::black_box(sum(part)));
            }
        });
    };
    let best = (0..10).map(|_| seconds(pass).0).fold(f64::INFINITY, f64::min);
    8.0 * numbers.len() as f64 / best
}

fn main() -> krylith_core::Result<()> {
    let argument = |k: usize| std::env::args().nth(k);
    let number = |k: usize, default: usize| argument(k).map_or(default, |v| v.parse().expect("a number"));
    let (edge, rows, b, fill) = (number(1, 64), number(2, 512), number(3, 1), number(4, 0));
    let only = argument(5);
    let n = edge * edge * edge;
    let space = Cpu::new(n * b, 0);
    let stop = Stop { rtol: 1e-8, ..Stop::default() };
    println!(
        "{edge}³ points, blocks of order {b}, {rows} rows a subdomain, ILU({fill}), {} threads",
        space.threads()
    );
    println!("read bandwidth {:.1} GB/s", read_bandwidth(space.threads()) * 1e-9);
    println!(
        "{:9} {:10} {:>8} {:>8} {:>8} {:>8} {:>7} {:>7} {:>6} {:>5} {:>8} {:>6} {:>8}",
        "numbering",
        "cut",
        "cut s",
        "plan s",
        "ilu s",
        "solve s",
        "parts",
        "levels",
        "drop%",
        "its",
        "apply ms",
        "GB/s",
        "bytes/row"
    );
    for shuffled in [false, true] {
        let mut name: Vec<u32> = (0..n as u32).collect();
        let mut state = 1u64;
        for i in (1..n).rev().filter(|_| shuffled) {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            name.swap(i, (state >> 33) as usize % (i + 1));
        }
        let (a, places) = laplacian(edge, b, &name);
        let terms = Terms::bsr(&a);
        let operator = PointBlock::bsr(&space, &a, Precision::F64)?;
        let rhs = vec![1.0; n * b];
        let label = if shuffled { "shuffled" } else { "natural" };
        let mut gmres = Gmres::new(&space, GmresOptions::default())?;
        let mut iterations = |p: &dyn LinearOperator<Cpu>| -> krylith_core::Result<(f64, usize)> {
            let mut x = vec![0.0; n * b];
            let (time, history) =
                seconds(|| gmres.solve(&space, &operator, Some(p), &rhs, &mut x, &stop, &mut ()));
            Ok((time, history?.residuals.len() - 1))
        };
        if only.is_none() {
            let (time, its) = iterations(&BlockJacobi::new(&space, &terms, Precision::F64)?)?;
            println!("{label:9} {:10} {:35.3} {its:>30}", "(jacobi)", time);
        }
        for way in SubdomainCut::ALL {
            if way == SubdomainCut::Auto || only.as_ref().is_some_and(|only| only != way.name()) {
                continue;
            }
            let (cut, subdomains) = seconds(|| Subdomains::cut(&terms, Some(&places), way, rows));
            let subdomains = subdomains?.0;
            let (analysis, plan) = seconds(|| Plan::new(&terms, &subdomains, fill));
            let plan = Arc::new(plan?);
            let levels =
                plan.level_ptr.windows(2).map(|w| w[1] - w[0]).sum::<usize>() as f64 / plan.count() as f64;
            let options = IlduOptions { fill, ..IlduOptions::default() };
            let mut ildu = Ildu::with_plan(&space, &terms, plan.clone(), options)?;
            let factor = (0..5).map(|_| seconds(|| ildu.update_values(&space, &terms)).0);
            let factor = factor.fold(f64::INFINITY, f64::min);
            let (x, mut y) = (space.vector()?, space.vector()?);
            let apply =
                (0..20).map(|_| seconds(|| ildu.apply(&space, &x, &mut y)).0).fold(f64::INFINITY, f64::min);
            let (time, its) = iterations(&ildu)?;
            println!(
                "{label:9} {:10} {cut:8.3} {analysis:8.3} {factor:8.3} {time:8.3} {:7} {levels:7.1} {:6.1} {its:5} {:8.2} {:6.1} {:8.1}",
                way.name(),
                plan.count(),
                100.0 * plan.dropped as f64 / plan.stored as f64,
                apply * 1e3,
                ildu.bytes() as f64 / apply * 1e-9,
                ildu.bytes() as f64 / n as f64,
            );
        }
    }
    Ok(())
}
