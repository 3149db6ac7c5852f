use std::io::Write;

use super::super::samples::malformed;
use super::super::source::torture;
use super::*;

fn csr(text: &str) -> Result<Csr> {
    parse(Path::new("a.mtx"), text.as_bytes())
}

fn array(text: &str) -> Result<Array> {
    parse_array(Path::new("a.mtx"), text.as_bytes())
}

fn full(a: &Csr) -> Vec<Vec<f64>> {
    (0..a.rows()).map(|i| (0..a.columns()).map(|j| a.get(i, j)).collect()).collect()
}

const GENERAL: &str = "%%MatrixMarket matrix coordinate real general\n% a comment\n\n 3 4 5 \n\
    3 1 3.5\n1 4 -1e-2\n\n% between\n1 1 1\r\n\t2  2\t+2.25  \n1 4 1.0D-2";

#[test]
fn general_coordinates() {
    let a = csr(GENERAL).unwrap();
    assert_eq!((a.rows(), a.columns(), a.nonzeros()), (3, 4, 4));
    assert_eq!(full(&a), [[1.0, 0.0, 0.0, 0.0], [0.0, 2.25, 0.0, 0.0], [3.5, 0.0, 0.0, 0.0]]);
}

#[test]
fn symmetric_skew_pattern_integer() {
    let a = csr("%%matrixmarket MATRIX Coordinate Real Symmetric\n2 2 2\n1 1 4\n2 1 -1\n").unwrap();
    assert_eq!(full(&a), [[4.0, -1.0], [-1.0, 0.0]]);
    let upper = csr("%%MatrixMarket matrix coordinate real symmetric\n2 2 2\n1 1 4\n1 2 -1\n").unwrap();
    assert_eq!(full(&upper), full(&a));
    let a = csr("%%MatrixMarket matrix coordinate integer skew-symmetric\n2 2 1\n2 1 7\n").unwrap();
    assert_eq!(full(&a), [[0.0, -7.0], [7.0, 0.0]]);
    let a = csr("%%MatrixMarket matrix coordinate unsigned-integer general\n2 2 2\n1 1 4\n2 2 2\n").unwrap();
    assert_eq!(full(&a), [[4.0, 0.0], [0.0, 2.0]]);
    let a = csr("%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 0.4+1\n2 2 3.14-114\n").unwrap();
    assert_eq!(full(&a), [[4.0, 0.0], [0.0, 3.14e-114]]);
    let a = csr("%%MatrixMarket matrix coordinate pattern general\n2 3 2\n1 3\n2 1\n").unwrap();
    assert_eq!(full(&a), [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]);
}

#[test]
fn arrays() {
    let text = "%%MatrixMarket matrix array real general\n2 3\n1\n0\n2\n5\n% c\n\n3\n6\n";
    assert_eq!(array(text).unwrap(), Array::new(vec![2, 3], vec![1.0, 2.0, 3.0, 0.0, 5.0, 6.0]).unwrap());
    let a = csr(text).unwrap();
    assert_eq!((full(&a), a.nonzeros()), (vec![vec![1.0, 2.0, 3.0], vec![0.0, 5.0, 6.0]], 5));
    let symmetric = "%%MatrixMarket matrix array real symmetric\n2 2\n1\n2\n3\n";
    assert_eq!(array(symmetric).unwrap().values(), [1.0, 2.0, 2.0, 3.0]);
    let skew = "%%MatrixMarket matrix array real skew-symmetric\n2 2\n2\n";
    assert_eq!(array(skew).unwrap().values(), [0.0, -2.0, 2.0, 0.0]);
    let column = "%%MatrixMarket matrix array integer general\n3 1\n1\n-2\n3";
    assert_eq!(array(column).unwrap(), Array::vector(vec![1.0, -2.0, 3.0]));
    let sparse = "%%MatrixMarket matrix coordinate real general\n3 1 2\n3 1 9\n3 1 1\n";
    assert_eq!(array(sparse).unwrap(), Array::vector(vec![0.0, 0.0, 10.0]));
    let empty = array("%%MatrixMarket matrix array real general\n0 0\n").unwrap();
    assert_eq!(empty.shape(), [0, 0]);
}

/// diag(2, 3, 4) as AmgX writes it, and b of x = (1, 2, 3).
const AMGX: &str =
    "%%MatrixMarket matrix coordinate real general\n%%AMGX 1 1 rhs\n3 3 3\n1 1 2\n2 2 3\n3 3 4\n2\n6\n12\n";

