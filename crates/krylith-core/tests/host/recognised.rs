//! Coupled systems that `auto` recognises from the matrix alone: the fields that it finds, and the attempts
//! that use them. Each field is checked against the generator's own, and each x against its own residual.

use crate::conformance::fields::staggered_stokes;
use krylith_core::matrix::{Csr, Dense, KroneckerSum};
use krylith_core::solver::Plan;
use krylith_core::{Field, Options, Problem, Solver};

/// A system with the unknowns of its constraints or pressures.
pub struct Coupled {
    pub a: Csr,
    pub pressures: Vec<u32>,
}

pub fn options(text: &str) -> Options {
    format!("device=cpu threads=1 rtol=1e-8 {text}").parse().unwrap()
}

fn coupled(n: usize, entries: &[(u32, u32, f64)], pressures: impl IntoIterator<Item = usize>) -> Coupled {
    let a = Csr::from_triplets(n, n, entries).unwrap();
    Coupled { a, pressures: pressures.into_iter().map(|i| i as u32).collect() }
}

/// Darcy flow by lowest-order Raviart–Thomas elements on m³ bricks, with a permeability of contrast 10⁴:
/// fluxes on the faces normal to x, y and z, without those on the walls, then pressures.
pub fn darcy(m: usize) -> Coupled {
    let counts = [(m + 1) * m * m, (m - 1) * m * m, (m - 1) * m * m];
    let fluxes: usize = counts.iter().sum();
    let face = |d: usize, cell: [usize; 3], side: usize| {
        let mut at = cell;
        at[d] += side;
        if d > 0 {
            if at[d] == 0 || at[d] == m {
                return None;
            }
            at[d] -= 1;
        }
        let mut sizes = [m; 3];
        sizes[d] = if d == 0 { m + 1 } else { m - 1 };
        let place = at[0] + sizes[0] * (at[1] + sizes[1] * at[2]);
        Some((counts[..d].iter().sum::<usize>() + place) as u32)
    };
    let mut entries = Vec::new();
    for k in 0..m * m * m {
        let cell = [k % m, k / m % m, k / (m * m)];
        let resistance = 10f64.powf(2.0 + 2.0 * (k as f64 * 0.7).sin());
        let p = (fluxes + k) as u32;
        for d in 0..3 {
            let faces = [face(d, cell, 0), face(d, cell, 1)];
            for (s, from) in faces.iter().enumerate() {
                let Some(from) = *from else { continue };
                let out = if s == 0 { -1.0 } else { 1.0 };
                entries.extend([(p, from, -out), (from, p, -out)]);
                for (t, to) in faces.iter().enumerate() {
                    let share = if s == t { 1.0 / 3.0 } else { 1.0 / 6.0 };
                    entries.extend(to.map(|to| (from, to, resistance * share)));
                }
            }
        }
    }
    coupled(fluxes + m * m * m, &entries, fluxes..fluxes + m * m * m)
}

