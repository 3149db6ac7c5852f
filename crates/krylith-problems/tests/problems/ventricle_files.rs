//! The ventricle on meshes from files: the same problem as on the generated mesh, and fibres by the rule.

use crate::common::meshes::{Encoding, Form, Temporary, gmsh, gmsh_data, vtu_with};
use crate::common::newton::{newton, noise};
use krylith_problems::nonlinear::by_text;
use krylith_problems::solid::Axes;
use krylith_problems::tets::{TetMesh, file};
use krylith_problems::ventricle::{Ventricle, VentricleOptions, mesh};

const KEYS: &str = "dt=0.005,ramp=0.01,tension=10";

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    (0..3).map(|d| a[d] * b[d]).sum()
}

/// The directions of the generated mesh.
fn generated(cells: usize) -> (TetMesh, Vec<Axes>) {
    let options = VentricleOptions { cells, ..Default::default() };
    (mesh(cells).unwrap(), Ventricle::new(options).unwrap().solid().axes().to_vec())
}

/// Sections of Gmsh with the fields of elements.
fn sections(mesh: &TetMesh, form: Form, fields: &[(&str, Vec<[f64; 3]>)]) -> Vec<u8> {
    let faces: usize = mesh.surfaces().iter().map(|s| s.faces.len()).sum();
    let section = |(name, vectors): &(&str, Vec<[f64; 3]>)| {
        let numbered: Vec<_> = vectors.iter().enumerate().map(|(t, v)| (faces + t + 1, *v)).collect();
        gmsh_data(form, "ElementData", name, &numbered)
    };
    fields.iter().flat_map(section).collect()
}

#[test]
fn a_file_is_the_generated_problem() {
    let (mesh, axes) = generated(800);
    let fields = [("Fibre", 0, 3.0), ("sheet", 1, -0.5)]
        .map(|(name, k, scale)| (name, axes.iter().map(|own| own[k].map(|x| scale * x)).collect::<Vec<_>>()));
    let mut own = by_text(&format!("ventricle:800,{KEYS}")).unwrap();
    let u: Vec<f64> = noise(own.initial().len(), 1).iter().map(|x| 0.02 * x).collect();
    let mut wanted = vec![f64::NAN; u.len()];
    own.residual(&u, &mut wanted).unwrap();
    let mut solution = own.initial();
    let norms = newton(&mut *own, &mut solution, 1e-10, 12);
    assert!(norms[norms.len() - 1] <= 1e-10 * norms[0], "{norms:?}");
    let largest = |v: &[f64]| v.iter().fold(0.0f64, |m, x| m.max(x.abs()));

    let mut files = Vec::new();
    for (version, form) in [(2, Form::Text), (2, Form::Little), (4, Form::Big), (4, Form::Text)] {
        let bytes = [gmsh(&mesh, version, form), sections(&mesh, form, &fields)].concat();
        files.push((format!("{version}-{form:?}.msh"), bytes, KEYS.to_string()));
    }
    let named = format!("{KEYS},base=7,endocardium=5,epicardium=6");
    for encoding in [Encoding::Ascii, Encoding::AppendedRaw] {
        let bytes =
            vtu_with(&mesh, encoding, Form::Little, [("CellData", &fields[..]), ("PointData", &[][..])]);
        files.push((format!("{encoding:?}.vtu"), bytes, named.clone()));
    }
    for (case, bytes, keys) in files {
        let written = Temporary::new(&case, &bytes);
        let mut read = by_text(&format!("ventricle:{},{keys}", written.name()))
            .unwrap_or_else(|e| panic!("{case}: {e}"));
        let mut f = vec![f64::NAN; u.len()];
        read.residual(&u, &mut f).unwrap();
        let far = f.iter().zip(&wanted).fold(0.0f64, |m, (a, b)| m.max((a - b).abs()));
        assert!(far < 1e-13 * largest(&wanted), "{case}: {far} of {}", largest(&wanted));
        // It is solved once, because the residuals agree.
        if case.ends_with("vtu") {
            let mut x = read.initial();
            newton(&mut *read, &mut x, 1e-10, 12);
            let far = x.iter().zip(&solution).fold(0.0f64, |m, (a, b)| m.max((a - b).abs()));
            assert!(far < 1e-9 * largest(&solution), "{case}: {far} of {}", largest(&solution));
        }
        assert_eq!(by_text(read.spec()).unwrap().spec(), read.spec(), "{case}");
    }
}