#[test]
fn vectors_behind_the_entries_of_amgx() {
    let read = |text: &str| parse_all(Path::new("a.mtx"), text.as_bytes());
    let whole = read(AMGX).unwrap();
    assert_eq!(full(&whole.matrix), [[2.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 4.0]]);
    assert_eq!((whole.rhs, whole.block), (Some(vec![2.0, 6.0, 12.0]), None));
    assert_eq!(array(AMGX).unwrap().values(), [2.0, 6.0, 12.0]);
    // Files of older AmgX versions, several numbers per line, a solution after b, and blocks.
    let solved = AMGX
        .replace("%%AMGX 1 1 rhs", "%\n%%NVAMG 3 sorted rhs solution")
        .replace("2\n6\n12\n", "2 6\n12\n% x\n1 2 3\n");
    let whole = read(&solved).unwrap();
    assert_eq!((whole.rhs, whole.block), (Some(vec![2.0, 6.0, 12.0]), Some(3)));
    let bare = AMGX.replace(" rhs", "").replace("2\n6\n12\n", "");
    assert_eq!(read(&bare).unwrap().rhs, None);
    for (from, to, line, words) in [
        ("1 1 rhs", "1 1 diagonal", 2, "an AmgX file with a separate diagonal"),
        ("1 1 rhs", "1 1 base0 rhs", 2, "indices from 0"),
        ("1 1 rhs", "2 3 rhs", 2, "2×3 blocks"),
        ("1 1 rhs", "1 1 lhs", 2, "the unknown word `lhs`"),
        ("\n12\n", "\n", 9, "2 of 3 numbers of the right-hand side after the entries"),
        ("\n12\n", "\n12\n5\n", 10, "unexpected text after the vectors: `5`"),
        ("\n12\n", "\n12 5\n", 9, "more than the 3 expected numbers"),
        ("\n12\n", "\nx\n", 9, "in the right-hand side, `x` is not a number in `x`"),
        (" rhs\n", "\n", 7, "column index is missing"),
    ] {
        assert!(AMGX.contains(from), "{from}");
        let message = read(&AMGX.replacen(from, to, 1)).map(|_| ()).unwrap_err().to_string();
        assert!(message.starts_with(&format!("a.mtx:{line}: ")) && message.contains(words), "{message}");
    }
}

#[test]
fn errors_name_line_and_reason() {
    for (text, line, word) in malformed() {
        let error =
            if text.contains(" array ") { array(&text).unwrap_err() } else { csr(&text).unwrap_err() };
        let message = error.to_string();
        assert!(message.starts_with(&format!("a.mtx:{line}: ")), "{text:?}: {message}");
        assert!(message.contains(word), "{text:?}: {message}");
    }
}

#[test]
fn sums_that_overflow_name_the_entry() {
    let text = "%%MatrixMarket matrix coordinate real general\n2 2 2\n2 1 1.7e308\n2 1 1.7e308\n";
    assert!(matches!(csr(text), Err(Error::NotFinite { row: 1, column: 0, .. })));
}

#[test]
fn malicious_sizes_allocate_nothing() {
    let rows = "%%MatrixMarket matrix coordinate real general\n4000000000 1 1\n1 1 1\n";
    assert!(csr(rows).unwrap_err().to_string().contains("4000000000 rows"));
    assert!(array("%%MatrixMarket matrix array real general\n4000000000 4000000000\n1\n").is_err());
    assert!(array("%%MatrixMarket matrix array real general\n0 4000000000\n").is_ok());
    assert!(array("%%MatrixMarket matrix coordinate real general\n9000000 9000000 1\n1 1 1\n").is_err());
    assert!(csr("%%MatrixMarket matrix coordinate real general\n0 0 0\n").is_ok());
}

#[test]
fn damaged_files_never_panic() {
    torture(GENERAL.as_bytes(), parse);
    torture(AMGX.as_bytes(), parse_all);
    torture(b"%%MatrixMarket matrix coordinate real symmetric\n2 2 2\n1 1 1\n2 1 -1.5e-3\n", |p, b| {
        parse(p, b)
    });
    torture(b"%%MatrixMarket matrix array real skew-symmetric\n3 3\n1\n2\n3.5\n", parse_array);
}

