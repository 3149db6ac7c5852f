//! The GPUs that each rank of a host sees. A launcher may give each rank other GPUs (`CUDA_VISIBLE_DEVICES`).

use crate::Result;
use crate::comm::{Communicator, gather};
use crate::options::RanksPerGpu;
use crate::partition::contiguous;

/// The UUID of a GPU.
pub(in super::super) type Gpu = [u8; 16];

/// The GPUs that each rank may use, in the rank's own order.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct Views {
    /// The ranks of each host, ascending.
    hosts: Vec<Vec<usize>>,
    seen: Vec<Vec<Gpu>>,
}

impl Views {
    /// Collects the GPUs of all ranks. Collective.
    pub fn gather(comm: &dyn Communicator, own: &[Gpu]) -> Result<Self> {
        let first = comm.host().ranks_on_host.first().copied().unwrap_or(comm.rank());
        let all = gather(comm, &[&(first as u64).to_le_bytes()[..], own.as_flattened()].concat())?;
        let mut hosts: Vec<(u64, Vec<usize>)> = Vec::new();
        let mut seen = Vec::new();
        for (rank, bytes) in all.iter().enumerate() {
            let (host, gpus) = bytes.split_first_chunk().unwrap_or((&[0; 8], &[]));
            let host = u64::from_le_bytes(*host);
            match hosts.iter_mut().find(|(known, _)| *known == host) {
                Some((_, ranks)) => ranks.push(rank),
                None => hosts.push((host, vec![rank])),
            }
            seen.push(gpus.as_chunks().0.to_vec());
        }
        Ok(Self { hosts: hosts.into_iter().map(|(_, ranks)| ranks).collect(), seen })
    }

    /// Returns true if the ranks of some host see different GPUs.
    pub fn differ(&self) -> bool {
        self.hosts.iter().any(|ranks| self.differ_on(ranks))
    }

    fn differ_on(&self, ranks: &[usize]) -> bool {
        ranks.iter().any(|&rank| self.seen[rank] != self.seen[ranks[0]])
    }

    /// Returns the GPUs of these ranks, in the order in which they are seen first.
    fn distinct(&self, ranks: &[usize]) -> Vec<Gpu> {
        let mut all: Vec<Gpu> = Vec::new();
        for gpu in ranks.iter().flat_map(|&rank| &self.seen[rank]) {
            if !all.contains(gpu) {
                all.push(*gpu);
            }
        }
        all
    }

    /// Divides the ranks of each host into groups that share a device. Groups are in the order of their first
    /// ranks.
    pub fn groups(&self, share: RanksPerGpu) -> Vec<Vec<usize>> {
        let mut groups = Vec::new();
        for ranks in &self.hosts {
            let runs = |ranks: &[usize], count: usize| -> Vec<Vec<usize>> {
                let count = count.clamp(1, ranks.len());
                (0..count).map(|k| ranks[contiguous(ranks.len(), k, count)].to_vec()).collect()
            };
            let apart = self.differ_on(ranks);
            let classes = if apart { self.by_gpu(ranks) } else { vec![ranks.clone()] };
            for class in classes {
                let count = match share {
                    RanksPerGpu::Count(most) => class.len().div_ceil(most),
                    RanksPerGpu::Auto if apart => 1,
                    // Without a GPU no rank gives its rows away.
                    RanksPerGpu::Auto => match self.distinct(&class).len() {
                        0 => class.len(),
                        gpus => gpus,
                    },
                };
                groups.extend(runs(&class, count));
            }
        }
        groups.sort_unstable();
        groups
    }

    /// Divides ranks that see different GPUs into classes, one for each GPU that is taken. A rank takes the
    /// GPU with the fewest ranks so far, of those that it sees. Ranks without a GPU stay alone.
    fn by_gpu(&self, ranks: &[usize]) -> Vec<Vec<usize>> {
        let gpus = self.distinct(ranks);
        let (mut of, mut alone) = (vec![Vec::new(); gpus.len()], Vec::new());
        for &rank in ranks {
            let seen = self.seen[rank].iter().filter_map(|gpu| gpus.iter().position(|other| other == gpu));
            match seen.min_by_key(|&place| of[place].len()) {
                Some(place) => of[place].push(rank),
                None => alone.push(vec![rank]),
            }
        }
        of.into_iter().filter(|class| !class.is_empty()).chain(alone).collect()
    }
}

/// The GPU of each rank, if no two share one.
#[cfg(any(feature = "cuda", test))]
impl Views {
    /// Returns the number of ranks on the host of this rank, and of the GPUs that they see together.
    pub fn counts(&self, rank: usize) -> (usize, usize) {
        let ranks = self.host_of(rank);
        (ranks.len(), self.distinct(ranks).len())
    }

