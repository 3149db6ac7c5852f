//! Block-Jacobi with tiles in whole solves on the CPU.

use crate::common::Random;
use crate::conformance::block_tiles::stencil;
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::Bsr;
use krylith_core::operator::Terms;
use krylith_core::partition::{Partition, assign_planes, split};
use krylith_core::precond::{PrecondInfo, Value};
use krylith_core::{Problem, Result, Solver};
use std::sync::Arc;

const CELLS: [usize; 3] = [23, 12, 32];

/// Conductivities that differ by 1,000, and weak coupling in z.
fn layers(cells: [usize; 3]) -> Bsr {
    let plane = cells[0] * cells[1];
    let conductivity = |i: usize| if i / 7 % 5 == 0 { 1e-3 } else { 1.0 };
    let face = |i: usize, j: usize| {
        let (a, b) = (conductivity(i), conductivity(j));
        2.0 * a * b / (a + b) * if i.abs_diff(j) == plane { 0.25 } else { 1.0 }
    };
    let n: usize = cells.iter().product();
    let off = stencil(cells, &|i, j| if i == j { 0.0 } else { -face(i, j) });
    let sums: Vec<f64> =
        (0..n).map(|i| off.values()[off.row_ptr()[i]..off.row_ptr()[i + 1]].iter().sum()).collect();
    stencil(cells, &|i, j| if i == j { 1e-6 - sums[i] } else { -face(i, j) })
}

fn right_hand_side(n: usize) -> Vec<f64> {
    Random(17).numbers(n)
}

/// Iterations, the answer, and what the preconditioner says of itself.
fn solved(problem: &Problem, b: &[f64], options: &str) -> Result<(usize, Vec<f64>, PrecondInfo)> {
    let options = format!("method=cg device=cpu rtol=1e-9 {options}").parse()?;
    let (mut solver, mut x) = (Solver::new(problem, &options)?, vec![0.0; b.len()]);
    let solution = solver.solve(b, &mut x)?;
    assert!(solution.converged(), "{:?}", solution.outcome());
    Ok((solution.history.iterations, x, (*solution.precond).clone()))
}

#[test]
fn one_tile_for_the_whole_takes_the_iterations_of_ildu() {
    let a = layers(CELLS);
    let b = right_hand_side(a.rows());
    let problem = Problem::bsr(&a).unwrap().with_grid(CELLS).unwrap();
    let (ildu, ..) = solved(&problem, &b, "precond=ildu:cut=whole").unwrap();
    let (whole, x, info) = solved(&problem, &b, "precond=block-jacobi:tile=whole").unwrap();
    assert!(whole.abs_diff(ildu) <= 1, "{whole} iterations, {ildu} with ildu");
    assert_eq!(info.parameters[0], ("tile".into(), Value::Text("23x12x32".into())));
    assert_eq!((&info.name[..], info.keeps_symmetry), ("block-jacobi", true));
    // The grid is seen from the first row where nobody gives it.
    let seen = solved(&Problem::bsr(&a).unwrap(), &b, "precond=block-jacobi:tile=whole").unwrap();
    assert!(seen.0 == whole && seen.1 == x);
    let (tiles, ..) = solved(&problem, &b, "precond=block-jacobi:tile=8x4x4").unwrap();
    assert!(tiles > whole, "{tiles} iterations with tiles, {whole} without");
}

#[test]
fn tiles_are_the_same_on_any_number_of_ranks_and_threads() {
    let a = layers(CELLS);
    let (b, options) = (right_hand_side(a.rows()), "precond=block-jacobi:tile=8x4x4");
    let whole = Problem::bsr(&a).unwrap().with_grid(CELLS).unwrap();
    let (alone, x, _) = solved(&whole, &b, &format!("{options} threads=1")).unwrap();
    let two = solved(&whole, &b, &format!("{options} threads=2")).unwrap();
    assert!(two.0 == alone && two.1 == x, "other numbers on two threads");
    // Planes in whole tiles, and boxes of 23×4×16 cells.
    for ranks in [2, 4, 6] {
        let terms = Terms::bsr(&a);
        let partition = match ranks {
            6 => Partition::boxes(CELLS, 6, Some([1, 3, 2])).unwrap(),
            _ => assign_planes(&terms, CELLS, ranks, 4).unwrap().unwrap().partition,
        };
        let parts = split(&terms, &partition).unwrap();
        let work = |comm: Arc<dyn Communicator>| {
            let part = &parts[comm.rank()];
            let problem = Problem::local(comm, part.rows.clone(), part.terms.clone())?.with_grid(CELLS)?;
            let of = |v: &[f64]| part.rows.iter().map(|&i| v[i as usize]).collect::<Vec<_>>();
            let (iterations, own, _) = solved(&problem, &of(&b), &format!("{options} threads=1"))?;
            assert!(
                iterations.abs_diff(alone) <= 1,
                "{iterations} iterations on {ranks} ranks, {alone} on one"
            );
            let distance = crate::common::distance(&own, &of(&x));
            assert!(distance <= 1e-6, "{ranks} ranks: {distance:e} from one rank's answer");
            Ok(())
        };
        Team::run(ranks, |comm| work(comm)).unwrap();
    }
}

#[test]
fn rows_that_are_no_box_are_refused() {
    let a = layers(CELLS);
    for (grid, named) in [([23, 12, 33], "23×12×33"), ([usize::MAX, 2, 2], "×2×2"), ([0, 1, 1], "0×1×1")]
    {
        let e = Problem::bsr(&a).unwrap().with_grid(grid).err().unwrap().to_string();
        assert!(e.contains(named) && e.contains("the system has 8832 nodes with 1 unknown each"), "{e}");
    }
    // Half of a plane more for the first rank.
    let terms = Terms::bsr(&a);
    let owner = (0..a.rows()).map(|i| u32::from(i >= a.rows() / 2 + 100)).collect();
    let parts = split(&terms, &Partition::new(owner, 2).unwrap()).unwrap();
    let work = |comm: Arc<dyn Communicator>| {
        let part = &parts[comm.rank()];
        let problem = Problem::local(comm, part.rows.clone(), part.terms.clone())?.with_grid(CELLS)?;
        let own = vec![1.0; part.rows.len()];
        let e = solved(&problem, &own, "precond=block-jacobi").unwrap_err().to_string();
        assert!(e.contains("own a box of the grid") && e.contains("use ildu"), "{e}");
        Ok(())
    };
    Team::run(2, |comm| work(comm)).unwrap();
}

#[test]
fn planes_are_given_in_whole_tiles() {
    let a = layers(CELLS);
    for (ranks, planes, expected) in [(1, 4, vec![32]), (3, 4, vec![8, 12, 12]), (5, 8, vec![6, 6, 7, 6, 7])]
    {
        let partition = assign_planes(&Terms::bsr(&a), CELLS, ranks, planes).unwrap().unwrap().partition;
        let mut counts = vec![0; ranks];
        partition.owner.iter().for_each(|&rank| counts[rank as usize] += 1);
        assert!(partition.owner.is_sorted());
        assert_eq!(counts, expected.iter().map(|n| n * 23 * 12).collect::<Vec<_>>(), "{ranks} ranks");
    }
    assert!(assign_planes(&Terms::bsr(&a), CELLS, 33, 4).unwrap().is_none());
}