/// Entries in a shuffled order over many chunks and buckets, with duplicates, against the plain construction.
#[test]
fn many_chunks_and_buckets() {
    let (rows, columns, count) = (70_000u64, 50_000u64, 300_000);
    let mut state = 7u64;
    let mut random = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state >> 33
    };
    let entries: Vec<(u32, u32, f64)> = (0..count)
        .map(|p| match p % 7 {
            0 => (5, 7, random() as f64 / 3.0), // one entry many times: the sum depends on the order
            _ => ((random() % rows) as u32, (random() % columns) as u32, random() as f64 / 3.0),
        })
        .collect();
    let mut text = format!("%%MatrixMarket matrix coordinate real general\n{rows} {columns} {count}\n");
    for (i, j, v) in &entries {
        text += &format!("{} {} {v:e}\n", i + 1, j + 1);
    }
    let expected = Csr::from_triplets(rows as usize, columns as usize, &entries).unwrap();
    assert_eq!(csr(&text).unwrap(), expected);
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(one.install(|| csr(&text)).unwrap(), expected);

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.mtx");
    write(&path, &expected).unwrap();
    assert_eq!(read(&path).unwrap(), expected);

    // An error in a late chunk is still named by its line.
    let bad = text.len() - 1;
    text.replace_range(bad.., "z\n");
    assert!(csr(&text).unwrap_err().to_string().starts_with(&format!("a.mtx:{}: ", count + 2)));
}

#[test]
fn gzip_and_round_trips() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.mtx.gz");
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gz.write_all(GENERAL.as_bytes()).unwrap();
    std::fs::write(&path, gz.finish().unwrap()).unwrap();
    assert_eq!(read(&path).unwrap(), csr(GENERAL).unwrap());

    let values = vec![0.1, 1.0 / 3.0, -5e-324, f64::MAX, 0.0, -2.5e-7];
    for array in [Array::vector(values.clone()), Array::new(vec![2, 3], values).unwrap()] {
        let path = dir.path().join("x.mtx");
        write_array(&path, &array).unwrap();
        assert_eq!(read_array(&path).unwrap(), array);
    }
}

/// `KRYLITH_MTX=FILE cargo test --release -p krylith-matrix -- --ignored --nocapture parse_speed`
#[test]
#[ignore = "a measurement: writes or reads a file of some 400 MB"]
fn parse_speed() {
    let dir = tempfile::tempdir().unwrap();
    let path = std::env::var_os("KRYLITH_MTX").map_or_else(
        || {
            let n = 1_400_000usize;
            let mut entries = Vec::new();
            for i in 0..n {
                for (p, o) in [-1200i64, -110, -1, 0, 1, 110, 1200].into_iter().enumerate() {
                    let j = i as i64 + o;
                    if j >= 0 && j < n as i64 {
                        entries.push((i as u32, j as u32, ((i * 7 + p) as f64 * 0.618).sin()));
                    }
                }
            }
            let path = dir.path().join("speed.mtx");
            write(&path, &Csr::from_triplets(n, n, &entries).unwrap()).unwrap();
            path
        },
        Into::into,
    );
    let bytes = std::fs::metadata(&path).unwrap().len();
    let cpu_seconds = || {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let ticks = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(11).take(2);
        ticks.filter_map(|t| t.parse::<f64>().ok()).sum::<f64>() / 100.0
    };
    for _ in 0..5 {
        let (start, cpu) = (std::time::Instant::now(), cpu_seconds());
        let a = read(&path).unwrap();
        let seconds = start.elapsed().as_secs_f64();
        let cpu = cpu_seconds() - cpu;
        let speed = bytes as f64 * 1e-9 / seconds;
        println!(
            "{} entries, {bytes} bytes: {seconds:.3} s ({cpu:.2} s of CPU), {speed:.2} GB/s",
            a.nonzeros()
        );
    }
}

/// The complex entries of a real form: every block is [[a, −b], [b, a]].
fn entries(a: &Csr) -> Vec<Vec<[f64; 2]>> {
    let of = |i: usize, j: usize| {
        let (re, im) = (a.get(2 * i, 2 * j), a.get(2 * i + 1, 2 * j));
        assert_eq!([a.get(2 * i, 2 * j + 1), a.get(2 * i + 1, 2 * j + 1)], [-im, re]);
        [re, im]
    };
    (0..a.rows() / 2).map(|i| (0..a.columns() / 2).map(|j| of(i, j)).collect()).collect()
}

