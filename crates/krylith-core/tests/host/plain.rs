//! The smallest device: one thread, plain loops, and only the required methods of a device's traits. It shows
//! what a port must implement, and that the provided methods of the traits work.

use crate::conformance;
use krylith_core::comm::{Communicator, Solo};
use krylith_core::matrix::{Bsr, Dense};
use krylith_core::memory::Numbers;
use krylith_core::operator::{Format, PointBlockSum, Terms};
use krylith_core::precond::BlockDiagonal;
use krylith_core::space::{
    COLUMNS, Clock, FLAGS, HALT, Phase, Phases, Schedule, SmallStep, Space, Sweep, Transfer,
};
use krylith_core::{Error, Precision, Result};
use std::cell::Cell;
use std::ops::Range;

/// Vectors of one length.
struct Plain {
    len: usize,
    guarded: Cell<bool>,
}

/// A vector in the memory of this device.
struct Vector(Vec<f64>);

/// Columns; those that are stored in f32 are rounded when they are written.
struct Columns {
    precision: Precision,
    columns: Vec<Vector>,
}

/// Scalars beside the vectors.
struct Scalars {
    values: Vec<f64>,
    flags: [i32; FLAGS],
}

impl Plain {
    fn new(len: usize) -> Self {
        Self { len, guarded: Cell::new(false) }
    }

    fn stops(&self, scalars: &Scalars) -> bool {
        self.guarded.get() && scalars.flags[HALT] != 0
    }

    fn check(&self, given: usize) -> Result<()> {
        match given == self.len {
            true => Ok(()),
            false => Err(Error::invalid(format!("a vector has {given} numbers; {} were expected", self.len))),
        }
    }
}

fn rounded(precision: Precision, value: f64) -> f64 {
    if precision == Precision::F64 { value } else { f64::from(value as f32) }
}

/// Numbers are summed in runs, and the sum of a run is added to the total: rounding then grows more slowly
/// with the length.
const RUN: usize = 16;

fn dot(x: &[f64], y: &[f64]) -> f64 {
    let run = |(x, y): (&[f64], &[f64])| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    x.chunks(RUN).zip(y.chunks(RUN)).map(run).sum()
}

/// y −= c x.
fn take(c: f64, x: &[f64], y: &mut [f64]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y -= c * x);
}

impl Schedule for Plain {
    type Scalars = Scalars;
    type Recording = ();

    fn scalars(&self, len: usize) -> Result<Scalars> {
        Ok(Scalars { values: vec![0.0; len], flags: [0; FLAGS] })
    }
    fn write_scalars(&self, to: &mut Scalars, at: usize, host: &[f64], flags: &[i32; FLAGS]) -> Result<()> {
        to.values[at..at + host.len()].copy_from_slice(host);
        to.flags = *flags;
        Ok(())
    }
    fn read_scalars(
        &self,
        from: &Scalars,
        at: usize,
        host: &mut [f64],
        flags: &mut [i32; FLAGS],
    ) -> Result<()> {
        host.copy_from_slice(&from.values[at..at + host.len()]);
        *flags = from.flags;
        Ok(())
    }
    fn guard(&self, scalars: Option<&Scalars>) {
        self.guarded.set(scalars.is_some());
    }
}

impl Clock for Plain {
    fn mark(&self, _: Phase) {}
    fn take_phases(&self) -> Option<Phases> {
        None
    }
}

impl Space for Plain {
    type Vector = Vector;
    type Basis = Columns;

    fn comm(&self) -> &dyn Communicator {
        &Solo
    }
    fn len(&self) -> usize {
        self.len
    }
    fn vector(&self) -> Result<Vector> {
        Ok(Vector(vec![0.0; self.len]))
    }
    fn basis(&self, columns: usize, precision: Precision) -> Result<Columns> {
        Ok(Columns { precision, columns: (0..columns).map(|_| self.vector()).collect::<Result<_>>()? })
    }
    fn write(&self, host: &[f64], to: &mut Vector) -> Result<()> {
        self.check(host.len())?;
        to.0.copy_from_slice(host);
        Ok(())
    }
    fn read(&self, from: &Vector, host: &mut [f64]) -> Result<()> {
        self.check(host.len())?;
        host.copy_from_slice(&from.0);
        Ok(())
    }
    fn wait(&self) -> Result<()> {
        Ok(())
    }