/// Slow flow or displacement in the plane: bilinear elements with d = 2 components on (2m + 1)² nodes, whose
/// first column is fixed as rows of the identity, and bilinear pressures on every second node. The pressure
/// block is −`storage` times its mass matrix. Nodes alternate, or one component follows the other.
pub fn elements(m: usize, storage: f64, alternate: bool) -> Coupled {
    let (fine, coarse) = (2 * m + 1, m + 1);
    let (nodes, pressures) = (fine * fine, coarse * coarse);
    let u = |node: usize, c: usize| (if alternate { 2 * node + c } else { c * nodes + node }) as u32;
    let is_fixed = |node: usize| node % fine == 0;
    // Pressures at a fine node, by bilinear interpolation.
    let around = |node: usize| -> Vec<(u32, f64)> {
        let of =
            |x: usize| if x % 2 == 0 { vec![(x / 2, 1.0)] } else { vec![(x / 2, 0.5), (x / 2 + 1, 0.5)] };
        let (x, y) = (of(node % fine), of(node / fine));
        let pairs = x.iter().flat_map(|(i, a)| y.iter().map(move |(j, b)| (i + coarse * j, a * b)));
        pairs.map(|(k, w)| ((2 * nodes + k) as u32, w)).collect()
    };
    let gauss = [0.5 - 0.5 / 3f64.sqrt(), 0.5 + 0.5 / 3f64.sqrt()];
    let mut entries = Vec::new();
    for cell in 0..4 * m * m {
        let first = cell % (2 * m) + fine * (cell / (2 * m));
        let corners = [first, first + 1, first + fine, first + fine + 1];
        for (x, y) in gauss.iter().flat_map(|x| gauss.map(|y| (*x, y))) {
            let value = [(1.0 - x) * (1.0 - y), x * (1.0 - y), (1.0 - x) * y, x * y];
            let slope = [[y - 1.0, x - 1.0], [1.0 - y, -x], [-y, 1.0 - x], [y, x]];
            for (i, a) in corners.iter().enumerate() {
                for (j, b) in corners.iter().enumerate() {
                    // 2 ε(u) : ε(v), and −q div u.
                    let laplace = slope[i][0] * slope[j][0] + slope[i][1] * slope[j][1];
                    for (c, d) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                        let v = slope[i][d] * slope[j][c] + if c == d { laplace } else { 0.0 };
                        if !is_fixed(*a) && !is_fixed(*b) {
                            entries.push((u(*a, c), u(*b, d), 0.25 * v));
                        }
                    }
                    for (p, w) in around(*b) {
                        for c in (0..2).filter(|_| !is_fixed(*a)) {
                            let v = -0.25 * slope[i][c] * value[j] * w / (2 * m) as f64;
                            entries.extend([(u(*a, c), p, v), (p, u(*a, c), v)]);
                        }
                        let area = 0.25 / (4 * m * m) as f64;
                        for (q, of_q) in around(*a).into_iter().filter(|_| storage > 0.0) {
                            entries.push((q, p, -storage * area * value[i] * value[j] * w * of_q));
                        }
                    }
                }
            }
        }
    }
    let fixed = (0..nodes).filter(|&node| is_fixed(node));
    entries.extend(fixed.flat_map(|node| [0, 1].map(|c| (u(node, c), u(node, c), 1.0))));
    coupled(2 * nodes + pressures, &entries, 2 * nodes..2 * nodes + pressures)
}

/// A step of two incompressible phases on m³ cells, upwinded along x, with unknowns p, s in each cell. Rows
/// are the balances of both phases.
pub fn two_phases(m: usize) -> Coupled {
    let n = m * m * m;
    let mut entries = Vec::new();
    for k in 0..n {
        let cell = [k % m, k / m % m, k / (m * m)];
        let s = 0.3 + 0.3 * (k as f64 * 0.37).sin().abs();
        let mut add = |row: usize, phase: usize, column: usize, unknown: usize, v: f64| {
            entries.push(((2 * row + phase) as u32, (2 * column + unknown) as u32, v));
        };
        for phase in 0..2 {
            let (mobility, slope) =
                if phase == 0 { (s * s, 2.0 * s) } else { ((1.0 - s) * (1.0 - s), 2.0 * s - 2.0) };
            for (d, step) in [1, m, m * m].into_iter().enumerate().filter(|(d, _)| cell[*d] + 1 < m) {
                let through = 10f64.powf(2.0 * ((k * (d + 2)) as f64 * 0.11).sin());
                for (row, sign) in [(k, 1.0), (k + step, -1.0)] {
                    add(row, phase, k, 0, sign * through * mobility);
                    add(row, phase, k + step, 0, -sign * through * mobility);
                    add(row, phase, k, 1, sign * through * slope * 0.2);
                }
            }
            add(k, phase, k, 1, if phase == 0 { 1.0 } else { -1.0 });
            if k % m == m - 1 {
                add(k, phase, k, 0, 1.0);
            }
        }
    }
    coupled(2 * n, &entries, (0..n).map(|k| 2 * k))
}

