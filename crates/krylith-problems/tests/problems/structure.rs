//! Properties on which kernels and callers rely: block structure, patterns, Dirichlet rows, independence of
//! threads.

use krylith_core::matrix::Bsr;
use krylith_problems::{DuctMesh, StokesDuct, StokesOptions, SystemKind, generate};

fn duct(nodes: [usize; 3], nu: f64) -> StokesDuct {
    StokesDuct::new(StokesOptions { nodes, nu, length: 1.3, ..Default::default() }).unwrap()
}

/// Returns groups of block entries that are bitwise equal in every block; entries that are 0 in every block
/// are omitted.
fn groups(a: &Bsr) -> Vec<Vec<usize>> {
    let bb = a.block() * a.block();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for e in 0..bb {
        if (0..a.blocks()).all(|p| a.block_values(p)[e].to_bits() == 0) {
            continue;
        }
        let equal = |f: usize| {
            (0..a.blocks()).all(|p| a.block_values(p)[e].to_bits() == a.block_values(p)[f].to_bits())
        };
        match groups.iter_mut().find(|g| equal(g[0])) {
            Some(group) => group.push(e),
            None => groups.push(vec![e]),
        }
    }
    groups
}

#[test]
fn blocks_have_one_and_eight_distinct_numbers() {
    for (nodes, nu) in [([3, 3, 3], 1.0), ([6, 5, 7], 0.01), ([2, 4, 3], 0.3)] {
        let duct = duct(nodes, nu);
        assert_eq!(groups(&duct.mass), [vec![0, 5, 10]]);
        let mut stiffness = vec![vec![0, 5, 10]];
        stiffness.extend([3, 7, 11, 12, 13, 14, 15].map(|e| vec![e]));
        assert_eq!(groups(&duct.stiffness), stiffness);
    }
}

#[test]
fn one_pattern_of_fifteen_blocks() {
    let duct = duct([5, 4, 6], 0.01);
    assert!(duct.mass.same_pattern(&duct.stiffness));
    let row_ptr = duct.mass.row_ptr();
    for i in 0..duct.mesh.nodes() {
        let at = duct.mesh.position(i);
        let inside = (0..3).all(|d| at[d] > 0 && at[d] + 1 < duct.mesh.sizes()[d]);
        let blocks = row_ptr[i + 1] - row_ptr[i];
        assert!(if inside { blocks == 15 } else { blocks < 15 });
    }
    // Neighbours are exactly the corners of shared tetrahedra.
    let mut edges = std::collections::BTreeSet::new();
    for t in duct.mesh.tetrahedra() {
        for a in t {
            edges.extend(t.map(|b| (a, b)));
        }
    }
    assert_eq!(edges.len(), duct.mass.blocks());
    for (i, j) in edges {
        let row = &duct.mass.col()[row_ptr[i as usize]..row_ptr[i as usize + 1]];
        assert!(row.contains(&j));
    }
}

#[test]
fn dirichlet_rows_and_columns_keep_their_diagonal() {
    let duct = duct([4, 5, 4], 0.02);
    let fixed: Vec<bool> = (0..duct.mesh.nodes()).map(|i| duct.mesh.is_dirichlet(i)).collect();
    let inside = duct.mesh.node([1, 2, 1]);
    for i in 0..duct.mesh.nodes() {
        for p in duct.mass.row_ptr()[i]..duct.mass.row_ptr()[i + 1] {
            let j = duct.mass.col()[p] as usize;
            let (m, l) = (duct.mass.block_values(p), duct.stiffness.block_values(p));
            for c in 0..3 {
                if i != j && (fixed[i] || fixed[j]) {
                    assert_eq!((m[5 * c], l[5 * c]), (0.0, 0.0));
                }
                assert!(!fixed[i] || l[4 * c + 3] == 0.0);
                assert!(!fixed[j] || l[12 + c] == 0.0);
            }
            if i == j {
                // Dirichlet rows are scaled like their neighbours; a node on a face or an edge has fewer
                // cells around it.
                let (mi, li) = (
                    duct.mass.diagonal_block(inside).unwrap(),
                    duct.stiffness.diagonal_block(inside).unwrap(),
                );
                for (own, full) in [(m[0], mi[0]), (l[0], li[0])] {
                    assert!(own <= full * (1.0 + 1e-14) && own >= full / 24.0, "{own} beside {full}");
                }
                assert!(l[15] > 0.0);
            }
        }
    }
}

#[test]
fn the_same_on_one_thread_and_two() {
    for spec in [
        "stokes:7x5x6,nu=0.1,scheme=gauss-3",
        "random:300,block=3,stages=3",
        "random:40,pattern=different",
        "laplace:5x6x7,block=2",
        "spe10:21x22x23",
        "radiation:21x22x23,components=3",
        "poisson-multiphase:21x22x23,gap=1",
        "advection:21x22x23",
        "advection:21x22x23,scheme=supg",
        "taylor-hood:5x4x6,contrast=10",
        "oseen:3x4x5",
        "rt0:5x6x7",
        "nedelec:5x6x7",
        "biot2:3x4x5",
        "biot3:3x4x5",
        "twophase:21x22x23",
        "blackoil:21x22x3",
    ] {
        let on = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| generate(spec).unwrap())
        };
        assert_eq!(on(1), on(2), "{spec}");
    }
}

#[test]
fn random_systems_are_diagonally_dominant() {
    for spec in [
        "random:50,block=3,stages=4",
        "random:200,block=1,stages=1,seed=7,pattern=different",
        "random:2,block=8",
    ] {
        let generated = generate(spec).unwrap();
        let SystemKind::Kronecker(system) = &generated.system else { panic!("{spec} has stages") };
        assert_eq!(system.m.same_pattern(&system.l), !spec.contains("different"));
        assert_eq!(generated.rhs.len(), system.rows());
        let a = system.assemble().to_csr();
        for i in 0..a.rows() {
            let all: f64 = a.row(i).1.iter().map(|v| v.abs()).sum();
            assert!(2.0 * a.get(i, i) > all, "{spec}, row {i}");
        }
    }
    let per_row = generate("random:100").unwrap();
    let SystemKind::Kronecker(system) = &per_row.system else { panic!() };
    assert_eq!(system.m.blocks(), 1500);
    assert_ne!(per_row.rhs, generate("random:100,seed=2").unwrap().rhs);
}

#[test]
fn laplacians_are_symmetric_and_dominant() {
    for spec in ["laplace:3x4x5", "laplace:4x2x3,block=3,coupling=0.5"] {
        let generated = generate(spec).unwrap();
        let a = match &generated.system {
            SystemKind::Csr(a) => a.clone(),
            SystemKind::Bsr(a) => a.to_csr(),
            SystemKind::Kronecker(_) => panic!("{spec} has no stages"),
        };
        assert_eq!(a, a.transpose());
        for i in 0..a.rows() {
            let all: f64 = a.row(i).1.iter().map(|v| v.abs()).sum();
            assert!(2.0 * a.get(i, i) >= all);
        }
        assert_eq!(generated.rhs.len(), a.rows());
    }
}

#[test]
fn node_sets_cover_the_duct() {
    let mesh = duct([4, 4, 5], 1.0).mesh;
    assert_eq!(mesh.select(DuctMesh::is_outlet).len(), 20);
    assert_eq!(mesh.coordinates().len(), mesh.nodes());
    assert_eq!(mesh.coordinate(mesh.nodes() - 1), [1.3, 1.0, 1.0]);
}
