//! Which ranks solve, and whose rows each of them has.

use crate::Result;
use crate::comm::Communicator;
use crate::options::{DeviceSpec, Options, RanksPerGpu};
use crate::solver::device::{views::Views, visible};
use crate::text::plural;

/// Groups of ranks of a host. The first rank of a group solves for all of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    /// The ranks of each group, ascending. Groups are in the order of their first ranks.
    pub groups: Vec<Vec<usize>>,
    /// The groups in words.
    pub text: String,
}

impl Plan {
    /// Returns the groups that these options ask for; `None` if each rank solves for itself. Collective.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub fn of(comm: &dyn Communicator, options: &Options) -> Result<Option<Self>> {
        let list: &[usize] = match &options.device {
            Some(DeviceSpec::Cuda(list)) => list,
            _ => &[],
        };
        let on_cpu = matches!(options.device, Some(DeviceSpec::Cpu));
        let share = match (options.ranks_per_gpu, &options.device) {
            _ if comm.size() == 1 => return Ok(None),
            (Some(RanksPerGpu::Count(1)), _) => return Ok(None),
            (Some(RanksPerGpu::Auto), Some(DeviceSpec::Cpu)) => return Ok(None),
            (None, None | Some(DeviceSpec::Auto | DeviceSpec::Cpu)) => return Ok(None),
            (share, _) => share.unwrap_or_default(),
        };
        let views = Views::gather(comm, &if on_cpu { Vec::new() } else { visible(list) })?;
        Ok(Self::new(views.groups(share), comm.size(), views.differ()))
    }

    fn new(groups: Vec<Vec<usize>>, ranks: usize, differ: bool) -> Option<Self> {
        if groups.len() == ranks {
            return None;
        }
        const NAMED: usize = 8;
        let mut leaders: Vec<String> = groups.iter().take(NAMED).map(|own| own[0].to_string()).collect();
        if groups.len() > NAMED {
            leaders.push("…".into());
        }
        let who = if groups.len() == 1 { "rank" } else { "ranks" };
        let mut text =
            format!("the rows of {} gather on {who} {}", plural(ranks, "rank"), leaders.join(", "));
        if differ {
            text +=
                "; ranks of a host see different GPUs (CUDA_VISIBLE_DEVICES), and those of one GPU gather";
        }
        Some(Self { groups, text })
    }

    /// Returns the number of the group that has this rank.
    pub fn group_of(&self, rank: usize) -> usize {
        self.groups.iter().position(|own| own.contains(&rank)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_the_ranks_that_solve() {
        let of = |groups, differ| Plan::new(groups, 4, differ).map(|plan| plan.text);
        let two = vec![vec![0, 1], vec![2, 3]];
        assert_eq!(of(two.clone(), false).unwrap(), "the rows of 4 ranks gather on ranks 0, 2");
        assert!(
            of(vec![vec![0, 1, 2, 3]], true).unwrap().contains("rank 0; ranks of a host see different GPUs")
        );
        assert_eq!(of((0..4).map(|rank| vec![rank]).collect(), false), None);
        assert_eq!(Plan::new(two, 4, false).unwrap().group_of(3), 1);
    }
}