/// Directions of nodes may point either way.
#[test]
fn directions_of_nodes_are_averaged() {
    let mesh = mesh(800).unwrap();
    let around = |x: &[f64; 3]| {
        let length = x[0].hypot(x[1]);
        if length > 0.0 { [-x[1] / length, x[0] / length, 0.0] } else { [1.0, 0.0, 0.0] }
    };
    let sign = |i: usize| if i % 3 == 0 { -2.0 } else { 1.0 };
    let vectors: Vec<[f64; 3]> =
        mesh.points().iter().enumerate().map(|(i, x)| around(x).map(|v| sign(i) * v)).collect();
    let numbered: Vec<_> = vectors.iter().enumerate().map(|(i, v)| (3 * i + 2, *v)).collect();
    let msh = [gmsh(&mesh, 4, Form::Big), gmsh_data(Form::Big, "NodeData", "fiber", &numbered)].concat();
    let nodes = [("fiber", vectors.clone())];
    let vtu = vtu_with(&mesh, Encoding::Base64, Form::Little, [("CellData", &[]), ("PointData", &nodes)]);
    for bytes in [msh, vtu] {
        let (read, found) = file::parse_with_directions("heart", &bytes, &["fiber", "sheet"]).unwrap();
        assert_eq!((read.points(), found.len()), (mesh.points(), 1));
        for (t, own) in read.tetrahedra().iter().zip(&found[0].vectors) {
            assert!((dot(*own, *own) - 1.0).abs() < 1e-14);
            // Away from the axis, corners point nearly alike.
            let x: [f64; 3] = [0, 1, 2].map(|d| t.iter().map(|&p| read.points()[p as usize][d] / 4.0).sum());
            if x[0].hypot(x[1]) > 5.0 {
                assert!(dot(*own, around(&x)).abs() > 0.97, "at {x:?}: {own:?}");
            }
        }
    }
    // A file without a direction for a tetrahedron.
    let few = gmsh_data(Form::Text, "NodeData", "fiber", &numbered[1..]);
    let bytes = [gmsh(&mesh, 2, Form::Text), few].concat();
    let error = file::parse_with_directions("heart.msh", &bytes, &["fiber"]).unwrap_err().to_string();
    assert!(error.contains("the field `fiber` has no direction at tetrahedron"), "{error}");
    assert_eq!(file::parse("heart.msh", &bytes).unwrap().points(), mesh.points());
}

/// The mean angle in degrees between directions, over all tetrahedra.
fn angle(a: &[Axes], b: &[Axes], which: usize) -> f64 {
    let of = |(a, b): (&Axes, &Axes)| dot(a[which], b[which]).abs().min(1.0).acos().to_degrees();
    a.iter().zip(b).map(of).sum::<f64>() / a.len() as f64
}

