//! Compares preconditioners on the Stokes duct (Radau IIA of 2 stages, τ = 0.125): iterations and seconds.
//!
//! `cargo run --release -p krylith-problems --example stokes_preconditioners [NODES,… [RTOL,… [THREADS
//! [ONLY,…]]]]` (8,12,16 nodes a side, 1e-6,1e-8, all cores and every preconditioner by default; ONLY: those
//! whose names begin so). Set-up, which cuts, analyses and factorises, and solve are timed apart; `ms/it` is
//! the solve over its iterations. A solve stops after 2000 iterations.

use krylith_core::device::cpu::Cpu;
use krylith_core::matrix::{Butcher, KroneckerSum};
use krylith_core::method::{Bicgstab, BicgstabOptions, Gmres, GmresOptions, Method};
use krylith_core::operator::{LinearOperator, PointBlock, Terms};
use krylith_core::partition::{SubdomainCut, Subdomains};
use krylith_core::precond::{Additive, BlockJacobi, Ildu, IlduOptions, Multiplicative, Stage, StageOptions};
use krylith_core::{Outcome, Precision, Result, Stop};
use krylith_problems::{StokesDuct, StokesOptions};
use std::time::Instant;

const USAGE: &str = "usage: stokes_preconditioners [NODES,… [RTOL,… [THREADS [ONLY,…]]]]";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers = |at: usize, default: &str| -> Vec<f64> {
        let text = arguments.get(at).map_or(default, String::as_str);
        let parsed: std::result::Result<Vec<f64>, _> = text.split(',').map(str::parse).collect();
        parsed.unwrap_or_else(|_| {
            eprintln!("{USAGE}");
            std::process::exit(2);
        })
    };
    let (sizes, tolerances, threads) = (numbers(0, "8,12,16"), numbers(1, "1e-6,1e-8"), numbers(2, "0"));
    let only: Vec<&str> = arguments.get(3).map_or(vec![""], |names| names.split(',').collect());
    for nodes in sizes {
        if let Err(e) = compare(nodes as usize, &tolerances, threads[0] as usize, &only) {
            eprintln!("{e}");
            std::process::exit(e.exit_code().into());
        }
    }
}

/// Kind of a preconditioner.
enum Kind {
    None,
    Jacobi,
    /// Blocks of order b·s.
    Monolithic,
    /// One solve per stage; true if the stages are coupled.
    Stages(bool),
    /// Jacobi added to monolithic ILDU, or applied before it.
    JacobiAnd,
    JacobiThen,
}

/// One line of the table: rows of a subdomain (`None` for a single subdomain) and level of fill.
struct Line {
    kind: Kind,
    rows: Option<usize>,
    fill: usize,
}

fn lines() -> Vec<Line> {
    let line = |kind, rows, fill| Line { kind, rows, fill };
    let mut all = vec![line(Kind::None, None, 0), line(Kind::Jacobi, None, 0)];
    for rows in [Some(64), Some(216), Some(512), Some(2048), None] {
        all.push(line(Kind::Monolithic, rows, 0));
    }
    all.extend([Some(512), None].map(|rows| line(Kind::Monolithic, rows, 1)));
    for fill in [0, 1, 2, 4] {
        all.extend([Some(512), Some(2048), None].map(|rows| line(Kind::Stages(true), rows, fill)));
    }
    all.extend([0, 2].map(|fill| line(Kind::Stages(false), None, fill)));
    all.extend([line(Kind::JacobiAnd, Some(512), 0), line(Kind::JacobiThen, Some(512), 0)]);
    all
}

impl Line {
    fn name(&self) -> String {
        let rows = self.rows.map_or("whole".into(), |rows| rows.to_string());
        let of = |name: &str| format!("{name}:fill={},rows={rows}", self.fill);
        match self.kind {
            Kind::None => "none".into(),
            Kind::Jacobi => "jacobi".into(),
            Kind::Monolithic => of("ildu"),
            Kind::Stages(true) => of("stage"),
            Kind::Stages(false) => of("uncoupled stage"),
            Kind::JacobiAnd => of("jacobi+ildu"),
            Kind::JacobiThen => of("jacobi then ildu"),
        }
    }

