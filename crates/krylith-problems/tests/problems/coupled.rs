//! Coupled systems: polynomials that they reproduce, symmetry, and the iterations of their preconditioners.

use krylith_core::fields::Field;
use krylith_core::matrix::Csr;
use krylith_core::{Options, Problem, Solver};
use krylith_problems::{Generated, SystemKind, generate};

/// Linear elements as the first coarse level of quadratic ones.
const QUADRATIC: &str = "symmetric(chebyshev(jacobi:block=1; degree=3, low=0.2) then aux(P: amg; block=3))";

fn csr(made: &Generated) -> Csr {
    match &made.system {
        SystemKind::Csr(a) => a.clone(),
        SystemKind::Bsr(a) => a.to_csr(),
        SystemKind::Kronecker(_) => panic!("one matrix expected"),
    }
}

fn matrix<'a>(made: &'a Generated, name: &str) -> &'a Csr {
    &made.matrices.iter().find(|(other, _)| other == name).unwrap_or_else(|| panic!("no matrix {name}")).1
}

fn apply(a: &Csr, x: &[f64]) -> Vec<f64> {
    let row = |i: usize| {
        let (col, values) = a.row(i);
        col.iter().zip(values).map(|(&j, v)| v * x[j as usize]).sum()
    };
    (0..a.rows()).map(row).collect()
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

fn largest(x: impl IntoIterator<Item = f64>) -> f64 {
    x.into_iter().fold(0.0, |most, x| most.max(x.abs()))
}

fn field<'a>(made: &'a Generated, name: &str) -> &'a Field {
    made.fields.iter().find(|f| f.name() == name).unwrap()
}

/// The values of a vector function on the nodes of `u`, and zeros elsewhere.
fn displaced(made: &Generated, f: impl Fn([f64; 3]) -> [f64; 3]) -> Vec<f64> {
    let (points, mut x) = (made.coordinates.as_ref().unwrap(), vec![0.0; made.rhs.len()]);
    for &i in field(made, "u").unknowns() {
        x[i as usize] = f(points[i as usize])[i as usize % 3];
    }
    x
}

/// Rows of the unknowns whose points are `margin` or more from all sides.
fn inner(made: &Generated, margin: f64) -> Vec<usize> {
    let points = made.coordinates.as_ref().unwrap();
    let inside = |x: &f64| (margin - 1e-9..1.0 - margin + 1e-9).contains(x);
    (0..points.len()).filter(|&i| points[i].iter().all(inside)).collect()
}

/// Returns the largest difference of a matrix and its transpose, over the largest entry.
fn asymmetry(a: &Csr) -> f64 {
    let t = a.transpose();
    let row = |i: usize| {
        let (col, values) = a.row(i);
        largest(col.iter().zip(values).map(|(&j, v)| v - t.get(i, j as usize)))
    };
    assert_eq!(a.nonzeros(), t.nonzeros());
    largest((0..a.rows()).map(row)) / largest(a.values().iter().copied())
}

/// Solves, and returns the answer and the number of iterations.
fn solve(made: &Generated, precond: &str, rtol: f64) -> (Vec<f64>, usize) {
    let problem = match &made.system {
        SystemKind::Csr(a) => Problem::csr(a),
        SystemKind::Bsr(a) => Problem::bsr(a),
        SystemKind::Kronecker(_) => panic!("one matrix expected"),
    };
    let mut problem = problem.unwrap();
    if !made.fields.is_empty() {
        problem = problem.with_fields(made.fields.clone()).unwrap();
    }
    for (name, matrix) in &made.matrices {
        problem = problem.with_matrix(name, matrix.clone()).unwrap();
    }
    let options: Options = format!("precond={precond} rtol={rtol:e} device=cpu threads=1").parse().unwrap();
    let mut x = vec![0.0; made.rhs.len()];
    let mut solver = Solver::new(&problem, &options).unwrap();
    let solution = solver.solve(&made.rhs, &mut x).unwrap();
    assert!(solution.converged(), "{}: {:?}", made.spec, solution.outcome());
    let count = solution.history.iterations;
    (x, count)
}

