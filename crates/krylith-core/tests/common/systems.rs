//! Random block and Kronecker systems of every kind, each from a number.

use super::exact::{Exact, two_product};
use super::{Random, random_kronecker};
use krylith_core::matrix::{Bsr, Csr, Dense, KroneckerSum};
use std::collections::BTreeMap;

/// Kinds of systems: number `i` is of kind `i % KINDS.len()`.
pub const KINDS: [&str; 22] = [
    "dominant",
    "rows of unlike sizes",
    "columns of unlike sizes",
    "nearly singular",
    "not dominant",
    "zero diagonals",
    "symmetric",
    "skew",
    "singular",
    "tiny or huge",
    "graded",
    "denormal",
    "complex",
    "integer",
    "saddle point",
    "arrow",
    "Neumann",
    "several null vectors",
    "penalty rows",
    "stored zeros",
    "triangular, permuted",
    "cyclic",
];

/// Most unknowns: dense references stay cheap.
const MOST: usize = 150;

/// A system and its right-hand side.
pub struct RandomSystem {
    pub kind: &'static str,
    /// A⊗M + τB⊗L; of one stage and B = 0 a point-block matrix, M. τ is a power of two.
    pub k: KroneckerSum,
    /// True where it is to be given as the point-block matrix M.
    pub plain: bool,
    pub b: Vec<f64>,
}

impl RandomSystem {
    /// System `number` of the series that `seed` begins: 1 to 60 block rows, b from 1 to 5, s from 1 to 3.
    pub fn new(seed: u64, number: usize) -> Self {
        let rng = &mut Random(seed.wrapping_mul(0x9E37_79B9).wrapping_add(number as u64));
        let kind = KINDS[number % KINDS.len()];
        let (plain, b) = (rng.below(3) > 0, 1 + rng.below(5));
        let s = if plain { 1 } else { 1 + rng.below(3) };
        let n = 1 + rng.below((MOST / (b * s)).min(60));
        let is_dominant = kind != "not dominant";
        let (per_row, same) = (1 + rng.below(4), rng.below(2) == 0);
        let mut k = random_kronecker(rng, b, s, n, per_row, same, is_dominant);
        if plain {
            k.a = Dense::identity(1);
            k.b = Dense::new(1, 1, vec![0.0]).unwrap();
        } else if rng.below(2) == 0 {
            k.a = Dense::identity(s);
        }
        match kind {
            "rows of unlike sizes" => scale(rng, &mut k, true),
            "columns of unlike sizes" => scale(rng, &mut k, false),
            "nearly singular" => dampen(rng, &mut k, &[1e-4, 1e-7, 1e-10, 1e-13]),
            "not dominant" => raise_diagonal(rng, &mut k),
            "zero diagonals" => each(&mut k, &|a| clear_diagonal(a)),
            "symmetric" => each(&mut k, &|a| mirror(a, 1.0)),
            "skew" => each(&mut k, &|a| mirror(a, -1.0)),
            "singular" => dampen(rng, &mut k, &[0.0]),
            "tiny or huge" => {
                let factor = 10f64.powi(rng.below(200) as i32 - 100);
                each(&mut k, &|a| Bsr::values_mut(a).iter_mut().for_each(|v| *v *= factor));
            }
            "graded" => grade(rng, &mut k),
            "denormal" => each(&mut k, &|a| Bsr::values_mut(a).iter_mut().for_each(|v| *v *= 1e-310)),
            "complex" => each(&mut k, &complex),
            "integer" => {
                each(&mut k, &|a| Bsr::values_mut(a).iter_mut().for_each(|v| *v = (2.0 * *v).round()))
            }
            "saddle point" => each(&mut k, &saddle),
            "arrow" => each(&mut k, &arrow),
            "Neumann" => each(&mut k, &|a| laplacian(a, 1)),
            "several null vectors" => each(&mut k, &|a| laplacian(a, 3)),
            "penalty rows" => {
                let penalised: Vec<bool> = (0..k.m.rows()).map(|_| rng.below(5) == 0).collect();
                entries(&mut k, &|i, j, v| if i == j && penalised[i] { 1e10 } else { v });
            }
            "stored zeros" => {
                let salt = rng.next();
                entries(&mut k, &|i, j, v| if i != j && hash(salt, i, j) % 5 < 2 { 0.0 } else { v });
            }
            "triangular, permuted" => {
                let salt = rng.next();
                let after = |i: usize, j: usize| (hash(salt, i, i), i) >= (hash(salt, j, j), j);
                entries(&mut k, &|i, j, v| if after(i, j) { v } else { 0.0 });
            }
            "cyclic" => each(&mut k, &cycle),
            _ => {}
        }
        let rhs = right_hand_side(rng, &k);
        Self { kind, k, plain, b: rhs }
    }

