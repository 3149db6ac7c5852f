//! Time of one product.

use super::Plan;
use crate::count::{self, Cost};
use crate::platform::{Effort, Platform, Product};
use crate::samples::{Samples, in_turn_of};
use crate::systems::{self, Random};
use krylith::matrix::KroneckerSum;
use krylith::operator::{LinearOperator, PointBlock, PointBlockSum, Terms};
use krylith::{Result, Store};

/// One system and everything that multiplied by it.
pub(super) struct Table {
    pub case: String,
    pub block: usize,
    pub stages: usize,
    pub block_rows: usize,
    pub blocks: usize,
    /// Sets of buffers that were rotated.
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
    /// The same buffers again and again.
    pub alone: Samples,
    /// Sets of buffers in rotation, per product.
    pub rotating: Samples,
    /// Largest relative difference from the reference, or what went wrong.
    pub check: std::result::Result<f64, String>,
}

/// Krylith's product on several sets of buffers.
struct Ours<'a, S: PointBlockSum> {
    space: &'a S,
    name: String,
    sets: Vec<(PointBlock<S>, S::Vector, S::Vector)>,
}

impl<'a, S: PointBlockSum> Ours<'a, S> {
    fn new(space: &'a S, k: &KroneckerSum, store: Store, dense: bool, sets: usize) -> Result<Self> {
        let terms = Terms::kronecker(k);
        let set = |_| Ok((PointBlock::new(space, &terms, store, dense)?, space.vector()?, space.vector()?));
        let sets = (0..sets).map(set).collect::<Result<_>>()?;
        let blocks = if dense { "dense" } else { "structured" };
        let stored = if store == Store::F32 { ", f32 stored" } else { "" };
        Ok(Self { space, name: format!("Krylith, {blocks} blocks{stored}"), sets })
    }
}

impl<S: PointBlockSum> Product for Ours<'_, S> {
    fn name(&self) -> String {
        self.name.clone()
    }
    fn write(&mut self, x: &[f64]) -> Result<()> {
        self.sets.iter_mut().try_for_each(|set| self.space.write(x, &mut set.1))
    }
    fn poison(&mut self, set: usize) -> Result<()> {
        self.space.write(&vec![f64::NAN; self.space.len()], &mut self.sets[set].2)
    }
    fn run(&mut self, set: usize) -> Result<()> {
        let (operator, x, y) = &mut self.sets[set];
        operator.apply(self.space, x, y)
    }
    fn read(&mut self, set: usize) -> Result<Vec<f64>> {
        let mut y = vec![0.0; self.space.len()];
        self.space.read(&self.sets[set].2, &mut y)?;
        Ok(y)
    }
}

/// Checks and times every implementation on one system; `ours` lists storage and whether blocks count as dense.
pub(super) fn measure<P: Platform>(
    p: &P,
    case: &str,
    k: &KroneckerSum,
    ours: &[(Store, bool)],
    plan: &Plan,
    effort: Effort,
) -> Result<Table> {
    let dense = count::product(k, Store::F64, false);
    let wanted = plan.traffic.div_ceil(dense.bytes).max(1);
    // The baselines hold a copy for each choice of layout while they choose; assembled matrices are s² times larger.
    let implementations = 6 + ours.len() as u64;
    let sets = wanted.min((p.room()? / (implementations * dense.bytes)).max(1)) as usize;
    let space = p.space(k.rows())?;
    let ours: Vec<_> = ours.iter().copied().filter(|&(_, dense)| dense || p.structures()).collect();

    let mut products = p.products(k, sets, effort)?;
    let baselines = products.len();
    let mut rows: Vec<Row> = Vec::new();
    for product in &products {
        let cost = dense;
        rows.push(Row::new(product.as_ref(), false, cost, None));
    }
    for &(store, dense) in &ours {
        let made = Ours::new(&space, k, store, dense, sets)?;
        let declared = made.sets.first().map(|set| set.0.bytes());
        rows.push(Row::new(&made, true, count::product(k, store, !dense), declared));
        products.push(Box::new(made));
    }
    let x = Random(4242).numbers(k.rows());
    for (i, (product, row)) in products.iter_mut().zip(&mut rows).enumerate() {
        let store = if i < baselines { Store::F64 } else { ours[i - baselines].0 };
        row.check = check(product.as_mut(), k, store, &x, sets).map_err(|e| e.to_string());
    }
    // Only what is right is timed.
    let right: Vec<usize> = (0..rows.len()).filter(|&i| rows[i].check.is_ok()).collect();
    let alone = in_turn_of(&right, 3, plan.repetitions, |i| {
        let product = &mut products[i];
        // Whatever the last candidate left in the caches goes.
        product.run(0)?;
        p.time(&mut || product.run(0))
    })?;
    let rotating = in_turn_of(&right, 1, plan.repetitions, |i| {
        let product = &mut products[i];
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
    fn new(product: &dyn Product, ours: bool, cost: Cost, declared: Option<u64>) -> Self {
        Self {
            name: product.name(),
            notes: product.notes(),
            ours,
            cost,
            declared,
            alone: Samples::default(),
            rotating: Samples::default(),
            check: Ok(0.0),
        }
    }
}

/// Every set's result against the reference, over poisoned outputs.
fn check(product: &mut dyn Product, k: &KroneckerSum, store: Store, x: &[f64], sets: usize) -> Result<f64> {
    let mut worst = 0.0f64;
    product.write(x)?;
    for set in 0..sets {
        product.poison(set)?;
        product.run(set)?;
        worst = worst.max(systems::check(&product.name(), k, store, x, &product.read(set)?)?);
    }
    Ok(worst)
}
