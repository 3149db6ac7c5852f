//! Small valid files of every format, generated here, which use the features on which readers branch.

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use std::io::{Cursor, Write};

fn texts(list: &[&str]) -> Vec<Vec<u8>> {
    list.iter().map(|text| text.as_bytes().to_vec()).collect()
}

pub fn matrix_market() -> Vec<Vec<u8>> {
    texts(&[
        "%%MatrixMarket matrix coordinate real general\n% c\n3 4 4\n1 1 1.5\n2 3 -2e-3\n3 4 7\n1 1 0.5\n",
        "%%MatrixMarket matrix coordinate real symmetric\n3 3 4\n1 1 4\n2 1 -1\n2 2 4\n3 3 4\n",
        "\u{feff}%%matrixmarket MATRIX coordinate integer skew-symmetric\r\n3 3 2\r\n2 1 -5\r\n3 2 6\r\n",
        "%%MatrixMarket matrix coordinate pattern general\n2 2 3\n1 1\n1 2\n2 2\n",
        "%%MatrixMarket matrix array real general\n2 2\n1\n2\n3.5\n4\n",
        "%%MatrixMarket matrix array real symmetric\n2 2\n1\n2\n3\n",
        "%%MatrixMarket matrix array integer skew-symmetric\n3 3\n1\n2\n3\n",
        "%%MatrixMarket matrix coordinate unsigned-integer general\n2 2 2\n1 1 4\n2 2 2\n",
        "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 0.4+1\n2 2 1.5D-3\n",
        "%%MatrixMarket matrix coordinate real general\n%%AMGX 1 1 rhs solution\n2 2 2\n1 1 2\n2 2 3\n2\n6\n1 2\n",
    ])
}

pub fn text() -> Vec<Vec<u8>> {
    texts(&["1\n2\n-3.5e2\n", "# c\n1, 2\n3\t4\n", "\u{feff}1 2 3\n% c\n\n4 5 6\n", "1D0\n0.4+1\n3.14-114\n"])
}

pub fn gmsh() -> Vec<Vec<u8>> {
    texts(&[
        "$MeshFormat\n2.2 0 8\n$EndMeshFormat\n$PhysicalNames\n1\n2 7 \"wall\"\n$EndPhysicalNames\n$Nodes\n4\n1 0 0 0\n2 1 0 0\n\
         3 0 1 0\n4 0 0 1\n$EndNodes\n$Elements\n2\n1 2 2 7 1 1 2 3\n2 4 2 1 1 1 2 3 4\n$EndElements\n\
         $ElementData\n1\n\"fibre\"\n1\n0\n3\n0\n3\n1\n2 0 2 0\n$EndElementData\n",
        "$MeshFormat\n4.1 0 8\n$EndMeshFormat\n$Entities\n0 0 1 1\n3 0 0 0 1 1 1 1 7 0\n1 0 0 0 1 1 1 0 0\n$EndEntities\n$Nodes\n\
         1 4 1 4\n3 1 0 4\n1\n2\n3\n4\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n$EndNodes\n$Elements\n2 2 1 2\n2 3 2 1\n1 1 2 3\n\
         3 1 4 1\n2 1 2 3 4\n$EndElements\n",
    ])
}

/// A tetrahedron with a face in a group, in binary files of versions 2.2 and 4.1.
pub fn gmsh_binary() -> Vec<Vec<u8>> {
    let ints = |v: &[i32]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let sizes = |v: &[u64]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let reals = |v: &[f64]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let points = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    let head = |version: &str| {
        [format!("$MeshFormat\n{version} 1 8\n").as_bytes(), &ints(&[1]), b"\n$EndMeshFormat\n"].concat()
    };
    let nodes: Vec<u8> = (0..4).flat_map(|i| [ints(&[i + 1]), reals(&points[i as usize])].concat()).collect();
    let two = [
        head("2.2"),
        b"$Nodes\n4\n".to_vec(),
        nodes,
        b"\n$EndNodes\n$Elements\n2\n".to_vec(),
        ints(&[2, 1, 2, 1, 7, 1, 1, 2, 3, 4, 1, 2, 2, 1, 1, 1, 2, 3, 4]),
        b"\n$EndElements\n".to_vec(),
    ];
    let box_of = |tag: i32| [ints(&[tag]), reals(&[0.0, 0.0, 0.0, 1.0, 1.0, 1.0])].concat();
    let four = [
        head("4.1"),
        b"$Entities\n".to_vec(),
        sizes(&[0, 0, 1, 1]),
        box_of(3),
        sizes(&[1]),
        ints(&[7]),
        sizes(&[0]),
        box_of(1),
        sizes(&[0, 0]),
        b"\n$EndEntities\n$Nodes\n".to_vec(),
        sizes(&[1, 4, 1, 4]),
        ints(&[3, 1, 0]),
        sizes(&[4, 1, 2, 3, 4]),
        reals(points.as_flattened()),
        b"\n$EndNodes\n$Elements\n".to_vec(),
        sizes(&[2, 2, 1, 2]),
        ints(&[2, 3, 2]),
        sizes(&[1, 1, 1, 2, 3]),
        ints(&[3, 1, 4]),
        sizes(&[1, 2, 1, 2, 3, 4]),
        b"\n$EndElements\n".to_vec(),
    ];
    vec![two.concat(), four.concat()]
}

