//! Simulates gas, liquid and solid in a closed vessel with an outlet on top, with one solver for the pressure
//! of all steps.
//!
//! `cargo run --release -p krylith-problems --example multiphase [CELLS [STEPS [FOLDER]]]` (32 cells along x
//! and z, half as many along y, 40 steps, the current folder by default) writes a slice of each step as
//! `multiphase_NNN.svg`: gas white, liquid blue, solid brown.
//!
//! A step of length Δt:
//!
//! 1. u* = u at the place that a face's fluid comes from (semi-Lagrangian), and gravity;
//! 2. ∇·(1/ρ ∇p) = ∇·u*/Δt with new values in the solver and the last pressure as initial guess;
//! 3. u = u* − Δt/ρ ∇p, whose divergence is about that of u* times the solver's tolerance;
//! 4. shares of liquid and solid flow with u (donor cells: conservative, and between 0 and 1).
//!
//! Solid flows like a heavy liquid here, as if all of it had just molten.

use krylith_core::{Error, Options, Problem, Result, Solver};
use krylith_problems::multiphase::{Faces, PhaseOptions, Phases, Projection, TOP};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Acceleration by gravity, cells along x over time².
const GRAVITY: f64 = 1.0;
/// Largest share of a cell that fluid may cross in a step.
const COURANT: f64 = 0.4;

/// Cost and accuracy of a step.
#[derive(Debug, Clone, Copy)]
pub struct Report {
    /// Length of the step.
    pub dt: f64,
    /// Iterations of the pressure.
    pub iterations: usize,
    /// Seconds until new values were in the solver.
    pub update: f64,
    /// Seconds of the solve.
    pub solve: f64,
    /// ‖∇·u‖ after the projection over that before.
    pub divergence: f64,
    /// Volumes of liquid and solid, in cells.
    pub volume: [f64; 2],
}

#[allow(dead_code)] // a test includes this file and calls `run`
fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| arguments.next().map_or(Some(default), |a| a.parse().ok());
    let (Some(cells @ 4..), Some(steps)) = (number(32), number(40)) else {
        eprintln!("usage: multiphase [CELLS [STEPS [FOLDER]]], with at least 4 cells");
        std::process::exit(2);
    };
    let folder = arguments.next().map_or_else(|| PathBuf::from("."), PathBuf::from);
    let options = Options::new().rtol(1e-8);
    if let Err(e) = run([cells, cells / 2, cells], steps, &folder, &options) {
        eprintln!("{e}");
        std::process::exit(e.exit_code().into());
    }
}

/// Runs `steps` steps, and reports the cost of each.
pub fn run(cells: [usize; 3], steps: usize, folder: &Path, options: &Options) -> Result<Vec<Report>> {
    let mut flow = Flow::new(cells)?;
    let mut density = flow.density();
    let a = flow.projection.matrix(&density)?;
    let mut values = a.values().to_vec();
    let problem = Problem::csr(&a)?.with_grid(cells)?;
    let mut solver = Solver::new(&problem, options)?;
    let (mut rhs, mut pressure) = (vec![0.0; count(cells)], vec![0.0; count(cells)]);
    let mut reports = Vec::with_capacity(steps);
    for step in 0..steps {
        if step > 0 {
            density = flow.density();
            flow.projection.values_into(&density, &mut values)?;
            solver.update_values(&values)?;
        }
        let dt = flow.step_length();
        flow.predict(dt);
        let before = flow.divergence();
        flow.projection.rhs_into(&flow.velocity, dt, &mut rhs)?;
        let solution = solver.solve(&rhs, &mut pressure)?;
        if !solution.converged() {
            return Err(Error::invalid(format!("step {step}: the pressure has {}", solution.outcome())));
        }
        flow.projection.correct(&density, &pressure, dt, &mut flow.velocity)?;
        let divergence = flow.divergence() / before;
        if divergence > 1e-6 {
            return Err(Error::invalid(format!("step {step}: a share of {divergence:.1e} of ∇·u* is left")));
        }
        flow.advect(dt);
        let report = Report {
            dt,
            iterations: solution.history.iterations,
            update: solution.setup_seconds,
            solve: solution.solve_seconds,
            divergence,
            volume: [flow.liquid.iter().sum(), flow.solid.iter().sum()],
        };
        println!(
            "step {step}: dt {dt:.3}, {} iterations, {:.4} s update, {:.4} s solve, divergence {divergence:.1e}",
            report.iterations, report.update, report.solve
        );
        reports.push(report);
        let path = folder.join(format!("multiphase_{step:03}.svg"));
        std::fs::write(&path, flow.picture()).map_err(|source| Error::Io { path, source })?;
    }
    Ok(reports)
}

