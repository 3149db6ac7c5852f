//! Symmetry test of an operator by two products, for any kind of operator, device and number of ranks.
//!
//! If A = Aᵀ, then uᵀAv = vᵀAu up to rounding. For any other A and random u and v, both numbers differ with
//! probability one. Large entries, as of penalties, hide the difference of small ones, so a sample of
//! mirrored entries is compared too.

use super::SolverSpace;
use super::recognise::{ScalarRows, sample};
use crate::Result;
use crate::comm::agree;
use crate::halo::RowNumbers;
use crate::operator::{LinearOperator, Terms};
use crate::problem::LocalProblem;
pub(super) use crate::space::random;
use crate::space::{FLAGS, Precision};

/// Largest |uᵀAv − vᵀAu| / (‖Av‖‖u‖) at which an operator counts as symmetric. It allows for rounding errors
/// of long sums.
const ROUNDING: f64 = 1e-12;

/// Number of rows whose entries are compared with mirrored entries, and the number of entries of a row from
/// which it is left out.
const MIRRORED: [usize; 2] = [200, 1000];
/// Largest difference of mirrored entries, as a share of the largest entry of either row.
const DIFFERENCE: f64 = 1e-6;
/// Ratio of mirrored entries below which a coupling is one-sided.
const ONE_SIDED: f64 = 0.1;

/// Result of the symmetry test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Symmetry {
    /// True if A = Aᵀ.
    pub symmetric: bool,
    /// True if uᵀAu and vᵀAv have the same sign, so that A may be definite.
    pub one_sign: bool,
}

/// Tests a system by products and by a sample of mirrored entries. Collective.
///
/// # Errors
/// Out of device memory; a rank that has ended or failed.
pub(super) fn of_system<S: SolverSpace>(
    space: &S,
    a: &dyn LinearOperator<S>,
    local: &LocalProblem,
) -> Result<Symmetry> {
    let mut found = symmetry(space, a, local.numbers, local.order())?;
    found.symmetric &= !space.any(found.symmetric && !is_mirrored(local.terms))?;
    Ok(found)
}

/// Tests the operator `a`. `numbers` are the global numbers of own block rows of `order` unknowns, so that u
/// and v do not depend on the number of ranks. With `None`, local numbers serve instead. Collective.
///
/// # Errors
/// Out of device memory; a rank that has ended or failed.
pub(super) fn symmetry<S: SolverSpace>(
    space: &S,
    a: &dyn LinearOperator<S>,
    numbers: Option<RowNumbers>,
    order: usize,
) -> Result<Symmetry> {
    let room =
        (|| Ok((space.basis(2, Precision::F64)?, space.scalars(4)?, space.vector()?, space.vector()?)))();
    let (mut basis, mut scalars, mut x, mut product) = agree(space.comm(), room)?;
    // Appending a column to the basis divides it by the scalar in slot 3, which is 1 here.
    space.write_scalars(&mut scalars, 0, &[0.0, 0.0, 0.0, 1.0], &[0; FLAGS])?;
    let (mut sums, mut flags) = ([[0.0; 3]; 2], [0; FLAGS]);
    let mut squares = [0.0; 2];
    for (column, square) in squares.iter_mut().enumerate() {
        agree(space.comm(), space.random(column as u64, numbers, order, &mut x))?;
        space.append(&mut basis, column, &mut x, &mut scalars, 3)?;
        space.project(&basis, column..column + 1, &x, &mut scalars, 0)?;
        space.read_scalars(&scalars, 0, std::slice::from_mut(square), &mut flags)?;
    }
    for (column, sums) in sums.iter_mut().enumerate() {
        agree(space.comm(), space.random(column as u64, numbers, order, &mut x))?;
        a.apply(space, &x, &mut product)?;
        space.project(&basis, 0..2, &product, &mut scalars, 0)?;
        space.subtract(&basis, 0..0, &mut product, &mut scalars, 0, Some(2))?;
        space.read_scalars(&scalars, 0, sums, &mut flags)?;
    }
    // [uᵀAu, vᵀAu, ‖Au‖²], [uᵀAv, vᵀAv, ‖Av‖²]
    let [[uu, vu, au], [uv, vv, av]] = sums;
    let scale = (au * squares[1]).sqrt().max((av * squares[0]).sqrt());
    let symmetric = (uv - vu).abs() <= ROUNDING * scale && scale.is_finite();
    Ok(Symmetry { symmetric, one_sign: uu * vv > 0.0 })
}

/// Returns true if mirrored entries are equal in a sample of this rank's rows, of a single matrix in host
/// memory. Of other operators nothing is compared.
pub(super) fn is_mirrored(terms: &Terms) -> bool {
    let [(_, a)] = &terms.terms[..] else { return true };
    if a.storage().is_on_device_alone() || terms.stages() > 1 {
        return true;
    }
    let a = ScalarRows::of_own(a);
    let is_short = |i: usize| a.row(i).nth(MIRRORED[1]).is_none();
    let largest = |i: usize| a.row(i).fold(0.0, |largest: f64, (_, v)| largest.max(v.abs()));
    sample(a.rows(), MIRRORED[0]).filter(|&i| is_short(i)).all(|i| {
        let own = largest(i);
        a.row(i).filter(|(j, _)| *j != i && is_short(*j)).all(|(j, v)| {
            let mirrored = a.entry(j, i);
            (v - mirrored).abs() <= DIFFERENCE * own.min(largest(j))
        })
    })
}

