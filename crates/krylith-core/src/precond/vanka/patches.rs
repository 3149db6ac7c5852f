//! The unknowns of each patch, and the numbers of the local systems.

use super::{VankaKind, VankaOptions};
use crate::matrix::Bsr;
use crate::precond::multilevel::inverse_of;
use crate::space::Precision;
use crate::{Error, Result, threads};
use rayon::prelude::*;
use std::ops::Range;

/// Scalar rows that a thread takes at least.
const FEW: usize = 1 << 9;

/// A matrix with its values, as scalar rows.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub a: &'a Bsr,
    pub values: &'a [f64],
}

impl<'a> Rows<'a> {
    /// Returns the columns and values of a row, without columns of other ranks.
    pub fn row(self, i: usize) -> impl Iterator<Item = (u32, f64)> + 'a {
        let Self { a, values } = self;
        let (b, node) = (a.block(), i / a.block());
        let blocks = a.row_ptr()[node]..a.row_ptr()[node + 1];
        let own = blocks.filter(move |&p| (a.col()[p] as usize) < a.block_rows());
        own.flat_map(move |p| {
            let row = &values[(p * b + i % b) * b..][..b];
            row.iter().zip(a.col()[p] * b as u32..).map(|(v, j)| (j, *v))
        })
    }

    /// Returns the diagonal entry of a row; 0 if there is none.
    pub fn diagonal(self, i: usize) -> f64 {
        self.row(i).filter(|(j, _)| *j as usize == i).map(|(_, v)| v).sum()
    }
}

/// The unknowns of all patches.
#[doc(hidden)]
pub struct Patches {
    /// First place of each patch, and the end.
    pub first: Vec<usize>,
    /// The unknown of each place. Those of a patch ascend.
    pub members: Vec<u32>,
    /// First number of the dense inverse of each patch, and the end.
    pub at: Vec<usize>,
    /// The patch of each place.
    pub patch: Vec<u32>,
    /// The constraint of each patch.
    constraints: Vec<u32>,
    /// Places in the order of their unknowns, and the first of each unknown.
    places: Vec<u32>,
    first_of_unknown: Vec<usize>,
}

/// Dense inverses of patches, each by columns.
#[doc(hidden)]
pub enum Inverses {
    /// In double precision.
    F64(Vec<f64>),
    /// In single precision.
    F32(Vec<f32>),
}

/// Numbers of an application beside the dense inverses.
pub(super) struct Parts {
    /// Values of the matrix of the first product; empty for dense inverses.
    pub solves: Vec<f64>,
    /// Values of the matrix of the second product.
    pub sums: Vec<f64>,
    /// Factors of x.
    pub scaling: Vec<f64>,
}

