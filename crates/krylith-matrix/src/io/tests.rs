//! Formats told apart by content, and real files of SciPy.

use super::*;

fn data(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// Entry (i, j) of the matrix behind `tests/data/scipy-*.npz`: see the script in `tests/data/README`.
fn expected() -> Csr {
    let mut entries = Vec::new();
    for i in 0..6u32 {
        for j in 0..6u32 {
            if i.abs_diff(j) <= 1 {
                entries.push((i, j, (10 * i + j) as f64 + 0.5));
            }
        }
    }
    Csr::from_triplets(6, 6, &entries).unwrap()
}

#[test]
fn files_of_scipy() {
    for (name, format, hint) in [
        ("scipy-bsr.npz", "bsr", Some(2)),
        ("scipy-csc.npz", "csr", None),
        ("scipy-dia.npz", "dia", None),
        ("scipy.mat", "csr", None),
        ("scipy.rua", "csr", None),
    ] {
        let read = read_matrix(data(name)).unwrap();
        assert_eq!((read.matrix.format(), read.block_hint), (format, hint), "{name}");
        let a = read.matrix.into_csr();
        for i in 0..6 {
            for j in 0..6 {
                assert_eq!(a.get(i, j), expected().get(i, j), "{name}: ({i}, {j})");
            }
        }
    }
    let sums: Vec<f64> = (0..6).map(|i| expected().row(i).1.iter().sum()).collect();
    assert_eq!(read_matrix(data("scipy.mat")).unwrap().vector, Some(sums));
}

#[test]
fn damaged_files_of_scipy_never_panic() {
    for name in ["scipy-bsr.npz", "scipy-csc.npz", "scipy-dia.npz"] {
        source::torture(&std::fs::read(data(name)).unwrap(), npz::parse);
    }
}

#[test]
fn content_decides() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (a, x) = (expected(), vec![1.0, 2.0, 3.0]);
    matrix_market::write(at("a.dat"), &a).unwrap();
    petsc::write(at("a.out"), &[petsc::Item::Matrix(&a), petsc::Item::Vector(&x)]).unwrap();
    std::fs::write(at("a.out.info"), "-matload_block_size 3\n").unwrap();
    petsc::write(at("x.out"), &[petsc::Item::Vector(&x)]).unwrap();
    numpy::write(at("x.mtx"), &Array::vector(x.clone())).unwrap();
    std::fs::write(at("x.txt"), "1\n2\n3\n").unwrap();
    std::fs::copy(data("scipy-csc.npz"), at("b.mtx")).unwrap();

    assert_eq!(read_matrix(at("a.dat")).unwrap().matrix, Matrix::Csr(a.clone()));
    assert_eq!(read_matrix(at("b.mtx")).unwrap().matrix, Matrix::Csr(a.clone()));
    let read = read_matrix(at("a.out")).unwrap();
    assert_eq!(
        (read.matrix, read.block_hint, &read.vector),
        (Matrix::Csr(a.clone()), Some(3), &Some(x.clone()))
    );
    for name in ["x.out", "x.mtx", "x.txt", "a.out"] {
        assert_eq!(read_vector(at(name)).unwrap(), Array::vector(x.clone()), "{name}");
    }
    assert_eq!(read_vector(at("a.dat")).unwrap().shape(), [6, 6]);
    // The format is recognised by content, also inside gzip, and the vector in the file is found.
    std::fs::write(at("hb.mtx"), samples::UNSYMMETRIC).unwrap();
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut gz, samples::UNSYMMETRIC.as_bytes()).unwrap();
    std::fs::write(at("hb"), gz.finish().unwrap()).unwrap();
    std::fs::write(at("mat"), matlab::tests::sample()).unwrap();
    for (name, rows) in [("hb.mtx", 5), ("hb", 5), ("mat", 3)] {
        let read = read_matrix(at(name)).unwrap();
        assert_eq!((read.matrix.rows(), read.vector.as_ref().unwrap().len()), (rows, rows), "{name}");
        assert_eq!(read_vector(at(name)).unwrap(), Array::vector(read.vector.unwrap()), "{name}");
    }
    std::fs::write(at("rb"), harwell_boeing::tests::SYMMETRIC).unwrap();
    assert!(read_vector(at("rb")).unwrap_err().to_string().contains("no right-hand side"));
    for name in ["x.out", "x.mtx", "x.txt"] {
        assert!(read_matrix(at(name)).unwrap_err().to_string().contains(name));
    }
    assert!(read_vector(at("b.mtx")).is_err());
    for name in ["empty.mtx", "empty.npz", "empty.npy", "empty.petsc", "empty.rua", "empty.mat", "empty"] {
        std::fs::write(at(name), "").unwrap();
        assert!(read_matrix(at(name)).unwrap_err().to_string().contains(name));
    }
}

#[test]
fn formats_convert() {
    let a = expected();
    let b = Matrix::Csr(a.clone()).into_bsr(2).unwrap();
    assert_eq!((b.block(), Matrix::Bsr(b.clone()).stored(), Matrix::Bsr(b.clone()).rows()), (2, 28, 6));
    assert_eq!(Matrix::Bsr(b.clone()).into_bsr(2).unwrap(), b);
    assert_eq!(Matrix::Bsr(b).into_bsr(3).unwrap().block(), 3);
    assert_eq!(Matrix::Dia(Dia::from_csr(&a, 3).unwrap()).into_csr(), a);
    assert!(Matrix::Csr(a).into_bsr(4).is_err());
}
