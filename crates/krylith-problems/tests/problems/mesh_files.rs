//! Mesh files: every format gives the same mesh, and damaged files give errors.

use crate::common::meshes::{Encoding, Form, duct, gmsh, vtu};
use krylith_problems::tets::{NodeOrder, TetMesh, file};

const FORMS: [Form; 3] = [Form::Text, Form::Little, Form::Big];
const ENCODINGS: [Encoding; 4] =
    [Encoding::Ascii, Encoding::Base64, Encoding::AppendedBase64, Encoding::AppendedRaw];

fn files(mesh: &TetMesh) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for form in FORMS {
        for version in [2, 4] {
            all.push((format!("Gmsh {version}, {form:?}"), gmsh(mesh, version, form)));
        }
        for encoding in ENCODINGS {
            all.push((format!("VTU, {encoding:?}, {form:?}"), vtu(mesh, encoding, form)));
        }
    }
    all
}

#[test]
fn every_format_gives_the_same_mesh() {
    let mesh = duct([3, 4, 3], 2.0);
    for (case, bytes) in files(&mesh) {
        let read = file::parse("mesh", &bytes).unwrap_or_else(|e| panic!("{case}: {e}"));
        assert_eq!((read.points(), read.tetrahedra()), (mesh.points(), mesh.tetrahedra()), "{case}");
        for (k, (read, own)) in read.surfaces().iter().zip(mesh.surfaces()).enumerate() {
            let name = if case.starts_with("VTU") { format!("surface {}", k + 5) } else { own.name.clone() };
            assert_eq!((&read.name, &read.faces), (&name, &own.faces), "{case}");
        }
    }
}

/// A prefix of a file, and a file with wrong bytes, is an error or a mesh, and never a panic.
#[test]
fn damaged_files_are_errors() {
    let mesh = duct([2, 3, 2], 1.0);
    for (case, bytes) in files(&mesh) {
        for end in (0..bytes.len()).step_by(7) {
            // The last lines of a file may be missing.
            if let Ok(read) = file::parse("mesh", &bytes[..end]) {
                assert!(read.volume() > 0.0 && end + 40 > bytes.len(), "{case}: {end} of {}", bytes.len());
            }
        }
        let mut state = 1u64;
        for _ in 0..300 {
            let mut bytes = bytes.clone();
            for _ in 0..3 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (state >> 33) as usize % bytes.len();
                bytes[at] = (state >> 20) as u8;
            }
            if let Ok(read) = file::parse("mesh", &bytes) {
                assert!(read.volume() > 0.0, "{case}");
            }
        }
    }
}

/// Counts in a header that a file cannot hold are refused before memory is allocated.
#[test]
fn what_is_wrong_is_named() {
    let mesh = duct([2, 3, 2], 1.0);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let ascii = text(vtu(&mesh, Encoding::Ascii, Form::Little));
    for (from, to, named) in [
        ("NumberOfPoints='12'", "NumberOfPoints='99999999999'", "do not fit in a file of"),
        ("NumberOfPoints='12'", "NumberOfPoints='many'", "mesh.vtu:4: NumberOfPoints is `many`"),
        ("NumberOfPoints='12'", "NumberOfPoints='11'", "36 coordinates of points; expected 33"),
        ("NumberOfCells='", "NumberOfCells='1", "expected one each"),
        ("type=\"UnstructuredGrid\"", "type=\"PolyData\"", "save the mesh as an UnstructuredGrid (.vtu)"),
        (
            "header_type=",
            "compressor=\"vtkZLibDataCompressor\" header_type=",
            "save the mesh without compression",
        ),
        ("<Cells>", "<Celle>", "no array types in <Cells>"),
        ("\n5 5 5 ", "\n5 9 5 ", "cell 1 has the type 9; linear tetrahedra (10) and triangles (5) are read"),
        ("\n3 6 9 ", "\n3 6 5 ", "cell 2 ends at 5; expected 6 to"),
        ("</Piece>", "</Piece><Piece NumberOfPoints='1' NumberOfCells='1'>", "several pieces"),
        ("\n0.0 0.0 0.0 ", "\n0.0 x 0.0 ", "`x`: expected a number"),
        ("\n0.0 0.0 0.0 ", "\n0.0 nan 0.0 ", "coordinates must be finite"),
        ("format=\"ascii\"", "format=\"packed\"", "unknown format `packed`"),
        ("</VTKFile>", "", "the file ends before </VTKFile>"),
    ] {
        assert!(ascii.contains(from), "{from}: {ascii}");
        let message = file::parse("mesh.vtu", ascii.replacen(from, to, 1).as_bytes()).expect_err(named);
        assert!(message.to_string().contains(named), "{from} -> {to}: {message}");
    }
    let binary = gmsh(&mesh, 4, Form::Little);
    let cut = file::parse("mesh.msh", &binary[..binary.len() / 2]).unwrap_err().to_string();
    assert!(cut.contains("mesh.msh: byte") && cut.contains("the file ends; expected"), "{cut}");
    let at = binary.windows(7).position(|w| w == b"$Nodes\n").unwrap() + 7;
    let mut large = binary.clone();
    large[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
    let message = file::parse("mesh.msh", &large).unwrap_err().to_string();
    assert!(message.contains("blocks of nodes do not fit in a file of"), "{message}");
    let message = file::parse("mesh.msh", b"\xff\xfe\n").unwrap_err().to_string();
    assert!(message.contains("is this a mesh of Gmsh?"), "{message}");
}

/// A numbering changes only the numbers: points, volumes and surfaces stay.
#[test]
fn numberings_keep_the_mesh() {
    let mesh = duct([4, 3, 5], 1.0);
    let sorted = |mesh: &TetMesh| {
        let mut points = mesh.points().to_vec();
        points.sort_by(|a, b| a.partial_cmp(b).unwrap());
        points
    };
    let mean = |mesh: &TetMesh| {
        let spread = |t: &[u32; 4]| t.iter().max().unwrap() - t.iter().min().unwrap();
        mesh.tetrahedra().iter().map(|t| f64::from(spread(t))).sum::<f64>() / mesh.tetrahedra().len() as f64
    };
    let random = mesh.clone().ordered(NodeOrder::Random(3)).unwrap();
    assert_ne!(random.points(), mesh.points());
    assert_ne!(random, mesh.clone().ordered(NodeOrder::Random(4)).unwrap());
    // The nodes of the duct are numbered by coordinates.
    assert_eq!(random.clone().ordered(NodeOrder::Natural).unwrap(), mesh);
    let rcm = random.clone().ordered(NodeOrder::Rcm).unwrap();
    assert!(mean(&rcm) < 0.8 * mean(&random), "{} for {}", mean(&rcm), mean(&random));
    for other in [&random, &rcm] {
        assert_eq!(sorted(other), sorted(&mesh));
        assert!((other.volume() - mesh.volume()).abs() < 1e-14);
        let faces = |mesh: &TetMesh| mesh.surface("outlet").unwrap().len();
        assert_eq!(faces(other), faces(&mesh));
    }
    assert!("rcm:3".parse::<NodeOrder>().is_err() && "random:x".parse::<NodeOrder>().is_err());
}