    /// Every entry, to twice the digits.
    pub fn exact(&self) -> Exact {
        let (s, n) = (self.k.stages(), self.k.rows());
        let mut rows = vec![Vec::new(); n];
        for (c, factor, a) in [(&self.k.a, 1.0, &self.k.m), (&self.k.b, self.k.tau, &self.k.l)] {
            let a = a.to_csr();
            for i in 0..a.rows() {
                let (col, values) = a.row(i);
                for (&j, &v) in col.iter().zip(values) {
                    for (p, q) in (0..s).flat_map(|p| (0..s).map(move |q| (p, q))) {
                        let entry = two_product(factor * c[(p, q)], v);
                        if entry.0 != 0.0 {
                            rows[i * s + p].push((j as usize * s + q, entry));
                        }
                    }
                }
            }
        }
        Exact { rows }
    }
}

fn each(k: &mut KroneckerSum, change: &dyn Fn(&mut Bsr)) {
    change(&mut k.m);
    change(&mut k.l);
}

/// Changes every entry of M and L alike, by its scalar row and column.
fn entries(k: &mut KroneckerSum, change: &dyn Fn(usize, usize, f64) -> f64) {
    each(k, &|a| {
        let (b, row_ptr, col) = (a.block(), a.row_ptr().to_vec(), a.col().to_vec());
        for i in 0..row_ptr.len() - 1 {
            for p in row_ptr[i]..row_ptr[i + 1] {
                for e in 0..b * b {
                    let v = &mut a.values_mut()[p * b * b + e];
                    *v = change(i * b + e / b, col[p] as usize * b + e % b, *v);
                }
            }
        }
    });
}

/// Powers of ten on rows or columns, up to 10^±8.
fn scale(rng: &mut Random, k: &mut KroneckerSum, rows: bool) {
    let most = 1.0 + rng.below(8) as f64;
    let factors: Vec<f64> = (0..k.m.rows()).map(|_| 10f64.powf(most * rng.number())).collect();
    entries(k, &|i, j, v| v * factors[if rows { i } else { j }]);
}

/// One scalar row of both matrices times a small factor, with the columns alike: nearly or wholly singular.
fn dampen(rng: &mut Random, k: &mut KroneckerSum, factors: &[f64]) {
    let (row, factor, alike) = (rng.below(k.m.rows()), factors[rng.below(factors.len())], rng.below(2));
    entries(k, &|i, j, v| if i == row || (alike == 1 && j == row) { v * factor } else { v });
}

/// A number that belongs to (i, j).
fn hash(salt: u64, i: usize, j: usize) -> u64 {
    Random(salt ^ ((i as u64) << 32 | j as u64)).next()
}

/// The entries of A by rows.
fn triplets(a: &Bsr) -> Vec<(u32, u32, f64)> {
    let csr = a.to_csr();
    let row = |i: usize| csr.row(i).0.iter().zip(csr.row(i).1).map(move |(&j, &v)| (i as u32, j, v));
    (0..csr.rows()).flat_map(row).collect()
}

/// A of these entries instead; those of one place are added.
fn replace(a: &mut Bsr, entries: &[(u32, u32, f64)]) {
    let n = a.rows();
    *a = Bsr::from_csr(&Csr::from_triplets(n, n, entries).unwrap(), a.block()).unwrap();
}

/// Adds a diagonal that helps and does not dominate.
fn raise_diagonal(rng: &mut Random, k: &mut KroneckerSum) {
    let shift = 0.5 + rng.below(3) as f64;
    each(k, &|a| {
        let mut entries = triplets(a);
        entries.extend((0..a.rows() as u32).map(|i| (i, i, shift)));
        replace(a, &entries);
    });
}

/// Rows and columns by powers of two that grow from row to row, up to 2^±500 in all.
fn grade(rng: &mut Random, k: &mut KroneckerSum) {
    let (most, n) = ([20.0, 120.0, 500.0][rng.below(3)], k.m.rows() as f64);
    let power = |i: usize| (most * (i as f64 / n - 0.5)).round();
    entries(k, &|i, j, v| v * (power(i) + power(j)).exp2());
}

/// Rows in pairs as the real form of complex numbers: [[p, −q], [q, p]].
fn complex(a: &mut Bsr) {
    let mut pairs: BTreeMap<(u32, u32), f64> = BTreeMap::new();
    let n = a.rows() as u32;
    let pair = |i: u32| if (i | 1) < n { i & !1 } else { i };
    for (i, j, v) in triplets(a) {
        let (i0, j0) = (pair(i), pair(j));
        let whole = (i0 | 1) < n && (j0 | 1) < n;
        // Of each pair of pairs the first row says p and q.
        match whole {
            true if i == i0 => {
                let imaginary = j != j0;
                *pairs.entry((i0, j)).or_default() = if imaginary { -v } else { v };
                *pairs.entry((i0 + 1, if imaginary { j0 } else { j0 + 1 })).or_default() = v;
            }
            true => {}
            false => *pairs.entry((i, j)).or_default() = v,
        }
    }
    replace(a, &pairs.into_iter().map(|((i, j), v)| (i, j, v)).collect::<Vec<_>>());
}

