//! New values of every container, again and again: each solve is that of the values that stand.

use super::{count_from, faults};
use crate::common::Random;
use crate::common::systems::RandomSystem;
use krylith_core::matrix::{Csr, Dense, KroneckerSum};
use krylith_core::solver::Refresh;
use krylith_core::{Options, Problem, Result, Solver};

const RTOL: f64 = 1e-8;

/// How a system is given, and its new values come.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Container {
    /// A matrix of scalars.
    Scalars,
    /// A matrix of scalars, in blocks that are found.
    Found,
    /// A matrix of scalars, in blocks of a given order.
    Given,
    /// Point blocks.
    Blocks,
    /// A Kronecker sum of point blocks.
    Sum,
    /// A Kronecker sum of matrices of scalars, in blocks that are found.
    SumFound,
    /// The same, in blocks of a given order.
    SumGiven,
}

const CONTAINERS: [Container; 7] = [
    Container::Scalars,
    Container::Found,
    Container::Given,
    Container::Blocks,
    Container::Sum,
    Container::SumFound,
    Container::SumGiven,
];

const OPTIONS: [&str; 12] = [
    "",
    "precond=lu",
    "precond=ildu",
    "precond=jacobi method=gmres",
    "precond=amg",
    "precond=ras:parts=2",
    "zeros=drop",
    "zeros=keep",
    "precision=f32",
    "matching=on",
    "equilibrate=true precond=ildu:fill=1",
    "threads=2",
];

impl Container {
    fn is_sum(self) -> bool {
        matches!(self, Self::Sum | Self::SumFound | Self::SumGiven)
    }

    fn problem<'a>(self, k: &'a KroneckerSum, m: &Csr, l: &Csr) -> Result<Problem<'a>> {
        let of = |block| {
            let [m, l] = [m, l].map(|a| Problem::csr_in_blocks(a, block));
            Problem::kronecker_of(k.a.clone(), k.b.clone(), k.tau, &m?, &l?)
        };
        match self {
            Self::Scalars => Problem::csr(m),
            Self::Found => Problem::csr_in_blocks(m, None),
            Self::Given => Problem::csr_in_blocks(m, Some(k.block())),
            Self::Blocks => Problem::bsr(&k.m),
            Self::Sum => Problem::kronecker(k),
            // Both in the same blocks, which those that are found need not be.
            Self::SumFound => of(None).or_else(|_| of(Some(1))),
            Self::SumGiven => of(Some(k.block())),
        }
    }

    /// True where values come in the order of the blocks.
    fn in_blocks(self) -> bool {
        matches!(self, Self::Blocks | Self::Sum)
    }
}

/// New values, of which the sizes, the signs and the zeros are others; a diagonal stays large where it was.
fn change(rng: &mut Random, values: &mut [f64]) {
    let way = rng.below(5);
    for v in values {
        match way {
            0 => *v *= 1.0 + 0.1 * rng.number(),
            1 => *v = if rng.below(3) == 0 && v.abs() < 1.0 { 0.0 } else { *v },
            2 => *v *= 1e3,
            3 => *v = if *v == 0.0 { 0.5 * rng.number() } else { -*v },
            _ => *v += 0.1 * rng.number(),
        }
    }
}

/// New values of M and L and new coefficients, of the blocks and of the scalars alike.
fn change_all(rng: &mut Random, k: &mut KroneckerSum, container: Container, m: &mut Csr, l: &mut Csr) {
    for (blocks, scalars) in [(&mut k.m, &mut *m), (&mut k.l, &mut *l)] {
        if container.in_blocks() {
            change(rng, blocks.values_mut());
        } else {
            let mut values = scalars.values().to_vec();
            change(rng, &mut values);
            scalars.update_values(&values).unwrap();
            // The blocks follow, from the entries, whatever order these have.
            let b = blocks.block();
            let (row_ptr, col) = (blocks.row_ptr().to_vec(), blocks.col().to_vec());
            for i in 0..row_ptr.len() - 1 {
                for p in row_ptr[i]..row_ptr[i + 1] {
                    for e in 0..b * b {
                        let (columns, values) = scalars.row(i * b + e / b);
                        let j = col[p] * b as u32 + (e % b) as u32;
                        let place = columns.iter().position(|c| *c == j);
                        blocks.values_mut()[p * b * b + e] = place.map_or(0.0, |p| values[p]);
                    }
                }
            }
        }
    }
    if container.is_sum() && rng.below(2) == 0 {
        k.tau *= [0.5, 2.0, 1.0][rng.below(3)];
        let s = k.stages();
        let mut a = Dense::new(s, s, rng.numbers(s * s)).unwrap();
        (0..s).for_each(|i| a[(i, i)] += 3.0);
        k.a = a;
    }
}

