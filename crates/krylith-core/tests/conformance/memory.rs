//! A caller's memory: whatever it is, results are those of slices, to the bit.

use super::{Make, apply};
use crate::common::*;
use krylith_core::matrix::{Csr, Dense};
use krylith_core::memory::{Numbers, NumbersMut};
use krylith_core::method::{Gmres, GmresOptions};
use krylith_core::operator::{Format, LinearOperator, PointBlock, PointBlockSum, TermValues, Terms};
use krylith_core::partition::Subdomains;
use krylith_core::precond::{
    BlockDiagonal, BlockJacobi, Ildu, IlduOptions, Stage, StageOptions, SubdomainFactors,
};
use krylith_core::space::Transfer;
use krylith_core::{Outcome, Precision, Stop};

/// Memory that its owner fills late, lends, and overwrites early, as far as the owner's order of work allows.
pub trait Lender {
    /// Gets other numbers, as many as it has.
    fn fill(&mut self, numbers: &[f64]);
    fn lend(&self) -> Numbers<'_>;
    fn lend_mut(&mut self) -> NumbersMut<'_>;
    /// Every number becomes NaN.
    fn poison(&mut self);
    /// What it holds.
    fn take(&self) -> Vec<f64>;
}

impl Lender for Vec<f64> {
    fn fill(&mut self, numbers: &[f64]) {
        self.copy_from_slice(numbers);
    }
    fn lend(&self) -> Numbers<'_> {
        self.into()
    }
    fn lend_mut(&mut self) -> NumbersMut<'_> {
        self.into()
    }
    fn poison(&mut self) {
        self.as_mut_slice().fill(f64::NAN);
    }
    fn take(&self) -> Vec<f64> {
        self.clone()
    }
}

/// Makes a lender of so many numbers.
pub type Lend<'a> = &'a dyn Fn(usize) -> Box<dyn Lender>;

fn applied<S: Transfer>(space: &S, p: &dyn LinearOperator<S>, x: &[f64]) -> Vec<f64> {
    let (mut dx, mut dy) = (space.vector().unwrap(), space.vector().unwrap());
    space.write(x, &mut dx).unwrap();
    space.write(&vec![f64::NAN; x.len()], &mut dy).unwrap();
    p.apply(space, &dx, &mut dy).unwrap();
    let mut y = vec![0.0; x.len()];
    space.read(&dy, &mut y).unwrap();
    y
}

