//! Stokes flow on a mesh from a file: on the mesh of a duct it is the flow in the duct, in any numbering.

use crate::common::meshes::{Encoding, Form, Temporary, duct, gmsh, vtu};
use crate::common::{apply, lu::Lu};
use krylith_core::matrix::Butcher;
use krylith_problems::tets::NodeOrder;
use krylith_problems::{
    BodyOptions, InletRamp, StokesBody, StokesDuct, StokesOptions, StokesProblem, SystemKind, generate,
    generate_rows,
};
use std::sync::Arc;

const NODES: [usize; 3] = [4, 3, 4];

fn body(order: NodeOrder) -> StokesBody {
    let mesh = duct(NODES, 2.0).ordered(order).unwrap();
    StokesBody::with_data(mesh, BodyOptions::default(), Arc::new(InletRamp::default())).unwrap()
}

#[test]
fn a_mesh_of_the_duct_gives_its_matrices() {
    let whole = StokesDuct::new(StokesOptions { nodes: NODES, length: 2.0, ..Default::default() }).unwrap();
    let body = body(NodeOrder::File);
    let (found, expected) = (body.options().scale.unwrap(), whole.options().scale.unwrap());
    assert!((found / expected - 1.0).abs() < 1e-12, "{found} for {expected}");
    for (name, a, b) in [("M", &body.mass, &whole.mass), ("L", &body.stiffness, &whole.stiffness)] {
        assert_eq!((a.row_ptr(), a.col()), (b.row_ptr(), b.col()), "{name}");
        let largest = b.values().iter().fold(0.0f64, |most, v| most.max(v.abs()));
        for (k, (a, b)) in a.values().iter().zip(b.values()).enumerate() {
            assert!((a - b).abs() < 1e-13 * largest, "{name}, value {k}: {a} for {b}");
        }
        // Kernels rely on numbers that are equal in every block.
        assert!(a.values().chunks(16).all(|b| b[0] == b[5] && b[0] == b[10] && b[1] == 0.0), "{name}");
    }
}

/// Marches three steps by a direct solver.
fn march(system: &krylith_core::matrix::KroneckerSum, steps: &mut krylith_problems::StokesSteps) -> Vec<f64> {
    let lu = Lu::new(&system.assemble().to_csr());
    let mut u = vec![0.0; system.m.rows()];
    let mut rhs = vec![f64::NAN; system.rows()];
    for n in 0..3 {
        steps.rhs_into(n as f64 * steps.tau(), &u, &mut rhs).unwrap();
        lu.solve(&mut rhs);
        steps.advance(&rhs, &mut u).unwrap();
    }
    u
}

#[test]
fn numberings_give_the_same_flow() {
    let butcher = Butcher::by_name("radau-iia-2").unwrap();
    let whole = StokesDuct::new(StokesOptions { nodes: NODES, length: 2.0, ..Default::default() }).unwrap();
    let expected = march(&whole.kronecker(&butcher, 0.1).unwrap(), &mut whole.steps(&butcher, 0.1).unwrap());
    for order in [NodeOrder::File, NodeOrder::Natural, NodeOrder::Random(1), NodeOrder::Rcm] {
        let body = body(order);
        let u = march(&body.kronecker(&butcher, 0.1).unwrap(), &mut body.steps(&butcher, 0.1).unwrap());
        for (i, x) in body.mesh.points().iter().enumerate() {
            let j = whole.mesh.coordinates().iter().position(|y| y == x).unwrap();
            for c in 0..4 {
                let (a, b) = (u[4 * i + c], expected[4 * j + c]);
                assert!((a - b).abs() < 1e-11, "{order:?}, node {i}, component {c}: {a} for {b}");
            }
        }
    }
}

/// A traction (ν∇u − pI)n at the outlet is integrated as on the duct.
#[test]
fn tractions_are_those_of_the_duct() {
    struct Pulled;
    impl krylith_problems::DuctData for Pulled {
        fn velocity_rate(&self, [x, y, _]: [f64; 3], t: f64) -> [f64; 3] {
            if x == 0.0 { [y * (1.0 - y) * t, 0.0, 0.0] } else { [0.0; 3] }
        }
        fn has_sources(&self) -> bool {
            true
        }
        fn force(&self, [x, y, z]: [f64; 3], t: f64) -> [f64; 3] {
            [x * t, y, z]
        }
        fn traction(&self, [_, y, z]: [f64; 3], t: f64) -> [f64; 3] {
            [1.0 + y * t, z, -0.5]
        }
    }
    let butcher = Butcher::by_name("gauss-2").unwrap();
    let options = StokesOptions { nodes: NODES, length: 2.0, ..Default::default() };
    let whole = StokesDuct::with_data(options, Arc::new(Pulled)).unwrap();
    let body = StokesBody::with_data(duct(NODES, 2.0), BodyOptions::default(), Arc::new(Pulled)).unwrap();
    let u: Vec<f64> = (0..whole.mass.rows()).map(|i| (i as f64).sin()).collect();
    let [a, b] =
        [whole.steps(&butcher, 0.1).unwrap(), body.steps(&butcher, 0.1).unwrap()].map(|mut steps| {
            let mut rhs = vec![f64::NAN; 2 * u.len()];
            steps.rhs_into(0.3, &u, &mut rhs).unwrap();
            rhs
        });
    assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-13), "{a:?}\n{b:?}");
}

