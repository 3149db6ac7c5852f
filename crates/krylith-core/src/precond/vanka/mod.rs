//! Patches around constraints (Vanka 1986), additive: y = ω Σ Rᵀ D (R A Rᵀ)⁻¹ R x.
//!
//! A patch has one constraint, such as the row of a pressure, and all unknowns that are coupled to it and are
//! no constraints. R takes the entries of a patch. D has the weights 1/(number of patches that have the
//! unknown), which sum to 1. An unknown in no patch is divided by its diagonal entry. Sums are in the order
//! of the patches, so results do not depend on the number of threads.
//!
//! Let [[F, b], [c, d]] be R A Rᵀ with the constraint p last.
//!
//! * `full`: dense inverses of R A Rᵀ. A patch of n unknowns takes n² numbers: n is about 40 for P2–P1
//!   elements in 2-D, and 200 in 3-D. The device multiplies all patches ([`PatchProduct`]). A sparse product
//!   then takes the weighted sums.
//! * `diagonal`: F is replaced by its diagonal G (the diagonal Vanka of John and Tobiska 2000). A patch then
//!   has one number, s = d − c G⁻¹ b. With q = s⁻¹ (x_p − c G⁻¹ x), the result is G⁻¹ (x − D b q), and q for
//!   the constraint. So the whole sum is two sparse products with the couplings of the constraints.
//!
//! Traffic of one application: the inverses, or both couplings once; 24 bytes per unknown of a patch for
//! `full`; and 32 bytes per unknown.

mod cycle;
mod patches;

pub(crate) use cycle::{VankaCycle, VankaLevel};
pub(crate) use patches::Rows;
pub use patches::{Inverses, Patches};

use crate::operator::{
    HostTerms, LinearOperator, PointBlock, PointBlockSum, TermValues, Terms, fresh_key, joined_key,
    no_transpose,
};
use crate::precond::Preconditioner;
use crate::space::{Precision, Space};
use crate::{Error, Result, sweeps};
use std::cell::RefCell;
use std::sync::Arc;

/// A kind of local systems without a transpose.
const FULL: &str = "vanka with kind=full";

sweeps! {
    /// The vector pass of patches.
    pub const SWEEPS;
    /// y = y + d x.
    vanka_add_scaled: () [d, x] [y] -> [] { y += d * x; }
}

/// Local systems of patches.
///
/// # Examples
/// ```
/// use krylith_core::precond::VankaKind;
/// assert_eq!(VankaKind::ALL.map(VankaKind::name), ["diagonal", "full"]); // as in vanka:kind=full
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VankaKind {
    /// The block of the unknowns that are no constraints is replaced by its diagonal.
    #[default]
    Diagonal,
    /// All entries of the patch.
    Full,
}

impl VankaKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Diagonal, Self::Full];

    /// Returns the name in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Diagonal => "diagonal",
            Self::Full => "full",
        }
    }
}

/// A product with the dense inverses of all patches, as a device makes it.
#[doc(hidden)]
pub trait PatchProduct<S: Space> {
    /// Computes z ← (R A Rᵀ)⁻¹ R x for each patch. The results stand one after the other in z.
    ///
    /// # Errors
    /// A device that failed.
    fn multiply(&self, space: &S, x: &S::Vector, z: &mut S::Vector) -> Result<()>;
    /// Takes new inverses of the same patches.
    ///
    /// # Errors
    /// A device that failed.
    fn update(&mut self, space: &S, inverses: Inverses) -> Result<()>;
    /// Returns false if the host multiplies.
    fn recordable(&self) -> bool {
        true
    }
}

/// A device that can multiply by dense inverses of patches.
#[doc(hidden)]
pub trait PatchProducts: Space {
    /// Takes the inverses to where this device multiplies by them. By default the host multiplies.
    ///
    /// # Errors
    /// Out of device memory.
    fn patch_product(&self, patches: &Arc<Patches>, inverses: Inverses) -> Result<Box<dyn PatchProduct<Self>>>
    where
        Self: Sized + 'static,
    {
        let work = RefCell::new([vec![0.0; patches.unknowns()], vec![0.0; patches.len()]]);
        Ok(Box::new(OnHost { patches: patches.clone(), inverses, work }))
    }
}

/// The product on one thread of the host, for any device.
struct OnHost {
    patches: Arc<Patches>,
    inverses: Inverses,
    work: RefCell<[Vec<f64>; 2]>,
}

