//! `krylith info SYSTEM --ranks P`.

use crate::common::{Folder, chain, mtx};

/// The words of the partition table's line that begins with `way`.
#[track_caller]
fn line(out: &str, way: &str) -> Vec<String> {
    let at = out.find("partition ").unwrap_or_else(|| panic!("no table in {out}"));
    let found = out[at..].lines().find(|l| l.trim_start().starts_with(way));
    found.unwrap_or_else(|| panic!("no {way} in {out}")).split_whitespace().map(String::from).collect()
}

#[test]
fn each_way_has_its_quality() {
    let f = Folder::new();
    // 8 layers of 4×4 nodes, cut between layers: 16 nodes of 8 bytes to each side.
    let ran = f.line("info laplace:4x4x8 --ranks 4");
    let out = &ran.works().out;
    assert!(out.contains("over 4 ranks"), "{out}");
    assert_eq!(line(out, "rows").join(" "), "rows 1.000 1.043 96 256 B 768 B 2 75.0 %");
    for way in ["nonzeros", "geometric", "graph"] {
        let words = line(out, way);
        let share: f64 = words[2].parse().unwrap();
        assert!((1.0..1.05).contains(&share), "{words:?}");
    }
    let ran = f.line("info stokes:4x4x4 --ranks 1");
    assert_eq!(line(&ran.works().out, "graph").join(" "), "graph 1.000 1.000 0 0 B 0 B 0 0.0 %");
}

#[test]
fn a_geometric_cut_needs_coordinates() {
    let f = Folder::new();
    f.write("a.mtx", mtx(90, 90, &chain(30, 3, |i, c| i * 3 + c)));
    let ran = f.line("info a.mtx --ranks 3");
    assert!(line(&ran.works().out, "geometric").join(" ").contains("no coordinates"), "{ran:#?}");
    assert_eq!(line(&ran.out, "rows")[..4], ["rows", "1.000", "1.023", "4"]);
    // With points, one for each node, it is there; both numberings have the same nodes.
    let points: String = (0..30).map(|i| format!("{i} 0 0\n")).collect();
    f.write("x.txt", points);
    f.write("s.toml", "matrix = 'a.mtx'\nblock = 3\ncoordinates = 'x.txt'\n");
    let ran = f.line("info s.toml --ranks 3");
    assert_eq!(line(&ran.works().out, "geometric")[1..], line(&ran.out, "nonzeros")[1..], "{ran:#?}");
    // Points of other blocks than those that were asked for: the other ways remain.
    let ran = f.line("info s.toml --block 1 --ranks 3");
    assert!(
        line(&ran.works().out, "geometric").join(" ").contains("30 points for 90 block rows"),
        "{ran:#?}"
    );
}

#[test]
fn more_ranks_than_block_rows_are_refused() {
    let f = Folder::new();
    f.write("a.mtx", mtx(90, 90, &chain(30, 3, |i, c| i * 3 + c)));
    f.line("info a.mtx --ranks 30").works();
    f.line("info a.mtx --ranks 31").fails(2, &["a.mtx", "31 ranks", "30 block rows"]);
}
