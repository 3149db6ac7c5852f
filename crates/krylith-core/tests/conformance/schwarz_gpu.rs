//! Schwarz's subdomains on one GPU against plain loops on the host, and how fast they are.

use crate::common::*;
use krylith_core::Precision;
use krylith_core::device::cuda::{Cuda, CudaSchwarz, Device};
use krylith_core::matrix::Bsr;
use krylith_core::operator::TermValues;
use krylith_core::partition::Halo;
use krylith_core::precond::testing::ReadSchwarz;
use krylith_core::precond::{
    FILL, Factorization, IncompleteFactors, PivotKind, SchwarzOptions, SchwarzPlan, TriangularSolve,
    invert_block,
};
use krylith_core::space::Space;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// A plan of subdomains with these nodes each; the first subdomain that has a node gives its result; `more`
/// adds positions of fill.
fn plan_of(
    a: &Bsr,
    subdomains: &[Range<usize>],
    mut more: impl FnMut(usize, usize) -> bool,
    reach: usize,
) -> SchwarzPlan {
    let n = a.block_rows();
    let mut plan = SchwarzPlan {
        block: a.block(),
        nodes: Arc::new(Halo { own: n, ..Halo::default() }),
        blocks: Arc::new(Halo { own: a.blocks(), ..Halo::default() }),
        subdomains: vec![0],
        result: vec![u32::MAX; n],
        row_ptr: vec![0],
        ..SchwarzPlan::default()
    };
    for nodes in subdomains {
        let first = plan.node.len();
        for i in nodes.clone() {
            let row = plan.node.len();
            plan.node.push(i as u32);
            if plan.result[i] == u32::MAX {
                plan.result[i] = row as u32;
            }
            let stored = a.row_ptr()[i]..a.row_ptr()[i + 1];
            for j in nodes.start.max(i.saturating_sub(reach))..nodes.end.min(i + reach + 1) {
                let found = stored.clone().find(|&p| a.col()[p] as usize == j);
                if found.is_none() && !more(i, j) && i != j {
                    continue;
                }
                if i == j {
                    plan.diagonal.push(plan.column.len() as i64);
                }
                plan.column.push((first + j - nodes.start) as u32);
                plan.source.push(found.map_or(FILL, |p| p as u32));
            }
            plan.row_ptr.push(plan.column.len() as i64);
        }
        plan.subdomains.push(plan.node.len() as u32);
    }
    plan
}

/// L, U and the inverses of the diagonal, block by block.
#[derive(Clone)]
struct Reference {
    factors: Vec<f64>,
    inverses: Vec<f64>,
}

fn row_of(plan: &SchwarzPlan, i: usize) -> Range<usize> {
    plan.row_ptr[i] as usize..plan.row_ptr[i + 1] as usize
}

/// First row of the run of `per` rows that row i is in.
fn run_start(plan: &SchwarzPlan, per: usize, i: usize) -> usize {
    let first = *plan.subdomains.iter().rfind(|&&first| first as usize <= i).unwrap() as usize;
    first + (i - first) / per * per
}

fn inverse(b: usize, block: &[f64]) -> Vec<f64> {
    let mut inverse = vec![0.0; b * b];
    assert!(invert_block(b, &mut block.to_vec(), &mut inverse), "the reference met a singular pivot");
    inverse
}

impl Reference {
    fn values(plan: &SchwarzPlan, a: &[f64]) -> Vec<f64> {
        let size = plan.block * plan.block;
        let of = |&s: &u32| (0..size).map(move |e| if s == FILL { 0.0 } else { a[s as usize * size + e] });
        plan.source.iter().flat_map(of).collect()
    }

    fn start(plan: &SchwarzPlan, a: &[f64]) -> Self {
        let (b, size) = (plan.block, plan.block * plan.block);
        let mut factors = Self::values(plan, a);
        let of = |i: usize| inverse(b, &factors[plan.diagonal[i] as usize * size..][..size]);
        let inverses: Vec<f64> = (0..plan.rows()).flat_map(of).collect();
        for i in 0..plan.rows() {
            for p in plan.row_ptr[i] as usize..plan.diagonal[i] as usize {
                let (old, j) = (factors[p * size..][..size].to_vec(), plan.column[p] as usize);
                let new = &mut factors[p * size..][..size];
                new.fill(0.0);
                add_product(new, 1.0, &old, &inverses[j * size..][..size], b);
            }
        }
        Self { factors, inverses }
    }

