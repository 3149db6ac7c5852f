//! Parts of a system: halos, numbering and products, cut in one process and over ranks, compared with the
//! whole system.

use crate::common::{Random, by_rows, distance, random_kronecker};
use krylith_core::comm::{Communicator, Solo, Team};
use krylith_core::matrix::{Bsr, Dense, KroneckerSum};
use krylith_core::operator::Terms;
use krylith_core::partition::{Halo, Part, Partition, RowBlocks, Rows, distribute, split};
use krylith_core::{Error, Result};
use std::borrow::Cow;

/// Partitions of n rows over `ranks`: random, contiguous, all rows on the last rank, one empty rank in the
/// middle.
fn partitions(rng: &mut Random, n: usize, ranks: usize) -> Vec<(&'static str, Partition)> {
    let make = |owner: Vec<u32>| Partition::new(owner, ranks).unwrap();
    let middle = (ranks / 2) as u32;
    let mut all = vec![
        ("random", make((0..n).map(|_| rng.below(ranks) as u32).collect())),
        ("contiguous", make((0..n).map(|i| (i * ranks / n) as u32).collect())),
        ("all on the last", make(vec![ranks as u32 - 1; n])),
    ];
    if ranks > 1 {
        let other = |i: usize| (0..ranks as u32).filter(|r| *r != middle).nth(i % (ranks - 1)).unwrap();
        all.push(("an empty rank", make((0..n).map(other).collect())));
    }
    if n >= ranks {
        all.push(("one row a rank but the last", make((0..n).map(|i| i.min(ranks - 1) as u32).collect())));
    }
    all
}

/// Systems of one and two patterns; in the last one node is coupled with every other.
fn systems(rng: &mut Random, n: usize) -> Vec<(&'static str, KroneckerSum)> {
    let mut hub = random_kronecker(rng, 2, 2, n, 2, true, true);
    let (mut row_ptr, mut col) = (vec![0], Vec::<u32>::new());
    for i in 0..n as u32 {
        let row: Vec<u32> = (0..n as u32).filter(|&j| i == 0 || j == 0 || i == j).collect();
        col.extend(row);
        row_ptr.push(col.len());
    }
    hub.m = Bsr::new(2, n, n, row_ptr.clone(), col.clone(), rng.numbers(4 * col.len())).unwrap();
    hub.l = Bsr::new(2, n, n, row_ptr, col.clone(), rng.numbers(4 * col.len())).unwrap();
    vec![
        ("one pattern", random_kronecker(rng, 3, 2, n, 4, true, true)),
        ("two patterns", random_kronecker(rng, 2, 3, n, 3, false, false)),
        ("scalars", random_kronecker(rng, 1, 1, n, 2, false, true)),
        ("a hub", hub),
    ]
}

/// y of each part by its definition, after the exchange that the halos describe.
fn product(parts: &[Part], x: &[f64]) -> Vec<f64> {
    let (b, s) = (parts[0].terms.block(), parts[0].terms.stages());
    let bs = b * s;
    let own: Vec<Vec<f64>> = parts
        .iter()
        .map(|part| part.rows.iter().flat_map(|&i| &x[i as usize * bs..][..bs]).copied().collect())
        .collect();
    let mut y = vec![f64::NAN; x.len()];
    for (p, part) in parts.iter().enumerate() {
        let mut local = own[p].clone();
        local.resize((part.halo.own + part.halo.ghosts) * bs, f64::NAN);
        for to in &part.halo.neighbours {
            let other = &parts[to.rank].halo;
            let back = other.neighbours.iter().find(|q| q.rank == p).expect("a neighbour's neighbour");
            assert_eq!(back.send.len(), to.receive.len());
            for (ghost, &node) in to.receive.clone().zip(&other.send[back.send.clone()]) {
                local[(part.halo.own + ghost) * bs..][..bs]
                    .copy_from_slice(&own[to.rank][node as usize * bs..][..bs]);
            }
        }
        for (i, &row) in part.rows.iter().enumerate() {
            let out = &mut y[row as usize * bs..][..bs];
            out.fill(0.0);
            for (c, a) in part.terms.terms() {
                for e in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                    let (block, j) = (a.block_values(e), a.col()[e] as usize);
                    for (o, out) in out.iter_mut().enumerate() {
                        let (r, k) = (o / s, o % s);
                        for q in 0..bs {
                            *out += c[(k, q % s)] * block[r * b + q / s] * local[j * bs + q];
                        }
                    }
                }
            }
        }
    }
    y
}

