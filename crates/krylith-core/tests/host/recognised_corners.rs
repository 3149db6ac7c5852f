//! Saddle points with rows that are no constraints of the usual kind: mean values, and pressures without an
//! element.

use crate::recognised::{Coupled, elements, entries_of, found, options, residual, solved, times};
use krylith_core::matrix::Csr;
use krylith_core::{Field, Solver};

const BESIDE: &str = "split(u+p: split(u: amg, p: jacobi; schur=upper, S=selfp), m: none; form=diagonal)";

fn names(fields: &[Field]) -> Vec<&str> {
    fields.iter().map(Field::name).collect()
}

/// A multiplier that sets the mean pressure has a row with as many entries as there are pressures.
#[test]
fn a_mean_value_does_not_hide_a_saddle_point() {
    let Coupled { a, pressures } = elements(16, 0.0, true);
    let n = a.rows();
    let mean = pressures.iter().flat_map(|&p| [(p, n as u32, 0.01), (n as u32, p, 0.01)]);
    let with_mean: Vec<_> = entries_of(&a).into_iter().chain(mean).collect();
    let with_mean = Csr::from_triplets(n + 1, n + 1, &with_mean).unwrap();
    let fields = found(&with_mean, 1);
    assert_eq!(names(&fields), ["u", "p", "m"]);
    assert_eq!((fields[0].block(), fields[2].unknowns()), (2, &[n as u32][..]));
    assert_eq!(fields[1].unknowns(), pressures);
    solved(&with_mean, 1, BESIDE, 120);
    let b = times(&with_mean, &vec![1.0; n + 1]);
    let mut x = vec![0.0; n + 1];
    let mut solver = Solver::new(&with_mean, &options("")).unwrap();
    assert!(solver.solve(&b, &mut x).unwrap().converged());
    assert!(residual(&with_mean, &b, &x) <= 1.01e-8);
    // Many dense rows are no mean values.
    let many = (0..9).flat_map(|k| {
        let own = n as u32 + k;
        pressures.iter().flat_map(move |&p| [(p, own, 0.1 + f64::from(p % (k + 2))), (own, p, 1.0)])
    });
    let many: Vec<_> = entries_of(&a).into_iter().chain(many).collect();
    assert!(found(&Csr::from_triplets(n + 9, n + 9, &many).unwrap(), 1).is_empty());
}

/// Rows of the identity among the pressures belong to them, so that velocities keep their nodes.
#[test]
fn pressures_without_an_element_are_pressures() {
    let Coupled { a, pressures } = elements(12, 0.0, false);
    let dead = [pressures[3], pressures[4], pressures[pressures.len() - 1]];
    let is_dead = |i: u32| dead.contains(&i);
    let kept = entries_of(&a).into_iter().filter(|(i, j, _)| !is_dead(*i) && !is_dead(*j));
    let entries: Vec<_> = kept.chain(dead.map(|i| (i, i, 1.0))).collect();
    let fields = found(&Csr::from_triplets(a.rows(), a.rows(), &entries).unwrap(), 1);
    assert_eq!(names(&fields), ["u", "p"]);
    assert_eq!((fields[0].block(), fields[1].unknowns()), (2, &pressures[..]));
}
