//! Steps an unsteady Stokes flow in time: the operator, the preconditioner and GMRES's workspace are created
//! once.
//!
//! `cargo run --release -p krylith-problems --example stokes_steps [NODES [STEPS [FOLDER]]]`
//! (12 nodes per side, 8 steps and the current folder by default) writes one `.vtu` per step for ParaView.

use krylith_core::device::cpu::Cpu;
#[cfg(feature = "cuda")]
use krylith_core::device::cuda::{Cuda, Device};
use krylith_core::io::vtu::{self, Values};
use krylith_core::matrix::Butcher;
use krylith_core::method::{Gmres, GmresOptions};
use krylith_core::operator::{PointBlock, PointBlockSum, Terms};
use krylith_core::precond::{BlockDiagonal, BlockJacobi};
use krylith_core::{Outcome, Precision, Result, Stop};
use krylith_problems::{StokesDuct, StokesOptions};
use std::path::{Path, PathBuf};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| arguments.next().map_or(Some(default), |a| a.parse().ok());
    let (Some(nodes), Some(steps)) = (number(12), number(8)) else {
        eprintln!("usage: stokes_steps [NODES [STEPS [FOLDER]]]");
        std::process::exit(2);
    };
    let folder = arguments.next().map_or_else(|| PathBuf::from("."), PathBuf::from);
    if let Err(e) = choose_device(nodes, steps, &folder) {
        eprintln!("{e}");
        std::process::exit(e.exit_code().into());
    }
}

/// The first GPU if there is one, else all cores.
fn choose_device(nodes: usize, steps: usize, folder: &Path) -> Result<()> {
    let duct = StokesDuct::new(StokesOptions { nodes: [nodes; 3], ..StokesOptions::default() })?;
    let butcher = Butcher::by_name("radau-iia-2")?;
    let unknowns = duct.mass.rows() * butcher.a.rows();
    #[cfg(feature = "cuda")]
    if let Ok(device) = Device::open(0) {
        println!("{unknowns} unknowns on {}", device.info().name);
        return run(&Cuda::new(&device, unknowns)?, &duct, &butcher, steps, folder);
    }
    let cpu = Cpu::new(unknowns, 0);
    println!("{unknowns} unknowns on {} threads", cpu.threads());
    run(&cpu, &duct, &butcher, steps, folder)
}

fn run<S: PointBlockSum + BlockDiagonal>(
    space: &S,
    duct: &StokesDuct,
    butcher: &Butcher,
    steps: usize,
    folder: &Path,
) -> Result<()> {
    let tau = 0.125;
    let mut scheme = duct.steps(butcher, tau)?;
    let system = duct.kronecker(butcher, tau)?;
    let a = PointBlock::kronecker(space, &system, Precision::F64)?;
    let p = BlockJacobi::new(space, &Terms::kronecker(&system), Precision::F64)?;
    let mut gmres = Gmres::new(space, GmresOptions::default())?;

    let (points, tetrahedra) = (duct.mesh.coordinates(), duct.mesh.tetrahedra());
    let mut u = vec![0.0; duct.mass.rows()]; // at rest
    let (mut rhs, mut k) = (vec![0.0; system.rows()], vec![0.0; system.rows()]);
    let (mut b, mut x) = (space.vector()?, space.vector()?);
    for step in 0..steps {
        let t = step as f64 * tau;
        scheme.rhs_into(t, &u, &mut rhs)?;
        space.write(&rhs, &mut b)?;
        // x still holds the stage derivatives of the last step, which are a good initial guess.
        let history = gmres.solve(space, &a, Some(&p), &b, &mut x, &Stop::default(), &mut ())?;
        println!(
            "t = {:.3}: {} after {} iterations, residual {:.2e}",
            t + tau,
            history.outcome,
            history.iterations,
            history.true_relative_residual
        );
        if history.outcome != Outcome::Converged {
            return Err(krylith_core::Error::invalid(format!(
                "step {step} did not converge: {}",
                history.outcome
            )));
        }
        space.read(&x, &mut k)?;
        scheme.advance(&k, &mut u)?;

        let velocity: Vec<[f64; 3]> = u.chunks_exact(4).map(|n| [n[0], n[1], n[2]]).collect();
        let pressure: Vec<f64> = u.iter().skip(3).step_by(4).copied().collect();
        let fields = [("velocity", Values::Vector(&velocity)), ("pressure", Values::Scalar(&pressure))];
        vtu::write(folder.join(format!("stokes_{step:03}.vtu")), &points, &tetrahedra, &fields)?;
    }
    Ok(())
}