/// Solves two sizes, to 1e-8, within `most` iterations each.
fn iterations(specs: [&str; 2], precond: &str, most: usize) {
    for spec in specs {
        let (_, count) = solve(&generate(spec).unwrap(), precond, 1e-8);
        assert!(count <= most, "{spec}: {count} iterations, at most {most} expected");
    }
}

#[test]
fn taylor_hood_reproduces_polynomials() {
    let made = generate("taylor-hood:6x6x6").unwrap();
    let a = csr(&made);
    let [nodes, vertices] = [13 * 13 * 13, 7 * 7 * 7];
    assert_eq!((a.rows(), made.rhs.len()), (3 * nodes + vertices, 3 * nodes + vertices));
    assert_eq!((field(&made, "u").unknowns().len(), field(&made, "u").block()), (3 * nodes, 3));
    assert!(asymmetry(&a) < 1e-14);
    let rows = inner(&made, 1.0 / 3.0);
    assert_eq!(rows.iter().filter(|&&i| i >= 3 * nodes).count(), 27);
    // Linear velocities have a constant stress, and the divergence 1 + 5 − 4 = 2.
    let linear = |[x, y, z]: [f64; 3]| [1.0 + x - 3.0 * z, 2.0 * x + 5.0 * y, y - 4.0 * z];
    let found = apply(&a, &displaced(&made, linear));
    let wanted = apply(matrix(&made, "Mp"), &vec![-2.0; vertices]);
    for &i in &rows {
        let wanted = if i < 3 * nodes { 0.0 } else { wanted[i - 3 * nodes] };
        assert!((found[i] - wanted).abs() < 1e-13, "row {i}: {} for {wanted}", found[i]);
    }
    // Flow between plates: div 2ε(u) = ∇p for u = (y², 0, 0) and p = 2x.
    let mut x = displaced(&made, |[_, y, _]| [y * y, 0.0, 0.0]);
    let points = made.coordinates.as_ref().unwrap();
    (3 * nodes..x.len()).for_each(|i| x[i] = 2.0 * points[i][0]);
    let found = apply(&a, &x);
    assert!(largest(rows.iter().map(|&i| found[i])) < 1e-13);
    // Mass: the volume of the cube.
    let ones = vec![1.0; vertices];
    assert!((dot(&ones, &apply(matrix(&made, "Mp"), &ones)) - 1.0).abs() < 1e-14);
}

#[test]
fn interpolation_reproduces_linear_vectors() {
    for spec in ["taylor-hood:2x3x4", "biot2:3x2x2", "biot3:2x2x3"] {
        let made = generate(spec).unwrap();
        let (p, size) = (matrix(&made, "P"), spec.split_once(':').unwrap().1);
        let n: Vec<usize> = size.split('x').map(|n| n.parse().unwrap()).collect();
        let f = |[x, y, z]: [f64; 3]| [1.0 + 2.0 * x - y, z + 3.0 * y, 4.0 - x - z];
        let vertex = |v: usize| {
            let at = [v % (n[0] + 1), v / (n[0] + 1) % (n[1] + 1), v / (n[0] + 1) / (n[1] + 1)];
            f(std::array::from_fn(|d| at[d] as f64 / n[d] as f64))
        };
        let coarse: Vec<f64> = (0..p.columns() / 3).flat_map(vertex).collect();
        let (fine, wanted) = (apply(p, &coarse), displaced(&made, f));
        assert!(largest(fine.iter().zip(&wanted).map(|(x, y)| x - y)) < 1e-14, "{spec}");
    }
}

