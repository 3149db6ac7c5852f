//! Meshes of tetrahedra: volumes, surfaces, files, and errors.

use krylith_problems::tets::{Disc, Layers, Numbering, Surface, TetMesh, extrude, file};
use std::f64::consts::PI;

const POINTS: [[f64; 3]; 5] =
    [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0]];

/// Corners of the faces that only one tetrahedron has, ascending.
fn boundary(mesh: &TetMesh) -> Vec<[u32; 3]> {
    let mut faces: Vec<[u32; 3]> = Vec::new();
    for &[a, b, c, d] in mesh.tetrahedra() {
        for mut face in [[a, b, c], [a, b, d], [a, c, d], [b, c, d]] {
            face.sort_unstable();
            faces.push(face);
        }
    }
    faces.sort_unstable();
    let mut alone = Vec::new();
    let mut k = 0;
    while k < faces.len() {
        let same = faces[k..].iter().take_while(|f| **f == faces[k]).count();
        assert!(same <= 2, "{same} tetrahedra share a face");
        if same == 1 {
            alone.push(faces[k]);
        }
        k += same;
    }
    alone
}

#[test]
fn discs_make_conforming_bodies() {
    for (cells, rings, count, numbering) in [
        (2, 0, 1, Numbering::Discs),
        (4, 0, 3, Numbering::Lines),
        (4, 3, 2, Numbering::Discs),
        (8, 2, 5, Numbering::Lines),
    ] {
        let case = format!("{cells} cells, {rings} rings, {count} layers, {numbering:?}");
        let disc = Disc::new(cells, rings).unwrap();
        let layers = Layers { count, numbering, surfaces: ["low", "high", "side"] };
        let mesh = extrude(&disc, layers, |[x, y], s| [x, y, 2.0 * s]).unwrap();
        assert_eq!(mesh.points().len(), disc.nodes() * (count + 1), "{case}");
        assert_eq!(mesh.tetrahedra().len(), disc.triangles() * 3 * count, "{case}");
        // The volume of a prism over a polygon with as many corners as the rim.
        let corners = (4 * cells) as f64;
        let volume = 2.0 * 0.5 * corners * (2.0 * PI / corners).sin();
        assert!((mesh.volume() - volume).abs() < 1e-12, "{case}: {} for {volume}", mesh.volume());
        // The named surfaces are the whole boundary, with normals that point outwards.
        let mut named: Vec<[u32; 3]> = mesh.surfaces().iter().flat_map(|s| s.faces.clone()).collect();
        let flux: f64 = named
            .iter()
            .map(|f| {
                let [a, b, c] = f.map(|p| mesh.points()[p as usize]);
                (a[0] * (b[1] * c[2] - b[2] * c[1])
                    + a[1] * (b[2] * c[0] - b[0] * c[2])
                    + a[2] * (b[0] * c[1] - b[1] * c[0]))
                    / 6.0
            })
            .sum();
        assert!((flux - volume).abs() < 1e-12, "{case}: {flux}");
        named.iter_mut().for_each(|f| f.sort_unstable());
        named.sort_unstable();
        assert_eq!(named, boundary(&mesh), "{case}");
        for i in 0..mesh.points().len() {
            let around = mesh.around(i);
            assert!(around.windows(2).all(|w| w[0] < w[1]), "{case}: node {i}");
            assert!(around.iter().all(|&c| mesh.tetrahedra()[c as usize / 4][c as usize % 4] as usize == i));
        }
    }
}

#[test]
fn meshes_that_are_wrong_are_refused() {
    let tetrahedron = vec![[0, 1, 2, 3]];
    let surface = |faces: &[[u32; 3]]| vec![Surface { name: "wall".into(), faces: faces.to_vec() }];
    let four = POINTS[..4].to_vec();
    for (points, tetrahedra, surfaces, named) in [
        (four.clone(), vec![], vec![], "0 tetrahedra"),
        (four.clone(), vec![[0, 1, 2, 4]], vec![], "tetrahedron 0 has a corner 4; there are 4 nodes"),
        (four.clone(), vec![[0, 1, 2, 2]], vec![], "has the volume 0"),
        (POINTS.to_vec(), tetrahedron.clone(), vec![], "node 4 belongs to no tetrahedron"),
        (four.clone(), tetrahedron.clone(), surface(&[[0, 1, 9]]), "surface `wall`"),
        (four.clone(), tetrahedron.clone(), surface(&[[0, 1, 1]]), "two equal corners"),
        (POINTS.to_vec(), vec![[0, 1, 2, 3], [1, 2, 3, 4]], surface(&[[1, 2, 3]]), "between two tetrahedra"),
        (
            POINTS.to_vec(),
            vec![[0, 1, 2, 3], [1, 2, 3, 4]],
            surface(&[[0, 1, 4]]),
            "belongs to no tetrahedron",
        ),
    ] {
        let message = TetMesh::new(points, tetrahedra, surfaces).expect_err(named).to_string();
        assert!(message.contains(named), "{message}");
    }
    let turned = TetMesh::new(four, vec![[0, 2, 1, 3]], surface(&[[0, 1, 2]])).unwrap();
    assert!((turned.volume() - 1.0 / 6.0).abs() < 1e-15);
    assert_eq!(turned.surface("wall").unwrap(), [[0, 2, 1]]);
    assert!(Disc::new(3, 1).is_err() && Disc::new(0, 1).is_err());
    let layers = Layers { count: 0, numbering: Numbering::Discs, surfaces: ["a", "b", "c"] };
    assert!(extrude(&Disc::new(2, 0).unwrap(), layers, |[x, y], s| [x, y, s]).is_err());
}

