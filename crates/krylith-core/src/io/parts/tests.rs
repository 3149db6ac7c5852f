//! Reading by parts against the whole-file readers: values, block sizes, errors, for 1 to 8 ranks.

// Files with which the whole-file readers are tested.
#[path = "../../../../krylith-matrix/src/io/samples.rs"]
mod samples;

use super::*;
use crate::comm::Team;
use crate::io::{self, Matrix, SystemMatrix, numpy, petsc as whole_petsc, read_system};
use crate::operator::Terms;

use std::fmt::Write as _;

/// The result of each rank.
fn by_parts(
    ranks: usize,
    path: &Path,
    block: Option<usize>,
    cut: Partitioner,
    batch: usize,
) -> Vec<Result<ReadRows, String>> {
    let read = |comm: std::sync::Arc<crate::comm::TeamRank>| {
        Ok(read_in_batches(&*comm, path, block, cut, batch).map_err(|e| e.to_string()))
    };
    Team::run(ranks, read).unwrap()
}

/// The rows of all ranks together, term by term, and their sizes by rank.
fn joined(parts: &[ReadRows]) -> (Vec<(Dense, RowBlocks)>, Vec<usize>) {
    let mut terms = parts[0].rows.terms.clone();
    terms.iter_mut().for_each(|(_, a)| *a = RowBlocks { row_ptr: vec![0], ..Default::default() });
    let mut next = 0;
    for part in parts {
        for (i, &number) in part.rows.numbers.iter().enumerate() {
            assert_eq!(number, next + i as u64);
        }
        next += part.rows.numbers.len() as u64;
        for ((c, a), (d, b)) in terms.iter_mut().zip(&part.rows.terms) {
            assert_eq!((&*c, b.row_ptr.len()), (d, part.rows.numbers.len() + 1));
            let end = a.col.len();
            a.row_ptr.extend(b.row_ptr[1..].iter().map(|p| p + end));
            a.col.extend(&b.col);
            a.values.extend(&b.values);
        }
    }
    (terms, parts.iter().map(|p| p.rows.numbers.len()).collect())
}

fn row_blocks(a: &Bsr) -> RowBlocks {
    let col = a.col().iter().map(|&j| u64::from(j)).collect();
    RowBlocks { row_ptr: a.row_ptr().to_vec(), col, values: a.values().to_vec() }
}

/// Reads with 1 to 8 ranks and compares everything with the whole-file reader.
fn compare(path: &Path, block: Option<usize>, batch: usize) {
    let whole = read_system(path).unwrap();
    let stages = whole.operator.stages();
    let (expected, stored) = match &whole.operator {
        SystemMatrix::Matrix(a) => {
            let csr = a.clone().into_csr();
            let b = block.or(whole.block_hint).unwrap_or_else(|| suited_block(&csr).block);
            let blocks = Bsr::from_csr(&csr, b).unwrap();
            (vec![(Dense::identity(1), blocks)], a.stored())
        }
        SystemMatrix::Kronecker(k) => {
            let terms = Terms::kronecker(k).terms;
            let terms = terms.into_iter().map(|(c, a)| (c, a.into_owned())).collect();
            (terms, k.m.values().len() + k.l.values().len())
        }
    };
    let (b, nodes) = (expected[0].1.block(), expected[0].1.block_rows());
    let terms: Terms = Terms {
        terms: expected.iter().map(|(c, a)| (c.clone(), std::borrow::Cow::Borrowed(a))).collect(),
        halo: None,
    };
    let rhs = whole.rhs.clone().map(|rhs| whole.unknowns("b", rhs).unwrap());
    for ranks in 1..=8 {
        for cut in [Partitioner::Rows, Partitioner::Nonzeros] {
            let parts = by_parts(ranks, path, block, cut, batch);
            let parts: Vec<_> = parts.into_iter().map(|p| p.unwrap()).collect();
            let (found, sizes) = joined(&parts);
            for ((c, a), (d, b)) in found.iter().zip(&expected) {
                assert_eq!((c, a), (d, &row_blocks(b)), "{path:?}, {ranks} ranks");
            }
            let partition = cut.partition(&terms, None, ranks).unwrap();
            let expected: Vec<usize> = partition.rows().iter().map(Vec::len).collect();
            assert_eq!(sizes, expected, "{path:?}, {ranks} ranks by {}", cut.name());
            let one = &parts[0];
            assert_eq!((one.rows.block, one.nodes), (b, nodes));
            if stages == 1 {
                assert_eq!(one.stored, stored);
            }
            if let Some(rhs) = &rhs {
                let all: Vec<f64> = parts.iter().flat_map(|p| p.rhs.clone().unwrap()).collect();
                assert_eq!(&all, rhs);
            }
            if let Some(points) = &whole.coordinates {
                let all: Vec<_> = parts.iter().flat_map(|p| p.coordinates.clone().unwrap()).collect();
                assert_eq!(&all, points);
            }
        }
    }
}

