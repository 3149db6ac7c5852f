//! Preconditioners of coupled systems on any device, against dense constructions.

use crate::common::*;
use krylith_core::matrix::{Bsr, Csr};
use krylith_core::{Field, Options, Problem, Solver};

pub fn options(device: &str, precond: &str) -> Options {
    format!("device={device} method=fgmres precond={precond}").parse().unwrap()
}

/// A dense matrix of these rows and columns of `a`.
pub fn part(a: &Mat, rows: &[u32], columns: &[u32]) -> Mat {
    Mat::from_fn(rows.len(), columns.len(), |i, j| a[(rows[i] as usize, columns[j] as usize)])
}

pub fn pick(x: &[f64], at: &[u32]) -> Vec<f64> {
    at.iter().map(|&i| x[i as usize]).collect()
}

fn plus_of(factor: f64, a: &Mat, b: &Mat) -> Mat {
    Mat::from_fn(a.nrows(), a.ncols(), |i, j| a[(i, j)] + factor * b[(i, j)])
}

pub fn diagonal(n: usize, of: impl Fn(usize) -> f64) -> Mat {
    Mat::from_fn(n, n, |i, j| if i == j { of(i) } else { 0.0 })
}

fn inverse_of(a: &Mat) -> Mat {
    let n = a.nrows();
    let flat: Vec<f64> = (0..n * n).map(|k| a[(k / n, k % n)]).collect();
    let inverse = inverse(&flat, n);
    Mat::from_fn(n, n, |i, j| inverse[i * n + j])
}

pub fn csr_of(a: &Mat) -> Csr {
    let all = (0..a.nrows() * a.ncols()).map(|k| (k / a.ncols(), k % a.ncols()));
    let entries: Vec<_> = all.map(|(i, j)| (i as u32, j as u32, a[(i, j)])).filter(|e| e.2 != 0.0).collect();
    Csr::from_triplets(a.nrows(), a.ncols(), &entries).unwrap()
}

/// Lists of unknowns of these lengths that together are all unknowns, scattered.
pub fn scattered(rng: &mut Random, lengths: &[usize]) -> Vec<Vec<u32>> {
    let mut all: Vec<u32> = (0..lengths.iter().sum::<usize>() as u32).collect();
    (1..all.len()).rev().for_each(|i| all.swap(i, rng.below(i + 1)));
    let mut rest = &all[..];
    let take = |&length: &usize| {
        let (own, others) = rest.split_at(length);
        rest = others;
        own.to_vec()
    };
    lengths.iter().map(take).collect()
}

pub fn problem(a: &Bsr, fields: &[(&str, &[u32])], matrices: &[(&str, &Mat)]) -> Problem<'static> {
    let fields = fields.iter().map(|(name, unknowns)| Field::new(name, unknowns.to_vec())).collect();
    let problem = Problem::bsr(a).unwrap().into_owned().with_fields(fields).unwrap();
    matrices
        .iter()
        .fold(problem, |problem, (name, matrix)| problem.with_matrix(name, csr_of(matrix)).unwrap())
}

/// Compares P⁻¹ with `expected`, given the dense matrix, for the first values and for two sets of new ones.
pub fn check(
    device: &str,
    what: &str,
    a: &Bsr,
    problem: Problem<'static>,
    precond: &str,
    tolerance: f64,
    expected: &dyn Fn(&Mat, &[f64]) -> Vec<f64>,
) {
    let (mut a, mut rng, n) = (a.clone(), Random(5), a.rows());
    let mut solver =
        Solver::new(problem, &options(device, precond)).unwrap_or_else(|e| panic!("{precond}: {e}"));
    for round in 0..3 {
        let (x, mut y) = (rng.numbers(n), vec![f64::NAN; n]);
        solver.precondition(&x, &mut y).unwrap();
        let want = expected(&written_out(&a.to_csr()), &x);
        let d = distance(&y, &want);
        assert!(d <= tolerance, "{what}, {precond}, round {round}: {d:e}");
        a.values_mut().iter_mut().for_each(|v| *v *= 1.0 + 0.1 * rng.number());
        solver.update_values(a.values()).unwrap();
    }
}

