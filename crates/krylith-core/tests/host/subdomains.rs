//! Ways to cut subdomains: sizes, and that each row is in one.

use crate::common::{Random, grid_of_points, random_bsr};
use krylith_core::Options;
use krylith_core::matrix::Csr;
use krylith_core::operator::Terms;
use krylith_core::partition::{Partition, SubdomainCut, Subdomains, split};
use rayon::prelude::*;

fn ways() -> impl Iterator<Item = SubdomainCut> {
    SubdomainCut::ALL.into_iter().filter(|way| *way != SubdomainCut::Graph || cfg!(feature = "metis"))
}

/// Each row once, ascending in its subdomain, and none above the size.
fn check(subdomains: &Subdomains, n: usize, rows: usize, what: &str) {
    let mut seen = vec![false; n];
    for p in 0..subdomains.count() {
        let own = subdomains.rows(p);
        assert!(!own.is_empty() && own.len() <= rows, "{what}: {} rows", own.len());
        assert!(own.windows(2).all(|w| w[0] < w[1]), "{what}: not ascending");
        own.iter().for_each(|&i| assert!(!std::mem::replace(&mut seen[i as usize], true), "{what}: row {i}"));
    }
    assert!(seen.iter().all(|&s| s), "{what}: rows left out");
    assert_eq!(subdomains.block_rows(), n);
}

#[test]
fn no_subdomain_is_above_the_size_asked() {
    let mut rng = Random(1);
    for n in [0, 1, 2, 31, 33, 400] {
        let a = random_bsr(&mut rng, 2, n, n, 3, n > 0);
        let terms = Terms::bsr(&a);
        // Many points at the same place, too.
        let points: Vec<[f64; 3]> = (0..n).map(|i| [rng.number(), (i % 3) as f64, 0.0]).collect();
        for rows in [1, 2, 7, 32, 33, 500] {
            for way in ways() {
                let what = format!("{}: {n} rows in {rows}", way.name());
                let (subdomains, _) = Subdomains::cut(&terms, Some(&points), way, rows).unwrap();
                let limit = if way == SubdomainCut::Whole { n.max(1) } else { rows };
                check(&subdomains, n, limit, &what);
                let again = Subdomains::cut(&terms, Some(&points), way, rows).unwrap().0;
                assert_eq!(subdomains, again, "{what}");
            }
        }
    }
}

#[test]
fn sizes_are_balanced_and_few_couplings_are_cut() {
    let (terms, points) = grid_of_points([20, 18, 16]);
    let n = 20 * 18 * 16;
    let a = &terms.terms()[0].1;
    let cut = |s: &Subdomains| {
        let mut home = vec![0; n];
        (0..s.count()).for_each(|p| s.rows(p).iter().for_each(|&i| home[i as usize] = p));
        let mut crossing = 0;
        for i in 0..n {
            let row = &a.col()[a.row_ptr()[i]..a.row_ptr()[i + 1]];
            crossing += row.iter().filter(|&&j| home[j as usize] != home[i]).count();
        }
        crossing as f64 / a.blocks() as f64
    };
    // Runs of 256 cut most of what is not along x.
    let runs = cut(&Subdomains::cut(&terms, None, SubdomainCut::Runs, 256).unwrap().0);
    for way in ways().filter(|way| !matches!(way, SubdomainCut::Whole | SubdomainCut::Runs)) {
        let (subdomains, _) = Subdomains::cut(&terms, Some(&points), way, 256).unwrap();
        let mean = n as f64 / subdomains.count() as f64;
        assert!(mean > 0.85 * 256.0, "{}: {} subdomains", way.name(), subdomains.count());
        assert!(cut(&subdomains) < 0.75 * runs, "{}: {} cut, {runs} by runs", way.name(), cut(&subdomains));
    }
}

