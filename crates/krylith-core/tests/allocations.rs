//! A second solve allocates nothing. This binary has one short test: the counter sees every thread, and the
//! test harness allocates when it reports a test that runs for a minute.

mod common;

use common::*;
use krylith_core::comm::{Communicator, Message, Solo, Team};
use krylith_core::device::cpu::Cpu;
use krylith_core::matrix::{Csr, Dense};
use krylith_core::method::{
    Bicgstab, BicgstabOptions, Cbcg, CbcgOptions, Cg, CgForm, CgOptions, Gmres, GmresOptions, Method, Minres,
    Orthogonalization, Reductions,
};
use krylith_core::operator::{LinearOperator, PointBlock, Terms};
use krylith_core::partition::Subdomains;
use krylith_core::precond::{
    Additive, BlockJacobi, Equilibrated, Ildu, IlduOptions, Multiplicative, NullSpace, Scaling, Stage,
};
use krylith_core::space::Criterion;
use krylith_core::{Options, Outcome, Precision, Problem, Solver, Stop};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

struct Counting;
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        LIVE.fetch_add(layout.size() as isize, Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(p, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_second_solve_allocates_nothing() {
    ranks_allocate_nothing();
    factors_allocate_nothing();
    compositions_allocate_nothing();
    cg_allocates_nothing();
    solvers_allocate_nothing();
    let mut rng = Random(1);
    // 10 × 4 takes the product of any size.
    for (b, s) in [(4, 2), (3, 1), (10, 2), (2, 5)] {
        let k = random_kronecker(&mut rng, b, s, 40, 4, true, true);
        let (n, rhs) = (k.rows(), rng.numbers(k.rows()));
        let space = eager(n, 2);
        let terms = Terms::kronecker(&k);
        let mut a = PointBlock::kronecker(&space, &k, Precision::F64).unwrap();
        let scaling = Scaling::find(&terms, &Solo).unwrap();
        let scaled = scaling.scaled(&terms).unwrap();
        let mut jacobi = BlockJacobi::new(&space, &terms, Precision::F64).unwrap();
        let inner = BlockJacobi::new(&space, &scaled, Precision::F64).unwrap();
        let equilibrated = Equilibrated::new(&space, &scaling, Some(inner)).unwrap();
        let null_space = NullSpace::new(&space, &[rng.numbers(n)], Some(equilibrated)).unwrap();
        for which in 0..8 {
            let (mut method, options): (Box<dyn Method<Cpu>>, String) = method(&space, which);
            let repeats = if b == 3 { [1000, 3, 3, 3, 3, 3, 200, 3][which] } else { 3 };
            let mut x = vec![0.0; n];
            // The first solve is short; what follows goes further.
            let short = Stop { rtol: 0.5, ..Stop::default() };
            method.solve(&space, &a, None, &rhs, &mut x, &short, &mut ()).unwrap();

            let (before, live) = (ALLOCATIONS.load(Relaxed), LIVE.load(Relaxed));
            a.update_values(&space, 0, k.m.values()).unwrap();
            a.update_values(&space, 1, k.l.values()).unwrap();
            a.set_tau(&space, &k.a, k.tau).unwrap();
            jacobi.update_values(&space, &terms).unwrap();
            x.fill(0.0);
            let long = Stop { rtol: 1e-11, ..Stop::default() };
            let outcome =
                method.solve(&space, &a, Some(&jacobi), &rhs, &mut x, &long, &mut ()).unwrap().outcome;
            let (after, live_after) = (ALLOCATIONS.load(Relaxed), LIVE.load(Relaxed));
            assert_eq!(outcome, Outcome::Converged);
            assert_eq!((after - before, live_after - live), (0, 0), "b={b} s={s} {options}");

            for p in [&jacobi as &dyn LinearOperator<Cpu>, &null_space] {
                let (before, live) = (ALLOCATIONS.load(Relaxed), LIVE.load(Relaxed));
                for step in 0..repeats {
                    a.set_tau(&space, &k.a, k.tau * (1.0 + 1e-4 * step as f64)).unwrap();
                    let stop = Stop { rtol: 1e-3, max_iters: 3, atol: 0.0, ..Stop::DEFAULT };
                    method.solve(&space, &a, Some(p), &rhs, &mut x, &stop, &mut ()).unwrap();
                }
                let (after, live_after) = (ALLOCATIONS.load(Relaxed), LIVE.load(Relaxed));
                assert_eq!((after - before, live_after - live), (0, 0), "b={b} s={s} {options}");
            }
            a.set_tau(&space, &k.a, k.tau).unwrap();

            for criterion in [Criterion::Rows, Criterion::Backward] {
                let stop = Stop { criterion, rtol: 1e-8, ..Stop::DEFAULT };
                let mut before = 0;
                for _ in 0..2 {
                    x.fill(0.0);
                    before = ALLOCATIONS.load(Relaxed);
                    method.solve(&space, &a, Some(&jacobi), &rhs, &mut x, &stop, &mut ()).unwrap();
                }
                assert_eq!(ALLOCATIONS.load(Relaxed), before, "b={b} s={s} {options} {criterion}");
            }
        }
    }
}

/// GMRES in six ways, BiCGSTAB in two; with its options in words.
fn method(space: &Cpu, which: usize) -> (Box<dyn Method<Cpu>>, String) {
    if which >= 6 {
        let reductions = [Reductions::Merged, Reductions::Classical][which - 6];
        let options = BicgstabOptions { reductions, ..Default::default() };
        return (Box::new(Bicgstab::new(space, options).unwrap()), format!("{options:?}"));
    }
    let orthogonalization =
        [Orthogonalization::Lowsync, Orthogonalization::Cgs2, Orthogonalization::Mgs][which / 2];
    let basis = [Precision::F64, Precision::F32][which % 2];
    let options =
        GmresOptions { restart: 10, orthogonalization, basis, flexible: which == 4, complex: false };
    (Box::new(Gmres::new(space, options).unwrap()), format!("{options:?}"))
}

/// CG in every form and MINRES, with and without a preconditioner.
fn cg_allocates_nothing() {
    let mut entries: Vec<(u32, u32, f64)> = (0..300).map(|i| (i, i, 2.5 + f64::from(i % 5))).collect();
    entries.extend((1..300).flat_map(|i| [(i, i - 1, -1.0), (i - 1, i, -1.0)]));
    let matrix = Csr::from_triplets(300, 300, &entries).unwrap();
    let (space, rhs) = (eager(300, 2), Random(5).numbers(300));
    let a = PointBlock::csr(&space, &matrix, Precision::F64).unwrap();
    let jacobi = BlockJacobi::new(&space, &Terms::csr(&matrix).unwrap(), Precision::F64).unwrap();
    let mut all: Vec<(String, Box<dyn Method<Cpu>>)> = Vec::new();
    for form in [CgForm::Textbook, CgForm::OneReduction, CgForm::Flexible, CgForm::Pipelined] {
        all.push((format!("cg, {form} form"), Box::new(Cg::new(&space, CgOptions { form }).unwrap())));
    }
    for steps in [5, 12] {
        let options = CbcgOptions { steps, ..CbcgOptions::default() };
        all.push((format!("cbcg, s = {steps}"), Box::new(Cbcg::new(&space, options).unwrap())));
    }
    all.push(("minres".into(), Box::new(Minres::new(&space, ()).unwrap())));
    for (name, mut cg) in all {
        let mut x = vec![0.0; 300];
        let short = Stop { rtol: 0.5, ..Stop::default() };
        cg.solve(&space, &a, Some(&jacobi), &rhs, &mut x, &short, &mut ()).unwrap();
        let before = ALLOCATIONS.load(Relaxed);
        for p in [None, Some(&jacobi as &dyn LinearOperator<Cpu>)] {
            x.fill(0.0);
            let long = Stop { rtol: 1e-11, ..Stop::default() };
            let outcome = cg.solve(&space, &a, p, &rhs, &mut x, &long, &mut ()).unwrap().outcome;
            assert_eq!(outcome, Outcome::Converged, "{name}");
        }
        assert_eq!(ALLOCATIONS.load(Relaxed), before, "allocations of {name}");
    }
}

/// Sums and halos of ranks that are threads, after the first of each length.
fn ranks_allocate_nothing() {
    let counts = Team::run(3, |comm| {
        let (one, other) = ((comm.rank() + 1) % 3, (comm.rank() + 2) % 3);
        let message = |rank, at: usize| Message { rank, send: at..at + 40, receive: at..at + 40 };
        let mut halo = comm.channel(&[message(one.min(other), 0), message(one.max(other), 40)])?;
        let mut values = [1.0; 65];
        comm.sum(&mut values)?;
        comm.start_sum(&mut values)?;
        comm.finish_sum(&mut values)?;
        let before = ALLOCATIONS.load(Relaxed);
        for length in (0..1000).map(|step| step % 66) {
            halo.start()?;
            comm.start_sum(&mut values[65 - length..])?;
            comm.sum(&mut [1.0])?;
            comm.finish_sum(&mut values[65 - length..])?;
            comm.sum(&mut values[..length])?;
            halo.finish()?;
        }
        Ok(ALLOCATIONS.load(Relaxed) - before)
    });
    // The last to begin counts nothing of what others did before, the first nothing after it has ended.
    assert_eq!(counts.unwrap(), [0; 3], "allocations of a team's ranks");
}

/// New values of incomplete factors and their application.
fn factors_allocate_nothing() {
    let mut rng = Random(2);
    for (b, s, precision) in
        [(1, 1, Precision::F64), (3, 1, Precision::F32), (4, 2, Precision::F64), (5, 2, Precision::F64)]
    {
        let mut k = random_kronecker(&mut rng, b, s, 60, 4, false, true);
        let labels: Vec<u32> = (0..60).map(|_| rng.below(5) as u32).collect();
        let subdomains = Subdomains::from_labels(&labels, 5).unwrap();
        let space = eager(k.rows(), 2);
        let options = IlduOptions { fill: 1, precision, ..IlduOptions::default() };
        let mut ildu = Ildu::new(&space, &Terms::kronecker(&k), &subdomains, options).unwrap();
        let (x, mut y) = (rng.numbers(k.rows()), vec![0.0; k.rows()]);
        for step in 0..100 {
            k.m.values_mut().iter_mut().for_each(|v| *v *= 1.001);
            let terms = Terms::kronecker(&k);
            let (before, live) = (ALLOCATIONS.load(Relaxed), LIVE.load(Relaxed));
            ildu.update_values(&space, &terms).unwrap();
            ildu.apply(&space, &x, &mut y).unwrap();
            let (after, live_after) = (ALLOCATIONS.load(Relaxed), LIVE.load(Relaxed));
            assert_eq!((after - before, live_after - live), (0, 0), "factors, b={b} s={s} step {step}");
        }
    }
}

/// Compositions and stage preconditioners; of the latter an update takes s² numbers for a moment.
fn compositions_allocate_nothing() {
    let mut rng = Random(3);
    let mut k = random_kronecker(&mut rng, 3, 3, 60, 4, false, true);
    k.a = Dense::identity(3);
    let (space, subdomains) = (eager(k.rows(), 2), Subdomains::whole(60));
    let (x, mut y) = (rng.numbers(k.rows()), vec![0.0; k.rows()]);
    let mut stage = Stage::new(&space, &Terms::kronecker(&k), &subdomains, Default::default()).unwrap();
    for step in 0..100 {
        k.m.values_mut().iter_mut().for_each(|v| *v *= 1.001);
        let terms = Terms::kronecker(&k);
        let live = LIVE.load(Relaxed);
        stage.update_values(&space, &terms).unwrap();
        let before = ALLOCATIONS.load(Relaxed);
        stage.apply(&space, &x, &mut y).unwrap();
        let (after, live_after) = (ALLOCATIONS.load(Relaxed), LIVE.load(Relaxed));
        assert_eq!((after - before, live_after - live), (0, 0), "stages, step {step}");
    }
    let terms = Terms::kronecker(&k);
    let jacobi = || BlockJacobi::new(&space, &terms, Precision::F64).unwrap();
    let a = PointBlock::kronecker(&space, &k, Precision::F64).unwrap();
    let p =
        Multiplicative::new(&space, Additive::new(&space, jacobi(), stage).unwrap(), jacobi(), &a).unwrap();
    let before = ALLOCATIONS.load(Relaxed);
    (0..100).for_each(|_| p.apply(&space, &x, &mut y).unwrap());
    assert_eq!(ALLOCATIONS.load(Relaxed), before, "compositions");
}

/// Solves, new values and a new τ through the threads of a solver.
fn solvers_allocate_nothing() {
    let mut rng = Random(4);
    let mut k = random_kronecker(&mut rng, 3, 2, 40, 4, false, true);
    let b = rng.numbers(k.rows());
    for text in [
        "method=gmres:restart=10 precond=jacobi",
        "method=bicgstab precond=ildu:rows=10",
        "precond=jacobi+ildu",
    ] {
        let options: Options = format!("device=cpu threads=2 rtol=1e-10 {text}").parse().unwrap();
        let problem = Problem::kronecker(&k).unwrap().into_owned();
        let (mut solver, mut x) = (Solver::new(problem, &options).unwrap(), vec![0.0; k.rows()]);
        std::thread::sleep(Duration::from_millis(50)); // a thread allocates when it starts, which nobody waits for
        let short = Stop { rtol: 0.5, ..Stop::default() };
        solver.set_stop(short);
        solver.solve(&b, &mut x).unwrap();
        solver.set_stop(options.stop());
        // The first new values copy the solver's matrices, which so far share arrays with the given ones.
        solver.update_term(0, k.m.values()).unwrap();
        solver.update_term(1, k.l.values()).unwrap();
        for step in 0..100 {
            k.m.values_mut().iter_mut().for_each(|v| *v *= 1.001);
            let (before, live) = (ALLOCATIONS.load(Relaxed), LIVE.load(Relaxed));
            solver.update_term(0, k.m.values()).unwrap();
            solver.update_term(1, k.l.values()).unwrap();
            solver.set_tau(k.tau * (1.0 + 1e-4 * f64::from(step))).unwrap();
            x.fill(0.0);
            let outcome = solver.solve(&b, &mut x).unwrap().outcome();
            let (after, live_after) = (ALLOCATIONS.load(Relaxed), LIVE.load(Relaxed));
            assert_eq!(outcome, Outcome::Converged);
            assert_eq!((after - before, live_after - live), (0, 0), "{text}, step {step}");
        }
    }
}