#[test]
fn viscosity_weights_momentum_and_pressure_mass() {
    let with = |contrast: f64| {
        let made = generate(&format!("taylor-hood:4x4x4,bodies=3,contrast={contrast}")).unwrap();
        (csr(&made), matrix(&made, "Mp").clone())
    };
    let ((one, _), (ten, mass), (twenty, _)) = (with(1.0), with(10.0), with(19.0));
    // A(c) is linear in c.
    let wrong = (0..one.nonzeros()).map(|p| one.values()[p] + twenty.values()[p] - 2.0 * ten.values()[p]);
    assert!(largest(wrong) < 1e-13);
    assert!(ten != one);
    // The volume of the balls, with weight 1/10.
    let ones = vec![1.0; mass.rows()];
    let volume = (1.0 - dot(&ones, &apply(&mass, &ones))) / 0.9;
    assert!((0.03..0.17).contains(&volume), "{volume}");
    // Without an open side the pressure has a free constant.
    let made = generate("taylor-hood:3x3x3,contrast=10,enclosed").unwrap();
    let mut constant = vec![0.0; made.rhs.len()];
    field(&made, "p").unknowns().iter().for_each(|&i| constant[i as usize] = 1.0);
    assert!(largest(apply(&csr(&made), &constant)) < 1e-14);
}

#[test]
fn oseen_adds_convection() {
    let made = generate("oseen:4x4x4,reynolds=20").unwrap();
    let (a, fast) = (csr(&made), csr(&generate("oseen:4x4x4,reynolds=40").unwrap()));
    let rows = inner(&made, 0.5);
    // Constants are in the kernel of diffusion and convection; diffusion alone depends on the viscosity.
    let constant = displaced(&made, |_| [1.0, -2.0, 3.0]);
    assert!(largest(rows.iter().map(|&i| apply(&a, &constant)[i])) < 1e-14);
    let linear = displaced(&made, |[x, y, z]| [x - y, y + 2.0 * z, z - x]);
    let [slow, quick] = [&a, &fast].map(|a| apply(a, &linear));
    assert!(largest(rows.iter().map(|&i| slow[i] - quick[i])) < 1e-14);
    // Convection is nearly skew, as the wind is free of divergence; the rule has degree 5.
    let (nodes, t) = (9 * 9 * 9 * 3, a.transpose());
    let (mut even, mut odd) = (0.0f64, 0.0f64);
    for i in 0..nodes {
        for &j in a.row(i).0.iter().filter(|&&j| (j as usize) < nodes) {
            // 2 A(40) − A(20) is convection alone.
            let only = |i: usize, j: usize| 2.0 * fast.get(i, j) - a.get(i, j);
            let (one, other) = (only(i, j as usize), only(j as usize, i));
            if i != j as usize {
                even = even.max((one + other).abs());
                odd = odd.max((one - other).abs());
            }
        }
    }
    assert!(odd > 1e-4 && even < 0.1 * odd, "{even} of {odd}");
    assert_eq!(t.nonzeros(), a.nonzeros());
    // Fp = Lp/Re + convection, with boundary values on the open side.
    let [f, l] = ["Fp", "Lp"].map(|name| matrix(&made, name));
    let ones = vec![1.0; f.rows()];
    let points = made.coordinates.as_ref().unwrap();
    for (i, (f_sum, l_sum)) in apply(f, &ones).into_iter().zip(apply(l, &ones)).enumerate() {
        let x = points[nodes + i][0];
        if x == 1.0 {
            assert_eq!((f.row(i).1, l.row(i).1), (&[0.05][..], &[1.0][..]));
        } else if x < 0.7 {
            assert!(f_sum.abs() < 1e-15 && l_sum.abs() < 1e-15);
        }
    }
    assert!(asymmetry(l) < 1e-14);
}