/// Poroelasticity with three fields on m³ cells: displacements of the cells with three components, the fluxes
/// of [`darcy`], and pressures that store fluid. The last list has the fluxes.
pub fn porous(m: usize) -> (Coupled, Vec<u32>) {
    let flow = darcy(m);
    let (cells, fluxes) = (m * m * m, flow.pressures[0] as usize);
    let solids = 3 * cells;
    let moved = |i: u32| i + solids as u32;
    let mut entries: Vec<(u32, u32, f64)> = (0..flow.a.rows() as u32)
        .flat_map(|i| {
            flow.a.row(i as usize).0.iter().zip(flow.a.row(i as usize).1).map(move |(&j, &v)| (i, j, v))
        })
        .map(|(i, j, v)| (moved(i), moved(j), v))
        .collect();
    for k in 0..cells {
        let p = moved((fluxes + k) as u32);
        entries.push((p, p, -0.05));
        for (d, step) in [1, m, m * m].into_iter().enumerate() {
            let at = k / step % m;
            for (inside, other, sign) in [(at + 1 < m, k + step, 1.0), (at > 0, k.wrapping_sub(step), -1.0)] {
                for (c, e) in (0..9).map(|ce| (ce / 3, ce % 3)) {
                    let v = if c == e { 4.0 } else { 1.0 };
                    entries.push(((3 * k + c) as u32, (3 * k + e) as u32, v));
                    if inside {
                        entries.push(((3 * k + c) as u32, (3 * other + e) as u32, -v));
                    }
                }
                if inside {
                    let u = (3 * other + d) as u32;
                    entries.extend([(p, u, sign), (u, p, sign)]);
                }
            }
        }
    }
    let first = solids + fluxes;
    (coupled(first + cells, &entries, first..first + cells), (solids as u32..first as u32).collect())
}

/// The operator curl curl + `mass` on the edges of m³ cubes, by differences, and its discrete gradient. The
/// signs of edges follow `turned`.
fn curl_curl(m: usize, mass: f64, turned: impl Fn(u32) -> bool) -> (Csr, Csr) {
    let n = m + 1;
    let node = |at: [usize; 3]| (at[0] + n * (at[1] + n * at[2])) as u32;
    // Edges are numbered by directions, then as the nodes where they begin.
    let edge = |at: [usize; 3], d: usize| {
        let size = |c: usize| if c == d { m } else { n };
        (d * m * n * n + at[0] + size(0) * (at[1] + size(1) * at[2])) as u32
    };
    let nodes: Vec<[usize; 3]> = (0..n * n * n).map(|k| [k % n, k / n % n, k / (n * n)]).collect();
    let count = 3 * m * n * n;
    let next = |at: [usize; 3], d: usize| [0, 1, 2].map(|c| at[c] + usize::from(c == d));
    let sign = |k: u32| if turned(k) { -1.0 } else { 1.0 };
    let mut entries: Vec<(u32, u32, f64)> = (0..count as u32).map(|k| (k, k, mass)).collect();
    for &at in &nodes {
        for (d, e) in [(0, 1), (0, 2), (1, 2)].into_iter().filter(|(d, e)| at[*d] < m && at[*e] < m) {
            let around = [
                (edge(at, d), 1.0),
                (edge(next(at, d), e), 1.0),
                (edge(next(at, e), d), -1.0),
                (edge(at, e), -1.0),
            ];
            for (i, v) in around {
                for (j, w) in around {
                    entries.push((i, j, v * w * sign(i) * sign(j)));
                }
            }
        }
    }
    let begins = (0..3).flat_map(|d| nodes.iter().filter(move |at| at[d] < m).map(move |at| (*at, d)));
    let ends = begins.flat_map(|(at, d)| {
        let k = edge(at, d);
        [(k, node(next(at, d)), sign(k)), (k, node(at), -sign(k))]
    });
    let gradient = Csr::from_triplets(count, n * n * n, &ends.collect::<Vec<_>>()).unwrap();
    (Csr::from_triplets(count, count, &entries).unwrap(), gradient)
}

