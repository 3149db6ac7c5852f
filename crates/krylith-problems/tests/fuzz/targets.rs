//! The targets: each reader and parser, with its samples, the words of its format, and a check of its
//! results.

use crate::mutate::Random;
use crate::samples;
use krylith_core::io::system::SystemFile;
use krylith_core::io::{Matrix, parse_matrix, parse_vector};
use krylith_core::method::MethodSpec;
use krylith_core::precond::PrecondSpec;
use krylith_core::{Error, Options};
use std::fmt::Display;
use std::str::FromStr;

/// Results of a run other than success.
pub enum Answer {
    /// An error, which is the right result for damaged input.
    Error(String),
    /// A wrong result, which is a find.
    Wrong(String),
}

/// One thing to fuzz.
pub struct Target {
    pub name: &'static str,
    pub samples: fn() -> Vec<Vec<u8>>,
    /// Words of the format.
    pub words: &'static [&'static [u8]],
    /// Makes the file of a mutated input; puts checksums or an archive around it.
    pub wrap: fn(&[u8], &mut Random) -> Vec<u8>,
    /// Makes the file of an undamaged input.
    pub intact: fn(&[u8]) -> Vec<u8>,
    pub run: fn(&[u8]) -> Result<(), Answer>,
}

const MTX: &[&[u8]] = &[
    b"%%MatrixMarket ",
    b"matrix ",
    b"coordinate ",
    b"array ",
    b"real ",
    b"integer ",
    b"unsigned-integer ",
    b"pattern ",
    b"complex ",
    b"general\n",
    b"symmetric\n",
    b"skew-symmetric\n",
    b"hermitian\n",
    b"%%AMGX 1 1 rhs\n",
    b"%%NVAMG 2 sorted solution\n",
    b"diagonal",
    b"1D0",
    b"0.4+1",
    b"%",
    b"\r\n",
    b"\n",
    b" ",
    b"\t",
    b"\xef\xbb\xbf",
    b"e+",
    b"1 1 1\n",
];
const NPY: &[&[u8]] = &[
    b"\x93NUMPY",
    b"'descr'",
    b"'<f8'",
    b"'>f4'",
    b"'|b1'",
    b"'<c16'",
    b"'<U8'",
    b"'|S64'",
    b"'fortran_order'",
    b": ",
    b"True",
    b"False",
    b"'shape'",
    b"(",
    b",)",
    b", ",
    b"L",
    b"\n##data\n",
    b"\n##shape\n",
    b"\n##coords\n",
    b"csr",
    b"dia",
];
const HB: &[&[u8]] = &[
    b"RUA",
    b"RSA",
    b"rza",
    b"pua",
    b"CUA",
    b"RUE",
    b"iqa",
    b"(16I5)",
    b"(1P,5D16.8)",
    b"(3E26.18)",
    b"(10F8.3)",
    b"(3(1P,E24.16))",
    b"(8(I9))",
    b"(BZ,",
    b"(T5,",
    b"TL3",
    b"/",
    b"2(",
    b"))",
    b"(1X,9I1)",
    b"(9999I9)",
    b"E+00",
    b"D-400",
    b"\n",
    b"\r\n",
    b"F  ",
    b"M  ",
    b" 1",
    b"-",
    b"+",
    b".",
    b"(",
    b")",
];
const MAT: &[&[u8]] = &[
    b"MATLAB 5.0",
    b"\x89HDF\r\n\x1a\n",
    b"\x00\x01IM",
    b"\x01\x00MI",
    b"\x0e\0\0\0",
    b"\x0f\0\0\0",
    b"\x06\0\0\0\x08\0\0\0",
    b"\x05\0\0\0",
    b"\x09\0\0\0",
    b"\x05\x08\0\0",
    b"\x01\0\x01\0",
    b"\x05\0\x04\0",
    b"Problem",
    b"A",
    b"b",
];
const MSH: &[&[u8]] = &[
    b"$MeshFormat\n",
    b"$EndMeshFormat\n",
    b"$PhysicalNames\n",
    b"$Entities\n",
    b"$Nodes\n",
    b"$EndNodes\n",
    b"$Elements\n",
    b"$NodeData\n",
    b"$EndNodeData\n",
    b"1\n\"fibre\"\n1\n0\n3\n0\n3\n4\n",
    b"2.2 0 8\n",
    b"4.1 0 8\n",
    b"\n",
    b" ",
    b"-1",
    b"1e400",
    b"nan",
    b"99999999999",
];
const MSH_BINARY: &[&[u8]] = &[
    b"$MeshFormat\n",
    b"\n$EndMeshFormat\n",
    b"$Entities\n",
    b"$Nodes\n",
    b"\n$EndNodes\n",
    b"$Elements\n",
    b"2.2 1 8\n\x01\0\0\0\n",
    b"4.1 1 8\n\0\0\0\x01\n",
    b"\x04\0\0\0",
    b"\x02\0\0\0\0\0\0\0",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
];
const VTU: &[&[u8]] = &[
    b"<VTKFile ",
    b"type=\"UnstructuredGrid\"",
    b"byte_order=\"BigEndian\"",
    b"header_type=\"UInt64\"",
    b"<Piece NumberOfPoints=\"4\" NumberOfCells=\"2\">",
    b"<Points>",
    b"<PointData>",
    b"Name=\"fibre\" NumberOfComponents=\"3\"",
    b"</Points>",
    b"<Cells>",
    b"<CellData>",
    b"<DataArray ",
    b"</DataArray>",
    b"format=\"appended\" offset=\"0\"",
    b"format=\"binary\"",
    b"<AppendedData encoding=\"base64\">_",
    b"AAAAAA==",
    b"<!--",
    b"-->",
    b"'",
    b"/>",
    b"99999999999",
];
const TEXT: &[&[u8]] = &[
    b"#",
    b"%",
    b",",
    b" ",
    b"\n",
    b"\t",
    b"e",
    b"nan",
    b"inf",
    b"0x1",
    b"1e400",
    b"1D0",
    b"0.4+1",
    b"\xef\xbb\xbf",
];
const TOML: &[&[u8]] = &[
    b"matrix",
    b"block",
    b"rhs",
    b"coordinates",
    b"[kronecker]",
    b"[solver]",
    b"M",
    b"L",
    b"tau",
    b"scheme",
    b"'gauss-1'",
    b"A=",
    b"B=",
    b"[[",
    b"]]",
    b"{",
    b"}",
    b"\"\"\"",
    b"'",
    b" = ",
    b"\n",
    b"nan",
    b"precond",
    b"restart",
    b"rtol",
];
const WORDS: &[&[u8]] = &[
    b"=",
    b",",
    b":",
    b" ",
    b"+",
    b" then ",
    b"auto",
    b"none",
    b"jacobi",
    b"ildu",
    b"ildu0",
    b"stage",
    b"block=",
    b"fill=",
    b"rows=",
    b"cut=",
    b"whole",
    b"runs",
    b"geometric",
    b"graph",
    b"two-level",
    b"shift=",
    b"gmres",
    b"bicgstab",
    b"minres",
    b"cg",
    b"method=",
    b"restart=",
    b"rtol=",
    b"max_iters=",
    b"device=",
    b"cuda:",
    b"time_limit=",
    b"memory_limit=",
    b"\xc3\xa9",
];
const PROBLEM: &[&[u8]] = &[
    b"stokes:",
    b"laplace:",
    b"spe10:",
    b"radiation:",
    b"poisson-multiphase:",
    b"advection:",
    b"taylor-hood:",
    b"nedelec:",
    b"twophase:",
    b"blackoil:",
    b"random:",
    b"x",
    b",",
    b"=",
    b"tau=",
    b"nu=",
    b"block=",
    b"seed=",
    b"scheme=",
    b"gauss-2",
    b"radau-iia-3",
    b"1e-300",
    b"1e300",
    b"nan",
    b"\xc3\xa9",
];

