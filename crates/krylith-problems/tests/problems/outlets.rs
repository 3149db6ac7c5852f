//! Several outlets of an artery: resistances, Windkessel models, and an inflow from a file.

use crate::common::meshes::{Form, boundary, gmsh};
use crate::common::newton::{jacobian_error, newton, noise};
use krylith_problems::DuctMesh;
use krylith_problems::artery::{Artery, ArteryOptions, InflowCurve, Windkessel};
use krylith_problems::nonlinear::{NonlinearProblem, by_text};
use krylith_problems::tets::{Surface, TetMesh};
use std::collections::HashMap;

/// Edge of a cell in cm.
const H: f64 = 0.1;

/// A pipe along x with a branch to each side: cells of a grid, of six tetrahedra each, with the surfaces
/// `inlet`, `wall`, `outlet ahead`, `outlet left` and `outlet right`.
fn forked() -> TetMesh {
    let (size, mut cells) = ([6, 8, 2], Vec::new());
    for (x, y, z) in (0..6).flat_map(|x| (0..8).flat_map(move |y| (0..2).map(move |z| (x, y, z)))) {
        if (3..5).contains(&y) || (2..4).contains(&x) {
            cells.push([x, y, z]);
        }
    }
    let grid = DuctMesh::new(size.map(|n| n + 1), size.map(|n| n as f64 * H)).unwrap();
    let of_grid = grid.tetrahedra();
    let (mut number, mut points, mut tetrahedra) = (HashMap::new(), Vec::new(), Vec::new());
    for [x, y, z] in cells {
        let cell = (z * size[1] + y) * size[0] + x;
        for t in &of_grid[6 * cell..][..6] {
            tetrahedra.push(t.map(|p| {
                *number.entry(p).or_insert_with(|| {
                    points.push(grid.coordinate(p as usize));
                    points.len() as u32 - 1
                })
            }));
        }
    }
    let names = ["inlet", "wall", "outlet ahead", "outlet left", "outlet right"];
    let mut surfaces = names.map(|name| Surface { name: name.into(), faces: Vec::new() });
    for face in boundary(&tetrahedra) {
        let on = |d: usize, at: f64| face.iter().all(|&p| (points[p as usize][d] - at).abs() < 1e-9);
        let ends = [(0, on(0, 0.0)), (2, on(0, 6.0 * H)), (3, on(1, 0.0)), (4, on(1, 8.0 * H))];
        let which = ends.iter().find(|(_, is)| *is).map_or(1, |(which, _)| *which);
        surfaces[which].faces.push(face);
    }
    TetMesh::new(points, tetrahedra, surfaces.into()).unwrap()
}

fn resistors(all: [f64; 3]) -> Vec<Windkessel> {
    all.map(|resistance| Windkessel { resistance, ..Windkessel::default() }).to_vec()
}

/// The flows through the outlets are those of the figures, in their order.
fn flows(artery: &Artery, x: &[f64]) -> [f64; 4] {
    let figures = artery.figures(x);
    assert_eq!(figures[1].0, "flow out through outlet ahead");
    std::array::from_fn(|k| figures[k].1)
}

/// The pressure of outlet k, which follows the nodes of the mesh.
fn pressure(artery: &Artery, x: &[f64], k: usize) -> f64 {
    x[4 * (artery.points().len() + k) + 3]
}

#[test]
fn resistances_share_the_flow() {
    let curve = InflowCurve::parse("flow.txt", b"0 0\n0.02 0.4\n1 0.4\n").unwrap();
    let resistances = [2e5, 4e5, 1e5];
    let options = ArteryOptions {
        dt: 0.01,
        steps: 4,
        inflow: Some(curve.clone()),
        outlets: resistors(resistances),
        ..ArteryOptions::default()
    };
    let mut artery = Artery::new(forked(), options).unwrap();
    let mut x = artery.initial();
    assert_eq!(x.len(), 4 * (artery.points().len() + 3));
    for step in 1..=4 {
        let norms = newton(&mut artery, &mut x, 1e-11, 10);
        assert!(norms[norms.len() - 1] <= 1e-11 * norms[0], "step {step}: {norms:?}");
        let [inflow, outflows @ ..] = flows(&artery, &x);
        let expected = curve.at(artery.time().unwrap());
        assert!((inflow - expected).abs() < 1e-10, "step {step}: {inflow} for {expected}");
        let sum: f64 = outflows.iter().sum();
        assert!((sum - inflow).abs() < 1e-8 * inflow, "step {step}: {outflows:?} for {inflow}");
        for (k, (q, r)) in outflows.iter().zip(resistances).enumerate() {
            let p = pressure(&artery, &x, k);
            assert!((p - r * q).abs() < 1e-6 * p.abs(), "step {step}, outlet {k}: {p} for {}", r * q);
            // The traction −P n is imposed weakly: with two cells across, the pressure has its mean nearly.
            let mean = artery.figures(&x)[4 + k].1;
            assert!((mean / p - 1.0).abs() < 0.05, "step {step}, outlet {k}: {mean} for {p}");
        }
        // The resistances dominate friction and inertia in the pipe.
        let ratio = outflows[2] / outflows[1];
        assert!((ratio / 4.0 - 1.0).abs() < 0.1, "step {step}: {ratio}");
        assert_eq!(artery.next_step(&mut x).unwrap(), step < 4);
    }
    let (shown, _) = artery.fields(&x).swap_remove(1);
    assert_eq!((shown, artery.coordinates_len()), ("pressure", artery.points().len() + 3));
}

