//! Files put together byte by byte from the format's description.

use super::super::source::torture;
use super::*;
use std::io::Write;

/// Writes elements in either byte order.
#[derive(Clone, Copy)]
struct Writer {
    big: bool,
}

impl Writer {
    fn words(self, list: &[u32]) -> Vec<u8> {
        list.iter().flat_map(|n| if self.big { n.to_be_bytes() } else { n.to_le_bytes() }).collect()
    }

    fn doubles(self, list: &[f64]) -> Vec<u8> {
        list.iter().flat_map(|v| if self.big { v.to_be_bytes() } else { v.to_le_bytes() }).collect()
    }

    fn element(self, kind: u32, data: &[u8]) -> Vec<u8> {
        let mut out = self.words(&[kind, data.len() as u32]);
        out.extend(data);
        out.resize(out.len().next_multiple_of(8), 0);
        out
    }

    /// At most four bytes beside the tag.
    fn small(self, kind: u32, data: &[u8]) -> Vec<u8> {
        let mut out = self.words(&[(data.len() as u32) << 16 | kind]);
        out.extend(data);
        out.resize(8, 0);
        out
    }

    fn head(self, class: u32, shape: &[u32], name: &str) -> Vec<u8> {
        let name = if name.len() <= 4 && !name.is_empty() {
            self.small(1, name.as_bytes())
        } else {
            self.element(1, name.as_bytes())
        };
        [self.element(6, &self.words(&[class, 0])), self.element(5, &self.words(shape)), name].concat()
    }

    fn sparse(self, name: &str, shape: [u32; 2], row: &[u32], col_ptr: &[u32], values: &[f64]) -> Vec<u8> {
        let parts = [
            self.head(5, &shape, name),
            self.element(5, &self.words(row)),
            self.element(5, &self.words(col_ptr)),
            self.element(9, &self.doubles(values)),
        ];
        self.element(14, &parts.concat())
    }

    fn dense(self, name: &str, shape: &[u32], values: &[f64]) -> Vec<u8> {
        self.element(14, &[self.head(6, shape, name), self.element(9, &self.doubles(values))].concat())
    }

    fn record(self, name: &str, fields: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let names: Vec<u8> = fields
            .iter()
            .flat_map(|(name, _)| {
                let mut padded = name.as_bytes().to_vec();
                padded.resize(8, 0);
                padded
            })
            .collect();
        let mut parts =
            vec![self.head(2, &[1, 1], name), self.small(5, &self.words(&[8])), self.element(1, &names)];
        parts.extend(fields.iter().map(|(_, array)| array.clone()));
        self.element(14, &parts.concat())
    }

    fn packed(self, element: &[u8]) -> Vec<u8> {
        let mut z = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        z.write_all(element).unwrap();
        let data = z.finish().unwrap();
        [self.words(&[15, data.len() as u32]), data].concat()
    }

    fn file(self, elements: &[Vec<u8>]) -> Vec<u8> {
        let mut out = b"MATLAB 5.0 MAT-file, written by a test".to_vec();
        out.resize(124, b' ');
        out.extend(if self.big { *b"\x01\x00MI" } else { *b"\x00\x01IM" });
        [out, elements.concat()].concat()
    }

    /// [1 0 2; 0 3 0; 4 0 0], with room for more entries than there are.
    fn a(self, name: &str) -> Vec<u8> {
        self.sparse(name, [3, 3], &[0, 2, 1, 0, 9, 9], &[0, 2, 3, 4], &[1.0, 4.0, 3.0, 2.0])
    }
}

/// A whole file with the matrix of these tests and a right-hand side, compressed.
pub fn sample() -> Vec<u8> {
    let w = Writer { big: false };
    w.file(&[w.packed(&w.a("A")), w.packed(&w.dense("b", &[3, 1], &[7.0, 8.0, 9.0]))])
}

const BOTH: [Writer; 2] = [Writer { big: false }, Writer { big: true }];

fn expected() -> Csr {
    Csr::from_triplets(3, 3, &[(0, 0, 1.0), (0, 2, 2.0), (1, 1, 3.0), (2, 0, 4.0)]).unwrap()
}