/// A Laplacian on m² nodes, minus a multiple of the identity that varies.
fn grid(m: usize, shift: impl Fn(usize) -> f64) -> Csr {
    let entries = (0..m * m).flat_map(|i| {
        let sides = [(i % m > 0, i.wrapping_sub(1)), (i % m + 1 < m, i + 1), (i >= m, i.wrapping_sub(m))];
        let sides = sides.into_iter().chain([(i + m < m * m, i + m)]).filter(|(inside, _)| *inside);
        let others = sides.map(move |(_, j)| (i as u32, j as u32, -1.0)).collect::<Vec<_>>();
        std::iter::once((i as u32, i as u32, 4.0 - shift(i))).chain(others)
    });
    Csr::from_triplets(m * m, m * m, &entries.collect::<Vec<_>>()).unwrap()
}

/// Returns the fields that a solver has found.
pub fn found(a: &Csr, block: usize) -> Vec<Field> {
    let problem = Problem::csr_in_blocks(a, Some(block)).unwrap();
    Solver::new(problem, &options("")).unwrap().problem().fields().to_vec()
}

/// Asserts that these are the fields of a saddle point, and returns them.
fn assert_saddle(a: &Csr, pressures: &[u32]) -> Vec<Field> {
    let fields = found(a, 1);
    assert_eq!(fields.iter().map(Field::name).collect::<Vec<_>>(), ["u", "p"]);
    let mut wanted = pressures.to_vec();
    wanted.sort_unstable();
    assert_eq!(fields[1].unknowns(), wanted);
    assert_eq!(fields[0].unknowns().len() + wanted.len(), a.rows());
    fields
}

pub fn entries_of(a: &Csr) -> Vec<(u32, u32, f64)> {
    let row = |i: usize| a.row(i).0.iter().zip(a.row(i).1).map(move |(j, v)| (i as u32, *j, *v));
    (0..a.rows()).flat_map(row).collect()
}

/// Returns a permutation that mixes everything: a multiplication by a number prime to n.
fn mixed(n: usize) -> Vec<u32> {
    let step = (7919..).find(|step| gcd(*step, n) == 1).unwrap();
    (0..n).map(|i| (i * step % n) as u32).collect()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns A x.
pub fn times(a: &Csr, x: &[f64]) -> Vec<f64> {
    (0..a.rows()).map(|i| a.row(i).0.iter().zip(a.row(i).1).map(|(&j, v)| v * x[j as usize]).sum()).collect()
}

/// Solves with the attempt of the plan that names the fields, and returns its iterations.
pub fn solved(a: &Csr, block: usize, precond: &str, most: usize) {
    let problem = || Problem::csr_in_blocks(a, Some(block)).unwrap();
    let plan = Plan::of(&problem(), &problem().diagnosis().unwrap(), &options("")).unwrap();
    let names: Vec<String> = plan.attempts.iter().map(|attempt| attempt.precond.to_string()).collect();
    assert!(names.iter().any(|name| name == precond), "{precond} is not in {names:?}");
    let problem = problem().with_fields(found(a, block)).unwrap();
    let mut solver =
        Solver::new(problem, &options(&format!("precond={precond} method=gmres:restart=100"))).unwrap();
    let wanted: Vec<f64> = (0..a.rows()).map(|i| (i as f64 * 0.31).sin()).collect();
    let b = times(a, &wanted);
    let mut x = vec![0.0; a.rows()];
    let solution = solver.solve(&b, &mut x).unwrap();
    let (converged, iterations) = (solution.converged(), solution.history.iterations);
    assert!(converged && iterations <= most, "{precond}: {iterations} iterations");
    assert!(residual(a, &b, &x) <= 1.01e-8, "{precond}");
}

pub fn residual(a: &Csr, b: &[f64], x: &[f64]) -> f64 {
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|v| v * v).sum::<f64>().sqrt();
    norm(&mut times(a, x).iter().zip(b).map(|(ax, b)| b - ax)) / norm(&mut b.iter().copied())
}