    /// Alg. 1, entry by entry: outside of a run of `per` rows the numbers are those of the sweep before.
    fn sweep(&self, plan: &SchwarzPlan, a: &[f64], per: usize) -> Self {
        let (b, size) = (plan.block, plan.block * plan.block);
        let (values, mut new) = (Self::values(plan, a), self.clone());
        for i in 0..plan.rows() {
            let first = run_start(plan, per, i);
            for p in row_of(plan, i) {
                let j = plan.column[p] as usize;
                let mut t = values[p * size..][..size].to_vec();
                for q in plan.row_ptr[i] as usize..plan.diagonal[i] as usize {
                    let k = plan.column[q] as usize;
                    if k >= i.min(j) {
                        break;
                    }
                    let from = if k < first { self } else { &new };
                    if let Some(u) = row_of(plan, k).find(|&u| plan.column[u] as usize == j) {
                        add_product(
                            &mut t,
                            -1.0,
                            &new.factors[q * size..][..size],
                            &from.factors[u * size..][..size],
                            b,
                        );
                    }
                }
                if j < i {
                    let by = if j < first { self } else { &new }.inverses[j * size..][..size].to_vec();
                    let to = &mut new.factors[p * size..][..size];
                    to.fill(0.0);
                    add_product(to, 1.0, &t, &by, b);
                } else {
                    new.factors[p * size..][..size].copy_from_slice(&t);
                }
            }
            let diagonal = new.factors[plan.diagonal[i] as usize * size..][..size].to_vec();
            new.inverses[i * size..][..size].copy_from_slice(&inverse(b, &diagonal));
        }
        new
    }

    /// Sums of squares of (A − LU)_S and of A.
    fn defect(&self, plan: &SchwarzPlan, a: &[f64]) -> [f64; 2] {
        let (b, size) = (plan.block, plan.block * plan.block);
        let values = Self::values(plan, a);
        let mut sums = [0.0, values.iter().map(|v| v * v).sum()];
        for i in 0..plan.rows() {
            for p in row_of(plan, i) {
                let j = plan.column[p] as usize;
                let mut t = values[p * size..][..size].to_vec();
                for q in row_of(plan, i) {
                    let k = plan.column[q] as usize;
                    let u = row_of(plan, k).find(|&u| plan.column[u] as usize == j);
                    let (l, Some(u)) = (&self.factors[q * size..][..size], u) else { continue };
                    if k < i && k <= j {
                        add_product(&mut t, -1.0, l, &self.factors[u * size..][..size], b);
                    }
                }
                if j >= i {
                    t.iter_mut().zip(&self.factors[p * size..]).for_each(|(t, u)| *t -= u);
                }
                sums[0] += t.iter().map(|t| t * t).sum::<f64>();
            }
        }
        sums
    }

    /// v ← w − (strict triangle) v, where rows outside a run use the previous v. Rows ascend for L and
    /// descend for U, whose rows end with inv(D).
    fn solve_sweep(&self, plan: &SchwarzPlan, upper: bool, w: &[f64], v: &[f64], per: usize) -> Vec<f64> {
        let (b, size, n) = (plan.block, plan.block * plan.block, plan.rows());
        let mut new = v.to_vec();
        for step in 0..n {
            let i = if upper { n - 1 - step } else { step };
            let first = run_start(plan, per, i);
            let mut sum = w[i * b..][..b].to_vec();
            let entries = match upper {
                true => plan.diagonal[i] as usize + 1..plan.row_ptr[i + 1] as usize,
                false => plan.row_ptr[i] as usize..plan.diagonal[i] as usize,
            };
            for p in entries {
                let j = plan.column[p] as usize;
                let inside = j >= first && run_start(plan, per, j) == first;
                let from = if inside { &new } else { v };
                for r in 0..b {
                    for c in 0..b {
                        sum[r] -= self.factors[p * size + r * b + c] * from[j * b + c];
                    }
                }
            }
            for r in 0..b {
                new[i * b + r] = match upper {
                    true => (0..b).map(|c| self.inverses[i * size + r * b + c] * sum[c]).sum(),
                    false => sum[r],
                };
            }
        }
        new
    }

