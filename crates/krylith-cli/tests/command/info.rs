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
    assert_eq!(
        beside(out, "symmetry"),
        ["symmetric", "positive semidefinite: the diagonal is positive and dominant", "bandwidth 1"]
    );
    let blocks = "blocks 1×1 (sizes 2 to 8 add 75 % zeros or more, the limit is 20 %; --block overrides)";
    assert_eq!(beside(out, "system")[2..], [blocks, "numbering unknown: neither fields nor cells are seen"]);
    assert_eq!(
        beside(out, "recognised"),
        ["no coupled system was looked for, because there are fewer than 1 000 unknowns"]
    );
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
    let found = "symmetric up to 3e-17 of the largest entry of a row";
    assert_eq!(beside(&f.line("info a.mtx").works().out, "symmetry")[0], found);
    f.write("a.mtx", mtx(3, 3, &entries(1e-9)));
    assert!(beside(&f.line("info a.mtx").works().out, "symmetry")[0].starts_with("not symmetric"));
}

/// Returns the entries of a grid of `side`² nodes with the five-point stencil, counted from 1.
fn grid(side: usize) -> Vec<(usize, usize, f64)> {
    let at = |x: usize, y: usize| y * side + x + 1;
    let mut entries = Vec::new();
    for (y, x) in (0..side).flat_map(|y| (0..side).map(move |x| (y, x))) {
        entries.push((at(x, y), at(x, y), 4.0));
        entries.extend((x + 1 < side).then(|| (at(x, y), at(x + 1, y), -1.0)));
        entries.extend((y + 1 < side).then(|| (at(x, y), at(x, y + 1), -1.0)));
    }
    let mirrored: Vec<_> = entries.iter().filter(|e| e.0 != e.1).map(|&(i, j, v)| (j, i, v)).collect();
    [entries, mirrored].concat()
}

/// Assembly rounds mirrored entries apart, and leaves pairs of rounding errors of opposite signs. What is
/// printed is what the solver finds.
#[test]
fn the_symmetry_is_the_one_that_the_solver_finds() {
    let f = Folder::new();
    for (noise, symmetric) in [(1e-14, true), (2e-12, true), (1e-3, false)] {
        let mut entries = grid(40);
        for (k, entry) in entries.iter_mut().enumerate() {
            entry.2 *= 1.0 + noise * ((k * 7919 % 1000) as f64 / 500.0 - 1.0);
        }
        entries.extend([(1, 900, 1.8e-17), (900, 1, -1.9e-17), (5, 777, 1e-18)]);
        f.write("a.mtx", mtx(1600, 1600, &entries));
        let ran = f.line("info a.mtx");
        let (out, plan) = (&ran.works().out, beside(&ran.out, "a solve").join("; "));
        let line = beside(out, "symmetry")[0];
        assert_eq!(line.starts_with("symmetric up to "), symmetric, "{noise}: {line}");
        assert_eq!(plan.contains("because the matrix is symmetric"), symmetric, "{noise}: {plan}");
        // The pair of rounding errors differs by two hundred percent, and does not count.
        assert!(symmetric || line.ends_with("differ by up to 0.195 %"), "{noise}: {line}");
    }
}

