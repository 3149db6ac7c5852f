//! Time of one product.

use super::Plan;
use crate::count::{self, Cost};
use crate::platform::{Effort, OnSpace, Platform, Product};
use crate::publish::Check;
use crate::samples::{Samples, in_turn_of};
use crate::systems::{self, Random};
use krylith_core::matrix::KroneckerSum;
use krylith_core::operator::{LinearOperator, PointBlock, Terms};
use krylith_core::{Precision, Result};
use std::rc::Rc;

/// A system and everything that multiplied by it.
pub(super) struct Table {
    pub case: String,
    pub block: usize,
    pub stages: usize,
    pub block_rows: usize,
    pub blocks: usize,
    /// Number of rotating sets of buffers.
    pub sets: usize,
    pub rows: Vec<Row>,
}

pub(super) struct Row {
    pub name: String,
    pub notes: String,
    pub ours: bool,
    pub cost: Cost,
    /// Bytes by the operator's own declaration.
    pub declared: Option<u64>,
    /// Repeated products on the same buffers.
    pub alone: Samples,
    /// Products on rotating sets of buffers, per product.
    pub rotating: Samples,
    /// Largest relative difference from the reference, or the reason of a failure.
    pub check: Check,
}

/// Checks and times every implementation on one system; `ours` lists storage precision and `dense` of
/// Krylith's products.
pub(super) fn measure<P: Platform>(
    p: &P,
    case: &str,
    k: &KroneckerSum,
    ours: &[(Precision, bool)],
    plan: &Plan,
    effort: Effort,
) -> Result<Table> {
    let dense = count::product(k, Precision::F64, false);
    let wanted = plan.traffic.div_ceil(dense.bytes).max(1);
    // While they choose a layout, the baselines hold a copy for each; assembled matrices are s² times larger.
    let implementations = 6 + ours.len() as u64;
    let sets = wanted.min((p.room()? / (implementations * dense.bytes)).max(1)) as usize;
    let (space, terms) = (Rc::new(p.space(k.rows())?), Terms::kronecker(k));
    let ours: Vec<_> = ours.iter().copied().filter(|&(_, dense)| dense || p.structures()).collect();

    let mut products = p.products(k, sets, effort)?;
    let baselines = products.len();
    let mut rows: Vec<Row> = Vec::new();
    rows.extend(products.iter().map(|product| Row::new(product, false, dense, None)));
    for &(precision, dense) in &ours {
        let operator = |_| PointBlock::new(space.as_ref(), &terms, precision, dense);
        let operators = (0..sets).map(operator).collect::<Result<Vec<_>>>()?;
        let declared = operators.first().map(LinearOperator::bytes);
        let blocks = if dense { "dense" } else { "structured" };
        let stored = if precision == Precision::F32 { ", f32 stored" } else { "" };
        let name = format!("Krylith, {blocks} blocks{stored}");
        let operators = operators.into_iter().map(|one| Box::new(one) as _).collect();
        let made = Product { name, notes: String::new(), on: OnSpace::new(&space, operators)? };
        rows.push(Row::new(&made, true, count::product(k, precision, !dense), declared));
        products.push(made);
    }
    let x = Random(4242).numbers(k.rows());
    for (i, (product, row)) in products.iter_mut().zip(&mut rows).enumerate() {
        let precision = if i < baselines { Precision::F64 } else { ours[i - baselines].0 };
        row.check = check(product, k, precision, &x, sets).map_err(|e| e.to_string());
    }
    // Time only correct products.
    let right: Vec<usize> = (0..rows.len()).filter(|&i| rows[i].check.is_ok()).collect();
    let alone = in_turn_of(&right, 3, plan.repetitions, |i| {
        let product = &mut products[i].on;
        // Evict what the last candidate left in the caches.
        product.run(0)?;
        p.time(&mut || product.run(0))
    })?;
    let rotating = in_turn_of(&right, 1, plan.repetitions, |i| {
        let product = &mut products[i].on;
        let seconds = p.time(&mut || (0..sets).try_for_each(|set| product.run(set)))?;
        Ok(seconds / sets as f64)
    })?;
    for ((i, alone), (_, rotating)) in alone.into_iter().zip(rotating) {
        (rows[i].alone, rows[i].rotating) = (alone, rotating);
    }
    Ok(Table {
        case: case.into(),
        block: k.block(),
        stages: k.stages(),
        block_rows: k.m.block_rows(),
        blocks: k.m.blocks(),
        sets,
        rows,
    })
}

impl Row {
    fn new(product: &Product, ours: bool, cost: Cost, declared: Option<u64>) -> Self {
        Self {
            name: product.name.clone(),
            notes: product.notes.clone(),
            ours,
            cost,
            declared,
            alone: Samples::default(),
            rotating: Samples::default(),
            check: Ok(0.0),
        }
    }
}

/// Checks every set's result against the reference, after poisoning the outputs.
fn check(
    product: &mut Product,
    k: &KroneckerSum,
    precision: Precision,
    x: &[f64],
    sets: usize,
) -> Result<f64> {
    let mut worst = 0.0f64;
    product.on.write(x)?;
    for set in 0..sets {
        product.on.poison(set)?;
        product.on.run(set)?;
        worst = worst.max(systems::check(&product.name, k, precision, x, &product.on.read(set)?)?);
    }
    Ok(worst)
}