fn read(bytes: &[u8]) -> Result<(Csr, Option<Vec<f64>>)> {
    parse(Path::new("a.mat"), bytes)
}

#[test]
fn the_one_sparse_matrix_of_a_file() {
    for w in BOTH {
        let b = w.dense("b", &[3, 1], &[7.0, 8.0, 9.0]);
        let other = [w.dense("tau", &[1, 1], &[0.5]), w.dense("x", &[2, 2], &[f64::NAN; 4])];
        let text = w.element(14, &[w.head(4, &[1, 2], "note"), w.small(4, &[65, 0, 66, 0])].concat());
        for packed in [false, true] {
            let pack = |e: Vec<u8>| if packed { w.packed(&e) } else { e };
            let only = w.file(&[pack(w.a("A"))]);
            assert!(is_matlab(&only));
            assert_eq!(read(&only).unwrap(), (expected(), None));
            // An object has a name where others have sizes. The last element is one that only MATLAB can
            // read.
            let object = [w.element(6, &w.words(&[17, 0])), w.small(1, b"s"), w.small(1, b"MCOS")].concat();
            let own = [w.head(9, &[1, 3], ""), w.small(2, &[1, 2, 3])].concat();
            let extra = [w.element(14, &object), w.a("A"), w.element(14, &own)].map(&pack);
            assert_eq!(read(&w.file(&extra)).unwrap(), (expected(), None));
            let more = w.file(&[
                pack(text.clone()),
                pack(other[0].clone()),
                pack(w.a("a_long_name")),
                pack(other[1].clone()),
                pack(b.clone()),
            ]);
            assert_eq!(read(&more).unwrap(), (expected(), Some(vec![7.0, 8.0, 9.0])));
        }
    }
}