/// Every rank gets the whole-file reader's error.
fn compare_errors(path: &Path, ranks: &[usize], batch: usize) {
    let expected = read_system(path).unwrap_err().to_string();
    for &ranks in ranks {
        for (rank, found) in by_parts(ranks, path, None, Partitioner::Rows, batch).into_iter().enumerate() {
            assert_eq!(found.map(|_| ()).unwrap_err(), expected, "rank {rank} of {ranks}");
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}

/// A file of `nodes` nodes of `b` unknowns with nearly full blocks, in any order, with duplicates and empty
/// nodes.
fn text(rng: &mut Random, b: usize, nodes: usize, field: &str, symmetry: &str, end: &str) -> String {
    let mut lines = Vec::new();
    for _ in 0..4 * nodes {
        let (i, j) = (rng.below(nodes), rng.below(nodes));
        if i % 7 == 3 || j % 7 == 3 {
            continue;
        }
        for r in 0..b {
            for c in 0..b {
                let (row, column) = (i * b + r, j * b + c);
                let (row, column) =
                    if symmetry == "general" { (row, column) } else { (row.max(column), row.min(column)) };
                if symmetry == "skew-symmetric" && row == column {
                    continue;
                }
                let mut line = format!("{} {}", row + 1, column + 1);
                match field {
                    "pattern" => {}
                    "integer" => _ = write!(line, " {}", rng.below(1000) as i64 - 500),
                    _ => _ = write!(line, "\t{:e}", (rng.below(1 << 30) as f64 - 5e8) / 3.0),
                }
                lines.push(line);
            }
        }
    }
    let n = b * nodes;
    let mut text = format!("%%MatrixMarket matrix coordinate {field} {symmetry}{end}% about it{end}{end}");
    _ = write!(text, "{n} {n} {}{end}", lines.len());
    while !lines.is_empty() {
        let at = rng.below(lines.len());
        let line = lines.swap_remove(at);
        match rng.below(9) {
            0 => text += &format!("% a remark{end}  {line}  {end}"),
            1 => text += &format!("{end}{line}{end}"),
            _ => text += &format!("{line}{end}"),
        }
    }
    text
}

#[test]
fn matrix_market_as_the_whole_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.mtx");
    let mut rng = Random(3);
    for (p, symmetry) in ["general", "symmetric", "skew-symmetric"].into_iter().enumerate() {
        for (field, b, nodes, end) in [
            ("real", 3, 14, "\n"),
            ("pattern", 1, 5, "\r\n"),
            ("integer", 2, 31, "\n"),
            ("real", 4, 50, "\r\n"),
        ] {
            let mut text = text(&mut rng, b, nodes, field, symmetry, end);
            match p {
                0 => text += "\n  \n% the end\n\n",
                1 => _ = text.pop(), // no line end at the end, or half of one
                _ => {}
            }
            std::fs::write(&path, text).unwrap();
            compare(&path, None, 64);
            compare(&path, Some(1), 1 << 20);
        }
    }
    // A byte-order mark at the start.
    std::fs::write(&path, format!("\u{feff}{}", text(&mut rng, 2, 9, "real", "general", "\n"))).unwrap();
    compare(&path, None, 64);
    // More ranks than rows, one entry, no entry in most ranges.
    std::fs::write(&path, "%%MatrixMarket matrix coordinate real general\n2 2 1\n2 1 7\n\n\n% 1\n%2\n")
        .unwrap();
    compare(&path, None, 1);
}

#[test]
fn malformed_matrix_market_as_the_whole_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.mtx");
    for (text, ..) in samples::malformed() {
        std::fs::write(&path, text).unwrap();
        compare_errors(&path, &[1, 2, 3, 8], 4);
    }
    let mut good = String::from("%%MatrixMarket matrix coordinate real symmetric\n% c\n40 40 200\n");
    (0..200).for_each(|p| good += &format!("{} {} {p}.5\n", p % 40 + 1, (p % 40) * (p % 7) / 7 + 1));
    std::fs::write(&path, &good).unwrap();
    compare(&path, None, 100);
    for (from, to) in [
        ("\n40 40 200\n", "\n40 40 150\n"),
        ("\n40 40 200\n", "\n40 40 203\n"),
        ("120.5", "x"),
        ("190.5", "inf"),
        ("21 6 100.5\n", "21 6 100.5\n\n1 21 3\n"),
        ("21 6 100.5\n", "20 21 1\n"),
        ("\n40 40 200\n", "\n40 40 202\n"),
    ] {
        assert!(good.contains(from), "{from}");
        let mut text = good.replacen(from, to, 1);
        if to.contains("202") {
            text += "33 33 1.7e308\n33 33 1.7e308\n"; // a sum that is not finite
        }
        std::fs::write(&path, text).unwrap();
        compare_errors(&path, &[1, 2, 3, 5, 8], 100);
    }
}