/// A symmetric matrix with diagonal entries of both signs is indefinite, however few they are.
#[test]
fn the_diagonal_shows_that_a_matrix_is_indefinite() {
    let f = Folder::new();
    type Entries = Vec<(usize, usize, f64)>;
    let with = |change: &dyn Fn(&mut Entries)| {
        let mut entries = grid(40);
        change(&mut entries);
        f.write("a.mtx", mtx(1600, 1600, &entries));
        let out = f.line("info a.mtx").works().out.clone();
        let has_cg = out.contains("with cg, because the matrix is symmetric");
        assert_eq!(has_cg, !out.contains("indefinite"), "{out}");
        (beside(&out, "symmetry")[1].to_string(), has_cg, beside(&out, "recognised")[0].to_string())
    };
    let diagonal = |entries: &mut Vec<(usize, usize, f64)>, i: usize, v: f64| {
        entries.iter_mut().filter(|e| e.0 == i && e.1 == i).for_each(|e| e.2 = v);
    };
    let (sign, has_cg, found) = with(&|_| {});
    assert_eq!(sign, "positive semidefinite: the diagonal is positive and dominant");
    assert!(has_cg);
    assert!(found.starts_with("no coupled system, because no diagonal entry is zero or of the rarer sign"));
    let (sign, has_cg, _) = with(&|all| diagonal(all, 700, 3.0));
    assert_eq!((sign.as_str(), has_cg), ("may be positive definite: the diagonal is positive", true));
    let (sign, has_cg, found) = with(&|all| diagonal(all, 700, -1e-3));
    assert_eq!(sign, "indefinite: diagonal entries are 1 negative, 1 599 positive");
    assert!(!has_cg);
    assert_eq!(found, "no coupled system, because only 1 of 1 600 diagonal entries have the rarer sign");
    let (sign, has_cg, found) = with(&|all| (1..=8).for_each(|i| diagonal(all, i, 0.0)));
    assert_eq!(sign, "indefinite: 8 entries of the diagonal are zero, and their rows are not");
    assert!(!has_cg);
    let why = "8 of 1 600 diagonal entries are zero, and 8 of them couple to each other";
    assert_eq!(found, format!("no coupled system, because {why}"));
    let (sign, _, _) = with(&|all| all.iter_mut().for_each(|e| e.2 = -e.2));
    assert_eq!(sign, "negative semidefinite: the diagonal is negative and dominant");
}

/// Sums of rounded entries are not exactly zero.
#[test]
fn rows_that_sum_to_zero_are_dominant() {
    let f = Folder::new();
    let weight = |i: usize| 0.1 + (i * 7919 % 101) as f64 / 30.0;
    let mut entries = Vec::new();
    for i in 0..60usize {
        let near = [i.wrapping_sub(1), i.wrapping_sub(7), i + 1, i + 7];
        let near: Vec<(usize, f64)> =
            near.iter().filter(|j| **j < 60).map(|&j| (j, weight(i.min(j) * 60 + i.max(j)))).collect();
        entries.push((i + 1, i + 1, near.iter().map(|(_, w)| w).sum::<f64>()));
        entries.extend(near.iter().map(|(j, w)| (i + 1, j + 1, -w)));
    }
    f.write("a.mtx", mtx(60, 60, &entries));
    let all = "dominant in every row (no smaller than the sum of the other entries)";
    assert_eq!(beside(&f.line("info a.mtx").works().out, "diagonal")[1], all);
    entries[0].2 *= 1.0 - 1e-9;
    f.write("a.mtx", mtx(60, 60, &entries));
    assert_eq!(beside(&f.line("info a.mtx").works().out, "diagonal")[1], "dominant in 59 of 60 rows");
}

#[test]
fn small_diagonal_entries_of_blocks_are_counted() {
    let f = Folder::new();
    let mut entries = chain(30, 3, |i, c| i * 3 + c);
    entries.iter_mut().filter(|e| e.0 == e.1 && e.0 % 3 == 2).for_each(|e| e.2 = 1e-7);
    f.write("a.mtx", mtx(90, 90, &entries));
    for block in [1, 3] {
        let out = f.line(&format!("info a.mtx --block {block}")).works().out.clone();
        let small = "30 entries smaller than 1e-3 times the largest entry of the row";
        assert_eq!(beside(&out, "diagonal")[1], small, "{block}");
    }
}