    fn sweep<K, const A: usize, const X: usize, const Y: usize, const O: usize>(
        &self,
        _: K,
        scalars: &mut Scalars,
        a: [usize; A],
        x: [&Vector; X],
        mut y: [&mut Vector; Y],
        o: [usize; O],
    ) -> Result<()>
    where
        K: Sweep<A, X, Y, O>,
    {
        if self.stops(scalars) {
            return Ok(());
        }
        for len in x.iter().map(|x| x.0.len()).chain(y.iter().map(|y| y.0.len())) {
            self.check(len)?;
        }
        let (a, mut sums) = (a.map(|slot| scalars.values[slot]), [0.0; O]);
        for begin in (0..self.len).step_by(RUN) {
            let mut run = [0.0; O];
            for i in begin..self.len.min(begin + RUN) {
                let (new, more) = K::at(a, x.map(|x| x.0[i]), std::array::from_fn(|k| y[k].0[i]), run);
                y.iter_mut().zip(new).for_each(|(y, new)| y.0[i] = new);
                run = more;
            }
            sums.iter_mut().zip(run).for_each(|(sum, run)| *sum += run);
        }
        o.iter().zip(sums).for_each(|(&slot, sum)| scalars.values[slot] = sum);
        Ok(())
    }

    fn project(
        &self,
        v: &Columns,
        columns: Range<usize>,
        x: &Vector,
        scalars: &mut Scalars,
        to: usize,
    ) -> Result<()> {
        if !self.stops(scalars) {
            let sums = v.columns[columns].iter().map(|v| dot(&v.0, &x.0));
            scalars.values[to..].iter_mut().zip(sums).for_each(|(to, sum)| *to = sum);
        }
        Ok(())
    }
    fn subtract(
        &self,
        v: &Columns,
        columns: Range<usize>,
        x: &mut Vector,
        scalars: &mut Scalars,
        from: usize,
        norm2: Option<usize>,
    ) -> Result<()> {
        if self.stops(scalars) {
            return Ok(());
        }
        for (c, v) in scalars.values[from..].iter().zip(&v.columns[columns]) {
            take(*c, &v.0, &mut x.0);
        }
        if let Some(slot) = norm2 {
            scalars.values[slot] = dot(&x.0, &x.0);
        }
        Ok(())
    }
    fn expand(&self, v: &Columns, x: &mut Vector, scalars: &mut Scalars, from: usize) -> Result<()> {
        if self.stops(scalars) {
            return Ok(());
        }
        x.0.fill(0.0);
        let columns = &v.columns[..scalars.flags[COLUMNS] as usize];
        for (c, v) in scalars.values[from..].iter().zip(columns) {
            take(-c, &v.0, &mut x.0);
        }
        Ok(())
    }
    fn append(
        &self,
        v: &mut Columns,
        column: usize,
        x: &mut Vector,
        scalars: &mut Scalars,
        norm: usize,
    ) -> Result<()> {
        if self.stops(scalars) {
            return Ok(());
        }
        let precision = v.precision;
        for (v, x) in v.columns[column].0.iter_mut().zip(&mut x.0) {
            *x /= scalars.values[norm];
            *v = rounded(precision, *x);
        }
        Ok(())
    }
    fn with_column(
        &self,
        v: &mut Columns,
        k: usize,
        write: impl FnOnce(&mut Vector) -> Result<()>,
    ) -> Result<()> {
        match v.precision {
            Precision::F64 => write(&mut v.columns[k]),
            Precision::F32 => Err(Error::Unsupported("a column stored in f32 as a vector".into())),
        }
    }
    fn update_pair<T: SmallStep>(
        &self,
        v: &mut Columns,
        j: usize,
        w: &mut Vector,
        z: &Vector,
        scalars: &mut Scalars,
        from: usize,
        beside: T,
    ) -> Result<()> {
        self.step(beside, scalars, j)?;
        let halt = scalars.flags[HALT];
        if self.guarded.get() && halt != 0 && halt != j as i32 + 2 {
            return Ok(());
        }
        let (r, rest) = scalars.values[from..].split_at(j);
        let (t, gram) = rest.split_at(j);
        let rho = (gram[0] - dot(r, r)).sqrt();
        let tj = (gram[1] - dot(r, t)) / rho;
        let mut next = z.0.clone();
        for (k, column) in v.columns[..j].iter().enumerate() {
            take(r[k], &column.0, &mut w.0);
            take(t[k], &column.0, &mut next);
        }
        for (i, next) in next.into_iter().enumerate() {
            let q = w.0[i] / rho;
            v.columns[j].0[i] = rounded(v.precision, q);
            w.0[i] = (next - tj * q) / rho;
        }
        Ok(())
    }
    fn step<T: SmallStep>(&self, _: T, scalars: &mut Scalars, j: usize) -> Result<()> {
        if !self.stops(scalars) {
            T::run(&mut scalars.values, &mut scalars.flags, j);
        }
        Ok(())
    }
}