fn same_parts(one: &Part, other: &Part, what: &str) {
    assert_eq!(one.rows, other.rows, "{what}");
    assert_eq!(one.halo, other.halo, "{what}");
    assert_eq!(one.terms.terms().len(), other.terms.terms().len());
    for ((c, a), (d, b)) in one.terms.terms().iter().zip(other.terms.terms()) {
        assert_eq!((c, a), (d, b), "{what}");
    }
}

/// The rows of `part`'s rank as a simulation would bring them: columns in any order, numbers by `name`.
fn bring(rng: &mut Random, terms: &Terms, own: &[u64], name: impl Fn(u64) -> u64) -> Rows {
    let (b, mut brought) = (terms.block(), Vec::new());
    for (c, a) in terms.terms() {
        let mut rows = RowBlocks { row_ptr: vec![0], ..RowBlocks::default() };
        for &i in own {
            let mut blocks: Vec<usize> = (a.row_ptr()[i as usize]..a.row_ptr()[i as usize + 1]).collect();
            for p in (1..blocks.len()).rev() {
                blocks.swap(p, rng.below(p + 1));
            }
            for e in blocks {
                rows.col.push(name(u64::from(a.col()[e])));
                rows.values.extend(a.block_values(e));
            }
            rows.row_ptr.push(rows.col.len());
        }
        brought.push((c.clone(), rows));
    }
    Rows { numbers: own.iter().map(|&i| name(i)).collect(), block: b, terms: brought }
}

#[test]
fn parts_multiply_as_the_whole_does() {
    let mut rng = Random(1);
    for ranks in 1..=8 {
        for n in [ranks, 13, 40] {
            for (kind, k) in systems(&mut rng, n) {
                let x = rng.numbers(k.rows());
                let y = by_rows(&k, &x);
                let terms = Terms::kronecker(&k);
                for (name, partition) in partitions(&mut rng, n, ranks) {
                    let what = format!("{ranks} ranks, {n} rows, {kind}, {name}");
                    let parts = split(&terms, &partition).unwrap();
                    assert!(distance(&product(&parts, &x), &y) < 1e-14, "{what}");
                    for (p, part) in parts.iter().enumerate() {
                        check_halo(&parts, p, &partition, &what);
                        assert_eq!(
                            part.terms.shared_pattern(),
                            terms.shared_pattern() || both_empty(part),
                            "{what}"
                        );
                    }
                }
            }
        }
    }
}

/// Terms without a block have one pattern whatever they were cut from; so may few rows.
fn both_empty(part: &Part) -> bool {
    let [(_, m), (_, l)] = part.terms.terms() else { return false };
    m.col() == l.col() && m.row_ptr() == l.row_ptr()
}

/// What [`Halo`] promises, besides that the product is right.
fn check_halo(parts: &[Part], p: usize, partition: &Partition, what: &str) {
    let (part, halo) = (&parts[p], &parts[p].halo);
    let (mut sent, mut received) = (0, 0);
    let mut ghosts = Vec::new();
    for q in &halo.neighbours {
        assert_eq!((q.send.start, q.receive.start), (sent, received), "{what}");
        (sent, received) = (q.send.end, q.receive.end);
        assert!(q.rank != p && q.send.len() + q.receive.len() > 0, "{what}");
        let back = parts[q.rank].halo.neighbours.iter().find(|back| back.rank == p).unwrap();
        let nodes = &parts[q.rank].halo.send[back.send.clone()];
        ghosts.extend(nodes.iter().map(|&i| (q.rank, parts[q.rank].rows[i as usize])));
        let sends = &halo.send[q.send.clone()];
        assert!(sends.is_sorted(), "own nodes are in global order, and so is what is sent: {what}");
    }
    assert_eq!((sent, received), (halo.send.len(), halo.ghosts), "{what}");
    assert!(
        ghosts.is_sorted() && ghosts.iter().all(|(r, g)| partition.owner[*g as usize] as usize == *r),
        "{what}"
    );
    assert!(part.rows.is_sorted() && halo.own == part.rows.len());
    let used = |t: usize| part.terms.terms()[t].1.col().iter().copied();
    let mut used: Vec<u32> =
        (0..part.terms.terms().len()).flat_map(used).filter(|&j| j as usize >= halo.own).collect();
    used.sort_unstable();
    used.dedup();
    assert_eq!(used.len(), halo.ghosts, "every ghost is used: {what}");
}

