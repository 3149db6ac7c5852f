//! L U of several matrices with one pattern at once, with pivots that the pattern fixes.
//!
//! Rows are matched with columns by the sizes of the first matrices, if the diagonal is weak. Unknowns are
//! ordered by approximate minimum degree, and L and U have the pattern of the factors of A + Aᵀ. Every
//! operation of the elimination then runs on the same entries of all matrices, which alternate in memory. It
//! is one instruction for all lanes, and nothing searches for pivots or supernodes. A matrix that needs other
//! pivots is left to its own factors; the residual decides.

use crate::matching::Matching;
use crate::matrix::{Bsr, Csr};
use crate::{Error, Result};
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::sparse::SymbolicSparseColMatRef;
use faer::sparse::linalg::amd;

/// Number of matrices that are factorised at once.
pub(super) const LANES: usize = 8;
/// Largest number of entries of L + U. The factors of all lanes then take at most 64 MiB for each thread.
const MOST: usize = 1 << 20;
/// A diagonal entry below this share of its row's largest is weak.
const WEAK: f64 = 1e-2;
/// A pivot below this share of the largest entry of its row counts as zero.
const TINY: f64 = 1e-12;

/// The same entry of all matrices.
pub(super) type Lane = [f64; LANES];

/// The order of elimination, and the pattern of L + U.
pub(super) struct Plan {
    /// The given row and the given unknown at each place.
    rows: Vec<u32>,
    unknowns: Vec<u32>,
    ptr: Vec<usize>,
    col: Vec<u32>,
    diagonal: Vec<usize>,
    /// The place in L + U of each stored number of A.
    places: Vec<u32>,
}

/// Factors of the matrices of all lanes.
#[derive(Default)]
pub(super) struct Lanes {
    values: Vec<Lane>,
    inverses: Vec<Lane>,
    row: Vec<Lane>,
    /// True for matrices with a pivot that counts as zero.
    pub lost: [bool; LANES],
}

