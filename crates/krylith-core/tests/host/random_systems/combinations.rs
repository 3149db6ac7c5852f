//! Every combination of method, preconditioner, block and option on ten systems: a true solution, or an error
//! with the reason.

use super::{count_from, faults};
use crate::common::Random;
use crate::common::exact::Exact;
use crate::common::systems::{KINDS, RandomSystem};
use krylith_core::{Options, Problem, Solver};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

const RTOL: f64 = 1e-7;

const METHODS: [&str; 18] = [
    "auto",
    "gmres",
    "gmres:restart=1",
    "gmres:restart=7,orthogonalization=mgs",
    "gmres:orthogonalization=cgs2",
    "gmres:orthogonalization=lowsync",
    "fgmres",
    "fgmres:restart=5",
    "bicgstab",
    "bicgstab:reductions=classical",
    "cg",
    "cg:form=textbook",
    "cg:form=one-reduction",
    "cg:form=flexible",
    "cg:form=pipelined",
    "cbcg:s=3",
    "cbcg:s=16,basis=newton",
    "minres",
];

const PRECONDITIONERS: [&str; 30] = [
    "auto",
    "none",
    "jacobi",
    "jacobi:block=1",
    "block-jacobi",
    "block-jacobi:tile=whole,factor=ilu0",
    "block-jacobi:tile=2x2x2,factor=ic0",
    "ildu",
    "ildu:fill=2,rows=7",
    "ildu:cut=whole,fill=1000",
    "ildu:shift=0.1",
    "stage",
    "stage:fill=1",
    "ras",
    "ras:overlap=2,parts=3,fill=1,order=rcm",
    "ras:factor=random,solve=random",
    "ras:solve=jacobi,deterministic",
    "amg",
    "amg:coarsen=aggregation,cycle=k",
    "amg:coarsen=smoothed,smoother=chebyshev,degree=3",
    "amg:smoother=ildu,cycle=w,coarsest=8",
    "amg:precision=f32,strength=0.5",
    "coarse",
    "lu",
    "lu:most=100",
    "jacobi+coarse",
    "ildu+jacobi",
    "ildu then coarse",
    "symmetric(jacobi then coarse)",
    "symmetric(jacobi then ildu then coarse)",
];

const OPTIONS: [&str; 14] = [
    "",
    "precision=f32",
    "equilibrate=true",
    "matching=on",
    "matching=off equilibrate=false",
    "zeros=drop",
    "zeros=keep format=csr",
    "format=dia",
    "format=dia-full precision=f32",
    "deterministic=true",
    "threads=2",
    "max_iters=3",
    "atol=1e-3",
    "memory_limit=100000000 precision=f32 matching=on",
];

/// Ten kinds, one system of each.
const SYSTEMS: [&str; 10] = [
    "dominant",
    "rows of unlike sizes",
    "not dominant",
    "symmetric",
    "singular",
    "complex",
    "saddle point",
    "Neumann",
    "penalty rows",
    "stored zeros",
];

/// How a system is given.
#[derive(Debug, Clone, Copy)]
enum As {
    /// As it is: point blocks, or a Kronecker sum.
    Itself,
    /// As a matrix of scalars.
    Scalars,
    /// As a matrix of scalars, in blocks that are found or of this order.
    Blocks(Option<usize>),
}

const FORMS: [As; 4] = [As::Itself, As::Scalars, As::Blocks(None), As::Blocks(Some(2))];

/// A system of a kind, of about forty unknowns; every second one a Kronecker sum.
fn system(which: usize) -> RandomSystem {
    let kind = KINDS.iter().position(|kind| *kind == SYSTEMS[which]).unwrap();
    let numbers = (0..).map(|round| round * KINDS.len() + kind);
    let wanted = |s: &RandomSystem| (24..=60).contains(&s.b.len()) && s.plain == (which % 2 == 0);
    numbers.map(|number| RandomSystem::new(77, number)).find(wanted).unwrap()
}