    /// `sweeps` of both triangles with runs of `per` rows: one sweep of unlimited runs is substitution, runs
    /// of one row are Jacobi.
    fn apply(&self, plan: &SchwarzPlan, x: &[f64], sweeps: usize, per: usize) -> Vec<f64> {
        let (b, size, n) = (plan.block, plan.block * plan.block, plan.rows());
        let r: Vec<f64> = plan.node.iter().flat_map(|&i| x[i as usize * b..][..b].to_vec()).collect();
        let mut y = r.clone();
        (0..sweeps).for_each(|_| y = self.solve_sweep(plan, false, &r, &y, per));
        let of = |i: usize| {
            let y = &y;
            let number = move |row: usize| {
                (0..b).map(|c| self.inverses[i * size + row * b + c] * y[i * b + c]).sum::<f64>()
            };
            (0..b).map(number).collect::<Vec<_>>()
        };
        let mut z: Vec<f64> = (0..n).flat_map(of).collect();
        (0..sweeps).for_each(|_| z = self.solve_sweep(plan, true, &y, &z, per));
        plan.result.iter().flat_map(|&row| z[row as usize * b..][..b].to_vec()).collect()
    }
}

fn apply(space: &Cuda, factors: &CudaSchwarz, how: TriangularSolve, x: &[f64]) -> Vec<f64> {
    let (mut dx, mut dy) = (space.vector().unwrap(), space.vector().unwrap());
    space.write(x, &mut dx).unwrap();
    space.write(&vec![f64::NAN; x.len()], &mut dy).unwrap(); // poison: every entry must be written
    factors.solve(space, how, false, &dx, &mut dy).unwrap();
    let mut y = vec![0.0; x.len()];
    space.read(&dy, &mut y).unwrap();
    y
}

/// One subdomain.
fn one(n: usize) -> Vec<Range<usize>> {
    std::iter::once(0..n).collect()
}