    /// The preconditioner, if there is one.
    fn make<'a>(
        &self,
        space: &Cpu,
        terms: &Terms,
        coordinates: &[[f64; 3]],
        operator: &'a PointBlock<Cpu>,
    ) -> Result<Option<Box<dyn LinearOperator<Cpu> + 'a>>> {
        let subdomains = match self.rows {
            None => Subdomains::whole(terms.block_rows()),
            Some(rows) => Subdomains::cut(terms, Some(coordinates), SubdomainCut::Geometric, rows)?.0,
        };
        let options = IlduOptions { fill: self.fill, ..IlduOptions::default() };
        let jacobi = || BlockJacobi::new(space, terms, Precision::F64);
        let ildu = || Ildu::new(space, terms, &subdomains, options);
        Ok(Some(match self.kind {
            Kind::None => return Ok(None),
            Kind::Jacobi => Box::new(jacobi()?),
            Kind::Monolithic => Box::new(ildu()?),
            Kind::Stages(coupled) => {
                Box::new(Stage::new(space, terms, &subdomains, StageOptions { ildu: options, coupled })?)
            }
            Kind::JacobiAnd => Box::new(Additive::new(space, jacobi()?, ildu()?)?),
            Kind::JacobiThen => Box::new(Multiplicative::new(space, jacobi()?, ildu()?, operator)?),
        }))
    }
}

fn compare(nodes: usize, tolerances: &[f64], threads: usize, only: &[&str]) -> Result<()> {
    let duct = StokesDuct::new(StokesOptions { nodes: [nodes; 3], ..StokesOptions::default() })?;
    let butcher = Butcher::by_name("radau-iia-2")?;
    let system: KroneckerSum = duct.kronecker(&butcher, 0.125)?;
    let mut rhs = vec![0.0; system.rows()];
    duct.steps(&butcher, 0.125)?.rhs_into(0.0, &vec![0.0; duct.mass.rows()], &mut rhs)?;
    let space = Cpu::new(system.rows(), threads);
    let terms = Terms::kronecker(&system);
    let operator = PointBlock::kronecker(&space, &system, Precision::F64)?;
    let coordinates = duct.mesh.coordinates();
    println!("\n{nodes}³ nodes, {} unknowns, {} threads", system.rows(), space.threads());
    let head = ["method", "rtol", "set-up s", "its", "solve s", "total s", "ms/it", "MB/apply"];
    println!(
        "{:34} {:8} {:>6} {:>9} {:>6} {:>9} {:>9} {:>7} {:>8}",
        "precond", head[0], head[1], head[2], head[3], head[4], head[5], head[6], head[7]
    );
    let wanted = |l: &&Line| {
        l.rows.is_none_or(|rows| rows < nodes.pow(3)) && only.iter().any(|name| l.name().starts_with(name))
    };
    for line in lines().iter().filter(wanted) {
        let begun = Instant::now();
        let p = match line.make(&space, &terms, &coordinates, &operator) {
            Ok(p) => p,
            Err(e) => {
                println!("{:34} {e}", line.name());
                continue;
            }
        };
        let set_up = begun.elapsed().as_secs_f64();
        let megabytes = p.as_ref().map_or(0.0, |p| p.bytes() as f64 * 1e-6);
        for name in ["gmres", "bicgstab"] {
            for &rtol in tolerances {
                let mut method: Box<dyn Method<Cpu>> = match name {
                    "gmres" => Box::new(Gmres::new(&space, GmresOptions::default())?),
                    _ => Box::new(Bicgstab::new(&space, BicgstabOptions::default())?),
                };
                let mut x = vec![0.0; rhs.len()];
                let stop = Stop { rtol, max_iters: 2000, ..Stop::default() };
                let begun = Instant::now();
                let history = method.solve(&space, &operator, p.as_deref(), &rhs, &mut x, &stop, &mut ())?;
                let solve = begun.elapsed().as_secs_f64();
                let failed = history.outcome != Outcome::Converged;
                println!(
                    "{:34} {name:8} {rtol:6.0e} {set_up:9.3} {:>6} {solve:9.3} {:9.3} {:7.2} {megabytes:8.1}{}",
                    line.name(),
                    history.iterations,
                    set_up + solve,
                    1e3 * solve / history.iterations.max(1) as f64,
                    if failed { format!("  {}", history.outcome) } else { String::new() },
                );
            }
        }
    }
    Ok(())
}
