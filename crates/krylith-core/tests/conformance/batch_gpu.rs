//! Batches of small systems on a GPU beside those of the host.

use crate::common::*;
use krylith_core::device::cuda::{CudaBatch, Device};
use krylith_core::matrix::{Bsr, Csr};
use krylith_core::memory::{Numbers, NumbersMut};
use krylith_core::precond::Batch;
use std::sync::Arc;

/// Batches of one and of many systems, as they are and transposed. One system is singular, and the diagonals
/// of others vanish.
pub fn batches_match_the_host(device: &Arc<Device>) {
    if std::env::var_os("KRYLITH_CUDSS").is_none() {
        println!("without cuDSS");
        return;
    }
    let mut rng = Random(77);
    for (n, count) in [(1, 3), (10, 1), (40, 500), (500, 60)] {
        let mut entries = Vec::new();
        for i in 0..n {
            let columns = [i, (i + 1) % n, (i * 7 + 3) % n];
            let mut columns = columns.to_vec();
            columns.sort_unstable();
            columns.dedup();
            entries.extend(columns.iter().map(|&j| (i as u32, j as u32, 1.0)));
        }
        let pattern = Csr::from_triplets(n, n, &entries).unwrap();
        let stored = pattern.nonzeros();
        let mut values = rng.numbers(count * stored);
        let diagonal: Vec<bool> = entries.iter().map(|&(i, j, _)| i == j).collect();
        for (k, values) in values.chunks_mut(stored).enumerate() {
            let own = values.iter_mut().zip(&diagonal).filter(|(_, is)| **is).map(|(v, _)| v);
            match k % 10 {
                2 if n > 1 => own.for_each(|v| *v = 0.0),
                _ => own.for_each(|v| *v += 4.0),
            }
        }
        let singular = if count > 5 { Some(5) } else { None };
        if let Some(k) = singular {
            values[k * stored..][..stored].fill(0.0);
        }
        let b = rng.numbers(count * n);
        for transposed in [false, true] {
            let mut expected = vec![0.0; count * n];
            let mut host = Batch::new(Bsr::from_csr(&pattern, 1).unwrap(), None).unwrap();
            let ends = host.solve(&values, &b, &mut expected, 1e-12, transposed).unwrap();
            let (on_gpu, rhs) =
                (device.upload(&values, "a test").unwrap(), device.upload(&b, "a test").unwrap());
            let mut x = device.zeros::<f64>(count * n, "a test").unwrap();
            let mut batch = CudaBatch::new(device.info().ordinal, &pattern).unwrap();
            for _ in 0..2 {
                let to = NumbersMut::from(&mut x);
                let (values, rhs) = (Numbers::from(&on_gpu), Numbers::from(&rhs));
                let residuals = batch.solve(values, rhs, to, 1e-12, transposed).unwrap();
                let mut found = vec![0.0; count * n];
                device.read(&x, 0, &mut found).unwrap();
                let mut solved = 0;
                for (k, residual) in residuals.iter().enumerate() {
                    // The caller solves the others again on the host.
                    if !(*residual <= 1e-12) {
                        assert!(Some(k) == singular || k % 10 == 2, "{n}, {k}: {residual:e}");
                        continue;
                    }
                    solved += 1;
                    assert!(ends[k].is_ok(), "{n}, {k}");
                    let (x, y) = (&found[k * n..][..n], &expected[k * n..][..n]);
                    assert!(distance(x, y) < 1e-8, "{n}, {k}, {transposed}: {:e}", distance(x, y));
                }
                assert!(solved * 10 >= count * 8, "{n}: {solved} of {count}");
            }
        }
    }
}