#[test]
fn auto_says_why() {
    let (terms, points) = grid_of_points([6, 5, 4]);
    let auto = |points: Option<&[[f64; 3]]>| Subdomains::cut(&terms, points, SubdomainCut::Auto, 30).unwrap();
    let (geometric, why) = auto(Some(&points));
    assert!(why.contains("coordinates are known"), "{why}");
    assert_eq!(geometric, Subdomains::cut(&terms, Some(&points), SubdomainCut::Geometric, 30).unwrap().0);
    let (other, why) = auto(None);
    assert!(why.contains("no coordinates"), "{why}");
    check(&other, 120, 30, "auto");
    // Halves of halves of a grid are boxes.
    let (boxes, points) = grid_of_points([8, 8, 4]);
    let (cut, _) = Subdomains::cut(&boxes, Some(&points), SubdomainCut::Auto, 64).unwrap();
    let mut expected: Vec<Vec<u32>> = Vec::new();
    let regular = Subdomains::boxes([8, 8, 4], [4, 4, 4]);
    expected.extend((0..4).map(|p| regular.rows(p).to_vec()));
    let mut got: Vec<Vec<u32>> = (0..cut.count()).map(|p| cut.rows(p).to_vec()).collect();
    got.sort();
    expected.sort();
    assert_eq!(got, expected);
}

/// Ghost columns of one rank's part couple to nothing.
/// Where next to nothing is coupled there is nothing to find by a graph.
#[test]
fn loose_rows_are_cut_as_they_stand() {
    let n = 64u32;
    for (couplings, auto) in [(0, true), (4, true), (5, false)] {
        let mut entries: Vec<_> = (0..n).map(|i| (i, i, 2.0)).collect();
        entries.extend((0..couplings).map(|k| (k, n - 1 - k, 1.0)));
        let terms = Terms::csr(&Csr::from_triplets(64, 64, &entries).unwrap()).unwrap();
        let (cut, why) = Subdomains::cut(&terms, None, SubdomainCut::Auto, 8).unwrap();
        assert_eq!(why == "auto: few rows are coupled to others", auto, "{couplings} couplings: {why}");
        check(&cut, 64, 8, why);
    }
}

#[test]
fn a_part_of_a_distributed_matrix_is_cut() {
    let (terms, points) = grid_of_points([6, 5, 4]);
    for part in split(&terms, &Partition::by_rows(120, 3).unwrap()).unwrap() {
        let own: Vec<[f64; 3]> = part.rows.iter().map(|&i| points[i as usize]).collect();
        for way in ways().filter(|way| *way != SubdomainCut::Whole) {
            let (subdomains, _) = Subdomains::cut(&part.terms, Some(&own), way, 10).unwrap();
            check(&subdomains, 40, 10, way.name());
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let (terms, mut points) = grid_of_points([3, 3, 1]);
    let fails = |points: Option<&[[f64; 3]]>, way, rows, words: &str| {
        let error = Subdomains::cut(&terms, points, way, rows).unwrap_err();
        assert!(error.to_string().contains(words) && error.exit_code() == 2, "{error}");
    };
    fails(None, SubdomainCut::Runs, 0, "at least 1");
    for way in [SubdomainCut::Geometric, SubdomainCut::Curve] {
        fails(None, way, 2, "coordinates");
        fails(Some(&points[1..]), way, 2, "8 points for 9 block rows");
    }
    points[4][2] = f64::INFINITY;
    fails(Some(&points), SubdomainCut::Curve, 2, "block row 4");
    if !cfg!(feature = "metis") {
        fails(None, SubdomainCut::Graph, 2, "feature `metis`");
    }
    let error = Subdomains::from_labels(&[0, 1, 5], 3).unwrap_err();
    assert!(error.to_string().contains("block row 2 is given to subdomain 5; there are 3"), "{error}");
    let gaps = Subdomains::from_labels(&[4, 1, 4], 6).unwrap();
    assert_eq!((gaps.count(), gaps.rows(0), gaps.rows(1)), (2, &[1][..], &[0, 2][..]));
}

/// Lists of boxes are made when they are first asked for, by a loop of rayon's, and loops ask for them.
#[test]
fn lists_of_boxes_are_made_within_loops() {
    let options: Options = "threads=2".parse().unwrap();
    for _ in 0..100 {
        let boxes = Subdomains::boxes([20, 20, 20], [2, 2, 2]);
        let rows = || (0..boxes.count()).into_par_iter().map(|p| boxes.rows(p).len()).sum::<usize>();
        assert_eq!(options.within(rows).unwrap(), 8000);
    }
}
