//! The basis of delayed Gram–Schmidt stays orthonormal on the Stokes problem, in both precisions.

use krylith_core::device::cpu::Cpu;
use krylith_core::method::{Gmres, GmresOptions};
use krylith_core::operator::PointBlock;
use krylith_core::space::Space;
use krylith_core::{Precision, Stop};
use krylith_problems::{SystemKind, generate};

#[test]
fn thirty_finished_vectors_are_orthonormal() {
    let problem = generate("stokes:8x8x8").unwrap();
    let SystemKind::Kronecker(system) = &problem.system else { panic!("Stokes is a Kronecker system") };
    let space = Cpu::new(system.rows(), 2);
    let a = PointBlock::kronecker(&space, system, Precision::F64).unwrap();
    let (mut b, mut x) = (space.vector().unwrap(), space.vector().unwrap());
    space.write(&problem.rhs, &mut b).unwrap();
    for (basis, bound) in [(Precision::F64, 1e-13), (Precision::F32, 1e-6)] {
        let mut gmres = Gmres::new(&space, GmresOptions { basis, ..GmresOptions::default() }).unwrap();
        let stop = Stop { rtol: 1e-14, max_iters: 30, ..Stop::default() };
        let history = gmres.solve(&space, &a, None, &b, &mut x, &stop, &mut ()).unwrap();
        assert_eq!(history.iterations, 30);
        let v: Vec<Vec<f64>> = (0..30).map(|k| gmres.recurrence().basis().column(k)).collect();
        let mut sum = 0.0;
        for i in 0..30 {
            for j in 0..30 {
                let dot: f64 = v[i].iter().zip(&v[j]).map(|(p, q)| p * q).sum();
                sum += (dot - f64::from(u8::from(i == j))).powi(2);
            }
        }
        assert!(sum.sqrt() <= bound, "{basis:?}: ‖I − VᵀV‖ = {:e}", sum.sqrt());
        println!("{basis:?}: {:e}", sum.sqrt());
    }
}
