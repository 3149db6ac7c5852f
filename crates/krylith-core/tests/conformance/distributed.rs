//! What a device must do as one of several ranks: the same solve as on one, whoever owns which rows.

use crate::common::*;
use krylith_core::comm::{Communicator, Team, gather};
use krylith_core::matrix::{Bsr, Dense, KroneckerSum};
use krylith_core::method::{
    Bicgstab, BicgstabOptions, Cbcg, CbcgOptions, Cg, CgOptions, Gmres, GmresOptions, Method, Minres,
    Orthogonalization, Reductions,
};
use krylith_core::operator::{LinearOperator, PointBlock, PointBlockSum, Terms};
use krylith_core::partition::{Part, Partition, Subdomains, split};
use krylith_core::precond::{BlockDiagonal, BlockJacobi, Ildu, IlduOptions, NullSpace, SubdomainFactors};
use krylith_core::space::Space;
use krylith_core::{History, Outcome, Precision, Result, Stop};
use std::sync::Arc;

/// Makes a space of this rank's share of vectors.
pub type MakeShare<'a, S> = &'a (dyn Fn(&Arc<dyn Communicator>, usize) -> Result<S> + Sync);

/// Partitions of n block rows: contiguous, scattered, an empty rank, almost everything on the last rank.
pub fn partitions(n: usize, ranks: usize) -> Vec<(&'static str, Partition)> {
    let make = |owner: &dyn Fn(usize) -> usize| {
        Partition::new((0..n).map(|i| owner(i) as u32).collect(), ranks).unwrap()
    };
    let mut all = vec![
        ("contiguous", make(&|i| i * ranks / n)),
        ("scattered", make(&|i| i % ranks)),
        ("one row a rank but the last", make(&|i| i.min(ranks - 1))),
    ];
    if ranks > 2 {
        all.push(("an empty rank", make(&|i| if i * ranks / n == 1 { 0 } else { i * ranks / n })));
    }
    all
}

/// A 7-point operator on a grid in b×b blocks with s stages: condition below 1e4, and more iterations than
/// one cycle.
pub fn grid(b: usize, s: usize, side: usize) -> KroneckerSum {
    let n = side * side * side;
    let mut rng = Random(77);
    let (mut row_ptr, mut col) = (vec![0], Vec::<u32>::new());
    let (mut m, mut l) = (Vec::new(), Vec::new());
    for i in 0..n {
        let (x, y, z) = (i % side, i / side % side, i / side / side);
        let mut row = vec![i];
        let steps = [(x > 0, i.wrapping_sub(1)), (x + 1 < side, i + 1)];
        let steps = steps.into_iter().chain([(y > 0, i.wrapping_sub(side)), (y + 1 < side, i + side)]);
        let steps = steps.chain([(z > 0, i.wrapping_sub(side * side)), (z + 1 < side, i + side * side)]);
        row.extend(steps.filter(|s| s.0).map(|s| s.1));
        row.sort_unstable();
        for j in row {
            col.push(j as u32);
            for e in 0..b * b {
                let diagonal = (e % (b + 1) == 0) as u8 as f64;
                m.push(if i == j { diagonal + 0.02 * rng.number() } else { 0.0 });
                let coupling = if i == j { 6.05 } else { -1.0 };
                l.push(coupling * diagonal + 0.01 * rng.number());
            }
        }
        row_ptr.push(col.len());
    }
    let m = Bsr::new(b, n, n, row_ptr.clone(), col.clone(), m).unwrap();
    let l = Bsr::new(b, n, n, row_ptr, col, l).unwrap();
    let mut bb = Dense::identity(s);
    (1..s).for_each(|k| bb[(k, k - 1)] = -0.4);
    KroneckerSum::new(Dense::identity(s), bb, 20.0, m, l).unwrap()
}

