//! The values that a solve chose for options that were not given.

use super::Choice;
use krylith_core::matching::MatchingChoice;
use krylith_core::method::MethodName;
use krylith_core::operator::{Format, ShareSpec};
use krylith_core::partition::PartitionSpec;
use krylith_core::precond::PrecondSpec;
use krylith_core::solver::Solution;
use krylith_core::{DeviceSpec, Options};

/// Creates a choice.
pub fn choice(option: &str, taken: impl Into<String>, reason: Option<String>) -> Choice {
    Choice { option: option.into(), taken: taken.into(), reason: reason.filter(|reason| !reason.is_empty()) }
}

/// Returns the choices of a solve; `given` has the options of the command line or a file.
pub fn automatic(solution: &Solution, given: &Options) -> Vec<Choice> {
    let (device, info) = (&solution.device, &solution.precond);
    let mut all = Vec::new();
    if matches!(given.device, None | Some(DeviceSpec::Auto)) {
        all.push(choice("device", device.kind, Some(device.reason.clone())));
    }
    if given.threads.is_none() && device.kind == "cpu" {
        all.push(choice("threads", device.threads.to_string(), None));
    }
    if matches!(given.partition, None | Some(PartitionSpec::Auto)) && device.ranks > 1 {
        all.push(choice("partition", "auto", None));
    }
    if matches!(given.method, None | Some(MethodName::Auto)) {
        all.push(choice("method", solution.method.name().name(), None));
    }
    if let (None, Some(restart)) = (given.restart, solution.method.options().restart) {
        all.push(choice("restart", restart.to_string(), None));
    }
    if matches!(given.precond, None | Some(PrecondSpec::Auto)) {
        all.push(choice("precond", info.text.clone(), Some(info.reason.clone())));
    }
    if matches!(given.format, None | Some(Format::Auto)) && solution.format != Format::Auto {
        all.push(choice("format", solution.format.name(), None));
    }
    if let (Some(ShareSpec::Auto), Some(share)) = (given.share, &solution.share) {
        all.push(choice("share", share.to_string(), None));
    }
    if given.equilibrate.is_none() {
        all.push(choice("equilibrate", solution.equilibrated.to_string(), None));
    }
    if matches!(given.matching, None | Some(MatchingChoice::Auto)) {
        all.push(choice("matching", if solution.matched { "on" } else { "off" }, None));
    }
    all
}
