//! Measurements of the variants on one system, and data reported by their preconditioners.

use super::ways;
use crate::answer::system::{self, System};
use crate::answer::{Answer, Repeats, Take, Way, ours};
use crate::cpu::CpuPlatform;
use crate::platform::Platform;
use crate::samples::in_turn;
use krylith_core::comm::Communicator;
use krylith_core::matrix::Bsr;
use krylith_core::operator::{Format, LinearOperator, PointBlock, Terms};
use krylith_core::precond::Value;
use krylith_core::space::Space;
use krylith_core::{Options, Precision, Result};
use std::sync::Arc;

pub(super) struct How<'a, P> {
    /// The device whose memory may hold the arrays.
    pub platform: Option<&'a P>,
    /// The processes that solve together, if any.
    pub comm: Option<&'a Arc<dyn Communicator>>,
    /// Options of every variant: the device, the tolerance, limits.
    pub base: String,
    /// True to measure from host arrays, too, if those on a device are timed.
    pub host: bool,
    pub repeats: Repeats,
}

pub(super) struct Row {
    /// The text in the list of variants.
    pub text: String,
    /// The reason if its options are refused.
    pub refused: Option<String>,
    /// Measurement from arrays in device memory.
    pub resident: Option<Way>,
    /// Measurement from host arrays.
    pub host: Option<Way>,
}

pub(super) struct Found {
    pub name: String,
    pub spec: String,
    pub unknowns: usize,
    /// Unknowns per block row.
    pub order: usize,
    pub stored: usize,
    pub symmetric: bool,
    /// Nodes along the edge of a cube, in a series; 0 elsewhere.
    pub side: usize,
    pub rows: Vec<Row>,
}

/// Sizes that a hierarchy reports.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Levels {
    pub levels: Option<f64>,
    /// Operator complexity: entries of all levels over those of the first.
    pub operators: Option<f64>,
    /// Grid complexity: nodes of all levels over those of the first.
    pub grids: Option<f64>,
    /// Numbers that the preconditioner stores.
    pub numbers: Option<f64>,
    /// Largest number of bytes in use on the device.
    pub memory: Option<u64>,
}

/// Measures every variant on a system.
///
/// # Errors
/// Returns an error if memory is not sufficient to check a solution. Failures of a variant are recorded in
/// its row.
pub(super) fn one<P: Platform>(
    system: &System,
    ways: &[String],
    how: &How<P>,
    progress: &mut dyn FnMut(&str),
) -> Result<Found> {
    let a = system.assembled()?;
    let (block_rows, order) = system.shape();
    let rhs = &vec![1.0; block_rows * order][..];
    let mut found = Found {
        name: system.name.clone(),
        spec: system.spec.clone(),
        unknowns: rhs.len(),
        order,
        stored: system.stored(),
        symmetric: system::symmetric(&a),
        side: 0,
        rows: Vec::new(),
    };
    for text in ways {
        progress(&format!("{} ({}): {text}", system.name, system.spec));
        let mut row = Row { text: text.clone(), refused: None, resident: None, host: None };
        match format!("{} {}", how.base, ways::options(text)).parse::<Options>() {
            Err(e) => row.refused = Some(e.to_string()),
            Ok(options) => {
                if let Some(mut take) = how.platform.and_then(|p| p.resident(system, &options, rhs)) {
                    row.resident =
                        Some(Way::taken("from device arrays".into(), &mut take, &a, rhs, &how.repeats));
                }
                // A variant that fails from one kind of arrays fails from the other.
                if row.resident.as_ref().is_none_or(|way| how.host && way.failure.is_none()) {
                    let mut take: Take = Box::new(|| match how.comm {
                        Some(comm) => ours::from_ranks(comm, system, &options, rhs),
                        None => ours::from_host(system, &options, rhs),
                    });
                    row.host = Some(Way::taken("from host arrays".into(), &mut take, &a, rhs, &how.repeats));
                }
            }
        }
        found.rows.push(row);
    }
    Ok(found)
}

impl Row {
    /// Returns the measurement for the table: from arrays in device memory, if there are any.
    pub fn main(&self) -> Option<&Way> {
        self.resident.as_ref().or(self.host.as_ref())
    }

    /// Returns the reason if there are no times.
    pub fn failure(&self) -> Option<&str> {
        let main = self.main().and_then(|way| way.failure.as_deref());
        self.refused.as_deref().or(main)
    }

