//! Solves of several right-hand sides at once.
//!
//! The method runs on a space of [`Columns`], so each right-hand side has its own scalars and its own end,
//! and operators get all vectors at once. A batch is launched for all right-hand sides that have not ended.
//! Then the host looks at one after the other, with the same code as for a single right-hand side. A true
//! residual, and a restart from it, is computed for each column on its own.
//!
//! On a GPU the host waits for each batch before it launches the next one. A batch of many columns is long
//! enough to hide that.

use super::{Convergence, Given, Header, Krylov, Now, Operators, Quantity, Recurrence};
use crate::Result;
use crate::operator::{LinearOperator, Together};
use crate::space::{Columns, FLAGS, History, Observer, Schedule, Space, Stop};

/// A method that solves for several right-hand sides at once.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::operator::{PointBlock, Space};
/// use krylith::{Observer, Outcome, Precision, Stop, matrix::Csr, method::MethodSpec};
/// use krylith_core::space::Columns;
/// let space = Columns::new(Cpu::new(2, 1), 2)?;
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 3.0)])?;
/// let a = PointBlock::csr(space.one(), &a, Precision::F64)?;
/// let spec: MethodSpec = "cg".parse()?;
/// let mut cg = spec.build_columns(&space)?;
/// let (b, mut x) = (vec![vec![3.0, 4.0], vec![2.0, 1.0]], space.vector()?);
/// let (mut one, mut other) = ((), ());
/// let observers: &mut [&mut dyn Observer] = &mut [&mut one, &mut other];
/// let histories = cg.solve(&space, &a, None, &b, &mut x, &Stop::default(), observers)?;
/// assert!(histories.iter().all(|history| history.outcome == Outcome::Converged));
/// # Ok::<(), krylith::Error>(())
/// ```
pub trait ColumnsMethod<S: Space> {
    /// Solves A x = b for the first columns, as many as there are observers, each from its own x. `p` applies
    /// P⁻¹. Returns the history of each column.
    ///
    /// # Errors
    /// Errors of the device.
    fn solve(
        &mut self,
        space: &Columns<S>,
        a: &dyn LinearOperator<S>,
        p: Option<&dyn LinearOperator<S>>,
        b: &<Columns<S> as Space>::Vector,
        x: &mut <Columns<S> as Space>::Vector,
        stop: &Stop,
        observers: &mut [&mut dyn Observer],
    ) -> Result<Vec<History>>;
}

/// The host's view of one right-hand side.
struct Column {
    /// `None` if the column has ended.
    running: Option<Running>,
    host: Vec<f64>,
    history: History,
}

struct Running {
    convergence: Convergence,
    unit: f64,
    now: Now,
}

impl<S: Space, R: Recurrence<Columns<S>>> ColumnsMethod<S> for Krylov<Columns<S>, R> {
    fn solve(
        &mut self,
        space: &Columns<S>,
        a: &dyn LinearOperator<S>,
        p: Option<&dyn LinearOperator<S>>,
        b: &<Columns<S> as Space>::Vector,
        x: &mut <Columns<S> as Space>::Vector,
        stop: &Stop,
        observers: &mut [&mut dyn Observer],
    ) -> Result<Vec<History>> {
        let (s, count) = (space, observers.len());
        let (a, p) = (Together(a), p.map(Together));
        let p = p.as_ref().map(|p| p as &dyn LinearOperator<Columns<S>>);
        s.select(0..count);
        let quantity = self.take_quantity(s, &a, stop)?;
        let done = self.solve_all(s, (&a, p), quantity.as_ref(), b, x, stop, observers);
        self.quantity = quantity.or(self.quantity.take());
        done
    }
}

/// The columns that have not ended.
fn running(columns: &[Column]) -> impl Iterator<Item = usize> + '_ {
    columns.iter().enumerate().filter(|(_, column)| column.running.is_some()).map(|(k, _)| k)
}