/// Every node is a neighbour of every rank: node 0 is coupled with all others.
fn hub(n: usize) -> KroneckerSum {
    let mut rng = Random(78);
    let (mut row_ptr, mut col) = (vec![0], Vec::<u32>::new());
    for i in 0..n as u32 {
        col.extend((0..n as u32).filter(|&j| i == 0 || j == 0 || i == j));
        row_ptr.push(col.len());
    }
    // Hub couplings of 1/n: an outlier among the eigenvalues would make residuals sensitive to the last
    // digit.
    let mut values = || -> Vec<f64> {
        let mut values = rng.numbers(9 * col.len());
        for i in 0..n {
            for p in row_ptr[i]..row_ptr[i + 1] {
                for e in 0..9 {
                    let own = col[p] as usize == i;
                    values[9 * p + e] *= if own { 0.3 } else { 1.0 / n as f64 };
                    values[9 * p + e] += if own && e % 4 == 0 { 2.0 } else { 0.0 };
                }
            }
        }
        values
    };
    let (m, l) = (values(), values());
    let m = Bsr::new(3, n, n, row_ptr.clone(), col.clone(), m).unwrap();
    let l = Bsr::new(3, n, n, row_ptr, col, l).unwrap();
    KroneckerSum::new(Dense::identity(2), Dense::identity(2), 0.5, m, l).unwrap()
}

/// A method and its options.
#[derive(Clone, Copy)]
pub enum Chosen {
    Gmres(GmresOptions),
    Bicgstab(BicgstabOptions),
    Cbcg(CbcgOptions),
    Cg(CgOptions),
    Minres,
}

impl Chosen {
    fn build<'a, S: Space + 'a>(self, space: &S) -> Result<Box<dyn Method<S> + 'a>> {
        Ok(match self {
            Chosen::Gmres(options) => Box::new(Gmres::new(space, options)?),
            Chosen::Bicgstab(options) => Box::new(Bicgstab::new(space, options)?),
            Chosen::Cbcg(options) => Box::new(Cbcg::new(space, options)?),
            Chosen::Cg(options) => Box::new(Cg::new(space, options)?),
            Chosen::Minres => Box::new(Minres::new(space, ())?),
        })
    }
}

/// How a distributed solve is set up.
#[derive(Clone, Copy)]
pub struct Setup {
    pub method: Chosen,
    pub stop: Stop,
    pub jacobi: bool,
    pub null: bool,
    /// Side of the grid that is cut into boxes for incomplete factors.
    pub boxes: Option<usize>,
}

impl Default for Setup {
    fn default() -> Self {
        let stop = Stop { rtol: 1e-10, ..Stop::default() };
        Self { method: Chosen::Gmres(GmresOptions::default()), stop, jacobi: false, null: false, boxes: None }
    }
}

/// The boxes of a grid: a subdomain for each node.
fn boxes(side: usize) -> Vec<u32> {
    let cut = Subdomains::boxes([side; 3], [3, 3, 2]);
    let mut labels = vec![0; side * side * side];
    for p in 0..cut.count() {
        cut.rows(p).iter().for_each(|&i| labels[i as usize] = p as u32);
    }
    labels
}