impl<S: Space> PatchProduct<S> for OnHost {
    fn multiply(&self, space: &S, x: &S::Vector, z: &mut S::Vector) -> Result<()> {
        let [from, to] = &mut *self.work.borrow_mut();
        space.read(x, from)?;
        self.patches.multiply(&self.inverses, 0..self.patches.count(), from, to);
        space.write(to, z)
    }
    fn update(&mut self, _: &S, inverses: Inverses) -> Result<()> {
        self.inverses = inverses;
        Ok(())
    }
    fn recordable(&self) -> bool {
        false
    }
}

/// The first of both products of an application.
enum Solves<S: PointBlockSum> {
    Dense(Box<dyn PatchProduct<S>>),
    Sparse(PointBlock<S>),
}

/// Settings of [`Vanka`].
///
/// # Examples
/// ```
/// use krylith_core::precond::{VankaKind, VankaOptions};
/// use krylith_core::Precision;
/// let options = VankaOptions { kind: VankaKind::Full, damping: 0.8, precision: Precision::F32 };
/// assert_eq!(options.kind.name(), "full");
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VankaOptions {
    /// The local systems.
    pub kind: VankaKind,
    /// ω.
    pub damping: f64,
    /// Storage of the local inverses.
    pub precision: Precision,
}

/// The preconditioner y = ω Σ Rᵀ D (R A Rᵀ)⁻¹ R x.
///
/// # Examples
/// ```
/// use krylith::{Options, Problem, Solver, matrix::Csr};
///
/// // Two velocities and a pressure, which is the constraint: its diagonal entry is zero.
/// let entries = [(0, 0, 2.0), (0, 2, 1.0), (1, 1, 2.0), (1, 2, 1.0), (2, 0, 1.0), (2, 1, 1.0)];
/// let a = Csr::from_triplets(3, 3, &entries)?;
/// let options: Options = "method=gmres precond=vanka:kind=full device=cpu".parse()?;
/// let mut x = [0.0; 3];
/// let problem = Problem::csr(&a)?;
/// let mut solver = Solver::new(&problem, &options)?;
/// assert!(solver.solve(&[1.0, 1.0, 0.0], &mut x)?.converged());
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Vanka<S: PointBlockSum> {
    patches: Arc<Patches>,
    options: VankaOptions,
    solves: Solves<S>,
    /// Weighted sums of the results of patches.
    sums: PointBlock<S>,
    /// Factors of x itself; `None` if all are 0.
    scaling: Option<S::Vector>,
    /// Vectors of the results of patches.
    between: S,
    work: RefCell<(S::Vector, S::Scalars)>,
    scratch: [Vec<f64>; 2],
    key: u64,
}

impl<S: PointBlockSum + PatchProducts + 'static> Vanka<S> {
    /// Returns the number of numbers in vectors of the results of patches.
    pub fn width(patches: &Patches, kind: VankaKind) -> usize {
        match kind {
            VankaKind::Diagonal => patches.count(),
            VankaKind::Full => patches.len(),
        }
    }

    /// Inverts the local systems of the patches of a single matrix. `between` has vectors of
    /// [`width`](Self::width) numbers.
    ///
    /// # Errors
    /// A patch that is singular; a zero diagonal entry that is needed; out of device memory.
    pub fn new(
        space: &S,
        between: S,
        terms: &Terms,
        patches: Arc<Patches>,
        options: VankaOptions,
    ) -> Result<Self> {
        let (values, mut scratch) = (TermValues::from(terms), Default::default());
        let rows = Rows { a: &terms.terms[0].1, values: host_values(&values.on_host(&mut scratch)?)? };
        let numbers = patches.numbers(rows, options)?;
        let solves = match options.kind {
            VankaKind::Full => {
                Solves::Dense(between.patch_product(&patches, patches.inverses(rows, options.precision)?)?)
            }
            VankaKind::Diagonal => {
                let matrix = patches.matrix_of_solves(numbers.solves)?;
                Solves::Sparse(PointBlock::bsr(&between, &matrix, options.precision)?)
            }
        };
        let matrix = patches.matrix_of_sums(options.kind, numbers.sums)?;
        let sums = PointBlock::bsr(space, &matrix, options.precision)?;
        let scaling = match numbers.scaling.iter().all(|d| *d == 0.0) {
            true => None,
            false => {
                let mut vector = space.vector()?;
                space.write(&numbers.scaling, &mut vector)?;
                Some(vector)
            }
        };
        let work = RefCell::new((between.vector()?, space.scalars(1)?));
        Ok(Self { patches, options, solves, sums, scaling, between, work, scratch, key: fresh_key() })
    }

    /// Returns the patches.
    pub fn patches(&self) -> &Patches {
        &self.patches
    }

    /// Returns the number of stored numbers.
    pub fn stored(&self) -> usize {
        match self.options.kind {
            VankaKind::Full => self.patches.dense_numbers() + self.patches.len(),
            VankaKind::Diagonal => 2 * self.patches.len(),
        }
    }
}