/// The same tetrahedron as text and as raw appended data of the own writer, without tags.
pub fn vtu() -> Vec<Vec<u8>> {
    let text = "<?xml version=\"1.0\"?><VTKFile type=\"UnstructuredGrid\" byte_order=\"LittleEndian\"><UnstructuredGrid>\
        <Piece NumberOfPoints=\"4\" NumberOfCells=\"2\"><CellData><DataArray type=\"Int32\" Name=\"tag\" format=\"ascii\">7 1\
        </DataArray></CellData><PointData><DataArray type=\"Float32\" Name=\"sheet\" NumberOfComponents=\"3\" \
        format=\"ascii\">1 0 0 1 0 0 -2 0 0 1 0 0</DataArray></PointData><Points><DataArray type=\"Float64\" NumberOfComponents=\"3\" format=\"ascii\">\
        0 0 0 1 0 0 0 1 0 0 0 1</DataArray></Points><Cells><DataArray type=\"Int32\" Name=\"connectivity\" \
        format=\"ascii\">0 1 2 0 1 2 3</DataArray><DataArray type=\"Int32\" Name=\"offsets\" format=\"ascii\">3 7\
        </DataArray><DataArray type=\"UInt8\" Name=\"types\" format=\"binary\">AgAAAAUK</DataArray></Cells></Piece>\
        </UnstructuredGrid></VTKFile>";
    let points = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    let mut raw = Vec::new();
    krylith_core::io::vtu::write_to(&mut raw, &points, &[[0, 1, 2, 3]], &[]).expect("four points");
    vec![text.into(), raw]
}

pub fn toml() -> Vec<Vec<u8>> {
    texts(&[
        "matrix = 'A.mtx'\nblock = 2\nrhs = 'b.npy'\n[solver]\nmethod = 'gmres'\nrestart = 30\nrtol = 1e-8\n",
        "[kronecker]\nM = 'M.mtx'\nL = 'L.mtx'\nblock = 4\ntau = 0.125\nscheme = 'radau-iia-2'\n",
        "coordinates = 'x.npy'\n[kronecker]\nM='M'\nL='L'\ntau=1\nA=[[1,0],[0,1]]\nB=[[1,2],[3,4.5]]\n",
        "matrix = 'A'\n[solver]\nprecond = 'ildu:fill=1 then jacobi'\nthreads = 2\nmax-iters = 7\nstore = 'f32'\n",
    ])
}

pub fn problems() -> Vec<Vec<u8>> {
    let examples = krylith_problems::catalogue().iter().map(|problem| {
        let size = if problem.size.contains('x') { "3x4x2" } else { "5" };
        let keys =
            problem.keys.iter().filter(|k| !k.default.is_empty() && !k.default.contains([' ', '(', '/']));
        let keys: String = keys.map(|k| format!(",{}={}", k.name, k.default)).collect();
        [format!("{}:{size}", problem.name), format!("{}:{size}{keys}", problem.name)]
    });
    examples
        .flatten()
        .filter(|text| krylith_problems::generate(text).is_ok())
        .map(String::into_bytes)
        .collect()
}

pub fn options() -> Vec<Vec<u8>> {
    texts(&[
        "method=gmres restart=30 orthogonalization=lowsync rtol=1e-8 atol=0 max_iters=100",
        "method=bicgstab reductions=classical precision=f32 device=cuda:0,1 threads=4",
        "method=cg form=flexible precond=symmetric(ildu:fill=1,rows=500,cut=runs then jacobi) time_limit=1.5",
        "precond=jacobi:block=1 + stage deterministic=true equilibrate=true partition=rows memory_limit=8GiB",
    ])
}

pub fn preconditioners() -> Vec<Vec<u8>> {
    texts(&[
        "auto",
        "none",
        "jacobi:block=3",
        "ildu:fill=1,rows=100,cut=graph,shift=1e-3",
        "ildu0:cut=two-level",
        "stage",
        "jacobi + ildu then stage",
    ])
}

pub fn methods() -> Vec<Vec<u8>> {
    texts(&[
        "gmres",
        "gmres restart=30 orthogonalization=mgs",
        "bicgstab reductions=merged",
        "minres",
        "cg form=one-reduction",
    ])
}

