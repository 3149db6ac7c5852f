//! Finds saddle points [[A, B], [C, −D]]: the constraints, and what their Schur complement resembles.
//!
//! The rows of the constraints are those with a zero diagonal entry, or with one of the sign opposite to that
//! of most. In the first case D has to be zero; in the second the matrix has to be symmetric, A not
//! indefinite and D positive semidefinite, as far as a few Lanczos steps show.

use super::nodes::{self, Nodes};
use super::{ScalarRows, ritz};
use crate::fields::{Coupled, Field, Recognised};
use crate::text::count;
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Largest share of constraints, and smallest.
const SHARE: [f64; 2] = [0.6, 1e-3];
/// Numbers of components of a velocity that are tried.
const COMPONENTS: [usize; 2] = [3, 2];
/// Smallest share of nonzero entries in the blocks of its nodes. Some entries cancel: it is 0.80 to 0.98 for
/// P2–P1 elements, and below 0.7 for other numbers of components.
const FULL: f64 = 0.74;
/// Smallest eigenvalue of the block A, scaled by its diagonal, from which the inverse diagonal is taken to
/// approximate A⁻¹. After eight Lanczos steps it is 0.5 for fluxes of RT0 elements, whatever the contrast,
/// 0.16 for moments of a plate of order 2, and below 0.13 for viscous blocks and displacements of 17,000 to
/// 110,000 unknowns. Fluxes and stresses of higher order may be below as well.
const CLOSE: f64 = 0.15;
/// Smallest number of entries of a dense row, as a share of the rows and as a multiple of the entries of an
/// average row; and the largest number of dense rows that are told apart.
const DENSE: [f64; 2] = [0.01, 5.0];
const FEW: usize = 8;
/// Smallest mean length of runs of constraints that are numbered as a field.
const RUN: usize = 50;
/// The field of these rows.
pub(in crate::solver) const MEANS: &str = "m";
/// Smallest share of the unknowns in a part of the first block that is looked at.
const PART: f64 = 0.05;
/// Largest share of the constraints that couple to no other unknown of this rank.
const LACKING: f64 = 0.02;
/// Negative Ritz values up to this magnitude are rounding errors.
const ROUNDING: f64 = 1e-8;
/// Largest sum of a row of B that counts as zero, as a share of its magnitudes.
const ZERO_SUM: f64 = 1e-10;