#[test]
fn ranks_find_the_same_halos_by_themselves() {
    let mut rng = Random(2);
    for ranks in 1..=8 {
        for n in [ranks, 200] {
            for (kind, k) in systems(&mut rng, n) {
                let terms = Terms::kronecker(&k);
                for (name, partition) in partitions(&mut rng, n, ranks) {
                    let what = format!("{ranks} ranks, {n} rows, {kind}, {name}");
                    let parts = split(&terms, &partition).unwrap();
                    let found = on_ranks(ranks, |comm| {
                        let mut rng = Random(comm.rank() as u64);
                        distribute(comm, bring(&mut rng, &terms, &parts[comm.rank()].rows, |i| i))
                    });
                    for (part, found) in parts.iter().zip(found) {
                        same_parts(&found.unwrap(), part, &what);
                    }
                }
            }
        }
    }
}

/// Numbers beyond 32 bits, in an order of the caller's own: the part is the same up to names.
#[test]
fn any_numbers_in_any_order() {
    let mut rng = Random(3);
    let (n, ranks) = (60, 5);
    let k = random_kronecker(&mut rng, 2, 2, n, 4, false, true);
    let terms = Terms::kronecker(&k);
    let name = |i: u64| (n as u64 - i) * 0x0123_4567_89AB + 5;
    let owner: Vec<u32> = (0..n).map(|_| rng.below(ranks) as u32).collect();
    let partition = Partition::new(owner, ranks).unwrap();
    let mut rows = partition.rows();
    for rows in &mut rows {
        (1..rows.len()).rev().for_each(|p| rows.swap(p, rng.below(p + 1)));
    }
    let mut parts: Vec<Part> = on_ranks(ranks, |comm| {
        distribute(comm, bring(&mut Random(7), &terms, &rows[comm.rank()], name)).unwrap()
    });
    for (part, rows) in parts.iter_mut().zip(&rows) {
        assert!(part.rows.iter().zip(rows).all(|(g, &i)| *g == name(i)));
        part.rows.clone_from(rows);
    }
    let x = rng.numbers(k.rows());
    assert!(distance(&product(&parts, &x), &by_rows(&k, &x)) < 1e-14);
}

#[test]
fn global_and_local_numbers() {
    let columns = [[7u64, 500], [9, 3], [3, 500]];
    let own: [&[u64]; 3] = [&[9, 7], &[3], &[500]];
    let found = on_ranks(3, |comm| Halo::build(comm, own[comm.rank()], columns[comm.rank()]).unwrap());
    let globals: Vec<&[u64]> = found.iter().map(|(_, numbering)| numbering.global()).collect();
    assert_eq!(globals, [&[9, 7, 500][..], &[3, 9], &[500, 3]]);
    for (_, numbering) in &found {
        for (l, &g) in numbering.global().iter().enumerate() {
            assert_eq!(numbering.local(g), Some(l as u32));
        }
        assert_eq!(numbering.local(8), None);
    }
    // Ranks 0 and 2 only receive from each other one way; both list the other.
    let lists: Vec<Vec<usize>> =
        found.iter().map(|(h, _)| h.neighbours.iter().map(|q| q.rank).collect()).collect();
    assert_eq!(lists, [vec![1, 2], vec![0, 2], vec![0, 1]]);
    assert_eq!((found[0].0.send.as_slice(), found[1].0.send.as_slice()), (&[0u32][..], &[0u32][..]));
    let (alone, _) = Halo::build(&Solo, &[4, 2], [2, 4, 2]).unwrap();
    assert_eq!(alone, Halo { own: 2, ..Halo::default() });
}