/// Splits of two and three scattered fields in every form, for matrices of every block size, with exact
/// parts.
pub fn splits_match_dense_algebra(device: &str) {
    let mut rng = Random(41);
    for b in 1..=8 {
        let n = 24 / b * b;
        let a = random_bsr(&mut rng, b, n / b, n / b, 4, true);
        for lengths in [vec![n - n / 3, n / 3], vec![n - 9, 5, 4]] {
            let sets = scattered(&mut rng, &lengths);
            let names = ["u", "p", "q"];
            let fields: Vec<(&str, &[u32])> = names.into_iter().zip(sets.iter().map(Vec::as_slice)).collect();
            let parts: Vec<String> = fields.iter().map(|(name, _)| format!("{name}: lu")).collect();
            for form in ["diagonal", "lower", "upper", "full"] {
                let expected = |a: &Mat, x: &[f64]| {
                    let count = sets.len();
                    let block = |f: usize, g: usize| part(a, &sets[f], &sets[g]);
                    let mut r: Vec<Vec<f64>> = sets.iter().map(|set| pick(x, set)).collect();
                    let mut y: Vec<Vec<f64>> = sets.iter().map(|set| vec![0.0; set.len()]).collect();
                    let mut turn = |f: usize, others: std::ops::Range<usize>| {
                        for g in others {
                            r[f] = minus(&r[f], &multiply(&block(f, g), &y[g]));
                        }
                        y[f] = solve(&block(f, f), &r[f]);
                    };
                    match form {
                        "diagonal" => (0..count).for_each(|f| turn(f, 0..0)),
                        "lower" => (0..count).for_each(|f| turn(f, 0..f)),
                        "upper" => (0..count).rev().for_each(|f| turn(f, f + 1..count)),
                        _ => {
                            (0..count).for_each(|f| turn(f, 0..f));
                            (0..count - 1).rev().for_each(|f| turn(f, f + 1..count));
                        }
                    }
                    let mut all = vec![0.0; x.len()];
                    for (set, y) in sets.iter().zip(&y) {
                        set.iter().zip(y).for_each(|(&i, y)| all[i as usize] = *y);
                    }
                    all
                };
                let precond = format!("split({}; form={form})", parts.join(", "));
                check(device, &format!("b={b}"), &a, problem(&a, &fields, &[]), &precond, 1e-9, &expected);
            }
        }
    }
}

/// A saddle point [[A, B], [C, −D]] of two scattered fields, with C ≠ Bᵀ.
struct Saddle {
    a: Bsr,
    sets: Vec<Vec<u32>>,
    /// Matrices on the second field, and a weight on the first.
    given: [Mat; 4],
}

impl Saddle {
    fn new(seed: u64) -> Self {
        let mut rng = Random(seed);
        let (n, m) = (20, 8);
        let sets = scattered(&mut rng, &[n, m]);
        let couples = |rng: &mut Random| Mat::from_fn(n, m, |_, _| 0.0).map_entries(rng);
        let b = couples(&mut rng);
        let mut c = transpose(&b);
        for i in 0..m {
            c[(i, rng.below(n))] += 0.05;
        }
        let mut entries = Vec::new();
        let mut put = |rows: &[u32], columns: &[u32], block: &Mat| {
            for (i, &row) in rows.iter().enumerate() {
                for (j, &column) in columns.iter().enumerate() {
                    if block[(i, j)] != 0.0 {
                        entries.push((row, column, block[(i, j)]));
                    }
                }
            }
        };
        let tri = |n: usize, d: f64, rng: &mut Random| {
            let beside: Vec<f64> = rng.numbers(2 * n);
            Mat::from_fn(n, n, |i, j| match i.abs_diff(j) {
                0 => d,
                1 => -1.0 + 0.2 * beside[i + j],
                _ => 0.0,
            })
        };
        let (u, p) = (&sets[0], &sets[1]);
        put(u, u, &tri(n, 4.0, &mut rng));
        put(u, p, &b);
        put(p, u, &c);
        put(p, p, &diagonal(m, |_| -0.1));
        let given = [
            tri(m, 3.0, &mut rng),
            tri(m, 4.0, &mut rng),
            diagonal(m, |i| 1.0 + i as f64),
            diagonal(n, |i| 2.0 + i as f64),
        ];
        let csr = Csr::from_triplets(n + m, n + m, &entries).unwrap();
        Self { a: Bsr::from_csr(&csr, 1).unwrap(), sets, given }
    }

