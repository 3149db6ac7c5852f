//! Estimates of the memory that attempts need.

use super::Attempt;
use crate::Error;
use crate::method::MethodSpec;
use crate::operator::Terms;
use crate::options::Options;
use crate::precond::PrecondSpec;

/// Returns an error if a later attempt would not fit in `room` bytes. That much memory was free before the
/// first attempt.
///
/// The exact fill is known only after a factorisation, which needs the memory. So the estimate is rather too
/// large than too small.
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
        remedy: "use precision=f32, a smaller restart, or precond=jacobi",
    })
}

/// Estimated bytes that a solve needs on its device, by purpose. A solve that does not fit is refused at
/// once.
///
/// # Examples
/// ```
/// use krylith::{Options, matrix::Csr, operator::Terms};
/// use krylith_core::solver::Memory;
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
/// let options = Options::new();
/// let memory = Memory::of(&Terms::csr(&a)?, &"gmres:restart=30".parse()?, &"jacobi".parse()?, &options);
/// assert_eq!((memory.basis, memory.preconditioner), (2 * 30 * 8, 2 * 16));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Bytes of values and pattern.
    pub matrix: u64,
    /// Bytes of the preconditioner, such as inverted diagonal blocks or factors.
    pub preconditioner: u64,
    /// Bytes of the Krylov basis of GMRES.
    pub basis: u64,
    /// Bytes of all other vectors as long as x, and of the small dense matrices of GMRES.
    pub vectors: u64,
}

impl Memory {
    /// Estimates the memory of a method and a preconditioner for these terms, before they are built.
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

    /// Returns the sum of all parts, in bytes.
    pub fn total(&self) -> u64 {
        self.matrix + self.preconditioner + self.basis + self.vectors
    }
}
