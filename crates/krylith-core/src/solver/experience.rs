//! Solve times recorded in this process for `device=auto`. Measured times replace estimates. A GPU is started
//! once many systems together amortise its start.

use super::estimate::{COLD, Estimate, Size};
use crate::options::{DeviceSpec, Options};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

/// Number of the most recent kinds of systems that are remembered.
const REMEMBERED: usize = 32;

/// Systems of the same size solved with the same options.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Kind {
    size: Size,
    /// A hash of the options as text.
    options: u64,
}

impl Kind {
    /// Returns `None` if the device is named, or if runs must be reproducible, because the choice of device
    /// depends on earlier solves.
    pub fn of(size: Size, options: &Options) -> Option<Self> {
        let open =
            matches!(options.device, None | Some(DeviceSpec::Auto)) && options.deterministic != Some(true);
        open.then(|| {
            let mut hasher = DefaultHasher::new();
            options.to_string().hash(&mut hasher);
            Self { size, options: hasher.finish() }
        })
    }
}

/// The smallest measured seconds of a set-up with its first solve, on each device.
#[derive(Debug)]
struct Seen {
    kind: Kind,
    cpu: Option<f64>,
    gpu: Option<f64>,
    /// True after the first solve on a GPU, which opens the GPU and loads kernels, and is not recorded.
    began_on_gpu: bool,
}

/// Times recorded in this process.
#[derive(Debug, Default)]
pub(super) struct Experience {
    seen: Vec<Seen>,
    /// Seconds lost because systems ran on the host, as no single system amortised the start of a GPU. The
    /// GPU is started once the lost seconds exceed its start-up time. So a process takes at most about twice
    /// the time that it would take with perfect foresight.
    lost: f64,
}

/// A first solve that will be timed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial {
    pub kind: Kind,
    pub on_gpu: bool,
    /// The estimate that was made before the solve.
    pub estimate: Estimate,
}

static EXPERIENCE: Mutex<Experience> = Mutex::new(Experience { seen: Vec::new(), lost: 0.0 });

/// Replaces estimated times by those measured in this process for the same kind of system.
pub(super) fn corrected(kind: Kind, estimate: Estimate) -> Estimate {
    with(|known| known.corrected(kind, estimate))
}

/// Returns true if the GPU should be started now for this and later systems, although this system alone does
/// not amortise the start.
pub(super) fn repays_a_start(estimate: &Estimate) -> bool {
    estimate.start > 0.0 && with(|known| known.repays_a_start(estimate))
}

/// Records the seconds of a first solve, set-up included.
pub(super) fn note(trial: &Trial, seconds: f64) {
    with(|known| known.note(trial, seconds));
}

fn with<T>(work: impl FnOnce(&mut Experience) -> T) -> T {
    work(&mut EXPERIENCE.lock().unwrap_or_else(|e| e.into_inner()))
}

impl Experience {
    fn corrected(&self, kind: Kind, estimate: Estimate) -> Estimate {
        let Some(seen) = self.seen.iter().find(|seen| seen.kind == kind) else { return estimate };
        let (cpu, gpu) = (seen.cpu.unwrap_or(estimate.cpu), seen.gpu.unwrap_or(estimate.gpu));
        Estimate { cpu, gpu, measured: [seen.cpu.is_some(), seen.gpu.is_some()], ..estimate }
    }

    fn repays_a_start(&mut self, estimate: &Estimate) -> bool {
        self.lost += estimate.lost();
        estimate.lost() > 0.0 && self.lost > COLD
    }

    fn note(&mut self, trial: &Trial, seconds: f64) {
        let place = self.seen.iter().position(|seen| seen.kind == trial.kind).unwrap_or_else(|| {
            if self.seen.len() == REMEMBERED {
                self.seen.remove(0);
            }
            self.seen.push(Seen { kind: trial.kind, cpu: None, gpu: None, began_on_gpu: false });
            self.seen.len() - 1
        });
        let seen = &mut self.seen[place];
        let least = |known: Option<f64>| Some(known.map_or(seconds, |known| known.min(seconds)));
        match (trial.on_gpu, seen.began_on_gpu) {
            (true, false) => seen.began_on_gpu = true,
            (true, true) => seen.gpu = least(seen.gpu),
            (false, _) => {
                seen.cpu = least(seen.cpu);
                // The loss was counted with the estimated time before the solve. Correct it.
                let lost = Estimate { cpu: seconds, ..trial.estimate }.lost();
                self.lost = (self.lost + lost - trial.estimate.lost()).max(0.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(unknowns: f64, options: &str) -> Kind {
        let size = Size { matrix: 60.0 * unknowns, factors: 60.0 * unknowns, vector: 8.0 * unknowns };
        Kind::of(size, &options.parse().unwrap()).unwrap()
    }

    fn estimate(cpu: f64, gpu: f64) -> Estimate {
        Estimate { cpu, gpu, start: COLD, measured: [false; 2] }
    }

    #[test]
    fn many_systems_start_the_gpu_that_one_does_not() {
        let mut known = Experience::default();
        let small = estimate(0.001, 0.02);
        assert!((0..100_000).all(|_| !known.repays_a_start(&small)));
        let one = estimate(0.11, 0.02);
        assert!(one.prefers_cpu());
        let stayed = (0..).take_while(|_| !known.repays_a_start(&one)).count();
        assert_eq!(stayed, 3, "three times 0.09 s are less than the start, four times are more");
        assert!(known.repays_a_start(&one) && !known.repays_a_start(&small));
    }

    #[test]
    fn what_was_measured_goes_before_what_was_estimated() {
        let (mut known, one) = (Experience::default(), estimate(0.07, 0.02));
        let (this, other) = (kind(160_000.0, ""), kind(160_000.0, "rtol=1e-9"));
        assert!(!known.repays_a_start(&one));
        known.note(&Trial { kind: this, on_gpu: false, estimate: one }, 0.52);
        let next = known.corrected(this, one);
        assert_eq!((next.cpu, next.gpu, next.measured), (0.52, 0.02, [true, false]));
        assert_eq!(known.corrected(other, one), one, "other options, another kind");
        // The measured loss exceeds the start-up time already.
        assert!(known.lost > COLD && known.repays_a_start(&next) && !next.prefers_cpu());
        // The first solve on a GPU opens it and does not count. Of later solves the shortest counts.
        let there = Trial { kind: this, on_gpu: true, estimate: next };
        for (seconds, expected) in [(2.0, one.gpu), (0.04, 0.04), (0.06, 0.04)] {
            known.note(&there, seconds);
            assert_eq!(known.corrected(this, one).gpu, expected);
        }
        // A solve that was faster than estimated reduces the loss.
        let before = known.lost;
        assert!(!known.repays_a_start(&estimate(0.0, 0.02)));
        known.note(&Trial { kind: other, on_gpu: false, estimate: one }, 0.01);
        assert!(known.lost < before);
    }

    #[test]
    fn few_systems_are_remembered_and_none_where_runs_are_to_repeat() {
        let (mut known, one) = (Experience::default(), estimate(0.07, 0.02));
        for n in 0..100 {
            known.note(&Trial { kind: kind(n as f64, ""), on_gpu: false, estimate: one }, 0.1);
        }
        assert_eq!(known.seen.len(), REMEMBERED);
        assert!(
            known.corrected(kind(99.0, ""), one).measured[0]
                && !known.corrected(kind(1.0, ""), one).measured[0]
        );
        let size = kind(1.0, "").size;
        for options in ["deterministic=true", "device=cpu"] {
            assert!(Kind::of(size, &options.parse().unwrap()).is_none());
        }
    }
}