/// Returns the values of a single matrix.
fn host_values<'v>(terms: &HostTerms<'v>) -> Result<&'v [f64]> {
    match terms {
        [Some((_, values)), None] => Ok(values),
        _ => Err(Error::Internal("patches of a sum of matrices".into())),
    }
}

impl<S: PointBlockSum + PatchProducts + 'static> LinearOperator<S> for Vanka<S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let (z, scalars) = &mut *self.work.borrow_mut();
        match &self.solves {
            Solves::Dense(dense) => dense.multiply(&self.between, x, z)?,
            Solves::Sparse(sparse) => sparse.apply(&self.between, x, z)?,
        }
        self.sums.apply(space, z, y)?;
        match &self.scaling {
            Some(d) => space.sweep(vanka_add_scaled, scalars, [], [d, x], [y], []),
            None => Ok(()),
        }
    }
    fn has_transpose(&self) -> bool {
        matches!(self.solves, Solves::Sparse(_))
    }
    /// The two products of the diagonal kind in reverse order.
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let Solves::Sparse(sparse) = &self.solves else { return Err(no_transpose(FULL)) };
        let (z, scalars) = &mut *self.work.borrow_mut();
        self.sums.apply_transpose(&self.between, x, z)?;
        sparse.apply_transpose(space, z, y)?;
        match &self.scaling {
            Some(d) => space.sweep(vanka_add_scaled, scalars, [], [d, x], [y], []),
            None => Ok(()),
        }
    }
    fn key(&self) -> u64 {
        let sparse = match &self.solves {
            Solves::Sparse(sparse) => sparse.key(),
            Solves::Dense(_) => 0,
        };
        joined_key([self.key, self.sums.key(), sparse])
    }
    fn bytes(&self) -> u64 {
        let solves = match &self.solves {
            Solves::Sparse(sparse) => sparse.bytes(),
            Solves::Dense(_) => {
                (self.options.precision.bytes() * self.patches.dense_numbers() + 12 * self.patches.len())
                    as u64
            }
        };
        solves + self.sums.bytes() + 32 * self.patches.unknowns() as u64
    }
    fn recordable(&self) -> bool {
        match &self.solves {
            Solves::Dense(dense) => dense.recordable(),
            Solves::Sparse(_) => true,
        }
    }
}

impl<S: PointBlockSum + PatchProducts + 'static> Preconditioner<S> for Vanka<S> {
    fn prepare_transpose(&mut self, space: &S, terms: &Terms) -> Result<()> {
        let Solves::Sparse(sparse) = &mut self.solves else { return Err(no_transpose(FULL)) };
        let (values, mut scratch) = (TermValues::from(terms), Default::default());
        let rows = Rows { a: &terms.terms[0].1, values: host_values(&values.on_host(&mut scratch)?)? };
        let numbers = self.patches.numbers(rows, self.options)?;
        let [solves, sums] = [
            self.patches.matrix_of_solves(numbers.solves)?,
            self.patches.matrix_of_sums(self.options.kind, numbers.sums)?,
        ];
        sparse.prepare_transpose(space, &Terms::bsr(&solves))?;
        self.sums.prepare_transpose(&self.between, &Terms::bsr(&sums))
    }
    fn update_values(&mut self, space: &S, terms: &Terms, values: TermValues) -> Result<()> {
        let a = &terms.terms[0].1;
        values.check(1, [a.stored()].into_iter())?;
        let mut scratch = std::mem::take(&mut self.scratch);
        let renewed = values.on_host(&mut scratch).and_then(|host| {
            let rows = Rows { a, values: host_values(&host)? };
            let numbers = self.patches.numbers(rows, self.options)?;
            match &mut self.solves {
                Solves::Dense(dense) => {
                    dense.update(&self.between, self.patches.inverses(rows, self.options.precision)?)?;
                }
                Solves::Sparse(sparse) => {
                    sparse.update_values(&self.between, 0, &numbers.solves)?;
                    self.sums.update_values(space, 0, &numbers.sums)?;
                }
            }
            match &mut self.scaling {
                Some(d) => space.write(&numbers.scaling, d),
                None => Ok(()),
            }
        });
        self.scratch = scratch;
        renewed
    }
}