/// Every rank ends with an error that holds these words.
fn all_fail<T>(ranks: usize, words: &[&str], work: impl Fn(&dyn Communicator) -> Result<T> + Sync)
where
    T: Send,
{
    for (rank, found) in on_ranks(ranks, work).into_iter().enumerate() {
        let error = found.err().unwrap_or_else(|| panic!("rank {rank} should have failed with {words:?}"));
        assert_eq!(error.exit_code(), 2, "{error}");
        for word in words {
            assert!(error.to_string().contains(word), "rank {rank}: `{word}` is not in `{error}`");
        }
    }
}

#[test]
fn wrong_numbers_are_named_on_every_rank() {
    let own: [&[u64]; 3] = [&[1, 2], &[64, 2], &[3]];
    all_fail(3, &["block row 2", "rank 0", "rank 1"], |comm| Halo::build(comm, own[comm.rank()], []));
    let own: [&[u64]; 3] = [&[1, 2], &[64, 3, 64], &[4]];
    all_fail(3, &["block row 64", "twice", "rank 1"], |comm| Halo::build(comm, own[comm.rank()], []));
    let own: [&[u64]; 3] = [&[1, 2], &[64], &[]];
    all_fail(3, &["rank 2", "block column 65"], |comm| {
        let columns: &[u64] = if comm.rank() == 2 { &[1, 65] } else { &[2] };
        Halo::build(comm, own[comm.rank()], columns.iter().copied())
    });
}

#[test]
fn wrong_rows_are_named_on_every_rank() {
    let rows = |rank: u64| Rows {
        numbers: vec![2 * rank, 2 * rank + 1],
        block: 1,
        terms: vec![(
            Dense::identity(1),
            RowBlocks { row_ptr: vec![0, 1, 2], col: vec![0, 3], values: vec![1.0, 2.0] },
        )],
    };
    let with = |change: fn(&mut Rows)| {
        move |comm: &dyn Communicator| {
            let mut mine = rows(comm.rank() as u64);
            if comm.rank() == 1 {
                change(&mut mine);
            }
            distribute(comm, mine)
        }
    };
    assert!(on_ranks(2, with(|_| ())).iter().all(Result::is_ok));
    all_fail(2, &["block row 3", "block column 3", "NaN"], with(|r| r.terms[0].1.values[1] = f64::NAN));
    all_fail(2, &["row pointers", "2 rows"], with(|r| r.terms[0].1.row_ptr = vec![0, 2]));
    all_fail(
        2,
        &["the pointer after block row 3 is smaller"],
        with(|r| r.terms[0].1.row_ptr = vec![0, 3, 2]),
    );
    all_fail(
        2,
        &["block column 0", "twice", "block row 3"],
        with(|r| {
            r.terms[0].1 = RowBlocks { row_ptr: vec![0, 0, 2], col: vec![0, 0], values: vec![1.0, 2.0] };
        }),
    );
    all_fail(2, &["3 values for 2 blocks"], with(|r| r.terms[0].1.values.push(0.0)));
    all_fail(
        2,
        &["different systems", "rank 1", "blocks of 2×2"],
        with(|r| {
            r.block = 2;
            r.terms[0].1.values = vec![0.0; 8];
        }),
    );
    all_fail(2, &["different systems", "coefficients"], with(|r| r.terms[0].0[(0, 0)] = 2.0));
    all_fail(2, &["0 terms"], with(|r| r.terms.clear()));
    all_fail(2, &["block size"], with(|r| r.block = 0));
}

#[test]
fn partitions_that_do_not_fit() {
    assert!(matches!(Partition::new(vec![0, 2], 2), Err(Error::Invalid(m)) if m.contains("block row 1")));
    assert!(Partition::new(vec![], 0).is_err());
    let a = Bsr::new(1, 2, 3, vec![0, 0, 0], vec![], vec![]).unwrap();
    let terms = Terms::new(vec![(Dense::identity(1), Cow::Owned(a))]).unwrap();
    let error = split(&terms, &Partition::new(vec![0, 0], 1).unwrap()).unwrap_err().to_string();
    assert!(error.contains("must be 2×2"), "{error}");
}

/// One result from each of `size` ranks, which are threads.
fn on_ranks<T: Send>(size: usize, work: impl Fn(&dyn Communicator) -> T + Sync) -> Vec<T> {
    Team::run(size, |comm| Ok(work(&*comm))).unwrap()
}