    fn host_of(&self, rank: usize) -> &[usize] {
        self.hosts.iter().find(|ranks| ranks.contains(&rank)).map_or(&[], Vec::as_slice)
    }

    /// Returns the place of this rank's GPU in its own list, if each rank of the host can have one that no
    /// other has: the GPU of its number on the host, if all see the same.
    pub fn own(&self, rank: usize) -> Option<usize> {
        let ranks = self.host_of(rank);
        let own = ranks.iter().position(|&other| other == rank)?;
        if !self.differ_on(ranks) {
            return (ranks.len() <= self.seen[rank].len()).then_some(own);
        }
        let gpus = self.distinct(ranks);
        let mut owner = vec![None; gpus.len()];
        for at in 0..ranks.len() {
            if !self.place(ranks, at, &gpus, &mut owner, &mut vec![false; gpus.len()]) {
                return None;
            }
        }
        let taken = owner.iter().position(|owner| *owner == Some(own))?;
        self.seen[rank].iter().position(|gpu| *gpu == gpus[taken])
    }

    /// Gives a rank one of its GPUs. Ranks that have one may get another (augmenting paths of a matching).
    fn place(
        &self,
        ranks: &[usize],
        at: usize,
        gpus: &[Gpu],
        owner: &mut [Option<usize>],
        tried: &mut [bool],
    ) -> bool {
        let places = self.seen[ranks[at]].iter().filter_map(|gpu| gpus.iter().position(|other| other == gpu));
        let places: Vec<usize> = places.collect();
        if let Some(&free) = places.iter().find(|&&place| owner[place].is_none()) {
            owner[free] = Some(at);
            return true;
        }
        for place in places {
            if std::mem::replace(&mut tried[place], true) {
                continue;
            }
            if owner[place].is_none_or(|other| self.place(ranks, other, gpus, owner, tried)) {
                owner[place] = Some(at);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RanksPerGpu::{Auto, Count};

    fn views(hosts: &[usize], seen: &[&[u8]]) -> Views {
        let mut first = 0;
        let host = |count: &usize| {
            first += count;
            (first - count..first).collect()
        };
        let hosts = hosts.iter().map(host).collect();
        Views { hosts, seen: seen.iter().map(|gpus| gpus.iter().map(|&gpu| [gpu; 16]).collect()).collect() }
    }

    #[test]
    fn ranks_that_see_the_same_gpus_form_runs() {
        let all = views(&[5, 3], &[&[1, 2][..]; 8]);
        assert!(!all.differ());
        assert_eq!(all.groups(Auto), [vec![0, 1], vec![2, 3, 4], vec![5], vec![6, 7]]);
        assert_eq!(all.groups(Count(4)), [vec![0, 1], vec![2, 3, 4], vec![5, 6, 7]]);
        assert_eq!(all.groups(Count(8)), [vec![0, 1, 2, 3, 4], vec![5, 6, 7]]);
        assert_eq!((all.counts(6), all.own(6)), ((3, 2), None));
        let none = views(&[4], &[&[][..]; 4]);
        assert_eq!(none.groups(Auto), [[0], [1], [2], [3]]);
        assert_eq!(none.groups(Count(2)), [[0, 1], [2, 3]]);
        let enough = views(&[2], &[&[1, 2, 3][..]; 2]);
        assert_eq!((enough.groups(Auto), enough.own(1)), (vec![vec![0], vec![1]], Some(1)));
    }

    #[test]
    fn ranks_with_a_gpu_each_from_their_launcher_share_by_gpu() {
        let each = views(&[6], &[&[1], &[2], &[1], &[2], &[1], &[1]]);
        assert!(each.differ());
        assert_eq!(each.groups(Auto), [vec![0, 2, 4, 5], vec![1, 3]]);
        assert_eq!(each.groups(Count(2)), [vec![0, 2], vec![1, 3], vec![4, 5]]);
        // The leaders of both groups have GPU 0 of their own lists.
        let leaders = views(&[2], &[&[1], &[2]]);
        assert_eq!([leaders.own(0), leaders.own(1)], [Some(0); 2]);
        // Rank 0 gives up the only GPU that rank 1 sees.
        let mixed = views(&[3], &[&[1, 2], &[1], &[2, 3]]);
        assert_eq!([0, 1, 2].map(|rank| mixed.own(rank)), [Some(1), Some(0), Some(1)]);
        assert_eq!(views(&[2], &[&[1], &[]]).own(0), None);
        assert_eq!(views(&[2], &[&[1], &[]]).groups(Auto), [[0], [1]]);
    }
}