fn count(cells: [usize; 3]) -> usize {
    cells.iter().product()
}

/// Velocity at faces, shares of liquid and solid in cells; the rest is gas.
struct Flow {
    projection: Projection,
    phases: Phases,
    velocity: Faces,
    liquid: Vec<f64>,
    solid: Vec<f64>,
}

impl Flow {
    fn new(cells: [usize; 3]) -> Result<Self> {
        let spacing = [1.0, 1.0, 2.0];
        let projection = Projection::new(cells, spacing, TOP)?;
        let phases = Phases::new(cells, spacing, PhaseOptions::default());
        let (liquid, solid) = (0..projection.cells())
            .map(|i| {
                let [_, liquid, solid] = phases.fractions(projection.position(i));
                (liquid, solid)
            })
            .unzip();
        Ok(Self { projection, phases, velocity: Faces::new(cells), liquid, solid })
    }

    fn density(&self) -> Vec<f64> {
        // A divergence that is not quite 0 may leave a share as little below 0.
        let shares = self.liquid.iter().zip(&self.solid).map(|(l, s)| (l.max(0.0), s.max(0.0)));
        shares.map(|(l, s)| self.phases.density([(1.0 - l - s).max(0.0), l, s])).collect()
    }

    /// ‖∇·u‖₂.
    fn divergence(&self) -> f64 {
        let each = (0..self.projection.cells()).map(|i| self.projection.divergence(&self.velocity, i));
        each.map(|d| d * d).sum::<f64>().sqrt()
    }

    /// Largest number of cells that fluid crosses in a unit of time, along x, y and z together.
    fn rate(&self) -> f64 {
        let h = self.projection.spacing();
        let fastest = |d: usize| self.velocity.across[d].iter().fold(0.0f64, |m, u| m.max(u.abs()));
        (0..3).map(|d| fastest(d) / h[d]).sum()
    }

    /// Returns a step length with which nothing crosses, or falls from rest through, more than a share of a
    /// cell.
    fn step_length(&self) -> f64 {
        COURANT / (self.rate() + (GRAVITY / self.projection.spacing()[2]).sqrt())
    }

    /// Component `d` of u at a place in units of cells, between the eight nearest faces; constant outside.
    fn velocity_at(&self, d: usize, place: [f64; 3]) -> f64 {
        let cells = self.projection.sizes();
        let (mut low, mut share) = ([0; 3], [0.0; 3]);
        for e in 0..3 {
            let (x, last) = if e == d { (place[e], cells[e]) } else { (place[e] - 0.5, cells[e] - 1) };
            let x = x.clamp(0.0, last as f64);
            low[e] = (x as usize).min(last.saturating_sub(1));
            share[e] = x - low[e] as f64;
        }
        let mut sum = 0.0;
        for corner in 0..8 {
            let bit = |e: usize| corner >> e & 1;
            let weight: f64 = (0..3).map(|e| if bit(e) == 1 { share[e] } else { 1.0 - share[e] }).product();
            if weight > 0.0 {
                let at = std::array::from_fn(|e| low[e] + bit(e));
                sum += weight * self.velocity.across[d][self.velocity.lower(d, at)];
            }
        }
        sum
    }

