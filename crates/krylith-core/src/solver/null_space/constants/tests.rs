use crate::comm::{Communicator, Team};
use crate::matrix::{Bsr, Csr, Dense, KroneckerSum};
use crate::operator::Terms;
use crate::partition::{Partition, split};
use crate::{Field, Problem};
use std::sync::Arc;

fn words(problem: &Problem) -> String {
    problem.diagnosis().unwrap().constants.to_string()
}

/// Returns the entries for springs between neighbours. The first node is held if `held` is not zero.
fn springs(n: u32, held: f64) -> Vec<(u32, u32, f64)> {
    let spring = |i| [(i, i, 1.1), (i, i + 1, -1.1), (i + 1, i, -1.1), (i + 1, i + 1, 1.1)];
    (0..n - 1).flat_map(spring).chain((held != 0.0).then_some((0, 0, held))).collect()
}

fn csr(n: u32, entries: &[(u32, u32, f64)]) -> Csr {
    Csr::from_triplets(n as usize, n as usize, entries).unwrap()
}

/// Returns a block matrix with these springs for each component.
fn fields(held: &[f64]) -> Bsr {
    let b = held.len() as u32;
    let of = |c: usize| {
        springs(9, held[c]).into_iter().map(move |(i, j, v)| (i * b + c as u32, j * b + c as u32, v))
    };
    let entries: Vec<_> = (0..held.len()).flat_map(of).collect();
    Bsr::from_csr(&csr(9 * b, &entries), held.len()).unwrap()
}

#[test]
fn constants_are_found_where_nothing_holds_them() {
    for n in [2, 63, 64, 65, 3000] {
        let free = Problem::csr(&csr(n, &springs(n, 0.0))).unwrap();
        assert_eq!(words(&free), "constants", "{n}");
        assert_eq!(free.diagnosis().unwrap().constants.vectors, [vec![1.0; n as usize]], "{n}");
        // A single entry at the end or at the start rules out the constant, however small it is.
        for (at, held) in [(0, 1.0), (n - 1, 1e-9)] {
            let mut entries = springs(n, 0.0);
            entries.push((at, at, held));
            assert_eq!(words(&Problem::csr(&csr(n, &entries)).unwrap()), "", "{n}, held at {at}");
        }
    }
    assert_eq!(words(&Problem::csr(&csr(3, &[])).unwrap()), "");
}

#[test]
fn constants_of_fields_and_stages_are_told_apart() {
    for (held, expected) in [
        ([0.0, 0.0, 0.0], "constants of every field"),
        ([1.0, 0.0, 2.0], "constants of field 1"),
        ([0.0, 1.0, 0.0], "constants of fields 0, 2"),
        ([1.0, 1.0, 1.0], ""),
    ] {
        let a = fields(&held);
        assert_eq!(words(&Problem::bsr(&a).unwrap()), expected, "{held:?}");
        let k = KroneckerSum::new(Dense::identity(2), Dense::identity(2), 0.5, a.clone(), a).unwrap();
        let problem = Problem::kronecker(&k).unwrap();
        let found = problem.diagnosis().unwrap().constants;
        assert_eq!(found.vectors.len(), 2 * held.iter().filter(|held| **held == 0.0).count(), "{held:?}");
        if !found.is_none() {
            assert_eq!(problem.constant_null_vectors().unwrap(), found.vectors, "{held:?}");
        }
    }
}

#[test]
fn parts_that_nothing_connects_have_constants_of_their_own() {
    let moved = |by: u32, entries: Vec<(u32, u32, f64)>| {
        entries.into_iter().map(move |(i, j, v)| (i + by, j + by, v))
    };
    let pair = |held: [f64; 2]| -> Csr {
        csr(17, &springs(7, held[0]).into_iter().chain(moved(7, springs(10, held[1]))).collect::<Vec<_>>())
    };
    let (both, second) = (pair([0.0, 0.0]), pair([1.0, 0.0]));
    assert_eq!(words(&Problem::csr(&both).unwrap()), "constants in each of 2 disconnected parts");
    assert_eq!(words(&Problem::csr(&second).unwrap()), "constants of 10 of 17 unknowns");
    let named = Problem::csr(&second).unwrap().constant_null_vectors().unwrap();
    assert_eq!(named, [(0..17).map(|i| f64::from(u8::from(i >= 7))).collect::<Vec<f64>>()]);
    assert_eq!(words(&Problem::csr(&pair([1.0, 1.0])).unwrap()), "");
}