/// Returns the fields `u` and `p` of a saddle point.
pub(super) fn find(a: &ScalarRows, diagonal: &[f64]) -> Option<(Vec<Field>, Recognised)> {
    let n = a.rows;
    let positive = diagonal.iter().filter(|d| **d > 0.0).count();
    let negative = diagonal.iter().filter(|d| **d < 0.0).count();
    let sign = if positive >= negative { 1.0 } else { -1.0 };
    let others = n - positive.max(negative);
    if !may_be(others, n) {
        return None;
    }
    let means = means(a, diagonal);
    let mut constraint: Vec<bool> = diagonal.iter().map(|d| sign * d <= 0.0).collect();
    means.iter().for_each(|&i| constraint[i as usize] = false);
    let is_zero = constraint.iter().zip(diagonal).all(|(c, d)| !c || *d == 0.0);
    let mut first: Vec<bool> = constraint.iter().map(|c| !c).collect();
    means.iter().for_each(|&i| first[i as usize] = false);
    if !couples(a, &constraint, is_zero) {
        return None;
    }
    if !is_zero && !ritz::is_symmetric(a, &vec![true; n]) {
        return None;
    }
    let alone = a.alone();
    let dead = among_constraints(&alone, &constraint, &mut first);
    let symmetric = !is_zero || ritz::is_symmetric(a, &first);
    let least = if symmetric { ritz::smallest(a, &first, diagonal, sign) } else { 0.0 };
    if least < -ROUNDING || !is_zero && ritz::smallest(a, &constraint, diagonal, -sign) < -ROUNDING {
        return None;
    }
    let is_close = least >= CLOSE;
    let split = symmetric && !is_close;
    let flux = split.then(|| fluxes(a, &first, &alone, diagonal, sign)).flatten();
    let solid =
        flux.as_ref().map(|flux| first.iter().zip(flux).map(|(first, flux)| *first && !flux).collect());
    let solid: Vec<bool> = solid.unwrap_or(first);
    // Elements of high order, as of stresses, have blocks too, but no nodes.
    let components = if is_close { &[] } else { &COMPONENTS[..] };
    let Nodes { unknowns, block, apart, alternate } = nodes::find(a, &solid, &alone, components, FULL);
    let mut p: Vec<u32> = (0..n as u32).filter(|&i| constraint[i as usize]).collect();
    let (others, own) = (p.len(), unknowns.len());
    p.extend(apart);
    p.extend(dead);
    p.sort_unstable();
    let listed = |of: &[bool]| -> Vec<u32> { (0..n as u32).filter(|&i| of[i as usize]).collect() };
    let flux = flux.map(|flux| listed(&flux));
    let mut text = format!(
        "a saddle point: {} unknowns u, {}and {} constraints p with a {} diagonal block",
        count(own),
        flux.as_ref()
            .map_or(String::new(), |w| format!("{} fluxes w that do not couple to them, ", count(w.len()))),
        count(others),
        if is_zero { "zero" } else { "semidefinite" }
    );
    if block > 1 {
        let order = if alternate { "alternate" } else { "follow one another" };
        text += &format!("; u has nodes of {block} components, which {order}");
    }
    text += match is_close {
        _ if flux.is_some() => "; the block of w is close to its diagonal, and that of u is elliptic",
        true => "; the block of u is close to its diagonal, so the Schur complement resembles a Laplacian",
        false if symmetric => "; the block of u is elliptic, so the Schur complement resembles a mass matrix",
        false => "; the block of u is not symmetric",
    };
    if p.len() > others {
        text += &format!("; p has {} rows more that have only a diagonal entry", count(p.len() - others));
    }
    if !means.is_empty() {
        let (rows, couple) = if means.len() == 1 { ("row", "couples") } else { ("rows", "couple") };
        text += &format!(
            "; {} {rows} m with a zero diagonal entry {couple} many unknowns, as a mean value does",
            means.len()
        );
    } else if others == p.len() && has_constant(a, &constraint, is_zero) {
        text += "; constants of p are in the null space";
    }
    let kind = match is_close {
        _ if flux.is_some() => Coupled::Porous,
        true => Coupled::Flux,
        false if symmetric => Coupled::Viscous,
        false => Coupled::Convected,
    };
    let mut fields = vec![Field::new("u", unknowns).in_blocks(block)];
    fields.extend(flux.map(|w| Field::new("w", w)));
    fields.push(Field::new("p", p));
    if !means.is_empty() {
        fields.push(Field::new(MEANS, means));
    }
    Some((fields, Recognised { kind, text }))
}

/// Returns the rows that have a zero diagonal entry and far more other entries than most, such as those of
/// multipliers for mean values; none if there are many. They hide neither constraints nor null vectors.
fn means(a: &ScalarRows, diagonal: &[f64]) -> Vec<u32> {
    let average = a.entries() as f64 / a.rows as f64;
    let many = (DENSE[0] * a.rows as f64).max(DENSE[1] * average) as usize;
    let is_dense = |&i: &usize| diagonal[i] == 0.0 && a.stored(i) > many && a.row(i).count() > many;
    let dense: Vec<u32> = (0..a.rows).filter(is_dense).map(|i| i as u32).collect();
    if dense.len() <= FEW { dense } else { Vec::new() }
}

/// Takes the rows that have only a diagonal entry and stand among constraints from the first block, and
/// returns them: pressures that no element has. There are none unless constraints follow one another in long
/// runs, as one row in another order may stand anywhere.
fn among_constraints(alone: &[bool], constraint: &[bool], first: &mut [bool]) -> Vec<u32> {
    let (mut dead, mut open, mut after) = (Vec::new(), Vec::new(), false);
    let (mut runs, mut constraints) = (0, 0);
    for i in 0..first.len() {
        if first[i] && alone[i] {
            open.push(i as u32);
        } else if first[i] || constraint[i] {
            if after && constraint[i] {
                dead.append(&mut open);
            }
            open.clear();
            runs += usize::from(constraint[i] && !after);
            constraints += usize::from(constraint[i]);
            after = constraint[i];
        }
    }
    if after {
        dead.append(&mut open); // at the end of the numbering
    }
    if runs * RUN > constraints {
        dead.clear();
    }
    dead.iter().for_each(|&i| first[i as usize] = false);
    dead
}