trait Coordinates {
    fn coordinates_len(&self) -> usize;
}

impl Coordinates for Artery {
    fn coordinates_len(&self) -> usize {
        krylith_core::newton::NonlinearSystem::coordinates(self).unwrap().len()
    }
}

/// C dπ/dt = Q − π/D by the backward differences of the flow, and P = R Q + π.
#[test]
fn a_windkessel_stores_blood() {
    let model = Windkessel { resistance: 500.0, compliance: 1e-5, distal: 8000.0 };
    let outlets = vec![model, Windkessel::default(), Windkessel { resistance: 1e4, ..Windkessel::default() }];
    let inflow = InflowCurve::parse("flow.txt", b"0 0\n0.05 0.5\n1 0.1\n").ok();
    let options = ArteryOptions { dt: 0.01, steps: 6, inflow, outlets, ..ArteryOptions::default() };
    let mut artery = Artery::new(forked(), options).unwrap();
    let mut x = artery.initial();
    let mut stored = [0.0, 0.0]; // π at the last two times
    for step in 1..=6 {
        newton(&mut artery, &mut x, 1e-11, 10);
        let [inflow, ahead, left, right] = flows(&artery, &x);
        assert!((ahead + left + right - inflow).abs() < 1e-8 * inflow);
        let now = pressure(&artery, &x, 0) - model.resistance * ahead;
        let rate = match step {
            1 => (now - stored[0]) / 0.01,
            _ => (1.5 * now - 2.0 * stored[0] + 0.5 * stored[1]) / 0.01,
        };
        let residual = model.compliance * rate - ahead + now / model.distal;
        assert!(residual.abs() < 1e-8 * ahead.abs().max(1e-3), "step {step}: {residual} for {ahead}");
        // The third outlet is the second with a pressure.
        assert!((pressure(&artery, &x, 1) - 1e4 * right).abs() < 1e-6 * (1e4 * right).abs());
        stored = [now, stored[0]];
        artery.next_step(&mut x).unwrap();
    }
}

#[test]
fn the_jacobian_has_the_outlets() {
    let options = ArteryOptions { dt: 0.01, outlets: resistors([3.0, 5.0, 0.5]), ..ArteryOptions::default() };
    let mut artery = Artery::new(forked(), options).unwrap();
    let n = artery.initial().len();
    for seed in 5..8 {
        let x: Vec<f64> = noise(n, seed).iter().map(|x| 20.0 * x).collect();
        let error = jacobian_error(&mut artery, &x, &noise(n, seed + 10), 1e-3);
        assert!(error < 1e-8, "direction {seed}: {error}");
    }
}

#[test]
fn texts_name_outlets_and_curves() {
    let folder = std::env::temp_dir().join(format!("krylith-outlets-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (mesh, curve) = (folder.join("forked.msh"), folder.join("flow.txt"));
    std::fs::write(&mesh, gmsh(&forked(), 4, Form::Little)).unwrap();
    std::fs::write(&curve, "0 0\n0.02 0.4\n1 0.4\n").unwrap();
    let text = |more: &str| format!("artery:{}{more}", mesh.display());
    let keys = format!(",inflow={},resistance=2e4+4e4+1e4,dt=0.01,numbering=rcm", curve.display());
    let mut artery = by_text(&text(&keys)).unwrap();
    let again = by_text(artery.spec()).unwrap();
    assert_eq!((artery.spec(), artery.points()), (again.spec(), again.points()));
    let mut x = artery.initial();
    newton(&mut *artery, &mut x, 1e-10, 10);
    let figures = artery.figures(&x);
    let value = |name: &str| figures.iter().find(|(n, _)| n == name).unwrap().1;
    let inflow = value("flow in through inlet");
    assert!((inflow - 0.2).abs() < 1e-10, "{figures:?}");
    let out: f64 =
        ["ahead", "left", "right"].iter().map(|n| value(&format!("flow out through outlet {n}"))).sum();
    assert!((out - inflow).abs() < 1e-8);
    for (more, named) in [
        (",resistance=1+2", "2 models for 3 outlets; give one for each, or one for all"),
        (",resistance=-1", "resistance=-1: expected numbers of at least 0, joined by +"),
        (",resistance=1+2+3,distal=1+2", "distal=1+2: expected one number, or 3 as for other keys"),
        (",outlet=outlet left", "belong neither to the inlet nor to the wall nor to an outlet"),
        (",inflow=no/such.txt", "no/such.txt"),
    ] {
        let message = by_text(&text(more)).err().expect(named).to_string();
        assert!(message.contains(named), "{more}: {message}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
    for (bytes, named) in [
        (&b"0 1\n1 x\n"[..], "flow.txt:2: `1 x`: expected a time in s and a flow"),
        (b"0 1 2\n", "flow.txt:1"),
        (b"0 1\n0 2\n", "flow.txt:2: the time 0 follows 0; times must ascend"),
        (b"0 1\n# end\n", "fewer than two lines"),
        (b"0 1\n1 inf\n", "flow.txt:2"),
        (b"\xff\n", "not text"),
    ] {
        let message = InflowCurve::parse("flow.txt", bytes).unwrap_err().to_string();
        assert!(message.contains(named), "{message}");
    }
}
