//! Ways to give rows to ranks, and the quality that is reported of them.

use crate::common::{Random, grid_of_points, random_kronecker, square_pattern};
use krylith_core::operator::Terms;
use krylith_core::partition::{Partition, Partitioner, Quality, Share, split};

/// Scalar matrix with a diagonal and these couplings, both ways.
fn graph(n: usize, edges: &[(usize, usize)]) -> Terms<'static> {
    let mut rows: Vec<Vec<u32>> = (0..n as u32).map(|i| vec![i]).collect();
    for &(i, j) in edges {
        rows[i].push(j as u32);
        rows[j].push(i as u32);
    }
    square_pattern(rows)
}

fn has_metis() -> bool {
    cfg!(feature = "metis")
}

fn ways() -> impl Iterator<Item = Partitioner> {
    Partitioner::ALL.into_iter().filter(|way| *way != Partitioner::Graph || has_metis())
}

#[test]
fn every_way_fills_every_rank_and_does_so_again() {
    let mut rng = Random(1);
    for ranks in 1..=8 {
        for n in [0, 1, ranks - 1, ranks, ranks + 1, 50] {
            let k = random_kronecker(&mut rng, 1, 2, n, 3, false, n > 0);
            let terms = Terms::kronecker(&k);
            let points: Vec<[f64; 3]> = (0..n).map(|_| [rng.number(), 0.0, rng.number()]).collect();
            for way in ways() {
                let what = format!("{}, {n} rows, {ranks} ranks", way.name());
                let partition = way.partition(&terms, Some(&points), ranks).unwrap();
                assert_eq!((partition.owner.len(), partition.ranks), (n, ranks), "{what}");
                let filled = partition.rows().iter().filter(|rows| !rows.is_empty()).count();
                assert_eq!(filled, n.min(ranks), "{what}");
                assert_eq!(way.partition(&terms, Some(&points), ranks).unwrap(), partition, "{what}");
            }
        }
    }
}

#[test]
fn weights_are_equal_as_rows_allow() {
    let mut rng = Random(2);
    for ranks in 1..=8 {
        // Ever longer rows, and one that is full.
        let n: usize = 60;
        let rows: Vec<Vec<u32>> = (0..n)
            .map(|i| (0..n as u32).filter(|&j| i == 40 || rng.below(n) < i || j == i as u32).collect())
            .collect();
        let terms = square_pattern(rows.clone());
        let points: Vec<[f64; 3]> = (0..n).map(|i| [i as f64, 0.0, 0.0]).collect();
        let mean = rows.iter().map(Vec::len).sum::<usize>() as f64 / ranks as f64;
        for way in [Partitioner::Rows, Partitioner::Nonzeros, Partitioner::Geometric] {
            let partition = way.partition(&terms, Some(&points), ranks).unwrap();
            assert!(partition.owner.is_sorted(), "runs along the one axis there is");
            let quality = Quality::of(&terms, &partition).unwrap();
            if way == Partitioner::Rows {
                let rows = || quality.shares.iter().map(|s| s.rows);
                assert!(rows().max().unwrap() - rows().min().unwrap() <= 1);
                continue;
            }
            // Each of at most log₂ P + 1 cuts is wrong by half a row at most, of at most n blocks.
            for share in &quality.shares {
                assert!((share.blocks as f64 - mean).abs() <= n as f64, "{}, {ranks} ranks", way.name());
            }
        }
    }
}

#[test]
fn boxes_of_a_grid() {
    let (terms, points) = grid_of_points([8, 8, 8]);
    let partition = Partition::geometric(&terms, &points, 8).unwrap();
    let quality = Quality::of(&terms, &partition).unwrap();
    for share in &quality.shares {
        // An octant of 4³: three faces of 16 to neighbours.
        assert_eq!((share.rows, share.cut, share.boundary), (64, 48, 64 - 27));
        assert_eq!((share.sends, share.receives, share.neighbours), (48, 48, 3));
    }
    assert_eq!(quality.busiest_bytes(), 48 * 8);
    assert_eq!(quality.bytes(), 8 * 48 * 8);
    // A long box is cut across, whatever the way of numbering.
    let (terms, points) = grid_of_points([3, 2, 12]);
    let partition = Partition::geometric(&terms, &points, 2).unwrap();
    assert!(points.iter().zip(&partition.owner).all(|(x, &r)| (x[2] / 6.0) as u32 == r));
    // Cuts for 3 ranks run within a layer, because the end layers weigh less; none reaches into the next.
    let partition = Partition::geometric(&terms, &points, 3).unwrap();
    let layers: Vec<_> =
        partition.owner.chunks(6).map(|l| (l.iter().min().unwrap(), l.iter().max().unwrap())).collect();
    assert!(layers.windows(2).all(|l| l[0].1 <= l[1].0));
    // Points that coincide are told apart by number.
    let same = vec![[0.0, -0.0, 1.0]; 72];
    assert!(Partition::geometric(&terms, &same, 5).unwrap().owner.is_sorted());
}

