//! Operators on several vectors at once.

use super::{Dots, LinearOperator};
use crate::Result;
use crate::space::{Columns, MOST_COLUMNS, Space};
use arrayvec::ArrayVec;

/// An operator, applied to every column of a [`Columns`] space.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::operator::{LinearOperator, PointBlock, Space};
/// use krylith::{Precision, matrix::Csr};
/// use krylith_core::operator::Together;
/// use krylith_core::space::Columns;
/// let space = Columns::new(Cpu::new(2, 1), 2)?;
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
/// let a = PointBlock::csr(space.one(), &a, Precision::F64)?;
/// let (x, mut y) = (vec![vec![1.0, 0.0], vec![0.0, 1.0]], space.vector()?);
/// Together(&a).apply(&space, &x, &mut y)?;
/// assert_eq!(y, [[2.0, 0.0], [1.0, 3.0]]);
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Together<'a, S: Space>(pub &'a dyn LinearOperator<S>);

/// Calls `work` with the live columns of both vectors.
fn on_live<S: Space, R>(
    space: &Columns<S>,
    x: &[S::Vector],
    y: &mut [S::Vector],
    work: impl FnOnce(&[&S::Vector], &mut [&mut S::Vector]) -> R,
) -> R {
    let live = space.live().fold(0_u32, |bits, k| bits | 1 << k);
    let pairs = x.iter().zip(y).enumerate().filter(|(k, _)| live >> k & 1 == 1).map(|(_, pair)| pair);
    let (x, mut y): (ArrayVec<_, MOST_COLUMNS>, ArrayVec<_, MOST_COLUMNS>) = pairs.unzip();
    work(&x, &mut y)
}

impl<S: Space> LinearOperator<Columns<S>> for Together<'_, S> {
    fn apply(&self, space: &Columns<S>, x: &Vec<S::Vector>, y: &mut Vec<S::Vector>) -> Result<()> {
        // A column that has ended is computed with the others if only the device knows that. Nothing reads
        // the result.
        space.guard_shared()?;
        let done = on_live(space, x, y, |x, y| match (x, y) {
            ([], _) => Ok(()),
            ([x], [y]) => self.0.apply(space.one(), x, y),
            (x, y) => self.0.apply_columns(space.one(), x, y),
        });
        space.one().guard(None);
        done
    }

    fn apply_with_dots(
        &self,
        space: &Columns<S>,
        x: &Vec<S::Vector>,
        y: &mut Vec<S::Vector>,
        scalars: &mut Vec<S::Scalars>,
        dots: Dots,
    ) -> Result<bool> {
        let mut live = space.live();
        match (live.next(), live.next()) {
            (Some(k), None) => {
                space.guard_shared()?;
                let done = self.0.apply_with_dots(space.one(), &x[k], &mut y[k], &mut scalars[k], dots);
                space.one().guard(None);
                done
            }
            _ => self.apply(space, x, y).map(|()| false),
        }
    }

    fn residual(
        &self,
        space: &Columns<S>,
        b: &Vec<S::Vector>,
        x: &Vec<S::Vector>,
        r: &mut Vec<S::Vector>,
        m: &mut Vec<S::Vector>,
    ) -> Result<bool> {
        space.one().guard(None);
        let mut precise = true;
        for k in space.live() {
            precise = self.0.residual(space.one(), &b[k], &x[k], &mut r[k], &mut m[k])?;
            if !precise {
                break;
            }
        }
        Ok(precise)
    }

    fn key(&self) -> u64 {
        self.0.key()
    }

    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn recordable(&self) -> bool {
        self.0.recordable()
    }

    fn sum(&self, space: &Columns<S>, numbers: &mut [f64]) -> Result<()> {
        self.0.sum(space.one(), numbers)
    }
}
