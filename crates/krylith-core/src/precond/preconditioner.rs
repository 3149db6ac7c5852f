//! The interface between a solver and a preconditioner, and its description for reports.

use crate::Result;
use crate::operator::{LinearOperator, PointBlock, TermValues, Terms, no_transpose};
use crate::space::{PrecondPrecision, Space};
use std::cell::RefCell;
use std::rc::Rc;

/// An operator that approximates an inverse and can be refreshed with new values of its matrix.
///
/// # Examples
/// A preconditioner that does not depend on the values:
/// ```
/// use krylith::operator::{LinearOperator, Terms};
/// use krylith_core::operator::TermValues;
/// use krylith::{Result, device::Cpu, precond::Preconditioner};
/// struct Halve;
/// impl LinearOperator<Cpu> for Halve {
///     fn apply(&self, _: &Cpu, x: &Vec<f64>, y: &mut Vec<f64>) -> Result<()> {
///         Ok(y.iter_mut().zip(x).for_each(|(y, x)| *y = x / 2.0))
///     }
///     fn key(&self) -> u64 { 0 }
///     fn bytes(&self) -> u64 { 16 }
///     fn recordable(&self) -> bool { false }
/// }
/// impl Preconditioner<Cpu> for Halve {
///     fn update_values(&mut self, _: &Cpu, _: &Terms, _: TermValues) -> Result<()> {
///         Ok(())
///     }
/// }
/// ```
pub trait Preconditioner<S: Space>: LinearOperator<S> {
    /// Refreshes the preconditioner with new values or coefficients of the terms it was built for. Nothing is
    /// analysed again. `values` are those of `terms`, possibly in device memory.
    ///
    /// # Errors
    /// Values of another shape; values from which the preconditioner cannot be built.
    fn update_values(&mut self, space: &S, terms: &Terms, values: TermValues) -> Result<()>;

    /// Lays out what [`apply_transpose`](LinearOperator::apply_transpose) needs beyond the data of `apply`,
    /// for the current values, which are those of `terms`. Later updates of values refresh it too. If it is
    /// laid out already, nothing happens. Nothing is analysed or factorised. Collective.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the preconditioner has no transpose; out of
    /// device memory.
    fn prepare_transpose(&mut self, _space: &S, _terms: &Terms) -> Result<()> {
        match self.has_transpose() {
            true => Ok(()),
            false => Err(no_transpose("the preconditioner")),
        }
    }

    /// Returns the events of the updates since the last call, such as a fallback that replaced the requested
    /// algorithm.
    fn take_events(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the vectors n with nᵀA = 0 that the factors of a singular matrix have shown. Most
    /// preconditioners show none.
    ///
    /// # Errors
    /// Errors of the device.
    fn left_null_vectors(&self, _space: &S) -> Result<LeftNull> {
        Ok(LeftNull::default())
    }
}

/// Vectors n with nᵀA = 0: if b has a part along them, no x solves A x = b.
///
/// # Examples
/// ```
/// use krylith::{Outcome, Solver, matrix::Csr};
/// // Two springs in a row, which nothing holds. The force b moves them.
/// let spring = |i| [(i, i, 1.0), (i, i + 1, -1.0), (i + 1, i, -1.0), (i + 1, i + 1, 1.0)];
/// let a = Csr::from_triplets(3, 3, &[spring(0), spring(1)].concat())?;
/// let n = krylith_core::precond::LeftNull { vectors: vec![vec![1.0; 3]], error: 0.0 };
/// let b = [1.0, 0.0, 0.0];
/// assert_eq!(n.vectors[0].iter().zip(b).map(|(n, b)| n * b).sum::<f64>(), 1.0);
/// let mut solver = Solver::new(&a, &"device=cpu".parse()?)?;
/// assert_eq!(solver.solve(&b, &mut [0.0; 3])?.outcome(), Outcome::Inconsistent);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LeftNull {
    /// The vectors, which are linearly independent. Each has an entry for every own unknown.
    pub vectors: Vec<Vec<f64>>,
    /// Largest error of an entry, as a share of the vector's largest entry.
    pub error: f64,
}

/// The preconditioner P⁻¹ on the device; `None` is the identity.
pub(crate) type Boxed<S> = Option<Box<dyn Preconditioner<S>>>;

/// The operator of the system, which some preconditioners also apply.
pub(crate) type SharedOperator<S> = Rc<RefCell<PointBlock<S>>>;

/// Value of a parameter.
///
/// # Examples
/// ```
/// use krylith::precond::Value;
/// /// As a table would show it.
/// fn text(value: &Value) -> String {
///     match value {
///         Value::Count(n) => n.to_string(),
///         Value::Number(x) => format!("{x:.3}"),
///         Value::Text(text) => text.clone(),
///         Value::Parameters(all) => {
///             let all: Vec<_> = all.iter().map(|(key, v)| format!("{key}={}", text(v))).collect();
///             all.join(",")
///         }
///     }
/// }
/// assert_eq!(text(&Value::Parameters(vec![("fill".into(), Value::Count(1))])), "fill=1");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A count.
    Count(u64),
    /// A number.
    Number(f64),
    /// A name.
    Text(String),
    /// The parameters of a preconditioner, with its name.
    Parameters(Vec<(String, Value)>),
}

/// Description of a preconditioner for people and reports.
///
/// # Examples
/// ```
/// use krylith::{Solver, matrix::Csr, precond::Value};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
/// let mut solver = Solver::new(&a, &"precond=ildu:fill=1 device=cpu".parse()?)?;
/// let info = &solver.solve(&[3.0, 3.0], &mut [0.0; 2])?.precond;
/// assert_eq!((&info.name[..], &info.text[..]), ("ildu", "ILDU(1)"));
/// assert!(info.parameters.contains(&("fill".into(), Value::Count(1))));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PrecondInfo {
    /// Name in options.
    pub name: String,
    /// Parameters, by their names in options.
    pub parameters: Vec<(String, Value)>,
    /// Number of numbers that the preconditioner stores, on all ranks.
    pub numbers: f64,
    /// Number of numbers in the assembled matrix from which the preconditioner was built; 0 if that is not
    /// reported.
    pub matrix: f64,
    /// Description in words, such as `point-block Jacobi 3×3`.
    pub text: String,
    /// Further lines of the description.
    pub details: Vec<String>,
    /// Reason for this preconditioner, if the solver chose it.
    pub reason: String,
    /// True if the preconditioner is symmetric for a symmetric matrix.
    pub keeps_symmetry: bool,
}

impl PrecondInfo {
    /// Returns true if some part of the preconditioner computes in f32 or bf16, or is stored in f32 because
    /// `asked` was one of them.
    pub(crate) fn is_narrow(&self, asked: Option<PrecondPrecision>) -> bool {
        fn any(parameters: &[(String, Value)], precision: &str) -> bool {
            parameters.iter().any(|(name, value)| match value {
                Value::Text(text) => name == "compute" && text == precision,
                Value::Parameters(of) => any(of, precision),
                _ => false,
            })
        }
        // Others than these say in what precision they compute.
        let stored = || !any(&self.parameters, "f64") && !matches!(&*self.name, "none" | "lu");
        let narrow = ["f32", "bf16"].iter().any(|precision| any(&self.parameters, precision));
        narrow || (asked.unwrap_or_default() != PrecondPrecision::F64 && stored())
    }
}