#[test]
fn pressures_are_the_unknowns_without_a_diagonal_entry() {
    let mut entries = springs(6, 1.0);
    (0..6)
        .for_each(|i| entries.extend([(i, 6 + i, 1.0), (6 + i, i, 1.0), (i, 7 + i, -1.0), (7 + i, i, -1.0)]));
    let flow = Problem::csr(&csr(13, &entries)).unwrap();
    assert_eq!(words(&flow), "constants of the 7 unknowns without a diagonal entry");
    assert_eq!(flow.constant_null_vectors().unwrap().len(), 1);
    // A rounding error left by assembly counts as zero next to the other entries of its row.
    let with = |size: f64| {
        let mut entries = entries.clone();
        entries.extend([(2, 9, size), (4, 12, -size)]);
        words(&Problem::csr(&csr(13, &entries)).unwrap())
    };
    assert_eq!(with(1e-17), words(&flow));
    assert_eq!(with(1e-9), "");
    // The outlet adds an entry. With 1 in place of 0.5, a constant of the other pressures would remain.
    entries.push((0, 12, 0.5));
    assert_eq!(words(&Problem::csr(&csr(13, &entries)).unwrap()), "");
}

#[test]
fn left_overs_of_assembly_hide_no_constant_of_a_field() {
    // There are two fields, of which the second is free.
    let free = fields(&[1.0, 0.0]);
    let with = |size: f64| {
        let mut blocks = free.clone();
        blocks.values_mut()[1] = size; // the first field in a row of the second's column
        words(&Problem::bsr(&blocks).unwrap())
    };
    assert_eq!(with(0.0), "constants of field 1");
    assert_eq!(with(1e-17), "constants of field 1");
    assert_eq!(with(1e-9), "");
}

/// Returns potentials of tissue, of which `held` marks those that a reaction holds: fields of `sizes` nodes,
/// coupled node by node by −D with D·1 = 0, as in the bidomain equations.
fn tissue(sizes: &[u32], held: &[bool], first: impl Fn(usize, u32) -> u32) -> Csr {
    let n = sizes.iter().sum();
    let mut entries = Vec::new();
    for (f, g) in (0..sizes.len()).flat_map(|f| (0..sizes.len()).map(move |g| (f, g))) {
        let size = sizes[f].min(sizes[g]);
        let weight = if f == g { 3.0 } else { 1.0 };
        let entry = |(i, j, v): (u32, u32, f64)| (first(f, i), first(g, j), weight * v);
        entries.extend(springs(if f == g { sizes[f] } else { size }, 0.0).into_iter().map(entry));
        entries.extend((0..sizes[f]).filter(|_| f == g && held[f]).map(|i| (first(f, i), first(f, i), 0.7)));
    }
    csr(n, &entries)
}