const VERSION_2: &str = "$MeshFormat\n2.2 0 8\n$EndMeshFormat\n$PhysicalNames\n2\n2 7 \"the wall\"\n3 1 \"body\"\n\
    $EndPhysicalNames\n$Nodes\n6\n10 0 0 0\n20 1 0 0\n30 0 1 0\n40 0 0 1\n50 1 1 1\n60 9 9 9\n$EndNodes\n$Elements\n5\n\
    1 15 2 0 1 60\n2 2 2 7 1 10 20 30\n3 2 2 8 1 10 30 40\n4 4 2 1 1 10 20 30 40\n5 4 2 1 1 20 30 40 50\n$EndElements\n";

const VERSION_4: &str = "$MeshFormat\n4.1 0 8\n$EndMeshFormat\n$Comments\nanything\n$EndComments\n$PhysicalNames\n1\n2 7 \"the wall\"\n\
    $EndPhysicalNames\n$Entities\n1 1 2 1\n1 0 0 0 0\n1 0 0 0 1 1 1 0 2 1 -1\n3 0 0 0 1 1 1 1 7 1 1\n4 0 0 0 1 1 1 1 8 0\n\
    1 0 0 0 1 1 1 1 1 2 3 4\n$EndEntities\n$Nodes\n2 6 10 60\n3 1 0 5\n10\n20\n30\n40\n50\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n1 1 1\n\
    0 1 0 1\n60\n9 9 9\n$EndNodes\n$Elements\n3 4 2 5\n2 3 2 1\n2 10 20 30\n2 4 2 1\n3 10 30 40\n3 1 4 2\n4 10 20 30 40\n5 20 30 40 50\n\
    $EndElements\n";

fn read(text: &str) -> krylith_core::Result<TetMesh> {
    file::parse("mesh.msh", text.as_bytes())
}

#[test]
fn gmsh_files_are_read() {
    let surfaces = vec![
        Surface { name: "the wall".into(), faces: vec![[0, 1, 2]] },
        Surface { name: "surface 8".into(), faces: vec![[0, 2, 3]] },
    ];
    let mesh = TetMesh::new(POINTS.to_vec(), vec![[0, 1, 2, 3], [1, 2, 3, 4]], surfaces).unwrap();
    assert_eq!(read(VERSION_2).unwrap(), mesh);
    assert_eq!(read(VERSION_4).unwrap(), mesh);
}

#[test]
fn bad_gmsh_files_are_named() {
    for (from, to, named) in [
        ("2.2 0 8", "2.2 1 8", "mesh.msh:2: expected the number 1, which shows the byte order"),
        ("2.2 0 8", "2.2 1 4", "mesh.msh:2: reals of 4 bytes; save the mesh with 8"),
        ("2.2 0 8", "2.2 7 8", "mesh.msh:2: `7`: expected 0 for text or 1 for binary"),
        ("2.2 0 8", "1.0 0 8", "mesh.msh:2: version 1; versions 2.x and 4.1"),
        ("$MeshFormat\n2.2 0 8\n$EndMeshFormat\n", "", "mesh.msh:1: $PhysicalNames before $MeshFormat"),
        ("$Nodes\n6", "$Nodes\n7", "mesh.msh:17: `$EndNodes`: expected a node's number"),
        ("$Nodes\n6", "$Nodes\n5", "mesh.msh:16: `60 9 9 9`: expected $EndNodes"),
        ("$Nodes\n6", "$Nodes\n99999999", "mesh.msh:10: 99999999 nodes do not fit in a file of"),
        ("20 1 0 0", "20 1 x 0", "mesh.msh:12: `x`: expected a coordinate"),
        ("20 1 0 0", "20 1 0", "mesh.msh:12: the line ends; expected a coordinate"),
        ("20 1 0 0", "10 1 0 0", "mesh.msh:12: node 10 is listed twice"),
        ("20 1 0 0", "20 1 inf 0", "coordinates must be finite"),
        ("4 4 2 1 1", "4 11 2 1 1", "mesh.msh:23: an element of type 11; linear tetrahedra"),
        (
            "20 30 40 50",
            "20 30 40 51",
            "mesh.msh:24: a corner refers to node 51, which the file does not have",
        ),
        ("20 30 40 50", "20 30 40 40", "has the volume 0"),
        ("10 30 40\n", "20 30 40\n", "surface `surface 8`: the face of the nodes [1, 2, 3] lies between"),
        ("$EndElements\n", "", "the file ends; expected $EndElements"),
        (
            "4 4 2 1 1 10 20 30 40\n5 4 2 1 1 20 30 40 50",
            "4 1 2 1 1 10 20\n5 1 2 1 1 20 30",
            "no linear tetrahedra",
        ),
    ] {
        assert!(VERSION_2.contains(from), "{from}");
        let message = read(&VERSION_2.replacen(from, to, 1)).expect_err(named).to_string();
        assert!(message.contains(named), "{from} -> {to}: {message}");
    }
    assert!(read("hello\n").unwrap_err().to_string().contains("expected a section"));
    assert!(read("").unwrap_err().to_string().contains("no linear tetrahedra"));
    assert!(file::read("no/such/mesh.msh").unwrap_err().to_string().contains("no/such/mesh.msh"));
}