#[test]
fn the_rule_gives_the_fibres_of_the_ellipsoid() {
    let (mesh, axes) = generated(6000);
    let by_rule = |mesh: TetMesh| {
        let ventricle = Ventricle::on_mesh(mesh, None, VentricleOptions::default()).unwrap();
        ventricle.solid().axes().to_vec()
    };
    let ruled = by_rule(mesh.clone());
    for own in &ruled {
        assert!((dot(own[0], own[0]) - 1.0).abs() < 1e-12 && (dot(own[1], own[1]) - 1.0).abs() < 1e-12);
        assert!(dot(own[0], own[1]).abs() < 1e-12);
    }
    let [fibres, sheets] = [0, 1].map(|k| angle(&ruled, &axes, k));
    // The harmonic depth is not linear across a curved wall.
    assert!(fibres < 7.0 && sheets < 3.0, "fibres differ by {fibres}° and sheets by {sheets}°");
    // The rule does not depend on the place of the ventricle.
    let turned = |x: [f64; 3]| [x[1], x[2], x[0]];
    let points = mesh.points().iter().map(|x| turned(*x).map(|x| x + 40.0)).collect();
    let moved = TetMesh::new(points, mesh.tetrahedra().to_vec(), mesh.surfaces().to_vec()).unwrap();
    let expected: Vec<Axes> = ruled.iter().map(|own| own.map(turned)).collect();
    let moved = by_rule(moved);
    for k in [0, 1] {
        assert!(angle(&moved, &expected, k) < 1e-3, "{k}: {}°", angle(&moved, &expected, k));
    }
}

#[test]
fn numberings_change_only_the_order() {
    let rows = |numbering: &str| {
        let text = format!("ventricle:800,{KEYS},pressure=3000,numbering={numbering}");
        let mut problem = by_text(&text).unwrap();
        let points = problem.points();
        let u: Vec<f64> = points.iter().flat_map(|x| x.map(|x| 0.02 * (3.0 * x).sin())).collect();
        let mut f = vec![f64::NAN; u.len()];
        problem.residual(&u, &mut f).unwrap();
        let mut rows: Vec<([f64; 3], [f64; 3])> =
            points.iter().zip(f.as_chunks::<3>().0).map(|(x, f)| (*x, *f)).collect();
        rows.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap());
        (points, rows)
    };
    let (points, wanted) = rows("file");
    let largest = wanted.iter().flat_map(|row| row.1).fold(0.0f64, |m, x| m.max(x.abs()));
    for numbering in ["natural", "random:3", "rcm"] {
        let (other, found) = rows(numbering);
        assert_ne!(other, points, "{numbering}");
        for (a, b) in found.iter().zip(&wanted) {
            assert_eq!(a.0, b.0, "{numbering}");
            let far = (0..3).fold(0.0f64, |m, d| m.max((a.1[d] - b.1[d]).abs()));
            assert!(far < 1e-12 * largest, "{numbering}: {far} of {largest}");
        }
    }
}

#[test]
fn what_a_file_lacks_is_named() {
    let (mesh, axes) = generated(100);
    let plain = gmsh(&mesh, 2, Form::Text);
    let text = String::from_utf8(plain.clone()).unwrap();
    let sheets: Vec<[f64; 3]> = axes.iter().map(|own| own[1]).collect();
    let only_sheets = [plain.clone(), sections(&mesh, Form::Text, &[("sheet", sheets)])].concat();
    let flat = String::from_utf8(only_sheets.clone())
        .unwrap()
        .replace("\"sheet\"\n1\n0.5\n3\n0\n3", "\"sheet\"\n1\n0.5\n3\n0\n2");
    let named = "it has endocardium, epicardium, base";
    for (name, bytes, keys, words) in [
        (
            "base",
            text.replace("\"base\"", "\"lid\"").into_bytes(),
            "",
            "no surface `base*`; it has endocardium, epicardium, lid; name the surfaces of the base by base=NAME",
        ),
        ("inside", plain.clone(), ",endocardium=inside", "no surface `inside`; "),
        ("outside", plain.clone(), ",epicardium=pericard", "by epicardium=NAME"),
        ("list", plain.clone(), ",epicardium=pericard", named),
        ("sheets", only_sheets, "", "a field of sheets without one of fibres; add the field `fibre`"),
        ("plane", flat.into_bytes(), "", "the field `sheet` has 2 components; expected 3"),
    ] {
        let written = Temporary::new(&format!("{name}.msh"), &bytes);
        let error =
            by_text(&format!("ventricle:{},steps=1{keys}", written.name())).err().expect(name).to_string();
        assert!(error.contains(words), "{name}: {error}");
    }
}