/// One potential of two is free, in several orders of the unknowns, among 3000 and among a few.
#[test]
fn a_constant_of_one_field_is_a_null_vector() {
    for n in [3u32, 70, 1500] {
        let halves = |held: [bool; 2]| tissue(&[n, n], &held, move |f, i| f as u32 * n + i);
        let of = |held: [bool; 2]| words(&Problem::csr(&halves(held)).unwrap());
        let all = crate::text::count(2 * n as usize);
        let half = crate::text::count(n as usize);
        assert_eq!(of([true, false]), format!("constants of the last {half} of {all} unknowns"));
        assert_eq!(of([false, true]), format!("constants of the first {half} of {all} unknowns"));
        assert_eq!(of([true, true]), "");
        let found = Problem::csr(&halves([true, false])).unwrap().diagnosis().unwrap();
        let expected: Vec<f64> = (0..2 * n).map(|i| f64::from(u8::from(i >= n))).collect();
        assert_eq!(found.constants.vectors[..], [&expected[..]], "{n}");
        let named = Problem::csr(&halves([true, false])).unwrap().constant_null_vectors().unwrap();
        assert_eq!(named, [expected], "{n}");
        // b has a part along the null vector, which is also one of Aᵀ.
        let b: Vec<f64> = (0..2 * n).map(|i| f64::from(u8::from(i == n))).collect();
        let floor = found.floor(&Problem::csr(&halves([true, false])).unwrap(), &b).unwrap().unwrap();
        assert!((floor.relative - f64::from(n).sqrt().recip()).abs() < 1e-12, "{n}: {floor:?}");
        // Both constants are null vectors, and so is their sum.
        let both = Problem::csr(&halves([false, false])).unwrap().diagnosis().unwrap().constants;
        assert_eq!(both.vectors.len(), 2, "{n}: {both}");
        // Interleaved, and with a field of another length.
        let alternate = tissue(&[n, n], &[true, false], |f, i| 2 * i + f as u32);
        let expected = "constants of component 1 of 2 in interleaved order";
        assert_eq!(words(&Problem::csr(&alternate).unwrap()), expected, "{n}");
        let uneven = tissue(&[n + 2, n], &[true, false], |f, i| f as u32 * (n + 2) + i);
        let all = crate::text::count(2 * n as usize + 2);
        assert_eq!(
            words(&Problem::csr(&uneven).unwrap()),
            format!("constants of the last {half} of {all} unknowns")
        );
        // The middle one of three fields.
        let middle = tissue(&[n; 3], &[true, false, true], |f, i| f as u32 * n + i);
        let [from, to] = [n, 2 * n - 1].map(|i| crate::text::count(i as usize));
        let expected = format!("constants of each of the unknowns {from} to {to} (counted from 0)");
        assert_eq!(words(&Problem::csr(&middle).unwrap()), expected, "{n}");
        // Two interleaved components before a field that is held.
        let flow =
            tissue(&[n; 3], &[false, false, true], |f, i| if f < 2 { 2 * i + f as u32 } else { 2 * n + i });
        let found = Problem::csr(&flow).unwrap().diagnosis().unwrap().constants;
        assert_eq!(found.vectors.len(), 2, "{n}: {found}");
        assert!(found.to_string().ends_with("unknowns, in each of 2 of 2 interleaved components"), "{found}");
        assert!(found.vectors[1][..4] == [0.0, 1.0, 0.0, 1.0], "{n}");
        // Named fields in any order.
        let shuffled = tissue(&[n, n], &[true, false], |f, i| (f as u32 * n + i) * 7919 % (2 * n));
        let at = |f: u32| (0..n).map(|i| (f * n + i) * 7919 % (2 * n)).collect::<Vec<u32>>();
        let named = Problem::csr(&shuffled).unwrap();
        let named = named.with_fields(vec![Field::new("v", at(0)), Field::new("u", at(1))]).unwrap();
        assert_eq!(words(&named), "constants of field u", "{n}");
        // A single entry, however small, rules them out.
        let mut entries: Vec<(u32, u32, f64)> = Vec::new();
        let a = halves([true, false]);
        for i in 0..2 * n {
            let (col, values) = a.row(i as usize);
            entries.extend(col.iter().zip(values).map(|(&j, &v)| (i, j, v)));
        }
        entries.push((n + 1, n + 1, 1e-9));
        assert_eq!(words(&Problem::csr(&csr(2 * n, &entries)).unwrap()), "", "{n}");
    }
}

#[test]
fn free_bodies_have_rotations_too() {
    // The springs are along the sides and diagonals of a square.
    let points = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0]];
    let mut entries = Vec::new();
    for (p, q) in (0..4).flat_map(|p| (0..p).map(move |q| (p, q))) {
        let d = [0, 1].map(|c: usize| points[p][c] - points[q][c]);
        for (r, c) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let v = d[r] * d[c];
            let at = |node: usize, c: usize| (2 * node + c) as u32;
            entries.extend([(at(p, r), at(p, c), v), (at(q, r), at(q, c), v)]);
            entries.extend([(at(p, r), at(q, c), -v), (at(q, r), at(p, c), -v)]);
        }
    }
    let body = Bsr::from_csr(&csr(8, &entries), 2).unwrap();
    let known = Problem::bsr(&body).unwrap().with_coordinates(points.to_vec()).unwrap();
    let found = known.diagnosis().unwrap().constants;
    assert_eq!((found.to_string(), found.vectors.len(), found.named), ("rigid motions".into(), 3, false));
    assert_eq!(words(&Problem::bsr(&body).unwrap()), "constants of every field");
}

#[test]
fn ranks_find_what_one_finds() {
    for held in [0.0, 1.0] {
        let a = Bsr::from_csr(&csr(200, &springs(200, held)), 1).unwrap();
        let parts = split(&Terms::bsr(&a), &Partition::by_rows(200, 3).unwrap()).unwrap();
        let found = Team::run(3, |comm| {
            let part = parts[comm.rank()].clone();
            let found = Problem::part(comm as Arc<dyn Communicator>, part)?.diagnosis()?.constants;
            Ok((found.to_string(), found.vectors.len()))
        });
        let expected = if held == 0.0 { ("constants".to_string(), 1) } else { (String::new(), 0) };
        assert_eq!(found.unwrap(), vec![expected; 3], "{held}");
    }
}