/// Solves this rank's part; x of the whole system comes back on every rank.
pub fn solve_part<S: PointBlockSum + BlockDiagonal + SubdomainFactors>(
    comm: &Arc<dyn Communicator>,
    make: MakeShare<S>,
    part: &Part,
    rhs: &[f64],
    setup: Setup,
) -> Result<(Vec<f64>, History)> {
    let run = part.terms.block() * part.terms.stages();
    let space = make(comm, part.rows.len() * run)?;
    let own: Vec<f64> = part.rows.iter().flat_map(|&i| &rhs[i as usize * run..][..run]).copied().collect();
    let a = PointBlock::new(&space, &part.terms, Precision::F64, false)?;
    let jacobi =
        if setup.jacobi { Some(BlockJacobi::new(&space, &part.terms, Precision::F64)?) } else { None };
    let null = match setup.null {
        true => Some(NullSpace::new(&space, &[vec![1.0; own.len()]], None::<BlockJacobi<S>>)?),
        false => None,
    };
    let jacobi = jacobi.as_ref().map(|p| p as &dyn LinearOperator<S>);
    let ildu = match setup.boxes {
        Some(side) => {
            let labels = boxes(side);
            let own: Vec<u32> = part.rows.iter().map(|&i| labels[i as usize]).collect();
            let cut = Subdomains::from_labels(&own, side * side * side)?;
            Some(Ildu::new(&space, &part.terms, &cut, IlduOptions::default())?)
        }
        None => None,
    };
    let ildu = ildu.as_ref().map(|p| p as &dyn LinearOperator<S>);
    let p = jacobi.or(ildu).or(null.as_ref().map(|p| p as &dyn LinearOperator<S>));
    let (mut b, mut x) = (space.vector()?, space.vector()?);
    space.write(&own, &mut b)?;
    let mut method = setup.method.build(&space)?;
    // Twice: the first solve of a device that records does not replay, the second does.
    method.solve(&space, &a, p, &b, &mut x, &setup.stop, &mut ())?;
    space.write(&vec![0.0; own.len()], &mut x)?;
    let history = method.solve(&space, &a, p, &b, &mut x, &setup.stop, &mut ())?.clone();
    let mut answer = own;
    space.read(&x, &mut answer)?;
    let message: Vec<u8> = part
        .rows
        .iter()
        .zip(answer.chunks_exact(run.max(1)))
        .flat_map(|(i, x)| i.to_le_bytes().into_iter().chain(x.iter().flat_map(|x| x.to_le_bytes())))
        .collect();
    let mut whole = vec![f64::NAN; rhs.len()];
    for message in gather(&**comm, &message)? {
        for node in message.chunks_exact(8 * (run + 1)) {
            let number = |k: usize| <[u8; 8]>::try_from(&node[8 * k..8 * k + 8]).unwrap();
            let i = u64::from_le_bytes(number(0)) as usize;
            (0..run).for_each(|k| whole[i * run + k] = f64::from_le_bytes(number(k + 1)));
        }
    }
    Ok((whole, history))
}

/// The histories of P ranks and of one agree over the first cycle of GMRES, or the first five iterations of
/// BiCGSTAB, and so do the final true residuals; all ranks have the same history, bit by bit.
pub fn many_ranks_solve_as_one<S: PointBlockSum + BlockDiagonal + SubdomainFactors>(
    sizes: &[usize],
    make: MakeShare<S>,
) {
    let mut rng = Random(21);
    let default = Setup::default();
    let with = |orthogonalization| Setup {
        method: Chosen::Gmres(GmresOptions { orthogonalization, ..GmresOptions::default() }),
        ..default
    };
    let fgmres = Setup {
        method: Chosen::Gmres(GmresOptions { flexible: true, ..GmresOptions::default() }),
        jacobi: true,
        ..default
    };
    let bicgstab = |reductions| Setup {
        method: Chosen::Bicgstab(BicgstabOptions { reductions, complex: false }),
        ..default
    };
    let cases = [
        ("grid", grid(4, 2, 7), default),
        ("grid with jacobi", grid(3, 1, 6), Setup { jacobi: true, ..default }),
        ("grid, cgs2", grid(1, 2, 7), with(Orthogonalization::Cgs2)),
        ("grid, mgs", grid(2, 1, 7), with(Orthogonalization::Mgs)),
        ("grid, fgmres with jacobi", grid(3, 2, 6), fgmres),
        (
            "grid, null space",
            grid(2, 2, 6),
            Setup { null: true, stop: Stop { max_iters: 45, ..default.stop }, ..default },
        ),
        ("grid, bicgstab", grid(4, 2, 7), bicgstab(Reductions::Merged)),
        ("grid, classical bicgstab", grid(2, 1, 7), bicgstab(Reductions::Classical)),
        ("grid, bicgstab with jacobi", grid(3, 1, 6), Setup { jacobi: true, ..bicgstab(Reductions::Merged) }),
        ("boxes, bicgstab", grid(3, 1, 7), Setup { boxes: Some(7), ..bicgstab(Reductions::Merged) }),
        (
            "boxes of stages, bicgstab",
            grid(4, 2, 6),
            Setup { boxes: Some(6), ..bicgstab(Reductions::Classical) },
        ),
        ("boxes, gmres", grid(1, 1, 8), Setup { boxes: Some(8), ..default }),
        (
            "two patterns, bicgstab",
            random_kronecker(&mut rng, 3, 2, 40, 3, false, true),
            bicgstab(Reductions::Merged),
        ),
        ("two patterns", random_kronecker(&mut rng, 5, 3, 40, 3, false, true), default),
        ("a hub", hub(35), default),
        ("scalars", random_kronecker(&mut rng, 1, 1, 50, 3, true, true), default),
    ];
    for (name, k, setup) in &cases {
        let rhs = rng.numbers(k.rows());
        let terms = Terms::kronecker(k);
        let n = terms.block_rows();
        let one = |ranks: usize, partition: &Partition| {
            let parts = split(&terms, partition).unwrap();
            let work =
                |comm: Arc<dyn Communicator>| solve_part(&comm, make, &parts[comm.rank()], &rhs, *setup);
            Team::run(ranks, |comm| work(comm)).unwrap()
        };
        let (x, reference) = one(1, &Partition::new(vec![0; n], 1).unwrap()).remove(0);
        for &ranks in sizes {
            // Ranks own whole subdomains: what is given to them are those, or rows.
            let labels = setup.boxes.map_or_else(|| (0..n as u32).collect(), boxes);
            let units = labels.iter().max().map_or(0, |&l| l as usize + 1);
            for (shape, by_unit) in partitions(units, ranks) {
                let owner = labels.iter().map(|&l| by_unit.owner[l as usize]).collect();
                let partition = Partition::new(owner, ranks).unwrap();
                let case = format!("{name}, {ranks} ranks, {shape}");
                let all = one(ranks, &partition);
                for (own, history) in &all {
                    compare(&case, setup.method, &reference, history);
                    assert_eq!(history.residuals, all[0].1.residuals, "{case}: ranks differ");
                    assert_eq!(own, &all[0].0, "{case}");
                }
                if reference.outcome == Outcome::Converged {
                    assert!(distance(&all[0].0, &x) < 1e-8, "{case}: {:e}", distance(&all[0].0, &x));
                }
            }
        }
    }
}