#[test]
fn petsc_as_the_whole_file() {
    let dir = tempfile::tempdir().unwrap();
    let (path, mtx) = (dir.path().join("a.petsc"), dir.path().join("a.mtx"));
    let mut rng = Random(5);
    std::fs::write(&mtx, text(&mut rng, 3, 20, "real", "general", "\n")).unwrap();
    let Matrix::Csr(a) = io::read_matrix(&mtx).unwrap().matrix else { panic!("it is scalar") };
    let x: Vec<f64> = (0..60).map(|i| i as f64 - 7.25).collect();
    whole_petsc::write(&path, &[whole_petsc::Item::Matrix(&a), whole_petsc::Item::Vector(&x)]).unwrap();
    compare(&path, None, 64);
    std::fs::write(dir.path().join("a.petsc.info"), "-matload_block_size 5\n").unwrap();
    compare(&path, None, 64);
    let read = by_parts(3, &path, None, Partitioner::Rows, 64).swap_remove(1).unwrap();
    assert_eq!((read.rows.block, read.block_source, read.whole), (5, BlockSource::File, vec![]));

    // A second matrix: read whole, with a reason.
    let two = [whole_petsc::Item::Matrix(&a), whole_petsc::Item::Matrix(&a)];
    whole_petsc::write(&path, &two).unwrap();
    compare(&path, None, 64);
    let read = by_parts(2, &path, None, Partitioner::Rows, 64).swap_remove(0).unwrap();
    assert!(read.whole[0].contains("more than one Mat"), "{:?}", read.whole);

    let bytes = |list: &[i32]| -> Vec<u8> { list.iter().flat_map(|n| n.to_be_bytes()).collect() };
    let (inf, one) = (0x7ff0_0000, 0x3ff0_0000);
    // Rows unsorted and with duplicates.
    std::fs::write(&path, bytes(&[1211216, 2, 2, 4, 2, 2, 1, 0, 1, 1, one, 0, one, 0, one, 1, one, 2]))
        .unwrap();
    std::fs::remove_file(dir.path().join("a.petsc.info")).unwrap();
    let read = by_parts(2, &path, None, Partitioner::Rows, 64);
    assert_eq!(read[1].as_ref().unwrap().rows.terms[0].1.col, [1]);
    for list in [
        &[][..],
        &[5, 6],
        &[1211216, 2],
        &[1211216, 2, 2, -1],
        &[1211216, -2, 2, 1],
        &[1211216, i32::MAX, 2, 1, 1],
        &[1211216, 3, 3, 1, 0, 1, -1],
        &[1211216, 3, 3, 1, 0, 900, -1],
        &[1211216, 3, 3, 2, 1, 0, 0],
        &[1211216, 2, 2, 2, 1, 1],
        &[1211216, 2, 2, 2, 1, 1, 0, 0, 0],
        &[1211216, 2, 2, 2, 1, 1, 0, 2, one, 0, one, 0],
        &[1211216, 2, 2, 2, 1, 1, 2, -1, one, 0, one, 0],
        &[1211216, 2, 2, 2, 1, 1, 0, 1, one, 0, inf, 0],
        &[1211216, 2, 2, 2, 1, 1, 0, 1, one, 0, one, 0, 99],
        &[1211216, 2, 2, 2, 1, 1, 0, 1, one, 0, one, 0, 1211214, 3, one, 0],
        &[1211216, 2, 2, 2, 1, 1, 0, 1, one, 0, one, 0, 1211214, 2, one, 0, inf, 0],
    ] {
        std::fs::write(&path, bytes(list)).unwrap();
        compare_errors(&path, &[1, 2, 3, 8], 64);
    }
}

