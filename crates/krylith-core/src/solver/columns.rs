//! Several right-hand sides that the devices of a solver solve together.

use super::Solver;
use super::apply::on_parts;
use super::fixed::Fixed;
use super::functions::Given;
use super::lock;
use super::watch::Run;
use crate::comm::agree;
use crate::interrupt::Limits;
use crate::memory::{Numbers, NumbersMut};
use crate::space::Stop;
use crate::{Error, Result};
use std::ops::Range;
use std::sync::Mutex;
use std::time::Instant;

impl Solver<'_> {
    /// Returns how many right-hand sides the devices can solve together. The vectors stand for those of a
    /// column. Collective.
    pub(super) fn columns_at_once(
        &mut self,
        transposed: bool,
        stop: Stop,
        b: Numbers,
        x: NumbersMut,
    ) -> Result<usize> {
        self.check_whole()?;
        // One at a time: the adjoint is another solver, and other criteria need a reference for each column.
        if transposed && self.adjoint.is_some() || self.fixed.is_some() && !stop.is_usual() {
            return Ok(1);
        }
        let answer = Mutex::new(1);
        let done = on_parts(&mut self.workers, &self.problem, b, x, &|number, engine, local, _, _| {
            let width = engine.columns_at_once(transposed, local)?;
            if number == 0 {
                *lock(&answer) = width;
            }
            Ok(())
        });
        match self.after(done) {
            // The solve of the first column sets up what this preconditioner cannot do.
            Err(Error::Unsupported(_)) if transposed => Ok(1),
            done => done.map(|()| answer.into_inner().unwrap_or_else(|e| e.into_inner())),
        }
    }

    /// Solves for a range of the columns of b and x with the attempt that is set up. The results stay on the
    /// devices, where a solve of each column finds them. Returns the order of these solves. Collective.
    pub(super) fn solve_columns(
        &mut self,
        transposed: bool,
        stop: Stop,
        columns: Range<usize>,
        b: Numbers,
        x: &mut NumbersMut,
    ) -> Result<Vec<usize>> {
        let mut fixed = self.fixed.take();
        let done = self.take_columns(&mut fixed, transposed, stop, columns, b, x);
        self.fixed = fixed;
        done
    }

    fn take_columns(
        &mut self,
        fixed: &mut Option<Fixed>,
        transposed: bool,
        stop: Stop,
        columns: Range<usize>,
        b: Numbers,
        x: &mut NumbersMut,
    ) -> Result<Vec<usize>> {
        let order = Mutex::new(Vec::new());
        let (n, count) = (self.problem.own_len(), columns.len());
        let limit = self.time_limit.and_then(|limit| limit.checked_mul(count as u32));
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let limits = Limits { cancel: self.cancel.clone(), deadline };
        let mut run =
            Run { stop, limits, given: Given::default(), column: None, promoted: false, continues: false };
        for (k, column) in columns.enumerate() {
            let range = column * n..(column + 1) * n;
            let (mut b, mut x) = (b.range(range.clone()), x.range(range));
            let mut own;
            if let Some(fixed) = fixed {
                let read = b.to_vec().and_then(|b| Ok((b, x.as_array().to_vec()?)));
                let (given, mut guess) = agree(&*self.problem.comm, read)?;
                let begun = || fixed.begin_column(transposed, stop, &given, &mut guess);
                let (rhs, rtol) = self.workers.first(begun)?;
                // All columns meet the tolerance of the strictest.
                run.stop.rtol = run.stop.rtol.min(rtol);
                own = (rhs, guess);
                (b, x) = (Numbers::from(&own.0), NumbersMut::from(&mut own.1));
            }
            let run = &run;
            let done = on_parts(&mut self.workers, &self.problem, b, x, &|number, engine, local, b, x| {
                let found = engine.take_column(transposed, local, run, (k, count), b, x.as_array())?;
                if number == 0 {
                    *lock(&order) = found;
                }
                Ok(())
            });
            self.after(done)?;
        }
        Ok(order.into_inner().unwrap_or_else(|e| e.into_inner()))
    }
}
