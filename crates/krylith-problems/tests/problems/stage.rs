//! Stage preconditioners on the Stokes duct compared with the results of Rana et al. (2021).

use krylith_core::Precision;
use krylith_core::device::cpu::Cpu;
use krylith_core::matrix::Butcher;
use krylith_core::method::{Gmres, GmresOptions};
use krylith_core::operator::{PointBlock, Terms};
use krylith_core::partition::Subdomains;
use krylith_core::precond::{IlduOptions, Stage, StageOptions};
use krylith_core::{Outcome, Stop};
use krylith_problems::{StokesDuct, StokesOptions};

/// Iterations of GMRES(30) to 1e-6 on `nodes`³ nodes.
fn iterations(nodes: usize, scheme: &str, fill: usize, coupled: bool) -> usize {
    let duct = StokesDuct::new(StokesOptions { nodes: [nodes; 3], ..StokesOptions::default() }).unwrap();
    let butcher = Butcher::by_name(scheme).unwrap();
    let system = duct.kronecker(&butcher, 0.125).unwrap();
    let mut rhs = vec![0.0; system.rows()];
    let u = vec![0.0; duct.mass.rows()];
    duct.steps(&butcher, 0.125).unwrap().rhs_into(0.0, &u, &mut rhs).unwrap();
    let (space, terms) = (Cpu::new(system.rows(), 2), Terms::kronecker(&system));
    let a = PointBlock::kronecker(&space, &system, Precision::F64).unwrap();
    let options = StageOptions { ildu: IlduOptions { fill, ..IlduOptions::default() }, coupled };
    let p = Stage::new(&space, &terms, &Subdomains::whole(nodes.pow(3)), options).unwrap();
    let mut x = vec![0.0; rhs.len()];
    let mut gmres = Gmres::new(&space, GmresOptions::default()).unwrap();
    let history = gmres.solve(&space, &a, Some(&p), &rhs, &mut x, &Stop::default(), &mut ()).unwrap();
    assert_eq!(history.outcome, Outcome::Converged, "{nodes}³ {scheme} fill {fill}: {history:?}");
    history.iterations
}

/// With exact stage solves, a handful of iterations suffice for any mesh; without coupling there are more.
#[test]
fn exact_stages_take_a_handful_of_iterations() {
    for nodes in [4, 6] {
        for (scheme, most) in [("radau-iia-2", 6), ("radau-iia-3", 9), ("gauss-2", 6), ("lobatto-iiic-3", 9)]
        {
            let (coupled, alone) =
                (iterations(nodes, scheme, 1000, true), iterations(nodes, scheme, 1000, false));
            assert!(coupled <= most && coupled < alone, "{nodes}³ {scheme}: {coupled}, {alone} uncoupled");
        }
    }
}

/// With incomplete stage solves, a SciPy prototype took 30 to 52 iterations on 8³ nodes, fewer with more
/// fill.
#[test]
fn incomplete_stages_converge() {
    let (none, some) = (iterations(8, "radau-iia-2", 0, true), iterations(8, "radau-iia-2", 2, true));
    assert!(some < none && (20..=60).contains(&none), "ILDU(0): {none}, ILDU(2): {some}");
}