#[test]
fn a_few_long_rows_stand_apart() {
    let f = Folder::new();
    let mut entries = grid(40);
    let first = |out: &str| beside(out, "A")[0].to_string();
    f.write("a.mtx", mtx(1600, 1600, &entries));
    assert!(first(&f.line("info a.mtx").works().out).contains(": 3 to 5 a row, "));
    entries.extend((3..=1600).filter(|j| *j != 41).map(|j| (1, j, 0.5)));
    f.write("a.mtx", mtx(1600, 1600, &entries));
    let out = first(&f.line("info a.mtx").works().out);
    assert!(out.contains(": one row has 1 600, the others 3 to 5, "), "{out}");
    entries.extend((1..=800).filter(|j| ![798, 758].contains(j)).map(|j| (799, j, 0.5)));
    f.write("a.mtx", mtx(1600, 1600, &entries));
    let out = first(&f.line("info a.mtx").works().out);
    assert!(out.contains(": 2 rows have 80") && out.contains(" to 1 600, the others 3 to 5, "), "{out}");
}

/// Fields, cells that are larger than blocks, and a saddle point have their numbering.
#[test]
fn the_numbering_is_the_one_that_is_found() {
    let f = Folder::new();
    // Fields u and v, each on a grid, coupled at each node.
    let n = 900;
    let mut entries: Vec<_> = grid(30).iter().flat_map(|&(i, j, v)| [(i, j, v), (n + i, n + j, v)]).collect();
    entries.extend(grid(30).iter().flat_map(|&(i, j, v)| [(i, n + j, 0.1 * v), (n + i, j, 0.2 * v)]));
    f.write("a.mtx", mtx(2 * n, 2 * n, &entries));
    let out = f.line("info a.mtx").works().out.clone();
    let numbering = |out: &str| beside(out, "system").last().unwrap().to_string();
    assert_eq!(numbering(&out), "numbering by fields: 2 of 900 unknowns, one after the other");
    assert!(!out.contains("interleaved"), "{out}");
    // A temperature and ten groups that couple with it, in each of 200 cells.
    let mut entries = Vec::new();
    for i in 0..200 {
        for r in 0..11 {
            let at = |i: usize, r: usize| 11 * i + r + 1;
            entries.push((at(i, r), at(i, r), 30.0));
            entries.extend(
                (r > 0).then(|| [(at(i, r), at(i, 0), 1.0), (at(i, 0), at(i, r), 2.0)]).into_iter().flatten(),
            );
            entries.extend(
                (i > 0)
                    .then(|| [(at(i, r), at(i - 1, r), -1.0), (at(i - 1, r), at(i, r), -1.0)])
                    .into_iter()
                    .flatten(),
            );
        }
    }
    f.write("a.mtx", mtx(2200, 2200, &entries));
    let out = f.line("info a.mtx").works().out.clone();
    assert_eq!(numbering(&out), "numbering interleaved: cells of 11 unknowns fit; blocks go to 8");
    // Fluxes between cells, and a pressure of each cell behind them.
    let mut entries: Vec<_> = (1..=1000).map(|i| (i, i, 2.0)).collect();
    entries
        .extend((1..=1000).flat_map(|i| {
            [(i, 1000 + i, 1.0), (1000 + i, i, 1.0), (i, 1001 + i, -1.0), (1001 + i, i, -1.0)]
        }));
    f.write("a.mtx", mtx(2001, 2001, &entries));
    let out = f.line("info a.mtx").works().out.clone();
    assert_eq!(numbering(&out), "numbering by fields: u, p");
    assert!(beside(&out, "recognised")[0].starts_with("a saddle point: 1 000 unknowns u"), "{out}");
    let mixed: Vec<_> =
        entries.iter().map(|&(i, j, v)| (i * 1000 % 2001 + 1, j * 1000 % 2001 + 1, v)).collect();
    f.write("a.mtx", mtx(2001, 2001, &mixed));
    let out = f.line("info a.mtx").works().out.clone();
    assert!(numbering(&out).starts_with("numbering mixed: "), "{out}");
}