/// New values of operators and preconditioners.
pub fn lent_values_equal_slices<S>(make: Make<S>, lend: Lend)
where
    S: PointBlockSum + BlockDiagonal + SubdomainFactors + Transfer,
{
    let mut rng = Random(81);
    for (b, s, same) in [(1, 1, true), (3, 2, true), (4, 2, false), (2, 3, false)] {
        let mut k = random_kronecker(&mut rng, b, s, 150, 4, same, true);
        k.a = Dense::identity(s); // stage preconditioners ask for it
        let (space, cut) = (make(k.rows()), Subdomains::whole(150));
        let case = format!("b={b} s={s} same={same}");
        let terms = Terms::kronecker(&k);
        let mut a = PointBlock::kronecker(&space, &k, Precision::F64).unwrap();
        let mut jacobi = BlockJacobi::new(&space, &terms, Precision::F64).unwrap();
        let mut ildu = Ildu::new(&space, &terms, &cut, IlduOptions::default()).unwrap();
        let mut stage = Stage::new(&space, &terms, &cut, StageOptions::default()).unwrap();
        let (mut m, mut l) = (lend(k.m.values().len()), lend(k.l.values().len()));
        for round in 0..3 {
            k.m.values_mut().iter_mut().for_each(|v| *v *= 1.0 + 0.1 * rng.number());
            k.l.values_mut().iter_mut().for_each(|v| *v *= 1.0 + 0.1 * rng.number());
            let x = rng.numbers(k.rows());
            let terms = Terms::kronecker(&k);
            let refill = |m: &mut dyn Lender, l: &mut dyn Lender| {
                m.fill(k.m.values());
                l.fill(k.l.values());
            };

            refill(&mut *m, &mut *l);
            a.update_values(&space, 0, m.lend()).unwrap();
            a.update_values(&space, 1, l.lend()).unwrap();
            m.poison();
            l.poison();
            let fresh = PointBlock::kronecker(&space, &k, Precision::F64).unwrap();
            let rows = k.rows();
            assert_eq!(apply(&space, &a, &x, rows), apply(&space, &fresh, &x, rows), "{case}, round {round}");

            let (c0, c1) = (&terms.terms()[0].0, &terms.terms()[1].0);
            let check = |what: &str, kept: &dyn LinearOperator<S>, fresh: &dyn LinearOperator<S>| {
                assert_eq!(
                    applied(&space, kept, &x),
                    applied(&space, fresh, &x),
                    "{what}, {case}, round {round}"
                );
            };
            refill(&mut *m, &mut *l);
            jacobi.update_values(&space, TermValues::sum(c0, m.lend(), c1, l.lend())).unwrap();
            m.poison();
            l.poison();
            check("jacobi", &jacobi, &BlockJacobi::new(&space, &terms, Precision::F64).unwrap());

            refill(&mut *m, &mut *l);
            ildu.update_values(&space, TermValues::sum(c0, m.lend(), c1, l.lend())).unwrap();
            m.poison();
            l.poison();
            check("ildu", &ildu, &Ildu::new(&space, &terms, &cut, IlduOptions::default()).unwrap());

            refill(&mut *m, &mut *l);
            stage.update_values(&space, TermValues::sum(c0, m.lend(), c1, l.lend())).unwrap();
            m.poison();
            l.poison();
            check("stage", &stage, &Stage::new(&space, &terms, &cut, StageOptions::default()).unwrap());
        }
    }
}

/// Values that cannot be taken are refused wherever they lie.
pub fn lent_values_are_checked<S>(make: Make<S>, lend: Lend)
where
    S: PointBlockSum + BlockDiagonal + SubdomainFactors,
{
    let mut rng = Random(82);
    let k = random_kronecker(&mut rng, 3, 2, 60, 4, true, true);
    let (space, terms) = (make(k.rows()), Terms::kronecker(&k));
    let refused = |done: krylith_core::Result<()>, text: &str| {
        let message = done.expect_err(text).to_string();
        assert!(message.contains(text), "{message}");
    };
    let mut a = PointBlock::kronecker(&space, &k, Precision::F64).unwrap();
    let n = k.m.values().len();
    let (mut good, short) = (lend(n), lend(n - 1));
    good.fill(k.m.values());
    refused(a.update_values(&space, 0, short.lend()), "were expected");
    refused(a.update_values(&space, 2, good.lend()), "no term 2");
    good.poison();
    refused(a.update_values(&space, 1, good.lend()), "must be finite");
    good.fill(k.l.values());
    a.update_values(&space, 1, good.lend()).unwrap(); // and the operator is whole again
    let x = rng.numbers(k.rows());
    let fresh = PointBlock::kronecker(&space, &k, Precision::F64).unwrap();
    assert_eq!(apply(&space, &a, &x, k.rows()), apply(&space, &fresh, &x, k.rows()));

    let (c0, c1) = (&terms.terms()[0].0, &terms.terms()[1].0);
    let one = TermValues::matrix(good.lend());
    let wide = Dense::identity(5);
    let short = TermValues::sum(c0, good.lend(), c1, short.lend());
    let wide = TermValues::sum(&wide, good.lend(), &wide, good.lend());
    let mut jacobi = BlockJacobi::new(&space, &terms, Precision::F64).unwrap();
    let mut ildu = Ildu::new(&space, &terms, &Subdomains::whole(60), IlduOptions::default()).unwrap();
    for values in [one, short] {
        refused(jacobi.update_values(&space, values), "do not match the terms");
        refused(ildu.update_values(&space, values), "do not match the terms");
    }
    refused(jacobi.update_values(&space, wide), "5 stages");
    refused(ildu.update_values(&space, wide), "do not match the terms");
    let mut nan = lend(n);
    nan.poison();
    refused(ildu.update_values(&space, TermValues::sum(c0, nan.lend(), c1, nan.lend())), "non-finite pivot");
}