#[test]
fn edge_elements_keep_the_sequence_exact() {
    let [one, two] =
        ["1", "2"].map(|mass| generate(&format!("nedelec:4x3x5,contrast=50,mass={mass}")).unwrap());
    let [a, b] = [&one, &two].map(csr);
    assert!(asymmetry(&a) < 1e-14);
    let g = matrix(&one, "G");
    assert_eq!((g.rows(), g.columns()), (a.rows(), 5 * 4 * 6));
    // The curl of a gradient is zero: A G q is the mass term alone.
    let vertex = |v: usize| [v % 5, v / 5 % 4, v / 20];
    let inside = |v: usize| (0..3).all(|d| vertex(v)[d] > 0 && vertex(v)[d] < [4, 3, 5][d]);
    let q: Vec<f64> = (0..120).map(|v| if inside(v) { ((v * v) as f64).sin() } else { 0.0 }).collect();
    let gradient = apply(g, &q);
    let [first, second] = [&a, &b].map(|a| apply(a, &gradient));
    assert!(largest(first.iter().zip(&second).map(|(x, y)| 2.0 * x - y)) < 1e-13);
    assert!(largest(first) > 1e-3);
    // The constant vector c is the gradient of c·x.
    let c = [1.0, -2.0, 0.5];
    let x = |v: usize| (0..3).map(|d| c[d] * vertex(v)[d] as f64 / [4.0, 3.0, 5.0][d]).sum::<f64>();
    let along = apply(g, &(0..120).map(x).collect::<Vec<_>>());
    let parts = ["Px", "Py", "Pz"].iter().zip(c).map(|(name, c)| apply(matrix(&one, name), &[c; 120]));
    let found = parts.reduce(|a, b| a.iter().zip(&b).map(|(a, b)| a + b).collect()).unwrap();
    assert!(largest(along.iter().zip(&found).map(|(x, y)| x - y)) < 1e-14);
    // Positive definite.
    let random: Vec<f64> = (0..a.rows()).map(|i| ((i * i + 1) as f64).sin()).collect();
    assert!(dot(&random, &apply(&a, &random)) > 0.0);
}

#[test]
fn darcy_flow_through_even_rock_is_exact() {
    let made = generate("rt0:4x3x2,contrast=1,anisotropy=7").unwrap();
    let a = csr(&made);
    assert!(asymmetry(&a) < 1e-14);
    let faces = field(&made, "w").unknowns().len();
    let tets = 6 * 24;
    assert_eq!(a.rows(), faces + tets);
    // Divergence: the fluxes through the free faces of a tetrahedron, in or out.
    for t in 0..tets {
        let (col, values) = a.row(faces + t);
        assert!(col.len() <= 4 && values.iter().all(|v| (v.abs() - 1.0).abs() < 1e-13), "{t}: {values:?}");
    }
    let (x, _) = solve(&made, "split(w: ildu, p: amg; schur=full, S=selfp)", 1e-12);
    let points = made.coordinates.as_ref().unwrap();
    let wrong = (0..tets).map(|t| x[faces + t] - (1.0 - points[faces + t][0]));
    assert!(largest(wrong) < 1e-10);
    // All of the unit flux passes x = 1/2.
    let flux: f64 = (0..faces).filter(|&f| points[f][0] == 0.5).map(|f| x[f].abs()).sum();
    assert!(flux >= 1.0 - 1e-10);
    let uneven = generate("rt0:3x3x3,contrast=1e6,anisotropy=10").unwrap();
    assert!(asymmetry(&csr(&uneven)) < 1e-14);
}

