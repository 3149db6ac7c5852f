//! Bytes that attempts want.

use super::Attempt;
use crate::Error;
use crate::method::MethodSpec;
use crate::operator::Terms;
use crate::options::Options;
use crate::precond::PrecondSpec;

/// An error if an attempt that is not the first would not fit `room` bytes, which were free before the first.
///
/// Fill is only known when it has been found, and finding it takes the memory: the guess is on the large side.
pub(crate) fn too_large(
    terms: &Terms,
    attempt: &Attempt,
    options: &Options,
    room: Option<u64>,
) -> Option<Error> {
    let fill = match &attempt.precond {
        PrecondSpec::Ildu(ildu) => 1 + ildu.fill as u64,
        _ => 1,
    };
    let memory = attempt.memory(terms, options);
    let needed = memory.total() + (fill - 1) * memory.preconditioner;
    room.filter(|room| needed > *room).map(|free| Error::Memory {
        what: attempt.name(),
        needed,
        free,
        place: "the device".into(),
        remedy: "take precision=f32, a smaller restart, or precond=jacobi",
    })
}

/// Bytes that a solve wants on its device, by purpose: for refusals before hours of waiting.
///
/// # Examples
/// ```
/// use krylith::{Options, matrix::Csr, operator::Terms};
/// use krylith_core::solver::Memory;
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
/// let memory = Memory::of(&Terms::csr(&a)?, &"gmres:restart=30".parse()?, &"jacobi".parse()?, &Options::new());
/// assert_eq!((memory.basis, memory.preconditioner), (2 * 30 * 8, 2 * 16));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Values and pattern.
    pub matrix: u64,
    /// Inverted diagonal blocks, or factors.
    pub preconditioner: u64,
    /// GMRES's basis.
    pub basis: u64,
    /// Everything else that is as long as x, and the small dense side of GMRES.
    pub vectors: u64,
}

impl Memory {
    /// What a method and a preconditioner want for these terms, as far as it can be told before they are built.
    pub fn of(terms: &Terms, method: &MethodSpec, precond: &PrecondSpec, options: &Options) -> Self {
        let precision = options.precision.unwrap_or_default();
        let (n, width) = (terms.rows() as u64, precision.bytes() as u64);
        let shared = terms.shared_pattern();
        let matrix = terms.terms.iter().enumerate().map(|(t, (_, a))| {
            let pattern = if t > 0 && shared { 0 } else { 4 * a.blocks() + 8 * (a.block_rows() + 1) };
            width * a.stored() as u64 + pattern as u64
        });
        let (basis, vectors) = method.memory(n);
        Self { matrix: matrix.sum(), preconditioner: precond.memory(terms, precision), basis, vectors }
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.matrix + self.preconditioner + self.basis + self.vectors
    }
}