/// Returns true if so many rows with a zero diagonal entry or one of the rarer sign may be constraints.
pub(super) fn may_be(constraints: usize, rows: usize) -> bool {
    let share = constraints as f64 / rows as f64;
    (SHARE[1]..=SHARE[0]).contains(&share)
}

/// Marks the unknowns of fluxes within the first block, if it falls into parts of which some are close to
/// their diagonal and others are not. Rows that have only a diagonal entry are in no part.
fn fluxes(a: &ScalarRows, first: &[bool], alone: &[bool], diagonal: &[f64], sign: f64) -> Option<Vec<bool>> {
    let free: Vec<bool> = first.iter().zip(alone).map(|(first, alone)| *first && !alone).collect();
    let all = free.iter().filter(|free| **free).count();
    let part = parts(a, &free)?;
    let mut sizes = vec![0usize; a.rows];
    (0..a.rows).filter(|&i| free[i]).for_each(|i| sizes[part[i] as usize] += 1);
    let is_large = |part: u32| sizes[part as usize] as f64 >= PART * all as f64;
    let (mut flux, mut has_other) = (vec![false; a.rows], false);
    let mut look = |is_in: &dyn Fn(usize) -> bool| {
        let of: Vec<bool> = (0..a.rows).map(|i| free[i] && is_in(i)).collect();
        let size = of.iter().filter(|of| **of).count();
        if size == 0 || (size as f64) < PART * all as f64 {
            return;
        }
        if ritz::smallest(a, &of, diagonal, sign) >= CLOSE {
            flux.iter_mut().zip(of).for_each(|(flux, of)| *flux |= of);
        } else {
            has_other = true;
        }
    };
    for own in (0..a.rows as u32).filter(|&own| sizes[own as usize] > 0 && is_large(own)) {
        look(&|i| part[i] == own);
    }
    // The fluxes of bricks fall into many small parts, which are looked at together.
    look(&|i| !is_large(part[i]));
    (has_other && flux.contains(&true)).then_some(flux)
}

/// Number of entries of a row that are looked at first to connect parts.
const LINKS: usize = 5;

/// Returns for each unknown that `of` selects a number of its connected part; `None` if there is one part.
/// The pattern has to be symmetric. A few entries of each row connect most of the largest part, so only rows
/// outside of it are looked at as a whole (Sutton, Ben-Nun and Barak 2018).
fn parts(a: &ScalarRows, of: &[bool]) -> Option<Vec<u32>> {
    fn root(parent: &mut [u32], mut i: u32) -> u32 {
        while parent[i as usize] != i {
            parent[i as usize] = parent[parent[i as usize] as usize];
            i = parent[i as usize];
        }
        i
    }
    let mut parent: Vec<u32> = (0..of.len() as u32).collect();
    let mut count = of.iter().filter(|of| **of).count();
    let mut join = |parent: &mut Vec<u32>, i: usize, j: usize| {
        let (i, j) = (root(parent, i as u32), root(parent, j as u32));
        if i != j {
            parent[i.max(j) as usize] = i.min(j);
            count -= 1;
        }
        count
    };
    let own = || (0..of.len()).filter(|&i| of[i]);
    let others = |i: usize| a.row(i).map(|(j, _)| j).filter(move |&j| j != i && of[j]);
    let mut left = 0;
    for i in own() {
        left = others(i).take(LINKS).fold(join(&mut parent, i, i), |_, j| join(&mut parent, i, j));
    }
    if left == 1 {
        return None;
    }
    let mut sizes = vec![0u32; of.len()];
    own().for_each(|i| sizes[root(&mut parent, i as u32) as usize] += 1);
    let largest = (0..of.len()).max_by_key(|&i| sizes[i])? as u32;
    for i in own() {
        if root(&mut parent, i as u32) != root(&mut parent, largest) {
            left = others(i).fold(left, |_, j| join(&mut parent, i, j));
        }
    }
    (left > 1).then(|| (0..of.len() as u32).map(|i| root(&mut parent, i)).collect())
}