const FLUX: &str = "split(u: chebyshev(jacobi), p: amg; schur=upper, S=selfp)";
const POROUS: &str =
    "split(u+w: split(u: amg, w: chebyshev(jacobi); form=diagonal), p: amg; schur=upper, S=selfp)";
const VISCOUS: &str = "split(u: amg, p: jacobi; schur=upper, S=selfp)";

#[test]
fn fluxes_and_pressures_are_found_in_any_order() {
    let Coupled { a, pressures } = darcy(9);
    assert_eq!(assert_saddle(&a, &pressures)[0].block(), 1);
    let new = mixed(a.rows());
    let moved: Vec<u32> = pressures.iter().map(|&p| new[p as usize]).collect();
    assert_saddle(&a.permute(&new).unwrap(), &moved);
}

#[test]
fn nodes_of_velocities_are_found_in_both_orders() {
    for (storage, alternate) in [(0.0, true), (0.0, false), (1.0, true), (1.0, false)] {
        let Coupled { a, pressures } = elements(12, storage, alternate);
        let fields = assert_saddle(&a, &pressures);
        assert_eq!(fields[0].block(), 2, "storage {storage}, alternate {alternate}");
        let nodes = pressures[0] / 2;
        let second = if alternate { 1 } else { nodes };
        assert_eq!(fields[0].unknowns()[..2], [0, second]);
        let new = mixed(a.rows());
        let moved: Vec<u32> = pressures.iter().map(|&p| new[p as usize]).collect();
        assert_saddle(&a.permute(&new).unwrap(), &moved);
    }
}

/// On structured meshes entries cancel: neighbours along an axis have no coupling of different components.
#[test]
fn nodes_are_found_although_entries_cancel() {
    let m = 24usize;
    let mut entries = Vec::new();
    for (x, y) in (0..m * m).map(|i| (i % m, i / m)) {
        let near = (0..9).map(|k| (x as isize + k % 3 - 1, y as isize + k / 3 - 1));
        for (nx, ny) in near.filter(|(nx, ny)| [nx, ny].iter().all(|n| (0..m as isize).contains(n))) {
            let (dx, dy) = (nx - x as isize, ny - y as isize);
            let at = |x: usize, y: usize| 2 * (x + y * m) as u32;
            let (i, j) = (at(x, y), at(nx as usize, ny as usize));
            let own = if i == j { 8.001 } else { -1.0 };
            entries.extend([(i, j, own), (i + 1, j + 1, own)]);
            if dx * dy != 0 || i == j {
                let mixed = if i == j { 1e-3 } else { 0.3 * (dx * dy) as f64 };
                entries.extend([(i, j + 1, mixed), (i + 1, j, mixed)]);
            }
            let p = (2 * m * m + x + y * m) as u32;
            for (c, d) in [dx, dy].into_iter().enumerate().filter(|(_, d)| *d != 0 && dx * dy == 0) {
                entries.extend([(p, j + c as u32, d as f64), (j + c as u32, p, d as f64)]);
            }
        }
    }
    let a = Csr::from_triplets(3 * m * m, 3 * m * m, &entries).unwrap();
    let fields = assert_saddle(&a, &(2 * m as u32 * m as u32..3 * m as u32 * m as u32).collect::<Vec<_>>());
    assert_eq!(fields[0].block(), 2);
}