#[test]
fn the_struct_of_suitesparse() {
    for w in BOTH {
        let title = w.element(14, &[w.head(4, &[1, 1], ""), w.small(16, b"t")].concat());
        let fields = [
            ("title", title),
            ("A", w.a("")),
            ("Zeros", w.sparse("", [3, 3], &[1], &[0, 1, 1, 1], &[1.0])),
            ("empty", w.element(14, &[])),
            ("b", w.dense("", &[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
        ];
        let bytes = w.file(&[w.packed(&w.record("Problem", &fields))]);
        assert_eq!(read(&bytes).unwrap(), (expected(), Some(vec![1.0, 2.0, 3.0])));
        let array = parse_array(Path::new("a.mat"), &bytes).unwrap();
        assert_eq!(array, Array::new(vec![3, 2], vec![1.0, 4.0, 2.0, 5.0, 3.0, 6.0]).unwrap());
        // A right-hand side may be sparse, and any struct may hold the matrix.
        let fields = [("K", w.a("")), ("b", w.sparse("", [3, 1], &[1], &[0, 1], &[5.0]))];
        let bytes = w.file(&[w.record("model", &fields)]);
        assert_eq!(read(&bytes).unwrap(), (expected(), Some(vec![0.0, 5.0, 0.0])));
    }
}

#[test]
fn values_may_be_stored_short_and_logical() {
    let w = BOTH[0];
    // The second as MATLAB has written it: bytes that are called doubles.
    for kind in [2, 9] {
        let parts = [
            w.head(5 | 0x200, &[2, 2], "A"),
            w.element(5, &w.words(&[0, 1])),
            w.element(5, &w.words(&[0, 1, 2])),
            w.small(kind, &[1, 1]),
        ];
        let (a, _) = read(&w.file(&[w.element(14, &parts.concat())])).unwrap();
        assert_eq!(a, Csr::from_triplets(2, 2, &[(0, 0, 1.0), (1, 1, 1.0)]).unwrap(), "type {kind}");
    }
}

#[test]
fn vectors_are_found() {
    let w = BOTH[0];
    let vector = |elements: &[Vec<u8>]| parse_array(Path::new("a.mat"), &w.file(elements));
    let (b, c) = (w.dense("b", &[2, 1], &[1.0, 2.0]), w.dense("c", &[1, 2], &[3.0, 4.0]));
    assert_eq!(vector(std::slice::from_ref(&c)).unwrap(), Array::new(vec![1, 2], vec![3.0, 4.0]).unwrap());
    assert_eq!(vector(&[c.clone(), b]).unwrap(), Array::vector(vec![1.0, 2.0]));
    let d = w.dense("d", &[1, 2], &[3.0, 4.0]);
    assert!(vector(&[c, d]).unwrap_err().to_string().contains("c, d"));
    assert!(vector(&[w.a("A")]).unwrap_err().to_string().contains("no dense array"));
    let nan = w.dense("b", &[1, 2], &[0.0, f64::NAN]);
    assert!(vector(&[nan]).unwrap_err().to_string().contains("`b`: entry (0, 1) is NaN"));
}

#[test]
fn errors_say_what() {
    let w = BOTH[0];
    let complex = {
        let parts = [
            w.head(5 | 0x800, &[1, 1], "Z"),
            w.element(5, &w.words(&[0])),
            w.element(5, &w.words(&[0, 1])),
            w.element(9, &w.doubles(&[1.0])),
            w.element(9, &w.doubles(&[2.0])),
        ];
        w.element(14, &parts.concat())
    };
    let mut hdf5 = vec![b' '; 512];
    hdf5.extend(HDF5);
    let (a, tail) = (w.a("A"), 8);
    let mut damaged = w.packed(&a);
    let at = damaged.len() - 3;
    damaged[at] ^= 1;
    for (bytes, word) in [
        (vec![], "level 5"),
        (hdf5, "-v7"),
        (HDF5.to_vec(), "-v7.3"),
        (w.file(&[]), "no sparse matrix"),
        (w.file(&[w.dense("D", &[2, 2], &[1.0; 4])]), "sparse(A)"),
        (w.file(&[w.a("K"), w.a("M")]), "this MAT-file has 2 sparse matrices (K, M)"),
        (
            w.file(&[w.a("A"), w.dense("b", &[2, 1], &[1.0; 2])]),
            "`b` is 2×1, but a right-hand side of `A` has 3 numbers",
        ),
        (w.file(&[complex]), "`Z` has complex numbers: complex numbers are read from Matrix Market"),
        (w.file(&[a[..a.len() - tail].to_vec()]), "at byte 128: an element of"),
        (w.file(&[damaged]), "at byte 128: the compressed data is damaged"),
        (w.file(&[w.sparse("A", [2, 2], &[0, 2], &[0, 1, 2], &[1.0; 2])]), "row index 2 of entry 1"),
        (w.file(&[w.sparse("A", [2, 2], &[0, 1], &[0, 1], &[1.0; 2])]), "2 column pointers for 2 columns"),
        (w.file(&[w.sparse("A", [2, 2], &[0, 1], &[0, 2, 1], &[1.0; 2])]), "do not run from 0"),
        (w.file(&[w.sparse("A", [2, 2], &[0, 1], &[1, 1, 2], &[1.0; 2])]), "do not run from 0"),
        (w.file(&[w.sparse("A", [2, 2], &[0, 1], &[0, 1, 3], &[1.0; 2])]), "at most 2 entries"),
        (w.file(&[w.sparse("A", [2, 2], &[0, 1], &[0, 1, u32::MAX], &[1.0; 2])]), "hold -1"),
        (w.file(&[w.sparse("A", [2, 2], &[0, 1], &[0, 1, 2], &[1.0])]), "1 values for 2 entries"),
        (w.file(&[w.sparse("A", [2, 2], &[0, 1], &[0, 1, 2], &[1.0, f64::INFINITY])]), "entry (1, 1) is inf"),
        (w.file(&[w.sparse("A", [2_000_000_000, 1], &[0], &[0, 1], &[1.0])]), "2000000000"),
    ] {
        let message = read(&bytes).unwrap_err().to_string();
        assert!(message.contains("a.mat") && message.contains(word), "{word}: {message}");
    }
}

#[test]
fn damaged_files_never_panic() {
    for w in BOTH {
        let fields = [("A", w.a("")), ("b", w.dense("", &[3, 1], &[1.0, 2.0, 3.0]))];
        let bytes = w.file(&[w.record("Problem", &fields)]);
        torture(&bytes, parse);
        torture(&bytes, parse_array);
        torture(&w.file(&[w.packed(&w.a("A"))]), parse);
    }
}