/// Returns true if nearly every constraint has an entry in a row and a column of another field. If `is_zero`,
/// constraints must not couple to each other.
fn couples(a: &ScalarRows, constraint: &[bool], is_zero: bool) -> bool {
    let has_column: Vec<AtomicBool> = constraint.iter().map(|_| AtomicBool::new(false)).collect();
    let is_apart = AtomicBool::new(true);
    let has_row = |i: usize| {
        let mut has_row = false;
        for (j, _) in a.row(i) {
            match (constraint[i], constraint[j]) {
                (true, true) if is_zero => is_apart.store(false, Relaxed),
                (true, false) => has_row = true,
                (false, true) => has_column[j].store(true, Relaxed),
                _ => {}
            }
        }
        has_row
    };
    let rows: Vec<bool> = (0..constraint.len()).into_par_iter().with_min_len(1024).map(has_row).collect();
    let all = constraint.iter().filter(|of| **of).count();
    let lacks = |i: usize| constraint[i] && !(rows[i] && has_column[i].load(Relaxed));
    let lacking = (0..constraint.len()).filter(|&i| lacks(i)).count();
    is_apart.into_inner() && lacking as f64 <= LACKING * all as f64
}

/// Returns true if A times the vector that is 1 on the constraints is zero.
fn has_constant(a: &ScalarRows, constraint: &[bool], is_zero: bool) -> bool {
    let rows = (0..a.rows).into_par_iter().with_min_len(1024);
    rows.filter(|&i| !(is_zero && constraint[i])).all(|i| {
        let (sum, all) = a
            .row(i)
            .filter(|(j, _)| constraint[*j])
            .fold((0.0, 0.0), |(sum, all): (f64, f64), (_, v)| (sum + v, all + v.abs()));
        sum.abs() <= ZERO_SUM * all
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{Bsr, Csr};

    /// Paths and stars of several lengths, numbered at random, beside unknowns that are not selected.
    #[test]
    fn parts_are_those_of_a_search() {
        let n = 600u32;
        let new = |i: u32| i * 7919 % n;
        for cuts in [&[600][..], &[1, 600], &[200, 230, 600], &[5, 10, 15, 300, 600]] {
            let mut entries: Vec<(u32, u32, f64)> = (0..n).map(|i| (i, i, 2.0)).collect();
            let mut wanted = vec![0usize; n as usize];
            for (k, range) in
                cuts.iter().scan(0, |from, to| Some(std::mem::replace(from, *to)..*to)).enumerate()
            {
                let is_star = k % 2 == 1;
                for i in range.clone() {
                    wanted[new(i) as usize] = k;
                    let other = if is_star { range.start } else { i.saturating_sub(1).max(range.start) };
                    if other != i {
                        entries.extend([(new(i), new(other), -1.0), (new(other), new(i), -1.0)]);
                    }
                }
            }
            // Unknowns outside of the selection connect all parts.
            let m = n + 1;
            entries.push((n, n, 1.0));
            entries.extend((0..n).flat_map(|i| [(n, i, 1.0), (i, n, 1.0)]));
            let a = Csr::from_triplets(m as usize, m as usize, &entries).unwrap();
            let a = Bsr::from_csr(&a, 1).unwrap();
            let of: Vec<bool> = (0..m).map(|i| i < n).collect();
            let found = parts(&ScalarRows::of(&a), &of);
            assert_eq!(found.is_none(), cuts.len() == 1, "{cuts:?}");
            let Some(found) = found else { continue };
            for (i, j) in (0..n as usize).zip((0..n as usize).map(|i| i * 31 % n as usize)) {
                assert_eq!(found[i] == found[j], wanted[i] == wanted[j], "{cuts:?}: {i} and {j}");
            }
        }
    }
}
