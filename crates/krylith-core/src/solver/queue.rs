//! Several solvers on the same GPUs of one process take turns.
//!
//! The kernels of several GPUs wait for each other. Were those of two solvers mixed, each GPU could run one that waits for a
//! kernel that stands behind the other's, for ever. So a solver holds all of its GPUs while it works on several, and takes
//! them in the order of their numbers, that no two wait for each other. A turn has no bound of its own: it lasts as long as the
//! command of the other solver, whose waits have theirs.

use crate::waiting::list;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

/// One GPU's turn.
#[derive(Default)]
pub(super) struct Queue {
    taken: Mutex<bool>,
    free: Condvar,
}

static QUEUES: Mutex<BTreeMap<usize, Arc<Queue>>> = Mutex::new(BTreeMap::new());

/// The queues of these GPUs, in the order in which they are to be taken.
pub(super) fn of(ordinals: &[usize]) -> Vec<Arc<Queue>> {
    let mut all = QUEUES.lock().unwrap_or_else(|e| e.into_inner());
    let mut sorted = ordinals.to_vec();
    sorted.sort_unstable();
    sorted.into_iter().map(|n| all.entry(n).or_default().clone()).collect()
}

/// All GPUs of a solver, until it is dropped.
pub(super) struct Hold<'a>(&'a [Arc<Queue>]);

impl<'a> Hold<'a> {
    /// Waits until all are free, and takes them.
    pub fn take(queues: &'a [Arc<Queue>]) -> Self {
        for queue in queues {
            let mut taken = queue.taken.lock().unwrap_or_else(|e| e.into_inner());
            let mut listed = None;
            while *taken {
                listed.get_or_insert_with(|| {
                    list("its turn on a GPU that another solver uses".into(), Instant::now())
                });
                taken = queue.free.wait(taken).unwrap_or_else(|e| e.into_inner());
            }
            *taken = true;
        }
        Self(queues)
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        for queue in self.0 {
            *queue.taken.lock().unwrap_or_else(|e| e.into_inner()) = false;
            queue.free.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[test]
    fn who_shares_a_gpu_takes_turns() {
        // Numbers that no machine has, in both orders.
        let (first, second) = (of(&[1_000_000, 1_000_001]), of(&[1_000_001, 1_000_000, 1_000_002]));
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for queues in [&first, &second, &first, &second] {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _hold = Hold::take(queues);
                        most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                        inside.fetch_sub(1, SeqCst);
                    }
                });
            }
        });
        assert_eq!(most.into_inner(), 1);
    }
}