/// The results of `read_unknowns` on all ranks, concatenated.
fn unknowns(ranks: usize, path: &Path, rows: usize, stages: usize) -> Result<Vec<f64>, String> {
    let read = |comm: std::sync::Arc<crate::comm::TeamRank>| {
        let own = contiguous(rows, comm.rank(), ranks);
        Ok(read_unknowns(&*comm, path, "b", rows, stages, own).map_err(|e| e.to_string()))
    };
    let parts: Vec<Result<Vec<f64>, String>> = Team::run(ranks, read).unwrap();
    assert!(parts.iter().all(|p| p.as_ref().err() == parts[0].as_ref().err()), "{parts:?}");
    Ok(parts.into_iter().collect::<Result<Vec<_>, _>>()?.concat())
}

#[test]
fn vectors_as_the_whole_file() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let values: Vec<f64> = (0..22).map(|i| i as f64 + 0.5).collect();
    let doubles = |x: &[f64]| -> Vec<u8> { x.iter().flat_map(|v| v.to_le_bytes()).collect() };
    let singles: Vec<u8> = values.iter().flat_map(|v| (*v as f32).to_be_bytes()).collect();
    numpy::write(at("square.npy"), &Array::new(vec![11, 2], values.clone()).unwrap()).unwrap();
    numpy::write(at("flat.npy"), &Array::vector(values.clone())).unwrap();
    std::fs::write(at("fortran.npy"), samples::npy("<f8", true, "(11, 2)", &doubles(&values))).unwrap();
    std::fs::write(at("single.npy"), samples::npy(">f4", true, "(22, 1)", &singles)).unwrap();
    whole_petsc::write(at("x.petsc"), &[whole_petsc::Item::Vector(&values)]).unwrap();
    io::matrix_market::write_array(at("x.mtx"), &Array::new(vec![11, 2], values.clone()).unwrap()).unwrap();
    let mut bad = values.clone();
    (bad[9], bad[13]) = (f64::NAN, f64::INFINITY);
    numpy::write(at("bad.npy"), &Array::new(vec![11, 2], bad.clone()).unwrap()).unwrap();
    numpy::write(at("bad-flat.npy"), &Array::vector(bad.clone())).unwrap();
    std::fs::write(at("bad-fortran.npy"), samples::npy("<f8", true, "(11, 2)", &doubles(&bad))).unwrap();
    whole_petsc::write(at("bad.petsc"), &[whole_petsc::Item::Vector(&bad)]).unwrap();
    numpy::write(at("row.npy"), &Array::new(vec![1, 22], values.clone()).unwrap()).unwrap();
    numpy::write(at("bad-row.npy"), &Array::new(vec![1, 22], bad.clone()).unwrap()).unwrap();
    numpy::write(at("short.npy"), &Array::vector(vec![1.0; 21])).unwrap();
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let whole = io::read_vector(&path)
            .and_then(|x| x.into_unknowns("b", 11, 2).map_err(|e| name_file(&path, e)))
            .map_err(|e| e.to_string());
        let good = path.to_string_lossy().contains("bad") || path.ends_with("short.npy");
        assert_eq!(whole.is_err(), good, "{path:?}");
        for ranks in 1..=8 {
            assert_eq!(unknowns(ranks, &path, 11, 2), whole, "{path:?}, {ranks} ranks");
        }
    }
}