impl<S: Space, R: Recurrence<Columns<S>>> Krylov<Columns<S>, R> {
    /// Solves with the vectors of the criterion.
    fn solve_all(
        &mut self,
        s: &Columns<S>,
        (a, p): Given<'_, Columns<S>>,
        quantity: Option<&Quantity<Columns<S>>>,
        b: &<Columns<S> as Space>::Vector,
        x: &mut <Columns<S> as Space>::Vector,
        stop: &Stop,
        observers: &mut [&mut dyn Observer],
    ) -> Result<Vec<History>> {
        let count = observers.len();
        let around = quantity.and_then(|quantity| quantity.around(a, p));
        let mut on = Operators::by((a, p), &around, quantity);
        on.weigh(s)?;
        let on = &on;
        // A device that runs ahead of the host computes a product for all columns. So no product may come
        // between the iterations of a column that goes on.
        self.lazy = s.pipeline_depth() > 0;
        self.choose_length(s, on)?;
        let mut columns = self.begin_columns(s, quantity, b, x, count, stop)?;
        let first = running(&columns).next();
        if let Some(first) = first {
            s.select(running(&columns));
            self.recurrence.prepare(&mut on.work(s, &mut self.scalars, true), on.key)?;
            for (k, column) in columns.iter_mut().enumerate() {
                let Some(running) = &column.running else { continue };
                s.select([k]);
                self.write_header(s, &running.convergence)?;
                column.host.clone_from(&self.host);
            }
            s.select(running(&columns));
            self.open(s, on)?;
            let mut shared = Convergence::new([columns[first].history.rhs_norm; 2], 1.0, stop);
            loop {
                for (k, observer) in observers.iter_mut().enumerate() {
                    self.look_at(s, on, &mut columns[k], k, x, &mut **observer)?;
                }
                if running(&columns).next().is_none() {
                    break;
                }
                s.select(self.in_batch(s, &columns));
                self.batch(s, on, &mut shared, &mut ())?;
                columns.iter_mut().flat_map(|c| &mut c.running).for_each(|r| r.now.under_way = 1);
            }
        }
        s.select(0..count);
        Ok(columns.into_iter().map(|column| column.history).collect())
    }

    /// Takes b and x of every column.
    fn begin_columns(
        &mut self,
        s: &Columns<S>,
        quantity: Option<&Quantity<Columns<S>>>,
        b: &<Columns<S> as Space>::Vector,
        x: &mut <Columns<S> as Space>::Vector,
        count: usize,
        stop: &Stop,
    ) -> Result<Vec<Column>> {
        let mut columns = Vec::with_capacity(count);
        for k in 0..count {
            s.select([k]);
            self.history = History::with_capacity(0);
            self.leave_alone(s)?;
            let begun = self.begin(s, quantity, b, x, stop)?;
            let running = begun.map(|(convergence, unit)| {
                let now = Now { flags: [0; FLAGS], under_way: 1, interrupted: false };
                Running { convergence, unit, now }
            });
            columns.push(Column { running, host: self.host.clone(), history: self.history.clone() });
        }
        Ok(columns)
    }

    /// Reads what the last batch did for column k, and ends the column if its residual is small enough.
    fn look_at(
        &mut self,
        s: &Columns<S>,
        on: &Operators<Columns<S>>,
        column: &mut Column,
        k: usize,
        x: &mut <Columns<S> as Space>::Vector,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let Some(running) = &mut column.running else { return Ok(()) };
        s.select([k]);
        std::mem::swap(&mut self.host, &mut column.host);
        std::mem::swap(&mut self.history, &mut column.history);
        let Running { convergence, unit, now } = running;
        let ended = self.examine(s, on, x, now, convergence, observer)?;
        if let Some(outcome) = ended {
            self.conclude(s, on, x, *unit, outcome, now, convergence)?;
            self.leave_alone(s)?;
            column.running = None;
        }
        std::mem::swap(&mut self.host, &mut column.host);
        std::mem::swap(&mut self.history, &mut column.history);
        Ok(())
    }

    /// Makes batches do nothing for the selected column.
    fn leave_alone(&mut self, s: &Columns<S>) -> Result<()> {
        s.write_scalars(&mut self.scalars, 0, &[0.0; Header::<usize, usize>::LEN], &[0; FLAGS])
    }

    /// Returns the columns of the next batch. A recorded batch keeps columns that have ended, which do no
    /// work on their vectors, until three quarters of its columns have ended. Another set of columns is
    /// recorded anew.
    fn in_batch(&self, s: &Columns<S>, columns: &[Column]) -> Vec<usize> {
        let left: Vec<usize> = running(columns).collect();
        if s.pipeline_depth() == 0 || left.len() == 1 {
            return left;
        }
        let mut width = columns.len();
        while left.len() <= width / 4 {
            width /= 4;
        }
        let others = (0..columns.len()).filter(|k| !left.contains(k)).take(width - left.len());
        left.iter().copied().chain(others).collect()
    }
}