/// Mirrored blocks of fields may differ by rounding errors that are zero in one of them.
#[test]
fn rounding_errors_of_one_block_are_counted() {
    let f = Folder::new();
    let mut entries = vec![(1, 1, 2.0), (2, 2, 2.0), (1, 3, 1.0), (3, 1, 1.0), (2, 4, 0.5), (4, 2, 0.5)];
    let blocks = |entries: &[(usize, usize, f64)]| {
        f.write("a.mtx", mtx(4, 4, entries));
        let out = f.line("info a.mtx --fields u=0:2,p=2:4").works().out.clone();
        beside(&out, "fields")[1..3].iter().map(|line| line.to_string()).collect::<Vec<_>>()
    };
    let (there, back) = ("u–p: 2 nonzeros, the transpose of p–u", "p–u: 2 nonzeros, the transpose of u–p");
    assert_eq!(blocks(&entries), [there, back]);
    entries.push((1, 4, 1e-20));
    let there = "u–p: 3 nonzeros, the transpose of p–u; 1 rounding error has no entry there";
    assert_eq!(blocks(&entries), [there, back]);
}

/// A real form [[R, −I], [I, R]] becomes symmetric if half of the rows change their sign.
#[test]
fn a_real_form_is_symmetric_up_to_signs() {
    let f = Folder::new();
    let parts = |i: usize, j: usize, v: f64| [(i, j, v), (900 + i, 900 + j, v)];
    let mut entries: Vec<_> = grid(30).iter().flat_map(|&(i, j, v)| parts(i, j, v)).collect();
    entries.extend((1..=900).flat_map(|i| [(i, 900 + i, -0.5), (900 + i, i, 0.5)]));
    f.write("a.mtx", mtx(1800, 1800, &entries));
    let out = f.line("info a.mtx").works().out.clone();
    assert_eq!(
        beside(&out, "symmetry")[1],
        "symmetric up to the signs of rows 900 to 1 799 (counted from 0)"
    );
}

/// Of two coupled potentials one is determined up to a constant. Without a solution the solve says so.
#[test]
fn the_constant_of_one_of_two_fields_is_found() {
    let f = Folder::new();
    let n = 900;
    let laplace = |at: [usize; 2], factor: f64| {
        let mut sum = vec![0.0; n + 1];
        let off: Vec<_> = grid(30).into_iter().filter(|e| e.0 != e.1).collect();
        off.iter().for_each(|e| sum[e.0] += 1.0);
        let diagonal = (1..=n).map(move |i| (i, i, sum[i]));
        off.into_iter().chain(diagonal).map(move |(i, j, v)| (at[0] + i, at[1] + j, factor * v))
    };
    let mut entries: Vec<_> = laplace([0, 0], 1.0).chain(laplace([n, n], 2.5)).collect();
    entries.extend(laplace([0, n], 1.0).chain(laplace([n, 0], 1.0)));
    entries.extend((1..=n).map(|i| (i, i, 0.3)));
    f.write("a.mtx", mtx(2 * n, 2 * n, &entries));
    let out = f.line("info a.mtx").works().out.clone();
    let found = "singular: A maps constants of the last 900 of 1 800 unknowns to zero (--nullspace constant \
                 projects them out)";
    assert_eq!(beside(&out, "rank")[1], found);
    f.write("b.txt", (0..2 * n).map(|i| if i < n { "1\n" } else { "0\n" }).collect::<String>());
    f.line("solve a.mtx --nullspace constant --rhs b.txt").works();
    f.write("b.txt", (0..2 * n).map(|i| if i == n { "1\n" } else { "0\n" }).collect::<String>());
    let ran = f.line("solve a.mtx --rhs b.txt");
    assert!(ran.out.contains("inconsistent") || ran.err.contains("inconsistent"), "{ran:#?}");
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
        [
            "pattern symmetric; values at transposed positions differ by up to 200 %",
            "symmetric up to the signs of rows 3, 4, 5 (counted from 0)",
            "bandwidth 1"
        ]
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