pub fn harwell_boeing() -> Vec<Vec<u8>> {
    texts(&[concat!(
        "1Title                                                                   KEY     \n",
        "             6             1             1             3             1\n",
        "RUA                        5             5            11             0\n",
        "(6I3)           (13I3)          (5E15.8)            (5E15.8)            \n",
        "F                          1             0\n",
        "  1  4  6  8 10 12\n",
        "  1  3  5  1  4  2  5  1  4  2  5\n",
        " 1.00000000E+00 2.00000000E+00 5.00000000E+00-3.00000000E+00 4.00000000E+00\n",
        "-2.00000000E+00-5.00000000E+00-1.00000000E+00-4.00000000E+00 3.00000000E+00\n",
        " 6.00000000E+00\n",
        " 1.00000000E+00 2.00000000E+00 3.00000000E+00 4.00000000E+00 5.00000000E+00\n",
    )])
}

pub fn rutherford_boeing() -> Vec<Vec<u8>> {
    texts(&[
        concat!(
            "Title                                                                   |1001   \r\n",
            "             5             1             1             2\r\n",
            "rsa                        3             3             4             0\r\n",
            "(40I2)          (40I2)          (1P,3D9.2)          \r\n",
            " 1 3 4 5\r\n 1 3 2 3\r\n",
            " 2.00D+00-1.25D-01 3.00D+02\r\n 4.00+002\r\n",
        ),
        "t\n 3 1 1 1\nRUA 3 3 3 0\n(1X,2(I2)) (2I2,/) (3(1P,E9.2))\n  1 2\n 3 4\n 1 2\n\n 3\n 2.00E+00 3.00D+00 4.00+000\n",
        "t\n 2 1 1 0\npua 2 3 3 0\n(4I2) (4I2)\n 1 2 2 4\n 2 2 1\n",
        "t\n 3 1 1 1\niua 1 2 2 0\n(4I2) (4I2) (2I3)\n 1 2 3\n 1 1\n -7 12\n",
        "t\n 3 1 1 1\nrza 2 2 1 0\n(3I2) (3I2) (1F4.1)\n 1 2 2\n 2\n 7.5\n",
    ])
}

pub fn npy() -> Vec<Vec<u8>> {
    let doubles: Vec<u8> = (0..6).flat_map(|i| (f64::from(i) + 0.5).to_le_bytes()).collect();
    let integers: Vec<u8> = (0..6i32).flat_map(i32::to_be_bytes).collect();
    vec![
        array("<f8", false, "(6,)", &doubles),
        array("<f8", true, "(3, 2)", &doubles),
        array(">i4", false, "(2, 3)", &integers),
        array("|u1", true, "(1, 4L)", &[1, 2, 3, 4]),
    ]
}

fn array(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat()
}

/// Mark that separates the members of [`npz`]; the name of a member follows it.
const MEMBER: &[u8] = b"\n##";

/// Returns the members of archives, one after the other, from which [`zipped`] makes archives.
pub fn npz() -> Vec<Vec<u8>> {
    let i4 = |list: &[i32]| {
        let data: Vec<u8> = list.iter().flat_map(|n| n.to_le_bytes()).collect();
        array("<i4", false, &format!("({},)", list.len()), &data)
    };
    let f8 = |shape: &str, list: &[f64]| {
        array("<f8", false, shape, &list.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
    };
    let archive = |name: &str, members: &[(&str, Vec<u8>)]| {
        let format = ("format", array("|S3", false, "()", name.as_bytes()));
        let all = [&format].into_iter().chain(members);
        all.flat_map(|(name, bytes)| [MEMBER, name.as_bytes(), b"\n", bytes].concat()).collect::<Vec<u8>>()
    };
    let shape = ("shape", i4(&[2, 3]));
    let (indptr, indices) = (("indptr", i4(&[0, 2, 3])), ("indices", i4(&[2, 0, 1])));
    let data = ("data", f8("(3,)", &[2.0, 1.0, 3.0]));
    vec![
        archive("csr", &[shape.clone(), indptr, indices, data.clone()]),
        archive(
            "csc",
            &[shape.clone(), ("indptr", i4(&[0, 1, 2, 3])), ("indices", i4(&[0, 1, 0])), data.clone()],
        ),
        archive("coo", &[shape.clone(), ("row", i4(&[1, 0, 0])), ("col", i4(&[1, 2, 0])), data]),
        archive(
            "bsr",
            &[
                ("shape", i4(&[2, 4])),
                ("indptr", i4(&[0, 2])),
                ("indices", i4(&[1, 0])),
                ("data", f8("(2, 2, 2)", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])),
            ],
        ),
        archive(
            "dia",
            &[shape, ("offsets", i4(&[1, -1])), ("data", f8("(2, 3)", &[9.0, 1.0, 2.0, 3.0, 9.0, 9.0]))],
        ),
    ]
}

