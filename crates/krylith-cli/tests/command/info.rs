//! `krylith info SYSTEM --ranks P`, and `krylith warm`.

use crate::common::{Folder, Ran, chain, mtx};

/// Returns the words of the line that begins with `way` in the table of partitions.
#[track_caller]
fn line(out: &str, way: &str) -> Vec<String> {
    let at = out.find("partition ").unwrap_or_else(|| panic!("no table in {out}"));
    let found = out[at..].lines().find(|l| l.trim_start().starts_with(way));
    found.unwrap_or_else(|| panic!("no {way} in {out}")).split_whitespace().map(String::from).collect()
}

#[test]
fn each_way_has_its_quality() {
    let f = Folder::new();
    // 8 layers of 4×4 nodes, partitioned between layers: each side of a boundary sends 16 nodes of 8 bytes.
    let ran = f.line("info laplace:4x4x8 --ranks 4");
    let out = &ran.works().out;
    assert!(out.contains("over 4 ranks"), "{out}");
    assert_eq!(line(out, "rows").join(" "), "rows 1.000 1.043 96 256 B 768 B 2 75.0 %");
    for way in ["nonzeros", "geometric", "graph"] {
        let words = line(out, way);
        let share: f64 = words[2].parse().unwrap();
        assert!((1.0..1.05).contains(&share), "{words:?}");
    }
    let words = line(&f.line("info laplace:8x8x8 --ranks 8").works().out, "boxes").join(" ");
    assert_eq!(words, "boxes 1.000 1.000 384 384 B 3.0 KiB 3 57.8 %");
    let ran = f.line("info stokes:4x4x4 --ranks 1");
    assert_eq!(line(&ran.works().out, "graph").join(" "), "graph 1.000 1.000 0 0 B 0 B 0 0.0 %");
}

#[test]
fn a_geometric_cut_needs_coordinates() {
    let f = Folder::new();
    f.write("a.mtx", mtx(90, 90, &chain(30, 3, |i, c| i * 3 + c)));
    let ran = f.line("info a.mtx --ranks 3");
    assert!(
        line(&ran.works().out, "geometric").join(" ").contains("the coordinates of the nodes"),
        "{ran:#?}"
    );
    assert_eq!(line(&ran.out, "rows")[..4], ["rows", "1.000", "1.023", "4"]);
    // With one point per node the geometric partition exists; both numberings have the same nodes.
    let points: String = (0..30).map(|i| format!("{i} 0 0\n")).collect();
    f.write("x.txt", points);
    f.write("s.toml", "matrix = 'a.mtx'\nblock = 3\ncoordinates = 'x.txt'\n");
    let ran = f.line("info s.toml --ranks 3");
    assert_eq!(line(&ran.works().out, "geometric")[1..], line(&ran.out, "nonzeros")[1..], "{ran:#?}");
    // The points belong to another block size than the requested one: only the other partitioners work.
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

/// Returns the lines of a label, without those of other labels.
#[track_caller]
fn beside<'a>(out: &'a str, label: &str) -> Vec<&'a str> {
    let begins = |l: &&str| l.strip_prefix(label).is_some_and(|rest| rest.starts_with("  "));
    let at = out.lines().position(|l| begins(&l)).unwrap_or_else(|| panic!("no {label} in {out}"));
    let lines = out.lines().enumerate().skip(at);
    let own = lines.take_while(|(i, l)| *i == at || l.starts_with("   "));
    own.map(|(i, l)| if i == at { l[label.len()..].trim() } else { l.trim() }).collect()
}

#[test]
fn a_good_system_is_told_in_short_lines() {
    let f = Folder::new();
    let mut entries: Vec<_> = (1..=6).map(|i| (i, i, 4.0)).collect();
    entries.extend((1..6).flat_map(|i| [(i, i + 1, -1.0), (i + 1, i, -1.0)]));
    f.write("a.mtx", mtx(6, 6, &entries));
    let ran = f.line("info a.mtx");
    let out = &ran.works().out;
    assert_eq!(beside(out, "values"), ["magnitudes 1 to 4", "largest of each row 4, of each column 4"]);
    assert_eq!(
        beside(out, "diagonal"),
        [
            "complete: no entry is missing or zero",
            "dominant in every row (no smaller than the sum of the other entries)"
        ]
    );
    assert_eq!(beside(out, "rank"), ["structural rank 6 of 6, because the diagonal has no zero"]);
    assert_eq!(beside(out, "symmetry"), ["symmetric", "bandwidth 1"]);
    assert_eq!(
        beside(out, "a solve")[2..4],
        ["1. ildu with cg, because the matrix is symmetric", "2. lu:most=300000000 with bicgstab"]
    );
    let memory = beside(out, "memory");
    assert!(memory[0].contains(" for the first attempt: matrix 248 B, preconditioner"), "{memory:?}");
    assert!(memory.last().unwrap().ends_with(" free"), "{memory:?}");
    let own = &out[out.find("\nsystem").unwrap()..];
    assert!(own.lines().all(|l| l.chars().count() <= 120), "{out}");
    assert!(!out.contains("\nempty"), "{out}");
}