/// [[K, Bᵀ], [B, 0]]: the last third of the rows has no entries among themselves.
fn saddle(a: &mut Bsr) {
    let first = (a.rows() - a.rows() / 3) as u32;
    let mut entries = Vec::new();
    for (i, j, v) in triplets(a) {
        match (i < first, j < first) {
            (true, true) => entries.push((i, j, v)),
            (false, true) => entries.extend([(i, j, v), (j, i, v)]),
            _ => {}
        }
    }
    // Each constraint has an unknown of its own.
    let own = |i: u32| (i, (i - first) % first, 1.0 + f64::from(i));
    entries.extend((first..a.rows() as u32).map(own).flat_map(|(i, j, v)| [(i, j, v), (j, i, v)]));
    replace(a, &entries);
}

/// A diagonal, a last row and a last column.
fn arrow(a: &mut Bsr) {
    let last = a.rows() as u32 - 1;
    let mut entries: Vec<_> =
        triplets(a).into_iter().filter(|&(i, j, _)| i == j || i == last || j == last).collect();
    let size = |i: u32| 1.0 + f64::from(i % 7);
    entries
        .extend((0..=last).flat_map(|i| [(i, i, 0.5), (i, last, 0.1 * size(i)), (last, i, -0.2 * size(i))]));
    replace(a, &entries);
}

/// A graph's Laplacian of this many parts, each of which has a constant in the null space.
fn laplacian(a: &mut Bsr, parts: u32) {
    let mut entries = Vec::new();
    let mut edge = |i: u32, j: u32, w: f64| entries.extend([(i, i, w), (j, j, w), (i, j, -w), (j, i, -w)]);
    for (i, j, v) in triplets(a) {
        if i < j && i % parts == j % parts {
            edge(i, j, v.abs());
        }
    }
    (parts..a.rows() as u32).for_each(|i| edge(i, i - parts, 1.0));
    // A part of one row has an empty one.
    (0..a.rows() as u32).for_each(|i| entries.push((i, i, 0.0)));
    replace(a, &entries);
}

/// A cycle alone: GMRES without a preconditioner stands still for n − 1 iterations.
fn cycle(a: &mut Bsr) {
    let n = a.rows() as u32;
    replace(a, &(0..n).map(|i| (i, (i + 1) % n, 1.0 + f64::from(i % 3))).collect::<Vec<_>>());
}

/// Sets the diagonal of every second scalar row to zero. If the row has a neighbour, the two are exchanged,
/// and both diagonals become small.
fn clear_diagonal(a: &mut Bsr) {
    let n = a.rows() as u32;
    let swap = |i: u32| if (i ^ 1) < n { i ^ 1 } else { i };
    let cleared = |i: u32, j: u32, v: f64| if i == j && i % 2 == 0 && i + 1 < n { 0.0 } else { v };
    let swapped = triplets(a).into_iter().map(|(i, j, v)| (swap(i), j, cleared(swap(i), j, v)));
    let entries: Vec<_> = swapped.collect();
    replace(a, &entries);
}

/// A + Aᵀ, or A − Aᵀ with a small diagonal.
fn mirror(a: &mut Bsr, sign: f64) {
    let mut both: Vec<_> = triplets(a).iter().flat_map(|&(i, j, v)| [(i, j, v), (j, i, sign * v)]).collect();
    if sign < 0.0 {
        both.extend((0..a.rows() as u32).map(|i| (i, i, 0.1)));
    }
    replace(a, &both);
}

/// Creates random numbers, A times ones or random numbers, a single entry, numbers of different sizes, or of
/// an unusual unit.
fn right_hand_side(rng: &mut Random, k: &KroneckerSum) -> Vec<f64> {
    let n = k.rows();
    match rng.below(7) {
        0 => super::by_rows(k, &vec![1.0; n]),
        4 => super::by_rows(k, &rng.numbers(n)),
        1 => {
            let place = rng.below(n);
            (0..n).map(|i| f64::from(u8::from(i == place))).collect()
        }
        2 => (0..n).map(|_| 10f64.powf(5.0 * rng.number()) * rng.number()).collect(),
        3 => {
            let unit = 10f64.powi(rng.below(240) as i32 - 120);
            rng.numbers(n).iter().map(|v| v * unit).collect()
        }
        _ => rng.numbers(n),
    }
}