impl Transfer for Plain {}

/// Σ Cₜ ⊗ Aₜ as it is given, values rounded to the precision of storage.
struct Product {
    terms: Vec<(Dense, Bsr)>,
    precision: Precision,
}

impl Product {
    /// Calls `add` with the row, the column and the number of every entry of Σ Cₜ ⊗ Aₜ.
    fn each(&self, mut add: impl FnMut(usize, usize, f64, f64)) {
        for (c, a) in &self.terms {
            let (b, s) = (a.block(), c.rows());
            for i in 0..a.block_rows() {
                for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                    let (j, block) = (a.col()[p] as usize, &a.values()[p * b * b..]);
                    for (e, k, l) in (0..b * b).flat_map(|e| (0..s * s).map(move |f| (e, f / s, f % s))) {
                        let (row, column) = ((i * b + e / b) * s + k, (j * b + e % b) * s + l);
                        add(row, column, c[(k, l)], rounded(self.precision, block[e]));
                    }
                }
            }
        }
    }

    fn lengths(&self) -> (usize, usize) {
        let (c, a) = &self.terms[0];
        let run = a.block() * c.rows();
        (a.block_rows() * run, a.block_columns() * run)
    }

    fn check(&self, x: &Vector, y: &Vector) -> Result<()> {
        match (y.0.len(), x.0.len()) == self.lengths() {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "a product of {:?} cannot take {} numbers to {}",
                self.lengths(),
                x.0.len(),
                y.0.len()
            ))),
        }
    }
}

/// a + b and what rounding lost (Knuth).
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let other = sum - a;
    (sum, (a - (sum - other)) + (b - other))
}

impl PointBlockSum for Plain {
    type Product = Product;

    fn prepare_as(&self, terms: &Terms, precision: Precision, _: bool, format: Format) -> Result<Product> {
        if !matches!(format, Format::Auto | Format::Csr) {
            return Err(Error::Unsupported(format!("format={format}")));
        }
        let terms = terms.terms().iter().map(|(c, a)| (c.clone(), Bsr::clone(a))).collect();
        Ok(Product { terms, precision })
    }
    fn format(_: &Product) -> Format {
        Format::Auto
    }
    fn multiply(&self, product: &Product, x: &Vector, y: &mut Vector) -> Result<()> {
        product.check(x, y)?;
        y.0.fill(0.0);
        product.each(|row, column, c, a| y.0[row] += c * a * x.0[column]);
        Ok(())
    }
    fn residual(
        &self,
        product: &Product,
        b: &Vector,
        x: &Vector,
        r: &mut Vector,
        m: &mut Vector,
    ) -> Result<()> {
        product.check(x, r)?;
        let mut low = vec![0.0; r.0.len()];
        r.0.copy_from_slice(&b.0);
        m.0.iter_mut().zip(&b.0).for_each(|(m, b)| *m = b.abs());
        product.each(|row, column, c, a| {
            // −c·a·x as a sum of three numbers: each product with what it lost.
            let (ca, x) = (c * a, x.0[column]);
            let p = -ca * x;
            let lost = f64::mul_add(-ca, x, -p) - f64::mul_add(c, a, -ca) * x;
            let (sum, more) = two_sum(r.0[row], p);
            (r.0[row], low[row]) = (sum, low[row] + more + lost);
            m.0[row] += p.abs();
        });
        r.0.iter_mut().zip(low).for_each(|(r, low)| *r += low);
        Ok(())
    }
    fn update_values(&self, product: &mut Product, t: usize, values: Numbers) -> Result<()> {
        let a = &mut product.terms[t].1;
        if values.len() != a.values().len() {
            let (given, expected) = (values.len(), a.values().len());
            return Err(Error::invalid(format!("{given} values of term {t}; {expected} were expected")));
        }
        let mut new = vec![0.0; a.values().len()];
        values.read(&mut new)?;
        if new.iter().any(|v| !v.is_finite()) {
            return Err(Error::invalid(format!("new values of term {t} must be finite")));
        }
        a.values_mut().copy_from_slice(&new);
        Ok(())
    }
    fn update_coefficients(&self, product: &mut Product, coefficients: &[Dense]) -> Result<()> {
        product.terms.iter_mut().zip(coefficients).for_each(|((to, _), c)| to.clone_from(c));
        Ok(())
    }
    fn product_bytes(product: &Product) -> u64 {
        product.terms.iter().map(|(_, a)| (8 * a.values().len() + 4 * a.col().len()) as u64).sum()
    }
    fn product_key(_: &Product) -> u64 {
        0
    }
}