    fn problem(&self) -> Problem<'static> {
        let fields: [(&str, &[u32]); 2] = [("u", &self.sets[0]), ("p", &self.sets[1])];
        let [f, l, m, q] = &self.given;
        let minus = diagonal(m.nrows(), |i| -m[(i, i)]);
        problem(&self.a, &fields, &[("F", f), ("L", l), ("M", m), ("N", &minus), ("Q", q)])
    }
}

/// Fills a matrix with a few random entries a row.
trait Filled {
    fn map_entries(self, rng: &mut Random) -> Self;
}

impl Filled for Mat {
    fn map_entries(mut self, rng: &mut Random) -> Self {
        for i in 0..self.nrows() {
            for _ in 0..3 {
                let j = rng.below(self.ncols());
                self[(i, j)] = rng.number();
            }
        }
        self
    }
}

/// What a split with an approximate Schur complement applies, with exact parts; `inner` is the preconditioner
/// of the first part that an explicit S uses.
fn with_schur(saddle: &Saddle, schur: &str, form: &str, k: &Mat, x: &[f64]) -> Vec<f64> {
    let [f, l, m, q] = &saddle.given;
    let (u, p) = (&saddle.sets[0], &saddle.sets[1]);
    let (a, b, c, d) = (part(k, u, u), part(k, u, p), part(k, p, u), part(k, p, p));
    let point = diagonal(u.len(), |i| 1.0 / a[(i, i)]);
    let rows = diagonal(u.len(), |i| 1.0 / (0..u.len()).map(|j| a[(i, j)].abs()).sum::<f64>());
    let weight = if schur == "lsc(Q)" { diagonal(u.len(), |i| 1.0 / q[(i, i)]) } else { point.clone() };
    let through = |w: &Mat| product(&product(&c, w), &b);
    let negated = |a: Mat| Mat::from_fn(a.nrows(), a.ncols(), |i, j| -a[(i, j)]);
    // S is negative, and the matrices of the caller are positive.
    let s = match schur {
        "selfp" => inverse_of(&plus_of(-1.0, &d, &through(&point))),
        "selfp-rows" => inverse_of(&plus_of(-1.0, &d, &through(&rows))),
        "explicit" => inverse_of(&plus_of(-1.0, &d, &through(&inverse_of(&a)))),
        "block" => inverse_of(&d),
        "M" | "N" => negated(inverse_of(m)),
        "pcd(F, L, M)" => {
            // M is solved by a polynomial, exactly here: it is diagonal.
            negated(product(&product(&inverse_of(m), f), &inverse_of(l)))
        }
        _ => {
            let inverse = inverse_of(&through(&weight));
            let middle = through(&product(&product(&weight, &a), &weight));
            negated(product(&product(&inverse, &middle), &inverse))
        }
    };
    let s = if form == "diagonal" { negated(s) } else { s };
    let (xu, xp) = (pick(x, u), pick(x, p));
    let last = |yu: &[f64]| multiply(&s, &minus(&xp, &multiply(&c, yu)));
    let (yu, yp) = match form {
        "diagonal" => (solve(&a, &xu), multiply(&s, &xp)),
        "lower" => {
            let yu = solve(&a, &xu);
            let yp = last(&yu);
            (yu, yp)
        }
        "upper" => {
            let yp = multiply(&s, &xp);
            (solve(&a, &minus(&xu, &multiply(&b, &yp))), yp)
        }
        "simple" => {
            let z = solve(&a, &xu);
            let yp = last(&z);
            (minus(&z, &multiply(&point, &multiply(&b, &yp))), yp)
        }
        _ => {
            let yp = last(&solve(&a, &xu));
            (solve(&a, &minus(&xu, &multiply(&b, &yp))), yp)
        }
    };
    let mut y = vec![0.0; x.len()];
    u.iter().zip(&yu).chain(p.iter().zip(&yp)).for_each(|(&i, y_i)| y[i as usize] = *y_i);
    y
}