/// Returns all targets.
pub fn targets() -> Vec<Target> {
    let plain: fn(&[u8], &mut Random) -> Vec<u8> = |input, _| input.to_vec();
    let file =
        |name, samples, words, run| Target { name, samples, words, wrap: plain, intact: <[u8]>::to_vec, run };
    vec![
        file("mtx", samples::matrix_market, MTX, |b| read("x.mtx", b)),
        Target {
            wrap: gzip,
            intact: samples::gzipped,
            ..file("mtx.gz", samples::matrix_market, MTX, |b| read("x.mtx.gz", b))
        },
        file("npy", samples::npy, NPY, |b| read("x.npy", b)),
        Target {
            wrap: archive,
            intact: |b| samples::zipped(b, true),
            ..file("npz", samples::npz, NPY, |b| read("x.npz", b))
        },
        file("petsc", samples::petsc, &[b"\0\x12\x7b\x50", b"\0\x12\x7b\x4e", b"\0\0\0\0"], |b| {
            read("x.petsc", b)
        }),
        file("text", samples::text, TEXT, |b| read("x.txt", b)),
        file("hb", samples::harwell_boeing, HB, |b| read("x.rua", b)),
        file("rb", samples::rutherford_boeing, HB, |b| read("x.rb", b)),
        file("mat", samples::matlab, MAT, |b| read("x.mat", b)),
        Target {
            wrap: compressed,
            intact: samples::packed,
            ..file("mat-v7", samples::matlab_packed, MAT, |b| read("x.mat", b))
        },
        file("msh", samples::gmsh, MSH, mesh),
        file("msh-binary", samples::gmsh_binary, MSH_BINARY, mesh),
        file("vtu", samples::vtu, VTU, mesh),
        file("system", samples::toml, TOML, system),
        file("problem", samples::problems, PROBLEM, problem),
        file("options", samples::options, WORDS, parse::<Options>),
        file("precond", samples::preconditioners, WORDS, parse::<PrecondSpec>),
        file("method", samples::methods, WORDS, parse::<MethodSpec>),
    ]
}