#[test]
fn the_graph_is_cut_where_it_is_thin() {
    cliques(Partitioner::Multilevel);
    #[cfg(feature = "metis")]
    cliques(Partitioner::Graph);
}

fn cliques(way: Partitioner) {
    // Three cliques of 10 in a ring, numbered in turn, so that runs of rows are as bad as can be.
    let mut edges = Vec::new();
    for clique in 0..3 {
        for i in 0..10 {
            edges.extend((0..i).map(|j| (3 * i + clique, 3 * j + clique)));
        }
        edges.push((clique, (clique + 1) % 3));
    }
    let terms = graph(30, &edges);
    let partition = way.partition(&terms, None, 3).unwrap();
    let quality = Quality::of(&terms, &partition).unwrap();
    assert_eq!(quality.cut(), 6);
    assert!((0..30).all(|i| partition.owner[i] == partition.owner[i % 3]));
    let by_rows = Quality::of(&terms, &Partition::by_rows(30, 3).unwrap()).unwrap();
    assert!(by_rows.cut() > 100);

    // Entries of one triangle are edges of both: the same graph, the same parts.
    let lower: Vec<Vec<u32>> = (0..30)
        .map(|i| edges.iter().filter(|e| e.0.max(e.1) == i).map(|e| e.0.min(e.1) as u32).collect())
        .collect();
    let partition = way.partition(&square_pattern(lower), None, 3).unwrap();
    assert!((0..30).all(|i| partition.owner[i] == partition.owner[i % 3]));
}

/// Calls from many threads do not disturb one another.
#[cfg(feature = "metis")]
#[test]
fn graph_partitions_do_not_depend_on_others() {
    let (terms, _) = grid_of_points([9, 7, 5]);
    let alone = Partition::graph(&terms, 5).unwrap();
    std::thread::scope(|scope| {
        let found: Vec<_> = (0..4).map(|_| scope.spawn(|| Partition::graph(&terms, 5).unwrap())).collect();
        found.into_iter().for_each(|f| assert_eq!(f.join().unwrap(), alone));
    });
}

#[test]
fn quality_of_a_chain() {
    let chain: Vec<_> = (0..9).map(|i| (i, i + 1)).collect();
    let quality = Quality::of(&graph(10, &chain), &Partition::by_rows(10, 3).unwrap()).unwrap();
    // Rows 0..3, 3..6, 6..10; two links, each cut from both sides.
    let rows: Vec<usize> = quality.shares.iter().map(|s| s.rows).collect();
    assert_eq!(rows, [3, 3, 4]);
    assert_eq!((quality.cut(), quality.most_neighbours()), (4, 2));
    assert_eq!((quality.busiest_bytes(), quality.bytes()), (16, 32));
    assert!((quality.rows_over_mean() - 1.2).abs() < 1e-15);
    assert!((quality.blocks_over_mean() - 11.0 * 3.0 / 28.0).abs() < 1e-15);
    assert!((quality.boundary_share() - 0.4).abs() < 1e-15);
    let alone = Quality::of(&graph(10, &chain), &Partition::by_rows(10, 1).unwrap()).unwrap();
    assert_eq!((alone.cut(), alone.bytes(), alone.boundary_share()), (0, 0, 0.0));
    let nothing = Quality::of(&graph(0, &[]), &Partition::by_rows(0, 2).unwrap()).unwrap();
    assert_eq!(
        (nothing.rows_over_mean(), nothing.blocks_over_mean(), nothing.boundary_share()),
        (1.0, 1.0, 0.0)
    );
}

/// What is counted on the whole is what is counted on each part.
#[test]
fn shares_of_parts() {
    let mut rng = Random(3);
    for ranks in 1..=8 {
        for same in [true, false] {
            let k = random_kronecker(&mut rng, 2, 3, 30, 3, same, false);
            let terms = Terms::kronecker(&k);
            let owner = (0..30).map(|_| rng.below(ranks) as u32).collect();
            let partition = Partition::new(owner, ranks).unwrap();
            let quality = Quality::of(&terms, &partition).unwrap();
            assert_eq!(quality.node_bytes, 48);
            let parts = split(&terms, &partition).unwrap();
            let shares: Vec<Share> = parts.iter().map(Share::of).collect();
            assert_eq!(shares, quality.shares, "{ranks} ranks");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let (terms, points) = grid_of_points([2, 2, 2]);
    let fails = |found: krylith_core::Result<Partition>, words: &str| {
        let error = found.unwrap_err();
        assert!(error.to_string().contains(words) && error.exit_code() == 2, "{error}");
    };
    for way in ways() {
        fails(way.partition(&terms, Some(&points), 0), "ranks, not 0");
    }
    fails(Partitioner::Geometric.partition(&terms, None, 2), "coordinates");
    fails(Partition::geometric(&terms, &points[1..], 2), "7 points for 8 block rows");
    let mut wrong = points.clone();
    wrong[3][1] = f64::NAN;
    fails(Partition::geometric(&terms, &wrong, 2), "block row 3");
    if !has_metis() {
        fails(Partitioner::Graph.partition(&terms, None, 2), "feature `metis`");
    }
}