/// Every approximation of S⁻¹ in every form, with exact parts, also after new values.
pub fn schur_complements_match_dense_algebra(device: &str) {
    let saddle = Saddle::new(7);
    for schur in ["selfp", "selfp-rows", "explicit", "block", "M", "N", "lsc", "lsc(Q)", "pcd(F, L, M)"] {
        for form in ["diagonal", "lower", "upper", "full", "simple"] {
            let tolerance = if schur.starts_with("pcd") { 2e-2 } else { 1e-9 };
            let precond = format!("split(u: lu, p: lu; schur={form}, S={schur})");
            let expected = |k: &Mat, x: &[f64]| with_schur(&saddle, schur, form, k, x);
            check(device, "saddle", &saddle.a, saddle.problem(), &precond, tolerance, &expected);
        }
    }
}

/// Matrices of the caller on a field and in cells.
pub fn matrices_are_renewed(device: &str) {
    matrices_of_the_caller_are_renewed(device);
    matrices_of_cells_are_renewed(device);
}

/// New matrices of the caller take effect with the next update, and only in the solver that got them.
fn matrices_of_the_caller_are_renewed(device: &str) {
    let mut saddle = Saddle::new(11);
    let (old, problem) = (saddle.given.clone(), saddle.problem());
    let (n, mut rng) = (saddle.a.rows(), Random(3));
    saddle.given.iter_mut().for_each(|m| {
        *m = Mat::from_fn(m.nrows(), m.ncols(), |i, j| 1.7 * m[(i, j)] * (1.0 + 0.01 * (i * j) as f64))
    });
    for schur in ["M", "lsc(Q)", "pcd(F, L, M)"] {
        let precond = format!("split(u: lu, p: lu; schur=upper, S={schur})");
        let [mut solver, mut other] =
            [(); 2].map(|()| Solver::new(&problem, &options(device, &precond)).unwrap());
        for (name, matrix) in ["F", "L", "M", "Q"].iter().zip(&saddle.given) {
            solver.set_matrix(name, csr_of(matrix)).unwrap();
        }
        let (x, mut y) = (rng.numbers(n), vec![f64::NAN; n]);
        let tolerance = if schur.starts_with("pcd") { 2e-2 } else { 1e-9 };
        let k = written_out(&saddle.a.to_csr());
        for (solver, given) in [(&mut solver, &saddle.given), (&mut other, &old)] {
            solver.update_values(saddle.a.values()).unwrap();
            solver.precondition(&x, &mut y).unwrap();
            let of = Saddle { given: given.clone(), a: saddle.a.clone(), sets: saddle.sets.clone() };
            let d = distance(&y, &with_schur(&of, schur, "upper", &k, &x));
            assert!(d <= tolerance, "{precond}: {d:e}");
        }
        let refused = |e: krylith_core::Result<()>| e.unwrap_err().to_string();
        let wide = csr_of(&diagonal(3, |_| 1.0));
        assert!(refused(solver.set_matrix("M", wide.clone())).contains("only values may change"));
        assert!(refused(solver.set_matrix("R", wide)).contains("no matrix has the name `R`"));
    }
}

