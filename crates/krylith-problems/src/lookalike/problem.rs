//! Look-alikes as problems: `lookalike:NAME[,scale=1/256][,permuted][,seed=N]`.

use krylith_core::Result;
use krylith_core::matrix::{Csr, Dense};
use krylith_core::partition::{RowBlocks, Rows, contiguous};
use rayon::prelude::*;

use super::{Arrays, Lookalike, TABLE2, by_name};
use crate::spec::Spec;
use crate::{Generated, GeneratedRows, SystemKind};

/// The parameters in the text.
struct Parameters {
    matrix: &'static Lookalike,
    scale: f64,
    seed: u64,
    permuted: bool,
}

impl Parameters {
    fn of(spec: &Spec) -> Result<Self> {
        let matrix = by_name(&spec.label).ok_or_else(|| {
            let known: Vec<_> = TABLE2.iter().map(|m| m.name).collect();
            krylith_core::Error::invalid(format!(
                "problem lookalike: unknown matrix `{}`; the known ones are {}",
                spec.label,
                known.join(", ")
            ))
        })?;
        let scale = spec.ratio("scale")?;
        let seed = spec.whole("seed", 0..=u64::MAX)?;
        Ok(Self { matrix, scale, seed, permuted: spec.choice("permuted", &["false", "true"])? == 1 })
    }
}

/// Generates the matrix with right-hand side A·1; that of an empty row is 0, so the system stays consistent.
pub(crate) fn generate(spec: &Spec) -> Result<Generated> {
    let Parameters { matrix, scale, seed, permuted } = Parameters::of(spec)?;
    let a: Csr = matrix.generate(scale, seed, permuted)?;
    let rhs = sums(a.row_ptr(), a.values());
    Ok(Generated {
        system: SystemKind::Csr(a),
        rhs,
        coordinates: None,
        grid: None,
        tetrahedra: Vec::new(),
        fields: Vec::new(),
        matrices: Vec::new(),
        spec: spec.full(),
    })
}

/// Generates one rank's rows of the same system.
pub(crate) fn generate_rows(spec: &Spec, rank: usize, ranks: usize) -> Result<GeneratedRows> {
    let Parameters { matrix, scale, seed, permuted } = Parameters::of(spec)?;
    let nodes = matrix.scaled(scale)?.rows as usize;
    let Arrays { row_ptr, col, values } = matrix.rows(scale, seed, permuted, rank, ranks)?;
    Ok(GeneratedRows {
        fields: Vec::new(),
        matrices: Vec::new(),
        rhs: sums(&row_ptr, &values),
        nodes,
        coordinates: None,
        grid: None,
        rows: Rows {
            numbers: contiguous(nodes, rank, ranks).map(|i| i as u64).collect(),
            block: 1,
            terms: vec![(Dense::identity(1), RowBlocks { row_ptr, col, values })],
        },
        spec: spec.full(),
    })
}

/// Returns the sum of each row.
fn sums(row_ptr: &[usize], values: &[f64]) -> Vec<f64> {
    row_ptr.par_windows(2).with_min_len(1 << 12).map(|w| values[w[0]..w[1]].iter().sum()).collect()
}