fn give(solver: &mut Solver, k: &KroneckerSum, container: Container, m: &Csr, l: &Csr) -> Result<()> {
    let (new_m, new_l) = match container.in_blocks() {
        true => (k.m.values(), k.l.values()),
        false => (m.values(), l.values()),
    };
    match container.is_sum() {
        true => solver.update_kronecker(&k.a, &k.b, k.tau, new_m, new_l),
        false => solver.update_values(new_m),
    }
}

fn judge(seed: u64, count: usize) {
    let (mut updates, mut refused, mut wrong) = (0, 0, Vec::new());
    let mut per_container = [0; CONTAINERS.len()];
    for number in 0.. {
        if updates >= count {
            break;
        }
        let which = number % CONTAINERS.len();
        let container = CONTAINERS[which];
        // A plain matrix or a sum, as the container wants.
        let mut system = RandomSystem::new(seed, number);
        if system.plain == container.is_sum() || system.kind == "denormal" {
            continue;
        }
        let rng = &mut Random(seed ^ ((number as u64) << 20));
        let (text, refresh) = (
            OPTIONS[rng.below(OPTIONS.len())],
            [Refresh::Keep, Refresh::Refresh, Refresh::Rebuild][rng.below(3)],
        );
        let threads = if text.contains("threads") { "" } else { "threads=1" };
        let options: Options = format!("device=cpu rtol={RTOL} {threads} {text}").parse().unwrap();
        let (mut m, mut l) = (system.k.m.to_csr(), system.k.l.to_csr());
        let first = system.k.clone();
        let Ok(mut solver) = container.problem(&first, &m, &l).and_then(|p| Solver::new(p, &options)) else {
            refused += 1; // a preconditioner that was named cannot be made of these
            continue;
        };
        solver.set_refresh(refresh);
        for round in 0..4 {
            change_all(rng, &mut system.k, container, &mut m, &mut l);
            let mut x = vec![0.0; system.b.len()];
            let given = give(&mut solver, &system.k, container, &m, &l);
            let solved = given.and_then(|()| Ok(solver.solve(&system.b, &mut x)?.history.clone()));
            let Ok(history) = solved else {
                refused += 1;
                break;
            };
            updates += 1;
            per_container[which] += 1;
            if let Some(fault) = faults(&system.exact(), &system.b, &x, &history, RTOL) {
                let kind = system.kind;
                wrong
                    .push(format!("{number} ({kind}, {container:?}, {text}, {refresh:?}), {round}: {fault}"));
                break;
            }
        }
    }
    println!("seed {seed}: {updates} updates, {refused} refused, {} wrong", wrong.len());
    CONTAINERS.iter().zip(per_container).for_each(|(container, n)| println!("  {container:?}: {n}"));
    assert!(wrong.is_empty(), "{} wrong, the first {:#?}", wrong.len(), &wrong[..wrong.len().min(12)]);
    assert!(per_container.iter().all(|n| 20 * n > updates), "{per_container:?}");
}

#[test]
fn new_values_are_those_that_are_solved() {
    judge(2_039, 1_000);
}

/// `KRYLITH_UPDATES` of them, 10,000 where it is not set.
#[test]
#[ignore = "10,000 updates: minutes"]
fn ten_thousand_new_values_are_those_that_are_solved() {
    judge(2_040, count_from("KRYLITH_UPDATES", 10_000));
}
