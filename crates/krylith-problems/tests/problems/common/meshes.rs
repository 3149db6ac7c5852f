//! Meshes as tests need them: the tetrahedra of a duct with named surfaces, and files in every format.

use krylith_problems::DuctMesh;
use krylith_problems::tets::{Surface, TetMesh};
use std::path::PathBuf;

/// A file that is removed at the end of a test.
pub struct Temporary(PathBuf);

impl Temporary {
    pub fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("krylith-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }
    pub fn name(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The mesh of a duct, with the surfaces `inlet`, `wall` and `outlet`.
pub fn duct(nodes: [usize; 3], length: f64) -> TetMesh {
    let mesh = DuctMesh::new(nodes, [length, 1.0, 1.0]).unwrap();
    let part = |i: u32| mesh.position(i as usize);
    let mut surfaces = ["inlet", "wall", "outlet"].map(|n| Surface { name: n.into(), faces: Vec::new() });
    for face in boundary(&mesh.tetrahedra()) {
        let on = |d: usize, at: usize| face.iter().all(|&i| part(i)[d] == at);
        let which = if on(0, 0) {
            0
        } else if on(0, nodes[0] - 1) {
            2
        } else {
            1
        };
        surfaces[which].faces.push(face);
    }
    TetMesh::new(mesh.coordinates(), mesh.tetrahedra(), surfaces.into()).unwrap()
}

/// The faces that only one tetrahedron has, ascending.
pub fn boundary(tetrahedra: &[[u32; 4]]) -> Vec<[u32; 3]> {
    let mut count = std::collections::BTreeMap::new();
    for &[a, b, c, d] in tetrahedra {
        for mut face in [[a, b, c], [a, b, d], [a, c, d], [b, c, d]] {
            face.sort_unstable();
            *count.entry(face).or_insert(0) += 1;
        }
    }
    count.into_iter().filter(|(_, n)| *n == 1).map(|(face, _)| face).collect()
}

/// Forms of a file's numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Form {
    Text,
    Little,
    Big,
}

/// A file under construction: numbers as text, each record on a line, or as bytes.
struct Out {
    form: Form,
    bytes: Vec<u8>,
}

impl Out {
    fn text(&mut self, line: &str) {
        self.bytes.extend_from_slice(line.as_bytes());
        self.bytes.push(b'\n');
    }
    fn put(&mut self, word: &str, mut little: Vec<u8>) {
        match self.form {
            Form::Text => self.bytes.extend_from_slice(format!("{word} ").as_bytes()),
            Form::Little => self.bytes.append(&mut little),
            Form::Big => self.bytes.extend(little.iter().rev()),
        }
    }
    fn int(&mut self, value: usize) {
        self.put(&value.to_string(), (value as i32).to_le_bytes().to_vec());
    }
    fn size(&mut self, value: usize) {
        self.put(&value.to_string(), (value as u64).to_le_bytes().to_vec());
    }
    fn reals(&mut self, values: &[f64]) {
        values.iter().for_each(|v| self.put(&format!("{v:?}"), v.to_le_bytes().to_vec()));
    }
    fn end(&mut self) {
        if self.form == Form::Text {
            self.bytes.push(b'\n');
        }
    }
    fn close(&mut self, section: &str) {
        if self.form != Form::Text {
            self.bytes.push(b'\n');
        }
        self.text(section);
    }
}

/// A section of a file of Gmsh with a vector for each of these nodes or elements.
pub fn gmsh_data(form: Form, section: &str, name: &str, vectors: &[(usize, [f64; 3])]) -> Vec<u8> {
    let mut out = Out { form, bytes: Vec::new() };
    out.text(&format!("${section}\n1\n\"{name}\"\n1\n0.5\n3\n0\n3\n{}", vectors.len()));
    for (number, vector) in vectors {
        out.int(*number);
        out.reals(vector);
        out.end();
    }
    out.close(&format!("$End{section}"));
    out.bytes
}

/// A file of Gmsh, version 2.2 or 4.1. Node i has the tag 3 i + 2, and surface k the tag k + 5.
pub fn gmsh(mesh: &TetMesh, version: usize, form: Form) -> Vec<u8> {
    let mut out = Out { form, bytes: Vec::new() };
    let binary = usize::from(form != Form::Text);
    out.text(&format!("$MeshFormat\n{} {binary} 8", if version == 2 { "2.2" } else { "4.1" }));
    if binary == 1 {
        out.int(1);
        out.bytes.push(b'\n');
    }
    out.text("$EndMeshFormat\n$PhysicalNames");
    out.text(&mesh.surfaces().len().to_string());
    for (k, surface) in mesh.surfaces().iter().enumerate() {
        out.text(&format!("2 {} \"{}\"", k + 5, surface.name));
    }
    out.text("$EndPhysicalNames");
    let (n, tag) = (mesh.points().len(), |p: u32| 3 * p as usize + 2);
    let faces: usize = mesh.surfaces().iter().map(|s| s.faces.len()).sum();
    let all = faces + mesh.tetrahedra().len();
    if version == 2 {
        out.text(&format!("$Nodes\n{n}"));
        for (i, x) in mesh.points().iter().enumerate() {
            out.int(tag(i as u32));
            out.reals(x);
            out.end();
        }
        out.close("$EndNodes");
        out.text(&format!("$Elements\n{all}"));
        let mut number = 0;
        let mut run = |out: &mut Out, kind: usize, group: usize, elements: Vec<Vec<u32>>| {
            if binary == 1 {
                [kind, elements.len(), 2].into_iter().for_each(|v| out.int(v));
            }
            for corners in elements {
                number += 1;
                out.int(number);
                if binary == 0 {
                    [kind, 2].into_iter().for_each(|v| out.int(v));
                }
                [group, group].into_iter().for_each(|v| out.int(v));
                corners.iter().for_each(|&p| out.int(tag(p)));
                out.end();
            }
        };
        for (k, surface) in mesh.surfaces().iter().enumerate() {
            run(&mut out, 2, k + 5, surface.faces.iter().map(|f| f.to_vec()).collect());
        }
        run(&mut out, 4, 1, mesh.tetrahedra().iter().map(|t| t.to_vec()).collect());
        out.close("$EndElements");
        return out.bytes;
    }
    out.text("$Entities");
    [1, 1, mesh.surfaces().len(), 1].into_iter().for_each(|v| out.size(v));
    out.end();
    for (dimension, count) in [1, 1, mesh.surfaces().len(), 1].into_iter().enumerate() {
        for k in 0..count {
            out.int(k + 1);
            out.reals(&[0.0; 6][..if dimension == 0 { 3 } else { 6 }]);
            let groups = if dimension == 2 { 1 } else { 0 };
            out.size(groups);
            (0..groups).for_each(|_| out.int(k + 5));
            if dimension > 0 {
                out.size(1);
                out.int(1);
            }
            out.end();
        }
    }
    out.close("$EndEntities");
    out.text("$Nodes");
    [1, n, 2, 3 * n].into_iter().for_each(|v| out.size(v));
    out.end();
    [3, 1, 0].into_iter().for_each(|v| out.int(v));
    out.size(n);
    out.end();
    (0..n as u32).for_each(|i| {
        out.size(tag(i));
        out.end();
    });
    mesh.points().iter().for_each(|x| {
        out.reals(x);
        out.end();
    });
    out.close("$EndNodes");
    out.text("$Elements");
    [mesh.surfaces().len() + 1, all, 1, all].into_iter().for_each(|v| out.size(v));
    out.end();
    let mut number = 0;
    let mut block = |out: &mut Out, head: [usize; 3], elements: Vec<Vec<u32>>| {
        head.into_iter().for_each(|v| out.int(v));
        out.size(elements.len());
        out.end();
        for corners in elements {
            number += 1;
            out.size(number);
            corners.iter().for_each(|&p| out.size(tag(p)));
            out.end();
        }
    };
    for (k, surface) in mesh.surfaces().iter().enumerate() {
        block(&mut out, [2, k + 1, 2], surface.faces.iter().map(|f| f.to_vec()).collect());
    }
    block(&mut out, [3, 1, 4], mesh.tetrahedra().iter().map(|t| t.to_vec()).collect());
    out.close("$EndElements");
    out.bytes
}

/// Encodings of the arrays of a `.vtu` file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Encoding {
    Ascii,
    Base64,
    AppendedBase64,
    AppendedRaw,
}

/// A `.vtu` file; surface k has the number k + 5.
pub fn vtu(mesh: &TetMesh, encoding: Encoding, form: Form) -> Vec<u8> {
    vtu_with(mesh, encoding, form, ["CellData", "PointData"].map(|section| (section, &[][..])))
}

/// Vectors of tetrahedra and of nodes, with their names.
pub type Vectors<'a> = [(&'a str, &'a [(&'a str, Vec<[f64; 3]>)]); 2];