#[test]
fn complex_matrices_are_real_ones_of_blocks() {
    let read = |text: &str| entries(&csr(&format!("%%MatrixMarket matrix {text}")).unwrap());
    let general =
        read("coordinate complex general\n2 3 4\n1 1 1 2\n2 3 -3 4e0\n% c\n1 1 0.5 -1\n2 1  0\t1 \n");
    assert_eq!(general, [[[1.5, 1.0], [0.0; 2], [0.0; 2]], [[0.0, 1.0], [0.0; 2], [-3.0, 4.0]]]);
    let lower = "2 2 2\n1 1 1 0\n2 1 2 3\n";
    let of = |symmetry: &str| read(&format!("coordinate complex {symmetry}\n{lower}"));
    assert_eq!(of("symmetric"), [[[1.0, 0.0], [2.0, 3.0]], [[2.0, 3.0], [0.0; 2]]]);
    assert_eq!(of("hermitian"), [[[1.0, 0.0], [2.0, -3.0]], [[2.0, 3.0], [0.0; 2]]]);
    let skew = read("coordinate complex skew-symmetric\n2 2 1\n2 1 2 3\n");
    assert_eq!(skew, [[[0.0; 2], [-2.0, -3.0]], [[2.0, 3.0], [0.0; 2]]]);
    let lower = "2 2\n1 0\n2 3\n4 0\n";
    let of = |symmetry: &str| read(&format!("array complex {symmetry}\n{lower}"));
    assert_eq!(of("symmetric"), [[[1.0, 0.0], [2.0, 3.0]], [[2.0, 3.0], [4.0, 0.0]]]);
    assert_eq!(of("hermitian"), [[[1.0, 0.0], [2.0, -3.0]], [[2.0, 3.0], [4.0, 0.0]]]);
    assert_eq!(read("array complex general\n1 2\n1 2\n3 -4\n"), [[[1.0, 2.0], [3.0, -4.0]]]);
}

#[test]
fn complex_arrays() {
    let read = |text: &str| array(&format!("%%MatrixMarket matrix {text}")).unwrap();
    let column = Array::complex(vec![2], vec![1.0, 2.0, 3.0, -4.0]).unwrap();
    assert_eq!(read("array complex general\n2 1\n1 2\n3 -4\n"), column);
    let two = Array::complex(vec![2, 2], vec![1.0, 2.0, 5.0, 6.0, 3.0, -4.0, 7.0, 8.0]).unwrap();
    assert_eq!(read("array complex general\n2 2\n1 2\n3 -4\n5 6\n7 8\n"), two);
    let sparse = Array::complex(vec![3], vec![0.0, 0.0, 0.0, 0.0, 1.0, -2.0]).unwrap();
    assert_eq!(read("coordinate complex general\n3 1 1\n3 1 1 -2\n"), sparse);
    let dir = tempfile::tempdir().unwrap();
    for array in [column, two] {
        write_array(dir.path().join("x.mtx"), &array).unwrap();
        assert_eq!(read_array(dir.path().join("x.mtx")).unwrap(), array);
    }
}

#[test]
fn faults_of_complex_files_name_the_line() {
    for (text, line, word) in [
        ("coordinate complex general\n1 1 1\n1 1 1     \n", 3, "the imaginary part is missing"),
        ("coordinate complex general\n1 1 1\n1 1 1 x\n", 3, "`x` is not a number"),
        ("coordinate complex general\n1 1 1\n1 1 1 2 3\n", 3, "unexpected text"),
        ("coordinate complex general\n1 1 1\n1 1 1 nan\n", 3, "NaN"),
        ("coordinate complex hermitian\n1 1 1\n1 1 1 2\n", 3, "must be real"),
        ("coordinate complex skew-symmetric\n1 1 1\n1 1 0 2\n", 3, "zero diagonal"),
        ("array complex hermitian\n1 1\n1 2\n", 3, "must be real"),
        ("array complex general\n1 1\n1    \n", 3, "the imaginary part is missing"),
        ("coordinate complex general\n1 1 9\n1 1 1 2\n", 2, "cut short"),
        ("coordinate real hermitian\n1 1 1\n1 1 1\n", 1, "declare a real one `symmetric`"),
    ] {
        let message = csr(&format!("%%MatrixMarket matrix {text}")).unwrap_err().to_string();
        assert!(message.starts_with(&format!("a.mtx:{line}:")) && message.contains(word), "{message}");
    }
}

#[test]
fn damaged_complex_files_never_panic() {
    for text in [
        "%%MatrixMarket matrix coordinate complex hermitian\n2 2 2\n1 1 1 0\n2 1 2 3\n",
        "%%MatrixMarket matrix array complex symmetric\n2 2\n1 0\n2 3\n4 0\n",
    ] {
        torture(text.as_bytes(), parse);
        torture(text.as_bytes(), parse_array);
    }
}