/// CG in every form gives the same results over ranks as on one, also if its sums are in progress during a
/// product.
pub fn cg_over_ranks_is_cg<S: PointBlockSum + BlockDiagonal + SubdomainFactors>(
    sizes: &[usize],
    make: MakeShare<S>,
) {
    let (n, rhs) = (180, Random(67).numbers(360));
    let matrix = super::method::symmetric(&mut Random(68), 2, n, 1.0);
    let terms = Terms::bsr(&matrix);
    for form in super::method::CG_FORMS {
        is_as_on_one(&format!("cg {form}"), Chosen::Cg(CgOptions { form }), &terms, &rhs, sizes, make);
    }
}

/// MINRES gives the same results over ranks as on one.
pub fn minres_over_ranks_is_minres<S: PointBlockSum + BlockDiagonal + SubdomainFactors>(
    sizes: &[usize],
    make: MakeShare<S>,
) {
    let (n, rhs) = (180, Random(69).numbers(360));
    let matrix = super::minres::indefinite(&mut Random(70), 2, n, 1.0);
    is_as_on_one("minres", Chosen::Minres, &Terms::bsr(&matrix), &rhs, sizes, make);
}

/// Compares solves over ranks with one on a single rank, with and without Jacobi.
fn is_as_on_one<S: PointBlockSum + BlockDiagonal + SubdomainFactors>(
    name: &str,
    method: Chosen,
    terms: &Terms,
    rhs: &[f64],
    sizes: &[usize],
    make: MakeShare<S>,
) {
    let n = terms.block_rows();
    for jacobi in [false, true] {
        let setup = Setup { method, jacobi, ..Setup::default() };
        let one = |ranks: usize, partition: &Partition| {
            let parts = split(terms, partition).unwrap();
            let work = |comm: Arc<dyn Communicator>| solve_part(&comm, make, &parts[comm.rank()], rhs, setup);
            Team::run(ranks, |comm| work(comm)).unwrap()
        };
        let (x, reference) = one(1, &Partition::new(vec![0; n], 1).unwrap()).remove(0);
        assert_eq!(reference.outcome, Outcome::Converged, "{name}");
        for &ranks in sizes {
            for (shape, partition) in partitions(n, ranks) {
                let case = format!("{name}, jacobi={jacobi}, {ranks} ranks, {shape}");
                let all = one(ranks, &partition);
                for (own, history) in &all {
                    compare(&case, setup.method, &reference, history);
                    assert!(history.residuals == all[0].1.residuals, "{case}: ranks differ");
                    assert!(own == &all[0].0, "{case}: answers differ");
                }
                assert!(distance(&all[0].0, &x) < 1e-8, "{case}: {:e}", distance(&all[0].0, &x));
            }
        }
    }
}