#[test]
fn porous_bodies_move_rigidly_without_stress() {
    for spec in ["biot2:4x4x4,poisson=0.4", "biot3:4x4x4,storage=0.1"] {
        let made = generate(spec).unwrap();
        let a = csr(&made);
        assert!(asymmetry(&a) < 1e-14, "{spec}");
        let rows = inner(&made, 0.5);
        let turned = apply(&a, &displaced(&made, |[x, y, z]| [1.0 - y + z, x, 2.0 - x]));
        assert!(largest(rows.iter().map(|&i| turned[i])) < 1e-13, "{spec}");
        // The load is the weight, but for what the floor carries.
        let weight: f64 = made.rhs.iter().sum();
        assert!((-1.0..-0.8).contains(&weight), "{spec}: {weight}");
        let schur = matrix(&made, "Sp");
        assert_eq!(schur.rows(), field(&made, "p").unknowns().len());
        assert!(asymmetry(schur) < 1e-14, "{spec}");
        assert!((0..schur.rows()).all(|i| schur.get(i, i) > 0.0), "{spec}");
    }
    // Without flow, the fixed-stress matrix is a multiple of the volume: the sum of its rows.
    let made = generate("biot3:2x2x2,permeability=1e-12,poisson=0.25,storage=0.5").unwrap();
    let schur = matrix(&made, "Sp");
    let all: f64 = apply(schur, &vec![1.0; schur.rows()]).iter().sum();
    // λ = μ = 0.4.
    assert!((all - (0.5 + 1.0 / (0.4 + 0.8 / 3.0))).abs() < 1e-9, "{all}");
}

#[test]
fn iterations_hardly_grow_with_the_mesh() {
    let stokes = format!("split(u: {QUADRATIC}, p: chebyshev(jacobi); schur=upper, S=Mp)");
    iterations(["taylor-hood:2x2x2", "taylor-hood:4x4x4"], &stokes, 45);
    iterations(["taylor-hood:2x2x2,enclosed", "taylor-hood:4x4x4,enclosed"], &stokes, 45);
    let biot = format!("split(u: {QUADRATIC}, p: amg; schur=upper, S=Sp)");
    iterations(["biot2:2x2x2", "biot2:4x4x4"], &biot, 25);
    let biot =
        format!("split(u+w: split(u: {QUADRATIC}, w: ildu; form=diagonal), p: amg; schur=upper, S=Sp)");
    iterations(["biot3:2x2x2", "biot3:4x4x4"], &biot, 70);
}

#[test]
fn other_preconditioners_take_few_iterations() {
    let edges = "symmetric(chebyshev(jacobi; degree=2, low=0.2) then aux(G: amg) then aux(Px: amg) then \
                 aux(Py: amg) then aux(Pz: amg))";
    iterations(["nedelec:4x4x4,mass=1e-4", "nedelec:8x8x8,mass=1e-4"], edges, 12);
    iterations(["nedelec:4x4x4,contrast=1e3", "nedelec:8x8x8,contrast=1e3"], edges, 24);
    iterations(["rt0:4x4x4", "rt0:8x8x8"], "split(w: ildu, p: amg; schur=full, S=selfp)", 24);
    iterations(["twophase:6x6x6", "twophase:12x12x12"], "cpr(p: amg) then ildu", 20);
    let impes = "cpr(p: amg; decouple=impes(acc)) then ildu:cut=whole";
    iterations(["blackoil:6x6x6", "blackoil:12x12x12,injector=pressure,producer=rate"], impes, 15);
    let part = |schur: &str| format!("split(u: ildu:fill=1, p: amg; schur=upper, S={schur})");
    iterations(["oseen:2x2x2", "oseen:4x4x4"], &part("lsc"), 45);
    iterations(["oseen:2x2x2,reynolds=20", "oseen:4x4x4,reynolds=20"], &part("pcd(Fp, Lp, Mp)"), 65);
}

/// Local systems need neither a mass matrix nor a hierarchy, but their iterations grow with the mesh.
#[test]
fn local_systems_solve_stokes() {
    for (spec, precond, most) in [
        ("taylor-hood:4x4x4", "vanka", 130),
        ("taylor-hood:4x4x4", "vanka:kind=full", 70),
        ("rt0:6x6x6,contrast=100", "vanka:kind=full", 150),
    ] {
        let (_, count) = solve(&generate(spec).unwrap(), precond, 1e-8);
        assert!(count <= most, "{spec}, {precond}: {count} iterations, at most {most} expected");
    }
}
