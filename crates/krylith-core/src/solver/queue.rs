//! Locks by which several solvers on the same GPUs of one process take turns.
//!
//! The kernels of a solver on several GPUs wait for each other. If kernels of two solvers were interleaved,
//! each GPU could run a kernel that waits for one queued behind the other solver's kernel, which is a
//! deadlock. So a solver that works on several GPUs locks all of them. It locks them in the order of their
//! numbers, so that two solvers never wait for each other. The wait for a lock has no time limit. It lasts as
//! long as the other solver's command, whose own waits have limits.

use crate::waiting::list;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

/// The lock of one GPU.
#[derive(Default)]
pub(super) struct Queue {
    taken: Mutex<bool>,
    free: Condvar,
}

static QUEUES: Mutex<BTreeMap<usize, Arc<Queue>>> = Mutex::new(BTreeMap::new());

/// Returns the locks of these GPUs in locking order.
pub(super) fn of(ordinals: &[usize]) -> Vec<Arc<Queue>> {
    let mut all = QUEUES.lock().unwrap_or_else(|e| e.into_inner());
    let mut sorted = ordinals.to_vec();
    sorted.sort_unstable();
    sorted.into_iter().map(|n| all.entry(n).or_default().clone()).collect()
}

/// Locks on all GPUs of a solver, released when dropped.
pub(super) struct Hold<'a>(&'a [Arc<Queue>]);

impl<'a> Hold<'a> {
    /// Waits until all GPUs are free, and locks them.
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
        // No machine has GPUs with these numbers. They are locked in both orders.
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