    /// Computes u* at every face except those of walls.
    fn predict(&mut self, dt: f64) {
        let (cells, h) = (self.projection.sizes(), self.projection.spacing());
        let mut next = self.velocity.clone();
        for i in 0..self.projection.cells() {
            let at = self.projection.position(i);
            for d in 0..3 {
                if at[d] + 1 == cells[d] && d < 2 {
                    continue; // a wall; the top is open
                }
                let mut place = at.map(|x| x as f64 + 0.5);
                place[d] += 0.5;
                let from = std::array::from_fn(|e| place[e] - dt * self.velocity_at(e, place) / h[e]);
                let fall = if d == 2 { GRAVITY * dt } else { 0.0 };
                next.across[d][self.velocity.upper(d, at)] = self.velocity_at(d, from) - fall;
            }
        }
        self.velocity = next;
    }

    /// Moves liquid and solid, in several substeps if the projection has made u faster than the time step
    /// assumed.
    fn advect(&mut self, dt: f64) {
        let parts = (dt * self.rate() / COURANT).ceil().max(1.0);
        for _ in 0..parts as usize {
            self.carry(dt / parts);
        }
    }

    /// Carries the content of the upwind cell through each face; gas enters from above.
    fn carry(&mut self, dt: f64) {
        let (cells, h) = (self.projection.sizes(), self.projection.spacing());
        let stride = [1, cells[0], cells[0] * cells[1]];
        for field in [&mut self.liquid, &mut self.solid] {
            let old = field.clone();
            for i in 0..old.len() {
                let at = self.projection.position(i);
                for d in 0..3 {
                    let u = self.velocity.across[d][self.velocity.upper(d, at)] * dt / h[d];
                    let other = (at[d] + 1 < cells[d]).then(|| i + stride[d]);
                    let carried = if u > 0.0 { u * old[i] } else { other.map_or(0.0, |j| u * old[j]) };
                    field[i] -= carried;
                    if let Some(j) = other {
                        field[j] += carried;
                    }
                }
            }
        }
    }

    /// The slice in the middle of y; equal neighbours along x are one rectangle.
    fn picture(&self) -> String {
        let ([nx, ny, nz], h) = (self.projection.sizes(), self.projection.spacing());
        let (width, height) = (h[0] * nx as f64, h[2] * nz as f64);
        let colour = |x: usize, z: usize| {
            let i = (z * ny + ny / 2) * nx + x;
            let (l, s) = (self.liquid[i].clamp(0.0, 1.0), self.solid[i].clamp(0.0, 1.0));
            // Sixteen shades of each phase.
            let mix = |gas: f64, liquid: f64, solid: f64| {
                let shade = gas * (1.0 - l - s).max(0.0) + liquid * l + solid * s;
                ((shade / 17.0).round().clamp(0.0, 15.0) * 17.0) as u8
            };
            [mix(255.0, 68.0, 119.0), mix(255.0, 136.0, 68.0), mix(255.0, 221.0, 17.0)]
        };
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{}\" \
             shape-rendering=\"crispEdges\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n",
            (8.0 * width).min(800.0)
        );
        for z in 0..nz {
            let mut x = 0;
            while x < nx {
                let here = colour(x, z);
                let end = (x..nx).find(|&e| colour(e, z) != here).unwrap_or(nx);
                if here != [255; 3] {
                    let [r, g, b] = here;
                    let top = height - h[2] * (z + 1) as f64;
                    // Writing to a String cannot fail.
                    let _ = writeln!(
                        out,
                        "<rect x=\"{x}\" y=\"{top}\" width=\"{}\" height=\"{}\" fill=\"#{r:02x}{g:02x}{b:02x}\"/>",
                        end - x,
                        h[2]
                    );
                }
                x = end;
            }
        }
        out + "</svg>\n"
    }
}