/// Row-major blocks of an order.
struct Blocks {
    order: usize,
    precision: Precision,
    values: Vec<f64>,
}

impl BlockDiagonal for Plain {
    type Blocks = Blocks;

    fn prepare_blocks(&self, order: usize, blocks: Numbers, precision: Precision) -> Result<Blocks> {
        let mut to = Blocks { order, precision, values: vec![0.0; blocks.len()] };
        self.update_blocks(&mut to, blocks)?;
        Ok(to)
    }
    fn update_blocks(&self, to: &mut Blocks, blocks: Numbers) -> Result<()> {
        blocks.read(&mut to.values)?;
        to.values.iter_mut().for_each(|v| *v = rounded(to.precision, *v));
        Ok(())
    }
    fn multiply_blocks(&self, d: &Blocks, transposed: bool, x: &Vector, y: &mut Vector) -> Result<()> {
        self.check(d.values.len() / d.order)?;
        y.0.fill(0.0);
        for (i, row) in d.values.chunks_exact(d.order).enumerate() {
            for (j, v) in (i / d.order * d.order..).zip(row) {
                let (to, from) = if transposed { (j, i) } else { (i, j) };
                y.0[to] += v * x.0[from];
            }
        }
        Ok(())
    }
    fn blocks_bytes(d: &Blocks) -> u64 {
        8 * d.values.len() as u64
    }
}

#[test]
fn products() {
    conformance::products_match_the_dense_kronecker_sum(&Plain::new);
    conformance::products_of_awkward_patterns(&Plain::new);
    conformance::operators_keep_their_coefficients(&Plain::new);
    conformance::updates_equal_a_fresh_operator(&Plain::new);
    conformance::structure_changes_nothing(&Plain::new);
    conformance::csr::scalar_rows_of_every_length(&Plain::new);
    conformance::csr::residuals_of_scalar_rows(&Plain::new);
    conformance::csr::scalar_rows_are_updated(&Plain::new);
    conformance::residual::residuals_are_rounded_once(&Plain::new);
}

#[test]
fn spaces() {
    conformance::rounded_bases_reach_the_tolerance(&Plain::new);
    conformance::residual::numbers_far_from_one_are_solved(&Plain::new);
    conformance::residual::the_limit_of_double_precision_is_named(&Plain::new);
    conformance::residual::a_cycle_stops_when_it_is_done(&Plain::new);
    conformance::method::operators_write_to_columns(&Plain::new);
    conformance::cbcg::blocks_match_plain_loops(&Plain::new);
}

#[test]
fn methods() {
    conformance::criterion::every_criterion_is_certified(&Plain::new);
    conformance::gmres_matches_a_direct_solve(&Plain::new);
    conformance::bicgstab_matches_a_direct_solve(&Plain::new);
    conformance::bicgstab_restarts_itself(&Plain::new);
    conformance::method::fgmres_takes_preconditioners_that_vary(&Plain::new);
    conformance::method::fgmres_is_gmres_where_the_preconditioner_stays(&Plain::new);
    conformance::method::every_method_reaches_every_outcome(&Plain::new);
    conformance::method::cg_matches_a_direct_solve(&Plain::new);
    conformance::method::cg_follows_the_textbook(&Plain::new);
    conformance::method::cg_takes_the_sums_of_operators(&Plain::new);
    conformance::method::flexible_cg_keeps_directions_conjugate(&Plain::new);
    conformance::costly::methods_spare_costly_preconditioners(&Plain::new);
    conformance::cbcg::cbcg_converges_as_cg(&Plain::new);
    conformance::cbcg::cbcg_copes_with_hard_cases(&Plain::new);
    conformance::minres::minres_minimises_over_the_krylov_space(&Plain::new);
    conformance::minres::minres_matches_a_direct_solve(&Plain::new);
    conformance::minres::minres_copes_with_singular_systems(&Plain::new);
}