/// Factors and solves of every kind are those of plain loops.
pub fn subdomains_match_plain_loops(device: &Arc<Device>) {
    let mut rng = Random(15);
    for b in 1..=8 {
        for (n, per) in [(1, 8), (7, 3), (90, 8), (150, 20)] {
            let a = banded(&mut rng, b, n, 12);
            let subdomains = match n {
                1 | 7 => one(n),
                _ => vec![0..n / 3 + 3, n / 3 - 2..2 * n / 3, 2 * n / 3 - 5..n],
            };
            let plan = Arc::new(plan_of(&a, &subdomains, |i, j| (i * 7 + j * 3) % 5 == 0, 12));
            let space = Cuda::new(device, n * b).unwrap();
            let x = rng.numbers(n * b);
            let endless = plan.rows();
            let start = Reference::start(&plan, a.values());
            let exact = start.sweep(&plan, a.values(), endless);
            let what = format!("b = {b}, {n} rows in runs of {per}");
            let close = |d: f64, limit: f64, part: &str| assert!(d <= limit, "{what}, {part}: {d:e}");
            for deterministic in [false, true] {
                let [precision, compute] = [Precision::F64; 2];
                let options = SchwarzOptions { precision, compute, rows: per, deterministic };
                let mut f = CudaSchwarz::prepare(&space, &plan, options).unwrap();
                let values = TermValues::matrix(a.values());
                let quality = f.factorize(&space, &values, Factorization::Exact).unwrap();
                let pivots = quality.pivots;
                assert!(quality.finite && pivots.bad == 0, "{what}");
                let size = exact.defect(&plan, a.values())[1];
                assert_eq!(quality.defect2[0], 0.0);
                close((quality.defect2[1] - size).abs() / size, 1e-13, "norm of A");
                close(distance(&space.read_schwarz(&f).unwrap(), &exact.factors), 1e-12, "exact factors");
                let y = apply(&space, &f, TriangularSolve::Exact, &x);
                close(distance(&y, &exact.apply(&plan, &x, 1, endless)), 1e-12, "exact solve");
                for sweeps in [1, 2, 5] {
                    let y = apply(&space, &f, TriangularSolve::Jacobi { sweeps }, &x);
                    close(distance(&y, &exact.apply(&plan, &x, sweeps, 1)), 1e-12, "Jacobi sweeps");
                    let y = apply(&space, &f, TriangularSolve::Random { sweeps }, &x);
                    if deterministic {
                        close(distance(&y, &exact.apply(&plan, &x, sweeps, per)), 1e-12, "ordered sweeps");
                    }
                }
                let y = apply(&space, &f, TriangularSolve::Random { sweeps: n + 1 }, &x);
                close(distance(&y, &exact.apply(&plan, &x, 1, endless)), 1e-12, "randomized sweeps");
                if deterministic {
                    let two = Factorization::Random { sweeps: 2, warm: false };
                    let quality = f.factorize(&space, &values, two).unwrap();
                    let once = start.sweep(&plan, a.values(), per);
                    let mut now = once.sweep(&plan, a.values(), per);
                    close(distance(&space.read_schwarz(&f).unwrap(), &now.factors), 1e-12, "two sweeps");
                    let root = |sums: [f64; 2]| (sums[0] / sums[1]).sqrt();
                    let [found, expected] = [quality.defect2, now.defect(&plan, a.values())].map(root);
                    close((found - expected).abs(), 1e-10 * expected + 1e-13, "defect");
                    let warm = Factorization::Random { sweeps: 1, warm: true };
                    f.factorize(&space, &values, warm).unwrap();
                    now = now.sweep(&plan, a.values(), per);
                    close(distance(&space.read_schwarz(&f).unwrap(), &now.factors), 1e-12, "a warm sweep");
                }
                let many = Factorization::Random { sweeps: 2 * n + 2, warm: false };
                let quality = f.factorize(&space, &values, many).unwrap();
                assert!(quality.finite, "{what}");
                close((quality.defect2[0] / quality.defect2[1]).sqrt(), 1e-13, "defect of many sweeps");
                close(distance(&space.read_schwarz(&f).unwrap(), &exact.factors), 1e-11, "many sweeps");
            }
            // Rounded storage, and another order of calls.
            let [precision, compute] = [Precision::F32, Precision::F64];
            let options = SchwarzOptions { precision, compute, rows: per, deterministic: false };
            let mut f = CudaSchwarz::prepare(&space, &plan, options).unwrap();
            let values = TermValues::matrix(a.values());
            f.factorize(&space, &values, Factorization::Exact).unwrap();
            for _ in 0..2 {
                let y = apply(&space, &f, TriangularSolve::Exact, &x);
                close(distance(&y, &exact.apply(&plan, &x, 1, endless)), 1e-5, "exact solve in f32");
            }
        }
    }
}

/// A matrix whose blocks stand within a band, with a dominant diagonal.
fn banded(rng: &mut Random, b: usize, n: usize, band: usize) -> Bsr {
    let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    for i in 0..n {
        for j in i.saturating_sub(band)..n.min(i + band + 1) {
            if i == j || i.abs_diff(j) == 1 || rng.below(3) == 0 {
                col.push(j as u32);
                let scale = if i == j { 1.0 } else { 0.5 / (b * band) as f64 };
                let block = rng.numbers(b * b).into_iter().enumerate();
                values.extend(
                    block.map(|(e, v)| {
                        scale * v + if i == j && e % (b + 1) == 0 { 3.0 * b as f64 } else { 0.0 }
                    }),
                );
            }
        }
        row_ptr.push(col.len());
    }
    Bsr::new(b, n, n, row_ptr, col, values).unwrap()
}