/// |ρₖ − ρ′ₖ| ≤ 1e-10 ρ₀ over the first iterations, and the same outcome and final true residual.
pub fn compare(case: &str, method: Chosen, reference: &History, history: &History) {
    assert_eq!(history.outcome, reference.outcome, "{case}");
    // BiCGSTAB amplifies rounding from iteration to iteration; GMRES does not within a cycle.
    let (entries, slack) = match method {
        Chosen::Gmres(_) => (31, 1),
        Chosen::Bicgstab(_) => (6, 2 + reference.iterations / 10),
        // Two steps; the end of a solve is the end of a step.
        Chosen::Cbcg(options) => (2 * options.steps + 1, options.steps),
        Chosen::Cg(_) | Chosen::Minres => (31, 1),
    };
    let first = reference.residuals.len().min(history.residuals.len()).min(entries);
    for k in 0..first {
        let d = (reference.residuals[k] - history.residuals[k]).abs();
        assert!(d <= 1e-10 * reference.residuals[0], "{case}: iteration {k} differs by {d:e}");
    }
    let (own, other) = (reference.true_relative_residual, history.true_relative_residual);
    assert!((own - other).abs() <= 1e-10, "{case}: true residuals {own:e} and {other:e}");
    assert!(
        reference.iterations.abs_diff(history.iterations) <= slack,
        "{case}: {} and {} iterations",
        reference.iterations,
        history.iterations
    );
}

/// New values, τ and stages reach the ghosts' side of every rank too.
pub fn updates_reach_all_ranks<S: PointBlockSum>(sizes: &[usize], make: MakeShare<S>) {
    let mut rng = Random(22);
    for same in [true, false] {
        let k = random_kronecker(&mut rng, 3, 2, 30, 4, same, false);
        let mut changed = random_kronecker(&mut Random(23), 3, 2, 30, 4, same, false);
        changed.m = k.m.clone();
        changed.l = k.l.clone();
        changed.m.values_mut().iter_mut().for_each(|v| *v = 2.0 * *v - 0.25);
        changed.l.values_mut().iter_mut().for_each(|v| *v = 0.5 - 3.0 * *v);
        changed.tau = 0.375;
        let x = rng.numbers(k.rows());
        let expected = by_rows(&changed, &x);
        for &ranks in sizes {
            for (shape, partition) in partitions(30, ranks) {
                let parts = split(&Terms::kronecker(&k), &partition).unwrap();
                let new = split(&Terms::kronecker(&changed), &partition).unwrap();
                let work = |comm: Arc<dyn Communicator>| {
                    let (part, new) = (&parts[comm.rank()], &new[comm.rank()]);
                    let pick = |v: &[f64]| -> Vec<f64> {
                        part.rows.iter().flat_map(|&i| &v[i as usize * 6..][..6]).copied().collect()
                    };
                    let space = make(&comm, part.rows.len() * 6)?;
                    let mut a = PointBlock::stages(&space, &part.terms, &k.b, Precision::F64)?;
                    let (own, mut y) = (pick(&x), vec![0.0; part.rows.len() * 6]);
                    let (mut dx, mut dy) = (space.vector()?, space.vector()?);
                    space.write(&own, &mut dx)?;
                    a.apply(&space, &dx, &mut dy)?;
                    for t in 0..2 {
                        a.update_values(&space, t, new.terms.terms()[t].1.values())?;
                    }
                    a.set_stages(&space, &changed.a, &changed.b, 2.0)?;
                    a.set_tau(&space, &changed.a, changed.tau)?;
                    for _ in 0..3 {
                        a.apply(&space, &dx, &mut dy)?; // nothing between products
                    }
                    space.read(&dy, &mut y)?;
                    let d = distance(&y, &pick(&expected));
                    assert!(y.is_empty() || d <= 1e-13, "same={same}, {ranks} ranks, {shape}: {d:e}");
                    Ok(())
                };
                Team::run(ranks, |comm| work(comm)).unwrap();
            }
        }
    }
}