/// Values of diagonals, the right-hand side, the initial guess and the solution.
pub fn lent_vectors_equal_slices<S>(make: Make<S>, lend: Lend)
where
    S: PointBlockSum + BlockDiagonal + Transfer,
{
    let (mut rng, n) = (Random(83), 5000);
    let entries: Vec<(u32, u32, f64)> = (0..n as u32)
        .flat_map(|i| [(i, i, 4.0), (i, i.saturating_sub(1), -1.0), (i, (i + 1).min(n as u32 - 1), -1.5)])
        .collect();
    let csr = Csr::from_triplets(n, n, &entries).unwrap();
    let space = make(n);
    let mut kept = PointBlock::csr(&space, &csr, Precision::F64).unwrap();
    let doubled: Vec<f64> = csr.values().iter().map(|v| 2.0 * v).collect();
    let mut values = lend(doubled.len());
    values.fill(&doubled);
    kept.update_values(&space, 0, values.lend()).unwrap();
    values.poison();
    let fresh: Vec<_> = entries.iter().map(|&(i, j, v)| (i, j, 2.0 * v)).collect();
    let fresh = Csr::from_triplets(n, n, &fresh).unwrap();
    let fresh = PointBlock::csr(&space, &fresh, Precision::F64).unwrap();
    assert_eq!(kept.format(), Format::DiaFull);
    let x = rng.numbers(n);
    assert_eq!(applied(&space, &kept, &x), applied(&space, &fresh, &x));

    let (rhs, guess) = (rng.numbers(n), rng.numbers(n));
    let a = PointBlock::csr(&space, &csr, Precision::F64).unwrap();
    let p = BlockJacobi::new(&space, &Terms::csr(&csr).unwrap(), Precision::F64).unwrap();
    let mut gmres = Gmres::new(&space, GmresOptions::default()).unwrap();
    let (mut b, mut u) = (space.vector().unwrap(), space.vector().unwrap());
    let stop = Stop { rtol: 1e-10, ..Stop::default() };
    space.write(&rhs, &mut b).unwrap();
    space.write(&guess, &mut u).unwrap();
    gmres.solve(&space, &a, Some(&p), &b, &mut u, &stop, &mut ()).unwrap();
    let mut want = vec![0.0; n];
    space.read(&u, &mut want).unwrap();
    for round in 0..3 {
        let (mut lent, mut answer) = (lend(n), lend(n));
        lent.fill(&rhs);
        space.write_from(lent.lend(), &mut b).unwrap();
        lent.fill(&guess); // over what was just read
        space.write_from(lent.lend(), &mut u).unwrap();
        lent.poison();
        let outcome = gmres.solve(&space, &a, Some(&p), &b, &mut u, &stop, &mut ()).unwrap().outcome;
        assert_eq!(outcome, Outcome::Converged);
        answer.poison(); // before, in the lender's order
        space.read_into(&u, answer.lend_mut()).unwrap();
        space.write(&vec![f64::NAN; n], &mut u).unwrap(); // over what was just read
        assert_eq!(answer.take(), want, "round {round}");
        // To the host, and parts of it.
        assert_eq!(answer.lend().to_vec().unwrap(), want);
        assert_eq!(answer.lend().range(10..20).to_vec().unwrap(), want[10..20]);
        answer.lend_mut().range(10..12).write(&[7.0, 8.0]).unwrap();
        assert_eq!(answer.take()[9..13], [want[9], 7.0, 8.0, want[12]]);
        assert!(answer.lend_mut().write(&[1.0]).is_err() && answer.lend().read(&mut [0.0]).is_err());
    }
    let short = lend(n - 1);
    let message = space.write_from(short.lend(), &mut b).unwrap_err().to_string();
    assert!(message.contains("4999") && message.contains("5000"), "{message}");
}