/// A new matrix of accumulation terms changes the weights of CPR as a new solver would; P of a correction
/// cannot change.
fn matrices_of_cells_are_renewed(device: &str) {
    let (cells, mut rng) = (6, Random(61));
    let a = random_bsr(&mut rng, 1, 2 * cells, 2 * cells, 4, true);
    let all: Vec<u32> = (0..2 * cells as u32).collect();
    let fields: [(&str, &[u32]); 2] = [("p", &all[..cells]), ("s", &all[cells..])];
    let [old, new] = [(); 2].map(|()| {
        let numbers = rng.numbers(4 * cells);
        Mat::from_fn(2 * cells, 2 * cells, |i, j| match i % cells == j % cells {
            true => numbers[2 * i + j / cells] + if i == j { 3.0 } else { 0.0 },
            false => 0.0,
        })
    });
    let make = |acc: &Mat, precond: &str| {
        let problem = problem(&a, &fields, &[("acc", acc)]);
        Solver::new(problem, &options(device, precond)).unwrap()
    };
    let precond = "cpr(p: lu; decouple=impes(acc))";
    let (mut solver, mut anew, x) = (make(&old, precond), make(&new, precond), rng.numbers(2 * cells));
    let (mut y, mut wanted) = (vec![0.0; 2 * cells], vec![0.0; 2 * cells]);
    anew.precondition(&x, &mut wanted).unwrap();
    solver.precondition(&x, &mut y).unwrap();
    assert!(distance(&y, &wanted) > 1e-3);
    solver.set_matrix("acc", csr_of(&new)).unwrap();
    solver.update_values(a.values()).unwrap();
    solver.precondition(&x, &mut y).unwrap();
    assert!(distance(&y, &wanted) < 1e-12);
    let mut solver = make(&old, "aux(acc: jacobi)");
    solver.set_matrix("acc", csr_of(&new)).unwrap();
    let refused = solver.update_values(a.values()).unwrap_err().to_string();
    assert!(refused.contains("aux: the matrix `acc` cannot change in an update"), "{refused}");
}

/// Corrections in the range of a matrix P of the caller, for blocks of every size, with R = Pᵀ and with
/// another R. Rows of boundary values take no part.
pub fn aux_matches_dense_algebra(device: &str) {
    let mut rng = Random(59);
    for b in 1..=8 {
        let n = 24 / b * b;
        // With b = 1, some rows have only a diagonal entry.
        let a = random_bsr(&mut rng, b, n / b, n / b, 4, true);
        let [p, q] = [(); 2].map(|()| Mat::from_fn(n, 6, |_, _| 0.0).map_entries(&mut rng));
        // Entries of Pᵀ beside random ones keep R A P regular.
        let q = Mat::from_fn(n, 6, |i, j| p[(i, j)] + 0.2 * q[(i, j)]);
        let all: Vec<u32> = (0..n as u32).collect();
        for (precond, q) in [("aux(P: lu)", &p), ("aux(P: lu; R=R)", &q)] {
            let expected = |a: &Mat, x: &[f64]| {
                let alone = |i: usize| (0..n).all(|j| i == j || a[(i, j)] == 0.0);
                let inner = |of: &Mat| Mat::from_fn(n, 6, |i, j| if alone(i) { 0.0 } else { of[(i, j)] });
                let (p, r) = (inner(&p), transpose(&inner(q)));
                multiply(&p, &solve(&product(&r, &product(a, &p)), &multiply(&r, x)))
            };
            let given = problem(&a, &[("u", &all)], &[("P", &p), ("R", &transpose(q))]);
            check(device, &format!("b={b}"), &a, given, precond, 1e-9, &expected);
        }
        let wrong = problem(&a, &[("u", &all)], &[("P", &p)]);
        let refused = Solver::new(wrong, &options(device, "aux(P: lu; R=P)")).err().unwrap().to_string();
        assert!(refused.contains("as R it needs 6 rows"), "{refused}");
    }
}

