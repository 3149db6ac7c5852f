//! Nonlinear problems that several ranks share: F, J and time steps are those of one process.

use krylith_core::comm::{Communicator, Team};
use krylith_core::newton::{Newton, NewtonOptions};
use krylith_problems::nonlinear::{NonlinearProblem, by_text, by_text_on};
use krylith_problems::share::Ranks;

/// The numbers of the nodes of a rank, among those of all nodes.
fn own(problem: &dyn NonlinearProblem, all: &[f64]) -> Vec<f64> {
    let b = problem.pattern().block();
    let numbers = problem.share().unwrap().numbers();
    numbers.iter().flat_map(|&i| all[i as usize * b..][..b].iter().copied()).collect()
}

/// J v, with v of own nodes and ghosts.
fn product(problem: &mut dyn NonlinearProblem, x: &[f64], v: &[f64]) -> Vec<f64> {
    let mut values = vec![0.0; problem.pattern().stored()];
    problem.jacobian(x, &mut values).unwrap();
    let a = problem.pattern();
    let b = a.block();
    let mut y = vec![0.0; a.rows()];
    for i in 0..a.block_rows() {
        for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
            let j = a.col()[p] as usize;
            for r in 0..b {
                y[i * b + r] += (0..b).map(|c| values[(p * b + r) * b + c] * v[j * b + c]).sum::<f64>();
            }
        }
    }
    y
}

fn farthest(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let largest = b.iter().fold(f64::MIN_POSITIVE, |m, b| m.max(b.abs()));
    a.iter().zip(b).fold(0.0f64, |m, (a, b)| m.max((a - b).abs())) / largest
}

#[test]
fn rows_of_ranks_are_those_of_one_process() {
    for (text, partition) in [
        ("cavity:9x7,re=40", "boxes"),
        ("cavity:9x7,re=40", "rows"),
        ("ventricle:400,pressure=2000", "nonzeros"),
        ("ventricle:400,tension=20,cross=0.1,numbering=random", "multilevel"),
        ("artery:250,re=80", "multilevel"),
    ] {
        let mut alone = by_text(text).unwrap();
        let n = alone.pattern().rows();
        let small = if text.starts_with("ventricle") { 1e-3 } else { 0.3 };
        let wave = |shift: f64| (0..n).map(|k| small * (0.7 * k as f64 + shift).sin()).collect::<Vec<f64>>();
        let (start, v, mut x) = (alone.initial(), wave(2.0), wave(1.0));
        let evaluate = |problem: &mut dyn NonlinearProblem, x: &[f64]| {
            let mut f = vec![0.0; x.len()];
            problem.residual(x, &mut f).unwrap();
            f
        };
        let first = (evaluate(&mut *alone, &x), product(&mut *alone, &x, &v));
        let given = x.clone();
        let more = alone.next_step(&mut x).unwrap();
        let second = evaluate(&mut *alone, &x);
        Team::run(3, |comm| {
            let ranks = Ranks { comm: comm.clone(), partition: partition.parse()? };
            let mut problem = by_text_on(text, &ranks)?;
            let part = problem.share().unwrap().clone();
            assert!(!part.numbers().is_empty() && part.numbers().len() < part.nodes(), "{text}");
            assert_eq!(problem.initial(), own(&*problem, &start), "{text}");
            let mut mine = own(&*problem, &given);
            let f = evaluate(&mut *problem, &mine);
            assert!(farthest(&f, &own(&*problem, &first.0)) < 1e-13, "{text}: F");
            let b = problem.pattern().block();
            let halo = problem.problem()?.terms().halo().unwrap().clone();
            let local = halo.with_ghosts(&*comm, b, &own(&*problem, &v))?;
            let y = product(&mut *problem, &mine, &local);
            assert!(farthest(&y, &own(&*problem, &first.1)) < 1e-12, "{text}: J");
            assert_eq!(problem.next_step(&mut mine)?, more, "{text}");
            let f = evaluate(&mut *problem, &mine);
            assert!(farthest(&f, &own(&*problem, &second)) < 1e-12, "{text}: F of the second step");
            // Rank 0 draws the whole problem.
            if comm.rank() == 0 {
                assert_eq!(problem.points(), alone_points(text));
                let picture = problem.picture(&given).unwrap();
                assert!(picture.values.iter().any(|v| v.is_finite()));
            }
            Ok(())
        })
        .unwrap();
    }
}

fn alone_points(text: &str) -> Vec<[f64; 3]> {
    by_text(text).unwrap().points()
}

#[test]
fn flow_through_surfaces_and_solutions_do_not_depend_on_ranks() {
    use krylith_problems::artery::{Artery, ArteryOptions, mesh};
    let options = ArteryOptions { re: 50.0, ..ArteryOptions::default() };
    let newton = || {
        let options = NewtonOptions { rtol: 1e-10, ..NewtonOptions::default() };
        Newton::new(options, &"device=cpu threads=1 precond=ildu rtol=1e-12".parse().unwrap()).unwrap()
    };
    let mut alone = Artery::new(mesh(300).unwrap(), options.clone()).unwrap();
    let mut x = alone.initial();
    assert!(newton().solve(&mut alone, &mut x).unwrap().converged());
    let through = ["inlet", "outlet"].map(|name| alone.flow().outflow(name, &x).unwrap());
    assert!((through[0] + through[1]).abs() < 0.1 * through[1]);
    let differences = Team::run(2, |comm| {
        let ranks = Ranks { comm, partition: Default::default() };
        let mut artery = Artery::on(&ranks, mesh(300)?, options.clone())?;
        let mut mine = artery.initial();
        assert!(newton().solve(&mut artery, &mut mine)?.converged());
        for (name, whole) in ["inlet", "outlet"].into_iter().zip(through) {
            let part = artery.flow().outflow(name, &mine)?;
            assert!((part - whole).abs() < 1e-6 * whole.abs(), "{name}: {part} and {whole}");
        }
        Ok(farthest(&mine, &own(&artery, &x)))
    })
    .unwrap();
    assert!(differences.iter().all(|d| *d < 1e-6), "{differences:?}");
}

#[test]
fn more_ranks_than_nodes_and_unfit_partitions_are_refused_on_every_rank() {
    for (text, partition, words) in [
        ("cavity:4x4", "boxes:1x1x3", "more boxes than nodes along an axis"),
        ("ventricle:100", "boxes", "structured grid"),
    ] {
        let found = Team::run(3, |comm| {
            let ranks = Ranks { comm, partition: partition.parse()? };
            Ok(by_text_on(text, &ranks).err().map(|e| e.to_string()))
        })
        .unwrap();
        for message in found {
            assert!(message.as_deref().is_some_and(|m| m.contains(words)), "{text}: {message:?}");
        }
    }
}

/// A host without the file of the mesh, for example.
#[test]
fn a_rank_without_a_mesh_ends_all() {
    for other in ["artery:missing.msh", "artery:4"] {
        let found = Team::run(3, |comm| {
            let text = if comm.rank() == 1 { other } else { "artery:300" };
            let ranks = Ranks { comm, partition: Default::default() };
            Ok(by_text_on(text, &ranks).err().map(|e| e.to_string()))
        })
        .unwrap();
        let words = if other.ends_with("msh") { "missing.msh" } else { "at least 18" };
        for message in found {
            assert!(message.as_deref().is_some_and(|m| m.contains(words)), "{message:?}");
        }
    }
}