    fn last(&self) -> Option<&Answer> {
        self.main().and_then(|way| way.taken.last())
    }

    /// Returns the median seconds from arrays to x; NaN without a solution.
    pub fn total(&self) -> f64 {
        self.main().map_or(f64::NAN, |way| way.totals().median())
    }

    /// Returns the median seconds before the first iteration.
    pub fn setup(&self) -> f64 {
        self.main().map_or(f64::NAN, |way| way.setups().median())
    }

    /// Returns the median seconds of the iterations.
    pub fn solve(&self) -> f64 {
        self.main().and_then(|way| way.part("solve")).map_or(f64::NAN, |part| part.median())
    }

    /// Returns the number of iterations; NaN without a solution.
    pub fn iterations(&self) -> f64 {
        self.last().map_or(f64::NAN, |answer| answer.iterations as f64)
    }

    /// Returns method and preconditioner of the last solution as text.
    pub fn means(&self) -> &str {
        self.last().map_or("", |answer| answer.means.as_str())
    }

    /// Returns the sizes of the last solution's hierarchy.
    pub fn levels(&self) -> Levels {
        let Some(answer) = self.last() else { return Levels::default() };
        let Some(precond) = &answer.precond else { return Levels::default() };
        let of = |name| number(&precond.parameters, name);
        // Other preconditioners may have parameters called levels; only hierarchies have complexities.
        let operators = of("operator-complexity");
        Levels {
            levels: of("levels").filter(|_| operators.is_some()),
            operators,
            grids: of("grid-complexity"),
            numbers: Some(precond.numbers),
            memory: answer.device_memory,
        }
    }
}

impl Found {
    pub fn row(&self, text: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.text == text)
    }

    /// Returns the fastest row among those that are `allowed`.
    pub fn fastest(&self, allowed: impl Fn(&Row) -> bool) -> Option<&Row> {
        let answered = self.rows.iter().filter(|row| row.total().is_finite() && allowed(row));
        answered.min_by(|a, b| a.total().total_cmp(&b.total()))
    }
}

/// Returns a parameter by its name, also from the parameters of components; - and _ are equivalent.
fn number(parameters: &[(String, Value)], name: &str) -> Option<f64> {
    parameters.iter().find_map(|(key, value)| match value {
        Value::Count(n) if key.replace('_', "-") == name => Some(*n as f64),
        Value::Number(x) if key.replace('_', "-") == name => Some(*x),
        Value::Parameters(inner) => number(inner, name),
        _ => None,
    })
}

/// Samples of a product on one core.
const PRODUCTS: usize = 20;

/// Returns the median seconds of y = A x on one core, the unit for seconds on another machine. The product is
/// by rows, as on that machine; a product by diagonals would be faster.
///
/// # Errors
/// Returns an error if memory is not sufficient.
pub(super) fn product_on_one_core(a: &Bsr) -> Result<f64> {
    let n = a.block_rows() * a.block();
    let platform = CpuPlatform::new(1);
    let space = platform.space(n)?;
    let operator = PointBlock::with_format(&space, &Terms::bsr(a), Precision::F64, Format::Csr)?;
    let (x, mut y) = (vec![1.0; n], space.vector()?);
    let samples = in_turn(1, 2, PRODUCTS, |_| platform.time(&mut || operator.apply(&space, &x, &mut y)))?;
    Ok(samples[0].median())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_inside_parts_under_either_spelling() {
        let inner = vec![
            ("levels".to_string(), Value::Count(5)),
            ("operator_complexity".to_string(), Value::Number(1.5)),
        ];
        let all =
            vec![("cut".to_string(), Value::Text("whole".into())), ("amg".into(), Value::Parameters(inner))];
        assert_eq!(number(&all, "operator-complexity"), Some(1.5));
        assert_eq!(number(&all, "levels"), Some(5.0));
        assert_eq!(number(&all, "cut"), None);
    }

    #[test]
    fn a_product_on_one_core_takes_time() {
        let system =
            system::make(&system::Wanted::Spec("laplace:12x12x12".into()), 1.0, None).unwrap().unwrap();
        let seconds = product_on_one_core(&system.assembled().unwrap()).unwrap();
        assert!(seconds > 0.0 && seconds < 1.0, "{seconds}");
    }
}