impl Patches {
    /// Finds the patches of these constraints, which ascend, by the nonzeros of a matrix.
    ///
    /// # Errors
    /// A constraint without coupling; too many unknowns in all patches.
    pub(crate) fn new(rows: Rows, constraints: Vec<u32>) -> Result<Self> {
        let n = rows.a.rows();
        const NONE: u32 = u32::MAX;
        let mut own = vec![NONE; n];
        constraints.iter().zip(0..).for_each(|(&i, k)| own[i as usize] = k);
        // A patch and an unknown of it, as one number. Both rows and columns of a constraint couple.
        let code = |patch: u32, unknown: u32| u64::from(patch) << 32 | u64::from(unknown);
        let couplings = |i: usize| {
            let own = &own;
            let nonzero = rows.row(i).filter(|(_, v)| *v != 0.0);
            nonzero.filter_map(move |(j, _)| match (own[i], own[j as usize]) {
                (NONE, NONE) => None,
                (NONE, patch) => Some(code(patch, i as u32)),
                (patch, NONE) => Some(code(patch, j)),
                _ => None,
            })
        };
        let mut codes: Vec<u64> = (0..n).into_par_iter().with_min_len(FEW).flat_map_iter(couplings).collect();
        codes.par_extend(constraints.par_iter().enumerate().map(|(k, &i)| code(k as u32, i)));
        codes.par_sort_unstable();
        codes.dedup();
        if codes.len() > NONE as usize {
            return Err(Error::Unsupported(format!(
                "vanka: the patches have {} unknowns in all; at most 2³² are supported",
                codes.len()
            )));
        }
        let members: Vec<u32> = codes.par_iter().map(|code| *code as u32).collect();
        let patch: Vec<u32> = codes.par_iter().map(|code| (code >> 32) as u32).collect();
        let first = starts(constraints.len(), &patch);
        let sizes = first.windows(2).map(|w| w[1] - w[0]);
        if let Some(alone) = sizes.clone().position(|size| size == 1) {
            let remedy = "vanka finds no unknown that is coupled to this constraint; name the field of the constraints, \
                          such as vanka:field=p, or use split";
            return Err(Error::Pivot {
                row: constraints[alone] as usize / rows.a.block(),
                kind: "zero",
                remedy,
            });
        }
        let at = std::iter::once(0).chain(sizes.scan(0, |sum, size| {
            *sum += size * size;
            Some(*sum)
        }));
        let at = at.collect();
        let of_unknown = |(place, unknown): (usize, &u32)| code(*unknown, place as u32);
        let mut codes: Vec<u64> = members.par_iter().enumerate().map(of_unknown).collect();
        codes.par_sort_unstable();
        let places = codes.par_iter().map(|code| *code as u32).collect();
        let unknowns: Vec<u32> = codes.par_iter().map(|code| (code >> 32) as u32).collect();
        let first_of_unknown = starts(n, &unknowns);
        Ok(Self { first, members, at, patch, constraints, places, first_of_unknown })
    }

    /// Returns the number of patches.
    pub fn count(&self) -> usize {
        self.constraints.len()
    }

    /// Returns the number of unknowns of all patches together.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns true if there are no patches.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns the number of unknowns of the system.
    pub fn unknowns(&self) -> usize {
        self.first_of_unknown.len() - 1
    }