/// Returns the share of couplings that convection dominates, in a sample of this rank's rows of a single
/// matrix in host memory: the entry of one direction is below a tenth of that of the other, or both have
/// opposite signs. `None` for other operators.
pub(super) fn convective(terms: &Terms) -> Option<f64> {
    let [(_, a)] = &terms.terms[..] else { return None };
    if a.storage().is_on_device_alone() || terms.stages() > 1 {
        return None;
    }
    let a = ScalarRows::of_own(a);
    let is_short = |i: usize| a.row(i).nth(MIRRORED[1]).is_none();
    let (mut all, mut found) = (0usize, 0usize);
    for i in sample(a.rows(), MIRRORED[0]).filter(|&i| is_short(i)) {
        for (j, v) in a.row(i).filter(|(j, _)| *j != i && is_short(*j)) {
            let mirrored = a.entry(j, i);
            let (least, most) = (v.abs().min(mirrored.abs()), v.abs().max(mirrored.abs()));
            all += 1;
            found += usize::from(v * mirrored < 0.0 || least < ONE_SIDED * most);
        }
    }
    Some(found as f64 / all.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::{Communicator, Team};
    use crate::device::cpu::{Cpu, Pool};
    use crate::matrix::{Bsr, Csr};
    use crate::operator::PointBlock;
    use crate::partition::{Partition, split};
    use std::sync::Arc;

    fn path(n: usize, upper: f64, diagonal: f64) -> Bsr {
        let mut triplets = Vec::new();
        for i in 0..n {
            triplets.push((i as u32, i as u32, diagonal));
            if i + 1 < n {
                triplets.extend([(i as u32, i as u32 + 1, upper), (i as u32 + 1, i as u32, -1.0)]);
            }
        }
        Bsr::from_csr(&Csr::from_triplets(n, n, &triplets).unwrap(), 1).unwrap()
    }

    /// Diffusion has no such couplings, upwind differences and central differences of strong convection do.
    #[test]
    fn convection_shows_in_couplings() {
        for (upper, share) in [(-1.0, 0.0), (-0.2, 0.0), (-0.05, 1.0), (0.5, 1.0), (0.0, 1.0)] {
            let a = path(1000, upper, 2.0);
            assert_eq!(convective(&Terms::bsr(&a)), Some(share), "{upper}");
        }
    }

    #[test]
    fn one_entry_makes_the_difference() {
        for (n, upper, diagonal, symmetric) in [
            (1000, -1.0, 2.0, true),
            (1000, -1.0 - 1e-6, 2.0, false),
            (1000, -1.0, -2.0, true),
            (1, 0.0, 1.0, true),
        ] {
            let a = path(n, upper, diagonal);
            let space = Cpu::new(n, 2);
            let operator = PointBlock::bsr(&space, &a, Precision::F64).unwrap();
            let found = symmetry(&space, &operator, None, 1).unwrap();
            assert_eq!(found, Symmetry { symmetric, one_sign: true }, "{n} {upper} {diagonal}");
            if n == 1 {
                continue;
            }
            let parts = split(&Terms::bsr(&a), &Partition::by_rows(n, 3).unwrap()).unwrap();
            let found = Team::run(3, |comm| {
                let part = &parts[comm.rank()];
                let space = Cpu::distributed(part.rows.len(), Arc::new(Pool::new(1)), comm);
                let operator = PointBlock::new(&space, &part.terms, Precision::F32, false)?;
                symmetry(&space, &operator, Some(RowNumbers::List(&part.rows)), 1)
            });
            // In f32 storage this small difference disappears.
            let symmetric = symmetric || (upper as f32) == -1.0;
            assert_eq!(found.unwrap(), [Symmetry { symmetric, one_sign: true }; 3], "{n} {upper} {diagonal}");
        }
    }

    /// A penalty of 1e20 hides convection from products, but not from entries.
    #[test]
    fn penalties_do_not_hide_one_sided_entries() {
        for (block, convection, mirrored) in
            [(1, 0.0, true), (1, 0.5, false), (2, 0.0, true), (2, 1e-3, false)]
        {
            let mut triplets = Vec::new();
            for i in 0..4000u32 {
                triplets.push((i, i, if i % 50 == 0 { 1e20 } else { 2.0 }));
                if i + 1 < 4000 {
                    triplets.extend([(i, i + 1, -1.0 + convection), (i + 1, i, -1.0)]);
                }
            }
            let a = Bsr::from_csr(&Csr::from_triplets(4000, 4000, &triplets).unwrap(), block).unwrap();
            let space = Cpu::new(4000, 1);
            let operator = PointBlock::bsr(&space, &a, Precision::F64).unwrap();
            assert!(symmetry(&space, &operator, None, 1).unwrap().symmetric);
            assert_eq!(is_mirrored(&Terms::bsr(&a)), mirrored, "{block} {convection}");
        }
        assert!(is_mirrored(&Terms::bsr(&path(5000, -1.0, 2.0))));
        assert!(!is_mirrored(&Terms::bsr(&path(5000, -1.1, 2.0))));
    }
}