#[test]
fn texts_name_mesh_files() {
    let mesh = duct(NODES, 2.0);
    let file = Temporary::new("duct.msh", &gmsh(&mesh, 4, Form::Little));
    let tagged = Temporary::new("duct.vtu", &vtu(&mesh, Encoding::AppendedRaw, Form::Little));
    let text = format!("stokes:{},numbering=random:5,tau=0.25", file.name());
    let made = generate(&text).unwrap();
    assert_eq!(made, generate(&made.spec).unwrap(), "{}", made.spec);
    assert!(
        made.spec.ends_with("inlet=inlet*,wall=wall*,outlet=outlet*,numbering=random:5"),
        "{}",
        made.spec
    );
    assert!(!made.spec.contains("length=") && krylith_problems::reads_mesh(&made.spec));
    assert_eq!((made.grid, made.tetrahedra.len()), (None, mesh.tetrahedra().len()));
    let named = format!("stokes:{},inlet=5,wall=6,outlet=7,numbering=random:5,tau=0.25", tagged.name());
    assert_eq!(made.system, generate(&named).unwrap().system);

    // Every rank has some of the rows.
    let SystemKind::Kronecker(k) = &made.system else { panic!() };
    let parts: Vec<_> = (0..3).map(|rank| generate_rows(&text, rank, 3).unwrap()).collect();
    let values = |term: usize| -> Vec<f64> {
        parts.iter().flat_map(|p| p.rows.terms[term].1.values.iter().copied()).collect()
    };
    assert!(values(0) == k.m.values() && values(1) == k.l.values());
    assert_eq!(parts.iter().flat_map(|p| p.rhs.clone()).collect::<Vec<_>>(), made.rhs);

    // The parabola is 1 in the middle of the inlet at t = ramp, and outside the body the picture is empty.
    let mut flow = StokesProblem::by_text(&text).unwrap();
    let mut solved = made.rhs.clone();
    Lu::new(&flow.system().assemble().to_csr()).solve(&mut solved);
    let residual = apply(&flow.system().assemble(), &solved);
    assert!(residual.iter().zip(&made.rhs).all(|(a, b)| (a - b).abs() < 1e-10));
    let mut u = vec![0.0; flow.system().m.rows()];
    flow.steps().advance(&solved, &mut u).unwrap();
    let [pictured, shown] = [
        flow.domain().picture(0.25, &u).unwrap(),
        krylith_problems::picture(&made.spec, &solved).unwrap().unwrap(),
    ];
    assert!(pictured.title.contains("t = 0.25") && pictured.columns > 2 * pictured.rows - 9);
    let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-12 || (a.is_nan() && b.is_nan());
    assert!(pictured.values.iter().zip(&shown.values).all(near));
}

#[test]
fn what_is_wrong_is_named() {
    let mut mesh = duct(NODES, 2.0);
    let short = {
        let mut surfaces = mesh.surfaces().to_vec();
        surfaces[1].faces.truncate(10);
        krylith_problems::tets::TetMesh::new(mesh.points().to_vec(), mesh.tetrahedra().to_vec(), surfaces)
    };
    let short = Temporary::new("short.msh", &gmsh(&short.unwrap(), 2, Form::Text));
    mesh = duct([3, 2, 3], 1.0); // without a free node at the outlet
    let narrow = Temporary::new("narrow.msh", &gmsh(&mesh, 2, Form::Text));
    let file = Temporary::new("good.msh", &gmsh(&duct(NODES, 2.0), 2, Form::Text));
    for (text, named) in [
        (format!("stokes:{}", short.name()), "others belong neither to the inlet nor to the wall"),
        (format!("stokes:{}", narrow.name()), "nothing fixes the pressure"),
        (format!("stokes:{},outlet=out", file.name()), "no surface `out`; it has inlet, wall, outlet"),
        (format!("stokes:{},outlet=outlet+wall", file.name()), "is in two parts of the boundary"),
        (format!("stokes:{},numbering=best", file.name()), "numbering: `best`: expected file, natural"),
        (format!("stokes:{},nu=0", file.name()), "nu=0: expected a positive number"),
        ("stokes:no/such.msh".into(), "no/such.msh"),
        ("laplace:4x4x4".into(), "problem `laplace` has no steps in time; stokes has"),
    ] {
        let message = StokesProblem::by_text(&text).err().expect(named).to_string();
        assert!(message.contains(named), "`{text}`: {message}");
    }
}