impl Plan {
    /// Analyses the pattern of `a`, whose values are sizes of entries. Returns `None` if the factors
    /// would be too large, or if rows cannot be matched with columns.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(a: &Bsr) -> Result<Option<Self>> {
        let (n, b) = (a.rows(), a.block());
        if a.stored() > MOST || n == 0 {
            return Ok(None);
        }
        let entry = |e: usize, i: usize, p: usize| {
            (i * b + e / b, a.col()[p] as usize * b + e % b, a.values()[p * b * b + e])
        };
        let mut entries = Vec::with_capacity(a.stored());
        for i in 0..a.block_rows() {
            for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                entries.extend((0..b * b).map(|e| entry(e, i, p)));
            }
        }
        let Some(rows) = matched(n, &entries)? else { return Ok(None) };
        let mut place_of_row = vec![0u32; n];
        rows.iter().enumerate().for_each(|(place, &row)| place_of_row[row as usize] = place as u32);
        // Place of rows after the matching, and columns.
        let pairs: Vec<[u32; 2]> = entries.iter().map(|e| [place_of_row[e.0], e.1 as u32]).collect();
        let order = least_degree(n, &pairs)?;
        let mut place = vec![0u32; n];
        order.iter().enumerate().for_each(|(new, &old)| place[old as usize] = new as u32);
        let pairs: Vec<[u32; 2]> =
            pairs.iter().map(|[i, j]| [place[*i as usize], place[*j as usize]]).collect();
        let Some((ptr, col, diagonal)) = fill(n, &pairs) else { return Ok(None) };
        let at = |[i, j]: &[u32; 2]| {
            let (from, to) = (ptr[*i as usize], ptr[*i as usize + 1]);
            col[from..to].binary_search(j).map(|k| (from + k) as u32)
        };
        let places = pairs.iter().map(at).collect::<std::result::Result<_, _>>();
        let places = places.map_err(|_| Error::Internal("lu: an entry outside the fill".into()))?;
        let rows = order.iter().map(|&old| rows[old as usize]).collect();
        Ok(Some(Self { rows, unknowns: order, ptr, col, diagonal, places }))
    }

    fn order(&self) -> usize {
        self.rows.len()
    }

    /// Factorises matrices, given by their stored numbers.
    pub fn factorise(&self, values: &[&[f64]; LANES], lanes: &mut Lanes) {
        let n = self.order();
        lanes.values.clear();
        lanes.values.resize(self.col.len(), [0.0; LANES]);
        lanes.inverses.resize(n, [0.0; LANES]);
        lanes.row.resize(n, [0.0; LANES]);
        lanes.lost = [false; LANES];
        for (p, &place) in self.places.iter().enumerate() {
            let to = &mut lanes.values[place as usize];
            (0..LANES).for_each(|l| to[l] += values[l][p]);
        }
        wide(
            #[inline(always)]
            || self.eliminate(lanes),
        );
    }

    #[inline(always)]
    fn eliminate(&self, lanes: &mut Lanes) {
        let Lanes { values, inverses, row, lost } = lanes;
        for i in 0..self.order() {
            let (own, diagonal) = (self.ptr[i]..self.ptr[i + 1], self.diagonal[i]);
            let mut largest = [0.0f64; LANES];
            for p in own.clone() {
                let v = values[p];
                (0..LANES).for_each(|l| largest[l] = largest[l].max(v[l].abs()));
                row[self.col[p] as usize] = v;
            }
            for &k in &self.col[own.start..diagonal] {
                let k = k as usize;
                let (mut factor, inverse) = (row[k], inverses[k]);
                (0..LANES).for_each(|l| factor[l] *= inverse[l]);
                row[k] = factor;
                let upper = self.diagonal[k] + 1..self.ptr[k + 1];
                for (u, &j) in values[upper.clone()].iter().zip(&self.col[upper]) {
                    let to = &mut row[j as usize];
                    (0..LANES).for_each(|l| to[l] -= factor[l] * u[l]);
                }
            }
            for p in own {
                values[p] = row[self.col[p] as usize];
            }
            let (pivot, inverse) = (values[diagonal], &mut inverses[i]);
            for l in 0..LANES {
                let zero = !(pivot[l].abs() > TINY * largest[l]);
                lost[l] |= zero;
                inverse[l] = if zero { 0.0 } else { 1.0 / pivot[l] };
            }
        }
    }

    /// Solves in place: x has the right-hand sides, and then the solutions. `work` is scratch.
    pub fn solve(&self, lanes: &Lanes, transposed: bool, x: &mut [Lane], work: &mut Vec<Lane>) {
        let (from, to) = if transposed { (&self.unknowns, &self.rows) } else { (&self.rows, &self.unknowns) };
        work.clear();
        work.extend(from.iter().map(|&i| x[i as usize]));
        wide(
            #[inline(always)]
            || match transposed {
                false => self.substitute(lanes, work),
                true => self.substitute_transposed(lanes, work),
            },
        );
        to.iter().zip(&*work).for_each(|(&i, v)| x[i as usize] = *v);
    }

    #[inline(always)]
    fn substitute(&self, lanes: &Lanes, y: &mut [Lane]) {
        let part = |range: std::ops::Range<usize>, y: &[Lane], mut sum: Lane| {
            for (a, &j) in lanes.values[range.clone()].iter().zip(&self.col[range]) {
                let from = &y[j as usize];
                (0..LANES).for_each(|l| sum[l] -= a[l] * from[l]);
            }
            sum
        };
        for i in 0..self.order() {
            y[i] = part(self.ptr[i]..self.diagonal[i], y, y[i]);
        }
        for i in (0..self.order()).rev() {
            let sum = part(self.diagonal[i] + 1..self.ptr[i + 1], y, y[i]);
            (0..LANES).for_each(|l| y[i][l] = sum[l] * lanes.inverses[i][l]);
        }
    }

    #[inline(always)]
    fn substitute_transposed(&self, lanes: &Lanes, y: &mut [Lane]) {
        let spread = |range: std::ops::Range<usize>, y: &mut [Lane], v: Lane| {
            for (a, &j) in lanes.values[range.clone()].iter().zip(&self.col[range]) {
                let to = &mut y[j as usize];
                (0..LANES).for_each(|l| to[l] -= a[l] * v[l]);
            }
        };
        for i in 0..self.order() {
            (0..LANES).for_each(|l| y[i][l] *= lanes.inverses[i][l]);
            spread(self.diagonal[i] + 1..self.ptr[i + 1], y, y[i]);
        }
        for i in (0..self.order()).rev() {
            spread(self.ptr[i]..self.diagonal[i], y, y[i]);
        }
    }
}