/// Pivots that cannot be inverted are counted, the one of the lowest node is reported, and randomized factors
/// are not finite.
pub fn bad_pivots_of_subdomains_are_named(device: &Arc<Device>) {
    let mut rng = Random(16);
    for b in [1, 3, 8] {
        let n = 40;
        let mut a = banded(&mut rng, b, n, 1);
        // Rows 11 and 30 are coupled with nothing, and their blocks are singular.
        for (i, value) in [(11usize, 0.0), (30, f64::NAN)] {
            let (row_ptr, col) = (a.row_ptr().to_vec(), a.col().to_vec());
            for row in 0..n {
                for p in row_ptr[row]..row_ptr[row + 1] {
                    if row == i || col[p] as usize == i {
                        let fill = if row == i && col[p] as usize == i { value } else { 0.0 };
                        a.values_mut()[p * b * b..][..b * b].fill(fill);
                    }
                }
            }
        }
        let plan = Arc::new(plan_of(&a, &one(n), |_, _| false, 1));
        let space = Cuda::new(device, n * b).unwrap();
        let [precision, compute] = [Precision::F64; 2];
        let options = SchwarzOptions { precision, compute, rows: 8, deterministic: false };
        let mut f = CudaSchwarz::prepare(&space, &plan, options).unwrap();
        let values = TermValues::matrix(a.values());
        let quality = f.factorize(&space, &values, Factorization::Exact).unwrap();
        let pivots = quality.pivots;
        assert_eq!((pivots.bad, pivots.first), (2, Some((11, PivotKind::Zero))), "b = {b}");
        assert!(!quality.finite);
        let random = Factorization::Random { sweeps: 3, warm: false };
        assert!(!f.factorize(&space, &values, random).unwrap().finite);
        // Good values mend it.
        let good = banded(&mut rng, b, n, 1);
        let plan = Arc::new(plan_of(&good, &one(n), |_, _| false, 1));
        let mut f = CudaSchwarz::prepare(&space, &plan, options).unwrap();
        let values = TermValues::matrix(good.values());
        assert!(f.factorize(&space, &values, random).unwrap().finite);
    }
}

/// A grid of 5 or 7 points with ILU(1) in natural order.
fn grid_plan(cells: [usize; 3], b: usize) -> (Bsr, SchwarzPlan) {
    let [nx, ny, nz] = cells;
    let (n, mut rng) = (nx * ny * nz, Random(17));
    let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    let mut plan = SchwarzPlan {
        block: b,
        subdomains: vec![0, n as u32],
        node: (0..n as u32).collect(),
        result: (0..n as u32).collect(),
        row_ptr: vec![0],
        ..SchwarzPlan::default()
    };
    // Offsets of neighbours, ascending, with true if A has them; fill is where two neighbours of a lower row
    // meet.
    let mut offsets = Vec::new();
    for (dx, dy, dz) in
        (-1i64..=1).flat_map(|z| (-1i64..=1).flat_map(move |y| (-1i64..=1).map(move |x| (x, y, z))))
    {
        let size = dx.abs() + dy.abs() + dz.abs();
        if size <= 1 || (size == 2 && dx + dy + dz == 0) {
            offsets.push(([dx, dy, dz], size <= 1));
        }
    }
    for i in 0..n {
        let at = [i % nx, i / nx % ny, i / (nx * ny)].map(|v| v as i64);
        for (d, stored) in &offsets {
            let to = [at[0] + d[0], at[1] + d[1], at[2] + d[2]];
            if (0..3).any(|k| to[k] < 0 || to[k] >= cells[k] as i64) {
                continue;
            }
            let j = (to[0] + nx as i64 * (to[1] + ny as i64 * to[2])) as usize;
            if i == j {
                plan.diagonal.push(plan.column.len() as i64);
            }
            plan.column.push(j as u32);
            plan.source.push(if *stored { col.len() as u32 } else { FILL });
            if *stored {
                col.push(j as u32);
                let whole = if i == j { 4.0 + if nz > 1 { 2.0 } else { 0.0 } } else { -1.0 };
                values.extend(
                    (0..b * b).map(|e| (if e % (b + 1) == 0 { whole } else { 0.0 }) + 0.1 * rng.number()),
                );
            }
        }
        row_ptr.push(col.len());
        plan.row_ptr.push(plan.column.len() as i64);
    }
    plan.nodes = Arc::new(Halo { own: n, ..Halo::default() });
    plan.blocks = Arc::new(Halo { own: col.len(), ..Halo::default() });
    (Bsr::new(b, n, n, row_ptr, col, values).unwrap(), plan)
}

