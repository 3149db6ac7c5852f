//! Single systems: transposes, batches, new values, and errors.

use diffsol::{FaerContext, FaerMat, FaerSparseMat, FaerVec, NalgebraMat};
use diffsol_la::{Context, LinearOp, LinearSolver, Matrix, Vector};
use krylith_diffsol::Krylith;

struct Operator<M>(M);

impl<M: Matrix<T = f64>> LinearOp for Operator<M> {
    type T = f64;
    type V = M::V;
    type M = M;
    type C = M::C;

    fn nrows(&self) -> usize {
        self.0.nrows()
    }
    fn ncols(&self) -> usize {
        self.0.ncols()
    }
    fn context(&self) -> &M::C {
        self.0.context()
    }
    fn matrix_inplace(&self, y: &mut M) {
        y.copy_from(&self.0);
    }
    fn sparsity(&self) -> Option<M::Sparsity> {
        use diffsol_la::matrix::sparsity::MatrixSparsityRef;
        self.0.sparsity().map(|s| s.to_owned())
    }
}

/// [0 1 2; 3 1 0; 1 0 4] times a factor for each batch.
fn operator<M: Matrix<T = f64>>(factors: &[f64], context: M::C) -> Operator<M> {
    let entries = vec![(0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 2)];
    let values = factors.iter().flat_map(|f| [1.0, 2.0, 3.0, 1.0, 1.0, 4.0].map(|v| v * f)).collect();
    Operator(M::try_from_triplets(3, 3, entries, values, context).unwrap())
}

fn close<V: Vector<T = f64>>(x: &V, expected: &[f64]) {
    let x = x.clone_as_vec();
    assert!(x.iter().zip(expected).all(|(x, e)| (x - e).abs() < 1e-11), "{x:?} and not {expected:?}");
}

fn solves<M: Matrix<T = f64>>() {
    let mut solver = Krylith::<M>::default();
    let mut b = M::V::from_vec(vec![8.0, 5.0, 13.0], M::C::default());
    assert!(solver.solve(&b).unwrap_err().to_string().contains("not setup"));
    solver.set_sparsity(&operator::<M>(&[1.0], M::C::default()));
    for factor in [1.0, 2.0, -5.0] {
        solver.set_linearisation(&operator::<M>(&[factor], M::C::default()));
        close(&solver.solve(&b).unwrap(), &[1.0 / factor, 2.0 / factor, 3.0 / factor]);
    }
    b = M::V::from_vec(vec![-45.0, -15.0, -70.0], M::C::default());
    solver.solve_transpose_in_place(&mut b).unwrap();
    close(&b, &[1.0, 2.0, 3.0]);
}

#[test]
fn solves_with_matrices_of_each_kind() {
    solves::<FaerSparseMat<f64>>();
    solves::<FaerMat<f64>>();
    solves::<NalgebraMat<f64>>();
}

#[test]
fn batches_have_a_solver_each() {
    let context = |n| FaerContext::default().clone_with_nbatch(n).unwrap();
    let mut solver = Krylith::<FaerSparseMat<f64>>::default();
    let op = operator(&[1.0, 10.0], context(2));
    solver.set_sparsity(&op);
    solver.set_linearisation(&op);
    let b = FaerVec::from_vec([8.0, 5.0, 13.0].repeat(4), context(4));
    let first = [1.0, 2.0, 3.0].repeat(2);
    let expected: Vec<f64> = first.iter().copied().chain(first.iter().map(|x| x / 10.0)).collect();
    close(&solver.solve(&b).unwrap(), &expected);
    let b = FaerVec::from_vec(vec![1.0; 9], context(3));
    assert!(solver.solve(&b).unwrap_err().to_string().contains("3 right-hand sides for 2 matrices"));
}

/// The error of a linearisation comes with the next solve, and the one after may succeed.
#[test]
fn errors_name_the_reason() {
    type M = FaerSparseMat<f64>;
    let mut solver = Krylith::<M>::new("method=gmres precond=none max_iters=1".parse().unwrap());
    let b = FaerVec::from_vec(vec![8.0, 5.0, 13.0], FaerContext::default());
    solver.set_sparsity(&operator::<M>(&[1.0], FaerContext::default()));
    solver.set_linearisation(&operator::<M>(&[f64::NAN], FaerContext::default()));
    let why = solver.solve(&b).unwrap_err().to_string();
    assert!(why.contains("NaN") || why.contains("finite"), "{why}");
    solver.set_linearisation(&operator::<M>(&[1.0], FaerContext::default()));
    let why = solver.solve(&b).unwrap_err().to_string();
    assert!(why.contains("max-iterations after 1 iterations") && why.contains("Krylith::new"), "{why}");
    let mut solver = Krylith::<M>::default();
    solver.set_sparsity(&operator::<M>(&[1.0], FaerContext::default()));
    solver.set_linearisation(&operator::<M>(&[0.0], FaerContext::default())); // singular
    assert!(solver.solve(&b).is_err());
}