#[test]
fn a_singular_system_is_named_with_its_rows() {
    let f = Folder::new();
    // Row 3 has only a stored zero; rows 0, 1 and 4 have entries only in columns 0 and 1.
    let entries = [
        (1, 1, 2.0),
        (1, 2, 1.0),
        (2, 2, 3.0),
        (3, 2, 1.0),
        (3, 3, 1.0),
        (4, 4, 0.0),
        (5, 1, 1.0),
        (5, 2, 2.0),
        (6, 6, 1e9),
    ];
    f.write("a.mtx", mtx(6, 6, &entries));
    let ran = f.line("info a.mtx --block 1");
    let out = &ran.works().out;
    assert_eq!(
        beside(out, "diagonal"),
        ["2 of 6 entries missing or zero: rows 3, 4 (counted from 0)", "dominant in 4 of 6 rows"]
    );
    assert_eq!(
        beside(out, "empty"),
        [
            "row 3 has no nonzero entry: there is no solution if b is not zero there",
            "columns 3, 4 have no nonzero entry: these unknowns can have any value"
        ]
    );
    assert_eq!(
        beside(out, "rank"),
        [
            "structural rank 4 of 6: the matrix is singular, whatever its values",
            "rows 0, 1, 3, 4 have entries only in 2 columns"
        ]
    );
    assert_eq!(
        beside(out, "symmetry")[0],
        "not symmetric: of 8 entries 4 (50 %) have no entry at the transposed position"
    );
    assert_eq!(beside(out, "values")[0], "magnitudes 1 to 1e9");
    // A matching also scales.
    assert!(out.contains("rows matched with columns: 2 entries of the diagonal missing or small"), "{out}");
}

/// Finite element codes add contributions in another order for mirrored entries, and some cancel in one of
/// them.
#[test]
fn a_matrix_is_symmetric_up_to_rounding() {
    let f = Folder::new();
    let entries = |small: f64| {
        let side = [(1, 2, 0.1 + 0.2), (2, 1, 0.3), (3, 1, small), (2, 3, -1.0), (3, 2, -1.0)];
        (1..=3).map(|i| (i, i, 2.0)).chain(side).collect::<Vec<_>>()
    };
    f.write("a.mtx", mtx(3, 3, &entries(1e-17)));
    let found =
        "symmetric up to rounding: mirrored entries differ by at most 3e-17 of the largest of their row";
    assert_eq!(beside(&f.line("info a.mtx").works().out, "symmetry")[0], found);
    f.write("a.mtx", mtx(3, 3, &entries(1e-9)));
    assert!(beside(&f.line("info a.mtx").works().out, "symmetry")[0].starts_with("not symmetric"));
}

#[test]
fn an_odd_system_has_the_numbers_and_the_options_of_its_user() {
    let f = Folder::new();
    // Two fields of three nodes, field by field; the second field has no diagonal.
    let fields = (1..=3).flat_map(|i| [(i, i, 2.0 + i as f64), (i, 3 + i, 1.0), (3 + i, i, -1.0)]);
    f.write("a.mtx", mtx(6, 6, &fields.collect::<Vec<_>>()));
    let ran = f.line("info a.mtx --block 2 --ordering segregated");
    let out = &ran.works().out;
    assert_eq!(
        beside(out, "diagonal")[0],
        "3 of 6 entries missing or zero: rows 3, 4, 5 (counted from 0)",
        "{out}"
    );
    assert_eq!(beside(out, "rank"), ["structural rank 6 of 6"]);
    assert_eq!(
        beside(out, "symmetry"),
        ["pattern symmetric; values at transposed positions differ by up to 200 %", "bandwidth 1"]
    );
    f.write(
        "s.toml",
        "matrix = 'a.mtx'\nblock = 1\n[solver]\nprecond = 'jacobi'\nmethod = 'gmres'\nrestart = 4\n",
    );
    let ran = f.line("info s.toml");
    assert_eq!(beside(&ran.works().out, "a solve")[1..], ["1. jacobi with gmres(4)"]);
    // Two matrices of a Kronecker sum, each with its own symmetry; rows are named with stages.
    let ran = f.line("info stokes:3x3x3,scheme=radau-iia-2");
    let out = &ran.works().out;
    assert_eq!(beside(out, "symmetry")[0], "M symmetric");
    assert!(beside(out, "symmetry")[2].starts_with("L "), "{out}");
    f.write("m.mtx", mtx(3, 3, &[(1, 1, 1.0), (2, 2, 1.0)]));
    let toml = "[kronecker]\nM = 'm.mtx'\nL = 'm.mtx'\nblock = 1\ntau = 1.0\nscheme = 'radau-iia-2'\n";
    f.write("k.toml", toml);
    let ran = f.line("info k.toml");
    let empty = &beside(&ran.works().out, "empty")[0];
    assert!(empty.starts_with("rows 2 of stage 0, 2 of stage 1 have no nonzero entry"), "{ran:#?}");
}

/// Without a compiler or a GPU, `warm` names what is missing.
#[test]
fn kernels_are_compiled_ahead_or_the_reason_is_given() {
    let f = Folder::new();
    let mut command = f.command(&["warm", "--arch", "9.0"]);
    command.env("KRYLITH_NVRTC", "/nowhere/libnvrtc.so.13").env("KRYLITH_CACHE", f.0.path());
    let ran = Ran::new(command.output().unwrap());
    ran.fails(3, &["KRYLITH_NVRTC=/nowhere/libnvrtc.so.13", "there is no such file", "pip install"]);
    f.run(&["warm", "--precond-precision", "f16"]).fails(2, &["f16", "f64", "f32", "bf16"]);
    for arch in ["7.5", "9", "hopper"] {
        f.run(&["warm", "--arch", arch]).fails(2, &[arch, "compute capability of 8.0 or later"]);
    }
}