#[test]
fn systems_as_the_whole_file() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let mut rng = Random(11);
    std::fs::write(at("M.mtx"), text(&mut rng, 2, 9, "real", "symmetric", "\n")).unwrap();
    std::fs::write(at("L.mtx"), text(&mut rng, 2, 9, "real", "general", "\n")).unwrap();
    std::fs::write(at("R.mtx"), "%%MatrixMarket matrix coordinate real general\n18 20 1\n1 1 1\n").unwrap();
    let flat: Vec<f64> = (0..36).map(f64::from).collect();
    numpy::write(at("b.npy"), &Array::vector(flat)).unwrap();
    numpy::write(at("x.npy"), &Array::new(vec![9, 2], (0..18).map(f64::from).collect()).unwrap()).unwrap();
    let path = at("system.toml");
    let k = "[kronecker]\nM='M.mtx'\nL='L.mtx'\n";
    std::fs::write(
        &path,
        format!("rhs='b.npy'\ncoordinates='x.npy'\n{k}block=2\ntau=0.1\nscheme='radau-iia-2'\n"),
    )
    .unwrap();
    compare(&path, None, 64);
    std::fs::write(&path, "matrix='L.mtx'\ncoordinates='x.npy'\nblock=2\n[solver]\nrtol=1e-3\n").unwrap();
    compare(&path, None, 64);
    assert_eq!(by_parts(2, &path, None, Partitioner::Rows, 64)[1].as_ref().unwrap().solver.rtol, Some(1e-3));
    for text in [
        "matrix='M.mtx'\nfoo=1\n".to_string(),
        format!("matrix='M.mtx'\n{k}tau=1\nscheme='gauss-1'"),
        "matrix='none.mtx'\n".into(),
        "matrix='M.mtx'\nblock=0\n".into(),
        "matrix='M.mtx'\nrhs='b.npy'\n".into(),
        "matrix='M.mtx'\nblock=1\ncoordinates='x.npy'\n".into(),
        format!("{k}tau=1\nblock=5\nscheme='gauss-1'"),
        format!("{k}tau=inf\nblock=2\nscheme='gauss-1'"),
        format!("{k}tau=1\nscheme='gauss-1'"),
        "[kronecker]\nM='M.mtx'\nL='R.mtx'\ntau=1\nblock=2\nscheme='gauss-1'\n".into(),
    ] {
        std::fs::write(&path, text).unwrap();
        compare_errors(&path, &[1, 3], 64);
    }
    for (name, block, word) in
        [("R.mtx", None, "18×20"), ("M.mtx", Some(5), "blocks of 5"), ("M.mtx", Some(0), "blocks of 0")]
    {
        for found in by_parts(3, &at(name), block, Partitioner::Rows, 64) {
            let message = found.map(|_| ()).unwrap_err();
            assert!(message.contains(name) && message.contains(word), "{message}");
        }
    }
    let refused = by_parts(2, &at("M.mtx"), None, Partitioner::Graph, 64).swap_remove(0);
    assert!(refused.map(|_| ()).unwrap_err().contains("by graph"));
}

/// Files of SciPy.
fn data() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../krylith-matrix/tests/data")
}

#[test]
fn what_cannot_be_cut_is_read_whole() {
    use std::io::Write;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.mtx.gz");
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gz.write_all(text(&mut Random(1), 2, 12, "real", "general", "\n").as_bytes()).unwrap();
    std::fs::write(&path, gz.finish().unwrap()).unwrap();
    let hb = dir.path().join("a");
    std::fs::write(&hb, samples::UNSYMMETRIC).unwrap();
    for (path, word) in [
        (path, "gzip"),
        (data().join("scipy-bsr.npz"), "npz"),
        (data().join("scipy-dia.npz"), "npz"),
        (hb, "columns"),
        (data().join("scipy.mat"), "MATLAB"),
    ] {
        compare(&path, None, 64);
        compare(&path, Some(1), 64);
        let read = by_parts(2, &path, None, Partitioner::Rows, 64).swap_remove(1).unwrap();
        assert!(read.whole.len() == 1 && read.whole[0].contains(word), "{:?}", read.whole);
    }
}