/// Prints the milliseconds of a solve and of a factorisation, their least bytes, and the distance of
/// randomized from exact ones.
pub fn schwarz_speed(device: &Arc<Device>) {
    let bandwidth = device.read_bandwidth().unwrap();
    println!("bandwidth {:.0} GB/s", bandwidth / 1e9);
    for (name, cells, b) in [("5 points 600^2", [600, 600, 1], 3), ("7 points 100^3", [100; 3], 4)] {
        let (a, plan) = grid_plan(cells, b);
        let (plan, n) = (Arc::new(plan), a.block_rows());
        let space = Cuda::new(device, n * b).unwrap();
        let (mut x, mut y) = (space.vector().unwrap(), space.vector().unwrap());
        let host = Random(18).numbers(n * b);
        space.write(&host, &mut x).unwrap();
        for (precision, deterministic) in
            [(Precision::F64, false), (Precision::F32, false), (Precision::F64, true)]
        {
            println!(
                "{name}, b = {b}, {} blocks, {precision:?}, deterministic {deterministic}:",
                plan.entries()
            );
            for rows in [8, 16, 32] {
                let options = SchwarzOptions { precision, compute: Precision::F64, rows, deterministic };
                let begin = Instant::now();
                let mut f = CudaSchwarz::prepare(&space, &plan, options).unwrap();
                let values = TermValues::matrix(a.values());
                space.wait().unwrap();
                let prepared = 1e3 * begin.elapsed().as_secs_f64();
                println!("  {rows} rows a warp; prepared in {prepared:.1} ms");
                let random = |sweeps, warm| Factorization::Random { sweeps, warm };
                for how in [random(5, false), random(5, true), random(10, false), Factorization::Exact] {
                    let (mut best, mut quality) = (f64::INFINITY, None);
                    for _ in 0..3 {
                        let begin = Instant::now();
                        let now = f.factorize(&space, &values, how).unwrap();
                        best = best.min(1e3 * begin.elapsed().as_secs_f64());
                        assert_eq!(now.pivots.bad, 0);
                        quality = Some(now);
                    }
                    let d = quality.map_or(0.0, |q| (q.defect2[0] / q.defect2[1]).sqrt());
                    println!("    {how:?}: {best:.3} ms, defect {d:.1e}");
                }
                let exact = apply(&space, &f, TriangularSolve::Exact, &host);
                let random = |sweeps| TriangularSolve::Random { sweeps };
                let jacobi = |sweeps| TriangularSolve::Jacobi { sweeps };
                for how in [
                    TriangularSolve::Exact,
                    random(1),
                    random(5),
                    random(8),
                    random(10),
                    jacobi(5),
                    jacobi(10),
                ] {
                    let mut best = f64::INFINITY;
                    for _ in 0..5 {
                        f.solve(&space, how, false, &x, &mut y).unwrap();
                        space.wait().unwrap();
                        let begin = Instant::now();
                        (0..10).for_each(|_| f.solve(&space, how, false, &x, &mut y).unwrap());
                        space.wait().unwrap();
                        best = best.min(begin.elapsed().as_secs_f64() / 10.0);
                    }
                    let bytes = f.bytes(how) as f64;
                    let far = distance(&apply(&space, &f, how, &host), &exact);
                    println!(
                        "    {how:?}: {:.3} ms, {:.0} MB, {:.0} GB/s ({:.0} %), {far:.1e} from exact",
                        1e3 * best,
                        bytes / 1e6,
                        bytes / best / 1e9,
                        100.0 * bytes / best / bandwidth
                    );
                }
            }
        }
    }
}