/// The same with fields of vectors.
pub fn vtu_with(mesh: &TetMesh, encoding: Encoding, form: Form, fields: Vectors) -> Vec<u8> {
    let big = form == Form::Big;
    let wide = encoding != Encoding::Base64; // lengths of 64 bits
    let mut cells: Vec<(Vec<u32>, u8, i32)> = Vec::new();
    for (k, surface) in mesh.surfaces().iter().enumerate() {
        cells.extend(surface.faces.iter().map(|f| (f.to_vec(), 5, k as i32 + 5)));
    }
    cells.extend(mesh.tetrahedra().iter().map(|t| (t.to_vec(), 10, 1)));
    let mut end = 0;
    let ends: Vec<i64> = cells
        .iter()
        .map(|c| {
            end += c.0.len() as i64;
            end
        })
        .collect();
    let order = |mut bytes: Vec<u8>| {
        if big {
            bytes.reverse();
        }
        bytes
    };
    let reals = mesh.points().as_flattened();
    let corners: Vec<u32> = cells.iter().flat_map(|c| c.0.clone()).collect();
    // Name, type, attributes, words, bytes.
    let word = |v: String| v + " ";
    let mut arrays = vec![
        (
            "",
            "Points",
            "Float64",
            3,
            reals.iter().map(|v| word(format!("{v:?}"))).collect::<String>(),
            reals.iter().flat_map(|v| order(v.to_le_bytes().to_vec())).collect::<Vec<u8>>(),
        ),
        (
            "connectivity",
            "Cells",
            "UInt32",
            1,
            corners.iter().map(|v| word(v.to_string())).collect(),
            corners.iter().flat_map(|v| order(v.to_le_bytes().to_vec())).collect(),
        ),
        (
            "offsets",
            "",
            "Int64",
            1,
            ends.iter().map(|v| word(v.to_string())).collect(),
            ends.iter().flat_map(|v| order(v.to_le_bytes().to_vec())).collect(),
        ),
        (
            "types",
            "",
            "UInt8",
            1,
            cells.iter().map(|c| word(c.1.to_string())).collect(),
            cells.iter().map(|c| c.1).collect(),
        ),
        (
            "gmsh:physical",
            "CellData",
            "Int32",
            1,
            cells.iter().map(|c| word(c.2.to_string())).collect(),
            cells.iter().flat_map(|c| order(c.2.to_le_bytes().to_vec())).collect(),
        ),
    ];
    let faces = cells.len() - mesh.tetrahedra().len();
    for (section, fields) in fields {
        for (k, (name, vectors)) in fields.iter().enumerate() {
            // Triangles have no direction.
            let before = if section == "CellData" { faces } else { 0 };
            let numbers = [vec![f64::NAN; 3 * before], vectors.as_flattened().to_vec()].concat();
            arrays.push((
                *name,
                if section == "CellData" || k > 0 { "" } else { section },
                "Float64",
                3,
                numbers.iter().map(|v| word(format!("{v:?}"))).collect(),
                numbers.iter().flat_map(|v| order(v.to_le_bytes().to_vec())).collect(),
            ));
        }
    }
    let byte_order = if big { "BigEndian" } else { "LittleEndian" };
    let mut out = format!(
        "<?xml version=\"1.0\"?>\n<!-- a <test> -->\n<VTKFile type=\"UnstructuredGrid\" byte_order=\"{byte_order}\" \
         header_type=\"{}\">\n<UnstructuredGrid><Piece NumberOfPoints='{}' NumberOfCells='{}'>\n",
        if wide { "UInt64" } else { "UInt32" }, mesh.points().len(), cells.len(),
    ).into_bytes();
    let (mut appended, mut open) = (Vec::new(), "");
    for (name, section, kind, components, words, data) in arrays {
        let mut add = |text: &str| out.extend_from_slice(text.as_bytes());
        if !section.is_empty() {
            if !open.is_empty() {
                add(&format!("</{open}>\n"));
            }
            add(&format!("<{section}>\n"));
            open = section;
        }
        let length = if wide {
            (data.len() as u64).to_le_bytes().to_vec()
        } else {
            (data.len() as u32).to_le_bytes().to_vec()
        };
        let whole = [order(length), data].concat();
        let (format, content) = match encoding {
            Encoding::Ascii => ("ascii", words),
            Encoding::Base64 => ("binary", base64(&whole)),
            _ => ("appended", String::new()),
        };
        add(&format!(
            "<DataArray type=\"{kind}\" Name=\"{name}\" NumberOfComponents=\"{components}\" format=\"{format}\" \
             offset=\"{}\">\n{content}\n</DataArray>\n",
            appended.len()
        ));
        match encoding {
            Encoding::AppendedRaw => appended.extend_from_slice(&whole),
            Encoding::AppendedBase64 => appended.extend_from_slice(base64(&whole).as_bytes()),
            _ => {}
        }
    }
    out.extend_from_slice(format!("</{open}>\n</Piece></UnstructuredGrid>\n").as_bytes());
    if matches!(encoding, Encoding::AppendedRaw | Encoding::AppendedBase64) {
        let how = if encoding == Encoding::AppendedRaw { "raw" } else { "base64" };
        out.extend_from_slice(format!("<AppendedData encoding=\"{how}\">\n_").as_bytes());
        out.extend_from_slice(&appended);
        out.extend_from_slice(b"\n</AppendedData>\n");
    }
    out.extend_from_slice(b"</VTKFile>\n");
    out
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for group in bytes.chunks(3) {
        let word = group.iter().chain([&0, &0]).take(3).fold(0u32, |w, &b| w << 8 | u32::from(b));
        for k in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * k) & 63) as usize] as char;
            out.push(if k <= group.len() { letter } else { '=' });
        }
    }
    out
}