/// Inner solves: CG ends in as many iterations as there are unknowns; the error of a Chebyshev polynomial is
/// at most its bound.
pub fn inner_solves_match_dense_algebra(device: &str) {
    let (n, mut rng) = (30, Random(3));
    let entry = |i: usize, j: usize| match i.abs_diff(j) {
        0 => 4.0 + (i % 3) as f64,
        1 => -1.0,
        _ => 0.0,
    };
    let a = csr_of(&Mat::from_fn(n, n, entry));
    let plain = || Problem::csr(&a).unwrap();
    for precond in ["cg(jacobi; iterations=30)", "chebyshev(jacobi; degree=30)"] {
        let mut solver = Solver::new(plain(), &options(device, precond)).unwrap();
        let mut values = a.clone();
        for round in 0..2 {
            let (x, mut y) = (rng.numbers(n), vec![f64::NAN; n]);
            solver.precondition(&x, &mut y).unwrap();
            let d = distance(&y, &solve(&written_out(&values), &x));
            assert!(d <= 1e-8, "{precond}, round {round}: {d:e}");
            values.values_mut().iter_mut().for_each(|v| *v *= 7.0);
            solver.update_values(values.values()).unwrap();
        }
    }
    // D⁻¹A has its spectrum in (1/2, 3/2): each step reduces the error by 0.27 at least.
    let mut solver = Solver::new(plain(), &options(device, "chebyshev(jacobi; degree=5)")).unwrap();
    let (x, mut y) = (rng.numbers(n), vec![0.0; n]);
    solver.precondition(&x, &mut y).unwrap();
    let want = solve(&written_out(&a), &x);
    assert!(norm(&minus(&y, &want)) < 2.0 * 0.27f64.powi(5) * 3.0 * norm(&want), "{}", distance(&y, &want));
    // A right-hand side of zero stays zero, and nothing is divided by zero.
    for precond in ["cg(jacobi)", "chebyshev(jacobi)"] {
        let mut solver = Solver::new(plain(), &options(device, precond)).unwrap();
        let mut y = vec![f64::NAN; n];
        solver.precondition(&vec![0.0; n], &mut y).unwrap();
        assert_eq!(y, vec![0.0; n], "{precond}");
    }
}

/// Stokes flow in a channel by a staggered grid: every preconditioner by name solves it in few iterations,
/// and the number hardly grows with the grid.
pub fn saddle_points_are_solved(device: &str) {
    let mut counts = Vec::new();
    for m in [12, 24] {
        let (problem, b) = staggered_stokes(m);
        for precond in [
            "split(u: amg, p: chebyshev(jacobi); schur=upper, S=Mp)",
            "split(u: amg, p: amg; schur=full, S=selfp)",
            "split(u: cg(amg; iterations=4), p: jacobi; schur=lower, S=Mp)",
            "split(u: lu, p: amg; S=lsc)",
        ] {
            let options: Options = format!("device={device} precond={precond} rtol=1e-8").parse().unwrap();
            let mut solver = Solver::new(&problem, &options).unwrap();
            let mut x = vec![0.0; b.len()];
            let solution = solver.solve(&b, &mut x).unwrap();
            assert!(solution.converged(), "{precond}: {:?}", solution.history.outcome);
            counts.push((precond, m, solution.history.iterations));
            assert!(solution.history.iterations <= 60, "{counts:?}");
            let product = times(&problem.terms().terms()[0].1.to_csr(), &x);
            assert!(distance(&product, &b) <= 1.01e-8, "{precond}");
        }
    }
}