#[test]
fn displacements_fluxes_and_pressures_are_three_fields() {
    let (Coupled { a, pressures }, fluxes) = porous(9);
    let new = mixed(a.rows());
    let places = |of: &[u32]| {
        let mut places: Vec<u32> = of.iter().map(|&i| new[i as usize]).collect();
        places.sort_unstable();
        places
    };
    let wanted = [fluxes.clone(), pressures.clone()];
    for (a, [fluxes, pressures], block) in
        [(&a, wanted, 3), (&a.permute(&new).unwrap(), [places(&fluxes), places(&pressures)], 1)]
    {
        let fields = found(a, 1);
        assert_eq!(fields.iter().map(Field::name).collect::<Vec<_>>(), ["u", "w", "p"]);
        assert_eq!((fields[0].unknowns().len(), fields[0].block()), (3 * 729, block));
        assert_eq!((fields[1].unknowns(), fields[2].unknowns()), (&fluxes[..], &pressures[..]));
    }
    solved(&a, 1, POROUS, 99);
    // Components that do not couple are no fluxes.
    let stokes = staggered_stokes(32).0;
    assert_eq!(found(&stokes.terms().terms()[0].1.to_csr(), 1).len(), 2);
}

#[test]
fn edge_elements_are_told_and_ask_for_their_gradient() {
    for turned in [|_| false, |k: u32| k * k % 7 < 3] {
        let (a, gradient) = curl_curl(11, 1e-4, turned);
        // The generator is right: A times a gradient is the mass times it.
        let v: Vec<f64> = (0..gradient.columns()).map(|i| (i as f64 * 0.7).sin()).collect();
        let g = times(&gradient, &v);
        assert!(times(&a, &g).iter().zip(&g).all(|(ag, g)| (ag - 1e-4 * g).abs() < 1e-12));
        let problem = Problem::csr(&a).unwrap();
        let plan = Plan::of(&problem, &problem.diagnosis().unwrap(), &options("")).unwrap();
        let said = plan.recognised.unwrap();
        assert!(said.contains("edge elements") && said.contains("discrete gradient"), "{said}");
        assert!(found(&a, 1).is_empty(), "there are no fields");
        let names: Vec<&str> = plan.attempts.iter().map(|attempt| &attempt.name[..]).collect();
        if cfg!(feature = "lu") {
            assert_eq!(names[..2], ["jacobi with cg", "lu:most=300000000 with bicgstab"]);
        }
        let b = times(&a, &(0..a.rows()).map(|i| (i as f64 * 0.31).sin()).collect::<Vec<_>>());
        let mut x = vec![0.0; a.rows()];
        assert!(Solver::new(&a, &options("")).unwrap().solve(&b, &mut x).unwrap().converged());
        assert!(residual(&a, &b, &x) <= 1.01e-8);
    }
    // Diffusion with nearly isolated parts, and with a strong direction.
    let jumps =
        |i: usize, j: usize| if (i % 50 / 3 + i / 150) % 2 == (j % 50 / 3 + j / 150) % 2 { 1e8 } else { 1.0 };
    let strong = |i: usize, j: usize| if i.abs_diff(j) == 1 { 1.0 } else { 1e-4 };
    for weight in [&jumps as &dyn Fn(usize, usize) -> f64, &strong] {
        let a = grid(50, |_| 0.0);
        let mut entries = Vec::new();
        for i in 0..a.rows() {
            let others =
                a.row(i).0.iter().filter(|j| **j as usize != i).map(|j| (*j, weight(i, *j as usize)));
            let others: Vec<(u32, f64)> = others.collect();
            entries.push((i as u32, i as u32, 1e-6 + others.iter().map(|(_, v)| v).sum::<f64>()));
            entries.extend(others.into_iter().map(|(j, v)| (i as u32, j, -v)));
        }
        let problem = Csr::from_triplets(a.rows(), a.rows(), &entries).unwrap();
        let problem = Problem::csr(&problem).unwrap();
        let plan = Plan::of(&problem, &problem.diagnosis().unwrap(), &options("")).unwrap();
        assert_eq!(plan.recognised, None);
    }
}

