//! A matrix of the suite, a vector to multiply, and some rows of the product by compensated sums.

use super::Plan;
use super::found::Shape;
use super::ground::Own;
use crate::options::Asked;
use crate::systems::Random;
use krylith_core::matrix::Csr;
use krylith_core::{Error, Result};
use krylith_problems::SystemKind;
use krylith_problems::lookalike::{self, TABLE2};
use std::time::Instant;

/// Number of compared rows.
const SAMPLE: usize = 1000;
/// Largest error as a share of Σ|a x|.
pub(super) const TOLERANCE: f64 = 1e-13;
const SEED: u64 = 2024;

/// A row of A x: its number, its value, and Σ|a x|.
type Known = (usize, f64, f64);

pub(crate) struct Case {
    pub(super) name: String,
    pub(super) id: usize,
    pub(super) source: String,
    pub(super) table: Option<Shape>,
    pub(super) made: f64,
    pub(super) shape: Shape,
    pub(crate) a: Csr,
    pub(crate) x: Vec<f64>,
    known: Vec<Known>,
}

/// Returns the requested names, in the order of the table.
///
/// # Errors
/// Returns an error if a name is neither in the table nor a generated problem.
pub(super) fn wanted(options: &Asked) -> Result<Vec<String>> {
    let all = || TABLE2.iter().map(|l| l.name.to_string());
    if options.systems.is_empty() {
        return Ok(all().collect());
    }
    let unknown = |name: &&String| !name.contains(':') && lookalike::by_name(name).is_none();
    if let Some(name) = options.systems.iter().find(unknown) {
        let names: Vec<String> = all().collect();
        return Err(Error::invalid(format!(
            "there is no matrix `{name}`; expected one of {}, or a generated problem NAME:SIZE",
            names.join(", ")
        )));
    }
    Ok(options.systems.clone())
}

impl Case {
    /// # Errors
    /// Returns an error if a file cannot be read, if a problem is not scalar or not square, and if memory is
    /// not sufficient.
    pub(super) fn new(name: &str, plan: &Plan) -> Result<Self> {
        let begin = Instant::now();
        let file = plan.options.matrices.as_ref().map(|folder| folder.join(format!("{name}.mtx")));
        let known = lookalike::by_name(name);
        let (a, source) = match (file.filter(|f| f.exists()), known) {
            (Some(file), _) => (krylith_core::io::matrix_market::read(&file)?, file.display().to_string()),
            (None, Some(like)) => {
                let order = if plan.options.permuted { ", permuted" } else { "" };
                let a = like.generate(plan.scale, SEED, plan.options.permuted)?;
                (a, format!("look-alike, scale {}{order}", plan.scale))
            }
            (None, None) => (generated(name)?, "generated".into()),
        };
        if a.rows() != a.columns() || a.rows() == 0 {
            return Err(Error::invalid(format!(
                "{name}: {}×{}; this suite accepts only square matrices with at least one row",
                a.rows(),
                a.columns()
            )));
        }
        let made = begin.elapsed().as_secs_f64();
        let x = Random(7).numbers(a.rows());
        let known_rows = sample(&a, &x);
        Ok(Self {
            name: name.into(),
            id: known.map_or(0, |l| l.id),
            source,
            table: known.map(|l| Shape {
                rows: l.rows,
                nonzeros: l.nonzeros,
                min: l.min.into(),
                max: l.max.into(),
            }),
            made,
            shape: Shape::of(a.row_ptr()),
            a,
            x,
            known: known_rows,
        })
    }

    pub(crate) fn rows(&self) -> usize {
        self.x.len()
    }

    /// Returns the largest error of the sampled rows among `rows`, as a share of Σ|a x|.
    ///
    /// # Errors
    /// Returns an error above 1e-13, with the row.
    pub(super) fn check(&self, rows: &Own, y: &[f64]) -> std::result::Result<f64, String> {
        let mut worst = 0.0f64;
        for &(i, value, scale) in &self.known {
            let Some(&found) = rows.place(i).and_then(|place| y.get(place)) else { continue };
            let error = (found - value).abs();
            let share = if scale > 0.0 {
                error / scale
            } else if error == 0.0 {
                0.0
            } else {
                f64::INFINITY
            };
            if !(share <= TOLERANCE) {
                return Err(format!(
                    "row {i} is {found}; expected {value}; the error is {share:.1e} of Σ|a x|"
                ));
            }
            worst = worst.max(share);
        }
        Ok(worst)
    }
}

fn generated(spec: &str) -> Result<Csr> {
    match krylith_problems::generate(spec)?.system {
        SystemKind::Csr(a) => Ok(a),
        SystemKind::Bsr(a) => Ok(a.to_csr()),
        _ => Err(Error::invalid(format!("{spec}: this suite accepts a single matrix, not a Kronecker sum"))),
    }
}

/// Samples rows spread over the matrix, with the first, the last and the longest, by compensated sums (Dot2
/// of Ogita, Rump and Oishi).
fn sample(a: &Csr, x: &[f64]) -> Vec<Known> {
    let n = a.rows();
    let mut random = Random(11);
    let mut rows: Vec<usize> =
        (0..SAMPLE.min(n)).map(|_| (((random.next() + 0.5) * n as f64) as usize).min(n - 1)).collect();
    let length = |i: &usize| a.row_ptr()[i + 1] - a.row_ptr()[*i];
    rows.extend([0, n - 1]);
    rows.extend((0..n).max_by_key(length));
    rows.sort_unstable();
    rows.dedup();
    let row = |i: usize| {
        let (columns, values) = a.row(i);
        let (mut sum, mut low, mut scale) = (0.0f64, 0.0f64, 0.0f64);
        for (&j, &v) in columns.iter().zip(values) {
            let x = x[j as usize];
            let product = v * x;
            let next = sum + product;
            let back = next - sum;
            low += (sum - (next - back)) + (product - back) + v.mul_add(x, -product);
            sum = next;
            scale += product.abs();
        }
        (i, sum + low, scale)
    };
    rows.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_row_of_the_sample_is_found() {
        let case = Case::new("laplace:5x4x3", &Plan::new(&Asked::default()).unwrap()).unwrap();
        let mut y: Vec<f64> = (0..case.rows())
            .map(|i| {
                let (columns, values) = case.a.row(i);
                columns.iter().zip(values).map(|(&j, v)| v * case.x[j as usize]).sum()
            })
            .collect();
        assert!(case.check(&Own::Run(0..y.len()), &y).unwrap() <= 1e-15);
        assert!(case.check(&Own::Run(20..y.len()), &y[20..]).is_ok());
        let last = y.len() - 1;
        y[last] *= 1.0 + 1e-11;
        assert!(case.check(&Own::Run(0..y.len()), &y).unwrap_err().contains(&format!("row {last} ")));
        y[last] = f64::NAN;
        assert!(case.check(&Own::Run(0..y.len()), &y).is_err());
    }

    #[test]
    fn unknown_names_are_refused_with_those_there_are() {
        let options = Asked { systems: vec!["kmer_U1b".into()], ..Asked::default() };
        let error = wanted(&options).unwrap_err().to_string();
        assert!(error.contains("kmer_U1b") && error.contains("FullChip"), "{error}");
        assert_eq!(wanted(&Asked::default()).unwrap().len(), 24);
    }
}
