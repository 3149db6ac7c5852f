//! What macro-made passes reach on a GPU.

use krylith_core::device::cuda::{Cuda, Device};
use krylith_core::space::{Schedule, Space};
use std::sync::Arc;

krylith_core::sweeps! {
    /// Two passes as methods have them.
    const SWEEPS;
    /// r = b − q, and ‖r‖².
    residual: () [b, q] [r] -> [rr] {
        r = b - q;
        rr += r * r;
    }
    /// ‖b‖².
    norm_squared: () [b] [] -> [bb] { bb += b * b; }
}

/// Compares the bandwidth of a kernel made by the macro with the driver's copy, and a launch in a graph with
/// a single one.
pub fn sweeps_reach_the_bandwidth(device: &Arc<Device>) {
    assert_eq!(SWEEPS.len(), 2);
    let time = |space: &Cuda, rounds: usize, work: &mut dyn FnMut()| {
        work();
        space.wait().unwrap();
        let mut best = f64::INFINITY;
        for _ in 0..20 {
            let start = std::time::Instant::now();
            (0..rounds).for_each(|_| work());
            space.wait().unwrap();
            best = best.min(start.elapsed().as_secs_f64() / rounds as f64);
        }
        best
    };
    let n = 1 << 27;
    let space = Cuda::new(device, n).unwrap();
    let mut s = space.scalars(4).unwrap();
    let (b, q, mut r) = (space.vector().unwrap(), space.vector().unwrap(), space.vector().unwrap());
    let copy = time(&space, 10, &mut || space.copy(&b, &mut r).unwrap());
    let fused = time(&space, 10, &mut || space.sweep(residual, &mut s, [], [&b, &q], [&mut r], [0]).unwrap());
    let read = time(&space, 10, &mut || space.sweep(norm_squared, &mut s, [], [&b], [], [0]).unwrap());
    let rate = |vectors: f64, seconds: f64| vectors * 8.0 * n as f64 / seconds / 1e9;
    println!(
        "copy {:.0} GB/s, sweep residual {:.0} GB/s, sweep norm {:.0} GB/s",
        rate(2.0, copy),
        rate(3.0, fused),
        rate(1.0, read)
    );

    let space = Cuda::new(device, 1024).unwrap();
    let mut s = space.scalars(4).unwrap();
    let b = space.vector().unwrap();
    let hundred = |space: &Cuda, s: &mut krylith_core::device::cuda::CudaScalars| {
        (0..100).try_for_each(|_| space.sweep(norm_squared, s, [], [&b], [], [0]))
    };
    let launches = time(&space, 10, &mut || hundred(&space, &mut s).unwrap());
    let mut recording = Default::default();
    let graph = time(&space, 10, &mut || {
        space.record(&mut recording, Some(1), |space| hundred(space, &mut s)).unwrap()
    });
    println!("a small sweep: {:.2} µs launched, {:.2} µs in a graph", launches * 1e4, graph * 1e4);
    assert!(graph < launches, "a graph must not cost more than its launches");
}