/// Stokes flow on m×m cells: velocities on faces, pressures in cells, with an open end. The mass matrix of
/// the pressure is the identity.
pub fn staggered_stokes(m: usize) -> (Problem<'static>, Vec<f64>) {
    // Faces normal to x, of which the first column is a wall; faces normal to y inside; cells.
    let (nu, nv) = (m * m, m * (m - 1));
    let n = nu + nv + m * m;
    let (u, v, p) = (
        |i: usize, j: usize| (i - 1 + m * j) as u32,
        |i: usize, j: usize| (nu + i + m * (j - 1)) as u32,
        |i: usize, j: usize| (nu + nv + i + m * j) as u32,
    );
    let mut entries = Vec::new();
    let mut diffuse = |own: u32, neighbours: &[Option<u32>]| {
        entries.push((own, own, neighbours.len() as f64));
        neighbours.iter().flatten().for_each(|&other| entries.push((own, other, -1.0)));
    };
    for j in 0..m {
        for i in 1..=m {
            let at = |inside: bool, i: usize, j: usize| inside.then(|| u(i, j));
            let mut all =
                vec![at(i > 1, i.max(2) - 1, j), at(j > 0, i, j.max(1) - 1), at(j + 1 < m, i, j + 1)];
            all.extend((i < m).then(|| Some(u(i + 1, j))));
            diffuse(u(i, j), &all);
        }
    }
    for j in 1..m {
        for i in 0..m {
            let at = |inside: bool, i: usize, j: usize| inside.then(|| v(i, j));
            let mut all =
                vec![at(i > 0, i.max(1) - 1, j), at(j > 1, i, j.max(2) - 1), at(j + 1 < m, i, j + 1)];
            all.extend((i + 1 < m).then(|| Some(v(i + 1, j))));
            diffuse(v(i, j), &all);
        }
    }
    for j in 0..m {
        for i in 0..m {
            let mut flux =
                |face: u32, sign: f64| entries.extend([(face, p(i, j), sign), (p(i, j), face, sign)]);
            if i > 0 {
                flux(u(i, j), 1.0);
            }
            flux(u(i + 1, j), -1.0);
            if j > 0 {
                flux(v(i, j), 1.0);
            }
            if j + 1 < m {
                flux(v(i, j + 1), -1.0);
            }
        }
    }
    let a = Csr::from_triplets(n, n, &entries).unwrap();
    let fields = vec![Field::range("u", 0..nu + nv), Field::range("p", nu + nv..n)];
    let mass = csr_of(&diagonal(m * m, |_| 1.0));
    let problem = Problem::csr(&a).unwrap().with_fields(fields).unwrap().with_matrix("Mp", mass).unwrap();
    let mut b = vec![0.0; n];
    b[..nu].fill(1.0);
    (problem, b)
}

/// What fields cannot do yet, and what the caller did wrong, is said with names.
pub fn wrong_fields_are_named(device: &str) {
    let a = csr_of(&diagonal(6, |i| 1.0 + i as f64));
    let fields = || vec![Field::range("u", 0..4), Field::range("p", 4..6)];
    let with = || Problem::csr(&a).unwrap().with_fields(fields()).unwrap();
    let refused = |problem: Problem<'static>, precond: &str| {
        Solver::new(problem, &options(device, precond)).err().map(|e| e.to_string()).unwrap_or_default()
    };
    let says = |text: String, words: &str| assert!(text.contains(words), "{text}");
    let split = "split(u: jacobi, p: jacobi)";
    says(refused(Problem::csr(&a).unwrap(), split), "the system has no fields; give them: --fields");
    says(refused(with(), "split(u: jacobi, q: jacobi)"), "no field has the name `q`; the fields are u, p");
    says(refused(with(), "split(u: jacobi, u: jacobi)"), "the field `u` is in two parts");
    says(refused(with(), "split(u: jacobi, p: jacobi; S=Mp)"), "no matrix has the name `mp`");
    let wide = || with().with_matrix("Mp", csr_of(&diagonal(3, |_| 1.0))).unwrap();
    says(refused(wide(), "split(u: jacobi, p: jacobi; S=Mp)"), "the matrix `mp` is 3×3; a Schur complement");
    says(refused(with(), "split(u: jacobi, p: cg(ras))"), "inner CG needs a symmetric part");
    says(refused(with(), "split(u: jacobi, p: jacobi; S=lsc)"), "one of them is zero");
    let three = vec![Field::range("u", 0..3), Field::range("p", 3..4), Field::range("q", 4..6)];
    let three = Problem::csr(&a).unwrap().with_fields(three).unwrap();
    says(refused(three, split), "no part has the fields q");
}
