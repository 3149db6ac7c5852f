//! Progress of a solve: a bar on a terminal, else a line every five seconds, and nothing with `--quiet`. Also
//! checks for Ctrl-C.

use crate::interrupt;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use krylith_core::text::count;
use krylith_core::{Observer, Progress};
use krylith_report::words::rate_text;
use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Interval of lines if stderr is not a terminal.
const EVERY: Duration = Duration::from_secs(5);
/// Interval of updates of the bar.
const REDRAW: Duration = Duration::from_millis(100);

enum Show {
    Nothing,
    Bar(ProgressBar),
    Lines,
}

/// An observer of a solve.
pub struct Watch {
    show: Show,
    start: Instant,
    shown: Instant,
    first: Option<f64>,
}

impl Watch {
    /// Creates an observer, which prints nothing if `quiet`.
    pub fn new(quiet: bool) -> Self {
        let show = if quiet {
            Show::Nothing
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr());
            // A narrow terminal shows only the numbers.
            let template = if narrow() { "{spinner} {msg}" } else { "{spinner} [{wide_bar}] {msg}" };
            let style = ProgressStyle::with_template(template);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸ "));
            Show::Bar(bar)
        } else {
            Show::Lines
        };
        let now = Instant::now();
        Self { show, start: now, shown: now, first: None }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Show::Bar(bar) = &self.show {
            bar.finish_and_clear();
        }
    }
}

impl Observer for Watch {
    fn progress(&mut self, p: Progress) -> ControlFlow<()> {
        if self.first.is_none() {
            self.start = Instant::now();
        }
        let first = *self.first.get_or_insert(p.relative_residual);
        if interrupt::asked() {
            return ControlFlow::Break(());
        }
        let now = Instant::now();
        let pause = if matches!(self.show, Show::Lines) { EVERY } else { REDRAW };
        if now - self.shown >= pause {
            self.shown = now;
            let rate = p.iteration as f64 / (now - self.start).as_secs_f64().max(1e-9);
            let short = matches!(self.show, Show::Bar(_));
            let brief = || {
                format!(
                    "{}: {:.2e}, to reach {:.1e}, {}/s",
                    count(p.iteration),
                    p.relative_residual,
                    p.target,
                    rate_text(rate)
                )
            };
            let text = format!(
                "iteration {}: residual {:.2e}, to reach {:.1e}, {}{}/s",
                count(p.iteration),
                p.relative_residual,
                p.target,
                rate_text(rate),
                if short { "" } else { " iterations" }
            );
            match &self.show {
                Show::Nothing => {}
                Show::Lines => crate::output::note(&text),
                Show::Bar(bar) => {
                    let text = if narrow() { brief() } else { text };
                    bar.set_position((1000.0 * travelled(first, p.relative_residual, p.target)) as u64);
                    bar.set_message(text);
                    bar.tick();
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Returns a function that calls `meanwhile` and notes once, unless `quiet`, that a set-up compiles kernels.
pub fn of_first_use(quiet: bool, mut meanwhile: Box<dyn FnMut() + Send>) -> Box<dyn FnMut() + Send> {
    let mut told = quiet || !crate::output::speaks();
    Box::new(move || {
        meanwhile();
        if !told && let Some(text) = krylith_core::solver::first_use() {
            told = true;
            crate::output::note(&text);
        }
    })
}

fn narrow() -> bool {
    crate::term::columns_of_errors().is_some_and(|columns| columns < 90)
}

/// Returns the share of the way from `first` to `target` that is done, measured in orders of magnitude.
fn travelled(first: f64, now: f64, target: f64) -> f64 {
    let share = (first / now).ln() / (first / target).ln();
    if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_bar_counts_orders_of_magnitude() {
        assert!((super::travelled(1.0, 1e-3, 1e-6) - 0.5).abs() < 1e-12);
        assert_eq!(super::travelled(1.0, 10.0, 1e-6), 0.0);
        assert_eq!(super::travelled(1.0, 0.0, 0.0), 0.0);
    }
}
