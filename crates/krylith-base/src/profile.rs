//! Time of a set-up by parts. Each thread has one clock, which always runs for the innermost part that has
//! begun.
//!
//! Code that sets something up calls [`begin`] and keeps the guard that it returns. A part that begins inside
//! another stops the other's clock, so parts never overlap, and they add up to the whole. Outside a set-up,
//! [`begin_inside`] does nothing.

use std::cell::Cell;
use std::marker::PhantomData;
use std::time::Instant;

/// A part of a set-up.
///
/// # Examples
/// ```
/// use krylith_base::profile::SetupPart;
/// let names: Vec<_> = SetupPart::ALL.iter().map(|part| part.name()).collect();
/// assert_eq!(names[..3], ["device", "upload", "survey"]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetupPart {
    /// Opening the device: its context, streams and threads.
    Device,
    /// Copies of the system's arrays to the device.
    Upload,
    /// A pass over all entries, the test for symmetry, and scaling if requested.
    SystemAnalysis,
    /// Set-up of the operator.
    Product,
    /// Partitioning of the system into subdomains.
    Subdomains,
    /// The preconditioner's analysis of the pattern.
    Analysis,
    /// The preconditioner's computations on the values.
    Factors,
    /// Compilation of kernels, or loading them from a cache.
    Compile,
    /// Allocation of the method's vectors.
    Method,
    /// All other work.
    Other,
}

impl SetupPart {
    /// All parts, in the order of a set-up.
    pub const ALL: [SetupPart; 10] = [
        SetupPart::Device,
        SetupPart::Upload,
        SetupPart::SystemAnalysis,
        SetupPart::Product,
        SetupPart::Subdomains,
        SetupPart::Analysis,
        SetupPart::Factors,
        SetupPart::Compile,
        SetupPart::Method,
        SetupPart::Other,
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            SetupPart::Device => "device",
            SetupPart::Upload => "upload",
            SetupPart::SystemAnalysis => "survey",
            SetupPart::Product => "product",
            SetupPart::Subdomains => "subdomains",
            SetupPart::Analysis => "analysis",
            SetupPart::Factors => "factors",
            SetupPart::Compile => "compile",
            SetupPart::Method => "method",
            SetupPart::Other => "other",
        }
    }
}

/// Seconds of a set-up by part. Work of a GPU parallel to the host counts for the part in which the host
/// waits for it.
///
/// # Examples
/// ```
/// use krylith::matrix::Csr;
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 4.0), (0, 1, 1.0), (1, 1, 2.0)])?;
/// let solution = krylith::solve(&a, &[5.0, 2.0])?;
/// for (part, seconds) in solution.setup_parts.iter() {
///     println!("{:10} {seconds:.6} s", part.name());
/// }
/// let sum: f64 = solution.setup_parts.iter().map(|(_, seconds)| seconds).sum();
/// assert!((sum - solution.setup_seconds).abs() < 1e-9);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SetupParts([f64; SetupPart::ALL.len()]);

impl SetupParts {
    /// Every part with its time in seconds.
    pub fn iter(&self) -> impl Iterator<Item = (SetupPart, f64)> + '_ {
        SetupPart::ALL.into_iter().map(|part| (part, self.of(part)))
    }

    /// Time of one part in seconds.
    pub fn of(&self, part: SetupPart) -> f64 {
        self.0[part as usize]
    }

    /// Time of all parts in seconds.
    pub fn total(&self) -> f64 {
        self.0.iter().sum()
    }

    /// Returns the times of parts in the order of [`SetupPart::ALL`].
    #[doc(hidden)]
    pub fn of_seconds(seconds: &[f64]) -> Self {
        let mut parts = Self::default();
        parts.0.iter_mut().zip(seconds).for_each(|(own, seconds)| *own = *seconds);
        parts
    }

    /// Adds the times of another thread.
    #[doc(hidden)]
    pub fn add(&mut self, other: SetupParts) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own += other);
    }
}

thread_local! {
    /// The part whose clock runs, and its start.
    static RUNNING: Cell<Option<(SetupPart, Instant)>> = const { Cell::new(None) };
    static SPENT: Cell<SetupParts> = const { Cell::new(SetupParts([0.0; SetupPart::ALL.len()])) };
}

/// A guard for a part whose clock runs; its drop resumes the clock of the previous part. It must stay on its
/// thread.
#[must_use = "the part ends when this is dropped"]
#[doc(hidden)]
pub struct Running {
    before: Option<SetupPart>,
    began: bool,
    _thread: PhantomData<*const ()>,
}

/// Starts the clock of a part, and stops that of the enclosing part.
#[doc(hidden)]
pub fn begin(part: SetupPart) -> Running {
    Running { before: switch(Some(part)), began: true, _thread: PhantomData }
}

/// As [`begin`], but only if a set-up is running on this thread: loading a kernel during a solve counts as
/// solve time.
#[doc(hidden)]
pub fn begin_inside(part: SetupPart) -> Running {
    match RUNNING.get() {
        Some(_) => begin(part),
        None => Running { before: None, began: false, _thread: PhantomData },
    }
}

/// Returns the times of this thread since the last call.
#[doc(hidden)]
pub fn take() -> SetupParts {
    SPENT.take()
}

/// Adds times of another thread to those of this one.
#[doc(hidden)]
pub fn put(parts: SetupParts) {
    let mut all = SPENT.take();
    all.add(parts);
    SPENT.set(all);
}

/// Switches the clock to another part, and returns the part for which it ran.
fn switch(next: Option<SetupPart>) -> Option<SetupPart> {
    let now = Instant::now();
    let before = RUNNING.replace(next.map(|part| (part, now)));
    before.map(|(part, since)| {
        let mut spent = SPENT.get();
        spent.0[part as usize] += now.duration_since(since).as_secs_f64();
        SPENT.set(spent);
        part
    })
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.began {
            switch(self.before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const STEP: Duration = Duration::from_millis(10);

    #[test]
    fn a_part_inside_another_stops_its_clock() {
        take();
        let start = Instant::now();
        {
            let _outer = begin(SetupPart::Product);
            std::thread::sleep(STEP);
            {
                let _inner = begin_inside(SetupPart::Compile);
                std::thread::sleep(3 * STEP);
            }
            std::thread::sleep(STEP);
        }
        let whole = start.elapsed().as_secs_f64();
        // Nothing is under way any more.
        drop(begin_inside(SetupPart::Compile));
        let spent = take();
        assert!(spent.of(SetupPart::Compile) >= 3.0 * STEP.as_secs_f64());
        assert!(spent.of(SetupPart::Product) >= 2.0 * STEP.as_secs_f64());
        assert!(spent.total() <= whole, "{} of {whole}", spent.total());
        assert_eq!(spent.of(SetupPart::Other), 0.0);
        assert_eq!(take(), SetupParts::default(), "parts are taken once");
    }

    #[test]
    fn parts_are_numbered_in_their_order() {
        for (i, part) in SetupPart::ALL.into_iter().enumerate() {
            assert_eq!(part as usize, i, "{}", part.name());
        }
    }
}