/// Runs work with the widest vectors of this processor.
fn wide(work: impl FnOnce()) {
    struct Wide<F>(F);
    impl<F: FnOnce()> pulp::NullaryFnOnce for Wide<F> {
        type Output = ();
        #[inline(always)]
        fn call(self) {
            (self.0)()
        }
    }
    pulp::Arch::new().dispatch(Wide(work));
}

/// Returns the row for each place of the diagonal; `None` if there is no such matching.
fn matched(n: usize, entries: &[(usize, usize, f64)]) -> Result<Option<Vec<u32>>> {
    let (mut own, mut largest) = (vec![0.0f64; n], vec![0.0f64; n]);
    for &(i, j, v) in entries {
        largest[i] = largest[i].max(v.abs());
        if i == j {
            own[i] = v.abs();
        }
    }
    let strong = |i: usize| own[i] > 0.0 && own[i] >= WEAK * largest[i];
    if (0..n).all(strong) {
        return Ok(Some((0..n as u32).collect()));
    }
    let triplets: Vec<_> = entries.iter().map(|&(i, j, v)| (i as u32, j as u32, v)).collect();
    let matching = Matching::of(&Csr::from_triplets(n, n, &triplets)?)?;
    Ok(matching.unmatched().is_empty().then(|| matching.rows().to_vec()))
}

/// Returns an order of approximate minimum degree.
fn least_degree(n: usize, pairs: &[[u32; 2]]) -> Result<Vec<u32>> {
    let mut ptr = vec![0usize; n + 1];
    pairs.iter().for_each(|[_, j]| ptr[*j as usize + 1] += 1);
    (0..n).for_each(|j| ptr[j + 1] += ptr[j]);
    let (mut next, mut rows) = (ptr.clone(), vec![0usize; pairs.len()]);
    for [i, j] in pairs {
        rows[next[*j as usize]] = *i as usize;
        next[*j as usize] += 1;
    }
    (0..n).for_each(|j| rows[ptr[j]..ptr[j + 1]].sort_unstable());
    let no_room = |e: &dyn std::fmt::Debug| Error::Internal(format!("lu: {e:?}"));
    let pattern = SymbolicSparseColMatRef::new_checked(n, n, &ptr, None, &rows);
    let mut buffer =
        MemBuffer::try_new(amd::order_scratch::<usize>(n, pairs.len())).map_err(|e| no_room(&e))?;
    let (mut order, mut inverse) = (vec![0usize; n], vec![0usize; n]);
    let stack = MemStack::new(&mut buffer);
    amd::order(&mut order, &mut inverse, pattern, amd::Control::default(), stack).map_err(|e| no_room(&e))?;
    Ok(order.into_iter().map(|i| i as u32).collect())
}

/// Returns the pattern of L + U by rows for these entries and their transposes, with the place of each
/// diagonal entry; `None` if it is too large.
fn fill(n: usize, pairs: &[[u32; 2]]) -> Option<(Vec<usize>, Vec<u32>, Vec<usize>)> {
    // Neighbours of lower number, of entries and their transposes.
    let mut lower = vec![Vec::new(); n];
    for &[i, j] in pairs {
        if i != j {
            lower[i.max(j) as usize].push(i.min(j));
        }
    }
    // Row i of L is reached from its neighbours along the elimination tree (Liu 1986).
    let (mut parent, mut seen) = (vec![u32::MAX; n], vec![u32::MAX; n]);
    let mut upper = vec![Vec::new(); n];
    let mut count = n;
    for i in 0..n {
        let mut row = Vec::new();
        seen[i] = i as u32;
        for &k in &lower[i] {
            let mut k = k;
            while seen[k as usize] != i as u32 {
                seen[k as usize] = i as u32;
                row.push(k);
                upper[k as usize].push(i as u32);
                if parent[k as usize] == u32::MAX {
                    parent[k as usize] = i as u32;
                }
                k = parent[k as usize];
            }
        }
        row.sort_unstable();
        count += 2 * row.len();
        if count > MOST {
            return None;
        }
        lower[i] = row;
    }
    let (mut ptr, mut col, mut diagonal) = (vec![0], Vec::with_capacity(count), Vec::with_capacity(n));
    for i in 0..n {
        col.extend_from_slice(&lower[i]);
        diagonal.push(col.len());
        col.push(i as u32);
        col.extend_from_slice(&upper[i]);
        ptr.push(col.len());
    }
    Some((ptr, col, diagonal))
}