    /// Returns the number of unknowns of the largest patch.
    pub fn largest(&self) -> usize {
        self.first.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0)
    }

    /// Returns the number of numbers in the dense inverses.
    pub fn dense_numbers(&self) -> usize {
        self.at.last().copied().unwrap_or(0)
    }

    /// Returns the number of unknowns in no patch.
    pub fn alone(&self) -> usize {
        self.first_of_unknown.windows(2).filter(|w| w[0] == w[1]).count()
    }

    fn members_of(&self, patch: usize) -> &[u32] {
        &self.members[self.first[patch]..self.first[patch + 1]]
    }

    fn places_of(&self, unknown: usize) -> &[u32] {
        &self.places[self.first_of_unknown[unknown]..self.first_of_unknown[unknown + 1]]
    }

    /// Returns the matrix of the first product of diagonal patches, with these values.
    pub(super) fn matrix_of_solves(&self, values: Vec<f64>) -> Result<Bsr> {
        Bsr::new(1, self.count(), self.unknowns(), self.first.clone(), self.members.clone(), values)
    }

    /// Returns the matrix of the second product, with these values.
    pub(super) fn matrix_of_sums(&self, kind: VankaKind, values: Vec<f64>) -> Result<Bsr> {
        let (columns, col) = match kind {
            VankaKind::Full => (self.len(), self.places.clone()),
            VankaKind::Diagonal => {
                (self.count(), self.places.par_iter().map(|&place| self.patch[place as usize]).collect())
            }
        };
        Bsr::new(1, self.unknowns(), columns, self.first_of_unknown.clone(), col, values)
    }

    /// Computes the numbers beside the dense inverses.
    ///
    /// # Errors
    /// A zero diagonal entry; a diagonal patch that is singular.
    pub(super) fn numbers(&self, rows: Rows, options: VankaOptions) -> Result<Parts> {
        let (n, omega) = (self.unknowns(), options.damping);
        let full = options.kind == VankaKind::Full;
        let is_constraint = |i: usize| self.constraints.binary_search(&(i as u32)).is_ok();
        let inverse = |i: usize| match is_constraint(i) || full && !self.places_of(i).is_empty() {
            true => 0.0,
            false => 1.0 / rows.diagonal(i),
        };
        let inverse: Vec<f64> = (0..n).into_par_iter().with_min_len(FEW).map(inverse).collect();
        if let Some(i) = inverse.par_iter().position_first(|d| !d.is_finite()) {
            let remedy = "name the field of the constraints, such as vanka:field=p, or use vanka:kind=full";
            return Err(Error::SingularBlock { row: i / rows.a.block(), kind: "zero", remedy });
        }
        let weights = (0..n).into_par_iter().with_min_len(FEW).flat_map_iter(|i| {
            let count = self.places_of(i).len();
            std::iter::repeat_n(omega / count as f64, count)
        });
        let mut sums: Vec<f64> = weights.collect();
        let mut solves = Vec::new();
        if !full {
            // b of each place, in the order of unknowns.
            let entries = (0..n).into_par_iter().with_min_len(FEW).flat_map_iter(|i| {
                let places = self.places_of(i).iter();
                places.map(move |&place| self.entry(rows, i, self.constraint_of(place as usize)))
            });
            let b: Vec<f64> = entries.collect();
            let mut b_of_place = vec![0.0; self.len()];
            self.places.iter().zip(&b).for_each(|(&place, b)| b_of_place[place as usize] = *b);
            solves = self.diagonal_solves(rows, &inverse, &b_of_place)?;
            let scale = |i: usize| if is_constraint(i) { None } else { Some(-inverse[i]) };
            let of_unknown = (0..n).flat_map(|i| std::iter::repeat_n(i, self.places_of(i).len()));
            for ((i, weight), b) in of_unknown.zip(&mut sums).zip(b) {
                *weight *= scale(i).map_or(1.0, |d| d * b);
            }
        }
        let scaling = inverse.into_iter().map(|d| omega * d).collect();
        Ok(Parts { solves, sums, scaling })
    }

    fn constraint_of(&self, place: usize) -> u32 {
        self.constraints[self.patch[place] as usize]
    }

    fn entry(&self, rows: Rows, i: usize, j: u32) -> f64 {
        rows.row(i).filter(|(k, _)| *k == j).map(|(_, v)| v).sum()
    }

    /// Returns −s⁻¹ c G⁻¹, and s⁻¹ for the constraint, of each patch.
    fn diagonal_solves(&self, rows: Rows, inverse: &[f64], b: &[f64]) -> Result<Vec<f64>> {
        let of_patch = |patch: usize| {
            let (p, members) = (self.constraints[patch], self.members_of(patch));
            let mut c = vec![0.0; members.len()];
            for (j, v) in rows.row(p as usize) {
                if let Ok(place) = members.binary_search(&j) {
                    c[place] += v;
                }
            }
            let (mut s, mut largest) = (0.0, 0.0f64);
            for ((c, &j), b) in c.iter_mut().zip(members).zip(&b[self.first[patch]..]) {
                let term = if j == p { *c } else { -*c * inverse[j as usize] * b };
                (s, largest) = (s + term, largest.max(term.abs()));
                *c = if j == p { 1.0 } else { -*c * inverse[j as usize] };
            }
            if !(s.abs() > SINGULAR * largest) {
                return Err(singular(rows, p));
            }
            c.iter_mut().for_each(|c| *c /= s);
            Ok(c)
        };
        let all: Vec<Result<Vec<f64>>> =
            (0..self.count()).into_par_iter().with_min_len(FEW / 8).map(of_patch).collect();
        Ok(all.into_iter().collect::<Result<Vec<_>>>()?.concat())
    }

    /// Computes the dense inverses.
    ///
    /// # Errors
    /// A patch that is singular; out of memory.
    pub(super) fn inverses(&self, rows: Rows, precision: Precision) -> Result<Inverses> {
        Ok(match precision {
            Precision::F64 => Inverses::F64(self.dense(rows, |v| v)?),
            Precision::F32 => Inverses::F32(self.dense(rows, |v| v as f32)?),
        })
    }

    fn dense<T: Copy + Default + Send>(
        &self,
        rows: Rows,
        narrow: impl Fn(f64) -> T + Sync,
    ) -> Result<Vec<T>> {
        let mut all: Vec<T> = threads::zeros(self.dense_numbers(), "inverses of patches")?;
        let (mut rest, mut parts) = (&mut all[..], Vec::with_capacity(self.count()));
        for w in self.at.windows(2) {
            let (part, others) = rest.split_at_mut(w[1] - w[0]);
            parts.push(part);
            rest = others;
        }
        let invert = |(patch, to): (usize, &mut [T])| {
            let members = self.members_of(patch);
            let n = members.len();
            // The inverse of the transposed matrix by rows is the inverse by columns.
            let mut transposed = vec![0.0; n * n];
            for (r, &i) in members.iter().enumerate() {
                for (j, v) in rows.row(i as usize) {
                    if let Ok(c) = members.binary_search(&j) {
                        transposed[c * n + r] += v;
                    }
                }
            }
            let (inverse, dropped) = inverse_of(n, transposed);
            if dropped > 0 || !inverse.iter().all(|v| v.is_finite()) {
                return Err(singular(rows, self.constraints[patch]));
            }
            to.iter_mut().zip(&inverse).for_each(|(to, v)| *to = narrow(*v));
            Ok(())
        };
        let done: Vec<Result<()>> = parts.into_par_iter().enumerate().map(invert).collect();
        done.into_iter().collect::<Result<()>>()?;
        Ok(all)
    }

    /// Computes z ← (R A Rᵀ)⁻¹ R x for some patches. z begins with the first of them.
    #[inline(always)]
    pub fn multiply(&self, inverses: &Inverses, patches: Range<usize>, x: &[f64], z: &mut [f64]) {
        match inverses {
            Inverses::F64(all) => self.multiply_by(all, patches, x, z, |v| v),
            Inverses::F32(all) => self.multiply_by(all, patches, x, z, f64::from),
        }
    }

    #[inline(always)]
    fn multiply_by<T: Copy>(
        &self,
        all: &[T],
        patches: Range<usize>,
        x: &[f64],
        z: &mut [f64],
        widen: impl Fn(T) -> f64 + Copy,
    ) {
        let begin = self.first[patches.start];
        for patch in patches {
            let members = self.members_of(patch);
            let (n, from) = (members.len(), self.first[patch] - begin);
            let (z, inverse) = (&mut z[from..from + n], &all[self.at[patch]..self.at[patch + 1]]);
            z.fill(0.0);
            // Four columns at a time, so that z is read and written less often.
            let mut columns = inverse.chunks_exact(4 * n);
            let mut unknowns = members.chunks_exact(4);
            for (block, of) in (&mut columns).zip(&mut unknowns) {
                let v: [&[T]; 4] = std::array::from_fn(|k| &block[k * n..(k + 1) * n]);
                let x: [f64; 4] = std::array::from_fn(|k| x[of[k] as usize]);
                for r in 0..n {
                    let sum = widen(v[0][r]) * x[0] + widen(v[1][r]) * x[1];
                    z[r] += sum + (widen(v[2][r]) * x[2] + widen(v[3][r]) * x[3]);
                }
            }
            for (v, &of) in columns.remainder().chunks_exact(n).zip(unknowns.remainder()) {
                let x = x[of as usize];
                z.iter_mut().zip(v).for_each(|(z, v)| *z += widen(*v) * x);
            }
        }
    }
}

/// Smallest s of a patch, relative to the largest of its terms, that is not a rounding error.
const SINGULAR: f64 = 1e-13;

fn singular(rows: Rows, constraint: u32) -> Error {
    let remedy = "the local system of vanka around this constraint is singular; try the other kind of local systems, or split";
    Error::Pivot { row: constraint as usize / rows.a.block(), kind: "zero", remedy }
}

/// Returns the first position of each of `count` numbers in an ascending list, and the end.
fn starts(count: usize, list: &[u32]) -> Vec<usize> {
    (0..count + 1)
        .into_par_iter()
        .with_min_len(FEW)
        .map(|k| list.partition_point(|&v| (v as usize) < k))
        .collect()
}