#[test]
fn what_is_wrong_with_a_whole_file_is_said_by_every_rank() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("a.rua"), samples::UNSYMMETRIC.replace("RUA", "CUA")).unwrap();
    std::fs::write(at("a.mat"), &std::fs::read(data().join("scipy.mat")).unwrap()[..200]).unwrap();
    for name in ["a.rua", "a.mat"] {
        compare_errors(&at(name), &[1, 3], 64);
    }
}

#[test]
fn different_files_are_refused_on_all_ranks() {
    let dir = tempfile::tempdir().unwrap();
    for rank in 0..3 {
        let text = format!("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 {}\n", 1 + rank / 2);
        std::fs::write(dir.path().join(format!("{rank}.mtx")), text).unwrap();
    }
    let read = |comm: std::sync::Arc<crate::comm::TeamRank>| {
        let path = dir.path().join(format!("{}.mtx", comm.rank()));
        Ok(read_rows(&*comm, path, None, Partitioner::Rows).map(|_| ()).unwrap_err().to_string())
    };
    for message in Team::run(3, read).unwrap() {
        assert!(message.starts_with("rank 2 was given a system that differs"), "{message}");
    }
    std::fs::remove_file(dir.path().join("1.mtx")).unwrap();
    for message in Team::run(3, read).unwrap() {
        assert!(message.contains("1.mtx") && message.contains("No such file"), "{message}");
    }
}

/// Cuts by nonzeros agree with those of the whole-file reader for very uneven rows.
#[test]
fn uneven_rows_are_cut_by_nonzeros() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.mtx");
    let mut body = String::new();
    (1..=60).for_each(|j| body += &format!("5 {j} 1\n"));
    (1..=60).filter(|i| i % 9 == 0).for_each(|i| body += &format!("{i} {i} 2\n"));
    std::fs::write(&path, format!("%%MatrixMarket matrix coordinate real general\n60 60 66\n{body}"))
        .unwrap();
    compare(&path, Some(1), 50);
    compare(&path, Some(2), 50);
}

/// Files with one byte changed, or cut short: the same values or the same error as the whole file.
#[test]
fn damaged_files_as_the_whole_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = Random(17);
    let (mtx, petsc) = (dir.path().join("a.mtx"), dir.path().join("a.petsc"));
    std::fs::write(&mtx, text(&mut rng, 1, 4, "real", "symmetric", "\n")).unwrap();
    let a = io::read_matrix(&mtx).unwrap().matrix.into_csr();
    whole_petsc::write(&petsc, &[whole_petsc::Item::Matrix(&a), whole_petsc::Item::Vector(&[1.0; 4])])
        .unwrap();
    let mut refused = 0;
    for path in [mtx, petsc] {
        let good = std::fs::read(&path).unwrap();
        for round in 0..300 {
            let mut bytes = good.clone();
            let at = rng.below(bytes.len());
            match rng.below(5) {
                0 => bytes.truncate(at),
                _ => bytes[at] = [0, 0xff, b'0', b'9', b'-', b' ', b'\n', bytes[at] ^ 1][rng.below(8)],
            }
            std::fs::write(&path, bytes).unwrap();
            let ranks = 2 + round % 4;
            match read_system(&path) {
                Err(_) => compare_errors(&path, &[ranks], 8),
                Ok(whole) => {
                    let SystemMatrix::Matrix(a) = whole.operator else { panic!("it is one") };
                    let a = a.into_csr();
                    let parts = by_parts(ranks, &path, Some(1), Partitioner::Rows, 8);
                    let rhs_fits = whole.rhs.is_none_or(|x| x.values().len() == a.rows());
                    if a.rows() != a.columns() || a.nonzeros() == 0 || !rhs_fits {
                        assert!(parts.iter().all(|p| p.is_err()));
                        refused += 1;
                        continue;
                    }
                    let parts: Vec<_> = parts.into_iter().map(|p| p.unwrap()).collect();
                    assert_eq!(joined(&parts).0[0].1, row_blocks(&Bsr::from_csr(&a, 1).unwrap()));
                }
            }
        }
    }
    assert!(refused < 100, "{refused}");
}
