//! Direct factors of subdomains beside dense elimination.

use super::super::subdomains::SubdomainLu;
use super::super::*;
use super::{dense, random_blocks, solve};
use crate::comm::Solo;
use crate::device::cpu::Cpu;
use crate::partition::Subdomains;
use crate::precond::{Preconditioner, SchwarzPattern, SchwarzPlan};
use crate::space::random;

/// Returns M = Σ_k (R_k⁰)ᵀ (A_k)⁻¹ R_k^δ as a dense matrix, by rows.
fn map(plan: &SchwarzPlan, a: &[f64], n: usize) -> Vec<f64> {
    let (b, mut out) = (plan.block, vec![0.0; n * n]);
    for ends in plan.subdomains.windows(2) {
        let rows = ends[0] as usize..ends[1] as usize;
        let unknowns: Vec<usize> =
            plan.node[rows.clone()].iter().flat_map(|&v| (0..b).map(move |c| v as usize * b + c)).collect();
        let m = unknowns.len();
        let part: Vec<f64> =
            unknowns.iter().flat_map(|i| unknowns.iter().map(move |j| a[i * n + j])).collect();
        for (k, &column) in unknowns.iter().enumerate() {
            let mut unit = vec![0.0; m];
            unit[k] = 1.0;
            let x = solve(m, part.clone(), unit);
            for (node, &row) in
                plan.result.iter().enumerate().filter(|(_, row)| rows.contains(&(**row as usize)))
            {
                let at = (row as usize - rows.start) * b;
                (0..b).for_each(|c| out[(node * b + c) * n + column] += x[at + c]);
            }
        }
    }
    out
}

/// Checks the map and its transpose on a random vector.
fn same(p: &SubdomainLu, expected: &[f64], n: usize, what: &str) {
    let (space, x) = (Cpu::new(n, 1), (0..n).map(|i| random(8, i as u64)).collect::<Vec<_>>());
    let mut y = vec![f64::NAN; n];
    for transposed in [false, true] {
        match transposed {
            false => p.apply(&space, &x, &mut y).unwrap(),
            true => p.apply_transpose(&space, &x, &mut y).unwrap(),
        }
        let at = |i: usize, j: usize| if transposed { expected[j * n + i] } else { expected[i * n + j] };
        let wanted: Vec<f64> = (0..n).map(|i| (0..n).map(|j| at(i, j) * x[j]).sum()).collect();
        let size = wanted.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        for (y, w) in y.iter().zip(&wanted) {
            assert!((y - w).abs() <= 1e-9 * size, "{what}, transposed {transposed}: {y}, not {w}");
        }
    }
}

#[test]
fn subdomains_are_solved_as_by_elimination() {
    for (block, overlap, parts) in [(1, 0, 4), (1, 1, 3), (2, 0, 3), (2, 2, 4), (3, 1, 1)] {
        let what = format!("blocks of {block}, overlap {overlap}, {parts} parts");
        let nodes = 24usize;
        let mut a = random_blocks(5, block, nodes, 0);
        let labels: Vec<u32> = (0..nodes).map(|i| (i * parts / nodes) as u32).collect();
        let subdomains = Subdomains::from_labels(&labels, parts).unwrap();
        let pattern = SchwarzPattern { overlap, ..SchwarzPattern::default() };
        let plan = SchwarzPlan::new(&Solo, &Terms::bsr(&a), None, &subdomains, pattern).unwrap();
        let n = a.rows();
        let make =
            |matrix: &Terms<'static>| Ok(Box::new(SparseLu::new(matrix, None)?) as Box<dyn WholeFactors>);
        let mut p = SubdomainLu::new(&Solo, plan.clone(), TermValues::from(&Terms::bsr(&a)), make).unwrap();
        same(&p, &map(&plan, &dense(&Terms::bsr(&a)), n), n, &what);
        for (e, v) in a.values_mut().iter_mut().enumerate() {
            *v *= 1.0 + 0.1 * random(6, e as u64);
        }
        let terms = Terms::bsr(&a);
        p.update_values(&Cpu::new(n, 1), &terms, TermValues::from(&terms)).unwrap();
        same(&p, &map(&plan, &dense(&terms), n), n, &format!("{what}, new values"));
    }
}