/// Solves one combination: what is wrong with it, and whether it was refused.
fn try_one(system: &RandomSystem, exact: &Exact, form: As, options: &str) -> Result<bool, String> {
    let scalars = || system.k.m.to_csr();
    let problem = match form {
        As::Itself if system.plain => Problem::bsr(&system.k.m),
        As::Itself => Problem::kronecker(&system.k),
        As::Scalars => Problem::csr(&scalars()),
        As::Blocks(block) => Problem::csr_in_blocks(&scalars(), block),
    };
    let solved = problem.and_then(|problem| {
        let options: Options = options.parse()?;
        let mut x = vec![0.0; system.b.len()];
        let mut solver = Solver::new(problem, &options)?;
        let history = solver.solve(&system.b, &mut x)?.history.clone();
        Ok((x, history, options.atol.unwrap_or(0.0)))
    });
    match solved {
        Err(why) if why.to_string().trim().is_empty() => Err("an error without a word".into()),
        Err(_) => Ok(false),
        Ok((x, history, atol)) => {
            let norm = crate::common::exact::safe_norm(&system.b);
            faults(exact, &system.b, &x, &history, RTOL.max(atol / norm)).map_or(Ok(true), Err)
        }
    }
}

/// Tries `count` of all combinations, or all.
fn judge(seed: u64, count: Option<usize>) {
    let systems: Vec<_> = (0..SYSTEMS.len()).map(system).collect();
    let exact: Vec<_> = systems.iter().map(RandomSystem::exact).collect();
    let sizes = [SYSTEMS.len(), METHODS.len(), PRECONDITIONERS.len(), OPTIONS.len(), FORMS.len()];
    let all: usize = sizes.iter().product();
    let (mut tried, mut answered, mut wrong) = (0, 0, Vec::new());
    let mut slowest = (Duration::ZERO, String::new());
    let rng = &mut Random(seed);
    let numbers: Box<dyn Iterator<Item = usize>> = match count {
        None => Box::new(0..all),
        Some(count) => Box::new((0..count).map(|_| rng.below(all))),
    };
    for mut number in numbers {
        let [which, method, precond, option, form] = sizes.map(|size| {
            let place = number % size;
            number /= size;
            place
        });
        let (system, form) = (&systems[which], FORMS[form]);
        if !system.plain && !matches!(form, As::Itself) {
            continue; // a sum is given as one
        }
        let text = format!(
            "method={} precond={} device=cpu rtol={RTOL} {}",
            METHODS[method], PRECONDITIONERS[precond], OPTIONS[option]
        );
        let text = if text.contains("threads=") { text } else { text + " threads=1" };
        let began = Instant::now();
        let tried_one = catch_unwind(AssertUnwindSafe(|| try_one(system, &exact[which], form, &text)));
        slowest = slowest.max((began.elapsed(), format!("{} as {form:?}: {text}", system.kind)));
        tried += 1;
        match tried_one {
            Ok(Ok(solved)) => answered += usize::from(solved),
            Ok(Err(fault)) => wrong.push(format!("{} as {form:?}: {text}: {fault}", system.kind)),
            Err(_) => wrong.push(format!("{} as {form:?}: {text}: a panic", system.kind)),
        }
    }
    println!("{tried} of {all} combinations, {answered} answered, the others refused; {} wrong", wrong.len());
    println!("the slowest took {:?}: {}", slowest.0, slowest.1);
    assert!(
        wrong.is_empty(),
        "{} of {tried} wrong, the first {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(12)]
    );
    assert!(5 * answered > 2 * tried, "only {answered} of {tried} answered");
    assert!(slowest.0 < Duration::from_secs(30), "{slowest:?}");
}

#[test]
fn combinations_answer_or_say_why() {
    judge(39, Some(2_000));
}

#[test]
#[ignore = "180,000 combinations: minutes"]
fn every_combination_answers_or_says_why() {
    judge(39, Some(count_from("KRYLITH_COMBINATIONS", 0)).filter(|count| *count > 0));
}