#[test]
fn a_given_gradient_is_used() {
    let (m, mass) = (11, 1e-4);
    let (a, gradient) = curl_curl(m, mass, |k| k % 3 == 1);
    // A field v is integrated along an edge: half of the sum of both ends, with the sign and in the direction
    // of the edge.
    let edges = a.rows() / 3;
    let part = |d: usize| {
        let entries: Vec<(u32, u32, f64)> = (d * edges..(d + 1) * edges)
            .flat_map(|k| {
                let (ends, signs) = gradient.row(k);
                let sign = if ends[0] < ends[1] { signs[1] } else { signs[0] };
                ends.iter().map(move |&v| (k as u32, v, 0.5 * sign)).collect::<Vec<_>>()
            })
            .collect();
        Csr::from_triplets(a.rows(), gradient.columns(), &entries).unwrap()
    };
    let problem = || {
        let named = [("G", gradient.clone()), ("Px", part(0)), ("Py", part(1)), ("Pz", part(2))];
        named.into_iter().fold(Problem::csr(&a).unwrap(), |problem, (name, matrix)| {
            problem.with_matrix(name, matrix).unwrap()
        })
    };
    let b = times(&a, &(0..a.rows()).map(|i| (i as f64 * 0.31).sin()).collect::<Vec<_>>());
    let mut x = vec![0.0; a.rows()];
    let mut solver = Solver::new(problem(), &options("")).unwrap();
    let solution = solver.solve(&b, &mut x).unwrap();
    assert!(solution.converged() && solution.history.iterations <= 40, "{}", solution.history.iterations);
    assert!(solution.method.to_string().starts_with("cg"), "{}", solution.method);
    assert!(residual(&a, &b, &x) <= 1.01e-8);
}

#[test]
fn signs_of_rows_do_not_matter() {
    let Coupled { a, pressures } = elements(12, 0.0, true);
    let turned: Vec<(u32, u32, f64)> = (0..a.rows())
        .flat_map(|i| a.row(i).0.iter().zip(a.row(i).1).map(move |(&j, &v)| (i as u32, j, v)))
        .map(|(i, j, v)| (i, j, if i >= pressures[0] { -v } else { v }))
        .collect();
    let turned = Csr::from_triplets(a.rows(), a.rows(), &turned).unwrap();
    assert_saddle(&turned, &pressures);
    solved(&turned, 1, VISCOUS, 99);
}

#[test]
fn what_is_no_coupled_system_has_no_fields() {
    let laplace = grid(40, |_| 0.0);
    // Of a Helmholtz kind: the diagonal has both signs, and each block has eigenvalues of both.
    let waves = grid(40, |i| if i % 3 == 0 { 4.5 } else { 2.5 });
    // Zero diagonal entries whose rows couple to each other.
    let ring: Vec<_> = (0..1600).flat_map(|i| [(i, (i + 1) % 1600, 1.0), (i, (i + 7) % 1600, 0.5)]).collect();
    let ring = Csr::from_triplets(1600, 1600, &ring).unwrap();
    for a in [laplace, waves, ring] {
        assert!(found(&a, 1).is_empty());
    }
    let Coupled { a, .. } = elements(12, 0.0, true);
    // An empty row.
    let last = a.rows() - 1;
    let entries: Vec<(u32, u32, f64)> = (0..last)
        .flat_map(|i| a.row(i).0.iter().zip(a.row(i).1).map(move |(&j, &v)| (i as u32, j, v)))
        .filter(|(_, j, _)| (*j as usize) < last)
        .collect();
    assert!(found(&Csr::from_triplets(last + 1, last + 1, &entries).unwrap(), 1).is_empty());
    // A Kronecker sum of it.
    let block = krylith_core::matrix::Bsr::from_csr(&a, 1).unwrap();
    let sum = KroneckerSum::new(Dense::identity(2), Dense::identity(2), 0.1, block.clone(), block).unwrap();
    let solver = Solver::new(&sum, &options("")).unwrap();
    assert!(solver.problem().fields().is_empty());
}