/// Makes a zip archive of the members between marks; leaves out members whose names a zip archive cannot
/// have.
pub fn zipped(members: &[u8], packed: bool) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let method = if packed { zip::CompressionMethod::Deflated } else { zip::CompressionMethod::Stored };
    let options = zip::write::SimpleFileOptions::default().compression_method(method);
    let starts: Vec<usize> =
        members.windows(MEMBER.len()).enumerate().filter(|(_, w)| *w == MEMBER).map(|(at, _)| at).collect();
    for (i, &start) in starts.iter().enumerate() {
        let end = starts.get(i + 1).copied().unwrap_or(members.len());
        let member = &members[start + MEMBER.len()..end];
        let Some(line) = member.iter().position(|&c| c == b'\n') else { continue };
        let name = String::from_utf8_lossy(&member[..line]);
        if zip.start_file(format!("{name}.npy"), options).is_ok() {
            let _ = zip.write_all(&member[line + 1..]); // a member left empty is one more test case
        }
    }
    zip.finish().map(Cursor::into_inner).unwrap_or_default()
}

pub fn gzipped(plain: &[u8]) -> Vec<u8> {
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(plain).and_then(|()| gz.finish()).expect("a vector takes all")
}

pub fn petsc() -> Vec<Vec<u8>> {
    let integers = |list: &[i64], wide: bool| -> Vec<u8> {
        list.iter()
            .flat_map(|&n| if wide { n.to_be_bytes().to_vec() } else { (n as i32).to_be_bytes().to_vec() })
            .collect()
    };
    let doubles = |list: &[f64]| -> Vec<u8> { list.iter().flat_map(|v| v.to_be_bytes()).collect() };
    [false, true]
        .map(|wide| {
            [
                integers(&[1211216, 3, 4, 3, 2, 0, 1, 3, 1, 0], wide),
                doubles(&[-2.0, 1.5, 0.25]),
                integers(&[1211214, 2], wide),
                doubles(&[7.0, -8.0]),
            ]
            .concat()
        })
        .to_vec()
}

/// MAT-files whose elements are not compressed.
pub fn matlab() -> Vec<Vec<u8>> {
    [false, true].map(|big| [matlab_header(big), matlab_variable(big)].concat()).to_vec()
}

/// Elements that [`packed`] compresses into a MAT-file.
pub fn matlab_packed() -> Vec<Vec<u8>> {
    vec![matlab_variable(false)]
}

fn matlab_header(big: bool) -> Vec<u8> {
    let mut head = b"MATLAB 5.0 MAT-file".to_vec();
    head.resize(124, b' ');
    head.extend(if big { *b"\x01\x00MI" } else { *b"\x00\x01IM" });
    head
}

/// A MAT-file with one compressed element.
pub fn packed(element: &[u8]) -> Vec<u8> {
    let mut z = ZlibEncoder::new(Vec::new(), Compression::fast());
    let data = z.write_all(element).and_then(|()| z.finish()).expect("a vector takes all");
    [&matlab_header(false), &15u32.to_le_bytes()[..], &(data.len() as u32).to_le_bytes(), &data].concat()
}

/// A struct `Problem` with a sparse `A` and a dense `b`.
fn matlab_variable(big: bool) -> Vec<u8> {
    let words = |list: &[u32]| -> Vec<u8> {
        list.iter().flat_map(|n| if big { n.to_be_bytes() } else { n.to_le_bytes() }).collect()
    };
    let doubles = |list: &[f64]| -> Vec<u8> {
        list.iter().flat_map(|v| if big { v.to_be_bytes() } else { v.to_le_bytes() }).collect()
    };
    let element = |kind: u32, data: &[u8]| {
        let mut out = [words(&[kind, data.len() as u32]), data.to_vec()].concat();
        out.resize(out.len().next_multiple_of(8), 0);
        out
    };
    let head = |class: u32, shape: &[u32], name: &str| {
        [element(6, &words(&[class, 0])), element(5, &words(shape)), element(1, name.as_bytes())].concat()
    };
    let sparse = [
        head(5, &[3, 3], ""),
        element(5, &words(&[0, 2, 1, 0])),
        element(5, &words(&[0, 2, 3, 4])),
        element(9, &doubles(&[1.0, 4.0, 3.0, 2.0])),
    ];
    let dense = [head(6, &[3, 1], ""), element(9, &doubles(&[7.0, 8.0, 9.0]))];
    let fields = [
        head(2, &[1, 1], "Problem"),
        [words(&[4 << 16 | 5]), words(&[2])].concat(),
        element(1, b"A\0b\0"),
        element(14, &sparse.concat()),
        element(14, &dense.concat()),
    ];
    element(14, &fields.concat())
}
