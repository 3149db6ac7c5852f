//! Progress on stderr: a line for each step, and the bar of `krylith solve` for the linear solve of a step.

use crate::{interrupt, output, progress};
use krylith_core::newton::{NewtonEvent, NewtonObserver, NewtonStep};
use krylith_core::text::{plural, seconds};
use krylith_core::{Observer, Progress};
use std::ops::ControlFlow;

/// An observer of a Newton solve.
pub struct Watch {
    quiet: bool,
    linear: Option<(usize, progress::Watch)>,
}

impl Watch {
    /// Creates an observer, which prints nothing if `quiet`.
    pub fn new(quiet: bool) -> Self {
        Self { quiet, linear: None }
    }

    /// Removes the bar.
    pub fn finish(&mut self) {
        if let Some((_, bar)) = self.linear.take() {
            bar.finish();
        }
    }

    fn say(&mut self, text: &str) {
        self.finish();
        if !self.quiet {
            output::note(text);
        }
    }
}

impl NewtonObserver for Watch {
    fn residual(&mut self, _: usize, _: f64, _: f64) -> ControlFlow<()> {
        if interrupt::asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn linear(&mut self, step: usize, progress: Progress) -> ControlFlow<()> {
        if self.linear.as_ref().is_none_or(|(of, _)| *of != step) {
            self.finish();
        }
        let quiet = self.quiet;
        let (_, bar) = self.linear.get_or_insert_with(|| (step, progress::Watch::new(quiet)));
        bar.progress(progress)
    }

    fn stepped(&mut self, step: &NewtonStep) {
        self.say(&format!(
            "step {}: ‖F‖ {:.2e}, {} to {:.1e} in {}",
            step.number,
            step.after,
            plural(step.iterations, "iteration"),
            step.linear_residual,
            seconds(step.seconds.total())
        ));
    }

    fn event(&mut self, _: &NewtonEvent) {
        self.finish();
    }

    fn parameter(&mut self, value: f64) {
        self.say(&format!("continuation: {}", super::short(value)));
    }
}