#[test]
fn cells_have_a_pressure() {
    let Coupled { a, pressures } = two_phases(9);
    let fields = found(&a, 2);
    assert_eq!(fields.iter().map(Field::name).collect::<Vec<_>>(), ["p", "s1"]);
    assert_eq!(fields[0].unknowns(), pressures);
    solved(&a, 2, "cpr(p: amg) then ildu", 30);
    // A well at the end, which couples to two cells.
    let n = a.rows() as u32;
    let mut entries = entries_of(&a);
    entries.extend([(n, n, 3.0), (n, 4, -1.0), (n, 8, -1.5), (4, n, -0.5), (8, n, -0.7)]);
    let wells = found(&Csr::from_triplets(n as usize + 1, n as usize + 1, &entries).unwrap(), 1);
    assert_eq!(wells.iter().map(Field::name).collect::<Vec<_>>(), ["p", "s1", "w"]);
    assert_eq!((wells[0].unknowns(), wells[2].unknowns()), (&pressures[..], &[n][..]));
    // Both unknowns of a reaction and diffusion couple in both directions.
    let laplace = grid(30, |_| 0.0);
    let mut entries = Vec::new();
    for i in 0..laplace.rows() {
        for (&j, &v) in laplace.row(i).0.iter().zip(laplace.row(i).1) {
            entries.extend([0, 1].map(|c| (2 * i as u32 + c, 2 * j + c, v)));
        }
        entries.extend([(2 * i as u32, 2 * i as u32 + 1, 0.5), (2 * i as u32 + 1, 2 * i as u32, -0.5)]);
    }
    assert!(found(&Csr::from_triplets(1800, 1800, &entries).unwrap(), 2).is_empty());
}

#[test]
fn attempts_of_auto_take_few_iterations() {
    solved(&darcy(9).a, 1, FLUX, 30);
    for alternate in [true, false] {
        solved(&elements(16, 0.0, alternate).a, 1, VISCOUS, 99);
        solved(&elements(16, 1.0, alternate).a, 1, VISCOUS, 99);
    }
    let staggered = staggered_stokes(32).0;
    solved(&staggered.terms().terms()[0].1.to_csr(), 1, VISCOUS, 99);
}

#[test]
fn auto_uses_them_and_says_so() {
    let a = darcy(12).a;
    let b = times(&a, &vec![1.0; a.rows()]);
    let mut x = vec![0.0; a.rows()];
    let mut solver = Solver::new(&a, &options("")).unwrap();
    let solution = solver.solve(&b, &mut x).unwrap();
    assert!(solution.converged() && solution.history.iterations <= 30, "{}", solution.history.iterations);
    assert_eq!(solution.precond.name, "split");
    let said =
        solution.events.iter().any(|e| e.detail.contains("recognised a saddle point: 5 040 unknowns u"));
    assert!(said, "{:?}", solution.events);
    assert!(residual(&a, &b, &x) <= 1.01e-8);
    // New values of the same pattern.
    solver.update_values(&a.values().iter().map(|v| 2.0 * v).collect::<Vec<_>>()).unwrap();
    x.fill(0.0);
    assert!(solver.solve(&b, &mut x).unwrap().converged());
    let twice: Vec<f64> = x.iter().map(|x| 2.0 * x).collect();
    assert!(residual(&a, &b, &twice) <= 1.01e-8);
}

#[test]
fn names_and_fields_of_the_caller_are_never_overruled() {
    let Coupled { a, pressures } = darcy(9);
    let of = |text: &str| Solver::new(&a, &options(text)).unwrap();
    for text in ["precond=none", "precond=ras", "method=minres"] {
        let solver = of(text);
        assert!(solver.problem().fields().is_empty(), "{text}");
        assert_ne!(solver.solution().precond.name, "split", "{text}");
    }
    let first = pressures[0] as usize;
    let own = vec![Field::range("flux", 0..first), Field::range("head", first..a.rows())];
    let problem = Problem::csr(&a).unwrap().with_fields(own.clone()).unwrap();
    assert_eq!(Solver::new(problem, &options("")).unwrap().problem().fields(), own);
}
