use super::*;

fn pointers(lengths: &[usize]) -> Vec<usize> {
    let mut all = vec![0];
    lengths.iter().for_each(|len| all.push(all[all.len() - 1] + len));
    all
}

fn cut(lengths: &[usize], mode: &str, ranks: usize) -> Cuts {
    Cuts::find(&OnHost(&pointers(lengths)), &mode.parse().unwrap(), ranks).unwrap()
}

/// Returns the rows of each rank, stage after stage.
fn rows(cuts: &Cuts) -> Vec<Vec<Vec<Range<usize>>>> {
    let of = |runs: &Vec<Run>| runs.iter().map(|run| run.rows.clone()).collect();
    cuts.stages.iter().map(|stage| stage.runs.iter().map(of).collect()).collect()
}

/// Tests the cuts in Figures 3 and 5 of Gao, Ji and Wang, for a matrix of 7 rows and 17 entries.
#[test]
fn the_cuts_of_the_paper() {
    let lengths = [5, 3, 2, 2, 2, 2, 1];
    let one = |range: Range<usize>| vec![range];
    assert_eq!(rows(&cut(&lengths, "nz", 2)), [[one(0..2), one(2..7)]]);
    assert_eq!(rows(&cut(&lengths, "2nz", 2)), [[one(0..1), one(1..2)], [one(2..4), one(4..7)]]);
    assert_eq!(rows(&cut(&lengths, "lra:0.3", 2)), [[one(2..4), one(4..7)], [one(0..1), one(1..2)]]);
    // Every rank computes the last row, which has fewer entries than the row after the long block.
    let redundant = [[one(2..4), one(4..6)], [one(0..1), one(1..2)], [one(6..7), one(6..7)]];
    assert_eq!(rows(&cut(&lengths, "lra+rc:0.3/0.15", 2)), redundant);
}

#[test]
fn the_long_block_is_where_the_longest_row_is() {
    let mut lengths = [1; 10];
    let long = |lengths: &[usize]| rows(&cut(lengths, "lra:0.3", 1))[1][0][0].clone();
    for (row, expected) in [(0, 0..3), (2, 0..3), (3, 2..5), (5, 4..7), (6, 5..8), (7, 7..10), (9, 7..10)] {
        lengths = [1; 10];
        lengths[row] = 4;
        assert_eq!(long(&lengths), expected, "row {row}");
    }
    // There are several longest rows, and the first one counts.
    lengths[2] = 4;
    assert_eq!(long(&lengths), 0..3);
}

/// Every rank has every row once, runs have the right entries, and the parts of a stage differ by at most one
/// row.
#[test]
fn every_row_is_somebodys() {
    let mut seed = 1u64;
    let mut below = |n: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % n
    };
    let mut cases = vec![vec![], vec![0], vec![3], vec![0; 9], vec![0, 0, 7], vec![7, 0, 0], vec![1, 2]];
    for rows in [5, 17, 64, 300] {
        cases.push((0..rows).map(|_| below(7)).collect());
        cases.push((0..rows).map(|_| if below(9) == 0 { 40 } else { below(2) }).collect());
        let mut one = vec![1; rows];
        one[below(rows)] = 1000;
        cases.push(one);
    }
    let modes = [
        "nz",
        "2nz",
        "nz:5",
        "alone",
        "fused",
        "lra:0",
        "lra:1",
        "lra:0.35",
        "lra+rc:0.3/0.2",
        "lra+rc:0.5/0.5",
        "lra+rc:0/0.3",
    ];
    for lengths in &cases {
        let (pointers, longest) = (pointers(lengths), lengths.iter().max().copied().unwrap_or(0));
        for mode in modes {
            for ranks in 1..=16 {
                let what = format!("{mode} of {} rows on {ranks} ranks", lengths.len());
                let cuts = cut(lengths, mode, ranks);
                assert_eq!(Cuts::from_bytes(&cuts.to_bytes()).as_ref(), Some(&cuts), "{what}");
                let mut times = vec![vec![0; lengths.len()]; ranks];
                for stage in &cuts.stages {
                    assert_eq!(stage.runs.len(), ranks, "{what}");
                    for (rank, runs) in stage.runs.iter().enumerate() {
                        for Run { rows, entries } in runs {
                            assert!(!rows.is_empty(), "{what}");
                            assert_eq!(
                                *entries,
                                pointers[rows.start]..pointers[rows.end],
                                "{what}: {rows:?}"
                            );
                            let owners = if stage.redundant { rank..rank + 1 } else { 0..ranks };
                            owners.for_each(|q| times[q][rows.clone()].iter_mut().for_each(|n| *n += 1));
                        }
                    }
                    let entries = |runs: &Vec<Run>| runs.iter().map(|run| run.entries.len()).sum::<usize>();
                    let sums: Vec<usize> = stage.runs.iter().map(entries).collect();
                    let mean = sums.iter().sum::<usize>() as f64 / ranks as f64;
                    let most = sums.iter().fold(0.0, |most: f64, &n| most.max((n as f64 - mean).abs()));
                    assert!(most <= longest as f64 + 1.0, "{what}: {most} entries from the mean");
                }
                assert!(
                    times.iter().flatten().all(|&n| n == 1),
                    "{what}: a row is nobody's, or somebody's twice"
                );
            }
        }
    }
}

#[test]
fn modes_are_text() {
    for text in ["nz", "2nz", "nz:4", "fused", "alone", "lra:0.5", "lra+rc:0.25/0.05"] {
        assert_eq!(text.parse::<Mode>().unwrap().to_string(), text);
    }
    for bad in [
        "",
        "nz:",
        "nz:0",
        "nz:65",
        "lra",
        "lra:",
        "lra:1.5",
        "lra:-0.1",
        "lra:nan",
        "lra+rc:0.5",
        "lra+rc:0.7/0.4",
        "3nz",
    ] {
        let e = bad.parse::<Mode>().unwrap_err().to_string();
        assert!(e.starts_with("mode "), "{e}");
    }
    assert_eq!(Mode::by_rule(3.0, 2).map(|m| m.to_string()), ["lra:0.5", "lra+rc:0.4/0.15"]);
    assert_eq!(Mode::by_rule(3.0, 4).map(|m| m.to_string()), ["lra:0.5", "lra+rc:0.35/0.2"]);
    assert_eq!(Mode::by_rule(30.0, 2).map(|m| m.to_string()), ["lra:0.3", "lra+rc:0.25/0.05"]);
    assert_eq!(Mode::by_rule(8.0, 4).map(|m| m.to_string()), ["lra:0.35", "lra+rc:0.25/0.05"]);
}
