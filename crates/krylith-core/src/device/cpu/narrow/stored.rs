//! Numbers of a matrix or of weights as a cycle stores them: in f32, or in bf16, which is widened when
//! loaded.

use crate::precond::bf16::Bf16;

/// Numbers in one of two types.
pub(in crate::device::cpu) enum Stored {
    F32(Vec<f32>),
    Bf16(Vec<Bf16>),
}

/// A stored number.
pub(in crate::device::cpu) trait Number: Copy + Sync {
    /// Returns it in f32.
    fn wide(self) -> f32;
}

impl Number for f32 {
    #[inline(always)]
    fn wide(self) -> f32 {
        self
    }
}

impl Number for Bf16 {
    #[inline(always)]
    fn wide(self) -> f32 {
        Bf16::wide(self)
    }
}

impl Stored {
    pub fn len(&self) -> usize {
        match self {
            Self::F32(v) => v.len(),
            Self::Bf16(v) => v.len(),
        }
    }

    pub fn is_in_bf16(&self) -> bool {
        matches!(self, Self::Bf16(_))
    }

    /// Returns the bytes of one number.
    pub fn width(&self) -> usize {
        match self {
            Self::F32(_) => 4,
            Self::Bf16(_) => 2,
        }
    }
}

/// Adds the diagonal, which a matrix in bf16 does not have among its entries, to rows of A x. There is none
/// if `own` is empty.
#[inline(always)]
pub(super) fn add_diagonal(own: &[f32], rows: std::ops::Range<usize>, x: &[f32], s: &mut [f32]) {
    if own.is_empty() {
        return;
    }
    for ((s, own), x) in s.iter_mut().zip(&own[rows.clone()]).zip(&x[rows]) {
        *s = own.mul_add(*x, *s);
    }
}