/// Damages mostly the content of the stream, and sometimes the stream itself.
fn gzip(input: &[u8], random: &mut Random) -> Vec<u8> {
    damaged(samples::gzipped(input), random)
}

fn archive(input: &[u8], random: &mut Random) -> Vec<u8> {
    damaged(samples::zipped(input, random.below(2) == 0), random)
}

fn compressed(input: &[u8], random: &mut Random) -> Vec<u8> {
    damaged(samples::packed(input), random)
}

fn damaged(bytes: Vec<u8>, random: &mut Random) -> Vec<u8> {
    if random.below(4) > 0 {
        return bytes;
    }
    crate::mutate::mutate(&[bytes], 1, &[], random)
}

/// Reads the bytes as a matrix and as a vector; one of the two must succeed for the input to count as
/// accepted.
fn read(name: &str, bytes: &[u8]) -> Result<(), Answer> {
    let vector = parse_vector(name, bytes);
    if let Ok(x) = &vector
        && x.values().iter().any(|v| !v.is_finite())
    {
        return Err(Answer::Wrong("a vector with a value that is not finite".into()));
    }
    match parse_matrix(name, bytes) {
        Ok(read) => check(read.matrix),
        Err(e) => match vector {
            Ok(_) => Ok(()),
            Err(other) => match (said(e), said(other)) {
                (Answer::Error(e), Answer::Error(other)) => Err(Answer::Error(format!("{e} | {other}"))),
                (wrong @ Answer::Wrong(_), _) | (_, wrong) => Err(wrong),
            },
        },
    }
}

/// Checks that an accepted matrix is valid in compressed rows.
fn check(matrix: Matrix) -> Result<(), Answer> {
    let (rows, columns) = (matrix.rows(), matrix.columns());
    if matrix.stored() > 1 << 16 || rows > 1 << 16 {
        return Ok(()); // checking it would take most of the run's time
    }
    let a = matrix.into_csr();
    let wrong = |what: &str| Err(Answer::Wrong(format!("a {rows}×{columns} matrix {what}")));
    if (a.rows(), a.columns()) != (rows, columns) || a.row_ptr().len() != rows + 1 {
        return wrong("that has another size by rows");
    }
    if a.row_ptr().last() != Some(&a.nonzeros()) || !a.row_ptr().is_sorted() {
        return wrong("whose rows do not add up");
    }
    for i in 0..rows {
        let (col, values) = a.row(i);
        if !col.is_sorted_by(|j, k| j < k) || col.last().is_some_and(|&j| j as usize >= columns) {
            return wrong("with a row out of order");
        }
        if values.iter().any(|v| !v.is_finite()) {
            return wrong("with a value that is not finite");
        }
    }
    Ok(())
}

/// Checks that an accepted mesh has a positive volume, and its fields a unit vector for each tetrahedron.
fn mesh(bytes: &[u8]) -> Result<(), Answer> {
    use krylith_problems::tets::file::parse_with_directions;
    let (mesh, fields) = parse_with_directions("x.msh", bytes, &["fibre", "sheet"]).map_err(said)?;
    for field in &fields {
        let is_unit = |v: &[f64; 3]| (v.iter().map(|x| x * x).sum::<f64>() - 1.0).abs() < 1e-9;
        if field.vectors.len() != mesh.tetrahedra().len() || !field.vectors.iter().all(is_unit) {
            return Err(Answer::Wrong(format!("vectors {:?}", field.vectors)));
        }
    }
    match mesh.volume() {
        volume if volume > 0.0 => Ok(()),
        volume => Err(Answer::Wrong(format!("a mesh of volume {volume}"))),
    }
}

fn system(bytes: &[u8]) -> Result<(), Answer> {
    SystemFile::parse("x.toml", unicode(bytes)?).map(drop).map_err(said)
}

/// Generates small problems and checks that their full text generates the same; large ones only take time.
fn problem(bytes: &[u8]) -> Result<(), Answer> {
    let text = unicode(bytes)?;
    let size = text.split(',').next().and_then(|head| head.split_once(':')).map_or("", |(_, size)| size);
    let sizes = size.split('x').map(|n| n.trim().parse::<usize>().unwrap_or(0));
    if sizes.fold(1usize, |n, m| n.saturating_mul(m.max(1))) > 150 {
        return Err(Answer::Error("too large to try".into()));
    }
    let whole = krylith_problems::generate(text).map_err(said)?;
    if whole.rhs.iter().any(|v| !v.is_finite()) {
        return Err(Answer::Wrong("a right-hand side with a value that is not finite".into()));
    }
    match krylith_problems::generate(&whole.spec) {
        Ok(again) if again.spec == whole.spec => Ok(()),
        Ok(again) => Err(Answer::Wrong(format!("`{}` generates `{}`", whole.spec, again.spec))),
        Err(e) => Err(Answer::Wrong(format!("its own text is refused: {e}"))),
    }
}

/// Checks that an accepted text, when printed, parses to the same value.
fn parse<T: FromStr<Err = Error> + Display + PartialEq>(bytes: &[u8]) -> Result<(), Answer> {
    let text = unicode(bytes)?;
    let value: T = text.parse().map_err(said)?;
    let printed = value.to_string();
    match printed.parse::<T>() {
        Ok(again) if again == value => Ok(()),
        Ok(_) => Err(Answer::Wrong(format!("it prints as `{printed}`, which means something else"))),
        Err(e) => Err(Answer::Wrong(format!("it prints as `{printed}`, which is refused: {e}"))),
    }
}

fn unicode(bytes: &[u8]) -> Result<&str, Answer> {
    std::str::from_utf8(bytes).map_err(|_| Answer::Error("no Unicode".into()))
}

fn said(error: Error) -> Answer {
    match error {
        Error::Internal(message) => Answer::Wrong(message),
        other => Answer::Error(other.to_string()),
    }
}
